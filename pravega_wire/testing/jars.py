"""The published jars of the server, its Java client and a compiler, downloaded once into a cache.

``jars.lock`` names each file exactly, with its checksum and size; nothing is resolved at run time.
``schema-registry.lock`` does the same for the schema registry, whose jars are downloaded when it is used.
:mod:`~pravega_wire.testing.maven` finds the repository, :mod:`~pravega_wire.testing.download` downloads the
files.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from pravega_wire.errors import ServerStartError
from pravega_wire.testing.download import download, say, sha256_of
from pravega_wire.testing.maven import Jar, repository

__all__ = [
    "cache_directory",
    "client_classpath",
    "compiler_jar",
    "fetch",
    "fetch_schema_registry",
    "is_fetched",
    "schema_registry_classpath",
    "schema_serializers_classpath",
    "server_classpath",
]

_LOCK_FILE = Path(__file__).with_name("jars.lock")
_SCHEMA_REGISTRY_LOCK_FILE = Path(__file__).with_name("schema-registry.lock")


@lru_cache(maxsize=1)
def locked_jars() -> tuple[Jar, ...]:
    """Return the files that ``jars.lock`` names."""
    return _parse(_LOCK_FILE)


@lru_cache(maxsize=1)
def schema_registry_jars() -> tuple[Jar, ...]:
    """Return the files that ``schema-registry.lock`` names."""
    return _parse(_SCHEMA_REGISTRY_LOCK_FILE)


def _parse(lock_file: Path) -> tuple[Jar, ...]:
    """Parse the lines of a lock file: ``group:artifact:version[:classifier] sha256 size uses``."""
    jars = []
    for line in lock_file.read_text().splitlines():
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
    """Return the cache directory: ``PRAVEGA_WIRE_CACHE``, or a directory in the user's cache."""
    chosen = os.environ.get("PRAVEGA_WIRE_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pravega-wire"


def server_classpath() -> list[Path]:
    """Return the jars of the server, and download them if necessary.

    If ``PRAVEGA_WIRE_JARS`` is set to a directory, the jars in it are used instead.

    :raises ServerStartError: the jars cannot be downloaded, or that directory contains none.
    """
    override = os.environ.get("PRAVEGA_WIRE_JARS")
    if override:
        found = sorted(Path(override).glob("*.jar"))
        if not found:
            raise ServerStartError(
                f"PRAVEGA_WIRE_JARS={override} contains no jars: set it to a directory with the server's "
                "jars, or unset it to have them downloaded"
            )
        return found
    return _paths("server")


def client_classpath() -> list[Path]:
    """Return the jars of the Java client, for Java programs that use the same server."""
    return _paths("client")


def schema_registry_classpath() -> list[Path]:
    """Return the jars of the schema registry's server, and download them if necessary.

    :raises ServerStartError: the jars cannot be downloaded.
    """
    return _schema_paths("registry") + _paths("server")


def schema_serializers_classpath() -> list[Path]:
    """Return the jars of the Java client and of the schema registry's serializers for it."""
    return _schema_paths("serializers") + client_classpath()


def _schema_paths(use: str) -> list[Path]:
    directory = fetch_schema_registry()
    return [directory / jar.file_name for jar in schema_registry_jars() if use in jar.uses]


def compiler_jar() -> Path:
    """Return the jar of the Eclipse compiler for Java."""
    return _paths("compiler")[0]


def _paths(use: str) -> list[Path]:
    directory = fetch()
    return [directory / jar.file_name for jar in locked_jars() if use in jar.uses]


@lru_cache(maxsize=1)
def fetch() -> Path:
    """Download every jar that is missing or incomplete in the cache, and return the cache's directory.

    Other processes that need the jars at the same time wait for the one that downloads them.

    :raises ServerStartError: a file could not be downloaded, or its checksum differs from that in
        ``jars.lock``.
    """
    return _fetched(locked_jars())


@lru_cache(maxsize=1)
def fetch_schema_registry() -> Path:
    """Do the same for the jars that only the schema registry needs.

    :raises ServerStartError: as in :func:`fetch`.
    """
    return _fetched(schema_registry_jars())


def _fetched(jars: Sequence[Jar]) -> Path:
    directory = _directory()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not _missing(directory, jars):
            return directory
        with _locked(directory):
            missing = _missing(directory, jars)  # another process may just have downloaded them
            if missing:
                _fetch_missing(directory, missing)
    except OSError as error:
        raise ServerStartError(
            f"the server's jars cannot be stored in {directory}: {error}; set PRAVEGA_WIRE_CACHE to "
            "another directory"
        ) from error
    return directory


def is_fetched() -> bool:
    """Return True if all jars are in the cache."""
    return not _missing(_directory(), locked_jars())


def _directory() -> Path:
    return cache_directory() / "jars-0.13.0"


def _missing(directory: Path, jars: Sequence[Jar]) -> list[Jar]:
    """Return the jars that are missing or incomplete; a server with an incomplete jar fails with obscure
    errors."""
    return [jar for jar in jars if sha256_of(directory / jar.file_name) != jar.sha256]


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    with (directory / ".lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process is downloading them; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _fetch_missing(directory: Path, missing: Sequence[Jar]) -> None:
    source = repository()
    size = sum(jar.size for jar in missing) / 1e6
    say(f"downloading {len(missing)} files ({size:.0f} MB) from {source.host} into {directory} (only once)")
    download(missing, directory, source)
