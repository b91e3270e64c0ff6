"""Change data: events of Debezium's JSON, as rows with typed columns and the kind of change.

Debezium reads the changes of databases and writes each as a JSON object: the row before and after the change,
the operation, the source and the time, with or without a description of the columns (``schema`` and
``payload`` of Kafka Connect's JSON converter). Without it, columns have the types that JSON has, or those
that the program names.

Example::

    from pravega_wire.schemas.debezium import ChangeKind, DebeziumSerializer

    changes = DebeziumSerializer({"id": "int64", "born": "date", "balance": "decimal(2)"})
    async with client.reader_group("accounts") as group, group.reader("one", changes) as reader:
        async for event in reader:
            if event.value.kind is ChangeKind.DELETE:
                print("gone:", event.value.before["id"])
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from functools import cache
from typing import Any, Final
from uuid import UUID

from pravega_wire.errors import ArgumentTypeError, DecodeError, EncodeError, InvalidArgumentError
from pravega_wire.support.checks import check_buffer, check_several, check_type, refuse_constant, shown

__all__ = ["Change", "ChangeKind", "DebeziumSerializer", "LatestRows", "RowSerializer", "latest_rows"]

Row = Mapping[str, Any]

_EPOCH: Final = datetime(1970, 1, 1)
_MIDNIGHT: Final = datetime(1970, 1, 1)
_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_DECIMAL_TYPE: Final = re.compile(r"decimal\((-?\d{1,4})\)")
_MOST_DIGITS: Final = 5000
_NOT_FINITE: Final = ("NaN", "Infinity", "-Infinity")


class ChangeKind(StrEnum):
    """The kind of a change; the values are Debezium's operations."""

    INSERT = "c"
    UPDATE = "u"
    DELETE = "d"
    SNAPSHOT = "r"
    """A row that was there before changes were recorded."""
    TRUNCATE = "t"
    """All rows of the table were removed."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a row.

    :ivar kind: the kind.
    :ivar before: the row before it, or None.
    :ivar after: the row after it, or None.
    :ivar source: where it comes from, as Debezium describes it: database, table, position and so on.
    :ivar at: when Debezium processed it (UTC), or None.
    :ivar types: types of the columns, by name, if the event has them.
    """

    kind: ChangeKind
    before: Row | None = None
    after: Row | None = None
    source: Mapping[str, Any] = field(default_factory=dict)
    at: datetime | None = None
    types: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def row(self) -> Row | None:
        """The row that the change is about: before a deletion, after anything else."""
        return self.before if self.kind is ChangeKind.DELETE else self.after


# --- types of columns ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Type:
    """How a column's values are written, and its description in a schema."""

    connect: str
    logical: str
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


def _whole(bits: int) -> Callable[[Any], int]:
    highest = 2 ** (bits - 1)

    def check(value: Any) -> int:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if not is_whole or not -highest <= value < highest:
            raise ValueError(f"it is not a whole number of {bits} bits")
        found: int = value
        return found

    return check


def _read_number(value: Any) -> float:
    if isinstance(value, Decimal):
        raise OverflowError(f"it is {value}, which is too large for a float")
    # Kafka's JSON converter writes what JSON has no number for as a text.
    return float(value) if isinstance(value, str) and value in _NOT_FINITE else _number(value)


def _write_number(value: Any) -> float | str:
    found = _number(value)
    if math.isfinite(found):
        return found
    return "NaN" if math.isnan(found) else "Infinity" if found > 0 else "-Infinity"


