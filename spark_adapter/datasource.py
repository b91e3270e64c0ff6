"""The data source ``pravega``, for PySpark 4.0 and newer, which have an API for data sources in Python.

It is imported only if that API exists: by :mod:`spark_adapter`, and by ``pyspark_pravega``, where Spark finds
it.
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
from pravega_wire.errors import InvalidArgumentError, PravegaError
from spark_adapter.clients import HeldClient
from spark_adapter.options.creating import Creation, ensure_stream
from spark_adapter.options.read import ReadOptions, Use, canonical, read_use, schema_of
from spark_adapter.tables.metadata import TableRead

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PravegaDataSource"]


class PravegaDataSource(DataSource):  # type: ignore[misc]  # pyspark is Any to mypy
    """The format ``pravega`` of ``spark.read``, ``readStream``, ``DataFrame.write`` and ``writeStream``.

    ``docs/spark-reading.md`` and ``docs/spark-writing.md`` list the options. The bounds
    of a batch read are resolved when Spark plans it.

    Example::

        frame = (
            spark.read.format("pravega")
            .option("controller", "tcp://localhost:9090")
            .option("stream", "demo/readings")
            .option("columns", "event,offset")
            .load()
        )
    """

    # Modules are imported where they are used: Spark starts a process for each step of a plan.
    # Options are parsed where they are used: Spark also creates this object for uses that it does not
    # support, and with options of its own.

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "pravega"

    def schema(self) -> str:
        """Return the columns that the options select, or those of a metadata table.

        It checks the options, so that ``load()`` reports a wrong one.

        :raises InvalidArgumentError: an option is unknown, missing or malformed.
        """
        table = TableRead.parse(dict(self.options))
        if table is not None:
            return table.schema
        use = read_use(self.options)
        self._creation(use)
        return schema_of(ReadOptions.parse(self.options, use).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of ``spark.read``.

        It plans partitions on the driver and reads them on the workers.

        :raises InvalidArgumentError: an option is wrong, or ``schema()`` was called with other columns than
            the options select.
        """
        table = TableRead.parse(dict(self.options))
        if table is not None:
            from spark_adapter.tables.reader import TableReader

            return TableReader(table, schema)
        options = ReadOptions.parse(self.options)
        _check_schema(schema, options)
        return _Reader(options, self._creation("read"))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of ``spark.readStream``.

        If an option is wrong, or ``schema()`` was called with other columns than the options select, the
        reader raises ``InvalidArgumentError`` when Spark begins to use it.

        :raises InvalidArgumentError: PySpark is older than 4.2.
        """
        try:
            from spark_adapter.reading.micro_batches import PravegaStreamReader, RefusedStreamReader
        except ImportError as error:
            raise InvalidArgumentError(
                "readStream.format('pravega') needs PySpark 4.2 or newer, whose data sources support limits "
                "per trigger; with an older version, read the events between two stream cuts with read_df"
            ) from error
        try:
            options = ReadOptions.parse(self.options, "readStream")
            _check_schema(schema, options)
            return PravegaStreamReader(options, self._creation("readStream"))
        except PravegaError as error:
            return RefusedStreamReader(error)

    def _creation(self, use: Use) -> Creation:
        return Creation.parse(canonical(self.options, use), use)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of ``DataFrame.write``; see
        :func:`spark_adapter.writing.format_writer.batch_sink`."""
        from spark_adapter.writing.format_writer import batch_sink

        return batch_sink(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of ``writeStream``; see
        :func:`spark_adapter.writing.format_writer.stream_sink`."""
        from spark_adapter.writing.format_writer import stream_sink

        return stream_sink(dict(self.options), schema, overwrite)


def _check_schema(schema: StructType, options: ReadOptions) -> None:
    wanted = schema_of(options.columns).replace("`", "")
    given = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)
    if given != wanted:
        raise InvalidArgumentError(
            f"format 'pravega' has the columns {wanted}, not {given}: remove schema(), choose columns with "
            "the option 'columns', and cast them in the DataFrame"
        )


class _Reader(DataSourceReader):  # type: ignore[misc]  # pyspark is Any to mypy
    # There is no pushFilters: in PySpark 4.3 the pushed filter of one query stays in the loaded DataFrame and
    # silently removes rows from the next query.

    def __init__(self, options: ReadOptions, creation: Creation) -> None:
        self.options = options
        self.creation = creation

    def partitions(self) -> list[InputPartition]:
        ranges: Iterable[SegmentRange] | None = self.options.ranges
        if ranges is None:
            from spark_adapter.reading.stream_planner import batch_ranges

            with HeldClient(self.options.config) as client:
                for stream in self.options.choice.names:
                    ensure_stream(client, stream, self.creation)
                ranges = batch_ranges(client, self.options)
        return [InputPartition(each) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # For an empty list Spark creates one partition without a value.
        if isinstance(getattr(partition, "value", None), SegmentRange):
            # Only workers import this: Spark starts a process for each plan.
            from spark_adapter.reading.arrow import batches_of

            options = self.options
            yield from batches_of(
                options.config, partition.value, options.columns, skip_lost=not options.fail_on_data_loss
            )
