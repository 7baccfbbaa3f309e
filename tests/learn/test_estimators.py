"""The scikit-learn estimators: scikit-learn's own contract, and agreement with its models."""

import dataclasses
import inspect
import pickle
import sys
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import LinearSVC
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

import fedldp
from fedldp.errors import DataWarning, MissingExtra
from fedldp.learn.estimators import (
    LDPLinearRegression,
    LDPLinearSVC,
    LDPLogisticRegression,
    PrivacyWarning,
)
from fedldp.learn.examples import Arrays
from fedldp.learn.objectives import objective
from fedldp.learn.settings import Settings
from fedldp.learn.tasks import Linear

LOWS, HIGHS = np.array([0.0, -5.0, 100.0]), np.array([10.0, 5.0, 200.0])
TARGET = (-100.0, 140.0)


def fleet(n=20_000):
    """Rows in their own units, a number that follows them, and a label that often does."""
    chance = fedldp.source(5)
    X = LOWS + (HIGHS - LOWS) * chance.uniform((n, 3))
    z = 0.8 * (X[:, 0] - 5) - 0.5 * X[:, 1] + 0.02 * (X[:, 2] - 150)
    number = 10 * z + 20 + 10 * (chance.uniform(n) - 0.5)
    label = np.where(chance.uniform(n) < 1 / (1 + np.exp(-z)), "yes", "no")
    return X, number, label


X, NUMBER, LABEL = fleet()
MODELS = {  # what is compared with what, on which target
    LDPLinearRegression: (LinearRegression(), NUMBER),
    LDPLogisticRegression: (LogisticRegression(C=1e6), LABEL),
    LDPLinearSVC: (LinearSVC(), LABEL),
}
every = pytest.mark.parametrize("kind", MODELS)


def made(kind, **choices):
    choices = {"bounds": (LOWS, HIGHS), "random_state": 0} | choices
    if kind is LDPLinearRegression:
        choices = {"target_bounds": TARGET} | choices
    return kind(**choices)


def scores(model, rows):
    return (
        model.predict(rows)
        if isinstance(model, LDPLinearRegression)
        else (model.decision_function(rows))
    )


