"""Documents that somebody has signed: Ed25519 over canonical JSON.

A signed text is one line of canonical JSON, and what is signed are the bytes of its last entry, as
they stand there:

    {"format":"fedldp signed 1","key":"<fingerprint>","signature":"<base64>","signed":{...}}

So a reader finds these bytes without parsing them, and parses them only after the signature was
checked. What is signed has a `format` of its own, and a reader names the one that it expects: a
signature of a job can never pass for the signature of something else.

Package cryptography signs, and is imported where it is used: most processes never sign.
`vehicle.py` checks signatures.
"""

import base64
import binascii
import datetime
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, final

from ._internal import documents
from .errors import DomainError, WireError
from .storage import files
from .vehicle import MOST_SIGNED_CHARACTERS, canonical, difference, is_signed, key_point

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = [
    "PrivateKey",
    "PublicKey",
    "PublicKeys",
    "TrustedKeys",
    "format_time",
    "is_encrypted",
    "parse_time",
    "read_unverified",
    "sign",
    "signer_fingerprint",
    "verify",
]

FORMAT = "fedldp signed 1"
MOST_BYTES = MOST_SIGNED_CHARACTERS  # of a signed text

_KEY_KIND = "ed25519"
_TEXT = re.compile(
    rf'\{{"format":"{FORMAT}","key":"(?P<key>[0-9a-f]{{64}})",'
    r'"signature":"(?P<signature>[A-Za-z0-9+/]{86}==)","signed":(?P<signed>\{.*\})\}',
)
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_MOST_KEY_FILE_BYTES = 1 << 14


@final
@dataclass(frozen=True)
class PublicKey:
    """The key that checks signatures; its file has one line, `ed25519 <base64>`.

    Parameters
    ----------
    raw
        The 32 bytes of the key.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> key = PrivateKey.generate().public
    >>> key.text
    'ed25519 ...='
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "operator.pub"
    >>> key.save(path)
    >>> PublicKey.load(path) == PublicKey.from_text(key.text) == key
    True
    """

    raw: bytes

    @property
    def text(self) -> str:
        """The key as one line, without a line break."""
        return f"{_KEY_KIND} {base64.b64encode(self.raw).decode()}"

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the 32 bytes, in hexadecimal: it names the key in signed texts."""
        return hashlib.sha256(self.raw).hexdigest()

    @classmethod
    def from_text(cls, text: str) -> "PublicKey":
        """Read the line, with or without a line break at its end.

        Parameters
        ----------
        text
            The line.

        Returns
        -------
        PublicKey
            The key.

        Raises
        ------
        WireError
            If it is not such a line.
        """
        with documents.reading("public key", ". Give a file such as operator.pub."):
            expected = f"expected one line, '{_KEY_KIND} <base64 of 32 bytes>'"
            kind, _, encoded = text.rstrip("\n").partition(" ")
            if kind != _KEY_KIND:
                raise ValueError(expected)
            key = cls(base64.b64decode(encoded, validate=True))
            if len(key.raw) != 32 or key.text != text.rstrip("\n"):
                raise ValueError(expected)
            if key_point(key.raw) is None:
                raise ValueError("it is not a point of the curve in its only form, of large order")
        return key

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "PublicKey":
        """Read a file that `save` wrote.

        Parameters
        ----------
        path
            The file.

        Returns
        -------
        PublicKey
            The key.

        Raises
        ------
        DomainError
            If the file cannot be read.
        WireError
            If it is not a public key.
        """
        return cls.from_text(_read(path).decode("ascii", errors="replace"))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file.

        Parameters
        ----------
        path
            The file.
        """
        files.write(path, f"{self.text}\n")

    @property
    def keys(self) -> "tuple[PublicKey, ...]":
        """The key itself: it is all that a reader trusts."""
        return (self,)


