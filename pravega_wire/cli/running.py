"""Runs the command line, and prints an error as one sentence.

It is imported by the installed program also where the extra ``cli`` is missing, so it needs neither click nor
rich: those are imported by :mod:`pravega_wire.cli.root`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pravega_wire import __version__
from pravega_wire.cli.common import Exit, exit_code, flush, let_go, say, show_all, warn
from pravega_wire.cli.ending import Terminated, at_once
from pravega_wire.cli.values import os_message
from pravega_wire.errors import AuthenticationError, PravegaError

if TYPE_CHECKING:
    import click

__all__ = ["run"]

PROGRAM = "pravega-wire"
MISSING = 'pravega-wire needs the extra "cli": pip install "pravega-wire[cli]"'


def run(argv: Sequence[str] | None) -> int:
    """Do what :func:`pravega_wire.cli.main.main` describes."""
    show_all()
    try:
        return _main(sys.argv[1:] if argv is None else list(argv))
    finally:
        flush()


def _main(arguments: list[str]) -> int:
    if not all(map(find_spec, ("click", "rich"))):
        if arguments == ["--version"]:
            say(f"pravega-wire {__version__}")
            return Exit.DONE
        warn(f"error: {MISSING}")
        return Exit.USAGE
    import click

    from pravega_wire.cli.frame import Session
    from pravega_wire.cli.root import COMMAND

    session = Session()
    try:
        try:
            try:
                result = _run(COMMAND, arguments, session)
            finally:
                at_once()
        except BaseExceptionGroup as group:
            from pravega_wire.support.nurseries import first_of

            # If several errors occurred together, only one is reported; an unexpected error is raised
            # unchanged.
            for kind in (Terminated, KeyboardInterrupt, BrokenPipeError, PravegaError, OSError):
                chosen = group.subgroup(kind)
                if chosen is not None:
                    raise first_of(chosen) from None
            raise
    except PravegaError as error:
        return _failed(session, " ".join(_message(session, error).split()), error, exit_code(error))
    except click.ClickException as error:
        return _misused(error)
    except BrokenPipeError:
        # Nobody reads the data any more, as after "| head".
        let_go(sys.stdout)
        return Exit.DONE
    except OSError as error:
        return _failed(session, os_message(error), error, Exit.USAGE)
    except Terminated as ended:
        warn("terminated")
        return 128 + ended.number
    except (KeyboardInterrupt, click.Abort):
        warn("interrupted")
        return Exit.INTERRUPTED
    return Exit.DONE if result is None else int(result)


def _run(command: click.Command, arguments: list[str], session: object) -> Any:
    """Run a command. Unlike ``command.main``, this leaves all errors to the caller."""
    import click
    from click.shell_completion import shell_complete

    from pravega_wire.cli.completion import VARIABLE

    if instruction := os.environ.get(VARIABLE):
        raise SystemExit(shell_complete(command, {}, PROGRAM, VARIABLE, instruction))
    try:
        with command.make_context(PROGRAM, arguments, obj=session) as context:
            return command.invoke(context)
    except click.exceptions.Exit as done:
        # Help or the version was shown.
        raise SystemExit(done.exit_code) from None


def _misused(error: click.ClickException) -> int:
    """Report a mistake in the arguments as one line, and end with status 2."""
    import click

    text = " ".join(error.format_message().split())
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        say(error.format_message())
        raise SystemExit(Exit.USAGE)
    where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "pravega-wire"
    warn(f"error: {text.rstrip('.')} (try: {where} --help)")
    raise SystemExit(Exit.USAGE)


def _message(session: Any, error: PravegaError) -> str:
    if not isinstance(error, AuthenticationError):
        return error.message
    from pravega_wire.cli.settings import refusal

    return refusal(error, session.resolved.config)


def _failed(session: Any, text: str, error: BaseException, code: Exit) -> int:
    """Report an error as one line; if the user wants to know more, its causes as well."""
    warn(f"error: {text}")
    if session.flags.get("verbose"):
        for cause in _causes(error):
            warn(f"  caused by {type(cause).__name__}: {' '.join(str(cause).split())}")
    return code


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen = {id(error)}
    cause = error.__cause__ or error.__context__
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__
