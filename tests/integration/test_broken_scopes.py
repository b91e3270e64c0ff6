"""A 0.13.0 controller that refuses to delete a scope destroys a part of it.

On a server of its own: what cannot be deleted keeps a controller busy that other tests would wait for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest
import trio

from pravega_wire import (
    KeyValueTableConfiguration,
    PravegaClient,
    PravegaConfig,
    ReaderGroupConfig,
    RetentionType,
    ScalingPolicy,
    StreamConfiguration,
    open_client,
)
from pravega_wire.controller.client import ControllerClient, open_controller
from pravega_wire.errors import (
    ControllerError,
    ReaderGroupError,
    ScopeBrokenError,
    ScopeNotEmptyError,
    ScopeNotFoundError,
    StreamNotSealedError,
)
from pravega_wire.stream import scopes
from pravega_wire.testing import PravegaServer, standalone
from pravega_wire.testing.running import Kind
from tests.inside import core_of

pytestmark = pytest.mark.needs("0.11", "deleteScopeRecursive, by which such a scope is deleted")

TAGGED = StreamConfiguration(scaling=ScalingPolicy.fixed(1), tags=frozenset({"tag"}))
TABLE = KeyValueTableConfiguration(1, 4)


@pytest.fixture(scope="module")
def server(own_kind: Kind) -> Iterator[PravegaServer]:
    with standalone(kind=own_kind, memory="1g", cache_bytes=1 << 28) as started:
        yield started


@pytest.fixture
def config(server: PravegaServer) -> PravegaConfig:
    scope = f"test-{uuid4().hex[:12]}"

    async def create() -> None:
        async with open_client(server.config(scope)) as client:
            await client.create_scope(scope)

    trio.run(create)
    return server.config(scope)


async def break_scope(config: PravegaConfig, scope: str) -> None:
    """What a client does that asks the controller to delete a scope that is not empty."""
    async with open_controller(config.endpoints) as controller:
        with pytest.raises(ScopeNotEmptyError):
            await controller.delete_scope(scope)


@asynccontextmanager
async def broken(config: PravegaConfig) -> AsyncIterator[tuple[PravegaClient, str]]:
    """A broken scope with one stream, "plain", and a client."""
    scope = str(config.scope)
    async with open_client(config) as client:
        await client.create_stream("plain")
        await break_scope(config, scope)
        # Errors instead of calls that do not end, also on a machine that is busy.
        with trio.fail_after(240):
            yield client, scope


@pytest.mark.parametrize("kind", ["stream", "group", "table"])
async def test_a_refusal_leaves_the_scope_whole(config: PravegaConfig, kind: str) -> None:
    async with open_client(config) as client:
        scope = str(client.config.scope)
        assert not await client.delete_scope(f"{scope}-other")
        if kind == "table":
            await client.create_key_value_table("mine", TABLE)
        else:
            await client.create_stream("mine")
        if kind == "group":
            await client.create_reader_group("group", ["mine"])
        with pytest.raises(ScopeNotEmptyError, match=f"{scope} .*mine") as raised:
            await client.delete_scope(scope)
        assert raised.value.scope == scope
        assert ("reader group group" in raised.value.message) == (kind == "group")
        assert await client.create_stream("tagged", TAGGED)
        assert [each.name for each in await client.list_streams(tag="tag")] == ["tagged"]
        assert await client.create_reader_group("another", ["tagged"])
        assert await client.create_key_value_table("table", TABLE)
        assert await client.delete_scope(scope, recursive=True)
        assert not await client.scope_exists(scope)
        assert await client.delete_scope(scope, recursive=True) is False


async def test_a_deletion_that_is_in_progress_is_waited_for(
    config: PravegaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 0.13.0 controller answers a second request at once, also one after a call that was cancelled."""
    asked = trio.Event()
    delete, exists = ControllerClient.delete_scope_recursive, ControllerClient.check_scope_exists

    async def in_progress(self: ControllerClient, scope: str) -> bool:
        return True

    async def look(self: ControllerClient, scope: str) -> bool:
        found = await exists(self, scope)
        asked.set()
        return found

    async with open_client(config) as client:
        scope = str(config.scope)
        await client.create_stream("s")

        async def first() -> None:
            await asked.wait()
            await delete(core_of(client).controller, scope)

        monkeypatch.setattr(ControllerClient, "delete_scope_recursive", in_progress)
        monkeypatch.setattr(ControllerClient, "check_scope_exists", look)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first)
            assert await client.delete_scope(scope, recursive=True)
            assert not await client.scope_exists(scope)


async def test_a_broken_scope_is_named_and_can_be_deleted(config: PravegaConfig) -> None:
    async with broken(config) as (client, scope):
        for number in range(3):
            with pytest.raises(ScopeBrokenError, match=scope):
                await client.create_stream(f"tagged{number}", TAGGED)
        with pytest.raises(ScopeBrokenError, match=scope):
            await client.create_key_value_table("table", TABLE)
        with pytest.raises(ScopeBrokenError, match=scope) as raised:
            await client.create_reader_group("group", ["plain"])
        assert (raised.value.scope, raised.value.rpc) == (scope, "createReaderGroup")
        assert await client.create_stream("another")
        with pytest.raises(ScopeNotFoundError):
            await client.create_stream(f"{scope}-other/tagged", TAGGED)
        assert await client.delete_scope(scope, recursive=True)
        assert not await client.scope_exists(scope)
        # Its name can be used again.
        assert await client.create_scope(scope)
        assert await client.create_stream("tagged", TAGGED)
        assert await client.create_key_value_table("table", TABLE)


