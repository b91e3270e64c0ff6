"""Events as typed columns, and rows as events: Avro, JSON and Protobuf, with or without the schema registry.

:func:`from_pravega` and :func:`to_pravega` are columns for ``select`` and ``withColumn``, of DataFrames and
of streaming queries. They work on Arrow batches, and need PySpark 4.1. ``docs/spark-schemas.md`` has the
types.

Example::

    from spark_adapter.schemas import RegistryGroup, from_pravega, to_pravega

    readings = RegistryGroup("readings", "http://localhost:9092")
    frame = spark.read.format("pravega").option("stream", "demo/readings").load()
    rows = frame.select(from_pravega("event", readings).alias("reading")).select("reading.*")
    events = rows.select(to_pravega(struct("sensor", "celsius"), readings).alias("event"))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pravega_wire import Credentials, PravegaConfig
from pravega_wire.errors import (
    ArgumentTypeError,
    InvalidArgumentError,
    SchemaIncompatibleError,
    SchemaNotFoundError,
)
from pravega_wire.schemas import (
    AvroSchema,
    Codec,
    EncodingInfo,
    EventSchema,
    GroupProperties,
    JsonSchema,
    ProtobufSchema,
    RegisteredSchema,
    SchemaInfo,
    SerializationFormat,
)
from pravega_wire.schemas.codecs import codec_name
from pravega_wire.schemas.debezium import DebeziumSerializer
from pravega_wire.schemas.serializer import header_of
from pravega_wire.serializers import Serializer
from pravega_wire.support.checks import check_count, check_flag, check_text, shown
from pravega_wire.sync import SchemaRegistry
from spark_adapter.columns.worker import (
    ChangePlan,
    Connection,
    Decode,
    Encode,
    GroupPlan,
    Plan,
    SchemaPlan,
    SerializerPlan,
)
from spark_adapter.versions import needs_arrow_functions

__all__ = ["ChangeRows", "RegistryGroup", "TypedSerializer", "from_pravega", "to_pravega"]

_MOST_FETCHED = 200


@dataclass(frozen=True, slots=True)
class RegistryGroup:
    """A group of the schema registry: its events begin with an encoding id.

    Each event is read with the schema and codec that its id stands for, and converted to one schema, which
    gives the type of the column. Events are written in the form of the registry's Java serializers.

    Example::

        RegistryGroup("readings", "http://localhost:9092")
        RegistryGroup(
            "readings", config, schema=AvroSchema(text), codec="gzip", register_schema=True
        )

    :param group: name of the group; the Pravega convention is the name of the stream.
    :param registry: address of the registry, or a configuration with its setting ``schema_registry_uri``,
        whose credentials and trust store are used; default: the configuration of the environment.
    :param schema: the schema of the column; default: the last one that was added to the group, which is
        looked up when the column is created.
    :param type: without ``schema``: the type of schema to look up, for a group with several.
    :param codec: the codec of events that are written: ``none``, ``gzip`` or ``snappy``.
    :param register_schema: for writing: whether to add the schema if the group does not have it.
    :param register_codec: for writing: whether to register the codec if the group does not have it.
    :param create_group: for writing: properties with which to create the group if it does not exist.
    :param namespace: namespace of the group, or None.
    :param credentials: credentials to send; default: those of the configuration.
    :param trust_store: path of a PEM file with the certificates to trust, in the driver and the workers.
    :param validate_hostname: whether to check the server's name against its certificate (default True).
    :param timeout: time limit in seconds for one call of the registry.
    :param max_decoded_bytes: largest accepted size of a decompressed event.
    """

    group: str
    registry: str | PravegaConfig | None = None
    schema: EventSchema | None = None
    type: str | None = None
    codec: Codec = "none"
    register_schema: bool = False
    register_codec: bool = False
    create_group: GroupProperties | None = None
    namespace: str | None = None
    credentials: Credentials | None = None
    trust_store: str | None = None
    validate_hostname: bool | None = None
    timeout: float = 30.0
    max_decoded_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        check_text("group", self.group)
        check_count("max_decoded_bytes", self.max_decoded_bytes)
        for name in ("register_schema", "register_codec"):
            check_flag(name, getattr(self, name))
        if self.validate_hostname is not None:
            check_flag("validate_hostname", self.validate_hostname)
        codec_name(self.codec)
        if self.schema is not None:
            _check_schema(self.schema)
            if self.type is not None:
                raise InvalidArgumentError("type looks a schema up, so it cannot be given beside schema")
        elif self.register_schema:
            raise InvalidArgumentError("register_schema needs a schema to register")


@dataclass(frozen=True, slots=True)
class TypedSerializer:
    """Any serializer, with the Spark type of its values.

    A struct is read from mappings, dataclasses, objects with attributes and tuples, and written from
    dictionaries. An exception of the serializer becomes an error that names the event.

    Example::

        TypedSerializer(JavaSerializer(integers="Integer"), "int")

    :param serializer: an object with ``serialize`` and ``deserialize`` that can be pickled.
    :param type: the type: a Spark type, or its text.
    """

    serializer: Serializer[Any]
    type: T.DataType | str

    def __post_init__(self) -> None:
        for name in ("serialize", "deserialize"):
            if not callable(getattr(self.serializer, name, None)):
                raise ArgumentTypeError(
                    f"a serializer needs the method {name}, which {type(self.serializer).__name__} lacks"
                )


@dataclass(frozen=True, slots=True)
class ChangeRows:
    """Changes of a database's rows, in Debezium's JSON.

    The columns are ``kind`` (``INSERT``, ``UPDATE``, ``DELETE``, ``SNAPSHOT``, ``TRUNCATE``), ``key``
    (a struct, if a key is named), ``before`` and ``after`` (structs), ``source`` (its JSON) and ``at``.

    Example::

        ChangeRows({"id": "int64", "born": "date", "balance": "decimal(2)"}, key=["id"])

    :param columns: the types of the row's columns, as in
        :class:`~pravega_wire.schemas.debezium.DebeziumSerializer`, or such a serializer. A column of an
        event that is not among them is left out.
    :param key: names of the columns that identify a row.
    :raises InvalidArgumentError: a type does not exist.
    """

    columns: Mapping[str, str] | DebeziumSerializer
    key: Sequence[str] = field(default=())

    def __post_init__(self) -> None:
        if isinstance(self.key, str):
            raise InvalidArgumentError("key must be a list of column names, not a text")
        if not isinstance(self.key, Sequence) or not all(isinstance(each, str) for each in self.key):
            raise InvalidArgumentError(f"key must be a list of column names, not {shown(self.key)}")
        if not isinstance(self.columns, DebeziumSerializer):
            if not isinstance(self.columns, Mapping):
                raise InvalidArgumentError(
                    "columns must map the names of columns to their types, or be a DebeziumSerializer, not "
                    f"{shown(self.columns)}"
                )
            object.__setattr__(self, "columns", DebeziumSerializer(dict(self.columns)))


Source: TypeAlias = AvroSchema | JsonSchema | ProtobufSchema | RegistryGroup | TypedSerializer | ChangeRows
"""What says how events are read and written."""

Mode: TypeAlias = Literal["fail", "permissive"]
"""What happens with an event that cannot be read."""


def from_pravega(event: Column | str, source: Source, *, mode: Mode = "fail") -> Column:
    """Return the values of events as a column.

    The type of the column is fixed by this call: a schema of the registry is looked up now, in the driver. A
    record becomes a struct. Null is null.

    Each event is decoded once, also where a filter uses its fields. So a filter of other columns saves
    decoding only if it comes before this.

    Example::

        from pravega_wire.schemas import AvroSchema
        from spark_adapter.schemas import from_pravega

        rows = frame.select(from_pravega("event", AvroSchema(text)).alias("reading"))
        rows = rows.select("reading.*")

    :param event: the column of events (binary), or its name.
    :param source: how they are written: a schema for events without a header, a :class:`RegistryGroup`, a
        :class:`TypedSerializer` or :class:`ChangeRows`.
    :param mode: ``"fail"``: an event that cannot be read fails the task with an error that names the column,
        the group and the event's position in its batch. ``"permissive"``: it is null. A registry that does
        not answer fails the task in both modes.
    :raises InvalidArgumentError: an argument is wrong, or Spark has no type for the schema.
    :raises SchemaNotFoundError: the registry has no such group or schema.
    :raises SchemaIncompatibleError: by the group's policy, its events cannot be read with the schema.
    :raises SchemaRegistryError: the registry cannot be asked.
    :raises MissingExtraError: PySpark is older than 4.1.
    """
    needs_arrow_functions("from_pravega")
    if mode not in ("fail", "permissive"):
        raise InvalidArgumentError(f"mode must be 'fail' or 'permissive', not {mode!r}")
    plan = _plan(source, is_written=False)
    decode = Decode(plan, _name(event), mode == "permissive")

    def from_pravega(events: pa.Array) -> pa.Array:
        return decode(events)

    applied = F.arrow_udf(from_pravega, _spark_type(plan.open().shape.arrow))
    # Where a filter uses the result, Spark calls a deterministic function twice.
    return applied.asNondeterministic()(event)


def to_pravega(value: Column | str, source: Source) -> Column:
    """Return the events of values as a column (binary).

    Fields are found by their names. A field that the column lacks has the schema's default; one that the
    schema lacks is an error. Null is null.

    Example::

        from pyspark.sql.functions import struct
        from spark_adapter.schemas import RegistryGroup, to_pravega

        events = rows.select(to_pravega(struct("*"), RegistryGroup("readings", uri)).alias("event"))
        events.write.format("pravega").option("stream", "demo/readings").mode("append").save()

    :param value: the column, or its name. For records it is a struct.
    :param source: as in :func:`from_pravega`. Of a :class:`RegistryGroup`, the schema and codec are looked up
        or registered now, in the driver.
    :raises InvalidArgumentError: an argument is wrong, or Spark has no type for the schema.
    :raises SchemaNotFoundError: the registry has no such group or schema.
    :raises SchemaIncompatibleError: the group's policy does not permit the schema.
    :raises CodecNotRegisteredError: the group does not have the codec.
    :raises SchemaRegistryError: the registry cannot be asked.
    :raises MissingExtraError: PySpark is older than 4.1.
    """
    needs_arrow_functions("to_pravega")
    plan = _plan(source, is_written=True)
    encode = Encode(plan, _name(value))
    plan.open()

    def to_pravega(values: pa.Array) -> pa.Array:
        return encode(values)

    return F.arrow_udf(to_pravega, T.BinaryType())(value)


def _name(given: object) -> str:
    if isinstance(given, str):
        return given
    # Not by isinstance alone: a column of Spark Connect has another class in some versions.
    if isinstance(given, Column) or type(given).__name__ == "Column":
        return str(given).removeprefix("Column<'").removesuffix("'>")
    raise ArgumentTypeError(f"a column or its name is needed, not {type(given).__name__}")


def _check_schema(schema: object) -> None:
    if not isinstance(schema, AvroSchema | JsonSchema | ProtobufSchema):
        raise ArgumentTypeError(
            f"schema must be an AvroSchema, JsonSchema or ProtobufSchema, not {type(schema).__name__}"
        )


def _plan(source: object, *, is_written: bool) -> Plan:
    if isinstance(source, RegistryGroup):
        return _group_plan(source, is_written)
    if isinstance(source, TypedSerializer):
        return SerializerPlan(source.serializer, _arrow_type(source.type))
    if isinstance(source, ChangeRows):
        assert isinstance(source.columns, DebeziumSerializer)
        return ChangePlan(source.columns, tuple(source.key))
    if isinstance(source, AvroSchema | JsonSchema | ProtobufSchema):
        return SchemaPlan(source.info)
    if isinstance(source, DebeziumSerializer):
        raise ArgumentTypeError("a DebeziumSerializer needs ChangeRows(serializer, key=[...]) around it")
    if hasattr(source, "deserialize"):
        raise ArgumentTypeError(
            f"a {type(source).__name__} needs the Spark type of its values: TypedSerializer(serializer, "
            "'int'), for example"
        )
    raise ArgumentTypeError(
        "events are described by an AvroSchema, JsonSchema, ProtobufSchema, RegistryGroup, TypedSerializer "
        f"or ChangeRows, not {type(source).__name__}"
    )


def _group_plan(source: RegistryGroup, is_written: bool) -> GroupPlan:
    connection = Connection(
        PravegaConfig.from_defaults() if source.registry is None else source.registry,
        source.namespace,
        source.credentials,
        source.trust_store,
        source.validate_hostname,
        source.timeout,
    )
    group, header = source.group, b""
    with connection.open() as registry:
        if is_written:
            info, header = _written(registry, source)
        elif source.schema is None:
            info = _latest(registry, source).schema
        elif registry.can_read(group, source.schema):
            info = source.schema.info
        else:
            raise SchemaIncompatibleError(
                f"by the policy of group {group}, its events cannot be read with {source.schema!r}",
                group=group,
            )
        encodings: dict[int, EncodingInfo] = {}
        while not is_written and len(encodings) < _MOST_FETCHED:
            try:
                encodings[len(encodings)] = registry.encoding(group, len(encodings))
            except SchemaNotFoundError:
                break
    codec = codec_name(source.codec)
    return GroupPlan(group, info, connection, encodings, header, codec, source.max_decoded_bytes)


def _written(registry: SchemaRegistry, source: RegistryGroup) -> tuple[SchemaInfo, bytes]:
    """Return the schema to write, and the header of its events."""
    if source.schema is None:
        latest = _latest(registry, source)
        schema = _event_schema(latest.schema)
        info, version = latest.schema, latest.version
    else:
        schema, info, version = source.schema, source.schema.info, None
    # It creates and registers what it is allowed to.
    if version is None or source.register_codec:
        registry.serializer(
            source.group,
            schema,
            codec=source.codec,
            register_schema=source.register_schema,
            register_codec=source.register_codec,
            create_group=source.create_group,
        )
    if version is None:
        version = registry.version_of(source.group, schema)
    return info, header_of(registry.encoding_id(source.group, version, source.codec))


def _event_schema(info: SchemaInfo) -> EventSchema:
    if info.format is SerializationFormat.AVRO:
        return AvroSchema(info.data.decode())
    if info.format is SerializationFormat.JSON:
        return JsonSchema(info.type, info.data.decode())
    return ProtobufSchema.from_files(info.type, info.data)


def _latest(registry: SchemaRegistry, source: RegistryGroup) -> RegisteredSchema:
    """Return the last schema of a group.

    :raises InvalidArgumentError: it has several types, or its format is not known here.
    """
    if source.type is None:
        found = registry.latest_schemas(source.group)
        if len(found) > 1:
            names = ", ".join(sorted(each.schema.type for each in found))
            raise InvalidArgumentError(
                f"group {source.group} has schemas of several types ({names}), but a column has one: name it "
                "with RegistryGroup(type=)"
            )
    latest = registry.latest_schema(source.group, source.type)
    known = (SerializationFormat.AVRO, SerializationFormat.JSON, SerializationFormat.PROTOBUF)
    if latest.schema.format not in known:
        raise InvalidArgumentError(
            f"group {source.group}: the schema {latest.schema.type} has the format {latest.schema.format}; "
            f"columns are made of {', '.join(known)}"
        )
    return latest


# --- Spark's types --------------------------------------------------------------------------------

_ARROW = {
    T.BooleanType: pa.bool_(),
    T.ByteType: pa.int8(),
    T.ShortType: pa.int16(),
    T.IntegerType: pa.int32(),
    T.LongType: pa.int64(),
    T.FloatType: pa.float32(),
    T.DoubleType: pa.float64(),
    T.StringType: pa.string(),
    T.BinaryType: pa.binary(),
    T.DateType: pa.date32(),
    T.TimestampType: pa.timestamp("us", tz="UTC"),
    T.TimestampNTZType: pa.timestamp("us"),
    T.DayTimeIntervalType: pa.duration("us"),
}


def _spark_type(arrow: pa.DataType) -> T.DataType:
    if pa.types.is_struct(arrow):
        inner = [arrow.field(index) for index in range(arrow.num_fields)]
        return T.StructType([T.StructField(each.name, _spark_type(each.type)) for each in inner])
    if pa.types.is_map(arrow):
        return T.MapType(_spark_type(arrow.key_type), _spark_type(arrow.item_type))
    if pa.types.is_list(arrow):
        return T.ArrayType(_spark_type(arrow.value_type))
    if pa.types.is_decimal(arrow):
        return T.DecimalType(arrow.precision, arrow.scale)
    return next(spark() for spark, known in _ARROW.items() if known == arrow)


def _arrow_type(given: T.DataType | str) -> pa.DataType:
    """Return the Arrow type of a Spark type or its text.

    :raises InvalidArgumentError: there is no such type, or it is not supported.
    """
    if isinstance(given, str):
        try:
            given = T.DataType.fromDDL(given)
        except Exception as error:  # of Spark's parser
            raise InvalidArgumentError(f"type {given!r} is not a Spark type: {error}") from error
    if isinstance(given, T.StructType):
        return pa.struct([pa.field(each.name, _arrow_type(each.dataType)) for each in given.fields])
    if isinstance(given, T.MapType):
        return pa.map_(
            pa.field("key", _arrow_type(given.keyType), nullable=False),
            pa.field("value", _arrow_type(given.valueType)),
        )
    if isinstance(given, T.ArrayType):
        return pa.list_(pa.field("element", _arrow_type(given.elementType)))
    if isinstance(given, T.DecimalType):
        return pa.decimal128(given.precision, given.scale)
    found = _ARROW.get(type(given))
    if found is None:
        raise InvalidArgumentError(f"values of the type {given} are not supported in events")
    return found
