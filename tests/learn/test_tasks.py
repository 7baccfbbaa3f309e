"""The vehicles' half: gradients against plain loops, in any choice of vehicles and columns."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from fleets import NAMES, STRATEGIES, Spy, examples, fleet, naive, plan_for
from hypothesis import given
from hypothesis import strategies as st

import fedldp
from fedldp.errors import DomainError
from fedldp.learn.examples import Arrays, VehicleRows
from fedldp.learn.features import Scaling
from fedldp.learn.gradients import BLOCK, DenseGradients
from fedldp.learn.layers import Activation, Dense
from fedldp.learn.networks import LINEAR_LENGTH, Network
from fedldp.learn.objectives import objective
from fedldp.learn.settings import Settings
from fedldp.learn.tasks import Layered, Linear
from fedldp.plan.parts import Matrix

CLIENTS = st.lists(st.integers(0, 5), min_size=1, max_size=24)


def models(replicas, d, seed=5):
    return fedldp.source(seed).uniform((replicas, d)) * 4 - 2


def same_batch(found, wanted):
    """Compare a batch with a matrix: everything, all columns, one column of some or all rows."""
    n, d = wanted.shape
    close = {"rtol": 1e-9, "atol": 1e-12}
    assert len(found) == n
    rng = fedldp.source(9)
    for columns in (np.arange(d), np.array([d - 1, 0]), np.array([0])):
        np.testing.assert_allclose(found.all(columns), wanted[:, columns], **close)
    columns = rng.below(d, n)
    np.testing.assert_allclose(found.take(None, columns), wanted[np.arange(n), columns], **close)
    for rows in (np.arange(n), np.flatnonzero(rng.below(2, n)), np.arange(n)[::-1]):
        own = found.take(rows, columns[rows])
        np.testing.assert_allclose(own, wanted[rows, columns[rows]], **close)


@given(st.sampled_from(NAMES), st.integers(1, 12), st.integers(1, 4), st.integers(1, 3), st.data())
def test_one_example_for_each_vehicle(name, n, d, replicas, data):
    task, weights = fleet(n, d, name), models(replicas, d)
    assert (len(task), task.dimensions) == (n, d)
    chosen = np.array(data.draw(st.permutations(range(n)))[: data.draw(st.integers(1, n))])
    features, targets = task.examples.features[chosen], task.examples.targets[chosen]
    same_batch(task.gradients(weights, chosen), naive(name, weights, features, targets))
    whole = naive(name, weights, task.examples.features, task.examples.targets)
    same_batch(task.gradients(weights, slice(0, n)), whole)


@given(st.sampled_from(NAMES), CLIENTS, st.integers(1, 4), st.integers(1, 3), st.data())
def test_several_examples_for_each_vehicle(name, clients, d, replicas, data):
    """A vehicle's gradient is the mean of those of its rows, wherever they are in the data."""
    task, weights = fleet(len(clients), d, name, VehicleRows(clients)), models(replicas, d)
    wanted = naive(name, weights, task.examples.features, task.examples.targets, clients)
    n = len(set(clients))
    assert len(task) == n
    chosen = np.array(data.draw(st.permutations(range(n)))[: data.draw(st.integers(1, n))])
    some = wanted.reshape(replicas, n, d)[:, chosen].reshape(-1, d)
    same_batch(task.gradients(weights, chosen), some)
    same_batch(task.gradients(weights, slice(0, n)), wanted)
    first, end = sorted(data.draw(st.tuples(st.integers(0, n - 1), st.integers(1, n))))
    if first < end:
        part = wanted.reshape(replicas, n, d)[:, first:end].reshape(-1, d)
        same_batch(task.gradients(weights, slice(first, end)), part)


@given(CLIENTS, st.data())
def test_vehicle_rows_name_the_rows_of_each(clients, data):
    grouped, names = VehicleRows(np.array(clients)), sorted(set(clients))
    vehicles = data.draw(st.lists(st.integers(0, len(names) - 1), max_size=8))
    rows, begins = grouped.of(np.array(vehicles, np.int64))
    own = [[i for i, each in enumerate(clients) if each == names[v]] for v in vehicles]
    assert rows.tolist() == [row for each in own for row in each]
    assert begins.tolist() == [sum(map(len, own[:i])) for i in range(len(own))]


