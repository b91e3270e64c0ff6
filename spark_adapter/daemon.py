"""A daemon for PySpark's Python workers that imports this package before it forks them.

Spark ends a Python worker that has been idle for a minute, and forks the next one from a daemon that has
imported only PySpark. Such a worker first imports this package, ``pravega_wire`` and pyarrow: that takes half
a second of CPU time, or several seconds on a busy machine, after every pause. Workers of this daemon start
with these imports done.

PySpark's workers also collect garbage after each task, and look at every object that the imports made, for 20
to 100 ms. Workers of this daemon leave these out. Set it before the Spark context is created, or with
``--conf``::

    spark.python.daemon.module=spark_adapter.daemon

It is used for tasks only. Spark plans Python data sources in processes whose daemon cannot be configured.
"""

from __future__ import annotations

import gc
from importlib import import_module
from importlib.util import find_spec

import pyarrow  # noqa: F401  # imported for workers
from pyspark.daemon import manager

import pravega_wire.sync  # noqa: F401  # imported for workers
import spark_adapter

for _name in spark_adapter.__all__:
    getattr(spark_adapter, _name)
if find_spec("pandas") is not None:
    # PySpark requires it for rows in Arrow batches.
    import_module("pandas")

__all__ = ["manager"]

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    manager()
