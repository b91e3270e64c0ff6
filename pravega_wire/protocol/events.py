"""Events as they are stored in a segment: an int32 type (0), an int32 length, the payload.

See ``docs/protocol/formats.md``, "Events in a segment". Splitting a buffer into events makes no object for
each of them: an :class:`EventBatch` is the buffer and an array of positions.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice, pairwise, repeat
from operator import length_hint
from struct import Struct
from struct import error as StructError
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload

from pravega_wire.errors import DecodeError, TruncatedInputError, placed
from pravega_wire.support.arrow import arrow_integer, need_arrow
from pravega_wire.values.naming import names_of, parse_segment_name
from pravega_wire.values.positions import EventPointer
from pravega_wire.values.types import ScopedStream

if TYPE_CHECKING:
    import pyarrow

__all__ = [
    "EVENT_HEADER", "EventAssembler", "EventBatch", "EventRows", "PlacedEvent", "frame_event",
    "last_boundary", "parse_events",
]  # fmt: skip

EVENT_HEADER: Final = Struct(">ii")
# Type and length as one number: for an event this is the length, because its type is 0. Anything else yields
# a number of at least 2^31.
_unpack_header: Final = Struct(">Q").unpack_from
_HEADER_BYTES: Final = 8
# Equal lengths in a row before comparing strided headers pays for its set-up.
_RUN: Final = 16
# Events that are followed one by one before the next check for a run of equal lengths.
_BLOCK: Final = 1024
_pack_block: Final = Struct(f"{_BLOCK}i").pack
# Payloads of one length that one call unpacks, and the most bytes of them.
_AT_ONCE: Final = 64
_AT_ONCE_BYTES: Final = 1 << 16
# Payloads up to this size are unpacked together with the header after them; so many sizes are kept.
_WALK_BYTES: Final = 16 * 1024
_WALK_SIZES: Final = 4096
# By size of a payload: unpacks it and the eight bytes after it.
_walk_unpack: Final[dict[int, Callable[[bytes, int], tuple[Any, ...]]]] = {}
# Positions in larger buffers need eight bytes each.
_INT32_BYTES: Final = 1 << 31

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")


class PlacedEvent(Generic[T]):
    """An event with its place. :class:`EventRows` makes objects of subclasses and sets the attributes.

    :ivar value: the payload, or what a deserializer made of it.
    :ivar length: size of the event with its header, bytes.
    """

    # The place: the name of the segment, and the offset there that positions in the batch count from.
    __slots__ = ("_begin", "_place", "length", "value")

    _begin: int
    _place: tuple[str, int]
    length: int
    value: T


E = TypeVar("E", bound=PlacedEvent[Any])


def frame_event(payload: Buffer) -> bytes:
    """Return an event as it is stored: the payload after its header."""
    return EVENT_HEADER.pack(0, len(payload)) + bytes(payload)


class EventBatch:
    """Consecutive events of one segment, in one buffer.

    ``len()``, iteration and indexing give payloads as ``bytes``. :meth:`memoryviews` and :meth:`to_arrow`
    return all payloads without a Python object for each byte string::

        async for batch in client.read_events("stream"):
            table = batch.to_arrow()

    :param segment: full name of the segment.
    :param buffer: the bytes of the events, headers included, and nothing else.
    :param base_offset: segment offset of the buffer's first byte.
    :param begins: where each event begins in the buffer, and where the last one ends; or the size of each
        event with its header, if all have the same size.
    :ivar segment: full name of the segment.
    :ivar base_offset: segment offset of the buffer's first byte.
    """

    __slots__ = ("_begins", "_buffer", "_count", "base_offset", "segment")

    def __init__(self, segment: str, buffer: memoryview, base_offset: int, begins: array[int] | int) -> None:
        self.segment = segment
        self._buffer = buffer
        self.base_offset = base_offset
        self._begins: array[int] | int | None = begins
        self._count = len(buffer) // begins if isinstance(begins, int) else len(begins) - 1

    @classmethod
    def unsplit(cls, segment: str, buffer: memoryview, base_offset: int) -> EventBatch:
        """Make a batch of what is in a buffer that begins with a whole event; for readers.

        Where the events end is found when it is needed. Iteration finds it on the way, which costs less than
        finding it before.

        :param segment: full name of the segment.
        :param buffer: bytes of events. The last one may be incomplete or no event: the batch ends before it.
        :param base_offset: segment offset of the buffer's first byte.
        """
        batch = cls.__new__(cls)
        batch.segment = segment
        batch._buffer = buffer
        batch.base_offset = base_offset
        batch._begins = None
        batch._count = -1
        return batch

    def _split(self) -> array[int] | int:
        """Find the events, if that was not done yet; return what the constructor takes."""
        begins = self._begins
        if begins is None:
            # Another thread may do the same, with the same result.
            found, _, _ = parse_events(self._buffer, self.base_offset, segment=self.segment)
            begins = found._begins
            assert begins is not None
            self._end_at(len(found._buffer), found._count)
            # Last: another thread that sees it takes the rest for set.
            self._begins = begins
        return begins

    def _end_at(self, size: int, count: int) -> None:
        # In this order: another thread that sees the count uses the buffer.
        self._buffer = self._buffer[:size]
        self._count = count

    @property
    def ends_at(self) -> int | None:
        """Segment offset after the last event, or None as long as nobody has looked for it; for readers."""
        return None if self._count < 0 else self.base_offset + len(self._buffer)

    @property
    def unsplit_buffer(self) -> memoryview:
        """The buffer, perhaps with more than the events; for :class:`EventRows`."""
        return self._buffer

    @property
    def buffer(self) -> memoryview:
        """The bytes of the events, headers included, and nothing else."""
        if self._count < 0:
            self._split()
        return self._buffer

    def __len__(self) -> int:
        if self._count < 0:
            self._split()
        return self._count

    def __repr__(self) -> str:
        return f"<EventBatch of {len(self)} events of {self.segment} from offset {self.base_offset}>"

    @property
    def stream(self) -> ScopedStream:
        """The segment's stream."""
        scope, stream, _, _ = parse_segment_name(self.segment)
        return ScopedStream(scope, stream)

    def __iter__(self) -> Iterator[bytes]:
        # Each payload is made when it is asked for: the memory of the one before it is still in the
        # processor's cache. The copy keeps the iterator valid where the buffer is reused, and slices of it
        # are bytes at once.
        data = bytes(self._buffer)
        begins = self._begins
        if begins is None:
            return self._walk_payloads(data)
        if isinstance(begins, int):
            return self.unpacked(data, begins)
        return (data[begin + _HEADER_BYTES : end] for begin, end in pairwise(begins))

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        begins = self.begins
        if isinstance(index, slice):
            return [
                bytes(self.buffer[begins[each] + _HEADER_BYTES : begins[each + 1]])
                for each in range(*index.indices(len(self)))
            ]
        at = range(len(self))[index]
        return bytes(self.buffer[begins[at] + _HEADER_BYTES : begins[at + 1]])

    @property
    def begins(self) -> Sequence[int]:
        """Positions of the events' headers in the buffer, followed by the end of the last event."""
        begins = self._split()
        return range(0, len(self.buffer) + 1, begins) if isinstance(begins, int) else begins

    def to_list(self) -> list[bytes]:
        """Return all payloads, in order."""
        stride = self._split()
        if isinstance(stride, int):
            return list(self.unpacked(self.buffer, stride))
        data = bytes(self.buffer)
        begin = 0
        return [data[begin + _HEADER_BYTES : (begin := end)] for end in stride[1:]]

    def unpacked(self, data: bytes | memoryview, stride: int) -> Iterator[bytes]:
        """Payloads of events of one size, for :class:`EventRows` and iteration."""
        many = max(1, min(_AT_ONCE, _AT_ONCE_BYTES // stride))
        end = self._count * stride
        step = many * stride
        whole = end // step * step
        # Not iter_unpack, which exports the buffer until it ends: if an exception leaves the loop and then
        # belongs to a reference cycle, CPython before 3.13 crashes when it collects an exported memoryview.
        return chain(
            chain.from_iterable(
                map(_payloads(stride, many).unpack_from, repeat(data), range(0, whole, step))
            ),
            chain.from_iterable(
                map(_payloads(stride, 1).unpack_from, repeat(data), range(whole, end, stride))
            ),
        )

    def walk(
        self,
        data: bytes,
        left: Iterator[None],
        kind: type[E],
        place: tuple[str, int],
        stopped: list[int],
    ) -> Generator[E, None, None]:
        """Events of a batch that was not split, for :class:`EventRows`.

        A payload and the header after it are unpacked by one call, so finding events costs hardly more than
        the payloads.

        :param data: the buffer's bytes.
        :param left: an iterator of at least as many items as there are events, whose length is known: it
            tells how many events were given out.
        :param kind: the class of the events.
        :param place: their place.
        :param stopped: as for :func:`_equal_events_of`.
        """
        all_left = length_hint(left)
        unpack = _walk_unpack
        header = _HEADER_BYTES
        begin = 0
        (length,) = _unpack_header(data, 0)
        try:
            for _ in left:
                event = kind()
                try:
                    event.value, following = unpack[length](data, begin + header)
                except (KeyError, StructError):
                    found = _unpack_slowly(data, begin + header, length)
                    if found is None:
                        break
                    event.value, following = found
                length += header
                event._place = place
                event._begin = begin
                event.length = length
                # Nothing is called from here on: an interrupt comes before this, or after the event.
                begin += length
                length = following
                yield event
            if self._count < 0:
                self._end_at(begin, all_left - length_hint(left) - 1)
        except BaseException:
            stopped.append(begin)
            raise

    def _walk_payloads(self, data: bytes) -> Iterator[bytes]:
        # walk() without an object for each event besides its payload.
        unpack = _walk_unpack
        header = at = _HEADER_BYTES
        (length,) = _unpack_header(data, 0)
        left = repeat(None, len(data))
        for _ in left:
            try:
                value, following = unpack[length](data, at)
            except (KeyError, StructError):
                found = _unpack_slowly(data, at, length)
                if found is None:
                    break
                value, following = found
            at += length + header
            length = following
            yield value
        if self._count < 0:
            self._end_at(at - header, len(data) - length_hint(left) - 1)

    def memoryviews(self) -> list[memoryview]:
        """Return all payloads as views of the buffer, in order."""
        buffer = self.buffer
        return [buffer[begin + _HEADER_BYTES : end] for begin, end in pairwise(self.begins)]

    def pointers(self) -> list[EventPointer]:
        """Return a pointer to each event, for :meth:`PravegaClient.fetch_event`."""
        segment, base = self.segment, self.base_offset
        return [EventPointer(segment, base + begin, end - begin) for begin, end in pairwise(self.begins)]

    def offsets(self) -> list[int]:
        """Return the segment offset of each event's header."""
        base = self.base_offset
        return [base + begin for begin in self.begins[:-1]]

    def offsets_arrow(self) -> pyarrow.Array:
        """Return :meth:`offsets` as an Arrow ``int64`` array.

        :raises MissingExtraError: pyarrow is not installed.
        """
        need_arrow("offsets_arrow needs")
        import pyarrow as pa
        import pyarrow.compute as pc

        found, count = self._split(), len(self)
        if isinstance(found, int):
            numbers = _numbers(1 << count.bit_length())
            steps = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(numbers)])
            begins = pc.multiply(steps, arrow_integer(found))
        else:
            kind = pa.int32() if found.itemsize == 4 else pa.int64()
            begins = pa.Array.from_buffers(kind, count, [None, pa.py_buffer(found)]).cast(pa.int64())
        return pc.add(begins, arrow_integer(self.base_offset))

    def rows(self, kind: type[E], deserialize: Callable[[bytes], Any] | None = None) -> EventRows[E]:
        """Return an object that gives out these events one after the other: see :class:`EventRows`."""
        return EventRows(self, kind, deserialize)

    def after(self, count: int) -> EventBatch:
        """Return the events after the first ``count``, without copying their bytes."""
        begin = self.begins[count]
        rest = self._split()
        if not isinstance(rest, int):
            rest = array(rest.typecode, [each - begin for each in rest[count:]])
        return EventBatch(self.segment, self.buffer[begin:], self.base_offset + begin, rest)

    @property
    def next_offset(self) -> int:
        """Segment offset after the last event."""
        return self.base_offset + len(self.buffer)

    @property
    def nbytes(self) -> int:
        """Total size of the payloads, bytes."""
        return len(self.buffer) - _HEADER_BYTES * len(self)

    def to_arrow(self) -> pyarrow.Array:
        """Return all payloads as an Arrow ``binary`` array.

        The array has its own copy of the bytes. No Python object is made for any payload.

        :raises MissingExtraError: pyarrow is not installed.
        """
        need_arrow("to_arrow needs")
        import pyarrow as pa
        import pyarrow.compute as pc

        begins, count = self._split(), len(self)
        if not count:
            return pa.array([], pa.binary())
        if isinstance(begins, int):
            begins = _multiples(begins, 1 << count.bit_length())
        elif begins.itemsize > 4:
            raise OverflowError(f"an Arrow binary array holds less than 2 GiB, not {len(self.buffer)} bytes")
        # An array of whole events needs no copy; one pass over it leaves out the headers.
        events = pa.Array.from_buffers(
            pa.binary(), count, [None, pa.py_buffer(begins), pa.py_buffer(self.buffer)]
        )
        return pc.binary_slice(events, _HEADER_BYTES, len(self.buffer))


