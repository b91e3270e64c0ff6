"""Where settings come from, and that secrets stay where they are."""

from __future__ import annotations

import argparse
import dataclasses
import pickle
import re
from pathlib import Path

import pytest

from pravega_wire import Credentials, PravegaConfig, ScopedStream
from pravega_wire.errors import InvalidArgumentError
from pravega_wire.values.config import SETTINGS, config_of

ENV = {"PRAVEGA_CONTROLLER_URI": "tcp://environment:1", "PRAVEGA_SCOPE": "environment"}
PROPS = {"pravega.controller.uri": "tcp://property:2", "pravega.scope": "property"}


def test_argument_then_property_then_environment_then_default() -> None:
    make = PravegaConfig.from_defaults
    assert make(controller_uri="tcp://a:3", props=PROPS, env=ENV).controller_uri == "tcp://a:3"
    assert make(props=PROPS, env=ENV).controller_uri == "tcp://property:2"
    assert make(env=ENV).controller_uri == "tcp://environment:1"
    assert make(env={}).controller_uri == "tcp://localhost:9090"
    assert make(scope="argument", props=PROPS, env=ENV).scope == "argument"
    assert make(props=PROPS, env=ENV).scope == "property"
    assert make(env=ENV).scope == "environment"
    assert make(env={}).scope is None


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
        config.controller_uri = "tcp://x:1"  # that is what is tested
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


# What is not here is not a setting with a text form.
TEXTS: dict[str, tuple[str, str, str, object]] = {
    # field: property, environment variable, text, value
    "controller_uri": ("pravega.controller.uri", "PRAVEGA_CONTROLLER_URI", "tls://h:1", "tls://h:1"),
    "scope": ("pravega.scope", "PRAVEGA_SCOPE", "s", "s"),
    "trust_store": ("pravega.client.tls.trust-store", "PRAVEGA_TRUST_STORE", "/ca.pem", "/ca.pem"),
    "validate_hostname": (
        "pravega.client.tls.validate-hostname",
        "PRAVEGA_VALIDATE_HOSTNAME",
        "No",
        False,
    ),
    "max_connections_per_store": (
        "pravega.client.max-connections-per-store",
        "PRAVEGA_MAX_CONNECTIONS_PER_STORE",
        "3",
        3,
    ),
    "controller_deadline": (
        "pravega.client.controller-deadline",
        "PRAVEGA_CONTROLLER_DEADLINE",
        "2.5",
        2.5,
    ),
    "operation_timeout": ("pravega.client.operation-timeout", "PRAVEGA_OPERATION_TIMEOUT", "7", 7.0),
    "schema_registry_uri": (
        "pravega.schema-registry.uri",
        "PRAVEGA_SCHEMA_REGISTRY_URI",
        "http://registry:9092",
        "http://registry:9092",
    ),
}


def test_every_setting_has_a_property_and_a_variable() -> None:
    fields = {each.name for each in dataclasses.fields(PravegaConfig)}
    assert fields == {*TEXTS, "credentials"} == {each.field.partition(".")[0] for each in SETTINGS}
    for each in SETTINGS:
        if each.field in TEXTS:
            assert TEXTS[each.field][:2] == (each.property_key, each.variable)


def settings_table() -> str:
    """The table of settings as the documents show it."""
    lines = [
        "| argument | property (`props`, and Spark's configuration with `spark.` before it) "
        "| environment variable | program argument | default |",
        "|---|---|---|---|---|",
    ]
    for each in SETTINGS:
        argument = f"`{each.argument}`"
        if each.argument != each.field:
            argument += f" (field `{each.field}`)"
        option = "none" if each.option is None else f"`{each.option}`"
        lines.append(
            f"| {argument} | `{each.property_key}` | `{each.variable}` | {option} | {each.default} |"
        )
    return "\n".join(lines) + "\n"


def test_the_documents_show_the_table_of_settings() -> None:
    page = Path(__file__).parents[2] / "docs" / "configuration.md"
    assert settings_table() in page.read_text(encoding="utf-8")


def test_the_programs_in_the_documents_run() -> None:
    page = Path(__file__).parents[2] / "docs" / "configuration.md"
    programs = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert len(programs) == 2
    for program in programs:
        exec(compile(program, str(page), "exec"), {})


def test_the_table_has_the_defaults() -> None:
    for name in TEXTS:
        shown = next(each.default for each in SETTINGS if each.field == name)
        default = getattr(PravegaConfig(), name)
        text = {True: "`true`", None: "none"}.get(
            default, f"{default:g}" if type(default) is float else default
        )
        if name != "trust_store":
            assert str(text) in shown


