"""Checks of arguments and settings that many places share: each names what is wrong, and what is wanted.

Not public.
"""

from __future__ import annotations

import math
import operator
from typing import Any, Final
from uuid import UUID

from pravega_wire.errors import InvalidArgumentError

__all__ = [
    "INT32_MAX",
    "INT64_MAX",
    "MAX_LEASE_MS",
    "MIN_LEASE_MS",
    "check_bytes",
    "check_count",
    "check_event_time",
    "check_flag",
    "check_lease",
    "check_seconds",
    "check_text",
    "check_uuid",
]

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

# Leases of transactions that a server with default limits accepts.
MIN_LEASE_MS: Final = 10_000
MAX_LEASE_MS: Final = 600_000


def check_count(name: str, value: object, lowest: int = 1, highest: int = INT64_MAX, unit: str = "") -> int:
    """``value``, which must be a whole number from ``lowest`` to ``highest``; True and False are not numbers.

    :param name: of the argument or setting. :param unit: of the number, for the message (``"bytes"``).
    :raises InvalidArgumentError: it is something else.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or not lowest <= number <= highest:
        limits = f"from {lowest}" + ("" if highest == INT64_MAX else f" to {highest}")
        of = f" of {unit}" if unit else ""
        raise InvalidArgumentError(f"{name} must be a whole number{of} {limits}, not {_shown(value)}")
    return number


def check_bytes(name: str, value: object) -> int:
    """``value``, which must be a whole number of bytes over 0.

    :raises InvalidArgumentError: it is not.
    """
    return check_count(name, value, unit="bytes")


def check_seconds(name: str, value: object, *, zero: bool = False, infinite: bool = False) -> float:
    """``value``, which must be a finite number of seconds over 0.

    :param zero: 0 is allowed as well. :param infinite: so is infinity.
    :raises InvalidArgumentError: it is not.
    """
    number = -1.0 if isinstance(value, bool) or not isinstance(value, int | float) else value
    # Of NaN every comparison is false.
    if (number >= 0 if zero else number > 0) and (infinite or number < math.inf):
        return number
    finite, limit = "" if infinite else "finite ", "from" if zero else "over"
    raise InvalidArgumentError(f"{name} must be a {finite}number of seconds {limit} 0, not {_shown(value)}")


def check_flag(name: str, value: object) -> bool:
    """``value``, which must be True or False: a text such as ``"false"`` would count as true.

    :raises InvalidArgumentError: it is neither.
    """
    if not isinstance(value, bool):
        raise InvalidArgumentError(f"{name} must be True or False, not {_shown(value)}")
    return value


def check_text(name: str, value: object) -> str:
    """``value``, which must be a string that is not empty and can be encoded.

    :raises InvalidArgumentError: it is not.
    """
    if not isinstance(value, str) or not value:
        raise InvalidArgumentError(f"{name} must be a string that is not empty, not {_shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidArgumentError(f"{name} holds half of a surrogate pair: {value!r}") from None
    return value


def check_uuid(name: str, value: object) -> UUID:
    """``value``, which must be a UUID; a text is not one yet.

    :raises InvalidArgumentError: it is not.
    """
    if not isinstance(value, UUID):
        raise InvalidArgumentError(f"{name} must be a UUID, not {_shown(value)}")
    return value


def check_event_time(name: str, value: object) -> int:
    """``value``, which must be a whole number of 64 bits; the lowest of them stands for no time.

    :raises InvalidArgumentError: it is not.
    """
    return check_count(name, value, -INT64_MAX)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def check_lease(lease_ms: int) -> None:
    """Refuse a transaction's lease, in milliseconds, that a server with default limits refuses."""
    check_count("lease_ms", lease_ms)
    if not MIN_LEASE_MS <= lease_ms <= MAX_LEASE_MS:
        raise InvalidArgumentError(
            f"lease_ms: a lease of {lease_ms} ms is not between {MIN_LEASE_MS} and {MAX_LEASE_MS} ms"
        )
