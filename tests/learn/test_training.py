"""Algorithm 1: who is asked, the same bits as from reports, replicas, no privacy, study."""

import itertools
from dataclasses import fields

import numpy as np
import pytest
from fleets import STRATEGIES, Spy, examples, fleet, naive, plan_for, stream
from hypothesis import given
from hypothesis import strategies as st
from plans import MIXED
from plans import STRATEGIES as KINDS
from scipy import stats
from spellings import flat_plan

import fedldp
from fedldp import Plan, Schema
from fedldp.errors import DataWarning, DomainError
from fedldp.learn import optimizer
from fedldp.learn.examples import VehicleRows
from fedldp.learn.objectives import objective
from fedldp.learn.optimizer import SGD, Adam, Recipe, State
from fedldp.learn.privacy import NoPrivacy
from fedldp.learn.tasks import Linear
from fedldp.learn.training import Procedure, Training
from fedldp.plan.parts import Matrix
from fedldp.plan.strategies import Sample

PLAIN = Recipe(SGD(0.3, momentum=0.0, average=False))


def train(task, plan, recipe=PLAIN, seed=1, group=100, **options):
    names = {each.name for each in fields(Procedure)} & options.keys()
    procedure = Procedure(plan, recipe, group, **{name: options.pop(name) for name in names})
    return Training(task, procedure, fedldp.source(seed), **options)


# Who is asked


