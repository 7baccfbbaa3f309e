"""The system of Fig. 2, and Table III: who sends what to whom, and which privacy that is."""

from fractions import Fraction
from itertools import product
from math import log

import numpy as np

from fedldp import Plan, Schema, combine_estimates, source
from fedldp.learn.privacy import Privacy
from fedldp.plan.strategies import Sample
from fedldp_reproduction.results import ClaimVerdict, FigureResult
from fedldp_reproduction.theory.checks import result

_DIMENSIONS, _EPSILON, _FLEET = 94, 4.0, 200  # of MX in training
_ODDS = Fraction(3)  # of randomized response: e^eps of one record
_RECORDS = range(1, 5)
_LEVELS = ((0.5, 9000), (1.0, 6000), (4.0, 3000))  # an epsilon and how many vehicles chose it

_STEPS = (
    ("Who", "What (Algorithm 1)", "In fedldp"),
    ("server", "sends the parameters to the vehicles of a group", "`Training`, `fedldp_fleet`"),
    ("vehicle", "computes its gradient from its own data", "`Linear.gradients`"),
    ("vehicle", "makes k of d coordinates noisy (Algorithm 6)", "`Plan.report`"),
    ("vehicle", "sends the noisy gradient", "`Report`: bits of a fixed number"),
    ("server", "averages the group's gradients and updates the parameters", "`Tally`, `step`"),
    ("server", "stops: close enough, or no vehicle left", "`Training.finished`"),
)

_NOTIONS = (
    ("Notion", "Granularity", "Perturbation", "Defends against", "In fedldp"),
    (
        "ε-ULDP (ε-LDP)",
        "all data of a user",
        "distributed: at each user",
        "honest-but-curious aggregator, and attacks after publishing",
        "yes: what every plan guarantees",
    ),
    (
        "ε-RLDP",
        "one record of a user",
        "distributed: at each user",
        "honest-but-curious aggregator, and attacks after publishing",
        "no: weaker for a user with several records",
    ),
    (
        "ε-RLCP",
        "one record of a user",
        "centralized: at the aggregator",
        "attacks after publishing; the aggregator is trusted",
        "no: the aggregator would see the data",
    ),
    (
        "ε-ULCP",
        "all data of a user",
        "centralized: at the aggregator",
        "attacks after publishing; the aggregator is trusted",
        "no: the aggregator would see the data",
    ),
)


def system() -> FigureResult:
    """Return the parts of the system, and what leaves a vehicle in it."""
    return result(
        "system",
        "The system: a server, groups of vehicles, one noisy gradient from each",
        "Fig. 2, Algorithm 1",
        (),
        (_what_leaves(), _two_bits()),
        (
            f"a plan for {_DIMENSIONS} coordinates, epsilon = {_EPSILON:g}, Three-Outputs, "
            "k = floor(epsilon / 2.5)",
            "Fig. 2 is a drawing of these parts; the fleet of fedldp has them as processes",
        ),
        table=_STEPS,
    )


def _plan() -> Plan:
    return Plan(
        Schema.vector(_DIMENSIONS, 1.0), _EPSILON, Sample(k="paper", mechanism="three-outputs")
    )


def _what_leaves() -> ClaimVerdict:
    plan, sizes = _plan(), set()
    for data in (np.zeros, np.ones, lambda shape: 2 * source(1).uniform(shape) - 1):
        report = plan.report(data((_FLEET, _DIMENSIONS)), source(2))
        sizes.add(len(report.records))
    spent = Privacy.of(plan, reports=_FLEET)
    ratio = float(spent.ratio or 0)
    return ClaimVerdict(
        "The local data are never uploaded, and what is uploaded does not reveal them "
        "(sec. System Model)",
        len(sizes) == 1 and 0 < log(ratio) <= _EPSILON,
        f"A vehicle sends {plan.bits} bits whatever its data are ({_FLEET} vehicles: "
        f"{', '.join(map(str, sizes))} bytes, for three different fleets), and its data change the "
        f"odds of a report by a factor of {ratio:.6f} at most, computed from integers: "
        f"{log(ratio) / _EPSILON:.9f} of epsilon.",
    )


def _two_bits() -> ClaimVerdict:
    plan = _plan()
    (part,) = plan.parts
    places = (_DIMENSIONS - 1).bit_length()
    answer = plan.bits - places
    return ClaimVerdict(
        "Two bits encode an output of Three-Outputs, which reduces the communication cost "
        "(abstract)",
        answer == 2 and part.k == 1,
        f"A report has {plan.bits} bits: {places} say which coordinate, {answer} are its answer. "
        f"A gradient of {_DIMENSIONS} floats of 32 bits has {32 * _DIMENSIONS:,}, "
        f"{32 * _DIMENSIONS / plan.bits:.0f} times as many.",
    )


