"""Which segments the events without a routing key go to."""

from __future__ import annotations

from itertools import groupby
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from pravega_wire.protocol.append import Appends
from pravega_wire.protocol.commands import DataAppended
from pravega_wire.segment.appender import Ack
from pravega_wire.stream.routing import _RUN_BLOCKS, _RUN_EVENTS, _Runs


def appenders(count: int) -> list[Any]:
    """Set up, with nothing sent."""
    made = []
    for number in range(count):
        appends = Appends(f"s/t/{number}.#epoch.0", UUID(int=number), Ack)
        appends.set_up(0, 1, 0.0)
        made.append(SimpleNamespace(appends=appends, number=number))
    return made


def put(runs: _Runs) -> Any:
    """Append an event, and send what is due; return where it went."""
    appender: Any = runs.next()
    appender.appends.open.put([b"e"], (None,), 1, 1)
    while appender.appends.next_frame(1, 0.0) is not None:
        pass
    return appender


def acknowledge(appender: Any) -> None:
    appends = appender.appends
    block = appends.oldest
    appends.acknowledge(
        DataAppended(appends.writer_id, block.last_number, block.last_number - block.count, 1, 0), 0.0
    )


def put_and_acknowledge(runs: _Runs, count: int) -> list[int]:
    """Append events, each when the one before it is stored; return which segments they went to."""
    went = []
    for _ in range(count):
        appender = put(runs)
        acknowledge(appender)
        went.append(appender.number)
    return went


def lengths(numbers: list[int]) -> list[int]:
    return [len(list(run)) for _, run in groupby(numbers)]


def test_each_stored_event_is_followed_by_one_in_the_next_segment() -> None:
    went = put_and_acknowledge(_Runs(appenders(3)), 12)
    assert lengths(went) == [1] * 12
    assert {number: went.count(number) for number in set(went)} == {0: 4, 1: 4, 2: 4}


def test_runs_grow_while_nothing_is_acknowledged_and_begin_anew() -> None:
    runs = _Runs(segments := appenders(3))
    went = [put(runs).number for _ in range(20_000)]
    assert lengths(went)[:-1] == [2**n for n in range(11)] + [_RUN_EVENTS] * 8
    for appender in segments:
        while appender.appends.oldest is not None:
            acknowledge(appender)
            appender.appends.force()
            appender.appends.next_frame(1, 0.0)
    # The rest of the run that was going on.
    while len(set(went[-2:])) == 1:
        went += put_and_acknowledge(runs, 1)
    assert lengths(put_and_acknowledge(runs, 6)) == [1] * 6


def test_a_run_ends_after_some_blocks() -> None:
    runs = _Runs(appenders(2))
    went = []
    for _ in range(1000):
        # The second event waits behind the first, and is sent when that is acknowledged.
        went.append(put(runs).number)
        appender = put(runs)
        went.append(appender.number)
        acknowledge(appender)
        appender.appends.next_frame(1, 0.0)
    assert 2 * _RUN_BLOCKS <= max(lengths(went)) <= 4 * _RUN_BLOCKS
