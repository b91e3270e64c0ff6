"""Serializers of events that begin with an encoding id of the schema registry.

The form of an event, as in the registry's Java serializers: the byte 1, the encoding id in four bytes (big
endian), and the value in the codec and format that the id stands for.

Not public: :mod:`pravega_wire.schemas` exports the names that users need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from pravega_wire.errors import (
    DecodeError,
    EncodeError,
    InvalidArgumentError,
    SchemaNotFoundError,
    TruncatedInputError,
    UnknownEncodingError,
)
from pravega_wire.schemas.avro import AvroReader, AvroSchema, AvroWriter
from pravega_wire.schemas.codecs import compress, decompress
from pravega_wire.schemas.json_format import JsonReader, JsonSchema, JsonWriter
from pravega_wire.schemas.model import EncodingInfo, SchemaInfo, SerializationFormat
from pravega_wire.schemas.protobuf import ProtobufReader, ProtobufSchema, ProtobufWriter
from pravega_wire.schemas.transport import in_thread
from pravega_wire.support.checks import check_buffer

if TYPE_CHECKING:
    from google.protobuf.message import Message

__all__ = [
    "DecodedEvent", "EventSchema", "LookUp", "MultiFormatSerializer", "SchemaSerializer", "WithSchema",
    "combined", "encoding_id_of", "header_of", "reader_of", "writer_of",
]  # fmt: skip

_PROTOCOL: Final = 1
_HEADER_BYTES: Final = 5
_MOST_KEPT: Final = 1000
_NO_ID: Final = -1

EventSchema = AvroSchema | JsonSchema | ProtobufSchema

LookUp = Callable[[int], EncodingInfo]
"""Asks the registry for an encoding of a group, and blocks the thread; it can be pickled."""


class _Reader(Protocol):
    def decode(self, data: bytes, *, padded: bool) -> Any: ...


class _Writer(Protocol):
    def encode(self, value: object) -> bytes: ...


@dataclass(frozen=True, slots=True)
class DecodedEvent:
    """The value of an event, and how it was written.

    :ivar value: the value.
    :ivar encoding: schema, version and codec; None for an event without a header.
    """

    value: Any
    encoding: EncodingInfo | None


def encoding_id_of(payload: bytes) -> int:
    """Return the encoding id in an event's header.

    :raises TruncatedInputError: the event is shorter than a header.
    :raises DecodeError: the event does not begin with the header of the schema registry.
    """
    if len(payload) < _HEADER_BYTES:
        raise TruncatedInputError(
            f"the event has {len(payload)} bytes, but the header of the schema registry has {_HEADER_BYTES}"
        )
    if payload[0] != _PROTOCOL:
        raise DecodeError(
            f"the event begins with byte {payload[0]}, not with the header of the schema registry "
            f"({_PROTOCOL}): it was written without one, or by another serializer"
        )
    found = int.from_bytes(payload[1:_HEADER_BYTES], "big", signed=True)
    if found < 0:
        raise DecodeError(f"the event has the encoding id {found}, which no schema registry gives")
    return found


def _id_in(payload: bytes) -> int:
    """Return the encoding id in an event's header, or ``_NO_ID``."""
    if len(payload) < _HEADER_BYTES or payload[0] != _PROTOCOL:
        return _NO_ID
    return max(_NO_ID, int.from_bytes(payload[1:_HEADER_BYTES], "big", signed=True))


