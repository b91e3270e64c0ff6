"""Deleting scopes, updating streams, and detecting scopes that have lost their tables.

See ``docs/protocol/unforgiving.md``, "Deleting a scope that is not empty".

A 0.13.0 controller that refuses to delete a scope because it is not empty has by then already removed those
of the scope's own tables that were empty: of reader groups, of key-value tables, of tags.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any, Final, TypeVar, cast

import trio

from pravega_wire.errors import (
    ControllerError,
    NotFoundError,
    PravegaError,
    ScaleConflictError,
    ScopeBrokenError,
    ScopeNotEmptyError,
    ScopeNotFoundError,
)
from pravega_wire.segment.store import Backoff
from pravega_wire.stream import reader_group
from pravega_wire.stream.batch import check_not_sealed
from pravega_wire.stream.core import ClientCore
from pravega_wire.stream.group_link import STATE_PREFIX
from pravega_wire.support.nurseries import lone_errors
from pravega_wire.transport.limits import note_failure, note_progress
from pravega_wire.values.groups import RetentionType
from pravega_wire.values.policies import ScaleType, ScalingPolicy, StreamConfiguration
from pravega_wire.values.types import ScopedStream

__all__ = ["delete", "delete_recursively", "update_stream"]

T = TypeVar("T")

_NAMED: Final = 5
"""The number of a scope's contents that a message lists."""

_LOOK_EVERY: Final = 3.0
_UNFINISHED_SECONDS: Final = 6.0
_STUCK_SECONDS: Final = 60.0
"""The controller tries for 33 s to seal a stream that cannot be sealed, and a busy one may take longer."""

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
            f"scope {scope} is not empty: it has {', '.join(found[:_NAMED])}{more}. Delete them first, or "
            "use recursive=True",
            scope=scope,
        )
    return await core.controller.delete_scope(scope)


async def delete_recursively(core: ClientCore, scope: str) -> bool:
    """Delete a scope and its contents; see :meth:`PravegaClient.delete_scope`."""

    async def call() -> bool:
        # A 0.13.0 server says the same whether it existed or not. It is asked in any case, for the rest of a
        # scope whose deletion was interrupted.
        existed = await _delete_subscribers(core, scope)
        deleted = await _once_free(lambda: core.controller.delete_scope_recursive(scope)) and existed
        # A controller that has begun it, for another call or for one that was cancelled, says so at once.
        backoff = Backoff(longest=0.5)
        while await core.controller.check_scope_exists(scope):
            await backoff.wait()
        return deleted

    # Those of several scopes at once stop a controller (docs/protocol/unforgiving.md).
    async with core.scope_deletion:
        note_progress()
        return await _watched(call, lambda: _watch_deletion(core, scope))


async def _delete_subscribers(core: ClientCore, scope: str) -> bool:
    """Delete the reader groups that the controller cannot delete after their streams.

    :returns: whether the scope exists.
    """
    try:
        async with aclosing(cast("Any", core.controller.list_streams(scope))) as listed:
            states = [name async for name in listed if name.startswith(STATE_PREFIX)]
    except ScopeNotFoundError:
        return False
    for name in states:
        group = name.removeprefix(STATE_PREFIX)
        # Somebody else deletes it, or the scope is broken, as the deletion of the scope will report.
        with suppress(NotFoundError):
            config = await core.controller.get_reader_group_config(scope, group)
            if config.retention is not RetentionType.NONE:
                await reader_group.delete(core, ScopedStream(scope, group))
                note_progress()
    return True


async def update_stream(core: ClientCore, name: ScopedStream, configuration: StreamConfiguration) -> None:
    """Replace a stream's configuration; see :meth:`PravegaClient.update_stream`."""
    await _check_ends(core, name, configuration.scaling)

    async def update() -> None:
        await _once_free(
            lambda: core.controller.update_stream(name.scope, name.name, configuration),
            lambda: check_not_sealed(core, name),
        )

    if not configuration.tags:
        await update()
    else:
        await _watched(update, lambda: _watch_tags(core, name, min(configuration.tags)))


