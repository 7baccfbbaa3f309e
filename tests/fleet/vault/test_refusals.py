"""What a vault refuses, and that nothing is recorded by it; and that data are never the reason."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from fleets import plan_for
from ledgers import open_ledger
from plans import HAND_MADE, canonical, changed, cube, document, places
from vaults import FEATURES, MATRIX, MODEL, ROWS, SCHEMA, WEIGHTS, asked, gradients, lines, vault

import fedldp
from fedldp import Plan, Schema
from fedldp.errors import DomainError, FedLDPError, PrivacyError
from fedldp.fleet.vault.vault import Vault
from fedldp.learn.model import Model
from fedldp.randomness import Source
from fedldp.schema.attributes import Category, Number


def check_refused(held, question, otherwise):
    """See that a question is refused, and that the round is still there for another one."""
    with pytest.raises(FedLDPError):
        held.answer(question)
    assert lines(held) == []
    assert held.answer(otherwise).answered == min(otherwise.n, len(held))


def tampered():
    """Yield plans whose tables leak more than they say, or that cost more than they claim."""
    for name, plan in HAND_MADE.items():
        yield f"{name}: epsilon", changed(plan, ("epsilon",), "0.3")
        for at, table in enumerate(plan["tables"]):
            path = "tables", at
            yield f"{name}: {path} epsilon", changed(plan, (*path, "epsilon"), "0.2")
            if table["kind"] == "numbers":
                first = [*table["counts"][0]]
                first[0], first[-1] = first[0] + first[-1], 0
                yield f"{name}: {path} zero", changed(plan, (*path, "counts", 0), first)
                first[-1] -= 1
                yield f"{name}: {path} negative", changed(plan, (*path, "counts", 0), first)
                yield f"{name}: {path} short", changed(plan, (*path, "counts", 0), first[:-1])
                yield f"{name}: {path} letters", changed(plan, (*path, "letters", 0), -2.0)
            elif table["kind"] == "response":
                yield f"{name}: {path} same", changed(plan, (*path, "same"), 62)
                yield f"{name}: {path} other", changed(plan, (*path, "other"), 0)
                yield f"{name}: {path} categories", changed(plan, (*path, "categories"), 2)
            else:
                yield f"{name}: {path} absent", changed(plan, (*path, "absent"), 0)
                yield f"{name}: {path} total", changed(plan, (*path, "total"), 64)
        for at, part in enumerate(plan["parts"]):
            if part["kind"] == "cube":
                path = "parts", at
                yield f"{name}: heavy", changed(plan, (*path, "heavy"), 1000)
                yield f"{name}: light", changed(plan, (*path, "light"), 0)
                yield f"{name}: threshold", changed(plan, (*path, "threshold"), 9)
                yield f"{name}: price", changed(plan, (*path, "epsilon"), "0.1")


TAMPERED = dict(tampered())


@pytest.mark.parametrize("name", TAMPERED)
def test_tampered_tables_are_refused(tmp_path, name):
    sound, plan = HAND_MADE[name.split(":")[0]], TAMPERED[name]
    schema = Schema.from_document(sound["schema"])
    held = vault(tmp_path / "ledger", np.zeros((2, schema.dimensions)), None, 4.0, schema)
    check_refused(held, asked(plan=canonical(plan)), asked(plan=canonical(sound)))


@pytest.mark.parametrize("name", ["small split", "small cube"])
def test_whatever_entry_is_changed_no_more_is_spent_than_the_tables_allow(tmp_path, name):
    """A changed plan is refused, or it is a plan that is paid for in full."""
    plan = HAND_MADE[name]
    schema = Schema.from_document(plan["schema"])
    matrix = np.zeros((1, schema.dimensions))
    held = vault(tmp_path / "ledger", matrix, None, 1000.0, schema, answers_per_job=1000)
    accepted = refused = 0
    for path in places(plan):
        for odd in (..., None, True, -1, 0, 1, 7, 0.5, 1e308, "", "0", "5", "64", [], [0], {}):
            question = asked(1, canonical(changed(plan, path, odd)), number=accepted + 1)
            before = held._ledger.spent("car 0")
            try:
                held.answer(question)
            except FedLDPError:
                refused += 1
                assert held._ledger.spent("car 0") == before
                continue
            accepted += 1
            read = Plan.from_json(question.plan)
            assert held._ledger.spent("car 0") - before == read.total_epsilon
            assert read.total_epsilon <= Fraction(json.loads(question.plan)["epsilon"])
    assert 0 < accepted < refused


ROWS_ = json.loads(ROWS.to_json())
OTHER_BOUNDS = Schema((Number("speed", 0.0, 99.0), *SCHEMA.attributes[1:]))
OTHER_MISSING = Schema((Number("speed", 0.0, 100.0, missing=0.0), *SCHEMA.attributes[1:]))
OTHER_LABELS = Schema((*FEATURES.attributes, Category("late", ["yes", "no"])))
TWO_VECTORS = Schema.of(x=(-1, 1), y={"low": -1, "high": 1, "size": 5})
UNASKED = {
    "a raised epsilon": asked(plan=Plan(SCHEMA, 2.5)),
    "a vehicle": asked(plan=canonical(ROWS_ | {"vehicle": "car 1"})),
    "a coordinate": asked(plan=canonical(ROWS_ | {"coordinate": 3})),
    "keys": asked(plan=canonical(changed(ROWS_, ("parts", 0, "keys"), ["car 1"]))),
    "spaces": asked(plan=json.dumps(ROWS_, sort_keys=True)),
    "a key twice": asked(plan=ROWS.to_json().replace('"format"', '"epsilon":"9.0","format"')),
    "no plan": asked(plan="{}"),
    "other bounds": asked(plan=Plan(OTHER_BOUNDS, 1.0)),
    "another default": asked(plan=Plan(OTHER_MISSING, 1.0)),
    "other labels": asked(plan=Plan(OTHER_LABELS, 1.0)),
    "an unknown attribute": asked(plan=Plan(Schema.of(age=(0, 100)), 1.0)),
    "part of a vector": asked(plan=Plan(Schema.of(way=(-1, 3)), 1.0)),
    "gradients of rows": asked(plan=plan_for(6)),
    "rows for a model": asked(plan=ROWS, model=MODEL),
    "too few dimensions": gradients(plan=plan_for(5)),
    "too many dimensions": gradients(plan=plan_for(7)),
    "two vectors": gradients(plan=Plan(TWO_VECTORS, 1.0)),
    "a category": gradients(plan=Plan(Schema.of(x=[str(i) for i in range(6)]), 1.0)),
    "a raised epsilon of gradients": gradients(plan=plan_for(6, epsilon=2.5)),
    "a model of other bounds": gradients(
        model=Model("logistic", Schema(OTHER_BOUNDS.attributes[:3]), SCHEMA["late"], WEIGHTS)
    ),
    "a model of another target": gradients(
        model=Model("logistic", FEATURES, Category("late", ["yes", "no"]), WEIGHTS)
    ),
    "a model of an unknown target": gradients(
        model=Model("squared", FEATURES, Number("tip", 0.0, 1.0), WEIGHTS)
    ),
}
MODEL_ = json.loads(MODEL.to_json())
FOR_MODELS = {
    "an unknown objective": {"objective": "os.system"},
    "another objective": {"objective": "squared"},
    "no objective": {"objective": None},
    "code": {"code": "print()"},
    "huge weights": {"weights": [1e26] + [0.0] * 5},
    "infinite weights": {"weights": [float("inf")] + [0.0] * 5},
    "NaN": {"weights": [float("nan")] + [0.0] * 5},
    "texts": {"weights": ["1"] * 6},
    "too few weights": {"weights": [1.0] * 5},
    "too many weights": {"weights": [1.0] * 7},
    "no weights": {"weights": []},
    "another format": {"format": "fedldp model 2"},
}
UNASKED |= {f"model: {k}": gradients(model=canonical(MODEL_ | v)) for k, v in FOR_MODELS.items()}
UNASKED |= {f"model: {text:.9}": gradients(model=text) for text in (" ", "{}", "7", "[" * 100_000)}


@pytest.mark.parametrize("question", UNASKED.values(), ids=UNASKED)
def test_such_questions_are_refused_and_burn_nothing(one, question):
    check_refused(one, question, asked())


def test_a_batch_that_takes_too_much_room_is_refused(tmp_path):
    schema = Schema.of(x={"low": -1, "high": 1, "size": 1000})
    plan = document("1.1", schema.to_document(), [], cube([0], "1.1", 0, heavy=3, light=1))
    held = vault(tmp_path / "ledger", np.zeros((2, 1000)), None, 2.0, schema)
    question = asked(1 << 20, canonical(plan))
    check_refused(held, question, replace(question, n=2))


# Data


STRANGE = {
    "zeros": 0.0,
    "nan": np.nan,
    "inf": np.inf,
    "-inf": -np.inf,
    "largest": np.finfo(float).max,
    "least": 5e-324,
    "minus": -1.0,
    "seven": 7.0,
    "half": 0.5,
    "negative zero": -0.0,
}


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize("strange", STRANGE)
def test_data_never_cause_a_refusal(tmp_path, strange, kind):
    """Every cell, each column alone and whole rows: there is an answer, and it is a good report."""
    value = STRANGE[strange]
    if kind is np.int64 and (not np.isfinite(value) or abs(value) > 1e18):
        value = np.iinfo(np.int64).min
    if kind is np.float32:
        value = np.clip(value, *np.finfo(np.float32).max * np.array([-1, 1]))
    matrix = np.ones((7, 5), kind)
    for column in range(5):
        matrix[column, column] = value
    matrix[5] = value
    held = vault(tmp_path / "ledger", matrix, None, 100.0, answers_per_job=5)
    plans = [Plan(SCHEMA, 2.0, k=2), Plan(SCHEMA, 2.0, strategy="split")]
    questions = [asked(7, plan, number=i) for i, plan in enumerate(plans, 1)]
    goal = Model("squared", Schema(SCHEMA.attributes[1:4]), SCHEMA["speed"], WEIGHTS)
    for i, (name, model) in enumerate((("one", MODEL), ("split", MODEL), ("cube", goal)), 3):
        plan = plan_for(len(model.weights), name)
        questions.append(gradients(n=7, plan=plan, model=model, number=i))
    for question in questions:
        batch = held.answer(question)
        assert batch.answered == 7
        plan = Plan.from_json(question.plan)
        assert plan.parse(batch.report(plan.fingerprint).to_bytes()).reports == 7
        assert len(batch.to_bytes()) == question.size


@pytest.mark.parametrize("code", [np.nan, np.inf, -np.inf, -1.0, 3.0, 1e300])
def test_an_unknown_category_counts_as_missing(tmp_path, code):
    """At epsilon 16 another answer is sent once in a million times, by each of 50 vehicles."""
    city = Schema((SCHEMA["city"],))
    plan = Plan(city, 16.0)
    held = vault(tmp_path / "ledger", np.full((50, 1), code), None, 16.0, city)
    batch = held.answer(asked(50, plan))
    (cells,) = plan.parse(batch.report(plan.fingerprint).to_bytes()).counts
    assert cells.tolist() == [0, 50, 0]


def test_gradients_of_missing_targets_are_those_of_the_default(tmp_path):
    """At epsilon 16, no label counts as "no", and the gradient of the constant is above 0."""
    matrix = np.column_stack([np.zeros((50, 4)), np.full(50, np.nan)])
    model = Model("hinge", FEATURES, SCHEMA["late"], (0.0,) * 6)
    plan = plan_for(6, "one", epsilon=16.0)
    batch = vault(tmp_path / "ledger", matrix, None, 16.0).answer(asked(50, plan, model))
    (cells,) = plan.parse(batch.report(plan.fingerprint).to_bytes()).counts
    outputs = len(cells) // 6
    assert cells[-1] == cells[-outputs:].sum() > 0


def test_the_matrix_is_not_written_to_and_may_change_afterwards(tmp_path):
    matrix = MATRIX.copy()
    matrix[0] = np.nan
    before = matrix.copy()
    held = vault(tmp_path / "ledger", matrix, answers_per_job=2)
    held.answer(asked(8))
    held.answer(gradients(n=8, number=2))
    np.testing.assert_array_equal(matrix, before)


@pytest.mark.parametrize("keys", [[1, 2], [None, None], ["a", "\ud800"], [b"a", b"b"]])
def test_keys_must_be_texts(tmp_path, keys):
    with (
        open_ledger(tmp_path / "ledger", 1.0) as ledger,
        pytest.raises(DomainError, match="vehicle_id"),
    ):
        Vault(SCHEMA, MATRIX[:2], keys, ledger)


def test_a_vault_needs_a_row_for_each_key(tmp_path):
    with open_ledger(tmp_path / "ledger", 1.0) as ledger:
        for matrix, keys in ((MATRIX, ["a"]), (MATRIX[:0], []), (MATRIX[:1, :3], ["a"])):
            with pytest.raises(DomainError, match="matrix must have a row of 5 values for each of"):
                Vault(SCHEMA, matrix, keys, ledger)
        assert len(Vault(SCHEMA, MATRIX[:3], ["a", "b", "a"], ledger, fedldp.source())) == 2


def test_a_vault_refuses_a_seeded_source(tmp_path):
    with open_ledger(tmp_path / "ledger", 1.0) as ledger:
        assert "operating system" in repr(Vault(SCHEMA, MATRIX[:1], ["a"], ledger)._source)
        Vault(SCHEMA, MATRIX[:1], ["a"], ledger, fedldp.source().spawn(2)[1])
        for seeded in (
            fedldp.source(1),
            fedldp.source(1).spawn(1)[0],
            Source(bytes(32), "own key"),
        ):
            with pytest.raises(PrivacyError, match=r"keyed by the operating system; got <Source"):
                Vault(SCHEMA, MATRIX[:1], ["a"], ledger, seeded)
