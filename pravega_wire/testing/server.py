"""Starts and stops real servers: :func:`standalone` and :func:`cluster`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import get_args

from pravega_wire.errors import ServerStartError
from pravega_wire.testing.containers import container_server, image_is_there
from pravega_wire.testing.download import say
from pravega_wire.testing.jars import chosen_version, server_classpath
from pravega_wire.testing.launching import class_archive, java_process
from pravega_wire.testing.processes import data_directory, free_ports, log_directory
from pravega_wire.testing.running import Kind, PravegaCluster, PravegaServer, wait_ready
from pravega_wire.testing.schema_registry import schema_registry as run_schema_registry
from pravega_wire.testing.security import make_account, make_security
from pravega_wire.transport.stream import endings

__all__ = ["choose_kind", "cluster", "prepare", "standalone"]

_ADDRESS_SECONDS = 20.0
_ARCHIVE_SECONDS = 60.0

# The properties that every process of a kind has in a cluster.
_BOOKIE = {"bookieCount": 1, "zkLedgersPath": "/pravega/bookkeeper/ledgers", "startZk": "true"}
_CONTROLLER = {
    "controller.service.rpc.published.host.nameOrIp": "127.0.0.1",
    "controller.security.auth.delegationToken.signingKey.basis": "secret",
}
_STORE = {
    "bookkeeper.ledger.path": _BOOKIE["zkLedgersPath"],
    "bookkeeper.ensemble.size": 1,
    "bookkeeper.ack.quorum.size": 1,
    "bookkeeper.write.quorum.size": 1,
    "pravegaservice.service.published.host.nameOrIp": "127.0.0.1",
    "pravegaservice.dataLog.impl.name": "BOOKKEEPER",
    "pravegaservice.storage.impl.name": "FILESYSTEM",
    # The default since 0.13. A store of 0.13 finds nothing that one with the former default has stored.
    "pravegaservice.storage.layout": "CHUNKED_STORAGE",
    "pravegaservice.admin.gateway.enable": "false",
    "pravegaservice.cache.size.max": 512 << 20,
    "autoScale.security.auth.token.signingKey.basis": "secret",
}


def choose_kind(kind: Kind | None, *, version: str | None = None, secured: bool = False) -> Kind:
    """Choose the kind of server.

    The first of these that applies: the argument; the variable ``PRAVEGA_TEST_SERVER``; ``"jars"`` if
    ``PRAVEGA_TEST_VERSION`` is set; ``"address"`` if ``PRAVEGA_CONTROLLER_URI`` is set; ``"containers"`` if a
    container engine has the image; otherwise ``"jars"``. ``"jars"`` also replaces a kind
    that the argument does not name and that lacks ``version`` or ``secured``.

    :param kind: the kind, or None.
    :param version: version of the server, or None.
    :param secured: whether it is to use TLS or to require authentication.
    :raises ServerStartError: the argument or ``PRAVEGA_TEST_SERVER`` is not a kind, or the argument names one
        that lacks ``version`` or ``secured``.
    """
    chosen = _choose_kind(kind)
    if chosen == "jars" or not (version or (secured and chosen != "memory")):
        return chosen
    if kind is None:
        return "jars"
    option, others = ("version", "") if version else ("tls or auth", " or kind='memory'")
    raise ServerStartError(
        f"standalone() with {option} does not support kind={kind!r}: use kind='jars'{others}"
    )


def _choose_kind(kind: Kind | None) -> Kind:
    kinds = ", ".join(get_args(Kind))
    if kind and kind not in get_args(Kind):
        raise ServerStartError(f"kind={kind!r} is not one of {kinds}")
    chosen = kind or os.environ.get("PRAVEGA_TEST_SERVER") or None
    if chosen is not None:
        if chosen not in get_args(Kind):
            raise ServerStartError(f"PRAVEGA_TEST_SERVER={chosen!r} is not one of {kinds}")
        return chosen  # type: ignore[return-value]  # checked above
    if os.environ.get("PRAVEGA_TEST_VERSION"):
        return "jars"
    if os.environ.get("PRAVEGA_CONTROLLER_URI"):
        return "address"
    return "containers" if image_is_there() else "jars"


def _check_numbers(function: str, **numbers: int) -> None:
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ServerStartError(f"{function}() needs a whole number from 1 for {name}, not {value!r}")


def _check_flags(function: str, **flags: bool) -> None:
    for name, value in flags.items():
        if not isinstance(value, bool):
            # A text such as "no" would count as yes.
            raise ServerStartError(f"{function}() needs True or False for {name}, not {value!r}")


@contextmanager
def _running(server: PravegaServer) -> Iterator[None]:
    """Start a server's processes in order and wait until it is ready; kill them in reverse order at the
    end."""
    mine = {process.address[1]: process.ending for process in server.processes}
    if len(server.processes) == 1:
        mine[server.controller_address[1]] = server.processes[0].ending
    try:
        for process in server.processes:
            process.start()
        wait_ready(server.config(), processes=server.processes)
        endings.update(mine)
        yield
    finally:
        for port in mine:
            endings.pop(port, None)
        for process in reversed(server.processes):
            process.kill()


@contextmanager
def standalone(
    *,
    kind: Kind | None = None,
    version: str | None = None,
    memory: str = "2g",
    cache_bytes: int = 1 << 30,
    tls: bool = False,
    auth: bool = False,
    port: int | None = None,
    schema_registry: bool = False,
) -> Iterator[PravegaServer]:
    """Run a complete Pravega in one process until the context ends.

    It keeps everything in memory; events can take up two fifths of ``memory``. If the server runs out of
    memory it ends, and calls of clients in this process raise :class:`~pravega_wire.errors.ServerEndedError`.
    Then increase ``memory``, or use :func:`cluster`, which keeps data on disk.

    Example::

        from pravega_wire import sync
        from pravega_wire.testing import standalone

        with standalone() as server, sync.open_client(server.config("demo")) as client:
            client.create_scope("demo")
            client.create_stream("readings", 4)

    :param kind: ``"address"`` (the server at ``PRAVEGA_CONTROLLER_URI``; nothing is started or stopped; the
        other settings of its clients are those of the environment, too),
        ``"containers"``, ``"jars"``, or ``"memory"`` (one of this package's own code, in a thread of this
        process, which starts at once; see ``docs/memory-server.md``); default: the first of the other three
        that is available.
    :param version: ``"0.10.0"``, ``"0.11.0"``, ``"0.12.0"`` or ``"0.13.0"``; default: that of the variable
        ``PRAVEGA_TEST_VERSION``, or 0.13.0. Only servers from the published jars support it.
    :param memory: heap size of the Java process; no effect on a server at an address or in memory.
    :param cache_bytes: cache size of the segment store in bytes; no effect on a server at an address or in
        memory.
    :param tls: whether to use TLS, with new certificates whose authority :meth:`PravegaServer.config` trusts.
        Only servers from the published jars and in memory support it.
    :param auth: whether to require authentication, with a new account that :meth:`PravegaServer.config`
        contains. Only servers from the published jars and in memory support it.
    :param port: port on which the controller listens on 127.0.0.1; default: a free port. No effect on a
        server at an address.
    :param schema_registry: whether to run a schema registry beside it, whose address
        :meth:`PravegaServer.config` contains.
    :raises ServerStartError: the server could not be started; the message says what to do.
    :raises InvalidArgumentError: the server is one at an address, and a setting of the environment is
        malformed.
    """
    _check_numbers("standalone", cache_bytes=cache_bytes)
    _check_flags("standalone", tls=tls, auth=auth, schema_registry=schema_registry)
    if schema_registry:
        with (
            standalone(
                kind=kind,
                version=version,
                memory=memory,
                cache_bytes=cache_bytes,
                tls=tls,
                auth=auth,
                port=port,
            ) as server,
            run_schema_registry() as registry,
        ):
            server.schema_registry_uri = registry.uri
            server.processes.append(registry.process)
            yield server
        return
    chosen = choose_kind(kind, version=version, secured=tls or auth)
    if chosen == "address":
        yield _at_address()
        return
    if chosen == "memory":
        from pravega_wire.testing.memory.serving import memory_server

        with memory_server(port, tls=tls, auth=auth) as server:
            yield server
        return
    if chosen == "containers":
        with container_server(memory=memory, cache_bytes=cache_bytes, port=port) as server:
            yield server
        return
    with _from_jars(version, memory, cache_bytes, tls=tls, auth=auth, port=port) as server:
        yield server


@contextmanager
def _from_jars(
    version: str | None,
    memory: str,
    cache_bytes: int,
    *,
    tls: bool = False,
    auth: bool = False,
    port: int | None = None,
    archive_to: Path | None = None,
) -> Iterator[PravegaServer]:
    with log_directory("standalone") as log_dir, data_directory("standalone") as data:
        security = make_security(log_dir, tls=tls, auth=auth)
        account = security.account
        # In a file, because every process of the machine can read command lines.
        settings = log_dir / "standalone.properties"
        settings.touch(mode=0o600)
        settings.write_text("".join(f"{key}={value}\n" for key, value in security.properties.items()))
        rpc, store, zookeeper, gateway = free_ports(4, first=port)
        process = java_process(
            "standalone",
            "io.pravega.local.LocalPravegaEmulator",
            {
                "singlenode.configurationFile": settings,
                "singlenode.controller.rpc.port": rpc,
                "singlenode.segmentStore.port": store,
                "singlenode.zk.port": zookeeper,
                # Nobody uses it, and before 0.12 that of the store has a port that cannot be chosen.
                "singlenode.controller.rest.enable": "false",
                "pravegaservice.admin.gateway.enable": "false",
                "pravegaservice.admin.gateway.port": gateway,
                "pravegaservice.cache.size.max": cache_bytes,
                # All segments are in the first container. A store starts three more by default, and half
                # a minute later the writer of one of these may begin to use a core: see
                # docs/protocol/unforgiving.md, "Updating a table with nothing".
                "controller.container.count": 1,
                # Looking after a hundred buckets, the default, is half of what an idle server does.
                "controller.watermarking.bucket.count": 1,
            },
            address=("127.0.0.1", store),
            log_dir=log_dir,
            data=data,
            memory=memory,
            direct_memory=memory,
            classpath=server_classpath(version),
            archive_to=archive_to,
        )
        server = PravegaServer(
            "jars",
            f"{'tls' if tls else 'tcp'}://127.0.0.1:{rpc}",
            log_dir,
            [process],
            username=account.username if account else None,
            password=account.password if account else None,
            trust_store=security.trust_store,
            version=_version_started(version),
        )
        with _running(server):
            yield server


def prepare(version: str | None = None) -> None:
    """Archive the classes of a server, once, so that servers from the jars start faster from now on.

    It starts one, which takes a quarter of a minute. Without Java 13 or newer it does nothing.

    :param version: as in :func:`standalone`.
    :raises ServerStartError: the server could not be started.
    """
    classpath = server_classpath(version)
    try:
        archive = class_archive(classpath)
    except ServerStartError:
        return
    if archive is None or archive.exists():
        return
    say("preparing servers to start faster (only once)")
    part = archive.with_suffix(f".{os.getpid()}")
    try:
        with _from_jars(version, "1g", 1 << 28, archive_to=part) as server:
            server.processes[0].stop(_ARCHIVE_SECONDS)
        if part.exists():
            part.replace(archive)
    finally:
        part.unlink(missing_ok=True)


def _version_started(version: str | None) -> str | None:
    """Return the version of servers from the jars; None if a directory of the user's has these."""
    return None if os.environ.get("PRAVEGA_WIRE_JARS") else chosen_version(version)


