"""Arrow arrays of payloads as framed events, without a Python object for each."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import random
from types import NoneType
from typing import Any

from pravega_wire.errors import InvalidArgumentError
from pravega_wire.hashing import routing_key_position
from pravega_wire.protocol.append import too_large
from pravega_wire.protocol.events import EVENT_HEADER

__all__ = [
    "FramedEvents", "bounded_rows", "by_segment", "frame_arrow", "is_arrow", "key_column", "large_rows",
    "payload_at",
]  # fmt: skip

_ROWS = 65_536
_BYTES = 8 * 1024 * 1024
_MANY_KEYS = 1024
_FEW_SEGMENTS = 64


@dataclass(frozen=True, slots=True)
class FramedEvents:
    """Events one after the other, each with its header.

    :ivar data: bytes. :ivar offsets: where each event begins in ``data``, and the end: one more than events.
    :ivar rows: where they come from: a slice of the array that was given.
    """

    data: memoryview
    offsets: memoryview
    rows: slice

    def __len__(self) -> int:
        return len(self.offsets) - 1


def is_arrow(value: object) -> bool:
    """Whether ``value`` is an array of the ``pyarrow`` package (which need not be installed)."""
    return type(value).__module__.partition(".")[0] == "pyarrow" and hasattr(value, "type")


def key_column(keys: Iterable[str | None], count: int) -> Any:
    """Routing keys as an Arrow array of strings.

    :raises InvalidArgumentError: not as many as events, or not strings.
    """
    import pyarrow as pa

    try:
        column: Any = keys if is_arrow(keys) else _strings(keys)
        kind = column.type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        # a cast would make strings of numbers, and of bytes: another key than was meant
        if not any(
            check(kind)
            for check in (
                pa.types.is_string, pa.types.is_large_string, pa.types.is_null,
                getattr(pa.types, "is_string_view", pa.types.is_string),
            )
        ):  # fmt: skip
            raise InvalidArgumentError(f"routing keys must be strings, not an array of {column.type}")
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        column = column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, UnicodeEncodeError) as error:
        raise InvalidArgumentError(f"routing keys must be strings: {error}") from error
    if len(column) != count:
        raise InvalidArgumentError(f"{len(column)} routing keys were given for {count} events")
    return column


def _strings(keys: Iterable[str | None]) -> Any:
    """An array of strings; pyarrow alone would take bytes for text."""
    import pyarrow as pa

    listed = list(keys)
    for kind in set(map(type, listed)):
        if not issubclass(kind, str | NoneType):
            raise InvalidArgumentError(f"routing keys must be strings, not {kind.__name__}")
    return pa.array(listed, pa.string())


def one_array(events: Any) -> Any:
    """A binary array, in one piece.

    :raises InvalidArgumentError: it has nulls, or holds neither bytes nor text.
    """
    import pyarrow as pa

    if isinstance(events, pa.ChunkedArray):
        events = events.combine_chunks()
    if events.null_count:
        raise InvalidArgumentError(f"{events.null_count} of the events are null")
    if not any(
        check(events.type)
        for check in (
            pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string,
            pa.types.is_fixed_size_binary,
        )
    ):  # fmt: skip
        raise InvalidArgumentError(f"events are an array of binary or string, not of {events.type}")
    return events


def large_rows(events: Any, longest: int) -> list[int]:
    """Where payloads over ``longest`` bytes lie in an array from :func:`one_array`."""
    import pyarrow.compute as pc

    if events.nbytes <= longest:
        return []
    rows: list[int] = pc.indices_nonzero(pc.greater(pc.binary_length(events), longest)).to_pylist()
    return rows


def payload_at(events: Any, row: int) -> bytes:
    """One payload of an array from :func:`one_array`."""
    import pyarrow as pa

    piece = events.slice(row, 1)
    if pa.types.is_fixed_size_binary(piece.type) or pa.types.is_string(piece.type):
        piece = piece.cast(pa.binary())
    found = piece.cast(pa.large_binary())[0].as_py()
    assert isinstance(found, bytes)
    return found


def bounded_rows(events: Any) -> Iterator[slice]:
    """Rows of an array, some megabytes at a time."""
    start = 0
    rows = min(_ROWS, max(1, len(events) * _BYTES // max(1, events.nbytes)))
    while start < len(events):
        yield slice(start, min(start + rows, len(events)))
        start += rows


def by_segment(
    keys: Any, position_of: Callable[[str], float], highs: Sequence[float], *, positions: bool
) -> tuple[Any, list[tuple[int, int]], memoryview[float] | None]:
    """Sort rows by the segments that their routing keys lead to, without an object for each row.

    :param keys: an array from :func:`key_column`; where it is null, the row goes anywhere.
    :param position_of: from a key to its position in the key space; called once for each key, or not at all
        where it is the usual one and there are many keys.
    :param highs: of the segments' parts of the key space. :param positions: whether they are wanted.
    :returns: the rows in their new order as an array of indices, in which those of one segment keep theirs,
        or None if they all go to one; number and count of rows of each segment, in that order; and the
        position of each row in that order, or None.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    encoded = keys.dictionary_encode()
    known = _positions_of_keys(encoded.dictionary, position_of)
    codes = encoded.indices
    if codes.null_count:
        # Each event without a key goes anywhere.
        first, nulls = len(known), codes.null_count
        known = pa.concat_arrays([known, pa.array([random() for _ in range(nulls)], pa.float64())])
        codes = pc.replace_with_mask(
            codes, pc.is_null(codes), pa.array(range(first, first + nulls), codes.type)
        )
    segments = _segments_at(known, highs).take(codes)
    counted = sorted((each["values"], each["counts"]) for each in segments.value_counts().to_pylist())
    order = None
    if len(counted) > 1:
        # Stable: the rows of one segment stay in their order.
        order = pc.array_sort_indices(segments)
        codes = codes.take(order) if positions else codes
    if not positions:
        return order, counted, None
    column = known.take(codes)
    view = memoryview(column.buffers()[1]).cast("d")[column.offset : column.offset + len(column)]
    return order, counted, view


