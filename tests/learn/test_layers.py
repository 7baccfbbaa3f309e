"""Layers against plain loops and finite differences: a new layer is tested by an entry in CASES."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedldp.errors import DomainError, FedLDPError
from fedldp.learn.layers import (
    ACTIVATIONS,
    LAYERS,
    Activation,
    ChannelMean,
    Conv,
    Dense,
    Flatten,
    LogVariance,
    Pool,
    layer_from_document,
)

CASES = [  # a layer, and the shape of its input
    (Dense(3), (4,)),
    (Dense(1, bias=False), (5,)),
    (Conv(2, 3), (2, 7)),
    (Conv(3, 2, stride=3, bias=False), (1, 9)),
    (Conv(1, 4, stride=2), (3, 9)),
    (Pool(3, 2), (2, 8)),
    (Pool(2, 3, "max"), (2, 9)),
    (Pool(3, 1, "max"), (1, 6)),
    (ChannelMean(), (3, 5)),
    (LogVariance(), (2, 5)),
    (LogVariance(means=1), (3, 6)),
    (Flatten(), (3, 5)),
    *((Activation(name), (4,)) for name in ACTIVATIONS),
    (Activation("tanh"), (2, 3)),
]
every = pytest.mark.parametrize(("layer", "shape"), CASES, ids=str)
PLAIN = {
    "relu": lambda x: max(x, 0.0),
    "tanh": math.tanh,
    "logistic": lambda x: 1 / (1 + math.exp(-x)),
    "silu": lambda x: x / (1 + math.exp(-x)),
}


def case(layer, shape, rows=3, seed=1):
    draw = np.random.default_rng(seed)
    return draw.normal(size=layer.size(shape)), draw.normal(size=(rows, *shape)), draw


def test_every_layer_has_a_case():
    assert {layer.kind for layer, _ in CASES} == set(LAYERS)
    assert set(PLAIN) == set(ACTIVATIONS)


def looped(layer, weights, x):
    """What a layer gives for one row, written as loops."""
    if layer.kind == "dense":
        w = weights.reshape(layer.units, -1)
        return [sum(a * b for a, b in zip(r, [*x, 1.0], strict=False)) for r in w]
    if layer.kind in ("conv", "pool"):
        channels, length = x.shape
        starts = range(0, length - layer.width + 1, layer.stride)
        seen = [[x[c, s : s + layer.width] for s in starts] for c in range(channels)]
        if layer.kind == "pool":
            of = {"mean": np.mean, "max": np.max}[layer.function]
            return [[of(window) for window in row] for row in seen]
        w = weights.reshape(layer.filters, -1)
        return [
            [
                sum(
                    a * b
                    for a, b in zip(
                        row, [v for c in range(channels) for v in seen[c][s]] + [1.0], strict=False
                    )
                )
                for s in range(len(starts))
            ]
            for row in w
        ]
    if layer.kind == "activation":
        return np.vectorize(PLAIN[layer.function])(x)
    if layer.kind == "log-variance":
        logs = [(math.log10(np.var(row)) + 2) / 3 for row in x]
        return [*logs[: len(x) - layer.means], *x.mean(axis=1)[len(x) - layer.means :]]
    return x.mean(axis=1) if layer.kind == "channel-mean" else x.reshape(-1)


@every
def test_forward_is_what_loops_give(layer, shape):
    weights, x, _ = case(layer, shape)
    found, _ = layer.forward(weights, x)
    assert found.shape == (3, *layer.output(shape))
    for row, wanted in zip(found, x, strict=True):
        np.testing.assert_allclose(row, looped(layer, weights, wanted), atol=1e-13)


@every
def test_backward_is_what_finite_differences_give(layer, shape):
    weights, x, draw = case(layer, shape)
    slopes = draw.normal(size=(3, *layer.output(shape)))

    def loss(weights, x):  # of each row, whose slopes in the output are `slopes`
        output, _ = layer.forward(weights, x)
        return (output * slopes).reshape(3, -1).sum(axis=1)

    gradient, back = layer.backward(weights, layer.forward(weights, x)[1], slopes)
    assert gradient.shape == (3, layer.size(shape))
    assert back.shape == x.shape
    step = 1e-6
    for place in range(weights.size):
        moved = np.where(np.arange(weights.size) == place, step, 0.0)
        found = (loss(weights + moved, x) - loss(weights - moved, x)) / (2 * step)
        np.testing.assert_allclose(gradient[:, place], found, atol=1e-8)
    flat = back.reshape(3, -1)
    for place in range(flat.shape[1]):
        moved = np.where(np.arange(flat.shape[1]) == place, step, 0.0).reshape(shape)
        found = (loss(weights, x + moved) - loss(weights, x - moved)) / (2 * step)
        np.testing.assert_allclose(flat[:, place], found, atol=1e-8)


@every
def test_a_row_does_not_depend_on_others(layer, shape):
    weights, x, draw = case(layer, shape)
    slopes = draw.normal(size=(3, *layer.output(shape)))
    gradient, back = layer.backward(weights, layer.forward(weights, x)[1], slopes)
    for i in range(3):
        one, kept = layer.forward(weights, x[i : i + 1])
        np.testing.assert_allclose(one[0], layer.forward(weights, x)[0][i], atol=1e-14)
        alone = layer.backward(weights, kept, slopes[i : i + 1])
        np.testing.assert_allclose(alone[0][0], gradient[i], atol=1e-14)
        np.testing.assert_allclose(alone[1][0], back[i], atol=1e-14)


@every
def test_single_precision_stays_single(layer, shape):
    weights, x, _ = case(layer, shape)
    found, kept = layer.forward(weights.astype(np.float32), x.astype(np.float32))
    gradient, back = layer.backward(weights.astype(np.float32), kept, found)
    assert {found.dtype, gradient.dtype, back.dtype} == {np.dtype(np.float32)}


@every
def test_limits_are_not_below_what_is_computed(layer, shape):
    _, kept = layer.forward(*case(layer, shape, rows=1)[:2])
    held = [kept] if not isinstance(kept, tuple) else kept
    numbers = sum(each.size for each in held if isinstance(each, np.ndarray))
    assert layer.room(shape) >= max(numbers, layer.size(shape))
    assert layer.operations(shape) >= layer.size(shape) - getattr(layer, "units", 0) - getattr(
        layer, "filters", 0
    )


# Documents


@pytest.mark.parametrize("layer", [layer for layer, _ in CASES], ids=str)
def test_documents(layer):
    document = layer.to_document()
    assert layer_from_document(document) == layer
    for name in document:
        with pytest.raises(FedLDPError):
            layer_from_document({key: value for key, value in document.items() if key != name})
        for wrong in (None, -1, 1.5, "x", [], 1 << 40, True if name != "bias" else 1):
            with pytest.raises(FedLDPError):
                layer_from_document(document | {name: wrong})
    with pytest.raises(DomainError, match="entries"):
        layer_from_document(document | {"code": "print()"})


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=3))
def test_anything_else_is_refused(value):
    for document in (value, {"layer": value}, {"layer": "dense", "units": value, "bias": value}):
        if document in ({"layer": "flatten"}, {"layer": "channel-mean"}):
            continue
        with pytest.raises(FedLDPError):
            layer_from_document(document)


@pytest.mark.parametrize(
    ("layer", "shape", "said"),
    [
        (Dense(2), (3, 4), "must be values: put a flatten"),
        (Conv(1, 5), (3, 4), "at most 4"),
        (Conv(1, 5), (12,), "must be signals"),
        (Pool(5, 1), (3, 4), "at most 4"),
        (ChannelMean(), (3,), "must be signals"),
        (Flatten(), (3,), "must be signals"),
    ],
    ids=str,
)
def test_inputs_that_a_layer_cannot_have(layer, shape, said):
    with pytest.raises(DomainError, match=said):
        layer.output(shape)
