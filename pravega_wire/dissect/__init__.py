"""Shows what a client and a segment store say to each other, as it passes through a proxy.

Every wire command is declared once (``pravega_wire.protocol.commands``); frames are decoded by the
specifications made from that. ``pravega-wire dissect`` prints them (``docs/dissector.md``).

Example::

    from pravega_wire.dissect import Frame, Note, follow

    def slow_replies(item: Frame | Note) -> None:
        if isinstance(item, Frame) and (item.elapsed or 0) > 10**8:
            print(item.command, item.elapsed)

    async def watch() -> None:
        await follow(12346, ("store-1", 12345), slow_replies)
"""

from pravega_wire import _public
from pravega_wire.dissect.exchange import Connection, Frame, Note
from pravega_wire.dissect.live import follow
from pravega_wire.dissect.rendering import as_json, as_text

__all__ = ["Connection", "Frame", "Note", "as_json", "as_text", "follow"]

_public.publish(__name__, __all__)
