"""Encode commands to bytes and decode them.

The generic codec follows the field specifications of ``commands``. The commands of the append and read paths
have hand-written, faster counterparts below it; tests check that both give the same result. A frame is an
int32 code, an int32 body length and the body (``docs/protocol/wire.md``, "Frames").
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as struct_error
from typing import Any, Final
from uuid import UUID

from pravega_wire.errors import DecodeError, EncodeError, TruncatedInputError, UnknownCommandError
from pravega_wire.protocol import commands as c
from pravega_wire.protocol.primitives import decode_modified_utf8, encode_modified_utf8

__all__ = [
    "HEADER",
    "MAX_DECODED_BODY",
    "MAX_ENCODED_BODY",
    "append_block_header",
    "appended_data",
    "decode_body",
    "decode_generic",
    "encode",
    "encode_parts",
    "segment_read_data_at",
]

HEADER: Final = Struct(">ii")
MAX_DECODED_BODY: Final = 16777215
MAX_ENCODED_BODY: Final = 16777207
"""The server includes the header in its limit of 16777215 bytes, so a body must be 8 bytes smaller."""

Part = bytes | memoryview
_I64 = Struct(">q")
_I32 = Struct(">i")
_I8 = Struct(">b")
_U16 = Struct(">H")
_ATTRIBUTE = Struct(">16sbqq")
_CHUNK = Struct(">qqq")
_EVENT = Struct(">ii")

# --- writing -------------------------------------------------------------------------------------


def _utf(out: list[Part], value: str) -> None:
    data = encode_modified_utf8(value)
    out.append(_U16.pack(len(data)))
    out.append(data)


def _counted(out: list[Part], value: Part) -> None:
    out.append(_I32.pack(len(value)))
    out.append(value)


def _key(out: list[Part], key: c.TableKey) -> None:
    length = len(key.data)
    out.append(_EVENT.pack(4 + length + 8, length))
    if length:
        out.append(key.data)
        out.append(_I64.pack(key.version))


def _event(out: list[Part], payload: Part) -> None:
    out.append(_EVENT.pack(0, len(payload)))
    out.append(payload)


def _entry(out: list[Part], entry: c.TableEntry) -> None:
    _key(out, entry.key)
    out.append(_EVENT.pack(4 + len(entry.value), len(entry.value)))
    out.append(entry.value)


def _attribute(out: list[Part], update: c.AttributeUpdate) -> None:
    out.append(
        _ATTRIBUTE.pack(update.attribute_id.bytes, update.update_type, update.new_value, update.old_value)
    )


def _chunk(out: list[Part], chunk: c.ChunkInfo) -> None:
    out.append(_CHUNK.pack(chunk.length_in_metadata, chunk.length_in_storage, chunk.start_offset))
    _utf(out, chunk.chunk_name)
    out.append(b"\1" if chunk.exists_in_storage else b"\0")


def _merged(out: list[Part], source: c.MergedSource) -> None:
    _utf(out, source.source)
    out.append(_I64.pack(source.new_target_write_offset))


def _iterator(out: list[Part], args: c.TableIteratorArgs) -> None:
    for value in (args.continuation_token, args.prefix_filter, args.from_key, args.to_key):
        _counted(out, value)


def _sequence(item: Callable[[list[Part], Any], None]) -> Callable[[list[Part], Any], None]:
    def write(out: list[Part], values: Any) -> None:
        out.append(_I32.pack(len(values)))
        for value in values:
            item(out, value)

    return write


_WRITERS: dict[str, Callable[[list[Part], Any], None]] = {
    "i64": lambda out, value: out.append(_I64.pack(value)),
    "i32": lambda out, value: out.append(_I32.pack(value)),
    "i8": lambda out, value: out.append(_I8.pack(value)),
    "bool": lambda out, value: out.append(b"\1" if value else b"\0"),
    "utf": _utf,
    "uuid": lambda out, value: out.append(value.bytes),
    "bytes": _counted,
    "raw": lambda out, value: out.append(value),
    "EVENT": _event,
    "ITER": _iterator,
    "list<i64>": _sequence(lambda out, value: out.append(_I64.pack(value))),
    "list<utf>": _sequence(_utf),
    "list<utf i64>": _sequence(_merged),
    "list<KEY>": _sequence(_key),
    "ENTRIES": _sequence(_entry),
    "list<ATTR>": _sequence(_attribute),
    "list<CHUNK>": _sequence(_chunk),
}

# --- reading -------------------------------------------------------------------------------------

Read = Callable[[memoryview, int], tuple[Any, int]]


def _slice(body: memoryview, start: int, length: int) -> memoryview:
    if length < 0:
        raise DecodeError(f"a field has a negative length ({length})")
    end = start + length
    if end > len(body):
        raise TruncatedInputError(f"a field of {length} bytes is announced, and {len(body) - start} are left")
    return body[start:end]


def _read_utf(body: memoryview, at: int) -> tuple[str, int]:
    length = _U16.unpack_from(body, at)[0]
    return decode_modified_utf8(bytes(_slice(body, at + 2, length))), at + 2 + length


def _read_counted(body: memoryview, at: int) -> tuple[bytes, int]:
    length = _I32.unpack_from(body, at)[0]
    return bytes(_slice(body, at + 4, length)), at + 4 + length


def _read_key(body: memoryview, at: int) -> tuple[c.TableKey, int]:
    length = _I32.unpack_from(body, at + 4)[0]
    if length == 0:
        return c.TableKey(b"", -(2**63)), at + 8
    data = bytes(_slice(body, at + 8, length))
    at += 8 + length
    return c.TableKey(data, _I64.unpack_from(body, at)[0]), at + 8


def _read_entry(body: memoryview, at: int) -> tuple[c.TableEntry, int]:
    key, at = _read_key(body, at)
    value, at = _read_counted(body, at + 4)
    return c.TableEntry(key, value), at


def _read_event(body: memoryview, at: int) -> tuple[bytes, int]:
    kind, length = _EVENT.unpack_from(body, at)
    if kind != 0:
        raise DecodeError(f"an event has type {kind} instead of 0")
    return bytes(_slice(body, at + 8, length)), at + 8 + length


def _read_attribute(body: memoryview, at: int) -> tuple[c.AttributeUpdate, int]:
    attribute, kind, new, old = _ATTRIBUTE.unpack_from(body, at)
    return c.AttributeUpdate(UUID(bytes=attribute), kind, new, old), at + _ATTRIBUTE.size


def _read_chunk(body: memoryview, at: int) -> tuple[c.ChunkInfo, int]:
    in_metadata, in_storage, start = _CHUNK.unpack_from(body, at)
    name, at = _read_utf(body, at + _CHUNK.size)
    return c.ChunkInfo(in_metadata, in_storage, start, name, body[at] != 0), at + 1


def _read_merged(body: memoryview, at: int) -> tuple[c.MergedSource, int]:
    name, at = _read_utf(body, at)
    return c.MergedSource(name, _I64.unpack_from(body, at)[0]), at + 8


def _read_iterator(body: memoryview, at: int) -> tuple[c.TableIteratorArgs, int]:
    values = []
    for _ in range(4):
        # Older peers end the body early; a missing value counts as empty.
        value = b""
        if at < len(body):
            value, at = _read_counted(body, at)
        values.append(value)
    return c.TableIteratorArgs(*values), at


def _read_sequence(item: Read, smallest: int) -> Read:
    def read(body: memoryview, at: int) -> tuple[tuple[Any, ...], int]:
        count = _I32.unpack_from(body, at)[0]
        at += 4
        # Checked before anything is built: the peer may have sent any count.
        if count < 0 or count * smallest > len(body) - at:
            raise DecodeError(f"a list of {count} elements is announced, and {len(body) - at} bytes are left")
        values = []
        for _ in range(count):
            value, at = item(body, at)
            values.append(value)
        return tuple(values), at

    return read


def _read_i64(body: memoryview, at: int) -> tuple[int, int]:
    return _I64.unpack_from(body, at)[0], at + 8


_READERS: dict[str, Read] = {
    "i64": _read_i64,
    "i32": lambda body, at: (_I32.unpack_from(body, at)[0], at + 4),
    "i8": lambda body, at: (_I8.unpack_from(body, at)[0], at + 1),
    "bool": lambda body, at: (body[at] != 0, at + 1),
    "utf": _read_utf,
    "uuid": lambda body, at: (UUID(bytes=bytes(_slice(body, at, 16))), at + 16),
    "bytes": _read_counted,
    "raw": lambda body, at: (bytes(body[at:]), len(body)),
    "EVENT": _read_event,
    "ITER": _read_iterator,
    "list<i64>": _read_sequence(_read_i64, 8),
    "list<utf>": _read_sequence(_read_utf, 2),
    "list<utf i64>": _read_sequence(_read_merged, 10),
    "list<KEY>": _read_sequence(_read_key, 8),
    "ENTRIES": _read_sequence(_read_entry, 16),
    "list<ATTR>": _read_sequence(_read_attribute, _ATTRIBUTE.size),
    "list<CHUNK>": _read_sequence(_read_chunk, _CHUNK.size + 3),
}


class _Plan:
    """Readers and writers of one command's fields."""

    __slots__ = ("command", "reads", "writes")

    def __init__(self, command: type[c.Command]) -> None:
        specs = c.field_specs(command)
        self.command = command
        self.writes = [(spec.name, _WRITERS[spec.kind]) for spec in specs]
        self.reads = [(_READERS[spec.kind], spec.optional, spec.default) for spec in specs]

    def decode(self, body: memoryview) -> c.Command:
        values = []
        at = 0
        end = len(body)
        for read, optional, default in self.reads:
            if optional and at >= end:
                values.append(default)
                continue
            value, at = read(body, at)
            values.append(value)
        return self.command(*values)


