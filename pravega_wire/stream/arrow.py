"""Framing Arrow arrays of payloads as events, without a Python object for each payload."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any

from pravega_wire.errors import InvalidArgumentError
from pravega_wire.protocol.append import too_large
from pravega_wire.protocol.events import EVENT_HEADER
from pravega_wire.support.environment import environment
from pravega_wire.values.hashing import routing_key_position

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
    """Consecutive events, each with its header.

    :ivar data: the bytes of the events.
    :ivar offsets: where each event begins in ``data``, followed by the end of the last event.
    :ivar rows: the slice of the given array that they come from.
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

    :raises InvalidArgumentError: the number of keys differs from the number of events, or the keys are not
        strings.
    """
    import pyarrow as pa

    try:
        column: Any = keys if is_arrow(keys) else _strings(keys)
        kind = column.type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        # A cast would turn numbers and bytes into strings, and so into unintended keys.
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
        # An array may have any bytes as text, of which only some uses would notice.
        column.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, UnicodeEncodeError) as error:
        raise InvalidArgumentError(f"routing keys must be strings: {error}") from error
    if len(column) != count:
        raise InvalidArgumentError(f"there are {len(column)} routing keys for {count} events")
    return column


def _strings(keys: Iterable[str | None]) -> Any:
    """An array of strings. pyarrow alone would accept bytes as text."""
    import pyarrow as pa

    listed = list(keys)
    for kind in set(map(type, listed)):
        if not issubclass(kind, str | NoneType):
            raise InvalidArgumentError(f"routing keys must be strings, not {kind.__name__}")
    return pa.array(listed, pa.string())


def one_array(events: Any) -> Any:
    """The events as one binary array without chunks.

    :raises InvalidArgumentError: the array has nulls, contains neither bytes nor text, or has too many for
        its type.
    """
    import pyarrow as pa

    if isinstance(events, pa.ChunkedArray):
        try:
            events = events.combine_chunks()
        except pa.ArrowInvalid as error:
            raise InvalidArgumentError(
                f"the chunks of the array of events have {events.nbytes} bytes, which do not fit into one "
                f"array of {events.type}: write them one by one, or cast the array to pa.large_binary()"
            ) from error
    if events.null_count:
        raise InvalidArgumentError(f"{events.null_count} of the events are null: remove or replace them")
    if not any(
        check(events.type)
        for check in (
            pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string,
            pa.types.is_fixed_size_binary,
        )
    ):  # fmt: skip
        raise InvalidArgumentError(f"events must be an array of binary or string, not of {events.type}")
    return events


def large_rows(events: Any, longest: int) -> list[int]:
    """The rows of an array from :func:`one_array` with payloads over ``longest`` bytes."""
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
    """Slices of an array of some megabytes each."""
    start = 0
    rows = min(_ROWS, max(1, len(events) * _BYTES // max(1, events.nbytes)))
    while start < len(events):
        yield slice(start, min(start + rows, len(events)))
        start += rows


def by_segment(
    keys: Any, position_of: Callable[[str], float], highs: Sequence[float], *, positions: bool
) -> tuple[Any, list[tuple[int, int]], memoryview[float] | None]:
    """Sort rows by the segments that their routing keys lead to, without a Python object for each row.

    :param keys: an array from :func:`key_column`. Rows without a key go to any segment.
    :param position_of: a function from a key to its position in the key space. It is called once for each
        different key, or not at all if it is the default and there are many keys.
    :param highs: upper ends of the segments' parts of the key space.
    :param positions: whether to return the positions.
    :returns: a tuple of three. First, the row indices in their new order, as an array; rows of one segment
        keep their order; None if all rows go to one segment. Second, the number of each segment and its count
        of rows, in that order. Third, the position of each row in the new order, or None.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    encoded = keys.dictionary_encode()
    known = _positions_of_keys(encoded.dictionary, position_of)
    codes = encoded.indices
    if codes.null_count:
        # Each event without a key gets a random position.
        first, nulls = len(known), codes.null_count
        random = environment().random
        known = pa.concat_arrays([known, pa.array([random() for _ in range(nulls)], pa.float64())])
        codes = pc.replace_with_mask(
            codes, pc.is_null(codes), pa.array(range(first, first + nulls), codes.type)
        )
    segments = _segments_at(known, highs).take(codes)
    counted = sorted((each["values"], each["counts"]) for each in segments.value_counts().to_pylist())
    order = None
    if len(counted) > 1:
        # The sort is stable, so the rows of one segment keep their order.
        order = pc.array_sort_indices(segments)
        codes = codes.take(order) if positions else codes
    if not positions:
        return order, counted, None
    column = known.take(codes)
    view = memoryview(column.buffers()[1]).cast("d")[column.offset : column.offset + len(column)]
    return order, counted, view


def _positions_of_keys(keys: Any, position_of: Callable[[str], float]) -> Any:
    """The positions of distinct keys, as an array of float64."""
    import pyarrow as pa

    from pravega_wire.stream import arrow_keys

    # The hashes of fewer keys are cached, so that most of them only take a dictionary look-up.
    if position_of is routing_key_position and len(keys) >= _MANY_KEYS and arrow_keys.are_hashable(keys):
        return arrow_keys.positions_of(keys)
    return pa.array([float(position_of(key)) for key in keys.to_pylist()], pa.float64())


def _segments_at(positions: Any, highs: Sequence[float]) -> Any:
    """The segment number of each position, as an array of int32."""
    import pyarrow as pa

    from pravega_wire.stream import arrow_keys

    if len(highs) <= _FEW_SEGMENTS:
        return arrow_keys.segments_of(positions, highs)
    return pa.array([bisect_left(highs, each) for each in positions.to_pylist()], pa.int32())


def frame_arrow(events: Any, longest: int, writer: str = "") -> Iterator[FramedEvents]:
    """Frame the payloads of an array from :func:`one_array`, some megabytes at a time.

    :param longest: the largest payload allowed, in bytes.
    :param writer: what is written, for messages.
    :raises EventTooLargeError: a payload is larger. No event of its slice is returned.
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
            raise too_large(largest, limit=longest, writer=writer)
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
