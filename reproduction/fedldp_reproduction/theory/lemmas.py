"""Lemmas that belong to no figure: 1, 2, 3, 5, 8, 11, 14, most of them in exact arithmetic.

Lemmas 1 to 3 are about mechanisms with the outputs -C, 0 and C. Unbiasedness leaves one function
free, P(0|x); here it is linear between -1, 0 and 1, as in the paper's design. Then probabilities
are linear too, so that the three inputs -1, 0 and 1 decide about privacy, and the variance is a
parabola on each side of 0. With rational numbers everything is exact.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import exp, floor
from typing import final

from fedldp._internal.validation import LARGEST_STUDIED_EPSILON, SMALLEST_EPSILON
from fedldp.mechanisms import HMTP, PMSub, ThreeOutputs
from fedldp.mechanisms.three_outputs import LAST_CUBIC_EPSILON
from fedldp_reproduction.results import ClaimVerdict, FigureResult
from fedldp_reproduction.theory.checks import LN_2, result, spaced
from fedldp_reproduction.theory.hybrid import beta_1
from fedldp_reproduction.theory.one_number import variances_by_a

_RATIOS = (Fraction(3, 2), Fraction(2), Fraction(3), Fraction(6))  # e^epsilon
_TENTHS = tuple(Fraction(number, 10) for number in range(10))
_SCALES = (Fraction(1), Fraction(2), Fraction(4), Fraction(10))  # C, times the least there can be
_SHOWN_EPSILON, _SHOWN_A = 1.0, 0.3
_ROUNDING = 1e-9  # relative: what floating point may add


@final
@dataclass(frozen=True)
class Ternary:
    """A mechanism with the outputs -C, 0 and C, given by P(0|-1), P(0|0) and P(0|1)."""

    C: Fraction
    left: Fraction
    middle: Fraction
    right: Fraction

    @property
    def laws(self) -> list[tuple[Fraction, Fraction, Fraction]]:
        """The probabilities of -C, 0 and C at the inputs -1, 0 and 1; unbiased by construction."""
        zeros = (self.left, self.middle, self.right)
        return [
            ((1 - zero - x / self.C) / 2, zero, (1 - zero + x / self.C) / 2)
            for x, zero in zip((-1, 0, 1), zeros, strict=True)
        ]

    @property
    def is_symmetric(self) -> bool:
        """Whether P(0|-1) = P(0|1)."""
        return self.left == self.right

    @property
    def is_monotone(self) -> bool:
        """Whether P(C|x) never falls as x grows."""
        low, middle, high = (law[2] for law in self.laws)
        return low <= middle <= high

    def satisfies(self, ratio: Fraction) -> bool:
        """Return whether all probabilities are proper and differ by at most this ratio."""
        columns = list(zip(*self.laws, strict=True))
        return all(min(column) >= 0 and max(column) <= ratio * min(column) for column in columns)

    @property
    def worst_case_variance(self) -> Fraction:
        """The largest variance over all x: of the parabolas on both sides of 0."""
        square = self.C**2
        found = []
        for end in (self.left, self.right):
            rise = square * (self.middle - end)
            x = min(max(rise / 2, Fraction(0)), Fraction(1))
            found.append(square * (1 - self.middle) + rise * x - x**2)
        return max(found)

    def symmetrized(self) -> "Ternary":
        """Return the mechanism of Lemma 1."""
        end = (self.left + self.right) / 2
        return Ternary(self.C, end, self.middle, end)

    def tightened(self, ratio: Fraction) -> "Ternary":
        """Return the mechanism of Lemma 2: C and -C less likely, by the same amount for all x."""
        less = self.slack(ratio) / (ratio - 1)
        return Ternary(self.C, *(each + 2 * less for each in self.zeros))

    def slack(self, ratio: Fraction) -> Fraction:
        """Return e^eps P(C|-1) - P(C|1), which Lemma 2 takes to be positive."""
        low, _, high = (law[2] for law in self.laws)
        return ratio * low - high

    @property
    def zeros(self) -> tuple[Fraction, Fraction, Fraction]:
        """P(0|x) at -1, 0 and 1."""
        return self.left, self.middle, self.right


def valid(ratio: Fraction) -> Iterator[Ternary]:
    """Yield many mechanisms that satisfy the paper's three requirements for an e^epsilon."""
    least = (ratio + 1) / (ratio - 1)  # Duchi's C, the smallest
    for scale, left, middle, right in product(_SCALES, *[_TENTHS] * 3):
        found = Ternary(scale * least, left, middle, right)
        if found.satisfies(ratio):
            yield found


