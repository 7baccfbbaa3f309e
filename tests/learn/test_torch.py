"""Networks: gradients against plain autograd, reports, and a training from end to end."""

import importlib
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import fedldp
from fedldp.errors import DomainError, MissingExtra
from fedldp.learn import torch as networks
from fedldp.learn.examples import Arrays, VehicleRows
from fedldp.learn.objectives import objective
from fedldp.learn.optimizer import Adam
from fedldp.learn.settings import Settings
from fedldp.learn.tasks import Linear
from fedldp.learn.torch import ModuleTask

pytestmark = pytest.mark.torch

N, LENGTH, CLASSES = 700, 16, 3  # more examples than a block has


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.GRU(2, 3, batch_first=True), nn.Linear(3, CLASSES)

    def forward(self, x):
        # torch.func cannot follow the state that torch would make by itself.
        states, _ = self.layer(x.transpose(1, 2), x.new_zeros(1, len(x), 3))
        return self.head(states[:, -1])


def convolution():
    return nn.Sequential(
        nn.Conv1d(2, 4, 5, stride=2),
        nn.SiLU(),
        nn.Dropout(0.5),
        nn.Flatten(),
        nn.Linear(24, CLASSES),
    )


def seeded(make, dtype=torch.float64):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make().to(dtype)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Networks this small gain nothing from threads, which wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def data():
    rng = fedldp.source(1)
    inputs = rng.uniform((N, 2, LENGTH)) * 2 - 1
    return inputs, rng.below(CLASSES, N)


def one_at_a_time(module, inputs, targets, weights):
    """The gradient of each example by autograd, the way everybody knows it."""
    module = module.eval()
    nn.utils.vector_to_parameters(torch.tensor(weights), module.parameters())
    rows = []
    for x, y in zip(torch.tensor(inputs), torch.tensor(targets), strict=True):
        module.zero_grad()
        cross_entropy(module(x[None]), y[None]).backward()
        rows.append(nn.utils.parameters_to_vector([p.grad for p in module.parameters()]).numpy())
    return np.array(rows)


def models_near(task, replicas):
    moves = fedldp.source(2).uniform((replicas, task.dimensions)) - 0.5
    return task.start + 0.2 * moves


@pytest.mark.parametrize("make", [convolution, Recurrent])
def test_gradients_are_those_of_autograd(make, data):
    inputs, targets = data
    task = ModuleTask(seeded(make), cross_entropy, inputs, targets)
    weights = models_near(task, 2)
    vehicles = np.array([5, 699, 5, 0])
    found = task.gradients(weights, vehicles).all(np.arange(task.dimensions))
    expected = [
        one_at_a_time(seeded(make), inputs[vehicles], targets[vehicles], each) for each in weights
    ]
    np.testing.assert_allclose(found, np.concatenate(expected), atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": 2, "padding": 1},
        {"dilation": 2, "padding": "same"},
        {"dilation": 3, "padding": "valid", "groups": 2, "bias": False},
        {"stride": 3, "padding": 2, "padding_mode": "circular", "groups": 4},
    ],
)
@pytest.mark.parametrize("kind", [nn.Conv1d, nn.Conv2d, nn.Conv3d])
def test_convolutions_are_those_of_torch(kind, options):
    dimensions = int(kind.__name__[4])
    layer = seeded(lambda: kind(4, 8, (4, 3, 2)[:dimensions], **options))
    x = torch.tensor(fedldp.source(12).uniform((2, 4, *(11, 9, 8)[:dimensions])))
    for given in (x, x[0]):
        expected = layer(given)
        with networks._ConvolutionsAsProducts():
            found = layer(given)
        assert found.shape == expected.shape
        torch.testing.assert_close(found, expected, atol=1e-13, rtol=0.0)


def test_convolutions_by_keywords():
    x, weight = (torch.tensor(fedldp.source(13).uniform((3, 2, 4))) for _ in range(2))
    with networks._ConvolutionsAsProducts():
        found = nn.functional.conv1d(input=x, weight=weight, stride=(2,), padding=(1,))
    expected = nn.functional.conv1d(x, weight, stride=2, padding=1)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kept", [0, 1 << 26])
def test_take_is_a_choice_from_all_whether_gradients_are_kept_or_not(kept, data, monkeypatch):
    monkeypatch.setattr(networks, "_KEPT", kept)
    task = ModuleTask(seeded(convolution), cross_entropy, *data)
    rng, d = fedldp.source(3), task.dimensions
    batch = task.gradients(models_near(task, 2), slice(10, None))
    assert len(batch) == 2 * (N - 10)
    everything = batch.all(np.arange(d))
    columns = rng.below(d, len(batch))
    for _ in range(2):  # the second time from what was kept
        taken = batch.take(None, columns)
        np.testing.assert_array_equal(taken, everything[np.arange(len(batch)), columns])
        batch.take(None, columns)[:] = batch.all(np.arange(d))[:] = 0.0  # arrays of the caller's
    rows = np.array([3, 1000, 400])
    np.testing.assert_array_equal(batch.take(rows, columns[rows]), taken[rows])
    np.testing.assert_array_equal(batch.all(np.array([7, 2])), everything[:, [7, 2]])


