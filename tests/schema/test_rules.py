"""Several rows of a vehicle become one, by rules: in the library, in vehicle.py and in agents."""

import json
import random
import warnings
from itertools import product

import numpy as np
import pytest
from click.testing import CliRunner

import fedldp
from fedldp import (
    Angle,
    BinnedNumber,
    Category,
    Ledger,
    Number,
    OptionalNumber,
    Plan,
    Schema,
    Vehicle,
    Within,
    vehicle,
)
from fedldp.budget.vehicle import tell_nobody
from fedldp.cli.app import fedldp as command
from fedldp.errors import DataWarning, DomainError, WireError
from fedldp.schema.attributes import ATTRIBUTES
from fedldp.schema.attributes.open import HashedCategory, WholeNumbers

RULES = ("random", "mean", "last", "maximum", "count", "any")
NUMBERS = [3.5, 0.1, 0.2, "7", 1e9, -4, float("inf"), None, "", "old", float("nan"), True]
LABELS = ["a", "b", "other", "missing", "false", "true", True, False, 2, "2", 99, None, "", "bad"]
LISTS = [[1.5, 2.5], [9.0, None], ["x", 1], [1.0], None, 7, [0.1, 0.2], [0.3, 0.7]]


def kinds(rule):
    """Return an attribute of each kind with a rule, and cells of its column."""
    declared = {"rule": rule}
    return {
        "number": (Number("x", -1, 8, **declared), NUMBERS),
        "vector": (Number("x", -1, 2, size=2, **declared), LISTS),
        "bounded vector": (Number("x", -2, 2, size=2, length=2, **declared), LISTS),
        "optional number": (OptionalNumber("x", -1, 8, 5, **declared), NUMBERS),
        "bins": (BinnedNumber("x", (0, 2, 4, 8), **declared), NUMBERS),
        "optional bins": (BinnedNumber("x", (0, 2, 8), optional=True, **declared), NUMBERS),
        "angle": (Angle("x", 24, 6, **declared), NUMBERS),
        "optional angle": (Angle("x", 24, 6, optional=True, **declared), NUMBERS),
        "category": (Category("x", ["a", "b", "2", "other"], **declared), LABELS),
        "truth": (Category("x", ["false", "true"], **declared), LABELS),
        "truth or other": (Category("x", ["false", "other", "true"], **declared), LABELS),
        "optional category": (Category("x", ["a", "2"], optional=True, **declared), LABELS),
        "optional with other": (Category("x", ["other", "2"], optional=True, **declared), LABELS),
        "whole numbers": (WholeNumbers("x", 0, 4, **declared), [*NUMBERS, 3, 4, "2"]),
        "hashed": (HashedCategory("x", 8, **declared), LABELS),
    }


EXPECTED = {  # besides "random", which all have
    **dict.fromkeys(["number", "optional number"], "mean last maximum count"),
    **dict.fromkeys(["bins", "optional bins"], "mean last maximum count"),
    **dict.fromkeys(["vector", "bounded vector"], "mean last maximum"),
    **dict.fromkeys(["angle", "optional angle", "hashed"], "last"),
    **dict.fromkeys(["truth", "truth or other"], "last maximum count any"),
    **dict.fromkeys(["category", "whole numbers"], "last maximum count"),
    **dict.fromkeys(["optional category", "optional with other"], "last count"),
}  # fmt: skip
VALID = [
    (kind, rule) for kind, rule in product(EXPECTED, RULES)
    if rule in ("random", *EXPECTED[kind].split())
]  # fmt: skip


def fleet(cells, seed, vehicles=40):
    """Return rows of some vehicles: none has no row, and several rows have no usable value."""
    drawn = random.Random(seed)
    owners = [*range(vehicles), *(drawn.randrange(vehicles) for _ in range(4 * vehicles))]
    drawn.shuffle(owners)
    return owners, [{"x": drawn.choice(cells)} if drawn.random() < 0.95 else {} for _ in owners]


def plan_of(attribute):
    return Plan(Schema((attribute,)), 2.0)


def by_library(plan, rows, owners, words):
    """Return the inputs of each vehicle, if these words choose random rows."""
    places = np.array(words) / 2.0**64
    matrix, _ = plan.schema.rows(rows, several=True).one_each(np.array(owners), lambda _: places)
    [attribute] = plan.schema.attributes
    return np.atleast_2d(attribute.inputs.of(matrix)).reshape(len(words), -1)


def rows_by_owner(rows, owners):
    return [
        [row for row, owner in zip(rows, owners, strict=True) if owner == number]
        for number in range(max(owners) + 1)
    ]


