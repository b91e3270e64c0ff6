"""The dissector: captures in many forms, damage, pairing, and Wireshark as a second opinion."""

from __future__ import annotations

import io
import json
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path
from uuid import UUID

import pytest

from pravega_wire.dissect import Dissector, Frame, Note, as_json, as_text, connections, dissect
from pravega_wire.dissect.__main__ import main
from pravega_wire.dissect.capture import ACK, FIN, RST, SYN, CaptureWriter, Packet
from pravega_wire.dissect.frames import FrameFinder, LostBytes, RawFrame
from pravega_wire.errors import CaptureError
from pravega_wire.protocol import codec, specs
from pravega_wire.protocol import commands as c
from tests import tshark
from tests.tshark import EXCHANGE, by_tshark, by_us, golden, vectors_capture

CLIENT, STORE = ("10.0.0.1", 40000), ("10.0.0.2", 12345)
WRITER = UUID(int=7)
HELLO = codec.encode(c.Hello(16, 5))
TOKEN = "eyJhbGciOiJIUzUxMiJ9.eyJzdWIiOiJzIn0.c2lnbmF0dXJl"
NANO = 10**9


def setup(request_id: int = 1 << 32) -> bytes:
    return codec.encode(c.SetupAppend(request_id, WRITER, "s/t/0.#epoch.0", TOKEN))


def append(number: int, data: bytes = b"x" * 20, request_id: int = 1 << 32) -> bytes:
    return codec.encode(c.AppendBlockEnd(WRITER, len(data), data, 1, number, request_id))


def appended(number: int, request_id: int = 1 << 32) -> bytes:
    return codec.encode(c.DataAppended(WRITER, number, number - 1, request_id, 100))


# --- making captures -----------------------------------------------------------------------------


def tcp(source: int, target: int, sequence: int, flags: int, data: bytes) -> bytes:
    return struct.pack(">HHIIBBHHH", source, target, sequence, 0, 0x50, flags, 65535, 0, 0) + data


def ipv4(segment: bytes, source: str = CLIENT[0], target: str = STORE[0]) -> bytes:
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(segment), 0, 0x4000, 64, 6, 0)
    return head + ip_address(source).packed + ip_address(target).packed + segment


def ipv6(segment: bytes) -> bytes:
    # A header of destination options comes before TCP.
    head = struct.pack(">IHBB", 0x60000000, 8 + len(segment), 60, 64)
    options = bytes([6, 0, 1, 4, 0, 0, 0, 0])
    return head + ip_address("::1").packed + ip_address("::2").packed + options + segment


def pcap(link_type: int, packets: list[bytes], order: str = "<", magic: int = 0xA1B2C3D4) -> io.BytesIO:
    out = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 262144, link_type)
    for number, packet in enumerate(packets):
        out += struct.pack(order + "IIII", 5, number, len(packet), len(packet)) + packet
    return io.BytesIO(out)


def pcapng(link_type: int, packets: list[bytes], order: str = "<") -> io.BytesIO:
    def block(kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        return (
            struct.pack(order + "II", kind, 12 + len(body)) + body + struct.pack(order + "I", 12 + len(body))
        )

    out = block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))
    # The interface counts in nanoseconds.
    resolution = struct.pack(order + "HHBxxx", 9, 1, 9) + struct.pack(order + "HH", 0, 0)
    out += block(1, struct.pack(order + "HHI", link_type, 0, 0) + resolution)
    for number, packet in enumerate(packets):
        time = 5 * NANO + number * 1000
        head = struct.pack(order + "IIIII", 0, time >> 32, time & 0xFFFFFFFF, len(packet), len(packet))
        out += block(6, head + packet)
    return io.BytesIO(out)


ISN = 0xFFFFFF00
"""The sequence numbers begin again at 0 within the captures."""


