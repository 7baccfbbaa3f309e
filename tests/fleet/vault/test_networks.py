"""Networks in questions: what a vault computes for them, what it refuses, and what that takes."""

import json
import logging
import tracemalloc

import numpy as np
import pytest
from plans import canonical, changed
from vaults import answer, asked, framed, lines, listening, sent_back, vault

import fedldp
from fedldp import Category, Number, Plan, Schema
from fedldp.coders import codebook
from fedldp.errors import DomainError, FedLDPError, WireError
from fedldp.fleet.job import Job
from fedldp.fleet.sockets import LENGTH
from fedldp.learn import (
    Activation,
    Arrays,
    ChannelMean,
    Conv,
    Dense,
    Features,
    Flatten,
    Layered,
    Model,
    Network,
    Pool,
    Scaling,
    Settings,
    VehicleRows,
    computations,
    networks,
    objective,
)
from fedldp.learn.model import OF_A_NUMBER
from fedldp.learn.networks import MOST_LAYERS, MOST_WEIGHTS

SIGNAL = Schema((Number("x", -2, 2, size=12), Number("y", -2, 2, size=12)))
GAIT = Category("gait", ["stand", "walk", "run"])
SCHEMA = Schema((*SIGNAL.attributes, GAIT))
SOFTMAX = objective("softmax").for_target(GAIT)
LAYERS = {
    "softmax": None,
    "perceptron": Network((24,), (Dense(4), Activation("tanh")), SOFTMAX),
    "convolution": Network((2, 12), (Conv(3, 4, 2), Activation("silu"), ChannelMean()), SOFTMAX),
    "pool": Network(
        (2, 12), (Conv(2, 3), Activation("relu"), Pool(2, 2, "max"), Flatten()), SOFTMAX
    ),
}
EPSILON = 4.0


def model_of(name, seed=1):
    network = LAYERS[name] or Network.linear(25, SOFTMAX)
    weights = np.random.default_rng(seed).normal(size=network.dimensions)
    return Model("softmax", SIGNAL, GAIT, weights, layers=LAYERS[name])


def plan_of(model):
    return Settings(EPSILON).plan(model.dimensions, model.goal.length)


def rows(number, seed=2):
    draw = np.random.default_rng(seed)
    return np.c_[draw.normal(size=(number, 24)), draw.integers(0, 3, number)]


def held(path, number=8, keys=None, cap=EPSILON):
    return vault(path, rows(number), keys, cap, SCHEMA)


def question(name="convolution", n=3, **options):
    model = model_of(name)
    return asked(n, plan_of(model), model, **options)


every = pytest.mark.parametrize("name", LAYERS)


# What is computed


def computed(one, asked_for, vehicles):
    """Return the values of some vehicles, before noise."""
    found = list(one._values(one._asked(asked_for))(np.asarray(vehicles)))
    columns = np.arange(json.loads(asked_for.plan)["schema"][0]["size"])
    return np.concatenate([each.all(columns) for each in found])


@every
def test_a_vehicle_answers_the_gradient_of_its_rows(tmp_path, name):
    """The same that a simulation computes, for vehicles with one to four rows."""
    sizes = np.random.default_rng(5).integers(1, 5, 30)
    keys = np.repeat([f"car {i:02}" for i in range(30)], sizes)
    matrix, model = rows(len(keys)), model_of(name)
    one = vault(tmp_path / "ledger", matrix, keys.tolist(), EPSILON, SCHEMA)
    found = computed(one, question(name), np.arange(30))
    examples = Arrays(Features(SIGNAL).encode(matrix[:, :-1]), matrix[:, -1])
    task = Layered(model.network, examples, VehicleRows(keys))
    wanted = task.gradients(np.array([model.weights]), np.arange(30))
    np.testing.assert_allclose(found, wanted.all(np.arange(model.dimensions)), atol=1e-6)


@every
def test_blocks_change_nothing(tmp_path, name, monkeypatch):
    keys = [f"car {i // 3}" for i in range(30)]
    one = held(tmp_path / "ledger", 30, keys)
    whole = computed(one, question(name), np.arange(10))
    monkeypatch.setattr(computations, "_ROOM", 4 * model_of(name).room)
    monkeypatch.setattr(networks, "_BLOCK_NUMBERS", 1)  # a row at a time
    blocks = list(one._values(one._asked(question(name)))(np.arange(10)))
    assert [len(block) for block in blocks] == [4, 4, 2]
    np.testing.assert_allclose(computed(one, question(name), np.arange(10)), whole, atol=1e-6)


