"""The command ``stream``: create, list, change, scale, truncate and delete streams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pravega_wire.cli.common import AbsentError
from pravega_wire.cli.frame import DURATION, SIZE, STREAM, Session, WireGroup, confirm, passed, yes_option
from pravega_wire.cli.output import Column
from pravega_wire.cli.values import size_text
from pravega_wire.cli.work import points, streams
from pravega_wire.errors import InvalidArgumentError
from pravega_wire.values.policies import StreamConfiguration

if TYPE_CHECKING:
    from pravega_wire.stream.client import PravegaClient

__all__ = ["COMMAND"]

F = TypeVar("F", bound=Callable[..., Any])

_SCALING = Column("scaling", "scaling", show=streams.scaling_text)
_KEEPS = Column("retention", "keeps", show=streams.retention_text)
_SEGMENTS = [
    Column("segment", "SEGMENT"),
    Column("epoch", "EPOCH", "number"),
    Column("state", "STATE"),
    Column("low", "KEYS FROM"),
    Column("high", "TO"),
    Column("start", "START", "number"),
    Column("length", "LENGTH", "number"),
    Column("bytes", "SIZE", "size"),
    Column("successors", "SUCCESSORS"),
]


@click.group(
    cls=WireGroup,
    help="Create, list, change and delete streams. STREAM is SCOPE/STREAM, or a name in the default scope.",
)
def COMMAND() -> None:
    pass


def _configuration(function: F) -> F:
    """Add the options of a stream's configuration."""
    for option in reversed(
        (
            click.option(
                "--segments", type=int, metavar="N", help="number of segments; with a rate, the least"
            ),
            click.option(
                "--events-per-second",
                type=int,
                metavar="N",
                help="split segments that get more events than this, and merge idle ones",
            ),
            click.option(
                "--bytes-per-second",
                type=SIZE,
                metavar="SIZE",
                help="the same by bytes (64KiB, ...), instead of by events",
            ),
            click.option(
                "--scale-factor",
                type=int,
                metavar="N",
                help="split a busy segment into this many (default: 2)",
            ),
            click.option(
                "--keep-time",
                type=DURATION,
                metavar="TIME",
                help="let the server remove data older than 7d, 36h...",
            ),
            click.option(
                "--keep-size",
                type=SIZE,
                metavar="SIZE",
                help="let the server remove data over 10GiB, 500MB...",
            ),
        )
    ):
        function = option(function)
    return function


@COMMAND.command(
    "create",
    help="Create streams. A stream that exists already is left as it is.",
    examples=(
        "pravega-wire stream create demo/readings --segments 4 --keep-time 7d --tag sensors",
        "pravega-wire stream create demo/clicks --events-per-second 1000 --segments 2",
    ),
)
@click.argument("names", metavar="STREAM...", type=STREAM, nargs=-1, required=True)
@_configuration
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="a tag to find it by; may be repeated")
@passed
def create(session: Session, names: tuple[str, ...], tags: tuple[str, ...], **changes: Any) -> None:
    configuration = streams.Changes(add_tags=tags, **changes).apply(StreamConfiguration())

    async def work(client: PravegaClient) -> None:
        for each in names:
            stream = client.config.resolve(each)
            new = await client.create_stream(stream, configuration)
            state = "was created" if new else "exists already"
            session.out.did(f"stream {stream} {state}", {"stream": str(stream), "created": new})

    session.call(work)


@COMMAND.command(
    "alter",
    help="Change the scaling, the retention or the tags of a stream. What is not named stays as it is. With "
    "--segments the server scales the stream at once: to N segments, or with a rate, to at least N.",
    examples=(
        "pravega-wire stream alter demo/readings --keep-size 10GiB --add-tag raw",
        "pravega-wire stream alter demo/readings --keep-all",
    ),
)
@click.argument("name", metavar="STREAM", type=STREAM)
@_configuration
@click.option("--keep-all", is_flag=True, help="keep all data")
@click.option("--add-tag", "add_tags", multiple=True, metavar="TAG", help="add a tag; may be repeated")
@click.option(
    "--remove-tag", "remove_tags", multiple=True, metavar="TAG", help="remove a tag; may be repeated"
)
@passed
def alter(session: Session, name: str, **changes: Any) -> None:
    wanted = streams.Changes(**changes)
    if wanted.empty:
        raise InvalidArgumentError("nothing to change: name what the stream should have (see --help)")

    async def work(client: PravegaClient) -> StreamConfiguration:
        stream = client.config.resolve(name)
        new = wanted.apply(await client.stream_config(stream))
        await client.update_stream(stream, new)
        return new

    new = session.call(work)
    record = {
        "stream": str(session.resolved.config.resolve(name)),
        "scaling": streams.scaling_record(new.scaling),
        "retention": streams.retention_record(new.retention),
        "tags": new.tags,
    }
    session.out.record(
        record,
        [
            Column("stream", "stream"),
            _SCALING,
            _KEEPS,
            Column("tags", "tags"),
        ],
    )


