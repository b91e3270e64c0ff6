"""The command ``completion``: print the completion script of a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from pravega_wire.cli.frame import WireCommand

__all__ = ["COMMAND"]

VARIABLE = "_PRAVEGA_WIRE_COMPLETE"


@click.command(
    cls=WireCommand,
    name="completion",
    needs_client=False,
    help="Print a script that completes commands and options when you press Tab.",
    examples=(
        "# for this shell",
        'eval "$(pravega-wire completion bash)"',
        "# for every shell",
        "pravega-wire completion fish > ~/.config/fish/completions/pravega-wire.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def COMMAND(shell: str) -> None:
    from pravega_wire.cli.root import COMMAND as root

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(root, {}, "pravega-wire", VARIABLE).source())
