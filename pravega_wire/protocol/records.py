"""Serializers for dataclasses in the Java client's versioned format, made by declaration.

Example::

    COUNTER = VersionedSerializer(Counter, [[("count", "int64")], [("owner", "utf")]])
    UPDATES = VersionedUnionSerializer({0: ADD, 1: REMOVE})

The bytes are those of Java's ``VersionedSerializer`` (``docs/protocol/formats.md``, "Versioned records"), so
a Java program that declares the same fields can read them. Revisions that are not declared here are skipped
when a record is read; the fields of missing revisions keep the dataclass's defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Generic, TypeVar

from pravega_wire.errors import (
    ArgumentTypeError,
    EncodeError,
    IncompatibleVersionError,
    InvalidArgumentError,
)
from pravega_wire.protocol.versioned import (
    DataReader,
    DataWriter,
    RevisionReader,
    encode_record,
    read_record,
    read_typed_record_from,
)
from pravega_wire.support.checks import check_buffer, check_count, check_several, check_type, shown

__all__ = ["FIELD_KINDS", "VersionedSerializer", "VersionedUnionSerializer"]

T = TypeVar("T")

FIELD_KINDS = (
    "boolean", "byte", "int16", "int32", "int64", "double", "utf", "uuid",
    "compact_int", "compact_long", "compact_signed_long", "array",
)  # fmt: skip
"""Kinds of fields: methods of ``DataWriter`` and ``DataReader``. ``[kind]`` declares a list of a kind."""

Field = tuple[str, str]


def _codec(kind: str) -> tuple[Callable[[DataWriter, Any], object], Callable[[DataReader], Any]]:
    if kind.startswith("[") and kind.endswith("]"):
        write_one, read_one = _codec(kind[1:-1])
        return (
            lambda target, value: target.collection(value, write_one),
            lambda source: tuple(source.collection(read_one)),
        )
    if kind not in FIELD_KINDS:
        raise InvalidArgumentError(
            f"{kind!r} is not a kind of field; use one of {', '.join(FIELD_KINDS)}, or a list such as [int64]"
        )
    return getattr(DataWriter, kind), getattr(DataReader, kind)


def _check_revisions(cls: type, revisions: Sequence[Sequence[Field]]) -> None:
    check_several(f"the revisions of {cls.__name__}", revisions)
    for revision in revisions:
        check_several(f"each revision of {cls.__name__}", revision)
        for field in revision:
            match field:
                case (str(), str()):
                    continue
            raise ArgumentTypeError(f"{cls.__name__}: a field is a pair (name, kind), not {shown(field)}")


class VersionedSerializer(Generic[T]):
    """Serializes a dataclass as a record of one type.

    Example::

        @dataclass(frozen=True)
        class Counter:
            count: int
            owner: str = ""

        COUNTER = VersionedSerializer(Counter, [[("count", "int64")], [("owner", "utf")]])
        assert COUNTER.deserialize(COUNTER.serialize(Counter(3))) == Counter(3)

    :param cls: the dataclass; lists are returned as tuples.
    :param revisions: for each revision 0, 1, ... its fields as ``(name, kind)``. Every field of the class is
        in exactly one revision, and fields of later revisions need defaults, so that older records can be
        read.
    :param version: version of the record, 0 to 255.
    :raises InvalidArgumentError: the declaration does not match the class, or the version is out of range.
    """

    def __init__(self, cls: type[T], revisions: Sequence[Sequence[Field]], *, version: int = 0) -> None:
        if not isinstance(cls, type) or not is_dataclass(cls):
            raise ArgumentTypeError(f"cls must be a dataclass, not {shown(cls)}")
        _check_revisions(cls, revisions)
        check_count(f"version of {cls.__name__}", version, 0, 255)
        self.cls = cls
        self.version = version
        self._revisions = [[(name, *_codec(kind)) for name, kind in revision] for revision in revisions]
        declared = [name for revision in revisions for name, _ in revision]
        known = {field.name: field for field in fields(cls)}
        if sorted(declared) != sorted(known):
            raise InvalidArgumentError(
                f"{cls.__name__} has the fields {sorted(known)}, but the revisions declare "
                f"{sorted(declared)}; declare each field exactly once"
            )
        for revision in revisions[1:]:
            for name, _ in revision:
                field = known[name]
                if field.default is MISSING and field.default_factory is MISSING:
                    raise InvalidArgumentError(
                        f"{cls.__name__}.{name} is not in revision 0, so it needs a default: older records "
                        "do not have it"
                    )

    def writers(self, value: T) -> list[Callable[[DataWriter], object]]:
        """Return writers of the revisions' bodies."""

        def writer(revision: list[tuple[str, Any, Any]]) -> Callable[[DataWriter], object]:
            def write(target: DataWriter) -> None:
                for name, write_field, _ in revision:
                    try:
                        write_field(target, getattr(value, name))
                    except (AttributeError, OverflowError, TypeError, ValueError) as error:
                        raise EncodeError(
                            f"{self.cls.__name__}.{name} does not fit its kind: {error}"
                        ) from error

            return write

        return [writer(revision) for revision in self._revisions]

    def readers(self) -> tuple[Mapping[int, Sequence[RevisionReader]], Callable[[], T]]:
        """Return readers of the revisions' bodies, and a function that makes the value afterwards."""
        found: dict[str, Any] = {}

        def reader(revision: list[tuple[str, Any, Any]]) -> RevisionReader:
            def read(source: DataReader) -> None:
                for name, _, read_field in revision:
                    found[name] = read_field(source)

            return read

        def build() -> T:
            try:
                return self.cls(**found)
            except TypeError as error:
                raise IncompatibleVersionError(
                    f"a record of {self.cls.__name__} has too few revisions: {error}"
                ) from error

        return {self.version: [reader(revision) for revision in self._revisions]}, build

    def serialize(self, value: T) -> bytes:
        """Encode a value as a record.

        :raises EncodeError: a field does not fit its kind, or the value does not have it.
        """
        for revision in self._revisions:
            for name, _, _ in revision:
                if not hasattr(value, name):
                    raise EncodeError(
                        f"the value is a {type(value).__name__} without {name}, not a {self.cls.__name__}"
                    )
        return encode_record(self.writers(value), version=self.version)

    def deserialize(self, payload: bytes) -> T:
        """Decode the value of a record; bytes after it are ignored.

        :raises DecodeError: the record is malformed.
        :raises IncompatibleVersionError: the record has another version, or too few revisions.
        """
        versions, build = self.readers()
        read_record(check_buffer(payload), versions, what=self.cls.__name__)
        return build()


