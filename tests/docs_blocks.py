"""The code blocks of the documents: finding them, and doing what their markers say.

A marker is an HTML comment on the line before a block: see tests/README.md, "Examples in the documents".
Needs the standard library only, so that it runs where nothing is installed (``scripts/docs --first-hour``).
"""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Literal, TypeAlias

ROOT = Path(__file__).resolve().parents[1]

Kind: TypeAlias = Literal["program", "session", "continues", "file", "shell", "background", "output", "shown"]
Loop: TypeAlias = Literal["trio", "asyncio", "none"]

SHOWN = frozenset(
    {
        "csv", "diff", "dockerfile", "groovy", "ini", "java", "json", "mermaid", "output", "properties",
        "proto", "scala", "sql", "text", "toml", "xml", "yaml",
    }
)  # fmt: skip
"""Languages that are shown and not run. Python and ``sh`` are run; all others are mistakes."""

SECONDS = 600.0
"""After which a block is taken to hang; no result depends on it."""

_COMMENT = re.compile(r"<!--\s*(.*?)\s*-->\s*")
_MARKER = re.compile(
    r"(session|asyncio session|continues|output)|(file|not run|walk|background|output):\s*(.*)"
)
_FENCE = re.compile(r"(?P<indent> *)(?P<ticks>`{3,}|~{3,})(?P<info>[^`]*)")
_INSTALLS = re.compile(r"\bpip3? install\b")


class DocumentError(Exception):
    """A page has a block or a marker that cannot be right; the message begins with ``page:line``."""


class BlockError(Exception):
    """A block did not do what the page says; the message begins with ``page:line``."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block.

    :ivar page: path of the page in the repository.
    :ivar line: of the first line inside the fence, from 1.
    :ivar text: without the fence's indentation; ends with a line end.
    :ivar argument: name of a file; text that a background command is waited for; what of an output varies.
    :ivar reason: why it is not run; "" if it is.
    :ivar walk: whether it is run nevertheless by the walk through the first pages.
    :ivar loop: of a session: which event loop top-level ``await`` uses.
    """

    page: str
    line: int
    language: str
    text: str
    kind: Kind
    argument: str = ""
    reason: str = ""
    walk: bool = False
    loop: Loop = "none"

    @property
    def place(self) -> str:
        """``page:line``, for messages."""
        return f"{self.page}:{self.line}"


