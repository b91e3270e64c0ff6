"""How the server's jars are fetched: from real HTTP servers, over real TLS and through a real proxy."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import select
import signal
import socket
import ssl
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme

from pravega_wire.cli import server as command
from pravega_wire.errors import ServerStartError
from pravega_wire.testing import download, jars, maven
from pravega_wire.testing.maven import Jar

ROOT = Path(__file__).resolve().parents[2]
FILES = {"one": b"1" * 300_000, "two": b"2" * 1000, "three": b"3" * 70_000}
SETTINGS = (
    *("PRAVEGA_WIRE_JARS", "PRAVEGA_WIRE_MAVEN_REPOSITORY", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
)


def jar_of(name: str, content: bytes) -> Jar:
    return Jar(
        "org.example", name, "1", "", hashlib.sha256(content).hexdigest(), len(content), frozenset({"server"})
    )


class Handler(BaseHTTPRequestHandler):
    """Files by their paths, with ranges; what the owner says goes wrong."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    @property
    def owner(self) -> Published:
        return self.server.owner  # type: ignore[attr-defined,no-any-return]

    def do_GET(self) -> None:
        owner = self.owner
        path = urlsplit(self.path).path  # a proxy is given the whole address
        owner.asked[path.rpartition("/")[2]] += 1
        owner.ranges.append(self.headers.get("range"))
        if owner.account is not None and self.headers.get("authorization") != "Basic " + owner.account:
            self.answer(401, b"")
            return
        if owner.statuses:
            self.answer(owner.statuses.pop(0), b"not now")
            return
        content = owner.files.get(path.removeprefix(owner.prefix))
        if content is None:
            self.answer(404, b"nothing here")
            return
        wanted = self.headers.get("range")
        if wanted is None or not owner.knows_ranges:
            self.answer(200, content)
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        self.answer(206, content[start:], f"bytes {start}-{len(content) - 1}/{len(content)}")

    def answer(self, status: int, body: bytes, content_range: str | None = None) -> None:
        owner = self.owner
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        if content_range is not None:
            self.send_header("content-range", content_range)
        self.end_headers()
        if owner.cuts and len(body) > owner.cuts[0]:
            self.wfile.write(body[: owner.cuts.pop(0)])
            self.wfile.flush()
            owner.cut.set()
            owner.gate.wait(60)
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        owner.gate.wait(60)
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that leave in the middle are what is tested here."""


class Published:
    """A Maven repository that holds :data:`FILES`, on a port of its own."""

    def __init__(self, certificate: trustme.LeafCert | None = None, prefix: str = "/maven/") -> None:
        self.prefix = prefix
        self.files = {jar_of(name, content).path: content for name, content in FILES.items()}
        self.asked: Counter[str] = Counter()
        self.ranges: list[str | None] = []
        self.statuses: list[int] = []
        self.cuts: list[int] = []
        self.cut = threading.Event()
        self.gate = threading.Event()
        self.gate.set()
        self.knows_ranges = True
        self.account: str | None = None
        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.owner = self  # type: ignore[attr-defined]
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            certificate.configure_cert(context)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.scheme = "http" if certificate is None else "https"
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}{self.prefix}"

    def close(self) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class ProxyHandler(BaseHTTPRequestHandler):
    """Passes connections on to where they want to go."""

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def do_CONNECT(self) -> None:
        owner: Proxy = self.server.owner  # type: ignore[attr-defined]
        owner.connected.append(self.path)
        if owner.account is not None and self.headers.get("proxy-authorization") != "Basic " + owner.account:
            self.send_error(407)
            return
        # Whatever the name is: it need not exist.
        with socket.create_connection(("127.0.0.1", int(self.path.rpartition(":")[2]))) as further:
            self.send_response(200)
            self.end_headers()
            ends = [self.connection, further]
            while True:
                for end in select.select(ends, [], [])[0]:
                    data = end.recv(1 << 16)
                    if not data:
                        return
                    ends[1 - ends.index(end)].sendall(data)


class Proxy:
    def __init__(self) -> None:
        self.connected: list[str] = []
        self.account: str | None = None
        self._server = Server(("127.0.0.1", 0), ProxyHandler)
        self._server.owner = self  # type: ignore[attr-defined]
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    """A machine where nothing is set up, with an empty cache."""
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("PRAVEGA_WIRE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        jars, "locked_jars", lambda: tuple(jar_of(name, content) for name, content in FILES.items())
    )
    monkeypatch.setattr(download, "_PAUSE_SECONDS", 0.01)
    jars.fetch.cache_clear()
    yield monkeypatch
    jars.fetch.cache_clear()


@pytest.fixture
def published(machine: pytest.MonkeyPatch) -> Iterator[Published]:
    """A repository that ``PRAVEGA_WIRE_MAVEN_REPOSITORY`` names."""
    found = Published()
    machine.setenv(maven.VARIABLE, found.url)
    yield found
    found.close()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def secure(machine: pytest.MonkeyPatch, authority: trustme.CA) -> Iterator[Published]:
    """The same over TLS, from an authority that nobody knows yet."""
    found = Published(authority.issue_cert("127.0.0.1", "repository.example"))
    machine.setenv(maven.VARIABLE, found.url)
    yield found
    found.close()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    found = Proxy()
    yield found
    found.close()


def fetched() -> list[bytes]:
    jars.fetch.cache_clear()
    return [path.read_bytes() for path in jars.server_classpath()]


def sentence() -> str:
    """What a failure says: one sentence in one line."""
    with pytest.raises(ServerStartError) as caught:
        fetched()
    assert "\n" not in str(caught.value)
    return str(caught.value)


WHOLE = list(FILES.values())


# --- the cache ------------------------------------------------------------------------------------


def test_files_are_fetched_once(published: Published) -> None:
    assert fetched() == WHOLE
    assert fetched() == WHOLE
    assert published.asked == {"one-1.jar": 1, "two-1.jar": 1, "three-1.jar": 1}
    assert not list(jars.fetch().glob("*.part"))


@pytest.mark.parametrize("damage", [None, b"", b"1", b"x" * 300_000, b"1" * 300_001])
def test_what_is_missing_or_damaged_is_fetched_again(published: Published, damage: bytes | None) -> None:
    fetched()
    one = jars.fetch() / "one-1.jar"
    if damage is None:
        one.unlink()
    else:
        one.write_bytes(damage)
    assert fetched() == WHOLE
    assert published.asked == {"one-1.jar": 2, "two-1.jar": 1, "three-1.jar": 1}


def test_progress_is_shown(published: Published, capsys: pytest.CaptureFixture[str]) -> None:
    fetched()
    shown = capsys.readouterr().err.splitlines()
    assert shown[0].startswith(
        f"[pravega jars] downloading 3 files (0 MB) from 127.0.0.1:{published.port} into "
    )
    # How many files were whole at the last look is a matter of luck.
    assert re.search(r"0 of 0 MB, \d of 3 files", shown[-2])
    assert shown[-1].startswith("[pravega jars] done in ")
    fetched()
    assert capsys.readouterr().err == ""


def test_a_cache_that_cannot_be_written(published: Published, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    assert "set PRAVEGA_WIRE_CACHE to another directory" in sentence()
    assert not published.asked


# --- cuts -----------------------------------------------------------------------------------------


def jars_kept() -> Path:
    """Where the jars are kept."""
    return jars.cache_directory() / "jars-0.13.0"


def only(machine: pytest.MonkeyPatch, *names: str) -> None:
    machine.setattr(jars, "locked_jars", lambda: tuple(jar_of(name, FILES[name]) for name in names))


def test_a_file_is_resumed_after_each_cut(machine: pytest.MonkeyPatch, published: Published) -> None:
    only(machine, "one")
    # More cuts than tries: each piece that arrives counts.
    published.cuts = [200_000, 50_000, 20_000, 10_000, 10_000, 5_000]
    assert fetched() == [FILES["one"]]
    starts = [0 if each is None else int(each[6:-1]) for each in published.ranges]
    assert len(starts) == 7
    assert starts == sorted(set(starts))
    assert starts[-1] > 0


def test_a_repository_without_ranges(machine: pytest.MonkeyPatch, published: Published) -> None:
    only(machine, "one")
    published.knows_ranges = False
    published.cuts = [200_000]
    assert fetched() == [FILES["one"]]
    assert len(published.ranges) == 2


@pytest.mark.parametrize(
    "start", [b"x" * 1000, b"x" * 300_000, b"x" * 300_001], ids=["short", "as long", "longer"]
)
def test_a_part_of_another_file_is_thrown_away(
    machine: pytest.MonkeyPatch, published: Published, start: bytes
) -> None:
    only(machine, "one")
    directory = jars_kept()
    directory.mkdir(parents=True)
    (directory / "one-1.jar.part").write_bytes(start)
    assert fetched() == [FILES["one"]]
    assert published.ranges[-1] is None


def test_a_part_that_is_whole_is_not_fetched(machine: pytest.MonkeyPatch, published: Published) -> None:
    only(machine, "one")
    directory = jars_kept()
    directory.mkdir(parents=True)
    (directory / "one-1.jar.part").write_bytes(FILES["one"])
    assert fetched() == [FILES["one"]]
    assert not published.asked


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_repository_that_has_a_bad_moment(
    machine: pytest.MonkeyPatch, published: Published, status: int
) -> None:
    only(machine, "two")
    published.statuses = [status] * 3
    assert fetched() == [FILES["two"]]
    published.asked.clear()
    (jars.fetch() / "two-1.jar").unlink()
    published.statuses = [status] * 4
    assert f"(4 attempts): {status} " in sentence()
    assert published.asked == {"two-1.jar": 4}


CHILD = """
    import sys
    from pravega_wire.testing import jars
    from pravega_wire.testing.maven import Jar

    locked = [Jar("org.example", *line.split(":")[:2], "", *line.split(":")[2:3], int(line.split(":")[3]),
                  frozenset({"server"})) for line in sys.argv[1:]]
    jars.locked_jars = lambda: tuple(locked)
    jars.fetch()
    print("fetched", flush=True)
