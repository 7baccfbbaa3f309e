"""One quantile by rounds: intervals that hold, one answer of each vehicle, and fewer vehicles."""

from functools import partial

import numpy as np
import pytest

import fedldp
from fedldp import BinnedNumber, Number, Plan, Schema
from fedldp.coders.base import Coder
from fedldp.errors import DomainError
from fedldp.learn.quantiles import CELLS, ROUNDS, SEARCH_ROUNDS, QuantileSearch, SideAnswers

NUMBER = Number("speed", 0, 130)


def two_peaks(draw, n):
    return np.where(draw.random(n) < 0.5, draw.normal(20, 1, n), draw.normal(100, 5, n))


def with_atom(draw, n):
    return np.where(draw.random(n) < 0.6, 40.0, draw.uniform(0, 130, n))


# Each with its own quantile function, of the values that are clipped to the bounds.
SHAPES = {
    "normal": lambda draw, n: draw.normal(60, 15, n),
    "exponential": lambda draw, n: draw.exponential(12, n),
    "two peaks": two_peaks,
    "an atom": with_atom,
    "the same for all": lambda _, n: np.full(n, 30.0),
    "at a bound": lambda draw, n: np.where(draw.random(n) < 0.97, 0.0, draw.uniform(0, 130, n)),
}


@pytest.mark.parametrize(
    ("number", "least"), [(32, 27), pytest.param(160, 146, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("shape", SHAPES)
def test_intervals_hold(shape, number, least):
    """Of 160 intervals of 95%, at least 146 hold: fewer by chance in 1 of 100 sets of seeds.

    Of 32, at least 27 in the same way. The intervals are cautious, and hold nearly always; the
    seeds are fixed.
    """
    draw, held = np.random.default_rng(1), 0
    truth = np.clip(SHAPES[shape](draw, 400_000), 0, 130)
    for seed in range(number):
        level, epsilon = (0.5, 0.9)[seed % 2], (1.0, 4.0)[seed // 2 % 2]
        search = QuantileSearch(NUMBER, level, epsilon, 4000)
        low, high = search.simulate(SHAPES[shape](draw, 4000), fedldp.source(seed)).interval
        # The quantile of so many values is itself only known to about 0.1% in terms of shares.
        held += np.mean(truth < low - 1e-9) <= level + 1e-3 <= np.mean(truth <= high) + 4e-3
    assert held >= least


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["normal", "two peaks"])
def test_intervals_of_half_hold(shape):
    """Of 600 intervals of 50%, at least 270 hold: fewer by chance in 1 of 100 sets of seeds."""
    draw, held = np.random.default_rng(1), 0
    truth = np.clip(SHAPES[shape](draw, 2_000_000), 0, 130)
    for seed in range(600):
        search = QuantileSearch(NUMBER, 0.5, 1.0, 4000, confidence=0.5)
        low, high = search.simulate(SHAPES[shape](draw, 4000), fedldp.source(seed)).interval
        held += np.mean(truth < low) <= 0.5 <= np.mean(truth <= high)
    assert held >= 270


def test_every_vehicle_is_asked_once():
    """The sizes of the rounds add up, and every value is read in one of them."""
    search = QuantileSearch(NUMBER, 0.5, 1.0, 1234)
    assert sum(search.groups) == 1234
    assert len(search.groups) == ROUNDS
    assert search.plan.bits == 1
    assert float(search.plan.total_epsilon) == 1.0


def test_fewer_vehicles_than_bins():
    """At epsilon 1 a quantile has less than half of the squared error of 32 bins."""
    draw, errors, widths = np.random.default_rng(1), [], []
    plan = Plan(Schema((BinnedNumber.of("speed", 0, 130, bins=32),)), 1.0)
    true = 60 + 15 * 1.2815515655446004
    for seed in range(16):
        values = draw.normal(60, 15, 20_000)
        found = QuantileSearch(NUMBER, 0.9, 1.0, 20_000).simulate(values, fedldp.source(seed))
        tally = plan.simulate(np.clip(values, 0, 130)[:, None], fedldp.source(seed))
        value, low, high = tally.estimate()["speed"].quantile(0.9)
        errors.append((found.value - true, value - true))
        widths.append((found.interval[1] - found.interval[0], high - low))
    rounds, binned = np.square(errors).mean(axis=0)
    assert rounds < binned / 2
    rounds, binned = np.mean(widths, axis=0)
    assert rounds < binned


def test_thresholds_follow_from_answers_alone():
    search = QuantileSearch(NUMBER, 0.5, 1.0, 10_000)
    assert search.next_cell([]) == CELLS // 2 - 1
    lower = [SideAnswers(CELLS // 2 - 1, 0.9, 0.01)]
    assert search.next_cell(lower) < CELLS // 4 + 1
    assert search.next_cell(lower) == QuantileSearch(NUMBER, 0.5, 1.0, 10_000).next_cell(lower)


def test_rounds_of_a_pair_follow_from_the_rounds_before_it():
    search, answers = QuantileSearch(NUMBER, 0.5, 1.0, 10_000), []
    for _ in range(SEARCH_ROUNDS + 1):
        cell = search.next_cell(answers)
        answers.append(SideAnswers(cell, cell / CELLS, 0.02))
    changed = [*answers[:SEARCH_ROUNDS], SideAnswers(5, 0.99, 0.001)]
    assert search.next_cell(changed) == search.next_cell(answers)


def test_answers_that_contradict_each_other_give_an_interval():
    """If the distribution changes between rounds, the ends are still in order."""
    search, draw = QuantileSearch(NUMBER, 0.5, 4.0, 2000), np.random.default_rng(1)
    for _ in range(20):
        answers = []
        for _ in search.groups:
            answers.append(SideAnswers(search.next_cell(answers), float(draw.random()), 0.02))
        found = search.result(answers)
        assert 0 <= found.interval[0] <= found.value <= found.interval[1] <= 130


def test_an_answer_is_randomized_response():
    plan = QuantileSearch(NUMBER, 0.5, 1.0, 1000).plan
    ((coder, _),) = plan.parts[0].asked
    assert isinstance(coder, Coder)
    assert float(plan.parts[0].ratio) == pytest.approx(np.e, rel=1e-6)
    assert float(plan.parts[0].ratio) <= np.e


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"level": 1.0}, "level must be between 0 and 1"),
        ({"confidence": 0.0}, "confidence must be between 0 and 1"),
        ({"vehicles": 100}, "Ask for bins instead"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"number": Number("x", 0, 1, size=2)}, "one Number with bounds"),
    ],
)
def test_invalid_arguments(change, message):
    good = {"number": NUMBER, "level": 0.5, "epsilon": 1.0, "vehicles": 1000}
    make = partial(QuantileSearch, **(good | change))
    with pytest.raises(DomainError, match=message):
        make()


def test_values_of_the_whole_fleet():
    with pytest.raises(DomainError, match="values must be 1000 numbers"):
        QuantileSearch(NUMBER, 0.5, 1.0, 1000).simulate(np.zeros(999), fedldp.source(1))
