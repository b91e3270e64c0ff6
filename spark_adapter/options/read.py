"""Options of the format ``pravega``.

One table, :data:`OPTIONS`, is used to parse and check options; a test compares it with the tables in
``docs/spark-reading.md`` and ``docs/spark-writing.md``.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, TypeAlias, get_args

from pravega_wire import Credentials, PravegaConfig, ScopedStream, SegmentRange
from pravega_wire.errors import InvalidArgumentError
from pravega_wire.support.checks import check_several
from spark_adapter.options.quantities import byte_count, count, seconds
from spark_adapter.options.streams import (
    NO_TABLE,
    Bounds,
    StreamChoice,
    bounds_of,
    choice_of,
    stream_named,
    stream_required,
)

__all__ = [
    "COLUMNS",
    "CONNECTION",
    "EVERYWHERE",
    "MOST_PARTITIONS",
    "OPTIONS",
    "READS",
    "WRITES",
    "Option",
    "ReadOptions",
    "Use",
    "boolean",
    "canonical",
    "check_end",
    "columns_given",
    "columns_of",
    "config_of",
    "config_options",
    "decode_ranges",
    "encode_ranges",
    "option_table",
    "quoted",
    "read_use",
    "schema_of",
    "stream_of",
]


Use: TypeAlias = Literal["read", "readStream", "write", "writeStream"]
"""Where an option is set: ``spark.read``, ``spark.readStream``, ``DataFrame.write`` or
``DataFrame.writeStream``."""

EVERYWHERE: tuple[Use, ...] = get_args(Use)
READS: tuple[Use, ...] = ("read", "readStream")
WRITES: tuple[Use, ...] = ("write", "writeStream")

MOST_PARTITIONS = 1_000_000
"""The largest ``min_partitions``. Spark's driver keeps a few kilobytes for each task of a job."""

_COLUMN_TYPES = {
    "event": "binary",
    "scope": "string",
    "stream": "string",
    "segment_id": "bigint",
    "offset": "bigint",
}

COLUMNS = tuple(_COLUMN_TYPES)
"""The columns of an event: its bytes, its stream, its segment, and the offset of its header in the
segment."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of the format.

    :ivar name: the name that users write; case does not matter.
    :ivar default: the default, as the documentation shows it.
    :ivar meaning: a short description for the documentation.
    :ivar aliases: other names for the option.
    :ivar uses: where the option can be set.
    :ivar shown: True if users set it; False if only this package does.
    """

    name: str
    default: str
    meaning: str
    aliases: tuple[str, ...] = ()
    uses: tuple[Use, ...] = EVERYWHERE
    shown: bool = True


