"""The streams of a read, and where it starts and ends in each of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import TYPE_CHECKING, TypeVar

from pravega_wire import PravegaConfig, ScopedStream, StreamCut, Watermark
from pravega_wire.errors import InvalidArgumentError, InvalidStreamCutError
from spark_adapter.exactly_once.ledger import LEDGER_SUFFIX

if TYPE_CHECKING:
    from pravega_wire.sync import PravegaClient

__all__ = [
    "Bounds",
    "StreamChoice",
    "bounds_of",
    "choice_of",
    "cut_after",
    "cut_before",
    "for_each",
    "milliseconds",
]

T = TypeVar("T")

_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class StreamChoice:
    """The streams of a read: a list of names, or a pattern for the names in a scope.

    :ivar names: the streams, sorted; empty with a pattern.
    :ivar scope: scope of the pattern.
    :ivar pattern: regular expression that matches the whole name of a stream; None with names.
    """

    names: tuple[ScopedStream, ...] = ()
    scope: str = ""
    pattern: str | None = None

    def __contains__(self, stream: object) -> bool:
        if not isinstance(stream, ScopedStream):
            return False
        if self.pattern is None:
            return stream in self.names
        return stream.scope == self.scope and re.fullmatch(self.pattern, stream.name) is not None

    def __str__(self) -> str:
        if self.pattern is None:
            return ", ".join(map(str, self.names))
        return f"streams of scope {self.scope} that match {self.pattern!r}"

    def find(self, client: PravegaClient) -> list[ScopedStream]:
        """Return the streams, sorted. For a list of names, it does not check whether they exist.

        A pattern does not match the default ledgers that sinks create, unless it is the exact name of one.
        """
        if self.pattern is None:
            return list(self.names)
        return sorted(
            each
            for each in client.list_streams(self.scope)
            if each in self and (not each.name.endswith(LEDGER_SUFFIX) or self._spells(each.name))
        )

    def _spells(self, name: str) -> bool:
        """Return True if the pattern is exactly this name, with or without escapes."""
        return re.sub(r"\\(.)", r"\1", self.pattern or "") == name


def choice_of(given: Mapping[str, str], config: PravegaConfig) -> StreamChoice:
    """Parse the options ``stream``, ``streams`` and ``stream_pattern``.

    :param given: the options.
    :param config: connection settings, with the default scope.
    :raises InvalidArgumentError: none or several of the options are set, a name has no scope, a stream is
        named twice, or the pattern is not a regular expression.
    """
    used = [name for name in ("stream", "streams", "stream_pattern") if given.get(name)]
    if not used:
        raise InvalidArgumentError("option 'stream' is required (or 'streams', or 'stream_pattern')")
    if len(used) > 1:
        raise InvalidArgumentError(
            f"options {used[0]!r} and {used[1]!r} cannot be used together; remove one of them"
        )
    if used == ["stream_pattern"]:
        scope, pattern = config.scope, given["stream_pattern"]
        if not scope:
            raise InvalidArgumentError("option 'stream_pattern' needs the option 'scope'")
        try:
            re.compile(pattern)
        except re.error as error:
            raise InvalidArgumentError(
                f"option 'stream_pattern': {pattern!r} is not a regular expression: {error}"
            ) from None
        return StreamChoice(scope=scope, pattern=pattern)
    texts = [given["stream"]] if used == ["stream"] else given["streams"].split(",")
    names = tuple(sorted(config.resolve(each.strip()) for each in texts if each.strip()))
    if not names:
        raise InvalidArgumentError(f"option {used[0]!r} contains no stream name")
    if len(set(names)) < len(names):
        raise InvalidArgumentError(
            f"option 'streams': a stream is named twice in {', '.join(map(str, names))}"
        )
    return StreamChoice(names)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where reads start, or end: a word for all streams, a stream cut for each, or a time.

    :ivar word: ``earliest``, ``latest`` or ``unbounded``; None with cuts or a time.
    :ivar cuts: the cuts; empty with a word or a time.
    :ivar time: event time in milliseconds since 1970; None with a word or cuts.
    """

    word: str | None = None
    cuts: tuple[StreamCut, ...] = ()
    time: int | None = None

    def cut_of(self, stream: ScopedStream) -> StreamCut | None:
        """Return the cut for a stream, or None."""
        return next((each for each in self.cuts if each.stream == stream), None)


def bounds_of(
    choice: StreamChoice,
    cut_option: tuple[str, str | None],
    time_option: tuple[str, str | None],
    default: str,
) -> Bounds:
    """Parse an option with stream cuts and one with a time.

    :param choice: the streams of the read.
    :param cut_option: name and text of the option with cuts.
    :param time_option: name and text of the option with a time.
    :param default: the text to use if neither option is set.
    :raises InvalidStreamCutError: a text is not a stream cut, or is the cut of a stream that is not read.
    :raises InvalidArgumentError: both options are set, or a named stream has no cut.
    """
    name, text = cut_option
    if time_option[1]:
        if text:
            raise InvalidArgumentError(
                f"options {name!r} and {time_option[0]!r} cannot be used together; remove one of them"
            )
        return Bounds(time=milliseconds(*time_option))
    word = (text or default).strip()
    if word.lower() in ("earliest", "latest", "unbounded"):
        return Bounds(word.lower())
    try:
        cuts = tuple(StreamCut.from_text(each) for each in word.split(","))
    except InvalidStreamCutError as error:
        # An end of 'earliest' is refused.
        words = "'earliest', 'latest'" if default == "earliest" else "'latest'"
        raise InvalidStreamCutError(
            f"option {name!r}: {error.message}; use {words}, 'unbounded' or the text of a cut"
        ) from error
    for each in cuts:
        if each.stream not in choice:
            raise InvalidStreamCutError(
                f"option {name!r}: the stream cut {each} belongs to stream {each.stream}, which is not one "
                f"of the streams to read ({choice})",
                scope=each.stream.scope,
                stream=each.stream.name,
            )
    streams = [each.stream for each in cuts]
    if len(set(streams)) < len(streams):
        raise InvalidArgumentError(f"option {name!r} has two cuts of the same stream; remove one")
    if missing := set(choice.names) - set(streams):
        raise InvalidArgumentError(
            f"option {name!r} has no cut of stream {min(missing)}: add one, and separate the cuts of several "
            "streams with commas"
        )
    return Bounds(cuts=cuts)