@every
def test_the_same_question_gets_the_same_answer_and_nobody_pays_twice(tmp_path, name):
    one = held(tmp_path / "ledger")
    first = one.answer(question(name))
    assert one.answer(question(name)) == first
    assert (first.answered, len(lines(one))) == (3, 3)
    again = held(tmp_path / "ledger")  # after a restart
    assert again.answer(question(name)) == first
    with pytest.raises(FedLDPError, match="another question"):
        again.answer(asked(3, plan_of(model_of(name)), model_of(name, seed=9)))


def test_answers_are_about_the_gradient(tmp_path):
    """The mean of many, within 6 standard errors: one seed in 10^7 errs more for 33 weights."""
    model = model_of("convolution")
    plan = plan_of(model)
    one = vault(tmp_path / "ledger", np.tile(rows(1), (20_000, 1)), None, EPSILON, SCHEMA)
    batch = one.answer(asked(20_000, plan, model))
    found = plan.parse(batch.report(plan.fingerprint).to_bytes()).estimate()["x"]
    gradient = model.answers(rows(1)).all(np.arange(model.dimensions))[0]
    wanted = gradient / max(1.0, np.linalg.norm(gradient) / model.goal.length)
    assert np.all(np.abs(found.mean - wanted) <= 6 * found.stderr)
    assert np.linalg.norm(wanted) > 10 * np.linalg.norm(found.stderr) / np.sqrt(model.dimensions)


@every
@pytest.mark.parametrize("size", [1e-40, 1e25])
def test_vehicles_answer_for_any_weights_and_any_data(tmp_path, name, size):
    """A gradient that overflows says no more than another: data never decide what is sent."""
    model, matrix = model_of(name), rows(8)
    matrix[:4, :-1] = [[np.nan], [np.inf], [-np.inf], [1e300]]
    weights = np.where(np.array(model.weights) > 0, size, -size)
    model = Model("softmax", SIGNAL, GAIT, weights, layers=LAYERS[name])
    one = vault(tmp_path / "ledger", matrix, None, EPSILON, SCHEMA)
    asked_for = asked(8, plan_of(model), model)
    assert len(one.answer(asked_for).to_bytes()) == asked_for.size
    assert len(lines(one)) == 8


# What is refused


def document():
    return json.loads(model_of("convolution").to_json())


def hostile():
    """Yield models that are no model, or that would take too much."""
    found, network = document(), document()["network"]
    layers, weights = network["layers"], found["weights"]

    def with_layers(*new):
        return changed(found, ("network", "layers"), list(new))

    conv, silu, mean = layers
    yield "an unknown layer", with_layers({"layer": "python"}, silu, mean)
    yield "code", with_layers(conv | {"code": "import os"}, silu, mean)
    yield "a layer that is a text", with_layers("conv", silu, mean)
    yield "a layer that is a list", with_layers([conv], silu, mean)
    yield "an unknown function", with_layers(conv, silu | {"function": "eval"}, mean)
    yield "no layers", with_layers()
    yield "layers without end", with_layers(conv, *[silu] * MOST_LAYERS, mean)
    yield "a million layers", with_layers(*[silu] * 50_000)
    yield "an entry that is missing", with_layers({"layer": "conv", "filters": 3}, silu, mean)
    for size in (0, -1, 1 << 16, (1 << 16) + 1, 10**30, 3.0, True, None, "3", [3]):
        yield f"{size!r:.20} filters", with_layers(conv | {"filters": size}, silu, mean)
        yield f"{size!r:.20} width", with_layers(conv | {"width": size}, silu, mean)
        flat = [{"layer": "flatten"}, {"layer": "dense", "units": size, "bias": True}]
        yield f"{size!r:.20} units", with_layers(*flat)
    wide = {"layer": "dense", "units": 1 << 16, "bias": True}
    yield "wide and wide", with_layers({"layer": "flatten"}, wide, wide)
    yield "signals at the end", with_layers(conv, silu)
    yield "values into a convolution", with_layers(mean, conv)
    for shape in ([24], [12, 2], [2, 13], [2, 12, 1], [0, 12], [-2, -12], [], [2.0, 12], "24", 24):
        yield f"inputs {shape}", changed(found, ("network", "inputs"), shape)
    for number in (float("nan"), float("inf"), 1e26, "0", None, [0.0], True):
        yield f"a weight {number!r}", changed(found, ("weights", 0), number)
    yield "a weight too few", changed(found, ("weights",), weights[1:])
    yield "a weight too many", changed(found, ("weights",), [*weights, 0.0])
    yield "weights without end", changed(found, ("weights",), [0] * (2 * MOST_WEIGHTS))
    for fixed in ([float("nan")] * 27, [1e9] * 27, [0.0] * 26, [0.0] * len(weights), "0" * 27):
        yield f"fixed {fixed!s:.20}, {len(fixed)}", changed(found, ("network", "fixed"), fixed)
    yield "another objective", changed(found, ("objective",), "hinge")
    yield "an unknown objective", changed(found, ("objective",), "python")
    yield "another target", changed(found, ("target", "categories"), ["stand", "walk"])
    yield "more labels", changed(found, ("target", "categories"), [*GAIT.categories, "fly"])
    yield "another format", changed(found, ("format",), "fedldp model 1")
    yield "another entry", found | {"code": "import os"}


