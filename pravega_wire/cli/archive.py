"""The command ``archive``: streams to Parquet files and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pravega_wire.cli.common import warn
from pravega_wire.cli.frame import SIZE, STREAM, Session, WireGroup, passed
from pravega_wire.cli.work import points
from pravega_wire.values.types import ScopedStream, StreamCut

if TYPE_CHECKING:
    from pravega_wire.archive import Manifest, Stage
    from pravega_wire.stream.client import PravegaClient

__all__ = ["COMMAND"]

_DIRECTORY = click.Path(file_okay=False, path_type=Path)


@click.group(
    cls=WireGroup,
    help="Keep the events of streams in Parquet files. After a failure, repeat the same command: it goes on "
    "where it was.",
)
def COMMAND() -> None:
    pass


def _progress(stage: Stage, about: str) -> None:
    from pravega_wire.archive import Stage

    if stage in (Stage.RECORDED, Stage.RESTORED):
        warn(f"{about}: {stage.value}")


async def _bound(client: PravegaClient, stream: ScopedStream, point: points.Point) -> StreamCut | str:
    """Return a position as the archive takes it, to which a word means what it meant when it was begun."""
    words = {"head": "earliest", "tail": "latest"}
    return words.get(point.kind) or await points.resolve_event(client, stream, point)


@COMMAND.command(
    "create",
    help=f"Write the events between two cuts of a stream to files in DIRECTORY. CUT is {points.HELP}.",
    examples=("pravega-wire archive create demo/readings readings-2026",),
)
@click.argument("name", metavar="STREAM", type=STREAM)
@click.argument("directory", metavar="DIRECTORY", type=_DIRECTORY)
@click.option("--start", default="head", show_default=True, metavar="CUT", help="cut to start from")
@click.option("--end", default="tail", show_default=True, metavar="CUT", help="cut to end at")
@click.option("--skip-truncated", is_flag=True, help="archive what is left if data between the cuts is gone")
@click.option(
    "--part-size", type=SIZE, metavar="SIZE", help="size of a file's part of a segment, such as 64MB"
)
@passed
def create(
    session: Session,
    name: str,
    directory: Path,
    start: str,
    end: str,
    skip_truncated: bool,
    part_size: int | None,
) -> None:
    from pravega_wire.archive import archive_stream

    more: dict[str, Any] = {} if part_size is None else {"part_bytes": part_size}
    first, last = points.parse_point(start), points.parse_point(end)

    async def work(client: PravegaClient) -> Manifest:
        stream = client.config.resolve(name)
        return await archive_stream(
            client,
            stream,
            directory,
            start=await _bound(client, stream, first),
            end=await _bound(client, stream, last),
            on_truncated="skip_to_head" if skip_truncated else "raise",
            observer=_progress,
            **more,
        )

    manifest = session.call(work)
    session.out.did(
        f"{directory} holds {manifest.events} events of {manifest.stream}",
        {"directory": str(directory), "stream": str(manifest.stream), "events": manifest.events},
    )


@COMMAND.command(
    "restore",
    help="Write the events of an archive to a stream, each exactly once. STREAM is created if it does not "
    "exist.",
    examples=("pravega-wire archive restore readings-2026 demo/readings-again",),
)
@click.argument("directory", metavar="DIRECTORY", type=_DIRECTORY)
@click.argument("name", metavar="STREAM", type=STREAM)
@click.option("--append", is_flag=True, help="allow a stream that has events already")
@passed
def restore(session: Session, directory: Path, name: str, append: bool) -> None:
    from pravega_wire.archive import restore_stream

    restored = session.call(
        lambda client: restore_stream(client, directory, name, append=append, observer=_progress)
    )
    session.out.did(
        f"{restored.stream} holds {restored.events} events of {directory}",
        {"directory": str(directory), "stream": str(restored.stream), "events": restored.events},
    )


@COMMAND.command(
    "verify",
    help="Check the files of an archive. With --compare, also read the stream and compare all events.",
    examples=(
        "pravega-wire archive verify readings-2026",
        "pravega-wire archive verify readings-2026 --compare",
    ),
)
@click.argument("directory", metavar="DIRECTORY", type=_DIRECTORY)
@click.option("--compare", is_flag=True, help="also compare with the stream it was made from")
@passed
def verify(session: Session, directory: Path, compare: bool) -> None:
    from pravega_wire.archive import compare_archive, verify_archive

    if compare:
        manifest = session.call(lambda client: compare_archive(client, directory))
        text = f"{directory} and {manifest.stream} have the same {manifest.events} events"
    else:
        manifest = session.run(lambda: verify_archive(directory))
        text = f"{directory} is whole: {manifest.events} events of {manifest.stream}"
    session.out.did(
        text,
        {
            "directory": str(directory),
            "stream": str(manifest.stream),
            "events": manifest.events,
            "compared": compare,
        },
    )
