"""`fedldp estimate` shows frequencies of many labels twice: unbiased, and with less error."""

import json

import pytest
from click.testing import CliRunner

import fedldp
from fedldp import _plots as plots
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
    assert ("projected ┃" in printed) == ("empirical Bayes" in printed) == (labels == 64)


def test_no_share_is_shown_as_negative(tmp_path, monkeypatch):
    """Of 63 labels that 4000 rows share among 8, many unbiased estimates are below 0."""
    arguments, estimate = files(tmp_path, 63)
    assert estimate["app"].frequencies.min() < 0
    printed = CliRunner().invoke(command, arguments, env={"COLUMNS": "120"}).stdout
    rows = [line.split("│")[1:4] for line in printed.splitlines() if "app = " in line]
    assert [float(value) for _, value, _ in rows] == pytest.approx(
        estimate["app"].projected, abs=1e-3
    )
    assert "none is negative" in " ".join(printed.split())
    drawn = []
    monkeypatch.setattr(plots, "estimates", lambda rows, *_: drawn.extend(rows))
    monkeypatch.setattr(plots, "save", lambda *_: None)
    CliRunner().invoke(command, [*arguments, "--plot", str(tmp_path / "shares.png")])
    assert min(row["estimate"] for row in drawn) == 0.0


def test_differences_of_shares_may_be_negative(tmp_path):
    arguments, _ = files(tmp_path, 8)
    plan = fedldp.Plan.from_json((tmp_path / "plan.json").read_text())
    rows = [{"speed": 20, "app": "app 0"}] * 4000
    (tmp_path / "earlier.json").write_text(plan.simulate(rows, fedldp.source(4)).to_json())
    printed = CliRunner().invoke(command, [*arguments, "--minus", str(tmp_path / "earlier.json")])
    assert "-0.8" in printed.stdout
    assert "Frequencies are projected" not in " ".join(printed.stdout.split())


def test_estimates_have_the_units_of_a_schema(tmp_path):
    schema = tmp_path / "fleet.toml"
    schema.write_text(
        'speed = {low = 0, high = 50, unit = "km/h"}\n'
        "bought = {low = 2020-01-01, high = 2026-12-31}\n"
        'trip = {low = 0, high = 3, unit = "h", bins = 3}\n'
        'model = {categories = ["a", "b"]}\n'
    )
    made = fedldp.Plan(fedldp.Schema.from_toml(schema.read_text()), epsilon=4.0)
    (tmp_path / "plan.json").write_text(made.to_json())
    plan = fedldp.Plan.from_json(made.to_json())
    rows = [{"speed": 20, "bought": 19_000, "trip": 1, "model": "a"}] * 4000
    (tmp_path / "tally.json").write_text(plan.simulate(rows, fedldp.source(3)).to_json())
    arguments = ["estimate", str(tmp_path / "plan.json"), str(tmp_path / "tally.json")]
    without = CliRunner().invoke(command, arguments).stdout
    assert "km/h" not in without
    printed = CliRunner().invoke(command, [*arguments, "--schema", str(schema)]).stdout
    for text in ("speed (km/h)", "bought (date)", "2022-", "trip (h)", "model = a"):
        assert text in printed
    schema.write_text(schema.read_text().replace("high = 50", "high = 60"))
    refused = CliRunner().invoke(command, [*arguments, "--schema", str(schema)])
    assert "'speed' must be as in the plan" in str(refused.exception)
