"""The data that the figures are computed from, and whether they are the paper's."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from extracts import census
from origins import register

import fedldp
from fedldp import datasets
from fedldp.errors import DomainError
from fedldp_reproduction.datasets import ipums, wisdm
from fedldp_reproduction.experiments.material import Shelf, as_arrays, missing
from fedldp_reproduction.figures import Way


def test_material_of_the_made_up_census():
    shelf = Shelf({}, 7)
    found = shelf.material("mx", 500)
    assert found is shelf.material("mx", 500)
    assert len(shelf.material("mx", 50).dataset) == 50
    assert found.share == pytest.approx(5 / 19)
    assert shelf.material("br", 9).share == pytest.approx(6 / 16)
    assert not found.is_papers
    numbers = found.numbers()
    assert numbers.shape == (500, 5)
    income = found.dataset.matrix(names=["income"])[:, 0]
    assert numbers[:, -1] == pytest.approx(income / 10_000 - 1, abs=1e-6)
    features, targets = as_arrays(found, "squared", Way("pm"))
    assert features.shape == (500, 94)
    assert features.dtype == targets.dtype == np.float32
    assert targets == pytest.approx(numbers[:, -1], abs=1e-6)


def test_gaussian_material_is_the_papers_own():
    found = Shelf({}, 7).material("gaussian-1", 300)
    assert (found.share, found.is_papers, found.numbers().shape) == (1.0, True, (300, 16))
    assert "SYNTHETIC" in found.lines[0]


@pytest.fixture
def vehicle_file(tmp_path):
    x = fedldp.source(3).uniform((50, 100)) * 6 - 3
    path = tmp_path / "vehicle.npz"
    np.savez(path, X=x, y=np.where(x[:, 0] > 0, 1, -1))
    return path, x


def test_vehicle_has_its_last_six_signals(vehicle_file):
    path, x = vehicle_file
    found = Shelf({"vehicle": path}, 1).material("vehicle", 1000)
    assert found.share == 1.0
    assert found.numbers() == pytest.approx(x[:, -6:] / 3, abs=1e-6)
    assert as_arrays(found, "hinge", Way("pm"))[0].shape == (50, 101)


def test_of_a_long_file_a_random_part(vehicle_file):
    path, _ = vehicle_file
    part = Shelf({"vehicle": path}, 1).material("vehicle", 20)
    whole = Shelf({"vehicle": path}, 1).material("vehicle", 50)
    assert len(part.dataset) == 20
    places = [np.flatnonzero((whole.numbers() == row).all(axis=1))[0] for row in part.numbers()]
    assert places == sorted(places)
    assert places != list(range(20))
    assert part.identity != whole.identity


def test_another_file_is_other_data(vehicle_file, tmp_path):
    path, x = vehicle_file
    np.savez(tmp_path / "other.npz", X=x + 0.1, y=np.where(x[:, 0] > 0, 1, -1))
    first, second = (Shelf({"vehicle": p}, 1) for p in (path, tmp_path / "other.npz"))
    assert first.material("vehicle", 9).identity != second.material("vehicle", 9).identity


def test_both_kinds_of_wisdm(tmp_path):
    text, table = tmp_path / "raw.txt", tmp_path / "watch.csv"
    text.write_text("33,Jogging,49105962326000,-0.7,12.7,0.5;\n")
    table.write_text("user,activity,x,y,z\n1600,A,1.0,2.0,3.0\n")
    found = [Shelf({"wisdm": p}, 1).material("wisdm", 9) for p in (text, table)]
    assert [each.about.name for each in found] == ["wisdm", "wisdm2019"]
    assert not any(each.is_papers for each in found)


def test_the_papers_wisdm_is_known_by_its_checksum(tmp_path, monkeypatch):
    records = b"33,Jogging,49105962326000,-0.7,12.7,0.5;\n" * 2
    known = hashlib.sha256(records).hexdigest()
    download = replace(wisdm.DOWNLOAD, member_sha256=known)
    register(monkeypatch, wisdm=replace(wisdm.WISDM, download=download))
    monkeypatch.setenv("FEDLDP_CACHE", str(tmp_path))
    download.path.parent.mkdir()
    download.path.write_bytes(records)
    other = tmp_path / "other.txt"
    other.write_bytes(records * 2)
    for paths, expected in (
        ({}, True),
        ({"wisdm": download.path}, True),
        ({"wisdm": other}, False),
    ):
        assert Shelf(paths, 1).material("wisdm", 1).is_papers is expected


def test_a_download_that_was_changed_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLDP_CACHE", str(tmp_path))
    path = wisdm.DOWNLOAD.path
    path.parent.mkdir()
    path.write_text("33,Jogging,49105962326000,-0.7,12.7,0.5;\n")
    with pytest.raises(DomainError, match="was changed"):
        Shelf({}, 1).material("wisdm", 9)


def test_the_papers_vehicle_has_all_its_rows(tmp_path, vehicle_file):
    assert not Shelf({"vehicle": vehicle_file[0]}, 1).material("vehicle", 9).is_papers
    n = datasets.about("vehicle").rows
    np.savez(tmp_path / "all.npz", X=np.zeros((n, 100), np.int8), y=np.ones(n, np.int8))
    assert Shelf({"vehicle": tmp_path / "all.npz"}, 1).material("vehicle", 9).is_papers


def test_a_census_is_the_papers_if_it_is_said_or_as_large(tmp_path, monkeypatch):
    for country, other in (("br", "mx"), ("mx", "br")):
        path = census(tmp_path / country, country)
        assert not Shelf({country: path}, 1).material(country, 9).is_papers  # the shape alone
        with monkeypatch.context() as patch:
            patch.setattr(ipums, "_MILLIONS", 0)  # as many as it has, rounded to millions
            assert Shelf({country: path}, 1).material(country, 9).is_papers
        path = census(tmp_path / country, country, head="paper = true\n")
        found = Shelf({country: path}, 1).material(country, 9)
        assert found.is_papers
        assert found.about.title == f"{country}: IPUMS, your own extract"
        assert not Shelf({other: path}, 1).material(other, 9).is_papers


def test_an_extract_that_changed_is_other_data(tmp_path):
    before = Shelf({"br": census(tmp_path)}, 1).material("br", 99).identity
    assert Shelf({"br": census(tmp_path)}, 1).material("br", 99).identity == before
    # Only the extract: the description stays as it is.
    assert Shelf({"br": census(tmp_path, first=0)}, 1).material("br", 99).identity != before


def test_generated_data_are_distinguished_by_their_rows():
    one, other, fewer = (
        Shelf({}, seed).material("br", rows) for seed, rows in ((1, 60), (2, 60), (1, 50))
    )
    assert len({each.identity for each in (one, other, fewer)}) == 3
    assert one.dataset.fingerprint in one.identity


def test_what_is_not_at_hand(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLDP_CACHE", str(tmp_path))
    shelf = Shelf({}, 1)
    assert shelf.material("wisdm", 9) is None
    assert shelf.material("vehicle", 9) is None
    assert "fedldp data fetch wisdm" in missing("wisdm")
