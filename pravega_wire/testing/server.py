"""Starting, watching and stopping real servers. See :func:`standalone` and :func:`cluster`."""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, Protocol
from urllib.parse import urlsplit
from uuid import uuid4

from pravega_wire.errors import PravegaError, ServerEndedError, ServerStartError
from pravega_wire.testing.jars import cache_directory, server_classpath
from pravega_wire.testing.java import find_java
from pravega_wire.testing.security import make_account, make_security
from pravega_wire.transport.stream import endings

if TYPE_CHECKING:
    from pravega_wire.config import PravegaConfig

__all__ = ["Kind", "PravegaCluster", "PravegaServer", "ServerProcess", "cluster", "standalone"]

Kind = Literal["address", "containers", "jars"]

_OPENS = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.lang", "java.nio", "sun.nio.ch", "java.util", "java.util.concurrent")
]
_READY_SECONDS = 120.0
_ADDRESS_SECONDS = 20.0

_LOGBACK = """<configuration>
<appender name="F" class="ch.qos.logback.core.FileAppender"><file>{file}</file>
<encoder><pattern>%d %-5level [%thread] %logger{{30}} %msg%n</pattern></encoder></appender>
<root level="{level}"><appender-ref ref="F"/></root></configuration>
"""


# --- processes -----------------------------------------------------------------------------------


class _Guard:
    """The child that kills this process's servers when it dies; one for all of them."""

    _lock = threading.Lock()
    _process: subprocess.Popen[str] | None = None

    @classmethod
    def tell(cls, word: str) -> None:
        with cls._lock:
            if cls._process is None or cls._process.poll() is not None:
                cls._process = subprocess.Popen(
                    [sys.executable, "-I", str(Path(__file__).with_name("_guard.py"))],
                    stdin=subprocess.PIPE,
                    text=True,
                    start_new_session=True,
                )
                atexit.register(cls.close)
            assert cls._process.stdin is not None
            cls._process.stdin.write(word + "\n")
            cls._process.stdin.flush()

    @classmethod
    def close(cls) -> None:
        with cls._lock:
            if cls._process is not None and cls._process.stdin is not None:
                cls._process.stdin.close()
                cls._process.wait()
                cls._process = None


@dataclass(slots=True)
class ServerProcess:
    """One server process that a test may kill and start again.

    :ivar name: for messages and its log file. :ivar address: ``(host, port)`` it serves.
    :ivar log: its log file. :ivar environment: what it gets beside this process's variables.
    """

    name: str
    command: list[str]
    address: tuple[str, int]
    log: Path
    environment: dict[str, str] = field(default_factory=dict, repr=False)
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self._process is not None and self.alive else None

    @property
    def alive(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def ending(self) -> ServerEndedError | None:
        """Why it has ended by itself for want of memory; None if it has not."""
        if self._process is None or self.alive:
            return None
        out = self.log.with_suffix(".out").read_text(errors="replace")
        found = re.search(r"java\.lang\.OutOfMemoryError.*", out[out.rfind("Terminating due to ") :])
        if "Terminating due to " not in out or found is None:
            return None
        heap = next((each.removeprefix("-Xmx") for each in self.command if each.startswith("-Xmx")), "")
        return ServerEndedError(
            f"the test server {self.name} has ended: it ran out of memory ({found[0].strip()}, with "
            f"memory={heap}); give it more (memory=, --memory of pravega-wire-server) or let cluster() keep "
            f"the data on disk; its logs are in {self.log.parent}"
        )

    def start(self) -> None:
        """Start it. Whether it is ready is another matter."""
        if self.alive:
            return
        out: IO[bytes]
        with self.log.with_suffix(".out").open("ab") as out:
            try:
                self._process = subprocess.Popen(
                    self.command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    cwd=self.log.parent,
                    env=os.environ | self.environment,
                )
            except OSError as error:
                raise ServerStartError(f"{self.name} cannot be started: {error}") from error
        _Guard.tell(f"+{self._process.pid}")

    def _signal(self, number: int) -> None:
        if self._process is not None and self.alive:
            self._process.send_signal(number)

    def kill(self) -> None:
        """Kill it with SIGKILL and wait until it is gone."""
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGKILL)
        self._gone()

    def stop(self, timeout: float = 15.0) -> None:
        """Ask it to end, and kill it after ``timeout`` seconds."""
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)
        if self._process is not None:
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
        self._gone()

    def _gone(self) -> None:
        if self._process is not None:
            pid = self._process.pid
            self._process.wait()
            self._process = None
            _Guard.tell(f"-{pid}")

    def restart(self) -> None:
        """Kill it and start it again."""
        self.kill()
        self.start()

    def suspend(self) -> None:
        """Freeze it: connections stay open, nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen one go on."""
        self._signal(signal.SIGCONT)

    def explain(self) -> str:
        """The end of its logs, for an error message."""
        lines: list[str] = []
        for path in (self.log, self.log.with_suffix(".out")):
            if path.exists():
                lines += path.read_text(errors="replace").splitlines()[-8:]
        return "\n".join(lines)


# --- servers -------------------------------------------------------------------------------------


