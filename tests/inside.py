"""The ways into a client that more than one test needs, so that only this changes when they do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pravega_wire.support import trouble
from pravega_wire.support.environment import ENVIRONMENT, environment

if TYPE_CHECKING:
    from pravega_wire.stream.core import ClientCore
    from pravega_wire.stream.group_link import GroupLink


def core_of(client: Any) -> ClientCore:
    """What a client's handles share; of a facade, that of the client behind it."""
    core: ClientCore = getattr(client, "_twin", client)._core
    return core


def portal_of(client: Any) -> Any:
    """What leads from a facade's client to its thread."""
    return client._portal


def link_of(group: Any) -> GroupLink:
    """A group's link to its state."""
    link: GroupLink = group._link
    return link


def forget_told() -> None:
    """Let each trouble be told again."""
    trouble._told.clear()


@contextmanager
def surroundings(**changes: Any) -> Iterator[None]:
    """Give this task or thread an environment with other clocks, ids, or chance."""
    token = ENVIRONMENT.set(replace(environment(), **changes))
    try:
        yield
    finally:
        ENVIRONMENT.reset(token)
