"""Forecasts: noise that comes true, and plain statements."""

import numpy as np
import pytest

import fedldp
from fedldp import Schema
from fedldp.errors import DomainError
from fedldp.learn.examples import Arrays
from fedldp.learn.forecasting import forecast
from fedldp.learn.objectives import objective
from fedldp.learn.settings import Settings
from fedldp.learn.tasks import Linear
from fedldp.plan.strategies import Directions

SCHEMA = Schema.of(age=(0, 100), way={"low": 0, "high": 1, "size": 2}, city=["a", "b", "c"])


@pytest.mark.parametrize("kind", ["logistic", "hinge", "squared"])
def test_noise_falls_with_the_square_root(kind):
    options = {"objective": kind, "survey": None, "bound": 0.5, "strategy": Directions(0.3)}
    few, many = (forecast(SCHEMA, 1.0, n, **options) for n in (10_000, 1_000_000))
    np.testing.assert_allclose(few.deviations, 10 * many.deviations)
    assert few.needed == many.needed > few.needed_to_beat
    assert few.names == many.names
    assert many.learnable == len(many.names) >= few.learnable


def test_the_noise_comes_true():
    """The spread of a number's weight over 40 trainings, where the prior hardly matters.

    The forecast is for the best that any server can do. Steps that fade cost some of it, and the
    sample deviation of 40 is within 40% of the true one (4 standard deviations).
    """
    rows = fedldp.source(1).uniform((40_000, 1)) * 2 - 1
    y = 0.4 * rows[:, 0]
    options = {"epsilon": 4.0, "bounds": (-1, 1), "target_bounds": (-1, 1), "survey": None}
    found = [
        fedldp.LDPLinearRegression(**options, random_state=seed).fit(rows, y).coef_[0]
        for seed in range(40)
    ]
    expected = forecast(
        Schema.of(x=(-1, 1)), 4.0, 40_000, objective="squared", survey=None
    ).deviations[0]
    assert 0.2 * expected < np.std(found) < 2 * expected  # x^2 is 1/3 on average, not 1/9


def test_sentences():
    text = str(forecast(SCHEMA, 0.1, 1_000))
    assert "1,000 vehicles with epsilon = 0.1, each asked once, in 30 rounds." in text
    assert "Do not expect that." in text
    text = str(forecast(SCHEMA, 4.0, 1_000_000))
    assert "centres, scales and correlations" in text
    assert "Do not" not in text
    assert forecast(SCHEMA, 1.0, 1_000, precision=0.3).needed < forecast(SCHEMA, 1.0, 1_000).needed


def test_what_cannot_be_forecast():
    with pytest.raises(DomainError, match="vehicles must be at least 1"):
        forecast(SCHEMA, 1.0, 0)
    with pytest.raises(DomainError, match="about noise"):
        forecast(SCHEMA, None, 10)
    arrays = Linear(objective("logistic"), Arrays(np.ones((99, 2)), np.ones(99)))
    with pytest.raises(DomainError, match="task of a data set"):
        forecast(SCHEMA, 1.0, 10, public=arrays)
    assert Settings(1.0).survey == "auto"
