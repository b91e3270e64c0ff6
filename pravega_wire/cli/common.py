"""What all commands share: exit codes, how to connect, what a command is."""

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
    """Exit codes, the same for every command."""

    DONE = 0
    FAILED = 1
    """The server or the network; the same command may succeed later."""
    USAGE = 2
    """The arguments, the settings or the input are wrong, or the stream is sealed."""
    FENCED = 3
    """Another process does the same work."""
    UNDECIDED = 4
    """Going on would lose or repeat something: a person has to decide."""
    NOTHING = 5
    """There was nothing to do it with: no file matches."""
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    :ivar arguments: adds its arguments to its parser. :ivar run: does it; returns the exit code when it is
        done.
    """

    name: str
    help: str
    description: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], Awaitable[Exit]]


def add_connection(parser: argparse.ArgumentParser) -> None:
    """The arguments that say where the server is."""
    PravegaConfig.add_arguments(parser)


def connection(arguments: argparse.Namespace) -> PravegaConfig:
    """The configuration that :func:`add_connection`'s arguments and the environment give."""
    return PravegaConfig.from_namespace(arguments)


def exit_code(error: PravegaError) -> Exit:
    """The exit code for an error."""
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
    """Write to standard output; nothing happens when nobody reads it any more."""
    _write(sys.stdout, text + end)


def warn(text: str, *, end: str = "\n") -> None:
    """Write to standard error; nothing happens when nobody reads it any more."""
    _write(sys.stderr, text + end)


def flush() -> None:
    """Before the process ends: what a reader has left unread is not worth a traceback."""
    for stream in (sys.stdout, sys.stderr):
        _write(stream, "")


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:
        # The process was started with that descriptor closed.
        return
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        # What is left in the buffer would fail again when the interpreter ends.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
