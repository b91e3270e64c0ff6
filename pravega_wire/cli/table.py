"""The command ``table``: read and change key-value tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pravega_wire.cli.common import AbsentError, standard_input
from pravega_wire.cli.frame import TABLE, Session, WireGroup, confirm, passed, yes_option
from pravega_wire.cli.output import Column
from pravega_wire.cli.work import tables
from pravega_wire.controller.types import KeyValueTableConfiguration
from pravega_wire.errors import InvalidArgumentError, NotFoundError, TableKeyBadVersionError
from pravega_wire.values.positions import KeyValueVersion

if TYPE_CHECKING:
    from pravega_wire.stream.client import PravegaClient

__all__ = ["COMMAND"]

F = TypeVar("F", bound=Callable[..., Any])

_keys = click.option(
    "--keys",
    type=click.Choice(tables.FORMATS),
    default="text",
    show_default=True,
    help="how keys are written; shorter text is filled with zero bytes, int is a whole number "
    "from 0 on, big-endian",
)
_values = click.option(
    "--values",
    type=click.Choice(tables.FORMATS),
    default="text",
    show_default=True,
    help="how values are written; int is a whole number from 0 on, in 8 bytes, big-endian",
)
_secondary = click.option("--secondary", metavar="KEY", help="the secondary key, if the table has them")


@click.group(
    cls=WireGroup,
    help="Read and change key-value tables. TABLE is SCOPE/TABLE, or a name in the default scope. All keys "
    "of a table have the same number of bytes.",
)
def COMMAND() -> None:
    pass


@COMMAND.command(
    "create",
    help="Create a key-value table. Its partitions and key lengths cannot be changed later.",
    examples=("pravega-wire table create demo/limits --key-length 16 --partitions 4",),
)
@click.argument("name", metavar="TABLE", type=TABLE)
@click.option("--key-length", type=int, required=True, metavar="N", help="bytes of each primary key")
@click.option("--secondary-key-length", type=int, default=0, metavar="N", help="bytes of each secondary key")
@click.option(
    "--partitions", type=int, default=1, show_default=True, metavar="N", help="number of partitions"
)
@passed
def create(session: Session, name: str, key_length: int, secondary_key_length: int, partitions: int) -> None:
    configuration = KeyValueTableConfiguration(partitions, key_length, secondary_key_length)
    new = session.call(lambda client: client.create_key_value_table(name, configuration))
    table = str(session.resolved.config.resolve(name))
    state = "was created" if new else "exists already"
    session.out.did(f"table {table} {state}", {"table": table, "created": new})


@COMMAND.command(
    "list",
    help="List the key-value tables of a scope.",
    examples=("pravega-wire table list demo",),
)
@click.argument("scope_name", metavar="[SCOPE]", required=False)
@passed
def list_(session: Session, scope_name: str | None) -> None:

    async def work(client: PravegaClient) -> list[dict[str, Any]]:
        rows = []
        for each in sorted(await client.list_key_value_tables(scope_name)):
            try:
                configuration = await client.key_value_table_config(each)
                table = await client.key_value_table(each)
                entries = await table.estimated_size()
            except NotFoundError:
                # It was deleted since it was listed.
                continue
            rows.append(
                {
                    "table": str(each),
                    "partitions": configuration.partition_count,
                    "key_length": configuration.primary_key_length,
                    "secondary_key_length": configuration.secondary_key_length,
                    "entries": entries,
                }
            )
        return rows

    session.out.rows(
        session.call(work),
        [
            Column("table", "TABLE"),
            Column("partitions", "PARTITIONS", "number"),
            Column("key_length", "KEY BYTES", "number"),
            Column("secondary_key_length", "SECONDARY", "number"),
            Column("entries", "ENTRIES, ABOUT", "number"),
        ],
    )


@COMMAND.command(
    "delete",
    help="Delete key-value tables and their entries.",
    examples=("pravega-wire table delete demo/limits --yes",),
)
@click.argument("names", metavar="TABLE...", type=TABLE, nargs=-1, required=True)
@yes_option
@passed
def delete(session: Session, names: tuple[str, ...], yes: bool) -> None:
    confirm(f"Delete table {', '.join(names)} and its entries?", yes=yes)

    async def work(client: PravegaClient) -> None:
        for each in names:
            table = client.config.resolve(each)
            if not await client.delete_key_value_table(table):
                raise AbsentError(f"table {table} does not exist")
            session.out.did(f"table {table} was deleted", {"table": str(table), "deleted": True})

    session.call(work)


@COMMAND.command(
    "get",
    help="Print the value of a key; with --json also its version. The exit code is 5 if there is no such "
    "key.",
    examples=("pravega-wire table get demo/limits sensor-7",),
)
@click.argument("name", metavar="TABLE", type=TABLE)
@click.argument("key", metavar="KEY")
@_secondary
@_keys
@_values
@passed
def get(session: Session, name: str, key: str, secondary: str | None, keys: str, values: str) -> None:

    async def work(client: PravegaClient) -> dict[str, Any]:
        table = await client.key_value_table(name)
        primary, second = tables.key_of(table.config, key, secondary, keys)
        entry = await table.get((primary, second) if second else primary)
        if entry is None:
            raise AbsentError(f"table {table.name} has no key {key!r}")
        return tables.entry_record(entry, keys, values)

    found = session.call(work)
    session.out.did(found["value"], found)


@COMMAND.command(
    "put",
    help="Set the value of a key. VALUE - is standard input, byte for byte. With --version it is set only "
    "if the entry has that version, with --new only if there is no such key.",
    examples=(
        "pravega-wire table put demo/limits sensor-7 20..30",
        "pravega-wire table put demo/limits sensor-8 - < limits.json",
    ),
)
@click.argument("name", metavar="TABLE", type=TABLE)
@click.argument("key", metavar="KEY")
@click.argument("value", metavar="VALUE")
@_secondary
@click.option("--version", metavar="VERSION", help="the version that the entry must have (from: get --json)")
@click.option("--new", is_flag=True, help="there must be no such key")
@_keys
@_values
@passed
def put(
    session: Session,
    name: str,
    key: str,
    value: str,
    secondary: str | None,
    version: str | None,
    new: bool,
    keys: str,
    values: str,
) -> None:
    if new and version is not None:
        raise InvalidArgumentError("--new is for a key that does not exist, --version for one that does")
    if value == "-" and values != "text":
        raise InvalidArgumentError(f"--values {values} does not go with VALUE -, which is byte for byte")
    data = standard_input().buffer.read() if value == "-" else tables.encode(value, values)
    wanted = None if version is None else KeyValueVersion.from_text(version)

    async def work(client: PravegaClient) -> KeyValueVersion:
        table = await client.key_value_table(name)
        primary, second = tables.key_of(table.config, key, secondary, keys)
        whole = (primary, second) if second else primary
        try:
            return await (table.insert(whole, data) if new else table.put(whole, data, wanted))
        except TableKeyBadVersionError as error:
            state = "exists already" if new else "has another version"
            raise TableKeyBadVersionError(f"key {key!r} of table {table.name} {state}") from error

    stored = session.call(work)
    session.out.did(f"{key} is set", {"key": key, "version": stored.to_text()})


@COMMAND.command(
    "remove",
    help="Remove keys. A key that does not exist is not an error.",
    examples=("pravega-wire table remove demo/limits sensor-7",),
)
@click.argument("name", metavar="TABLE", type=TABLE)
@click.argument("names", metavar="KEY...", nargs=-1, required=True)
@_secondary
@_keys
@passed
def remove(session: Session, name: str, names: tuple[str, ...], secondary: str | None, keys: str) -> None:

    async def work(client: PravegaClient) -> None:
        table = await client.key_value_table(name)
        for each in names:
            primary, second = tables.key_of(table.config, each, secondary, keys)
            removed = await tables.remove(table, (primary, second) if second else primary)
            state = "was removed" if removed else "does not exist"
            session.out.did(f"{each} {state}", {"key": each, "removed": removed})

    session.call(work)


@COMMAND.command(
    "scan",
    help="Print the entries of a table, in the order of the bytes of their keys.",
    examples=("pravega-wire table scan demo/limits", "pravega-wire table scan demo/limits --json --limit 10"),
)
@click.argument("name", metavar="TABLE", type=TABLE)
@click.option("--limit", "-n", type=int, metavar="N", help="end after N entries")
@_keys
@_values
@passed
def scan(session: Session, name: str, limit: int | None, keys: str, values: str) -> None:
    if limit is not None and limit < 1:
        raise InvalidArgumentError(f"--limit must be positive, not {limit}")

    async def work(client: PravegaClient) -> None:
        table = await client.key_value_table(name)
        count = 0
        async for entry in table.entries():
            if limit is not None and count >= limit:
                return
            record = tables.entry_record(entry, keys, values)
            shown = "\t".join(str(record[each]) for each in ("key", "secondary", "value") if each in record)
            session.out.either(shown, record)
            count += 1

    session.call(work)
