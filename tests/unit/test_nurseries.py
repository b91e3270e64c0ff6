"""Running several tasks for one caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from pravega_wire.errors import ConnectError
from pravega_wire.support.nurseries import first_of, lone_errors, look_up_all, open_lasting_nursery, run_all


def test_calls_begin_in_their_order_a_few_at_a_time() -> None:
    begun: list[int] = []
    running = 0
    most = 0

    def call(number: int) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            nonlocal running, most
            begun.append(number)
            running += 1
            most = max(most, running)
            for _ in range(3 + number % 3):
                await trio.lowlevel.checkpoint()
            running -= 1

        return run

    trio.run(run_all, [call(number) for number in range(20)], 1)
    assert (begun, most) == (list(range(20)), 1)
    trio.run(run_all, [call(number) for number in range(20)], 4)
    assert (sorted(begun[20:]), most) == (list(range(20)), 4)


@pytest.mark.parametrize("count", [1, 5])
def test_the_first_error_ends_the_other_calls(count: int) -> None:
    ended: list[int] = []

    async def look_up(number: int) -> int:
        if number == 0:
            raise ConnectError("the store of 0")
        try:
            await trio.sleep_forever()
        finally:
            ended.append(number)
        return number

    with pytest.raises(ConnectError, match="the store of 0") as caught:
        trio.run(look_up_all, look_up, range(count))
    assert caught.value.__context__ is None
    # Some may have ended before they began.
    assert set(ended) <= set(range(1, count))


def test_no_calls() -> None:
    async def look_up(number: int) -> int:
        raise AssertionError(number)

    assert trio.run(look_up_all, look_up, []) == {}


def test_a_lone_error_leaves_without_the_groups() -> None:
    error = ConnectError("alone")
    with pytest.raises(ConnectError) as caught, lone_errors():
        raise BaseExceptionGroup("outer", [ExceptionGroup("inner", [error])])
    assert caught.value is error


def test_the_first_error_of_a_group() -> None:
    first = ConnectError("first")
    group = ExceptionGroup("outer", [ExceptionGroup("inner", [first, ConnectError("second")])])
    assert first_of(group) is first


async def test_a_lasting_nursery_works_until_a_cancelled_block_has_ended() -> None:
    answered = trio.Event()
    ended = False

    async def serve(question: trio.Event) -> None:
        nonlocal ended
        try:
            await question.wait()
            answered.set()
            await trio.sleep_forever()
        finally:
            ended = True

    with trio.CancelScope() as scope:
        async with open_lasting_nursery() as nursery:
            question = trio.Event()
            nursery.start_soon(serve, question)
            try:
                scope.cancel()
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    question.set()
                    await answered.wait()
                assert not ended
    assert ended
    assert scope.cancelled_caught


async def test_a_failure_in_a_lasting_nursery_ends_the_block() -> None:
    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise ConnectError("failed")

    with pytest.raises(ConnectError, match="failed"), lone_errors():
        async with open_lasting_nursery() as nursery:
            nursery.start_soon(fail)
            await trio.sleep_forever()


async def test_a_lasting_nursery_is_opened_in_a_cancelled_scope() -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        async with open_lasting_nursery():
            await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
