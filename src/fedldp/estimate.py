"""From the counters of a tally to means and frequencies with honest errors.

All of it is about one answer y to one question x: y is unbiased, E[y | x] = x, where x is a number
in [-1, 1] or tells (1 or 0) whether a vehicle is in a category. Of n vehicles, m answered.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast, final

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from fedldp import tables
from fedldp.categorical import RandomizedResponse, UnaryEncoding, project
from fedldp.channel import Channel
from fedldp.checks import Floats
from fedldp.cube import Cube
from fedldp.errors import DomainError
from fedldp.mechanisms import Mechanism
from fedldp.parts import Coder, Part
from fedldp.schema import Category, Number

__all__ = ["Estimate", "Frequencies", "Mean", "combine"]

RATIO, HORVITZ_THOMPSON = "ratio", "horvitz-thompson"
ESTIMATORS = (RATIO, HORVITZ_THOMPSON)
TARGETS = ("population", "fleet")

_MANY_OUTPUTS = 64


@final
@dataclass(frozen=True, eq=False)
class Mean:
    """The mean of a number, in its own units; arrays if the attribute has several numbers."""

    mean: Any
    stderr: Any
    interval: Any  # low and high along the last axis: right for this one with the confidence asked
    simultaneous: Any  # right for everything in the estimate at once
    answers: Any  # how many vehicles reported it


@final
@dataclass(frozen=True, eq=False)
class Frequencies:
    """How frequent each category is: unbiased, so that some may be below 0 or above 1."""

    categories: tuple[str, ...]
    frequencies: Floats
    stderr: Floats
    interval: Floats
    simultaneous: Floats
    answers: int

    @property
    def projected(self) -> Floats:
        """The closest frequencies that are none below 0 and add up to 1: biased, less in error."""
        return project(self.frequencies)


@final
@dataclass(frozen=True, eq=False)
class Estimate(Mapping[str, Mean | Frequencies]):
    """What the reports say about each attribute: `estimate["age"].mean`."""

    attributes: dict[str, Mean | Frequencies]
    reports: int
    confidence: float
    of: str  # the population, or the fleet

    def __getitem__(self, name: str) -> Mean | Frequencies:
        return self.attributes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.attributes)

    def __len__(self) -> int:
        return len(self.attributes)


@final
@dataclass(frozen=True)
class _Moments:
    """Of the answers to some questions: how many, their mean and variance, and what x^2 must be.

    `square` is the mean of x^2 at the least, `noise` the least variance of y given x.
    """

    m: Floats
    mean: Floats
    variance: Floats
    square: Floats
    noise: float


def estimate(
    parts: Sequence[Part],
    n: int,
    counts: Sequence[Any],
    estimator: str,
    *,
    of: str,
    confidence: float,
) -> Estimate:
    """Return what `Tally.estimate` promises."""
    check_choices(estimator, of)
    if not 0 < confidence < 1:
        raise DomainError(f"confidence must lie between 0 and 1; got {confidence!r}.")
    found: dict[str, tuple[Number | Category, Floats, Floats, Floats]] = {}
    for part, cells in zip(parts, counts, strict=True):
        for attribute, coder, place in part.places:
            start, end = part.starts[[place.start, place.stop]]
            moments = _moments(coder, cells[start:end].reshape(attribute.size, -1))
            if estimator == RATIO:
                mean, error = _ratio(moments, n, of)
            else:
                mean, error = _horvitz_thompson(moments, n, part.share, of)
            if isinstance(attribute, Number):
                mean, error = attribute.from_unit(mean), error * attribute.half_width
            found[attribute.name] = attribute, mean, error, moments.m
    number = sum(mean.size for _, mean, *_ in found.values())
    names = [attribute.name for attribute in parts[0].schema]
    return Estimate(
        {name: _described(*found[name], confidence, number) for name in names}, n, confidence, of
    )


def means(part: Part, n: int, counts: npt.NDArray[Any], estimator: str) -> Floats:
    """Return the means of a part's numbers, and 0 for those that nobody answered: no error bars.

    The counters have a row for each replica, and the part one attribute, a vector: this is the
    mean gradient of n vehicles, at a small part of the cost of `estimate`.
    """
    answers, total = _answers(part, n, counts, estimator)
    return _own_units(part, total / np.where(answers > 0, answers, 1.0))


def means_of_levels(levels: Sequence[tuple[Part, int, npt.NDArray[Any]]], estimator: str) -> Floats:
    """Return one mean for vehicles that answered parts with different epsilons.

    Each level has its part, its number of vehicles and its counters, as for `means`. Levels are
    weighted by the inverse of their variance, as far as it is known without looking at the data:
    that of the noise near zero, over the number of answers.
    """
    top: Any = 0.0
    bottom: Any = 0.0
    for part, n, counts in levels:
        answers, total = _answers(part, n, counts, estimator)
        ((_, coder, _),) = part.places
        noise = float(coder.variance(0.0))
        top, bottom = top + total / noise, bottom + answers / noise
    return _own_units(levels[0][0], top / np.where(bottom > 0, bottom, 1.0))


def _answers(part: Part, n: int, counts: npt.NDArray[Any], estimator: str) -> tuple[Any, Floats]:
    """Return how many answers to each number are counted, or expected, and their sum."""
    check_choices(estimator, "population")
    ((attribute, coder, _),) = part.places
    cells = counts.astype(np.float64).reshape(len(counts), attribute.size, -1)
    found = cells @ _counted(coder)
    return found[:, :, 0] if estimator == RATIO else n * part.share, found[:, :, 1]


def _own_units(part: Part, mean: Floats) -> Floats:
    ((attribute, _, _),) = part.places
    return cast(Floats, cast(Number, attribute).from_unit(mean))


@lru_cache(maxsize=64)
def _counted(coder: Channel | Mechanism | Cube) -> Floats:
    """Return what each counter adds to the number of answers and to their sum."""
    if isinstance(coder, Mechanism):
        return np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    values = coder.scale * np.array([-1.0, 1.0]) if isinstance(coder, Cube) else coder.values
    return np.stack([np.ones(values.size), values], axis=1)


def check_choices(estimator: str, of: str) -> None:
    """Refuse what is no estimator or nothing to estimate."""
    if estimator not in ESTIMATORS or of not in TARGETS:
        raise DomainError(
            f"estimator must be one of {ESTIMATORS} and of one of {TARGETS}; "
            f"got {estimator!r} and {of!r}."
        )


def _ratio(moments: _Moments, n: int, of: str) -> tuple[Floats, Floats]:
    """Divide by those who answered; they are a random sample, whoever they are."""
    m = moments.m
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = moments.variance * m / (m - 1)
        square = variance / m
        if of == "fleet":
            # The m are drawn from the n without replacement, so that the fleet's own spread
            # counts only as far as not all of them were drawn.
            spread = np.minimum(moments.square - moments.mean**2, variance - moments.noise)
            square = square - np.maximum(spread, 0.0) / n
    return np.where(m > 0, moments.mean, np.nan), _error(square, m > 1)


def _horvitz_thompson(moments: _Moments, n: int, share: float, of: str) -> tuple[Floats, Floats]:
    """Count d/k times the answer for those who answered, and zero for the others."""
    m = moments.m
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(m > 0, moments.mean * m / (n * share), np.nan)
        second = (moments.variance + moments.mean**2) * m / (n * share**2)
        if of == "population":
            square = (second - mean**2) / (n - 1)
        else:
            most = moments.variance + moments.mean**2 - moments.noise
            square = (second - np.minimum(moments.square, most)) / n
    return mean, _error(square, (m > 0) & (n > 1))


def _error(square: Floats, known: Any) -> Floats:
    return np.sqrt(np.where(known, np.maximum(square, 0.0), np.inf))


def _intervals(
    mean: Floats, error: Floats, freedom: Any, confidence: float, number: int
) -> tuple[Floats, Floats]:
    """Return intervals, low and high along the last axis: for each alone, and for all at once.

    For all at once the risk is shared evenly among all numbers that are estimated: the largest of
    d errors exceeds a single one by a factor of about sqrt(ln d), as in the paper.
    """

    def interval(risk: float) -> Floats:
        reach = -stdtrit(np.maximum(freedom, 1.0), risk / 2) * error
        return np.stack([mean - reach, mean + reach], axis=-1)

    return interval(1 - confidence), interval((1 - confidence) / number)


def _described(
    attribute: Number | Category,
    mean: Floats,
    error: Floats,
    m: Floats,
    confidence: float,
    number: int,
) -> Mean | Frequencies:
    intervals = _intervals(mean, error, m - 1, confidence, number)
    answers = m.astype(np.int64)
    if isinstance(attribute, Category):
        return Frequencies(attribute.categories, mean, error, *intervals, int(answers[0]))
    if attribute.size == 1:
        alone, together = intervals
        return Mean(float(mean[0]), float(error[0]), alone[0], together[0], int(answers[0]))
    return Mean(mean, error, *intervals, answers)


def _moments(coder: Coder | Mechanism | Cube, rows: npt.NDArray[Any]) -> _Moments:
    """Return the moments of the answers for each row of counters, or of one row's categories.

    The variance is never below the noise: a few answers that happen to agree prove nothing.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        if isinstance(coder, RandomizedResponse | UnaryEncoding):
            m, frequencies = coder.frequencies(rows[0].astype(np.int64))
            seen = coder.q + (coder.p - coder.q) * frequencies
            noise = min(p * (1 - p) for p in (coder.p, coder.q)) / (coder.p - coder.q) ** 2
            variance = np.maximum(seen * (1 - seen) / (coder.p - coder.q) ** 2, noise)
            square = np.clip(frequencies, 0.0, 1.0)
            return _Moments(np.full(frequencies.shape, m), frequencies, variance, square, noise)
        if isinstance(coder, Mechanism):
            m, total, squares = rows.T
            mean = total / m
            # Without a table: the noise is at most the worst there is, and the rest is x^2.
            square = np.clip(squares / m - coder.worst_case_variance, mean**2, 1.0)
            return _Moments(m, mean, squares / m - mean**2, square, 0.0)
        values, weights, noise = _values(coder)
        m = rows.sum(axis=1)
        mean = rows @ values / m
        variance = np.maximum(((values - mean[:, None]) ** 2 * rows).sum(axis=1) / m, noise)
        square = np.clip(rows @ weights / m, mean**2, 1.0)
    return _Moments(m, mean, variance, square, noise)


