"""Writers under faults: each event is stored once, in order, and every caller gets an answer.

``live`` runs the product's writers on a simulated stream (``append_simulation``). That it would notice a
fault is shown by putting some into :mod:`pravega_wire.protocol.append`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType, SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pravega_wire.protocol import append
from pravega_wire.protocol.append import Appends, Durable, Place, Resumed, Stored
from pravega_wire.segment import appender as appender_module
from pravega_wire.segment.appender import Ack
from pravega_wire.stream import routing as routing_module
from tests.property.append_simulation import Broken, live


@settings(max_examples=400, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_each_event_is_stored_once_in_order_whatever_happens(seed: int) -> None:
    live(seed)


# --- faults ---------------------------------------------------------------------------------------


class ResendsWhatIsStored(Appends[Ack]):
    """Takes the last stored number for the first that is missing."""

    def set_up(self, last: int, request_id: int, now: float) -> Resumed:
        return super().set_up(last - 1, request_id, now)


class TakesSentForStored(Appends[Ack]):
    """Believes after a reconnect that all it has sent has arrived."""

    def set_up(self, last: int, request_id: int, now: float) -> Resumed:
        return super().set_up(max(last, self._next_number), request_id, now)


class DoesNotResend(Appends[Ack]):
    """Waits after a reconnect for what the lost connection carried."""

    def set_up(self, last: int, request_id: int, now: float) -> Resumed:
        return super().set_up(last, request_id, now)._replace(frames=[])


class RestartsNumbers(Appends[Ack]):
    """Numbers the events of each connection from 1."""

    def set_up(self, last: int, request_id: int, now: float) -> Resumed:
        resumed = super().set_up(last, request_id, now)
        self._next_number = 0
        return resumed


class ForgetsToLeaveOut(Appends[Ack]):
    """Sends numbered events that another process with the same id has stored."""

    def leave_out(self, stored: Stored) -> list[Durable]:
        return []


class SettlesOneBlock(Appends[Ack]):
    """Takes an acknowledgement for that of one block, and forgets the blocks before it."""

    def _settle_through(self, number: int, now: float) -> list[Durable]:
        for block in [each for each in self._in_flight if each.last_number < number]:
            self._in_flight.remove(block)
            self._in_flight_bytes -= block.size
        return super()._settle_through(number, now)


class NeverAsksTheSealed(Appends[Ack]):
    """Moves everything unacknowledged to the successors, also what came into the sealed segment late."""

    @property
    def in_doubt(self) -> bool:
        return False


def backwards(ended: Iterable[Appends[Ack]], heir_of: Callable[[Place], Appends[Ack]]) -> None:
    """Hands newer blocks to the successors before older ones."""
    turned = [SimpleNamespace(unacknowledged=each.unacknowledged[::-1]) for each in ended]
    append.hand_over(cast("Any", turned), heir_of)


def forgetful(ended: Iterable[Appends[Ack]], heir_of: Callable[[Place], Appends[Ack]]) -> None:
    """Leaves the open block where it is."""
    left = [SimpleNamespace(unacknowledged=each.unacknowledged[:-1]) for each in ended]
    append.hand_over(cast("Any", left), heir_of)


FAULTS: list[tuple[ModuleType, str, Any]] = [
    (appender_module, "Appends", ResendsWhatIsStored),
    (appender_module, "Appends", TakesSentForStored),
    (appender_module, "Appends", DoesNotResend),
    (appender_module, "Appends", RestartsNumbers),
    (appender_module, "Appends", ForgetsToLeaveOut),
    (appender_module, "Appends", SettlesOneBlock),
    (appender_module, "Appends", NeverAsksTheSealed),
    (routing_module, "hand_over", backwards),
    (routing_module, "hand_over", forgetful),
]


@pytest.mark.parametrize(
    ("module", "name", "fault"), FAULTS, ids=lambda each: getattr(each, "__name__", None)
)
def test_a_fault_is_found(module: object, name: str, fault: object) -> None:
    with patch.object(module, name, fault), pytest.raises(Broken):
        for seed in range(400):
            live(seed)
