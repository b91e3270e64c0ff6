"""The hashes that decide where data is stored: murmur3 x64 128.

``docs/protocol/formats.md``, "Hashing of routing keys and table keys", describes them.

Not public.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

__all__ = [
    "FINAL_MIX",
    "MURMUR_C1",
    "MURMUR_C2",
    "MURMUR_H1",
    "MURMUR_H2",
    "ROUTING_SEED",
    "TABLE_SEED",
    "hash_bytes_to_range",
    "hash_to_range",
    "java_string_hash",
    "murmur3_x64_128",
    "routing_key_position",
]

_MASK: Final = 0xFFFFFFFFFFFFFFFF
MURMUR_C1: Final = 0x87C37B91114253D5
MURMUR_C2: Final = 0x4CF5AD432745937F
MURMUR_H1: Final = 0x52DCE729
MURMUR_H2: Final = 0x38495AB5
FINAL_MIX: Final = (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)
"""Constants of the hash; :mod:`pravega_wire.stream.arrow_keys` uses them too."""


def java_string_hash(text: str) -> int:
    """Return Java's ``String.hashCode``: signed 32 bits, computed from the UTF-16 units."""
    value = 0
    units = text.encode("utf-16-le", "surrogatepass")
    for index in range(0, len(units), 2):
        value = (31 * value + units[index] + (units[index + 1] << 8)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _final_mix(k: int) -> int:
    k ^= k >> 33
    k = (k * FINAL_MIX[0]) & _MASK
    k ^= k >> 33
    k = (k * FINAL_MIX[1]) & _MASK
    return k ^ (k >> 33)


def murmur3_x64_128(data: bytes, seed: int) -> tuple[int, int]:
    """Return the two 64-bit halves (unsigned) of the hash of ``data``.

    :param data: the bytes.
    :param seed: the seed, signed; its 64-bit two's complement is used.
    """
    h1 = h2 = seed & _MASK
    length = len(data)
    whole = length & ~15
    from_bytes = int.from_bytes
    for start in range(0, whole, 16):
        k1 = from_bytes(data[start : start + 8], "little") * MURMUR_C1 & _MASK
        k1 = ((k1 << 31 | k1 >> 33) & _MASK) * MURMUR_C2 & _MASK
        h1 ^= k1
        h1 = ((((h1 << 27 | h1 >> 37) & _MASK) + h2) * 5 + MURMUR_H1) & _MASK
        k2 = from_bytes(data[start + 8 : start + 16], "little") * MURMUR_C2 & _MASK
        k2 = ((k2 << 33 | k2 >> 31) & _MASK) * MURMUR_C1 & _MASK
        h2 ^= k2
        h2 = ((((h2 << 31 | h2 >> 33) & _MASK) + h1) * 5 + MURMUR_H2) & _MASK
    rest = length - whole
    if rest > 8:
        k2 = from_bytes(data[whole + 8 :], "little") * MURMUR_C2 & _MASK
        h2 ^= ((k2 << 33 | k2 >> 31) & _MASK) * MURMUR_C1 & _MASK
    if rest:
        k1 = from_bytes(data[whole : whole + 8], "little") * MURMUR_C1 & _MASK
        h1 ^= ((k1 << 31 | k1 >> 33) & _MASK) * MURMUR_C2 & _MASK
    h1 ^= length
    h2 ^= length
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    h1 = _final_mix(h1)
    h2 = _final_mix(h2)
    h1 = (h1 + h2) & _MASK
    return h1, (h2 + h1) & _MASK


ROUTING_SEED: Final = java_string_hash("EventRouter")
TABLE_SEED: Final = java_string_hash("KeyValueTableRouter")


def hash_bytes_to_range(data: bytes) -> float:
    """Return the position of a table key in [0, 1)."""
    return (murmur3_x64_128(data, TABLE_SEED)[0] >> 12) / (1 << 52)


def hash_to_range(text: str, seed: int = ROUTING_SEED) -> float:
    """Return the position of a text in [0, 1); its UTF-16 units are hashed."""
    return (murmur3_x64_128(text.encode("utf-16-le", "surrogatepass"), seed)[0] >> 12) / (1 << 52)


routing_key_position = lru_cache(maxsize=65536)(hash_to_range)
"""The position of a routing key in [0, 1); cached, because keys repeat."""
