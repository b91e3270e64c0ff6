"""Protobuf: schemas, messages and bytes.

Not public.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.message import DecodeError as MessageDecodeError
from google.protobuf.message import EncodeError as MessageEncodeError
from google.protobuf.message import Message

from pravega_wire.errors import ArgumentTypeError, DecodeError, EncodeError, InvalidArgumentError
from pravega_wire.schemas.model import SchemaInfo, SerializationFormat
from pravega_wire.support.checks import check_text

__all__ = ["ProtobufReader", "ProtobufSchema", "ProtobufWriter", "message_class"]

_SIZES: Final = {1: 8, 5: 4}
_VARINT, _LENGTH, _START, _END = 0, 2, 3, 4


class ProtobufSchema:
    """The schema of a Protobuf message.

    Example::

        from google.protobuf.timestamp_pb2 import Timestamp

        ProtobufSchema(Timestamp)

    :param message: a generated message class; messages are then read as objects of it.
    :raises InvalidArgumentError: it is something else.
    """

    format = SerializationFormat.PROTOBUF

    def __init__(self, message: type[Message]) -> None:
        if not isinstance(message, type) or not issubclass(message, Message):
            raise InvalidArgumentError(f"a generated Protobuf message class is needed, not {message!r}")
        descriptor: Any = message.DESCRIPTOR
        self.message: type[Message] | None = message
        self.info = SchemaInfo(
            descriptor.full_name, SerializationFormat.PROTOBUF, _file_set(descriptor.file).SerializeToString()
        )

    @classmethod
    def from_files(cls, type: str, files: bytes) -> ProtobufSchema:
        """Create a schema from a ``FileDescriptorSet``, as ``protoc --descriptor_set_out`` writes it.

        :param type: full name of the message.
        :param files: the bytes of the set.
        :raises ArgumentTypeError: the set is not bytes.
        :raises InvalidArgumentError: the set cannot be read, or does not contain the message, or the name is
            not a text.
        """
        check_text("type of a Protobuf schema", type)
        if not isinstance(files, bytes | bytearray | memoryview):
            raise ArgumentTypeError(
                "the files of a Protobuf schema must be the bytes of a FileDescriptorSet, not "
                f"{files.__class__.__name__}"
            )
        made = cls.__new__(cls)
        made.info = SchemaInfo(type, SerializationFormat.PROTOBUF, bytes(files))
        made.message = None
        try:
            message_class(made.info)
        except DecodeError as error:
            raise InvalidArgumentError(str(error)) from error
        return made

    def __repr__(self) -> str:
        return f"ProtobufSchema({self.info.type!r})"


def _file_set(file: FileDescriptor) -> descriptor_pb2.FileDescriptorSet:
    """Return a file and the files it imports; Java's schema of a class without imports is the same."""
    found: dict[str, FileDescriptor] = {}

    def visit(each: FileDescriptor) -> None:
        for needed in each.dependencies:
            if needed.name not in found:
                visit(needed)
        found[each.name] = each

    visit(file)
    files = descriptor_pb2.FileDescriptorSet()
    for each in found.values():
        each.CopyToProto(files.file.add())
    return files


def message_class(info: SchemaInfo) -> type[Message]:
    """Make a message class from a schema, such as one of a registry whose generated classes a program lacks.

    :param info: a schema of Protobuf.
    :raises DecodeError: the schema cannot be read, or does not contain its message.
    """
    files = descriptor_pb2.FileDescriptorSet()
    pool = descriptor_pool.DescriptorPool()
    try:
        files.ParseFromString(info.data)
        _add(pool, {each.name: each for each in files.file})
        found = pool.FindMessageTypeByName(info.type)
        return message_factory.GetMessageClass(found)
    except (MessageDecodeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise DecodeError(f"the Protobuf schema {info.type} cannot be used: {error}") from error


def _add(pool: descriptor_pool.DescriptorPool, files: dict[str, descriptor_pb2.FileDescriptorProto]) -> None:
    done: set[str] = set()
    begun: set[str] = set()

    def add(name: str) -> None:
        if name in done:
            return
        if name in begun:
            raise ValueError(f"file {name} imports itself")
        begun.add(name)
        file = files.get(name) or _well_known(name)
        for needed in file.dependency:
            add(needed)
        pool.Add(file)
        done.add(name)

    for name in files:
        add(name)


def _well_known(name: str) -> descriptor_pb2.FileDescriptorProto:
    """Return a file that Protobuf itself brings.

    :raises KeyError: there is no such file.
    """
    from google.protobuf import (  # noqa: F401  # importing them adds them to the pool
        any_pb2,
        api_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        source_context_pb2,
        struct_pb2,
        timestamp_pb2,
        type_pb2,
        wrappers_pb2,
    )

    if not name.startswith("google/protobuf/"):
        raise KeyError(f"the imported file {name} is missing")
    file = descriptor_pb2.FileDescriptorProto()
    descriptor_pool.Default().FindFileByName(name).CopyToProto(file)
    return file


class ProtobufWriter:
    """Writes messages of one type."""

    def __init__(self, info: SchemaInfo) -> None:
        self._type = info.type

    def encode(self, value: object) -> bytes:
        """Return a message's bytes.

        :raises EncodeError: the value is not a message of this type, or lacks required fields.
        """
        if not isinstance(value, Message) or value.DESCRIPTOR.full_name != self._type:
            found = value.DESCRIPTOR.full_name if isinstance(value, Message) else type(value).__name__
            raise EncodeError(f"the value is a {found}, not a Protobuf message {self._type}")
        try:
            return value.SerializeToString()
        except (MessageEncodeError, ValueError) as error:
            raise EncodeError(f"the message {self._type} cannot be written: {error}") from error


class ProtobufReader:
    """Reads messages of one type."""

    def __init__(self, info: SchemaInfo, message: type[Message] | None) -> None:
        self._type = info.type
        self._message = message or message_class(info)

    def decode(self, data: bytes, *, padded: bool) -> Any:
        """Return the message.

        :param padded: whether zero bytes may follow it.
        :raises DecodeError: the bytes are not a message.
        """
        try:
            return self._message.FromString(without_padding(data) if padded else data)
        except MessageDecodeError as error:
            raise DecodeError(f"the event is not a Protobuf message {self._type}: {error}") from error


def without_padding(data: bytes) -> bytes:
    """Return the message without the zero bytes that Java's compressing serializers leave after it.

    A field number is never zero, so the first zero in the place of one is the end of the message.
    """
    if not data.endswith(b"\0"):
        return data
    at = 0
    while at < len(data):
        tag, after = _varint(data, at)
        kind = tag & 7
        if tag >> 3 == 0:
            return data[:at] if not data[at:].strip(b"\0") else data
        if kind == _VARINT:
            _, at = _varint(data, after)
        elif kind == _LENGTH:
            size, after = _varint(data, after)
            at = after + size
        elif kind in _SIZES:
            at = after + _SIZES[kind]
        elif kind in (_START, _END):
            at = after
        else:
            break
    return data


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return value, len(data)
