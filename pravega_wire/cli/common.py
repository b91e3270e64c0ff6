"""Definitions shared by all commands: exit codes, connection arguments, output."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TextIO

from pravega_wire.config import PravegaConfig
from pravega_wire.errors import (
    FencedError,
    IngestedSourceChangedError,
    IngestedStreamGoneError,
    IngestError,
    InvalidArgumentError,
    PravegaError,
    StreamSealedError,
    TransactionOutcomeUnknownError,
)

__all__ = ["Command", "Exit", "add_connection", "connection", "exit_code", "flush", "say", "warn"]


class Exit(IntEnum):
    """The exit codes of all commands."""

    DONE = 0
    """The command succeeded."""
    FAILED = 1
    """The server or the network failed; the same command may succeed later."""
    USAGE = 2
    """The arguments, the settings or the input are wrong, or the stream is sealed."""
    FENCED = 3
    """Another process is doing the same work."""
    UNDECIDED = 4
    """Continuing would lose or repeat data: a person has to decide."""
    NOTHING = 5
    """No file matches."""
    INTERRUPTED = 130
    """The user interrupted the command."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    :ivar name: name of the command.
    :ivar help: short description, for the list of commands.
    :ivar description: description, for the command's own ``--help``.
    :ivar arguments: adds the command's arguments to its parser.
    :ivar run: runs the command and returns the exit code.
    """

    name: str
    help: str
    description: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], Awaitable[Exit]]


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Add the connection arguments to a parser."""
    PravegaConfig.add_arguments(parser)


def connection(arguments: argparse.Namespace) -> PravegaConfig:
    """Return the connection settings from the arguments of :func:`add_connection` and the environment."""
    return PravegaConfig.from_namespace(arguments)


def exit_code(error: PravegaError) -> Exit:
    """Return the exit code for an error."""
    if isinstance(error, FencedError):
        return Exit.FENCED
    if isinstance(
        error, IngestedSourceChangedError | IngestedStreamGoneError | TransactionOutcomeUnknownError
    ):
        return Exit.UNDECIDED
    if isinstance(error, InvalidArgumentError | IngestError | StreamSealedError):
        return Exit.USAGE
    return Exit.FAILED


def say(text: str, *, end: str = "\n") -> None:
    """Write to standard output; a closed pipe is not an error."""
    _write(sys.stdout, text + end)


def warn(text: str, *, end: str = "\n") -> None:
    """Write to standard error; a closed pipe is not an error."""
    _write(sys.stderr, text + end)


def flush() -> None:
    """Flush both outputs before the process ends, so that a closed pipe does not cause a traceback."""
    for stream in (sys.stdout, sys.stderr):
        _write(stream, "")


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:
        # The process was started with this descriptor closed.
        return
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        # Writing the rest of the buffer would fail again when the interpreter ends.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