def test_vehicle_rows_of_any_kind():
    for clients in (["b", "a", "b"], [2.5, -1.0, 2.5], [True, False, True], [9, 1, 9]):
        grouped = VehicleRows(clients)
        assert [grouped.of(np.array([i]))[0].tolist() for i in range(len(grouped))] == [[1], [0, 2]]


def test_vehicle_rows_are_those_of_the_examples():
    data = examples(20, 2)
    for clients in (np.zeros(5), np.arange(30)):
        with pytest.raises(DomainError, match="20"):
            Linear(objective("squared"), data, VehicleRows(clients))


# One report for each vehicle, however many rows it has


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_report_for_each_vehicle(strategy):
    """From whatever it has: with several rows the very bytes of the mean gradients in a matrix."""
    clients = fedldp.source(4).below(40, 300)
    task, weights = fleet(300, 3, "squared", VehicleRows(clients)), models(1, 3)
    plan = plan_for(3, strategy)
    batch = task.gradients(weights, slice(0, len(task)))
    sent = plan.report_batches([batch], fedldp.source(1))
    assert sent.vehicles == len(set(clients.tolist())) == len(task)
    features, targets = task.examples.features, task.examples.targets
    matrix = naive("squared", weights, features, targets, clients.tolist())
    assert sent == plan.report_batches([Matrix(matrix)], fedldp.source(1))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_report_says_nothing_that_the_clipped_gradient_does_not(strategy):
    """Rows far out and rows just at the bound give the very same bytes."""
    plan, n = plan_for(2, strategy, bound=0.5), 400
    wild = Arrays(np.tile([1.0, -1.0], (n, 1)), np.full(n, 900.0))
    tame = Arrays(np.tile([1.0, -1.0], (n, 1)), np.full(n, 0.5))
    zeros = np.zeros((1, 2))
    reports = [
        plan.report_batches(
            [Linear(objective("squared"), each).gradients(zeros, slice(0, n))], fedldp.source(1)
        )
        for each in (wild, tame)
    ]
    assert reports[0] == reports[1]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_report_goes_out_whatever_the_model(strategy):
    """Of weights beyond all numbers too, and without a word: a warning would depend on the data."""
    plan, n = plan_for(3, strategy), 40
    beyond = ([np.inf] * 3, [np.nan] * 3, [1e308] * 3, [1e300, -1e300, 1.0], [-np.inf, np.inf, 0.0])
    for name, dtype, weights in itertools.product(NAMES, (np.float32, np.float64), beyond):
        data = examples(n, 3, dtype=dtype)
        features = data.features.copy()
        features[::3, 0] = 0.0  # zero times infinity is not a number
        batch = Linear(objective(name), Arrays(features, data.targets)).gradients(
            np.array([weights]), slice(0, n)
        )
        assert plan.report_batches([batch], fedldp.source(1)).vehicles == n


# A group at once, or vehicle by vehicle


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", NAMES)
def test_at_once_as_one_by_one(name, dtype):
    """Up to the rounding of a sum, of which the order is not the same."""
    task, weights, columns = fleet(300, 5, name, dtype=dtype), models(2, 5), np.arange(5)
    whole = task.gradients(weights, slice(0, 300)).all(columns).reshape(2, 300, 5)
    alone = [task.gradients(weights, slice(i, i + 1)).all(columns) for i in range(300)]
    tolerance = 1e-5 if dtype == np.float32 else 1e-13
    np.testing.assert_allclose(whole, np.stack(alone, axis=1), atol=tolerance)
    assert whole.dtype == np.float64
    assert np.abs(whole).max() > 0.1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("replicas", [1, 3])
