"""Batches of events to columns and back, in a worker.

A plan is made in the driver and sent to the workers. What it needs there (parsed schemas, message classes, a
client of the registry) is made once in each process, and found again by the plan's token.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, Protocol
from uuid import uuid4

import pyarrow as pa
from pyarrow import types

from pravega_wire import Credentials, PravegaConfig
from pravega_wire.errors import (
    ArgumentTypeError,
    DecodeError,
    EncodeError,
    PravegaError,
    SchemaNotFoundError,
    UnknownEncodingError,
)
from pravega_wire.schemas import EncodingInfo, SchemaInfo, SerializationFormat, message_class
from pravega_wire.schemas.codecs import compress, decompress
from pravega_wire.schemas.debezium import DebeziumSerializer
from pravega_wire.schemas.serializer import encoding_id_of, reader_of, writer_of
from pravega_wire.serializers import Serializer
from pravega_wire.sync import SchemaRegistry
from spark_adapter.columns.avro import avro_shape, check_units, without_logical_types
from spark_adapter.columns.json import json_shape
from spark_adapter.columns.protobuf import protobuf_shape
from spark_adapter.columns.shape import Shape, column, values
from spark_adapter.columns.values import change_shape, value_shape

__all__ = [
    "ChangePlan",
    "Connection",
    "Decode",
    "Encode",
    "GroupPlan",
    "Plan",
    "SchemaPlan",
    "SerializerPlan",
]

_HEADER_BYTES: Final = 5
_MOST_OPENED: Final = 64
_MOST_UNKNOWN: Final = 10_000


class _Opened(Protocol):
    """What reads and writes the events of a plan in this process."""

    @property
    def shape(self) -> Shape: ...

    def decode(self, payload: bytes) -> Any: ...

    def encode(self, value: Any) -> bytes: ...


class Plan(Protocol):
    """How events are read or written; it can be pickled.

    :ivar token: the same in all processes, and different for each plan.
    :ivar what: names the events in messages; may be empty.
    """

    @property
    def token(self) -> str: ...

    @property
    def what(self) -> str: ...

    def open(self) -> _Opened: ...


def _token() -> str:
    return uuid4().hex


# --- schemas --------------------------------------------------------------------------------------


def _shape_of(info: SchemaInfo) -> tuple[Shape, Any]:
    """Return the shape of the values of a schema, and the class of its messages; None if it is not Protobuf.

    :raises InvalidArgumentError: Spark has no columns for it.
    """
    if info.format is SerializationFormat.AVRO:
        return avro_shape(info.data.decode()), None
    if info.format is SerializationFormat.JSON:
        return json_shape(info.data.decode()), None
    message = message_class(info)
    return protobuf_shape(message), message


def _stored(info: SchemaInfo) -> SchemaInfo:
    """Return a schema; if it is one of Avro, its values are the numbers and bytes that are stored."""
    if info.format is not SerializationFormat.AVRO:
        return info
    try:
        return replace(info, data=without_logical_types(info.data.decode()).encode())
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DecodeError(f"the Avro schema {info.type} cannot be parsed: {error}") from error


def _reader(writer: SchemaInfo, reader: SchemaInfo, message: Any) -> Any:
    """Return what reads events of one schema as values of another one.

    :raises DecodeError: the schemas are of different formats or messages.
    """
    found = reader_of(_stored(writer), _stored(reader), message)
    if reader.format is SerializationFormat.AVRO and writer.data != reader.data:
        check_units(writer.data.decode(), reader.data.decode())
    return found


class _OpenedSchema:
    """Events without a header, of one schema."""

    def __init__(self, info: SchemaInfo) -> None:
        self.shape, message = _shape_of(info)
        self._reader = _reader(info, info, message)
        self._writer = writer_of(_stored(info))

    def decode(self, payload: bytes) -> Any:
        return self._reader.decode(payload, padded=False)

    def encode(self, value: Any) -> bytes:
        found: bytes = self._writer.encode(value)
        return found


@dataclass(frozen=True, slots=True)
class SchemaPlan:
    """Events without a header, of one schema.

    :ivar info: the schema.
    """

    info: SchemaInfo
    token: str = field(default_factory=_token)

    @property
    def what(self) -> str:
        return f"schema {self.info.type}"

    def open(self) -> _OpenedSchema:
        return _OpenedSchema(self.info)


# --- groups of the registry -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach the registry; can be pickled, and hashed."""

    registry: str | PravegaConfig
    namespace: str | None
    credentials: Credentials | None
    trust_store: str | None
    validate_hostname: bool | None
    timeout: float

    def open(self) -> SchemaRegistry:
        """Return a new client."""
        return SchemaRegistry(
            self.registry,
            namespace=self.namespace,
            credentials=self.credentials,
            trust_store=self.trust_store,
            validate_hostname=self.validate_hostname,
            timeout=self.timeout,
        )


