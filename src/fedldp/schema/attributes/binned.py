"""Numbers of which the distribution is estimated: a vehicle answers with a bin."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from math import inf
from typing import Any, final

import numpy as np

from fedldp._internal.validation import Floats, checked_text, whole
from fedldp.errors import DomainError
from fedldp.schema.attributes.base import Labelled, finite
from fedldp.schema.attributes.distribution import Bins, Distribution, bin_labels
from fedldp.schema.attributes.estimands import BinShares
from fedldp.schema.attributes.readers import NumberReader
from fedldp.vehicle import MISSING, MOST_BINS, PLAN_FORMAT_2, RANDOM

__all__ = ["BinnedNumber"]

SPACINGS = ("linear", "logarithmic")


class Binned(Labelled):
    """What all attributes have in common whose labels are bins, and perhaps "missing"."""

    name: str
    missing: float | None
    optional: bool
    edges: tuple[float, ...]  # of the bins, ascending

    plan_format = PLAN_FORMAT_2

    def _check(self, default: float) -> None:
        """Validate the name and what a vehicle without a value answers."""
        checked_text(self.name, "an attribute's name")
        if not isinstance(self.optional, bool):
            raise DomainError(
                f"optional of {self.name!r} must be True or False; got {self.optional!r}."
            )
        if self.optional and self.missing is not None:
            raise DomainError(
                f"{self.name!r} is optional: missing values are not replaced, so leave missing out."
            )
        if not self.optional:
            missing = (
                default if self.missing is None else finite(self.name, "missing", self.missing)
            )
            object.__setattr__(self, "missing", missing)
            if not self.edges[0] <= missing <= self.edges[-1]:
                raise DomainError(
                    f"missing of {self.name!r} must lie between {self.edges[0]!r} and "
                    f"{self.edges[-1]!r}; got {missing!r}."
                )

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The bins as texts, then "missing" if values are optional."""
        return (*bin_labels(self.edges), *([MISSING] if self.optional else []))

    @cached_property
    def _inner(self) -> Floats:
        return np.array(self.edges[1:-1])

    def bin(self, values: Floats) -> Floats:
        """Return the number of the bin of each number.

        Parameters
        ----------
        values
            Numbers, NaN for a missing one.

        Returns
        -------
        array of float
            Numbers of bins, from 0, and NaN for NaN. An edge belongs to the bin on its right.

        Examples
        --------
        >>> from fedldp import BinnedNumber
        >>> BinnedNumber.of("speed", 0, 130, 26).bin(np.array([-5.0, 4.9, 5.0, 130.0, np.nan]))
        array([ 0.,  0.,  1., 25., nan])
        """
        places = np.searchsorted(self._inner, values, side="right").astype(np.float64)
        places[np.isnan(values)] = np.nan
        return places

    @property
    def missing_input(self) -> float:
        """The input of a missing value: the number of its bin, or of "missing"."""
        if self.missing is None:
            return float(len(self.edges) - 1)
        return float(self.bin(np.array([self.missing]))[0])

    @property
    @abstractmethod
    def kind(self) -> type[Bins]:
        """The kind of the result."""

    @property
    @abstractmethod
    def bounds(self) -> tuple[float, float] | None:
        """The bounds to which values are clipped; None on a circle."""

    @property
    @abstractmethod
    def largest_shift(self) -> float:
        """How far a quantile, or a mean direction, can be from the true one."""

    @property
    def readers(self) -> tuple[NumberReader, ...]:
        """What reads its column."""
        missing = f"'{MISSING}'" if self.missing is None else f"{self.missing:.10g}"
        return (NumberReader(self.name, missing, self.bounds, optional=self.optional),)

    def join(self, columns: list[Floats]) -> Floats:
        places = self.bin(columns[0])
        return np.where(np.isnan(places), self.missing_input, places) if self.optional else places

    @property
    def estimand(self) -> BinShares:
        """What is estimated: the distribution."""
        return BinShares(self.name, self.inputs, self.edges, self.kind, self.largest_shift)

    def _defaults(self) -> dict[str, Any]:
        """Return the entry that says what a vehicle without a value answers."""
        return {"optional": True} if self.optional else {"missing": self.missing}


