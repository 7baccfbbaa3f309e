"""The network in a process of its own, which has neither data nor ledger.

That process holds the agent's secret and its connections, and listens on a Unix socket. The process
with data and ledger needs no network: its road is that socket. It believes nothing that comes from
there but what operator and server have signed.

Where the network comes and goes, as an app of Flower does, the agent listens instead: `Door`.
"""

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from enum import IntEnum
from pathlib import Path
from typing import final

from ..common import DomainError, WireError
from ..messages import MOST_BITS, Acknowledgement, Announcement, Call, Offers
from .roads import Road, RoadError, UnwelcomeError

TIMEOUT_SECONDS = 120.0  # for whatever the network process does

WAIT_SECONDS = 2.0  # that the network process waits for news, at once

_HEAD = struct.Struct(">BI")  # an act or an outcome, and the length of what follows
_MILLISECONDS = struct.Struct(">I")
_LARGEST = (1 << 16) + (MOST_BITS >> 3)
_LONGEST_REASON = 500


class _Act(IntEnum):
    CALL, QUESTION, JOB, ANNOUNCE, DELIVER, WAIT = range(6)


class _RelayOutcome(IntEnum):
    DONE, FAILED, UNWELCOME = range(3)


@final
class SocketRoad:
    """The road of an agent whose network is in another process.

    Parameters
    ----------
    path
        The socket on which `Relay` listens, or the door on which the agent does.
    """

    def __init__(
        self, path: "str | os.PathLike[str] | Door", timeout: float = TIMEOUT_SECONDS
    ) -> None:
        self._path, self._timeout = path, timeout
        self._link: socket.socket | None = None

    def call(self, call: Call) -> Offers:
        """Ask for the open rounds and for places in them."""
        return Offers.from_bytes(self._asked(_Act.CALL, call.to_bytes()))

    def question(self, digest: bytes) -> bytes:
        """Return the question with this SHA-256, which the caller checks."""
        return self._asked(_Act.QUESTION, digest)

    def signed_job(self, digest: str) -> str:
        """Return the signed job with this SHA-256, which the caller checks."""
        return self._asked(_Act.JOB, digest.encode()).decode("utf-8", "replace")

    def announce(self, said: Announcement) -> bool:
        """Say that an answer is drawn now; return whether the server waits for it."""
        return self._asked(_Act.ANNOUNCE, said.to_bytes()) == b"\1"

    def deliver(self, answer: bytes) -> Acknowledgement:
        """Deliver an answer; return what the server says about it."""
        return Acknowledgement.from_bytes(self._asked(_Act.DELIVER, answer))

    def wait(self, seconds: float, stop: threading.Event) -> bool:
        """Wait, or until the network process has heard that there is something to do."""
        until = time.monotonic() + seconds
        while not stop.is_set() and (left := until - time.monotonic()) > 0:
            try:
                if self._asked(_Act.WAIT, _MILLISECONDS.pack(int(1000 * min(left, WAIT_SECONDS)))):
                    return True
            except RoadError:
                stop.wait(min(left, WAIT_SECONDS))
        return False

    def close(self) -> None:
        """Close the socket."""
        if self._link is not None:
            self._link.close()
        self._link = None

    def _asked(self, act: _Act, body: bytes) -> bytes:
        try:
            if self._link is None:
                self._link = self._connected()
                self._link.settimeout(self._timeout)
            _send(self._link, act, body)
            number, reply = _receive(self._link)
            outcome = _RelayOutcome(number)
        except (OSError, ValueError) as error:
            self.close()
            raise RoadError(f"the network process {self._path} does not answer: {error}") from None
        if outcome is _RelayOutcome.DONE:
            return reply
        kind = UnwelcomeError if outcome is _RelayOutcome.UNWELCOME else RoadError
        raise kind(reply[:_LONGEST_REASON].decode("utf-8", "replace"))

    def _connected(self) -> socket.socket:
        if isinstance(self._path, Door):
            return self._path.visitor()
        link = socket.socket(socket.AF_UNIX)
        link.connect(str(self._path))
        return link


