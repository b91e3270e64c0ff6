"""Appends and reads with a store that is far away: ``python -m benchmarks.far``.

A proxy holds everything that the segment store sends back for some time; Java and this client go through the
same one. The controller is near, but its own requests to the store go through the proxy as well.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

import trio

from benchmarks.__main__ import Bench, tables
from benchmarks.work import HEADER_BYTES, total_bytes
from pravega_wire import PravegaConfig
from pravega_wire.sync import open_client
from pravega_wire.testing import cluster
from pravega_wire.threads.portal import Portal

DELAYS = (0, 10, 50, 200)
SIZE, APPENDS, READS = 1000, 200_000, 300_000
NAMES = ("java", "pravega_wire")
_CHUNK = 256 * 1024
_HELD_CHUNKS = 4096


class DelayLine:
    """A proxy in a thread of its own. What comes from the store is passed on when its time has come.

    Unlike a pause before each piece, this leaves the bandwidth as it is.

    :ivar delay: seconds.
    """

    def __init__(self) -> None:
        self.delay = 0.0
        self._portal = Portal("delay line")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._portal.close()

    def port_for(self, port: int) -> int:
        """Listen on a port of 127.0.0.1 for another one; return it."""
        return self._portal.call(self._listen, port)

    async def _listen(self, port: int) -> int:
        async def serve(client: trio.SocketStream) -> None:
            try:
                async with client, await trio.open_tcp_stream("127.0.0.1", port) as store:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._up, client, store, nursery.cancel_scope)
                        await self._down(store, client)
                        nursery.cancel_scope.cancel()
            except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # both sides learn of it

        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self._portal.start_soon(partial(trio.serve_listeners, serve, listeners))
        return int(listeners[0].socket.getsockname()[1])

    @staticmethod
    async def _up(client: trio.SocketStream, store: trio.SocketStream, scope: trio.CancelScope) -> None:
        while data := await client.receive_some(_CHUNK):
            await store.send_all(data)
        scope.cancel()

    async def _down(self, store: trio.SocketStream, client: trio.SocketStream) -> None:
        send, receive = trio.open_memory_channel[tuple[float, bytes]](_HELD_CHUNKS)

        async def pass_on() -> None:
            async for due, data in receive:
                await trio.sleep_until(due)
                await client.send_all(data)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pass_on)
            async with send:
                while data := bytes(await store.receive_some(_CHUNK)):
                    await send.send((trio.current_time() + self.delay, data))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.far", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds (default 3)")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="factor for the numbers of events (default 1)"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("bench-far.jsonl"), help="file for one JSON object a measurement"
    )
    parser.add_argument(
        "--delays", type=int, nargs="+", default=DELAYS, metavar="MS",
        help="milliseconds to the store (default: 0 10 50 200)",
    )  # fmt: skip
    arguments = parser.parse_args()
    with ExitStack() as stack:
        line = stack.enter_context(DelayLine())
        server = stack.enter_context(cluster(segment_stores=1, published=line.port_for))
        scope = f"far-{uuid4().hex[:8]}"
        config = PravegaConfig.from_defaults(controller_uri=server.controller_uri, scope=scope, env={})
        client = stack.enter_context(open_client(config))
        client.create_scope(scope)
        bench = Bench(
            server.controller_uri,
            scope,
            client,
            lambda: [each.pid for each in server.processes if each.pid is not None],
            Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="far-"))),
            arguments.rounds,
            arguments.scale,
            (),
            stack.enter_context(arguments.output.open("w")),
        )
        stack.callback(bench.close)
        appends, reads = bench.scaled(APPENDS), bench.scaled(READS)
        with bench.stream(1) as full:
            payload = bench.fill(full, SIZE, reads)
            for delay in arguments.delays:
                line.delay = delay / 1000
                far = f"{delay} ms"
                bench.say(f"a store that is {far} away")
                for number, name in bench.turns(NAMES):
                    with bench.stream(1) as stream:
                        record = bench.measure(
                            f"append, {far}", SIZE, 1, name, number, bench.participant(name),
                            "append", stream, SIZE, appends, 0,
                        )  # fmt: skip
                        whole = total_bytes(SIZE, appends) + appends * HEADER_BYTES
                        bench.add(record, events=appends, stored=bench.stored_bytes(stream), whole=whole)
                for number, name in bench.turns(NAMES):
                    record = bench.measure(
                        f"read, {far}", SIZE, 1, name, number, bench.participant(name), "read", full
                    )
                    bench.add(record, events=reads, payload=payload)
        print(json.dumps({"rounds": arguments.rounds, "scale": arguments.scale}))
        print(tables(bench.records))
    return 1 if any("error" in record for record in bench.records) else 0


if __name__ == "__main__":
    raise SystemExit(main())
