"""Every client-side format against bytes and texts that the Java client wrote (golden-client.jsonl)."""

from __future__ import annotations

import base64
import gzip
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, patch
from uuid import UUID

import pytest
import trio

from pravega_wire.errors import (
    DecodeError,
    EncodeError,
    IncompatibleVersionError,
    InvalidArgumentError,
    InvalidStreamCutError,
    PravegaError,
    TruncatedInputError,
)
from pravega_wire.protocol import formats
from pravega_wire.protocol.events import frame_event, parse_events
from pravega_wire.protocol.state_records import InitialRecord, UpdateRecord, decode_state_record
from pravega_wire.protocol.versioned import DataReader, DataWriter, encode_record
from pravega_wire.serializers import JavaStringSerializer, Utf8Serializer
from pravega_wire.stream import batch
from pravega_wire.stream.revisioned import MARK_ATTRIBUTE
from pravega_wire.values import hashing, naming
from pravega_wire.values.config import Credentials
from pravega_wire.values.positions import (
    Checkpoint,
    EventPointer,
    KeyRange,
    KeyValueVersion,
    OwnedSegment,
    Position,
    Watermark,
    WatermarkSegment,
)
from pravega_wire.values.types import Revision, ScopedStream, StreamCut
from tests import java_values

GOLDEN = Path(__file__).parents[1] / "golden" / "golden-client.jsonl"
VECTORS: list[dict[str, Any]] = [json.loads(line) for line in GOLDEN.read_text().splitlines()]

Vector = dict[str, Any]
CHECKS: dict[str, Callable[[Vector], None]] = {}

IN_GROUP_GOLDEN = {
    "readerGroupConfig", "checkpointState", "init.ReaderGroupStateInit", "init.CompactReaderGroupState",
    "update.ReaderGroupStateInit", "update.AddReader", "update.RemoveReader", "update.ReleaseSegment",
    "update.AcquireSegment", "update.UpdateDistanceToTail", "update.SegmentCompleted",
    "update.CheckpointReader", "update.CreateCheckpoint", "update.ClearCheckpointsBefore",
    "update.UpdateCheckpointPublished", "update.UpdatingConfig", "update.RemoveOutstandingCheckpoints",
}  # fmt: skip
"""Covered in test_group_golden.py: the state of reader groups."""

COVERED_HERE = {
    "compactLong", "compactSignedLong", "compactInt", "UTF", "UUID", "double", "boolean", "collectionOfLong",
    "collectionNull", "mapUtfToLong", "byteArray", "segmentName", "kvtSegmentName", "txnSegmentName",
    "readerGroupStream", "markStream", "eventRouterHashToRange", "hashToRangeSeeded", "kvtRouterHashToRange",
    "containerOfSegment", "markAttributeId", "seededUUID", "framedEvent", "UTF8StringSerializer",
    "JavaSerializer", "revision", "streamCut", "streamCut.asText", "streamCut.toString",
    "streamCut.UNBOUNDED", "streamCut.UNBOUNDED.asText", "position", "eventPointer", "eventPointer.toString",
    "checkpoint", "synchronizer.init(ReaderGroupStateInit)", "synchronizer.updates(AddReader)",
    "synchronizer.updates(AcquireSegment,UpdateDistanceToTail)", "watermark", "authorizationHeader",
}  # fmt: skip


def check(*whats: str) -> Callable[[Callable[[Vector], None]], Callable[[Vector], None]]:
    def register(function: Callable[[Vector], None]) -> Callable[[Vector], None]:
        for what in whats:
            assert what not in CHECKS
            CHECKS[what] = function
        return function

    return register


def data_of(vector: Vector) -> bytes:
    return bytes.fromhex(vector["hex"])


# --- primitives -----------------------------------------------------------------------------------


PRIMITIVES = {
    "compactLong": "compact_long", "compactSignedLong": "compact_signed_long", "compactInt": "compact_int",
    "UTF": "utf", "UUID": "uuid", "double": "double", "boolean": "boolean",
}  # fmt: skip


