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
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotReady
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import final

from fedldp.errors import DomainError, FedLDPError
from fedldp.fleet import protocol
from fedldp.fleet.protocol import Answer, Question
from fedldp.fleet.sockets import (
    NOT_READY,
    REFUSED,
    Address,
    announced,
    exactly,
    left,
    receive,
    send,
)
from fedldp.fleet.vault.vault import Vault

TICK = 0.05  # seconds
DEADLINE = 30.0

_CONNECTIONS = 64  # at a time; further ones wait
_QUESTIONS = 8 * protocol.MOST_BYTES  # bytes of all questions at a time
_ANSWERS = (
    protocol.MOST_BITS // 2
)  # bytes of all answers at a time: some of the largest, and small ones
_PATIENCE = 10.0  # seconds for a question to come whole
_FIRST = 2.0  # seconds for a token: strangers are not waited for
_REASONS = 1000  # of strangers that are logged, each once: they must not fill the disk

_log = logging.getLogger("fedldp.fleet")


@final
class Room:
    """Bytes that all connections together may hold."""

    def __init__(self, free: int) -> None:
        self.free = free
        self._changed = threading.Condition()

    def take(self, count: int, end: float) -> bool:
        """Wait until there is room for so many bytes; return False if the clock shows `end`."""
        with self._changed:
            found = self._changed.wait_for(lambda: self.free >= count, left(end))
            self.free -= count * found
        return found

    def give(self, count: int) -> None:
        """Give back what was taken."""
        with self._changed:
            self.free += count
            self._changed.notify_all()


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
        self._questions, self._answers = Room(_QUESTIONS), Room(_ANSWERS)
        self._reading = threading.Lock()  # a question may take much memory until it is refused
        # One worker, and nothing waits for it in a queue: the ledger lets in one at a time. Whoever
        # waits does so in its own thread, until its deadline.
        self._turn = threading.Lock()
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
        """Stop listening. What is being answered is still burnt, and kept for the next time."""
        self._closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the one that accepts
        self._socket.close()
        self._worker.shutdown()
        if self._address.path:
            Path(self._address.path).unlink(missing_ok=True)

    def _handle(self, link: socket.socket) -> None:
        with suppress(OSError), link, ExitStack() as held:
            held.callback(self._slots.release)
            try:
                data = self._question(link, held)
                arrival = time.monotonic()
                question = self._read(data, arrival + self._deadline)
                del data
                if isinstance(question, Question):
                    answer = self._answer(question, arrival + self._deadline, held)
                    size, pieces = answer.size, answer.pieces()
                else:
                    size, pieces = len(question), iter([question])
                past = time.monotonic() - arrival
                time.sleep(self._tick - past % self._tick)
                send(link, size, pieces, time.monotonic() + _PATIENCE)
            except (FedLDPError, OSError) as error:
                self._note(self._reasons, f"a connection was dropped: {error}")

    def _question(self, link: socket.socket, held: ExitStack) -> bytes:
        now, token = time.monotonic(), self._address.token
        if token and not hmac.compare_digest(receive(link, 1 << 10, now + _FIRST), token):
            raise DomainError("the token is wrong.")
        length = announced(link, protocol.MOST_BYTES, now + _PATIENCE)
        if not self._questions.take(length, now + _PATIENCE):
            raise TimeoutError("other questions take all the memory there is for them.")
        held.callback(self._questions.give, length)
        return exactly(link, length, now + _PATIENCE)

    def _read(self, data: bytes, end: float) -> Question | bytes:
        """Return a question, or what to answer where there is none or no time to read it."""
        if not self._reading.acquire(timeout=left(end)):
            self._note(self._troubles, "not ready in time: other questions take long to check")
            return NOT_READY
        try:
            question = Question.from_bytes(data)
            question.check()
        except FedLDPError as error:
            self._note(self._reasons, f"refused: {error}")
            return REFUSED
        finally:
            self._reading.release()
        return question

    def _answer(self, question: Question, end: float, held: ExitStack) -> Answer:
        """Return the answer to a question; what is not ready by `end` is silent."""
        if not self._answers.take(question.size, end):
            self._note(self._troubles, "not ready in time: other answers take all the memory")
            return Answer.of(question, silent=question.n)
        answer = self._result(question, end)
        # Zeros take no memory. What was not sent yet does, however slowly it is taken.
        self._answers.give(question.size - len(answer.records))
        held.callback(self._answers.give, len(answer.records))
        return answer

    def _result(self, question: Question, end: float) -> Answer:
        if not self._turn.acquire(timeout=left(end)):
            self._note(self._troubles, "not ready in time")
            return Answer.of(question, silent=question.n)
        try:
            work = self._worker.submit(self._vault.answer, question)
        except RuntimeError:  # closed
            self._turn.release()
            return Answer.of(question, silent=question.n)
        work.add_done_callback(lambda _: self._turn.release())
        try:
            answer = work.result(left(end))
        except NotReady:  # it is burnt, and kept
            self._note(self._troubles, "not ready in time")
            return Answer.of(question, silent=question.n)
        except FedLDPError as error:
            self._note(self._reasons, f"refused: {question.request}: {error}")
            return Answer.of(question)
        except Exception as error:  # a full disk, for example: it may be better when asked again
            self._note(self._troubles, f"failed: {error!r}")
            return Answer.of(question, silent=question.n)
        if answer.answered < question.n:
            self._note(
                self._reasons,
                f"{question.request}: of {question.n} vehicles that were asked for, "
                f"{answer.answered} answered. This vault has no others that may still answer: "
                "their cap does not cover it, or they have answered before.",
            )
        return answer

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
