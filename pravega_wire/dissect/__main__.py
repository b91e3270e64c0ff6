"""The command ``python -m pravega_wire.dissect``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import trio

from pravega_wire.dissect.connections import dissect
from pravega_wire.dissect.exchange import Address, Frame, Note
from pravega_wire.dissect.live import open_listeners, serve
from pravega_wire.dissect.rendering import as_json, as_text
from pravega_wire.errors import CaptureError, InvalidArgumentError
from pravega_wire.nurseries import lone_errors


def command_line() -> argparse.ArgumentParser:
    """Make the parser of the command's arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m pravega_wire.dissect",
        description="Show the frames that clients and segment stores exchange.",
    )
    parser.add_argument("file", nargs="?", help="a capture (pcap or pcapng); - reads the standard input")
    parser.add_argument(
        "--port",
        type=_port,
        action="append",
        default=[],
        help="of a capture, only connections with this port of a segment store (may be repeated)",
    )
    parser.add_argument(
        "--follow",
        "--listen",
        type=_port,
        metavar="PORT",
        help="be a proxy on this local port instead; needs --store",
    )
    parser.add_argument(
        "--store", type=address_of, metavar="HOST:PORT", help="the segment store to forward to"
    )
    parser.add_argument("--write", metavar="FILE", help="with --follow: also write a capture")
    parser.add_argument("--payloads", action="store_true", help="show payloads and long texts whole")
    parser.add_argument("--json", action="store_true", help="print a JSON object per line")
    return parser


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, which is a number from 0 to 65535")
    return int(text)


def address_of(text: str) -> Address:
    """Parse ``HOST:PORT``.

    :raises argparse.ArgumentTypeError: it is something else.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not host:
        raise argparse.ArgumentTypeError(f"{text} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), _port(port)


def main(argv: list[str] | None = None) -> int:
    """Run the command, and return the exit status: 0, or 1 if the input cannot be read.

    :param argv: the arguments; default: those of the process.
    """
    parser = command_line()
    arguments = parser.parse_args(argv)
    mistake = mistake_in(arguments.file, arguments.port, arguments.follow, arguments.store, arguments.write)
    if mistake is not None:
        parser.error(mistake)
    try:
        run(**vars(arguments))
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:
        # The reader of the output has seen enough; nothing may be written to it at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (CaptureError, InvalidArgumentError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def mistake_in(file: object, port: Sequence[int], follow: object, store: object, write: object) -> str | None:
    """Return what is wrong with arguments that do not go together (None: one that is not given), or None."""
    if (file is None) == (follow is None):
        return "give either a capture file or --follow PORT"
    if (follow is None) != (store is None):
        return "--follow and --store belong together"
    if write is not None and follow is None:
        return "--write belongs to --follow"
    if port and file is None:
        return "--port belongs to a capture file: --follow shows the connections to --store"
    return None


def run(
    *,
    file: str | None,
    port: Sequence[int],
    follow: int | None,
    store: Address | None,
    write: str | Path | None,
    payloads: bool,
    json: bool,
) -> None:
    """Show the frames that the arguments ask for; :func:`command_line` describes them.

    :raises CaptureError: the input is not a capture, or is damaged.
    :raises InvalidArgumentError: the standard input is to be read, and is closed.
    :raises OSError: a file cannot be read or written, or the port is taken.
    """

    def show(item: Frame | Note) -> None:
        text = (as_json if json else as_text)(item, payloads=payloads)
        # Texts may hold what the terminal's encoding cannot. A closed standard output is None.
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=follow is not None)

    with ExitStack() as opened:
        if follow is not None and store is not None:
            trio.run(_follow, follow, store, show, write, opened)
        elif file is not None:
            for each in _items(file, port, opened):
                show(each)


def _items(file: str, ports: Sequence[int], opened: ExitStack) -> Iterator[Frame | Note]:
    if file == "-":
        if sys.stdin is None:
            raise InvalidArgumentError("the standard input is closed")
        return dissect(sys.stdin.buffer, ports=ports)
    return dissect(opened.enter_context(open(file, "rb")), ports=ports)


def _capture(path: str | Path | None, opened: ExitStack) -> BinaryIO | None:
    return None if path is None else opened.enter_context(open(path, "wb"))


async def _follow(
    port: int,
    store: Address,
    show: Callable[[Frame | Note], object],
    write: str | Path | None,
    opened: ExitStack,
) -> None:
    # Ctrl-C and a closed output come out of the nurseries as they are.
    with lone_errors():
        async with open_listeners(port) as listeners:
            # Only now: an existing capture is kept if the port is in use.
            capture = _capture(write, opened)
            async with trio.open_nursery() as nursery:
                actual = await nursery.start(serve, listeners, store, show, capture)
                text = f"listening on 127.0.0.1:{actual}, forwarding to {store[0]}:{store[1]}"
                print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
