"""The command ``txn``: list, look at and abort transactions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from pravega_wire.cli.common import AbsentError
from pravega_wire.cli.frame import STREAM, Session, WireGroup, confirm, passed, yes_option
from pravega_wire.cli.output import Column
from pravega_wire.cli.values import duration_text
from pravega_wire.controller.types import TxnStatus

if TYPE_CHECKING:
    from pravega_wire.stream.client import PravegaClient
    from pravega_wire.stream.open_transactions import OpenTransaction

__all__ = ["COMMAND"]


@click.group(
    cls=WireGroup,
    help="List, look at and abort transactions. Neither events nor positions tell about open transactions: "
    "what is in them becomes visible when they are committed.",
)
def COMMAND() -> None:
    pass


@COMMAND.command(
    "list",
    help="List the open transactions of a stream: when they began, and how long their leases last. This "
    "reads the controller's own tables: an administrator may, and everybody where authorization is off. "
    "With --completed it lists the outcomes that the controller still remembers: at most 500, and one of "
    "0.13.0 none once transactions of a second stream have ended. The status of each is known for a day.",
    examples=("pravega-wire txn list demo/readings", "pravega-wire txn list demo/readings --completed"),
)
@click.argument("name", metavar="STREAM", type=STREAM)
@click.option("--completed", is_flag=True, help="list completed transactions instead of open ones")
@passed
def list_(session: Session, name: str, completed: bool) -> None:
    stream = session.resolved.config.resolve(name)
    if completed:

        async def look(client: PravegaClient) -> dict[UUID, TxnStatus]:
            # The controller's list of a stream that does not exist is empty.
            await client.stream_config(stream)
            return await client.completed_transactions(stream)

        outcomes = session.call(look)
        session.out.rows(
            [{"transaction": str(each), "status": status} for each, status in outcomes.items()],
            [Column("transaction", "TRANSACTION"), Column("status", "STATUS")],
        )
        return

    found = session.call(lambda client: client.open_transactions(stream))
    now = datetime.now(UTC)
    session.out.rows(
        [_row(each, now) for each in found],
        [
            Column("transaction", "TRANSACTION"),
            Column("status", "STATUS"),
            Column("began", "BEGAN", "time"),
            Column("age_seconds", "AGE", show=duration_text),
            Column("lease_seconds", "LEASE LEFT", show=duration_text),
        ],
    )


def _row(each: OpenTransaction, now: datetime) -> dict[str, Any]:
    return {
        "transaction": str(each.txn_id),
        "status": each.status,
        "began": round(each.began.timestamp() * 1000),
        "lease_until": round(each.lease_until.timestamp() * 1000),
        "ends_by": round(each.ends_by.timestamp() * 1000),
        "age_seconds": round(max(0.0, (now - each.began).total_seconds()), 3),
        "lease_seconds": round((each.lease_until - now).total_seconds(), 3),
    }


@COMMAND.command(
    "status",
    help="Print the state of a transaction: open, committing, committed, aborting or aborted.",
    examples=("pravega-wire txn status demo/readings 00000000-0000-0000-0000-00000000002a",),
)
@click.argument("name", metavar="STREAM", type=STREAM)
@click.argument("transaction", type=click.UUID, metavar="ID")
@passed
def status(session: Session, name: str, transaction: UUID) -> None:
    found = session.call(lambda client: client.transaction_status(name, transaction))
    if found is TxnStatus.UNKNOWN:
        raise AbsentError(f"the controller has no record of transaction {transaction} on stream {name}")
    session.out.did(found.name.lower(), {"transaction": str(transaction), "status": found})


@COMMAND.command(
    "abort",
    help="Abort open transactions: their events are discarded, and what wrote them fails.",
    examples=("pravega-wire txn abort demo/readings 00000000-0000-0000-0000-00000000002a --yes",),
)
@click.argument("name", metavar="STREAM", type=STREAM)
@click.argument("ids", type=click.UUID, metavar="ID...", nargs=-1, required=True)
@yes_option
@passed
def abort(session: Session, name: str, ids: tuple[UUID, ...], yes: bool) -> None:
    confirm(f"Abort transaction {', '.join(map(str, ids))} on stream {name}?", yes=yes)

    async def work(client: PravegaClient) -> None:
        for each in ids:
            await client.abort_transaction(name, each)
            session.out.did(f"transaction {each} is aborted", {"transaction": str(each), "aborted": True})

    session.call(work)
