"""Options of the format ``pravega``: one table for parsing, checking and documents."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, TypeAlias, get_args

from pravega_wire import Credentials, PravegaConfig, ScopedStream, SegmentRange
from pravega_wire.checks import check_bytes, check_count, check_seconds
from pravega_wire.errors import InvalidArgumentError
from spark_adapter.choice import Bounds, StreamChoice, bounds_of, choice_of

__all__ = [
    "COLUMNS",
    "CONNECTION",
    "EVERYWHERE",
    "OPTIONS",
    "READS",
    "WRITES",
    "Option",
    "ReadOptions",
    "Use",
    "boolean",
    "byte_count",
    "canonical",
    "check_end",
    "columns_given",
    "columns_of",
    "config_of",
    "config_options",
    "count",
    "decode_ranges",
    "encode_ranges",
    "number",
    "one_of",
    "option_table",
    "read_use",
    "schema_of",
    "stream_of",
]


Use: TypeAlias = Literal["read", "readStream", "write", "writeStream"]
"""Where it is given: ``spark.read``, ``spark.readStream``, ``DataFrame.write``, ``DataFrame.writeStream``."""

EVERYWHERE: tuple[Use, ...] = get_args(Use)
READS: tuple[Use, ...] = ("read", "readStream")
WRITES: tuple[Use, ...] = ("write", "writeStream")

_COLUMN_TYPES = {
    "event": "binary",
    "scope": "string",
    "stream": "string",
    "segment_id": "bigint",
    "offset": "bigint",
}

COLUMNS = tuple(_COLUMN_TYPES)
"""What is known of each event: its bytes, the stream, and the place of its header in a segment."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    :ivar name: as users write it; case does not matter. :ivar default: shown in the documents.
    :ivar meaning: one sentence. :ivar aliases: other names for it. :ivar uses: where it can be given.
    :ivar shown: whether users give it; False for what this package gives itself.
    """

    name: str
    default: str
    meaning: str
    aliases: tuple[str, ...] = ()
    uses: tuple[Use, ...] = EVERYWHERE
    shown: bool = True


OPTIONS = (
    Option("controller", "`tcp://localhost:9090`", "controller URI", ("controller_uri",)),
    Option("scope", "", "scope of a stream that is named without one"),
    Option("stream", "(required)", "`scope/stream`, or `stream` with the option `scope`"),
    Option(
        "streams",
        "",
        "several streams instead of `stream`, separated by commas",
        ("subscribe",),
        uses=READS,
    ),
    Option(
        "stream_pattern",
        "",
        "a regular expression instead of `stream`: all streams of `scope` of which it matches the whole name",
        ("subscribePattern",),
        uses=READS,
    ),
    Option(
        "start_stream_cut",
        "`earliest`",
        "where to begin: `earliest`, `latest`, `unbounded` or the text of a cut (of several streams: of each "
        "one, separated by commas)",
        ("startingOffsets",),
        uses=READS,
    ),
    Option(
        "end_stream_cut",
        "`latest`; of `readStream` `unbounded`",
        "where to end: `latest`, `unbounded` or the text of a cut, as above",
        ("endingOffsets",),
        uses=READS,
    ),
    Option(
        "starting_timestamp",
        "",
        "instead of `start_stream_cut`, the event time to begin at: milliseconds since the epoch, or ISO "
        "8601 with a time zone",
        ("startingTimestamp",),
        uses=READS,
    ),
    Option(
        "ending_timestamp",
        "",
        "instead of `end_stream_cut`, for `read`: the event time to end at",
        ("endingTimestamp",),
        uses=("read",),
    ),
    Option(
        "max_bytes_per_trigger",
        "(no limit)",
        "for `readStream`: bytes of a micro-batch at most, 8 for each event's header included",
        ("maxBytesPerTrigger", "approx_bytes_per_trigger"),
        uses=("readStream",),
    ),
    Option(
        "max_events_per_trigger",
        "(no limit)",
        "for `readStream`: events of a micro-batch at most",
        ("maxEventsPerTrigger", "maxOffsetsPerTrigger"),
        uses=("readStream",),
    ),
    Option(
        "stream_discovery_interval",
        "`60`",
        "for `readStream` with `stream_pattern`: seconds after which a trigger looks for new streams again",
        uses=("readStream",),
    ),
    Option(
        "fail_on_data_loss",
        "`true`",
        "`false`: skip what was truncated after the start, also while tasks run",
        ("failOnDataLoss",),
        uses=READS,
    ),
    Option(
        "max_partition_bytes",
        "(no limit)",
        "divide what lies in one segment into partitions of at most so many bytes; costs a pass over it",
        uses=READS,
    ),
    Option(
        "min_partitions",
        "(one a segment)",
        "divide the largest ranges between events until there are so many partitions; costs a pass over them",
        ("minPartitions",),
        uses=READS,
    ),
    Option(
        "columns",
        "(all)",
        "columns to read, separated by commas: `event`, `scope`, `stream`, `segment_id`, `offset`",
        uses=READS,
    ),
    Option(
        "include_metadata",
        "`true`",
        "`false`: read the column `event` alone, which is faster",
        uses=READS,
    ),
    Option(
        "semantic",
        "`exactly_once`",
        "`exactly_once`, `at_least_once` or `best_effort`: see below",
        uses=WRITES,
    ),
    Option(
        "exactly_once",
        "`true`",
        "the Scala connector's way to say it: `false` is `semantic=at_least_once`",
        uses=WRITES,
    ),
    Option(
        "event_col",
        "`event`",
        "column with the event: binary or string, or anything with `value_format=json`",
        uses=WRITES,
    ),
    Option(
        "value_format",
        "(by the column's type)",
        "`binary`, `string` (UTF-8) or `json`: the column `event_col`, or without one the whole row, as JSON",
        uses=WRITES,
    ),
    Option(
        "routing_key_col",
        "`routing_key` if there is such a column",
        "string column with the routing key; rows with a null have none",
        uses=WRITES,
    ),
    Option(
        "event_time_col",
        "",
        "column with the event time, a timestamp or whole milliseconds: the batch's greatest is noted with "
        "its commit (`exactly_once`)",
        uses=WRITES,
    ),
    Option(
        "ledger_stream",
        "`<stream>-spark-ledger`",
        "stream where `exactly_once` notes what it does, made if it does not exist",
        uses=WRITES,
    ),
    Option(
        "query",
        "Spark's id of the query",
        "name of the query in the ledger (`exactly_once`); keep it over restarts",
        uses=("writeStream",),
    ),
    Option(
        "sink_name",
        "",
        "tells sinks of one `query` to one stream apart in the ledger (`exactly_once`)",
        uses=("writeStream",),
    ),
    Option(
        "job_id",
        "",
        "name of the job in the ledger (`exactly_once`): what was written under it is not written again",
        uses=("write",),
    ),
    Option(
        "new_ledger",
        "`false`",
        "`true`: take a batch above 0 although the ledger does not know the query (`exactly_once`)",
        uses=("writeStream",),
    ),
    Option(
        "if_forgotten",
        "`raise`",
        "what to take a transaction for that the server has forgotten: `raise`, `committed` or `aborted` "
        "(`exactly_once`)",
        uses=WRITES,
    ),
    Option(
        "compact_after",
        "`1000`",
        "records after which the ledger is made short again (`exactly_once`)",
        uses=WRITES,
    ),
    Option(
        "transaction_timeout_ms",
        "`120000`",
        "lease of the transaction, 10000 to 600000 ms; renewed while tasks write (`exactly_once`; "
        "accepted without effect otherwise)",
        ("lease_ms",),
        uses=WRITES,
    ),
    Option(
        "read_after_write_consistency",
        "`true`",
        "`false`: a batch counts as done when its commit is recorded, a moment before readers see it "
        "(`exactly_once`; accepted without effect otherwise)",
        ("read_after_write",),
        uses=WRITES,
    ),
    Option(
        "transaction_status_poll_interval_ms",
        "",
        "accepted because the Scala connector has it, without effect: the pauses between two questions grow "
        "from 10 ms to 1 s",
        uses=WRITES,
    ),
    Option(
        "metadata",
        "",
        "a table to read instead of events: `StreamInfo`, `Streams`, `segments`, `epochs`, `transactions`, "
        "`groups`",
        uses=("read",),
    ),
    Option("allow_create_stream", "`true` to write, `false` to read", "make the stream if it is missing"),
    Option("allow_create_scope", "`true`", "make the scope of a stream that is made, if it is missing too"),
    Option("default_num_segments", "`1`", "segments of a stream that is made; with a rate, the fewest"),
    Option("default_scale_factor", "", "into how many a busy segment is split; needs a rate"),
    Option("default_segment_target_rate_bytes_per_sec", "", "bytes a second for a segment, from `1024`"),
    Option("default_segment_target_rate_events_per_sec", "", "or events a second"),
    Option("default_retention_duration_milliseconds", "(all)", "how long a stream that is made keeps data"),
    Option("default_retention_size_bytes", "(all)", "or how much of it"),
    Option("auth_method", "", "`Basic` or `Bearer`"),
    Option("auth_token", "", 'the encoded token (Spark hides options with "token" in their name)'),
    Option("trust_store", "", "PEM file of trusted certificates"),
    Option("validate_hostname", "`true`", "check the names in the servers' certificates"),
    Option("max_connections_per_store", "`10`", "connections to each segment store"),
    Option("controller_deadline", "`120`", "seconds that one controller call may take with all its attempts"),
    Option("operation_timeout", "`120`", "seconds that an operation may take with all its attempts"),
    Option(
        "segment_ranges", "", "set by `read_df`: what to read, resolved already", uses=("read",), shown=False
    ),
)

_SPELLINGS = {spelling.lower(): option for option in OPTIONS for spelling in (option.name, *option.aliases)}

# What Spark itself puts beside a query's options.
_OF_SPARK = frozenset({"checkpointlocation", "queryname"})


def option_table(*uses: Use) -> str:
    """The options that can be given in any of these places as a Markdown table, for the documents."""
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for option in OPTIONS:
        if option.shown and not set(uses).isdisjoint(option.uses):
            names = ", ".join(f"`{name}`" for name in (option.name, *option.aliases))
            lines.append(f"| {names} | {option.default} | {option.meaning} |")
    return "\n".join(lines)


def canonical(options: Mapping[str, str], use: Use) -> dict[str, str]:
    """What a user gave, by the names of :data:`OPTIONS`; Spark's own options are left out.

    :raises InvalidArgumentError: an option is unknown (the nearest name is suggested), belongs elsewhere, or
        is given twice under two names.
    """
    given: dict[str, str] = {}
    for key, value in options.items():
        if use in ("readStream", "writeStream") and key.lower() in _OF_SPARK:
            continue
        option = _SPELLINGS.get(key.lower())
        if option is None:
            # Spark asks for the columns of a read before it says whether that is a stream.
            near_uses = READS if use in READS else (use,)
            usable = [
                spelling for spelling, each in _SPELLINGS.items() if not set(near_uses).isdisjoint(each.uses)
            ]
            near = difflib.get_close_matches(key.lower(), usable, 1)
            hint = f"; did you mean {_SPELLINGS[near[0]].name!r}?" if near else ""
            raise InvalidArgumentError(f"unknown option {key!r}{hint}")
        if use not in option.uses:
            raise InvalidArgumentError(
                f"option {option.name!r} is for {' and '.join(option.uses)}, not for {use}"
            )
        if option.name in given:
            raise InvalidArgumentError(f"option {option.name!r} is given twice, under two names")
        given[option.name] = value
    return given


def read_use(options: Mapping[str, str]) -> Use:
    """Whether a read is a stream, as far as its options tell: Spark asks for columns before it says so."""
    for key in options:
        option = _SPELLINGS.get(key.lower())
        if key.lower() in _OF_SPARK or (option is not None and option.uses == ("readStream",)):
            return "readStream"
    return "read"


def stream_of(given: Mapping[str, str], config: PravegaConfig) -> ScopedStream:
    """The stream that the options name.

    :raises InvalidArgumentError: there is none, or it has no scope.
    """
    if not given.get("stream"):
        raise InvalidArgumentError("option 'stream' is required")
    return config.resolve(given["stream"])


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of one read, parsed.

    :ivar choice: the streams. :ivar start, end: where to begin and to end in each of them.
    :ivar max_partition_bytes: of a partition that has several events; None for one partition a segment.
    :ivar ranges: what to read where it is resolved already, else None.
    :ivar columns: names of the columns, in order.
    :ivar max_bytes, max_events: of a micro-batch; None for no limit.
    :ivar discovery_interval: seconds.
    :ivar min_partitions: of all partitions, where there are events enough; None for any number.
    """

    config: PravegaConfig
    choice: StreamChoice
    start: Bounds
    end: Bounds
    fail_on_data_loss: bool = True
    ranges: tuple[SegmentRange, ...] | None = None
    max_partition_bytes: int | None = None
    columns: tuple[str, ...] = COLUMNS
    max_bytes: int | None = None
    max_events: int | None = None
    discovery_interval: float = 60.0
    min_partitions: int | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str], use: Use = "read") -> Self:
        """Parse what a user gave; environment variables fill what is missing.

        :raises InvalidArgumentError: an option is unknown (the nearest name is suggested), given
            twice under two names, missing or malformed.
        """
        given = canonical(options, use)
        config = config_of(given)
        choice = choice_of(given, config)
        check_end("option 'end_stream_cut'", given.get("end_stream_cut"))
        start, end = (
            bounds_of(choice, (cut_name, given.get(cut_name)), (time_name, given.get(time_name)), default)
            for cut_name, time_name, default in (
                ("start_stream_cut", "starting_timestamp", "earliest"),
                ("end_stream_cut", "ending_timestamp", "latest" if use == "read" else "unbounded"),
            )
        )
        if choice.pattern is not None and end.cuts:
            raise InvalidArgumentError(
                "option 'end_stream_cut': cuts cannot be given with 'stream_pattern', which may match other "
                "streams as well; name the streams by 'streams'"
            )
        return cls(
            config,
            choice,
            start,
            end,
            boolean("fail_on_data_loss", given.get("fail_on_data_loss", "true")),
            decode_ranges(choice.names[0], given["segment_ranges"]) if "segment_ranges" in given else None,
            byte_count("max_partition_bytes", given.get("max_partition_bytes")),
            columns_given(given),
            byte_count("max_bytes_per_trigger", given.get("max_bytes_per_trigger")),
            count("max_events_per_trigger", given.get("max_events_per_trigger")),
            _seconds("stream_discovery_interval", given.get("stream_discovery_interval", "60")),
            count("min_partitions", given.get("min_partitions")),
        )


