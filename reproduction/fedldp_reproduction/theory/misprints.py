"""The paper's misprints: what is printed, what is meant, and numbers that tell the two apart.

A misprint is a slip of the pen: what is meant is clear from the rest of the paper, and it holds.
So it is not a failed claim. For each, the printed form is shown to be wrong and the other right.
"""

from collections.abc import Iterator
from fractions import Fraction
from math import exp, isclose, log, sqrt

import numpy as np

from fedldp import audit
from fedldp.mechanisms import HMTP, PMOpt, PMSub, ThreeOutputs, mechanism
from fedldp.mechanisms.three_outputs import LAST_CUBIC_EPSILON
from fedldp_reproduction.datasets import wisdm
from fedldp_reproduction.results import ClaimVerdict, FigureResult
from fedldp_reproduction.theory.checks import LN_2, LN_4, as_printed, result, spaced
from fedldp_reproduction.theory.claims import changes
from fedldp_reproduction.theory.cubic import DISCRIMINANT, a_star, cubic, discriminant
from fedldp_reproduction.theory.hybrid import (
    MINUS_A,
    beta_1,
    coefficient_A,
    positive_part,
)
from fedldp_reproduction.theory.lemmas import loose, printed_derivative, true_derivative
from fedldp_reproduction.theory.one_number import most_output

_AT = 1.5  # the epsilon of examples
_ROUNDING = 1e-9


def misprint(
    place: str, printed: str, meant: str, wrong: bool, right: bool, why: str
) -> ClaimVerdict:
    """Return what became of a misprint: one only if it is wrong and what is meant is right.

    >>> misprint("Eq. 1", "1 + 1 = 3", "1 + 1 = 2", True, True, "It is 2.").misprint
    True
    """
    told = f"{printed}; meant: {meant} ({place})"
    if wrong and right:
        return ClaimVerdict(told, None, why, misprint=True)
    return ClaimVerdict(told, not wrong, why)


def _same(one: float, other: float) -> bool:
    return isclose(one, other, rel_tol=_ROUNDING, abs_tol=_ROUNDING)