@lru_cache(maxsize=64)
def _values(coder: Channel | Cube) -> tuple[Floats, Floats, float]:
    """Return for each code its value and a weight w with E[w | x] <= x^2; and the least noise."""
    if isinstance(coder, Cube):
        return coder.scale * np.array([-1.0, 1.0]), np.zeros(2), coder.scale**2 - 1
    # As close to x^2 as a combination of the columns can be, at little variance; then moved down
    # until it is nowhere above. With two outputs that says nothing, with ten it is exact; of very
    # many outputs, powers of their values are combined: all columns would fit any few points.
    letters, values = coder.letters, coder.values
    x = np.union1d(letters, (letters[1:] + letters[:-1]) / 2)
    basis = np.eye(coder.outputs)
    if coder.outputs > _MANY_OUTPUTS:
        basis = np.abs(values / values[-1])[:, None] ** np.arange(9)
    table = tables.probabilities(letters, coder.table, x)
    few = np.sqrt(1e-6 * len(x) * table.mean(axis=0))[:, None] * basis
    target = np.concatenate([x**2, np.zeros(coder.outputs)])
    weights = basis @ np.linalg.lstsq(np.vstack([table @ basis, few]), target, rcond=None)[0]
    at_letters = coder.table @ weights  # and in between on a straight line
    weights -= tables.largest_piecewise_quadratic(
        lambda x: np.interp(x, coder.letters, at_letters) - x**2, coder.letters
    )
    return coder.values, weights, float(coder.variance(coder.letters).min())


