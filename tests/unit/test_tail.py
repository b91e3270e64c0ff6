"""The segments of a stream as a controller that is only made up tells them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from pravega_wire import ScopedStream
from pravega_wire.controller.types import SegmentWithRange, Successor, Successors
from pravega_wire.errors import StreamChangingError, UnexpectedReplyError
from pravega_wire.stream import batch


@pytest.mark.parametrize("gone", [0, 2, 1000])
def test_a_cut_that_lacks_a_segment_is_not_returned(monkeypatch: pytest.MonkeyPatch, gone: int) -> None:
    asked: list[object] = []

    async def get_current_segments(scope: str, stream: str) -> list[Any]:
        return [SimpleNamespace(segment_id=1), SimpleNamespace(segment_id=2)]

    async def segment_infos(core: object, stream: object, ids: list[int]) -> dict[int, Any]:
        asked.append(ids)
        return {1: SimpleNamespace(write_offset=7), 2: _info(len(asked) > gone)}

    monkeypatch.setattr(batch, "segment_infos", segment_infos)
    core: Any = SimpleNamespace(controller=SimpleNamespace(get_current_segments=get_current_segments))
    stream = ScopedStream("s", "t")
    if gone < 1000:
        cut = trio.run(batch.tail, core, stream)
        assert dict(cut.positions) == {1: 7, 2: 9}
    else:
        with pytest.raises(
            StreamChangingError, match=r"the tail of stream s/t .* \(most recently 2\)"
        ) as caught:
            trio.run(batch.tail, core, stream)
        assert caught.value.retriable


def _info(there: bool) -> Any:
    return SimpleNamespace(write_offset=9) if there else None


EPOCH = 1 << 32


@pytest.mark.parametrize(
    ("successor", "predecessors", "right"),
    [
        (3 * EPOCH + 5, (EPOCH + 2,), True),
        (3 * EPOCH + 5, (4, EPOCH + 2), True),
        # The segment itself, one beside it, and one before it: going on there would never end.
        (EPOCH + 2, (EPOCH + 2,), False),
        (EPOCH + 3, (EPOCH + 2,), False),
        (1, (EPOCH + 2,), False),
        # What waits for others only would never begin.
        (3 * EPOCH + 5, (4,), False),
        (3 * EPOCH + 5, (), False),
    ],
)
def test_only_what_can_follow_a_segment_is_a_successor(
    successor: int, predecessors: tuple[int, ...], right: bool
) -> None:
    found = Successors((Successor(SegmentWithRange(successor, 0.0, 1.0), predecessors),))

    async def get_successors(*args: object) -> Successors:
        return found

    core: Any = SimpleNamespace(controller=SimpleNamespace(get_successors=get_successors))
    stream = ScopedStream("s", "t")
    if right:
        assert trio.run(batch.recorded_successors, core, stream, EPOCH + 2) is found
    else:
        with pytest.raises(UnexpectedReplyError, match="of stream s/t") as caught:
            trio.run(batch.recorded_successors, core, stream, EPOCH + 2)
        assert (caught.value.scope, caught.value.stream) == ("s", "t")
