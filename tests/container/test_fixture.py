"""``standalone()`` and the pytest fixture in a container, on a real engine."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pravega_wire import sync
from pravega_wire.errors import ServerStartError
from pravega_wire.testing import PravegaServer, containers, processes, server, standalone

ROOT = Path(__file__).resolve().parents[2]
EVENTS = [b"%d" % number for number in range(1000)]


def ours(engine: Any) -> set[str]:
    """Containers that ``pravega_wire.testing`` has made, in whatever state."""
    found = engine.containers.list(all=True, filters={"label": containers.LABEL})
    return {each.name for each in found}


def write_and_read(found: PravegaServer) -> None:
    with sync.open_client(found.config("scope")) as client:
        client.create_scope("scope")
        client.create_stream("events", 2)
        with client.event_writer("events") as writer:
            writer.write_events(EVENTS)
        read = [bytes(event) for batch in client.read_events("events") for event in batch]
    assert sorted(read) == sorted(EVENTS)


@pytest.fixture
def nothing_left(engine: Any) -> Any:
    before = ours(engine)
    yield
    assert ours(engine) == before


@pytest.fixture
def no_settings(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("PRAVEGA_TEST_SERVER", "PRAVEGA_CONTROLLER_URI"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def with_service(patch: pytest.MonkeyPatch, **changes: Any) -> None:
    """The packaged service ``standalone`` with other values."""
    service = containers._service("standalone") | changes
    patch.setattr(containers, "_service", lambda name: service)


def test_an_engine_with_the_image_is_chosen(no_settings: pytest.MonkeyPatch, nothing_left: None) -> None:
    with standalone() as found:
        assert found.kind == "containers"
        write_and_read(found)
    assert found.log_dir is not None
    # In the image nearly all of it goes into a file inside the container.
    assert "io.pravega.segmentstore" in (found.log_dir / "standalone.log").read_text()
    assert (found.log_dir / "container.log").exists()


def test_by_name_with_the_caller_s_memory_and_cache(
    no_settings: pytest.MonkeyPatch, engine: Any, nothing_left: None
) -> None:
    before = ours(engine)
    with standalone(kind="containers", memory="777m", cache_bytes=123 << 20) as found:
        assert found.kind == "containers"
        (name,) = ours(engine) - before
        running = engine.containers.get(name)
        assert running.labels[containers.LABEL] == str(os.getpid())
        # What Java made of the options, not what it was given.
        asked = running.exec_run(["sh", "-c", "tr '\\0' '\\n' < /proc/1/cmdline"]).output.decode().split()
        assert [word for word in asked if word.startswith("-Xmx")][-1] == "-Xmx777m"
        assert [word for word in asked if "MaxDirectMemorySize" in word][-1].endswith("=777m")
        assert [word for word in asked if "cache.size.max" in word][-1].endswith(f"={123 << 20}")
        write_and_read(found)


def test_an_engine_without_the_image(
    no_settings: pytest.MonkeyPatch, engine: Any, nothing_left: None
) -> None:
    assert server.choose_kind(None) == "containers"
    with_service(no_settings, image="pravega/nonesuch:0.13.0")
    assert engine.ping()
    assert server.choose_kind(None) == "jars"
    with pytest.raises(
        ServerStartError, match=r"pravega/nonesuch:0\.13\.0(?s:.*)set PRAVEGA_TEST_SERVER=jars"
    ):
        with standalone(kind="containers"):
            raise AssertionError


def test_a_container_that_ends_while_it_starts(no_settings: pytest.MonkeyPatch, nothing_left: None) -> None:
    with_service(no_settings, environment={"JAVA_OPTS": "-XX:+NoSuchOption"})
    with pytest.raises(
        ServerStartError,
        match=r"container of service standalone has ended during its start(?s:.*)NoSuchOption",
    ):
        with standalone(kind="containers"):
            raise AssertionError


def test_the_words_of_a_server_that_ends_are_in_its_file(
    no_settings: pytest.MonkeyPatch, nothing_left: None
) -> None:
    with_service(no_settings, environment={"JAVA_OPTS": "-Dpravegaservice.container.count=none"})
    with pytest.raises(ServerStartError, match=r'has ended during its start(?s:.*)For input string: "none"'):
        with standalone(kind="containers"):
            raise AssertionError


def test_a_port_that_was_taken_meanwhile(no_settings: pytest.MonkeyPatch, nothing_left: None) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        no_settings.setattr(
            containers, "free_ports", lambda count, **_: [port, *processes.free_ports(count - 1)]
        )
        with pytest.raises(ServerStartError, match=rf"cannot be started: (?s:.*){port}"):
            with standalone(kind="containers"):
                raise AssertionError


def test_the_error_of_the_caller_arrives_though_the_container_is_gone(
    no_settings: pytest.MonkeyPatch, engine: Any, nothing_left: None
) -> None:
    before = ours(engine)
    with pytest.raises(ZeroDivisionError):
        with standalone(kind="containers"):
            (name,) = ours(engine) - before
            engine.containers.get(name).remove(force=True)
            raise ZeroDivisionError


def test_the_engine_s_errors_in_the_caller_s_code_are_the_caller_s(
    no_settings: pytest.MonkeyPatch, engine: Any, nothing_left: None
) -> None:
    import docker

    with pytest.raises(docker.errors.NotFound):
        with standalone(kind="containers"):
            engine.containers.get("nonesuch")


WAY = """
import socket, sys
import trio

