"""Plans reads on the driver: the ranges of a batch read, and of each micro-batch of a streaming query.

It does not need Spark. A :class:`StreamPlanner` exists as long as a run of its query, and caches results to
save calls. The batches depend only on the offsets, which Spark stores.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pravega_wire import CutOrder, ScopedStream, SegmentRange, StreamCut, StreamLayout
from pravega_wire.errors import (
    DataLossError,
    InvalidArgumentError,
    InvalidStreamCutError,
    StreamNotFoundError,
    UndecidableCutError,
)
from pravega_wire.values.naming import parse_segment_name, segment_name
from spark_adapter.clients import HeldClient
from spark_adapter.options.creating import Creation, ensure_stream
from spark_adapter.options.read import ReadOptions
from spark_adapter.options.streams import cut_after, cut_before, for_each
from spark_adapter.reading.admission import (
    Admitted,
    Answer,
    Follow,
    Limit,
    Look,
    Question,
    SegmentKey,
    StreamBacklog,
    admit,
)
from spark_adapter.reading.offsets import StreamOffset
from spark_adapter.reading.partitions import PLANS, divided, planned_ranges, say_replanned

if TYPE_CHECKING:
    from pravega_wire.sync import PravegaClient

__all__ = ["StreamPlanner", "batch_ranges"]

log = logging.getLogger(__name__)

_IDLE_SECONDS = 0.1
_MOST_IDLE_SECONDS = 1.0
_POLL_SECONDS = 0.05
# Without a trigger interval, Spark checks for new data every 10 ms. If the next check comes later than
# _POLL_SECONDS, the query has a trigger interval, or another source had data, which must not be held back.

_SEALED_SECONDS = 60.0
# The interval between checks of a sealed stream that was read to its end; it may be deleted and created
# again.

_WATERMARK_SECONDS = 5.0
# The interval between checks whether a watermark has reached the time at which a query ends. The controller
# makes one about every ten seconds.

_NO_LIMIT = Limit()


# --- batch reads ----------------------------------------------------------------------------------


def batch_ranges(client: PravegaClient, options: ReadOptions) -> list[SegmentRange]:
    """Return the ranges of a read between two bounds, ordered by stream and segment.

    :param client: the client to use.
    :param options: options of the read.
    :raises DataLossError: data between the bounds was truncated, and the options do not allow that.
    :raises InvalidStreamCutError: a cut does not match its stream, the start is after the end, or a place is
        in a stream that a pattern has not found.
    :raises InvalidArgumentError: a bound is a time, and a stream has no watermarks; or the end is an earlier
        time than the start.
    """

    def ranges(stream: ScopedStream, max_range_bytes: int | None) -> list[SegmentRange]:
        start, end = options.start.of(stream), options.end.of(stream)
        _require_order(options, stream)
        try:
            return client.segment_ranges(
                stream,
                cut_before(client, stream, start, options.start.option) if isinstance(start, int) else start,
                (cut_after(client, stream, end, options.end.option) or "latest")
                if isinstance(end, int)
                else end,
                on_truncated="raise" if options.fail_on_data_loss else "skip_to_head",
                max_range_bytes=max_range_bytes,
            )
        except StreamNotFoundError:
            if options.choice.pattern is None:
                raise
            log.warning("stream %s was deleted; the read continues without it", stream)
            return []

    def resolved(size: int | None) -> list[SegmentRange]:
        found = for_each(streams, lambda stream: ranges(stream, size))
        return [each for _, some in sorted(found.items()) for each in some]

    streams = options.choice.find(client)
    options.start.check_found(streams, options.choice)
    return planned_ranges(
        client,
        resolved,
        skip_lost=not options.fail_on_data_loss,
        max_partition_bytes=options.max_partition_bytes,
        max_partition_events=options.max_partition_events,
        min_partitions=options.min_partitions,
        limit=options.limit,
    )


def _require_order(options: ReadOptions, stream: ScopedStream) -> None:
    """Check that a read does not end at an earlier time than it starts.

    Where its watermarks are few, the stream's places for these times may be in order all the same.
    """
    start, end = options.start.of(stream), options.end.of(stream)
    if isinstance(start, int) and isinstance(end, int) and end < start:
        raise InvalidArgumentError(
            f"option {options.end.option!r}: the time {end} is before that of option "
            f"{options.start.option!r}, {start}, so there is nothing of stream {stream} to read"
        )


# --- micro-batches --------------------------------------------------------------------------------


class StreamPlanner:
    """Plans the end and the ranges of each batch in one run of a query.

    :param options: options of the read.
    :param creation: whether and how to create missing streams; None to create none.
    :param client: returns the client when it is needed.
    """

    def __init__(
        self,
        options: ReadOptions,
        creation: Creation | None = None,
        client: Callable[[], PravegaClient] | None = None,
    ) -> None:
        self.options = options
        self._creation = creation
        self._client = client
        # Held for the whole run, so that connections and cached segment information are kept.
        self._held: HeldClient | None = None
        self._initial: dict[str, Any] | None = None
        # True while the query plans its first batch of all.
        self._is_first = False
        # The streams of the batch being planned that have no position in the checkpoint yet.
        self._unstored: frozenset[ScopedStream] = frozenset()
        # The end of a run that reads the existing data and then stops (availableNow).
        self._target: dict[ScopedStream, StreamCut] | None = None
        # When to look again for the ends that are times.
        self._look_for_ends_at = 0.0
        self._found: list[ScopedStream] = []
        self._look_again_at = 0.0
        self._idle_since: float | None = None
        self._idle_seconds = _IDLE_SECONDS
        # How often a stream had no new data; sealed streams without new data, with the time of the next
        # check.
        self._quiet: dict[ScopedStream, int] = {}
        self._ended: dict[ScopedStream, tuple[StreamCut, float]] = {}
        # The starts of streams that were created again since they were read.
        self._renewed: dict[ScopedStream, StreamCut] = {}
        self._waited: dict[SegmentKey, int] = {}
        # When the last batch was planned, or this run began.
        self._batch_at = time.monotonic()
        # The unread events of each segment, counted while a batch waits for more: from which offset, up to
        # which, and their number.
        self._counted: dict[SegmentKey, tuple[int, int, int]] = {}
        self._over: dict[ScopedStream, tuple[StreamCut, StreamCut]] = {}
        self._followers: dict[SegmentKey, Mapping[int, tuple[int, ...]]] = {}
        self._skipped_bytes = 0
        self._skipped_unknown = 0
        self._report: dict[str, Any] | None = None
        self._planned: tuple[dict[str, Any], dict[str, Any], list[SegmentRange]] | None = None

    def _open(self) -> PravegaClient:
        if self._client is not None:
            return self._client()
        if self._held is None:
            self._held = HeldClient(self.options.config)
        return self._held.client

    # --- offsets --------------------------------------------------------------------------------

    def fix_target(self) -> None:
        """Fix the end of this run: data written from now on is not read."""
        client = self._open()
        if self._creation is not None and self._creation.stream:
            self._make_missing(client)
        self._target = self._of_existing(self._streams(client, again=True), client.tail)

    def initial(self) -> dict[str, Any]:
        """Return the offset at which a new query starts; it is the same for each call in one run.

        :raises StreamNotFoundError: a stream does not exist.
        :raises InvalidArgumentError: the start or the end is a time, and a stream has no watermarks; or the
            end is an earlier time than the start.
        :raises InvalidStreamCutError: a stream's end is before its start, or a place is in a stream that a
            pattern has not found.
        """
        if self._initial is None:
            client = self._open()
            self._make_missing(client)
            found = self._streams(client, again=True)
            self.options.start.check_found(found, self.options.choice)
            streams = [each for each in found if self._in_target(each)]

            def start(stream: ScopedStream) -> StreamCut:
                _require_order(self.options, stream)
                return self._start_of(client, stream)

            # A name may be mistyped; a stream that a pattern has found existed.
            named = self.options.choice.pattern is None
            cuts = for_each(streams, start) if named else self._of_existing(streams, start)
            ends = self._ends_of(client, list(cuts), {}, option=self.options.end.option)
            cuts = {stream: cut for stream, cut in cuts.items() if self._may_join(stream, ends)}
            for_each(cuts, lambda stream: self._require_before_end(client, cuts[stream], ends))
            self._initial = StreamOffset(cuts, cuts, ends).to_dict()
        return self._initial

    def _require_before_end(
        self, client: PravegaClient, start: StreamCut, ends: Mapping[ScopedStream, StreamCut]
    ) -> None:
        """Check that a new query has something to read before its end.

        Later its end may be changed to one that it has passed: then it reads nothing more.
        """
        stream = start.stream
        end = None if self.options.end.of(stream) == "latest" else self._fixed_end(stream, ends)
        if end is not None and end != start and _order(client, start, end) is CutOrder.AFTER:
            raise InvalidStreamCutError(
                f"option {self.options.end.option!r}: {end} is before the query's start {start}, so nothing "
                f"of stream {stream} would ever be read",
                scope=stream.scope,
                stream=stream.name,
            )

    def _make_missing(self, client: PravegaClient) -> None:
        if self._creation is not None:
            for stream in self.options.choice.names:
                ensure_stream(client, stream, self._creation)

    def _start_of(self, client: PravegaClient, stream: ScopedStream) -> StreamCut:
        start = self.options.start.of(stream)
        if isinstance(start, StreamCut):
            return start
        if isinstance(start, int):
            return cut_before(client, stream, start, self.options.start.option)
        return self._newest(client, stream) if start == "latest" else client.head(stream)

    def _newest(self, client: PravegaClient, stream: ScopedStream) -> StreamCut:
        """Return what ``latest`` means in this run."""
        return (self._target or {}).get(stream) or client.tail(stream)

    def _ends_of(
        self,
        client: PravegaClient,
        streams: list[ScopedStream],
        stored: Mapping[ScopedStream, StreamCut],
        *,
        option: str | None = None,
    ) -> dict[ScopedStream, StreamCut]:
        """Return the ends that must be stored, because the same options would give others later.

        ``latest`` is determined once, when a query first starts, or first names the stream. A time is
        determined when a watermark has reached it.

        :param stored: those of the offset before.
        :param option: see :func:`cut_after`.
        """
        places = {stream: self.options.end.of(stream) for stream in (*streams, *stored)}
        ends = {
            stream: cut
            for stream, cut in stored.items()
            if places[stream] == "latest" or isinstance(places[stream], int)
        }
        # A stream that a pattern finds after the end was determined is beyond it.
        if self.options.choice.pattern is None or not any(places[stream] == "latest" for stream in ends):
            newest = [stream for stream in streams if places[stream] == "latest" and stream not in ends]
            ends |= self._of_existing(newest, lambda stream: self._newest(client, stream))
        times = {s: at for s in streams if s not in ends and isinstance(at := places[s], int)}
        if times and time.monotonic() >= self._look_for_ends_at:
            self._look_for_ends_at = time.monotonic() + _WATERMARK_SECONDS
            ends |= self._of_existing(times, lambda stream: cut_after(client, stream, times[stream], option))
        return ends

    def _fixed_end(self, stream: ScopedStream, ends: Mapping[ScopedStream, StreamCut]) -> StreamCut | None:
        return ends.get(stream) or self.options.end.cut_of(stream)

    def latest(self, start: dict[str, Any], limit: Limit, *, wait: bool = False) -> dict[str, Any]:
        """Return the offset at which the next batch ends; ``start`` itself if there is no new data.

        :param start: the offset at which the batch starts.
        :param limit: limit of the batch.
        :param wait: whether the batch waits for the least amount of data that the options set, or for
            their delay; until then, the result is ``start``.
        :raises DataLossError: unread data was truncated, and the options do not allow that.
        :raises StreamNotFoundError: a stream was deleted, and the options do not allow that.
        :raises InvalidStreamCutError: a stream was deleted and created again, or an end cut does not match.
        :raises CorruptedStateError: see :meth:`StreamOffset.parse`.
        :raises InvalidArgumentError: see :meth:`StreamOffset.parse`.
        """
        before = self._parsed(start)
        self._is_first = start == self._initial
        client = self._open()
        self._pace()
        streams = self._streams(client)
        ends = self._ends_of(client, streams, before.ends)
        joining = [each for each in streams if each not in before.cuts and self._may_join(each, ends)]
        begun = self._of_existing(joining, client.head)
        starts = {**before.cuts, **begun}
        self._unstored = frozenset(starts if self._is_first else begun)

        wait = wait and self._may_wait()
        backlogs, admitted = self._plan(client, starts, ends, limit, wait=wait)
        new = {**(starts if before.is_initial else begun), **self._renewed}
        after = StreamOffset(
            admitted.cuts, {stream: new[stream] for stream in admitted.cuts if stream in new}, ends
        )
        self._report = {
            "v": 1,
            "cuts": {str(each.end.stream): each.end.to_text() for each in backlogs},
            "backlog_bytes": admitted.left_bytes,
            "skipped_bytes": self._skipped_bytes,
            "skipped_segments_of_unknown_size": self._skipped_unknown,
        }
        if admitted.held_back or (after.cuts == before.cuts and after.ends == before.ends):
            self._idle_since = time.monotonic()
            return start
        self._idle_since, self._idle_seconds = None, _IDLE_SECONDS
        self._batch_at = time.monotonic()
        end = after.to_dict()
        self._planned = (start, end, admitted.ranges)
        return end

    def _parsed(self, offset: object) -> StreamOffset:
        # A query that may lose streams may lose all of them.
        lenient = not self.options.fail_on_data_loss
        return StreamOffset.parse(offset, self.options.choice, may_be_empty=lenient)

    def report(self) -> dict[str, Any] | None:
        """Return the ends of the streams and the size of the unread data.

        The result is None before the first batch is planned.
        """
        return self._report

    def _pace(self) -> None:
        """Slow down a query that does nothing but check for new data: it checks the server ten times a
        second at first, then less often."""
        if self._idle_since is None:
            return
        since = time.monotonic() - self._idle_since
        if since >= _POLL_SECONDS:
            self._idle_seconds = _IDLE_SECONDS
            return
        pause = self._idle_seconds
        self._idle_seconds = min(2 * pause, _MOST_IDLE_SECONDS)
        time.sleep(pause - since)

    def _streams(self, client: PravegaClient, *, again: bool = False) -> list[ScopedStream]:
        if self.options.choice.pattern is None:
            return list(self.options.choice.names)
        if again or time.monotonic() >= self._look_again_at:
            self._found = self.options.choice.find(client)
            self._look_again_at = time.monotonic() + self.options.discovery_interval
        return self._found

    def _of_existing(
        self, streams: Iterable[ScopedStream], ask: Callable[[ScopedStream], StreamCut | None]
    ) -> dict[ScopedStream, StreamCut]:
        """Return the cuts of the streams; leave out deleted ones if that is allowed or a pattern has found
        them."""

        def answer(stream: ScopedStream) -> StreamCut | None:
            try:
                return ask(stream)
            except StreamNotFoundError as error:
                if self.options.fail_on_data_loss and self.options.choice.pattern is None:
                    raise _deleted(stream, error) from error
                return None

        return {stream: cut for stream, cut in for_each(streams, answer).items() if cut is not None}

    def _in_target(self, stream: ScopedStream) -> bool:
        return self._target is None or stream in self._target

    def _may_join(self, stream: ScopedStream, ends: Mapping[ScopedStream, StreamCut]) -> bool:
        return self._in_target(stream) and (self.options.end.of(stream) != "latest" or stream in ends)

    # --- one stream -----------------------------------------------------------------------------

    def _end_of(
        self, client: PravegaClient, stream: ScopedStream, ends: Mapping[ScopedStream, StreamCut]
    ) -> tuple[StreamCut, bool]:
        """Return the furthest end of a batch, and True if it is the end of the query rather than of the
        stream."""
        fixed = self._fixed_end(stream, ends)
        if self._target is not None and stream in self._target and fixed is None:
            return self._target[stream], True
        return (fixed, True) if fixed is not None else (client.tail(stream), False)

    def _backlog(
        self,
        client: PravegaClient,
        stream: ScopedStream,
        start: StreamCut,
        ends: Mapping[ScopedStream, StreamCut],
    ) -> StreamBacklog | None:
        """Return the unread data after a cut; None for a deleted stream, if that is allowed or the query
        has not begun with a stream that a pattern has found."""
        ended, until = self._ended.get(stream, (None, 0.0))
        if ended == start and time.monotonic() < until:
            return StreamBacklog(start, start, ())
        try:
            end, fixed = self._end_of(client, stream, ends)
            if start == end or self._over.get(stream) == (start, end):
                if ended == start:
                    self._ended[stream] = (start, time.monotonic() + _SEALED_SECONDS)
                elif not fixed:
                    self._note_quiet(client, stream, start)
                return StreamBacklog(start, start, ())
            self._quiet.pop(stream, None)
            try:
                return self._between(client, stream, start, end)
            except InvalidStreamCutError as error:
                if start != self.options.start.cut_of(stream) and _is_another(client, start):
                    if self.options.fail_on_data_loss:
                        raise _another_stream(stream, start, error) from error
                    return self._afresh(client, stream, start, end if fixed else None)
                if fixed and self._is_over(client, start, end):
                    self._over[stream] = (start, end)
                    return StreamBacklog(start, start, ())
                if fixed and self._is_end_of_another(client, stream, end):
                    log.warning(
                        "stream %s was deleted and created again; the query's end was in the old stream, so "
                        "nothing of the new one is read", stream,
                    )  # fmt: skip
                    self._over[stream] = (start, end)
                    return StreamBacklog(start, start, ())
                raise
        except StreamNotFoundError as error:
            found = self.options.choice.pattern is not None and stream in self._unstored
            if self.options.fail_on_data_loss and not found:
                raise _deleted(stream, error) from error
            log.warning("stream %s was deleted; the query continues without it", stream)
            return None

    def _between(
        self, client: PravegaClient, stream: ScopedStream, start: StreamCut, end: StreamCut
    ) -> StreamBacklog:
        """Return the data between two cuts, without truncated data if that is allowed."""
        try:
            ranges = client.segment_ranges(stream, start, end)
        except DataLossError as error:
            if self.options.fail_on_data_loss:
                raise _lost(stream, error) from error
            start = self._skip(client, stream, start, end)
            ranges = client.segment_ranges(stream, start, end, on_truncated="skip_to_head")
        return StreamBacklog(start, end, tuple(ranges))

    def _afresh(
        self, client: PravegaClient, stream: ScopedStream, before: StreamCut, end: StreamCut | None
    ) -> StreamBacklog:
        """Return the data of a stream that was deleted and created again, from its head on.

        :param client: the client to use.
        :param stream: the stream.
        :param before: the query's position in the old stream.
        :param end: the query's end, or None.
        """
        head = client.head(stream)
        try:
            found = self._between(client, stream, head, end or client.tail(stream))
        except InvalidStreamCutError:
            if end is None:
                raise
            log.warning(
                "stream %s was deleted and created again since the query read it up to %s; the query's end "
                "was in the old stream, so nothing of the new one is read", stream, before,
            )  # fmt: skip
            self._over[stream] = (before, end)
            return StreamBacklog(before, before, ())
        log.warning(
            "stream %s was deleted and created again since the query read it up to %s: the data not read by "
            "then is lost, and the query starts at the new head %s", stream, before, head,
        )  # fmt: skip
        self._skipped_unknown += len(before.positions)
        self._renewed[stream] = found.start
        self._followers = {key: found for key, found in self._followers.items() if key[0] != stream}
        return found

    def _note_quiet(self, client: PravegaClient, stream: ScopedStream, start: StreamCut) -> None:
        """Check now and then whether the stream can get new data at all."""
        count = self._quiet[stream] = self._quiet.get(stream, 0) + 1
        # After 1, 2, 4, 8 ... times only, because it costs a call. The tail may have moved before the seal.
        if count & (count - 1) == 0 and not client.active_segments(stream) and client.tail(stream) == start:
            self._ended[stream] = (start, time.monotonic() + _SEALED_SECONDS)

    def _skip(
        self, client: PravegaClient, stream: ScopedStream, start: StreamCut, end: StreamCut
    ) -> StreamCut:
        """Return the first position after a cut that can still be read; log and count the lost data."""
        head = client.head(stream)
        # Fetched last, so that it contains every segment that the head names.
        layout = client.stream_layout(stream)
        place = layout.join(start, head)
        for segment_id, first, size in _gone(layout, start, end):
            log.warning(
                "stream %s, segment %s: skipped %s bytes from offset %d that were truncated before the query "
                "had read them", stream, segment_name(stream.scope, stream.name, segment_id),
                "an unknown number of" if size is None else size, first,
            )  # fmt: skip
            if size is None:
                self._skipped_unknown += 1
            else:
                self._skipped_bytes += size
        return place

    def _is_over(self, client: PravegaClient, start: StreamCut, end: StreamCut) -> bool:
        """Return True if a query has passed its end, for example because the end was changed."""
        return _order(client, start, end) in (CutOrder.AFTER, CutOrder.EQUAL)

    def _is_end_of_another(self, client: PravegaClient, stream: ScopedStream, end: StreamCut) -> bool:
        """Return True if a query may continue with a stream whose end was in a deleted one of its name."""
        if self.options.fail_on_data_loss:
            return False
        # A new query has not read any older stream: a cut that does not match was given by mistake.
        if self._is_first and end == self.options.end.cut_of(stream):
            return False
        return _is_another(client, end)

    # --- admission ------------------------------------------------------------------------------

    def _plan(
        self,
        client: PravegaClient,
        starts: Mapping[ScopedStream, StreamCut],
        ends: Mapping[ScopedStream, StreamCut],
        limit: Limit,
        *,
        wait: bool,
    ) -> tuple[list[StreamBacklog], Admitted]:
        """Return the unread data of all streams, and the part of it for the next batch."""
        skipped = self._skipped_bytes, self._skipped_unknown
        plans = 0
        while True:
            plans += 1
            self._renewed = {}
            found = for_each(
                sorted(starts), lambda stream: self._backlog(client, stream, starts[stream], ends)
            )
            backlogs = [backlog for _, backlog in sorted(found.items()) if backlog is not None]
            last = plans == PLANS
            # What was lost is counted once, and it is stored with a batch.
            complete = len(backlogs) == len(found) and not self._renewed
            complete &= skipped == (self._skipped_bytes, self._skipped_unknown)
            try:
                if wait and complete and not last and self._has_too_little(client, backlogs):
                    return backlogs, Admitted.nothing(backlogs)
                return backlogs, self._admit(client, backlogs, _NO_LIMIT if last else limit)
            except DataLossError as error:
                if self.options.fail_on_data_loss:
                    raise _lost_in(error) from error
                say_replanned(error)
            # The next attempt counts everything again.
            self._skipped_bytes, self._skipped_unknown = skipped

    def _may_wait(self) -> bool:
        """Return True if a batch may wait for more data.

        The first batch of a query does not: it stores where the query begins. If there is an end, all data
        up to it exists.
        """
        return not self._is_first and self._target is None and self.options.end.word == "unbounded"

    def _has_too_little(self, client: PravegaClient, backlogs: Iterable[StreamBacklog]) -> bool:
        """Return True if there is some unread data, but less than the options wait for."""
        ranges = [each for backlog in backlogs for each in backlog.ranges]
        options, size = self.options, sum(each.length for each in ranges)
        if not ranges or time.monotonic() - self._batch_at >= options.max_delay:
            return False
        if options.min_bytes is not None and size < options.min_bytes:
            return True
        if options.min_events is None:
            return False
        # Most checks need not count.
        too_small = Limit(events=options.min_events - 1).holds(size)
        return too_small or self._count(client, ranges, options.min_events) < options.min_events

    def _count(self, client: PravegaClient, ranges: Iterable[SegmentRange], most: int) -> int:
        """Return the number of events in ranges; up to ``most`` it is exact. Each event is counted once."""
        counted: dict[SegmentKey, tuple[int, int, int]] = {}
        new: list[SegmentRange] = []
        for each in ranges:
            key = each.stream, each.segment_id
            start, end, events = self._counted.get(key, (-1, 0, 0))
            if start != each.start_offset:
                start, end, events = each.start_offset, each.start_offset, 0
            counted[key] = start, end, events
            if end < each.end_offset:
                new.append(SegmentRange(each.stream, each.segment_id, end, each.end_offset))
        left = most - sum(events for _, _, events in counted.values())
        if new and left > 0:
            for part in client.leading_parts([(each, None, left) for each in new]):
                key = part.range.stream, part.range.segment_id
                start, _, events = counted[key]
                counted[key] = start, part.range.end_offset, events + (part.events or 0)
        self._counted = counted
        return sum(events for _, _, events in counted.values())

    def _admit(self, client: PravegaClient, backlogs: list[StreamBacklog], limit: Limit) -> Admitted:
        if limit == _NO_LIMIT:
            ranges = [each for backlog in backlogs for each in backlog.ranges]
            return Admitted({each.start.stream: each.end for each in backlogs}, ranges, 0, [])
        rounds = admit(backlogs, limit, self._waited)
        answer: Answer | None = None
        while True:
            try:
                question = next(rounds) if answer is None else rounds.send(answer)
            except StopIteration as done:
                admitted: Admitted = done.value
                break
            answer = self._answer(client, question)
        self._waited = {each: self._waited.get(each, 0) + 1 for each in admitted.waiting}
        return admitted

    def _answer(self, client: PravegaClient, question: Question) -> Answer:
        if isinstance(question, Look):
            return client.leading_parts(question.parts)
        return {each: self._follow(client, question, each) for each in question.segment_ids}

    def _follow(
        self, client: PravegaClient, question: Follow, segment_id: int
    ) -> Mapping[int, tuple[int, ...]]:
        key = (question.stream, segment_id)
        if key not in self._followers:
            found = client.successors(question.stream, segment_id)
            self._followers[key] = {each.segment.segment_id: each.predecessors for each in found.successors}
        return self._followers[key]

    # --- ranges ---------------------------------------------------------------------------------

    def ranges(self, start: dict[str, Any], end: dict[str, Any]) -> list[SegmentRange]:
        """Return the ranges between two offsets, ordered by stream and segment.

        They are the same in each run.

        :param start: the offset at which the batch starts.
        :param end: the offset at which it ends.
        :raises DataLossError: some data was truncated, and the options do not allow that.
        """
        client = self._open()
        if self._planned is not None and self._planned[:2] == (start, end):
            found = self._planned[2]
        else:
            found = self._ranges(client, start, end)
        for _ in range(PLANS - 1):
            try:
                return self._divided(client, found)
            except DataLossError as error:
                if self.options.fail_on_data_loss:
                    raise _lost_in(error) from error
                say_replanned(error)
            found = self._ranges(client, start, end)
        # The tasks skip truncated data.
        return found

    def _ranges(
        self, client: PravegaClient, start: dict[str, Any], end: dict[str, Any]
    ) -> list[SegmentRange]:
        before = self._parsed(start)
        after = self._parsed(end)

        def ranges(stream: ScopedStream) -> list[SegmentRange]:
            first = after.begun.get(stream) or before.cuts.get(stream)
            if first is None:
                raise InvalidArgumentError(
                    f"the query's checkpoint has no start position for stream {stream}: restore the "
                    "checkpoint, or set another checkpointLocation for the query"
                )
            if first == after.cuts[stream]:
                return []
            try:
                return self._of_batch(client, stream, first, after.cuts[stream])
            except StreamNotFoundError as error:
                if self.options.fail_on_data_loss:
                    raise _deleted(stream, error) from error
                log.warning("stream %s was deleted; the batch continues without it", stream)
                return []

        found = for_each(sorted(after.cuts), ranges)
        return [each for _, parts in sorted(found.items()) for each in parts]

    def _of_batch(
        self, client: PravegaClient, stream: ScopedStream, start: StreamCut, end: StreamCut
    ) -> list[SegmentRange]:
        """Return the ranges of a stream in a batch that was planned earlier, as far as they still exist."""
        lenient = not self.options.fail_on_data_loss
        try:
            return client.segment_ranges(
                stream, start, end, on_truncated="skip_to_head" if lenient else "raise"
            )
        except DataLossError as error:
            raise _lost(stream, error) from error
        except InvalidStreamCutError as error:
            if not (_is_another(client, start) or _is_another(client, end)):
                raise
            if not lenient:
                raise _another_stream(stream, start, error) from error
            log.warning("stream %s was deleted and created again; its data in this batch is lost", stream)
            return []

    def _divided(self, client: PravegaClient, ranges: list[SegmentRange]) -> list[SegmentRange]:
        limit = self.options.max_partition_bytes
        if limit is not None:
            ranges = [piece for each in ranges for piece in client.split_range(each, limit)]
        return divided(client, ranges, self.options.min_partitions, self.options.max_partition_events)


def _lost(stream: ScopedStream, error: DataLossError) -> DataLossError:
    return DataLossError(
        f"stream {stream}: data that the query has not read was truncated: {error.message}. To continue with "
        "the remaining data, set the option fail_on_data_loss=false",
        scope=stream.scope,
        stream=stream.name,
        segment=error.segment,
        offset=error.offset,
        start_offset=error.start_offset,
    )


def _deleted(stream: ScopedStream, error: StreamNotFoundError) -> StreamNotFoundError:
    return StreamNotFoundError(
        f"stream {stream} was deleted, or never existed ({error.message}); to continue without a deleted "
        "stream, set the option fail_on_data_loss=false",
        scope=stream.scope,
        stream=stream.name,
    )


def _lost_in(error: DataLossError) -> DataLossError:
    if error.segment is None:
        return error
    scope, name, *_ = parse_segment_name(error.segment)
    return _lost(ScopedStream(scope, name), error)


def _order(client: PravegaClient, start: StreamCut, end: StreamCut) -> CutOrder | None:
    """Return how two cuts of a stream relate, or None if that cannot be decided."""
    try:
        return client.stream_layout(start.stream).compare(start, end)
    except (InvalidStreamCutError, UndecidableCutError):
        return None


def _is_another(client: PravegaClient, cut: StreamCut) -> bool:
    """Return True if a cut no longer matches its stream because the stream was created again."""
    lengths = {each.segment_id: each.length for each in client.stream_layout(cut.stream).segments}
    for segment_id, offset in cut.positions.items():
        if segment_id not in lengths:
            return True
        length = lengths[segment_id]
        if length is not None and offset > length:
            return True
    return False


def _another_stream(
    stream: ScopedStream, start: StreamCut, error: InvalidStreamCutError
) -> InvalidStreamCutError:
    """Return the error for a stream that was created again since the query read it."""
    return InvalidStreamCutError(
        f"stream {stream} was deleted and created again since the query read it up to {start} "
        f"({error.message}): set another checkpointLocation for the query, or set the option "
        "fail_on_data_loss=false to start at the new head",
        scope=stream.scope,
        stream=stream.name,
    )


def _gone(layout: StreamLayout, start: StreamCut, end: StreamCut) -> list[tuple[int, int, int | None]]:
    """Return the truncated data between two cuts.

    Each item is a segment id, the first offset, and the size (None for a deleted segment).
    """
    found: list[tuple[int, int, int | None]] = []
    todo, seen = sorted(start.positions), set(start.positions)
    while todo:
        segment = layout.segment(todo.pop(0))
        first, last = (cut.positions.get(segment.segment_id, 0) for cut in (start, end))
        if segment.segment_id in end.positions and 0 <= last <= first:
            continue  # Nothing of it is between the cuts, and nothing after it.
        if segment.length is None:
            if first >= 0:
                found.append((segment.segment_id, first, None))
        elif 0 <= first < segment.start_offset:
            stop = segment.start_offset if last <= 0 else min(last, segment.start_offset)
            found.append((segment.segment_id, first, stop - first))
        if segment.segment_id not in end.positions:
            after = {each.segment_id for each in layout.successors(segment.segment_id)} - seen
            seen |= after
            todo += sorted(after)
    return [each for each in found if each[2] is None or each[2] > 0]
