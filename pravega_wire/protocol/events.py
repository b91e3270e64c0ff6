"""Events inside a segment: an int32 type (0), an int32 length, the payload.

(Client formats v0.13.0, "Event framing in a stream segment".) Splitting a buffer into events makes no
object for each of them: an :class:`EventBatch` is the buffer and an array of positions.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Final, overload

from pravega_wire.errors import DecodeError, TruncatedInputError

if TYPE_CHECKING:
    import pyarrow

__all__ = ["EVENT_HEADER", "EventAssembler", "EventBatch", "frame_event", "last_boundary", "parse_events"]

EVENT_HEADER: Final = Struct(">ii")
_unpack_header: Final = Struct(">Q").unpack_from
# Of an event this is its length: the type before it is 0. Of anything else it is over 2 GiB.
_HEADER_BYTES: Final = 8
_RUN: Final = 16
# Equal lengths in a row before the run check is worth its set-up.
_BLOCK: Final = 128
# Events that are followed before it is looked for runs again.
_AT_ONCE: Final = 64
_AT_ONCE_BYTES: Final = 1 << 16
# Payloads of one length that are unpacked by one call, and bytes of it.

Buffer = bytes | bytearray | memoryview


def frame_event(payload: Buffer) -> bytes:
    """An event as it is stored."""
    return EVENT_HEADER.pack(0, len(payload)) + bytes(payload)


class EventBatch:
    """Events that lie one after the other in a buffer.

    ``len()``, iteration and indexing give payloads as ``bytes``; :meth:`memoryviews` and
    :meth:`to_arrow` do without a Python object for each byte string.

    :param begins: where each event begins in the buffer, and where the last one ends; or how many bytes each
        event takes, when all take the same.
    :ivar buffer: the bytes of the events, headers included, and nothing else.
    :ivar base_offset: segment offset of its first byte.
    """

    __slots__ = ("_begins", "_count", "base_offset", "buffer")

    def __init__(self, buffer: memoryview, base_offset: int, begins: array[int] | int) -> None:
        self.buffer = buffer
        self.base_offset = base_offset
        self._begins = begins
        self._count = len(buffer) // begins if isinstance(begins, int) else len(begins) - 1

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<EventBatch of {len(self)} events from offset {self.base_offset}>"

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.to_list())

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        begins = self.begins
        if isinstance(index, slice):
            return [
                bytes(self.buffer[begins[each] + _HEADER_BYTES : begins[each + 1]])
                for each in range(*index.indices(self._count))
            ]
        at = range(self._count)[index]
        return bytes(self.buffer[begins[at] + _HEADER_BYTES : begins[at + 1]])

    @property
    def begins(self) -> Sequence[int]:
        """Positions of the events' headers in the buffer, and the position after the last event."""
        if isinstance(self._begins, int):
            return range(0, len(self.buffer) + 1, self._begins)
        return self._begins

    def to_list(self) -> list[bytes]:
        """Payloads in order."""
        stride = self._begins
        if isinstance(stride, int):
            many = max(1, min(_AT_ONCE, _AT_ONCE_BYTES // stride))
            whole = self._count // many * many * stride
            found = list(chain.from_iterable(_payloads(stride, many).iter_unpack(self.buffer[:whole])))
            found.extend(chain.from_iterable(_payloads(stride, 1).iter_unpack(self.buffer[whole:])))
            return found
        # One copy of the whole buffer makes the slices plain bytes, with no view in between.
        data = bytes(self.buffer)
        return [data[begin + _HEADER_BYTES : end] for begin, end in pairwise(stride)]

    def memoryviews(self) -> list[memoryview]:
        """Payloads in order, as views of the buffer."""
        buffer = self.buffer
        return [buffer[begin + _HEADER_BYTES : end] for begin, end in pairwise(self.begins)]

    def offsets(self) -> list[int]:
        """Segment offset of each event's header."""
        return [begin + self.base_offset for begin in self.begins[:-1]]

    def offsets_arrow(self) -> pyarrow.Array:
        """As :meth:`offsets`, as an Arrow ``int64`` array (needs pyarrow)."""
        import pyarrow as pa
        import pyarrow.compute as pc

        count = self._count
        if isinstance(self._begins, int):
            numbers = _numbers(1 << count.bit_length())
            steps = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(numbers)])
            begins = pc.multiply(steps, pa.scalar(self._begins, pa.int64()))
        else:
            begins = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(self._begins)])
        return pc.add(begins, pa.scalar(self.base_offset, pa.int64()))

    def after(self, count: int) -> EventBatch:
        """The events after the first ``count``, without copying their bytes."""
        begin = self.begins[count]
        rest = self._begins
        if not isinstance(rest, int):
            rest = array("q", [each - begin for each in rest[count:]])
        return EventBatch(self.buffer[begin:], self.base_offset + begin, rest)

    @property
    def next_offset(self) -> int:
        """Segment offset after the last event."""
        return self.base_offset + len(self.buffer)

    @property
    def nbytes(self) -> int:
        """Bytes of all payloads."""
        return len(self.buffer) - _HEADER_BYTES * self._count

    def to_arrow(self) -> pyarrow.Array:
        """Payloads as an Arrow ``binary`` array (needs pyarrow); no Python object is made for any of them."""
        import pyarrow as pa
        import pyarrow.compute as pc

        count = self._count
        if not count:
            return pa.array([], pa.binary())
        # Payloads and the headers between them are elements of one array over the buffer; every other one
        # is taken out of it.
        if isinstance(self._begins, int):
            bounds = _bounds(self._begins, 1 << (count - 1).bit_length())
        else:
            begins = pa.Array.from_buffers(pa.int64(), count + 1, [None, pa.py_buffer(self._begins)])
            ends = begins.cast(pa.int32())
            bounds = array("i", bytes(8 * count))
            bounds[0::2] = _int32s(pc.add(ends[:-1], pa.scalar(_HEADER_BYTES, pa.int32())))
            bounds[1::2] = _int32s(ends)[1:]
        both = pa.Array.from_buffers(
            pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(self.buffer)]
        )
        every_other = _even_numbers(1 << (count - 1).bit_length())
        return both.take(pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(every_other)]))


