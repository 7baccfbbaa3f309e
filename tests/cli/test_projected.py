"""`fedldp estimate` shows frequencies of many labels twice: unbiased, and with less error."""

import json

import pytest
from click.testing import CliRunner

import fedldp
from fedldp.cli.app import fedldp as command


def files(folder, labels):
    """Write a plan and a tally; return the options that read them."""
    names = [f"app {i}" for i in range(labels)]
    plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50), app=names), epsilon=2.0)
    rows = [{"speed": 20, "app": names[i % 8]} for i in range(4000)]
    tally = plan.simulate(rows, fedldp.source(3))
    (folder / "plan.json").write_text(plan.to_json())
    (folder / "tally.json").write_text(tally.to_json())
    return ["estimate", str(folder / "plan.json"), str(folder / "tally.json")], tally.estimate()


@pytest.mark.parametrize(("labels", "by"), [(63, "projection"), (64, "empirical Bayes")])
def test_projected_frequencies_are_shown(tmp_path, labels, by):
    arguments, estimate = files(tmp_path, labels)
    found = CliRunner().invoke(command, [*arguments, "--json"])
    speed, *rows = json.loads(found.stdout)["estimates"]
    assert "projected" not in speed
    assert [row["projected"] for row in rows] == estimate["app"].projected.tolist()
    assert [row["estimate"] for row in rows] == estimate["app"].frequencies.tolist()
    assert {row["projected_by"] for row in rows} == {by}

    printed = CliRunner().invoke(command, arguments, env={"COLUMNS": "120"}).stdout
    assert ("projected" in printed) == ("empirical Bayes" in printed) == (labels == 64)