def first_pages(root: Path = ROOT) -> list[str]:
    """The pages of the room "Start" in their order; each continues where the one before it ended."""
    named = re.findall(
        r"^ +- (start/[\w-]+\.md)$", (root / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE
    )
    return [f"docs/{each}" for each in named]


def pages(root: Path = ROOT) -> list[str]:
    """README.md and every page of ``docs/``, as paths in the repository."""
    found = sorted(path.relative_to(root).as_posix() for path in (root / "docs").rglob("*.md"))
    return ["README.md", *found]


def read(page: str, root: Path = ROOT) -> list[Block]:
    """The blocks of a page, in order.

    :raises DocumentError: an unknown language or marker, a marker without a block, a missing reason, or
        Python that does not compile.
    """
    return parse(page, (root / page).read_text(encoding="utf-8"))


def parse(page: str, text: str) -> list[Block]:
    """The same of a page's text."""
    blocks: list[Block] = []
    markers: list[tuple[int, str]] = []
    lines = iter(enumerate(text.split("\n"), 1))
    for number, line in lines:
        comment = _COMMENT.fullmatch(line.strip())
        if comment:
            markers.append((number, comment[1]))
            continue
        fence = _FENCE.fullmatch(line)
        if fence is None:
            _check_loose(page, markers)
            markers = []
            continue
        inside = []
        for _, each in lines:
            closing = each.strip()
            if closing.startswith(fence["ticks"]) and not closing.strip(fence["ticks"][0]):
                break
            inside.append(each)
        else:
            raise DocumentError(f"{page}:{number}: the block is not closed")
        body = textwrap.dedent("\n".join(inside)) + "\n"
        blocks.append(_block(page, number, fence["info"].strip(), body, markers, blocks))
        markers = []
    _check_loose(page, markers)
    return _with_loops(blocks)


def _check_loose(page: str, markers: Sequence[tuple[int, str]]) -> None:
    for number, marker in markers:
        if _MARKER.fullmatch(marker):
            raise DocumentError(
                f"{page}:{number}: the marker <!-- {marker} --> is not on the line before a block"
            )


def _block(
    page: str, number: int, info: str, text: str, markers: Sequence[tuple[int, str]], before: Sequence[Block]
) -> Block:
    place = f"{page}:{number}"
    language = info.split(maxsplit=1)[0] if info else ""
    if language not in SHOWN | {"python", "sh"}:
        raise DocumentError(
            f"{place}: a block in {language or 'no language'}: Python is `python`, shell is `sh`, anything "
            f"else is one of {', '.join(sorted(SHOWN))}"
        )
    kind: Kind = "program" if language == "python" else "shell" if language == "sh" else "shown"
    block = Block(page, number + 1, language, text, kind)
    for line, marker in markers:
        found = _MARKER.fullmatch(marker)
        if found is None:
            raise DocumentError(f"{page}:{line}: unknown marker <!-- {marker} -->")
        block = _marked(block, found[1] or found[2], (found[3] or "").strip(), before)
    if block.kind == "shell" and not block.reason and _INSTALLS.search(text):
        raise DocumentError(
            f"{block.place}: this would install into the environment of the tests: mark it "
            "<!-- walk: reason --> or <!-- not run: reason -->"
        )
    if block.language == "python" and (block.reason or block.kind != "shown"):
        _compiled(block)
    return block


def _marked(block: Block, marker: str, argument: str, before: Sequence[Block]) -> Block:
    def need(language: bool, what: str) -> None:
        if not language:
            raise DocumentError(
                f"{block.place}: <!-- {marker} --> belongs before {what}, not {block.language}"
            )

    match marker:
        case "not run" | "walk":
            if len(argument.split()) < 3:
                raise DocumentError(f"{block.place}: <!-- {marker}: --> needs a reason, in a sentence")
            return replace(block, reason=argument, walk=marker == "walk")
        case "file":
            if not argument or Path(argument).is_absolute() or ".." in Path(argument).parts:
                raise DocumentError(f"{block.place}: <!-- file: --> needs a name in the page's directory")
            return replace(block, kind="file", argument=argument)
        case "background":
            need(block.language == "sh", "a block in sh")
            if not argument:
                raise DocumentError(f"{block.place}: <!-- background: --> needs a text to wait for")
            return replace(block, kind="background", argument=argument)
        case "output":
            need(block.language in ("text", "output", "json", "csv"), "a block in text")
            if not before or before[-1].kind not in ("program", "session", "continues", "shell"):
                raise DocumentError(
                    f"{block.place}: there is no block directly before that prints this output"
                )
            if argument != _THE_END:
                for each in _varying(block, argument):
                    need(each in block.text, f"a block that has {each!r}")
            return replace(block, kind="output", argument=argument)
        case "session" | "asyncio session":
            need(block.language == "python", "a block in python")
            return replace(block, kind="session", loop="asyncio" if marker.startswith("asyncio") else "none")
        case _:
            need(block.language == "python", "a block in python")
            if not any(each.kind in ("program", "session", "continues") for each in before):
                raise DocumentError(f"{block.place}: <!-- continues --> has no Python block before it")
            return replace(block, kind="continues")


_THE_END = "the end"


def _varying(block: Block, argument: str) -> list[str]:
    """The words of ``<!-- output: 3 and 0.1 s vary -->``."""
    if argument and not argument.endswith(" vary"):
        raise DocumentError(f"{block.place}: <!-- output: --> needs `{_THE_END}`, or words that `vary`")
    return [each for each in re.split(r", | and ", argument.removesuffix(" vary")) if each]


_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


def _compiled(block: Block) -> None:
    try:
        compile(block.text, block.place, "exec", flags=_AWAIT | ast.PyCF_ONLY_AST)
        compile(block.text, block.place, "exec", flags=_AWAIT)
    except SyntaxError as error:
        raise DocumentError(f"{block.page}:{block.line - 1 + (error.lineno or 1)}: {error.msg}") from None


def awaits(text: str) -> bool:
    """Whether there is an ``await`` outside of functions."""
    code = compile(text, "", "exec", flags=_AWAIT)
    return bool(code.co_flags & 0x80)  # CO_COROUTINE


def _with_loops(blocks: list[Block]) -> list[Block]:
    """Sessions under their event loops: a program that another block continues is the beginning of one."""
    python = [
        number
        for number, each in enumerate(blocks)
        if each.kind in ("program", "session", "continues") and not each.reason
    ]
    sessions: list[list[int]] = []
    for number in python:
        if blocks[number].kind == "continues" and sessions:
            sessions[-1].append(number)
        else:
            sessions.append([number])
    made = list(blocks)
    for session in sessions:
        first = blocks[session[0]]
        if first.kind == "program" and len(session) == 1:
            if awaits(first.text):
                raise DocumentError(f"{first.place}: `await` outside of a function: mark it <!-- session -->")
            continue
        loop: Loop = first.loop
        if loop == "none" and any(awaits(blocks[number].text) for number in session):
            loop = "trio"
        for number in session:
            kind: Kind = "session" if number == session[0] else "continues"
            made[number] = replace(blocks[number], kind=kind, loop=loop)
    return made


# --- running -------------------------------------------------------------------------------------


def expected(block: Block) -> str:
    """The text of an output, with ``...`` for what may differ."""
    if block.argument == _THE_END:
        return f"...{block.text}"
    text = block.text
    for each in _varying(block, block.argument):
        text = text.replace(each, "...")
    return text


def matches(expected: str, printed: str) -> bool:
    """Whether this was printed; ``...`` stands for anything, on a line of its own for any number of lines."""
    pattern = ""
    for line in expected.strip("\n").split("\n"):
        if line.strip() == "...":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += r"[\s\S]*?".join(map(re.escape, line.rstrip().split("..."))) + r"\s*?\n"
    plain = "\n".join(each.rstrip() for each in printed.strip("\n").split("\n")) + "\n"
    return re.fullmatch(pattern, plain) is not None


class Runner:
    """Runs the blocks of a page, in one directory.

    :param directory: the page's.
    :param python: the interpreter of programs and sessions.
    :param variables: the environment; :meth:`shell` changes it if ``remembers``.
    :param remembers: whether what a shell block exports, and the directory it goes to, last.
    :param walking: whether blocks for the walk through the first pages are run.
    """

    def __init__(
        self,
        directory: Path,
        variables: dict[str, str],
        *,
        python: str = sys.executable,
        remembers: bool = False,
        walking: bool = False,
    ) -> None:
        self.directory = directory
        self.variables = dict(variables)
        self.python = python
        self.outputs: dict[int, str] = {}
        self._remembers = remembers
        self._walking = walking
        self._session: _Session | None = None
        self._background: list[_Background] = []
        self._printed = ""

    def run(self, blocks: Sequence[Block]) -> None:
        """Run them in order.

        :raises BlockError: one of them failed or printed something else.
        """
        try:
            for block in blocks:
                if block.kind == "shown" or (block.reason and not (block.walk and self._walking)):
                    continue
                self._one(block)
        finally:
            self._end_session()

    def close(self) -> None:
        """End what runs in the background."""
        self._end_session()
        for each in reversed(self._background):
            each.close()
        self._background.clear()

    def _one(self, block: Block) -> None:
        match block.kind:
            case "file":
                path = self.directory / block.argument
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text, encoding="utf-8")
                return
            case "output":
                if not matches(expected(block), self._printed):
                    raise BlockError(f"{block.place}: the output is not this, but:\n{self._printed}")
                return
            case "background":
                running = _Background(block, self.directory, self.variables)
                self._background.append(running)
                if self._remembers:
                    self.variables |= running.exports()
                return
            case "shell":
                self._printed = self._shell(block)
            case "program":
                self._end_session()
                script = self.directory / f"example_{block.line}.py"
                script.write_text(block.text, encoding="utf-8")
                self._printed = self._finished(block, [self.python, script.name])
            case "session":
                self._end_session()
                self._session = _Session(block.loop, self.python, self.directory, self.variables)
                self._printed = self._session.paste(block)
            case "continues":
                if self._session is None:
                    raise BlockError(f"{block.place}: the session that it continues has ended")
                self._printed = self._session.paste(block)
        self.outputs[block.line] = self._printed

    def _end_session(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _shell(self, block: Block) -> str:
        if not self._remembers:
            return self._finished(block, ["bash", "-e", "-o", "pipefail", "-c", block.text])
        with tempfile.TemporaryDirectory() as name:
            kept = Path(name) / "kept"
            # A trap would not see what `exec` replaces; nothing in a walk does that.
            after = f'{block.text}\n{{ pwd; env -0; }} > "{kept}"\n'
            printed = self._finished(block, ["bash", "-e", "-o", "pipefail", "-c", after])
            where, _, rest = kept.read_bytes().decode().partition("\n")
            self.directory = Path(where)
            pairs = (each.split("=", 1) for each in rest.split("\0") if "=" in each)
            self.variables = {
                key: value for key, value in pairs if key not in ("_", "SHLVL", "PWD", "OLDPWD")
            }
            return printed

    def _finished(self, block: Block, command: list[str]) -> str:
        # Into files: what a block leaves running may hold a pipe open for ever.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = subprocess.Popen(
                command, cwd=self.directory, env=self.variables, stdin=subprocess.DEVNULL, stdout=out,
                stderr=err, start_new_session=True,
            )  # fmt: skip
            try:
                status: int | str = process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                status = f"no end after {SECONDS:.0f} s"
            finally:
                _end_group(process)
            printed, said = (_content(each) for each in (out, err))
        if status != 0:
            raise BlockError(f"{block.place}: exit status {status}\n{printed[-4000:]}\n{said[-6000:]}")
        return printed


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process that was started with a session of its own, and what it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline:
            process.poll()
            try:
                os.killpg(process.pid, 0)
            except ProcessLookupError:
                break
            time.sleep(0.05)
    process.wait()


