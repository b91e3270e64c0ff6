"""Running a function beside the test, in a thread that does not keep the process alive."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future


def in_a_thread(function: Callable[[], object]) -> Future[object]:
    """What a function gives or raises in a thread of its own."""
    future: Future[object] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