class EventRows(Generic[E]):
    """The events of a batch as objects, given out in order, some at a time.

    An object and its value are made when they are asked for, so that the memory of those before can be reused
    while it is still in the processor's cache.

    :param batch: the events.
    :param kind: class of the objects. It is called without arguments.
    :param deserialize: makes the value of a payload; default: the value is the payload. After an exception
        from it the next object is that of the next event; after an interrupt (no ``Exception``), in it or
        anywhere else, that of the same one.
    :ivar batch: the events.
    """

    __slots__ = ("_all", "_data", "_deserialize", "_kind", "_left", "_made", "_place", "_stopped", "batch")

    def __init__(
        self, batch: EventBatch, kind: type[E], deserialize: Callable[[bytes], Any] | None = None
    ) -> None:
        self.batch = batch
        self._kind = kind
        self._place = batch.segment, batch.base_offset
        self._deserialize = deserialize
        self._data = b""
        # One item for each event; how many there were at first.
        self._left: Iterator[object] | None = None
        self._all = 0
        self._made: GeneratorType[E, None, None] | None = None
        # Where in the buffer an exception has ended the generator: the item of the event there may be taken,
        # and the event not given out.
        self._stopped: list[int] = []

    @property
    def index(self) -> int:
        """Number of events that were given out."""
        if self._stopped:
            return bisect_left(self.batch.begins, self._stopped[0])
        # The iterator knows how many are left: nothing has to be counted for each event.
        if self._left is None:
            return 0
        given = self._all - length_hint(self._left)
        # At the end of a batch that was not split one more item was taken.
        return given if self.batch.ends_at is None else min(given, len(self.batch))

    @property
    def exhausted(self) -> bool:
        """Whether all events were given out."""
        return self.index >= len(self.batch)

    def offset(self, index: int) -> int:
        """Return the segment offset at which an event begins, or the one after the last."""
        batch = self.batch
        if not index:
            return batch.base_offset
        if batch.ends_at is not None and index == len(batch):
            return batch.ends_at
        return batch.base_offset + batch.begins[index]

    def take(self, count: int) -> Iterator[E]:
        """Return up to ``count`` of the next events."""
        made = self._made
        if made is None:
            # Not earlier: a caller that takes whole batches needs none of this.
            made = self._start()
        elif not made.gi_suspended:
            # It is at its end, or an exception has ended it: from the deserializer, or an interrupt.
            if self.batch.ends_at is not None and self.exhausted:
                return iter(())
            made = self._go_on(self.index)
        return islice(made, count)

    def _start(self) -> GeneratorType[E, None, None]:
        batch = self.batch
        if batch.ends_at is None and self._deserialize is None:
            data = bytes(batch.unsplit_buffer)
            self._all = len(data)
            left = repeat(None, self._all)
            self._left = left
            return self._keep(batch.walk(data, left, self._kind, self._place, self._stopped))
        begins = batch.begins
        if isinstance(begins, range):
            self._all = len(batch)
            self._left = positions = iter(begins[:-1])
            return self._keep(
                _equal_events_of(
                    batch, begins.step, positions, self._kind, self._place, self._deserialize, self._stopped
                )
            )
        return self._go_on(0)

    def _go_on(self, index: int) -> GeneratorType[E, None, None]:
        begins = self.batch.begins
        self._data = self._data or bytes(self.batch.buffer)
        self._all = len(self.batch)
        ends = iter(list(begins[index + 1 :]))
        # Together: the index is right before and after.
        self._left, self._stopped = ends, []
        return self._keep(
            _sliced_events(
                self._data, begins[index], ends, self._kind, self._place, self._deserialize, self._stopped
            )
        )

    def _keep(self, made: Generator[E, None, None]) -> GeneratorType[E, None, None]:
        assert isinstance(made, GeneratorType)
        self._made = made
        return made


