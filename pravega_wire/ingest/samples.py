"""Reads samples, pairs of routing key and event, from files and sources."""

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

from pravega_wire.errors import ArgumentTypeError, ClosedError, IngestError, InvalidArgumentError
from pravega_wire.protocol.append import MAX_EVENT_BYTES
from pravega_wire.support.checks import check_several

__all__ = ["Parse", "Sample", "SampleReader", "byte_lines", "csv_rows", "lines", "samples_of"]

Sample = tuple[str | None, bytes]
"""A routing key and an event. If the key is None, the name of the file or stream is used as the key."""

Parse = Callable[[Path], Iterable[Sample]]
"""Returns the samples of a file in order. It runs in a worker thread, so it may block."""

_FILL_EVENTS = 1000
_FILL_BYTES = 256 * 1024

_LINE_EXTRA = len(codecs.BOM_UTF8) + len(b"\r\n") + 1
# What a line may have in addition to the largest event, plus one byte to detect a larger one.


def byte_lines(*, keep_empty: bool = False, exact: bool = False) -> Parse:
    """Create a :data:`Parse` for text files: one event for each line, without routing keys.

    A line ends with a line feed or with the file. A carriage return directly before the line feed is removed,
    and so is a UTF-8 byte order mark at the start of the file. All other bytes are kept unchanged.

    :param keep_empty: whether empty lines are events; by default they are skipped.
    :param exact: whether to keep all bytes between line feeds, including carriage returns and byte order
        marks.
    :raises IngestError: (while reading) a line is larger than the largest event. The message names file and
        line.
    """

    def parse(path: Path) -> Iterator[Sample]:
        number = 0
        with path.open("rb") as file:
            # A line that is too large is not read to its end.
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


def samples_of(found: Iterable[Sample], title: str) -> Iterator[Sample]:
    """Return an iterator of what a source or a :data:`Parse` has returned.

    :raises IngestError: it is not an iterable.
    """
    try:
        check_several("samples", found)
    except ArgumentTypeError as error:
        raise IngestError(f"{title}: {error.message}", item=title) from error
    return iter(found)


_lines = byte_lines()


def lines(path: Path) -> Iterable[Sample]:
    """Read one event for each line that is not empty: :func:`byte_lines` with its defaults."""
    return _lines(path)


def _too_large(path: Path, number: int, what: str, size: int | None = None) -> IngestError:
    has = "more than" if size is None else f"{size} bytes, more than"
    return IngestError(
        f"file {path}, line {number}: {what} has {has} the {MAX_EVENT_BYTES} bytes of the largest event",
        item=str(path),
    )