def symmetrization() -> ClaimVerdict:
    """Return the verdict on Lemma 1."""
    number, gains = 0, []
    sound = True
    for ratio in _RATIOS:
        for before in valid(ratio):
            after = before.symmetrized()
            number += 1
            sound &= after.satisfies(ratio)
            sound &= after.worst_case_variance <= before.worst_case_variance
            gains.append(1 - after.worst_case_variance / before.worst_case_variance)
    return ClaimVerdict(
        "Symmetrization keeps the requirements and does not increase the worst case (Lemma 1)",
        sound,
        f"Exact for {number:,} mechanisms with rational probabilities, e^eps from "
        f"{min(_RATIOS)} to {max(_RATIOS)}: the worst-case variance falls by "
        f"{float(min(gains)):.1%} to {float(max(gains)):.1%}. The proof is sound.",
    )


def loose() -> Iterator[tuple[Fraction, Ternary]]:
    """Yield what Lemma 2 is about: symmetric mechanisms with P(C|1) < e^eps P(C|-1)."""
    for ratio in _RATIOS:
        for found in valid(ratio):
            if found.is_symmetric and found.slack(ratio) > 0:
                yield ratio, found


def counterexample() -> tuple[Fraction, Ternary]:
    """Return the first mechanism that Lemma 2 turns into an invalid one."""
    return next(each for each in loose() if not each[1].tightened(each[0]).satisfies(each[0]))


def tightening() -> ClaimVerdict:
    """Return the verdict on Lemma 2."""
    broken, monotone, number = 0, 0, 0
    lower, repaired = True, True
    for ratio, before in loose():
        after = before.tightened(ratio)
        number += 1
        lower &= after.worst_case_variance < before.worst_case_variance
        broken += not after.satisfies(ratio)
        if before.is_monotone:
            monotone += 1
            repaired &= after.satisfies(ratio)
    ratio, before = counterexample()
    after = before.tightened(ratio)
    columns = zip(*after.laws, strict=True)
    names = ("-C", "0", "C")
    told = "; ".join(
        f"P({name}|x) = {', '.join(map(str, column))}"
        for name, column in zip(names, columns, strict=True)
    )
    also = "holds" if lower and repaired else "does not hold either"
    zeros = ", ".join(map(str, before.zeros))
    return ClaimVerdict(
        "The mechanism with P(C|1) = e^eps P(C|-1) has a smaller worst case, and still satisfies "
        "the requirements (Lemma 2)",
        lower and not broken,
        f"Exact for {number:,} mechanisms: the worst case is smaller in all of them, but "
        f"{broken:,} of the new ones do not satisfy the requirements. With e^eps = {ratio}, "
        f"C = {before.C} and P(0|x) = {zeros} at x = -1, 0, 1 the new one has {told}. "
        f"For the {monotone:,} whose P(C|x) does not fall as x grows, such as Three-Outputs, the "
        f"lemma {also}.",
        "If P(C|x) does not fall as x grows, the mechanism with P(C|1) = e^eps P(C|-1) has a "
        "smaller worst case, and still satisfies the requirements."
        if lower and repaired
        else "",
    )


def three_outputs_variance(ratio: Fraction, a: Fraction, b: Fraction, x: Fraction) -> Fraction:
    """Return the variance at |x|, given P(0|0) = a and P(0|1) = b, Eq. (variance-three-outputs-1).

    >>> three_outputs_variance(Fraction(3), Fraction(0), Fraction(0), Fraction(0))  # Duchi
    Fraction(4, 1)
    """
    C = (ratio + 1) / ((ratio - 1) * (1 - b))
    return C**2 * (1 - a + (a - b) * x) - x**2


def printed_derivative(ratio: Fraction, a: Fraction, b: Fraction, x: Fraction) -> Fraction:
    """Return the derivative of that variance in b as printed, Eq. (first-derivative-1)."""
    return (ratio + 1) ** 2 * (2 * a + x * (1 - 2 * a + b) - 2) / ((b + 1) ** 2 * (ratio - 1) ** 2)


def true_derivative(ratio: Fraction, a: Fraction, b: Fraction, x: Fraction) -> Fraction:
    """Return the derivative of that variance in b."""
    return (ratio + 1) ** 2 * (2 - 2 * a - x * (1 - 2 * a + b)) / ((1 - b) ** 3 * (ratio - 1) ** 2)


def most_b(ratio: Fraction, a: Fraction) -> Fraction:
    """Return the largest P(0|1) that privacy allows, given P(0|0) = a."""
    # P(0|1) <= e^eps a, and P(-C|0) <= e^eps P(-C|1) = e^eps (1 - b) / (e^eps + 1).
    return min(ratio * a, 1 - (1 - a) * (ratio + 1) / (2 * ratio))


