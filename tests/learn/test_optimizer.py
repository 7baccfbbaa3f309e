"""The server's half: steps against plain loops, states as JSON, gradients from any shards."""

import json
import math
import random

import numpy as np
import pytest
from damage import damaged
from fleets import STRATEGIES, fleet, plan_for
from hypothesis import given
from hypothesis import strategies as st

import fedldp
from fedldp import Plan, Schema
from fedldp.errors import DataWarning, DomainError, WireError
from fedldp.learn import optimizer
from fedldp.learn.noise_aware import Observed, Prior
from fedldp.learn.objectives import objective
from fedldp.learn.optimizer import (
    SGD,
    Adam,
    NoiseAware,
    Recipe,
    State,
    auto_group,
    auto_rate,
)
from fedldp.learn.settings import Settings
from fedldp.plan.strategies import Sample

POWERS = {"constant": 0.0, "sqrt": 0.5, "inverse": 1.0}
PRIOR = Prior.of_numbers(2, objective("logistic"))


def reference(recipe, start, gradients):
    """Return the weights after each step, of one model, by the textbook."""
    w, m, v, found = list(start), [0.0] * len(start), [0.0] * len(start), []
    for t, gradient in enumerate(gradients, start=1):
        kept, rate = recipe.optimizer.momentum, recipe.rate / t ** POWERS[recipe.optimizer.schedule]
        for i, g in enumerate(gradient):
            g += recipe.alpha * w[i]
            if recipe.optimizer.name == "sgd":
                m[i] = kept * m[i] + g
                w[i] -= rate * m[i]
                continue
            m[i] = kept * m[i] + (1 - kept) * g  # Kingma and Ba 2015
            v[i] = 0.999 * v[i] + 0.001 * g * g
            m_hat, v_hat = m[i] / (1 - kept**t), v[i] / (1 - 0.999**t)
            w[i] -= rate * m_hat / (math.sqrt(v_hat) + 1e-8)
        found.append(list(w))
    return np.array(found)


RECIPES = st.builds(
    lambda kind, alpha, **options: Recipe(kind(**options), alpha),
    kind=st.sampled_from([Adam, SGD]),
    learning_rate=st.floats(0.001, 2.0),
    schedule=st.sampled_from(sorted(POWERS)),
    momentum=st.sampled_from([0.0, 0.5, 0.8, 0.99]),
    average=st.booleans(),
    alpha=st.sampled_from([0.0, 0.01, 0.3]),
)


@given(RECIPES, st.integers(1, 3), st.integers(1, 12), st.integers(0, 99))
def test_steps_are_those_of_the_textbook(recipe, replicas, rounds, seed):
    """And the average is the weighted mean of all iterates, written out."""
    rng, d = fedldp.source(seed), 3
    gradients = rng.uniform((rounds, replicas, d)) * 2 - 1
    start = rng.uniform((replicas, d))
    state = State.start(start)
    for gradient in gradients:
        before, kept = state, gradient.copy()
        state = optimizer.step(recipe, state, gradient)
        np.testing.assert_array_equal(gradient, kept)
    assert state.round == rounds
    for r in range(replicas):
        iterates = reference(recipe, start[r], gradients[:, r])
        np.testing.assert_allclose(state.weights[r], iterates[-1], rtol=1e-9, atol=1e-12)
        wanted = iterates[-1]
        if recipe.optimizer.average:
            own = [t * (t + 1) for t in range(1, rounds + 1)]
            wanted = np.average(iterates, axis=0, weights=own)
        np.testing.assert_allclose(state.average[r], wanted, rtol=1e-9, atol=1e-12)
        length = math.dist(state.weights[r], before.weights[r])
        assert state.change[r] == pytest.approx(length, rel=1e-9, abs=1e-12)


def test_the_papers_algorithm_is_plain_gradient_descent():
    recipe = Recipe(SGD(0.25, momentum=0.0, average=False))
    state = State.start(np.array([1.0, -2.0]))
    for t in range(1, 9):
        state = optimizer.step(recipe, state, np.array([[0.5, -1.0]]))
        assert state.weights.tolist() == state.average.tolist() == [[1 - t / 8, -2 + t / 4]]


