"""The command line without a server: values, settings, output, keys and lines, positions, pictures."""

from __future__ import annotations

import base64
import gzip
import json
import logging
import math
import os
import re
import signal
import subprocess
import sys
import threading
from array import array
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from io import BytesIO, RawIOBase
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID
from xml.etree import ElementTree

import click
import pytest
import trio
import trio.testing
from hypothesis import example, given
from hypothesis import strategies as st

from pravega_wire import OpenTransaction, PravegaConfig, ScopedStream, StreamCut, Watermark, WatermarkSegment
from pravega_wire.cli import frame, read, server, settings
from pravega_wire.cli.common import AbsentError, Exit, exit_code
from pravega_wire.cli.frame import Session, SharedOption
from pravega_wire.cli.main import main
from pravega_wire.cli.output import Column, Output, cell, dumps, plain_table
from pravega_wire.cli.root import COMMAND, COMMANDS
from pravega_wire.cli.values import (
    counted,
    duration_text,
    parse_duration,
    parse_size,
    parse_time,
    size_text,
    time_text,
)
from pravega_wire.cli.work import (
    groups,
    health,
    points,
    reading,
    shapes,
    streams,
    tables,
    writing,
)
from pravega_wire.controller.types import KeyValueTableConfiguration, SegmentWithRange, TxnStatus
from pravega_wire.errors import (
    ArchiveBusyError,
    ArchiveDamagedError,
    ArchiveError,
    ArchiveMismatchError,
    AuthenticationError,
    ConnectError,
    CorruptedStateError,
    DataLossError,
    HostNotFoundError,
    InvalidArgumentError,
    MissingExtraError,
    PermissionDeniedError,
    PravegaError,
    ScopeNotEmptyError,
    ServerTooOldError,
    StreamNotFoundError,
    TableError,
    TableKeyBadVersionError,
    TlsError,
    TokenExpiredError,
    TransactionNotOpenError,
    WrongProtocolError,
)
from pravega_wire.protocol.append import MAX_EVENT_BYTES
from pravega_wire.protocol.events import EventBatch, frame_event
from pravega_wire.stream.watermarks import place_before
from pravega_wire.support import trouble
from pravega_wire.values.cuts import LayoutSegment, StreamLayout
from pravega_wire.values.naming import segment_id
from pravega_wire.values.policies import RetentionPolicy, ScalingPolicy, StreamConfiguration
from tests.inside import forget_told

ROOT = Path(__file__).resolve().parents[2]
STREAM = ScopedStream("mill", "pressure")


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The settings of the machine must not matter."""
    for each in (*settings._KEYS.values(),):
        monkeypatch.delenv(each.variable, raising=False)
    monkeypatch.delenv(settings.PROFILE_VARIABLE, raising=False)
    monkeypatch.delenv(settings.FILE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))


# --- values ---------------------------------------------------------------------------------------


def test_sizes_durations_and_times() -> None:
    assert [parse_size(each) for each in ("7", "4 KiB", "1.5M", "2GB", "1t")] == [
        7, 4096, 3 << 19, 2_000_000_000, 1 << 40,
    ]  # fmt: skip
    assert [parse_duration(each) for each in ("3", "250ms", "2m", "36h", "7d", "1w")] == [
        3, 0.25, 120, 129600, 604800, 604800,
    ]  # fmt: skip
    for parse in (parse_size, parse_duration):
        for wrong in ("", "x", "-1", "1 parsec", "1e3"):
            with pytest.raises(InvalidArgumentError, match="is not a"):
                parse(wrong)
    assert [parse_size(each) for each in ("9223372036854775807", "9007199254740993b", "0.5k")] == [
        9223372036854775807, 9007199254740993, 512,
    ]  # fmt: skip
    for parse in (parse_size, parse_duration):
        for digits in (19, 400, 5000):
            with pytest.raises(InvalidArgumentError, match=r"is too large|too many digits"):
                parse("9" * digits + ("" if digits > 19 else "GB" if parse is parse_size else "w"))
    for wrong in (f"-{'9' * 400}s", "9" * 5000):
        with pytest.raises(InvalidArgumentError):
            parse_time(wrong, 0)
    assert parse_time("1970-01-01T00:00:01", 0) == parse_time("1970-01-01T01:00:01+01:00", 0) == 1000
    assert parse_time("1600000000000", 0) == 1_600_000_000_000
    assert parse_time("-1h", 7200) == 3_600_000
    with pytest.raises(InvalidArgumentError, match="is not a time"):
        parse_time("yesterday", 0)
    assert (size_text(1023), size_text(1536), size_text(1 << 50)) == ("1023 B", "1.5 KiB", "1024.0 TiB")
    assert (duration_text(0.25), duration_text(5400), duration_text(-90061)) == ("250ms", "1h 30m", "-1d 1h")
    assert (counted(1, "event"), counted(0, "event")) == ("1 event", "0 events")
    assert time_text(1000) == "1970-01-01T00:00:01.000Z"
    assert time_text(1 << 62) == str(1 << 62)


# --- settings -------------------------------------------------------------------------------------

CONFIG = """
default-profile = "lab"

[profile.lab]
controller = "tcp://lab:1"
scope = "mill"

