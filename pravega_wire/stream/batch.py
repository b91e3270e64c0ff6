"""The head and tail of a stream, and reading the data between two cuts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pravega_wire.controller.tokens import Access
from pravega_wire.controller.types import SegmentWithRange, Successors
from pravega_wire.errors import (
    ArgumentTypeError,
    AuthError,
    ControllerError,
    DataLossError,
    DecodeError,
    InvalidArgumentError,
    InvalidStreamCutError,
    NoSuchSegmentError,
    NotFoundError,
    RetriesExhaustedError,
    StreamChangingError,
    StreamSealedError,
    UndecidableCutError,
    UnexpectedReplyError,
)
from pravega_wire.protocol.commands import StreamSegmentInfo
from pravega_wire.segment.metadata import SegmentMetadata
from pravega_wire.segment.reader import EventRangeReader, RangeReader
from pravega_wire.segment.store import Backoff
from pravega_wire.stream.core import ClientCore
from pravega_wire.stream.skipping import report_skipped
from pravega_wire.support.nurseries import look_up_all
from pravega_wire.transport.limits import note_failure
from pravega_wire.values.cuts import (
    Bound,
    LayoutSegment,
    OnTruncated,
    SkippedPart,
    StreamLayout,
    check_on_truncated,
    wanted_bytes,
)
from pravega_wire.values.naming import epoch_of, parse_segment_name, segment_name
from pravega_wire.values.positions import EventPointer
from pravega_wire.values.types import ROUNDING, SEGMENT_READ, CutOrder, ScopedStream, SegmentRange, StreamCut

__all__ = [
    "check_cut", "check_not_sealed", "check_offsets", "exact_cut", "head", "last_segments", "no_successors",
    "recorded_successors", "segment_ranges", "segments_of_epochs", "stream_layout", "successors", "tail",
]  # fmt: skip

_UNKNOWN_ATTEMPTS = 4
_TAIL_ATTEMPTS = 3


async def segment_infos(
    core: ClientCore, stream: ScopedStream, segment_ids: Sequence[int]
) -> dict[int, StreamSegmentInfo | None]:
    """Lengths and start offsets of segments, by id; None for a segment that does not exist."""

    async def look_up(segment_id: int) -> StreamSegmentInfo | None:
        target = core.target(stream, segment_id, Access.READ)
        try:
            return await SegmentMetadata(core.stores, target).info()
        except NoSuchSegmentError:
            return None

    return await look_up_all(look_up, segment_ids)


async def head(core: ClientCore, stream: ScopedStream) -> StreamCut:
    """The oldest position of the stream that can be read."""
    segments = await core.controller.get_segments(stream.scope, stream.name)
    return StreamCut(stream, dict(segments))


async def tail(core: ClientCore, stream: ScopedStream) -> StreamCut:
    """The position after the newest event. For a sealed stream it is the stream's end."""
    for _ in range(_TAIL_ATTEMPTS):
        segments = await core.controller.get_current_segments(stream.scope, stream.name)
        ids = [segment.segment_id for segment in segments]
        if not ids:
            ids = await last_segments(core, stream)
        infos = await segment_infos(core, stream, ids)
        offsets = {segment_id: info.write_offset for segment_id, info in infos.items() if info is not None}
        if len(offsets) == len(infos):
            return StreamCut(stream, offsets)
        # A segment was replaced and truncated away since the controller listed it. Without it the cut would
        # be incomplete, so list the segments again.
    missing = sorted(segment_id for segment_id in infos if segment_id not in offsets)
    raise StreamChangingError(
        f"the tail of stream {stream} could not be fetched: in each of {_TAIL_ATTEMPTS} attempts, segments "
        f"that the controller had just listed were already deleted (most recently "
        f"{', '.join(map(str, missing))}). Try again",
        scope=stream.scope,
        stream=stream.name,
    )


def no_successors(core: ClientCore, stream: ScopedStream, segment_id: int) -> RetriesExhaustedError:
    return RetriesExhaustedError(
        f"segment {segment_id} of {stream} has ended, and the controller reported no successors for "
        f"{core.stores.operation_timeout:g} s. If the stream was deleted and created again, open a new "
        "writer or follower",
        scope=stream.scope,
        stream=stream.name,
    )


