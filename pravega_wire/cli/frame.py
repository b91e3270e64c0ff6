"""What every command has: the connection and output options, its settings, and running its work under
trio."""

from __future__ import annotations

import functools
import importlib
import logging
import sys
import threading
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click
from click.shell_completion import CompletionItem

from pravega_wire.cli.common import warn
from pravega_wire.cli.ending import raising, terminable
from pravega_wire.cli.output import Output, is_terminal
from pravega_wire.cli.settings import CREDENTIALS, FILE_VARIABLE, PROFILE_VARIABLE, Resolved, resolve
from pravega_wire.cli.values import parse_duration, parse_port, parse_size, parse_time
from pravega_wire.errors import InvalidArgumentError, PravegaError
from pravega_wire.support import trouble
from pravega_wire.values.config import SETTINGS, PravegaConfig
from pravega_wire.values.naming import validate_user_name

if TYPE_CHECKING:
    from pravega_wire.stream.client import PravegaClient

__all__ = [
    "DURATION",
    "GROUP",
    "PORT",
    "SIZE",
    "STREAM",
    "TABLE",
    "TIME",
    "LazyGroup",
    "Named",
    "Session",
    "SharedOption",
    "WireCommand",
    "WireGroup",
    "confirm",
    "passed",
    "yes_option",
]

T = TypeVar("T")

_COMPLETION_SECONDS: Final = 3.0
_PATIENCE_SECONDS: Final = 1.0

CONNECTION: Final = "Connection"
OUTPUT: Final = "Output"

_OFTEN: Final = frozenset({"--controller", "--scope", "--profile"})
"""The connection options that the help of every command shows."""

_METAVARS: Final = {"_whole": "N", "_seconds": "SECONDS", "_boolean": "BOOL"}


class Session:
    """The settings of one run of a command.

    :ivar given: connection settings that were given as arguments: field to text.
    :ivar flags: the other shared arguments: ``profile``, ``file``, ``json``, ``verbose``.
    """

    def __init__(self) -> None:
        self.given: dict[str, str] = {}
        self.flags: dict[str, Any] = {}

    @functools.cached_property
    def resolved(self) -> Resolved:
        """The settings, and where each comes from."""
        return resolve(self.given, profile=self.flags.get("profile"), file=self.flags.get("file"))

    @functools.cached_property
    def out(self) -> Output:
        """Where the command prints its data."""
        return Output(as_json=bool(self.flags.get("json")))

    def call(self, work: Callable[[PravegaClient], Awaitable[T]], config: PravegaConfig | None = None) -> T:
        """Open a client, run the work with it under trio, and return its result.

        :param work: the work.
        :param config: the client's settings; default: :attr:`resolved`.
        :raises KeyboardInterrupt: Ctrl-C, or a signal, has ended the work.
        """
        from pravega_wire.stream.client import open_client

        settings = self.resolved.config if config is None else config

        async def with_client() -> T:
            async with open_client(settings) as client:
                # Once more: cleaning up needs the client's connections.
                with terminable():
                    return await work(client)

        return self.run(with_client)

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run work under trio that needs no client, and return its result.

        :raises KeyboardInterrupt: Ctrl-C, or a signal, has ended the work.
        """
        import trio

        async def ended_by_signals() -> T:
            with terminable():
                return await work()

        with warnings.catch_warnings():
            # Ctrl-C may come after a coroutine was made, and before it is awaited.
            warnings.filterwarnings("ignore", "coroutine '.*' was never awaited", RuntimeWarning)
            return trio.run(ended_by_signals)


def passed(function: Callable[..., T]) -> Callable[..., T]:
    """Pass the :class:`Session` to a command as its first argument."""
    return click.make_pass_decorator(Session, ensure=True)(function)


# --- types of arguments -----------------------------------------------------------------------------


class _Parsed(click.ParamType):  # type: ignore[type-arg]  # not generic before 8.5
    """A type of arguments whose parser raises InvalidArgumentError."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except InvalidArgumentError as error:
            self.fail(error.message, param, ctx)


SIZE: Final = _Parsed("size", parse_size)
PORT: Final = _Parsed("port", parse_port)
DURATION: Final = _Parsed("duration", parse_duration)
TIME: Final = _Parsed("time", lambda text: parse_time(text, time.time()))


