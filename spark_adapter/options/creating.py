"""Creates a missing stream, as options say, before it is read or written.

The options have the names and meanings of the Scala connector's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from pravega_wire import PravegaConfig, RetentionPolicy, ScalingPolicy, ScopedStream, StreamConfiguration
from pravega_wire.errors import InvalidArgumentError, ScopeNotFoundError, StreamNotFoundError
from pravega_wire.support.checks import INT32_MAX
from spark_adapter.clients import HeldClient, settings_of
from spark_adapter.options.quantities import byte_count, count, milliseconds
from spark_adapter.options.read import WRITES, Use, boolean, canonical

if TYPE_CHECKING:
    from pravega_wire.sync import PravegaClient

__all__ = ["CREATION_OPTIONS", "Creation", "create_if_missing", "ensure_stream"]

log = logging.getLogger(__name__)

_SEGMENTS: Final = "default_num_segments"
_FACTOR: Final = "default_scale_factor"
_BYTE_RATE: Final = "default_segment_target_rate_bytes_per_sec"
_EVENT_RATE: Final = "default_segment_target_rate_events_per_sec"
_KEEP_TIME: Final = "default_retention_duration_milliseconds"
_KEEP_SIZE: Final = "default_retention_size_bytes"

CREATION_OPTIONS: Final = (
    "allow_create_scope", "allow_create_stream",
    _SEGMENTS, _FACTOR, _BYTE_RATE, _EVENT_RATE, _KEEP_TIME, _KEEP_SIZE,
)  # fmt: skip
"""The names of the options for creating a stream."""

_KIB: Final = 1024


@dataclass(frozen=True, slots=True)
class Creation:
    """Whether and how to create a missing stream; can be pickled.

    :ivar stream: whether to create the stream.
    :ivar scope: whether to create its scope too, if that does not exist.
    :ivar config: configuration of the new stream.
    """

    stream: bool
    scope: bool = True
    config: StreamConfiguration = field(default_factory=StreamConfiguration)

    @classmethod
    def parse(cls, given: Mapping[str, str], use: Use) -> Self:
        """Parse the options of one read or write.

        By default a write creates the stream and a read does not: otherwise a mistyped name would be read as
        an empty stream.

        :param given: options under the names in :data:`~spark_adapter.options.read.OPTIONS`, from
            ``canonical``.
        :param use: where the options were set.
        :raises InvalidArgumentError: a value is malformed, or options cannot be used together.
        """
        return cls(
            boolean("allow_create_stream", given.get("allow_create_stream", str(use in WRITES))),
            boolean("allow_create_scope", given.get("allow_create_scope", "true")),
            StreamConfiguration(_scaling(given), _retention(given)),
        )


def ensure_stream(
    client: PravegaClient,
    stream: ScopedStream,
    creation: Creation,
    before: Callable[[], object] | None = None,
) -> bool:
    """Create the stream if it does not exist and may be created; an existing stream is not changed.

    Call it on the driver before any other use of the stream. Several jobs may call it at the same time: one
    of them creates the stream, and it returns in none of them before the stream is complete.

    :param client: the client to use.
    :param stream: the stream.
    :param creation: whether and how to create it.
    :param before: called before a missing stream is created; its errors are passed on.
    :returns: True if this call created the stream.
    :raises StreamNotFoundError: the stream does not exist, and ``allow_create_stream`` is false.
    :raises ScopeNotFoundError: its scope does not exist, and ``allow_create_scope`` is false.
    """
    try:
        # Not stream_exists(): it returns True for a stream that is still being created and has no segments
        # yet. And this call needs no other permission than reading or writing.
        client.active_segments(stream)
        return False
    except StreamNotFoundError as error:
        if not creation.stream:
            raise StreamNotFoundError(
                f"stream {stream} does not exist; correct its name, or set the option allow_create_stream "
                "to true to create it",
                scope=stream.scope,
                stream=stream.name,
            ) from error
    if before is not None:
        before()
    try:
        made = client.create_stream(stream, creation.config)
    except ScopeNotFoundError as error:
        if not creation.scope:
            raise ScopeNotFoundError(
                f"stream {stream} cannot be created, because scope {stream.scope} does not exist and the "
                "option allow_create_scope is false: create the scope, or set the option to true",
                scope=stream.scope,
            ) from error
        client.create_scope(stream.scope)
        made = client.create_stream(stream, creation.config)
    if made:
        log.info("stream %s did not exist; created it with %s", stream, creation.config)
    return made


def create_if_missing(config: PravegaConfig | str, stream: str | ScopedStream, **options: object) -> bool:
    """Create a stream if it does not exist.

    It is for :class:`ForeachBatchSink` and :func:`read_df`, which have no options for that.

    Example::

        create_if_missing(
            config, "flights", default_num_segments=4, default_retention_size_bytes=10**9
        )

    :param config: connection settings, or the controller's URI as for ``open_client``.
    :param stream: ``scope/stream``, or a name in the default scope.
    :param options: ``allow_create_scope`` and the options ``default_...`` of a write
        (``docs/spark-writing.md``).
    :returns: True if this call created the stream.
    :raises InvalidArgumentError: an option is unknown or malformed, or options cannot be used together.
    :raises ScopeNotFoundError: the scope does not exist, and ``allow_create_scope`` is false.
    """
    config = settings_of(config)
    # Before canonical(), which suggests options that are not for this.
    accepted = [each for each in CREATION_OPTIONS if each != "allow_create_stream"]
    for name in options:
        if name.lower() not in accepted:
            raise InvalidArgumentError(
                f"create_if_missing() does not accept {name!r}; it accepts {', '.join(accepted)}"
            )
    given = canonical({name: str(value) for name, value in options.items()}, "write")
    with HeldClient(config) as client:
        return ensure_stream(client, config.resolve(stream), Creation.parse(given, "write"))


def _scaling(given: Mapping[str, str]) -> ScalingPolicy:
    segments = count(_SEGMENTS, given.get(_SEGMENTS), 1, INT32_MAX)
    factor = count(_FACTOR, given.get(_FACTOR), 2, INT32_MAX)
    byte_rate = byte_count(_BYTE_RATE, given.get(_BYTE_RATE), _KIB, INT32_MAX * _KIB)
    event_rate = count(_EVENT_RATE, given.get(_EVENT_RATE), 1, INT32_MAX)
    if byte_rate is not None and event_rate is not None:
        raise InvalidArgumentError(
            f"options {_BYTE_RATE!r} and {_EVENT_RATE!r} cannot be used together; remove one of them"
        )
    rate = event_rate if byte_rate is None else byte_rate
    if rate is None and factor is None:
        return ScalingPolicy.fixed(1 if segments is None else segments)
    # If one of the three is missing, the Scala connector silently creates a stream that never scales.
    if rate is None or factor is None or segments is None:
        missing = {
            f"{_SEGMENTS!r}": segments,
            f"{_FACTOR!r}": factor,
            f"{_BYTE_RATE!r} or {_EVENT_RATE!r}": rate,
        }
        names = " and ".join(name for name, value in missing.items() if value is None)
        raise InvalidArgumentError(
            "a stream that scales automatically needs a number of segments, a scale factor and a target "
            f"rate; set {names} too"
        )
    if byte_rate is None:
        return ScalingPolicy.by_event_rate(rate, factor, segments)
    return ScalingPolicy.by_data_rate(rate // _KIB * _KIB, factor, segments)


def _retention(given: Mapping[str, str]) -> RetentionPolicy | None:
    time = milliseconds(_KEEP_TIME, given.get(_KEEP_TIME))
    size = byte_count(_KEEP_SIZE, given.get(_KEEP_SIZE))
    if time is not None and size is not None:
        raise InvalidArgumentError(
            f"options {_KEEP_TIME!r} and {_KEEP_SIZE!r} cannot be used together; remove one of them"
        )
    if time is not None:
        return RetentionPolicy.by_time(time / 1000)
    return None if size is None else RetentionPolicy.by_size(size)