@check(*PRIMITIVES)
def primitive(vector: Vector) -> None:
    name, value = PRIMITIVES[vector["what"]], vector["fields"]["value"]
    if name == "uuid":
        value = UUID(value)
    target = DataWriter()
    getattr(target, name)(value)
    assert target.getvalue() == data_of(vector)
    source = DataReader(data_of(vector))
    assert getattr(source, name)() == value
    assert source.remaining == 0


@check("collectionOfLong", "collectionNull")
def collection(vector: Vector) -> None:
    value = vector["fields"]["value"]
    assert DataWriter().collection(value, DataWriter.int64).getvalue() == data_of(vector)
    assert DataReader(data_of(vector)).collection(DataReader.int64) == (value or [])


@check("mapUtfToLong")
def mapping(vector: Vector) -> None:
    value = dict(vector["fields"]["value"])
    assert DataWriter().mapping(value, DataWriter.utf, DataWriter.int64).getvalue() == data_of(vector)
    found = DataReader(data_of(vector)).mapping(DataReader.utf, DataReader.int64)
    assert list(found.items()) == list(value.items())


@check("byteArray")
def byte_array(vector: Vector) -> None:
    value = bytes.fromhex(vector["fields"]["value_hex"])
    assert DataWriter().array(value).getvalue() == data_of(vector)
    assert DataReader(data_of(vector)).array() == value


# --- names ----------------------------------------------------------------------------------------


@check("segmentName")
def segment_name(vector: Vector) -> None:
    fields = vector["fields"]
    segment = naming.segment_id(fields["epoch"], fields["number"])
    assert segment == fields["segmentId"]
    assert (naming.epoch_of(segment), naming.number_of(segment)) == (fields["epoch"], fields["number"])
    assert naming.segment_name(fields["scope"], fields["stream"], segment) == vector["text"]
    assert naming.parse_segment_name(vector["text"]) == (fields["scope"], fields["stream"], segment, None)


@check("kvtSegmentName")
def table_segment_name(vector: Vector) -> None:
    fields = vector["fields"]
    table = fields["table"] + "_kvtable"
    assert naming.segment_name(fields["scope"], table, fields["segmentId"]) == vector["text"]


@check("txnSegmentName")
def transaction_segment_name(vector: Vector) -> None:
    fields = vector["fields"]
    txn = UUID(fields["txn"])
    assert naming.transaction_segment_name(fields["parent"], txn) == vector["text"]
    *parent, none = naming.parse_segment_name(fields["parent"])
    assert none is None
    assert naming.parse_segment_name(vector["text"]) == (*parent, txn)
    assert naming.epoch_of(naming.generalized_segment_id(5, txn)) == fields["epochOfTxn"]


@check("readerGroupStream", "markStream")
def internal_stream(vector: Vector) -> None:
    assert ScopedStream.parse(f"scope1/{vector['text']}").name == vector["text"]


# --- hashes ---------------------------------------------------------------------------------------


@check("eventRouterHashToRange")
def routing_position(vector: Vector) -> None:
    key = vector["fields"]["key"]
    assert hashing.hash_to_range(key) == hashing.routing_key_position(key) == float(vector["text"])


@check("hashToRangeSeeded")
def seeded_position(vector: Vector) -> None:
    fields = vector["fields"]
    seed = hashing.java_string_hash(fields["seed"])
    assert hashing.hash_to_range(fields["key"], seed) == float(vector["text"])


@check("kvtRouterHashToRange")
def table_position(vector: Vector) -> None:
    assert hashing.hash_bytes_to_range(bytes.fromhex(vector["fields"]["key_hex"])) == float(vector["text"])


@check("containerOfSegment")
def container(vector: Vector) -> None:
    fields = vector["fields"]
    # Servers do this, not clients.
    name, count = fields["segment"], fields["containers"]
    base = name.partition("#transaction.")[0].partition("#transient.")[0].partition(".#epoch.")[0]
    seed = hashing.java_string_hash("SegmentToContainerMapper")
    state = hashing.murmur3_x64_128(base.encode("utf-16-le"), seed)[0]
    found = following = 0
    while following < count:
        found = following
        state = (state * 2862933555777941757 + 1) % (1 << 64)
        following = int((found + 1) / (((state >> 33) + 1) / (1 << 31)))
    assert found == int(vector["text"])