async def recorded_successors(core: ClientCore, stream: ScopedStream, segment_id: int) -> Successors:
    """What the controller has recorded to follow a segment.

    :raises UnexpectedReplyError: it names segments that cannot follow this one. A reader that believed it
        would go in circles, or miss what does follow.
    """
    found = await core.controller.get_successors(stream.scope, stream.name, segment_id)
    for each in found.successors:
        after = each.segment.segment_id
        if epoch_of(after) <= epoch_of(segment_id) or segment_id not in each.predecessors:
            raise UnexpectedReplyError(
                f"the controller names segment {after} of stream {stream}, which follows "
                f"{sorted(each.predecessors)}, as a successor of segment {segment_id}",
                scope=stream.scope,
                stream=stream.name,
            )
    return found


async def successors(
    core: ClientCore, stream: ScopedStream, segment_id: int, waiting: Callable[[], None] = lambda: None
) -> Successors:
    """What follows a segment that has ended; nothing if the stream is sealed.

    :param waiting: called before each wait for a controller that reports none, although the stream has other
        segments.
    :raises RetriesExhaustedError: it reported none for the operation timeout, probably because the stream
        was deleted and created again.
    :raises UnexpectedReplyError: it reported what cannot follow the segment.
    """
    backoff = Backoff(core.stores.operation_timeout)
    while True:
        found = await recorded_successors(core, stream, segment_id)
        # If it has no successors but the stream has active segments, the controller has not finished
        # recording the scale. Only a stream without active segments is sealed.
        if found.segments or not await core.controller.get_current_segments(stream.scope, stream.name):
            return found
        waiting()
        if not await backoff.wait():
            raise no_successors(core, stream, segment_id)


async def last_segments(core: ClientCore, stream: ScopedStream) -> list[int]:
    """Ids of the segments in the last epoch of a sealed stream."""
    oldest = await core.controller.get_segments(stream.scope, stream.name)
    between = await core.controller.get_segments_between(stream.scope, stream.name, dict(oldest), {})
    if not between:
        raise UnexpectedReplyError(
            f"the controller reports no segments of stream {stream}", scope=stream.scope, stream=stream.name
        )
    last_epoch = max(map(epoch_of, between))
    segments = await core.controller.get_epoch_segments(stream.scope, stream.name, last_epoch)
    return [segment.segment_id for segment in segments]


async def segments_of_epochs(
    core: ClientCore, stream: ScopedStream, epochs: Sequence[int]
) -> dict[int, SegmentWithRange]:
    """The segments that were active in these epochs, by id."""

    async def segments_of(epoch: int) -> list[SegmentWithRange]:
        return await core.controller.get_epoch_segments(stream.scope, stream.name, epoch)

    found = await look_up_all(segments_of, epochs)
    return {each.segment_id: each for segments in found.values() for each in segments}


async def stream_layout(core: ClientCore, stream: ScopedStream) -> StreamLayout:
    """See :meth:`PravegaClient.stream_layout`."""
    controller = core.controller
    newest = [each.segment_id for each in await controller.get_current_segments(stream.scope, stream.name)]
    if not newest:
        newest = await last_segments(core, stream)
    # Each epoch has at least one segment that was created in it.
    epochs = max(map(epoch_of, newest)) + 1

    segments = await segments_of_epochs(core, stream, range(epochs))
    infos = await segment_infos(core, stream, list(segments))
    return StreamLayout(
        stream,
        tuple(
            LayoutSegment(segment_id, each.low, each.high, None)
            if (info := infos[segment_id]) is None
            else LayoutSegment(
                segment_id, each.low, each.high, info.write_offset, info.start_offset, info.is_sealed
            )
            for segment_id, each in segments.items()
        ),
    )


async def resolve_bound(core: ClientCore, stream: ScopedStream, bound: Bound, default: str) -> StreamCut:
    """The cut that a bound means now.

    :raises InvalidStreamCutError: the cut belongs to another stream, or as for :func:`check_cut`.
    :raises ArgumentTypeError: it is not a bound.
    """
    if isinstance(bound, StreamCut):
        cut = bound
    elif not isinstance(bound, str | None):
        raise ArgumentTypeError(
            f"where to start or end in stream {stream} must be a StreamCut, its text, 'earliest' or "
            f"'latest', not {type(bound).__name__}"
        )
    else:
        word = (bound or default).strip()
        if word in ("UNBOUNDED", "unbounded"):
            word = default
        if word == "earliest":
            return await head(core, stream)
        if word == "latest":
            return await tail(core, stream)
        try:
            cut = StreamCut.from_text(word)
        except InvalidStreamCutError as error:
            raise InvalidStreamCutError(
                f"{error}; where to start or end in stream {stream} is a StreamCut, its text, 'earliest' or "
                "'latest'",
                scope=stream.scope,
                stream=stream.name,
            ) from error
    if cut.stream != stream:
        raise InvalidStreamCutError(
            f"the cut {cut} belongs to stream {cut.stream}, not to {stream}",
            scope=stream.scope,
            stream=stream.name,
        )
    await check_cut(core, cut)
    return cut


