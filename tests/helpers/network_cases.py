"""Networks of all kinds, and rows for them, that several tests share."""

import math

import numpy as np

from fedldp.learn import (
    Activation,
    ChannelMean,
    Conv,
    Dense,
    Flatten,
    LogVariance,
    Network,
    Pool,
    objective,
)

SOFTMAX = objective("softmax").with_outputs(3)
NETWORKS = {
    "linear": Network((4,), (), objective("squared")),
    "softmax": Network((4,), (), SOFTMAX),
    "regression": Network((4,), (Dense(3), Activation("tanh")), objective("squared")),
    "logit": Network((4,), (Dense(3), Activation("silu")), objective("logistic")),
    "hinge": Network((4,), (Dense(2), Activation("logistic")), objective("hinge")),
    "two layers": Network(
        (4,), (Dense(3), Activation("tanh"), Dense(2, bias=False), Activation("silu")), SOFTMAX
    ),
    "signals": Network(
        (2, 9), (Conv(3, 3, 2), Activation("silu"), Pool(2, 1, "max"), Flatten()), SOFTMAX
    ),
    "variance": Network((2, 9), (Conv(3, 2), LogVariance(means=1)), SOFTMAX),
    "mean": Network((2, 9), (Conv(2, 2), Activation("relu"), ChannelMean()), SOFTMAX),
}
FIXED = {
    "first layer": (NETWORKS["two layers"], 15),
    "both layers": (NETWORKS["two layers"], 21),
    "filters": (NETWORKS["signals"], 21),
    "all but the last": (NETWORKS["variance"], 15),
}


def drawn(network, rows=5, seed=1):
    """Weights of two models, features with the constant, and targets."""
    draw = np.random.default_rng(seed)
    weights = draw.normal(size=(2, network.dimensions))
    features = np.c_[draw.normal(size=(rows, math.prod(network.inputs))), np.ones(rows)]
    targets = draw.integers(0, network.objective.outputs, rows).astype(float)
    if network.objective.outputs == 1:
        targets = np.where(draw.random(rows) < 0.5, -1.0, 1.0)
    return weights, features, targets
