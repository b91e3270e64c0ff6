"""The watermarks of a stream, which say what event time was reached at which position.

Their format is in ``docs/protocol/formats.md``, "Watermarks".
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from pravega_wire.errors import InvalidArgumentError, NoSuchSegmentError, StreamNotFoundError
from pravega_wire.protocol.formats import decode_watermark, encode_watermark
from pravega_wire.serializers import FunctionSerializer
from pravega_wire.stream.batch import head, stream_layout
from pravega_wire.stream.core import ClientCore
from pravega_wire.stream.revisioned import RevisionedStream
from pravega_wire.support.checks import INT64_MAX, shown
from pravega_wire.values.positions import Watermark
from pravega_wire.values.types import ScopedStream, StreamCut

__all__ = ["MARKS", "cut_at", "mark_stream", "place_before", "watermarks"]

MARKS: Final = FunctionSerializer(encode_watermark, decode_watermark)
"""The serializer of a mark stream."""

_BEGINNING = datetime.fromtimestamp(0, UTC)


def mark_stream(stream: ScopedStream) -> ScopedStream:
    """The stream to which the controller writes a stream's watermarks."""
    return ScopedStream(stream.scope, f"_MARK{stream.name}")


async def watermarks(core: ClientCore, stream: ScopedStream) -> list[Watermark]:
    """See :meth:`PravegaClient.watermarks`."""
    try:
        marks = await RevisionedStream.open(core, mark_stream(stream), MARKS)
    except StreamNotFoundError as error:
        raise StreamNotFoundError(
            f"stream {stream} does not exist", scope=stream.scope, stream=stream.name
        ) from error
    try:
        reader = await marks.read_from(await marks.oldest_revision())
        try:
            return [mark async for _, mark in reader]
        finally:
            await reader.aclose()
    except NoSuchSegmentError as error:
        raise StreamNotFoundError(
            f"stream {stream} does not exist", scope=stream.scope, stream=stream.name
        ) from error
    finally:
        await marks.aclose()


def place_before(stream: ScopedStream, marks: Sequence[Watermark], time: int) -> StreamCut | None:
    """The last known position before which all events are older than a time.

    :param marks: the stream's watermarks, oldest first.
    :param time: event time, in the unit of the watermarks.
    :returns: None if no watermark is that old, so that only the head of the stream is such a position.
    """
    before = [each for each in marks if each.upper < time]
    if not before:
        return None
    return StreamCut(stream, {each.segment_id: max(each.offset, -1) for each in before[-1].positions})


async def cut_at(core: ClientCore, stream: ScopedStream, time: datetime | int) -> StreamCut:
    """See :meth:`PravegaClient.cut_at`."""
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise InvalidArgumentError(
                f"the time {time} for stream {stream} has no time zone: use datetime.now(UTC), or "
                "datetime(...).astimezone() for local time"
            )
        moment = (time - _BEGINNING) // timedelta(milliseconds=1)
    elif isinstance(time, bool) or not isinstance(time, int) or abs(time) > INT64_MAX:
        raise InvalidArgumentError(
            f"the time for stream {stream} must be a datetime, or an int of 64 bits in the unit of the "
            f"writers' times, not {shown(time)}"
        )
    else:
        moment = time
    marks = await watermarks(core, stream)
    if not marks:
        raise InvalidArgumentError(
            f"stream {stream} has no watermarks, so no position for the time {time} is known: its writers do "
            "not report event times (event_writer(note_time_every=...))"
        )
    found = place_before(stream, marks, moment)
    oldest = await head(core, stream)
    if found is None:
        return oldest
    # What the watermark points to may have been truncated since.
    return (await stream_layout(core, stream)).join(found, oldest)