OPTIONS = (
    Option("controller", "`tcp://localhost:9090`", "URI of the controller", ("controller_uri",)),
    Option("scope", "", "scope for stream names without one"),
    Option("stream", "(required)", "name of the stream: `scope/stream`, or `stream` with the option `scope`"),
    Option(
        "stream_col",
        "",
        "string column with the name of each row's stream, instead of `stream` (`at_least_once`, "
        "`best_effort`); it is no part of the event",
        uses=WRITES,
    ),
    Option("most_streams", "`100`", "the most streams that the rows of one partition may name", uses=WRITES),
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
        "a regular expression instead of `stream`: all streams of `scope` whose whole name it matches",
        ("subscribePattern",),
        uses=READS,
    ),
    Option(
        "start_stream_cut",
        "`earliest`",
        "where to start: `earliest`, `latest`, `unbounded`, the text of a stream cut, or [a place for each "
        "stream](spark-reading.md#several-streams-and-times) as JSON",
        ("startingOffsets",),
        uses=READS,
    ),
    Option(
        "end_stream_cut",
        "`latest`; for `readStream` `unbounded`",
        "where to end: `latest`, `unbounded`, the text of a stream cut, or a place for each stream",
        ("endingOffsets",),
        uses=READS,
    ),
    Option(
        "starting_timestamp",
        "",
        "the event time to start at, instead of `start_stream_cut`: milliseconds since 1970, or ISO 8601 "
        "with a time zone",
        ("startingTimestamp",),
        uses=READS,
    ),
    Option(
        "ending_timestamp",
        "",
        "the event time to end at, instead of `end_stream_cut`",
        ("endingTimestamp",),
        uses=READS,
    ),
    Option(
        "max_bytes_per_trigger",
        "(no limit)",
        "for `readStream`: the largest size of a micro-batch in bytes, including 8 bytes of header for each "
        "event",
        ("maxBytesPerTrigger", "approx_bytes_per_trigger"),
        uses=("readStream",),
    ),
    Option(
        "max_events_per_trigger",
        "(no limit)",
        "for `readStream`: the largest number of events in a micro-batch",
        ("maxEventsPerTrigger", "maxOffsetsPerTrigger"),
        uses=("readStream",),
    ),
    Option(
        "min_bytes_per_trigger",
        "",
        "for `readStream`: do not begin a micro-batch with less unread data than this, in bytes, until "
        "`max_trigger_delay` has passed",
        ("minBytesPerTrigger",),
        uses=("readStream",),
    ),
    Option(
        "min_events_per_trigger",
        "",
        "for `readStream`: the same as a number of events",
        ("minEventsPerTrigger", "minOffsetsPerTrigger"),
        uses=("readStream",),
    ),
    Option(
        "max_trigger_delay",
        "`15m`",
        "for `readStream` with one of these two: the longest time between the beginnings of two "
        "micro-batches if there is unread data, with a unit: `30s`, `5 minutes`",
        ("maxTriggerDelay",),
        uses=("readStream",),
    ),
    Option(
        "stream_discovery_interval",
        "`60`",
        "for `readStream` with `stream_pattern`: interval in seconds between searches for new streams",
        uses=("readStream",),
    ),
    Option(
        "fail_on_data_loss",
        "`true`",
        "`false`: skip data after the start that was truncated, before or while tasks read it, instead of "
        "failing",
        ("failOnDataLoss",),
        uses=READS,
    ),
    Option(
        "max_partition_bytes",
        "(no limit)",
        "split the data of each segment into partitions of at most this many bytes; costs one pass over the "
        "data on the driver",
        uses=READS,
    ),
    Option(
        "max_partition_events",
        "(no limit)",
        "split the data of each segment into partitions of at most this many events; costs one pass over the "
        "data on the driver",
        ("maxRecordsPerPartition",),
        uses=READS,
    ),
    Option(
        "min_partitions",
        "(one for each segment)",
        "split the largest ranges, between events, until there are at least this many partitions (at most "
        "1 000 000); costs one pass over their data on the driver",
        ("minPartitions",),
        uses=READS,
    ),
    Option(
        "limit",
        "(all)",
        "for `read`: the largest number of events to read, the first ones in the order of partitions",
        uses=("read",),
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
        "the guarantee: `exactly_once`, `at_least_once` or `best_effort` (see below)",
        uses=WRITES,
    ),
    Option(
        "exactly_once",
        "`true`",
        "the Scala connector's name for the guarantee: `false` means `semantic=at_least_once`",
        uses=WRITES,
    ),
    Option(
        "event_col",
        "`event`",
        "column with the event: binary or string; any type with `value_format=json`",
        uses=WRITES,
    ),
    Option(
        "value_format",
        "(by the column's type)",
        "`binary`, `string` (UTF-8) or `json` (the column `event_col`, or the whole row if `event_col` is "
        "not set)",
        uses=WRITES,
    ),
    Option(
        "routing_key_col",
        "`routing_key` if there is such a column",
        "string column with the routing key; a null means no routing key. As in Spark, names of columns may "
        "differ in upper and lower case",
        uses=WRITES,
    ),
    Option(
        "event_time_col",
        "",
        "column with the event time, a timestamp or integer milliseconds; the largest value of a batch is "
        "noted with its commit, so that the server makes watermarks (`exactly_once`); a null and -2^63 mean "
        "none",
        uses=WRITES,
    ),
    Option(
        "ledger_stream",
        "`<stream>-spark-ledger`",
        "stream in which `exactly_once` records its progress; created if it does not exist",
        uses=WRITES,
    ),
    Option(
        "query",
        "Spark's id of the query",
        "name of the query in the ledger (`exactly_once`); use the same name after a restart",
        uses=("writeStream",),
    ),
    Option(
        "sink_name",
        "",
        "distinguishes several sinks of one `query` that write to the same stream (`exactly_once`)",
        uses=("writeStream",),
    ),
    Option(
        "job_id",
        "",
        "name of the job in the ledger (`exactly_once`): a job that has already been written under this "
        "name is not written again",
        uses=("write",),
    ),
    Option(
        "new_ledger",
        "`false`",
        "`true`: accept a batch above 0 although the ledger has no record of the query (`exactly_once`)",
        uses=("writeStream",),
    ),
    Option(
        "allow_same_stream",
        "`false`",
        "`true`: the query may write to [a stream that it "
        "reads](spark-writing.md#a-query-that-reads-what-it-writes)",
        uses=("writeStream",),
    ),
    Option(
        "if_forgotten",
        "`raise`",
        "what to assume about a transaction that the server has no record of: `committed`, `aborted`, or "
        "nothing (`raise` fails) (`exactly_once`)",
        uses=WRITES,
    ),
    Option(
        "on_older_checkpoint",
        "`raise`",
        "what to do if [the checkpoint is older](spark-checkpoints.md) than what was written: refuse the "
        "batch, or `continue_at`: write it after what exists (`exactly_once`)",
        uses=("writeStream",),
    ),
    Option(
        "compact_after",
        "`1000`",
        "number of records after which the ledger is compacted (`exactly_once`)",
        uses=WRITES,
    ),
    Option(
        "transaction_timeout_ms",
        "`120000`",
        "lease of the transaction, 10000 to 600000 ms; renewed while tasks write (`exactly_once`; no effect "
        "otherwise)",
        uses=WRITES,
    ),
    Option(
        "read_after_write_consistency",
        "`true`",
        "`false`: a batch counts as done when its commit is recorded, shortly before readers see it; "
        "the next batch waits for that (`exactly_once`; no effect otherwise)",
        ("read_after_write",),
        uses=WRITES,
    ),
    Option(
        "transaction_status_poll_interval_ms",
        "",
        "no effect; accepted for compatibility with the Scala connector. The status is polled at intervals "
        "that grow from 10 ms to 1 s",
        uses=WRITES,
    ),
    Option(
        "metadata",
        "",
        "a metadata table to read instead of events: `StreamInfo`, `Streams`, `segments`, `epochs`, "
        "`transactions` or `groups`",
        uses=("read",),
    ),
    Option(
        "allow_create_stream", "`true` to write, `false` to read", "create the stream if it does not exist"
    ),
    Option(
        "allow_create_scope", "`true`", "when creating a stream, create its scope too if it does not exist"
    ),
    Option(
        "default_num_segments",
        "`1`",
        "for a new stream: number of segments; with a target rate, the smallest number, which must be given",
    ),
    Option(
        "default_scale_factor",
        "",
        "for a new stream: number of segments into which a busy segment is split; needs a target rate",
    ),
    Option(
        "default_segment_target_rate_bytes_per_sec",
        "",
        "for a new stream: target rate of a segment in bytes per second, at least `1024`",
    ),
    Option(
        "default_segment_target_rate_events_per_sec",
        "",
        "for a new stream: target rate of a segment in events per second",
    ),
    Option(
        "default_retention_duration_milliseconds",
        "(keep all)",
        "for a new stream: how long it keeps data",
    ),
    Option("default_retention_size_bytes", "(keep all)", "for a new stream: how much data it keeps"),
    Option("auth_method", "", "authentication method: `Basic` or `Bearer`"),
    Option("auth_token", "", 'the encoded token (Spark hides options with "token" in their name)'),
    Option("trust_store", "", "path of a PEM file with the certificates to trust"),
    Option("validate_hostname", "`true`", "check the servers' names against their certificates"),
    Option("max_connections_per_store", "`10`", "largest number of connections to each segment store"),
    Option(
        "controller_deadline", "`120`", "time limit in seconds for one controller call, including all retries"
    ),
    Option("operation_timeout", "`120`", "time limit in seconds for one operation, including all retries"),
    Option(
        "segment_ranges", "", "set by `read_df`: the resolved ranges to read", uses=("read",), shown=False
    ),
)

