"""Positions in a stream as users write them."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pravega_wire.cli.values import parse_time
from pravega_wire.errors import DecodeError, InvalidArgumentError, InvalidStreamCutError
from pravega_wire.support.checks import shown
from pravega_wire.values.naming import segment_id
from pravega_wire.values.types import ScopedStream, SegmentRange, StreamCut

if TYPE_CHECKING:
    from pravega_wire.stream.client import PravegaClient

__all__ = ["HELP", "Point", "own_cut", "parse_point", "ranges_left", "resolve", "resolve_event"]

HELP: Final = (
    "head, tail, time:TIME (where the stream has watermarks), the text of a cut, @FILE with such a text, "
    "or SEGMENT=OFFSET (several: with commas)"
)

_WORDS: Final = {"head": "head", "earliest": "head", "tail": "tail", "latest": "tail", "now": "tail"}
_SEEK_BYTES: Final = 64 << 20
_SEGMENT: Final = re.compile(r"(?:([0-9]{1,19})(?:\.#epoch\.([0-9]{1,10}))?)=(-?[0-9]{1,19})")


@dataclass(frozen=True, slots=True)
class Point:
    """A position that may depend on the stream as it is now.

    :ivar kind: what it is.
    :ivar cut: the cut, if it is one.
    :ivar offsets: offsets by segment id, if these were given.
    :ivar time: a moment in milliseconds since 1970, if it is one.
    """

    kind: Literal["head", "tail", "cut", "offsets", "time"]
    cut: StreamCut | None = None
    offsets: tuple[tuple[int, int], ...] = ()
    time: int = 0


def parse_point(text: str) -> Point:
    """Parse a position; :data:`HELP` has the forms.

    :param text: the position.
    :raises InvalidArgumentError: it has none of the forms.
    """
    text = text.strip()
    if not text.startswith("@"):
        return _parse(text)
    name = text[1:]
    try:
        return _parse(Path(name).read_text(encoding="utf-8").strip())
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"in the file {name!r}: {error.message}") from error
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InvalidArgumentError(f"the file {name!r} with a stream cut cannot be read: {why}") from error


def _parse(text: str) -> Point:
    if word := _WORDS.get(text.lower()):
        return Point("head" if word == "head" else "tail")
    if text.startswith("time:"):
        return Point("time", time=parse_time(text.removeprefix("time:"), time.time()))
    if "=" in text.rstrip("="):
        return Point("offsets", offsets=_offsets(text))
    try:
        return Point("cut", cut=StreamCut.from_text(text))
    except InvalidStreamCutError as error:
        if error.__cause__ is None:
            # It is the text of a cut, which says what is wrong with it.
            raise
        raise InvalidArgumentError(
            f"{shown(text)} is not a position: write head, tail, time:TIME, SEGMENT=OFFSET, the text of a "
            "cut (pravega-wire cut now prints one), or @FILE with such a text"
        ) from error


def _offsets(text: str) -> tuple[tuple[int, int], ...]:
    found = []
    for part in text.split(","):
        match = _SEGMENT.fullmatch(part.strip())
        if match is None:
            raise InvalidArgumentError(
                f"{shown(part)} is not SEGMENT=OFFSET, such as 0=120 or 3.#epoch.1=0 (offset -1: the "
                "segment's end)"
            )
        number = int(match[1])
        found.append((segment_id(int(match[2]), number) if match[2] else number, int(match[3])))
    return tuple(found)


def own_cut(stream: ScopedStream, point: Point) -> StreamCut:
    """Return the cut that was given as a position of a stream.

    :raises InvalidArgumentError: it is one of another stream.
    """
    assert point.cut is not None
    if point.cut.stream != stream:
        raise InvalidArgumentError(f"the stream cut is one of stream {point.cut.stream}, not of {stream}")
    return point.cut


async def resolve(client: PravegaClient, stream: ScopedStream, point: Point) -> StreamCut:
    """Return the cut that a position means now.

    :param client: the client.
    :param stream: the stream.
    :param point: the position.
    :raises InvalidArgumentError: the position is of another stream, or the stream has no watermarks.
    """
    match point.kind:
        case "head":
            return await client.head(stream)
        case "tail":
            return await client.tail(stream)
        case "offsets":
            return StreamCut(stream, dict(point.offsets))
        case "cut":
            return own_cut(stream, point)
        case "time":
            return await client.cut_at(stream, _moment(point.time))


def _moment(milliseconds: int) -> datetime | int:
    """Return a time as a datetime, which messages show in a readable form, if our calendar has it."""
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return milliseconds


async def ranges_left(
    client: PravegaClient, stream: ScopedStream, start: StreamCut, end: StreamCut | None
) -> list[SegmentRange]:
    """Return what is left of the data between two cuts, to measure it or to look at it.

    Nobody reads it, so unlike :meth:`PravegaClient.segment_ranges` this does not report what was truncated.

    :param client: the client.
    :param stream: the stream.
    :param start: the cut to start at.
    :param end: the cut to end at; None for the tail.
    """
    from pravega_wire.stream.batch import segment_ranges
    from pravega_wire.stream.inside import core_of
    from pravega_wire.transport.limits import limit

    with limit(client.config.operation_timeout, f"finding the data between two cuts of stream {stream}"):
        return await segment_ranges(
            core_of(client), stream, start, "latest" if end is None else end, "skip_to_head", reader=None
        )
    raise AssertionError("not reached")  # the limit raises when it suppresses


async def resolve_event(client: PravegaClient, stream: ScopedStream, point: Point) -> StreamCut:
    """Return the cut that a position means now. If it was typed as offsets, an event has to begin there.

    A reader that begins in the middle of an event takes its bytes for a header, and waits for the rest of an
    event that does not exist.

    :param client: the client.
    :param stream: the stream.
    :param point: the position.
    :raises InvalidArgumentError: no event begins at an offset; otherwise as :func:`resolve`.
    """
    cut = await resolve(client, stream, point)
    if point.kind != "offsets":
        return cut
    for each in await ranges_left(client, stream, cut, await client.tail(stream)):
        if cut.positions.get(each.segment_id) == each.start_offset:
            try:
                await _read_some(client, each)
            except (DecodeError, InvalidArgumentError) as error:
                near = await _nearest(client, stream, each)
                hint = "" if near is None else f"; the nearest event begins at {near}"
                raise InvalidArgumentError(
                    f"no event of stream {stream} begins at offset {each.start_offset} of segment "
                    f"{each.segment_id}{hint} (the offsets of events are in: pravega-wire read {stream} "
                    "--json)"
                ) from error
    return cut


async def _nearest(client: PravegaClient, stream: ScopedStream, wrong: SegmentRange) -> int | None:
    """Return the offset of an event that is nearest to the start of a range; None if it is far to seek."""
    head, tail = await client.head(stream), await client.tail(stream)
    for part in await client.segment_ranges(stream, head, tail):
        if part.segment_id != wrong.segment_id or wrong.start_offset - part.start_offset > _SEEK_BYTES:
            continue
        last = part.start_offset
        async with client.read_ranges([part]) as batches:
            async for batch in batches:
                for begin in batch.begins:
                    offset = batch.base_offset + begin
                    if offset >= wrong.start_offset:
                        return min(last, offset, key=lambda each: abs(each - wrong.start_offset))
                    last = offset
    return None


async def _read_some(client: PravegaClient, part: SegmentRange) -> None:
    count = 0
    async with client.read_ranges([part]) as batches:
        async for _ in batches:
            count += 1
            # What looked like an event at first does not go on with another.
            if count == 2:
                return
