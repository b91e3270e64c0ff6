"""What to do with the transaction of the last record, after whatever happened: one table."""

from __future__ import annotations

from enum import Enum

from pravega_wire.controller.types import TxnStatus
from pravega_wire.ingest.state import Phase

__all__ = ["Action", "decide"]


class Action(Enum):
    """How ingestion goes on."""

    REDO = "begin with the record's part"
    ABORT_AND_REDO = "abort the transaction, then begin with the record's part"
    COMMIT_AND_GO_ON = "commit the transaction, then begin with the next part"
    GO_ON = "begin with the next part"
    STOP = "nobody can tell"


def decide(phase: Phase, status: TxnStatus) -> Action:
    """The action for a record and its transaction's status.

    A transaction without an end record may hold a part of its data only, so an open one is aborted; one with
    an end record holds all of it. An end record does not help with a transaction that the server has
    forgotten: it may have been committed, or aborted when its lease ran out. Only a record of the commit
    does.

    After a transaction that is only COMMITTING the next part may be begun. It is recorded and written when
    that transaction is COMMITTED, which a 0.13.0 controller does not promise: ``Engine`` waits for it.
    """
    if phase is Phase.NOTHING:
        return Action.REDO
    if phase is Phase.DONE:
        return Action.GO_ON
    if status is TxnStatus.OPEN:
        return Action.COMMIT_AND_GO_ON if phase is Phase.ENDED else Action.ABORT_AND_REDO
    if status in (TxnStatus.ABORTING, TxnStatus.ABORTED):
        return Action.REDO
    if status in (TxnStatus.COMMITTING, TxnStatus.COMMITTED):
        return Action.GO_ON
    return Action.STOP
