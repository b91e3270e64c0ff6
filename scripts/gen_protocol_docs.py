#!/usr/bin/env python3
"""Writes ``docs/protocol-commands.md`` from the declarative source; ``--check`` only compares."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "protocol-commands.md"

HEAD = """# Wire commands

Generated from `pravega_wire/protocol/commands.py` by `scripts/gen_protocol_docs.py`; do not edit.
Direction: C client to server, S server to client. A `?` marks an optional trailing field with what
a reader takes for a missing one. Types: `utf` is Java's modified UTF-8 with a two-byte count, `raw` is
the rest of the body, names in capitals are nested layouts (`pravega_wire/protocol/specs.py`).

| code | command | direction | fields |
|---|---|---|---|
"""


def render() -> str:
    from pravega_wire.protocol.commands import COMMANDS, field_specs

    lines = []
    for code in sorted(COMMANDS):
        command = COMMANDS[code]
        fields = []
        for each in field_specs(command):
            text = f"{each.name}: {each.kind}"
            if each.optional:
                text += f"? ({each.default!r})"
            fields.append(f"`{text}`")
        lines.append(f"| {code} | {command.__name__} | {command.DIRECTION} | {', '.join(fields)} |")
    return HEAD + "\n".join(lines) + "\n"


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
