"""Data sets: what all of them promise, the flights, and those that are made."""

import hashlib
from dataclasses import replace
from fractions import Fraction
from importlib import resources

import numpy as np
import pytest
from scipy import stats

from fedldp import Schema, datasets, source
from fedldp.datasets import Dataset
from fedldp.datasets.dataset import About
from fedldp.errors import DomainError
from fedldp.schema import Category, Number
from fedldp_reproduction.datasets import census, gaussian

MADE = [name for name in datasets.names() if datasets.origin(name).available == "made"]
HERE = ["flights", *MADE]


@pytest.fixture(scope="module")
def flights() -> Dataset:
    return datasets.load("flights")


@pytest.mark.parametrize("name", HERE)
def test_what_is_said_about_a_set_is_true(name):
    data = datasets.load(name, rows=200)
    about = datasets.about(name)
    assert data.about == about
    assert (data.name, data.title, data.dimensions) == (name, about.title, about.dimensions)
    assert len(data) == 200
    assert about.licence
    assert about.citation
    assert about.source
    assert about.rows


@pytest.mark.parametrize("name", HERE)
def test_features_are_on_the_unit_scale_and_end_with_the_constant(name):
    data = datasets.load(name, rows=200)
    for objective in data.targets:
        examples = data.examples(objective)
        features, targets = examples.read(slice(20, 120))
        assert features.shape == (100, examples.dimensions)
        assert features.dtype == np.float32
        assert features.flags.c_contiguous
        assert np.abs(features).max() <= 1
        assert (features[:, -1] == 1).all()
        assert targets.shape == (100,)
        assert targets.dtype == np.float64
        assert np.abs(targets).max() <= 1
        rows = np.array([119, 20, 20])
        again = examples.read(rows)
        assert np.array_equal(again[0], features[rows - 20])
        assert np.array_equal(again[1], targets[rows - 20])


@pytest.mark.parametrize("name", datasets.names())
def test_made_up_sets_say_so_in_the_title_and_no_other_does(name):
    about = datasets.about(name)
    assert about.synthetic == ("SYNTHETIC" in about.title) == (name in MADE)


def test_a_title_that_hides_that_data_are_made_up_is_refused():
    with pytest.raises(DomainError, match="SYNTHETIC"):
        About("x", "Census", "here", synthetic=True)


def test_no_target_is_a_feature(flights):
    assert not set(flights.features.schema.names) & {"late", "arr_delay"}
    assert flights.asked.names == flights.schema.names[:-1]  # all but `late`, made of arr_delay


def test_take_takes_rows_of_columns_and_vehicle_ids(flights):
    rows = np.array([5, 3, 99])
    data = replace(flights, vehicle_ids=np.arange(len(flights)))
    some = data.take(rows)
    assert np.array_equal(some.matrix(), flights.matrix(rows))
    assert np.array_equal(some.vehicle_ids, rows)
    assert flights.take(slice(2)).vehicle_ids is None


def test_the_matrix_is_what_the_schema_reads():
    schema = Schema.of(at={"low": 0, "high": 9, "size": 2}, city=["Oslo", "Rome"], age=(0, 100))
    columns = np.array([[1, 2], [3, 4]], np.int8), np.array([1, 0], np.uint8), np.array([5, 6.5])
    data = Dataset(About("x", "x", "here"), schema, columns)
    rows = [{"at": (1, 2), "city": "Rome", "age": 5}, {"at": (3, 4), "city": "Oslo", "age": 6.5}]
    expected = schema.rows(rows).matrix()
    assert np.array_equal(data.matrix(), expected)
    assert np.array_equal(data.matrix(np.array([1]), ["age", "at"]), expected[1:, [3, 0, 1]])
    assert data.matrix().flags.c_contiguous