# Not methods: a generator of the object that keeps it would be a cycle, which keeps the buffer for a while.


def _equal_events_of(
    batch: EventBatch,
    size: int,
    positions: Iterator[int],
    kind: type[E],
    place: tuple[str, int],
    deserialize: Callable[[bytes], Any] | None,
    stopped: list[int],
) -> Generator[E, None, None]:
    """Events of one size.

    :param stopped: where the next event begins is put here if an exception ends the generator.
    """
    begin = 0
    event: E | None = None
    try:
        for begin, value in zip(positions, batch.unpacked(batch.buffer, size), strict=False):
            event = kind()
            if deserialize is None:
                event.value = value
            else:
                try:
                    event.value = deserialize(value)
                except Exception as error:
                    stopped.append(begin + size)
                    _place(error, place, begin)
                    raise
            event._place = place
            event.length = size
            # Last, because it tells that the event was given out.
            event._begin = begin
            yield event
    except BaseException:
        stopped.append(begin + size if getattr(event, "_begin", -1) == begin else begin)
        raise


def _sliced_events(
    data: bytes,
    begin: int,
    ends: Iterator[int],
    kind: type[E],
    place: tuple[str, int],
    deserialize: Callable[[bytes], Any] | None,
    stopped: list[int],
) -> Generator[E, None, None]:
    try:
        for end in ends:
            value = data[begin + _HEADER_BYTES : end]
            event = kind()
            event._place = place
            event._begin = begin
            event.length = end - begin
            if deserialize is None:
                event.value = value
            else:
                try:
                    event.value = deserialize(value)
                except Exception as error:
                    stopped.append(end)
                    _place(error, place, begin)
                    raise
            begin = end
            yield event
    except BaseException:
        stopped.append(begin)
        raise


