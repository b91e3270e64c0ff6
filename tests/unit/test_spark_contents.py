"""What a batch puts into segments: the CRC-32 of a whole from those of its parts."""

from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from pravega_wire import StagedBytes
from spark_adapter.exactly_once import contents
from spark_adapter.exactly_once.contents import (
    by_number,
    crc32_combine,
    dump_contents,
    join_contents,
    load_contents,
)

pieces = st.binary(max_size=40) | st.builds(bytes, st.integers(0, 70_000))
"""Some are long enough for each byte of a length to count."""


@given(first=pieces, second=pieces)
def test_crc_of_two_parts_is_that_of_the_whole(first: bytes, second: bytes) -> None:
    combined = crc32_combine(zlib.crc32(first), zlib.crc32(second), len(second))
    assert combined == zlib.crc32(first + second)


def test_crc_of_a_long_part() -> None:
    # Longer than what three bytes of a length can say; the first part must survive all of it.
    second = bytes(17_000_001)
    combined = crc32_combine(zlib.crc32(b"first"), zlib.crc32(second), len(second))
    assert combined == zlib.crc32(second, zlib.crc32(b"first"))


def test_crc_of_a_part_of_a_round_length() -> None:
    # Nothing was computed for a shorter length yet, as in the process that commits.
    contents._byte_power.cache_clear()
    second = bytes(8 << 20)
    combined = crc32_combine(zlib.crc32(b"first"), zlib.crc32(second), len(second))
    assert combined == zlib.crc32(second, zlib.crc32(b"first"))


@given(st.lists(st.dictionaries(st.integers(0, 3), st.binary(min_size=1, max_size=20)), max_size=6))
def test_contents_join_in_order(parts: list[dict[int, bytes]]) -> None:
    whole: dict[int, bytes] = {}
    for part in parts:
        for segment_id, data in part.items():
            whole[segment_id] = whole.get(segment_id, b"") + data

    def sums(data: dict[int, bytes]) -> dict[int, StagedBytes]:
        return {each: StagedBytes(len(found), zlib.crc32(found)) for each, found in data.items()}

    joined = join_contents(map(sums, parts))
    assert joined == sums(whole)
    assert load_contents(dump_contents(joined)) == joined


def test_a_segment_keeps_its_number_in_another_epoch() -> None:
    one, two = StagedBytes(1, 2), StagedBytes(3, 4)
    assert by_number({(7 << 32) + 3: one, (7 << 32) + 4: two}) == {3: one, 4: two}
