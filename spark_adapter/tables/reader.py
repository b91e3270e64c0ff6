"""Reads a metadata table for Spark.

It is a separate module because PySpark has this interface only since 4.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pravega_wire.errors import InvalidArgumentError
from spark_adapter.tables.metadata import TableRead

__all__ = ["TableReader"]


class TableReader(DataSourceReader):  # type: ignore[misc]  # pyspark is Any to mypy
    """Fetches the rows when the query is planned, so that a repeated task returns the same rows.

    :param table: the table to read.
    :param schema: the schema that Spark passes.
    :raises InvalidArgumentError: ``schema()`` was called with other columns than the table's.
    """

    def __init__(self, table: TableRead, schema: StructType) -> None:
        given = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)
        wanted = table.schema.replace("`", "")
        if given != wanted:
            raise InvalidArgumentError(
                f"metadata {table.table!r} has the columns {wanted}, not {given}: remove schema(), and "
                "select or cast columns in the DataFrame"
            )
        self.table = table

    def partitions(self) -> list[InputPartition]:
        """Return one partition with all rows."""
        return [InputPartition(self.table.rows())]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Return the rows."""
        yield from partition.value