async def pass_on(source, sink):
    async for data in source:
        await sink.send_all(data)
    await sink.send_eof()

async def lead(near):
    async with await trio.open_unix_socket(sys.argv[2]) as far, trio.open_nursery() as nursery:
        nursery.start_soon(pass_on, near, far)
        nursery.start_soon(pass_on, far, near)

async def main():
    listener = trio.socket.socket(socket.AF_UNIX)
    await listener.bind(sys.argv[1])
    listener.listen()
    print("ready", flush=True)
    await trio.serve_listeners(lead, [trio.SocketListener(listener)])

trio.run(main)
"""


def lose_the_engine(way: subprocess.Popen[str]) -> None:
    with pytest.raises(ZeroDivisionError):
        with standalone(kind="containers"):
            way.kill()
            way.wait()
            raise ZeroDivisionError


def test_the_error_of_the_caller_arrives_though_the_engine_is_gone(
    no_settings: pytest.MonkeyPatch, engine: Any, tmp_path: Path
) -> None:
    before = ours(engine)
    kind, _, real = os.environ["DOCKER_HOST"].partition("://")
    assert kind == "unix"
    near = str(tmp_path / "engine")
    way = subprocess.Popen([sys.executable, "-c", WAY, near, real], stdout=subprocess.PIPE, text=True)
    try:
        assert way.stdout is not None
        assert way.stdout.readline() == "ready\n"
        no_settings.setenv("DOCKER_HOST", f"unix://{near}")
        with pytest.warns(ResourceWarning, match=r"container pravega-wire-\w+ cannot be removed yet"):
            lose_the_engine(way)
        (name,) = ours(engine) - before
        engine.containers.get(name).remove(force=True)
    finally:
        way.kill()
        way.communicate()


RUN = """
import signal

def test_that_never_ends(pravega_server):
    print("ready", pravega_server.kind, flush=True)
    signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
@pytest.mark.parametrize("when", ["starting", "running"])
def test_a_killed_test_run_leaves_no_container(
    tmp_path: Path,
    engine: Any,
    until: Callable[[Callable[[], Any], str], Any],
    when: str,
    number: signal.Signals,
) -> None:
    (tmp_path / "test_run.py").write_text(RUN)
    before = ours(engine)
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "test_run.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PRAVEGA_TEST_SERVER": "containers"},
    )
    try:
        if when == "running":
            assert run.stdout is not None
            assert any(line.startswith("ready containers") for line in run.stdout)
        (name,) = until(lambda: ours(engine) - before, "the container of the test run")
        assert engine.containers.get(name).labels == {containers.LABEL: str(run.pid)}
        run.send_signal(number)
        assert run.wait(60) == -number
        until(lambda: ours(engine) == before, f"{json.dumps(name)} to be removed")
    finally:
        run.kill()
        run.communicate()
