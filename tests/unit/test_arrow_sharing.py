"""What pandas, polars and DuckDB copy of events read as Arrow arrays, as docs/notebooks.md says."""

from __future__ import annotations

import sys
from struct import pack
from typing import Any

import duckdb
import pandas as pd  # type: ignore[import-untyped,unused-ignore]  # has no stubs here
import polars as pl
import pyarrow as pa
import pytest

from pravega_wire.errors import MissingExtraError
from pravega_wire.protocol.events import EventBatch
from pravega_wire.support.arrow import arrow_integer, arrow_text

PAYLOADS = [b"a reading that is longer than twelve bytes: %d" % number for number in range(1000)]


def batch_of(payloads: list[bytes]) -> EventBatch:
    framed = b"".join(pack(">ii", 0, len(each)) + each for each in payloads)
    return EventBatch.unsplit("s/t/0.#epoch.0", memoryview(framed), 0)


def payload_buffers(column: Any) -> list[int]:
    """The addresses of the buffers that hold a column's payloads."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return [each.buffers()[2].address for each in chunks]


def numbers_at(column: Any) -> list[int]:
    return [each.buffers()[1].address for each in column.chunks]


@pytest.fixture
def column() -> Any:
    """Two batches of events as one column."""
    return pa.chunked_array([batch_of(PAYLOADS).to_arrow(), batch_of(PAYLOADS[::-1]).to_arrow()])


def test_the_payloads_are_copied_once_out_of_what_was_received() -> None:
    batch = batch_of(PAYLOADS)
    array = batch.to_arrow()
    received = pa.py_buffer(batch.buffer)
    assert not received.address <= payload_buffers(array)[0] < received.address + received.size
    assert array.buffers()[2].size >= sum(map(len, PAYLOADS))


def test_checking_that_events_are_text_copies_nothing(column: Any) -> None:
    assert payload_buffers(column.cast(pa.string())) == payload_buffers(column)


def test_pandas_shares_payloads_in_columns_of_arrow(column: Any) -> None:
    frame = pa.table({"event": column}).to_pandas(types_mapper=pd.ArrowDtype)
    assert payload_buffers(pa.Table.from_pandas(frame)["event"]) == payload_buffers(column)
    assert frame["event"][0] == PAYLOADS[0]
    # Without it, each event becomes a Python object.
    assert pa.table({"event": column}).to_pandas()["event"].dtype == object


def test_polars_shares_payloads_and_makes_only_views_of_them(column: Any) -> None:
    series = pl.from_arrow(column)
    assert isinstance(series, pl.Series)
    assert series.n_chunks() == 2
    for chunk in column.chunks:
        one = pl.from_arrow(chunk)
        assert isinstance(one, pl.Series)
        views = one.to_arrow(compat_level=pl.CompatLevel.newest())
        assert views.type == pa.binary_view()
        assert views.buffers()[2].address == chunk.buffers()[2].address
    assert series.to_list() == PAYLOADS + PAYLOADS[::-1]


def test_numbers_are_shared_with_pandas_and_polars() -> None:
    offsets = batch_of(PAYLOADS).offsets_arrow()
    address = offsets.buffers()[1].address
    frame = pa.table({"offset": offsets}).to_pandas(types_mapper=pd.ArrowDtype)
    assert numbers_at(pa.Table.from_pandas(frame)["offset"]) == [address]
    plain = offsets.to_numpy(zero_copy_only=True)
    assert plain.__array_interface__["data"][0] == address
    series = pl.from_arrow(offsets)
    assert isinstance(series, pl.Series)
    assert series.to_numpy(allow_copy=False).__array_interface__["data"][0] == address


def test_duckdb_reads_a_table_in_place_and_copies_what_a_query_returns() -> None:
    payloads = [b"%d " % number + bytes(1000) for number in range(20_000)]
    events = pa.table({"event": batch_of(payloads).to_arrow()})
    with duckdb.connect(config={"memory_limit": "10MB", "threads": 1, "temp_directory": ""}) as database:
        database.register("events", events)
        query = "select count(*), sum(octet_length(event)) from events"
        assert database.sql(query).fetchall() == [(len(payloads), sum(map(len, payloads)))]
        # A copy of the table would not have had room.
        with pytest.raises(duckdb.OutOfMemoryException):
            database.execute("create table copied as select * from events")
    small = events.slice(0, 1000)
    with duckdb.connect() as database:
        database.register("small", small)
        found = database.sql("select event from small").to_arrow_table()
    assert found["event"].to_pylist() == small["event"].to_pylist()
    assert set(payload_buffers(found["event"])).isdisjoint(payload_buffers(small["event"]))


@pytest.mark.parametrize("value", [0, 1, -1, 2**63 - 1, -(2**63)])
def test_integers_of_arrow(value: int) -> None:
    made = arrow_integer(value)
    assert made.type == pa.int64()
    assert made.as_py() == value


@pytest.mark.parametrize("value", ["", "scope", "größer 😀"])
def test_texts_of_arrow(value: str) -> None:
    made = arrow_text(value)
    assert made.type == pa.string()
    assert made.as_py() == value
    assert pa.repeat(made, 3).to_pylist() == [value] * 3


@pytest.mark.parametrize("name", ["to_arrow", "offsets_arrow"])
def test_without_pyarrow(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=rf"^{name} needs pyarrow: pip install"):
        getattr(batch_of([b"event"]), name)()
