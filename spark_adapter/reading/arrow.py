"""Reads a range of a segment as Arrow record batches, in a worker.

It does not need Spark, and creates no Python object for an event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from pravega_wire import EventBatch, PravegaConfig, ScopedStream, SegmentRange
from pravega_wire.support.arrow import arrow_integer, arrow_text
from pravega_wire.sync import DirectReader
from spark_adapter.clients import HeldClient
from spark_adapter.options.read import COLUMNS
from spark_adapter.reading.skip_lost import surviving

__all__ = ["ReadRanges", "arrow_batches", "arrow_schema", "batches_of"]

_TYPES = {
    "event": pa.binary(),
    "scope": pa.string(),
    "stream": pa.string(),
    "segment_id": pa.int64(),
    "offset": pa.int64(),
}


def arrow_schema(columns: Sequence[str] = COLUMNS) -> pa.Schema:
    """Return the Arrow schema of the columns, with the types that Spark expects of a Python data source."""
    return pa.schema([(name, _TYPES[name]) for name in columns])


def arrow_batches(
    config: PravegaConfig, segment_range: SegmentRange, columns: Sequence[str] = COLUMNS
) -> Iterator[pa.RecordBatch]:
    """Read the events of a range in order, about a megabyte at a time.

    :param config: connection settings.
    :param segment_range: the range.
    :param columns: some of :data:`spark_adapter.options.read.COLUMNS`, in any order.
    :raises DataLossError: bytes of the range were truncated, or the segment was deleted.
    :raises RetriesExhaustedError: the segment store could not be reached in time.
    :raises DecodeError: the range does not start or end at an event boundary.
    """
    made = _Columns(segment_range, columns)
    with HeldClient(config) as client, DirectReader(client, segment_range) as batches:
        for batch in batches:
            # This copies, because the batch is valid only until the next one is requested.
            yield made.of(batch)


def batches_of(
    config: PravegaConfig, segment_range: SegmentRange, columns: Sequence[str], *, skip_lost: bool
) -> Iterator[pa.RecordBatch]:
    """Read the events of a range, like :func:`arrow_batches`.

    :param config: connection settings.
    :param segment_range: the range.
    :param columns: some of :data:`spark_adapter.options.read.COLUMNS`, in any order.
    :param skip_lost: whether to skip data that is truncated before it is read, with a warning in the log,
        instead of raising :class:`DataLossError`.
    """
    if not skip_lost:
        return arrow_batches(config, segment_range, columns)
    return surviving(lambda rest: arrow_batches(config, rest, columns), segment_range)


@dataclass(frozen=True, slots=True)
class ReadRanges:
    """A function for ``mapInArrow`` that reads ranges, given by their numbers; can be pickled.

    It is here, and not beside :func:`~spark_adapter.read_df`, because a worker imports the module.
    """

    stream: ScopedStream
    config: PravegaConfig
    ranges: tuple[SegmentRange, ...]
    columns: tuple[str, ...]
    skip_lost: bool

    @property
    def __name__(self) -> str:
        """What ``explain()`` shows."""
        size = sum(each.length for each in self.ranges)
        return f"pravega {self.stream}: {len(self.ranges)} ranges, {size} bytes"

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from batches_of(
                    self.config, self.ranges[number], self.columns, skip_lost=self.skip_lost
                )


class _Columns:
    """The columns of the events of one range.

    What all events of the range have in common is repeated once, and given out as slices.
    """

    def __init__(self, segment_range: SegmentRange, columns: Sequence[str]) -> None:
        stream = segment_range.stream
        shared = {
            "scope": arrow_text(stream.scope),
            "stream": arrow_text(stream.name),
            "segment_id": arrow_integer(segment_range.segment_id),
        }
        self._schema = arrow_schema(columns)
        self._shared = {name: shared[name] for name in columns if name in shared}
        self._repeated: dict[str, pa.Array] = {}
        self._most = 0

    def of(self, batch: EventBatch) -> pa.RecordBatch:
        """Return the events of a batch; the result shares no memory with it."""
        count = len(batch)
        if count > self._most:
            self._most = 1 << count.bit_length()
            self._repeated = {name: pa.repeat(value, self._most) for name, value in self._shared.items()}
        return pa.RecordBatch.from_arrays(
            [self._column(name, batch, count) for name in self._schema.names], schema=self._schema
        )

    def _column(self, name: str, batch: EventBatch, count: int) -> pa.Array:
        if name == "event":
            return batch.to_arrow()
        if name == "offset":
            return batch.offsets_arrow()
        return self._repeated[name].slice(0, count)