class VersionedUnionSerializer(Generic[T]):
    """Serializes several dataclasses as records that name their type.

    :param types: type id (0 to 255) to the serializer of its class.
    :param name: name of the records, for messages.
    :raises InvalidArgumentError: a type id is out of range.
    """

    def __init__(self, types: Mapping[int, VersionedSerializer[Any]], *, name: str = "record") -> None:
        check_type(f"the types of {name}", types, Mapping)
        for each in types.values():
            check_type(f"each of the types of {name}", each, VersionedSerializer)
        self._by_id = {check_count(f"type id of a {name}", each, 0, 255): types[each] for each in types}
        self._ids = {each.cls: number for number, each in types.items()}
        self._name = name

    def serialize(self, value: T) -> bytes:
        """Encode a value as a record.

        :raises EncodeError: the class of the value is not one of the types.
        """
        number = self._ids.get(type(value))
        if number is None:
            raise EncodeError(f"{type(value).__name__} is not one of the types of {self._name}")
        each = self._by_id[number]
        return encode_record(each.writers(value), version=each.version, type_id=number)

    def deserialize(self, payload: bytes) -> T:
        """Decode the value of a record; bytes after it are ignored.

        :raises DecodeError: the record is malformed.
        :raises IncompatibleVersionError: the record has an unknown type or another version.
        """
        result: T = read_typed_record_from(
            DataReader(check_buffer(payload)),
            {number: each.readers for number, each in self._by_id.items()},
            what=self._name,
        )
        return result
