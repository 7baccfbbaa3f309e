"""The gateway: passes a question on to its vaults, and their records back, in one answer.

It keeps nothing. A vault that cannot be reached is asked the same again until the deadline; as the
same question gets the same answer, nothing is lost or spent by it.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from fedldp.errors import DomainError, FedLDPError
from fedldp.fleet.protocol import Answer, Question
from fedldp.fleet.sockets import NOT_READY, REFUSED, Address, left, receive, send

DEADLINE = 10.0  # seconds that vaults have to answer: fewer than a server waits to ask again

_PAUSE = 0.2  # seconds between two tries
_LONGEST = 5.0


def relay(data: bytes, vaults: Sequence[Address], deadline: float) -> bytes:
    """Return the answer to a question: its length depends on the question alone.

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
        answers = list(
            pool.map(lambda one: _insist(one[0], replace(question, n=one[1]), end), asked)
        )
    return Answer.merged(question, answers).to_bytes()


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


def _insist(vault: Address, question: Question, end: float) -> Answer:
    """Ask a vault until it answers or the time is over."""
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
    """Put a question to a vault once, and wait for its answer until the clock shows `end`."""
    with vault.connect(left(end)) as link:
        asked = question.to_bytes()
        send(link, len(asked), [asked], end)
        data = receive(link, question.size, end)
    if data == NOT_READY:
        return Answer.of(question, silent=question.n)
    if data == REFUSED:
        return Answer.of(question)
    return Answer.from_bytes(data, question)
