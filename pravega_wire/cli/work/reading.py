"""Reading a stream: between two cuts, following it, or as a member of a reader group."""

from __future__ import annotations

import base64
import functools
import json
from array import array
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from pravega_wire.cli.work.streams import segment_label
from pravega_wire.errors import DecodeError, InvalidArgumentError
from pravega_wire.protocol.events import EventBatch, frame_event
from pravega_wire.stream.event_reader import EventReader
from pravega_wire.support.arrow import arrow_file, need_arrow
from pravega_wire.values.cuts import OnTruncated
from pravega_wire.values.naming import parse_segment_name
from pravega_wire.values.positions import EventPointer
from pravega_wire.values.types import SegmentRange, StreamCut

if TYPE_CHECKING:
    from pravega_wire.cli.work.schemas import Decoder
    from pravega_wire.stream.client import PravegaClient

__all__ = [
    "FileSink",
    "LastSink",
    "LateSink",
    "Sink",
    "TextSink",
    "Written",
    "between",
    "check_limit",
    "first_of",
    "follow",
    "from_group",
    "show",
]

_ROWS: Final = 50_000
_ROW_GROUP_BYTES: Final = 8 << 20
_JOINING_SECONDS: Final = 15.0
_ALONE_SECONDS: Final = 3.0


# --- what becomes of events -------------------------------------------------------------------------


class Sink(Protocol):
    """Takes the events that were read."""

    def take(self, batch: EventBatch) -> None:
        """Take some consecutive events of a segment."""

    def finish(self) -> None:
        """Write what is left of the events that were taken, if anything is. Afterwards no more are taken."""


def first_of(batch: EventBatch, count: int) -> EventBatch:
    """Return the first events of a batch."""
    begins = batch.begins
    if count >= len(batch):
        return batch
    end = begins[count]
    kept: array[int] | int
    if isinstance(begins, range):
        kept = begins.step
    else:
        # Arrow takes positions of four bytes, which is what the positions have in buffers below 2 GiB.
        kept = array("i" if end < 1 << 31 else "q", begins[: count + 1])
    return EventBatch(batch.segment, batch.buffer[:end], batch.base_offset, kept)


def check_limit(limit: int | None, option: str = "--limit") -> None:
    """Check the number of events to read; None is no limit.

    :raises InvalidArgumentError: it is not positive.
    """
    if limit is not None and limit < 1:
        raise InvalidArgumentError(f"{option} must be positive, not {limit}")


class Written:
    """Passes events on, and counts them.

    :param sink: takes the events.
    :param limit: number of events after which it is full; None for no limit.
    :ivar events: number of events so far.
    :ivar bytes: their size, without headers.
    """

    def __init__(self, sink: Sink, limit: int | None = None) -> None:
        check_limit(limit)
        self._sink = sink
        self._limit = limit
        self.events = 0
        self.bytes = 0

    @property
    def full(self) -> bool:
        """Whether the limit is reached."""
        return self._limit is not None and self.events >= self._limit

    def take(self, batch: EventBatch) -> None:
        """Pass on as many events as the limit allows."""
        if self._limit is not None:
            batch = first_of(batch, self._limit - self.events)
        if not len(batch):
            return
        self._sink.take(batch)
        self.events += len(batch)
        self.bytes += batch.nbytes

    def finish(self) -> None:
        """Write what is left of the events that were passed on."""
        self._sink.finish()


def json_record(pointer: EventPointer, event: bytes, decode: Decoder | None = None) -> dict[str, Any]:
    """Return an event, and where it is, as a record for JSON.

    :param pointer: where it is.
    :param event: the payload. If it is not UTF-8, ``event_base64`` has it instead of ``event``.
    :param decode: decodes the payload; ``value`` has the result instead.
    """
    scope, stream, segment_id, _ = parse_segment_name(pointer.segment)
    record: dict[str, Any] = {
        "stream": f"{scope}/{stream}",
        "segment": segment_label(segment_id),
        "segment_id": segment_id,
        "offset": pointer.start_offset,
        "length": pointer.length,
        "pointer": pointer.to_text(),
    }
    if decode is not None:
        return record | {"value": _decoded(record["pointer"], event, decode)}
    try:
        record["event"] = event.decode()
    except UnicodeDecodeError:
        record["event_base64"] = base64.b64encode(event).decode("ascii")
    return record


