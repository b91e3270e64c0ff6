"""The generated facades have everything of the async classes: names, parameters, types, documentation."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import pravega_wire
from pravega_wire import aio, sync
from pravega_wire._public import home_of
from tests.docstrings import documented, examples

ROOT = Path(__file__).resolve().parents[2]


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gen_facades", ROOT / "scripts" / "gen_facades.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


GENERATOR = generator()

HANDLES = [
    cls
    for name in pravega_wire.__all__
    if GENERATOR.is_handle(cls := getattr(pravega_wire, name)) and not hasattr(cls, "__dataclass_fields__")
]
"""The public classes whose objects do things that are awaited, found without the generator's walk."""

DIFFERENT = {"ByteStreamReader", "ByteStreamWriter"}
"""Files in the blocking client, so their methods have other names."""
MORE = {
    # On trio, the block of open_client closes a client, and functions over it are simply called.
    "PravegaClient": {"aclose", "run"},
    # Python has no asynchronous mappings.
    "KeyValueTable": {"mapping", "mapping_of_pairs"},
    "TableFamily": {"mapping"},
}
"""Methods that the facades have beside those of the async classes."""


def members(cls: type) -> dict[str, Any]:
    found = {}
    for name in dir(cls):
        value = inspect.getattr_static(cls, name)
        if name.startswith("_") or isinstance(value, classmethod):
            continue
        if inspect.isfunction(value) or isinstance(value, property):
            found[name] = value
    if "aclose" in found and "close" in found and "aclose" in (found["close"].__doc__ or ""):
        del found["close"]
    return found


def words(text: str | None) -> list[str]:
    """The words of a text, without its examples and without the words that only async code has."""
    prose = GENERATOR.paragraphs(inspect.cleandoc(text or ""))
    joined = "\n".join("\n".join(lines) for is_code, lines in prose if not is_code).replace("Example::", "")
    found = re.findall(r"\w+", re.sub(r":ivar .*", "", joined, flags=re.DOTALL))
    return ["close" if each == "aclose" else each for each in found if each not in ("async", "await")]


def annotation(text: object) -> str:
    """A type, with what is otherwise in the facades."""
    result = str(text).strip("'\"")
    result = re.sub(r"AsyncGenerator\[(.*), None\]|AsyncIterator\[(.*)\]", r"Items[\1\2]", result)
    result = re.sub(r"(?<!Async)Generator\[(.*), None, None\]", r"Items[\1]", result)
    return re.sub(r"AbstractAsyncContextManager\[(.*)\]", r"\1", result)


def is_async(function: Any) -> bool:
    """Whether its result is awaited; what opens something is an async function in a wrapper."""
    return inspect.iscoroutinefunction(inspect.unwrap(function))


def parameters(function: Any) -> list[tuple[str, Any, Any, str]]:
    return [
        (each.name, each.kind, each.default, annotation(each.annotation))
        for each in list(inspect.signature(function).parameters.values())[1:]
    ]


def test_there_are_classes_to_compare() -> None:
    assert {"PravegaClient", "EventWriter", "Transaction", "KeyValueTable"} <= {
        cls.__name__ for cls in HANDLES
    }


@pytest.mark.parametrize("facade", [sync, aio], ids=lambda facade: facade.__name__)
def test_exports_are_complete(facade: ModuleType) -> None:
    wanted = {cls.__name__ for cls in HANDLES} | {"open_client"}
    assert wanted <= set(facade.__all__)
    assert set(facade.__all__) - wanted <= {"DirectReader", "SchemaRegistry", "TableMapping"}
    for name in facade.__all__:
        assert getattr(facade, name).__module__.startswith(facade.__name__)


