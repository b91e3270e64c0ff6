"""Frames and notes as text for people, and as JSON for programs.

Not public.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from pravega_wire.dissect.exchange import Frame, Note

__all__ = ["as_json", "as_text"]

_SHOWN_BYTES: Final = 16
_SHOWN_RAW: Final = 64
_SHOWN_TEXT: Final = 120
_SHOWN_ITEMS: Final = 8


def as_text(item: Frame | Note, *, payloads: bool = False) -> str:
    """Return a frame or a note as one line of text; a frame that cannot be decoded has two.

    :param item: what :func:`~pravega_wire.dissect.follow` has shown.
    :param payloads: show payloads and long texts whole.
    """
    if isinstance(item, Note):
        connection = f"#{item.connection}" if item.connection else ""
        return f"{_clock(item.time)} {connection:>4} ! {_printable(item.text)}"
    arrow = ">" if item.sender == "C" else "<"
    line = f"{_clock(item.time)} #{item.connection:<3} {item.number:>5} {arrow} "
    line += item.command or f"command {item.code}"
    shown = [f"{name}={_text(value, payloads)}" for name, value in item.fields.items()]
    if shown:
        line += " " + " ".join(shown)
    if item.unknown:
        line += f" (and {item.unknown} bytes that this version does not know)"
    if item.answers:
        line += f" [answers {_numbers(item.answers)}"
        line += f" after {item.elapsed / 1e6:.3f} ms]" if item.elapsed is not None else "]"
    if item.error is not None:
        line += f" ! {_printable(item.error)}"
    if item.raw:
        raw = item.raw if payloads else item.raw[:_SHOWN_RAW]
        line += f"\n{'':>21} {raw.hex(' ', 4)}"
        if len(raw) < len(item.raw):
            line += f" ... ({len(item.raw)} bytes)"
    return line


def as_json(item: Frame | Note, *, payloads: bool = False) -> str:
    """Return a frame or a note as one line of JSON.

    Payloads are objects with ``length`` and ``hex``; ``hex`` holds the first 16 bytes unless ``payloads`` is
    set. Times are in nanoseconds since 1970.

    :param item: what :func:`~pravega_wire.dissect.follow` has shown.
    :param payloads: show payloads and long texts whole.
    """
    if isinstance(item, Note):
        return json.dumps({"type": "note", **{each.name: getattr(item, each.name) for each in fields(item)}})
    values: dict[str, Any] = {"type": "frame"}
    for each in fields(item):
        value = getattr(item, each.name)
        if each.name in ("source", "target"):
            value = list(value)
        elif each.name == "fields":
            value = {name: _json(one, payloads) for name, one in value.items()}
        elif each.name == "raw":
            if not value:
                continue
            value = _json(value, payloads, _SHOWN_RAW)
        values[each.name] = value
    return json.dumps(values)


def _clock(time: int) -> str:
    seconds, rest = divmod(time, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%H:%M:%S}.{rest // 1000:06}"


def _numbers(numbers: tuple[int, ...]) -> str:
    if len(numbers) <= 4:
        return ", ".join(map(str, numbers))
    return f"{numbers[0]} ... {numbers[-1]} ({len(numbers)} frames)"


def _printable(text: str) -> str:
    """The text without what would move a terminal's cursor or colour it."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def _text(value: Any, payloads: bool) -> str:
    if isinstance(value, bytes | memoryview):
        data = bytes(value)
        shown = data if payloads else data[:_SHOWN_BYTES]
        rest = "..." if len(shown) < len(data) else ""
        return f"<{len(data)} bytes{': ' if data else ''}{shown.hex()}{rest}>"
    if isinstance(value, str):
        text = value if payloads or len(value) <= _SHOWN_TEXT else value[:_SHOWN_TEXT] + "..."
        return json.dumps(_printable(text)) if not text or " " in text or text != _printable(text) else text
    if isinstance(value, tuple):
        items = value if payloads else value[:_SHOWN_ITEMS]
        rest = f", ... {len(value)} in total" if len(items) < len(value) else ""
        return f"[{', '.join(_text(each, payloads) for each in items)}{rest}]"
    if is_dataclass(value):
        inner = (f"{each.name}={_text(getattr(value, each.name), payloads)}" for each in fields(value))
        return f"({' '.join(inner)})"
    return str(value)


def _json(value: Any, payloads: bool, shown: int = _SHOWN_BYTES) -> Any:
    if isinstance(value, bytes | memoryview):
        data = bytes(value)
        return {"length": len(data), "hex": (data if payloads else data[:shown]).hex()}
    if isinstance(value, str):
        # Texts of the protocol may hold lone surrogates, which JSON can hold as escapes.
        return value if payloads or len(value) <= _SHOWN_TEXT else value[:_SHOWN_TEXT] + "..."
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, tuple):
        return [_json(each, payloads) for each in value]
    if is_dataclass(value):
        return {each.name: _json(getattr(value, each.name), payloads) for each in fields(value)}
    return value
