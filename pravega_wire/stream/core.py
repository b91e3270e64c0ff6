"""The objects that all parts of one client share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn
from uuid import UUID
from weakref import WeakValueDictionary

import trio

from pravega_wire.controller.client import ControllerClient
from pravega_wire.controller.tokens import Access, StreamToken, TokenCache
from pravega_wire.errors import ArgumentTypeError, ClosedError
from pravega_wire.metrics import Counters
from pravega_wire.segment.store import SegmentStores, SegmentTarget
from pravega_wire.support.environment import environment
from pravega_wire.support.nurseries import check_run
from pravega_wire.transport.limits import Leaving
from pravega_wire.values.config import PravegaConfig
from pravega_wire.values.naming import segment_name
from pravega_wire.values.types import ScopedStream

__all__ = ["ClientCore", "not_shared"]


def not_shared(handle: object) -> NoReturn:
    """The ``__reduce__`` of clients and of their objects: they hold connections.

    :raises ArgumentTypeError: always.
    """
    raise ArgumentTypeError(
        f"{handle!r} belongs to its client and cannot be copied or pickled: send the PravegaConfig and "
        "open a client there"
    )


@dataclass(slots=True)
class ClientCore:
    """The controller, the segment stores and the nursery of a client."""

    config: PravegaConfig
    controller: ControllerClient
    stores: SegmentStores
    tokens: TokenCache
    nursery: trio.Nursery
    closed: bool = field(default=False)
    turns: WeakValueDictionary[ScopedStream, trio.Lock] = field(default_factory=WeakValueDictionary)
    group_states: WeakValueDictionary[ScopedStream, Any] = field(default_factory=WeakValueDictionary)
    """The states of reader groups that are open; see :mod:`pravega_wire.stream.group_link`."""
    scope_deletion: trio.Lock = field(default_factory=trio.Lock)
    """Whose turn it is to delete a scope with its contents; see :mod:`pravega_wire.stream.scopes`."""
    committer: UUID = field(default_factory=lambda: environment().new_id())
    """The writer that event times of transactions are noted for, unless the program names another."""
    leaving: Leaving = field(init=False)
    """The time for leaving what was opened with the client."""

    def __post_init__(self) -> None:
        self.leaving = Leaving(self.config.operation_timeout)

    @property
    def counters(self) -> Counters:
        """The client's counters."""
        return self.stores.counters

    def check_open(self) -> None:
        """Check that the client is open.

        :raises ClosedError: the client is closed.
        """
        if self.closed:
            raise ClosedError("the client is closed")

    def check_run(self) -> None:
        """Check that this is the trio run that opened the client.

        Only what runs there may ask: the facades make objects in other threads.

        :raises InvalidArgumentError: it is not.
        """
        check_run(self.stores.thread)

    def turn(self, stream: ScopedStream) -> trio.Lock:
        """The lock that conditional writers of a stream take when they get in each other's way."""
        return self.turns.setdefault(stream, trio.Lock())

    def token_source(self, stream: ScopedStream, access: Access) -> StreamToken:
        """A source of current delegation tokens for a stream."""
        return self.tokens.source(stream.scope, stream.name, access)

    def target(self, stream: ScopedStream, segment_id: int, access: Access) -> SegmentTarget:
        """A segment of a stream, with its token."""
        return SegmentTarget(
            name=segment_name(stream.scope, stream.name, segment_id),
            scope=stream.scope,
            stream=stream.name,
            segment_id=segment_id,
            token=self.token_source(stream, access),
        )
