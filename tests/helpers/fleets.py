"""Small fleets to train with, and gradients and steps written down once more in plain loops."""

import math

import numpy as np
from spellings import flat_plan

import fedldp
from fedldp import Schema
from fedldp.learn.examples import Arrays
from fedldp.learn.objectives import OBJECTIVES, objective
from fedldp.learn.tasks import Linear, Task
from fedldp.plan.parts import Matrix

NAMES = tuple(name for name, each in OBJECTIVES.items() if each.outputs == 1)
STRATEGIES = {
    "one": {"k": 1},
    "two": {"k": 2},
    "split": {"strategy": "split"},
    "cube": {"strategy": "cube"},
}


def plan_for(d, name="one", epsilon=2.0, mechanism="three-outputs", bound=1.0):
    return flat_plan(Schema.vector(d, bound), epsilon, mechanism=mechanism, **STRATEGIES[name])


def examples(n, d, seed=1, dtype=np.float64):
    """Return rows in [-1, 1], the last one 1, and labels that mostly follow the first feature."""
    source = fedldp.source(seed)
    x = source.uniform((n, d)) * 2 - 1
    x[:, -1] = 1.0
    y = np.where(x[:, 0] + source.uniform(n) - 0.5 > 0.1, 1.0, -1.0)
    return Arrays(x.astype(dtype), y)


def fleet(n, d, name="logistic", grouped=None, dtype=np.float64):
    return Linear(objective(name), examples(n, d, dtype=dtype), grouped)


SLOPES = {  # the derivative of the loss, at a score z and a target y
    "squared": lambda z, y: z - y,
    "logistic": lambda z, y: -y / (1 + math.exp(y * z)),
    "hinge": lambda z, y: -y if y * z < 1 else 0.0,
}


def gradient(name, weights, x, y):
    """Return the gradient of one example."""
    z = sum(float(w) * float(each) for w, each in zip(weights, x, strict=True))
    return [SLOPES[name](z, float(y)) * float(each) for each in x]


def naive(name, weights, features, targets, vehicle_ids=None):
    """Return the mean gradient of each vehicle's rows: for the first model, then the second."""
    vehicle_ids = range(len(features)) if vehicle_ids is None else vehicle_ids
    found = []
    for model in weights:
        for own in sorted(set(vehicle_ids)):
            rows = [i for i, each in enumerate(vehicle_ids) if each == own]
            each = [gradient(name, model, features[i], targets[i]) for i in rows]
            found.append([sum(column) / len(rows) for column in zip(*each, strict=True)])
    return np.array(found)


class Spy(Task):
    """A task that writes down who was asked, and with what weights."""

    kind, dimensions = "spy", 0

    def __init__(self, n, d, value=0.0):
        self.n, self.dimensions, self.value, self.asked, self.weights = n, d, value, [], []

    def __len__(self):
        return self.n

    def gradients(self, weights, vehicles):
        asked = np.arange(self.n)[vehicles]
        self.asked.append(asked.tolist())
        self.weights.append(weights.copy())
        return Matrix(np.full((len(weights) * len(asked), self.dimensions), self.value))


def stream(seed):
    """Return the key of the order in which vehicles are asked, and the source of all reports."""
    source = fedldp.source(seed).spawn(1)[0]
    return int(source.words(1)[0]), source