@COMMAND.command(
    "list",
    help="List the streams of a scope, with segments, size and tags.",
    examples=(
        "pravega-wire stream list demo",
        "pravega-wire stream list demo --pattern 'read*' --tag sensors",
        "pravega-wire stream list demo --names",
    ),
)
@click.argument("scope_name", metavar="[SCOPE]", required=False)
@click.option("--pattern", metavar="GLOB", help="only streams whose name matches, such as 'read*'")
@click.option("--tag", metavar="TAG", help="only streams with this tag")
@click.option(
    "--internal", is_flag=True, help="also the streams that Pravega itself created (_MARK..., _RG...)"
)
@click.option("--names", is_flag=True, help="only the names, without a request for each stream")
@passed
def list_(
    session: Session,
    scope_name: str | None,
    pattern: str | None,
    tag: str | None,
    internal: bool,
    names: bool,
) -> None:
    rows = session.call(
        lambda client: streams.list_streams(
            client, scope_name, pattern=pattern, tag=tag, internal=internal, details=not names
        )
    )
    columns = [Column("stream", "STREAM")]
    if not names:
        columns += [
            Column("segments", "SEGMENTS", "number"),
            Column("bytes", "SIZE", "size"),
            replace(_SCALING, title="SCALING"),
            replace(_KEEPS, title="KEEPS"),
            Column("tags", "TAGS"),
            Column("sealed", "SEALED"),
        ]
    session.out.rows(rows, columns)


@COMMAND.command(
    "describe",
    help="Show a stream's configuration, positions, segments and epochs.",
    examples=(
        "pravega-wire stream describe demo/readings",
        "pravega-wire stream describe demo/readings --epochs",
    ),
)
@click.argument("name", metavar="STREAM", type=STREAM)
@click.option("--epochs", is_flag=True, help="also show which segments were active in each epoch")
@passed
def describe(session: Session, name: str, epochs: bool) -> None:
    found = session.call(lambda client: streams.describe(client, client.config.resolve(name)))
    if session.out.as_json:
        session.out.json(found)
        return
    session.out.record(
        found,
        [
            Column("stream", "stream"),
            _SCALING,
            _KEEPS,
            Column("tags", "tags"),
            Column("sealed", "sealed"),
            Column("epoch", "epoch", "number"),
            Column("active", "active segments", "number"),
            Column("bytes", "size", "size"),
            Column("written", "written since creation", "size"),
            Column("head", "head"),
            Column("tail", "tail"),
        ],
    )
    session.out.line("")
    session.out.rows(found["segments"], _SEGMENTS)
    if epochs:
        session.out.line("")
        session.out.rows(
            found["epochs"], [Column("epoch", "EPOCH", "number"), Column("segments", "ACTIVE SEGMENTS")]
        )


@COMMAND.command(
    "truncate",
    help=f"Remove the data before a position. CUT is {points.HELP}.",
    examples=(
        "pravega-wire stream truncate demo/readings --to tail",
        "# needs writers that report event times",
        "pravega-wire stream truncate demo/readings --older-than 7d --yes",
    ),
)
@click.argument("name", metavar="STREAM", type=STREAM)
@click.option("--to", metavar="CUT", help="the new head of the stream")
@click.option(
    "--older-than", type=DURATION, metavar="AGE", help="remove events that are older than 7d, 36h..."
)
@click.option(
    "--bytes", "of_bytes", is_flag=True, help="it is a byte stream: --to is any offset, not only an event's"
)
@yes_option
@passed
def truncate(
    session: Session, name: str, to: str | None, older_than: float | None, of_bytes: bool, yes: bool
) -> None:
    if (to is None) == (older_than is None):
        raise InvalidArgumentError("name the new head with --to or with --older-than")
    point = points.parse_point(to if to is not None else f"time:-{older_than}s")
    stream = session.resolved.config.resolve(name)
    before = to if to is not None else f"{older_than:g} s ago"
    confirm(f"Remove everything before {before} from stream {stream}?", yes=yes)
    done = session.call(lambda client: streams.truncate(client, stream, point, of_bytes=of_bytes))
    session.out.did(f"{size_text(done['removed'])} were removed from stream {stream}", done)


@COMMAND.command(
    "seal",
    help="Seal streams, so that they take no more events. This cannot be undone.",
    examples=("pravega-wire stream seal demo/readings --yes",),
)
@click.argument("names", metavar="STREAM...", type=STREAM, nargs=-1, required=True)
@yes_option
@passed
def seal(session: Session, names: tuple[str, ...], yes: bool) -> None:
    confirm(f"Seal stream {', '.join(names)}?", yes=yes)

    async def work(client: PravegaClient) -> None:
        for each in names:
            stream = client.config.resolve(each)
            await client.seal_stream(stream)
            session.out.did(f"stream {stream} was sealed", {"stream": str(stream), "sealed": True})

    session.call(work)


@COMMAND.command(
    "delete",
    help="Delete streams and their data. Streams that are not sealed are sealed first.",
    examples=("pravega-wire stream delete demo/readings", "pravega-wire stream delete demo/old --yes"),
)
@click.argument("names", metavar="STREAM...", type=STREAM, nargs=-1, required=True)
@yes_option
@passed
def delete(session: Session, names: tuple[str, ...], yes: bool) -> None:
    confirm(f"Delete stream {', '.join(names)} and its data?", yes=yes)

    async def work(client: PravegaClient) -> None:
        for each in names:
            stream = client.config.resolve(each)
            if not await client.delete_stream(stream, seal=True):
                raise AbsentError(f"stream {stream} does not exist")
            session.out.did(f"stream {stream} was deleted", {"stream": str(stream), "deleted": True})

    session.call(work)


@COMMAND.command(
    "scale",
    help="Scale a stream to N segments, each with the same part of the key space.",
    examples=("pravega-wire stream scale demo/readings 8",),
)
@click.argument("name", metavar="STREAM", type=STREAM)
@click.argument("segments", type=int, metavar="N")
@passed
def scale(session: Session, name: str, segments: int) -> None:
    done = session.call(lambda client: streams.scale(client, client.config.resolve(name), segments))
    session.out.did(f"stream {done['stream']}: {done['before']} -> {done['segments']} segments", done)
