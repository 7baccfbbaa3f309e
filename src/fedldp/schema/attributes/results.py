"""Results: what is estimated about one attribute, with errors and intervals."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, NoReturn, Self, cast, final

import numpy as np

from fedldp._internal.science import scipy_module
from fedldp._internal.text import counted, listed, with_interval
from fedldp._internal.validation import Floats, Integers
from fedldp.coders.categories import cut, project
from fedldp.coders.moments import Covariance
from fedldp.errors import DomainError
from fedldp.schema.attributes import empirical_bayes

__all__ = ["Frequencies", "Line", "Mean", "Numbers", "Result"]

_ROUNDING_SHARE = 1e-9  # of a variance that rounding explains
PROJECTION, EMPIRICAL_BAYES = "projection", "empirical Bayes"
DEFAULT_RISK = 0.05  # of an interval of 95%
_COMPARED = ("values", "stderr", "interval", "simultaneous", "answers")


def student(freedom: Any, risk: float) -> Floats:
    """Return how many standard errors an interval with some risk reaches to each side."""
    stdtrit = scipy_module("special").stdtrit

    return cast(Floats, -stdtrit(np.maximum(freedom, 1.0), risk / 2))


def pseudo_answers(risk: float) -> float:
    """Return how many rare answers are added: half the square of a normal quantile, and a tenth.

    With half the square alone, intervals that are centered on the unbiased estimate can cover 92.9%
    instead of 95%, for five rare answers in a thousand; with a tenth more, 93.2%.
    """
    ndtri = scipy_module("special").ndtri

    return float(ndtri(risk / 2) ** 2 / 2 + 0.1)


@final
@dataclass(frozen=True, eq=False)
class Joint:
    """How the errors of an attribute's frequencies depend on each other.

    It is what intervals of sums, differences and ratios of frequencies need.
    """

    frequencies: Floats
    of_an_answer: Covariance  # about two frequencies, given by their numbers
    answers: int
    risks: tuple[float, float]  # of an interval alone, and of all at once
    # The square of what an answer about a label adds to its frequency, times that of the answers:
    # one number, or one for each label.
    jump: Any = 0.0

    def covariance(self, first: Integers, second: Integers) -> Floats:
        """Return the covariance of two estimated frequencies, given by their numbers."""
        return self.of_an_answer(first, second) / max(self.answers, 1)

    def given_total(self) -> "Joint":
        """Return the frequencies adjusted, by least squares, so that they add up to 1."""
        every = np.arange(len(self.frequencies))
        between = self.of_an_answer(every[:, None], every)
        rows = between.sum(axis=1)
        total = rows.sum()
        if not total > _ROUNDING_SHARE * np.trace(between):  # they do already, or nobody answered
            return self
        between = between - np.outer(rows, rows) / total
        excess = self.frequencies.sum() - 1
        return replace(
            self,
            frequencies=self.frequencies - rows / total * excess,
            of_an_answer=lambda first, second: between[first, second],
        )

    def sums(self, places: Integers, weights: Floats) -> "Joint":
        """Return weighted sums of frequencies, which count as frequencies of new labels.

        Each has a row of the numbers of some labels, and a row of weights from 0 to 1.
        """

        def of_an_answer(first: Integers, second: Integers) -> Floats:
            one, other = places[first][..., :, None], places[second][..., None, :]
            both = weights[first][..., :, None] * weights[second][..., None, :]
            return np.asarray((both * self.of_an_answer(one, other)).sum(axis=(-2, -1)))

        values = (weights * self.frequencies[places]).sum(axis=1)
        jump = np.broadcast_to(self.jump, self.frequencies.shape)[places].max(axis=1)
        return replace(self, frequencies=values, of_an_answer=of_an_answer, jump=jump)

    @classmethod
    def combined(cls, several: "Sequence[Joint]") -> "Joint":
        """Return the mean of the same frequencies among different vehicles.

        Each is weighted by the inverse of its variance, summed over all labels. Weights of each
        label would depend on how often it happens to be seen, and bias the mean.
        """
        every = np.arange(len(several[0].frequencies))
        with np.errstate(divide="ignore", invalid="ignore"):
            total = [joint.covariance(every, every).sum() for joint in several]
            weights = np.tile(1 / np.array(total), (len(every), 1)).T
            sure = np.isinf(weights)
            weights = np.where(sure.any(axis=0), sure, weights)
            weights /= weights.sum(axis=0)
        answers = sum(joint.answers for joint in several)
        pairs = list(zip(weights, several, strict=True))

        def of_an_answer(first: Integers, second: Integers) -> Floats:
            covariances = (
                w[first] * w[second] * joint.covariance(first, second) for w, joint in pairs
            )
            return cast(Floats, answers * sum(covariances))

        mean = sum(weight * joint.frequencies for weight, joint in pairs)
        jumps = (w**2 * joint.jump / max(joint.answers, 1) ** 2 for w, joint in pairs)
        jump = answers**2 * np.sum([*jumps], axis=0)
        return cls(cast(Floats, mean), of_an_answer, answers, several[0].risks, jump)

    def reaches(self, share: int = 1) -> "tuple[Reach, Reach]":
        """Return how far both kinds of intervals reach.

        The second is for `share` times as many numbers as the estimate has.
        """
        alone, together = self.risks
        return self.reach(alone), self.reach(together / share)

    def reach(self, risk: float) -> "Reach":
        """Return how far an interval with some risk reaches."""
        rare = pseudo_answers(risk) * self.jump / max(self.answers, 1) ** 2
        each = np.broadcast_to(rare, self.frequencies.shape)
        return Reach(float(student(self.answers - 1, risk)), each)


class Reach(NamedTuple):
    """How far an interval reaches.

    A label that few vehicles have moves what is estimated and also its estimated variance: where
    few of them happened to answer, both are wrong. So some answers about the label that matters
    most are added to the variance, but not to the estimate (Agresti and Coull 1998).
    """

    errors: float  # to each side, in standard errors
    rare: Floats  # what these answers add to the variance of each label's frequency


class Numbers(NamedTuple):
    """The estimates of an attribute in its own units: arrays with an entry for each of them.

    Attributes
    ----------
    values
        What is estimated.
    stderr
        The standard errors.
    interval
        The lower and the upper ends of intervals, along the last axis.
    simultaneous
        The ends of wider intervals, which hold for all estimates at once.
    answers
        How many vehicles answered.
    joint
        How the errors of frequencies depend on each other, if that is known.

    Examples
    --------
    >>> ends = np.array([[0.0, 2.0], [1.0, 3.0]])
    >>> numbers = Numbers(np.array([1.0, 2.0]), np.array([0.5, 0.5]), ends, ends, np.array([9, 8]))
    >>> float(numbers.first.values), int(numbers.first.answers)
    (1.0, 9)
    """

    values: Any
    stderr: Any
    interval: Any
    simultaneous: Any
    answers: Any
    joint: Joint | None = None

    @property
    def first(self) -> "Numbers":
        """The first estimate alone."""
        return Numbers(*(each[0] for each in self[:5]))


class Line(NamedTuple):
    """One number that was estimated.

    Attributes
    ----------
    attribute
        The name of the attribute.
    label
        The category or, for a vector, the position; empty for a single number.
    estimate
        The number.
    stderr
        Its standard error.
    low, high
        The ends of its interval.
    answers
        How many vehicles answered.

    Examples
    --------
    >>> Line("speed", "", 41.2, 0.5, 40.2, 42.2, 900).shown
    '41.2 ± 1.0'
    """

    attribute: str
    label: str
    estimate: float
    stderr: float
    low: float
    high: float
    answers: int

    @property
    def shown(self) -> str:
        """The number with its interval: how far it reaches, or both ends if they are not alike."""
        return with_interval(self.estimate, self.low, self.high)


class Result(ABC):
    """What is estimated about one attribute. `Estimand.result` makes it.

    Two results are equal if all their numbers are; one that nobody answered equals itself.

    Attributes
    ----------
    stderr
        The standard error of each value.
    interval
        The lower and the upper end, along the last axis, of an interval that contains the true
        value with the estimate's confidence.
    simultaneous
        Wider intervals, which contain all true values of the estimate at once with that confidence.
    answers
        How many vehicles answered.

    Examples
    --------
    >>> import fedldp
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 4.0, fedldp.Sample(mechanism="hm-tp"))
    >>> estimate = plan.simulate([{"speed": 30}] * 10_000, fedldp.source(1)).estimate()
    >>> isinstance(estimate["speed"], Result), estimate["speed"].labels
    (True, ())
    """

    stderr: Any
    interval: Any
    simultaneous: Any
    answers: Any

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """The label of each value; empty if the values are numbers without labels."""

    @property
    @abstractmethod
    def values(self) -> Any:
        """What is estimated: a number, or an array of them."""

    @property
    def joint(self) -> Joint | None:
        """How the errors of frequencies depend on each other, if that is known."""
        return None

    @property
    def projected(self) -> Any:
        """Values of less error that are possible together, and biased; None if there are none."""
        return None

    @property
    def projected_by(self) -> str:
        """How `projected` was found; empty if there is none."""
        return ""

    @property
    def shown(self) -> "Result":
        """The result with a line for each number that people are shown."""
        return self

    @property
    def heights(self) -> Any:
        """The height of a bar for each line, at most 1; None if there is nothing to draw."""
        return None

    @property
    def summary(self) -> str:
        """What people want to know at once, if that is not the lines; often empty."""
        return ""

    @property
    def distributions(self) -> dict[str, dict[str, Any]]:
        """Distributions for JSON and pictures, by group; the group of all vehicles is ""."""
        return {}

    @abstractmethod
    def with_numbers(self, numbers: Numbers) -> Self:
        """Return a result of the same kind with other numbers.

        Parameters
        ----------
        numbers
            The numbers.

        Returns
        -------
        Result
            The result.

        Examples
        --------
        >>> mean = Mean(1.0, 0.5, np.array([0.0, 2.0]), np.array([0.0, 2.0]), 10)
        >>> mean.with_numbers(Numbers(2.0, 0.5, mean.interval, mean.simultaneous, 20)).mean
        2.0
        """

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self) or other.labels != self.labels:
            return False
        pairs = ((getattr(self, name), getattr(other, name)) for name in _COMPARED)
        return all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]

    def lines(self, name: str = "") -> Iterator[Line]:
        """Yield each number that was estimated.

        Parameters
        ----------
        name
            The name of the attribute.

        Yields
        ------
        Line
            A number with its label, its error and its interval.

        Examples
        --------
        >>> mean = Mean(1.0, 0.5, np.array([0.0, 2.0]), np.array([0.0, 2.0]), 10)
        >>> [line.shown for line in mean.lines("speed")]
        ['1.0 ± 1.0']
        """
        values = np.atleast_1d(self.values)
        places = [str(place) for place in range(values.size)] if values.size > 1 else [""]
        columns = zip(
            self.labels or places,
            values.tolist(),
            np.atleast_1d(self.stderr).tolist(),
            *np.reshape(self.interval, (values.size, 2)).T.tolist(),
            np.broadcast_to(self.answers, values.size).tolist(),
            strict=True,
        )
        for column in columns:
            yield Line(name, *column)

    def called(self, name: str, label: str) -> str:
        """Return what one of its numbers is called, for display.

        Parameters
        ----------
        name
            The name of the attribute.
        label
            The label of the number, as `lines` yields it.

        Returns
        -------
        str
            Both in one text.

        Examples
        --------
        >>> mean = Mean(1.0, 0.5, np.array([0.0, 2.0]), np.array([0.0, 2.0]), 10)
        >>> mean.called("speed", ""), mean.called("way", "2")
        ('speed', 'way[2]')
        """
        if self.labels:
            return f"{name}={label}"
        return f"{name}[{label}]" if label else name

    def _shown(self) -> str:
        return listed([f"{line.label} {line.shown}".strip() for line in self.lines()])


@final
@dataclass(frozen=True, eq=False, repr=False)
class Mean(Result):
    """The mean of a number, in its own units.

    If the attribute is a vector, each attribute here is an array with an entry for each number.

    Attributes
    ----------
    mean
        The estimated mean.
    stderr
        Its standard error.
    interval
        The lower and the upper end, along the last axis, of an interval that contains this mean
        with the estimate's confidence.
    simultaneous
        Wider intervals, which contain all means and frequencies of the estimate at once with that
        confidence.
    answers
        How many vehicles answered.

    Examples
    --------
    >>> import fedldp
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 4.0, fedldp.Sample(mechanism="hm-tp"))
    >>> estimate = plan.simulate([{"speed": 30}] * 10_000, fedldp.source(1)).estimate()
    >>> speed = estimate["speed"]
    >>> round(speed.mean, 1), speed.interval.round(1), speed.answers
    (29.8, array([29.7, 30. ]), 10000)
    """

    mean: Any
    stderr: Any
    interval: Any
    simultaneous: Any
    answers: Any

    labels: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def of(cls, numbers: Numbers) -> "Mean":
        """Return the mean that some numbers describe.

        Parameters
        ----------
        numbers
            A number, or arrays for a vector, with errors and intervals.

        Returns
        -------
        Mean
            The mean.

        Examples
        --------
        >>> ends = np.array([0.0, 2.0])
        >>> Mean.of(Numbers(1.0, 0.5, ends, ends, 10))
        <Mean 1.0 ± 1.0, 10 answers>
        """
        values, stderr, interval, simultaneous, answers = numbers[:5]
        if np.ndim(values) == 0:
            values, stderr, answers = float(values), float(stderr), int(answers)
        return cls(values, stderr, interval, simultaneous, answers)

    def quantile(self, q: float) -> NoReturn:
        """Raise `DomainError`: from a mean nothing follows about quantiles.

        Parameters
        ----------
        q
            The share below the quantile.

        Raises
        ------
        DomainError
            Always. The message says how to ask for quantiles.

        Examples
        --------
        >>> ends = np.array([0.0, 2.0])
        >>> Mean.of(Numbers(1.0, 0.5, ends, ends, 10)).quantile(0.5)
        Traceback (most recent call last):
        fedldp.errors.DomainError: this is a mean, which says nothing about quantiles. Ask for ...
        """
        raise DomainError(
            "this is a mean, which says nothing about quantiles. Ask for the distribution: give "
            "the attribute bins, as BinnedNumber.of(name, low, high, bins=20) or `bins = 20` in "
            "TOML do."
        )

    def with_numbers(self, numbers: Numbers) -> "Mean":
        return Mean.of(numbers)

    def __repr__(self) -> str:
        if np.ndim(self.mean):
            return f"<Mean of {counted(np.size(self.mean), 'number')}: {self._shown()}>"
        answers = counted(self.answers, "answer")
        return f"<Mean {self._shown()}, {answers}>"

    @property
    def values(self) -> Any:
        """What is estimated: `mean`."""
        return self.mean


@final
@dataclass(frozen=True, eq=False, repr=False)
class Frequencies(Result):
    """How frequent each category is: unbiased, so that some may be below 0 or above 1.

    Attributes
    ----------
    categories
        The labels of the categories.
    frequencies
        The estimated frequency of each category.
    stderr
        The standard error of each frequency.
    interval
        For each category the lower and the upper end of an interval that contains its frequency
        with the estimate's confidence.
    simultaneous
        Wider intervals, which contain all means and frequencies of the estimate at once with that
        confidence.
    answers
        How many vehicles answered.

    Examples
    --------
    >>> import fedldp
    >>> plan = fedldp.Plan(fedldp.Schema.of(fuel=["petrol", "none"]), epsilon=4.0)
    >>> estimate = plan.simulate([{"fuel": "none"}] * 10_000, fedldp.source(1)).estimate()
    >>> fuel = estimate["fuel"]
    >>> fuel.categories, fuel.frequencies.round(3), fuel.projected.round(3)
    (('petrol', 'none'), array([-1.000e-03,  1.001e+00]), array([0., 1.]))
    """

    categories: tuple[str, ...]
    frequencies: Floats
    stderr: Floats
    interval: Floats
    simultaneous: Floats
    answers: int

    @classmethod
    def of(cls, categories: tuple[str, ...], numbers: Numbers) -> "Frequencies":
        """Return the frequencies that some numbers describe.

        Parameters
        ----------
        categories
            The labels of the categories.
        numbers
            A number for each category, with errors and intervals.

        Returns
        -------
        Frequencies
            The frequencies.

        Examples
        --------
        >>> ends = np.array([[0.0, 0.5], [0.5, 1.0]])
        >>> numbers = Numbers(np.array([0.25, 0.75]), np.array([0.1, 0.1]), ends, ends, 10)
        >>> Frequencies.of(("petrol", "none"), numbers)
        <Frequencies: petrol 0.25 ± 0.25, none 0.75 ± 0.25; 10 answers>
        """
        values, stderr, interval, simultaneous, answers = numbers[:5]
        together = int(np.max(answers))  # each answer is about all categories
        return cls(categories, values, stderr, interval, simultaneous, together)

    def with_numbers(self, numbers: Numbers) -> "Frequencies":
        return Frequencies.of(self.categories, numbers)

    def __repr__(self) -> str:
        shown = f"{self._shown()}; {counted(self.answers, 'answer')}"
        if self.projected_by == EMPIRICAL_BAYES:
            shown += f"; projected by {EMPIRICAL_BAYES}"
        return f"<Frequencies: {shown}>"

    @property
    def labels(self) -> tuple[str, ...]:
        """The label of each frequency: `categories`."""
        return self.categories

    @property
    def values(self) -> Floats:
        """What is estimated: `frequencies`."""
        return self.frequencies

    @cached_property
    def projected(self) -> Floats:
        """Frequencies that are not negative and add up to 1: biased, but with less error.

        With 64 labels or more, they are posterior means under a prior that is learned from all
        labels (empirical Bayes), projected; with fewer, the closest ones to `frequencies`.
        """
        if self.projected_by == EMPIRICAL_BAYES:
            return project(empirical_bayes.posterior_means(self.frequencies, self.stderr))
        return project(self.frequencies)

    @property
    def projected_by(self) -> str:
        """How `projected` was found: `"empirical Bayes"` or `"projection"`."""
        enough = empirical_bayes.applies(self.frequencies, self.stderr)
        return EMPIRICAL_BAYES if enough else PROJECTION

    @property
    def scaled(self) -> Floats:
        """Frequencies cut at 0 and scaled to the sum 1: biased, less error if noise hides most."""
        return cut(self.frequencies)
