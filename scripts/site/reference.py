"""The reference as Markdown pages, made when the site is built: none of it is written by hand or committed.

Names come from the ``__all__`` of the public modules; :mod:`hooks` gives the pages to mkdocs.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterable
from importlib import import_module

import click

FOLDER = "reference"

TOPICS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "client": (
        "Client and configuration",
        "Opening a client, and what it is configured with.",
        (
            "open_client", "PravegaClient", "PravegaConfig", "Credentials", "Opening", "ScopedStream",
            "StreamConfiguration", "ScalingPolicy", "RetentionPolicy", "StreamInfo", "StreamLayout",
            "LayoutSegment", "SegmentWithRange", "Successors", "PravegaError",
        ),
    ),
    "writing": (
        "Writing events",
        "Writers, acknowledgements and transactions.",
        (
            "EventWriter", "ResumableWriter", "Ack", "Transaction", "OpenTransaction", "TxnStatus",
            "Staging", "StagingWriter", "StagedBytes", "MAX_EVENT_BYTES",
        ),
    ),
    "reading": (
        "Reading events",
        "Reads between two positions, without coordination, and the positions themselves.",
        (
            "RangesReader", "StreamFollower", "EventBatch",
            "SegmentRange", "StreamCut", "CutOrder", "Bound", "OnTruncated", "EventPointer", "BoundaryIndex",
            "LeadingPart",
        ),
    ),
    "reader-groups": (
        "Reader groups",
        "Readers that share the segments of streams, checkpoints and event time.",
        (
            "ReaderGroup", "ReaderGroupConfig", "RetentionType", "EventReader", "Event",
            "Position", "Checkpoint", "OutstandingCheckpoint", "OnlineReader",
            "OnlineReaders", "ReaderGroupMetrics", "TimeWindow", "Watermark", "WatermarkSegment",
            "WatermarkAssigner", "EventTimeOrder",
        ),
    ),
    "state": (
        "Shared state",
        "Revisioned streams, state synchronizers, and records with versions.",
        (
            "RevisionedStream", "RevisionReader", "Revision", "StateSynchronizer", "StateFormat",
            "VersionedSerializer", "VersionedUnionSerializer",
        ),
    ),
    "tables": (
        "Key-value tables",
        "Tables of keys and values with versions.",
        (
            "KeyValueTable", "KeyValueTableConfiguration", "TableFamily", "TableKey",
            "TableEntry", "TableIterator", "KeyValueVersion", "Insert", "Put", "Remove",
        ),
    ),
    "byte-streams": (
        "Byte streams",
        "Streams of bytes without events.",
        ("ByteStreamWriter", "ByteStreamReader"),
    ),
}  # fmt: skip
"""Pages of ``pravega_wire``: page, title, first sentence, names."""

ELSEWHERE = ("CallMetrics", "ClientMetrics", "ReaderMetrics", "WriterMetrics")
"""Names of ``pravega_wire`` that are on the page of ``pravega_wire.metrics``, which exports them as well."""

MODULES: dict[str, tuple[str, str]] = {
    "sync": ("pravega_wire.sync", "Blocking client"),
    "aio": ("pravega_wire.aio", "Client for asyncio"),
    "serializers": ("pravega_wire.serializers", "Serializers"),
    "schemas": ("pravega_wire.schemas", "Schemas"),
    "debezium": ("pravega_wire.schemas.debezium", "Change data"),
    "metrics": ("pravega_wire.metrics", "Metrics"),
    "telemetry": ("pravega_wire.telemetry", "OpenTelemetry"),
    "ingest": ("pravega_wire.ingest", "Ingestion"),
    "archive": ("pravega_wire.archive", "Archives"),
    "dissect": ("pravega_wire.dissect", "Dissector"),
    "testing": ("pravega_wire.testing", "Test servers"),
    "spark": ("spark_adapter", "Spark"),
    "spark-schemas": ("spark_adapter.schemas", "Spark schemas"),
    "spark-catalog": ("spark_adapter.catalog", "Spark catalog"),
    "spark-archives": ("spark_adapter.archives", "Spark archives"),
    "spark-telemetry": ("spark_adapter.telemetry", "Spark metrics"),
}
"""Pages of the other public modules: page, module, title."""

FIXTURES = ("pravega_server", "pravega_cluster", "pravega_scope", "pravega_schema_registry", "fault_proxy")

PLACES = {
    "read": "spark.read",
    "readStream": "spark.readStream",
    "write": "DataFrame.write",
    "writeStream": "DataFrame.writeStream",
}
"""Where an option of the Spark format is given, as a user writes it."""


def pages() -> dict[str, str]:
    """Every page, by its path under ``docs/``."""
    made = {f"{FOLDER}/index.md": _index(), f"{FOLDER}/errors.md": _errors()}
    for name, (title, intro, names) in TOPICS.items():
        made[f"{FOLDER}/{name}.md"] = _page(title, intro, "pravega_wire", names)
    for name, (module, title) in MODULES.items():
        made[f"{FOLDER}/{name}.md"] = _module(module, title)
    made[f"{FOLDER}/settings.md"] = _settings()
    made[f"{FOLDER}/spark-options.md"] = _spark_options()
    made[f"{FOLDER}/command-line.md"] = _command_line()
    return made


def public_names() -> dict[str, tuple[str, ...]]:
    """What the reference has to have: the names that each public module exports, and the fixtures."""
    wanted = {
        module: tuple(import_module(module).__all__)
        for module in ("pravega_wire", "pravega_wire.errors", *(module for module, _ in MODULES.values()))
    }
    return {**wanted, "pravega_wire.pytest_plugin": FIXTURES}


def _entry(path: str, **options: object) -> str:
    chosen = "".join(f"        {name}: {str(value).lower()}\n" for name, value in options.items())
    return f"::: {path}\n" + (f"    options:\n{chosen}" if chosen else "")


def _page(title: str, intro: str, module: str, names: Iterable[str]) -> str:
    return f"# {title}\n\n{intro}\n\n" + "\n".join(_entry(f"{module}.{name}") for name in names)


def _module(module: str, title: str) -> str:
    package = import_module(module)
    first = (inspect.getdoc(package) or "").split("\n\n")[0].replace("\n", " ").replace("``", "`")
    # Classes before functions, as what they are is what a reader looks for; open_client before both.
    names = sorted(package.__all__, key=lambda name: (name != "open_client", name.lower()))
    text = _page(title, f"`{module}`: {_plain(first)}", module, names)
    if module == "pravega_wire.testing":
        text += "\n## Fixtures of pytest\n\nInstalling the package registers them.\n\n"
        text += "\n".join(_entry(f"pravega_wire.pytest_plugin.{name}") for name in FIXTURES)
    return text


def _plain(text: str) -> str:
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)


# --- the pages that are more than a list of names ------------------------------------------------


def _index() -> str:
    lines = [
        "# Reference",
        "",
        "Every public name, with its documentation from the code. [What is public](../public.md)",
        "says what that means for versions.",
        "",
        "| page | what is there |",
        "|---|---|",
    ]
    for name, (title, intro, names) in TOPICS.items():
        some = ", ".join(f"`{each}`" for each in names[:4])
        lines.append(f"| [{title}]({name}.md) | {intro} {some}{', …' if len(names) > 4 else ''} |")
    lines.append(
        "| [Errors](errors.md) | All errors as a tree, and the fields of each one. `pravega_wire.errors` |"
    )
    for name, (module, title) in MODULES.items():
        lines.append(f"| [{title}]({name}.md) | `{module}` |")
    lines += [
        "| [Settings](settings.md) | Every setting, with its property, variable and program argument. |",
        '| [Spark options](spark-options.md) | Options of `format("pravega")`. |',
        "| [Command line](command-line.md) | `pravega-wire` and its commands. |",
    ]
    return "\n".join(lines) + "\n"


def _first_sentence(value: object) -> str:
    text = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", _plain(text).replace("``", "`"))[0]


def _errors() -> str:
    from pravega_wire import errors

    public = {name: getattr(errors, name) for name in errors.__all__}
    classes = [each for each in public.values() if inspect.isclass(each)]
    lines = [
        "# Errors",
        "",
        "Every error of the package has one root: `except PravegaError` catches all of them, and a branch of",
        "the tree catches everything below it. An error with several bases appears under each of them.",
        "The class attribute `retriable` says whether the same call may succeed later without a change by",
        "the caller.",
        "",
        "## The tree",
        "",
    ]

    def branch(cls: type, depth: int) -> None:
        # As HTML ids are unique, the entry below has the anchor and the tree links to it.
        also = [each.__name__ for each in cls.__bases__ if each not in classes and each is not Exception]
        note = f" (also `{'`, `'.join(also)}`)" if also else ""
        retriable = ", retriable" if getattr(cls, "retriable", False) else ""
        lines.append(
            f"{'    ' * depth}- [`{cls.__name__}`][pravega_wire.errors.{cls.__name__}]{note}{retriable}: "
            f"{_first_sentence(cls)}"
        )
        for below in sorted(classes, key=lambda each: each.__name__):
            if cls in below.__bases__:
                branch(below, depth + 1)

    branch(errors.PravegaError, 0)
    lines += ["", "## Each error", ""]
    ordered = sorted(public, key=lambda name: (name != "PravegaError", name))
    # The root's fields are those of all: repeating the inherited ones under each says nothing new.
    lines += [
        _entry(f"pravega_wire.errors.{name}", heading_level=3, show_bases=True, inherited_members=False)
        for name in ordered
    ]
    return "\n".join(lines)


def _settings() -> str:
    from pravega_wire.values.config import SETTINGS

    lines = [
        "# Settings",
        "",
        "What `PravegaConfig.from_defaults` looks for, and where. [Configuration](../configuration.md)",
        "explains the order. In Spark's configuration each property has the prefix `spark.`.",
        "",
        "| setting | argument | property | environment variable | program argument | default | meaning |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in SETTINGS:
        option = f"`{each.option}`" if each.option else "none"
        lines.append(
            f"| `{each.field}` | `{each.argument}` | `{each.property_key}` | `{each.variable}` | {option} | "
            f"{_from_here(each.default)} | {_from_here(each.meaning)} |"
        )
    return "\n".join(lines) + "\n"


def _from_here(text: str) -> str:
    """A table's text whose links are those of a page in ``docs/``, for a page one folder further down."""
    text = re.sub(r"`docs/([\w/-]+)\.md`", r"[\1](\1.md)", text)
    return re.sub(r"\]\((?![a-z]+:|#|\.\./)", "](../", text)


