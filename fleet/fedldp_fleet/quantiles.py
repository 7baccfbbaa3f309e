"""The stage of a job that finds one quantile, in rounds of one-bit answers.

Every rule is that of a simulation (`fedldp.learn.quantiles`): the threshold of each round follows
from the answers of the rounds before it, and so does the result.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

from fedldp.learn.quantiles import ROUNDS, QuantileSearch
from fedldp.plan.plan import Plan
from fedldp.results.tally import Tally
from fedldp_fleet.insight import Insight, NamedNumber
from fedldp_fleet.stages import Learned


@final
@dataclass(frozen=True)
class Search:
    """The rounds that ask on which side of a threshold a number is."""

    search: QuantileSearch
    rounds: int = ROUNDS

    @property
    def name(self) -> str:
        """Which quantile is searched for."""
        return f"the {self.search.level:g} quantile of {self.search.number.name}"

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plan."""
        return (self.search.plan,)

    @property
    def wanted(self) -> int:
        """The same number of vehicles in every round."""
        return self.search.vehicles // ROUNDS

    def computation(self, learned: Learned) -> str:
        """Return on which side of which threshold vehicles are asked to be."""
        return self.search.computation(learned.sides or ()).to_json()

    def learn(self, learned: Learned, tallies: Sequence[Tally]) -> Learned:
        """Return what is known with the share below the threshold."""
        (tally,) = tallies
        return replace(learned, sides=self.search.learned(learned.sides or (), tally))

    def insight(self, learned: Learned, tallies: Sequence[Tally]) -> Insight:
        """Return the quantile so far."""
        found, number = self.search.result(learned.sides or ()), self.search.number
        low, high = found.interval
        shown = f"{found.value:.4g} ({low:.4g} to {high:.4g})"
        scale = (number.low, number.high)
        row = NamedNumber(self.name, shown, found.value, low, high, scale, found.vehicles)
        note = (
            f"Round {len(learned.sides or ())} of {ROUNDS} is done. The interval contains the "
            f"quantile with a probability of at least {found.confidence:.0%} once all are done."
        )
        return Insight(self.name.capitalize(), (row,), (note,))
