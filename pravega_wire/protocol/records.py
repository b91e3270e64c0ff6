"""Dataclasses in the reference client's versioned format, by declaration.

::

    COUNTER = VersionedSerializer(Counter, [[("count", "int64")], [("owner", "utf")]])
    UPDATES = VersionedUnionSerializer({0: ADD, 1: REMOVE})

The bytes are those of Java's ``VersionedSerializer`` (client formats v0.13.0), so a Java program that
declares the same fields reads them. A record with more revisions than declared is read as far as it is known;
one with fewer leaves the fields of the others at the dataclass's defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, Generic, TypeVar

from pravega_wire.errors import EncodeError, IncompatibleVersionError, InvalidArgumentError
from pravega_wire.protocol.versioned import (
    DataReader,
    DataWriter,
    RevisionReader,
    encode_record,
    read_record,
    read_typed_record_from,
)

__all__ = ["FIELD_KINDS", "VersionedSerializer", "VersionedUnionSerializer"]

T = TypeVar("T")

FIELD_KINDS = (
    "boolean", "byte", "int16", "int32", "int64", "double", "utf", "uuid",
    "compact_int", "compact_long", "compact_signed_long", "array",
)  # fmt: skip
"""Kinds of fields: methods of ``DataWriter`` and ``DataReader``. A list of a kind is written ``[kind]``."""

Field = tuple[str, str]


def _codec(kind: str) -> tuple[Callable[[DataWriter, Any], object], Callable[[DataReader], Any]]:
    if kind.startswith("[") and kind.endswith("]"):
        write_one, read_one = _codec(kind[1:-1])
        return (
            lambda target, value: target.collection(value, write_one),
            lambda source: tuple(source.collection(read_one)),
        )
    if kind not in FIELD_KINDS:
        raise InvalidArgumentError(f"{kind!r} is not a kind of field: {', '.join(FIELD_KINDS)} or a [list]")
    return getattr(DataWriter, kind), getattr(DataReader, kind)


class VersionedSerializer(Generic[T]):
    """A dataclass as a record of one type.

    :param cls: the dataclass; lists come back as tuples.
    :param revisions: for revision 0, 1, ... its fields as ``(name, kind)``; every field of the class is in
        exactly one, and those of later revisions have defaults, so that older records can be read.
    :raises InvalidArgumentError: the declaration does not fit the class.
    """

    def __init__(self, cls: type[T], revisions: Sequence[Sequence[Field]], *, version: int = 0) -> None:
        self.cls = cls
        self.version = version
        self._revisions = [[(name, *_codec(kind)) for name, kind in revision] for revision in revisions]
        declared = [name for revision in revisions for name, _ in revision]
        known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]  # checked by fields()
        if sorted(declared) != sorted(known):
            raise InvalidArgumentError(
                f"{cls.__name__} has the fields {sorted(known)}, and {sorted(declared)} are declared"
            )
        for revision in revisions[1:]:
            for name, _ in revision:
                field = known[name]
                if field.default is MISSING and field.default_factory is MISSING:
                    raise InvalidArgumentError(
                        f"{cls.__name__}.{name} is of a later revision: it needs a default"
                    )

    def writers(self, value: T) -> list[Callable[[DataWriter], object]]:
        """Writers of the revisions' bodies."""

        def writer(revision: list[tuple[str, Any, Any]]) -> Callable[[DataWriter], object]:
            def write(target: DataWriter) -> None:
                for name, write_field, _ in revision:
                    write_field(target, getattr(value, name))

            return write

        return [writer(revision) for revision in self._revisions]

    def readers(self) -> tuple[Mapping[int, Sequence[RevisionReader]], Callable[[], T]]:
        """Readers of the revisions' bodies, and what makes the value afterwards."""
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
                    f"a record of {self.cls.__name__} lacks fields: {error}"
                ) from error

        return {self.version: [reader(revision) for revision in self._revisions]}, build

    def serialize(self, value: T) -> bytes:
        """The record of a value.

        :raises EncodeError: a field does not fit its kind.
        """
        return encode_record(self.writers(value), version=self.version)

    def deserialize(self, payload: bytes) -> T:
        """The value of a record; bytes after it are ignored.

        :raises DecodeError: malformed.
        :raises IncompatibleVersionError: of another version.
        """
        versions, build = self.readers()
        read_record(payload, versions, what=self.cls.__name__)
        return build()


class VersionedUnionSerializer(Generic[T]):
    """Several dataclasses as records that say which one they are.

    :param types: type id (0 to 255) to the serializer of its class.
    """

    def __init__(self, types: Mapping[int, VersionedSerializer[Any]], *, name: str = "record") -> None:
        self._by_id = dict(types)
        self._ids = {each.cls: number for number, each in types.items()}
        self._name = name

    def serialize(self, value: T) -> bytes:
        """The record of a value.

        :raises EncodeError: its class is not one of the types.
        """
        number = self._ids.get(type(value))
        if number is None:
            raise EncodeError(f"{type(value).__name__} is not one of the types of {self._name}")
        each = self._by_id[number]
        return encode_record(each.writers(value), version=each.version, type_id=number)

    def deserialize(self, payload: bytes) -> T:
        """The value of a record; bytes after it are ignored. Errors as the single type's."""
        result: T = read_typed_record_from(
            DataReader(payload),
            {number: each.readers for number, each in self._by_id.items()},
            what=self._name,
        )
        return result
