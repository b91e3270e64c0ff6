"""What a batch puts into each segment of its transaction: lengths and CRC-32 of bytes as they are stored.

A transaction's segment holds what the attempts have staged for it, one after the other in partition order.
Its CRC-32 follows from theirs, so no byte has to be looked at again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TypeAlias

from pravega_wire import StagedBytes
from pravega_wire.errors import CorruptedStateError
from pravega_wire.naming import number_of

__all__ = ["Contents", "by_number", "crc32_combine", "dump_contents", "join_contents", "load_contents"]

Contents: TypeAlias = Mapping[int, StagedBytes]
"""By the id of the transaction's segment (whose epoch is the transaction's); no empty segments."""

_POLYNOMIAL = 0xEDB88320
# Of CRC-32 (ISO 3309), as zlib has it: the highest bit is the coefficient of x**0.

_ONE = 1 << 31


def _multiply(left: int, right: int) -> int:
    """The product of two polynomials over GF(2), modulo the polynomial of CRC-32."""
    product = 0
    bit = _ONE
    while left:
        if left & bit:
            product ^= right
            left ^= bit
        bit >>= 1
        right = (right >> 1) ^ _POLYNOMIAL if right & 1 else right >> 1
    return product


@cache
def _byte_power(index: int, count: int) -> int:
    """``x**(8 * count * 256**index)``, for a count of 0 to 255."""
    if count > 1:
        return _multiply(_byte_power(index, count - 1), _byte_power(index, 1))
    if count == 0:
        return _ONE
    if index == 0:
        return _ONE >> 8
    return _multiply(_byte_power(index - 1, 255), _byte_power(index - 1, 1))


def crc32_combine(first: int, second: int, second_length: int) -> int:
    """CRC-32 of some bytes followed by others, from the CRC-32 of both and the length of the others."""
    index = 0
    while second_length:
        first = _multiply(_byte_power(index, second_length & 0xFF), first)
        second_length >>= 8
        index += 1
    return first ^ second


def join_contents(parts: Iterable[Contents]) -> dict[int, StagedBytes]:
    """What the segments hold when they are merged in this order."""
    joined: dict[int, StagedBytes] = {}
    for part in parts:
        for segment_id, added in part.items():
            before = joined.get(segment_id)
            joined[segment_id] = (
                added
                if before is None
                else StagedBytes(
                    before.length + added.length, crc32_combine(before.crc32, added.crc32, added.length)
                )
            )
    return joined


def by_number(contents: Contents) -> dict[int, StagedBytes]:
    """The same by segment number: a segment keeps it through the commit, and not always its epoch.

    If the stream was scaled while the transaction was open, the server commits into segments of a new epoch
    that have the same numbers and ranges of keys (a rolling transaction; controller facts v0.13.0,
    "Transactions").
    """
    return {number_of(segment_id): content for segment_id, content in contents.items()}


def dump_contents(contents: Contents) -> list[list[int]]:
    """As JSON: ``[segment id, length, crc32]`` for each segment, by rising ids."""
    return [[segment_id, *contents[segment_id]] for segment_id in sorted(contents)]


def load_contents(rows: Iterable[Iterable[int]]) -> dict[int, StagedBytes]:
    """From :func:`dump_contents`.

    :raises CorruptedStateError: numbers are out of range, or a segment is named twice.
    """
    contents: dict[int, StagedBytes] = {}
    for row in rows:
        segment_id, length, crc32 = map(int, row)
        if segment_id < 0 or length <= 0 or not 0 <= crc32 < 1 << 32 or segment_id in contents:
            raise CorruptedStateError(f"[{segment_id}, {length}, {crc32}] is not the content of a segment")
        contents[segment_id] = StagedBytes(length, crc32)
    return contents
