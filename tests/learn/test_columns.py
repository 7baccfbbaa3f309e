"""What the columns of X are: public bounds, labels and booleans, and rows as features."""

from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from fedldp import LDPLogisticRegression, Number, Schema, source
from fedldp.errors import DataWarning, DomainError
from fedldp.learn.columns import EncodedMatrix, declared_features
from fedldp.learn.features import Features, Scaling
from fedldp.learn.objectives import objective
from fedldp.learn.settings import Settings
from fedldp.learn.tasks import Linear

# Most fleets here have a few vehicles.
pytestmark = pytest.mark.filterwarnings("ignore::fedldp.errors.AccuracyWarning")

DRAW = np.random.default_rng(1)
ROWS = 4000
CITIES = ["Oslo", "Rome", "Lima"]
FRAME = pd.DataFrame(
    {
        "age": DRAW.uniform(20, 60, ROWS),
        "city": DRAW.choice(CITIES, ROWS),
        "electric": DRAW.random(ROWS) < 0.3,
        "load": DRAW.normal(0.3, 0.1, ROWS).clip(-1, 1),
    }
)
Y = DRAW.random(ROWS) < 1 / (1 + np.exp(-(FRAME.age / 10 - 4 + 2 * FRAME.electric)))
BOUNDS = {"age": (0, 100), "city": CITIES, "electric": bool, "load": (-1, 1)}
SCALING = Scaling((0.5, 0.25), (4.0, 8.0))


def fitted(frame=FRAME, bounds=BOUNDS, **options):
    model = LDPLogisticRegression(epsilon=4.0, bounds=bounds, random_state=3, **options)
    return model.fit(frame, Y)


def declared(bounds, frame=FRAME):
    return declared_features(bounds, frame, "Model")


# What is declared


def test_features_have_the_names_of_columns_and_labels():
    features = declared(BOUNDS)
    names = ("age", "city=Oslo", "city=Rome", "city=Lima", "electric", "load", "1")
    assert features.names == names
    assert features.schema["age"] == Number("age", 0, 100)
    assert features.booleans == ("electric",)
    assert features.scaled.tolist() == [0, 5]
    model = fitted()
    assert model.features_.names == names
    assert model.coef_.shape == model.coef_std_.shape == (1, 6)
    assert model.n_features_in_ == 4
    assert model.feature_names_in_.tolist() == list(FRAME.columns)
    assert len(model.scaling_.centres) == 2  # a survey asks for numbers only


@pytest.mark.parametrize(
    "frame",
    [
        FRAME.assign(city=pd.Categorical(FRAME.city, CITIES)),
        FRAME.assign(city=pd.Categorical(FRAME.city, CITIES, ordered=True)),
        pl.from_pandas(FRAME).with_columns(pl.col("city").cast(pl.Enum(CITIES))),
    ],
)
def test_types_declare_labels(frame):
    """Numbers need bounds; labels and booleans may be declared by the type of a column."""
    expected = declared(BOUNDS).schema
    numbers = {"age": (0, 100), "load": (-1, 1)}
    assert declared(numbers, frame).schema == expected
    assert declared(numbers, frame).booleans == ("electric",)
    assert declared(([0, -1], [100, 1]), frame).schema == expected  # of the columns of numbers
    wide = declared((-1, 100), frame).schema
    assert (wide["age"].low, wide["load"].high, wide["city"]) == (-1, 100, expected["city"])
    own = declared(numbers | {"city": ["Rome", "other"], "electric": (0, 2)}, frame)
    assert own.schema["city"].labels == ("Rome", "other")  # which the caller declares goes first
    assert own.booleans == ()


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"age": [31.0], "city": pl.Series(["Rome"], dtype=pl.Categorical)}),
        pa.table({"age": [31.0], "city": pa.array(["Rome"]).dictionary_encode()}),
    ],
)
def test_types_that_list_the_labels_that_occur_declare_none(frame):
    with pytest.raises(DomainError, match="no entry for 'city'"):
        declared({"age": (0, 100)}, frame)


