"""Docstrings are written for Sphinx; mkdocstrings renders Markdown. This rewrites the one as the other.

A griffe extension, which ``mkdocs.yml`` names. Roles such as ``:class:`Ack` `` become links to the reference
where it has what they name, literal blocks become code blocks, and files of ``docs/`` become links.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any

import griffe
import reference

Resolve = Callable[[str], str | None]

_ROLE = re.compile(r":(?:py:)?\w+:`(~?)([^`<]+?)(?:\s*<([^`>]+)>)?`")
_PAGE = re.compile(r"``docs/([\w/-]+)\.md(, \"[^`]*\")?``")
_FIELD_BEGINS = re.compile(r":(?:param|ivar|raises|returns)\b[^:`]*:")


def markdown(text: str, resolve: Resolve, page: Callable[[str], str | None]) -> str:
    """A docstring in Markdown; fields stay, each on a line of its own.

    :param resolve: full public name of what a role names, or None.
    :param page: address of a page of ``docs/`` from where this is shown, or None.
    """
    shown, fenced = [], False
    for line in _fields_last(list(_literals_as_code(text.split("\n")))):
        fenced ^= line.lstrip().startswith("```")
        if not fenced:
            line = _ROLE.sub(lambda found: _link(found, resolve), line)
            line = _PAGE.sub(lambda found: _page_link(found[1], page) + (found[2] or ""), line)
        shown.append(line)
    return "\n".join(shown)


def _fields_last(lines: list[str]) -> list[str]:
    """The lines with all fields at the end, as mkdocstrings takes what follows a field for a part of it."""
    described: list[str] = []
    fields: list[str] = []
    in_field = after_blank = False
    for line in lines:
        if line.startswith(":") and _FIELD_BEGINS.match(line):
            in_field = True
        elif in_field and after_blank and line.strip() and not line.startswith(" "):
            in_field = False
        after_blank = not line.strip()
        (fields if in_field else described).append(line)
    return [*described, "", *fields] if fields else described


def _link(found: re.Match[str], resolve: Resolve) -> str:
    short, shown, target = found.groups()
    name = (target or shown).strip().removesuffix("()")
    text = shown.rpartition(".")[2] if short else shown
    public = resolve(name)
    return f"`{text}`" if public is None else f"[`{text}`][{public}]"


def _page_link(name: str, page: Callable[[str], str | None]) -> str:
    address = page(name)
    return f"`docs/{name}.md`" if address is None else f"[{PurePosixPath(name).name}]({address})"


def _literals_as_code(lines: list[str]) -> Iterator[str]:
    """The lines, with each literal block after ``::`` fenced as Python."""
    waiting = iter(range(len(lines)))
    for number in waiting:
        line = lines[number]
        indent = len(line) - len(line.lstrip())
        after = number + 1
        while after < len(lines) and not lines[after].strip():
            after += 1
        inside = after < len(lines) and len(lines[after]) - len(lines[after].lstrip()) > indent
        if not (line.rstrip().endswith("::") and inside and after > number + 1):
            yield line
            continue
        if line.strip() != "::":
            yield line.rstrip()[:-1]
        end = after
        while end < len(lines) and (
            not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) > indent
        ):
            end += 1
        block = lines[after:end]
        while block and not block[-1].strip():
            block.pop()
        cut = min(len(each) - len(each.lstrip()) for each in block if each.strip())
        yield ""
        yield f"{' ' * indent}```python"
        yield from (f"{' ' * indent}{each[cut:]}".rstrip() for each in block)
        yield f"{' ' * indent}```"
        yield ""
        for _ in range(end - number - 1):
            next(waiting)


class Docstrings(griffe.Extension):  # type: ignore[misc]
    """Rewrites every docstring of the packages once all of them are loaded."""

    def __init__(self) -> None:
        self._shown = {
            f"{module}.{name}" for module, names in reference.public_names().items() for name in names
        }

    def on_package(self, *, pkg: Any, loader: Any, **kwargs: Any) -> None:
        """Called by griffe with each package."""
        loader.resolve_aliases(implicit=True)
        self._collection = loader.modules_collection
        # Where something is written -> where it is public.
        self._public: dict[str, str] = {}
        for path in sorted(self._shown, key=lambda each: (each.count("."), each), reverse=True):
            if path.partition(".")[0] == pkg.path:
                try:
                    found = pkg[path.partition(".")[2]]
                    self._public[found.canonical_path] = path
                except (KeyError, griffe.GriffeError):
                    continue
        self._walk(pkg, set())

    def _walk(self, obj: Any, seen: set[str]) -> None:
        if obj.is_alias or obj.path in seen:
            return
        seen.add(obj.path)
        if obj.docstring is not None:
            obj.docstring.value = markdown(
                obj.docstring.value, lambda name: self._resolve(obj, name), _address
            )
            obj.docstring.__dict__.pop("parsed", None)
        for member in list(obj.members.values()):
            self._walk(member, seen)

    def _resolve(self, obj: Any, name: str) -> str | None:
        """The public name of what a role in the docstring of ``obj`` names."""
        first, _, rest = name.partition(".")
        scope = obj
        while scope is not None:
            if (
                scope.is_class
                and name.partition(".")[0] in scope.all_members
                and scope.canonical_path in self._public
            ):
                return f"{self._public[scope.canonical_path]}.{name}"
            scope = scope.parent
        for path in self._candidates(obj, name, first, rest):
            for length in range(path.count("."), -1, -1):
                head = ".".join(path.split(".")[: length + 1])
                tail = path[len(head) :]
                if head in self._public and tail.count(".") <= 1:
                    return f"{self._public[head]}{tail}" if self._has(head, tail) else None
                if head in self._shown and tail.count(".") <= 1:
                    return path if self._has(head, tail) else None
        return None

    def _candidates(self, obj: Any, name: str, first: str, rest: str) -> Iterator[str]:
        yield name
        try:
            found = obj.resolve(first)
            yield f"{found}.{rest}" if rest else found
        except griffe.GriffeError:
            pass
        # A name that the module does not import: most are exported by the package.
        for module in ("pravega_wire", "pravega_wire.errors", "spark_adapter"):
            yield f"{module}.{name}"

    def _has(self, head: str, tail: str) -> bool:
        if not tail:
            return True
        try:
            return tail[1:] in self._collection[head].all_members
        except (KeyError, griffe.GriffeError):
            return False


def _address(name: str) -> str | None:
    """Every page of the reference is two folders below the site's root; ``links.py`` checks the outcome."""
    return f"../../{name}/"
