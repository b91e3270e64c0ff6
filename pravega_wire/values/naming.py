"""Names and ids of streams and segments; ``docs/protocol/wire.md``, "Names of segments", has the rules.

Not public.
"""

from __future__ import annotations

import re
from typing import Final
from uuid import UUID

from pravega_wire.errors import InvalidArgumentError, Names
from pravega_wire.support.checks import INT32_MAX

__all__ = [
    "TABLE_SUFFIX",
    "epoch_of",
    "generalized_segment_id",
    "names_of",
    "number_of",
    "parse_segment_name",
    "segment_id",
    "segment_name",
    "transaction_segment_name",
    "validate_scope_name",
    "validate_user_name",
]

TABLE_SUFFIX: Final = "_kvtable"
"""The suffix of a key-value table's name in the names of its segments."""

_USER_NAME = re.compile(r"[A-Za-z0-9.\-]+\Z")
_INTERNAL_NAME = re.compile(r"_?[A-Za-z0-9.\-]+\Z")
# Each stream has a stream of watermarks, including the internal stream with a reader group's state.
_STREAM_NAME = re.compile(r"(?:_MARK)?_?[A-Za-z0-9.\-]+\Z")
_MAX_USER_NAME = 250
_MAX_SCOPE_NAME = 255
_MAX_INTERNAL_NAME = len("_MARK_RG") + _MAX_USER_NAME


def _check(kind: str, name: str, pattern: re.Pattern[str], longest: int) -> str:
    if not isinstance(name, str):
        raise InvalidArgumentError(f"the {kind} name must be a string, not {type(name).__name__}")
    if not name:
        raise InvalidArgumentError(f"the {kind} name is empty")
    if len(name) > longest:
        raise InvalidArgumentError(
            f"the {kind} name {name[:40]!r}... has {len(name)} characters; the limit is {longest}"
        )
    if not pattern.match(name):
        raise InvalidArgumentError(
            f"the {kind} name {name!r} has illegal characters; use letters, digits, '.' and '-' only"
        )
    # Python writes a member of an enum of strings into a text as its name, not as the string that it is.
    return str.__str__(name)


def validate_user_name(kind: str, name: str) -> str:
    """Check the name of a user's stream, table, reader group, reader or writer.

    :param kind: what the name is for, for the message.
    :param name: the name.
    :returns: the name.
    :raises InvalidArgumentError: the name is empty, longer than 250 characters, or has characters other than
        letters, digits, ``.`` and ``-``.
    """
    return _check(kind, name, _USER_NAME, _MAX_USER_NAME)


def validate_scope_name(name: str, *, new: bool = False) -> str:
    """Check a scope name (at most 255 characters; internal scopes begin with ``_``).

    :param new: whether the scope is to be created. Then it may not be an internal one, which a 0.13.0
        controller would create.
    """
    return _check("scope", name, _USER_NAME if new else _INTERNAL_NAME, _MAX_SCOPE_NAME)


def validate_stream_name(name: str, kind: str = "stream") -> str:
    """Check the name of a user's stream, or of an internal one (which begins with ``_``).

    :param kind: what the name is for, for the message.
    """
    is_internal = isinstance(name, str) and name.startswith("_")
    longest = _MAX_INTERNAL_NAME if is_internal else _MAX_USER_NAME
    return _check(kind, name, _STREAM_NAME, longest)


def segment_id(epoch: int, number: int) -> int:
    """Return the id of a segment.

    :param epoch: the epoch in which the segment was created.
    :param number: the segment's number, unique in its stream.
    :raises InvalidArgumentError: a number does not fit.
    """
    if not (0 <= epoch <= INT32_MAX and 0 <= number <= INT32_MAX):
        raise InvalidArgumentError(
            f"epoch {epoch} and segment number {number} must be between 0 and {INT32_MAX}"
        )
    return (epoch << 32) | number


def epoch_of(segment_id: int) -> int:
    """Return the epoch in which a segment was created."""
    return segment_id >> 32


def number_of(segment_id: int) -> int:
    """Return the number of a segment, unique in its stream."""
    return segment_id & 0xFFFFFFFF


def segment_name(scope: str, stream: str, segment_id: int) -> str:
    """Return the full name of a segment: ``scope/stream/<number>.#epoch.<epoch>``."""
    return f"{scope}/{stream}/{number_of(segment_id)}.#epoch.{epoch_of(segment_id)}"


def generalized_segment_id(segment_id: int, txn_id: UUID) -> int:
    """Return a segment's id with its epoch replaced by that of a transaction.

    Transaction segments are named after this id (``docs/protocol/controller.md``, "Generalized segment ids").
    """
    return ((txn_id.int >> 96) << 32) | number_of(segment_id)


def transaction_segment_name(parent: str, txn_id: UUID) -> str:
    """Return the name of the transaction segment that belongs to the segment ``parent``."""
    return f"{parent}#transaction.{txn_id.hex}"


_SEGMENT = re.compile(
    r"(?P<scope>[^/]+)/(?P<stream>[^/]+)/(?P<number>[0-9]{1,10})(?:\.#epoch\.(?P<epoch>[0-9]{1,10}))?"
    r"(?:#transaction\.(?P<txn>[0-9a-f]{32})|#transient\.[0-9a-f]{32}\.[0-9a-f]{32})?\Z"
)


def parse_segment_name(name: str) -> tuple[str, str, int, UUID | None]:
    """Split a full segment name into scope, stream, segment id and transaction id (or None).

    For a transaction segment or a transient segment, the segment id is that of its parent.

    :raises InvalidArgumentError: the text is not the full name of a stream segment.
    """
    if not isinstance(name, str):
        raise InvalidArgumentError(f"the name of a segment must be a string, not {type(name).__name__}")
    match = _SEGMENT.match(name)
    if match is None:
        raise InvalidArgumentError(f"{name!r} is not the full name of a stream segment")
    txn = match["txn"]
    return (
        match["scope"],
        match["stream"],
        segment_id(int(match["epoch"] or 0), int(match["number"])),
        None if txn is None else UUID(txn),
    )


def names_of(segment: str | None) -> Names:
    """Return what an error about a segment has: its name, and scope and stream if it is one of a stream."""
    try:
        scope, stream, _, _ = parse_segment_name(segment or "")
    except InvalidArgumentError:
        return {"segment": segment}
    return {"scope": scope, "stream": stream, "segment": segment}
