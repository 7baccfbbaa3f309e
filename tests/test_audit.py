"""The audit catches what leaks (leaky.py) and passes what does not.

Attacks on sound mechanisms run at a confidence of 0.9999, with fixed seeds: each raises a false
alarm at one seed in 10,000 or fewer. That a bound also exceeds some share of the true epsilon
holds by a margin of several standard deviations.
"""

import json
from decimal import localcontext
from fractions import Fraction
from math import exp, inf, log

import leaky
import mpmath
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import fedldp
from fedldp import audit, vehicle
from fedldp.cli.app import fedldp as command
from fedldp.coders.channel import Channel
from fedldp.errors import DomainError, PrivacyError
from fedldp.mechanisms import HMTP, PM, Duchi, Laplace

EVERY_MECHANISM = pytest.mark.parametrize("name", fedldp.mechanism_names())
EVERY_CHANNEL = pytest.mark.parametrize(
    "name", [n for n in fedldp.mechanism_names() if n != "laplace"]
)
PAIRS = ((-1.0, 1.0), (0.0, 1.0), (0.1, 0.2))
CONFIDENCE = 0.9999


def channel_of(name, epsilon):
    return fedldp.mechanism(name, epsilon).channel()


# Exact: positive controls


@EVERY_CHANNEL
def test_one_count_raised_by_one_is_caught(name):
    channel = channel_of(name, 1.0)
    counts, column = leaky.raised_by_one(channel)
    assert np.all(counts.sum(axis=1) == channel.total)
    low, _ = audit.true_epsilon(counts.tolist())
    assert low > vehicle.exact(1.0)
    with pytest.raises(PrivacyError, match=f"column {column} "):
        Channel(1.0, counts, channel.letters, channel.values)


def test_a_zero_beside_a_count_is_infinite():
    assert audit.true_epsilon([[1, 3], [0, 4]]) == (inf, inf)
    low, _ = audit.true_epsilon([[0, 3, 1], [0, 1, 3]])  # an impossible output is not a leak
    assert float(low) == pytest.approx(log(3))


def test_duchi_with_ties_in_both_halves_in_integers():
    """With e^eps = 3 its probabilities are twelfths, and the true epsilon is ln(1 + 3)."""
    corners = np.array([[-1, -1], [-1, 1], [1, -1], [1, 1]])
    agreement = corners @ corners.T
    low, high = audit.true_epsilon(3 * (agreement >= 0) + (agreement <= 0))
    assert float(low) == float(high) == log(4)


# Exact: negative controls, and the audit itself


@EVERY_CHANNEL
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_every_channel_passes(name, epsilon):
    channel = channel_of(name, epsilon)
    proved = audit.exact(channel)
    assert proved.holds
    assert 0 < proved.shortfall < 1e-6
    assert 0 < proved.high - proved.low < 1e-12
    assert (proved.low, proved.high) == audit.true_epsilon(channel.counts.tolist())
    column = channel.counts[:, proved.column]
    most, least = (int(column[channel.letters == letter][0]) for letter in proved.pair)
    assert log(most / least) == pytest.approx(float(proved.low), rel=1e-15)
    assert proved.bias <= 2.0**-40 * np.abs(channel.values).max()
    assert proved.worst_case_variance == channel.worst_case_variance
    assert (proved.letters, proved.outputs) == channel.counts.shape
    assert proved.bits == channel.bits


def test_a_structural_shortfall_is_reported():
    proved = audit.exact(PM(epsilon=9.0).channel(outputs=33))
    assert float(proved.shortfall) == pytest.approx(0.545, abs=0.001)


def test_bias_is_exact():
    counts = np.array([[3, 1], [1, 3]]) << 58
    channel = Channel(log(3) + 1e-9, counts, np.array([-1.0, 1.0]), np.array([-2.0, 2.0]))
    assert audit.exact(channel).bias == 0
    values = np.array([-2.0, 2.0 + 2.0**-45])
    assert audit.exact(Channel(2.0, counts, np.array([-1.0, 1.0]), values)).bias == Fraction(
        3, 4 << 45
    )


@given(st.lists(st.tuples(*[st.integers(1, 1 << 70)] * 3), min_size=2, max_size=4))
def test_bracket_encloses_the_logarithm(rows):
    low, high = audit.true_epsilon(rows)
    probabilities = [[Fraction(n, sum(row)) for n in row] for row in rows]
    ratio = max(max(c) / min(c) for c in zip(*probabilities, strict=True))
    with mpmath.workdps(120):
        true = mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator)
        assert mpmath.mpf(low.numerator) / low.denominator <= true
        assert true <= mpmath.mpf(high.numerator) / high.denominator
    assert high - low < 1e-12


