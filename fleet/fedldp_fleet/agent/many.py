"""Many vehicles of one owner, which share a ledger and are asked at once.

Each answer is drawn through a plan whose integer tables were checked here, costs no more than the
cap allows, and is in the ledger before it is sent. Which vehicles answer follows from the question,
the owner's settings and the ledger, never from the data, and is random beyond that.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple, Protocol, final

import numpy as np
import numpy.typing as npt

from fedldp import vehicle
from fedldp.budget.calendars import CalendarPeriod
from fedldp.budget.ledger import Ledger
from fedldp.budget.periods import read_plan_or_period
from fedldp.budget.vehicle import PlanQuestion, for_vehicle
from fedldp.budget.vehicles import Vehicles
from fedldp.errors import DomainError, PrivacyError
from fedldp.learn.computations import (
    MOST_ROWS,
    Computation,
    asked_for,
    check_work,
    most_rows,
    vehicles_at_once,
)
from fedldp.learn.examples import VehicleRows
from fedldp.plan.parts import VehicleValues
from fedldp.plan.plan import Plan
from fedldp.randomness import Source
from fedldp.randomness import source as secret_source
from fedldp.schema.attributes import Attribute
from fedldp.schema.rules import with_rules
from fedldp.schema.schema import Schema
from fedldp_fleet import transparency
from fedldp_fleet.agent.loop import CheckedQuestion
from fedldp_fleet.agent.policy import OwnerRules
from fedldp_fleet.library import Floats, Integers, packing
from fedldp_fleet.questions import Question
from fedldp_fleet.signed_jobs import SignedJob, SignedStage

Flags = npt.NDArray[np.bool_]


class Held(NamedTuple):
    """The rows of some vehicles, as `Schema.rows(data).matrix()` returns them."""

    matrix: Floats
    owners: Integers  # the number of the vehicle of each row, in the order of `vehicle_ids`
    ruled: Floats | None = None  # a row of each vehicle, as `rules.by_rule` returns them


class Data(Protocol):
    """Where the rows of an agent's vehicles come from."""

    @property
    def schema(self) -> Schema:
        """The attributes, with their public bounds and categories."""

    @property
    def vehicle_ids(self) -> Sequence[str]:
        """The vehicles, each once."""

    @property
    def epsilons(self) -> Sequence[Fraction | None]:
        """The epsilon that each vehicle has chosen, or None; nothing at all if none has."""

    def held(self) -> Held:
        """Return the rows. It is called when an answer is drawn; NaN stands for what is missing."""


class _Read(NamedTuple):
    """A plan, read once."""

    plan: Plan
    checked: vehicle.Plan
    period: CalendarPeriod | None


@final
@dataclass(frozen=True, eq=False)
class _AskedWork:
    read: _Read
    computation: Computation
    columns: Integers  # of the attributes that it needs


