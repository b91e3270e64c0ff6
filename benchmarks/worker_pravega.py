"""The ``pravega`` package (0.3.8) as a participant: ``python -m benchmarks.worker_pravega URI SCOPE MODE``.

Modes: ``default`` waits for each event, which is what its writer does unless told otherwise; ``window``
lets it have up to 64 MiB (at most 100 000 events) under way, its fastest way of writing. Its reader
knows no end of a stream, so ``read`` has the number of events as a second argument.
"""

from __future__ import annotations

import asyncio
import sys
from uuid import uuid4

import pravega_client  # type: ignore[import-untyped]  # has no stubs

from benchmarks.work import keys_of, measure, payload_pool, serve


class Peer:
    """One manager for all requests."""

    def __init__(self, uri: str, scope: str, mode: str) -> None:
        self._manager = pravega_client.StreamManager(uri, False, False)
        self._scope = scope
        self._window = mode == "window"

    def append(self, stream: str, size: int, count: int, keys: int) -> dict[str, float]:
        """Write without waiting for each event, then flush."""
        in_flight = min(100_000, (64 << 20) // size) if self._window else 0
        writer = self._manager.create_writer(self._scope, stream, in_flight)
        pool = payload_pool(size)
        names = list(keys_of(keys, keys) or [None])
        with measure() as clock:
            for number in range(count):
                writer.write_event_bytes(pool[number & 63], names[number % len(names)])
            writer.flush()
        return clock.answer(count, count * size)

    async def read(self, stream: str, expected: int) -> dict[str, float]:
        """Read through a reader group of one reader until all events have come."""
        group = self._manager.create_reader_group(f"g{uuid4().hex}", self._scope, stream, False)
        reader = group.create_reader("reader")
        events = nbytes = 0
        with measure() as clock:
            while events < expected:
                piece = await reader.get_segment_slice_async()
                for event in piece:
                    nbytes += len(event.data())
                    events += 1
                reader.release_segment(piece)
        reader.reader_offline()
        return clock.answer(events, nbytes)

    def handle(self, words: list[str]) -> dict[str, float]:
        """Answer a request."""
        if words[0] == "append":
            size, count, keys = map(int, words[2:])
            return self.append(words[1], size, count, keys)
        return asyncio.run(self.read(words[1], int(words[2])))


def main() -> None:
    uri, scope, mode = sys.argv[1:]
    serve(Peer(uri, scope, mode).handle)


if __name__ == "__main__":
    main()
