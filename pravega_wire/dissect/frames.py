"""Finds the frames in one direction of a connection, also where bytes or its beginning are missing.

Not public.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

from pravega_wire.errors import DecodeError
from pravega_wire.protocol import specs
from pravega_wire.protocol.codec import HEADER, MAX_DECODED_BODY
from pravega_wire.protocol.commands import (
    COMMANDS,
    AppendBlock,
    Event,
    Hello,
    Padding,
    PartialEvent,
)

__all__ = ["FrameFinder", "LostBytes", "RawFrame"]

# These occur inside of other frames only; what looks like their headers is found in every payload.
_INNER: Final = frozenset({Event.CODE, Padding.CODE, PartialEvent.CODE})


def _headers() -> re.Pattern[bytes]:
    """What the first five bytes of a frame look like: a code, and the highest byte of a length, always 0."""
    codes = [code.to_bytes(4, "big", signed=True) for code in sorted(COMMANDS.keys() - _INNER)]
    kinds = (
        re.escape(high) + b"[" + b"".join(re.escape(each[3:]) for each in codes if each[:3] == high) + b"]"
        for high in sorted({each[:3] for each in codes})
    )
    # Nothing is consumed: places may overlap.
    return re.compile(b"(?=(?:%s)\0)" % b"|".join(kinds), re.DOTALL)


_HEADERS: Final = _headers()
_MAX_SEARCHED: Final = 2 * (MAX_DECODED_BODY + HEADER.size)
# Places that may wait for the ends of their frames; the oldest are forgotten first.
_MAX_WAITING: Final = 4096
# How many bytes a search may decode: so many for each byte that is fed, and at most so many at once. Frames
# that follow each other need one for each byte.
_DECODED_PER_BYTE: Final = 64
_MAX_DECODED: Final = 4 * MAX_DECODED_BODY
_HELLO: Final = HEADER.pack(Hello.CODE, 8)
_TLS: Final = re.compile(rb"[\x14-\x17]\x03[\x00-\x04]")


@dataclass(frozen=True, slots=True)
class RawFrame:
    """A whole frame.

    :ivar time: when its last byte was captured, in nanoseconds since 1970.
    :ivar code: its command code.
    :ivar length: length of the body that the header announces.
    :ivar body: the body; shorter than ``length`` if bytes of it are missing in the capture.
    """

    time: int
    code: int
    length: int
    body: bytes


@dataclass(frozen=True, slots=True)
class LostBytes:
    """A part of the stream in which no frames were found.

    :ivar time: when its last byte was captured, in nanoseconds since 1970.
    :ivar count: number of bytes.
    :ivar reason: why.
    :ivar foreign: whether the whole stream seems to be another protocol.
    """

    time: int
    count: int
    reason: str
    foreign: bool = False


class _Waiting:
    """Places at which a frame may begin that is not complete yet, in the order of the frames' ends.

    Positions are counted from where the search began.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        # Places before this one were forgotten.
        self.oldest = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, at: int, end: int) -> None:
        heappush(self._heap, (end, at))
        if len(self._heap) > _MAX_WAITING:
            # Several at once, so that it is rarely done.
            places = sorted(at for _, at in self._heap)
            self.forget_before(places[len(places) // 4])

    def forget_before(self, position: int) -> None:
        self.oldest = position
        self._heap = [each for each in self._heap if each[1] >= position]
        heapify(self._heap)

    def ended(self, position: int) -> list[tuple[int, int]]:
        """Remove the places whose frames end up to here, and return them with their ends, in their order."""
        found = []
        while self._heap and self._heap[0][0] <= position:
            end, at = heappop(self._heap)
            found.append((at, end))
        return sorted(found)


class FrameFinder:
    """Divides one direction of a connection into frames.

    After an impossible header, or where bytes are missing, it looks for the next place at which a valid frame
    begins. It reports how many bytes it skipped.

    :param from_start: whether the first byte is the first that the sender has sent on the connection.
    :param expected: whether the stream is known to be the segment store's protocol.
    """

    def __init__(self, *, from_start: bool, expected: bool = False) -> None:
        self._buffer = bytearray()
        self._time = 0
        self._expected = expected
        self._fresh = from_start
        self._searching = not from_start
        self._reason = "" if from_start else "the capture begins after the connection was made"
        self._skipped = 0
        self._foreign = False
        self._started = False
        self._waiting = _Waiting()
        # Bytes that were dropped since the search began, and up to where the buffer was searched.
        self._base = 0
        self._searched = 0
        self._to_decode = 0
        # A body of which bytes are missing: its header, what there is of it, and how much is still to come.
        self._damaged: tuple[int, int, bytearray, int] | None = None

    def feed(self, data: bytes, time: int) -> list[RawFrame | LostBytes]:
        """Return what is complete with these bytes."""
        self._time = time
        if not data:
            return []
        if self._foreign:
            return []
        self._to_decode = min(self._to_decode + len(data) * _DECODED_PER_BYTE, _MAX_DECODED)
        found: list[RawFrame | LostBytes] = []
        if self._damaged is not None:
            data = self._more_of_damaged(data, found)
        self._buffer += data
        if self._fresh and len(self._buffer) >= 4:
            self._fresh = False
            if not self._expected and not self._buffer.startswith(_HELLO[: min(len(self._buffer), 8)]):
                return self._give_up()
        self._find(found)
        return found

    def missing(self, count: int, time: int) -> list[RawFrame | LostBytes]:
        """Bytes are missing here. If they belong to the body of one frame, the place of the next is known."""
        self._time = time
        found: list[RawFrame | LostBytes] = []
        if self._foreign:
            return []
        self._fresh = False
        if self._damaged is not None:
            code, length, body, rest = self._damaged
            if count < rest:
                self._damaged = (code, length, body, rest - count)
                return []
            self._damaged = None
            found.append(RawFrame(time, code, length, bytes(body)))
            if count == rest:
                return found
            self._lose(f"{count} bytes are missing in the capture", keep=False)
            return found
        if not self._searching and len(self._buffer) >= HEADER.size:
            code, length = HEADER.unpack_from(self._buffer)
            rest = HEADER.size + length - len(self._buffer)
            if count <= rest:
                body = bytearray(self._buffer[HEADER.size :])
                self._buffer.clear()
                if count == rest:
                    found.append(RawFrame(time, code, length, bytes(body)))
                else:
                    self._damaged = (code, length, body, rest - count)
                return found
        self._lose(f"{count} bytes are missing in the capture", keep=False)
        return found

    def end(self) -> list[RawFrame | LostBytes]:
        """The connection or the capture has ended: report what is left."""
        found: list[RawFrame | LostBytes] = []
        if self._foreign:
            return []
        if self._damaged is not None:
            code, length, body, _ = self._damaged
            self._damaged = None
            found.append(RawFrame(self._time, code, length, bytes(body)))
        if self._searching:
            self._search(found, last=True)
        if self._searching:
            if self._buffer or self._skipped:
                if not self._started and not self._expected:
                    found += self._give_up()
                else:
                    found.append(self._report(len(self._buffer)))
            self._buffer.clear()
        elif self._buffer:
            found.append(LostBytes(self._time, len(self._buffer), "the stream ends in the middle of a frame"))
            self._buffer.clear()
        return found

    # --- in step --------------------------------------------------------------------------------

    def _find(self, found: list[RawFrame | LostBytes]) -> None:
        while True:
            if self._searching and not self._search(found, last=False):
                return
            if not self._next_frames(found):
                return

    def _next_frames(self, found: list[RawFrame | LostBytes]) -> bool:
        """Take frames as long as they follow each other; return whether the place of the next is lost."""
        at = 0
        buffer = self._buffer
        try:
            while len(buffer) - at >= HEADER.size:
                code, length = HEADER.unpack_from(buffer, at)
                if code not in COMMANDS or not 0 <= length <= MAX_DECODED_BODY:
                    what = (
                        f"command code {code} does not exist"
                        if code not in COMMANDS
                        else f"a frame claims {length} bytes"
                    )
                    if not self._started and not self._expected:
                        found += self._give_up()
                        return False
                    self._lose(f"there is no frame where one has to begin: {what}", keep=True)
                    return True
                end = at + HEADER.size + length
                if len(buffer) < end:
                    return False
                self._started = True
                found.append(RawFrame(self._time, code, length, bytes(buffer[at + HEADER.size : end])))
                at = end
            return False
        finally:
            del buffer[:at]

    def _more_of_damaged(self, data: bytes, found: list[RawFrame | LostBytes]) -> bytes:
        assert self._damaged is not None
        code, length, body, rest = self._damaged
        # What comes after missing bytes is not where it belongs, so it is counted, not kept.
        if len(data) < rest:
            self._damaged = (code, length, body, rest - len(data))
            return b""
        self._damaged = None
        found.append(RawFrame(self._time, code, length, bytes(body)))
        return data[rest:]

    # --- out of step ----------------------------------------------------------------------------

    def _lose(self, reason: str, *, keep: bool) -> None:
        """Begin to search; what comes before missing bytes (``keep=False``) cannot continue after them."""
        if not self._searching:
            self._skipped = 0
        self._searching = True
        self._reason = reason
        self._begin()
        if not keep:
            self._skipped += len(self._buffer)
            self._buffer.clear()

    def _begin(self) -> None:
        self._waiting = _Waiting()
        self._base = 0
        self._searched = 0

    def _search(self, found: list[RawFrame | LostBytes], *, last: bool) -> bool:
        """Look for a frame that is valid and is followed by another, or by nothing."""
        if len(self._buffer) > _MAX_SEARCHED:
            self._drop(len(self._buffer) - _MAX_SEARCHED // 2)
        place = self._place(last=last)
        if place is None:
            if not last:
                # Nothing before the last bytes, or before what still waits, can be the beginning of a frame.
                self._drop(self._waiting.oldest - self._base if self._waiting else self._searched)
            return False
        lost = self._report(place)
        if lost.count:
            found.append(lost)
        del self._buffer[:place]
        self._searching = False
        self._skipped = 0
        self._begin()
        if last:
            self._next_frames(found)
        return True

    def _place(self, *, last: bool) -> int | None:
        """Return the first place at which a frame is known to begin, or None."""
        for at, end in self._waiting.ended(self._base + len(self._buffer)):
            if self._begins(at - self._base, end - self._base, last=last):
                return at - self._base
        buffer = self._buffer
        # Eight bytes before the end are looked at again: a header may be incomplete.
        for match in _HEADERS.finditer(buffer, self._searched):
            at = match.start()
            if at + HEADER.size > len(buffer):
                break
            length = HEADER.unpack_from(buffer, at)[1]
            if length <= MAX_DECODED_BODY and self._begins(at, at + HEADER.size + length, last=last):
                return at
        self._searched = max(self._searched, len(buffer) - HEADER.size + 1)
        return None

    def _begins(self, at: int, end: int, *, last: bool) -> bool:
        """Whether a frame is known to begin here; if the bytes to tell are not here yet, the place waits."""
        verdict = self._judge(at, end, last=last) if end <= len(self._buffer) else None
        if verdict is None:
            self._waiting.add(self._base + at, self._base + end)
        return bool(verdict)

    def _judge(self, at: int, end: int, *, last: bool) -> bool | None:
        """Whether a whole frame lies here; None if more of what follows is needed to tell."""
        buffer = self._buffer
        code = HEADER.unpack_from(buffer, at)[0]
        rest = len(buffer) - end
        if rest >= HEADER.size:
            if _HEADERS.match(buffer, end) is None:
                return False
        elif rest and not last:
            return None
        elif code == AppendBlock.CODE:
            # Any bytes are a valid body of it, so something has to follow.
            return None if not last else False
        # The place was chosen because it looks like a header: the body must be used up to its end as well.
        length = end - at - HEADER.size
        if length > self._to_decode:
            return False  # not worth the time: places in a payload may claim the same bytes many times
        self._to_decode -= length
        with memoryview(buffer) as view:
            body = bytes(view[at + HEADER.size : end])
        try:
            fields = list(specs.fields_of(COMMANDS[code], body))
        except DecodeError:
            return False
        return (fields[-1].end if fields else 0) == len(body)

    def _drop(self, count: int) -> None:
        if count <= 0:
            return
        del self._buffer[:count]
        self._skipped += count
        self._base += count
        self._searched = max(0, self._searched - count)
        self._waiting.forget_before(self._base)

    def _report(self, more: int) -> LostBytes:
        return LostBytes(self._time, self._skipped + more, self._reason)

    def _give_up(self) -> list[RawFrame | LostBytes]:
        self._foreign = True
        what = (
            "it is encrypted (TLS)" if _TLS.match(self._buffer) else "it is not the segment store's protocol"
        )
        count = self._skipped + len(self._buffer)
        self._buffer.clear()
        return [LostBytes(self._time, count, what, foreign=True)]
