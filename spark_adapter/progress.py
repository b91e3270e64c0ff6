"""The progress of a streaming query as flat rows, one for each batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pravega_wire.errors import MissingExtraError

__all__ = ["backlog_of", "progress_dict", "progress_frame", "progress_rows"]


def progress_dict(progress: Any) -> dict[str, Any]:
    """Return a query's progress as a dictionary, for any version of PySpark.

    :param progress: an item of ``query.recentProgress``, or the progress in a listener's event.
    """
    # PySpark 3.5 has dictionaries in recentProgress and objects in events; 4.0 has objects that are both.
    # Their JSON is the same.
    text = getattr(progress, "json", None)
    found: dict[str, Any] = json.loads(text) if isinstance(text, str) else dict(progress)
    return found


def backlog_of(source: Mapping[str, Any]) -> dict[str, int]:
    """Return the unread data that a source reports.

    The keys are ``backlog_bytes`` and ``backlog_events``, if the source reports them.

    :param source: one of the ``sources`` in the result of :func:`progress_dict`.
    """
    latest = source.get("latestOffset")
    if isinstance(latest, str):
        try:
            latest = json.loads(latest)
        except ValueError:
            return {}
    if not isinstance(latest, Mapping):
        return {}
    given = {name: latest.get(name) for name in ("backlog_bytes", "backlog_events")}
    return {name: n for name, n in given.items() if isinstance(n, int) and not isinstance(n, bool)}


def progress_rows(query: Any) -> list[dict[str, Any]]:
    """Return the last batches of a streaming query as flat dictionaries, oldest first.

    The keys are ``batch``, ``started`` (text, UTC), ``rows_in``, ``rows_out`` (None if the sink does not
    report it, as with ``foreachBatch``), ``rows_in_per_s``, ``rows_done_per_s``, ``seconds``, one ``..._ms``
    for each phase of the batch that Spark reports (``addBatch_ms``), and, if a source reports them,
    ``backlog_bytes`` and ``backlog_events``, summed over all sources. All rows have the same keys.

    Example::

        for row in progress_rows(query):
            print(row["batch"], row["rows_in"], row["seconds"])

    :param query: a ``StreamingQuery``; it may have ended. Spark's setting
        ``spark.sql.streaming.numRecentProgressUpdates`` is the number of batches that it keeps.
    """
    rows = [_row(progress_dict(each)) for each in query.recentProgress]
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in names} for row in rows]


def progress_frame(query: Any) -> Any:
    """Return :func:`progress_rows` as a pandas DataFrame with the index ``batch``.

    A notebook shows it as a table.

    :param query: as for :func:`progress_rows`.
    :raises MissingExtraError: pandas is not installed.
    """
    try:
        import pandas as pd  # type: ignore[import-untyped,unused-ignore]  # has no stubs here
    except ImportError as error:
        raise MissingExtraError(
            "progress_frame() needs the package pandas: pip install pandas, or use progress_rows() instead"
        ) from error
    rows = progress_rows(query)
    frame = pd.DataFrame(rows, columns=list(rows[0]) if rows else ["batch", "started", "rows_in", "seconds"])
    frame["started"] = pd.to_datetime(frame["started"], utc=True)
    return frame.set_index("batch")


def _row(progress: Mapping[str, Any]) -> dict[str, Any]:
    sources = progress.get("sources") or []
    phases: Mapping[str, int] = progress.get("durationMs") or {}
    written = (progress.get("sink") or {}).get("numOutputRows", -1)
    row: dict[str, Any] = {
        "batch": progress["batchId"],
        "started": progress["timestamp"],
        "rows_in": sum(source.get("numInputRows", 0) for source in sources),
        "rows_out": written if written >= 0 else None,
        # Spark leaves out values that it cannot compute.
        "rows_in_per_s": progress.get("inputRowsPerSecond"),
        "rows_done_per_s": progress.get("processedRowsPerSecond"),
        "seconds": phases.get("triggerExecution", 0) / 1000,
    }
    row.update({f"{name}_ms": phases[name] for name in sorted(phases) if name != "triggerExecution"})
    for source in sources:
        for name, number in backlog_of(source).items():
            row[name] = row.get(name, 0) + number
    return row
