"""Predicting on the command line."""

import csv
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet
from trips import FILE, LATE, document, prepare, refused, run, saved, table, write

from fedldp.errors import DataWarning
from fedldp.schema import frames


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prepare()


@pytest.fixture
def model():
    run(*LATE, "--mechanism", "none", "--save", "model.json")
    return saved()


def test_predictions_as_csv(model):
    rows = table(100)
    rows[3]["city [x]"], rows[4]["late"] = "Paris", ""
    frame = pd.DataFrame(rows)
    write(rows, "new.csv")
    result = run("predict", "model.json", "new.csv")
    told = list(csv.DictReader(result.stdout.splitlines()))
    with pytest.warns(DataWarning, match="1 of 100 .* unknown, replaced by 'Oslo'"):
        wanted = model.predict(frame).tolist()
    with pytest.warns(DataWarning, match="unknown, replaced by 'Oslo'"):
        error_of_model = model.error(frame)
    assert told == [
        {key: str(value) for key, value in row.items()} | {"prediction": each}
        for row, each in zip(rows, wanted, strict=True)
    ]
    assert set(wanted) == {"no", "yes"}
    *replaced, error = result.stderr.splitlines()
    assert error == f"The error on 99 rows with the target is {error_of_model:.4g}."
    assert replaced[0] == "new.csv: 100 rows: 1 value is clipped or replaced."
    assert "row 3: 'Paris' is not one of the 3 categories" in replaced[1]
    result = run("predict", "model.json", "new.csv", "-o", "told.csv")
    assert result.stdout == ""
    assert list(csv.DictReader(Path("told.csv").read_text().splitlines())) == told
    assert "Wrote told.csv" in result.stderr


def test_predictions_of_numbers():
    options = *FILE, "--target", "minutes", "--task", "linear", "--mechanism", "none"
    run(*options, "--save", "model.json")
    rows = table(50)
    parquet.write_table(pa.Table.from_pylist(rows), "new.parquet")
    found = document("predict", "model.json", "new.parquet")
    frame = pd.DataFrame(rows)
    assert found["predictions"] == saved().predict(frame).tolist()
    assert found["error"] == saved().error(frame)
    assert (found["rows"], found["rows_with_target"], found["target"]) == (50, 50, "minutes")
    told = csv.DictReader(run("predict", "model.json", "new.parquet").stdout.splitlines())
    assert [row["prediction"] for row in told] == [str(each) for each in found["predictions"]]


@pytest.mark.usefixtures("model")
def test_predictions_without_the_target():
    rows = [
        {key: row[key] for key in ("speed", "city [x]", "minutes", "tyres")} for row in table(9)
    ]
    write(rows, "new.csv")
    assert run("predict", "model.json", "new.csv").stderr == ""
    found = document("predict", "model.json", "new.csv")
    assert (found["error"], found["rows"], found["rows_with_target"]) == (None, 9, 0)


@pytest.mark.usefixtures("model")
def test_predictions_in_chunks(monkeypatch):
    write(table(100), "new.csv")
    whole = run("predict", "model.json", "new.csv").stdout
    original = frames.read
    monkeypatch.setattr(frames, "read", lambda path: original(path, rows=7))
    assert run("predict", "model.json", "new.csv").stdout == whole


@pytest.mark.usefixtures("model")
def test_what_cannot_be_predicted():
    assert "no column 'speed'" in _predicted("car,late\n1,no\n")
    assert "expected at least one row" in _predicted("car,late\n")
    header = "speed,city [x],minutes,tyres,prediction\n"
    assert "must not have a column 'prediction'" in _predicted(header + "1,Oslo,1,old,9\n")
    Path("model.json").write_text("{}")
    error = refused("predict", "model.json", "fleet.csv")
    assert error.startswith("model.json: not a 'fedldp model 1'")


def _predicted(text):
    Path("new.csv").write_text(text)
    error = refused("predict", "model.json", "new.csv", "-o", "told.csv")
    assert not Path("told.csv").exists()
    return error


def test_probabilities_of_several_labels():
    # The city follows from the minutes and the kilometres only a little: this is about the columns.
    options = *FILE, "--target", "city [x]", "--task", "multiclass", "--epsilon", 8, "--seed", 1
    run(*options, "--save", "model.json")
    model = saved()
    rows = table(40)
    write(rows, "new.csv")
    result = run("predict", "model.json", "new.csv", "--probabilities")
    told = list(csv.DictReader(result.stdout.splitlines()))
    wanted = model.probabilities(pd.DataFrame(rows))
    names = [f"probability of {label}" for label in model.target.categories]
    found = [[float(row[name]) for name in names] for row in told]
    assert found == wanted.tolist()
    assert [row["prediction"] for row in told] == model.predict(pd.DataFrame(rows)).tolist()
    found = document("predict", "model.json", "new.csv", "--probabilities")
    assert found["labels"] == list(model.target.categories)
    assert found["probabilities"] == wanted.tolist()
    assert "labels" not in document("predict", "model.json", "new.csv")
    write([row | {names[1]: 1} for row in rows], "taken.csv")
    said = refused("predict", "model.json", "taken.csv", "--probabilities")
    assert f"must not have a column '{names[1]}'" in said


def test_probabilities_of_two_labels(model):
    rows = table(10)
    write(rows, "new.csv")
    found = document("predict", "model.json", "new.csv", "--probabilities")
    assert found["probabilities"] == model.probabilities(pd.DataFrame(rows)).tolist()


def test_a_number_has_no_probabilities():
    run(*FILE, "--target", "minutes", "--task", "linear", "--epsilon", 8, "--save", "model.json")
    write(table(3), "new.csv")
    assert "not probabilities" in refused("predict", "model.json", "new.csv", "--probabilities")