def test_blocks_of_a_large_network_are_small(data, monkeypatch):
    task = ModuleTask(seeded(convolution), cross_entropy, *data)
    monkeypatch.setattr(networks, "_BLOCK_NUMBERS", 10 * task.dimensions)
    blocks = list(task.gradient_blocks(models_near(task, 3), np.arange(25)))
    assert [len(block) for block in blocks] == [10, 10, 5] * 3


def test_small_groups_of_several_models_share_a_block(data, monkeypatch):
    task = ModuleTask(seeded(convolution), cross_entropy, *data)
    rows, models = np.arange(4), models_near(task, 7)
    expected = torch.cat(
        [block for each in models for block in task.gradient_blocks(each[None], rows)]
    )
    monkeypatch.setattr(networks, "_BLOCK_NUMBERS", 13 * task.dimensions)
    blocks = list(task.gradient_blocks(models, rows))
    assert [len(block) for block in blocks] == [12, 12, 4]
    torch.testing.assert_close(torch.cat(blocks), expected, atol=1e-13, rtol=0.0)


def test_one_layer_is_a_linear_model():
    rng = fedldp.source(4)
    features = np.c_[rng.uniform((N, 4)) * 2 - 1, np.ones(N)]
    targets = np.where(rng.uniform(N) < 0.5, -1.0, 1.0)
    grouped = VehicleRows(rng.below(100, N))
    linear = Linear(objective("logistic"), Arrays(features, targets), grouped)
    layer = nn.Linear(4, 1).double()
    task = ModuleTask(
        layer, lambda z, y: nn.functional.softplus(-y * z[:, 0]), features[:, :4], targets, grouped
    )
    assert len(task) == len(linear)
    weights, vehicles = models_near(task, 3), np.array([9, 2, 70])
    mine, theirs = (each.gradients(weights, vehicles) for each in (task, linear))
    assert len(mine) == len(theirs)
    columns = rng.below(5, len(mine))
    np.testing.assert_allclose(mine.all(np.arange(5)), theirs.all(np.arange(5)), atol=1e-12)
    np.testing.assert_allclose(mine.take(None, columns), theirs.take(None, columns), atol=1e-12)
    np.testing.assert_allclose(task.loss(weights), linear.loss(weights), atol=1e-12)


@pytest.mark.parametrize("strategy", ["sample", "cube"])
def test_reports_say_what_the_simulation_counts(strategy, data):
    task = ModuleTask(seeded(convolution, torch.float32), cross_entropy, *data)
    plan = Settings(epsilon=8.0, bound=0.1, strategy=strategy).plan(task.dimensions)
    (part,) = plan.parts
    assert part.joint or part.k > 1  # several answers of each vehicle, or one about all
    batch = task.gradients(task.start[None], slice(0, 600))
    tally = plan.parse(plan.report_batches([batch], fedldp.source(5)).to_bytes())
    cells = np.zeros((1, part.starts[-1]), np.int64)
    part.simulate(batch, fedldp.source(5), cells)
    np.testing.assert_array_equal(tally.counts[0], cells[0])
    assert tally.reports == 600


def test_a_gradient_that_is_not_a_number_is_reported_as_the_public_default(data):
    inputs, targets = data[0].copy(), data[1]
    inputs[0] = np.nan
    task = ModuleTask(seeded(convolution), cross_entropy, inputs, targets)
    gradient = task.gradients(task.start[None], slice(0, 1)).all(np.arange(task.dimensions))
    assert np.isnan(gradient).any()
    training = Settings(epsilon=1.0).training(task, 1.0, fedldp.source(6), start=task.start)
    training.advance()
    assert np.isfinite(training.models).all()


def tones(n, seed):
    """Windows of one of two frequencies, at any phase: no linear model tells them apart."""
    rng = fedldp.source(seed)
    targets, phase = rng.below(2, n), rng.uniform((n, 1, 1)) * 2 * np.pi
    time = np.arange(LENGTH) * np.where(targets == 1, 2.2, 0.4)[:, None, None]
    return np.sin(time + phase), targets


def detector():
    return nn.Sequential(
        nn.Conv1d(1, 2, 4, stride=2),
        nn.SiLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(2, 2),
    )