_PLANS: Final = {code: _Plan(command) for code, command in c.COMMANDS.items()}

# --- hot commands --------------------------------------------------------------------------------

_DATA_APPENDED = Struct(">16sqqqq")
_SEGMENT_READ_TAIL = Struct(">q??i")
_APPEND_END_HEAD = Struct(">ii16sii")
_APPEND_END_TAIL = Struct(">iqq")


def append_block_header(
    writer_id: bytes, data_length: int, num_events: int, last_event_number: int, request_id: int
) -> tuple[bytes, bytes]:
    """Return what goes before and after the data of an ``AppendBlockEnd`` frame without an ``AppendBlock``.

    :param writer_id: 16 bytes.
    :param data_length: bytes of framed events.
    :param num_events: number of events in the data.
    :param last_event_number: number of the last event.
    :param request_id: request id of the set-up.
    :raises EncodeError: the frame would exceed the limit.
    """
    length = 16 + 4 + 4 + data_length + 20
    if length > MAX_ENCODED_BODY:
        raise EncodeError(
            f"an append of {data_length} bytes does not fit in a frame (at most {MAX_ENCODED_BODY - 44})"
        )
    return (
        _APPEND_END_HEAD.pack(4, length, writer_id, data_length, data_length),
        _APPEND_END_TAIL.pack(num_events, last_event_number, request_id),
    )


