"""The appendix's figures for HM-TP, on which the proofs of Lemmas 10 and 11 rest.

Formulas are the paper's, with E for its c = e^eps, t = e^(eps/3) of PM-SUB and a = P(0 | 0) of
Three-Outputs. HM-TP uses PM-SUB with probability beta, so that its variance is linear in beta.
"""

from collections.abc import Iterator
from math import exp, expm1

import numpy as np
from scipy.optimize import minimize_scalar

from fedldp._internal.validation import LARGEST_STUDIED_EPSILON, SMALLEST_EPSILON
from fedldp.coders.tables import largest_piecewise_quadratic
from fedldp.mechanisms import HMTP, PMSub, ThreeOutputs
from fedldp.mechanisms.three_outputs import LAST_CUBIC_EPSILON
from fedldp_reproduction.results import ClaimVerdict, FigureResult
from fedldp_reproduction.theory import claims
from fedldp_reproduction.theory.checks import (
    LN_2,
    changes_sign,
    keeps_sign,
    points,
    result,
    spaced,
)

_PAYS = "0.610986"  # eps*, above which PM-SUB lowers the variance, as printed
_TURN = "1.4338"  # where slope_2 turns positive again, as printed
_FIRST = 0.4
_FROM_HERE = f"drawn from {_FIRST} on: towards 0 the curves grow without bound"
_ONE_OFF = "a printed number may be off by one in its last digit"
_LOW, _MIDDLE = spaced(_FIRST, LN_2, 101), spaced(LN_2, LAST_CUBIC_EPSILON, 101)
_LOW_PANEL, _MIDDLE_PANEL = "ε ≤ ln 2", "ln 2 ≤ ε ≤ ln 5.53"


def _parts(epsilon: float) -> tuple[float, float, float]:
    return exp(epsilon), PMSub(epsilon).t, ThreeOutputs(epsilon).a


def slope_1(epsilon: float) -> float:
    """Return the slope of Var[Y|1] in beta, Eq. (slope_1)."""
    return float(PMSub(epsilon).variance(1.0) - ThreeOutputs(epsilon).variance(1.0))


def slope_2(epsilon: float) -> float:
    """Return the slope of Var[Y|0] in beta, Eq. (slope_2)."""
    return float(PMSub(epsilon).variance(0.0) - ThreeOutputs(epsilon).variance(0.0))


def slopes() -> FigureResult:
    """Return the slopes in beta of the variance at x = 1 and at x = 0."""
    drawn = points("slope_1", _LOW, slope_1, _LOW_PANEL)
    drawn += points("slope_2", _LOW, slope_2, _LOW_PANEL)
    drawn += points("slope_1", _MIDDLE, slope_1, _MIDDLE_PANEL)
    drawn += points("slope_2", _MIDDLE, slope_2, _MIDDLE_PANEL)
    verdicts = (
        keeps_sign("slope_1 > 0 up to ln 2 (Fig. 21)", slope_1, 1, high=LN_2),
        changes_sign(
            f"slope_2 > 0 below epsilon {_PAYS} and < 0 from there to ln 2 (Fig. 22)",
            slope_2,
            _PAYS,
            high=LN_2,
        ),
        keeps_sign(
            "slope_1 > 0 from ln 2 to ln 5.53 (Fig. 23)", slope_1, 1, LN_2, LAST_CUBIC_EPSILON
        ),
        changes_sign(
            f"slope_2 < 0 from ln 2 to epsilon {_TURN} and > 0 from there to ln 5.53 (Fig. 24)",
            slope_2,
            _TURN,
            LN_2,
            LAST_CUBIC_EPSILON,
        ),
        keeps_sign("slope_1 > 0 above ln 5.53 (appendix)", slope_1, 1, LAST_CUBIC_EPSILON),
        keeps_sign("slope_2 > 0 above ln 5.53 (appendix)", slope_2, 1, LAST_CUBIC_EPSILON),
    )
    return result(
        "slopes",
        "HM-TP: how the variance at x = 1 (slope_1) and at x = 0 (slope_2) grows with beta",
        "Figs. 21, 22, 23, 24 (appendix)",
        drawn,
        verdicts,
        (
            _FROM_HERE,
            f'"0 < epsilon < {_TURN}" is read as ln 2 < epsilon < {_TURN}',
            "the derivatives printed for the slopes are those with respect to e^eps",
            _ONE_OFF,
        ),
        y_label="slope in beta",
    )


