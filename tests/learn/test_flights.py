"""What a fleet of flights learns, by the rule and without any tuning."""

from dataclasses import replace

import numpy as np
import pytest

import fedldp
from fedldp import datasets
from fedldp.learn.objectives import objective
from fedldp.learn.settings import Settings
from fedldp.learn.tasks import Linear

SEEDS = 3  # each for another hold-out, another order and other noise


def splits(kind, reference, vehicles=294_612):
    """Yield fleets and hold-outs."""
    flights, goal = replace(datasets.load("flights"), reference=reference), objective(kind)
    held = len(flights) // 10
    for seed in range(SEEDS):
        order = np.argsort(fedldp.source(seed).words(len(flights)))
        parts = order[held : held + vehicles], order[:held]
        yield tuple(Linear(goal, flights.take(rows).examples(kind)) for rows in parts)


def errors(settings, kind="logistic", **options):
    """The share of held-out flights that are predicted wrongly, or the mean squared error."""
    found = []
    for seed, (fleet, public) in enumerate(splits(kind, settings.reference, **options)):
        rng = fedldp.source(seed).spawn(1)[0]
        training = settings.training(fleet, fleet.objective.distance, rng, shuffle=False)
        progress = list(training)[-1]
        assert progress.reports == len(fleet)
        scaled = public if training.scaling is None else public.scaled(training.scaling)
        found.append(scaled.error(training.models)[0])
    return np.array(found)


# Of 10 seeds that were not used here, the means are 0.002 below these bounds at the least.
@pytest.mark.parametrize(
    ("epsilon", "most"),
    [(4.0, 0.095), pytest.param(2.0, 0.098, marks=pytest.mark.slow), (1.0, 0.108)],
)
def test_one_pass_in_which_every_flight_is_asked_once(epsilon, most):
    assert errors(Settings(epsilon)).mean() <= most


@pytest.mark.parametrize(("epsilon", "most"), [(4.0, 0.109), (2.0, 0.118), (1.0, 0.140)])
def test_a_sixteenth_of_the_flights(epsilon, most):
    assert errors(Settings(epsilon), vehicles=18_413).mean() <= most


@pytest.mark.parametrize(("kind", "most"), [("hinge", 0.106), ("squared", 0.029)])
def test_other_models(kind, most):
    assert errors(Settings(1.0), kind).mean() <= most


def test_as_in_version_0_1():
    sample = Settings(4.0, strategy="sample", optimizer="adam", reference="first")
    assert errors(sample).mean() <= 0.115


def test_without_privacy():
    assert errors(Settings(None)).mean() < 0.095
    _, public = next(splits("logistic", "none"))
    _, targets = public.examples.read(slice(None))
    assert 0.23 < min(np.mean(targets > 0), 0.5) < 0.245  # the base rate
