"""Models as data: what they predict, and what a hostile file can do."""

import copy
import json
import pickle
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import canonical, changed, places

import fedldp
from fedldp import Category, Number, Schema, datasets
from fedldp.errors import DataWarning, DomainError, WireError
from fedldp.learn.gradients import BLOCK
from fedldp.learn.model import LARGEST_WEIGHT, Model
from fedldp.learn.objectives import objective
from fedldp.learn.tasks import Linear

SCHEMA = Schema.of(age=(0, 100), city=["Oslo", "Rome", "Lima"], at={"low": 0, "high": 2, "size": 2})
SOLD, PRICE = Category("sold", ["no", "yes"]), Number("price", 100, 300)
WEIGHTS = (0.5, -0.25, 1.0, 0.125, -2.0, 0.75)
MODEL = Model("logistic", SCHEMA, SOLD, WEIGHTS)
ROWS = [
    {"age": 75, "city": "Lima", "at": [1, 2], "sold": "no", "price": 250},
    {"age": 130, "city": "Rome", "at": [0, 0], "sold": "yes", "price": 1000},
    {"city": "Paris", "at": [2], "sold": "maybe"},
]
FEATURES = [  # by hand; what cannot be read is the default: 50 years, Oslo, the centre
    [0.5, -1, 1, 0, 1, 1],
    [1, 1, -1, -1, -1, 1],
    [0, -1, -1, 0, 0, 1],
]
SCORES = np.array(FEATURES) @ WEIGHTS


# These rows are partly missing or outside the bounds, on purpose.
imperfect = pytest.mark.filterwarnings("ignore::fedldp.errors.DataWarning")


@imperfect
def test_scores_and_labels():
    assert SCORES.tolist() == [0.25, 1.875, 0.0]
    assert MODEL.scores(ROWS).tolist() == SCORES.tolist()
    assert MODEL.predict(ROWS).tolist() == ["yes", "yes", "no"]
    errors = MODEL.errors(ROWS)
    assert errors[:2].tolist() == [1.0, 0.0]
    assert np.isnan(errors[2])  # nobody knows whether it was sold
    assert MODEL.error(ROWS) == 0.5


def test_imperfect_rows_are_warned_of_once():
    """As by `Plan.report`, but for the target, which may be there, and an option that is not."""
    calls = [MODEL.scores, MODEL.predict, MODEL.errors, MODEL.error]
    for call in calls:
        with pytest.warns(DataWarning) as seen:
            call(ROWS)
        (warning,) = seen
        assert warning.filename == __file__  # it points to the call
        text = str(warning.message)
        assert text.startswith("3 rows: 5 values are clipped or replaced.")
        assert "age: 1 of 3 (33%) clipped to [0, 100]; 1 of 3 (33%) missing" in text
        assert "city: 1 of 3 (33%) unknown, replaced by 'Oslo'; so the share of 'Oslo'" in text
        assert "row 2: 'Paris' is not one of the 3 categories" in text
        assert "Unknown key: 'price' in 2 of 3 rows." in text
        assert "sold" not in text
        assert "strict" not in text


def test_complete_rows_with_their_target_are_not_warned_of():
    rows = [{name: ROWS[0][name] for name in ("age", "city", "at", "sold")}] * 2
    for call in (MODEL.scores, MODEL.predict, MODEL.errors, MODEL.error):
        call(rows)


def test_a_target_that_is_clipped_is_warned_of_and_one_that_is_missing_is_not():
    model, row = Model("squared", SCHEMA, PRICE, WEIGHTS), {"age": 75, "city": "Lima", "at": [1, 2]}
    model.errors([{**row, "price": None}, {**row, "price": "?"}, row])
    with pytest.warns(DataWarning, match=r"price: 1 of 3 \(33%\) clipped to \[100, 300\]$"):
        model.errors([{**row, "price": 1000}, {**row, "price": None}, {**row, "price": 200}])


@imperfect
def test_numbers_in_their_own_units():
    model = Model("squared", SCHEMA, PRICE, WEIGHTS)
    assert model.predict(ROWS).tolist() == [225.0, 387.5, 200.0]
    assert model.errors(ROWS)[:2].tolist() == [0.25**2, 0.875**2]  # 1000 counts as 300
    assert model.error(ROWS) == (0.25**2 + 0.875**2) / 2


