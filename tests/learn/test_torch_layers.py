"""Networks as data and modules of PyTorch: equal outputs, equal gradients, both ways."""

import doctest

import numpy as np
import pytest
import torch
from network_cases import FIXED, NETWORKS, drawn
from torch import nn

from fedldp.errors import DomainError
from fedldp.learn import Network, objective, torch_layers
from fedldp.learn.torch import ModuleTask
from fedldp.learn.torch_layers import from_module, to_module, to_torch

pytestmark = pytest.mark.torch

every = pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)


def module_loss(goal):
    """The loss of a module's outputs, for one objective."""

    def loss(outputs, targets):
        if goal.name == "softmax":
            return nn.functional.cross_entropy(outputs, targets.long())
        z, y = outputs[:, 0], targets
        if goal.name == "squared":
            return ((z - y) ** 2).mean() / 2
        if goal.name == "logistic":
            return nn.functional.softplus(-y * z).mean()
        return torch.relu(1 - y * z).mean()

    return loss


def fixed(network, size):
    return Network(network.inputs, network.layers, network.objective, drawn(network)[0][0, :size])


@pytest.mark.parametrize(
    "network", [*NETWORKS.values(), *(fixed(*each) for each in FIXED.values())], ids=repr
)
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_module_has_the_gradients_of_its_network(network, precision):
    weights, features, targets = drawn(network)
    module = to_module(network, weights[0]).to(getattr(torch, precision))
    inputs = features[:, :-1].reshape(-1, *network.inputs).astype(precision)
    with torch.no_grad():
        found = module(torch.from_numpy(inputs)).numpy()
    np.testing.assert_allclose(found, network.outputs(weights[:1], features)[0], atol=1e-5)
    task = ModuleTask(module, module_loss(network.objective), inputs, targets.astype(precision))
    assert task.dimensions == network.dimensions
    np.testing.assert_allclose(task.start, to_torch(network, weights[0]), rtol=1e-6)
    columns = np.arange(network.dimensions)
    mine = network.gradients(weights[:1], features, targets).all(columns)
    theirs = task.gradients(to_torch(network, weights[:1]), slice(5)).all(columns)
    np.testing.assert_allclose(theirs, to_torch(network, mine), atol=1e-5)


@every
def test_there_and_back(network):
    weights = drawn(network)[0][0]
    again, found = from_module(to_module(network, weights), network.inputs, network.objective)
    assert again == network
    np.testing.assert_array_equal(found, weights)


@pytest.mark.parametrize(("network", "size"), FIXED.values(), ids=FIXED)
def test_fixed_layers_there_and_back(network, size):
    chosen = fixed(network, size)
    weights = drawn(chosen)[0][0]
    again, found = from_module(to_module(chosen, weights), chosen.inputs, chosen.objective)
    assert again == chosen
    np.testing.assert_array_equal(found, weights)


def test_a_module_of_torch_gives_a_network():
    module = nn.Sequential(
        nn.Conv1d(3, 4, kernel_size=5, stride=2),
        nn.SiLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(4, 6),
    )
    network, weights = from_module(module, (3, 64), objective("softmax").with_outputs(6))
    assert network.dimensions == 94
    rows = np.random.default_rng(1).normal(size=(7, 3, 64)).astype(np.float32)
    with torch.no_grad():
        wanted = module(torch.from_numpy(rows)).numpy()
    features = np.c_[rows.reshape(7, -1), np.ones(7, np.float32)]
    np.testing.assert_allclose(network.outputs(weights[None], features)[0], wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ([nn.Conv1d(3, 4, 5, padding=1), nn.Flatten(), nn.LazyLinear(2)], "no layer like Conv1d"),
        ([nn.Conv1d(3, 6, 5, groups=3)], "no layer like Conv1d"),
        ([nn.Conv1d(3, 4, 5, padding="same")], "no layer like Conv1d"),
        ([nn.Conv1d(3, 4, 5, dilation=2)], "no layer like Conv1d"),
        ([nn.MaxPool1d(3, padding=1)], "no layer like MaxPool1d"),
        ([nn.AvgPool1d(3, ceil_mode=True)], "no layer like AvgPool1d"),
        ([nn.AdaptiveAvgPool1d(2)], "no layer like AdaptiveAvgPool1d"),
        ([nn.GELU()], "no layer like GELU"),
        ([nn.Flatten(), nn.Linear(192, 3)], "last layer must be nn.Linear with 2"),
        ([nn.Flatten(), nn.Linear(192, 2, bias=False)], "last layer must be nn.Linear with 2"),
        ([nn.Flatten()], "last layer must be nn.Linear with 2"),
        ([], "last layer must be nn.Linear with 2"),
    ],
)
def test_modules_that_are_refused(layers, said):
    with pytest.raises(DomainError, match=said):
        from_module(nn.Sequential(*layers), (3, 64), objective("softmax"))


def test_only_first_layers_can_be_fixed():
    module = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1))
    for parameter in module[2].parameters():
        parameter.requires_grad_(False)
    with pytest.raises(DomainError, match="before those that are"):
        from_module(module, (3,), objective("squared"))


class Own(nn.Linear):
    def forward(self, rows):
        return super().forward(rows) + 1


@pytest.mark.parametrize(
    ("inputs", "module", "said"),
    [
        ((6,), nn.Sequential(nn.Linear(5, 4)), "28 weights .* got 24"),
        ((2, 9), nn.Sequential(nn.Conv1d(3, 2, 3), nn.Flatten(), nn.Linear(14, 4)), "weights"),
        ((1, 9), nn.Sequential(nn.AdaptiveAvgPool1d(1), nn.Linear(1, 4)), "Put nn.Flatten before"),
        ((5,), nn.Sequential(Own(5, 3), nn.Linear(3, 4)), "no layer like Own"),
        ((300,), nn.Sequential(nn.Linear(300, 300), nn.Linear(300, 4)), "at most 65,536 weights"),
    ],
)
def test_modules_that_are_not_their_layers(inputs, module, said):
    with pytest.raises(DomainError, match=said):
        from_module(module, inputs, objective("softmax").with_outputs(4))


def test_a_part_of_a_layer_cannot_be_fixed():
    module = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1))
    module[0].bias.requires_grad_(False)
    with pytest.raises(DomainError, match="only whole layers can be fixed"):
        from_module(module, (3,), objective("squared"))


def test_examples():
    assert doctest.testmod(torch_layers).failed == 0