def monotonicity() -> Iterator[ClaimVerdict]:
    """Yield the verdicts on Lemma 3: on its statement, and on its conclusion."""
    inputs = (Fraction(0), Fraction(1, 2), Fraction(1))
    cases = [
        (ratio, a, a / ratio + (most_b(ratio, a) - a / ratio) * step / 10, x)
        for ratio, a, step, x in product(_RATIOS, _TENTHS[1:], range(11), inputs)
        if a <= ratio / (ratio + 2)  # otherwise no P(0|1) is allowed
    ]
    slopes = [true_derivative(*case) for case in cases]
    printed = [printed_derivative(*case) for case in cases]
    wrong = sum(one * other < 0 for one, other in zip(slopes, printed, strict=True))
    E, a = exp(_SHOWN_EPSILON), _SHOWN_A
    least, most = a / E, most_b(Fraction(E), Fraction(a))

    def at(b: float | Fraction) -> float:
        exact = (Fraction(E), Fraction(a), Fraction(b), Fraction(0))
        return float(three_outputs_variance(*exact))

    yield ClaimVerdict(
        "Given P(0|0), the variance strictly decreases in P(0|1) (Lemma 3)",
        all(slope < 0 for slope in slopes),
        f"It increases: in {sum(slope > 0 for slope in slopes):,} of {len(cases):,} exact cases "
        f"the derivative is positive, and the one printed has the wrong sign in {wrong:,}. At "
        f"epsilon = {_SHOWN_EPSILON:g}, P(0|0) = {a:g} and x = 0 the "
        f"variance grows from {at(least):.4g} at P(0|1) = P(0|0)/e^eps = {least:.4g} to "
        f"{at(most):.4g} at {float(most):.4g}, the most that privacy allows (and to "
        f"{at(a * E):.4g} at P(0|0) e^eps = {a * E:.4g}, where only the ratio of P(0|x) is kept).",
        "Given P(0|0), the variance strictly increases in P(0|1), and is least for P(0|1) = "
        "P(0|0) / e^eps."
        if all(slope > 0 for slope in slopes)
        else "",
    )
    lowest = all(
        three_outputs_variance(ratio, a, a / ratio, x) <= three_outputs_variance(ratio, a, b, x)
        for ratio, a, b, x in cases
    )
    yield ClaimVerdict(
        "The variance is least for P(0|1) = P(0|0) / e^eps (conclusion of Lemma 3)",
        lowest,
        f"Exact in all of {len(cases):,} cases: it is the smallest P(0|1) that privacy allows, and "
        "the variance increases in it.",
    )


def closed_forms() -> ClaimVerdict:
    """Return the verdict on Lemma 5 and the three forms of its proof, Eq. (worst-val-case1)."""
    off, above = [], []
    for epsilon in spaced(SMALLEST_EPSILON, LARGEST_STUDIED_EPSILON):
        chosen, E = ThreeOutputs(epsilon), exp(epsilon)
        a = chosen.a
        if epsilon < LN_2:
            form = (E + 1) ** 2 / (E - 1) ** 2
        elif epsilon <= LAST_CUBIC_EPSILON:
            form = (E * (E + 1) / (E - 1)) ** 2 * (
                (1 - a) / (E - a) ** 2 + (E + 1) ** 2 * a**2 / (4 * (E - a) ** 4)
            )
        else:
            form = (E + 2) * (E + 10) / (4 * (E - 1) ** 2)
        off.append(abs(form / chosen.worst_case_variance - 1))
        above.append(chosen.worst_case_variance / float(variances_by_a(epsilon).min()) - 1)
    return ClaimVerdict(
        "The least worst case of Three-Outputs has the three forms given (Lemma 5)",
        max(off) < _ROUNDING and max(above) < _ROUNDING,
        f"The forms are the worst-case variance to within {max(off):.0e}, and no other P(0|0) of "
        f"{len(variances_by_a(1.0)):,} has less, for epsilon from {SMALLEST_EPSILON:g} to "
        f"{LARGEST_STUDIED_EPSILON:g}.",
    )


def _hybrid_worst(epsilon: float, beta: float) -> tuple[float, float]:
    """Return HM-TP's worst case by Lemma 11, and by the parabola's own maximum."""
    continuous, discrete = PMSub(epsilon), ThreeOutputs(epsilon)
    E, t, a = exp(epsilon), continuous.t, discrete.a

    def variance(x: float) -> float:
        return float(beta * continuous.variance(x) + (1 - beta) * discrete.variance(x))

    if 0 < beta < beta_1(epsilon):
        bend = a * E * (E + 1) ** 2
        summit = (beta - 1) * bend / (2 * (E - a) ** 2 * (beta * (E + t) - E + 1))
        lemma = variance(summit)
    else:
        lemma = max(variance(0.0), variance(1.0))
    ends, middle = (variance(0.0), variance(1.0)), variance(0.5)
    curve = 2 * (ends[0] - 2 * middle + ends[1])
    slope = ends[1] - ends[0] - curve
    found = list(ends)
    if curve < 0 < slope < -2 * curve:
        found.append(ends[0] - slope**2 / (4 * curve))
    return lemma, max(found)


