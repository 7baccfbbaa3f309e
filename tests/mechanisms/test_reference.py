"""Numbers: the reference values, and parameters against independent optimisation."""

from math import exp, log, sqrt

import mpmath as mp
import numpy as np
import pytest
from laws import CLOSED, SPECIAL
from scipy.optimize import brentq, linprog, minimize_scalar

import fedldp
from fedldp.mechanisms import HM, HMTP, Duchi, PMOpt, ThreeOutputs, ThreeOutputsFlat

# Computed independently of this library: worst-case variances to the digits given.
PAPER = ("laplace", "duchi", "pm", "hm", "three-outputs", "pm-sub", "pm-opt", "hm-tp")
REFERENCE = """
0.5 32.0000 16.6708 21.2226 16.6708 16.6708 21.0762 21.0582 16.6708
1    8.0000  4.6827  5.2236  4.2890  4.4555  5.0823  5.0657  4.4176
2    2.0000  1.7241  1.2276  1.0423  0.9999  1.1045  1.0922  0.9843
3    0.8889  1.2206  0.4929  0.4322  0.4560  0.3939  0.3859  0.3554
4    0.5000  1.0760  0.2414  0.2190  0.3182  0.1665  0.1618  0.1548
5    0.3200  1.0273  0.1299  0.1215  0.2741  0.0761  0.0735  0.0726
8    0.1250  1.0013  0.0253  0.0249  0.2512  0.00876 0.00838 0.00869
"""
CROSSOVERS = {
    ("pm", "duchi"): 1.2898,
    ("laplace", "duchi"): 2.3242,
    ("pm-sub", "duchi"): 1.1930,
    ("three-outputs", "pm-sub"): 2.5611,
    ("three-outputs", "pm"): 3.2694,
}


@pytest.mark.parametrize("line", REFERENCE.split("\n")[1:-1])
def test_reference_values(line):
    epsilon, *values = line.split()
    for name, text in zip(PAPER, values, strict=True):
        decimals = len(text.split(".")[1])
        value = fedldp.mechanism(name, float(epsilon)).worst_case_variance
        assert f"{value:.{decimals}f}" == text, name


@pytest.mark.parametrize(("pair", "epsilon"), CROSSOVERS.items())
def test_crossovers(pair, epsilon):
    def difference(e):
        first, second = (fedldp.mechanism(name, e).worst_case_variance for name in pair)
        return first - second

    signs = np.sign([difference(e) for e in np.linspace(0.1, 20, 400)])
    assert np.count_nonzero(np.diff(signs)) == 1
    assert round(brentq(difference, 0.1, 20.0, xtol=1e-9), 4) == epsilon


def switch(of):
    """Return the epsilon from 0.3 to 1 above which something is so."""
    return round(brentq(lambda e: 1.0 if of(e) else -1.0, 0.3, 1.0, xtol=1e-9), 6)


def test_switches():
    assert switch(lambda e: HM(e).beta > 0) == pytest.approx(0.609352, abs=1.1e-6)
    assert switch(lambda e: HMTP(e).beta > 0) == 0.610986
    assert switch(lambda e: ThreeOutputsFlat(e).a > 0) == 0.647533
    assert ThreeOutputsFlat(0.6).shoulder == 1.0


def minimax(variance, low, high):
    """The parameter in [low, high] with the least maximum of variance(parameter, x) over x."""
    x = np.linspace(0, 1, 4001)
    best = minimize_scalar(
        lambda p: np.max(variance(p, x)), bounds=(low, high), options={"xatol": 1e-12}
    )
    return best.x, best.fun


def three_outputs_variance(epsilon, a, x):
    E = exp(epsilon)
    C = E * (E + 1) / ((E - 1) * (E - a))
    return C**2 * (1 - a + (a - a / E) * x) - x**2


def piecewise_variance(epsilon, t, x):
    E = exp(epsilon)
    at_zero = (t + E) * ((t + 1) ** 3 + E - 1) / (3 * t**2 * (E - 1) ** 2)
    return (t + 1) / (E - 1) * x**2 + at_zero


GRID = (0.1, 0.5, 0.62, 0.68, 0.7, 0.8, 1.0, 1.5, 1.7, 1.72, 2.0, 3.0, 5.0, 8.0)


