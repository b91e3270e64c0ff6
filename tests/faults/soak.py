"""Constant keyed writes while everything around them fails, and a check that nothing is missing.

``python -m tests.faults.soak worker URI SCOPE STREAM NAME SECONDS SWALLOW`` is one of the writing processes:
it appends events of its own keys through a fault proxy that cuts connections at random, and now and then
swallows everything for up to SWALLOW seconds, in one direction or both. It prints one JSON line with how
many of each key were acknowledged. :func:`verify` compares that with what is stored.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Mapping, Sequence

import trio

from pravega_wire import PravegaClient, PravegaConfig, open_client
from pravega_wire.testing import FaultProxy

KEYS = 8
BURST = 50


async def write(
    uri: str, scope: str, stream: str, name: str, seconds: float, swallow: float
) -> dict[str, int]:
    """Append until the time is up; returns how many events of each key were acknowledged."""
    config = PravegaConfig.from_defaults(controller_uri=uri, scope=scope, env={})
    counts = dict.fromkeys((f"{name}-{key}" for key in range(KEYS)), 0)
    chance = random.Random(name)
    with FaultProxy() as proxy:
        async with open_client(config, address_map=proxy.address_map) as client:

            async def disturb() -> None:
                while True:
                    for _ in range(chance.randrange(5, 15)):
                        await trio.sleep(chance.uniform(0.2, 2.0))
                        proxy.cut_all()
                    up, down = chance.choice([(True, True), (True, False), (False, True)])
                    proxy.pause(up=up, down=down)
                    await trio.sleep(chance.uniform(swallow / 12, swallow))
                    # What was held back arrives now, also on connections that were given up meanwhile.
                    proxy.resume()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(disturb)
                end = trio.current_time() + seconds
                async with client.event_writer(stream, max_outstanding_bytes=1 << 20) as writer:
                    while trio.current_time() < end:
                        for _ in range(BURST):
                            key = f"{name}-{chance.randrange(KEYS)}"
                            await writer.write_event(b"%s:%d" % (key.encode(), counts[key]), key)
                            counts[key] += 1
                        await trio.sleep(0.005)
                nursery.cancel_scope.cancel()
    return counts


async def verify(client: PravegaClient, stream: str, counts: Sequence[Mapping[str, int]]) -> int:
    """Check that every acknowledged event is stored once, in order per key; returns how many there are."""
    expected = {key: count for each in counts for key, count in each.items()}
    found = dict.fromkeys(expected, 0)
    async for batch in client.read_events(stream):
        for event in batch:
            key, _, number = event.decode().partition(":")
            if int(number) != found[key]:
                raise AssertionError(f"key {key}: event {number} where {found[key]} is due")
            found[key] += 1
    if found != expected:
        wrong = {key: (found[key], expected[key]) for key in expected if found[key] != expected[key]}
        raise AssertionError(f"stored and acknowledged differ: {wrong}")
    return sum(found.values())


if __name__ == "__main__":
    _, _, uri, scope, stream, name, seconds, swallow = sys.argv
    print(json.dumps(trio.run(write, uri, scope, stream, name, float(seconds), float(swallow))))