def _place(error: Exception, place: tuple[str, int], begin: int) -> None:
    """Say which event a serializer could not read."""
    if not isinstance(error, DecodeError):
        return
    segment, offset = place
    placed(error, f"the event at offset {offset + begin} of segment {segment}", **names_of(segment))


def _unpack_slowly(data: bytes, at: int, length: int) -> tuple[bytes, int] | None:
    """Return a payload of a size that was not seen before, or the last one, and the length of the next event.

    :param data: bytes of events.
    :param at: where the payload begins.
    :param length: what its header says; -1 if there is none.
    :returns: the payload, and what the header after it says (-1 if there is none); None at the end.
    """
    end = at + length
    if length < 0 or end > len(data):
        return None
    if length <= _WALK_BYTES and length not in _walk_unpack and len(_walk_unpack) < _WALK_SIZES:
        _walk_unpack[length] = Struct(f">{length}sQ").unpack_from
    following = _unpack_header(data, end)[0] if end + _HEADER_BYTES <= len(data) else -1
    return data[at:end], following


@lru_cache(maxsize=64)
def _payloads(stride: int, many: int) -> Struct:
    """A struct that unpacks ``many`` payloads of events of ``stride`` bytes, headers included."""
    return Struct(f"{_HEADER_BYTES}x{stride - _HEADER_BYTES}s" * many)


