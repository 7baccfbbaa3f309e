"""A counter: receives the answers of a round, stores them, and then acknowledges them.

Several counters share the work, on one machine or on many; the broker delivers each answer to one
of them. A counter acknowledges an answer to the vehicle only after its own commit. To the broker it
acknowledges every message, also an invalid one, which would otherwise come again for ever.

A broker may forget everything when it is restarted, so a counter subscribes anew on every
connection, and publishes the campaign if the broker does not have it.
"""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from math import inf
from time import monotonic
from typing import final

from fedldp._internal.text import counted
from fedldp.campaigns.campaign import IDENTIFIER, is_same, packed, utc_now
from fedldp.campaigns.store import Finished, Store
from fedldp.campaigns.transport import Connect, Connection, Message, Sleep

GRACE = 60.0  # seconds after the deadline in which answers are still taken: clocks differ
# Seconds for which the broker keeps messages for a counter that is restarted. If the counter never
# comes back, the broker gives it some of the answers for so long, and vehicles send them again.
KEPT = 60
MOST = 1000  # answers in a commit
SILENCE = 2.0  # seconds after which a broker that has the campaign would have delivered it

_PAUSE = 0.02  # seconds without another answer after which a commit is made
_IDLE = 1.0  # seconds to wait for an answer
_RETRY, _LONGEST = 0.5, 30.0  # seconds between two attempts to connect
_SAID = 60.0  # seconds between two lines of the log that say how many answers there are

_log = logging.getLogger("fedldp.fleet.campaigns")


@final
class Counter:
    """Counts the answers of one round into one file."""

    def __init__(
        self,
        store: Store,
        connect: Connect,
        *,
        grace: float = GRACE,
        silence: float = SILENCE,
        clock: Callable[[], datetime] = utc_now,
        identities: bool = False,
    ) -> None:
        self._identities = identities
        self._store, self._connect, self._clock = store, connect, clock
        self._campaign = store.campaign
        self._end = self._campaign.deadline + timedelta(seconds=grace)
        self._silence, self._said = silence, monotonic()

    def run(self, sleep: Sleep, stopped: Callable[[], bool]) -> bool:
        """Count until the round has ended or the program should stop; return whether it has ended.

        At the end, the file is finished: nothing is stored or acknowledged any more.
        """
        pause = _RETRY
        while not (ended := self._ended()) and not stopped():
            try:
                with self._connect(self._store.counter, seconds_kept=KEPT) as connection:
                    pause = _RETRY
                    self._count(connection, stopped)
            except Finished:
                continue
            except OSError as error:
                _log.warning("cannot use the broker: %s; trying again", error)
                sleep(pause)
                pause = min(2 * pause, _LONGEST)
        if ended:
            self._store.finish()
        return ended

    def _ended(self) -> bool:
        return self._clock() >= self._end or self._store.finished

    def _count(self, connection: Connection, stopped: Callable[[], bool]) -> None:
        connection.subscribe(self._campaign.topic)
        connection.subscribe(self._campaign.shared_answers)
        if self._identities:
            connection.subscribe(self._campaign.named_answers)
        publish_at = monotonic() + self._silence
        batch: list[Message] = []
        while not stopped() and self._clock() < self._end:
            message = connection.receive(_PAUSE if batch else _IDLE)
            if message is not None and self._campaign.identity(message.topic) is not None:
                # One byte too many is refused like millions, which would fill the memory.
                batch.append(message._replace(payload=message.payload[: self._store.size + 1]))
            elif message is not None:
                connection.acknowledge(message)
                publish_at = inf
                if not is_same(message.payload, self._store.text):
                    _log.warning("another campaign, or none, is now published for this job")
            if batch and (message is None or len(batch) >= MOST):
                self._commit(connection, batch)
                batch = []
            if message is None and self._store.finished:
                return
            if monotonic() >= publish_at and (seconds := self._seconds_left()) > 0:
                connection.retain(self._campaign.topic, packed(self._store.text), seconds)
                publish_at = inf
        if batch:
            self._commit(connection, batch)

    def _commit(self, connection: Connection, batch: list[Message]) -> None:
        payloads = [message.payload for message in batch]
        senders = [self._campaign.identity(message.topic) or "" for message in batch]
        for message, verdict in zip(batch, self._store.add(payloads, senders), strict=True):
            if verdict.acknowledged:
                identifier = message.payload[:IDENTIFIER]
                connection.publish(self._campaign.acknowledgement(identifier), b"")
            else:
                _log.debug("refused a message: %s", verdict.reason)
            connection.acknowledge(message)
        if monotonic() - self._said >= _SAID:
            self._said = monotonic()
            _log.info(
                "job %s, round %d: %s so far",
                self._campaign.job,
                self._campaign.round,
                counted(self._store.received, "answer"),
            )

    def _seconds_left(self) -> int:
        return int((self._campaign.deadline - self._clock()).total_seconds())
