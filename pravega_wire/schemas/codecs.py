"""Compression of events, as in the registry's Java serializers.

Not public.
"""

from __future__ import annotations

import zlib
from typing import Any, Final, Literal

from pravega_wire.errors import DecodeError, InvalidArgumentError, MissingExtraError, TruncatedInputError
from pravega_wire.values.types import gzipped

__all__ = ["CODEC_NAMES", "Codec", "compress", "decompress"]

Codec = Literal["none", "gzip", "snappy"]

CODEC_NAMES: Final[dict[str, str]] = {
    "none": "",
    "gzip": "application/x-gzip",
    # Blocks without frames, in spite of the name.
    "snappy": "application/x-snappy-framed",
}
"""The names of codecs in a registry."""

_GZIP_WINDOW: Final = 31  # zlib: the largest window, with gzip's header and checksum
_MOST_MEMBERS: Final = 1000  # Java writes one


def codec_name(codec: object) -> str:
    """Return the registry's name of a codec.

    :raises InvalidArgumentError: there is no such codec.
    """
    if not isinstance(codec, str) or codec not in CODEC_NAMES:
        raise InvalidArgumentError(f"codec {codec!r} is not one of none, gzip, snappy")
    if codec == "snappy":
        _snappy()
    return CODEC_NAMES[codec]


def compress(name: str, data: bytes) -> bytes:
    """Return the bytes that Java's codec makes of the same data."""
    if name == CODEC_NAMES["gzip"]:
        return gzipped(data)
    if name == CODEC_NAMES["snappy"]:
        return bytes(_snappy().compress_raw(data))
    return data


def decompress(name: str, data: bytes, limit: int) -> bytes:
    """Return the data of a codec.

    :param limit: largest accepted number of bytes.
    :raises DecodeError: the data is damaged or larger than the limit, or the codec is unknown.
    """
    if name == "":
        return data
    if name == CODEC_NAMES["gzip"]:
        return _gunzip(data, limit)
    if name == CODEC_NAMES["snappy"]:
        return _unsnap(data, limit)
    raise DecodeError(f"the event was written with the codec {name!r}, which this package does not have")


def _gunzip(data: bytes, limit: int) -> bytes:
    parts: list[bytes] = []
    room = limit
    while data:
        member = zlib.decompressobj(wbits=_GZIP_WINDOW)
        try:
            part = member.decompress(data, room + 1)
        except zlib.error as error:
            raise DecodeError(f"the event is not valid gzip: {error}") from error
        room -= len(part)
        if room < 0:
            raise DecodeError(f"the event is larger than {limit} bytes when it is decompressed")
        if not member.eof:
            raise TruncatedInputError("the event's gzip data ends too early")
        parts.append(part)
        if len(parts) > _MOST_MEMBERS:
            # What is left is copied for each of them.
            raise DecodeError(f"the event's gzip data has more than {_MOST_MEMBERS} members")
        data = member.unused_data
    if not parts:
        raise TruncatedInputError("the event's gzip data is empty")
    return b"".join(parts)


def _unsnap(data: bytes, limit: int) -> bytes:
    snappy = _snappy()
    try:
        size = snappy.decompress_raw_len(data)
        if size > limit:
            raise DecodeError(f"the event is larger than {limit} bytes when it is decompressed ({size})")
        return bytes(snappy.decompress_raw(data))
    except _decompression_error() as error:
        raise DecodeError(f"the event is not valid snappy: {error}") from error


def _decompression_error() -> type[Exception]:
    import cramjam

    found: type[Exception] = cramjam.DecompressionError
    return found


def _snappy() -> Any:
    try:
        from cramjam import snappy
    except ImportError as error:
        raise MissingExtraError(
            "the codec snappy needs the package cramjam: pip install 'pravega-wire[schemas]'"
        ) from error
    return snappy
