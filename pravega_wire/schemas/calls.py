"""The calls to a schema registry, without I/O.

Each is a generator: it yields a :class:`Request`, is sent the :class:`Reply`, and returns the call's result.
The registry's HTTP API is described by its own ``SchemaRegistry.yaml`` (version 0.6.0); what its server
really answers was observed.

Not public.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import quote

from pravega_wire.errors import (
    AuthenticationError,
    CodecNotRegisteredError,
    InvalidArgumentError,
    PermissionDeniedError,
    PravegaError,
    SchemaFormatError,
    SchemaIncompatibleError,
    SchemaMalformedError,
    SchemaNotFoundError,
    SchemaRegistryReplyError,
)
from pravega_wire.schemas.model import (
    CodecType,
    Compatibility,
    CompatibilityPolicy,
    EncodingInfo,
    GroupProperties,
    HistoryEntry,
    RegisteredSchema,
    SchemaInfo,
    SerializationFormat,
    VersionInfo,
    compatibility_of,
)
from pravega_wire.support.checks import INT32_MAX, check_count, check_text, check_type

__all__ = ["Reply", "Request", "Steps"]

T = TypeVar("T")

_PAGE: Final = 100
_MOST_PAGES: Final = 100_000
_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request.

    :ivar method: the method.
    :ivar path: the path below the registry's address.
    :ivar body: the value to send as JSON, or None.
    :ivar query: parameters of the query.
    :ivar repeatable: whether repeating it does no harm.
    """

    method: str
    path: str
    body: Any = None
    query: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request."""

    status: int
    body: bytes


Steps = Generator[Request, Reply, T]


def refusal(
    reply: Reply, what: str, group: str | None, errors: Mapping[int, type[PravegaError]]
) -> PravegaError:
    """Return the error for a status that is not a success."""
    said = reply.body[:_SHOWN].decode("utf-8", "replace").strip()
    tail = f": {said}" if said else ""
    if reply.status == 401:
        return AuthenticationError(f"the schema registry rejected the credentials ({what})")
    if reply.status == 403:
        return PermissionDeniedError(f"the schema registry does not permit this to the account: {what}")
    kind = errors.get(reply.status, SchemaRegistryReplyError)
    if kind is SchemaRegistryReplyError:
        return SchemaRegistryReplyError(
            f"the schema registry answered {what} with status {reply.status}{tail}",
            group=group,
            status=reply.status,
        )
    return kind(f"{what}: {_MEANINGS[kind]}{tail}", group=group, status=reply.status)  # type: ignore[call-arg]


_MEANINGS: Final[Mapping[type[PravegaError], str]] = {
    SchemaNotFoundError: "the schema registry does not have it",
    SchemaIncompatibleError: "the group's compatibility policy does not permit it",
    SchemaFormatError: "the group does not accept this format or type",
    SchemaMalformedError: "the registry cannot use it",
    CodecNotRegisteredError: (
        "the codec is not registered in the group; add_codec registers it, or register_codec=True"
    ),
}


def decoded(reply: Reply, what: str, group: str | None) -> Any:
    """Return the JSON of a successful reply.

    :raises SchemaRegistryReplyError: it is not JSON.
    """
    try:
        return json.loads(reply.body)
    except (ValueError, RecursionError) as error:
        raise SchemaRegistryReplyError(
            f"the schema registry's answer to {what} is not JSON: {error}", group=group, status=reply.status
        ) from error


def _path(group: str, *rest: object) -> str:
    check_text("group", group)
    parts = [group, *map(str, rest)]
    if "." in parts or ".." in parts:
        # As parts of a path they would lead elsewhere, also when they are quoted.
        raise InvalidArgumentError("the name of a group, and the type of a schema, cannot be '.' or '..'")
    return "/".join(["/v1/groups", *(quote(each, safe="") for each in parts)])


def _asked(
    request: Request,
    what: str,
    group: str | None,
    success: int,
    errors: Mapping[int, type[PravegaError]] = {},
) -> Steps[Any]:
    """Make one request; return the JSON of its reply, or None for a reply without a body."""
    reply = yield request
    if reply.status != success:
        raise refusal(reply, what, group, {404: SchemaNotFoundError, **errors})
    return decoded(reply, what, group) if reply.body else None


def _list(value: Any, name: str, what: str, group: str | None) -> Sequence[Any]:
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, list):
        raise SchemaRegistryReplyError(f"the schema registry's answer to {what} has no list", group=group)
    return found


def _flag(value: Any, name: str, what: str, group: str) -> bool:
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, bool):
        raise SchemaRegistryReplyError(
            f"the schema registry's answer to {what} is neither yes nor no", group=group
        )
    return found


# --- groups -------------------------------------------------------------------------------------------


def list_groups() -> Steps[dict[str, GroupProperties | None]]:
    what = "the list of groups"
    found: dict[str, GroupProperties | None] = {}
    token: str | None = None
    for _ in range(_MOST_PAGES):
        query = {"limit": str(_PAGE)} | ({} if token is None else {"continuationToken": token})
        page = yield from _asked(Request("GET", "/v1/groups", query=query), what, None, 200)
        groups = page.get("groups") if isinstance(page, dict) else None
        following = page.get("continuationToken") if isinstance(page, dict) else None
        if not isinstance(groups, dict) or not isinstance(following, str):
            raise SchemaRegistryReplyError(f"the schema registry's answer to {what} has no groups")
        # The properties of a group that is being created are null.
        found |= {
            name: None if each is None else GroupProperties.from_json(each) for name, each in groups.items()
        }
        if not groups or following == token:
            return found
        token = following
    raise SchemaRegistryReplyError(f"the schema registry's answer to {what} does not end")


def create_group(group: str, properties: GroupProperties) -> Steps[bool]:
    _path(group)  # it could be created, but not be reached
    check_type(f"the properties of group {group}", properties, GroupProperties)
    body = {"groupName": group, "groupProperties": properties.to_json()}
    reply = yield Request("POST", "/v1/groups", body, repeatable=False)
    if reply.status == 409:
        return False
    if reply.status == 400 and properties.format is not SerializationFormat.AVRO:
        policy = compatibility_of(properties.compatibility).policy
        raise InvalidArgumentError(
            f"creating group {group}: the schema registry refuses a new group of the format "
            f"{properties.format.name} with the policy {policy.name}. Create it with ALLOW_ANY or DENY_ALL; "
            "set_compatibility changes the policy"
        )
    if reply.status != 201:
        raise refusal(reply, f"creating group {group}", group, {400: SchemaMalformedError})
    return True


def group_properties(group: str) -> Steps[GroupProperties]:
    value = yield from _asked(Request("GET", _path(group)), f"the properties of group {group}", group, 200)
    return GroupProperties.from_json(value)


def delete_group(group: str) -> Steps[None]:
    yield from _asked(Request("DELETE", _path(group)), f"deleting group {group}", group, 204)


def set_compatibility(
    group: str,
    compatibility: Compatibility | CompatibilityPolicy,
    previous: Compatibility | CompatibilityPolicy | None,
) -> Steps[bool]:
    body = {"compatibility": compatibility_of(compatibility).to_json()}
    if previous is not None:
        body["previousCompatibility"] = compatibility_of(previous).to_json()
    request = Request("PUT", _path(group, "compatibility"), body, repeatable=previous is None)
    reply = yield request
    if reply.status == 409:
        return False
    if reply.status != 200:
        raise refusal(reply, f"the compatibility of group {group}", group, {404: SchemaNotFoundError})
    return True


def history(group: str) -> Steps[list[HistoryEntry]]:
    what = f"the history of group {group}"
    value = yield from _asked(Request("GET", _path(group, "history")), what, group, 200)
    return [HistoryEntry.from_json(each) for each in _list(value, "history", what, group)]


# --- schemas ------------------------------------------------------------------------------------------


_SCHEMA_ERRORS: Final[Mapping[int, type[PravegaError]]] = {
    400: SchemaMalformedError,
    409: SchemaIncompatibleError,
    417: SchemaFormatError,
}


def add_schema(group: str, schema: SchemaInfo) -> Steps[VersionInfo]:
    what = f"adding schema {schema.type} to group {group}"
    request = Request("POST", _path(group, "schemas"), schema.to_json())
    return VersionInfo.from_json((yield from _asked(request, what, group, 201, _SCHEMA_ERRORS)))


def _schemas(group: str, path: str) -> Steps[list[RegisteredSchema]]:
    what = f"the schemas of group {group}"
    value = yield from _asked(Request("GET", path), what, group, 200)
    return [RegisteredSchema.from_json(each) for each in _list(value, "schemas", what, group)]


def schema_versions(group: str, type: str | None) -> Steps[list[RegisteredSchema]]:
    # The server fails if it is asked for a type that it does not have.
    found = yield from _schemas(group, _path(group, "schemas", "versions"))
    return [each for each in found if type in (None, each.schema.type)]


def latest_schemas(group: str) -> Steps[list[RegisteredSchema]]:
    return (yield from _schemas(group, _path(group, "schemas")))


def latest_schema(group: str, type: str | None) -> Steps[RegisteredSchema]:
    found = [each for each in (yield from latest_schemas(group)) if type in (None, each.schema.type)]
    if not found:
        what = "no schema" if type is None else f"no schema of type {type}"
        raise SchemaNotFoundError(f"group {group} has {what}", group=group)
    return max(found, key=lambda each: each.version.id)


_number: Final = partial(check_count, lowest=0, highest=INT32_MAX)


def schema_by_id(group: str, id: int) -> Steps[SchemaInfo]:
    path = _path(group, "schemas", "schema", _number("schema id", id))
    return SchemaInfo.from_json(
        (yield from _asked(Request("GET", path), f"schema {id} of group {group}", group, 200))
    )


def schema_by_version(group: str, format: str, type: str, version: int) -> Steps[SchemaInfo]:
    name = str(SerializationFormat(format)) if format in list(SerializationFormat) else format
    path = _path(group, "schemas", "format", name, "type", type, "versions", _number("version", version))
    what = f"version {version} of schema {type} of group {group}"
    return SchemaInfo.from_json((yield from _asked(Request("GET", path), what, group, 200)))


def version_of(group: str, schema: SchemaInfo) -> Steps[VersionInfo]:
    request = Request("POST", _path(group, "schemas", "versions", "find"), schema.to_json())
    what = f"the version of schema {schema.type} in group {group}"
    try:
        return VersionInfo.from_json((yield from _asked(request, what, group, 200, _SCHEMA_ERRORS)))
    except SchemaNotFoundError as error:
        raise SchemaNotFoundError(
            f"{error.message}. Either the group does not exist, or it does not have the schema: create_group "
            "and add_schema add them, or for a serializer create_group=GroupProperties() and "
            "register_schema=True",
            group=group,
            status=error.status,
        ) from None


def delete_schema(group: str, id: int) -> Steps[None]:
    path = _path(group, "schemas", "schema", _number("schema id", id))
    yield from _asked(Request("DELETE", path), f"deleting schema {id} of group {group}", group, 204)


def is_valid(
    group: str, schema: SchemaInfo, compatibility: Compatibility | CompatibilityPolicy | None
) -> Steps[bool]:
    if compatibility is None:
        # The server fails if it is not sent one.
        compatibility = (yield from group_properties(group)).compatibility
    body = {"schemaInfo": schema.to_json(), "compatibility": compatibility_of(compatibility).to_json()}
    what = f"whether schema {schema.type} is valid in group {group}"
    request = Request("POST", _path(group, "schemas", "versions", "validate"), body)
    return _flag((yield from _asked(request, what, group, 200, _SCHEMA_ERRORS)), "valid", what, group)


def can_read(group: str, schema: SchemaInfo) -> Steps[bool]:
    what = f"whether schema {schema.type} can read group {group}"
    request = Request("POST", _path(group, "schemas", "versions", "canRead"), schema.to_json())
    return _flag((yield from _asked(request, what, group, 200, _SCHEMA_ERRORS)), "compatible", what, group)


def references(schema: SchemaInfo) -> Steps[dict[str, VersionInfo]]:
    what = f"the groups with schema {schema.type}"
    request = Request("POST", "/v1/schemas/addedTo", schema.to_json())
    value = yield from _asked(request, what, None, 200, _SCHEMA_ERRORS)
    groups = value.get("groups") if isinstance(value, dict) else None
    if not isinstance(groups, dict):
        raise SchemaRegistryReplyError(f"the schema registry's answer to {what} has no groups")
    return {name: VersionInfo.from_json(each) for name, each in groups.items()}


# --- codecs and encodings -----------------------------------------------------------------------------


def codecs(group: str) -> Steps[list[CodecType]]:
    what = f"the codecs of group {group}"
    value = yield from _asked(Request("GET", _path(group, "codecTypes")), what, group, 200)
    return [CodecType.from_json(each) for each in _list(value, "codecTypes", what, group)]


def add_codec(group: str, codec: CodecType) -> Steps[None]:
    check_type(f"a codec of group {group}", codec, CodecType)
    what = f"adding codec {codec.name!r} to group {group}"
    request = Request("POST", _path(group, "codecTypes"), codec.to_json())
    yield from _asked(request, what, group, 201)


def encoding_id(group: str, version: VersionInfo, codec: str) -> Steps[int]:
    check_type(f"the version of a schema in group {group}", version, VersionInfo)
    what = f"the encoding id of schema {version.type} with codec {codec!r} in group {group}"
    body = {"codecType": codec, "versionInfo": version.to_json()}
    request = Request("PUT", _path(group, "encodings"), body)
    value = yield from _asked(request, what, group, 200, {412: CodecNotRegisteredError})
    found = value.get("encodingId") if isinstance(value, dict) else None
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= INT32_MAX:
        raise SchemaRegistryReplyError(
            f"the schema registry's answer to {what} has no encoding id", group=group
        )
    return found


def encoding(group: str, id: int) -> Steps[EncodingInfo]:
    what = f"encoding {id} of group {group}"
    path = _path(group, "encodings", _number("encoding id", id))
    return EncodingInfo.from_json((yield from _asked(Request("GET", path), what, group, 200)))
