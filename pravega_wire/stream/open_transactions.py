"""The open transactions of a stream.

No call of the controller lists open transactions. A 0.13.0 controller keeps them in table segments of the
scope ``_system``. Segment stores let a client read them where authorization is off, and with the credentials
of an administrator, who may read ``_system/_tables``:

- ``_system/_tables/scopes``: name of a scope to its id;
- ``_system/_tables/SCOPE/streamsInScope.#.ID``: name of a stream to its id;
- ``_system/_tables/SCOPE/STREAM/epochsWithTransactions.#.ID``: the key of each entry is an epoch;
- ``_system/_tables/SCOPE/STREAM/transactionsInEpoch-EPOCH.#.ID``: id of a transaction to its record
  (``ActiveTxnRecord``: times when it began, when its lease ends and when it ends at the latest, in
  milliseconds, and its status as an ordinal).

Ids of scopes and streams are 16 bytes, high half first. The names are those of ``PravegaTablesScope`` and
``PravegaTablesStream``. Only reads are sent.

Not public: :mod:`pravega_wire` exports :class:`OpenTransaction`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from pravega_wire.controller.tokens import Access
from pravega_wire.controller.types import TxnStatus
from pravega_wire.errors import (
    AuthError,
    DecodeError,
    NoSuchSegmentError,
    TransactionsUnlistableError,
    WrongHostError,
)
from pravega_wire.protocol import commands as c
from pravega_wire.protocol.versioned import DataReader, RevisionReader, read_record
from pravega_wire.segment.store import SegmentStores, SegmentTarget
from pravega_wire.segment.table import ANY_VERSION
from pravega_wire.stream.core import ClientCore
from pravega_wire.support.nurseries import look_up_all
from pravega_wire.values.types import Endpoint, ScopedStream

__all__ = ["OpenTransaction", "decode_active", "open_transactions", "stores_of"]

_SCOPES: Final = "_system/_tables/scopes"
_PAGE: Final = 100
_SAMPLES: Final = 32
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is not completed. Its times are those of the controller's clock, in UTC.

    :ivar txn_id: id of the transaction.
    :ivar status: ``OPEN``, ``COMMITTING`` or ``ABORTING``.
    :ivar began: when it began.
    :ivar lease_until: when its lease ends, unless it is renewed.
    :ivar ends_by: when the controller aborts it, even if its lease is renewed.
    """

    txn_id: UUID
    status: TxnStatus
    began: datetime
    lease_until: datetime
    ends_by: datetime


def decode_active(txn_id: UUID, data: bytes) -> OpenTransaction:
    """Decode the controller's record of a transaction.

    :param txn_id: id of the transaction.
    :param data: the record.
    :raises DecodeError: it is not such a record.
    """
    found: list[OpenTransaction] = []

    def first(body: DataReader) -> None:
        times = body.int64(), body.int64(), body.int64()
        ordinal = body.compact_int()
        try:
            began, lease, ends = (_EPOCH + timedelta(milliseconds=each) for each in times)
            found.append(OpenTransaction(txn_id, TxnStatus(ordinal), began, lease, ends))
        except OverflowError:
            raise DecodeError(f"record of transaction {txn_id}: {times} are no times") from None
        except ValueError:
            raise DecodeError(f"record of transaction {txn_id}: status {ordinal} is unknown") from None

    revisions: Sequence[RevisionReader] = [first]
    read_record(data, {0: revisions}, what=f"record of transaction {txn_id}")
    if not found:
        raise DecodeError(f"record of transaction {txn_id}: it has no revisions")
    return found[0]


async def stores_of(core: ClientCore, stream: ScopedStream | None = None) -> list[Endpoint]:
    """Return the addresses of the segment stores.

    The controller has no list of them; it says which store has a segment, and that depends on a hash of the
    name. So many names are asked about, also of segments that do not exist.
    """
    name = stream or ScopedStream("_system", "_requeststream")

    async def ask(number: int) -> Endpoint:
        node = await core.controller.get_uri(name.scope, name.name, number)
        return node.host, node.port

    return sorted({*(await look_up_all(ask, range(_SAMPLES))).values()})