_PROPERTIES = {
    "controller": "pravega.controller.uri",
    "scope": "pravega.scope",
    "auth_method": "pravega.client.auth.method",
    "auth_token": "pravega.client.auth.token",
    "trust_store": "pravega.client.tls.trust-store",
    "validate_hostname": "pravega.client.tls.validate-hostname",
}
_NUMBERS: Mapping[str, Callable[[str], int | float]] = {
    "max_connections_per_store": int,
    "controller_deadline": float,
    "operation_timeout": float,
}


CONNECTION = frozenset(_PROPERTIES) | frozenset(_NUMBERS)
"""The options that say how to reach the servers, with the default scope."""


def config_of(given: Mapping[str, str]) -> PravegaConfig:
    """The configuration that the options give; environment variables fill what is missing.

    :raises InvalidArgumentError: a value is malformed.
    """
    props = {_PROPERTIES[name]: given[name] for name in _PROPERTIES if given.get(name)}
    base = PravegaConfig.from_defaults(props=props)
    numbers: dict[str, Any] = {}
    for name, kind in _NUMBERS.items():
        if given.get(name):
            try:
                numbers[name] = kind(given[name])
            except ValueError:
                raise InvalidArgumentError(f"option {name!r}: {given[name]!r} is not a number") from None
    return replace(base, **numbers)