def test_bracket_does_not_depend_on_the_decimal_context():
    expected = audit.true_epsilon([[3, 1], [1, 3]])
    with localcontext(prec=3):
        assert audit.true_epsilon([[3, 1], [1, 3]]) == expected


@pytest.mark.parametrize(
    "counts",
    [[], [[]], [[1, 2], [3]], [[1, -1]], [[0, 0], [1, 1]], [[0.5, 0.5], [1, 1]], ["ab", "ba"], 7],
)
def test_an_invalid_table_is_refused(counts):
    with pytest.raises(DomainError, match="counts"):
        audit.true_epsilon(counts)


# Statistical: positive controls


@pytest.mark.parametrize(
    ("mechanism", "at_least"),
    [(leaky.pm_with_even_tails, 5.3), (leaky.pm_sub_with_a_still_tail, 5.3)],
)
def test_a_wrong_tail_is_caught(mechanism, at_least):
    found = audit.attack(mechanism, PAIRS, fedldp.source(1), confidence=CONFIDENCE)
    assert found.bound > at_least  # claimed: 1


def test_duchi_with_ties_in_both_halves_is_caught():
    pairs = [((1.0, 1.0), (-1.0, -1.0)), ((1.0, 1.0), (-1.0, 1.0))]
    found = audit.attack(
        leaky.duchi_cube, pairs, fedldp.source(1), samples=40_000, confidence=CONFIDENCE
    )
    assert 1.1 < found.bound < log(1 + exp(1.0))
    assert set(found.pair) == set(pairs[1])
    assert found.event in ("output = (1, -1)", "output = (-1, -1)")


def test_a_raw_attribute_among_many_is_caught():
    def one_of_five_raw(x, source):
        noisy = Duchi(epsilon=1.0).perturb(x, source)
        noisy[:, 3] = x[:, 3]
        return noisy

    x, z = np.full(5, 0.5), np.full(5, 0.25)
    found = audit.attack(one_of_five_raw, [(x, z)], fedldp.source(2), samples=10_000)
    assert found.bound > 5
    assert found.hits == (5000, 0)


def test_a_sum_reveals_what_no_entry_reveals():
    """Thirty attributes, each with the whole budget; hardly a row is drawn twice."""
    mechanism = Duchi(epsilon=0.5).perturb
    x = np.ones(30)
    found = audit.attack(mechanism, [(x, -x)], fedldp.source(3), samples=20_000)
    assert found.bound > 2
    assert "output . (x - z)" in found.event


def test_a_textbook_float_is_caught_by_what_it_can_reach():
    outputs = leaky.pm(np.full(50_000, 0.1), fedldp.source(4))
    own, other = (
        audit.reachable_fraction(leaky.pm_branches, leaky.pm_inverse, outputs, x)
        for x in (0.1, 0.2)
    )
    assert own == 1.0  # so nothing is called unreachable that is reachable
    assert other == pytest.approx(0.54, abs=0.01)  # 46% could not have come from 0.2
    wide = audit.reachable_fraction(leaky.pm_branches, leaky.pm_inverse, outputs, 0.2, reach=64)
    assert wide == other


# Statistical: negative controls, and the attack itself


@EVERY_MECHANISM
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_perturb_withstands_the_attack(name, epsilon):
    m = fedldp.mechanism(name, epsilon)
    found = audit.attack(m.perturb, PAIRS, fedldp.source(5), confidence=CONFIDENCE)
    assert 0.75 * epsilon < found.bound <= epsilon


@EVERY_CHANNEL
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_encode_withstands_the_attack(name, epsilon):
    channel = channel_of(name, epsilon)
    found = audit.attack(channel.encode, PAIRS, fedldp.source(6), confidence=CONFIDENCE)
    assert 0.75 * epsilon < found.bound <= epsilon


def test_textbook_pm_withstands_the_attack():
    """Its law is right: that its floats tell x is beyond statistics."""
    found = audit.attack(leaky.pm, PAIRS, fedldp.source(7), confidence=CONFIDENCE)
    assert 0.75 < found.bound <= 1.0


def test_stated_confidence_is_kept():
    """200 attacks at 90% on a law of which every event has a ratio of e^eps or less.

    More than 45 false alarms, had each the allowed 10%, would come up once in a million times.
    """
    mechanism = PM(epsilon=0.7).perturb
    bounds = [
        audit.attack(mechanism, [(0.0, 1.0)], each, samples=2000, confidence=0.9).bound
        for each in fedldp.source(8).spawn(200)
    ]
    assert stats.binom.sf(45, 200, 0.1) < 1e-6
    assert sum(bound > 0.7 for bound in bounds) <= 45
    assert np.median(bounds) > 0.35


