#!/usr/bin/env python3
"""Generate the blocking client of the schema registry from the async one; ``--check`` compares only.

The async client waits only where it says ``await``, so dropping these words makes it blocking.
"""

from __future__ import annotations

import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "pravega_wire" / "schemas"
SOURCE = PACKAGE / "client.py"
RESULT = PACKAGE / "blocking.py"

WORDS = (
    (
        '"""The client of the schema registry for trio and asyncio.\n\n'
        "``scripts/gen_blocking_schemas.py`` makes the blocking client from this module.\n",
        '"""The blocking client of the schema registry.\n\n'
        "``scripts/gen_blocking_schemas.py`` makes it from ``client.py``.\n",
    ),
    (
        "for programs on trio or asyncio; in one event loop at a time.",
        "for blocking programs; threads may share it.",
    ),
    (
        """        import trio
        from pravega_wire.schemas import JsonSchema, SchemaRegistry

        async def main():
            async with SchemaRegistry("http://localhost:9092") as registry:
                await registry.create_group("readings")
                schema = JsonSchema("reading", {"type": "object"})
                serializer = await registry.serializer("readings", schema, register_schema=True)
                print(serializer.serialize({"celsius": 21.5}))

        trio.run(main)
""",
        """        from pravega_wire.schemas import BlockingSchemaRegistry, JsonSchema

        with BlockingSchemaRegistry("http://localhost:9092") as registry:
            registry.create_group("readings")
            schema = JsonSchema("reading", {"type": "object"})
            serializer = registry.serializer("readings", schema, register_schema=True)
            print(serializer.serialize({"celsius": 21.5}))
""",
    ),
    ("async def ", "def "),
    ("await ", ""),
    ("aclose", "close"),
    ("__aenter__", "__enter__"),
    ("__aexit__", "__exit__"),
    ("AsyncTransport", "BlockingTransport"),
    ('"SchemaRegistry"', '"BlockingSchemaRegistry"'),
    ("class SchemaRegistry:", "class BlockingSchemaRegistry:"),
    ('f"SchemaRegistry(', 'f"BlockingSchemaRegistry('),
)


def blocking(text: str) -> str:
    """Return the blocking client's source for the async one's.

    :raises ValueError: a part that has to be replaced is not there.
    """
    for old, new in WORDS:
        if old not in text:
            raise ValueError(f"{SOURCE.name} does not contain {old!r}")
        text = text.replace(old, new)
    return text


def main() -> int:
    text = blocking(SOURCE.read_text(encoding="utf-8"))
    if "--check" in sys.argv[1:]:
        if RESULT.read_text(encoding="utf-8") == text:
            return 0
        print(f"{RESULT.name} is out of date: run scripts/gen_blocking_schemas.py", file=sys.stderr)
        return 1
    RESULT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