def segments(data: bytes, size: int = 100) -> list[tuple[int, int, bytes]]:
    """What the client sends: sequence numbers, flags and data."""
    found = [(ISN, SYN, b"")]
    for at in range(0, len(data), size):
        found.append(((ISN + 1 + at) & 0xFFFFFFFF, ACK, data[at : at + size]))
    return found


def packets(parts: list[tuple[int, int, bytes]]) -> list[bytes]:
    return [tcp(CLIENT[1], STORE[1], *each) for each in parts]


SENT = HELLO + setup() + b"".join(append(number) for number in range(1, 30))
NAMES = ["Hello", "SetupAppend", *["AppendBlockEnd"] * 29]


def frames(file: io.BytesIO | Path) -> list[Frame]:
    return [each for each in dissect(file) if isinstance(each, Frame)]


def notes(file: io.BytesIO, *, but: tuple[str, ...] = ("unanswered", "unacknowledged")) -> list[Note]:
    return [each for each in dissect(file) if isinstance(each, Note) and each.kind not in but]


# --- forms of captures ---------------------------------------------------------------------------

LINKS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "ethernet": (1, lambda each: bytes(12) + b"\x08\x00" + ipv4(each) + bytes(6)),
    "ethernet-vlan": (1, lambda each: bytes(12) + b"\x81\x00\x00\x05\x08\x00" + ipv4(each)),
    "ethernet-ipv6": (1, lambda each: bytes(12) + b"\x86\xdd" + ipv6(each)),
    "loopback": (0, lambda each: b"\x02\x00\x00\x00" + ipv4(each)),
    "loopback-ipv6": (108, lambda each: b"\x00\x00\x00\x1e" + ipv6(each)),
    "cooked": (113, lambda each: bytes(14) + b"\x08\x00" + ipv4(each)),
    "cooked-2": (276, lambda each: b"\x08\x00" + bytes(18) + ipv4(each)),
    "raw": (101, ipv4),
}


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("form", ["pcap", "pcap-big-endian", "pcap-nano", "pcapng", "pcapng-big-endian"])
def test_every_form_of_capture(link: str, form: str) -> None:
    link_type, wrapped = LINKS[link]
    wrapped_packets = [wrapped(each) for each in packets(segments(SENT))]
    file = {
        "pcap": lambda: pcap(link_type, wrapped_packets),
        "pcap-big-endian": lambda: pcap(link_type, wrapped_packets, ">"),
        "pcap-nano": lambda: pcap(link_type, wrapped_packets, magic=0xA1B23C4D),
        "pcapng": lambda: pcapng(link_type, wrapped_packets),
        "pcapng-big-endian": lambda: pcapng(link_type, wrapped_packets, ">"),
    }[form]()
    found = frames(file)
    assert [each.command for each in found] == NAMES
    assert all(each.error is None and each.sender == "C" for each in found)
    assert found[0].time == 5 * NANO + (1 if form == "pcap-nano" else 1000)
    assert found[0].source[1] == CLIENT[1]


def test_what_is_no_capture() -> None:
    with pytest.raises(CaptureError, match="begins with 6e6f7065"):
        frames(io.BytesIO(b"nope"))
    with pytest.raises(CaptureError, match="within its header"):
        frames(io.BytesIO(bytes.fromhex("d4c3b2a1 0200")))


def test_a_capture_that_ends_early_is_read_up_to_there() -> None:
    whole = pcap(101, [ipv4(each) for each in packets(segments(SENT))]).getvalue()
    cut = io.BytesIO(whole[:-30])
    found = [each.command for each in frames(cut)]
    assert found == NAMES[: len(found)]
    assert len(found) >= len(NAMES) - 2
    cut.seek(0)
    texts = [each.text for each in notes(cut)]
    assert texts[0] == "the capture file ends within a packet"
    assert any("middle of a frame" in each or "missing in the capture" in each for each in texts)


def test_an_unknown_link_type_and_fragments_are_reported_once() -> None:
    many = [ipv4(each) for each in packets(segments(SENT))]
    assert ["link type 147" in each.text for each in notes(pcap(147, many))] == [True]
    fragments = [each[:6] + b"\x20\x00" + each[8:] for each in many]
    assert ["fragments" in each.text for each in notes(pcap(101, fragments))] == [True]


