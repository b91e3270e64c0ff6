"""The values of the schema registry, and their form in its JSON.

Not public: :mod:`pravega_wire.schemas` exports the names that users need.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, Literal

from pravega_wire.errors import ArgumentTypeError, InvalidArgumentError, SchemaRegistryReplyError
from pravega_wire.support.checks import check_type

__all__ = [
    "CodecType",
    "Compatibility",
    "CompatibilityPolicy",
    "EncodingInfo",
    "GroupProperties",
    "HistoryEntry",
    "RegisteredSchema",
    "SchemaInfo",
    "SerializationFormat",
    "VersionInfo",
]


class SerializationFormat(StrEnum):
    """How the events of a group are written."""

    AVRO = "Avro"
    PROTOBUF = "Protobuf"
    JSON = "Json"
    ANY = "Any"
    CUSTOM = "Custom"


class CompatibilityPolicy(StrEnum):
    """Which schemas a group accepts beside those that it has.

    ``BACKWARD``: readers with the new schema can read events of the last schema. ``FORWARD``: readers with
    the last schema can read events of the new one. ``FULL``: both. The transitive ones compare with all
    schemas, not only the last one.
    """

    ALLOW_ANY = "AllowAny"
    DENY_ALL = "DenyAll"
    BACKWARD = "Backward"
    BACKWARD_TRANSITIVE = "BackwardTransitive"
    FORWARD = "Forward"
    FORWARD_TRANSITIVE = "ForwardTransitive"
    FULL = "Full"
    FULL_TRANSITIVE = "FullTransitive"
    ADVANCED = "Advanced"


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """The version of a schema in a group.

    :ivar type: the schema's type.
    :ivar version: number among the schemas of this type in the group, from 0.
    :ivar id: number among all schemas of the group, from 0.
    :ivar format: name of the serialization format.
    """

    type: str
    version: int
    id: int
    format: str

    def to_json(self) -> dict[str, Any]:
        """Return the value as the registry's JSON."""
        return {
            "type": self.type,
            "serializationFormat": self.format,
            "version": self.version,
            "id": self.id,
        }

    @classmethod
    def from_json(cls, value: object) -> VersionInfo:
        """Read the registry's JSON.

        :raises SchemaRegistryReplyError: it is something else.
        """
        fields = _object(value, "a version")
        return cls(
            _text(fields, "type"),
            _number(fields, "version"),
            _number(fields, "id"),
            _text(fields, "serializationFormat"),
        )


Scope = Literal["last", "all"] | VersionInfo


@dataclass(frozen=True, slots=True)
class Compatibility:
    """A compatibility policy of a group.

    Example::

        # New schemas must be able to read everything; old readers only the events from version 3 on.
        Compatibility(CompatibilityPolicy.ADVANCED, backward="all", forward=version_3)

    :param policy: the policy.
    :param backward: with ``ADVANCED``: the schemas whose events a new schema must be able to read:
        ``"last"``, ``"all"``, all from a version on, or None.
    :param forward: with ``ADVANCED``: the schemas that must be able to read events of a new schema.
    :raises InvalidArgumentError: ``backward`` or ``forward`` is given for another policy, or neither for
        ``ADVANCED``.
    """

    policy: CompatibilityPolicy
    backward: Scope | None = None
    forward: Scope | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "policy", _policy(self.policy))
        given = self.backward is not None or self.forward is not None
        if given != (self.policy is CompatibilityPolicy.ADVANCED):
            raise InvalidArgumentError(
                "compatibility: backward and forward belong to the policy ADVANCED, which needs at least one"
            )
        for name, scope in (("backward", self.backward), ("forward", self.forward)):
            if scope not in (None, "last", "all") and not isinstance(scope, VersionInfo):
                raise InvalidArgumentError(
                    f"compatibility: {name} must be 'last', 'all' or a VersionInfo, not {scope!r}"
                )

    def to_json(self) -> dict[str, Any]:
        """Return the value as the registry's JSON."""
        found: dict[str, Any] = {"policy": str(self.policy)}
        if self.policy is CompatibilityPolicy.ADVANCED:
            advanced = found["advanced"] = {}
            for name, scope in (("backward", self.backward), ("forward", self.forward)):
                if scope is not None:
                    advanced[f"{name}Policy"] = {f"{name}Policy": _scope_json(name.capitalize(), scope)}
        return found

    @classmethod
    def from_json(cls, value: object) -> Compatibility:
        """Read the registry's JSON.

        :raises SchemaRegistryReplyError: it is something else.
        """
        fields = _object(value, "a compatibility")
        try:
            policy = CompatibilityPolicy(_text(fields, "policy"))
        except ValueError as error:
            raise SchemaRegistryReplyError(f"the schema registry sent an unknown policy: {error}") from error
        if policy is not CompatibilityPolicy.ADVANCED:
            return cls(policy)
        advanced = _object(fields.get("advanced"), "an advanced compatibility")
        scopes = [_scope(advanced, name) for name in ("backward", "forward")]
        if scopes == [None, None]:
            raise SchemaRegistryReplyError("the schema registry sent an advanced compatibility without rules")
        return cls(policy, *scopes)


