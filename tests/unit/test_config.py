"""Where settings come from, and that secrets stay where they are."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

from pravega_wire import Credentials, PravegaConfig, ScopedStream
from pravega_wire.errors import InvalidArgumentError

ENV = {"PRAVEGA_CONTROLLER_URI": "tcp://environment:1", "PRAVEGA_SCOPE": "environment"}
PROPS = {"pravega.controller.uri": "tcp://property:2", "pravega.scope": "property"}


def test_argument_then_property_then_environment_then_default() -> None:
    make = PravegaConfig.from_defaults
    assert make(controller_uri="tcp://a:3", props=PROPS, env=ENV).controller_uri == "tcp://a:3"
    assert make(props=PROPS, env=ENV).controller_uri == "tcp://property:2"
    assert make(env=ENV).controller_uri == "tcp://environment:1"
    assert make(env={}).controller_uri == "tcp://localhost:9090"
    assert make(scope="argument", props=PROPS, env=ENV).default_scope == "argument"
    assert make(props=PROPS, env=ENV).default_scope == "property"
    assert make(env=ENV).default_scope == "environment"
    assert make(env={}).default_scope is None


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAVEGA_CONTROLLER_URI", "tcp://somewhere:7")
    assert PravegaConfig.from_defaults().controller_uri == "tcp://somewhere:7"


def test_default_scope_applies_to_a_bare_name_only() -> None:
    config = PravegaConfig.from_defaults(scope="d", env={})
    assert config.resolve("stream") == ScopedStream("d", "stream")
    assert config.resolve("s/stream") == ScopedStream("s", "stream")
    with pytest.raises(InvalidArgumentError, match="scope"):
        PravegaConfig.from_defaults(env={}).resolve("stream")


@pytest.mark.parametrize("name", ["", "a b", "a/b/c", "sc*pe/s", "s/ü"])
def test_illegal_names_are_quoted(name: str) -> None:
    with pytest.raises(InvalidArgumentError):
        PravegaConfig.from_defaults(scope="d", env={}).resolve(name)


def test_immutable_and_picklable_and_silent_about_secrets() -> None:
    config = PravegaConfig.from_defaults(scope="d", credentials=Credentials.basic("user", "hunter2"), env={})
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.controller_uri = "tcp://x:1"  # type: ignore[misc]  # that is what is tested
    assert pickle.loads(pickle.dumps(config)) == config
    token = config.credentials.token if config.credentials else ""
    for text in (repr(config), str(config), repr(config.credentials)):
        assert "hunter2" not in text
        assert token not in text


@pytest.mark.parametrize(
    ("uri", "endpoints", "tls"),
    [
        ("localhost:9090", (("localhost", 9090),), False),
        ("tcp://a:1,b:2", (("a", 1), ("b", 2)), False),
        ("tls://a:1", (("a", 1),), True),
        ("pravegas://[::1]:5", (("::1", 5),), True),
    ],
)
def test_controller_uris(uri: str, endpoints: tuple[tuple[str, int], ...], tls: bool) -> None:
    config = PravegaConfig.from_defaults(controller_uri=uri, env={})
    assert tuple(config.endpoints) == endpoints
    assert config.tls_enabled is tls


@pytest.mark.parametrize("uri", ["http://a:1", "tcp://", "tcp://a:port", "tcp://a:70000"])
def test_a_bad_controller_uri_is_quoted(uri: str) -> None:
    with pytest.raises(InvalidArgumentError, match="controller URI"):
        _ = PravegaConfig.from_defaults(controller_uri=uri, env={}).endpoints


def test_a_bad_property_is_named() -> None:
    with pytest.raises(InvalidArgumentError, match=r"validate-hostname"):
        PravegaConfig.from_defaults(props={"pravega.client.tls.validate-hostname": "perhaps"}, env={})
