"""Deleting scopes, and what a scope that has lost its own tables does (docs/architecture.md).

A 0.13.0 controller that refuses to delete a scope because it is not empty has by then removed those of the
scope's own tables that were empty: of reader groups, of key-value tables, of tags.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final, TypeVar, cast

import trio

from pravega_wire.errors import (
    PravegaError,
    ScopeBrokenError,
    ScopeNotEmptyError,
    ScopeNotFoundError,
)
from pravega_wire.nurseries import lone_errors
from pravega_wire.policies import StreamConfiguration
from pravega_wire.stream.core import ClientCore
from pravega_wire.stream.group_link import STATE_PREFIX
from pravega_wire.transport.limits import note_progress
from pravega_wire.types import ScopedStream

__all__ = ["delete", "delete_recursively", "update_stream"]

T = TypeVar("T")

_NAMED: Final = 5
"""As many of the things in a scope a message names."""

_LOOK_EVERY: Final = 3.0
_UNFINISHED_SECONDS: Final = 6.0
_STUCK_SECONDS: Final = 60.0
"""The controller tries for 33 s to seal a stream that cannot be sealed; a busy one may be slow."""

_TAGS_SECONDS: Final = 10.0

_MARK_PREFIX: Final = "_MARK"


async def delete(core: ClientCore, scope: str) -> bool:
    """Delete an empty scope; see :meth:`PravegaClient.delete_scope`."""
    try:
        found = await _contents(core, scope, _NAMED + 1)
    except ScopeNotFoundError:
        return False
    if found:
        more = " and more" if len(found) > _NAMED else ""
        raise ScopeNotEmptyError(
            f"scope {scope} is not empty: it has {', '.join(found[:_NAMED])}{more}", scope=scope
        )
    return await core.controller.delete_scope(scope)


async def delete_recursively(core: ClientCore, scope: str) -> bool:
    """Delete a scope with what is in it; see :meth:`PravegaClient.delete_scope`."""
    return await _watched(
        lambda: core.controller.delete_scope_recursive(scope), lambda: _watch_deletion(core, scope)
    )


async def update_stream(core: ClientCore, name: ScopedStream, configuration: StreamConfiguration) -> None:
    """Replace a stream's configuration; see :meth:`PravegaClient.update_stream`."""

    async def update() -> None:
        await core.controller.update_stream(name.scope, name.name, configuration)

    if not configuration.tags:
        await update()
    else:
        await _watched(update, lambda: _watch_tags(core, name, min(configuration.tags)))


async def _watched(call: Callable[[], Awaitable[T]], watch: Callable[[], Awaitable[PravegaError]]) -> T:
    """What ``call`` comes to, or the error that ``watch`` finds while nothing is answered."""
    answer: list[T] = []
    failure: list[PravegaError] = []
    with lone_errors():
        async with trio.open_nursery() as nursery:

            async def look() -> None:
                failure.append(await watch())
                nursery.cancel_scope.cancel()

            nursery.start_soon(look)
            try:
                answer.append(await call())
            except PravegaError as error:
                # Out of the nursery as it was raised.
                failure.insert(0, error)
            nursery.cancel_scope.cancel()
    if answer:
        return answer[0]
    raise failure[0]


async def _contents(core: ClientCore, scope: str, most: int | None = None) -> list[str]:
    """What a scope holds, at most so much of it.

    :raises ScopeNotFoundError: no such scope.
    """
    found: list[str] = []
    marks: list[str] = []
    controller = core.controller
    listings = (
        ("stream", controller.list_streams(scope)),
        ("key-value table", controller.list_key_value_tables(scope)),
    )
    for kind, listing in listings:
        async with aclosing(cast("Any", listing)) as names:
            async for name in cast("AsyncIterator[str]", names):
                if name.startswith(_MARK_PREFIX):
                    marks.append(f"stream {name}")
                elif name.startswith(STATE_PREFIX):
                    found.append(f"reader group {name.removeprefix(STATE_PREFIX)}")
                else:
                    found.append(f"{kind} {name}")
                if most is not None and len(found) >= most:
                    return found
    # Those belong to streams, and count only where they were left behind.
    return found or marks


async def _watch_deletion(core: ClientCore, scope: str) -> PravegaError:
    """Help a deletion on; returns the error when that is of no use."""
    left: list[str] = []
    since = trio.current_time()
    helped = False
    while True:
        await trio.sleep(_LOOK_EVERY)
        try:
            now = await _contents(core, scope)
        except PravegaError:
            # It is gone, or the deletion's own call tells what is wrong.
            continue
        if now != left:
            left, since, helped = now, trio.current_time(), False
            # However much there is to delete.
            note_progress()
            continue
        idle = trio.current_time() - since
        if idle >= _STUCK_SECONDS:
            return ScopeBrokenError(
                f"the controller has made no progress with deleting scope {scope} for {idle:.0f} s; it "
                f"still has {', '.join(left[:_NAMED])}. An earlier attempt to delete the scope has probably "
                "removed tables that are needed for it. If another attempt fails as well, leave the scope",
                scope=scope,
            )
        if idle >= _UNFINISHED_SECONDS and not helped:
            # Once: again and again it would keep the controller from its own work on these streams.
            helped = True
            await _delete_unfinished(core, scope)


async def _delete_unfinished(core: ClientCore, scope: str) -> None:
    """Delete the streams that cannot be sealed, as their creation was not finished; others are left alone."""
    try:
        async with aclosing(cast("Any", core.controller.list_streams(scope))) as listed:
            names = [name async for name in listed if not name.startswith("_")]
    except PravegaError:
        return
    for name in names:
        try:
            await core.controller.delete_stream(scope, name)
        except PravegaError:
            # Not sealed: the controller will do it.
            continue


async def _watch_tags(core: ClientCore, name: ScopedStream, tag: str) -> PravegaError:
    """Returns the error when the controller has changed the configuration, and cannot enter the tags."""
    await trio.sleep(_TAGS_SECONDS)
    seen = 0
    while True:
        try:
            configuration = await core.controller.get_stream_configuration(name.scope, name.name)
            async with aclosing(cast("Any", core.controller.list_streams_for_tag(name.scope, tag))) as listed:
                entered = name.name in [each async for each in listed]
        except PravegaError:
            entered = True
        else:
            entered = entered or tag not in configuration.tags
        seen = 0 if entered else seen + 1
        if seen > 1:
            return ScopeBrokenError(
                f"the controller does not enter the tags of stream {name}: scope {name.scope} has lost "
                "its table of tags, probably by an attempt to delete it. The stream can be written and read, "
                "but no longer changed, sealed or deleted: copy what is needed to another scope",
                scope=name.scope,
                stream=name.name,
            )
        await trio.sleep(_LOOK_EVERY)
