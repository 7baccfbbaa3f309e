"""The second number of many answers: a true upper bound, by enumeration and in high precision."""

import itertools
import math
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedldp
from fedldp import Calendar, Category, Plan, Schema
from fedldp.budget.composition import COMPOSITION_DELTA, Composition, approximate_epsilon
from fedldp.errors import DomainError
from fedldp.learn.privacy import Privacy

DELTAS = (1e-3, 1e-6, 1e-9)


def exact_delta(costs, epsilon):
    """Return the least delta of answers by randomized response, the worst answers of all.

    All sequences of answers are enumerated, in 40 digits.
    """
    with mpmath.workdps(40):
        factor, total = mpmath.exp(mpmath.mpf(epsilon)), mpmath.mpf(0)
        keep = [1 / (1 + mpmath.exp(-mpmath.mpf(c.numerator) / c.denominator)) for c in costs]
        for same in itertools.product((True, False), repeat=len(costs)):
            one = mpmath.fprod(p if kept else 1 - p for p, kept in zip(keep, same, strict=True))
            other = mpmath.fprod(1 - p if kept else p for p, kept in zip(keep, same, strict=True))
            total += max(one - factor * other, 0)
        return total


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize(
    "costs",
    [
        [Fraction(1, 10)] * 10,
        [Fraction(1, 2)] * 8,
        [Fraction(1)] * 9,
        [Fraction(2)] * 5,
        [Fraction(1, 10), Fraction(1, 3), Fraction(1), Fraction(2), Fraction(1, 7)],
        [Fraction(1, 4)] * 4 + [Fraction(3)],
    ],
    ids=str,
)
def test_the_bound_holds_for_the_worst_answers(costs, delta):
    composition = Composition.of({cost: costs.count(cost) for cost in costs})
    assert composition.epsilon == sum(costs)
    bound = approximate_epsilon(composition.rho, delta)
    assert exact_delta(costs, bound) <= delta
    assert composition.approximate(delta) == pytest.approx(min(bound, float(sum(costs))))


@settings(max_examples=15)
@given(
    rho=st.fractions(Fraction(1, 10**6), 500),
    delta=st.floats(1e-15, 0.5),
)
def test_the_conversion_is_the_least_over_all_orders_and_rounded_upwards(rho, delta):
    with mpmath.workdps(40):
        number = mpmath.mpf(rho.numerator) / rho.denominator

        def bound(log_excess):
            excess = mpmath.exp(log_excess)
            order = 1 + excess
            ends = mpmath.log(1 - 1 / order) - mpmath.log(delta * order) / excess
            return number * order + ends

        center = mpmath.log(-mpmath.log(delta) / number) / 2
        least = min(bound(center + mpmath.mpf(step) / 50) for step in range(-400, 401))
        found = approximate_epsilon(rho, delta)
        assert found <= max(least, 0) * (1 + mpmath.mpf(10) ** -12) + mpmath.mpf(10) ** -12
        finer = min(bound(center + mpmath.mpf(step) / 500) for step in range(-1000, 1001))
        assert found >= max(finer - mpmath.mpf("1e-3") * abs(finer) - mpmath.mpf("1e-3"), 0)


def test_the_bound_is_above_what_its_own_order_proves():
    """Rounded upwards: at the order that was chosen, in 60 digits, the bound is not exceeded."""
    from fedldp.budget import composition

    for rho, delta, order in itertools.product(
        (Fraction(1, 1000), Fraction(73, 40), Fraction(10**6, 7)), DELTAS, (1.01, 3.7, 1e5)
    ):
        found = composition._proven_bound(rho, delta, Fraction(order))
        with mpmath.workdps(60):
            a = mpmath.mpf(order)
            exact = mpmath.mpf(rho.numerator) / rho.denominator * a + mpmath.log(1 - 1 / a)
            exact -= mpmath.log(mpmath.mpf(delta) * a) / (a - 1)
            assert found >= exact
            assert found == 0 or math.nextafter(found, 0) < exact * (1 + mpmath.mpf(10) ** -30)


@given(rho=st.fractions(0, 100), more=st.fractions(0, 100), delta=st.floats(1e-12, 0.9))
def test_more_answers_and_less_delta_cost_more(rho, more, delta):
    slack = 1 + 1e-12
    assert approximate_epsilon(rho, delta) <= approximate_epsilon(rho + more, delta) * slack
    assert approximate_epsilon(rho, delta) <= approximate_epsilon(rho, delta / 2) * slack


def test_few_answers_cost_their_sum():
    """It is rounded upwards: the float nearest to 3/10 is below it."""
    few = Composition.of({Fraction(1, 10): 3})
    assert Fraction(few.approximate(1e-6)) >= few.epsilon
    assert few.approximate(1e-6) == pytest.approx(0.3)
    assert Composition.of({}).approximate(1e-6) == 0.0


