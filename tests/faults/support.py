"""Keyed events whose count and order can be checked after whatever happened to the writer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from pravega_wire import PravegaClient

KEYS = 20


def event_of(number: int) -> tuple[bytes, str]:
    """Payload and routing key of event ``number``."""
    key = f"key-{number % KEYS}"
    return f"{key}:{number:08d}".encode() + b"." * (number % 90), key


def in_one_buffer(payloads: Iterable[bytes]) -> Iterator[Any]:
    """Payloads one after the other in the same buffer, as a loop over ``readinto`` has them."""
    buffer = bytearray()
    for payload in payloads:
        buffer[:] = payload
        yield buffer


def numbers_by_key(payloads: Iterable[bytes]) -> dict[str, list[int]]:
    """Event numbers in the order of reading, per key."""
    found: dict[str, list[int]] = defaultdict(list)
    for payload in payloads:
        key, _, rest = payload.decode().rstrip(".").partition(":")
        found[key].append(int(rest))
    return found


async def read_all(client: PravegaClient, stream: str) -> list[bytes]:
    """Every event, segment by segment, predecessors first."""
    payloads: list[bytes] = []
    async for batch in client.read_events(stream):
        payloads += batch
    return payloads


def equal_ranges(count: int) -> list[tuple[float, float]]:
    """The key space in ``count`` parts of equal width."""
    return [(each / count, (each + 1) / count) for each in range(count)]


async def scale_to(client: PravegaClient, stream: str, count: int) -> None:
    """Replace all segments by ``count`` of equal width."""
    active = [each.segment_id for each in await client.active_segments(stream)]
    await client.scale_stream(stream, active, equal_ranges(count))


def assert_exactly(payloads: Iterable[bytes], count: int) -> None:
    """Events 0 to ``count - 1`` are there once each, in order per key."""
    found = numbers_by_key(payloads)
    expected = {f"key-{key}": list(range(key, count, KEYS)) for key in range(min(KEYS, count))}
    assert sorted(found) == sorted(expected)
    for key, numbers in expected.items():
        assert found[key] == numbers, key
