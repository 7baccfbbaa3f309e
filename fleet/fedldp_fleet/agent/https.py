"""The HTTPS road on the standard library: one kept connection, and a code for each request.

The secret of the agent authenticates each request: method, path, time, a nonce, length and hash of
the body. It cannot make vehicles spend: jobs are signed by the operator.
"""

import http.client
import json
import os
import secrets
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import NamedTuple, final
from urllib.parse import urlsplit

from .. import road
from ..common import DomainError, WireError, canonical, documents
from ..messages import Acknowledgement, Announcement, Call, Offers
from ..questions import MOST_BYTES as MOST_QUESTION_BYTES
from ..questions import check_name
from .roads import RoadError, UnwelcomeError

MEMBERSHIP = "fedldp membership 1"
TIMEOUT_SECONDS = 30.0

_MOST_JOB_BYTES = 1 << 20
_MOST_OFFERS_BYTES = 1 << 23
_SMALL_BYTES = 1 << 12
_OK, _UNAUTHORIZED, _NOT_FOUND = 200, 401, 404


@final
class Membership(NamedTuple):
    """As whom a server knows an agent: what its file `membership.json` holds.

    >>> membership = Membership("https://localhost", "car-7", bytes(32), 1)
    >>> Membership.from_json(membership.to_json()) == membership
    True
    """

    url: str
    agent: str
    secret: bytes
    vehicles: int  # that it is enrolled for
    next_secret: bytes = b""  # from a rotation until the server has seen it

    def to_json(self) -> str:
        """Return the text of the file, which is secret."""
        document = self._asdict() | {"secret": self.secret.hex()}
        document |= {"format": MEMBERSHIP, "next_secret": self.next_secret.hex()}
        return canonical(document)

    @classmethod
    def from_json(cls, text: str) -> "Membership":
        """Read the text of the file, or raise `WireError`."""
        with documents.reading(repr(MEMBERSHIP)):
            document = documents.parse(text, [MEMBERSHIP], cls._fields)
            check_name(document["agent"], "agent")
            given, following = (bytes.fromhex(document[n]) for n in ("secret", "next_secret"))
            return cls(
                str(document["url"]), document["agent"], given, int(document["vehicles"]), following
            )

    @classmethod
    def load(cls, path: Path) -> "Membership":
        """Read the file; raise `DomainError` if the agent has not joined."""
        try:
            return cls.from_json(path.read_text("utf-8"))
        except FileNotFoundError:
            raise DomainError(
                f"{path} does not exist: this agent has not joined a server. Ask its operator for "
                "a code, and join with it."
            ) from None

    def save(self, path: Path) -> None:
        """Write the file, for its owner alone, and never half of it."""
        fresh = path.with_name(f"{path.name}.new")
        fresh.unlink(missing_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 (it is open already)
            file.write(self.to_json())
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)


