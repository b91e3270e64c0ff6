"""Definitions shared by all commands that need nothing but the standard library: exit codes, plain output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from io import TextIOWrapper
from typing import Final, TextIO

from pravega_wire.errors import (
    ArchiveBusyError,
    ArchiveError,
    AuthenticationError,
    CorruptedStateError,
    DataLossError,
    DecodeError,
    FencedError,
    HostNotFoundError,
    IngestedSourceChangedError,
    IngestedStreamGoneError,
    IngestError,
    InvalidArgumentError,
    MissingExtraError,
    NotFoundError,
    PermissionDeniedError,
    PravegaError,
    SchemaNotFoundError,
    ScopeNotEmptyError,
    ServerTooOldError,
    StreamSealedError,
    TableKeyBadVersionError,
    TlsError,
    TransactionNotOpenError,
    TransactionOutcomeUnknownError,
    TransactionUnknownError,
    WrongProtocolError,
)

__all__ = [
    "EXIT_CODES",
    "AbsentError",
    "Exit",
    "exit_code",
    "flush",
    "let_go",
    "naming",
    "say",
    "show_all",
    "standard_input",
    "warn",
]


class Exit(IntEnum):
    """The exit codes of all commands."""

    DONE = 0
    """The command succeeded."""
    FAILED = 1
    """The server or the network failed; the same command may succeed later."""
    USAGE = 2
    """The arguments, the settings or the input are wrong, or what is there does not permit it: the same
    command fails again."""
    FENCED = 3
    """Another process is doing the same work."""
    UNDECIDED = 4
    """Continuing would lose or repeat data: a person has to decide."""
    NOTHING = 5
    """What the command is about does not exist: no file matches, no such scope, stream, group, table, key."""
    INTERRUPTED = 130
    """The user interrupted the command."""


EXIT_CODES = (
    "exit codes: 0 done; 1 the server or the network failed, or doctor found a problem; 2 wrong arguments, "
    "settings or input, or refused for good, as by a sealed stream; 3 another process is doing the same "
    "work; 4 a person has to decide; 5 "
    "no file matches, or what was named does not exist; 130 interrupted; 143 terminated"
)


_FINAL: Final = (
    InvalidArgumentError,
    IngestError,
    MissingExtraError,
    DecodeError,
    CorruptedStateError,
    # what is there does not permit it
    StreamSealedError,
    ScopeNotEmptyError,
    TableKeyBadVersionError,
    ArchiveError,
    DataLossError,
    TransactionNotOpenError,
    ServerTooOldError,
    # the settings are wrong
    AuthenticationError,
    PermissionDeniedError,
    HostNotFoundError,
    TlsError,
    WrongProtocolError,
)
"""Errors after which the same command fails again."""


class AbsentError(PravegaError):
    """What a command was asked for does not exist, and the server has no error for that."""


def exit_code(error: PravegaError) -> Exit:
    """Return the exit code for an error."""
    if isinstance(error, FencedError):
        return Exit.FENCED
    if isinstance(
        error, IngestedSourceChangedError | IngestedStreamGoneError | TransactionOutcomeUnknownError
    ):
        return Exit.UNDECIDED
    if isinstance(error, ArchiveBusyError):
        return Exit.FAILED
    if isinstance(error, _FINAL):
        return Exit.USAGE
    if isinstance(error, NotFoundError | AbsentError | SchemaNotFoundError | TransactionUnknownError):
        return Exit.NOTHING
    return Exit.FAILED


def say(text: str, *, end: str = "\n") -> None:
    """Write to standard output; a closed pipe is not an error."""
    with naming("standard output"):
        _write(sys.stdout, text + end)


@contextmanager
def naming(file: str) -> Iterator[None]:
    """Name a file in the errors of writing it, which have no name otherwise."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = file
        raise


def warn(text: str, *, end: str = "\n") -> None:
    """Write to standard error; a message that cannot be written is not an error."""
    try:
        _write(sys.stderr, text + end)
    except OSError:
        let_go(sys.stderr)


def flush() -> None:
    """Flush both outputs before the process ends, so that neither a closed pipe nor a full disk causes a
    traceback."""
    for stream in (sys.stdout, sys.stderr):
        try:
            _write(stream, "")
        except OSError:
            # It was reported when the text was written first.
            let_go(stream)


def show_all() -> None:
    """Let standard output show characters that its encoding does not have, as ``\\u2591``."""
    out = sys.stdout
    if not isinstance(out, TextIOWrapper):
        return
    # Python's choice for the locales C and POSIX; with UTF-8 it keeps the bytes of file names as they are.
    narrow = out.errors == "surrogateescape" and not out.encoding.lower().startswith("utf")
    if out.errors == "strict" or narrow:
        out.reconfigure(errors="backslashreplace")


def standard_input() -> TextIO:
    """Return the standard input.

    :raises InvalidArgumentError: the process was started with this descriptor closed.
    """
    if sys.stdin is None:
        raise InvalidArgumentError("the standard input is closed")
    return sys.stdin


def let_go(stream: TextIO) -> None:
    """Send an output whose reader has gone away to nowhere.

    Otherwise, writing the rest of its buffer would fail again when the interpreter ends.
    """
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:
        # The process was started with this descriptor closed.
        return
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        let_go(stream)