# The checks fit clones of one estimator again and again, and no vehicle is real. Their data have
# no bounds, so that some of them are clipped.
@pytest.mark.filterwarnings("ignore::fedldp.learn.estimators.PrivacyWarning")
@pytest.mark.filterwarnings("ignore::fedldp.errors.DataWarning")
@parametrize_with_checks(
    [
        LDPLinearRegression(bounds=(-3, 3), target_bounds=(-3, 3)),
        LDPLogisticRegression(bounds=(-3, 3)),
        LDPLinearSVC(bounds=(-3, 3)),
    ]
)
def test_scikit_learn_contract(estimator, check, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # or a check is skipped
    check(estimator)


@every
def test_tags(kind):
    tags = get_tags(kind())
    assert not tags.non_deterministic  # or scikit-learn leaves out some of its checks
    special = tags.regressor_tags if kind is LDPLinearRegression else tags.classifier_tags
    assert special.poor_score


@every
def test_constructor_has_the_choices_of_settings_by_keyword(kind):
    parameters = dict(inspect.signature(kind).parameters)
    assert {each.kind for each in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert parameters.pop("bounds").default is None
    assert parameters.pop("random_state").default is None
    assert parameters.pop("strict").default is False
    if kind is LDPLinearRegression:
        assert parameters.pop("target_bounds").default is None
    defaults = {name: each.default for name, each in parameters.items()}
    wanted = dataclasses.asdict(Settings(epsilon=1.0))
    assert wanted.pop("reference") == "first"  # of categories: an estimator takes numbers
    assert defaults == wanted


@every
def test_close_to_scikit_learn_without_privacy(kind):
    reference, y = MODELS[kind]
    reference = clone(reference).fit(X, y)
    model = made(kind, mechanism=None).fit(X, y)
    assert model.privacy_ is None
    assert model.score(X, y) == pytest.approx(reference.score(X, y), abs=0.003)
    if kind is not LDPLinearSVC:  # which regularizes, and so has other coefficients
        width = HIGHS - LOWS
        expected = reference.coef_ * width
        assert model.coef_ * width == pytest.approx(expected, abs=0.05 * np.abs(expected).max())
        assert model.coef_.shape == reference.coef_.shape
        assert np.shape(model.intercept_) == np.shape(reference.intercept_)


@every
def test_useful_with_privacy(kind):
    # Over 100 other seeds the scores lie 0.004 below the reference in the mean and 0.013 at the
    # worst. A loss is a sum of four squares of noise: 0.03 is exceeded in one seed of 10^5 or less.
    reference, y = MODELS[kind]
    best = clone(reference).fit(X, y).score(X, y)
    assert made(kind, epsilon=4.0).fit(X, y).score(X, y) > best - 0.03


@every
def test_scores_are_linear_in_the_users_units(kind):
    y = MODELS[kind][1]
    model = made(kind).fit(X, y)
    expected = X @ model.coef_.reshape(3) + np.ravel(model.intercept_)
    assert scores(model, X) == pytest.approx(expected, rel=1e-12)
    if kind is not LDPLinearRegression:
        assert (model.predict(X) == np.where(expected > 0, "yes", "no")).all()
        assert model.classes_.tolist() == ["no", "yes"]


@every
def test_same_model_as_the_engine_trains(kind):
    y = MODELS[kind][1]
    model = made(kind, epsilon=2.0, random_state=7, participations=2).fit(X, y)
    unit = ((X - (LOWS + HIGHS) / 2) * (2 / (HIGHS - LOWS))).astype(np.float32)
    rows = np.c_[unit, np.ones(len(X), np.float32)]
    target = (y - 20) / 120 if kind is LDPLinearRegression else np.where(y == "yes", 1.0, -1.0)
    name = {LDPLinearRegression: "squared", LDPLogisticRegression: "logistic"}.get(kind, "hinge")
    task = Linear(objective(name), Arrays(rows, target.astype(np.float32)))
    training = Settings(epsilon=2.0, participations=2).training(
        task, task.objective.distance, fedldp.source(7)
    )
    assert model.history_ == list(training)
    assert model.n_iter_ == len(model.history_) == training.rounds
    expected = rows[:100].astype(float) @ training.models[0]
    if kind is LDPLinearRegression:
        expected = 20 + 120 * expected
    assert scores(model, X[:100]) == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_probabilities_are_those_of_the_scores():
    model = made(LDPLogisticRegression).fit(X, LABEL)
    probabilities = model.predict_proba(X)
    odds = np.log(probabilities[:, 1] / probabilities[:, 0])
    assert odds == pytest.approx(model.decision_function(X), abs=1e-9)
    assert probabilities.sum(axis=1) == pytest.approx(1.0)
    assert not hasattr(LDPLinearSVC, "predict_proba")


@every
def test_scalar_bounds_are_those_of_every_feature(kind):
    y = MODELS[kind][1]
    one = made(kind, bounds=(-5, 200)).fit(X, y)
    each = made(kind, bounds=(np.full(3, -5), [200, 200, 200])).fit(X, y)
    mixed = made(kind, bounds=(-5, [200, 200, 200])).fit(X, y)
    assert (one.coef_ == each.coef_).all()
    assert (one.coef_ == mixed.coef_).all()


def test_values_outside_count_as_the_bound():
    within = np.clip(X, LOWS + 2, HIGHS - 2), np.clip(NUMBER, 0, 40)
    choices = {"bounds": (LOWS + 2, HIGHS - 2), "target_bounds": (0, 40)}
    clipped = made(LDPLinearRegression, **choices).fit(*within)
    with pytest.warns(DataWarning, match="clipped"):
        outside = made(LDPLinearRegression, **choices).fit(X, NUMBER)
    assert (clipped.coef_ == outside.coef_).all()
    assert clipped.intercept_ == outside.intercept_


def test_random_state():
    def coefficients(random_state):
        model = made(LDPLogisticRegression, random_state=random_state)
        return model.fit(X[:1000], LABEL[:1000]).coef_.tolist()

    assert coefficients(3) == coefficients(3) == coefficients(np.int64(3))
    assert coefficients(3) != coefficients(4)
    assert coefficients(None) != coefficients(None)  # equal once in 2^50 runs or less
    state = np.random.RandomState(3)
    first = coefficients(state)
    assert first == coefficients(np.random.RandomState(3))
    assert first != coefficients(state)  # which has moved on
    with pytest.raises(ValueError, match="cannot be used to seed"):
        coefficients("three")


@pytest.mark.filterwarnings("ignore::fedldp.learn.estimators.PrivacyWarning")
def test_in_a_pipeline_and_in_cross_validation():
    model = made(LDPLogisticRegression, bounds=(-1, 1), epsilon=4.0)
    scale = FunctionTransformer(lambda rows: 2 * (rows - LOWS) / (HIGHS - LOWS) - 1)
    pipeline = make_pipeline(scale, model)
    found = cross_val_score(pipeline, X, LABEL, cv=3)
    assert found.shape == (3,)
    # The best model has 0.84. Over 20 other seeds the worst of three folds has 0.833, with a
    # deviation of 0.0012: a false alarm in less than one seed of 10^9.
    assert found.min() > 0.8
    whose = np.arange(len(X)) // 2
    pairs = cross_val_score(
        pipeline, X, LABEL, cv=3, params={"ldplogisticregression__vehicle_ids": whose}
    )
    assert pairs.min() > 0.8


@every
def test_clone_and_pickle(kind):
    y = MODELS[kind][1]
    model = made(kind, epsilon=2.0, momentum=0.5).fit(X[:1000], y[:1000])
    twin = clone(model)
    assert not hasattr(twin, "coef_")
    assert twin.get_params().keys() == model.get_params().keys()
    assert (twin.epsilon, twin.momentum) == (2.0, 0.5)
    with pytest.warns(PrivacyWarning):
        assert (twin.fit(X[:1000], y[:1000]).coef_ == model.coef_).all()
    restored = pickle.loads(pickle.dumps(model))
    assert (restored.predict(X) == model.predict(X)).all()
    assert restored.privacy_ == model.privacy_
    assert restored.history_ == model.history_


def test_data_frames():
    frame = pd.DataFrame(X, columns=["speed", "slope", "load"])
    model = made(LDPLogisticRegression).fit(
        frame, pd.Series(LABEL), vehicle_ids=pd.Series(LABEL).index
    )
    assert model.feature_names_in_.tolist() == ["speed", "slope", "load"]
    assert (model.coef_ == made(LDPLogisticRegression).fit(X, LABEL).coef_).all()
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["load", "speed", "slope"]])


def test_rows_are_not_copied():
    rows = np.zeros((100_000, 40))
    rows[::2] = 1.0
    model = LDPLinearSVC(bounds=(0, 1), random_state=0)
    tracemalloc.start()
    try:
        model.fit(rows, rows[:, 0])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < rows.nbytes / 2


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    monkeypatch.delitem(sys.modules, "fedldp.learn.estimators")
    with pytest.raises(MissingExtra, match=r"scikit-learn .*extra 'learn'"):
        import fedldp.learn.estimators  # noqa: F401
