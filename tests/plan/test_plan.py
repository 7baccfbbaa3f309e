"""How a plan divides its budget: exact totals, the best k, the strategies, plans for study."""

import itertools
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import CLOSED, SOLVED
from plans import CATEGORIES, MIXED, NUMBERS, STRATEGIES, plan_of
from spellings import flat_plan

import fedldp
from fedldp import Plan, Schema, vehicle
from fedldp.coders.categories import UnaryEncoding
from fedldp.coders.cube import CubeCoder
from fedldp.errors import DomainError
from fedldp.mechanisms import HMTP
from fedldp.mechanisms.optimal.dominant import BelowPaper
from fedldp.plan.strategies import Cube, Directions, Offered, Paper, Sample, Split, best_k

AWKWARD = (0.1, 0.3, 0.6 / 7, 0.7, 1 / 3, 1.1, 2.0, math.e, math.pi, 4.35, 9.95, 16.0)


# What a whole report costs


@given(st.one_of(st.sampled_from(AWKWARD), st.floats(0.1, 16.0)), st.integers(1, 40), st.data())
def test_the_budget_is_used_up_and_never_exceeded(epsilon, d, data):
    k = data.draw(st.integers(1, d))
    plan = Plan(Schema.vector(d, 1.0), epsilon, Sample(k=k, mechanism="duchi"))
    whole = Fraction(str(epsilon))
    assert whole * (1 - Fraction(1, 10**14)) < plan.total_epsilon <= whole
    (table,) = set(plan.parts[0].coders)
    assert plan.total_epsilon == k * Fraction(str(table.epsilon))
    assert vehicle.Plan(plan.to_json(), epsilon).epsilon == plan.total_epsilon


@given(st.one_of(st.sampled_from(AWKWARD), st.floats(0.1, 16.0)), st.sampled_from(list(STRATEGIES)))
def test_every_strategy_uses_the_budget_up(epsilon, name):
    plan, whole = plan_of(MIXED, epsilon, name, "duchi"), Fraction(str(epsilon))
    assert whole * (1 - Fraction(1, 10**14)) < plan.total_epsilon <= whole
    assert plan.epsilon == epsilon


def test_a_vehicle_accepts_the_plan_at_exactly_its_claim():
    for name, epsilon in itertools.product(STRATEGIES, AWKWARD):
        plan = plan_of(MIXED, epsilon, name, "duchi")
        vehicle.Plan(plan.to_json(), plan.total_epsilon)
        with pytest.raises(ValueError, match="and the cap is"):
            vehicle.Plan(plan.to_json(), plan.total_epsilon - Fraction(1, 10**30))


def test_budgets_below_the_least_are_refused():
    vector = Schema.vector(94, 1.0)
    assert Plan(vector, 0.001, Sample(k=1, mechanism="duchi")).total_epsilon == Fraction("0.001")
    for options in ({"k": 2}, {"strategy": "split"}):
        with pytest.raises(
            DomainError, match=r"would have a budget of .*, and the least is 0\.001"
        ):
            flat_plan(vector, 0.0019, mechanism="duchi", **options)
    Plan(MIXED, 0.003, Paper(mechanism="duchi"))  # a third of it for the categories
    for strategy in ("paper", "cube"):
        with pytest.raises(DomainError, match=r"and the least is 0\.001"):
            flat_plan(MIXED, 0.0029, mechanism="duchi", strategy=strategy)
    for wrong in (0.0009, 16.1, 0, -1, math.nan, math.inf, "1", None, True):
        with pytest.raises(DomainError, match="epsilon"):
            Plan(vector, wrong, Sample(mechanism="duchi"))


# The best k


def error(epsilon, k, sizes, labels, name, variance):
    """(d/k)(V(epsilon/k) + s2), on the scale of frequencies for categories; without the d."""
    E = math.exp(epsilon / k)
    total = 0.0
    for a in labels:
        p, q = E / (E + a - 1), 1 / (E + a - 1)
        response = (p * (1 - p) + (a - 1) * q * (1 - q)) / (p - q) ** 2
        q = 1 / (E + 1)
        unary = (0.25 + (a - 1) * q * (1 - q)) / (0.5 - q) ** 2
        total += min(response, unary) + 1 - 1 / a
    if sizes:
        worst = fedldp.mechanism(name, epsilon / k).worst_case_variance
        total += sizes * (worst + variance)
    return total / k


