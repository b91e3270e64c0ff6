"""Bounded and streaming reads: the ranges of partitions, and their events as rows."""