@lru_cache(maxsize=8)
def _multiples(stride: int, count: int) -> array[int]:
    """The first ``count`` multiples of ``stride``, from 0, and one more."""
    return array("i", range(0, (count + 1) * stride, stride))


@lru_cache(maxsize=8)
def _numbers(count: int) -> array[int]:
    return array("q", range(count))


def parse_events(
    buffer: Buffer,
    base_offset: int = 0,
    *,
    segment: str = "",
    equal: tuple[int, int] | None = None,
) -> tuple[EventBatch, int, int]:
    """Split a buffer into whole events.

    :param buffer: bytes that begin with an event's header.
    :param base_offset: segment offset of the buffer's first byte.
    :param segment: full name of the segment.
    :param equal: what :func:`_equal_events` has found in the buffer; None: nobody has looked.
    :returns: the events, their total size, and the size of the event after them (8 as long as its header is
        incomplete).
    :raises DecodeError: the first header is not that of an event. An invalid header after valid events ends
        the batch instead, so that the next call raises.
    """
    view = memoryview(buffer)
    if view.format != "B":
        view = view.cast("B")
    size = len(view)
    #   0       stride                done      ends[0]   ends[1]           size
    #   |event  |event  |    ...      |event    |event    |part of an event |
    #   '---- known, see `begins` ----'---- this round ---'-- not complete -'
    #
    # `begins` has where each known event begins, and `done`. While all of them have one size, `stride` is
    # that size and `begins` is empty. Afterwards `stride` is 0.
    stride, done = _equal_events(view, size) if equal is None else equal
    begins: array[int] = array("i" if size < _INT32_BYTES else "q", () if stride else (0,))
    unpack = _unpack_header
    needed = _HEADER_BYTES
    while True:
        ends: list[int] = []
        add = ends.append
        end = done
        try:
            # Anything but an event's header yields a position far beyond the buffer, which ends this too.
            for _ in repeat(None, _BLOCK):
                (length,) = unpack(view, end)
                end += length + _HEADER_BYTES
                add(end)
        except (StructError, OverflowError):
            pass
        over = end > size
        if over:
            ends.pop()
        if ends:
            if stride:
                begins.extend(range(0, done + 1, stride))
                stride = 0
            done = ends[-1]
            if len(ends) == _BLOCK and begins.itemsize == 4:
                # This takes half the time of fromlist.
                begins.frombytes(_pack_block(*ends))
            else:
                begins.fromlist(ends)
        if over:
            (length,) = unpack(view, done)
            if length >> 31 == 0:
                needed = _HEADER_BYTES + length
            elif done == 0:
                kind, length = EVENT_HEADER.unpack_from(view, done)
                raise DecodeError(
                    f"segment {segment or '?'}: no event begins at offset {base_offset + done} "
                    f"(type {kind}, length {length})",
                    **names_of(segment),
                )
            # Else the events before it are good: a caller that continues from there gets the error.
            break
        if len(ends) < _BLOCK:
            break
        last_size = done - ends[-2]
        if ends[-1 - _RUN] == done - _RUN * last_size:
            # Perhaps a long run of one length.
            count = _equal_headers(view, done, last_size, (size - done) // last_size)
            if count:
                begins.extend(range(done + last_size, done + last_size * count + 1, last_size))
                done += count * last_size
    return EventBatch(segment, view[:done], base_offset, stride or begins), done, needed


class EventAssembler:
    """Finds the events in consecutive chunks, as a reader receives them. An event may span several chunks.

    :param offset: segment offset of the first chunk.
    :param segment: full name of the segment.
    :param lazy: return batches whose events are found when they are needed. They must be valid until the next
        call.
    """

    __slots__ = ("_lazy", "_needed", "_offset", "_open", "_rest", "_rest_offset", "_segment")

    def __init__(self, offset: int, segment: str, *, lazy: bool = False) -> None:
        self._segment = segment
        self._lazy = lazy
        # A batch whose end is not known yet, and the bytes it is from.
        self._open: tuple[EventBatch, memoryview] | None = None
        self._offset = offset
        self._rest = bytearray()
        self._rest_offset = offset
        self._needed = 0

    def take(self, chunk: memoryview, room: memoryview | None = None) -> list[EventBatch]:
        """Return the events that the next chunk completes, in at most three batches: views of it, or copies.

        :param chunk: the bytes that follow the previous chunk.
        :param room: a buffer that ends with the chunk, and whose bytes before the chunk may be overwritten.
            The beginning of an event from the previous chunk is copied there, so that all events make one
            batch.
        :raises DecodeError: the bytes where an event must begin are not its header.
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
            # Complete the event that began in an earlier chunk with just the bytes it needs, so that the rest
            # of this chunk is parsed in place.
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
            equal = _equal_events(chunk, len(chunk)) if self._lazy else None
            if equal == (0, 0) and _begins_whole(chunk):
                batch = EventBatch.unsplit(self._segment, chunk, base)
                self._open = batch, chunk
                ready.append(batch)
                return ready
            try:
                batch, consumed, self._needed = parse_events(chunk, base, segment=self._segment, equal=equal)
            except DecodeError:
                # If good events precede it, the next call raises.
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
        """Raise the error that parsing stopped at, if there was one.

        :raises DecodeError: parsing stopped at bytes that are not the beginning of an event.
        """
        if self._open is not None:
            (batch, chunk), self._open = self._open, None
            self._rest = bytearray(chunk[len(batch.buffer) :])
            self._rest_offset = batch.next_offset
            self._needed = _HEADER_BYTES
            if len(self._rest) >= _HEADER_BYTES:
                (length,) = _unpack_header(self._rest, 0)
                self._needed += 0 if length >> 31 else length
        if len(self._rest) >= self._needed > 0:
            parse_events(bytes(self._rest), self._rest_offset, segment=self._segment)

    def end(self) -> None:
        """Report that there are no more chunks.

        :raises TruncatedInputError: the last chunk ended in the middle of an event.
        :raises DecodeError: parsing stopped at bytes that are not the beginning of an event.
        """
        self.check()
        if self._rest:
            raise TruncatedInputError(
                f"{self._segment}: the range ends at {self._offset}, in "
                f"the middle of the event that starts at {self._rest_offset}",
                segment=self._segment,
            )


def _begins_whole(view: memoryview) -> bool:
    """Whether a buffer begins with a whole event."""
    return len(view) >= _HEADER_BYTES and _HEADER_BYTES + int(_unpack_header(view, 0)[0]) <= len(view)


def _equal_events(view: memoryview, size: int) -> tuple[int, int]:
    """Size of each of the equally long events at the beginning, and of all of them; (0, 0) if few."""
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

    :param view: the bytes.
    :param at: position of the boundary to start from.
    :param limit: position that no event may exceed. It may be beyond the view, and so may the result: only
        the header of the last event has to be in the view.
    :param base_offset: segment offset of the first byte of the view.
    :param segment: name for error messages.
    :returns: the last boundary reached, and where the event that begins there ends (-1 if the view does not
        contain the whole header of that event).
    :raises DecodeError: the bytes at a boundary are not the header of an event.
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
                **names_of(segment),
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
    """Return how many of the next ``count`` headers, ``stride`` apart, equal the one before ``at``.

    Eight strided slices compare whole headers in C: a slice of eight-byte items steps by a multiple of eight
    bytes, whatever the stride. After a mismatch only the first eighth is tried again, so that a short run
    costs little.
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