def _three_outputs() -> Iterator[ClaimVerdict]:
    chosen, E = ThreeOutputs(_AT), exp(_AT)
    a = chosen.a
    true = {x: [float(p) for p in chosen.probabilities(x)] for x in (-1.0, 1.0)}
    zero = a + (a / E - a) * -1.0
    yield misprint(
        "Eq. (probability-0)",
        "P(0|x) falls in x",
        "in |x|",
        not _same(zero, true[-1.0][1]),
        _same(a + (a / E - a) * 1.0, true[-1.0][1]),
        f"At epsilon = {_AT:g} and x = -1 the printed form gives {zero:.4f}, and the other "
        f"{true[-1.0][1]:.4f}, which makes the three probabilities add up to 1.",
    )
    middle, end, far = (1 - a) / 2, (E - a) / (E + 1), (E - a) / (E * (E + 1))
    printed = {1.0: middle + (middle - far), -1.0: middle - (end - middle)}
    meant = {1.0: middle - (middle - far), -1.0: middle + (end - middle)}
    sums = {x: printed[x] + sum(true[x][1:]) for x in (1.0, -1.0)}
    yield misprint(
        "Eq. (probability--C), both lines",
        "P(-C|x) = (1 - P(0|0))/2 + (...) x",
        "- (...) x",
        all(not _same(sums[x], 1) for x in sums),
        all(_same(meant[x], true[x][0]) for x in sums),
        f"With P(0|x) and P(C|x) the printed ones add up to {sums[1.0]:.4f} at x = 1 and "
        f"{sums[-1.0]:.4f} at x = -1, epsilon = {_AT:g}; the others to 1.",
    )
    low, _, high = true[1.0]
    printed_slope, slope = low - high, (1 - a) - (low + high)
    yield misprint(
        "sec. Three-Outputs, Cases 1 and 2",
        "P(0|x) has the slope P(-C|0) - P(C|0) + P(-C|1) - P(C|1)",
        "P(-C|0) + P(C|0) - P(-C|1) - P(C|1), in |x|",
        not _same(a + printed_slope, true[1.0][1]),
        _same(a + slope, true[1.0][1]),
        f"At x = 1, epsilon = {_AT:g}: {a + printed_slope:.4f} as printed, {a + slope:.4f} "
        f"otherwise; P(0|1) is {true[1.0][1]:.4f}.",
    )
    yield misprint(
        "sec. Three-Outputs, before Lemma 2",
        "until P(C|-1) = e^eps P(-C|1)",
        "until P(C|1) = e^eps P(C|-1)",
        not _same(true[-1.0][2], E * low),
        _same(high, E * true[-1.0][2]),
        f"By symmetry P(C|-1) = P(-C|1), {low:.4f} at epsilon = {_AT:g}; P(C|1) is {high:.4f}, "
        f"e^eps = {E:.4f} times as much.",
    )
    gains = [
        after - before
        for ratio, found in loose()
        for before, after in zip(found.zeros, found.tightened(ratio).zeros, strict=True)
    ]
    yield misprint(
        "proof of Lemma 2",
        "P(0|x) of M_2 > P(0|x) of M_3, twice",
        "<",
        min(gains) > 0,
        min(gains) > 0,
        f"In {len(gains):,} exact cases P(0|x) grows, by {float(min(gains)):.3g} to "
        f"{float(max(gains)):.3g}: that is why the variance falls.",
    )
    case = (Fraction(3), Fraction(1, 2), Fraction(1, 4), Fraction(1, 3))
    printed_form, derivative = printed_derivative(*case), true_derivative(*case)
    ratio, a0, b, _ = case
    repaired = printed_form * (1 + b) ** 2 / (b - 1) ** 3
    yield misprint(
        "Eq. (first-derivative-1), proof of Lemma 3",
        "the derivative of the variance is divided by (P(0|1) + 1)^2",
        "by (P(0|1) - 1)^3",
        printed_form != derivative,
        repaired == derivative,
        f"At e^eps = {ratio}, P(0|0) = {a0}, P(0|1) = {b}, x = 1/3 the derivative is {derivative}; "
        f"printed {printed_form}, otherwise {repaired}. The numerator is right; with the "
        "denominator the sign turns, and with it the monotonicity that Lemma 3 states.",
    )
    small = 0.3  # a = P(0|0) with its worst case at x = 1
    E1 = exp(1.0)
    C1 = E1 * (E1 + 1) / ((E1 - 1) * (E1 - small))
    defined = C1**2 * (1 - small / E1) - 1
    f2 = [(E1 + 1) ** 2 * E1 / ((E1 - 1) ** 2 * (E1 - small) ** power) - 1 for power in (2, 1)]
    yield misprint(
        "Eqs. (worst-val-3), (worst-val-4), (f_2), and its derivative",
        "f_2(a) is divided by (e^eps - a)^2",
        "by e^eps - a",
        not _same(f2[0], defined),
        _same(f2[1], defined),
        f"At epsilon = 1, a = {small:g} and x = 1 the variance is {defined:.4f}; printed "
        f"{f2[0]:.4f}, otherwise {f2[1]:.4f}. Both derivatives are positive, which is all that the "
        "proof needs.",
    )
    below, above = (a_star(each) - most_output(each) for each in (1.0, 2.0))
    yield misprint(
        "proof of Lemma 4, before Eq. (worst-val-4)",
        "a* >= e^eps / (e^eps + 2) if epsilon <= ln 4",
        "a* <= e^eps / (e^eps + 2)",
        below < 0,
        below < 0 < above and len(changes(lambda e: a_star(e) > most_output(e))) == 1,
        f"The difference is {below:.4f} at epsilon = 1 and {above:+.4f} at 2, and "
        f"changes its sign at ln 4 = {LN_4:.4f} alone. The next equation uses what is meant.",
    )
    between = 0.66
    least = min(-float(np.polyval(cubic(between), x)) for x in spaced(0.0, most_output(between)))
    largest = max(float(z.real) for z in np.roots(cubic(between)) if abs(z.imag) < _ROUNDING)
    above = -float(np.polyval(cubic(between), largest + 0.1))
    yield misprint(
        "proof of Lemma 4, Case 1",
        "f_1'(a) <= 0 if epsilon > 0.629598",
        "if a > a_2",
        least > 0,
        above < 0,
        f"At epsilon = {between:g} the numerator of f_1' is at least {least:.3g} for all a up to "
        f"e^eps / (e^eps + 2), as Case 2 says, and {above:.3g} at a = a_2 + 0.1.",
    )
    E2, polynomial = exp(1.0), DISCRIMINANT
    factor = E2**2 * (E2 + 1) ** 2
    printed_delta = factor * (
        np.polyval((1, 30, 279, 580, 0, 606, -775), E2) - 2385 * exp(2 * exp(1.0))
    )
    meant_delta = factor * float(np.polyval(polynomial, E2))
    root = max(float(z.real) for z in np.roots(polynomial) if abs(z.imag) < _ROUNDING)
    yield misprint(
        "Eq. (Delta), after substitution",
        "e^(2 e^eps), and a polynomial in eps whose root is e^0.629598",
        "e^(2 eps), and a polynomial in e^eps",
        not _same(float(printed_delta), discriminant(1.0)),
        _same(meant_delta, discriminant(1.0)) and as_printed(log(root), "0.629598"),
        f"At epsilon = 1 the discriminant is {discriminant(1.0):.6g}; printed {printed_delta:.6g}, "
        f"otherwise {meant_delta:.6g}. The root is e^eps = {root:.6f}, epsilon = {log(root):.6f}.",
    )
    edge = (3 + sqrt(65)) / 2
    yield misprint(
        "proof of Lemma 4, Case 3",
        "c <= ln((3 + sqrt 65) / 2) = 5.53",
        "c <= (3 + sqrt 65) / 2",
        not as_printed(log(edge), "5.53"),
        as_printed(edge, "5.53"),
        f"Here (3 + sqrt 65) / 2 = {edge:.4f}, and its logarithm is {log(edge):.4f}.",
    )


