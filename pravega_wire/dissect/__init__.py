"""Shows what a client and a segment store say to each other: from a capture file, or live.

Every wire command is declared once (``pravega_wire.protocol.commands``); frames are decoded by the
specifications made from that. ``python -m pravega_wire.dissect FILE`` prints a capture
(``docs/dissector.md``).

Example::

    from pravega_wire.dissect import Frame, dissect

    def slow_replies(path: str) -> list[Frame]:
        return [each for each in dissect(path) if isinstance(each, Frame) and (each.elapsed or 0) > 10**8]
"""

from pravega_wire import _public
from pravega_wire.dissect.connections import Dissector, dissect
from pravega_wire.dissect.exchange import Connection, Frame, Note
from pravega_wire.dissect.live import follow
from pravega_wire.dissect.rendering import as_json, as_text

__all__ = ["Connection", "Dissector", "Frame", "Note", "as_json", "as_text", "dissect", "follow"]

_public.publish(__name__, __all__)
