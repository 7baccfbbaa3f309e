"""What a training costs each vehicle, and what it sends."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, cast, final

import numpy as np

from fedldp._internal import packing
from fedldp._internal.vectors import SparseRows, shortened_sparse
from fedldp.learn.noise_aware import Observed
from fedldp.parts import SparseValues, Values
from fedldp.plan import Plan
from fedldp.schema import Number, Schema


@final
@dataclass(frozen=True)
class Privacy:
    """What each vehicle has spent at the most, and what all of them have sent.

    >>> import fedldp
    >>> plan = Plan(fedldp.Schema.vector(94, bound=1.0), epsilon=1.0, mechanism="three-outputs")
    >>> privacy = Privacy.of(plan, reports=4_000_000)
    >>> float(privacy.epsilon), privacy.bits, privacy.bytes
    (1.0, 9, 4500000)
    >>> print(f"{float(privacy.ratio):.6f}")     # at most e
    2.718282
    """

    epsilon: Fraction  # of all reports of a vehicle together
    ratio: Fraction | None  # by what its data can change the odds of these, exactly: not for study
    participations: int  # how many reports a vehicle has sent at the most
    reports: int  # of all vehicles
    bits: int  # of a report, at the most
    bytes: int  # of all reports, packed

    @classmethod
    def of(cls, plan: Plan, reports: int, participations: int = 1) -> "Privacy":
        """Return what so many reports to a plan for gradients cost and take."""
        bits = bits_of(plan)
        return cls(
            plan.total_epsilon * participations,
            None if plan.study else _ratio(plan) ** participations,
            participations,
            reports,
            bits,
            packing.length(reports, bits),
        )

    @classmethod
    def of_levels(cls, levels: Sequence["Privacy"]) -> "Privacy":
        """Return what vehicles of several levels have spent at the most, and sent together."""
        ratios = [each.ratio for each in levels if each.ratio is not None]
        return cls(
            max(each.epsilon for each in levels),
            max(ratios) if len(ratios) == len(levels) else None,
            max(each.participations for each in levels),
            sum(each.reports for each in levels),
            max(each.bits for each in levels),
            sum(each.bytes for each in levels),
        )


@final
@dataclass(frozen=True)
class NoPrivacy:
    """What stands for a plan where there is no privacy: vehicles send their clipped gradients.

    It is there for comparison, in a simulation: each number counts as a float of 32 bits.

    >>> import fedldp
    >>> NoPrivacy(fedldp.Schema.vector(94, bound=1.0)).bits
    3008
    """

    schema: Schema  # of a vector
    study: ClassVar[bool] = False

    @property
    def parts(self) -> tuple["NoPrivacy"]:
        """Its one part: all coordinates."""
        return (self,)

    @property
    def share(self) -> float:
        """The share of the vehicles that answer a coordinate: all of them."""
        return 1.0

    @property
    def bits(self) -> int:
        """How many bits a vehicle sends."""
        return 32 * self.schema.dimensions

    @property
    def total_epsilon(self) -> None:
        """What a report costs: there is no finite epsilon."""
        return

    @property
    def fingerprint(self) -> Number:
        """What checkpoints tell it apart by: the bounds of the vector, as in version 0.1."""
        return cast(Number, self.schema.attributes[0])

    def observe(self, batches: Iterable[Values], n: int, replicas: int) -> Observed:
        """Return the mean of the clipped gradients of n vehicles, in a row for each replica."""
        vector = self.fingerprint
        columns = np.arange(vector.size)
        total, lengths = np.zeros((replicas, columns.size)), np.zeros(replicas)
        for batch in batches:
            if vector.length is not None and isinstance(batch, SparseValues):
                rows = shortened_sparse(_scaled(batch.sparse(columns), vector.scale), 0.0)
                numbers = vector.half_width * rows.numbers
                places = np.repeat(np.arange(len(rows)) * replicas // len(rows), rows.counts)
                places = places * columns.size + rows.columns
                total += np.bincount(places, numbers, total.size).reshape(total.shape)
                lengths += vector.half_width * rows.lengths.reshape(replicas, -1).sum(axis=1)
                continue
            clipped = vector.from_unit(vector.to_unit(batch.all(columns)))
            total += clipped.reshape(*total.shape[:1], -1, columns.size).sum(axis=1)
            squares = np.einsum("ij,ij->i", clipped, clipped)
            lengths += np.sqrt(squares).reshape(replicas, -1).sum(axis=1)
        return Observed(total / n, 0.0, lengths / n)


def _scaled(rows: SparseRows, scale: float) -> SparseRows:
    return replace(rows, numbers=rows.numbers * scale)


def bits_of(plan: Plan | NoPrivacy) -> int:
    """Return how many bits a vehicle sends: none in a study, in which nothing is sent."""
    return 0 if plan.study else plan.bits


def _ratio(plan: Plan) -> Fraction:
    """Return the largest ratio of the probabilities of a report under two vectors."""
    (part,) = plan.parts
    return part.ratio