def _piecewise() -> Iterator[ClaimVerdict]:
    every = [kind(each) for kind in (PMOpt, PMSub) for each in spaced(0.25, 20.0, 80)]
    bounds = [each.A for each in every]
    yield misprint(
        "sec. Discretization",
        "the outputs of PM-OPT and PM-SUB range over [-1, 1]",
        "over [-A, A]",
        min(bounds) > 1,
        all(_same(float(each.window(1.0)[1]), each.A) for each in every),
        f"A is between {min(bounds):.4f} and {max(bounds):.4g} for epsilon from 0.25 to 20; the "
        "algorithms say [-A, A].",
    )
    E, t, step = Fraction(3), Fraction(2), Fraction(1, 10**6)

    def slope(at: Fraction) -> Fraction:
        return at + 2 * E - 2 * E / at**2 - E**2 / at**3

    true = (slope(t + step) - slope(t - step)) / (2 * step)
    printed, meant = 1 + 4 * E / t**3 + 3 * E / t**4, 1 + 4 * E / t**3 + 3 * E**2 / t**4
    yield misprint(
        "Solve Eq. (solve-quartic-equation), second derivative",
        "3 e^eps t^-4",
        "3 e^(2 eps) t^-4",
        abs(printed - true) > Fraction(1, 100),
        abs(meant - true) < Fraction(1, 10**9),
        f"At e^eps = 3, t = 2 the second derivative, without its factor, is {float(true):.6f}; "
        f"printed {float(printed):.6f}, otherwise {float(meant):.6f}. Both are positive.",
    )
    f = 2
    p, q, r = Fraction(-3 * f**2, 2), Fraction(f**3 - 2 * f), Fraction(-3 * f**4, 16)
    rest = -9 * 8 * 8 * p * (2 * p**2 - 8 * r) - 27 * 64 * q**2
    deltas = [2 * (8 * p) ** power + rest for power in (2, 3)]
    said = 6912 * (f**4 - f**2)
    yield misprint(
        "Solve Eq. (solve-quartic-equation), Delta_1",
        "2 (c_2')^2",
        "2 (c_2')^3",
        deltas[0] != said,
        deltas[1] == said,
        f"At e^eps = {f}: {deltas[0]} as printed, {deltas[1]} otherwise, and 6912 (f^4 - f^2) is "
        f"{said}.",
    )
    at = exp(1.0)
    y = PMOpt(1.0).t + at / 2
    half, rightside = y**2 - 3 * at**2 / 4, -(at**3 - 2 * at) * y + 3 * at**4 / 16 + 9 * at**4 / 16
    yield misprint(
        "Eq. (depressed-quartic-form) and the one after it",
        "(y^2 + p/2)",
        "its square",
        not _same(half, rightside),
        _same(half**2, rightside),
        f"At epsilon = 1 and the root y = {y:.4f} the right side is {rightside:.4f}; "
        f"y^2 + p/2 is {half:.4f} and its square {half**2:.4f}.",
    )
    chosen = PMSub(1.0)
    high, low = chosen.heights
    left, right = (float(each) for each in chosen.window(0.5))
    mass = high * (right - left) + low * (2 * chosen.A - (right - left))
    mean = (high - low) * (right**2 - left**2) / 2
    yield misprint(
        "proof of Lemma 6, Eq. (constraint-unbiased)",
        "E[Y|x] = c (R - L) + d [2A - (R - L)]",
        "nothing: the line belongs to the equation before it",
        _same(mass, 1) and not _same(mass, 0.5),
        _same(mean, 0.5),
        f"At x = 0.5 that sum is {mass:.4f}; the line after it is {mean:.4f}, and E[Y|x] = x.",
    )
    alpha = chosen.A * low
    terms = [2 * alpha**power / (3 * low**2) for power in (1, 3)]
    defined = 2 * low * chosen.A**3 / 3
    yield misprint(
        "proof of Lemma 11, the variance of PM-SUB with alpha = A d",
        "2 alpha / (3 d^2)",
        "2 alpha^3 / (3 d^2)",
        not _same(terms[0], defined),
        _same(terms[1], defined),
        f"At epsilon = 1 the term (2d/3) A^3 is {defined:.4f}; printed {terms[0]:.4f}, otherwise "
        f"{terms[1]:.4f}.",
    )


