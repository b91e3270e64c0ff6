"""Metadata tables: streams, segments, transactions and reader groups as rows.

``StreamInfo`` and ``Streams`` have the same columns as in the Scala connector.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from pravega_wire import PravegaConfig, ScopedStream
from pravega_wire.errors import InvalidArgumentError, ReaderGroupNotFoundError
from pravega_wire.support.checks import check_text
from pravega_wire.values.naming import epoch_of, number_of, segment_name
from spark_adapter.clients import HeldClient, settings_of
from spark_adapter.options.read import CONNECTION, boolean, canonical, config_of, stream_of
from spark_adapter.options.streams import stream_named
from spark_adapter.versions import check_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pravega_wire.sync import PravegaClient

__all__ = ["TABLES", "MetadataTable", "TableRead", "metadata_df"]

Row: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class MetadataTable:
    """One metadata table.

    :ivar name: the name that users write; case does not matter.
    :ivar schema: the table's columns, as a Spark schema text. Reserved words are quoted, for
        ``spark.sql.ansi.enforceReservedKeywords``.
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
    # All successors of a segment are created at the same time; the segment is active until then.
    until = {
        each.segment_id: min(
            (epoch_of(after.segment_id) for after in layout.successors(each.segment_id)), default=None
        )
        for each in layout.segments
    }
    takes_appends = any(not each.sealed for each in layout.segments)
    # In each epoch at least one segment was created.
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
    # For a stream that does not exist, the controller returns an empty list of transactions.
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
        "scope string, `group` string, streams array<string>, online_readers array<string>, "
        "outstanding_checkpoints array<string>, segments int, unassigned_segments int, unread_bytes bigint",
        _groups,
    ),
)
"""All tables."""


@dataclass(frozen=True, slots=True)
class TableRead:
    """A read of one metadata table; can be pickled.

    :ivar config: connection settings.
    :ivar table: name of the table.
    :ivar place: the stream; for a table about a scope, the scope.
    """

    config: PravegaConfig
    table: str
    place: ScopedStream | str

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self | None:
        """Parse the options of ``spark.read``; return None if they do not select a metadata table.

        :param options: the options as Spark passes them.
        :raises InvalidArgumentError: there is no such table (the message suggests the nearest name), an
            option cannot be used with it, or the stream or scope is missing.
        """
        if "metadata" not in map(str.lower, options):
            return None
        given = canonical(options, "read")
        table = _table(given["metadata"])
        for name, value in given.items():
            # A false value is accepted: a job may keep all its options in one place, and nothing is created
            # here.
            makes_nothing = name.startswith("allow_create_") and not boolean(name, value)
            if name not in CONNECTION | {"metadata", "stream"} and not makes_nothing:
                raise InvalidArgumentError(
                    f"option {name!r} cannot be used with metadata {table.name!r}; remove it"
                )
        config = config_of(given)
        return cls(config, table.name, _place(config, table, given))

    @property
    def schema(self) -> str:
        """The table's columns, as a Spark schema text."""
        return _table(self.table).schema

    def rows(self) -> list[Row]:
        """Fetch the rows.

        :raises StreamNotFoundError: the stream does not exist.
        :raises ScopeNotFoundError: the scope does not exist.
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
            else f"the tables are {', '.join(each.name for each in TABLES)}"
        )
        raise InvalidArgumentError(f"option 'metadata': there is no table {name!r}; {hint}")
    return found


def _place(
    config: PravegaConfig, table: _OfStream | _OfScope, given: Mapping[str, str]
) -> ScopedStream | str:
    if isinstance(table, _OfStream):
        return stream_of(given, config)
    if given.get("stream"):
        return stream_named("stream", given["stream"], config).scope
    if not config.scope:
        raise InvalidArgumentError(f"metadata {table.name!r} needs the option 'scope'")
    return config.scope


def metadata_df(
    spark: SparkSession,
    config: PravegaConfig | str,
    table: str,
    stream: str | ScopedStream | None = None,
) -> DataFrame:
    """Return a metadata table as a DataFrame. The rows are fetched once, by this call.

    Example::

        segments = metadata_df(spark, config, "segments", "demo/readings")
        segments.select("segment", "length", "sealed").show()

    :param spark: the Spark session.
    :param config: connection settings, or the controller's URI as for ``open_client``.
    :param table: ``StreamInfo``, ``Streams``, ``segments``, ``epochs``, ``transactions`` or ``groups``.
    :param stream: the stream. For ``Streams`` and ``groups`` only its scope is used; default: the
        configuration's default scope.
    :raises InvalidArgumentError: there is no such table, the stream or scope is missing, or ``spark`` is not
        a Spark session.
    :raises StreamNotFoundError: the stream does not exist.
    :raises ScopeNotFoundError: the scope does not exist.
    """
    config = settings_of(config)
    check_session(spark)
    found = _table(check_text("table", table))
    given = {} if stream is None else {"stream": str(stream)}
    read = TableRead(config, found.name, _place(config, found, given))
    return spark.createDataFrame(read.rows(), read.schema)
