"""What "auto" means: a cube only where it has clearly less error."""

from statistics import NormalDist

import numpy as np
import pytest

from fedldp import Plan, Schema
from fedldp.plan.strategies import MOST_SIGNS, Cube, Directions, Sample, choose

ROWS = 400
EPSILONS = (0.5, 1.0, 2.0, 4.0, 5.0, 6.0, 8.0, 12.0)
SIZES = (2, 4, 8, 16, 64)


def shapes(d):
    """Return rows of numbers of some shapes, at quantiles that lie evenly."""
    share = (np.arange(ROWS) + 0.5) / ROWS
    normal = np.array([NormalDist().inv_cdf(each) for each in share])
    columns = {
        "uniform": 2 * share - 1,
        "narrow": 0.25 * normal,
        "wide": 0.5 * normal,
        "lognormal": np.exp(0.8 * normal) / 2.5 - 1,
        "exponential": -np.log(1 - share) / 2 - 1,
        "off centre": 0.5 + 0.25 * normal,
        "many zeros": np.where(share < 0.7, -1, (share - 0.7) / 0.15 - 1),
        "at the bounds": np.where(share < 0.5, -1.0, 1.0),
        "rare": np.where(share < 0.95, -1.0, 1.0),
    }
    random = np.random.default_rng(1)
    return {
        name: np.stack([random.permutation(np.clip(column, -1, 1)) for _ in range(d)], axis=1)
        for name, column in columns.items()
    }


@pytest.mark.parametrize("d", SIZES)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_a_cube_is_chosen_only_if_it_has_less_error_on_average(d, epsilon):
    schema = Schema.vector(d, bound=1.0)
    sample, plan = Plan(schema, epsilon, "sample"), Plan(schema, epsilon)
    if plan == sample:
        assert choose(schema, epsilon).strategy == Sample()
        cube = Plan(schema, epsilon, "cube")
        assert cube.expected_error(1) > 0.75 * sample.expected_error(1)
        return
    assert plan == Plan(schema, epsilon, "cube")
    ratios = {
        name: plan.expected_error(1, rows) / sample.expected_error(1, rows)
        for name, rows in shapes(d).items()
    }
    assert ratios["uniform"] <= 0.76  # settled at 0.75 of evenly spread numbers
    assert np.exp(np.mean(np.log(list(ratios.values())))) < 0.95
    assert max(ratios.values()) < 2.2  # the narrow shape: what the rule may lose


def test_what_the_rule_chooses_for_few_numbers_categories_and_lengths():
    many = Schema.vector(16, bound=1.0)
    assert [choose(many, epsilon).strategy.name for epsilon in (1.0, 4.0, 8.0)] == [
        "sample",
        "sample",
        "cube",
    ]
    assert choose(Schema.of(age=(0, 100)), 8.0).strategy == Sample()
    assert choose(Schema.vector(MOST_SIGNS + 1, bound=1.0), 8.0).strategy == Sample()
    assert choose(Schema.vector(9, length=1.0), 8.0).strategy == Directions()
    mixed = Schema.of(city=["Oslo", "Rome"], **{f"x{place}": (0, 1) for place in range(16)})
    assert Plan(mixed, 8.0) == Plan(mixed, 8.0, Sample())


def test_the_choice_says_why():
    chosen = choose(Schema.vector(16, bound=1.0), 8.0)
    assert chosen.strategy == Cube()
    assert chosen.reason == "65% of the sample's squared error, if numbers are spread evenly"
    assert repr(Plan(Schema.vector(16, bound=1.0), 8.0)) == (
        "<Plan: epsilon 8, 1 attribute, each vehicle answers 16 of 16 coordinates by cube, 16 bits>"
    )


def test_a_cube_beside_categories_would_leave_them_too_little():
    # Why the rule keeps sampling there: the categories lose more than numbers win.
    mixed = Schema.of(city=["Oslo", "Rome"], **{f"x{place}": (0, 1) for place in range(16)})
    sample, cube = (Plan(mixed, 8.0, name).expect(100_000) for name in ("sample", "cube"))
    assert cube["x0"].typical < sample["x0"].typical
    assert cube["city"].typical > 1.5 * sample["city"].typical