@final
@dataclass(frozen=True)
class PublicKeys:
    """Several keys, any of which may have signed; their file has a line for each.

    There are two while their owner changes keys.

    Parameters
    ----------
    keys
        The keys.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> old, new = PrivateKey.generate().public, PrivateKey.generate().public
    >>> both = PublicKeys((old, new))
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "operator.pub"
    >>> _ = path.write_text(both.text)
    >>> PublicKeys.load(path) == PublicKeys.from_text(both.text) == both
    True
    """

    keys: tuple[PublicKey, ...]

    @property
    def text(self) -> str:
        """A line for each key, as files have it."""
        return "".join(f"{each.text}\n" for each in self.keys)

    @classmethod
    def from_text(cls, text: str) -> "PublicKeys":
        """Read the lines.

        Parameters
        ----------
        text
            A line for each key; that of one key will do.

        Returns
        -------
        PublicKeys
            The keys.

        Raises
        ------
        WireError
            If a line is not a public key, or the same one is there twice.
        """
        found = tuple(PublicKey.from_text(line) for line in text.removesuffix("\n").split("\n"))
        if len(set(found)) < len(found):
            raise WireError("not a file of public keys: one of them is there twice.")
        return cls(found)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "PublicKeys":
        """Read a file with one key or several.

        Parameters
        ----------
        path
            The file.

        Returns
        -------
        PublicKeys
            The keys.

        Raises
        ------
        DomainError
            If the file cannot be read.
        WireError
            If it does not contain public keys.
        """
        return cls.from_text(_read(path).decode("ascii", errors="replace"))


class TrustedKeys(Protocol):
    """Whose signatures a reader accepts: those of a `PublicKey`, or of any of `PublicKeys`.

    Examples
    --------
    >>> key: TrustedKeys = PrivateKey.generate().public
    >>> key.keys == (key,)
    True
    """

    @property
    def keys(self) -> tuple[PublicKey, ...]:
        """The keys."""


@final
class PrivateKey:
    """The key that signs; its file is PEM (PKCS8), for its owner alone.

    Parameters
    ----------
    key
        A key of the package cryptography. Use `generate` or `load`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> key, path = PrivateKey.generate(), pathlib.Path(tempfile.mkdtemp()) / "operator.key"
    >>> key.save(path, passphrase="correct horse")
    >>> again = PrivateKey.load(path, passphrase="correct horse")
    >>> again.signature(b"hello") == key.signature(b"hello")
    True
    """

    def __init__(self, key: "Ed25519PrivateKey") -> None:
        self._key = key

    def __repr__(self) -> str:
        return f"<PrivateKey of {self.public.fingerprint[:16]}>"

    @classmethod
    def generate(cls) -> "PrivateKey":
        """Make a new key from the operating system's random source.

        Returns
        -------
        PrivateKey
            The key.
        """
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: str | os.PathLike[str], passphrase: str | None = None) -> "PrivateKey":
        """Read a file that `save` or OpenSSL wrote.

        Parameters
        ----------
        path
            The file.
        passphrase
            The passphrase of the file, if it has one.

        Returns
        -------
        PrivateKey
            The key.

        Raises
        ------
        DomainError
            If the file cannot be read or is not an Ed25519 key, or the passphrase is wrong.
        """
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        secret = None if passphrase is None else passphrase.encode()
        try:
            key = load_pem_private_key(_read(path), secret)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise DomainError(
                f"{path} is not a private key, or the passphrase is wrong: {error}"
            ) from None
        if not isinstance(key, Ed25519PrivateKey):
            raise DomainError(f"{path} must be an Ed25519 key; got another kind of key.")
        return cls(key)

    @property
    def public(self) -> PublicKey:
        """The key that checks its signatures."""
        return PublicKey(self._key.public_key().public_bytes_raw())

    def save(self, path: str | os.PathLike[str], passphrase: str | None = None) -> None:
        """Write a new file that only its owner can read; an existing one is never replaced.

        Parameters
        ----------
        path
            The file.
        passphrase
            If it is given, the file is encrypted with it.
        """
        from cryptography.hazmat.primitives.serialization import (
            BestAvailableEncryption,
            Encoding,
            KeySerializationEncryption,
            NoEncryption,
            PrivateFormat,
        )

        secret: KeySerializationEncryption = NoEncryption()
        if passphrase is not None:
            secret = BestAvailableEncryption(passphrase.encode())
        pem = self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret)
        files.write_secret(Path(path), pem)

    def signature(self, data: bytes) -> bytes:
        """Return the signature of some bytes: the same one every time.

        Parameters
        ----------
        data
            The bytes.

        Returns
        -------
        bytes
            The signature, 64 bytes.
        """
        return self._key.sign(data)