def _decode_data_appended(body: memoryview) -> c.Command:
    if len(body) < _DATA_APPENDED.size:
        return _PLANS[7].decode(body)
    writer, number, previous, request_id, offset = _DATA_APPENDED.unpack_from(body)
    return c.DataAppended(UUID(bytes=writer), number, previous, request_id, offset)


def _decode_segment_read(body: memoryview) -> c.Command:
    """Decode as the generic codec does, but return the data as a view instead of a copy."""
    segment, at = _read_utf(body, 0)
    offset, at_tail, end_of_segment, length = _SEGMENT_READ_TAIL.unpack_from(body, at)
    at += _SEGMENT_READ_TAIL.size
    data = _slice(body, at, length)
    at += length
    request_id = _I64.unpack_from(body, at)[0] if at < len(body) else -1
    return c.SegmentRead(segment, offset, at_tail, end_of_segment, data, request_id)


def segment_read_data_at(segment: str) -> int:
    """Return how many bytes of a ``SegmentRead``'s body precede its data."""
    return 2 + len(encode_modified_utf8(segment)) + _SEGMENT_READ_TAIL.size


_HOT: dict[int, Callable[[memoryview], c.Command]] = {
    c.DataAppended.CODE: _decode_data_appended,
    c.SegmentRead.CODE: _decode_segment_read,
}

