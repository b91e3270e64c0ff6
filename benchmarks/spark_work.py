"""The work of the Spark participants, and its events; needs only the standard library.

Event ``i`` of a kind has the bytes ``kind.pool()[i % CYCLE]`` and the routing key ``key-<i % KEYS>``, so
every participant knows what there must be in a stream without asking another one.

Requests, one a line (fields are separated by tabs); the answer is a line of JSON:

- ``noop<TAB>form<TAB>stream<TAB>columns<TAB>kind<TAB>count``: read everything and give it to Spark's ``noop``
  format; how many rows and bytes went through is observed on the way.
- ``count<TAB>...``: the same fields; count rows and sum the lengths of their events.
- ``batch<TAB>form<TAB>stream<TAB>folder<TAB>kind<TAB>count``: write the Parquet files of a folder as one job.
- ``stream<TAB>...``: the same fields; write them as a streaming query over the folder that ends by itself,
  ``FILES_PER_TRIGGER`` files a micro-batch.

``columns`` is ``all`` or ``event``. A participant whose version of a package lacks a form answers
``{"unavailable": why}``.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Literal

__all__ = [
    "CORES", "CYCLE", "EVENT", "FILES", "FILES_PER_TRIGGER", "KEY", "KEYS", "KINDS", "PARQUET_SCHEMA",
    "EventKind", "slices",
]  # fmt: skip

CORES = 2
CYCLE = 4096
"""Different events of a kind."""

KEYS = 1000
EVENT, KEY = "event", "routing_key"
"""Columns of what is written; the Scala connector knows no other names."""

PARQUET_SCHEMA = f"{EVENT} binary, {KEY} string"
FILES, FILES_PER_TRIGGER = 8, 2
"""Spark makes two partitions of eight equal files, and four micro-batches."""


@dataclass(frozen=True, slots=True)
class EventKind:
    """Events of one kind.

    :ivar name: as users choose it. :ivar count: how many at full scale.
    :ivar shortest, longest: lengths in bytes; both are possible.
    :ivar spread: how lengths are spread between them: evenly, or evenly over their logarithms.
    """

    name: str
    count: int
    shortest: int
    longest: int
    spread: Literal["even", "log"] = "even"

    def lengths(self) -> list[int]:
        """Length of each event of the cycle."""
        source = random.Random(self.name)
        if self.spread == "even":
            return [source.randint(self.shortest, self.longest) for _ in range(CYCLE)]
        low, high = math.log(self.shortest), math.log(self.longest + 1)
        return [min(self.longest, int(math.exp(source.uniform(low, high)))) for _ in range(CYCLE)]

    def pool(self) -> list[bytes]:
        """The events of the cycle."""
        noise = random.Random(self.name).randbytes(self.longest + CYCLE)
        return [noise[start : start + length] for start, length in enumerate(self.lengths())]

    def bytes_of(self, count: int, start: int = 0) -> int:
        """Bytes of ``count`` events from number ``start`` on."""
        sums = _sums(self)

        def until(end: int) -> int:
            return end // CYCLE * sums[CYCLE] + sums[end % CYCLE]

        return until(start + count) - until(start)


@lru_cache
def _sums(kind: EventKind) -> list[int]:
    return list(accumulate(kind.lengths(), initial=0))


KINDS = {
    kind.name: kind
    for kind in (
        EventKind("100B", 1_000_000, 100, 100),
        EventKind("1kB", 200_000, 1000, 1000),
        EventKind("60-140B", 1_000_000, 60, 140),
        EventKind("20-2000B", 400_000, 20, 2000, "log"),
    )
}
"""By name. The last two show what events of different lengths cost."""


def slices(count: int, parts: int) -> Iterator[tuple[int, int]]:
    """``count`` events in ``parts`` shares as equal as can be: number of the first one, and how many."""
    start = 0
    for number in range(parts):
        share = count // parts + (number < count % parts)
        yield start, share
        start += share
