"""Estimators whose features are partly labels that were coded as 0 and 1, and declared so."""

from dataclasses import replace

import numpy as np
import pandas
import pytest

from fedldp import LDPLinearRegression, LDPLogisticRegression, Schema
from fedldp.errors import DomainError
from fedldp.learn.estimators import (
    LDPMLPClassifier,
    _Encoded,
    _own_deviations,
    _own_units,
    _source,
)
from fedldp.learn.features import Features, Scaling
from fedldp.learn.objectives import objective
from fedldp.learn.settings import Settings
from fedldp.learn.tasks import Linear

DRAW = np.random.default_rng(1)
ROWS = 4000
NUMBERS = DRAW.normal(0.3, 0.1, (ROWS, 2)).clip(-1, 1)
LABELS = (DRAW.random((ROWS, 2)) < [0.5, 0.1]).astype(float)
X = np.column_stack([NUMBERS[:, 0], LABELS[:, 0], NUMBERS[:, 1], LABELS[:, 1]])
Y = DRAW.random(ROWS) < 1 / (1 + np.exp(-(20 * (X[:, 0] - 0.3) + 2 * X[:, 1] - 1)))
MASK = [False, True, False, True]
SCALING = Scaling((0.5, 0.25), (4.0, 8.0))
OPTIONS = {"epsilon": 4.0, "bounds": (-1, 1), "random_state": 3}


@pytest.mark.parametrize("survey", ["scale", "whiten", None])
def test_they_stay_as_they_are_and_numbers_are_scaled(survey):
    """The scores of the model in its own units are those of the weights and the features."""
    found = LDPLogisticRegression(**OPTIONS, binary_features=MASK, survey=survey).fit(X, Y)
    features = Features(Schema.of(x={"low": -1, "high": 1, "size": 4}), unsurveyed=(1, 3))
    targets = np.where(Y, 1.0, -1.0).astype(np.float32)
    task = Linear(objective("logistic"), _Encoded(features, X, targets))
    training = Settings(4.0, survey=survey).training(task, task.distance, _source(3, 0))
    for _ in training:
        pass
    encoded = replace(features, scaling=training.scaling).encode(X).astype(np.float64)
    assert np.array_equal(encoded[:, [1, 3]], LABELS)
    assert np.allclose(found.decision_function(X), encoded @ training.models[0], rtol=0, atol=1e-5)
    if survey is not None:
        assert np.abs(encoded[:, [0, 2]].mean(axis=0)).max() < 0.5  # 0.3 with a spread of 0.1
        assert np.all(encoded[:, [0, 2]].std(axis=0) > 0.5)
    assert found.coef_std_.shape == (1, 4)
    assert np.all(found.coef_std_ > 0)


def test_the_deviations_of_labels_do_not_depend_on_the_scaling_of_numbers():
    features = Features(
        Schema.of(x={"low": -1, "high": 1, "size": 3}), unsurveyed=(1,), scaling=SCALING
    )
    found = _own_deviations(features, np.array([[1.0, 2.0, 3.0, 4.0]]), 1)
    assert found.tolist() == [[4.0, 2.0, 24.0]]
    slopes, intercepts = _own_units(features, np.array([[1.0, 2.0, 3.0, 4.0]]))
    assert slopes.tolist() == [[4.0, 2.0, 24.0]]
    assert intercepts.tolist() == [4.0 - 4 * 0.5 - 24 * 0.25]


def test_a_feature_for_every_label_is_refused_with_them():
    with pytest.raises(DomainError, match="need the reference"):
        Features(Schema.of(x=(0, 1)), reference="none", unsurveyed=(0,))


def test_a_survey_asks_for_numbers_only():
    found = LDPLogisticRegression(**OPTIONS, binary_features=[1, 3], survey="scale").fit(X, Y)
    assert len(found.scaling_.centres) == 2
    everything = LDPLogisticRegression(**OPTIONS, survey="scale").fit(X, Y)
    assert len(everything.scaling_.centres) == 4


@pytest.mark.parametrize("given", [[1, 3], np.array([3, 1]), MASK, ["b", "d"], ("d", "b")])
def test_they_are_named_in_several_ways(given):
    frame = pandas.DataFrame(X, columns=[*"abcd"])
    found, wanted = (
        LDPLogisticRegression(**OPTIONS, binary_features=each).fit(frame, Y)
        for each in (given, MASK)
    )
    assert np.array_equal(found.coef_, wanted.coef_)


@pytest.mark.parametrize("given", [[4], [-1], ["e"], [1.0], [[1, 3]], [True, False], "b", [None]])
def test_what_names_no_features_is_refused(given):
    with pytest.raises(DomainError, match="binary_features must be numbers of features from 0 to"):
        LDPLogisticRegression(**OPTIONS, binary_features=given).fit(X, Y)


def test_none_declared_is_as_before():
    found, wanted = (
        LDPLogisticRegression(**OPTIONS, binary_features=each).fit(X, Y) for each in ([], None)
    )
    assert np.array_equal(found.coef_, wanted.coef_)


def test_regressions_and_networks_take_them_too():
    line = LDPLinearRegression(**OPTIONS, target_bounds=(-1, 1), binary_features=MASK)
    assert line.fit(X, X[:, 0]).coef_.shape == (4,)
    net = LDPMLPClassifier(**OPTIONS, hidden_layer_sizes=(2,), binary_features=MASK).fit(X, Y)
    assert net.coefs_[0].shape == (4, 2)
    lows, highs = [-1, 7, -1, 7], [1, 8, 1, 8]  # bounds of labels do not matter
    own = LDPLogisticRegression(
        epsilon=4.0, random_state=3, bounds=(lows, highs), binary_features=MASK
    )
    same = LDPLogisticRegression(**OPTIONS, binary_features=MASK)
    assert np.array_equal(own.fit(X, Y).coef_, same.fit(X, Y).coef_)
