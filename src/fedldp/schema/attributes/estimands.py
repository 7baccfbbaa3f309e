"""Estimands: what is estimated about an attribute, alone or within the groups of another one."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from fedldp._internal.validation import Floats, Integers
from fedldp.schema.attributes.distribution import Bins, GroupDistributions
from fedldp.schema.attributes.grouped import GroupMeans, MeanOfSome, TwoWay, moved_ratio
from fedldp.schema.attributes.inputs import LabelInputs, NumberInputs, Values
from fedldp.schema.attributes.results import Frequencies, Mean, Numbers, Result

Sums = tuple[Values, Any]  # a sum for each estimate, and by how much to divide it
Ends = tuple[float, float]


@final
@dataclass(frozen=True)
class Groups:
    """The labels of the groups in which something is estimated, and the name of their column."""

    name: str
    labels: tuple[str, ...]


class Estimand(ABC):
    """What is estimated: the result that a user sees, its numbers, their truth and their limits.

    It must be linear in what a coder takes: a mean or a share, whose estimates of parts of a fleet
    average to that of the whole. A result may derive other numbers from these, as
    `CircularDistribution` does.
    """

    @property
    def half_width(self) -> float:
        """An error on the scale of the inputs is multiplied by it."""
        return 1.0

    def from_unit(self, mean: Any) -> Any:
        """Convert means from the scale of the inputs to the attribute's own units."""
        return mean

    @abstractmethod
    def result(self, numbers: Numbers) -> Result:
        """Return what `estimate["name"]` is."""

    @abstractmethod
    def name_of(self, place: int) -> str:
        """Return the name of what a coder estimates: an entry of a vector, or a label."""

    def line(self, place: int) -> tuple[str, Ends]:
        """Return the name of a line of the result, and the range of its true value."""
        return self.name_of(place), (0.0, 1.0)

    @abstractmethod
    def sums(self, values: Values) -> Sums:
        """Return the sum of the rows for each line, and the divisors that give the truth."""

    @abstractmethod
    def summary(self, values: Values) -> dict[str, Any]:
        """Return what is known about a column of a data set, for JSON."""

    @abstractmethod
    def typical(self, summary: Mapping[str, Any]) -> str:
        """Return the typical value of a summary, for display."""

    @abstractmethod
    def influence(self, coder: Any, liars: float, group: float) -> float:
        """Return how far a share of liars can move the estimate: see `fedldp.Plan.influence`."""


class Groupable(Estimand):
    """An estimand that can also be estimated within the groups of another attribute."""

    @abstractmethod
    def within(self, name: str, inputs: LabelInputs, groups: Groups) -> Estimand:
        """Return what is estimated within groups, by an attribute with a name and inputs."""


@final
@dataclass(frozen=True)
class NumberMean(Groupable):
    """The mean of a number, or of each number of a vector."""

    name: str
    inputs: NumberInputs

    @property
    def _ends(self) -> Ends:
        return self.inputs.low, self.inputs.high

    @property
    def half_width(self) -> float:
        return self.inputs.high / 2 - self.inputs.low / 2

    def from_unit(self, mean: Any) -> Any:
        return self.inputs.centre + mean * self.half_width

    def result(self, numbers: Numbers) -> Result:
        return Mean.of(numbers.first if self.inputs.size == 1 else numbers)

    def name_of(self, place: int) -> str:
        return self.name if self.inputs.size == 1 else f"{self.name}[{place}]"

    def line(self, place: int) -> tuple[str, Ends]:
        return self.name_of(place), self._ends

    def sums(self, values: Values) -> Sums:
        known = self.inputs.known(values)
        with np.errstate(invalid="ignore", over="ignore"):  # values may be infinite
            return np.where(known, values, 0.0).sum(axis=0), known.sum(axis=0)

    def summary(self, values: Values) -> dict[str, Any]:
        outside = (values < self.inputs.low) | (values > self.inputs.high)
        return {"mean": float(values.mean()), "outside": float(outside.mean())}

    def typical(self, summary: Mapping[str, Any]) -> str:
        return f"{summary['mean']:.4g}"

    def influence(self, coder: Any, liars: float, group: float) -> float:
        return float(coder.reach * self.half_width * liars)

    def within(self, name: str, inputs: LabelInputs, groups: Groups) -> Estimand:
        return GroupedMean(name, inputs, groups, self.name, self._ends)


