"""The keys of a fleet: a certificate authority, the server's certificate, a key for each gateway.

A gateway trusts only servers that the authority of its own fleet has certified. The server knows
the gateways by their public keys, in the format of OpenSSH, which Flower reads.
"""

import datetime
import ipaddress
import ssl
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
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
    load_pem_private_key,
    load_ssh_public_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedldp.errors import DomainError
from fedldp.storage.files import write_secret

VALID = datetime.timedelta(days=3650)
LOCAL = ("localhost", "127.0.0.1")  # names that the server's own processes use

_DIGITAL_SIGNATURE = (True, *(False,) * 8)
_SIGNS_CERTIFICATES = (*(False,) * 5, True, True, False, False)
_CLOCKS_DIFFER = datetime.timedelta(days=1)

_Issued = tuple[bytes, bytes]  # a private key and its certificate


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


_AUTHORITY = _name("fedldp fleet authority")


def write_server(folder: Path, authority: Path, hosts: Iterable[str]) -> None:
    """Make an authority and a certificate for a server with these names and addresses.

    Write the key of the authority to `authority`, and `ca.crt`, `server.crt` and `server.key` to
    the folder.
    """
    (folder / "ca.crt").write_text(write_authority(authority), "ascii")
    key, certificate = _server(_private(authority), _called(hosts))
    (folder / "server.crt").write_bytes(certificate)
    write_secret(folder / "server.key", key)


def write_authority(path: Path) -> str:
    """Make and write the key of an authority; return its certificate for those who trust it."""
    root = generate_private_key(SECP384R1())
    write_secret(path, _pem(root))
    issued = (
        _certificate(_AUTHORITY, _AUTHORITY, root.public_key(), _SIGNS_CERTIFICATES)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(root, hashes.SHA384())
    )
    return _text(issued)


def authorities(text: str) -> list[str]:
    """Return the certificates in a file of PEM, each as a text of its own."""
    try:
        return [_text(each) for each in x509.load_pem_x509_certificates(text.encode())]
    except ValueError as error:
        raise DomainError(f"expected certificates in PEM: {error}") from None


def is_of(certificate: str, authority_key: Path) -> bool:
    """Return whether the certificate of an authority belongs to a private key."""
    found = x509.load_pem_x509_certificate(certificate.encode())
    return found.public_key() == _private(authority_key).public_key()


def issued_by(certificate: Path, authority: str) -> bool:
    """Return whether an authority has issued a certificate."""
    issuer = x509.load_pem_x509_certificate(authority.encode())
    try:
        x509.load_pem_x509_certificate(certificate.read_bytes()).verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def renew_server(certificate: Path, key: Path, authority: Path, authority_key: Path) -> None:
    """Replace the certificate of a server, and its key, by new ones with the same names.

    Each file is replaced at once, the key first: a process that finds a pair that does not fit
    together reads it again a moment later.
    """
    if not any(
        is_of(each, authority_key) for each in authorities(authority.read_text("utf-8", "replace"))
    ):
        raise DomainError(
            f"{authority_key} is not the key of the authority in {authority}, which the gateways "
            "trust. Use the `ca.key` that `fedldp fleet init` wrote for this fleet."
        )
    old = x509.load_pem_x509_certificate(certificate.read_bytes())
    names = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    secret, issued = _server(_private(authority_key), names)
    _replace(key, secret)
    _replace(certificate, issued)


def names(certificate: x509.Certificate) -> list[str]:
    """Return the host names and addresses that a certificate is for."""
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(each.value) for each in found]


def fit(certificate: Path, key: Path) -> bool:
    """Return whether two files are a certificate and its private key.

    They are not for a moment while they are replaced, one after the other.
    """
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except OSError:  # an error of ssl is one too
        return False
    return True


def write_node(path: Path) -> bytes:
    """Make and write the private key of a gateway; return its public key for the server."""
    key = generate_private_key(SECP384R1())
    write_secret(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n"


def public_pem(key: bytes) -> bytes:
    """Return a public key in OpenSSH's format as PEM, in which a SuperNode sends it."""
    return load_ssh_public_key(key).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _server(root: EllipticCurvePrivateKey, names: x509.SubjectAlternativeName) -> _Issued:
    """Return a new private key and the certificate for it, both as PEM."""
    key = generate_private_key(SECP384R1())
    subject = _name("fedldp fleet server")
    issued = (
        _certificate(subject, _AUTHORITY, key.public_key(), _DIGITAL_SIGNATURE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(names, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(root.public_key()), critical=False
        )
        .sign(root, hashes.SHA384())
    )
    return _pem(key), issued.public_bytes(Encoding.PEM)


def _replace(path: Path, data: bytes) -> None:
    """Replace a file atomically, readable by its owner alone."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)  # left behind by a process that was killed
    write_secret(fresh, data)
    fresh.replace(path)


def _private(path: Path) -> EllipticCurvePrivateKey:
    """Read the key of an authority."""
    try:
        found = load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError) as error:
        raise DomainError(f"{path} is not the key of an authority: {error}") from None
    if not isinstance(found, EllipticCurvePrivateKey):
        raise DomainError(f"{path} is not the key of an authority: it is of another kind.")
    return found


def _text(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode("ascii")


def _pem(key: EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _called(hosts: Iterable[str]) -> x509.SubjectAlternativeName:
    """Return names and addresses, and those of this machine, in the form that certificates use."""
    return x509.SubjectAlternativeName(
        [_general_name(host) for host in dict.fromkeys((*hosts, *LOCAL))]
    )


def _general_name(host: str) -> x509.GeneralName:
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
