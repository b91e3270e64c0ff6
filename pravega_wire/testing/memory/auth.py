"""The account and the delegation tokens of the server in memory, without I/O.

As with ``standalone(auth=True)`` of the jars, there is one account, which may do everything. So calls are
refused only to those who do not have it. A token names one resource and one permission, and stores look at
nothing else.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Callable
from typing import Any, Final, Literal

__all__ = ["Auth", "BadCredentials", "BadToken", "ExpiredToken", "Permission", "stream_resource"]

Permission = Literal["NONE", "READ", "READ_UPDATE"]

_PERMISSIONS: Final = ("NONE", "READ", "READ_UPDATE")
_HEADER: Final = {"alg": "HS512"}
_STANDARD: Final = {"sub": "segmentstoreresource", "aud": "segmentstore"}
_NO_RESOURCES: Final = frozenset({"sub", "aud", "iat", "exp"})
_LEFT_OUT: Final = re.compile("prn::|/scope:|stream:")


class BadCredentials(Exception):
    """They are not those of the account."""


class BadToken(Exception):
    """The token does not allow the request."""


class ExpiredToken(BadToken):
    """The token has allowed it."""


class Auth:
    """Checks credentials and tokens, and issues tokens.

    :param clock: returns seconds since 1970.
    :param username: name of the account.
    :param password: its password.
    :param key: key with which tokens are signed.
    :param token_seconds: lifetime of tokens in seconds.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        username: str,
        password: str,
        *,
        key: bytes,
        token_seconds: int = 600,
    ) -> None:
        self._clock = clock
        self._account = f"{username}:{password}".encode()
        self._key = key
        self._token_seconds = token_seconds

    def is_known(self, authorization: str) -> bool:
        """Return whether a call is of the account; False for one without credentials for it.

        :param authorization: the metadata ``authorization``, or "".
        :raises BadCredentials: name or password are wrong.
        :raises ValueError: the credentials are not Base64 of a name and a password.
        """
        parts = authorization.split(maxsplit=1)
        if len(parts) < 2 or parts[0] != "Basic":
            return False
        try:
            found = base64.b64decode(parts[1] + "=" * (-len(parts[1]) % 4), validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValueError("the credentials are not Base64") from error
        if b":" not in found:
            raise ValueError("Invalid authorization token")
        if not hmac.compare_digest(found, self._account):
            raise BadCredentials
        return True

    def token(self, resource: str, permission: Permission) -> str:
        """Return a new token.

        :param resource: what it is for, such as :func:`stream_resource` returns.
        :param permission: what it allows.
        """
        now = int(self._clock())
        claims = {**_STANDARD, "iat": now, resource: permission, "exp": now + self._token_seconds}
        signed = f"{_encoded(_HEADER)}.{_encoded(claims)}"
        return f"{signed}.{_base64(self._signature(signed))}"

    def verify(self, token: str, segment: str, permission: Permission) -> float:
        """Return when a token expires, in seconds since 1970.

        :param token: the token of a request.
        :param segment: name of the segment that the request is for.
        :param permission: what the request needs.
        :raises ExpiredToken: it has expired.
        :raises BadToken: it is none of this server, or for something else.
        """
        signed, _, signature = token.rpartition(".")
        if not hmac.compare_digest(signature.encode(), _base64(self._signature(signed)).encode()):
            raise BadToken
        # It is one of this server's own, so nothing in it can be wrong.
        middle = signed.partition(".")[2]
        claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
        expiry = float(claims["exp"])
        if self._clock() > expiry:
            raise ExpiredToken
        needed = _PERMISSIONS.index(permission)
        for resource, granted in claims.items():
            if (
                resource not in _NO_RESOURCES
                and _covers(_LEFT_OUT.sub("", resource), segment)
                and _PERMISSIONS.index(granted) >= needed
            ):
                return expiry
        raise BadToken

    def _signature(self, signed: str) -> bytes:
        return hmac.new(self._key, signed.encode(), hashlib.sha512).digest()


def stream_resource(scope: str, stream: str) -> str:
    """Return the name of a stream as a resource."""
    return f"prn::/scope:{scope}/stream:{stream}"


def _covers(claim: str, segment: str) -> bool:
    return claim in ("*", segment) or segment.startswith(claim if claim.endswith("/") else claim + "/")


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _encoded(part: dict[str, Any]) -> str:
    return _base64(json.dumps(part, separators=(",", ":")).encode())