def test_pieces_of_whole_blocks_are_the_same_bits(dtype, replicas):
    n, d = 2 * BLOCK + 100, 7
    task, weights, columns = fleet(n, d, dtype=dtype), models(replicas, d), np.arange(d)
    order = np.argsort(fedldp.source(2).words(n))
    for vehicles in (np.arange(n), order):
        whole = task.gradients(weights, vehicles).all(columns).reshape(replicas, n, d)
        for start in range(0, n, BLOCK):
            own = task.gradients(weights, vehicles[start : start + BLOCK]).all(columns)
            np.testing.assert_array_equal(
                own.reshape(replicas, -1, d), whole[:, start : start + BLOCK]
            )


def test_a_vehicle_has_the_same_gradient_in_any_company():
    """Whatever is reported of a vehicle's neighbours cannot be seen in its own gradient."""
    task, weights, n = fleet(64, 3), models(1, 3), 64
    features = np.vstack([task.examples.features[:1], -task.examples.features[1:]])
    other = Arrays(features, task.examples.targets)
    mine = task.gradients(weights, slice(0, n)).all(np.arange(3))
    again = Linear(task.objective, other).gradients(weights, slice(0, n)).all(np.arange(3))
    np.testing.assert_array_equal(mine[0], again[0])
    assert not np.array_equal(mine[1:], again[1:])


# Data and losses


@pytest.mark.parametrize("name", NAMES)
def test_losses_are_means_over_all_examples(name):
    """Over more than one block, for each model."""
    n, d = BLOCK + 500, 3
    task, weights = fleet(n, d, name), models(4, d)
    x, y = task.examples.features, task.examples.targets
    for found, function in ((task.loss, "loss"), (task.error, "error")):
        each = [getattr(objective(name), function)(x @ w, y).mean() for w in weights]
        np.testing.assert_allclose(found(weights), each, rtol=1e-12)
    owned = Linear(task.objective, task.examples, VehicleRows(np.arange(n) % 7))
    np.testing.assert_array_equal(owned.loss(weights), task.loss(weights))


def test_the_gradient_is_that_of_the_loss():
    for name in NAMES:
        task, weights, h = fleet(500, 3, name), models(1, 3), 1e-6
        mean = task.gradients(weights, slice(0, 500)).all(np.arange(3)).mean(axis=0)
        rises = [(task.loss(weights + h * e) - task.loss(weights - h * e))[0] for e in np.eye(3)]
        np.testing.assert_allclose(mean, np.array(rises) / (2 * h), atol=1e-5)


@pytest.mark.parametrize("kind", [np.int8, np.int64, np.bool_, np.float16, object])
def test_features_of_any_type_are_numbers(kind):
    """Weights are not cut to whole numbers to go with them."""
    x, y = np.array([[1, 0], [1, 1], [0, 1]]), [1, -1, 1]
    weights, columns = np.array([[0.6, -0.7]]), np.arange(2)
    found = Linear(objective("logistic"), Arrays(x.astype(kind), y))
    wanted = naive("logistic", weights, x, y)
    np.testing.assert_allclose(found.gradients(weights, slice(0, 3)).all(columns), wanted)
    chosen = found.gradients(weights, np.array([2, 0])).take(None, np.array([1, 0]))
    np.testing.assert_allclose(chosen, [wanted[2, 1], wanted[0, 0]])


def test_examples_need_a_target_for_each_row():
    shapes = (((3, 2), (2,)), ((3,), (3,)), ((3, 2), (3, 1)), ((2, 3, 2), (2,)))
    for features, targets in shapes:
        with pytest.raises(
            DomainError, match="a matrix with a row for each target; got arrays of shapes"
        ):
            Arrays(np.zeros(features), np.zeros(targets))


@pytest.mark.parametrize("order", ["C", "F"])
def test_features_may_lie_in_any_order(order):
    data, weights = examples(50, 4), models(2, 4)
    other = Arrays(np.array(data.features, order=order), data.targets)
    first, second = (
        Linear(objective("hinge"), each).gradients(weights, slice(0, 50)) for each in (data, other)
    )
    columns = fedldp.source(1).below(4, 100)
    np.testing.assert_array_equal(first.take(None, columns), second.take(None, columns))