class _Tables:
    """Reads the controller's table segments, whichever of the stores has them."""

    def __init__(self, core: ClientCore, endpoints: Sequence[Endpoint]) -> None:
        shared = core.stores
        self._endpoints = endpoints
        # A store compares the resource of a token with the beginning of a segment's name, up to a "/".
        self._token = core.tokens.source("_system", "_tables", Access.READ)
        self._stores = SegmentStores(
            shared.pool, self._locate, operation_timeout=shared.operation_timeout, counters=shared.counters
        )

    async def _ask(self, table: str, build: Any, reply: type[Any]) -> Any:
        """Ask the store that has a table."""
        for number in range(len(self._endpoints)):
            target = SegmentTarget(table, "_system", table, number, self._token)
            try:
                return await self._stores.once(target, build, reply, doing="reading the controller's table")
            except WrongHostError:
                continue
        raise DecodeError(f"no segment store has the controller's table {table}")

    async def _locate(self, scope: str, stream: str, number: int) -> Endpoint:
        return self._endpoints[number]

    async def get(self, table: str, key: str) -> bytes | None:
        """Return the value of a key, or None."""
        wanted = (c.TableKey(key.encode(), ANY_VERSION),)
        reply = await self._ask(
            table,
            lambda request_id, token: c.ReadTable(
                request_id=request_id, segment=table, delegation_token=token, keys=wanted
            ),
            c.TableRead,
        )
        entry: c.TableEntry = reply.entries[0]
        return None if entry.key.version < 0 else entry.value

    async def entries(self, table: str) -> AsyncIterator[c.TableEntry]:
        """Yield all entries; none if there is no such table."""
        continuation = b""
        while True:
            arguments = c.TableIteratorArgs(continuation, b"", b"", b"")

            def build(request_id: int, token: str, arguments: c.TableIteratorArgs = arguments) -> c.Command:
                return c.ReadTableEntries(
                    request_id=request_id,
                    segment=table,
                    delegation_token=token,
                    suggested_entry_count=_PAGE,
                    args=arguments,
                )

            try:
                reply = await self._ask(table, build, c.TableEntriesRead)
            except NoSuchSegmentError:
                return
            for entry in reply.entries:
                yield entry
            if not reply.entries or not reply.continuation_token:
                return
            continuation = reply.continuation_token


async def open_transactions(
    core: ClientCore, stream: ScopedStream, endpoints: Sequence[Endpoint] | None = None
) -> list[OpenTransaction]:
    """List the transactions of a stream that are not completed, oldest first.

    :param endpoints: addresses of the segment stores, if they are known.
    :raises StreamNotFoundError: the stream does not exist.
    :raises TransactionsUnlistableError: the controller's tables cannot be read.
    """
    await core.controller.get_stream_configuration(stream.scope, stream.name)
    tables = _Tables(core, endpoints or await stores_of(core, stream))
    try:
        scope_id = await _id(tables, _SCOPES, stream.scope)
        prefix = f"_system/_tables/{stream.scope}"
        stream_id = await _id(tables, f"{prefix}/streamsInScope.#.{scope_id}", stream.name)
        base = f"{prefix}/{stream.name}"
        found = []
        async for epoch in tables.entries(f"{base}/epochsWithTransactions.#.{stream_id}"):
            table = f"{base}/transactionsInEpoch-{_epoch(epoch.key.data)}.#.{stream_id}"
            found += [
                decode_active(UUID(each.key.data.decode()), each.value)
                async for each in tables.entries(table)
            ]
    except (AuthError, NoSuchSegmentError, DecodeError, ValueError) as error:
        raise TransactionsUnlistableError(
            f"the open transactions of stream {stream} cannot be listed: no call of the controller does it, "
            f"and its own tables cannot be read ({error})",
            scope=stream.scope,
            stream=stream.name,
        ) from error
    return sorted(found, key=lambda each: each.began)


async def _id(tables: _Tables, table: str, name: str) -> UUID:
    value = await tables.get(table, name)
    if value is None or len(value) < 16:
        raise DecodeError(f"the controller's table {table} has no id of {name}")
    return UUID(bytes=bytes(value[:16]))


def _epoch(key: bytes) -> int:
    """Return the epoch in a key: its decimal digits."""
    return int(key.decode())
