"""The HTTPS road, version 1: its paths and headers, and the code that authenticates a request."""

import hashlib
import hmac
import json
from typing import NamedTuple, final

from .common import WireError, canonical, documents
from .messages import MOST_VEHICLES
from .questions import check_name

BASE = "/v1"
VERSIONS = b'{"format":"fedldp versions 1","versions":[1]}'

AGENT, TIME, NONCE, BODY, MAC = (
    "Fedldp-Agent",
    "Fedldp-Time",
    "Fedldp-Nonce",
    "Fedldp-Body",
    "Fedldp-Mac",
)
CLOCK_SECONDS = 300  # by which the clocks of an agent and the server may differ
NONCE_BYTES, SECRET_BYTES = 16, 32

JOIN, JOINED, ROTATED = "fedldp join 1", "fedldp joined 1", "fedldp rotated 1"
CLOCK = "fedldp clock 1"

_FIRST_LINE = b"fedldp https 1"


def body_hash(body: bytes) -> str:
    """Return the SHA-256 of a body, in hexadecimal.

    >>> body_hash(b"")[:16]
    'e3b0c44298fc1c14'
    """
    return hashlib.sha256(body).hexdigest()


def mac(secret: bytes, *lines: bytes) -> str:
    """Return the code of a request: method, path, time, nonce, length and hash of the body.

    >>> mac(bytes(32), b"GET", b"/v1/job/00", b"1", b"00" * 16, b"0", body_hash(b"").encode())[:16]
    '85b01ff0977e117f'
    """
    return hmac.digest(secret, b"\n".join((_FIRST_LINE, *lines)), "sha256").hex()


@final
class JoinedAgent(NamedTuple):
    """What an agent gets for its code.

    >>> JoinedAgent.from_bytes(JoinedAgent("car-7", bytes(32), 1).to_bytes()).agent
    'car-7'
    """

    agent: str
    secret: bytes
    vehicles: int

    def to_bytes(self) -> bytes:
        """Return the reply as it is sent."""
        document = {"format": JOINED, "secret": self.secret.hex()}
        return canonical(document | {"agent": self.agent, "vehicles": self.vehicles}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "JoinedAgent":
        """Read a reply, or raise `WireError`."""
        with documents.reading(repr(JOINED)):
            document = documents.parse(data, [JOINED], cls._fields)
            vehicles = document["vehicles"]
            if type(vehicles) is not int or not 1 <= vehicles <= MOST_VEHICLES:
                raise ValueError("it is for other numbers of vehicles")
            agent = check_name(document["agent"], "agent")
            return cls(agent, _secret(document["secret"]), vehicles)


def join_bytes(code: str) -> bytes:
    """Return the body with which an agent joins.

    >>> code_in(join_bytes("car-7:ABC"))
    'car-7:ABC'
    """
    return canonical({"format": JOIN, "code": code}).encode()


def code_in(data: bytes) -> str:
    """Read the body with which an agent joins, or raise `WireError`."""
    with documents.reading(repr(JOIN)):
        code = documents.parse(data, [JOIN], ("code",))["code"]
        if not isinstance(code, str):
            raise ValueError("its code is not a text")
    return code


def rotated_bytes(secret: bytes) -> bytes:
    """Return the reply with a new secret.

    >>> secret_in(rotated_bytes(bytes(32))) == bytes(32)
    True
    """
    return canonical({"format": ROTATED, "secret": secret.hex()}).encode()


def secret_in(data: bytes) -> bytes:
    """Read the reply with a new secret, or raise `WireError`."""
    with documents.reading(repr(ROTATED)):
        return _secret(documents.parse(data, [ROTATED], ("secret",))["secret"])


def clock_bytes(now: float) -> bytes:
    """Return the refusal of a request whose time is too far from that of the server.

    >>> clock_bytes(12.5)
    b'{"format":"fedldp clock 1","time":12}'
    """
    return canonical({"format": CLOCK, "time": int(now)}).encode()


def clock_in(data: bytes) -> int | None:
    """Return the time of the server in a refusal; None if it is another one.

    >>> clock_in(clock_bytes(12.5)), clock_in(b"{}")
    (12, None)
    """
    try:
        document = json.loads(data)
        documents.parse(data, [CLOCK], ("time",))
    except (WireError, ValueError):
        return None
    found = document["time"]
    return found if type(found) is int else None


def _secret(text: object) -> bytes:
    secret = bytes.fromhex(text) if isinstance(text, str) else b""
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret must have {2 * SECRET_BYTES} hexadecimal digits")
    return secret
