"""Finds the Maven repository to download jars from.

It is the central repository, or the one that this machine is set up to use.

``jars.lock`` names each file, so no dependencies are resolved. Mirrors, accounts, proxies and the local
repository in Maven's settings file are used in the same way as Maven uses them.
"""

from __future__ import annotations

import os
import re
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from pravega_wire.errors import ServerStartError

__all__ = ["VARIABLE", "Jar", "MavenProxy", "Repository", "Settings", "read_settings", "repository"]

VARIABLE = "PRAVEGA_WIRE_MAVEN_REPOSITORY"
_CENTRAL = "central"


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


@dataclass(frozen=True, slots=True)
class MavenProxy:
    """A proxy that Maven would use.

    :ivar url: address of the proxy.
    :ivar without: hosts that are reached without the proxy, in Maven's syntax (``*.example.org|localhost``).
    :ivar username: user name for the proxy, or None.
    :ivar password: password for the proxy, or None.
    """

    url: str
    without: str = ""
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    def serves(self, host: str) -> bool:
        """Return True if the proxy is used for this host."""
        patterns = [each.strip() for each in re.split(r"[|,]", self.without) if each.strip()]
        return not any(
            re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), host, re.IGNORECASE) for pattern in patterns
        )


@dataclass(frozen=True, slots=True)
class _Mirror:
    name: str
    of: str
    url: str
    blocked: bool
    file: Path


@dataclass(slots=True)
class Settings:
    """The contents of Maven's settings files; the user's file takes precedence.

    :ivar central: another address for the central repository, from an active profile, with the file that
        names it.
    :ivar local_repository: directory of Maven's local repository, or None.
    :ivar mirrors: the mirrors.
    :ivar accounts: id of a mirror or repository to user name and password.
    :ivar proxies: the proxies.
    """

    central: tuple[str, Path] | None = None
    local_repository: Path | None = None
    mirrors: list[_Mirror] = field(default_factory=list)
    accounts: dict[str, tuple[str, str]] = field(default_factory=dict, repr=False)
    proxies: list[MavenProxy] = field(default_factory=list)

    def mirror(self, url: str) -> _Mirror | None:
        """Return the mirror of the central repository at ``url``.

        A mirror that names the repository takes precedence over the first that matches it; None if there is
        none.
        """
        exact = (each for each in self.mirrors if each.of == _CENTRAL)
        matching = (each for each in self.mirrors if _matches(each.of, url))
        return next(exact, None) or next(matching, None)


def _matches(pattern: str, url: str) -> bool:
    """Return True if ``mirrorOf`` covers the central repository, by Maven's rules."""
    parts = urlsplit(url)
    external = parts.scheme != "file" and parts.hostname not in ("localhost", "127.0.0.1")
    found = False
    for word in (each.strip() for each in pattern.split(",")):
        if word in (f"!{_CENTRAL}", _CENTRAL):
            return not word.startswith("!")
        if (
            word == "*"
            or (word == "external:*" and external)
            or (word == "external:http:*" and external and parts.scheme == "http")
        ):
            found = True
    return found


def settings_files() -> list[Path]:
    """Return Maven's settings files that exist: the user's, then the installation's."""
    homes = [Path(os.environ[name]) for name in ("MAVEN_HOME", "M2_HOME") if os.environ.get(name)]
    command = shutil.which("mvn")
    if command is not None:
        homes.append(Path(command).resolve().parent.parent)
    places = [Path.home() / ".m2", *(home / "conf" for home in homes)]
    return list(
        dict.fromkeys(place / "settings.xml" for place in places if (place / "settings.xml").is_file())
    )


def read_settings() -> Settings:
    """Read :func:`settings_files`.

    :raises ServerStartError: one of them cannot be read.
    """
    settings = Settings()
    for file in settings_files():
        try:
            root = ET.parse(file).getroot()
        except (OSError, ET.ParseError) as error:
            raise ServerStartError(f"Maven's settings file {file} cannot be read: {error}") from error
        _add(settings, root, file)
    return settings


