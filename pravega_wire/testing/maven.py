"""The published jars, and the Maven repository to download them from.

It is the central repository, unless ``PRAVEGA_WIRE_MAVEN_REPOSITORY`` names another one. ``jars.lock`` names
each file, so no dependencies are resolved.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit, urlunsplit

from pravega_wire.errors import ServerStartError

__all__ = ["VARIABLE", "Jar", "Repository", "repository"]

VARIABLE = "PRAVEGA_WIRE_MAVEN_REPOSITORY"


@dataclass(frozen=True, slots=True)
class Jar:
    """One published file.

    :ivar group: group id.
    :ivar artifact: artifact id.
    :ivar version: version.
    :ivar classifier: classifier, or "".
    :ivar sha256: checksum.
    :ivar size: size in bytes.
    :ivar uses: what needs the file: ``server``, ``client``, ``compiler``, ``registry``, ``serializers``.
    """

    group: str
    artifact: str
    version: str
    classifier: str
    sha256: str
    size: int
    uses: frozenset[str]

    @property
    def file_name(self) -> str:
        """The file's name in the cache."""
        tail = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact}-{self.version}{tail}.jar"

    @property
    def path(self) -> str:
        """The file's path in a Maven repository."""
        return "/".join((*self.group.split("."), self.artifact, self.version, self.file_name))


@dataclass(frozen=True, slots=True)
class Repository:
    """A Maven repository to download from.

    :ivar url: address, without an account and without a trailing slash.
    :ivar source: the setting that names the repository, for messages.
    :ivar username: user name of the account, or None.
    :ivar password: password of the account, or None.
    """

    url: str
    source: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    @property
    def host(self) -> str:
        """The host and port, for messages."""
        parts = urlsplit(self.url)
        return parts.netloc or self.url


def repository() -> Repository:
    """Return the repository to download from: ``PRAVEGA_WIRE_MAVEN_REPOSITORY``, or the central one.

    :raises ServerStartError: the variable is not an address, or the package with the central repository's
        address is not installed.
    """
    chosen = os.environ.get(VARIABLE)
    url, source = (chosen, VARIABLE) if chosen else (_central(), "the central Maven repository")
    try:
        parts = urlsplit(url.strip())
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ServerStartError(
            f"{source}: {url!r} is not the address of a Maven repository (https://host/path); set {VARIABLE}"
        )
    username = password = None
    if parts.username is not None:
        username, password = unquote(parts.username), unquote(parts.password or "")
    plain = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="")
    return Repository(urlunsplit(plain).rstrip("/"), source, username, password)


def _central() -> str:
    """Return the central repository's address, from a maintained package, so that none is written here."""
    try:
        from jgo.maven import MavenContext
    except ImportError as error:
        raise ServerStartError(
            f"downloading the server's jars needs the package {error.name}: pip install "
            "'pravega-wire[testing]', or set PRAVEGA_WIRE_JARS to a directory with the jars"
        ) from error
    return str(MavenContext().remote_repos["central"])
