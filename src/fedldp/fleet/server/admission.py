"""Who may call the server: gateways whose public keys are in a folder, if they sign the time.

A SuperNode of Flower sends three headers with each call: its public key, the time, and its
signature of the time. The signature does not cover the body. It keeps strangers out; TLS prevents
others from reading the headers and sending them again.

While a gateway changes its key, the folder has both: NAME.pub and NAME.next.pub. The first call
with the new key that Flower answers makes it the key of the gateway, and the old one is refused.
"""

import binascii
import logging
import re
from base64 import b64decode, b64encode
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from time import time as now
from typing import Any, NamedTuple, final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from fedldp.fleet import keys, state

Headers = list[tuple[bytes, bytes]]

OLDEST = 305.0  # seconds since a gateway signed the time: the limit that Flower has
AHEAD = 5.0  # seconds that the clock of a gateway may be ahead
LOOK = 1.0  # seconds after which a folder that seems unchanged is read again
KEYS = "*.pub"  # the names of files with public keys

FORMAT = "fedldp gateways heard 1"
HEARD = "heard.json"  # in the state folder of the server
VERSION = b"fedldp-version"  # the header in which an uplink names the version of fedldp

_NEXT = ".next"  # before the ending of a file with the key that a gateway will use
_KEY, _TIME, _SIGNATURE = b"flwr-public-key", b"flwr-timestamp", b"flwr-signature"

_log = logging.getLogger("fedldp.fleet")


def gateway_of(path: Path) -> str:
    """Return the name of the gateway to which a file with a public key belongs.

    >>> gateway_of(Path("gateways/gateway-1.pub")), gateway_of(Path("gateways/gateway-1.next.pub"))
    ('gateway-1', 'gateway-1')
    """
    return path.stem.removesuffix(_NEXT)


def order(path: Path) -> tuple[str, bool]:
    """Return by what to sort files with keys: the one of a gateway before its next one."""
    return gateway_of(path), path.stem.endswith(_NEXT)


def gateways(folder: Path) -> list[str]:
    """Return the names of the gateways whose public keys are in a folder."""
    return sorted({gateway_of(path) for path in folder.glob(KEYS)})


def current(folder: Path, gateway: str) -> Path:
    """Return the file with the key of a gateway."""
    return folder / f"{gateway}.pub"


def upcoming(folder: Path, gateway: str) -> Path:
    """Return the file for the key that a gateway will use next, beside the one that it uses."""
    return folder / f"{gateway}{_NEXT}.pub"


class Heard(NamedTuple):
    """The last call of a gateway."""

    time: float  # seconds since 1970
    version: str | None  # of fedldp there, if it says so


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
        self.heard: dict[str, Heard] = {}  # by name: the last call of each
        self._known: dict[bytes, _Known] = {}  # by the key as a gateway shows it
        self._changed, self._due = -1, 0.0
        self._stuck = False  # whether it was said that a file cannot be renamed

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
        if not self._vouches_for(shown[0]):
            return False
        known = self._known[shown[0]]
        signed = _is_signed(known.key, time[0], signature[0])
        if signed:
            self.heard[gateway_of(known.path)] = Heard(now(), _version(headers))
        return signed

    def used(self, headers: Headers) -> None:
        """Note that Flower has answered a call with these headers, which were admitted before.

        If they show the next key of a gateway, it replaces the key that the gateway had.
        """
        for name, shown in headers:
            known = self._known.get(shown) if name.lower() == _KEY else None
            if known is not None and known.path.stem.endswith(_NEXT):
                gateway = gateway_of(known.path)
                try:
                    known.path.replace(current(self._folder, gateway))
                except OSError as error:
                    if not self._stuck:
                        _log.warning(
                            "%s uses its new key, but %s cannot be renamed, so the old key is "
                            "still valid: %s.",
                            gateway,
                            known.path,
                            error.strerror,
                        )
                    self._stuck = True
                else:
                    _log.info("%s uses its new key: the old one is refused.", gateway)

    def key(self, headers: Headers) -> str:
        """Return the public key that headers show which were admitted, as its file has it."""
        shown = [value for name, value in headers if name.lower() == _KEY]
        known = self._known.get(shown[0]) if shown else None
        return "" if known is None else known.content.decode("utf-8", "replace")

    def _vouches_for(self, shown: bytes) -> bool:
        known = self._known.get(shown)
        return known is not None and _content(known.path) == known.content

    def _look(self) -> None:
        """Read the folder, unless it was read just now: strangers may call often."""
        changed = self._folder.stat().st_mtime_ns if self._folder.is_dir() else 0
        if changed == self._changed and monotonic() < self._due:
            return
        self._known = {}
        for path in self._folder.glob(KEYS):
            content = _content(path)
            try:
                key = load_ssh_public_key(content)
            except (ValueError, UnsupportedAlgorithm):  # an invalid key: `process` reports it
                continue
            if isinstance(key, EllipticCurvePublicKey):  # Flower accepts no other kind
                self._known[b64encode(keys.public_pem(content))] = _Known(key, path, content)
        self._changed, self._due = changed, monotonic() + LOOK


def _version(headers: Headers) -> str | None:
    """Return the version that a gateway claims to have. It only informs people."""
    for name, value in headers:
        if name.lower() == VERSION and re.fullmatch(rb"[0-9A-Za-z.+-]{1,40}", value):
            return value.decode("ascii")
    return None


def save(path: Path, heard: dict[str, Heard]) -> None:
    """Write when each gateway last called."""
    state.note(path, FORMAT, gateways={name: each._asdict() for name, each in heard.items()})


def load(path: Path) -> dict[str, Heard]:
    """Read when each gateway last called."""

    def understood(document: dict[str, Any]) -> dict[str, Heard]:
        found = document["gateways"].items()
        return {name: Heard(float(each["time"]), each["version"]) for name, each in found}

    return state.noted(path, FORMAT, understood, {})


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
