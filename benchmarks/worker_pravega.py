"""The ``pravega`` package (0.3.8) as a participant: ``python -m benchmarks.worker_pravega URI SCOPE MODE``.

Modes: ``default`` waits for each event, which is what its writer does unless told otherwise; ``window``
lets it have up to 64 MiB (at most 100 000 events) under way, its fastest way of writing. Its reader
knows no end of a stream, so ``read`` has the number of events as a second argument. It does not tell
when a transaction is committed, only that it is no longer open, so ``transactions`` ends each with the
return of its commit and tells their ids.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Mapping
from time import perf_counter_ns
from uuid import UUID, uuid4

import pravega_client  # type: ignore[import-untyped]  # has no stubs

from benchmarks.work import POOL, Latencies, keys_of, measure, payload_pool, serve, times, total_bytes


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
        return clock.answer(count, total_bytes(size, count))

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

    async def latency(self, stream: str, size: int, count: int, rate: int) -> dict[str, float]:
        """Write at a rate in a thread, and read at the same time."""
        latencies = Latencies(size)
        writer = self._manager.create_writer(self._scope, stream)
        group = self._manager.create_reader_group(f"g{uuid4().hex}", self._scope, stream, False)
        reader = group.create_reader("reader")

        def write() -> None:
            start = time.perf_counter()
            for number in range(count):
                time.sleep(max(0.0, start + number / rate - time.perf_counter()))
                writer.write_event_bytes(latencies.event())

        writer.write_event_bytes(bytes(size))
        writer.flush()
        found = -1
        thread = threading.Thread(target=write)
        with measure() as clock:
            while found < count:
                piece = await reader.get_segment_slice_async()
                for event in piece:
                    if found >= 0:
                        latencies.read(event.data())
                    else:
                        # The reader has its segment.
                        thread.start()
                    found += 1
                reader.release_segment(piece)
        thread.join()
        reader.reader_offline()
        return latencies.answer(clock)

    def acks(self, stream: str, size: int, count: int, keys: int) -> dict[str, float]:
        """Each event when the one before it is stored: the writer waits by itself."""
        writer = self._manager.create_writer(self._scope, stream)
        pool = payload_pool(size)
        names = list(keys_of(keys, keys) or [None])
        taken = []
        for number in range(POOL):
            writer.write_event_bytes(pool[number], names[number % len(names)])
        with measure() as clock:
            for number in range(count):
                start = perf_counter_ns()
                writer.write_event_bytes(pool[number & 63], names[number % len(names)])
                taken.append(perf_counter_ns() - start)
        return clock.answer(count, total_bytes(size, count)) | times(taken)

    def transactions(
        self, stream: str, size: int, events: int, count: int, keys: int
    ) -> Mapping[str, object]:
        """Begin, write and commit, one transaction after the other."""
        writer = self._manager.create_transaction_writer(self._scope, stream, uuid4().int >> 1)
        pool = payload_pool(size)
        names = list(keys_of(keys, keys) or [None])
        taken: list[int] = []
        ids: list[str] = []

        def one() -> None:
            start = perf_counter_ns()
            transaction = writer.begin_txn()
            for number in range(events):
                transaction.write_event_bytes(pool[number & 63], names[number % len(names)])
            transaction.commit()
            taken.append(perf_counter_ns() - start)
            ids.append(str(UUID(int=transaction.get_txn_id())))

        one()
        taken.clear()
        with measure() as clock:
            for _ in range(count):
                one()
        done = clock.answer(count * events, count * total_bytes(size, events)) | times(taken)
        return {**done, "transactions": ids}

    def handle(self, words: list[str]) -> Mapping[str, object]:
        """Answer a request."""
        if words[0] == "append":
            size, count, keys = map(int, words[2:])
            return self.append(words[1], size, count, keys)
        if words[0] == "latency":
            size, count, rate = map(int, words[2:])
            return asyncio.run(self.latency(words[1], size, count, rate))
        if words[0] == "acks":
            return self.acks(words[1], *map(int, words[2:]))
        if words[0] == "transactions":
            return self.transactions(words[1], *map(int, words[2:]))
        return asyncio.run(self.read(words[1], int(words[2])))


def main() -> None:
    uri, scope, mode = sys.argv[1:]
    serve(Peer(uri, scope, mode).handle)


if __name__ == "__main__":
    main()
