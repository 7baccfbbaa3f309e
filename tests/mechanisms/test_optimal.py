"""Mechanisms found by linear programming: how good they are, and that nothing can be better."""

import random
from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from math import exp

import numpy as np
import pytest
from scipy.optimize import linprog

import fedldp
from fedldp.errors import DomainError
from fedldp.mechanisms import HMTP, Dominant, Duchi, NearZero, Optimal, ThreeOutputsFlat
from fedldp.mechanisms.optimal import program
from fedldp.mechanisms.optimal.certificate import Certificate, certificate
from fedldp.mechanisms.optimal.program import VarianceLimits, best_rows, solve

# The least worst-case variance of any mechanism, and how far evenly spaced outputs are above it;
# computed independently of this library.
OPTIMUM = {
    0.5: 16.0028,
    1.0: 3.9907,
    1.5: 1.6915,
    2.0: 0.8655,
    3.0: 0.3041,
    4.0: 0.1271,
    5.0: 0.05739,
    8.0: 0.00650,
}
ABOVE = {  # in percent, for 15, 31 and 63 outputs
    0.5: (0.3, 0.1, 0.0),
    1.0: (0.3, 0.1, 0.0),
    1.5: (0.2, 0.1, 0.0),
    2.0: (0.5, 0.1, 0.0),
    3.0: (1.3, 0.3, 0.1),
    4.0: (3.1, 0.6, 0.1),
    5.0: (4.7, 1.2, 0.3),
}
X = np.linspace(-1, 1, 4001)


@pytest.mark.parametrize("epsilon", ABOVE)
def test_distance_from_the_optimum(epsilon):
    """As tabulated, up to the rounding of x, which the table leaves out."""
    for outputs, percent in zip((15, 31, 63), ABOVE[epsilon], strict=True):
        variance = Optimal(epsilon, outputs=outputs).worst_case_variance
        assert 100 * (variance / OPTIMUM[epsilon] - 1) < percent + 0.2, outputs


@pytest.mark.parametrize(
    ("epsilon", "outputs", "percent"),
    [
        *((epsilon, 31, 0.5) for epsilon in (0.1, 0.7, 3.0)),
        *((epsilon, 63, 1.0) for epsilon in (1.3, 5.0)),
        (8.0, 127, 1.0),
    ],
)
def test_close_to_the_proven_bound(epsilon, outputs, percent):
    best = Optimal(epsilon, outputs=outputs)
    above = 100 * (best.worst_case_variance / best.lower_bound - 1)
    assert 0 < above < percent


@pytest.mark.parametrize("epsilon", OPTIMUM)
def test_certificate(epsilon):
    proof = certificate(epsilon)
    assert proof.invalid() is None
    assert proof.lower_bound == pytest.approx(OPTIMUM[epsilon], rel=0.0025)
    assert proof.lower_bound < OPTIMUM[epsilon] * 1.001
    assert Fraction(proof.lower_bound) <= proof.value - proof.pitch**2 / 4


def test_certificate_that_claims_too_much_is_found_out():
    proof = certificate(1.0)
    (alpha, lam, mu, x), *others = proof.terms
    for forged in (
        [(alpha, lam, mu + Fraction(1, 10), x), *others],
        [(alpha + Fraction(1, 10**6), lam, mu, x), *others],
        [(alpha, lam, mu, x + 2), *others],
        [*proof.terms, (Fraction(0), Fraction(3), Fraction(0), Fraction(1))],
    ):
        assert replace(proof, terms=tuple(forged)).invalid() is not None


def summed(proof, y):
    """Return h at a point, from its definition."""
    growth = proof.growth
    terms = [alpha * y**2 - lam * y - mu for alpha, lam, mu, _ in proof.terms]
    return sum(each if each >= 0 else growth * each for each in terms)