@pytest.mark.parametrize(
    ("facade", "cls"),
    [
        (facade, cls)
        for facade in (sync, aio)
        for cls in HANDLES
        if facade is aio or cls.__name__ not in DIFFERENT
    ],
    ids=lambda each: each.__name__,
)
def test_twins_are_alike(facade: ModuleType, cls: type) -> None:
    blocking = facade is sync
    twin = getattr(facade, cls.__name__)
    theirs = members(twin)
    assert words(twin.__doc__) == words(cls.__doc__)
    wanted = members(cls)
    value: Any
    for name, value in wanted.items():
        found: Any = theirs.get("close" if blocking and name == "aclose" else name)
        where = f"{cls.__name__}.{name}"
        assert found is not None, where
        if isinstance(value, property):
            assert isinstance(found, property), where
            assert words(found.__doc__) == words(value.__doc__), where
            value, found = value.fget, found.fget
        else:
            said = value.__doc__ or ""
            if blocking and ":param timeout:" not in said:
                # The blocking methods say it of their time limit.
                said = GENERATOR.CANCELLED.sub("", inspect.cleandoc(said))
            # The time limit, and what is different between threads, may be said between them.
            rest = iter(words(found.__doc__))
            assert all(word in rest for word in words(said)), where
            assert is_async(found) == (is_async(value) and not blocking), where
        ours, given = parameters(value), parameters(found)
        if blocking and is_async(value) and "timeout" not in {each[0] for each in ours}:
            assert given.pop() == ("timeout", inspect.Parameter.KEYWORD_ONLY, None, "float | None"), where
            assert ":param timeout:" in (found.__doc__ or ""), where
        assert [each[:3] for each in ours] == [each[:3] for each in given], where
        assert [each[3] for each in ours] == [each[3] for each in given], where
        assert annotation(inspect.signature(value).return_annotation) == annotation(
            inspect.signature(found).return_annotation
        ), where
    # What a twin has more is an attribute of the async class's objects.
    for name in set(theirs) - set(wanted) - MORE.get(cls.__name__, set()) - {"close"}:
        assert isinstance(theirs[name], property)
        bases = [each for each in cls.__mro__ if home_of(each).startswith("pravega_wire.")]
        assert any(f"self.{name}" in inspect.getsource(sys.modules[home_of(each)]) for each in bases), name


@pytest.mark.parametrize("room", [pravega_wire, sync, aio], ids=lambda room: room.__name__)
def test_ranges_have_one_reader_and_batches_one_type(room: ModuleType) -> None:
    def returns(cls: type, name: str) -> str:
        return str(inspect.signature(getattr(cls, name)).return_annotation)

    for name in ("read_range", "read_ranges", "read_events"):
        assert returns(room.PravegaClient, name) == "RangesReader"
    for cls in (room.RangesReader, room.EventReader, room.StreamFollower):
        assert returns(cls, "next_batch") == "EventBatch | None"


def test_help_of_the_blocking_client_says_as_much() -> None:
    for facade in (sync, aio):
        doc = facade.PravegaClient.segment_ranges.__doc__
        original = pravega_wire.PravegaClient.segment_ranges.__doc__
        assert doc is not None
        assert original is not None
        assert len(inspect.cleandoc(doc)) >= len(inspect.cleandoc(original))
        assert ":raises InvalidStreamCutError:" in doc


def test_the_state_after_a_cancelled_call_is_that_after_a_time_limit() -> None:
    state = "the written events stay queued"
    assert f"If this call is cancelled, {state}" in (pravega_wire.EventWriter.flush.__doc__ or "")
    assert f"If this call is cancelled, {state}" in (aio.EventWriter.flush.__doc__ or "")
    blocking = sync.EventWriter.flush.__doc__ or ""
    assert f":param timeout: seconds. If the limit is reached, {state}" in blocking
    assert "cancelled" not in blocking


@pytest.mark.parametrize("facade", [sync, aio], ids=lambda facade: facade.__name__)
def test_open_client_is_alike(facade: ModuleType) -> None:
    ours = inspect.signature(pravega_wire.open_client).parameters
    theirs = inspect.signature(facade.open_client).parameters
    assert [(each.name, each.kind, each.default) for each in ours.values()] == [
        (each.name, each.kind, each.default) for each in theirs.values()
    ]


