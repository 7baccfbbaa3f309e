"""A vault that listens: it answers questions on a socket, at times that reveal nothing.

Each connection brings one question and gets one answer. The length of the answer depends only on
the question. The answer is sent at a multiple of a public tick after the question has arrived. If
it is not ready by the deadline, it is stored, and sent when the question comes again. The reason
for a refusal is not sent to anybody: it is in the owner's log, once.
"""

import hmac
import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotReady
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import final

from fedldp.errors import DomainError, FedLDPError
from fedldp.fleet import protocol, sockets
from fedldp.fleet.logs import one_line
from fedldp.fleet.protocol import Answer, Question
from fedldp.fleet.sockets import (
    NOT_READY,
    Address,
    announced,
    exactly,
    left,
    receive,
    send,
)
from fedldp.fleet.vault import record
from fedldp.fleet.vault.record import Record
from fedldp.fleet.vault.vault import Vault
from fedldp.fleet.versions import refusal
from fedldp.learn import computations

TICK = 0.05  # seconds
DEADLINE = 30.0

_CONNECTIONS = 64  # at a time; further ones wait
_QUESTIONS = 8 * protocol.MOST_BYTES  # bytes of all questions at a time
_ANSWERS = protocol.MOST_BITS // 2  # bytes of all answers at a time: enough for several large ones
_PATIENCE = 10.0  # seconds for a whole question to arrive
_FIRST = 2.0  # seconds for a token: strangers must not keep a connection open
_REASONS = 1000  # that are logged in a day: strangers must not fill the disk
_DONE = 100_000  # answers that are logged in a day: each costs vehicles some of their caps
_DAY = 86_400.0  # seconds
_LONGEST = 500  # characters of a reason

_log = logging.getLogger("fedldp.fleet")


