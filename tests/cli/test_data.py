"""`fedldp data` on the command line."""

import json

import pytest
from click.testing import CliRunner

from fedldp import datasets
from fedldp.cli.data import data_group
from fedldp.errors import DomainError


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDLDP_CACHE", str(tmp_path))


def run(*arguments):
    result = CliRunner(env={"COLUMNS": "200"}).invoke(data_group, [str(each) for each in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_list_has_every_set_with_its_facts():
    listed = json.loads(run("list", "--json"))
    assert [each["name"] for each in listed] == list(datasets.names())
    facts = {each["name"]: each for each in listed}
    assert facts["flights"]["rows"] == 327_346
    assert facts["wisdm"]["download"]["sha256"].startswith("e5737912")
    assert facts["wisdm"]["available"] == "to fetch"
    assert facts["br"]["synthetic"]
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
    for text in ("CC0-1.0", "12: Jan, Feb, Mar, ...", "made of others", "target: hinge"):
        assert text in shown


def test_info_says_synthetic_and_how_many_rows_there_will_be():
    found = json.loads(run("info", "br", "--json"))
    assert found["rows"] == 4_000_000
    assert "SYNTHETIC" in found["title"]
    assert "SYNTHETIC" in run("info", "br")


def test_info_of_what_is_not_here_says_where_to_get_it():
    found = json.loads(run("info", "vehicle", "--json"))
    assert found["available"] == "to fetch"
    assert "columns" not in found
    shown = run("info", "vehicle")
    assert "https://api.openml.org/api/v1/json/data/357" in shown
    assert "not published" in shown


def test_info_reads_a_file(tmp_path):
    path = tmp_path / "raw.txt"
    path.write_text("33,Jogging,4,-0.7,12.5,0.5;\n33,Sleeping,4,-0.7,12.5,0.5;\n")
    found = json.loads(run("info", "wisdm", "--path", path, "--json"))
    assert (found["rows"], found["clients"], found["available"]) == (1, 1, str(path))
    assert "1 malformed" in found["note"]


def test_fetch_refuses_what_is_not_fetched():
    with pytest.raises(DomainError, match="br cannot be fetched"):
        run("fetch", "br")


def test_fetch_says_where_the_file_is(monkeypatch, tmp_path):
    path = tmp_path / "datasets" / "WISDM_ar_v1.1_raw.txt"

    def fetch(name, progress):
        assert name == "wisdm"
        progress(5, 10)
        progress(10, 10)
        return path

    monkeypatch.setattr(datasets, "fetch", fetch)
    assert run("fetch", "wisdm") == f"wisdm is in {path}\n"