async def check_cut(core: ClientCore, cut: StreamCut) -> None:
    """Check that a cut is a position in its stream. Neither the controller nor a reader would notice a gap.

    It is not checked if the user may not fetch the key ranges of segments.

    :raises InvalidStreamCutError: it has a segment that does not exist, or as for :meth:`StreamLayout.check`.
    :raises StreamNotFoundError: the stream does not exist.
    """
    stream = cut.stream
    try:
        segments = await segments_of_epochs(core, stream, sorted(set(map(epoch_of, cut.positions))))
    except AuthError:
        return
    except ControllerError:
        segments = {}  # the stream has no such epoch, or does not exist
    if cut.positions.keys() <= segments.keys() and _is_whole([segments[each] for each in cut.positions]):
        return
    # There is a kind of gap that is right.
    layout = await stream_layout(core, stream)
    try:
        layout.check(cut)
    except UndecidableCutError as error:
        raise InvalidStreamCutError(
            f"the cut {cut} has segment {error.segment}, which does not exist",
            scope=stream.scope,
            stream=stream.name,
            segment=error.segment,
        ) from None


def _is_whole(segments: Sequence[SegmentWithRange]) -> bool:
    """Return whether segments cover the key space, each part once."""
    at = 0.0
    for low, high in sorted((each.low, each.high) for each in segments):
        if low != at:
            return False
        at = high
    return abs(1.0 - at) < ROUNDING


async def check_offsets(core: ClientCore, cut: StreamCut) -> None:
    """Check that no offset is beyond the end of its segment, where the store would wait for more.

    :raises InvalidStreamCutError: one is.
    :raises StreamNotFoundError: the stream does not exist.
    """
    stream = cut.stream
    ids = [segment_id for segment_id, offset in cut.positions.items() if offset > 0]
    infos = await segment_infos(core, stream, ids)
    if None in infos.values():
        # Truncated away, or there is no such stream.
        await core.controller.get_segments(stream.scope, stream.name)
    for segment_id, info in infos.items():
        if info is not None:
            _check_offset(stream, info.segment_name, cut.positions[segment_id], info.write_offset)


def _check_offset(stream: ScopedStream, segment: str, offset: int, length: int) -> None:
    if offset > length:
        raise InvalidStreamCutError(
            f"the cut has offset {offset} of segment {segment}, which is only {length} bytes long",
            scope=stream.scope,
            stream=stream.name,
            segment=segment,
        )


async def exact_cut(core: ClientCore, cut: StreamCut) -> StreamCut:
    """A cut with the length of each segment that was read to its end; all its offsets exist.

    :raises InvalidStreamCutError: a segment that was read to its end was deleted, or as for
        :func:`check_offsets`.
    """
    exact = await with_lengths(core, cut)
    gone = [segment_id for segment_id, offset in exact.positions.items() if offset < 0]
    if gone:
        raise InvalidStreamCutError(
            f"{cut} is no place in stream {cut.stream} any more: segment {min(gone)} of the cut was deleted",
            scope=cut.stream.scope,
            stream=cut.stream.name,
        )
    await check_offsets(core, exact)
    return exact


async def truncate(core: ClientCore, cut: StreamCut) -> None:
    """See :meth:`PravegaClient.truncate_stream`; the cut was checked.

    The controller has one answer for a cut before the head, and for any cut while it truncates: for another
    client, or for the first request of this call, whose answer was lost. What it was, the head shows.
    """
    stream = cut.stream
    backoff = Backoff()
    while True:
        # The controller would take any offset for the head, and then refuse those that exist.
        exact = await exact_cut(core, cut)
        try:
            return await core.controller.truncate_stream(stream.scope, stream.name, dict(exact.positions))
        except InvalidStreamCutError as error:
            if await _begins_at(core, exact, error):
                return None
            await check_not_sealed(core, stream)
            note_failure(error)
        await backoff.wait()


