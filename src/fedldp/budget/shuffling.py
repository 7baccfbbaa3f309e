"""What a trusted shuffler would add: the central privacy of a round of shuffled reports.

fedldp guarantees epsilon to each vehicle against everybody, the server included. If somebody whom
the vehicles trust also removes all traces of who sent which report, then a report hides among
those of the other vehicles, and the *shuffled* reports of n vehicles are (epsilon', delta)-private
with a much smaller epsilon'.

The bound. One vehicle has the value x or x'; all other data are fixed and known to the attacker.
Write R(x) for the distribution of a report about x, and p = e^epsilon. R is epsilon-private, so
R(x) <= p R(x') and the other way round for each report y. Where R(x) > R(x'), let a(y) =
(R(x) - R(x')) / (p - 1), otherwise a(y) = 0; let b(y) be the same with x and x' exchanged. At most
one of the two is positive at y, and both have the same total alpha = TV / (p - 1), where TV <=
(p - 1) / (p + 1) is the total variation distance of R(x) and R(x'). Then

    R(x) = p a + b + c,    R(x') = a + p b + c,    R(z) >= a + b for every other value z,

where c >= 0 is the same in both equations: the first two follow from the definitions, c >= 0 and
the third from R(z) >= max(R(x), R(x')) / p, since p a <= R(x) where a > 0. So every other report
is, with probability 2 alpha, a fair coin between "like a" and "like b"; what it is otherwise does
not depend on the vehicle. Tell the attacker how each report was made, except which way the coins
fell and which report is the vehicle's. The attacker then sees C coins, where C is binomial with n
- 1 trials and probability 2 alpha, and the vehicle's answer among them: for x it is "a" with
probability p alpha, "b" with probability alpha and neither otherwise; for x' the other way round.
So all that counts is the number of coins of each kind.

If alpha < 1 / (p + 1), this view can be made from that with alpha = 1 / (p + 1) by forgetting each
coin with the same probability, so the largest alpha is the worst case. There the two distributions
have the exact divergence

    delta(epsilon') = sum over c of P(C = c) max over H of (P(H | c, x) - e^epsilon' P(H | c, x')),

where H runs through all sets of possible numbers of heads: a sum of binomial tails.
"""

import math

import numpy as np

from fedldp._internal import validation
from fedldp._internal.science import scipy_module
from fedldp._internal.validation import Floats, Integers
from fedldp.errors import DomainError

_UNSUMMED_SHARE = 1e-9  # of delta, for the numbers of clones that are not summed
_BISECTION_STEPS = 30  # which bring epsilon' to 1e-9 of its value


def shuffled_epsilon(epsilon: float, n: int, delta: float) -> float:
    """Return the epsilon of n shuffled reports, if somebody trusted shuffles them.

    This is an additional assumption. Without a shuffler whom the vehicles trust, and who does not
    tell the server anything, only `epsilon` holds.

    Parameters
    ----------
    epsilon : float
        What one report costs against everybody.
    n : int
        How many vehicles report in the round, all by the same plan.
    delta : float
        The probability that is allowed for a worse loss, between 0 and 1: far below 1/n.

    Returns
    -------
    float
        An epsilon' for which the set of all reports, without their senders, is
        (epsilon', delta)-differentially private when one vehicle changes its data. It is never
        larger than `epsilon`.

    Raises
    ------
    DomainError
        If an argument is out of range.

    Notes
    -----
    The bound holds for every way to answer that costs `epsilon`. It is computed as the exact
    divergence of the two distributions to which any such round can be reduced (Feldman, McMillan
    and Talwar 2021 and 2023; Wang et al. 2024), up to a share of 1e-9 of `delta`, which is added.

    Examples
    --------
    >>> round(shuffled_epsilon(1.0, n=100_000, delta=1e-9), 3)
    0.019
    >>> round(shuffled_epsilon(1.0, n=1, delta=1e-9), 6)
    1.0
    """
    epsilon = validation.studied_epsilon(epsilon)
    n = validation.whole(n, "n")
    if n < 1:
        raise DomainError(f"n must be at least 1, the number of vehicles in the round; got {n}.")
    if not 0 < delta < 1:
        raise DomainError(f"delta must lie between 0 and 1; got {delta!r}. Take one far below 1/n.")
    clones = _Clones(epsilon, n, delta)
    low, high = 0.0, epsilon / math.sqrt(n)
    while high < epsilon and clones.divergence(high) > delta:
        low, high = high, min(2 * high, epsilon)  # at epsilon the divergence is 0
    for _ in range(_BISECTION_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if clones.divergence(middle) <= delta else (middle, high)
    return high


class _Clones:
    """The two distributions of a round that are hardest to tell apart from each other.

    Each of the other n - 1 reports looks, with probability 2 / (e^epsilon + 1), like a fair coin
    between the answer of the vehicle's one value and that of the other: C of them do. The
    vehicle's own answer is the one of its value with probability e^epsilon / (e^epsilon + 1).
    """

    def __init__(self, epsilon: float, n: int, delta: float) -> None:
        binom = scipy_module("stats").binom

        other = 1 / (math.exp(epsilon) + 1)
        self.right, self.wrong = 1 - other, other
        self.left_out = _UNSUMMED_SHARE * delta
        first = int(binom.ppf(self.left_out / 2, n - 1, 2 * other))
        last = n - 1 - int(binom.ppf(self.left_out / 2, n - 1, 1 - 2 * other))
        self.clones = np.arange(first, last + 1)
        self.weights = binom.pmf(self.clones, n - 1, 2 * other)

    def divergence(self, epsilon: float) -> float:
        """Return the smallest delta for which the round is (epsilon, delta)-private."""
        # Among c clones and the vehicle, k answers are those of the vehicle's value; the first
        # distribution exceeds e^epsilon times the second from k = `least` on.
        gain = self.right - math.exp(epsilon) * self.wrong
        loss = math.exp(epsilon) * self.right - self.wrong
        least = np.floor(loss * (self.clones + 1) / (gain + loss)) + 1
        excess = gain * _heads(self.clones, least - 1) - loss * _heads(self.clones, least)
        return float(self.weights @ np.maximum(excess, 0.0)) + self.left_out


def _heads(coins: Integers, least: Floats) -> Floats:
    """Return the probability that fair coins show at least `least` heads."""
    betainc = scipy_module("special").betainc

    inside = (least >= 1) & (least <= coins)
    tail = betainc(np.where(inside, least, 1.0), np.where(inside, coins - least + 1, 1.0), 0.5)
    return np.where(inside, tail, (least < 1).astype(np.float64))