@imperfect  # the bounds clip some delays
@pytest.mark.parametrize("name", ["logistic", "hinge", "squared"])
def test_the_error_is_that_of_the_training(name):
    data = datasets.load("flights", rows=BLOCK + 500)
    test = Linear(objective(name), data.examples(name))
    weights = fedldp.source(3).uniform(33) - 0.5
    target = data.schema[data.targets[name]]
    model = Model(name, data.features.schema, target, weights)
    matrix = data.matrix()
    columns = {
        each.name: np.array(each.categories)[values.astype(int)]
        if isinstance(each, Category)
        else values
        for each, values in zip(data.schema.attributes, matrix.T, strict=True)
    }
    assert model.error(pd.DataFrame(columns)) == test.error(weights[None])[0]
    assert model.error(columns) == model.error(pd.DataFrame(columns))
    names = [*model.schema.names, target.name]
    rows = [{key: columns[key][i] for key in names} for i in range(20)]
    assert model.predict(rows).tolist() == model.predict(columns)[:20].tolist()


def test_an_error_needs_targets():
    with pytest.raises(DomainError, match="expected at least one row with the target 'sold'"):
        MODEL.error([{"age": 3}])
    with pytest.raises(DomainError, match="no column 'sold'"):
        MODEL.error({"age": [3], "city": ["Oslo"], "at": [[1, 1]]})
    assert MODEL.predict({"age": [3], "city": ["Oslo"], "at": [[1, 1]]}).tolist() == ["no"]
    assert len(MODEL.predict([])) == 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"objective": "ridge"}, "there is no objective 'ridge'"),
        ({"objective": "squared"}, "must be one number with bounds"),
        ({"target": PRICE}, "category with two labels"),
        ({"target": Category("size", ["S", "M", "L"])}, "category with two labels"),
        ({"target": Category("city", ["Oslo", "Rome"])}, "must not be in the schema too"),
        ({"target": "sold"}, "a Number or a Category"),
        ({"schema": [SOLD]}, "needs a Schema"),
        ({"weights": WEIGHTS[1:]}, "weights must be 6 numbers, .*; got 5"),
        ({"weights": 3.0}, "weights must be 6 numbers, .*; got 3.0"),
        ({"weights": [*WEIGHTS[1:], float("nan")]}, "got nan"),
        ({"weights": [*WEIGHTS[1:], float("inf")]}, "got inf"),
        ({"weights": [*WEIGHTS[1:], -1.01 * LARGEST_WEIGHT]}, "use a lower learning rate"),
        ({"weights": [*WEIGHTS[1:], 10**5000]}, r"got this int"),
        ({"weights": [*WEIGHTS[1:], True]}, "got True"),
        ({"weights": [*WEIGHTS[1:], "1"]}, "got '1'"),
    ],
)
def test_an_invalid_model(changes, said):
    parts = {"objective": "logistic", "schema": SCHEMA, "target": SOLD, "weights": WEIGHTS}
    with pytest.raises(DomainError, match=said):
        Model(**parts | changes)


@imperfect
def test_the_largest_weights_have_finite_scores():
    for sign in (1, -1):
        model = Model("squared", SCHEMA, PRICE, [sign * LARGEST_WEIGHT] * 6)
        assert np.isfinite(model.scores(ROWS)).all()
        assert np.isfinite(model.error(ROWS[:1]))


# Files

AWKWARD = Model("hinge", Schema.of(x=(-1e-9, 0.1)), SOLD, [0.1 + 0.2, -5e-324])