_SPELLINGS = {spelling.lower(): option for option in OPTIONS for spelling in (option.name, *option.aliases)}

# Spark adds these to the options of a query.
_OF_SPARK = frozenset({"checkpointlocation", "queryname"})


def option_table(*uses: Use) -> str:
    """Return the documentation's Markdown table of the options that can be set in any of these places."""
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for option in OPTIONS:
        if option.shown and not set(uses).isdisjoint(option.uses):
            names = ", ".join(f"`{name}`" for name in (option.name, *option.aliases))
            lines.append(f"| {names} | {option.default} | {option.meaning} |")
    return "\n".join(lines)


def canonical(options: Mapping[str, str], use: Use) -> dict[str, str]:
    """Return the options that a user set, under the names in :data:`OPTIONS`, without Spark's own options.

    :param options: the options as Spark passes them.
    :param use: where they were set.
    :raises InvalidArgumentError: an option is unknown (the message suggests the nearest name), cannot be set
        here, is set twice under two names, or is empty. An empty one of :data:`CONNECTION` is not set.
    """
    given: dict[str, str] = {}
    for key, value in options.items():
        if use in ("readStream", "writeStream") and key.lower() in _OF_SPARK:
            continue
        option = _SPELLINGS.get(key.lower())
        if key.lower() == "provider" or key.lower().startswith("option."):
            # Spark adds these when it asks for the columns of a new table.
            raise InvalidArgumentError(NO_TABLE)
        if option is None:
            # Spark requests the columns of a read before it says whether it is a streaming read.
            near_uses = READS if use in READS else (use,)
            usable = [
                spelling
                for spelling, each in _SPELLINGS.items()
                if each.shown and not set(near_uses).isdisjoint(each.uses)
            ]
            near = difflib.get_close_matches(key.lower(), usable, 1)
            near += [each for each in usable if each.startswith(key.lower())]
            hint = f"; did you mean {_SPELLINGS[near[0]].name!r}?" if near else ""
            if key.lower() in ("path", "paths"):
                # Spark makes these options of the argument of load() and save().
                which = key.lower().replace("path", "stream")
                hint = f"; to name the {which}, set the option {which!r}"
            raise InvalidArgumentError(f"unknown option {key!r}{hint}")
        if use not in option.uses:
            raise InvalidArgumentError(
                f"option {option.name!r} is for {' and '.join(option.uses)}, not for {use}; remove it"
            )
        if option.name in given:
            raise InvalidArgumentError(
                f"option {option.name!r} is set twice, under two of its names "
                f"({', '.join((option.name, *option.aliases))}); remove one"
            )
        if value == "" and option.name not in CONNECTION:
            # Otherwise a variable that a job has not set would read or write something else.
            raise InvalidArgumentError(f"option {option.name!r} is empty: set it, or remove it")
        given[option.name] = value
    return given


