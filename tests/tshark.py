"""What Wireshark says of an exchange with the generated dissector, and the same from this project's decoder.

``tests/golden/dissect-exchange.jsonl`` is what a client and a real server have sent: number of the
connection, side, and bytes. ``python -m tests.tshark`` writes ``tests/golden/dissect-*.tshark.jsonl`` again.
"""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any
from uuid import UUID
from xml.etree import ElementTree

from pravega_wire.dissect import Connection, Frame, Note
from pravega_wire.protocol.commands import COMMANDS, Event, Padding, PartialEvent, field_specs

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "docs" / "wireshark" / "pravega.lua"
GOLDEN = ROOT / "tests" / "golden"

TSHARK = shutil.which("tshark")

CLIENT, STORE = ("10.0.0.1", 40000), ("10.0.0.2", 12345)
HELLO = bytes.fromhex("ffffff81000000080000001000000005")
_PARTS = {
    "list<KEY>": ("data", "version"),
    "ENTRIES": ("key.data", "key.version", "value"),
    "ITER": ("continuation_token", "prefix_filter", "from_key", "to_key"),
}
# Not allowed in XML, not even as references.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")

Shown = list[list[str]]
Part = tuple[int, str, bytes]
"""Number of a connection, ``C`` or ``S`` for its client or store, and what that side sends."""


def capture(parts: list[Part]) -> bytes:
    """A pcap file of raw IPv4 packets that carry these parts."""
    out = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 101)]
    sent: Counter[tuple[int, str]] = Counter()
    for number, side, data in parts:
        ports = (CLIENT[1] + number, STORE[1])
        numbers = (1 + sent[number, side], 1 + sent[number, "S" if side == "C" else "C"])
        sent[number, side] += len(data)
        tcp = struct.pack(
            ">HHIIBBHHH", *(ports if side == "C" else ports[::-1]), *numbers, 0x50, 0x18, 65535, 0, 0
        )
        hosts = [bytes(map(int, each.split("."))) for each in (CLIENT[0], STORE[0])]
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 40 + len(data), 0, 0x4000, 64, 6, 0)
        packet = ip + b"".join(hosts if side == "C" else hosts[::-1]) + tcp + data
        out += [struct.pack("<IIII", 1, 0, len(packet), len(packet)), packet]
    return b"".join(out)


def by_tshark(parts: list[Part]) -> list[Shown]:
    """The fields of each frame by Wireshark: name and text."""
    assert TSHARK is not None
    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
        file.write(capture(parts))
        file.flush()
        command = [TSHARK, "-X", f"lua_script:{SCRIPT}", "-r", file.name, "-T", "pdml", "-J", "pravega"]
        done = subprocess.run(command, capture_output=True, check=True)
    assert b"Lua" not in done.stderr, done.stderr.decode()
    text = _CONTROL.sub("?", done.stdout.decode("utf-8", "replace"))
    found = []
    for proto in ElementTree.fromstring(text).iter("proto"):
        if proto.get("name") == "pravega":
            found.append(
                [
                    [name.removeprefix("pravega."), _shown(name, each)]
                    for each in proto.iter("field")
                    if (name := each.get("name", "")).startswith("pravega.")
                ]
            )
    return found


def _shown(name: str, field: ElementTree.Element) -> str:
    text = field.get("show", "")
    # Booleans are shown in two ways, by the version of Wireshark.
    return {"True": "1", "False": "0"}.get(text, text)


def dissected(parts: list[Part]) -> list[Frame | Note]:
    """What this project's decoder makes of it."""
    connections: dict[int, Connection] = {}
    found: list[Frame | Note] = []
    for number, side, data in parts:
        client = (CLIENT[0], CLIENT[1] + number)
        connection = connections.setdefault(number, Connection(client, STORE, number))
        found += connection.feed(client if side == "C" else STORE, data, 0)
    for connection in connections.values():
        found += connection.end(0, "the end")
    return found


def by_us(parts: list[Part]) -> list[Shown]:
    """The same by this project's decoder."""
    found = [each for each in dissected(parts) if isinstance(each, Frame)]
    assert [each for each in found if each.error is not None] == []
    return [shown_by_us(each) for each in found]


def shown_by_us(frame: Frame) -> Shown:
    """The fields of a frame in the form of :func:`by_tshark`."""
    shown = [["code", str(frame.code)], ["command", frame.command], ["body_length", str(frame.length)]]
    kinds = {each.name: each.kind for each in field_specs(COMMANDS[frame.code])}
    for name, value in frame.fields.items():
        shown += _flat(name, kinds[name], value)
    return shown


def _flat(name: str, kind: str, value: Any) -> Iterator[list[str]]:
    if isinstance(value, tuple):
        yield ["count", str(len(value))]
        for each in value:
            yield from _flat(name, kind, each)
    elif is_dataclass(value):
        for each in fields(value):
            inner = getattr(value, each.name)
            if each.name == "version" and not value.data:  # type: ignore[union-attr]
                continue  # it is not on the wire
            yield from _flat(f"{name}.{each.name}", "", inner)
    elif isinstance(value, bytes | memoryview):
        yield [name, bytes(value).hex(":")]
    elif isinstance(value, bool):
        yield [name, str(int(value))]
    elif isinstance(value, UUID | int):
        yield [name, str(value)]
    else:
        # As in an attribute of XML, which is how Wireshark's texts arrive here.
        yield [name, re.sub(r"[\t\n\r]", " ", value)]


def vectors() -> list[bytes]:
    """Frames that the Java encoder made, of every command that is sent as a frame of its own."""
    inner = {Event.CODE, Padding.CODE, PartialEvent.CODE}
    seen: dict[int, int] = {}
    found = []
    for line in (GOLDEN / "golden-wire.jsonl").read_text().splitlines():
        vector = json.loads(line)
        frame = bytes.fromhex(vector["hex"])
        # Texts that are not plain are shown in many ways by Wireshark.
        texts = json.dumps(vector["fields"], ensure_ascii=False)
        plain = not _CONTROL.search(texts) and "\\u" not in texts and max(texts) < "\ud800"
        if vector["code"] in inner or len(frame) > 2000 or not plain:
            continue
        seen[vector["code"]] = seen.get(vector["code"], 0) + 1
        if seen[vector["code"]] <= 3:
            found.append(frame)
    missing = COMMANDS.keys() - inner - seen.keys()
    assert not missing, missing
    return found


def commands() -> list[Part]:
    """All of :func:`vectors` on one connection, after a Hello of each side."""
    found = [(1, "C", HELLO), (1, "S", HELLO)]
    for frame in vectors():
        kind = COMMANDS[int.from_bytes(frame[:4], "big", signed=True)]
        found.append((1, "S" if kind.DIRECTION == "S" else "C", frame))
    return found


def exchange() -> list[Part]:
    """What the client and a real server have sent to each other."""
    lines = map(json.loads, (GOLDEN / "dissect-exchange.jsonl").read_text().splitlines())
    return [(number, side, bytes.fromhex(data)) for number, side, data in lines]


def golden(name: str) -> list[Shown]:
    """What Wireshark said of an exchange when the golden files were written."""
    return [json.loads(line) for line in (GOLDEN / f"{name}.tshark.jsonl").read_text().splitlines()]


def main() -> None:
    for name, parts in (("dissect-exchange", exchange()), ("dissect-commands", commands())):
        lines = [json.dumps(each) + "\n" for each in by_tshark(parts)]
        (GOLDEN / f"{name}.tshark.jsonl").write_text("".join(lines))


if __name__ == "__main__":
    main()