[profile.production]
controller = "tls://pravega:2"
username = "operator"
password = "do not tell"
validate-hostname = false
operation-timeout = 30
"""


def resolved(tmp_path: Path, text: str = CONFIG, **given: Any) -> settings.Resolved:
    file = tmp_path / "config.toml"
    file.write_text(text)
    environment = {settings.FILE_VARIABLE: str(file), **given.pop("environment", {})}
    return settings.resolve(given.pop("arguments", {}), environment=environment, **given)


def sources(found: settings.Resolved) -> dict[str, tuple[str, str]]:
    return {each.setting: (each.value, each.source) for each in found.found}


def test_a_setting_comes_from_the_first_place_that_has_it(tmp_path: Path) -> None:
    found = resolved(tmp_path)
    assert found.config.controller_uri == "tcp://lab:1"
    assert found.profile == "lab"
    found = resolved(
        tmp_path,
        profile="production",
        arguments={"operation_timeout": "5"},
        environment={"PRAVEGA_SCOPE": "mine", "PRAVEGA_OPERATION_TIMEOUT": "6"},
    )
    shown = sources(found)
    assert shown["controller"] == ("tls://pravega:2", "profile production")
    assert shown["scope"] == ("mine", "environment variable PRAVEGA_SCOPE")
    assert shown["operation-timeout"] == ("5.0", "argument --operation-timeout")
    assert shown["validate-hostname"] == ("false", "profile production")
    assert shown["trust-store"] == ("", "default")
    assert shown["auth-method"] == ("Basic", "profile production")
    assert shown["auth-token"] == (settings.HIDDEN, "profile production")
    assert found.config.credentials is not None
    assert found.config.credentials.header not in repr(found)
    other = resolved(
        tmp_path,
        profile="production",
        environment={"pravega_client_auth_method": "Bearer", "pravega_client_auth_token": "t"},
    )
    assert other.config.credentials is not None
    assert other.config.credentials.header == "Bearer t"
    assert sources(other)["auth-method"][1] == "environment variable pravega_client_auth_method"
    assert sources(other)["auth-token"][1] == "environment variable pravega_client_auth_token"
    assert resolved(tmp_path, environment={settings.PROFILE_VARIABLE: "production"}).profile == "production"


@pytest.mark.parametrize(
    ("text", "profile", "message"),
    [
        (CONFIG, "nowhere", r"no profile 'nowhere' .*its profiles are: lab, production"),
        ("[profile", None, "is not TOML"),
        ("profiles = 1", None, "has 'profiles'"),
        ("profile = 1", None, "must be a text, and profiles tables"),
        ("[profile.a]\nhost = 1", None, "has 'host'; known are controller"),
        ("[profile.a]\nscope = []", None, "scope must be a text"),
        ("[profile]\na = 1", None, "is not a table"),
        ("[profile.a]\nusername = 'u'", None, "both username and password"),
        ("[profile.a]\nauth-method = 'Basic'", "a", "only one of auth-method and auth-token"),
        ("[profile.a]\noperation-timeout = 'soon'", "a", "operation_timeout, profile a"),
        ("[profile.a]\ncontroller = 'http://x:1'", "a", r"scheme 'http'.*profile a"),
    ],
)
def test_mistakes_in_a_configuration_file(
    tmp_path: Path, text: str, profile: str | None, message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        resolved(tmp_path, text, profile=profile)
    assert "do not tell" not in caught.value.message


def test_a_missing_file_is_empty_unless_it_was_named(tmp_path: Path) -> None:
    assert settings.resolve({}, environment={}).profile is None
    with pytest.raises(InvalidArgumentError, match="does not exist"):
        settings.resolve({}, file=str(tmp_path / "no.toml"), environment={})
    with pytest.raises(InvalidArgumentError, match="the file does not exist"):
        settings.resolve({}, profile="x", environment={})
    with pytest.raises(InvalidArgumentError, match="only one of the environment variables"):
        settings.resolve({}, environment={"pravega_client_auth_token": "t"})
    assert settings.default_path({"XDG_CONFIG_HOME": "/x"}) == Path("/x/pravega-wire/config.toml")
    assert settings.default_path({"XDG_CONFIG_HOME": "y"}) == Path.home() / ".config/pravega-wire/config.toml"


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    assert settings.resolve({}, environment={}).path == Path("/.config/pravega-wire/config.toml")


# --- the frame ------------------------------------------------------------------------------------


def walk(command: click.Command, context: click.Context) -> list[tuple[str, click.Command]]:
    found = [(context.command_path, command)]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            found += walk(below, click.Context(below, info_name=name, parent=context))
    return found


ALL = walk(COMMAND, click.Context(COMMAND, info_name="pravega-wire"))


@pytest.mark.parametrize(("path", "command"), ALL, ids=[path for path, _ in ALL])
def test_each_command_explains_itself(
    path: str, command: click.Command, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*path.split()[1:], "--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Usage: {path}")
    assert "--profile NAME" in shown
    assert command.help
    for each in command.params:
        if isinstance(each, click.Option):
            assert each.help, f"{path}: {each.opts} has no help"
    examples = [each for each in getattr(command, "examples", ()) if not each.startswith("#")]
    assert all("pravega-wire" in each or each.startswith("  ") for each in examples)


def test_every_command_has_the_shared_options() -> None:
    for path, command in ALL:
        names = {name for each in command.params for name in each.opts}
        assert {"--controller", "--scope", "--profile", "--config", "--json", "--verbose"} <= names, path
        assert len([each for each in command.params if isinstance(each, SharedOption)]) >= 10
    assert {path.split()[1] for path, _ in ALL[1:]} == {*COMMANDS}


def test_options_may_be_before_the_command_and_the_nearest_wins(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--scope", "a", "--json", "--controller", "tcp://x:1", "config", "show", "--scope", "b"]
    assert main(words) == Exit.DONE
    rows = {each["setting"]: each for each in map(json.loads, capsys.readouterr().out.splitlines())}
    assert rows["scope"]["value"] == "b"
    assert rows["controller"] == {
        "setting": "controller", "value": "tcp://x:1", "source": "argument --controller",
    }  # fmt: skip


def test_profiles_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.toml"
    file.write_text(CONFIG)
    assert main(["config", "profiles", "--config", str(file)]) == Exit.DONE
    assert capsys.readouterr().out.splitlines()[1:] == [
        "lab         tcp://lab:1      mill   yes",
        "production  tls://pravega:2  -      no",
    ]
    assert main(["config", "path", "--config", str(file)]) == Exit.DONE
    assert capsys.readouterr().out == f"{file}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "No such command 'nothing' (try: pravega-wire --help)"),
        (["strem", "list"], "No such command 'strem'. Did you mean 'stream'? (try: pravega-wire --help)"),
        (
            ["stream", "scale", "s/t", "x"],
            "'x' is not a valid integer (try: pravega-wire stream scale --help)",
        ),
        (["stream", "create", "s/t", "--keep-time", "soon"], "'soon' is not a length of time"),
        (["group", "describe", "s/a b"], "the group name 'a b' has illegal characters"),
        (["table", "get", "s/a_b", "k"], "the table name 'a_b' has illegal characters"),
        (["dissect", "x", "--store", "a:1"], "'x' is not a port, which is a number from 0 to 65535"),
        (["dissect", "65536", "--store", "a:1"], "'65536' is not a port"),
        (["dissect", "12346"], "Missing option '--store' (try: pravega-wire dissect --help)"),
        (["read"], "Missing argument 'STREAM' (try: pravega-wire read --help)"),
        (["read", "s/t", "--from"], "'--from' requires an argument (try: pravega-wire read --help)"),
        (["stream", "create", "s/t", "--keep-size", "9" * 400], "is too large: the largest size is"),
        (["stream", "create", "s/t", "--keep-time", "9" * 400], "is too large: the longest time is"),
        (["group", "create", "", "s/t"], "the name of the group is empty"),
        (["read", "s/t", "--group", ""], "the name of the group is empty"),
        (["read", "s/"], "the name of the stream is empty"),
        (["table", "get", "", "k"], "the name of the table is empty"),
    ],
)
def test_misuse_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == Exit.USAGE
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["stream", "alter", "s/t"], "nothing to change"),
        (["stream", "truncate", "s/t", "--yes"], "--to or with --older-than"),
        (["stream", "create", "s/t", "--keep-time", "1d", "--keep-size", "1G"], "choose one"),
        (["stream", "create", "s/t", "--scale-factor", "2"], "a scale factor needs a rate"),
        (["stream", "create", "t"], "has no scope"),
        (["stream", "create", "t"], "--scope"),
        (["stream", "list"], "--scope"),
        (["stream", "delete", "s/t"], "add --yes"),
        (["scope", "delete", "s"], "add --yes"),
        (["stream", "seal", "s/t"], "add --yes"),
        (["group", "delete", "s/g"], "add --yes"),
        (["group", "reset", "s/g"], "add --yes"),
        (["table", "delete", "s/t"], "add --yes"),
        (["txn", "abort", "s/t", str(UUID(int=1))], "add --yes"),
        (["read", "s/t", "--follow", "--to", "tail"], "choose one"),
        (["read", "s/t", "--reader", "r"], "--reader needs --group"),
        (["read", "s/t", "--idle", "1s"], "--idle needs --group, and does not go with --follow"),
        (["read", "s/t", "--group", "g", "--follow", "--idle", "1s"], "--idle needs --group, and does not"),
        (["read", "s/t", "--no-newline", "--json"], "--no-newline goes with the format raw, not with json"),
        (["read", "s/t", "--no-newline", "--output", "a.parquet"], "with the format raw, not with parquet"),
        (["read", "s/t", "--format", "parquet"], "--output FILE"),
        (["read", "s/t", "--limit", "0"], "must be positive"),
        (["read", "s/t", "--from", "x"], "'x' is not a position: write head, tail, "),
        (["append", "s/t", "--whole-files"], "needs files"),
        (["append", "s/t", "--key", "a", "--key-field", "b"], "choose one"),
        (["append", "s/t", "--rate", "0"], "must be positive"),
        (["append", "s/t", "nowhere"], "nowhere: No such file"),
        (["cut", "show", "s/u", StreamCut(STREAM, {0: 7}).to_text()], "is one of stream mill/pressure, not"),
        (["read", "s/t", "--schema-group", "g"], "--schema-registry http://host:port"),
        (["append", "s/t", "--schema-group", "g"], "--schema-registry http://host:port"),
        (["append", "s/t", "--schema-type", "g"], "--schema-type needs --schema-group"),
        (["read", "s/t", "--last", "0"], "--last must be positive, not 0"),
        (["read", "s/t", "--last", "1", "--limit", "2"], "--last does not go with"),
        (["read", "s/t", "--operation-timeout", "soon"], "'soon' is not a number of seconds"),
        (["read", "s/t", "--max-connections-per-store", "x"], "'x' is not a whole number"),
        (["table", "put", "s/t", "k", "v", "--new", "--version", "0:1"], "--new is for a key that does not"),
        (["table", "put", "s/t", "k", "-", "--values", "hex"], "--values hex does not go with VALUE -"),
        (["table", "scan", "s/t", "--limit", "0"], "--limit must be positive, not 0"),
        (["doctor", "--wait", "0"], "--wait must be positive"),
        (["top", "--interval", "0"], "--interval must be positive"),
        (["top", "s/t", "--count", "0"], "--count must be positive, not 0"),
        (
            ["read", "s/t", "--format", "hex", "--json"],
            "--json prints events as json, --format as hex: choose one",
        ),
        (
            ["read", "s/t", "--from", "@nowhere"],
            "the file 'nowhere' with a stream cut cannot be read: No such",
        ),
        (["dissect", "0", "--store", "nowhere"], "--store: 'nowhere' is not of the form host:port"),
    ],
)
def test_wrong_arguments_are_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # If one of these asked a server, it would fail in another way.
    monkeypatch.setenv("PRAVEGA_CONTROLLER_URI", "tcp://127.0.0.1:1")
    monkeypatch.setenv("PRAVEGA_OPERATION_TIMEOUT", "0.1")
    assert main(words) == Exit.USAGE
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


def test_the_cause_of_an_error_is_shown_on_request(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame, "_PATIENCE_SECONDS", 1000.0)
    words = ["scope", "list", "--controller", "tcp://127.0.0.1:1", "--operation-timeout", "3"]
    assert main(words) == Exit.FAILED
    assert capsys.readouterr().err.count("\n") == 1
    assert main([*words, "--verbose"]) == Exit.FAILED
    assert "  caused by ConnectError: " in capsys.readouterr().err


WITHOUT = """
import sys
sys.modules["click"] = None
from importlib import util
found = util.find_spec
from pravega_wire.cli import main, running
running.find_spec = lambda name: None if name in ("click", "rich") else found(name)
raise SystemExit(main.main())
"""


def test_without_the_extra_one_sentence_says_so() -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", WITHOUT, *words], cwd=ROOT, capture_output=True, text=True, check=False
        )

    done = run("stream", "list")
    assert (done.returncode, done.stdout) == (Exit.USAGE, "")
    assert done.stderr == 'error: pravega-wire needs the extra "cli": pip install "pravega-wire[cli]"\n'
    assert run("--version").stdout.startswith("pravega-wire ")


HEAVY = ("trio", "h2", "google.protobuf", "ssl", "rich", "pyarrow", "pravega_wire._names")

LISTED = """
import sys
try:
    from pravega_wire.{module} import main
    main(sys.argv[1:])
