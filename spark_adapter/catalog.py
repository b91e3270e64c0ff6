"""A catalog of a Pravega cluster for Spark: scopes as databases, streams as tables, views for SQL.

Spark's own catalogs are plug-ins for the Java virtual machine, which this package does not have. So databases
and tables are listed, created and dropped by calls of :class:`PravegaCatalog`, and SQL queries temporary
views (``docs/spark-catalog.md``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from pyspark.sql import DataFrame, SparkSession

from pravega_wire import (
    PravegaConfig,
    RetentionPolicy,
    ScalingPolicy,
    ScopedStream,
    StreamConfiguration,
    StreamCut,
)
from pravega_wire.errors import (
    InvalidArgumentError,
    ScopeNotEmptyError,
    ScopeNotFoundError,
    StreamNotFoundError,
)
from pravega_wire.support.checks import INT32_MAX, check_count, check_text, check_type
from spark_adapter.bounded import read_df, register
from spark_adapter.clients import HeldClient, settings_of
from spark_adapter.options.read import COLUMNS, columns_of, config_options, quoted, schema_of
from spark_adapter.options.streams import LEDGER_SUFFIX
from spark_adapter.versions import check_session, needs_data_sources

__all__ = ["CatalogView", "Names", "PravegaCatalog", "Reads", "TableDescription", "quoted", "view_name"]

Names: TypeAlias = Literal["full", "plain"] | Callable[[ScopedStream], str]
"""How views are named: ``full`` is ``scope/stream``, ``plain`` is ``scope__stream`` with an underscore for
each character that SQL would want quoted; or a function of the stream."""

Reads: TypeAlias = Literal["fixed", "current"]
"""What a query on a view reads: ``fixed`` reads up to the cut at which the view was made or refreshed,
``current`` what the stream has when :meth:`PravegaCatalog.sql` plans the query."""

_UNQUOTED: Final = re.compile(r"[^A-Za-z0-9_]")


@dataclass(frozen=True, slots=True)
class TableDescription:
    """What is known of a stream.

    :ivar stream: the stream.
    :ivar schema: the columns of a DataFrame of it, as a Spark schema text.
    :ivar config: scaling policy, retention policy and tags.
    :ivar segments: number of segments that take events; 0 for a sealed stream.
    :ivar head: the oldest position that can be read.
    :ivar tail: the position after the newest event.
    :ivar sealed: whether the stream takes no more events.
    """

    stream: ScopedStream
    schema: str
    config: StreamConfiguration
    segments: int
    head: StreamCut
    tail: StreamCut
    sealed: bool


@dataclass(frozen=True, slots=True)
class CatalogView:
    """A temporary view of a stream.

    :ivar name: name of the view. In SQL it is quoted: :attr:`sql`.
    :ivar stream: the stream.
    :ivar reads: ``fixed`` or ``current``.
    :ivar end: the cut at which the view ends; None for ``current``.
    """

    name: str
    stream: ScopedStream
    reads: Reads
    end: StreamCut | None = None

    @property
    def sql(self) -> str:
        """The name as it is written in SQL, in backticks."""
        return quoted(self.name)


def view_name(stream: ScopedStream, names: Names = "full") -> str:
    """Return the name of a stream's view.

    Example::

        view_name(ScopedStream("demo", "readings.eu-1"))  # demo/readings.eu-1
        view_name(ScopedStream("demo", "readings.eu-1"), "plain")  # demo__readings_eu_1

    :param stream: the stream.
    :param names: ``full``, ``plain`` or a function. Two streams may have the same plain name;
        :meth:`PravegaCatalog.register` refuses that.
    :raises InvalidArgumentError: ``names`` is something else, or the function returns no name.
    """
    if names == "full":
        return str(stream)
    if names == "plain":
        return f"{_UNQUOTED.sub('_', stream.scope)}__{_UNQUOTED.sub('_', stream.name)}"
    if not callable(names):
        raise InvalidArgumentError(f"names must be 'full', 'plain' or a function, not {names!r}")
    name = names(stream)
    if not isinstance(name, str) or not name.strip():
        raise InvalidArgumentError(
            f"names must return a non-empty string for {stream}, not {name!r}, as the name of its view"
        )
    return name


class PravegaCatalog:
    """Scopes as databases and streams as tables, in Python calls, and temporary views of streams for SQL.

    Names of methods follow ``pyspark.sql.Catalog``. A table is ``scope/stream``, or a stream's name in the
    configuration's default scope. ``scope.stream`` does not work, because names may contain dots. A database
    that is not given is the default scope.

    The object keeps no connection, only the views that it has made. It is for one thread at a time.

    Example::

        from pravega_wire import PravegaConfig
        from spark_adapter.catalog import PravegaCatalog

        catalog = PravegaCatalog(spark, PravegaConfig("tcp://localhost:9090", scope="demo"))
        catalog.create_table("readings", segments=4, if_not_exists=True)
        catalog.register("demo")
        spark.sql("SELECT count(*) FROM `demo/readings`").show()

    :param spark: the Spark session.
    :param config: connection settings, or the controller's URI as for ``open_client``. Views
        with ``reads="current"`` hold them as options.
    :raises InvalidArgumentError: an argument is not valid.
    """

    def __init__(self, spark: SparkSession, config: PravegaConfig | str) -> None:
        self.config = settings_of(config)
        check_session(spark)
        self.spark = spark
        # By name, in lower case: Spark's names of views do not depend on case.
        self._views: dict[str, tuple[CatalogView, Callable[[], CatalogView]]] = {}

    def __repr__(self) -> str:
        return f"<PravegaCatalog of {self.config.controller_uri}, {len(self._views)} views>"

    # --- databases ------------------------------------------------------------------------------

    def list_databases(self, pattern: str | None = None) -> list[str]:
        """Return the names of all scopes that the credentials may see, sorted.

        :param pattern: as in ``SHOW DATABASES LIKE``: ``*`` is any text, ``|`` separates alternatives, and
            case does not matter.
        """
        with HeldClient(self.config) as client:
            return sorted(filter(_matching(pattern), client.list_scopes()))

    def database_exists(self, database: str) -> bool:
        """Return whether the scope exists."""
        with HeldClient(self.config) as client:
            return client.scope_exists(database)

    def create_database(self, database: str, *, if_not_exists: bool = False) -> bool:
        """Create a scope. Returns False if it exists and ``if_not_exists`` is true.

        :param database: name of the scope.
        :param if_not_exists: accept a scope that exists.
        :raises InvalidArgumentError: the name is not valid, or the scope exists.
        """
        with HeldClient(self.config) as client:
            made = client.create_scope(database)
        if not made and not if_not_exists:
            raise InvalidArgumentError(
                f"database {database} exists already: choose another name, or pass if_not_exists=True"
            )
        return made

    def drop_database(self, database: str, *, cascade: bool = False, if_exists: bool = False) -> bool:
        """Delete a scope, and unregister the views of its streams.

        :param database: name of the scope.
        :param cascade: also delete every stream, reader group and key-value table in it, with all data.
        :param if_exists: accept a scope that does not exist.
        :returns: False if the scope did not exist.
        :raises ScopeNotFoundError: the scope does not exist, and ``if_exists`` is false.
        :raises ScopeNotEmptyError: the scope is not empty, and ``cascade`` is false; nothing was deleted.
        """
        with HeldClient(self.config) as client:
            # With cascade a server does not say whether the scope was there.
            found = client.scope_exists(database)
            if found:
                try:
                    client.delete_scope(database, recursive=cascade)
                except ScopeNotEmptyError as error:
                    # It names the argument of delete_scope().
                    message = error.message.replace("recursive=True", "cascade=True")
                    raise ScopeNotEmptyError(message, scope=database) from error
        if not found and not if_exists:
            raise ScopeNotFoundError(
                f"database {database} does not exist: correct its name, or pass if_exists=True",
                scope=database,
            )
        self._forget(lambda view: view.stream.scope == database)
        return found

    # --- tables ---------------------------------------------------------------------------------

    def list_tables(self, database: str | None = None, pattern: str | None = None) -> list[ScopedStream]:
        """Return the streams of a scope, sorted by name; not those that Pravega made for itself.

        :param database: the scope.
        :param pattern: for the names without the scope, as in :meth:`list_databases`.
        :raises ScopeNotFoundError: the scope does not exist.
        :raises InvalidArgumentError: there is neither a database nor a default scope.
        """
        matches = _matching(pattern)
        with HeldClient(self.config) as client:
            streams = client.list_streams(self._database(database))
        return sorted((each for each in streams if matches(each.name)), key=str)

    def table_exists(self, table: str | ScopedStream) -> bool:
        """Return whether the stream exists.

        :param table: ``scope/stream``, or a name in the default scope.
        """
        name = self.config.resolve(table)
        with HeldClient(self.config) as client:
            return client.stream_exists(name)

    def describe(self, table: str | ScopedStream) -> TableDescription:
        """Return what is known of a stream.

        :param table: ``scope/stream``, or a name in the default scope.
        :raises StreamNotFoundError: the stream does not exist.
        """
        name = self.config.resolve(table)
        with HeldClient(self.config) as client:
            info = client.stream_info(name)
            segments = 0 if info.sealed else len(client.active_segments(name))
        return TableDescription(name, schema_of(), info.config, segments, info.head, info.tail, info.sealed)

    def create_table(
        self,
        table: str | ScopedStream,
        *,
        segments: int | None = None,
        scaling: ScalingPolicy | None = None,
        retention: RetentionPolicy | None = None,
        tags: Iterable[str] = (),
        if_not_exists: bool = False,
    ) -> bool:
        """Create a stream. Returns False if it exists and ``if_not_exists`` is true; it is not changed then.

        :param table: ``scope/stream``, or a name in the default scope. The scope must exist.
        :param segments: fixed number of segments; default: 1.
        :param scaling: scaling policy, instead of ``segments``.
        :param retention: how much data the server keeps; None keeps everything.
        :param tags: texts to find the stream by.
        :param if_not_exists: accept a stream that exists, whatever its configuration is.
        :raises InvalidArgumentError: an argument is not valid, or the stream exists.
        :raises ScopeNotFoundError: the scope does not exist.
        """
        name = self.config.resolve(table)
        if segments is not None and scaling is not None:
            raise InvalidArgumentError(f"table {name}: pass either segments or scaling, not both")
        if segments is not None:
            check_count("segments", segments, highest=INT32_MAX)
        if scaling is None:
            scaling = ScalingPolicy.fixed(1 if segments is None else segments)
        # The configuration checks that these are texts, and not one text.
        given: Any = tags
        config = StreamConfiguration(scaling, retention, given)
        with HeldClient(self.config) as client:
            made = client.create_stream(name, config)
        if not made and not if_not_exists:
            raise InvalidArgumentError(
                f"table {name} exists already: choose another name, or pass if_not_exists=True"
            )
        return made

    def drop_table(self, table: str | ScopedStream, *, if_exists: bool = False) -> bool:
        """Seal a stream, delete it with all its data, and unregister its views.

        :param table: ``scope/stream``, or a name in the default scope.
        :param if_exists: accept a stream that does not exist.
        :returns: False if the stream did not exist.
        :raises StreamNotFoundError: the stream does not exist, and ``if_exists`` is false.
        """
        name = self.config.resolve(table)
        with HeldClient(self.config) as client:
            found = client.delete_stream(name, seal=True)
        if not found and not if_exists:
            raise StreamNotFoundError(
                f"table {name} does not exist: correct its name, or pass if_exists=True",
                scope=name.scope,
                stream=name.name,
            )
        self._forget(lambda view: view.stream == name)
        return found

    def table(self, table: str | ScopedStream, **options: Any) -> DataFrame:
        """Return what a stream has now as a DataFrame; see :func:`~spark_adapter.read_df`.

        :param table: ``scope/stream``, or a name in the default scope.
        :param options: further arguments of :func:`~spark_adapter.read_df`, like ``start`` or ``columns``.
        :raises StreamNotFoundError: the stream does not exist.
        """
        return read_df(self.spark, self.config, table, **options)

    # --- views ----------------------------------------------------------------------------------

    def register(
        self,
        database: str | None = None,
        pattern: str | None = None,
        *,
        names: Names = "full",
        reads: Reads = "fixed",
        ends: Mapping[ScopedStream, StreamCut] | None = None,
        columns: Sequence[str] | str | None = None,
        replace: bool = False,
    ) -> list[CatalogView]:
        """Make a temporary view of each stream of a scope, for SQL.

        A view is of the session, and gone with it. A view with ``reads="fixed"`` shows the stream from its
        oldest event up to a cut, which is taken by this call and by :meth:`refresh`: each query returns the
        same rows. The cuts of several streams are taken one after the other; pass ``ends`` for cuts that
        belong together, such as those of a checkpoint.

        A view with ``reads="current"`` takes ``INSERT INTO``. In :meth:`sql` each query shows what the stream
        has when the query is planned; ``spark.sql`` shows what it had in the first query on the view.

        Ledgers that sinks made on their own (``<stream>-spark-ledger``) are left out, unless ``pattern`` is
        the whole name of one. Names are checked before the first view is made.

        :param database: the scope.
        :param pattern: only the streams whose names match; see :meth:`list_databases`.
        :param names: names of the views; see :func:`view_name`.
        :param reads: ``fixed`` or ``current``.
        :param ends: for ``fixed``: the cut at which the view of a stream ends; default: the tail.
        :param columns: the columns of the views; default: all. ``"event"`` alone is much faster.
        :param replace: replace views that exist. Views that this catalog has made for the same stream are
            always replaced.
        :returns: the views, in the order of the streams' names.
        :raises InvalidArgumentError: two streams would have the same name, a view of this name exists, or an
            argument is not valid. ``ends`` names a stream that is not among those of this call.
        :raises ScopeNotFoundError: the scope does not exist.
        :raises MissingExtraError: ``reads="current"`` and PySpark is older than 4.0.
        """
        if reads not in get_args(Reads):
            raise InvalidArgumentError(f"reads must be 'fixed' or 'current', not {reads!r}")
        if reads == "current":
            if ends is not None:
                raise InvalidArgumentError("ends is for reads='fixed'; a view of what is current has no end")
            needs_data_sources("a view that reads what is current")
        chosen = columns_of("columns", columns)
        given = {} if ends is None else ends
        check_type("ends", given, Mapping)
        for stream, end in given.items():
            check_type(f"the end of {stream}", end, StreamCut)
        streams = [
            each
            for each in self.list_tables(database, pattern)
            if not each.name.endswith(LEDGER_SUFFIX) or each.name == pattern
        ]
        for stream in given:
            if stream not in streams:
                raise InvalidArgumentError(
                    f"ends names {stream}, which is not one of the {len(streams)} streams to register"
                )
        named = self._named(streams, names, replace)
        made = []
        for name, stream in named.items():
            made.append(self._make(name, stream, reads, given.get(stream), chosen))
        return made

    def views(self) -> list[CatalogView]:
        """Return the views that this catalog has made and that the session still has, sorted by name."""
        known = [view for view, _ in self._views.values()]
        return sorted((each for each in known if self._in_session(each.name)), key=lambda each: each.name)

    def refresh(self, database: str | None = None) -> list[CatalogView]:
        """Make the ``fixed`` views again, up to what the streams have now; ``ends`` are forgotten.

        Views of streams that no longer exist are dropped. Streams that are new are not added:
        :meth:`register` does that. A view that was dropped is left alone; the names of the others are the
        catalog's own, so one that something else has replaced is made again.

        :param database: only the views of this scope; default: all.
        :returns: the views, sorted by name.
        """
        made = []
        for view in self.views():
            if database is not None and view.stream.scope != database:
                continue
            if not self.table_exists(view.stream):
                self.unregister_view(view.name)
                continue
            made.append(self._views[view.name.lower()][1]())
        return made

    def sql(self, query: str, args: Mapping[str, Any] | Sequence[Any] | None = None) -> DataFrame:
        """Run a statement of SQL in which the views with ``reads="current"`` have what the streams have now.

        ``spark.sql`` alone does not do that: Spark plans such a view once, in the first query on it.

        Example::

            catalog.register("demo", reads="current")
            query = "SELECT count(*) FROM `demo/readings` WHERE offset >= :low"
            catalog.sql(query, {"low": 1000}).show()

        :param query: the statement.
        :param args: values of the statement's parameters, as for ``spark.sql``.
        """
        check_text("query", query)
        for view, make_again in list(self._views.values()):
            is_meant = view.reads == "current" and view.sql[1:-1].lower() in query.lower()
            if is_meant and self._in_session(view.name):
                make_again()
        return self.spark.sql(query) if args is None else self.spark.sql(query, args)

    def unregister(self, database: str | None = None) -> int:
        """Drop the views that this catalog has made. Views that were made otherwise remain.

        :param database: only the views of this scope; default: all.
        :returns: the number of views that were dropped.
        """
        return self._forget(lambda view: database is None or view.stream.scope == database)

    def unregister_view(self, name: str) -> bool:
        """Drop one view that this catalog has made.

        :param name: name of the view, without quotes.
        :returns: False if the catalog has no such view.
        """
        key = check_text("name", name).lower()
        return self._forget(lambda view: view.name.lower() == key) > 0

    # --- inside ---------------------------------------------------------------------------------

    def _database(self, database: str | None) -> str:
        found = database or self.config.scope
        if not found:
            raise InvalidArgumentError("name a database, or set a default scope in the configuration")
        return found

    def _named(self, streams: Sequence[ScopedStream], names: Names, replace: bool) -> dict[str, ScopedStream]:
        found: dict[str, ScopedStream] = {}
        seen: dict[str, ScopedStream] = {}
        for stream in streams:
            name = view_name(stream, names)
            other = seen.setdefault(name.lower(), stream)
            if other != stream:
                raise InvalidArgumentError(
                    f"the views of {other} and {stream} would have the same name {name!r} (case does not "
                    "matter): choose other names, or register them one by one with a pattern"
                )
            known = self._views.get(name.lower())
            own = known is not None and known[0].stream == stream
            if not replace and not own and self._in_session(name):
                raise InvalidArgumentError(
                    f"a view named {name!r} exists already, and it is not one of {stream}: pass replace=True "
                    "to replace it, or choose other names"
                )
            found[name] = stream
        return found

    def _in_session(self, name: str) -> bool:
        return bool(self.spark.catalog.tableExists(quoted(name)))

    def _make(
        self,
        name: str,
        stream: ScopedStream,
        reads: Reads,
        end: StreamCut | None,
        columns: tuple[str, ...],
    ) -> CatalogView:
        if reads == "fixed":
            if end is None:
                with HeldClient(self.config) as client:
                    end = client.tail(stream)
            frame = read_df(self.spark, self.config, stream, "earliest", end, columns=columns)
        else:
            end = None
            frame = self._current(stream, columns)
        frame.createOrReplaceTempView(quoted(name))
        view = CatalogView(name, stream, reads, end)
        self._views[name.lower()] = view, lambda: self._make(name, stream, reads, None, columns)
        return view

    def _current(self, stream: ScopedStream, columns: tuple[str, ...]) -> DataFrame:
        register(self.spark)
        options = {**config_options(self.config), "stream": str(stream)}
        # An option for reading alone would keep INSERT from the view.
        if columns != COLUMNS:
            options["columns"] = ",".join(columns)
        return self.spark.read.format("pravega").options(**options).load()

    def _forget(self, chosen: Callable[[CatalogView], bool]) -> int:
        dropped = 0
        for key, (view, _) in list(self._views.items()):
            if chosen(view):
                del self._views[key]
                dropped += bool(self.spark.catalog.dropTempView(view.name))
        return dropped


def _matching(pattern: str | None) -> Callable[[str], bool]:
    """Return whether a name matches a pattern of Spark's SQL."""
    if pattern is None:
        return lambda name: True
    if not isinstance(pattern, str):
        raise InvalidArgumentError(f"pattern must be a string, not {type(pattern).__name__}")
    choices = [
        re.compile(".*".join(map(re.escape, each.strip().split("*"))), re.IGNORECASE)
        for each in pattern.split("|")
    ]
    return lambda name: any(each.fullmatch(name) for each in choices)