def _spark_options() -> str:
    from spark_adapter.options.read import EVERYWHERE, OPTIONS

    lines = [
        "# Spark options",
        "",
        'Options of the format `pravega`: `spark.read.format("pravega").option(name, value)`.',
        "Their names are not case-sensitive. The pages [Reading](../spark-reading.md),",
        "[Streams](../spark-streams.md) and [Writing](../spark-writing.md) explain them.",
    ]
    for use in EVERYWHERE:
        lines += [
            "",
            f"## `{PLACES[use]}`",
            "",
            "| option | other names | default | meaning |",
            "|---|---|---|---|",
        ]
        for each in OPTIONS:
            if each.shown and use in each.uses:
                others = ", ".join(f"`{name}`" for name in each.aliases)
                lines.append(
                    f"| `{each.name}` | {others} | {_from_here(each.default)} | {_from_here(each.meaning)} |"
                )
    return "\n".join(lines) + "\n"


def _command_line() -> str:
    from pravega_wire.cli.root import COMMAND
    from pravega_wire.cli.server import command_line

    lines = ["# Command line", "", "[The guide](../command-line.md) explains how to use it.", ""]
    lines += _command(COMMAND, click.Context(COMMAND, info_name="pravega-wire"), 2)
    lines += _parser(command_line(), 2)
    return "\n".join(lines) + "\n"


