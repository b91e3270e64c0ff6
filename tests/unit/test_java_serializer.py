"""Java object streams of texts, numbers and bytes, against bytes that Java 17 wrote."""

from __future__ import annotations

import pickle
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pravega_wire.errors import DecodeError, EncodeError, InvalidArgumentError, TruncatedInputError
from pravega_wire.serializers import JavaSerializer, JavaStringSerializer

NUMBER = "7872 0010 6a6176612e6c616e672e4e756d626572 86ac951d0b94e08b 02 0000 78 70"
GOLDEN: list[tuple[JavaSerializer, Any, str]] = [
    (JavaSerializer(), "h\xe9", "aced0005 74 0003 68c3a9"),
    (JavaSerializer(), None, "aced0005 70"),
    (
        JavaSerializer(integers="Integer"),
        7,
        "aced0005737200116a6176612e6c616e672e496e746567657212e2a0a4f781873802000149000576616c7565"
        f"{NUMBER} 00000007",
    ),
    (
        JavaSerializer(),
        -7,
        "aced00057372000e6a6176612e6c616e672e4c6f6e673b8be490cc8f23df0200014a000576616c7565"
        f"{NUMBER} fffffffffffffff9",
    ),
    (
        JavaSerializer(integers="Short"),
        5,
        f"aced00057372000f6a6176612e6c616e672e53686f7274684d37133460da5202000153000576616c7565{NUMBER} 0005",
    ),
    (
        JavaSerializer(integers="Byte"),
        -1,
        f"aced00057372000e6a6176612e6c616e672e427974659c4e6084ee50f51c02000142000576616c7565{NUMBER} ff",
    ),
    (
        JavaSerializer(),
        1.0,
        "aced0005737200106a6176612e6c616e672e446f75626c6580b3c24a296bfb0402000144000576616c7565"
        f"{NUMBER} 3ff0000000000000",
    ),
    (
        JavaSerializer(floats="Float"),
        1.0,
        "aced00057372000f6a6176612e6c616e672e466c6f6174daedc9a2db3cf0ec02000146000576616c7565"
        f"{NUMBER} 3f800000",
    ),
    (
        JavaSerializer(),
        True,
        "aced0005737200116a6176612e6c616e672e426f6f6c65616ecd207280d59cfaee0200015a000576616c7565787001",
    ),
    (
        JavaSerializer(texts="Character"),
        "A",
        "aced0005737200136a6176612e6c616e672e436861726163746572348b47d96b1a267802000143000576616c75657870"
        "0041",
    ),
    (JavaSerializer(), b"abc", "aced0005757200025b42acf317f8060854e0020000787000000003616263"),
]
LIST = bytes.fromhex(
    "aced0005737200136a6176612e7574696c2e41727261794c6973747881d21d99c7619d03000149000473697a65787000000001"
    "7704000000017400017878"
)


@pytest.mark.parametrize(("serializer", "value", "written"), GOLDEN)
def test_bytes_of_java(serializer: JavaSerializer, value: Any, written: str) -> None:
    data = bytes.fromhex(written.replace(" ", ""))
    assert serializer.serialize(value) == data
    found = JavaSerializer().deserialize(data + b"ignored")
    assert found == value
    assert type(found) is type(value)
    copy = pickle.loads(pickle.dumps(serializer))
    assert copy == serializer
    assert copy.serialize(value) == data


@pytest.mark.parametrize(("serializer", "value", "written"), GOLDEN)
def test_truncated_streams(serializer: JavaSerializer, value: Any, written: str) -> None:
    data = bytes.fromhex(written.replace(" ", ""))
    for size in range(len(data)):
        with pytest.raises(DecodeError) as caught:
            JavaSerializer().deserialize(data[:size])
        if size > 4:
            assert isinstance(caught.value, TruncatedInputError)


@given(
    st.text() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.binary() | st.booleans()
)
def test_a_value_is_what_it_was(value: Any) -> None:
    assert JavaSerializer().deserialize(JavaSerializer().serialize(value)) == value


@given(st.binary(max_size=80), st.sampled_from(["", "aced0005", "aced000573", "aced00057372", "aced000575"]))
def test_any_bytes_are_read_or_refused(data: bytes, head: str) -> None:
    try:
        JavaSerializer().deserialize(bytes.fromhex(head) + data)
    except DecodeError:
        pass


@given(st.sampled_from(GOLDEN), st.data())
def test_changed_streams_are_read_or_refused(
    golden: tuple[JavaSerializer, Any, str], data: st.DataObject
) -> None:
    changed = bytearray.fromhex(golden[2].replace(" ", ""))
    changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        JavaSerializer().deserialize(bytes(changed))
    except DecodeError:
        pass


def test_other_classes_are_named() -> None:
    for serializer in (JavaSerializer(), JavaStringSerializer()):
        with pytest.raises(DecodeError, match=r"an object of the class java\.util\.ArrayList"):
            serializer.deserialize(LIST)
    with pytest.raises(DecodeError, match=r"an array of the class \[I"):
        JavaSerializer().deserialize(
            bytes.fromhex("aced0005757200025b49 4dba602676eab2a5 0200007870 00000000")
        )
    with pytest.raises(DecodeError, match=r"an object of the class java\.lang\.Long"):
        JavaStringSerializer().deserialize(JavaSerializer().serialize(5))
    with pytest.raises(DecodeError, match="its tag is 7d"):
        JavaSerializer().deserialize(bytes.fromhex("aced00057d"))
    # The class of another version of Java: the same name, and not the same value.
    other = JavaSerializer().serialize(5).replace(bytes.fromhex("3b8be490cc8f23df"), bytes(8))
    with pytest.raises(DecodeError, match=r"java\.lang\.Long"):
        JavaSerializer().deserialize(other)


def test_a_negative_length() -> None:
    data = bytearray(JavaSerializer().serialize(b"abc"))
    data[-7:-3] = struct.pack(">i", -1)
    with pytest.raises(TruncatedInputError):
        JavaSerializer().deserialize(bytes(data))


@pytest.mark.parametrize(
    ("serializer", "value"),
    [
        (JavaSerializer(), 2**63),
        (JavaSerializer(integers="Integer"), 2**31),
        (JavaSerializer(integers="Short"), -(2**15) - 1),
        (JavaSerializer(integers="Byte"), 128),
        (JavaSerializer(floats="Float"), 1e300),
        (JavaSerializer(texts="Character"), ""),
        (JavaSerializer(texts="Character"), "ab"),
        (JavaSerializer(texts="Character"), "\U0001f600"),
        (JavaSerializer(), [1]),
        (JavaSerializer(), {"a": 1}),
        (JavaSerializer(), object()),
    ],
)
def test_values_without_a_java_class(serializer: JavaSerializer, value: Any) -> None:
    with pytest.raises(EncodeError):
        serializer.serialize(value)


@pytest.mark.parametrize("arguments", [{"integers": "int"}, {"floats": "Decimal"}, {"texts": "char"}])
def test_names_of_classes(arguments: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="must be one of"):
        JavaSerializer(**arguments)