except SystemExit:
    pass
print([each for each in {heavy} if each in sys.modules])
"""


def imported_by(words: str, module: str = "cli.main") -> str:
    program = LISTED.format(module=module, heavy=HEAVY)
    done = subprocess.run(
        [sys.executable, "-c", program, *words.split()], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    "words",
    ["--version", *(f"{path.partition(' ')[2]} --help".strip() for path, _ in ALL if path.count(" ") < 2)],
)
def test_help_imports_nothing_that_it_does_not_need(words: str) -> None:
    assert imported_by(words) == "[]"


@pytest.mark.parametrize("words", ["--help", "standalone --help"])
def test_the_help_of_servers_imports_nothing_that_it_does_not_need(words: str) -> None:
    assert imported_by(words, "cli.server") == "[]"


INTERRUPTED = """
import os, signal, sys
_, number, module, *sys.argv[1:] = sys.argv
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), int(number))
sys.meta_path.insert(0, Finder())
from pravega_wire.cli.main import main
raise SystemExit(main())
"""


@pytest.mark.parametrize(
    ("number", "code", "message"),
    [(signal.SIGINT, 130, "interrupted\n"), (signal.SIGTERM, 143, "terminated\n")],
)
@pytest.mark.parametrize(
    "module", ["pravega_wire.errors", "click", "pravega_wire.cli.scope", "trio", "h2", "google.protobuf"]
)
def test_a_signal_while_modules_are_imported(
    module: str, number: signal.Signals, code: int, message: str
) -> None:
    words = [str(int(number)), module, "scope", "list", "--controller", "tcp://127.0.0.1:1"]
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        # A shell's background jobs ignore SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", message)


LAST = """
import os, signal, sys
class Last:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=int(sys.argv.pop(1))):
        kill(pid, number)
