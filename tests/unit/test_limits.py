"""The clock of an operation: when it ends, what it says, what starts it again."""

from __future__ import annotations

import asyncio
import inspect
import math
import re
from collections.abc import Awaitable, Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from pravega_wire.errors import ConnectionLostError, PravegaError, PravegaTimeoutError, RetriesExhaustedError
from pravega_wire.segment.store import SegmentStores
from pravega_wire.stream import client as client_module
from pravega_wire.transport.limits import (
    Leaving,
    Limits,
    is_hurried,
    limit,
    limited,
    note_failure,
    note_progress,
    unlimited,
)
from pravega_wire.values.config import PravegaConfig
from pravega_wire.values.types import ScopedStream


def run(main: object) -> object:
    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))  # type: ignore[arg-type]


def test_the_error_says_how_long_it_took_and_what_failed_last() -> None:
    async def main() -> None:
        with pytest.raises(RetriesExhaustedError) as caught:
            with limit(4.0, "asking"):
                note_failure(ConnectionLostError("first", host="a:1"))
                note_failure(ConnectionLostError("second", host="b:2"))
                await trio.sleep_forever()
        assert caught.value.message == (
            "asking: no success after 4.0 s (operation_timeout) and 2 failed attempts, "
            "the last failed with: second"
        )
        assert caught.value.host == "b:2"
        assert isinstance(caught.value.__cause__, ConnectionLostError)

    run(main)


def test_an_operation_within_another_has_what_is_left() -> None:
    async def main() -> None:
        started = trio.current_time()
        with pytest.raises(RetriesExhaustedError, match=r"^outer: no success after 4.0 s .* inner failed"):
            with limit(4.0, "outer"):
                await trio.sleep(3.0)
                with limit(4.0, "inner"):
                    note_failure(ConnectionLostError("inner failed"))
                    await trio.sleep_forever()
        assert trio.current_time() == started + 4.0

    run(main)


def test_progress_starts_the_clock_again() -> None:
    async def main() -> None:
        started = trio.current_time()
        with pytest.raises(PravegaTimeoutError, match=r"reading: no answer after 13.0 s"):
            with limit(4.0, "reading"):
                for _ in range(3):
                    await trio.sleep(3.0)
                    note_progress()
                await trio.sleep_forever()
        assert trio.current_time() == started + 13.0

    run(main)


def test_tasks_that_outlive_the_operation_are_not_its_part() -> None:
    async def main() -> None:
        async def background() -> None:
            await trio.sleep(10.0)
            note_failure(ConnectionLostError("later"))
            note_progress()

        async with trio.open_nursery() as nursery:
            with limit(4.0, "starting"):
                nursery.start_soon(background)
        note_progress()  # of nothing

    run(main)


def test_another_cancellation_passes() -> None:
    async def main() -> None:
        with trio.move_on_after(1.0) as scope:
            with limit(4.0, "asking"):
                await trio.sleep_forever()
        assert scope.cancelled_caught

    run(main)


def test_a_limited_method_names_its_object_and_argument() -> None:
    class Asker:
        name = "it"
        _core = SimpleNamespace(config=SimpleNamespace(operation_timeout=2.0), check_run=lambda: None)

        @limited("asking {self.name} for {}")
        async def ask(self, what: str, *, how: str = "") -> str:
            if what == "answer":
                return what + how
            await trio.sleep_forever()
            return ""

    async def main() -> None:
        assert await Asker().ask("answer", how="!") == "answer!"
        with pytest.raises(PravegaTimeoutError, match=r"^asking it for silence: no answer after 2.0 s"):
            await Asker().ask("silence")
        with pytest.raises(PravegaTimeoutError, match=r"^asking it for more silence"):
            await Asker().ask(what="more silence")

    run(main)


@pytest.mark.parametrize("operation", [0.5, 4.0, 120.0, 3600.0])
def test_there_is_time_for_several_attempts(operation: float) -> None:
    limits = Limits.of(operation)
    assert limits.attempt * 3 <= operation
    assert limits.silence * 3 <= operation
    assert limits.connect * 4 <= operation
    assert limits.stall < operation
    assert limits.silence <= 15.0


def test_a_task_that_outlives_an_operation_has_limits_of_its_own() -> None:
    async def main() -> None:
        async def background() -> None:
            await trio.sleep(10.0)
            with pytest.raises(PravegaTimeoutError, match=r"^later: no answer"):
                with limit(4.0, "later"):
                    await trio.sleep_forever()

        async with trio.open_nursery() as nursery:
            with limit(4.0, "starting"):
                note_failure(ConnectionLostError("long ago"))
                nursery.start_soon(background)

    run(main)


def test_functions_of_the_user_do_not_count() -> None:
    async def main() -> None:
        started = trio.current_time()
        with pytest.raises(PravegaTimeoutError, match=r"updating: no answer after 104.0 s"):
            with limit(4.0, "updating"):
                await trio.sleep(3.0)
                with unlimited():
                    await trio.sleep(100.0)
                await trio.sleep_forever()
        assert trio.current_time() == started + 104.0

    run(main)


async def _progress() -> None:
    note_progress()


async def _users_function() -> None:
    with unlimited():
        await trio.sleep(100.0)


