"""The connection settings of a command, and where each comes from.

Each setting is taken from the first of these that has it: a command-line argument, an environment variable
(:data:`pravega_wire.values.config.SETTINGS` lists them), the profile, the default. A profile is a table of
the configuration file, which is TOML::

    default-profile = "lab"

    [profile.lab]
    controller = "tcp://lab.example:9090"
    scope = "demo"
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pravega_wire.errors import AuthError, InvalidArgumentError
from pravega_wire.values.config import SETTINGS, Credentials, PravegaConfig, Setting

__all__ = [
    "CREDENTIALS", "FILE_VARIABLE", "HIDDEN", "PROFILE_VARIABLE", "Found", "Profiles", "Resolved",
    "default_path", "load_profiles", "refusal", "resolve",
]  # fmt: skip

FILE_VARIABLE: Final = "PRAVEGA_WIRE_CONFIG"
"""Environment variable with the path of the configuration file."""

PROFILE_VARIABLE: Final = "PRAVEGA_PROFILE"
"""Environment variable with the name of the profile."""

HIDDEN: Final = "(hidden)"

_PLAIN: Final = tuple(each for each in SETTINGS if each.argument != "credentials")
_METHOD, _TOKEN = (each for each in SETTINGS if each.argument == "credentials")

CREDENTIALS: Final = (
    f"set the variables {_METHOD.variable} (Basic or Bearer) and {_TOKEN.variable}, or username and password "
    "in a profile"
)
"""Where credentials come from, as a sentence without its full stop."""


def refusal(error: AuthError, config: PravegaConfig) -> str:
    """Return why a server refused; if there are no credentials, also how they are set."""
    if config.credentials is not None:
        return error.message
    return f"{error.message}. No credentials are set: {CREDENTIALS}"


def profile_key(setting: Setting) -> str:
    """Return the key of a setting in a profile."""
    if setting.option is not None:
        return setting.option.removeprefix("--")
    return "auth-method" if setting is _METHOD else "auth-token"


_KEYS: Final = {profile_key(each): each for each in SETTINGS}
_PAIR: Final = ("username", "password")


@dataclass(frozen=True, slots=True)
class Profiles:
    """The contents of a configuration file.

    :ivar path: the file.
    :ivar exists: whether there is such a file.
    :ivar default: name of the profile to use if none is named.
    :ivar profiles: settings by key, by name of the profile.
    """

    path: Path
    exists: bool = False
    default: str | None = None
    profiles: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Found:
    """A setting as it is shown: ``config show``.

    :ivar setting: name of the setting.
    :ivar value: its value as text; secrets are hidden.
    :ivar source: where the value comes from.
    """

    setting: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """The settings of a command.

    :ivar config: the configuration of the client.
    :ivar found: each setting, and where it comes from.
    :ivar profile: name of the profile, or None.
    :ivar path: path of the configuration file.
    """

    config: PravegaConfig
    found: tuple[Found, ...]
    profile: str | None
    path: Path


def default_path(environment: Mapping[str, str]) -> Path:
    """Return the path of the configuration file: ``~/.config/pravega-wire/config.toml``, by XDG's rules.

    Without a home directory, as for a user that a container does not know, it is one in ``/``.
    """
    folder = environment.get("XDG_CONFIG_HOME")
    if folder and Path(folder).is_absolute():
        base = Path(folder)
    else:
        try:
            base = Path.home() / ".config"
        except RuntimeError:
            base = Path("/.config")
    return base / "pravega-wire" / "config.toml"


def load_profiles(given: str | None, environment: Mapping[str, str]) -> Profiles:
    """Read the configuration file. Without an explicit path, a missing file is an empty one.

    :param given: the path of the argument ``--config``.
    :param environment: the environment variables.
    :raises InvalidArgumentError: the file cannot be read, or is not a configuration file.
    """
    named = given or environment.get(FILE_VARIABLE)
    path = Path(named) if named else default_path(environment)
    try:
        contents = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if named:
            raise InvalidArgumentError(f"the configuration file {path} does not exist") from None
        return Profiles(path)
    except OSError as error:
        raise InvalidArgumentError(
            f"the configuration file {path} cannot be read: {error.strerror}"
        ) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidArgumentError(f"the configuration file {path} is not TOML: {error}") from error
    unknown = contents.keys() - {"default-profile", "profile"}
    if unknown:
        raise InvalidArgumentError(
            f"the configuration file {path} has {min(unknown)!r}: only default-profile and tables "
            "[profile.NAME] are known"
        )
    default = contents.get("default-profile")
    tables = contents.get("profile", {})
    if not isinstance(default, str | None) or not isinstance(tables, dict):
        raise InvalidArgumentError(
            f"the configuration file {path}: default-profile must be a text, and profiles tables "
            "[profile.NAME]"
        )
    return Profiles(path, True, default, {name: _profile(path, name, each) for name, each in tables.items()})


def _profile(path: Path, name: str, table: object) -> dict[str, str]:
    """Return the settings of a profile as texts."""
    where = f"profile {name} of {path}"
    if not isinstance(table, dict):
        raise InvalidArgumentError(f"{where} is not a table [profile.{name}]")
    settings = {}
    for key, value in table.items():
        if key not in _KEYS and key not in _PAIR:
            raise InvalidArgumentError(f"{where} has {key!r}; known are {', '.join([*_KEYS, *_PAIR])}")
        if isinstance(value, bool):
            settings[key] = str(value).lower()
        elif isinstance(value, str | int | float):
            settings[key] = str(value)
        else:
            raise InvalidArgumentError(f"{where}: {key} must be a text, a number, true or false")
    if (settings.keys() & {*_PAIR}) and (
        not settings.keys() >= {*_PAIR} or settings.keys() & {"auth-method", "auth-token"}
    ):
        raise InvalidArgumentError(
            f"{where}: set both username and password, or both auth-method and auth-token"
        )
    return settings


def resolve(
    given: Mapping[str, str],
    *,
    profile: str | None = None,
    file: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Resolved:
    """Find the value of each setting, and where it comes from.

    :param given: command-line arguments: field of :class:`PravegaConfig` to text.
    :param profile: the argument ``--profile``.
    :param file: the argument ``--config``.
    :param environment: the environment variables; default ``os.environ``.
    :raises InvalidArgumentError: a value is malformed, or the profile does not exist.
    """
    variables = os.environ if environment is None else environment
    profiles = load_profiles(file, variables)
    chosen = profile or variables.get(PROFILE_VARIABLE) or profiles.default
    if chosen is not None and chosen not in profiles.profiles:
        known = ", ".join(sorted(profiles.profiles)) or "none"
        state = f"its profiles are: {known}" if profiles.exists else "the file does not exist"
        raise InvalidArgumentError(f"there is no profile {chosen!r} in {profiles.path} ({state})")
    named = {} if chosen is None else profiles.profiles[chosen]
    found, values = [], {}
    for setting in _PLAIN:
        text, source = _text(setting, given, variables, named, chosen)
        if text is not None:
            try:
                values[setting.field] = setting.parse(text)
            except ValueError as error:
                raise InvalidArgumentError(f"setting {setting.field}, {source}: {error}") from None
        found.append((setting, source))
    credentials, sources_of_credentials = _credentials(variables, named, chosen)
    try:
        config = PravegaConfig(credentials=credentials, **values)
    except InvalidArgumentError as error:
        sources = "; ".join(each for _, each in found if each != "default")
        raise InvalidArgumentError(f"{error.message} (settings come from: {sources})") from error
    shown = [Found(profile_key(each), _shown(getattr(config, each.field)), where) for each, where in found]
    method = "" if credentials is None else repr(credentials).partition("'")[2].partition("'")[0] or HIDDEN
    token = "" if credentials is None else HIDDEN
    shown += [
        Found(name, value, source)
        for (name, value), source in zip(
            (("auth-method", method), ("auth-token", token)), sources_of_credentials, strict=True
        )
    ]
    return Resolved(config, tuple(shown), chosen, profiles.path)


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _text(
    setting: Setting,
    given: Mapping[str, str],
    variables: Mapping[str, str],
    named: Mapping[str, str],
    profile: str | None,
) -> tuple[str | None, str]:
    """Return the text of a setting, or None, and where it comes from."""
    if setting.field in given:
        return given[setting.field], f"argument {setting.option}"
    if variables.get(setting.variable):
        return variables[setting.variable], f"environment variable {setting.variable}"
    if profile_key(setting) in named:
        return named[profile_key(setting)], f"profile {profile}"
    return None, "default"


def _credentials(
    variables: Mapping[str, str], named: Mapping[str, str], profile: str | None
) -> tuple[Credentials | None, tuple[str, str]]:
    """Return the credentials, and where method and token come from: the environment, or the profile."""
    method, token = variables.get(_METHOD.variable), variables.get(_TOKEN.variable)
    if method or token:
        if not method or not token:
            raise InvalidArgumentError(
                f"only one of the environment variables {_METHOD.variable} and {_TOKEN.variable} is set; "
                "set both or neither"
            )
        return Credentials(method, token), (
            f"environment variable {_METHOD.variable}",
            f"environment variable {_TOKEN.variable}",
        )
    where = f"profile {profile}"
    if "username" in named:
        return Credentials.basic(named["username"], named["password"]), (where, where)
    method, token = named.get("auth-method"), named.get("auth-token")
    if method is None and token is None:
        return None, ("default", "default")
    if method is None or token is None:
        raise InvalidArgumentError(f"{where}: only one of auth-method and auth-token is set")
    return Credentials(method, token), (where, where)