def read_use(options: Mapping[str, str]) -> Use:
    """Return ``readStream`` if the options show that a read is a streaming read, otherwise ``read``.

    Spark requests the columns before it says which it is.
    """
    for key in options:
        option = _SPELLINGS.get(key.lower())
        if key.lower() in _OF_SPARK or (option is not None and option.uses == ("readStream",)):
            return "readStream"
    return "read"


def stream_of(given: Mapping[str, str], config: PravegaConfig) -> ScopedStream:
    """Return the stream that the options name.

    :raises InvalidArgumentError: the option ``stream`` is missing, or there is no scope.
    """
    if not given.get("stream"):
        raise stream_required(given, ": set it to 'scope/stream'")
    return stream_named("stream", given["stream"], config)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The parsed options of one read.

    Example::

        options = ReadOptions.parse({"stream": "demo/readings", "columns": "event,offset"})

    :ivar config: connection settings.
    :ivar choice: the streams to read.
    :ivar start: where to start in each stream.
    :ivar end: where to end in each stream.
    :ivar fail_on_data_loss: whether truncated data is an error; if False, it is skipped.
    :ivar ranges: the resolved ranges to read, or None if the bounds are to be resolved.
    :ivar max_partition_bytes: largest size in bytes of a partition with more than one event; None for one
        partition for each segment.
    :ivar columns: names of the columns, in order.
    :ivar max_bytes: largest size of a micro-batch in bytes; None for no limit.
    :ivar max_events: largest number of events in a micro-batch; None for no limit.
    :ivar min_bytes: bytes of unread data for which a micro-batch waits; None to wait for none.
    :ivar min_events: unread events for which a micro-batch waits; None to wait for none.
    :ivar max_delay: seconds after which a micro-batch waits no longer for these.
    :ivar discovery_interval: seconds between searches for new streams.
    :ivar min_partitions: smallest number of partitions, if there are enough events; None for any number.
    :ivar limit: largest number of events of a batch read; None for all.
    :ivar max_partition_events: largest number of events in a partition; None for any number.
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
    min_bytes: int | None = None
    min_events: int | None = None
    max_delay: float = 900.0
    discovery_interval: float = 60.0
    min_partitions: int | None = None
    limit: int | None = None
    max_partition_events: int | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str], use: Use = "read") -> Self:
        """Parse the options of a read; connection settings that are not set come from the environment.

        :param options: the options as Spark passes them.
        :param use: ``read`` or ``readStream``.
        :raises InvalidArgumentError: an option is unknown (the message suggests the nearest name), set twice
            under two names, missing, malformed, or without effect beside the others.
        """
        given = canonical(options, use)
        config = config_of(given)
        choice = choice_of(given, config)
        check_end("option 'end_stream_cut'", given.get("end_stream_cut"))
        start = bounds_of(
            choice,
            config,
            given,
            ("start_stream_cut", "starting_timestamp"),
            "earliest",
            words=("earliest", "latest"),
        )
        end = bounds_of(
            choice,
            config,
            given,
            ("end_stream_cut", "ending_timestamp"),
            "latest" if use == "read" else "unbounded",
            words=("latest",),
        )
        if choice.pattern is not None and end.places:
            raise InvalidArgumentError(
                "option 'end_stream_cut' cannot contain places of streams together with 'stream_pattern', "
                "which may match further streams; list the streams in 'streams' instead"
            )
        if choice.pattern is None and "stream_discovery_interval" in given:
            raise InvalidArgumentError(
                "option 'stream_discovery_interval' has no effect without 'stream_pattern'; remove it"
            )
        # A false value is accepted: a job may keep all its options in one place.
        if choice.pattern is not None and boolean(
            "allow_create_stream", given.get("allow_create_stream", "false")
        ):
            raise InvalidArgumentError(
                "option 'allow_create_stream' cannot be used with 'stream_pattern', which names no stream to "
                "create; remove it"
            )
        if "segment_ranges" in given and len(choice.names) != 1:
            raise InvalidArgumentError(
                "option 'segment_ranges' is set by read_df, and is for one 'stream' alone; remove it"
            )
        interval = seconds("stream_discovery_interval", given.get("stream_discovery_interval"), zero=True)
        return cls(
            config,
            choice,
            start,
            end,
            boolean("fail_on_data_loss", given.get("fail_on_data_loss", "true")),
            decode_ranges(choice.names[0], given["segment_ranges"]) if "segment_ranges" in given else None,
            byte_count("max_partition_bytes", given.get("max_partition_bytes")),
            columns_given(given),
            *_trigger_limits(given),
            60.0 if interval is None else interval,
            count("min_partitions", given.get("min_partitions"), highest=MOST_PARTITIONS),
            count("limit", given.get("limit")),
            count("max_partition_events", given.get("max_partition_events")),
        )


