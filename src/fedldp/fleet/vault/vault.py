"""The vault: the only process that a vehicle must trust.

It holds the data, the cap, the ledger and the random source. A question may come from anybody. Each
answer is drawn through a plan whose integer tables were checked here, costs no more than the cap
allows, and is written to the ledger before it is sent. Only the question, the owner's settings and
the ledger may cause a refusal, never the data. A question contains no code: it names a computation
that is installed here, such as the gradient of a model (see `fedldp.learn.computations`).

A vehicle answers a job once, or as often as the owner allows (`Ledger.answers_per_job`), even if
its cap would cover more; and only with the epsilon that it has chosen, if it has chosen one. A
question cannot change that. A plan that asks only for attributes that are declared constant costs a
vehicle once in its life: in later jobs it repeats its answer. If the plan belongs to a calendar, a
vehicle answers only in the periods that it has drawn, each of them once.

The owner may allow less (`Policy`), and pin the public key of the operator: then only questions are
answered that a job covers which the operator has signed (`fedldp.fleet.signed_jobs`). What was
asked stands in a hash chain in the ledger (`fedldp.fleet.transparency`).
"""

import contextlib
import datetime
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt

from fedldp import vehicle
from fedldp._internal.validation import Floats, Integers
from fedldp.budget.calendars import CalendarPeriod
from fedldp.budget.ledger import Ledger
from fedldp.budget.periods import is_period, read_plan_or_period
from fedldp.budget.vehicle import PlanQuestion, for_vehicle
from fedldp.budget.vehicles import Vehicles
from fedldp.errors import DomainError, FedLDPError, PrivacyError, WireError
from fedldp.fleet import transparency
from fedldp.fleet.protocol import Answer, Question
from fedldp.fleet.signed_jobs import SignedJob, SignedStage
from fedldp.fleet.vault.policy import Policy
from fedldp.learn.computations import (
    MOST_ROWS,
    Computation,
    asked_for,
    check_work,
    most_rows,
    vehicles_at_once,
)
from fedldp.learn.examples import VehicleRows
from fedldp.plan.parts import Values
from fedldp.plan.plan import Plan
from fedldp.randomness import Source
from fedldp.randomness import source as secret_source
from fedldp.schema.attributes import Attribute
from fedldp.schema.schema import Schema
from fedldp.signing import Trusted

_Asked = Callable[[Integers], Iterator[Values]]  # what some vehicles answer, some at a time


class _Checked(NamedTuple):
    plan: Plan
    read: vehicle.Plan  # the same plan, as a small vehicle reads it
    period: CalendarPeriod | None  # in which the plan is asked, if it belongs to a calendar

    @property
    def cost(self) -> Fraction:
        """What a report costs."""
        return self.read.epsilon

    def asked(self, question: Question) -> PlanQuestion:
        """Return what a question asks of each vehicle."""
        period = self.period and (self.period.calendar.fingerprint, self.period.number)
        return PlanQuestion(
            self.read,
            question.job,
            str(question.round),
            question.digest,
            period=period,
            entry=transparency.entry(question),
            former=(f"records of {question.paid_for}",) if period else (),
            repeats=not question.model,
        )


