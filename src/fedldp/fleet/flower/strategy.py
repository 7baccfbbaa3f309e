"""LDP-FedSGD as a Flower strategy: a ServerApp only calls `LDPFedSGD(job).start(grid)`.

Flower's own loop forgets everything when its process ends, and would ask new questions. This one
keeps a checkpoint. After a restart it sends the same questions again, and only those that have not
been answered: see `checkpoint`.
"""

import contextlib
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar, final

from fedldp._internal.text import counted
from fedldp.errors import DomainError, MissingExtra, WireError
from fedldp.fleet.flower.messages import packed, unpacked
from fedldp.fleet.job import Job
from fedldp.fleet.protocol import Question, deflated
from fedldp.fleet.server import successors
from fedldp.fleet.server.names import Name, unnamed
from fedldp.fleet.server.rounds import Rounds

try:
    from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
    from flwr.common.constant import ErrorCode
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Result, Strategy
except ImportError as error:
    raise MissingExtra("flwr", "flower") from error

POLL = 0.25  # seconds
# Errors of a gateway that asking again does not change; after others, it may answer.
_UNABLE = frozenset((ErrorCode.LOAD_CLIENT_APP_EXCEPTION, ErrorCode.INVALID_FAB))

A = TypeVar("A")
T = TypeVar("T")
Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]

_log = logging.getLogger(__name__)


