"""Random programs are answered by the server in memory as by the real one, and leave the same behind.

A usual run takes few, the same each time. ``PRAVEGA_STORE_PROGRAMS``, ``PRAVEGA_STREAM_PROGRAMS`` and
``PRAVEGA_CATALOG_PROGRAMS`` are how many new ones to take instead.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pravega_wire import sync
from pravega_wire.controller.client import open_controller
from pravega_wire.testing import PravegaServer, standalone
from tests.comparing import Channel, Memory, StoreLink, open_channel
from tests.integration import catalog_programs, controller_programs, store_programs
from tests.integration.catalog_programs import CatalogRun
from tests.integration.controller_programs import NeverAnsweredError, StreamRun
from tests.integration.store_programs import Difference, Run

pytestmark = pytest.mark.real_server("the server in memory is compared with it")

STEPS = 16
TOGETHER = 64
"""Programs of a kind that are run at the same time; a server takes that many without being late."""


@pytest.fixture(scope="module")
def pravega_server() -> Iterator[PravegaServer]:
    """A server for this module: some programs update a table with nothing, and after that a real one uses
    most of a core even when idle (docs/protocol/unforgiving.md)."""
    with standalone(kind="jars", memory="2g", cache_bytes=256 << 20) as server:
        with sync.open_client(server.config()) as client:
            # A controller that has just started refuses this for a moment; the client asks again.
            client.delete_scope("none", recursive=True)
        yield server


Program = list[tuple[Any, int]]
Begin = Callable[[StoreLink, Channel], Awaitable[Run]]


def programs(steps: tuple[Any, ...], together: int) -> st.SearchStrategy[list[Program]]:
    """Programs that are run together; a step is a function and its seed. What fails shrinks to few steps."""
    step = st.tuples(st.sampled_from((None, *steps)), st.integers(0, 1 << 16))
    program = st.lists(step, min_size=STEPS, max_size=STEPS)
    return st.lists(program, min_size=together, max_size=together)


def many(variable: str, usual: int, together: int) -> settings:
    new = os.environ.get(variable)
    return settings(
        max_examples=max(1, int(new or usual) // together),
        derandomize=new is None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


async def begin_at_a_store(link: StoreLink, channel: Channel) -> Run:
    return Run(Memory(), link)


async def begin_with_a_stream(link: StoreLink, channel: Channel) -> Run:
    run = StreamRun(Memory(), link, channel)
    await run.begin()
    return run


def catalog_runs() -> Begin:
    """Return what begins programs about scopes that run together; one at a time deletes a scope with all."""
    deletion = trio.Lock()

    async def begin(link: StoreLink, channel: Channel) -> Run:
        run = CatalogRun(Memory(), link, channel, deletion)
        await run.begin()
        return run

    return begin


async def difference(begin: Begin, link: StoreLink, channel: Channel, program: Program) -> Difference | None:
    """Run a program; return what was not the same."""
    run = None
    try:
        run = await begin(link, channel)
        for step, seed in program:
            if step is not None:
                run.log.append(f"{step.__name__}:")
                await step(run, Random(seed))
        await run.finish()
    except Difference as error:
        return error
    except trio.TooSlowError:
        return Difference("\n".join([*(run.log if run else ()), "the real one did not answer"]))
    except NeverAnsweredError:
        pass
    return None


async def run_together(server: PravegaServer, begin: Begin, wanted: list[Program]) -> None:
    async with open_controller(server.config().endpoints) as controller:
        uri = await controller.get_uri("scope", "stream", 0)
    found: list[Difference] = []

    async def run_one(program: Program) -> None:
        link = StoreLink((uri.host, uri.port))
        await link.open()
        first = await difference(begin, link, channel, program)
        if first is not None:
            await link.renew()
            # What does not repeat depended on the moment at which the real one came to something.
            again = await difference(begin, link, channel, program)
            found.extend([again] if again else [])
        await link.close()

    async with open_channel(server) as channel, trio.open_nursery() as nursery:
        for program in wanted:
            if any(step for step, _ in program):
                nursery.start_soon(run_one, program)
    if found:
        raise found[0]


@many("PRAVEGA_STORE_PROGRAMS", 320, TOGETHER)
@given(wanted=programs(store_programs.STEPS, TOGETHER))
def test_a_store_answers_the_same(pravega_server: PravegaServer, wanted: list[Program]) -> None:
    trio.run(run_together, pravega_server, begin_at_a_store, wanted)


@many("PRAVEGA_STREAM_PROGRAMS", 48, TOGETHER // 4)
@given(wanted=programs(controller_programs.STEPS, TOGETHER // 4))
def test_a_controller_answers_the_same(pravega_server: PravegaServer, wanted: list[Program]) -> None:
    trio.run(run_together, pravega_server, begin_with_a_stream, wanted)


@many("PRAVEGA_CATALOG_PROGRAMS", 48, TOGETHER // 8)
@given(wanted=programs(catalog_programs.STEPS, TOGETHER // 8))
def test_a_catalog_is_the_same(pravega_server: PravegaServer, wanted: list[Program]) -> None:
    trio.run(run_together, pravega_server, catalog_runs(), wanted)
