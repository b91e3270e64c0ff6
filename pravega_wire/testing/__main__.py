"""``python -m pravega_wire.testing standalone|cluster|fetch``: a real server from the shell."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from types import FrameType
from typing import TYPE_CHECKING, Final

from pravega_wire.errors import ServerStartError

if TYPE_CHECKING:
    from pravega_wire.testing.running import PravegaServer


USUAL_PORT: Final = 9090
# Where clients of Pravega look for a controller when nothing is set.


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
    one.add_argument("--memory", default="2g", help="heap; about half of it can be events (default 2g)")
    one.add_argument(
        "--port",
        type=int,
        help=f"port of the controller on 127.0.0.1 (default {USUAL_PORT}, or a free one if that is in use)",
    )
    many = commands.add_parser("cluster", help="separate processes, data on disk")
    many.add_argument("--stores", type=int, default=2, help="segment stores (default 2)")
    many.add_argument("--memory", default="1g", help="heap of each process (default 1g)")
    commands.add_parser("fetch", help="only fetch the jars")
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, _stop)
    from pravega_wire.testing.jars import fetch
    from pravega_wire.testing.processes import is_free
    from pravega_wire.testing.server import choose_kind, cluster, standalone

    try:
        if arguments.command == "fetch":
            print(fetch())
            return 0
        if arguments.command == "standalone":
            kind = choose_kind(arguments.kind)
            if kind == "address" and arguments.kind is None:
                _say_why(os.environ.get("PRAVEGA_CONTROLLER_URI"))
            else:
                _say("starting ...")
            port = arguments.port
            if port is None and is_free(USUAL_PORT):
                port = USUAL_PORT
            with standalone(kind=kind, memory=arguments.memory, port=port) as server:
                return _serve(server)
        _say("starting ...")
        with cluster(segment_stores=arguments.stores, memory=arguments.memory) as server:
            return _serve(server)
    except ServerStartError as error:
        _say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        _say("stopped")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _say_why(uri: str | None) -> None:
    if uri:
        _say(
            f"PRAVEGA_CONTROLLER_URI is set to {uri}: that server is used, and none is started "
            "(to start one, unset it or give --kind jars)"
        )


def _serve(server: PravegaServer) -> int:
    """Say where it is, and wait until it ends or the user has had enough."""
    print(server.controller_uri, flush=True)
    if server.kind == "address":
        _say("it answers; Ctrl-C ends this command, not the server")
    else:
        if server.controller_uri == f"tcp://127.0.0.1:{USUAL_PORT}":
            _say("ready; programs on this machine find it without any setting")
        else:
            _say(f"ready; use it with\n  export PRAVEGA_CONTROLLER_URI={server.controller_uri}")
        _say(f"logs: {server.log_dir}\nCtrl-C ends it")
    while True:
        for process in server.processes:
            if not process.alive:
                _say(f"error: {process.ending() or f'{process.name} has ended; see {process.log}'}")
                return 1
        # Nobody can wait for several processes and for the user at once.
        time.sleep(0.5)


if __name__ == "__main__":
    raise SystemExit(main())
