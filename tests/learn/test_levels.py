"""Vehicles that choose their own epsilon (the paper's ULDP): a plan for each level."""

import numpy as np
import pytest
from fleets import Spy, fleet, plan_for, stream
from spellings import flat_plan
from tape import Tape

import fedldp
from fedldp import LDPLinearRegression, LDPLogisticRegression, Schema
from fedldp.errors import DomainError, WireError
from fedldp.learn import (
    SGD,
    Adam,
    NoPrivacy,
    Privacy,
    Procedure,
    Recipe,
    Settings,
    Training,
    VehicleRows,
)
from fedldp.learn.tasks import Task
from fedldp.plan.parts import Matrix
from fedldp.plan.strategies import Sample

ESTIMATORS = ("ratio", "horvitz-thompson")
PLAIN = Recipe(SGD(1.0, momentum=0.0, average=False))


def plans_for(d, *epsilons, mechanism="hm-tp", **options):
    return [
        flat_plan(Schema.vector(d, 1.0), each, mechanism=mechanism, **options) for each in epsilons
    ]


def train(task, plans, levels, recipe=PLAIN, seed=1, group=100, participations=1, **options):
    procedure = Procedure(tuple(plans), recipe, group, participations, levels=levels)
    return Training(task, procedure, fedldp.source(seed), **options)


class Own(Task):
    """Each vehicle has a gradient of its own, the same in all rounds."""

    kind, dimensions = "own", 0

    def __init__(self, values):
        self.values, self.dimensions = np.asarray(values), np.shape(values)[1]

    def __len__(self):
        return len(self.values)

    def gradients(self, weights, vehicles):
        return Matrix(np.tile(self.values[vehicles], (len(weights), 1)))


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("options", [{"k": 1}, {"k": "paper"}, {"strategy": "split"}])
def test_levels_are_weighted_by_their_known_variance(estimator, options):
    """Once more by hand, from each level's own reports."""
    d, n = 4, 900
    plans = plans_for(d, 1.0, 3.0, 6.0, **options)
    task, levels = fleet(n, d), np.arange(n) % 7 % 3
    recipe = Recipe(SGD(0.5, momentum=0.0, average=False, estimator=estimator))
    training = train(task, plans, levels, recipe, shuffle=False, group=n)
    training.advance()
    _, rng = stream(1)
    gradients = task.gradients(np.zeros((1, d)), slice(None)).all(np.arange(d))
    top, bottom = np.zeros(d), np.zeros(d)
    for level, plan in enumerate(plans):
        tally = plan.simulate(gradients[levels == level], rng)
        found, part = tally.estimate(estimator)["x"], plan.parts[0]
        noise = part.coders[0].variance(0.0)
        answers = found.answers if estimator == "ratio" else tally.reports * part.k / d
        variance = noise / answers  # of the mean, where gradients are small
        top, bottom = top + found.mean / variance, bottom + 1 / variance
    np.testing.assert_allclose(training.models[0], -0.5 * top / bottom, rtol=1e-9)


def test_one_level_is_a_plain_training():
    task, plan = fleet(600, 3), plan_for(3)
    plain = Training(task, Procedure(plan, Recipe(Adam(0.3)), group=100), fedldp.source(2))
    other = train(task, [plan], np.zeros(600, int), Recipe(Adam(0.3)), seed=2)
    assert [each.bytes for each in plain] == [each.bytes for each in other]
    np.testing.assert_allclose(other.models, plain.models, rtol=1e-12)


@pytest.mark.parametrize("replicas", [1, 3])
def test_each_vehicle_answers_with_its_own_epsilon(replicas, monkeypatch):
    """The gradient tells whose it is."""
    n, d, epsilons = 400, 2, (0.5, 2.0, 7.0)
    levels = fedldp.source(3).below(3, n)
    task = Own(np.tile((np.arange(n)[:, None] + 1) / 1000, (1, d)))
    tape = Tape(monkeypatch)
    training = train(task, plans_for(d, *epsilons, k=1), levels, group=50, replicas=replicas)
    list(training)
    drawn = [event for event in tape.events if isinstance(event, tuple)]
    asked = [(round(float(each) * 1000) - 1, epsilon) for epsilon, x, _ in drawn for each in x]
    assert sorted(asked) == sorted([(i, epsilons[levels[i]]) for i in range(n)] * replicas)
    assert training.reports_by_level == np.bincount(levels).tolist()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_combination_is_unbiased_and_better_than_each(estimator):
    """4,000 replicas; |z| < 5, by chance in 1 of 10^6 runs. Variances are far from each other."""
    n, d, replicas = 240, 3, 4000
    rng = np.random.default_rng(1)
    task = Own(rng.uniform(-0.6, 0.4, (n, d)))
    levels = np.arange(n) % 2
    plans = plans_for(d, 2.0, 4.0, k=1)
    recipe = Recipe(SGD(1.0, momentum=0.0, average=False, estimator=estimator))
    spread = []
    for chosen, kept in ((plans, levels), (plans[:1], levels * 0), (plans[1:], levels * 0)):
        # One level alone has its own half of the fleet.
        mine = task if len(chosen) == 2 else Own(task.values[levels == (chosen[0] is plans[1])])
        training = train(mine, chosen, kept[: len(mine)], recipe, group=n, replicas=replicas)
        training.advance()
        found = -training.models
        spread.append(found.var(axis=0).sum())
        if len(chosen) == 2:
            noise = [float(plan.parts[0].coders[0].variance(0.0)) for plan in plans]
            weights = np.array([1 / each for each in noise]) / sum(1 / each for each in noise)
            truth = sum(
                weight * task.values[levels == level].mean(axis=0)
                for level, weight in enumerate(weights)
            )
            z = (found.mean(axis=0) - truth) / (found.std(axis=0) / np.sqrt(replicas))
            # The ratio's number of answers varies, so that its weights do a little.
            assert np.abs(z).max() < (5 if estimator == "horvitz-thompson" else 6)
    assert spread[0] < min(spread[1:]) * 0.95