@final
class ManyVehicles:
    """The holder of many vehicles.

    Parameters
    ----------
    data
        Their rows. Of a vehicle with more than a thousand, a random thousand are used.
    ledger
        Their ledger.
    policy
        What the owner allows: only `fewest_vehicles` is asked for here.
    source
        The random source, keyed by the operating system.
    """

    def __init__(
        self,
        data: Data,
        ledger: Ledger,
        policy: OwnerRules | None = None,
        source: Source | None = None,
    ) -> None:
        self._data, self._ledger, self._policy = data, ledger, policy or OwnerRules()
        self._policy.check_schema([each.name for each in data.schema.attributes])
        self._source = secret_source() if source is None else source
        if not self._source.secret:
            raise PrivacyError(
                f"an agent needs a source keyed by the operating system; got {source!r}. Anybody "
                "who knows the seed can remove the noise from the reports. Use fedldp.source()."
            )
        self._names = np.array(data.vehicle_ids)
        if not len(self._names) or len(set(data.vehicle_ids)) < len(self._names):
            raise DomainError("an agent needs at least one vehicle, and each vehicle once.")
        self._epsilons, self._epsilon_of = _chosen(data.epsilons, len(self._names))
        totals = ledger.totals()
        self._sums = [Fraction()]  # there are few different sums that vehicles have spent
        spent = [self._sum_place(totals.get(name, Fraction())) for name in self._names.tolist()]
        self._spent = np.array(spent)
        self._job, self._answers = "", np.zeros(len(self._names), np.int64)  # in one job
        self._round = "", np.zeros(len(self._names), np.bool_)  # who has answered in one round
        self._cleaned: tuple[Held, Floats, VehicleRows, Floats | None] | None = None

    def __len__(self) -> int:
        return len(self._names)

    def check(self, question: Question, job: SignedJob, stage: SignedStage) -> CheckedQuestion:
        """Read a question and check its plan, what it computes, and the cap. Read no data."""
        read = _read(question.plan, self._ledger.cap)
        schema = read.plan.schema
        computation = asked_for(schema, question.model)
        stage.check(computation)
        if question.model and not schema.is_vector(computation.dimensions):
            raise DomainError(
                "the plan must be for what is asked, a vector of "
                f"{computation.dimensions} numbers, such as the gradient of a model."
            )
        if read.period is not None and question.model:
            raise DomainError("a calendar asks for rows; the question also has a model.")
        check_work(computation, 1)
        period = read.period and (read.period.calendar.fingerprint, read.period.number)
        named = PlanQuestion(
            read.checked,
            question.job,
            str(question.round),
            question.digest,
            period=period,
            entry=transparency.entry(question),
            former=(f"records of {period[0]} {period[1]}",) if period else (),
            repeats=not question.model,
        )
        columns = self._columns(computation.attributes)
        return CheckedQuestion(question, named, job, _AskedWork(read, computation, columns))

    def able(self, checked: CheckedQuestion) -> int:
        """Return how many vehicles may still answer."""
        if stored := self._ledger.stored(checked.asked.request):
            return len(stored)  # they only have to be sent again
        able, repeats = self._free(checked)
        count = int((able | repeats).sum())
        return count if count >= self._policy.fewest_vehicles else 0

    def draw(self, checked: CheckedQuestion, most: int) -> list[bytes]:
        """Draw the answers of at most so many vehicles, and return their records, sorted."""
        question, work = checked.asked, checked.work
        able, repeats = self._free(checked)
        free = np.flatnonzero(able | repeats)
        # Those that have given the fewest answers in this job come first, in random order.
        order = np.lexsort((self._source.words(len(free)), self._answers[free]))
        chosen = np.sort(free[order[:most]])
        if not len(chosen) and not self._ledger.stored(question.request):
            return []  # otherwise the answers are there, and are only sent again
        names = self._names[chosen].tolist()
        paying: list[int] = []

        def draw(willing: list[str]) -> list[bytes]:
            self._policy.check_vehicles(len(willing) + int(repeats[chosen].sum()))
            if len(willing) == len(names):
                paying.extend(chosen.tolist())
            else:
                numbers = dict(zip(names, chosen.tolist(), strict=True))
                paying.extend(numbers[name] for name in willing)
            return self._records(work, np.array(paying, np.int64))

        answers = Vehicles(self._ledger).answer(question, names, draw)
        self._count_paid(np.array(paying, np.int64), work.read.checked.epsilon)
        self._round[1][chosen] = True
        if question.constant is not None:
            self._job = ""  # answers that were repeated are counted from the ledger
        return sorted(answers.values())

    def pack(self, records: Sequence[bytes], bits: int) -> bytes:
        """Pack sorted records of this many bits one after another."""
        return packing.join(records, bits).to_bytes()

    def obstacles(self, checked: CheckedQuestion) -> str:
        """Return how many vehicles may not answer, and why, for the owner."""
        reasons, passed = [], np.ones(len(self), np.bool_)
        for why, passes in self._obstacles(checked).items():
            if count := int((passed & ~passes).sum()):
                reasons.append(f"{count} {why}")
            passed &= passes
        return f"of {len(self)} vehicles, {', '.join(reasons) or 'all may answer'}"

    # Who may answer

    def _free(self, checked: CheckedQuestion) -> tuple[Flags, Flags]:
        """Return which vehicles may pay for an answer, and which repeat theirs at no cost."""
        passes, repeats = np.ones(len(self), np.bool_), self._repeats(checked.asked)
        for why, flags in self._obstacles(checked).items():
            passes &= flags
            if why in _BINDING:
                repeats = repeats & flags
        return passes, repeats

    def _obstacles(self, checked: CheckedQuestion) -> dict[str, Flags]:
        question = checked.asked
        cost = checked.work.read.checked.epsilon
        covered = [spent + cost <= self._ledger.cap for spent in self._sums]
        follows, turn = self._turns(checked)
        return {
            _ANSWERED: self._may_answer(checked),
            _UNABLE: follows,
            _SILENT: turn,
            "have too little left of their cap": np.array(covered)[self._spent],
            "have spent too much in this period": self._within_period(cost),
            "have chosen another epsilon": self._willing(question),
        }

    def _may_answer(self, checked: CheckedQuestion) -> Flags:
        """Return which vehicles have answers left in the job, and have not answered the round."""
        job = checked.question.job
        if job != self._job:  # one job at a time, so that names of jobs take no memory
            found = self._ledger.answers(job)
            counts = [found.get(name, 0) for name in self._names.tolist()]
            self._job, self._answers = job, np.array(counts)
        allowed = self._answers < self._ledger.answers_per_job
        return allowed & ~self._in_round(checked) if self._ledger.answers_per_job > 1 else allowed

    def _in_round(self, checked: CheckedQuestion) -> Flags:
        """Return which vehicles have answered other chunks of this round."""
        name = f"{checked.question.job}/{checked.question.round}"
        if name != self._round[0]:
            answered: set[str] = set()
            for chunk in range(checked.asked.chunk):
                earlier = replace(checked.asked, chunk=chunk)
                answered |= self._ledger.stored(earlier.request).keys()
            self._round = name, np.isin(self._names, list(answered))
        return self._round[1]

    def _repeats(self, question: PlanQuestion) -> Flags:
        if question.constant is None:
            return np.zeros(len(self), np.bool_)
        return np.isin(self._names, list(Vehicles(self._ledger).repeating(question)))

    def _turns(self, checked: CheckedQuestion) -> tuple[Flags, Flags]:
        """Return which vehicles have drawn their periods or round, and which answer in this one.

        Vehicles that have not drawn them draw them now.
        """
        question, names = checked.asked, self._names.tolist()
        period: CalendarPeriod | None = checked.work.read.period
        if period is not None:
            calendar = period.calendar
            found = Vehicles(self._ledger).answering(question, calendar, names, self._source)
        elif checked.job.order == "lot":
            found = self._ledger.in_period(
                names,
                question.plan.epsilon,
                f"lot of {checked.job.job}",
                checked.question.round,
                1,
                self._lot(checked.job),
                question.constant,
            )
        else:
            everyone = np.ones(len(self), np.bool_)
            return everyone, everyone
        follows = np.array([name in found for name in names])
        return follows, np.array([found.get(name, False) for name in names])

    def _lot(self, job: SignedJob) -> Callable[[int], Iterator[list[int]]]:
        def draw(vehicles: int) -> Iterator[list[int]]:
            for word in self._source.words(vehicles).tolist():
                yield [job.round_of(int(word))]

        return draw

    def _within_period(self, cost: Fraction) -> Flags:
        """Return which vehicles may spend this much now, by the ledger's limit for a period."""
        if (period := self._ledger.period) is None:
            return np.ones(len(self), np.bool_)
        recent, left = self._ledger.recent(), period.most - cost
        return np.array([recent.get(name, Fraction()) <= left for name in self._names.tolist()])

    def _willing(self, question: PlanQuestion) -> Flags:
        """Return which vehicles answer a plan: those without a choice, or with its epsilon."""
        cost = question.plan.epsilon
        return np.array([each in (None, cost) for each in self._epsilons])[self._epsilon_of]

    def _count_paid(self, paid: Integers, cost: Fraction) -> None:
        before = self._spent[paid]
        for place in np.unique(before).tolist():
            self._spent[paid[before == place]] = self._sum_place(self._sums[place] + cost)
        self._answers[paid] += 1

    def _sum_place(self, spent: Fraction) -> int:
        if spent not in self._sums:
            self._sums.append(spent)
        return self._sums.index(spent)

    # What they answer

    def _records(self, work: _AskedWork, vehicles: Integers) -> list[bytes]:
        """Return the records of some vehicles, each as separate bytes for the ledger."""
        if not len(vehicles):
            return []
        matrix, rows, ruled = self._rows()  # not earlier: nothing stands against an answer now
        records: list[bytes] = []
        step = vehicles_at_once(work.computation)
        for first in range(0, len(vehicles), step):
            some, begins = self._rows_of(rows, vehicles[first : first + step], work.computation)
            needed = matrix[some[:, None], work.columns]
            if ruled is not None and work.computation.one_row:
                of_vehicles = ruled[vehicles[first : first + step, None], work.columns]
                needed = with_rules(work.computation.attributes, needed, of_vehicles)
            values: VehicleValues = work.computation.answers(needed, begins)
            records += work.read.plan.records(values, self._source).split()
        return records

    def _rows(self) -> tuple[Floats, VehicleRows, Floats | None]:
        held = self._data.held()
        if self._cleaned is None or self._cleaned[0] is not held:
            schema = self._data.schema
            ruled = None if held.ruled is None else _cleaned(schema, held.ruled)
            self._cleaned = held, _cleaned(schema, held.matrix), VehicleRows(held.owners), ruled
        return self._cleaned[1:]

    def _rows_of(
        self, rows: VehicleRows, vehicles: Integers, computation: Computation
    ) -> tuple[Integers, Integers | None]:
        """Return rows of some vehicles, and where those of each begin; None if each has one.

        Of a vehicle with more rows than are used, neighbours are taken, from a random one on; the
        first row follows the last. So each row is equally likely.
        """
        some, begins = rows.of(vehicles)
        most = most_rows(computation)
        sizes = np.diff(begins, append=len(some))
        offsets = (self._source.uniform(len(begins)) * sizes).astype(np.int64)
        if most == 1:
            return some[begins + offsets], None
        if most >= MOST_ROWS and sizes.max(initial=0) <= MOST_ROWS:
            return some, begins
        taken = np.minimum(sizes, most)
        starts = np.cumsum(taken) - taken
        places = np.arange(taken.sum()) + np.repeat(offsets - starts, taken)
        return some[np.repeat(begins, taken) + places % np.repeat(sizes, taken)], starts

    def _columns(self, attributes: Sequence[Attribute]) -> Integers:
        """Return the columns of some attributes, which this agent must hold with these bounds."""
        columns: dict[Attribute, Integers] = {}
        place = 0
        for attribute in self._data.schema.attributes:
            columns[attribute] = np.arange(place, place + attribute.size)
            place += attribute.size
        if not all(attribute in columns for attribute in attributes):
            raise DomainError(
                "the question asks for attributes that this agent does not hold with these bounds "
                "and rules."
            )
        return np.concatenate([columns[attribute] for attribute in attributes])


