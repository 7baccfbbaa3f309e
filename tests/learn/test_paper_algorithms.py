"""The paper's method as a whole, against a page of plain Python that follows the paper's text.

Where a comparison is exact, the page uses the noise that the library drew, from a tape, and checks
what went into the mechanisms. Where it is sampled, the page draws noise of its own, with Python's
generator and its own formulas.
"""

import csv
import json
import random
from dataclasses import replace
from functools import partial
from itertools import pairwise
from math import exp, floor
from pathlib import Path

import numpy as np
import paper_page as page
import pytest
from click.testing import CliRunner
from fleets import NAMES, fleet
from scipy import stats
from tape import Replay, Tape
from trips import CITIES, LATE, SCHEMA, document, invoke, prepare, saved

import fedldp
from fedldp import (
    LDPLinearRegression,
    LDPLinearSVC,
    LDPLogisticRegression,
    Plan,
    Schema,
    datasets,
)
from fedldp.budget.vehicle import for_vehicle
from fedldp.cli.app import fedldp as command_line
from fedldp.errors import DomainError
from fedldp.learn import Features, Model, NoPrivacy, Settings, Training
from fedldp.learn.optimizer import Adam
from fedldp.learn.tasks import Task
from fedldp.mechanisms import PAPER_MECHANISMS, discretize
from fedldp.plan.strategies import Paper, Sample

D, GROUP, N = 20, 300, 1500
PROPOSED = tuple(page.MECHANISMS)


class Asked(Task):
    """A task that notes who was asked in each round."""

    kind, dimensions = "asked", 0

    def __init__(self, task):
        self.task, self.groups = task, []
        self.kind, self.dimensions = task.kind, task.dimensions

    def __len__(self):
        return len(self.task)

    def gradients(self, weights, vehicles):
        self.groups.append(np.arange(len(self))[vehicles].tolist())
        return self.task.gradients(weights, vehicles)


