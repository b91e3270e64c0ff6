"""Functions are called when no task has anything to do, or after a limit."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from pravega_wire.transport import lull as lull_module
from pravega_wire.transport.lull import Lull


@pytest.mark.parametrize("autojump", [float("inf"), 0.0])
def test_functions_are_called_once_when_no_task_has_anything_to_do(autojump: float) -> None:
    steps = 0
    called: list[int] = []

    def note() -> None:
        called.append(steps)

    async def main() -> None:
        nonlocal steps
        async with trio.open_nursery() as nursery:
            lull = Lull(nursery)
            for _ in range(3):
                before = list(called)
                for _ in range(100):
                    lull.call(note)
                    await trio.lowlevel.checkpoint()
                    steps += 1
                assert called == before
                begun = trio.current_time()
                await trio.testing.wait_all_tasks_blocked()
                assert called == [*before, steps]
                assert trio.current_time() == begun
            nursery.cancel_scope.cancel()
        with pytest.raises(KeyError):
            trio.lowlevel.remove_instrument(lull)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=autojump))


def test_a_run_that_is_never_idle_has_a_limit() -> None:
    async def main() -> None:
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, trio.testing.MockClock)
        async with trio.open_nursery() as nursery:
            lull = Lull(nursery)
            called: list[int] = []
            lull.call(lambda: called.append(step))
            for step in range(100):
                if step == 50:
                    clock.jump(0.03)
                await trio.lowlevel.checkpoint()
            [at] = called
            assert 50 <= at < 55
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock())


def test_nothing_waits_for_the_limit_while_the_run_has_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real clock, and descriptors to wait for."""
    monkeypatch.setattr(lull_module, "_LONGEST_SECONDS", float("inf"))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            lull = Lull(nursery)
            nursery.start_soon(trio.sleep_forever)
            with trio.fail_after(60):
                for _ in range(10):
                    done = trio.Event()
                    lull.call(done.set)
                    await done.wait()
            nursery.cancel_scope.cancel()

    trio.run(main)
