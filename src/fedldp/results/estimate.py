"""From the counters of a tally to means and frequencies with their errors.

All of it is about one answer y to one question x: y is unbiased, E[y | x] = x, where x is a number
in [-1, 1] or says (1 or 0) whether a vehicle is in a category. Of n vehicles, m answered.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, cast, final

import numpy as np

from fedldp._internal import notebook
from fedldp._internal.text import counted, listed, unknown
from fedldp._internal.validation import Floats, Integers
from fedldp.coders.base import ASSUMPTIONS, Cells
from fedldp.coders.moments import Covariance, Moments
from fedldp.errors import DomainError
from fedldp.plan.parts import Countable, Part, places
from fedldp.results import plausibility
from fedldp.results.plausibility import Plausibility
from fedldp.schema.attributes import Attribute
from fedldp.schema.attributes.grouped import Differences
from fedldp.schema.attributes.results import (
    DEFAULT_RISK,
    Frequencies,
    Joint,
    Line,
    Mean,
    Numbers,
    Result,
    pseudo_answers,
    student,
)
from fedldp.schema.frames import to_frame

__all__ = ["Estimate", "Frequencies", "Mean", "Result", "combine_estimates", "compare_estimates"]

RATIO, HORVITZ_THOMPSON = "ratio", "horvitz-thompson"
ESTIMATORS = (RATIO, HORVITZ_THOMPSON)
TARGETS = ("population", "fleet")

Average = Callable[[float], tuple[Floats, Floats]]


@final
@dataclass(frozen=True, eq=False, repr=False)
class Estimate(Mapping[str, Result]):
    """What the reports say about each attribute: `estimate["age"].mean`.

    It is a mapping from the names of the attributes, in the order of the schema. Two estimates are
    equal if all their numbers are equal.

    Attributes
    ----------
    attributes
        A result for each name: a `Mean` for a number, `Frequencies` for a category, a
        `Distribution` for a number in bins, and so on.
    reports
        The number of reports.
    confidence
        The confidence of the intervals.
    of
        What the errors are about: `"population"` or `"fleet"`.
    plausibility
        Whether honest vehicles can have sent the reports.

    Examples
    --------
    >>> import fedldp
    >>> schema = fedldp.Schema.of(speed=(0, 50), fuel=["petrol", "none"])
    >>> plan = fedldp.Plan(schema, 4.0, fedldp.Sample(mechanism="hm-tp"))
    >>> rows = [{"speed": 30, "fuel": "none"}] * 10_000
    >>> estimate = plan.simulate(rows, fedldp.source(1)).estimate()
    >>> estimate
    <Estimate from 10,000 reports: speed 29.77 ± 0.23, fuel=petrol 0.0001 ± 0.0038,
    fuel=none 0.9999 ± 0.0038>
    >>> estimate["speed"]
    <Mean 29.77 ± 0.23, 4,908 answers>
    >>> list(estimate.to_frame().columns)
    ['attribute', 'label', 'estimate', 'stderr', 'low', 'high', 'answers']
    """

    attributes: dict[str, Result]
    reports: int
    confidence: float
    of: str
    plausibility: Plausibility

    def __getitem__(self, name: str) -> Result:
        if name not in self.attributes:
            raise unknown("attribute", name, self.attributes)
        return self.attributes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.attributes)

    def __len__(self) -> int:
        return len(self.attributes)

    def __repr__(self) -> str:
        shown = [
            f"{each.called(name, line.label)} {line.shown}"
            for name, each in self.items()
            for line in each.lines(name)
        ]
        return f"<Estimate from {counted(self.reports, 'report')}: {listed(shown)}>"

    def _repr_html_(self) -> str:
        caption = (
            f"Estimate of the {self.of} from {counted(self.reports, 'report')}; the intervals "
            f"have a confidence of {100 * self.confidence:g}%"
        )
        return notebook.table(caption, Line._fields, self._lines())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Estimate):
            return NotImplemented
        return all(getattr(self, each.name) == getattr(other, each.name) for each in fields(self))

    def to_frame(self) -> Any:
        """Return a pandas data frame with a row for every number that was estimated.

        Returns
        -------
        pandas.DataFrame
            Its columns are `attribute`; `label`, the category or, for a vector, the position, and
            empty for a single number; `estimate` and its standard error `stderr`; `low` and `high`,
            the ends of the interval with the estimate's `confidence`; and `answers`, the number of
            vehicles that answered.

        Raises
        ------
        MissingExtra
            If pandas is not installed.

        Examples
        --------
        >>> import fedldp
        >>> schema = fedldp.Schema.of(speed=(0, 50))
        >>> plan = fedldp.Plan(schema, 4.0, fedldp.Sample(mechanism="hm-tp"))
        >>> estimate = plan.simulate([{"speed": 30}] * 10_000, fedldp.source(1)).estimate()
        >>> estimate.to_frame().shape
        (1, 7)
        """
        lines = [*self._lines()]
        columns = zip(Line._fields, zip(*lines, strict=True), strict=True)
        return to_frame({name: list(column) for name, column in columns})

    def _lines(self) -> Iterator[Line]:
        for name, each in self.items():
            yield from each.lines(name)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is implausible about the reports, in plain sentences; empty if nothing is."""
        return self.plausibility.warnings