def _hybrid() -> Iterator[ClaimVerdict]:
    epsilons = spaced(0.05, LAST_CUBIC_EPSILON, 201)
    values = [positive_part(each) for each in epsilons]
    yield misprint(
        "proof of Proposition 1",
        "h < 0 for epsilon up to ln 5.53, twice",
        "h > 0",
        min(values) > 0,
        min(values) > 0,
        f"Here h is between {min(values):.4g} and {max(values):.4g} for epsilon from "
        f"{epsilons[0]:g} to ln 5.53, as Fig. 20 and the next appendix say; the proposition "
        "follows from h > 0.",
    )
    E, a = exp(2.0), ThreeOutputs(2.0).a
    simple = E**2 * (E + 1) ** 2 * (E - 2 + 2 * exp(2 / 3)) / (E + 2) ** 2
    hs = [2 * (E - a) ** 2 * (E + t) - a * E * (E + 1) ** 2 for t in (2 / 3, exp(2 / 3))]
    yield misprint(
        "Proposition 1 and its proof",
        "t = epsilon / 3",
        "t = e^(epsilon/3)",
        not _same(hs[0], simple),
        _same(hs[1], simple),
        f"At epsilon = 2 the simple form of h given is {simple:.4f}; with t = epsilon / 3 h would "
        f"be {hs[0]:.4f}, with t = e^(epsilon/3) it is {hs[1]:.4f}.",
    )
    signs = [s * (E - 2 + 2 * exp(2 / 3)) for s in (-1, 1)]
    yield misprint(
        "proof that 2(e^eps - a)^2 (e^eps + t) - a e^eps (e^eps + 1)^2 > 0",
        "-e^eps + 2 - 2 e^(eps/3) > 0",
        "e^eps - 2 + 2 e^(eps/3) > 0",
        signs[0] < 0,
        signs[1] > 0,
        f"At epsilon = 2: {signs[0]:.4f} as printed, {signs[1]:.4f} otherwise.",
    )
    E, t, a = exp(_AT), PMSub(_AT).t, ThreeOutputs(_AT).a

    def summit(beta: float) -> float:
        bend = a * E * (E + 1) ** 2
        return (beta - 1) * bend / (2 * (E - a) ** 2 * (beta * (E + t) - E + 1))

    first, last = beta_1(_AT), (E - 1) / (E + t)
    found = [summit(first / 2), summit((first + last) / 2)]
    yield misprint(
        "proof of Lemma 11, case (I)",
        "x* < 1 means beta > beta_1",
        "beta < beta_1",
        found[1] > 1,
        found[0] < 1,
        f"At epsilon = {_AT:g}, where beta_1 = {first:.4f}, x* is {found[0]:.4f} for half of "
        f"beta_1 and {found[1]:.4f} between beta_1 and (e^eps - 1) / (e^eps + t). The lemma has "
        "it right.",
    )
    ends = [beta_1(each) * (exp(each) + PMSub(each).t) - exp(each) + 1 for each in (0.5, _AT)]
    yield misprint(
        "proof of Lemma 10",
        "the largest gamma, at beta_1, is 0",
        "beta_1 (e^eps + t) - e^eps + 1, which is 0 only if P(0|0) is",
        not _same(ends[1], 0.0),
        _same(ends[0], 0.0) and ends[1] < 0,
        f"At beta_1 gamma is {abs(ends[0]):.4f} for epsilon = 0.5, where P(0|0) = 0, and "
        f"{ends[1]:.4f} for epsilon = {_AT:g}. What the proof needs, gamma < 0 below beta_1, "
        "follows.",
    )
    inside = [coefficient_A(each) for each in spaced(0.611, LN_2)]
    yield misprint(
        "proof of Lemma 10, case c)",
        "A < 0 if 0.610986 < epsilon < beta_1",
        "< ln 2",
        beta_1(LN_2) < 0.610986,
        max(inside) < 0,
        f"A probability, beta_1 is {beta_1(LN_2):.4f} at ln 2; A is at most {max(inside):.2g} "
        "from 0.611 to ln 2.",
    )
    roots = np.roots([3, 0, -2, 3, -5, -3])
    (x,) = [float(z.real) for z in roots if abs(z.imag) < _ROUNDING and z.real > 0]
    yield misprint(
        "The sign of A",
        "a polynomial in epsilon with the root 1.22588",
        "in x = e^(epsilon/3)",
        not as_printed(x, "0.610986"),
        as_printed(x, "1.22588") and as_printed(3 * log(x), "0.610986"),
        f"The root is {x:.6f}, and 3 ln of it {3 * log(x):.6f}.",
    )
    printed = ["-16.9563", "-1.2284", "0.0463914"]
    zeros = sorted(float(z.real) ** 3 for z in np.roots(MINUS_A) if abs(z.imag) < _ROUNDING)
    right = [as_printed(zero, text) for zero, text in zip(zeros, printed, strict=True)]
    yield misprint(
        "The sign of A, its roots above ln 5.53",
        f"e^eps is {', '.join(printed)}",
        ", ".join(f"{zero:.6g}" for zero in zeros),
        not all(right),
        zeros[-1] < exp(LAST_CUBIC_EPSILON),
        f"Of {len(printed)}, {sum(right)} are as printed; the largest, which decides the sign, is "
        f"far below e^eps = {exp(LAST_CUBIC_EPSILON):.4f}.",
    )