def both(monkeypatch, settings, name="logistic", n=N, d=D, tol=0.0, max_iter=10**9, close=1e-6):
    """Train with the library, then by the page with the same noise; return both and the rounds."""
    with monkeypatch.context() as patch:
        tape, task = Tape(patch), Asked(fleet(n, d, name))
        training = settings.training(task, 8.0, fedldp.source(5))
        list(training)
    k = page.k_of(settings.epsilon, d)
    replay = Replay([tape.answers(k, d) for _ in task.groups], close)
    rows, targets = (each.tolist() for each in task.task.examples.read(slice(None)))
    # Groups that the library did not ask: the page has no answers from them.
    everyone = [*task.groups, *([] for _ in range(-(-n // int(settings.group)) - len(task.groups)))]
    theta, rounds = page.ldp_fedsgd(
        d,
        everyone,
        lambda theta, i: page.true_gradient(name, theta, rows[i], targets[i]),
        lambda x: page.perturb_tuple(x, settings.epsilon, replay.sample, replay.one),
        rate=settings.optimizer.learning_rate,
        max_iter=max_iter,
        tol=tol,
        weight=settings.alpha,
    )
    assert replay.used_up
    return training, np.array(theta), rounds


# Algorithm 1


@pytest.mark.parametrize("study", [False, True])
@pytest.mark.parametrize("mechanism", PROPOSED)
@pytest.mark.parametrize("epsilon", [1.0, 4.9, 5.0, 9.0])
def test_ldp_fedsgd_as_printed(mechanism, epsilon, study, monkeypatch):
    """Also where k = 1 answers one of 20: there, dividing by those who answered is far off."""
    settings = Settings.paper(epsilon, mechanism, learning_rate=0.5, group=GROUP, study=study)
    training, theta, rounds = both(monkeypatch, settings, tol=settings.optimizer.tol)
    assert rounds == training.state.round == N // GROUP
    np.testing.assert_allclose(training.models[0], theta, rtol=1e-9, atol=1e-12)
    assert np.abs(theta).max() > 0.1


@pytest.mark.parametrize("name", NAMES)
def test_every_objective_as_printed(name, monkeypatch):
    settings = Settings.paper(6.0, learning_rate=0.02, group=50, outputs=2001, alpha=0.3)
    training, theta, _ = both(monkeypatch, settings, name, n=230, d=3)
    np.testing.assert_allclose(training.models[0], theta, rtol=1e-9)


def test_all_attributes_when_there_are_few(monkeypatch):
    """k = min(d, ...): nothing is left to choose."""
    settings = Settings.paper(8.0, "pm-sub", learning_rate=0.5, group=50)
    training, theta, _ = both(monkeypatch, settings, n=230, d=3)
    np.testing.assert_allclose(training.models[0], theta, rtol=1e-9)


CHANGES = {
    "the ratio estimator": partial(replace, estimator="ratio"),
    "momentum": partial(replace, momentum=0.5),
    "average": partial(replace, average=True),
    "a falling rate": partial(replace, schedule="sqrt"),
    "Adam": lambda sgd: Adam(
        sgd.learning_rate, sgd.momentum, sgd.schedule, sgd.average, sgd.tol, sgd.estimator
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_comparison_sees_what_deviates(name, monkeypatch):
    settings = Settings.paper(4.0, learning_rate=0.5, group=GROUP)
    other = replace(settings, optimizer=CHANGES[name](settings.optimizer))
    training, theta, _ = both(monkeypatch, other, close=np.inf)
    assert np.abs(training.models[0] - theta).max() > 0.05


@pytest.mark.parametrize(
    "change", [{"strategy": Sample(2, "hm-tp", 2001)}, {"bound": 2.0}, {"participations": 2}]
)
def test_the_comparison_sees_other_vehicles(change, monkeypatch):
    settings = Settings.paper(4.0, learning_rate=0.5, group=GROUP)
    with pytest.raises((AssertionError, IndexError, ValueError)):
        both(monkeypatch, replace(settings, **change))


# When it stops


def test_it_stops_when_close_enough(monkeypatch):
    settings = Settings.paper(4.0, learning_rate=0.5, group=100)
    steps = [each.change for each in settings.training(fleet(N, D), 8.0, fedldp.source(5))]
    assert len(steps) == 15
    tol = sorted(steps)[2]  # two steps are shorter
    first = next(i for i, step in enumerate(steps, 1) if step < tol)
    assert 1 < first < 15
    settings = replace(settings, optimizer=replace(settings.optimizer, tol=tol))
    training, theta, rounds = both(monkeypatch, settings, tol=tol)
    assert training.state.round == rounds == first
    assert training.finished
    np.testing.assert_allclose(training.models[0], theta, rtol=1e-9)


@pytest.mark.parametrize("max_iter", [1, 4, 15, 99])
def test_it_stops_at_the_maximal_number_of_iterations(max_iter, monkeypatch):
    settings = Settings.paper(4.0, learning_rate=0.5, group=100, max_iter=max_iter)
    training, theta, rounds = both(monkeypatch, settings, max_iter=max_iter)
    assert training.rounds == training.state.round == rounds == min(max_iter, 15)
    assert training.reports == rounds * 100
    np.testing.assert_allclose(training.models[0], theta, rtol=1e-9)


def test_more_rounds_can_be_added_later():
    """A saved training may be resumed with another largest number of rounds."""
    options = {"learning_rate": 0.5, "group": 100}
    short, whole = (
        Settings.paper(4.0, max_iter=most, **options).training(fleet(N, D), 8.0, fedldp.source(5))
        for most in (6, None)
    )
    list(short)
    list(whole)
    resumed = Settings.paper(4.0, max_iter=15, **options)
    resumed = resumed.training(fleet(N, D), 8.0, fedldp.source(5))
    resumed.resume(short.to_json())
    assert len(list(resumed)) == 9
    assert resumed.models.tolist() == whole.models.tolist()
    short.resume(whole.to_json())
    assert short.finished


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "all"])
def test_numbers_of_rounds_that_cannot_be(wrong):
    with pytest.raises(DomainError, match="max_iter must be"):
        Settings.paper(4.0, max_iter=wrong)


# Noise of the page's own


@pytest.mark.parametrize("mechanism", PROPOSED)
def test_models_have_the_papers_distribution(mechanism):
    """Means and variances of 400 trainings by the page; |z| < 5, by chance in 1 of 10^5 runs."""
    epsilon, n, d, runs = 5.5, 60, 3, 400
    settings = Settings.paper(epsilon, mechanism, learning_rate=0.5, group=20, study=True)
    task, rng = fleet(n, d), random.Random(1)
    rows, targets = (each.tolist() for each in task.examples.read(slice(None)))
    groups = [range(at, at + 20) for at in range(0, n, 20)]
    one = page.MECHANISMS[mechanism]
    wanted = np.array(
        [
            page.ldp_fedsgd(
                d,
                groups,
                lambda theta, i: page.true_gradient("logistic", theta, rows[i], targets[i]),
                lambda x: page.perturb_tuple(
                    x,
                    epsilon,
                    lambda k, d: rng.sample(range(d), k),
                    lambda _, x, epsilon: one(x, epsilon, rng),
                ),
                rate=0.5,
                max_iter=100,
                tol=1e-6,
                weight=1e-4,
            )[0]
            for _ in range(runs)
        ]
    )
    training = settings.training(task, 8.0, fedldp.source(1), replicas=10 * runs, shuffle=False)
    list(training)
    found = training.models
    for values in (lambda x: x, lambda x: (x - found.mean(axis=0)) ** 2):
        a, b = values(wanted), values(found)
        error = np.sqrt(a.var(axis=0) / len(a) + b.var(axis=0) / len(b))
        assert np.abs((a.mean(axis=0) - b.mean(axis=0)) / error).max() < 5


@pytest.mark.parametrize("mechanism", PROPOSED)
@pytest.mark.parametrize("epsilon", [0.4, 0.65, 1.0, 2.5, 4.0])
def test_mechanisms_have_the_papers_law(mechanism, epsilon):
    """A two-sample test of 4,000 outputs by the page; by chance in 1 of 10^6 runs."""
    rng, m = random.Random(2), fedldp.mechanism(mechanism, epsilon)
    for x in (-1.0, -0.3, 0.8):
        mine = [page.MECHANISMS[mechanism](x, epsilon, rng) for _ in range(4000)]
        theirs = m.perturb(np.full(40_000, x), fedldp.source(2))
        # Outputs of their own are equal up to rounding only.
        found = stats.ks_2samp(np.round(mine, 9), np.round(theirs, 9))
        assert found.pvalue > 1e-6 / 3


# Algorithm 5


@pytest.mark.parametrize("m", [1, 3, 1000])
def test_discretization_as_printed(m):
    mechanism = fedldp.mechanisms.PMSub(2.0)
    y = mechanism.perturb(np.linspace(-1, 1, 5000), fedldp.source(1))
    z = discretize(y, mechanism.bound, fedldp.source(3), m=m)
    draws = iter(fedldp.source(3).uniform(5000).tolist())

    def bernoulli(p):
        """The library rounds up if a draw is below 1 - p."""
        return 0 if next(draws) < 1 - p else 1

    wanted = [page.discretize(each, mechanism.bound, m, bernoulli) for each in y.tolist()]
    np.testing.assert_allclose(z, wanted, rtol=1e-12, atol=1e-15)
    found = np.unique(np.round(z / mechanism.bound * m)).size
    assert found == 2 * m + 1 if m < 5 else found > m


def test_discretization_of_single_numbers_and_ends():
    source = fedldp.source(1)
    assert discretize(0.25, 0.5, source, m=4) == 0.25
    assert isinstance(discretize(0.3, 0.5, source), float)
    assert discretize([-0.5, 0.0, 0.5], 0.5, source, m=3).tolist() == [-0.5, 0.0, 0.5]
    values = discretize(np.full((2, 5000), 0.3), 1.0, source, m=2)
    assert set(values.reshape(-1)) == {0.0, 0.5}
    assert values.mean() == pytest.approx(0.3, abs=6 * 0.25 / 100)  # by chance in 1 of 10^8 runs
    assert np.unique(discretize(source.uniform(10**5) * 2 - 1, 1.0, source)).size == 2001


@pytest.mark.parametrize("name", ["pm", "pm-sub", "pm-opt", "hm", "hm-tp"])
def test_a_table_is_the_mechanism_and_its_discretization(name):
    """Chi-square of 100,000 outputs at a letter, rejected by chance in 1 of 10^6 runs."""
    mechanism, source = fedldp.mechanism(name, 2.0), fedldp.source(4)
    channel = mechanism.channel(outputs=7)
    letter = len(channel.letters) // 4
    x = np.full(100_000, channel.letters[letter])
    z = discretize(mechanism.perturb(x, source), mechanism.bound, source, m=3)
    places = np.round(z / mechanism.bound * 3).astype(int) + 3
    expected = channel.table[letter] * len(x)
    assert stats.chisquare(np.bincount(places, minlength=7), expected).pvalue > 1e-6


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"y": 1.1}, "y must be numbers from -1 to 1"),
        ({"y": np.nan}, "y must be numbers from -1 to 1"),
        ({"y": "a"}, "y"),
        ({"m": 0}, "m must be at least 1; got 0"),
        ({"m": 1.5}, "m must be a whole number"),
        ({"bound": 0.0}, "bound must be a positive number; got 0"),
        ({"bound": np.inf}, "bound must be a positive number; got inf"),
        ({"source": 7}, "source must be a Source"),
    ],
)
def test_what_cannot_be_discretized(arguments, said):
    with pytest.raises(DomainError, match=said):
        discretize(**{"y": 0.5, "bound": 1.0, "source": fedldp.source(1), "m": 2} | arguments)