def estimate(
    parts: Sequence[Part],
    n: int,
    counts: Sequence[Any],
    estimator: str,
    *,
    of: str,
    confidence: float,
) -> Estimate:
    """Return the estimate of a tally: see `Tally.estimate`."""
    check_choices(estimator, of)
    if not 0 < confidence < 1:
        raise DomainError(f"confidence must lie between 0 and 1; got {confidence!r}.")
    schema = parts[0].schema
    results: dict[str, Result] = {}
    number = sum(attribute.inputs.estimates for attribute in schema.attributes)
    for part, cells in zip(parts, counts, strict=True):
        for attributes, moments in part.moments(cells):
            some = results_of(
                attributes, moments, part, n, estimator, of=of, confidence=confidence, number=number
            )
            results.update(zip((attribute.name for attribute in attributes), some, strict=True))
    return Estimate(
        {name: results[name] for name in schema.names},
        n,
        confidence,
        of,
        plausibility.check(parts, n, counts),
    )


def means_of_levels(levels: Sequence[tuple[Countable, int, Cells]], estimator: str) -> Floats:
    """Return the means of a vector's numbers, and 0 for those without answers; no errors.

    This is the mean gradient of some vehicles, at a small part of the cost of `estimate`. Vehicles
    may have answered parts with different epsilons. Each level has its part, of which the vector is
    the one attribute, its number of vehicles, and its counters, a row for each replica. Levels are
    weighted by the inverse of their variance, as far as it is known without looking at the data:
    that of the noise near zero, over the number of answers.
    """
    check_choices(estimator, "population")
    top: Any = 0.0
    bottom: Any = 0.0
    for part, n, counts in levels:
        ((coder, (attribute,), cells),) = part.by_block(counts.astype(np.float64))
        counted, total = coder.sums(cells)
        answers = counted if estimator == RATIO else n * part.share
        # One level alone needs no weight.
        noise = coder.noise if len(levels) > 1 else 1.0
        top, bottom = top + total / noise, bottom + answers / noise
    return cast(Floats, attribute.estimand.from_unit(top / np.where(bottom > 0, bottom, 1.0)))


def check_choices(estimator: str, of: str) -> None:
    """Validate the name of an estimator and what is estimated."""
    if estimator not in ESTIMATORS or of not in TARGETS:
        raise DomainError(
            f"estimator must be one of {ESTIMATORS} and of one of {TARGETS}; "
            f"got {estimator!r} and {of!r}."
        )


# Both averages return the mean and its standard error, for an interval with a given risk.


def _ratio(moments: Moments, n: int, of: str, risk: float) -> tuple[Floats, Floats]:
    """Divide by the number of vehicles that answered: they are a random sample of all vehicles."""
    m, pseudo = moments.m, pseudo_answers(risk)
    with np.errstate(divide="ignore", invalid="ignore"):
        unseen = moments.unseen(pseudo)
        square = moments.variance / (m - 1) + unseen / m
        if of == "fleet":
            # The m are drawn from the n without replacement, so that the fleet's own spread
            # counts only as far as not all of them were drawn.
            known = moments.spread + moments.hidden * unseen
            square = square - known / n + moments.rare_noise(pseudo) / m
    return np.where(m > 0, moments.mean, np.nan), _error(square, m > 1)


def _horvitz_thompson(
    moments: Moments, n: int, of: str, share: float, risk: float
) -> tuple[Floats, Floats]:
    """Count d/k times the answer for vehicles that answered, and zero for the others."""
    m, pseudo = moments.m, pseudo_answers(risk)
    with np.errstate(divide="ignore", invalid="ignore"):
        answered = m / (n * share)
        mean = np.where(m > 0, moments.mean * answered, np.nan)
        unseen = moments.unseen(pseudo)
        second = (moments.variance + unseen + moments.mean**2) * answered / share
        if of == "population":
            square = (second - mean**2) / (n - 1)
        else:
            most = moments.variance + moments.mean**2 - moments.noise
            known = np.minimum(moments.square, most) + moments.hidden * unseen
            square = (second - known) / n
            square = square + moments.rare_noise(pseudo) * answered / (n * share)
    return mean, _error(square, (m > 0) & (n > 1))