@check("markAttributeId")
def mark_attribute(vector: Vector) -> None:
    assert UUID(vector["text"]) == MARK_ATTRIBUTE
    assert hash_as_uuid(vector["fields"]["name"], "SegmentAttribute") == MARK_ATTRIBUTE


@check("seededUUID")
def seeded_uuid(vector: Vector) -> None:
    fields = vector["fields"]
    assert hash_as_uuid(fields["name"], fields["seed"]) == UUID(vector["text"])


def hash_as_uuid(text: str, seed: str) -> UUID:
    h1, h2 = hashing.murmur3_x64_128(text.encode("utf-16-le"), hashing.java_string_hash(seed))
    return UUID(bytes=h1.to_bytes(8, "little") + h2.to_bytes(8, "little"))


@pytest.mark.parametrize(
    ("text", "seed"),
    [
        ("EventRouter", 1741865571),
        ("KeyValueTableRouter", -2020233499),
        ("SegmentToContainerMapper", 1661405012),
        ("SegmentAttribute", 817748169),
    ],
)
def test_seeds(text: str, seed: int) -> None:
    assert hashing.java_string_hash(text) == seed


def test_seeds_in_use() -> None:
    assert (hashing.ROUTING_SEED, hashing.TABLE_SEED) == (1741865571, -2020233499)


# --- events and serializers -----------------------------------------------------------------------


@check("framedEvent")
def framed_event(vector: Vector) -> None:
    payload, framed = bytes.fromhex(vector["fields"]["payload_hex"]), data_of(vector)
    assert frame_event(payload) == framed
    batch, consumed, _ = parse_events(framed, 0, segment="s/t/0.#epoch.0")
    assert (batch.to_list(), consumed) == ([payload], len(framed))


@check("UTF8StringSerializer")
def utf8_serializer(vector: Vector) -> None:
    assert Utf8Serializer().serialize(vector["fields"]["value"]) == data_of(vector)
    assert Utf8Serializer().deserialize(data_of(vector)) == vector["fields"]["value"]


@check("JavaSerializer")
def java_serializer(vector: Vector) -> None:
    if vector["fields"]["javaType"] != "java.lang.String":
        with pytest.raises(DecodeError, match="does not contain a string"):
            JavaStringSerializer().deserialize(data_of(vector))
        return
    assert JavaStringSerializer().serialize(vector["fields"]["value"]) == data_of(vector)
    assert JavaStringSerializer().deserialize(data_of(vector)) == vector["fields"]["value"]


@check("authorizationHeader")
def authorization(vector: Vector) -> None:
    fields = vector["fields"]
    assert Credentials.basic(fields["user"], fields["password"]).header == vector["text"]


# --- small public types ---------------------------------------------------------------------------


def same_entries(one: bytes, other: bytes) -> bool:
    """Whether two records differ at most in the order of a map's entries, which is a writer's choice."""
    return len(one) == len(other) and sorted(one) == sorted(other)


@check("revision")
def revision(vector: Vector) -> None:
    fields = vector["fields"]
    value = Revision(fields["segment"], fields["offset"], fields["eventAtOffset"])
    assert value.to_text() == vector["text"]
    assert Revision.from_text(vector["text"]) == value


def cut_of(fields: dict[str, Any]) -> StreamCut:
    return StreamCut(ScopedStream.parse(fields["stream"]), dict(fields["positions"]))


@check("streamCut")
def stream_cut(vector: Vector) -> None:
    cut = cut_of(vector["fields"])
    assert formats.decode_stream_cut(data_of(vector)) == cut
    encoded = formats.encode_stream_cut(cut)
    assert formats.decode_stream_cut(encoded) == cut
    if vector["fields"]["positions"] == sorted(vector["fields"]["positions"]):
        assert encoded == data_of(vector)
    else:
        assert same_entries(encoded, data_of(vector))


@check("streamCut.asText")
def stream_cut_text(vector: Vector) -> None:
    cut = cut_of(vector["fields"])
    assert gzip.decompress(base64.b64decode(vector["text"])).decode() == vector["fields"]["decoded"]
    assert StreamCut.from_text(vector["text"]) == cut
    ours = cut.to_text()
    assert StreamCut.from_text(ours) == cut
    if vector["fields"]["positions"] == sorted(vector["fields"]["positions"]):
        assert ours == vector["text"]


