"""Samples of streams and reader groups at intervals, and the rates between them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from pravega_wire.cli.work.groups import lag_of
from pravega_wire.cli.work.points import ranges_left
from pravega_wire.errors import PravegaError
from pravega_wire.support.nurseries import look_up_all
from pravega_wire.values.types import ScopedStream, StreamCut

if TYPE_CHECKING:
    from pravega_wire.stream.client import PravegaClient

__all__ = ["GroupSample", "Sample", "StreamSample", "rate", "watch"]


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StreamSample:
    """A stream at one moment.

    :ivar stream: its name.
    :ivar segments: number of segments that take events.
    :ivar bytes_per_second: bytes that were written since the last sample, event headers included; None in the
        first sample.
    :ivar error: why it could not be looked at.
    """

    stream: str
    segments: int | None = None
    bytes_per_second: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class GroupSample:
    """A reader group at one moment.

    :ivar group: its name.
    :ivar readers: number of readers.
    :ivar lag: bytes after the positions that its readers have reported.
    :ivar lag_per_second: change of the lag since the last sample; None in the first.
    :ivar error: why it could not be looked at.
    """

    group: str
    readers: int | None = None
    lag: int | None = None
    lag_per_second: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """All streams and groups at one moment.

    :ivar time: milliseconds since 1970.
    :ivar streams: the streams.
    :ivar groups: the groups.
    """

    time: int
    streams: tuple[StreamSample, ...]
    groups: tuple[GroupSample, ...]

    def record(self) -> dict[str, Any]:
        """Return the sample as a record."""
        return asdict(self)


def rate(amount: int, seconds: float) -> float:
    """Return an amount per second."""
    return round(amount / seconds, 3) if seconds > 0 else 0.0


class _Watcher:
    """Remembers the last sample."""

    def __init__(
        self, client: PravegaClient, streams: Sequence[ScopedStream], groups: Sequence[ScopedStream]
    ) -> None:
        self._client = client
        self._streams = streams
        self._groups = groups
        self._tails: dict[ScopedStream, tuple[StreamCut, float]] = {}
        self._lags: dict[ScopedStream, tuple[int, float]] = {}

    async def sample(self) -> Sample:
        """Look at everything once."""
        return Sample(
            int(time.time() * 1000),
            await self._all(self._streams, self._stream),
            await self._all(self._groups, self._group),
        )

    @staticmethod
    async def _all(
        names: Sequence[ScopedStream], look: Callable[[ScopedStream], Awaitable[T]]
    ) -> tuple[T, ...]:
        """Look at several things at the same time, and return what was found in their order."""
        found = await look_up_all(lambda number: look(names[number]), range(len(names)))
        return tuple(found[number] for number in range(len(names)))

    async def _stream(self, stream: ScopedStream) -> StreamSample:
        client = self._client
        try:
            tail = await client.tail(stream)
            now = trio.current_time()
            before = self._tails.get(stream)
            self._tails[stream] = tail, now
            if before is None:
                return StreamSample(str(stream), len(tail.positions))
            ranges = await ranges_left(client, stream, before[0], tail)
            written = sum(each.length for each in ranges)
            return StreamSample(str(stream), len(tail.positions), rate(written, now - before[1]))
        except PravegaError as error:
            return StreamSample(str(stream), error=error.message)

    async def _group(self, name: ScopedStream) -> GroupSample:
        try:
            async with AsyncExitStack() as stack:
                group = await stack.enter_async_context(self._client.reader_group(name))
                lag = await lag_of(self._client, group)
                now = trio.current_time()
                before = self._lags.get(name)
                self._lags[name] = lag, now
                change = None if before is None else rate(lag - before[0], now - before[1])
                return GroupSample(str(name), len(group.online_readers), lag, change)
        except PravegaError as error:
            return GroupSample(str(name), error=error.message)


async def watch(
    client: PravegaClient,
    streams: Sequence[ScopedStream],
    groups: Sequence[ScopedStream],
    interval: float,
    count: int | None = None,
) -> AsyncIterator[Sample]:
    """Yield a sample for each interval.

    :param client: the client.
    :param streams: the streams.
    :param groups: the reader groups.
    :param interval: seconds between samples.
    :param count: number of samples; None: without end.
    """
    watcher = _Watcher(client, streams, groups)
    taken = 0
    due = trio.current_time()
    while count is None or taken < count:
        await trio.sleep_until(due)
        due = max(due + interval, trio.current_time())
        yield await watcher.sample()
        taken += 1