# Experiments A: collection

COLUMNS = Schema.of(
    speed=(0, 130), battery=(0, 1), way={"low": -2, "high": 2, "size": 2},
    model=["a", "b", "c", "d"], city=["e", "f", "g", "h"],
)  # fmt: skip


def rows(n):
    rng = random.Random(3)
    return [
        {
            "speed": rng.uniform(0, 130),
            "battery": rng.random() ** 3,
            "way": [rng.uniform(-2, 2), rng.uniform(0, 2)],
            "model": rng.choice("aabcd"),
            "city": rng.choice("efffgh"),
        }
        for _ in range(n)
    ]


@pytest.mark.parametrize("mechanism", PROPOSED)
@pytest.mark.parametrize("study", [False, True])
@pytest.mark.parametrize("epsilon", [1.0, 9.0, 14.0])
def test_collection_as_printed(mechanism, study, epsilon, monkeypatch):
    """Of 4 numbers and 2 categories; k is 1 and 1, 2 and 1, 3 and 1."""
    n, data = 700, rows(700)
    plan = Plan.paper(COLUMNS, epsilon, mechanism=mechanism, study=study)
    with monkeypatch.context() as patch:
        tape = Tape(patch)
        tally = plan.simulate(data, fedldp.source(6))
    replays = {}
    for d, share in ((4, 4 / 6), (2, 2 / 6)):
        k = page.k_of(share * epsilon, d)
        replays[d] = Replay([tape.answers(k, d)])
    assert not tape.events
    unit = [
        (
            [row["speed"] / 65 - 1, row["battery"] * 2 - 1, *(each / 2 for each in row["way"])],
            ["abcd".index(row["model"]), "efgh".index(row["city"])],
        )
        for row in data
    ]
    means, frequencies = page.collect(
        unit,
        range(4),
        [4, 4],
        epsilon,
        lambda k, d: replays[d].sample(k, d),
        replays[4].one,
        replays[2].one,
    )
    assert all(each.used_up for each in replays.values())
    found = tally.estimate()
    assert (found["speed"].mean / 65 - 1, found["battery"].mean * 2 - 1) == pytest.approx(means[:2])
    assert (found["way"].mean / 2).tolist() == pytest.approx(means[2:])
    assert found["model"].frequencies.tolist() == pytest.approx(frequencies[0])
    assert found["city"].frequencies.tolist() == pytest.approx(frequencies[1])
    assert found.reports == n
    assert abs(tally.estimate("ratio")["speed"].mean - found["speed"].mean) > 1e-3


