"""What a training costs each vehicle, and how much is sent."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, cast, final

import numpy as np

from fedldp._internal import packing
from fedldp._internal.validation import Floats, Integers
from fedldp.budget.composition import Composition
from fedldp.coders.base import Cells
from fedldp.plan.parts import VehicleValues, vectors_of
from fedldp.plan.plan import Plan
from fedldp.randomness import Source
from fedldp.schema.attributes import Number
from fedldp.schema.schema import Schema


@final
@dataclass(frozen=True)
class Privacy:
    """What each vehicle has spent at most, and how much all of them have sent.

    Parameters
    ----------
    epsilon : Fraction
        The epsilon of all reports of one vehicle together.
    ratio : Fraction or None
        The exact factor by which the data of a vehicle can change the probability of its reports.
        It is at most e^epsilon; None for a study, in which nothing is sent.
    participations : int
        The most reports that one vehicle has sent.
    reports : int
        The number of reports of all vehicles.
    bits : int
        The size of a report, at most.
    bytes : int
        The size of all reports, packed.
    rho : Fraction, default=0
        Half the sum of the squared epsilons of all reports of one vehicle, for `composition`.

    Examples
    --------
    >>> import fedldp
    >>> from fedldp import Sample
    >>> plan = Plan(fedldp.Schema.vector(94, bound=1.0), 1.0, Sample(mechanism="three-outputs"))
    >>> privacy = Privacy.of(plan, reports=4_000_000)
    >>> float(privacy.epsilon), privacy.bits, privacy.bytes
    (1.0, 9, 4500000)
    >>> print(f"{float(privacy.ratio):.6f}")     # at most e
    2.718282
    """

    epsilon: Fraction
    ratio: Fraction | None
    participations: int
    reports: int
    bits: int
    bytes: int
    rho: Fraction = Fraction()

    @property
    def composition(self) -> Composition:
        """The cost of all reports of one vehicle, with `approximate(delta)` as a second number."""
        return Composition(self.epsilon, self.rho)

    @classmethod
    def of(cls, plan: Plan, reports: int, participations: int = 1) -> "Privacy":
        """Return the cost and the size of some reports on a plan for gradients.

        Parameters
        ----------
        plan : Plan
            The plan, as `Settings.plan` returns it.
        reports : int
            The number of reports of all vehicles.
        participations : int, default=1
            The most reports of one vehicle.

        Returns
        -------
        Privacy
            The cost and the size.
        """
        bits = bits_of(plan)
        return cls(
            plan.total_epsilon * participations,
            None if plan.study else _ratio(plan) ** participations,
            participations,
            reports,
            bits,
            packing.length(reports, bits),
            Composition.of({plan.total_epsilon: participations}).rho,
        )

    @classmethod
    def of_levels(cls, levels: Sequence["Privacy"]) -> "Privacy":
        """Return what vehicles with different epsilons have spent at most, and sent together.

        Parameters
        ----------
        levels : sequence of Privacy
            The cost and the size for each epsilon.

        Returns
        -------
        Privacy
            The largest cost, and the size of all reports.

        Examples
        --------
        >>> import fedldp
        >>> schema = fedldp.Schema.vector(94, bound=1.0)
        >>> from fedldp import Sample
        >>> plans = [Plan(schema, epsilon, Sample(mechanism="hm-tp")) for epsilon in (1.0, 2.0)]
        >>> found = Privacy.of_levels([Privacy.of(plan, reports=1000) for plan in plans])
        >>> float(found.epsilon), found.reports
        (2.0, 2000)
        """
        ratios = [level.ratio for level in levels if level.ratio is not None]
        return cls(
            max(level.epsilon for level in levels),
            max(ratios) if len(ratios) == len(levels) else None,
            max(level.participations for level in levels),
            sum(level.reports for level in levels),
            max(level.bits for level in levels),
            sum(level.bytes for level in levels),
            max(level.rho for level in levels),
        )


@final
@dataclass(frozen=True)
class NoPrivacy:
    """A substitute for a plan without privacy: vehicles send their clipped gradients.

    It is for comparison in simulations. Each number counts as a float of 32 bits.

    Parameters
    ----------
    schema : Schema
        The schema of a vector, as `Schema.vector` returns it.

    Examples
    --------
    >>> import fedldp
    >>> plan = NoPrivacy(fedldp.Schema.vector(2, bound=1.0))
    >>> plan.bits, plan.total_epsilon is None
    (64, True)
    """

    schema: Schema
    study: ClassVar[bool] = False

    @property
    def parts(self) -> "tuple[ClippedGradients]":
        """Its one part: all coordinates."""
        return (ClippedGradients(self.fingerprint),)

    @property
    def bits(self) -> int:
        """The number of bits that a vehicle sends."""
        return 32 * self.schema.dimensions

    @property
    def total_epsilon(self) -> None:
        """The cost of a report: None, as no finite epsilon holds."""
        return

    @property
    def fingerprint(self) -> Number:
        """What identifies it in checkpoints: the bounds of the vector, as in version 0.1."""
        return cast(Number, self.schema.attributes[0])


@final
@dataclass(frozen=True)
class ClippedGradients:
    """The part of `NoPrivacy`, and its own coder: it adds up the clipped gradients themselves.

    The counters are the sum of each coordinate, the sum of the lengths, and the number of vehicles.

    >>> import fedldp
    >>> from fedldp.plan.parts import Matrix
    >>> part = ClippedGradients(fedldp.Schema.vector(2, bound=1.0)["x"])
    >>> cells = np.zeros((1, part.starts[-1]))
    >>> part.simulate(Matrix(np.array([[0.5, 3.0], [0.1, -1.0]])), fedldp.source(1), cells)
    >>> cells[0, :2], part.mean_length(cells)
    (array([0.6, 0. ]), array([1.0615...]))
    """

    vector: Number
    study: ClassVar[bool] = True  # the counters are not whole numbers
    share: ClassVar[float] = 1.0  # of the vehicles that answer a coordinate
    noise: ClassVar[float] = 0.0

    @property
    def starts(self) -> Integers:
        """Where the counters begin and end."""
        return np.array([0, self.vector.size + 2])

    def simulate(self, values: VehicleValues, source: Source, cells: Cells) -> None:
        """Add the clipped gradients of some vehicles to counters, a row for each replica."""
        vector, replicas = self.vector, len(cells)
        columns = np.arange(vector.size)
        cells[:, -1] += len(values) / replicas
        if vector.length is not None:
            rows = vectors_of(values, columns).shortened(vector.scale, vector.inputs.missing)
            cells[:, :-2] += vector.half_width * rows.sums(replicas, columns.size)
            cells[:, -2] += vector.half_width * rows.lengths.reshape(replicas, -1).sum(axis=1)
            return
        clipped = vector.from_unit(vector.to_unit(values.all(columns)))
        cells[:, :-2] += clipped.reshape(replicas, -1, columns.size).sum(axis=1)
        squares = np.einsum("ij,ij->i", clipped, clipped)
        cells[:, -2] += np.sqrt(squares).reshape(replicas, -1).sum(axis=1)

    def by_block(self, cells: Cells) -> Iterator[tuple["ClippedGradients", tuple[Number], Cells]]:
        """Yield itself as the coder of a vector in its own units."""
        yield self, (Number("x", -1.0, 1.0, size=self.vector.size),), cells

    def sums(self, cells: Cells) -> tuple[Floats, Floats]:
        """Return how many vehicles have answered, and the sum of each coordinate."""
        return cells[:, -1:], cells[:, :-2]

    def mean_length(self, cells: Cells) -> Floats:
        """Return the mean length of the gradients."""
        found: Floats = cells[:, -2] / cells[:, -1]
        return found

    def noise_at(self, length: Floats) -> Floats:
        """Return the variance of an answer: there is no noise."""
        return np.zeros_like(length)


def bits_of(plan: Plan | NoPrivacy) -> int:
    """Return how many bits a vehicle sends: 0 in a study, in which nothing is sent."""
    return 0 if plan.study else plan.bits


def _ratio(plan: Plan) -> Fraction:
    """Return the largest ratio of the probabilities of a report under two vectors."""
    (part,) = plan.parts
    return part.ratio
