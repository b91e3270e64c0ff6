"""Routing Arrow arrays of keys, without a Python object for each key.

It is the hash of ``pravega_wire.values.hashing``, with each step done for all keys at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pravega_wire.values.hashing import (
    FINAL_MIX,
    MURMUR_C1,
    MURMUR_C2,
    MURMUR_H1,
    MURMUR_H2,
    ROUTING_SEED,
    hash_to_range,
)

__all__ = ["are_hashable", "positions_of", "segments_of"]

_BLOCK_CHARACTERS: Final = 8
"""Characters in a block of the hash, which is 16 bytes, at two bytes for each character."""

_FEW: Final = 100
"""Below this number of keys, hashing them one by one is faster than a step for all of them."""

_MASK: Final = 0xFFFFFFFFFFFFFFFF


def are_hashable(keys: Any) -> bool:
    """Whether :func:`positions_of` supports these keys: all must be ASCII.

    Then the UTF-16 code units of a key follow from its bytes.
    """
    return bool(pc.all(pc.string_is_ascii(keys), min_count=0).as_py())


def positions_of(keys: Any) -> Any:
    """Positions in the key space, the same as those of :func:`pravega_wire.values.hashing.hash_to_range`.

    :param keys: an array of ASCII strings without nulls.
    :returns: an array of float64.
    """
    lengths = pc.binary_length(keys)
    blocks = pc.shift_right(lengths, pa.scalar(3, lengths.type))
    kinds = blocks.unique().to_pylist()
    if len(kinds) == 1:
        return _positions(keys, lengths, kinds[0])
    rows = [pc.indices_nonzero(pc.equal(blocks, kind)) for kind in kinds]
    parts = [
        _positions(keys.take(some), lengths.take(some), kind) for kind, some in zip(kinds, rows, strict=True)
    ]
    back = pc.array_sort_indices(pa.concat_arrays(rows))
    return pa.concat_arrays(parts).take(back)


def segments_of(positions: Any, highs: Sequence[float]) -> Any:
    """The segment number of each position, as an array of int32: the number of ``highs`` below it."""
    found = pa.repeat(pa.scalar(0, pa.int32()), len(positions))
    for high in highs:
        found = pc.add(found, pc.greater(positions, high).cast(pa.int32()))
    return found


def _u64(value: int) -> Any:
    return pa.scalar(value & _MASK, pa.uint64())


def _rotated(column: Any, bits: int) -> Any:
    return pc.bit_wise_or(pc.shift_left(column, _u64(bits)), pc.shift_right(column, _u64(64 - bits)))


def _times(column: Any, factor: int) -> Any:
    # Unsigned and unchecked: bits above the 64th are dropped, as the hash requires.
    return pc.multiply(column, _u64(factor))


def _final_mix(column: Any) -> Any:
    for factor in FINAL_MIX:
        column = _times(pc.bit_wise_xor(column, pc.shift_right(column, _u64(33))), factor)
    return pc.bit_wise_xor(column, pc.shift_right(column, _u64(33)))


def _positions(keys: Any, lengths: Any, blocks: int) -> Any:
    """The positions of keys that all have this number of whole blocks."""
    count = len(keys)
    if count < _FEW:
        return pa.array(map(hash_to_range, keys.to_pylist()), pa.float64())
    width = _BLOCK_CHARACTERS * (blocks + 1)
    # Zeros after a key do not change its hash, except through the length, which is added separately.
    padded = pc.ascii_rpad(keys, width=width, padding="\0")
    _, offsets, data = padded.buffers()
    begin = memoryview(offsets).cast("i")[padded.offset]
    text = str(memoryview(data)[begin : begin + count * width], "ascii")
    words = memoryview(text.encode("utf-16-le")).cast("Q")
    stride = 2 * (blocks + 1)

    def column(number: int) -> Any:
        return pa.Array.from_buffers(
            pa.uint64(), count, [None, pa.py_buffer(words[number::stride].tobytes())]
        )

    h1 = h2 = _u64(ROUTING_SEED)
    for number in range(0, 2 * blocks, 2):
        k1 = _times(_rotated(_times(column(number), MURMUR_C1), 31), MURMUR_C2)
        h1 = pc.add(_rotated(pc.bit_wise_xor(h1, k1), 27), h2)
        h1 = pc.add(_times(h1, 5), _u64(MURMUR_H1))
        k2 = _times(_rotated(_times(column(number + 1), MURMUR_C2), 33), MURMUR_C1)
        h2 = pc.add(_rotated(pc.bit_wise_xor(h2, k2), 31), h1)
        h2 = pc.add(_times(h2, 5), _u64(MURMUR_H2))
    k2 = _times(_rotated(_times(column(stride - 1), MURMUR_C2), 33), MURMUR_C1)
    k1 = _times(_rotated(_times(column(stride - 2), MURMUR_C1), 31), MURMUR_C2)
    nbytes = pc.shift_left(lengths.cast(pa.uint64()), _u64(1))
    h1 = pc.bit_wise_xor(pc.bit_wise_xor(h1, k1), nbytes)
    h2 = pc.bit_wise_xor(pc.bit_wise_xor(h2, k2), nbytes)
    h1 = pc.add(h1, h2)
    h2 = pc.add(h2, h1)
    h1 = pc.add(_final_mix(h1), _final_mix(h2))
    return pc.divide(pc.shift_right(h1, _u64(12)).cast(pa.float64(), safe=False), float(1 << 52))
