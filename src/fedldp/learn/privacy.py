"""What a training costs each vehicle, and what it sends."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import final

from fedldp._internal import packing
from fedldp.plan import Plan
from fedldp.schema import Schema


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


def bits_of(plan: Plan | Schema) -> int:
    """Return how many bits a vehicle sends: none for study, floats of 32 bits without a plan."""
    if isinstance(plan, Schema):
        return 32 * plan.dimensions
    return 0 if plan.study else plan.bits


def _ratio(plan: Plan) -> Fraction:
    """Return the largest ratio of the probabilities of a report under two vectors."""
    (part,) = plan.parts
    return part.ratio
