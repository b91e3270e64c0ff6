"""When a stream with a scaling policy scales by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from pravega_wire.proto import controller_pb2 as pb
from pravega_wire.testing.memory.store import EVENT_COUNT, Segment
from pravega_wire.testing.memory.streams import Part, Range, Rates, Stream

__all__ = ["TICK", "count", "next_scale", "watch"]

TICK: Final = 5_000
"""Milliseconds between two looks at the traffic."""

_MINUTE: Final = 60_000
_WINDOWS: Final = (2, 5, 10, 20)
"""Minutes over which rates are averaged, with weights that fall off."""
_REPORTED_EVERY: Final = 2 * _MINUTE
_MUTE: Final = 10 * _MINUTE
"""After a segment was created, or a scale of it was asked for. A cold segment is taken for one so long."""


def count(stream: Stream, segment: Segment) -> float:
    """Return what the policy of a stream counts, from the beginning of a segment: events, or KiB."""
    if stream.config.scalingPolicy.scaleType == pb.ScalingPolicy.BY_RATE_IN_KBYTES_PER_SEC:
        return segment.length / 1024
    return max(segment.attributes.get(EVENT_COUNT, 0), 0)


def watch(stream: Stream, part: Part, total: float, now: int) -> None:
    """Look at the traffic of an active segment.

    :param stream: the stream.
    :param part: the segment.
    :param total: its :func:`count`.
    :param now: time in milliseconds.
    """
    rates = stream.rates.get(part.id)
    if rates is None:
        stream.rates[part.id] = Rates(now, now, now, total)
        return
    if now - rates.looked < TICK:
        return
    seconds = (now - rates.looked) / 1000
    instant = (total - rates.count) / seconds
    rates.looked, rates.count = now, total
    for at, minutes in enumerate(_WINDOWS):
        weight = 1 - math.exp(-seconds / 60 / minutes)
        old = rates.averages[at]
        rates.averages[at] = instant if old == 0 else old + weight * (instant - old)


def next_scale(stream: Stream, now: int) -> tuple[Sequence[Part], list[Range]] | None:
    """Return the segments to replace and the ranges of the new ones; None if nothing is to be done."""
    for part in stream.parts:
        rates = stream.rates.get(part.id)
        if rates is None or now - rates.reported < _REPORTED_EVERY:
            continue
        rates.reported = now
        if now - rates.began <= _MUTE:
            continue
        found = _scale_of(stream, part, rates, now)
        if found is not None:
            return found
    return None


def _scale_of(
    stream: Stream, part: Part, rates: Rates, now: int
) -> tuple[Sequence[Part], list[Range]] | None:
    policy = stream.config.scalingPolicy
    target, age = policy.targetRate, now - rates.began
    two, five, ten, twenty = rates.averages
    if two > 5 * target or (five > 2 * target) or (ten > target and age > 10 * _MINUTE):
        if now - rates.asked <= _MUTE:
            return None
        rates.asked = now
        most = max(2, policy.scaleFactor)
        # Java divides by zero.
        pieces = min(max(2, int(max(two, five, ten) / target)), most) if target else most
        bounds = [part.low + (part.high - part.low) * each / pieces for each in range(pieces)] + [part.high]
        return [part], list(pairwise(bounds))
    if max(two, five, ten) < target and twenty < target / 2 and age > 20 * _MINUTE:
        rates.cold_until = now + _MUTE
        return _merge_of(stream, part, now)
    return None


def _merge_of(stream: Stream, part: Part, now: int) -> tuple[Sequence[Part], list[Range]] | None:
    """Merge a cold segment with those of its neighbours that are cold."""
    spare = len(stream.parts) - stream.config.scalingPolicy.minNumSegments
    near = [
        each for each in stream.parts if each.id == part.id or part.low == each.high or part.high == each.low
    ]
    cold = [each for each in near if each.id in stream.rates and stream.rates[each.id].cold_until > now]
    together = sorted(cold, key=lambda each: each.low)[: spare + 1]
    apart = any(one.high != other.low for one, other in pairwise(together))
    if spare < 1 or len(together) < 2 or apart:
        return None
    return together, [(together[0].low, together[-1].high)]
