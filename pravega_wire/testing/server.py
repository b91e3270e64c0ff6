"""Starting and stopping real servers. See :func:`standalone` and :func:`cluster`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pravega_wire.errors import ServerStartError
from pravega_wire.testing.containers import container_server, image_is_there
from pravega_wire.testing.jars import server_classpath
from pravega_wire.testing.java import find_java
from pravega_wire.testing.processes import (
    ServerProcess,
    data_directory,
    free_ports,
    new_log_dir,
    release_log_dir,
)
from pravega_wire.testing.running import Kind, PravegaCluster, PravegaServer, wait_ready
from pravega_wire.testing.security import make_account, make_security
from pravega_wire.transport.stream import endings

__all__ = ["choose_kind", "cluster", "standalone"]

_OPENS = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.lang", "java.nio", "sun.nio.ch", "java.util", "java.util.concurrent")
]
_ADDRESS_SECONDS = 20.0

_LOGBACK = """<configuration>
<appender name="F" class="ch.qos.logback.core.FileAppender"><file>{file}</file>
<encoder><pattern>%d %-5level [%thread] %logger{{30}} %msg%n</pattern></encoder></appender>
<root level="{level}"><appender-ref ref="F"/></root></configuration>
"""


def choose_kind(kind: Kind | None) -> Kind:
    """What a server is made of: the argument, ``PRAVEGA_TEST_SERVER``, an address, a container
    engine that has the image, the published jars."""
    chosen = kind or os.environ.get("PRAVEGA_TEST_SERVER") or None
    if chosen is not None:
        if chosen not in ("address", "containers", "jars"):
            raise ServerStartError(f"PRAVEGA_TEST_SERVER={chosen!r} is not one of address, containers, jars")
        return chosen  # type: ignore[return-value]  # checked above
    if os.environ.get("PRAVEGA_CONTROLLER_URI"):
        return "address"
    return "containers" if image_is_there() else "jars"


@contextmanager
def _running(server: PravegaServer) -> Iterator[None]:
    """The processes of a server, started in this order and killed in the other; inside, it answers."""
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
        if server.log_dir is not None:
            release_log_dir(server.log_dir)


def java_process(
    name: str,
    main_class: str,
    properties: dict[str, object],
    *,
    address: tuple[str, int],
    log_dir: Path,
    data: Path,
    memory: str,
    direct_memory: str,
    level: str = "WARN",
    environment: dict[str, str] | None = None,
) -> ServerProcess:
    """A server process that is not started yet."""
    log = log_dir / f"{name}.log"
    logback = log_dir / f"{name}-logback.xml"
    logback.write_text(_LOGBACK.format(file=log, level=level))
    command = [
        str(find_java().executable),
        f"-Xmx{memory}",
        f"-XX:MaxDirectMemorySize={direct_memory}",
        # Without it a server that has run out of memory stays up and answers nothing.
        "-XX:+ExitOnOutOfMemoryError",
        *_OPENS,
        f"-Dlogback.configurationFile={logback}",
        # Journals, ZooKeeper's data and native libraries go there, and no server deletes them.
        f"-Djava.io.tmpdir={data}",
        *(f"-D{key}={value}" for key, value in properties.items()),
        "-cp",
        os.pathsep.join(map(str, server_classpath())),
        main_class,
    ]
    return ServerProcess(name, command, address, log, environment or {})


@contextmanager
def standalone(
    *,
    kind: Kind | None = None,
    memory: str = "2g",
    cache_bytes: int = 1 << 30,
    tls: bool = False,
    auth: bool = False,
    port: int | None = None,
) -> Iterator[PravegaServer]:
    """A whole Pravega in one process, gone when the context ends.

    Everything is held in memory, events in two fifths of ``memory``. A server that has none left ends, and
    calls of clients in this process say so (``ServerEndedError``): raise ``memory``,
    or use :func:`cluster`, whose data is on disk.

    :param kind: ``"address"`` (``PRAVEGA_CONTROLLER_URI``; nothing is started or stopped),
        ``"containers"`` or ``"jars"``; default: see :func:`choose_kind`.
    :param memory: heap of the Java process. :param cache_bytes: cache of the segment store. Neither is
        changed at an address.
    :param tls: with certificates made for it, from a certificate authority that
        :meth:`PravegaServer.config` trusts; only from the published jars, as ``auth``.
    :param auth: it demands the account that :meth:`PravegaServer.config` has.
    :param port: where the controller listens on 127.0.0.1; default: a free port. Not used at an address.
    :raises ServerStartError: with what to do about it.
    """
    chosen = choose_kind(kind)
    if (tls or auth) and chosen != "jars":
        if kind is not None:
            raise ServerStartError("standalone() with tls or auth starts from the published jars only")
        chosen = "jars"
    if chosen == "address":
        yield _at_address()
        return
    if chosen == "containers":
        with container_server("standalone", memory=memory, cache_bytes=cache_bytes, port=port) as server:
            yield server
        return
    log_dir = new_log_dir("standalone")
    security = make_security(log_dir, tls=tls, auth=auth)
    account = security.account
    # In a file rather than among the arguments, where everybody on the machine could read them.
    settings = log_dir / "standalone.properties"
    settings.touch(mode=0o600)
    settings.write_text("".join(f"{key}={value}\n" for key, value in security.properties.items()))
    with data_directory("standalone") as data:
        rpc, store, zookeeper, rest, store_rest, gateway = free_ports(6, first=port)
        process = java_process(
            "standalone",
            "io.pravega.local.LocalPravegaEmulator",
            {
                "singlenode.configurationFile": settings,
                "singlenode.controller.rpc.port": rpc,
                "singlenode.segmentStore.port": store,
                "singlenode.zk.port": zookeeper,
                "singlenode.controller.rest.port": rest,
                # Not among the documented ports, but bound all the same: two servers would collide.
                "pravegaservice.rest.listener.port": store_rest,
                "pravegaservice.admin.gateway.enable": "false",
                "pravegaservice.admin.gateway.port": gateway,
                "pravegaservice.cache.size.max": cache_bytes,
            },
            address=("127.0.0.1", store),
            log_dir=log_dir,
            data=data,
            memory=memory,
            direct_memory=memory,
        )
        server = PravegaServer(
            "jars",
            f"{'tls' if tls else 'tcp'}://127.0.0.1:{rpc}",
            log_dir,
            [process],
            username=account.username if account else None,
            password=account.password if account else None,
            trust_store=security.trust_store,
        )
        with _running(server):
            yield server


def _at_address() -> PravegaServer:
    uri = os.environ.get("PRAVEGA_CONTROLLER_URI")
    if not uri:
        raise ServerStartError(
            "PRAVEGA_TEST_SERVER=address needs PRAVEGA_CONTROLLER_URI, for instance tcp://localhost:9090"
        )
    try:
        wait_ready(uri, seconds=_ADDRESS_SECONDS)
    except ServerStartError as error:
        raise ServerStartError(
            f"PRAVEGA_CONTROLLER_URI={uri} is set, so no server is started, and none answers there "
            f"({error}): unset it to have one started"
        ) from error
    return PravegaServer("address", uri)


@contextmanager
def cluster(
    *,
    kind: Kind | None = None,
    segment_stores: int = 2,
    containers: int = 4,
    controllers: int = 1,
    memory: str = "1g",
    auth: bool = False,
    token_seconds: int = 600,
) -> Iterator[PravegaCluster]:
    """ZooKeeper with a bookie, controllers and segment stores, each a process of its own.

    Data is on disk; a store may be killed, and its containers move to another in about 35 s. Only
    from the published jars: processes of an address or of containers cannot be killed by a test.

    :param containers: segment containers, spread over the stores.
    :param memory: heap of each controller and store.
    :param auth: it demands the account that :meth:`PravegaServer.config` has.
    :param token_seconds: how long delegation tokens live then.
    :raises ServerStartError: with what to do about it.
    """
    chosen = kind or "jars"
    if chosen != "jars":
        raise ServerStartError("cluster() starts processes from the published jars only")
    log_dir = new_log_dir("cluster")
    account = make_account(log_dir) if auth else None
    with data_directory("cluster") as data:
        ledgers = data / "ledgers"
        storage = data / "storage"
        for directory in (ledgers, storage):
            directory.mkdir()
        empty = log_dir / "empty.properties"
        empty.touch()
        zookeeper, bookie_port, *ports = free_ports(2 + 2 * controllers + 3 * segment_stores)
        process_of = partial(java_process, log_dir=log_dir, data=data, memory=memory)
        bookie = process_of(
            "bookie",
            "io.pravega.segmentstore.storage.impl.bookkeeper.BookKeeperServiceRunner",
            {
                "basePort": bookie_port,
                "bookieCount": 1,
                "zkPort": zookeeper,
                "zkLedgersPath": "/pravega/bookkeeper/ledgers",
                "startZk": "true",
                "ledgersDir": ledgers,
            },
            address=("127.0.0.1", zookeeper),
            direct_memory="1g",
        )
        zookeeper_uri = f"127.0.0.1:{zookeeper}"
        controller_processes = []
        for index in range(controllers):
            rpc, rest = ports.pop(), ports.pop()
            controller_processes.append(
                process_of(
                    f"controller-{index}",
                    "io.pravega.controller.server.Main",
                    {
                        "controller.container.count": containers,
                        "controller.zk.connect.uri": zookeeper_uri,
                        "controller.service.rpc.listener.port": rpc,
                        "controller.service.rpc.published.port": rpc,
                        "controller.service.rpc.published.host.nameOrIp": "127.0.0.1",
                        "controller.service.rest.listener.port": rest,
                        "controller.security.auth.delegationToken.signingKey.basis": "secret",
                        **(account.properties(token_seconds) if account else {}),
                    },
                    address=("127.0.0.1", rpc),
                    direct_memory="512m",
                )
            )
        controller_uri = "tcp://" + ",".join(
            f"{host}:{port}" for host, port in (each.address for each in controller_processes)
        )
        stores = []
        for index in range(segment_stores):
            port, gateway, rest = ports.pop(), ports.pop(), ports.pop()
            stores.append(
                process_of(
                    f"store-{index}",
                    "io.pravega.segmentstore.server.host.ServiceStarter",
                    {
                        "pravega.configurationFile": empty,
                        "pravegaservice.container.count": containers,
                        "pravegaservice.zk.connect.uri": zookeeper_uri,
                        "bookkeeper.zk.connect.uri": zookeeper_uri,
                        "bookkeeper.ledger.path": "/pravega/bookkeeper/ledgers",
                        "bookkeeper.ensemble.size": 1,
                        "bookkeeper.ack.quorum.size": 1,
                        "bookkeeper.write.quorum.size": 1,
                        "pravegaservice.service.listener.port": port,
                        "pravegaservice.service.published.port": port,
                        "pravegaservice.service.published.host.nameOrIp": "127.0.0.1",
                        "pravegaservice.dataLog.impl.name": "BOOKKEEPER",
                        "pravegaservice.storage.impl.name": "FILESYSTEM",
                        "filesystem.root": storage,
                        "pravegaservice.admin.gateway.enable": "false",
                        "pravegaservice.admin.gateway.port": gateway,
                        "pravegaservice.rest.listener.port": rest,
                        "pravegaservice.cache.size.max": 512 << 20,
                        "autoScale.controller.connect.uri": controller_uri.split(",")[0],
                        "autoScale.security.auth.token.signingKey.basis": "secret",
                        # Stores check tokens if this is set, for all requests.
                        "autoScale.controller.connect.security.auth.enable": str(auth).lower(),
                    },
                    address=("127.0.0.1", port),
                    direct_memory="1g",
                    environment=account.environment() if account else None,
                )
            )
        processes = [bookie, *controller_processes, *stores]
        server = PravegaCluster(
            "jars",
            controller_uri,
            log_dir,
            processes,
            username=account.username if account else None,
            password=account.password if account else None,
            controllers=controller_processes,
            stores=stores,
            bookie=bookie,
        )
        with _running(server):
            yield server
