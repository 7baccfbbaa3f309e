"""Training on the command line."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import signals
from origins import TOY, register
from pyarrow import parquet
from trips import (
    FILE,
    HMTP,
    LATE,
    SCHEMA,
    document,
    prepare,
    refused,
    run,
    saved,
    shown,
    table,
    write,
)

import fedldp
from fedldp import _plots as plots
from fedldp import datasets
from fedldp.cli.runs import TASKS, HoldoutPoint, base_rate, compare_with_baseline, linear, volume
from fedldp.errors import DomainError
from fedldp.learn import Network, objective
from fedldp.learn.layers import Activation, ChannelMean, Conv, Dense
from fedldp.learn.settings import Settings
from fedldp.learn.survey import Survey
from fedldp.plan.strategies import Sample
from fedldp.schema.attributes import Number
from fedldp.schema.schema import Schema


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prepare()


# What is held out


def test_the_hold_out_is_a_public_share():
    data = datasets.load("flights", rows=1000)
    fleet, public = data.split(0.1)
    assert (len(fleet), len(public)) == (900, 100)
    rows = np.concatenate([fleet.matrix(), public.matrix()])
    assert sorted(map(tuple, rows)) == sorted(map(tuple, data.matrix()))
    assert (data.split(0.1)[1].matrix() == public.matrix()).all()
    assert not (public.matrix() == data.matrix(slice(100))).all()
    assert len(data.split(0.0001)[1]) == 1


def test_whole_vehicles_are_held_out():
    schema = fedldp.Schema.from_toml(SCHEMA)
    data = datasets.from_file("fleet.csv", schema, "late", "car")
    fleet, public = data.split(0.2)
    assert (len(fleet), len(public)) == (1200, 300)
    assert not set(fleet.vehicle_ids) & set(public.vehicle_ids)
    assert len(linear(fleet, TASKS["svm"])) == 400


def test_a_fleet_must_be_left():
    data = datasets.load("flights", rows=1)
    with pytest.raises(DomainError, match=r"of 1 vehicles, .* leaves none"):
        data.split(0.1)
    with pytest.raises(DomainError, match="leaves none"):
        datasets.load("flights", rows=10).split(0.99)


def test_base_rates():
    data = datasets.load("flights", rows=700)
    late = data.matrix(names=["late"])[:, 0]
    assert base_rate(data, TASKS["logistic"]) == base_rate(data, TASKS["svm"]) == late.mean()
    assert late.mean() < 0.5
    mostly = data.take(np.flatnonzero(late == 1))
    assert base_rate(mostly, TASKS["logistic"]) == 0.0
    delays = np.clip(data.matrix(names=["arr_delay"])[:, 0], -60, 180) / 120
    assert base_rate(data, TASKS["linear"]) == pytest.approx(delays.var())


# Training


def test_what_is_printed():
    found = document("train", "--data", "flights", "--rows", 4000, "--task", "logistic",
                     "--epsilon", 4, "--seed", 7, "--save", "model.json")  # fmt: skip
    data = replace(datasets.load("flights", rows=4000), reference="none")
    fleet, public = data.split(0.1)
    plan = Settings(epsilon=4.0).plan(36)
    model = saved()
    test = linear(public, TASKS["logistic"]).scaled(model.scaling)
    wanted = {
        "data": "flights",
        "synthetic": False,
        "task": "logistic",
        "target": "late",
        "mechanism": "directions",
        "optimizer": "noise-aware",
        "survey": "scale",
        "survey_reports": 360,
        "epsilon": 4.0,
        "exact_epsilon": "4",
        "vehicles": 3600,
        "holdout": 400,
        "bits_per_vehicle": plan.bits,
        "bytes": 3240 * plan.bits // 8 + 360 * Survey("scale", 4, 4.0).plans[0].bits // 8,
        "model": model.fingerprint,
        "base_rate": base_rate(public, TASKS["logistic"]),
        "error": test.error(np.array([model.weights]))[0],
    }
    assert {key: found[key] for key in wanted} == wanted
    assert found["largest_ratio"] <= np.exp(4)
    task, rng = linear(fleet, TASKS["logistic"]), fedldp.source(7)
    training = Settings(epsilon=4.0).training(task, task.objective.distance, rng)
    for _ in training:
        pass
    assert model.weights == tuple(training.models[0].tolist())
    assert found["rounds"] == training.rounds


def test_made_up_data_are_called_so(monkeypatch):
    register(monkeypatch, toy=TOY)
    options = "--data", "toy", "--rows", 500, "--task", "linear", "--mechanism", "none"
    assert document("train", *options)["synthetic"] is True
    assert "SYNTHETIC" in shown("train", *options)


@pytest.mark.parametrize("task", TASKS)
def test_it_learns(task):
    """The seed is fixed; of 2,000 others, none has so large an error with noise."""
    target = "minutes" if task == "linear" else "late"
    options = *FILE, "--target", target, "--task", task, "--seed", 1
    bare = document(*options, "--mechanism", "none")
    assert bare["error"] < bare["base_rate"] / 3
    features = 10 if task == "linear" else 9  # a label is a feature, the target is not
    features *= 2 if task == "multiclass" else 1  # for each of the two labels
    assert (bare["epsilon"], bare["bits_per_vehicle"]) == (None, 32 * features)
    private = document(*options, *HMTP, "--epsilon", 8)
    assert private["error"] < private["base_rate"] / 2
    output = shown(*options, *HMTP, "--epsilon", 8)
    assert TASKS[task].title in output
    assert "fleet.csv" in output


def test_seeds():
    for seed, path in ((1, "a.json"), (1, "b.json"), (2, "c.json")):
        run(*LATE, *HMTP, "--epsilon", 4, "--seed", seed, "--save", path)
    assert saved("a.json") == saved("b.json") != saved("c.json")


def test_options_reach_the_settings():
    changes = {
        "--strategy": "split",
        "--k": 2,
        "--outputs": 7,
        "--bound": 0.25,
        "--group": 300,
        "--learning-rate": 0.01,
        "--alpha": 0.5,
        "--participations": 2,
    }
    run(*LATE, *HMTP, "--epsilon", 4, "--save", "plain.json")
    for option, value in changes.items():
        run(*LATE, *HMTP, "--epsilon", 4, option, value, "--save", "other.json")
        assert saved("other.json") != saved("plain.json"), option


def test_answering_twice_costs():
    options = *LATE, *HMTP, "--epsilon", 3, "--participations", 2
    found = document(*options)
    settings = Settings(epsilon=3.0, participations=2, strategy=Sample(mechanism="hm-tp"))
    assert found["price"] == settings.price(9) > 1
    assert found["bits_per_vehicle"] == 2 * settings.plan(9).bits
    assert (found["vehicles"], found["exact_epsilon"]) == (1350, "3")
    assert f"is {found['price']:.3g} times" in " ".join(shown(*options).split())
    assert "times" not in shown(*LATE, *HMTP, "--epsilon", 3)


def test_study():
    options = *LATE, "--mechanism", "laplace", "--epsilon", 3
    assert "laplace has no channel" in refused(*options)
    found = document(*options, "--study")
    assert [found[key] for key in ("bits_per_vehicle", "bytes", "largest_ratio")] == [None] * 3
    assert "3, for study" in shown(*options, "--study")


def test_many_rows_for_a_vehicle():
    found = document(*LATE, *HMTP, "--epsilon", 4, "--vehicle", "car", "--holdout", 0.2)
    assert (found["vehicles"], found["holdout"]) == (400, 300)
    assert "no column 'owner'" in refused(*LATE, *HMTP, "--epsilon", 4, "--vehicle", "owner")


def test_parquet_and_csv_give_one_model():
    parquet.write_table(pa.Table.from_pylist(table()), "fleet.parquet")
    run(*LATE, *HMTP, "--epsilon", 4, "--save", "a.json")
    run(*LATE, *HMTP, "--epsilon", 4, "--save", "b.json", "--data", "fleet.parquet")
    assert saved("a.json") == saved("b.json")


# Bad input


@pytest.mark.parametrize("cell", ["", "nan", "fast"])
def test_missing_numbers(cell):
    rows = table()
    rows[7]["speed"] = cell
    write(rows)
    error = refused(*LATE, *HMTP, "--epsilon", 4, "--strict")
    assert error.startswith("fleet.csv: the data must be usable as they are; speed: 1 of 1,500")
    said = run(*LATE, *HMTP, "--epsilon", 4, "--save", "replaced.json").stderr
    assert said.startswith("fleet.csv: 1,500 rows: 1 value is clipped or replaced.")
    assert f"{'unreadable' if cell == 'fast' else 'missing'}, replaced by 65; row 7: " in said
    rows[7]["speed"] = 65  # the public default
    write(rows)
    run(*LATE, *HMTP, "--epsilon", 4, "--save", "model.json")
    assert saved("replaced.json") == saved()


def test_unknown_categories():
    rows = table()
    rows[3]["city [x]"] = "Rom"
    write(rows)
    error = refused(*LATE, *HMTP, "--epsilon", 4, "--strict")
    assert "'Rom' is not one of the 3 categories (did you mean 'Rome'?)" in error
    assert document(*LATE, *HMTP, "--epsilon", 4)["vehicles"] == 1350


def test_a_missing_target_is_refused():
    rows = table()
    rows[5]["late"] = ""
    write(rows)
    assert "every row must have the target; late: " in refused(*LATE, *HMTP, "--epsilon", 4)


def test_a_model_that_is_no_better_than_the_base_rate_says_so():
    flights = "train", "--data", "flights", "--task", "logistic", "--seed", 1
    little = *flights, "--rows", 3000, "--epsilon", 0.01
    result = run(*little)
    assert "This model is not better than the base rate" in " ".join(result.stdout.split())
    assert result.stderr.splitlines() == [
        "flights: the public bounds clip 1.8% of dep_delay, 0.8% of arr_delay."
    ]
    assert document(*little)["better_than_base_rate"] is False
    assert "not better" not in run(*flights, "--rows", 50_000, "--epsilon", 4).stdout
    assert document(*flights, "--rows", 50_000, "--epsilon", 4)["better_than_base_rate"] is True


def test_a_forecast():
    flights = "train", "--data", "flights", "--task", "logistic", "--seed", 1, "--epsilon", 4
    output = " ".join(run(*flights, "--rows", 2000, "--forecast").stdout.split())
    assert "1,800 vehicles with epsilon = 4, each asked once, in 52 rounds." in output
    assert "of 5 trainings beat the base rate of 0.25" in output
    found = document(*flights, "--rows", 2000, "--forecast", "--vehicles", 10_000)
    assert (found["vehicles"], len(found["weights"]), len(found["errors"])) == (10_000, 36, 5)
    assert max(found["errors"]) < found["base_rate"]
    assert "is for --forecast" in refused(*flights, "--vehicles", 5)
    assert "leave out --paper" in refused(*flights, "--forecast", "--paper")
    assert "--forecast needs a mechanism" in refused(*flights, "--forecast", "--mechanism", "none")


def test_a_gain_is_measured_against_the_best_constant():
    public = datasets.load("flights", rows=5000)
    for name in TASKS:
        task = TASKS[name]
        rows = linear(public, task)
        nothing = np.zeros((rows.objective.outputs, public.dimensions))
        _, targets = rows.examples.read(slice(None))
        nothing[:, -1] = rows.objective.constant(targets)  # always the same
        nothing = nothing.reshape(-1)
        found = compare_with_baseline(rows, nothing)
        assert abs(found.gain) < 1e-6
        assert 0 <= found.margin < 1e-6
        wild = compare_with_baseline(rows, np.full(rows.dimensions, np.nan))
        assert not wild.beats_base_rate  # a model that has left all bounds


@pytest.mark.parametrize("rows", [2, 3, 11])
def test_few_vehicles(rows):
    """Fewer than a group needs: every one of them answers all the same."""
    few = *LATE, *HMTP, "--epsilon", 4, "--rows", rows
    found = document(*few)
    assert found["vehicles"] + found["holdout"] == rows
    assert 1 <= found["rounds"] <= found["vehicles"]
    assert 0 <= found["error"] <= 1
    assert document(*few, "--group", 10**6)["rounds"] == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--epsilon", 0], "epsilon must be a number from 0.001 to 16; got 0.0"),
        (["--epsilon", -1], "epsilon must be a number from"),
        (["--epsilon", "nan"], "got nan"),
        (["--epsilon", "inf"], "got inf"),
        ([], "give --epsilon, or --mechanism none"),
        (
            ["--epsilon", 1, "--k", "many"],
            '\'--k\': must be "best", "paper" or a whole number of at least 1; got many',
        ),
        (["--epsilon", 1, "--group", 0], "'--group': must be"),
        (
            ["--epsilon", 1, "--learning-rate", -1],
            'must be "auto" or a positive number; got -1',
        ),
        (["--epsilon", 1, "--learning-rate", 1e300], "use a lower learning rate"),
        (["--epsilon", 1, "--participations", 0], "must be a whole number of at least 1; got 0"),
        (["--epsilon", 1, "--bound", 0], "--bound"),
        (["--epsilon", 1, "--holdout", 0], "--holdout"),
        (["--epsilon", 1, "--rows", 1], "leaves none to train with"),
        (["--epsilon", 1, "--data", "no.csv"], "--data must be a file, or one of flights,"),
        (["--epsilon", 1, "--data", "flights"], "flights has its own columns"),
        (["--epsilon", 1, "--target", "delay"], "fleet.toml: there is no attribute 'delay'"),
        (["--epsilon", 1, "--target", "minutes"], "For a number use linear regression"),
        (["--epsilon", 1, "--target", "tyres"], "a category with two labels"),
        (["--epsilon", 1, "--task", "linear"], "For two labels use logistic regression"),
        (["--epsilon", 1, "--plot", "rounds.doc"], "must end in .png"),
        (["--epsilon", 1, "--save", "no/model.json"], "the folder no does not exist"),
    ],
)
def test_what_cannot_be(options, said):
    assert said in " ".join(refused(*LATE, *HMTP, *options).replace("│", "").split())


def test_a_file_needs_a_schema_and_a_target():
    options = "train", "--data", "fleet.csv", "--task", "svm", "--epsilon", 1
    assert "give --schema and --target" in refused(*options)
    assert "give --schema and --target" in refused(*options, "--schema", "fleet.toml")


# On the way


def test_it_is_shown_on_a_terminal():
    result = run(*LATE, *HMTP, "--epsilon", 4, FORCE_COLOR="1")
    assert "1,350 answers" in result.stderr
    assert ", error 0." in result.stderr
    unused = "  Unused column: 'car'.\n"
    quiet = f"fleet.csv: 1,500 rows: all values are used as they are.\n{unused}"
    assert run(*LATE, *HMTP, "--epsilon", 4).stderr == quiet


def test_pictures(monkeypatch):
    drawn = []
    monkeypatch.setattr(plots, "save", lambda figure, path: drawn.append((figure, path)))
    found = document(*LATE, *HMTP, "--epsilon", 4, "--plot", "rounds.svg")
    [(figure, path)] = drawn
    axes = figure.axes
    assert path == Path("rounds.svg")
    line = axes[0].lines[1]
    assert line.get_xdata()[-1] == found["rounds"]
    assert line.get_ydata()[-1] == found["error"]
    assert axes[0].lines[0].get_ydata()[0] == found["base_rate"]
    assert "of late: fleet.csv" in axes[0].get_title()
    plots.training_rounds([HoldoutPoint(1, 0.5, 0.7)], 0.2, "a $1 title").savefig("one.png")


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (38_888_652, "38.9 MB")]
)
def test_volumes(count, text):
    assert volume(count) == text
    assert volume(10**12) == "1e+03 GB"


# Several labels, and networks


@pytest.mark.parametrize("target", ["minutes", "late", "city [x]"])
def test_a_network_has_the_objective_of_its_target(target):
    options = *FILE, "--target", target, "--task", "mlp", "--epsilon", 8, "--seed", 1
    found = document(*options, "--hidden", 4, "--hidden", 3, "--save", "model.json")
    model = saved()
    assert model.objective == {"minutes": "squared", "late": "logistic"}.get(target, "softmax")
    assert [each.to_document().get("units") for each in model.network.layers] == [4, None, 3, None]
    assert found["optimizer"] == "adam"
    assert found["model"] == model.fingerprint
    assert found["base_rate"] > 0
    usual = document(*options, "--save", "usual.json", "--activation", "relu")
    assert saved("usual.json").network.layers == (Dense(8), Activation("relu"))
    assert usual["reports"] == found["reports"]


def test_a_network_learns():
    """The seed is fixed; of 60 others, none has an error above a third of the base rate."""
    found = document(*FILE, "--target", "late", "--task", "mlp", "--epsilon", 8, "--seed", 1)
    assert found["error"] < found["base_rate"] / 2


def test_options_of_networks_are_for_networks():
    for options in (("--hidden", 3), ("--activation", "relu")):
        said = refused(*LATE, *HMTP, "--epsilon", 4, *options)
        assert "--hidden and --activation are for --task mlp" in said


def test_forecasts_of_several_labels_and_of_networks():
    ask = *FILE, "--target", "late", "--epsilon", 4, "--forecast", "--seed", 1
    several = document(*ask, "--task", "multiclass")
    assert several["score_noise"] < several["score_spread"]
    assert several["weights"]
    assert "weights should rise above the noise" in run(*ask, "--task", "multiclass").stdout
    network = document(*ask, "--task", "mlp")
    assert (network["score_noise"], network["weights"]) == (None, {})
    assert len(network["errors"]) == 5
    said = refused(*ask, "--task", "mlp", "--vehicle", "car")
    assert "leave out --vehicle" in said
    few = *ask, "--rows", 30
    assert "at least 20 rows with --holdout" in refused(*few, "--task", "mlp")
    assert document(*few, "--task", "logistic")["errors"] is None


def test_a_network_of_a_file():
    """At an epsilon where noise is small, convolutions tell gaits apart; the seed is fixed."""
    signals.write_rows(Path("gaits.csv"), signals.signals(3000, 1))
    Path("gaits.toml").write_text(signals.SCHEMA.to_toml())
    Path("network.json").write_text(signals.CONVOLUTION.to_json())
    rows = "train", "--data", "gaits.csv", "--schema", "gaits.toml", "--target", "gait"
    trained = *rows, "--network", "network.json", "--epsilon", 16, "--seed", 1
    found = document(*trained, "--save", "model.json")
    assert saved().layers == signals.CONVOLUTION
    assert found["task"] == "mlp"
    assert found["error"] < found["base_rate"] / 2
    assert "--network is the whole model" in refused(*trained, "--task", "mlp")
    said = refused(*rows, "--epsilon", 4)
    assert "give --task (linear, logistic, svm, multiclass, mlp), or" in said
    assert "error_of_fixed_features" not in found  # its signals are too short for them
    assert "--fixed is for --network" in refused(*trained, "--fixed", "fixed.json")
    other = Network((24,), (Dense(2),), objective("softmax").with_outputs(4))
    Path("network.json").write_text(other.to_json())
    said = " ".join(refused(*trained).split())
    assert "as many outputs as its target has scores, 3; got 4" in said


def test_a_network_of_signals_is_compared_with_fixed_features():
    """They need far fewer reports; the seed is fixed."""
    draw = np.random.default_rng(1)
    gaits, phases = draw.integers(0, 3, 3000), draw.uniform(0, 6.3, (3000, 1))
    waves = 0.3 * np.sin(phases + (1 + gaits[:, None]) * np.arange(40) / 3)
    samples = np.round(waves + draw.normal(0, 0.05, (3000, 40)), 4)
    schema = Schema((Number("x", -2, 2, size=40), signals.GAIT))
    labels = [signals.GAIT.categories[gait] for gait in gaits]
    names = [schema["x"].estimand.name_of(place) for place in range(40)]
    lines = [",".join([*map(str, row), label]) for row, label in zip(samples, labels, strict=True)]
    Path("gaits.csv").write_text("\n".join([",".join([*names, "gait"]), *lines]))
    Path("gaits.toml").write_text(schema.to_toml())
    trained = Network((1, 40), (Conv(4, 5), Activation("silu"), ChannelMean()), signals.SOFTMAX)
    Path("network.json").write_text(trained.to_json())
    rows = "train", "--data", "gaits.csv", "--schema", "gaits.toml", "--target", "gait"
    options = *rows, "--epsilon", 4, "--seed", 1, "--network"
    found = document(*options, "network.json", "--fixed", "fixed.json")
    assert found["error_of_fixed_features"] < 0.1 < 0.2 < found["error"]
    assert "take them instead" in " ".join(shown(*options, "network.json").split())
    again = document(*options, "fixed.json", "--save", "model.json")
    assert again["error"] == found["error_of_fixed_features"]
    assert again["optimizer"] == "noise-aware"
    assert "error_of_fixed_features" not in again
    model = saved()
    assert model.scaling is None  # the map of the survey is a fixed layer
    rows = {name: samples[:, place] for place, name in enumerate(names)} | {"gait": labels}
    assert np.mean(model.errors(rows)) < 0.1