@pytest.mark.parametrize("model", [MODEL, AWKWARD, Model("squared", SCHEMA, PRICE, WEIGHTS)])
def test_writing_and_reading_is_the_identity(model):
    text = model.to_json()
    assert text == canonical(json.loads(text))
    assert text.isascii()
    for again in (Model.from_json(text), pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert again == model
        assert again.to_json() == text
        assert again.fingerprint == model.fingerprint
    spaced = json.dumps(dict(reversed(json.loads(text).items())), indent=2)
    assert Model.from_json(spaced) == model


def test_equal_models_have_equal_texts():
    zeros = Model("logistic", SCHEMA, SOLD, [0] * 6)
    for same in ([-0.0] * 6, np.zeros(6), np.zeros(6, np.float32)):
        assert Model("logistic", SCHEMA, SOLD, same).to_json() == zeros.to_json()
    others = [MODEL, zeros, Model("hinge", SCHEMA, SOLD, WEIGHTS)]
    others += [Model("logistic", SCHEMA, Category("sold", ["yes", "no"]), WEIGHTS)]
    assert len({each.fingerprint for each in others}) == len(others)


def test_golden_text():
    model = Model("logistic", Schema.of(age=(0, 100)), SOLD, [0.1, -2])
    assert model.to_json() == (
        '{"format":"fedldp model 1","objective":"logistic","schema":[{"high":100.0,"low":0.0,'
        '"missing":50.0,"name":"age","size":1}],"target":{"categories":["no","yes"],'
        '"missing":"no","name":"sold"},"weights":[0.1,-2.0]}'
    )
    assert model.fingerprint.startswith("1b9ed5a8f6bbc0")


OTHERS = [None, True, 0, 1, -1, 2, 10**6, 2**53, 10**400, 0.5, 1e308, float("inf"), float("nan")]
OTHERS += ["", "1", "squared", "hinge", "\ud800", [], [0], [[0]], {}, [1.0, -1.0], ["a", "b"]]
DOCUMENT = json.loads(MODEL.to_json())


def harmless(document):
    """Return whether it is read; then it is canonical and predicts. Else it is a WireError."""
    text = canonical(document)
    try:
        model = Model.from_json(text)
    except WireError:
        return False
    assert model.to_json() == text
    assert np.isfinite(model.scores([{}, *ROWS])).all()
    return True


@imperfect
def test_every_entry_is_checked():
    accepted = set()
    for path in places(DOCUMENT):
        value = DOCUMENT
        for key in path:
            value = value[key]
        others = [*OTHERS, ...]
        if type(value) in (int, float):
            others += [value + 1, float(value), str(value), int(value)]
        if isinstance(value, list):
            others += [value[:-1], value * 2, value[::-1], [*value, 0.0]]
        for other in others:
            same = type(other) is type(value) and other == value
            if not same and harmless(changed(DOCUMENT, path, other)):
                accepted.add((path[0], path[-1] if isinstance(path[-1], str) else ""))
        if isinstance(value, dict):
            assert not harmless(changed(DOCUMENT, path, {**value, "note": 1}))
    assert ("weights", "") in accepted
    assert ("objective", "objective") in accepted  # the hinge has such a target too
    assert ("format", "format") not in accepted
    assert ("schema", "size") not in accepted  # that would take other weights


JSON = st.recursive(
    st.one_of(st.sampled_from(OTHERS), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=6,
)


@imperfect
@settings(max_examples=300)
@given(st.data())
def test_any_changes_are_refused_or_harmless(data):
    document = DOCUMENT
    for _ in range(data.draw(st.integers(1, 3))):
        path, origin = (data.draw(st.sampled_from(places(document))) for _ in range(2))
        value = document
        for key in origin:
            value = value[key]
        document = changed(document, path, data.draw(st.one_of(JSON, st.just(value))))
        if not places(document):
            return
    harmless(document)


@given(st.one_of(st.text(), st.binary(), JSON.map(json.dumps), JSON))
def test_any_text_is_refused(text):
    with pytest.raises(WireError, match="not a 'fedldp model 1'"):
        Model.from_json(text)


@pytest.mark.parametrize("text", ["[" * 10**5, '{"a":' * 10**5, "9" * 10**4, "{}", "null", b"\xff"])
def test_hostile_text_is_refused(text):
    with pytest.raises(WireError, match="not a 'fedldp model 1'"):
        Model.from_json(text)


def test_a_short_file_cannot_ask_for_much():
    """Neither by a size that it only names, nor by a long name that each label would repeat."""
    vast = changed(DOCUMENT, ("schema", 2, "size"), (1 << 24) - 2)
    wide = {"name": "n" * 10**5, "categories": [str(i) for i in range(2000)], "missing": "0"}
    named = {**DOCUMENT, "schema": [wide], "weights": [0.5] * 2000}
    texts = canonical(vast), canonical(named)
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="weights must be 16777218 numbers"):
            Model.from_json(texts[0])
        assert len(Model.from_json(texts[1]).weights) == 2000
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