def test_the_plans_estimator_travels_with_its_file(tmp_path):
    plan, plain = (
        Plan.paper(COLUMNS, 3.0),
        Plan(COLUMNS, 3.0, Paper(k="paper", mechanism="hm-tp")),
    )
    assert '"estimator":"horvitz-thompson"' in plan.to_json()
    assert "estimator" not in plain.to_json()
    assert plan != plain
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.estimator == "horvitz-thompson"
    tally = again.parse(plan.report(rows(50), fedldp.source(1)).to_bytes()) + again.tally()
    tally.save(tmp_path / "tally.json")
    tally = again.load_tally(tmp_path / "tally.json")
    wanted = tally.estimate("horvitz-thompson")["speed"].mean
    assert tally.estimate()["speed"].mean == wanted != tally.estimate("ratio")["speed"].mean
    assert plan.expected_error(9) == plan.expected_error(9, estimator="horvitz-thompson")
    assert plan.expected_error(9) > plan.expected_error(9, estimator="ratio")


def test_a_vehicle_answers_the_papers_plan():
    """It needs no estimator, and does not mind it; one that it does not know is refused."""
    plan = Plan.paper(COLUMNS, 3.0)
    vehicle = for_vehicle(plan.to_json(), 3)
    assert (vehicle.fingerprint, vehicle.epsilon) == (plan.fingerprint, plan.total_epsilon)
    other = plan.to_json().replace("horvitz-thompson", "ratio")
    with pytest.raises(fedldp.errors.PrivacyError):
        for_vehicle(other, 3)
    with pytest.raises(fedldp.errors.WireError):
        Plan.from_json(other)
    with pytest.raises(fedldp.errors.WireError, match="estimator must be one of"):
        Plan.from_json(plan.to_json().replace("horvitz-thompson", "median"))


