"""Reads captures (pcap and pcapng) down to the bytes of TCP connections, and writes them.

Formats: pcap and pcapng as in the Internet drafts ``draft-ietf-opsawg-pcap`` and
``draft-ietf-opsawg-pcapng``, link types as in the list of tcpdump.org.

Not public.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import BinaryIO, Final

from pravega_wire.errors import CaptureError

__all__ = [
    "ACK",
    "FIN",
    "RST",
    "SYN",
    "CaptureWriter",
    "Packet",
    "Remark",
    "Segment",
    "read_packets",
    "segment_of",
]

FIN: Final = 0x01
SYN: Final = 0x02
RST: Final = 0x04
ACK: Final = 0x10
_PSH: Final = 0x08

_MAX_PACKET: Final = 16 * 1024 * 1024
_NANO: Final = 10**9

_NULL, _ETHERNET, _LOOP, _SLL, _SLL2 = 0, 1, 108, 113, 276
_RAW: Final = frozenset({12, 14, 101, 228, 229})
_IPV4, _IPV6, _VLANS = 0x0800, 0x86DD, (0x8100, 0x88A8)
_TCP: Final = 6
# IPv6 headers that may come before TCP: hop by hop, routing, destination options.
_SKIPPED_HEADERS: Final = frozenset({0, 43, 60})
_FRAGMENT: Final = 44

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Packet:
    """One captured packet.

    :ivar time: in nanoseconds since 1970.
    :ivar link_type: what its first header is.
    :ivar data: its bytes, as far as they were captured.
    """

    time: int
    link_type: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Remark:
    """Something about the capture itself that a reader of the result has to know."""

    text: str


@dataclass(frozen=True, slots=True)
class Segment:
    """One TCP segment.

    :ivar length: length of its payload when it was sent; ``data`` is shorter if the packet was cut off.
    """

    time: int
    source: Address
    target: Address
    sequence: int
    flags: int
    data: bytes
    length: int


# --- files ---------------------------------------------------------------------------------------


def read_packets(file: BinaryIO) -> Iterator[Packet | Remark]:
    """Return the packets of a pcap or pcapng file, and remarks on what cannot be read.

    :raises CaptureError: the file is neither.
    """
    magic = _exactly(file, 4)
    for order in "<>":
        for number, unit in ((0xA1B2C3D4, 1000), (0xA1B23C4D, 1)):
            if magic == struct.pack(order + "I", number):
                yield from _pcap(file, order, unit)
                return
    if magic == b"\x0a\x0d\x0d\x0a":
        yield from _pcapng(file)
        return
    raise CaptureError(
        f"this is not a capture file: it begins with {magic.hex() or 'nothing'}, and neither pcap nor pcapng "
        "does; capture with tcpdump -w, dumpcap or --write"
    )


def _exactly(file: BinaryIO, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        more = file.read(count - len(data))
        if not more:
            break
        data += more
    return bytes(data)


def _pcap(file: BinaryIO, order: str, unit: int) -> Iterator[Packet | Remark]:
    head = _exactly(file, 20)
    if len(head) < 20:
        raise CaptureError("the capture file ends within its header; it holds no packets")
    link_type = struct.unpack(order + "I", head[16:])[0] & 0xFFFF
    record = struct.Struct(order + "IIII")
    while head := _exactly(file, record.size):
        if len(head) < record.size:
            yield Remark("the capture file ends within the header of a packet")
            return
        seconds, fraction, captured, _ = record.unpack(head)
        if captured > _MAX_PACKET:
            yield Remark(f"a packet of the capture file claims {captured} bytes: the rest cannot be read")
            return
        data = _exactly(file, captured)
        if len(data) < captured:
            yield Remark("the capture file ends within a packet")
        yield Packet(seconds * _NANO + fraction * unit, link_type, data)


def _pcapng(file: BinaryIO) -> Iterator[Packet | Remark]:
    order = "<"
    # For each interface of the section: link type, and units per second.
    interfaces: list[tuple[int, int]] = []
    kind_bytes = b"\x0a\x0d\x0d\x0a"
    while kind_bytes:
        head = _exactly(file, 4)
        if kind_bytes == b"\x0a\x0d\x0d\x0a":
            mark = _exactly(file, 4)
            order = ">" if mark == b"\x1a\x2b\x3c\x4d" else "<"
            interfaces = []
            done = 12
        else:
            done = 8
        if len(kind_bytes) < 4 or len(head) < 4:
            yield Remark("the capture file ends within the header of a block")
            return
        kind = struct.unpack(order + "I", kind_bytes)[0]
        length = struct.unpack(order + "I", head)[0]
        if length % 4 or not done + 4 <= length <= _MAX_PACKET:
            yield Remark(f"a block of the capture file claims {length} bytes: the rest cannot be read")
            return
        body = _exactly(file, length - done)
        if len(body) < length - done:
            yield Remark("the capture file ends within a block")
            return
        body = body[:-4]
        try:
            if kind == 1:
                interfaces.append((struct.unpack_from(order + "H", body)[0], _resolution(body[8:], order)))
            elif kind == 6:
                interface, high, low, captured, _ = struct.unpack_from(order + "IIIII", body)
                link_type, per_second = interfaces[interface]
                ticks = (high << 32) | low
                yield Packet(ticks * _NANO // per_second, link_type, body[20 : 20 + captured])
            elif kind == 3:
                yield Packet(0, interfaces[0][0], body[4 : 4 + struct.unpack_from(order + "I", body)[0]])
        except (struct.error, IndexError):
            yield Remark("a block of the capture file is malformed and was left out")
        kind_bytes = _exactly(file, 4)


def _resolution(options: bytes, order: str) -> int:
    """Units per second of an interface's times; microseconds if it does not say."""
    at = 0
    while at + 4 <= len(options):
        code, length = struct.unpack_from(order + "HH", options, at)
        if code == 0:
            break
        if code == 9 and length == 1 and at + 4 < len(options):
            value = options[at + 4]
            base, power = (2 if value & 0x80 else 10), value & 0x7F
            return int(base**power)
        at += 4 + (length + 3) // 4 * 4
    return 10**6


