"""Pravega streams in PySpark: bounded reads, and a sink that is exactly once on request."""

from spark_adapter.commit import STEPS, BatchReport
from spark_adapter.sink import ForeachBatchSink
from spark_adapter.source import EVENT_SCHEMA, PravegaDataSource, read_df, read_rdd, register

__all__ = [
    "EVENT_SCHEMA",
    "STEPS",
    "BatchReport",
    "ForeachBatchSink",
    "PravegaDataSource",
    "read_df",
    "read_rdd",
    "register",
]
