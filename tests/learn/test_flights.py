"""What a fleet of flights learns, by the rule and without any tuning."""

import numpy as np
import pytest

import fedldp
from fedldp import datasets
from fedldp.learn.examples import Arrays
from fedldp.learn.objectives import objective
from fedldp.learn.settings import Settings
from fedldp.learn.tasks import Linear

SEEDS = 10  # each for another hold-out, another order and other noise
LOGISTIC = objective("logistic")


@pytest.fixture(scope="module")
def splits():
    features, targets = datasets.load("flights").examples("logistic").read(slice(None))
    held = len(targets) // 10
    found = []
    for seed in range(SEEDS):
        order = np.argsort(fedldp.source(seed).words(len(targets)))
        parts = (Arrays(features[rows], targets[rows]) for rows in (order[held:], order[:held]))
        found.append(tuple(Linear(LOGISTIC, part) for part in parts))
    return found


def error(settings, splits):
    """The share of held-out flights that are predicted wrongly, on average."""
    found = []
    for seed, (fleet, public) in enumerate(splits):
        chance = fedldp.source(seed).spawn(1)[0]
        training = settings.training(fleet, LOGISTIC.distance, chance, shuffle=False)
        progress = list(training)[-1]
        assert progress.reports == len(fleet) == 294_612
        found.append(public.error(training.models)[0])
    return np.mean(found)


@pytest.mark.parametrize(("epsilon", "most"), [(4.0, 0.115), (2.0, 0.130), (1.0, 0.190)])
def test_one_pass_in_which_every_flight_is_asked_once(splits, epsilon, most):
    assert error(Settings(epsilon), splits) <= most


def test_without_privacy(splits):
    assert error(Settings(1.0, mechanism=None), splits[:1]) < 0.105
    _, public = splits[0]
    assert 0.23 < min(np.mean(public.examples.targets > 0), 0.5) < 0.245  # the base rate
