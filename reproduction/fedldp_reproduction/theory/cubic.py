"""The appendix's figures for Three-Outputs, on which the proof of Lemma 4 rests.

Formulas are the paper's, with E for its c = e^eps.
"""

from collections.abc import Iterator
from functools import partial
from math import exp, expm1, log, pi, sqrt

import numpy as np
import numpy.typing as npt

from fedldp._internal.validation import SMALLEST_EPSILON
from fedldp.mechanisms import ThreeOutputs
from fedldp.mechanisms.three_outputs import LAST_CUBIC_EPSILON
from fedldp_reproduction.results import ClaimVerdict, FigureResult
from fedldp_reproduction.theory.checks import (
    LN_2,
    LN_4,
    changes_sign,
    keeps_sign,
    points,
    result,
    spaced,
)
from fedldp_reproduction.theory.one_number import MOST_OUTPUT, most_output

_REAL_ROOTS = "0.629598"  # above it the cubic has three real roots, as printed
# The cubic's discriminant divided by e^(2 eps) (e^eps + 1)^2, as a polynomial in e^eps.
DISCRIMINANT = (1, 30, 279, 580, -2385, 606, -775)
_MIDDLE = spaced(LN_2, LAST_CUBIC_EPSILON, 101)


def a_star(epsilon: float) -> float:
    """Return a*, the least P(0 | 0) for which the variance is largest at x = 1, Eq. (a-star).

    This form avoids the difference of large numbers in the paper's form.
    """
    E = exp(epsilon)
    root = (E + 1) * sqrt((E + 1) ** 2 + 8 * (E - 1))
    return 4 * E * expm1(epsilon) / (E**2 + 6 * E - 3 + root)


def compare_a_star() -> FigureResult:
    """Return a* beside e^eps / (e^eps + 2)."""

    def gap(epsilon: float) -> float:
        return a_star(epsilon) - most_output(epsilon)

    grid = spaced(SMALLEST_EPSILON, 3.0, 151)
    return result(
        "a-star",
        f"a* against {MOST_OUTPUT}",
        "Fig. 16 (appendix)",
        points("a*", grid, a_star) + points(MOST_OUTPUT, grid, most_output),
        (
            changes_sign(
                "a* = e^eps / (e^eps + 2) at epsilon = ln 4 alone (appendix)",
                gap,
                f"{LN_4:.6f}",
            ),
            keeps_sign(
                "a* < e^eps / (e^eps + 2) for epsilon < ln 4 (appendix, Eq. (worst-val-4))",
                gap,
                -1,
                high=LN_4 - 1e-6,
            ),
            keeps_sign(
                "a* > e^eps / (e^eps + 2) for epsilon > ln 4 (appendix)", gap, 1, LN_4 + 1e-6
            ),
        ),
        (
            "for epsilon < ln 4 the equation is judged; the sentence before it is a misprint",
            "f_2(a) is taken with e^eps - a, not squared, in its denominator",
        ),
        y_label="value of P(0 | 0)",
    )


def cubic(epsilon: float) -> tuple[float, float, float, float]:
    """Return c_3, c_2, c_1, c_0 of the cubic whose root is P(0 | 0), Eq. (f_first_order)."""
    E = exp(epsilon)
    return 2.0, -(E**2) - 4 * E - 5, 7 * E - 4 * E**2 - E**3, 2 * E**3 - 4 * E**2


def roots(epsilon: float) -> npt.NDArray[np.complex128]:
    """Return the cubic's roots a_0, a_1, a_2 by the paper's formulas with a cosine."""
    E, (c3, c2, _, _) = exp(epsilon), cubic(epsilon)
    delta_0, delta_1 = _deltas(E)
    # The arc cosine is imaginary below 0.629598, where two of the roots are not real.
    angle = np.emath.arccos(-delta_1 / (2 * delta_0**1.5)) / 3
    turns = np.array([-pi / 3, pi / 3, -pi])
    found: npt.NDArray[np.complex128] = -(c2 + 2 * sqrt(delta_0) * np.cos(turns + angle)) / (3 * c3)
    return found.astype(complex)


def _deltas(E: float) -> tuple[float, float]:
    delta_0 = np.polyval([1, 14, 50, -2, 25], E)
    delta_1 = np.polyval([-2, -42, -270, -404, -918, 30, -250], E)
    return float(delta_0), float(delta_1)


def _root(number: int, epsilon: float) -> float:
    return float(roots(epsilon)[number].real)


