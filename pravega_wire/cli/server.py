"""The command ``pravega-wire-server standalone|cluster|memory|fetch``: a server from the shell."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import time
from types import FrameType
from typing import TYPE_CHECKING, Final

from pravega_wire.cli import ending
from pravega_wire.errors import PravegaError, ServerStartError

if TYPE_CHECKING:
    from pravega_wire.testing.running import PravegaServer


USUAL_PORT: Final = 9090
# Where clients of Pravega look for a controller when nothing is set.


_VERSION_HELP: Final = "version of the server, such as 0.12.0 (default 0.13.0; needs the jars)"


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def command_line() -> argparse.ArgumentParser:
    """Make the parser of the command's arguments; the documentation is made from it."""
    parser = argparse.ArgumentParser(
        prog="pravega-wire-server",
        description="Start a real Pravega server and keep it running until Ctrl-C.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("standalone", help="start one process that keeps all data in memory")
    one.add_argument(
        "--kind",
        choices=("address", "containers", "jars", "memory"),
        help="use the server at PRAVEGA_CONTROLLER_URI, a container, the published jars, or one in memory "
        "without Java (default: the first of the other three that is available)",
    )
    one.add_argument(
        "--memory", default="2g", help="heap size; events can take up two fifths of it (default 2g)"
    )
    one.add_argument(
        "--port",
        type=int,
        help=f"port of the controller on 127.0.0.1 (default {USUAL_PORT}, or a free port if that is in use)",
    )
    one.add_argument(
        "--schema-registry", action="store_true", help="start a schema registry beside it, on a free port"
    )
    many = commands.add_parser("cluster", help="start separate processes that keep data on disk")
    for each in (one, many):
        each.add_argument("--pravega-version", metavar="VERSION", help=_VERSION_HELP)
    many.add_argument("--stores", type=int, default=2, help="number of segment stores (default 2)")
    many.add_argument("--memory", default="1g", help="heap size of each process (default 1g)")
    small = commands.add_parser("memory", help="start one in memory, without Java and at once; for tests")
    small.add_argument(
        "--port",
        type=int,
        help=f"port of the controller on 127.0.0.1 (default {USUAL_PORT}, or a free port if that is in use)",
    )
    for each in (one, small):
        each.add_argument("--tls", action="store_true", help="use TLS, with new certificates")
    for each in (one, many, small):
        each.add_argument("--auth", action="store_true", help="demand credentials, those of a new account")
    load = commands.add_parser("fetch", help="download the jars, and prepare servers to start faster")
    load.add_argument("--pravega-version", metavar="VERSION", help=_VERSION_HELP)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the command, and return the exit status."""
    if argv is None:
        ending.begin()
    arguments = command_line().parse_args(argv)
    from pravega_wire.testing.jars import chosen_version, fetch
    from pravega_wire.testing.server import choose_kind, cluster, prepare, standalone

    ending.raising()
    signal.signal(signal.SIGTERM, _stop)
    try:
        if arguments.command == "fetch":
            print(fetch(chosen_version(arguments.pravega_version)))
            try:
                prepare(arguments.pravega_version)
            except ServerStartError as error:
                _say(f"servers will not start faster: {error}")
            return 0
        if arguments.command == "memory":
            with standalone(
                kind="memory", tls=arguments.tls, auth=arguments.auth, port=_port(arguments.port)
            ) as server:
                return _serve(server)
        if arguments.command == "standalone":
            kind = choose_kind(
                arguments.kind,
                version=arguments.pravega_version,
                secured=arguments.tls or arguments.auth,
            )
            if kind == "address" and arguments.kind is None:
                _say_why(os.environ.get("PRAVEGA_CONTROLLER_URI"))
            else:
                _say("starting ...")
            with standalone(
                kind=kind,
                version=arguments.pravega_version,
                memory=arguments.memory,
                tls=arguments.tls,
                auth=arguments.auth,
                port=_port(arguments.port),
                schema_registry=arguments.schema_registry,
            ) as server:
                return _serve(server)
        _say("starting ...")
        with cluster(
            version=arguments.pravega_version,
            segment_stores=arguments.stores,
            memory=arguments.memory,
            auth=arguments.auth,
        ) as server:
            return _serve(server)
    except PravegaError as error:
        # Settings of a server at an address may be wrong, too.
        _say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        _say("stopped")
    return 0


def _port(wanted: int | None) -> int | None:
    """Return the port for a controller: the usual one if none is wanted and it is free."""
    from pravega_wire.testing.processes import is_free

    return USUAL_PORT if wanted is None and is_free(USUAL_PORT) else wanted


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _say_why(uri: str | None) -> None:
    if uri:
        _say(
            f"PRAVEGA_CONTROLLER_URI is set to {uri}: using that server instead of starting one "
            "(to start one, unset the variable or pass --kind jars)"
        )


def _settings(server: PravegaServer) -> dict[str, str]:
    """Return the environment variables, beside those of this process, with which programs find the server."""
    found = {}
    config = server.config()
    if config.controller_uri not in (
        f"tcp://127.0.0.1:{USUAL_PORT}", os.environ.get("PRAVEGA_CONTROLLER_URI")
    ):  # fmt: skip
        found["PRAVEGA_CONTROLLER_URI"] = config.controller_uri
    if config.trust_store is not None:
        found["PRAVEGA_TRUST_STORE"] = config.trust_store
    if config.credentials is not None:
        # An account of this server alone, which ends with it.
        found["pravega_client_auth_method"] = config.credentials.method
        found["pravega_client_auth_token"] = config.credentials.token
    if config.schema_registry_uri is not None:
        found["PRAVEGA_SCHEMA_REGISTRY_URI"] = config.schema_registry_uri
    return found


def _serve(server: PravegaServer) -> int:
    """Print the server's address, and wait until the server ends or the user presses Ctrl-C."""
    print(server.controller_uri, flush=True)
    settings = _settings(server)
    if settings:
        _say("ready; use it with")
    else:
        _say("ready; programs on this machine find it without any setting")
    for name, value in settings.items():
        _say(f"  export {name}={shlex.quote(value)}")
    if server.kind == "address":
        _say("Ctrl-C ends this command, not the server")
    else:
        logs = "" if server.log_dir is None else f"logs: {server.log_dir}\n"
        _say(f"{logs}Ctrl-C stops it")
    while True:
        for process in server.processes:
            if not process.alive:
                _say(f"error: {process.ending() or f'{process.name} has ended; see {process.log}'}")
                return 1
        # One call cannot wait for several processes and for the user at the same time.
        time.sleep(0.5)


if __name__ == "__main__":
    raise SystemExit(main())
