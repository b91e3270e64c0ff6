"""The command ``append``: append lines or files to a stream."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from pravega_wire.cli.common import standard_input
from pravega_wire.cli.frame import STREAM, Session, WireCommand, passed
from pravega_wire.cli.values import counted
from pravega_wire.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pravega_wire.cli.work import writing
    from pravega_wire.stream.client import PravegaClient

__all__ = ["COMMAND"]

_STANDARD_INPUT = Path("-")


@click.command(
    cls=WireCommand,
    name="append",
    help="Append an event for each line of the FILEs, or of standard input, which is also the FILE -. Lines "
    "are stored without their line ends. It returns when everything is stored.",
    examples=(
        "echo 21.5 | pravega-wire append demo/readings --key sensor-7",
        "# the routing key is a field of each JSON object",
        "pravega-wire append demo/readings events.jsonl --key-field sensor.id",
        "# key and event are separated by a tab",
        "pravega-wire append demo/readings pairs.txt --key-delimiter $'\\t' --rate 100",
        "# each picture is one event, byte for byte",
        "pravega-wire append demo/pictures *.png --whole-files",
    ),
)
@click.argument("name", metavar="STREAM", type=STREAM)
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--key", metavar="TEXT", help="routing key of all events")
@click.option(
    "--key-field", metavar="NAME", help="JSON field with the routing key; a.b is field b of object a"
)
@click.option("--key-delimiter", metavar="TEXT", help="each line is a routing key, this text, and the event")
@click.option("--whole-files", is_flag=True, help="each file is one event, with exactly its bytes")
@click.option("--keep-empty", is_flag=True, help="an empty line is an event, too (default: skip it)")
@click.option("--exact-lines", is_flag=True, help="keep a carriage return before the line feed")
@click.option(
    "--schema-group",
    metavar="NAME",
    help="each line is JSON, and becomes an event with the last schema of this group of the schema registry",
)
@click.option("--schema-type", metavar="TYPE", help="with --schema-group: the type of the schema")
@click.option("--rate", type=float, metavar="N", help="append at most N events per second")
@click.option("--transaction", is_flag=True, help="make all events visible together, or none of them")
@passed
def COMMAND(
    session: Session,
    name: str,
    files: tuple[Path, ...],
    key: str | None,
    key_field: str | None,
    key_delimiter: str | None,
    whole_files: bool,
    keep_empty: bool,
    exact_lines: bool,
    schema_group: str | None,
    schema_type: str | None,
    rate: float | None,
    transaction: bool,
) -> None:
    from pravega_wire.cli.work import schemas, writing

    keys = writing.Keys(key, key_field, None if key_delimiter is None else os.fsencode(key_delimiter))
    pace = writing.Pace(rate)
    if whole_files and not files:
        raise InvalidArgumentError("--whole-files needs files")
    if whole_files and (keep_empty or exact_lines):
        raise InvalidArgumentError("--keep-empty and --exact-lines are about lines, not about whole files")
    if schema_group is None and schema_type is not None:
        raise InvalidArgumentError("--schema-type needs --schema-group")
    if whole_files and schema_group is not None:
        raise InvalidArgumentError("--schema-group is about lines of JSON, not about whole files")
    encode = None
    if schema_group is not None:
        encode = schemas.encoder(session.resolved.config, schema_group, schema_type)
    if whole_files and _STANDARD_INPUT in files:
        raise InvalidArgumentError("--whole-files takes files, not standard input")
    given = standard_input() if not files or _STANDARD_INPUT in files else None
    total = sum(each.stat().st_size for each in files) if given is None else None
    with ExitStack() as stack:
        opened: list[tuple[str, BinaryIO]] = []
        if not whole_files:
            for each in files or (_STANDARD_INPUT,):
                if given is not None and each == _STANDARD_INPUT:
                    opened.append(("standard input", writing.unbuffered(given)))
                else:
                    opened.append((str(each), stack.enter_context(each.open("rb", buffering=0))))
        advance: writing.Advance = writing.nothing
        if files:
            advance = stack.enter_context(session.out.progress("appending", total))

        def events() -> AsyncIterator[writing.Keyed]:
            if whole_files:
                return writing.file_events(files, keys, large=not transaction, advance=advance)
            return writing.line_events(
                opened, keys, exact=exact_lines, keep_empty=keep_empty, advance=advance, encode=encode
            )

        async def work(client: PravegaClient) -> writing.Appended:
            return await writing.append(
                client,
                client.config.resolve(name),
                events(),
                pace=pace,
                transaction=transaction,
                large=whole_files,
            )

        done = session.call(work)
    stream = str(session.resolved.config.resolve(name))
    session.out.did(
        f"{counted(done.events, 'event')}, {counted(done.bytes, 'byte')} appended to stream {stream}",
        {"stream": stream, "events": done.events, "bytes": done.bytes},
    )
