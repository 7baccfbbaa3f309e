"""What the estimators say of privacy, when they warn, and what they refuse."""

import json
import re
import warnings
from fractions import Fraction

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score

import fedldp
from fedldp.errors import DomainError
from fedldp.learn.estimators import (
    LDPLinearRegression,
    LDPLogisticRegression,
    PrivacyWarning,
)
from fedldp.learn.optimizer import Adam
from fedldp.learn.settings import Settings
from fedldp.plan.strategies import Sample

# Most fleets here have a few vehicles.
pytestmark = pytest.mark.filterwarnings("ignore::fedldp.errors.AccuracyWarning")

X = fedldp.source(1).uniform((600, 2))
LABEL = (X[:, 0] > 0.5).astype(int)


def classifier(**choices):
    return LDPLogisticRegression(**{"bounds": (0, 1), "random_state": 0} | choices)


def regression(**choices):
    defaults = {"bounds": (0, 1), "target_bounds": (0, 1), "random_state": 0}
    return LDPLinearRegression(**defaults | choices)


def below_e_to(epsilon):
    """Return a rational number just below e^epsilon: the first terms of its series."""
    total = term = Fraction(1)
    for i in range(1, 100):
        term *= Fraction(epsilon) / i
        total += term
    return total


def largest_ratio(plan):
    """Return by what factor a vector can change the odds of a report, from the plan's file."""
    document = json.loads(plan.to_json())
    (part,) = document["parts"]
    counts = np.array(document["tables"][0]["counts"], dtype=object)
    columns = [[int(count) for count in column] for column in counts.T]
    once = max(Fraction(max(column), min(column)) for column in columns if max(column))
    return once ** part["k"]


@pytest.mark.parametrize("participations", [1, 2])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_spent_is_at_most_epsilon_exactly(epsilon, participations):
    options = {"epsilon": epsilon, "participations": participations, "strategy": "sample"}
    model = classifier(**options).fit(X, LABEL)
    privacy = model.privacy_
    plan = Settings(**options).plan(3)
    assert privacy.ratio == largest_ratio(plan) ** participations
    assert privacy.ratio <= below_e_to(epsilon)
    assert privacy.ratio > below_e_to(0.99 * epsilon)  # and nothing of epsilon is wasted
    assert privacy.epsilon <= Fraction(str(epsilon))
    assert float(privacy.epsilon) == pytest.approx(epsilon)
    assert privacy.participations == participations
    assert privacy.reports == participations * len(X) == model.history_[-1].reports
    assert privacy.bits == plan.bits
    assert privacy.bytes == -(-privacy.reports * privacy.bits // 8) == model.history_[-1].bytes


def test_other_ways_to_report():
    cube = classifier(strategy="cube").fit(X, LABEL).privacy_
    assert cube.ratio <= below_e_to(1)
    assert cube.bits == 3  # a sign of each of 3 weights
    study = classifier(strategy=Sample(mechanism="laplace", study=True)).fit(X, LABEL).privacy_
    assert (study.ratio, study.bytes, study.reports) == (None, 0, len(X))


def test_participations_have_a_price():
    assert classifier().fit(X, LABEL).price_ == 1.0
    twice = classifier(participations=2).fit(X, LABEL)
    assert twice.price_ == Settings(epsilon=1.0, participations=2).price(3) > 1.5


def test_a_training_that_settles_early_spends_less():
    model = classifier(participations=2, optimizer=Adam(tol=1e9)).fit(X, LABEL)
    assert model.n_iter_ == 1
    assert model.privacy_.participations == 1
    assert model.privacy_.reports == model.history_[0].reports < len(X)
    assert float(model.privacy_.epsilon) == 0.5


def test_a_vehicle_with_several_rows_reports_once():
    single = classifier().fit(X, LABEL)
    rng = fedldp.source(2)
    order = np.argsort(rng.words(3 * len(X)))
    rows, whose = np.repeat(X, 3, axis=0)[order], np.repeat(np.arange(len(X)), 3)[order]
    several = classifier().fit(rows, np.repeat(LABEL, 3)[order], vehicle_ids=whose)
    assert several.privacy_ == single.privacy_
    assert several.coef_ == pytest.approx(single.coef_, rel=1e-9)  # the mean of equal gradients
    named = np.char.add("vehicle ", np.char.zfill(whose.astype(str), 4))
    assert (
        several.coef_ == classifier().fit(rows, np.repeat(LABEL, 3)[order], vehicle_ids=named).coef_
    ).all()


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        (np.arange(599), r"each of 600 rows; got an array of shape \(599,\)"),
        (np.zeros((600, 1)), r"got an array of shape \(600, 1\)"),
        (np.r_[np.arange(599.0), np.nan], "some are missing"),
        (["a"] * 599 + [None], "some are missing"),
    ],
)
def test_refuses_clients_that_do_not_say_whose_each_row_is(clients, message):
    with pytest.raises(DomainError, match=message):
        classifier().fit(X, LABEL, vehicle_ids=clients)


def test_warns_when_vehicles_are_asked_again():
    model = classifier(epsilon=4.0).fit(X, LABEL)
    with pytest.warns(PrivacyWarning, match="fit number 2 .* epsilon = 8 ") as seen:
        model.fit(X, LABEL)
    assert seen[0].filename == __file__  # it points to the call
    model.fit(X, LABEL)
    with pytest.warns(PrivacyWarning, match="fit number 4 .* epsilon = 13 "):
        clone(clone(model)).set_params(epsilon=1.0).fit(X, LABEL)


