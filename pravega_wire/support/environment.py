"""What the client takes from the machine that it runs on: time, chance, ids and connections.

Whatever else the client does follows from these and from what its peers send. A simulation hands in its own
(``tests/simulation``): a task uses the environment of the task that started it.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from uuid import UUID

__all__ = ["ENVIRONMENT", "Environment", "environment"]


@dataclass(frozen=True, slots=True)
class Environment:
    """Time, chance, ids and connections.

    :ivar monotonic: returns seconds, which never go back; as fast as the clock of trio.
    :ivar wall: returns seconds since 1970.
    :ivar random: returns a number from 0 to 1, without 1.
    :ivar new_id: returns an id that nothing else has.
    :ivar dial: is called with host, port and seconds in place of ``transport.stream.connect``, and returns
        what behaves as its result does; None for TCP and TLS.
    """

    monotonic: Callable[[], float] = time.perf_counter
    wall: Callable[[], float] = time.time
    random: Callable[[], float] = random.random
    new_id: Callable[[], UUID] = uuid.uuid4
    dial: Callable[[str, int, float], Awaitable[Any]] | None = None


_MACHINE = Environment()

ENVIRONMENT: ContextVar[Environment] = ContextVar("pravega environment", default=_MACHINE)
"""That of this task or thread, and of the tasks that it starts from now on."""

environment: Callable[[], Environment] = ENVIRONMENT.get