def coefficient_A(epsilon: float) -> float:
    """Return A, where the worst case of HM-TP is A gamma + B / gamma + C, Eq. (A).

    That is slope_2 / (E + t) less the square of Three-Outputs' rise from x = 0, without the
    parabola -x^2, to x = 1. The second term is zero up to ln 2, where a is.
    """
    E, t, _ = _parts(epsilon)
    discrete = ThreeOutputs(epsilon)
    rise = float(discrete.variance(1.0) + 1 - discrete.variance(0.0))
    return slope_2(epsilon) / (E + t) - expm1(epsilon) * rise**2 / (4 * (E + t) ** 2)


def derivative_of_A(epsilon: float) -> float:
    """Return A' as printed, for epsilon up to ln 2: the derivative with respect to e^eps."""
    t = exp(epsilon / 3)
    above = np.polyval([-9, 0, 7, -27, 41, -1, 25, 19, -12, 5], t)
    return float(-above / (9 * t**2 * (t**2 + 1) ** 2 * expm1(epsilon) ** 3))


# -A above ln 5.53, times 12 t^2 (E - t^2 + E t^2 - 1)^2: as printed, a polynomial in t = e^(eps/3).
MINUS_A = (3, 0, -8, 21, -28, 0, 16, -12, 36, -12)


def sign_of_A() -> FigureResult:
    """Return A and its derivative, whose signs decide which beta is best."""
    drawn = points("A", _LOW, coefficient_A, f"A, {_LOW_PANEL}")
    drawn += points("A", _MIDDLE, coefficient_A, f"A, {_MIDDLE_PANEL}")
    drawn += points("A'", _LOW, derivative_of_A, f"derivative of A, {_LOW_PANEL}")
    return result(
        "sign-of-a",
        "HM-TP: the sign of A and of its derivative",
        "Figs. 26, 27 (appendix)",
        drawn,
        _verdicts_on_A(),
        (
            _FROM_HERE,
            "the derivative printed is the one with respect to e^eps, and has the same sign",
            _ONE_OFF,
        ),
        y_label="value",
    )


def _verdicts_on_A() -> Iterator[ClaimVerdict]:
    yield keeps_sign("A' < 0 up to ln 2 (Fig. 26)", derivative_of_A, -1, high=LN_2)
    yield changes_sign(
        f"A > 0 below epsilon {_PAYS}, and A < 0 from there to ln 2 (appendix)",
        coefficient_A,
        _PAYS,
        high=LN_2,
    )
    yield keeps_sign(
        "A < 0 from ln 2 to ln 5.53 (Fig. 27)", coefficient_A, -1, LN_2, LAST_CUBIC_EPSILON
    )
    yield keeps_sign("A < 0 above ln 5.53 (appendix)", coefficient_A, -1, LAST_CUBIC_EPSILON)


def positive_part(epsilon: float) -> float:
    """Return 2 (E - a)^2 (E + t) - a E (E + 1)^2, the denominator of beta_1."""
    E, t, a = _parts(epsilon)
    return 2 * (E - a) ** 2 * (E + t) - a * E * (E + 1) ** 2


def beta_1(epsilon: float) -> float:
    """Return beta_1, the least beta whose worst case is at x = 0 or x = 1, Eq. (beta_1)."""
    E, _, a = _parts(epsilon)
    above = 2 * (E - a) ** 2 * expm1(epsilon) - a * E * (E + 1) ** 2
    return above / positive_part(epsilon)


def beta_intersection(epsilon: float) -> float:
    """Return the beta for which Var[Y|0] and Var[Y|1] are equal, Eq. (intersection)."""
    E, t, a = _parts(epsilon)
    bend = a * E * (E + 1) ** 2
    return ((E - 1) * (E - a) ** 2 - bend) / ((E + t) * (E - a) ** 2 - bend)