def check_best(epsilon, sizes, labels, name="hm-tp", variance=1 / 3):
    attributes = {f"c{i}": [str(j) for j in range(a)] for i, a in enumerate(labels)}
    if sizes:
        attributes["x"] = {"low": -1, "high": 1, "size": sizes}
    schema, d = Schema.of(**attributes), sizes + len(labels)
    found = best_k(schema.attributes, vehicle.exact(epsilon), Offered(name, None, variance))
    errors = [
        error(epsilon, k, sizes, labels, name, variance)
        for k in range(1, d + 1)
        if epsilon / k > 0.001
    ]
    assert errors[found - 1] <= min(errors) * (1 + 1e-9)
    return found


@pytest.mark.parametrize("name", CLOSED)
def test_no_k_is_better_for_numbers(name):
    """The search ends early, where the budget of each is below 0.6; so far it must find all."""
    found = {
        check_best(epsilon, d, (), name, variance)
        for epsilon in (0.05, 0.59, 0.61, 1.3, 2.4, 4.0, 7.7, 11.0, 16.0)
        for d in (1, 2, 7, 60)
        for variance in (0.0, 1 / 3, 1.0)
    }
    assert 1 in found
    assert max(found) > 1


@given(
    st.floats(0.01, 16.0),
    st.integers(0, 30),
    st.lists(st.sampled_from([2, 3, 4, 7, 20, 60, 300]), max_size=12),
    st.sampled_from([0.0, 0.05, 1 / 3, 1.0]),
)
def test_no_k_is_better_for_mixed_schemas(epsilon, sizes, labels, variance):
    if sizes + len(labels):
        check_best(epsilon, sizes, tuple(labels), "hm-tp", variance)


@pytest.mark.parametrize("d", [2, 4, 16, 94])
def test_at_epsilon_4_one_is_best_and_horvitz_thompson_would_take_two(d):
    x, ks = np.linspace(-1.0, 1.0, 2001), range(1, min(d, 12) + 1)
    worst = [np.max(d / k * (HMTP(4.0 / k).variance(x) + x**2) - x**2) for k in ks]
    assert int(np.argmin(worst)) + 1 == 2
    assert check_best(4.0, d, ()) == 1
    assert Plan(Schema.vector(d, 1.0), 4.0, Sample(mechanism="hm-tp")).parts[0].k == 1


def test_solved_mechanisms_choose_k_by_the_formula_of_hm_tp():
    for epsilon, d in itertools.product((1.0, 4.0, 7.0, 10.0, 16.0), (1, 3, 20)):
        schema = Schema.vector(d, 1.0)
        wanted = best_k(schema.attributes, vehicle.exact(epsilon), Offered("hm-tp"))
        for name in SOLVED:
            assert best_k(schema.attributes, vehicle.exact(epsilon), Offered(name)) == wanted


@pytest.mark.parametrize("strategy", ["sample", "split", "paper", "cube"])
def test_a_cold_plan_solves_at_most_once(strategy, monkeypatch, tmp_path):
    """Counted where linear programs begin; for a dozen numbers and any k."""
    calls = []

    def find(self):
        calls.append(self)
        return HMTP(self.epsilon).channel(self.outputs), 10.0

    monkeypatch.setattr(BelowPaper, "_find", find)
    monkeypatch.setattr("scipy.optimize.linprog", None)
    monkeypatch.setenv("FEDLDP_CACHE", str(tmp_path))
    schema = Schema.of(**{f"x{i}": (0, i + 1) for i in range(12)}, city=["Oslo", "Rome"])
    Plan(schema, 9.5, strategy=strategy)
    assert len(calls) == (0 if strategy == "cube" else 1)
    Plan(schema, 9.5, strategy=strategy).to_json()  # no longer cold
    assert len(calls) <= 1


@pytest.mark.parametrize(
    ("epsilon", "d", "k"),
    [
        *((0.5, 9, 1), (2.5, 9, 1), (4.9, 9, 1), (5.0, 9, 2), (7.499999999999999, 9, 2)),
        *((7.5, 9, 3), (12.5, 9, 5), (16, 9, 6), (16.0, 4, 4), (16.0, 1, 1)),
    ],
)
def test_the_papers_k(epsilon, d, k):
    assert (
        Plan(Schema.vector(d, 1.0), epsilon, Sample(k="paper", mechanism="duchi")).parts[0].k == k
    )


# Strategies


