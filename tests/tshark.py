"""What Wireshark says of a capture with the generated dissector, and the same from this project's decoder.

``python -m tests.tshark`` writes ``tests/golden/dissect-*.tshark.jsonl`` again.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any
from uuid import UUID
from xml.etree import ElementTree

from pravega_wire.dissect import Frame, dissect
from pravega_wire.dissect.capture import CaptureWriter
from pravega_wire.protocol.commands import COMMANDS, Event, Padding, PartialEvent, field_specs

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "docs" / "wireshark" / "pravega.lua"
GOLDEN = ROOT / "tests" / "golden"
EXCHANGE = GOLDEN / "dissect-exchange.pcap"

TSHARK = shutil.which("tshark")

CLIENT, STORE = ("10.0.0.1", 40000), ("10.0.0.2", 12345)
_PARTS = {
    "list<KEY>": ("data", "version"),
    "ENTRIES": ("key.data", "key.version", "value"),
    "ITER": ("continuation_token", "prefix_filter", "from_key", "to_key"),
}
# Not allowed in XML, not even as references.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")

Shown = list[list[str]]


def by_tshark(capture: Path, *, port: int | None = None) -> list[Shown]:
    """The fields of each frame by Wireshark: name and text."""
    assert TSHARK is not None
    command = [TSHARK, "-X", f"lua_script:{SCRIPT}", "-r", str(capture), "-T", "pdml", "-J", "pravega"]
    if port is not None:
        command += ["-d", f"tcp.port=={port},pravega"]
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


def by_us(capture: Path | io.BytesIO, ports: tuple[int, ...] = ()) -> list[Shown]:
    """The same by this project's decoder."""
    found: list[Shown] = []
    for each in dissect(capture, ports=ports):
        if isinstance(each, Frame):
            assert each.error is None, each
            found.append(shown_by_us(each))
    return found


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


def vectors_capture() -> bytes:
    """A capture in which the client sends all of :func:`vectors`, after a Hello of each side."""
    file = io.BytesIO()
    writer = CaptureWriter(file)
    writer.connected(CLIENT, STORE, 10**9)
    hello = bytes.fromhex("ffffff81000000080000001000000005")
    writer.sent(CLIENT, STORE, 10**9, hello)
    writer.sent(STORE, CLIENT, 10**9, hello)
    for number, frame in enumerate(vectors()):
        kind = COMMANDS[int.from_bytes(frame[:4], "big", signed=True)]
        one, other = (STORE, CLIENT) if kind.DIRECTION == "S" else (CLIENT, STORE)
        writer.sent(one, other, 2 * 10**9 + number, frame)
    return file.getvalue()


def golden(name: str) -> list[Shown]:
    """What Wireshark said of a capture when the golden files were written."""
    return [json.loads(line) for line in (GOLDEN / f"{name}.tshark.jsonl").read_text().splitlines()]


def main() -> None:
    commands = Path("/tmp/dissect-commands.pcap")
    commands.write_bytes(vectors_capture())
    for name, capture in (("dissect-exchange", EXCHANGE), ("dissect-commands", commands)):
        lines = [json.dumps(each) + "\n" for each in by_tshark(capture)]
        (GOLDEN / f"{name}.tshark.jsonl").write_text("".join(lines))
    commands.unlink()


if __name__ == "__main__":
    main()
