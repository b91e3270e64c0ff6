"""Java's "modified UTF-8", in which strings are encoded (``docs/protocol/wire.md``, "Field types")."""

from __future__ import annotations

from pravega_wire.errors import DecodeError, EncodeError

__all__ = ["MAX_UTF_BYTES", "decode_modified_utf8", "encode_modified_utf8"]

MAX_UTF_BYTES = 65535


def encode_modified_utf8(text: str) -> bytes:
    """Encode a string, without its byte count.

    Each UTF-16 code unit is encoded separately: U+0000 as ``C0 80``, a character outside the BMP as two
    surrogates of three bytes each. Unpaired surrogates are kept.

    :raises EncodeError: the result exceeds 65535 bytes.
    """
    if text.isascii() and "\0" not in text:
        data = text.encode("ascii")
    else:
        units = []
        for char in text:
            point = ord(char)
            if point > 0xFFFF:
                point -= 0x10000
                units.append(chr(0xD800 + (point >> 10)))
                units.append(chr(0xDC00 + (point & 0x3FF)))
            else:
                units.append(char)
        data = "".join(units).encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
    if len(data) > MAX_UTF_BYTES:
        raise EncodeError(f"a string of {len(data)} encoded bytes exceeds the limit of {MAX_UTF_BYTES}")
    return data


def decode_modified_utf8(data: bytes) -> str:
    """Decode a string that was encoded as by :func:`encode_modified_utf8`.

    Like Java's reader, this also accepts over-long forms and a plain zero byte.

    :raises DecodeError: the bytes are malformed.
    """
    if data.isascii():
        return data.decode("ascii")
    units = bytearray()
    index, length = 0, len(data)
    while index < length:
        first = data[index]
        if first < 0x80:
            unit, size = first, 1
        elif first >> 5 == 0b110:
            unit, size = first & 0x1F, 2
        elif first >> 4 == 0b1110:
            unit, size = first & 0x0F, 3
        else:
            raise DecodeError(f"byte {first:#04x} at {index} is not modified UTF-8")
        if index + size > length:
            raise DecodeError("a string of modified UTF-8 ends in the middle of a character")
        for following in data[index + 1 : index + size]:
            if following >> 6 != 0b10:
                raise DecodeError(f"byte {following:#04x} after {index} is not modified UTF-8")
            unit = (unit << 6) | (following & 0x3F)
        units += unit.to_bytes(2, "little")
        index += size
    return units.decode("utf-16-le", "surrogatepass")
