"""One quantile by rounds of one-bit answers: a noisy binary search.

A vehicle is asked once, on which side of a threshold its number is, and answers by randomized
response, which is the best private answer to a question of two sides. Bins spend a report on the
whole distribution; here all reports are about places near the quantile.

- **Search.** `SEARCH_ROUNDS` small rounds with `SEARCH_SHARE` of the fleet. Each asks at the median
  of what is known of the quantile so far: a threshold whose share F of smaller numbers was
  estimated is below the quantile with the probability that noise of this size gives.
- **Bracket.** `PAIRS` pairs of rounds, one below and one above the quantile, as near to it as the
  evidence of all rounds on that side should suffice to prove.
- **Interval.** If the quantile is at most m, then F is at least `level` at all thresholds from m
  on. The lower limit is the largest threshold of a lower round up to which all such statements are
  rejected, in order of the thresholds, by the sum of the evidence of all lower rounds from it on.
  Only one test can be wrong: that of the first threshold above the quantile. So no correction is
  needed for their number. Nothing is assumed about the distribution.

Thresholds depend on answers alone, so the interval holds although they are chosen on the way.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from statistics import NormalDist
from typing import final

import numpy as np
import numpy.typing as npt

from fedldp._internal.validation import Floats, reals, whole
from fedldp.errors import DomainError
from fedldp.learn.features import Scaling
from fedldp.learn.survey import Sides, SurveyComputation, answered
from fedldp.plan.plan import Plan
from fedldp.plan.strategies import Sample
from fedldp.randomness import Source
from fedldp.results.tally import Tally
from fedldp.schema.attributes import Number
from fedldp.schema.schema import Schema
from fedldp.vehicle import canonical

FORMAT = "fedldp quantile 1"
CELLS = 4096  # of the range between the bounds, in which the quantile may be
SEARCH_ROUNDS, SEARCH_SHARE = 8, 0.4
PAIRS = 6
ROUNDS = SEARCH_ROUNDS + 2 * PAIRS
SIDE_SHARE, FALLBACK_SHARE = 0.4, 0.1  # of what an interval may be wrong: a side, the search rounds
MARGIN = 0.5  # by how much evidence should exceed what is needed, at most, in standard errors
NEAREST, FARTHEST, STEP = 1.0, 9.0, 0.5  # distances that a bracket tries, in standard errors
BEND = 0.5  # of a parabola, as a share of its rise (benchmarks/quantiles.py)
FEWEST_VEHICLES = 20 * ROUNDS

_NORMAL = NormalDist()
_LEAST_PROBABILITY = 1e-9  # that noise is given for being on the other side


@final
@dataclass(frozen=True)
class SideAnswers:
    """What a round has found: the share of numbers below a threshold, and its standard error."""

    cell: int  # of the threshold, from 0 to CELLS - 2
    share: float
    stderr: float
    reports: int = 1  # of so many vehicles; rounds of a fleet differ in that

    @property
    def unit(self) -> float:
        """The threshold on the scale of [-1, 1]."""
        return _unit(self.cell)


@final
@dataclass(frozen=True)
class Quantile:
    """A quantile, with an interval.

    Parameters
    ----------
    level : float
        Which quantile; 0.5 is the median.
    value : float
        The estimate.
    interval : tuple of float
        The interval, whose ends are thresholds or bounds.
    confidence : float
        The least probability with which the interval holds the quantile of the population.
    vehicles : int
        How many vehicles have answered.

    Examples
    --------
    >>> Quantile(0.5, 12.0, (11.0, 13.5), 0.95, 1000).interval
    (11.0, 13.5)
    """

    level: float
    value: float
    interval: tuple[float, float]
    confidence: float
    vehicles: int

    def to_json(self) -> str:
        """Return canonical JSON, the result of a fleet's search.

        Returns
        -------
        str
            The text.

        Examples
        --------
        >>> Quantile(0.5, 12.0, (11.0, 13.5), 0.95, 1000).to_json()[:30]
        '{"confidence":0.95,"format":"f'
        """
        return canonical({"format": FORMAT, **asdict(self)})


@final
@dataclass(frozen=True)
class QuantileSearch:
    """A search for one quantile of a number: what each round asks, and what follows.

    Parameters
    ----------
    number : Number
        The number, with its public bounds.
    level : float
        Which quantile; 0.5 is the median.
    epsilon : float
        The privacy budget of a vehicle, which answers in one round.
    vehicles : int
        The number of vehicles, at least 400.
    confidence : float, default=0.95
        The least probability with which the interval holds the quantile.

    Raises
    ------
    DomainError
        If an argument is invalid.

    Examples
    --------
    >>> import fedldp
    >>> speeds = 130 * fedldp.source(1).uniform(50_000)
    >>> search = QuantileSearch(fedldp.Number("speed", 0, 130), 0.9, epsilon=1.0, vehicles=50_000)
    >>> found = search.simulate(speeds, fedldp.source(2))
    >>> found.interval[0] < 117 < found.interval[1], round(found.value)
    (True, 118)
    """

    number: Number
    level: float
    epsilon: float
    vehicles: int
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if not isinstance(self.number, Number) or self.number.size != 1:
            raise DomainError(f"number must be one Number with bounds; got {self.number!r:.200}.")
        for name in ("level", "confidence"):
            value = getattr(self, name)
            if not 0 < value < 1:
                raise DomainError(f"{name} must be between 0 and 1; got {value!r}.")
        if whole(self.vehicles, "vehicles") < FEWEST_VEHICLES:
            raise DomainError(
                f"a quantile by rounds needs at least {FEWEST_VEHICLES} vehicles; got "
                f"{self.vehicles}. Ask for bins instead."
            )
        self.plan  # noqa: B018 (validates epsilon)

    @cached_property
    def plan(self) -> Plan:
        """The plan of every round: on which side of a threshold, -1 or 1, in one bit."""
        side = Number(Sides.name, *Sides.bounds)
        return Plan(Schema((side,)), self.epsilon, Sample(mechanism="duchi"))

    @cached_property
    def groups(self) -> tuple[int, ...]:
        """How many vehicles are asked in each round."""
        shares = [SEARCH_SHARE / SEARCH_ROUNDS] * SEARCH_ROUNDS
        shares += [(1 - SEARCH_SHARE) / (2 * PAIRS)] * (2 * PAIRS)
        ends = np.rint(np.cumsum([0.0, *shares]) * self.vehicles).astype(int)
        return tuple(int(group) for group in np.diff(ends))

    @property
    def _side_error(self) -> float:
        """The standard error of the share below the quantile, from all rounds on one side of it."""
        return math.sqrt(self._variance(self.level) / sum(self.groups[SEARCH_ROUNDS::2]))

    def _variance(self, share: float) -> float:
        """Return the variance of one answer, as an estimate of a share."""
        gain = math.tanh(self.epsilon / 2)
        ones = (1 + gain * (2 * share - 1)) / 2
        return ones * (1 - ones) / gain**2

    @property
    def _needed(self) -> float:
        """The evidence, in standard errors, that proves one end of the interval."""
        return -_NORMAL.inv_cdf(SIDE_SHARE * (1 - self.confidence))

    def next_cell(self, answers: Sequence[SideAnswers]) -> int:
        """Return the cell whose upper end is the threshold of the next round.

        Parameters
        ----------
        answers : sequence of SideAnswers
            What earlier rounds have found, in order.

        Returns
        -------
        int
            The cell.

        Examples
        --------
        >>> search = QuantileSearch(Number("speed", 0, 130), 0.5, epsilon=1.0, vehicles=10_000)
        >>> search.next_cell([]), search.next_cell([SideAnswers(2047, share=0.8, stderr=0.02)])
        (2047, 1024)
        """
        number = len(answers)
        if number < SEARCH_ROUNDS:
            return _median_cell(answers, self.level)
        pair, upper = divmod(number - SEARCH_ROUNDS, 2)
        sign = -1 if upper else 1
        # Both rounds of a pair follow from the rounds before it.
        known = answers[: SEARCH_ROUNDS + 2 * pair]
        mine = known[SEARCH_ROUNDS + upper :: 2]
        left = sum(self.groups[number::2])
        answers_wanted = self._needed + MARGIN * math.sqrt((PAIRS - pair) / PAIRS + 0.25)
        cell = 0
        for distance in np.arange(NEAREST, FARTHEST, STEP) * self._side_error:
            cell = _median_cell(known, self.level - sign * distance)
            error = self._variance(self.level - sign * distance) if 0 < distance < 1 else 1.0
            variance = left * max(error, self._variance(self.level))
            evidence = left * distance
            for answer, group in zip(mine, self.groups[SEARCH_ROUNDS + upper :: 2], strict=False):
                if sign * (answer.cell - cell) >= 0:
                    evidence += group * sign * (self.level - answer.share)
                    variance += (group * answer.stderr) ** 2
            if evidence >= answers_wanted * math.sqrt(variance):
                break
        return cell

    def computation(self, answers: Sequence[SideAnswers]) -> SurveyComputation:
        """Return what vehicles compute in the next round: on which side of a threshold they are.

        Parameters
        ----------
        answers : sequence of SideAnswers
            What earlier rounds have found, in order.

        Returns
        -------
        SurveyComputation
            The computation, which a question of a fleet carries.

        Examples
        --------
        >>> search = QuantileSearch(Number("speed", 0, 130), 0.5, epsilon=1.0, vehicles=10_000)
        >>> search.computation([]).answers(np.array([[10.0], [100.0]])).matrix
        array([[-1.],
               [ 1.]])
        """
        threshold = Scaling((_unit(self.next_cell(answers)),), (1.0,))
        return SurveyComputation(Sides.name, Schema((self.number,)), threshold)

    def learned(self, answers: Sequence[SideAnswers], tally: Tally) -> tuple[SideAnswers, ...]:
        """Return what is known after a further round, given its tally.

        Parameters
        ----------
        answers : sequence of SideAnswers
            What earlier rounds have found, in order.
        tally : Tally
            The answers of the round.

        Returns
        -------
        tuple of SideAnswers
            One more than before.

        Examples
        --------
        >>> import fedldp
        >>> search = QuantileSearch(Number("speed", 0, 130), 0.5, epsilon=12.0, vehicles=10_000)
        >>> sides = search.computation([]).answers(np.array([[10.0], [20.0], [90.0], [30.0]]))
        >>> tally = search.plan.simulate_batches([sides], fedldp.source(1))
        >>> [(each.cell, round(each.share, 2)) for each in search.learned([], tally)]
        [(2047, 0.75)]
        """
        return (*answers, self._side_answers(self.next_cell(answers), tally))

    def _side_answers(self, cell: int, tally: Tally) -> SideAnswers:
        """Return what a round has found about the threshold of a cell, given its tally."""
        mean = answered(tally)
        (value,), n = np.ravel(mean.mean), max(tally.reports, 1)
        gain = math.tanh(self.epsilon / 2)
        bits = float(np.clip((1 + gain * value) / 2, 1 / n, 1 - 1 / n))
        stderr = math.sqrt(bits * (1 - bits) / n) / gain
        return SideAnswers(cell, float((1 - value) / 2), stderr, tally.reports)

    def result(self, answers: Sequence[SideAnswers]) -> Quantile:
        """Return the quantile and its interval.

        Parameters
        ----------
        answers : sequence of SideAnswers
            What the rounds have found, in order; all of them, or those that there were time for.

        Returns
        -------
        Quantile
            The estimate.

        Examples
        --------
        >>> search = QuantileSearch(Number("speed", 0, 130), 0.5, epsilon=1.0, vehicles=10_000)
        >>> answers = []
        >>> for _ in search.groups:
        ...     cell = search.next_cell(answers)
        ...     answers.append(SideAnswers(cell, share=cell / 4096, stderr=0.02))
        >>> round(search.result(answers).value)
        65
        """
        low, high = sorted((self._limit(answers, 1), self._limit(answers, -1)))
        value = min(max(self._point(answers), low), high)
        ends = (self._in_units(low), self._in_units(high))
        vehicles = sum(answer.reports for answer in answers)
        return Quantile(self.level, self._in_units(value), ends, self.confidence, vehicles)

    def _in_units(self, unit: float) -> float:
        return float(self.number.estimand.from_unit(unit))

    def _limit(self, answers: Sequence[SideAnswers], sign: int) -> float:
        """Return the lower limit (sign 1) or the upper one (sign -1) on the scale of [-1, 1]."""
        mine = sorted(
            answers[SEARCH_ROUNDS + (sign < 0) :: 2], key=lambda answer: sign * answer.cell
        )
        cell: float = -math.inf
        for place, answer in enumerate(mine):
            same = next(i for i, other in enumerate(mine) if other.cell == answer.cell)
            rest = mine[min(place, same) :]
            evidence = sum(other.reports * sign * (self.level - other.share) for other in rest)
            variance = sum((other.reports * other.stderr) ** 2 for other in rest)
            if evidence <= self._needed * math.sqrt(variance):
                break
            cell = sign * answer.cell
        wrong = FALLBACK_SHARE * (1 - self.confidence) / SEARCH_ROUNDS
        needed = -_NORMAL.inv_cdf(wrong)
        for answer in answers[:SEARCH_ROUNDS]:
            if sign * (self.level - answer.share) > needed * answer.stderr:
                cell = max(cell, sign * answer.cell)
        if cell == -math.inf:
            return -float(sign)
        return _unit(sign * cell)

    def _point(self, answers: Sequence[SideAnswers]) -> float:
        """Return the place where a flat parabola through the bracket has `level`.

        Where it has none that makes sense, the median of what is known is returned.
        """
        middle = _unit(_median_cell(answers, self.level))
        bracket = answers[SEARCH_ROUNDS:]
        if not bracket:
            return middle
        ends = [answer.unit for answer in bracket]
        low, high = min(ends), max(ends)
        if high - low < 4 / CELLS:
            return middle
        near = [answer for answer in answers if low <= answer.unit <= high]
        x = np.array([(answer.unit - middle) / (high - low) for answer in near])
        weights = 1 / np.array([answer.stderr for answer in near])
        shares = np.array([answer.share - self.level for answer in near])
        terms = np.stack([np.ones_like(x), x, x * x], axis=1)
        span = max(float(np.ptp(shares)) / 2, self._side_error)
        terms, shares = terms * weights[:, None], shares * weights
        terms = np.vstack([terms, [0.0, 0.0, 1 / (BEND * span)]])  # a parabola is nearly a line
        (a, b, c), *_ = np.linalg.lstsq(terms, np.append(shares, 0.0), rcond=None)
        roots = np.roots([c, b, a]) if abs(c) > 1e-12 else np.array([-a / b if b else 0.0])
        rising = [
            float(root.real)
            for root in roots
            if abs(root.imag) < 1e-12 and b + 2 * c * root.real > 0 and abs(root.real) <= 1
        ]
        return middle + (high - low) * min(rising, key=abs) if rising else middle

    def simulate(self, values: npt.ArrayLike, source: Source) -> Quantile:
        """Return what a fleet would find, in which each value is a vehicle's.

        Parameters
        ----------
        values : array-like of shape (vehicles,)
            The numbers, in their own unit. Those outside the bounds count as the bound.
        source : Source
            The random source.

        Returns
        -------
        Quantile
            The estimate.
        """
        return self.result(self.simulate_rounds(values, source))

    def simulate_rounds(self, values: npt.ArrayLike, source: Source) -> tuple[SideAnswers, ...]:
        """Return what each round of a fleet would find, in which each value is a vehicle's.

        Parameters
        ----------
        values, source
            See `simulate`.

        Returns
        -------
        tuple of SideAnswers
            The answers of all rounds.

        Examples
        --------
        >>> import fedldp
        >>> search = QuantileSearch(Number("speed", 0, 130), 0.5, epsilon=1.0, vehicles=1000)
        >>> speeds = 130 * fedldp.source(1).uniform(1000)
        >>> len(search.simulate_rounds(speeds, fedldp.source(2)))
        20
        """
        numbers = reals(values, "values")
        if numbers.shape != (self.vehicles,):
            raise DomainError(f"values must be {self.vehicles} numbers; got {numbers.shape}.")
        numbers = numbers[np.argsort(source.words(len(numbers)), kind="stable")]
        answers: tuple[SideAnswers, ...] = ()
        first = 0
        for group in self.groups:
            sides = self.computation(answers).answers(numbers[first : first + group, None])
            answers = self.learned(answers, self.plan.simulate_batches([sides], source))
            first += group
        return answers


def _unit(cell: float) -> float:
    """Return the upper end of a cell on the scale of [-1, 1]."""
    return 2 * (cell + 1) / CELLS - 1


def _median_cell(answers: Sequence[SideAnswers], level: float) -> int:
    """Return the median of the cell in which the share of smaller numbers reaches a level."""
    weights = np.zeros(CELLS)
    cells = np.arange(CELLS)
    for each in answers:
        right = _NORMAL.cdf((level - each.share) / each.stderr)
        right = min(max(right, _LEAST_PROBABILITY), 1 - _LEAST_PROBABILITY)
        weights += np.where(cells > each.cell, math.log(right), math.log1p(-right))
    total: Floats = np.exp(weights - weights.max()).cumsum()
    return int(min(np.searchsorted(total, total[-1] / 2), CELLS - 2))
