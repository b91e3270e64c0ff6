"""The command ``scope``: create, list and delete scopes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pravega_wire.cli.common import AbsentError
from pravega_wire.cli.frame import Session, WireGroup, confirm, passed, yes_option
from pravega_wire.cli.output import Column
from pravega_wire.errors import ScopeNotEmptyError

if TYPE_CHECKING:
    from pravega_wire.stream.client import PravegaClient

__all__ = ["COMMAND"]


@click.group(cls=WireGroup, help="Create, list and delete scopes. A scope holds streams, groups and tables.")
def COMMAND() -> None:
    pass


@COMMAND.command(
    "create",
    help="Create scopes. A scope that exists already is left as it is.",
    examples=("pravega-wire scope create demo",),
)
@click.argument("scopes", metavar="SCOPE...", nargs=-1, required=True)
@passed
def create(session: Session, scopes: tuple[str, ...]) -> None:

    async def work(client: PravegaClient) -> None:
        for scope in scopes:
            new = await client.create_scope(scope)
            state = "was created" if new else "exists already"
            session.out.did(f"scope {scope} {state}", {"scope": scope, "created": new})

    session.call(work)


@COMMAND.command(
    "list",
    help="List the scopes that you may see.",
    examples=("pravega-wire scope list", "pravega-wire scope list --json | jq -r .scope"),
)
@passed
def list_(session: Session) -> None:
    scopes = session.call(lambda client: client.list_scopes())
    rows = [{"scope": each} for each in sorted(scopes)]
    session.out.rows(rows, [Column("scope", "SCOPE")])


@COMMAND.command(
    "delete",
    help="Delete scopes. A scope must be empty, unless --recursive is given.",
    examples=("pravega-wire scope delete demo", "pravega-wire scope delete demo --recursive --yes"),
)
@click.argument("scopes", metavar="SCOPE...", nargs=-1, required=True)
@click.option("--recursive", is_flag=True, help="also delete all streams, groups and tables in it")
@yes_option
@passed
def delete(session: Session, scopes: tuple[str, ...], recursive: bool, yes: bool) -> None:
    what = "with everything in it" if recursive else "(it has to be empty)"
    confirm(f"Delete scope {', '.join(scopes)} {what}?", yes=yes)

    async def work(client: PravegaClient) -> None:
        for scope in scopes:
            # With recursive=True, a server does not tell whether the scope existed.
            if not await client.scope_exists(scope):
                raise AbsentError(f"scope {scope} does not exist")
            try:
                await client.delete_scope(scope, recursive=recursive)
            except ScopeNotEmptyError as error:
                what = error.message.partition(". ")[0]
                raise ScopeNotEmptyError(
                    f"{what}: delete them first, or add --recursive", scope=scope
                ) from error
            session.out.did(f"scope {scope} was deleted", {"scope": scope, "deleted": True})

    session.call(work)