@pytest.mark.parametrize("move", [_progress, _users_function])
def test_attempts_pause_as_long_as_the_limit_is_moved(move: Callable[[], Any]) -> None:
    made: list[float] = []

    async def attempt() -> None:
        made.append(trio.current_time())
        assert len(made) < 2000, "attempts without a pause"
        if len(made) <= 200:
            await move()
        raise ConnectionLostError("again")

    async def main() -> None:
        stores = SegmentStores(cast("Any", None), cast("Any", None), operation_timeout=120.0)
        with pytest.raises(RetriesExhaustedError, match="reading s/t/0: no success"):
            await stores.retrying(attempt, "s/t/0", "reading")
        # After the first pauses, which grow, an attempt every two seconds.
        assert all(later - earlier >= 1.9 for earlier, later in pairwise(made[20:-1]))
        assert len(made) > 60

    run(main)


# --- leaving --------------------------------------------------------------------------------------


async def left(leaving: Leaving, work: Callable[[], Awaitable[None]] = trio.sleep_forever) -> str:
    """Leave something; the outcome."""
    try:
        return "done" if await leaving.run(work, "leaving") else "given up"
    except PravegaError as error:
        return type(error).__name__


def test_what_is_left_together_has_one_limit() -> None:
    async def main() -> None:
        leaving = Leaving(6.0)
        started = trio.current_time()
        for _ in range(3):
            assert await left(leaving) == "PravegaTimeoutError"
        assert 6.0 < trio.current_time() - started <= 7.0

        # At the same time, too.
        await trio.sleep(5.0)
        started = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(left, leaving)
                await trio.sleep(1.0)
        assert trio.current_time() - started == 6.0

    run(main)


def test_what_is_left_later_has_a_limit_of_its_own() -> None:
    async def main() -> None:
        leaving = Leaving(6.0)

        async def after(pause: float, work: Callable[[], Awaitable[None]]) -> float:
            await trio.sleep(pause)
            started = trio.current_time()
            await left(leaving, work)
            return trio.current_time() - started

        assert await after(0.0, trio.sleep_forever) == 6.0
        assert await after(5.0, trio.sleep_forever) == 6.0
        # The last one has failed a moment ago, but this one's peer answers, and so does the next one's.
        assert await after(0.0, trio.lowlevel.checkpoint) == 0.0
        assert await after(0.0, trio.sleep_forever) == 6.0
        await trio.sleep(5.0)
        with pytest.raises(PravegaTimeoutError), leaving.noted():
            raise PravegaTimeoutError("a limit of its own")
        assert await after(0.5, trio.sleep_forever) == 5.5

    run(main)


@pytest.mark.parametrize("before", [True, False])
def test_leaving_ends_a_second_after_a_cancellation(before: bool) -> None:
    async def main() -> None:
        leaving = Leaving(120.0)
        ended: list[str] = []
        started = trio.current_time()
        with trio.CancelScope(deadline=-math.inf if before else started + 3.0) as scope:
            for _ in range(3):
                # It raises no cancellation itself, so the others are left as well.
                ended.append(await left(leaving))
            await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught
        assert ended == ["given up"] * 3
        assert 1.0 < trio.current_time() - started - (0.0 if before else 3.0) <= 2.0

    run(main)


def test_leaving_goes_on_when_it_is_cancelled() -> None:
    """It is not begun again: what was sent counts."""

    async def main() -> None:
        steps: list[str] = []

        async def work() -> None:
            steps.append("begun")
            await trio.sleep(0.9)
            steps.append("ended")

        with trio.move_on_after(0.5) as scope:
            assert await left(Leaving(120.0), work) == "done"
            await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught
        assert steps == ["begun", "ended"]

    run(main)


def test_an_error_on_leaving_leaves_unchanged() -> None:
    async def main() -> None:
        async def work() -> None:
            await trio.lowlevel.checkpoint()
            raise KeyError("work")

        with pytest.raises(KeyError, match="work"):
            await Leaving(1.0).run(work, "leaving")

    run(main)


def test_who_is_in_a_hurry() -> None:
    hurried = [KeyboardInterrupt(), asyncio.CancelledError(), BaseExceptionGroup("", [KeyboardInterrupt()])]
    assert all(map(is_hurried, hurried))
    assert not any(map(is_hurried, [None, ValueError(), GeneratorExit(), SystemExit()]))


@pytest.mark.parametrize(
    ("given", "named"),
    [("t", "s/t"), ("a/b", "a/b"), (ScopedStream("c", "d"), "c/d"), ("no name", "no name")],
)
def test_the_error_names_a_stream_with_its_scope(given: object, named: str) -> None:
    class Owner:
        _core = SimpleNamespace(
            check_run=lambda: None,
            config=PravegaConfig.from_defaults(scope="s", operation_timeout=2.0, env={}),
        )

        @limited("scaling stream {stream}")
        async def scale(self, stream: object) -> None:
            await trio.sleep_forever()

    async def main() -> None:
        with pytest.raises(PravegaTimeoutError, match=f"^scaling stream {named}: no answer after 2.0 s"):
            await Owner().scale(given)
        with pytest.raises(PravegaTimeoutError, match=f"^scaling stream {named}: no answer after 2.0 s"):
            await Owner().scale(stream=given)

    run(main)


def test_what_is_limited_for_a_stream_names_its_scope() -> None:
    """``{}`` would leave it out: it is for scopes and what has a name of its own."""
    source = inspect.getsource(client_module)
    said = re.findall(r'@limited\("(.*)"\)', source)
    assert len(said) > 30
    assert [each for each in said if re.search(r"(stream|group|table) \{\}", each)] == []