def test_competitors_ask_as_in_the_papers_experiments():
    laplace = Plan.paper(COLUMNS, 6.0, mechanism="laplace", study=True)
    assert [part.k for part in laplace.parts] == [4, 1]
    assert laplace.parts[0].coders[0].epsilon == 1.0  # epsilon / d
    duchi = Plan.paper(COLUMNS, 6.0, mechanism="duchi").parts[0].coders[0]
    assert (duchi.d, duchi.epsilon, duchi.threshold) == (4, 4.0, 0)
    assert Settings.paper(6.0, "laplace", study=True).plan(6).parts[0].k == 6
    assert Settings.paper(6.0, "duchi").plan(6).parts[0].coders[0].threshold == 0
    assert Settings.paper(None).plan(6) == NoPrivacy(Schema.vector(6, 1.0))
    for name in set(PAPER_MECHANISMS) - {"laplace", "duchi"}:
        assert [part.k for part in Plan.paper(COLUMNS, 9.0, mechanism=name).parts] == [2, 1]
        assert Settings.paper(9.0, name).plan(6).parts[0].k == 3


def test_only_the_papers_mechanisms():
    with pytest.raises(DomainError, match="the paper has no mechanism 'near-zero'; choose from"):
        Plan.paper(COLUMNS, 3.0, mechanism="near-zero")
    with pytest.raises(DomainError, match="the paper has no mechanism 'optimal'"):
        Settings.paper(3.0, "optimal")


# Features


def test_categories_as_printed():
    schema = Schema.of(a=["x", "y"], b=[str(i) for i in range(5)], c=["u", "v", "w"])
    data = [{"a": a, "b": str(b), "c": c} for a in "xy" for b in range(5) for c in "uvw"]
    wanted = [
        [
            each
            for item in schema.attributes
            for each in page.one_hot(row[item.name], item.categories)
        ]
        + [1.0]
        for row in data
    ]
    features = Features(schema, reference="last")
    assert features.encode(schema.rows(data).matrix()).tolist() == wanted
    assert features.names == ("a=x", "b=0", "b=1", "b=2", "b=3", "c=u", "c=v", "1")
    assert features.dimensions == 8


def test_references_that_there_are_not():
    with pytest.raises(DomainError, match="reference must be one of"):
        Features(COLUMNS, reference="second")