def test_a_facade_that_was_edited_is_out_of_date(monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT / "pravega_wire" / "aio" / "client.py"
    monkeypatch.setattr(GENERATOR, "render", lambda: {path: path.read_text() + "\n"})
    monkeypatch.setattr(sys, "argv", ["gen_facades.py", "--check"])
    assert GENERATOR.main() == 1
    monkeypatch.setattr(GENERATOR, "render", lambda: {path: path.read_text()})
    assert GENERATOR.main() == 0


@pytest.mark.parametrize("module", [pravega_wire, sync, aio], ids=lambda module: module.__name__)
def test_examples_are_code_of_their_facade(module: ModuleType) -> None:
    found = [(name, code) for name, doc in documented(module) for code in examples(doc)]
    assert len(found) >= 15
    for name, code in found:
        compile(code, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if module is not sync else 0)
        if module is sync:
            assert not re.search(r"\b(async|await|trio|asyncio)\b", code), name
        if module is aio:
            assert "trio" not in code, name
        assert ("pravega_wire import open_client" in code) is (
            module is pravega_wire and name == "open_client"
        )


@pytest.mark.parametrize("facade", [sync, aio], ids=lambda facade: facade.__name__)
def test_the_facades_have_the_examples(facade: ModuleType) -> None:
    ours = {name for name, doc in documented(pravega_wire) if examples(doc)}
    theirs = {name for name, doc in documented(facade) if examples(doc)}
    shared = {each for each in ours if hasattr(facade, each.partition(".")[0])}
    assert {"open_client", "PravegaClient", "EventWriter", "Transaction"} <= shared
    missing = {each for each in shared - theirs if each.partition(".")[0] not in DIFFERENT}
    assert missing == set()


DOC = """Read it.

More about ``await`` in one task::

    async with a.b() as c:

        await c.aclose()

Example::

    import trio
    from pravega_wire import open_client

    trio.run(main)

:param x: a task.
"""


def test_the_code_of_a_docstring_is_rewritten_and_kept_in_shape() -> None:
    blocking = GENERATOR.facade_words(DOC, "sync")
    assert "one task::\n\n    with a.b() as c:\n\n        c.close()\n\nExample" in blocking
    assert "Example::\n\n    from pravega_wire.sync import open_client\n\n    main()\n\n" in blocking
    assert blocking.endswith(":param x: a task.")
    other = GENERATOR.facade_words(DOC, "aio")
    assert "async with a.b() as c:\n\n        await c.aclose()" in other
    assert (
        "    import asyncio\n    from pravega_wire.aio import open_client\n\n    asyncio.run(main())" in other
    )
    noted = GENERATOR.with_notes(blocking, "A note.", "seconds.")
    assert "A note.\n\nExample::\n" in noted
    assert noted.endswith(":param x: a task.\n:param timeout: seconds.")
    source = GENERATOR.indented(noted, "        ")
    assert "            with a.b() as c:\n\n                c.close()\n" in source


def test_code_that_cannot_be_rewritten_is_refused() -> None:
    with pytest.raises(SystemExit, match="trio"):
        GENERATOR.facade_words("Example::\n\n    trio.open_nursery()\n", "sync")


@pytest.mark.parametrize(
    ("facade", "foreign"),
    [("sync", r"\b(async (with|for)|await [a-z]|aclose|tasks?|trio|asyncio)\b"), ("aio", r"\btrio\b")],
)
def test_no_documentation_speaks_of_another_world(facade: str, foreign: str) -> None:
    source = (ROOT / "pravega_wire" / facade / "client.py").read_text()
    docs = re.findall(r'"""(.*?)"""', source, re.DOTALL)
    assert len(docs) > 200
    assert [each for each in docs if re.search(foreign, each)] == []


def test_the_walk_finds_every_public_class() -> None:
    """The generator follows what the client's methods return."""
    found = GENERATOR.Classes(GENERATOR.Source())
    assert {cls.__name__ for cls in HANDLES} <= {cls.__name__ for cls in found.handles}
