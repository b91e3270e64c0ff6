"""A real schema registry, from its published jars."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pravega_wire.errors import ServerStartError
from pravega_wire.testing.jars import schema_registry_classpath
from pravega_wire.testing.launching import java_process
from pravega_wire.testing.processes import (
    ServerProcess,
    data_directory,
    free_ports,
    log_directory,
)
from pravega_wire.testing.running import PravegaServer
from pravega_wire.testing.security import Account, make_account

__all__ = ["SchemaRegistryServer", "schema_registry"]

_READY_SECONDS = 120.0
_PAUSE_SECONDS = 0.2


@dataclass(slots=True)
class SchemaRegistryServer:
    """A schema registry that is ready.

    Example::

        import httpx
        from pravega_wire.testing import schema_registry

        with schema_registry() as server:
            print(httpx.get(f"{server.uri}/v1/groups").json())

    :ivar uri: address of the registry, ``http://host:port``.
    :ivar process: the registry's process.
    :ivar log_dir: directory with its logs.
    :ivar username: user name of the registry's account, or None.
    :ivar password: password of that account, or None.
    """

    uri: str
    process: ServerProcess
    log_dir: Path
    username: str | None = None
    password: str | None = field(default=None, repr=False)


@contextmanager
def schema_registry(
    *, server: PravegaServer | None = None, memory: str = "512m", auth: bool = False, port: int | None = None
) -> Iterator[SchemaRegistryServer]:
    """Run a schema registry (version 0.6.0) until the context ends.

    It needs only the published jars, which are downloaded once.

    Example::

        from pravega_wire.testing import schema_registry

        with schema_registry() as server:
            print(server.uri)

    :param server: the Pravega server that stores the schemas; default: the registry keeps them in memory. A
        server with TLS or authentication is not supported.
    :param memory: heap size of the Java process.
    :param auth: whether to require authentication, with a new account.
    :param port: port on 127.0.0.1; default: a free port.
    :raises ServerStartError: the registry could not be started; the message says what to do.
    """
    config = None if server is None else server.config()
    if config is not None and (config.credentials is not None or config.trust_store is not None):
        raise ServerStartError(
            "schema_registry() supports only a server without TLS and authentication: use another server, or "
            "none to keep the schemas in memory"
        )
    [listening] = free_ports(1, first=port)
    with log_directory("schema-registry") as log_dir, data_directory("schema-registry") as data:
        account = make_account(log_dir) if auth else None
        store: dict[str, object] = {"schemaRegistry.store.type.name": "InMemory"}
        if server is not None:
            store = {
                "schemaRegistry.store.type.name": "Pravega",
                "schemaRegistry.store.pravega.controller.connect.uri": server.controller_uri,
            }
        process = java_process(
            "schema-registry",
            "io.pravega.schemaregistry.service.Main",
            {
                "schemaRegistry.service.rest.published.host.nameOrIp": "127.0.0.1",
                "schemaRegistry.service.rest.listener.port": listening,
                **store,
                **(_requiring(account) if account else {}),
            },
            address=("127.0.0.1", listening),
            log_dir=log_dir,
            data=data,
            memory=memory,
            direct_memory=memory,
            classpath=schema_registry_classpath(),
        )
        try:
            process.start()
            _wait_ready(process)
            yield SchemaRegistryServer(
                f"http://127.0.0.1:{listening}",
                process,
                log_dir,
                username=account.username if account else None,
                password=account.password if account else None,
            )
        finally:
            process.kill()


def _requiring(account: Account) -> dict[str, object]:
    """Return the settings of a registry that requires an account."""
    return {
        "schemaRegistry.security.auth.enable": "true",
        "schemaRegistry.security.pwdAuthHandler.accountsDb.location": account.file,
    }


def _wait_ready(process: ServerProcess) -> None:
    """Wait until the registry answers.

    :raises ServerStartError: the process has ended, or did not answer in time.
    """
    deadline = time.monotonic() + _READY_SECONDS
    while not _answers(process.address):
        if not process.alive:
            raise ServerStartError(
                f"{process.name} has ended during its start; the end of its logs:\n{process.explain()}"
            )
        if time.monotonic() > deadline:
            raise ServerStartError(
                f"the schema registry at {process.address[1]} was not ready after {_READY_SECONDS:g} s\n"
                f"{process.explain()}"
            )
        # The registry does not signal that it is ready, so this polls.
        time.sleep(_PAUSE_SECONDS)


def _answers(address: tuple[str, int]) -> bool:
    connection = http.client.HTTPConnection(*address, timeout=10)
    try:
        connection.request("GET", "/ping")
        # With accounts, it asks even a ping for one.
        return connection.getresponse().status in (200, 401)
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
