"""Comparing positions in a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pravega_wire.cli.work.points import Point, resolve
from pravega_wire.cli.work.streams import segment_label
from pravega_wire.errors import AuthError, InvalidArgumentError
from pravega_wire.values.types import CutOrder, ScopedStream, StreamCut

if TYPE_CHECKING:
    from pravega_wire.stream.client import PravegaClient

__all__ = ["compare", "cut_record", "distance"]


def cut_record(cut: StreamCut) -> dict[str, Any]:
    """Return a cut as a record."""
    return {
        "stream": str(cut.stream),
        "cut": cut,
        "positions": {segment_label(each): offset for each, offset in cut.positions.items()},
    }


async def compare(client: PravegaClient, stream: ScopedStream, one: Point, other: Point) -> CutOrder:
    """Return how one position relates to another."""
    first, second = await resolve(client, stream, one), await resolve(client, stream, other)
    try:
        layout = await client.stream_layout(stream)
    except AuthError:
        # Listing segments needs the right to write; the cuts alone may decide.
        return first.compare(second)
    return layout.compare(first, second)


async def distance(client: PravegaClient, stream: ScopedStream, start: Point, end: Point) -> dict[str, Any]:
    """Return the number of bytes between two positions; negative if the end is before the start."""
    first, second = await resolve(client, stream, start), await resolve(client, stream, end)
    layout = await client.stream_layout(stream)
    order = layout.compare(first, second)
    if order is CutOrder.OVERLAPPING:
        raise InvalidArgumentError(
            "neither position is before the other: in one part of the key space it is, in another it is after"
        )
    if order is CutOrder.AFTER:
        size = -layout.bytes_between(second, first, on_truncated="skip_to_head")
    else:
        size = layout.bytes_between(first, second, on_truncated="skip_to_head")
    return {"stream": str(stream), "from": first, "to": second, "bytes": size}
