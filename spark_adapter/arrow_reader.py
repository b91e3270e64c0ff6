"""What a worker does to read: a range of a segment as Arrow record batches.

Needs no Spark, and makes no Python object for any event.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from pravega_wire import EventBatch, PravegaConfig, SegmentRange
from pravega_wire.sync import DirectReader
from spark_adapter.clients import HeldClient
from spark_adapter.options import COLUMNS
from spark_adapter.surviving import surviving

__all__ = ["arrow_batches", "arrow_schema", "batches_of", "record_batch"]

_TYPES = {
    "event": pa.binary(),
    "scope": pa.string(),
    "stream": pa.string(),
    "segment_id": pa.int64(),
    "offset": pa.int64(),
}


def arrow_schema(columns: Sequence[str] = COLUMNS) -> pa.Schema:
    """The columns as Arrow has them; the types are those that Spark asks a Python data source for."""
    return pa.schema([(name, _TYPES[name]) for name in columns])


def arrow_batches(
    config: PravegaConfig, segment_range: SegmentRange, columns: Sequence[str] = COLUMNS
) -> Iterator[pa.RecordBatch]:
    """The events of a range in order, about a megabyte at a time.

    :param columns: some of :data:`spark_adapter.options.COLUMNS`, in any order.
    :raises DataLossError: bytes of the range were truncated, or the segment deleted.
    :raises RetriesExhaustedError: the store could not be reached in time.
    :raises DecodeError: the range does not begin or end between two events.
    """
    schema = arrow_schema(columns)
    with HeldClient(config) as client, DirectReader(client, segment_range) as batches:
        for batch in batches:
            # A copy of its own: the batch is good until the next one is asked for.
            yield record_batch(segment_range, batch, schema)


def batches_of(
    config: PravegaConfig, segment_range: SegmentRange, columns: Sequence[str], *, skip_lost: bool
) -> Iterator[pa.RecordBatch]:
    """As :func:`arrow_batches`.

    :param skip_lost: leave out what is truncated before it is read, instead of raising
        :class:`DataLossError`; the log says what.
    """
    if not skip_lost:
        return arrow_batches(config, segment_range, columns)
    return surviving(lambda rest: arrow_batches(config, rest, columns), segment_range)


def record_batch(segment_range: SegmentRange, batch: EventBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Some events of a range, with the columns of ``schema``; shares no memory with ``batch``."""
    return pa.RecordBatch.from_arrays(
        [_column(name, segment_range, batch) for name in schema.names], schema=schema
    )


def _column(name: str, segment_range: SegmentRange, batch: EventBatch) -> pa.Array:
    if name == "event":
        return batch.to_arrow()
    if name == "offset":
        return batch.offsets_arrow()
    stream = segment_range.stream
    value = {"scope": stream.scope, "stream": stream.name, "segment_id": segment_range.segment_id}[name]
    return pa.repeat(pa.scalar(value, _TYPES[name]), len(batch))