@pytest.mark.parametrize("seed", range(12))
def test_what_a_certificate_says_about_the_points_beyond_its_grid(seed):
    """Against h itself, far outwards, also for terms whose summit lies there."""
    rng = random.Random(seed)

    def number(low=-30):
        return Fraction(rng.randint(low, 30), 10)

    linear = [(Fraction(0), number(), number(), Fraction(0)) for _ in range(rng.randint(0, 2))]
    proof = Certificate(
        1.0, Fraction(1, 4), ((Fraction(1), number(), number(), Fraction(0)), *linear)
    )
    for side in (-1, 1):
        edge = side * proof._far * proof.pitch
        least = proof._lowest_beyond(edge)
        beyond = [summed(proof, edge + side * Fraction(k, 8)) for k in range(400)]
        assert least <= min(beyond)
        assert min(beyond) - least <= Fraction(1, 16**2)  # a step of 1/8 misses at most this much
        assert beyond[-1] > min(beyond)  # it rises again: nothing lower lies further out


def test_a_proof_that_fails_only_beyond_its_grid_is_invalid():
    """y^2 + phi(4 y + 8) is positive as far as points are compared, and negative at -5."""
    proof = Certificate(
        1.0, Fraction(1, 4), tuple(tuple(map(Fraction, t)) for t in ((1, 0, 0, 0), (0, -4, -8, 0)))
    )
    assert proof.lowest()[0] > 0
    assert summed(proof, Fraction(-5)) < 0
    assert proof.invalid() == "h may be negative beyond -2.25"