# --- reassembly ----------------------------------------------------------------------------------


def capture_of(parts: list[tuple[int, int, bytes]]) -> io.BytesIO:
    return pcap(101, [ipv4(each) for each in packets(parts)])


def test_segments_in_any_order_and_sent_again() -> None:
    first, *rest = segments(SENT)
    for shuffled in (rest[::-1], rest + rest, rest[3:] + rest[:5], [rest[0], *rest[2:], *rest[:2]]):
        file = capture_of([first, *shuffled])
        assert [each.command for each in frames(file)] == NAMES
        file.seek(0)
        assert notes(file) == []


def test_overlapping_segments() -> None:
    parts = [(ISN, SYN, b"")]
    for at in range(0, len(SENT), 70):
        parts.append(((ISN + 1 + at) & 0xFFFFFFFF, ACK, SENT[at : at + 111]))
    assert [each.command for each in frames(capture_of(parts))] == NAMES


def test_missing_bytes_within_one_frame_lose_only_that_frame() -> None:
    sent = HELLO + setup() + append(1, b"y" * 500) + append(2) + append(3)
    parts = segments(sent)
    del parts[4]  # within the data of the long frame
    found = frames(capture_of(parts))
    assert [each.command for each in found] == ["Hello", "SetupAppend", *["AppendBlockEnd"] * 3]
    damaged = found[2]
    assert damaged.error is not None
    assert "bytes are missing in the capture" in damaged.error
    assert damaged.fields["writer_id"] == WRITER
    assert damaged.raw.startswith(struct.pack(">ii", 4, damaged.length))
    assert [each.fields["last_event_number"] for each in found[3:]] == [2, 3]


def test_after_missing_headers_frames_are_found_again() -> None:
    parts = segments(SENT)
    del parts[4:6]
    file = capture_of(parts)
    found = frames(file)
    numbers = [each.fields["last_event_number"] for each in found[2:] if each.error is None]
    assert numbers == sorted(numbers)
    assert numbers[-1] == 29
    assert len(numbers) >= 29 - 5
    file.seek(0)
    lost = [each for each in notes(file) if each.kind == "lost"]
    assert len(lost) == 1
    assert "from 10.0.0.1:40000 to 10.0.0.2:12345" in lost[0].text
    assert "200 bytes are missing in the capture" in lost[0].text


def test_packets_that_were_cut_off() -> None:
    """As by ``tcpdump -s``: the headers of the frames are there, and most of the data is not."""
    sent = HELLO + b"".join(append(number, b"z" * 1000) for number in range(1, 6))
    parts = segments(HELLO) + [
        ((ISN + 17 + at) & 0xFFFFFFFF, ACK, sent[16 + at : 16 + at + 1060]) for at in range(0, 5 * 1052, 1052)
    ]
    whole = [ipv4(each) for each in packets([(a, b, c_[:1052]) for a, b, c_ in parts])]
    out = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 120, 101)
    for packet in whole:
        out += struct.pack("<IIII", 5, 0, min(120, len(packet)), len(packet)) + packet[:120]
    found = frames(io.BytesIO(out))
    assert [each.command for each in found] == ["Hello", *["AppendBlockEnd"] * 5]
    assert all("of 1044 bytes are missing" in (each.error or "") for each in found[1:])


def test_a_capture_that_begins_later() -> None:
    parts = segments(SENT)[3:]
    file = capture_of(parts)
    found = frames(file)
    assert found[-1].fields["last_event_number"] == 29
    assert len(found) >= 25
    assert {each.sender for each in found} == {"C"}
    file.seek(0)
    assert "begins after the connection was made" in notes(file)[0].text


