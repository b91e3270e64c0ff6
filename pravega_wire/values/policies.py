"""Configuration of streams: scaling, retention and tags.

The limits of tags are those of a 0.13.0 controller.

Not public: :mod:`pravega_wire` exports the names that users need.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Self

from pravega_wire.errors import InvalidArgumentError
from pravega_wire.support.checks import (
    INT32_MAX,
    INT64_MAX,
    check_count,
    check_seconds,
    check_text,
    milliseconds,
    shown,
)

__all__ = ["RetentionPolicy", "RetentionType", "ScaleType", "ScalingPolicy", "StreamConfiguration"]

_MAX_TAGS = 128
_MAX_TAG_LENGTH = 256


class ScaleType(Enum):
    """The measure by which the server scales a stream."""

    FIXED_NUM_SEGMENTS = 0
    """None: the number of segments changes only by request."""

    BY_RATE_IN_KBYTES_PER_SEC = 1
    """Write rate of each segment, in KiB per second."""

    BY_RATE_IN_EVENTS_PER_SEC = 2
    """Write rate of each segment, in events per second."""


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """When the server splits and merges the segments of a stream.

    Create one with :meth:`fixed`, :meth:`by_event_rate` or :meth:`by_data_rate`.

    Example::

        # Split a segment that gets more than 1000 events per second; keep at least 4.
        scaling = ScalingPolicy.by_event_rate(1000, min_segments=4)

    :param scale_type: the measure by which the stream scales.
    :param target_rate: target write rate of one segment, in KiB or events per second.
    :param scale_factor: number of segments into which a busy segment is split.
    :param min_segments: smallest number of segments; for a fixed policy, the number.
    :raises InvalidArgumentError: a number is not positive, or too large for an int32.
    """

    scale_type: ScaleType
    target_rate: int
    scale_factor: int
    min_segments: int

    def __post_init__(self) -> None:
        if not isinstance(self.scale_type, ScaleType):
            raise InvalidArgumentError(f"scaling policy: {self.scale_type!r} is not a ScaleType")
        fixed = self.scale_type is ScaleType.FIXED_NUM_SEGMENTS
        for name in ("target_rate", "scale_factor", "min_segments"):
            lowest = 0 if fixed and name != "min_segments" else 1
            check_count(f"scaling policy: {name}", getattr(self, name), lowest, INT32_MAX)

    @classmethod
    def fixed(cls, segments: int) -> Self:
        """Create a policy that never scales the stream automatically.

        :param segments: number of segments.
        """
        return cls(ScaleType.FIXED_NUM_SEGMENTS, 0, 0, segments)

    @classmethod
    def by_event_rate(cls, target_rate: int, scale_factor: int = 2, min_segments: int = 1) -> Self:
        """Create a policy that scales by events per second.

        :param target_rate: events per second for one segment.
        :param scale_factor: number of segments into which a busy segment is split.
        :param min_segments: smallest number of segments.
        """
        return cls(ScaleType.BY_RATE_IN_EVENTS_PER_SEC, target_rate, scale_factor, min_segments)

    @classmethod
    def by_data_rate(cls, bytes_per_second: int, scale_factor: int = 2, min_segments: int = 1) -> Self:
        """Create a policy that scales by bytes per second.

        :param bytes_per_second: bytes per second for one segment: a multiple of 1024, the server's unit.
        :param scale_factor: number of segments into which a busy segment is split.
        :param min_segments: smallest number of segments.
        """
        check_count("bytes_per_second", bytes_per_second, 1024, INT32_MAX * 1024, unit="bytes")
        if bytes_per_second % 1024:
            raise InvalidArgumentError(f"bytes_per_second must be a multiple of 1024, not {bytes_per_second}")
        return cls(ScaleType.BY_RATE_IN_KBYTES_PER_SEC, bytes_per_second // 1024, scale_factor, min_segments)


class RetentionType(Enum):
    """The measure by which a retention policy limits data."""

    TIME = 1
    """Age, in milliseconds."""

    SIZE = 2
    """Size, in bytes."""


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How much data of a stream the server keeps; it truncates older data automatically.

    Create one with :meth:`by_time` or :meth:`by_size`.

    Example::

        retention = RetentionPolicy.by_time(7 * 24 * 3600)  # one week

    :param retention_type: whether the limits are ages or sizes.
    :param minimum: milliseconds or bytes to keep at least.
    :param maximum: milliseconds or bytes to keep at most, if reader groups hold back truncation.
    :raises InvalidArgumentError: a number is not positive, or the minimum is over the maximum.
    """

    retention_type: RetentionType
    minimum: int
    maximum: int = INT64_MAX

    def __post_init__(self) -> None:
        if not isinstance(self.retention_type, RetentionType):
            raise InvalidArgumentError(f"retention policy: {self.retention_type!r} is not a RetentionType")
        for name in ("minimum", "maximum"):
            check_count(f"retention policy: {name}", getattr(self, name))
        if self.minimum > self.maximum:
            raise InvalidArgumentError(
                f"retention policy: the minimum, {self.minimum}, must not be over the maximum, {self.maximum}"
            )

    @classmethod
    def by_time(cls, seconds: float, maximum: float | None = None) -> Self:
        """Create a policy that keeps data by age.

        :param seconds: age up to which data is kept.
        :param maximum: age in seconds from which data is removed even if a reader group holds it back.
        """
        most = INT64_MAX if maximum is None else milliseconds(check_seconds("maximum", maximum))
        return cls(RetentionType.TIME, milliseconds(check_seconds("seconds", seconds)), most)

    @classmethod
    def by_size(cls, size: int, maximum: int | None = None) -> Self:
        """Create a policy that keeps data by size.

        :param size: number of bytes to keep.
        :param maximum: size above which data is removed even if a reader group holds it back, in bytes.
        """
        return cls(RetentionType.SIZE, size, INT64_MAX if maximum is None else maximum)


