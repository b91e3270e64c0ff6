"""Java object streams: what ``JavaSerializer`` of the Java client writes and reads."""

from __future__ import annotations

import base64
import math
import struct
from typing import Any

import pytest

from pravega_wire.errors import DecodeError
from pravega_wire.serializers import JavaSerializer
from tests.interop.java_peer import JavaPeer


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


CASES: list[tuple[str, str, JavaSerializer, list[Any]]] = [
    ("String", "java.lang.String", JavaSerializer(), ["", "a\0é\U0001f600", "x" * 70_000]),
    ("Integer", "java.lang.Integer", JavaSerializer(integers="Integer"), [0, -1, 2**31 - 1, -(2**31)]),
    ("Long", "java.lang.Long", JavaSerializer(), [0, -1, 2**63 - 1, -(2**63)]),
    ("Short", "java.lang.Short", JavaSerializer(integers="Short"), [0, -1, 2**15 - 1, -(2**15)]),
    ("Byte", "java.lang.Byte", JavaSerializer(integers="Byte"), [0, -1, 127, -128]),
    ("Double", "java.lang.Double", JavaSerializer(), [0.0, -0.0, 0.1, math.inf, 5e-324]),
    ("Float", "java.lang.Float", JavaSerializer(floats="Float"), [0.0, -0.0, 0.5, -math.inf]),
    ("Boolean", "java.lang.Boolean", JavaSerializer(), [True, False]),
    ("Character", "java.lang.Character", JavaSerializer(texts="Character"), ["A", "\0", "\uffff", "\ud83d"]),
    ("bytes", "[B", JavaSerializer(), [b"", bytes(range(256))]),
]


def text_of(kind: str, value: Any) -> str:
    """A value as the Java program takes and gives it."""
    if kind == "String":
        return b64(value.encode("utf-16-be", "surrogatepass"))
    if kind == "Double":
        return str(struct.unpack(">q", struct.pack(">d", value))[0])
    if kind == "Float":
        return str(struct.unpack(">i", struct.pack(">f", value))[0])
    if kind == "Character":
        return str(ord(value))
    if kind == "bytes":
        return b64(value)
    return str(value).lower()


@pytest.mark.parametrize(
    ("kind", "java_class", "serializer", "values"), CASES, ids=[each[0] for each in CASES]
)
def test_values_both_ways_in_equal_bytes(
    schema_peer: JavaPeer, kind: str, java_class: str, serializer: JavaSerializer, values: list[Any]
) -> None:
    for value in values:
        written = base64.b64decode(schema_peer.value("object-write", kind, text_of(kind, value)))
        assert serializer.serialize(value) == written
        found = JavaSerializer().deserialize(written)
        assert (type(found), repr(found)) == (type(value), repr(value))
        [[name, text]] = schema_peer.call("object-read", b64(serializer.serialize(value)))
        assert (name, text) == (java_class, text_of(kind, value))


def test_another_class_is_named(schema_peer: JavaPeer) -> None:
    written = base64.b64decode(schema_peer.value("object-write", "List", "x"))
    with pytest.raises(DecodeError, match=r"java\.util\.ArrayList"):
        JavaSerializer().deserialize(written)