@given(st.integers(1, 300), st.integers(1, 320), st.integers(1, 3), st.booleans())
def test_groups_divide_the_vehicles(n, group, participations, shuffle):
    spy = Spy(n, 2)
    plan = NoPrivacy(Schema.vector(2, 1.0))
    training = train(spy, plan, group=group, participations=participations, shuffle=shuffle)
    seen = list(training)
    rounds = -(-n // group)
    assert len(seen) == training.rounds == rounds * participations == len(spy.asked)
    sizes = [len(asked) for asked in spy.asked]
    assert max(sizes) <= group
    assert max(sizes) - min(sizes) <= 1
    for again in range(participations):  # everyone once, in each participation
        asked = list(itertools.chain(*spy.asked[again * rounds : (again + 1) * rounds]))
        assert sorted(asked) == list(range(n))
        assert shuffle or asked == list(range(n))
    assert [each.reports for each in seen] == list(itertools.accumulate(sizes))
    assert training.finished


def test_the_order_is_random_and_new_each_time():
    orders = []
    for seed in (1, 2):
        spy = Spy(200, 1)
        list(train(spy, NoPrivacy(Schema.vector(1, 1.0)), seed=seed, group=200, participations=2))
        orders += spy.asked
    assert len({tuple(each) for each in [*orders, list(range(200))]}) == 5
    spots = [np.corrcoef(each, np.arange(200))[0, 1] for each in orders]
    assert np.abs(spots).max() < 6 / np.sqrt(200)  # by chance in 1 of 10^8 runs


def test_nobody_is_asked_after_the_end():
    spy = Spy(30, 1)
    training = train(spy, plan_for(1, epsilon=1.0), group=10)
    assert len(list(training)) == 3
    with pytest.raises(DomainError, match="no vehicle may be asked again"):
        training.advance()
    assert list(training) == []
    assert len(spy.asked) == 3
    assert training.state.round == 3


def test_it_ends_when_the_model_settles():
    spy = Spy(1000, 2, value=0.6)
    recipe = Recipe(SGD(0.5, schedule="inverse", momentum=0.0, tol=0.1))
    training = train(spy, NoPrivacy(Schema.vector(2, 1.0)), recipe, group=10)
    seen = list(training)
    wanted = [0.5 / t * 0.6 * np.sqrt(2) for t in range(1, 6)]
    np.testing.assert_allclose([each.change for each in seen], wanted)
    assert wanted[-2] > 0.1 > wanted[-1]
    assert seen[-1].reports == 50
    assert seen[-1].rounds == 100
    with pytest.raises(DomainError, match="finished"):
        training.advance()
    assert len(spy.asked) == 5


# Plain steps along what the reports say (Algorithm 1 as printed: test_paper_algorithms.py)


def plain_steps(x, y, plan, rate, group, seed):
    """Logistic regression by gradient descent, through the plan's own reports and estimates."""
    (key, rng), n = stream(seed), len(x)
    order = np.argsort(fedldp.source(key).words(n), kind="stable")
    theta, rounds = np.zeros(x.shape[1]), -(-n // group)
    for j in range(rounds):
        mine = order[n * j // rounds : n * (j + 1) // rounds]
        slopes = -y[mine] / (1 + np.exp(y[mine] * (x[mine] @ theta)))
        tally = plan.simulate(slopes[:, None] * x[mine], rng)
        theta = theta - rate * np.nan_to_num(tally.estimate()["x"].mean)
    return theta


@pytest.mark.filterwarnings("ignore::fedldp.errors.DataWarning")  # it clips gradients, as it must
@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("mechanism", ["duchi", "hm-tp"])
def test_steps_follow_the_estimates(name, mechanism):
    task, plan = fleet(2003, 4), plan_for(4, name, mechanism=mechanism, bound=0.8)
    training = train(task, plan, seed=11)
    list(training)
    x, y = task.examples.features, task.examples.targets
    wanted = plain_steps(x, y, plan, 0.3, 100, seed=11)
    np.testing.assert_allclose(training.models[0], wanted, rtol=1e-9)
    assert np.abs(wanted).max() > 0.1
    assert task.loss(training.models)[0] < np.log(2)


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("mechanism", ["duchi", "pm-sub"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_group_is_simulated_as_it_would_report(name, mechanism, dtype):
    """Report, parse, tally, step: the same bits, for groups of several chunks."""
    n, at_once = 40_000, 4 * 4096
    task, plan = fleet(n, 3, dtype=dtype), plan_for(3, name, mechanism=mechanism)
    recipe = Recipe(Adam(0.1, estimator="horvitz-thompson" if dtype == np.float32 else "ratio"))
    training = train(task, plan, recipe, seed=3, group=n // 2, shuffle=False)
    state, (_, rng) = State.start(np.zeros(3)), stream(3)
    for first in (0, n // 2):
        batches = [
            task.gradients(state.weights, slice(at, min(at + at_once, first + n // 2)))
            for at in range(first, first + n // 2, at_once)
        ]
        packet = plan.report_batches(batches, rng).to_bytes()
        tally = plan.tally() + plan.parse(packet)
        state = optimizer.step(
            recipe, state, optimizer.observed([tally], recipe.optimizer.estimator)
        )
        assert training.advance().reports == first + n // 2
        assert training.state.to_json() == state.to_json()


def test_same_seed_same_bits_other_seed_other_noise():
    task, plan = fleet(500, 3), plan_for(3)
    found = []
    for seed in (1, 1, 2):
        training = train(task, plan, Recipe(Adam(0.1)), seed=seed, replicas=2, participations=2)
        list(training)
        found.append(training.state.to_json())
    assert found[0] == found[1] != found[2]


def test_progress():
    task, plan, public = fleet(25, 3), plan_for(3, "two", epsilon=1.1), fleet(70, 3, "hinge")
    training = train(task, plan, group=10, participations=2, replicas=2, watch=public.loss)
    for number, progress in enumerate(training, start=1):
        answered = [8, 16, 25, 33, 41, 50][number - 1]
        assert (progress.number, progress.rounds, progress.reports) == (number, 6, answered)
        assert progress.bytes == -(-answered * plan.bits // 8)
        assert progress.epsilon == plan.total_epsilon * (1 if number <= 3 else 2)
        assert progress.change == training.state.change.max()
        assert progress.loss == pytest.approx(public.loss(training.models).mean())
    assert number == 6
    (alone,) = train(task, plan, group=25)
    assert alone.loss is None
    assert alone.epsilon == plan.total_epsilon


# Vehicles with many rows


def test_one_report_of_each_owner():
    clients = np.arange(900) % 60
    task, plan = fleet(900, 3, "squared", VehicleRows(clients)), plan_for(3, epsilon=4.0)
    training = train(task, plan, group=60, shuffle=False)
    (progress,) = training
    assert progress.reports == 60
    data = task.examples
    matrix = naive("squared", np.zeros((1, 3)), data.features, data.targets, clients.tolist())
    tally = plan.simulate(matrix, stream(1)[1])
    np.testing.assert_array_equal(training.models, -0.3 * optimizer.observed([tally]).gradient)


# Replicas


def test_replicas_are_single_runs_in_distribution():
    """Kolmogorov-Smirnov on each weight after three rounds; by chance in 3 of 10^6 runs."""
    task, plan, runs = fleet(90, 3), plan_for(3, epsilon=4.0), 250
    options = {"group": 30, "shuffle": False, "recipe": Recipe(Adam(0.3))}
    together = train(task, plan, replicas=runs, **options)
    list(together)
    alone = []
    for seed in range(runs):
        training = train(task, plan, seed=1000 + seed, **options)
        list(training)
        alone.append(training.models[0])
    for mine, other in zip(together.models.T, np.array(alone).T, strict=True):
        assert stats.ks_2samp(mine, other).pvalue > 1e-6
    assert together.models.shape == (runs, 3)
    assert len(np.unique(together.models, axis=0)) == runs
    next_to = np.corrcoef(together.models[:-1, 0], together.models[1:, 0])[0, 1]
    assert abs(next_to) < 6 / np.sqrt(runs)  # the noise of each is its own


KINDS_OF_PLANS = {
    **{
        name: flat_plan(MIXED, 6.0, mechanism="hm-tp", **options) for name, options in KINDS.items()
    },
    **{
        f"{name} for study": flat_plan(MIXED, 6.0, mechanism="laplace", study=True, **options)
        for name, options in KINDS.items()
        if name != "cube"
    },
}
HIGH = {"age": 90, "city": "Lima", "way": [3, 3, 3], "colour": "colour 7"}
LOW = {"age": 10, "city": "Oslo", "way": [-1, -1, -1], "colour": "colour 0"}


@pytest.mark.parametrize("name", KINDS_OF_PLANS)
def test_each_replica_counts_its_own_vehicles(name):
    """Estimates within 8 standard errors of each one's own data: by chance 1 in 10^12."""
    plan, n = KINDS_OF_PLANS[name], 4000
    rows = plan.schema.rows([HIGH] * n + [LOW] * n + [HIGH] * n).matrix()
    cells = [np.zeros((3, part.starts[-1])) for part in plan.parts]
    for part, counters in zip(plan.parts, cells, strict=True):
        part.simulate(Matrix(rows), fedldp.source(5), counters)
        for row in counters:
            assert part.answered(row).sum() == n * part.k
            assert part.study or part.invalid(n, row.astype(np.int64)) is None
        if part.study or len(part.attributes) > 1:
            assert not np.array_equal(counters[0], counters[2])
    for replica, wanted in enumerate((HIGH, LOW, HIGH)):
        own = tuple(each[replica] for each in cells)
        estimate = fedldp.Tally(plan.fingerprint, plan.parts, n, own).estimate()
        for key, value in wanted.items():
            found = estimate[key]
            if isinstance(value, str):
                right = (np.array(found.categories) == value) * 1.0
                assert np.all(np.abs(found.frequencies - right) < 8 * found.stderr)
            else:
                assert np.all(np.abs(found.mean - np.array(value)) < 8 * found.stderr)


@pytest.mark.parametrize("name", KINDS_OF_PLANS)
def test_one_replica_is_the_tally_of_its_reports(name):
    plan, rows = KINDS_OF_PLANS[name], [HIGH, LOW, {}] * 50
    matrix = plan.schema.rows(rows).matrix()
    rng = fedldp.source(2)
    cells = [np.zeros((1, part.starts[-1])) for part in plan.parts]
    for part, counters in zip(plan.parts, cells, strict=True):
        part.simulate(Matrix(matrix), rng, counters)
    with pytest.warns(DataWarning):  # a third of the rows is empty
        wanted = plan.simulate(rows, fedldp.source(2))
    for counters, counts in zip(cells, wanted.counts, strict=True):
        np.testing.assert_array_equal(counters[0], counts)


# Without privacy, and for study


@pytest.mark.parametrize("replicas", [1, 3])
def test_without_a_plan_it_is_clipped_gradient_descent(replicas):
    task, bound = fleet(60, 3, "squared"), 0.4
    x, y = task.examples.features, task.examples.targets
    training = train(
        task,
        NoPrivacy(Schema.vector(3, bound)),
        group=20,
        shuffle=False,
        participations=2,
        replicas=replicas,
    )
    seen, theta = list(training), np.zeros(3)
    for j in (0, 1, 2, 0, 1, 2):
        mine = slice(20 * j, 20 * j + 20)
        each = naive("squared", [theta], x[mine], y[mine])
        theta = theta - 0.3 * np.clip(each, -bound, bound).mean(axis=0)
    assert np.abs(each).max() > bound
    np.testing.assert_allclose(training.models, np.tile(theta, (replicas, 1)), rtol=1e-12)
    assert (seen[-1].epsilon, seen[-1].bytes) == (None, 120 * 3 * 4)


@pytest.mark.parametrize("estimator", ["ratio", "horvitz-thompson"])
@pytest.mark.parametrize(
    ("mechanism", "study"), [("laplace", True), ("pm", True), ("hm-tp", True), ("duchi", False)]
)
def test_noise_has_no_bias(mechanism, study, estimator):
    """One step of 150 replicas is the mean clipped gradient: 6 errors, by chance 5 in 10^8."""
    task = fleet(300, 3, "squared")
    plan = Plan(Schema.vector(3, 0.5), 4.0, Sample(mechanism=mechanism, study=study))
    recipe = Recipe(SGD(1.0, momentum=0.0, average=False, estimator=estimator))
    training = train(task, plan, recipe, group=300, replicas=150)
    (progress,) = training
    each = naive("squared", np.zeros((1, 3)), task.examples.features, task.examples.targets)
    error = training.models.std(axis=0, ddof=1) / np.sqrt(150)
    wanted = -np.clip(each, -0.5, 0.5).mean(axis=0)
    assert np.all(np.abs(training.models.mean(axis=0) - wanted) < 6 * error)
    assert error.max() < 0.05
    assert (progress.bytes == 0) is study


# What is refused


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"plan": plan_for(2)},
            r"a vector of 3 numbers; got .*\. Use Schema.vector\(3, bound=1.0\)\.",
        ),
        ({"plan": NoPrivacy(Schema.of(a=(-1, 1), b=(-1, 1), c=(-1, 1)))}, "a vector of 3 numbers"),
        ({"plan": Schema.vector(3, 1.0)}, "plan must be a Plan"),
        ({"group": 0}, "group must be at least 1; got 0"),
        ({"group": 2.5}, "group must be a whole number; got 2.5"),
        ({"participations": 0}, "participations must be at least 1; got 0"),
        ({"replicas": -1}, "replicas must be at least 1; got -1"),
        ({"start": np.zeros(2)}, "start"),
        ({"start": np.array([0.0, np.nan, 0.0])}, "start"),
        ({"task": fleet(0, 3)}, "the number of vehicles must be at least 1; got 0"),
    ],
)
def test_trainings_that_cannot_be(options, said):
    with pytest.raises(DomainError, match=said):
        train(**({"task": fleet(20, 3), "plan": plan_for(3)} | options))


def test_a_category_as_a_vector_and_a_seed_as_a_source_are_refused():
    task = Linear(objective("logistic"), examples(20, 1))
    schema = Schema.of(c=["a", "b"])
    for plan in (NoPrivacy(schema), Plan(schema, 1.0)):
        with pytest.raises(DomainError, match="a vector of 1 numbers"):
            train(task, plan)
    with pytest.raises(DomainError, match="Source"):
        Training(task, Procedure(plan_for(1), PLAIN, group=5), 7)


def test_it_starts_where_it_is_told():
    spy, start = Spy(20, 2), np.array([0.5, -0.25])
    training = train(spy, NoPrivacy(Schema.vector(2, 1.0)), start=start, replicas=3, group=20)
    assert training.models.tolist() == [[0.5, -0.25]] * 3
    list(training)
    assert spy.weights[0].tolist() == [[0.5, -0.25]] * 3
