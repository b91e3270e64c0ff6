"""Values as users write and read them: sizes, lengths of time, times."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from fractions import Fraction
from typing import Final

from pravega_wire.errors import InvalidArgumentError

__all__ = [
    "counted", "duration_text", "os_message", "parse_duration", "parse_size", "parse_time", "short",
    "size_text", "time_text",
]  # fmt: skip

_NUMBER: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_SIZES: Final = {
    "": 1, "b": 1,
    "k": 1 << 10, "kib": 1 << 10, "kb": 1000,
    "m": 1 << 20, "mib": 1 << 20, "mb": 1000**2,
    "g": 1 << 30, "gib": 1 << 30, "gb": 1000**3,
    "t": 1 << 40, "tib": 1 << 40, "tb": 1000**4,
}  # fmt: skip
_SECONDS: Final = {"ms": 0.001, "s": 1, "": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_LARGEST: Final = (1 << 63) - 1
"""The largest number of bytes, or of milliseconds, that the server takes."""
_AGO: Final = re.compile(r"-\s*(.+)")


def parse_size(text: str) -> int:
    """Parse a number of bytes: ``4096``, ``64KiB``, ``10 GB``.

    :param text: a number, and a unit: B, KiB (K), MiB (M), GiB (G), TiB (T), or KB, MB, GB, TB of 1000.
    :raises InvalidArgumentError: the text is not a size.
    """
    match = _NUMBER.fullmatch(text.strip())
    unit = None if match is None else _SIZES.get(match[2].lower())
    if match is None or unit is None:
        raise InvalidArgumentError(f"{text!r} is not a size, such as 4096, 64KiB or 10GiB")
    # Whole numbers stay exact, unlike as a float.
    size = _number(match[1], text) * unit
    if size > _LARGEST:
        raise InvalidArgumentError(f"{short(text)} is too large: the largest size is {_LARGEST} bytes")
    return int(size)


def _number(digits: str, text: str) -> Fraction:
    """Return a number exactly. Python does not convert more than some thousand digits."""
    try:
        return Fraction(digits)
    except ValueError:
        raise InvalidArgumentError(f"{short(text)} has too many digits") from None


def short(text: str) -> str:
    """Return a text in quotes for a message, without its end if it is long."""
    return repr(text if len(text) <= 40 else f"{text[:30]}...")


def parse_port(text: str) -> int:
    """Parse a port number; 0 is any free port.

    :raises InvalidArgumentError: the text is no port number.
    """
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 5 and int(digits) <= 65535):
        raise InvalidArgumentError(f"{short(text)} is not a port, which is a number from 0 to 65535")
    return int(digits)


def parse_duration(text: str) -> float:
    """Parse a length of time in seconds: ``30``, ``500ms``, ``10m``, ``36h``, ``7d``.

    :param text: a number, and a unit: ms, s, m, h, d or w.
    :raises InvalidArgumentError: the text is not a length of time.
    """
    match = _NUMBER.fullmatch(text.strip())
    unit = None if match is None else _SECONDS.get(match[2].lower())
    if match is None or unit is None:
        raise InvalidArgumentError(f"{text!r} is not a length of time, such as 500ms, 30s, 10m, 36h or 7d")
    number = _number(match[1], text)
    if number * Fraction(unit) * 1000 > _LARGEST:
        raise InvalidArgumentError(f"{short(text)} is too large: the longest time is {_LARGEST} ms")
    return float(number) * unit


def parse_time(text: str, now: float) -> int:
    """Parse a moment, and return it in milliseconds since 1970.

    :param text: ISO 8601 (``2026-01-31T12:00:00Z``; without a zone it is UTC), milliseconds since 1970, or a
        length of time ago (``-1h``).
    :param now: the present moment, in seconds since 1970.
    :raises InvalidArgumentError: the text is not a moment.
    """
    text = text.strip()
    if match := _AGO.fullmatch(text):
        return int((now - parse_duration(match[1])) * 1000)
    try:
        if text.isdecimal() and len(text) > 4:
            return int(text)
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgumentError(
            f"{short(text)} is not a time: write 2026-01-31T12:00:00Z, milliseconds since 1970, or -1h for "
            "an hour ago"
        ) from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return int(found.timestamp() * 1000)


def os_message(error: OSError) -> str:
    """Return what an error of the operating system says, after the name of its file."""
    named = f"{error.filename}: " if error.filename else ""
    return f"{named}{error.strerror or error}"


def counted(count: int, what: str) -> str:
    """Return a number of things: ``1 event``, ``2 events``."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def size_text(size: float) -> str:
    """Return a number of bytes for people: ``1.5 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def duration_text(seconds: float) -> str:
    """Return a length of time for people: ``1h 30m``, in its two largest units."""
    if seconds < 0:
        return f"-{duration_text(-seconds)}"
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    left = int(seconds)
    parts = []
    for name, unit in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, unit)
        if count:
            parts.append(f"{count}{name}")
    return " ".join(parts[:2])


def time_text(milliseconds: int) -> str:
    """Return a moment as ISO 8601 in UTC, or the number if it is not a time of our calendar."""
    try:
        found = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")