@check("streamCut.toString")
def stream_cut_shown(vector: Vector) -> None:
    cut = cut_of(vector["fields"])
    stream, _, entries = vector["text"].partition(":")
    ours, _, our_entries = str(cut).partition(":")
    assert ours == stream
    assert sorted(our_entries.split(", ")) == sorted(entries.split(", "))


@check("streamCut.UNBOUNDED")
def unbounded(vector: Vector) -> None:
    assert formats.encode_stream_cut(None) == data_of(vector)
    assert formats.decode_stream_cut(data_of(vector)) is None


@check("streamCut.UNBOUNDED.asText")
def unbounded_text(vector: Vector) -> None:
    stream = ScopedStream("s", "n")
    tail = StreamCut(stream, {0: 7})
    with patch.object(batch, "tail", AsyncMock(return_value=tail)):
        assert trio.run(batch.resolve_bound, AsyncMock(), stream, vector["text"], "latest") == tail


def range_of(pair: list[float] | None) -> KeyRange | None:
    return None if pair is None else (pair[0], pair[1])


@check("position")
def position(vector: Vector) -> None:
    fields = vector["fields"]
    ranges = {name: range_of(pair) for name, pair in fields["segmentRanges"]}
    value = Position.of(dict(fields["ownedSegments"]), ranges)
    assert java_values.decode_position(data_of(vector)) == value
    encoded = java_values.encode_position(value)
    assert java_values.decode_position(encoded) == value
    assert same_entries(encoded, data_of(vector))


def pointer_of(fields: dict[str, Any]) -> EventPointer:
    return EventPointer(fields["segment"], fields["offset"], fields["length"])


@check("eventPointer")
def event_pointer(vector: Vector) -> None:
    value = pointer_of(vector["fields"])
    assert java_values.encode_event_pointer(value) == data_of(vector)
    assert java_values.decode_event_pointer(data_of(vector)) == value


@check("eventPointer.toString")
def event_pointer_text(vector: Vector) -> None:
    value = pointer_of(vector["fields"])
    assert str(value) == vector["text"]
    assert EventPointer.from_text(vector["text"]) == value


@check("checkpoint")
def checkpoint(vector: Vector) -> None:
    fields = vector["fields"]
    cuts = tuple(
        StreamCut(
            ScopedStream.parse(stream),
            {naming.parse_segment_name(name)[2]: offset for name, offset in positions},
        )
        for stream, positions in fields["positions"]
    )
    value = Checkpoint(fields["name"], cuts)
    assert java_values.decode_checkpoint(data_of(vector)) == value
    encoded = java_values.encode_checkpoint(value)
    assert java_values.decode_checkpoint(encoded) == value
    assert same_entries(encoded, data_of(vector))


@check("watermark")
def watermark(vector: Vector) -> None:
    fields = vector["fields"]
    value = Watermark(
        fields["lower"], fields["upper"], tuple(WatermarkSegment(*each) for each in fields["streamCut"])
    )
    assert formats.encode_watermark(value) == data_of(vector)
    assert formats.decode_watermark(data_of(vector)) == value


# --- records of a state synchronizer --------------------------------------------------------------


@check("synchronizer.updates(AddReader)", "synchronizer.updates(AcquireSegment,UpdateDistanceToTail)")
def synchronizer_updates(vector: Vector) -> None:
    updates = tuple(bytes.fromhex(each) for each in vector["fields"]["updates_hex"])
    assert UpdateRecord(updates).encode() == data_of(vector)
    assert decode_state_record(data_of(vector)) == UpdateRecord(updates)


@check("synchronizer.init(ReaderGroupStateInit)")
def synchronizer_initial(vector: Vector) -> None:
    """The object itself is one of the vectors of its own: the same bytes, and at most zeros behind them."""
    [plain] = [
        data_of(other)
        for other in VECTORS
        if other["what"] == "init.ReaderGroupStateInit" and other["fields"] == vector["fields"]
    ]
    record = decode_state_record(data_of(vector))
    assert isinstance(record, InitialRecord)
    assert record.data[: len(plain)] == plain
    assert not any(record.data[len(plain) :])
    assert data_of(vector).startswith(InitialRecord(plain).encode())