@pytest.mark.parametrize("epsilon", GRID)
def test_parameters_are_minimax(epsilon):
    three = ThreeOutputs(epsilon)
    largest = exp(epsilon) / (exp(epsilon) + 2)  # beyond it P(C|1) > e^eps P(C|0)
    a, worst = minimax(lambda p, x: three_outputs_variance(epsilon, p, x), 0, largest)
    assert three.worst_case_variance == pytest.approx(worst, rel=1e-6)
    assert three.worst_case_variance <= worst * (1 + 1e-7)
    assert three.a == pytest.approx(a, abs=2e-3)

    opt = PMOpt(epsilon)
    t, worst = minimax(lambda p, x: piecewise_variance(epsilon, p, x), 0.5, exp(epsilon))
    assert opt.worst_case_variance == pytest.approx(worst, rel=1e-9)
    assert opt.t == pytest.approx(t, rel=1e-5)

    hybrid = HMTP(epsilon)

    def mixed(beta, x):
        part = piecewise_variance(epsilon, exp(epsilon / 3), x)
        return beta * part + (1 - beta) * three_outputs_variance(epsilon, three.a, x)

    beta, worst = minimax(mixed, 0, 1)
    assert hybrid.worst_case_variance == pytest.approx(worst, rel=1e-6)
    assert hybrid.worst_case_variance <= worst * (1 + 1e-7)
    assert hybrid.beta == pytest.approx(beta, abs=2e-3)


def three_output_program(epsilon, C, inputs=61):
    """The least worst-case variance with outputs -C, 0, C, by linear programming on a grid."""
    E, y = exp(epsilon), np.array([-C, 0.0, C])
    x = np.linspace(-1, 1, inputs)
    n = inputs * 3 + 4  # p(y | x) row by row, then the least probability of each y, then V
    equal, equal_to, upper, upper_to = [], [], [], []
    for i, value in enumerate(x):
        row = slice(3 * i, 3 * i + 3)
        for coefficients, target in ((np.ones(3), 1.0), (y, value)):
            line = np.zeros(n)
            line[row] = coefficients
            equal.append(line)
            equal_to.append(target)
        line = np.zeros(n)
        line[row], line[-1] = y**2, -1
        upper.append(line)
        upper_to.append(value**2)
        for j in range(3):
            for sign, factor in ((-1, 1.0), (1, E)):
                line = np.zeros(n)
                line[3 * i + j], line[3 * inputs + j] = sign, -sign * factor
                upper.append(line)
                upper_to.append(0.0)
    cost = np.zeros(n)
    cost[-1] = 1
    result = linprog(cost, upper, upper_to, equal, equal_to)
    return result.fun if result.status == 0 else np.inf


@pytest.mark.parametrize("epsilon", [1.0, 1.5, 2.0, 4.0])
def test_flat_top_is_the_best_with_three_outputs(epsilon):
    flat = ThreeOutputsFlat(epsilon)
    least = Duchi(epsilon).C  # no smaller C can be unbiased at 1
    best = minimize_scalar(
        lambda C: three_output_program(epsilon, C),
        bounds=(least, 1.6 * least),
        options={"xatol": 1e-4},
    )
    # On a grid of inputs the program may be a little below the true optimum, never above.
    assert best.fun <= flat.worst_case_variance * (1 + 1e-5)
    assert best.fun == pytest.approx(flat.worst_case_variance, rel=1e-3)


@pytest.mark.parametrize(("epsilon", "gain"), [(1.0, 5.6), (1.5, 8.5), (2.0, 5.7)])
def test_flat_top_gain(epsilon, gain):
    flat, paper = (
        ThreeOutputsFlat(epsilon),
        ThreeOutputs(epsilon),
    )
    assert 100 * (1 - flat.worst_case_variance / paper.worst_case_variance) == pytest.approx(
        gain, abs=0.05
    )


@pytest.mark.parametrize("epsilon", [e for e in SPECIAL if e > 1.72] + [2.5, 4.0, 9.0, 20.0])
def test_three_outputs_closed_form_above_the_cubic(epsilon):
    E = exp(epsilon)
    closed = (E + 2) * (E + 10) / (4 * (E - 1) ** 2)
    assert ThreeOutputs(epsilon).worst_case_variance == pytest.approx(closed, rel=1e-12)


# 50-digit arithmetic, in the paper's own (correct) forms.


def exact_a(E):
    if E <= 2:
        return mp.mpf(0)
    if (3 + mp.sqrt(65)) / 2 < E:
        return E / (E + 2)
    d0 = E**4 + 14 * E**3 + 50 * E**2 - 2 * E + 25
    d1 = -2 * E**6 - 42 * E**5 - 270 * E**4 - 404 * E**3 - 918 * E**2 + 30 * E - 250
    angle = mp.pi / 3 + mp.acos(-d1 / (2 * d0 ** mp.mpf("1.5"))) / 3
    return -(-(E**2) - 4 * E - 5 + 2 * mp.sqrt(d0) * mp.cos(angle)) / 6


def exact_t(E):
    """PM-OPT's t in radicals, Eq. (t-value)."""
    if E**2 == 2:
        return (mp.sqrt(3 + 2 * mp.sqrt(3)) - 1) / mp.sqrt(2)
    cube = -((2 ** mp.mpf("2") * (E**4 - E**2)) ** (mp.mpf(1) / 3))
    root = mp.sqrt(E**2 + cube)
    sign = 1 if E**2 < 2 else -1
    inner = 2 * E**2 - cube + sign * (4 * E - 2 * E**3) / root
    return sign * root / 2 + mp.sqrt(inner) / 2 - E / 2