"""


def child(*names: str) -> subprocess.Popen[str]:
    locked = [jar_of(name, FILES[name]) for name in names]
    return subprocess.Popen(
        [
            sys.executable, "-c", textwrap.dedent(CHILD),
            *(f"{jar.artifact}:{jar.version}:{jar.sha256}:{jar.size}" for jar in locked),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def test_processes_wait_for_the_one_that_fetches(published: Published) -> None:
    published.gate.clear()
    children = [child(*FILES) for _ in range(3)]
    try:
        said = []
        for each in children:
            assert each.stderr is not None
            said.append(each.stderr.readline())
        assert sum("downloading 3 files" in line for line in said) == 1
        assert sum("another process is downloading them; waiting" in line for line in said) == 2
        published.gate.set()
        for each in children:
            assert each.communicate(timeout=120)[0] == "fetched\n"
    finally:
        published.gate.set()
        for each in children:
            each.kill()
            each.communicate()
    assert published.asked == {"one-1.jar": 1, "two-1.jar": 1, "three-1.jar": 1}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_next_process_resumes_what_a_killed_one_has_left(
    machine: pytest.MonkeyPatch, published: Published, number: int
) -> None:
    only(machine, "one")
    published.cuts = [200_000]
    published.gate.clear()
    first = child("one")
    try:
        assert published.cut.wait(120)
        part = jars_kept() / "one-1.jar.part"
        while not part.exists() or part.stat().st_size < 65_536:
            assert first.poll() is None
            time.sleep(0.01)  # what was sent is on its way; a file tells nobody that it grows
        first.send_signal(number)
        assert "fetched" not in first.communicate(timeout=120)[0]
    finally:
        first.kill()
        first.communicate()
        published.gate.set()
    kept = part.stat().st_size
    assert kept > 0
    assert fetched() == [FILES["one"]]
    assert published.ranges == [None, f"bytes={kept}-"]


# --- what is wrong with the repository ------------------------------------------------------------


def test_a_file_that_is_not_the_published_one(machine: pytest.MonkeyPatch, published: Published) -> None:
    published.files[jar_of("two", b"").path] = b"x" * 1000
    assert "two-1.jar from 127.0.0.1:" in (said := sentence())
    assert "is not the published file" in said
    assert not list(jars_kept().glob("two-1.jar*"))
    published.files[jar_of("two", b"").path] = FILES["two"]
    assert fetched() == WHOLE


def test_a_page_in_place_of_a_file(machine: pytest.MonkeyPatch, published: Published) -> None:
    only(machine, "two")
    published.files[jar_of("two", b"").path] = b"<html>" * 5000
    assert "two-1.jar from 127.0.0.1:" in sentence()
    assert not list(jars_kept().glob("two-1.jar*"))


def test_a_file_that_is_not_there(published: Published) -> None:
    del published.files[jar_of("two", b"").path]
    said = sentence()
    assert (
        f"two-1.jar cannot be downloaded from 127.0.0.1:{published.port}: it answered 404 Not Found" in said
    )
    assert "PRAVEGA_WIRE_MAVEN_REPOSITORY does not have org.example:two:1" in said
    assert published.asked["two-1.jar"] == 1


def test_an_account(machine: pytest.MonkeyPatch, published: Published) -> None:
    published.account = base64.b64encode(b"me@home:p w").decode()
    said = sentence()
    assert "it answered 401 Unauthorized" in said
    assert "name:password@host" in said
    machine.setenv(maven.VARIABLE, published.url.replace("://", "://me%40home:p%20w@"))
    assert fetched() == WHOLE


def test_passwords_are_not_said(machine: pytest.MonkeyPatch, published: Published) -> None:
    machine.setenv(maven.VARIABLE, published.url.replace("://", "://me:secret@"))
    published.files.clear()
    assert "secret" not in sentence()
    assert "secret" not in repr(maven.repository())


def test_nothing_listens(machine: pytest.MonkeyPatch) -> None:
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        machine.setenv(maven.VARIABLE, f"http://127.0.0.1:{dead.getsockname()[1]}")
        said = sentence()
    assert "Connection refused; check the network and run this again" in said
    assert "HTTPS_PROXY" in said
    assert maven.VARIABLE in said


@pytest.mark.parametrize(
    "address", ["repository", "ftp://host/x", "https://", "https://host:port/x", "/srv/m2"]
)
def test_what_is_no_address(machine: pytest.MonkeyPatch, address: str) -> None:
    machine.setenv(maven.VARIABLE, address)
    assert (
        f"PRAVEGA_WIRE_MAVEN_REPOSITORY: {address!r} is not the address of a Maven repository" in sentence()
    )


def test_the_command_prints_only_the_sentence(
    published: Published, capsys: pytest.CaptureFixture[str]
) -> None:
    published.files.clear()
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert command.main(["fetch"]) == 1
    finally:
        signal.signal(signal.SIGTERM, before)
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("[pravega jars] ") for line in lines[:-1])
    assert lines[-1].startswith("error: ")
    assert "404" in lines[-1]


PLUGIN_TEST = """
import hashlib
from pravega_wire.testing import jars
from pravega_wire.testing.maven import Jar