def test_a_year_of_answers():
    """The exact optimum is 10.31, which an accountant of privacy losses finds: see below."""
    year = Composition.of({Fraction(1, 10): 365})
    assert (year.epsilon, year.rho) == (Fraction(73, 2), Fraction(73, 40))
    assert year.approximate(1e-6) == pytest.approx(11.0653, abs=1e-4)


@pytest.mark.parametrize("delta", [0, 1, -0.1, math.nan])
def test_delta_is_a_probability(delta):
    with pytest.raises(DomainError, match="delta must lie between 0 and 1"):
        approximate_epsilon(Fraction(1), delta)
    with pytest.raises(DomainError, match="must not be negative"):
        approximate_epsilon(Fraction(-1), 0.1)


def test_calendars_and_trainings_have_it():
    schema = Schema.of(speed=(0, 50))
    calendar = Calendar(Plan(schema, 0.1), periods=365, answers=365)
    cost = calendar.plan.total_epsilon
    assert calendar.composition == Composition(365 * cost, 365 * cost**2 / 2)
    model = Category("model", ["A", "B", "C"], constant=True)
    constant = Calendar(Plan(Schema((model,)), 0.5), periods=30, answers=30)
    assert constant.composition.epsilon == constant.epsilon == constant.plan.total_epsilon

    plan = Plan(Schema.vector(3, 1.0), 0.5)
    many, one = Privacy.of(plan, 4000, participations=400), Privacy.of(Plan(plan.schema, 4.0), 9)
    assert many.composition == Composition.of({plan.total_epsilon: 400})
    assert many.composition.approximate() < float(many.epsilon)
    levels = Privacy.of_levels([many, one]).composition
    for each in (many, one):
        assert levels.epsilon >= each.epsilon
        assert levels.approximate() >= each.composition.approximate()


# With an independent accountant: `make test-accountant`


@pytest.mark.accountant
@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("rho", [Fraction(1, 10**4), Fraction(73, 40), Fraction(50)])
def test_the_conversion_is_that_of_dp_accounting(rho, delta):
    import numpy as np
    from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon

    orders = 1 + np.exp(np.linspace(-4, 9, 50_001))
    theirs, _ = compute_epsilon(orders, orders * float(rho), delta)
    assert approximate_epsilon(rho, delta) == pytest.approx(theirs, rel=1e-6)


@pytest.mark.accountant
@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize(
    ("cost", "answers", "excess"),
    [
        (Fraction(1, 10), 365, 1.15),
        (Fraction(1, 20), 2000, 1.15),
        (Fraction(1, 4), 100, 1.15),
        (Fraction(1), 10, 1.01),
        (Fraction(2), 3, 1.01),
    ],
)
def test_the_bound_is_above_the_exact_optimum(cost, answers, excess, delta):
    """The optimum is that of randomized response, composed as a privacy loss distribution."""
    from dp_accounting.pld import common, privacy_loss_distribution

    one = privacy_loss_distribution.from_privacy_parameters(
        common.DifferentialPrivacyParameters(float(cost), 0.0), value_discretization_interval=1e-4
    )
    optimum = one.self_compose(answers).get_epsilon_for_delta(delta)
    found = Composition.of({cost: answers}).approximate(delta)
    assert optimum * (1 - 1e-3) <= found <= excess * optimum + 1e-3


@pytest.mark.accountant
@pytest.mark.parametrize(("epsilon", "n"), [(0.5, 50), (1.0, 100), (2.0, 40)])
def test_a_shuffled_round_against_dp_accounting(epsilon, n):
    """The reference: the laws of docs/explanation/limitations.md#shuffling, given as numbers."""
    from dp_accounting.pld import privacy_loss_distribution
    from scipy.stats import binom

    right, laws = 1 / (1 + math.exp(-epsilon)), ({}, {})
    for coins in range(n):
        weight = binom.pmf(coins, n - 1, 2 * (1 - right))
        for heads in range(coins + 2):
            one, other = binom.pmf(heads - 1, coins, 0.5), binom.pmf(heads, coins, 0.5)
            laws[0][coins, heads] = weight * (right * one + (1 - right) * other)
            laws[1][coins, heads] = weight * ((1 - right) * one + right * other)
    logs = [{key: math.log(value) for key, value in law.items() if value > 1e-300} for law in laws]
    reference = privacy_loss_distribution.from_two_probability_mass_functions(
        *logs, value_discretization_interval=1e-5
    )
    found = fedldp.shuffled_epsilon(epsilon, n, COMPOSITION_DELTA)
    assert found == pytest.approx(reference.get_epsilon_for_delta(COMPOSITION_DELTA), rel=1e-3)
