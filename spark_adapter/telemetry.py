"""Records the metrics of streaming queries with OpenTelemetry.

Example::

    from spark_adapter.telemetry import query_listener

    spark.streams.addListener(query_listener())

It needs the extra ``telemetry`` (the package ``opentelemetry-api``). The OpenTelemetry SDK that the program
sets up exports the metrics. ``docs/spark.md`` lists the instruments and their attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.sql.streaming import StreamingQueryListener

from pravega_wire.errors import MissingExtraError
from spark_adapter.progress import backlog_of, progress_dict

if TYPE_CHECKING:
    from opentelemetry import metrics as otel

__all__ = ["query_listener"]

_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the histograms' buckets, unless the SDK is configured with others."""

_Attributes: TypeAlias = dict[str, str | int]


def query_listener(meter: otel.Meter | None = None) -> StreamingQueryListener:
    """Return a listener that records the progress of streaming queries.

    It records every query of the sessions that it is added to.

    It works in the driver with the numbers that Spark collects for each batch. It makes no calls to a server,
    and delays no batch.

    :param meter: the meter to use; default: the global provider's meter named ``spark_adapter``.
    :raises MissingExtraError: ``opentelemetry-api`` is not installed.
    """
    try:
        from opentelemetry import metrics as api
    except ImportError as error:
        raise MissingExtraError(
            "query_listener() needs the package opentelemetry-api: pip install 'pravega-wire[telemetry]'"
        ) from error
    return _Listener(api.get_meter("spark_adapter") if meter is None else meter, api.Observation)


class _Listener(StreamingQueryListener):  # type: ignore[misc]  # pyspark is Any to mypy
    """The listener.

    :param meter: the meter to use.
    :param observed: creates the observations that callbacks of observable instruments return.
    """

    def __init__(self, meter: otel.Meter, observed: Callable[[int | float, Any], otel.Observation]) -> None:
        self._observed = observed
        # By run of a query. Set in Spark's thread and read in the exporter's: replaced, never modified.
        self._of_run: dict[str, _Attributes] = {}
        self._levels: dict[str, tuple[tuple[str, int | float, _Attributes], ...]] = {}
        counter = meter.create_counter
        self._batches = counter("pravega.spark.batches", "{batch}", "Batches that queries have completed.")
        self._rows_read = counter(
            "pravega.spark.rows.read", "{row}", "Rows that sources provided to queries."
        )
        self._rows_written = counter(
            "pravega.spark.rows.written", "{row}", "Rows that sinks received, if the sink reports it."
        )
        self._failures = counter(
            "pravega.spark.failures", "{failure}", "Runs of queries that ended in an error."
        )
        self._batch_seconds = meter.create_histogram(
            "pravega.spark.batch.duration",
            "s",
            "Time from the trigger to the end of a batch.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._phase_seconds = meter.create_histogram(
            "pravega.spark.phase.duration",
            "s",
            "Durations of the phases of a batch, named as in Spark.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        meter.create_observable_up_down_counter(
            "pravega.spark.queries", [self._running], "{query}", "Running queries."
        )
        for name, unit, description in (
            ("input.rate", "{row}/s", "Rate of arriving rows, as of the last batch."),
            ("processing.rate", "{row}/s", "Rate of processed rows, as of the last batch."),
            ("backlog", "By", "Bytes that a source had not read after the last batch, if it reports them."),
            ("backlog.events", "{event}", "Events in these bytes, if the source reports them."),
        ):
            full = f"pravega.spark.{name}"
            meter.create_observable_gauge(full, [self._level_of(full)], unit, description)

    def onQueryStarted(self, event: Any) -> None:
        """Record the start of a query."""
        self._attributes(str(event.runId), str(event.id), event.name)

    def onQueryProgress(self, event: Any) -> None:
        """Record the end of a batch."""
        progress = progress_dict(event.progress)
        run = str(progress["runId"])
        # The query may have started before the listener was added.
        of = self._attributes(run, str(progress["id"]), progress.get("name"))
        self._batches.add(1, of)
        for phase, milliseconds in (progress.get("durationMs") or {}).items():
            if phase == "triggerExecution":
                self._batch_seconds.record(milliseconds / 1000, of)
            else:
                self._phase_seconds.record(milliseconds / 1000, {**of, "spark.phase": phase})
        written = (progress.get("sink") or {}).get("numOutputRows", -1)
        if written > 0:
            self._rows_written.add(written, of)
        levels: list[tuple[str, int | float, _Attributes]] = []
        for number, source in enumerate(progress.get("sources") or []):
            # By number, because a source's description may contain anything.
            here: _Attributes = {**of, "spark.source": number}
            self._rows_read.add(source.get("numInputRows", 0), here)
            for name, key in (
                ("input.rate", "inputRowsPerSecond"),
                ("processing.rate", "processedRowsPerSecond"),
            ):
                levels.append((f"pravega.spark.{name}", _rate(source, key), here))
            for key, value in backlog_of(source).items():
                levels.append((f"pravega.spark.{key.replace('_', '.').removesuffix('.bytes')}", value, here))
        self._levels = {**self._levels, run: tuple(levels)}

    def onQueryIdle(self, event: Any) -> None:
        """Record that a query had no data: its rates are 0 until the next batch."""
        run = str(event.runId)
        levels = self._levels.get(run, ())
        idle = tuple((name, 0.0 if name.endswith(".rate") else value, of) for name, value, of in levels)
        self._levels = {**self._levels, run: idle}

    def onQueryTerminated(self, event: Any) -> None:
        """Record the end of a query: it no longer has a backlog or rates."""
        run = str(event.runId)
        of = self._of_run.get(run)
        self._levels = {key: value for key, value in self._levels.items() if key != run}
        self._of_run = {key: value for key, value in self._of_run.items() if key != run}
        if of is not None and event.exception is not None:
            kind = getattr(event, "errorClassOnException", None) or "other"
            self._failures.add(1, {**of, "error.type": str(kind)})

    def _attributes(self, run: str, query: str, name: str | None) -> _Attributes:
        of = self._of_run.get(run)
        if of is None:
            # The run is not an attribute, because its cardinality is unbounded.
            of = {"spark.query.id": query}
            if name:
                of["spark.query.name"] = name
            self._of_run = {**self._of_run, run: of}
        return of

    def _running(self, options: otel.CallbackOptions) -> Iterable[otel.Observation]:
        return [self._observed(1, of) for of in self._of_run.values()]

    def _level_of(self, wanted: str) -> Callable[[otel.CallbackOptions], Iterable[otel.Observation]]:
        def read(options: otel.CallbackOptions) -> Iterable[otel.Observation]:
            return [
                self._observed(value, of)
                for levels in self._levels.values()
                for name, value, of in levels
                if name == wanted
            ]

        return read


def _rate(source: Mapping[str, Any], key: str) -> float:
    # Spark leaves out values that it cannot compute.
    return float(source.get(key) or 0.0)
