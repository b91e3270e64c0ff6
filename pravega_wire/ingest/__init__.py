"""Exactly-once ingestion: the events of files or of a source end up in a stream once, even after crashes."""

from pravega_wire import _public
from pravega_wire.ingest.engine import IfUnknown, Observer, Progress, Stage
from pravega_wire.ingest.files import FileIngester, LeftOut, OnChanged
from pravega_wire.ingest.samples import Parse, Sample, byte_lines, csv_rows, lines
from pravega_wire.ingest.sources import (
    EndRecord,
    FileSource,
    FixedCount,
    LengthBefore,
    Method,
    SequenceSource,
    Source,
    SourceIngester,
)
from pravega_wire.ingest.state import IngestRecord

__all__ = [
    "EndRecord",
    "FileIngester",
    "FileSource",
    "FixedCount",
    "IfUnknown",
    "IngestRecord",
    "LeftOut",
    "LengthBefore",
    "Method",
    "Observer",
    "OnChanged",
    "Parse",
    "Progress",
    "Sample",
    "SequenceSource",
    "Source",
    "SourceIngester",
    "Stage",
    "byte_lines",
    "csv_rows",
    "lines",
]

_public.publish(__name__, __all__)
