"""Checks what the installed PySpark and the session support; each message says what to use instead."""

from __future__ import annotations

from importlib.util import find_spec

import pyspark
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession, functions

from pravega_wire.errors import InvalidArgumentError, MissingExtraError

__all__ = [
    "HAS_ARROW_FUNCTIONS",
    "HAS_DATA_SOURCES",
    "check_context",
    "check_session",
    "is_connect",
    "needs_arrow_functions",
    "needs_classic",
    "needs_data_sources",
]

HAS_DATA_SOURCES = find_spec("pyspark.sql.datasource") is not None
"""True if PySpark has an API for data sources in Python, as 4.0 and newer have."""

HAS_ARROW_FUNCTIONS = hasattr(functions, "arrow_udf")
"""True if PySpark has functions of Arrow arrays, as 4.1 and newer have."""


def needs_arrow_functions(what: str) -> None:
    """Check that PySpark has functions of Arrow arrays.

    :param what: the feature that needs them, for the message.
    :raises MissingExtraError: PySpark is older than 4.1.
    """
    if not HAS_ARROW_FUNCTIONS:
        raise MissingExtraError(
            f"{what} needs PySpark 4.1 or newer, but this is {pyspark.__version__}, which has no functions "
            "of Arrow arrays: read with read_rdd(spark.sparkContext, config, stream, "
            "deserializer=serializer.deserialize)"
        )


def needs_data_sources(what: str) -> None:
    """Check that PySpark supports data sources in Python.

    :param what: the feature that needs them, for the message.
    :raises MissingExtraError: PySpark is older than 4.0.
    """
    if not HAS_DATA_SOURCES:
        raise MissingExtraError(
            f"{what} needs PySpark 4.0 or newer, but this is {pyspark.__version__}, which has no data "
            "sources in Python: read with read_rdd(spark.sparkContext, config, stream), and write with "
            "ForeachBatchSink(config, stream, ...)"
        )


def is_connect(of: SparkSession | DataFrame) -> bool:
    """Return True for a session of Spark Connect, or a DataFrame of such a session."""
    # isinstance is not used, because importing the classes needs the packages of Spark Connect.
    return any(kind.__module__.startswith("pyspark.sql.connect.") for kind in type(of).__mro__)


def needs_classic(of: SparkSession | DataFrame, what: str, instead: str) -> None:
    """Check that a session or DataFrame does not belong to Spark Connect.

    :param of: the session or DataFrame.
    :param what: the feature that does not work with Spark Connect, for the message.
    :param instead: what to do instead, as the end of a sentence.
    :raises InvalidArgumentError: ``of`` belongs to Spark Connect.
    """
    if is_connect(of):
        raise InvalidArgumentError(f"{what} does not work with Spark Connect: {instead}")


def check_session(spark: object) -> None:
    """Check that ``spark`` is a Spark session, and not its context, for example.

    :raises InvalidArgumentError: ``spark`` is something else.
    """
    if not (isinstance(spark, SparkSession) or is_connect(spark)):
        raise InvalidArgumentError(f"spark must be a SparkSession, not {type(spark).__name__}")


def check_context(sc: object) -> None:
    """Check that ``sc`` is a Spark context, and not the session, for example.

    :raises InvalidArgumentError: ``sc`` is something else.
    """
    if not isinstance(sc, SparkContext):
        raise InvalidArgumentError(
            f"read_rdd needs a SparkContext, not {type(sc).__name__}: pass spark.sparkContext. A session of "
            "Spark Connect has neither a SparkContext nor RDDs: there, read a DataFrame with "
            'spark_adapter.register(spark) and spark.read.format("pravega")'
        )
