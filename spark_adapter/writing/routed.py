"""Writes each row to the stream that a column of it names (the option ``stream_col``).

Each stream is written as if it were the only one, by a writer of its own. In a task these run in threads,
because each takes its rows from an iterator, and the partition has the rows of all streams mixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, Queue
from typing import Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from pravega_wire import PravegaConfig, ScopedStream
from pravega_wire.errors import EncodeError, InvalidArgumentError
from spark_adapter.options.write import Routing, require_named

__all__ = ["write_routed"]

_T = TypeVar("_T")

_AHEAD = 2
"""The most batches that wait for the writer of a stream."""


def write_routed(
    batches: Iterable[pa.RecordBatch],
    routing: Routing,
    config: PravegaConfig,
    write: Callable[[ScopedStream, Iterator[pa.RecordBatch]], _T],
) -> dict[ScopedStream, _T]:
    """Write the rows of a partition to the streams that they name.

    Rows of one stream keep their order.

    :param batches: the rows.
    :param routing: the column with the names, as the DataFrame calls it; the writers do not get it.
    :param config: settings with the default scope.
    :param write: writes rows to a stream until there are no more; called in a thread for each stream, at the
        same time.
    :returns: what it has returned for each stream.
    :raises InvalidArgumentError: a row names no stream, a name is malformed, or there are too many.
    :raises EncodeError: a name is not UTF-8.
    :raises Exception: the error of a writer; the others have ended, too.
    """
    lanes: dict[ScopedStream, _Lane[_T]] = {}
    named: dict[str, _Lane[_T]] = {}
    with ThreadPoolExecutor(routing.most, "stream") as pool:

        def lane_of(name: str) -> _Lane[_T]:
            if name not in named:
                try:
                    stream = config.resolve(name)
                except InvalidArgumentError as error:
                    raise InvalidArgumentError(
                        f"column {routing.column!r} (stream_col) of a row in {_partition()}: {error.message}"
                    ) from error
                if stream not in lanes:
                    if len(lanes) == routing.most:
                        raise InvalidArgumentError(
                            f"the rows of {_partition()} name more than {routing.most} streams in column "
                            f"{routing.column!r}; set the option most_streams if that is intended"
                        )
                    lanes[stream] = _Lane()
                    lanes[stream].start(pool, lambda rows: write(stream, rows))
                named[name] = lanes[stream]
            return named[name]

        try:
            for batch in batches:
                names = batch.column(routing.column)
                rows = batch.select([each for each in batch.schema.names if each != routing.column])
                # A stream may be named with and without its scope.
                its_names: dict[_Lane[_T], list[str]] = {}
                try:
                    found = pc.unique(names).to_pylist()
                except UnicodeDecodeError as error:
                    raise EncodeError(
                        f"column {routing.column!r} (stream_col) of a row in {_partition()} is not UTF-8, so "
                        f"it does not name a stream: {error}"
                    ) from error
                require_named(found, routing.column, _partition())
                for name in found:
                    its_names.setdefault(lane_of(name), []).append(name)
                for lane, some in its_names.items():
                    its_rows = rows
                    if len(its_names) > 1:
                        its_rows = rows.filter(pc.is_in(names, value_set=pa.array(some, names.type)))
                    lane.put(its_rows)
            for lane in lanes.values():
                lane.put(None)
            return {stream: lane.result() for stream, lane in lanes.items()}
        except BaseException:
            for lane in lanes.values():
                lane.stop()
            raise


def _partition() -> str:
    task = TaskContext.get()
    return "a partition" if task is None else f"partition {task.partitionId()}"


class _Stopped(Exception):
    """Another stream of the partition could not be written, or its rows could not be had."""


class _Lane(Generic[_T]):
    """Hands the rows of one stream to the thread that writes them."""

    def __init__(self) -> None:
        self._rows: Queue[pa.RecordBatch | _Stopped | None] = Queue(_AHEAD)
        self._ended = False
        self._future: Future[_T] | None = None

    def start(self, pool: ThreadPoolExecutor, write: Callable[[Iterator[pa.RecordBatch]], _T]) -> None:
        """Start the thread."""
        self._future = pool.submit(self._run, write)

    def put(self, rows: pa.RecordBatch | None) -> None:
        """Hand over rows; waits while the thread is busy with others.

        :param rows: the rows; None for their end.
        :raises Exception: the error with which the thread has ended.
        """
        if self._ended:
            self.result()
        else:
            self._rows.put(rows)

    def stop(self) -> None:
        """Let the thread end with an error, if it has not ended."""
        if not self._ended:
            self._rows.put(_Stopped())

    def result(self) -> _T:
        """Return what the thread has returned, when it has ended.

        :raises Exception: the error with which the thread has ended.
        """
        assert self._future is not None
        return self._future.result()

    def _run(self, write: Callable[[Iterator[pa.RecordBatch]], _T]) -> _T:
        try:
            return write(self._taken())
        finally:
            self._ended = True
            # If the other thread waits in put(), this lets it go on; after that it puts no more than one.
            with suppress(Empty):
                while True:
                    self._rows.get_nowait()

    def _taken(self) -> Iterator[pa.RecordBatch]:
        while (rows := self._rows.get()) is not None:
            if isinstance(rows, _Stopped):
                raise rows
            yield rows
