"""Events inside a segment: an int32 type (0), an int32 length, the payload.

(Client formats v0.13.0, "Event framing in a stream segment".) Splitting a buffer into events makes no
object for each of them: an :class:`EventBatch` is the buffer and two arrays of positions.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, Final, overload

from pravega_wire.errors import DecodeError

if TYPE_CHECKING:
    import pyarrow

__all__ = ["EVENT_HEADER", "EventBatch", "frame_event", "last_boundary", "parse_events"]

EVENT_HEADER: Final = Struct(">ii")
_HEADER_BYTES: Final = 8
_RUN: Final = 16
# Equal lengths in a row before the run check is worth its set-up.

Buffer = bytes | bytearray | memoryview


def frame_event(payload: Buffer) -> bytes:
    """An event as it is stored."""
    return EVENT_HEADER.pack(0, len(payload)) + bytes(payload)


class EventBatch:
    """Events that lie one after the other in a buffer.

    ``len()``, iteration and indexing give payloads as ``bytes``; :meth:`memoryviews` and
    :meth:`to_arrow` do without a Python object for each byte string.

    :ivar buffer: the bytes, headers included. :ivar base_offset: segment offset of its first byte.
    :ivar starts, ends: where each payload starts and ends in the buffer.
    """

    __slots__ = ("base_offset", "buffer", "ends", "starts")

    def __init__(self, buffer: memoryview, base_offset: int, starts: array[int], ends: array[int]) -> None:
        self.buffer = buffer
        self.base_offset = base_offset
        self.starts = starts
        self.ends = ends

    def __len__(self) -> int:
        return len(self.starts)

    def __repr__(self) -> str:
        return f"<EventBatch of {len(self)} events from offset {self.base_offset}>"

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.to_list())

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return [
                bytes(self.buffer[start:end])
                for start, end in zip(self.starts[index], self.ends[index], strict=True)
            ]
        return bytes(self.buffer[self.starts[index] : self.ends[index]])

    def to_list(self) -> list[bytes]:
        """Payloads in order."""
        # One copy of the whole buffer makes the slices plain bytes, with no view in between.
        data = bytes(self.buffer)
        return [data[start:end] for start, end in zip(self.starts, self.ends, strict=True)]

    def memoryviews(self) -> list[memoryview]:
        """Payloads in order, as views of the buffer."""
        buffer = self.buffer
        return [buffer[start:end] for start, end in zip(self.starts, self.ends, strict=True)]

    def offsets(self) -> list[int]:
        """Segment offset of each event's header."""
        shift = self.base_offset - _HEADER_BYTES
        return [start + shift for start in self.starts]

    @property
    def next_offset(self) -> int:
        """Segment offset after the last event."""
        return self.base_offset + (self.ends[-1] if self.ends else 0)

    @property
    def nbytes(self) -> int:
        """Bytes of all payloads."""
        return sum(self.ends) - sum(self.starts)

    def to_arrow(self) -> pyarrow.Array:
        """Payloads as an Arrow ``binary`` array (needs pyarrow); no Python object is made for any of them."""
        import pyarrow as pa

        count = len(self)
        if not count:
            return pa.array([], pa.binary())
        # Payloads and the headers between them are elements of one array over the buffer; every other one
        # is taken out of it.
        bounds = array("i", bytes(8 * count))
        bounds[0::2] = array("i", self.starts)
        bounds[1::2] = array("i", self.ends)
        both = pa.Array.from_buffers(
            pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(self.buffer)]
        )
        numbers = array("i", range(0, 2 * count, 2))
        return both.take(pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(numbers)]))


def parse_events(
    buffer: Buffer, base_offset: int = 0, *, segment: str | None = None
) -> tuple[EventBatch, int, int]:
    """Split a buffer into whole events.

    :param base_offset: segment offset of the buffer's first byte.
    :param segment: name for messages.
    :returns: the events, how many bytes they take, and how many bytes the event after them needs in
        all (8 as long as its header is not complete).
    :raises DecodeError: the first header is not that of an event. (Before a later one that is not, it stops.)
    """
    view = memoryview(buffer)
    if view.format != "B":
        view = view.cast("B")
    size = len(view)
    starts: array[int] = array("q")
    ends: array[int] = array("q")
    add_start, add_end = starts.append, ends.append
    unpack = EVENT_HEADER.unpack_from
    at = 0
    needed = _HEADER_BYTES
    last = -1
    repeated = 0
    while at + _HEADER_BYTES <= size:
        kind, length = unpack(view, at)
        if kind != 0 or length < 0:
            if at:
                # The events before it are good: whoever goes on from there is told.
                needed = _HEADER_BYTES
                break
            raise DecodeError(
                f"segment {segment or '?'}: no event begins at offset {base_offset + at} "
                f"(type {kind}, length {length})",
                segment=segment,
            )
        end = at + _HEADER_BYTES + length
        if end > size:
            needed = end - at
            break
        add_start(at + _HEADER_BYTES)
        add_end(end)
        if length == last:
            repeated += 1
            if repeated == _RUN:
                repeated = 0
                stride = _HEADER_BYTES + length
                count = _equal_headers(view, end, stride, (size - end) // stride)
                if count:
                    first = end + _HEADER_BYTES
                    starts.extend(range(first, first + count * stride, stride))
                    ends.extend(range(first + length, first + length + count * stride, stride))
                    end += count * stride
        else:
            last = length
            repeated = 0
        at = end
    return EventBatch(view[:at], base_offset, starts, ends), at, needed


def last_boundary(
    view: memoryview, at: int, limit: int, base_offset: int = 0, *, segment: str | None = None
) -> tuple[int, int]:
    """Follow the headers from the boundary ``at`` as long as events end at ``limit`` or before.

    :param view: the bytes. :param at, limit: positions in it; the limit may lie behind its end, and so may
        the answer: of the last event only the header has to be there.
    :returns: the last boundary reached, and where the event that begins there ends (-1 when the header of
        that event is not in the view as a whole).
    :raises DecodeError: what begins at a boundary is no event.
    """
    size = len(view) - _HEADER_BYTES
    unpack = EVENT_HEADER.unpack_from
    last = -1
    repeated = 0
    while at <= size:
        kind, length = unpack(view, at)
        if kind != 0 or length < 0:
            raise DecodeError(
                f"segment {segment or '?'}: no event begins at offset {base_offset + at} "
                f"(type {kind}, length {length})",
                segment=segment,
            )
        end = at + _HEADER_BYTES + length
        if end > limit:
            return at, end
        if length == last:
            repeated += 1
            if repeated == _RUN:
                repeated = 0
                stride = _HEADER_BYTES + length
                end += stride * _equal_headers(
                    view, end, stride, (min(limit, size + _HEADER_BYTES) - end) // stride
                )
        else:
            last = length
            repeated = 0
        at = end
    return at, -1


def _equal_headers(view: memoryview, at: int, stride: int, count: int) -> int:
    """How many of the next ``count`` headers, ``stride`` apart, equal the one before ``at``.

    Each of the eight header bytes is compared as a strided slice, at the speed of C. A mismatch
    anywhere gives up on half of the run, so a short run costs little.
    """
    header = bytes(view[at - stride : at - stride + _HEADER_BYTES])
    while count >= _RUN:
        stop = at + count * stride
        for index in range(_HEADER_BYTES):
            if bytes(view[at + index : stop : stride]) != header[index : index + 1] * count:
                break
        else:
            return count
        count //= 8
    return 0