def _policy(policy: object) -> CompatibilityPolicy:
    try:
        return CompatibilityPolicy(policy)  # type: ignore[arg-type]  # a wrong one is refused
    except ValueError:
        raise InvalidArgumentError(f"{policy!r} is not a CompatibilityPolicy") from None


def _scope_json(name: str, scope: Scope) -> dict[str, Any]:
    if isinstance(scope, VersionInfo):
        return {"name": f"{name}Till", "versionInfo": scope.to_json()}
    return {"name": name if scope == "last" else f"{name}Transitive"}


def _scope(advanced: Mapping[str, Any], name: str) -> Scope | None:
    outer = advanced.get(f"{name}Policy")
    if outer is None:
        return None
    inner = _object(_object(outer, "a policy").get(f"{name}Policy"), "a policy")
    kind = _text(inner, "name").removeprefix(name.capitalize())
    if kind == "Till":
        return VersionInfo.from_json(inner.get("versionInfo"))
    if kind == "":
        return "last"
    if kind == "Transitive":
        return "all"
    raise SchemaRegistryReplyError(f"the schema registry sent an unknown {name} policy")


@dataclass(frozen=True, slots=True)
class GroupProperties:
    """The properties of a group.

    :param format: the serialization format of its events; ``ANY`` for several.
    :param compatibility: which schemas it accepts.
    :param allow_multiple_types: whether it accepts schemas of several types.
    :param properties: texts for users.
    :param custom_format: name of the format, if ``format`` is ``CUSTOM``.
    :raises ArgumentTypeError: the format is not a :class:`SerializationFormat`.
    """

    format: SerializationFormat = SerializationFormat.ANY
    compatibility: Compatibility | CompatibilityPolicy = CompatibilityPolicy.ALLOW_ANY
    allow_multiple_types: bool = True
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    custom_format: str = ""

    def __post_init__(self) -> None:
        check_type("the format of a group", self.format, SerializationFormat)
        object.__setattr__(self, "compatibility", compatibility_of(self.compatibility))

    def to_json(self) -> dict[str, Any]:
        """Return the value as the registry's JSON."""
        return {
            "serializationFormat": _format_json(self.format, self.custom_format),
            "compatibility": compatibility_of(self.compatibility).to_json(),
            "allowMultipleTypes": self.allow_multiple_types,
            "properties": dict(self.properties),
        }

    @classmethod
    def from_json(cls, value: object) -> GroupProperties:
        """Read the registry's JSON.

        :raises SchemaRegistryReplyError: it is something else.
        """
        fields = _object(value, "a group's properties")
        format_, custom = _format(fields)
        allow = fields.get("allowMultipleTypes")
        if not isinstance(allow, bool):
            raise SchemaRegistryReplyError("the schema registry sent a group without allowMultipleTypes")
        return cls(
            format_,
            Compatibility.from_json(fields.get("compatibility")),
            allow,
            _properties(fields),
            custom,
        )


def compatibility_of(value: Compatibility | CompatibilityPolicy) -> Compatibility:
    """Return a compatibility for what may be the name of a policy."""
    return value if isinstance(value, Compatibility) else Compatibility(value)