@final
class LDPFedSGD(Strategy):
    """A Flower strategy that runs a job, or resumes it, until it ends.

    Every node of the grid must be a gateway whose ClientApp answers as that of `fedldp.fleet.app`.

    Parameters
    ----------
    job : Job
        What to ask, and where to keep the checkpoint and the result.
    name : callable, optional
        Returns what to call a gateway in the log, given its number in Flower. By default it is
        called by its number.
    before : callable, optional
        Returns, for each node of Flower that a gateway has because of a new key, the node that it
        had before. The gateway keeps the number of its first node.
    revoked : callable, optional
        Returns the nodes that were revoked: an open round does not wait for them.
    poll : float, default=0.25
        Seconds between two looks for replies.
    clock : callable, default=time.monotonic
        Returns the time in seconds. Tests replace it.
    sleep : callable, default=time.sleep
        Waits for a number of seconds. Tests replace it.

    Attributes
    ----------
    job : Job
        The job.

    Notes
    -----
    A ServerApp needs nothing else::

        app = ServerApp()

        @app.main()
        def main(grid, context):
            LDPFedSGD(Job.load("job.toml")).start(grid)

    Examples
    --------
    >>> import fedldp
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), epsilon=1.0)
    >>> strategy = LDPFedSGD(Job("speeds", plan, "job.db", "tally.json", reports=100))
    >>> strategy.job.expected
    100
    >>> strategy.summary()  # logs what the job asks, as `start` does
    >>> strategy.start(grid=None, num_rounds=3)
    Traceback (most recent call last):
    fedldp.errors.DomainError: start takes only the grid and evaluate_fn: ...
    >>> strategy.aggregate_train(1, [])  # called by `start`, and so is `configure_train`
    Traceback (most recent call last):
    fedldp.errors.DomainError: the job is not running: call start(grid) first.
    >>> strategy.configure_train(1, None, None, None)
    Traceback (most recent call last):
    fedldp.errors.DomainError: the job is not running: call start(grid) first.
    >>> strategy.configure_evaluate(1, None, None, None)
    []
    >>> strategy.aggregate_evaluate(1, [])
    """

    def __init__(
        self,
        job: Job,
        *,
        name: Name = unnamed,
        before: successors.Successors = dict,
        revoked: Callable[[], Collection[str]] = tuple,
        poll: float = POLL,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.job, self._name = job, name
        self._before, self._revoked = before, revoked
        self._poll, self._clock, self._sleep = poll, clock, sleep
        self._opened: Rounds | None = None
        self._questions: dict[str, Question] = {}  # by node: to be sent now
        self._sent: dict[str, Question] = {}  # by message id, in this round
        self._last: dict[str, float] = {}  # when each gateway's question was last sent
        self._began = math.inf  # when this round's questions were first sent
        self._heard = -math.inf  # when a call of the grid last succeeded
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
        """Run the job until it ends, and write its result.

        A job that has ended already returns its result again.

        Parameters
        ----------
        grid : flwr.serverapp.Grid
            Flower's connection to the gateways.
        initial_arrays, num_rounds, timeout, train_config, evaluate_config : None
            Accepted because Flower's strategies have them. The job decides all of it, so they must
            be left out.
        evaluate_fn : callable, optional
            Called after each round with its number and the weights, as Flower's strategies do; what
            it returns is stored in the result.

        Returns
        -------
        flwr.serverapp.strategy.Result
            `arrays` holds the averaged weights, or the counters of the tally of a statistic;
            `train_metrics_clientapp` how many vehicles were asked and answered in each round.

        Raises
        ------
        DomainError
            If an argument is given that the job decides, or if the job has failed: it has no
            result when no vehicle answered.
        BlockingIOError
            If another process is running the job.
        """
        given = (initial_arrays, num_rounds, timeout, train_config, evaluate_config)
        if any(each is not None for each in given):
            raise DomainError(
                "start takes only the grid and evaluate_fn: the job decides what is sent, in how "
                "many rounds, and how long to wait. Leave the other arguments out."
            )
        with contextlib.closing(Rounds(self.job, self._name)) as rounds:
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
        """Ask and wait until the round ends; return the weights, or None if no vehicle is left."""
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
        """Return the gateways to which the question must be sent now.

        A gateway handles one message at a time. So the waiting time doubles with each message that
        it has not answered yet: otherwise a slow gateway would never catch up.
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
        """Return the messages to send now: this round's question, the same each time.

        The first call of a round waits for gateways, and writes to the checkpoint which of them are
        asked. Gateways that connect later are asked in the next round or, if no vehicle answers,
        after the deadline.

        Parameters
        ----------
        server_round : int
            The number of the round; the first is 1.
        arrays, config : flwr.app.ArrayRecord, flwr.app.ConfigRecord
            Not used: the model comes from the checkpoint.
        grid : flwr.serverapp.Grid
            Flower's connection to the gateways.

        Returns
        -------
        list of flwr.app.Message
            A message for each gateway that has not answered and whose waiting time is over.
        """
        rounds = self._rounds
        if not rounds.asked:
            rounds.ask(self._gather(grid, self.job.gateways if server_round == 1 else 1))
        elif self._late and not rounds.counts(server_round).reports:
            rounds.ask(self._gateways(grid))
        questions, due, before = rounds.questions(), self._due(), self._before()
        connected = self._connected(grid) if before and due else {}
        nodes = {each: connected.get(each) or successors.last(each, before) for each in due}
        self._questions = {node: questions[gateway] for gateway, node in nodes.items()}
        return [
            Message(
                packed(deflated(question.to_bytes())),
                int(node),
                MessageType.TRAIN,
                ttl=2 * self.job.deadline,  # gateways should drop what nobody waits for
                group_id=str(server_round),
            )
            for node, question in self._questions.items()
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Store the answers among the replies and, if the round is over, make one step.

        Parameters
        ----------
        server_round : int
            The number of the round; the first is 1.
        replies : iterable of flwr.app.Message
            Replies of gateways. Invalid ones are logged and ignored.

        Returns
        -------
        arrays : flwr.app.ArrayRecord or None
            The averaged weights, or the counters of a statistic; None while the round is not over,
            and when no vehicle is left.
        metrics : flwr.app.MetricRecord or None
            How many vehicles were asked, answered, refused and were silent; None in the same cases.
        """
        rounds = self._rounds
        for reply in replies:
            self._take(reply)
        self._excuse_revoked()
        if not rounds.complete(self._late) or rounds.verdict:
            return None, None
        rounds.step()
        metrics = self._metrics(server_round)
        extra = {"job": self.job.name, "round": server_round}
        counts = rounds.counts(server_round)
        _log.info("%s, round %d is done: %s.", self.job.name, server_round, counts, extra=extra)
        return ArrayRecord(rounds.arrays()), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return no message: evaluating a model on vehicles would cost them privacy.

        Parameters
        ----------
        server_round, arrays, config, grid : object
            Not used.

        Returns
        -------
        list of flwr.app.Message
            An empty list.
        """
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> None:
        """Do nothing, as `configure_evaluate` asks nothing.

        Parameters
        ----------
        server_round, replies : object
            Not used.
        """

    def summary(self) -> None:
        """Log what the job asks, and what it costs each vehicle."""
        job = self.job
        for span in job.spans[:-1]:
            _log.info(
                "%s, round %d: %s, %s behind each gateway.",
                job.name,
                span.first,
                span.stage.name,
                counted(span.stage.reports, "vehicle"),
            )
        _log.info(
            "%s: %s, epsilon %g, %s from each vehicle, %s behind each gateway in a round, at most "
            "%s.",
            job.name,
            "statistics" if job.model is None else f"a training ({job.model.objective})",
            job.plan.epsilon,
            counted(job.plan.bits, "bit"),
            counted(job.reports, "vehicle"),
            counted(job.rounds, "round"),
        )

    # The following methods talk to the grid and tolerate any failure and any reply.

    def _push(self, grid: Grid, messages: Iterable[Message]) -> None:
        """Send messages one by one, so that a failure affects only one of them."""
        for message in messages:
            question = self._questions[str(message.metadata.dst_node_id)]
            self._last[question.gateway] = self._clock()
            ids = self._attempt(grid.push_messages, [message])
            self._sent |= {each: question for each in ids if each}  # no id if Flower refused it

    def _pull(self, grid: Grid) -> list[Message]:
        """Return the replies of the gateways that were asked, fetched separately for each."""
        replies = []
        for gateway in self._rounds.pending:
            ids = [each for each, question in self._sent.items() if question.gateway == gateway]
            if ids:
                replies += self._attempt(grid.pull_messages, ids)
        return replies

    def _take(self, reply: Message) -> None:
        """Store an answer, or log why it is invalid. Its sender is known from the question."""
        question = self._sent.pop(reply.metadata.reply_to_message_id, None)
        if question is None:
            self._note("", "received a reply to a message that was never sent.")
            return
        try:
            if not reply.has_content():
                if reply.error.code in _UNABLE:
                    self._rounds.excuse(question.gateway)
                    raise WireError(
                        "Flower cannot run the gateway's app: it has another version of fedldp or "
                        "of Flower. See its log, and update it."
                    )
                raise WireError(
                    "expected an answer; got an error from Flower, as when a gateway restarts. It "
                    "is asked again."
                )
            self._rounds.receive(question, unpacked(reply.content))
        except WireError as error:
            self._note(question.gateway, str(error))

    def _excuse_revoked(self) -> None:
        """Do not wait for gateways whose newest key was revoked: they can answer no more."""
        if self._rounds.pending and (gone := self._revoked()):
            before = self._before()
            for gateway in self._rounds.pending:
                if successors.last(gateway, before) in gone:
                    self._rounds.excuse(gateway)

    def _gather(self, grid: Grid, count: int) -> list[str]:
        """Wait until at least `count` gateways are connected."""
        while len(found := self._gateways(grid)) < count:
            are = "is" if len(found) == 1 else "are"
            said = f"waiting for {counted(count, 'gateway')}; {len(found)} {are} connected."
            self._note("", said, logging.INFO)
            self._sleep(self._poll)
        return found

    def _gateways(self, grid: Grid) -> list[str]:
        return list(self._connected(grid))

    def _connected(self, grid: Grid) -> dict[str, str]:
        """Return the gateways that are connected, each with its newest node."""
        nodes = self._attempt(lambda _: grid.get_node_ids(), ())
        return successors.newest(map(str, nodes), self._before())

    def _attempt(self, call: Callable[[A], Iterable[T]], given: A) -> list[T]:
        """Call the grid; if that fails, return nothing, as a later call may succeed.

        If it has been failing for as long as a whole round may take, Flower may have ended the
        run. Then raise the error, so that this process ends: the next run resumes the job.
        """
        try:
            found = list(call(given))
        except Exception as error:
            if self._clock() - self._heard > self.job.deadline:
                raise
            self._note("", f"a call to Flower's grid failed with {type(error).__name__}.")
            return []
        self._heard = self._clock()
        return found

    def _note(self, gateway: str, what: str, level: int = logging.WARNING) -> None:
        """Log each message once: a hostile gateway must not fill the disk."""
        if (gateway, what) not in self._noted:
            self._noted.add((gateway, what))
            who = self._name(gateway) if gateway else "the server"
            extra = {"job": self.job.name, "gateway": who} if gateway else {"job": self.job.name}
            _log.log(level, "%s, %s: %s", self.job.name, who, what, extra=extra)

    def _metrics(self, number: int) -> MetricRecord:
        return MetricRecord(dict(self._rounds.counts(number)._asdict()))

    @property
    def _late(self) -> bool:
        return self._clock() - self._began >= self.job.deadline

    @property
    def _rounds(self) -> Rounds:
        if self._opened is None:
            raise DomainError("the job is not running: call start(grid) first.")
        return self._opened