def tls(ca_file: str | os.PathLike[str] | None = None) -> ssl.SSLContext:
    """Return the settings of TLS 1.3: the server's certificate must be of this authority.

    Without a file, the authorities of the operating system are trusted.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if ca_file is None:
        context.load_default_certs()
    else:
        try:
            context.load_verify_locations(ca_file)
        except (OSError, ssl.SSLError) as error:
            raise DomainError(f"{ca_file} is not a file of certificates: {error}") from None
    return context


class _HTTPSConnection(http.client.HTTPSConnection):
    """A connection that encodes its host itself: the codec for other alphabets takes a megabyte."""

    def __init__(self, host: str, port: int, timeout: float, context: ssl.SSLContext) -> None:
        super().__init__(host, port, timeout=timeout, context=context)
        self._address = host.encode("ascii" if host.isascii() else "idna"), port
        self._tls, self._seconds = context, timeout

    def connect(self) -> None:
        plain = socket.create_connection(self._address, self._seconds)  # type: ignore[arg-type]
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = self._tls.wrap_socket(plain, server_hostname=self._address[0])


class _KeptConnection:
    """A kept connection to a server, which is opened again when it was closed."""

    def __init__(self, url: str, context: ssl.SSLContext, timeout: float) -> None:
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment:
            raise DomainError(
                f"the server's address must be like https://fleet.example:8443; got {url!r:.200}."
            )
        self._host, self._port = parts.hostname, parts.port or 443
        self.prefix = parts.path.rstrip("/") + road.BASE
        self._context, self._timeout = context, timeout
        self._open: http.client.HTTPSConnection | None = None

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
        self._open = None

    def request(
        self, method: str, path: str, body: bytes, headers: dict[str, str], most: int
    ) -> tuple[int, bytes]:
        """Return the status and the body of a reply; raise `RoadError` if there is none."""
        try:
            if self._open is None:
                self._open = _HTTPSConnection(self._host, self._port, self._timeout, self._context)
            self._open.request(method, path, body or None, headers)
            reply = self._open.getresponse()
            data = reply.read(most + 1)
            if len(data) > most or not reply.isclosed():
                self.close()
                raise RoadError(f"its reply to {path} has more than {most} bytes.")
            return reply.status, data
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            if isinstance(error, RoadError):
                raise
            raise RoadError(f"cannot be reached: {error or type(error).__name__}") from error

    @property
    def is_open(self) -> bool:
        return self._open is not None


@final
class HTTPSRoad:
    """The road of an agent that has joined.

    Parameters
    ----------
    membership
        As whom the server knows the agent.
    context
        TLS, as `tls` returns it.
    path
        The file of the membership, which a rotation rewrites.
    timeout
        Seconds until a server that says nothing counts as unreachable.
    """

    def __init__(
        self,
        membership: Membership,
        context: ssl.SSLContext,
        path: Path | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        self._membership, self._path = membership, path
        self._connection = _KeptConnection(membership.url, context, timeout)
        self._ahead = 0.0  # of the server's clock, if it has said that clocks differ
        self.requests = 0

    def call(self, call: Call) -> Offers:
        """Ask for the open rounds and for places in them."""
        data = self._asked("POST", "/call", call.to_bytes(), _MOST_OFFERS_BYTES)
        return Offers.from_bytes(data)

    def question(self, digest: bytes) -> bytes:
        """Return the question with this SHA-256, which the caller checks."""
        return self._asked("GET", f"/question/{digest.hex()}", b"", MOST_QUESTION_BYTES)

    def signed_job(self, digest: str) -> str:
        """Return the signed job with this SHA-256, which the caller checks."""
        check_name(digest, "signed job")
        data = self._asked("GET", f"/job/{digest}", b"", _MOST_JOB_BYTES)
        return data.decode("utf-8", "replace")

    def announce(self, said: Announcement) -> bool:
        """Say that an answer is drawn now; return whether the server waits for it."""
        return self._asked("POST", "/announce", said.to_bytes(), 1) == b"\1"

    def deliver(self, answer: bytes) -> Acknowledgement:
        """Deliver an answer; return what the server says about it."""
        return Acknowledgement.from_bytes(self._asked("POST", "/answer", answer, _SMALL_BYTES))

    def rotate(self) -> None:
        """Get a new secret; the old one works until the new one was used."""
        following = road.secret_in(self._asked("POST", "/rotate", b"", _SMALL_BYTES))
        self._save(self._membership._replace(next_secret=following))

    def wait(self, seconds: float, stop: threading.Event) -> bool:
        """Wait: a server calls nobody."""
        stop.wait(seconds)
        return False

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _save(self, membership: Membership) -> None:
        if self._path is not None:  # on disk before it is used: afterwards the old one is void
            membership.save(self._path)
        self._membership = membership

    def _asked(self, method: str, path: str, body: bytes, most: int) -> bytes:
        """Return the reply to a request, which is tried again where that helps."""
        kept = self._connection.is_open
        try:
            status, data = self._tried(method, path, body, most)
        except RoadError:
            if not kept:
                raise
            status, data = self._tried(method, path, body, most)  # a kept connection was closed
        if status == _UNAUTHORIZED:
            status, data = self._welcome(method, path, body, most, data)
        if status == _OK:
            if self._membership.next_secret:
                self._save(
                    self._membership._replace(secret=self._membership.next_secret, next_secret=b"")
                )
            return data
        self._connection.close()
        if status == _UNAUTHORIZED:
            raise UnwelcomeError(
                "does not know this agent, or has revoked it. Ask its operator for a new code."
            )
        if status == _NOT_FOUND and data == road.VERSIONS:
            raise RoadError(
                "speaks no version of the protocol that this agent knows: update the older one."
            )
        raise RoadError(f"has replied to {path} with status {status}: {_reason(data)}")

    def _welcome(
        self, method: str, path: str, body: bytes, most: int, data: bytes
    ) -> tuple[int, bytes]:
        """Try again with the server's clock, or with the other secret of a rotation."""
        status = _UNAUTHORIZED
        now = road.clock_in(data)
        if now is not None:
            self._ahead = now - time.time()
            status, data = self._tried(method, path, body, most)
        if status == _UNAUTHORIZED and self._membership.next_secret:
            # The server was restored to a time before the rotation.
            old = self._membership._replace(next_secret=b"")
            status, data = self._tried(method, path, body, most, old.secret)
            if status == _OK:
                self._save(old)
        return status, data

    def _tried(
        self, method: str, path: str, body: bytes, most: int, secret: bytes = b""
    ) -> tuple[int, bytes]:
        self.requests += 1
        whole = self._connection.prefix + path
        moment = str(int(time.time() + self._ahead))
        nonce, digest = secrets.token_hex(road.NONCE_BYTES), road.body_hash(body)
        lines = (method, whole, moment, nonce, str(len(body)), digest)
        secret = secret or self._membership.next_secret or self._membership.secret
        headers = {
            road.AGENT: self._membership.agent,
            road.TIME: moment,
            road.NONCE: nonce,
            road.BODY: digest,
            road.MAC: road.mac(secret, *(line.encode() for line in lines)),
            "Content-Length": str(len(body)),
        }
        if body:
            headers["Content-Type"] = "application/octet-stream"
        return self._connection.request(method, whole, body, headers, max(most, _SMALL_BYTES))


def join(
    url: str, code: str, context: ssl.SSLContext, timeout: float = TIMEOUT_SECONDS
) -> Membership:
    """Use a one-time code; return as whom the server knows the agent from now on."""
    connection = _KeptConnection(url, context, timeout)
    try:
        body = road.join_bytes(code)
        headers = {"Content-Length": str(len(body))}
        path = f"{connection.prefix}/join"
        status, data = connection.request("POST", path, body, headers, _SMALL_BYTES)
    finally:
        connection.close()
    if status == _NOT_FOUND and data == road.VERSIONS:
        raise RoadError(
            "the server speaks no version of the protocol that this agent knows: update the older."
        )
    if status != _OK:
        raise DomainError(
            f"the server refuses this code: {_reason(data)}. A code is for one use: ask the "
            "operator for another one."
        )
    joined = road.JoinedAgent.from_bytes(data)
    return Membership(url, joined.agent, joined.secret, joined.vehicles)


def _reason(data: bytes) -> str:
    try:
        return str(json.loads(data)["error"])[:200]
    except (ValueError, TypeError, KeyError, WireError):
        return "it says nothing more"