def test_garbage_between_frames() -> None:
    sent = HELLO + append(1) + b"\xde\xad\xbe\xef" * 9 + append(2) + append(3)
    file = capture_of(segments(sent))
    assert [each.command for each in frames(file)] == ["Hello", *["AppendBlockEnd"] * 3]
    file.seek(0)
    (note,) = notes(file)
    assert note.kind == "lost"
    assert note.text.startswith("36 bytes")
    assert "command code -559038737 does not exist" in note.text


def searched(data: bytes, size: int = 1460) -> tuple[FrameFinder, list[RawFrame | LostBytes]]:
    finder = FrameFinder(from_start=False, expected=True)
    return finder, [each for at in range(0, len(data), size) for each in finder.feed(data[at : at + size], 1)]


def test_places_that_wait_are_not_walked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = []
    judge = FrameFinder._judge

    def counted(self: FrameFinder, at: int, end: int, *, last: bool) -> bool | None:
        judged.append(at)
        return judge(self, at, end, last=last)

    monkeypatch.setattr(FrameFinder, "_judge", counted)
    data = bytes.fromhex("000000050000F000") * 8192 + bytes.fromhex("0000000500F00000") * 8192
    finder, found = searched(data)
    assert len(judged) <= len(data) / 8
    assert len(finder._waiting) <= 4096
    # The places that were forgotten are counted, and their bytes are not kept.
    assert len(finder._buffer) <= 8 * 4096 + 8
    assert finder._skipped + len(finder._buffer) == len(data)
    assert found == []
    (lost,) = finder.end()
    assert isinstance(lost, LostBytes)
    assert lost.count == len(data)


def test_a_search_decodes_a_limited_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []
    fields_of = specs.fields_of

    def counted(command: type[c.Command], body: bytes) -> Iterator[specs.ParsedField]:
        decoded.append(len(body))
        return fields_of(command, body)

    monkeypatch.setattr(specs, "fields_of", counted)
    # Each of these places claims a frame that ends before another one of them.
    data = bytes.fromhex("0000000500008000") * 8192
    finder, found = searched(data)
    assert found == []
    assert 0 < sum(decoded) <= 64 * len(data)
    # What is a frame is found afterwards all the same.
    after = [each for each in finder.feed((append(1) + append(2)) * 2, 2) if isinstance(each, RawFrame)]
    assert len(after) == 4


def test_a_frame_is_found_among_places_that_wait() -> None:
    noise = bytes.fromhex("0000000500F00000") * 100
    _, found = searched(noise + append(1, noise * 10) + append(2) + HELLO, 13)
    assert [type(each).__name__ for each in found] == ["LostBytes"] + ["RawFrame"] * 3
    assert isinstance(found[0], LostBytes)
    assert found[0].count == len(noise)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(300), "not the segment store's protocol"),
        (b"\x16\x03\x01\x02\x00" + bytes(300), "encrypted (TLS)"),
    ],
)
def test_other_protocols_are_left_out(data: bytes, reason: str) -> None:
    file = capture_of(segments(data))
    assert frames(file) == []
    file.seek(0)
    (note,) = notes(file)
    assert note.kind == "foreign"
    assert reason in note.text


def test_ports_choose_connections() -> None:
    file = capture_of(segments(SENT))
    assert len([each for each in dissect(file, ports=[12345]) if isinstance(each, Frame)]) == len(NAMES)
    file.seek(0)
    assert list(dissect(file, ports=[1])) == []


def test_ports_that_are_used_again() -> None:
    again = [((sequence + 12345) & 0xFFFFFFFF, flags, data) for sequence, flags, data in segments(SENT)]
    found = frames(capture_of(segments(SENT) + again))
    assert [each.command for each in found] == NAMES * 2
    assert {each.connection for each in found} == {1, 2}


KEEP_ALIVE = codec.encode(c.KeepAlive())
Part = tuple[str, int, int, bytes]
"""Who sends it, its distance from that side's SYN, flags and data."""


