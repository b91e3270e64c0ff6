"""The published jars of the server, its Java client and a compiler, downloaded once into a cache.

``jars.lock`` names each file exactly, with its checksum and size; nothing is resolved at run time.
``jars-0.12.0.lock`` and the like name what an older server has in addition or in another version.
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
from typing import Final

from pravega_wire.errors import ServerStartError
from pravega_wire.testing.download import download, say, sha256_of
from pravega_wire.testing.maven import Jar, repository

__all__ = [
    "NEWEST",
    "cache_directory",
    "chosen_version",
    "client_classpath",
    "compiler_jar",
    "fetch",
    "fetch_schema_registry",
    "known_versions",
    "schema_registry_classpath",
    "schema_serializers_classpath",
    "server_classpath",
]

NEWEST: Final = "0.13.0"
"""The version of the server that ``jars.lock`` names."""

_LOCK_FILE = Path(__file__).with_name("jars.lock")
_SCHEMA_REGISTRY_LOCK_FILE = Path(__file__).with_name("schema-registry.lock")


@lru_cache(maxsize=1)
def locked_jars() -> tuple[Jar, ...]:
    """Return the files that ``jars.lock`` names."""
    return _parse(_LOCK_FILE)


def known_versions() -> tuple[str, ...]:
    """Return the versions of the server that can be started, oldest first."""
    older = (path.stem.removeprefix("jars-") for path in _LOCK_FILE.parent.glob("jars-*.lock"))
    return (*sorted(older, key=lambda each: [int(part) for part in each.split(".")]), NEWEST)


def chosen_version(version: str | None = None) -> str:
    """Choose the version of the server: the argument, the variable ``PRAVEGA_TEST_VERSION``, or the newest.

    :param version: the version, or None.
    :raises ServerStartError: there is no such version.
    """
    chosen, source = version, "version"
    if not chosen:
        chosen, source = os.environ.get("PRAVEGA_TEST_VERSION") or NEWEST, "PRAVEGA_TEST_VERSION"
    known = known_versions()
    if chosen not in known:
        raise ServerStartError(f"{source}={chosen!r} is not one of {', '.join(known)}")
    return chosen


def jars_of(version: str) -> tuple[Jar, ...]:
    """Return the files of a version: those of its lock file, and what that does not replace of ``jars.lock``.

    An older server runs on the libraries of the newest one, as far as it can.
    """
    if version == NEWEST:
        return locked_jars()
    own = _parse(_LOCK_FILE.with_name(f"jars-{version}.lock"))
    replaced = {(jar.group, jar.artifact) for jar in own}
    return (*own, *(jar for jar in locked_jars() if (jar.group, jar.artifact) not in replaced))


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
    """Return the cache directory: ``PRAVEGA_WIRE_CACHE``, or a directory in the user's cache.

    It is absolute, because servers run in directories of their own.

    :raises ServerStartError: neither is set, and this user has no home directory.
    """
    chosen = os.environ.get("PRAVEGA_WIRE_CACHE")
    if chosen:
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache").absolute() / "pravega-wire"
    except RuntimeError as error:
        raise ServerStartError(
            "this user has no home directory for the cache: set PRAVEGA_WIRE_CACHE to a directory"
        ) from error


def server_classpath(version: str | None = None) -> list[Path]:
    """Return the jars of the server, and download them if necessary.

    If ``PRAVEGA_WIRE_JARS`` is set to a directory, the jars in it are used instead.

    :param version: the version of the server; default: that of the variable ``PRAVEGA_TEST_VERSION``, or
        0.13.0.
    :raises ServerStartError: there is no such version, the jars cannot be downloaded, or that directory
        contains none or was to be used for a version that was asked for.
    """
    override = os.environ.get("PRAVEGA_WIRE_JARS")
    if override:
        if version:
            raise ServerStartError(
                f"PRAVEGA_WIRE_JARS={override} names the server's jars, so version={version!r} cannot be "
                "chosen: leave out one of them"
            )
        found = sorted(Path(override).absolute().glob("*.jar"))
        if not found:
            raise ServerStartError(
                f"PRAVEGA_WIRE_JARS={override} contains no jars: set it to a directory with the server's "
                "jars, or unset it to have them downloaded"
            )
        return found
    return _paths("server", chosen_version(version))


def client_classpath(version: str | None = None) -> list[Path]:
    """Return the jars of the Java client, for Java programs that use the same server.

    :param version: as in :func:`server_classpath`.
    :raises ServerStartError: there is no such version, or the jars cannot be downloaded.
    """
    return _paths("client", chosen_version(version))


def schema_registry_classpath() -> list[Path]:
    """Return the jars of the schema registry's server, and download them if necessary.

    :raises ServerStartError: the jars cannot be downloaded.
    """
    return _schema_paths("registry") + _paths("server", NEWEST)


def schema_serializers_classpath() -> list[Path]:
    """Return the jars of the Java client and of the schema registry's serializers for it."""
    return _schema_paths("serializers") + _paths("client", NEWEST)


def _schema_paths(use: str) -> list[Path]:
    directory = fetch_schema_registry()
    return [directory / jar.file_name for jar in schema_registry_jars() if use in jar.uses]


def compiler_jar() -> Path:
    """Return the jar of the Eclipse compiler for Java."""
    return _paths("compiler", NEWEST)[0]


def _paths(use: str, version: str) -> list[Path]:
    directory = fetch(version)
    return [directory / jar.file_name for jar in jars_of(version) if use in jar.uses]


@lru_cache
def fetch(version: str = NEWEST) -> Path:
    """Download every jar that is missing or incomplete in the cache, and return the cache's directory.

    Other processes that need the jars at the same time wait for the one that downloads them.

    :param version: version of the server.
    :raises ServerStartError: there is no such version, a file could not be downloaded, or its checksum
        differs from that in the lock file.
    """
    return _fetched(jars_of(chosen_version(version)))


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
