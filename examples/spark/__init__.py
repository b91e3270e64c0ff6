"""Small Spark programs: ``python -m examples.spark.NAME --help``. ``docs/spark.md`` explains them."""