@final
class Vault:
    """The vehicles of one owner: often one, sometimes many.

    If a vehicle has more than a thousand rows, a random thousand are kept.

    Parameters
    ----------
    schema : Schema
        The attributes of the rows, with their public bounds and categories.
    matrix : ndarray of shape (rows, width)
        The rows as `Schema.rows(data).matrix()` returns them; NaN where a value is missing.
    vehicle_ids : sequence of str of length rows
        The id of each row's vehicle. Each vehicle has one budget.
    ledger : Ledger
        Records what each vehicle has spent. It holds the cap and the number of answers per job.
    source : Source, optional
        The random source, by default keyed by the operating system. A source with a seed is
        refused.
    epsilons : sequence of Fraction of length rows, optional
        The epsilon that each row's vehicle has chosen. The vehicle answers only plans with this
        epsilon.
    policy : Policy, optional
        What the owner allows, beyond the cap. The limit for a period belongs to the ledger.
    operator : PublicKey or PublicKeys, optional
        The operator's public key, or both while it changes. Only questions of jobs that it has
        signed are answered. By default all are.

    Raises
    ------
    DomainError
        If the shapes do not fit together, a vehicle_id cannot be printed, the epsilon differs
        between the rows of one vehicle, or the policy names unknown attributes.
    PrivacyError
        If the source has a seed: anybody who knows it could remove the noise.

    Examples
    --------
    >>> import pathlib, tempfile, fedldp
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger.create(pathlib.Path(folder.name) / "ledger.db", cap=1.0)
    >>> schema = Schema.of(speed=(0, 50))
    >>> vault = Vault(schema, np.array([[31.0], [48.0]]), ["car 1", "car 2"], ledger)
    >>> plan = Plan(schema, epsilon=1.0)
    >>> question = Question(job="spring", round=1, gateway="7", n=3, plan=plan.to_json())
    >>> vault.answer(question).answered, vault.answer(question) == vault.answer(question)
    (2, True)
    >>> ledger.totals()
    {'car 1': Fraction(1, 1), 'car 2': Fraction(1, 1)}
    >>> from fedldp.signing import PrivateKey
    >>> vault.trust(PrivateKey.generate().public)
    >>> vault.answer(question)
    Traceback (most recent call last):
    fedldp.errors.DomainError: this vault answers only jobs that its operator has signed; ...
    >>> ledger.close(); folder.cleanup()
    """

    def __init__(
        self,
        schema: Schema,
        matrix: Floats,
        vehicle_ids: Sequence[str],
        ledger: Ledger,
        source: Source | None = None,
        epsilons: Sequence[Fraction] | None = None,
        policy: Policy | None = None,
        operator: Trusted | None = None,
    ) -> None:
        width = sum(attribute.size for attribute in schema.attributes)
        if matrix.shape != (len(vehicle_ids), width) or not len(vehicle_ids):
            raise DomainError(
                f"matrix must have a row of {width} values for each of {len(vehicle_ids)} "
                f"vehicle_ids, and at least one; got an array of shape {matrix.shape}."
            )
        for row, each in enumerate(vehicle_ids):
            if not isinstance(each, str) or not each.isprintable():
                raise DomainError(
                    "every vehicle_id must be a text of printable characters; "
                    f"the one of row {row} is not."
                )
        self._schema, self._ledger = schema, ledger
        self._policy, self._operator = policy or Policy(), operator
        self._policy.check_schema(schema)
        self._source = secret_source() if source is None else source
        if not self._source.secret:
            raise PrivacyError(
                f"a vault needs a source keyed by the operating system; got {source!r}. Anybody "
                "who knows the seed can remove the noise from the reports. Use fedldp.source()."
            )
        self._names, numbers = np.unique(np.asarray(vehicle_ids), return_inverse=True)
        kept = self._some_rows(numbers)
        self._matrix = _cleaned(schema, matrix[kept])
        self._rows = VehicleRows(numbers[kept])
        self._epsilons, self._epsilon_of = _chosen(epsilons, numbers)
        totals = ledger.totals()
        # What each vehicle has spent, as the index in a list: there are few different sums.
        self._sums = [Fraction()]
        spent = [self._place(totals.get(name, Fraction())) for name in self._names.tolist()]
        self._spent = np.array(spent)
        self._job, self._answers = "", np.zeros(len(self._names), np.int64)  # of each in one job
        self._choosing = threading.Lock()
        self.missing = ""  # which vehicles could not answer the last question that was new

    def __len__(self) -> int:
        return len(self._names)

    @property
    def vehicle_ids(self) -> list[str]:
        """The vehicles, each once."""
        return list(self._names.tolist())

    def trust(self, operator: Trusted | None) -> None:
        """Answer from now on the questions of jobs that this operator has signed, and no others.

        Parameters
        ----------
        operator : PublicKey or PublicKeys, optional
            The operator's public key, or both while it changes. Without one, all are answered.
        """
        self._operator = operator

    def answer(self, question: Question) -> Answer:
        """Return the answer of up to `question.n` vehicles that may answer.

        Vehicles that have given the fewest answers in this job come first, in random order. The
        same question gets the same answer.

        Parameters
        ----------
        question : fedldp.fleet.protocol.Question
            The question of the server: a job and a round, a plan and, for a training, a model.

        Returns
        -------
        fedldp.fleet.protocol.Answer
            The records of the vehicles that answered, in an order that reveals nothing.

        Raises
        ------
        FedLDPError
            If the question must not be answered: the operator has not signed it, the owner does
            not allow it, or its plan or model is invalid, asks for attributes that this vault does
            not hold, takes too much memory or time, or leaks more than it claims.
        OSError
            If the ledger cannot be read or written. Nothing is released then.
        """
        covered = False  # by a job that the operator has signed
        try:
            # Quick checks come first: a few bytes can describe a plan that needs all memory.
            stage = self._signed(question)
            question.check()
            asked = self._asked(question)
            if stage is not None:
                stage.check(asked)
                covered = True
            values = self._values(asked)
            checked = _checked(question.plan, self._ledger.cap)
            if checked.period is not None and question.model:
                raise DomainError("a calendar asks for rows; the question also has a model.")
            self._policy.check(question.job, checked.cost, asked.attributes)
            with self._choosing, _ledger_errors():
                records = self._answer(question, checked, values)
        except FedLDPError:
            self._note(question, covered)
            raise
        if not records:
            self._note(question, covered)
        return Answer.of(question, records.values())

    def _signed(self, question: Question) -> SignedStage | None:
        """Return what the operator has signed for a question; None if no operator is known."""
        if self._operator is None:
            return None
        if not question.signed:
            raise DomainError(
                "this vault answers only jobs that its operator has signed; the question has no "
                "signature."
            )
        return SignedJob.verified(question.signed, self._operator, _now()).stage_of(question)

    def check_signed(self, question: Question) -> None:
        """Raise an error if the operator has not signed the job of a question.

        Neither the plan nor the model is parsed, so that a stranger's question costs little.

        Parameters
        ----------
        question : fedldp.fleet.protocol.Question
            The question.

        Raises
        ------
        FedLDPError
            If this vault holds the operator's public key, and no signed job covers the question.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from fedldp.signing import PrivateKey
        >>> folder = tempfile.TemporaryDirectory()
        >>> ledger = Ledger.create(pathlib.Path(folder.name) / "ledger.db", cap=1.0)
        >>> schema, operator = Schema.of(speed=(0, 50)), PrivateKey.generate().public
        >>> vault = Vault(schema, np.array([[31.0]]), ["car 1"], ledger, operator=operator)
        >>> question = Question(job="spring", round=1, gateway="7", n=3, plan="anything")
        >>> vault.check_signed(question)
        Traceback (most recent call last):
        fedldp.errors.DomainError: this vault answers only jobs that its operator has signed; ...
        >>> ledger.close(); folder.cleanup()
        """
        self._signed(question)

    def note_unsigned(self, question: Question) -> None:
        """Record a question that the operator has not signed, for the owner.

        Parameters
        ----------
        question : fedldp.fleet.protocol.Question
            The question.

        Raises
        ------
        OSError
            If the ledger cannot be written.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from fedldp.signing import PrivateKey
        >>> folder = tempfile.TemporaryDirectory()
        >>> ledger = Ledger.create(pathlib.Path(folder.name) / "ledger.db", cap=1.0)
        >>> schema, operator = Schema.of(speed=(0, 50)), PrivateKey.generate().public
        >>> vault = Vault(schema, np.array([[31.0]]), ["car 1"], ledger, operator=operator)
        >>> question = Question(job="spring", round=1, gateway="7", n=3, plan="anything")
        >>> vault.note_unsigned(question)
        >>> len(ledger.refused())
        1
        >>> ledger.close(); folder.cleanup()
        """
        self._note(question, covered=False)

    def _note(self, question: Question, covered: bool) -> None:
        """Record a question that nobody has answered, for the owner."""
        # What is not covered may be invalid: then nobody knows what would be paid for.
        request = question.paid_for if covered else question.request
        with _ledger_errors():
            self._ledger.note(request, transparency.entry(question), chained=covered)

    def _answer(self, question: Question, checked: _Checked, values: _Asked) -> Mapping[str, bytes]:
        # The choice depends only on the owner's settings and on the ledger, which has the last
        # word.
        self._count(question.job)
        covered = [spent + checked.cost <= self._ledger.cap for spent in self._sums]
        affordable, recent = np.array(covered)[self._spent], self._within_period(checked.cost)
        allowed, willing = self._answers < self._ledger.answers_per_job, self._willing(checked.plan)
        able = affordable & recent & willing
        vehicles, asked = Vehicles(self._ledger), checked.asked(question)
        repeats = np.zeros(len(able), np.bool_)
        if asked.constant is not None:  # who has answered this plan repeats its answer, at no cost
            repeats = np.isin(self._names, list(vehicles.repeating(asked)))
        follow, drawn = self._drawn(vehicles, asked, checked.period)
        free = np.flatnonzero((able | repeats) & allowed & drawn)
        order = np.lexsort((self._source.words(len(free)), self._answers[free]))
        chosen = free[order[: question.n]]
        numbers = dict(zip(self._names[chosen].tolist(), chosen.tolist(), strict=True))
        paying: list[int] = []

        def draw(able: list[str]) -> list[bytes]:
            self._policy.check_vehicles(len(able) + int(repeats[chosen].sum()))
            paying.extend(numbers[each] for each in able)
            return self._records(checked.plan, values, np.array(paying, np.int64))

        records = vehicles.answer(asked, list(numbers), draw)
        paid = np.array(paying, np.int64)
        before = self._spent[paid]
        for place in np.unique(before).tolist():
            self._spent[paid[before == place]] = self._place(self._sums[place] + checked.cost)
        self._answers[paid] += 1
        obstacles = {
            "have answered this job before": allowed,
            "have too little left for all answers of the calendar": follow,
            "have not drawn this period": drawn,
            "have too little left of their cap": affordable | repeats,
            "have spent too much in this period": recent | repeats,
            "have chosen another epsilon": willing | repeats,
        }
        self.missing = _missing(obstacles, len(self)) if paying or not records else ""
        if asked.constant is not None:
            self._job = ""  # so that answers that were repeated are counted, from the ledger
        return records

    def _count(self, job: str) -> None:
        """Read how many answers each vehicle has given in a job, unless that is known.

        Only one job is kept at a time, so that invented names of jobs take no memory.
        """
        if job != self._job:
            found = self._ledger.answers(job)
            counts = [found.get(name, 0) for name in self._names.tolist()]
            self._job, self._answers = job, np.array(counts)

    def _willing(self, plan: Plan) -> npt.NDArray[np.bool_]:
        """Return which vehicles answer a plan: those without a choice, or with its epsilon."""
        asked = vehicle.exact(plan.epsilon)
        return np.array([each in (None, asked) for each in self._epsilons])[self._epsilon_of]

    def _within_period(self, cost: Fraction) -> npt.NDArray[np.bool_]:
        """Return which vehicles may spend this much now, by the ledger's limit for a period."""
        if (period := self._ledger.period) is None:
            return np.ones(len(self._names), np.bool_)
        recent, nothing = self._ledger.recent(), Fraction()
        left = period.most - cost
        return np.array([recent.get(name, nothing) <= left for name in self._names.tolist()])

    def _drawn(
        self, vehicles: Vehicles, asked: PlanQuestion, period: CalendarPeriod | None
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Return which vehicles follow a calendar, and which of them answer in a period of it.

        Vehicles that have not drawn their periods draw them now.
        """
        if period is None:
            return (all_of_them := np.ones(len(self._names), np.bool_)), all_of_them
        names = self._names.tolist()
        found = vehicles.answering(asked, period.calendar, names, self._source)
        follow = np.array([each in found for each in names])
        return follow, np.array([found.get(each, False) for each in names])

    def _place(self, spent: Fraction) -> int:
        if spent not in self._sums:
            self._sums.append(spent)
        return self._sums.index(spent)

    def _some_rows(self, owners: Integers) -> Integers:
        """Return the rows to keep, in order: at most `MOST_ROWS` of each vehicle."""
        mixed = np.argsort(self._source.words(len(owners)), kind="stable")
        mixed = mixed[np.argsort(owners[mixed], kind="stable")]  # rows of one vehicle together
        sizes = np.bincount(owners)
        places = np.arange(len(owners)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return np.sort(mixed[places < MOST_ROWS])

    def _records(self, plan: Plan, values: _Asked, vehicles: Integers) -> list[bytes]:
        """Return the records of some vehicles, each as separate bytes for the ledger."""
        found: list[bytes] = []
        for block in values(vehicles):
            found += plan.records(block, self._source).split()
        return found

    def _asked(self, question: Question) -> Computation:
        """Return what a question asks for, which depends on public numbers alone."""
        schema = _schema(question.plan_alone)
        asked = asked_for(schema, question.model)
        if question.model and not schema.is_vector(asked.dimensions):
            raise DomainError(
                "the plan must be for what is asked, a vector of "
                f"{asked.dimensions} numbers, such as the gradient of a model."
            )
        check_work(asked, question.n)
        return asked

    def _values(self, asked: Computation) -> _Asked:
        """Return a function that maps vehicles to the values that they are asked for.

        It computes nothing yet.
        """
        columns, step = self._columns(asked.attributes), vehicles_at_once(asked)

        def values(vehicles: Integers) -> Iterator[Values]:
            for first in range(0, len(vehicles), step):
                rows, begins = self._rows_of(vehicles[first : first + step], most_rows(asked))
                yield asked.answers(self._matrix[rows[:, None], columns], begins)

        return values

    def _rows_of(self, vehicles: Integers, most: int) -> tuple[Integers, Integers | None]:
        """Return rows of some vehicles, and where those of each begin; None if each has one.

        Of a vehicle with more than `most` rows, as many neighbours are taken, from a random one on;
        the first row follows the last. So each row is equally likely.
        """
        rows, begins = self._rows.of(vehicles)
        if most >= MOST_ROWS:
            return rows, begins
        sizes = np.diff(begins, append=len(rows))
        offsets = (self._source.uniform(len(begins)) * sizes).astype(np.int64)
        if most == 1:
            return rows[begins + offsets], None
        taken = np.minimum(sizes, most)
        starts = np.cumsum(taken) - taken
        places = np.arange(taken.sum()) + np.repeat(offsets - starts, taken)
        return rows[np.repeat(begins, taken) + places % np.repeat(sizes, taken)], starts

    def _columns(self, attributes: Sequence[Attribute]) -> Integers:
        """Return the columns of some attributes, which this vault must hold with these bounds."""
        found: dict[Attribute, Integers] = {}
        place = 0
        for held in self._schema.attributes:
            found[held] = np.arange(place, place + held.size)
            place += held.size
        if not all(attribute in found for attribute in attributes):
            raise DomainError(
                "the question asks for attributes that this vault does not hold with these bounds."
            )
        return np.concatenate([found[attribute] for attribute in attributes])


def _chosen(
    epsilons: Sequence[Fraction] | None, owners: Integers
) -> tuple[list[Fraction | None], Integers]:
    """Return the different epsilons, and which of them each vehicle has chosen.

    `epsilons` has one for each row.
    """
    if epsilons is None:
        return [None], np.zeros(int(owners.max()) + 1, np.int64)
    if len(epsilons) != len(owners):
        raise DomainError(
            f"epsilons must have one for each of {len(owners)} rows; got {len(epsilons)}."
        )
    distinct = sorted(set(epsilons))
    place = {each: number for number, each in enumerate(distinct)}
    found = VehicleRows(owners).one_each([place[each] for each in epsilons])
    if found is None:
        raise DomainError("epsilons must be the same in all rows of a vehicle.")
    return [*distinct], found


def _cleaned(schema: Schema, matrix: Floats) -> Floats:
    """Return a copy with NaN, which means missing, for what is not a value of its attribute.

    A record drawn from an invalid code could be distinguished from all others.
    """
    found, place = np.array(matrix, np.float64), 0
    for attribute in schema.attributes:
        columns = found[:, place : place + attribute.size]
        columns[~attribute.inputs.known(columns)] = np.nan
        place += attribute.size
    return found


def _missing(obstacles: dict[str, npt.NDArray[np.bool_]], vehicles: int) -> str:
    """Return how many vehicles may not answer, and why; each is counted once.

    >>> _missing({"are red": np.array([True, False, False]), "are old": np.ones(3, bool)}, 3)
    'of its 3 vehicles, 2 are red'
    """
    found, passed = [], np.ones(vehicles, np.bool_)
    for why, passes in obstacles.items():
        if count := int((passed & ~passes).sum()):
            found.append(f"{count} {why}")
        passed = passed & passes
    return f"of its {vehicles} vehicles, {', '.join(found) or 'all have answered'}"


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


@contextlib.contextmanager
def _ledger_errors() -> Iterator[None]:
    """Turn the error of a damaged ledger into an `OSError`: the question is not at fault."""
    try:
        yield
    except WireError as error:
        raise OSError(str(error)) from error


def _schema(plan: str) -> Schema:
    try:
        return Schema.from_document(json.loads(plan)["schema"])
    except vehicle.UNREADABLE as error:
        raise WireError(f"the plan has no schema: {error}") from None


@lru_cache(maxsize=4)
def _checked(text: str, cap: Fraction) -> _Checked:
    """Read a plan, and check its integers and its cost against a cap, as a small vehicle does."""
    alone = read_plan_or_period(text).plan
    read = for_vehicle(alone, cap)
    period = CalendarPeriod.from_json(text) if is_period(text) else None
    plan = Plan.from_json(alone) if period is None else period.calendar.plan
    if plan.to_json() != alone:  # so that a question has one form and one digest
        raise DomainError("the plan must be in canonical form, as Plan.to_json writes it.")
    return _Checked(plan, read, period)
