"""From packets to connections.

Not public.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import BinaryIO, Final

from pravega_wire.checks import check_several
from pravega_wire.dissect.capture import ACK, FIN, RST, SYN, Packet, Remark, Segment, read_packets, segment_of
from pravega_wire.dissect.exchange import Address, Connection, Frame, Note
from pravega_wire.dissect.reassembly import Missing, Piece, Reassembly, distance
from pravega_wire.errors import CaptureError

__all__ = ["Dissector", "dissect"]

# Closed connections whose late segments are recognised; the oldest is forgotten first.
_MAX_CLOSED: Final = 4096


class _Captured:
    """A connection that is made of packets."""

    def __init__(self, connection: Connection, first: dict[Address, int | None]) -> None:
        self.connection = connection
        self.sides = {address: Reassembly(each) for address, each in first.items()}
        # Sequence number of the SYN of each side; a different one is another connection with these ports.
        self.syn: dict[Address, int] = {}
        # Sequence number of the FIN of each side: the end of what it sends.
        self.ends: dict[Address, int] = {}

    def fin(self, source: Address, end: int) -> None:
        """A side ends here; one that lies before bytes that have come is of an earlier connection."""
        if self.sides[source].to_come(end) >= 0:
            self.ends[source] = end

    @property
    def complete(self) -> bool:
        """Whether both sides have ended, and everything before has come."""
        return len(self.ends) == 2 and all(
            self.sides[address].to_come(end) <= 0 for address, end in self.ends.items()
        )


@dataclass(frozen=True, slots=True)
class _Closed:
    """What is kept of a connection that was closed: where its sides began and ended."""

    syn: dict[Address, int]
    ends: dict[Address, int]

    def has(self, segment: Segment) -> bool:
        """Whether this is a late or repeated segment of the connection."""
        if segment.flags & SYN:
            return self.syn.get(segment.source) == segment.sequence
        return distance(segment.sequence + segment.length, self.ends[segment.source]) >= 0


class Dissector:
    """Dissects connections whose packets or bytes are given to it one after the other. It does no I/O.

    :param ports: ports of segment stores; other connections are left out, and on these ones a valid frame is
        searched for whatever they begin with. Default: every connection that begins with the segment store's
        protocol, or has a valid frame if its beginning was not captured.
    """

    def __init__(self, ports: Collection[int] = ()) -> None:
        self._ports = frozenset(ports)
        self._numbers = count(1)
        self._connections = count(1)
        self._captured: dict[frozenset[Address], _Captured] = {}
        self._closed: OrderedDict[frozenset[Address], _Closed] = OrderedDict()
        self._time = 0
        self._remarks: set[str] = set()

    def connect(self, client: Address, server: Address) -> Connection:
        """Return a new connection whose bytes are known from the first one on, without packets.

        :param client: address of the client.
        :param server: address of the segment store.
        """
        return Connection(
            next(self._connections), client, server, self._next_number, from_start=True, expected=True
        )

    def packet(self, packet: Packet) -> Iterator[Frame | Note]:
        """Return what is complete with this packet."""
        self._time = packet.time
        segment = segment_of(packet)
        if isinstance(segment, Remark):
            yield from self.remark(segment)
        elif segment is not None:
            yield from self._segment(segment)

    def remark(self, remark: Remark) -> Iterator[Note]:
        """Report something about the capture, once."""
        if remark.text not in self._remarks:
            self._remarks.add(remark.text)
            yield Note("capture", self._time, 0, remark.text)

    def end(self) -> Iterator[Frame | Note]:
        """The capture has ended: report everything that was left open."""
        for each in self._captured.values():
            yield from self._flush(each)
            yield from each.connection.end(self._time, "the capture ended")
        self._captured.clear()

    def _next_number(self) -> int:
        return next(self._numbers)

    # --- packets --------------------------------------------------------------------------------

    def _segment(self, segment: Segment) -> Iterator[Frame | Note]:
        source, target = segment.source, segment.target
        if self._ports and source[1] not in self._ports and target[1] not in self._ports:
            return
        key = frozenset((source, target))
        if len(key) < 2:
            return
        known = self._captured.get(key)
        if known is None and self._is_over(key, segment):
            return
        if segment.flags & SYN:
            if known is not None and known.syn.get(source, segment.sequence) != segment.sequence:
                yield from self._close(key, "another connection was made with the same ports")
                known = None
            if known is None:
                known = self._captured[key] = self._new(segment)
            if source not in known.syn:
                known.syn[source] = segment.sequence
                known.sides[source] = Reassembly((segment.sequence + 1) & 0xFFFFFFFF)
            # Data may come with it (TCP Fast Open).
            sequence = (segment.sequence + 1) & 0xFFFFFFFF
        else:
            if known is None:
                if not segment.length:
                    return  # the end of a connection that was closed, or one without data
                known = self._captured[key] = self._new(segment)
            sequence = segment.sequence
        for each in known.sides[source].add(sequence, segment.data, segment.length, segment.time):
            yield from self._put(known, source, each)
        if segment.flags & RST:
            yield from self._close(key, "the connection was reset")
            return
        if segment.flags & FIN:
            known.fin(source, (sequence + segment.length) & 0xFFFFFFFF)
        # What was sent before a FIN may be captured after it.
        if known.complete:
            yield from self._close(key, "the connection was closed")
            self._remember(key, _Closed(known.syn, known.ends))

    def _is_over(self, key: frozenset[Address], segment: Segment) -> bool:
        """Whether this is of a connection that was closed; another one with its ports begins otherwise."""
        closed = self._closed.get(key)
        if closed is None:
            return False
        if closed.has(segment):
            return True
        if segment.flags & SYN or segment.length:
            del self._closed[key]
        return False

    def _remember(self, key: frozenset[Address], closed: _Closed) -> None:
        self._closed[key] = closed
        if len(self._closed) > _MAX_CLOSED:
            self._closed.popitem(last=False)

    def _new(self, segment: Segment) -> _Captured:
        source, target = segment.source, segment.target
        from_start = bool(segment.flags & SYN)
        # The one that answers has an ACK as well; without a SYN the lower port is probably the server's.
        source_is_client = (
            not segment.flags & ACK if from_start else (source[1], source) > (target[1], target)
        )
        if self._ports and not from_start:
            source_is_client = target[1] in self._ports
        client, server = (source, target) if source_is_client else (target, source)
        connection = Connection(
            next(self._connections),
            client,
            server,
            self._next_number,
            from_start=from_start,
            expected=bool(self._ports),
        )
        return _Captured(connection, {client: None, server: None})

    def _put(self, known: _Captured, source: Address, each: Piece | Missing) -> Iterator[Frame | Note]:
        if isinstance(each, Missing):
            yield from known.connection.missing(source, each.count, each.time)
        else:
            yield from known.connection.feed(source, each.data, each.time)

    def _flush(self, known: _Captured) -> Iterator[Frame | Note]:
        for address, side in known.sides.items():
            for each in side.flush():
                yield from self._put(known, address, each)

    def _close(self, key: frozenset[Address], how: str) -> Iterator[Frame | Note]:
        known = self._captured.pop(key)
        yield from self._flush(known)
        yield from known.connection.end(self._time, how)


def dissect(file: str | Path | BinaryIO, *, ports: Collection[int] = ()) -> Iterator[Frame | Note]:
    """Dissect a capture file.

    Frames come in the order in which their last bytes were captured. Damage is reported, never raised: a
    frame that cannot be decoded has ``error`` and ``raw``, and a :class:`Note` tells what is missing.

    :param file: path of a pcap or pcapng file, or the file opened for reading bytes.
    :param ports: ports of segment stores; other connections are left out. Default: find them by contents.
    :returns: an iterator over frames and notes.
    :raises CaptureError: the file is no capture.
    :raises OSError: the file cannot be read.
    """
    check_several("ports", ports)
    if isinstance(file, str | Path):
        with open(file, "rb") as opened:
            try:
                yield from _dissect(opened, ports)
            except CaptureError as error:
                raise CaptureError(f"{file}: {error}") from None
    else:
        yield from _dissect(file, ports)


def _dissect(file: BinaryIO, ports: Collection[int]) -> Iterator[Frame | Note]:
    dissector = Dissector(ports)
    for each in read_packets(file):
        yield from dissector.remark(each) if isinstance(each, Remark) else dissector.packet(each)
    yield from dissector.end()