_ANSWERED = "have answered this job before"
_UNABLE = "have too little left for all answers of the calendar"
_SILENT = "have not drawn this period or round"
_BINDING = {_ANSWERED, _UNABLE, _SILENT}  # for those, too, that repeat an answer at no cost


def _chosen(
    epsilons: Sequence[Fraction | None], vehicles: int
) -> tuple[list[Fraction | None], Integers]:
    """Return the different epsilons, and which of them each vehicle has chosen."""
    if not epsilons:
        return [None], np.zeros(vehicles, np.int64)
    distinct = list(dict.fromkeys(epsilons))
    place = {epsilon: number for number, epsilon in enumerate(distinct)}
    return distinct, np.array([place[epsilon] for epsilon in epsilons])


def _cleaned(schema: Schema, matrix: Floats) -> Floats:
    """Return a copy with NaN, which means missing, for what is not a value of its attribute.

    A record drawn from an invalid code could be distinguished from all others.
    """
    cleaned, place = np.array(matrix, np.float64), 0
    for attribute in schema.attributes:
        columns = cleaned[:, place : place + attribute.size]
        columns[~attribute.inputs.known(columns)] = np.nan
        place += attribute.size
    return cleaned


@lru_cache(maxsize=4)
def _read(text: str, cap: Fraction) -> _Read:
    """Read a plan, and check its integers and its cost against a cap, as a small vehicle does."""
    what = read_plan_or_period(text)
    checked = for_vehicle(what.plan, cap)
    period = CalendarPeriod.from_json(text) if what.calendar else None
    plan = Plan.from_json(what.plan) if period is None else period.calendar.plan
    if plan.to_json() != what.plan:  # so that a question has one form and one digest
        raise DomainError("the plan must be in canonical form, as Plan.to_json writes it.")
    return _Read(plan, checked, period)
