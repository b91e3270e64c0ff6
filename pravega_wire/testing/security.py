"""Certificates and accounts for a server that checks them, made on the spot."""

from __future__ import annotations

import base64
import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pravega_wire.errors import ServerStartError

__all__ = ["Account", "ServerSecurity", "make_account", "make_security"]

USER: Final = "admin"
_ITERATIONS: Final = 5000
_STORE_PASSWORD: Final = "1111_aaaa"
# While it starts, a 0.13.0 standalone server opens the trust store with this one, whatever its settings say.
# With another it fails for most of a minute before it goes on.


@dataclass(frozen=True, slots=True)
class Account:
    """Who may do everything on a server.

    :ivar file: the accounts that Pravega's password handler knows: this one.
    """

    username: str
    password: str = field(repr=False)
    file: Path

    def properties(self, token_seconds: int) -> dict[str, object]:
        """Settings of a controller that demands this account.

        :param token_seconds: how long its delegation tokens live.
        """
        return {
            "controller.security.auth.enable": "true",
            "controller.security.pwdAuthHandler.accountsDb.location": self.file,
            "controller.security.auth.delegationToken.ttl.seconds": token_seconds,
        }

    def environment(self) -> dict[str, str]:
        """What a segment store's own Java client finds this account by."""
        return {
            "pravega_client_auth_method": "Basic",
            "pravega_client_auth_token": base64.b64encode(
                f"{self.username}:{self.password}".encode()
            ).decode(),
        }


@dataclass(frozen=True, slots=True)
class ServerSecurity:
    """What a server was given, and what its clients need.

    :ivar properties: settings of the standalone server.
    :ivar account: None without authorization.
    :ivar trust_store: PEM file with the certificate authority; None without TLS.
    """

    properties: dict[str, object]
    account: Account | None = None
    trust_store: Path | None = None


def _digest(password: str) -> str:
    """A password as Pravega's password handler stores it: PBKDF2 with SHA-256, all in hexadecimal."""
    salt = os.urandom(32)
    key = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, _ITERATIONS, 64)
    return f"{_ITERATIONS}:{salt.hex()}:{key.hex()}".encode().hex()


def make_account(directory: Path) -> Account:
    """An account with a password of its own, its file in ``directory``."""
    password = os.urandom(12).hex()
    accounts = directory / "accounts"
    accounts.write_text(f"{USER}:{_digest(password)}:prn::*,READ_UPDATE\n")
    accounts.chmod(0o600)
    return Account(USER, password, accounts)


def make_security(directory: Path, *, tls: bool, auth: bool) -> ServerSecurity:
    """Write the files into ``directory``.

    :raises ServerStartError: TLS is asked for and the packages that make certificates are missing.
    """
    properties: dict[str, object] = {}
    account = None
    if auth:
        account = make_account(directory)
        properties |= {
            "singlenode.security.auth.enable": "true",
            "singlenode.security.auth.credentials.username": account.username,
            "singlenode.security.auth.credentials.pwd": account.password,
            "singlenode.security.auth.pwdAuthHandler.accountsDb.location": account.file,
        }
    trust_store = None
    if tls:
        trust_store = directory / "ca.pem"
        properties |= _certificates(directory, trust_store)
    return ServerSecurity(properties, account, trust_store)


def _certificates(directory: Path, trust_store: Path) -> dict[str, object]:
    try:
        import trustme
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError as error:
        raise ServerStartError(
            f"a TLS server needs certificates, and {error.name} is missing: pip install pravega-wire[testing]"
        ) from error
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1", "0.0.0.0")
    authority.cert_pem.write_to_path(str(trust_store))
    certificate, key = directory / "server-cert.pem", directory / "server-key.pem"
    for index, blob in enumerate(issued.cert_chain_pems):
        blob.write_to_path(str(certificate), append=index > 0)
    # Netty reads PKCS#8 only.
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

    private = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    assert isinstance(private, EllipticCurvePrivateKey)  # trustme's default
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    key.chmod(0o600)
    encryption = serialization.BestAvailableEncryption(_STORE_PASSWORD.encode())
    ca = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
    own = x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes())
    key_store, store_password, java_trust = (
        directory / name for name in ("server.p12", "server.p12.password", "trust.p12")
    )
    key_store.write_bytes(pkcs12.serialize_key_and_certificates(b"server", private, own, [ca], encryption))
    store_password.write_text(_STORE_PASSWORD)
    java_trust.write_bytes(
        pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(ca, b"ca")],
            encryption,
        )
    )
    return {
        "singlenode.security.tls.enable": "true",
        "singlenode.security.tls.certificate.location": certificate,
        "singlenode.security.tls.privateKey.location": key,
        "singlenode.security.tls.keyStore.location": key_store,
        "singlenode.security.tls.keyStore.pwd.location": store_password,
        # The ZooKeeper inside takes the store's kind from the file's name and its password from the other.
        "singlenode.security.tls.trustStore.location": java_trust,
    }