@lru_cache(maxsize=8)
def _registry(connection: Connection, process: int) -> SchemaRegistry:
    """Return this process's client of a registry."""
    return connection.open()


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Events of a group of the registry.

    :ivar group: its name.
    :ivar info: the schema that is read into, and written.
    :ivar connection: how to reach the registry.
    :ivar encodings: the encodings that are known.
    :ivar header: of events that are written.
    :ivar codec: the registry's name of the codec to write with.
    :ivar limit: largest accepted size of a decompressed event in bytes.
    """

    group: str
    info: SchemaInfo
    connection: Connection
    encodings: Mapping[int, EncodingInfo]
    header: bytes
    codec: str
    limit: int
    token: str = field(default_factory=_token)

    @property
    def what(self) -> str:
        return f"group {self.group!r} of the schema registry"

    def open(self) -> _OpenedGroup:
        return _OpenedGroup(self)


class _OpenedGroup:
    def __init__(self, plan: GroupPlan) -> None:
        self._plan = plan
        self.shape, self._message = _shape_of(plan.info)
        self._encodings = dict(plan.encodings)
        self._readers: dict[int, Any] = {}
        self._unknown: set[int] = set()
        self._writer = writer_of(_stored(plan.info))

    def decode(self, payload: bytes) -> Any:
        id = encoding_id_of(payload)
        encoding = self._encodings.get(id) or self._fetched(id)
        codec = encoding.codec.name
        data = decompress(codec, payload[_HEADER_BYTES:], self._plan.limit)
        reader = self._readers.get(id)
        if reader is None:
            reader = self._readers[id] = _reader(encoding.schema, self._plan.info, self._message)
        # Java compresses its whole buffer, with zeros after the value.
        return reader.decode(data, padded=codec != "")

    def _fetched(self, id: int) -> EncodingInfo:
        """Return an encoding that was added after the query was planned."""
        if id not in self._unknown:
            registry = _registry(self._plan.connection, os.getpid())
            try:
                found = self._encodings[id] = registry.encoding(self._plan.group, id)
                return found
            except SchemaNotFoundError:
                # An id is given before an event has it, so this one never will be. It is asked for once.
                if len(self._unknown) >= _MOST_UNKNOWN:
                    self._unknown.clear()
                self._unknown.add(id)
        raise UnknownEncodingError(
            f"the event has the encoding id {id}, which the group does not have: it belongs to another "
            "group, or is damaged",
            encoding_id=id,
        )

    def encode(self, value: Any) -> bytes:
        plan = self._plan
        return plan.header + compress(plan.codec, self._writer.encode(value))


# --- serializers ----------------------------------------------------------------------------------


class _OpenedSerializer:
    def __init__(self, serializer: Serializer[Any], shape: Shape) -> None:
        self._serializer = serializer
        self.shape = shape

    def decode(self, payload: bytes) -> Any:
        try:
            return self._serializer.deserialize(payload)
        except PravegaError:
            raise
        except Exception as error:
            raise DecodeError(
                f"{type(self._serializer).__name__}: {type(error).__name__}: {error}"
            ) from error

    def encode(self, value: Any) -> bytes:
        try:
            found = self._serializer.serialize(value)
        except PravegaError:
            raise
        except Exception as error:
            raise EncodeError(
                f"{type(self._serializer).__name__}: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(found, bytes | bytearray | memoryview):
            raise EncodeError(f"{type(self._serializer).__name__} made a {type(found).__name__}, not bytes")
        return bytes(found)


@dataclass(frozen=True, slots=True)
class SerializerPlan:
    """Events of any serializer, with the type of their values.

    :ivar serializer: the serializer.
    :ivar arrow: the type.
    """

    serializer: Serializer[Any]
    arrow: pa.DataType
    token: str = field(default_factory=_token)

    @property
    def what(self) -> str:
        return type(self.serializer).__name__

    def open(self) -> _OpenedSerializer:
        return _OpenedSerializer(self.serializer, value_shape(self.arrow, "the type"))


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """Events of Debezium.

    :ivar serializer: has the types of the columns.
    :ivar key: names of the columns that identify a row.
    """

    serializer: DebeziumSerializer
    key: tuple[str, ...]
    token: str = field(default_factory=_token)

    @property
    def what(self) -> str:
        return "change data"

    def open(self) -> _OpenedSerializer:
        serializer = replace(self.serializer, only_named=True)
        return _OpenedSerializer(serializer, change_shape(serializer, self.key))


# --- batches --------------------------------------------------------------------------------------

_opened: dict[tuple[str, int], _Opened] = {}


def _open(plan: Plan) -> _Opened:
    """Return what this process has for a plan; the first call makes it."""
    key = (plan.token, os.getpid())
    found = _opened.get(key)
    if found is None:
        found = plan.open()
        while len(_opened) >= _MOST_OPENED:
            del _opened[next(iter(_opened))]
        _opened[key] = found
    return found


@dataclass(frozen=True, slots=True)
class Decode:
    """Makes a column of a batch of events; can be pickled.

    :param plan: how they are read.
    :param name: of the column with the events, for messages.
    :param is_permissive: whether events that cannot be read become null.
    """

    plan: Plan
    name: str
    is_permissive: bool

    def __call__(self, events: pa.Array) -> pa.Array:
        """Return the values.

        :raises DecodeError: an event cannot be read.
        :raises ArgumentTypeError: the events are not binary.
        """
        if not (types.is_binary(events.type) or types.is_large_binary(events.type)):
            raise ArgumentTypeError(
                f"column {self.name}: events are binary, but the column has the type {events.type}"
            )
        opened = _open(self.plan)
        payloads = events.to_pylist()
        decode = opened.decode
        found: list[Any] = []
        for position, payload in enumerate(payloads):
            try:
                found.append(None if payload is None else decode(payload))
            except DecodeError as error:
                self._failed(position, error)
                found.append(None)
        return column(found, opened.shape, self._failed)

    def _failed(self, position: int, error: DecodeError) -> None:
        if not self.is_permissive:
            raise DecodeError(
                f"{_place(self.name, self.plan)}: event {position} of the batch (from 0): {error.message}. "
                "With mode='permissive' such events are null"
            ) from error


@dataclass(frozen=True, slots=True)
class Encode:
    """Makes events of a batch of values; can be pickled.

    :param plan: how they are written.
    :param name: of the column with the values, for messages.
    """

    plan: Plan
    name: str

    def __call__(self, given: pa.Array) -> pa.Array:
        """Return the events; null for null.

        :raises EncodeError: a value does not fit the schema.
        """
        opened = _open(self.plan)
        try:
            found = values(given, opened.shape, self._failed)
        except EncodeError as error:
            if error.__cause__ is not None:
                raise
            raise EncodeError(f"{_place(self.name, self.plan)}: {error.message}") from None
        events: list[bytes | None] = []
        for position, (value, is_valid) in enumerate(zip(found, given.is_valid().to_pylist(), strict=True)):
            try:
                events.append(opened.encode(value) if is_valid else None)
            except EncodeError as error:
                self._failed(position, error)
        made = pa.array(events, pa.binary())
        if isinstance(made, pa.ChunkedArray):
            raise EncodeError(
                f"{_place(self.name, self.plan)}: the events of a batch have more than 2 GiB: lower "
                "spark.sql.execution.arrow.maxRecordsPerBatch"
            )
        return made

    def _failed(self, position: int, error: EncodeError) -> None:
        raise EncodeError(
            f"{_place(self.name, self.plan)}: row {position} of the batch (from 0): {error.message}"
        ) from error


def _place(name: str, plan: Plan) -> str:
    return f"column {name}, {plan.what}"


Batch = Callable[[pa.Array], pa.Array]
