"""What every registered mechanism must do. A new mechanism is tested by registering it."""

import dataclasses
import pickle
from itertools import pairwise, product
from math import exp

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import INPUTS, NAMES, Scripted, continuous_part, epsilons, integrate
from scipy import stats
from scipy.optimize import minimize_scalar

import fedldp
from fedldp.errors import DomainError, UnknownName
from fedldp.mechanisms import HMTP, Finite, Laplace, Mechanism, Optimal, PMSub

GOLDEN_OUTPUTS = {
    "laplace": [
        -0.32387464694889,
        -1.04840456796109,
        -1.41709110501311,
        -0.680391493889611,
        0.902840329284228,
    ],
    "duchi": [
        -1.57443383357774,
        1.57443383357774,
        1.57443383357774,
        1.57443383357774,
        1.57443383357774,
    ],
    "pm": [
        -0.767247322678028,
        -0.711876793206501,
        -0.439861843420521,
        0.74645762703674,
        2.22550710072982,
    ],
    "hm": [
        -1.57443383357774,
        -0.0386853246899084,
        -0.0321686614966638,
        1.19816727188327,
        -0.405631614363494,
    ],
    "three-outputs": [-1.82089751760061, 0.0, 1.82089751760061, 1.82089751760061, 1.82089751760061],
    "pm-sub": [
        -0.786823679384456,
        -0.762827405336331,
        -0.563264247610485,
        0.547678892659463,
        2.05097122889204,
    ],
}

every_mechanism = pytest.mark.parametrize("name", NAMES)
few_examples = settings(max_examples=40)


def drawn(name: str, data: st.DataObject) -> Mechanism:
    return fedldp.mechanism(name, data.draw(epsilons(name)))


def scale(m: Mechanism) -> float:
    return m.scale if isinstance(m, Laplace) else m.bound


@every_mechanism
@given(data=st.data(), x=INPUTS)
@settings(max_examples=150)
def test_law_is_a_distribution_unbiased_and_has_the_stated_variance(name, data, x):
    m = drawn(name, data)
    assert np.all(m.probabilities(x) >= 0)
    assert integrate(m, x, np.ones_like) == pytest.approx(1.0, abs=1e-12)
    assert abs(integrate(m, x, lambda y: y) - x) <= 1e-12 * scale(m)
    assert integrate(m, x, lambda y: (y - x) ** 2) == pytest.approx(m.variance(x), rel=1e-10)


@every_mechanism
@given(data=st.data(), x=INPUTS, z=INPUTS)
def test_no_output_is_more_than_e_to_the_epsilon_times_as_likely(name, data, x, z):
    m = drawn(name, data)
    limit = exp(m.epsilon) * (1 + 1e-12)
    assert np.all(m.probabilities(x) <= limit * m.probabilities(z))
    largest = 10 * m.scale if isinstance(m, Laplace) else m.bound
    y = np.linspace(-largest, largest, 201)
    assert np.all(m.density(y, x) <= limit * m.density(y, z))


@every_mechanism
@given(data=st.data())
@few_examples
def test_budget_is_used_up(name, data):
    m = drawn(name, data)
    p, q = m.probabilities([1.0, -1.0])
    ratios = list(p[q > 0] / q[q > 0])
    y = (1 - 1e-9) * (continuous_part(m) or m).bound if np.isfinite(m.bound) else 10.0
    if m.density(y, 1.0) > 0:
        ratios.append(m.density(y, 1.0) / m.density(y, -1.0))
    assert max(ratios) == pytest.approx(exp(m.epsilon), rel=1e-9)


@every_mechanism
@given(data=st.data())
@few_examples
def test_the_bound_is_an_output_and_no_output_is_beyond_it(name, data):
    m = drawn(name, data)
    if np.isfinite(m.bound):
        assert m.probabilities(1.0)[m.values == m.bound].sum() + m.density(m.bound, 1.0) > 0
        assert m.density(m.bound * (1 + 1e-12), 1.0) == 0
        assert np.all(np.abs(m.values) <= m.bound)


