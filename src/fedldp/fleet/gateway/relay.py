"""The gateway: passes a question on to its vaults, and their reports back, in one batch.

It keeps nothing. A vault that cannot be reached is asked the same again until the deadline; as the
same question gets the same answer, nothing is lost or spent by it.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from fedldp.errors import DomainError, FedLDPError
from fedldp.fleet.protocol import Batch, Question
from fedldp.fleet.sockets import NOT_READY, REFUSED, Address, left, receive, send

DEADLINE = 10.0  # seconds that vaults have to answer: fewer than a server waits to ask again

_PAUSE = 0.2  # seconds between two tries
_LONGEST = 5.0


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
    with vault.connect(left(end)) as link:
        data = question.to_bytes()
        send(link, len(data), [data], end)
        answer = receive(link, question.size, end)
    if answer == NOT_READY:
        return Batch.of(question, silent=question.n)
    if answer == REFUSED:
        return Batch.of(question)
    return Batch.from_bytes(answer, question)