def test_what_a_batch_returns_may_be_written_to():
    """Plans scale values in place: that must change neither the data nor the next answer."""
    data = examples(30, 3)
    kept = data.features.copy()
    for clients in (None, VehicleRows(np.arange(30) // 2)):
        batch = Linear(objective("squared"), data, clients).gradients(models(1, 3), slice(0, 30))
        columns = np.zeros(len(batch), np.int64)
        before = batch.all(np.arange(3)), batch.take(None, columns)
        for each in (batch.all(np.arange(3)), batch.take(None, columns)):
            each[:] = 7.0
        np.testing.assert_array_equal(batch.all(np.arange(3)), before[0])
        np.testing.assert_array_equal(batch.take(None, columns), before[1])
        np.testing.assert_array_equal(data.features, kept)


def test_only_what_is_asked_for_is_computed():
    """A batch of gradients is made once for each chunk, and asked for one column of each."""
    asked = []

    class Watched:
        def __init__(self, batch):
            self.batch = batch

        def __len__(self):
            return len(self.batch)

        def take(self, rows, columns):
            asked.append(columns.size)
            return self.batch.take(rows, columns)

        def all(self, columns):
            raise AssertionError("a vehicle is asked for the coordinates that it has chosen only")

    batch = fleet(80, 6).gradients(models(1, 6), slice(0, 80))
    assert isinstance(batch, DenseGradients)
    plan_for(6, "two").report_batches([Watched(batch)], fedldp.source(1))
    assert asked == [80, 80]
    assert len(Spy(5, 2).gradients(models(3, 2), slice(0, 4))) == 12


def test_a_network_of_which_the_last_layer_alone_is_trained_is_a_linear_model():
    """It trains exactly as a linear model on what the fixed layers give, survey included."""
    goal, rows = objective("softmax").with_outputs(3), 4000
    draw = np.random.default_rng(1)
    hidden = Network((4,), (Dense(5), Activation("tanh")), goal)
    network = replace(hidden, fixed=tuple(hidden.start(1)[:25]))
    x, y = np.c_[draw.uniform(-1, 1, (rows, 4)), np.ones(rows)], draw.integers(0, 3, rows)
    layered = Layered(network, Arrays(x, y.astype(float)))
    assert (layered.numbers, layered.dimensions, layered.length) == (5, 18, goal.length)
    assert (layered.distance, layered.mean_length) == (goal.distance, LINEAR_LENGTH)
    values = np.c_[network.hidden(x), np.ones(rows)]
    same = Linear(goal, Arrays(values, y.astype(float)))
    for name in ("squares", "deviations", "attributes"):
        assert np.all(getattr(layered.prior, name) == getattr(same.prior, name))
    weights = draw.normal(size=(1, 18))
    columns = np.arange(18)
    np.testing.assert_allclose(
        layered.gradients(weights, slice(9)).all(columns),
        same.gradients(weights, slice(9)).all(columns),
        atol=1e-12,
    )
    np.testing.assert_array_equal(layered.units(slice(9), fedldp.source(1)), values[:9, :5])
    scaling = Scaling((0.1,) * 5, (3.0,) * 5, tuple(map(tuple, np.eye(5) + 0.1)))
    scaled = layered.scaled(scaling)
    np.testing.assert_allclose(scaled.network.hidden(x), scaling(values[:, :5]), atol=1e-12)
    assert scaled.kind == layered.kind  # a checkpoint of the training can be resumed
    assert (scaled.prior.squares == 1).all()
    training = Settings(8.0).training(layered, layered.distance, fedldp.source(2))
    for _ in training:
        pass
    assert (training.survey.kind, training.scaling is None) == ("scale", False)
    assert Settings(8.0).optimizer_for(linear=layered.prior is not None).name == "noise-aware"


def test_other_networks_have_no_prior():
    goal = objective("softmax").with_outputs(3)
    trained = Network((4,), (Dense(5), Activation("tanh")), goal)
    number = Network((4,), (Dense(5), Activation("tanh")), objective("squared"))
    number = replace(number, fixed=tuple(number.start(1)[:25]))
    for network in (trained, number):
        task = Layered(network, Arrays(np.ones((3, 5)), np.zeros(3)))
        assert task.prior is None
        assert task.numbers == 0
