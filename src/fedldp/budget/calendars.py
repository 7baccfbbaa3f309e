"""The same question again and again: in which periods a vehicle answers, and trends over periods.

A vehicle that answers in every one of T periods pays T times. Before it sees any data, a vehicle
therefore draws k of the T periods, each set of k equally likely, and answers in those alone. Its
reports and its silence together cost k times the plan's epsilon, whatever its values are and
however they change. If the plan asks only for what never changes, a vehicle repeats its first
answer, and pays once. docs/repeated.md has the proof.

Errors of trends are added as if each period had asked other vehicles. That is never too small. Let
u_t be what a vehicle contributes if it answers in period t. Over the draw of its k periods, the sum
of its contributions has the variance

    (pi - pi2) sum(u_t^2) + (pi2 - pi^2) sum(u_t)^2 <= pi sum(u_t^2),

with pi = k / T, and pi2 = k (k - 1) / (T (T - 1)) for two periods. Since pi2 <= pi^2, the second
term is not positive, and the right side is what independent periods would give.
"""

import hashlib
import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, final

import numpy as np

from fedldp import vehicle
from fedldp._internal import documents, packing
from fedldp._internal.text import counted
from fedldp._internal.validation import Floats, Integers, whole
from fedldp.budget.composition import Composition
from fedldp.budget.periods import PERIOD_FORMAT, is_period
from fedldp.errors import DomainError, ImplausibleWarning
from fedldp.plan.parts import Matrix
from fedldp.plan.plan import Plan
from fedldp.plan.report import Report
from fedldp.randomness import Source, study_source
from fedldp.results import plausibility
from fedldp.results.estimate import Estimate
from fedldp.results.tally import Tally
from fedldp.schema.attributes.grouped import Differences
from fedldp.schema.attributes.results import Numbers, Result
from fedldp.schema.quality import total
from fedldp.vehicle import CALENDAR_FORMAT, MOST_PERIODS


@final
@dataclass(frozen=True)
class Trend:
    """How the numbers of a fleet change over periods.

    Attributes
    ----------
    slope
        By how much each number grows in a period: the slope of the straight line with the least
        squared distance from the estimates of all periods.
    changes
        For each period but the first, by how much each number is larger than in the period before
        it that was counted.

    Notes
    -----
    Both consist of estimates of `Differences`, one for each attribute. Their `interval` is for one
    number alone. Their `simultaneous` intervals contain all slopes and all changes at once.

    Examples
    --------
    >>> import fedldp
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 4.0, fedldp.Sample(mechanism="hm-tp"))
    >>> calendar = fedldp.Calendar(plan, periods=3, answers=2)
    >>> rows = [[{"speed": speed}] * 20_000 for speed in (20, 22, 24)]
    >>> trend = calendar.trend(calendar.simulate(rows, fedldp.source(3)))
    >>> trend.slope["speed"]
    <Differences: 2.012 ± 0.092; 13,316 answers>
    >>> list(trend.changes)
    [2, 3]
    """

    slope: Estimate
    changes: dict[int, Estimate]


