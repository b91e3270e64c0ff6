"""The records of a state synchronizer's stream (client formats v0.13.0, "StateSynchronizer records").

Each event holds either one initial state or a list of updates, that were written together.
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
    """A state from which on nothing before matters.

    :ivar data: the serialized initial state. Records of the Java client may have zero bytes after it.
    """

    data: bytes

    def encode(self) -> bytes:
        """The event's payload."""
        return _INITIAL.to_bytes(4, "big") + self.data


@dataclass(frozen=True, slots=True)
class UpdateRecord:
    """Serialized updates, applied one after the other."""

    updates: Sequence[bytes]

    def encode(self) -> bytes:
        """The event's payload."""
        parts = [_UPDATES.to_bytes(4, "big")]
        for update in self.updates:
            parts += (len(update).to_bytes(4, "big"), update)
        return b"".join(parts)


def decode_state_record(payload: bytes) -> InitialRecord | UpdateRecord:
    """The record in an event's payload.

    :raises DecodeError: neither of the two, or cut off.
    """
    if len(payload) < 4:
        raise TruncatedInputError(f"a state record has at least 4 bytes, not {len(payload)}")
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
            raise TruncatedInputError(f"an update of {size} bytes does not fit in {len(payload) - start}")
        updates.append(payload[start : start + size])
        position = start + size
    return UpdateRecord(tuple(updates))