def test_replicas_step_alone():
    """A row is the same, whatever the other rows are."""
    gradients = fedldp.source(1).uniform((20, 3, 2)) - 0.4
    for optimizer_used in (Adam(0.1), SGD(0.1), NoiseAware()):
        recipe = Recipe(optimizer_used, alpha=0.1)
        together, alone = State.start(np.zeros((3, 2))), State.start(np.zeros(2))
        for gradient in gradients:
            lengths = np.abs(gradient[:, 0])
            seen = Observed(gradient, 0.01, lengths), Observed(gradient[1:2], 0.01, lengths[1:2])
            together = optimizer.step(recipe, together, seen[0], PRIOR)
            alone = optimizer.step(recipe, alone, seen[1], PRIOR)
        for name in ("weights", "average", "momentum", "squares", "change"):
            np.testing.assert_array_equal(getattr(together, name)[1], getattr(alone, name)[0])


# It ends


def test_settled_when_every_step_is_shorter():
    recipe = Recipe(SGD(1.0, momentum=0.0, tol=0.1))
    state = State.start(np.zeros((2, 1)))
    assert not optimizer.settled(recipe, state)  # nothing has been learned yet
    for step, wanted in (([1, 1], False), ([0.01, 1], False), ([1, 0.1], False), ([1, 0.05], True)):
        state = optimizer.step(recipe, state, np.array(step, float)[:, None])
        assert optimizer.settled(recipe, state) is wanted
    assert not optimizer.settled(
        Recipe(Adam(1.0)),
        optimizer.step(Recipe(Adam(1.0)), state, np.zeros((2, 1))),
    )


@pytest.mark.parametrize("kind", optimizer.OPTIMIZERS)
@pytest.mark.parametrize("average", [True, False])
def test_a_replica_that_has_settled_stays(kind, average):
    """As a training of its own it would have ended: neither weights nor average move again."""
    steps = {} if kind is NoiseAware else {"learning_rate": 0.5, "schedule": "inverse"}
    recipe = Recipe(kind(**steps, tol=0.07, average=average))
    state, settled = State.start(np.zeros((3, 2))), {}
    size = 0.02 if kind is NoiseAware else 1.0  # of a gradient: it goes to the minimum at once
    for gradient in size * (fedldp.source(3).uniform((60, 3, 2)) - 0.5):
        state = optimizer.step(recipe, state, Observed(gradient, 0.01), PRIOR)
        for r in np.flatnonzero(state.change < recipe.optimizer.tol):
            kept = settled.setdefault(int(r), (state.weights[r].copy(), state.average[r].copy()))
            np.testing.assert_array_equal(state.weights[r], kept[0])
            np.testing.assert_array_equal(state.average[r], kept[1])
    assert len(settled) == 3


# What is refused


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"learning_rate": 0.0}, 'learning_rate must be "auto" or a positive number; got 0.0'),
        ({"learning_rate": math.nan}, "or a positive number; got nan"),
        ({"learning_rate": math.inf}, "learning_rate must be"),
        ({"learning_rate": -1}, "learning_rate must be"),
        ({"learning_rate": "fast"}, "learning_rate must be .* got 'fast'"),
        ({"learning_rate": True}, "learning_rate must be"),
        ({"schedule": "cosine"}, "schedule must be one of"),
        ({"average": None}, "average must be one of"),
        ({"estimator": "mean"}, "estimator must be one of"),
        ({"momentum": 1.0}, "momentum must be a number from 0 to below 1; got 1.0"),
        ({"momentum": -0.1}, "momentum must be"),
        ({"momentum": math.nan}, "momentum must be"),
        ({"tol": math.nan}, "tol must be"),
        ({"tol": None}, "tol must be"),
    ],
)
@pytest.mark.parametrize("kind", [Adam, SGD])
def test_optimizers_that_cannot_be(kind, options, said):
    with pytest.raises(DomainError, match=said):
        kind(**({"learning_rate": 0.1} | options))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"optimizer": "adam"}, r"such as Adam\(learning_rate=0.1\); got 'adam'"),
        ({"optimizer": Adam()}, "must be a number; got 'auto'. Use Settings.recipe"),
        ({"rounds": 0}, "rounds must be"),
        ({"alpha": -1.0}, "alpha must be"),
        ({"alpha": math.inf}, "alpha must be"),
    ],
)
def test_recipes_that_cannot_be(options, said):
    with pytest.raises(DomainError, match=said):
        Recipe(**({"optimizer": Adam(0.1)} | options))


