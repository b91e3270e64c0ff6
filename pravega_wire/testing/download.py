"""Downloads files over HTTP, in parallel, with this machine's certificates and proxies.

An interrupted download is resumed.
"""

from __future__ import annotations

import os
import ssl
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from pravega_wire.errors import ServerStartError
from pravega_wire.testing.maven import VARIABLE, Jar, Repository

if TYPE_CHECKING:
    import urllib3

__all__ = ["download", "say", "sha256_of"]

_PARALLEL = 8
_TRIES = 4
_PAUSE_SECONDS = 0.5
_CHUNK = 1 << 16
_CONNECT_SECONDS, _READ_SECONDS = 20.0, 60.0


def say(text: str) -> None:
    """Print a line about the download to standard error."""
    print(f"[pravega jars] {text}", file=sys.stderr, flush=True)


def sha256_of(path: Path) -> str | None:
    """Return the SHA-256 checksum of a file; None if the file does not exist."""
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


# --- the machine's settings ----------------------------------------------------------------------


def _trusted() -> ssl.SSLContext:
    """Return the system's certificate authorities, and those of certifi for a machine without a store."""
    import certifi
    import truststore

    context: ssl.SSLContext = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cafile=certifi.where())
    return context


@dataclass(frozen=True, slots=True)
class _Proxy:
    """An HTTP proxy.

    :ivar url: its address, without an account.
    :ivar source: the variable that names it, for messages.
    :ivar account: ``name:password``, or None.
    """

    url: str
    source: str
    account: str | None = field(default=None, repr=False)