def is_encrypted(path: str | os.PathLike[str]) -> bool:
    """Return whether a file with a private key needs a passphrase.

    Parameters
    ----------
    path
        The file that `PrivateKey.save` wrote.

    Returns
    -------
    bool
        Whether it is encrypted.

    Raises
    ------
    DomainError
        If the file cannot be read.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "operator.key")
    >>> PrivateKey.generate().save(path, "open sesame")
    >>> is_encrypted(path)
    True
    """
    return b"ENCRYPTED" in _read(path)


def sign(private: PrivateKey, document: Mapping[str, Any]) -> str:
    """Return a signed text: the same one for equal documents.

    Parameters
    ----------
    private : PrivateKey
        The key that signs.
    document : mapping
        What is signed, as JSON: it has an entry `format`, which says what it is.

    Returns
    -------
    str
        The signed text.

    Raises
    ------
    DomainError
        If the document has no format, or is too long.

    Examples
    --------
    >>> private = PrivateKey.generate()
    >>> text = sign(private, {"format": "fedldp greeting 1", "hello": "world"})
    >>> verify(private.public, text, "fedldp greeting 1")["hello"]
    'world'
    """
    if not isinstance(document.get("format"), str):
        raise DomainError("a document needs an entry `format` to be signed.")
    signed = canonical(dict(document))
    text = _write(private.public, private.signature(signed.encode()), signed)
    if len(text) > MOST_BYTES:
        raise DomainError(
            f"a signed text must have at most {MOST_BYTES} bytes; got {len(text)}. "
            "Sign a smaller document."
        )
    return text


def verify(
    public: TrustedKeys,
    text: str,
    format: str,  # noqa: A002 (the word that all documents have)
    now: datetime.datetime | None = None,
) -> dict[str, Any]:
    """Return the document of a signed text, if this key, or one of these, has signed it.

    Nothing in the text is parsed before its signature was checked.

    Parameters
    ----------
    public : PublicKey or PublicKeys
        The key that must have signed it, or several of which one must.
    text : str
        The signed text, exactly as `sign` returned it.
    format : str
        The format that the document must have.
    now : datetime.datetime, optional
        The time, with a time zone. If it is given, the document must have an entry `expires`, as
        `format_time` writes it, that lies after it. By default nothing expires.

    Returns
    -------
    dict
        The document.

    Raises
    ------
    WireError
        If the text is not in its only form, another key has signed it, anything in it was altered,
        it has another format, or it has expired.

    Examples
    --------
    >>> private = PrivateKey.generate()
    >>> text = sign(private, {"format": "fedldp greeting 1", "hello": "world"})
    >>> verify(PrivateKey.generate().public, text, "fedldp greeting 1")
    Traceback (most recent call last):
    fedldp.errors.WireError: not signed by the expected key: ...
    """
    parsed = _parse(text)
    known = {key.fingerprint: key for key in public.keys}
    if parsed["key"] not in known:
        expected = " or ".join(f"{fingerprint[:16]}..." for fingerprint in known)
        raise WireError(
            f"not signed by the expected key: it is signed by the key {parsed['key'][:16]}..., "
            f"and the expected one is {expected}"
        )
    _check_signature(
        known[parsed["key"]], base64.b64decode(parsed["signature"]), parsed["signed"].encode()
    )
    document = _document(parsed["signed"], format)
    if now is not None:
        expires = document.get("expires")
        if not isinstance(expires, str) or now >= parse_time(expires):
            raise WireError(f"the signature has expired: it was valid until {expires!r:.40}.")
    return document


def signer_fingerprint(text: str) -> str:
    """Return the fingerprint of the key that a text names, without checking its signature.

    Parameters
    ----------
    text
        The signed text.

    Returns
    -------
    str
        The fingerprint, as `PublicKey.fingerprint` writes it.

    Raises
    ------
    WireError
        If it is not a signed text.

    Examples
    --------
    >>> private = PrivateKey.generate()
    >>> text = sign(private, {"format": "fedldp greeting 1"})
    >>> signer_fingerprint(text) == private.public.fingerprint
    True
    """
    return _parse(text)["key"]


