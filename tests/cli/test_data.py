"""`fedldp data` on the command line."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import final

import pytest
from click.testing import CliRunner
from origins import TOY, register

from fedldp.cli.data import data_group
from fedldp.datasets import File
from fedldp.errors import DomainError


def run(*arguments):
    result = CliRunner(env={"COLUMNS": "200"}).invoke(data_group, [str(each) for each in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


@final
@dataclass(frozen=True)
class Somewhere:
    """A download from an address that has no checksum."""

    path: Path
    description: dict[str, str | None] = field(
        default_factory=lambda: {"url": "https://example.org/trips", "sha256": None}
    )

    def present(self):
        return self.path if self.path.exists() else None

    def fetch(self, progress):
        progress(5, 10)
        progress(10, 10)
        self.path.write_text("7")
        return self.path


@pytest.fixture(autouse=True)
def sets(monkeypatch, tmp_path):
    """Register a set that is made, and one that is fetched."""

    def read(path):
        return TOY.load(None, int(path.read_text()), 0)

    about = replace(TOY.about, name="trips", title="Trips", synthetic=False)
    trips = File(about, read, Somewhere(tmp_path / "trips"))
    register(monkeypatch, toy=TOY, trips=trips)


def test_the_list_has_every_set_with_its_facts():
    listed = json.loads(run("list", "--json"))
    assert [each["name"] for each in listed] == ["flights", "toy", "trips"]
    facts = {each["name"]: each for each in listed}
    assert facts["flights"]["rows"] == 327_346
    assert facts["trips"]["download"]["url"] == "https://example.org/trips"
    assert [each["available"] for each in listed] == ["embedded", "made", "to fetch"]
    assert facts["toy"]["synthetic"]
    shown = run("list")
    for each in listed:
        assert each["name"] in shown
        assert each["title"] in shown


def test_info_shows_columns_of_what_is_here():
    found = json.loads(run("info", "flights", "--json"))
    assert (found["rows"], found["dimensions"], found["available"]) == (327_346, 33, "embedded")
    assert found["targets"]["squared"] == "arr_delay"
    columns = {column["name"]: column for column in found["columns"]}
    assert columns["late"]["frequencies"][1] == pytest.approx(0.2371497)
    assert columns["late"]["derived"]
    assert columns["arr_delay"]["low"] == -60
    assert 0 < columns["arr_delay"]["outside"] < 0.02
    shown = run("info", "flights")
    for text in ("CC0-1.0", "Jan, Feb, Mar", "derived from others", "target: hinge"):
        assert text in shown


def test_info_says_synthetic_and_how_many_rows_there_will_be():
    found = json.loads(run("info", "toy", "--json"))
    assert found["rows"] == 2000
    assert "SYNTHETIC" in found["title"]
    assert "SYNTHETIC" in run("info", "toy")


def test_info_of_what_is_not_here_says_where_to_get_it():
    found = json.loads(run("info", "trips", "--json"))
    assert found["available"] == "to fetch"
    assert "columns" not in found
    shown = run("info", "trips")
    assert "https://example.org/trips" in shown
    assert "not published" in shown


def test_info_reads_a_file(tmp_path):
    path = tmp_path / "mine"
    path.write_text("3")
    found = json.loads(run("info", "trips", "--path", path, "--json"))
    assert (found["rows"], found["clients"], found["available"]) == (3, None, str(path))


def test_fetch_refuses_what_is_not_fetched():
    with pytest.raises(DomainError, match="toy cannot be fetched"):
        run("fetch", "toy")


def test_fetch_says_where_the_file_is(tmp_path):
    assert run("fetch", "trips") == f"trips is in {tmp_path / 'trips'}\n"
    assert json.loads(run("info", "trips", "--json"))["rows"] == 7


@pytest.mark.parametrize("command", ["info", "fetch"])
def test_an_unknown_set_is_refused_with_those_there_are(command, monkeypatch):
    with pytest.raises(DomainError, match=r"no data set 'br'.*; choose from flights, toy, trips"):
        run(command, "br")
    register(monkeypatch)
    with pytest.raises(DomainError, match=r"pip install \./reproduction"):
        run(command, "br")
