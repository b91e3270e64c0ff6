"""Whether the calls on an object look as if each had happened at one moment between its begin and its end.

The search is that of Wing and Gong with the memory of Lowe, as in Knossos and porcupine: it goes forward one
call at a time and never comes twice to the same state with the same calls done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from itertools import count

_MOST_STEPS = 200_000

Step = Callable[[Hashable], "Hashable | None"]
"""The state after a call, or None if the call cannot have ended as it did in this state."""


class TooHard(Exception):
    """The search was given up."""


@dataclass(eq=False)
class Call:
    """A call, as its caller saw it.

    :ivar step: what it does to the state; None is no state.
    :ivar began: number of the moment at which it began.
    :ivar ended: that at which it ended; infinity if its outcome is not known. Then it happened at any time
        after it began, or never.
    :ivar text: what it was, for messages.
    :ivar looks: whether it changes no state whatever.
    """

    step: Step
    began: int
    text: str
    ended: float = math.inf
    looks: bool = False

    def __repr__(self) -> str:
        return f"[{self.began}-{self.ended}] {self.text}"


@dataclass
class Calls:
    """The calls on one object, numbered in the order in which they began and ended."""

    calls: list[Call] = field(default_factory=list)
    _now: count[int] = field(default_factory=count)

    def begin(self, step: Step, text: str) -> Call:
        """A call begins. Its outcome is not known until :meth:`end` is called."""
        call = Call(step, next(self._now), text)
        self.calls.append(call)
        return call

    def end(self, call: Call) -> None:
        """A call has ended, and done what it was to do."""
        call.ended = next(self._now)

    def look(self, began: int, sees: Callable[[Hashable], bool], text: str) -> None:
        """A call has ended that changes nothing.

        :param began: when it began.
        :param sees: whether it may have ended as it did in a state.
        :param text: what it was.
        """

        def step(state: Hashable) -> Hashable | None:
            return state if sees(state) else None

        self.calls.append(Call(step, began, text, next(self._now), looks=True))

    def drop(self, call: Call) -> None:
        """A call has done nothing."""
        self.calls.remove(call)

    def now(self) -> int:
        """The number of this moment."""
        return next(self._now)

    @property
    def unsure(self) -> int:
        """The number of calls whose outcome is not known."""
        return sum(call.ended == math.inf for call in self.calls)


def is_linearizable(calls: Iterable[Call], state: Hashable) -> bool:
    """Return whether there is an order of the calls that explains what each of them saw.

    :param calls: the calls.
    :param state: the state before all of them; not None.
    :raises TooHard: there are too many orders.
    """
    ordered = sorted(calls, key=lambda call: call.began)
    known = sum(1 << number for number, call in enumerate(ordered) if call.ended < math.inf)
    stack = [(0, state)]
    seen = {stack[0]}
    while stack:
        done, state = stack.pop()
        if done & known == known:
            return True
        if len(seen) > _MOST_STEPS:
            raise TooHard
        following = _following(ordered, done, state)
        stack += [each for each in following if each not in seen]
        seen.update(following)
    return False


def _following(ordered: list[Call], done: int, state: Hashable) -> list[tuple[int, Hashable]]:
    """Where the search can go from here, the best last."""
    limit = math.inf
    found: list[tuple[float, int, Hashable]] = []
    for number, call in enumerate(ordered):
        if done >> number & 1:
            continue
        # Whatever has ended before this one began comes first.
        if call.began > limit:
            break
        limit = min(limit, call.ended)
        after = call.step(state)
        if after is None or (after == state and call.ended == math.inf):
            continue
        if call.looks:
            # It changes nothing, so there is no reason to let it wait.
            return [(done | 1 << number, after)]
        found.append((call.ended, done | 1 << number, after))
    found.sort(key=lambda each: -each[0])
    return [(mask, after) for _, mask, after in found]
