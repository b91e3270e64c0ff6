"""One blocking client for each configuration in each process.

Spark keeps its Python worker processes between tasks and batches, so connections made for one task
serve the next ones. A client never crosses a fork or a pickle: only the configuration does.
"""

from __future__ import annotations

import atexit
import os
import threading
from contextlib import ExitStack

from pravega_wire import PravegaConfig
from pravega_wire.sync import PravegaClient, open_client

__all__ = ["client_for", "close_clients"]

_lock = threading.Lock()
_clients: dict[tuple[PravegaConfig, int], tuple[PravegaClient, ExitStack]] = {}


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_after_fork)


def client_for(config: PravegaConfig) -> PravegaClient:
    """This process's client for ``config``, opened at the first call.

    It stays open until the process ends or :func:`close_clients`; do not close it yourself.
    """
    key = (config, os.getpid())
    with _lock:
        if key not in _clients:
            stack = ExitStack()
            _clients[key] = (stack.enter_context(open_client(config)), stack)
        return _clients[key][0]


def close_clients() -> None:
    """Close every client this process opened here."""
    with _lock:
        mine = [key for key in _clients if key[1] == os.getpid()]
        stacks = [_clients.pop(key)[1] for key in mine]
    for stack in stacks:
        stack.close()


atexit.register(close_clients)
