"""The tables in which a controller keeps what no call of it tells: which transactions are open.

Programs read them from the store (``pravega-wire txn``, ``doctor``). A 0.13.0 controller keeps everything in
such tables; here they have only that.
"""

from __future__ import annotations

from uuid import UUID

from pravega_wire.protocol.commands import TableEntry, TableKey
from pravega_wire.protocol.versioned import encode_record
from pravega_wire.testing.memory.store import Segment, SegmentStore
from pravega_wire.testing.memory.streams import Stream, Transaction
from pravega_wire.testing.memory.tables import NO_VERSION, Table

__all__ = ["Tables"]

_BASE = "_system/_tables"


class Tables:
    """Writes the tables.

    :param store: the store.
    """

    def __init__(self, store: SegmentStore) -> None:
        self._store = store

    def add_scope(self, scope: str, scope_id: UUID) -> None:
        """Enter a scope."""
        self._put(f"{_BASE}/scopes", scope, scope_id.bytes)

    def remove_scope(self, scope: str, scope_id: UUID) -> None:
        """Remove a scope, and the table of its streams."""
        self._remove(f"{_BASE}/scopes", scope)
        self._drop(self._streams(scope, scope_id))

    def add_stream(self, stream: Stream, scope_id: UUID) -> None:
        """Enter a stream."""
        self._put(self._streams(stream.scope, scope_id), stream.name, stream.id.bytes)

    def remove_stream(self, stream: Stream, scope_id: UUID) -> None:
        """Remove a stream, and the tables of its transactions."""
        self._remove(self._streams(stream.scope, scope_id), stream.name)
        self._drop(self._epochs(stream))
        for epoch in stream.epochs:
            self._drop(self._transactions(stream, epoch.number))

    def add_transaction(self, stream: Stream, txn: Transaction) -> None:
        """Enter a transaction, or what has changed of it."""
        record = encode_record(
            [
                lambda target: (
                    target.int64(txn.began)
                    .int64(txn.expires)
                    .int64(txn.latest)
                    .compact_int(txn.state)
                    .utf(txn.writer)
                    .int64(txn.time)
                    .int64(0)
                )
            ]
        )
        self._put(self._epochs(stream), str(txn.epoch), b"\0")
        self._put(self._transactions(stream, txn.epoch), str(txn.id), record)

    def remove_transaction(self, stream: Stream, txn: Transaction) -> None:
        """Remove a transaction that has ended."""
        name = self._transactions(stream, txn.epoch)
        self._remove(name, str(txn.id))
        table = self._store.segment(name).table
        if txn.epoch < stream.active and table is not None and not len(table):
            self._drop(name)
            self._remove(self._epochs(stream), str(txn.epoch))

    @staticmethod
    def _streams(scope: str, scope_id: UUID) -> str:
        return f"{_BASE}/{scope}/streamsInScope.#.{scope_id}"

    @staticmethod
    def _epochs(stream: Stream) -> str:
        return f"{_BASE}/{stream.scope}/{stream.name}/epochsWithTransactions.#.{stream.id}"

    @staticmethod
    def _transactions(stream: Stream, epoch: int) -> str:
        return f"{_BASE}/{stream.scope}/{stream.name}/transactionsInEpoch-{epoch}.#.{stream.id}"

    def _table(self, name: str) -> Table:
        found: Segment | None = self._store.segments.get(name)
        table = (self._store.create_table(name, 0) if found is None else found).table
        assert table is not None
        return table

    def _put(self, name: str, key: str, value: bytes) -> None:
        self._table(name).put([TableEntry(TableKey(key.encode(), NO_VERSION), value)], -1)

    def _remove(self, name: str, key: str) -> None:
        self._table(name).remove([TableKey(key.encode(), NO_VERSION)], -1)

    def _drop(self, name: str) -> None:
        if name in self._store.segments:
            self._store.delete(self._store.segments[name])
