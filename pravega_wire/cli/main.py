"""The program ``pravega-wire``. It imports next to nothing before Ctrl-C is taken care of."""

from __future__ import annotations

from pravega_wire.cli import ending

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit status. Errors are one sentence on standard error.

    If the reader of the messages goes away, neither the command's work nor its status changes. A command
    whose data nobody reads any more ends.

    :param argv: the arguments without the program's name; default ``sys.argv[1:]``, and signals are handled.
    :raises SystemExit: the arguments are wrong (status 2), or help was shown (status 0).
    """
    if argv is None:
        ending.begin()
    from pravega_wire.cli.running import run

    try:
        return run(argv)
    finally:
        if argv is None:
            ending.over()
