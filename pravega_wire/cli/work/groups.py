"""Reader groups: their readers, positions and lag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pravega_wire.cli.work.points import Point, ranges_left, resolve_event
from pravega_wire.cli.work.streams import segment_label
from pravega_wire.errors import InvalidArgumentError, PravegaError, StreamNotFoundError
from pravega_wire.values.naming import parse_segment_name
from pravega_wire.values.types import ScopedStream, StreamCut

if TYPE_CHECKING:
    from pravega_wire.stream.client import PravegaClient
    from pravega_wire.stream.reader_group import ReaderGroup

__all__ = ["check_cuts", "describe", "lag_of", "list_groups", "reset"]

_AT_ONCE = 4


async def list_groups(client: PravegaClient, scope: str | None) -> list[dict[str, Any]]:
    """List the reader groups of a scope, with readers, segments and lag. A group that fails has an
    ``error``."""
    from pravega_wire.support.nurseries import run_all

    groups = sorted(await client.list_reader_groups(scope))
    rows: list[dict[str, Any]] = [{"group": str(each)} for each in groups]

    async def look(row: dict[str, Any], name: ScopedStream) -> None:
        try:
            async with client.reader_group(name) as group:
                metrics = await group.metrics()
                row |= {
                    "streams": [str(each) for each in group.streams],
                    "readers": len(metrics.readers),
                    "segments": metrics.segments,
                    "unassigned": metrics.unassigned,
                    "lag": await lag_of(client, group),
                    "since_checkpoint": metrics.unread_bytes,
                    "checkpoints": len(group.outstanding_checkpoints),
                }
        except PravegaError as error:
            row["error"] = error.message

    def looking(row: dict[str, Any], name: ScopedStream) -> Any:
        return lambda: look(row, name)

    await run_all([looking(row, name) for row, name in zip(rows, groups, strict=True)], _AT_ONCE)
    return rows


async def lag_of(client: PravegaClient, group: ReaderGroup) -> int:
    """Return the number of bytes after the positions that a group's readers have reported last."""
    total = 0
    for stream, cut in (await group.stream_cuts()).items():
        try:
            ranges = await ranges_left(client, stream, cut, group.config.ends.get(stream))
        except StreamNotFoundError:
            # It was deleted: nothing of it will be read.
            continue
        total += sum(each.length for each in ranges)
    return total


def _short(segment: str) -> str:
    scope, stream, segment_id, _ = parse_segment_name(segment)
    return f"{scope}/{stream}/{segment_label(segment_id)}"


async def describe(client: PravegaClient, name: ScopedStream) -> dict[str, Any]:
    """Return what a group's state says: readers, segments, lag, checkpoints, configuration."""
    async with client.reader_group(name) as group:
        metrics = await group.metrics()
        cuts = await group.stream_cuts()
        last = await group.last_checkpoint()
        record = _record(group, await lag_of(client, group), cuts, last, metrics.future)
        return record | {"since_checkpoint": metrics.unread_bytes}


def _record(
    group: ReaderGroup,
    lag: int,
    cuts: dict[ScopedStream, StreamCut],
    last: dict[ScopedStream, StreamCut] | None,
    future: int,
) -> dict[str, Any]:
    config = group.config
    segments: list[dict[str, Any]] = []
    for reader in group.online_readers.values():
        segments += [
            {"reader": reader.name, "segment": _short(segment), "offset": offset}
            for segment, offset in reader.segments.items()
        ]
    segments += [
        {"reader": None, "segment": _short(each), "offset": None} for each in group.unassigned_segments
    ]
    return {
        "group": group.name,
        "streams": [str(each) for each in group.streams],
        "lag": lag,
        "readers": list(group.online_readers),
        "segments": segments,
        "future": future,
        "checkpoints": [
            {
                "name": each.name,
                "silent": each.silent,
                "waiting_for": [reader.name for reader in each.waiting_for],
            }
            for each in group.outstanding_checkpoints
        ],
        "last_checkpoint": None if last is None else {str(key): cut for key, cut in last.items()},
        "positions": {str(key): cut for key, cut in cuts.items()},
        "refresh_seconds": config.group_refresh_interval,
        "automatic_checkpoint_seconds": config.automatic_checkpoint_interval,
        "max_outstanding_checkpoints": config.max_outstanding_checkpoints,
        "retention": config.retention,
        "generation": config.generation,
        "ends": {str(key): cut for key, cut in config.ends.items() if cut is not None},
    }


def check_cuts(name: ScopedStream, streams: Sequence[ScopedStream], cuts: Sequence[StreamCut]) -> None:
    """Check that there is one cut of each stream: without it, the group would read all of the stream again.

    :raises InvalidArgumentError: a stream has no cut, or several.
    """
    named = [each.stream for each in cuts]
    if twice := sorted({str(each) for each in named if named.count(each) > 1}):
        raise InvalidArgumentError(
            f"there are several positions of {', '.join(twice)}: name one of each (--to)"
        )
    missing = [str(each) for each in streams if each not in named]
    # The group itself refuses a stream that it does not read.
    if missing and set(named) <= set(streams):
        raise InvalidArgumentError(
            f"reader group {name} also reads {', '.join(missing)}: name a position of each (--to)"
        )


async def reset(client: PravegaClient, name: ScopedStream, to: Sequence[Point]) -> list[StreamCut]:
    """Restart a group from other positions, and return them.

    :param client: the client.
    :param name: the group.
    :param to: positions: a cut of each stream; or one position that is not a cut, for every stream; or none,
        for the last checkpoint.
    :raises InvalidArgumentError: a stream has no cut, or several.
    """
    async with client.reader_group(name) as group:
        if not to:
            await group.reset()
            return list((await group.stream_cuts()).values())
        if len(to) == 1 and to[0].cut is None:
            cuts = [await resolve_event(client, stream, to[0]) for stream in group.streams]
        else:
            cuts = [each.cut for each in to if each.cut is not None]
            if len(cuts) != len(to):
                raise InvalidArgumentError("with several positions, each must be the text of a cut, or @FILE")
            check_cuts(name, group.streams, cuts)
        await group.reset(cuts)
        return cuts
