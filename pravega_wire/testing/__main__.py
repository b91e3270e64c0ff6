"""``python -m pravega_wire.testing standalone|cluster|fetch``: a real server from the shell."""

from __future__ import annotations

import argparse
import signal
import sys
from types import FrameType

from pravega_wire.errors import ServerStartError


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m pravega_wire.testing",
        description="Start a real Pravega and keep it until Ctrl-C.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("standalone", help="everything in one process, in memory")
    one.add_argument("--kind", choices=("address", "containers", "jars"))
    many = commands.add_parser("cluster", help="separate processes, data on disk")
    many.add_argument("--stores", type=int, default=2, help="segment stores (default 2)")
    commands.add_parser("fetch", help="only fetch the jars")
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, _stop)
    from pravega_wire.testing.jars import fetch
    from pravega_wire.testing.server import cluster, standalone

    try:
        if arguments.command == "fetch":
            print(fetch())
            return 0
        manager = (
            standalone(kind=arguments.kind)
            if arguments.command == "standalone"
            else cluster(segment_stores=arguments.stores)
        )
        print("starting ...", file=sys.stderr, flush=True)
        with manager as server:
            print(server.controller_uri, flush=True)
            print(
                f"ready; use it with\n  export PRAVEGA_CONTROLLER_URI={server.controller_uri}\n"
                f"logs: {server.log_dir}\nCtrl-C ends it",
                file=sys.stderr,
                flush=True,
            )
            signal.pause()
    except ServerStartError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