# --- all of them ----------------------------------------------------------------------------------


HERE = [number for number, vector in enumerate(VECTORS) if vector["what"] in CHECKS]


@pytest.mark.parametrize("number", HERE, ids=lambda number: f"{VECTORS[number]['what']}-{number}")
def test_vector(number: int) -> None:
    CHECKS[VECTORS[number]["what"]](VECTORS[number])


def test_no_vector_is_left_out() -> None:
    assert set(CHECKS) == COVERED_HERE
    assert not COVERED_HERE & IN_GROUP_GOLDEN
    assert {vector["what"] for vector in VECTORS} == COVERED_HERE | IN_GROUP_GOLDEN
    assert len(VECTORS) == 176


# --- what Java wrote besides the vectors ----------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (KeyValueVersion(5, 7), "5:7"),
        (
            KeyValueVersion(KeyValueVersion.ANY_SEGMENT, KeyValueVersion.NO_VERSION),
            "-9223372036854775808:-9223372036854775808",
        ),
        (
            KeyValueVersion(KeyValueVersion.ANY_SEGMENT, KeyValueVersion.NOT_EXISTS),
            "-9223372036854775808:-1",
        ),
    ],
)
def test_key_value_version_text(version: KeyValueVersion, text: str) -> None:
    assert str(version) == text
    assert KeyValueVersion.from_text(text) == version


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("", "aced0005740000"),
        ("\0", "aced0005740002c080"),
        ("\U0001f600", "aced0005740006eda0bdedb880"),
        ("\ud800", "aced0005740003eda080"),
        ("x" * 65535, "aced000574ffff" + "78" * 65535),
        ("x" * 65535 + "y", "aced00057c0000000000010000" + "78" * 65535 + "79"),
    ],
    ids=["empty", "zero", "supplementary", "surrogate", "longest-short", "shortest-long"],
)
def test_java_strings(text: str, data: str) -> None:
    assert JavaStringSerializer().serialize(text).hex() == data
    assert JavaStringSerializer().deserialize(bytes.fromhex(data)) == text


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ("", DecodeError), ("aced0004740000", DecodeError), ("aced000570", DecodeError),
        ("aced0005", DecodeError), ("aced00057400", TruncatedInputError),
        ("aced000574000568656c6c", TruncatedInputError),
        ("aced00057cffffffffffffffff61", TruncatedInputError),
        ("aced0005740004f09f9880", DecodeError), ("aced0005740001c3", DecodeError),
    ],
)  # fmt: skip
def test_what_is_no_java_string(data: str, error: type[PravegaError]) -> None:
    with pytest.raises(error):
        JavaStringSerializer().deserialize(bytes.fromhex(data))


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("a\ud800", "613f"), ("\udc00\ud800b", "3f3f62"), ("\ud83d\ude00", "f09f9880"),
        ("\ud800\ud83d\ude00", "3ff09f9880"),
    ],
)  # fmt: skip
def test_utf8_of_surrogates(text: str, data: str) -> None:
    assert Utf8Serializer().serialize(text).hex() == data


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("ff", "\ufffd"), ("c080", "\ufffd" * 2), ("eda080", "\ufffd"), ("eda080edb080", "\ufffd" * 2),
        ("eda061", "\ufffda"), ("eda0", "\ufffd"), ("e28261", "\ufffda"), ("f09f98", "\ufffd"),
        ("f5808080", "\ufffd" * 4), ("e08080", "\ufffd" * 3),
    ],
)  # fmt: skip
def test_malformed_utf8_as_java_reads_it(data: str, text: str) -> None:
    assert Utf8Serializer().deserialize(bytes.fromhex(data)) == text


# --- older records, and values that cannot be ------------------------------------------------------


