"""The socket between a gateway and a vault: addresses, and messages preceded by their length."""

import os
import socket
import stat
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import final
from urllib.parse import urlsplit

from fedldp.errors import DomainError
from fedldp.fleet import protocol

REFUSED = bytes(protocol.HEADER)  # the answer to an invalid question
NOT_READY = b""  # the answer to a question that a vault had no time to read
LENGTH = struct.Struct(">I")
_BLOCK = 1 << 16  # bytes sent at a time
_BACKLOG = 128  # connections that wait to be accepted


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
    token: bytes = b""  # a secret that a vault on TCP expects first

    def __post_init__(self) -> None:
        if bool(self.path) == bool(self.host) or (self.host and not (self.port and self.token)):
            raise DomainError(
                "the address of a vault must be either a path, or a host, a port and a token; "
                f"got path {self.path!r}, host {self.host!r}, port {self.port!r} and "
                f"{'a' if self.token else 'no'} token."
            )

    def __str__(self) -> str:
        return self.path or f"tcp://{self.host}:{self.port}"

    @classmethod
    def of(cls, text: str, token: str | Path | None = None) -> "Address":
        """Read an address, and the token from its file."""
        secret = Path(token).read_bytes().strip() if token else b""
        if not text.startswith("tcp://"):
            if not text or len(text.encode()) > 107:
                raise DomainError(
                    f"the path of a Unix socket must have 1 to 107 bytes; got {text!r:.200}. "
                    "Choose a folder with a shorter path."
                )
            return cls(path=text)
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if not host or not port or text not in (f"tcp://{host}:{port}", f"tcp://[{host}]:{port}"):
            raise DomainError(f"expected an address such as tcp://host:9400; got {text!r:.200}.")
        if not secret:
            raise DomainError(f"{text} needs a token: give the name of a file that contains one.")
        return cls(host=host, port=port, token=secret)

    def connect(self, timeout: float) -> socket.socket:
        """Open a connection and send the token, if there is one."""
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


def listen(path: Path, otherwise: str, *, group: bool = True) -> socket.socket:
    """Return a Unix socket that listens, open to its user and, if `group` is true, to its group.

    `otherwise` says what to do if there cannot be one at this path.
    """
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise DomainError(f"{path} exists and is not a socket: {otherwise}.")
        with socket.socket(socket.AF_UNIX) as probe, suppress(ConnectionRefusedError):
            probe.connect(str(path))
            raise DomainError(f"another process listens on {path}: stop it, or {otherwise}.")
        path.unlink()  # left behind by a process that was killed
    if not path.parent.is_dir():
        raise DomainError(
            f"cannot listen on {path}: its folder does not exist. The systemd units create it; "
            f"without systemd, create it yourself, or {otherwise}."
        )
    listening = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o117 if group else 0o177)  # so that the mode is right from the first moment on
    try:
        listening.bind(str(path))
    except OSError:
        listening.close()
        raise
    finally:
        os.umask(mask)
    listening.listen(_BACKLOG)
    return listening


def receive(link: socket.socket, most: int, end: float) -> bytes:
    """Return the next message on a connection: a length, followed by this many bytes."""
    return exactly(link, announced(link, most, end), end)


def announced(link: socket.socket, most: int, end: float) -> int:
    """Return the length of the next message, which precedes it."""
    (length,) = LENGTH.unpack(exactly(link, LENGTH.size, end))
    if length > most:
        raise DomainError(f"a message must have at most {most} bytes; got {length}.")
    return int(length)


def send(link: socket.socket, size: int, pieces: Iterable[bytes | memoryview], end: float) -> None:
    """Send a message of `size` bytes, given in pieces, until the clock shows `end`.

    It is sent in blocks of equal length, so that an observer cannot see where a piece ends.
    """
    for block in _blocks(chain((LENGTH.pack(size),), pieces)):
        if time.monotonic() > end:
            raise TimeoutError("a message took too long.")
        link.settimeout(left(end))
        link.sendall(block)


def _blocks(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    block = b""
    for piece in pieces:
        view = memoryview(piece)
        while len(view):
            taken = view[: _BLOCK - len(block)]
            block += taken
            view = view[len(taken) :]
            if len(block) == _BLOCK:
                yield block
                block = b""
    if block:
        yield block


def left(end: float) -> float:
    """Return the seconds until the clock shows `end`: at least a millisecond."""
    return max(0.001, end - time.monotonic())


def exactly(link: socket.socket, count: int, end: float) -> bytes:
    """Return exactly `count` bytes from a connection."""
    found = bytearray()
    while len(found) < count:
        if time.monotonic() > end:
            raise TimeoutError("a message took too long.")
        link.settimeout(left(end))
        piece = link.recv(min(count - len(found), 1 << 16))
        if not piece:
            raise ConnectionError("the connection was closed in the middle of a message.")
        found += piece
    return bytes(found)