@dataclass(frozen=True, slots=True)
class StreamConfiguration:
    """The configuration of a stream.

    Other clients accept more than this class does. What a server has is returned as it is.

    Example::

        await client.create_stream(
            "readings",
            StreamConfiguration(
                scaling=ScalingPolicy.by_event_rate(1000, min_segments=4),
                retention=RetentionPolicy.by_size(10 * 2**30),
                tags=frozenset({"sensors"}),
            ),
        )

    :param scaling: how the stream scales; default: one segment, without automatic scaling.
    :param retention: how much data the server keeps; None keeps everything.
    :param tags: texts to find the stream by (``client.list_streams(tag=...)``): fewer than 128, each of 1 to
        255 characters.
    :param timestamp_aggregation_timeout: seconds for which an idle writer holds back the stream's watermark;
        0 uses the server's default.
    :param rollover_size_bytes: size of the chunks in long-term storage, in bytes; 0 uses the server's
        default.
    :raises InvalidArgumentError: a value has the wrong type or is out of range.
    """

    scaling: ScalingPolicy = field(default_factory=lambda: ScalingPolicy.fixed(1))
    retention: RetentionPolicy | None = None
    tags: frozenset[str] = frozenset()
    timestamp_aggregation_timeout: float = 0
    rollover_size_bytes: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.scaling, ScalingPolicy):
            raise InvalidArgumentError(f"stream configuration: {shown(self.scaling)} is not a ScalingPolicy")
        if self.retention is not None and not isinstance(self.retention, RetentionPolicy):
            raise InvalidArgumentError(
                f"stream configuration: {shown(self.retention)} is not a RetentionPolicy"
            )
        given: object = self.tags
        if isinstance(given, str | bytes | bytearray | memoryview) or not isinstance(given, Iterable):
            raise InvalidArgumentError("stream configuration: tags must be a set of strings")
        # Before the set is made, which needs values that can be hashed.
        object.__setattr__(self, "tags", frozenset([check_text("a tag", tag) for tag in given]))
        if len(self.tags) >= _MAX_TAGS:
            raise InvalidArgumentError(
                f"stream configuration: there are {len(self.tags)} tags; at most {_MAX_TAGS - 1} are allowed"
            )
        for tag in self.tags:
            if not 0 < len(tag) < _MAX_TAG_LENGTH:
                raise InvalidArgumentError(
                    f"stream configuration: tag {tag[:40]!r} has {len(tag)} characters; at most "
                    f"{_MAX_TAG_LENGTH - 1} are allowed"
                )
        name = "timestamp_aggregation_timeout"
        seconds = check_seconds(f"stream configuration: {name}", getattr(self, name), zero=True)
        # As the servers keep it, so that what comes back from them is equal.
        object.__setattr__(self, name, milliseconds(seconds) / 1000)
        check_count("stream configuration: rollover_size_bytes", self.rollover_size_bytes, 0)