@final
@dataclass(frozen=True)
class OptionalMean(Groupable):
    """The mean of a number among the vehicles that have one, and their share."""

    name: str
    inputs: LabelInputs
    grid: tuple[float, ...]

    def result(self, numbers: Numbers) -> Result:
        return MeanOfSome.of(np.array(self.grid), numbers)

    def name_of(self, place: int) -> str:
        return f"{self.name} = {self.inputs.labels[place]}"

    def line(self, place: int) -> tuple[str, Ends]:
        if place == 0:
            return self.name, (self.grid[0], self.grid[-1])
        return f"share with {self.name}", (0.0, 1.0)

    def sums(self, values: Values) -> Sums:
        return _group_sums(self.inputs.of(values[:, 0]), 1, len(self.inputs.labels), self.grid)

    def summary(self, values: Values) -> dict[str, Any]:
        (total, present), (_, number) = self.sums(values)
        return {"mean": float(total / max(present, 1)), "missing": float(1 - present / number)}

    def typical(self, summary: Mapping[str, Any]) -> str:
        return f"{summary['mean']:.4g}"

    def influence(self, coder: Any, liars: float, group: float) -> float:
        return _mean_influence(self.grid, coder, liars, group)

    def within(self, name: str, inputs: LabelInputs, groups: Groups) -> Estimand:
        return GroupedMean(name, inputs, groups, self.name, self.grid)


class Labels(Estimand):
    """Something about the frequencies of labels."""

    name: str
    inputs: LabelInputs

    def name_of(self, place: int) -> str:
        return f"{self.name} = {self.inputs.labels[place]}"

    def sums(self, values: Values) -> Sums:
        return _label_counts(self.inputs, values), len(values)

    def summary(self, values: Values) -> dict[str, Any]:
        counts, number = self.sums(values)
        return {"frequencies": (counts / number).tolist()}

    def typical(self, summary: Mapping[str, Any]) -> str:
        frequencies = summary["frequencies"]
        most = int(np.argmax(frequencies))
        return f"{self.inputs.labels[most]} ({frequencies[most]:.0%})"


@final
@dataclass(frozen=True)
class LabelFrequencies(Labels, Groupable):
    """The frequency of each label."""

    name: str
    inputs: LabelInputs

    def result(self, numbers: Numbers) -> Result:
        return Frequencies.of(self.inputs.labels, numbers)

    def influence(self, coder: Any, liars: float, group: float) -> float:
        return float(coder.reach * liars)

    def within(self, name: str, inputs: LabelInputs, groups: Groups) -> Estimand:
        return LabelTable(name, inputs, groups, self.inputs.labels)


@final
@dataclass(frozen=True)
class BinShares(Labels, Groupable):
    """The shares of bins among the vehicles that have a value: a distribution of some kind.

    `reach` is how far a quantile, or a mean direction, can be from the true one.
    """

    name: str
    inputs: LabelInputs
    edges: tuple[float, ...]
    kind: type[Bins]
    reach: float

    def result(self, numbers: Numbers) -> Result:
        return self.kind.of(self.edges, numbers)

    def sums(self, values: Values) -> Sums:
        counts, bins = _label_counts(self.inputs, values), len(self.edges) - 1
        totals = np.full(len(counts), counts[:bins].sum())
        totals[bins:] = len(values)
        return counts, totals

    def influence(self, coder: Any, liars: float, group: float) -> float:
        # A quantile is anywhere between two values of which nobody has one between: however few
        # the liars are, they decide which of the two it is.
        return self.reach if liars > 0 else 0.0

    def within(self, name: str, inputs: LabelInputs, groups: Groups) -> Estimand:
        return GroupedBins(name, inputs, groups, self)