def _decoded(pointer: str, event: bytes, decode: Decoder) -> Any:
    try:
        return decode(event)
    except DecodeError as error:
        raise DecodeError(f"event {pointer}: {error.message}") from error


def _records(batch: EventBatch, decode: Decoder | None) -> Iterator[dict[str, Any]]:
    for pointer, event in zip(batch.pointers(), batch, strict=True):
        yield json_record(pointer, event, decode)


def as_raw(batch: EventBatch) -> bytes:
    """Return payloads, each followed by a line feed."""
    return b"".join(each + b"\n" for each in batch)


def as_joined(batch: EventBatch) -> bytes:
    """Return payloads with nothing between them."""
    return b"".join(batch)


def as_hex(batch: EventBatch) -> bytes:
    """Return a line of hexadecimal digits for each event."""
    return b"".join(each.hex().encode() + b"\n" for each in batch)


def as_json(batch: EventBatch, decode: Decoder | None = None) -> bytes:
    """Return a line of JSON for each event."""
    lines = (json.dumps(each, ensure_ascii=False) for each in _records(batch, decode))
    return "".join(f"{line}\n" for line in lines).encode()


def as_values(batch: EventBatch, decode: Decoder) -> bytes:
    """Return a line of JSON with the value of each event."""
    lines = (json.dumps(each["value"], ensure_ascii=False) for each in _records(batch, decode))
    return "".join(f"{line}\n" for line in lines).encode()


def show(
    format: str, *, joined: bool = False, decode: Decoder | None = None
) -> Callable[[EventBatch], bytes]:
    """Return the function that makes bytes of events in a text format.

    :param decode: decodes events of the schema registry.
    :raises InvalidArgumentError: the format has bytes, not values.
    """
    if decode is not None:
        if format not in ("raw", "json") or joined:
            raise InvalidArgumentError(
                "--schema-group prints values as JSON: it goes with --format raw or json, not with "
                + ("--no-newline" if joined else f"--format {format}")
            )
        return functools.partial(as_json if format == "json" else as_values, decode=decode)
    return {"raw": as_joined if joined else as_raw, "json": as_json, "hex": as_hex}[format]


class TextSink:
    """Writes events in one of the text formats.

    :param write: takes the bytes, and keeps none of them back.
    :param show: makes bytes of events.
    """

    def __init__(self, write: Callable[[bytes], object], show: Callable[[EventBatch], bytes]) -> None:
        self._write = write
        self._show = show

    def take(self, batch: EventBatch) -> None:
        """Write some events."""
        self._write(self._show(batch))

    def finish(self) -> None:
        """Do nothing: everything is written."""


class LastSink:
    """Passes on only the last events.

    :param sink: takes them.
    :param count: how many.
    """

    def __init__(self, sink: Sink, count: int) -> None:
        self._sink = sink
        self._count = count
        self._kept: deque[EventBatch] = deque()
        self._events = 0

    @property
    def full(self) -> bool:
        """Never: the last events come last."""
        return False

    def take(self, batch: EventBatch) -> None:
        """Take some events; earlier ones are forgotten."""
        self._kept.append(batch)
        self._events += len(batch)
        while self._events - len(self._kept[0]) >= self._count:
            self._events -= len(self._kept.popleft())

    def end(self) -> None:
        """Pass the last events on."""
        surplus = self._events - self._count
        for batch in self._kept:
            self._sink.take(batch.after(max(0, surplus)))
            surplus = 0
        self._kept.clear()
        self._events = 0


class LateSink:
    """Opens another sink when the first events come.

    :param make: opens it.
    """

    def __init__(self, make: Callable[[], Sink]) -> None:
        self._make = make
        self._sink: Sink | None = None

    def open(self) -> Sink:
        """Return the sink, and open it if it is not open yet."""
        if self._sink is None:
            self._sink = self._make()
        return self._sink

    def take(self, batch: EventBatch) -> None:
        """Write some events."""
        self.open().take(batch)

    def finish(self) -> None:
        """Write what is left, if the other sink is open."""
        if self._sink is not None:
            self._sink.finish()