@dataclass(frozen=True, slots=True)
class SchemaInfo:
    """A schema as the registry keeps it.

    :ivar type: name of what the schema describes: the full name of an Avro record or Protobuf message, any
        name for JSON.
    :ivar format: the serialization format.
    :ivar data: the schema: JSON text for Avro and JSON, a ``FileDescriptorSet`` for Protobuf.
    :ivar properties: texts for users.
    :ivar custom_format: name of the format, if ``format`` is ``CUSTOM``.
    """

    type: str
    format: SerializationFormat
    data: bytes = field(repr=False)
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    custom_format: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the value as the registry's JSON.

        :raises ArgumentTypeError: the data is not bytes.
        """
        if not isinstance(self.data, bytes | bytearray | memoryview):
            raise ArgumentTypeError(f"data of a SchemaInfo must be bytes, not {type(self.data).__name__}")
        return {
            "type": self.type,
            "serializationFormat": _format_json(self.format, self.custom_format),
            "schemaData": base64.b64encode(self.data).decode("ascii"),
            "properties": dict(self.properties),
        }

    @classmethod
    def from_json(cls, value: object) -> SchemaInfo:
        """Read the registry's JSON.

        :raises SchemaRegistryReplyError: it is something else.
        """
        fields = _object(value, "a schema")
        format_, custom = _format(fields)
        try:
            data = base64.b64decode(_text(fields, "schemaData"), validate=True)
        except (binascii.Error, ValueError) as error:
            raise SchemaRegistryReplyError(
                f"the schema registry sent a schema that is not base64: {error}"
            ) from error
        return cls(_text(fields, "type"), format_, data, _properties(fields), custom)


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of a group.

    :ivar schema: the schema.
    :ivar version: its version in the group.
    """

    schema: SchemaInfo
    version: VersionInfo

    @classmethod
    def from_json(cls, value: object) -> RegisteredSchema:
        """Read the registry's JSON.

        :raises SchemaRegistryReplyError: it is something else.
        """
        fields = _object(value, "a schema with its version")
        return cls(
            SchemaInfo.from_json(fields.get("schemaInfo")), VersionInfo.from_json(fields.get("versionInfo"))
        )


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A schema of a group, and how it was accepted.

    :ivar schema: the schema.
    :ivar version: its version in the group.
    :ivar compatibility: the group's compatibility at that time.
    :ivar added_at: when it was added (UTC).
    """

    schema: SchemaInfo
    version: VersionInfo
    compatibility: Compatibility
    added_at: datetime

    @classmethod
    def from_json(cls, value: object) -> HistoryEntry:
        """Read the registry's JSON.

        :raises SchemaRegistryReplyError: it is something else.
        """
        fields = _object(value, "an entry of a history")
        try:
            added = datetime.fromtimestamp(_number(fields, "timestamp") / 1000, UTC)
        except (OverflowError, ValueError, OSError) as error:
            raise SchemaRegistryReplyError(f"the schema registry sent an impossible time: {error}") from error
        return cls(
            SchemaInfo.from_json(fields.get("schemaInfo")),
            VersionInfo.from_json(fields.get("versionInfo")),
            Compatibility.from_json(fields.get("compatibility")),
            added,
        )


@dataclass(frozen=True, slots=True)
class CodecType:
    """A codec of a group.

    :ivar name: its name; "" for none.
    :ivar properties: texts for its users.
    """

    name: str
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)

    def to_json(self) -> dict[str, Any]:
        """Return the value as the registry's JSON."""
        return {"name": self.name, "properties": dict(self.properties)}

    @classmethod
    def from_json(cls, value: object) -> CodecType:
        """Read the registry's JSON.

        :raises SchemaRegistryReplyError: it is something else.
        """
        fields = _object(value, "a codec")
        return cls(_text(fields, "name"), _properties(fields))


@dataclass(frozen=True, slots=True)
class EncodingInfo:
    """What an encoding id stands for: how an event was written.

    :ivar schema: the schema.
    :ivar version: its version in the group.
    :ivar codec: the codec.
    """

    schema: SchemaInfo
    version: VersionInfo
    codec: CodecType

    @classmethod
    def from_json(cls, value: object) -> EncodingInfo:
        """Read the registry's JSON.

        :raises SchemaRegistryReplyError: it is something else.
        """
        fields = _object(value, "an encoding")
        return cls(
            SchemaInfo.from_json(fields.get("schemaInfo")),
            VersionInfo.from_json(fields.get("versionInfo")),
            CodecType.from_json(fields.get("codecType")),
        )


# --- parts of JSON ----------------------------------------------------------------------------------


_FORMATS: Final = {str(each): each for each in SerializationFormat}


def _object(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise SchemaRegistryReplyError(f"the schema registry was to send {what}, but sent something else")
    return value


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise SchemaRegistryReplyError(f"the schema registry's answer has no text {name!r}")
    return value


def _number(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise SchemaRegistryReplyError(f"the schema registry's answer has no number {name!r}")
    return value


def _properties(fields: Mapping[str, Any]) -> dict[str, str]:
    value = fields.get("properties") or {}
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise SchemaRegistryReplyError("the schema registry's answer has properties that are not texts")
    return value


def _format_json(format_: SerializationFormat, custom: str) -> dict[str, str]:
    try:
        format_ = SerializationFormat(format_)
    except ValueError:
        raise InvalidArgumentError(f"{format_!r} is not a SerializationFormat") from None
    if format_ is SerializationFormat.CUSTOM:
        return {"serializationFormat": "Custom", "fullTypeName": custom}
    return {"serializationFormat": str(format_), "fullTypeName": str(format_)}


def _format(fields: Mapping[str, Any]) -> tuple[SerializationFormat, str]:
    found = _object(fields.get("serializationFormat"), "a serialization format")
    name = _text(found, "serializationFormat")
    if name not in _FORMATS:
        raise SchemaRegistryReplyError(f"the schema registry sent an unknown serialization format {name!r}")
    format_ = _FORMATS[name]
    return format_, _text(found, "fullTypeName") if format_ is SerializationFormat.CUSTOM else ""