jars.locked_jars = lambda: (
    Jar("org.example", "two", "1", "", hashlib.sha256(b"2" * 1000).hexdigest(), 1000, frozenset({"server"})),
)


def test_one(pravega_server):
    pass


def test_two(pravega_scope):
    pass
"""


PYTEST = [sys.executable, *["-m", "pytest", "-p", "no:hypothesispytest", "-p", "no:anyio", "-p", "no:xdist"]]
"""Without plugins that take a second to import."""


def test_the_fixture_shows_progress_and_one_sentence(published: Published, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(PLUGIN_TEST)

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PYTEST, "-p", "no:cacheprovider", "-rE", "--rootdir", tmp_path, tmp_path],
            cwd=tmp_path,
            env=os.environ
            | {
                "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
                "PRAVEGA_TEST_SERVER": "jars",
            },
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    published.files.clear()
    refused = run()
    assert "[pravega jars] downloading 1 files" in refused.stderr  # past pytest's capturing
    assert "2 errors" in refused.stdout
    assert "two-1.jar cannot be downloaded from 127.0.0.1:" in refused.stdout
    assert "Error: " not in refused.stdout
    assert "pravega_wire/testing/" not in refused.stdout  # no line of a stack trace
    published.files[jar_of("two", b"").path] = FILES["two"]
    fetched = run()
    assert "1 of 1 files" in fetched.stderr
    assert "[pravega jars] done in " in fetched.stderr
    assert "standalone has ended during its start" in fetched.stdout  # no server is in that jar


# --- trust ----------------------------------------------------------------------------------------


def test_a_certificate_that_nobody_trusts(secure: Published) -> None:
    said = sentence()
    assert f"127.0.0.1:{secure.port}: its certificate is not trusted (" in said
    assert "set SSL_CERT_FILE to a PEM file" in said
    assert not secure.asked


def test_a_certificate_that_the_system_trusts(
    machine: pytest.MonkeyPatch, secure: Published, authority: trustme.CA, tmp_path: Path
) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    machine.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    assert fetched() == WHOLE


# --- proxies --------------------------------------------------------------------------------------


@pytest.fixture
def trusted(
    machine: pytest.MonkeyPatch, secure: Published, authority: trustme.CA, tmp_path: Path
) -> Published:
    """A repository under a name that only the proxy knows."""
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    machine.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    machine.setenv(maven.VARIABLE, f"https://repository.example:{secure.port}{secure.prefix}")
    return secure


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
def test_a_proxy(machine: pytest.MonkeyPatch, trusted: Published, proxy: Proxy, name: str) -> None:
    machine.setenv(name, f"http://{proxy.address}/")
    assert fetched() == WHOLE
    assert set(proxy.connected) == {f"repository.example:{trusted.port}"}


def test_a_proxy_that_wants_an_account(machine: pytest.MonkeyPatch, trusted: Published, proxy: Proxy) -> None:
    proxy.account = base64.b64encode(b"me:p@w").decode()
    machine.setenv("HTTPS_PROXY", proxy.address)
    said = sentence()
    assert f"the proxy {proxy.address} from HTTPS_PROXY rejects the connection (407 " in said
    machine.setenv("HTTPS_PROXY", f"http://me:p%40w@{proxy.address}")
    assert fetched() == WHOLE


def test_a_host_that_needs_no_proxy(machine: pytest.MonkeyPatch, published: Published, proxy: Proxy) -> None:
    machine.setenv("ALL_PROXY", "http://127.0.0.1:1")
    assert "through the proxy 127.0.0.1:1 from ALL_PROXY" in sentence()
    machine.setenv("NO_PROXY", "localhost,127.0.0.1")
    assert fetched() == WHOLE


@pytest.mark.parametrize("value", ["socks5://127.0.0.1:1080", "http://:8080", "http://host:port"])
def test_a_proxy_of_another_kind(machine: pytest.MonkeyPatch, trusted: Published, value: str) -> None:
    machine.setenv("HTTPS_PROXY", value)
    assert "HTTPS_PROXY is not the address of an HTTP proxy" in sentence()


# --- the address ----------------------------------------------------------------------------------


def test_without_the_variable_it_is_the_central_repository(machine: pytest.MonkeyPatch) -> None:
    found = maven.repository()
    assert found.source == "the central Maven repository"
    assert found.url.startswith("https://")


@pytest.mark.parametrize("package", ["jgo.maven", "truststore", "urllib3"])
def test_packages_of_the_extra(machine: pytest.MonkeyPatch, package: str) -> None:
    if package != "jgo.maven":
        machine.setenv(maven.VARIABLE, "http://127.0.0.1:1/")
    machine.setitem(sys.modules, package, None)  # as if it were not installed
    assert f"needs the package {package}: pip install 'pravega-wire[testing]'" in sentence()
