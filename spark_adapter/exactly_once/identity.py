"""What makes a batch of a streaming query the same batch when Spark asks for it again.

The number alone does not: if a checkpoint goes back (a restored backup, entries lost in a crash), Spark
uses the numbers again for other rows. Before Spark runs a batch it stores the batch's entry in the
checkpoint, ``offsets/N``: a version, a line of metadata (watermark, time of planning), and the end offsets of
the sources, one in a line, in version 2 each after its source's name or number and a colon. When it repeats
the batch, it uses the stored entry.

So a batch with the same entry is the same batch. One that was planned anew is the same if its end offsets
are: if batch N was written with the end E, then everything up to E was written by the batches up to N. That
holds for offsets that name positions in the data, as those of Pravega streams and of Kafka do. Those of
files do not: they count entries of a log in the checkpoint, which goes back with it. And in a query with
state, timers may add rows that depend on the time of planning. In these cases only the same entry is the
same batch. If the entry cannot be read, the rows themselves are compared: their number, bytes and checksum.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from os.path import normpath
from pathlib import Path
from typing import Any, TypeAlias
from zlib import crc32

__all__ = [
    "Identity",
    "PlannedBatch",
    "WrittenRows",
    "checksum_of",
    "difference",
    "dump_identity",
    "load_identity",
    "local_entry",
    "local_path",
    "location_parts",
    "newest_entry",
    "planned_batch",
]

log = logging.getLogger(__name__)

_SHOWN = 160
_MODULUS = 1 << 64


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """The entry of a batch in the checkpoint.

    :ivar entry: hash of the entry.
    :ivar offsets: hash of the end offsets of all sources; None if one of them is not a position in its data.
    :ivar stateful: whether the query has state.
    :ivar shown: the end offsets for messages, perhaps shortened.
    :ivar streams: the Pravega streams that the query reads, as ``scope/stream``.
    """

    entry: str
    offsets: str | None
    stateful: bool
    shown: str = ""
    streams: frozenset[str] = field(default=frozenset(), compare=False)


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """What the tasks of a batch have found in its rows; for a batch whose entry cannot be read.

    :ivar rows: number of events.
    :ivar nbytes: number of their bytes.
    :ivar checksum: :func:`checksum_of` the events; that of several partitions is the sum modulo 2**64.
    """

    rows: int = 0
    nbytes: int = 0
    checksum: int = 0

    def __add__(self, other: WrittenRows) -> WrittenRows:
        return WrittenRows(
            self.rows + other.rows, self.nbytes + other.nbytes, (self.checksum + other.checksum) % _MODULUS
        )


Identity: TypeAlias = PlannedBatch | WrittenRows


def checksum_of(events: Iterable[bytes], keys: Iterable[str | None] | None) -> int:
    """Return a checksum of events and their routing keys that does not depend on their order.

    It is the sum of their CRC-32, modulo 2**64; the CRC-32 of an event begins with that of its key.
    """
    if keys is None:
        return sum(map(crc32, events)) % _MODULUS
    return sum(map(crc32, events, map(_Starts().__getitem__, keys))) % _MODULUS


class _Starts(dict[str | None, int]):
    """Where the CRC-32 of an event begins, by its key: many events have few keys."""

    def __missing__(self, key: str | None) -> int:
        self[key] = start = 0 if key is None else crc32(key.encode(errors="surrogatepass"), 1)
        return start


def planned_batch(entry: str, stateful: bool) -> PlannedBatch | None:
    """Return the identity from the text of ``offsets/N``; None if the text is not complete.

    The offsets in an entry of an unknown version are not parsed: a batch is then the same only if its whole
    entry is, and a warning says that the query's streams are not known.

    :param entry: the text of the file.
    :param stateful: whether the query has state.
    """
    version, _, rest = entry.partition("\n")
    metadata, _, offsets = rest.partition("\n")
    offsets = offsets.strip()
    if not version.startswith("v") or not offsets:
        return None
    shown = ", ".join(offsets.split("\n"))
    if len(shown) > _SHOWN:
        shown = f"{shown[: _SHOWN // 2]} ... {shown[-_SHOWN // 2 :]}"
    found = [_offset(line) for line in _offset_lines(version, offsets.split("\n"))]
    return PlannedBatch(
        _hash(f"{metadata}\n{offsets}"),
        _hash(offsets) if all(map(_is_position, found)) else None,
        stateful,
        shown,
        frozenset(stream for each in found if each is not None for stream in _cuts(each) or ()),
    )


def _offset_lines(version: str, lines: list[str]) -> list[str]:
    """Return end offsets without the names of their sources; empty texts if the version is unknown."""
    match version.strip():
        case "v1":
            return lines
        case "v2":
            return [line.partition(":")[2] for line in lines]
        case other:
            log.warning(
                "a checkpoint's entries have version %s, which this version of the adapter does not know: "
                "whether the query reads the stream that it writes to is not checked",
                other,
            )
            return [""] * len(lines)


def _offset(line: str) -> dict[str, Any] | None:
    """Return a source's end offset: none for "-", a source without one, and empty if it is something else."""
    if line == "-":
        return None
    try:
        offset = json.loads(line)
    except ValueError:
        return {}
    return offset if isinstance(offset, dict) else {}