@final
@dataclass(frozen=True)
class Calendar:
    """A plan that is asked in many periods, of which each vehicle answers in a few.

    Both sides hold the calendar. Each vehicle draws its periods by itself, before it sees any data,
    and a `Ledger` keeps them, so that it never draws again.

    Parameters
    ----------
    plan
        What is asked in each period.
    periods
        The number of periods, which are numbered from 1: 30 for each day of a month.
    answers
        In how many of them a vehicle answers. With as many answers as periods it answers always,
        and pays for it.

    Attributes
    ----------
    epsilon
        What a vehicle spends over all periods, exactly: the plan's epsilon for each answer, or once
        if the plan asks only for attributes that the schema declares constant.
    share
        The share of the vehicles that answers in a period, on average.
    fingerprint
        The SHA-256 of the canonical JSON, in hexadecimal.

    Raises
    ------
    DomainError
        If plan is not a `Plan`, there are not from 1 to 65,536 periods, or the answers are not from
        1 to the number of periods.

    Examples
    --------
    >>> import fedldp
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 0.5, fedldp.Sample(mechanism="hm-tp"))
    >>> calendar = Calendar(plan, periods=30, answers=4)
    >>> calendar
    <Calendar: each vehicle answers in 4 of 30 periods, epsilon 0.5 each and 2 in all>
    >>> calendar.epsilon, calendar.draw(fedldp.source(1))
    (Fraction(2, 1), (17, 21, 24, 27))
    >>> model = fedldp.Category("model", ["A", "B", "C"], constant=True)
    >>> Calendar(fedldp.Plan(fedldp.Schema((model,)), epsilon=0.5), periods=30, answers=30)
    <Calendar: each vehicle answers in 30 of 30 periods, epsilon 0.5 in all: it repeats its answer>
    """

    plan: Plan
    periods: int
    answers: int

    def __post_init__(self) -> None:
        if not isinstance(self.plan, Plan):
            raise DomainError(f"plan must be a Plan; got {self.plan!r:.80}.")
        for name in ("periods", "answers"):
            object.__setattr__(self, name, whole(getattr(self, name), name))
        if not 1 <= self.answers <= self.periods <= MOST_PERIODS:
            raise DomainError(
                f"a calendar needs from 1 to {MOST_PERIODS:,} periods and from 1 answer to as many "
                f"as periods; got {self.periods} periods and {self.answers} answers."
            )

    def __repr__(self) -> str:
        each = float(self.plan.total_epsilon)
        costs = f"{each:.12g} each and {float(self.epsilon):.12g} in all"
        costs = f"{each:.12g} in all: it repeats its answer" if self.plan.constant else costs
        periods = counted(self.periods, "period")
        return f"<Calendar: each vehicle answers in {self.answers} of {periods}, epsilon {costs}>"

    @property
    def epsilon(self) -> Fraction:
        """What a vehicle spends over all periods, exactly."""
        return self.composition.epsilon

    @property
    def composition(self) -> Composition:
        """The cost of all periods: `epsilon`, and a smaller one with a probability left out."""
        answers = 1 if self.plan.constant else self.answers
        return Composition.of({self.plan.total_epsilon: answers})

    @property
    def share(self) -> Fraction:
        """The share of the vehicles that answers in a period, on average."""
        return Fraction(self.answers, self.periods)

    def draw(self, source: Source) -> tuple[int, ...]:
        """Draw the periods in which a vehicle answers, each set of them equally likely.

        Parameters
        ----------
        source
            The random source, from `fedldp.source`.

        Returns
        -------
        tuple of int
            The periods in ascending order.

        Examples
        --------
        >>> import fedldp
        >>> schema = fedldp.Schema.of(speed=(0, 50))
        >>> plan = fedldp.Plan(schema, 0.5, fedldp.Sample(mechanism="hm-tp"))
        >>> Calendar(plan, periods=7, answers=2).draw(fedldp.source(1))
        (3, 7)
        """
        return tuple(self.draw_many(1, source)[0].tolist())

    def draw_many(self, vehicles: int, source: Source) -> Integers:
        """Draw the periods of many vehicles at once.

        Parameters
        ----------
        vehicles
            The number of vehicles.
        source
            The random source, from `fedldp.source`.

        Returns
        -------
        array of int
            A row for each vehicle: its periods in ascending order.

        Examples
        --------
        >>> import fedldp
        >>> schema = fedldp.Schema.of(speed=(0, 50))
        >>> plan = fedldp.Plan(schema, 0.5, fedldp.Sample(mechanism="hm-tp"))
        >>> Calendar(plan, periods=7, answers=2).draw_many(3, fedldp.source(1)).shape
        (3, 2)
        """
        return source.choose(self.answers, self.periods, vehicles) + 1

    def check_period(self, period: int) -> int:
        """Return the number of a period, or raise an error if there is no such period.

        Parameters
        ----------
        period
            The number, from 1.

        Returns
        -------
        int
            The number.

        Raises
        ------
        DomainError
            If it is not from 1 to the number of periods.

        Examples
        --------
        >>> import fedldp
        >>> schema = fedldp.Schema.of(speed=(0, 50))
        >>> plan = fedldp.Plan(schema, 0.5, fedldp.Sample(mechanism="hm-tp"))
        >>> Calendar(plan, periods=7, answers=2).check_period(3)
        3
        """
        if not 1 <= whole(period, "period") <= self.periods:
            raise DomainError(
                f"period must be a whole number from 1 to {self.periods}; got {period!r}."
            )
        return int(period)

    def simulate(self, data: Iterable[Any], source: Source) -> dict[int, Tally]:
        """Return the tally of each period of a simulated fleet.

        Parameters
        ----------
        data
            The rows of each period, in the order of the periods, as for `Plan.report`. A vehicle
            has the same place in all of them.
        source
            The random source, from `fedldp.source`.

        Returns
        -------
        dict of Tally
            The tally of each period: about `answers / periods` of the vehicles are in each.

        Raises
        ------
        DomainError
            If the number of periods or of vehicles differs, or the data cannot be read.

        Examples
        --------
        >>> import fedldp
        >>> schema = fedldp.Schema.of(speed=(0, 50))
        >>> plan = fedldp.Plan(schema, 4.0, fedldp.Sample(mechanism="hm-tp"))
        >>> rows = [[{"speed": 30}] * 6000] * 3
        >>> tallies = Calendar(plan, periods=3, answers=1).simulate(rows, fedldp.source(1))
        >>> {period: tally.reports for period, tally in tallies.items()}
        {1: 1990, 2: 2027, 3: 1983}
        """
        tallies: dict[int, Tally] = {}
        source = study_source(source)
        seen, drawn = [], None
        answers: dict[int, bytes] = {}  # that vehicles repeat
        for period, rows in enumerate(data, 1):
            matrix, quality = self.plan.schema.rows(rows).read()
            seen.append(quality)
            if drawn is None:
                drawn = self.draw_many(len(matrix), source)
            if len(matrix) != len(drawn):
                raise DomainError(
                    f"every period must have the rows of the same vehicles: {len(drawn)} in the "
                    f"first one; got {len(matrix)} in period {period}."
                )
            askable = np.flatnonzero((drawn == period).any(axis=1))
            if self.plan.constant:
                tallies[period] = self._repeated(matrix, askable, answers, source)
                continue
            batches = (
                Matrix(matrix[askable[slice(*chunk)]]) for chunk in self.plan.chunks(len(askable))
            )
            tallies[period] = self.plan.simulate_batches(batches, source)
        if len(tallies) != self.periods:
            raise DomainError(
                f"data must have the rows of {counted(self.periods, 'period')}; got {len(tallies)}."
            )
        total(seen).refuse_unusable()
        total(seen).warn(stacklevel=2, strict=False)
        return tallies

    def _repeated(
        self, matrix: Floats, rows: Integers, answers: dict[int, bytes], source: Source
    ) -> Tally:
        """Return the tally of some vehicles, of which each repeats its answer if it has given one.

        New answers are added to `answers`.
        """
        new = np.array([row for row in rows.tolist() if row not in answers], np.int64)
        for first, last in self.plan.chunks(len(new)):
            chunk = new[first:last]
            drawn = self.plan.records(Matrix(matrix[chunk]), source).split()
            answers.update(zip(chunk.tolist(), drawn, strict=True))
        bits = self.plan.bits
        records = packing.join([answers[row] for row in rows.tolist()], bits).to_bytes()
        return self.plan.parse(Report(self.plan.fingerprint, bits, len(rows), records))

    def trend(
        self,
        tallies: Mapping[int, Tally],
        *,
        estimator: str | None = None,
        confidence: float = 0.95,
    ) -> Trend:
        """Return how the numbers of the fleet change over the periods that were counted.

        The intervals are about all vehicles that follow the calendar, whether or not they answered
        in a period. They hold however the values of a vehicle depend on each other: see the notes.

        Parameters
        ----------
        tallies
            A tally of the plan for each of two periods or more; others may be missing.
        estimator
            As for `Tally.estimate`; by default the plan's estimator.
        confidence
            The confidence of the intervals, between 0 and 1.

        Returns
        -------
        Trend
            The slope, and the change from each period to the next one.

        Raises
        ------
        DomainError
            If there are fewer than two tallies, or one is of another plan or of no such period.

        Notes
        -----
        Errors are added as if the periods had asked different vehicles. A vehicle that answers in
        one period is less likely to answer in another one, as it answers k times in all, so the
        true error is smaller. The module `fedldp.budget.calendars` begins with the proof.

        Examples
        --------
        >>> import fedldp
        >>> schema = fedldp.Schema.of(speed=(0, 50))
        >>> plan = fedldp.Plan(schema, 4.0, fedldp.Sample(mechanism="hm-tp"))
        >>> calendar = Calendar(plan, periods=3, answers=2)
        >>> rows = [[{"speed": speed}] * 20_000 for speed in (20, 22, 24)]
        >>> trend = calendar.trend(calendar.simulate(rows, fedldp.source(3)))
        >>> trend.slope["speed"].interval.round(1)
        array([[1.9, 2.1]])
        """
        counted_in = sorted(map(self.check_period, tallies))
        if len(counted_in) < 2:
            raise DomainError(f"a trend needs the tallies of two periods; got {len(counted_in)}.")
        if any(tally.plan != self.plan.fingerprint for tally in tallies.values()):
            raise DomainError("a trend needs tallies of the calendar's own plan; got another one.")
        alone = [
            tallies[period].estimate(estimator, confidence=confidence) for period in counted_in
        ]
        # All at once: a slope and changes are as many numbers as there are periods, each as many as
        # an estimate has. The estimates share the risk among the latter.
        shared = 1 - (1 - confidence) / len(counted_in)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ImplausibleWarning)  # it was issued above
            together = [
                tallies[period].estimate(estimator, confidence=shared) for period in counted_in
            ]

        def weighted(weights: Floats) -> Estimate:
            used = np.flatnonzero(weights).tolist()
            return Estimate(
                {
                    name: _weighted_sum(
                        weights[used],
                        [alone[i][name] for i in used],
                        [together[i][name] for i in used],
                    )
                    for name in self.plan.schema
                },
                sum(alone[i].reports for i in used),
                confidence,
                "population",
                plausibility.merge([alone[i].plausibility for i in used]),
            )

        steps = np.diff(np.eye(len(counted_in)), axis=0)
        changes = {after: weighted(step) for after, step in zip(counted_in[1:], steps, strict=True)}
        return Trend(weighted(_slope(counted_in)), changes)

    def to_json(self) -> str:
        """Return the calendar and its plan as canonical JSON: equal calendars give equal text.

        Returns
        -------
        str
            The text of the file that vehicles and server hold.

        Raises
        ------
        DomainError
            If the plan is for study.

        Examples
        --------
        >>> import fedldp
        >>> schema = fedldp.Schema.of(speed=(0, 50))
        >>> plan = fedldp.Plan(schema, 0.5, fedldp.Sample(mechanism="hm-tp"))
        >>> calendar = Calendar(plan, periods=7, answers=2)
        >>> Calendar.from_json(calendar.to_json()) == calendar
        True
        """
        return vehicle.canonical(
            {
                "format": CALENDAR_FORMAT,
                "answers": self.answers,
                "periods": self.periods,
                "plan": json.loads(self.plan.to_json()),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "Calendar":
        """Read a calendar and validate all of it again, with its plan.

        Parameters
        ----------
        text
            The text that `to_json` returned.

        Returns
        -------
        Calendar
            The calendar.

        Raises
        ------
        WireError
            If the text is not a valid calendar.
        PrivacyError
            If its plan leaks more than it claims.

        Examples
        --------
        >>> Calendar.from_json("{}")
        Traceback (most recent call last):
        fedldp.errors.WireError: not a calendar: the format differs; got None
        """
        with documents.reading("calendar"):
            document = documents.parse(text, [CALENDAR_FORMAT], {"answers", "periods", "plan"})
            plan = Plan.from_json(vehicle.canonical(document["plan"]))
            calendar = cls(plan, document["periods"], document["answers"])
            documents.check_written(calendar.to_json(), text)
        return calendar

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the canonical JSON, in hexadecimal."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def is_calendar(text: str) -> bool:
    """Return whether a text claims to be a calendar, and not a plan."""
    return '"format":"fedldp calendar ' in text and not is_period(text)


@final
@dataclass(frozen=True)
class CalendarPeriod:
    """A period of a calendar, in which a fleet is asked.

    >>> import fedldp
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 0.5, fedldp.Sample(mechanism="hm-tp"))
    >>> asked = CalendarPeriod(Calendar(plan, periods=7, answers=2), 3)
    >>> asked
    <CalendarPeriod: 3 of 7>
    >>> CalendarPeriod.from_json(asked.to_json()) == asked
    True
    """

    calendar: Calendar
    number: int  # from 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "number", self.calendar.check_period(self.number))

    def __repr__(self) -> str:
        return f"<CalendarPeriod: {self.number} of {self.calendar.periods}>"

    def to_json(self) -> str:
        """Return the period and its calendar as canonical JSON."""
        calendar = json.loads(self.calendar.to_json())
        document = {"format": PERIOD_FORMAT, "calendar": calendar, "period": self.number}
        return vehicle.canonical(document)

    @classmethod
    def from_json(cls, text: str) -> "CalendarPeriod":
        """Read a period and validate all of its calendar, or raise `WireError`."""
        with documents.reading("period of a calendar"):
            document = documents.parse(text, [PERIOD_FORMAT], {"calendar", "period"})
            calendar = Calendar.from_json(vehicle.canonical(document["calendar"]))
            found = cls(calendar, document["period"])
            documents.check_written(found.to_json(), text)
        return found


def _slope(periods: Sequence[int]) -> Floats:
    """Return the weights with which numbers of some periods make their slope (least squares)."""
    centred = np.array(periods) - np.mean(periods)
    return np.asarray(centred / np.sum(centred**2))


def _weighted_sum(weights: Floats, alone: list[Result], together: list[Result]) -> Differences:
    """Return a weighted sum of results, whose errors are added as if they were independent.

    The distances of the results from the ends of their intervals are added as standard errors are
    (Zou and Donner 2008), so that intervals need not be symmetric.
    """
    column = weights[:, None]
    values = np.array([np.atleast_1d(result.values) for result in alone], np.float64)
    errors = np.array([np.atleast_1d(result.stderr) for result in alone], np.float64)
    value = (column * values).sum(axis=0)

    def interval(ends: list[Any]) -> Floats:
        low, high = np.moveaxis(
            np.array([np.reshape(result_ends, (-1, 2)) for result_ends in ends]), -1, 0
        )
        possible = np.clip(values, low, high)  # a value beyond its interval counts as its end
        below, above = column * (possible - low), column * (high - possible)
        # The distances downwards of what is subtracted count upwards.
        down, up = (np.where(column > 0, a, b) for a, b in ((below, above), (above, below)))
        reach = (np.sqrt((distances**2).sum(axis=0)) for distances in (down, up))
        middle = (column * possible).sum(axis=0)
        least, most = middle - next(reach), middle + next(reach)
        return np.stack([np.fmin(least, value), np.fmax(most, value)], axis=-1)

    sizes = [np.broadcast_to(result.answers, value.shape) for result in alone]
    numbers = Numbers(
        value,
        np.sqrt(((column * errors) ** 2).sum(axis=0)),
        interval([result.interval for result in alone]),
        interval([result.simultaneous for result in together]),
        np.min(sizes, axis=0),
    )
    return Differences(alone[0].labels, numbers)
