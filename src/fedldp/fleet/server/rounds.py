"""What the server does in a round: ask, store answers, step. It does not use the network."""

import logging
from collections import Counter
from collections.abc import Iterable
from typing import final

import numpy as np

from fedldp._internal.validation import Floats
from fedldp.errors import DomainError, FedLDPError, WireError
from fedldp.fleet import signing, versions
from fedldp.fleet.job import Job
from fedldp.fleet.protocol import Answer, Question
from fedldp.fleet.server.checkpoint import Checkpoint, Counts, total
from fedldp.fleet.server.names import Name, unnamed
from fedldp.fleet.server.summary import Summary, collected, digest
from fedldp.fleet.sockets import REFUSED
from fedldp.fleet.stages import Learned
from fedldp.fleet.versions import OtherVersion
from fedldp.learn.model import Model
from fedldp.learn.optimizer import State, settled
from fedldp.storage import files

ROUNDS = "all rounds are done"
SETTLED = "the model has settled"
NOBODY = "no vehicle is left, or the job's name was used before"
NOTHING = "no vehicle answered, so there is nothing to learn from"
NO_GRADIENT = "no vehicle was left after the survey, so there is nothing to learn from"

_log = logging.getLogger(__name__)


@final
class Rounds:
    """A running job. Everything is written to its checkpoint before it is sent or used."""

    def __init__(self, job: Job, name: Name = unnamed) -> None:
        self.job, self._name = job, name
        state = None if job.model is None else State.start(np.array(job.model.weights))
        start = Learned(state).to_json()
        self._file = Checkpoint(job.checkpoint, job.name, job.settings, start)
        self._refusals = Counter[str]()  # of each gateway, one after the other
        self._unable: set[str] = set()  # gateways that have said so in this round

    @property
    def number(self) -> int:
        """The number of the open round; the first is 1."""
        return self._file.standing.round + 1

    @property
    def model(self) -> Model | None:
        """The model that is sent in this round."""
        first = self.job.model
        return None if first is None else self._learned.model(first)

    @property
    def pending(self) -> list[str]:
        """The gateways that were asked in this round and have not answered."""
        return self._file.pending

    @property
    def asked(self) -> set[str]:
        """All gateways that were asked in this round."""
        return set(self._file.asked)

    def counts(self, number: int) -> Counts:
        """Return the counts of a round."""
        return self._file.counts(number)

    @property
    def collected(self) -> str:
        """A line that says how many of the planned reports have come."""
        return collected(total(self._file.history()), self.job.expected)

    def ask(self, gateways: Iterable[str]) -> None:
        """Record that these gateways are asked in this round, unless they were asked already."""
        number, model, asked = self.number, self.model, self.asked
        fresh = sorted(set(gateways) - asked)
        self._file.ask(self.job.question(gateway, number, model) for gateway in fresh)

    def questions(self) -> dict[str, Question]:
        """Return the questions to gateways that have not answered: the same every time.

        Raise `DomainError` if the job was signed for a time that is over: vaults would refuse, and
        the job would end as if no vehicle were left. Once it is signed again, it can be resumed.
        """
        signing.check_time(self.job)
        number, model, asked = self.number, self.model, self._file.asked
        found = {each: self.job.question(each, number, model) for each in self.pending}
        for gateway, question in found.items():
            if question.digest != asked[gateway]:
                raise WireError(
                    f"{self.job.checkpoint}: the question to gateway {gateway} in round {number} "
                    "cannot be repeated. Resume the job with the version of fedldp that asked it."
                )
        return found

    def receive(self, question: Question, data: bytes) -> None:
        """Count and store the answer to a question, or raise `WireError`.

        A second answer is refused. So is one in which all vehicles are silent, as a better one may
        follow. A gateway that speaks another version of the protocol is not waited for in this
        round.
        """
        plan = self.job.plan_of(question.round)
        if question.gateway not in self.pending or question.round != self.number:
            raise WireError("the answer came too late, or twice.")
        self._check_version(question.gateway, data)
        answer = Answer.from_bytes(data, question)
        if answer.silent and not answer.answered:
            raise WireError("all vehicles of the answer are silent.")
        report = answer.report(plan.fingerprint)
        try:
            tally = plan.parse(report)
        except WireError:
            raise WireError("the records of the answer do not fit the plan.") from None
        self._file.store(question, answer, report.to_bytes(), tally)
        del self._refusals[question.gateway]

    def _check_version(self, gateway: str, data: bytes) -> None:
        """Raise `WireError` if a gateway, or all vaults behind it, cannot read the question."""
        try:
            versions.check(data)
        except OtherVersion:
            self.excuse(gateway)
            raise
        if data == REFUSED:
            self._refusals[gateway] += 1
            if self._refusals[gateway] > 1:  # the first time, something may have failed for once
                self.excuse(gateway)
            raise WireError(
                "it cannot read the question, or not pass it on: it has an older version of fedldp "
                "or an invalid configuration. See its log, and update fedldp on its machine."
            )

    def excuse(self, gateway: str) -> None:
        """Do not wait for a gateway in this round: it cannot answer.

        It is still asked as long as the round is open. If it has not answered by then, its vehicles
        are silent.
        """
        self._unable.add(gateway)

    def complete(self, late: bool) -> bool:
        """Return whether the round is over: all gateways that can answer have, or it is late.

        A round without any report stays open, however late it is.
        """
        if not self.asked:
            return False
        pending = set(self.pending)
        over = late or pending <= self._unable
        return not pending or (over and self.counts(self.number).reports > 0)

    @property
    def verdict(self) -> str:
        """Why the job is over; empty if there is another round to run."""
        standing = self._file.standing
        if standing.failed:
            raise DomainError(f"the job {self.job.name!r} has failed: {standing.ended}.")
        if standing.ended:
            return standing.ended
        if self._settled():
            return SETTLED
        if standing.round >= self.job.rounds:
            return ROUNDS
        return NOBODY if self._nobody_left() else ""

    def _settled(self) -> bool:
        recipe = self.job.recipe
        if recipe is None or not recipe.optimizer.tol:
            return False
        return (state := self._learned.state) is not None and settled(recipe, state)

    def _nobody_left(self) -> bool:
        """Return whether all gateways have answered, without any report, in this model's rounds."""
        number = self.number
        cycle = self.job.span_of(number).cycle(number)
        if number != cycle[-1] or not self.complete(late=False):
            return False
        return not any(self.counts(each).reports for each in cycle)

    def step(self) -> None:
        """End this round and open the next one; when all levels were asked, learn from the answers.

        If the weights become too large, the job has failed. That costs vehicles nothing more.
        """
        number, learned = self.number, self._learned
        self._unable.clear()
        span = self.job.span_of(number)
        if learned.state is not None:  # a statistic is checked once, at its end
            found = self._file.warnings(
                self.job.stages, number=number, among=self.job.rounds, name=self._name
            )
            for text in found:
                extra = {"job": self.job.name, "round": number}
                _log.warning("%s, round %d. %s", self.job.name, number, text, extra=extra)
        cycle = span.cycle(number)
        if number != cycle[-1]:  # another level is asked with the same model
            self._file.step(learned.to_json())
            return
        tallies = [self._file.tally(span.plan(each), each) for each in cycle]
        try:
            learned = span.stage.learn(learned, tallies)
            text = learned.to_json()
            if self.job.model is not None:
                Learned.from_json(text).model(self.job.model)  # raises if anything has overflowed
        except FedLDPError as error:
            self._end(f"in round {number}: {error}".rstrip("."), failed=True)
            raise
        self._file.step(text)

    def finish(self) -> None:
        """Write the result, then end the job, so that an ended job always has its result.

        If no vehicle answered, the job has failed: there is no result, and `DomainError` is raised.
        """
        why, learned, path = self.verdict, self._learned, self.job.result.resolve()
        if self._file.standing.ended:
            return
        if not why:
            raise DomainError(f"the job {self.job.name!r} has rounds left: it cannot end yet.")
        history = self._file.history()
        if not total(history[self.job.spans[-1].first - 1 :]).reports:
            nothing = NO_GRADIENT if total(history).reports else NOTHING
            self._end(nothing, failed=True)
            raise DomainError(f"the job {self.job.name!r} has failed: {nothing}. {self.collected}")
        path.parent.mkdir(parents=True, exist_ok=True)
        if learned.state is None or self.job.model is None:
            self._file.tally(self.job.plan, 1).save(path)
        else:
            model = learned.result(self.job.model)
            files.write(path, model.to_json())
        for text in self._file.warnings(self.job.stages, name=self._name):
            _log.warning("%s, all rounds. %s", self.job.name, text, extra={"job": self.job.name})
        self._end(why, result=digest(path.read_bytes()))

    def _end(self, why: str, *, failed: bool = False, result: str = "") -> None:
        """Write the summary, then end the job, so that an ended job always has its summary."""
        job, rounds = self.job, tuple(counts.closed() for counts in self._file.history())
        done = self._file.standing.round
        job.summary.parent.mkdir(parents=True, exist_ok=True)
        Summary(
            job.name, job.plan.fingerprint, job.expected, rounds, done, why, failed, result
        ).save(job.summary)
        self._file.end(why, failed=failed)

    def arrays(self) -> list[Floats]:
        """Return the current result as arrays: averaged weights, or the counters of the tally."""
        learned, first = self._learned, self.job.model
        if learned.state is not None and first is not None:
            return [np.array(learned.result(first).weights)]
        return list(self._file.tally(self.job.plan, 1).counts)

    def close(self) -> None:
        """Close the checkpoint."""
        self._file.close()

    @property
    def _learned(self) -> Learned:
        return Learned.from_json(self._file.standing.state)
