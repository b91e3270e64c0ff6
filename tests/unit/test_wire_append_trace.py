"""What the Java client's encoder sent, and what the Java server stored of it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from pravega_wire.protocol import codec
from pravega_wire.protocol import commands as c
from pravega_wire.protocol.frames import FrameDecoder

TRACE = [
    json.loads(line)
    for line in (Path(__file__).parent.parent / "golden" / "append-trace.jsonl").read_text().splitlines()
]
WHOLE = [step for step in TRACE if "wire_hex" in step]


def test_the_trace_is_whole() -> None:
    assert len(TRACE) == 51
    assert len(WHOLE) >= 20


@pytest.mark.parametrize("number", range(len(WHOLE)))
def test_a_flush_of_the_java_encoder(number: int) -> None:
    step = WHOLE[number]
    wire = bytes.fromhex(step["wire_hex"])
    if len(wire) != step["bytes_flushed"]:
        pytest.fail("the trace holds only part of this flush")
    commands = FrameDecoder().feed(wire)
    assert b"".join(map(codec.encode, commands)) == wire
    frames = [frame for frame in step["frames"] if "code" in frame]
    assert [command.CODE for command in commands] == [frame["code"] for frame in frames]
    seen = [each["server_sees_append"] for each in step["frames"] if "server_sees_append" in each]
    assert stored(commands) == [
        (each["eventNumber"], each["eventCount"], each["dataLength"], each["dataSha256"]) for each in seen
    ]


def stored(commands: list[c.Command]) -> list[tuple[int, int, int, str]]:
    """What our reading of the block rules makes of the frames, and what our own framing gives."""
    result = []
    block: c.AppendBlock | None = None
    for command in commands:
        if isinstance(command, c.AppendBlock):
            block = command
        elif isinstance(command, c.AppendBlockEnd):
            data = codec.appended_data(block, command)
            block = None
            entry: Any = (
                command.last_event_number,
                command.num_events,
                len(data),
                hashlib.sha256(data).hexdigest(),
            )
            result.append(entry)
            before, after = codec.append_block_header(
                command.writer_id.bytes,
                len(data),
                command.num_events,
                command.last_event_number,
                command.request_id,
            )
            (ours,) = FrameDecoder().feed(before + data + after)
            assert isinstance(ours, c.AppendBlockEnd)
            assert codec.appended_data(None, ours) == data
            assert codec.encode(ours) == before + data + after
        elif isinstance(command, c.ConditionalBlockEnd):
            raw = bytes(command.data)
            result.append((command.event_number, 1, len(raw), hashlib.sha256(raw).hexdigest()))
        elif isinstance(command, c.ConditionalAppend):
            data = len(command.event).to_bytes(8, "big") + bytes(command.event)
            result.append((command.event_number, 1, len(data), hashlib.sha256(data).hexdigest()))
    return result