def two_sided(parts: list[Part], first: int = ISN) -> list[bytes]:
    found = []
    for side, at, flags, data in parts:
        source, target = (CLIENT, STORE) if side == "C" else (STORE, CLIENT)
        segment = tcp(source[1], target[1], (first + at) & 0xFFFFFFFF, flags, data)
        found.append(ipv4(segment, source[0], target[0]))
    return found


def shown(captured: list[bytes]) -> tuple[list[str], set[int], list[str]]:
    """Commands, numbers of connections, and how they lost bytes."""
    found = list(dissect(pcap(101, captured)))
    named = [each for each in found if isinstance(each, Frame)]
    lost = [each.text for each in found if isinstance(each, Note) and each.kind == "lost"]
    return [each.command for each in named], {each.connection for each in found}, lost


def closing(hello: bytes = HELLO + HELLO) -> tuple[list[Part], list[Part]]:
    """A connection, and a late segment from before the client's FIN; the numbers wrap within it."""
    size = len(hello)
    opened = [("C", 0, SYN, b""), ("S", 0, SYN | ACK, b""), ("C", 1, ACK, hello), ("S", 1, ACK, HELLO)]
    ends = [("C", 1 + size + 8, ACK | FIN, b""), ("S", 1 + len(HELLO), ACK | FIN, b"")]
    return opened + ends, [("C", 1 + size, ACK, KEEP_ALIVE)]


def test_a_segment_that_comes_after_both_fins() -> None:
    before, late = closing(HELLO * 15)
    acknowledgement: Part = ("S", 1 + len(HELLO) + 1, ACK, b"")
    names, numbers, lost = shown(two_sided([*before, *late, acknowledgement, *late, *before]))
    assert names == ["Hello"] * 16 + ["KeepAlive"]
    assert numbers == {1}
    assert lost == []


def test_closing_segments_with_data_that_were_captured_twice() -> None:
    parts: list[Part] = [
        ("C", 0, SYN, b""),
        ("S", 0, SYN | ACK, b""),
        ("C", 1, ACK, HELLO),
        ("S", 1, ACK | FIN, HELLO),
        ("C", 1 + len(HELLO), ACK | FIN, KEEP_ALIVE),
    ]
    for captured in (two_sided(parts) * 2, [each for one in two_sided(parts) for each in (one, one)]):
        assert shown(captured) == (["Hello", "Hello", "KeepAlive"], {1}, [])


def test_bytes_before_a_fin_that_never_come() -> None:
    before, _ = closing()
    after: list[Part] = [("C", 1 + 2 * len(HELLO) + 8, ACK | FIN, KEEP_ALIVE)]
    names, numbers, _ = shown(two_sided(before[:4] + after + before[5:]))
    assert names == ["Hello"] * 3 + ["KeepAlive"]
    assert numbers == {1}


def test_a_new_connection_with_the_ports_of_a_closed_one() -> None:
    before, late = closing()
    old = two_sided(before + late)
    for distance in (-50_000, 50_000):
        new = two_sided(before + late, ISN + distance)
        assert shown(old + new + new) == (["Hello", "Hello", "Hello", "KeepAlive"] * 2, {1, 2}, [])
    # Its SYN is not in the capture, but it continues where the old one cannot have.
    assert shown(old + two_sided(before[2:3], ISN + 50_000))[1] == {1, 2}


def test_closed_connections_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_MAX_CLOSED", 2)
    dissector = Dissector()
    for port in range(1, 6):
        for source, target in (((CLIENT[0], port), STORE), (STORE, (CLIENT[0], port))):
            segment = ipv4(tcp(source[1], target[1], 1, FIN, KEEP_ALIVE), source[0], target[0])
            list(dissector.packet(Packet(0, 101, segment)))
    assert len(dissector._closed) == 2
    assert not dissector._captured


