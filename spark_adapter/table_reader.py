"""How Spark reads a metadata table. A module of its own, as PySpark has had this interface since 4.0."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pravega_wire.errors import InvalidArgumentError
from spark_adapter.tables import TableRead

__all__ = ["TableReader"]


class TableReader(DataSourceReader):  # type: ignore[misc]  # pyspark is Any to mypy
    """Fetches the rows while the query is planned, so that a task that is tried again gives the same.

    :raises InvalidArgumentError: the user gave another schema than the table's.
    """

    def __init__(self, table: TableRead, schema: StructType) -> None:
        given = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)
        if given != table.schema:
            raise InvalidArgumentError(
                f"metadata {table.table!r} has the columns {table.schema}, not {given}: leave out schema(), "
                "and select or cast columns of the frame"
            )
        self.table = table

    def partitions(self) -> list[InputPartition]:
        """One, with the rows in it."""
        return [InputPartition(self.table.rows())]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The rows."""
        yield from partition.value