@final
@dataclass(frozen=True, repr=False)
class BinnedNumber(Binned):
    """A number whose distribution is estimated. A vehicle answers with the bin of its value.

    `BinnedNumber.of` computes the edges.

    Parameters
    ----------
    name
        The name of the attribute.
    edges
        The public edges of the bins, ascending. A value beyond the first or the last counts as that
        edge; one at an edge between belongs to the bin on its right.
    missing
        The public value that a vehicle uses if its own is missing or unreadable. By default it is
        in the middle between the first and the last edge.
    optional
        Whether some vehicles have no value. They say so, and the distribution among the others is
        estimated.
    constant
        Whether the value of a vehicle never changes. See `Attribute`.
    rule
        How several rows of a vehicle become one value. See `Attribute`.
    unit
        What a value means to people. See `Attribute`.

    Raises
    ------
    DomainError
        If there are fewer than 2 bins or too many, the edges do not ascend, or `missing` lies
        beyond them.

    Examples
    --------
    >>> BinnedNumber("speed", (0, 30, 50, 130)).labels
    ('0 to 30', '30 to 50', '50 to 130')
    """

    name: str
    edges: tuple[float, ...]
    missing: float | None = None
    optional: bool = False
    constant: bool = field(default=False, kw_only=True)
    rule: str = field(default=RANDOM, kw_only=True)
    unit: str = field(default="", kw_only=True, compare=False)

    declared_as = "edges, or low, high and bins (both with an optional missing)"
    kind = Distribution

    def __post_init__(self) -> None:
        edges_given = self.edges
        if isinstance(edges_given, str | bytes) or not hasattr(edges_given, "__iter__"):
            raise DomainError(
                f"edges of {self.name!r} must be a list of numbers; got {edges_given!r}."
            )
        edges = tuple(finite(self.name, "each edge", edge) for edge in edges_given)
        object.__setattr__(self, "edges", edges)
        if not 2 <= len(edges) - 1 <= MOST_BINS:
            raise DomainError(
                f"{self.name!r} needs from 2 to {MOST_BINS} bins; got {len(edges) - 1}."
            )
        ascend = all(low < high for low, high in pairwise(edges))
        if not ascend or not edges[-1] - edges[0] < inf:
            raise DomainError(
                f"edges of {self.name!r} must ascend, with a finite range; got {edges!r:.200}."
            )
        self._check(edges[0] / 2 + edges[-1] / 2)

    @classmethod
    def of(
        cls,
        name: str,
        low: float,
        high: float,
        bins: int | Sequence[float],
        *,
        spacing: str = "linear",
        missing: float | None = None,
        optional: bool = False,
        constant: bool = False,
    ) -> "BinnedNumber":
        """Return a number between two bounds, with a number of bins.

        Parameters
        ----------
        name
            The name of the attribute.
        low, high
            The public bounds.
        bins
            The number of bins, or their edges from low to high.
        spacing
            How the edges are spaced: "linear" or "logarithmic".
        missing, optional, constant
            As for `BinnedNumber`.

        Returns
        -------
        BinnedNumber
            The attribute.

        Raises
        ------
        DomainError
            If an argument is invalid.

        Examples
        --------
        >>> BinnedNumber.of("speed", 0, 130, bins=26) == BinnedNumber("speed", range(0, 131, 5))
        True
        >>> BinnedNumber.of("way", 1, 1000, bins=3, spacing="logarithmic", optional=True).labels
        ('1 to 10', '10 to 100', '100 to 1000', 'missing')
        """
        bounds = finite(name, "low", low), finite(name, "high", high)
        edges = tuple(_edges(name, *bounds, bins, spacing))
        return cls(name, edges, missing, optional, constant=constant)

    @classmethod
    def from_table(cls, name: str, table: Mapping[str, Any]) -> "BinnedNumber | None":
        if {"edges"} <= table.keys() <= {"edges", "missing", "optional"}:
            return cls(name, **table)
        known = {"low", "high", "bins", "spacing", "missing", "optional"}
        return cls.of(name, **table) if {"low", "high", "bins"} <= table.keys() <= known else None

    def options(self) -> dict[str, Any]:
        return {"edges": list(self.edges), **self._defaults()}

    @property
    def domain(self) -> str:
        """The bounds and the number of bins, for display."""
        low, high = self.edges[0], self.edges[-1]
        missing = ", or missing" if self.optional else ""
        return f"{low:g} to {high:g} in {len(self.edges) - 1} bins{missing}"

    @property
    def bounds(self) -> tuple[float, float]:
        """The first edge and the last."""
        return self.edges[0], self.edges[-1]

    @property
    def largest_shift(self) -> float:
        """The distance between the bounds."""
        return self.edges[-1] - self.edges[0]


def _edges(
    name: str, low: float, high: float, bins: int | Sequence[float], spacing: str
) -> Sequence[float]:
    """Return the edges of bins between two bounds.

    >>> _edges("speed", 0, 130, [0, 50, 130], "linear")
    [0, 50, 130]
    """
    if spacing not in SPACINGS:
        raise DomainError(f"spacing of {name!r} must be one of {SPACINGS}; got {spacing!r}.")
    if not low < high:
        raise DomainError(
            f"low of {name!r} must be below high; got {low!r} and {high!r}. Did you swap them?"
        )
    if hasattr(bins, "__iter__"):
        edges = [*bins]
        if spacing != "linear" or not edges or (edges[0], edges[-1]) != (low, high):
            raise DomainError(
                f"bins of {name!r} as a list must be edges from {low!r} to {high!r}, "
                f"without a spacing; got {bins!r:.80}."
            )
        return edges
    number = whole(bins, f"bins of {name!r}")
    if not 2 <= number <= MOST_BINS:
        raise DomainError(f"{name!r} needs from 2 to {MOST_BINS} bins; got {number}.")
    if spacing == "logarithmic" and low <= 0:
        raise DomainError(f"logarithmic bins of {name!r} need low > 0; got {low!r}.")
    spaced = np.geomspace if spacing == "logarithmic" else np.linspace
    return [low, *spaced(low, high, number + 1)[1:-1].tolist(), high]
