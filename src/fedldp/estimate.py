"""From the counters of a tally to means and frequencies with honest errors.

All of it is about one answer y to one question x: y is unbiased, E[y | x] = x, where x is a number
in [-1, 1] or tells (1 or 0) whether a vehicle is in a category. Of n vehicles, m answered.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, cast, final

import numpy as np
import numpy.typing as npt

from fedldp import plausibility
from fedldp._internal.validation import Floats
from fedldp.coders.categories import project
from fedldp.coders.channel import Channel
from fedldp.coders.cube import Cube
from fedldp.coders.laws import Law
from fedldp.errors import DomainError
from fedldp.mechanisms import Mechanism
from fedldp.parts import Part
from fedldp.plausibility import Plausibility
from fedldp.schema import Category, Number

__all__ = ["Estimate", "Frequencies", "Mean", "combine"]

RATIO, HORVITZ_THOMPSON = "ratio", "horvitz-thompson"
ESTIMATORS = (RATIO, HORVITZ_THOMPSON)
TARGETS = ("population", "fleet")

Average = Callable[[float], tuple[Floats, Floats]]

_USUAL_RISK = 0.05  # a standard error is meant for intervals of 95%
_NORMAL_QUARTILES = 1.349  # how far those of a normal law are apart, in standard deviations


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
    plausibility: Plausibility  # whether honest vehicles can have sent the reports

    def __getitem__(self, name: str) -> Mean | Frequencies:
        return self.attributes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.attributes)

    def __len__(self) -> int:
        return len(self.attributes)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is implausible about the reports, in plain sentences; empty if nothing is."""
        return self.plausibility.warnings


@final
@dataclass(frozen=True)
class _Moments:
    """Of the answers to some questions: how many, their mean and variance, and what x^2 must be.

    `square` is the mean of x^2 at the least, `noise` the mean variance of y given x at the least.
    What follows them is about rare values, and about noise that comes in a few large steps.
    """

    m: Floats
    mean: Floats
    variance: Floats
    square: Floats
    noise: Any
    farthest: Any = 0.0  # the largest squared distance from the mean that an answer can have
    hidden: Any = 0.0  # which part of it is not noise
    bulk: Any = 0.0  # the variance of the answers between the quartiles, scaled to all
    jump: float = 0.0  # the size of the steps in which noise comes, squared

    @property
    def spread(self) -> Floats:
        """The variance of x at the least: what is known of x^2, and what noise does not explain."""
        variance = self.variance * self.m / (self.m - 1)
        least = np.minimum(self.square - self.mean**2, variance - self.noise)
        return cast(Floats, np.maximum(least, 0.0))

    def unseen(self, pseudo: float) -> Floats:
        """Return the variance of values so rare that m answers may show too few of them, or none.

        A value that a few vehicles have moves both the mean and its estimated error: where few of
        them happened to answer, the mean is too low, and the error too small. As Agresti and Coull
        do, add so many pseudo-answers at the far end. Where the bulk of the answers varies more
        than these would, rare values hardly matter, and nothing is added.
        """
        return cast(Floats, np.maximum(pseudo * self.farthest / self.m - self.bulk, 0.0))

    def rare_noise(self, pseudo: float) -> Floats:
        """Return what to add to the variance where the noise comes in a few large steps.

        How many to expect is known, and need not be estimated: where they are few, a quarter of the
        pseudo-answers is enough, less a quarter of those expected.
        """
        noise = self.variance - self.spread
        return np.maximum(pseudo * self.jump / self.m - noise, 0.0) / 4


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
    found: dict[str, tuple[Number | Category, Floats, Average]] = {}
    for part, cells in zip(parts, counts, strict=True):
        for attribute, coder, place in part.places:
            start, end = part.starts[[place.start, place.stop]]
            moments = _moments(coder, cells[start:end])
            average = partial(_ratio, moments, n, of)
            if estimator != RATIO:
                average = partial(_horvitz_thompson, moments, n, of, part.share)
            found[attribute.name] = attribute, moments.m, average
    number = sum(m.size for _, m, _ in found.values())
    names = [attribute.name for attribute in parts[0].schema]
    return Estimate(
        {name: _described(*found[name], confidence, number) for name in names},
        n,
        confidence,
        of,
        plausibility.check(parts, n, counts),
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
    values = coder.law.values
    return np.stack([np.ones(values.size), values], axis=1)


def check_choices(estimator: str, of: str) -> None:
    """Refuse what is no estimator or nothing to estimate."""
    if estimator not in ESTIMATORS or of not in TARGETS:
        raise DomainError(
            f"estimator must be one of {ESTIMATORS} and of one of {TARGETS}; "
            f"got {estimator!r} and {of!r}."
        )


# Both ways to average return the mean and its standard error, for an interval with some risk.


def _ratio(moments: _Moments, n: int, of: str, risk: float) -> tuple[Floats, Floats]:
    """Divide by those who answered: they are a random sample of all vehicles."""
    m, pseudo = moments.m, _pseudo_answers(risk)
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
    moments: _Moments, n: int, of: str, share: float, risk: float
) -> tuple[Floats, Floats]:
    """Count d/k times the answer for those who answered, and zero for the others."""
    m, pseudo = moments.m, _pseudo_answers(risk)
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


def _error(square: Floats, known: Any) -> Floats:
    return np.sqrt(np.where(known, np.maximum(square, 0.0), np.inf))


def _pseudo_answers(risk: float) -> float:
    """Return how many rare answers are added: half the square of a normal quantile, and a tenth.

    With half the square alone, intervals that are centred on the unbiased estimate can cover 92.9%
    instead of 95%, for five rare answers in a thousand; with a tenth more, 93.2%.
    """
    from scipy.special import ndtri

    return float(ndtri(risk / 2) ** 2 / 2 + 0.1)


