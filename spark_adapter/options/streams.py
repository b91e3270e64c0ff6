"""The streams of a read, and where it starts and ends in each of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import takewhile
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from pravega_wire import PravegaConfig, ScopedStream, StreamCut
from pravega_wire.errors import InvalidArgumentError, InvalidStreamCutError
from spark_adapter.options.quantities import whole

if TYPE_CHECKING:
    from pravega_wire import Watermark
    from pravega_wire.sync import PravegaClient

__all__ = [
    "LEDGER_SUFFIX",
    "NO_TABLE",
    "Bounds",
    "Place",
    "StreamChoice",
    "bounds_of",
    "choice_of",
    "cut_after",
    "cut_before",
    "for_each",
    "milliseconds",
    "option_named",
    "stream_named",
    "stream_required",
]

T = TypeVar("T")

LEDGER_SUFFIX = "-spark-ledger"
"""The suffix that makes the name of a sink's default ledger from the name of its stream."""

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


NO_TABLE = (
    "format 'pravega' cannot be a table of Spark's catalog (CREATE TABLE, saveAsTable, writeTo): Spark gives "
    "none of a table's options to a data source in Python, so nobody could read it. Write with save(), and "
    "read with load(), a temporary view or PravegaCatalog"
)
"""Why a stream is no table of Spark's catalog."""


def stream_required(given: Mapping[str, str], others: str = "") -> InvalidArgumentError:
    """Return the error for options that name no stream.

    :param given: the options.
    :param others: which other options may name streams.
    """
    table = "" if given else f". Without any option, this may be a table: {NO_TABLE}"
    return InvalidArgumentError(f"option 'stream' is required{others}{table}")


@contextmanager
def option_named(name: str) -> Iterator[None]:
    """Put the name of an option in front of the message of an ``InvalidArgumentError``."""
    try:
        yield
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"option {name!r}: {error.message}") from error


def stream_named(option: str, name: str, config: PravegaConfig) -> ScopedStream:
    """Return the full name of a stream that an option names.

    :param option: name of the option, for the message.
    :param name: ``scope/stream``, or a name in the default scope.
    :param config: connection settings, with the default scope.
    :raises InvalidArgumentError: there is no scope, or a name is not valid.
    """
    if "/" not in name and config.scope is None:
        raise InvalidArgumentError(
            f"option {option!r}: stream {name!r} has no scope: write 'scope/{name}', or set the option "
            "'scope'"
        )
    with option_named(option):
        return config.resolve(name)


def choice_of(given: Mapping[str, str], config: PravegaConfig) -> StreamChoice:
    """Parse the options ``stream``, ``streams`` and ``stream_pattern``.

    :param given: the options.
    :param config: connection settings, with the default scope.
    :raises InvalidArgumentError: none or several of the options are set, a name has no scope, a stream is
        named twice, or the pattern is not a regular expression.
    """
    used = [name for name in ("stream", "streams", "stream_pattern") if given.get(name)]
    if not used:
        raise stream_required(given, " (or 'streams', or 'stream_pattern')")
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
        except (re.error, OverflowError, RecursionError) as error:
            raise InvalidArgumentError(
                f"option 'stream_pattern': {pattern!r:.200} is not a regular expression: {error}"
            ) from None
        return StreamChoice(scope=scope, pattern=pattern)
    texts = [given["stream"]] if used == ["stream"] else given["streams"].split(",")
    names = tuple(sorted(stream_named(used[0], each.strip(), config) for each in texts if each.strip()))
    if not names:
        raise InvalidArgumentError(f"option {used[0]!r} contains no stream name")
    if len(set(names)) < len(names):
        raise InvalidArgumentError(
            f"option 'streams': a stream is named twice in {', '.join(map(str, names))}"
        )
    return StreamChoice(names)


Place: TypeAlias = StreamCut | str | int
"""A position in a stream: a stream cut, a word (``earliest``, ``latest``, ``unbounded``), or an event time in
milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where reads start, or end.

    :ivar default: the place for all streams that have none of their own; never a stream cut.
    :ivar places: the streams that have a place of their own.
    :ivar option: name of the option that was set, for messages.
    """

    default: str | int
    places: Mapping[ScopedStream, Place] = field(default_factory=dict)
    option: str = field(default="", compare=False)

    @property
    def word(self) -> str | None:
        """The word that applies to all streams, or None."""
        return self.default if isinstance(self.default, str) and not self.places else None

    def of(self, stream: ScopedStream) -> Place:
        """Return the place for a stream."""
        return self.places.get(stream, self.default)

    def cut_of(self, stream: ScopedStream) -> StreamCut | None:
        """Return the place for a stream if it is a stream cut, otherwise None."""
        place = self.of(stream)
        return place if isinstance(place, StreamCut) else None

    def check_found(self, found: Iterable[ScopedStream], choice: StreamChoice) -> None:
        """Check that each stream with a place was found; otherwise its name may be mistyped.

        :param found: the streams that were found.
        :param choice: the streams of the read.
        :raises InvalidStreamCutError: a stream was not found.
        """
        if missing := self.places.keys() - set(found):
            stream = min(missing)
            raise InvalidStreamCutError(
                f"option {self.option!r} has a place in stream {stream}, which was not found among the "
                f"{choice}",
                scope=stream.scope,
                stream=stream.name,
            )


