"""Which streams a read is of, and where it begins and ends in each of them."""

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

if TYPE_CHECKING:
    from pravega_wire.sync import PravegaClient

__all__ = [
    "LEDGER_SUFFIX",
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

LEDGER_SUFFIX = "-spark-ledger"
"""Follows a stream's name in that of the ledger that a sink makes for it."""

_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class StreamChoice:
    """The streams of a read: some names, or a pattern over the names in a scope.

    :ivar names: sorted; empty with a pattern. :ivar scope, pattern: a name matches as a whole.
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
        """The streams there are now, by name; named ones without asking whether they exist.

        A pattern leaves out the ledgers that sinks make by themselves, unless it is the name of one.
        """
        if self.pattern is None:
            return list(self.names)
        return sorted(
            each
            for each in client.list_streams(self.scope)
            if each in self and (not each.name.endswith(LEDGER_SUFFIX) or self._spells(each.name))
        )

    def _spells(self, name: str) -> bool:
        """Whether the pattern is nothing but this name, with or without escapes."""
        return re.sub(r"\\(.)", r"\1", self.pattern or "") == name


def choice_of(given: Mapping[str, str], config: PravegaConfig) -> StreamChoice:
    """The streams that the options ``stream``, ``streams`` or ``stream_pattern`` name.

    :raises InvalidArgumentError: none of them is given, or several are; a name has no scope or is there
        twice; the pattern is no regular expression.
    """
    used = [name for name in ("stream", "streams", "stream_pattern") if given.get(name)]
    if not used:
        raise InvalidArgumentError("option 'stream' is required (or 'streams', or 'stream_pattern')")
    if len(used) > 1:
        raise InvalidArgumentError(
            f"options {used[0]!r} and {used[1]!r} exclude each other: give one of them"
        )
    if used == ["stream_pattern"]:
        scope, pattern = config.default_scope, given["stream_pattern"]
        if not scope:
            raise InvalidArgumentError("option 'stream_pattern' needs the option 'scope'")
        try:
            re.compile(pattern)
        except re.error as error:
            raise InvalidArgumentError(
                f"option 'stream_pattern': {pattern!r} is no regular expression: {error}"
            ) from None
        return StreamChoice(scope=scope, pattern=pattern)
    texts = [given["stream"]] if used == ["stream"] else given["streams"].split(",")
    names = tuple(sorted(config.resolve(each.strip()) for each in texts if each.strip()))
    if not names:
        raise InvalidArgumentError("option 'streams' names no stream")
    if len(set(names)) < len(names):
        raise InvalidArgumentError(
            f"option 'streams': a stream is named twice in {', '.join(map(str, names))}"
        )
    return StreamChoice(names)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where reads begin, or end: a word for all streams, a cut for each, or a time.

    :ivar word: ``earliest``, ``latest`` or ``unbounded``; None with cuts or a time.
    :ivar time: milliseconds since the epoch.
    """

    word: str | None = None
    cuts: tuple[StreamCut, ...] = ()
    time: int | None = None

    def cut_of(self, stream: ScopedStream) -> StreamCut | None:
        """The cut that is given for a stream, or None."""
        return next((each for each in self.cuts if each.stream == stream), None)


def bounds_of(
    choice: StreamChoice,
    cut_option: tuple[str, str | None],
    time_option: tuple[str, str | None],
    default: str,
) -> Bounds:
    """What an option with cuts and one with a time say together.

    :param cut_option, time_option: name and what the user gave.
    :raises InvalidStreamCutError: a text is no cut, or the cut of a stream that is not read.
    :raises InvalidArgumentError: both options are given, or a named stream has no cut.
    """
    name, text = cut_option
    if time_option[1]:
        if text:
            raise InvalidArgumentError(
                f"options {name!r} and {time_option[0]!r} exclude each other: give one of them"
            )
        return Bounds(time=milliseconds(*time_option))
    word = (text or default).strip()
    if word.lower() in ("earliest", "latest", "unbounded"):
        return Bounds(word.lower())
    cuts = tuple(StreamCut.from_text(each) for each in word.split(","))
    for each in cuts:
        if each.stream not in choice:
            raise InvalidStreamCutError(
                f"option {name!r}: the cut {each} is of stream {each.stream}, not of {choice}",
                scope=each.stream.scope,
                stream=each.stream.name,
            )
    streams = [each.stream for each in cuts]
    if len(set(streams)) < len(streams):
        raise InvalidArgumentError(f"option {name!r} has two cuts of one stream")
    if missing := set(choice.names) - set(streams):
        raise InvalidArgumentError(
            f"option {name!r} has no cut of stream {min(missing)}: separate the cuts of several streams by "
            "commas"
        )
    return Bounds(cuts=cuts)


def milliseconds(name: str, text: str | None) -> int:
    """A time: milliseconds since the epoch, or ISO 8601 with a time zone.

    :raises InvalidArgumentError: it is neither.
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
            f"option {name!r}: {text!r} is neither a number of milliseconds since the epoch nor a time such "
            "as 2026-01-31T12:00:00Z"
        ) from None
    if time.tzinfo is None:
        raise InvalidArgumentError(
            f"option {name!r}: {text!r} has no time zone: add Z or an offset as +01:00"
        )
    return round(time.timestamp() * 1000)


# --- times to cuts --------------------------------------------------------------------------------


def cut_before(client: PravegaClient, stream: ScopedStream, time: int, option: str) -> StreamCut:
    """The last place that is known to have no event from ``time`` on before it; the head if there is none.

    A watermark lies where the farthest of the writers was, so before it are also events that another writer
    had stored and noted no time for yet: its ``upper`` says nothing of those. A later mark whose ``lower`` is
    over that ``upper`` says that all of its writers have noted a time since, and these times bound what lay
    before the earlier mark. So a place counts once such a mark follows, with every ``upper`` up to there
    below ``time``.

    What is promised: no event from ``time`` on lies before the place if writers note times that none of their
    events before is over. An exception are events of a writer that is in neither of the two marks: one that
    had not noted any time when the later one was made, or that the controller had given up waiting for.
    To have those too, begin earlier by the longest interval between notes.

    :param time: milliseconds, as the writers note them.
    :raises InvalidArgumentError: the stream has no watermarks.
    """
    head = client.head(stream)
    mark = _proven_before(_marks(client, stream, option), time)
    return head if mark is None else _place_of(client, stream, mark, head)


def _proven_before(marks: Sequence[Watermark], time: int) -> Watermark | None:
    """The last mark before which everything is older than ``time``; see :func:`cut_before`."""
    older = list(takewhile(lambda each: each.upper < time, marks))
    latest_lower: int | None = None
    for mark in reversed(older):
        if latest_lower is not None and latest_lower > mark.upper:
            return mark
        latest_lower = mark.lower if latest_lower is None else max(latest_lower, mark.lower)
    return None


def cut_after(client: PravegaClient, stream: ScopedStream, time: int, option: str) -> StreamCut:
    """The first known place with no event before ``time`` after it; the tail if there is none yet.

    :param time: milliseconds, as the writers note them.
    :raises InvalidArgumentError: the stream has no watermarks.
    """
    for mark in _marks(client, stream, option):
        if mark.lower >= time:
            return _place_of(client, stream, mark, client.head(stream))
    return client.tail(stream)


def _place_of(client: PravegaClient, stream: ScopedStream, mark: Watermark, head: StreamCut) -> StreamCut:
    """Where a watermark lies; what it names may be truncated by now, so not before the head."""
    cut = StreamCut(stream, {each.segment_id: each.offset for each in mark.positions})
    # The layout is asked for last: it then knows every segment that the head names.
    return client.stream_layout(stream).join(cut, head)


def _marks(client: PravegaClient, stream: ScopedStream, option: str) -> list[Watermark]:
    marks = client.watermarks(stream)
    if not marks:
        raise InvalidArgumentError(
            f"option {option!r}: stream {stream} has no watermarks, so nobody knows what was written when; "
            "its writers make them by note_time() or note_time_every=. Begin or end at a stream cut instead"
        )
    return marks


# --- several streams ------------------------------------------------------------------------------


def for_each(streams: Iterable[ScopedStream], ask: Callable[[ScopedStream], T]) -> dict[ScopedStream, T]:
    """The answer for each stream, some asked at a time; the first error leaves as it was raised."""
    names = list(streams)
    if len(names) < 2:
        return {each: ask(each) for each in names}
    with ThreadPoolExecutor(min(len(names), _AT_ONCE), "pravega streams") as pool:
        return dict(zip(names, pool.map(ask, names), strict=True))
