"""The command ``read``: read the events of a stream, or follow it."""

from __future__ import annotations

import errno
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from pravega_wire.cli.common import naming, warn
from pravega_wire.cli.frame import DURATION, GROUP, STREAM, Session, WireCommand, passed
from pravega_wire.cli.output import is_terminal
from pravega_wire.cli.values import counted
from pravega_wire.cli.work import points, schemas
from pravega_wire.errors import InvalidArgumentError
from pravega_wire.support.arrow import need_arrow
from pravega_wire.values.cuts import OnTruncated
from pravega_wire.values.naming import validate_user_name
from pravega_wire.values.types import ScopedStream, StreamCut

if TYPE_CHECKING:
    from pravega_wire.cli.work import reading
    from pravega_wire.stream.client import PravegaClient

__all__ = ["COMMAND"]

_FILES: Final = ("arrow", "parquet")
"""Formats of files that have nothing before their end is written."""

_FORMATS: Final = ("raw", "json", "hex", *_FILES)
_SUFFIXES = {".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow", ".jsonl": "json", ".json": "json"}

_IDLE_SECONDS: Final = 5.0

_DEVICES: Final = ("/dev", "/dev/fd", "/proc/self/fd")
"""What is here may be a regular file, such as ``/dev/stdout``, that another process has open."""


