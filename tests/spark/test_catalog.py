"""A catalog on a real server, and what Spark's SQL does with views and tables of the format."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from pravega_wire import PravegaConfig, RetentionPolicy, ScalingPolicy, ScopedStream
from pravega_wire.errors import (
    InvalidArgumentError,
    ScopeNotEmptyError,
    ScopeNotFoundError,
    StreamNotFoundError,
)
from pravega_wire.sync import PravegaClient
from spark_adapter import EVENT_SCHEMA, register
from spark_adapter.catalog import PravegaCatalog, quoted


@pytest.fixture
def catalog(spark: SparkSession, config: PravegaConfig, client: PravegaClient) -> Iterator[PravegaCatalog]:
    made = PravegaCatalog(spark, config)
    yield made
    made.unregister()


@pytest.fixture
def database(catalog: PravegaCatalog) -> str:
    """A scope with an odd name."""
    name = f"air.port-{uuid4().hex[:8]}"
    assert catalog.create_database(name)
    return name


def append(client: PravegaClient, stream: str, *events: bytes) -> None:
    with client.event_writer(stream) as writer:
        writer.write_events(list(events), "key")


def stored(client: PravegaClient, stream: str) -> list[bytes]:
    return [event for batch in client.read_events(stream) for event in batch]


def count(catalog: PravegaCatalog, name: str) -> int:
    """As any SQL of the session sees it."""
    return int(catalog.spark.sql(f"SELECT count(*) AS n FROM {quoted(name)}").head().n)


def test_databases_and_tables(catalog: PravegaCatalog, client: PravegaClient, database: str) -> None:
    assert database in catalog.list_databases()
    assert catalog.list_databases(f"*{database[-8:]}|nothing") == [database]
    assert catalog.database_exists(database)
    assert not catalog.create_database(database, if_not_exists=True)
    with pytest.raises(InvalidArgumentError, match="exists already"):
        catalog.create_database(database)

    table = f"{database}/fl.ights-1"
    scaling, retention = ScalingPolicy.by_event_rate(100, 2, 3), RetentionPolicy.by_size(10**9)
    assert catalog.create_table(table, scaling=scaling, retention=retention, tags=["a", "b"])
    assert catalog.create_table(ScopedStream(database, "other"), segments=2)
    assert not catalog.create_table(table, segments=9, if_not_exists=True)
    with pytest.raises(InvalidArgumentError, match=r"fl\.ights-1 exists already"):
        catalog.create_table(table)
    assert [each.name for each in catalog.list_tables(database)] == ["fl.ights-1", "other"]
    assert [each.name for each in catalog.list_tables(database, "FL*")] == ["fl.ights-1"]
    append(client, table, b"one", b"two")
    found = catalog.describe(table)
    assert (found.config.scaling, found.config.retention) == (scaling, retention)
    assert (found.config.tags, found.segments, found.sealed) == ({"a", "b"}, 3, False)
    assert (found.head, found.tail) == (client.head(table), client.tail(table))
    frame = catalog.table(table)
    assert [(each.name, each.dataType.simpleString()) for each in frame.schema] == [
        tuple(each.replace("long", "bigint").split()) for each in EVENT_SCHEMA.split(", ")
    ]
    assert frame.count() == 2
    assert catalog.table(table, columns="event", start=client.tail(table)).count() == 0

    with pytest.raises(ScopeNotEmptyError):
        catalog.drop_database(database)
    client.seal_stream(f"{database}/other")
    assert (catalog.describe(f"{database}/other").sealed, catalog.describe(f"{database}/other").segments) == (
        True,
        0,
    )
    assert catalog.drop_table(table)
    assert not catalog.table_exists(table)
    assert not catalog.drop_table(table, if_exists=True)
    with pytest.raises(StreamNotFoundError, match="if_exists=True"):
        catalog.drop_table(table)
    with pytest.raises(StreamNotFoundError):
        catalog.describe(table)
    with pytest.raises(StreamNotFoundError):
        catalog.table(table)
    assert catalog.drop_database(database, cascade=True)
    assert not catalog.drop_database(database, if_exists=True)
    with pytest.raises(ScopeNotFoundError, match="if_exists=True"):
        catalog.drop_database(database)
    with pytest.raises(ScopeNotFoundError):
        catalog.list_tables(database)
    with pytest.raises(ScopeNotFoundError):
        catalog.create_table(table)


def test_views_fixed_at_a_cut(catalog: PravegaCatalog, client: PravegaClient, database: str) -> None:
    spark, one, other = catalog.spark, f"{database}/fl.ights-1", f"{database}/other"
    for each in (one, other):
        catalog.create_table(each)
    append(client, one, b"a", b"b")
    views = catalog.register(database)
    assert [(each.name, each.stream, each.reads) for each in views] == [
        (str(each.stream), each.stream, "fixed") for each in views
    ]
    assert [each.name for each in views] == [one, other]
    assert views[0].end == client.tail(one)
    assert catalog.views() == views
    assert {one, other} <= {each.name for each in spark.catalog.listTables()}
    append(client, one, b"c")
    joined = (
        f"SELECT cast(a.event AS string) AS e FROM {views[0].sql} a LEFT JOIN {views[1].sql} b USING (event)"
    )
    assert sorted(row.e for row in spark.sql(joined).collect()) == ["a", "b"]

    # A view that somebody else has made is not taken away; the own ones are.
    spark.sql("SELECT 1 AS x").createOrReplaceTempView(f"{_plain(one)}")
    with pytest.raises(InvalidArgumentError, match="exists already"):
        catalog.register(database, names="plain")
    spark.catalog.dropTempView(_plain(one))
    assert len(catalog.register(database)) == 2
    assert count(catalog, one) == 3

    cut = client.tail(one)
    append(client, one, b"d")
    (short,) = catalog.register(
        database, "fl*", names="plain", ends={ScopedStream.parse(one): cut}, columns="event"
    )
    assert (short.name, short.end) == (_plain(one), cut)
    assert spark.sql(f"SELECT * FROM {short.name}").columns == ["event"]
    assert count(catalog, short.name) == 3
    assert {each.end for each in catalog.refresh(database)} == {client.tail(one), client.tail(other)}
    assert count(catalog, short.name) == count(catalog, one) == 4
    with pytest.raises(InvalidArgumentError, match="not one of the 1 streams"):
        catalog.register(database, "other", ends={ScopedStream.parse(one): cut})

    # What is dropped is no longer there, whoever dropped it.
    client.delete_stream(other, seal=True)
    assert [each.stream.name for each in catalog.refresh()] == ["fl.ights-1", "fl.ights-1"]
    spark.catalog.dropTempView(short.name)
    assert [each.name for each in catalog.views()] == [one]
    catalog.drop_table(one)
    assert catalog.views() == []
    assert one not in {each.name for each in spark.catalog.listTables()}


def _plain(table: str) -> str:
    return table.replace("/", "__").replace(".", "_").replace("-", "_")


def test_views_of_what_is_current(catalog: PravegaCatalog, client: PravegaClient, database: str) -> None:
    table = f"{database}/now"
    catalog.create_table(table)
    append(client, table, b"a")
    (view,) = catalog.register(database, reads="current")
    query = f"SELECT count(*) AS n FROM {view.sql} WHERE length(event) = :length"
    assert catalog.sql(query, {"length": 1}).head().n == 1
    append(client, table, b"b")
    assert catalog.sql(query, {"length": 1}).head().n == 2
    # Spark plans a view once: when this fails, Spark has changed, and the page has to.
    append(client, table, b"c")
    assert count(catalog, table) == 2
    catalog.spark.sql(f"REFRESH TABLE {view.sql}")
    assert count(catalog, table) == 2
    catalog.refresh()
    assert count(catalog, table) == 3
    # Whatever a view was planned for, rows go to the stream.
    catalog.spark.sql(f"INSERT INTO {view.sql} (event) SELECT cast('d' AS binary)")
    assert stored(client, table) == [b"a", b"b", b"c", b"d"]
    # The ledger of that INSERT is not a table that anybody asks for.
    assert [each.stream.name for each in catalog.register(database, reads="current")] == ["now"]
    assert catalog.unregister(database) == 1
    assert catalog.unregister(database) == 0
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        catalog.sql(query, {"length": 1})


# --- what SQL does by itself ----------------------------------------------------------------------

TABLE = "'pravega' cannot be a table of Spark's catalog"

REFUSED = [
    ("CREATE TABLE t USING pravega OPTIONS ({options})", TABLE),
    ("CREATE TABLE t USING pravega OPTIONS ({options}) AS SELECT {row} AS event", TABLE),
    ("CREATE VIEW v USING pravega OPTIONS ({options})", "PARSE_SYNTAX_ERROR"),
    ("CREATE TEMPORARY VIEW v USING pravega OPTIONS (controller 'c', streem 'a/b')", "did you mean 'stream'"),
    ("SELECT * FROM pravega.`{stream}`", "UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY"),
    ("INSERT INTO pravega.`{stream}` SELECT {row}", "TABLE_OR_VIEW_NOT_FOUND"),
    ("INSERT OVERWRITE by_sql SELECT {row}, 's', 't', 1, 1", "a stream is append-only"),
    ("DELETE FROM by_sql", "UNSUPPORTED|does not support|cannot"),
    ("TRUNCATE TABLE by_sql", "view|VIEW"),
    ("CREATE DATABASE `air-port`", "INVALID_SCHEMA_OR_RELATION_NAME"),
    ("SHOW TABLES IN spark", "SCHEMA_NOT_FOUND"),
]
"""Statements that fail, and what the error says: ``docs/spark-catalog.md`` has them."""


def test_what_sql_does_without_a_catalog_plug_in(
    spark: SparkSession, config: PravegaConfig, client: PravegaClient, stream: str, tmp_path: Path
) -> None:
    register(spark)
    words: dict[str, Any] = {
        "stream": f"spark/{stream}",
        "options": f"controller '{config.controller_uri}', stream 'spark/{stream}', semantic 'at_least_once'",
        "reading": f"controller '{config.controller_uri}', stream 'spark/{stream}'",
        "row": "cast('q' AS binary)",
    }
    spark.sql("CREATE TEMPORARY VIEW by_sql USING pravega OPTIONS ({reading})".format(**words))
    try:
        spark.sql("INSERT INTO by_sql (event) SELECT {row}".format(**words))
        assert spark.sql("SELECT event FROM by_sql").collect() == [(b"q",)]
        assert "by_sql" in {row.tableName for row in spark.sql("SHOW TABLES").collect()}
        assert "by_sql" in {row.viewName for row in spark.sql("SHOW VIEWS").collect()}
        described = {row.col_name for row in spark.sql("DESCRIBE by_sql").collect()}
        assert described == {"event", "scope", "stream", "segment_id", "offset"}
        wrong = []
        for statement, text in REFUSED:
            with pytest.raises(PySparkException) as caught:
                spark.sql(statement.format(**words)).collect()
            if not re.search(text, str(caught.value)):
                wrong.append((statement, str(caught.value)[:600]))
        assert wrong == []
        # A table is made, but Spark does not give its options to a data source in Python.
        spark.sql("CREATE TABLE t (event binary) USING pravega OPTIONS ({options})".format(**words))
        for statement in ("SELECT * FROM t", "INSERT INTO t SELECT {row}"):
            with pytest.raises(PySparkException, match=f"option 'stream' is required.*{TABLE}"):
                spark.sql(statement.format(**words)).collect()
        # To append to such a table writes to the stream of the options, as save() does.
        frame = spark.createDataFrame([(bytearray(b"lost"),)], "event binary")
        given = {"controller": config.controller_uri, "stream": f"spark/{stream}"}
        other = {**given, "stream": f"spark/{stream}-table"}
        frame.write.format("pravega").options(**other).mode("append").saveAsTable("t")
        assert stored(client, f"{stream}-table") == [b"lost"]
        # Nothing tells Spark's own tables from streams before tasks run.
        spark.sql("DROP TABLE t")
        # It has no partition, and yet Spark runs a task.
        empty = spark.createDataFrame(spark.sparkContext.emptyRDD(), "event binary")
        assert empty.rdd.getNumPartitions() == 0
        writes: dict[str, Callable[[], Any]] = {
            "append": lambda: frame.write.format("pravega").options(**given).mode("append").saveAsTable("t"),
            "new": lambda: frame.write.format("pravega").options(**given).saveAsTable("t"),
            "empty": lambda: empty.write.format("pravega").options(**given).saveAsTable("t"),
            "create": lambda: frame.writeTo("t").using("pravega").options(**given).create(),
        }
        for name, write in writes.items():
            with pytest.raises(PySparkException, match=f"{TABLE}.*Nothing was written"):
                write()
            assert not spark.catalog.tableExists("t"), name
        assert spark.sql("SELECT event FROM by_sql").collect() == [(b"q",)]
        # A query writes, and leaves a table that cannot be read.
        read = spark.readStream.format("pravega").options(**given).load()
        query = read.writeStream.format("pravega").options(**other, checkpointLocation=str(tmp_path))
        query.trigger(availableNow=True).toTable("t").awaitTermination()
        assert sorted(stored(client, f"{stream}-table")) == [b"lost", b"q"]
        with pytest.raises(PySparkException, match="option 'stream' is required"):
            spark.sql("SELECT * FROM t").collect()
    finally:
        spark.sql("DROP TABLE IF EXISTS t")
        spark.sql("DROP VIEW by_sql")
    assert not spark.catalog.tableExists("by_sql")
    assert client.stream_exists(stream)