# --- public --------------------------------------------------------------------------------------


def encode_parts(command: c.Command) -> list[Part]:
    """Encode a command as the pieces of a whole frame; a large payload is not copied.

    :raises EncodeError: a value does not fit its field, or the frame exceeds the limit.
    """
    out: list[Part] = [b""]
    try:
        for name, write in _PLANS[command.CODE].writes:
            write(out, getattr(command, name))
    except (struct_error, OverflowError) as error:
        raise EncodeError(f"{type(command).__name__}: {error}") from error
    length = sum(map(len, out))
    if length > MAX_ENCODED_BODY:
        raise EncodeError(
            f"{type(command).__name__} of {length} bytes does not fit in a frame (at most {MAX_ENCODED_BODY})"
        )
    out[0] = HEADER.pack(command.CODE, length)
    return out


def encode(command: c.Command) -> bytes:
    """Encode a command as a whole frame; raises the errors of :func:`encode_parts`."""
    return b"".join(encode_parts(command))


def appended_data(block: c.AppendBlock | None, end: c.AppendBlockEnd) -> bytes:
    """Return the bytes that a server stores for an append (``docs/protocol/wire.md``, "Append blocks").

    :param block: the ``AppendBlock`` before ``end``, or None if there is none.
    :param end: the end of the block.
    :raises DecodeError: the two do not belong together, or the block's closing frame is wrong.
    """
    tail = bytes(end.data)
    if block is None:
        return tail
    if block.writer_id != end.writer_id:
        raise DecodeError("an append block and its end have different writer ids")
    data = bytes(block.data)
    whole = end.size_of_whole_events
    if not 0 <= whole <= len(data):
        raise DecodeError(f"an append block of {len(data)} bytes cannot have {whole} bytes of whole events")
    result, closing = data[:whole], data[whole:]
    if not closing:
        # A server leaves the end's data out then (observed).
        return result
    if len(closing) < HEADER.size:
        raise TruncatedInputError("an append block ends in the middle of its closing frame")
    code, length = HEADER.unpack_from(closing)
    if length != len(closing) - HEADER.size:
        raise DecodeError("an append block has something besides its closing frame after the events")
    if code == c.PartialEvent.CODE:
        return result + closing[HEADER.size :] + tail
    if code != c.Padding.CODE:
        raise DecodeError(f"an append block is closed by command {code} instead of a Padding or PartialEvent")
    if tail:
        raise DecodeError("an append block is padded although its end has data")
    return result


def decode_generic(code: int, body: memoryview) -> c.Command:
    """Decode by the field specifications alone; the hand-written decoders must give the same result."""
    return _guarded(code, body, None)


def decode_body(code: int, body: memoryview) -> c.Command:
    """Decode the command in a frame's body. Bytes after the last known field are ignored.

    The data of a ``SegmentRead`` is a view of ``body``; everything else is copied.

    :raises UnknownCommandError: there is no command with this code.
    :raises DecodeError: the body is malformed.
    """
    return _guarded(code, body, _HOT.get(code))


def _guarded(code: int, body: memoryview, hot: Callable[[memoryview], c.Command] | None) -> c.Command:
    plan = _PLANS.get(code)
    if plan is None:
        raise UnknownCommandError(f"command code {code} does not exist in wire version 16")
    try:
        return plan.decode(body) if hot is None else hot(body)
    except (struct_error, IndexError) as error:
        raise TruncatedInputError(
            f"the body of a {plan.command.__name__} ({len(body)} bytes) ends early"
        ) from error
