"""The command ``config``: show the settings, and where each comes from."""

from __future__ import annotations

from dataclasses import asdict

import click

from pravega_wire.cli.frame import Session, WireGroup, passed
from pravega_wire.cli.output import Column
from pravega_wire.cli.settings import default_path, load_profiles

__all__ = ["COMMAND"]


@click.group(
    cls=WireGroup,
    help="Show the connection settings. Each is taken from the first of these that has it: an argument, an "
    "environment variable, the profile, the default.",
)
def COMMAND() -> None:
    pass


@COMMAND.command(
    "show",
    needs_client=False,
    help="Show each setting, its value and where it comes from. Secrets are hidden.",
    examples=("pravega-wire config show", "pravega-wire config show --profile production --json"),
)
@passed
def show(session: Session) -> None:
    session.out.rows(
        [asdict(each) for each in session.resolved.found],
        [Column("setting", "SETTING"), Column("value", "VALUE"), Column("source", "FROM")],
    )


@COMMAND.command(
    "profiles",
    needs_client=False,
    help="List the profiles of the configuration file.",
    examples=("pravega-wire config profiles",),
)
@passed
def profiles(session: Session) -> None:
    import os

    found = load_profiles(session.flags.get("file"), os.environ)
    session.out.rows(
        [
            {
                "profile": name,
                "controller": each.get("controller", ""),
                "scope": each.get("scope", ""),
                "default": name == found.default,
            }
            for name, each in found.profiles.items()
        ],
        [
            Column("profile", "PROFILE"),
            Column("controller", "CONTROLLER"),
            Column("scope", "SCOPE"),
            Column("default", "DEFAULT"),
        ],
    )


@COMMAND.command(
    "path", needs_client=False, help="Print the path of the configuration file, whether or not it exists."
)
@passed
def path(session: Session) -> None:
    import os

    from pravega_wire.cli.settings import FILE_VARIABLE

    found = session.flags.get("file") or os.environ.get(FILE_VARIABLE) or str(default_path(os.environ))
    session.out.did(found, {"path": found})