def _proxy_for(url: str) -> _Proxy | None:
    """Return the proxy that the environment names for an address, or None."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    named = urllib.request.getproxies()
    scheme = next((each for each in (parts.scheme, "all") if named.get(each)), None)
    if scheme is None or urllib.request.proxy_bypass(host):
        return None
    source = f"{scheme.upper()}_PROXY"
    address = named[scheme] if "://" in named[scheme] else f"http://{named[scheme]}"
    try:
        proxy = urlsplit(address)
        usable = proxy.scheme in ("http", "https") and bool(proxy.hostname) and proxy.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ServerStartError(
            f"{source} is not the address of an HTTP proxy (http://host:port), so the server's jars cannot "
            f"be downloaded: correct it, or set NO_PROXY={host} if {host} can be reached without a proxy"
        )
    plain = proxy._replace(netloc=proxy.netloc.rpartition("@")[2], path="", query="", fragment="")
    account = None
    if proxy.username is not None:
        account = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return _Proxy(plain.geturl(), source, account)


# --- one file ------------------------------------------------------------------------------------


class _AgainError(Exception):
    """An attempt has failed, and another one may succeed."""


class _StoppedError(Exception):
    """Another file has failed, or the user has interrupted the download."""


class _Transfer:
    """All downloads of one call of :func:`download`."""

    def __init__(self, directory: Path, repository: Repository) -> None:
        import urllib3

        self.directory = directory
        self.repository = repository
        self.received = 0  # bytes on disk of files that were missing
        self.done = 0
        self._guard = threading.Lock()
        self._stopped = threading.Event()
        self._open: set[urllib3.BaseHTTPResponse] = set()
        self.proxy = _proxy_for(repository.url)
        trusted = _trusted()
        options: dict[str, Any] = {
            "ssl_context": trusted,
            "maxsize": _PARALLEL,
            # Redirects are followed; after any other failure the download resumes where the file ends.
            "retries": urllib3.Retry(total=None, connect=0, read=0, redirect=5, status=0, other=0),
            "timeout": urllib3.Timeout(connect=_CONNECT_SECONDS, read=_READ_SECONDS),
        }
        self._pool: urllib3.PoolManager
        if self.proxy is None:
            self._pool = urllib3.PoolManager(**options)
        else:
            self._pool = urllib3.ProxyManager(
                self.proxy.url,
                proxy_headers=urllib3.make_headers(proxy_basic_auth=self.proxy.account),
                proxy_ssl_context=trusted,
                **options,
            )
        self._headers = {"accept-encoding": "identity"}
        if repository.username is not None:
            account = f"{repository.username}:{repository.password or ''}"
            self._headers |= urllib3.make_headers(basic_auth=account)

    def close(self) -> None:
        """End every transfer, from any thread."""
        self._stopped.set()
        with self._guard:
            for response in self._open:
                try:
                    response.shutdown()
                except (OSError, RuntimeError, ValueError, NotImplementedError):
                    continue  # it has just ended on its own
        self._pool.clear()

    def fetch(self, jar: Jar) -> None:
        """Download one file completely into the directory.

        :raises ServerStartError: the download failed; the message says why and what to do.
        """
        import urllib3

        part = self.directory / f"{jar.file_name}.part"
        failures = 0
        while True:
            before = self._size_of(part)
            try:
                self._attempt(jar, part)
                return
            except urllib3.exceptions.HTTPError as error:
                failed: Exception = error
                if _certificate_error(error) is not None or _refused_by_proxy(error) is not None:
                    raise self._explained(jar, error) from error
            except _AgainError as error:
                failed = error
            except OSError as error:
                raise ServerStartError(
                    f"{jar.file_name} cannot be written into {self.directory}: {error}; set "
                    "PRAVEGA_WIRE_CACHE to a directory with room for it"
                ) from error
            if self._stopped.is_set():
                raise _StoppedError
            # An attempt that made progress does not count: a bad line still transfers the file in pieces.
            failures = 1 if self._size_of(part) > before else failures + 1
            if failures >= _TRIES:
                raise self._explained(jar, failed) from failed
            self._stopped.wait(_PAUSE_SECONDS * 2 ** (failures - 1))

    @staticmethod
    def _size_of(path: Path) -> int:
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return 0

    def _attempt(self, jar: Jar, part: Path) -> None:
        have = self._size_of(part)
        resumed = have > 0
        if have < jar.size:
            resumed = self._receive(jar, part, have)
        if sha256_of(part) == jar.sha256:
            os.replace(part, self.directory / jar.file_name)
            with self._guard:
                self.done += 1
            return
        found, size = sha256_of(part), self._size_of(part)
        if size < jar.size:
            raise _AgainError(f"the connection ended after {size} of {jar.size} bytes")
        part.unlink()
        with self._guard:
            self.received -= size
        if resumed:
            raise _AgainError("the file has changed since its first part was downloaded")
        raise ServerStartError(
            f"{jar.file_name} from {self.repository.host} is not the published file: its checksum is "
            f"{found}, but {jar.sha256} is expected; {self.repository.source} serves another file, so set "
            f"{VARIABLE} to a repository with the published one"
        )

    def _receive(self, jar: Jar, part: Path, have: int) -> bool:
        """Download the missing part of a file; return True if the download was resumed."""
        headers = self._headers | ({"range": f"bytes={have}-"} if have else {})
        url = f"{self.repository.url}/{jar.path}"
        with self._response(url, headers) as response:
            if response.status == 206 and response.headers.get("content-range", "").startswith(
                f"bytes {have}-"
            ):
                resumed = True
            elif response.status == 200:
                resumed = False
                with self._guard:
                    self.received -= have  # it is sent again from its start
            elif response.status in (206, 416):
                part.unlink(missing_ok=True)
                with self._guard:
                    self.received -= have
                raise _AgainError(f"{response.status} {response.reason}")
            elif response.status in (408, 425, 429) or response.status >= 500:
                raise _AgainError(f"{response.status} {response.reason}")
            else:
                raise self._refused(jar, response.status, response.reason or "")
            size = have if resumed else 0
            with part.open("ab" if resumed else "wb") as file:
                for chunk in response.stream(_CHUNK, decode_content=False):
                    if self._stopped.is_set():
                        raise _StoppedError
                    file.write(chunk)
                    size += len(chunk)
                    with self._guard:
                        self.received += len(chunk)
                    if size > jar.size:
                        break  # it is longer than the file
        return resumed

    @contextmanager
    def _response(self, url: str, headers: dict[str, str]) -> Iterator[urllib3.BaseHTTPResponse]:
        if self._stopped.is_set():
            raise _StoppedError
        response = self._pool.request("GET", url, headers=headers, preload_content=False)
        with self._guard:
            self._open.add(response)
        try:
            yield response
        finally:
            with self._guard:
                self._open.discard(response)
            # After a complete reply the pool already has the connection back; otherwise it cannot be reused.
            response.close()

    # --- messages -----------------------------------------------------------------------------

    def _refused(self, jar: Jar, status: int, reason: str) -> ServerStartError:
        host, source = self.repository.host, self.repository.source
        what = f"{jar.file_name} cannot be downloaded from {host}: it answered {status} {reason}".rstrip()
        if status in (401, 403):
            return ServerStartError(
                f"{what}; {source} requires an account: set it in {VARIABLE} "
                "(https://name:password@host/path)"
            )
        if status == 407 and self.proxy is not None:
            return self._proxy_sentence(jar, f"{status} {reason}".rstrip())
        return ServerStartError(
            f"{what}; {source} does not have {jar.group}:{jar.artifact}:{jar.version}: set {VARIABLE} to a "
            "repository that has it, or PRAVEGA_WIRE_JARS to a directory with the jars"
        )

    def _proxy_sentence(self, jar: Jar, reason: str) -> ServerStartError:
        assert self.proxy is not None
        return ServerStartError(
            f"{jar.file_name} cannot be downloaded from {self.repository.host}: the proxy "
            f"{urlsplit(self.proxy.url).netloc} from {self.proxy.source} rejects the connection ({reason}); "
            "set HTTPS_PROXY to a proxy that allows it (http://name:password@host:port if it requires an "
            "account)"
        )

    def _explained(self, jar: Jar, error: Exception) -> ServerStartError:
        what = f"{jar.file_name} cannot be downloaded from {self.repository.host}"
        certificate = _certificate_error(error)
        if certificate is not None:
            return ServerStartError(
                f"{what}: its certificate is not trusted ({certificate.verify_message}); set "
                "SSL_CERT_FILE to a PEM file with the certificate authority of your network"
            )
        refused = _refused_by_proxy(error)
        if refused is not None and self.proxy is not None:
            return self._proxy_sentence(jar, refused)
        if self.proxy is not None:
            what += f" through the proxy {urlsplit(self.proxy.url).netloc} from {self.proxy.source}"
        return ServerStartError(
            f"{what} ({_TRIES} attempts): {_last_words(error)}; check the network and run this again (data "
            "downloaded so far is kept), set HTTPS_PROXY if a proxy is needed, or set "
            f"{VARIABLE} to a mirror that can be reached"
        )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Iterate over an error and its causes, which urllib3 keeps in several places."""
    seen: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting:
        each = waiting.pop(0)
        if isinstance(each, BaseException) and each not in seen:
            seen.append(each)
            yield each
            waiting += [getattr(each, "reason", None), getattr(each, "original_error", None)]
            waiting += [each.__cause__, *each.args]


