"""Forecasts: noise that comes true, and plain statements."""

from dataclasses import replace

import numpy as np
import pytest

import fedldp
from fedldp import Schema
from fedldp.errors import DomainError
from fedldp.learn.examples import Arrays
from fedldp.learn.forecasting import forecast
from fedldp.learn.layers import Activation, Dense
from fedldp.learn.networks import Network
from fedldp.learn.objectives import objective
from fedldp.learn.settings import Settings
from fedldp.learn.tasks import Layered, Linear
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


def test_the_noise_of_several_labels_comes_true():
    """The spread of a number's weights over 12 trainings; the labels do not depend on the number.

    The mean square of the number is that of the forecast, 1/9. The deviation of 12 times 5 weights
    that add up to 0 is within 40% of the true one (4 standard deviations).
    """
    labels = 6
    random = fedldp.source(1)
    rows = random.uniform((20_000, 1)) * 2 - 1
    y = (random.uniform(20_000) * labels).astype(int)
    bound = 3**0.5
    trained = [
        fedldp.LDPLogisticRegression(
            epsilon=4.0, bounds=(-bound, bound), survey=None, random_state=seed
        ).fit(rows, y)
        for seed in range(12)
    ]
    weights = bound * np.array([model.coef_[:, 0] for model in trained])  # of the scaled number
    goal = objective("softmax").with_outputs(labels)
    schema = Schema.of(x=(-bound, bound))
    predicted = forecast(schema, 4.0, 20_000, objective=goal, survey=None)
    assert predicted.weights == 2 * labels
    deviation = np.sqrt(weights.var(axis=0).mean())
    assert 0.6 < deviation / predicted.deviations[0] < 1.4


def test_two_labels_are_logistic_regression():
    goal = objective("softmax").with_outputs(2)
    two, one = (forecast(SCHEMA, 1.0, 50_000, objective=o) for o in (goal, "logistic"))
    # The score of the one is the difference of the two scores of the other.
    np.testing.assert_allclose(np.sqrt(2) * two.deviations, one.deviations, rtol=0.5)
    assert (two.weights, two.learnable) == (2 * one.weights, 2 * one.learnable)
    assert two.rounds == pytest.approx(one.rounds, rel=0.5)


def test_a_network_is_simulated():
    flights = fedldp.datasets.load("flights", rows=3000)
    examples = flights.examples("logistic")
    layers = Dense(3), Activation("relu")
    network = Network((examples.dimensions - 1,), layers, objective("logistic"))
    predicted = forecast(
        flights.features.schema,
        8.0,
        30_000,
        public=Layered(network, examples),
        repeats=2,
        source=fedldp.source(1),
    )
    assert (predicted.names, predicted.weights, len(predicted.errors)) == ((), 0, 2)
    assert predicted.errors.max() < predicted.base_rate
    assert "weights" not in str(predicted)
    assert "2 of 2 trainings beat the base rate" in str(predicted)


def test_sentences():
    few, many = forecast(SCHEMA, 0.1, 1_000), forecast(SCHEMA, 4.0, 1_000_000)
    share = few.score_noise / few.score_spread
    assert str(few).splitlines() == [
        "1,000 vehicles with epsilon = 0.1, each asked once, in 30 rounds.",
        "0 of 7 weights should rise above the noise; the other 7 will stay near 0.",
        f"Noise moves a typical score by {few.score_noise:.2g}, {share:.0%} of what a model "
        f"moves it ({few.score_spread:.2g}). You would need {few.needed:,} vehicles for 10%; "
        "you have 1,000.",
        "Do not expect a model that beats the base rate: it needs about "
        f"{few.needed_to_beat:,} vehicles, and attributes that tell of the target; you have 1,000.",
    ]
    first, weights, noise, beat = str(many).splitlines()
    assert first.endswith(
        "Some are asked about centers, scales and correlations of the numbers first."
    )
    assert weights == "7 of 7 weights should rise above the noise."
    assert f"You need {many.needed:,} vehicles for 10%; you have 1,000,000." in noise
    assert beat.startswith("Expect a model that beats the base rate: it needs about ")
    none = replace(few, needed=None, needed_to_beat=None)
    assert "No number of vehicles is enough for 10%." in str(none)
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
