"""Rows, targets and references that the tests of the estimators share."""

import numpy as np
from sklearn.base import is_regressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.svm import LinearSVC

import fedldp
from fedldp.learn.estimators import (
    LDPLinearRegression,
    LDPLinearSVC,
    LDPLogisticRegression,
    LDPMLPClassifier,
    LDPMLPRegressor,
    _LinearModel,
)

LOWS, HIGHS = np.array([0.0, -5.0, 100.0]), np.array([10.0, 5.0, 200.0])
TARGET = (-100.0, 140.0)


def fleet(n=20_000):
    """Rows in their own units, a number that follows them, and a label that often does."""
    source = fedldp.source(5)
    X = LOWS + (HIGHS - LOWS) * source.uniform((n, 3))
    z = 0.8 * (X[:, 0] - 5) - 0.5 * X[:, 1] + 0.02 * (X[:, 2] - 150)
    number = 10 * z + 20 + 10 * (source.uniform(n) - 0.5)
    label = np.where(source.uniform(n) < 1 / (1 + np.exp(-z)), "yes", "no")
    return X, number, label


X, NUMBER, LABEL = fleet()
REFERENCES = {  # what each estimator is compared with, and its target
    LDPLinearRegression: (LinearRegression(), NUMBER),
    LDPLogisticRegression: (LogisticRegression(C=1e6), LABEL),
    LDPLinearSVC: (LinearSVC(), LABEL),
    LDPMLPClassifier: (LogisticRegression(C=1e6), LABEL),  # these rows are best for a line
    LDPMLPRegressor: (LinearRegression(), NUMBER),
}
LINEAR = [kind for kind in REFERENCES if issubclass(kind, _LinearModel)]


def made(kind, **choices):
    choices = {"bounds": (LOWS, HIGHS), "random_state": 0} | choices
    if is_regressor(kind()):
        choices = {"target_bounds": TARGET} | choices
    return kind(**choices)


def scores(model, rows):
    return model.predict(rows) if is_regressor(model) else model.decision_function(rows)
