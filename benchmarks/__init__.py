"""Benchmarks against the Java client and the ``pravega`` package. See ``docs/benchmarks-how.md``."""
