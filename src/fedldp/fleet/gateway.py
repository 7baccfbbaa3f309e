"""The gateway: passes a question on to its vaults, and their reports back, in one batch.

It keeps nothing. A vault that cannot be reached is asked the same again until the deadline; as the
same question gets the same answer, nothing is lost or spent by it.
"""

import socket
import struct
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final
from urllib.parse import urlsplit

from fedldp.errors import DomainError, FedLDPError
from fedldp.fleet import wire
from fedldp.fleet.wire import Batch, Question

REFUSED = bytes(wire.HEADER)  # what answers a question that is none
LENGTH = struct.Struct(">I")

_PAUSE = 0.2  # seconds between two tries
_LONGEST = 5.0


@final
@dataclass(frozen=True)
class Address:
    """Where a vault listens: the path of a Unix socket, or tcp://host:port with a token.

    >>> Address.of("/run/fedldp/vault.sock").path
    '/run/fedldp/vault.sock'
    """

    path: str = ""
    host: str = ""
    port: int = 0
    token: bytes = b""  # that a vault on TCP wants to see first

    def __post_init__(self) -> None:
        if bool(self.path) == bool(self.host) or (self.host and not (self.port and self.token)):
            raise DomainError("a vault has a path, or a host, a port and a token.")

    @classmethod
    def of(cls, text: str, token: str | Path | None = None) -> "Address":
        """Read an address, and the token from its file."""
        secret = Path(token).read_bytes().strip() if token else b""
        if not text.startswith("tcp://"):
            if not text or len(text.encode()) > 107:
                raise DomainError(
                    f"the path of a Unix socket has 1 to 107 bytes; got {text!r:.200}. "
                    "Choose a shorter folder."
                )
            return cls(path=text)
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if not host or not port or text not in (f"tcp://{host}:{port}", f"tcp://[{host}]:{port}"):
            raise DomainError(f"need an address such as tcp://host:9400; got {text!r:.200}.")
        if not secret:
            raise DomainError(f"{text} needs a token: name a file that holds one.")
        return cls(host=host, port=port, token=secret)

    def connect(self, timeout: float) -> socket.socket:
        """Open a connection, and show the token."""
        if self.path:
            link = socket.socket(socket.AF_UNIX)
        else:
            link = socket.create_connection((self.host, self.port), timeout)
        try:
            link.settimeout(timeout)
            if self.path:
                link.connect(self.path)
            else:
                link.sendall(LENGTH.pack(len(self.token)) + self.token)
        except BaseException:
            link.close()
            raise
        return link


def relay(data: bytes, vaults: Sequence[Address], deadline: float) -> bytes:
    """Return the batch that answers a question: its length depends on the question alone.

    Records of the vaults come in one order, whoever sent them. Those of vaults that say nothing
    within so many seconds are silent.
    """
    if not vaults:
        raise DomainError("a gateway needs a vault at least.")
    try:
        question = Question.from_bytes(data)
        question.check()
    except FedLDPError:
        return REFUSED
    end = time.monotonic() + deadline
    parts = shares(question.n, len(vaults), question.round)
    asked = [(vault, n) for vault, n in zip(vaults, parts, strict=True) if n]
    # A thread for each: those that wait for vaults that are away must not keep others waiting.
    with ThreadPoolExecutor(len(asked)) as pool:
        batches = list(
            pool.map(lambda one: _insist(one[0], replace(question, n=one[1]), end), asked)
        )
    rows = [row for batch in batches for row in batch.rows()]
    return Batch.of(question, rows, sum(batch.silent for batch in batches)).to_bytes()


def shares(n: int, vaults: int, round_: int) -> list[int]:
    """Divide n among the vaults, in turn: the next round begins where this one ends.

    >>> shares(5, 3, 1), shares(5, 3, 2)
    ([2, 2, 1], [2, 1, 2])
    """
    first = n * (round_ - 1)
    return [
        (first + n - i + vaults - 1) // vaults - (first - i + vaults - 1) // vaults
        for i in range(vaults)
    ]


def _insist(vault: Address, question: Question, end: float) -> Batch:
    """Ask a vault until it answers or the time is over."""
    pause = _PAUSE
    while time.monotonic() < end:
        try:
            batch = ask(vault, question, end)
            if not batch.silent:
                return batch
        except (OSError, FedLDPError):
            pass
        time.sleep(max(0.0, min(pause, end - time.monotonic())))
        pause = min(2 * pause, _LONGEST)
    return Batch.of(question, silent=question.n)


def ask(vault: Address, question: Question, end: float) -> Batch:
    """Put a question to a vault once, and wait for its answer until the clock shows `end`."""
    with vault.connect(_left(end)) as link:
        data = question.to_bytes()
        link.settimeout(_left(end))
        link.sendall(LENGTH.pack(len(data)) + data)
        answer = receive(link, question.size, end)
    if answer == REFUSED:
        return Batch.of(question)
    return Batch.from_bytes(answer, question)


def receive(link: socket.socket, most: int, end: float) -> bytes:
    """Return the next message on a connection, of its length and so many bytes."""
    (length,) = LENGTH.unpack(_exactly(link, LENGTH.size, end))
    if length > most:
        raise DomainError(f"a message of {length} bytes is too long.")
    return _exactly(link, length, end)


def _left(end: float) -> float:
    return max(0.001, end - time.monotonic())


def _exactly(link: socket.socket, count: int, end: float) -> bytes:
    found = bytearray()
    while len(found) < count:
        if time.monotonic() > end:
            raise TimeoutError("a message took too long.")
        link.settimeout(_left(end))
        piece = link.recv(min(count - len(found), 1 << 16))
        if not piece:
            raise ConnectionError("the connection was closed in the midst of a message.")
        found += piece
    return bytes(found)
