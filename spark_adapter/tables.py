"""Metadata tables: what Pravega knows of streams and reader groups, as rows.

``StreamInfo`` and ``Streams`` have the columns that the Scala connector gives them.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

from pyspark.sql import DataFrame, SparkSession

from pravega_wire import PravegaConfig, ScopedStream
from pravega_wire.errors import InvalidArgumentError, ReaderGroupNotFoundError
from pravega_wire.naming import epoch_of, number_of, segment_name
from pravega_wire.sync import PravegaClient
from spark_adapter.clients import HeldClient
from spark_adapter.options import CONNECTION, boolean, canonical, config_of, stream_of

__all__ = ["TABLES", "MetadataTable", "TableRead", "metadata_df"]

Row: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class MetadataTable:
    """One table.

    :ivar name: as users write it; case does not matter. :ivar schema: its columns, in Spark's words.
    """

    name: str
    schema: str


@dataclass(frozen=True, slots=True)
class _OfStream(MetadataTable):
    rows: Callable[[PravegaClient, ScopedStream], Iterator[Row]]


@dataclass(frozen=True, slots=True)
class _OfScope(MetadataTable):
    rows: Callable[[PravegaClient, str], Iterator[Row]]


def _stream_info(client: PravegaClient, stream: ScopedStream) -> Iterator[Row]:
    yield client.head(stream).to_text(), client.tail(stream).to_text()


def _streams(client: PravegaClient, scope: str) -> Iterator[Row]:
    for stream in client.list_streams(scope):
        yield stream.scope, stream.name


def _segments(client: PravegaClient, stream: ScopedStream) -> Iterator[Row]:
    layout = client.stream_layout(stream)
    for each in layout.segments:
        yield (
            each.segment_id,
            segment_name(stream.scope, stream.name, each.segment_id),
            epoch_of(each.segment_id),
            number_of(each.segment_id),
            each.low,
            each.high,
            None if each.length is None else each.start_offset,
            each.length,
            each.sealed,
            [before.segment_id for before in layout.predecessors(each.segment_id)],
            [after.segment_id for after in layout.successors(each.segment_id)],
        )


def _epochs(client: PravegaClient, stream: ScopedStream) -> Iterator[Row]:
    layout = client.stream_layout(stream)
    # All that follow a segment are made at once; a segment is there until then.
    until = {
        each.segment_id: min(
            (epoch_of(after.segment_id) for after in layout.successors(each.segment_id)), default=None
        )
        for each in layout.segments
    }
    takes_appends = any(not each.sealed for each in layout.segments)
    # Each epoch has at least one segment that was made in it.
    newest = max(map(epoch_of, until))
    for epoch in range(newest + 1):
        there = [
            segment
            for segment, end in until.items()
            if epoch_of(segment) <= epoch and (end is None or epoch < end)
        ]
        begun = [segment for segment in there if epoch_of(segment) == epoch]
        ended = [segment for segment, end in until.items() if end == epoch]
        yield epoch, there, begun, ended, epoch == newest and takes_appends


def _transactions(client: PravegaClient, stream: ScopedStream) -> Iterator[Row]:
    # Of a stream that does not exist the controller says that it has no transactions.
    client.active_segments(stream)
    for txn_id, status in sorted(client.completed_transactions(stream).items()):
        yield str(txn_id), txn_id.int >> 96, status.name


def _groups(client: PravegaClient, scope: str) -> Iterator[Row]:
    for name in sorted(client.list_reader_groups(scope)):
        try:
            with client.reader_group(name) as group:
                metrics = group.metrics()
                yield (
                    name.scope,
                    name.name,
                    [str(stream) for stream in group.streams],
                    sorted(group.online_readers),
                    [each.name for each in group.outstanding_checkpoints],
                    metrics.segments,
                    metrics.unassigned,
                    metrics.unread_bytes,
                )
        except ReaderGroupNotFoundError:
            continue  # deleted since it was listed


TABLES: tuple[_OfStream | _OfScope, ...] = (
    _OfStream("StreamInfo", "head_stream_cut string, tail_stream_cut string", _stream_info),
    _OfScope("Streams", "scope_name string, stream_name string", _streams),
    _OfStream(
        "segments",
        "segment_id bigint, segment string, epoch int, number int, key_low double, key_high double, "
        "start_offset bigint, length bigint, sealed boolean, predecessors array<bigint>, "
        "successors array<bigint>",
        _segments,
    ),
    _OfStream(
        "epochs",
        "epoch int, segments array<bigint>, begun array<bigint>, ended array<bigint>, active boolean",
        _epochs,
    ),
    _OfStream("transactions", "txn_id string, epoch int, status string", _transactions),
    _OfScope(
        "groups",
        "scope string, group string, streams array<string>, online_readers array<string>, "
        "outstanding_checkpoints array<string>, segments int, unassigned_segments int, unread_bytes bigint",
        _groups,
    ),
)
"""All tables."""


@dataclass(frozen=True, slots=True)
class TableRead:
    """A read of one table; picklable.

    :ivar place: the stream, or the scope for a table of a scope.
    """

    config: PravegaConfig
    table: str
    place: ScopedStream | str

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self | None:
        """What the options of ``spark.read`` ask for; None when that is not a metadata table.

        :raises InvalidArgumentError: there is no such table (the nearest name is suggested), an option makes
            no sense with it, or the stream or scope is missing.
        """
        if "metadata" not in map(str.lower, options):
            return None
        given = canonical(options, "read")
        table = _table(given["metadata"])
        for name, value in given.items():
            # A job that keeps all its options in one place says so of these, and nothing is made here.
            makes_nothing = name.startswith("allow_create_") and not boolean(name, value)
            if name not in CONNECTION | {"metadata", "stream"} and not makes_nothing:
                raise InvalidArgumentError(f"option {name!r} makes no sense with metadata {table.name!r}")
        config = config_of(given)
        return cls(config, table.name, _place(config, table, given))

    @property
    def schema(self) -> str:
        """The table's columns."""
        return _table(self.table).schema

    def rows(self) -> list[Row]:
        """The rows, as of now.

        :raises StreamNotFoundError: no such stream. :raises ScopeNotFoundError: no such scope.
        """
        table = _table(self.table)
        with HeldClient(self.config) as client:
            if isinstance(table, _OfStream):
                assert isinstance(self.place, ScopedStream)
                return list(table.rows(client, self.place))
            assert isinstance(self.place, str)
            return list(table.rows(client, self.place))


