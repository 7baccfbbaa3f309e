"""Whether the mean update of a fleet can be told from noise.

If the apps of all nodes fail, every vehicle reports zeros, and the server cannot see it: what
leaves a node does not depend on that. But then the reports agree no more than chance makes them.
Let S be the sum of the reports about one weight, and Q that of their squares. If all vehicles hold
zero, reports are as likely as their opposites, and S^2 - Q is 0 on average, with a variance of at
most 2 Q^2. With a mean update of the length L, the sum over all weights is n (n - 1) L^2 on
average. As weights are many, their sum has nearly the law of a chi-square.
"""

from math import inf, sqrt
from typing import NamedTuple

from fedldp.plan.plan import Plan
from fedldp.results.tally import Tally
from fedldp_fleet.library import scipy_module

RISK = 1e-3  # the probability that the warning does not appear if all vehicles hold zeros
MISTAKE = 1e-2  # and that it appears although the mean update has the length `noticeable`

_DEVIATIONS = 3.09  # of a normal law: beyond as many, to one side, is 1 in 1,000
_MARGIN = 1.3  # as sums of few reports are not normal: see the tests, in which it is needed


class Excess(NamedTuple):
    """How much more the reports of some rounds agree than those of vehicles that hold zeros.

    Numbers of several rounds add. They are on the scale of a plan, where updates lie in [-1, 1].

    >>> import numpy as np
    >>> import fedldp
    >>> plan = fedldp.Plan(fedldp.Schema.vector(20, length=1.0), 4.0, strategy="directions")
    >>> reports = [
    ...     plan.simulate(np.full((500, 20), x), fedldp.source(1)) for x in (0.0, 0.1)
    ... ]
    >>> [Excess().plus(plan, tally).p_value < RISK for tally in reports]
    [False, True]
    >>> round(Excess().plus(plan, reports[0]).noticeable, 2)
    0.37
    """

    rounds: int = 0
    excess: float = 0.0  # the sum of S^2 - Q over all weights
    squares: float = 0.0  # the sum of Q
    squares_of_squares: float = 0.0  # the sum of Q^2
    pairs: float = 0.0  # of reports about one weight, on average

    def plus(self, plan: Plan, tally: Tally) -> "Excess":
        """Return what it is with the reports of one more round."""
        excess = squares = squares_of_squares = pairs = 0.0
        for part, counts in zip(plan.parts, tally.counts, strict=True):
            for coder, _, cells in part.by_block(counts):
                answers, sums = coder.sums(cells)
                own = coder.squares(cells)
                excess += float((sums**2 - own).sum())
                squares += float(own.sum())
                squares_of_squares += float((own**2).sum())
                pairs += float((answers * (answers - 1)).mean())
        return Excess(
            self.rounds + 1,
            self.excess + excess,
            self.squares + squares,
            self.squares_of_squares + squares_of_squares,
            self.pairs + pairs,
        )

    @property
    def p_value(self) -> float:
        """The probability that vehicles which all hold zero agree as much as this, about."""
        chdtrc = scipy_module("special").chdtrc

        if not self.pairs or not self.squares_of_squares:
            return 1.0
        freedom = self._freedom
        return float(chdtrc(freedom, max(0.0, freedom + self._deviations * sqrt(2 * freedom))))

    @property
    def noticeable(self) -> float:
        """The length from which on a mean update is told from noise, but for `MISTAKE`."""
        chdtri = scipy_module("special").chdtri

        if not self.pairs or not self.squares_of_squares:
            return inf
        freedom = self._freedom
        critical = (float(chdtri(freedom, RISK)) - freedom) / sqrt(2 * freedom)
        # The variance of the deviations is 1 for zeros, and 1 + slope x for a mean of x.
        slope, most = 2 * sqrt(2 / freedom), _DEVIATIONS**2
        root = sqrt((most * slope) ** 2 + 4 * most * (1 + slope * critical))
        deviations = critical + (most * slope + root) / 2
        return _MARGIN * sqrt(deviations * sqrt(2 * self.squares_of_squares) / self.pairs)

    @property
    def _freedom(self) -> float:
        return self.squares**2 / self.squares_of_squares

    @property
    def _deviations(self) -> float:
        return self.excess / sqrt(2 * self.squares_of_squares)

    def warning(self, plan: Plan, last_round: int) -> str:
        """Return what to tell whoever asks, in rounds that cannot be told from noise."""
        first = last_round - self.rounds + 1
        rounds = f"round {first}" if self.rounds == 1 else f"rounds {first} to {last_round}"
        attribute = plan.schema.attributes[0]
        least = self.noticeable * attribute.estimand.half_width
        longest = attribute.estimand.half_width * sqrt(attribute.size)
        if attribute.inputs.length is not None:
            longest = attribute.inputs.length
        if least > longest:
            reason = (
                "Not even updates that all agree could be told from it: a mean update must have a "
                f"length of {least:.3g}, and {longest:.3g} is the longest. Ask more vehicles."
            )
        else:
            reason = (
                f"If the mean update were {least:.3g} long or longer, this would be said in "
                f"{MISTAKE:.0%} of rounds at most. So the model has settled, or updates do not "
                "agree, or the apps of the nodes fail: then vehicles report zeros, and the logs of "
                "the nodes say why."
            )
        return (
            f"What was reported in {rounds} cannot be told from noise (p = {self.p_value:.2g}). "
            f"{reason}"
        )
