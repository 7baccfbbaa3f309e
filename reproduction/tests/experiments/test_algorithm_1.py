"""Algorithm 1 for many models at once, against the library's training, and the cited Duchi."""

from dataclasses import replace
from itertools import product
from math import exp, log

import numpy as np
import pytest
from scipy import stats

import fedldp
from fedldp import datasets
from fedldp.learn import Arrays, Layered, Linear, Network, Settings, objective
from fedldp.learn.features import written_out
from fedldp.learn.training import Procedure, Training
from fedldp_reproduction.experiments import algorithm_1
from fedldp_reproduction.experiments.algorithm_1 import ClippedMean, Coded, clipped_sums, trained
from fedldp_reproduction.experiments.duchi import CitedDuchi
from fedldp_reproduction.experiments.jobs import ExperimentJob, run
from fedldp_reproduction.figures import description

D = 4


def rows(n=3000):
    x = fedldp.source(2).uniform((n, D)) * 2 - 1
    return Arrays(x, np.where(x[:, 0] + 0.5 * x[:, 1] > 0.1, 1.0, -1.0))


def task(name="logistic", n=3000):
    return Linear(objective(name), rows(n))


@pytest.mark.parametrize("mechanism", ["hm-tp", "three-outputs", "duchi"])
@pytest.mark.parametrize("name", ["squared", "logistic", "hinge"])
def test_one_model_is_that_of_the_librarys_training(name, mechanism):
    settings = Settings.paper(4.0, mechanism, learning_rate=0.5, group=200, alpha=1e-3, tol=0.0)
    learned = task(name)
    plan = settings.plan(D)
    whole = Training(
        learned,
        Procedure(plan, settings.recipe(D, 15, 1.0), group=200),
        fedldp.source(7),
        shuffle=False,
    )
    for _ in whole:
        pass
    source = fedldp.source(7).spawn(1)[0]
    source.words(1)  # the order, which is not used
    answers = Coded(plan.parts[0], settings.optimizer.estimator)
    found = trained(learned, answers, [0.5], source, group=200, alpha=1e-3)
    assert found == pytest.approx(whole.models, abs=1e-12)


def test_a_network_is_that_of_the_librarys_training():
    settings = Settings.paper(4.0, learning_rate=0.5, group=200, alpha=1e-3, tol=0.0)
    network = Network.perceptron(D, objective("logistic"), hidden=[3])
    learned = Layered(network, rows(1000))
    plan = settings.plan(learned.dimensions)
    recipe = settings.recipe(learned.dimensions, 5, 1.0, linear=False)
    procedure = Procedure(plan, recipe, group=200)
    whole = Training(learned, procedure, fedldp.source(7), shuffle=False)
    for _ in whole:
        pass
    source = fedldp.source(7).spawn(1)[0]
    source.words(1)  # the order, which is not used
    answers = Coded(plan.parts[0], settings.optimizer.estimator)
    found = trained(learned, answers, [0.5], source, group=200, alpha=1e-3)
    assert found == pytest.approx(whole.models, abs=1e-12)
    assert not np.allclose(found, learned.start)


@pytest.mark.parametrize("name", ["hm-tp-network", "non-private-network", "default-network"])
def test_networks_are_trained_at_each_rate_where_they_have_one(name):
    way, data = description().ways[name], datasets.load("br", rows=400)
    rates = (1.0, 8.0) if way.server == "paper" else ()
    job = ExperimentJob("logistic", "rows", way, 8.0, 0, 1, 1, 5, 1, rates, 2)
    encoded = replace(data, reference=way.coding).examples("logistic")
    features, targets = encoded.read(slice(None))
    arrays = (encoded,) if way.surveyed else (written_out(features), targets)
    errors = np.array(run(job, *arrays))
    assert errors.shape == job.shape
    assert ((errors >= 0) & (errors <= 1)).all()
    assert replace(job, way=replace(way, hidden=0)).key != job.key


def test_each_rate_has_its_own_model():
    answers, learned = ClippedMean(1.0), task("squared")
    both = trained(learned, answers, [0.1, 0.4], fedldp.source(1), group=100, alpha=0.0)
    for place, rate in enumerate((0.1, 0.4)):
        alone = trained(learned, answers, [rate], fedldp.source(1), group=100, alpha=0.0)
        assert both[place] == pytest.approx(alone[0], abs=1e-12)


