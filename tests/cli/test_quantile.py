"""`fedldp quantile`."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fedldp.cli.app import fedldp as command

SCHEMA = '[speed]\nlow = 0\nhigh = 130\n\n[city]\ncategories = ["Oslo", "Rome"]\n'


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("fleet.toml").write_text(SCHEMA)
    speeds = np.random.default_rng(1).uniform(0, 130, 4000)
    lines = ["speed,city", *(f"{speed:.3f},Oslo" for speed in speeds)]
    Path("fleet.csv").write_text("\n".join(lines))


def invoke(*arguments):
    words = ["quantile", "fleet.csv", "--schema", "fleet.toml", *map(str, arguments)]
    return CliRunner().invoke(command, words, env={"COLUMNS": "80"})


def test_a_quantile_beside_the_truth():
    options = "--column", "speed", "--quantile", 0.9, "--epsilon", 2, "--seed", 1
    result = invoke(*options, "--json")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    found = json.loads(result.stdout)
    assert found["interval"][0] <= found["truth"] <= found["interval"][1]
    assert abs(found["value"] - 117) < 10
    assert (found["vehicles"], found["bits"], found["epsilon"]) == (4000, 1, 2.0)
    shown = " ".join(invoke(*options).stdout.split())
    assert "The 0.9 quantile of speed is" in shown
    assert "4,000 vehicles answered once each, one bit with epsilon 2, in 20 rounds." in shown


@pytest.mark.parametrize("column", ["city", "weight"])
def test_other_columns_are_refused(column):
    result = invoke("--column", column, "--epsilon", 1)
    assert result.exit_code != 0
    assert "--column must be" in str(result.exception) + result.output


def test_a_rule_for_several_rows_is_refused_where_each_row_is_a_vehicle():
    Path("fleet.toml").write_text(SCHEMA.replace("high = 130", 'high = 130\nrule = "mean"'))
    result = invoke("--column", "speed", "--quantile", 0.9, "--epsilon", 2)
    assert "'speed' must have no rule" in str(result.exception)