def test_no_kind_of_attribute_is_forgotten():
    """Of two attributes within each other, the columns have the rules."""
    assert kinds("random").keys() == EXPECTED.keys()
    kinds_tested = {type(attribute) for attribute, _ in kinds("random").values()}
    assert kinds_tested | {Within} == set(ATTRIBUTES.values())


def test_every_kind_has_the_rules_that_fit():
    for kind, rule in product(EXPECTED, RULES):
        attribute, _ = kinds(rule)[kind]
        if (kind, rule) in VALID:
            assert Schema((attribute,))["x"].rule == rule
        else:
            with pytest.raises(DomainError, match="rule of 'x' must be one of random"):
                Schema((attribute,))


@pytest.mark.parametrize(("kind", "rule"), VALID)
@pytest.mark.parametrize("seed", range(4))
def test_library_and_vehicle_make_the_same_row(kind, rule, seed):
    attribute, cells = kinds(rule)[kind]
    plan = plan_of(attribute)
    small = vehicle.Plan(plan.to_json(), 2)
    owners, rows = fleet(cells, seed)
    drawn = random.Random(seed)
    words = [drawn.getrandbits(52) << 12 for _ in range(max(owners) + 1)]  # a float holds them
    expected = [
        small.inputs(small.one_row(mine, word))
        for mine, word in zip(rows_by_owner(rows, owners), words, strict=True)
    ]
    np.testing.assert_array_equal(by_library(plan, rows, owners, words), expected)


@pytest.mark.parametrize(("kind", "rule"), VALID)
def test_one_row_is_used_as_it_is(kind, rule):
    """A single row is what the rules have made: by a program, or on a device in C."""
    attribute, cells = kinds(rule)[kind]
    plan = plan_of(attribute)
    plain = plan_of(kinds("random")[kind][0])
    small = vehicle.Plan(plan.to_json(), 2)
    rows = [{"x": cell} for cell in cells]
    np.testing.assert_array_equal(plan.schema.rows(rows).matrix(), plain.schema.rows(rows).matrix())
    for row in rows:
        assert small.one_row(row, 5) is row


@pytest.mark.parametrize(
    ("kind", "rule", "cells", "expected"),
    [
        ("number", "mean", [1, 1e9, None, "4"], (1 + 8 + 4) / 3),  # of clipped values
        ("number", "last", [1, 2, None], 2),
        ("number", "maximum", [1, 5, "x"], 5),
        ("number", "count", [1, "anything", None, ""], 2),
        ("number", "count", [None], 0),
        ("number", "mean", [None, "x"], 3.5),  # the public default
        ("bins", "mean", [1, 6], 1),
        ("truth", "any", [False, "true", None], 1),
        ("truth", "any", [False, None], 0),
        ("truth or other", "any", ["other", "x"], 1),
        ("category", "maximum", ["a", "b", "a"], 1),  # later in the list
        ("category", "count", ["x", 5], 2),
        ("whole numbers", "count", [1] * 9, 5),  # other
        ("optional category", "last", ["a", "z", None], 2),  # other
        ("optional category", "last", [None, ""], 3),  # missing
    ],
)
def test_what_a_rule_makes(kind, rule, cells, expected):
    plan = plan_of(kinds(rule)[kind][0])
    small = vehicle.Plan(plan.to_json(), 2)
    rows = [{"x": cell} for cell in cells]
    [attribute] = plan.schema.attributes
    matrix, _ = plan.schema.rows(rows, several=True).one_each([0] * len(rows), np.zeros)
    [read] = attribute.estimand.from_unit(attribute.inputs.of(matrix))[0].ravel()[:1]
    assert read == pytest.approx(expected)
    assert small.inputs(small.one_row(rows, 0)) == attribute.inputs.of(matrix).ravel().tolist()


def test_vehicles_without_rows_answer():
    for kind, rule in VALID:
        plan = plan_of(kinds(rule)[kind][0])
        small = vehicle.Plan(plan.to_json(), 2)
        nothing = {"x": 0} if rule == "count" else {}
        assert small.inputs(small.one_row([], 7)) == small.inputs(nothing)


# The plan


@pytest.mark.parametrize(("kind", "rule"), VALID)
def test_a_plan_with_rules(kind, rule):
    attribute, _ = kinds(rule)[kind]
    plan, plain = plan_of(attribute), plan_of(kinds("random")[kind][0])
    assert Plan.from_json(plan.to_json()) == plan
    assert Schema.from_toml(plan.schema.to_toml()) == plan.schema
    if rule == "random":  # which nobody needs to declare
        assert plan.to_json() == plain.to_json()
    else:
        assert json.loads(plan.to_json())["schema"][0]["rule"] == rule
        assert json.loads(plan.to_json())["format"] == vehicle.PLAN_FORMAT_2
        assert f"rule={rule!r}" in repr(attribute)


