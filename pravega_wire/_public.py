"""Makes public names show the module from which users import them, not the one that defines them.

Not public.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from inspect import get_annotations
from types import FunctionType
from typing import Any, get_type_hints

__all__ = ["home_of", "publish"]

_homes: dict[type, str] = {}


def publish(
    package: str, names: Iterable[str], *, defined: str | None = None, but: Iterable[str] = ()
) -> None:
    """Set the module of a package's public classes and functions to that package.

    ``repr``, documentation and pickles then name the package, so a class may move to another module.

    :param package: full name of the package.
    :param names: the public names of the package (``__all__``).
    :param defined: the module that has the names. Default: the package; the names of :mod:`pravega_wire` are
        published before, as every package hands out their objects.
    :param but: modules that are public themselves; names from them are not changed.
    """
    if defined is None:
        import_module("pravega_wire._names")
    namespace: Mapping[str, Any] = vars(sys.modules[defined or package])
    kept = frozenset(but)
    for name in names:
        value = namespace[name]
        module = getattr(value, "__module__", None)
        if not isinstance(value, type | FunctionType) or module == package or module in kept:
            continue
        if isinstance(value, type):
            _homes[value] = value.__module__
            own = get_annotations(value)
            if own:
                # Annotations are texts, which can be evaluated only in the module that defines the class.
                hints = get_type_hints(value, include_extras=True)
                value.__annotations__ = {each: hints[each] for each in own}
        value.__module__ = package


def home_of(cls: type) -> str:
    """Return the full name of the module that defines a class."""
    return _homes.get(cls, cls.__module__)
