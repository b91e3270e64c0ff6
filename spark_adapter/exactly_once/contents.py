"""The data that a batch writes to each segment of its transaction: length and CRC-32 of the stored bytes.

A transaction's segment contains the data that the attempts have staged for it, in the order of the
partitions. Its CRC-32 can be computed from theirs, so no byte has to be read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TypeAlias
from uuid import UUID

from pravega_wire import StagedBytes
from pravega_wire.errors import CorruptedStateError
from pravega_wire.values.naming import number_of

__all__ = [
    "AttemptResult",
    "Contents",
    "by_number",
    "crc32_combine",
    "dump_contents",
    "join_contents",
    "load_contents",
]

Contents: TypeAlias = Mapping[int, StagedBytes]
"""Length and CRC-32 by the id of the transaction's segment (whose epoch is the transaction's); no empty
segments."""

_POLYNOMIAL = 0xEDB88320
# The polynomial of CRC-32 (ISO 3309), in zlib's bit order: the highest bit is the coefficient of x**0.

_ONE = 1 << 31


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """The report of the successful attempt of one partition to the driver.

    :ivar partition: index of the partition.
    :ivar staging: id of its staging segments, or None if it had no rows.
    :ivar rows: number of events written.
    :ivar nbytes: number of their payload bytes.
    :ivar contents: the bytes staged for each segment of the transaction.
    :ivar timestamp: largest event time in ms, or None.
    :ivar dropped: number of events that are not known to be stored (best effort only).
    :ivar checksum: :func:`~spark_adapter.exactly_once.identity.checksum_of` the events, if it was asked for.
    """

    partition: int
    staging: UUID | None
    rows: int
    nbytes: int
    contents: Contents = field(default_factory=dict)
    timestamp: int | None = None
    dropped: int = 0
    checksum: int | None = None


def _multiply(left: int, right: int) -> int:
    """Return the product of two polynomials over GF(2), modulo the polynomial of CRC-32."""
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
    """Return ``x**(8 * count * 256**index)``, for a count from 0 to 255."""
    if count > 1:
        # By halves, because the depth would exceed Python's limit one by one.
        return _multiply(_byte_power(index, count // 2), _byte_power(index, count - count // 2))
    if count == 0:
        return _ONE
    if index == 0:
        return _ONE >> 8
    half = _byte_power(index - 1, 128)
    return _multiply(half, half)


def crc32_combine(first: int, second: int, second_length: int) -> int:
    """Return the CRC-32 of two byte strings in a row, from the CRC-32 of each and the length of the
    second."""
    index = 0
    while second_length:
        first = _multiply(_byte_power(index, second_length & 0xFF), first)
        second_length >>= 8
        index += 1
    return first ^ second


def join_contents(parts: Iterable[Contents]) -> dict[int, StagedBytes]:
    """Return the contents of the segments after merging the parts in this order."""
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
    """Return the contents by segment number.

    A commit keeps the number of a segment, but not always its epoch.

    If the stream was scaled while the transaction was open, the server commits into segments of a new epoch
    that have the same numbers and key ranges (``docs/protocol/controller.md``, "Rolling transactions").
    """
    return {number_of(segment_id): content for segment_id, content in contents.items()}


def dump_contents(contents: Contents) -> list[list[int]]:
    """Encode contents for JSON.

    Each segment is ``[segment id, length, crc32]``, in ascending order of ids.
    """
    return [[segment_id, *contents[segment_id]] for segment_id in sorted(contents)]


def load_contents(rows: Iterable[Iterable[int]]) -> dict[int, StagedBytes]:
    """Decode the result of :func:`dump_contents`.

    :raises CorruptedStateError: a number is out of range, or a segment occurs twice.
    """
    contents: dict[int, StagedBytes] = {}
    for row in rows:
        segment_id, length, crc32 = map(int, row)
        if segment_id < 0 or length <= 0 or not 0 <= crc32 < 1 << 32 or segment_id in contents:
            raise CorruptedStateError(
                f"the ledger record is damaged: [{segment_id}, {length}, {crc32}] is not the content of a "
                "segment"
            )
        contents[segment_id] = StagedBytes(length, crc32)
    return contents