def test_a_written_capture_with_ports_that_are_used_again() -> None:
    file = io.BytesIO()
    writer = CaptureWriter(file)
    for time in (NANO, 2 * NANO):
        writer.connected(CLIENT, STORE, time)
        writer.sent(CLIENT, STORE, time, HELLO)
        writer.closed(CLIENT, STORE, time)
        writer.closed(STORE, CLIENT, time)
    file.seek(0)
    assert [each.connection for each in frames(file)] == [1, 2]


# --- requests and replies ------------------------------------------------------------------------


def exchanged(*steps: tuple[str, bytes]) -> Iterator[Frame | Note]:
    connection = Dissector().connect(CLIENT, STORE)
    for time, (side, data) in enumerate(steps):
        yield from connection.feed(CLIENT if side == "C" else STORE, data, time * 1_000_000)
    yield from connection.end(NANO, "the end")


def test_replies_name_their_requests() -> None:
    read = c.ReadSegment("s/t/0.#epoch.0", 0, 100, TOKEN, 5)
    other = c.GetStreamSegmentInfo(6, "s/t/0.#epoch.0", TOKEN)
    found = list(
        exchanged(
            ("C", HELLO),
            ("S", HELLO),
            ("C", codec.encode(read)),
            ("C", codec.encode(other)),
            ("S", codec.encode(c.NoSuchSegment(6, "s/t/0.#epoch.0", "", -1))),
            ("S", codec.encode(c.SegmentRead("s/t/0.#epoch.0", 0, True, False, b"abc", 5))),
            ("C", codec.encode(other)),
        )
    )
    replies = {each.number: (each.answers, each.elapsed) for each in found if isinstance(each, Frame)}
    assert replies == {
        1: ((), None), 2: ((1,), 1_000_000), 3: ((), None), 4: ((), None), 5: ((4,), 1_000_000),
        6: ((3,), 3_000_000), 7: ((), None),
    }  # fmt: skip
    (note,) = [each for each in found if isinstance(each, Note)]
    assert (note.kind, note.frame) == ("unanswered", 7)
    assert note.text == "GetStreamSegmentInfo in frame 7 was not answered before the end"


def test_appends_are_paired_by_writer_and_number() -> None:
    found = list(
        exchanged(
            ("C", setup()),
            ("S", codec.encode(c.AppendSetup(1 << 32, "s/t/0.#epoch.0", WRITER, -(2**63)))),
            ("C", append(1) + append(2) + append(5) + append(9)),
            ("S", appended(2)),
            ("S", appended(5)),
        )
    )
    replies = [each.answers for each in found if isinstance(each, Frame) and each.sender == "S"]
    assert replies == [(1,), (3, 4), (5,)]
    (note,) = [each for each in found if isinstance(each, Note)]
    assert (note.kind, note.frame) == ("unacknowledged", 6)
    assert "event number 9" in note.text


def test_a_refused_session_answers_all_its_appends() -> None:
    sealed = codec.encode(c.SegmentIsSealed(1 << 32, "s/t/0.#epoch.0", "", 100))
    found = list(exchanged(("C", append(1) + append(2)), ("S", sealed)))
    assert [each.answers for each in found if isinstance(each, Frame)] == [(), (), (1, 2)]
    assert len(found) == 3


def test_conditional_appends() -> None:
    def conditional(number: int) -> bytes:
        return codec.encode(c.ConditionalAppend(WRITER, number, 0, b"event", 1 << 32))

    failed = codec.encode(c.ConditionalCheckFailed(WRITER, 2, 1 << 32))
    found = list(exchanged(("C", conditional(1)), ("S", appended(1)), ("C", conditional(2)), ("S", failed)))
    assert [each.answers for each in found if isinstance(each, Frame)] == [(), (1,), (), (3,)]


def test_replies_without_a_request_id_are_paired_by_writer_and_number() -> None:
    body = WRITER.bytes + struct.pack(">q", 2)
    reply = struct.pack(">ii", c.DataAppended.CODE, len(body)) + body
    found = list(exchanged(("C", append(1) + append(2) + append(3)), ("S", reply)))
    assert [each.answers for each in found if isinstance(each, Frame)] == [(), (), (), (1, 2)]