def test_a_data_set_is_refused_if_its_columns_do_not_fit():
    schema = Schema.of(age=(0, 100), city=["Oslo", "Rome"])
    about = About("x", "x", "here")
    ages, cities = np.array([1.0, 2.0]), np.array([0, 1])
    Dataset(about, schema, (ages, cities))
    for columns, complaint in (
        ((ages,), "2 attributes; got 1 columns"),
        ((ages, cities[:1]), "one length"),
        ((ages, np.array([0, 2])), "'city' must hold codes"),
        ((ages, np.array([-1, 0])), "'city' must hold codes"),
        ((ages, np.array([0.0, 1.0])), "'city' must hold codes"),
        ((np.array([1.0, np.nan]), cities), "'age' must hold numbers"),
        ((ages[:, None], cities), "'age' must have the shape"),
    ):
        with pytest.raises(DomainError, match=complaint):
            Dataset(about, schema, columns)
    with pytest.raises(DomainError, match="no attribute 'income'"):
        Dataset(about, schema, (ages, cities), targets={"squared": "income"})
    with pytest.raises(DomainError, match="one length"):
        Dataset(about, schema, (ages, cities), vehicle_ids=np.array([1]))


def test_an_objective_without_a_target_is_refused_with_those_there_are():
    with pytest.raises(DomainError, match="gaussian-0 has no target for 'squared'"):
        datasets.load("gaussian-0", rows=1).examples("squared")
    data = replace(datasets.load("br", rows=1), targets={"squared": "income"})
    with pytest.raises(DomainError, match=r"'hinge'.*\['squared'\]"):
        data.examples("hinge")
    with pytest.raises(DomainError, match="objective must be one of"):
        data.examples("huber")
    with pytest.raises(DomainError, match="'age' must be a category"):
        replace(data, targets={"hinge": "age"}).examples("hinge")


def test_load_refuses_what_cannot_be():
    for options, complaint in (
        ({"name": "flight"}, "must be one of"),
        ({"name": "flights", "path": "x"}, "leave the path out"),
        ({"name": "br", "path": "x"}, "leave the path out"),
        ({"name": "flights", "rows": 0}, "at least 1"),
        ({"name": "flights", "rows": 327_347}, "has 327346 rows"),
        ({"name": "wisdm2019"}, "give its file with --path"),
        ({"name": "br", "rows": 1.5}, "whole number"),
        ({"name": "br", "rows": 1, "seed": "x"}, "whole number"),
    ):
        with pytest.raises(DomainError, match=complaint):
            datasets.load(**options)


def test_the_flights_are_those_that_were_published(flights):
    file = resources.files("fedldp.datasets") / "flights.npz"
    assert hashlib.sha256(file.read_bytes()).hexdigest() == (
        "9988b53d895ce3b9df2644b485ce8e7f0a2354e110adc2b818486341ffb1886f"
    )
    assert len(flights) == 327_346
    assert flights.dimensions == 33
    first = dict(zip(flights.schema.names, flights.matrix(slice(1))[0], strict=True))
    assert first == {  # UA 1545 from Newark to Houston on the first of January
        "dep_delay": 2,
        "air_time": 227,
        "distance": 1400,
        "hour": 5,
        "carrier": flights.schema["carrier"].codes["UA"],
        "origin": flights.schema["origin"].codes["EWR"],
        "month": 0,
        "arr_delay": 11,
        "late": 0,
    }
    # Of the published table, by other means.
    sums = {"dep_delay": 4_109_880, "air_time": 49_326_610, "arr_delay": 2_257_174}
    for name, total in sums.items():
        assert flights.matrix(names=[name]).sum() == total
    carriers = np.bincount(flights.matrix(names=["carrier"])[:, 0].astype(int))
    assert carriers.tolist()[:3] == [17_294, 31_947, 709]
    assert carriers.min() == 29
    assert flights.matrix(names=["late"]).mean() == pytest.approx(0.2371497)


def test_few_flights_lie_outside_the_public_bounds(flights):
    for attribute in flights.schema:
        if isinstance(attribute, Number):
            values = flights.matrix(names=[attribute.name])
            assert ((values < attribute.low) | (values > attribute.high)).mean() < 0.03


def test_flights_can_be_learned(flights):
    features, targets = flights.examples("squared").read(slice(None))
    weights = np.linalg.lstsq(features, targets, rcond=None)[0]
    assert np.mean((features @ weights - targets) ** 2) < 0.2 * targets.var()


