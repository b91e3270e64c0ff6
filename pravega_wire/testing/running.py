"""A running server of any kind: how to connect to it, and how to wait until it is ready."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol
from urllib.parse import urlsplit
from uuid import uuid4

from pravega_wire.errors import PravegaError, ServerStartError
from pravega_wire.testing.processes import ServerProcess

if TYPE_CHECKING:
    from pravega_wire.values.config import PravegaConfig

__all__ = ["Kind", "PravegaCluster", "PravegaServer", "Watched", "wait_ready"]

Kind = Literal["address", "containers", "jars", "memory"]

_READY_SECONDS = 120.0


@dataclass(slots=True)
class PravegaServer:
    """A Pravega server that is ready.

    Example::

        with standalone() as server, sync.open_client(server.config("demo")) as client:
            client.create_scope("demo")

    :ivar kind: ``"address"``, ``"containers"``, ``"jars"`` or ``"memory"``.
    :ivar controller_uri: URI of the controller.
    :ivar log_dir: directory with the server's logs, or None.
    :ivar processes: the server's processes, if this program has started them.
    :ivar username: user name of the server's account, or None.
    :ivar password: password of that account, or None.
    :ivar trust_store: PEM file with the server's certificate authority, or None.
    :ivar schema_registry_uri: address of the schema registry beside it, or None.
    :ivar version: version of the server, such as ``"0.13.0"``, if it was started from the published jars;
        otherwise None.
    """

    kind: Kind
    controller_uri: str
    log_dir: Path | None = None
    processes: list[ServerProcess] = field(default_factory=list)
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    trust_store: Path | None = None
    schema_registry_uri: str | None = None
    version: str | None = None

    def config(self, scope: str | None = None) -> PravegaConfig:
        """Return the connection settings for this server, including credentials and trust store.

        For a server at an address these and all other settings are those of the environment.

        :param scope: default scope, or None.
        :raises InvalidArgumentError: a setting of the environment is malformed.
        """
        from pravega_wire.values.config import Credentials, PravegaConfig

        if self.kind == "address":
            found = PravegaConfig.from_defaults(
                controller_uri=self.controller_uri, schema_registry_uri=self.schema_registry_uri
            )
            return replace(found, scope=scope)
        return PravegaConfig(
            controller_uri=self.controller_uri,
            scope=scope,
            credentials=None
            if self.username is None
            else Credentials.basic(self.username, self.password or ""),
            trust_store=None if self.trust_store is None else str(self.trust_store),
            schema_registry_uri=self.schema_registry_uri,
        )

    @property
    def controller_address(self) -> tuple[str, int]:
        """``(host, port)`` of the first controller."""
        parts = urlsplit(self.controller_uri)
        return parts.hostname or "127.0.0.1", parts.port or 9090


@dataclass(slots=True)
class PravegaCluster(PravegaServer):
    """A Pravega server made of several processes.

    :ivar controllers: the controller processes.
    :ivar stores: the segment store processes.
    :ivar bookie: the process with ZooKeeper and the bookie. When it ends, all that the cluster has stored is
        lost, even if it is started again.
    """

    controllers: list[ServerProcess] = field(default_factory=list)
    stores: list[ServerProcess] = field(default_factory=list)
    bookie: ServerProcess | None = None


class Watched(Protocol):
    """A process or container that may end while it starts."""

    @property
    def name(self) -> str: ...
    @property
    def alive(self) -> bool: ...
    def explain(self) -> str: ...


def wait_ready(
    config: PravegaConfig, *, processes: Sequence[Watched] = (), seconds: float = _READY_SECONDS
) -> None:
    """Wait until a scope can be created; ports accept connections long before that.

    :param config: how to connect to the server.
    :param processes: processes of the server, to fail early if one of them ends.
    :param seconds: time limit.
    :raises ServerStartError: a process has ended, or the server was not ready in time.
    """
    import trio

    from pravega_wire.controller.client import open_controller
    from pravega_wire.transport.retry import RetryPolicy

    uri = config.controller_uri
    deadline = time.monotonic() + seconds
    last = "no answer yet"

    async def probe() -> None:
        async with open_controller(
            config.endpoints,
            tls=config.ssl_context(http2=True),
            credentials=config.authorization(),
            deadline=10.0,
            policy=RetryPolicy(attempts=1),
        ) as controller:
            scope = f"ready-{uuid4().hex[:12]}"
            await controller.create_scope(scope)
            await controller.delete_scope(scope)

    while True:
        for process in processes:
            if not process.alive:
                raise ServerStartError(
                    f"{process.name} has ended during its start; the end of its logs:\n{process.explain()}"
                )
        try:
            if trio.lowlevel.in_trio_run():
                # A program may start a server within trio, where there can be no second run in this thread.
                with ThreadPoolExecutor(1) as thread:
                    thread.submit(trio.run, probe).result()
            else:
                trio.run(probe)
            return
        except* PravegaError as group:
            last = str(group.exceptions[0])
        if time.monotonic() > deadline:
            tails = "\n".join(process.explain() for process in processes)
            raise ServerStartError(
                f"the server at {uri} was not ready after {seconds:g} s: {last}\n{tails}".rstrip()
            )
        # The server does not signal that it is ready, so this polls.
        time.sleep(0.25)