def test_clipped_sums_are_those_of_gradients_written_out():
    learned = task("squared", 400)
    weights = np.array([[3.0, -2.0, 0.5, 1.0], [0.0, 0.0, 0.0, 0.0], [0.2, 0.1, 0.0, 0.0]])
    for bound in (0.3, 1.0, 5.0):
        gradients = learned.gradients(weights, slice(400)).all(np.arange(D)).reshape(3, 400, D)
        expected = np.clip(gradients, -bound, bound).sum(axis=1)
        assert clipped_sums(learned, weights, slice(0, 400), bound) == pytest.approx(expected)


def test_the_noise_of_laplace_is_that_of_as_many_draws():
    """A sum of n draws, against n draws: two samples of 2,000; false alarm 1e-6."""
    learned, n, scale = task(n=5), 5, 2.0
    weights = np.zeros((2000, D))
    exact = clipped_sums(learned, weights, slice(0, n), 1.0)
    noisy = ClippedMean(1.0, scale).mean(learned, weights, slice(0, n), fedldp.source(3)) * n
    drawn = np.random.default_rng(4).laplace(0.0, scale, (2000, n)).sum(axis=1)
    assert stats.ks_2samp((noisy - exact)[:, 0], drawn).pvalue > 1e-6


def law(cited):
    """Return the probability of every corner given every corner, as the form is written."""
    corners = np.array(list(product((-1, 1), repeat=cited.d)))
    likely = exp(cited.epsilon) / (exp(cited.epsilon) + 1)
    rows = []
    for v in corners:
        near, far = corners @ v >= 0, corners @ v <= 0
        rows.append(near / near.sum() * likely + far / far.sum() * (1 - likely))
    return corners, np.array(rows)


@pytest.mark.parametrize("d", [3, 4, 6])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_the_cited_form_of_duchi(d, epsilon):
    cited = CitedDuchi(epsilon, d)
    corners, table = law(cited)
    truth = log(float((table.max(axis=0) / table.min(axis=0)).max()))
    assert cited.true_epsilon == pytest.approx(truth)
    assert cited.scale * (table @ corners) == pytest.approx(corners)  # unbiased
    agree = (corners[None] == corners[:, None]).sum(axis=2)
    by_number = [table[0][agree[0] == h].sum() for h in range(d + 1)]
    assert cited.agreements == pytest.approx(by_number)
    assert (cited.variance_factor > 1 + 1e-9) is (d % 2 == 0)


def test_the_repaired_form_has_18_to_72_percent_less_variance():
    """For the even dimensions and the epsilons of the figures."""
    places = product((6, 16, 90, 94), (0.5, 1.0, 2.0, 4.0))
    less = [1 - 1 / CitedDuchi(epsilon, d).variance_factor for d, epsilon in places]
    assert (round(min(less), 2), round(max(less), 2)) == (0.18, 0.72)


def test_its_answers_have_this_law():
    """The mean squared error of 400 rows in 300 runs, chi-square; false alarm 1e-6."""
    x = (fedldp.source(5).uniform((400, D)) * 1.6 - 0.7).astype(np.float32)
    way = description().ways["duchi-2018"]
    errors = np.array(run(ExperimentJob("", "rows", way, 2.0, 0, 300, 1), x))
    expected = CitedDuchi(2.0, D).expected_error(x, len(x))
    low, high = stats.chi2.ppf([0.5e-6, 1 - 0.5e-6], 300 * D) / (300 * D)
    assert low < errors.mean() / expected < high
    two = CitedDuchi(2.0, D).sums(np.concatenate([x, -x]), 2, fedldp.source(1)) / len(x)
    assert two[0] == pytest.approx(x.mean(axis=0), abs=0.6)
    assert two[1] == pytest.approx(-x.mean(axis=0), abs=0.6)


def test_it_trains(monkeypatch):
    monkeypatch.setattr(algorithm_1, "_NUMBERS_AT_ONCE", 500)  # several batches
    way = replace(description().ways["duchi-2018"])
    x, y = rows().read(slice(None))
    job = ExperimentJob("logistic", "rows", way, 4.0, 0, 2, 1, 5, 2, (1.0, 8.0), 2)
    errors = np.array(run(job, x.astype(np.float32), y.astype(np.float32)))
    assert errors.shape == job.shape
    assert errors[:, 1].min(axis=1).max() < 0.3
