"""Parses the arguments, runs the command, and prints an error as one sentence."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import trio

from pravega_wire import __version__
from pravega_wire.cli import ingest
from pravega_wire.cli.common import Command, Exit, exit_code, flush, warn
from pravega_wire.errors import PravegaError
from pravega_wire.nurseries import first_of

__all__ = ["COMMANDS", "main"]

COMMANDS: tuple[Command, ...] = (ingest.COMMAND,)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    top = argparse.ArgumentParser(
        prog="pravega-wire",
        description="Use Pravega from the shell.",
        epilog="exit codes: 0 done; 1 the server or the network failed; 2 wrong arguments or input, or a "
        "sealed stream; 3 another process is doing the same work; 4 a person has to decide; 5 no file "
        "matches; 130 interrupted",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        sub = commands.add_parser(
            command.name, help=command.help, description=command.description, allow_abbrev=False
        )
        command.arguments(sub)
        sub.set_defaults(run=command.run)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit status. Errors are one sentence on standard error.

    If the output's reader goes away, neither the command's work nor its status changes.

    :param argv: the arguments without the program's name; default ``sys.argv[1:]``.
    """
    try:
        return _main(argv)
    finally:
        flush()


def _main(argv: Sequence[str] | None) -> int:
    arguments = parser().parse_args(argv)
    try:
        try:
            return int(trio.run(arguments.run, arguments))
        except BaseExceptionGroup as group:
            # If several errors occurred together, only one is reported; an unexpected error is raised
            # unchanged.
            chosen = group.subgroup(KeyboardInterrupt) or group.subgroup(PravegaError)
            if chosen is None:
                raise
            raise first_of(chosen) from None
    except PravegaError as error:
        warn(f"error: {' '.join(error.message.split())}")
        return exit_code(error)
    except KeyboardInterrupt:
        warn("interrupted")
        return Exit.INTERRUPTED
