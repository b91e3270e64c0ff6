"""What ``pravega-wire doctor`` says about ledgers: the batches of each sink, and what its next run does.

The command finds :func:`examine` by an entry point of the group ``pravega_wire.doctor``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, Literal, TypeAlias

from pravega_wire import PravegaClient, ScopedStream
from pravega_wire.errors import PravegaError, PravegaTimeoutError, TransportError
from spark_adapter.exactly_once.ledger import (
    LedgerState,
    Record,
    Resume,
    SinkKey,
    SinkState,
    TxnOutcome,
    decide,
    decode_record,
)

__all__ = ["Verdict", "examine"]

Verdict: TypeAlias = Literal["ok", "warning", "problem"]

_OUTCOMES: Final[dict[TxnOutcome, tuple[Verdict, str]]] = {
    TxnOutcome.COMMIT: ("warning", "the next run commits it"),
    TxnOutcome.WAIT: ("ok", "it is being committed; the next run only waits for it"),
    TxnOutcome.REWRITE: ("warning", "it was aborted, so the next run writes the batch again"),
    TxnOutcome.EVIDENCE: (
        "warning",
        "the server has forgotten it, so the next run decides by what the stream contains",
    ),
}


async def examine(client: PravegaClient, ledger: ScopedStream) -> AsyncIterator[tuple[Verdict, str]]:
    """Look at a ledger, without changing it: a verdict and a sentence for each sink.

    :param client: an open client.
    :param ledger: the ledger stream.
    """
    try:
        sinks = LedgerState().after(*await _records(client, ledger)).sinks
        for key, sink in sinks.items():
            try:
                verdict, text = await _next_action(client, key, sink)
            except (TransportError, PravegaTimeoutError):
                # The others would have to wait as long.
                raise
            except PravegaError as error:
                verdict, text = "problem", error.message
            yield verdict, f"{key}: {text}"
        if not sinks:
            yield "ok", "it has no records"
    except PravegaError as error:
        yield "problem", error.message


async def _records(client: PravegaClient, ledger: ScopedStream) -> list[Record]:
    async with client.revisioned_stream(ledger) as log:
        async with await log.read_from(await log.oldest_revision()) as reader:
            return [decode_record(data) async for _, data in reader]


async def _next_action(client: PravegaClient, key: SinkKey, sink: SinkState) -> tuple[Verdict, str]:
    done = "no batch is done" if sink.last_done is None else f"batch {sink.last_done} is done"
    claim = sink.claim
    if claim is None:
        return "ok", f"{done}, none is being written"
    if not isinstance(decide(sink, claim.batch), Resume):
        return "ok", (
            f"{done}, batch {claim.batch} is being written in transaction {claim.txn}; if its driver has "
            "died, the next run writes it again"
        )
    status = await client.transaction_status(key.stream, claim.txn)
    verdict, what = _OUTCOMES[TxnOutcome.of(status.name)]
    return verdict, f"{done}, batch {claim.batch} is complete in transaction {claim.txn}: {what}"