def test_a_model_says_how_it_reads_categories():
    schema = Schema.of(c=["u", "v", "w"])
    target = fedldp.Category("t", ["no", "yes"])
    weights = [1.0, -2.0, 0.25]
    last, first = (Model("logistic", schema, target, weights, each) for each in ("last", "first"))
    data = [{"c": label} for label in "uvw"]
    assert last.scores(data).tolist() == [3.25, -2.75, 1.25]
    assert first.scores(data).tolist() == [1.25, 3.25, -2.75]
    assert first == Model("logistic", schema, target, weights)
    assert '"format":"fedldp model 2"' in last.to_json()
    assert '"reference":"last"' in last.to_json()
    assert "reference" not in first.to_json()  # as before there was a choice
    assert Model.from_json(last.to_json()) == last
    for text in (
        last.to_json().replace("model 2", "model 1"),
        first.to_json().replace("model 1", "model 2"),
    ):
        with pytest.raises(fedldp.errors.WireError):
            Model.from_json(text)
    for other in ("first", "second", 1, None):
        text = last.to_json().replace('"last"', fedldp.vehicle.canonical(other))
        with pytest.raises(fedldp.errors.WireError):
            Model.from_json(text)


# Where the method is asked for


@pytest.mark.parametrize("kind", [LDPLogisticRegression, LDPLinearSVC, LDPLinearRegression])
def test_estimators_train_by_it(kind):
    public = {"bounds": (-1, 1), "random_state": 5}
    if kind is LDPLinearRegression:
        public["target_bounds"] = (-1, 1)
    model = kind.paper(4.0, "pm-sub", learning_rate=0.05, group=100, max_iter=9, tol=0.0, **public)
    task = fleet(N, D, model._objective, dtype=np.float32)
    x, y = task.examples.read(slice(None))
    model.fit(x[:, :-1], y)  # which adds the constant
    settings = Settings.paper(4.0, "pm-sub", learning_rate=0.05, group=100, max_iter=9, tol=0.0)
    training = settings.training(task, 1.0, fedldp.source(5))
    list(training)
    found = [*np.ravel(model.coef_), *np.ravel(model.intercept_)]
    np.testing.assert_allclose(found, training.models[0], rtol=1e-6)
    assert model.n_iter_ == 9
    assert model.privacy_.reports == 900


@pytest.mark.parametrize("make", [Settings.paper, LDPLogisticRegression.paper])
def test_what_the_paper_decides_cannot_be_written(make):
    for name in ("k", "optimizer", "momentum", "estimator", "participations", "speed"):
        with pytest.raises(TypeError, match=name):
            make(4.0, **{name: 1})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prepare()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("study", [False, True])
