"""The examples in docstrings: literal blocks after ``Example::``."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType


def examples(text: str | None) -> list[str]:
    """The code of the examples in a docstring."""
    found = []
    lines = inspect.cleandoc(text or "").splitlines()
    for number, line in enumerate(lines):
        if line == "Example::":
            code = []
            for each in lines[number + 1 :]:
                if each and not each.startswith(" "):
                    break
                code.append(each)
            found.append(inspect.cleandoc("\n".join(["", *code])))
    return found


def documented(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Every docstring of a package's public classes, methods and functions, with its name."""
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            yield name, value.__doc__ or ""
        if inspect.isclass(value):
            for member, found in inspect.getmembers(value):
                if not member.startswith("_"):
                    yield f"{name}.{member}", getattr(found, "__doc__", None) or ""
