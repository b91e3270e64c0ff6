"""The lease of an open transaction, renewed in the background."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
import trio
import trio.testing

from pravega_wire import ScopedStream
from pravega_wire.controller.types import PingStatus
from pravega_wire.errors import (
    ConnectionLostError,
    PravegaTimeoutError,
    TransactionError,
    TransactionExpiredError,
    TransactionNotOpenError,
    TransactionUnknownError,
)
from pravega_wire.stream.transaction import Transaction
from pravega_wire.transport.limits import Leaving


class Controller:
    """Gives the answers in turn, the last one again and again."""

    def __init__(self, *answers: PingStatus | Exception) -> None:
        self.answers = list(answers)
        self.pings = 0

    async def ping_transaction(self, scope: str, stream: str, txn_id: object, lease: float) -> PingStatus:
        await trio.lowlevel.checkpoint()
        self.pings += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def pings_in_a_minute(controller: Controller) -> tuple[int, TransactionError | None]:
    """The number of times that a lease of 16 s is renewed, and the error that ended that."""

    async def main() -> tuple[int, TransactionError | None]:
        async with trio.open_nursery() as nursery:
            core: Any = SimpleNamespace(
                nursery=nursery, controller=controller, check_open=lambda: None, check_run=lambda: None
            )
            transaction = Transaction(core, ScopedStream("s", "t"), uuid4(), (), 16)
            await trio.sleep(61)
            await transaction.aclose()
        return controller.pings, transaction._lost

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize(
    "answer",
    [
        PingStatus.DISCONNECTED,
        PingStatus.LEASE_TOO_LARGE,
        PingStatus.MAX_EXECUTION_TIME_EXCEEDED,
        ConnectionLostError("not now"),
    ],
    ids=str,
)
def test_a_refused_renewal_is_tried_again(answer: PingStatus | Exception) -> None:
    assert pings_in_a_minute(Controller(PingStatus.OK, answer, PingStatus.OK)) == (15, None)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (PingStatus.COMMITTED, TransactionNotOpenError),
        (PingStatus.ABORTED, TransactionExpiredError),
        (PingStatus.UNKNOWN, TransactionUnknownError),
    ],
)
def test_a_transaction_that_has_ended_is_renewed_no_more(
    answer: PingStatus, kind: type[TransactionError]
) -> None:
    pings, lost = pings_in_a_minute(Controller(PingStatus.OK, answer))
    assert pings == 2
    assert isinstance(lost, kind)


@pytest.mark.parametrize("failed", [False, True])
def test_leaving_the_block_says_that_the_abort_was_not_answered(failed: bool) -> None:
    class SilentController(Controller):
        async def abort_transaction(self, scope: str, stream: str, txn_id: object) -> bool:
            await trio.sleep_forever()
            raise AssertionError

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            core: Any = SimpleNamespace(
                nursery=nursery,
                controller=SilentController(PingStatus.OK),
                check_open=lambda: None,
                check_run=lambda: None,
                config=SimpleNamespace(operation_timeout=120.0),
                leaving=Leaving(120.0),
            )
            async with Transaction(core, ScopedStream("s", "t"), uuid4(), (), 16):
                if failed:
                    raise KeyError("the program's own")

    kind, what = (KeyError, "own") if failed else (PravegaTimeoutError, "aborting transaction .* on s/t")
    with pytest.RaisesGroup(pytest.RaisesExc(kind, match=what)):
        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
