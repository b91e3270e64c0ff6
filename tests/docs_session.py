"""An interactive session without its prompt: reads blocks as JSON, runs each, and prints a mark after it.

The first argument is the event loop that top-level ``await`` uses: ``trio``, ``asyncio`` or ``none``.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

MARK = "\x1e"
NAMES: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__}


def next_block() -> tuple[str, int, str] | None:
    line = sys.stdin.readline()
    return tuple(json.loads(line)) if line else None


def begin(place: str, line: int, text: str) -> Any:
    """Run a block, up to its first await; the coroutine for the rest of it, or None."""
    tree = ast.increment_lineno(ast.parse(text, place.rpartition(":")[0]), line - 1)
    code = compile(tree, place.rpartition(":")[0], "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    found = eval(code, NAMES)
    return found if inspect.iscoroutine(found) else None


def answer(status: str) -> None:
    sys.stdout.flush()
    print(f"{MARK}{status}", flush=True)


async def session(wait: Callable[[Callable[[], Any]], Awaitable[Any]]) -> None:
    while (block := await wait(next_block)) is not None:
        try:
            rest = begin(*block)
            if rest is not None:
                await rest
        except BaseException:
            traceback.print_exc()
            answer("failed")
            os._exit(1)
        answer("done")
    end()


def end() -> None:
    """Contexts that the session has entered are never left: there is nothing to wait for."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def main() -> None:
    sys.path.insert(0, os.getcwd())
    sys.path.remove(os.path.dirname(os.path.abspath(__file__)))
    if sys.argv[1] == "trio":
        import trio

        NAMES["trio"] = trio
        trio.run(session, trio.to_thread.run_sync)
    elif sys.argv[1] == "asyncio":
        import asyncio

        NAMES["asyncio"] = asyncio
        asyncio.run(session(asyncio.to_thread))
    else:
        while (block := next_block()) is not None:
            try:
                begin(*block)
            except BaseException:
                traceback.print_exc()
                answer("failed")
                raise SystemExit(1) from None
            answer("done")


if __name__ == "__main__":
    main()