last = Last()
from pravega_wire.cli.main import main
raise SystemExit(main())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_after_everything_is_done(number: signal.Signals) -> None:
    """The interpreter, which ends, would let it end the process."""
    done = subprocess.run(
        [sys.executable, "-c", LAST, str(int(number)), "config", "path", "--config", "x"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "x\n", "")


def test_a_refusal_says_how_credentials_are_set(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*given: object) -> None:
        raise AuthenticationError("authentication failed")

    monkeypatch.setattr(Session, "call", refused)
    assert main(["scope", "list"]) == Exit.USAGE
    assert capsys.readouterr().err == (
        "error: authentication failed. No credentials are set: set the variables pravega_client_auth_method "
        "(Basic or Bearer) and pravega_client_auth_token, or username and password in a profile\n"
    )
    monkeypatch.setenv("pravega_client_auth_method", "Bearer")
    monkeypatch.setenv("pravega_client_auth_token", "abc")
    assert main(["scope", "list"]) == Exit.USAGE
    assert capsys.readouterr().err == "error: authentication failed\n"


def test_help_says_how_credentials_are_set(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "(credentials) set the variables pravega_client_auth_method (Basic or Bearer) and" in shown


def test_a_server_with_tls_and_an_account_says_how_it_is_used(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from pravega_wire.testing import PravegaServer
    from pravega_wire.testing import server as servers

    asked = {}
    made = PravegaServer(
        "jars", "tls://127.0.0.1:9090", tmp_path, username="admin", password="a b",
        trust_store=tmp_path / "the ca.pem", schema_registry_uri="http://127.0.0.1:9092",
        processes=[SimpleNamespace(alive=False, ending=lambda: "it has ended")],  # type: ignore[list-item]
    )  # fmt: skip

    @contextmanager
    def standalone(**given: object) -> Iterator[object]:
        asked.update(given)
        yield made

    monkeypatch.setattr(servers, "standalone", standalone)
    # A server that runs already cannot be asked for this.
    monkeypatch.setenv("PRAVEGA_CONTROLLER_URI", "tcp://127.0.0.1:1")
    assert server.main(["standalone", "--tls", "--auth", "--schema-registry"]) == 1
    assert (asked["kind"], asked["tls"], asked["auth"]) == ("jars", True, True)
    out, error = capsys.readouterr()
    assert out == "tls://127.0.0.1:9090\n"
    exported = subprocess.run(
        ["sh", "-c", "\n".join(each for each in error.splitlines() if each.startswith("  export")) + "\nenv"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = dict(each.partition("=")[::2] for each in exported.stdout.splitlines())
    assert PravegaConfig.from_defaults(env=found) == made.config()


def test_more_exit_codes() -> None:
    assert exit_code(StreamNotFoundError("x")) == exit_code(AbsentError("x")) == Exit.NOTHING
    final = [MissingExtraError("x"), TableKeyBadVersionError("x"), ScopeNotEmptyError("x")]
    final += [
        ArchiveError("x", path=""),
        ArchiveDamagedError("x", path=""),
        ArchiveMismatchError("x", path=""),
    ]
    final += [CorruptedStateError("x"), DataLossError("x", start_offset=None, offset=None)]
    final += [TransactionNotOpenError("x", status=None)]
    final += [ServerTooOldError("x", feature="x", needed="0.12", found=None)]
    final += [
        AuthenticationError("x"),
        PermissionDeniedError("x"),
        TlsError("x"),
        WrongProtocolError("x"),
        HostNotFoundError("x"),
    ]
    assert {exit_code(each) for each in final} == {Exit.USAGE}
    assert not any(each.retriable for each in final)
    later = [ArchiveBusyError("x", path=""), ConnectError("x"), TokenExpiredError("x"), TableError("x")]
    assert {exit_code(each) for each in later} == {Exit.FAILED}


def in_shell(command: str, **environment: str) -> tuple[int, str, str]:
    """Run ``pravega-wire`` in a shell; "$w" is the program."""
    done = subprocess.run(
        ["sh", "-c", command.replace("$w", f"{sys.executable} -m pravega_wire")],
        cwd=ROOT,
        env=os.environ | {"PRAVEGA_CONTROLLER_URI": "tcp://127.0.0.1:1"} | environment,
        capture_output=True,
        check=False,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize("words", ["append s/t", "table put s/t k -"])
def test_a_closed_standard_input_is_one_line(words: str) -> None:
    assert in_shell(f"$w {words} <&-") == (Exit.USAGE, "", "error: the standard input is closed\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_is_one_line() -> None:
    for words in ("config show", "--help", "--json config path"):
        code, out, error = in_shell(f"$w {words} > /dev/full")
        assert (code, out) == (Exit.USAGE, ""), words
        assert re.fullmatch("error: (standard output: )?No space left on device\n", error), words
    assert in_shell("$w cut compare a/b head x 2> /dev/full") == (Exit.USAGE, "", "")


def test_an_encoding_without_a_character() -> None:
    command = "$w config path --config ░é"
    assert in_shell("$w config path --config ░", PYTHONIOENCODING="cp1252") == (Exit.DONE, "\\u2591\n", "")
    for encoding in ("ascii", "ascii:surrogateescape"):
        assert in_shell(command, PYTHONIOENCODING=encoding) == (Exit.DONE, "\\u2591\\xe9\n", "")
    code, out, _ = in_shell(f"{command} --json", PYTHONIOENCODING="ascii")
    assert (code, json.loads(out)) == (Exit.DONE, {"path": "░é"})
    assert in_shell(command, PYTHONIOENCODING="utf-8") == (Exit.DONE, "░é\n", "")


def test_arguments_that_are_not_utf_8(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["append", "s/t", "--key", "\udcff"]) == Exit.USAGE
    assert capsys.readouterr().err == "error: the key is not UTF-8\n"
    assert main(["append", "s/t", "nowhere", "--key-delimiter", "\udcff"]) == Exit.USAGE
    assert capsys.readouterr().err == "error: nowhere: No such file or directory\n"
    keys = writing.Keys(delimiter=b"\xff")
    assert keys.split(b"k\xffe") == (b"e", "k")
    with pytest.raises(InvalidArgumentError, match="after a key"):
        keys.split(b"k")


# --- warnings -------------------------------------------------------------------------------------

AWAY = "no connection to 127.0.0.1:1: connection refused: nothing listens there; trying until "


@pytest.mark.parametrize("terminal", [True, False])
def test_a_command_that_waits_for_a_server_says_so(terminal: bool) -> None:
    ours, theirs = os.openpty() if terminal else os.pipe()
    asking = subprocess.Popen(
        [sys.executable, "-m", "pravega_wire", "scope", "list", "--json"],
        cwd=ROOT,
        env=os.environ | {"PRAVEGA_CONTROLLER_URI": "tcp://127.0.0.1:1", "PRAVEGA_OPERATION_TIMEOUT": "6"},
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    with open(ours, "rb", buffering=0) as errors:
        # It is said before the command ends.
        first = errors.read(1)
        assert asking.poll() is None
        shown = first
        try:
            while part := errors.read(4096):
                shown += part
        except OSError:
            pass  # a terminal whose other end is closed
    out, _ = asking.communicate()
    warning, error = shown.decode().splitlines()
    assert warning == (
        f"warning: controller call listScopes for all scopes: {AWAY}6 s have passed "
        "(operation_timeout or controller_deadline)"
    )
    assert error.startswith("error: ")
    assert (out, asking.returncode) == (b"", Exit.FAILED)


def test_a_command_that_ends_before_it_waited_for_long_says_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = threading.active_count()
    forget_told()
    monkeypatch.setattr(frame, "_PATIENCE_SECONDS", 1000.0)
    words = ["scope", "list", "--controller", "tcp://127.0.0.1:1", "--operation-timeout", "3"]
    assert main(words) == Exit.FAILED
    assert len(trouble._told) == 1
    assert capsys.readouterr().err.count("\n") == 1
    for each in threading.enumerate():
        if isinstance(each, threading.Timer):
            each.join(60)
    assert threading.active_count() <= threads


def test_what_else_the_client_warns_of_is_printed_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with frame.warning():
        logging.getLogger("pravega_wire.stream.skipping").warning("%d bytes\nwere skipped", 7)
        logging.getLogger("pravega_wire.stream.skipping").info("nothing")
    logging.getLogger("pravega_wire.stream.skipping").warning("to nobody")
    assert capsys.readouterr().err.splitlines()[0] == "warning: 7 bytes were skipped"


def test_completion_warns_of_nothing() -> None:
    words = {"COMP_WORDS": "pravega-wire stream describe ", "COMP_CWORD": "3"}
    complete = {"_PRAVEGA_WIRE_COMPLETE": "bash_complete", "PRAVEGA_OPERATION_TIMEOUT": "0.2"}
    code, out, error = in_shell("$w", **words, **complete)
    assert (code, out.strip(), error) == (0, "", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["completion", shell]) == Exit.DONE
    assert "_PRAVEGA_WIRE_COMPLETE" in capsys.readouterr().out
    monkeypatch.setenv("_PRAVEGA_WIRE_COMPLETE", f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", "pravega-wire stream tr")
    monkeypatch.setenv("COMP_CWORD", "tr" if shell == "fish" else "2")
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 0
    assert "truncate" in capsys.readouterr().out


# --- output ---------------------------------------------------------------------------------------

ROWS: list[dict[str, Any]] = [
    {"name": "a", "size": 2048, "count": 1234, "at": 0, "tags": frozenset({"y", "x"}), "on": True},
    {"name": "longer", "size": None, "count": 1.25, "at": None, "tags": frozenset(), "on": False},
]
COLUMNS = [
    Column("name", "NAME"),
    Column("size", "SIZE", "size"),
    Column("count", "COUNT", "number"),
    Column("at", "AT", "time"),
    Column("tags", "TAGS"),
    Column("on", "ON"),
]


def test_tables_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    expected = (
        "NAME    SIZE  COUNT  AT                        TAGS  ON\n"
        "a       2048   1234  1970-01-01T00:00:00.000Z  x,y   yes\n"
        "longer     -    1.2  -                         -     no"
    )
    assert plain_table(ROWS, COLUMNS) == expected
    Output().rows(ROWS, COLUMNS)
    assert capsys.readouterr().out == f"{expected}\n"
    Output(as_json=True).rows(ROWS, COLUMNS)
    lines = [json.loads(each) for each in capsys.readouterr().out.splitlines()]
    assert lines[0]["tags"] == ["x", "y"]
    assert lines[1]["size"] is None
    Output().record(ROWS[0], COLUMNS[:2])
    assert capsys.readouterr().out == "NAME  a\nSIZE  2048\n"


def test_a_terminal_gets_units_and_boxes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    out = Output()
    assert out.human
    assert not Output(as_json=True).human
    out.rows(ROWS, COLUMNS)
    out.record(ROWS[0], COLUMNS[:2])
    shown = capsys.readouterr().out
    assert "2.0 KiB" in shown
    assert "1,234" in shown
    assert "─" in shown


@pytest.mark.parametrize(("terminal", "drawn"), [("dumb", False), ("xterm", True)])
def test_nothing_moves_on_a_dumb_terminal(
    terminal: str, drawn: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", terminal)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Output().progress("reading", 10) as advance:
        advance(10)
    assert bool(capsys.readouterr().err) is drawn


def test_ctrl_c_before_an_await_says_nothing_of_it(
    capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    async def never() -> None: ...

    async def work(client: object) -> None:
        _ = never()
        del _
        raise KeyboardInterrupt

    session = Session()
    session.given["controller_uri"] = "tcp://127.0.0.1:1"
    with pytest.raises((KeyboardInterrupt, BaseExceptionGroup)):
        session.call(work)
    assert not recwarn.list
    assert capsys.readouterr().err == ""


def test_values_that_json_does_not_have() -> None:
    cut = StreamCut(STREAM, {0: 5})
    record = {"cut": cut, "status": TxnStatus.OPEN, "id": UUID(int=1), "stream": STREAM}
    assert json.loads(dumps(record)) == {
        "cut": cut.to_text(), "status": "open", "id": str(UUID(int=1)), "stream": "mill/pressure",
    }  # fmt: skip
    assert cell(cut, "text", human=False) == cut.to_text()
    assert cell(TxnStatus.OPEN, "text", human=False) == "open"
    assert cell(["a", "b"], "text", human=False) == "a,b"


# --- positions ------------------------------------------------------------------------------------


def test_positions(tmp_path: Path) -> None:
    cut = StreamCut(STREAM, {0: 7})
    file = tmp_path / "a.cut"
    file.write_text(f"{cut.to_text()}\n")
    assert points.parse_point(cut.to_text()) == points.parse_point(f"@{file}") == points.Point("cut", cut)
    assert points.parse_point("HEAD") == points.parse_point("earliest") == points.Point("head")
    assert points.parse_point("latest") == points.Point("tail")
    assert points.parse_point("0=5, 3.#epoch.1=-1").offsets == ((0, 5), (segment_id(1, 3), -1))
    assert points.parse_point("time:1970-01-01T00:00:01Z") == points.Point("time", time=1000)
    for wrong in ("", "0=x", "somewhere", f"@{tmp_path}/none", "time:x", "a=1"):
        with pytest.raises(InvalidArgumentError):
            points.parse_point(wrong)
    with pytest.raises(
        InvalidArgumentError, match=r"^'somewhere' is not a position: write head, tail, time:"
    ):
        points.parse_point("somewhere")
    later = base64.b64encode(gzip.compress(b"1:mill/pressure:0:0:7")).decode()
    with pytest.raises(InvalidArgumentError, match="version '1' is not supported"):
        points.parse_point(later)
    file.write_text(later)
    with pytest.raises(InvalidArgumentError, match=r"^in the file '.*a\.cut': .*version '1' is not"):
        points.parse_point(f"@{file}")


async def test_a_message_shows_a_time_and_not_its_milliseconds() -> None:
    asked = []

    async def cut_at(stream: ScopedStream, time: datetime | int) -> StreamCut:
        asked.append(time)
        return StreamCut(stream, {0: 0})

    client: Any = SimpleNamespace(cut_at=cut_at)
    for text in ("time:2026-01-31T12:00:00.001Z", f"time:{10**18}"):
        await points.resolve(client, STREAM, points.parse_point(text))
    # There is no year for the second one: it is in a unit of the writers.
    assert asked == [datetime(2026, 1, 31, 12, 0, 0, 1000, UTC), 10**18]


def test_a_cut_at_a_time() -> None:
    marks = [
        Watermark.of(low, low + 5, [WatermarkSegment(0, 0.0, 1.0, offset)])
        for low, offset in ((10, 100), (20, 200), (30, -7))
    ]
    assert place_before(STREAM, marks, 15) is None
    assert place_before(STREAM, marks, 16) == StreamCut(STREAM, {0: 100})
    assert place_before(STREAM, marks, 99) == StreamCut(STREAM, {0: -1})


# --- streams --------------------------------------------------------------------------------------

# 0 is split into 1 and 2; 1 is split into 3 and 4; 2 stays.
LAYOUT = StreamLayout(
    STREAM,
    (
        LayoutSegment(0, 0.0, 1.0, 100, 40),
        LayoutSegment(segment_id(1, 1), 0.0, 0.5, None),
        LayoutSegment(segment_id(1, 2), 0.5, 1.0, 1000, sealed=False),
        LayoutSegment(segment_id(2, 3), 0.0, 0.25, 0, sealed=False),
        LayoutSegment(segment_id(2, 4), 0.25, 0.5, 8, sealed=False),
    ),
)


def test_epochs_and_segments() -> None:
    labels = {
        epoch: [streams.segment_label(each.segment_id) for each in active]
        for epoch, active in streams.epochs_of(LAYOUT).items()
    }
    assert labels == {
        0: ["0"],
        1: ["1.#epoch.1", "2.#epoch.1"],
        2: ["3.#epoch.2", "4.#epoch.2", "2.#epoch.1"],
    }
    rows = streams.segment_rows(LAYOUT)
    assert [each["state"] for each in rows] == ["sealed", "deleted", "active", "active", "active"]
    assert [each["bytes"] for each in rows] == [60, 0, 1000, 0, 8]
    assert rows[1]["successors"] == ["3.#epoch.2", "4.#epoch.2"]


@example(49, 10)
@example(6, 6)
@given(st.integers(1, 100), st.integers(1, 100))
def test_even_ranges_cover_the_keys(before: int, after: int) -> None:
    # As a server computes them: 49 * (1/49) is less than 1, and 5 * (1/6) than 5/6.
    borders = [each * (1.0 / before) for each in range(before + 1)]
    active = [SegmentWithRange(each, borders[each], borders[each + 1]) for each in range(before)]
    seal, ranges = streams.even_ranges(active, after)
    kept = [(each.low, each.high) for each in active if each.segment_id not in seal]
    covered = sorted([*kept, *ranges])
    assert len(covered) == after
    assert covered[0][0] == 0.0
    assert covered[-1][1] == borders[-1]
    assert all(one[1] == other[0] for one, other in pairwise(covered))
    if before == after:
        assert not seal
    # The controller demands that the new ranges cover what is sealed.
    sealed = math.fsum(each.high - each.low for each in active if each.segment_id in seal)
    assert math.isclose(sealed, math.fsum(high - low for low, high in ranges), abs_tol=1e-9)


def test_changes_of_a_configuration() -> None:
    old = StreamConfiguration(ScalingPolicy.by_event_rate(10, 3, 4), tags=frozenset({"a"}))
    new = streams.Changes(segments=5, keep_time=60, add_tags=("b",), remove_tags=("a",)).apply(old)
    assert new == StreamConfiguration(
        ScalingPolicy.by_event_rate(10, 3, 5), RetentionPolicy.by_time(60), frozenset({"b"})
    )
    assert streams.Changes(keep_all=True).apply(new).retention is None
    retention = streams.Changes(keep_time=parse_duration("1001ms")).apply(new).retention
    assert retention == RetentionPolicy.by_time(1.001)
    assert streams.Changes(keep_size=7).apply(new).retention == RetentionPolicy.by_size(7)
    assert streams.Changes(bytes_per_second=9216).apply(old).scaling == ScalingPolicy.by_data_rate(9216, 3, 4)
    assert streams.Changes().apply(old) == old
    with pytest.raises(InvalidArgumentError, match="not by both"):
        streams.Changes(events_per_second=1, bytes_per_second=1)
    with pytest.raises(InvalidArgumentError, match="at least one segment"):
        streams.even_ranges([], 0)
    records = [streams.scaling_record(each) for each in (old.scaling, ScalingPolicy.fixed(1))]
    assert records == [
        {"by": "events_per_second", "rate": 10, "scale_factor": 3, "min_segments": 4},
        {"by": "fixed", "min_segments": 1},
    ]
    texts = [streams.scaling_text(each) for each in records]
    assert streams.scaling_record(ScalingPolicy.by_data_rate(2048))["rate"] == 2048
    assert texts == ["10 events/s for each segment, factor 3, at least 4", "fixed, 1 segment"]
    kept = streams.retention_record(RetentionPolicy.by_size(1024, 4096))
    assert kept == {"min_bytes": 1024, "max_bytes": 4096}
    assert streams.retention_text(kept) == "at least 1.0 KiB, at most 4.0 KiB"
    kept = streams.retention_record(RetentionPolicy.by_time(60))
    assert kept == {"min_seconds": 60, "max_seconds": None}
    assert streams.retention_text(kept) == "at least 1m"
    assert streams.retention_record(None) is None
    assert streams.retention_text(None) == "everything"


# --- appending ------------------------------------------------------------------------------------


@given(
    st.lists(st.binary(max_size=20).filter(lambda each: b"\n" not in each and not each.endswith(b"\r"))),
    st.lists(st.integers(0, 400)),
    st.booleans(),
)
def test_lines_do_not_depend_on_the_pieces_they_come_in(
    lines: list[bytes], places: list[int], carriage: bool
) -> None:
    data = (b"\r\n" if carriage else b"\n").join(lines)
    borders = [0, *sorted(each for each in places if each < len(data)), len(data)]
    splitter = writing.LineSplitter(keep_empty=True)
    found: list[bytes] = []
    for begin, end in pairwise(borders):
        found += splitter.feed(data[begin:end])
    found += splitter.end()
    if lines and not lines[-1]:
        lines = lines[:-1]
    assert found == lines


def test_exact_and_empty_lines() -> None:
    assert [*writing.LineSplitter(exact=True, keep_empty=True).feed(b"a\r\n\n\r\n")] == [b"a\r", b"", b"\r"]
    assert [*writing.LineSplitter().feed(b"a\r\n\n\r\n")] == [b"a"]


def test_keys() -> None:
    assert writing.Keys().split(b"x") == (b"x", None)
    assert writing.Keys(fixed="k").split(b"x") == (b"x", "k")
    assert writing.Keys(delimiter=b":").split("ä:b:c".encode()) == (b"b:c", "ä")
    line = b'{"a": {"b": "k"}, "n": 7, "f": true, "o": {}}'
    assert writing.Keys(field="a.b").split(line) == (line, "k")
    assert writing.Keys(field="n").split(line) == (line, "7")
    assert writing.Keys(field="f").split(line) == (line, "true")
    for keys, data, message in (
        (writing.Keys(field="o"), line, "not a text or a number"),
        (writing.Keys(field="a.x"), line, "has no field 'a.x'"),
        (writing.Keys(field="a"), b"[1]", "has no field 'a'"),
        (writing.Keys(field="a"), b"{", "is not JSON"),
        (writing.Keys(field="a"), b"[" * 100_000, "is not JSON"),
        (writing.Keys(field="a"), b'{"a":1e400}', "is not JSON.*the number 1e400 is too large"),
        (writing.Keys(delimiter=b":"), b"x", "no ':' after a key"),
        (writing.Keys(delimiter=b":"), b"\xff:x", "the key is not UTF-8"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            keys.split(data)
    with pytest.raises(InvalidArgumentError, match="must not be empty"):
        writing.Keys(delimiter=b"")


async def gathered(events: AsyncIterator[writing.Keyed]) -> list[writing.Keyed]:
    return [each async for each in events]


async def test_events_of_lines_and_files(tmp_path: Path) -> None:
    done: list[int] = []
    sources: list[tuple[str, Any]] = [("one", BytesIO(b"a\n\nb")), ("two", BytesIO(b"c\n"))]
    found = await gathered(writing.line_events(sources, writing.Keys("k"), advance=done.append))
    assert found == [(b"a", "k"), (b"b", "k"), (b"c", "k")]
    assert sum(done) == 6
    with pytest.raises(InvalidArgumentError, match="two, line 2: there is no ':'"):
        sources = [("one", BytesIO(b"a:b\n")), ("two", BytesIO(b"\nc\n"))]
        await gathered(writing.line_events(sources, writing.Keys(delimiter=b":")))
    path = tmp_path / "x"
    path.write_bytes(b"a\r\n\0")
    assert await gathered(writing.file_events([path], writing.Keys())) == [(b"a\r\n\0", None)]
    with pytest.raises(InvalidArgumentError, match="x: it is not JSON"):
        await gathered(writing.file_events([path], writing.Keys(field="a")))


class Endless(RawIOBase):
    """A line that never ends."""

    given = 0

    def read(self, size: int = -1) -> bytes:
        self.given += size
        return bytes(size)


async def test_a_line_is_no_larger_than_an_event() -> None:
    largest = MAX_EVENT_BYTES
    line = b"x" * largest
    sources: list[tuple[str, Any]] = [("one", BytesIO(b"key:%s\r\nkey:%s" % (line, line)))]
    found = await gathered(writing.line_events(sources, writing.Keys(delimiter=b":")))
    assert found == [(line, "key")] * 2
    for keys, data in (
        (writing.Keys(), b"a\n%sx\n" % line),
        (writing.Keys(delimiter=b":"), b"\nk:%sx" % line),
    ):
        with pytest.raises(InvalidArgumentError, match=f"two, line 2: an event of {largest + 1} "):
            await gathered(writing.line_events([("two", BytesIO(data))], keys))
    endless: Any = Endless()
    with pytest.raises(InvalidArgumentError, match="pipe, line 1: the line is longer than the 8388608 bytes"):
        await gathered(writing.line_events([("pipe", endless)], writing.Keys(delimiter=b":")))
    assert endless.given < largest + (1 << 20)


def test_the_rate_is_kept() -> None:
    async def measured() -> float:
        pace = writing.Pace(4)
        began = trio.current_time()
        for _ in range(9):
            await pace.wait()
        return trio.current_time() - began

    assert trio.run(measured, clock=trio.testing.MockClock(autojump_threshold=0)) == pytest.approx(2.0)


# --- reading --------------------------------------------------------------------------------------


def batch(*events: bytes, base: int = 100) -> EventBatch:
    data = b"".join(map(frame_event, events))
    begins: Any = [0]
    for each in events:
        begins.append(begins[-1] + 8 + len(each))
    return EventBatch("mill/pressure/2.#epoch.1", memoryview(data), base, array("i", begins))


class KeptBatches:
    def __init__(self) -> None:
        self.batches: list[EventBatch] = []

    def take(self, found: EventBatch) -> None:
        self.batches.append(found)

    def finish(self) -> None:
        """There is nothing left to write."""


class Kept:
    def __init__(self) -> None:
        self.events: list[bytes] = []

    def take(self, found: EventBatch) -> None:
        self.events += found

    def finish(self) -> None:
        """There is nothing left to write."""


@given(st.lists(st.lists(st.binary(max_size=3), min_size=1)), st.integers(1, 20))
def test_no_more_events_than_the_limit(batches: list[list[bytes]], limit: int) -> None:
    kept = Kept()
    written = reading.Written(kept, limit)
    for each in batches:
        written.take(batch(*each))
    expected = [event for each in batches for event in each][:limit]
    assert kept.events == expected
    assert (written.events, written.bytes) == (len(expected), sum(map(len, expected)))
    assert written.full == (len(expected) == limit)


@given(st.lists(st.lists(st.binary(max_size=3), min_size=1)), st.integers(1, 20))
def test_the_last_events(batches: list[list[bytes]], count: int) -> None:
    kept = Kept()
    last = reading.LastSink(kept, count)
    for each in batches:
        last.take(batch(*each))
    last.end()
    assert kept.events == [event for each in batches for event in each][-count:]
    last.end()
    assert len(kept.events) <= count


def test_the_last_events_are_where_they_were() -> None:
    whole = EventBatch("mill/pressure/2.#epoch.1", memoryview(frame_event(b"ab") * 3), 100, 10)
    for each, offset, expected in (
        (whole, 110, [b"ab", b"ab"]),
        (batch(b"a", b"bc", b"d"), 109, [b"bc", b"d"]),
    ):
        kept = KeptBatches()
        last = reading.LastSink(kept, 2)
        last.take(each)
        last.end()
        (found,) = kept.batches
        assert (list(found), found.base_offset, found.segment) == (expected, offset, each.segment)


def test_the_first_events_of_equal_size() -> None:
    whole = EventBatch("mill/pressure/2.#epoch.1", memoryview(frame_event(b"ab") * 3), 0, 10)
    assert list(reading.first_of(whole, 2)) == [b"ab", b"ab"]
    assert reading.first_of(whole, 3) is whole


def test_formats() -> None:
    found = batch(b"a", b"\xff\n")
    assert reading.show("raw")(found) == b"a\n\xff\n\n"
    assert reading.show("raw", joined=True)(found) == b"a\xff\n"
    assert reading.show("hex")(found) == b"61\nff0a\n"
    one, other = map(json.loads, reading.show("json")(found).splitlines())
    assert one == {
        "stream": "mill/pressure", "segment": "2.#epoch.1", "segment_id": segment_id(1, 2), "offset": 100,
        "length": 9, "pointer": "mill/pressure/2.#epoch.1:100-9", "event": "a",
    }  # fmt: skip
    assert other["offset"] == 109
    assert other["event_base64"] == "/wo="
    assert "event" not in other


@pytest.mark.parametrize("name", ["events", "hdfs:events", "a:b", os.fsdecode(b"\xff")])
@pytest.mark.parametrize("format", ["arrow", "parquet"])
def test_files_of_arrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, name: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.chdir(tmp_path)
    path = Path(name)
    with reading.FileSink(path, format) as sink:
        sink.take(reading.first_of(batch(b"a", b"bc", b"d"), 2))
        last = reading.LastSink(sink, 2)
        last.take(batch(b"gone", b"e", b"\xff", base=7))
        last.end()
    with path.open("rb") as file:
        table = pq.read_table(file) if format == "parquet" else pa.ipc.open_file(file).read_all()
    assert table.to_pydict() == {
        "event": [b"a", b"bc", b"e", b"\xff"],
        "stream": ["mill/pressure"] * 4,
        "segment_id": [segment_id(1, 2)] * 4,
        "offset": [100, 109, 19, 28],
    }


@pytest.mark.parametrize("format", ["arrow", "parquet"])
def test_large_events_are_not_kept_until_there_are_many(tmp_path: Path, format: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "events"
    with reading.FileSink(path, format) as sink:
        for _ in range(5):
            sink.take(batch(bytes(4 << 20)))
    if format == "parquet":
        assert pq.ParquetFile(path).num_row_groups == 3
    else:
        assert pa.ipc.open_file(str(path)).num_record_batches == 3


def output_of(path: Path, *, keep: bool = False, chosen: str = "raw") -> AbstractContextManager[reading.Sink]:
    return read._sink(Session(), chosen, path, joined=False, keep=keep)


@pytest.mark.parametrize("chosen", ["raw", "parquet"])
def test_a_file_is_replaced_when_reading_has_succeeded(tmp_path: Path, chosen: str) -> None:
    path = tmp_path / "events"
    path.write_text("old")
    path.chmod(0o640)
    with pytest.raises(PravegaError), output_of(path, chosen=chosen) as sink:
        sink.take(batch(b"a"))
        raise PravegaError("x")
    assert path.read_text() == "old"
    assert [*tmp_path.iterdir()] == [path]
    with output_of(path, chosen=chosen) as sink:
        sink.take(batch(b"a"))
        assert path.read_text() == "old"
    assert (path.read_bytes() == b"a\n") is (chosen == "raw")
    assert path.read_bytes() != b"old"
    assert path.stat().st_mode & 0o777 == 0o640
    assert [*tmp_path.iterdir()] == [path]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    path = tmp_path / "link"
    path.symlink_to(tmp_path / "events")
    with output_of(path) as sink:
        sink.take(batch(b"a"))
    assert path.is_symlink()
    assert (tmp_path / "events").read_bytes() == b"a\n"


def test_what_a_group_has_read_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), output_of(path, keep=True) as sink:
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    with pytest.raises(KeyboardInterrupt), output_of(path, keep=True) as sink:
        sink.take(batch(b"a", b"b"))
        raise KeyboardInterrupt
    assert path.read_bytes() == b"a\nb\n"
    with output_of(path, keep=True):
        pass
    assert path.read_bytes() == b""


def test_a_pipe_is_written_directly(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with output_of(path) as sink:
        sink.take(batch(b"a"))
    assert os.read(reader, 10) == b"a\n"
    os.close(reader)
    assert path.is_fifo()
    assert not read._is_replaceable(Path("/dev/stdout"))


@pytest.mark.parametrize("more", [[], ["--follow"], ["--group", "g"], ["--limit", "0"], ["--from", "x"]])
def test_a_command_that_cannot_read_leaves_the_file(
    more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRAVEGA_CONTROLLER_URI", "tcp://127.0.0.1:1")
    monkeypatch.setenv("PRAVEGA_OPERATION_TIMEOUT", "0.1")
    for name in ("events.jsonl", "events.parquet"):
        path = tmp_path / name
        path.write_text("old")
        assert main(["read", "s/t", "--output", str(path), *more]) != Exit.DONE
        assert path.read_text() == "old"
    assert len([*tmp_path.iterdir()]) == 2
    assert main(["read", "s/t", "--output", f"{tmp_path}/no/x", *more]) == Exit.USAGE
    assert capsys.readouterr().err.count("\n") == 3


def test_a_group_of_several_streams_needs_a_position_of_each() -> None:
    group, other, third = (ScopedStream("mill", each) for each in ("g", "a", "b"))
    cut = StreamCut(STREAM, {0: 7})
    more = [StreamCut(each, {0: 7}) for each in (other, third)]
    every = [STREAM, other, third]
    groups.check_cuts(group, every, [cut, *more])
    groups.check_cuts(group, [STREAM], [cut])
    with pytest.raises(InvalidArgumentError, match="group mill/g also reads mill/a, mill/b: name a position"):
        groups.check_cuts(group, every, [cut])
    with pytest.raises(InvalidArgumentError, match="several positions of mill/pressure"):
        groups.check_cuts(group, [STREAM], [cut, StreamCut(STREAM, {0: 8})])


class FakeGroup:
    """A reader group that is reset."""

    def __init__(self, *streams: ScopedStream) -> None:
        self.streams = streams
        self.to: list[StreamCut] = []

    async def __aenter__(self) -> FakeGroup:
        return self

    async def __aexit__(self, *error: object) -> None: ...

    async def reset(self, to: list[StreamCut]) -> None:
        self.to = to


async def test_a_reset_does_not_forget_a_stream() -> None:
    other = ScopedStream("mill", "flow")
    group = FakeGroup(STREAM, other)
    heads = {each: StreamCut(each, {0: 0}) for each in group.streams}

    async def head(stream: ScopedStream) -> StreamCut:
        return heads[stream]

    client: Any = SimpleNamespace(reader_group=lambda name: group, head=head)
    cut = points.Point("cut", StreamCut(STREAM, {0: 7}))
    with pytest.raises(InvalidArgumentError, match="also reads mill/flow"):
        await groups.reset(client, ScopedStream("mill", "g"), [cut])
    assert not group.to
    await groups.reset(client, ScopedStream("mill", "g"), [points.Point("head")])
    assert group.to == [*heads.values()]


# --- transactions, ledgers, tables ----------------------------------------------------------------


def test_the_verdict_about_transactions() -> None:
    def at(seconds: float) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)

    def active(status: TxnStatus = TxnStatus.OPEN, lease: float = 2) -> OpenTransaction:
        return OpenTransaction(UUID(int=7), status, at(1), at(lease), at(9))

    def judged(*found: OpenTransaction, now: float) -> tuple[str, str]:
        verdict = health.judge_transactions(STREAM, found, at(now))
        return verdict.state, verdict.finding

    assert judged(now=0) == ("ok", "none is open")
    assert judged(active(), now=1.5) == ("ok", "1 open, the oldest for 500ms")
    state, text = judged(active(), active(lease=99), now=62)
    assert (state, "1 of 2" in text, "for 1m" in text) == ("warning", True, True)
    assert judged(active(TxnStatus.COMMITTING), now=30)[0] == "ok"
    state, text = judged(active(TxnStatus.COMMITTING), now=90)
    # The record does not tell since when.
    assert (state, "began over a minute ago" in text) == ("warning", True)


def test_the_verdict_about_clocks() -> None:
    def token(claims: bytes) -> str:
        return f"x.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.y"

    assert health.issued_at(token(b'{"iat": 1000, "exp": 1600}')) == 1000
    for wrong in ("", "a.b", "a.b.c", token(b"[]"), token(b"{}"), token(b'{"iat": null}'), token(b"\xff")):
        assert health.issued_at(wrong) is None
    states = [
        health.judge_clock(issued, 1600, now).state
        for issued, now in ((1000, 1001.5), (1000, 1020), (1000, 980), (1000, 1700), (None, 0))
    ]
    assert states == ["ok", "warning", "warning", "problem", "unknown"]
    assert "10m behind the controller's" in health.judge_clock(1000, 1600, 400).finding


class Entries:
    """What is installed for streams with one ending."""

    def __init__(self, name: str, load: Callable[[], object]) -> None:
        self.name = name
        self.load = load


async def test_ledgers_are_read_by_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def examine(client: object, ledger: ScopedStream) -> AsyncIterator[tuple[str, str]]:
        yield "ok", f"read {ledger.name}"

    def fail() -> object:
        raise MissingExtraError("it needs an extra")

    async def found(*entries: Entries) -> list[tuple[str, str, str]]:
        monkeypatch.setattr(health, "entry_points", lambda group: entries)
        streams = [ScopedStream("s", each) for each in ("a", "a-log", "b-log")]
        named = [ScopedStream("s", "b-log"), ScopedStream("s", "other")]
        looked: Any = health._ledgers(None, streams, named)  # type: ignore[arg-type]
        return [(each.check, each.state, each.finding) async for each in looked]

    assert await found(Entries("-log", lambda: examine)) == [
        ("ledger s/b-log", "ok", "read b-log"),
        ("ledger s/other", "ok", "read other"),
        ("ledger s/a-log", "ok", "read a-log"),
    ]
    missing = "it cannot be read here: it needs an extra"
    assert await found(Entries("-log", fail)) == [
        (f"ledger s/{each}", "unknown", missing) for each in ("b-log", "other", "a-log")
    ]
    nothing = "nothing is installed that can read it"
    assert await found() == [(f"ledger s/{each}", "unknown", nothing) for each in ("b-log", "other")]


def test_keys_and_values_of_tables() -> None:
    assert tables.encode("ab", "text", 4) == b"ab\0\0"
    assert tables.decode(b"ab\0\0", "text", key=True) == "ab"
    assert tables.encode("7", "int", 2) == b"\0\7"
    assert tables.encode("7", "int") == bytes(7) + b"\7"
    assert tables.decode(b"\1\0", "int") == "256"
    assert tables.decode(b"\xff" * 3000, "int") == "base64:" + "////" * 1000
    with pytest.raises(InvalidArgumentError, match=r"999\.\.\.' is not int: a whole"):
        tables.encode("9" * 5000, "int")
    assert tables.encode("0a", "hex") == b"\n"
    assert tables.decode(b"\xff", "hex") == "ff"
    assert tables.decode(b"\xff", "text") == "base64:/w=="
    for text, format, length in (("abc", "text", 2), ("0a", "hex", 2), ("x", "int", 2), ("70000", "int", 2)):
        with pytest.raises(InvalidArgumentError):
            tables.encode(text, format, length)
    for size in (None, 4):
        with pytest.raises(InvalidArgumentError, match="a whole number from 0 on that fits into"):
            tables.encode("-5", "int", size)
    plain, pairs = KeyValueTableConfiguration(1, 2, 0), KeyValueTableConfiguration(1, 2, 3)
    assert tables.key_of(plain, "a", None, "text") == (b"a\0", b"")
    assert tables.key_of(pairs, "a", "b", "text") == (b"a\0", b"b\0\0")
    refused: list[Callable[[], object]] = [
        lambda: tables.key_of(plain, "a", "b", "text"),
        lambda: tables.key_of(pairs, "a", None, "text"),
    ]
    for call in refused:
        with pytest.raises(InvalidArgumentError, match="secondary key"):
            call()


# --- pictures -------------------------------------------------------------------------------------


def test_shapes() -> None:
    found = shapes.shapes_of(LAYOUT)
    assert [(each.segment, each.first, each.last) for each in found] == [
        ("0", 0, 0), ("1.#epoch.1", 1, 1), ("2.#epoch.1", 1, 2), ("3.#epoch.2", 2, 2), ("4.#epoch.2", 2, 2),
    ]  # fmt: skip
    heats = [shapes.heat(each, found) for each in found]
    assert heats[2] == 1.0
    assert heats[1] == heats[3] == 0.0
    assert 0 < heats[4] < heats[0] < 1
    lines = shapes.draw_text(found, height=8, width=36)
    assert len(lines) == 10
    assert len({len(each) for each in lines[:-1]}) == 1
    assert lines[0].count("█") > 10
    assert lines[-1].split() == ["0", "1", "2"]


def test_the_picture_is_svg(tmp_path: Path) -> None:
    found = shapes.shapes_of(LAYOUT)
    root = ElementTree.fromstring(shapes.svg("a < b & c", found))
    name = "{http://www.w3.org/2000/svg}"
    boxes = root.findall(f"{name}rect")
    assert len(boxes) == 5
    areas = sum(float(each.get("width", 0)) * float(each.get("height", 0)) for each in boxes)
    assert areas == pytest.approx(3 * 120 * 400)
    assert root.find(f"{name}text").text == "a < b & c"  # type: ignore[union-attr]
