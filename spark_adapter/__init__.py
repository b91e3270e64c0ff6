"""Read and write Pravega streams in PySpark.

``spark.read``, ``readStream``, ``DataFrame.write`` and ``writeStream`` have the format ``pravega``; where
Spark does not find it by itself, :func:`register` adds it to a session. :func:`read_df` and :func:`read_rdd`
read the events between two stream cuts.
:class:`ForeachBatchSink` writes the micro-batches of a streaming query, optionally exactly once.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pravega_wire.errors import MissingExtraError

try:
    import_module("pyspark.sql")
    if find_spec("pyarrow") is None:
        raise ImportError("No module named 'pyarrow'")
except ImportError as error:
    raise MissingExtraError(
        f"spark_adapter needs PySpark and pyarrow, and one of them cannot be imported ({error}): "
        "pip install 'pravega-wire[spark]'"
    ) from error

from spark_adapter.versions import HAS_DATA_SOURCES, needs_data_sources

if TYPE_CHECKING:
    from spark_adapter.bounded import EVENT_SCHEMA, read_df, read_rdd, register
    from spark_adapter.datasource import PravegaDataSource
    from spark_adapter.exactly_once.driver import STEPS, BatchReport
    from spark_adapter.options.creating import create_if_missing
    from spark_adapter.progress import progress_frame, progress_rows
    from spark_adapter.tables.metadata import metadata_df
    from spark_adapter.writing.foreach_batch import ForeachBatchSink, SinkPerStream

# A name's module is loaded when the name is used first: Spark starts a process for each plan, and those need
# few of them.
_MODULES = {
    "EVENT_SCHEMA": "bounded",
    "STEPS": "exactly_once.driver",
    "BatchReport": "exactly_once.driver",
    "ForeachBatchSink": "writing.foreach_batch",
    "PravegaDataSource": "datasource",
    "SinkPerStream": "writing.foreach_batch",
    "create_if_missing": "options.creating",
    "metadata_df": "tables.metadata",
    "progress_frame": "progress",
    "progress_rows": "progress",
    "read_df": "bounded",
    "read_rdd": "bounded",
    "register": "bounded",
}

__all__ = [
    "EVENT_SCHEMA",
    "STEPS",
    "BatchReport",
    "ForeachBatchSink",
    "SinkPerStream",
    "create_if_missing",
    "metadata_df",
    "progress_frame",
    "progress_rows",
    "read_df",
    "read_rdd",
    "register",
]

if TYPE_CHECKING or HAS_DATA_SOURCES:
    __all__ += ["PravegaDataSource"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "PravegaDataSource":
        needs_data_sources(name)
    found = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
