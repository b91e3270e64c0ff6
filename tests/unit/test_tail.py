"""The tail of a stream whose segments are replaced while it is asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from pravega_wire import ScopedStream
from pravega_wire.errors import StreamChangingError
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