def exact_beta(name, epsilon, E, a):
    if name == "hm":
        return 1 - mp.exp(-mp.mpf(epsilon) / 2) if epsilon > 0.609352493027 else mp.mpf(0)
    t = E ** (mp.mpf(1) / 3)
    bend = a**2 * E**2 * (E + 1) ** 4 / (4 * (E + t) ** 2 * (E - a) ** 4 * (E - 1))
    A = ((t + 1) ** 3 + E - 1) / (3 * t**2 * (E - 1) ** 2) - bend
    A -= (1 - a) * E**2 * (E + 1) ** 2 / ((E + t) * (E - 1) ** 2 * (E - a) ** 2)
    return mp.mpf(0) if A >= 0 else (E - 1 - mp.sqrt((1 + t) ** 2 * bend / -A)) / (E + t)


def exact_flat_a(E):
    D = (E + 1) / (E - 1)
    a = (mp.mpf(3) / 4 - 2 / (E + 1)) / (1 - 2 / (E * (E + 1)))
    if D * E / (E - a) > 2:
        half = E + E * D**2 * (E - 1) / 2
        a = half - mp.sqrt(half**2 - E**2)
    return a if (1 - a) * (D * E / (E - a)) ** 2 < D**2 else mp.mpf(0)


def exact_variance(name, epsilon, x):
    with mp.workdps(50):
        E, x = mp.exp(mp.mpf(epsilon)), mp.mpf(x)
        a = exact_a(E)

        def piecewise(t):
            at_zero = (t + E) * ((t + 1) ** 3 + E - 1) / (3 * t**2 * (E - 1) ** 2)
            return (t + 1) / (E - 1) * x**2 + at_zero

        def three(a):
            C = E * (E + 1) / ((E - 1) * (E - a))
            return C**2 * (1 - a + (a - a / E) * abs(x)) - x**2

        def flat(a):
            C = E * (E + 1) / ((E - 1) * (E - a))
            least = (E - a) / (E * (E + 1))
            return C**2 * (1 - min(a, 1 - 2 * least - abs(x) / C)) - x**2

        def mixed(t, a):
            beta = exact_beta(name, epsilon, E, a)
            return beta * piecewise(t) + (1 - beta) * three(a)

        third = E ** (mp.mpf(1) / 3)
        return {
            "laplace": lambda: 8 / mp.mpf(epsilon) ** 2,
            "duchi": lambda: three(mp.mpf(0)),
            "pm": lambda: piecewise(mp.sqrt(E)),
            "pm-sub": lambda: piecewise(third),
            "pm-opt": lambda: piecewise(exact_t(E)),
            "three-outputs": lambda: three(a),
            "hm": lambda: mixed(mp.sqrt(E), mp.mpf(0)),
            "hm-tp": lambda: mixed(third, a),
            "three-outputs-flat": lambda: flat(exact_flat_a(E)),
        }[name]()


@pytest.mark.parametrize("name", CLOSED)
def test_no_digits_are_lost(name):
    for epsilon in (*SPECIAL, 0.01, 0.1, 1.0, 3.0, 6.0, 10.0, 15.0):
        m = fedldp.mechanism(name, epsilon)
        for x in (0.0, 0.25, 0.999999, 1.0):
            exact = float(exact_variance(name, epsilon, x))
            assert m.variance(x) == pytest.approx(exact, rel=2e-14), (epsilon, x)


def test_parameters_in_fifty_digits():
    with mp.workdps(50):
        for epsilon in (*SPECIAL, 0.01, 0.3466, 0.5, 0.75, 1.0, 1.5, 3.0, 8.0, 15.0):
            E = mp.exp(mp.mpf(epsilon))
            t = PMOpt(epsilon).t
            assert t == pytest.approx(float(exact_t(E)), rel=1e-14), epsilon
            quartic = t**4 + 2 * E * t**3 - 2 * E * t - E**2
            assert abs(quartic) < mp.mpf("1e-13") * E**2
            a = ThreeOutputs(epsilon).a
            assert a == pytest.approx(float(exact_a(E)), rel=1e-13, abs=1e-15), epsilon


def test_why_newton_and_not_the_radicals():
    """In doubles the paper's form of t is off by more than 1e-6 next to ln sqrt 2."""
    worst = 0.0
    for offset in np.logspace(-6, -3, 40):
        epsilon = log(2) / 2 + offset
        E = exp(epsilon)
        cube = -((4 * (E**4 - E**2)) ** (1 / 3))
        root = sqrt(E**2 + cube)
        inner = 2 * E**2 - cube - (4 * E - 2 * E**3) / root
        radicals = -root / 2 + sqrt(inner) / 2 - E / 2
        worst = max(worst, abs(radicals / PMOpt(epsilon).t - 1))
    assert worst > 1e-6