def discriminant(epsilon: float) -> float:
    """Return the cubic's discriminant, Eq. (Delta)."""
    a, b, c, d = cubic(epsilon)
    return 18 * a * b * c * d - 4 * b**3 * d + b**2 * c**2 - 4 * a * c**3 - 27 * a**2 * d**2


def sum_of_pairs(epsilon: float) -> float:
    """Return a_0 a_1 + a_0 a_2 + a_1 a_2, Eq. (add_roots)."""
    return cubic(epsilon)[2] / 2


def product(epsilon: float) -> float:
    """Return a_0 a_1 a_2, Eq. (multiply_roots)."""
    return -cubic(epsilon)[3] / 2


def cubic_roots() -> FigureResult:
    """Return the roots of the cubic, one of which is the best P(0 | 0)."""
    split = float(_REAL_ROOTS)
    one, two = f"0 < ε ≤ {_REAL_ROOTS}", f"{_REAL_ROOTS} ≤ ε ≤ ln 2"
    drawn = points("a_2", spaced(SMALLEST_EPSILON, split, 101), partial(_root, 2), one)
    drawn += points("a_0 a_1 + a_0 a_2 + a_1 a_2", spaced(split, LN_2, 51), sum_of_pairs, two)
    drawn += points("a_0 a_1 a_2", spaced(split, LN_2, 51), product, two)
    for number in range(3):
        drawn += points(f"a_{number}", _MIDDLE, partial(_root, number), "ln 2 ≤ ε ≤ ln 5.53")
    return result(
        "cubic-roots",
        "The roots of the cubic equation for P(0 | 0)",
        "Figs. 17, 18, 19 (appendix)",
        drawn,
        _cubic_verdicts(split),
        (
            'in the discriminant "e^(2e^eps)" is read as e^(2 eps), and the polynomial that '
            "follows as one in e^eps",
            f"Delta_1^2 > 4 Delta_0^3 below {_REAL_ROOTS}, where the paper does not use it: the "
            "roots have a complex angle, and P(0|0) is 0",
            '"c <= ln((3 + sqrt 65) / 2)" is read as c <= (3 + sqrt 65) / 2',
        ),
        y_label="root; sum or product of roots",
    )


def _cubic_verdicts(split: float) -> Iterator[ClaimVerdict]:
    yield changes_sign(
        "The cubic has one real root below epsilon 0.629598 and three above (appendix)",
        discriminant,
        _REAL_ROOTS,
    )

    def under_the_root(epsilon: float) -> float:
        # -27 c_3^2 times the discriminant, in a form without a difference of large numbers.
        E = exp(epsilon)
        discriminant = E**2 * (E + 1) ** 2 * float(np.polyval(DISCRIMINANT, E))
        return -27 * cubic(epsilon)[0] ** 2 * discriminant / _deltas(E)[0] ** 3

    yield keeps_sign(
        "Delta_1^2 - 4 Delta_0^3 < 0 where the roots with a cosine are used, above epsilon "
        f"{_REAL_ROOTS}: divided by Delta_0^3 (appendix)",
        under_the_root,
        -1,
        split + 1e-6,
    )
    yield keeps_sign(
        "a_2 > 1 for epsilon up to 0.629598: a_2 - 1 (Fig. 17)",
        lambda epsilon: _root(2, epsilon) - 1,
        1,
        high=split,
    )
    below = LN_2 - 1e-6  # at ln 2 itself one root is zero
    yield keeps_sign("a_0 a_1 + a_0 a_2 + a_1 a_2 < 0 (Fig. 18)", sum_of_pairs, -1, split, LN_2)
    yield keeps_sign("a_0 a_1 a_2 > 0 up to ln 2 (Fig. 18)", product, 1, split, below)
    first, second, third = np.array([roots(epsilon).real for epsilon in _MIDDLE]).T
    off = np.abs(second - [ThreeOutputs(epsilon).a for epsilon in _MIDDLE]).max()
    yield ClaimVerdict(
        "From ln 2 to ln 5.53 a_1 is the root sought, a_0 < 0 and a_2 > 1 (Fig. 19)",
        bool(first.max() < 0 and off < 1e-7 and third.min() > 1),
        f"Here a_0 is from {first.min():.4f} to {first.max():.4f} and a_2 from {third.min():.4f} "
        f"to {third.max():.4f}; a_1 is the best P(0|0) to within {off:.0e}.",
    )
    yield changes_sign(
        f"g({MOST_OUTPUT}) > 0 for epsilon up to ln 5.53 alone, so that a_1 is below (appendix)",
        lambda epsilon: -float(np.polyval(cubic(epsilon), most_output(epsilon))),
        f"{log(5.53):.3f}",
    )
