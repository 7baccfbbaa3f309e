"""A vault that listens: it answers questions on a socket, at times that tell nothing.

Each connection brings one question and takes one answer. The length of the answer follows from
the question alone. It leaves at a multiple of a public tick after the question has come; what is
not ready by the deadline is not sent then, but kept for when the question is put again. Nobody is
told why something was refused: that stands in the owner's log, once.
"""

import hmac
import logging
import os
import socket
import stat
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotReady
from contextlib import suppress
from pathlib import Path
from typing import final

from fedldp.errors import DomainError, FedLDPError
from fedldp.fleet import wire
from fedldp.fleet.sockets import LENGTH, REFUSED, Address, receive
from fedldp.fleet.vault import Vault
from fedldp.fleet.wire import Batch, Question

TICK = 0.05  # seconds
DEADLINE = 30.0

_CONNECTIONS = 64  # at a time; further ones wait
_PATIENCE = 10.0  # seconds for a question to come whole
_FIRST = 2.0  # seconds for a token: strangers are not waited for
_REASONS = 1000  # of strangers that are logged, each once: they must not fill the disk

_log = logging.getLogger("fedldp.fleet")


@final
class Listener:
    """Serves a vault until it is closed.

    A Unix socket is for its owner's user and group (mode 660). A socket on TCP wants a token first.
    """

    def __init__(
        self, vault: Vault, address: Address, tick: float = TICK, deadline: float = DEADLINE
    ) -> None:
        if not 0 < tick <= deadline < float("inf"):
            raise DomainError(f"need 0 < tick <= deadline, in seconds; got {tick} and {deadline}.")
        self._vault, self._address = vault, address
        self._tick, self._deadline = tick, deadline
        self._reasons: set[str] = set()
        self._troubles: set[str] = set()
        self._slots = threading.Semaphore(_CONNECTIONS)
        self._reading = threading.Lock()  # a question may take much memory until it is refused
        # One worker: the ledger lets in one at a time, and the others wait for it at their ticks.
        self._worker = ThreadPoolExecutor(1)
        self._closed = False
        self._socket = _bound(address)

    def serve(self) -> None:
        """Answer questions until the listener is closed."""
        while not self._closed:
            self._slots.acquire()
            try:
                link, _ = self._socket.accept()
            except OSError:  # closed, or there are too many open files
                self._slots.release()
                time.sleep(self._tick)
                continue
            try:
                threading.Thread(target=self._handle, args=(link,), daemon=True).start()
            except RuntimeError as error:  # there are too many threads
                self._slots.release()
                link.close()
                self._note(self._troubles, f"failed: {error}")

    def close(self) -> None:
        """Stop listening. What has been asked is still burnt, and answered when asked again."""
        self._closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the one that accepts
        self._socket.close()
        self._worker.shutdown()
        if self._address.path:
            Path(self._address.path).unlink(missing_ok=True)

    def _handle(self, link: socket.socket) -> None:
        with suppress(OSError), link:
            try:
                data = self._question(link)
                arrival = time.monotonic()
                answer = self._answer(data, arrival + self._deadline)
                past = time.monotonic() - arrival
                time.sleep(self._tick - past % self._tick)
                link.settimeout(_PATIENCE)
                link.sendall(LENGTH.pack(len(answer)) + answer)
            except (FedLDPError, OSError) as error:
                self._note(self._reasons, f"a connection was dropped: {error}")
            finally:
                self._slots.release()

    def _question(self, link: socket.socket) -> bytes:
        now, token = time.monotonic(), self._address.token
        if token and not hmac.compare_digest(receive(link, 1 << 10, now + _FIRST), token):
            raise DomainError("the token is wrong.")
        return receive(link, wire.MOST_BYTES, now + _PATIENCE)

    def _answer(self, data: bytes, end: float) -> bytes:
        try:
            with self._reading:
                question = Question.from_bytes(data)
                question.check()
        except FedLDPError as error:
            self._note(self._reasons, f"refused: {error}")
            return REFUSED
        try:
            work = self._worker.submit(self._vault.answer, question)
        except RuntimeError:  # closed
            return Batch.of(question, silent=question.n).to_bytes()
        return self._result(work, question, end).to_bytes()

    def _result(self, work: Future[Batch], question: Question, end: float) -> Batch:
        try:
            batch = work.result(end - time.monotonic())
        except NotReady:
            work.cancel()  # unless it has begun: then it is burnt, and kept
            self._note(self._troubles, "not ready in time")
            return Batch.of(question, silent=question.n)
        except FedLDPError as error:
            self._note(self._reasons, f"refused: {question.request}: {error}")
            return Batch.of(question)
        except Exception as error:  # a full disk, for example: it may be better when asked again
            self._note(self._troubles, f"failed: {error!r}")
            return Batch.of(question, silent=question.n)
        if batch.answered < question.n:
            self._note(
                self._reasons,
                f"{question.request}: of {question.n} vehicles that were asked for, "
                f"{batch.answered} answered. This vault has no others that may still answer: "
                "their cap does not cover it, or they have answered before.",
            )
        return batch

    def _note(self, noted: set[str], reason: str) -> None:
        # In one line, whatever a stranger has put into it.
        reason = "".join(c if c.isprintable() else "?" for c in reason[:500])
        if reason not in noted and len(noted) < _REASONS:
            noted.add(reason)
            _log.warning("%s", reason)


def _bound(address: Address) -> socket.socket:
    if not address.path:
        return socket.create_server((address.host, address.port))
    path = Path(address.path)
    if path.exists():
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise DomainError(f"{path} is there already, and is no socket: choose another path.")
        with socket.socket(socket.AF_UNIX) as probe, suppress(ConnectionRefusedError):
            probe.connect(str(path))
            raise DomainError(f"another vault listens on {path}: stop it, or choose another path.")
        path.unlink()  # left behind by one that was killed
    if not path.parent.is_dir():
        raise DomainError(
            f"cannot listen on {path}: its folder does not exist. systemd makes it for its units; "
            "without systemd make it yourself, or write another path into the configuration."
        )
    listening = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o117)  # nobody may connect before the mode is right
    try:
        listening.bind(str(path))
    finally:
        os.umask(mask)
    listening.listen(128)
    return listening
