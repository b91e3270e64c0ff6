"""The command ``doctor``: find out what is wrong with a cluster, or with the way to it."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from pravega_wire.cli.common import Exit
from pravega_wire.cli.frame import DURATION, STREAM, Session, WireCommand, passed
from pravega_wire.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pravega_wire.cli.work import health
    from pravega_wire.stream.client import PravegaClient

__all__ = ["COMMAND"]

_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red", "unknown": "dim"}


@click.command(
    cls=WireCommand,
    name="doctor",
    help="Check settings, controller, credentials, segment stores, open transactions and the ledgers of "
    "exactly-once sinks, and say what is wrong. It changes nothing. Transactions are looked at for the "
    "STREAMs, or for all streams of the default scope; ledgers are found by the name STREAM-spark-ledger, "
    "or with --ledger. The exit code is 1 if there is a problem.",
    examples=(
        "pravega-wire doctor",
        "pravega-wire doctor --scope demo",
        "pravega-wire doctor demo/readings --json",
    ),
)
@click.argument("names", metavar="[STREAM]...", type=STREAM, nargs=-1)
@click.option(
    "--ledger", "ledgers", multiple=True, metavar="STREAM", help="ledger of a sink; may be repeated"
)
@click.option(
    "--wait",
    type=DURATION,
    default="15s",
    show_default=True,
    metavar="TIME",
    help="wait at most this long for each answer",
)
@passed
def COMMAND(session: Session, names: tuple[str, ...], ledgers: tuple[str, ...], wait: float) -> Exit:
    from pravega_wire.cli.work import health

    if wait <= 0:
        raise InvalidArgumentError("--wait must be positive")
    resolved = session.resolved
    config = resolved.config
    config = replace(config, operation_timeout=min(config.operation_timeout, wait))
    streams = [config.resolve(each) for each in names]
    named = [config.resolve(each) for each in ledgers]

    async def look(client: PravegaClient) -> Exit:
        worst = Exit.DONE
        async for each in health.examine(client, resolved, streams, named):
            _print(session, each)
            if each.state == "problem":
                worst = Exit.FAILED
        return worst

    return session.call(look, config)


def _print(session: Session, found: health.Finding) -> None:
    out = session.out
    if out.as_json:
        out.json(asdict(found))
    elif out.human:
        out.styled(
            [(f"{found.state:<8}", _STYLES[found.state]), (f" {found.check}: ", "bold"), (found.finding, "")]
        )
    else:
        out.line(f"{found.state:<8} {found.check}: {found.finding}")
