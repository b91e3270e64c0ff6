"""The work of every participant, and its protocol: one request in each line, one line of JSON as the reply.

- ``append<TAB>stream<TAB>size<TAB>count<TAB>keys``: event ``i`` has payload ``payload_pool(size)[i % POOL]``
  and, where ``keys`` is not 0, routing key ``key-<i % keys>``. ``BENCH_LENGTHS`` in the environment, a key
  of ``LENGTHS``, says how lengths vary around ``size``; default: they do not.
- ``read<TAB>stream``: everything.
- ``group<TAB>stream<TAB>count``: so many events, through a reader group of one reader.
- ``latency<TAB>stream<TAB>size<TAB>count<TAB>rate``: so many events a second, each with the time in its first
  8 bytes; the answer tells how long they took from the call that wrote them until a reader had them.
- ``load<TAB>stream<TAB>size<TAB>count<TAB>rate``: the same, but a time begins when its event was due, whether
  or not it was written then. Rate 0: as fast as it can, each event due when it is written.
- ``acks<TAB>stream<TAB>size<TAB>count<TAB>keys``: events as those of ``append``, each awaited before the
  next one is written. The first ``POOL`` are not measured, and are written besides: they connect.
- ``transactions<TAB>stream<TAB>size<TAB>events<TAB>count<TAB>keys``: ``count`` transactions of so many
  events, one after the other, after one that is not measured; the answer tells the times from before the
  transaction was begun until its commit returned, and until its state is "committed".
- ``synchronizer<TAB>stream<TAB>tasks<TAB>count``: ``tasks`` at once, each with a synchronizer of its own, add
  1 to the counter in ``stream``, ``count`` times each, after once that is not measured. State and updates
  are ``COUNTER_BYTES`` long. As number of events the participant gives what the counter says in the end.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice

__all__ = [
    "COUNTER_BYTES", "HEADER_BYTES", "LENGTHS", "LENGTHS_VARIABLE", "POOL", "Clock", "Latencies",
    "interpreter", "keys_of", "lengths_of", "measure", "payload_pool", "payloads", "serve", "times",
    "total_bytes",
]  # fmt: skip

POOL = 64
HEADER_BYTES = 8
COUNTER_BYTES = 16
"""A number of 8 bytes in the Java client's versioned form."""


LENGTHS_VARIABLE = "BENCH_LENGTHS"
# Neighbours have unlike lengths: this visits all 64 places.
_PLACES = [37 * number % POOL for number in range(POOL)]
LENGTHS = {
    "fixed": [1000] * POOL,
    "60-140": [600 + 800 * place // (POOL - 1) for place in _PLACES],
    "20-2000": [round(200 * 100 ** (place / (POOL - 1))) for place in _PLACES],
}
"""Lengths of the payloads of a pool, in thousandths of their size; names are those of events of 100 bytes.

Lengths of "60-140" are spread evenly, those of "20-2000" by their logarithms.
"""


def lengths_of(size: int) -> list[int]:
    """Lengths of the payloads of a pool."""
    return [size * each // 1000 for each in LENGTHS[os.environ.get(LENGTHS_VARIABLE, "fixed")]]


def total_bytes(size: int, count: int) -> int:
    """Bytes of the payloads of an append."""
    lengths = lengths_of(size)
    whole, rest = divmod(count, POOL)
    return whole * sum(lengths) + sum(lengths[:rest])


def payload_pool(size: int) -> list[bytes]:
    """Return payloads of about one size that all differ.

    Byte ``i`` of number ``k`` is ``31 i + 7 + k`` modulo 256.
    """
    period = [bytes((31 * i + 7 + k) & 0xFF for i in range(256)) for k in range(POOL)]
    return [
        (each * (length // 256 + 1))[:length] for each, length in zip(period, lengths_of(size), strict=True)
    ]


def payloads(size: int, count: int) -> Iterator[bytes]:
    """Return the payloads of the events of an append."""
    return islice(cycle(payload_pool(size)), count)


def keys_of(keys: int, count: int) -> Iterator[str] | None:
    """Return the routing keys of the events of an append; None for none."""
    if keys == 0:
        return None
    return islice(cycle([f"key-{number}" for number in range(keys)]), count)


@dataclass(slots=True)
class Clock:
    """The wall time of a measured block, and the CPU time of this process; set when the block ends."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def answer(self, events: int, nbytes: int) -> dict[str, float]:
        """Return the reply to a request."""
        return {
            "events": events,
            "bytes": nbytes,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
        }


class Latencies:
    """Times from writing to reading."""

    def __init__(self, size: int) -> None:
        self._rest = bytes(size - 8)
        self._taken: list[int] = []

    def event(self, due: int | None = None) -> bytes:
        """Return an event that is written now, or was due at a time of ``perf_counter_ns``."""
        return (time.perf_counter_ns() if due is None else due).to_bytes(8, "big") + self._rest

    def read(self, event: bytes) -> None:
        """Record that an event was read."""
        self._taken.append(time.perf_counter_ns() - int.from_bytes(event[:8], "big"))

    def answer(self, clock: Clock) -> dict[str, float]:
        """Return the reply to a request."""
        count = len(self._taken)
        return clock.answer(count, count * (len(self._rest) + 8)) | times(self._taken)


def interpreter() -> dict[str, str | bool]:
    """Describe the interpreter, and warn if it was compiled without profile-guided optimization."""
    # Distributions compile theirs with it, and Debian's does not say so in its arguments.
    arguments = sysconfig.get_config_var("CONFIG_ARGS") or ""
    optimized = "--enable-optimizations" in arguments or sys.base_prefix == "/usr"
    if not optimized:
        print(
            f"warning: Python {platform.python_version()} of {sys.base_prefix} was compiled without "
            "--enable-optimizations: it takes a fifth to a half more time. Measure with your distribution's "
            "python3",
            file=sys.stderr,
        )
    return {"python": platform.python_version(), "interpreter": sys.base_prefix, "optimized": optimized}


def times(taken: Sequence[int], prefix: str = "") -> dict[str, float]:
    """Return quantiles of times in nanoseconds for a reply, under names that start with ``prefix``."""
    ordered = sorted(taken)
    count = len(ordered)
    return {
        f"{prefix}p50_ms": ordered[count // 2] / 1e6,
        f"{prefix}p99_ms": ordered[count * 99 // 100] / 1e6,
        f"{prefix}p999_ms": ordered[count * 999 // 1000] / 1e6,
        f"{prefix}max_ms": ordered[-1] / 1e6,
    }


@contextmanager
def measure() -> Iterator[Clock]:
    """Measure a block."""
    clock = Clock()
    cpu, start = time.process_time(), time.perf_counter()
    yield clock
    clock.seconds = time.perf_counter() - start
    clock.cpu_seconds = time.process_time() - cpu


def serve(handle: Callable[[list[str]], Mapping[str, object]]) -> None:
    """Answer requests until standard input ends."""
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        words = line.rstrip("\n").split("\t")
        answer: dict[str, object]
        try:
            answer = dict(handle(words))
        except Exception as error:  # a peer's failure is a result, whatever its class
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
