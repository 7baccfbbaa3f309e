"""The server's own certificate: issued by an authority of its fleet, whose key is not kept."""

import datetime
import ipaddress
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedldp.errors import DomainError
from fedldp.storage.files import write_secret

AUTHORITY, CERTIFICATE, KEY = "ca.pem", "tls.pem", "tls.key"
VALID = datetime.timedelta(days=3650)

_LOCAL = ("localhost", "127.0.0.1")
_CLOCKS_DIFFER = datetime.timedelta(days=1)
_DIGITAL_SIGNATURE = (True, *(False,) * 8)
_SIGNS_CERTIFICATES = (*(False,) * 5, True, True, False, False)


def write(folder: Path, hosts: Iterable[str]) -> None:
    """Write a certificate for some host names, its key, and the authority that agents trust."""
    root, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority, server = _name("fedldp fleet authority"), _name("fedldp fleet server")
    issuer = (
        _certificate(authority, authority, root.public_key(), _SIGNS_CERTIFICATES)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(root, hashes.SHA256())
    )
    names = x509.SubjectAlternativeName([_host(each) for each in dict.fromkeys((*hosts, *_LOCAL))])
    issued = (
        _certificate(server, authority, key.public_key(), _DIGITAL_SIGNATURE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(names, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(root.public_key()), critical=False
        )
        .sign(root, hashes.SHA256())
    )
    (folder / AUTHORITY).write_bytes(issuer.public_bytes(Encoding.PEM))
    (folder / CERTIFICATE).write_bytes(issued.public_bytes(Encoding.PEM))
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_secret(folder / KEY, secret)


def expires(path: Path) -> datetime.datetime:
    """Return when the first certificate in a file expires."""
    return min(each.not_valid_after_utc for each in _read(path))


def begins(path: Path) -> datetime.datetime:
    """Return from when on all certificates in a file are valid."""
    return max(each.not_valid_before_utc for each in _read(path))


def _read(path: Path) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(path.read_bytes())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(host: str) -> x509.GeneralName:
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
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, usage: tuple[bool, ...]
) -> x509.CertificateBuilder:
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
