"""The gateway passes a question on to its vaults, and returns their records in one answer.

It stores no answers. If a vault cannot be reached, the gateway sends the same question again until
the deadline. The same question gets the same answer, so nothing is lost and nothing is spent twice.

A vault that cannot read the question, because it speaks another version of the protocol, is not
asked again: its vehicles are silent, and the gateway's log names it. If there is no other vault,
the gateway tells the server.
"""

import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

from fedldp.errors import DomainError, FedLDPError
from fedldp.fleet.gateway.record import Questions, Reply
from fedldp.fleet.protocol import Answer, Question
from fedldp.fleet.sockets import NOT_READY, REFUSED, Address, left, receive, send
from fedldp.fleet.versions import OtherVersion, Speaks, check, refusal

DEADLINE = 10.0  # seconds for vaults to answer: less than the server waits to ask again

_PAUSE = 0.2  # seconds between two tries
_LONGEST = 5.0

_log = logging.getLogger(__name__)


class _Heard(NamedTuple):
    """The answer of a vault, and its versions if it speaks another one than the question."""

    answer: Answer
    speaks: Speaks | None = None
    why: str = ""  # it is silent


def relay(
    data: bytes,
    vaults: Sequence[Address],
    deadline: float,
    names: Sequence[str] = (),
    questions: Questions | None = None,
) -> bytes:
    """Return the answer to a question. Its length depends only on the question.

    What each vault answered is recorded in `questions`, under its name.

    All records are sorted together, so that they do not reveal which vault sent them. Vehicles of
    vaults that do not answer within `deadline` seconds count as silent. If no vault can read the
    question, or the gateway cannot, the answer says which versions of the protocol they speak.
    """
    if not vaults:
        raise DomainError("a gateway needs at least one vault; got none.")
    try:
        question = Question.from_bytes(data)
        question.check()
    except FedLDPError as error:
        _log.warning("a question cannot be read: %s", error)
        if questions is not None:
            questions.ended(questions.came(None), None, f"it cannot be read: {error}")
        return refusal(data, "gateway")
    end = time.monotonic() + deadline
    passed = None if questions is None else questions.came(question)
    called = names or [str(vault) for vault in vaults]
    parts = zip(vaults, called, shares(question.n, len(vaults), question.round), strict=True)
    asked = [(vault, name, n) for vault, name, n in parts if n]
    # A thread for each: a vault that cannot be reached must not delay the others.
    with ThreadPoolExecutor(len(asked)) as pool:
        heard = list(pool.map(lambda one: _insist(one[0], replace(question, n=one[2]), end), asked))
    if questions is not None and passed is not None:
        pairs = zip(asked, heard, strict=True)
        questions.ended(passed, [_reply(name, n, each) for (_, name, n), each in pairs])
    others = [each.speaks for each in heard if each.speaks is not None]
    if len(others) == len(heard):
        return min(others, key=lambda speaks: speaks.newest).to_bytes()
    return Answer.merged(question, [each.answer for each in heard]).to_bytes()


def _reply(name: str, n: int, heard: _Heard) -> Reply:
    return Reply(name, n, heard.answer.answered, heard.answer.silent, heard.why)


def shares(n: int, vaults: int, round_: int) -> list[int]:
    """Divide n among the vaults in turn; the next round continues where this one ends.

    >>> shares(5, 3, 1), shares(5, 3, 2)
    ([2, 2, 1], [2, 1, 2])
    """
    first = n * (round_ - 1)
    return [
        (first + n - i + vaults - 1) // vaults - (first - i + vaults - 1) // vaults
        for i in range(vaults)
    ]


def _insist(vault: Address, question: Question, end: float) -> _Heard:
    """Ask a vault again and again until it answers or the time is over."""
    pause, nobody, why = _PAUSE, Answer.of(question, silent=question.n), ""
    while time.monotonic() < end:
        try:
            answer = ask(vault, question, end)
            if not answer.silent:
                return _Heard(answer)
            why = "it is not ready"
        except OtherVersion as error:
            _log.warning("the vault %s cannot read question %s: %s", vault, question.request, error)
            return _Heard(nobody, error.speaks, str(error))
        except (OSError, FedLDPError) as error:
            why = str(error)
        time.sleep(max(0.0, min(pause, end - time.monotonic())))
        pause = min(2 * pause, _LONGEST)
    return _Heard(nobody, why=why)


def ask(vault: Address, question: Question, end: float) -> Answer:
    """Ask a vault once, and wait for its answer until the clock shows `end`."""
    with vault.connect(left(end)) as link:
        asked = question.to_bytes()
        send(link, len(asked), [asked], end)
        data = receive(link, question.size, end)
    if data == NOT_READY:
        return Answer.of(question, silent=question.n)
    if data == Answer.unread(question):
        return Answer.of(question)
    if data == REFUSED:  # this gateway can read the question, so the vault is older
        raise OtherVersion(Speaks("vault", 1, 1))
    check(data)
    return Answer.from_bytes(data, question)
