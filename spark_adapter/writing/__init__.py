"""Writes of micro-batches and frames: by ``foreachBatch``, by the format, and in tasks."""
