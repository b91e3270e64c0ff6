"""The client of the schema registry for blocking programs.

Not public: :mod:`pravega_wire.sync` exports it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from pravega_wire.schemas import calls
from pravega_wire.schemas.client import SchemaRegistry as AsyncRegistry
from pravega_wire.values.config import Credentials, PravegaConfig

__all__ = ["SchemaRegistry"]

P = ParamSpec("P")
T = TypeVar("T")


class _Twin(AsyncRegistry):
    """Waits in the thread that calls it, so that its coroutines run to their end at once."""

    async def _run(self, steps: calls.Steps[T]) -> T:
        return self._transport.run(steps)


def _blocking(
    method: Callable[Concatenate[AsyncRegistry, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SchemaRegistry, P], T]:
    @wraps(method)
    def call(self: SchemaRegistry, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            method(self._twin, *args, **kwargs).send(None)
        except StopIteration as stop:
            found: T = stop.value
            return found
        raise AssertionError(f"{method.__name__} waits for an event loop")

    return call


class SchemaRegistry:
    """A client of the schema registry, for blocking programs; threads may share it.

    It has the methods of :class:`pravega_wire.schemas.SchemaRegistry`, without ``await``.

    Example::

        from pravega_wire.schemas import JsonSchema
        from pravega_wire.sync import SchemaRegistry

        with SchemaRegistry("http://localhost:9092") as registry:
            registry.create_group("readings")
            schema = JsonSchema("reading", {"type": "object"})
            serializer = registry.serializer("readings", schema, register_schema=True)
            print(serializer.serialize({"celsius": 21.5}))

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
        self._twin = _Twin(
            registry,
            namespace=namespace,
            credentials=credentials,
            trust_store=trust_store,
            validate_hostname=validate_hostname,
            timeout=timeout,
        )

    def __repr__(self) -> str:
        return repr(self._twin)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    close = _blocking(AsyncRegistry.aclose)
    list_groups = _blocking(AsyncRegistry.list_groups)
    create_group = _blocking(AsyncRegistry.create_group)
    group_properties = _blocking(AsyncRegistry.group_properties)
    delete_group = _blocking(AsyncRegistry.delete_group)
    set_compatibility = _blocking(AsyncRegistry.set_compatibility)
    history = _blocking(AsyncRegistry.history)
    add_schema = _blocking(AsyncRegistry.add_schema)
    schema_versions = _blocking(AsyncRegistry.schema_versions)
    latest_schemas = _blocking(AsyncRegistry.latest_schemas)
    latest_schema = _blocking(AsyncRegistry.latest_schema)
    schema_by_id = _blocking(AsyncRegistry.schema_by_id)
    schema_by_version = _blocking(AsyncRegistry.schema_by_version)
    version_of = _blocking(AsyncRegistry.version_of)
    delete_schema = _blocking(AsyncRegistry.delete_schema)
    is_valid = _blocking(AsyncRegistry.is_valid)
    can_read = _blocking(AsyncRegistry.can_read)
    references = _blocking(AsyncRegistry.references)
    codecs = _blocking(AsyncRegistry.codecs)
    add_codec = _blocking(AsyncRegistry.add_codec)
    encoding_id = _blocking(AsyncRegistry.encoding_id)
    encoding = _blocking(AsyncRegistry.encoding)
    serializer = _blocking(AsyncRegistry.serializer)
    deserializer = _blocking(AsyncRegistry.deserializer)
    multi_format_serializer = _blocking(AsyncRegistry.multi_format_serializer)
    prepare = _blocking(AsyncRegistry.prepare)