def test_a_schema_declares_columns():
    names = ["age", "city", "load"]
    schema = Schema.of(**{name: BOUNDS[name] for name in names})
    assert declared(schema, FRAME[names]).schema == schema


def test_columns_without_names_are_declared_in_order():
    frame = FRAME.set_axis(range(4), axis=1)
    with pytest.raises(DomainError, match="bounds by name need a data frame"):
        fitted(frame)
    by_place = fitted(frame, [*BOUNDS.values()])
    assert (by_place.coef_ == fitted().coef_).all()
    assert by_place.features_.names[1] == "X[:, 1]=Oslo"


# What is replaced


def test_unknown_and_missing_labels_are_replaced_and_the_owner_is_warned():
    odd = FRAME.assign(city=["Bonn", None, *FRAME.city[2:]])
    with pytest.warns(DataWarning, match=r"city: 1 of 4,000 .* missing, replaced by 'Oslo'; 1 of"):
        replaced = fitted(odd)
    known = FRAME.assign(city=["Oslo", "Oslo", *FRAME.city[2:]])
    model = fitted(known)
    assert (replaced.coef_ == model.coef_).all()
    with pytest.warns(DataWarning, match="1 of 4,000"):
        assert (model.predict(odd) == model.predict(known)).all()
    with pytest.raises(DomainError, match=r"city: 1 of 4,000 .* unknown"):
        fitted(odd, strict=True)
    with_other = BOUNDS | {"city": [*CITIES, "other"]}
    with pytest.warns(DataWarning, match="replaced by 'other'"):
        assert fitted(odd, with_other).features_.names[4] == "city=other"


def test_a_missing_boolean_is_false():
    odd = FRAME.assign(electric=pd.array([None, *FRAME.electric[1:]], "boolean"))
    known = FRAME.assign(electric=[False, *FRAME.electric[1:]])
    with pytest.warns(DataWarning, match="electric: 1 of 4,000"):
        replaced = fitted(odd)
    assert (replaced.coef_ == fitted(known).coef_).all()
    with pytest.warns(DataWarning, match="electric"):
        assert (replaced.predict(odd) == replaced.predict(known)).all()


def test_numbers_beyond_the_bounds_are_clipped_in_training_and_not_in_predictions():
    odd = FRAME.assign(age=[150.0, *FRAME.age[1:]])
    with pytest.warns(DataWarning, match=r"age: 1 of 4,000 .* clipped to \[0, 100\]"):
        model = fitted(odd)
    scores = model.decision_function(odd[:1]) - model.decision_function(odd[:1].assign(age=100.0))
    assert scores == pytest.approx(50 * model.coef_[0, 0])


def test_a_column_without_a_usable_label_is_refused():
    with pytest.raises(DomainError, match="no value of city can be used"):
        fitted(FRAME.assign(city="Bonn"))


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("old", "'age' must have a finite number .* row 0: 'old' is not a number. Declare"),
        (np.nan, r"'age' must have a finite number .* row 0: the value is missing\. Fill in a"),
        (np.inf, r"'age' must have a finite number in every row; row 0: inf\. Fill in a"),
    ],
)
def test_numbers_must_be_finite(cell, message):
    model, cells = fitted(), [cell, *FRAME.age[1:]]
    for use in (fitted, model.predict):
        with pytest.raises(DomainError, match=message):
            use(FRAME.assign(age=cells))


def test_predictions_are_for_the_columns_of_fit():
    model = fitted()
    with pytest.raises(ValueError, match="same order"):
        model.predict(FRAME[["city", "age", "electric", "load"]])
    with pytest.warns(UserWarning, match="valid feature names"):
        assert (model.predict(FRAME.to_numpy()) == model.predict(FRAME)).all()


