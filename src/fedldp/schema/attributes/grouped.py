"""Results within groups: ratios of frequencies that are estimated from the same reports.

A mean within a group is a ratio T / P of two sums of frequencies. Its interval holds every ratio r
for which T - r P is not further from 0 than its own standard error explains (Fieller 1954). Where P
is known well, this is the interval of the delta method; where P may be 0, nothing is known about
the ratio, and the interval is the whole range. The variance of T - r P includes the rare answers of
`Reach`, with the value that is farthest from r: a group of which all answers agree may still have
other values.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from fedldp._internal.text import counted, listed
from fedldp._internal.validation import Floats, Integers
from fedldp.errors import DomainError, UnknownName
from fedldp.schema.attributes.results import (
    DEFAULT_RISK,
    Frequencies,
    Joint,
    Mean,
    Numbers,
    Reach,
    Result,
)

__all__ = ["Differences", "GroupMeans", "MeanOfSome", "TwoWay"]


_BISECTION_STEPS = 50  # of an interval of length 1


class Ratios(NamedTuple):
    """Ratios T / P in some groups, and how each depends on the frequencies."""

    numbers: Numbers  # a row for each group
    few: Floats  # whether a group's P may be 0
    places: Integers  # of the frequencies of each group
    slopes: Floats  # by how much a ratio changes with each of these frequencies
    top: Floats  # the weights of T, a row for each ratio
    ends: tuple[float, float]  # of a true ratio

    def of(self, joint: Joint) -> "Ratios":
        """Return the same ratios of other frequencies."""
        return ratios(joint, joint.answers, self.places, self.top, self.ends)

    def covariance(self, joint: Joint, one: tuple[int, int], other: tuple[int, int]) -> float:
        """Return the covariance of two ratios, each given by group and number.

        It is NaN if one of the groups may be empty: then the errors are not nearly linear.
        """
        if self.few[one[0]] or self.few[other[0]]:
            return float("nan")
        first, second = self.places[one[0]], self.places[other[0]]
        between = joint.covariance(first[:, None], second)
        return float(self.slopes[one] @ between @ self.slopes[other])


def ratios(
    joint: Joint, answers: int, places: Integers, top: Floats, ends: tuple[float, float]
) -> Ratios:
    """Return the ratios of weighted sums to the plain sum of each group's frequencies.

    `places` has a row of frequencies for each group, `top` a row of weights for each ratio; a true
    ratio lies between the ends.
    """
    shares = joint.frequencies[places]
    cov = joint.covariance(places[:, :, None], places[:, None, :])
    t, p = shares @ top.T, shares.sum(axis=1)[:, None]
    var_t, var_p = (top @ cov * top).sum(axis=2), cov.sum(axis=(1, 2))[:, None]
    sums = _Sums(t, p, var_t, var_p, cov.sum(axis=2) @ top.T)
    reaches = joint.reaches(max(1, t.size // places.size))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(p > 0, np.clip(t / p, *ends), np.nan)
        usual = sums.with_rare(joint.reach(DEFAULT_RISK), places, top)
        square = np.maximum(*(moments.variance(ratio) for moments in usual))
        stderr = np.where(p > 0, np.sqrt(np.maximum(square, 0.0)) / p, np.inf)
        slopes = (top - ratio[:, :, None]) / p[:, :, None]
    intervals = []
    for reach in reaches:
        both = [side.fieller(reach, ends) for side in sums.with_rare(reach, places, top)]
        low, high = (np.stack([bounds[..., end] for bounds in both]) for end in (0, 1))
        intervals.append(np.stack([low.min(axis=0), high.max(axis=0)], axis=-1))
    errors, rare = reaches[0]
    least = errors * np.sqrt(np.maximum(var_p[:, 0], 0.0) + rare[places].max(axis=1))
    few = ~(p[:, 0] > least)  # or nobody answered
    numbers = _numbers(ratio, stderr, *intervals, np.full(ratio.shape, answers))
    return Ratios(numbers, few, places, slopes, top, ends)


class _Sums(NamedTuple):
    """The sums T and P of some ratios, a row for each group, with their variances."""

    t: Floats
    p: Floats
    var_t: Floats
    var_p: Floats
    cov: Floats

    def variance(self, ratio: Floats) -> Floats:
        """Return the variance of T - r P."""
        return self.var_t - 2 * ratio * self.cov + ratio**2 * self.var_p

    def with_rare(self, reach: Reach, places: Integers, top: Floats) -> "Iterator[_Sums]":
        """Yield the sums with rare answers about the label of the least and of the largest weight.

        One of the two is farthest from any ratio.
        """
        for label in (top.argmin(axis=1), top.argmax(axis=1)):
            added, weight = reach.rare[places[:, label]], top[np.arange(len(top)), label]
            yield self._replace(
                var_t=self.var_t + added * weight**2,
                var_p=self.var_p + added,
                cov=self.cov + added * weight,
            )

    def fieller(self, reach: Reach, ends: Any) -> Floats:
        """Return the ratios r with |T - r P| within reach standard errors of it, and the ends."""
        square, (low, high) = reach.errors**2, ends
        a, b = self.p**2 - square * self.var_p, self.t * self.p - square * self.cov
        c = self.t**2 - square * self.var_t
        with np.errstate(divide="ignore", invalid="ignore"):
            root = np.sqrt(np.maximum(b**2 - a * c, 0.0))
            least, most = (b - root) / a, (b + root) / a
        known = (a > 0) & (self.p > 0)
        least = np.where(known, np.clip(least, low, high), low)
        most = np.where(known, np.clip(most, low, high), high)
        return np.stack([least, most], axis=-1)


def moved_ratio(coder: Any, places: Floats, liars: float, group: float) -> float:
    """Return how far liars can move a mean of places from 0 to 1 within a group, at most.

    The honest vehicles of the group, a share of all honest ones, are at one end. The mean exceeds r
    if the sum of f (x - r) is positive, to which they add -r and liars as much as a report can.
    """
    if not liars > 0:
        return 0.0

    def exceeds(r: float) -> bool:
        return bool(liars * coder.most(places - r) > (1 - liars) * group * r)

    low, high = 0.0, 1.0
    if exceeds(high) or not (1 - liars) * group > 0:
        return 1.0
    for _ in range(_BISECTION_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if exceeds(middle) else (low, middle)
    return high


def mean_difference(one: Mean, other: Mean, covariance: Any = None) -> Mean:
    """Return the difference of two means with its intervals.

    The distances of both means from the ends of their intervals are added as standard errors are
    (Zou and Donner 2008), so that an interval need not be symmetric. Without a covariance, the
    worst correlation is assumed. A mean beyond its interval, which ends at a bound, counts as the
    bound.
    """
    value = one.mean - other.mean
    with np.errstate(invalid="ignore", divide="ignore"):
        if covariance is None:
            correlation: Any = -1.0
        else:
            correlation = np.clip(covariance / (one.stderr * other.stderr), -1.0, 1.0)
            correlation = np.where(np.isfinite(correlation), correlation, -1.0)
    stderr = _error_of_difference(one.stderr, other.stderr, correlation)

    def interval(kind: str) -> Floats:
        (a, b), (c, d) = (np.moveaxis(getattr(result, kind), -1, 0) for result in (one, other))
        first, second = np.clip(one.mean, a, b), np.clip(other.mean, c, d)
        low = first - second - _error_of_difference(first - a, d - second, correlation)
        high = first - second + _error_of_difference(b - first, second - c, correlation)
        unknown = np.isnan(value)  # the mean of a group without answers can be anywhere
        low, high = np.where(unknown, a - d, low), np.where(unknown, b - c, high)
        return np.stack([np.fmin(low, value), np.fmax(high, value)], axis=-1)

    answers = np.minimum(one.answers, other.answers)
    return Mean.of(Numbers(value, stderr, interval("interval"), interval("simultaneous"), answers))


def _error_of_difference(one: Any, other: Any, correlation: Any) -> Any:
    """Return the standard error of a difference."""
    with np.errstate(invalid="ignore"):
        square = one**2 + other**2 - 2 * correlation * one * other
        return np.sqrt(np.maximum(square, 0.0))


def _place(label: object, labels: tuple[str, ...], what: str) -> int:
    if label not in labels:
        raise UnknownName(f"there is no {what} {label!r}; choose from {listed(labels)}.")
    return labels.index(str(label))


class _Several(Result):
    """A result that keeps its numbers as they are, with what is known about joint errors."""

    numbers: Numbers

    @property
    def joint(self) -> Joint | None:
        """How the errors of frequencies depend on each other, if that is known."""
        return self.numbers.joint

    @property
    def values(self) -> Any:
        """What is estimated."""
        return self.numbers.values

    @property
    def stderr(self) -> Any:
        """The standard error of each value."""
        return self.numbers.stderr

    @property
    def interval(self) -> Any:
        """The lower and the upper end of an interval for each value."""
        return self.numbers.interval

    @property
    def simultaneous(self) -> Any:
        """Wider intervals, which contain all numbers of the estimate at once."""
        return self.numbers.simultaneous

    @property
    def answers(self) -> int:
        """How many vehicles answered."""
        return int(np.max(self.numbers.answers))

    def called(self, name: str, label: str) -> str:
        return f"{name}, {label}" if self.labels else super().called(name, label)

    def __repr__(self) -> str:
        name, answers = type(self).__name__, counted(self.answers, "answer")
        return f"<{name}: {self._shown()}; {answers}{self._note}>"

    _note = ""


@final
@dataclass(frozen=True, eq=False, repr=False)
class GroupMeans(_Several):
    """The mean of a number within each group, and the share of each group.

    The arrays of all numbers have the means of all groups first, then the shares.

    Attributes
    ----------
    groups
        The labels of the groups.
    values
        The means in the number's own units, then the shares of all vehicles that are in the group
        and have a value.
    stderr
        The standard error of each value.
    interval
        The lower and the upper end of an interval for each value. If a group may be empty, as far
        as the reports can tell, the interval of its mean is the whole range.
    simultaneous
        Wider intervals, which contain all numbers of the estimate at once.
    answers
        How many vehicles answered.
    few
        The groups that may be empty: too few vehicles answered to say anything about their mean.

    Examples
    --------
    >>> import fedldp
    >>> speed, model = fedldp.Number("speed", 0, 130), fedldp.Category("model", ["A", "B", "C"])
    >>> plan = fedldp.Plan(fedldp.Schema((fedldp.Within("by model", speed, model),)), 4.0)
    >>> rows = {"speed": [26, 104] * 20_000, "model": ["A", "B"] * 20_000}
    >>> found = plan.simulate(rows, fedldp.source(1)).estimate()["by model"]
    >>> found.means.mean[:2].round(), found.shares.frequencies.round(2) + 0.0, found.few
    (array([ 26., 104.]), array([0.5, 0.5, 0. ]), ('C',))
    >>> found.difference("B", "A")
    <Mean 77.6 ± 1.2, 40,000 answers>
    """

    groups: tuple[str, ...]
    numbers: Numbers
    few: tuple[str, ...] = ()
    ratios: Ratios | None = None

    @classmethod
    def of(
        cls, groups: tuple[str, ...], letters: int, grid: Floats, numbers: Numbers
    ) -> "GroupMeans":
        """Return the means that frequencies of rounded values within groups describe.

        Parameters
        ----------
        groups
            The labels of the groups.
        letters
            How many letters each group has.
        grid
            The value of each of the first letters, ascending; others have none.
        numbers
            The frequencies of all letters of the first group, then of the second, and so on.

        Returns
        -------
        GroupMeans
            The means.

        Examples
        --------
        >>> import fedldp
        >>> speed, model = fedldp.Number("speed", 0, 130), fedldp.Category("model", ["A", "B"])
        >>> plan = fedldp.Plan(fedldp.Schema((fedldp.Within("by model", speed, model),)), 4.0)
        >>> plan.tally().estimate()["by model"].few
        ('A', 'B')
        """
        # A value between two ends counts as a part of each, so that the grids of plans may differ.
        low, high = float(grid[0]), float(grid[-1])
        upper = (grid - low) / (high - low)
        places = letters * np.arange(len(groups))[:, None] + np.arange(len(grid))
        joint = _joint(numbers).sums(
            np.repeat(places, 2, axis=0), np.tile([1 - upper, upper], (len(groups), 1))
        )
        ends = np.arange(2 * len(groups)).reshape(-1, 2)
        answers = int(np.max(numbers.answers))
        means = ratios(joint, answers, ends, np.array([[low, high]]), (low, high))
        return cls._of(groups, joint, means)

    @classmethod
    def _of(cls, groups: tuple[str, ...], joint: Joint, found: Ratios) -> "GroupMeans":
        shares = _sums(joint, found.places)
        both = (
            np.concatenate([one[:, 0], other])
            for one, other in zip(found.numbers[:4], shares, strict=True)
        )
        few = tuple(group for group, is_few in zip(groups, found.few, strict=True) if is_few)
        return cls(groups, _numbers(*both, found.numbers.answers.max(), joint), few, found)

    def with_numbers(self, numbers: Numbers) -> "GroupMeans":
        if self.ratios is not None and numbers.joint is not None:
            return self._of(self.groups, numbers.joint, self.ratios.of(numbers.joint))
        lows = numbers.interval[len(self.groups) :, 0]
        few = tuple(group for group, low in zip(self.groups, lows, strict=True) if not low > 0)
        return GroupMeans(self.groups, numbers, few)

    @property
    def _note(self) -> str:  # type: ignore[override]
        return f"; too few answers: {listed(self.few)}" if self.few else ""

    @property
    def labels(self) -> tuple[str, ...]:
        """The label of each value."""
        return (*self.groups, *(f"share of {group}" for group in self.groups))

    def _half(self, second: bool) -> Numbers:
        number = len(self.groups)
        at = slice(number, None) if second else slice(number)
        return _numbers(*(each[at] for each in self.numbers[:4]), np.full(number, self.answers))

    @property
    def means(self) -> Mean:
        """The mean of each group, as arrays."""
        return Mean.of(self._half(second=False))

    @property
    def shares(self) -> Frequencies:
        """The share of each group among all vehicles."""
        return Frequencies.of(self.groups, self._half(second=True))

    def __getitem__(self, group: str) -> Mean:
        """Return the mean of one group."""
        place = _place(group, self.groups, "group")
        return Mean.of(_numbers(*(each[place] for each in self._half(second=False)[:5])))

    def difference(self, one: str, other: str) -> Mean:
        """Return by how much the mean of one group is larger than that of another.

        Parameters
        ----------
        one, other
            The labels of two groups.

        Returns
        -------
        Mean
            The difference, with an interval of its own, and a simultaneous one that holds for all
            pairs of groups at once.

        Raises
        ------
        UnknownName
            If there is no such group.

        Examples
        --------
        >>> import fedldp
        >>> speed, model = fedldp.Number("speed", 0, 130), fedldp.Category("model", ["A", "B"])
        >>> plan = fedldp.Plan(fedldp.Schema((fedldp.Within("by model", speed, model),)), 4.0)
        >>> rows = {"speed": [26, 104] * 20_000, "model": ["A", "B"] * 20_000}
        >>> found = plan.simulate(rows, fedldp.source(1)).estimate()["by model"]
        >>> found.difference("B", "A").interval.round()
        array([76., 79.])
        """
        pair = _place(one, self.groups, "group"), _place(other, self.groups, "group")
        covariance, joint = None, self.numbers.joint
        if self.ratios is not None and joint is not None:
            covariance = self.ratios.covariance(joint, (pair[0], 0), (pair[1], 0))
        return mean_difference(self._for_pairs(pair[0]), self._for_pairs(pair[1]), covariance)

    def _for_pairs(self, place: int) -> Mean:
        """Return a group's mean, with an interval that holds for all pairs of groups at once."""
        mean, number, joint = self[self.groups[place]], len(self.groups), self.numbers.joint
        if joint is None or number < 4:  # there are at most as many pairs as groups
            return mean
        wide, together = joint.reaches((number - 1) // 2 + 1)[1], joint.reaches()[1]
        factor = wide.errors / together.errors
        stretched = mean.mean + (mean.simultaneous - mean.mean) * factor
        return Mean(mean.mean, mean.stderr, mean.interval, stretched, mean.answers)


@final
@dataclass(frozen=True, eq=False, repr=False)
class MeanOfSome(_Several):
    """The mean of a number among the vehicles that have a value, and their share.

    Attributes
    ----------
    values
        The mean in the number's own units, then the share of vehicles that have a value.
    stderr
        The standard errors of both.
    interval
        An interval for each of the two.
    simultaneous
        Wider intervals, which contain all numbers of the estimate at once.
    answers
        How many vehicles answered.

    Examples
    --------
    >>> import fedldp
    >>> speed = fedldp.OptionalNumber("speed", 0, 130)
    >>> plan = fedldp.Plan(fedldp.Schema((speed,)), epsilon=2.0)
    >>> rows = [{"speed": 100}] * 70_000 + [{}] * 30_000
    >>> found = plan.simulate(rows, fedldp.source(1)).estimate()["speed"]
    >>> found
    <MeanOfSome: mean 99.71 ± 0.56, share 0.7006 ± 0.0045; 100,000 answers>
    >>> bool(found.mean_interval[0] < 100 < found.mean_interval[1])
    True
    """

    numbers: Numbers
    ratios: Ratios | None = None

    labels = ("mean", "share")

    @classmethod
    def of(cls, grid: Floats, numbers: Numbers) -> "MeanOfSome":
        """Return the mean that the frequencies of rounded values and of "missing" describe.

        Parameters
        ----------
        grid
            The values that numbers are rounded to, ascending.
        numbers
            Their frequencies, and that of "missing".

        Returns
        -------
        MeanOfSome
            The mean.

        Examples
        --------
        >>> import fedldp
        >>> plan = fedldp.Plan(fedldp.Schema((fedldp.OptionalNumber("x", 0, 1),)), 2.0)
        >>> plan.simulate({"x": [0.5, None] * 5000}, fedldp.source(1)).estimate()["x"].answers
        10000
        """
        return cls._of(GroupMeans.of(("",), len(numbers.values), grid, numbers))

    @classmethod
    def _of(cls, alone: GroupMeans) -> "MeanOfSome":
        return cls(alone.numbers, alone.ratios)

    def with_numbers(self, numbers: Numbers) -> "MeanOfSome":
        return self._of(GroupMeans(("",), self.numbers, (), self.ratios).with_numbers(numbers))

    @property
    def mean(self) -> float:
        """The mean among the vehicles that have a value."""
        return float(self.values[0])

    @property
    def mean_interval(self) -> Floats:
        """The interval of the mean."""
        found: Floats = self.interval[0]
        return found

    @property
    def share(self) -> float:
        """The share of vehicles that have a value: unbiased, so that it may be above 1."""
        return float(self.values[1])

    @property
    def share_interval(self) -> Floats:
        """The interval of the share."""
        found: Floats = self.interval[1]
        return found


@final
@dataclass(frozen=True, eq=False, repr=False)
class TwoWay(_Several):
    """A table of two categories: the frequency of each pair of labels, unbiased.

    Attributes
    ----------
    rows
        The labels of the groups.
    columns
        The labels of the other category.
    values
        The frequency of each pair, row by row.
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
    >>> fuel = fedldp.Category("fuel", ["petrol", "none"])
    >>> model = fedldp.Category("model", ["A", "B"])
    >>> plan = fedldp.Plan(fedldp.Schema((fedldp.Within("by model", fuel, model),)), 4.0)
    >>> rows = {"fuel": ["none", "petrol", "none"] * 20_000, "model": ["A", "B", "B"] * 20_000}
    >>> found = plan.simulate(rows, fedldp.source(1)).estimate()["by model"]
    >>> found.table.round(2) + 0.0
    array([[0.  , 0.33],
           [0.33, 0.33]])
    >>> found.within.mean.round(2)
    array([[0. , 1. ],
           [0.5, 0.5]])
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    numbers: Numbers

    @classmethod
    def of(cls, rows: tuple[str, ...], columns: tuple[str, ...], numbers: Numbers) -> "TwoWay":
        """Return the table that some frequencies describe.

        Parameters
        ----------
        rows, columns
            The labels.
        numbers
            The frequency of each pair, row by row.

        Returns
        -------
        TwoWay
            The table.

        Examples
        --------
        >>> import fedldp
        >>> fuel, car = fedldp.Category("fuel", ["none", "gas"]), fedldp.Category("car", ["A", "B"])
        >>> plan = fedldp.Plan(fedldp.Schema((fedldp.Within("x", fuel, car),)), 4.0)
        >>> plan.simulate({"fuel": ["none"] * 9, "car": ["A"] * 9}, fedldp.source(1)).reports
        9
        """
        return cls(rows, columns, numbers)

    def with_numbers(self, numbers: Numbers) -> "TwoWay":
        return TwoWay(self.rows, self.columns, numbers)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of each pair."""
        return tuple(f"{row}, {column}" for row in self.rows for column in self.columns)

    @property
    def _shape(self) -> tuple[int, int]:
        return len(self.rows), len(self.columns)

    @property
    def table(self) -> Floats:
        """The frequency of each pair, with a row for each group."""
        found: Floats = np.reshape(self.values, self._shape)
        return found

    def _places(self) -> Integers:
        return np.arange(len(self.values)).reshape(self._shape)

    def _known_joint(self) -> Joint:
        if self.numbers.joint is None:
            raise DomainError(
                "a combined table has no shares within groups: take them from each estimate."
            )
        return self.numbers.joint

    @property
    def row_shares(self) -> Frequencies:
        """The share of each group."""
        sums = _sums(self._known_joint(), self._places())
        return Frequencies.of(self.rows, _numbers(*sums, self.answers))

    @property
    def column_shares(self) -> Frequencies:
        """The share of each label of the other category."""
        sums = _sums(self._known_joint(), self._places().T)
        return Frequencies.of(self.columns, _numbers(*sums, self.answers))

    def _ratios(self) -> Ratios:
        eye = np.eye(len(self.columns))
        return ratios(self._known_joint(), self.answers, self._places(), eye, (0.0, 1.0))

    @property
    def within(self) -> Mean:
        """The share of each label within each group, as arrays with a row for each group."""
        return Mean.of(self._ratios().numbers)

    def difference(self, one: str, other: str) -> Mean:
        """Return by how much the shares within one group are larger than within another.

        Parameters
        ----------
        one, other
            The labels of two groups.

        Returns
        -------
        Mean
            A difference for each column.

        Raises
        ------
        UnknownName
            If there is no such group.

        Examples
        --------
        >>> import fedldp
        >>> fuel, car = fedldp.Category("fuel", ["none", "gas"]), fedldp.Category("car", ["A", "B"])
        >>> plan = fedldp.Plan(fedldp.Schema((fedldp.Within("x", fuel, car),)), 4.0)
        >>> rows = {"fuel": ["none", "gas"] * 20_000, "car": ["A", "B"] * 20_000}
        >>> found = plan.simulate(rows, fedldp.source(1)).estimate()["x"]
        >>> found.difference("A", "B").mean.round(1)
        array([ 1., -1.])
        """
        table_ratios, joint = self._ratios(), self._known_joint()
        a, b = (_place(group, self.rows, "group") for group in (one, other))
        covariance = np.array(
            [table_ratios.covariance(joint, (a, j), (b, j)) for j in range(len(self.columns))]
        )
        first, second = (
            Mean.of(_numbers(*(values[place] for values in table_ratios.numbers[:5])))
            for place in (a, b)
        )
        return mean_difference(first, second, covariance)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Differences(_Several):
    """By how much the numbers of one estimate are larger than those of another.

    Attributes
    ----------
    labels
        The label of each number, as in the two results.
    values
        The differences.
    stderr
        The standard error of each difference.
    interval
        The lower and the upper end of an interval for each difference.
    simultaneous
        Wider intervals, which contain all differences at once.
    answers
        How many vehicles answered in the smaller of the two estimates.

    Examples
    --------
    >>> import fedldp
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 4.0, fedldp.Sample(mechanism="hm-tp"))
    >>> spring = plan.simulate([{"speed": 30}] * 10_000, fedldp.source(1)).estimate()
    >>> autumn = plan.simulate([{"speed": 28}] * 10_000, fedldp.source(2)).estimate()
    >>> fedldp.compare_estimates(spring, autumn)["speed"]
    <Differences: 1.75 ± 0.22; 10,000 answers>
    """

    names: tuple[str, ...]
    numbers: Numbers

    @classmethod
    def of(cls, one: Result, other: Result) -> "Differences":
        """Return the differences between two results of different vehicles.

        Parameters
        ----------
        one, other
            Results of the same attribute.

        Returns
        -------
        Differences
            The differences.

        Raises
        ------
        DomainError
            If the results have other labels or sizes.

        Examples
        --------
        >>> import fedldp
        >>> schema = fedldp.Schema.of(speed=(0, 50))
        >>> plan = fedldp.Plan(schema, 4.0, fedldp.Sample(mechanism="hm-tp"))
        >>> found = plan.simulate([{"speed": 30}] * 10_000, fedldp.source(1)).estimate()["speed"]
        >>> Differences.of(found, found).values
        array([0.])
        """
        if one.labels != other.labels or np.shape(one.values) != np.shape(other.values):
            raise DomainError(
                f"a difference needs the same labels in both; got {listed(one.labels)} and "
                f"{listed(other.labels)}."
            )
        both = [
            Mean.of(
                _numbers(
                    np.atleast_1d(group.values),
                    np.atleast_1d(group.stderr),
                    np.reshape(group.interval, (-1, 2)),
                    np.reshape(group.simultaneous, (-1, 2)),
                    np.broadcast_to(group.answers, np.size(group.values)),
                )
            )
            for group in (one, other)
        ]
        bounds = mean_difference(both[0], both[1], 0.0)
        arrays = (bounds.mean, bounds.stderr, bounds.interval, bounds.simultaneous, bounds.answers)
        return cls(one.labels, _numbers(*arrays))

    @property
    def labels(self) -> tuple[str, ...]:
        """The label of each number."""
        return self.names

    def with_numbers(self, numbers: Numbers) -> "Differences":
        return Differences(self.names, numbers)


def _numbers(*arrays: Any) -> Numbers:
    return Numbers(*arrays)


def _joint(numbers: Numbers) -> Joint:
    if numbers.joint is None:
        raise DomainError("these frequencies have no joint errors: estimate from a tally.")
    return numbers.joint


def _sums(joint: Joint, places: Integers) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the sum of the frequencies in each row of places, with its errors.

    A rare answer adds to the sum, or to what is left of it.
    """
    value = joint.frequencies[places].sum(axis=1)
    square = joint.covariance(places[:, :, None], places[:, None, :]).sum(axis=(1, 2))
    possible = np.clip(value, 0.0, 1.0)
    far = np.maximum(possible, 1 - possible) ** 2

    def half(reach: Reach) -> Floats:
        rare = far * reach.rare[places].max(axis=1)
        errors: Floats = reach.errors * np.sqrt(np.maximum(square, 0.0) + rare)
        return errors

    usual, halves = joint.reach(DEFAULT_RISK), [half(reach) for reach in joint.reaches()]
    alone, together = (
        np.stack([value - half_width, value + half_width], axis=-1) for half_width in halves
    )
    return value, half(usual) / usual.errors, alone, together