# --- packets -------------------------------------------------------------------------------------


def segment_of(packet: Packet) -> Segment | Remark | None:
    """Return the TCP segment in a packet, None if there is none, or a remark if it cannot be read."""
    try:
        return _from_link(packet)
    except (struct.error, IndexError):
        # A packet that was cut off within its headers says nothing that could be shown.
        return None


def _from_link(packet: Packet) -> Segment | Remark | None:
    data, kind = packet.data, packet.link_type
    if kind == _ETHERNET:
        at = 12
        (protocol,) = struct.unpack_from(">H", data, at)
        while protocol in _VLANS:
            at += 4
            (protocol,) = struct.unpack_from(">H", data, at)
        return _from_network(packet, protocol, at + 2)
    if kind == _SLL:
        return _from_network(packet, struct.unpack_from(">H", data, 14)[0], 16)
    if kind == _SLL2:
        return _from_network(packet, struct.unpack_from(">H", data)[0], 20)
    if kind in _RAW:
        at = 0
    elif kind in (_NULL, _LOOP):
        at = 4
    else:
        return Remark(f"packets of link type {kind} cannot be read; capture with tcpdump or dumpcap on Linux")
    return _from_network(packet, _IPV4 if data[at] >> 4 == 4 else _IPV6, at)


def _from_network(packet: Packet, protocol: int, at: int) -> Segment | Remark | None:
    data = packet.data
    if protocol == _IPV4:
        if data[at] >> 4 != 4:
            return None
        total, fragment = struct.unpack_from(">HxxH", data, at + 2)
        if data[at + 9] != _TCP:
            return None
        if fragment & 0x3FFF:
            return Remark("IP fragments are left out: they are not put together")
        source, target = data[at + 12 : at + 16], data[at + 16 : at + 20]
        # A length of 0 is what a network card divides later.
        end = at + total if total else len(data)
        at += (data[at] & 0x0F) * 4
    elif protocol == _IPV6:
        if data[at] >> 4 != 6:
            return None
        (total,) = struct.unpack_from(">H", data, at + 4)
        following = data[at + 6]
        source, target = data[at + 8 : at + 24], data[at + 24 : at + 40]
        at += 40
        end = at + total if total else len(data)
        while following in _SKIPPED_HEADERS:
            following, at = data[at], at + 8 + data[at + 1] * 8
        if following == _FRAGMENT:
            return Remark("IP fragments are left out: they are not put together")
        if following != _TCP:
            return None
    else:
        return None
    source_port, target_port, sequence = struct.unpack_from(">HHI", data, at)
    header = (data[at + 12] >> 4) * 4
    flags = data[at + 13]
    length = end - at - header
    if header < 20 or length < 0:
        return None
    return Segment(
        packet.time,
        (str(ip_address(source)), source_port),
        (str(ip_address(target)), target_port),
        sequence,
        flags,
        data[at + header : end],
        length,
    )


# --- writing -------------------------------------------------------------------------------------


class CaptureWriter:
    """Writes the bytes of connections as a pcap file of IPv4 packets, which Wireshark reads as well.

    The packets never existed: their headers are made from the addresses alone.

    :param file: where to write to.
    """

    _PIECE: Final = 60_000

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._next: dict[tuple[Address, Address], int] = {}
        # Version 2.4, times in nanoseconds, no limit on a packet that matters, link type "raw IP".
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 101))

    def connected(self, client: Address, server: Address, time: int) -> None:
        """A connection was made."""
        # By the time: if ports are used again, other numbers tell the new connection from the old one.
        first = time // 4000 & 0xFFFFFFFF
        following = (first + 1) & 0xFFFFFFFF
        self._next[client, server] = self._next[server, client] = following
        self._packet(client, server, time, first, 0, SYN, b"")
        self._packet(server, client, time, first, following, SYN | ACK, b"")

    def sent(self, source: Address, target: Address, time: int, data: bytes) -> None:
        """One side has sent bytes."""
        for start in range(0, len(data), self._PIECE):
            piece = data[start : start + self._PIECE]
            at = self._next[source, target]
            self._packet(source, target, time, at, self._next[target, source], ACK | _PSH, piece)
            self._next[source, target] = (at + len(piece)) & 0xFFFFFFFF

    def closed(self, source: Address, target: Address, time: int) -> None:
        """One side will send nothing more."""
        at = self._next[source, target]
        self._packet(source, target, time, at, self._next[target, source], ACK | FIN, b"")
        self._file.flush()

    def _packet(
        self,
        source: Address,
        target: Address,
        time: int,
        sequence: int,
        acknowledged: int,
        flags: int,
        data: bytes,
    ) -> None:
        tcp = struct.pack(
            ">HHIIBBHHH", source[1], target[1], sequence, acknowledged, 0x50, flags, 65535, 0, 0
        )
        ip = struct.pack(
            ">BBHHHBBH4s4s", 0x45, 0, 40 + len(data), 0, 0x4000, 64, _TCP, 0, _ipv4(source), _ipv4(target)
        )
        packet = ip + tcp + data
        self._file.write(struct.pack("<IIII", time // _NANO, time % _NANO, len(packet), len(packet)) + packet)


def _ipv4(address: Address) -> bytes:
    try:
        found = ip_address(address[0])
    except ValueError:
        return bytes(4)
    # An IPv6 address does not fit; its last bytes still tell connections apart.
    return found.packed[-4:]