def test_a_fleet_that_grows_keeps_the_labels_of_the_first_call():
    halves = [FRAME[: ROWS // 2], FRAME[ROWS // 2 :]]
    model = LDPLogisticRegression(epsilon=4.0, bounds=(-1, 100), random_state=3)
    for half, cities in zip(halves, (CITIES, CITIES[::-1]), strict=True):
        typed = half.assign(city=pd.Categorical(half.city, cities))
        model.partial_fit(typed, Y[half.index])
    same = LDPLogisticRegression(
        epsilon=4.0, bounds=dict.fromkeys(FRAME, (-1, 100)) | {"city": CITIES, "electric": bool},
        random_state=3,
    )  # fmt: skip
    for half in halves:
        same.partial_fit(half, Y[half.index])
    assert (model.coef_ == same.coef_).all()


# Booleans and scaling


@pytest.mark.parametrize("survey", ["scale", "whiten", None])
@pytest.mark.parametrize("names", [["age", "electric", "load"], list(FRAME)])
def test_numbers_are_scaled_and_booleans_and_labels_are_not(survey, names):
    """The scores of the model in its own units are those of the weights and the features."""
    bounds, frame = {name: BOUNDS[name] for name in names}, FRAME[names]
    found = fitted(frame, bounds, survey=survey)
    features, targets = declared(bounds, frame), np.where(Y, 1.0, -1.0).astype(np.float32)
    rows = EncodedMatrix(features, features.schema.rows(frame).matrix(), targets)
    task = Linear(objective("logistic"), rows)
    training = Settings(4.0, survey=survey).training(task, task.distance, source(3))
    for _ in training:
        pass
    encoded = replace(features, scaling=training.scaling).encode(rows.matrix)
    dense = encoded if "city" not in names else encoded.dense()
    assert np.array_equal(dense[:, features.names.index("electric")], FRAME.electric)
    scores = dense.astype(np.float64) @ training.models[0]
    assert np.allclose(found.decision_function(frame), scores, rtol=0, atol=1e-5)
    if survey is not None:
        spread = dense[:, features.names.index("load")].std()
        assert spread > 0.5  # 0.1 as it is


@pytest.mark.parametrize("reference", ["first", "last", "none"])
def test_weights_in_own_units(reference):
    schema = Schema.of(age=(0, 100), city=CITIES, late={"low": -1, "high": 1}, way=(0, 8))
    features = Features(schema, reference, SCALING, booleans=("late",))
    matrix = schema.rows(
        {"age": [31.0, 64.0], "city": ["Rome", "Lima"], "late": [1, 0], "way": [2.0, 7.0]}
    ).matrix()
    weights = np.random.default_rng(2).normal(size=(2, features.dimensions))
    coefficients, intercepts = features.weights_in_own_units(weights)
    encoded, own = features.encode(matrix), features.in_own_units(matrix)
    if reference == "none":
        encoded, own = encoded.dense(), own.dense()
    found = own @ np.column_stack([coefficients, intercepts]).T
    assert np.allclose(found, encoded.astype(np.float64) @ weights.T, rtol=0, atol=1e-5)
    place = features.names.index("late")
    deviations = features.deviations_in_own_units(np.abs(weights))
    assert np.allclose(deviations[:, place], np.abs(coefficients[:, place]))
    assert np.allclose(deviations[:, 0], np.abs(coefficients[:, 0]))


def test_deviations_of_booleans_do_not_depend_on_the_scaling_of_numbers():
    schema = Schema.of(a=(-1, 1), b=(-1, 1), c=(-1, 1))
    features = Features(schema, scaling=SCALING, booleans=("b",))
    found = features.deviations_in_own_units(np.array([[1.0, 2.0, 3.0, 4.0]]))
    assert found.tolist() == [[4.0, 2.0, 24.0]]
    slopes, intercepts = features.weights_in_own_units(np.array([[1.0, 2.0, 3.0, 4.0]]))
    assert slopes.tolist() == [[4.0, 2.0, 24.0]]
    assert intercepts.tolist() == [4.0 - 4 * 0.5 - 24 * 0.25]


@pytest.mark.parametrize("bounds", [None, {"age": (0, 120)}])
def test_missing_bounds_of_a_frame_say_how_columns_have_theirs(bounds):
    frame = {"age": [30.0, 40.0], "city": ["Oslo", "Rome"]}
    model = LDPLogisticRegression(epsilon=4.0, bounds=bounds)
    with pytest.raises(DomainError, match=r'\["Oslo", "Rome"\]'):
        model.fit(pd.DataFrame(frame), ["no", "yes"])