@every_mechanism
@given(data=st.data())
@few_examples
def test_worst_case_variance_is_the_maximum_over_x(name, data):
    m = drawn(name, data)
    x = np.linspace(0, 1, 1001)  # the law is symmetric
    found = m.variance(x)
    numeric = found.max()
    # Of several peaks that are almost as high, the highest one may lie between two of these x.
    sides = np.pad(found, 1, constant_values=-np.inf)
    peaks = np.flatnonzero((found >= sides[:-2]) & (found >= sides[2:]))
    for top in x[peaks[np.argsort(found[peaks])[-3:]]]:
        peak = minimize_scalar(
            lambda z: -m.variance(z),
            bounds=(max(top - 2e-3, -1.0), min(top + 2e-3, 1.0)),
            method="bounded",
            options={"xatol": 1e-9},
        )
        numeric = max(numeric, -peak.fun)
    assert m.worst_case_variance == pytest.approx(numeric, rel=1e-9)


@every_mechanism
@given(data=st.data(), x=INPUTS)
@few_examples
def test_law_is_symmetric(name, data, x):
    m = drawn(name, data)
    assert m.variance(-x) == pytest.approx(m.variance(x), rel=1e-13)
    np.testing.assert_allclose(m.probabilities(-x), m.probabilities(x)[::-1], rtol=1e-13)
    y = np.linspace(-3, 3, 50)
    np.testing.assert_allclose(m.density(-y, -x), m.density(y, x), rtol=1e-13)


@every_mechanism
@pytest.mark.parametrize(
    ("epsilon", "x"), [(0.3, 0.55), (0.65, -1.0), (1.0, -0.2), (2.5, 0.0), (6.0, 0.55)]
)
def test_samples_follow_the_law(name, epsilon, x):
    """Chi-square of 200,000 draws, fixed seeds; each case alarms by chance once in a million."""
    m = fedldp.mechanism(name, epsilon)
    n = 200_000
    y = m.perturb(np.full(n, x), fedldp.source(20))
    assert np.abs(y).max() <= m.bound
    expected, observed = list(n * m.probabilities(x)), [np.sum(y == v) for v in m.values]
    rest = y[~np.isin(y, m.values)]
    piecewise = continuous_part(m)
    if isinstance(m, Laplace):
        edges = stats.laplace(x, m.scale).ppf(np.linspace(0, 1, 41))
        expected += [n / 40] * 40
        observed += list(np.histogram(rest, edges)[0])
    elif piecewise is not None:
        turns = [-piecewise.bound, *piecewise.window(x), piecewise.bound]
        for low, high in pairwise(turns):
            edges = np.linspace(low, high, 9)
            expected += [n * m.density((low + high) / 2, x) * (high - low) / 8] * 8
            observed += list(np.histogram(rest, edges)[0])
    expected, observed = np.array(expected), np.array(observed)
    assert np.all(observed[expected == 0] == 0)
    seen = expected > 5
    statistic = np.sum((observed - expected)[seen] ** 2 / expected[seen])
    assert stats.chi2.sf(statistic, seen.sum() - 1) > 1e-6


@every_mechanism
def test_sampled_moments(name):
    """Mean and variance over uniform x: each of the 54 checks alarms by chance once in 10^6."""
    x = fedldp.source(3).uniform(300_000) * 2 - 1
    for epsilon in (0.5, 1.0, 4.0):
        m = fedldp.mechanism(name, epsilon)
        noise = m.perturb(x, fedldp.source(21)) - x
        square = noise**2 - m.variance(x)
        for values in (noise, square):
            assert abs(values.mean()) < 4.9 * values.std() / np.sqrt(values.size)


@every_mechanism
def test_perturb_accepts_every_shape_and_keeps_it(name):
    m = fedldp.mechanism(name, 1.0)
    draw = m.perturb(0.5, fedldp.source(1))
    assert isinstance(draw, float)
    assert m.perturb([0.1, -0.2], fedldp.source(1)).shape == (2,)
    assert m.perturb(np.zeros((3, 0)), fedldp.source(1)).shape == (3, 0)
    grid = np.linspace(-1, 1, 24).reshape(2, 3, 4)
    result = m.perturb(grid, fedldp.source(1))
    assert result.shape == grid.shape
    assert result.dtype == np.float64
    # Layout and precision of the input do not change what is drawn, and it is always float64.
    np.testing.assert_array_equal(
        m.perturb(np.asfortranarray(grid), fedldp.source(1)), result, strict=True
    )
    large = (grid * 64).round() / 64
    for dtype in (np.float16, np.float32):
        np.testing.assert_array_equal(
            m.perturb(large.astype(dtype), fedldp.source(1)),
            m.perturb(large, fedldp.source(1)),
            strict=True,
        )