def test_stream_cut_of_version_0() -> None:
    body = DataWriter().utf("s/t").mapping({3: 500}, DataWriter.compact_long, DataWriter.compact_long)
    data = encode_record([lambda target: target.raw(body.getvalue())], version=0)
    assert formats.decode_stream_cut(data) == StreamCut(ScopedStream("s", "t"), {3: 500})


def test_position_without_ranges() -> None:
    data = encode_record(
        [lambda target: target.mapping({"s/t/0.#epoch.0": 9}, DataWriter.utf, DataWriter.compact_long)]
    )
    assert java_values.decode_position(data) == Position((OwnedSegment("s/t/0.#epoch.0", 9),))


def test_values_that_cannot_be_written() -> None:
    with pytest.raises(EncodeError):
        java_values.encode_position(Position.of({"s/t/0.#epoch.0": (1 << 62) - 2}))
    with pytest.raises(EncodeError):
        formats.encode_stream_cut(StreamCut(ScopedStream("s", "t"), {0: 1 << 61}))
    with pytest.raises(EncodeError):
        java_values.encode_event_pointer(EventPointer("s/t/0.#epoch.0", 0, 1 << 30))


def test_bytes_that_make_no_sense() -> None:
    cut = formats.encode_stream_cut(StreamCut(ScopedStream("s", "t"), {0: 1}))
    with pytest.raises(DecodeError, match="stream cut"):
        formats.decode_stream_cut(cut.replace(b"s/t", b"s t"))
    with pytest.raises(TruncatedInputError):
        formats.decode_stream_cut(cut[:-1])
    with pytest.raises(IncompatibleVersionError, match="version 2"):
        formats.decode_stream_cut(bytes([0, 2]) + cut[2:])
    with pytest.raises(DecodeError, match="no revision"):
        java_values.decode_event_pointer(bytes(3))
    misplaced = DataWriter().utf("cp").byte(1).utf("s/u").raw(cut).getvalue()
    with pytest.raises(DecodeError, match="the entry for 's/u' has a cut of s/t"):
        java_values.decode_checkpoint(encode_record([lambda target: target.raw(misplaced)]))
    with pytest.raises(InvalidStreamCutError):
        StreamCut.from_text("unbounded")


@pytest.mark.parametrize("text", ["", "s/t/0:5", "s/t/0:-5-6", "s/t/0:5-6x", ":5-6", "s/t/0:5_0-6"])
def test_what_is_no_event_pointer(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        EventPointer.from_text(text)


@pytest.mark.parametrize("text", ["", "5", "5:", "5:7:9", "5:x", "9223372036854775808:0"])
def test_what_is_no_key_value_version(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        KeyValueVersion.from_text(text)


def test_values_are_equal_whatever_their_order_and_can_be_shipped() -> None:
    first, second = OwnedSegment("s/t/0.#epoch.0", 5, (0.0, 0.5)), OwnedSegment("s/t/1.#epoch.0", -7)
    assert second.offset == -1
    assert second.completed
    assert not first.completed
    assert Position((first, second)) == Position((second, first))
    assert hash(Position((first, second))) == hash(Position((second, first)))
    cut = StreamCut(ScopedStream("s", "t"), {0: 1})
    for value in (
        Position((first, second)),
        EventPointer("s/t/0.#epoch.0", 1, 2),
        Checkpoint("cp", (cut,)),
        Watermark(1, 2, (WatermarkSegment(0, 0.0, 1.0, 7),)),
        KeyValueVersion(1, 2),
    ):
        assert pickle.loads(pickle.dumps(value)) == value


def test_values_that_contradict_themselves() -> None:
    cut = StreamCut(ScopedStream("s", "t"), {0: 1})
    segment = WatermarkSegment(0, 0.0, 1.0, 7)
    owned = OwnedSegment("s/t/0.#epoch.0", 5)
    with pytest.raises(InvalidArgumentError, match="twice"):
        Position((owned, owned))
    with pytest.raises(InvalidArgumentError, match="twice"):
        Checkpoint("cp", (cut, cut))
    with pytest.raises(InvalidArgumentError, match="twice"):
        Watermark(1, 2, (segment, segment))
    with pytest.raises(InvalidArgumentError, match="key space"):
        OwnedSegment("s/t/0.#epoch.0", 5, (0.5, float("nan")))
