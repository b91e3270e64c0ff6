"""Numbers, sizes and times in the texts of options: ``5``, ``64m``, ``30s``, ``5 minutes``.

A text that is None or empty is an option that is not set; then the result is None, too.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation, Overflow
from typing import Final

from pravega_wire.errors import InvalidArgumentError
from pravega_wire.support.checks import INT64_MAX, check_count, check_seconds

__all__ = ["byte_count", "count", "milliseconds", "seconds", "whole"]

_BYTES: Final = {"": 1, "b": 1} | {
    f"{kind}{b}": 1024**power for power, kind in enumerate("kmgtp", 1) for b in ("", "b")
}
"""The suffixes of sizes in Spark's own settings: all of them are powers of 1024."""

_MICROSECONDS: Final = {
    name: size
    for names, size in (
        ("us", 1),
        ("ms msec msecs millisecond milliseconds", 10**3),
        ("s sec secs second seconds", 10**6),
        ("m min mins minute minutes", 60 * 10**6),
        ("h hour hours", 3600 * 10**6),
        ("d day days", 86400 * 10**6),
    )
    for name in names.split()
}

_WHOLE: Final = re.compile(r"-?[0-9]+")

_QUANTITY: Final = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?)\s*([a-z]+)")


def whole(text: str) -> int:
    """Return the whole number in a text; unlike ``int``, it takes no other digits than 0 to 9, and no ``_``.

    :raises ValueError: it is not a whole number.
    """
    if _WHOLE.fullmatch(text.strip()) is None:
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def count(name: str, text: str | None, lowest: int = 1, highest: int = INT64_MAX) -> int | None:
    """Return the whole number in an option's text.

    :raises InvalidArgumentError: it is not a whole number, or out of range.
    """
    if not text:
        return None
    try:
        number = whole(text)
    except ValueError:
        raise InvalidArgumentError(f"option {name!r}: {text!r} is not a whole number") from None
    return check_count(f"option {name!r}", number, lowest, highest)


def byte_count(name: str, text: str | None, lowest: int = 1, highest: int = INT64_MAX) -> int | None:
    """Return the number of bytes in an option's text, such as ``65536``, ``64k`` or ``1g``.

    :raises InvalidArgumentError: it is not a whole number of bytes, or out of range.
    """
    if not text:
        return None
    number, suffix = _parts(text)
    try:
        size = whole(number) * _BYTES[suffix]
    except (ValueError, KeyError):
        raise InvalidArgumentError(
            f"option {name!r}: {text!r} is not a whole number of bytes, such as 65536, 64k, 10m or 1g"
        ) from None
    return check_count(f"option {name!r}", size, lowest, highest, "bytes")


def seconds(name: str, text: str | None, *, zero: bool = False, unit_required: bool = False) -> float | None:
    """Return the time in an option's text in seconds: ``30s``, ``5 minutes``, or a number of seconds.

    :param name: name of the option.
    :param text: its text.
    :param zero: whether 0 is allowed.
    :param unit_required: whether a number alone is refused.
    :raises InvalidArgumentError: it is not such a time, or out of range.
    """
    if not text:
        return None
    value = _microseconds(text, None if unit_required else 10**6)
    if value is None:
        wrong = "a time with a unit, such as" if unit_required else "a number of seconds, or a time such as"
        raise InvalidArgumentError(f"option {name!r}: {text!r} is not {wrong} 30s or 5 minutes")
    return check_seconds(f"option {name!r}", float(value / 10**6), zero=zero)


def milliseconds(name: str, text: str | None, lowest: int = 1, highest: int = INT64_MAX) -> int | None:
    """Return the time in an option's text in milliseconds: ``30s``, ``5 minutes``, or a number of
    milliseconds.

    :raises InvalidArgumentError: it is not such a time, or out of range.
    """
    if not text:
        return None
    value = _microseconds(text, 10**3)
    if value is None or not value.is_finite() or value % 1000:
        raise InvalidArgumentError(
            f"option {name!r}: {text!r} is not a whole number of milliseconds, or a time such as 30s or "
            "5 minutes"
        )
    return check_count(f"option {name!r}", int(value) // 1000, lowest, highest, "milliseconds")


def _parts(text: str) -> tuple[str, str]:
    found = _QUANTITY.fullmatch(text.strip().lower())
    return (text, "") if found is None else (found[1], found[2])


def _microseconds(text: str, bare: int | None) -> Decimal | None:
    """Return a time in microseconds; None if the text is not a time."""
    number, unit = _parts(text)
    size = _MICROSECONDS.get(unit) if unit else bare
    # Spark knows neither 1_0 nor the digits of other scripts.
    if size is None or "_" in number or not number.isascii():
        return None
    try:
        value = Decimal(number) * size
    except (InvalidOperation, Overflow):
        return None
    # Numbers beyond this are calculated no longer exactly, or not at all.
    return None if value.is_finite() and abs(value) > 10**27 else value