def config_options(config: PravegaConfig) -> dict[str, str]:
    """The options that give this configuration again."""
    credentials: Credentials | None = config.credentials
    options = {
        "controller": config.controller_uri,
        "scope": config.default_scope or "",
        "auth_method": "" if credentials is None else credentials.method,
        "auth_token": "" if credentials is None else credentials.token,
        "trust_store": config.trust_store or "",
        "validate_hostname": str(config.validate_hostname).lower(),
    }
    for name in _NUMBERS:
        options[name] = str(getattr(config, name))
    return {name: value for name, value in options.items() if value}


def encode_ranges(ranges: Iterable[SegmentRange]) -> str:
    """Ranges of one stream as text, for the option ``segment_ranges``."""
    return json.dumps([[each.segment_id, each.start_offset, each.end_offset] for each in ranges])


def decode_ranges(stream: ScopedStream, text: str) -> tuple[SegmentRange, ...]:
    """Ranges from text; :class:`InvalidArgumentError` if it is not of :func:`encode_ranges`."""
    try:
        return tuple(SegmentRange(stream, *(int(n) for n in each)) for each in json.loads(text))
    except (ValueError, TypeError) as error:
        raise InvalidArgumentError(f"option 'segment_ranges': {error}") from error


def check_end(name: str, end: object) -> None:
    """Refuse an end that nothing can come before.

    :raises InvalidArgumentError: it is ``earliest``: the range would be empty whatever is in the stream.
    """
    if isinstance(end, str) and end.strip().lower() == "earliest":
        raise InvalidArgumentError(
            f"{name}: nothing comes before 'earliest'; an end is 'latest', 'unbounded' or the text of a cut"
        )