def read_unverified(text: str, format: str) -> dict[str, Any]:  # noqa: A002
    """Return the document of a signed text without checking who has signed it.

    Only for texts from the reader's own folder: to compare it with what it should say.

    Parameters
    ----------
    text
        The signed text.
    format
        The format that the document must have.

    Returns
    -------
    dict
        The document, which anybody may have written.

    Raises
    ------
    WireError
        If it is not a signed text, or its document has another format.

    Examples
    --------
    >>> text = sign(PrivateKey.generate(), {"format": "fedldp greeting 1", "hello": "world"})
    >>> read_unverified(text, "fedldp greeting 1")["hello"]
    'world'
    """
    return _document(_parse(text)["signed"], format)


def format_time(when: datetime.datetime) -> str:
    """Return a time as documents have it: in UTC, to the second.

    Parameters
    ----------
    when
        The time, with a time zone.

    Returns
    -------
    str
        The text.

    Examples
    --------
    >>> format_time(datetime.datetime(2027, 3, 1, 12, tzinfo=datetime.UTC))
    '2027-03-01T12:00:00Z'
    """
    return when.astimezone(datetime.UTC).strftime(_TIME)


def parse_time(text: str) -> datetime.datetime:
    """Return the time that `format_time` has written.

    Parameters
    ----------
    text
        The text.

    Returns
    -------
    datetime.datetime
        The time, in UTC.

    Raises
    ------
    WireError
        If the text is written in another way.

    Examples
    --------
    >>> parse_time("2027-03-01T12:00:00Z")
    datetime.datetime(2027, 3, 1, 12, 0, tzinfo=datetime.timezone.utc)
    """
    with documents.reading("time", ". Expected one such as 2027-03-01T12:00:00Z."):
        found = datetime.datetime.strptime(text, _TIME).replace(tzinfo=datetime.UTC)
        documents.check_written(format_time(found), text)
    return found


def _parse(text: str) -> dict[str, str]:
    """Return the entries of a signed text, which are not checked."""
    if len(text) > MOST_BYTES:
        raise WireError(f"not a {FORMAT!r}: it has more than {MOST_BYTES} characters.")
    match = _TEXT.fullmatch(text)
    if match is None or not text.isascii():
        other = re.match(r'\{"format":"(fedldp signed [0-9]{1,9})"', text)
        if other and other[1] != FORMAT:
            raise WireError(f"not a {FORMAT!r}: {difference(other[1], [FORMAT])}.")
        raise WireError(f"not a {FORMAT!r}: use the text as fedldp wrote it.")
    try:
        again = base64.b64encode(base64.b64decode(match["signature"], validate=True)).decode()
    except binascii.Error:
        again = ""
    if again != match["signature"]:  # base64 has spare bits, and they must be zero
        raise WireError(f"not a {FORMAT!r}: its signature is not in its only form.")
    return match.groupdict()


def _document(signed: str, format: str) -> dict[str, Any]:  # noqa: A002
    with documents.reading(repr(format)):
        document: dict[str, Any] = json.loads(signed)
        found = document.get("format") if isinstance(document, dict) else None
        if found != format:
            raise ValueError(f"what was signed has another format: {difference(found, [format])}")
        documents.check_written(canonical(document), signed)
    return document


def _write(public: PublicKey, signature: bytes, signed: str) -> str:
    head = {
        "format": FORMAT,
        "key": public.fingerprint,
        "signature": base64.b64encode(signature).decode(),
    }
    return f'{canonical(head)[:-1]},"signed":{signed}}}'


def _check_signature(public: PublicKey, signature: bytes, data: bytes) -> None:
    if not is_signed(public.raw, signature, data):
        raise WireError("the signature is wrong: what was signed, or the signature, was altered.")


def _read(path: str | os.PathLike[str]) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MOST_KEY_FILE_BYTES + 1)
    except OSError as error:
        raise DomainError(f"{path} cannot be read: {error.strerror}.") from None
    if len(data) > _MOST_KEY_FILE_BYTES:
        raise DomainError(f"{path} is not a key: it is too long.")
    return data