def _positions_of_keys(keys: Any, position_of: Callable[[str], float]) -> Any:
    """Positions of different keys, as an array of float64."""
    import pyarrow as pa

    from pravega_wire.stream import arrow_keys

    # Fewer keys than that are remembered, so that most of them cost a look into a dictionary.
    if position_of is routing_key_position and len(keys) >= _MANY_KEYS and arrow_keys.are_hashable(keys):
        return arrow_keys.positions_of(keys)
    return pa.array([float(position_of(key)) for key in keys.to_pylist()], pa.float64())


def _segments_at(positions: Any, highs: Sequence[float]) -> Any:
    """Numbers of the segments of positions, as an array of int32."""
    import pyarrow as pa

    from pravega_wire.stream import arrow_keys

    if len(highs) <= _FEW_SEGMENTS:
        return arrow_keys.segments_of(positions, highs)
    return pa.array([bisect_left(highs, each) for each in positions.to_pylist()], pa.int32())


def frame_arrow(events: Any, longest: int) -> Iterator[FramedEvents]:
    """Frame the payloads of an array from :func:`one_array`, some megabytes at a time.

    :param longest: largest payload allowed, bytes.
    :raises EventTooLargeError: a payload is longer; nothing of its slice is given out.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    for rows in bounded_rows(events):
        piece = events[rows]
        if pa.types.is_fixed_size_binary(piece.type):
            piece = piece.cast(pa.binary())
        lengths = pc.binary_length(piece).cast(pa.int32())
        bounds = pc.min_max(lengths).as_py()
        smallest, largest = bounds["min"], bounds["max"]
        if largest > longest:
            raise too_large(largest, limit=longest)
        count = len(piece)
        headers: array[int] | bytes
        if smallest == largest:
            headers = EVENT_HEADER.pack(0, largest) * count
        else:
            numbers = array("i")
            first = lengths.offset
            numbers.frombytes(memoryview(lengths.buffers()[1])[first * 4 : (first + count) * 4])
            numbers.byteswap()
            headers = array("i", bytes(8 * count))
            headers[1::2] = numbers
        header_column = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(8), count, [None, pa.py_buffer(headers)]
        ).cast(pa.binary())
        joined = pc.binary_join_element_wise(header_column, piece.cast(pa.binary()), b"")
        _, offsets, data = joined.buffers()
        view = memoryview(offsets).cast("i")[joined.offset : joined.offset + count + 1]
        yield FramedEvents(memoryview(data), view, rows)