async def check_not_sealed(core: ClientCore, stream: ScopedStream) -> None:
    """Look for the reason of a FAILURE, which is also what controllers up to 0.10 say of a sealed stream.

    :raises StreamSealedError: the stream is sealed.
    """
    if not await core.controller.get_current_segments(stream.scope, stream.name):
        raise StreamSealedError(f"stream {stream} is sealed", scope=stream.scope, stream=stream.name)


async def _begins_at(core: ClientCore, cut: StreamCut, refusal: InvalidStreamCutError) -> bool:
    """Return True if nothing is before a cut that the controller has refused, False if it may still take it.

    :raises InvalidStreamCutError: the stream begins after it.
    """
    stream = cut.stream
    try:
        start = await head(core, stream)
        if start == cut:
            return False  # its truncation may be in progress; once that is done, the controller takes the cut
        layout = await stream_layout(core, stream)
        if any(layout.segment(segment_id).length is None for segment_id in cut.positions):
            order = CutOrder.BEFORE  # a segment of it was deleted, so the stream begins after that
        else:
            order = layout.compare(cut, start)
    except AuthError:
        raise refusal from None
    except UndecidableCutError:
        return False
    if order in (CutOrder.EQUAL, CutOrder.AFTER):
        return order is CutOrder.EQUAL
    raise InvalidStreamCutError(
        f"stream {stream} cannot be truncated at {cut}: it was truncated at {start} before",
        scope=stream.scope,
        stream=stream.name,
    ) from refusal


async def segment_ranges(
    core: ClientCore,
    stream: ScopedStream,
    start: Bound,
    end: Bound,
    on_truncated: OnTruncated,
    *,
    reader: str | None = "a reader between two cuts",
) -> list[SegmentRange]:
    """See :meth:`PravegaClient.segment_ranges`.

    :param reader: the party that skips truncated data, for the log; None if nothing will read the ranges.
    """
    check_on_truncated(on_truncated)
    start_cut = await resolve_bound(core, stream, start, "earliest")
    end_cut = await with_lengths(core, await resolve_bound(core, stream, end, "latest"))
    try:
        between = await core.controller.get_segments_between(
            stream.scope,
            stream.name,
            dict(start_cut.positions),
            dict(end_cut.positions),
            unknown_attempts=_UNKNOWN_ATTEMPTS,
        )
    except ControllerError as error:
        if not isinstance(error, NotFoundError) and error.status != "UNKNOWN":
            raise
        ranges, skipped = await _ranges_by_layout(core, start_cut, end_cut, on_truncated, error)
    else:
        left_out = sorted({*start_cut.positions, *end_cut.positions} - {*between})
        if left_out:
            raise UnexpectedReplyError(
                f"the controller reports the segments {sorted(between)} between two cuts of stream {stream}, "
                f"without {left_out}, which are in the cuts",
                scope=stream.scope,
                stream=stream.name,
            )
        ranges, skipped = await _ranges_of(core, start_cut, end_cut, sorted(set(between)), on_truncated)
    if reader is not None:
        for part in skipped:
            report_skipped(core, stream, part, reader)
    return ranges


async def _ranges_of(
    core: ClientCore, start: StreamCut, end: StreamCut, ids: Sequence[int], on_truncated: OnTruncated
) -> tuple[list[SegmentRange], list[SkippedPart]]:
    """The data between two cuts in these segments, and the parts that are skipped."""
    stream = start.stream
    infos = await segment_infos(core, stream, ids)
    ranges = []
    skipped: list[SkippedPart] = []
    for segment_id in ids:
        info = infos[segment_id]
        found = wanted_bytes(
            core.target(stream, segment_id, Access.READ).name,
            None if info is None else (info.start_offset, info.write_offset),
            start.positions.get(segment_id),
            end.positions.get(segment_id),
            on_truncated,
            skipped,
        )
        if found is not None:
            ranges.append(SegmentRange(stream, segment_id, found[0], found[1]))
    return ranges, skipped


