"""`fedldp compare`: tables, JSON, files and pictures of all mechanisms."""

import csv
import json

import numpy as np
import pytest
from click.testing import CliRunner

from fedldp.baselines.frequencies import SubsetSelection
from fedldp.cli.app import fedldp

SCHEMA = "[speed]\nlow = 0\nhigh = 130\n\n[model]\ncategories = ['A', 'B']\n"


def run(*words, status=0):
    result = CliRunner().invoke(fedldp, ["compare", *map(str, words)])
    assert result.exit_code == status, result.output
    return result.output


@pytest.fixture
def fleet(tmp_path):
    data, schema = tmp_path / "fleet.csv", tmp_path / "fleet.toml"
    data.write_text("speed,model\n" + "50,A\n70,B\n" * 100)
    schema.write_text(SCHEMA)
    return data, schema


def test_a_table_shows_who_errs_least():
    text = run("--categories", 16, "--epsilon", 1)
    assert "16 categories, epsilon 1: squared error of an answer" in text
    rows = [
        line.split() for line in text.splitlines() if " fedldp " in line or " baseline " in line
    ]
    assert [row[1] for row in rows if row[0] in ("lines", "subset-selection")] != []
    assert {row[0] for row in rows} >= {"response", "unary", "lines", "olh", "rappor"}
    assert min(float(row[4]) for row in rows) == 1.0


def test_json_has_every_number():
    document = json.loads(run("--categories", 16, "--epsilon", 1, "--epsilon", 2, "--json"))
    rows = document["comparisons"]
    (found,) = [r for r in rows if (r["mechanism"], r["epsilon"]) == ("subset-selection", 2.0)]
    assert found["worst"] == SubsetSelection(2.0, 16).worst_error
    assert found["can_be_released"] is False
    assert found["half_width"] is None


def test_several_questions_at_once():
    document = json.loads(run("--number", "--vector", 4, "--json"))
    assert {row["question"] for row in document["comparisons"]} == {"number", "vector of 4"}


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_data_give_a_tidy_table(fleet, tmp_path, suffix):
    data, schema = fleet
    path = tmp_path / f"errors.{suffix}"
    text = run("--data", data, "--schema", schema, "--epsilon", 2, "-o", path)
    assert f"Wrote {path}" in text.replace("\n", "")
    if suffix == "csv":
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
    else:
        from pyarrow import parquet

        rows = parquet.read_table(path).to_pylist()
    assert {row["question"] for row in rows} == {"speed", "model"}
    assert all(float(row["half_width"]) > 0 for row in rows)
    assert {str(row["can_be_released"]) for row in rows} == {"True", "False"}


def test_distributions_say_that_they_are_simulated():
    text = run("--distribution", 8, "--vehicles", 200)
    assert "by simulation" in " ".join(text.split())
    again = run("--distribution", 8, "--vehicles", 200, "--json")
    rows = json.loads(again)["comparisons"]
    assert all(np.isfinite(row["typical"]) for row in rows)


@pytest.mark.parametrize("epsilons", [[1], [1, 2]])
def test_pictures(tmp_path, epsilons):
    path = tmp_path / "compared.svg"
    options = [word for epsilon in epsilons for word in ("--epsilon", epsilon)]
    run("--categories", 8, *options, "--plot", path)
    assert "subset-selection" in path.read_text("utf-8")


def test_what_is_missing_or_does_not_fit_is_said(fleet, tmp_path):
    assert "say what to compare: --number, --categories" in run(status=2)
    assert "go together" in run("--data", fleet[0], status=2)
    result = CliRunner().invoke(fedldp, ["compare", "--number", "-o", str(tmp_path / "x.txt")])
    assert "must end in .csv or .parquet; got 'x.txt'" in str(result.exception)