@pytest.mark.parametrize("strategy", ["paper", "cube"])
@pytest.mark.parametrize("epsilon", [0.5, 3.0, 8.0, 16.0])
def test_paper_and_cube_divide_the_budget_by_coordinates(strategy, epsilon):
    labels = {f"c{i}": [str(j) for j in range(i + 2)] for i in range(3)}
    schema = Schema.of(**labels, x={"low": 0, "high": 1, "size": 4}, y=(0, 1))
    plan = flat_plan(schema, epsilon, mechanism="duchi", strategy=strategy)
    numbers, categories = plan.parts
    whole = Fraction(str(epsilon))
    for part, share in ((numbers, Fraction(5, 8)), (categories, Fraction(3, 8))):
        assert whole * share * (1 - Fraction(1, 10**14)) < part.epsilon <= whole * share
    assert (numbers.attributes, categories.attributes) == ((3, 4), (0, 1, 2))
    assert categories.k == max(1, min(3, math.floor(whole * Fraction(3, 8) / Fraction(5, 2))))
    assert all(isinstance(coder, UnaryEncoding) for coder in categories.coders)
    if strategy == "cube":
        assert numbers.coders == (CubeCoder.of(numbers.coders[0].epsilon, 5),)
        wide = Plan(schema, epsilon, Cube(threshold=0))
        assert wide.parts[0].coders[0].threshold == 0
    else:
        assert numbers.k == best_k(schema.attributes[3:], whole * Fraction(5, 8), Offered("duchi"))
        assert Plan(schema, epsilon, Paper(k="paper", mechanism="duchi")).parts[0].k == max(
            1, math.floor(whole * Fraction(5, 8) / Fraction(5, 2))
        )


def test_split_answers_everything():
    plan = Plan(MIXED, 3.0, Split(mechanism="duchi"))
    (part,) = plan.parts
    assert (part.k, part.d, part.share) == (6, 6, 1.0)
    assert {coder.epsilon for coder in part.coders} == {0.5}


@pytest.mark.parametrize("name", STRATEGIES)
def test_schemas_of_one_kind(name):
    numbers, categories = plan_of(NUMBERS, 4.0, name), plan_of(CATEGORIES, 4.0, name)
    assert [part.joint for part in numbers.parts] == [name == "cube"]
    assert [part.joint for part in categories.parts] == [False]
    rows = {"age": 3, "way": [0, 1, 2]}, {"city": "Rome", "colour": "colour 3"}
    for plan, row in zip((numbers, categories), rows, strict=True):
        data = plan.report([row] * 9, fedldp.source(1)).to_bytes()
        assert plan.parse(data).reports == 9
        assert plan.expected_error(9) > 0
        assert set(plan.parse(data).estimate()) == set(plan.schema.names)


# What is refused


@pytest.mark.parametrize("kind", [Sample, Paper])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mechanism": "gauss"}, "there is no mechanism 'gauss'; choose from laplace, duchi"),
        ({"mechanism": None}, "there is no mechanism None"),
        ({"k": "worst"}, "k must be .*; got 'worst'"),
        ({"k": None}, "k must be .*; got None"),
        ({"k": 1.5}, "k must be .*; got 1.5"),
        ({"variance": math.nan}, "variance must be .*; got nan"),
        ({"variance": -0.1}, "variance must be .*; got -0.1"),
        ({"variance": 1.1}, "variance must be .*; got 1.1"),
        ({"variance": "large"}, "variance must be .*; got 'large'"),
    ],
    ids=["gauss", "None", "worst", "k None", "k 1.5", "nan", "negative", "above 1", "large"],
)
def test_strategies_refuse_unknown_options(kind, options, said):
    with pytest.raises(DomainError, match=said):
        kind(**options)


def test_what_makes_no_sense_cannot_be_written():
    for kind, name in ((Split, "k"), (Cube, "study"), (Directions, "mechanism"), (Sample, "fleet")):
        with pytest.raises(TypeError, match=name):
            kind(**{name: 1})


def test_other_refusals():
    with pytest.raises(DomainError, match=r"strategy must be one of .*; got 'all'"):
        Plan(NUMBERS, 1.0, "all")
    for k in (0, -1):
        with pytest.raises(DomainError, match=f"k must be .* of at least 1; got {k}"):
            Sample(k=k)
    for k in (5, 10**30):
        with pytest.raises(DomainError, match=f"k must be .*from 1 to 4; got {k}"):
            Plan(NUMBERS, 4.0, Sample(k=k, mechanism="duchi"))
    with pytest.raises(DomainError, match=r"must be a Schema, such as Schema\.of returns; got"):
        Plan({"age": (0, 100)}, 1.0)
    with pytest.raises(DomainError, match="threshold"):
        Plan(NUMBERS, 1.0, Cube(threshold="high"))
    with pytest.raises(DomainError, match="laplace has no channel"):
        Plan(NUMBERS, 1.0, Sample(mechanism="laplace"))
    with pytest.raises(DomainError, match="d must be from 1 to 10000"):
        Plan(Schema.vector(10_001, 1.0), 1.0, strategy="cube")
    with pytest.raises(AttributeError):
        Plan(NUMBERS, 1.0, Sample(mechanism="duchi")).epsilon = 2.0