def test_the_command_as_printed(study, monkeypatch):
    """From the file to the model: rows are read, encoded and learnt from once more, by hand."""
    options = "--epsilon", 5, "--group", 200, "--learning-rate", 0.5, "--save", "model.json"
    with monkeypatch.context() as patch:
        tape = Tape(patch)
        groups = []
        plain = Training.advance
        patch.setattr(Training, "advance", lambda self: groups.append(self) or plain(self))
        found = document(*LATE, "--paper", *options, *(["--study"] if study else []))
    assert found["mechanism"] == "hm-tp"
    assert found["rounds"] == len(groups) == 7
    schema = Schema.from_toml(SCHEMA)
    fleet, _ = datasets.from_file("fleet.csv", schema, "late").split(0.1)
    with Path("fleet.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    # Which line each vehicle has; some are alike in everything.
    line_of = {
        (each["speed"], each["minutes"], CITIES.index(each["city [x]"])): each for each in lines
    }
    held = [
        line_of[f"{speed:.1f}", f"{minutes:.1f}", int(city)]
        for speed, minutes, city in fleet.matrix(names=["speed", "minutes", "city [x]"])
    ]
    order = np.argsort(fedldp.source(groups[0]._key).words(len(held)), kind="stable")
    ends = [len(held) * at // 7 for at in range(8)]
    x, y = [], []
    for i in order.tolist():
        line = held[i]
        x.append(
            [
                float(line["speed"]) / 65 - 1,
                *page.one_hot(line["city [x]"], CITIES),
                float(line["minutes"]) / 50 - 1,
                *page.one_hot(line["tyres"], ["old", "new", "none"]),
                1.0,
            ]
        )
        y.append(1.0 if line["late"] == "yes" else -1.0)
    d = len(x[0])
    replay = Replay([tape.answers(floor(5 / 2.5), d) for _ in range(7)])
    theta, rounds = page.ldp_fedsgd(
        d,
        [range(*each) for each in pairwise(ends)],
        lambda theta, i: page.true_gradient("logistic", theta, x[i], y[i]),
        lambda x: page.perturb_tuple(x, 5.0, replay.sample, replay.one),
        rate=0.5,
        max_iter=100,
        tol=1e-6,
        weight=1e-4,
    )
    model = saved()
    assert rounds == 7
    assert model.reference == "last"
    np.testing.assert_allclose(model.weights, theta, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("folder")
def test_the_command_stops():
    options = "--paper", "--epsilon", 5, "--group", 100
    stopped = document(*LATE, *options, "--max-rounds", 3)
    assert (stopped["rounds"], stopped["reports"], stopped["vehicles"]) == (3, 289, 1350)
    assert stopped["bytes"] < document(*LATE, *options)["bytes"]
    settled = document(*LATE, *options, "--tol", 99)
    assert (settled["rounds"], settled["reports"]) == (1, 96)
    assert document(*LATE, *options, "--mechanism", "none")["epsilon"] is None


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("name", "value"), [("k", 1), ("strategy", "sample"), ("bound", 1), ("participations", 1)]
)
def test_the_command_refuses_what_the_paper_decides(name, value):
    result = invoke(*LATE, "--paper", "--epsilon", 5, f"--{name}", value)
    assert result.exit_code == 2
    assert f"--paper decides --{name}" in result.output


def test_the_printed_method_costs_epsilon():
    """In integers, and whatever k is."""
    for epsilon in (1.0, 4.9, 5.0, 7.5, 12.4):
        plan = Settings.paper(epsilon).plan(D)
        assert plan.total_epsilon <= fedldp.vehicle.exact(epsilon)
        privacy = fedldp.learn.Privacy.of(plan, reports=1)
        assert float(privacy.ratio) <= exp(epsilon)


# The commands for collection

COLUMNS_IN_A_FILE = Schema.of(speed=(0, 130), battery=(0, 1), model=["a", "b", "c", "d"])


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("fleet.toml").write_text(COLUMNS_IN_A_FILE.to_toml())
    with Path("fleet.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["speed", "battery", "model"])
        writer.writerows([row["speed"], row["battery"], row["model"]] for row in rows(400))


def told(*words):
    result = CliRunner().invoke(command_line, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("mechanism", [None, "pm-sub"])
def test_plans_and_estimates_of_the_command_line(mechanism):
    named = () if mechanism is None else ("--mechanism", mechanism)
    schema = "--schema", "fleet.toml", "--epsilon", 3
    told("plan", *schema, "--paper", *named, "-o", "plan.json")
    plan = Plan.paper(COLUMNS_IN_A_FILE, 3.0, mechanism=mechanism or "hm-tp")
    assert Path("plan.json").read_text() == plan.to_json()
    words = "fleet.csv", *schema, "--seed", 4, "--json"
    found = json.loads(told("collect", *words, "--paper", *named))
    plain = json.loads(told("collect", *words, "--paper", *named, "--estimator", "ratio"))
    with Path("fleet.csv").open(newline="") as file:
        tally = plan.simulate(list(csv.DictReader(file)), fedldp.source(4))
    wanted = tally.estimate(of="fleet")["speed"]
    assert found["estimates"][0]["estimate"] == wanted.mean
    assert plain["estimates"][0]["estimate"] == tally.estimate("ratio")["speed"].mean != wanted.mean
    tally.save("tally.json")
    shown = json.loads(told("estimate", "plan.json", "tally.json", "--json"))
    assert shown["estimates"][0]["estimate"] == wanted.mean


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("option", [("--k", 1), ("--strategy", "sample")])
@pytest.mark.parametrize("command", [("plan",), ("collect", "fleet.csv")])
def test_collection_refuses_what_the_paper_decides(command, option):
    words = *command, "--schema", "fleet.toml", "--epsilon", 9, "--paper", *option
    result = CliRunner().invoke(command_line, [str(word) for word in words])
    assert result.exit_code == 2
    assert f"--paper decides {option[0]}: leave out one or the other." in result.output
