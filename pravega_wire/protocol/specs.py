"""The wire commands as declarative ``construct`` specifications.

They are made from the same field annotations as the fast codec, but by other means: they are the readable
reference that the codec is tested against, and ``pravega_wire.dissect`` decodes with them, field by field.
Nothing on the hot path imports this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import Any
from uuid import UUID

from construct import (
    Adapter,
    Bytes,
    Check,
    Const,
    Construct,
    ConstructError,
    Flag,
    GreedyBytes,
    If,
    Int8sb,
    Int16ub,
    Int32sb,
    Int64sb,
    Optional,
    Prefixed,
    PrefixedArray,
    Rebuild,
    Struct,
    this,
)

from pravega_wire.errors import DecodeError, EncodeError, PravegaError, UnknownCommandError
from pravega_wire.protocol import commands as c
from pravega_wire.protocol.primitives import decode_modified_utf8, encode_modified_utf8

__all__ = ["ParsedField", "build_with_spec", "fields_of", "parse_with_spec", "spec_for"]

_UNSET = -(2**63)


class _ModifiedUtf8(Adapter):  # type: ignore[misc]  # construct has no types
    def _decode(self, obj: bytes, context: Any, path: str) -> str:
        return decode_modified_utf8(obj)

    def _encode(self, obj: str, context: Any, path: str) -> bytes:
        return encode_modified_utf8(obj)


class _Uuid(Adapter):  # type: ignore[misc]  # construct has no types
    def _decode(self, obj: bytes, context: Any, path: str) -> UUID:
        return UUID(bytes=obj)

    def _encode(self, obj: UUID, context: Any, path: str) -> bytes:
        return obj.bytes


class _Plain(Adapter):  # type: ignore[misc]  # construct has no types
    """Buffers of any kind as bytes."""

    def _decode(self, obj: bytes, context: Any, path: str) -> bytes:
        return bytes(obj)

    def _encode(self, obj: Any, context: Any, path: str) -> bytes:
        return bytes(obj)


class _Value(Adapter):  # type: ignore[misc]  # construct has no types
    """A nested struct, converted to one of our value classes."""

    def __init__(self, subcon: Construct, kind: type[Any]) -> None:
        super().__init__(subcon)
        self._kind = kind

    def _decode(self, obj: Any, context: Any, path: str) -> Any:
        names = [each.name for each in self.subcon.subcons if each.name in self._names()]
        return self._kind(**{name: obj[name] for name in names})

    def _encode(self, obj: Any, context: Any, path: str) -> dict[str, Any]:
        return {name: getattr(obj, name) for name in self._names()}

    def _names(self) -> tuple[str, ...]:
        return tuple(self._kind.__dataclass_fields__)


class _Tuple(Adapter):  # type: ignore[misc]  # construct has no types
    def _decode(self, obj: Any, context: Any, path: str) -> tuple[Any, ...]:
        return tuple(obj)

    def _encode(self, obj: Any, context: Any, path: str) -> list[Any]:
        return list(obj)


class _Key(Adapter):  # type: ignore[misc]  # construct has no types
    """An empty key has neither bytes nor version on the wire."""

    def _decode(self, obj: Any, context: Any, path: str) -> c.TableKey:
        return c.TableKey(obj.data or b"", _UNSET if obj.version is None else obj.version)

    def _encode(self, obj: c.TableKey, context: Any, path: str) -> dict[str, Any]:
        return {"data": bytes(obj.data), "version": obj.version, "length": len(obj.data)}


class _EventPayload(Adapter):  # type: ignore[misc]  # construct has no types
    def _decode(self, obj: Any, context: Any, path: str) -> bytes:
        return bytes(obj.payload)

    def _encode(self, obj: Any, context: Any, path: str) -> dict[str, bytes]:
        return {"payload": bytes(obj)}


class _OrEmpty(Adapter):  # type: ignore[misc]  # construct has no types
    """A value that is missing at the end counts as empty."""

    def _decode(self, obj: bytes | None, context: Any, path: str) -> bytes:
        return obj or b""

    def _encode(self, obj: bytes, context: Any, path: str) -> bytes:
        return obj


def _many(item: Construct) -> Construct:
    return _Tuple(PrefixedArray(Int32sb, item))


_UTF = _ModifiedUtf8(Prefixed(Int16ub, GreedyBytes))
_UUID = _Uuid(Bytes(16))
_COUNTED = _Plain(Prefixed(Int32sb, GreedyBytes))
_KEY = _Key(
    Struct(
        "total" / Rebuild(Int32sb, this.length + 12),
        "length" / Int32sb,
        Check(this.length >= 0),
        "data" / If(this.length > 0, Bytes(this.length)),
        "version" / If(this.length > 0, Int64sb),
    )
)
_ENTRY = _Value(
    Struct(
        "key" / _KEY,
        "total" / Rebuild(Int32sb, lambda context: 4 + len(context.value)),
        "value" / _COUNTED,
    ),
    c.TableEntry,
)

_KINDS: dict[str, Construct] = {
    "i64": Int64sb,
    "i32": Int32sb,
    "i8": Int8sb,
    "bool": Flag,
    "utf": _UTF,
    "uuid": _UUID,
    "bytes": _COUNTED,
    "raw": _Plain(GreedyBytes),
    "EVENT": _EventPayload(Struct("type" / Const(0, Int32sb), "payload" / _COUNTED)),
    "ITER": _Value(
        Struct(
            "continuation_token" / _OrEmpty(Optional(_COUNTED)),
            "prefix_filter" / _OrEmpty(Optional(_COUNTED)),
            "from_key" / _OrEmpty(Optional(_COUNTED)),
            "to_key" / _OrEmpty(Optional(_COUNTED)),
        ),
        c.TableIteratorArgs,
    ),
    "list<i64>": _many(Int64sb),
    "list<utf>": _many(_UTF),
    "list<utf i64>": _many(
        _Value(Struct("source" / _UTF, "new_target_write_offset" / Int64sb), c.MergedSource)
    ),
    "list<KEY>": _many(_KEY),
    "ENTRIES": _many(_ENTRY),
    "list<ATTR>": _many(
        _Value(
            Struct(
                "attribute_id" / _UUID,
                "update_type" / Int8sb,
                "new_value" / Int64sb,
                "old_value" / Int64sb,
            ),
            c.AttributeUpdate,
        )
    ),
    "list<CHUNK>": _many(
        _Value(
            Struct(
                "length_in_metadata" / Int64sb,
                "length_in_storage" / Int64sb,
                "start_offset" / Int64sb,
                "chunk_name" / _UTF,
                "exists_in_storage" / Flag,
            ),
            c.ChunkInfo,
        )
    ),
}


def spec_for(command: type[c.Command]) -> Construct:
    """Return the specification of a command's body; optional trailing fields are ``Optional``."""
    return _spec_of(command.CODE)