def columns_of(name: str, columns: str | Iterable[str] | None) -> tuple[str, ...]:
    """The columns that are asked for, in the order given; all of them without any.

    :param name: of the argument or option, for messages. :param columns: names, or a text with commas.
    :raises InvalidArgumentError: no column has a name (the nearest one is suggested), or one is named twice.
    """
    if columns is None:
        return COLUMNS
    split = columns.split(",") if isinstance(columns, str) else columns
    found = tuple(each.strip().lower() if isinstance(each, str) else each for each in split)
    for each in found:
        if each not in _COLUMN_TYPES:
            near = difflib.get_close_matches(str(each), COLUMNS, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InvalidArgumentError(
                f"{name}: there is no column {each!r}, the columns are {', '.join(COLUMNS)}{hint}"
            )
    if len(set(found)) < len(found):
        raise InvalidArgumentError(f"{name}: a column is named twice in {', '.join(found)}")
    if not found:
        raise InvalidArgumentError(f"{name}: name at least one of {', '.join(COLUMNS)}")
    return found


def columns_given(given: Mapping[str, str]) -> tuple[str, ...]:
    """The columns that the options ``columns`` and ``include_metadata`` ask for.

    :raises InvalidArgumentError: they contradict each other; others as :func:`columns_of`.
    """
    with_metadata = boolean("include_metadata", given.get("include_metadata", "true"))
    if "columns" in given and not with_metadata:
        raise InvalidArgumentError(
            "option 'include_metadata' is false and the columns are named by 'columns': give one of the two"
        )
    return columns_of("option 'columns'", given.get("columns")) if with_metadata else ("event",)


def schema_of(columns: Iterable[str] = COLUMNS) -> str:
    """The columns with their types, for Spark to parse.

    In quotes: ``offset`` is a reserved word where ``spark.sql.ansi.enforceReservedKeywords`` is set.
    """
    return ", ".join(f"`{name}` {_COLUMN_TYPES[name]}" for name in columns)


def count(name: str, text: str | None) -> int | None:
    """The number over 0 that an option gives, or None without it."""
    return _number(name, text, check_count)


def byte_count(name: str, text: str | None) -> int | None:
    """The number of bytes that an option gives, or None without it."""
    return _number(name, text, check_bytes)


def _number(name: str, text: str | None, check: Callable[[str, object], int]) -> int | None:
    if not text:
        return None
    try:
        return check(f"option {name!r}", int(text))
    except InvalidArgumentError:
        raise
    except ValueError:
        raise InvalidArgumentError(f"option {name!r}: {text!r} is not a whole number") from None


def number(name: str, text: str, lowest: int, highest: int | None = None) -> int:
    """The whole number that an option gives, within its limits."""
    try:
        value = int(text)
    except ValueError:
        raise InvalidArgumentError(f"option {name!r}: {text!r} is not a whole number") from None
    if value < lowest or (highest is not None and value > highest):
        limits = f"at least {lowest}" if highest is None else f"in {lowest}..{highest}"
        raise InvalidArgumentError(f"option {name!r}: {value} is not {limits}")
    return value


def one_of(name: str, text: str, choices: Sequence[str]) -> str:
    """What an option says that has a few values; case does not matter."""
    if text.lower() not in choices:
        raise InvalidArgumentError(f"option {name!r}: {text!r} is not one of {', '.join(choices)}")
    return text.lower()


def _seconds(name: str, text: str) -> float:
    try:
        return check_seconds(f"option {name!r}", float(text), zero=True)
    except InvalidArgumentError:
        raise
    except ValueError:
        raise InvalidArgumentError(f"option {name!r}: {text!r} is not a number of seconds") from None


def boolean(name: str, text: str) -> bool:
    """What an option says that is true or false."""
    if text.lower() not in ("true", "false"):
        raise InvalidArgumentError(f"option {name!r}: {text!r} is neither true nor false")
    return text.lower() == "true"
