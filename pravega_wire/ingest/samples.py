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
from pravega_wire.protocol.append import MAX_EVENT_BYTES

__all__ = ["Parse", "Sample", "SampleReader", "byte_lines", "csv_rows", "lines"]

Sample = tuple[str | None, bytes]
"""Routing key and event. Without a key (None) it gets the name of its file, or of its source."""

Parse = Callable[[Path], Iterable[Sample]]
"""Gives the samples of a file, in order. It runs in a worker thread, so it may block."""

_FILL_EVENTS = 1000
_FILL_BYTES = 256 * 1024

_LINE_EXTRA = len(codecs.BOM_UTF8) + len(b"\r\n") + 1
# What a line may have beside the largest event, and one byte more: to tell that it is larger.


def byte_lines(*, keep_empty: bool = False, exact: bool = False) -> Parse:
    """Makes a :data:`Parse` for files of lines: an event for each, no keys.

    A line ends with a line feed, or with the file. A carriage return right before the line feed belongs to
    the line end, and a UTF-8 byte order mark at the file's beginning to no line. All other bytes are kept,
    whatever they are.

    :param keep_empty: lines without a byte are empty events; otherwise they are left out.
    :param exact: the bytes between line feeds as they are: carriage returns and byte order marks stay.
    :raises IngestError: (while reading) a line is larger than an event may be. It names file and line.
    """

    def parse(path: Path) -> Iterator[Sample]:
        number = 0
        with path.open("rb") as file:
            # A line that cannot be an event is not read to its end.
            while line := file.readline(MAX_EVENT_BYTES + _LINE_EXTRA):
                number += 1
                text = line.removesuffix(b"\n")
                if not exact:
                    if len(text) < len(line):
                        text = text.removesuffix(b"\r")
                    if number == 1:
                        text = text.removeprefix(codecs.BOM_UTF8)
                if len(text) > MAX_EVENT_BYTES:
                    raise _too_large(path, number, "the line")
                if text or keep_empty:
                    yield None, text

    return parse


_lines = byte_lines()


def lines(path: Path) -> Iterable[Sample]:
    """An event for each line that is not empty: :func:`byte_lines` with its defaults."""
    return _lines(path)


def _too_large(path: Path, number: int, what: str, size: int | None = None) -> IngestError:
    has = "more than" if size is None else f"{size} bytes, more than"
    return IngestError(
        f"file {path}, line {number}: {what} has {has} the {MAX_EVENT_BYTES} bytes of the largest event",
        item=str(path),
    )


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
        the row is larger than an event may be, or the text is not in this encoding. It names file and line.

    Fields may be as large as events: the ``csv`` module's limit is raised to that for the whole process.
    """

    def parse(path: Path) -> Iterator[Sample]:
        with path.open(encoding=encoding, newline="") as file:
            source = _Remembering(file)
            if csv.field_size_limit() < MAX_EVENT_BYTES:
                # The module's own limit is 128 KiB, for the whole process; nobody needs it that low.
                csv.field_size_limit(MAX_EVENT_BYTES)
            rows = csv.reader(source, delimiter=delimiter, strict=True)

            def wrong(what: object) -> IngestError:
                return IngestError(f"file {path}, line {max(1, rows.line_num)}: {what}", item=str(path))

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
                    event = text.encode()
                    if len(event) > MAX_EVENT_BYTES:
                        raise _too_large(path, rows.line_num, "the row that ends here", len(event))
                    yield None if key_index is None else row[key_index], event
            except csv.Error as error:
                raise wrong(error) from error
            except UnicodeDecodeError as error:
                # Found in a block of many lines, before any of them is read.
                raise _not_text(path, encoding, error) from error
            except UnicodeError as error:
                raise wrong(error) from error

    # Found now, not in the first file.
    try:
        codecs.lookup(encoding)
        csv.reader(io.StringIO(), delimiter=delimiter)
    except (LookupError, TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"CSV with encoding {encoding!r}, delimiter {delimiter!r}: {error}"
        ) from error
    return parse


def _not_text(path: Path, encoding: str, found: UnicodeError) -> IngestError:
    """The error for a file that is not in its encoding: where that is, by reading it once more."""
    line, what = 1, str(found)
    decoder = codecs.getincrementaldecoder(encoding)()
    with path.open("rb") as file:
        try:
            while block := file.read(_FILL_BYTES):
                line += decoder.decode(block).count("\n")
            decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            line += error.object[: error.start].decode(error.encoding, "ignore").count("\n")
            what = f"byte 0x{error.object[error.start]:02x} is not {encoding} ({error.reason})"
        except UnicodeError as error:
            what = str(error)
    return IngestError(f"file {path}, line {line}: {what}", item=str(path))


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
        self._count = 0
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
            self._count += 1
            match sample:
                case (str() | None as key, bytes() as event):
                    found.append((self._default_key if key is None else key, event))
                case _:
                    raise IngestError(
                        f"{self._title}, sample {self._count}: a sample is a pair of routing key (str or "
                        f"None) and event (bytes), not {sample!r:.100}",
                        item=self._title,
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
                raise IngestError(
                    f"{self._title} cannot be read: {error.strerror or error}", item=self._title
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