HOSTILE = {
    name: text
    for name, found in hostile()
    if (text := json.dumps(found, sort_keys=True, separators=(",", ":")))
    != model_of("convolution").to_json()
}


def test_there_are_many():
    assert len(HOSTILE) > 60
    assert canonical(document()) == model_of("convolution").to_json()  # the one that is changed


@pytest.fixture(scope="module")
def refusing(tmp_path_factory):
    return held(tmp_path_factory.mktemp("refusing") / "ledger")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_network_is_refused_before_anything_is_computed(refusing, name, monkeypatch):
    one, sound = refusing, question()
    monkeypatch.setattr(Network, "gradients", lambda *_: pytest.fail("it was computed"))
    wrong = asked(3, sound.plan, HOSTILE[name])
    tracemalloc.start()
    try:
        with pytest.raises(FedLDPError) as refusal:
            one.answer(wrong)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 << 20
    assert isinstance(refusal.value, WireError | DomainError)
    assert lines(one) == []


@pytest.mark.parametrize("name", ["an unknown layer", "wide and wide", "a weight nan"])
def test_nothing_but_a_refusal_leaves_the_vault(tmp_path, name, caplog):
    one, sound = held(tmp_path / "ledger"), question()
    wrong = asked(3, sound.plan, HOSTILE[name])
    with listening(one, tmp_path / "socket") as address, caplog.at_level(logging.WARNING):
        data = sent_back(address, framed(wrong.to_bytes()))
        again = sent_back(address, framed(wrong.to_bytes()))
        assert answer(address, sound).answered == 3  # the round is still there
    assert data == again
    assert data[:4] == LENGTH.pack(wrong.size)
    assert not data[-(wrong.size - 33) :].strip(b"\0")  # no record
    assert len(data) == 4 + sound.size
    logged = [each.message for each in caplog.records if "refused" in each.message]
    assert len(logged) == 1
    assert "spring/1" in logged[0]


def test_a_network_for_attributes_that_the_vault_does_not_hold(tmp_path):
    other = changed(document(), ("schema", 0, "high"), 3.0)
    with pytest.raises(DomainError, match="does not hold"):
        held(tmp_path / "ledger").answer(asked(3, question().plan, canonical(other)))


def test_a_plan_must_be_for_the_weights_that_are_trained(tmp_path):
    one, model = held(tmp_path / "ledger"), model_of("convolution")
    plan = Plan(Schema.vector(model.dimensions + 1, length=1.0), EPSILON, strategy="directions")
    with pytest.raises(DomainError, match=f"a vector of {model.dimensions} numbers"):
        one.answer(asked(3, plan, model))
    fixed = Network((2, 12), model.layers.layers, SOFTMAX, model.weights[:27])
    rest = Model("softmax", SIGNAL, GAIT, model.weights[27:], layers=fixed)
    with pytest.raises(DomainError, match=f"a vector of {rest.dimensions} numbers"):
        one.answer(asked(3, plan_of(model), rest))
    assert one.answer(asked(3, plan_of(rest), rest)).answered == 3


# What it takes