class _Background:
    """A command that runs until the end of the page, or of the walk."""

    def __init__(self, block: Block, directory: Path, variables: dict[str, str]) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            ["bash", "-c", block.text], cwd=directory, env=variables, stdin=subprocess.DEVNULL,
            stdout=self._log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        deadline = time.monotonic() + SECONDS
        while True:
            ended = self._process.poll() is not None
            said = os.pread(self._log.fileno(), 1 << 20, 0).decode(errors="replace")
            if block.argument in said:
                return
            if ended or time.monotonic() > deadline:
                self.close()
                why = "ended" if ended else f"went on for {SECONDS:.0f} s"
                raise BlockError(f"{block.place}: {why} without printing {block.argument!r}\n{said[-6000:]}")
            time.sleep(0.1)

    def exports(self) -> dict[str, str]:
        """What a reader is told to export: a server that found its usual port in use prints such a line."""
        time.sleep(1)  # the text that was waited for may be the beginning of what it prints
        said = os.pread(self._log.fileno(), 1 << 20, 0).decode(errors="replace")
        return dict(re.findall(r"^ *export (\w+)=(\S+)$", said, re.MULTILINE))

    def close(self) -> None:
        _end_group(self._process)
        self._log.close()


_MARK = "\x1e"


class _Session:
    """An interactive prompt to paste blocks into, as ``python -m trio`` and ``python -m asyncio`` are."""

    def __init__(self, loop: Loop, python: str, directory: Path, variables: dict[str, str]) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [python, str(ROOT / "tests" / "docs_session.py"), loop],
            cwd=directory, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said,
            start_new_session=True,
        )  # fmt: skip

    def paste(self, block: Block) -> str:
        """Run a block; what it printed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with _alarm(self._process):
            try:
                self._process.stdin.write(json.dumps([block.place, block.line, block.text]).encode() + b"\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                raise BlockError(f"{block.place}: the session has ended\n{_content(self._said)}") from None
            printed = b""
            while not printed.endswith(b"\n") or _MARK.encode() not in printed:
                got = self._process.stdout.readline()
                printed += got
                if not got:
                    break
        text, mark, status = printed.decode(errors="replace").partition(_MARK)
        if not mark or status.strip() != "done":
            raise BlockError(f"{block.place}: failed\n{text[-4000:]}\n{_content(self._said)[-6000:]}")
        return text

    def close(self) -> None:
        """End it, as Ctrl-D does."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            pass
        _end_group(self._process)
        self._said.close()


@contextmanager
def _alarm(process: subprocess.Popen[bytes]) -> Iterator[None]:
    timer = threading.Timer(SECONDS, lambda: os.killpg(process.pid, signal.SIGKILL))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