def test_a_level_that_nobody_has():
    task = fleet(300, 3)
    plans = plans_for(3, 1.0, 4.0)
    training = train(task, plans, np.ones(300, int), group=50)
    list(training)
    assert training.reports_by_level == [0, 300]
    alone = train(task, plans[1:], np.zeros(300, int), group=50)
    list(alone)
    np.testing.assert_allclose(training.models, alone.models, rtol=1e-12)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_coordinate_that_nobody_answered_stays(estimator):
    recipe = Recipe(SGD(1.0, momentum=0.0, average=False, estimator=estimator))
    task = Own(np.full((2, 500), 0.5))
    training = train(task, plans_for(500, 1.0, 2.0, k=1), [0, 1], recipe, group=2)
    training.advance()
    assert np.isfinite(training.models).all()
    assert np.count_nonzero(training.models) <= 2


@pytest.mark.parametrize("shuffle", [True, False])
def test_progress_and_resume(shuffle):
    n, plans = 450, plans_for(3, 1.0, 4.0)
    levels = fedldp.source(1).below(2, n)
    options = {"participations": 2, "shuffle": shuffle, "group": 90}
    whole = train(fleet(n, 3), plans, levels, **options)
    texts, seen = [whole.to_json()], []
    for progress in whole:
        texts.append(whole.to_json())
        seen.append(progress)
        sent = sum(
            (reports * plan.bits + 7) // 8
            for reports, plan in zip(whole.reports_by_level, plans, strict=True)
        )
        assert progress.bytes == sent
        assert sum(whole.reports_by_level) == progress.reports
    assert whole.reports_by_level == (2 * np.bincount(levels)).tolist()
    assert [float(each.epsilon) for each in seen] == [4.0] * 5 + [8.0] * 5
    for done in (0, 3, 5, 7, 10):
        again = train(fleet(n, 3), plans, levels, **options)
        again.resume(texts[done])
        assert list(again) == seen[done:]
        assert again.to_json() == texts[-1]
    for wrong in (1 - levels, np.roll(levels, 1)):
        with pytest.raises(WireError, match="other settings"):
            train(fleet(n, 3), plans, wrong, **options).resume(texts[3])
    with pytest.raises(WireError, match="other settings"):
        train(fleet(n, 3), plans_for(3, 1.0, 4.1), levels, **options).resume(texts[3])


@pytest.mark.parametrize(
    ("plans", "levels", "said"),
    [
        (plans_for(1, 1.0, 2.0), None, "several plans need levels"),
        (plans_for(1, 1.0, 2.0), [0, 1], "for each of 5 vehicles"),
        (plans_for(1, 1.0, 2.0), [0.0] * 5, "must be a whole number"),
        (plans_for(1, 1.0, 2.0), [0, 1, 2, 0, 0], "levels must be from 0 to 1"),
        (plans_for(1, 1.0, 2.0), [0, -1, 1, 0, 0], "levels must be from 0 to 1"),
        ([NoPrivacy(Schema.vector(1, 1.0))], [0] * 5, "needs a plan with privacy"),
        ([], [0] * 5, "plan must be a Plan, or a Plan for each level"),
        ([Schema.vector(1, 1.0)], [0] * 5, "plan must be a Plan"),
        ([*plans_for(1, 1.0), plan_for(1, bound=2.0)], [0] * 5, "must have the same schema"),
        (plans_for(2, 1.0, 2.0), [0] * 5, "must be for a vector of 1 numbers"),
    ],
)
def test_levels_that_cannot_be(plans, levels, said):
    with pytest.raises(DomainError, match=said):
        train(Spy(5, 1), plans, levels)


# Settings and estimators