def _trigger_limits(
    given: Mapping[str, str],
) -> tuple[int | None, int | None, int | None, int | None, float]:
    """Return the most bytes and events of a micro-batch, the least that it waits for, and for how long."""
    most = [
        byte_count("max_bytes_per_trigger", given.get("max_bytes_per_trigger")),
        count("max_events_per_trigger", given.get("max_events_per_trigger")),
    ]
    least = [
        byte_count("min_bytes_per_trigger", given.get("min_bytes_per_trigger")),
        count("min_events_per_trigger", given.get("min_events_per_trigger")),
    ]
    for kind, low, high in zip(("bytes", "events"), least, most, strict=True):
        if low is not None and high is not None and low > high:
            raise InvalidArgumentError(
                f"option 'min_{kind}_per_trigger' ({low}) must not be greater than "
                f"'max_{kind}_per_trigger' ({high})"
            )
    delay = seconds("max_trigger_delay", given.get("max_trigger_delay"), zero=True, unit_required=True)
    if delay is not None and least == [None, None]:
        raise InvalidArgumentError(
            "option 'max_trigger_delay' has no effect without 'min_bytes_per_trigger' or "
            "'min_events_per_trigger'; remove it"
        )
    return most[0], most[1], least[0], least[1], 900.0 if delay is None else delay


