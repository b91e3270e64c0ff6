"""Public names say where users find them, not where they are written. Not public."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from types import FunctionType
from typing import Any, get_type_hints

__all__ = ["home_of", "publish"]

_homes: dict[type, str] = {}


def publish(package: str, names: Iterable[str], *, but: Iterable[str] = ()) -> None:
    """Make the classes and functions of a package's ``__all__`` say that they belong to it.

    They show it in ``repr``, in documents and in pickles; so a class may move to another module.

    :param package: full name.
    :param names: of the package.
    :param but: modules that are public themselves: what is from there stays as it is.
    """
    namespace: Mapping[str, Any] = vars(sys.modules[package])
    kept = frozenset(but)
    for name in names:
        value = namespace[name]
        module = getattr(value, "__module__", None)
        if not isinstance(value, type | FunctionType) or module == package or module in kept:
            continue
        if isinstance(value, type):
            _homes[value] = value.__module__
            own = vars(value).get("__annotations__")
            if own:
                # They are texts, which mean something in the module where the class is written only.
                hints = get_type_hints(value, include_extras=True)
                value.__annotations__ = {each: hints[each] for each in own}
        value.__module__ = package


def home_of(cls: type) -> str:
    """Full name of the module in which a class is written."""
    return _homes.get(cls, cls.__module__)