def _counted_by_all(
    of_an_answer: Covariance, mean: Floats, m: int, n: int, share: float
) -> tuple[Covariance, float]:
    """Return the covariance of Horvitz-Thompson's frequencies, and the square of how jumps grow.

    Vehicles that were not asked count as zeros, so that all frequencies are multiplied by the
    random number of answers: this alone makes their errors rise and fall together.
    """
    if not m:
        return of_an_answer, 1.0
    answered = m / (n * share)

    def covariance(first: Integers, second: Integers) -> Floats:
        product = mean[first] * mean[second]
        within = (of_an_answer(first, second) + product) * answered / share
        return np.asarray((within - product * answered**2) * m / max(n - 1, 1))

    return covariance, answered**2


def _error(square: Floats, known: Any) -> Floats:
    return np.sqrt(np.where(known, np.maximum(square, 0.0), np.inf))


def _interval(mean: Floats, error: Floats, freedom: Any, risk: float) -> Floats:
    """Return Student's interval, low and high along the last axis."""
    reach = student(freedom, risk) * error
    return np.stack([mean - reach, mean + reach], axis=-1)


def _risks(confidence: float, number: int) -> tuple[float, float]:
    """Return the risks of two intervals: of one for each estimate alone, and one for all at once.

    For all at once the risk is shared evenly among all numbers that are estimated: the largest of
    d errors exceeds a single one by a factor of about sqrt(ln d), as in the paper.
    """
    return 1 - confidence, (1 - confidence) / number


def results_of(
    attributes: Sequence[Attribute],
    moments: Moments,
    part: Part,
    n: int,
    estimator: str,
    *,
    of: str,
    confidence: float,
    number: int,
) -> list[Result]:
    """Return the results of attributes with one coder, in their units, of a number of estimates."""
    average: Average = partial(_ratio, moments, n, of)
    if estimator != RATIO:
        average = partial(_horvitz_thompson, moments, n, of, part.share)
    found = [(attribute.estimand, place) for attribute, place in places(attributes)]
    halves = np.repeat(
        [estimand.half_width for estimand, _ in found],
        [place.stop - place.start for _, place in found],
    )
    (mean, error), risks = average(DEFAULT_RISK), _risks(confidence, number)
    values = np.concatenate([estimand.from_unit(mean[place]) for estimand, place in found])
    alone, together = (
        _interval(values, average(risk)[1] * halves, moments.m - 1, risk) for risk in risks
    )
    numbers = Numbers(values, error * halves, alone, together, moments.m.astype(np.int64))

    def joint(own: Numbers, place: slice) -> Joint | None:
        if moments.covariance_at is None:
            return None
        covariance = moments.covariance_at(moments.mean[place])
        if covariance is None:
            return None
        m, growth = int(moments.m[place.start]), 1.0
        if estimator != RATIO:
            covariance, growth = _counted_by_all(covariance, moments.mean[place], m, n, part.share)
        return Joint(own.values, covariance, m, risks, moments.jump * growth)

    results = []
    for estimand, place in found:
        own = Numbers(*(array[place] for array in numbers[:5]))
        results.append(estimand.result(own._replace(joint=joint(own, place))))
    return results


def combine_estimates(*estimates: Estimate) -> Estimate:
    """Return one estimate from several of the same attributes, weighted by inverse variance.

    It is for fleets in which vehicles choose their own epsilon: one plan, and one tally, for each
    level. Each level must be a sample of the same population: if vehicles with more to hide choose
    a smaller epsilon, they count for less, and the result is biased.

    Parameters
    ----------
    *estimates
        Estimates of the population, with the same attributes and the same confidence.

    Returns
    -------
    Estimate
        The combined estimate.

    Raises
    ------
    DomainError
        If the estimates differ in attributes, categories, sizes or confidence, or are about the
        fleet.

    Examples
    --------
    >>> import fedldp
    >>> schema, x = fedldp.Schema.of(x=(-1, 1)), fedldp.source(1).uniform((10_000, 1))
    >>> sample = fedldp.Sample(mechanism="hm-tp")
    >>> cautious, bold = (fedldp.Plan(schema, e, sample) for e in (1.0, 4.0))
    >>> both = combine_estimates(
    ...     cautious.simulate(x[:5000], fedldp.source(2)).estimate(),
    ...     bold.simulate(x[5000:], fedldp.source(3)).estimate(),
    ... )
    >>> round(both["x"].mean, 2), both.reports
    (0.5, 10000)
    """
    names = {tuple(estimate) for estimate in estimates}
    levels = {estimate.confidence for estimate in estimates}
    if len(names) != 1 or len(levels) != 1:
        raise DomainError("combine needs estimates of the same attributes and confidence.")
    if any(estimate.of == "fleet" for estimate in estimates):
        raise DomainError(
            "combine needs estimates of the population: groups that chose different plans may "
            "differ, and a mean that is weighted by errors is not the mean of the fleet."
        )
    results_of = {name: [estimate[name] for estimate in estimates] for name in estimates[0]}
    return Estimate(
        {name: _combine(results) for name, results in results_of.items()},
        sum(estimate.reports for estimate in estimates),
        estimates[0].confidence,
        "population",
        plausibility.merge([estimate.plausibility for estimate in estimates]),
    )


