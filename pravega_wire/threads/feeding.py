"""Reading events and routing keys from the user's functions and iterables, in the caller's thread."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from itertools import chain, islice, repeat
from typing import Any, Final

import trio

from pravega_wire.protocol.append import BLOCK_BYTES, HEADER_BYTES
from pravega_wire.segment.appender import Ack
from pravega_wire.stream.arrow import is_arrow, key_column
from pravega_wire.stream.routing import (
    Partitioner,
    check_lengths,
    checked_partitioner,
    copied,
    fewer_keys,
    more_keys,
    serialized,
)
from pravega_wire.stream.user_functions import calling_thread
from pravega_wire.support.environment import environment
from pravega_wire.threads.portal import Call
from pravega_wire.values.hashing import routing_key_position

__all__ = ["Feed", "Placing", "is_plain", "listed", "plain_keys", "to_write"]

_TAKE_SECONDS: Final = 0.02
"""The longest time that an event waits for others to cross between the threads with it."""

_FIRST_EVENTS: Final = 64
_MOST_EVENTS: Final = 16_384
_MOST_BYTES: Final = 2 * BLOCK_BYTES

_SLOW_SECONDS: Final = 0.001

_MOST_UNCHECKED: Final = 256
"""The most events that are read without checking whether the call has ended."""

_REMEMBERED_KEYS: Final = 100_000

_END: Final = object()
_MISSING: Final = object()


def listed(argument: Any) -> Any:
    """Read an iterable whose reading runs the user's code into a list. Returns other arguments unchanged."""
    if isinstance(argument, Iterable) and not isinstance(argument, str | bytes | Mapping | Sequence):
        return list(argument)
    return argument


def is_plain(events: object) -> bool:
    """Whether reading these events runs no code of the user."""
    return type(events) in (list, tuple) or is_arrow(events)


def plain_keys(keys: object) -> bool:
    """Whether reading these routing keys runs no code of the user."""
    return keys is None or isinstance(keys, str) or is_plain(keys)


