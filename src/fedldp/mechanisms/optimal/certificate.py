"""A proof, in rational numbers, that no mechanism can do better.

Let p(y | x) be any unbiased epsilon-private mechanism whose outputs lie on the grid of all integer
multiples of a pitch, with base measure q <= p <= E q, E = e^epsilon. For weights alpha_i >= 0 that
add up to 1, and any lambda_i, mu_i,

    max Var >= sum_i alpha_i Var(x_i)
             = sum_i sum_y p(y | x_i) (alpha_i y^2 - lambda_i y - mu_i)
                 + sum_i (lambda_i x_i + mu_i - alpha_i x_i^2)
            >= sum_y q(y) h(y) + value,       h(y) = sum_i phi(alpha_i y^2 - lambda_i y - mu_i),

where phi(c) = c if c >= 0 else E c. So if h >= 0 on the whole grid, `value` is a lower bound. Any
other unbiased mechanism can round its outputs to that grid at random, which adds at most pitch^2/4
to its variance and takes nothing from its privacy: value - pitch^2/4 bounds them all.
"""

import json
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from math import ceil, isqrt, sqrt
from typing import final

import numpy as np

from fedldp._internal import cache as cache_files
from fedldp._internal.validation import LARGEST_CERTIFIED_EPSILON, Integers
from fedldp.errors import DomainError
from fedldp.mechanisms.hybrid import HMTP
from fedldp.mechanisms.optimal.program import SOLVER_VERSION, Solution, VarianceLimits, phi, solve
from fedldp.mechanisms.piecewise import PMOpt
from fedldp.vehicle import exact, exp_below

_PITCH_COST = 0.001  # pitch^2/4, relative to the variance
_INPUTS = 65
_REPAIRABLE_DEFICIT = 1e-5  # of h, relative to the variance: more outputs mend it
_NEGLIGIBLE_MULTIPLIER = 1e-11  # relative to the largest

Term = tuple[Fraction, Fraction, Fraction, Fraction]


