"""Numbers of streaming queries, from what Spark reports of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")
pytest.importorskip("opentelemetry.sdk")

from pyspark.sql.streaming.listener import StreamingQueryProgress

from spark_adapter import BatchReport, progress_frame, progress_rows
from spark_adapter.progress import backlog_of
from spark_adapter.telemetry import query_listener
from tests.otel import Collected

QUERY, RUN = UUID(int=1), UUID(int=2)


def reported(batch: int, *, backlog: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """What Spark's JSON of a batch holds."""
    return {
        "id": str(QUERY),
        "runId": str(RUN),
        "name": "copy",
        "timestamp": f"2026-01-01T00:00:0{batch}.000Z",
        "batchId": batch,
        "batchDuration": 1500,
        "numInputRows": 30,
        "durationMs": {"triggerExecution": 1500, "addBatch": 1200, "walCommit": 50},
        "stateOperators": [],
        "sources": [
            {
                "description": "a",
                "startOffset": {"v": 1},
                "endOffset": {"v": 1},
                "latestOffset": backlog,
                "numInputRows": 10,
                "inputRowsPerSecond": 4.0,
                "processedRowsPerSecond": 8.0,
            },
            {
                "description": "b",
                "startOffset": None,
                "endOffset": "7",
                "latestOffset": None,
                "numInputRows": 20,
                "inputRowsPerSecond": 0.0,
                "processedRowsPerSecond": 16.0,
            },
        ],
        "sink": {"description": "s", "numOutputRows": 25},
        **changes,
    }


def query(*progress: dict[str, Any], objects: bool = True) -> Any:
    """A query as PySpark 4 shows it, or with dictionaries as 3.5 does."""
    recent: list[Any] = list(progress)
    return SimpleNamespace(
        recentProgress=[StreamingQueryProgress.fromJson(each) for each in recent] if objects else recent
    )


@pytest.mark.parametrize("objects", [True, False])
def test_rows_are_flat_and_have_the_same_keys(objects: bool) -> None:
    first = reported(0, sink={"description": "foreachBatch", "numOutputRows": -1})
    second = reported(1, backlog={"v": 1, "backlog_bytes": 500, "backlog_events": 5})
    rows = progress_rows(query(first, second, objects=objects))
    assert rows[0] == {
        "batch": 0,
        "started": "2026-01-01T00:00:00.000Z",
        "rows_in": 30,
        "rows_out": None,
        "rows_in_per_s": None,
        "rows_done_per_s": None,
        "seconds": 1.5,
        "addBatch_ms": 1200,
        "walCommit_ms": 50,
        "backlog_bytes": None,
        "backlog_events": None,
    }
    assert rows[1].keys() == rows[0].keys()
    assert (rows[1]["rows_out"], rows[1]["backlog_bytes"], rows[1]["backlog_events"]) == (25, 500, 5)
    assert progress_rows(query()) == []


def test_a_frame_has_the_rows() -> None:
    pytest.importorskip("pandas")
    frame = progress_frame(query(reported(0), reported(1)))
    assert list(frame.index) == [0, 1]
    assert list(frame["rows_in"]) == [30, 30]
    assert str(frame["started"].iloc[1]) == "2026-01-01 00:00:01+00:00"
    assert len(progress_frame(query())) == 0


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.sampled_from(["backlog_bytes", "backlog_events", "x"]), x),
    )
)
def test_any_offset_of_any_source_is_no_error(offset: Any) -> None:
    for latest in (offset, json.dumps(offset)):
        assert all(type(value) is int for value in backlog_of({"latestOffset": latest}).values())


def test_a_report_is_a_table_in_a_notebook() -> None:
    html = BatchReport(3, "written", rows=7, txn=RUN)._repr_html_()
    assert "<tr><th>rows</th><td>7</td></tr>" in html
    assert str(RUN) in html


# --- OpenTelemetry --------------------------------------------------------------------------------


@pytest.fixture
def collected() -> Iterator[Collected]:
    found = Collected()
    yield found
    found.close()


def progress_event(progress: dict[str, Any]) -> Any:
    return SimpleNamespace(progress=StreamingQueryProgress.fromJson(progress))


STARTED: Any = SimpleNamespace(id=QUERY, runId=RUN, name="copy")
IDLE: Any = SimpleNamespace(id=QUERY, runId=RUN)


def ended(exception: str | None) -> Any:
    return SimpleNamespace(id=QUERY, runId=RUN, exception=exception, errorClassOnException=None)


def levels(collected: Collected, name: str) -> dict[Any, Any]:
    """Value of a gauge for each source."""
    return {dict(of).get("spark.source"): point.value for of, point in collected().get(name, {}).items()}


def test_batches_become_instruments(collected: Collected) -> None:
    listener = query_listener(collected.meter)
    listener.onQueryStarted(STARTED)
    assert collected.value("pravega.spark.queries") == 1
    listener.onQueryProgress(progress_event(reported(0, backlog={"backlog_bytes": 900, "backlog_events": 9})))
    listener.onQueryProgress(progress_event(reported(1, backlog={"backlog_bytes": 400})))
    of = {"spark.query.id": str(QUERY), "spark.query.name": "copy"}
    (point,) = collected.points("pravega.spark.batches")
    assert (dict(point.attributes), point.value) == (of, 2)
    assert levels(collected, "pravega.spark.rows.read") == {0: 20, 1: 40}
    assert collected.value("pravega.spark.rows.written") == 50
    (batch,) = collected.points("pravega.spark.batch.duration")
    assert (batch.count, batch.sum) == (2, 3.0)
    phases = {
        point.attributes["spark.phase"]: point.sum
        for point in collected.points("pravega.spark.phase.duration")
    }
    assert phases == {"addBatch": 2.4, "walCommit": 0.1}
    # the last batch's
    assert levels(collected, "pravega.spark.backlog") == {0: 400}
    assert levels(collected, "pravega.spark.backlog.events") == {}
    assert levels(collected, "pravega.spark.input.rate") == {0: 4.0, 1: 0.0}
    assert levels(collected, "pravega.spark.processing.rate") == {0: 8.0, 1: 16.0}
    units = collected.units()
    assert units["pravega.spark.backlog"] == "By"
    assert units["pravega.spark.batch.duration"] == "s"

    listener.onQueryIdle(IDLE)
    assert levels(collected, "pravega.spark.input.rate") == {0: 0.0, 1: 0.0}
    assert levels(collected, "pravega.spark.backlog") == {0: 400}
    listener.onQueryTerminated(ended(None))
    assert levels(collected, "pravega.spark.backlog") == levels(collected, "pravega.spark.input.rate") == {}
    assert collected.points("pravega.spark.queries") == []
    assert collected.value("pravega.spark.batches") == 2
    assert collected.points("pravega.spark.failures") == []


def test_failures_count_and_queries_from_before_are_seen(collected: Collected) -> None:
    listener = query_listener(collected.meter)
    sink = {"description": "foreachBatch", "numOutputRows": -1}
    listener.onQueryProgress(progress_event(reported(5, name=None, sink=sink, durationMs={})))
    assert collected.value("pravega.spark.queries") == 1
    assert collected.points("pravega.spark.rows.written") == []
    listener.onQueryTerminated(ended("it broke"))
    (failure,) = collected.points("pravega.spark.failures")
    assert dict(failure.attributes) == {"spark.query.id": str(QUERY), "error.type": "other"}
    assert failure.value == 1