@final
class Room:
    """The number of bytes that all connections together may hold in memory."""

    def __init__(self, free: int) -> None:
        self.free = free
        self._changed = threading.Condition()

    def take(self, count: int, end: float) -> bool:
        """Wait until there is room for `count` bytes; return False once the clock shows `end`."""
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

    A Unix socket is open to its user and group (mode 660). On TCP, a client must first send a
    token.
    """

    def __init__(
        self,
        vault: Vault,
        address: Address,
        tick: float = TICK,
        deadline: float = DEADLINE,
        counts: Record | None = None,
    ) -> None:
        if not 0 < tick <= deadline < float("inf"):
            raise DomainError(
                "tick and deadline must be seconds with 0 < tick <= deadline; "
                f"got {tick} and {deadline}."
            )
        self._vault, self._address = vault, address
        self._tick, self._deadline = tick, deadline
        self._record = Record() if counts is None else counts
        self._record.hold(len(vault))
        self._reasons, self._troubles, self._done = Once(_REASONS), Once(_REASONS), Once(_DONE)
        self._slots = threading.Semaphore(_CONNECTIONS)
        self._questions, self._answers = Room(_QUESTIONS), Room(_ANSWERS)
        self._reading = threading.Lock()  # an invalid question may take much memory to check
        # One worker without a queue: the ledger admits one at a time. Connections wait in their own
        # threads, until their deadline.
        self._turn = threading.Lock()
        self._worker = ThreadPoolExecutor(1)
        self._closed = False
        self._socket = _bound(address)

    @property
    def vault(self) -> Vault:
        """The vault that answers."""
        return self._vault

    def serve(self) -> None:
        """Answer questions until the listener is closed."""
        while not self._closed:
            self._slots.acquire()
            try:
                link, _ = self._socket.accept()
            except OSError:  # closed, or too many open files
                self._slots.release()
                time.sleep(self._tick)
                continue
            try:
                threading.Thread(target=self._handle, args=(link,), daemon=True).start()
            except RuntimeError as error:  # too many threads
                self._slots.release()
                link.close()
                self._troubles(f"failed: {error}")

    def replace(self, make: Callable[[], Vault]) -> tuple[Vault, Vault]:
        """Answer with another vault from now on; return the old one and the new one.

        It is made between two answers, so that it finds in the ledger what was spent. Questions
        that come meanwhile wait, until their deadline.
        """
        with self._turn:
            before, self._vault = self._vault, make()
            self._record.hold(len(self._vault))
            return before, self._vault

    def close(self) -> None:
        """Stop listening. An answer in progress is still recorded, and sent if asked again."""
        self._closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._socket.close()
        self._worker.shutdown()
        if self._address.path:
            Path(self._address.path).unlink(missing_ok=True)

    def _handle(self, link: socket.socket) -> None:
        with suppress(OSError), link, ExitStack() as held:
            held.callback(self._slots.release)
            try:
                if not self._speaks(link):
                    return
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
                self._reasons(f"a connection was dropped: {error}")

    def _speaks(self, link: socket.socket) -> bool:
        """Return whether a client sends anything: some only look whether the vault listens."""
        link.settimeout(_FIRST if self._address.token else _PATIENCE)
        return bool(link.recv(1, socket.MSG_PEEK))

    def _question(self, link: socket.socket, held: ExitStack) -> bytes:
        now, token = time.monotonic(), self._address.token
        if token and not hmac.compare_digest(receive(link, 1 << 10, now + _FIRST), token):
            raise DomainError("the client sent a wrong token.")
        length = announced(link, protocol.MOST_BYTES, now + _PATIENCE)
        if not self._questions.take(length, now + _PATIENCE):
            raise TimeoutError("other questions use all the memory for questions.")
        held.callback(self._questions.give, length)
        return exactly(link, length, now + _PATIENCE)

    def _read(self, data: bytes, end: float) -> Question | bytes:
        """Return the question or, if it is invalid or there is no time, the answer to send.

        Nothing in it is parsed before it is certain that the operator has signed it.
        """
        if not self._reading.acquire(timeout=left(end)):
            self._not_ready(None, "other questions are being checked")
            return NOT_READY
        try:
            question = Question.from_bytes(data)
            stranger = self._unsigned(question)
            if stranger is None:
                question.check()
                if question.model:
                    computations.check_format(question.model)
        except FedLDPError as error:
            self._reasons(f"refused: {error}")
            self._record.count(record.REFUSED, None, _shortened(str(error)))
            return refusal(data, "vault", computations.FORMATS)
        finally:
            self._reading.release()
        if stranger is None:
            return question
        self._refused(question, stranger)
        try:
            self._vault.note_unsigned(question)
        except OSError as error:
            self._troubles(f"failed: {error!r}", _extra(question))
        return Answer.unread(question)

    def _unsigned(self, question: Question) -> FedLDPError | None:
        """Return why a question is one of a stranger, or None if the operator has signed it."""
        try:
            self._vault.check_signed(question)
        except FedLDPError as error:
            return error
        return None

    def _refused(self, question: Question, error: FedLDPError) -> None:
        """Log and count why a question is refused."""
        same = f"{question.job}: {error}"
        self._reasons(f"refused: {question.request}: {error}", _extra(question), same=same)
        self._record.count(record.REFUSED, question, _shortened(str(error)))

    def _answer(self, question: Question, end: float, held: ExitStack) -> Answer:
        """Return the answer to a question; vehicles that are not ready by `end` are silent."""
        if not self._answers.take(question.size, end):
            return self._silent(question, "other answers use all the memory")
        answer = self._result(question, end)
        # Zeros take no memory. Records do until they are sent, even if the client is slow.
        self._answers.give(question.size - len(answer.records))
        held.callback(self._answers.give, len(answer.records))
        return answer

    def _result(self, question: Question, end: float) -> Answer:
        if not self._turn.acquire(timeout=left(end)):
            return self._silent(question, "other questions are being answered")
        try:
            work = self._worker.submit(self._respond, question)
        except RuntimeError:  # closed
            self._turn.release()
            return self._silent(question, "the vault ends")
        work.add_done_callback(lambda _: self._turn.release())
        try:
            answer, missing = work.result(left(end))
        except NotReady:  # it will be recorded, and sent if asked again
            return self._silent(question, "the answer will be stored")
        except FedLDPError as error:
            self._refused(question, error)
            return Answer.of(question)
        except Exception as error:  # a full disk, for example: it may succeed when asked again
            self._troubles(f"failed: {error!r}", _extra(question))
            self._record.count(record.NOT_READY, question, f"failed: {type(error).__name__}")
            return Answer.of(question, silent=question.n)
        self._tell(question, answer.answered, missing)
        return answer

    def _respond(self, question: Question) -> tuple[Answer, str]:
        """Return the answer, and which vehicles could not answer: empty if that was said before."""
        vault = self._vault
        return vault.answer(question), vault.missing

    def _tell(self, question: Question, answered: int, missing: str) -> None:
        """Log and count how many vehicles have answered a question."""
        said = f"of {question.n} vehicles that were asked for, {answered} answered."
        extra = _extra(question) | {"answered": answered}
        if answered == question.n:
            self._done(f"{question.request}: {said}", extra, logging.INFO)
        elif missing:
            said += f" This vault has no others that may answer: {missing}."
            self._reasons(f"{question.request}: {said}", extra, same=f"{question.job}: {said}")
        outcome = record.ANSWERED if answered else record.REFUSED
        self._record.count(outcome, question, "" if answered else said)

    def _silent(self, question: Question, why: str) -> Answer:
        self._not_ready(question, why)
        return Answer.of(question, silent=question.n)

    def _not_ready(self, question: Question | None, why: str) -> None:
        self._troubles(f"not ready in time: {why}", _extra(question))
        self._record.count(record.NOT_READY, question, f"not ready in time: {why}")


@final
class Once:
    """Logs each event once a day, and at most `most` of them, so that nobody can fill the disk.

    Those who want the others too see them at the level DEBUG, counted.
    """

    def __init__(self, most: int) -> None:
        self._most, self._counts, self._since = most, Counter[str](), time.monotonic()

    def __call__(
        self,
        text: str,
        extra: Mapping[str, object] | None = None,
        level: int = logging.WARNING,
        same: str | None = None,
    ) -> None:
        """Log a text, unless the same was logged before.

        Texts of one event have the same `same`, by default the text itself.
        """
        if time.monotonic() - self._since > _DAY:
            self._counts, self._since = Counter(), time.monotonic()
        text, event = _shortened(text), _shortened(text if same is None else same)
        if event not in self._counts and len(self._counts) > self._most:
            return
        if event not in self._counts and len(self._counts) == self._most:
            text, extra = "there are too many reasons to log: no more are logged today.", None
            event = text
        self._counts[event] += 1
        if (count := self._counts[event]) == 1:
            _log.log(level, "%s", text, extra=extra)
        else:
            _log.debug("%s (%d times so far)", text, count, extra=extra)


def _extra(question: Question | None) -> dict[str, object]:
    if question is None:
        return {}
    return {"job": question.job, "round": question.round, "n": question.n}


def _shortened(text: str) -> str:
    """Return a text in one line, even if a stranger has put line breaks into it."""
    return one_line(text[:_LONGEST])


def _bound(address: Address) -> socket.socket:
    if not address.path:
        return socket.create_server((address.host, address.port))
    return sockets.listen(Path(address.path), "write another path into vault.toml")
