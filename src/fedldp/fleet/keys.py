"""The keys of a fleet: a certificate authority, the server's certificate, a key for each gateway.

A gateway trusts only servers that the authority of its own fleet has certified. The server knows
the gateways by their public keys, in the format of OpenSSH, which Flower reads.
"""

import datetime
import ipaddress
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP384R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_public_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedldp._internal.files import write_secret
from fedldp.errors import DomainError

VALID = datetime.timedelta(days=3650)
LOCAL = ("localhost", "127.0.0.1")  # names that the server's own processes use

_DIGITAL_SIGNATURE = (True, *(False,) * 8)
_SIGNS_CERTIFICATES = (*(False,) * 5, True, True, False, False)
_CLOCKS_DIFFER = datetime.timedelta(days=1)


def write_server(folder: Path, authority: Path, hosts: Iterable[str]) -> None:
    """Make an authority and a certificate for a server with these names and addresses.

    Write the key of the authority to `authority`, and `ca.crt`, `server.crt` and `server.key` to
    the folder.
    """
    root, key = generate_private_key(SECP384R1()), generate_private_key(SECP384R1())
    write_secret(authority, _pem(root))
    name = _name("fedldp fleet authority")
    issued = (
        _certificate(name, name, root.public_key(), _SIGNS_CERTIFICATES)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(root, hashes.SHA384())
    )
    (folder / "ca.crt").write_bytes(issued.public_bytes(Encoding.PEM))
    called = x509.SubjectAlternativeName(
        [_called(host) for host in dict.fromkeys((*hosts, *LOCAL))]
    )
    issued = (
        _certificate(_name("fedldp fleet server"), name, key.public_key(), _DIGITAL_SIGNATURE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(called, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(root.public_key()), critical=False
        )
        .sign(root, hashes.SHA384())
    )
    (folder / "server.crt").write_bytes(issued.public_bytes(Encoding.PEM))
    write_secret(folder / "server.key", _pem(key))


def write_node(path: Path) -> bytes:
    """Make and write the private key of a gateway; return its public key for the server."""
    key = generate_private_key(SECP384R1())
    write_secret(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n"


def public_pem(key: bytes) -> bytes:
    """Return a public key in OpenSSH's format as PEM, in which a SuperNode sends it."""
    return load_ssh_public_key(key).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _pem(key: EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _called(host: str) -> x509.GeneralName:
    """Return a host name or address in the form that certificates use."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise DomainError(
            f"the server must have a host name or an IP address; got {host!r:.80}."
        ) from None


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePublicKey, usage: tuple[bool, ...]
) -> x509.CertificateBuilder:
    """Return a builder with the fields that all certificates of a fleet have."""
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + VALID)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.KeyUsage(*usage), critical=True)
    )
