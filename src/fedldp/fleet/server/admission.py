"""Who may call the server: gateways whose public keys are in a folder, if they sign the time.

A SuperNode of Flower sends three headers with each call: its public key, the time, and its
signature of the time. The signature does not cover the body. It keeps strangers out; TLS prevents
others from reading the headers and sending them again.
"""

import binascii
from base64 import b64decode, b64encode
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import NamedTuple, final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from fedldp.fleet import keys

Headers = list[tuple[bytes, bytes]]

OLDEST = 305.0  # seconds since a gateway signed the time: the limit that Flower has
AHEAD = 5.0  # seconds that the clock of a gateway may be ahead
LOOK = 1.0  # seconds after which a folder that seems unchanged is read again

_KEY, _TIME, _SIGNATURE = b"flwr-public-key", b"flwr-timestamp", b"flwr-signature"


class _Known(NamedTuple):
    key: EllipticCurvePublicKey
    path: Path
    content: bytes


@final
class Gateways:
    """The gateways whose public keys are in a folder, in files named *.pub.

    The file of a key is read at every call: a key that was removed from the folder, or replaced in
    its file, is refused at once. A new key is admitted within a second.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[bytes, _Known] = {}  # by the key as a gateway shows it
        self._changed, self._due = -1, 0.0

    def __call__(self, headers: Headers) -> bool:
        """Return whether one of the gateways has signed these headers recently."""
        shown, time, signature = (
            [value for name, value in headers if name.lower() == wanted]
            for wanted in (_KEY, _TIME, _SIGNATURE)
        )
        # If a header came twice, Flower could read the one that was not verified here.
        if not len(shown) == len(time) == len(signature) == 1:
            return False
        if not self._vouches_for(shown[0]):
            self._look()
        return self._vouches_for(shown[0]) and _is_signed(
            self._known[shown[0]].key, time[0], signature[0]
        )

    def _vouches_for(self, shown: bytes) -> bool:
        known = self._known.get(shown)
        return known is not None and _content(known.path) == known.content

    def _look(self) -> None:
        """Read the folder, unless it was read just now: strangers may call often."""
        changed = self._folder.stat().st_mtime_ns if self._folder.is_dir() else 0
        if changed == self._changed and monotonic() < self._due:
            return
        self._known = {}
        for path in self._folder.glob("*.pub"):
            content = _content(path)
            try:
                key = load_ssh_public_key(content)
            except (ValueError, UnsupportedAlgorithm):  # an invalid key: `process` reports it
                continue
            if isinstance(key, EllipticCurvePublicKey):  # Flower accepts no other kind
                self._known[b64encode(keys.public_pem(content))] = _Known(key, path, content)
        self._changed, self._due = changed, monotonic() + LOOK


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it no longer exists
        return b""


def _is_signed(key: EllipticCurvePublicKey, time: bytes, signature: bytes) -> bool:
    """Return whether a key has signed a time, in Flower's format, that is close to now."""
    try:
        age = (datetime.now(UTC) - datetime.fromisoformat(time.decode("ascii"))).total_seconds()
        key.verify(b64decode(signature, validate=True), time, ECDSA(SHA256()))
    except (ValueError, TypeError, OverflowError, binascii.Error, InvalidSignature):
        return False
    return -AHEAD < age < OLDEST
