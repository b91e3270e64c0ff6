"""The dissecting proxy between the client and a real server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
import trio

from pravega_wire import PravegaConfig, open_client
from pravega_wire.cli.common import Exit
from pravega_wire.dissect import Frame, Note, as_text, follow
from pravega_wire.values.types import Endpoint
from tests.exchange import exchange


@pytest.mark.smoke
async def test_a_live_exchange(config: PravegaConfig) -> None:
    shown: list[Frame | Note] = []
    stores: set[Endpoint] = set()
    async with open_client(config, address_map=lambda *address: (stores.add(address), address)[1]) as client:
        await client.create_stream("finds-the-store")
        await client.tail("finds-the-store")
    (store,) = stores
    async with trio.open_nursery() as nursery:
        port: int = await nursery.start(follow, 0, store, shown.append)
        async with open_client(config, address_map=lambda *_: ("127.0.0.1", port)) as client:
            await exchange(client)
        nursery.cancel_scope.cancel()
    frames = [each for each in shown if isinstance(each, Frame)]
    names = [each.command for each in frames]
    assert {"Hello", "SetupAppend", "AppendBlockEnd", "DataAppended", "SegmentRead", "ConditionalCheckFailed",
            "TableEntriesUpdated", "SegmentAttributeUpdated"} <= set(names)  # fmt: skip
    assert [as_text(each) for each in shown if isinstance(each, Note) and each.kind == "lost"] == []
    assert [each for each in frames if each.error is not None] == []
    # Every append was acknowledged, and every reply names its request.
    assert [each.text for each in shown if isinstance(each, Note) and each.kind == "unacknowledged"] == []
    assert [as_text(each) for each in frames if each.sender == "S" and not each.answers] == []
    appends = {each.number for each in frames if each.command == "AppendBlockEnd"}
    acknowledged = {number for each in frames if each.command == "DataAppended" for number in each.answers}
    assert appends
    assert appends <= acknowledged


async def test_the_command(config: PravegaConfig) -> None:
    stores: set[Endpoint] = set()
    async with open_client(config, address_map=lambda *address: (stores.add(address), address)[1]) as client:
        await client.create_stream("followed")
        await client.tail("followed")
    ((host, port),) = stores
    # A process that was started in the background ignores Ctrl-C, and what it starts inherits that.
    heeds = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    command = [
        sys.executable,
        "-c",
        heeds + "from pravega_wire.cli.main import main; sys.exit(main())",
        "dissect",
        "0",
        "--store",
        f"{host}:{port}",
        "--json",
    ]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        text = b""
        while not text.endswith(b"\n"):
            text += await process.stderr.receive_some()
        listening = int(text.split(b",")[0].rpartition(b":")[2])
        async with open_client(config, address_map=lambda *_: ("127.0.0.1", listening)) as client:
            async with client.event_writer("followed") as writer:
                await (await writer.write_event(b"seen")).wait()
        os.kill(process.pid, signal.SIGINT)
        output = b"".join([each async for each in process.stdout])
        assert await process.wait() == Exit.INTERRUPTED
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    found = [json.loads(each) for each in output.splitlines()]
    (append,) = [each for each in found if each.get("command") == "AppendBlockEnd"]
    assert append["fields"]["data"]["hex"] == (bytes(4) + (4).to_bytes(4, "big") + b"seen").hex()
    (reply,) = [each for each in found if each.get("command") == "DataAppended"]
    assert reply["answers"] == [append["number"]]
