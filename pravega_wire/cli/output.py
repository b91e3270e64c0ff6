"""What commands print: tables and colour on a terminal, plain text in a pipe, JSON lines on request.

Units, colours and boxes appear on a terminal only: in a pipe numbers are bare, so that other tools can use
them. Rich is imported when something is shown on a terminal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, TextIO

from pravega_wire.cli.common import let_go, naming
from pravega_wire.cli.values import size_text, time_text
from pravega_wire.values.types import StreamCut

__all__ = ["Column", "Output", "dumps", "is_terminal"]

Advance = Callable[[int], None]
"""Called with the amount of work that was done since the last call."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table, or one line of a record.

    :ivar key: key of the value in a row, and in JSON.
    :ivar title: the heading.
    :ivar kind: ``text``, ``number``, ``size`` (of bytes), ``time`` (milliseconds since 1970).
    :ivar show: makes the text of a value that people would not read as it is in JSON.
    """

    key: str
    title: str
    kind: str = "text"
    show: Callable[[Any], str] | None = None

    def cell(self, row: Mapping[str, Any], *, human: bool) -> str:
        """Return this column's value in a row as text."""
        value = row.get(self.key)
        return cell(value, self.kind, human=human) if self.show is None else self.show(value)


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether an output is a terminal; False if the process was started without it."""
    return stream is not None and not stream.closed and stream.isatty()


def is_dumb() -> bool:
    """Return whether a terminal cannot show anything in the place of what was there, such as an editor's."""
    return os.environ.get("TERM", "").lower() in ("dumb", "unknown")


def is_missing(stream: TextIO | None) -> bool:
    """Return whether the process was started with this descriptor closed."""
    return stream is None


def _plain(value: Any) -> Any:
    """Convert a value that JSON does not have."""
    if isinstance(value, StreamCut):
        return value.to_text()
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, Set):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


def dumps(record: Mapping[str, Any], *, ascii: bool = False) -> str:
    """Return a record as one line of JSON, with characters that are not ASCII escaped if ``ascii``."""
    return json.dumps(record, default=_plain, ensure_ascii=ascii)


def cell(value: Any, kind: str, *, human: bool) -> str:
    """Return a value as the text of a table's cell."""
    if value is None or value == "":
        return "-"
    if kind == "size":
        return size_text(value) if human else f"{value:.0f}"
    if kind == "time":
        return time_text(value)
    if kind == "number" and isinstance(value, float):
        return f"{value:,.1f}" if human else f"{value:.1f}"
    if kind == "number" and human and isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Set):
        return ",".join(map(str, sorted(value))) or "-"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "-"
    if isinstance(value, StreamCut):
        return value.to_text()
    if isinstance(value, Enum):
        return value.name.lower()
    return str(value)


def plain_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> str:
    """Return rows as lines with aligned columns and a heading."""
    lines = [[each.title for each in columns]]
    lines += [[each.cell(row, human=False) for each in columns] for row in rows]
    widths = [max(map(len, texts)) for texts in zip(*lines, strict=True)]
    out = []
    for texts in lines:
        padded = [
            text.ljust(width) if column.kind in ("text", "time") else text.rjust(width)
            for text, width, column in zip(texts, widths, columns, strict=True)
        ]
        out.append("  ".join(padded).rstrip())
    return "\n".join(out)


class Output:
    """Prints the data of a command on standard output.

    :param as_json: whether to print JSON lines.
    :raises BrokenPipeError: (by every method but :meth:`did`) nobody reads the output any more.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.human = not as_json and is_terminal(sys.stdout)

    def line(self, text: str) -> None:
        """Print one line."""
        with naming("standard output"):
            print(text, flush=True)

    def raw(self, data: bytes) -> None:
        """Print bytes unchanged."""
        if is_missing(sys.stdout):
            return
        with naming("standard output"):
            sys.stdout.flush()
            buffer = sys.stdout.buffer
            buffer.write(data)
            buffer.flush()

    def json(self, record: Mapping[str, Any]) -> None:
        """Print one line of JSON."""
        # JSON has its own escapes for what the encoding does not have.
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        self.line(dumps(record, ascii=not encoding.lower().startswith("utf")))

    def did(self, text: str, record: Mapping[str, Any]) -> None:
        """Print what was done: a sentence, or as JSON a record. If nobody reads it, the work goes on."""
        try:
            self.either(text, record)
        except BrokenPipeError:
            let_go(sys.stdout)

    def either(self, text: str, record: Mapping[str, Any]) -> None:
        """Print one line, or as JSON a record."""
        if self.as_json:
            self.json(record)
        else:
            self.line(text)

    def rows(self, rows: Iterable[Mapping[str, Any]], columns: Sequence[Column], *, title: str = "") -> None:
        """Print a table; as JSON a line for each row, with all its keys."""
        found = list(rows)
        if self.as_json:
            for row in found:
                self.json(row)
        elif self.human:
            self._console().print(self.table(found, columns, title))
        else:
            if title:
                self.line(f"{title}:")
            self.line(plain_table(found, columns))

    def record(self, record: Mapping[str, Any], columns: Sequence[Column]) -> None:
        """Print one record as lines of a title and a value; as JSON one line with all its keys."""
        if self.as_json:
            self.json(record)
            return
        shown = [(each.title, each.cell(record, human=self.human)) for each in columns]
        width = max(len(title) for title, _ in shown)
        if self.human:
            from rich.text import Text

            for title, value in shown:
                self._console().print(
                    Text.assemble((title.ljust(width), "bold"), "  ", value), soft_wrap=True
                )
            return
        for title, value in shown:
            self.line(f"{title.ljust(width)}  {value}")

    def _console(self) -> Any:
        from rich.console import Console

        return Console(highlight=False)

    def styled(self, parts: Sequence[tuple[str, str]]) -> None:
        """Print one line on a terminal, of texts with styles."""
        from rich.text import Text

        self._console().print(Text.assemble(*parts), soft_wrap=True)

    def table(self, rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], title: str = "") -> Any:
        """Return a table of Rich's."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        table = Table(box=SIMPLE_HEAD, title=title or None, title_justify="left", header_style="bold cyan")
        for each in columns:
            table.add_column(
                each.title, justify="left" if each.kind in ("text", "time") else "right", overflow="fold"
            )
        for row in rows:
            table.add_row(*(Text(each.cell(row, human=True)) for each in columns))
        return table

    @contextmanager
    def progress(self, doing: str, total: int | None, *, size: bool = True) -> Iterator[Advance]:
        """Show a progress bar on standard error, if that is a terminal which can, with rate and time left.

        :param doing: what is being done.
        :param total: amount of work; None if unknown.
        :param size: whether the work is counted in bytes.
        """
        if not is_terminal(sys.stderr) or is_dumb():
            yield lambda amount: None
            return
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            *((DownloadColumn(), TransferSpeedColumn()) if size else (MofNCompleteColumn(),)),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        with bar:
            task = bar.add_task(doing, total=total)
            yield lambda amount: bar.advance(task, amount)