def bounds_of(
    choice: StreamChoice,
    config: PravegaConfig,
    given: Mapping[str, str],
    names: tuple[str, str],
    default: str,
    *,
    words: tuple[str, ...],
) -> Bounds:
    """Parse an option with places and one with a time for all streams.

    :param choice: the streams of the read.
    :param config: connection settings, with the default scope.
    :param given: the options.
    :param names: names of the two options.
    :param default: the word to use if neither option is set.
    :param words: the words that a JSON object may contain, besides times and cuts.
    :raises InvalidStreamCutError: a text is not a stream cut, or is the cut of a stream that is not read.
    :raises InvalidArgumentError: both options are set, or the option is not valid JSON, or a named stream has
        no place.
    """
    name, time_name = names
    text = given.get(name)
    if given.get(time_name):
        if text:
            raise InvalidArgumentError(
                f"options {name!r} and {time_name!r} cannot be used together; remove one of them"
            )
        return Bounds(milliseconds(time_name, given[time_name]), option=time_name)
    word = (text or default).strip()
    if word.lower() in ("earliest", "latest", "unbounded"):
        return Bounds(word.lower(), option=name)
    if word.startswith("{"):
        places = {
            stream: _place_of_text(name, stream, value, words)
            for stream, value in _by_stream(name, word, config).items()
        }
    else:
        # An end of 'earliest' is refused.
        wanted = "'earliest', 'latest'" if default == "earliest" else "'latest'"
        wanted += ", 'unbounded', the text of a cut, or a JSON object with a place for each stream"
        cut = _cut(name, word, wanted)
        places = {cut.stream: cut}
    for stream in places:
        if stream not in choice:
            raise InvalidStreamCutError(
                f"option {name!r} has a place in stream {stream}, which is not one of the streams to read "
                f"({choice})",
                scope=stream.scope,
                stream=stream.name,
            )
    if missing := set(choice.names) - places.keys():
        raise InvalidArgumentError(
            f"option {name!r} has no place for stream {min(missing)}: give a JSON object with all streams, "
            f'such as {{"{min(missing)}": "latest", ...}}'
        )
    return Bounds(default, places, name)


def _by_stream(option: str, text: str, config: PravegaConfig) -> dict[ScopedStream, object]:
    """Return the values of a JSON object by stream."""
    try:
        pairs = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"option {option!r} is not valid JSON: {error}") from None
    found: dict[ScopedStream, object] = {}
    for name, value in pairs:
        stream = stream_named(option, name, config)
        if stream in found:
            raise InvalidArgumentError(f"option {option!r} has two places in stream {stream}; remove one")
        found[stream] = value
    return found


def _place_of_text(option: str, stream: ScopedStream, value: object, words: tuple[str, ...]) -> Place:
    wanted = f"{', '.join(map(repr, words))}, a time, or the text of a stream cut"
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise InvalidArgumentError(f"option {option!r}: the place in stream {stream} must be {wanted}")
    text = value.strip()
    if text.lower() in words:
        return text.lower()
    # The text of a cut begins with letters.
    if text.lstrip("-")[:1].isdigit():
        return milliseconds(option, text)
    cut = _cut(option, text, f"for stream {stream} {wanted}")
    if cut.stream != stream:
        raise InvalidStreamCutError(
            f"option {option!r}: the stream cut {cut} does not belong to stream {stream}, for which it is "
            "given",
            scope=stream.scope,
            stream=stream.name,
        )
    return cut


def _cut(option: str, text: str, wanted: str) -> StreamCut:
    try:
        return StreamCut.from_text(text)
    except InvalidStreamCutError as error:
        raise InvalidStreamCutError(f"option {option!r}: {error.message}; use {wanted}") from error


def milliseconds(name: str, text: str | None) -> int:
    """Parse a time: milliseconds since 1970, or ISO 8601 with a time zone.

    :param name: name of the option, for the message.
    :param text: the time.
    :raises InvalidArgumentError: the text is neither.
    """
    text = (text or "").strip()
    try:
        return whole(text)
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


def cut_after(client: PravegaClient, stream: ScopedStream, time: int, option: str | None) -> StreamCut | None:
    """Return the first known position with no event older than ``time`` after it, or None if there is none
    yet.

    :param client: the client to use.
    :param stream: the stream.
    :param time: event time in milliseconds, in the unit of the writers' notes.
    :param option: name of the option, for the message; None if the stream may have no watermarks yet.
    :raises InvalidArgumentError: the stream has no watermarks.
    """
    for mark in client.watermarks(stream) if option is None else _marks(client, stream, option):
        if mark.lower >= time:
            return _place_of(client, stream, mark, client.head(stream))
    return None


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
