"""One blocking client for each configuration in each process, while it is used and for a while after that.

Spark keeps its Python worker processes between tasks and batches, so connections made for one task
serve the next ones. A client never crosses a fork or a pickle: only the configuration does.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from contextlib import ExitStack
from dataclasses import dataclass

from pravega_wire import PravegaConfig
from pravega_wire.errors import PravegaError
from pravega_wire.sync import PravegaClient, open_client

__all__ = ["HeldClient", "client_for", "close_clients"]

log = logging.getLogger(__name__)

_KEPT_IDLE = 4
"""Clients that nobody holds and that stay open: a process has few configurations at a time."""


@dataclass(slots=True)
class _Opened:
    client: PravegaClient
    stack: ExitStack
    holders: int = 0


_Key = tuple[PravegaConfig, int]

# Reentrant: a holder may be collected while this thread has it.
_lock = threading.RLock()
_clients: dict[_Key, _Opened] = {}
# The one that was asked for last is the last one. Those of another process (before a fork) are left alone.


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_after_fork)


class HeldClient:
    """Keeps this process's client for a configuration open until it is closed, or garbage.

    :ivar client: the client; do not close it yourself.
    """

    def __init__(self, config: PravegaConfig) -> None:
        key = (config, os.getpid())
        with _lock:
            opened = _open(key)
            opened.holders += 1
            idle = _take_idle()
        _close(idle)
        self.client = opened.client
        self._give_back = weakref.finalize(self, _release, opened)
        self._give_back.atexit = False

    def close(self) -> None:
        """Hold it no longer; again is harmless."""
        self._give_back()
        with _lock:
            idle = _take_idle()
        _close(idle)

    def __enter__(self) -> PravegaClient:
        return self.client

    def __exit__(self, *error: object) -> None:
        self.close()


def client_for(config: PravegaConfig) -> PravegaClient:
    """This process's client for ``config``, opened at the first call.

    It stays open as long as there is a :class:`HeldClient` for it; after that, until others are used. Do not
    close it yourself.
    """
    with HeldClient(config) as client:
        return client


def _open(key: _Key) -> _Opened:
    opened = _clients.pop(key, None)
    if opened is None:
        stack = ExitStack()
        opened = _Opened(stack.enter_context(open_client(key[0])), stack)
    _clients[key] = opened
    return opened


def _release(opened: _Opened) -> None:
    with _lock:
        opened.holders -= 1


def _take_idle() -> list[_Opened]:
    """Take out the idle clients that are too many."""
    mine = os.getpid()
    idle = [key for key, opened in _clients.items() if key[1] == mine and opened.holders == 0]
    return [_clients.pop(key) for key in idle[: max(0, len(idle) - _KEPT_IDLE)]]


def _close(clients: list[_Opened]) -> None:
    for opened in clients:
        try:
            opened.stack.close()
        except PravegaError as error:
            log.warning("a client that was not used any more was not closed properly: %s", error)


def close_clients() -> None:
    """Close every client this process opened here, whoever holds it."""
    with _lock:
        mine = [key for key in _clients if key[1] == os.getpid()]
        opened = [_clients.pop(key) for key in mine]
    for each in opened:
        each.stack.close()


atexit.register(close_clients)
