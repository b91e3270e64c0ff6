"""The published jars of the server, its Java client and a compiler, fetched once into a cache.

``jars.lock`` names each file exactly, with its checksum and size; nothing is resolved at run time. Where they
come from is a matter of :mod:`~pravega_wire.testing.maven`, how of :mod:`~pravega_wire.testing.download`.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from pravega_wire.errors import ServerStartError
from pravega_wire.testing.download import download, say, sha256_of
from pravega_wire.testing.maven import Jar, local_repository, read_settings, repository

__all__ = ["cache_directory", "client_classpath", "compiler_jar", "fetch", "is_fetched", "server_classpath"]

_LOCK_FILE = Path(__file__).with_name("jars.lock")


@lru_cache(maxsize=1)
def locked_jars() -> tuple[Jar, ...]:
    """The lines of ``jars.lock``: ``group:artifact:version[:classifier] sha256 size uses``."""
    jars = []
    for line in _LOCK_FILE.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        coordinates, sha256, size, uses = line.split()
        group, artifact, version, *classifier = coordinates.split(":")
        jars.append(
            Jar(
                group,
                artifact,
                version,
                classifier[0] if classifier else "",
                sha256,
                int(size),
                frozenset(uses.split(",")),
            )
        )
    return tuple(jars)


def cache_directory() -> Path:
    """``PRAVEGA_WIRE_CACHE``, else the user's cache directory."""
    chosen = os.environ.get("PRAVEGA_WIRE_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pravega-wire"


def server_classpath() -> list[Path]:
    """Jars of the server; fetches them if need be. ``PRAVEGA_WIRE_JARS`` (a directory) overrides.

    :raises ServerStartError: they cannot be fetched.
    """
    override = os.environ.get("PRAVEGA_WIRE_JARS")
    if override:
        found = sorted(Path(override).glob("*.jar"))
        if not found:
            raise ServerStartError(f"PRAVEGA_WIRE_JARS={override} holds no jars")
        return found
    return _paths("server")


def client_classpath() -> list[Path]:
    """Jars of the Java client, for programs that talk to the same server."""
    return _paths("client")


def compiler_jar() -> Path:
    """The Eclipse compiler for Java."""
    return _paths("compiler")[0]


def _paths(use: str) -> list[Path]:
    directory = fetch()
    return [directory / jar.file_name for jar in locked_jars() if use in jar.uses]


@lru_cache(maxsize=1)
def fetch() -> Path:
    """Make sure that every locked jar is in the cache, and whole; returns the directory.

    Processes that need them at the same time wait for the one that fetches.

    :raises ServerStartError: a file could not be fetched, or is not the one that was locked.
    """
    directory = _directory()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not _missing(directory):
            return directory
        with _locked(directory):
            missing = _missing(directory)  # another process may have fetched them meanwhile
            missing = _from_maven(directory, missing)
            if missing:
                _fetch_missing(directory, missing)
    except OSError as error:
        raise ServerStartError(
            f"the server's jars cannot be kept in {directory}: {error}; set PRAVEGA_WIRE_CACHE to "
            "another directory"
        ) from error
    return directory


def is_fetched() -> bool:
    """Whether :func:`fetch` has nothing to do."""
    return not _missing(_directory())


def _directory() -> Path:
    return cache_directory() / "jars-0.13.0"


def _missing(directory: Path) -> list[Jar]:
    """Jars that are not there, or not whole: a server with half a jar fails in ways nobody understands."""
    return [jar for jar in locked_jars() if sha256_of(directory / jar.file_name) != jar.sha256]


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    with (directory / ".lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process is fetching them; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _from_maven(directory: Path, missing: Sequence[Jar]) -> list[Jar]:
    """Take what Maven has fetched on this machine; returns what is still missing."""
    if not missing:
        return []
    local = local_repository(read_settings())
    left = []
    for jar in missing:
        path = local / jar.path
        if not path.is_file() or sha256_of(path) != jar.sha256:
            left.append(jar)
            continue
        copy = directory / f"{jar.file_name}.copy"
        shutil.copyfile(path, copy)
        os.replace(copy, directory / jar.file_name)
    if len(left) < len(missing):
        say(f"{len(missing) - len(left)} files were in {local}")
    return left


def _fetch_missing(directory: Path, missing: Sequence[Jar]) -> None:
    settings = read_settings()
    source = repository(settings)
    size = sum(jar.size for jar in missing) / 1e6
    say(f"fetching {len(missing)} files ({size:.0f} MB) from {source.host} into {directory} (once)")
    download(missing, directory, source, settings.proxies)
