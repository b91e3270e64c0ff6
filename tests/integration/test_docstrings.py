"""The examples in docstrings, run on a server: those of the async client and of both facades."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest
import trio

import pravega_wire
from pravega_wire import KeyValueTableConfiguration, PravegaConfig, aio, sync
from pravega_wire.testing import SchemaRegistryServer
from tests.docstrings import documented, examples

REGISTRY = "http://localhost:9092"
STREAMS = {"readings": 4, "images": 1, "settings": 1, "counter": 1}


def programs(module: ModuleType, scope: str) -> dict[str, str]:
    """The examples of a package by their code, which uses this scope, with the names that have them.

    Those that connect to a secured cluster, or to a schema registry, are left out.
    """
    found: dict[str, str] = {}
    for name, doc in documented(module):
        for code in examples(doc):
            if "tls://" not in code and REGISTRY not in code:
                found.setdefault(re.sub(r"\bdemo\b", scope, code), name)
    return found


def prepare(config: PravegaConfig) -> None:
    """Create what the examples use."""
    with sync.open_client(config) as client:
        for name, segments in STREAMS.items():
            client.create_stream(name, segments)
        with client.event_writer("readings") as writer:
            writer.write_events([b"20.0"] * 100)
        with client.byte_stream_writer("images") as images:
            images.write(b"some bytes")
        client.create_key_value_table("limits", KeyValueTableConfiguration(4, 8, 0))


def compiled(code: str, name: str) -> CodeType:
    found: CodeType = compile(
        code, f"the example of {name}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
    )
    return found


def names(module: ModuleType, client: object) -> dict[str, Any]:
    """What examples take for granted: a client, and the public names."""
    public = {name: getattr(pravega_wire, name) for name in pravega_wire.__all__}
    return public | {name: getattr(module, name) for name in module.__all__} | {
        "__name__": __name__, "client": client, "dataclass": dataclass,
    }  # fmt: skip


async def awaited(code: str, name: str, known: dict[str, Any]) -> None:
    """Run code with top-level ``await``."""
    result = FunctionType(compiled(code, name), known)()
    if inspect.iscoroutine(result):
        await result


async def run_in_trio(codes: dict[str, str], config: PravegaConfig) -> None:
    async with pravega_wire.open_client(config) as client:
        for code, name in codes.items():
            await awaited(code, name, names(pravega_wire, client))


async def run_in_asyncio(codes: dict[str, str], config: PravegaConfig) -> None:
    async with aio.open_client(config) as client:
        for code, name in codes.items():
            await awaited(code, name, names(aio, client))


def test_the_example_of_the_schema_registry_runs(
    pravega_schema_registry: SchemaRegistryServer, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = examples(sync.SchemaRegistry.__doc__)
    with sync.SchemaRegistry(pravega_schema_registry.uri) as registry:
        registry.delete_group("readings")
    exec(compiled(code.replace(REGISTRY, pravega_schema_registry.uri), "SchemaRegistry"), {})
    assert capsys.readouterr().out.endswith('{"celsius":21.5}\'\n')


@pytest.mark.smoke
@pytest.mark.parametrize("module", [pravega_wire, sync, aio], ids=lambda module: module.__name__)
def test_the_examples_in_docstrings_run(
    module: ModuleType, config: PravegaConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Some write files.
    monkeypatch.chdir(tmp_path)
    scope = config.scope
    assert scope is not None
    prepare(config)
    codes = programs(module, scope)
    [whole] = [code for code in codes if "import open_client" in code]
    del codes[whole]
    exec(compiled(whole.replace("tcp://localhost:9090", str(config.controller_uri)), "open_client"), {})
    if module is pravega_wire:
        trio.run(run_in_trio, codes, config)
    elif module is aio:
        asyncio.run(run_in_asyncio(codes, config))
    else:
        with sync.open_client(config) as client:
            for code, name in codes.items():
                exec(compiled(code, name), names(sync, client))
