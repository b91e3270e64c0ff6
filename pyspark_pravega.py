"""Makes the format ``pravega`` known to Spark.

PySpark 4 imports each installed module whose name begins with ``pyspark_``, and makes its ``DefaultSource`` a
format of every session. An error here would cost other packages their formats.
"""

try:
    from spark_adapter.datasource import PravegaDataSource as DefaultSource
except ImportError:  # without pyarrow there is no adapter
    __all__ = []
else:
    __all__ = ["DefaultSource"]