@every_mechanism
def test_same_source_same_noise_however_long_the_array(name):
    m = fedldp.mechanism(name, 1.3)
    x = fedldp.source(4).uniform(150_001) * 2 - 1
    whole = m.perturb(x, fedldp.source(5))
    stream = fedldp.source(5)
    pieces = [m.perturb(part, stream) for part in np.split(x, [1, 1000, 66_000])]
    np.testing.assert_array_equal(np.concatenate(pieces), whole)
    before = x.copy()
    m.perturb(x, fedldp.source(5))
    np.testing.assert_array_equal(x, before)


@every_mechanism
def test_checks_epsilon_and_x_everywhere(name):
    """Here that each mechanism checks at all; below what is refused, which one function decides."""
    for epsilon in (0.0009, 20.001):
        with pytest.raises(DomainError, match=r"epsilon must be a number from 0\.001 to 20"):
            fedldp.mechanism(name, epsilon)
    m = fedldp.mechanism(name, 1.0)
    for x in (np.nextafter(1.0, 2.0), np.nextafter(-1.0, -2.0), [0.0, float("nan")]):
        for call in methods_of_x(m, x):
            with pytest.raises(DomainError, match="x must lie in"):
                call()


def methods_of_x(m, x):
    return (
        lambda: m.perturb(x, fedldp.source(1)),
        lambda: m.variance(x),
        lambda: m.probabilities(x),
        lambda: m.density(0.0, x),
    )


@pytest.mark.parametrize(
    "epsilon",
    [0, -1, 0.0009, 20.001, float("nan"), float("inf"), "1", None, True, 1 + 0j, [1.0]],
)
def test_refuses_a_bad_epsilon(epsilon):
    with pytest.raises(DomainError, match=r"epsilon must be a number from 0\.001 to 20"):
        HMTP(epsilon)


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (1 + 1e-12, "got 1.000000000001"),
        (np.nextafter(1.0, 2.0), "got 1.0000000000000002"),
        (np.nextafter(np.float32(-1), np.float32(-2)), "got -1.0000001"),
        (np.ma.array([0.5, 0.9], mask=[0, 1]), "MaskedArray"),
        (np.longdouble(0.5), "longdouble"),
        (-2, "got -2.0"),
        ([0.0, float("nan")], r"got nan at index \(1,\)"),
        (np.full((2, 2), np.inf), r"got inf at index \(0, 0\)"),
        (np.r_[np.zeros(100_000), 1.5], r"got 1.5 at index \(100000,\)"),
        ("0.5", "str '0.5'"),
        (None, "NoneType"),
        ([1j], "list"),
        ([True, False], "list"),
        ([[0.1], [0.2, 0.3]], "list"),
    ],
)
def test_refuses_a_bad_x(x, said):
    for call in methods_of_x(HMTP(1.0), x):
        with pytest.raises(DomainError, match=said):
            call()


@every_mechanism
def test_is_a_frozen_value(name):
    m = fedldp.mechanism(name, 1)
    assert m == fedldp.mechanism(name, 1.0)
    assert hash(m) == hash(fedldp.mechanism(name, 1.0))
    assert pickle.loads(pickle.dumps(m)) == m
    assert m.epsilon == 1.0
    assert isinstance(m.epsilon, float)
    with pytest.raises(dataclasses.FrozenInstanceError):
        m.epsilon = 2.0


@every_mechanism
@given(data=st.data())
@few_examples
def test_finite_tables_have_a_row_for_each_letter(name, data):
    m = drawn(name, data)
    if isinstance(m, Finite):
        assert m.letters[0] == -1
        assert m.letters[-1] == 1
        assert np.all(np.diff(m.letters) > 0)
        np.testing.assert_array_equal(m.probabilities(m.letters), m.table)
        for array in (m.letters, m.table, m.values):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0.0