@click.command(
    cls=WireCommand,
    name="read",
    help="Print the events of a stream, each on a line. It ends at the position that is the tail when it "
    f"begins, or goes on with --follow. POSITION is {points.HELP}.",
    examples=(
        "pravega-wire read demo/readings",
        "# new events only, until Ctrl-C, with their places",
        "pravega-wire read demo/readings --from tail --follow --json",
        "# continue where the last run of this group ended",
        "pravega-wire read demo/readings --group nightly",
        "pravega-wire read demo/readings --output readings.parquet",
    ),
)
@click.argument("name", metavar="STREAM", type=STREAM)
@click.option("--from", "start", metavar="POSITION", help="where to begin (default: head)")
@click.option("--to", "end", metavar="POSITION", help="where to end (default: the tail when it begins)")
@click.option("--follow", "-f", is_flag=True, help="wait for more events at the tail")
@click.option("--limit", "-n", type=int, metavar="N", help="end after N events")
@click.option("--last", type=int, metavar="N", help="only the last N events; with --follow, go on after them")
@click.option(
    "--schema-group",
    metavar="NAME",
    help="events are of this group of the schema registry: print their values as JSON",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(_FORMATS),
    help="raw: the bytes of each event and a line feed (default); json: an object with the event, its "
    "segment, offset and pointer; hex; arrow and parquet: for files",
)
@click.option("--no-newline", is_flag=True, help="with raw: nothing between events")
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="write to this file; .parquet, .arrow, .feather and .jsonl choose the format. A file that exists is "
    "replaced when the command succeeds; with --follow or --group, when the first events come",
)
@click.option(
    "--skip-truncated", is_flag=True, help="continue at the head if data was truncated (default: an error)"
)
@click.option(
    "--group",
    metavar="GROUP",
    type=GROUP,
    help="read as a member of this reader group, which remembers where it is; it is created if it does not "
    "exist",
)
@click.option("--reader", metavar="NAME", help="with --group: name of the reader (default: host and process)")
@click.option(
    "--idle",
    type=DURATION,
    metavar="TIME",
    help="with --group, without --follow: end after this time without an event (default: 5s)",
)
@passed
def COMMAND(
    session: Session,
    name: str,
    start: str | None,
    end: str | None,
    follow: bool,
    limit: int | None,
    last: int | None,
    schema_group: str | None,
    format_: str | None,
    no_newline: bool,
    output: Path | None,
    skip_truncated: bool,
    group: str | None,
    reader: str | None,
    idle: float | None,
) -> None:
    from pravega_wire.cli.work import reading

    if follow and end is not None:
        raise InvalidArgumentError("--follow never ends, so it cannot be combined with --to: choose one")
    if group is None and reader is not None:
        raise InvalidArgumentError("--reader needs --group")
    if idle is not None and (group is None or follow):
        raise InvalidArgumentError("--idle needs --group, and does not go with --follow")
    if group is not None and (end is not None or skip_truncated):
        raise InvalidArgumentError("--to and --skip-truncated do not go with --group")
    if last is not None and (group is not None or limit is not None):
        raise InvalidArgumentError("--last does not go with --limit or --group")
    if reader:
        # Before a group is created.
        validate_user_name("reader", reader)
    chosen = _format(format_, output, as_json=session.out.as_json)
    if no_newline and chosen != "raw":
        raise InvalidArgumentError(f"--no-newline goes with the format raw, not with {chosen}")
    first = points.parse_point(start or "head")
    final = None if end is None else points.parse_point(end)
    reading.check_limit(limit)
    reading.check_limit(last, "--last")
    decode = None
    if schema_group is not None:
        decode = schemas.decoder(session.resolved.config, schema_group)
    on_truncated: OnTruncated = "skip_to_head" if skip_truncated else "raise"
    keep = follow or group is not None
    with _sink(session, chosen, output, joined=no_newline, keep=keep, decode=decode) as sink:
        written = reading.Written(sink, limit)

        async def work(client: PravegaClient) -> None:
            stream = client.config.resolve(name)
            if group is not None:
                begin = None if start is None else await points.resolve_event(client, stream, first)
                rest = _IDLE_SECONDS if idle is None else idle
                with_end = chosen in _FILES
                await _in_group(
                    client, stream, group, reader, begin, written, None if follow else rest, with_end
                )
                return
            cut = await points.resolve_event(client, stream, first)
            if follow and last is None:
                await reading.follow(client, cut, written, on_truncated)
                return
            if final is None:
                until = await client.tail(stream)
            else:
                until = await points.resolve_event(client, stream, final)
            ranges = await client.segment_ranges(stream, cut, until, on_truncated=on_truncated)
            total = sum(each.length for each in ranges)
            visible = output is not None or not is_terminal(_stdout())
            with ExitStack() as bar:
                advance = (
                    _nothing if not visible else bar.enter_context(session.out.progress("reading", total))
                )
                if last is None:
                    await reading.between(client, ranges, written, advance)
                else:
                    at_end = reading.LastSink(written, last)
                    await reading.between(client, ranges, at_end, advance)
                    at_end.end()
            if follow:
                await reading.follow(client, until, written, on_truncated)

        session.call(work)
    if output is not None:
        session.out.did(
            f"{counted(written.events, 'event')}, {counted(written.bytes, 'byte')} written to {output}",
            {"file": str(output), "events": written.events, "bytes": written.bytes},
        )


def _nothing(amount: int) -> None:
    """Progress that nobody watches."""


def _stdout() -> Any:
    import sys

    return sys.stdout


def _format(given: str | None, output: Path | None, *, as_json: bool) -> str:
    """Return the format of the output."""
    if as_json and output is None and given not in (None, "json"):
        raise InvalidArgumentError(f"--json prints events as json, --format as {given}: choose one")
    found = given
    if found is None and output is not None:
        found = _SUFFIXES.get(output.suffix.lower())
    if found is None:
        found = "json" if as_json and output is None else "raw"
    if found in _FILES and output is None:
        raise InvalidArgumentError(f"the format {found} needs a file: --output FILE")
    return found


