"""Distributions of numbers in bins: histogram, distribution function, quantiles, mean, variance.

What is estimated without bias are the shares of the bins. A point estimate comes from the closest
shares that are not negative and add up to 1, with the values of a bin spread evenly over it. An
interval comes from the errors of the unbiased shares, and is widened where the point lies outside.
A value can be anywhere in its bin, so that intervals of means reach from left to right edges, and
those of quantiles from edge to edge.
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import isfinite
from typing import Any, NamedTuple, Self, cast, final

import numpy as np

from fedldp._internal.text import counted, or_none, rounded, with_interval
from fedldp._internal.validation import Floats, Integers, is_real
from fedldp.coders.categories import project
from fedldp.errors import DomainError
from fedldp.schema.attributes.grouped import _joint, _numbers, _place, _Several, _sums, ratios
from fedldp.schema.attributes.results import Frequencies, Line, Numbers
from fedldp.vehicle import MISSING

__all__ = ["BinQuantile", "Distribution", "GroupDistributions"]

_REPORTED_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)  # of the quantiles that files and terminals show


class BinQuantile(NamedTuple):
    """A quantile with its interval, whose ends are edges of bins.

    Attributes
    ----------
    value
        The estimate, between the edges of its bin.
    low, high
        The ends of the interval.

    Examples
    --------
    >>> BinQuantile(41.5, 35.0, 45.0).high
    45.0
    """

    value: float
    low: float
    high: float


def texts(edges: tuple[float, ...]) -> list[str]:
    """Return edges as texts, with six digits if that tells them apart.

    >>> texts((0.0, 2.5, 1e6))
    ['0', '2.5', '1e+06']
    """
    short = [f"{edge:.6g}" for edge in edges]
    return short if len(set(short)) == len(edges) else [repr(edge) for edge in edges]


def bin_labels(edges: tuple[float, ...]) -> tuple[str, ...]:
    """Return the label of each bin.

    >>> bin_labels((0.0, 2.5, 5.0))
    ('0 to 2.5', '2.5 to 5')
    """
    found = texts(edges)
    return tuple(f"{low} to {high}" for low, high in pairwise(found))


def widened(intervals: Floats, points: Any) -> Floats:
    """Return intervals that also contain the points.

    >>> widened(np.array([[0.1, 0.2], [0.3, 0.4]]), np.array([0.0, 0.35]))
    array([[0. , 0.2],
           [0.3, 0.4]])
    """
    low, high = np.moveaxis(intervals, -1, 0)
    return np.stack([np.fmin(low, points), np.fmax(high, points)], axis=-1)


class Bins(_Several):
    """The shares of bins among the vehicles that have a value, on a line or on a circle.

    The numbers are the unbiased shares of the bins, then the frequency of "missing" if that is a
    label; their joint errors are those of the frequencies of all labels, of which `places` are the
    bins.
    """

    edges: tuple[float, ...]
    numbers: Numbers
    places: Integers

    @classmethod
    def of(cls, edges: tuple[float, ...], numbers: Numbers, places: Integers | None = None) -> Self:
        """Return the distribution that the frequencies of bins describe.

        Parameters
        ----------
        edges
            The edges of the bins, ascending.
        numbers
            The frequencies of the bins, and of whatever labels come after them.
        places
            The numbers of the bins among the labels: the first, unless given.

        Returns
        -------
        Bins
            The distribution among those that are in one of the bins.

        Examples
        --------
        >>> import fedldp
        >>> speed = fedldp.BinnedNumber.of("speed", 0, 120, bins=4)
        >>> plan = fedldp.Plan(fedldp.Schema((speed,)), 4.0)
        >>> plan.simulate({"speed": [70.0] * 9000}, fedldp.source(1)).estimate()["speed"].answers
        9000
        """
        joint, whole = _joint(numbers), places is None
        if places is None:
            joint, places = joint.given_total(), np.arange(len(edges) - 1)
        answers = int(np.max(numbers.answers))
        bin_ratios = ratios(joint, answers, places[None], np.eye(len(places)), (0.0, 1.0)).numbers
        columns = [column[0] for column in bin_ratios[:4]]
        total = joint.frequencies[places].sum()
        # Not clipped, as `ratios` are: only so is their sum 1.
        columns[0] = joint.frequencies[places] / (total if total > 0 else np.nan)
        if whole and len(joint.frequencies) > len(places):
            rest = _sums(joint, np.array([[len(places)]]))
            columns = [np.append(a, b, axis=0) for a, b in zip(columns, rest, strict=True)]
        return cls(edges, _numbers(*columns, answers, joint), places)  # type: ignore[call-arg]

    def with_numbers(self, numbers: Numbers) -> Self:
        return type(self).of(self.edges, numbers)

    @property
    def labels(self) -> tuple[str, ...]:
        """The label of each bin, then "missing" if that is one."""
        return (*bin_labels(self.edges), *([MISSING] if self._has_missing else []))

    @property
    def _has_missing(self) -> bool:
        return len(self.numbers.values) >= len(self.edges)

    @cached_property
    def histogram(self) -> Frequencies:
        """The share of each bin: not negative, and 1 in all."""
        number = len(self.places)
        shares = np.asarray(self.values)[:number]
        point = self._point(shares) if np.isfinite(shares).all() else np.full(number, np.nan)
        return Frequencies(
            bin_labels(self.edges),
            point,
            self.stderr[:number],
            widened(self.interval[:number], point),
            widened(self.simultaneous[:number], point),
            self.answers,
        )

    def _point(self, shares: Floats) -> Floats:
        """Return shares that are not negative and add up to 1, near those that were estimated."""
        return project(shares)

    @property
    def shown(self) -> Frequencies:
        """The histogram, then the frequency of "missing" if that is a label."""
        found = self.histogram
        if not self._has_missing:
            return found
        pairs = ((getattr(found, key), getattr(self, key)) for key in _SHOWN)
        columns = (np.append(one, every[-1:], axis=0) for one, every in pairs)
        return Frequencies.of(self.labels, _numbers(*columns, self.answers))

    def lines(self, name: str = "") -> Iterator[Line]:
        yield from self.shown.lines(name)

    @property
    def heights(self) -> Floats:
        """The height of a bar for each line: the largest is 1."""
        shares = self.histogram.frequencies
        most = np.nanmax(shares, initial=0.0)
        heights = np.nan_to_num(shares / most if most > 0 else shares)
        return np.append(heights, np.zeros(len(self.labels) - len(heights)))

    @property
    @abstractmethod
    def details(self) -> dict[str, Any]:
        """Everything about it, for JSON."""

    @property
    def distributions(self) -> dict[str, dict[str, Any]]:
        """The distribution of all vehicles."""
        return {"": self.details}

    @property
    def share(self) -> float:
        """The share of vehicles that have a value: unbiased, so that it may be above 1."""
        return 1 - float(self.values[-1]) if self._has_missing else 1.0

    @property
    def share_interval(self) -> Floats:
        """The interval of the share."""
        return 1 - self.interval[-1][::-1] if self._has_missing else np.ones(2)

    def _linear(self, top: Floats, low: Any, high: Any) -> Numbers:
        """Return means of some weights of the bins, which have these least and largest values."""
        found = ratios(_joint(self.numbers), self.answers, self.places[None], top, (low, high))
        return Numbers(*(each[0] for each in found.numbers[:5]))


_SHOWN = ("values", "stderr", "interval", "simultaneous")


def ascending(numbers: Floats) -> Floats:
    """Return the numbers with the least squared distance that never descend.

    >>> ascending(np.array([0.1, 0.4, 0.2, 0.9]))
    array([0.1, 0.3, 0.3, 0.9])
    """
    means: list[float] = []
    sizes: list[int] = []
    for number in numbers.tolist():
        means.append(number)
        sizes.append(1)
        while len(means) > 1 and means[-2] > means[-1]:  # neighbors become one, with their mean
            size = sizes[-2] + sizes[-1]
            mean = (means[-2] * sizes[-2] + means.pop() * sizes.pop()) / size
            means[-1], sizes[-1] = mean, size
    return np.repeat(means, sizes)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Distribution(Bins):
    """The distribution of a number: histogram, distribution function, quantiles and moments.

    If some vehicles have no value, it is the distribution among those that have one, and `share`
    says how many they are. Values beyond the first and the last edge count as these edges.

    Attributes
    ----------
    edges
        The edges of the bins.
    numbers
        All of these, with how the errors of the frequencies depend on each other.
    places
        The numbers of the bins among the labels.
    values
        The unbiased share of each bin, of which some may be negative; then, if some vehicles have
        no value, the frequency of "missing".
    stderr
        The standard error of each value.
    interval
        An interval for each value.
    simultaneous
        Wider intervals, which contain all numbers of the estimate at once.
    answers
        How many vehicles answered.

    Examples
    --------
    >>> import fedldp
    >>> speed = fedldp.BinnedNumber.of("speed", 0, 130, bins=26)
    >>> plan = fedldp.Plan(fedldp.Schema((speed,)), epsilon=4.0)
    >>> rows = {"speed": 130 * fedldp.source(1).uniform(40_000) ** 2}
    >>> found = plan.simulate(rows, fedldp.source(2)).estimate()["speed"]
    >>> found
    <Distribution in 26 bins: mean 43.4 ± 3.1, median 32.5 (30 to 35); 40,000 answers>
    >>> found.quantile(0.9).low, found.quantile(0.9).high
    (100.0, 110.0)
    >>> found.histogram.categories[1], found.cdf.categories[1]
    ('5 to 10', 'below 10')
    """

    edges: tuple[float, ...]
    numbers: Numbers
    places: Integers

    def __repr__(self) -> str:
        bins, answers = counted(len(self.places), "bin"), counted(self.answers, "answer")
        return f"<Distribution in {bins}: {', '.join(self._facts())}; {answers}>"

    def _facts(self, quantiles: tuple[float, ...] = (0.5,)) -> list[str]:
        facts = [f"mean {with_interval(self.mean, *self.mean_interval.tolist())}"]
        for q in quantiles:
            name = "median" if q == 0.5 else f"{100 * q:g}% quantile"
            value, low, high = self.quantile(q)
            ends = texts((low, high))
            facts.append(f"{name} {rounded(value, high - low)} ({ends[0]} to {ends[1]})")
        if self._has_missing:
            share = with_interval(self.share, *self.share_interval.tolist())
            facts.append(f"share with a value {share}")
        return facts

    def _point(self, shares: Floats) -> Floats:
        """Return the mean of two projections: of the shares, and of their sums, which ascend.

        The first is better where few bins hold most values, the second where many bins hold a
        little; which case it is can hardly be told through the noise (docs/collection.md).
        """
        below = np.clip(ascending(np.cumsum(shares)[:-1]), 0.0, 1.0)
        return (project(shares) + np.diff(below, prepend=0.0, append=1.0)) / 2

    @property
    def summary(self) -> str:
        """Its mean and some quantiles, for display."""
        return ", ".join(self._facts(_REPORTED_LEVELS))

    @property
    def details(self) -> dict[str, Any]:
        """Everything about it, for JSON."""
        details: dict[str, Any] = {
            "edges": list(self.edges),
            "histogram": entries(self.histogram),
            "cdf": entries(self.cdf),
            "quantiles": [
                {"q": q, "estimate": or_none(details.value), "interval": list(details[1:])}
                for q in _REPORTED_LEVELS
                for details in [self.quantile(q)]
            ],
        }
        for key in ("mean", "variance", *(["share"] if self._has_missing else [])):
            interval = getattr(self, f"{key}_interval")
            details[key] = {
                "estimate": or_none(getattr(self, key)),
                "interval": [or_none(end) for end in interval.tolist()],
            }
        return details

    @cached_property
    def cdf(self) -> Frequencies:
        """The share of values below each edge but the first and the last: never descending."""
        number = len(self.places)
        cumulative = self._linear(np.tri(number)[:-1], 0.0, 1.0)
        point = np.clip(np.cumsum(self.histogram.frequencies)[:-1], 0.0, 1.0)
        return Frequencies(
            tuple(f"below {edge}" for edge in texts(self.edges)[1:-1]),
            point,
            cumulative.stderr,
            widened(cumulative.interval, point),
            widened(cumulative.simultaneous, point),
            self.answers,
        )

    def quantile(self, q: float) -> BinQuantile:
        """Return a value below which a share q of all values lies.

        Its resolution is one bin: the ends of the interval are edges, and within its bin the
        estimate is interpolated.

        Parameters
        ----------
        q
            The share, between 0 and 1.

        Returns
        -------
        BinQuantile
            The estimate and its interval, which contains the true quantile of the values, as far
            as they lie between the edges, with at least the estimate's confidence.

        Raises
        ------
        DomainError
            If q does not lie between 0 and 1.

        Examples
        --------
        >>> import fedldp
        >>> speed = fedldp.BinnedNumber.of("speed", 0, 120, bins=12)
        >>> plan = fedldp.Plan(fedldp.Schema((speed,)), epsilon=4.0)
        >>> estimate = plan.simulate({"speed": [73.0] * 10_000}, fedldp.source(1)).estimate()
        >>> [round(number) for number in estimate["speed"].quantile(0.5)]
        [75, 70, 80]
        """
        if not is_real(q) or not 0 < q < 1:
            raise DomainError(f"q must lie between 0 and 1; got {q!r}.")
        edges, cdf = np.array(self.edges), self.cdf
        below = np.concatenate([[0.0], cdf.frequencies, [1.0]])
        if np.isnan(below).any():  # nobody may have a value
            return BinQuantile(float("nan"), self.edges[0], self.edges[-1])
        last = int(np.argmax(below >= q))  # of the first edge with a share of at least q below it
        step = (q - below[last - 1]) / (below[last] - below[last - 1])
        value = edges[last - 1] + step * (edges[last] - edges[last - 1])
        # The true quantile is left of the low end only if the share below the right edge of its
        # bin, which is at least q, is above its interval; right of the high end only if the share
        # below the left edge is below its interval. Both are intervals at one edge.
        least, most = np.vstack([[0.0, 0.0], cdf.interval, [1.0, 1.0]]).T
        first = int(np.argmax(most >= q))
        after = len(edges) - int(np.argmax(least[::-1] < q))
        return BinQuantile(float(value), float(edges[first - 1]), float(edges[after]))

    @property
    def median(self) -> float:
        """The median."""
        return self.quantile(0.5).value

    @property
    def median_interval(self) -> Floats:
        """The interval of the median, from edge to edge."""
        return np.array(self.quantile(0.5)[1:])

    @cached_property
    def _centres(self) -> Floats:
        edges = np.array(self.edges)
        return edges[:-1] / 2 + edges[1:] / 2

    @property
    def mean(self) -> float:
        """The mean, if the values of each bin are spread evenly over it."""
        return float(self.histogram.frequencies @ self._centres)

    @cached_property
    def mean_interval(self) -> Floats:
        """The interval of the mean, wherever in its bin a value is."""
        edges = np.array(self.edges)
        found = self._linear(np.stack([edges[:-1], edges[1:]]), edges[0], edges[-1])
        ends = np.array([found.interval[0, 0], found.interval[1, 1]])
        return widened(ends, self.mean)

    @property
    def variance(self) -> float:
        """The variance, if the values of each bin are spread evenly over it."""
        shares, widths = self.histogram.frequencies, np.diff(self.edges)
        return float(shares @ ((self._centres - self.mean) ** 2 + widths**2 / 12))

    @cached_property
    def variance_interval(self) -> Floats:
        """The interval of the variance, wherever in its bin a value is."""
        centre = np.asarray(self.values)[: len(self.places)] @ self._centres
        squares = (self._centres - centre) ** 2
        halves = np.diff(self.edges) ** 2 / 4
        top = np.stack([squares, halves])
        if not isfinite(centre):
            return np.array([0.0, (self.edges[-1] - self.edges[0]) ** 2 / 4])
        interval = self._linear(top, 0.0, top.max(axis=1))
        # Values differ from the centres of their bins by at most half a bin, and so by Minkowski's
        # inequality do the standard deviations.
        low, high = np.sqrt(interval.interval[0])
        half = np.sqrt(interval.interval[1, 1])
        ends = np.array([max(low - half, 0.0), high + half])
        return widened(ends**2, self.variance)


def entries(found: Frequencies) -> list[dict[str, Any]]:
    """Return the lines of some frequencies for JSON."""
    return [
        {
            "label": line.label,
            "estimate": or_none(line.estimate),
            "interval": [or_none(line.low), or_none(line.high)],
        }
        for line in found.lines()
    ]


@final
@dataclass(frozen=True, eq=False, repr=False)
class GroupDistributions(_Several):
    """The distribution of a number within each group.

    Attributes
    ----------
    groups
        The labels of the groups.
    letters
        The labels of the number: its bins, and perhaps "missing".
    edges
        The edges of the bins.
    numbers
        The frequencies that follow, with how their errors depend on each other.
    kind
        The class of the distribution of a group.
    values
        The frequency of each label of the number in each group, group by group.
    stderr
        The standard error of each frequency.
    interval
        An interval for each frequency.
    simultaneous
        Wider intervals, which contain all numbers of the estimate at once.
    answers
        How many vehicles answered.

    Examples
    --------
    >>> import fedldp
    >>> speed = fedldp.BinnedNumber.of("speed", 0, 130, bins=13)
    >>> model = fedldp.Category("model", ["A", "B"])
    >>> plan = fedldp.Plan(fedldp.Schema((fedldp.Within("by model", speed, model),)), 4.0)
    >>> rows = {"speed": [26, 104] * 20_000, "model": ["A", "B"] * 20_000}
    >>> found = plan.simulate(rows, fedldp.source(1)).estimate()["by model"]
    >>> found["A"].quantile(0.5)[1:], found["B"].quantile(0.5)[1:]
    ((20.0, 30.0), (100.0, 110.0))
    >>> found.shares.frequencies.round(2)
    array([0.5, 0.5])
    """

    groups: tuple[str, ...]
    letters: tuple[str, ...]
    edges: tuple[float, ...]
    numbers: Numbers
    kind: type[Bins] = Distribution

    def with_numbers(self, numbers: Numbers) -> "GroupDistributions":
        return GroupDistributions(self.groups, self.letters, self.edges, numbers, self.kind)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of each pair."""
        return tuple(f"{group}, {letter}" for group in self.groups for letter in self.letters)

    def _places(self) -> Integers:
        return np.arange(len(self.values)).reshape(len(self.groups), len(self.letters))

    @property
    def shares(self) -> Frequencies:
        """The share of each group among all vehicles."""
        sums = _sums(_joint(self.numbers), self._places())
        return Frequencies.of(self.groups, _numbers(*sums, self.answers))

    @property
    def heights(self) -> Floats:
        """The height of a bar for each line: the largest of each group is 1."""
        letters = len(self.letters)
        heights = [self[group].heights[:letters] for group in self.groups]
        return np.concatenate([np.append(each, np.zeros(letters - len(each))) for each in heights])

    @property
    def summary(self) -> str:
        """What is known about each group, for display."""
        return "; ".join(f"{group}: {self[group].summary}" for group in self.groups)

    @property
    def distributions(self) -> dict[str, dict[str, Any]]:
        """The distribution of each group."""
        return {group: self[group].details for group in self.groups}

    def __getitem__(self, group: str) -> Any:
        """Return the distribution within one group."""
        place = _place(group, self.groups, "group")
        places = self._places()[place, : len(self.edges) - 1]
        return cast(Any, self.kind).of(self.edges, self.numbers, places)