def _at_address() -> PravegaServer:
    uri = os.environ.get("PRAVEGA_CONTROLLER_URI")
    if not uri:
        raise ServerStartError(
            "a server of the kind 'address' needs PRAVEGA_CONTROLLER_URI; set it, for example to "
            "tcp://localhost:9090"
        )
    server = PravegaServer("address", uri)
    try:
        wait_ready(server.config(), seconds=_ADDRESS_SECONDS)
    except ServerStartError as error:
        raise ServerStartError(
            f"PRAVEGA_CONTROLLER_URI={uri} is set, so no server was started, but no server responds there "
            f"({error}): start that server, or unset the variable to have one started"
        ) from error
    return server


@contextmanager
def cluster(
    *,
    kind: Kind | None = None,
    version: str | None = None,
    segment_stores: int = 2,
    containers: int = 4,
    controllers: int = 1,
    memory: str = "1g",
    auth: bool = False,
    token_seconds: int = 600,
    published: Callable[[int], int] | None = None,
) -> Iterator[PravegaCluster]:
    """Run a Pravega cluster until the context ends: ZooKeeper with a bookie, controllers and segment stores.

    Each is a separate process, except that ZooKeeper and the bookie share one. Data is on disk, and is lost
    when that process ends. If a store is killed, its segment containers move to another store in about 35 s.
    Only the published jars are supported, because a test cannot kill processes in containers or at an
    address.

    Example::

        from pravega_wire.testing import cluster

        with cluster(segment_stores=3) as server:
            server.stores[0].kill()
            server.stores[0].start()

    :param kind: ``"jars"`` or None.
    :param version: as in :func:`standalone`.
    :param segment_stores: number of segment stores.
    :param containers: number of segment containers, which are spread over the stores.
    :param controllers: number of controllers.
    :param memory: heap size of each controller and store.
    :param auth: whether to require authentication, with a new account that :meth:`PravegaServer.config`
        contains.
    :param token_seconds: lifetime of delegation tokens in seconds, with ``auth``.
    :param published: called with the port of each segment store; returns the port of 127.0.0.1 at which
        clients are told to reach it, such as that of a proxy. Default: its own.
    :raises ServerStartError: the cluster could not be started; the message says what to do.
    """
    chosen = kind or "jars"
    if chosen != "jars":
        raise ServerStartError(f"cluster() supports only the published jars, not kind={kind!r}")
    _check_numbers(
        "cluster",
        segment_stores=segment_stores,
        containers=containers,
        controllers=controllers,
        token_seconds=token_seconds,
    )
    _check_flags("cluster", auth=auth)
    with log_directory("cluster") as log_dir, data_directory("cluster") as data:
        account = make_account(log_dir) if auth else None
        ledgers, storage, empty = data / "ledgers", data / "storage", log_dir / "empty.properties"
        ledgers.mkdir()
        storage.mkdir()
        empty.touch()
        zookeeper, bookie_port, *ports = free_ports(2 + 2 * controllers + 3 * segment_stores)
        zookeeper_uri = f"127.0.0.1:{zookeeper}"
        process_of = partial(
            java_process, log_dir=log_dir, data=data, memory=memory, classpath=server_classpath(version)
        )
        bookie = process_of(
            "bookie",
            "io.pravega.segmentstore.storage.impl.bookkeeper.BookKeeperServiceRunner",
            {**_BOOKIE, "basePort": bookie_port, "zkPort": zookeeper, "ledgersDir": ledgers},
            address=("127.0.0.1", zookeeper),
            direct_memory="1g",
        )
        controller_processes = []
        for index in range(controllers):
            rpc, rest = ports.pop(), ports.pop()
            properties = {
                **_CONTROLLER,
                "controller.container.count": containers,
                "controller.zk.connect.uri": zookeeper_uri,
                "controller.service.rpc.listener.port": rpc,
                "controller.service.rpc.published.port": rpc,
                "controller.service.rest.listener.port": rest,
                **(account.properties(token_seconds) if account else {}),
            }
            controller_processes.append(
                process_of(
                    f"controller-{index}",
                    "io.pravega.controller.server.Main",
                    properties,
                    address=("127.0.0.1", rpc),
                    direct_memory="512m",
                )
            )
        addresses = [f"{host}:{port}" for host, port in (each.address for each in controller_processes)]
        stores = []
        for index in range(segment_stores):
            port, gateway, rest = ports.pop(), ports.pop(), ports.pop()
            properties = {
                **_STORE,
                "pravega.configurationFile": empty,
                "pravegaservice.container.count": containers,
                "pravegaservice.zk.connect.uri": zookeeper_uri,
                "bookkeeper.zk.connect.uri": zookeeper_uri,
                "pravegaservice.service.listener.port": port,
                "pravegaservice.service.published.port": port if published is None else published(port),
                "filesystem.root": storage,
                "pravegaservice.admin.gateway.port": gateway,
                "pravegaservice.rest.listener.port": rest,
                "autoScale.controller.connect.uri": f"tcp://{addresses[0]}",
                # If this is set, stores check the tokens of all requests.
                "autoScale.controller.connect.security.auth.enable": str(auth).lower(),
            }
            stores.append(
                process_of(
                    f"store-{index}",
                    "io.pravega.segmentstore.server.host.ServiceStarter",
                    properties,
                    address=("127.0.0.1", port),
                    direct_memory="1g",
                    environment=account.environment() if account else None,
                )
            )
        processes = [bookie, *controller_processes, *stores]
        server = PravegaCluster(
            "jars",
            "tcp://" + ",".join(addresses),
            log_dir,
            processes,
            username=account.username if account else None,
            password=account.password if account else None,
            controllers=controller_processes,
            stores=stores,
            bookie=bookie,
            version=_version_started(version),
        )
        with _running(server):
            yield server