@contextmanager
def _sink(
    session: Session,
    chosen: str,
    output: Path | None,
    *,
    joined: bool,
    keep: bool,
    decode: schemas.Decoder | None = None,
) -> Iterator[reading.Sink]:
    """Yield what takes the events.

    :param joined: nothing between events.
    :param decode: decodes events of the schema registry.
    :param keep: keep what was read if the command fails: a group has recorded these events as read.
    """
    from pravega_wire.cli.work import reading

    if output is None:
        yield reading.TextSink(session.out.raw, reading.show(chosen, joined=joined, decode=decode))
        return
    if decode is not None or chosen not in _FILES:
        show = reading.show(chosen, joined=joined, decode=decode)
    _check_writable(output)
    with naming(str(output)), ExitStack() as stack:

        def opened(path: Path) -> reading.Sink:
            if chosen in _FILES:
                return stack.enter_context(reading.FileSink(path, chosen))
            file = stack.enter_context(path.open("wb"))

            def write(data: bytes) -> None:
                file.write(data)
                # What a group counts as read may not get lost in a buffer.
                file.flush()

            return reading.TextSink(write, show)

        if not _is_replaceable(output):
            yield opened(output)
        elif not keep:
            yield opened(stack.enter_context(_replaced(output)))
        else:
            if chosen in _FILES:
                need_arrow(f"{chosen} files need")
            late = reading.LateSink(lambda: opened(output))
            yield late
            late.open()


def _check_writable(path: Path) -> None:
    """Find out before anything is read that a file cannot be written."""
    place = path if path.exists() else path.parent
    code = errno.EACCES if place.exists() else errno.ENOENT
    if not os.access(place, os.W_OK):
        raise OSError(code, os.strerror(code), str(path))


def _is_replaceable(path: Path) -> bool:
    return not path.exists() or (path.is_file() and str(path.parent) not in _DEVICES)


@contextmanager
def _replaced(path: Path) -> Iterator[Path]:
    """Yield another path, whose file becomes that of ``path`` if the body succeeds."""
    real = path.resolve()
    part = real.with_name(f".{real.name}.{os.getpid()}.part")
    try:
        yield part
        if real.exists():
            shutil.copymode(real, part)
        part.replace(real)
    finally:
        part.unlink(missing_ok=True)


async def _in_group(
    client: PravegaClient,
    stream: ScopedStream,
    group: str,
    reader: str | None,
    start: StreamCut | None,
    written: reading.Written,
    idle: float | None,
    with_end: bool,
) -> None:
    """Read as a member of a group.

    :param with_end: whether the events are written to a file that has nothing before its end is written.
    """
    from pravega_wire.cli.work import reading

    named = client.config.resolve(group) if "/" in group or client.config.scope else None
    name = ScopedStream(stream.scope, group) if named is None else named
    if await client.reader_group_exists(name):
        if start is not None:
            raise InvalidArgumentError(
                f"reader group {name} exists already and continues where it is: --from is for a new one; "
                "move it with: pravega-wire group reset"
            )
    else:
        # A stream that does not exist must not leave a group behind.
        await client.stream_config(stream)
        await client.create_reader_group(name, [stream if start is None else start])
        warn(f"reader group {name} was created")
    async with client.reader_group(name) as opened:
        if stream not in opened.streams:
            raise InvalidArgumentError(
                f"reader group {name} does not read stream {stream}, but "
                f"{', '.join(map(str, opened.streams))}"
            )
        before = await opened.stream_cuts() if with_end else {}
        async with opened.reader(reader or f"{socket.gethostname()}-{os.getpid()}") as member:

            async def tell(what: str) -> None:
                await opened.refresh()
                others = ", ".join(sorted({*opened.online_readers} - {member.reader_id})) or "none"
                warn(
                    f"this reader {what} of reader group {name}; the group's other readers: {others} "
                    f"(remove one that has died with: pravega-wire group offline {name} READER)"
                )

            try:
                try:
                    given = await reading.from_group(
                        member, written, idle, lambda: tell("waits for a segment")
                    )
                finally:
                    written.finish()
            except OSError:
                if with_end:
                    to = " ".join(f"--to {cut.to_text()}" for cut in before.values())
                    warn(
                        f"reader group {name} counts events as read that are not in the file; to read again "
                        f"what it has read since this command began: pravega-wire group reset {name} {to}"
                    )
                raise
        if not given:
            await tell("was given no segment")
