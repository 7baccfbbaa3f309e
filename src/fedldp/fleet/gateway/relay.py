"""The gateway passes a question on to its vaults, and returns their records in one answer.

It stores nothing. If a vault cannot be reached, the gateway sends the same question again until the
deadline. The same question gets the same answer, so nothing is lost and nothing is spent twice.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from fedldp.errors import DomainError, FedLDPError
from fedldp.fleet.protocol import Answer, Question
from fedldp.fleet.sockets import NOT_READY, REFUSED, Address, left, receive, send

DEADLINE = 10.0  # seconds for vaults to answer: less than the server waits to ask again

_PAUSE = 0.2  # seconds between two tries
_LONGEST = 5.0


def relay(data: bytes, vaults: Sequence[Address], deadline: float) -> bytes:
    """Return the answer to a question. Its length depends only on the question.

    All records are sorted together, so that they do not reveal which vault sent them. Vehicles of
    vaults that do not answer within `deadline` seconds count as silent.
    """
    if not vaults:
        raise DomainError("a gateway needs at least one vault; got none.")
    try:
        question = Question.from_bytes(data)
        question.check()
    except FedLDPError:
        return REFUSED
    end = time.monotonic() + deadline
    parts = shares(question.n, len(vaults), question.round)
    asked = [(vault, n) for vault, n in zip(vaults, parts, strict=True) if n]
    # A thread for each: a vault that cannot be reached must not delay the others.
    with ThreadPoolExecutor(len(asked)) as pool:
        answers = list(
            pool.map(lambda one: _insist(one[0], replace(question, n=one[1]), end), asked)
        )
    return Answer.merged(question, answers).to_bytes()


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


def _insist(vault: Address, question: Question, end: float) -> Answer:
    """Ask a vault again and again until it answers or the time is over."""
    pause = _PAUSE
    while time.monotonic() < end:
        try:
            answer = ask(vault, question, end)
            if not answer.silent:
                return answer
        except (OSError, FedLDPError):
            pass
        time.sleep(max(0.0, min(pause, end - time.monotonic())))
        pause = min(2 * pause, _LONGEST)
    return Answer.of(question, silent=question.n)


def ask(vault: Address, question: Question, end: float) -> Answer:
    """Ask a vault once, and wait for its answer until the clock shows `end`."""
    with vault.connect(left(end)) as link:
        asked = question.to_bytes()
        send(link, len(asked), [asked], end)
        data = receive(link, question.size, end)
    if data == NOT_READY:
        return Answer.of(question, silent=question.n)
    if data == REFUSED:
        return Answer.of(question)
    return Answer.from_bytes(data, question)
