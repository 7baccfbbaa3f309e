"""LDP-FedSGD as a strategy of Flower's: `LDPFedSGD(job).start(grid)` is all that a ServerApp does.

Flower's own loop forgets everything when its process ends, and asks anew. This one asks the same
again, and never twice what has been answered: see `checkpoint`.
"""

import contextlib
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar, final

from fedldp.errors import DomainError, MissingExtra, WireError
from fedldp.fleet.flower.messages import packed, unpacked
from fedldp.fleet.job import Job
from fedldp.fleet.protocol import Question, deflated
from fedldp.fleet.server.rounds import Rounds

try:
    from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Result, Strategy
except ImportError as error:
    raise MissingExtra("flwr", "flower") from error

POLL = 0.25  # seconds

A = TypeVar("A")
T = TypeVar("T")
Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]

_log = logging.getLogger(__name__)


@final
class LDPFedSGD(Strategy):
    """Runs a job to its end, or on to its end if it was begun before.

    ::

        app = ServerApp()

        @app.main()
        def main(grid, context):
            LDPFedSGD(Job.load("job.toml")).start(grid)

    Every node of the grid is a gateway, whose ClientApp answers as `fedldp.fleet.app` does.
    """

    def __init__(
        self,
        job: Job,
        *,
        poll: float = POLL,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.job = job
        self._poll, self._clock, self._sleep = poll, clock, sleep
        self._opened: Rounds | None = None
        self._questions: dict[str, Question] = {}  # by gateway: those to be sent now
        self._sent: dict[str, Question] = {}  # by the message's id, in this round
        self._last: dict[str, float] = {}  # when the gateway's question was sent the last time
        self._began = math.inf  # when this round's questions were sent first
        self._heard = -math.inf  # when the grid worked the last time
        self._noted: set[tuple[str, str]] = set()

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int | None = None,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Evaluate | None = None,
    ) -> Result:
        """Run the job; return the averaged weights, and what came in each round.

        The arrays of a statistic are the counters of its tally. `evaluate_fn` is given the weights
        after each round. All else that Flower's strategies take here is part of the job.
        Another process that has the job already raises `BlockingIOError`; a job that is over
        gives its result again. A job in which no vehicle answered has failed: it has no result,
        and raises `DomainError`.
        """
        given = (initial_arrays, num_rounds, timeout, train_config, evaluate_config)
        if any(each is not None for each in given):
            raise DomainError(
                "the job says what is sent, in how many rounds and how long to wait: give start "
                "nothing but the grid and evaluate_fn."
            )
        with contextlib.closing(Rounds(self.job)) as rounds:
            self._opened, self._heard = rounds, self._clock()
            try:
                return self._run(grid, evaluate_fn)
            finally:
                self._opened = None

    def _run(self, grid: Grid, evaluate: Evaluate | None) -> Result:
        rounds, result = self._rounds, Result()
        self.summary()
        while not rounds.verdict:
            number = rounds.number
            arrays = self._converse(grid, number)
            if arrays is not None and evaluate is not None:
                found = evaluate(number, arrays)
                if found is not None:
                    result.evaluate_metrics_serverapp[number] = found
        rounds.finish()
        why, counts = rounds.verdict, rounds.collected
        _log.info("%s is over: %s. %s Result: %s", self.job.name, why, counts, self.job.result)
        result.arrays = ArrayRecord(rounds.arrays())
        for number in range(1, rounds.number):
            result.train_metrics_clientapp[number] = self._metrics(number)
        return result

    def _converse(self, grid: Grid, number: int) -> ArrayRecord | None:
        """Ask and listen until the round is over; return the weights, or None if nobody is left."""
        self._sent, self._last, self._began = {}, {}, math.inf
        while True:
            arrays, _ = self.aggregate_train(number, self._pull(grid))
            if arrays is not None or self._rounds.verdict:
                return arrays
            if self._rounds.asked and not self._due():
                self._sleep(self._poll)
                continue
            messages = self.configure_train(number, ArrayRecord(), ConfigRecord(), grid)
            self._began = min(self._began, self._clock())
            self._push(grid, messages)

    def _due(self) -> list[str]:
        """Return the gateways to which the question is to be sent now.

        A gateway works off one message after the other. So the more it has before it, the longer
        it is left alone: each time twice as long, or else a slow one would never see the end.
        """
        waiting = Counter(question.gateway for question in self._sent.values())
        return [
            gateway
            for gateway in self._rounds.pending
            if self._clock() - self._last.get(gateway, -math.inf)
            >= min(self.job.resend * 2 ** max(0, waiting[gateway] - 1), self.job.deadline)
        ]

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return this round's question to the gateways that have to answer it: always the same.

        In the first call of a round it waits for gateways, and writes down whom it asks. Others
        that come are asked in the next round or, if nobody answers, after the deadline.
        """
        rounds = self._rounds
        if not rounds.asked:
            rounds.ask(self._gather(grid, self.job.gateways if server_round == 1 else 1))
        elif self._late and not rounds.counts(server_round).reports:
            rounds.ask(self._gateways(grid))
        self._questions = rounds.questions()
        return [
            Message(
                packed(deflated(self._questions[gateway].to_bytes())),
                int(gateway),
                MessageType.TRAIN,
                ttl=2 * self.job.deadline,  # no gateway should work off what nobody waits for
                group_id=str(server_round),
            )
            for gateway in self._due()
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Keep the batches among the replies; if the round is over, step.

        While it is not, and when no vehicle is left, there is nothing to return.
        """
        rounds = self._rounds
        for reply in replies:
            self._take(reply)
        if not rounds.complete(self._late) or rounds.verdict:
            return None, None
        rounds.step()
        metrics = self._metrics(server_round)
        _log.info("%s, round %d: %s", self.job.name, server_round, dict(metrics))
        return ArrayRecord(rounds.arrays()), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return no message: to evaluate a model on vehicles would be one more question to them."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> None:
        """Return nothing, as nothing was asked."""

    def summary(self) -> None:
        """Log what is asked, and at what price."""
        job = self.job
        _log.info(
            "%s: %s, epsilon %g, %d bits from each vehicle, %d vehicles behind each gateway in a "
            "round, at most %d rounds.",
            job.name,
            "a statistic" if job.model is None else f"a training ({job.model.objective})",
            job.plan.epsilon,
            job.plan.bits,
            job.reports,
            job.rounds,
        )

    # What follows speaks with the grid and survives whatever comes from there.

    def _push(self, grid: Grid, messages: Iterable[Message]) -> None:
        """Send messages one by one: none suffers from another."""
        for message in messages:
            question = self._questions[str(message.metadata.dst_node_id)]
            self._last[question.gateway] = self._clock()
            ids = self._attempt(grid.push_messages, [message])
            self._sent |= {each: question for each in ids if each}  # none if it was not taken

    def _pull(self, grid: Grid) -> list[Message]:
        """Return what has come from those who are asked, each for itself as above."""
        replies = []
        for gateway in self._rounds.pending:
            ids = [each for each, question in self._sent.items() if question.gateway == gateway]
            if ids:
                replies += self._attempt(grid.pull_messages, ids)
        return replies

    def _take(self, reply: Message) -> None:
        """Keep a batch, or note why it is none. Who sent it is known from what it replies to."""
        question = self._sent.pop(reply.metadata.reply_to_message_id, None)
        if question is None:
            self._note("", "a reply to nothing that was asked.")
            return
        try:
            if not reply.has_content():
                raise WireError("an error of Flower's, in the place of a batch.")
            self._rounds.receive(question, unpacked(reply.content))
        except WireError as error:
            self._note(question.gateway, str(error))

    def _gather(self, grid: Grid, count: int) -> list[str]:
        """Wait until so many gateways are there."""
        while len(found := self._gateways(grid)) < count:
            self._note("", f"waits for {count} gateways; {len(found)} are connected.")
            self._sleep(self._poll)
        return found

    def _gateways(self, grid: Grid) -> list[str]:
        return [str(node) for node in self._attempt(lambda _: grid.get_node_ids(), ())]

    def _attempt(self, call: Callable[[A], Iterable[T]], given: A) -> list[T]:
        """Call the grid; if it fails, return nothing, as the next call may find it well again.

        If it has failed for as long as a whole round may take, its run may be over: then the
        process had better end. The job goes on with the next run.
        """
        try:
            found = list(call(given))
        except Exception as error:
            if self._clock() - self._heard > self.job.deadline:
                raise
            self._note("", f"the grid fails with {type(error).__name__}.")
            return []
        self._heard = self._clock()
        return found

    def _note(self, gateway: str, what: str) -> None:
        """Log something once: a hostile gateway must not fill the disk."""
        if (gateway, what) not in self._noted:
            self._noted.add((gateway, what))
            who = f"gateway {gateway}" if gateway else "the server"
            _log.warning("%s, %s: %s", self.job.name, who, what)

    def _metrics(self, number: int) -> MetricRecord:
        return MetricRecord(dict(self._rounds.counts(number)._asdict()))

    @property
    def _late(self) -> bool:
        return self._clock() - self._began >= self.job.deadline

    @property
    def _rounds(self) -> Rounds:
        if self._opened is None:
            raise DomainError("a job goes on only while it is started: call start(grid).")
        return self._opened
