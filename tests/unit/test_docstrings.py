"""Docstrings have the form that the reference is made from: one field per line, of parameters that exist."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

import pravega_wire

MODULES = (
    "pravega_wire",
    "pravega_wire.sync",
    "pravega_wire.aio",
    "pravega_wire.errors",
    "pravega_wire.serializers",
    "pravega_wire.metrics",
    "pravega_wire.telemetry",
    "pravega_wire.ingest",
    "pravega_wire.archive",
    "pravega_wire.dissect",
    "pravega_wire.testing",
    "spark_adapter",
    "spark_adapter.schemas",
    "spark_adapter.telemetry",
)

WITH_EXAMPLES = (
    "pravega_wire.PravegaClient",
    "pravega_wire.open_client",
    "pravega_wire.EventWriter",
    "pravega_wire.ResumableWriter",
    "pravega_wire.Transaction",
    "pravega_wire.ReaderGroup",
    "pravega_wire.EventReader",
    "pravega_wire.RevisionedStream",
    "pravega_wire.StateSynchronizer",
    "pravega_wire.KeyValueTable",
    "pravega_wire.ByteStreamWriter",
    "pravega_wire.ByteStreamReader",
    "spark_adapter.register",
    "spark_adapter.read_df",
    "spark_adapter.read_rdd",
    "spark_adapter.ForeachBatchSink",
    "spark_adapter.schemas.from_pravega",
    "spark_adapter.schemas.to_pravega",
    "pravega_wire.pytest_plugin.pravega_server",
    "pravega_wire.pytest_plugin.pravega_cluster",
    "pravega_wire.pytest_plugin.pravega_scope",
    "pravega_wire.pytest_plugin.fault_proxy",
)
"""What users enter by or hold: each shows how."""

# A role such as :class:`Ack` has no white space after its colon.
_FIELD = re.compile(r":(param|raises|ivar|cvar|var|returns|return|rtype|type|yields)\b([^:`\n]*):(?=\s|$)")


def unwrapped(value: Any) -> Any:
    value = getattr(value, "_get_wrapped_function", lambda: value)()  # a fixture
    return inspect.unwrap(value.__func__ if isinstance(value, classmethod | staticmethod) else value)


def documented() -> Iterator[tuple[str, Any, Any]]:
    """Everything public that has a docstring: its name, itself, and the class that it is a member of."""
    seen = set()
    for module in MODULES:
        yield module, import_module(module), None
        for name in import_module(module).__all__:
            value = getattr(import_module(module), name)
            if not (inspect.isclass(value) or inspect.isfunction(value)) or id(value) in seen:
                continue
            seen.add(id(value))
            yield f"{module}.{name}", value, None
            if inspect.isclass(value):
                for member in dir(value):
                    if not member.startswith("_"):
                        what = inspect.getattr_static(value, member)
                        what = what.fget if isinstance(what, property) else what
                        if inspect.isfunction(unwrapped(what)) and id(unwrapped(what)) not in seen:
                            seen.add(id(unwrapped(what)))
                            yield f"{module}.{name}.{member}", unwrapped(what), value


PUBLIC = [
    pytest.param(value, text, owner, id=name)
    for name, value, owner in documented()
    if (text := inspect.cleandoc(value.__doc__ or ""))
]


def parameters(value: Any) -> set[str]:
    """Names that ``:param`` may have; the text of a facade's class is that of the class for trio."""
    if inspect.isclass(value) and value.__module__ in ("pravega_wire.sync", "pravega_wire.aio"):
        value = getattr(pravega_wire, value.__name__, value)
    try:
        return set(inspect.signature(unwrapped(value)).parameters) - {"self"}
    except ValueError:
        return set()


@pytest.mark.parametrize(("value", "text", "owner"), PUBLIC)
def test_fields_stand_alone_and_name_what_exists(value: Any, text: str, owner: type | None) -> None:
    named: list[str] = []
    for line in text.split("\n"):
        fields = list(_FIELD.finditer(line))
        assert len(fields) <= 1, f"two fields in a line: {line.strip()}"
        if not fields:
            continue
        kind, argument = fields[0].group(1, 2)
        assert line.lstrip().startswith(":"), f"a field in the middle of a line: {line.strip()}"
        assert "," not in argument, f"a field of several names: {line.strip()}"
        if kind == "param":
            named.append(argument.split()[-1].lstrip("*"))
    if named and not inspect.ismodule(value):
        assert set(named) <= parameters(value), f"no such parameter: {set(named) - parameters(value)}"
    assert len(named) == len(set(named))


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_what_users_hold_has_an_example(name: str) -> None:
    module, _, last = name.rpartition(".")
    text = inspect.cleandoc(unwrapped(getattr(import_module(module), last)).__doc__ or "")
    code = re.findall(r"::\n\n((?:    .*\n?|\n)+)", f"{text}\n")
    assert code, f"no example (Example::, then an indented block) in the docstring of {name}"
    for each in code:
        compile(inspect.cleandoc(f"\n{each}"), name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_helpers_see_what_they_should() -> None:
    names = {each.id for each in PUBLIC}
    assert {"pravega_wire.EventWriter.write_event", "spark_adapter.read_df"} <= names