@cache
def _spec_of(code: int) -> Construct:
    command = c.COMMANDS[code]
    parts = []
    for each in c.field_specs(command):
        kind = _KINDS[each.kind]
        parts.append(each.name / (Optional(kind) if each.optional else kind))
    return Struct(*parts)


_FRAME = Struct("code" / Int32sb, "body" / Prefixed(Int32sb, GreedyBytes))


def build_with_spec(command: c.Command) -> bytes:
    """Encode a command as a whole frame; :func:`pravega_wire.protocol.codec.encode` must give the same bytes.

    :raises EncodeError: a value does not fit its field.
    """
    values = {each.name: getattr(command, each.name) for each in c.field_specs(type(command))}
    try:
        body = spec_for(type(command)).build(values)
        return bytes(_FRAME.build({"code": command.CODE, "body": body}))
    except PravegaError:
        raise
    except ConstructError as error:
        raise EncodeError(f"{type(command).__name__}: {error}") from error


def parse_with_spec(frame: bytes) -> c.Command:
    """Decode the command in a whole frame.

    :raises DecodeError: the frame is malformed.
    :raises UnknownCommandError: there is no command with this code.
    """
    try:
        outer = _FRAME.parse(frame)
        kind = c.COMMANDS.get(outer.code)
        if kind is None:
            raise UnknownCommandError(f"command code {outer.code} does not exist in wire version 16")
        found = spec_for(kind).parse(outer.body)
    except PravegaError:
        raise
    except ConstructError as error:
        raise DecodeError(f"malformed frame: {error}") from error
    values = {}
    for each in c.field_specs(kind):
        value = found[each.name]
        values[each.name] = each.default if value is None else value
    return kind(**values)


@dataclass(frozen=True, slots=True)
class ParsedField:
    """One field that was found in the body of a frame.

    :ivar name: name of the field.
    :ivar kind: its encoding, in the notation of ``docs/protocol/wire.md``, "Field types".
    :ivar value: its value; the default of an optional field that the body ends before.
    :ivar start: offset of its first byte in the body.
    :ivar end: offset after its last byte; equal to ``start`` if the field is missing.
    """

    name: str
    kind: str
    value: Any
    start: int
    end: int


@cache
def _fields_of(code: int) -> tuple[c.FieldSpec, ...]:
    return c.field_specs(c.COMMANDS[code])


def fields_of(command: type[c.Command], body: bytes) -> Iterator[ParsedField]:
    """Decode the body of a command field by field, so that what precedes a damaged field is known as well.

    :raises DecodeError: the next field is malformed, or the body ends within it.
    """
    stream = BytesIO(body)
    for each in _fields_of(command.CODE):
        start = stream.tell()
        if each.optional and start >= len(body):
            yield ParsedField(each.name, each.kind, each.default, start, start)
            continue
        try:
            value = _KINDS[each.kind].parse_stream(stream)
        except (PravegaError, ConstructError) as error:
            # Construct's own texts begin with a path that has no meaning here.
            reason = str(error).rpartition("\n")[2]
            raise DecodeError(
                f"field {each.name} ({each.kind}) of {command.__name__}, at byte {start} of {len(body)}: "
                f"{reason}"
            ) from error
        yield ParsedField(each.name, each.kind, value, start, stream.tell())