def compare_estimates(one: Estimate, other: Estimate) -> Estimate:
    """Return by how much the numbers of one collection are larger than those of another.

    They asked different vehicles, or the same ones with new randomness. If the values of vehicles
    that answered both hardly changed, the intervals are too wide, never too narrow.

    Parameters
    ----------
    one, other
        Estimates with the same attributes and the same confidence, both of the population or both
        of the fleet.

    Returns
    -------
    Estimate
        `Differences` for each attribute. Simultaneous intervals hold for all of them at once.

    Raises
    ------
    DomainError
        If the estimates differ in attributes, categories, sizes, confidence or what they are of.

    Examples
    --------
    >>> import fedldp
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 4.0, fedldp.Sample(mechanism="hm-tp"))
    >>> spring = plan.simulate([{"speed": 30}] * 10_000, fedldp.source(1)).estimate()
    >>> autumn = plan.simulate([{"speed": 28}] * 10_000, fedldp.source(2)).estimate()
    >>> compare_estimates(spring, autumn)["speed"].interval.round(1)
    array([[1.5, 2. ]])
    """
    if (tuple(one), one.confidence, one.of) != (tuple(other), other.confidence, other.of):
        raise DomainError(
            "compare_estimates needs estimates of the same attributes and confidence, both of the "
            "population or both of the fleet."
        )
    return Estimate(
        {name: Differences.of(one[name], other[name]) for name in one},
        one.reports + other.reports,
        one.confidence,
        one.of,
        plausibility.merge([one.plausibility, other.plausibility]),
    )


def _combine(several: list[Result]) -> Result:
    names = [result.labels for result in several]
    if names.count(names[0]) != len(names):
        raise DomainError(f"combine needs the same categories; got {names}.")
    sizes = [np.size(result.stderr) for result in several]
    if len(set(sizes)) > 1:
        raise DomainError(f"combine needs vectors of the same size; got {sizes}.")
    values = np.array([result.values for result in several])
    errors = np.array([result.stderr for result in several], np.float64)
    answers = np.sum([result.answers for result in several], axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = 1 / errors**2
        # No error at all is an infinite weight: those alone count then, all alike.
        sure = np.isinf(weights)
        weights = np.where(sure.any(axis=0), sure, weights)
        weights /= weights.sum(axis=0)

        mean = np.where(weights != 0, weights * values, 0.0).sum(axis=0)
    unknown = np.isnan(weights).any(axis=0)

    def added(distances: Floats) -> Floats:
        """Return the distance of a weighted sum of what has these distances from the truth."""
        square = (weights * np.where(weights > 0, distances, 0.0)) ** 2
        return np.where(unknown, np.inf, np.sqrt(square.sum(axis=0)))

    def interval(kind: str) -> Floats:
        """Return an interval that reaches to each side as those of the estimates do."""
        low, high = np.moveaxis(np.array([getattr(result, kind) for result in several]), -1, 0)
        least = np.where(unknown, low.min(axis=0), mean - added(values - low))
        most = np.where(unknown, high.max(axis=0), mean + added(high - values))
        return np.stack([least, most], axis=-1)

    alone, together, error = interval("interval"), interval("simultaneous"), added(errors)
    joints = [result.joint for result in several if result.joint is not None]
    joint = Joint.combined(joints) if len(joints) == len(several) else None
    return several[0].with_numbers(Numbers(mean, error, alone, together, answers, joint))


def expected_error(
    parts: Sequence[Part], n: int, data: Floats | str, estimator: str, of: str
) -> float:
    """Return the error that `Plan.expected_error` describes; data are a matrix read by a schema."""
    check_choices(estimator, of)
    if isinstance(data, str) and data not in ASSUMPTIONS:
        raise DomainError(f"data must be rows, or one of {ASSUMPTIONS}; got {data!r}.")
    total = 0.0
    for part in parts:
        weight, start = 1 - part.share if of == "fleet" else 1.0, 0
        for coder, attribute in part.asked:
            columns = part.columns[start : start + attribute.size]
            start += attribute.size
            inputs = data if isinstance(data, str) else attribute.inputs.of(data[:, columns])
            noise, mean, square = coder.assumed(inputs, weight)
            spread = square - mean**2
            counted = spread if estimator == RATIO else square
            error = (noise + counted) / part.share
            if of == "fleet":
                error = error - counted
            elif estimator != RATIO:
                error = error - mean**2
            total += float(np.sum(error * np.ones(attribute.size)))
    return total / n
