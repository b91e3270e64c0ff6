"""The watermarks of a stream, which say what event time was reached at which position.

Their format is in ``docs/protocol/formats.md``, "Watermarks".
"""

from __future__ import annotations

from pravega_wire.errors import NoSuchSegmentError, StreamNotFoundError
from pravega_wire.positions import Watermark
from pravega_wire.protocol.formats import decode_watermark
from pravega_wire.serializers import BytesSerializer
from pravega_wire.stream.core import ClientCore
from pravega_wire.stream.revisioned import RevisionedStream
from pravega_wire.types import ScopedStream

__all__ = ["mark_stream", "watermarks"]


def mark_stream(stream: ScopedStream) -> ScopedStream:
    """The stream to which the controller writes a stream's watermarks."""
    return ScopedStream(stream.scope, f"_MARK{stream.name}")


async def watermarks(core: ClientCore, stream: ScopedStream) -> list[Watermark]:
    """See :meth:`PravegaClient.watermarks`."""
    try:
        marks = await RevisionedStream.open(core, mark_stream(stream), BytesSerializer())
    except StreamNotFoundError as error:
        raise StreamNotFoundError(
            f"stream {stream} does not exist", scope=stream.scope, stream=stream.name
        ) from error
    try:
        reader = await marks.read_from(await marks.fetch_oldest_revision())
        try:
            return [decode_watermark(payload) async for _, payload in reader]
        finally:
            await reader.aclose()
    except NoSuchSegmentError as error:
        raise StreamNotFoundError(
            f"stream {stream} does not exist", scope=stream.scope, stream=stream.name
        ) from error
    finally:
        await marks.aclose()
