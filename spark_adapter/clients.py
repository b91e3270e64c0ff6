"""Keeps one blocking client for each configuration in each process.

It stays open while it is used, and for a while after that.

Spark keeps its Python worker processes between tasks and batches, so the connections of one task serve later
ones. A client is never forked or pickled; only its configuration is.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pravega_wire import PravegaConfig
from pravega_wire.errors import ArgumentTypeError, PravegaError

if TYPE_CHECKING:
    from pravega_wire.sync import PravegaClient

__all__ = ["HeldClient", "client_for", "close_clients", "settings_of"]

log = logging.getLogger(__name__)

_KEPT_IDLE = 4
"""The number of unused clients that stay open; a process has few configurations at a time."""


@dataclass(slots=True)
class _Opened:
    client: PravegaClient
    holders: int = 0


_Key = tuple[PravegaConfig, int]

_lock = threading.Lock()
_clients: dict[_Key, _Opened] = {}
# Ordered by last use. Clients of another process (inherited by a fork) are not touched.
_given_back: deque[_Opened] = deque()
# Holders may be garbage-collected in any thread, at any moment, so giving back takes no lock.


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_after_fork)


def settings_of(config: PravegaConfig | str) -> PravegaConfig:
    """Return the configuration that a user gave, or that of the URI, as ``open_client`` does.

    :raises ArgumentTypeError: it is neither.
    :raises InvalidArgumentError: the URI is malformed.
    """
    if isinstance(config, str):
        return PravegaConfig.from_defaults(controller_uri=config)
    if not isinstance(config, PravegaConfig):
        raise ArgumentTypeError(
            f"config must be a PravegaConfig or the controller's URI, not {type(config).__name__}"
        )
    return config


class HeldClient:
    """Keeps this process's client for a configuration open until this object is closed or garbage-collected.

    :param config: connection settings.
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
        self._give_back = weakref.finalize(self, _given_back.append, opened)
        self._give_back.atexit = False

    def close(self) -> None:
        """Release the client. Calling it again has no effect."""
        self._give_back()
        with _lock:
            idle = _take_idle()
        _close(idle)

    def __enter__(self) -> PravegaClient:
        return self.client

    def __exit__(self, *error: object) -> None:
        self.close()


def client_for(config: PravegaConfig) -> PravegaClient:
    """Return this process's client for ``config``; the first call opens it.

    It stays open as long as there is a :class:`HeldClient` for it, and then until more recently used clients
    replace it. Do not close it yourself.

    :param config: connection settings.
    """
    with HeldClient(config) as client:
        return client


def _open(key: _Key) -> _Opened:
    opened = _clients.pop(key, None)
    if opened is None:
        # Loaded here: what only checks options does without it.
        from pravega_wire.sync import open_client

        opened = _Opened(open_client(key[0]))
    _clients[key] = opened
    return opened


def _take_idle() -> list[_Opened]:
    """Remove the unused clients beyond the limit, and return them."""
    while _given_back:
        _given_back.popleft().holders -= 1
    mine = os.getpid()
    idle = [key for key, opened in _clients.items() if key[1] == mine and opened.holders == 0]
    return [_clients.pop(key) for key in idle[: max(0, len(idle) - _KEPT_IDLE)]]


def _close(clients: list[_Opened]) -> None:
    for opened in clients:
        try:
            opened.client.close()
        except PravegaError as error:
            log.warning("an unused client was not closed properly: %s", error)


def close_clients() -> None:
    """Close every client that this process opened here, even if it is in use."""
    with _lock:
        mine = [key for key in _clients if key[1] == os.getpid()]
        opened = [_clients.pop(key) for key in mine]
    for each in opened:
        each.client.close()


atexit.register(close_clients)
