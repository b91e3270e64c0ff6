"""What is opened can be entered, or awaited and closed by the caller."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import pytest
import trio

from pravega_wire.errors import ClosedError, StreamNotFoundError
from pravega_wire.stream.opening import Opening, opening


class Thing:
    def __init__(self) -> None:
        self.calls: list[object] = []

    async def __aenter__(self) -> Self:
        self.calls.append("entered")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.calls.append(kind)
        return kind is KeyError


class Opener:
    def __init__(self) -> None:
        self.things: list[Thing] = []

    @opening
    async def thing(self, name: str, *, missing: bool = False) -> Thing:
        """A thing."""
        await trio.lowlevel.checkpoint()
        if missing:
            raise StreamNotFoundError(f"there is no {name}")
        self.things.append(Thing())
        return self.things[-1]


async def test_it_is_entered() -> None:
    opener = Opener()
    async with opener.thing("a") as thing:
        assert thing is opener.things[0]
        assert thing.calls == ["entered"]
    assert thing.calls == ["entered", None]


async def test_what_is_not_open_yet_says_so() -> None:
    unopened = Opener().thing("a")
    with pytest.raises(
        AttributeError, match=r"'calls'; what Opener\.thing\(\) returns is not open yet: 'await' it"
    ) as error:
        unopened.calls  # type: ignore[attr-defined]  # noqa: B018
    assert error.value.name == "calls"
    assert not hasattr(unopened, "calls")
    assert (await unopened).calls == []


async def test_it_is_awaited() -> None:
    opener = Opener()
    thing = await opener.thing("a")
    assert thing.calls == []
    async with thing:
        pass
    assert thing.calls == ["entered", None]
    assert len(opener.things) == 1


async def test_what_leaving_does_with_errors_is_up_to_the_thing() -> None:
    opener = Opener()
    async with opener.thing("a") as thing:
        raise KeyError
    assert thing.calls == ["entered", KeyError]
    with pytest.raises(ValueError, match="no"):
        async with opener.thing("a"):
            raise ValueError("no")
    assert opener.things[1].calls == ["entered", ValueError]


async def test_errors_of_opening() -> None:
    opener = Opener()
    with pytest.raises(StreamNotFoundError, match="no a"):
        await opener.thing("a", missing=True)
    with pytest.raises(StreamNotFoundError, match="no b"):
        async with opener.thing("b", missing=True):
            raise AssertionError("it cannot be entered")


async def test_it_opens_one_thing() -> None:
    opener = Opener()
    once = opener.thing("a")
    assert isinstance(once, Opening)
    await once
    with pytest.raises(ClosedError, match=r"what Opener\.thing\(\) returned was already opened once"):
        await once
    with pytest.raises(ClosedError, match="call it again"):
        async with once:
            raise AssertionError("it cannot be entered")
    assert len(opener.things) == 1


def test_one_that_is_forgotten_is_reported() -> None:
    with pytest.warns(RuntimeWarning, match="never awaited"):
        Opener().thing("a")


async def test_nothing_happens_before_it_is_awaited() -> None:
    opener = Opener()
    waiting = opener.thing("a")
    await trio.lowlevel.checkpoint()
    assert opener.things == []
    await waiting
