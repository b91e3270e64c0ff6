"""Read and write Pravega streams in PySpark.

:func:`register` adds the format ``pravega`` to a session, for ``spark.read``, ``readStream``,
``DataFrame.write`` and ``writeStream``. :func:`read_df` and :func:`read_rdd` read the events between two
stream cuts.
:class:`ForeachBatchSink` writes the micro-batches of a streaming query, optionally exactly once.
"""

from typing import TYPE_CHECKING, Any

from spark_adapter.bounded import EVENT_SCHEMA, read_df, read_rdd, register
from spark_adapter.exactly_once.driver import STEPS, BatchReport
from spark_adapter.options.creating import create_if_missing
from spark_adapter.progress import progress_frame, progress_rows
from spark_adapter.tables.metadata import metadata_df
from spark_adapter.versions import HAS_DATA_SOURCES, needs_data_sources
from spark_adapter.writing.foreach_batch import ForeachBatchSink

__all__ = [
    "EVENT_SCHEMA",
    "STEPS",
    "BatchReport",
    "ForeachBatchSink",
    "create_if_missing",
    "metadata_df",
    "progress_frame",
    "progress_rows",
    "read_df",
    "read_rdd",
    "register",
]

if TYPE_CHECKING or HAS_DATA_SOURCES:
    from spark_adapter.datasource import PravegaDataSource

    __all__ += ["PravegaDataSource"]


def __getattr__(name: str) -> Any:
    if name == "PravegaDataSource":
        needs_data_sources(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