def _table(name: str) -> _OfStream | _OfScope:
    known = {each.name.lower(): each for each in TABLES}
    found = known.get(name.strip().lower())
    if found is None:
        near = difflib.get_close_matches(name.strip().lower(), known, 1)
        hint = (
            f"did you mean {known[near[0]].name!r}?"
            if near
            else f"there are {', '.join(each.name for each in TABLES)}"
        )
        raise InvalidArgumentError(f"option 'metadata': there is no table {name!r}; {hint}")
    return found


def _place(
    config: PravegaConfig, table: _OfStream | _OfScope, given: Mapping[str, str]
) -> ScopedStream | str:
    if isinstance(table, _OfStream):
        return stream_of(given, config)
    if given.get("stream"):
        return config.resolve(given["stream"]).scope
    if not config.default_scope:
        raise InvalidArgumentError(f"option 'scope' is required with metadata {table.name!r}")
    return config.default_scope


def metadata_df(
    spark: SparkSession, config: PravegaConfig, table: str, stream: str | ScopedStream | None = None
) -> DataFrame:
    """A metadata table as a DataFrame, as of now: it does not change after this call.

    :param table: ``StreamInfo``, ``Streams``, ``segments``, ``epochs``, ``transactions`` or ``groups``.
    :param stream: whose; of ``Streams`` and ``groups`` only its scope counts, default the configuration's.
    :raises InvalidArgumentError: there is no such table, or the stream or scope is missing.
    :raises StreamNotFoundError: no such stream. :raises ScopeNotFoundError: no such scope.
    """
    found = _table(table)
    given = {} if stream is None else {"stream": str(stream)}
    read = TableRead(config, found.name, _place(config, found, given))
    return spark.createDataFrame(read.rows(), read.schema)
