"""Mermaid, which draws the diagrams, from the npm registry: fetched once, and checked.

The site serves it, so that pages can be read without a network. As npm does, this follows
``npm_config_registry`` and ``.npmrc``; proxies and certificates are those of the environment
(``HTTPS_PROXY``, ``SSL_CERT_FILE``).
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import ssl
import tarfile
import urllib.request
from pathlib import Path

VERSION = "11.17.2"
PACKAGE_SHA256 = "6ad2f42c3fc26bbf9e45cbb6d11898972573ea52b33a5f4ff51952899f950ffd"
SCRIPT_SHA256 = "581ed7d74bd9048d0e3a91363927d72ef22942d7722546b27f7cc29e35390eb8"
CACHE = Path(__file__).resolve().parents[2] / ".venv" / f"mermaid-{VERSION}.min.js"


def script() -> bytes:
    """``mermaid.min.js``, from the cache or the registry."""
    if CACHE.exists():
        kept = CACHE.read_bytes()
        if hashlib.sha256(kept).hexdigest() == SCRIPT_SHA256:
            return kept
    package = _fetch(f"{_registry()}/mermaid/-/mermaid-{VERSION}.tgz")
    if hashlib.sha256(package).hexdigest() != PACKAGE_SHA256:
        raise RuntimeError(
            f"the registry's mermaid {VERSION} is not the one that is wanted (its checksum differs)"
        )
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        file = archive.extractfile("package/dist/mermaid.min.js")
        assert file is not None
        found = file.read()
    CACHE.parent.mkdir(exist_ok=True)
    part = CACHE.with_suffix(f".{os.getpid()}")
    part.write_bytes(found)
    part.replace(CACHE)
    return found


def _registry() -> str:
    for variable in ("npm_config_registry", "NPM_CONFIG_REGISTRY"):
        if os.environ.get(variable):
            return os.environ[variable].rstrip("/")
    for settings in (Path(os.environ.get("NPM_CONFIG_USERCONFIG", "~/.npmrc")), Path("/etc/npmrc")):
        try:
            named = re.search(r"^\s*registry\s*=\s*(\S+)", settings.expanduser().read_text(), re.MULTILINE)
        except OSError:
            continue
        if named:
            return named[1].strip("\"'").rstrip("/")
    return "https://registry.npmjs.org"


def _fetch(url: str) -> bytes:
    context = ssl.create_default_context()
    for variable in ("REQUESTS_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS"):
        if Path(os.environ.get(variable, "")).is_file():
            context.load_verify_locations(os.environ[variable])
    try:
        with urllib.request.urlopen(url, timeout=120, context=context) as answer:
            content: bytes = answer.read()
    except OSError as error:
        raise RuntimeError(
            f"mermaid {VERSION} could not be fetched from the npm registry ({error}): check the network, or "
            f"set npm_config_registry; or put mermaid.min.js of that version into {CACHE}"
        ) from error
    return content
