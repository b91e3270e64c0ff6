"""What is public is written down once, and everything else says that it is not."""

from __future__ import annotations

import ast
import inspect
import pickle
import re
import subprocess
import sys
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import get_type_hints
from uuid import uuid4

import pytest
import trio

import pravega_wire
import spark_adapter
from pravega_wire import (
    Ack,
    Credentials,
    PravegaConfig,
    SegmentRange,
    aio,
    archive,
    dissect,
    ingest,
    open_client,
    schemas,
    sync,
    testing,
)
from pravega_wire._public import home_of
from pravega_wire.errors import ClosedError, ConnectError
from pravega_wire.protocol.append import fail
from pravega_wire.stream.client import PravegaClient
from pravega_wire.stream.event_writer import EventWriter
from pravega_wire.values.types import ScopedStream

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "public.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## `([\w.]+)`\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
WITHOUT_NAMES = {"pravega_wire.protocol.commands"}
"""Its names have a page of their own."""
PACKAGES = (pravega_wire, sync, aio, archive, dissect, ingest, schemas, testing)
CLASSES = [
    pytest.param(package, value, id=f"{package.__name__}.{name}")
    for package in PACKAGES
    for name in package.__all__
    if inspect.isclass(value := getattr(package, name))
]


@pytest.mark.parametrize("module", SECTIONS)
def test_the_page_has_the_names_that_a_module_exports(module: str) -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", SECTIONS[module], re.MULTILINE)
    exported = () if module in WITHOUT_NAMES else import_module(module).__all__
    assert sorted(name for name, _ in rows) == sorted(exported)
    assert all(len(text) > 5 and text.endswith(".") for _, text in rows)


def test_the_page_has_what_documents_and_examples_import() -> None:
    programs = [
        program
        for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
        for program in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    ]
    assert len(programs) > 20
    used = set()
    for program in programs:
        for found in re.findall(
            r"^(?:from|import) ((?:pravega_wire|spark_adapter)[\w.]*)", program, re.MULTILINE
        ):
            used.add(found)
    assert used <= set(SECTIONS)


def marked(path: Path) -> bool:
    return "Not public" in (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")


def test_every_other_module_says_that_it_is_not_public() -> None:
    package = ROOT / "pravega_wire"
    for path in package.iterdir():
        if path.suffix == ".py" and path.stem != "__init__":
            name, source = f"pravega_wire.{path.stem}", path
        elif (path / "__init__.py").is_file():
            name, source = f"pravega_wire.{path.name}", path / "__init__.py"
        else:
            continue
        assert (name in SECTIONS) != marked(source), name


@pytest.mark.parametrize(("package", "cls"), CLASSES)
def test_classes_say_where_users_find_them(package: object, cls: type) -> None:
    public = cls.__module__
    assert public in SECTIONS
    assert getattr(import_module(public), cls.__name__) is cls
    assert pickle.loads(pickle.dumps(cls)) is cls
    # Where it is written is still known, and so is what its annotations mean.
    assert hasattr(import_module(home_of(cls)), cls.__name__)
    get_type_hints(cls)


def test_the_names_are_loaded_when_they_are_used() -> None:
    program = """
import sys, pickle, pravega_wire, pravega_wire.pytest_plugin
from pravega_wire import errors
assert not {"trio", "h2", "google.protobuf", "pravega_wire._names"} & sys.modules.keys()
import pravega_wire.sync
from pravega_wire.values.types import ScopedStream
assert ScopedStream.__module__ == "pravega_wire", ScopedStream
assert {"open_client", "StreamCut", "errors"} <= {*dir(pravega_wire)}
from pravega_wire import *
assert open_client is pravega_wire.open_client and ScopedStream is pravega_wire.ScopedStream
assert errors.ClosedError.__module__ == "pravega_wire.errors" and "ClosedError" in dir(errors)
for module in (pravega_wire, errors):
    assert not hasattr(module, "Nothing") and not hasattr(module, "nothing")
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
    cut = pravega_wire.StreamCut(ScopedStream("a", "b"), {0: 1})
    load = "import pickle, sys; print(pickle.load(sys.stdin.buffer).to_text())"
    done = subprocess.run(
        [sys.executable, "-c", load], cwd=ROOT, input=pickle.dumps(cut), capture_output=True, check=True
    )
    assert done.stdout.decode().strip() == cut.to_text()


def test_spark_finds_its_classes() -> None:
    assert all(hasattr(spark_adapter, name) for name in spark_adapter.__all__)
    assert set(spark_adapter.__all__) <= set(dir(spark_adapter))


# --- what handles say of themselves ---------------------------------------------------------------


@pytest.mark.parametrize(
    "cls",
    [
        value
        for name in pravega_wire.__all__
        if inspect.isclass(value := getattr(pravega_wire, name))
        and not issubclass(value, Enum | Exception)
        and not name.endswith("Serializer")
    ],
)
def test_every_class_has_a_repr(cls: type) -> None:
    assert cls.__repr__ is not object.__repr__


async def test_handles_show_their_state_and_no_secret() -> None:
    config = PravegaConfig(
        controller_uri="tcp://127.0.0.1:1",
        scope="s",
        credentials=Credentials.basic("user", "hunter2"),
    )
    async with open_client(config) as client:
        assert repr(client) == "<PravegaClient of tcp://127.0.0.1:1, open>"
        writer = client.event_writer("t")
        assert repr(writer) == "<EventWriter of s/t, not opened, 0 of 0 events stored>"
        resumable = client.resumable_writer("t", uuid4())
        assert repr(resumable).startswith("<ResumableWriter of s/t, not opened")
        bytes_out, bytes_in = client.byte_stream_writer("t"), client.byte_stream_reader("t")
        assert repr(bytes_out) == "<ByteStreamWriter of s/t, not opened, 0 bytes not stored yet>"
        assert repr(bytes_in) == "<ByteStreamReader of s/t, not opened>"
        range_ = SegmentRange(ScopedStream("s", "t"), 0, 0, 9)
        readers = (client.read_range(range_), client.read_events("t"), client.read_ranges([range_]))
        assert [repr(each) for each in readers] == ["<RangesReader, not begun>"] * 3
        opened = client.begin_transaction("t")
        assert repr(opened) == "<Opening by PravegaClient.begin_transaction>"
        with trio.CancelScope() as scope:
            scope.cancel()
            await opened
        for each in (writer, resumable, bytes_out, bytes_in, *readers):
            await each.aclose()
            assert "closed" in repr(each)
    assert repr(client) == "<PravegaClient of tcp://127.0.0.1:1, closed>"
    assert config.credentials is not None
    for shown in map(repr, (client, writer, bytes_out, client.config)):
        assert "hunter2" not in shown
        assert config.credentials.token not in shown


def test_acknowledgements_show_their_state() -> None:
    pending, done, failed = Ack(), Ack(0), Ack()
    fail(failed, ConnectError("no connection"))
    assert [repr(each) for each in (pending, done, failed)] == [
        "<Ack pending>",
        "<Ack done>",
        "<Ack failed: ConnectError>",
    ]


def test_classes_show_their_package() -> None:
    assert repr(PravegaClient) == "<class 'pravega_wire.PravegaClient'>"
    assert repr(EventWriter) == "<class 'pravega_wire.EventWriter'>"
    assert repr(ClosedError) == "<class 'pravega_wire.errors.ClosedError'>"
    assert repr(sync.PravegaClient) == "<class 'pravega_wire.sync.PravegaClient'>"
