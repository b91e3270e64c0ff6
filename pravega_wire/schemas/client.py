"""The client of the schema registry for trio and asyncio.

Not public: :mod:`pravega_wire.schemas` exports the names that users need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Self, TypeVar

from pravega_wire.errors import ArgumentTypeError, SchemaIncompatibleError, SchemaNotFoundError
from pravega_wire.schemas import calls
from pravega_wire.schemas.codecs import Codec, codec_name
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
)
from pravega_wire.schemas.serializer import (
    EventSchema,
    LookUp,
    MultiFormatSerializer,
    Prepared,
    SchemaSerializer,
    combined,
    encoding_id_of,
    header_of,
)
from pravega_wire.schemas.shared import (
    DEFAULT_DECODED_BYTES,
    MOST_FETCHED,
    Ids,
    OnUnknown,
    check_reading,
    check_schemas,
    check_writing,
    info_of,
    look_up,
)
from pravega_wire.schemas.transport import Settings, Transport, in_thread
from pravega_wire.support.checks import check_buffer, check_count, shown
from pravega_wire.values.config import Credentials, PravegaConfig

__all__ = ["SchemaRegistry"]

T = TypeVar("T")


class SchemaRegistry:
    """A client of the schema registry, for programs on trio or asyncio.

    A call whose repetition does no harm is repeated after a lost connection; creating a group and a
    conditional change of a policy are not. Encoding ids are kept, both ways.

    Requests are made in threads. After a cancellation nobody waits for the one that is being made, but the
    registry may still do what it asks for.

    Example::

        import trio
        from pravega_wire.schemas import JsonSchema, SchemaRegistry

        async def main():
            async with SchemaRegistry("http://localhost:9092") as registry:
                await registry.create_group("readings")
                schema = JsonSchema("reading", {"type": "object"})
                serializer = await registry.serializer("readings", schema, register_schema=True)
                print(serializer.serialize({"celsius": 21.5}))

        trio.run(main)

    :param registry: address of the registry (``http://host:port`` or ``https://host:port``), or a
        configuration with its setting ``schema_registry_uri``, whose credentials and trust store are used.
    :param namespace: namespace of the groups, or None.
    :param credentials: credentials to send, or None.
    :param trust_store: path of a PEM file with the certificates to trust; default: the system's.
    :param validate_hostname: whether to check the server's name against its certificate (default True).
    :param timeout: time limit in seconds for one call, with all its attempts.
    :raises InvalidArgumentError: an argument is malformed.
    :raises MissingExtraError: ``httpx`` is not installed.
    """

    def __init__(
        self,
        registry: str | PravegaConfig,
        *,
        namespace: str | None = None,
        credentials: Credentials | None = None,
        trust_store: str | None = None,
        validate_hostname: bool | None = None,
        timeout: float = 30.0,
    ) -> None:
        settings = Settings.of(
            registry,
            namespace=namespace,
            credentials=credentials,
            trust_store=trust_store,
            validate_hostname=validate_hostname,
            timeout=timeout,
        )
        self._transport = Transport(settings)
        self._ids = Ids()

    def __repr__(self) -> str:
        return f"SchemaRegistry({self._transport.settings.uri!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; serializers remain usable."""
        self._transport.close()

    async def _run(self, steps: calls.Steps[T]) -> T:
        return await in_thread(partial(self._transport.run, steps))

    def _fetch(self, group: str, on_unknown: OnUnknown) -> LookUp | None:
        return look_up(self._transport.settings, group, on_unknown)

    async def list_groups(self) -> dict[str, GroupProperties | None]:
        """Return all groups, with their properties.

        None stands for the properties of a group that is being created.
        """
        return await self._run(calls.list_groups())

    async def create_group(self, group: str, properties: GroupProperties | None = None) -> bool:
        """Create a group.

        :param group: name of the group; the Pravega convention is the name of the stream.
        :param properties: its properties; default: any format, any schema.
        :returns: False if it exists already.
        :raises InvalidArgumentError: the registry refuses the policy for a new group of this format.
        """
        created = await self._run(calls.create_group(group, properties or GroupProperties()))
        if created:
            # Another process may have deleted it.
            self._ids.forget(group)
        return created

    async def group_properties(self, group: str) -> GroupProperties:
        """Return the properties of a group.

        :param group: name of the group.
        """
        return await self._run(calls.group_properties(group))

    async def delete_group(self, group: str) -> None:
        """Delete a group, if it exists.

        Its encoding ids are reassigned if the group is recreated, so its events can no longer be read.

        :param group: name of the group.
        """
        await self._run(calls.delete_group(group))
        self._ids.forget(group)

    async def set_compatibility(
        self,
        group: str,
        compatibility: Compatibility | CompatibilityPolicy,
        *,
        previous: Compatibility | CompatibilityPolicy | None = None,
    ) -> bool:
        """Change which schemas a group accepts.

        :param group: name of the group.
        :param compatibility: the new policy.
        :param previous: change it only if this is the present policy.
        :returns: False if ``previous`` is not the present policy.
        """
        return await self._run(calls.set_compatibility(group, compatibility, previous))

    async def history(self, group: str) -> list[HistoryEntry]:
        """Return the schemas of a group in the order in which they were added.

        :param group: name of the group.
        """
        return await self._run(calls.history(group))

    async def add_schema(self, group: str, schema: EventSchema | SchemaInfo) -> VersionInfo:
        """Add a schema to a group.

        If the group has it already, its version is returned.

        :param group: name of the group.
        :param schema: the schema.
        :raises SchemaIncompatibleError: the group's policy does not permit it.
        :raises SchemaFormatError: the group has another serialization format, or another type.
        :raises SchemaMalformedError: the registry cannot parse it.
        """
        return await self._run(calls.add_schema(group, info_of(schema)))

    async def schema_versions(self, group: str, type: str | None = None) -> list[RegisteredSchema]:
        """Return all versions of the schemas of a group, oldest first.

        :param group: name of the group.
        :param type: only the schemas of this type.
        """
        return await self._run(calls.schema_versions(group, type))

    async def latest_schemas(self, group: str) -> list[RegisteredSchema]:
        """Return the last version of each type of schema in a group.

        :param group: name of the group.
        """
        return await self._run(calls.latest_schemas(group))

    async def latest_schema(self, group: str, type: str | None = None) -> RegisteredSchema:
        """Return the schema that was added last.

        :param group: name of the group.
        :param type: only schemas of this type.
        :raises SchemaNotFoundError: there is no schema.
        """
        return await self._run(calls.latest_schema(group, type))

    async def schema_by_id(self, group: str, id: int) -> SchemaInfo:
        """Return the schema with an id.

        :param group: name of the group.
        :param id: number among all schemas of the group.
        """
        return await self._run(calls.schema_by_id(group, id))

    async def schema_by_version(
        self, group: str, format: SerializationFormat | str, type: str, version: int
    ) -> SchemaInfo:
        """Return a version of a schema.

        :param group: name of the group.
        :param format: its format.
        :param type: its type.
        :param version: number among the schemas of this type.
        """
        return await self._run(calls.schema_by_version(group, format, type, version))

    async def version_of(self, group: str, schema: EventSchema | SchemaInfo) -> VersionInfo:
        """Return the version of a schema that a group has.

        :param group: name of the group.
        :param schema: the schema.
        :raises SchemaNotFoundError: the group does not have it.
        """
        return await self._run(calls.version_of(group, info_of(schema)))

    async def delete_schema(self, group: str, id: int) -> None:
        """Delete a schema of a group: it can no longer be written; its events can still be read.

        :param group: name of the group.
        :param id: number among all schemas of the group.
        """
        await self._run(calls.delete_schema(group, id))

    async def is_valid(
        self,
        group: str,
        schema: EventSchema | SchemaInfo,
        compatibility: Compatibility | CompatibilityPolicy | None = None,
    ) -> bool:
        """Return whether a group would accept a schema.

        :param group: name of the group.
        :param schema: the schema.
        :param compatibility: the policy to check it against; default: that of the group.
        """
        return await self._run(calls.is_valid(group, info_of(schema), compatibility))

    async def can_read(self, group: str, schema: EventSchema | SchemaInfo) -> bool:
        """Return whether events of a group can be read with a schema, by the group's policy.

        :param group: name of the group.
        :param schema: the reader's schema.
        """
        return await self._run(calls.can_read(group, info_of(schema)))

    async def references(self, schema: EventSchema | SchemaInfo) -> dict[str, VersionInfo]:
        """Return the groups that have a schema, with its version there.

        :param schema: the schema.
        """
        return await self._run(calls.references(info_of(schema)))

    async def codecs(self, group: str) -> list[CodecType]:
        """Return the codecs that are registered in a group.

        :param group: name of the group.
        """
        return await self._run(calls.codecs(group))

    async def add_codec(self, group: str, codec: CodecType) -> None:
        """Register a codec in a group.

        :param group: name of the group.
        :param codec: the codec.
        """
        await self._run(calls.add_codec(group, codec))

    async def encoding_id(self, group: str, version: VersionInfo, codec: Codec = "none") -> int:
        """Return the id that stands for a version of a schema and a codec.

        The registry gives it when it is first asked; the result is kept.

        :param group: name of the group.
        :param version: the version.
        :param codec: the codec.
        :raises CodecNotRegisteredError: the codec is not registered in the group.
        """
        name = codec_name(codec)
        known = self._ids.id_of(group, version, name)
        if known is None:
            known = await self._run(calls.encoding_id(group, version, name))
            self._ids.keep_id(group, version, name, known)
        return known

    async def encoding(self, group: str, id: int) -> EncodingInfo:
        """Return what an encoding id stands for.

        The result is kept.

        :param group: name of the group.
        :param id: the id.
        :raises SchemaNotFoundError: the group has no such encoding.
        """
        known = self._ids.encoding_of(group, id)
        if known is None:
            known = await self._run(calls.encoding(group, id))
            self._ids.keep_encoding(group, id, known)
        return known

    async def serializer(
        self,
        group: str,
        schema: EventSchema,
        *,
        codec: Codec = "none",
        register_schema: bool = False,
        register_codec: bool = False,
        create_group: GroupProperties | None = None,
        header: bool = True,
        on_unknown: OnUnknown = "fetch",
        max_decoded_bytes: int = DEFAULT_DECODED_BYTES,
    ) -> SchemaSerializer:
        """Return a serializer that writes events of one schema, and reads all events of the group.

        Everything that writing needs is fetched now, so that it never waits for the registry.

        :param group: name of the group.
        :param schema: the schema to write.
        :param codec: ``none``, ``gzip`` or ``snappy``.
        :param register_schema: whether to add the schema if the group does not have it.
        :param register_codec: whether to register the codec if the group does not have it.
        :param create_group: properties with which to create the group if it does not exist.
        :param header: whether events begin with the encoding id. Without it, readers must know the schema,
            there is no codec, and Avro is not possible.
        :param on_unknown: what is done about an event to read whose encoding is not known: ask the registry
            (``fetch``), or ``raise``. Readers of groups and followers ask without blocking; a call of
            ``deserialize`` blocks the thread.
        :param max_decoded_bytes: largest accepted size of a decompressed event.
        :raises SchemaNotFoundError: the group does not exist, or does not have the schema.
        :raises SchemaIncompatibleError: the group's policy does not permit the schema.
        :raises CodecNotRegisteredError: the group does not have the codec.
        """
        name = check_writing(schema, codec, header)
        limit = check_count("max_decoded_bytes", max_decoded_bytes)
        fetch = self._fetch(group, on_unknown)
        # The group may have been deleted and created again: a new serializer asks again.
        self._ids.forget(group)
        if create_group is not None:
            await self.create_group(group, create_group)
        if register_codec and name and name not in [each.name for each in await self.codecs(group)]:
            await self.add_codec(group, CodecType(name))
        if register_schema:
            version = await self.add_schema(group, schema)
        else:
            version = await self.version_of(group, schema)
        id = await self.encoding_id(group, version, codec) if header else 0
        start = header_of(id) if header else b""
        encodings = {id: EncodingInfo(schema.info, version, CodecType(name))} if header else {}
        return SchemaSerializer(Prepared(group, schema, start, name, None, header, encodings, limit), fetch)

    async def deserializer(
        self,
        group: str,
        schema: EventSchema | None = None,
        *,
        header: bool = True,
        on_unknown: OnUnknown = "fetch",
        max_decoded_bytes: int = DEFAULT_DECODED_BYTES,
    ) -> SchemaSerializer:
        """Return a serializer that reads all events of a group.

        Each event is read in the format, schema and codec that its header names. The encodings that the group
        has now are fetched now.

        :param group: name of the group.
        :param schema: the schema to read into: events of older or newer Avro schemas are converted, and
            Protobuf messages are objects of its class. Default: the schema that each event was written with.
        :param header: whether events begin with the encoding id; without it, they are JSON, or of ``schema``.
        :param on_unknown: as in :meth:`serializer`.
        :param max_decoded_bytes: largest accepted size of a decompressed event.
        :raises SchemaNotFoundError: the group does not exist.
        :raises SchemaIncompatibleError: by the group's policy, its events cannot be read with the schema.
        """
        check_reading(schema, header)
        limit = check_count("max_decoded_bytes", max_decoded_bytes)
        fetch = self._fetch(group, on_unknown)
        self._ids.forget(group)
        if schema is None:
            await self.group_properties(group)
        elif not await self.can_read(group, schema):
            raise SchemaIncompatibleError(
                f"by the policy of group {group}, its events cannot be read with {schema!r}", group=group
            )
        encodings: dict[int, EncodingInfo] = {}
        while header and len(encodings) < MOST_FETCHED:
            try:
                encodings[len(encodings)] = await self.encoding(group, len(encodings))
            except SchemaNotFoundError:
                break
        return SchemaSerializer(Prepared(group, None, b"", "", schema, header, encodings, limit), fetch)

    async def multi_format_serializer(
        self,
        group: str,
        schemas: Iterable[EventSchema] | Mapping[type, EventSchema],
        *,
        codec: Codec = "none",
        register_schema: bool = False,
        register_codec: bool = False,
        create_group: GroupProperties | None = None,
        on_unknown: OnUnknown = "fetch",
        max_decoded_bytes: int = DEFAULT_DECODED_BYTES,
    ) -> MultiFormatSerializer:
        """Return a serializer that writes events of several schemas, and reads all events of the group.

        The schemas may have different formats, if the group permits any. Everything that writing needs is
        fetched now, so that it never waits for the registry. Events always have a header.

        :param group: name of the group.
        :param schemas: the schemas to write; a mapping says for which Python type each is.
        :param codec: ``none``, ``gzip`` or ``snappy``, for all of them.
        :param register_schema: whether to add schemas that the group does not have.
        :param register_codec: whether to register the codec if the group does not have it.
        :param create_group: properties with which to create the group if it does not exist.
        :param on_unknown: as in :meth:`serializer`.
        :param max_decoded_bytes: largest accepted size of a decompressed event.
        :raises ArgumentTypeError: something is not a schema, or the key of one is not a type.
        :raises InvalidArgumentError: there is no schema.
        :raises SchemaNotFoundError: the group does not exist, or does not have one of the schemas.
        :raises SchemaIncompatibleError: the group's policy does not permit one of the schemas.
        :raises SchemaFormatError: the group is for another format.
        :raises CodecNotRegisteredError: the group does not have the codec.
        """
        listed, types = check_schemas(schemas)
        for schema in listed:
            check_writing(schema, codec, True)
        made = [
            await self.serializer(
                group,
                schema,
                codec=codec,
                register_schema=register_schema,
                register_codec=register_codec,
                create_group=create_group,
                on_unknown=on_unknown,
                max_decoded_bytes=max_decoded_bytes,
            )
            for schema in listed
        ]
        reader = await self.deserializer(group, on_unknown=on_unknown, max_decoded_bytes=max_decoded_bytes)
        return combined(reader, made, types)

    async def prepare(self, serializer: SchemaSerializer, *payloads: bytes) -> None:
        """Fetch the encodings of events that a serializer does not know yet.

        Reading these events does not wait then.

        :param serializer: the serializer.
        :param payloads: the events.
        :raises ArgumentTypeError: something is not a serializer of a group, or an event is not bytes.
        :raises UnknownEncodingError: the group has no such encoding.
        :raises DecodeError: an event has no header.
        """
        if not isinstance(serializer, SchemaSerializer):
            raise ArgumentTypeError(f"prepare needs a SchemaSerializer, not {shown(serializer)}")
        for given in payloads:
            payload = check_buffer(given, "an event")
            if serializer.knows_header(payload):
                continue
            id = encoding_id_of(payload)
            try:
                serializer.learn(id, await self.encoding(serializer.group, id))
            except SchemaNotFoundError as error:
                raise serializer.no_such(id) from error