@final
class Door:
    """A Unix socket on which an agent waits for its network: each connection is a road.

    The socket is open to its user and group alone (mode 660).
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path, self._socket = Path(path), _listening(Path(path))
        self._visitor: socket.socket | None = None

    def wait(self, seconds: float) -> bool:
        """Return whether somebody has connected within some seconds."""
        self._socket.settimeout(seconds)
        with contextlib.suppress(TimeoutError):
            self._visitor, _ = self._socket.accept()
        return self._visitor is not None

    def visitor(self) -> socket.socket:
        """Return the connection for which `wait` has waited, once."""
        found, self._visitor = self._visitor, None
        if found is None:
            raise ConnectionError("it has closed the connection")
        return found

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def __str__(self) -> str:
        return str(self._path)


@final
class Relay:
    """Listens on a Unix socket, and passes on what it hears over a road.

    The socket is open to its user and group alone (mode 660).
    """

    def __init__(self, road: Road, path: str | os.PathLike[str]) -> None:
        self._road, self._path = road, Path(path)
        self._turn = threading.Lock()  # one request at a time
        self._closed = False
        self._links: set[socket.socket] = set()
        self._socket = _listening(self._path)

    def serve(self) -> None:
        """Pass on requests until the relay is closed."""
        while not self._closed:
            try:
                link, _ = self._socket.accept()
            except OSError:
                continue
            threading.Thread(target=self._handle, args=(link,), daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._socket.close()
        for link in self._links.copy():
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
        self._path.unlink(missing_ok=True)

    def _handle(self, link: socket.socket) -> None:
        self._links.add(link)
        with link:
            pass_on(link, self._road, self._turn)
        self._links.discard(link)


def pass_on(link: socket.socket, road: Road, turn: AbstractContextManager[object]) -> None:
    """Pass on what an agent asks over a connection, until one of the two closes it."""
    with contextlib.suppress(OSError, ValueError):
        while True:
            number, body = _receive(link)
            with turn:
                outcome, reply = _passed_on(road, _Act(number), body)
            _send(link, outcome, reply)


def _passed_on(road: Road, act: _Act, body: bytes) -> tuple[_RelayOutcome, bytes]:
    try:
        return _RelayOutcome.DONE, _PASS[act](road, body)
    except UnwelcomeError as error:
        return _RelayOutcome.UNWELCOME, str(error).encode()
    except (OSError, WireError, ValueError) as error:
        return _RelayOutcome.FAILED, str(error).encode()


def _listening(path: Path) -> socket.socket:
    """Return a socket that listens on a path, for its user and group alone."""
    listening = socket.socket(socket.AF_UNIX)
    try:
        path.unlink(missing_ok=True)
        listening.bind(str(path))
        path.chmod(0o660)
        listening.listen(4)
    except OSError as error:
        listening.close()
        raise DomainError(f"cannot listen on {path}: {error}.") from None
    return listening


def _waited(road: Road, body: bytes) -> bool:
    if len(body) != _MILLISECONDS.size:
        raise ValueError("a wait has another length")
    [milliseconds] = _MILLISECONDS.unpack(body)
    return road.wait(min(milliseconds / 1000, WAIT_SECONDS), threading.Event())


_PASS: dict[_Act, Callable[[Road, bytes], bytes]] = {
    _Act.CALL: lambda road, body: road.call(Call.from_bytes(body)).to_bytes(),
    _Act.QUESTION: lambda road, body: road.question(body),
    _Act.JOB: lambda road, body: road.signed_job(body.decode()).encode(),
    _Act.ANNOUNCE: lambda road, body: bytes([road.announce(Announcement.from_bytes(body))]),
    _Act.DELIVER: lambda road, body: road.deliver(body).to_bytes(),
    _Act.WAIT: lambda road, body: b"\1" * _waited(road, body),
}


def _send(link: socket.socket, number: int, body: bytes) -> None:
    link.sendall(_HEAD.pack(number, len(body)) + body)


def _receive(link: socket.socket) -> tuple[int, bytes]:
    number, length = _HEAD.unpack(_exactly(link, _HEAD.size))
    if length > _LARGEST:
        raise ValueError(f"a message of {length} bytes is too long")
    return number, _exactly(link, length)


def _exactly(link: socket.socket, length: int) -> bytes:
    parts: list[bytes] = []
    while length:
        part = link.recv(min(length, 1 << 16))
        if not part:
            raise ConnectionError("it has closed the connection")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
