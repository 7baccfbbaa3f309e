"""The scikit-learn estimators: what the contract in tests/contracts does not cover."""

import sys
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from estimator_cases import HIGHS, LABEL, LOWS, NUMBER, X, made
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from fedldp.errors import DataWarning, MissingExtra
from fedldp.learn.estimators import LDPLinearRegression, LDPLinearSVC, LDPLogisticRegression

# Most fleets here have a few vehicles.
pytestmark = pytest.mark.filterwarnings("ignore::fedldp.errors.AccuracyWarning")


def test_probabilities_are_those_of_the_scores():
    model = made(LDPLogisticRegression).fit(X, LABEL)
    probabilities = model.predict_proba(X)
    odds = np.log(probabilities[:, 1] / probabilities[:, 0])
    assert odds == pytest.approx(model.decision_function(X), abs=1e-9)
    assert probabilities.sum(axis=1) == pytest.approx(1.0)
    assert not hasattr(LDPLinearSVC, "predict_proba")


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
