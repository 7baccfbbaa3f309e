"""Categories that are not listed, and labels for what is unknown and missing."""

import hashlib
import itertools
import json

import numpy as np
import pytest

import fedldp
from fedldp import Category, Plan, Schema, vehicle
from fedldp.errors import DataWarning, DomainError, WireError
from fedldp.schema.attributes import HashedCategory, WholeNumbers

APP, ZONE = Category.hashed("app", buckets=64, salt="spring"), Category.of_range("zone", 10, 14)
TIRES = Category("tires", ["summer", "winter"], optional=True)
VALUES = [
    "maps",
    "10",
    12,
    14.0,
    14.5,
    15,
    True,
    None,
    "",
    float("nan"),
    "nan",
    "summer",
    "Tür",
    -1e300,
]


@pytest.mark.parametrize("attribute", [APP, ZONE, TIRES], ids=lambda each: each.name)
def test_a_vehicle_reads_them_as_the_library_does(attribute):
    plan = Plan(Schema((attribute,)), 2.0)
    assert json.loads(plan.to_json())["format"] == "fedldp plan 2"
    assert Plan.from_json(plan.to_json()) == plan
    small = vehicle.Plan(plan.to_json(), 2.0)
    for value in VALUES:
        row = {attribute.name: value}
        matrix, quality = plan.schema.rows([row]).read()
        used = np.nan_to_num(matrix[0], nan=attribute.missing_input)
        assert small.inputs(row) == used.tolist()
        assert bool(small.check(row)) is not quality.clean
    assert small.inputs({}) == [len(attribute.labels) - 1]
    assert small.check({}) == []


def test_buckets_are_those_of_sha_256():
    for label, text in (("maps", "maps"), (3.0, "3"), (True, "true"), ("Tür", "Tür")):
        digest = hashlib.sha256(f"spring\0{text}".encode()).digest()
        assert APP.bucket(label) == int.from_bytes(digest[:8], "big") % 64
    counts = np.bincount([APP.bucket(i) for i in range(6400)], minlength=64)
    assert counts.min() > 50
    assert counts.max() < 160
    assert HashedCategory("app", 64).bucket("maps") != APP.bucket("maps")


def test_unknown_and_missing_values_are_reported_as_such():
    """Within five standard errors: by chance in fewer than 1 of 10^5 runs."""
    rows = {
        "app": ["maps", "maps", None, "chess"] * 10_000,
        "zone": [10, 99, None, 10] * 10_000,
        "tires": ["winter", "all-season", None, "winter"] * 10_000,
    }
    plan = Plan(Schema((APP, ZONE, TIRES)), 4.0)
    with pytest.warns(DataWarning, match="zone: 10,000 of 40,000 .25%. unknown, replaced by 'oth"):
        tally = plan.simulate(rows, fedldp.source(1))
    found = tally.estimate()
    wanted = {"zone": {"10": 0.5, "other": 0.25, "missing": 0.25}}
    wanted["tires"] = {"winter": 0.5, "other": 0.25, "missing": 0.25}
    wanted["app"] = {str(APP.bucket("maps")): 0.5, str(APP.bucket("chess")): 0.25, "missing": 0.25}
    for name, shares in wanted.items():
        truth = np.array([shares.get(label, 0.0) for label in found[name].categories])
        assert np.all(np.abs(found[name].frequencies - truth) < 5 * found[name].stderr)


def test_ranges_are_read_fast_from_arrays_and_texts():
    cells = np.array([10, 14, 9, 15, 12])
    np.testing.assert_equal(ZONE.readers[0].read(cells), [0, 4, np.nan, np.nan, 2])
    np.testing.assert_equal(ZONE.readers[0].read(np.array([10.0, np.nan])), [0, 6])
    texts = ["11", " 12 ", "x", None, "", "nan"]
    np.testing.assert_equal(ZONE.readers[0].read(texts), [1, 2, np.nan, 6, 6, np.nan])
    assert Schema.of(zone=range(10, 15))["zone"] == ZONE
    assert Category("zone", range(10, 15)).categories == ("10", "11", "12", "13", "14")


def test_many_labels_make_a_small_plan():
    zone = Category.of_range("zone", 1, 900_000)
    plan = Plan(Schema((zone,)), 1.0)
    assert plan.bits <= 22
    assert len(plan.to_json()) < 400
    listed = Plan(Schema.of(zone=[str(i) for i in range(70_000)]), 1.0)
    assert json.loads(listed.to_json())["format"] == "fedldp plan 2"
    assert listed.bits <= 19
    assert vehicle.Plan(listed.to_json(), 1.0).bits == listed.bits
    with pytest.raises(DomainError, match="from 2 to 1048576 categories; got 1048577"):
        Category("zone", range(2**20 + 1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Category.hashed("app", 1), "'app' needs from 2 to 1048575 buckets; got 1"),
        (lambda: Category.hashed("app", 2**20), "needs from 2 to 1048575 buckets"),
        (lambda: Category.hashed("app", 2.5), "buckets of 'app' must be"),
        (lambda: Category.hashed("app", 8, salt=3), "the salt of 'app' must be a text"),
        (lambda: Category.hashed("app", 8, salt=0), "the salt of 'app' must be a text; got 0"),
        (lambda: WholeNumbers("zone", 5, 5), "'zone' needs first < last"),
        (lambda: WholeNumbers("zone", 0, 2**20), "at most 1048576 categories"),
        (lambda: WholeNumbers("zone", 2**60, 2**60 + 5), "'zone' needs first < last"),
        (lambda: Category("a", ["b", "c"], missing="b", optional=True), "needs no `missing`"),
        (lambda: Category("a", ["b", "c"], optional=1), "must be True or False"),
        (lambda: Category("a", ["b", "c"], optional="yes"), "must be True or False"),
    ],
)
def test_what_is_not_valid_is_refused(make, message):
    with pytest.raises(DomainError, match=message):
        make()


def test_they_are_declared_in_toml_and_in_json():
    schema = Schema((APP, ZONE, TIRES))
    assert Schema.from_toml(schema.to_toml()) == schema
    assert Schema.from_document(json.loads(json.dumps(schema.to_document()))) == schema
    assert Schema.from_toml("app = {buckets = 64}")["app"] == Category.hashed("app", 64)
    for entry, change in itertools.product(schema.to_document(), ({"x": 1}, {"name": 3})):
        with pytest.raises(WireError):
            Schema.from_document([{**entry, **change}])


def test_optional_labels_that_are_there_already():
    city = Category("city", ["missing", "Oslo", "other"], optional=True)
    assert city.labels == ("missing", "Oslo", "other")
    np.testing.assert_equal(city.readers[0].read(["Oslo", None, "Rome"]), [1, 0, np.nan])
    assert city.missing_input == 2
    assert repr(TIRES) == "Category(name='tires', categories=('summer', 'winter'), optional=True)"