def header_of(encoding_id: int) -> bytes:
    """Return the header of events with an encoding id."""
    return bytes([_PROTOCOL]) + encoding_id.to_bytes(4, "big")


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a serializer needs from the registry; it can be pickled.

    :ivar group: the group.
    :ivar writer: the schema to write, or None.
    :ivar header: the header of events that are written; b"" for events without one.
    :ivar codec: the registry's name of the codec to write with.
    :ivar reader: the schema to read into, or None for that of the event.
    :ivar with_header: whether events have a header.
    :ivar encodings: encodings that are known.
    :ivar limit: largest accepted size of a decompressed event in bytes.
    """

    group: str
    writer: EventSchema | None
    header: bytes
    codec: str
    reader: EventSchema | None
    with_header: bool
    encodings: Mapping[int, EncodingInfo]
    limit: int


class SchemaSerializer:
    """Writes events of one schema, and reads events of all schemas of a group.

    :meth:`SchemaRegistry.serializer` and :meth:`SchemaRegistry.deserializer` create one. It knows the header
    of the events that it writes, so writing never waits. The readers of groups and the followers of streams
    fetch encodings that it does not know before they hand out the events (:meth:`prepare_payloads`). Where
    nobody has done that, :meth:`deserialize` asks the registry once, which blocks the calling thread for as
    long as that takes; :meth:`SchemaRegistry.prepare` fetches the encodings of events without blocking. With
    ``on_unknown="raise"`` nothing is fetched, and
    :class:`~pravega_wire.errors.UnknownEncodingError` is raised.

    It can be pickled.

    :ivar group: name of the group.
    """

    def __init__(self, prepared: Prepared, fetch: LookUp | None) -> None:
        self.group = prepared.group
        self._prepared = prepared
        self._fetch = fetch
        self._encodings = dict(prepared.encodings)
        # Ids of prepared events that the group does not have.
        self._absent: set[int] = set()
        self._readers: dict[int, _Reader] = {}
        self._writer: _Writer | None = None
        self._plain: _Reader | None = None
        if prepared.writer is not None:
            self._writer = writer_of(prepared.writer.info)
        if not prepared.with_header:
            self._plain = _plain_reader(prepared.reader or prepared.writer)

    def __repr__(self) -> str:
        writes = "" if self._prepared.writer is None else f", {self._prepared.writer!r}"
        return f"SchemaSerializer({self.group!r}{writes})"

    def __reduce__(self) -> tuple[Any, ...]:
        return SchemaSerializer, (self._prepared, self._fetch), {"_encodings": dict(self._encodings)}

    def serialize(self, value: Any) -> bytes:
        """Return the payload for a value of the schema.

        :raises EncodeError: the value does not fit the schema, or this serializer only reads.
        """
        if self._writer is None:
            raise EncodeError(f"the serializer of group {self.group} has no schema to write: it only reads")
        prepared = self._prepared
        return prepared.header + compress(prepared.codec, self._writer.encode(value))

    def deserialize(self, payload: bytes) -> Any:
        """Return the value of a payload.

        :raises DecodeError: the payload is not an event of the group.
        :raises UnknownEncodingError: the group has no such encoding, or (with ``on_unknown="raise"``) it has
            not been fetched yet.
        :raises SchemaRegistryError: the registry could not be asked for the encoding.
        """
        return self._decoded(check_buffer(payload))[0]

    def decode(self, payload: bytes) -> DecodedEvent:
        """Return the value of a payload, and how it was written.

        :raises DecodeError: as in :meth:`deserialize`.
        :raises SchemaRegistryError: as in :meth:`deserialize`.
        """
        return DecodedEvent(*self._decoded(check_buffer(payload)))

    async def prepare_payloads(self, payloads: Iterable[bytes]) -> None:
        """Fetch the encodings of events that are not known yet; on trio or asyncio, without blocking.

        Readers await it before they hand out these events. An event without a header, or with an id that the
        group does not have, is left to :meth:`deserialize`.

        :param payloads: the events.
        :raises SchemaRegistryError: the registry could not be asked.
        """
        if self._fetch is None or self._plain is not None:
            return
        ids = set(map(_id_in, payloads)) - self._encodings.keys()
        ids.discard(_NO_ID)
        self._absent -= ids
        for id in sorted(ids):
            try:
                self.learn(id, await in_thread(partial(self._fetch, id)))
            except SchemaNotFoundError:
                # A registry gives its ids in order: it does not have the higher ones either.
                if len(self._absent) >= _MOST_KEPT:
                    self._absent = set()
                self._absent.update(each for each in ids if each >= id)
                return

    def _decoded(self, payload: bytes) -> tuple[Any, EncodingInfo | None]:
        if self._plain is not None:
            return self._plain.decode(payload, padded=False), None
        found = encoding_id_of(payload)
        encoding = self._encoding(found)
        codec = encoding.codec.name
        data = decompress(codec, payload[_HEADER_BYTES:], self._prepared.limit)
        # Java compresses its whole buffer, with zeros after the value.
        return self._reader(found, encoding).decode(data, padded=codec != ""), encoding

    def _encoding(self, id: int) -> EncodingInfo:
        known = self._encodings.get(id)
        if known is not None:
            return known
        if self._fetch is None:
            raise UnknownEncodingError(
                f"the encoding {id} of group {self.group} has not been fetched: await registry.prepare("
                "serializer, event) before this event is read",
                encoding_id=id,
            )
        if id in self._absent:
            raise self.no_such(id)
        try:
            found = self._fetch(id)
        except SchemaNotFoundError as error:
            raise self.no_such(id) from error
        self.learn(id, found)
        return found

    def no_such(self, id: int) -> UnknownEncodingError:
        """Return the error for an encoding id that the registry does not have."""
        return UnknownEncodingError(
            f"the event has the encoding id {id}, which group {self.group} does not have: it belongs to "
            "another group, or is damaged",
            encoding_id=id,
        )

    def knows_header(self, payload: bytes) -> bool:
        """Return whether an event can be read without asking the registry."""
        return not self._prepared.with_header or encoding_id_of(payload) in self._encodings

    def learn(self, id: int, encoding: EncodingInfo) -> None:
        """Keep an encoding."""
        if len(self._encodings) >= _MOST_KEPT:
            self._encodings.clear()
            self._readers.clear()
        self._encodings[id] = encoding

    def _reader(self, id: int, encoding: EncodingInfo) -> _Reader:
        known = self._readers.get(id)
        if known is None:
            target = self._target(encoding.schema)
            known = self._readers[id] = reader_of(
                encoding.schema,
                None if target is None else target.info,
                target.message if isinstance(target, ProtobufSchema) else None,
            )
        return known

    def _target(self, written: SchemaInfo) -> EventSchema | None:
        """Return the schema to read events of a schema into; None for the same schema."""
        return self._prepared.reader or _same_message(self._prepared.writer, written)


@dataclass(frozen=True, slots=True)
class WithSchema:
    """A value, and the schema to write it with: Java's class of this name.

    :ivar value: the value.
    :ivar schema: one of the schemas of the :class:`MultiFormatSerializer`.
    """

    value: Any
    schema: EventSchema


class MultiFormatSerializer(SchemaSerializer):
    """Writes events of several schemas, of one format or several, and reads events of all schemas of a group.

    :meth:`SchemaRegistry.multi_format_serializer` creates one. Java's counterparts are
    ``SerializerFactory.serializerWithSchema`` and ``genericDeserializer``. The schema of a value is, in this
    order: the one that :class:`WithSchema` names; for a Protobuf message the one of its type; the one that
    was given for the value's Python type, or for the nearest of its base types; the only schema, if there is
    one.

    It can be pickled.

    :ivar group: name of the group.
    """

    def __init__(
        self,
        prepared: Prepared,
        fetch: LookUp | None,
        writers: Sequence[Prepared],
        types: Mapping[type, int],
    ) -> None:
        super().__init__(prepared, fetch)
        self._all = tuple(writers)
        self._types = dict(types)
        self._writers = tuple(SchemaSerializer(each, None) for each in writers)
        infos = [each.writer.info for each in writers if each.writer is not None]
        self._by_info = {info: number for number, info in enumerate(infos)}
        self._by_message = {
            info.type: number
            for number, info in enumerate(infos)
            if info.format is SerializationFormat.PROTOBUF
        }

    def __repr__(self) -> str:
        return f"MultiFormatSerializer({self.group!r}, {', '.join(repr(each.writer) for each in self._all)})"

    def __reduce__(self) -> tuple[Any, ...]:
        made_of = self._prepared, self._fetch, self._all, self._types
        return MultiFormatSerializer, made_of, {"_encodings": dict(self._encodings)}

    def serialize(self, value: Any) -> bytes:
        """Return the payload for a value, or for the value of a :class:`WithSchema`.

        :raises EncodeError: the value does not fit its schema, or none of the schemas is for it.
        """
        if isinstance(value, WithSchema):
            known = isinstance(value.schema, EventSchema)
            number = self._by_info.get(value.schema.info) if known else None
            if number is None:
                raise EncodeError(f"{value.schema!r} is not a schema of {self!r}")
            return self._writers[number].serialize(value.value)
        return self._writers[self._chosen(value)].serialize(value)

    def _chosen(self, value: Any) -> int:
        message = getattr(getattr(value, "DESCRIPTOR", None), "full_name", None)
        if message in self._by_message:
            return self._by_message[message]
        for each in type(value).__mro__:
            if each in self._types:
                return self._types[each]
        if len(self._all) == 1:
            return 0
        raise EncodeError(
            f"no schema is for {'message ' + message if message else type(value).__name__}: give one for its "
            f"type, or write WithSchema(value, schema) with a schema of {self!r}"
        )

    def _target(self, written: SchemaInfo) -> EventSchema | None:
        for each in self._all:
            if found := _same_message(each.writer, written):
                return found
        return None


def combined(
    reader: SchemaSerializer, writers: Sequence[SchemaSerializer], types: Mapping[type, int]
) -> MultiFormatSerializer:
    """Return one serializer that reads as one, and writes as others.

    :param types: number of the writer of each Python type.
    """
    made = MultiFormatSerializer(reader._prepared, reader._fetch, [each._prepared for each in writers], types)
    for each in (reader, *writers):
        for id, encoding in each._encodings.items():
            made.learn(id, encoding)
    return made


def _same_message(schema: EventSchema | None, written: SchemaInfo) -> ProtobufSchema | None:
    """Return the schema if it is of the message that was written, which is then read as its class."""
    if not isinstance(schema, ProtobufSchema) or written.format is not SerializationFormat.PROTOBUF:
        return None
    return schema if schema.info.type == written.type else None


def writer_of(schema: SchemaInfo) -> _Writer:
    """Return what writes values of a schema."""
    if schema.format is SerializationFormat.AVRO:
        return AvroWriter(schema)
    return JsonWriter() if schema.format is SerializationFormat.JSON else ProtobufWriter(schema)


def reader_of(writer: SchemaInfo, reader: SchemaInfo | None, message: type[Message] | None = None) -> _Reader:
    """Return what reads events of one schema.

    :param writer: the schema.
    :param reader: the schema to read them into, or None for the same.
    :param message: the class of the reader's messages, or None to make one.
    :raises DecodeError: the reader's schema is of another format, or nothing reads this format.
    """
    if reader is not None and reader.format is not writer.format:
        raise DecodeError(
            f"the event has the format {writer.format}, but it is read with a schema of {reader.format}"
        )
    if writer.format is SerializationFormat.AVRO:
        return AvroReader(writer, reader)
    if writer.format is SerializationFormat.JSON:
        return JsonReader()
    if writer.format is SerializationFormat.PROTOBUF:
        if reader is not None and reader.type != writer.type:
            raise DecodeError(
                f"the event is a Protobuf message {writer.type}, but it is read as {reader.type}"
            )
        return ProtobufReader(reader or writer, message)
    raise DecodeError(f"the event has the format {writer.format}, for which there is no reader")


def _plain_reader(schema: EventSchema | None) -> _Reader | None:
    if schema is None or isinstance(schema, JsonSchema):
        return JsonReader()
    if isinstance(schema, ProtobufSchema):
        return ProtobufReader(schema.info, schema.message)
    raise InvalidArgumentError("events of Avro always have a header: their reader needs the writer's schema")