def _number(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError("it is not a number")
    return float(value)


def _kind(wanted: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if type(value) is not wanted:
            raise TypeError(f"it is not a {wanted.__name__}")
        return value

    return check


_long: Final = _whole(64)


def _read_bytes(value: Any) -> bytes:
    return base64.b64decode(_kind(str)(value), validate=True)


def _write_bytes(value: Any) -> str:
    return base64.b64encode(value).decode("ascii")


def _moment(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _micros(moment: Any) -> int:
    if not isinstance(moment, datetime) or moment.tzinfo is not None:
        raise TypeError("it is not a datetime without a time zone")
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _time_of(micros: int) -> time:
    if not 0 <= micros < 86_400_000_000:
        raise ValueError("it is not a time of a day")
    return (_MIDNIGHT + timedelta(microseconds=micros)).time()


def _day_micros(value: Any) -> int:
    if not isinstance(value, time) or value.tzinfo is not None:
        raise TypeError("it is not a time without a time zone")
    return (datetime.combine(_MIDNIGHT.date(), value) - _MIDNIGHT) // timedelta(microseconds=1)


def _exact(micros: int) -> int:
    if micros % 1000:
        raise ValueError("it has microseconds, but the column has milliseconds")
    return micros // 1000


def _write_date(value: Any) -> int:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise TypeError("it is not a date")
    return (value - _EPOCH.date()).days


def _read_zoned(value: Any) -> datetime:
    found = datetime.fromisoformat(_kind(str)(value))
    if found.tzinfo is None:
        raise ValueError("it has no time zone")
    return found


def _write_zoned(value: Any) -> str:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise TypeError("it is not a datetime with a time zone")
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _write_uuid(value: Any) -> str:
    return str(_kind(UUID)(value))


def _unscaled(given: Decimal, scale: int) -> int:
    """Return a number times 10 to the power of the scale.

    :raises ValueError: it is not finite, has too many digits, or more after the point than the scale.
    """
    sign, digits, exponent = given.as_tuple()
    if not isinstance(exponent, int) or len(digits) + abs(exponent) > _MOST_DIGITS:
        raise ValueError("it is not a finite number, or has too many digits")
    shift = exponent + scale
    whole = int("".join(map(str, digits)))
    if shift < 0 and whole % 10**-shift:
        raise ValueError(f"it has more than {scale} digits after the point")
    found: int = whole * 10**shift if shift >= 0 else whole // 10**-shift
    return -found if sign else found


def _decimal(scale: int) -> _Type:
    def read(value: Any) -> Decimal:
        if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
            # Of a converter that was set to decimal.format=NUMERIC.
            unscaled = _unscaled(Decimal(str(value)) if isinstance(value, float) else Decimal(value), scale)
        else:
            data = _read_bytes(value)
            if not 0 < len(data) < _MOST_DIGITS // 3:
                raise ValueError(f"its number has {len(data)} bytes")
            unscaled = int.from_bytes(data, "big", signed=True)
        digits = Decimal(unscaled).as_tuple()
        return Decimal((digits.sign, digits.digits, -scale))

    def write(value: Any) -> str:
        given = value if isinstance(value, Decimal) else Decimal(_kind(int)(value))
        unscaled = _unscaled(given, scale)
        size = unscaled.bit_length() // 8 + 1
        if unscaled < 0:
            size = (-unscaled - 1).bit_length() // 8 + 1
        return _write_bytes(unscaled.to_bytes(size, "big", signed=True))

    return _Type("bytes", _DECIMAL, read, write)


_TYPES: Final[Mapping[str, _Type]] = {
    "int8": _Type("int8", "", _whole(8), _whole(8)),
    "int16": _Type("int16", "", _whole(16), _whole(16)),
    "int32": _Type("int32", "", _whole(32), _whole(32)),
    "int64": _Type("int64", "", _long, _long),
    "float": _Type("float", "", _read_number, _write_number),
    "double": _Type("double", "", _read_number, _write_number),
    "boolean": _Type("boolean", "", _kind(bool), _kind(bool)),
    "string": _Type("string", "", _kind(str), _kind(str)),
    "bytes": _Type("bytes", "", _read_bytes, _write_bytes),
    "date": _Type(
        "int32",
        "io.debezium.time.Date",
        lambda value: _EPOCH.date() + timedelta(days=_whole(32)(value)),
        _write_date,
    ),
    "time_millis": _Type(
        "int32",
        "io.debezium.time.Time",
        lambda value: _time_of(_whole(32)(value) * 1000),
        lambda value: _exact(_day_micros(value)),
    ),
    "time_micros": _Type(
        "int64", "io.debezium.time.MicroTime", lambda value: _time_of(_long(value)), _day_micros
    ),
    "timestamp_millis": _Type(
        "int64",
        "io.debezium.time.Timestamp",
        lambda value: _moment(_long(value) * 1000),
        lambda value: _exact(_micros(value)),
    ),
    "timestamp_micros": _Type(
        "int64", "io.debezium.time.MicroTimestamp", lambda value: _moment(_long(value)), _micros
    ),
    "zoned_timestamp": _Type("string", "io.debezium.time.ZonedTimestamp", _read_zoned, _write_zoned),
    "uuid": _Type("string", "io.debezium.data.Uuid", lambda value: UUID(_kind(str)(value)), _write_uuid),
}

_BY_LOGICAL: Final[Mapping[str, str]] = {
    each.logical: name for name, each in _TYPES.items() if each.logical
} | {
    "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Time": "time_millis",
    "org.apache.kafka.connect.data.Timestamp": "timestamp_millis",
}
_OF_VALUES: Final = (
    (bool, "boolean"),
    (int, "int64"),
    (float, "double"),
    (str, "string"),
    (bytes, "bytes"),
    (datetime, "timestamp_micros"),
    (date, "date"),
    (time, "time_micros"),
    (UUID, "uuid"),
)
_JSON: Final = _Type("", "", _same, _same)


def _type(name: str) -> _Type:
    """Return a type by its name.

    :raises InvalidArgumentError: there is no such type.
    """
    decimal = None
    if isinstance(name, str):
        found = _TYPES.get(name)
        if found is not None:
            return found
        decimal = _DECIMAL_TYPE.fullmatch(name)
    if decimal is None:
        raise InvalidArgumentError(
            f"the type of a column is {name!r}, which is not one of {', '.join(_TYPES)}, decimal(N)"
        )
    return _decimal(int(decimal[1]))


def _check_columns(columns: object) -> None:
    """Check the types of columns that a program names.

    :raises InvalidArgumentError: they are not a mapping, or there is no such type.
    """
    if not isinstance(columns, Mapping):
        raise ArgumentTypeError(
            f"columns must be a mapping of names to types of columns, not {type(columns).__name__}"
        )
    for name, each in columns.items():
        check_type("the name of a column", name, str)
        _type(each)


def _type_of_value(value: object) -> str | None:
    """Return the name of the type of a Python value; None for what is written as JSON."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return "zoned_timestamp"
    if isinstance(value, Decimal):
        exponent = value.as_tuple().exponent
        return f"decimal({-exponent})" if isinstance(exponent, int) else None
    return next((name for kind, name in _OF_VALUES if isinstance(value, kind)), None)


def _type_of_field(described: Mapping[str, Any]) -> str | None:
    """Return the name of the type that a schema describes; None for what is left as JSON has it."""
    logical = described.get("name")
    if isinstance(logical, str):
        if logical == _DECIMAL:
            parameters = described.get("parameters")
            scale = parameters.get("scale") if isinstance(parameters, dict) else None
            name = f"decimal({scale})"
            return name if _DECIMAL_TYPE.fullmatch(name) else None
        # A name that is not known says more about values of a known type, such as JSON in a string.
        if logical in _BY_LOGICAL:
            return _BY_LOGICAL[logical]
    kind = described.get("type")
    return kind if isinstance(kind, str) and kind in _TYPES else None


def _check_mapping(name: str, value: object) -> None:
    if not isinstance(value, Mapping):
        raise EncodeError(f"{name} must be a mapping, not {type(value).__name__}")


def _read_row(row: Mapping[str, Any], types: Mapping[str, str]) -> dict[str, Any]:
    found = {}
    for name, value in row.items():
        known = types.get(name)
        try:
            found[name] = value if value is None or known is None else _type(known).read(value)
        except (TypeError, ValueError, OverflowError, binascii.Error, InvalidOperation) as error:
            raise DecodeError(
                f"column {name!r} has the type {known}, but its value is wrong: {error}"
            ) from error
    return found


def _write_row(row: Mapping[str, Any], types: Mapping[str, str]) -> dict[str, Any]:
    found = {}
    for name, value in row.items():
        known = types.get(name) or _type_of_value(value)
        try:
            found[name] = value if value is None or known is None else _type(known).write(value)
        except (TypeError, ValueError, OverflowError, InvalidOperation) as error:
            raise EncodeError(
                f"column {name!r} has the type {known}, but its value is wrong: {error}"
            ) from error
    return found


def _json(value: object) -> bytes:
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise EncodeError(f"the value cannot be written as JSON: {error}") from error


def _exact_decimals(row: Mapping[str, Any], types: Mapping[str, str], exact: Callable[[], Row]) -> Row:
    """Replace the numbers of decimal columns, which a float has rounded.

    :param exact: returns the row with its numbers as Decimal.
    """
    rounded = [
        name
        for name, value in row.items()
        if isinstance(value, float) and _DECIMAL_TYPE.fullmatch(types.get(name, ""))
    ]
    if not rounded:
        return row
    found = exact()
    return {**row, **{name: found[name] for name in rounded}}


def _exact_number(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"the number {text[:40]} has an exponent that no decimal has") from error


def _float_or_exact(text: str) -> float | Decimal:
    found = float(text)
    return _exact_number(text) if math.isinf(found) else found


_NUMBERS: Final = json.JSONDecoder(parse_float=_float_or_exact, parse_constant=refuse_constant)
_EXACT_NUMBERS: Final = json.JSONDecoder(parse_float=_exact_number, parse_constant=refuse_constant)


def _object(payload: bytes, *, exact: bool = False) -> dict[str, Any]:
    try:
        found = (_EXACT_NUMBERS if exact else _NUMBERS).decode(payload.decode())
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"the event is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise DecodeError("the event is not a JSON object")
    return found


def _parts(found: dict[str, Any]) -> tuple[Any, Any]:
    """Return the description of an event's columns, empty if it has none, and its change."""
    if found.keys() == {"schema", "payload"}:
        return found["schema"] or {}, found["payload"]
    return {}, found


# --- serializers --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DebeziumSerializer:
    """Reads and writes Debezium's JSON, with or without the description of columns.

    The types of columns are ``int8`` to ``int64``, ``float``, ``double``, ``boolean``, ``string``, ``bytes``,
    ``date``, ``time_millis``, ``time_micros``, ``timestamp_millis``, ``timestamp_micros`` (datetimes without
    a time zone), ``zoned_timestamp``, ``uuid``, and ``decimal(N)`` with N digits after the point. Columns of
    other types are what JSON makes of them.

    Example::

        changes = DebeziumSerializer({"born": "date"})
        change = Change(ChangeKind.INSERT, after={"id": 7, "born": date(1990, 5, 17)})
        assert changes.deserialize(changes.serialize(change)) == change

    :param columns: types of columns by name. They take precedence over those in events.
    :param with_schema: whether events are written with the description of the columns.
    :param name: name of the table in that description.
    :param only_named: whether reading leaves out the columns that ``columns`` does not name, whatever is in
        them.
    :raises InvalidArgumentError: a type does not exist.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    with_schema: bool = False
    name: str = "table"
    only_named: bool = False

    def __post_init__(self) -> None:
        _check_columns(self.columns)

    def deserialize(self, payload: bytes) -> Change:
        """Return the change of an event.

        :raises DecodeError: the event is not a change in Debezium's JSON, or a column's value does not have
            the column's type.
        """
        payload = check_buffer(payload)
        described, found = _parts(_object(payload))
        if not isinstance(described, dict):
            raise DecodeError("the event's schema is not a JSON object")
        if not isinstance(found, dict):
            raise DecodeError("the event has no change in its payload: it may mark a deleted key")
        operation: Any = found.get("op")
        try:
            kind = ChangeKind(operation)
        except ValueError:
            raise DecodeError(
                f"the event has the operation {operation!r}, not one of c, u, d, r, t"
            ) from None
        types = {**_types_in(described), **self.columns}
        exact = cache(lambda: _parts(_object(payload, exact=True))[1])
        rows = [self._row(found, name, types, exact) for name in ("before", "after")]
        source, at = found.get("source") or {}, found.get("ts_ms")
        if not isinstance(source, dict):
            raise DecodeError("the event's source is not a JSON object")
        if kind is not ChangeKind.TRUNCATE and rows[0 if kind is ChangeKind.DELETE else 1] is None:
            raise DecodeError(f"the event has the operation {kind.value!r}, but not its row")
        return Change(kind, rows[0], rows[1], source, None if at is None else _at(at), types)

    def _row(
        self,
        found: Mapping[str, Any],
        name: str,
        types: Mapping[str, str],
        exact: Callable[[], Mapping[str, Row]],
    ) -> dict[str, Any] | None:
        row = found.get(name)
        if row is None:
            return None
        if not isinstance(row, dict):
            raise DecodeError(f"the event's row {name!r} is not a JSON object")
        if self.only_named:
            row = {each: value for each, value in row.items() if each in self.columns}
        return _read_row(_exact_decimals(row, types, lambda: exact()[name]), types)

    def serialize(self, value: Change) -> bytes:
        """Return the event for a change.

        :raises EncodeError: the value is not a change, or a column's value does not have the column's type.
        """
        if not isinstance(value, Change):
            raise EncodeError(f"the value is a {type(value).__name__}, not a Change")
        try:
            kind = ChangeKind(value.kind)
        except ValueError as error:
            raise EncodeError(f"the kind of a change must be a ChangeKind, not {value.kind!r}") from error
        for name, row in (("before", value.before), ("after", value.after)):
            if row is not None:
                _check_mapping(f"the row {name!r} of a change", row)
        if kind is not ChangeKind.TRUNCATE:
            needed = "before" if kind is ChangeKind.DELETE else "after"
            if getattr(value, needed) is None:
                raise EncodeError(f"a change of the kind {kind.name} needs its row {needed!r}")
        _check_mapping("the source of a change", value.source)
        _check_mapping("the types of a change", value.types)
        types = {**value.types, **self.columns}
        if self.with_schema:
            types = _common_types(value, types)
        payload: dict[str, Any] = {
            "before": None if value.before is None else _write_row(value.before, types),
            "after": None if value.after is None else _write_row(value.after, types),
            "source": dict(value.source),
            "op": str(kind),
            "ts_ms": None if value.at is None else _millis(value.at),
        }
        if self.with_schema:
            payload = {"schema": self._schema(value, types), "payload": payload}
        return _json(payload)

    def _schema(self, change: Change, types: Mapping[str, str]) -> dict[str, Any]:
        columns = dict.fromkeys([*(change.before or ()), *(change.after or ())])
        fields = [_described(name, types.get(name, "string")) for name in columns]
        rows = [
            {
                "type": "struct",
                "fields": fields,
                "optional": True,
                "name": f"{self.name}.Value",
                "field": field,
            }
            for field in ("before", "after")
        ]
        source = [
            _described(each, known)
            for each, value in change.source.items()
            if (known := "string" if value is None else _type_of_value(value)) is not None
        ]
        rest = [
            {"type": "struct", "fields": source, "optional": True, "field": "source"},
            {"type": "string", "optional": False, "field": "op"},
            {"type": "int64", "optional": True, "field": "ts_ms"},
        ]
        return {
            "type": "struct",
            "fields": [*rows, *rest],
            "optional": False,
            "name": f"{self.name}.Envelope",
        }


def _common_types(change: Change, types: Mapping[str, str]) -> dict[str, str]:
    """Return the types of all columns that have a value: those that are known, or that suit both rows."""
    found: dict[str, str] = {}
    for row in (change.before, change.after):
        for name, value in (row or {}).items():
            if name in types or value is None:
                continue
            kind = _type_of_value(value)
            if kind is None:
                raise EncodeError(f"column {name!r} has no type: name one in DebeziumSerializer(columns=)")
            found[name] = _common(name, found.get(name, kind), kind)
    return {**types, **found}


def _common(name: str, one: str, other: str) -> str:
    """Return a type for the values of two types."""
    if one == other:
        return one
    decimals = [_DECIMAL_TYPE.fullmatch(each) for each in (one, other)]
    if decimals[0] and decimals[1]:
        return f"decimal({max(int(each[1]) for each in decimals if each)})"
    if {one, other} == {"int64", "double"}:
        return "double"
    raise EncodeError(
        f"column {name!r} has values of the types {one} and {other}: name one type in "
        "DebeziumSerializer(columns=)"
    )


def _described(name: str, known: str) -> dict[str, Any]:
    kind = _type(known)
    found: dict[str, Any] = {"type": kind.connect, "optional": True}
    if kind.logical:
        found |= {"name": kind.logical, "version": 1}
    decimal = _DECIMAL_TYPE.fullmatch(known)
    if decimal is not None:
        found["parameters"] = {"scale": decimal[1]}
    return found | {"field": name}


def _types_in(described: Mapping[str, Any]) -> dict[str, str]:
    """Return the types of the columns that an event's schema describes."""
    found: dict[str, str] = {}
    for row in _fields(described):
        if row.get("field") in ("before", "after"):
            for column in _fields(row):
                name, known = column.get("field"), _type_of_field(column)
                if isinstance(name, str) and known is not None:
                    found[name] = known
    return found


def _fields(described: Mapping[str, Any]) -> list[dict[str, Any]]:
    fields = described.get("fields")
    return [each for each in fields if isinstance(each, dict)] if isinstance(fields, list) else []


def _millis(moment: object) -> int:
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise EncodeError("the time of a change must be a datetime with a time zone")
    return (moment - _EPOCH.replace(tzinfo=UTC)) // timedelta(milliseconds=1)


def _at(millis: object) -> datetime:
    try:
        return _moment(_long(millis) * 1000).replace(tzinfo=UTC)
    except (TypeError, ValueError, OverflowError) as error:
        raise DecodeError(f"the event's ts_ms is not a time: {error}") from error


@dataclass(frozen=True, slots=True)
class RowSerializer:
    """Writes a row as a JSON object, with its columns as in Debezium's events.

    It suits the values of a key-value table that holds the latest rows.

    :param columns: types of columns by name, as in :class:`DebeziumSerializer`.
    :raises InvalidArgumentError: a type does not exist.
    """

    columns: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_columns(self.columns)

    def serialize(self, value: Row) -> bytes:
        """Return the JSON of a row.

        :raises EncodeError: a column's value does not have the column's type.
        """
        _check_mapping("a row", value)
        return _json(_write_row(value, self.columns))

    def deserialize(self, payload: bytes) -> dict[str, Any]:
        """Return a row.

        :raises DecodeError: the payload is not the JSON of a row.
        """
        row = _exact_decimals(_object(payload), self.columns, lambda: _object(payload, exact=True))
        return _read_row(row, self.columns)


# --- the latest rows ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LatestRows:
    """What changes leave behind.

    :ivar truncated: True if all rows from before these changes are gone.
    :ivar rows: the latest row of each key; None for a key whose row was deleted.
    """

    truncated: bool
    rows: Mapping[tuple[Any, ...], Row | None]


def latest_rows(changes: Iterable[Change], key: Sequence[str]) -> LatestRows:
    """Return the latest row of each key, in the order of the last changes.

    A change of a row's key removes the row of the old key.

    Example::

        latest = latest_rows(changes, ["id"])
        await table.put_many((id, row) for (id,), row in latest.rows.items() if row is not None)
        await table.remove_many(id for (id,), row in latest.rows.items() if row is None)

    :param changes: the changes of one table, in order.
    :param key: names of the columns that identify a row.
    :raises InvalidArgumentError: ``key`` is empty or not a list of names, or a change is not a
        :class:`Change`.
    :raises DecodeError: a change lacks a column of the key, or has an object or a list in it.
    """
    if isinstance(key, str) or not isinstance(key, Sequence) or not key:
        raise InvalidArgumentError("key must be a list of at least one column name")
    if not all(isinstance(each, str) for each in key):
        raise InvalidArgumentError(f"key must be a list of column names, not {shown(key)}")
    check_several("changes", changes)
    truncated = False
    rows: dict[tuple[Any, ...], Row | None] = {}

    def put(row: Row, value: Row | None) -> None:
        try:
            found = tuple(row[name] for name in key)
        except KeyError as error:
            raise DecodeError(f"a change lacks the column {error} of its key") from error
        try:
            rows.pop(found, None)
            rows[found] = value
        except TypeError as error:
            raise DecodeError(
                f"the key {found!r} of a change cannot be compared ({error}): name the types of its columns"
            ) from error

    for change in changes:
        if not isinstance(change, Change):
            raise ArgumentTypeError(f"changes must be of the class Change, not {type(change).__name__}")
        if change.kind is ChangeKind.TRUNCATE:
            truncated = True
            rows.clear()
            continue
        if change.before is not None and all(name in change.before for name in key):
            put(change.before, None)
        elif change.kind is ChangeKind.DELETE:
            put(change.before or {}, None)
        if change.kind is not ChangeKind.DELETE and change.after is not None:
            put(change.after, change.after)
    return LatestRows(truncated, rows)