@lru_cache(maxsize=64)
def _payloads(stride: int, many: int) -> Struct:
    """Unpacks the payloads of so many events, each of ``stride`` bytes with its header."""
    return Struct(f"{_HEADER_BYTES}x{stride - _HEADER_BYTES}s" * many)


@lru_cache(maxsize=8)
def _bounds(stride: int, count: int) -> array[int]:
    """Where the payloads of at least so many events of ``stride`` bytes begin and end, in turn."""
    bounds = array("i", bytes(8 * count))
    bounds[0::2] = array("i", range(_HEADER_BYTES, _HEADER_BYTES + count * stride, stride))
    bounds[1::2] = array("i", range(stride, stride + count * stride, stride))
    return bounds


@lru_cache(maxsize=8)
def _numbers(count: int) -> array[int]:
    return array("q", range(count))


@lru_cache(maxsize=8)
def _even_numbers(count: int) -> array[int]:
    return array("i", range(0, 2 * count, 2))


def _int32s(numbers: pyarrow.Array) -> array[int]:
    """The elements of an Arrow array of int32 without nulls."""
    found = array("i")
    start = 4 * numbers.offset
    found.frombytes(memoryview(numbers.buffers()[1])[start : start + 4 * len(numbers)])
    return found


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
    # As long as all events take the same, that is all there is to know of them.
    stride, at = _equal_events(view, size)
    begins: array[int] = array("q", () if stride else (0,))
    unpack = _unpack_header
    needed = _HEADER_BYTES
    while True:
        found: list[int] = []
        add = found.append
        end = at
        try:
            # What is no header is a number that leads far behind the buffer, so that this ends there as well.
            for _ in range(_BLOCK):
                end += _HEADER_BYTES + unpack(view, end)[0]
                add(end)
        except (StructError, OverflowError):
            pass
        over = end > size
        if over:
            found.pop()
        if found:
            if stride:
                begins.extend(range(0, at + 1, stride))
                stride = 0
            at = found[-1]
            begins.fromlist(found)
        if over:
            (length,) = unpack(view, at)
            if length >> 31 == 0:
                needed = _HEADER_BYTES + length
            elif at == 0:
                kind, length = EVENT_HEADER.unpack_from(view, at)
                raise DecodeError(
                    f"segment {segment or '?'}: no event begins at offset {base_offset + at} "
                    f"(type {kind}, length {length})",
                    segment=segment,
                )
            # Else the events before it are good: whoever goes on from there is told.
            break
        if len(found) < _BLOCK:
            break
        each = at - found[-2]
        if found[-1 - _RUN] == at - _RUN * each:
            # Perhaps a long run of one length.
            count = _equal_headers(view, at, each, (size - at) // each)
            if count:
                begins.extend(range(at + each, at + each * count + 1, each))
                at += count * each
    return EventBatch(view[:at], base_offset, stride or begins), at, needed


class EventAssembler:
    """Events of chunks that follow one another, as a reader receives them; an event may lie across several.

    :param offset: segment offset of the first chunk. :param segment: name for messages.
    """

    __slots__ = ("_needed", "_offset", "_rest", "_rest_offset", "_segment")

    def __init__(self, offset: int, segment: str) -> None:
        self._segment = segment
        self._offset = offset
        self._rest = bytearray()
        self._rest_offset = offset
        self._needed = 0

    def take(self, chunk: memoryview, room: memoryview | None = None) -> list[EventBatch]:
        """The events that the next chunk completes, in up to a few batches; they are views of it, or copies.

        :param room: a buffer that ends with the chunk, and whose bytes before it may be written over. The
            beginning of an event that was in the chunk before is put there: all events make one batch.
        :raises DecodeError: bytes at an event's beginning are none.
        """
        self.check()
        ready: list[EventBatch] = []
        base = self._offset
        self._offset += len(chunk)
        size = len(self._rest)
        if room is not None and 0 < size <= len(room) - len(chunk):
            begin = len(room) - len(chunk) - size
            room[begin : begin + size] = self._rest
            chunk = room[begin:]
            base = self._rest_offset
            self._rest = bytearray()
        while self._rest:
            # Complete the event that began in an earlier chunk with just the bytes it needs, so
            # that the rest of this chunk is parsed where it lies.
            missing = self._needed - len(self._rest)
            piece = chunk[:missing]
            self._rest += piece
            chunk = chunk[missing:]
            base += len(piece)
            if len(self._rest) < self._needed:
                return ready
            batch, consumed, self._needed = parse_events(
                bytes(self._rest), self._rest_offset, segment=self._segment
            )
            if consumed:
                ready.append(batch)
                self._rest = bytearray()
        if chunk:
            try:
                batch, consumed, self._needed = parse_events(chunk, base, segment=self._segment)
            except DecodeError:
                # The next call raises it, also where good events come before it.
                self._rest, self._rest_offset, self._needed = bytearray(chunk), base, _HEADER_BYTES
                if not ready:
                    raise
                return ready
            if len(batch):
                ready.append(batch)
            self._rest = bytearray(chunk[consumed:])
            self._rest_offset = base + consumed
        return ready

    def check(self) -> None:
        """:raises DecodeError: parsing stopped at bytes that are not the beginning of an event."""
        if len(self._rest) >= self._needed > 0:
            parse_events(bytes(self._rest), self._rest_offset, segment=self._segment)

    def end(self) -> None:
        """There are no more chunks.

        :raises TruncatedInputError: they have ended in the middle of an event.
        """
        self.check()
        if self._rest:
            raise TruncatedInputError(
                f"{self._segment}: the range ends at {self._offset}, in "
                f"the middle of the event that starts at {self._rest_offset}",
                segment=self._segment,
            )


def _equal_events(view: memoryview, size: int) -> tuple[int, int]:
    """Bytes of each of the events that the buffer begins with, if many are alike, and of all these; or 0."""
    if size < _HEADER_BYTES:
        return 0, 0
    (length,) = _unpack_header(view, 0)
    stride = _HEADER_BYTES + length
    if length >> 31 or size // stride < 2 * _RUN:
        return 0, 0
    count = _equal_headers(view, stride, stride, size // stride - 1)
    return (stride, stride * (count + 1)) if count else (0, 0)


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

    Headers are compared eight bytes at a time, in eight strided slices, at the speed of C: a slice of
    eight-byte items steps by a multiple of eight bytes, whatever the stride. A mismatch anywhere gives up on
    most of the run, so a short run costs little.
    """
    header = bytes(view[at - stride : at - stride + _HEADER_BYTES])
    while count >= _RUN:
        for phase in range(8):
            items = (count - phase + 7) // 8
            start = at + phase * stride
            part = view[start : start + (items - 1) * 8 * stride + _HEADER_BYTES].cast("Q")[::stride]
            if part.tobytes() != header * items:
                break
        else:
            return count
        count //= 8
    return 0