async def test_a_broken_scope_can_be_emptied_piece_by_piece(config: PravegaConfig) -> None:
    async with broken(config) as (client, scope):
        with pytest.raises(ScopeBrokenError):
            await client.create_stream("tagged", TAGGED)
        with pytest.raises(StreamNotSealedError):
            await client.delete_stream("plain")
        for stream in await client.list_streams(scope):
            assert await client.delete_stream(stream, seal=True)
        assert await client.delete_scope(scope)
        assert not await client.scope_exists(scope)


SUBSCRIBING = RetentionType.AUTOMATIC_RELEASE_AT_LAST_CHECKPOINT


async def test_a_scope_with_subscribers_can_be_deleted(config: PravegaConfig) -> None:
    """A controller deletes the streams first, and cannot delete the groups after that."""
    async with open_client(config) as client:
        scope = str(client.config.scope)
        for name in ("s", "gone"):
            await client.create_stream(name)
        await client.create_reader_group(
            "group", ReaderGroupConfig.of([f"{scope}/s", f"{scope}/gone"], retention=SUBSCRIBING)
        )
        await client.create_reader_group("other", ["s"])
        await client.delete_stream("gone", seal=True)
        assert await client.delete_scope(scope, recursive=True)
        assert not await client.scope_exists(scope)


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "created again"])
@pytest.mark.parametrize("others", [0, 1])
async def test_a_group_can_be_deleted_after_a_stream_that_it_subscribes_to(
    config: PravegaConfig, again: bool, others: int
) -> None:
    async with open_client(config) as client:
        scope = str(client.config.scope)
        names = ["gone", "other"][: 1 + others]
        for name in (*names, "new"):
            await client.create_stream(name)
        group = ReaderGroupConfig.of([f"{scope}/{name}" for name in names], retention=SUBSCRIBING)
        await client.create_reader_group("group", group)
        await client.delete_stream("gone", seal=True)
        if again:
            await client.create_stream("gone")
        async with client.reader_group("group") as opened:
            with pytest.raises(ReaderGroupError, match=f"{scope}/gone, which was deleted"):
                await opened.reset(ReaderGroupConfig.of([f"{scope}/new"], retention=SUBSCRIBING))
        assert await client.delete_reader_group("group")
        assert not await client.reader_group_exists("group")
        assert await client.list_reader_groups() == []
        async with open_controller(config.endpoints) as controller:
            for name in (*names[1:], "new"):
                assert await controller.list_subscribers(scope, name) == []


async def test_an_update_that_moves_the_end_of_the_keys(config: PravegaConfig) -> None:
    """The client refuses it; a controller never ends it, and refuses every other update."""
    async with open_client(config) as client:
        scope = str(client.config.scope)
        await client.create_stream("stream", 49)
    async with open_controller(config.endpoints) as controller:
        with trio.move_on_after(3.0) as unanswered:
            await controller.update_stream(scope, "stream", StreamConfiguration(ScalingPolicy.fixed(1)))
        assert unanswered.cancelled_caught
        with trio.move_on_after(3.0) as refused, pytest.raises(ControllerError, match="FAILURE"):
            await controller.update_stream(scope, "stream", StreamConfiguration(ScalingPolicy.fixed(49)))
        assert not refused.cancelled_caught
        assert len(await controller.get_current_segments(scope, "stream")) == 49


async def test_tags_that_can_be_entered(config: PravegaConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking early and often finds nothing wrong in a scope that is whole, and does not hold it up."""
    monkeypatch.setattr(scopes, "_TAGS_SECONDS", 0.0)
    monkeypatch.setattr(scopes, "_LOOK_EVERY", 0.05)
    monkeypatch.setattr(scopes, "_UNFINISHED_SECONDS", 0.0)

    async with open_client(config) as client:
        scope = str(client.config.scope)
        for number in range(5):
            await client.create_stream(f"stream{number}")
            await client.update_stream(f"stream{number}", TAGGED)
        assert len(await client.list_streams(tag="tag")) == 5
        await client.delete_scope(scope, recursive=True)
        assert not await client.scope_exists(scope)


async def test_tags_that_cannot_be_entered(config: PravegaConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller answers neither the change nor the deletion afterwards."""
    monkeypatch.setattr(scopes, "_STUCK_SECONDS", 10.0)

    async with broken(config) as (client, scope):
        with pytest.raises(ScopeBrokenError, match=f"{scope}/plain") as raised:
            await client.update_stream("plain", TAGGED)
        assert raised.value.stream == "plain"
        with pytest.raises(ScopeBrokenError, match=f"{scope} .*stream plain"):
            await client.delete_scope(scope, recursive=True)