def combine(*estimates: Estimate) -> Estimate:
    """Return one estimate from several of the same attributes, weighted by inverse variance.

    For fleets in which vehicles choose their own epsilon: one plan, and one tally, for each level.
    Each level must be a sample of the same population: if those with more to hide choose a smaller
    epsilon, they count for less, and the result is biased.

    >>> import fedldp
    >>> schema, x = fedldp.Schema.of(x=(-1, 1)), fedldp.source(1).uniform((10_000, 1))
    >>> cautious, bold = (fedldp.Plan(schema, e, mechanism="hm-tp") for e in (1.0, 4.0))
    >>> both = combine(
    ...     cautious.simulate(x[:5000], fedldp.source(2)).estimate(),
    ...     bold.simulate(x[5000:], fedldp.source(3)).estimate(),
    ... )
    >>> round(both["x"].mean, 2), both.reports
    (0.5, 10000)
    """
    names = {tuple(each) for each in estimates}
    levels = {each.confidence for each in estimates}
    if len(names) != 1 or len(levels) != 1:
        raise DomainError("combine needs estimates of the same attributes and confidence.")
    if any(each.of == "fleet" for each in estimates):
        raise DomainError(
            "combine needs estimates of the population: groups that chose different plans may "
            "differ, and what is weighted by its error is no longer the mean of the fleet."
        )
    found = {name: [each[name] for each in estimates] for name in estimates[0]}
    number = sum(np.size(each[0].stderr) for each in found.values())
    return Estimate(
        {name: _combined(each, estimates[0].confidence, number) for name, each in found.items()},
        sum(each.reports for each in estimates),
        estimates[0].confidence,
        "population",
    )


def _values_of(each: Mean | Frequencies) -> Any:
    return each.mean if isinstance(each, Mean) else each.frequencies


def _combined(
    several: list[Mean | Frequencies], confidence: float, number: int
) -> Mean | Frequencies:
    first = several[0]
    names = [getattr(each, "categories", None) for each in several]
    if names.count(names[0]) != len(names):
        raise DomainError(f"combine needs the same categories; got {names}.")
    sizes = [np.size(each.stderr) for each in several]
    if len(set(sizes)) > 1:
        raise DomainError(f"combine needs vectors of the same size; got {sizes}.")
    values = np.array([_values_of(each) for each in several])
    errors = np.array([each.stderr for each in several], np.float64)
    answers = np.sum([each.answers for each in several], axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = 1 / errors**2
        # No error at all is an infinite weight: those alone count then, all alike.
        sure = np.isinf(weights)
        weights = np.where(sure.any(axis=0), sure, weights)
        total = weights.sum(axis=0)
        mean = np.where(weights > 0, weights * values, 0.0).sum(axis=0) / total
        error = np.where(sure.any(axis=0), 0.0, 1 / np.sqrt(total))
    intervals = _intervals(mean, error, answers - len(several), confidence, number)
    if isinstance(first, Frequencies):
        return Frequencies(first.categories, mean, error, *intervals, int(answers))
    if mean.ndim == 0:
        return Mean(float(mean), float(error), *intervals, int(answers))
    return Mean(mean, error, *intervals, answers)