def _cuts(offset: dict[str, Any]) -> dict[str, Any] | None:
    """Return the stream cuts of an offset of Pravega's source; None for an offset of another source."""
    cuts = offset.get("cuts")
    return cuts if isinstance(cuts, dict) else None


def _is_position(offset: dict[str, Any] | None) -> bool:
    """Return True if an end offset names positions in the data: Pravega's, Kafka's, or that of no source."""
    if offset is None or _cuts(offset) is not None:
        return True
    return bool(offset) and all(
        isinstance(topic, dict) and topic and all(type(each) is int for each in topic.values())
        for topic in offset.values()
    )


def local_entry(location: str | None, number: int) -> PlannedBatch | None:
    """Return the identity of a batch from a checkpoint in a file system of this machine.

    :param location: the checkpoint's location, as a path or a ``file:`` URI; None if it is unknown.
    :param number: number of the batch.
    :returns: None if there is no such entry, or another machine or store has it.
    """
    root = local_path(location)
    try:
        return (
            None
            if root is None
            else planned_batch((root / "offsets" / str(number)).read_text(), (root / "state").is_dir())
        )
    except (OSError, ValueError):
        return None


def newest_entry(location: str | None) -> int | None:
    """Return the number of the newest entry of a checkpoint in a file system of this machine, or None."""
    root = local_path(location)
    try:
        found = [] if root is None else [each.name for each in (root / "offsets").iterdir()]
    except OSError:
        return None
    return max((int(each) for each in found if each.isascii() and each.isdigit()), default=None)


def local_path(location: str | None) -> Path | None:
    """Return a checkpoint's location as a path; None if it is not in a file system of this machine."""
    scheme, authority, path = location_parts(location or "")
    return Path(path) if location and scheme in ("", "file") and not authority else None


def location_parts(location: str) -> tuple[str, str, str]:
    """Return scheme, authority and path of a location, as Hadoop's ``Path`` takes it apart.

    It is not a URI: ``%``, ``#`` and ``?`` stand for themselves. Dots are taken out of the path without
    looking at links.
    """
    scheme = authority = ""
    colon, slash = location.find(":"), location.find("/")
    if colon != -1 and (slash == -1 or colon < slash):
        scheme, location = location[:colon].lower(), location[colon + 1 :]
    if location.startswith("//") and len(location) > 2:
        authority, root, path = location[2:].partition("/")
        location = root + path.lstrip("/")
    return scheme, authority, normpath(location) if location else ""


def _hash(text: str) -> str:
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def difference(written: Identity | None, asked: Identity) -> str | None:
    """Return how a batch that was written differs from the one that Spark asks for; None if it is the same.

    :param written: the identity in the ledger; None if there is none.
    :param asked: the identity of the batch that is to be written.
    """
    if isinstance(written, PlannedBatch) and isinstance(asked, PlannedBatch):
        if written.entry == asked.entry:
            return None
        if written.offsets is not None and written.offsets == asked.offsets:
            if not (written.stateful or asked.stateful):
                return None
            return "it was planned again, and the rows of a query with state may depend on the time of that"
        if written.shown == asked.shown:
            return f"it was planned again, so {asked.shown} may mean other rows"
        return f"the one that was written ends at {written.shown}, this one at {asked.shown}"
    if isinstance(written, WrittenRows) and isinstance(asked, WrittenRows):
        if written == asked:
            return None
        return (
            f"the one that was written has {written.rows} rows with {written.nbytes} bytes, this one "
            f"{asked.rows} with {asked.nbytes}"
            + ("" if (written.rows, written.nbytes) != (asked.rows, asked.nbytes) else ", but other ones")
        )
    return (
        "the two cannot be compared, because the checkpoint's entry could be read for only one of them: see "
        'docs/spark-checkpoints.md, "When the two cannot be compared"'
    )


def dump_identity(identity: Identity | None) -> Any:
    """Return an identity as a value for JSON."""
    match identity:
        case PlannedBatch():
            return {
                "entry": identity.entry,
                "offsets": identity.offsets,
                "stateful": identity.stateful,
                "shown": identity.shown,
            }
        case WrittenRows():
            return {"rows": identity.rows, "bytes": identity.nbytes, "checksum": identity.checksum}
        case None:
            return None


def load_identity(body: Mapping[str, Any] | None) -> Identity | None:
    """Decode the result of :func:`dump_identity`.

    :raises KeyError, ValueError, TypeError: it is damaged.
    """
    if body is None:
        return None
    if "entry" in body:
        offsets = None if body["offsets"] is None else str(body["offsets"])
        return PlannedBatch(str(body["entry"]), offsets, bool(body["stateful"]), str(body["shown"]))
    return WrittenRows(int(body["rows"]), int(body["bytes"]), int(body["checksum"]))
