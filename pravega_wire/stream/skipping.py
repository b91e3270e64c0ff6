"""Reporting the data that ``on_truncated="skip_to_head"`` skips."""

from __future__ import annotations

import logging

from pravega_wire.stream.core import ClientCore
from pravega_wire.values.cuts import SkippedPart
from pravega_wire.values.types import ScopedStream

__all__ = ["report_skipped"]

log = logging.getLogger(__name__)


def report_skipped(core: ClientCore, stream: ScopedStream, part: SkippedPart, reader: str) -> None:
    """Report truncated data that is skipped: to the counters, the observer and the log.

    :param reader: the party that skips it, for the log.
    """
    core.counters.reading(stream.scope, stream.name).skipped(
        part.segment, part.offset, part.new_offset, part.size
    )
    if part.size is None:
        log.warning(
            "stream %s, segment %s: the segment was deleted before %s read it from offset %d to its end; an "
            "unknown number of bytes is skipped", stream, part.segment, reader, part.offset,
        )  # fmt: skip
    else:
        log.warning(
            "stream %s, segment %s: %d bytes were truncated before %s read them; skipping from offset %d "
            "to %d", stream, part.segment, part.size, reader, part.offset, part.new_offset,
        )  # fmt: skip
