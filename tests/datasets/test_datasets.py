"""Data sets: what all of them promise, how they are registered, and the flights."""

import hashlib
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import final

import numpy as np
import pytest
from origins import TOY, check_about, check_features, check_generated, register

from fedldp import Schema, datasets
from fedldp.datasets import About, Dataset, File, registry
from fedldp.errors import DomainError
from fedldp.schema.attributes import Number


@pytest.fixture(scope="module")
def flights() -> Dataset:
    return datasets.load("flights")


@pytest.mark.parametrize("name", ["flights", "toy"])
def test_a_data_set_is_what_it_promises(name, monkeypatch):
    register(monkeypatch, toy=TOY)
    check_about(name)
    check_features(name)


def test_a_generated_set_has_as_many_rows_as_are_asked_for(monkeypatch):
    register(monkeypatch, toy=TOY)
    assert len(datasets.load("toy")) == TOY.about.rows
    check_generated("toy")


def test_a_title_that_hides_that_data_are_synthetic_is_refused():
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


def test_an_objective_without_a_target_is_refused_with_those_there_are(flights):
    with pytest.raises(DomainError, match="flights has no target for 'squared'"):
        replace(flights, targets={}).examples("squared")
    data = replace(flights, targets={"squared": "arr_delay"})
    with pytest.raises(DomainError, match=r"'hinge'.*\['squared'\]"):
        data.examples("hinge")
    with pytest.raises(DomainError, match="there is no objective 'huber'"):
        data.examples("huber")
    with pytest.raises(DomainError, match="'hour' must be a category"):
        replace(data, targets={"hinge": "hour"}).examples("hinge")


def test_load_refuses_the_impossible(monkeypatch):
    register(monkeypatch, toy=TOY, file=File(TOY.about, read=None))
    for options, complaint in (
        ({"name": "flight"}, r"\(did you mean 'flights'\?\); choose from flights, toy, file\."),
        ({"name": "flights", "path": "x"}, "leave the path out"),
        ({"name": "toy", "path": "x"}, "leave the path out"),
        ({"name": "flights", "rows": 0}, "at least 1"),
        ({"name": "flights", "rows": 327_347}, "has 327346 rows"),
        ({"name": "file"}, "toy is not available: give its file with --path"),
        ({"name": "toy", "rows": 1.5}, "whole number"),
        ({"name": "toy", "rows": 1, "seed": "x"}, "whole number"),
    ):
        with pytest.raises(DomainError, match=complaint):
            datasets.load(**options)


@final
@dataclass(frozen=True)
class Fetched:
    """A download that is there once it was fetched."""

    path: Path
    description: dict[str, str] = field(default_factory=dict)

    def present(self):
        return self.path if self.path.exists() else None

    def fetch(self, progress=None):
        self.path.write_text("3")
        return self.path


def test_a_file_can_be_loaded_by_path_or_once_it_was_fetched(monkeypatch, tmp_path):
    def read(path):
        return TOY.load(None, int(path.read_text()), 0)

    origin = File(TOY.about, read, Fetched(tmp_path / "fetched"))
    by_path = File(TOY.about, read)
    register(monkeypatch, toy=origin, other=by_path)
    assert (origin.ready, origin.available) == (False, "to fetch")
    with pytest.raises(DomainError, match="fetch it with `fedldp data fetch toy`, or give its"):
        datasets.load("toy")
    assert datasets.fetch("toy") == tmp_path / "fetched"
    assert (origin.ready, origin.available) == (True, "fetched")
    assert len(datasets.load("toy")) == 3
    assert len(datasets.load("toy", rows=2)) == 2
    (tmp_path / "mine").write_text("5")
    assert len(datasets.load("toy", tmp_path / "mine")) == 5
    assert (by_path.ready, by_path.available) == (False, "by path")
    with pytest.raises(DomainError, match="other cannot be fetched: get its file yourself"):
        datasets.fetch("other")
    with pytest.raises(DomainError, match="flights cannot be fetched: it is here"):
        datasets.fetch("flights")


def test_without_the_papers_sets_it_is_said_how_to_get_them(monkeypatch):
    register(monkeypatch)
    assert datasets.names() == ("flights",)
    with pytest.raises(DomainError, match=r"'br'; choose from flights \(for those of the paper, "):
        datasets.load("br")


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Install a package that registers one data set, and something that is not one."""
    folder = tmp_path / "trips-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: trips\nVersion: 1.0\n")
    entries = f"[{registry.GROUP}]\ntrips = origins:TOY\nwrong = origins:SCHEMA\n"
    (folder / "entry_points.txt").write_text(entries)
    monkeypatch.syspath_prepend(tmp_path)
    registry._entry_points.cache_clear()
    yield
    registry._entry_points.cache_clear()


@pytest.mark.usefixtures("package")
def test_a_package_registers_data_sets_by_entry_points():
    assert "trips" in datasets.names()
    assert datasets.origin("trips") is TOY
    assert len(datasets.load("trips", rows=10)) == 10
    with pytest.raises(DomainError, match=r"entry point 'wrong' of fedldp\.datasets must be an"):
        datasets.origin("wrong")


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
    for attribute in flights.schema.attributes:
        if isinstance(attribute, Number):
            values = flights.matrix(names=[attribute.name])
            assert ((values < attribute.low) | (values > attribute.high)).mean() < 0.03


def test_flights_can_be_learned(flights):
    features, targets = flights.examples("squared").read(slice(None))
    weights = np.linalg.lstsq(features, targets, rcond=None)[0]
    assert np.mean((features @ weights - targets) ** 2) < 0.2 * targets.var()