def test_resets_and_ends_of_connections_end_them() -> None:
    for flags, words in ((RST, "was reset"), (FIN, "the capture ended")):
        parts = [*segments(HELLO + append(1)), ((ISN + 1 + len(HELLO + append(1))) & 0xFFFFFFFF, flags, b"")]
        (note, *_) = [
            each for each in dissect(capture_of(parts)) if isinstance(each, Note) and each.frame == 2
        ]
        assert words in note.text


# --- what is shown -------------------------------------------------------------------------------


def test_no_token_is_shown() -> None:
    body = setup()[8:]
    damaged = [
        setup(),
        struct.pack(">ii", 1, len(body) - 5) + body[:-5],
        struct.pack(">ii", 1, len(body)) + body[: -len(TOKEN) - 2] + b"\xff\xff" + TOKEN.encode(),
        struct.pack(">ii", 1234, len(body)) + body,
        codec.encode(c.AuthTokenCheckFailed(1, f"the token {TOKEN} has expired", 1)),
        codec.encode(c.GetSegmentAttribute(1, "s/t/0", WRITER, "not-a-web-token")),
    ]
    for frame in damaged:
        for each in exchanged(("C", HELLO), ("S", HELLO), ("C", frame), ("C", append(1))):
            for text in (as_text(each, payloads=True), as_json(each, payloads=True)):
                for secret in (TOKEN, "not-a-web-token", "c2lnbmF0dXJl"):
                    assert secret not in text
                    plain = text.replace(" ", "")
                    assert secret.encode().hex() not in plain


def test_payloads_are_shortened() -> None:
    found = [each for each in exchanged(("C", append(1, b"\xab" * 1000))) if isinstance(each, Frame)]
    assert "<1000 bytes: " + "ab" * 16 + "...>" in as_text(found[0])
    assert "<1000 bytes: " + "ab" * 1000 + ">" in as_text(found[0], payloads=True)
    short, whole = (json.loads(as_json(found[0], payloads=each)) for each in (False, True))
    assert short["fields"]["data"] == {"length": 1000, "hex": "ab" * 16}
    assert whole["fields"]["data"] == {"length": 1000, "hex": "ab" * 1000}


def test_texts_cannot_move_the_cursor() -> None:
    reply = codec.encode(c.NoSuchSegment(1, "s/t/\x1b[2J\n", "", -1))
    found = [each for each in exchanged(("S", reply)) if isinstance(each, Frame)]
    assert "\x1b" not in as_text(found[0])
    assert "\n" not in as_text(found[0])


def test_a_malformed_frame_has_its_reason_and_the_fields_before() -> None:
    frame = bytearray(codec.encode(c.ReadTable(3, "s/t/0", "", (c.TableKey(b"key", 1),))))
    at = frame.index(b"key") - 4
    frame[at : at + 4] = struct.pack(">i", 77)
    (found, *_) = exchanged(("C", bytes(frame)))
    assert isinstance(found, Frame)
    assert found.fields == {"request_id": 3, "segment": "s/t/0", "delegation_token": ""}
    assert found.error is not None
    assert found.error.startswith("field keys (list<KEY>) of ReadTable")
    assert found.raw == bytes(frame)
    assert frame.hex(" ", 4)[:60] in as_text(found)


def test_bytes_of_a_later_version_are_counted() -> None:
    reply = codec.encode(c.SegmentCreated(1, "s/t/0"))
    reply = struct.pack(">ii", 21, len(reply) - 8 + 3) + reply[8:] + b"new"
    (found,) = exchanged(("S", reply))
    assert isinstance(found, Frame)
    assert (found.error, found.unknown) == (None, 3)
    assert "(and 3 bytes that this version does not know)" in as_text(found)


