"""From a file or a source to samples: pairs of routing key and event."""

from __future__ import annotations

import codecs
import csv
import io
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import trio

from pravega_wire.errors import ClosedError, IngestError, InvalidArgumentError

__all__ = ["Parse", "Sample", "SampleReader", "csv_rows", "lines"]

Sample = tuple[str | None, bytes]
"""Routing key and event. Without a key (None) it gets the name of its file, or of its source."""

Parse = Callable[[Path], Iterable[Sample]]
"""Gives the samples of a file, in order. It runs in a worker thread, so it may block."""

_FILL_EVENTS = 1000
_FILL_BYTES = 256 * 1024


def lines(path: Path) -> Iterator[Sample]:
    """An event for each line that is not empty, without its line end; no keys."""
    with path.open("rb") as file:
        for line in file:
            text = line.rstrip(b"\r\n")
            if text:
                yield None, text


class _Remembering:
    """Lines, with those that were taken since the last question: the source text of a record."""

    def __init__(self, file: Iterable[str]) -> None:
        self._lines = iter(file)
        self._taken: list[str] = []

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self._taken.append(line)
        return line

    def text(self) -> str:
        """The lines taken, without the last line end."""
        text = "".join(self._taken)
        self._taken.clear()
        return text.rstrip("\r\n")


def csv_rows(
    key_column: str | None = None,
    *,
    as_json: bool = False,
    delimiter: str = ",",
    encoding: str = "utf-8-sig",
) -> Parse:
    """Makes a :data:`Parse` for CSV files with a header line.

    :param key_column: name of the column whose value is the routing key; None for no keys.
    :param as_json: events are JSON objects of column name to text, in UTF-8; otherwise each is the row as it
        is in the file (line breaks inside quotes included), in UTF-8.
    :param encoding: of the files; the default takes a byte order mark as well.
    :raises InvalidArgumentError: there is no such encoding, or the delimiter is not one character.
    :raises IngestError: (while reading) a row has another number of fields than the header, a quote is not
        closed, the key column is not there or there are two of it, two columns would be one in a JSON object,
        or the text is not in this encoding. It names file and line.
    """

    def parse(path: Path) -> Iterator[Sample]:
        with path.open(encoding=encoding, newline="") as file:
            source = _Remembering(file)
            rows = csv.reader(source, delimiter=delimiter, strict=True)

            def wrong(what: object) -> IngestError:
                return IngestError.about(str(path), f"file {path}, line {rows.line_num}: {what}")

            try:
                header = next(rows, None)
                source.text()
                if header is None:
                    return
                if key_column is not None and key_column not in header:
                    raise wrong(f"there is no column {key_column!r}, only {', '.join(header)}")
                for name, times in Counter(header).items():
                    if times > 1 and (as_json or name == key_column):
                        raise wrong(f"{times} columns are called {name!r}, and only one would be used")
                key_index = None if key_column is None else header.index(key_column)
                for row in rows:
                    text = source.text()
                    if not row:
                        continue
                    if len(row) != len(header):
                        raise wrong(f"{len(row)} fields, and the header has {len(header)}")
                    if as_json:
                        text = json.dumps(dict(zip(header, row, strict=True)), ensure_ascii=False)
                    yield None if key_index is None else row[key_index], text.encode()
            except csv.Error as error:
                raise wrong(error) from error
            except UnicodeError as error:
                # Found in a block of many lines, before any of them is read.
                raise IngestError.about(
                    str(path), f"file {path}, somewhere after line {rows.line_num}: {error}"
                ) from error

    # Found out now, not in the first file.
    try:
        codecs.lookup(encoding)
        csv.reader(io.StringIO(), delimiter=delimiter)
    except (LookupError, TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"CSV with encoding {encoding!r}, delimiter {delimiter!r}: {error}"
        ) from error
    return parse


class SampleReader:
    """Takes samples from an iterable that may block, a thousand at a time, in a worker thread.

    A call that is cancelled leaves its thread behind, however long that is blocked, and the reader is closed:
    what the thread has taken is lost. The iterator is never used by two threads at once.

    :param begin: gives the iterable; called in the worker thread as well.
    :param title: what messages call the source. :param default_key: for samples without one.
    """

    def __init__(self, begin: Callable[[], Iterable[Sample]], *, title: str, default_key: str) -> None:
        self._begin = begin
        self._iterator: Iterator[Any] | None = None
        self._title = title
        self._default_key = default_key
        self._ready: list[tuple[str, bytes]] = []
        self._next = 0
        self._exhausted = False
        # What closing and a thread that was left behind agree upon: the last of them ends the iterator.
        self._lock = threading.Lock()
        self._busy = False
        self._closed = threading.Event()

    def _fill_alone(self) -> list[tuple[str, bytes]]:
        """In the worker thread; ends the iterator itself if the reader was closed meanwhile."""
        with self._lock:
            if self._closed.is_set():
                raise ClosedError(f"{self._title} is not read any more")
            self._busy = True
        try:
            return self._fill()
        finally:
            with self._lock:
                self._busy = False
                abandoned = self._closed.is_set()
            if abandoned:
                self._end()

    def _fill(self) -> list[tuple[str, bytes]]:
        if self._iterator is None:
            self._iterator = iter(self._begin())
        found: list[tuple[str, bytes]] = []
        size = 0
        for sample in self._iterator:
            match sample:
                case (str() | None as key, bytes() as event):
                    found.append((self._default_key if key is None else key, event))
                case _:
                    raise IngestError.about(
                        self._title,
                        f"{self._title}: a sample is a pair of routing key (str or None) and event (bytes), "
                        f"not {sample!r:.100}",
                    )
            size += len(event)
            if len(found) >= _FILL_EVENTS or size >= _FILL_BYTES or self._closed.is_set():
                return found
        self._exhausted = True
        return found

    async def more(self) -> bool:
        """Whether there is another sample; reads on when none is at hand.

        :raises IngestError: the file cannot be read, or gives something else than samples.
        :raises ClosedError: the reader is closed, or a call of this was cancelled.
        """
        if self._next >= len(self._ready) and not self._exhausted:
            self._next = 0
            self._ready = []
            try:
                self._ready = await trio.to_thread.run_sync(self._fill_alone, abandon_on_cancel=True)
            except trio.Cancelled:
                self.close()
                raise
            except OSError as error:
                raise IngestError.about(
                    self._title, f"{self._title} cannot be read: {error.strerror or error}"
                ) from error
        return self._next < len(self._ready)

    def take(
        self, limit: int | None = None, last: Callable[[tuple[str, bytes]], bool] | None = None
    ) -> tuple[list[tuple[str, bytes]], bool]:
        """Samples at hand, and whether ``last`` has said that the latest of them ends a part.

        :param limit: at most so many.
        """
        stop = len(self._ready) if limit is None else min(len(self._ready), self._next + limit)
        start, ended = self._next, False
        if last is not None:
            for index in range(start, stop):
                if last(self._ready[index]):
                    stop, ended = index + 1, True
                    break
        self._next = stop
        return self._ready[start:stop], ended

    def close(self) -> None:
        """End a generator, so that its file is closed: now, or when the thread that is in it comes back."""
        with self._lock:
            self._closed.set()
            if self._busy:
                return
        self._end()

    def _end(self) -> None:
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()