async def _ranges_by_layout(
    core: ClientCore, start: StreamCut, end: StreamCut, on_truncated: OnTruncated, refusal: ControllerError
) -> tuple[list[SegmentRange], list[SkippedPart]]:
    """The data between two cuts that a controller rejected, and the parts that are skipped.

    A 0.13.0 controller answers UNKNOWN, or that the stream does not exist, without a reason. The cut may be
    impossible; the end may not be after the start (also if the start is the head, and the end was truncated
    away); or something failed inside the controller, in which case there is data between the cuts.
    """
    stream = start.stream
    about: dict[str, Any] = {"scope": stream.scope, "stream": stream.name}
    try:
        layout = await stream_layout(core, stream)
    except AuthError as error:
        raise InvalidStreamCutError(
            f"the controller found nothing between {start} and {end}: they are impossible, truncated away or "
            f"in the wrong order. These credentials do not allow finding out which ({error.message})",
            **about,
        ) from refusal
    try:
        lengths = {each.segment_id: each.length for each in layout.segments}
        for segment_id, offset in (*start.positions.items(), *end.positions.items()):
            name = core.target(stream, segment_id, Access.READ).name
            # The layout is newer than the cuts, so a segment that it does not have never existed.
            if segment_id not in lengths:
                raise InvalidStreamCutError(
                    f"the cut has segment {name}, which does not exist", segment=name, **about
                )
            length = lengths[segment_id]
            if length is not None:
                _check_offset(stream, name, offset, length)
        oldest = await head(core, stream)
        skipped: list[SkippedPart] = []
        if on_truncated == "skip_to_head":
            skipped = _skipped(layout, start, end)
            start, end = layout.join(start, oldest), layout.join(end, oldest)
        elif start == oldest and layout.join(end, oldest) != layout.join(end):
            raise DataLossError(
                f"all data before {end} was truncated: stream {stream} begins at {oldest}",
                start_offset=None,
                offset=None,
                **about,
            )
        return layout.ranges_between(start, end, on_truncated=on_truncated), skipped
    except UndecidableCutError as error:
        name = error.segment or ""
        if lengths[parse_segment_name(name)[2]] is None:
            raise DataLossError(
                f"segment {name}, between the two cuts, was truncated and deleted",
                segment=name,
                start_offset=None,
                offset=max(0, start.positions.get(parse_segment_name(name)[2], 0)),
                **about,
            ) from refusal
        raise InvalidStreamCutError(f"the cut {start} is not before {end}", **about) from refusal
    except (InvalidStreamCutError, DataLossError) as error:
        raise error from refusal


def _skipped(layout: StreamLayout, start: StreamCut, end: StreamCut) -> list[SkippedPart]:
    """The truncated parts between two cuts."""
    try:
        return layout.skipped_between(start, end)
    except InvalidStreamCutError:
        # The end is before the start.
        return []
    except UndecidableCutError:
        # The lengths of deleted segments are missing, but the segments that the start has are gone.
        lost = []
        for segment in layout.segments:
            offset = start.positions.get(segment.segment_id, SEGMENT_READ)
            if segment.length is None and offset != SEGMENT_READ:
                name = segment_name(layout.stream.scope, layout.stream.name, segment.segment_id)
                lost.append(SkippedPart(name, offset, SEGMENT_READ, None))
        return lost


async def with_lengths(core: ClientCore, cut: StreamCut) -> StreamCut:
    """A cut with the length of each segment that was read to its end. Segments that are gone keep the mark.

    In an end cut, a 0.13.0 controller takes the mark "read to its end" for a segment that has not begun, and
    rejects the cut. A truncation at a cut with such a mark is never answered.
    """
    read = [segment_id for segment_id, offset in cut.positions.items() if offset < 0]
    if not read:
        return cut
    infos = await segment_infos(core, cut.stream, read)
    lengths = {segment_id: info.write_offset for segment_id, info in infos.items() if info is not None}
    return StreamCut(cut.stream, {**cut.positions, **lengths})


async def fetch_event(core: ClientCore, pointer: EventPointer) -> bytes:
    """See :meth:`PravegaClient.fetch_event`."""
    scope, stream, segment_id, _ = parse_segment_name(pointer.segment)
    target = core.target(ScopedStream(scope, stream), segment_id, Access.READ)
    end = pointer.start_offset + pointer.length
    missing = InvalidArgumentError(f"no event is stored at {pointer}")
    try:
        info = await SegmentMetadata(core.stores, target).info()
    except NoSuchSegmentError as error:
        raise DataLossError(
            f"the event at {pointer} is gone: its segment was deleted",
            segment=pointer.segment,
            start_offset=None,
            offset=pointer.start_offset,
        ) from error
    if end > info.write_offset:
        raise missing
    async with EventRangeReader(RangeReader(core.stores, target, pointer.start_offset, end)) as reader:
        try:
            events = await reader.next_batch()
        except DecodeError as error:
            raise missing from error
    if events is None or len(events) != 1 or events.next_offset != end:
        raise missing
    return events[0]
