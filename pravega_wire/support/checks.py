"""Checks of arguments and settings, shared by many modules.

Each message names the argument and what it must be.

Not public.
"""

from __future__ import annotations

import json
import math
import operator
import os
from collections.abc import Iterable
from numbers import Number
from pathlib import Path
from typing import Any, Final, NoReturn
from uuid import UUID

from pravega_wire.errors import ArgumentTypeError, EncodeError, InvalidArgumentError

__all__ = [
    "INT32_MAX",
    "INT64_MAX",
    "MAX_LEASE_MS",
    "MIN_LEASE_MS",
    "check_buffer",
    "check_bytes",
    "check_callable",
    "check_count",
    "check_event_time",
    "check_flag",
    "check_lease",
    "check_path",
    "check_payload",
    "check_seconds",
    "check_serializer",
    "check_several",
    "check_takes_times",
    "check_text",
    "check_type",
    "check_uuid",
    "milliseconds",
    "read_json",
    "refuse_constant",
    "shown",
]

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

# The limits for a transaction's lease on a server with default settings.
MIN_LEASE_MS: Final = 10_000
MAX_LEASE_MS: Final = 600_000


def check_count(name: str, value: object, lowest: int = 1, highest: int = INT64_MAX, unit: str = "") -> int:
    """Check that ``value`` is a whole number from ``lowest`` to ``highest``, and return it.

    True and False do not count as numbers.

    :param name: name of the argument or setting, for the message.
    :param value: the value to check.
    :param lowest: smallest value allowed.
    :param highest: largest value allowed.
    :param unit: unit of the number, for the message (``"bytes"``).
    :raises InvalidArgumentError: the value is not such a number.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or not lowest <= number <= highest:
        # Nobody asks for the largest number of 64 bits, unless the value exceeds it.
        is_plain = highest == INT64_MAX and (number is None or number <= highest)
        limits = f"from {lowest}" + ("" if is_plain else f" to {highest}")
        of = f" of {unit}" if unit else ""
        raise InvalidArgumentError(f"{name} must be a whole number{of} {limits}, not {shown(value)}")
    return number


def check_bytes(name: str, value: object) -> int:
    """Check that ``value`` is a positive whole number of bytes, and return it.

    :raises InvalidArgumentError: it is not.
    """
    return check_count(name, value, unit="bytes")


def check_seconds(
    name: str, value: object, *, zero: bool = False, infinite: bool = False, negative: bool = False
) -> float:
    """Check that ``value`` is a finite, positive number of seconds, and return it.

    :param name: name of the argument or setting, for the message.
    :param value: the value to check.
    :param zero: whether 0 is allowed.
    :param infinite: whether infinity is allowed.
    :param negative: whether negative numbers are allowed.
    :raises InvalidArgumentError: the value is not such a number.
    """
    number = math.nan if isinstance(value, bool) or not isinstance(value, int | float) else value
    try:
        float(number)
    except OverflowError:
        number = math.nan
    # Every comparison with NaN is false.
    high_enough = number > -math.inf if negative else number >= 0 if zero else number > 0
    if high_enough and (infinite or number < math.inf):
        return number
    finite = "" if infinite else "finite "
    limit = "" if negative else " of at least 0" if zero else " greater than 0"
    raise InvalidArgumentError(f"{name} must be a {finite}number of seconds{limit}, not {shown(value)}")


def check_flag(name: str, value: object) -> bool:
    """Check that ``value`` is True or False, and return it: a text such as ``"false"`` would count as true.

    :raises InvalidArgumentError: it is neither.
    """
    if not isinstance(value, bool):
        raise InvalidArgumentError(f"{name} must be True or False, not {shown(value)}")
    return value


def check_callable(name: str, value: object) -> None:
    """Check that ``value`` can be called.

    :raises ArgumentTypeError: it cannot.
    """
    if not callable(value):
        raise ArgumentTypeError(f"{name} must be a function, not {shown(value)}")


def check_type(name: str, value: object, kind: type) -> None:
    """Check that ``value`` is an object of a class.

    :raises ArgumentTypeError: it is not.
    """
    if not isinstance(value, kind):
        raise ArgumentTypeError(f"{name} must be of the class {kind.__name__}, not {shown(value)}")


def check_several(name: str, value: object) -> None:
    """Check that ``value`` can be iterated over and is more than one thing, without iterating over it.

    A string or bytes is one thing: its letters or numbers are never meant.

    :param name: name of the argument, for the message.
    :raises ArgumentTypeError: it is not.
    """
    one = isinstance(value, str | bytes | bytearray | memoryview)
    try:
        # A number of numpy has __getitem__.
        several = not one and (hasattr(value, "__iter__") or iter(value) is not None)  # type: ignore[call-overload]
    except TypeError:
        several = False
    if not several:
        hint = ": put a single one into a list" if one else ""
        raise ArgumentTypeError(f"{name} must be an iterable, not {type(value).__name__}{hint}")


def check_path(name: str, value: object) -> Path:
    """Check that ``value`` is a path or its text, and return it as a path.

    :raises ArgumentTypeError: it is neither.
    """
    if not isinstance(value, str | os.PathLike):
        raise ArgumentTypeError(f"{name} must be a path, not {shown(value)}")
    return Path(value)


def check_text(name: str, value: object) -> str:
    """Check that ``value`` is a non-empty string that UTF-8 can encode, and return it.

    :raises InvalidArgumentError: it is not.
    """
    if not isinstance(value, str) or not value:
        raise InvalidArgumentError(f"{name} must be a non-empty string, not {shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidArgumentError(
            f"{name} cannot be encoded as UTF-8, because it contains an unpaired surrogate: {value!r}"
        ) from None
    return value


def check_uuid(name: str, value: object) -> UUID:
    """Check that ``value`` is a UUID object (not its text), and return it.

    :raises InvalidArgumentError: it is not.
    """
    if not isinstance(value, UUID):
        raise InvalidArgumentError(f"{name} must be a UUID, not {shown(value)}")
    return value


def check_serializer(name: str, value: object) -> None:
    """Check that ``value`` has the two methods of a serializer, and is not its class.

    :raises ArgumentTypeError: it is no serializer, or a class.
    """
    if not all(callable(getattr(value, each, None)) for each in ("serialize", "deserialize")):
        raise ArgumentTypeError(
            f"{name} must be a serializer, with the methods serialize and deserialize, not {shown(value)}"
        )
    if isinstance(value, type):
        raise ArgumentTypeError(f"{name} must be an instance: write {value.__name__}()")


def check_payload(what: str, data: object) -> bytes:
    """Return what a serializer has made as bytes.

    The length of another buffer counts its items, which may have several bytes.

    :param what: what was serialized, for the message (``"stream a/b: a value"``).
    :param data: the result of the serializer.
    :raises EncodeError: it is neither bytes nor another buffer.
    """
    found = _bytes_of(data)
    if found is None:
        raise EncodeError(
            f"{what} must be serialized to bytes, but its serializer returned {type(data).__name__}"
        )
    return found


def check_buffer(data: object, what: str = "a payload") -> bytes:
    """Return an argument as bytes.

    :param data: by default a payload that is to be deserialized.
    :param what: what it is, for the message.
    :raises ArgumentTypeError: it is neither bytes nor another buffer.
    :raises InvalidArgumentError: it is a memoryview that has been released.
    """
    try:
        found = _bytes_of(data)
    except ValueError as error:
        raise InvalidArgumentError(f"{what} is a memoryview that has been released") from error
    if found is None:
        raise ArgumentTypeError(f"{what} must be bytes, not {type(data).__name__}")
    return found


def _bytes_of(data: object) -> bytes | None:
    """Return the bytes of a buffer, or None for anything else: ``bytes(5)`` would be five zeros.

    The strings and numbers of numpy are buffers as well, but nobody means how they lie in memory.
    """
    if type(data) is bytes:
        return data
    if isinstance(data, str | Number):
        return None
    try:
        return memoryview(data).tobytes()  # type: ignore[arg-type]
    except TypeError:
        return None


def check_event_time(value: object, name: str = "timestamp") -> int:
    """Check that an argument is an event time, and return it.

    An event time is an int64 other than the smallest, which means "none".

    :raises InvalidArgumentError: it is not.
    """
    return check_count(name, value, -INT64_MAX)


def check_takes_times(stream: object, highs: Iterable[float]) -> None:
    """Refuse to report a time for a stream of which a controller could never make a watermark.

    See ``docs/protocol/unforgiving.md``, "Times in a stream whose keys end below 1".

    :param highs: where the keys of its active segments end.
    :raises InvalidArgumentError: the keys end below 1.
    """
    end = max(highs, default=1.0)
    if end < 1.0:
        raise InvalidArgumentError(
            f"the event times of stream {stream} cannot be reported: its keys end at {end}, and a controller "
            "would look for the rest, up to 1, for ever, and keep a processor busy. Use a stream that has "
            "another number of segments"
        )


def shown(value: Any) -> str:
    """A value for a message, shortened."""
    try:
        text = repr(value)
    except ValueError:
        # Python does not write out a number of thousands of digits.
        text = f"{type(value).__name__} with too many digits"
    except Exception:  # the error of somebody's class would hide the one that is reported
        text = f"{type(value).__name__} without a text"
    return text if len(text) <= 60 else f"{text[:57]}..."


def milliseconds(seconds: float) -> int:
    """Return a duration as the protocols have it: whole milliseconds in an int64."""
    return round(max(-INT64_MAX, min(INT64_MAX, seconds * 1000)))


def check_lease(lease: float) -> int:
    """Check a transaction's lease in seconds against the limits of a server with default settings.

    :returns: the lease in milliseconds.
    :raises InvalidArgumentError: it is not within the limits.
    """
    found = milliseconds(check_seconds("lease", lease))
    if not MIN_LEASE_MS <= found <= MAX_LEASE_MS:
        raise InvalidArgumentError(
            f"lease must be from {MIN_LEASE_MS // 1000} to {MAX_LEASE_MS // 1000} seconds, not {lease:g}"
        )
    return found


def _finite(text: str) -> float:
    found = float(text)
    if math.isinf(found):
        short = text if len(text) <= 40 else f"{text[:40]}..."
        raise ValueError(f"the number {short} is too large for a float")
    return found


def refuse_constant(text: str) -> NoReturn:
    """The ``parse_constant`` of decoders of JSON: Python would read NaN and Infinity, which JSON has not."""
    raise ValueError(f"{text} is not a number of JSON")


_JSON: Final = json.JSONDecoder(parse_float=_finite, parse_constant=refuse_constant)


def read_json(text: str) -> Any:
    """Return the value of a JSON text; a number that is too large for a float does not become infinity.

    :raises ValueError: the text is not JSON, or has such a number, or one of NaN and Infinity.
    :raises RecursionError: the value is nested too deeply.
    """
    return _JSON.decode(text)