def milliseconds(name: str, text: str | None) -> int:
    """Parse a time: milliseconds since 1970, or ISO 8601 with a time zone.

    :param name: name of the option, for the message.
    :param text: the time.
    :raises InvalidArgumentError: the text is neither.
    """
    text = (text or "").strip()
    try:
        return int(text)
    except ValueError:
        pass
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgumentError(
            f"option {name!r}: {text!r} is neither a number of milliseconds since 1970 nor a time such as "
            "2026-01-31T12:00:00Z"
        ) from None
    if time.tzinfo is None:
        raise InvalidArgumentError(
            f"option {name!r}: {text!r} has no time zone: add Z, or an offset such as +01:00"
        )
    return round(time.timestamp() * 1000)


# --- times to cuts --------------------------------------------------------------------------------


def cut_before(client: PravegaClient, stream: ScopedStream, time: int, option: str) -> StreamCut:
    """Return the last known position with no event of ``time`` or later before it.

    The result is the head if there is none.

    A watermark is at the position of the furthest writer. Before it there may be events of another writer
    that has not noted a time for them yet; the watermark's ``upper`` does not cover those. A later watermark
    whose ``lower`` is above that ``upper`` shows that all its writers have noted a time since, and these
    times bound the events before the earlier watermark. So a position is used only if such a watermark
    follows, and every ``upper`` up to that one is below ``time``.

    No event of ``time`` or later is before the returned position, provided that no writer notes a time that
    is below that of one of its earlier events. Events of a writer that is in neither of the two watermarks
    are an exception: it had not noted any time when the later one was made, or the controller had stopped
    waiting for it. To include those events, start earlier by the longest interval between notes.

    :param client: the client to use.
    :param stream: the stream.
    :param time: event time in milliseconds, in the unit of the writers' notes.
    :param option: name of the option, for the message.
    :raises InvalidArgumentError: the stream has no watermarks.
    """
    head = client.head(stream)
    mark = _proven_before(_marks(client, stream, option), time)
    return head if mark is None else _place_of(client, stream, mark, head)


def _proven_before(marks: Sequence[Watermark], time: int) -> Watermark | None:
    """Return the last watermark before which everything is older than ``time``; see :func:`cut_before`."""
    older = list(takewhile(lambda each: each.upper < time, marks))
    latest_lower: int | None = None
    for mark in reversed(older):
        if latest_lower is not None and latest_lower > mark.upper:
            return mark
        latest_lower = mark.lower if latest_lower is None else max(latest_lower, mark.lower)
    return None


def cut_after(client: PravegaClient, stream: ScopedStream, time: int, option: str) -> StreamCut:
    """Return the first known position with no event older than ``time`` after it.

    The result is the tail if there is none yet.

    :param client: the client to use.
    :param stream: the stream.
    :param time: event time in milliseconds, in the unit of the writers' notes.
    :param option: name of the option, for the message.
    :raises InvalidArgumentError: the stream has no watermarks.
    """
    for mark in _marks(client, stream, option):
        if mark.lower >= time:
            return _place_of(client, stream, mark, client.head(stream))
    return client.tail(stream)


def _place_of(client: PravegaClient, stream: ScopedStream, mark: Watermark, head: StreamCut) -> StreamCut:
    """Return the position of a watermark, or the head if the watermark's data has been truncated."""
    cut = StreamCut(stream, {each.segment_id: each.offset for each in mark.positions})
    # The layout is fetched last, so that it contains every segment that the head names.
    return client.stream_layout(stream).join(cut, head)


def _marks(client: PravegaClient, stream: ScopedStream, option: str) -> list[Watermark]:
    marks = client.watermarks(stream)
    if not marks:
        raise InvalidArgumentError(
            f"option {option!r}: stream {stream} has no watermarks, so event times cannot be mapped to "
            "positions; writers create watermarks with note_time() or note_time_every=. Use a stream cut "
            "instead"
        )
    return marks


# --- several streams ------------------------------------------------------------------------------


def for_each(streams: Iterable[ScopedStream], ask: Callable[[ScopedStream], T]) -> dict[ScopedStream, T]:
    """Call ``ask`` for each stream, several at a time, and return the results; the first error is raised
    unchanged."""
    names = list(streams)
    if len(names) < 2:
        return {each: ask(each) for each in names}
    with ThreadPoolExecutor(min(len(names), _AT_ONCE), "pravega streams") as pool:
        return dict(zip(names, pool.map(ask, names), strict=True))