def table_3() -> FigureResult:
    """Return the paper's four notions of privacy, and what can be computed about them."""
    return result(
        "table-3",
        "Table III: four notions of privacy",
        "Table III",
        (),
        (_user_level(), _group_privacy(), _central_group_privacy(), _own_epsilon()),
        (
            "the table itself consists of definitions; what it and the text around it say that can "
            "be computed is judged",
            f"records: randomized response on each, with odds {_ODDS} to 1, all data enumerated; "
            "at the aggregator the count of all records with geometric noise of these odds",
        ),
        table=_NOTIONS,
    )


def _losses(records: int) -> tuple[Fraction, Fraction]:
    """Return the largest ratio of two laws: neighbours in one record, and in all of them."""
    keep = _ODDS / (_ODDS + 1)

    def law(data: tuple[int, ...], output: tuple[int, ...]) -> Fraction:
        found = Fraction(1)
        for one, other in zip(data, output, strict=True):
            found *= keep if one == other else 1 - keep
        return found

    every = list(product((0, 1), repeat=records))
    largest = {True: Fraction(1), False: Fraction(1)}
    for data, other in product(every, repeat=2):
        near = sum(one != two for one, two in zip(data, other, strict=True)) <= 1
        ratio = max(law(data, output) / law(other, output) for output in every)
        for which in (near, False):
            largest[which] = max(largest[which], ratio)
    return largest[True], largest[False]


def _user_level() -> ClaimVerdict:
    plan = _plan()
    ratio = float(Privacy.of(plan, reports=1).ratio or 0)
    return ClaimVerdict(
        "Local differential privacy at each user is ULDP (sec. System Model C)",
        0 < log(ratio) <= _EPSILON,
        f"Two vehicles that differ in everything: the odds of a report differ by a factor of "
        f"{ratio:.6f} at most, e^epsilon = {np.exp(_EPSILON):.6f}. The report depends on the rows "
        "through one vector alone, so that their number does not matter.",
    )


def _group_privacy() -> ClaimVerdict:
    found = {records: _losses(records) for records in _RECORDS}
    return ClaimVerdict(
        "For a user with m records, epsilon-RLDP is m epsilon-ULDP (sec. System Model C)",
        all(pair == (_ODDS, _ODDS**records) for records, pair in found.items()),
        "Exact, by enumeration: the ratio for one record and for all of them is "
        + ", ".join(f"{one} and {every} for m = {m}" for m, (one, every) in found.items())
        + ". The bound is reached.",
    )


def _count_losses(records: int) -> tuple[Fraction, Fraction]:
    """Return the largest ratio for one record, and for a user's, of a count with geometric noise.

    The noise is truncated to the possible counts (Ghosh, Roughgarden and Sundararajan 2009).
    """
    others = 2  # records of other users
    most = records + others

    def law(count: int) -> list[Fraction]:
        inside = (_ODDS - 1) / (_ODDS + 1)
        ends = _ODDS / (_ODDS + 1)
        return [
            (ends if output in (0, most) else inside) / _ODDS ** abs(output - count)
            for output in range(most + 1)
        ]

    laws = [law(count) for count in range(most + 1)]

    def largest(apart: int) -> Fraction:
        return max(
            one / other
            for first, second in product(range(most + 1), repeat=2)
            if abs(first - second) <= apart
            for one, other in zip(laws[first], laws[second], strict=True)
        )

    return largest(1), largest(records)


def _central_group_privacy() -> ClaimVerdict:
    found = {records: _count_losses(records) for records in _RECORDS}
    return ClaimVerdict(
        "For a user with m records, epsilon-RLCP is m epsilon-ULCP (sec. System Model C)",
        all(pair == (_ODDS, _ODDS**records) for records, pair in found.items()),
        "Exact: the aggregator's noisy count differs by a ratio of "
        + ", ".join(
            f"{one} for one record and {every} for all m = {m}" for m, (one, every) in found.items()
        )
        + ". The bound is reached.",
    )


def _own_epsilon() -> ClaimVerdict:
    """Combine fleets, each of which chose its own epsilon."""
    found = []
    for seed, (epsilon, vehicles) in enumerate(_LEVELS):
        plan = Plan(Schema.of(x=(-1, 1)), epsilon, Sample(mechanism="hm-tp"))
        data = 2 * source(10 + seed).uniform((vehicles, 1)) - 1
        found.append(plan.parse(plan.report(data, source(seed)).to_bytes()).estimate())
    both = combine_estimates(*found)
    errors = [float(np.max(each["x"].stderr)) for each in (both, *found)]
    alone = ", ".join(
        f"{error:.4f} with epsilon {epsilon:g}"
        for error, (epsilon, _) in zip(errors[1:], _LEVELS, strict=True)
    )
    return ClaimVerdict(
        "Each user may select its own epsilon_i (sec. System Model C)",
        errors[0] < min(errors[1:]),
        f"A plan for each level, {both.reports:,} vehicles, estimates combined by their variance: "
        f"the standard error is {errors[0]:.4f}; of the levels alone {alone}.",
    )