_PROPERTIES = {
    "controller": "pravega.controller.uri",
    "scope": "pravega.scope",
    "auth_method": "pravega.client.auth.method",
    "auth_token": "pravega.client.auth.token",
    "trust_store": "pravega.client.tls.trust-store",
    "validate_hostname": "pravega.client.tls.validate-hostname",
}
_CONNECTIONS = "max_connections_per_store"
_TIME_LIMITS = ("controller_deadline", "operation_timeout")

CONNECTION = frozenset(_PROPERTIES) | {_CONNECTIONS, *_TIME_LIMITS}
"""The names of the connection options, including the default scope."""


def config_of(given: Mapping[str, str]) -> PravegaConfig:
    """Return the connection settings; what the options do not set comes from the environment.

    :raises InvalidArgumentError: a value is malformed.
    """
    props = {_PROPERTIES[name]: given[name] for name in _PROPERTIES if given.get(name)}
    try:
        base = PravegaConfig.from_defaults(props=props)
    except InvalidArgumentError as error:
        # It names properties, but the user has set options.
        message = error.message
        for name, key in _PROPERTIES.items():
            message = message.replace(f"property {key}", f"option {name!r}")
        raise InvalidArgumentError(message) from error
    numbers: dict[str, Any] = {_CONNECTIONS: count(_CONNECTIONS, given.get(_CONNECTIONS))}
    numbers |= {name: seconds(name, given.get(name)) for name in _TIME_LIMITS}
    return replace(base, **{name: value for name, value in numbers.items() if value is not None})


def config_options(config: PravegaConfig) -> dict[str, str]:
    """Return the options that describe these connection settings."""
    credentials: Credentials | None = config.credentials
    options = {
        "controller": config.controller_uri,
        "scope": config.scope or "",
        "auth_method": "" if credentials is None else credentials.method,
        "auth_token": "" if credentials is None else credentials.token,
        "trust_store": config.trust_store or "",
        "validate_hostname": str(config.validate_hostname).lower(),
    }
    for name in (_CONNECTIONS, *_TIME_LIMITS):
        options[name] = str(getattr(config, name))
    return {name: value for name, value in options.items() if value}