def _sentence(text: str | None) -> str:
    text = " ".join((text or "").split())
    return text if not text or text[-1] in ".:!?" else f"{text}."


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def _command(command: click.Command, context: click.Context, level: int) -> list[str]:
    """A section for a command, and one for each command below it."""
    from pravega_wire.cli.frame import SharedOption

    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    lines = [f"{'#' * level} `{context.command_path}`", "", "```text", usage, "```", ""]
    if command.help:
        lines += [_sentence(command.help).replace("<", "&lt;").replace("*", "\\*"), ""]
    rows = []
    for each in command.get_params(context):
        record = each.get_help_record(context)
        # The options that all commands have are listed once.
        shared = isinstance(each, SharedOption) and context.parent is not None
        if record is None or shared or isinstance(each, click.Argument) or "--help" in each.opts:
            continue
        rows.append(f"| `{record[0]}` | {_cell(record[1])} |")
    if rows:
        lines += ["| option | meaning |", "|---|---|", *rows, ""]
    if examples := getattr(command, "examples", ()):
        lines += ["```sh", *examples, "```", ""]
    if command.epilog:
        lines += [_sentence(command.epilog), ""]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            lines += _command(below, click.Context(below, info_name=name, parent=context), min(level + 1, 6))
    return lines


def _parser(parser: argparse.ArgumentParser, level: int) -> list[str]:
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    lines = [f"{'#' * level} `{parser.prog}`", "", "```text", usage, "```", ""]
    if parser.description:
        lines += [_sentence(parser.description), ""]
    rows: list[str] = []
    below: list[argparse.ArgumentParser] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below += dict.fromkeys(action.choices.values())
            continue
        help_ = action.help if action.help != argparse.SUPPRESS else None
        if help_ is None:
            continue
        text = parser._get_formatter()._expand_help(action)
        if action.option_strings:
            value = "" if action.nargs == 0 else f" {action.metavar or (action.dest.upper())}"
            name = ", ".join(f"`{each}{value}`" for each in action.option_strings)
        else:
            name = f"`{action.metavar or action.dest}`"
        default = ""
        if action.default not in (None, argparse.SUPPRESS, False, []) and "default" not in text:
            default = f"`{action.default}`"
        rows.append(f"| {name} | {_cell(text)} | {default} |")
    if rows:
        lines += ["| argument | meaning | default |", "|---|---|---|", *rows, ""]
    if parser.epilog:
        lines += [f"{_sentence(parser.epilog[:1].upper() + parser.epilog[1:])}", ""]
    for each in below:
        lines += _parser(each, level + 1)
    return lines