async def _check_ends(core: ClientCore, name: ScopedStream, scaling: ScalingPolicy) -> None:
    """Refuse an update that the controller would begin and never end.

    See ``docs/protocol/unforgiving.md``, "Scaling to another end by an update".
    """
    wanted = scaling.min_segments
    active = await core.controller.get_current_segments(name.scope, name.name)
    fixed = scaling.scale_type is ScaleType.FIXED_NUM_SEGMENTS
    if not active or len(active) == wanted or (len(active) > wanted and not fixed):
        return
    # As a controller computes it.
    end, new = max(each.high for each in active), wanted * (1.0 / wanted)
    if end != new:
        first = "" if len(active) < wanted else f"update it to a policy by rate with min_segments={wanted}, "
        raise ScaleConflictError(
            f"the number of segments of stream {name} cannot be updated from {len(active)} to {wanted}: "
            f"their keys would end at {new} instead of {end}, and no controller finishes such an update. "
            f"Instead, {first}scale it to {wanted} with scale_stream, or with pravega-wire stream scale, "
            "and update it then",
            scope=name.scope,
            stream=name.name,
        )


async def _once_free(
    call: Callable[[], Awaitable[T]], check: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
) -> T:
    """Return the answer of ``call``, made again while the controller is busy with another one of its kind.

    That is another client's, or the first request of this call, whose answer was lost.

    :param check: raises if there is another reason.
    """
    backoff = Backoff()
    while True:
        try:
            return await call()
        except ControllerError as error:
            if error.status != "FAILURE":
                raise
            await check()
            note_failure(error)
        await backoff.wait()


async def _watched(call: Callable[[], Awaitable[T]], watch: Callable[[], Awaitable[PravegaError]]) -> T:
    """Return the result of ``call``, or raise the error that ``watch`` finds before ``call`` is answered."""
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
                # Raised outside the nursery, so that it does not leave in a group.
                failure.insert(0, error)
            nursery.cancel_scope.cancel()
    if answer:
        return answer[0]
    raise failure[0]


async def _contents(core: ClientCore, scope: str, most: int | None = None) -> list[str]:
    """List the contents of a scope, at most ``most`` of them.

    :raises ScopeNotFoundError: the scope does not exist.
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
    # Mark streams belong to other streams. They count only if they were left behind.
    return found or marks


async def _watch_deletion(core: ClientCore, scope: str) -> PravegaError:
    """Support a deletion that is in progress. Returns an error if it makes no progress."""
    left: list[str] = []
    since = trio.current_time()
    helped = False
    while True:
        await trio.sleep(_LOOK_EVERY)
        try:
            now = await _contents(core, scope)
        except PravegaError:
            # The scope is gone, or the deletion itself will report what is wrong.
            continue
        if now != left:
            left, since, helped = now, trio.current_time(), False
            # The time limit applies to each step, however much there is to delete.
            note_progress()
            continue
        idle = trio.current_time() - since
        if idle >= _STUCK_SECONDS:
            return ScopeBrokenError(
                f"the controller has made no progress in deleting scope {scope} for {idle:.0f} s. The scope "
                f"still has {', '.join(left[:_NAMED])}. An earlier attempt to delete it has probably removed "
                "tables that the deletion needs. If another attempt fails as well, abandon the scope",
                scope=scope,
            )
        if idle >= _UNFINISHED_SECONDS and not helped:
            # Only once: repeated requests would keep the controller from its own work on these streams.
            helped = True
            await _delete_unfinished(core, scope)


async def _delete_unfinished(core: ClientCore, scope: str) -> None:
    """Delete the streams that cannot be sealed, because their creation was not finished."""
    try:
        async with aclosing(cast("Any", core.controller.list_streams(scope))) as listed:
            names = [name async for name in listed if not name.startswith("_")]
    except PravegaError:
        return
    for name in names:
        try:
            await core.controller.delete_stream(scope, name)
        except PravegaError:
            # The stream is not sealed. The controller will seal and delete it.
            continue


async def _watch_tags(core: ClientCore, name: ScopedStream, tag: str) -> PravegaError:
    """Return an error once the controller has changed the configuration but cannot record the tags."""
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
                f"the controller does not record the tags of stream {name}: scope {name.scope} has lost its "
                "table of tags, probably in an attempt to delete the scope. The stream can be written and "
                "read, but no longer changed, sealed or deleted: copy the data you need to another scope",
                scope=name.scope,
                stream=name.name,
            )
        await trio.sleep(_LOOK_EVERY)
