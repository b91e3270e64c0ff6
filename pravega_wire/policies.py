"""How a stream scales and what it keeps (controller facts v0.13.0, "Streams").

Not public: :mod:`pravega_wire` exports what users need of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Self

from pravega_wire.checks import INT32_MAX, INT64_MAX, check_count, check_text
from pravega_wire.errors import InvalidArgumentError

__all__ = ["RetentionPolicy", "RetentionType", "ScaleType", "ScalingPolicy", "StreamConfiguration"]

_MAX_TAGS = 128
_MAX_TAG_LENGTH = 256


class ScaleType(Enum):
    """What makes a stream scale."""

    FIXED_NUM_SEGMENTS = 0
    BY_RATE_IN_KBYTES_PER_SEC = 1
    BY_RATE_IN_EVENTS_PER_SEC = 2


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """When a stream gets more or fewer segments; use the constructors below.

    :param target_rate: KiB or events each second for a segment. :param scale_factor: into how many
        a hot segment is split. :param min_segments: never fewer than this.
    :raises InvalidArgumentError: a number is not positive.
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
        """Always so many segments."""
        return cls(ScaleType.FIXED_NUM_SEGMENTS, 0, 0, segments)

    @classmethod
    def by_event_rate(cls, target_rate: int, scale_factor: int = 2, min_segments: int = 1) -> Self:
        """By events each second."""
        return cls(ScaleType.BY_RATE_IN_EVENTS_PER_SEC, target_rate, scale_factor, min_segments)

    @classmethod
    def by_data_rate(cls, target_kbytes: int, scale_factor: int = 2, min_segments: int = 1) -> Self:
        """By KiB each second."""
        return cls(ScaleType.BY_RATE_IN_KBYTES_PER_SEC, target_kbytes, scale_factor, min_segments)


class RetentionType(Enum):
    """What limits the data kept."""

    TIME = 1
    SIZE = 2


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """What the server may truncate by itself; use the constructors below.

    :param minimum: milliseconds or bytes to keep at least. :param maximum: and at most, where
        subscribers hold data back.
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
                f"retention policy: 0 < {self.minimum} <= {self.maximum} does not hold"
            )

    @classmethod
    def by_time(cls, milliseconds: int, maximum: int = INT64_MAX) -> Self:
        """Keep the last so many milliseconds."""
        return cls(RetentionType.TIME, milliseconds, maximum)

    @classmethod
    def by_size(cls, size: int, maximum: int = INT64_MAX) -> Self:
        """Keep the last so many bytes."""
        return cls(RetentionType.SIZE, size, maximum)


@dataclass(frozen=True, slots=True)
class StreamConfiguration:
    """Everything a stream is configured with.

    :param timestamp_aggregation_timeout_ms: how long an idle writer holds back the watermark.
    :param rollover_size_bytes: size of pieces in long-term storage; 0 is the server's default.
    """

    scaling: ScalingPolicy = field(default_factory=lambda: ScalingPolicy.fixed(1))
    retention: RetentionPolicy | None = None
    tags: frozenset[str] = frozenset()
    timestamp_aggregation_timeout_ms: int = 0
    rollover_size_bytes: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.scaling, ScalingPolicy):
            raise InvalidArgumentError(f"stream configuration: {self.scaling!r} is not a ScalingPolicy")
        if self.retention is not None and not isinstance(self.retention, RetentionPolicy):
            raise InvalidArgumentError(f"stream configuration: {self.retention!r} is not a RetentionPolicy")
        given: object = self.tags
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise InvalidArgumentError("tags is a set of strings")
        object.__setattr__(self, "tags", frozenset(given))
        if len(self.tags) >= _MAX_TAGS:
            raise InvalidArgumentError(f"{len(self.tags)} tags; fewer than {_MAX_TAGS} are allowed")
        for tag in self.tags:
            check_text("a tag", tag)
            if not 0 < len(tag) < _MAX_TAG_LENGTH:
                raise InvalidArgumentError(
                    f"tag {tag[:40]!r} has {len(tag)} characters; 1 to {_MAX_TAG_LENGTH - 1} are allowed"
                )
        for name in ("timestamp_aggregation_timeout_ms", "rollover_size_bytes"):
            check_count(f"stream configuration: {name}", getattr(self, name), 0)