def trained(settings, dtype=torch.float32, replicas=1, n=20_000):
    task = ModuleTask(seeded(detector, dtype), cross_entropy, *tones(n, 7))
    training = settings.training(task, 8.0, fedldp.source(8), start=task.start, replicas=replicas)
    for _ in training:
        pass
    test = ModuleTask(seeded(detector, dtype), cross_entropy, *tones(2000, 9))
    return test, training.models


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_network_learns_without_privacy(dtype):
    settings = Settings(epsilon=None, group=200, optimizer=Adam(0.2))
    test, models = trained(settings, dtype)
    assert test.error(models)[0] < 0.05


def test_a_network_learns_with_privacy_and_each_replica_by_itself():
    # The seeds are fixed. Guessing errs in half; with ten other seeds no example was wrong.
    test, models = trained(
        Settings(epsilon=4.0, bound=0.3, group=200, optimizer=Adam(0.1)), replicas=2
    )
    assert (test.error(models) < 0.1).all()
    assert (models[0] != models[1]).all()


def test_the_same_seed_gives_the_same_model():
    settings = Settings(epsilon=4.0, bound=0.3, group=500)
    (_, first), (_, second) = (trained(settings, n=3000) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_what_is_loaded_is_what_was_measured(data):
    module = seeded(convolution)
    inputs, targets = data
    task = ModuleTask(module, cross_entropy, inputs, targets)
    np.testing.assert_array_equal(
        task.start, nn.utils.parameters_to_vector(module.parameters()).detach()
    )
    weights = models_near(task, 2)
    task.load(weights[1])
    assert module.training  # as it was given
    outputs = module.eval()(torch.tensor(inputs))
    wrong = (outputs.argmax(1).numpy() != targets).mean()
    np.testing.assert_allclose(task.error(weights)[1], wrong)
    loss = cross_entropy(outputs, torch.tensor(targets)).item()
    np.testing.assert_allclose(task.loss(weights)[1], loss)
    assert (task.start != weights[1]).all()  # the task keeps where it began


def test_numbers_as_targets_have_a_squared_error():
    layer = nn.Linear(2, 1).double()
    x, y = fedldp.source(10).uniform((N, 2)), fedldp.source(11).uniform(N)
    task = ModuleTask(layer, lambda z, y: (z[:, 0] - y) ** 2, x, y)
    residuals = x @ task.start[:2] + task.start[2] - y
    np.testing.assert_allclose(task.error(task.start[None]), [(residuals**2).mean()])


def test_frozen_weights_are_neither_counted_nor_changed(data):
    module = seeded(convolution)
    module[0].requires_grad_(False)
    before = module[0].weight.clone()
    task = ModuleTask(module, cross_entropy, *data)
    assert task.dimensions == 25 * CLASSES
    task.load(np.ones(task.dimensions))
    assert torch.equal(module[0].weight, before)
    assert (module[4].weight == 1).all()


def test_read_only_data_and_small_integers_are_taken(data):
    inputs, targets = data[0].copy(), data[1].astype(np.uint8)
    inputs.flags.writeable = False
    same, task = (
        ModuleTask(seeded(convolution), cross_entropy, x, y) for x, y in (data, (inputs, targets))
    )
    np.testing.assert_array_equal(
        *(each.gradients(each.start[None], slice(3)).all(np.arange(5)) for each in (same, task))
    )


@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm1d(2),
        nn.BatchNorm1d(2, track_running_stats=False),
        nn.InstanceNorm1d(2, track_running_stats=True),
    ],
)
def test_statistics_of_many_examples_are_refused(layer, data):
    with pytest.raises(DomainError, match="LayerNorm"):
        ModuleTask(nn.Sequential(layer, convolution()), cross_entropy, *data)


def test_what_does_not_fit_is_refused(data):
    inputs, targets = data
    module = convolution()
    with pytest.raises(DomainError, match="must be of equally many rows"):
        ModuleTask(module, cross_entropy, inputs, targets[1:])
    with pytest.raises(DomainError, match="must be of equally many rows"):
        ModuleTask(module, cross_entropy, inputs, targets, VehicleRows(targets[1:]))
    with pytest.raises(DomainError, match="require a gradient"):
        ModuleTask(nn.Flatten(), cross_entropy, inputs, targets)
    with pytest.raises(DomainError, match="one type"):
        ModuleTask(nn.Sequential(module, nn.Linear(3, 3).double()), cross_entropy, inputs, targets)
    for weights in (np.zeros(3), np.zeros((1, 119)), np.zeros(())):
        with pytest.raises(DomainError, match="119 numbers"):
            ModuleTask(module, cross_entropy, inputs, targets).load(weights)


def test_instance_norm_of_one_example_is_allowed(data):
    task = ModuleTask(nn.Sequential(nn.InstanceNorm1d(2), convolution()), cross_entropy, *data)
    assert task.dimensions == 119


def test_without_torch_the_command_that_installs_it_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "fedldp.learn.torch")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match="pip install 'torch>="):
        importlib.import_module("fedldp.learn.torch")
