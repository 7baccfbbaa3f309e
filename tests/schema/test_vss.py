"""Signals as vehicles name them: drafts from a catalog, and names with points everywhere."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

import fedldp
from fedldp import Category, Number, Plan, Schema, vehicle
from fedldp.cli.app import fedldp as command
from fedldp.errors import DataWarning, DomainError, UnknownName, WireError
from fedldp.schema import units, vss

FIXTURES = Path(__file__).parents[1] / "fixtures/vss"
TOOLS = Path(__file__).parents[2] / ".venv-vss"
# Written for these tests, and exported with vss-tools 6.1.0: `make test-vss` does it again.
FLEET = (FIXTURES / "fleet.json").read_text()
CATALOG = vss.read(FLEET)

SPEED, LIGHTS = "Vehicle.Speed", "Vehicle.Cabin.Lights"


def draft(*paths, **bounds):
    return vss.template([CATALOG[path] for path in paths], bounds)


def filled(text):
    """Fill in every place of a draft."""
    for place, value in {
        'low = "?"': "low = 0",
        'high = "?"': "high = 100",
        'size = "?"': "size = 4",
        '["?", "other"]': '["a", "b", "other"]',
    }.items():
        text = text.replace(place, value)
    return Schema.from_toml(text)


# Drafts


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("Vehicle.Speed", {"low": -250, "high": 250, "unit": "km/h"}),
        ("Vehicle.Odometer", {"low": "?", "high": "?", "unit": "km"}),
        ("Vehicle.Cabin.Temperature", {"low": -40, "high": "?", "unit": "celsius"}),
        ("Vehicle.Cabin.Pressures", {"low": 0, "high": 500, "size": "?", "unit": "kPa"}),
        ("Vehicle.Cabin.Door.Left.Position", {"low": 0, "high": 100, "unit": "percent"}),
        (
            "Vehicle.IsMoving",
            {"categories": ["false", "true", "other"], "aliases": units.TRUTH_ALIASES},
        ),
        ("Vehicle.Brand", {"categories": ["?", "other"]}),
        ("Vehicle.Cabin.Lights", {"categories": ["OFF", "ON", "AUTO", "other"]}),
        ("Vehicle.Cabin.Gear", {"categories": ["-1", "0", "1", "2", "other"]}),
        ("Vehicle.Cabin.Mode", {"categories": ["UNKNOWN", "ECO", "SPORT"], "missing": "UNKNOWN"}),
        (
            "Vehicle.Cabin.Climate",
            {"categories": ["COOL", "HEAT", "other"], "aliases": {"1": "COOL", "2": "HEAT"}},
        ),
    ],
)
def test_a_signal_becomes_a_table(path, expected):
    text = draft(path)
    assert vss.toml.parse(text, "the draft") == {path: expected}
    assert filled(text).names == (path,)
    if "?" in json.dumps(expected):
        with pytest.raises(DomainError, match=f"fill in .* of '{path}'"):
            Schema.from_toml(text)


def test_what_the_catalog_says_is_shown():
    text = draft(SPEED, "Vehicle.Odometer", "Vehicle.Cabin.Temperature", "Vehicle.Cabin.Climate")
    for said in (
        "How fast the vehicle moves; negative in reverse. (sensor, float, km/h, catalog: -250",
        "(sensor, uint32, km, no bounds in the catalog",
        "(uint32 holds 0 to 4294967295)",
        "(sensor, int8, celsius, catalog: -40 to ?)",
        "names of numbers, COOL = 1, HEAT = 2",
    ):
        assert said in " ".join(text.replace("\n# ", " ").split())
    assert max(map(len, text.splitlines())) <= 100


def test_bounds_are_narrowed_not_widened():
    assert Schema.from_toml(draft(SPEED, **{SPEED: (0.0, 150.5)}))[SPEED] == Number(SPEED, 0, 150.5)
    for bounds, said in {
        (-251.0, 0.0): "within those of the catalog, -250 to 250; got -251 to 0",
        (0.0, 251.0): "within those of the catalog",
        (5.0, 5.0): "low must be below high; got 5 and 5",
        (float("nan"), 5.0): "low must be below high",
    }.items():
        with pytest.raises(DomainError, match=said):
            draft(SPEED, **{SPEED: bounds})
    temperature = "Vehicle.Cabin.Temperature"  # which has no upper bound
    assert (
        Schema.from_toml(draft(temperature, **{temperature: (-20.0, 50.0)}))[temperature].high == 50
    )
    with pytest.raises(DomainError, match="is not a number and has no bounds"):
        draft(LIGHTS, **{LIGHTS: (0.0, 1.0)})


@pytest.mark.parametrize(
    ("path", "kind", "said"),
    [
        ("Vehicle.Sped", UnknownName, r"no signal 'Vehicle.Sped' \(did you mean 'Vehicle.Speed'"),
        ("Vehicle.Cabin.Door", DomainError, "is a branch: name its signals, such as Vehicle.Cabin"),
        ("Vehicle", DomainError, "is a branch"),
        ("Vehicle.Cabin.Codes", DomainError, "has the type 'string\\[\\]'"),
    ],
)
def test_signals_that_cannot_be_asked_for(path, kind, said):
    with pytest.raises(kind, match=said):
        draft(path)


@pytest.mark.parametrize("text", ["", "[]", "7", "{}", '{"Vehicle": 7}', "[" * 10**5, '{"a": {}}'])
def test_an_invalid_catalog(text):
    with pytest.raises(WireError, match=r"not a VSS catalog in JSON: .*vspec export json"):
        vss.read(text)


@pytest.mark.parametrize(
    "entries",
    [
        {"datatype": "float", "min": "low"},
        {"datatype": "float", "max": [1]},
        {"datatype": "float", "min": float("nan")},
        {"datatype": "float", "max": 10**400},
        {"datatype": "string", "allowed": "OFF"},
        {"datatype": "string", "allowed": []},
        {"datatype": "string", "allowed": [None]},
        {"datatype": "string", "allowed": [float("nan")]},
        {"datatype": "string", "allowed": [["a"]]},
        {"datatype": "string", "enum": 7},
        {"datatype": "Types.Position"},
        {"datatype": None},
        {"datatype": 7},
    ],
)
def test_entries_that_are_not_what_they_should_be(entries):
    catalog = vss.read(json.dumps({"Vehicle": {"children": {"X": entries}}}))
    with pytest.raises(DomainError, match=r"Vehicle\.X"):
        vss.template([catalog["Vehicle.X"]], {})


TEXT = st.text(max_size=30)


@given(TEXT, TEXT, TEXT, st.lists(st.one_of(TEXT, st.integers()), max_size=5))
def test_texts_of_a_catalog_cannot_leave_their_place(name, description, unit, allowed):
    """No text of a catalog ends its comment or its quotes."""
    number = {"datatype": "float", "description": description, "unit": unit, "min": 0, "max": 1}
    label = {"datatype": "string", "description": description, "allowed": [*allowed, "last"]}
    tree = {"Vehicle": {"children": {f"{name}1": number, f"{name}2": label}}}
    catalog = vss.read(json.dumps(tree))
    paths = [f"Vehicle.{name}1", f"Vehicle.{name}2"]
    text = vss.template([catalog[path] for path in paths], {})
    tables = vss.toml.parse(text, "the draft")
    assert list(tables) == paths
    assert tables[paths[0]].keys() - {"unit"} == {"low", "high"}
    assert tables[paths[1]].keys() <= {"categories", "missing"}


# Names with points


def test_toml_with_quotes_or_without():
    quoted = f'["{SPEED}"]\nlow = 0\nhigh = 200\n["{LIGHTS}"]\ncategories = ["OFF", "ON"]\n'
    plain = quoted.replace('["V', "[V").replace('s"]\nc', "s]\nc").replace('d"]\nl', "d]\nl")
    assert plain.startswith("[Vehicle.Speed]\nlow")
    schema = Schema.of(**{SPEED: (0, 200), LIGHTS: ["OFF", "ON"]})
    for text in (quoted, plain, schema.to_toml()):
        assert Schema.from_toml(text) == schema
    inline = "Vehicle = {Speed = {low = 0, high = 200}}"
    assert Schema.from_toml(inline).names == (SPEED,)
    with pytest.raises(DomainError, match=r"fill in low of 'Vehicle\.Speed'"):
        Schema.from_toml('[Vehicle.Speed]\nlow = "?"\nhigh = 1')
    for wrong in (
        "[Vehicle]\nlow = 0\nhigh = 1\n[Vehicle.Speed]\nlow = 0\nhigh = 1",
        '[Vehicle.Speed]\nlow = 0\nhigh = 1\n["Vehicle.Speed"]\nlow = 0',
        "[Vehicle.Speed]",
        "[Vehicle]",
    ):
        with pytest.raises(DomainError):
            Schema.from_toml(wrong)


SCHEMA = Schema((Number(SPEED, 0, 200), Category(LIGHTS, ["OFF", "ON", "AUTO", "other"])))
ROWS = [{SPEED: 10.0 * (i % 15), LIGHTS: ["OFF", "ON"][i % 2]} for i in range(600)]
DATA = {
    "dicts": ROWS,
    "columns": {name: [row[name] for row in ROWS] for name in SCHEMA},
    "pandas": pd.DataFrame(ROWS),
    "polars": pl.DataFrame(ROWS),
    "arrow": pa.Table.from_pylist(ROWS),
}


@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
def test_from_data_to_estimates(data):
    plan = Plan.from_json(Plan(SCHEMA, 4.0).to_json())
    report = plan.report(data, fedldp.source(1), strict=True)
    assert report == plan.report(ROWS, fedldp.source(1))
    estimate = plan.parse(report).estimate()
    assert list(estimate) == [SPEED, LIGHTS]
    assert abs(estimate[SPEED].mean - np.mean([row[SPEED] for row in ROWS])) < 40
    assert Schema.infer(data, **{SPEED: (0, 200), LIGHTS: ["OFF", "ON"]}).names == (SPEED, LIGHTS)


def test_a_small_vehicle_answers():
    plan = Plan(SCHEMA, 4.0)
    ready = vehicle.Plan(plan.to_json(), 4.0)
    assert not ready.check(ROWS[0])
    assert plan.parse(ready.report(ROWS[0])).reports == 1


# The command line


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("vss.json").write_text(FLEET)
    return tmp_path


def run(*arguments, code=0, **options):
    result = CliRunner().invoke(command, [str(each) for each in arguments], **options)
    assert result.exit_code == code, (result.output, result.exception)
    return result


@pytest.mark.usefixtures("folder")
def test_a_fleet_of_signals_on_the_command_line():
    signals = SPEED, LIGHTS, "Vehicle.Cabin.Temperature"
    narrowed = "--bounds", SPEED, 0, 200, "--bounds", "Vehicle.Cabin.Temperature", -20, 50
    text = run("schema", "--vss", "vss.json", *signals, *narrowed).stdout
    Path("fleet.toml").write_text(text)
    rows = [{**row, "Vehicle.Cabin.Temperature": 20} for row in ROWS]
    parquet.write_table(pa.Table.from_pylist(rows), "fleet.parquet")
    pl.DataFrame(rows).write_csv("fleet.csv")
    options = "--schema", "fleet.toml", "--epsilon", 4
    for data in ("fleet.csv", "fleet.parquet"):
        found = json.loads(run("collect", data, *options, "--json", "--strict").stdout)
        assert [each["name"] for each in found["estimates"]][:2] == [SPEED, f"{LIGHTS} = OFF"]
        assert Schema.from_toml(filled(run("schema", data).stdout).to_toml()).names == signals
    run("plan", *options, "-o", "plan.json")
    run("ledger", "init", "ledger.db")
    vehicle_options = "--cap", 4, "--ledger", "ledger.db", "-o", "report.bin"
    run("report", "plan.json", *vehicle_options, "--strict", input=json.dumps(rows[0]))
    run("tally", "plan.json", "report.bin", "-o", "tally.json")
    assert SPEED in run("estimate", "plan.json", "tally.json").stdout
    task = "--task", "logistic", "--target", "Vehicle.Cabin.Lights", "--max-rounds", 2
    Path("two.toml").write_text(text.replace(', "AUTO", "other"]', "]"))
    run("train", "--data", "fleet.csv", "--schema", "two.toml", "--epsilon", 4, *task, "--json")


@pytest.mark.usefixtures("folder")
def test_bounds_are_asked_for():
    arguments = "schema", "--vss", "vss.json", "--ask", SPEED, LIGHTS, "Vehicle.Odometer"
    answers = "-300\n100\n0\n\n0\n500000\n"  # too low, then the catalog's high; then no defaults
    result = run(*arguments, input=answers)
    schema = Schema.from_toml(result.stdout)
    assert (schema[SPEED].low, schema[SPEED].high) == (0, 250)
    assert (schema["Vehicle.Odometer"].low, schema["Vehicle.Odometer"].high) == (0, 500_000)
    assert "Vehicle.Speed (sensor, float, km/h, catalog: -250 to 250)" in result.stderr
    assert "low [-250]" in result.stderr
    assert "within those of the catalog" in result.stderr
    quiet = run(*arguments, "--bounds", SPEED, 0, 9, "--bounds", "Vehicle.Odometer", 0, 9)
    assert quiet.stderr == ""


def write(tree, name="vss.json"):
    Path(name).write_text(json.dumps(tree))
    return name


FLAT = {
    "Vehicle.Speed": {"datatype": "float", "min": 0, "max": 250},
    "Vehicle.Row1.Left.IsOpen": {"datatype": "boolean"},
    "Vehicle.Row1.Right.IsOpen": {"datatype": "boolean"},
    "Vehicle.Row2.Left.IsOpen": {"datatype": "boolean"},
    "Vehicle.Row2.Left.Angle": {"datatype": "float"},
    "Vehicle.VIN": {"datatype": "string"},
    "Vehicle.Warnings": {"datatype": "string[]", "allowed": ["OIL", "BELT"]},
    "Vehicle.Codes": {"datatype": "string[]"},
}


@pytest.mark.usefixtures("folder")
def test_patterns_name_instances():
    draft = lambda *names: vss.toml.parse(run("schema", "--vss", write(FLAT), *names).stdout, "it")  # noqa: E731
    assert list(draft("Vehicle.*.Left.IsOpen")) == [
        "Vehicle.Row1.Left.IsOpen", "Vehicle.Row2.Left.IsOpen"
    ]  # fmt: skip
    assert len(draft("Vehicle.Row*.*.IsOpen", "Vehicle.Row1.Left.IsOpen")) == 3
    assert "Vehicle.Codes" not in draft("Vehicle.*")  # whose values cannot be asked for
    bounded = draft("Vehicle.Row*.*.*", "--bounds", "Vehicle.*.*.Angle", "0", "90")
    assert bounded["Vehicle.Row2.Left.Angle"] == {"low": 0, "high": 90}
    result = run("schema", "--vss", write(FLAT), "Vehicle.Row3.*.IsOpen", code=1)
    assert "no signal 'Vehicle.Row3.*.IsOpen'" in str(result.exception)


@pytest.mark.usefixtures("folder")
def test_missing_bounds_and_identifying_signals_are_listed():
    names = "Vehicle.Speed", "Vehicle.Row2.Left.Angle", "Vehicle.VIN"
    said = run("schema", "--vss", write(FLAT), *names).stderr
    assert "Warning: Vehicle.VIN: such values tell who or where somebody is" in said
    assert "1 of 3 signals have no bounds in the catalog: Vehicle.Row2.Left.Angle." in said


@pytest.mark.usefixtures("folder")
def test_catalogs_in_yaml():
    yaml = pytest.importorskip("yaml")
    Path("vss.yaml").write_text(yaml.safe_dump(FLAT))
    assert run("schema", "--vss", "vss.yaml", "Vehicle.*").stdout == (
        run("schema", "--vss", write(FLAT), "Vehicle.*").stdout
    )
    fixture = FIXTURES / "fleet.vspec"  # in which instances are not expanded
    assert Schema.from_toml(run("schema", "--vss", fixture, "Vehicle.IsMoving").stdout)
    for text in ("a: [", "- 1", "1: {datatype: float}"):
        Path("vss.yaml").write_text(text)
        result = run("schema", "--vss", "vss.yaml", "Vehicle.*", code=1)
        assert "not a VSS catalog in YAML" in str(result.exception)


@pytest.mark.parametrize("cell", ["True", "1", "yes", 1, True, 1.0])
def test_booleans_match(cell):
    schema = Schema.from_toml(draft("Vehicle.IsMoving"))
    assert schema.rows([{"Vehicle.IsMoving": cell}]).matrix().item() == 1
    assert schema.check([{"Vehicle.IsMoving": cell}]).clean


@pytest.mark.parametrize("cell", [2, "2", 2.0, np.uint8(2), "HEAT"])
def test_names_of_numbers_match(cell):
    name = "Vehicle.Cabin.Climate"
    schema = Schema.from_toml(draft(name))
    assert schema.rows([{name: cell}]).matrix().item() == 1
    assert schema.rows({name: np.array([2, 1], np.uint8)}).matrix().tolist() == [[1], [0]]
    assert schema.check([{name: 3}])[name].unknown == 1
    again = Schema.from_toml(schema.to_toml())
    assert again.rows([{name: cell}]).matrix().item() == 1
    assert "aliases" not in Plan(schema, 1.0).to_json()


def test_aliases_are_checked():
    for wrong in ({"1": "COLD"}, ["COOL"], {"1": 2}):
        with pytest.raises(DomainError, match="aliases of 'x' must be a table"):
            Schema.of(x={"categories": ["COOL", "HEAT"], "aliases": wrong})


def test_lists_of_allowed_texts():
    catalog = vss.read(json.dumps(FLAT))
    schema = Schema.from_toml(vss.template([catalog["Vehicle.Warnings"]], {}))
    rows = [{"Vehicle.Warnings": each} for each in (["BELT"], "OIL", ["OIL", "BELT"], [])]
    assert schema.rows(rows).matrix()[:2].tolist() == [[1], [0]]
    assert schema.check(rows)["Vehicle.Warnings"].unknown == 2


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["vss.json", "other.csv"], 2, "give one file, or --vss and signals"),
        (["vss.json", "--bounds", "a", "0", "1"], 2, "give --vss too"),
        (["gone.csv"], 2, "does not exist"),
        ([], 2, "Missing argument"),
        (["--vss", "gone.json", SPEED], 2, "does not exist"),
        (["--vss", "vss.json", SPEED, "--bounds", "Vehicle.Spee", "0", "1"], 1, "did you mean"),
    ],
)
def test_commands_that_cannot_be(arguments, code, said):
    result = run("schema", *arguments, code=code)
    assert said in " ".join(f"{result.output} {result.exception}".replace("│", "").split())


# With what COVESA and others publish: `make test-vss` installs it.


@pytest.mark.vss
def test_the_fixture_is_what_the_tools_export(tmp_path):
    files = "-s", "fleet.vspec", "-u", "units.yaml", "-q", "quantities.yaml"
    program = TOOLS / "bin/vspec"
    export = [program, "export", "json", *files, "--pretty", "-o", tmp_path / "fleet.json"]
    subprocess.run(export, cwd=FIXTURES, check=True, capture_output=True)
    assert json.loads((tmp_path / "fleet.json").read_text()) == json.loads(FLEET)


@pytest.mark.vss
def test_the_catalog_of_vss_2():
    [path] = TOOLS.glob("lib/python*/site-packages/vss/tree/vss_release_2.0.json")
    catalog = vss.read(path.read_text("utf-8"))
    assert len(catalog.signals) == 1224
    assert catalog[SPEED].bounds == (-250, 250)
    assert catalog["Vehicle.Chassis.SteeringWheel.Angle"].bounds == (None, None)
    refused, names = [], []
    for name, signal in catalog.signals.items():
        try:
            text = vss.template([signal], {})
        except DomainError:
            refused.append(name)
            continue
        assert filled(text).names == (name,)
        names.append(name)
    assert refused == ["Vehicle.OBD.DTCList"]  # a list of texts
    whole = filled(vss.template([catalog[name] for name in names], {}))
    plan = Plan(whole, 4.0)
    with pytest.warns(DataWarning, match=r"Vehicle\.VersionVSS\.Major: 3 of 3"):
        report = plan.report([{}] * 3, fedldp.source(1))
    assert plan.parse(report).reports == 3