@pytest.mark.parametrize("name", MADE)
def test_fewer_rows_are_the_first_of_more_and_another_seed_gives_others(name):
    many = datasets.load(name, rows=(1 << 16) + 5, seed=3)  # more than one chunk
    for rows in (1, 1000, (1 << 16) + 1):
        few = datasets.load(name, rows=rows, seed=3)
        assert np.array_equal(few.matrix(), many.matrix(slice(rows)))
    other = datasets.load(name, rows=1000, seed=4)
    assert not np.array_equal(other.matrix(), many.matrix(slice(1000)))


@pytest.mark.parametrize("name", MADE)
def test_made_up_data_do_not_share_the_words_of_a_simulation(name):
    from fedldp.datasets.dataset import chance

    assert not np.array_equal(chance(name, 7).words(4), source(7).words(4))


@pytest.mark.parametrize("each", gaussian.SETS, ids=lambda each: each.name)
def test_gaussian_sets_are_truncated_and_not_clipped(each):
    values = each.make(2000, seed=1).matrix()
    assert values.shape == (2000, 16)
    assert np.abs(values).max() <= 1
    mean = float(each.mean)
    law = stats.truncnorm((-1 - mean) * 4, (1 - mean) * 4, mean, 0.25)
    # A false alarm in 10^6, had the seed not been fixed.
    assert stats.kstest(values.reshape(-1), law.cdf).pvalue > 1e-6
    assert abs(np.corrcoef(values.T) - np.eye(16)).max() < 0.15


def test_the_gaussian_sets_have_the_means_of_the_paper():
    assert [each.mean for each in gaussian.SETS] == [0, Fraction(1, 3), Fraction(2, 3), 1]


@pytest.mark.parametrize(
    ("made", "numbers", "categories", "labels", "dimensions"),
    [(census.BR, 6, 10, 94, 90), (census.MX, 5, 14, 103, 94)],
    ids=["br", "mx"],
)
def test_a_census_has_the_shape_of_the_paper(made, numbers, categories, labels, dimensions):
    asked = made.make(10, seed=0).asked
    sizes = [len(each.categories) for each in asked if isinstance(each, Category)]
    assert len(asked) - len(sizes) == numbers
    assert len(sizes) == categories
    assert sum(sizes) == labels
    # The income is no feature, but the constant is one: as many as the paper counts.
    assert numbers + labels - categories == made.make(10, seed=0).dimensions == dimensions


@pytest.mark.parametrize("made", [census.BR, census.MX], ids=["br", "mx"])
def test_a_census_can_be_learned_but_not_by_heart(made):
    data = made.make(40_000, seed=1)
    assert all(len(np.unique(column)) > 1 for column in data.columns)
    features, incomes = data.examples("squared").read(slice(None))
    known, new = slice(30_000), slice(30_000, None)
    weights = np.linalg.lstsq(features[known], incomes[known], rcond=None)[0]
    left = np.mean((features[new] @ weights - incomes[new]) ** 2) / incomes[new].var()
    assert 0.2 < left < 0.6
    high = data.examples("logistic").read(slice(None))[1]
    weights = np.linalg.lstsq(features[known], high[known], rcond=None)[0]
    errors = np.mean(np.sign(features[new] @ weights) != high[new])
    assert 0.1 < errors < 0.6 * np.mean(high > 0)
    assert 0.3 < np.mean(high > 0) < 0.5


@pytest.mark.parametrize("made", [census.BR, census.MX], ids=["br", "mx"])
def test_traits_hang_together(made):
    data = made.make(20_000, seed=1)
    matrix = data.matrix(names=["education", "occupation", "religion", "sex"])
    together = np.corrcoef(matrix.T)
    assert together[0, 1] > 0.2
    assert abs(together[2, 3]) < 0.05


def test_the_far_ends_of_chance_give_labels_too():
    trait = census.BR.traits[5]
    ends = np.array([2.0**-53, 1 - 2.0**-53])
    for number in range(6):
        drawn = trait.draw(np.full(2, number), ends)
        assert drawn.tolist() == [0, 26]
