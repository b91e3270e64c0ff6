"""What the PySpark at hand can do, and which kind of session it is; a refusal says what to use instead."""

from __future__ import annotations

from importlib.util import find_spec

import pyspark
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from pravega_wire.errors import InvalidArgumentError, MissingExtraError

__all__ = [
    "HAS_DATA_SOURCES",
    "check_context",
    "is_connect",
    "needs_classic",
    "needs_data_sources",
]

HAS_DATA_SOURCES = find_spec("pyspark.sql.datasource") is not None
"""Whether PySpark has an API for data sources in Python: from 4.0."""


def needs_data_sources(what: str) -> None:
    """Refuse ``what`` where PySpark has no data sources in Python.

    :raises MissingExtraError: PySpark is older than 4.0.
    """
    if not HAS_DATA_SOURCES:
        raise MissingExtraError(
            f"{what} needs PySpark 4.0 or newer, and this is {pyspark.__version__}, which has no data "
            "sources in Python: read with read_rdd(spark.sparkContext, config, stream), and write with "
            "ForeachBatchSink(config, stream, ...)"
        )


def is_connect(of: SparkSession | DataFrame) -> bool:
    """Whether a session is one of Spark Connect, or a frame of such a session."""
    # Their classes are not asked for: importing them needs the packages of Spark Connect.
    return any(kind.__module__.startswith("pyspark.sql.connect.") for kind in type(of).__mro__)


def needs_classic(of: SparkSession | DataFrame, what: str, instead: str) -> None:
    """Refuse ``what`` in a Spark Connect session.

    :param instead: what to do, as the end of a sentence.
    :raises InvalidArgumentError: ``of`` belongs to Spark Connect.
    """
    if is_connect(of):
        raise InvalidArgumentError(f"{what} does not work over Spark Connect: {instead}")


def check_context(sc: object) -> None:
    """Refuse what is no Spark context, such as the session itself.

    :raises InvalidArgumentError: ``sc`` is something else.
    """
    if not isinstance(sc, SparkContext):
        raise InvalidArgumentError(
            f"read_rdd needs a SparkContext, not {type(sc).__name__}: give it spark.sparkContext. A "
            "session of Spark Connect has none, and no RDDs: read a frame there, with "
            'spark_adapter.register(spark) and spark.read.format("pravega")'
        )
