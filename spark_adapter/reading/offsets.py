"""The offsets of a streaming query over Pravega streams, which Spark stores in its checkpoint.

An offset is a JSON object:

========  ==========================================================================================
field     meaning
========  ==========================================================================================
``v``     version of the format, 1; a reader rejects a higher one
``cuts``  for each stream (``scope/stream``), the text of the cut up to which it was read
``from``  for streams that start with the batch that ends here, the cut where they start: Spark stores
          no offset for the start of a query, and requests it again if it repeats the first batch
``ends``  where streams end, if that was determined when the query first started
========  ==========================================================================================

Fields are in this order and stream names are sorted, and equal cuts have equal texts, because Spark compares
offsets as texts. Empty ``from`` and ``ends`` are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from pravega_wire import ScopedStream, StreamCut
from pravega_wire.errors import CorruptedStateError, InvalidArgumentError, PravegaError
from spark_adapter.options.streams import StreamChoice

__all__ = ["StreamOffset"]

_VERSION = 1
_FIELDS = ("cuts", "from", "ends")

Cuts = Mapping[ScopedStream, StreamCut]


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """A parsed offset.

    :ivar cuts: for each stream, the cut up to which it was read.
    :ivar begun: for streams that start with this batch, the cut where they start.
    :ivar ends: for streams with a fixed end, the cut where they end.
    """

    cuts: Cuts
    begun: Cuts = field(default_factory=dict)
    ends: Cuts = field(default_factory=dict)

    @property
    def is_initial(self) -> bool:
        """True if nothing has been read of any stream."""
        return self.cuts == self.begun

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object for Spark."""
        fields = {"cuts": self.cuts, "from": self.begun, "ends": self.ends}
        return {
            "v": _VERSION,
            **{
                name: {str(stream): cut.to_text() for stream, cut in sorted(cuts.items())}
                for name, cuts in fields.items()
                if cuts or name == "cuts"
            },
        }

    @classmethod
    def parse(cls, found: object, choice: StreamChoice, *, may_be_empty: bool = False) -> Self:
        """Parse the JSON object that Spark passes.

        :param found: the JSON object.
        :param choice: the streams of the query.
        :param may_be_empty: whether an offset without streams is valid, because all streams may have been
            deleted. With a pattern it always is.
        :raises CorruptedStateError: the offset is damaged, or has a newer version.
        :raises InvalidArgumentError: the offset has a stream that the query does not read, or none at all.
        """
        if not isinstance(found, dict) or type(found.get("v")) is not int:
            raise _damaged(f"{_shown(found)} is not an offset of the format 'pravega'")
        if found["v"] > _VERSION:
            raise CorruptedStateError(
                f"the query's checkpoint has an offset of version {found['v']}, written by a newer "
                f"spark_adapter; this one supports version {_VERSION}: use the newer one, or another "
                "checkpointLocation"
            )
        if found["v"] < _VERSION:
            raise _damaged(f"there is no version {found['v']}")
        if unknown := sorted(map(str, found.keys() - {"v", *_FIELDS})):
            raise _damaged(f"it has an unknown field {_shown(unknown[0])}")
        if "cuts" not in found:
            raise _damaged("it has no field 'cuts'")
        offset = cls(*(_cuts(found.get(name, {}), name, choice) for name in _FIELDS))
        if strange := sorted(offset.begun.keys() - offset.cuts.keys()):
            raise _damaged(f"it has a start for stream {strange[0]}, but not the cut up to which it was read")
        if not offset.cuts and choice.pattern is None and not may_be_empty:
            raise InvalidArgumentError(
                f"the query's checkpoint has no position in {choice}: the streams of the query were deleted, "
                "and it continued without them because of fail_on_data_loss=false. Set this option again to "
                "read what was created since from its head, or set another checkpointLocation for the query"
            )
        return offset


def _cuts(found: object, name: str, choice: StreamChoice) -> Cuts:
    if not isinstance(found, dict):
        raise _damaged(f"its field {name!r} is {_shown(found)}")
    cuts = {}
    for stream_text, text in found.items():
        try:
            stream, cut = ScopedStream.parse(stream_text), StreamCut.from_text(text)
        except (PravegaError, AttributeError, TypeError) as error:
            raise _damaged(f"{_shown(text)} is not a cut of stream {_shown(stream_text)}") from error
        if cut.stream != stream:
            raise _damaged(f"the cut {cut} does not belong to stream {stream}")
        if not cut.positions:
            raise _damaged(f"its cut of stream {stream} has no position")
        if stream not in choice:
            raise InvalidArgumentError(
                f"the query's checkpoint has a position in stream {stream}, but its options name {choice}: "
                "add the stream to the options, or set another checkpointLocation for the query"
            )
        cuts[stream] = cut
    return cuts


def _damaged(why: str) -> CorruptedStateError:
    return CorruptedStateError(
        f"an offset in the query's checkpoint is damaged: {why}. Restore the checkpoint, or set another "
        "checkpointLocation and a start_stream_cut for the query"
    )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
