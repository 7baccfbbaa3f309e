"""A new kind of attribute is one class and one registry entry: from a schema to an estimate."""

import json
import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import pytest
from click.testing import CliRunner
from spellings import flat_plan

import fedldp
from fedldp import Category, Plan, Schema, vehicle
from fedldp.cli.app import fedldp as command
from fedldp.datasets.files import from_file
from fedldp.errors import DataWarning, WireError
from fedldp.learn.features import Features
from fedldp.learn.model import Model
from fedldp.schema.attributes import ATTRIBUTES, Labelled
from fedldp.schema.attributes.readers import NumberReader

EDGES = [0, 30, 60, 130]
ROWS = {"speed": [10.0] * 20_000 + ["45"] * 10_000 + [None] * 10_000, "age": [31] * 40_000}


@final
@dataclass(frozen=True)
class Bins(Labelled):
    """A number of which only the bin is asked for. It is here to test the protocol."""

    name: str
    edges: tuple[float, ...]

    declared_as = "cuts"
    plan_format = vehicle.PLAN_FORMAT_2
    missing_input = 0.0

    @classmethod
    def from_shorthand(cls, name, given, size):
        return cls(name, tuple(given.tolist())) if isinstance(given, np.ndarray) else None

    @classmethod
    def from_table(cls, name, table):
        return cls(name, tuple(table["cuts"])) if table.keys() == {"cuts"} else None

    def options(self):
        return {"cuts": list(self.edges)}

    @cached_property
    def labels(self):
        return tuple(f"{low}-{high}" for low, high in zip(self.edges, self.edges[1:], strict=False))

    @property
    def readers(self):
        return (NumberReader(self.name, replacement=self.labels[0]),)

    def join(self, columns):
        places = np.searchsorted(self.edges[1:-1], columns[0], side="right")
        return np.where(np.isnan(columns[0]), np.nan, places)


@pytest.fixture
def schema(monkeypatch):
    monkeypatch.setitem(ATTRIBUTES, "bins", Bins)
    return Schema.of(speed=np.array(EDGES), age=(0, 100))


def close(found, wanted):
    """Whether each is within 4.9 standard errors: by chance it is not in 1 of 10^6 cases."""
    return np.all(np.abs(found.values - wanted) < 4.9 * np.asarray(found.stderr))


def test_it_is_declared_in_toml_and_in_json(schema):
    assert schema["speed"] == Bins("speed", tuple(EDGES))
    assert Schema.from_toml(schema.to_toml()) == schema
    document = json.loads(json.dumps(schema.to_document()))
    assert document[0] == {"name": "speed", "cuts": EDGES}
    assert Schema.from_document(document) == schema
    ATTRIBUTES.pop("bins")
    with pytest.raises(WireError, match="needs low and high"):
        Schema.from_document(document)


def test_its_values_are_read_and_counted(schema):
    matrix, quality = schema.rows({"speed": [10, "60", 999, None, "fast"], "age": [1] * 5}).read()
    np.testing.assert_equal(matrix[:, 0], [0, 2, 2, np.nan, np.nan])
    speed = quality["speed"]
    assert (speed.missing, speed.unreadable, speed.unknown, speed.clipped) == (1, 1, 0, 0)
    assert speed.example == "row 3: the value is missing"
    assert "replaced by 0-30" in str(speed)
    assert schema["speed"].readers[0].fault("fast") == "'fast' is not a number"


@pytest.mark.parametrize("options", [{}, {"strategy": "paper"}, {"strategy": "cube"}])
def test_a_plan_takes_it_from_rows_to_an_estimate(schema, options):
    plan = flat_plan(schema, 4.0, **options)
    assert plan.to_json().startswith('{"epsilon":"4.0","format":"fedldp plan 2"')
    assert Plan.from_json(plan.to_json()) == plan
    with pytest.warns(DataWarning, match="speed: 10,000 of 40,000"):
        packet = plan.report(ROWS, fedldp.source(1)).to_bytes()
    tally = plan.parse(packet)
    assert tally.plausibility()
    estimate = tally.estimate()
    assert estimate["speed"].categories == ("0-30", "30-60", "60-130")
    assert close(estimate["speed"], [0.75, 0.25, 0])
    assert close(estimate["age"], 31)
    assert "speed=0-30 0.7" in repr(estimate)
    assert close(fedldp.combine_estimates(estimate, estimate)["speed"], [0.75, 0.25, 0])
    assert 0 < plan.expected_error(40_000) < 0.01
    assert "0-30, 30-60, 60-130" in plan._repr_html_()
    # A vehicle runs no code that it does not know: the file of a vehicle refuses the plan.
    with pytest.raises(ValueError, match="refused"):
        vehicle.Plan(plan.to_json(), 4.0)


def test_a_model_sees_its_labels(schema):
    features = Features(schema, reference="none")
    assert features.names == ("speed=0-30", "speed=30-60", "speed=60-130", "age", "1")
    rows = [{"speed": 45, "age": 75}]
    assert features.encode(schema.rows(rows).matrix()).dense().tolist() == [[0, 1, 0, 0.5, 1]]
    sold = Category("sold", ["no", "yes"])
    model = Model("logistic", schema, sold, [0, 1, 0, 0, 0], reference="none")
    assert model.predict(rows).tolist() == ["yes"]
    assert Model.from_json(model.to_json()) == model


def test_files_and_commands_take_it(schema, tmp_path):
    data, columns = tmp_path / "fleet.csv", tmp_path / "fleet.toml"
    lines = [f"{speed or ''},{age}" for speed, age in zip(*ROWS.values(), strict=True)]
    data.write_text("\n".join(["speed,age", *lines]))
    columns.write_text(schema.to_toml())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        dataset = from_file(data, schema)
    assert dataset.columns[0].dtype == np.uint8
    assert dataset.columns[0].tolist() == [0] * 20_000 + [1] * 10_000 + [0] * 10_000
    arguments = [data, "--schema", columns, "--epsilon", 4, "--seed", 1, "--json"]
    done = CliRunner().invoke(command, ["collect", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0
    found = json.loads(done.stdout)["estimates"]
    assert [line["name"] for line in found] == [
        "speed = 0-30",
        "speed = 30-60",
        "speed = 60-130",
        "age",
    ]
    assert [line["truth"] for line in found] == [0.5, 0.25, 0.0, 31.0]
    assert [line["used"] for line in found] == [0.75, 0.25, 0.0, 31.0]
    assert [line["replaced"] for line in found] == [0.25, 0.25, 0.25, 0.0]
