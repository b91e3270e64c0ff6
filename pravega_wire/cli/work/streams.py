"""Streams: what they are like, how they scale, and what they hold."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from pravega_wire.cli.values import counted, duration_text, size_text
from pravega_wire.cli.work.points import Point, ranges_left, resolve, resolve_event
from pravega_wire.controller.types import SegmentWithRange
from pravega_wire.errors import InvalidArgumentError, StreamNotFoundError
from pravega_wire.support.checks import INT64_MAX
from pravega_wire.values.cuts import LayoutSegment, StreamLayout
from pravega_wire.values.naming import epoch_of, number_of
from pravega_wire.values.policies import (
    RetentionPolicy,
    RetentionType,
    ScaleType,
    ScalingPolicy,
    StreamConfiguration,
)
from pravega_wire.values.types import ScopedStream, StreamCut

if TYPE_CHECKING:
    from pravega_wire.stream.client import PravegaClient

__all__ = [
    "Changes", "describe", "epochs_of", "even_ranges", "list_streams", "retention_record", "retention_text",
    "scale", "scaling_record", "scaling_text", "segment_label", "segment_rows", "truncate",
]  # fmt: skip

_AT_ONCE = 8


def segment_label(segment_id: int) -> str:
    """Return the short name of a segment: its number, and its epoch unless that is 0 (``3.#epoch.1``)."""
    epoch = epoch_of(segment_id)
    return f"{number_of(segment_id)}.#epoch.{epoch}" if epoch else str(number_of(segment_id))


_SCALING: Final = {
    ScaleType.FIXED_NUM_SEGMENTS: "fixed",
    ScaleType.BY_RATE_IN_EVENTS_PER_SEC: "events_per_second",
    ScaleType.BY_RATE_IN_KBYTES_PER_SEC: "bytes_per_second",
}


def scaling_record(policy: ScalingPolicy) -> dict[str, Any]:
    """Return a scaling policy as a record."""
    record: dict[str, Any] = {"by": _SCALING[policy.scale_type], "min_segments": policy.min_segments}
    if policy.scale_type is not ScaleType.FIXED_NUM_SEGMENTS:
        unit = 1024 if policy.scale_type is ScaleType.BY_RATE_IN_KBYTES_PER_SEC else 1
        record |= {"rate": policy.target_rate * unit, "scale_factor": policy.scale_factor}
    return record


def scaling_text(record: Mapping[str, Any]) -> str:
    """Return the record of a scaling policy as one phrase."""
    least = record["min_segments"]
    if record["by"] == "fixed":
        return f"fixed, {counted(least, 'segment')}"
    rate = f"{record['rate']} events" if record["by"] == "events_per_second" else size_text(record["rate"])
    return f"{rate}/s for each segment, factor {record['scale_factor']}, at least {least}"


def retention_record(policy: RetentionPolicy | None) -> dict[str, Any] | None:
    """Return a retention policy as a record: seconds or bytes; None if all data is kept."""
    if policy is None:
        return None
    most = None if policy.maximum == INT64_MAX else policy.maximum
    if policy.retention_type is RetentionType.SIZE:
        return {"min_bytes": policy.minimum, "max_bytes": most}
    return {"min_seconds": policy.minimum / 1000, "max_seconds": None if most is None else most / 1000}


def retention_text(record: Mapping[str, Any] | None) -> str:
    """Return the record of a retention policy as one phrase."""
    if record is None:
        return "everything"
    shown = [
        each if each is None else duration_text(each) if key.endswith("seconds") else size_text(each)
        for key, each in record.items()
    ]
    return f"at least {shown[0]}" + ("" if shown[1] is None else f", at most {shown[1]}")


@dataclass(frozen=True, slots=True)
class Changes:
    """What a command changes in a stream's configuration; None leaves a value as it is.

    :ivar segments: a fixed number of segments; or the least, with a rate.
    :ivar events_per_second: scale by this rate of each segment.
    :ivar bytes_per_second: scale by this rate of each segment, a multiple of 1024.
    :ivar scale_factor: number of segments into which a busy one is split.
    :ivar keep_time: seconds to keep data.
    :ivar keep_size: bytes of data to keep.
    :ivar keep_all: whether to keep everything.
    :ivar add_tags: tags to add.
    :ivar remove_tags: tags to remove.
    """

    segments: int | None = None
    events_per_second: int | None = None
    bytes_per_second: int | None = None
    scale_factor: int | None = None
    keep_time: float | None = None
    keep_size: int | None = None
    keep_all: bool = False
    add_tags: tuple[str, ...] = ()
    remove_tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.events_per_second is not None and self.bytes_per_second is not None:
            raise InvalidArgumentError("a stream scales by events or by bytes, not by both")
        if sum((self.keep_time is not None, self.keep_size is not None, self.keep_all)) > 1:
            raise InvalidArgumentError("a stream keeps data by age, by size, or all of it: choose one")

    @property
    def empty(self) -> bool:
        """Whether nothing changes."""
        return self == Changes()

    def apply(self, to: StreamConfiguration) -> StreamConfiguration:
        """Return the changed configuration."""
        return replace(
            to,
            scaling=self._scaling(to.scaling),
            retention=self._retention(to.retention),
            tags=(to.tags | {*self.add_tags}) - {*self.remove_tags},
        )

    def _scaling(self, old: ScalingPolicy) -> ScalingPolicy:
        if self.events_per_second is not None or self.bytes_per_second is not None:
            make = (
                ScalingPolicy.by_event_rate
                if self.events_per_second is not None
                else ScalingPolicy.by_data_rate
            )
            rate = self.events_per_second if self.bytes_per_second is None else self.bytes_per_second
            assert rate is not None
            return make(rate, self.scale_factor or old.scale_factor or 2, self.segments or old.min_segments)
        if self.segments is None and self.scale_factor is None:
            return old
        if old.scale_type is ScaleType.FIXED_NUM_SEGMENTS:
            if self.scale_factor is not None:
                raise InvalidArgumentError(
                    "a scale factor needs a rate: --events-per-second, --bytes-per-second"
                )
            assert self.segments is not None
            return ScalingPolicy.fixed(self.segments)
        return replace(
            old,
            min_segments=self.segments or old.min_segments,
            scale_factor=self.scale_factor or old.scale_factor,
        )

    def _retention(self, old: RetentionPolicy | None) -> RetentionPolicy | None:
        if self.keep_all:
            return None
        if self.keep_time is not None:
            return RetentionPolicy.by_time(self.keep_time)
        return old if self.keep_size is None else RetentionPolicy.by_size(self.keep_size)


async def list_streams(
    client: PravegaClient,
    scope: str | None,
    *,
    pattern: str | None = None,
    tag: str | None = None,
    internal: bool = False,
    details: bool = True,
) -> list[dict[str, Any]]:
    """List the streams of a scope.

    :param client: the client.
    :param scope: the scope; None for the default scope.
    :param pattern: a shell pattern for the names.
    :param tag: list only streams with this tag.
    :param internal: also list the streams that Pravega itself created.
    :param details: also fetch what each stream is like, with some requests for each.
    """
    from pravega_wire.support.nurseries import run_all

    names = await client.list_streams(scope, tag=tag, internal=internal)
    found = sorted(each for each in names if pattern is None or fnmatch.fnmatchcase(each.name, pattern))
    if not details:
        return [{"stream": str(each)} for each in found]
    rows: dict[ScopedStream, dict[str, Any]] = {}

    def looking(stream: ScopedStream) -> Callable[[], Any]:
        async def look() -> None:
            try:
                rows[stream] = await _summary(client, stream)
            except StreamNotFoundError:
                # It was deleted since it was listed.
                pass

        return look

    await run_all([looking(each) for each in found], _AT_ONCE)
    return [rows[each] for each in found if each in rows]


async def _summary(client: PravegaClient, stream: ScopedStream) -> dict[str, Any]:
    info = await client.stream_info(stream)
    ranges = await ranges_left(client, stream, info.head, info.tail)
    return {
        "stream": str(stream),
        "segments": 0 if info.sealed else len(info.tail.positions),
        "bytes": sum(each.length for each in ranges),
        "scaling": scaling_record(info.config.scaling),
        "retention": retention_record(info.config.retention),
        "tags": info.config.tags,
        "sealed": info.sealed,
    }


# --- one stream -------------------------------------------------------------------------------------


def epochs_of(layout: StreamLayout) -> dict[int, list[LayoutSegment]]:
    """Return the segments that were active in each epoch, by epoch.

    :param layout: the stream's segments.
    """
    epochs = sorted({epoch_of(each.segment_id) for each in layout.segments})
    ended = {}
    for each in layout.segments:
        following = layout.successors(each.segment_id)
        # A segment may be replaced for some of its keys only in one step: all successors are of one epoch.
        ended[each.segment_id] = min((epoch_of(after.segment_id) for after in following), default=None)
    return {
        epoch: [
            each
            for each in sorted(layout.segments, key=lambda segment: segment.low)
            if epoch_of(each.segment_id) <= epoch and ((end := ended[each.segment_id]) is None or end > epoch)
        ]
        for epoch in epochs
    }


def segment_rows(layout: StreamLayout) -> list[dict[str, Any]]:
    """Return a row for each segment of a stream, in the order of their ids."""
    return [
        {
            "segment": segment_label(each.segment_id),
            "segment_id": each.segment_id,
            "epoch": epoch_of(each.segment_id),
            "low": each.low,
            "high": each.high,
            "state": "deleted" if each.length is None else "sealed" if each.sealed else "active",
            "start": each.start_offset if each.length is not None else None,
            "length": each.length,
            "bytes": 0 if each.length is None else each.length - each.start_offset,
            "successors": [segment_label(after.segment_id) for after in layout.successors(each.segment_id)],
        }
        for each in layout.segments
    ]


async def describe(client: PravegaClient, stream: ScopedStream) -> dict[str, Any]:
    """Return what a stream is like: its configuration, segments, epochs and positions."""
    info = await client.stream_info(stream)
    layout = await client.stream_layout(stream)
    segments = segment_rows(layout)
    epochs = epochs_of(layout)
    return {
        "stream": str(stream),
        "scaling": scaling_record(info.config.scaling),
        "retention": retention_record(info.config.retention),
        "tags": info.config.tags,
        "sealed": info.sealed,
        "epoch": max(epochs),
        "active": sum(each["state"] == "active" for each in segments),
        "bytes": sum(each["bytes"] for each in segments),
        "written": sum(each["length"] or 0 for each in segments),
        "head": info.head,
        "tail": info.tail,
        "segments": segments,
        "epochs": [
            {"epoch": epoch, "segments": [segment_label(each.segment_id) for each in active]}
            for epoch, active in epochs.items()
        ],
    }


def even_ranges(
    active: Iterable[SegmentWithRange], count: int
) -> tuple[list[int], list[tuple[float, float]]]:
    """Return which segments to seal, and the ranges of the new ones, so that there are ``count`` of one size.

    :param active: the active segments.
    :param count: the wanted number of segments.
    :returns: empty lists if the segments are already so.
    """
    if count < 1:
        raise InvalidArgumentError(f"a stream has at least one segment, not {count}")
    current = sorted(active, key=lambda each: each.low)
    # As a server computes them: it compares exactly. The last segment may end beside 1.
    top = current[-1].high if current else 1.0
    borders = [each * (1.0 / count) for each in range(count)] + [top]
    wanted = list(pairwise(borders))
    kept = {(each.low, each.high) for each in current} & {*wanted}
    seal = [each.segment_id for each in current if (each.low, each.high) not in kept]
    return seal, [each for each in wanted if each not in kept]


async def scale(client: PravegaClient, stream: ScopedStream, count: int) -> Mapping[str, Any]:
    """Scale a stream to a number of segments of the same size."""
    active = await client.active_segments(stream)
    if not active:
        raise InvalidArgumentError(f"stream {stream} is sealed and cannot be scaled")
    seal, ranges = even_ranges(active, count)
    least = (await client.stream_config(stream)).scaling.min_segments
    if count < least:
        raise InvalidArgumentError(
            f"the scaling policy of stream {stream} demands at least {least} segments; allow fewer first: "
            f"pravega-wire stream alter {stream} --segments {count}"
        )
    if seal:
        await client.scale_stream(stream, seal, ranges)
    now: Sequence[SegmentWithRange] = await client.active_segments(stream)
    return {
        "stream": str(stream),
        "before": len(active),
        "segments": len(now),
        "sealed": [segment_label(each) for each in seal],
    }


async def truncate(
    client: PravegaClient, stream: ScopedStream, point: Point, *, of_bytes: bool = False
) -> dict[str, Any]:
    """Truncate a stream at a position, and return what was removed.

    :param client: the client.
    :param stream: the stream.
    :param point: the position.
    :param of_bytes: whether it is a byte stream: otherwise, an event has to begin at the position.
    """
    cut = await (resolve if of_bytes else resolve_event)(client, stream, point)
    head = await client.head(stream)
    removed = await removed_bytes(client, stream, head, cut)
    if removed:
        await client.truncate_stream(stream, cut)
    return {"stream": str(stream), "removed": removed, "cut": cut}


async def removed_bytes(client: PravegaClient, stream: ScopedStream, head: StreamCut, cut: StreamCut) -> int:
    """Return the number of bytes that truncating at a cut removes."""
    ranges = await ranges_left(client, stream, head, cut)
    return sum(each.length for each in ranges)
