"""The data source ``pravega``, for versions of PySpark that have an API for one in Python: from 4.0.

Only :mod:`spark_adapter` and :func:`spark_adapter.register` import this module, where that API is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from pravega_wire import SegmentRange
from pravega_wire.errors import InvalidArgumentError
from spark_adapter.clients import HeldClient
from spark_adapter.creating import Creation, ensure_stream
from spark_adapter.options import ReadOptions, Use, canonical, read_use, schema_of
from spark_adapter.planner import batch_ranges
from spark_adapter.table_reader import TableReader
from spark_adapter.tables import TableRead

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PravegaDataSource"]


class PravegaDataSource(DataSource):  # type: ignore[misc]  # pyspark is Any to mypy
    """``format("pravega")`` to read and to write; the options are in :mod:`spark_adapter.options`.

    Without ``segment_ranges`` the bounds are resolved when Spark plans the read.
    """

    # Options are parsed where they are used: Spark makes this object for what it cannot do as well, with
    # options of its own.

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "pravega"

    def schema(self) -> str:
        """The columns asked for, or those of a metadata table.

        Looks at the options, so that a wrong one is found by ``load()``.
        """
        table = TableRead.parse(dict(self.options))
        if table is not None:
            return table.schema
        use = read_use(self.options)
        self._creation(use)
        return schema_of(ReadOptions.parse(self.options, use).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader, which plans partitions on the driver and reads them on the workers.

        :raises InvalidArgumentError: the user gave another schema than the columns asked for.
        """
        table = TableRead.parse(dict(self.options))
        if table is not None:
            return TableReader(table, schema)
        options = ReadOptions.parse(self.options)
        _check_schema(schema, options)
        return _Reader(options, self._creation("read"))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of a streaming query.

        :raises InvalidArgumentError: the user gave another schema than the columns asked for, or this PySpark
            is older than 4.2.
        """
        try:
            from spark_adapter.stream_source import PravegaStreamReader
        except ImportError as error:
            raise InvalidArgumentError(
                "readStream.format('pravega') needs PySpark 4.2 or newer, whose data sources know limits per "
                "trigger; with this one, read what lies between two stream cuts with read_df"
            ) from error
        options = ReadOptions.parse(self.options, "readStream")
        _check_schema(schema, options)
        return PravegaStreamReader(options, self._creation("readStream"))

    def _creation(self, use: Use) -> Creation:
        return Creation.parse(canonical(self.options, use), use)

    # Imported where it is used: Spark starts a process for each plan.

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of ``DataFrame.write``; see :func:`spark_adapter.format_sink.batch_sink`."""
        from spark_adapter.format_sink import batch_sink

        return batch_sink(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The writer of ``writeStream``; see :func:`spark_adapter.format_sink.stream_sink`."""
        from spark_adapter.format_sink import stream_sink

        return stream_sink(dict(self.options), schema, overwrite)


def _check_schema(schema: StructType, options: ReadOptions) -> None:
    wanted = schema_of(options.columns).replace("`", "")
    given = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)
    if given != wanted:
        raise InvalidArgumentError(
            f"format 'pravega' has the columns {wanted}, not {given}: leave out schema(), and "
            "select or cast columns of the frame (the option 'columns' leaves some out)"
        )


class _Reader(DataSourceReader):  # type: ignore[misc]  # pyspark is Any to mypy
    # No pushFilters: in PySpark 4.3 the filter of one query stays in the loaded DataFrame and
    # silently cuts the rows of the next one.

    def __init__(self, options: ReadOptions, creation: Creation) -> None:
        self.options = options
        self.creation = creation

    def partitions(self) -> list[InputPartition]:
        ranges: Iterable[SegmentRange] | None = self.options.ranges
        if ranges is None:
            with HeldClient(self.options.config) as client:
                for stream in self.options.choice.names:
                    ensure_stream(client, stream, self.creation)
                ranges = batch_ranges(client, self.options)
        return [InputPartition(each) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes one partition without a value of an empty list
        if isinstance(getattr(partition, "value", None), SegmentRange):
            # Imported by the workers alone: Spark starts a process for each plan.
            from spark_adapter.arrow_reader import batches_of

            options = self.options
            yield from batches_of(
                options.config, partition.value, options.columns, skip_lost=not options.fail_on_data_loss
            )
