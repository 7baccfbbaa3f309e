"""Advice for a schema and a fleet: which epsilon and strategy, what it costs, what is too much."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import final

from fedldp._internal.text import counted, listed
from fedldp.errors import DomainError
from fedldp.plan.expectation import Expectation, ExpectedError
from fedldp.plan.plan import Plan
from fedldp.schema.schema import Schema

__all__ = ["Advice", "advise"]

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)  # above, an answer protects against little
USEFUL_SHARE = 0.1  # of half the range: a result with such an interval says something

_WORTH = 0.95  # of the error: another strategy than the usual one is advised if it has less


@final
@dataclass(frozen=True)
class Advice:
    """What to ask a fleet, and what to expect.

    Attributes
    ----------
    plan
        The plan that is advised.
    strategy
        The strategy that is advised.
    expected
        What to expect of it.
    smaller, larger
        What to expect of half and of twice the epsilon; None where that is out of range.
    goals
        The error that is wanted of each result, or with which it is useful.
    needed
        How many vehicles are needed for each result that misses its goal.

    Examples
    --------
    >>> schema = Schema.of(speed=(0, 130), model=["A", "B", "C"])
    >>> advice = advise(schema, 20_000)
    >>> advice.plan.epsilon, advice.needed
    (1.0, {})
    >>> print(advice.sentences[0])
    Take epsilon 1: the smallest one tried at which both goals are reached.
    """

    plan: Plan
    strategy: str
    expected: Expectation
    smaller: Expectation | None
    larger: Expectation | None
    goals: Mapping[str, float]
    needed: Mapping[str, int | None]

    @property
    def sentences(self) -> tuple[str, ...]:
        """The advice in plain sentences."""
        return tuple(self._sentences())

    def _sentences(self) -> Iterator[str]:
        plan, total = self.plan, len(self.goals)
        epsilon, results = f"epsilon {plan.epsilon:g}", counted(total, "result")
        if not self.needed:
            yield f"Take {epsilon}: the smallest one tried at which {_all_goals(total)} reached."
        else:
            reached = total - len(self.needed)
            yield (
                f"Take {epsilon}: {reached} of {results} reach their goal. With so few vehicles, "
                "no epsilon up to 4 does for all."
            )
        answers = sum(part.d if part.joint else part.k for part in plan.parts)
        yield (
            f"Strategy {self.strategy!r}: each vehicle answers {answers:,} of "
            f"{counted(plan.schema.dimensions, 'coordinate')}, in {counted(plan.bits, 'bit')}."
        )
        for part in plan.parts:
            for coder, attribute in part.asked:
                row = self.expected[attribute.name]
                yield (
                    f"{attribute.name}: ± {_text_of(row)} ({row.what}), from {row.answers:,} "
                    f"answers of {counted(coder.bits, 'bit')} (coder {coder.kind!r})."
                )
        for name, number in self.needed.items():
            goal = f"± {self.goals[name]:.2g} {self.expected[name].unit}".rstrip()
            if number is None:
                yield f"{name}: {goal} cannot be reached by more vehicles: ask otherwise."
            else:
                yield (
                    f"{name}: you would need {number:,} vehicles for {goal}; you have "
                    f"{self.expected.vehicles:,}. Ask for fewer attributes, groups or bins, or "
                    "accept a wider interval."
                )
        for other, word in ((self.smaller, "half"), (self.larger, "twice")):
            if other is not None:
                rows = (other[name] for name in self.goals if name in other)
                shown = listed([f"{row.name} ± {_text_of(row)}" for row in rows])
                yield f"With {word} the epsilon: {shown}."


def _all_goals(total: int) -> str:
    return {1: "the goal is", 2: "both goals are"}.get(total, f"all {total} goals are")


def advise(schema: Schema, vehicles: int, targets: Mapping[str, float] | None = None) -> Advice:
    """Return which epsilon and strategy fit a schema and a fleet.

    The smallest epsilon is advised with which each result reaches its goal; if none does up to 4,
    the one with which most do. The usual strategy is advised unless another has less error.

    Parameters
    ----------
    schema
        The attributes.
    vehicles
        The number of vehicles.
    targets
        Half of a 95% interval that you want, by the names that `Plan.expect` lists. For an
        attribute without one, the goal is a tenth of half its range.

    Returns
    -------
    Advice
        The plan, what to expect, and sentences about both.

    Raises
    ------
    DomainError
        If no plan can be made, or a name or a number is invalid.

    Examples
    --------
    >>> schema = Schema.of(speed=(0, 130), model=["A", "B", "C"])
    >>> advise(schema, 20_000, {"speed": 1.0}).plan.epsilon
    4.0
    """
    targets_wanted = dict(targets or {})
    made = {}
    for epsilon in EPSILONS:
        plans = _plans(schema, epsilon)
        if plans:
            expected = [(plan, strategy, plan.expect(vehicles)) for plan, strategy in plans]
            goals = _goals(expected[0][2], targets_wanted)
            made[epsilon] = _best(expected, goals)
    if not made:
        raise DomainError("no plan can be made of this schema with an epsilon up to 4.")
    missed = {
        epsilon: sum(_ratio(candidate[2], name, goal) > 1 for name, goal in goals.items())
        for epsilon, candidate in made.items()
    }
    chosen = min(made, key=lambda epsilon: (missed[epsilon], epsilon))
    plan, strategy, expected_of = made[chosen]
    needed = {
        name: _needed_vehicles(plan, name, goal)
        for name, goal in goals.items()
        if _ratio(expected_of, name, goal) > 1
    }
    near = [made[epsilon][2] if epsilon in made else None for epsilon in (chosen / 2, chosen * 2)]
    return Advice(plan, strategy, expected_of, near[0], near[1], goals, needed)


def _plans(schema: Schema, epsilon: float) -> list[tuple[Plan, str]]:
    """Return the plans that are possible, the usual one first."""
    found = []
    for strategy in ("sample", "cube", "directions"):
        with suppress(DomainError):  # it is for other attributes
            found.append((Plan(schema, epsilon, strategy=strategy), strategy))
    return found


def _goals(expected: Expectation, wanted: Mapping[str, float]) -> dict[str, float]:
    for name in wanted:
        expected[name]  # raises for a name that is unknown
    useful = {row.name: USEFUL_SHARE * row.range for row in expected.rows if row.first}
    return useful | dict(wanted)


def _best(
    expected: list[tuple[Plan, str, Expectation]], goals: Mapping[str, float]
) -> tuple[Plan, str, Expectation]:
    """Return the plan whose largest error is least, in terms of its goal; the first if in doubt."""
    usual, *others = expected
    best = usual
    for other in others:
        if _largest(other[2], goals) < _WORTH * _largest(best[2], goals):
            best = other
    return best


def _largest(expected: Expectation, goals: Mapping[str, float]) -> float:
    return max(_ratio(expected, name, goal) for name, goal in goals.items())


def _ratio(expected: Expectation, name: str, goal: float) -> float:
    """Return an error as a multiple of its goal."""
    return expected[name].typical / goal if name in expected else inf


def _needed_vehicles(plan: Plan, name: str, goal: float) -> int | None:
    try:
        return plan.vehicles_for({name: goal})
    except DomainError:
        return None


def _text_of(row: ExpectedError) -> str:
    return f"{row.typical:.2g} {row.unit}".rstrip() if row.typical < row.range else "unknown"