class FileSink(AbstractContextManager["FileSink"]):
    """Writes events to a file of Arrow's, with the columns ``event``, ``stream``, ``segment_id`` and
    ``offset``.

    :param path: the file.
    :param format: ``arrow`` (IPC file format, also called Feather 2) or ``parquet``.
    :raises MissingExtraError: pyarrow is not installed.
    """

    def __init__(self, path: Path, format: str) -> None:
        need_arrow(f"{format} files need")
        import pyarrow as pa

        self._pa: Any = pa
        self._schema = pa.schema(
            [
                ("event", pa.binary()),
                ("stream", pa.string()),
                ("segment_id", pa.int64()),
                ("offset", pa.int64()),
            ]
        )
        self._waiting: list[Any] = []
        self._rows = self._bytes = 0
        self._finished = False
        self._file = arrow_file(path, "wb")
        if format == "parquet":
            from pyarrow import parquet

            self._writer: Any = parquet.ParquetWriter(self._file, self._schema)
        else:
            self._writer = pa.ipc.new_file(self._file, self._schema)

    def take(self, batch: EventBatch) -> None:
        """Write some events; small batches are collected."""
        pa = self._pa
        scope, stream, segment_id, _ = parse_segment_name(batch.segment)
        count = len(batch)
        self._waiting.append(
            pa.record_batch(
                [
                    batch.to_arrow(),
                    pa.array([f"{scope}/{stream}"] * count, pa.string()),
                    pa.array([segment_id] * count, pa.int64()),
                    batch.offsets_arrow(),
                ],
                schema=self._schema,
            )
        )
        self._rows += count
        self._bytes += len(batch.buffer)
        if self._rows >= _ROWS or self._bytes >= _ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(self._pa.Table.from_batches(self._waiting).combine_chunks())
        self._waiting, self._rows, self._bytes = [], 0, 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()

    def finish(self) -> None:
        """Write the rest of the file, and close it."""
        if self._finished:
            return
        self._finished = True
        try:
            self._flush()
        finally:
            try:
                self._writer.close()
            finally:
                self._file.close()


# --- where they come from ---------------------------------------------------------------------------


async def between(
    client: PravegaClient,
    ranges: Sequence[SegmentRange],
    written: Written | LastSink,
    advance: Callable[[int], None],
) -> None:
    """Read ranges, in order for each routing key.

    :param client: the client.
    :param ranges: the ranges.
    :param written: takes the events.
    :param advance: called with the number of bytes that were read.
    """
    async with client.read_ranges(ranges) as batches:
        async for batch in batches:
            written.take(batch)
            advance(len(batch.buffer))
            if written.full:
                return


async def follow(client: PravegaClient, cut: StreamCut, written: Written, on_truncated: OnTruncated) -> None:
    """Follow a stream until enough events were read, or the stream is sealed.

    :param client: the client.
    :param cut: where to begin.
    :param written: takes the events.
    :param on_truncated: what to do if data was truncated.
    """
    async with client.follow_events(cut.stream, cut, on_truncated=on_truncated) as events:
        while (found := await events.next_batch()) is not None:
            written.take(found)
            if written.full:
                return


async def from_group(
    reader: EventReader[bytes],
    written: Written,
    idle: float | None,
    waiting: Callable[[], Awaitable[object]],
) -> bool:
    """Read as a member of a reader group. Return whether the reader was ever given a segment to read.

    :param reader: the reader.
    :param written: takes the events.
    :param idle: seconds without an event after which reading ends; None: it goes on. A new reader first needs
        some time to be given segments, which does not count.
    :param waiting: called once if reading goes on and the reader was not given a segment for some time.
    """
    joining = trio.current_time() + _JOINING_SECONDS
    given = told = False
    while not written.full:
        found = await reader.read_event(_ALONE_SECONDS if idle is None and not (given or told) else idle)
        given = given or bool(reader.segments) or reader.end_of_data
        if found is None and idle is None:
            if not given:
                told = True
                await waiting()
            elif reader.end_of_data:
                return given
            continue
        if found is None:
            if reader.segments or reader.end_of_data or trio.current_time() >= joining:
                return given
            continue
        framed = frame_event(found.value)
        written.take(EventBatch(found.segment, memoryview(framed), found.offset, len(framed)))
    return True
