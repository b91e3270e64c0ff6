"""Creates certificates and accounts for a server with TLS or authentication."""

from __future__ import annotations

import base64
import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pravega_wire.errors import ServerStartError

__all__ = [
    "USER",
    "Account",
    "Certificates",
    "ServerSecurity",
    "make_account",
    "make_certificates",
    "make_security",
    "new_password",
]

USER: Final = "admin"
"""Name of every account that is created."""

_ITERATIONS: Final = 5000
_STORE_PASSWORD: Final = "1111_aaaa"
# During its start, a 0.13.0 standalone server opens the trust store with this password, whatever its settings
# are. With another password it fails for most of a minute before it continues.


@dataclass(frozen=True, slots=True)
class Account:
    """An account with all permissions on a server.

    :ivar username: user name.
    :ivar password: password.
    :ivar file: file with the accounts of Pravega's password handler; it contains only this one.
    """

    username: str
    password: str = field(repr=False)
    file: Path

    def properties(self, token_seconds: int) -> dict[str, object]:
        """Return the settings of a controller that requires this account.

        :param token_seconds: lifetime of its delegation tokens in seconds.
        """
        return {
            "controller.security.auth.enable": "true",
            "controller.security.pwdAuthHandler.accountsDb.location": self.file,
            "controller.security.auth.delegationToken.ttl.seconds": token_seconds,
        }

    def environment(self) -> dict[str, str]:
        """Return the environment variables with this account for a segment store's own Java client."""
        return {
            "pravega_client_auth_method": "Basic",
            "pravega_client_auth_token": base64.b64encode(
                f"{self.username}:{self.password}".encode()
            ).decode(),
        }


@dataclass(frozen=True, slots=True)
class ServerSecurity:
    """The security settings of a server and of its clients.

    :ivar properties: settings of the standalone server.
    :ivar account: the account; None without authentication.
    :ivar trust_store: PEM file with the certificate authority; None without TLS.
    """

    properties: dict[str, object]
    account: Account | None = None
    trust_store: Path | None = None


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files for TLS.

    :ivar trust_store: the certificate authority.
    :ivar certificate: the server's certificate.
    :ivar key: its private key, as PKCS#8.
    """

    trust_store: Path
    certificate: Path
    key: Path


def _digest(password: str) -> str:
    """Encode a password as Pravega's password handler stores it: PBKDF2 with SHA-256, all in hexadecimal."""
    salt = os.urandom(32)
    key = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, _ITERATIONS, 64)
    return f"{_ITERATIONS}:{salt.hex()}:{key.hex()}".encode().hex()


def new_password() -> str:
    """Return a random password."""
    return os.urandom(12).hex()


def make_account(directory: Path) -> Account:
    """Create an account with a random password, and its file in ``directory``."""
    password = new_password()
    accounts = directory / "accounts"
    accounts.write_text(f"{USER}:{_digest(password)}:prn::*,READ_UPDATE\n")
    accounts.chmod(0o600)
    return Account(USER, password, accounts)


def make_security(directory: Path, *, tls: bool, auth: bool) -> ServerSecurity:
    """Create the certificates and the account, and write their files into ``directory``.

    :param directory: the directory.
    :param tls: whether to create certificates.
    :param auth: whether to create an account.
    :raises ServerStartError: the packages that create certificates are not installed.
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
        made = make_certificates(directory)
        trust_store = made.trust_store
        properties |= _java_properties(directory, made)
    return ServerSecurity(properties, account, trust_store)


def make_certificates(directory: Path) -> Certificates:
    """Create a certificate authority, and a certificate for this machine, as files in ``directory``.

    :raises ServerStartError: the packages that create certificates are not installed.
    """
    try:
        import trustme
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    except ImportError as error:
        raise ServerStartError(
            f"a server with TLS needs the package {error.name} to create certificates: pip install "
            "'pravega-wire[testing]'"
        ) from error
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1", "0.0.0.0")
    made = Certificates(*(directory / name for name in ("ca.pem", "server-cert.pem", "server-key.pem")))
    authority.cert_pem.write_to_path(str(made.trust_store))
    for index, blob in enumerate(issued.cert_chain_pems):
        blob.write_to_path(str(made.certificate), append=index > 0)
    # Netty reads only PKCS#8.
    private = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    assert isinstance(private, EllipticCurvePrivateKey)  # trustme's default
    made.key.touch(mode=0o600)
    made.key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return made


def _java_properties(directory: Path, made: Certificates) -> dict[str, object]:
    """Write certificates as Java wants them; return the settings of a standalone server that uses them."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import pkcs12

    encryption = serialization.BestAvailableEncryption(_STORE_PASSWORD.encode())
    ca = x509.load_pem_x509_certificate(made.trust_store.read_bytes())
    own = x509.load_pem_x509_certificate(made.certificate.read_bytes())
    private = serialization.load_pem_private_key(made.key.read_bytes(), None)
    assert isinstance(private, EllipticCurvePrivateKey)
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
        "singlenode.security.tls.certificate.location": made.certificate,
        "singlenode.security.tls.privateKey.location": made.key,
        "singlenode.security.tls.keyStore.location": key_store,
        "singlenode.security.tls.keyStore.pwd.location": store_password,
        # The embedded ZooKeeper takes the type of this store from the file's name, and its password from the
        # key store's password file.
        "singlenode.security.tls.trustStore.location": java_trust,
    }
