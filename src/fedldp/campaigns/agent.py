"""A vehicle that is only sometimes online: it answers campaigns until they are acknowledged.

When it connects and what it sends depends on the clock, on random pauses and on campaigns, never on
the data. Only its own log shows why it does not answer.

The name under which a vehicle connects to the broker is the identifier of the answer that it sends.
So the broker can let it read its own acknowledgement alone, and no name returns in another job.
"""

import logging
import random
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import NamedTuple, final

from fedldp.budget.vehicle import new_nonce
from fedldp.campaigns.answers import Answer, Answers, Identifier
from fedldp.campaigns.campaign import all_campaigns
from fedldp.campaigns.transport import Connect, Connection, Sleep
from fedldp.errors import FedLDPError

EVERY = 900.0  # seconds between two looks for campaigns, and between two attempts at the end
RETRY = 30.0  # seconds until an answer is sent again: then twice as long each time
PATIENCE = 10.0  # seconds to wait for an acknowledgement
SILENCE = 2.0  # seconds: if no further campaign arrives for so long, all have been read
TICK = 1.0  # an answer leaves a multiple of this many seconds after the campaign has arrived
MOST = 100  # campaigns that are read at once
MOST_BYTES = 1 << 23  # of all of them together: a hostile broker must not fill the memory

_SYSTEM = random.SystemRandom()
_log = logging.getLogger("fedldp.fleet.campaigns")


class Visit(NamedTuple):
    """What came of one visit to the broker: nothing here depends on the data."""

    reached: bool  # whether the broker could be used all the time
    pending: int  # answers that are not acknowledged yet


@final
class Agent:
    """Looks for campaigns and delivers answers.

    Parameters
    ----------
    answers
        The vehicle's rules and its ledger.
    connect
        Opens connections with the broker.
    every, retry, patience, silence, tick
        Seconds: see the constants above.
    identity
        As whom the broker knows this vehicle: the last level of the topic of its answers. By
        default it has none.
    """

    def __init__(
        self,
        answers: Answers,
        connect: Connect,
        *,
        every: float = EVERY,
        retry: float = RETRY,
        patience: float = PATIENCE,
        silence: float = SILENCE,
        tick: float = TICK,
        identity: str = "",
    ) -> None:
        self._answers, self._connect = answers, connect
        self._sender = f"/{identity}" if identity else ""
        self._every, self._retry = every, retry
        self._patience, self._silence, self._tick = patience, silence, tick
        self._said: dict[str, str] = {}  # by topic: why it was not answered the last time
        self._failing = False  # whether the broker could not be reached the last time

    def run(self, sleep: Sleep, stopped: Callable[[], bool]) -> None:
        """Look for campaigns and deliver answers until the program should stop."""
        look_at, send_at, pause = 0.0, inf, self._retry
        waiting: list[bytes] = []
        while not stopped():
            if monotonic() >= look_at:
                wait = self._every if self._tried(self.look) else self._retry
                look_at = monotonic() + wait * _SYSTEM.uniform(0.5, 1.5)
            if sent := monotonic() >= send_at:
                self._tried(self.send)
            left = [answer.identifier for answer in self._answers.pending()]
            if sent or left != waiting:
                pause = min(2 * pause, self._every) if left == waiting else self._retry
                send_at = monotonic() + pause * _SYSTEM.uniform(0.5, 1.5) if left else inf
            waiting = left
            sleep(max(0.0, min(look_at, send_at) - monotonic()))

    def visit(self) -> Visit:
        """Look for campaigns and deliver all answers once."""
        tried: list[bytes] = []
        reached = self._tried(lambda: tried.extend(self.look()))
        reached = reached and self._tried(lambda: self.send(tried))
        return Visit(reached, len(self._answers.pending()))

    def look(self) -> list[bytes]:
        """Read the campaigns on the broker, answer them, and send the first answer at once.

        Return the identifiers of the answers that were sent. Others are sent under names of their
        own.
        """
        own = new_nonce()
        unused = iter([own])
        with self._connect(own.hex()) as connection:
            connection.subscribe(all_campaigns(self._answers.fleet))
            campaigns, arrived = self._campaigns(connection), monotonic()
            answers = [
                self._answered(topic, payload, lambda: next(unused, None) or new_nonce())
                for topic, payload in campaigns.items()
            ]
            sent = [each for each in answers if each is not None and each.identifier == own]
            # Neither the data nor what was drawn decide when something is sent or closed.
            until = monotonic() + (arrived - monotonic()) % self._tick
            while (left := until - monotonic()) > 0:
                connection.receive(left)
            for answer in sent:
                self._deliver(connection, answer)
            return [answer.identifier for answer in sent]

    def send(self, but: list[bytes] | None = None) -> None:
        """Send all answers that are not acknowledged, but some."""
        for answer in self._answers.pending():
            if answer.identifier not in (but or []):
                with self._connect(answer.identifier.hex()) as connection:
                    self._deliver(connection, answer)

    def _campaigns(self, connection: Connection) -> dict[str, bytes]:
        """Return what is published, by topic."""
        found: dict[str, bytes] = {}
        room = MOST_BYTES
        for _ in range(MOST):
            message = connection.receive(self._silence)
            if message is None or (room := room - len(message.payload)) < 0:
                break
            connection.acknowledge(message)
            found[message.topic] = message.payload
        return {topic: payload for topic, payload in found.items() if payload}

    def _answered(self, topic: str, payload: bytes, identifier: Identifier) -> Answer | None:
        try:
            answer, why = self._answers.accept(payload, identifier), ""
        except (FedLDPError, OSError) as error:
            answer, why = None, str(error)
        if why and self._said.get(topic) != why:
            _log.warning("did not answer %.100r: %s", topic, why)
        if len(self._said) >= MOST:
            self._said.clear()
        self._said[topic] = why
        return answer

    def _deliver(self, connection: Connection, answer: Answer) -> None:
        """Send an answer, and wait a while for its acknowledgement."""
        connection.subscribe(answer.acknowledgement)
        connection.publish(answer.topic + self._sender, answer.payload, certain=True)
        until = monotonic() + self._patience
        while (left := until - monotonic()) > 0:
            message = connection.receive(left)
            if message is not None:
                connection.acknowledge(message)
                if message.topic == answer.acknowledgement:
                    self._answers.acknowledge(answer)
                    _log.info("job %s, round %d: the answer is counted", answer.job, answer.round)
                    return
        _log.info("job %s, round %d: not acknowledged yet", answer.job, answer.round)

    def _tried(self, what: Callable[[], object]) -> bool:
        """Do something with the broker; return whether that was possible."""
        try:
            what()
        except OSError as error:
            (_log.debug if self._failing else _log.warning)("cannot use the broker: %s", error)
            self._failing = True
            return False
        self._failing = False
        return True
