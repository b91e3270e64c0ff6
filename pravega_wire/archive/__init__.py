"""Archives of streams: the events between two cuts in Parquet files with a manifest, and back into a stream.

Needs the extra ``arrow``. All functions can be killed at any point and called again (``docs/archives.md``).
Blocking and asyncio programs call them by ``client.run``.

Example::

    from pathlib import Path

    from pravega_wire.archive import archive_stream, compare_archive, restore_stream

    async def copy(client: PravegaClient) -> None:
        manifest = await archive_stream(client, "demo/readings", Path("readings"))
        print(manifest.events, "events")
        await compare_archive(client, Path("readings"))
        await restore_stream(client, Path("readings"), "demo/restored")
"""

from pravega_wire import _public
from pravega_wire.archive.manifest import ArchivedFile, ArchivedLayout, ArchivedSegment, Manifest
from pravega_wire.archive.restoring import Restored, restore_stream
from pravega_wire.archive.stages import Observer, Stage
from pravega_wire.archive.verifying import compare_archive, verify_archive
from pravega_wire.archive.writing import archive_stream

__all__ = [
    "ArchivedFile",
    "ArchivedLayout",
    "ArchivedSegment",
    "Manifest",
    "Observer",
    "Restored",
    "Stage",
    "archive_stream",
    "compare_archive",
    "restore_stream",
    "verify_archive",
]

_public.publish(__name__, __all__)
