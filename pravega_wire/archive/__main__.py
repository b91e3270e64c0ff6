"""The command ``python -m pravega_wire.archive``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import trio

from pravega_wire.archive.restoring import restore_stream
from pravega_wire.archive.stages import Stage
from pravega_wire.archive.verifying import verify_archive
from pravega_wire.archive.writing import DEFAULT_PART_BYTES, archive_stream
from pravega_wire.config import PravegaConfig
from pravega_wire.errors import PravegaError
from pravega_wire.stream.client import open_client


def command_line() -> argparse.ArgumentParser:
    """Make the parser of the command's arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m pravega_wire.archive",
        description="Keep the events of streams in Parquet files. After a failure, repeat the same command.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("archive", help="write a stream's events to files")
    one.add_argument("stream", help="scope/stream, or a stream of --scope")
    one.add_argument("directory", type=Path)
    one.add_argument("--start", default="earliest", help="text of a stream cut, or earliest")
    one.add_argument("--end", default="latest", help="text of a stream cut, or latest")
    one.add_argument(
        "--skip-truncated", action="store_true", help="archive what is left if data between the cuts is gone"
    )
    one.add_argument(
        "--part-bytes", type=int, default=DEFAULT_PART_BYTES, help="size of a part of a segment in bytes"
    )
    two = commands.add_parser("restore", help="write the events of an archive to a stream, exactly once")
    two.add_argument("directory", type=Path)
    two.add_argument("stream", help="scope/stream, or a stream of --scope; created if it does not exist")
    two.add_argument("--append", action="store_true", help="allow a stream that has events already")
    three = commands.add_parser("verify", help="check the files of an archive")
    three.add_argument("directory", type=Path)
    three.add_argument("--compare", action="store_true", help="also read the stream and compare all events")
    for each in (one, two, three):
        PravegaConfig.add_arguments(each)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the command, and return the exit status: 0, or 1 if it failed.

    :param argv: the arguments; default: those of the process.
    """
    arguments = command_line().parse_args(argv)
    try:
        trio.run(_run, arguments)
    except (PravegaError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: repeat the command to continue", file=sys.stderr)
        return 130
    return 0


def _progress(stage: Stage, about: str) -> None:
    if stage in (Stage.RECORDED, Stage.RESTORED):
        print(f"{about}: {stage.value}", file=sys.stderr)


async def _run(arguments: argparse.Namespace) -> None:
    directory: Path = arguments.directory
    if arguments.command == "verify" and not arguments.compare:
        manifest = await verify_archive(directory)
        print(f"{directory} is whole: {manifest.events} events of {manifest.stream}")
        return
    async with open_client(PravegaConfig.from_namespace(arguments)) as client:
        if arguments.command == "archive":
            manifest = await archive_stream(
                client,
                arguments.stream,
                directory,
                start=arguments.start,
                end=arguments.end,
                on_truncated="skip_to_head" if arguments.skip_truncated else "raise",
                part_bytes=arguments.part_bytes,
                observer=_progress,
            )
            print(f"{directory} holds {manifest.events} events of {manifest.stream}")
        elif arguments.command == "restore":
            restored = await restore_stream(
                client, directory, arguments.stream, append=arguments.append, observer=_progress
            )
            print(f"{restored.stream} holds {restored.events} events of {directory}")
        else:
            manifest = await verify_archive(directory, client)
            print(f"{directory} and {manifest.stream} have the same {manifest.events} events")


if __name__ == "__main__":
    raise SystemExit(main())
