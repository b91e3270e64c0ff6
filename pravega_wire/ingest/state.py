"""The record from which an ingester finds out, after a crash, where to continue.

The sync stream is a :class:`~pravega_wire.stream.synchronizer.StateSynchronizer` whose state is the last
:class:`IngestRecord`. Each update replaces the whole record, on condition that it is still the one that the
ingester has seen. An ingester whose condition fails has been replaced by another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Self
from uuid import UUID

from pravega_wire.errors import CorruptedStateError, FencedError, InvalidArgumentError
from pravega_wire.protocol.records import VersionedSerializer
from pravega_wire.stream.client import PravegaClient
from pravega_wire.stream.opening import opening
from pravega_wire.stream.synchronizer import StateFormat, StateSynchronizer
from pravega_wire.support.checks import INT64_MAX
from pravega_wire.values.types import ScopedStream

__all__ = ["UNKNOWN_LENGTH", "IngestRecord", "Journal", "Kind", "Phase"]

UNKNOWN_LENGTH = -1
_PRINT_BYTES = 16

_COMPACT_UPDATES = 200
_COMPACT_BYTES = 128 * 1024


class Kind(IntEnum):
    """The kind of input."""

    FILES = 1
    SOURCE = 2


class Phase(IntEnum):
    """The state of the record's transaction when the record was written."""

    NOTHING = 0
    """There was no transaction yet."""
    BEGUN = 1
    """The transaction had been started; nothing had been written to it."""
    ENDED = 2
    """All data was stored in the transaction, and it was about to be committed (the end record)."""
    DONE = 3
    """The transaction was confirmed to be committed."""


@dataclass(frozen=True, slots=True)
class IngestRecord:
    """The part of the input that was started last, and its transaction.

    :ivar stream: the data stream, ``scope/stream``.
    :ivar kind: a :class:`Kind`.
    :ivar phase: a :class:`Phase`.
    :ivar item: name of the file, relative to its folder; "" for a source.
    :ivar position: number of files, or of samples of the source, before this part.
    :ivar length: size of the file in bytes, or number of samples in the transaction (-1: not known yet).
    :ivar transaction: id of the transaction.
    :ivar names: fingerprint (16 bytes) of the names of the files before this one.
    :ivar contents: fingerprint (16 bytes) of the names and sizes of the files before this one.
    """

    stream: str
    kind: int
    phase: int = Phase.NOTHING
    item: str = ""
    position: int = 0
    length: int = 0
    transaction: UUID = UUID(int=0)  # noqa: RUF009  # immutable
    names: bytes = bytes(16)
    contents: bytes = bytes(16)

    @property
    def title(self) -> str:
        """The part's name in messages."""
        if self.kind == Kind.FILES:
            return f"file {self.item}"
        if self.length == UNKNOWN_LENGTH:
            return f"the samples from {self.position} on"
        return f"samples {self.position} to {self.position + self.length - 1}"


_RECORD = VersionedSerializer(
    IngestRecord,
    [
        [
            ("stream", "utf"),
            ("kind", "byte"),
            ("phase", "byte"),
            ("item", "utf"),
            ("position", "int64"),
            ("length", "int64"),
            ("transaction", "uuid"),
            ("names", "array"),
            ("contents", "array"),
        ]
    ],
)


def _check(record: IngestRecord, name: ScopedStream) -> None:
    """Check the values of a record; they decide where ingestion continues."""
    right = {
        "kind": record.kind in list(Kind),
        "phase": record.phase in list(Phase),
        "position": 0 <= record.position <= INT64_MAX - max(0, record.length),
        "length": record.length >= UNKNOWN_LENGTH,
        "names": len(record.names) == _PRINT_BYTES,
        "contents": len(record.contents) == _PRINT_BYTES,
    }
    for field, is_right in right.items():
        if not is_right:
            raise CorruptedStateError(
                f"the record on sync stream {name} has the {field} {getattr(record, field)!r}, which no "
                "ingester writes. To start over, use another sync stream and another data stream",
                scope=name.scope,
                stream=name.name,
            )


def _replace(state: IngestRecord, update: IngestRecord) -> IngestRecord:
    return update


FORMAT: StateFormat[IngestRecord, IngestRecord] = StateFormat(_RECORD, _RECORD, _replace)


class Journal:
    """The last record, as this ingester has seen it. Use it as a context manager.

    :param shared: the state on the sync stream.
    :param name: the sync stream, which has one segment.
    :param seen: the last record.
    """

    def __init__(
        self,
        shared: StateSynchronizer[IngestRecord, IngestRecord, IngestRecord],
        name: ScopedStream,
        seen: IngestRecord,
    ) -> None:
        self.name = name
        self.seen = seen
        self._shared = shared
        self._updates = 0

    @classmethod
    @opening
    async def open(cls, client: PravegaClient, name: ScopedStream, stream: ScopedStream, kind: Kind) -> Self:
        """Read the last record, or write the first one.

        :raises InvalidArgumentError: the sync stream belongs to another data stream or kind of input.
        :raises CorruptedStateError: the last record has values that no ingester writes.
        """
        shared = await client.state_synchronizer(name, FORMAT)
        try:
            await shared.initialize(IngestRecord(str(stream), kind))
            seen = shared.state
            assert seen is not None
            _check(seen, name)
            if (seen.stream, seen.kind) != (str(stream), kind):
                other = "files" if seen.kind == Kind.FILES else "a source"
                raise InvalidArgumentError(
                    f"sync stream {name} belongs to the ingestion of {other} into {seen.stream}; use a "
                    "different sync stream for this ingestion",
                    scope=name.scope,
                    stream=name.name,
                )
            if await shared.bytes_since_compaction() > _COMPACT_BYTES:
                await shared.compact(lambda state: state)
        except BaseException:
            await shared.aclose()
            raise
        return cls(shared, name, seen)

    async def replace(self, record: IngestRecord) -> None:
        """Write the next record if the last one is still the one seen here.

        :raises FencedError: it is not, because another ingester is using the sync stream.
        """
        expected = self.seen
        state = await self._shared.update(lambda state: [record] if state == expected else None)
        if state != record:
            raise self.fenced(state)
        self.seen = record
        self._updates += 1
        if self._updates % _COMPACT_UPDATES == 0:
            await self._shared.compact(lambda state: state)

    async def check(self) -> None:
        """Check that the record is still the one seen here.

        :raises FencedError: another ingester has written a record.
        """
        state = await self._shared.fetch_updates()
        if state != self.seen:
            raise self.fenced(state)

    def fenced(self, state: IngestRecord | None) -> FencedError:
        """Return the error for an ingester that another one has replaced."""
        what = "something else" if state is None or state.phase == Phase.NOTHING else state.title
        return FencedError(
            f"another ingester is using sync stream {self.name} and is now at {what}; this one has stopped, "
            "and nothing of its open transaction will become visible",
            scope=self.name.scope,
            stream=self.name.name,
        )

    async def aclose(self) -> None:
        """Release the connection."""
        await self._shared.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self.aclose()