def test_what_a_noise_aware_server_does_not_use_cannot_be_written():
    for name in ("learning_rate", "momentum", "schedule"):
        with pytest.raises(TypeError, match=name):
            NoiseAware(**{name: 0.1})


def test_files_have_the_steps_of_a_noise_aware_server():
    """They were written since version 0.2, and identify the job."""
    recipe = Settings(4.0).recipe(33, 300, 8.0)
    document = recipe.to_document()
    assert (document["rate"], document["momentum"]) == (auto_rate(8.0, 33, 300), 0.8)
    assert Recipe.from_document(document | {"momentum": 0.3}).to_document()["momentum"] == 0.3
    assert Recipe.from_document(document) == recipe


# States as JSON


def some_state(rounds=3, replicas=2):
    state = State.start(np.zeros((replicas, 2)))
    for gradient in fedldp.source(1).uniform((rounds, replicas, 2)) / 3:
        state = optimizer.step(Recipe(Adam(0.1)), state, gradient)
    return state


@pytest.mark.parametrize("rounds", [0, 1, 5])
def test_a_state_is_read_as_it_was_written(rounds):
    state = some_state(rounds)
    again = State.from_json(state.to_json())
    assert again.round == rounds
    for name in ("weights", "average", "momentum", "squares", "change"):
        np.testing.assert_array_equal(getattr(again, name), getattr(state, name))
        assert getattr(again, name).dtype == np.float64
    assert again.to_json() == state.to_json()


@given(st.randoms(use_true_random=False))
def test_invalid_states(rng):
    """Only `WireError` may escape; what is accepted is a state of the same shape, in numbers."""
    document = json.loads(some_state().to_json())
    text = json.dumps(damaged(document, rng))
    if rng.random() < 0.2:
        text = text[: rng.randrange(len(text))]
    try:
        state = State.from_json(text)
    except WireError:
        return
    assert type(state.round) is int
    assert state.weights.ndim == 2
    assert state.weights.shape == state.average.shape == state.squares.shape
    written = json.loads(state.to_json())
    assert written == json.loads(text)  # the numbers that were written, and nothing was guessed


def test_weights_are_numbers():
    for wrong in (10**400, None, "1.5", True, "x", {}, [1.0], []):
        document = json.loads(some_state().to_json())
        document["weights"][1][0] = wrong
        with pytest.raises(WireError, match="not a 'fedldp state 1'"):
            State.from_json(json.dumps(document))


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "7", "null", '"x"', "{", "[" * 100_000, "nan", '{"format": 1}']
)
def test_texts_that_are_not_states(text):
    with pytest.raises(WireError, match="not a 'fedldp state 1'"):
        State.from_json(text)


# From reports to a gradient


@pytest.mark.parametrize("estimator", ["ratio", "horvitz-thompson"])
@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("mechanism", ["duchi", "hm-tp"])
def test_a_gradient_is_the_estimate_of_its_mean(name, mechanism, estimator):
    plan = plan_for(4, name, mechanism=mechanism, bound=0.7)
    data = fedldp.source(1).uniform((500, 4)) - 0.7
    tally = plan.simulate(data, fedldp.source(2))
    wanted = tally.estimate(estimator)["x"].mean
    found = optimizer.observed([tally], estimator).gradient
    assert found.shape == (1, 4)
    np.testing.assert_allclose(found[0], wanted, rtol=1e-12, atol=1e-14)
    if estimator == "ratio":
        np.testing.assert_array_equal(optimizer.observed([tally]).gradient, found)


@pytest.mark.parametrize("estimator", ["ratio", "horvitz-thompson"])
def test_what_nobody_answered_has_no_gradient(estimator):
    plan = plan_for(50, "one")
    tally = plan.simulate(np.full((10, 50), 0.9), fedldp.source(2))
    estimate = tally.estimate(estimator)["x"]
    found = optimizer.observed([tally], estimator).gradient[0]
    assert {0, 1, 2} <= set(estimate.answers.tolist())
    assert np.all(found[estimate.answers == 0] == 0.0)
    np.testing.assert_allclose(found, np.nan_to_num(estimate.mean), rtol=1e-12)
    assert np.all(optimizer.observed([plan.tally()], estimator).gradient == 0.0)