class Named(click.ParamType):  # type: ignore[type-arg]  # not generic before 8.5
    """The name of a stream, group or table, which the shell completes by asking the server.

    :param kind: what it names: ``stream``, ``group`` or ``table``.
    """

    def __init__(self, kind: str) -> None:
        self.name = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Check that something is named; the client says what else the name of a stream must be."""
        if not value or value.endswith("/"):
            self.fail(f"the name of the {self.name} is empty", param, ctx)
        if self.name != "stream":
            try:
                validate_user_name(self.name, value.rpartition("/")[2])
            except InvalidArgumentError as error:
                self.fail(error.message, param, ctx)
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin like this; none if the server does not answer soon."""
        # Neither warnings nor errors may be printed into the line that is being typed.
        logging.getLogger("pravega_wire").addHandler(logging.NullHandler())
        try:
            found = _names(ctx.ensure_object(Session).resolved.config, self.name, incomplete)
        except (PravegaError, OSError, BaseExceptionGroup):
            return []
        return [CompletionItem(each) for each in sorted(found) if each.startswith(incomplete)]


def _names(config: PravegaConfig, kind: str, incomplete: str) -> list[str]:
    """Return full names in the scope that was typed; before that, scopes, and names in the default scope."""
    import trio

    from pravega_wire.stream.client import open_client

    scope, slash, _ = incomplete.partition("/")

    async def ask() -> list[str]:
        async with open_client(
            replace(config, operation_timeout=min(config.operation_timeout, _COMPLETION_SECONDS))
        ) as client:
            listing = {
                "stream": client.list_streams,
                "group": client.list_reader_groups,
                "table": client.list_key_value_tables,
            }[kind]
            if slash:
                return [str(each) for each in await listing(scope)]
            names = [f"{each}/" for each in await client.list_scopes() if not each.startswith("_")]
            if config.scope is not None:
                names += [each.name for each in await listing(config.scope)]
            return names

    return trio.run(ask)


STREAM: Final = Named("stream")
GROUP: Final = Named("group")
TABLE: Final = Named("table")


# --- warnings ---------------------------------------------------------------------------------------