def test_outputs_that_a_certificate_lacks_are_added(monkeypatch, tmp_path):
    """Whatever outputs it starts with, it ends with those that matter."""
    found = certificate(1.0)
    monkeypatch.setenv("FEDLDP_CACHE", str(tmp_path))
    module = import_module("fedldp.mechanisms.optimal.certificate")
    steps = module._steps
    monkeypatch.setattr(module, "_steps", lambda dense: steps(dense // 2))
    again = certificate.__wrapped__(1.0)
    assert again.invalid() is None
    assert again.lower_bound == pytest.approx(found.lower_bound, rel=1e-6)


def test_certificates_end_somewhere():
    with pytest.raises(DomainError, match="the epsilon of a certificate must be at most 9; got 12"):
        certificate(12.0)
    assert replace(certificate(1.0), pitch=Fraction(0)).invalid() is not None


@pytest.mark.parametrize("name", [n for n in fedldp.mechanism_names() if n != "laplace"])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_no_mechanism_is_below_the_bound(name, epsilon):
    m = fedldp.mechanism(name, epsilon)
    assert m.worst_case_variance > certificate(epsilon).lower_bound


@pytest.mark.parametrize(("epsilon", "outputs"), [(1.0, 15), (3.0, 21)])
def test_program_against_a_plain_one(epsilon, outputs):
    """A program in all the probabilities p(y | x) has the same optimum as the one in q alone."""
    E, y, x = exp(epsilon), 2.5 * np.linspace(-1, 1, outputs), np.linspace(-1, 1, 17)
    n = len(x) * outputs
    equal, target = np.zeros((2 * len(x), n + outputs + 1)), np.zeros(2 * len(x))
    upper, limit = [], []
    for i, value in enumerate(x):
        row = slice(i * outputs, (i + 1) * outputs)
        equal[2 * i, row], target[2 * i] = 1, 1
        equal[2 * i + 1, row], target[2 * i + 1] = y, value
        line = np.zeros(n + outputs + 1)
        line[row], line[-1] = (y - value) ** 2, -1
        upper.append(line)
        limit.append(0.0)
        for j in range(outputs):
            for sign, factor in ((-1, 1.0), (1, E)):
                line = np.zeros(n + outputs + 1)
                line[i * outputs + j], line[n + j] = sign, -sign * factor
                upper.append(line)
                limit.append(0.0)
    plain = linprog(np.eye(n + outputs + 1)[-1], upper, limit, equal, target)
    ours = solve(y, epsilon, x[x >= 0], VarianceLimits(np.ones(9)))
    assert ours.factor == pytest.approx(plain.fun, rel=1e-6)
    rows = best_rows(y, ours.base, epsilon, x)
    np.testing.assert_allclose(rows.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(rows @ y, x, atol=1e-6)


@pytest.mark.parametrize(
    ("epsilon", "factor", "gain"),
    [
        (1.0, 0.934, 10),
        (1.5, 0.978, None),
        (1.7, 0.993, 3),
        (2.0, 0.963, 6),
        (4.0, 0.890, 16),
        (5.0, 0.868, 19),
    ],
)
def test_dominant_is_better_than_hm_tp_at_every_input(epsilon, factor, gain):
    ours, paper = Dominant(epsilon), HMTP(epsilon)
    assert ours.factor == pytest.approx(factor, abs=0.004)
    ratio = ours.variance(X) / paper.variance(X)
    assert ratio.max() <= (1 + ours.factor) / 2 + 1e-6
    if gain is not None:
        mean = 100 * (1 - ours.variance(X).mean() / paper.variance(X).mean())
        assert round(mean) == gain


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 0.6])
def test_where_hm_tp_is_duchi_so_are_they(epsilon):
    for kind in (Dominant, NearZero):
        assert kind(epsilon).channel() == Duchi(epsilon).channel()
    assert Dominant(epsilon).factor == 1.0


@pytest.mark.parametrize(("epsilon", "at_zero"), [(1.0, 3.650), (2.0, 0.485), (4.0, 0.0520)])
def test_near_zero(epsilon, at_zero):
    ours, paper = NearZero(epsilon), HMTP(epsilon)
    assert np.max(ours.variance(X) / paper.variance(X)) <= 1 + 1e-6
    assert ours.variance(0.0) == pytest.approx(at_zero, rel=0.015)
    gauss = np.exp(-0.5 * (X / 0.15) ** 2)
    for other in (Dominant(epsilon), Optimal(epsilon), paper):
        assert gauss @ ours.variance(X) < gauss @ other.variance(X)


def test_near_zero_has_the_least_mean_under_its_gaussian():
    def gauss(x):
        return np.exp(-0.5 * (x / 0.15) ** 2)

    ours, best = (
        NearZero(4.0),
        Optimal(4.0, weights=gauss, cap="hm-tp"),
    )
    assert gauss(X) @ ours.variance(X) == pytest.approx(gauss(X) @ best.variance(X), rel=1e-4)


def test_weights_and_cap():
    def near_one(x):
        return np.abs(x) ** 8

    weighted = Optimal(2.0, weights=near_one)
    capped = Optimal(2.0, weights=near_one, cap=1.2)
    plain = Optimal(2.0)
    means = [near_one(X) @ m.variance(X) for m in (weighted, capped, plain)]
    assert means == sorted(means)
    assert capped.worst_case_variance <= 1.2 * (1 + 1e-6)
    assert weighted.worst_case_variance > 1.2
    under = Optimal(2.0, cap="hm-tp")
    assert np.all(under.variance(X) <= HMTP(2.0).variance(X) * (1 + 1e-6))
    with pytest.raises(DomainError, match=r"was found that stays below the cap 0\.5; allow more"):
        Optimal(2.0, cap=0.5).channel()


@pytest.mark.parametrize(
    ("epsilon", "cap"),
    [
        *((0.5, cap) for cap in ("duchi", "dominant")),
        *((1.0, cap) for cap in ("laplace", "optimal", "three-outputs")),
        *((4.0, cap) for cap in ("dominant", "optimal")),
    ],
)
def test_any_mechanism_can_be_the_cap(epsilon, cap):
    ours, limit = Optimal(epsilon, cap=cap), fedldp.mechanism(cap, epsilon)
    assert np.all(ours.variance(X) <= limit.variance(X) * (1 + 1e-6))
    assert ours.variance(X).mean() <= limit.variance(X).mean() * (1 + 1e-6)


def test_too_few_outputs_say_so():
    for kind in (Dominant, NearZero):
        few, many = kind(8.0, outputs=15), kind(8.0)
        assert many.factor <= 1 < few.factor
        ratio = few.variance(X) / HMTP(8.0).variance(X)
        assert ratio.max() == pytest.approx(few.factor, rel=1e-3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"weights": lambda x: -abs(x)}, "must be finite and not negative"),
        ({"weights": lambda x: 0 * x}, "somewhere positive"),
        ({"cap": -1.0}, "cap must be a mechanism's name, or positive"),
        ({"cap": float("nan")}, "cap must be a mechanism's name, or positive"),
        ({"cap": float("inf")}, "cap must be a mechanism's name, or positive"),
        ({"cap": True}, "cap must be a mechanism's name, or positive"),
        ({"cap": "gauss"}, "there is no mechanism 'gauss'"),
        ({"weights": "gauss"}, "weights must be a function from arrays to arrays"),
        ({"weights": lambda _: None}, "weights must be finite"),
        ({"weights": lambda _: [1.0, 2.0]}, "weights must be a function from arrays to arrays"),
    ],
)
def test_refuses_weights_and_caps_that_make_no_sense(options, said):
    with pytest.raises(DomainError, match=said):
        Optimal(1.0, **options).channel()


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 5.0])
def test_best_for_a_number_of_bits(epsilon):
    channels = [fedldp.best_channel(epsilon, bits) for bits in range(1, 6)]
    assert all(channel.bits <= bits for bits, channel in enumerate(channels, 1))
    variances = [c.worst_case_variance for c in channels]
    assert variances == sorted(variances, reverse=True)
    assert channels[0] == Duchi(epsilon).channel()
    if epsilon > 0.55:
        assert variances[1] < ThreeOutputsFlat(epsilon).worst_case_variance


