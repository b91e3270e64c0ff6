"""Every golden vector of the Java encoder, both ways, by the codec and by the specification."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from pravega_wire.protocol import codec, specs
from pravega_wire.protocol import commands as c
from pravega_wire.protocol.frames import FrameDecoder

GOLDEN = Path(__file__).parent.parent / "golden"


def load(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GOLDEN / name).read_text().splitlines()]


def snake(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", lambda match: "_" + match[1].lower(), name)


def key_of(value: dict[str, Any]) -> c.TableKey:
    return c.TableKey(bytes.fromhex(value["data"]), value["keyVersion"])


def convert(kind: str, value: Any) -> Any:
    if kind in ("bytes", "raw", "EVENT"):
        return bytes.fromhex(value)
    if kind == "uuid":
        return UUID(value)
    if kind == "ITER":
        return c.TableIteratorArgs(
            *(
                bytes.fromhex(value[name])
                for name in ("continuationToken", "prefixFilter", "fromKey", "toKey")
            )
        )
    if kind == "list<KEY>":
        return tuple(key_of(each) for each in value)
    if kind == "ENTRIES":
        return tuple(c.TableEntry(key_of(each["key"]), bytes.fromhex(each["value"])) for each in value)
    if kind == "list<ATTR>":
        return tuple(
            c.AttributeUpdate(
                UUID(each["attributeId"]),
                each.get("attributeUpdateType", each.get("updateType")),
                each.get("newValue", each.get("value")),
                each.get("oldValue", each.get("comparisonValue")),
            )
            for each in value
        )
    if kind == "list<CHUNK>":
        return tuple(
            c.ChunkInfo(
                each["lengthInMetadata"],
                each["lengthInStorage"],
                each["startOffset"],
                each["chunkName"],
                each["existsInStorage"],
            )
            for each in value
        )
    if isinstance(value, list):
        return tuple(value)
    return value


def expected(command: str, fields: dict[str, Any]) -> c.Command:
    kind = getattr(c, command)
    if kind is c.Padding:
        return c.Padding(bytes(fields["length"]))
    if kind is c.SegmentsBatchMerged:
        return c.SegmentsBatchMerged(
            fields["requestId"],
            fields["target"],
            tuple(
                c.MergedSource(name, offset)
                for name, offset in zip(fields["sources"], fields["newTargetWriteOffset"], strict=True)
            ),
        )
    by_name = {snake(name): value for name, value in fields.items()}
    values = {each.name: convert(each.kind, by_name[each.name]) for each in c.field_specs(kind)}
    assert set(by_name) == set(values)
    made: c.Command = kind(**values)
    return made


VECTORS = load("golden-wire.jsonl")


def test_every_command_has_a_vector() -> None:
    assert {vector["command"] for vector in VECTORS} == {command.__name__ for command in c.COMMANDS.values()}
    assert len(VECTORS) == 269


@pytest.mark.parametrize("number", range(len(VECTORS)))
def test_vector_both_ways(number: int) -> None:
    vector = VECTORS[number]
    frame = bytes.fromhex(vector["hex"])
    command = expected(vector["command"], vector["fields"])
    assert vector["code"] == command.CODE
    assert codec.encode(command) == frame
    assert b"".join(codec.encode_parts(command)) == frame
    assert specs.build_with_spec(command) == frame
    assert FrameDecoder().feed(frame) == [command]
    assert codec.decode_generic(command.CODE, memoryview(frame)[8:]) == command
    assert specs.parse_with_spec(frame) == command


OPTIONAL = load("golden-wire-optional.jsonl")


@pytest.mark.parametrize("number", range(len(OPTIONAL)))
def test_body_that_ends_before_optional_fields(number: int) -> None:
    vector = OPTIONAL[number]
    frame = bytes.fromhex(vector["hex"])
    command = expected(vector["command"], vector["decoded_fields"])
    assert FrameDecoder().feed(frame) == [command]
    assert specs.parse_with_spec(frame) == command


@pytest.mark.parametrize("number", range(len(VECTORS)))
def test_bytes_after_the_last_field_are_ignored(number: int) -> None:
    vector = VECTORS[number]
    command = expected(vector["command"], vector["fields"])
    if any(each.kind in ("raw", "ITER") for each in c.field_specs(type(command))):
        return
    body = bytes.fromhex(vector["hex"])[8:] + b"later versions may add fields"
    assert codec.decode_body(command.CODE, memoryview(body)) == command