def _add(settings: Settings, root: ET.Element, file: Path) -> None:
    local = _text(root, "localRepository")
    if local and settings.local_repository is None:
        settings.local_repository = Path(local)
    for each in root.iterfind("{*}mirrors/{*}mirror"):
        name = _text(each, "id")
        if name not in (mirror.name for mirror in settings.mirrors):
            blocked = _text(each, "blocked") == "true"
            settings.mirrors.append(_Mirror(name, _text(each, "mirrorOf"), _text(each, "url"), blocked, file))
    for each in root.iterfind("{*}servers/{*}server"):
        if username := _text(each, "username"):
            settings.accounts.setdefault(_text(each, "id"), (username, _text(each, "password")))
    for each in root.iterfind("{*}proxies/{*}proxy"):
        if _text(each, "active") != "false" and (host := _text(each, "host")):
            # "protocol" is the protocol to reach the proxy itself; the proxy is used for every address.
            settings.proxies.append(
                MavenProxy(
                    f"{_text(each, 'protocol') or 'http'}://{host}:{_text(each, 'port') or '8080'}",
                    _text(each, "nonProxyHosts"),
                    _text(each, "username") or None,
                    _text(each, "password") or None,
                )
            )
    for url in _central_of_profiles(root):
        settings.central = settings.central or (url, file)


def _central_of_profiles(root: ET.Element) -> Iterator[str]:
    active = {_value(each) for each in root.iterfind("{*}activeProfiles/{*}activeProfile")}
    for profile in root.iterfind("{*}profiles/{*}profile"):
        by_default = profile.find("{*}activation/{*}activeByDefault")
        if _text(profile, "id") in active or (by_default is not None and _value(by_default) == "true"):
            for each in profile.iterfind("{*}repositories/{*}repository"):
                if _text(each, "id") == _CENTRAL and (url := _text(each, "url")):
                    yield url


def _text(element: ET.Element, name: str) -> str:
    found = element.find(f"{{*}}{name}")
    return "" if found is None else _value(found)


def _value(element: ET.Element) -> str:
    """Return the text of an element, with ``${env.NAME}`` and ``${user.home}`` replaced as Maven does."""

    def replace(match: re.Match[str]) -> str:
        name = match[1]
        if name == "user.home":
            return str(Path.home())
        return os.environ.get(name.removeprefix("env."), match[0]) if name.startswith("env.") else match[0]

    return re.sub(r"\$\{([^}]+)\}", replace, (element.text or "").strip())


def repository(settings: Settings) -> Repository:
    """Choose the repository to download from.

    It is ``PRAVEGA_WIRE_MAVEN_REPOSITORY``, a mirror in Maven's settings, or the central repository.

    :raises ServerStartError: a setting is not an address, or the package with the central repository's
        address is not installed.
    """
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return _at(chosen, VARIABLE, None)
    if settings.central is not None:
        url, source = settings.central[0], f"repository 'central' in {settings.central[1]}"
    else:
        url, source = _central(), "the central Maven repository"
    mirror = settings.mirror(url)
    if mirror is None:
        return _at(url, source, settings.accounts.get(_CENTRAL))
    source = f"mirror {mirror.name!r} in {mirror.file}"
    if mirror.blocked:
        raise ServerStartError(f"{source} blocks the Maven repository {url}: set {VARIABLE} to another one")
    return _at(mirror.url, source, settings.accounts.get(mirror.name))


def _at(url: str, source: str, account: tuple[str, str] | None) -> Repository:
    try:
        parts = urlsplit(url.strip())
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ServerStartError(
            f"{source}: {url!r} is not the address of a Maven repository (https://host/path); set {VARIABLE}"
        )
    username, password = account or (None, None)
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
    return str(MavenContext().remote_repos[_CENTRAL])


def local_repository(settings: Settings) -> Path:
    """Return Maven's local repository; files in it need not be downloaded."""
    chosen = os.environ.get("M2_REPO")
    return Path(chosen) if chosen else settings.local_repository or Path.home() / ".m2" / "repository"