def test_four_outputs_are_where_a_scan_finds_them():
    right = np.linspace(0, 1, 17)
    least = np.inf
    for inner in np.linspace(0.02, 1.5, 10):
        for outer in np.linspace(1.3, 3.5, 10):
            y = np.array([-outer, -inner, inner, outer])
            found = solve(y, 2.0, right, VarianceLimits(np.ones(17)))
            least = least if found is None else min(least, found.factor)
    assert fedldp.best_channel(2.0, 2).worst_case_variance < least * 1.003


@pytest.mark.parametrize("outputs", [2, 512, 31.0, "31", None])
def test_refuses_a_wrong_number_of_outputs(outputs):
    for kind in (Optimal, Dominant, NearZero):
        with pytest.raises(DomainError, match="outputs must be"):
            kind(1.0, outputs=outputs)


@pytest.mark.parametrize("bits", [0, 9, 2.0, "3"])
def test_refuses_a_wrong_number_of_bits(bits):
    with pytest.raises(DomainError, match="bits must be"):
        fedldp.best_channel(1.0, bits)


def test_refuses_a_large_epsilon():
    with pytest.raises(DomainError, match=r"from 0\.001 to 16"):
        fedldp.mechanism("optimal", 17.0)


@pytest.mark.slow
@pytest.mark.parametrize("outputs", [3, 15, 31, 127])
@pytest.mark.parametrize("epsilon", np.linspace(0.01, 12, 40).round(3))
def test_enumerated_at_forty_epsilons(epsilon, outputs):
    if outputs == 127 and epsilon > 6:
        epsilon = 6 + (epsilon - 6) % 1  # a minute each would be too long
    test_exactly_private_and_close_to_nominal(epsilon, outputs)


@pytest.mark.parametrize("outputs", [3, 15, 31])
@pytest.mark.parametrize("epsilon", [0.01, 0.61, 0.7, 1.3, 3.1, 6.0, 12.0])
def test_exactly_private_and_close_to_nominal(epsilon, outputs):
    for kind in (Optimal, Dominant, NearZero):
        counts = kind(epsilon, outputs=outputs).channel().counts.astype(object)
        largest = max(Fraction(max(c), min(c)) for c in counts.T if max(c))
        assert epsilon - 1e-6 < float(np.log(float(largest))) < epsilon + 1e-12


def test_outputs_can_be_asked_for_later():
    assert (
        fedldp.mechanism("optimal", 1.0).channel(outputs=15) == Optimal(1.0, outputs=15).channel()
    )


def test_a_window_ends_at_an_output_even_if_its_end_is_rounded_up():
    rng = np.random.default_rng(1)
    for _ in range(400):
        outputs = np.sort(rng.uniform(-3, 3, rng.integers(2, 8)))
        epsilon, base = rng.uniform(0.2, 4), rng.uniform(0.01, 1, len(outputs))
        base *= rng.uniform(exp(-epsilon), 1) / base.sum()
        inputs = np.array([0.9, 1.0])[:, None] * outputs[[0, -1]]
        _, windows = program._variances(outputs, base, epsilon, inputs.ravel())
        assert all(0 <= first <= last < len(outputs) for first, last in windows)
