"""The command ``group``: list, describe, reset and delete reader groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pravega_wire.cli.common import AbsentError
from pravega_wire.cli.frame import GROUP, STREAM, Session, WireGroup, confirm, passed, yes_option
from pravega_wire.cli.output import Column
from pravega_wire.cli.work import groups, points

if TYPE_CHECKING:
    from pravega_wire.stream.client import PravegaClient

__all__ = ["COMMAND"]


@click.group(
    cls=WireGroup,
    help="List, describe, reset and delete reader groups. GROUP is SCOPE/GROUP, or a name in the default "
    "scope.",
)
def COMMAND() -> None:
    pass


@COMMAND.command(
    "create",
    help="Create a reader group. Its readers begin at the head of each stream, or at --from.",
    examples=("pravega-wire group create demo/nightly demo/readings",),
)
@click.argument("name", metavar="GROUP", type=GROUP)
@click.argument("streams", metavar="STREAM...", type=STREAM, nargs=-1, required=True)
@click.option("--from", "start", metavar="CUT", default="head", help=f"where to begin: {points.HELP}")
@passed
def create(session: Session, name: str, streams: tuple[str, ...], start: str) -> None:
    point = points.parse_point(start)

    async def work(client: PravegaClient) -> bool:
        names = [client.config.resolve(each) for each in streams]
        if point.kind == "head":
            for each in names:
                # A stream that does not exist must not leave a group behind.
                await client.stream_config(each)
            return await client.create_reader_group(name, names)
        cuts = [await points.resolve_event(client, each, point) for each in names]
        return await client.create_reader_group(name, cuts)

    new = session.call(work)
    group = str(session.resolved.config.resolve(name))
    state = "was created" if new else "exists already"
    session.out.did(f"reader group {group} {state}", {"group": group, "created": new})


@COMMAND.command(
    "list",
    help="List the reader groups of a scope, with the number of readers and segments, and the lag: the "
    "bytes after the positions that the readers have reported last.",
    examples=("pravega-wire group list demo",),
)
@click.argument("scope_name", metavar="[SCOPE]", required=False)
@passed
def list_(session: Session, scope_name: str | None) -> None:
    rows = session.call(lambda client: groups.list_groups(client, scope_name))
    columns = [
        Column("group", "GROUP"),
        Column("streams", "STREAMS"),
        Column("readers", "READERS", "number"),
        Column("segments", "SEGMENTS", "number"),
        Column("unassigned", "UNASSIGNED", "number"),
        Column("checkpoints", "OPEN CHECKPOINTS", "number"),
        Column("lag", "LAG", "size"),
    ]
    if any("error" in each for each in rows):
        columns.append(Column("error", "ERROR"))
    session.out.rows(rows, columns)


@COMMAND.command(
    "describe",
    help="Show the state of a reader group: its readers and their segments, open checkpoints, lag, "
    "positions.",
    examples=("pravega-wire group describe demo/nightly",),
)
@click.argument("name", metavar="GROUP", type=GROUP)
@passed
def describe(session: Session, name: str) -> None:
    found = session.call(lambda client: groups.describe(client, client.config.resolve(name)))
    if session.out.as_json:
        session.out.json(found)
        return
    session.out.record(
        found,
        [
            Column("group", "group"),
            Column("streams", "streams"),
            Column("lag", "lag", "size"),
            Column("since_checkpoint", "since last checkpoint", "size"),
            Column("readers", "readers"),
            Column("future", "segments that wait for others", "number"),
            Column("refresh_seconds", "refresh, s", "number"),
            Column("automatic_checkpoint_seconds", "automatic checkpoints, s", "number"),
            Column("retention", "holds back retention"),
            Column("generation", "generation", "number"),
        ],
    )
    session.out.line("")
    session.out.rows(
        found["segments"],
        [Column("segment", "SEGMENT"), Column("reader", "READER"), Column("offset", "OFFSET", "number")],
    )
    if found["checkpoints"]:
        session.out.line("")
        session.out.rows(
            found["checkpoints"],
            [Column("name", "OPEN CHECKPOINT"), Column("waiting_for", "WAITS FOR")],
        )
    positions: list[dict[str, Any]] = [
        {"stream": stream, "kind": kind, "cut": cut}
        for kind, cuts in (
            ("read to", found["positions"]),
            ("last checkpoint", found["last_checkpoint"] or {}),
        )
        for stream, cut in cuts.items()
    ]
    session.out.line("")
    session.out.rows(
        positions, [Column("stream", "STREAM"), Column("kind", "POSITION"), Column("cut", "CUT")]
    )


@COMMAND.command(
    "reset",
    help="Restart a reader group from another position. Its readers fail and have to be started again. "
    f"Without --to it goes back to its last checkpoint. CUT is {points.HELP}. For a group of several "
    "streams, give a cut of each, or one head, tail or time for all.",
    examples=(
        "pravega-wire group reset demo/nightly --to head",
        "pravega-wire group reset demo/nightly --to @yesterday.cut --yes",
    ),
)
@click.argument("name", metavar="GROUP", type=GROUP)
@click.option(
    "--to", multiple=True, metavar="CUT", help="where to begin; repeated for a group of several streams"
)
@yes_option
@passed
def reset(session: Session, name: str, to: tuple[str, ...], yes: bool) -> None:
    where = [points.parse_point(each) for each in to]
    confirm(f"Restart reader group {name} from {', '.join(to) or 'its last checkpoint'}?", yes=yes)
    cuts = session.call(lambda client: groups.reset(client, client.config.resolve(name), where))
    group = str(session.resolved.config.resolve(name))
    session.out.did(
        f"reader group {group} was reset", {"group": group, "cuts": {str(c.stream): c for c in cuts}}
    )


@COMMAND.command(
    "offline",
    help="Remove a reader that has died from its group, so that other readers get its segments. A reader "
    "that still lives fails.",
    examples=("pravega-wire group offline demo/nightly host-7-1234",),
)
@click.argument("name", metavar="GROUP", type=GROUP)
@click.argument("reader", metavar="READER")
@yes_option
@passed
def offline(session: Session, name: str, reader: str, yes: bool) -> None:
    confirm(f"Remove reader {reader} from group {name}?", yes=yes)

    async def work(client: PravegaClient) -> None:
        async with client.reader_group(name) as group:
            await group.refresh()
            if reader not in group.online_readers:
                known = ", ".join(sorted(group.online_readers)) or "none"
                raise AbsentError(f"reader group {group.name} has no reader {reader!r}; it has: {known}")
            await group.reader_offline(reader)

    session.call(work)
    session.out.did(f"reader {reader} was removed from group {name}", {"group": name, "reader": reader})


@COMMAND.command(
    "delete",
    help="Delete reader groups and their state. Their readers fail.",
    examples=("pravega-wire group delete demo/nightly --yes",),
)
@click.argument("names", metavar="GROUP...", type=GROUP, nargs=-1, required=True)
@yes_option
@passed
def delete(session: Session, names: tuple[str, ...], yes: bool) -> None:
    confirm(f"Delete reader group {', '.join(names)}?", yes=yes)

    async def work(client: PravegaClient) -> None:
        for each in names:
            group = client.config.resolve(each)
            if not await client.delete_reader_group(group):
                raise AbsentError(f"reader group {group} does not exist")
            session.out.did(f"reader group {group} was deleted", {"group": str(group), "deleted": True})

    session.call(work)