def beta_difference(epsilon: float) -> float:
    """Return beta_intersection - beta_1."""
    return beta_intersection(epsilon) - beta_1(epsilon)


_LARGEST_DRAWN = 20.0  # of a difference that has a pole


def compare_betas() -> FigureResult:
    """Return beta_intersection - beta_1."""
    (pole,) = claims.changes(lambda epsilon: beta_difference(epsilon) > 0, LN_2, LAST_CUBIC_EPSILON)
    grid = spaced(LN_2, LAST_CUBIC_EPSILON, 401)
    drawn = points("below the pole", [each for each in grid if each < pole], beta_difference)
    drawn += points("above the pole", [each for each in grid if each > pole], beta_difference)
    same = max(abs(beta_difference(each)) for each in spaced(SMALLEST_EPSILON, LN_2))
    loss = max(_excess(each) for each in spaced(SMALLEST_EPSILON, LARGEST_STUDIED_EPSILON, 101))
    return result(
        "beta-intersection",
        "HM-TP: beta_intersection - beta_1",
        "Fig. 25 (appendix)",
        tuple(point for point in drawn if abs(point.y) <= _LARGEST_DRAWN),
        (
            keeps_sign(
                f"beta_intersection < beta_1 from ln 2 to epsilon {_TURN} (Fig. 25)",
                beta_difference,
                -1,
                LN_2 + 1e-6,
                float(_TURN),
            ),
            ClaimVerdict(
                "beta_intersection = beta_1 up to ln 2 (appendix)",
                same < 1e-9,
                f"They differ by {same:.0e} at most.",
            ),
            ClaimVerdict(
                "Eq. (beta-value) gives the least worst-case variance (Lemma 10)",
                loss < 1e-9,
                f"Against the beta found by search it is never worse by more than "
                f"{max(loss, 0.0):.1e}.",
            ),
        ),
        (
            f"the difference has a pole at epsilon = {pole:.4f}, beyond which beta_intersection is "
            f"above 1 and of no concern; values beyond {_LARGEST_DRAWN:g} are not drawn",
            '"the intersection of slope_1 and slope_2" is read as that of Var[Y|0] and Var[Y|1]',
        ),
        y_label="difference of probabilities",
    )


def _excess(epsilon: float) -> float:
    """Return by what share HM-TP's worst-case variance exceeds that of the best beta."""
    continuous, discrete = PMSub(epsilon), ThreeOutputs(epsilon)

    def worst(beta: float) -> float:
        return largest_piecewise_quadratic(
            lambda x: beta * continuous.variance(x) + (1 - beta) * discrete.variance(x),
            np.array([0.0, 1.0]),
        )

    # The largest of functions linear in beta is convex: a search cannot miss its minimum.
    search = minimize_scalar(worst, bounds=(0, 1), method="bounded", options={"xatol": 1e-9})
    return HMTP(epsilon).worst_case_variance / float(search.fun) - 1


def positivity() -> FigureResult:
    """Return 2 (E - a)^2 (E + t) - a E (E + 1)^2, which the proofs need to be positive."""
    what = "2(e^eps - a)^2 (e^eps + t) - a e^eps (e^eps + 1)^2"
    return result(
        "positivity",
        "HM-TP: the denominator of beta_1",
        "Fig. 20 (appendix)",
        points("h", spaced(SMALLEST_EPSILON, LAST_CUBIC_EPSILON, 151), positive_part),
        (
            keeps_sign(f"h = {what} > 0 (Fig. 20)", positive_part, 1),
            keeps_sign(
                "beta_1 <= (e^eps - 1) / (e^eps + t): the difference, from ln 2 (Proposition 1)",
                _room,
                1,
                LN_2 + 1e-6,
            ),
        ),
        (
            '"t = eps / 3" is read as t = e^(eps/3)',
            "h < 0, printed twice in the proof of Proposition 1, is a misprint",
        ),
        y_label=f"h = {what}",
        y_log=True,
    )


def _room(epsilon: float) -> float:
    E, t, _ = _parts(epsilon)
    return expm1(epsilon) / (E + t) - beta_1(epsilon)
