"""PySpark's daemon of Python workers, which has imported this package before it forks them.

Spark ends a Python worker that has had nothing to do for a minute, and forks the next one from a daemon that
has imported PySpark alone. Such a worker imports this package, ``pravega_wire`` and pyarrow before it does
anything: half a second of CPU time, several seconds on a busy machine, after every pause. Workers of this
daemon have them when they begin. Say so before the Spark context is made, or with ``--conf``::

    spark.python.daemon.module=spark_adapter.daemon

It is for tasks. The processes in which Spark plans a Python data source have a daemon that cannot be chosen.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import pyarrow  # noqa: F401  # imported for workers
from pyspark.daemon import manager

import pravega_wire.sync  # noqa: F401  # imported for workers
import spark_adapter  # noqa: F401  # imported for workers

if find_spec("pandas") is not None:
    # PySpark asks for it where rows travel as Arrow batches.
    import_module("pandas")

__all__ = ["manager"]

if __name__ == "__main__":
    manager()