@final
@dataclass(frozen=True)
class Certificate:
    """A proof that no mechanism can have a smaller worst-case variance than `lower_bound`.

    It consists of terms on the grid of all integer multiples of a pitch. The proof is valid if
    `invalid()` returns None.

    Parameters
    ----------
    epsilon
        The privacy budget that the proof is about.
    pitch
        The distance between two neighboring points of the grid.
    terms
        Tuples (alpha, lambda, mu, x) of fractions.

    Examples
    --------
    >>> proof = certificate(1.0)
    >>> proof.epsilon, round(proof.lower_bound, 2)
    (1.0, 3.99)
    """

    epsilon: float
    pitch: Fraction
    terms: tuple[Term, ...]

    @property
    def value(self) -> Fraction:
        """The bound for mechanisms on the grid, if the certificate is valid."""
        parts = (lam * x + mu - alpha * x * x for alpha, lam, mu, x in self.terms)
        return sum(parts, Fraction(0))

    @property
    def lower_bound(self) -> float:
        """No unbiased epsilon-private mechanism has a smaller worst-case variance."""
        bound = self.value - self.pitch**2 / 4
        rounded = float(bound)
        return rounded if Fraction(rounded) <= bound else float(np.nextafter(rounded, 0.0))

    def invalid(self) -> str | None:
        """Return why the proof is not valid, or None if it is. Rational numbers alone decide.

        As far as terms change their sign, h is summed point by point. Beyond, it is one quadratic
        polynomial on each side.

        Returns
        -------
        str or None
            The first reason that was found, or None if the proof is valid.

        Examples
        --------
        >>> proof = certificate(1.0)
        >>> proof.invalid() is None
        True
        >>> Certificate(1.0, proof.pitch, proof.terms[1:]).invalid()
        'the weights are negative or do not add up to 1'
        """
        if self.pitch <= 0 or not 0 < self.epsilon <= LARGEST_CERTIFIED_EPSILON:
            return "the pitch or epsilon is out of range"
        if sum(term[0] for term in self.terms) != 1 or min(t[0] for t in self.terms) < 0:
            return "the weights are negative or do not add up to 1"
        if any(abs(x) > 1 for *_, x in self.terms):
            return "an input lies outside [-1, 1]"
        lowest, where = self.lowest()
        if lowest < 0:
            return f"h is negative at {float(where):g}"
        for side in (-1, 1):
            if self._lowest_beyond(side * self._far * self.pitch) < 0:
                return f"h may be negative beyond {float(side * self._far * self.pitch):g}"
        return None

    def _lowest_beyond(self, edge: Fraction) -> Fraction:
        """Return the least value, from the edge on outwards, of the polynomial that h is there."""
        growth = self.growth
        a = b = c = Fraction(0)
        for alpha, lam, mu, _ in self.terms:
            sign = 1 if alpha * edge**2 - lam * edge - mu >= 0 else growth
            a, b, c = a + sign * alpha, b - sign * lam, c - sign * mu
        summit = -b / (2 * a)
        y = summit if abs(summit) > abs(edge) and summit * edge > 0 else edge
        return a * y * y + b * y + c

    @property
    def growth(self) -> Fraction:
        """A number just above e^epsilon."""
        return exp_below(exact(self.epsilon)) + Fraction(1, 1 << 128)

    def lowest(self) -> tuple[Fraction, Fraction]:
        """Return the least value of h on the grid, and the point where h has it.

        Only points up to the last change of sign of a term are compared; h is a polynomial beyond.

        Returns
        -------
        tuple of Fraction
            The least value, which is not negative if the proof is valid, and the point of the grid.

        Examples
        --------
        >>> least, where = certificate(1.0).lowest()
        >>> least >= 0
        True
        """
        growth = self.growth
        points = (k * self.pitch for k in range(-self._far, self._far + 1))
        return min((self._h(y, growth), y) for y in points)

    def steps_below(self, level: float) -> Integers:
        """Return the points of the grid where h is below a level, computed in floating point.

        Parameters
        ----------
        level
            The value to compare h with.

        Returns
        -------
        array of int
            The points, as multiples of the pitch.

        Examples
        --------
        >>> certificate(1.0).steps_below(-1e-6).size
        0
        """
        k = np.arange(-self._far, self._far + 1)
        y = k * float(self.pitch)
        h = np.zeros(len(k))
        for term in self.terms:
            alpha, lam, mu, _ = map(float, term)
            h += phi(alpha * y**2 - lam * y - mu, float(self.growth))
        return k[h < level]

    def _h(self, y: Fraction, growth: Fraction) -> Fraction:
        total = Fraction(0)
        for alpha, lam, mu, _ in self.terms:
            c = alpha * y * y - lam * y - mu
            total += c if c >= 0 else growth * c
        return total

    @cached_property
    def _far(self) -> int:
        """A point of the grid beyond which no term changes sign."""
        return ceil(max(_last_root(term) for term in self.terms) / self.pitch) + 1


def _last_root(term: Term) -> Fraction:
    """Return a number beyond which, on both sides, a term does not change its sign."""
    alpha, lam, mu, _ = term
    if alpha == 0:
        return abs(mu / lam) if lam else Fraction(0)
    square = max(lam**2 + 4 * alpha * mu, Fraction(0))
    root = Fraction(isqrt(square.numerator * square.denominator) + 1, square.denominator)
    return (abs(lam) + root) / (2 * alpha)


@cache
def certificate(epsilon: float) -> Certificate:
    """Return a valid certificate whose bound is within 0.2% of the best possible.

    Finding it takes longer the larger epsilon is: a second at 2, a quarter of a minute at 8. It
    is kept in the cache, and validated again when it is read.

    >>> proof = certificate(1.0)
    >>> proof.invalid() is None, round(proof.lower_bound, 2)
    (True, 3.99)
    """
    if epsilon > LARGEST_CERTIFIED_EPSILON:
        raise DomainError(
            f"the epsilon of a certificate must be at most {LARGEST_CERTIFIED_EPSILON:g}; "
            f"got {epsilon:g}."
        )
    key = f"certificate {SOLVER_VERSION}: {epsilon!r}"
    cached = cache_files.load(key)
    if cached is not None:
        try:
            pitch, *terms = json.loads(cached)
            read = Certificate(epsilon, Fraction(pitch), tuple(_read_term(term) for term in terms))
            if read.invalid() is None:
                return read
        except (ValueError, TypeError, ArithmeticError, RecursionError):
            pass  # damaged: find it again
    certified = _find(epsilon)
    text = json.dumps([str(certified.pitch), *([str(n) for n in term] for term in certified.terms)])
    cache_files.save(key, text)
    return certified