class Feed:
    """Reads an iterable in the calling thread, while the client's thread writes the events it returns.

    The client's thread takes the events as soon as there are enough, or after 20 ms, even while the iterable
    blocks.

    :param keys: one key for each event, or one or None for all of them.
    """

    def __init__(self, events: Iterable[bytes], keys: Iterable[str | None] | str | None) -> None:
        source: Iterable[Any] = iter(events)
        end: Iterable[Any] = (_END,)
        self._paired = False
        self._one_key = None
        if keys is None or isinstance(keys, str):
            self._one_key = keys
        else:
            self._paired = True
            rest = iter(keys)
            source = zip(source, chain(rest, repeat(_MISSING)), strict=False)
            end = self._look_for_more(rest)
        self._source: Iterator[Any] = chain(source, end)
        self._more_keys = False
        # The calling thread appends, and the client's thread takes from the front. Each operation is atomic.
        self._items: list[Any] = []
        self._limit = _FIRST_EVENTS
        self._read = False
        self._ended = False
        self._stopped = False

    def _look_for_more(self, keys: Iterator[Any]) -> Iterator[Any]:
        """The end mark, after checking for keys without an event; in the calling thread."""
        self._more_keys = next(keys, _MISSING) is not _MISSING
        yield _END

    @property
    def ended(self) -> bool:
        """Whether all events were written."""
        return self._ended

    def pull(self, until: float = math.inf) -> None:
        """Read until there are enough events; in the calling thread.

        :param until: the time of the environment's ``monotonic`` at which to stop earlier.
        """
        items, source = self._items, self._source
        step = 1
        while not (self._stopped or self._read):
            room = self._limit - len(items)
            if room <= 0:
                return
            began = environment().monotonic()
            # Each item is added to the list immediately, and stays there if the next one raises. Without the
            # interpreter's lock, extend() would lock the list while it waits for the next item.
            for item in islice(source, min(step, room)):
                items.append(item)
                if item is _END:
                    self._read = True
            now = environment().monotonic()
            if now > until:
                return
            step = 1 if now - began > _SLOW_SECONDS else min(2 * step, _MOST_UNCHECKED)

    async def write_to(self, write: Callable[[list[bytes], Any], Awaitable[Ack]]) -> list[Ack]:
        """Write all events; in the client's thread. Returns the acknowledgements that are not complete."""
        call = calling_thread.get()
        assert isinstance(call, Call)
        acks: list[Ack] = []
        try:
            while not self._ended:
                pulling = call.ask(self.pull)
                while True:
                    with trio.move_on_after(_TAKE_SECONDS):
                        await pulling.done.wait()
                    # Events that the iterable returned before it raised are written.
                    done = pulling.done.is_set()
                    await self.take(write, acks)
                    if done:
                        break
                call.forget(pulling)
                pulling.result()
        finally:
            self._stopped = True
        return acks

    async def take(self, write: Callable[[list[bytes], Any], Awaitable[Ack]], acks: list[Ack]) -> None:
        """Write the events read so far; in the client's thread.

        :param acks: the acknowledgement is appended here, and completed ones are removed.
        """
        count = len(self._items)
        taken = self._items[:count]
        del self._items[:count]
        if taken and taken[-1] is _END:
            self._ended = True
            taken.pop()
            if self._more_keys:
                # There are more keys than events, so these last events are not written.
                raise more_keys()
        if not taken:
            return
        keys: Any = self._one_key
        short = False
        if self._paired:
            taken, keys = [event for event, _ in taken], [key for _, key in taken]
            short = keys[-1] is _MISSING
            if short:
                count = next(index for index, key in enumerate(keys) if key is _MISSING)
                taken, keys = taken[:count], keys[:count]
        ack = await write(taken, keys)
        if short:
            raise fewer_keys()
        # Most acknowledgements are complete by now. A long call keeps only pending and failed ones.
        acks[:] = [each for each in acks if not each.done or each.error is not None]
        acks.append(ack)
        average = sum(map(len, taken)) // len(taken) + HEADER_BYTES
        self._limit = max(1, min(_MOST_EVENTS, _MOST_BYTES // average))


class _PlacedKey(str):
    """A routing key with its position in the key space."""

    __slots__ = ("position",)

    position: float


_positions: ContextVar[dict[str, float]] = ContextVar("positions")
"""The positions of the keys of an Arrow array, while it is being written."""


def _position_of(key: str) -> float:
    return key.position if isinstance(key, _PlacedKey) else _positions.get()[key]


class Placing:
    """Calls a partitioner in the caller's thread. The writer gets keys that carry their positions.

    :param stream: what is written, for messages.
    :ivar for_writer: the partitioner to give to the writer.
    :ivar as_given: whether the writer gets the caller's own keys.
    """

    def __init__(self, partitioner: Partitioner = routing_key_position, stream: str = "") -> None:
        checked = checked_partitioner(partitioner, stream)
        self._partitioner = None if checked is routing_key_position else checked
        self._known: dict[str, _PlacedKey] = {}
        self.as_given = self._partitioner is None
        self.for_writer: Partitioner = partitioner if self._partitioner is None else _position_of

    def key(self, key: str | None) -> str | None:
        """The key to give to the writer."""
        if self._partitioner is None or not isinstance(key, str):
            # The writer rejects anything that is not a key.
            return key
        placed = self._known.get(key)
        if placed is None:
            placed = _PlacedKey(key)
            placed.position = self._partitioner(key)
            if len(self._known) < _REMEMBERED_KEYS:
                self._known[key] = placed
        return placed

    def keys(self, keys: Any) -> Any:
        """One key, or several, to give to the writer."""
        if self._partitioner is None or keys is None:
            return keys
        if isinstance(keys, str):
            return self.key(keys)
        if type(keys) in (list, tuple):
            return list(map(self.key, keys))
        return map(self.key, keys)

    def of_array(
        self, write: Callable[[Any, Any], Awaitable[Ack]], events: Any, keys: Any
    ) -> Callable[[Any, Any], Awaitable[Ack]]:
        """The function ``write`` for an Arrow array of events. The keys become an array as well."""
        if self._partitioner is None:
            return write
        partitioner = self._partitioner
        positions = {
            key: partitioner(key)
            for key in key_column(keys, len(events)).unique().to_pylist()
            if key is not None
        }

        async def placed(events: Any, keys: Any) -> Ack:
            _positions.set(positions)
            return await write(events, keys)

        return placed


def to_write(
    twin: Any, placing: Placing, to_bytes: Callable[[Any], bytes] | None, events: Any, keys: Any
) -> tuple[Callable[..., Awaitable[Ack]], Any, Any]:
    """The function that writes events with their keys, and these as it takes them; in the caller's thread.

    :param twin: the writer.
    :raises InvalidArgumentError: there are more or fewer keys than events.
    """
    stream = str(twin.stream)
    if to_bytes is not None:
        events = serialized(events, keys, to_bytes, stream)
    check_lengths(events, keys, stream)
    if not is_plain(events):
        events = copied(events, stream)
    write: Callable[..., Awaitable[Ack]] = twin.write_events
    if keys is None or isinstance(keys, str) or not is_arrow(events):
        return write, events, placing.keys(keys)
    keys = keys if plain_keys(keys) else list(keys)
    return placing.of_array(write, events, keys), events, keys
