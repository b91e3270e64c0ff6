"""Protobuf messages as shapes of columns."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from pravega_wire.errors import InvalidArgumentError
from pravega_wire.support.checks import read_json
from spark_adapter.columns.shape import (
    BINARY,
    BOOLEAN,
    DOUBLE,
    FLOAT,
    LONG,
    SIZES,
    STRING,
    TIMESTAMP,
    Field,
    Shape,
    Wrong,
    array_of,
    json_text,
    leaf,
    map_with_keys,
    record,
)

__all__ = ["protobuf_shape"]

_UNSIGNED: Final = leaf(pa.decimal128(20, 0), Decimal, lambda value: _whole(value))


def _whole(value: Decimal) -> int:
    if value != value.to_integral_value():
        raise Wrong("it is not a whole number")
    return int(value)


_SCALARS: Final = {
    FieldDescriptor.TYPE_BOOL: BOOLEAN,
    FieldDescriptor.TYPE_INT32: SIZES[32],
    FieldDescriptor.TYPE_SINT32: SIZES[32],
    FieldDescriptor.TYPE_SFIXED32: SIZES[32],
    FieldDescriptor.TYPE_UINT32: LONG,
    FieldDescriptor.TYPE_FIXED32: LONG,
    FieldDescriptor.TYPE_INT64: LONG,
    FieldDescriptor.TYPE_SINT64: LONG,
    FieldDescriptor.TYPE_SFIXED64: LONG,
    FieldDescriptor.TYPE_UINT64: _UNSIGNED,
    FieldDescriptor.TYPE_FIXED64: _UNSIGNED,
    FieldDescriptor.TYPE_FLOAT: FLOAT,
    FieldDescriptor.TYPE_DOUBLE: DOUBLE,
    FieldDescriptor.TYPE_STRING: STRING,
    FieldDescriptor.TYPE_BYTES: BINARY,
}
_WRAPPERS: Final = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
_ANY_JSON: Final = {f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue")}


def protobuf_shape(message: type[Message]) -> Shape:
    """Return the shape of messages of a class.

    :raises InvalidArgumentError: Spark has no columns for the message: it is recursive, or has no fields.
    """
    descriptor: Any = message.DESCRIPTOR
    return _message(descriptor, message, ())


def _message(descriptor: Descriptor, made: Any, within: tuple[str, ...]) -> Shape:
    """Return the shape of a message.

    :param made: creates an empty message.
    """
    name = descriptor.full_name
    if name == "google.protobuf.Timestamp":
        return leaf(TIMESTAMP.arrow, _micros, lambda value: _seconds(made(), value))
    if name == "google.protobuf.Duration":
        return leaf(pa.duration("us"), _micros, lambda value: _span(made(), value))
    if name in _WRAPPERS:
        inner = _scalar(descriptor.fields_by_name["value"])
        return leaf(
            inner.arrow,
            lambda value: _apply(inner.read, value.value),
            lambda value: _set(made(), "value", _apply(inner.write, value)),
        )
    if name in _ANY_JSON:
        return leaf(STRING.arrow, _to_json, lambda value: _from_json(made(), value))
    if name in within:
        raise InvalidArgumentError(
            f"Protobuf: {within[-1]} contains {name}, which contains itself: Spark has no recursive types. "
            "Give a schema that ends, or decode the events in a function of your own"
        )
    if not descriptor.fields:
        raise InvalidArgumentError(f"Protobuf: the message {name} has no fields, so it is no column")
    inside = (*within, name)
    fields = []
    for each in descriptor.fields:
        shape = _field(each, inside)
        fields.append(Field(each.name, shape, not _is_required(each)))
    by_name = {each.name: each for each in descriptor.fields}

    def take(value: Any, field: str) -> Any:
        described = by_name[field]
        if described.has_presence and not value.HasField(field):
            return None
        return getattr(value, field)

    def make(value: Mapping[str, Any]) -> Any:
        return _filled(made(), value, by_name)

    return record(fields, take=take, make=make)


def _field(field: FieldDescriptor, within: tuple[str, ...]) -> Shape:
    if _is_map(field):
        entry: Any = field.message_type
        key, item = (entry.fields_by_name[each] for each in ("key", "value"))
        return map_with_keys(_scalar(key), _single(item, within)).or_null()
    if _is_repeated(field):
        return array_of(_single(field, within), is_list=lambda value: not isinstance(value, str)).or_null()
    found = _single(field, within)
    return found if _is_required(field) else found.or_null()


def _single(field: FieldDescriptor, within: tuple[str, ...]) -> Shape:
    if field.message_type is None:
        return _scalar(field)
    from google.protobuf.message_factory import GetMessageClass

    return _message(field.message_type, GetMessageClass(field.message_type), within)


def _scalar(field: FieldDescriptor) -> Shape:
    return _enum(field.enum_type) if field.enum_type is not None else _SCALARS[field.type]


def _enum(kind: EnumDescriptor) -> Shape:
    names = {each.number: each.name for each in reversed(kind.values)}
    numbers = {each.name: each.number for each in kind.values}

    def read(value: int) -> str:
        return names.get(value, str(value))

    def write(value: str) -> int:
        found = numbers.get(value)
        if found is None:
            try:
                return int(value)  # a number that a newer schema has a name for
            except ValueError:
                raise Wrong(f"it is {value!r}, not one of {', '.join(numbers)}") from None
        return found

    return leaf(STRING.arrow, read, write)


def _is_required(field: FieldDescriptor) -> bool:
    return _label(field, "is_required", FieldDescriptor.LABEL_REQUIRED)


def _is_repeated(field: FieldDescriptor) -> bool:
    return _label(field, "is_repeated", FieldDescriptor.LABEL_REPEATED)


def _label(field: Any, name: str, label: int) -> bool:
    # Old versions of protobuf have the label alone, new ones warn of it.
    return bool(getattr(field, name)) if hasattr(field, name) else bool(field.label == label)


def _is_map(field: FieldDescriptor) -> bool:
    return (
        field.message_type is not None
        and _is_repeated(field)
        and bool(field.message_type.GetOptions().map_entry)
    )


def _apply(convert: Any, value: Any) -> Any:
    return value if convert is None else convert(value)


def _filled(message: Any, value: Mapping[str, Any], fields: Mapping[str, Any]) -> Any:
    for name, each in value.items():
        if each is None:
            continue
        field = fields[name]
        if field.containing_oneof is not None:
            other = message.WhichOneof(field.containing_oneof.name)
            if other is not None:
                raise Wrong(f"it is not null, and {other} is not either: only one of them can be set", name)
        try:
            if _is_map(field):
                target = getattr(message, name)
                is_message = field.message_type.fields_by_name["value"].message_type is not None
                for key, item in each.items():
                    if is_message:
                        target[key].CopyFrom(item)
                    else:
                        target[key] = item
            elif _is_repeated(field):
                getattr(message, name).extend(each)
            elif field.message_type is not None:
                getattr(message, name).CopyFrom(each)
            else:
                setattr(message, name, each)
        except (TypeError, ValueError) as error:
            raise Wrong(str(error), name) from error
    return message


def _set(message: Any, name: str, value: Any) -> Any:
    setattr(message, name, value)
    return message


def _micros(value: Any) -> int:
    return int(value.seconds) * 1_000_000 + int(value.nanos / 1000)


def _seconds(message: Any, micros: int) -> Any:
    message.seconds, rest = divmod(micros, 1_000_000)
    message.nanos = rest * 1000
    return message


def _span(message: Any, micros: int) -> Any:
    # Of a negative duration, seconds and nanos are both negative.
    sign = -1 if micros < 0 else 1
    seconds, rest = divmod(abs(micros), 1_000_000)
    message.seconds, message.nanos = sign * seconds, sign * rest * 1000
    return message


def _to_json(value: Message) -> str:
    return json_text(json_format.MessageToDict(value))


def _from_json(message: Message, text: str) -> Message:
    try:
        read_json(text)  # Parse takes NaN and 1e400, which it does not write
        return json_format.Parse(text, message)
    except (json_format.ParseError, ValueError, RecursionError) as error:
        raise Wrong(f"it is not the JSON of a {message.DESCRIPTOR.full_name}: {error}") from None