def test_a_warning_made_an_error_comes_before_anything_is_spent():
    model = classifier(epsilon=4.0).fit(X, LABEL)
    for _ in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(PrivacyWarning, match="fit number 2 "):
                model.fit(X, LABEL)


def test_other_estimators_and_those_without_privacy_do_not_warn():
    for _ in range(3):
        classifier().fit(X, LABEL)
    open_ = classifier(epsilon=None)
    for _ in range(3):
        clone(open_).fit(X, LABEL)


def test_searches_warn():
    search = GridSearchCV(classifier(epsilon=2.0), {"optimizer": [Adam(0.1), Adam(0.3)]}, cv=3)
    with pytest.warns(PrivacyWarning) as seen:
        search.fit(X, LABEL)  # 6 fits, and 1 of the best
    found = [re.search(r"fit number (\d+)", str(each.message))[1] for each in seen]
    assert found == ["2", "4"]
    assert hasattr(search.best_estimator_, "privacy_")
    with pytest.warns(PrivacyWarning, match="fit number 8 .* epsilon = 16 "):
        clone(search.estimator).fit(X, LABEL)
    with pytest.warns(PrivacyWarning, match="search and cross-validate on public data"):
        cross_val_score(classifier(), X, LABEL, cv=2)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        (None, r"target_bounds=\(low, high\).* never from the data"),
        (1.0, r"target_bounds must be a pair \(low, high\); got 1.0"),
        ((1, 0), "low of 'y' must be below high"),
        (([0, 0], [1, 1]), "low of 'y' must be a finite number"),
    ],
)
def test_refuses_invalid_target_bounds(bounds, message):
    with pytest.raises(DomainError, match=message):
        regression(target_bounds=bounds).fit(X, LABEL)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        (1.0, r"must be a pair \(low, high\); got 1.0"),
        ((0, 1, 2), "must be a pair"),
        ((1, 0), "low of 'X' must be below high.* got 1.0 and 0.0"),
        ((0, np.inf), "high of 'X' must be a finite number; got inf"),
        ((np.nan, 1), "low of 'X' must be a finite number"),
        (("a", "b"), "a number for each of the 2"),
        (([0, 0, 0], [1, 1, 1]), "a number for each of the 2"),
        (([0, "a"], [1, 1]), "a number for each of the 2"),
        (([0, 1], [1, 1]), r"low of 'X\[:, 1\]' must be below high"),
        (([0, 0], [1, np.nan]), r"high of 'X\[:, 1\]' must be a finite number"),
        (((0, 10), (5, 20)), "a list with an entry for each column"),  # two pairs, or two ends?
        (np.array([[0, 10], [5, 20]]), "a list with an entry for each column"),
        ([[0, 10], [5, 20]], r"'X\[:, 0\]' must be bounds in round brackets"),
        ([(0, 1)], "an entry for each of the 2 columns; got 1"),
        ({"a": (0, 1), "b": (0, 1)}, "bounds by name need a data frame"),
    ],
)
def test_refuses_invalid_bounds(bounds, message):
    with pytest.raises(DomainError, match=message):
        classifier(bounds=bounds).fit(X, LABEL)


def test_more_participations_than_epsilon_allows():
    with pytest.raises(DomainError, match="Ask for fewer"):
        classifier(participations=10_000).fit(X, LABEL)


def test_needs_at_least_two_classes():
    with pytest.raises(DomainError, match="two labels; got 1 class"):
        classifier().fit(X, np.zeros(600))
    assert len(classifier().fit(X, np.arange(600) % 3).classes_) == 3
    with pytest.raises(ValueError, match="Unknown label type"):
        classifier().fit(X, X[:, 0])


def test_refused_data_cost_nothing():
    model = classifier()
    for _ in range(3):
        with pytest.raises(DomainError):
            model.fit(X, np.zeros(600))
        with pytest.raises(DomainError):
            model.fit(X, LABEL, vehicle_ids=[1])
    model.fit(X, LABEL)  # without a warning: it is the first


def test_a_training_that_diverges_is_refused():
    model = regression(epsilon=None, optimizer="sgd", alpha=1e4, group=60)
    with pytest.raises(DomainError, match="diverged"):
        model.fit(X, X[:, 0])
    with pytest.raises(ValueError, match="not fitted"):
        model.predict(X)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_fewer_vehicles_than_a_group(n):
    number = regression(group=1000).fit(X[:n], X[:n, 0])
    assert (number.n_iter_, number.privacy_.reports) == (1, n)
    assert np.isfinite(number.predict(X)).all()
    if n > 1:
        label = classifier().fit(X[:n], np.arange(n) > 0)
        assert label.privacy_.reports == n
        assert set(label.predict(X)) <= {False, True}


@pytest.mark.parametrize("value", [0.0, 0.25, 1.0])
def test_constant_features(value):
    rows = np.c_[np.full(600, value), X[:, 0]]
    model = regression(epsilon=None, participations=5).fit(rows, X[:, 0])
    assert model.score(rows, X[:, 0]) > 0.99
    private = regression(epsilon=8.0).fit(np.full((600, 1), value), np.full(600, 0.75))
    # One number is all there is to learn. Over 200 other seeds the answers have a deviation of
    # 0.007 around it, and 0.05 is 7 of these: a false alarm in less than one seed of 10^9.
    assert private.predict([[value]]) == pytest.approx(0.75, abs=0.05)


def test_ids_of_several_kinds():
    ids = np.array([1, "a"] * (len(X) // 2), object)
    assert classifier().fit(X, LABEL, vehicle_ids=ids).privacy_.reports == 2