class _Remembering:
    """Iterates over lines, and keeps those read since the last call of :meth:`text`: the text of a CSV
    row."""

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
        """Return the lines read since the last call, without the last line end."""
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
    """Create a :data:`Parse` for CSV files with a header line: one event for each row.

    Fields may be as large as events: the limit of the ``csv`` module is raised to that for the whole process.

    Example::

        ingester = FileIngester(
            client, "demo/readings", "demo/readings-sync", parse=csv_rows("station")
        )

    :param key_column: name of the column with the routing key; None for no routing keys.
    :param as_json: whether events are JSON objects of column name to text. By default an event is the row's
        text in the file, including line breaks inside quotes. Both are UTF-8.
    :param delimiter: the character between fields.
    :param encoding: encoding of the files; the default also accepts a byte order mark.
    :raises InvalidArgumentError: there is no such encoding, or the delimiter is not one character.
    :raises IngestError: (while reading) a row and the header have different numbers of fields, a quote is not
        closed, the key column is missing or exists twice, two columns of a JSON object have the same name,
        the row is larger than the largest event, or the text is not in this encoding. The message names file
        and line.
    """

    def parse(path: Path) -> Iterator[Sample]:
        with path.open(encoding=encoding, newline="") as file:
            source = _Remembering(file)
            if csv.field_size_limit() < MAX_EVENT_BYTES:
                # The module's own limit is 128 KiB, and applies to the whole process.
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
                    raise wrong(f"there is no column {key_column!r}; the columns are {', '.join(header)}")
                for name, times in Counter(header).items():
                    if times > 1 and (as_json or name == key_column):
                        raise wrong(f"{times} columns have the name {name!r}, but only one would be used")
                key_index = None if key_column is None else header.index(key_column)
                for row in rows:
                    text = source.text()
                    if not row:
                        continue
                    if len(row) != len(header):
                        raise wrong(f"the row has {len(row)} fields, but the header has {len(header)}")
                    if as_json:
                        text = json.dumps(dict(zip(header, row, strict=True)), ensure_ascii=False)
                    event = text.encode()
                    if len(event) > MAX_EVENT_BYTES:
                        raise _too_large(path, rows.line_num, "the row that ends here", len(event))
                    yield None if key_index is None else row[key_index], event
            except csv.Error as error:
                raise wrong(error) from error
            except UnicodeDecodeError as error:
                # The error is in a block of many lines, none of which has been returned yet.
                raise _not_text(path, encoding, error) from error
            except UnicodeError as error:
                raise wrong(error) from error

    # Check the arguments now, not when the first file is read.
    try:
        codecs.lookup(encoding)
        # Some codecs are not encodings of text.
        io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        csv.reader(io.StringIO(), delimiter=delimiter)
    except (LookupError, TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"csv_rows: encoding {encoding!r} or delimiter {delimiter!r} is not valid: {error}"
        ) from error
    return parse


def _not_text(path: Path, encoding: str, found: UnicodeError) -> IngestError:
    """Return the error for a file that is not in its encoding; read it once more to find the place."""
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
    """Reads samples from an iterable that may block, a thousand at a time, in a worker thread.

    Cancelling a call abandons its thread, however long that stays blocked, and closes the reader: the samples
    that the thread has read are lost. Two threads never use the iterator at the same time.

    :param begin: returns the iterable; it is also called in the worker thread.
    :param title: name of the source in messages.
    :param default_key: routing key for samples without one.
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
        # Shared by close() and an abandoned thread: whichever comes last ends the iterator.
        self._lock = threading.Lock()
        self._busy = False
        self._closed = threading.Event()

    def _fill_alone(self) -> list[tuple[str, bytes]]:
        """Read samples, in the worker thread; end the iterator if the reader was closed in the meantime."""
        with self._lock:
            if self._closed.is_set():
                raise ClosedError(f"the reader of {self._title} is closed")
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
            self._iterator = samples_of(self._begin(), self._title)
        found: list[tuple[str, bytes]] = []
        size = 0
        for sample in self._iterator:
            self._count += 1
            match sample:
                case (str() | None as key, bytes() as event):
                    found.append((self._default_key if key is None else key, event))
                case _:
                    raise IngestError(
                        f"{self._title}, sample {self._count}: a sample must be a pair of routing key (str "
                        f"or None) and event (bytes), not {sample!r:.100}",
                        item=self._title,
                    )
            size += len(event)
            if len(found) >= _FILL_EVENTS or size >= _FILL_BYTES or self._closed.is_set():
                return found
        self._exhausted = True
        return found

    async def more(self) -> bool:
        """Return True if there is another sample; read more if none is buffered.

        :raises IngestError: the file cannot be read, or an item is not a sample.
        :raises ClosedError: the reader was closed, or an earlier call was cancelled.
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
        """Return buffered samples, and True if ``last`` accepted the last of them as the end of a part.

        :param limit: largest number of samples; None for no limit.
        :param last: returns True for the sample that ends a part.
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
        """End a generator, so that its file is closed: now, or when the thread that is running it returns."""
        with self._lock:
            self._closed.set()
            if self._busy:
                return
        self._end()

    def _end(self) -> None:
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()