def _certificate_error(error: BaseException) -> ssl.SSLCertVerificationError | None:
    return next((each for each in _chain(error) if isinstance(each, ssl.SSLCertVerificationError)), None)


def _refused_by_proxy(error: BaseException) -> str | None:
    """Return the reply of a proxy that rejected the connection, or None."""
    for each in _chain(error):
        if isinstance(each, OSError) and str(each).startswith("Tunnel connection failed: "):
            return str(each).removeprefix("Tunnel connection failed: ")
    return None


def _last_words(error: BaseException) -> str:
    """Return the innermost reason of an error, without the object descriptions that urllib3 adds."""
    words = [str(each) for each in _chain(error) if not any(isinstance(arg, Exception) for arg in each.args)]
    return words[-1].rpartition(">: ")[2] if words else str(error)


# --- all of them ---------------------------------------------------------------------------------


class _Progress:
    """Shows progress: one changing line on a terminal; otherwise a line every 10 seconds or 10 percent."""

    def __init__(self, transfer: _Transfer, jars: Sequence[Jar]) -> None:
        self._transfer = transfer
        self._files = len(jars)
        self._bytes = sum(jar.size for jar in jars)
        self._started = time.monotonic()
        self._terminal = sys.stderr.isatty()
        self._last = (0.0, self._started)

    def show(self) -> None:
        now, share = time.monotonic(), self._transfer.received / max(1, self._bytes)
        if not self._terminal:
            if share < self._last[0] + 0.1 and now < self._last[1] + 10:
                return
            self._last = share, now
        text = (
            f"{self._transfer.received / 1e6:.0f} of {self._bytes / 1e6:.0f} MB, "
            f"{self._transfer.done} of {self._files} files, {now - self._started:.0f} s"
        )
        if self._terminal:
            print(f"\r[pravega jars] {text}  ", end="", file=sys.stderr, flush=True)
        else:
            say(text)

    def end(self) -> None:
        if self._terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        if self._transfer.done == self._files:
            say(f"done in {time.monotonic() - self._started:.0f} s")


def download(jars: Sequence[Jar], directory: Path, repository: Repository) -> None:
    """Download files completely into a directory.

    Data that is already in ``*.part`` files is not downloaded again.

    :param jars: the files.
    :param directory: the directory for them.
    :param repository: the repository to download from.
    :raises ServerStartError: a download failed; the message says why and what to do. All data that has
        arrived is kept.
    """
    try:
        transfer = _Transfer(directory, repository)
    except ImportError as error:
        raise ServerStartError(
            f"downloading the server's jars needs the package {error.name}: pip install "
            "'pravega-wire[testing]'"
        ) from error
    transfer.received = sum(transfer._size_of(directory / f"{jar.file_name}.part") for jar in jars)
    progress = _Progress(transfer, jars)
    with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="jars") as executor:
        largest_first = sorted(jars, key=lambda jar: -jar.size)
        waiting = {executor.submit(transfer.fetch, jar) for jar in largest_first}
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=0.25, return_when=FIRST_EXCEPTION)
                for each in done:
                    each.result()
                progress.show()
        finally:
            transfer.close()
            executor.shutdown(wait=True, cancel_futures=True)
            progress.end()
