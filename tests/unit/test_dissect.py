"""The dissector: frames, pairing, what is shown, and Wireshark as a second opinion."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from uuid import UUID

import pytest
import trio

from pravega_wire.cli.common import Exit
from pravega_wire.cli.main import main
from pravega_wire.dissect import Connection, Frame, Note, as_json, as_text, follow
from pravega_wire.protocol import codec
from pravega_wire.protocol import commands as c
from tests import tshark
from tests.tshark import CLIENT, HELLO, STORE

WRITER = UUID(int=7)
TOKEN = "eyJhbGciOiJIUzUxMiJ9.eyJzdWIiOiJzIn0.c2lnbmF0dXJl"
NANO = 10**9


def setup(request_id: int = 1 << 32) -> bytes:
    return codec.encode(c.SetupAppend(request_id, WRITER, "s/t/0.#epoch.0", TOKEN))


def append(number: int, data: bytes = b"x" * 20, request_id: int = 1 << 32) -> bytes:
    return codec.encode(c.AppendBlockEnd(WRITER, len(data), data, 1, number, request_id))


def appended(number: int, request_id: int = 1 << 32) -> bytes:
    return codec.encode(c.DataAppended(WRITER, number, number - 1, request_id, 100))


# --- frames --------------------------------------------------------------------------------------

SENT = HELLO + setup() + b"".join(append(number) for number in range(1, 30))
NAMES = ["Hello", "SetupAppend", *["AppendBlockEnd"] * 29]


def exchanged(*steps: tuple[str, bytes]) -> Iterator[Frame | Note]:
    connection = Connection(CLIENT, STORE)
    for time, (side, data) in enumerate(steps):
        yield from connection.feed(CLIENT if side == "C" else STORE, data, time * 1_000_000)
    yield from connection.end(NANO, "the end")


def told(*steps: tuple[str, bytes]) -> tuple[list[str], list[str]]:
    """Senders and commands of the frames, and how bytes were lost."""
    found = list(exchanged(*steps))
    frames = [f"{each.sender} {each.command or each.code}" for each in found if isinstance(each, Frame)]
    return frames, [each.text for each in found if isinstance(each, Note) and each.kind == "lost"]


@pytest.mark.parametrize("size", [1, 7, 8, 9, 100, len(SENT)])
def test_frames_in_pieces_of_any_size(size: int) -> None:
    pieces = [("C", SENT[at : at + size]) for at in range(0, len(SENT), size)]
    assert told(*pieces) == ([f"C {each}" for each in NAMES], [])


def test_a_frame_is_shown_when_its_last_byte_passes() -> None:
    found = list(exchanged(("C", HELLO[:15]), ("C", HELLO[15:])))
    assert isinstance(found[0], Frame)
    assert (found[0].number, found[0].time, found[0].source, found[0].target) == (1, 1_000_000, CLIENT, STORE)


def test_an_impossible_length_ends_the_frames_of_its_side() -> None:
    garbage = b"\xde\xad\xbe\xef" * 9
    frames, lost = told(("C", HELLO + append(1) + garbage + append(2)), ("C", append(3)), ("S", HELLO))
    assert frames == ["C Hello", "C AppendBlockEnd", "S Hello"]
    assert lost == [
        "10.0.0.1:40000 to 10.0.0.2:12345: a frame claims -559038737 bytes: it and what follows cannot be "
        "shown"
    ]


def test_an_unknown_command_costs_one_frame() -> None:
    frame = struct.pack(">ii", 1234, 5) + b"12345"
    assert told(("C", HELLO + frame + append(1))) == (["C Hello", "C 1234", "C AppendBlockEnd"], [])
    (_, found, *_) = exchanged(("C", HELLO + frame))
    assert isinstance(found, Frame)
    assert (found.error, found.raw) == ("command code 1234 does not exist in wire version 16", frame)


def test_a_connection_that_ends_within_a_frame() -> None:
    assert told(("S", HELLO + HELLO[:11])) == (
        ["S Hello"],
        ["10.0.0.2:12345 to 10.0.0.1:40000: the last 11 bytes are not a whole frame"],
    )


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(300), "is not the segment store's protocol"),
        (b"\x16\x03\x01\x02\x00" + bytes(300), "is encrypted (TLS)"),
    ],
)
def test_other_protocols_are_left_out(data: bytes, reason: str) -> None:
    frames, (text,) = told(("C", data), ("C", SENT))
    assert frames == []
    assert text == f"10.0.0.1:40000 to 10.0.0.2:12345: what is sent {reason}, and is not shown"


def test_connections_may_share_the_numbers_of_frames() -> None:
    numbers = iter((7, 8))
    one, other = (Connection(CLIENT, STORE, each, frames=numbers) for each in (1, 2))
    found = [*one.feed(CLIENT, HELLO, 0), *other.feed(STORE, HELLO, 0)]
    assert [(each.connection, each.number) for each in found if isinstance(each, Frame)] == [(1, 7), (2, 8)]


# --- requests and replies ------------------------------------------------------------------------


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


# --- live ----------------------------------------------------------------------------------------


async def test_a_store_that_cannot_be_reached() -> None:
    shown: list[Frame | Note] = []
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nowhere = closed.getsockname()
    async with trio.open_nursery() as nursery:
        port: int = await nursery.start(follow, 0, nowhere, shown.append)
        async with await trio.open_tcp_stream("127.0.0.1", port) as client:
            assert await client.receive_some() == b""
        nursery.cancel_scope.cancel()
    (note,) = shown
    assert isinstance(note, Note)
    assert (note.kind, note.connection) == ("closed", 0)
    assert note.text.startswith(f"the segment store at 127.0.0.1:{nowhere[1]} cannot be reached: ")


async def test_bytes_pass_as_they_are() -> None:
    """Frames or not; and what both sides end is closed, and reported."""
    send, receive = trio.open_memory_channel[Frame | Note](100)
    garbage = bytes.fromhex("deadbeef") * 9
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    with trio.fail_after(60):
        async with listener, trio.open_nursery() as nursery:
            store = listener.socket.getsockname()
            port: int = await nursery.start(follow, 0, store, send.send_nowait)
            for number in (1, 2):
                client = await trio.open_tcp_stream("127.0.0.1", port)
                async with client, await listener.accept() as server:
                    asked, answered = HELLO + HELLO + garbage, HELLO + garbage
                    for one, other, data in ((client, server, asked), (server, client, answered)):
                        await one.send_all(data)
                        await one.send_eof()
                        assert b"".join([bytes(each) async for each in other]) == data
                    address = client.socket.getsockname()
                found = [await receive.receive() for _ in range(8)]
                kinds = [each.kind if isinstance(each, Note) else each.sender for each in found]
                assert kinds == ["opened", "C", "C", "lost", "S", "lost", "unanswered", "closed"]
                assert {each.connection for each in found} == {number}
                frames = [each for each in found if isinstance(each, Frame)]
                assert [each.number for each in frames] == [3 * number - each for each in (2, 1, 0)]
                assert (frames[0].source, frames[0].target) == (address, store)
            nursery.cancel_scope.cancel()


# --- the command ---------------------------------------------------------------------------------


def test_a_port_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["dissect", str(port), "--store", "127.0.0.1:1"]) == Exit.USAGE
    out, error = capsys.readouterr()
    assert out == ""
    assert error == f"error: port {port} cannot be used: Address already in use\n"


# --- Wireshark -----------------------------------------------------------------------------------


def test_the_wireshark_dissector_is_up_to_date() -> None:
    script = tshark.ROOT / "scripts" / "gen_wireshark.py"
    assert subprocess.run([sys.executable, str(script), "--check"], check=False).returncode == 0


def test_a_real_exchange_as_wireshark_shows_it() -> None:
    """What Wireshark said of this exchange is kept, so that this test needs no Wireshark."""
    ours = tshark.by_us(tshark.exchange())
    assert ours == tshark.golden("dissect-exchange")
    commands = {each[1][1] for each in ours}
    assert {
        "AppendBlockEnd",
        "SegmentRead",
        "ConditionalAppend",
        "UpdateTableEntries",
        "SetupAppend",
    } <= commands


def test_every_command_as_wireshark_shows_it() -> None:
    assert tshark.by_us(tshark.commands()) == tshark.golden("dissect-commands")


@pytest.mark.skipif(
    tshark.TSHARK is None, reason="tshark is not installed: compared with its kept output only"
)
def test_wireshark_says_so_today() -> None:
    """The dissector for Wireshark as it is now gives what was kept; runs where tshark is installed."""
    assert tshark.by_tshark(tshark.exchange()) == tshark.golden("dissect-exchange")
    assert tshark.by_tshark(tshark.commands()) == tshark.golden("dissect-commands")


@pytest.mark.skipif(tshark.TSHARK is None, reason="tshark is not installed")
def test_wireshark_finds_the_same_frames_malformed() -> None:
    whole = codec.encode(c.ReadTable(3, "s/t/0", "", (c.TableKey(b"key", 1), c.TableKey(b"", 0))))
    parts = [(1, "C", HELLO)]
    for length in range(8, len(whole)):
        parts.append((1, "C", struct.pack(">ii", 78, length - 8) + whole[8:length]))
    theirs = tshark.by_tshark(parts)
    ours = [each for each in tshark.dissected(parts) if isinstance(each, Frame)]
    assert len(ours) == len(theirs) == 1 + len(whole) - 8
    for one, other in zip(ours, theirs, strict=True):
        assert (one.error is not None) == any(name == "malformed" for name, _ in other), (one, other)