def option_of(name: str) -> str:
    option = next(each.option for each in SETTINGS if each.field == name)
    assert option is not None
    return option


@pytest.mark.parametrize("name", TEXTS)
def test_every_setting_comes_from_argument_property_or_environment(name: str) -> None:
    key, variable, text, value = TEXTS[name]
    default = getattr(PravegaConfig(), name)
    assert value != default
    for made in (
        PravegaConfig.from_defaults(env={}, props={key: text}),
        PravegaConfig.from_defaults(env={variable: text}),
        PravegaConfig.from_defaults(env={}, **{name: value}),  # type: ignore[arg-type]  # by name
        PravegaConfig.from_arguments([option_of(name), text], env={})[0],
        PravegaConfig.from_arguments(["x", f"{option_of(name)}={text}"], env={variable: "-"})[0],
        dataclasses.replace(PravegaConfig(), **{name: value}),  # type: ignore[arg-type]  # by name
    ):
        assert getattr(made, name) == value
    if default is not None:
        # An argument wins, also one that is false or the default.
        won = PravegaConfig.from_defaults(env={variable: text}, **{name: default})
        assert getattr(won, name) == default


def test_two_schemes_in_one_uri() -> None:
    with pytest.raises(InvalidArgumentError, match=r"write 'tcp://two\.example:9090' without the scheme"):
        PravegaConfig("tcp://one.example:9090,tcp://two.example:9090")
    with pytest.raises(InvalidArgumentError, match="write an IPv6 address in brackets"):
        PravegaConfig("tcp://::1:9090")


def test_an_argument_that_is_false_wins() -> None:
    true = {"PRAVEGA_VALIDATE_HOSTNAME": "true"}
    assert PravegaConfig.from_defaults(validate_hostname=False, env=true).validate_hostname is False
    with pytest.raises(InvalidArgumentError, match="controller URI"):
        PravegaConfig.from_defaults(controller_uri="", env=ENV)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("max_connections_per_store", "three"),
        ("max_connections_per_store", "1.5"),
        ("max_connections_per_store", "0"),
        ("controller_deadline", "soon"),
        ("operation_timeout", "nan"),
        ("operation_timeout", "-1"),
        ("validate_hostname", "perhaps"),
    ],
)
def test_a_malformed_text_is_refused_with_the_setting_s_name(name: str, text: str) -> None:
    key, variable, *_ = TEXTS[name]
    with pytest.raises(InvalidArgumentError, match=name):
        PravegaConfig.from_defaults(env={}, props={key: text})
    with pytest.raises(InvalidArgumentError, match=name):
        PravegaConfig.from_defaults(env={variable: text})
    with pytest.raises(InvalidArgumentError, match=name):
        PravegaConfig.from_arguments([option_of(name), text], env={})


def test_a_property_that_is_no_text_is_refused() -> None:
    props = {"pravega.client.tls.validate-hostname": False}
    with pytest.raises(InvalidArgumentError, match="validate-hostname"):
        PravegaConfig.from_defaults(props=props, env={})  # type: ignore[arg-type]  # that is what is tested


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("controller_uri", None),
        ("controller_uri", 9090),
        ("controller_uri", "::1:9090"),
        ("controller_uri", "tcp://::1:9090"),
        ("controller_uri", "tcp://[localhost]:9090"),
        ("controller_uri", "tcp://a b:9090"),
        ("controller_uri", "tcp://a\n:9090"),
        ("controller_uri", "tcp://a:1/path:9090"),
        ("scope", 5),
        ("scope", ""),
        ("credentials", "Basic abc"),
        ("credentials", ("user", "password")),
        ("trust_store", True),
        ("trust_store", b"/ca.pem"),
        ("trust_store", ""),
        ("validate_hostname", "false"),
        ("validate_hostname", 0),
        ("validate_hostname", None),
        ("max_connections_per_store", "10"),
        ("max_connections_per_store", 1.5),
        ("max_connections_per_store", True),
        ("max_connections_per_store", 0),
        ("max_connections_per_store", 2**31),
        *(
            (name, value)
            for name in ("controller_deadline", "operation_timeout")
            for value in ("5", True, None, 0, -1, float("nan"), float("inf"))
        ),
    ],
)
def test_a_value_of_the_wrong_type_or_form_is_refused_with_the_setting_s_name(
    name: str, value: object
) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{name}|controller URI"):
        PravegaConfig(**{name: value})  # type: ignore[arg-type]  # that is what is tested


def test_a_trust_store_that_cannot_be_a_file_is_refused_when_it_is_used() -> None:
    for path in ("/no-such-file", "/a\0b"):
        with pytest.raises(InvalidArgumentError, match="trust_store"):
            PravegaConfig(controller_uri="tls://h:1", trust_store=path).ssl_context()


