"""The records of a state synchronizer's stream (``docs/protocol/formats.md``, "State synchronizer records").

Each event holds either one initial state or a list of updates that were written together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pravega_wire.errors import DecodeError, TruncatedInputError

__all__ = ["InitialRecord", "UpdateRecord", "decode_state_record"]

_INITIAL = 1
_UPDATES = 2


@dataclass(frozen=True, slots=True)
class InitialRecord:
    """An initial state: records before it are not needed.

    :ivar data: the serialized initial state. Records of the Java client may have zero bytes after it.
    """

    data: bytes

    def encode(self) -> bytes:
        """Return the payload of the event."""
        return _INITIAL.to_bytes(4, "big") + self.data


@dataclass(frozen=True, slots=True)
class UpdateRecord:
    """Updates that are applied one after the other.

    :ivar updates: the serialized updates.
    """

    updates: Sequence[bytes]

    def encode(self) -> bytes:
        """Return the payload of the event."""
        parts = [_UPDATES.to_bytes(4, "big")]
        for update in self.updates:
            parts += (len(update).to_bytes(4, "big"), update)
        return b"".join(parts)


def decode_state_record(payload: bytes) -> InitialRecord | UpdateRecord:
    """Decode the record in an event's payload.

    :raises DecodeError: it is neither of the two records, or it is truncated.
    """
    if len(payload) < 4:
        raise TruncatedInputError(f"a state record of {len(payload)} bytes is too short: it has at least 4")
    kind = int.from_bytes(payload[:4], "big")
    if kind == _INITIAL:
        return InitialRecord(payload[4:])
    if kind != _UPDATES:
        raise DecodeError(f"a state record is of kind {_INITIAL} or {_UPDATES}, not {kind}")
    updates = []
    position = 4
    while position < len(payload):
        start = position + 4
        size = int.from_bytes(payload[position:start], "big", signed=True)
        if size < 0 or start + size > len(payload):
            raise TruncatedInputError(
                f"an update of {size} bytes is announced, and {len(payload) - start} are left"
            )
        updates.append(payload[start : start + size])
        position = start + size
    return UpdateRecord(tuple(updates))
