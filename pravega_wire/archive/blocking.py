"""The functions of :mod:`pravega_wire.archive` for the blocking client of :mod:`pravega_wire.sync`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from pravega_wire.archive import restoring, verifying, writing
from pravega_wire.archive.manifest import Manifest
from pravega_wire.archive.restoring import Restored
from pravega_wire.archive.stages import Observer, nothing
from pravega_wire.cuts import Bound, OnTruncated
from pravega_wire.stream.client import StreamName
from pravega_wire.sync.client import PravegaClient

__all__ = ["archive_stream", "restore_stream", "verify_archive"]


def archive_stream(
    client: PravegaClient,
    stream: StreamName,
    directory: Path | str,
    *,
    start: Bound = "earliest",
    end: Bound = "latest",
    on_truncated: OnTruncated = "raise",
    part_bytes: int = writing.DEFAULT_PART_BYTES,
    observer: Observer = nothing,
) -> Manifest:
    """See :func:`pravega_wire.archive.archive_stream`. The observer is called in the client's thread."""
    call = partial(
        writing.archive_stream,
        client._twin,
        stream,
        directory,
        start=start,
        end=end,
        on_truncated=on_truncated,
        part_bytes=part_bytes,
        observer=observer,
    )
    return client._call(None, call)


def restore_stream(
    client: PravegaClient,
    directory: Path | str,
    stream: StreamName,
    *,
    routing_key: Callable[[bytes], str | None] | None = None,
    append: bool = False,
    observer: Observer = nothing,
) -> Restored:
    """See :func:`pravega_wire.archive.restore_stream`. The functions are called in the client's thread."""
    call = partial(
        restoring.restore_stream,
        client._twin,
        directory,
        stream,
        routing_key=routing_key,
        append=append,
        observer=observer,
    )
    return client._call(None, call)


def verify_archive(directory: Path | str, client: PravegaClient) -> Manifest:
    """See :func:`pravega_wire.archive.verify_archive`; without a client, use that with ``trio.run``."""
    return client._call(None, verifying.verify_archive, directory, client._twin)