def _proof_of_lemma_13() -> Iterator[ClaimVerdict]:
    share, x = 0.5, 0.6  # epsilon / k below 0.610986, and a value of the attribute
    chosen = mechanism("hm-tp", share)
    second = float(chosen.variance(x)) + x**2
    printed = ((exp(share) + 1) / (exp(share) - 1)) ** 2 + x**2
    yield misprint(
        "proof of Lemma 13",
        "E[y^2] of HM-TP equals its worst-case variance + x^2",
        "is at most that",
        not _same(printed, second),
        printed >= second,
        f"At epsilon / k = {share:g} and x = {x:g} it is {second:.4f}; the form printed is "
        f"{printed:.4f}. The order in the lemma does not change.",
    )
    epsilon, k = 1.0, 2
    betas = [float(HMTP(each).beta) for each in (epsilon, epsilon / k)]
    yield misprint(
        "proof of Lemma 13",
        "the cases of HM-TP are those of epsilon",
        "those of epsilon / k",
        betas[0] > 0,
        betas[1] == 0,
        f"With k = {k} at epsilon = {epsilon:g} each answer has epsilon / k = {epsilon / k:g}, for "
        f"which beta is {betas[1]:g}, not {betas[0]:.4f} as for {epsilon:g}.",
    )


def _system() -> Iterator[ClaimVerdict]:
    d, epsilon, k = 16, 5.0, 2
    outputs = [mechanism("hm-tp", epsilon / k).bound, d / k * mechanism("hm-tp", epsilon / k).bound]
    yield misprint(
        "Algorithm 6, output",
        "Y is in [-A, A]^d",
        "in [-(d/k) A, (d/k) A]^d",
        outputs[1] > outputs[0],
        _same(outputs[1], d / k * outputs[0]),
        f"With d = {d} and k = {k} the line before the end multiplies answers of up to "
        f"{outputs[0]:.4f} by {d / k:g}, to {outputs[1]:.4f}.",
    )
    rate, target, model = Fraction(1, 4), Fraction(1), Fraction(0)
    first = target - model
    epochs = first + (target - (model + rate * first))
    yield misprint(
        "sec. System Model, and Algorithm 1",
        "vehicles upload after predefined local epochs",
        "after one gradient, as Algorithm 1 says",
        epochs != first,
        model + rate * first == rate,
        f"On (theta - 1)^2 / 2 from 0 with a rate of {rate}, two local epochs move the model by "
        f"{rate} times {epochs}, which is not the gradient that the server of Algorithm 1 averages "
        f"({first}).",
    )
    folds, times, runs = 10, 5, 100
    yield misprint(
        "sec. Experiments, and sec. Experiments B",
        f"averages over {runs} runs, beside {folds}-fold cross-validation {times} times",
        f"{runs} runs of means; {folds * times} trainings of each model",
        folds * times != runs,
        runs % (folds * times) == 0,
        f"Cross-validation with {folds} folds {times} times makes {folds * times} trainings, not "
        f"{runs}: read as the numbers of different experiments.",
    )