def heavy():
    """Return a model whose gradient takes as long as any."""
    layers = (Conv(60, 8), Activation("relu"), ChannelMean())
    schema = Schema((Number("x", -1, 1, size=8000),))
    network = Network((8, 1000), layers, SOFTMAX)
    return Model("softmax", schema, GAIT, network.start(1), layers=network)


def most_vehicles(model):
    return computations.MOST_WORK // (model.cost + OF_A_NUMBER * model.dimensions)


def test_a_wide_network_takes_as_long_as_a_deep_one():
    """Its gradient has many numbers, which must be written and drawn through the plan."""
    network = Network((24,), (Dense(2000), Activation("relu")), SOFTMAX)
    wide = Model("softmax", SIGNAL, GAIT, network.start(1), layers=network)
    assert 0.8 * MOST_WEIGHTS < wide.dimensions <= MOST_WEIGHTS
    assert 5_000 < most_vehicles(wide) < most_vehicles(heavy())
    assert computations.most_rows(wide) == 1


def test_a_question_that_takes_too_long_is_refused(tmp_path, monkeypatch):
    model = heavy()
    most = most_vehicles(model)
    assert 0.9 * networks.MOST_OPERATIONS < model.layers.operations <= networks.MOST_OPERATIONS
    assert 10_000 < most < 20_000
    one = vault(
        tmp_path / "ledger",
        np.zeros((2, 8001)),
        None,
        4.0,
        Schema((*model.schema.attributes, GAIT)),
    )
    monkeypatch.setattr(Network, "gradients", lambda *_: pytest.fail("it was computed"))
    with pytest.raises(DomainError, match="Ask fewer vehicles at a time, or a smaller model"):
        one.answer(asked(most + 1, plan_of(model), model))
    assert lines(one) == []
    monkeypatch.undo()
    assert one.answer(asked(most, plan_of(model), model)).answered == 2