class _Warnings(logging.Handler):
    """Prints what the client warns of on standard error.

    That a server is away and is tried again is printed only if the command still waits a second later: a
    server that restarts is often back by then, and otherwise the command has ended with an error.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._waiting: list[threading.Timer] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = f"warning: {' '.join(record.getMessage().split())}"
        if record.name != trouble.log.name:
            warn(text)
            return
        timer = threading.Timer(_PATIENCE_SECONDS, warn, [text])
        timer.daemon = True
        self._waiting.append(timer)
        timer.start()

    def close(self) -> None:
        for each in self._waiting:
            each.cancel()
        super().close()


@contextmanager
def warning() -> Iterator[None]:
    """Print warnings of the client during the block."""
    logger, handler = logging.getLogger("pravega_wire"), _Warnings()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


# --- shared options ---------------------------------------------------------------------------------


class SharedOption(click.Option):
    """An option that all commands have.

    :ivar section: the heading under which help shows it.
    """

    section: str = OUTPUT


def _shared(section: str, *names: str, **settings: Any) -> SharedOption:
    option = SharedOption(list(names), expose_value=False, **settings)
    option.section = section
    return option


def _sets_setting(field: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    def note(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
        if value is not None:
            context.ensure_object(Session).given[field] = value

    return note


def _sets_flag(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def note(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value:
            context.ensure_object(Session).flags[name] = value
            if name == "verbose":
                logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")

    return note


def shared_options() -> list[click.Parameter]:
    """Return new options for the connection and the output."""
    options: list[click.Parameter] = [
        _shared(
            CONNECTION,
            setting.option,
            metavar=_METAVARS.get(setting.parse.__name__, setting.field.rpartition("_")[2].upper()),
            help=f"{setting.meaning} (variable {setting.variable}; default "
            f"{setting.default.partition(' (')[0].strip('`')})",
            callback=_sets_setting(setting.field),
        )
        for setting in SETTINGS
        if setting.option is not None
    ]
    options += [
        _shared(
            CONNECTION,
            "--profile",
            metavar="NAME",
            help=f"profile of the configuration file with the settings (variable {PROFILE_VARIABLE}; "
            "default: the file's default-profile)",
            callback=_sets_flag("profile"),
        ),
        _shared(
            CONNECTION,
            "--config",
            metavar="FILE",
            help=f"configuration file (variable {FILE_VARIABLE}; default: "
            "~/.config/pravega-wire/config.toml)",
            callback=_sets_flag("file"),
        ),
        _shared(
            OUTPUT,
            "--json",
            is_flag=True,
            help="print data as JSON, one line for each record",
            callback=_sets_flag("json"),
        ),
        _shared(
            OUTPUT,
            "--verbose",
            is_flag=True,
            help="also show the cause of an error, and what the client logs",
            callback=_sets_flag("verbose"),
        ),
    ]
    return options


class _Help(click.Command):
    """Help with sections, and with examples.

    :param examples: shell lines; a line that begins with ``#`` is a comment.
    """

    def __init__(self, *args: Any, examples: Sequence[str] = (), **settings: Any) -> None:
        settings.setdefault(
            "context_settings", {"help_option_names": ["-h", "--help"], "max_content_width": 110}
        )
        super().__init__(*args, **settings)
        self.examples = tuple(examples)
        taken = {name for each in self.params for name in each.opts}
        self.params += [each for each in shared_options() if not taken & {*each.opts}]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. An error names this command, whose help says more."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            # The parser does not know the context of an option without its value.
            error.ctx = error.ctx or ctx
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in sections: the command's own, then the shared ones."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for each in self.get_params(ctx):
            record = each.get_help_record(ctx)
            if record is None or isinstance(each, click.Argument):
                continue
            if not isinstance(each, SharedOption):
                sections.setdefault("Options", []).append(record)
            elif ctx.parent is None or each.section == OUTPUT or each.opts[0] in _OFTEN:
                sections.setdefault(each.section, []).append(record)
        if ctx.parent is None:
            # No arguments, which every process of the machine can read.
            sections[CONNECTION].append(("(credentials)", CREDENTIALS))
        for section in ("Options", CONNECTION, OUTPUT):
            if section in sections:
                with formatter.section(section):
                    formatter.write_dl(sections[section])
        if ctx.parent is not None:
            formatter.write_paragraph()
            formatter.write_text("All connection options, and credentials: pravega-wire --help")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, then the epilog."""
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
        super().format_epilog(ctx, formatter)


class WireCommand(_Help):
    """A command with the shared options.

    :param needs_client: whether it uses the client, which takes long to import.
    """

    def __init__(self, *args: Any, needs_client: bool = True, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._needs_client = needs_client

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, whose arguments were understood."""
        if self._needs_client:
            importlib.import_module("pravega_wire.stream.client")
        raising()
        if ctx.ensure_object(Session).flags.get("verbose"):
            # The log is printed as it comes.
            return super().invoke(ctx)
        with warning():
            return super().invoke(ctx)


class WireGroup(_Help, click.Group):
    """A group of commands with the shared options, which its commands have as well."""

    command_class = WireCommand

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands first, then the options."""
        self.format_commands(ctx, formatter)
        _Help.format_options(self, ctx, formatter)


class LazyGroup(WireGroup):
    """The top of the command line, which imports a command's module when the command is used.

    :param lazy: name of each command, to its module and a short description.
    """

    def __init__(self, *args: Any, lazy: dict[str, tuple[str, str]], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.lazy = lazy
        # Only its keys are used: for "Did you mean ...?"
        self.commands = cast("Any", dict.fromkeys(lazy))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the table."""
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, importing its module."""
        if cmd_name not in self.lazy:
            return None
        module = importlib.import_module(self.lazy[cmd_name][0])
        command = module.COMMAND
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.lazy.items()])


# --- questions --------------------------------------------------------------------------------------


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is destroyed.

    :param question: what is going to be done, as a question.
    :param yes: whether the user has already agreed (``--yes``).
    :raises InvalidArgumentError: there is nobody to ask, or the answer is no.
    """
    if yes:
        return
    if not is_terminal(sys.stdin):
        raise InvalidArgumentError(f"{question} Nobody can be asked, as the input is no terminal: add --yes")
    if not click.confirm(question, err=True):
        raise InvalidArgumentError("nothing was changed")


yes_option: Final = click.option("--yes", "-y", is_flag=True, help="do not ask whether to go ahead")
"""The option that answers :func:`confirm` in advance."""
