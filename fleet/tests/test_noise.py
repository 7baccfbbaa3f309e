"""Whether a mean update can be told from noise: what is promised about the warning."""

import numpy as np
import pytest

import fedldp
from fedldp import Plan, Schema
from fedldp.plan.strategies import Sample
from fedldp_fleet.noise import MISTAKE, RISK, Excess

LENGTH, BOUND = Schema.vector(15, length=1.0), Schema.vector(15, bound=1.0)
PLANS = {
    "directions": (Plan(LENGTH, 4.0, strategy="directions"), 400),
    "few directions": (Plan(LENGTH, 8.0, strategy="directions"), 60),
    "one number": (Plan(Schema.vector(1, length=1.0), 2.0, strategy="directions"), 300),
    "sample": (Plan(BOUND, 4.0, Sample(k=1, mechanism="duchi")), 2000),
    "paper": (Plan(BOUND, 4.0, Sample(k=2, mechanism="hm-tp")), 400),
    "cube": (Plan(BOUND, 4.0, strategy="cube"), 400),
}


def excess(plan, vectors, source):
    return Excess().plus(plan, plan.simulate(vectors, source))


@pytest.mark.parametrize("name", PLANS)
def test_zeros_look_like_noise(name):
    """With another seed, a test fails by chance once in 10^5 runs, if the risk is what is said."""
    (plan, n), source = PLANS[name], fedldp.source(1)
    zeros = np.zeros((n, plan.schema.dimensions))
    p_values = np.array([excess(plan, zeros, source).p_value for _ in range(500)])
    assert (p_values < RISK).sum() <= 5
    assert (p_values < 0.05).sum() <= 50
    assert np.median(p_values) > 0.3


@pytest.mark.parametrize("name", PLANS)
def test_what_is_noticeable_is_noticed(name):
    """With another seed, a test fails by chance once in 10^5 runs, if 1% is what is missed."""
    (plan, n), source = PLANS[name], fedldp.source(2)
    d = plan.schema.dimensions
    least = excess(plan, np.zeros((n, d)), source).noticeable
    rows = np.tile(np.full(d, least / d**0.5), (n, 1))
    assert plan.schema.check(rows).clean
    missed = sum(excess(plan, rows, source).p_value >= RISK for _ in range(200))
    assert missed <= 10  # 200 x MISTAKE is 2
    assert MISTAKE == 0.01


def test_rounds_add_up_and_notice_less_and_less():
    plan, n = PLANS["directions"]
    source, rows = fedldp.source(3), np.full((n, 15), 0.05)
    found, lengths = Excess(), []
    for _ in range(8):
        found = found.plus(plan, plan.simulate(rows, source))
        lengths.append(found.noticeable)
    assert found.rounds == 8
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] < 0.8 * lengths[0]


def test_nothing_can_be_said_of_a_single_report():
    plan, _ = PLANS["directions"]
    found = excess(plan, np.full((1, 15), 0.1), fedldp.source(1))
    assert (found.p_value, found.noticeable) == (1.0, float("inf"))
    assert Excess().plus(plan, plan.tally()).p_value == 1.0