@pytest.mark.parametrize(
    "change",
    [{"rule": "any"}, {"rule": "men"}, {"rule": ["mean"]}, {"rule": 1}, {"rule": "random"}],
)
def test_rules_that_do_not_fit_are_refused(change):
    document = json.loads(plan_of(Number("x", 0, 1, rule="mean")).to_json())
    document["schema"][0] |= change
    text = vehicle.canonical(document)
    with pytest.raises(WireError):
        Plan.from_json(text)
    with pytest.raises(ValueError, match="`rule` of x is"):
        vehicle.Plan(text, 2)


def test_a_column_has_one_rule():
    speeds = Within(
        "speeds", Number("x", 0, 1, rule="mean"), Category("m", ["a", "b"], rule="last")
    )
    Schema((speeds, Number("x", 0, 1, rule="mean")))
    with pytest.raises(DomainError, match="the column 'x' has two rules: 'mean' and 'random'"):
        Schema((speeds, Number("x", 0, 1)))
    with pytest.raises(DomainError, match="needs a rule for both of its columns, or for none"):
        Within("speeds", Number("x", 0, 1, rule="mean"), Category("m", ["a", "b"]))
    with pytest.raises(DomainError, match="declare rule of each of them"):
        Schema.of(speeds={**speeds.options(), "rule": "mean"})


@pytest.mark.parametrize("rules", [("random", "random"), ("mean", "last"), ("count", "maximum")])
def test_groups(rules):
    of, groups = rules
    attribute = Within(
        "x by m", Number("x", 0, 8, rule=of), Category("m", ["a", "b", "c"], rule=groups)
    )
    plan = plan_of(attribute)
    small = vehicle.Plan(plan.to_json(), 2)
    owners, rows = fleet(NUMBERS, 3)
    drawn = random.Random(1)
    rows = [{**row, "m": drawn.choice(["a", "b", "c", None])} for row in rows]
    words = [drawn.getrandbits(52) << 12 for _ in range(max(owners) + 1)]
    expected = [
        small.inputs(small.one_row(mine, word))
        for mine, word in zip(rows_by_owner(rows, owners), words, strict=True)
    ]
    np.testing.assert_array_equal(by_library(plan, rows, owners, words), expected)


# Entry points

TRIPS = Schema.of(
    speed={"low": 0, "high": 130, "rule": "mean"},
    trip={"low": 0, "high": 10, "rule": "count"},
    alarm={"categories": ["false", "true"], "rule": "any"},
)


def trips(vehicles=400):
    """Return rows whose random row would differ: one alarm in three rows, and three speeds."""
    for number in range(vehicles):
        for row, alarm in enumerate([False, True, False]):
            yield {"car": f"car-{number}", "speed": 60 + 10 * row, "trip": row, "alarm": alarm}


def test_library_and_command_line_agree(tmp_path):
    rows = list(trips())
    plan = Plan(TRIPS, 16.0, "split")
    ids = np.array([row["car"] for row in rows])
    report = plan.report(rows, fedldp.source(1), vehicle_ids="car")
    columns = {name: [row[name] for row in rows] for name in TRIPS}
    assert report == plan.report(columns, fedldp.source(1), vehicle_ids=ids)
    assert report.vehicles == 400
    estimate = plan.parse(report).estimate()
    assert estimate["speed"].mean == pytest.approx(70, abs=1)
    assert estimate["trip"].mean == pytest.approx(3, abs=0.2)
    assert estimate["alarm"].frequencies[1] == pytest.approx(1, abs=0.05)
    simulated = plan.simulate(rows, fedldp.source(1), vehicle_ids="car")
    assert simulated.reports == 400
    (tmp_path / "trips.toml").write_text(TRIPS.to_toml())
    lines = ["car,speed,trip,alarm", *(",".join(map(str, row.values())) for row in rows)]
    (tmp_path / "trips.csv").write_text("\n".join(lines).lower() + "\n")
    options = ["--schema", tmp_path / "trips.toml", "--epsilon", 4, "--json", "--seed", 1]
    given = ["collect", tmp_path / "trips.csv", *options, "--vehicle", "car", "--strict"]
    result = CliRunner().invoke(command, [str(each) for each in given])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["vehicles"] == 400
    truths = {line["name"]: line["truth"] for line in document["estimates"]}
    assert truths == {"speed": 70, "trip": 3, "alarm = false": 0, "alarm = true": 1}