def test_bound_is_that_of_clopper_and_pearson():
    for k, m in ((0, 0), (0, 50), (50, 0), (7, 3), (49, 50), (50, 50)):
        p = stats.binomtest(k, 50).proportion_ci(0.98, "exact").low  # 1% on either side
        q = stats.binomtest(m, 50).proportion_ci(0.98, "exact").high
        expected = log(p / q) if p > 0 else -inf
        assert audit._bound(np.array([k, m]), 50, 0.01) == pytest.approx(expected, rel=1e-6)


def randomized_response(names):
    def mechanism(x, source):
        liar = source.bernoulli(Fraction(1, 4), x.shape)
        return names[np.where(liar, 1 - x, x)]

    return mechanism


def array_of(*objects):
    array = np.empty(len(objects), object)
    array[:] = objects
    return array


@pytest.mark.parametrize(
    "names",
    [
        np.array(["no", "yes"]),
        np.array([False, True]),
        array_of(frozenset(), frozenset({1})),
        array_of((1, 2), "three"),
        np.array([[0, 1], [1, 0]]),
        np.array([[[0], [1]], [[1], [0]]]),
        np.array([-inf, np.nan]),
    ],
)
def test_outputs_may_be_anything(names):
    mechanism = randomized_response(names)
    found = audit.attack(mechanism, [(0, 1)], fedldp.source(9), confidence=CONFIDENCE)
    assert 1.0 < found.bound <= log(3)


def test_an_event_is_described_in_words():
    found = audit.attack(
        Laplace(epsilon=3.0).perturb,
        [(-1.0, 1.0)],
        fedldp.source(10),
        samples=1000,
    )
    assert "output" in found.event
    first, second = found.hits
    assert first > second
    assert found.trials == 500


@pytest.mark.parametrize(
    "arguments",
    [{"pairs": []}, {"samples": 1}, {"confidence": 1.0}, {"mechanism": lambda x, _: x[:3]}],
)
def test_an_attack_that_makes_no_sense_is_refused(arguments):
    good = {
        "mechanism": PM(1.0).perturb,
        "pairs": PAIRS,
        "source": fedldp.source(11),
    }
    with pytest.raises(DomainError):
        audit.attack(**(good | arguments))


# The command line


def run(*arguments, status=0):
    result = CliRunner().invoke(command, ["audit", *arguments], env={"COLUMNS": "80"})
    assert result.exit_code == status, result.output
    assert max((len(line) for line in result.output.splitlines()), default=0) <= 80
    return result


def test_command_proves():
    output = run("three-outputs", "--epsilon", "1", "--attack").output
    assert "as private as it claims" in output
    assert "0.99999999999999999" in output
    assert "99.9999%" in output
    assert "fedldp audit three-outputs --epsilon 1  " in run("--help").output


def test_command_as_json():
    document = json.loads(run("pm", "--epsilon", "4", "--outputs", "63", "--json").output)
    low, high = map(Fraction, document["true_epsilon"])
    assert low < high <= document["epsilon"] == 4.0
    assert document["holds"] is True
    assert document["outputs"] == 63
    assert "attack" not in document


def test_command_reads_a_file_and_refuses_a_bad_one(tmp_path):
    path = tmp_path / "channel.json"
    channel = HMTP(epsilon=1.0).channel(outputs=15)
    path.write_text(channel.to_json())
    assert "as private as it claims" in run("--channel", str(path)).output

    document = json.loads(channel.to_json())
    leaking = leaky.raised_by_one(channel)[0].tolist()
    document["counts"] = [[vehicle.json_integer(count) for count in row] for row in leaking]
    path.write_text(json.dumps(document))
    error = run("--channel", str(path), status=1).exception
    assert isinstance(error, PrivacyError)
    assert "leaks more than it claims" in str(error)
    assert "column" in str(error)

    document["counts"] = [[1, 2], [2, 1]]
    document["values"], document["letters"] = [-3, 3], [-1, 1]
    path.write_text(json.dumps(document))
    error = run("--channel", str(path), status=1).exception
    assert "adds up to 3" in str(error)
    path.write_bytes(b"\xff{")
    assert isinstance(run("--channel", str(path), status=1).exception, fedldp.errors.WireError)


def test_command_fails_if_the_sampler_leaks(monkeypatch):
    monkeypatch.setattr(Channel, "encode", lambda _channel, x, _source: x)
    result = run("duchi", "--attack", status=1)
    assert "LEAKS MORE THAN IT CLAIMS" in result.output
    assert "leaks more than it claims" in str(result.exception)


@pytest.mark.parametrize("arguments", [[], ["pm", "--channel", __file__]])
def test_command_wants_one_thing_to_audit(arguments):
    assert "NAME of a mechanism or --channel FILE" in run(*arguments, status=2).output
