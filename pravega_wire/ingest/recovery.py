"""Decides what to do with the transaction of the last record after a failure."""

from __future__ import annotations

from enum import Enum

from pravega_wire.controller.types import TxnStatus
from pravega_wire.ingest.state import Phase

__all__ = ["Action", "decide"]


class Action(Enum):
    """How ingestion continues."""

    REDO = "begin with the record's part"
    ABORT_AND_REDO = "abort the transaction, then begin with the record's part"
    COMMIT_AND_GO_ON = "commit the transaction, then begin with the next part"
    GO_ON = "begin with the next part"
    STOP = "the outcome is unknown"


def decide(phase: Phase, status: TxnStatus) -> Action:
    """Return the action for a record and the status of its transaction.

    Without an end record a transaction may contain only some of its data, so it is aborted if it is open.
    With an end record it contains all its data. If the server has no record of the transaction, an end record
    does not help: the transaction may have been committed, or aborted when its lease expired. Only a record
    of the commit decides that.

    After a transaction that is still COMMITTING, the next part may be prepared. It is recorded and written
    only when that transaction is COMMITTED, which a 0.13.0 controller does not guarantee to happen:
    ``Engine`` waits for it.
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