class Pairs(Estimand):
    """Something about the frequencies of pairs: a group, and a label within it."""

    name: str
    inputs: LabelInputs
    groups: Groups

    def name_of(self, place: int) -> str:
        return f"{self.name} = {self.inputs.labels[place]}"

    def sums(self, values: Values) -> Sums:
        counts = _label_counts(self.inputs, values[:, 0]).astype(np.float64)
        return counts, np.full(counts.size, float(len(values)))

    def summary(self, values: Values) -> dict[str, Any]:
        sums, numbers = self.sums(values)
        return {"estimates": (sums / np.maximum(numbers, 1)).tolist()}

    def typical(self, summary: Mapping[str, Any]) -> str:
        return ""


@final
@dataclass(frozen=True)
class LabelTable(Pairs):
    """The frequency of each pair of a group and a label."""

    name: str
    inputs: LabelInputs
    groups: Groups
    labels: tuple[str, ...]

    def result(self, numbers: Numbers) -> Result:
        return TwoWay.of(self.groups.labels, self.labels, numbers)

    def influence(self, coder: Any, liars: float, group: float) -> float:
        return moved_ratio(coder, np.eye(len(self.labels))[0], liars, group)


@final
@dataclass(frozen=True)
class GroupedBins(Pairs):
    """The shares of bins within each group."""

    name: str
    inputs: LabelInputs
    groups: Groups
    bins: BinShares

    def result(self, numbers: Numbers) -> Result:
        bins = self.bins
        labels = self.groups.labels, bins.inputs.labels
        return GroupDistributions(*labels, bins.edges, numbers, bins.kind)

    def influence(self, coder: Any, liars: float, group: float) -> float:
        return self.bins.influence(coder, liars, group)


@final
@dataclass(frozen=True)
class GroupedMean(Pairs):
    """The mean of a number within each group, and the share of each group."""

    name: str
    inputs: LabelInputs
    groups: Groups
    of: str
    grid: tuple[float, ...]

    @property
    def _letters(self) -> int:
        return len(self.inputs.labels) // len(self.groups.labels)

    def result(self, numbers: Numbers) -> Result:
        return GroupMeans.of(self.groups.labels, self._letters, np.array(self.grid), numbers)

    def line(self, place: int) -> tuple[str, Ends]:
        number = len(self.groups.labels)
        group = f"{self.groups.name} = {self.groups.labels[place % number]}"
        if place < number:
            return f"{self.of} where {group}", (self.grid[0], self.grid[-1])
        return f"share of {group}", (0.0, 1.0)

    def sums(self, values: Values) -> Sums:
        positions = self.inputs.of(values[:, 0])
        return _group_sums(positions, len(self.groups.labels), self._letters, self.grid)

    def influence(self, coder: Any, liars: float, group: float) -> float:
        return _mean_influence(self.grid, coder, liars, group)


def _label_counts(inputs: LabelInputs, values: Values) -> Integers:
    """Return how often each label occurs; NaN adds nothing."""
    codes = inputs.of(values[~np.isnan(values)]).astype(np.int64)
    return np.bincount(codes, minlength=len(inputs.labels))


def _group_sums(positions: Floats, number: int, letters: int, grid: tuple[float, ...]) -> Sums:
    """Return the sum of the values in each group, then how many there are, with the divisors."""
    groups, places = np.divmod(positions, letters)
    low, high, last = grid[0], grid[-1], len(grid) - 1
    present = places <= last
    own = groups.astype(np.int64)[present]
    counts = np.bincount(own, minlength=number).astype(np.float64)
    shares = np.bincount(own, places[present] / last, minlength=number)
    totals = np.full(number, float(len(positions)))
    return np.append(low * counts + (high - low) * shares, counts), np.append(counts, totals)


def _mean_influence(grid: tuple[float, ...], coder: Any, liars: float, group: float) -> float:
    """Return how far liars can move the mean of values that are rounded to a grid."""
    places = np.linspace(0.0, 1.0, len(grid))
    return (grid[-1] - grid[0]) * moved_ratio(coder, places, liars, group)
