"""What the objects of both facades show of themselves."""

from __future__ import annotations

import asyncio
import inspect
from types import ModuleType
from typing import Any, cast
from uuid import uuid4

import pytest

from pravega_wire import Credentials, PravegaConfig, ScopedStream, SegmentRange, aio, sync
from pravega_wire.aio import client as aio_client
from pravega_wire.errors import ConnectError
from pravega_wire.protocol.append import fail
from pravega_wire.segment.appender import Ack
from pravega_wire.sync import client as sync_client

RANGE = SegmentRange(ScopedStream("demo", "readings"), 0, 0, 9)
CONFIG = PravegaConfig(
    controller_uri="tcp://127.0.0.1:1",
    scope="demo",
    credentials=Credentials.basic("user", "hunter2"),
)
CLASSES = [
    pytest.param(value, module, id=f"{module.__name__}.{name}")
    for package, module in ((sync, sync_client), (aio, aio_client))
    for name in package.__all__
    if inspect.isclass(value := getattr(package, name))
]


class Twin:
    def __repr__(self) -> str:
        return "<StandIn of demo/readings, open, 3 of <4> events stored>"


@pytest.mark.parametrize(("cls", "module"), CLASSES)
def test_every_class_shows_what_its_twin_shows(cls: type, module: ModuleType) -> None:
    if cls.__name__ in ("Ack", "DirectReader", "SchemaRegistry", "TableMapping"):
        # They have no single twin.
        assert cls.__repr__ is not object.__repr__
        return
    handle = cast("Any", cls).__new__(cls)
    handle._twin = Twin()
    assert repr(handle) == f"<{cls.__name__} of demo/readings, open, 3 of <4> events stored>"
    if hasattr(module, f"Async{cls.__name__}"):
        assert getattr(module, f"Async{cls.__name__}").__repr__ is not object.__repr__


def shown(client: Any) -> list[str]:
    """Of what needs no server."""
    return [
        repr(each)
        for each in (
            client,
            client.event_writer("readings"),
            client.read_range(RANGE),
            client.read_events("readings"),
            client.read_ranges([RANGE]),
        )
    ]


EXPECTED = [
    "<PravegaClient of tcp://127.0.0.1:1, open>",
    "<EventWriter of demo/readings, not opened, 0 of 0 events stored>",
    *["<RangesReader, not begun>"] * 3,
]


def check_secrets(*shown: str) -> None:
    assert CONFIG.credentials is not None
    for each in shown:
        assert "hunter2" not in each
        assert CONFIG.credentials.token not in each


def test_blocking_handles_show_their_state_and_no_secret() -> None:
    with sync.open_client(CONFIG) as client:
        assert shown(client) == EXPECTED
        resumable = client.resumable_writer("readings", uuid4())
        assert repr(resumable).startswith("<ResumableWriter of demo/readings, not opened")
        direct = sync.DirectReader(client, RANGE)
        assert repr(direct) == "<DirectReader of demo/readings/0.#epoch.0, open, at offset 0>"
        check_secrets(*shown(client), repr(resumable), repr(direct))
        direct.close()
        assert repr(direct) == "<DirectReader of demo/readings/0.#epoch.0, closed, at offset 0>"
        reader = client.read_range(RANGE)
        reader.close()
        assert repr(reader) == "<RangesReader, closed>"
    assert repr(client) == "<PravegaClient of tcp://127.0.0.1:1, closed>"


def test_handles_of_an_event_loop_show_their_state_and_no_secret() -> None:
    async def main() -> None:
        async with aio.open_client(CONFIG) as client:
            assert shown(client) == EXPECTED
            byte_writer = client.byte_stream_writer("readings")
            assert repr(byte_writer).startswith("<ByteStreamWriter of demo/readings, not opened")
            check_secrets(*shown(client), repr(byte_writer))
            reader = client.read_range(RANGE)
            await reader.aclose()
            assert repr(reader) == "<RangesReader, closed>"
        assert repr(client) == "<PravegaClient of tcp://127.0.0.1:1, closed>"

    asyncio.run(main())


@pytest.mark.parametrize("cls", [sync.Ack, aio.Ack])
def test_acknowledgements_show_the_state_of_all_they_stand_for(cls: type) -> None:
    pending, done, failed = Ack(), Ack(0), Ack()
    fail(failed, ConnectError("no connection"))
    line = cast("Any", None)
    assert repr(cls(line, done, pending)) == "<Ack pending>"
    assert repr(cls(line, done, done)) == "<Ack done>"
    assert repr(cls(line, pending, failed)) == "<Ack failed: ConnectError>"