def encode_ranges(ranges: Iterable[SegmentRange]) -> str:
    """Encode the ranges of one stream for the option ``segment_ranges``."""
    return json.dumps([[each.segment_id, each.start_offset, each.end_offset] for each in ranges])


def decode_ranges(stream: ScopedStream, text: str) -> tuple[SegmentRange, ...]:
    """Decode the option ``segment_ranges``.

    :raises InvalidArgumentError: the text is not from :func:`encode_ranges`.
    """
    try:
        return tuple(SegmentRange(stream, *(int(n) for n in each)) for each in json.loads(text))
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise InvalidArgumentError(f"option 'segment_ranges': {error}") from error


def check_end(name: str, end: object) -> None:
    """Check that an end is not ``earliest``, which would always make the range empty.

    :param name: name of the argument or option, for the message.
    :param end: the end that was given.
    :raises InvalidArgumentError: it is ``earliest``.
    """
    if isinstance(end, str) and end.strip().lower() == "earliest":
        raise InvalidArgumentError(
            f"{name} must not be 'earliest': the range would be empty. Use 'latest', 'unbounded' or the text "
            "of a stream cut"
        )


def columns_of(name: str, columns: str | Iterable[str] | None) -> tuple[str, ...]:
    """Return the selected columns in the given order; None selects all columns.

    :param name: name of the argument or option, for the message.
    :param columns: names of columns, or one text with names separated by commas.
    :raises InvalidArgumentError: a name is unknown (the message suggests the nearest one), a column is named
        twice, or there is no name.
    """
    if columns is None:
        return COLUMNS
    if not isinstance(columns, str):
        check_several(name, columns)
    split = columns.split(",") if isinstance(columns, str) else columns
    found = tuple(each.strip().lower() if isinstance(each, str) else each for each in split)
    for each in found:
        if each not in _COLUMN_TYPES:
            near = difflib.get_close_matches(str(each), COLUMNS, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InvalidArgumentError(
                f"{name}: there is no column {each!r}; the columns are {', '.join(COLUMNS)}{hint}"
            )
    if len(set(found)) < len(found):
        raise InvalidArgumentError(f"{name}: a column is named twice in {', '.join(found)}")
    if not found:
        raise InvalidArgumentError(f"{name}: name at least one of {', '.join(COLUMNS)}")
    return found


def columns_given(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns that the options ``columns`` and ``include_metadata`` select.

    :raises InvalidArgumentError: the two options contradict each other, or as in :func:`columns_of`.
    """
    with_metadata = boolean("include_metadata", given.get("include_metadata", "true"))
    if "columns" in given and not with_metadata:
        raise InvalidArgumentError(
            "options 'include_metadata' (false) and 'columns' cannot be used together; remove one of them"
        )
    return columns_of("option 'columns'", given.get("columns")) if with_metadata else ("event",)


def schema_of(columns: Iterable[str] = COLUMNS) -> str:
    """Return the columns with their types, as a schema text for Spark.

    The names are quoted because ``offset`` is a reserved word if ``spark.sql.ansi.enforceReservedKeywords``
    is set.
    """
    return ", ".join(f"`{name}` {_COLUMN_TYPES[name]}" for name in columns)


def quoted(name: str) -> str:
    """Return a name in backticks, for SQL.

    Example::

        spark.sql(f"SELECT count(*) FROM {quoted('demo/readings')}")

    :param name: any name.
    """
    return "`" + name.replace("`", "``") + "`"


def boolean(name: str, text: str) -> bool:
    """Return the value of an option that is true or false.

    :raises InvalidArgumentError: it is neither.
    """
    if text.lower() not in ("true", "false"):
        raise InvalidArgumentError(f"option {name!r}: {text!r} is neither true nor false")
    return text.lower() == "true"