def _interval(mean: Floats, error: Floats, freedom: Any, risk: float) -> Floats:
    """Return Student's interval, low and high along the last axis."""
    reach = _student(freedom, risk) * error
    return np.stack([mean - reach, mean + reach], axis=-1)


def _student(freedom: Any, risk: float) -> Floats:
    from scipy.special import stdtrit

    return cast(Floats, -stdtrit(np.maximum(freedom, 1.0), risk / 2))


def _risks(confidence: float, number: int) -> tuple[float, float]:
    """Return the risks of two intervals: of one for each estimate alone, and one for all at once.

    For all at once the risk is shared evenly among all numbers that are estimated: the largest of
    d errors exceeds a single one by a factor of about sqrt(ln d), as in the paper.
    """
    return 1 - confidence, (1 - confidence) / number


def _described(
    attribute: Number | Category, m: Floats, average: Average, confidence: float, number: int
) -> Mean | Frequencies:
    def described(risk: float) -> tuple[Floats, Floats]:
        mean, error = average(risk)
        if isinstance(attribute, Number):
            return attribute.from_unit(mean), error * attribute.half_width
        return mean, error

    mean, error = described(_USUAL_RISK)
    alone, together = (
        _interval(*described(risk), m - 1, risk) for risk in _risks(confidence, number)
    )
    answers = m.astype(np.int64)
    if isinstance(attribute, Category):
        return Frequencies(attribute.categories, mean, error, alone, together, int(answers[0]))
    if attribute.size == 1:
        return Mean(float(mean[0]), float(error[0]), alone[0], together[0], int(answers[0]))
    return Mean(mean, error, alone, together, answers)


def _moments(coder: Any, cells: npt.NDArray[Any]) -> _Moments:
    """Return the moments of the answers about each number, or each category, of an attribute."""
    with np.errstate(divide="ignore", invalid="ignore"):
        if not isinstance(coder, Mechanism):
            return _moments_by_law(coder.law, coder.histograms(cells))
        m, total, squares = cells.reshape(-1, 3).T
        mean = total / m
        # Without a table: the noise is at most the worst there is, and the rest is x^2.
        square = np.clip(squares / m - coder.worst_case_variance, mean**2, 1.0)
        return _Moments(m, mean, squares / m - mean**2, square, 0.0)


def _moments_by_law(law: Law, rows: npt.NDArray[Any]) -> _Moments:
    """Return the moments of answers that are counted by their values, in a row for each number.

    The variance is never below the noise: a few answers that happen to agree prove nothing.
    """
    values, m = law.values, rows.sum(axis=1)
    mean = rows @ values / m
    low, high = law.letters[[0, -1]]
    possible = np.clip(mean, low, high)
    noise = law.least_noise(possible)
    variance = np.maximum(((values - mean[:, None]) ** 2 * rows).sum(axis=1) / m, noise)
    square = np.clip(rows @ law.square_weights / m, possible**2, 1.0)
    far = np.maximum(high - possible, possible - low) ** 2
    first, third = _quartiles(values, rows, m)
    return _Moments(
        m,
        mean,
        variance,
        square,
        noise,
        farthest=np.maximum(values[-1] - possible, possible - values[0]) ** 2,
        hidden=far / (far + law.variances[[0, -1]].max()),
        bulk=((third - first) / _NORMAL_QUARTILES) ** 2,
        jump=law.jump,
    )


def _quartiles(values: Floats, rows: npt.NDArray[Any], m: Floats) -> tuple[Floats, Floats]:
    """Return the values below which a quarter, and three quarters, of the answers lie."""
    below = np.cumsum(rows, axis=1)[:, :-1]
    low, high = (np.sum(below < share * m[:, None], axis=1) for share in (0.25, 0.75))
    return values[low], values[high]


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
        plausibility.merged([each.plausibility for each in estimates]),
    )


def _values_of(each: Mean | Frequencies) -> Any:
    return each.mean if isinstance(each, Mean) else each.frequencies


def _errors_in(kind: str, several: list[Mean | Frequencies], risk: float) -> Floats:
    """Return the standard errors that intervals with some risk were made of."""

    def error(each: Mean | Frequencies) -> Floats:
        low, high = np.moveaxis(getattr(each, kind), -1, 0)
        return cast(Floats, (high - low) / 2 / _student(np.asarray(each.answers) - 1, risk))

    return np.array([error(each) for each in several])


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
    freedom = answers - len(several)
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = 1 / errors**2
        # No error at all is an infinite weight: those alone count then, all alike.
        sure = np.isinf(weights)
        weights = np.where(sure.any(axis=0), sure, weights)
        weights /= weights.sum(axis=0)

        def combined(errors: Floats) -> Floats:
            """Return the error of the weighted mean: unknown if all of them are."""
            square = np.where(weights > 0, weights * errors, 0.0) ** 2
            return np.where(np.isnan(weights).any(axis=0), np.inf, np.sqrt(square.sum(axis=0)))

        mean = np.where(weights != 0, weights * values, 0.0).sum(axis=0)
        error = combined(errors)
        alone, together = (
            _interval(mean, combined(_errors_in(kind, several, risk)), freedom, risk)
            for kind, risk in zip(
                ("interval", "simultaneous"), _risks(confidence, number), strict=True
            )
        )
    if isinstance(first, Frequencies):
        return Frequencies(first.categories, mean, error, alone, together, int(answers))
    if mean.ndim == 0:
        return Mean(float(mean), float(error), alone, together, int(answers))
    return Mean(mean, error, alone, together, answers)