# --- the command ---------------------------------------------------------------------------------


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([str(EXCHANGE)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 60
    assert sum("> Hello high_version=16" in each for each in lines) == 2
    assert main(["--json", str(EXCHANGE)]) == 0
    assert {json.loads(each)["type"] for each in capsys.readouterr().out.splitlines()} <= {"frame", "note"}
    nothing = tmp_path / "nothing.pcap"
    assert main([str(nothing)]) == 1
    assert str(nothing) in capsys.readouterr().err
    nothing.write_bytes(b"x")
    assert main([str(nothing)]) == 1
    assert "not a capture file" in capsys.readouterr().err
    both = [str(nothing), "--follow", "1"]
    for wrong in ([], both, ["--follow", "1"], ["--port", "x"], [str(nothing), "--write", "y"]):
        with pytest.raises(SystemExit):
            main(wrong)


def test_a_port_in_use_leaves_the_capture_as_it_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kept = tmp_path / "kept.pcap"
    kept.write_bytes(b"kept")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["--follow", str(port), "--store", "127.0.0.1:1", "--write", str(kept)]) == 1
    assert kept.read_bytes() == b"kept"
    assert "error: " in capsys.readouterr().err


def test_a_capture_that_cannot_be_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere" / "live.pcap"
    assert main(["--follow", "0", "--store", "127.0.0.1:1", "--write", str(nowhere)]) == 1
    assert str(nowhere) in capsys.readouterr().err


def test_a_closed_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["-"]) == 1
    assert capsys.readouterr().err == "error: the standard input is closed\n"


def test_a_closed_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert main([str(EXCHANGE)]) == 0


# --- Wireshark -----------------------------------------------------------------------------------


def test_the_wireshark_dissector_is_up_to_date() -> None:
    script = tshark.ROOT / "scripts" / "gen_wireshark.py"
    assert subprocess.run([sys.executable, str(script), "--check"], check=False).returncode == 0


def test_a_real_exchange_as_wireshark_shows_it() -> None:
    """What Wireshark said of this capture is kept, so that this test needs no Wireshark."""
    ours = by_us(EXCHANGE)
    assert ours == golden("dissect-exchange")
    commands = {each[1][1] for each in ours}
    assert {
        "AppendBlockEnd",
        "SegmentRead",
        "ConditionalAppend",
        "UpdateTableEntries",
        "SetupAppend",
    } <= commands


def test_every_command_as_wireshark_shows_it() -> None:
    assert by_us(io.BytesIO(vectors_capture())) == golden("dissect-commands")


@pytest.mark.skipif(
    tshark.TSHARK is None, reason="tshark is not installed: compared with its kept output only"
)
def test_wireshark_says_so_today(tmp_path: Path) -> None:
    """The dissector for Wireshark as it is now gives what was kept; runs where tshark is installed."""
    commands = tmp_path / "commands.pcap"
    commands.write_bytes(vectors_capture())
    assert by_tshark(EXCHANGE) == golden("dissect-exchange")
    assert by_tshark(commands) == golden("dissect-commands")


@pytest.mark.skipif(tshark.TSHARK is None, reason="tshark is not installed")
def test_wireshark_finds_the_same_frames_malformed(tmp_path: Path) -> None:
    whole = codec.encode(c.ReadTable(3, "s/t/0", "", (c.TableKey(b"key", 1), c.TableKey(b"", 0))))
    file = io.BytesIO()
    writer = CaptureWriter(file)
    writer.connected(CLIENT, STORE, NANO)
    writer.sent(CLIENT, STORE, NANO, HELLO)
    for length in range(8, len(whole)):
        writer.sent(CLIENT, STORE, NANO, struct.pack(">ii", 78, length - 8) + whole[8:length])
    capture = tmp_path / "malformed.pcap"
    capture.write_bytes(file.getvalue())
    theirs = by_tshark(capture)
    ours = frames(capture)
    assert len(ours) == len(theirs) == 1 + len(whole) - 8
    for one, other in zip(ours, theirs, strict=True):
        assert (one.error is not None) == any(name == "malformed" for name, _ in other), (one, other)