@every_mechanism
def test_refuses_an_invalid_source(name):
    for wrong in (None, 7, np.random.RandomState(1)):
        with pytest.raises(DomainError, match=r"pass fedldp.source\(\)"):
            fedldp.mechanism(name, 1.0).perturb([], wrong)


@every_mechanism
def test_draws_from_a_generator_of_numpy_for_study(name):
    m = fedldp.mechanism(name, 1.0)
    x = np.linspace(-1.0, 1.0, 50)
    first, again = (m.perturb(x, np.random.default_rng(1)) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, m.perturb(x, np.random.default_rng(2)))


@every_mechanism
@pytest.mark.parametrize("word", [0, 2**64 - 1, 2**63, 2**63 - 1])
def test_extreme_words_give_possible_outputs(name, word):
    """Words that are hardly ever drawn: still inside the bound, and never an impossible output."""
    for epsilon in (0.01, 0.5, 3.0, 9.0):
        m = fedldp.mechanism(name, epsilon)
        for x in (-1.0, 0.0, 0.3, 1.0):
            y = m.perturb(x, Scripted([word]))
            assert np.isfinite(y)
            assert abs(y) <= m.bound
            point = np.flatnonzero(m.values == y)
            assert m.probabilities(x)[point].sum() + m.density(y, x) > 0


def test_laplace_is_the_quantile_function():
    m = Laplace(1.3)
    words = (np.arange(2000) * 2**53 + 2**52).astype(np.uint64)
    y = m.perturb(np.full(words.size, 0.2), Scripted(words.tolist()))
    u = (words >> np.uint64(12)) / 2**52 + 2.0**-53
    np.testing.assert_allclose(np.sort(y), stats.laplace(0.2, m.scale).ppf(u), atol=1e-12)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda m: m.density(float("nan"), 0.1), "y must not contain NaN"),
        (lambda m: m.density([0.0, 0.1], [0.1, 0.2, 0.3]), "matching shapes"),
        (lambda m: m.window(5.0), "x must lie in"),
    ],
)
def test_law_refuses_nonsense(call, said):
    with pytest.raises(DomainError, match=said):
        call(PMSub(1.0))


def test_density_includes_the_ends_of_the_window():
    for name, epsilon in product(("pm", "pm-sub", "pm-opt"), np.geomspace(0.001, 20, 40)):
        m = fedldp.mechanism(name, epsilon)
        assert m.density(m.A, 1.0) == m.density(-m.A, -1.0) == m.heights[0]


def test_golden_outputs():
    """The same for ever: a study gives the same numbers on every machine and with every version."""
    x = [-1.0, -0.3, 0.0, 0.6, 1.0]
    for name, outputs in GOLDEN_OUTPUTS.items():
        drawn = fedldp.mechanism(name, 1.5).perturb(x, fedldp.source(12))
        np.testing.assert_allclose(drawn, outputs, rtol=1e-12, err_msg=name)


def test_registry():
    paper = ["laplace", "duchi", "pm", "hm", "three-outputs", "pm-sub", "pm-opt", "hm-tp"]
    assert list(NAMES[:8]) == paper
    assert all(fedldp.mechanism(name, 1.0).name == name for name in NAMES)
    for wrong in ("gauss", None, ["pm"]):
        with pytest.raises(UnknownName, match=r"there is no mechanism .*; choose from laplace"):
            fedldp.mechanism(wrong, 1.0)


def test_a_mechanism_is_made_from_its_name_its_class_or_another_one():
    for name in NAMES:
        made = fedldp.mechanism(name, 1.0)
        assert fedldp.mechanism(type(made), 1.0) == made
        assert fedldp.mechanism(fedldp.mechanism(name, 2.0), 1.0) == made
    capped = Optimal(2.0, outputs=7, cap="hm-tp")
    assert fedldp.mechanism(capped, 1.0) == Optimal(1.0, outputs=7, cap="hm-tp")