def test_an_unknown_estimator():
    with pytest.raises(DomainError, match="estimator must be one of"):
        optimizer.observed([plan_for(2).simulate(np.zeros((5, 2)), fedldp.source(1))], "foo")


@pytest.mark.parametrize("name", STRATEGIES)
def test_any_order_and_any_shards_give_the_same_model(name):
    """Of reports that come one by one, or in packets: the very same bits."""
    plan, task, n = plan_for(3, name), fleet(120, 3), 120
    weights, recipe = np.array([[0.3, -0.2, 0.1]]), Recipe(Adam(0.1))
    batches = [task.gradients(weights, slice(i, i + 1)) for i in range(n)]
    rng = fedldp.source(1)
    packets = [plan.report_batches([batch], rng).to_bytes() for batch in batches]
    assert all(len(packet) == 16 + -(-plan.bits // 8) for packet in packets)
    found = set()
    for seed in range(6):
        rng = random.Random(seed)
        shards = [plan.tally() for _ in range(rng.randint(1, 7))]
        for packet in rng.sample(packets, n):
            number = rng.randrange(len(shards))
            shards[number] += plan.parse(packet)
        total = sum(rng.sample(shards, len(shards)), plan.tally())
        assert total.reports == n
        state = optimizer.step(recipe, State.start(weights), optimizer.observed([total]))
        found.add(state.to_json())
    assert len(found) == 1


def test_gradients_are_unbiased_at_any_bound():
    """The mean of 40,000 vehicles within 6 standard errors: by chance in 2 of 10^8 runs."""
    data = np.tile([0.25, -2.0, 9.0], (40_000, 1))
    plan = Plan(Schema.vector(3, 2.5), 4.0, Sample(mechanism="hm-tp"))
    with pytest.warns(DataWarning, match="clipped"):
        tally = plan.simulate(data, fedldp.source(5))
    error = tally.estimate()["x"].stderr
    assert np.all(np.abs(optimizer.observed([tally]).gradient[0] - [0.25, -2.0, 2.5]) < 6 * error)
    assert error.max() < 0.1


# Rules


@given(st.integers(1, 10**8), st.floats(1e-5, 1.0))
def test_groups_have_answers_enough_and_rounds_too(vehicles, share):
    group = auto_group(vehicles, share)
    rounds = -(-vehicles // group)
    assert 1 <= group <= vehicles
    assert rounds <= 300
    assert 2 * rounds >= min(vehicles, 10)
    assert vehicles <= 81 or rounds >= 10  # of fewer, rounding up a group leaves some less
    if group * share < 30 and rounds < 300:
        assert group >= vehicles // 10  # as many as there can be in ten rounds
    if group > math.ceil(vehicles / 300):
        assert (group - 1) * share <= 30  # and no more than needed


def test_the_rate_of_a_rule():
    assert auto_rate(8.0, 33, 300) == pytest.approx(8 / math.sqrt(33 * 300))
    assert auto_rate(8.0, 4, 1) == 0.4
    assert auto_rate(0.1, 4, 25) == pytest.approx(0.01)


def test_a_linear_schedule_ends_at_zero():
    recipe = Recipe(Adam(0.2, schedule="linear"), rounds=4)
    assert [recipe.rate_in(t) for t in range(1, 7)] == pytest.approx([0.2, 0.15, 0.1, 0.05, 0, 0])
    assert Recipe.from_document(recipe.to_document()) == recipe
    assert "rounds" not in Recipe(Adam(0.2)).to_document()  # as in files of before
    with pytest.raises(DomainError, match="needs the number of rounds"):
        Recipe(Adam(0.2, schedule="linear")).rate_in(1)
    state = State.start(np.zeros(2))
    for _ in range(4):
        state = optimizer.step(recipe, state, np.array([[1.0, -1.0]]))
    after = optimizer.step(recipe, state, np.array([[1.0, -1.0]]))
    assert (after.weights == state.weights).all()
