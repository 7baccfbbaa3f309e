"""The commands show distributions: bars, a summary, JSON and pictures."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from fedldp import Plan, Schema, source
from fedldp.cli.app import fedldp as command
from fedldp.cli.estimates import bar

SCHEMA = """
speed = {low = 0, high = 130, bins = 13}
way = {low = 1, high = 1000, bins = 3, spacing = "logarithmic", optional = true}
hour = {period = 24, bins = 6}
age = {low = 0, high = 100}
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fleet")
    rng = np.random.default_rng(1)
    rows = zip(
        rng.uniform(20, 60, 6000).round(2),
        np.where(rng.random(6000) < 0.3, "", "50.0"),
        rng.normal(0, 2, 6000).round(2),
        rng.integers(20, 60, 6000),
        strict=True,
    )
    lines = ["speed,way,hour,age", *(",".join(map(str, row)) for row in rows)]
    (folder / "fleet.csv").write_text("\n".join(lines))
    (folder / "fleet.toml").write_text(SCHEMA)
    return folder


def collected(fleet, *options):
    arguments = ["collect", str(fleet / "fleet.csv"), "--schema", str(fleet / "fleet.toml")]
    options = ("--epsilon", "8", "--seed", "1", *options)
    done = CliRunner().invoke(command, [*arguments, *options], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_distribution_has_bars_and_a_summary(fleet):
    text = collected(fleet)
    table = text[text.index("speed: ") :]
    longest = [line for line in table.splitlines() if "█" * 20 in line]
    assert any(label in longest[0] for label in ("20 to 30", "30 to 40", "40 to 50", "50 to 60"))
    assert "│ missing " in text
    assert "median" in text
    assert "mean direction" in text
    main = text[: text.index("speed: ")]
    assert "age" in main
    assert "20 to 30" not in main


def test_json_has_edges_histogram_cdf_and_quantiles(fleet):
    document = json.loads(collected(fleet, "--json"))
    speed, way, hour = (document["distributions"][name] for name in ("speed", "way", "hour"))
    assert speed["edges"] == [10.0 * place for place in range(14)]
    assert len(speed["histogram"]) == 13
    assert sum(entry["estimate"] for entry in speed["histogram"]) == pytest.approx(1)
    assert sum(entry["truth"] for entry in speed["histogram"]) == pytest.approx(1)
    assert [entry["label"] for entry in speed["cdf"]][:2] == ["below 10", "below 20"]
    assert [entry["q"] for entry in speed["quantiles"]] == [0.05, 0.25, 0.5, 0.75, 0.95]
    for entry in speed["quantiles"]:
        assert entry["interval"][0] <= entry["estimate"] <= entry["interval"][1]
    # These are fixed by the seed; each would fail in 1 of 20 cases.
    assert way["share"]["interval"][0] < 0.7 < way["share"]["interval"][1]
    truths = [entry["truth"] for entry in way["histogram"]]
    assert truths == [0, 1, 0]  # among those who have a value
    assert hour["resultant_length"]["interval"][0] > 0.3
    names = [row["name"] for row in document["estimates"]]
    assert names[0] == "speed = 0 to 10"
    assert names[-1] == "age"


def test_pictures_have_a_histogram_and_a_distribution_function(fleet, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "fleet.svg"
    collected(fleet, "--plot", str(path))
    text = path.read_text("utf-8")
    assert text.count("<!-- share below -->") == 2  # an angle has none
    assert text.count("<!-- share of a bin -->") == 3


def test_a_bar():
    assert [bar(height) for height in (0.0, 1.0, 0.5, 1e-9)] == ["", "█" * 20, "█" * 10, "▏"]


def test_an_interval_whose_sides_differ_is_printed_with_both_ends(fleet):
    text = collected(fleet)
    table = text[text.index("speed: ") :]
    assert "95% interval" in table
    rare = next(line for line in table.splitlines() if "│ 120 to 130" in line)
    assert " 0.00000 to 0." in rare or " 0.0000 to 0." in rare
    assert "± (95%)" in text[: text.index("speed: ")]  # that of a mean has equal sides


def test_four_vehicles_are_not_told_that_shuffling_helps(tmp_path):
    plan = Plan(Schema.from_toml(SCHEMA), 2.0)
    (tmp_path / "plan.json").write_text(plan.to_json())
    for number, gains in ((4, False), (4000, True)):
        rows = {
            "speed": [30] * number,
            "way": [5] * number,
            "hour": [1] * number,
            "age": [3] * number,
        }
        (tmp_path / "tally.json").write_text(plan.simulate(rows, source(1)).to_json())
        arguments = ["estimate", str(tmp_path / "plan.json"), str(tmp_path / "tally.json")]
        done = CliRunner().invoke(command, arguments, catch_exceptions=False)
        assert done.exit_code == 0
        said = " ".join(done.stdout.split())
        assert "Each report is 2-private against everybody." in said
        assert ("shuffled the reports" in said) is gains
