"""How the site shows what a page's Markdown does not say: output, prompts, and long names in tables."""

from __future__ import annotations

import re

_OUTPUT = re.compile(r"<!-- output\b[^>]*-->\s*$")
_PROMPT = re.compile(r" *```text\n *\$ ")
_CELL = re.compile(r"<t[dh][ >].*?</t[dh]>", re.DOTALL)
_NAME = re.compile(r"(?<=<code>)[^<]+(?=</code>)")
# After a mark within a name, before a bracket, and at blanks. "config.py" is one word.
_WORDS = re.compile(r"(?<=\w[/.:=_])(?=\w{3}|[{(-])|(?<=\w)(?=\()|( +)")


def block(text: str, before: str) -> str:
    """A fenced block, by what is before it and in it.

    What a block printed is of the class ``output``, without a button to copy it. A session at a terminal is
    in the language ``console``, so that its prompts are known.
    """
    if _OUTPUT.search(before):
        return output(text)
    return text.replace("```text", "```console", 1) if _PROMPT.match(text) else text


def output(text: str) -> str:
    """A block of output, with other marks for what the tests do not compare than they have."""
    opening, *lines, closing = text.split("\n")
    while lines and lines[0].strip() == "...":
        del lines[0]
    while lines and lines[-1].strip() == "...":
        del lines[-1]
    lines = [line.replace("...", "⋮" if line.strip() == "..." else "…") for line in lines]
    indent, _, language = opening.partition("```")
    return "\n".join([f"{indent}```{{.{language.split()[0]} .output .no-copy}}", *lines, closing])


def cells(html: str) -> str:
    """A page whose tables break between the words of names, and not within them."""
    return _CELL.sub(lambda cell: _NAME.sub(lambda name: breakable(name[0]), cell[0]), html)


def breakable(name: str) -> str:
    """A name in HTML with ``<wbr>`` between its words, each of which is a ``<span>``."""
    parts = filter(None, _WORDS.split(name))
    marked = "<wbr>".join(part if part.isspace() else f"<span>{part}</span>" for part in parts)
    return re.sub(r"<wbr>( +)<wbr>", r"\1", marked)