def hybrid_worst_case() -> ClaimVerdict:
    """Return the verdict on Lemma 11, for the best beta and for all others."""
    epsilons = spaced(0.05, LARGEST_STUDIED_EPSILON, 201)

    def largest(betas: Iterable[tuple[float, float]]) -> float:
        pairs = (_hybrid_worst(*each) for each in betas)
        return max(abs(lemma / true - 1) for lemma, true in pairs)

    best = largest((epsilon, HMTP(epsilon).beta) for epsilon in epsilons)
    every = largest(product(epsilons, spaced(0.01, 1.0, 100)))
    from_ln_2 = [each for each in epsilons if each >= LN_2]
    inside = all(0 < HMTP(each).beta < beta_1(each) for each in from_ln_2)
    return ClaimVerdict(
        "The worst case of HM-TP is at x* if 0 < beta < beta_1, and otherwise at 0 or 1 (Lemma 11)",
        max(best, every) < _ROUNDING,
        f"For the beta of Lemma 10 to within {best:.0e}, and for 100 other betas to within "
        f"{every:.0e}, epsilon from {epsilons[0]:g} to {epsilons[-1]:g}. From ln 2 on the best "
        f"beta is {'always' if inside else 'not always'} below beta_1.",
    )


def sampled_variance() -> ClaimVerdict:
    """Return the verdict on Lemma 14, from the law of a sampled attribute."""
    number, exact = 0, True
    for ratio, a, x, (d, k) in product(
        _RATIOS, _TENTHS[:4], (Fraction(0), Fraction(1, 3), Fraction(1)), ((5, 1), (5, 3), (94, 2))
    ):
        if a > ratio / (ratio + 2):
            continue
        C = ratio * (ratio + 1) / ((ratio - 1) * (ratio - a))
        zero = a - (a - a / ratio) * x
        outputs = {C: (1 - zero + x / C) / 2, Fraction(0): zero, -C: (1 - zero - x / C) / 2}
        share = Fraction(k, d)
        moments = [
            sum(share * p * (y / share) ** power for y, p in outputs.items()) for power in (1, 2)
        ]
        b = a * (1 - 1 / ratio)
        lemma = (1 - a + b * x) * C**2 / share - x**2
        exact &= moments[0] == x and moments[1] - moments[0] ** 2 == lemma
        number += 1
    return ClaimVerdict(
        "The variance of an attribute that Three-Outputs reports for k of d (Lemma 14)",
        exact,
        f"Equal, in exact arithmetic, to that of the law of Algorithm 6 in {number} cases: "
        "e^(eps/k), P(0|0), x, d and k rational.",
    )


def rounding() -> ClaimVerdict:
    """Return the verdict on Lemma 8, from Algorithm 5 as printed."""
    number, exact = 0, True
    for C, m, part in product((Fraction(3, 2), Fraction(4)), (1, 2, 1000), range(-20, 20)):
        y = C * part / 20
        k = floor(y * m / C)
        down, up = k + 1 - y * m / C, y * m / C - k
        drawn = (C * (k + 1) / m - y) * m / C  # P(u = 1), for the point below
        points = (C * k / m, C * (k + 1) / m)
        exact &= down == drawn and min(down, up) >= 0 and down + up == 1
        exact &= down * points[0] + up * points[1] == y
        number += 1
    return ClaimVerdict(
        "The probabilities of the discretization are those of Algorithm 5, add up to 1 and keep "
        "the mean (Lemma 8)",
        exact,
        f"Exact in {number} cases: y, C and m rational.",
    )


def lemmas() -> FigureResult:
    """Return the verdicts on the lemmas that belong to no figure."""
    return result(
        "lemmas",
        "Lemmas that belong to no figure",
        "Lemmas 1, 2, 3, 5, 8, 11, 14",
        (),
        (
            symmetrization(),
            tightening(),
            *monotonicity(),
            closed_forms(),
            rounding(),
            hybrid_worst_case(),
            sampled_variance(),
        ),
        (
            "Lemmas 1 to 3, 8 and 14 in rational numbers, which have no rounding errors; Lemmas 5 "
            "and 11 in floating point",
            f"Lemmas 1 and 2: P(0|x) at -1, 0 and 1 in tenths, linear between; e^eps = "
            f"{', '.join(map(str, _RATIOS))}; C = {', '.join(map(str, _SCALES))} times the least",
            "the other lemmas stand with their figures: 4 with Fig. 3, 6 with Fig. 4, 7 with "
            "Fig. 5, 9, 12 and 13 under privacy, 10 with Fig. 25, Proposition 1 with Fig. 20",
        ),
    )
