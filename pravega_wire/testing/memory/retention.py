"""Where a controller truncates a stream with a retention policy.

Simpler than a 0.13.0 controller in one thing: where a subscriber's cut overlaps a recorded one, which only
happens while a stream scales, nothing is truncated this time.
"""

from __future__ import annotations

from collections.abc import Callable

from pravega_wire.proto import controller_pb2 as pb
from pravega_wire.testing.memory.streams import Stream

__all__ = ["cut_to_truncate_at"]


def cut_to_truncate_at(
    stream: Stream, now: int, size_until: Callable[[dict[int, int]], int]
) -> dict[int, int] | None:
    """Return the cut before which nothing has to be kept; None if there is none.

    :param stream: the stream; its last recorded cut is where it ends.
    :param now: time in milliseconds since 1970.
    :param size_until: returns the bytes before a cut.
    """
    policy = stream.config.retentionPolicy
    total = stream.kept_cuts[-1][1]
    if policy.retentionType == pb.RetentionPolicy.SIZE:
        kept = [(total - size, cut) for _, size, cut in stream.kept_cuts]
    else:
        kept = [(now - time, cut) for time, _, cut in stream.kept_cuts]
    least_amount, most_amount = policy.retentionParam, policy.retentionMax
    bounded = [cut for amount, cut in kept if least_amount <= amount <= most_amount]
    newest, oldest = (bounded[-1], bounded[0]) if bounded else (None, None)
    consumed = _lowest(stream)
    if consumed is None:
        return newest
    if policy.retentionType == pb.RetentionPolicy.SIZE:
        left = total - size_until(consumed)
        if left < least_amount:
            return newest if newest is not None and stream.is_at_or_after(consumed, newest) else None
        if left < most_amount or oldest is None or total - size_until(oldest) >= left:
            return consumed
        return oldest
    if newest is None or stream.is_at_or_after(consumed, newest):
        return newest
    beyond = next((cut for amount, cut in reversed(kept) if amount >= most_amount), None)
    return consumed if beyond is None or stream.is_at_or_after(consumed, beyond) else oldest


def _lowest(stream: Stream) -> dict[int, int] | None:
    """Return the cut of all subscribers that is before all others; None if there are no cuts."""
    cuts = [each for each in stream.subscribers.values() if each]
    if not cuts:
        return None
    low = cuts[0]
    for cut in cuts[1:]:
        if set(cut) == set(low):
            low = {each: min(offset, low[each]) for each, offset in cut.items()}
        elif stream.is_at_or_after(low, cut):
            low = cut
    return low
