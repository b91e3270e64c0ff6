"""Keys and values of key-value tables, as users write them."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from pravega_wire.cli.values import short
from pravega_wire.controller.types import KeyValueTableConfiguration
from pravega_wire.errors import InvalidArgumentError, TableKeyBadVersionError

if TYPE_CHECKING:
    from pravega_wire.stream.key_value_table import KeyValueTable, TableEntry

__all__ = ["FORMATS", "decode", "encode", "entry_record", "key_of", "remove"]

FORMATS: Final = ("text", "hex", "int")
"""How bytes are written: UTF-8 text; hexadecimal digits; a whole number from 0 on, high byte first."""


def encode(text: str, format: str, length: int | None = None) -> bytes:
    """Return the bytes that a text means.

    :param text: the text.
    :param format: one of :data:`FORMATS`.
    :param length: the length that a key has, in bytes: a number has that many, and shorter text gets zero
        bytes at its end.
    :raises InvalidArgumentError: the text is not of this format, or too long.
    """
    try:
        if format == "hex":
            data = bytes.fromhex(text)
        elif format == "int":
            data = _whole(text, length or 8)
        else:
            data = text.encode()
    except (ValueError, OverflowError):
        raise InvalidArgumentError(f"{short(text)} is not {_what(format, length)}") from None
    if length is None or len(data) == length:
        return data
    if len(data) > length or format == "hex":
        raise InvalidArgumentError(
            f"the key {short(text)} has {len(data)} bytes, and keys of this table have {length}"
        )
    return data.ljust(length, b"\0")


def _what(format: str, length: int | None) -> str:
    if format == "hex":
        return "hex: two hexadecimal digits for each byte, such as 0aff"
    if format == "int":
        return f"int: a whole number from 0 on that fits into {length or 8} bytes"
    return "text that can be written as UTF-8"


def _whole(text: str, length: int) -> bytes:
    # A negative number is refused, because nothing in the bytes would say that it was negative.
    return int(text).to_bytes(length, "big")


async def remove(table: KeyValueTable[bytes, bytes, bytes], key: bytes | tuple[bytes, bytes]) -> bool:
    """Remove a key, and return whether it existed."""
    while (entry := await table.get(key)) is not None:
        try:
            await table.remove(key, entry.version)
        except TableKeyBadVersionError:
            # Another client has changed or removed it since.
            continue
        return True
    return False


def decode(data: bytes, format: str, *, key: bool = False) -> str:
    """Return bytes as text; bytes that are not of the format as ``base64:``.

    :param data: the bytes.
    :param format: one of :data:`FORMATS`.
    :param key: whether zero bytes at the end only fill a key.
    """
    if format == "hex":
        return data.hex()
    try:
        if format == "int":
            # Python does not convert more than some thousand digits.
            return str(int.from_bytes(data, "big"))
        return (data.rstrip(b"\0") if key else data).decode()
    except ValueError:
        return f"base64:{base64.b64encode(data).decode('ascii')}"


def key_of(
    configuration: KeyValueTableConfiguration, primary: str, secondary: str | None, format: str
) -> tuple[bytes, bytes]:
    """Return the primary and secondary key as bytes.

    :raises InvalidArgumentError: a key is too long, or the secondary key is missing or superfluous.
    """
    wants = configuration.secondary_key_length
    if wants and secondary is None:
        raise InvalidArgumentError(
            f"this table has secondary keys of {wants} bytes: name one with --secondary"
        )
    if not wants and secondary is not None:
        raise InvalidArgumentError("this table has no secondary keys")
    first = encode(primary, format, configuration.primary_key_length)
    return first, b"" if secondary is None else encode(secondary, format, wants)


def entry_record(entry: TableEntry[bytes, bytes, bytes], keys: str, values: str) -> dict[str, Any]:
    """Return an entry as a record."""
    record: dict[str, Any] = {"key": decode(entry.key.primary, keys, key=True)}
    if entry.key.secondary:
        record["secondary"] = decode(entry.key.secondary, keys, key=True)
    return record | {"value": decode(entry.value, values), "version": entry.version.to_text()}
