"""What many answers of one vehicle cost together, said in two ways.

The promise, and what a ledger enforces, is the sum of all epsilons: no data can change the
probability of all answers together by more than e to this sum. Nearly all of the time the change is
much smaller. So there is a second number: with a probability of at most delta left out, the answers
are also (epsilon', delta)-private with a smaller epsilon'.

An answer that costs epsilon is rho-zero-concentrated with rho = epsilon^2 / 2, and rhos add up (Bun
and Steinke 2016, propositions 1.4 and 1.7). All answers together then have a Renyi divergence of at
most rho a of every order a > 1, which is (epsilon', delta)-privacy with

    epsilon' = rho a + ln(1 - 1/a) - ln(delta a) / (a - 1)

(Canonne, Kamath and Steinke 2020, proposition 12). The order is chosen for the smallest epsilon';
every order proves a bound. It is computed in 50 digits and rounded upwards.

The epsilons must not depend on earlier answers of the same vehicle, as those of a calendar, of a
training, and of jobs that were planned before, do not. Questions may.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import Self, final

from fedldp.errors import DomainError

__all__ = ["Composition", "approximate_epsilon"]

COMPOSITION_DELTA = 1e-6

_CONTEXT = Context(prec=50)
_MARGIN = Decimal("1e-40")
_STEPS = 200
_GOLDEN = (math.sqrt(5) - 1) / 2


def approximate_epsilon(rho: Fraction, delta: float = COMPOSITION_DELTA) -> float:
    """Return an epsilon with which answers of some rho together are (epsilon, delta)-private.

    Parameters
    ----------
    rho
        The sum of the rhos of all answers, exactly: half the square of each epsilon.
    delta
        The probability that is left out.

    Returns
    -------
    float
        The epsilon, rounded upwards.

    Raises
    ------
    DomainError
        If rho is negative, or delta does not lie between 0 and 1.

    Examples
    --------
    >>> round(approximate_epsilon(365 * Fraction(1, 10) ** 2 / 2), 2)
    11.07
    """
    if not rho >= 0:
        raise DomainError(f"rho must not be negative; got {rho!r}.")
    if not 0 < delta < 1:
        raise DomainError(f"delta must lie between 0 and 1; got {delta!r}.")
    if not rho:
        return 0.0
    number = float(rho)

    def bound(log_excess: float) -> float:
        excess = math.exp(log_excess)
        order = 1 + excess
        return number * order - math.log1p(1 / excess) - math.log(delta * order) / excess

    # Near the best order, the first and the last term grow and fall alike.
    middle = math.log(-math.log(delta) / number) / 2
    low, high = middle - 8.0, middle + 8.0
    for _ in range(_STEPS):
        first, second = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        low, high = (low, second) if bound(first) < bound(second) else (first, high)
    return _proven_bound(rho, delta, 1 + Fraction(math.exp((low + high) / 2)))


def _proven_bound(rho: Fraction, delta: float, order: Fraction) -> float:
    """Return the bound that an order proves, rounded upwards."""
    left_out = Fraction(delta) * order
    terms = (
        _decimal(rho * order),
        _CONTEXT.ln(_decimal(1 - 1 / order)),
        -_CONTEXT.divide(_CONTEXT.ln(_decimal(left_out)), _decimal(order - 1)),
    )
    total, size = Decimal(0), Decimal(1)
    for term in terms:
        total, size = _CONTEXT.add(total, term), _CONTEXT.add(size, abs(term))
    return max(0.0, _upwards(Fraction(total) + Fraction(_MARGIN) * Fraction(size)))


def _decimal(value: Fraction) -> Decimal:
    return _CONTEXT.divide(Decimal(value.numerator), Decimal(value.denominator))


def _upwards(value: Fraction) -> float:
    """Return the smallest float that is not below a fraction."""
    nearest = float(value)
    return math.nextafter(nearest, math.inf) if Fraction(nearest) < value else nearest


@final
@dataclass(frozen=True)
class Composition:
    """The cost of many answers of one vehicle.

    Attributes
    ----------
    epsilon
        The sum of all epsilons, exactly: what is promised, and what a ledger enforces.
    rho
        Half the sum of their squares, exactly, for the second number.

    Examples
    --------
    >>> year = Composition.of({Fraction(1, 10): 365})
    >>> float(year.epsilon), round(year.approximate(1e-6), 2)
    (36.5, 11.07)
    >>> Composition.of({Fraction(1, 10): 3}).approximate(1e-6)    # few answers: their sum is less
    0.30000000000000004
    """

    epsilon: Fraction = Fraction()
    rho: Fraction = Fraction()

    @classmethod
    def of(cls, costs: Mapping[Fraction, int]) -> Self:
        """Return what some numbers of answers cost, by the epsilon of each of them.

        Parameters
        ----------
        costs
            How many answers cost each epsilon.

        Returns
        -------
        Composition
            Their cost together.

        Examples
        --------
        >>> Composition.of({Fraction(1): 2, Fraction(1, 2): 4})
        Composition(epsilon=Fraction(4, 1), rho=Fraction(3, 2))
        """
        epsilon = sum((each * number for each, number in costs.items()), Fraction())
        squares = sum((each**2 * number for each, number in costs.items()), Fraction())
        return cls(epsilon, squares / 2)

    def approximate(self, delta: float = COMPOSITION_DELTA) -> float:
        """Return an epsilon with which all answers together are (epsilon, delta)-private.

        Parameters
        ----------
        delta
            The probability that is left out.

        Returns
        -------
        float
            The smaller one of the sum of all epsilons and what `approximate_epsilon` returns.

        Raises
        ------
        DomainError
            If delta does not lie between 0 and 1.

        Examples
        --------
        >>> round(Composition.of({Fraction(1, 4): 100}).approximate(1e-9), 2)
        18.39
        """
        return min(approximate_epsilon(self.rho, delta), _upwards(self.epsilon))
