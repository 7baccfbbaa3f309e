"""The central privacy of shuffled reports."""

import itertools
import json
import math
from collections import Counter
from fractions import Fraction

import pytest
from click.testing import CliRunner

from fedldp import Plan, Schema, source
from fedldp.budget.shuffling import shuffled_epsilon
from fedldp.cli.app import fedldp as program
from fedldp.errors import DomainError

ODDS = [Fraction(11, 10), Fraction(2), Fraction(5), Fraction(20)]  # e^epsilon, exactly


def reduced(odds, n):
    """Return the two distributions of the reduction, coin by coin, in rational numbers."""
    both = Counter(), Counter()
    coin = 2 / (odds + 1)
    for clones in range(n):
        chance = math.comb(n - 1, clones) * coin**clones * (1 - coin) ** (n - 1 - clones)
        for heads in range(clones + 1):
            share = chance * math.comb(clones, heads) / 2**clones
            for law, right in zip(both, (odds, 1), strict=True):
                law[clones, heads + 1] += share * right / (odds + 1)
                law[clones, heads] += share * (odds + 1 - right) / (odds + 1)
    return both


def divergence(first, second, ratio):
    """Return the sum of what the first exceeds ratio times the second by, the larger way round."""
    return max(
        sum(max(one[seen] - ratio * other[seen], 0) for seen in one | other)
        for one, other in ((first, second), (second, first))
    )


def shuffled(channel, values):
    """Return the distribution of the multiset of answers to a list of values."""
    law = Counter({(0,) * len(channel[0]): Fraction(1)})
    for value in values:
        after = Counter()
        for seen, chance in law.items():
            for code, probability in enumerate(channel[value]):
                more = (*seen[:code], seen[code] + 1, *seen[code + 1 :])
                after[more] += chance * probability
        law = after
    return law


@pytest.mark.parametrize("odds", ODDS)
@pytest.mark.parametrize("n", [1, 2, 3, 7, 20])
def test_the_result_is_where_the_exact_divergence_crosses_delta(odds, n):
    first, second = reduced(odds, n)
    epsilon = math.log(odds)
    for delta in (0.2, 1e-2, 1e-4):
        found = shuffled_epsilon(epsilon, n, delta)
        assert divergence(first, second, Fraction(math.exp(found * (1 + 1e-6)))) <= delta
        if found > 1e-6:
            assert divergence(first, second, Fraction(math.exp(found * (1 - 1e-6)))) > delta


@pytest.mark.parametrize("labels", [2, 3, 4])
@pytest.mark.parametrize("odds", ODDS)
def test_no_round_of_randomized_response_is_worse(odds, labels):
    """All data of the other vehicles, all pairs of values of one vehicle: by enumeration."""
    n, delta = 4, Fraction(1, 50)
    channel = [
        [(odds if code == value else 1) / (odds + labels - 1) for code in range(labels)]
        for value in range(labels)
    ]
    ratio = Fraction(math.exp(shuffled_epsilon(math.log(odds), n, float(delta))))
    for others in itertools.combinations_with_replacement(range(labels), n - 1):
        first, second = (shuffled(channel, (value, *others)) for value in (0, 1))
        assert divergence(first, second, ratio) <= delta * (1 + Fraction(1, 10**6))


def test_the_bound_falls_with_the_fleet_and_with_delta():
    bounds = [shuffled_epsilon(1.0, n, 1e-9) for n in (1, 10, 100, 1_000, 250_000, 10**6)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] == pytest.approx(1.0, rel=1e-8)
    assert shuffled_epsilon(1.0, 1_000, 1e-12) > shuffled_epsilon(1.0, 1_000, 1e-6)
    # The noise of the coins grows like sqrt(n), so epsilon' falls at least like 1 / sqrt(n).
    assert bounds[-1] == pytest.approx(bounds[-2] / 2, rel=0.05)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 10, 0.1), "epsilon must be"),
        ((1.0, 0, 0.1), "n must be at least 1"),
        ((1.0, 1.5, 0.1), "n must be a whole number"),
        ((1.0, 10, 0.0), "delta must lie between 0 and 1"),
        ((1.0, 10, math.nan), "delta must lie between 0 and 1"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    with pytest.raises(DomainError, match=message):
        shuffled_epsilon(*arguments)


def test_fedldp_estimate_says_what_a_shuffler_would_add(tmp_path):
    plan = Plan(Schema.of(speed=(0, 130)), 1.0)
    tally = plan.simulate({"speed": [50.0] * 400}, source(1))
    (tmp_path / "plan.json").write_text(plan.to_json())
    (tmp_path / "tally.json").write_text(tally.to_json())
    command = ["estimate", str(tmp_path / "plan.json"), str(tmp_path / "tally.json")]
    expected = {"epsilon": shuffled_epsilon(1.0, 400, 1e-9), "delta": 1e-9}
    found = json.loads(CliRunner().invoke(program, [*command, "--json"]).stdout)
    assert found["shuffled"] == expected
    shown = " ".join(CliRunner().invoke(program, command).stdout.split())
    assert f"would be ({expected['epsilon']:.2g}, 1e-09)-private" in shown
