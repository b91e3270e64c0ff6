"""Offsets of a streaming query over Pravega streams: what Spark keeps in its checkpoint.

An offset is a JSON object:

========  ==========================================================================================
field     meaning
========  ==========================================================================================
``v``     version of the format, 1; a reader refuses a higher one
``cuts``  for each stream (``scope/stream``) the text of the cut up to which it was read
``from``  for streams that begin with the batch that ends here, the cut where they begin: Spark keeps
          no offset of a query's start, and asks for it anew when the first batch is run again
``ends``  where streams end, if that was found out when the query started for the first time
========  ==========================================================================================

Fields and names are in this order and sorted, and the text of a cut is always the same, as Spark compares
offsets as texts. ``from`` and ``ends`` are left out where they are empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from pravega_wire import ScopedStream, StreamCut
from pravega_wire.errors import CorruptedStateError, InvalidArgumentError, PravegaError
from spark_adapter.choice import StreamChoice

__all__ = ["StreamOffset"]

_VERSION = 1
_FIELDS = ("cuts", "from", "ends")

Cuts = Mapping[ScopedStream, StreamCut]


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """An offset, parsed.

    :ivar cuts: where each stream was read to. :ivar begun: where those that begin with this batch begin.
    :ivar ends: where streams end.
    """

    cuts: Cuts
    begun: Cuts = field(default_factory=dict)
    ends: Cuts = field(default_factory=dict)

    @property
    def is_initial(self) -> bool:
        """Whether nothing was read of any stream yet."""
        return self.cuts == self.begun

    def to_dict(self) -> dict[str, Any]:
        """What is given to Spark."""
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
        """From what Spark gives back.

        :param may_be_empty: whether an offset of no stream makes sense: where all of them may be gone. With a
            pattern it always does.
        :raises CorruptedStateError: it is damaged, or of a newer version.
        :raises InvalidArgumentError: it is of a stream that the query does not read.
        """
        if not isinstance(found, dict) or type(found.get("v")) is not int:
            raise _damaged(f"{_shown(found)} is no offset of the format 'pravega'")
        if found["v"] > _VERSION:
            raise CorruptedStateError(
                f"the query's checkpoint has an offset of version {found['v']}, which a newer spark_adapter "
                f"has written; this one knows {_VERSION}: use the newer one, or another checkpointLocation"
            )
        if found["v"] < _VERSION:
            raise _damaged(f"there is no version {found['v']}")
        if unknown := sorted(map(str, found.keys() - {"v", *_FIELDS})):
            raise _damaged(f"it has a field {_shown(unknown[0])} that no version has")
        if "cuts" not in found:
            raise _damaged("it has no field 'cuts'")
        offset = cls(*(_cuts(found.get(name, {}), name, choice) for name in _FIELDS))
        if not offset.cuts and choice.pattern is None and not may_be_empty:
            raise _damaged("it names no stream, so nobody knows what was read")
        if strange := sorted(offset.begun.keys() - offset.cuts.keys()):
            raise _damaged(f"it says where stream {strange[0]} begins, and not how far it was read")
        return offset


def _cuts(found: object, name: str, choice: StreamChoice) -> Cuts:
    if not isinstance(found, dict):
        raise _damaged(f"its field {name!r} is {_shown(found)}")
    cuts = {}
    for stream_text, text in found.items():
        try:
            stream, cut = ScopedStream.parse(stream_text), StreamCut.from_text(text)
        except (PravegaError, AttributeError, TypeError) as error:
            raise _damaged(f"{_shown(text)} is no cut of stream {_shown(stream_text)}") from error
        if cut.stream != stream:
            raise _damaged(f"the cut {cut} is not of stream {stream}")
        if not cut.positions:
            raise _damaged(f"its cut of stream {stream} has no position")
        if stream not in choice:
            raise InvalidArgumentError(
                f"the query's checkpoint has a position in stream {stream}, but its options name {choice}: "
                "name the stream as well, or give the query another checkpointLocation"
            )
        cuts[stream] = cut
    return cuts


def _damaged(why: str) -> CorruptedStateError:
    return CorruptedStateError(
        f"an offset in the query's checkpoint is damaged: {why}. Restore the checkpoint, or give the query "
        "another checkpointLocation and a start_stream_cut"
    )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