def _read_term(numbers: list[str]) -> Term:
    alpha, lam, mu, x = (Fraction(number) for number in numbers)
    return alpha, lam, mu, x


def _find(epsilon: float) -> Certificate:
    variance = HMTP(epsilon).worst_case_variance
    pitch_estimate = sqrt(4 * _PITCH_COST * 0.8 * variance)
    pitch = Fraction(pitch_estimate).limit_denominator(1 << 20)
    steps = _steps(ceil(1.15 * PMOpt(epsilon).A / float(pitch)))
    inputs = np.arange(_INPUTS) / (_INPUTS - 1)
    limits = VarianceLimits(np.full(_INPUTS, variance))
    while True:
        solution = solve(steps.astype(np.float64) * float(pitch), epsilon, inputs, limits)
        if solution is None:
            raise DomainError(f"no certificate was found for epsilon = {epsilon}.")
        certificate = Certificate(epsilon, pitch, _terms(solution, pitch, steps.tolist()))
        missing = np.setdiff1d(certificate.steps_below(-_REPAIRABLE_DEFICIT * variance), steps)
        if not missing.size:
            break
        steps = np.union1d(steps, missing)
    # Rounding may leave h a little below 0; lowering one mu by that much lifts h by at least it.
    lowest, _ = certificate.lowest()
    if lowest < 0:
        largest = max(range(len(certificate.terms)), key=lambda i: certificate.terms[i][0])
        alpha, lam, mu, x = certificate.terms[largest]
        terms = list(certificate.terms)
        terms[largest] = (alpha, lam, mu + lowest, x)
        certificate = Certificate(epsilon, pitch, tuple(terms))
    reason = certificate.invalid()
    if reason is not None:
        raise DomainError(f"no certificate was found for epsilon = {epsilon}: {reason}.")
    return certificate


def _steps(dense: int) -> Integers:
    """Return the outputs of the program in steps of the pitch: all near 0, some farther out."""
    farther = np.rint(dense * 1.1 ** np.arange(1, 20)).astype(np.int64)
    right = np.unique(np.concatenate([np.arange(dense + 1), farther]))
    return np.concatenate([-right[:0:-1], right])


def _terms(solution: Solution, pitch: Fraction, steps: list[int]) -> tuple[Term, ...]:
    """Turn the program's multipliers into exact terms, each with its mirror image."""
    significant = {
        (a, b): weight
        for (_, a, b), weight in solution.multipliers.items()
        if weight > _NEGLIGIBLE_MULTIPLIER * max(solution.multipliers.values())
    }
    whole = sum((Fraction(weight) for weight in significant.values()), Fraction(0))
    terms: list[Term] = []
    for (a, b), weight in significant.items():
        alpha = Fraction(weight) / whole / 2
        left, right = steps[a] * pitch, steps[b] * pitch
        x = min(max((left + right) / 2, Fraction(-1)), Fraction(1))
        lam, mu = alpha * (left + right), -alpha * left * right
        terms += [(alpha, lam, mu, x), (alpha, -lam, mu, -x)]
    for k, multiplier in enumerate(solution.reach.tolist()):
        if multiplier > _NEGLIGIBLE_MULTIPLIER:
            v, threshold = Fraction(multiplier) / 2, steps[k] * pitch
            terms += [
                (Fraction(0), v, -v * threshold, Fraction(1)),
                (Fraction(0), -v, -v * threshold, Fraction(-1)),
            ]
    too_much, too_little = (Fraction(float(m)) for m in solution.mass)
    terms.append((Fraction(0), Fraction(0), -too_much, Fraction(0)))
    terms.append((Fraction(0), Fraction(0), too_little, Fraction(0)))
    return tuple(terms)