def _rest() -> Iterator[ClaimVerdict]:
    epsilon, k = 5.0, 2
    spent = [
        float(k * audit.exact(mechanism("hm-tp", each).channel()).high)
        for each in (epsilon, epsilon / k)
    ]
    yield misprint(
        "proof of Lemma 12",
        "Algorithm 6 composes k algorithms that are eps-LDP",
        "that are (eps/k)-LDP",
        spent[0] > epsilon,
        spent[1] <= epsilon,
        f"At epsilon = {epsilon:g}, k = {k}: {k} tables of epsilon would spend {spent[0]:.4f}, of "
        f"epsilon / k they spend {spent[1]:.4f}.",
    )
    users = len(wisdm.V1.users)
    yield misprint(
        "sec. Experiments",
        "WISDM has 35 subjects",
        "36, of which one is the label that has no column of its own",
        users != 35,
        3 + (users - 1) + 5 == 43,
        f"The published file has {users} users, and 3 + {users - 1} + 5 = {3 + users - 1 + 5} "
        "dimensions, as the paper counts.",
    )


def misprints() -> FigureResult:
    """Return all misprints that were found."""
    return result(
        "misprints",
        "Misprints",
        "text and appendix",
        (),
        (
            *_three_outputs(),
            *_piecewise(),
            *_hybrid(),
            *_proof_of_lemma_13(),
            *_system(),
            *_rest(),
        ),
        (
            "a misprint is listed if the printed form is wrong, what is meant is clear from the "
            "rest of the paper, and that is right: both are computed",
            "derivatives printed for A, slope_1 and slope_2 are those with respect to e^eps",
        ),
    )
