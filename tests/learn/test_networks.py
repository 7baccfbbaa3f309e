"""Networks: gradients against finite differences, documents, limits, linear models."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from network_cases import FIXED, NETWORKS, SOFTMAX, drawn

import fedldp
from fedldp.datasets.dataset import About, Dataset
from fedldp.errors import DomainError, WireError
from fedldp.learn import (
    Activation,
    Arrays,
    ChannelMean,
    Conv,
    Dense,
    Features,
    Layered,
    Linear,
    Model,
    Network,
    Settings,
    VehicleRows,
    objective,
)
from fedldp.learn.networks import (
    MOST_LAYERS,
    MOST_OPERATIONS,
    MOST_ROOM,
    MOST_WEIGHTS,
)
from fedldp.learn.optimizer import Adam
from fedldp.schema.attributes import Category, Number
from fedldp.schema.schema import Schema

every = pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)


def differences(network, weights, features, targets, step=1e-6):
    """The gradient of each row for one model, from the losses."""
    found = []
    for place in range(network.dimensions):
        moved = np.where(np.arange(network.dimensions) == place, step, 0.0)
        up, down = (
            network.objective.loss(network.scores((weights + way)[None], features), targets)[0]
            for way in (moved, -moved)
        )
        found.append((up - down) / (2 * step))
    return np.stack(found, axis=1)


@every
def test_gradients_are_what_finite_differences_give(network):
    weights, features, targets = drawn(network)
    values = network.gradients(weights, features, targets)
    assert len(values) == 10  # of the first model, then of the second
    found = values.all(np.arange(network.dimensions))
    wanted = np.concatenate([differences(network, each, features, targets) for each in weights])
    np.testing.assert_allclose(found, wanted, atol=1e-7)
    columns = np.arange(10) % network.dimensions
    np.testing.assert_allclose(values.take(None, columns), found[np.arange(10), columns])
    rows = np.array([7, 2])
    np.testing.assert_allclose(values.take(rows, columns[rows]), found[rows, columns[rows]])


@pytest.mark.parametrize(("network", "size"), FIXED.values(), ids=FIXED)
def test_fixed_layers_are_not_trained(network, size):
    weights, features, targets = drawn(network)
    whole = network.gradients(weights, features, targets).all(np.arange(network.dimensions))
    fixed = Network(network.inputs, network.layers, network.objective, weights[0, :size])
    assert fixed.dimensions == network.dimensions - size
    rest = weights[:1, size:]
    found = fixed.gradients(rest, features, targets).all(np.arange(fixed.dimensions))
    np.testing.assert_allclose(found, whole[:5, size:], atol=1e-12)
    np.testing.assert_array_equal(
        fixed.outputs(rest, features), network.outputs(weights[:1], features)
    )
    assert fixed.start(3).tolist() == network.start(3)[size:].tolist()
    assert Network.from_json(fixed.to_json()) == fixed
    with pytest.raises(DomainError, match="whole layers"):
        Network(network.inputs, network.layers, network.objective, weights[0, : size - 1])


def test_the_last_layer_is_always_trained():
    network = NETWORKS["regression"]
    with pytest.raises(DomainError, match="whole layers"):
        Network(network.inputs, network.layers, network.objective, [0.0] * network.dimensions)


@every
def test_a_vehicle_with_several_rows_has_their_mean(network):
    weights, features, targets = drawn(network)
    columns = np.arange(network.dimensions)
    each = network.gradients(weights, features, targets).all(columns)
    found = network.gradients(weights, features, targets, np.array([0, 2])).all(columns)
    wanted = [each[first:end].mean(axis=0) for first, end in ((0, 2), (2, 5), (5, 7), (7, 10))]
    np.testing.assert_allclose(found, wanted, atol=1e-12)


@every
def test_blocks_change_nothing(network, monkeypatch):
    weights, features, targets = drawn(network)
    columns = np.arange(network.dimensions)
    whole = network.gradients(weights, features, targets).all(columns)
    outputs = network.outputs(weights, features)
    monkeypatch.setattr("fedldp.learn.networks._BLOCK_NUMBERS", 2 * network.room)
    np.testing.assert_allclose(
        network.gradients(weights, features, targets).all(columns), whole, atol=1e-13
    )
    np.testing.assert_allclose(network.outputs(weights, features), outputs, atol=1e-13)
    for begins in ([0], [0, 1], [0, 2], [0, 3, 4], [0, 1, 2, 3, 4]):  # blocks have two rows
        several = network.gradients(weights, features, targets, np.array(begins)).all(columns)
        ends = [*begins[1:], 5]
        wanted = [
            model[first:end].mean(axis=0)
            for model in (whole[:5], whole[5:])
            for first, end in zip(begins, ends, strict=True)
        ]
        np.testing.assert_allclose(several, wanted, atol=1e-13)


def test_softmax_with_two_labels_is_logistic_regression():
    draw = np.random.default_rng(3)
    features, targets = draw.normal(size=(6, 5)), draw.integers(0, 2, 6).astype(float)
    two, one = Network.linear(5, objective("softmax")), Network.linear(5, objective("logistic"))
    weights = draw.normal(size=(1, 5))
    both = np.concatenate([-weights / 2, weights / 2], axis=1)
    scores = two.scores(both, features)
    np.testing.assert_allclose(scores[0, :, 1] - scores[0, :, 0], one.scores(weights, features)[0])
    found = two.gradients(both, features, targets).all(np.arange(10))
    wanted = one.gradients(weights, features, 2 * targets - 1).all(np.arange(5))
    np.testing.assert_allclose(found, np.c_[-wanted, wanted], atol=1e-13)
    losses = (
        two.objective.loss(scores, targets),
        one.objective.loss(one.scores(weights, features), 2 * targets - 1),
    )
    np.testing.assert_allclose(*losses)


def test_sparse_rows_of_softmax_are_the_written_out_ones():
    schema = Schema.of(age=(0, 100), city=["Oslo", "Rome", "Lima"], fuel=["gas", "power"])
    features = Features(schema, "none").encode(
        np.array([[10.0, 0, 1], [60.0, 2, 0], [90.0, 1, 1], [33.0, 2, 1]])
    )
    network = Network.linear(features.dimensions, SOFTMAX)
    draw = np.random.default_rng(5)
    weights = draw.normal(size=(2, network.dimensions))
    targets, columns = np.array([0.0, 2.0, 1.0, 1.0]), np.arange(network.dimensions)
    for begins in (None, np.array([0, 1, 3])):
        sparse = network.gradients(weights, features, targets, begins)
        dense = network.gradients(weights, features.dense(), targets, begins)
        wanted = dense.all(columns)
        np.testing.assert_allclose(sparse.all(columns), wanted, atol=1e-6)
        np.testing.assert_allclose(
            sparse.vectors(columns).dense(network.dimensions), wanted, atol=1e-6
        )


def test_how_many_numbers_of_a_sparse_gradient_are_written_out_depends_on_the_rows_alone():
    """Otherwise the time that directions take would tell how many labels a vehicle has seen."""
    schema = Schema.of(age=(0, 100), city=[*"abcdef"], fuel=["gas", "power"])
    network, begins = Network.linear(10, objective("squared")), np.array([0, 1, 3])
    columns, found = np.arange(10), []
    for labels in ([0, 0, 0, 0, 0, 0], [0, 1, 2, 3, 4, 5]):
        matrix = np.c_[np.linspace(10.0, 90.0, 6), labels, [0, 0, 1, 0, 0, 0]]
        features = Features(schema, "none").encode(matrix)
        weights, targets = np.ones((1, 10)), np.linspace(-1.0, 1.0, 6)
        sparse = network.gradients(weights, features, targets, begins).vectors(columns)
        dense = network.gradients(weights, features.dense(), targets, begins).all(columns)
        np.testing.assert_allclose(sparse.dense(10), dense, atol=1e-6)
        found.append(sparse.counts.tolist())
    assert found == [[4, 8, 10]] * 2  # four for each row, and never more than there are weights


# First weights


def test_first_weights_are_public_and_reproducible():
    network = NETWORKS["signals"]
    first, again, other = network.start(1), network.start(1), network.start(2)
    assert first.tolist() == again.tolist() != other.tolist()
    assert (network.outputs(first[None], drawn(network)[1]) == 0).all()
    filters = first[:21].reshape(3, 7)
    assert (filters[:, -1] == 0).all()
    assert (filters[:, :-1] != 0).all()
    assert (np.round(first, 6) == first).all()
    assert not NETWORKS["softmax"].start(1).any()


@pytest.mark.parametrize(("function", "gain"), [("relu", 2.0), ("tanh", 1.0)])
def test_first_weights_keep_the_size_of_values(function, gain):
    network = Network((400,), (Dense(60), Activation(function)), objective("squared"))
    drawn = network.start(4)[: 60 * 401].reshape(60, 401)[:, :-1]
    # The variance of 24,000 normal numbers, within 6 standard errors: one seed in 10^8 errs more.
    assert drawn.var() * 400 / gain == pytest.approx(1.0, abs=6 * math.sqrt(2 / drawn.size))
    assert abs(drawn.mean()) * 20 / gain**0.5 < 6 / math.sqrt(drawn.size)


# Documents


@every
def test_json_round_trip(network):
    text = network.to_json()
    again = Network.from_json(text)
    assert again == network
    assert (again.to_json(), again.fingerprint) == (text, network.fingerprint)
    assert len({each.fingerprint for each in NETWORKS.values()}) == len(NETWORKS)


@every
@given(data=st.data())
def test_only_wire_errors_escape(network, data):
    document = json.loads(network.to_json())
    name = data.draw(st.sampled_from(sorted(document)))
    wrong = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    value = data.draw(wrong | st.lists(wrong, max_size=3) | st.dictionaries(st.text(), wrong))
    if value == document[name]:
        return
    document[name] = value
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    try:
        found = Network.from_json(text)
    except WireError:
        return
    assert found.to_json() == text  # another valid network


def test_other_texts_are_refused():
    text = NETWORKS["logit"].to_json()
    for wrong in ("", "[]", "{}", text[:-1], text + "{}", "null"):
        with pytest.raises(WireError):
            Network.from_json(wrong)
    document = json.loads(text)
    for change in ({"outputs": 2}, {"objective": "softmax"}, {"fixed": [0.0]}, {"inputs": [4.0]}):
        with pytest.raises(WireError):
            Network.from_json(json.dumps(document | change, sort_keys=True, separators=(",", ":")))


# Limits, which are checked before anything is computed


@pytest.mark.parametrize(
    ("inputs", "layers", "said"),
    [
        ((4,), (Activation("relu"),) * (MOST_LAYERS + 1), f"at most {MOST_LAYERS} layers"),
        ((300,), (Dense(300),), f"at most {MOST_WEIGHTS:,} weights"),
        ((60_000,), (Dense(60_000),), f"at most {MOST_WEIGHTS:,} weights"),
        ((MOST_ROOM + 1,), (Dense(1),), f"at most {MOST_ROOM:,} values of a row"),
        ((16, 60_000), (Conv(60_000, 1),), f"at most {MOST_ROOM:,} values of layer 1"),
        ((1, 60_000), (Conv(2, 30), ChannelMean()), f"at most {MOST_ROOM:,} numbers in memory"),
        ((1, 400), (Conv(60, 300), ChannelMean()) * 1, ""),
        ((16, 2000), (Conv(60, 8), ChannelMean()), f"at most {MOST_OPERATIONS:,} multiplications"),
        ((4,), (Dense(1), Conv(1, 1)), "layer 2 of a network: .* must be signals"),
        ((2, 9), (Conv(1, 10),), "layer 1 of a network: .* at most 9"),
        ((2, 9), (Conv(1, 3),), "must give values and not signals"),
        ((-1,), (), "shape of a row"),
        ((1, 2, 3), (), "shape of a row"),
        (4, (), "shape of a row"),
        ((4,), ("dense",), "layers must be"),
    ],
)
def test_limits(inputs, layers, said):
    if not said:
        Network(inputs, layers, objective("squared"))
        return
    with pytest.raises(DomainError, match=said):
        Network(inputs, layers, objective("squared"))


@pytest.mark.parametrize("fixed", [[math.nan], [1e7], ["1"], [None], "abc", [0.0] * 3])
def test_fixed_weights_that_are_invalid(fixed):
    network = NETWORKS["regression"]
    with pytest.raises(DomainError, match="fixed must be"):
        Network(network.inputs, network.layers, network.objective, fixed)


def test_linear_models_have_no_limits_of_layers():
    assert Network.linear(MOST_WEIGHTS + 5, objective("logistic")).dimensions == MOST_WEIGHTS + 5


def test_weights_that_overflow_give_values_that_a_plan_replaces():
    network = NETWORKS["two layers"]
    weights, features, targets = drawn(network)
    found = network.gradients(weights * 1e200, features, targets).all(np.arange(3))
    assert found.shape == (10, 3)


# Training


def test_a_network_learns_what_a_linear_model_cannot():
    draw = np.random.default_rng(2)
    x = draw.uniform(-1, 1, (20_000, 2))
    y = np.where(x[:, 0] * x[:, 1] > 0, 1.0, -1.0)
    rows = Arrays(np.c_[x, np.ones(len(x))], y)
    task = Layered(Network((2,), (Dense(8), Activation("tanh")), objective("logistic")), rows)
    settings = Settings(epsilon=8.0, optimizer=Adam(0.1), group=200)
    training = settings.training(task, 1.0, fedldp.source(3), start=task.start)
    *_, last = training
    assert last.reports == 20_000
    assert task.error(training.models)[0] < 0.2
    assert task.loss(training.models)[0] < math.log(2)
    linear = Linear(objective("logistic"), rows)
    assert linear.error(np.ones((1, 3)))[0] > 0.4


def test_a_training_resumes_only_with_the_same_layers():
    rows = Arrays(np.c_[np.linspace(-1, 1, 400), np.ones(400)], np.sign(np.linspace(-1, 1, 400)))
    first, other = (
        Layered(Network((1,), (Dense(2), Activation(name)), objective("logistic")), rows)
        for name in ("tanh", "relu")
    )

    def training(task):
        settings = Settings(epsilon=4.0, group=100)
        return settings.training(task, 1.0, fedldp.source(1), start=task.start)

    began = training(first)
    began.advance()
    again = training(first)
    again.resume(began.to_json())
    assert list(again) == list(began)
    assert (again.models == began.models).all()
    with pytest.raises(WireError, match="other settings"):
        training(other).resume(began.to_json())


def test_rows_must_fit():
    network = NETWORKS["regression"]
    with pytest.raises(DomainError, match="4 values and the constant; got 4"):
        Layered(network, Arrays(np.ones((3, 4)), np.ones(3)))
    with pytest.raises(DomainError, match="vehicle_rows"):
        Layered(network, Arrays(np.ones((3, 5)), np.ones(3)), VehicleRows(["a", "b"]))


# Models


GAIT = Category("gait", ["stand", "walk", "run"])
SIGNALS = Schema((Number("x", -2, 2, size=9), Number("y", -2, 2, size=9)))


def test_a_model_with_layers_answers_its_gradient():
    network = NETWORKS["signals"]
    weights, features, targets = drawn(network)
    model = Model("softmax", SIGNALS, GAIT, weights[0], layers=network)
    assert Model.from_json(model.to_json()) == model
    assert json.loads(model.to_json())["format"] == "fedldp model 4"
    matrix = np.c_[2 * np.clip(features[:, :-1], -1, 1), targets]
    columns = np.arange(network.dimensions)
    clipped = np.c_[np.clip(features[:, :-1], -1, 1), np.ones(5)]
    wanted = network.gradients(weights[:1], clipped, targets).all(columns)
    np.testing.assert_allclose(model.answers(matrix).all(columns), wanted, atol=1e-5)
    rows = {"x": matrix[:, :9], "y": matrix[:, 9:18]}
    scores = network.scores(weights[:1], clipped)[0]
    np.testing.assert_allclose(model.scores(rows), scores, atol=1e-5)
    found = model.probabilities(rows)
    np.testing.assert_allclose(found, network.objective.probabilities(scores), atol=1e-5)
    assert model.predict(rows).tolist() == [GAIT.categories[i] for i in scores.argmax(axis=1)]


def test_a_softmax_model():
    schema = Schema.of(age=(0, 100))
    model = Model("softmax", schema, GAIT, [-1.0, 0.0, 0.0, 0.5, 1.0, 0.0])
    rows = {"age": [0.0, 50.0, 100.0], "gait": ["stand", "walk", "walk"]}
    assert model.scores(rows).tolist() == [[1.0, 0.5, -1.0], [0.0, 0.5, 0.0], [-1.0, 0.5, 1.0]]
    assert model.predict(rows).tolist() == ["stand", "walk", "run"]
    assert model.errors(rows).tolist() == [0.0, 0.0, 1.0]
    np.testing.assert_allclose(model.probabilities(rows).sum(axis=1), 1.0)
    assert Model.from_json(model.to_json()) == model
    assert "walk" in model._repr_html_()
    with pytest.raises(DomainError, match="6 numbers"):
        Model("softmax", schema, GAIT, [0.0] * 2)
    with pytest.raises(DomainError, match="must be a category"):
        Model("softmax", schema, Number("y", 0, 1), [0.0] * 4)
    with pytest.raises(DomainError, match="not probabilities"):
        Model("squared", schema, Number("y", 0, 1), [0.0, 0.0]).probabilities(rows)


@pytest.mark.parametrize(
    "network",
    [NETWORKS["softmax"], NETWORKS["logit"], NETWORKS["two layers"]],
    ids=["no layers", "other objective", "other inputs"],
)
def test_networks_that_a_model_cannot_have(network):
    with pytest.raises(DomainError, match="network"):
        Model("softmax", SIGNALS, GAIT, [0.0] * network.dimensions, layers=network)


# Rules from public numbers


def test_rules_depend_on_public_numbers_alone():
    dense, signals = NETWORKS["two layers"], NETWORKS["signals"]
    assert NETWORKS["softmax"].distance == SOFTMAX.distance
    assert dense.distance == SOFTMAX.distance > 4
    assert NETWORKS["regression"].distance == 4.0 > objective("squared").distance
    assert signals.distance == 32 * dense.distance
    assert (dense.mean_length, signals.mean_length) == (0.5, 0.8)
    assert NETWORKS["linear"].rows_at_once * NETWORKS["linear"].dimensions <= 1 << 24


def test_signals_are_not_surveyed_and_features_are():
    matrix = np.random.default_rng(1).uniform(-2, 2, (12_000, 18))
    columns = [matrix[:, :9], matrix[:, 9:], np.arange(12_000) % 3]
    schema = Schema((*SIGNALS.attributes, GAIT))
    data = Dataset(About("toy", "Toy", "here"), schema, tuple(columns), {"softmax": "gait"})
    rows = data.examples("softmax")
    flat = Network((18,), (Dense(2), Activation("tanh")), SOFTMAX)
    assert Layered(flat, rows).numbers == 18
    assert Layered(NETWORKS["signals"], rows).numbers == 0
    settings = Settings(epsilon=8.0)
    for network, surveyed in ((flat, True), (NETWORKS["signals"], False)):
        task = Layered(network, rows)
        training = settings.training(task, task.distance, fedldp.source(1))
        assert (training.survey is not None) == surveyed
        training.advance()
        assert (training.scaling is not None) == surveyed


def test_each_replica_can_begin_elsewhere():
    rows = Arrays(np.c_[np.linspace(-1, 1, 60), np.ones(60)], np.sign(np.linspace(-1, 1, 60)))
    task = Layered(Network((1,), (Dense(2), Activation("tanh")), objective("logistic")), rows)
    starts = np.array([task.network.start(seed) for seed in range(3)])
    settings = Settings(epsilon=4.0, group=20)
    training = settings.training(task, 1.0, fedldp.source(1), replicas=3, start=starts)
    assert (training.state.weights == starts).all()
    assert (settings.training(task, 1.0, fedldp.source(1)).state.weights == task.start).all()
    training.advance()
    for wrong in (starts[:2], starts[:, :-1], starts[0, :-1]):
        with pytest.raises(DomainError, match="start must be"):
            settings.training(task, 1.0, fedldp.source(1), replicas=3, start=wrong)


def test_a_training_begins_where_another_has_ended():
    rows = Arrays(np.c_[np.linspace(-1, 1, 60), np.ones(60)], np.sign(np.linspace(-1, 1, 60)))
    task = Linear(objective("logistic"), rows)
    settings = Settings(epsilon=4.0, group=20)
    first = settings.training(task, task.distance, fedldp.source(1))
    *_, last = first
    second = settings.training(task, task.distance, fedldp.source(2), state=first.state)
    assert (second.reports, second.rounds, second.finished) == (0, 3, False)
    assert second.advance().number == 1
    assert second.state.round == last.number + 1
    saved, again = (
        second.to_json(),
        settings.training(task, task.distance, fedldp.source(2), state=first.state),
    )
    again.resume(saved)
    assert list(again) == list(second)
    assert (again.models == second.models).all()
    other = Layered(Network((1,), (Dense(1),), objective("softmax")), rows)
    with pytest.raises(DomainError, match="state must be of 1 x 6 weights"):
        settings.training(other, 1.0, fedldp.source(1), state=first.state)
