"""Sessions at a terminal that are recorded in documents: finding them, running them again, comparing.

A session is a block of ``text`` whose commands begin with ``$``. Its output is what a terminal of 100 columns
showed. A line that ends with ``^C`` was interrupted when the output before it was there, and a question that
ends with ``[y/N]:`` was answered as recorded. :func:`masked` says what may differ when it is run again.
Needs the standard library only.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Exchange", "Stuck", "masked", "parse", "rewritten", "run"]

COLUMNS, LINES = 100, 40
PATIENCE = 300.0
"""Seconds after which a command is taken to hang; no result depends on it."""

_BLOCK = re.compile(r"(?<=^```text\n)\$ .*?(?=^```$)", re.MULTILINE | re.DOTALL)
_ANSWER = re.compile(r"\[y/N\]: (\w+)$", re.MULTILINE)

_MASKS = (
    (r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", "<id>"),
    (r"\b\d{4}-\d\d-\d\dT[\d:.]+Z", "<time>"),
    (r"\b(?:127\.0\.0\.1|0\.0\.0\.0|localhost):\d+", "<address>"),
    (r"\b\d+(?:\.\d+)?(?:ms|s)\b", "<duration>"),
    (r"\b\d+ scopes? (?:is|are) visible", "<scopes>"),
    (r"\bpravega-wire \d+\.\d+\S*", "pravega-wire <version>"),
    (r"H4sI[\w+/=]+", "<cut>"),
    # The width of a column depends on what is in it.
    (r"[ \t]+", " "),
    (r"[\u2500\u2501]+", "\u2500"),
)


class Stuck(Exception):
    """A command did not end, or did not say what it has to say."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A command and what the terminal showed, without line ends at the end.

    :ivar command: the command; further lines of it follow a backslash.
    :ivar shown: the output.
    """

    command: str
    shown: str


def parse(page: str) -> list[Exchange]:
    """Return the sessions of a page as one, in order."""
    found: list[Exchange] = []
    for block in _BLOCK.findall(page):
        for each in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command = re.match(r"(?:[^\n]*\\\n)*[^\n]*", each)
            assert command is not None
            found.append(Exchange(command[0], each[command.end() + 1 :].rstrip("\n")))
    return found


def rewritten(page: str, record: Callable[[Exchange], str]) -> str:
    """Return a page in which the output of each command is what ``record`` returns."""

    def block(found: re.Match[str]) -> str:
        text = ""
        for each in parse(f"```text\n{found[0]}```\n"):
            shown = record(each)
            text += f"$ {each.command}\n" + (f"{shown}\n" if shown else "")
        return text

    return _BLOCK.sub(block, page)


def masked(shown: str) -> str:
    """Return an output with placeholders for what differs from run to run."""
    for pattern, name in _MASKS:
        shown = re.sub(pattern, name, shown)
    return "\n".join(each.rstrip() for each in shown.split("\n"))


def run(exchange: Exchange, directory: Path, variables: Mapping[str, str]) -> str:
    """Run a command at a terminal of its own, and return what it shows.

    :param exchange: the command, and what was shown before: whether it was interrupted, and the answers.
    :raises Stuck: it does not end, or not show what it is interrupted after.
    """
    ours, theirs = os.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        process = subprocess.Popen(
            ["bash", "-c", exchange.command], cwd=directory,
            env={**variables, "TERM": "dumb", "COLUMNS": str(COLUMNS), "LINES": str(LINES)},
            preexec_fn=lambda: (os.login_tty(theirs), signal.signal(signal.SIGINT, signal.SIG_DFL)),
        )  # fmt: skip
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    try:
        return _watched(exchange, process, ours)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        os.close(ours)


def _watched(exchange: Exchange, process: subprocess.Popen[bytes], terminal: int) -> str:
    before_stop = exchange.shown.partition("^C")[0] if "^C" in exchange.shown else None
    answers = [(f"{found[0][: -len(found[1])]}", found[1]) for found in _ANSWER.finditer(exchange.shown)]
    os.set_blocking(terminal, False)
    shown, limit, stopped = b"", time.monotonic() + PATIENCE, False
    while True:
        try:
            got = os.read(terminal, 1 << 16)
        except BlockingIOError:
            got = None
        except OSError:
            # The process has ended.
            got = b""
        if got == b"":
            process.wait(PATIENCE)
            return _text(shown)
        shown += got or b""
        if time.monotonic() > limit:
            raise Stuck(f"$ {exchange.command}\n{_text(shown)}\n(nothing more after {PATIENCE:.0f} s)")
        if answers and _text(shown).endswith(answers[0][0].rstrip()):
            os.write(terminal, answers.pop(0)[1].encode() + b"\n")
        if (
            before_stop is not None
            and not stopped
            and masked(_text(shown)) == masked(before_stop.rstrip("\n"))
        ):
            os.write(terminal, b"\x03")
            stopped = True
        if got is None:
            time.sleep(0.05)


def _text(shown: bytes) -> str:
    return shown.decode(errors="replace").replace("\r\n", "\n").rstrip("\n ")