def test_a_path_is_a_trust_store() -> None:
    assert PravegaConfig(trust_store=Path("/ca.pem")).trust_store == "/ca.pem"  # type: ignore[arg-type]


def test_a_password_in_the_controller_uri_is_refused_and_not_shown() -> None:
    for scheme in ("tcp://", "", "http://"):
        with pytest.raises(InvalidArgumentError, match="credentials") as caught:
            PravegaConfig(controller_uri=f"{scheme}user:hunter2@host:9090")
        assert "hunter2" not in repr(caught.value)


@pytest.mark.parametrize(
    ("method", "token"),
    [
        ("Basic", "dTpw\n"),  # what reading a file leaves at the end
        ("Basic", "dTpw\r\nx-other: 1"),
        ("Basic", " dTpw"),
        ("Basic", ""),
        ("Basic", "user:hunter2"),  # not encoded
        ("Basic", "aHVudGVyMg=="),  # no colon in it
        ("Bearer", "hunter2\0"),
        ("Bearer", "hunter2 hunter2"),
        ("Bearer", "hunter2\x7f"),
        ("Bearer", "hünter2"),
        ("Bearer", "hunter2\ud800"),
        ("Bearer", b"hunter2"),
        ("Bea\nrer", "hunter2"),
        ("Bearer hunter2", "x"),
        ("", "hunter2"),
        (None, "hunter2"),
        ("hunter2", ""),  # exchanged
        ("hunter2", "Basic\n"),
        ("hunter2", None),
    ],
)
def test_credentials_that_cannot_be_sent_are_refused_and_not_shown(method: str, token: str) -> None:
    with pytest.raises(InvalidArgumentError, match="credentials") as caught:
        Credentials(method, token)
    assert "hunter2" not in repr(caught.value)
    if method and token and isinstance(token, str):
        env = {"pravega_client_auth_method": method, "pravega_client_auth_token": token}
        with pytest.raises(InvalidArgumentError, match="pravega_client_auth_token") as caught:
            PravegaConfig.from_defaults(env=env)
        assert "hunter2" not in repr(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("PRAVEGA_OPERATION_TIMEOUT", "nan", "setting operation_timeout, environment variable PRAVEGA_OPER"),
        ("PRAVEGA_SCOPE", "a/b", r"setting scope, environment variable PRAVEGA_SCOPE: .*illegal"),
        (
            "pravega_client_auth_method",
            "Basic",
            "variable pravega_client_auth_method is set, and",
        ),
        ("pravega_client_auth_token", "x", "variable pravega_client_auth_token is set, and"),
    ],
)
def test_an_error_names_the_setting_and_its_source(name: str, value: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        PravegaConfig.from_defaults(env={name: value})


def test_a_method_is_shown_only_if_it_cannot_be_a_token() -> None:
    assert repr(Credentials.basic("user", "hunter2")) == "Credentials(method='Basic')"
    assert repr(Credentials("bearer", "hunter2")) == "Credentials(method='bearer')"
    config = PravegaConfig(credentials=Credentials("hunter2", "Bearer"))
    for text in (repr(config), str(config), repr(config.credentials)):
        assert "hunter2" not in text
    with pytest.raises(InvalidArgumentError, match="the BASIC token is empty"):
        Credentials("BASIC", "")


@pytest.mark.parametrize(
    ("username", "password"),
    [("us:er", "hunter2"), ("user\n", "hunter2"), ("user", "hunter2\n"), ("user", "hunter2\x85"),
     ("user", "hunter2\ud800"), ("user", b"hunter2"), (None, "hunter2")],
)  # fmt: skip
def test_names_and_passwords_that_no_server_takes_are_refused_and_not_shown(
    username: str, password: str
) -> None:
    with pytest.raises(InvalidArgumentError, match="credentials") as caught:
        Credentials.basic(username, password)
    assert "hunter2" not in repr(caught.value)


def test_credentials_with_and_without_padding_and_with_any_letters() -> None:
    assert Credentials("Basic", "dTpwdw").token == "dTpwdw"
    assert Credentials("Basic", "dTpwdw==").token == "dTpwdw=="
    assert Credentials.basic("üser", "pässword: yes").header == "Basic w7xzZXI6cMOkc3N3b3JkOiB5ZXM="
    assert Credentials("Custom", 'a="1", b="2"').header == 'Custom a="1", b="2"'


# --- program arguments and open_client ------------------------------------------------------------


def test_other_program_arguments_are_left_alone() -> None:
    argv = ["run", "--name", "x", "--scope", "s", "--scopes", "all", "-v", "--controller=tcp://h:1", "file"]
    config, rest = PravegaConfig.from_arguments(argv, env={})
    assert (config.scope, config.controller_uri) == ("s", "tcp://h:1")
    assert rest == ["run", "--name", "x", "--scopes", "all", "-v", "file"]


def test_a_program_argument_wins_and_the_rest_is_looked_up() -> None:
    config, rest = PravegaConfig.from_arguments(["--scope", "argument"], props=PROPS, env=ENV)
    assert (config.scope, config.controller_uri, rest) == ("argument", "tcp://property:2", [])
    assert PravegaConfig.from_arguments([], env=ENV) == (PravegaConfig.from_defaults(env=ENV), [])


def test_a_program_argument_without_its_value_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="--scope"):
        PravegaConfig.from_arguments(["--scope"], env={})


