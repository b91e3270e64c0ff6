"""Removes secrets from error messages.

Not public.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Final

__all__ = ["secrets_of", "without_secrets"]

_HIDDEN: Final = "[hidden]"

_SHORT: Final = 4
# A shorter secret is hidden only if it is a separate word; otherwise messages would lose many letters.

_JSON_WEB_TOKEN: Final = re.compile(r"eyJ[A-Za-z0-9_=-]+\.[A-Za-z0-9_=-]+(?:\.[A-Za-z0-9_=-]*)?")


def secrets_of(authorization: str | None) -> list[str]:
    """Return the secret parts of an ``authorization`` header: its token, and the password in it."""
    if not authorization:
        return []
    method, _, token = authorization.partition(" ")
    found = [token.strip()]
    if method.lower() not in ("basic", "bearer"):
        found.append(method)  # it may be the token, if the two were swapped
    if method == "Basic":
        try:
            pair = base64.b64decode(token + "=" * (-len(token) % 4)).decode("utf-8", "replace")
        except (binascii.Error, ValueError):
            pair = ""
        found += [pair, pair.partition(":")[2]]
    return [each for each in found if each]


def without_secrets(text: str, secrets: Iterable[str] = ()) -> str:
    """Return the text with the secrets, and everything that looks like a JSON web token, replaced."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORT:
            text = text.replace(secret, _HIDDEN)
        else:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", _HIDDEN, text)
    return _JSON_WEB_TOKEN.sub(_HIDDEN, text)
