#!/usr/bin/env python3
"""Write ``docs/protocol-commands.md`` from the declarative source; ``--check`` only compares."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "pravega_wire" / "protocol" / "commands.py"
TARGET = ROOT / "docs" / "protocol-commands.md"

HEAD = """# Wire commands

Generated from `pravega_wire/protocol/commands.py` by `scripts/gen_protocol_docs.py`; do not edit.
[The segment store's wire protocol](protocol/wire.md) explains how the commands are used, and the notation of
[types](protocol/wire.md#field-types).

Direction: C client to server, S server to client. A `?` marks an
[optional trailing field](protocol/wire.md#optional-trailing-fields), with the value that a reader uses if it
is missing.

## All commands

| code | command | direction | fields |
|---|---|---|---|
"""


SENDERS = {"C": "sent by the client", "S": "sent by the server", "C S": "sent by both sides"}


def _field(name: str, kind: str, optional: bool, default: object) -> str:
    return f"{name}: {kind}" + (f"? ({default!r})" if optional else "")


def _markdown(text: str) -> str:
    """A docstring's text on one line, with links to other commands."""
    text = re.sub(
        r":class:`(\w+)`", lambda match: f"[{match[1]}](#{match[1].lower()})", " ".join(text.split())
    )
    return text.replace("``", "`")


def descriptions(source: str) -> dict[str, dict[str, str]]:
    """The text below each field of each class."""
    found: dict[str, dict[str, str]] = {}
    for each in ast.parse(source).body:
        if not isinstance(each, ast.ClassDef):
            continue
        texts = found[each.name] = {}
        for field, text in zip(each.body, each.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
            ):
                texts[field.target.id] = _markdown(str(text.value.value))
    return found


def render() -> str:
    from pravega_wire.protocol.commands import COMMANDS, RELEASES, field_specs

    texts = descriptions(SOURCE.read_text())
    rows, sections = [], []
    for code in sorted(COMMANDS):
        command = COMMANDS[code]
        name = command.__name__
        specs = field_specs(command)
        missing = [each.name for each in specs if each.name not in texts[name]]
        if missing:
            raise SystemExit(f"{name} in {SOURCE}: no description below {', '.join(missing)}")
        fields = [f"`{_field(each.name, each.kind, each.optional, each.default)}`" for each in specs]
        rows.append(f"| {code} | [{name}](#{name.lower()}) | {command.DIRECTION} | {', '.join(fields)} |")
        since = f", since {RELEASES[command.SINCE][0]}" if command.SINCE else ""
        section = [
            f"### {name}",
            "",
            f"Code {code}, {SENDERS[command.DIRECTION]}{since}. {_markdown(command.__doc__ or '')}",
            "",
        ]
        if specs:
            section += ["| field | type | meaning |", "|---|---|---|"]
            for each in specs:
                kind = f"`{each.kind}`" + (f", optional ({each.default!r})" if each.optional else "")
                section.append(f"| `{each.name}` | {kind} | {texts[name][each.name]} |")
            section.append("")
        sections.append("\n".join(section))
    return HEAD + "\n".join(rows) + "\n\n## Each command\n\n" + "\n".join(sections)


def main() -> int:
    wanted = render()
    if "--check" in sys.argv[1:]:
        if not TARGET.exists() or TARGET.read_text() != wanted:
            print(f"{TARGET} is out of date: run scripts/gen_protocol_docs.py", file=sys.stderr)
            return 1
        print(f"{TARGET.name} is up to date")
        return 0
    TARGET.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    raise SystemExit(main())