def test_one_vehicle_with_a_ledger(tmp_path):
    plan = Plan(TRIPS, 2.0)
    rows = list(trips(1))
    (tmp_path / "plan.json").write_text(plan.to_json())
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    with Ledger.create(tmp_path / "ledger.db", 4) as ledger:
        answers = []
        car = Vehicle(ledger, tell=answers.append)
        car.answer(plan, rows, job="a")
        assert answers[0].row == {"speed": 70.0, "trip": 3, "alarm": True}
        car.answer(plan, [], job="b")
        assert answers[1].row == {"speed": None, "trip": 0, "alarm": None}
    given = ["report", "plan.json", "rows.json", "--check"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        result = CliRunner().invoke(command, given)
    assert result.output == "All values are used as they are.\n"


def test_random_words_do_not_depend_on_rows(tmp_path, monkeypatch):
    plan = Plan(TRIPS, 2.0)
    counts = set()

    class Counting(random.Random):
        def getrandbits(self, bits):
            self.drawn.append(bits)
            return super().getrandbits(bits)

    for rows in ([], [{}], [{"speed": 1}] * 9, {"speed": 3}, [{"alarm": "?", "speed": "x"}], [1]):
        source = Counting(1)
        source.drawn = []
        monkeypatch.setattr(vehicle, "SYSTEM", source)
        monkeypatch.setattr(vehicle.Plan.report, "__defaults__", (source,))
        path = tmp_path / f"{len(str(rows))}.db"
        with Ledger.create(path, 4) as ledger:
            Vehicle(ledger, tell=tell_nobody).answer(plan, rows)
        counts.add(tuple(source.drawn))
    assert len(counts) == 1
    drawn = []
    for rows in (list(trips(8)), [{"car": f"car-{number}"} for number in range(8)]):
        source = fedldp.source(3)
        with warnings.catch_warnings(action="ignore"):
            plan.report(rows, source, vehicle_ids="car")
        drawn.append(source.words(1).tolist())
    assert drawn[0] == drawn[1]


def test_ids_of_vehicles_are_checked():
    plan = Plan(TRIPS, 2.0)
    rows = list(trips(2))
    with pytest.raises(DomainError, match="the data have no column 'bus' with vehicle ids"):
        plan.report(rows, fedldp.source(1), vehicle_ids="bus")
    for ids in (["a"] * 5, [["a"] * 6]):
        with pytest.raises(DomainError, match="vehicle_ids must be one id for each of 6 rows"):
            plan.report(rows, fedldp.source(1), vehicle_ids=ids)
    with pytest.raises(DomainError, match="the vehicle of the row is unknown"):
        plan.report(rows, fedldp.source(1), vehicle_ids=["a"] * 5 + [None])


@pytest.mark.parametrize("text", [b"[1, 2]", b"[{}, 3]", b"[[]]", b"3", b'"x"'])
def test_other_lists_are_mistakes_of_the_program(text):
    with pytest.raises(ValueError, match="the row must be a JSON object"):
        vehicle.read_row(text)
    assert vehicle.read_row(b'[{"a": 1}, {}]') == [{"a": 1}, {}]
    assert vehicle.read_row(b"[]") == []


COUNTED = Schema.of(trips={"low": 0, "high": 2, "rule": "count"})
TRIPS_OF_CARS = {"trips": [5, 7, 8, 9, None], "car": ["a", "a", "a", "b", "b"]}


def test_a_count_beyond_its_bounds_is_told():
    plan = Plan(COUNTED, 2.0)
    with pytest.warns(DataWarning, match=r"trips: 1 of 2 \(50%\) clipped to \[0, 2\]"):
        plan.report(TRIPS_OF_CARS, fedldp.source(1), vehicle_ids="car")
    with pytest.raises(DomainError, match="trips"):
        plan.report(TRIPS_OF_CARS, fedldp.source(1), vehicle_ids="car", strict=True)


def test_collect_tells_counts_beyond_their_bounds(tmp_path):
    (tmp_path / "trips.toml").write_text('[trips]\nlow = 0\nhigh = 2\nrule = "count"\n')
    lines = [f"{car},{trip}" for car in range(300) for trip in range(1 + car % 4)]
    (tmp_path / "trips.csv").write_text("\n".join(["car,trips", *lines]))
    words = ["collect", str(tmp_path / "trips.csv"), "--schema", str(tmp_path / "trips.toml")]
    words += ["--epsilon", "2", "--vehicle", "car", "--seed", "1"]
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0
    assert "150 of 300 (50%) clipped to [0, 2]" in done.output
    refused = CliRunner().invoke(command, [*words, "--strict"])
    assert "150 of 300" in str(refused.exception)