@dataclass(slots=True)
class PravegaServer:
    """A Pravega that answers.

    :ivar kind: where it comes from. :ivar controller_uri: what a client connects to.
    :ivar log_dir: directory with its logs, where it has one.
    :ivar processes: its processes, where this program has started them.
    """

    kind: Kind
    controller_uri: str
    log_dir: Path | None = None
    processes: list[ServerProcess] = field(default_factory=list)
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    trust_store: Path | None = None

    def config(self, scope: str | None = None) -> PravegaConfig:
        """What a client of this server needs, credentials and trust store included."""
        from pravega_wire.config import Credentials, PravegaConfig

        return PravegaConfig(
            controller_uri=self.controller_uri,
            default_scope=scope,
            credentials=None
            if self.username is None
            else Credentials.basic(self.username, self.password or ""),
            trust_store=None if self.trust_store is None else str(self.trust_store),
        )

    @property
    def controller_address(self) -> tuple[str, int]:
        """``(host, port)`` of the first controller."""
        parts = urlsplit(self.controller_uri)
        return parts.hostname or "127.0.0.1", parts.port or 9090


@dataclass(slots=True)
class PravegaCluster(PravegaServer):
    """A Pravega of several processes.

    :ivar controllers: controller processes. :ivar stores: segment stores.
    :ivar bookie: ZooKeeper and the bookie, in one process.
    """

    controllers: list[ServerProcess] = field(default_factory=list)
    stores: list[ServerProcess] = field(default_factory=list)
    bookie: ServerProcess | None = None


def free_ports(count: int) -> list[int]:
    """Ports that are free now; all are held until all are found, so they differ."""
    with ExitStack() as stack:
        sockets = []
        for _ in range(count):
            listener = stack.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            sockets.append(listener)
        return [listener.getsockname()[1] for listener in sockets]


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
    from pravega_wire.testing.containers import image_is_there

    return "containers" if image_is_there() else "jars"


class Watched(Protocol):
    """What may end while it starts, and then says why."""

    @property
    def name(self) -> str: ...
    @property
    def alive(self) -> bool: ...
    def explain(self) -> str: ...


def wait_ready(
    server: str | PravegaConfig, *, processes: Sequence[Watched] = (), seconds: float = _READY_SECONDS
) -> None:
    """Wait until a scope can be created: ports answer long before that.

    :raises ServerStartError: a process has ended, or the time is up.
    """
    import trio

    from pravega_wire.config import PravegaConfig
    from pravega_wire.controller.client import open_controller
    from pravega_wire.transport.retry import RetryPolicy

    if isinstance(server, PravegaConfig):
        config = server
    else:
        config = PravegaConfig.from_defaults(controller_uri=server, env={})
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
                    f"{process.name} has ended while it was starting; the end of its logs:\n"
                    f"{process.explain()}"
                )
        try:
            trio.run(probe)
            return
        except* PravegaError as group:
            last = str(group.exceptions[0])
        if time.monotonic() > deadline:
            tails = "\n".join(process.explain() for process in processes)
            raise ServerStartError(
                f"the server at {uri} did not get ready within {seconds:g} s: {last}\n{tails}".rstrip()
            )
        # There is nothing to wait on: the server tells nobody when it is ready.
        time.sleep(0.25)


_MARK = "in-use"
_marks: dict[Path, IO[bytes]] = {}
"""Open files that say which logs are in use; each is locked, until it is released or this process ends."""


def new_log_dir(name: str) -> Path:
    """A fresh directory for one server's logs.

    It is not pruned before :func:`release_log_dir`, or before this process has ended.
    """
    base = cache_directory() / "logs"
    base.mkdir(parents=True, exist_ok=True)
    _prune(base)
    made = Path(tempfile.mkdtemp(prefix=f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-", dir=base))
    _marks[made] = (made / _MARK).open("wb")
    fcntl.flock(_marks[made], fcntl.LOCK_EX)
    return made


def release_log_dir(directory: Path) -> None:
    """The server has ended: its logs are kept as long as they are among the last."""
    mark = _marks.pop(directory, None)
    if mark is not None:
        (directory / _MARK).unlink(missing_ok=True)
        mark.close()


def _in_use(directory: Path) -> bool:
    try:
        with (directory / _MARK).open("rb") as mark:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _prune(base: Path, keep: int = 20) -> None:
    """Forget the oldest logs, but none of a server that runs."""
    directories = sorted((each for each in base.iterdir() if each.is_dir()), key=os.path.getmtime)
    for old in directories[:-keep]:
        if not _in_use(old):
            shutil.rmtree(old, ignore_errors=True)


@contextmanager
def data_directory(name: str) -> Iterator[Path]:
    """A directory for the data of a server, gone with the context or with this process."""
    directory = Path(tempfile.mkdtemp(prefix=f"pravega-{name}-"))
    _Guard.tell(f"+{directory}")
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        _Guard.tell(f"-{directory}")


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
        from pravega_wire.testing.containers import container_server

        with container_server("standalone", memory=memory, cache_bytes=cache_bytes) as server:
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
        rpc, store, zookeeper, rest, store_rest, gateway = free_ports(6)
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
