"""What a vehicle sends, against float32 and against the entropy of its report.

Fewer bits than the entropy cannot carry the same reports. It is exact for data that are uniform:
numbers on [-1, 1], categories all equally likely, each independent of the others.
"""

from math import comb, log2

import numpy as np
from harness import Row, Spread

import fedldp
from fedldp.coders import Coder
from fedldp.coders.categories import RandomizedResponse, UnaryEncoding
from fedldp.coders.channel import Channel
from fedldp.plan.strategies import Sample

CITIES = [str(number) for number in range(100)]

PLANS = {  # how many floats the data of a vehicle are, and what it is asked
    "one number, epsilon 1": (1, fedldp.Schema.of(x=(-1, 1)), 1.0, "dominant"),
    "one number, epsilon 4": (1, fedldp.Schema.of(x=(-1, 1)), 4.0, "dominant"),
    "16 numbers, epsilon 4": (16, fedldp.Schema.vector(16, bound=1.0), 4.0, "dominant"),
    "a gradient of 94, three outputs": (94, fedldp.Schema.vector(94, 1.0), 1.0, "three-outputs"),
    "a gradient of 94, near-zero": (94, fedldp.Schema.vector(94, bound=1.0), 4.0, "near-zero"),
    "one of 3 categories": (1, fedldp.Schema.of(city=CITIES[:3]), 1.0, "dominant"),
    "one of 100 categories": (1, fedldp.Schema.of(city=CITIES), 1.0, "dominant"),
}


def rows() -> list[Row]:
    """One for each plan: bits, times fewer than float32, times the entropy."""
    found = []
    for what, (floats, schema, epsilon, mechanism) in PLANS.items():
        plan = fedldp.Plan(schema, epsilon, Sample(mechanism=mechanism))
        fewer = Spread.exactly(32 * floats / plan.bits)
        over = Spread.exactly(plan.bits / entropy(plan))
        found.append(Row(f"report: {what}", float(plan.bits), "bits", fewer, over))
    return found


def entropy(plan: fedldp.Plan) -> float:
    """Return the bits of information in a report, for a plan with one kind of table."""
    (part,) = plan.parts
    if part.joint or len(set(map(id, part.coders))) > 1:
        raise ValueError("only a plan with one part and one table is simple enough")
    return log2(comb(part.d, part.k)) + part.k * entropy_of_code(part.coders[0])


def entropy_of_code(coder: Coder) -> float:
    """Return the entropy of one code, for uniform data."""
    if isinstance(coder, Channel):
        gaps = np.diff(coder.letters) / 2  # a letter takes half of each gap beside it
        weights = (np.append(gaps, 0) + np.insert(gaps, 0, 0)) / 2
        odds = weights @ coder.table
        return float(-np.sum(odds[odds > 0] * np.log2(odds[odds > 0])))
    if isinstance(coder, RandomizedResponse):
        return log2(coder.categories)
    return _entropy_of_bits(coder)


def _entropy_of_bits(coder: UnaryEncoding) -> float:
    """All rows of bits with the same number of ones are equally likely."""
    a, p, q = coder.categories, coder.p, coder.q
    total = 0.0
    for ones in range(a + 1):
        own = ones * p * q ** (ones - 1) * (1 - q) ** (a - ones) if ones else 0.0
        other = (a - ones) * (1 - p) * q**ones * (1 - q) ** (a - ones - 1) if ones < a else 0.0
        share = (own + other) / a
        total -= comb(a, ones) * share * log2(share)
    return total