def test_a_job_that_vaults_would_refuse_is_refused_by_the_server(tmp_path):
    model = heavy()
    most = most_vehicles(model)
    recipe = Settings(EPSILON).recipe(model.dimensions, 1, model.goal.distance, linear=False)
    files = tmp_path / "job.db", tmp_path / "model.json"
    Job("heavy", plan_of(model), *files, most, model, recipe)
    with pytest.raises(DomainError, match="multiplications"):
        Job("heavy", plan_of(model), *files, most + 1, model, recipe)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_vehicles_and_rows(tmp_path):
    """A gradient of the largest network has half a megabyte."""
    schema = Schema((Number("x", -1, 1, size=640),))
    network = Network((640,), (Dense(100), Activation("relu")), SOFTMAX)
    assert 0.9 * MOST_WEIGHTS < network.dimensions <= MOST_WEIGHTS
    model = Model("softmax", schema, GAIT, network.start(1), layers=network)
    peaks = []
    for number, (vehicles, each) in enumerate([(64, 1), (192, 1), (64, 12)]):
        matrix = np.c_[fedldp.source(1).uniform((vehicles * each, 640)), np.zeros(vehicles * each)]
        keys = [str(i // each) for i in range(len(matrix))]
        one = vault(tmp_path / str(number), matrix, keys, 4.0, Schema((*schema.attributes, GAIT)))
        asked_for = asked(vehicles, plan_of(model), model)
        tracemalloc.start()
        try:
            assert one.answer(asked_for).answered == vehicles
            peaks.append(tracemalloc.get_traced_memory()[1] - matrix.nbytes)
        finally:
            tracemalloc.stop()
    assert max(peaks[1:]) < 1.2 * peaks[0]
    assert peaks[0] < 256 << 20


# The time does not depend on the data


def test_a_model_that_takes_long_uses_few_rows():
    """What the rows of a vehicle take together is limited by a public number."""
    small, large = model_of("convolution"), heavy()
    linear = model_of("softmax")
    assert computations.most_rows(linear) == computations.MOST_ROWS
    assert 100 < computations.most_rows(small) < computations.MOST_ROWS
    assert computations.most_rows(large) == 1
    for model in (small, large):
        most = max(model.cost, computations._WORK_OF_ROWS)
        assert computations.most_rows(model) * model.cost <= most


def test_of_many_rows_each_is_equally_likely(tmp_path, monkeypatch):
    """Three of five, of 5,000 vehicles: a count is 6 deviations off once in 10^8 seeds."""
    keys = [f"car {i // 5:04}" for i in range(25_000)]
    one = held(tmp_path / "ledger", 25_000, keys)
    monkeypatch.setattr(computations, "_WORK_OF_ROWS", 3 * model_of("convolution").cost)
    found, begins = one._rows_of(np.arange(5000), computations.most_rows(model_of("convolution")))
    assert begins.tolist() == list(range(0, 15_000, 3))
    assert (found.reshape(-1, 3) // 5 == np.arange(5000)[:, None]).all()
    assert all(len(set(each)) == 3 for each in found.reshape(-1, 3).tolist())
    counts = np.bincount(found % 5, minlength=5)
    assert np.all(np.abs(counts - 3000) <= 6 * np.sqrt(5000 * 0.6 * 0.4))


def test_vehicles_with_few_rows_keep_all_of_them(tmp_path):
    keys = ["a", "b", "b", "c", "c", "c", "c", "c"]
    one = held(tmp_path / "ledger", 8, keys)
    found, begins = one._rows_of(np.arange(3), 4)
    assert begins.tolist() == [0, 1, 3]
    assert found[:1].tolist() == [0]
    assert sorted(found[1:3].tolist()) == [1, 2]
    assert len(set(found[3:].tolist()) & {3, 4, 5, 6, 7}) == 4


def subnormal(values):
    """Return how many numbers are smaller than the least normal one, and not 0."""
    found = np.abs(values[np.isfinite(values)])
    return int(np.count_nonzero((found > 0) & (found < np.finfo(np.float32).tiny)))


@every
@pytest.mark.parametrize("size", [1e-45, 1e-38, 1e-30, 1e-20, 1e-13, 1e-6, 1.0, 1e6, 1e25])
def test_no_tiny_number_is_computed_with(name, size, monkeypatch):
    """Processors take longer for subnormal numbers: a server could make them, for some rows."""
    model = model_of(name)
    weights = size * np.random.default_rng(1).normal(size=model.dimensions)
    weights[::3] /= size
    seen = []

    def flush(values):
        seen.append(values.astype(np.float64))
        return np.where(np.abs(values) < 2.0**-40, values.dtype.type(0), values)

    monkeypatch.setattr(networks, "without_tiny", flush)
    factors = tuple(np.clip(size * np.arange(24.0), 0, 1e6).tolist())
    scaling = Scaling((0.0,) * 24, factors)  # the server's choice, too
    weights = np.clip(weights, -1e25, 1e25)
    model = Model("softmax", SIGNAL, GAIT, weights, scaling=scaling, layers=LAYERS[name])
    matrix = rows(50)
    assert subnormal(model.features.encode(matrix[:, :-1])) == 0
    gradient = model.answers(matrix).all(np.arange(model.dimensions))
    assert subnormal(gradient) == 0
    # The second is that of the weights, as they came.
    assert [number for number, values in enumerate(seen) if subnormal(values)] in ([], [1])


def test_the_work_does_not_depend_on_how_much_of_a_gradient_is_zero(tmp_path, monkeypatch):
    """A server may choose weights so that a gradient is zero for some data alone."""
    network = Network((24,), (Dense(8), Activation("relu")), SOFTMAX)
    weights = np.zeros(network.dimensions)
    weights[: 25 * 8 : 25] = 1e6  # of the first number: negative ones give zeros everywhere
    weights[25 * 8 :] = 1.0
    model = Model("softmax", SIGNAL, GAIT, weights, layers=network)
    plan, mixed, work = Settings(EPSILON).plan(model.dimensions, 1.0), codebook._mixed, []
    monkeypatch.setattr(
        codebook, "_mixed", lambda *some: work[-1].append(some[0].shape) or mixed(*some)
    )
    gradients = []
    for number in (-1.0, 1.0):
        matrix = np.full((3, 25), number)
        matrix[:, -1] = 1
        gradients.append(np.count_nonzero(model.answers(matrix).all(np.arange(model.dimensions))))
        work.append([])
        held = vault(tmp_path / f"{number}.db", matrix, cap=EPSILON, schema=SCHEMA)
        held._source = fedldp.source()  # as in a real vault: from a seed, zeros take no time
        assert held.answer(asked(3, plan, model)).answered == 3
    assert gradients[0] * 2 < gradients[1]
    assert plan.parts[0].coders[0].kind == "directions"
    assert work[0] == work[1] != []
