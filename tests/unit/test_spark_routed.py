"""Rows that name their streams: each stream's writer gets its rows, in order, whatever happens to another."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

import pyarrow as pa

from pravega_wire import PravegaConfig, ScopedStream
from pravega_wire.errors import EncodeError, InvalidArgumentError
from spark_adapter.options.write import Routing
from spark_adapter.writing.routed import write_routed

CONFIG = PravegaConfig(scope="sc")


def batch(names: list[str | None], numbers: list[int]) -> pa.RecordBatch:
    """Rows with a stream and a number."""
    return pa.RecordBatch.from_arrays(
        [pa.array(numbers, pa.int64()), pa.array(names, pa.string())], ["number", "to"]
    )


def batches_of(rows: list[tuple[str, int]], size: int) -> Iterator[pa.RecordBatch]:
    """The rows in batches of a size."""
    for at in range(0, len(rows), size):
        part = rows[at : at + size]
        yield batch([name for name, _ in part], [number for _, number in part])


def numbers_of(_: ScopedStream, rows: Iterator[pa.RecordBatch]) -> list[int]:
    """A writer that keeps the numbers."""
    found: list[int] = []
    for each in rows:
        assert each.schema.names == ["number"]
        found += each.column("number").to_pylist()
    return found


@given(
    rows=st.lists(st.tuples(st.sampled_from(["a", "sc/a", "b", "other/c"]), st.integers(0, 99)), max_size=60),
    size=st.integers(1, 20),
)
def test_each_writer_gets_the_rows_of_its_stream_in_order(rows: list[tuple[str, int]], size: int) -> None:
    found = write_routed(batches_of(rows, size), Routing("to", 3), CONFIG, numbers_of)
    wanted: dict[ScopedStream, list[int]] = {}
    for name, number in rows:
        wanted.setdefault(CONFIG.resolve(name), []).append(number)
    assert found == wanted


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", None], r"column 'to' \(stream_col\) of a row in a partition is null or empty"),
        (["a", ""], "is null or empty"),
        (["a", "b", "sc/b", "c"], r"name more than 2 streams in column 'to'; set the option most_streams"),
        (["a", "x/y/z"], r"column 'to' \(stream_col\) of a row in a partition: .*x/y/z"),
    ],
)
def test_rows_that_name_no_stream_end_all_writers(names: list[str | None], message: str) -> None:
    ended: list[ScopedStream] = []

    def write(stream: ScopedStream, rows: Iterator[pa.RecordBatch]) -> None:
        try:
            for _ in rows:
                pass
        except BaseException:
            ended.append(stream)
            raise

    parts = (batch([name], [0]) for name in names)
    with pytest.raises(InvalidArgumentError, match=message):
        write_routed(parts, Routing("to", 2), CONFIG, write)
    assert ScopedStream("sc", "a") in ended


@pytest.mark.parametrize("at_once", [False, True])
def test_a_writer_that_fails_ends_the_others(at_once: bool) -> None:
    """Even if rows for it are still to come, and its queue is full."""
    go_on, ended = threading.Event(), threading.Event()

    def write(stream: ScopedStream, rows: Iterator[pa.RecordBatch]) -> None:
        if stream.name == "bad":
            if not at_once:
                go_on.wait()
            raise ValueError("the disk is full")
        try:
            for _ in rows:
                pass
        except BaseException:
            ended.set()
            raise

    def rows() -> Iterator[pa.RecordBatch]:
        yield batch(["good"], [0])
        for number in range(100):
            if number == 2:
                go_on.set()
            yield batch(["bad"], [number])

    with pytest.raises(ValueError, match="the disk is full"):
        write_routed(rows(), Routing("to", 2), CONFIG, write)
    assert ended.is_set()


def test_a_name_that_is_not_utf8_is_refused() -> None:
    names = pa.array([b"a", b"\xff"]).view(pa.string())
    wrong = pa.RecordBatch.from_pydict({"to": names, "number": pa.array([1, 2])})
    with pytest.raises(EncodeError, match=r"column 'to' \(stream_col\) of a row in a partition is not UTF-8"):
        write_routed([wrong], Routing("to", 2), CONFIG, numbers_of)