def test_the_arguments_of_the_process_are_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["program", "--scope", "s", "rest"])
    config, rest = PravegaConfig.from_arguments(env={})
    assert (config.scope, rest) == ("s", ["rest"])


def test_a_program_s_own_parser() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--verbose", action="store_true")
    PravegaConfig.add_arguments(parser)
    arguments = parser.parse_args(["--verbose", "--trust-store", "/ca.pem"])
    assert arguments.verbose
    assert PravegaConfig.from_namespace(arguments, env={}).trust_store == "/ca.pem"
    text = parser.format_help()
    assert all(each.option in text for each in SETTINGS if each.option is not None)


@pytest.mark.parametrize(
    ("uris", "endpoints"),
    [
        ("tcp://a:1,b:2", (("a", 1), ("b", 2))),
        (["tcp://a:1", "tcp://b:2"], (("a", 1), ("b", 2))),
        (("a:1", "b:2,c:3"), (("a", 1), ("b", 2), ("c", 3))),
        (["tls://[::1]:1", "tls://b:2"], (("::1", 1), ("b", 2))),
        (["tcp://a:1"], (("a", 1),)),
    ],
)
def test_several_controllers(uris: str | list[str], endpoints: tuple[tuple[str, int], ...]) -> None:
    assert PravegaConfig.from_defaults(controller_uri=uris, env={}).endpoints == endpoints
    assert config_of(uris).endpoints == endpoints


@pytest.mark.parametrize("uris", [[], ["tcp://a:1", "tls://b:2"], ["tcp://a:1", 2], b"tcp://a:1", 9090, [9]])
def test_controllers_that_do_not_go_together(uris: object) -> None:
    with pytest.raises(InvalidArgumentError, match="controller"):
        PravegaConfig.from_defaults(controller_uri=uris, env={})  # type: ignore[arg-type]  # that is tested


def test_what_open_client_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAVEGA_SCOPE", "environment")
    monkeypatch.setenv("PRAVEGA_OPERATION_TIMEOUT", "7")
    config = PravegaConfig(scope="kept", max_connections_per_store=3)
    basic = Credentials.basic("user", "password")
    assert config_of(None) == PravegaConfig.from_defaults()
    assert config_of(config) == config
    assert config_of(config, "other", basic) == dataclasses.replace(config, scope="other", credentials=basic)
    found = config_of("tcp://a:1", "demo")
    assert (found.endpoints, found.scope, found.operation_timeout) == ((("a", 1),), "demo", 7.0)
    assert config_of("tcp://a:1").scope == "environment"


@pytest.mark.parametrize(
    "uri",
    [
        "http://registry",
        "https://registry:9092",
        "http://registry:9092/path",
        "http://[::1]:9092",
        "http://[::1]",
    ],
)
def test_addresses_of_a_schema_registry(uri: str) -> None:
    assert PravegaConfig(schema_registry_uri=uri).schema_registry_uri == uri


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("registry:9092", "must begin with http"),
        ("tcp://registry:9092", "must begin with http"),
        ("http://", "schema registry URI"),
        ("http://registry:0", "port 0"),
        ("http://registry:70000", "port 70000"),
        ("http://registry:x", "not of the form host:port"),
        ("http://reg istry:80", "not a valid host name"),
        ("http://registry:80/?a=b", "query"),
        ("http://:secret@registry:80", "credentials"),
        (9092, "must be a non-empty string"),
        ("", "schema_registry_uri"),
    ],
)
def test_addresses_that_no_schema_registry_has(uri: object, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        PravegaConfig(schema_registry_uri=uri)  # type: ignore[arg-type]  # that is tested
    assert "schema_registry_uri" in str(caught.value)
    assert "secret" not in str(caught.value)