def test_settings_make_a_plan_for_each_level():
    settings = Settings(9.0, Sample(k=1, mechanism="duchi"), group=7)
    levels, places = settings.levels([2.0, 0.5, 2.0, 2.0])
    assert levels == [
        Settings(each, Sample(k=1, mechanism="duchi"), group=7) for each in (0.5, 2.0)
    ]
    assert places.tolist() == [1, 0, 1, 1]
    for wrong in ([], 1.0, [[1.0]], ["a"], [1.0, np.nan], [0.0]):
        with pytest.raises(DomainError, match="epsilon"):
            settings.levels(wrong)
    with pytest.raises(DomainError, match="leave them out"):
        Settings(None).levels([1.0])


def test_the_paper_with_vehicles_that_choose():
    settings = Settings.paper(1.0, learning_rate=0.5, group=100)
    epsilons = np.where(np.arange(1000) % 2, 1.0, 6.0)
    training = settings.training(fleet(1000, 4), 8.0, fedldp.source(1), epsilons=epsilons)
    plans = [Settings.paper(each).plan(4) for each in (1.0, 6.0)]
    assert [plan.parts[0].k for plan in plans] == [1, 2]
    levels = (epsilons == 6.0).astype(int)
    other = train(fleet(1000, 4), plans, levels, settings.recipe(4, 10, 8.0), group=100)
    list(training)
    list(other)
    assert training.models.tolist() == other.models.tolist()


X = fedldp.source(1).uniform((3000, 2))
Y = X[:, 0] + X[:, 1] > 1.2
EPSILONS = np.where(np.arange(3000) % 3, 0.5, 4.0)


def model(kind=LDPLogisticRegression, **options):
    return kind(bounds=(0, 1), random_state=1, strategy=Sample(mechanism="hm-tp"), **options)


def test_estimators_take_epsilons():
    fitted = model().fit(X, Y, epsilons=EPSILONS)
    assert fitted.privacy_.epsilon == 4
    assert fitted.privacy_.reports == 3000
    assert {key: each.reports for key, each in fitted.levels_.items()} == {0.5: 2000, 4.0: 1000}
    assert fitted.levels_[0.5].epsilon * 2 == 1
    assert fitted.privacy_.bytes == sum(each.bytes for each in fitted.levels_.values())
    assert fitted.score(X, Y) > 0.8
    same = model(epsilon=4.0).fit(X, Y, epsilons=np.full(3000, 4.0))
    alone = model(epsilon=4.0).fit(X, Y)
    np.testing.assert_allclose(same.coef_, alone.coef_, rtol=1e-9)
    assert same.privacy_ == alone.privacy_
    assert alone.levels_ == {4.0: alone.privacy_}
    bare = model(LDPLogisticRegression).set_params(epsilon=None).fit(X, Y)
    assert (bare.privacy_, bare.levels_) == (None, {})


def test_those_who_allow_more_help():
    """Of 40 seeds: with a third of the fleet at epsilon 4 the error is smaller nearly always."""

    def error(seed, epsilons):
        fitted = model(LDPLinearRegression, target_bounds=(0, 2)).set_params(random_state=seed)
        fitted.fit(X, X.sum(axis=1), epsilons=epsilons)
        return np.mean((fitted.predict(X) - X.sum(axis=1)) ** 2)

    better = [error(seed, EPSILONS) < error(seed, np.full(3000, 0.5)) for seed in range(40)]
    assert sum(better) >= 35


def test_epsilons_of_vehicles_with_several_rows():
    clients = np.repeat(np.arange(1000)[::-1], 3)
    fitted = model().fit(X, Y, vehicle_ids=clients, epsilons=np.repeat(EPSILONS[:1000], 3))
    assert {key: each.reports for key, each in fitted.levels_.items()} == {0.5: 666, 4.0: 334}
    with pytest.raises(DomainError, match="the same in all rows of a vehicle"):
        model().fit(X, Y, vehicle_ids=clients, epsilons=EPSILONS)


def test_vehicles_with_one_value_in_all_rows():
    grouped = VehicleRows(np.array([5, 3, 5, 9]))
    assert grouped.one_each(["b", "a", "b", "c"]).tolist() == ["a", "b", "c"]
    assert grouped.one_each(["b", "a", "x", "c"]) is None


def test_epsilons_that_cannot_be():
    for wrong, said in (
        ([1.0, 2.0], "one for each of 3000 rows"),
        (np.full(3000, np.nan), "epsilon must be"),
        (np.full(3000, 99.0), "epsilon must be"),
        (["a"] * 3000, "epsilons"),
    ):
        with pytest.raises(DomainError, match=said):
            model().fit(X, Y, epsilons=wrong)
    with pytest.raises(DomainError, match="leave them out"):
        model().set_params(epsilon=None).fit(X, Y, epsilons=EPSILONS)


def test_what_levels_spend_together():
    plans = plans_for(4, 1.0, 4.0)
    both = [Privacy.of(plan, reports=100) for plan in plans]
    found = Privacy.of_levels(both)
    assert (found.epsilon, found.reports) == (4, 200)
    assert found.ratio == both[1].ratio
    assert found.bytes == both[0].bytes + both[1].bytes
    study = Privacy.of(plans_for(4, 1.0, study=True)[0], reports=5)
    assert Privacy.of_levels([study, both[1]]).ratio is None