# Plans for study


def test_a_plan_for_study_is_neither_written_nor_sent(tmp_path):
    plan = Plan(MIXED, 4.0, Split(mechanism="laplace", study=True))
    row = {"age": 20, "city": "Rome", "way": [1, 2, 3], "colour": "colour 7"}
    tally = plan.simulate([row] * 20, fedldp.source(1))
    assert plan.study
    assert tally.reports == 20
    refused = [
        plan.to_json,
        lambda: plan.bits,
        lambda: plan.report([{}], fedldp.source(1)),
        lambda: plan.parse(bytes(16)),
        lambda: plan.load_tally(tmp_path / "tally.json"),
        tally.to_json,
        lambda: tally.save(tmp_path / "tally.json"),
    ]
    for each in refused:
        with pytest.raises(DomainError, match="for study"):
            each()
    assert not list(tmp_path.iterdir())
    with pytest.raises(DomainError, match="leave study and outputs out"):
        flat_plan(MIXED, 4.0, strategy="cube", study=True)


def test_plans_for_study_are_values_too():
    plan, other = (Plan(MIXED, e, Sample(mechanism="pm", study=True)) for e in (4.0, 4.5))
    assert (
        pickle.loads(pickle.dumps(plan))
        == plan
        == Plan(MIXED, 4.0, Sample(mechanism="pm", study=True))
    )
    assert plan != other
    assert plan != Plan(MIXED, 4.0, Sample(mechanism="pm", study=False))
    assert len({plan, other, Plan(MIXED, 4.0, Sample(mechanism="pm", study=True))}) == 2


@pytest.mark.parametrize("strategy", ["sample", "split", "paper"])
@pytest.mark.parametrize("name", CLOSED)
def test_estimates_of_a_study_are_unbiased(name, strategy):
    """Within 5 standard errors, all 1269 of them: by chance in 8 of 10^4 runs."""
    row = {"age": 80, "city": "Rome", "way": [-1, 0.5, 2.9], "colour": "colour 3"}
    plan, n = flat_plan(MIXED, 6.0, mechanism=name, k=2, strategy=strategy, study=True), 40_000
    found = plan.simulate([row] * n, fedldp.source(5)).estimate()
    means = np.array([found["age"].mean / 50 - 1, *(found["way"].mean - 1) / 2])
    part, x = plan.parts[0], np.array([0.6, -1.0, -0.25, 0.95])
    (mechanism,) = {coder for coder in part.coders if not coder.exact}
    stderr = np.sqrt(mechanism.variance(x) / (n * part.share))
    assert np.all(np.abs(means - x) < 5 * stderr)
    for attribute, own in (("city", 1), ("colour", 3)):
        wanted = np.eye(len(found[attribute].frequencies))[own]
        assert np.all(np.abs(found[attribute].frequencies - wanted) < 5 * found[attribute].stderr)


# Few bits


def test_a_compact_plan_sends_categories_in_few_bits():
    schema = Schema.of(age=(0, 100), app=[str(i) for i in range(300)], city=["Oslo", "Rome"])
    plain, few = (Plan(schema, 1.0, compact=compact) for compact in (False, True))
    assert "fedldp plan 1" in plain.to_json()
    assert "fedldp plan 2" in few.to_json()
    assert (plain.bits, few.bits) == (302, 13)
    assert few.expected_error(1000) < 1.05 * plain.expected_error(1000)
    # Numbers and small categories are answered as before.
    assert [few.parts[0].coders[i] for i in (0, 2)] == [plain.parts[0].coders[i] for i in (0, 2)]
    assert Plan.from_json(few.to_json()) == few
    rows = [{"age": 30, "app": "7", "city": "Rome"}] * 40_000
    found = few.simulate(rows, fedldp.source(1)).estimate()["app"]
    assert np.argmax(found.frequencies) == 7
    assert np.mean(np.abs(found.frequencies - np.eye(300)[7]) < 1.96 * found.stderr) > 0.9


def test_compact_is_not_of_the_paper_and_changes_nothing_where_there_is_nothing_to_save():
    schema = Schema.of(age=(0, 100), city=["Oslo", "Rome"])
    assert Plan(schema, 1.0, compact=True).to_json() == Plan(schema, 1.0).to_json()
    with pytest.raises(DomainError, match="the paper sends categories through OUE"):
        Plan(schema, 1.0, strategy="paper", compact=True)
    wide = Schema.of(age=(0, 100), app=[str(i) for i in range(100)])
    assert Plan(wide, 1.0, strategy="cube", compact=True).bits < 12
