"""Plans on a vehicle: what is refused, what any row becomes, and the law of whole reports."""

import hashlib
import json
import math
import random
import zlib
from collections import Counter
from fractions import Fraction

import pytest
from plans import canonical
from vehicle_plans import document, loaded, numbers

import fedldp
from fedldp import vehicle
from fedldp.coders.categories import RandomizedResponse, UnaryEncoding
from fedldp.coders.cube import CubeCoder
from fedldp.errors import DomainError, WireError


def bits_of(report):
    return "".join(f"{byte:08b}" for byte in report[16:])


# The report


def test_golden_bytes():
    plan = loaded(document())
    assert plan.bits == 2 * (2 + 4) + 2
    assert plan.epsilon == Fraction("1.75") + Fraction("1.25")
    row = {"age": 30, "city": "Lima", "way": [2.5, -0.5], "colour": True}
    reports = [plan.report(row, random.Random(seed)) for seed in range(3)]
    assert reports[0].hex() == "0100703a3d756261" + "00000001" + "2c0fb61c" + "0108"
    assert [report[16:].hex() for report in reports] == ["0108", "0108", "0524"]
    for report in reports:
        assert report[0] == 1
        fingerprint = hashlib.sha256(canonical(document()).encode()).digest()
        assert plan.fingerprint == fingerprint.hex()
        assert report[1:8] == fingerprint[:7]
        assert report[8:12] == (1).to_bytes(4, "big")
        assert report[12:16] == zlib.crc32(report[:12] + report[16:]).to_bytes(4, "big")
        assert bits_of(report)[plan.bits :] == "00"


def test_without_a_choice_there_are_no_indexes(monkeypatch):
    """k = d: each code in its own width. At epsilon 16 the codes are the values."""
    monkeypatch.setattr(vehicle, "LARGEST_EPSILON", 100)
    plan = document()
    plan.update(
        epsilon="99.5", tables=[numbers(16.0), RandomizedResponse.of(16.0, 3).to_document()]
    )
    plan["tables"].append(UnaryEncoding.of(16.0, 4).to_document())
    plan["parts"][0]["k"] = 3
    plan["parts"][1] = {**CubeCoder.of(16.0, 2).to_document(), "attributes": [2]}
    ready = vehicle.Plan(canonical(plan), 64)
    assert ready.bits == 1 + 2 + 4 + 2
    row = {"age": 100, "city": "Lima", "way": [3, -1], "colour": 1.0}
    seen = Counter(bits_of(ready.report(row, random.Random(seed)))[:9] for seed in range(40))
    # In OUE, the bit of the true category is a fair coin.
    assert set(seen) == {"110" + "0100" + "10", "110" + "0000" + "10"}
    listed = [100, "Lima", 3, -1, 1.0]
    assert ready.report(listed, random.Random(7)) == ready.report(row, random.Random(7))


def test_indexes_ascend_and_narrow_codes_are_filled_up():
    plan, found = loaded(document()), set()
    for seed in range(300):
        bits = bits_of(plan.report({}, random.Random(seed)))
        first, second = int(bits[:2], 2), int(bits[6:8], 2)
        found.add((first, second))
        for index, code in ((first, bits[2:6]), (second, bits[8:12])):
            assert int(code, 2) < {0: 2, 1: 3, 2: 16}[index]
    assert found == {(0, 1), (0, 2), (1, 2)}


def test_uses_the_randomness_of_the_system_unless_told():
    plan = loaded(document())
    reports = {plan.report({}) for _ in range(30)}
    assert len(reports) > 5
    assert isinstance(vehicle.SYSTEM, random.SystemRandom)


# What is refused


def at(*path_and_value):
    """A change of one entry, by its path."""
    *path, key, value = path_and_value

    def change(plan):
        for step in path:
            plan = plan[step]
        if value is ...:
            del plan[key]
        elif isinstance(plan, list) and key == len(plan):
            plan.append(value)
        else:
            plan[key] = value

    return change


AGE, CITY, CUBE = ("schema", 0), ("schema", 1), ("parts", 1)
HEAVIER = CubeCoder.of(1.25, 2).heavy + 1
HOSTILE = [
    # tables that leak or are invalid
    (at("tables", 0, "epsilon", "0.99"), "column 0 has a count 2.7"),
    (at("tables", 0, "counts", [[15, 1], [1, 15]]), "column 0 has a count 15 times"),
    (at("tables", 0, "counts", [[1.5, 1], [1, 1.5]]), "a count must be a whole number"),
    (at("tables", 0, "counts", [[True, True], [1, 1]]), "a count must be a whole number"),
    (at("tables", 0, "counts", [[str(10**400), 1], [1, 1]]), "no power of two"),
    (at("tables", 0, "letters", [-1.0, math.nan]), "finite number"),
    (at("tables", 0, "letters", [-1, 1]), "finite number, written with a point; got -1"),
    (at("tables", 0, "counts", [["15", 1], [1, 15]]), "text without leading zeros; got '15'"),
    (at("tables", 0, "counts", [["015", 1], [1, 15]]), "text without leading zeros; got '015'"),
    (at("tables", 0, "counts", [[1 << 60, 1], [1, 15]]), "text without leading zeros; got 1152"),
    (at("tables", 0, "values", [-1, 1]), "finite number, written with a point; got -1"),
    (at("tables", 0, "values", [1.0, -1.0]), "ascending values, one for each column"),
    (at("tables", 0, "values", [-1.0, 0.0, 1.0]), "ascending values, one for each column"),
    (at("tables", 0, "values", [-1.0, math.inf]), "finite number"),
    (at("tables", 1, "epsilon", "0.4999999999"), "its odds .* more than e"),
    (at("tables", 1, "same", 7), "add up to no power of two"),
    (at("tables", 1, "other", 0), "out of order"),
    (at("tables", 1, "categories", 4), "add up to no power of two"),
    (at("tables", 1, "categories", True), "categories must be of type int"),
    (at("tables", 2, "epsilon", "0.7"), "its odds .* more than e"),
    (at("tables", 2, "total", str(2**63)), "absent"),
    (at("tables", 2, "absent", "-5"), "a count must be a whole number"),
    (at("tables", 2, "absent", "9" * 5000), "integer string conversion"),
    (at("tables", 2, "categories", 5), "a table is not for its attribute"),
    (at("tables", 2, "kind", "binary"), "unknown kind: 'binary'"),
    (at("tables", 2, "kind", ["unary"]), "unknown kind"),
    (at("tables", 2, "kind", ...), "unknown kind: None"),
    (at("tables", 2, "note", "x"), "it needs the entries epsilon, categories, total, absent"),
    (at("tables", 2, []), "pop"),
    (at("tables", {}), "tables must be of type list"),
    # what it costs
    (at("epsilon", "2.99"), "it costs 3.0, and claims 2.99"),
    (at("epsilon", "4.0"), None),
    (at("epsilon", "4"), "epsilon must be a text"),
    (at("epsilon", "04.0"), "epsilon must be a text"),
    (at("epsilon", "4.00"), "epsilon must be a text"),
    (at("epsilon", "3.9999999999999999999"), "epsilon must be a text"),
    (at("parts", 0, "k", 3), "it costs 3.5, and claims 3.0"),
    (at("parts", 0, "k", 0), "k must be from 1 to 3"),
    (at("parts", 0, "k", 4), "k must be from 1 to 3"),
    (at("parts", 0, "k", True), "k must be of type int"),
    (at("parts", 0, "k", "2"), "k must be of type int"),
    (at("epsilon", 3.0), "epsilon must be a text"),
    (at("epsilon", "nan"), "epsilon must be a text"),
    (at("epsilon", "1e999999999"), "epsilon must be a text"),
    (at("epsilon", "3" * 4000), "epsilon must be a text"),
    (at("epsilon", "3" * 41), "epsilon must be a text"),
    (at("epsilon", "1.2.3"), "could not convert"),
    (at("epsilon", "0.0"), "epsilon must be positive"),
    # attributes in parts
    (at("parts", 0, "attributes", [0, 1]), "argument 2 is longer"),
    (at("parts", 0, "attributes", [0, 1, 1]), "a table is not for its attribute"),
    (at(*CUBE, "attributes", [2, 2]), "its odds|threshold|in two"),
    (at(*CUBE, "attributes", [0]), "in two"),
    (at(*CUBE, "attributes", [3]), "a cube is for numbers"),
    (at(*CUBE, "attributes", []), "0 signs"),
    (at(*CUBE, "attributes", [-2]), "no such attributes"),
    (at(*CUBE, "attributes", [True]), "no such attributes"),
    (at(*CUBE, "attributes", {"0": 2}), "attributes must be of type list"),
    (at("parts", 0, "tables", [0, 1, -1]), "not those that its parts name"),
    (at("parts", 0, "tables", [0, 1, 3]), "not those that its parts name"),
    (at("parts", 0, "tables", [1, 0, 2]), "not those that its parts name"),
    (at("parts", 0, "tables", [0, 1, True]), "not those that its parts name"),
    (at("parts", 0, "tables", [0, True, 2]), "no such attributes or tables"),
    (at("parts", 0, "tables", [0, 1.0, 2]), "no such attributes or tables"),
    (at("parts", 0, "tables", [0, [1], 2]), "unhashable"),
    (at("parts", 0, "tables", 7), "not iterable"),
    (at("parts", 0, "attributes", [0, 2, 3]), "a table is not for its attribute"),
    (at("tables", 3, numbers(0.5)), "not those that its parts name"),
    (at("parts", 1, ...), "in no part"),
    (at("parts", []), "not those that its parts name"),
    (at("parts", 0, "kind", "everything"), "unknown kind: 'everything'"),
    (at("parts", 2, {}), "unknown kind: None"),
    (at("parts", 2, 7), "get"),
    # the cube
    (at(*CUBE, "heavy", HEAVIER), "its odds .* more than e"),
    (at(*CUBE, "light", 1), "its odds .* more than e"),
    (at(*CUBE, "light", 0), "out of order"),
    (at(*CUBE, "heavy", str(2**97)), "too large"),
    (at(*CUBE, "threshold", 2), "threshold 2 is beyond"),
    (at(*CUBE, "threshold", 0.0), "threshold must be of type int"),
    (at(*CUBE, "epsilon", "1.2"), "its odds .* more than e"),
    # the schema
    (at(*AGE, "low", 100.0), "age needs low < high"),
    (at(*AGE, "low", math.nan), "finite number, written with a point; got nan"),
    (at(*AGE, "low", 0), "finite number, written with a point; got 0"),
    (at(*AGE, "high", 10**400), "finite number, written with a point; got 1000"),
    (at(*AGE, "high", True), "finite number, written with a point; got True"),
    (at(*AGE, "high", 5e-324), "age needs low < high"),
    (at(*AGE, "missing", 101.0), "`missing` between"),
    (at(*AGE, "missing", None), "point; got None"),
    (at(*AGE, "size", 0), "size of at least 1"),
    (at(*AGE, "size", True), "size must be of type int"),
    (at(*AGE, "size", 1 << 30), "coordinates are not 1 to"),
    (at(*AGE, "size", ...), "it needs the entries name, size, low, high, missing"),
    (at(*AGE, "kind", "number"), "it needs the entries name"),
    (at(*AGE, "name", "city"), "two attributes have one name"),
    (at(*AGE, "name", 7), "must be a text"),
    (at(*CITY, "categories", ["Oslo", "Rome", "Rome"]), "different texts"),
    (at(*CITY, "categories", ["Oslo", "Rome", 7]), "must be a text"),
    (at(*CITY, "categories", ["Oslo"]), "different texts"),
    (at(*CITY, "categories", "Oslo"), "categories must be of type list"),
    (at(*CITY, "missing", "Paris"), "`missing` among them"),
    (at(*CITY, "low", 0.0), "it needs the entries name, categories, missing"),
    (at("schema", 4, "categories"), "it needs the entries name, categories"),
    (at("schema", []), "0 coordinates"),
    # the plan
    (at("format", "fedldp plan 2"), "its format is not 'fedldp plan 1'"),
    (at("format", ...), "it needs the entries format, epsilon"),
    (at("comment", "hello"), "it needs the entries format, epsilon"),
]


@pytest.mark.parametrize(("change", "said"), HOSTILE, ids=range(len(HOSTILE)))
def test_refuses_what_was_tampered_with(change, said):
    plan = document()
    change(plan)
    if said is None:
        assert loaded(plan).epsilon == 3
        return
    with pytest.raises(ValueError, match=f"(?s)^refused: .*({said})"):
        loaded(plan, cap=1000)


@pytest.mark.parametrize(("kind", "place"), [("table", "tables"), ("part", "parts")])
def test_a_kind_that_a_newer_vehicle_knows_is_named(kind, place):
    """Such a plan has format 2; the reason is its kind, not its format."""
    plan = document() | {"format": vehicle.PLAN_FORMAT_2}
    plan[place][0]["kind"] = "a new one"
    with pytest.raises(ValueError, match=f"^refused: a {kind} of an unknown kind: 'a new one'$"):
        loaded(plan)


def other_texts():
    """Yield texts that many readers of JSON take for the same plan, each with its own reason."""
    plan = document()
    text = canonical(plan)
    yield "a newline at the end", text + "\n"
    yield "spaces", json.dumps(plan, sort_keys=True)
    yield "another order", json.dumps(plan, separators=(",", ":"))
    yield (
        "a key twice, the last one counts",
        text.replace('"epsilon":"3.0"', '"epsilon":"1.0","epsilon":"3.0"'),
    )
    yield "a key twice, alike", text.replace('"size":2', '"size":2,"size":2')
    yield "a number written otherwise", text.replace('"low":0.0', '"low":0.00')
    yield "a number with an exponent", text.replace('"high":100.0', '"high":1e2')
    yield "a letter written as an escape", text.replace('"Oslo"', '"\\u004fslo"')
    plan["schema"][1].update(categories=["Tür", "Rome", "Lima"], missing="Tür")
    assert loaded(plan)
    yield (
        "a letter that is not ASCII",
        json.dumps(plan, sort_keys=True, separators=(",", ":"), ensure_ascii=False),
    )


@pytest.mark.parametrize("text", [pytest.param(text, id=why) for why, text in other_texts()])
def test_a_plan_has_one_text(text):
    """Other readers of JSON may see another plan in it, or take the fingerprint of another text."""
    assert vehicle.Plan(canonical(json.loads(text)), 3).epsilon == 3
    with pytest.raises(ValueError, match=r"^refused: it is not canonical JSON"):
        vehicle.Plan(text, 3)
    with pytest.raises(WireError, match="it is not canonical"):
        fedldp.Plan.from_json(text)


def test_tables_are_those_that_parts_name():
    """Each takes time to check: one that is not used, or stands twice, is refused unread."""
    plan = document()
    leaking = {**plan["tables"][1], "epsilon": "0.1"}
    for tables, said in (
        ([*plan["tables"], leaking], "not those that its parts name"),
        ([leaking, *plan["tables"]], "not those that its parts name|a table is not for"),
    ):
        with pytest.raises(ValueError, match=said):
            loaded({**plan, "tables": tables})
        with pytest.raises(WireError, match=r"not those that its parts name|of another kind"):
            fedldp.Plan.from_json(canonical({**plan, "tables": tables}))
    plan["schema"].append({**plan["schema"][0], "name": "weight"})
    plan["parts"][0].update(attributes=[0, 1, 3, 4], tables=[0, 1, 2, 3])
    plan["tables"].append(plan["tables"][0])
    for read in (loaded, lambda plan: fedldp.Plan.from_json(canonical(plan))):
        with pytest.raises((ValueError, WireError), match="a table stands twice"):
            read(plan)


def many_tables(count):
    """A plan in which each category has a table of its own."""
    plan = {**document(), "epsilon": "1.0"}
    plan["schema"] = [
        {"name": f"a{i}", "categories": [str(n) for n in range(i + 2)], "missing": "0"}
        for i in range(count)
    ]
    plan["tables"] = [RandomizedResponse.of(1.0, i + 2).to_document() for i in range(count)]
    numbers_ = list(range(count))
    plan["parts"] = [{"kind": "sample", "k": 1, "attributes": numbers_, "tables": numbers_}]
    return plan


def test_a_plan_has_few_tables(monkeypatch):
    monkeypatch.setattr(vehicle, "MOST_TABLES", 3)
    assert loaded(many_tables(3)).bits == 2 + 2
    with pytest.raises(ValueError, match="it has 4 tables, more than 3"):
        loaded(many_tables(4))
    schema = fedldp.Schema.of(**{f"a{i}": [str(n) for n in range(i + 2)] for i in range(4)})
    with pytest.raises(DomainError, match="the plan has 4 different tables"):
        fedldp.Plan(schema, epsilon=1.0).to_json()


def test_the_bound_of_an_epsilon_is_computed_once():
    plan = many_tables(50)
    vehicle.exp_below.cache_clear()
    loaded(plan)
    assert vehicle.exp_below.cache_info().misses == 1


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "7", "null", "[" * 100_000, '{"a":' * 100_000, "9" * 10_000],
    ids=range(8),
)
def test_refuses_other_text(text):
    with pytest.raises(ValueError, match=r"^refused: "):
        vehicle.Plan(text, 1)


def test_the_cap_is_exact_and_needed():
    for cap in (3, "3", 3.0, Fraction(3), "1e300"):
        assert loaded(document(), cap).epsilon == 3
    with pytest.raises(ValueError, match=r"refused: it costs 3\.0, and the cap is"):
        loaded(document(), Fraction(3) - Fraction(1, 10**30))
    for cap in ("", "x", None, 0, -1, math.nan):
        with pytest.raises(ValueError, match="epsilon must be"):
            loaded(document(), cap)


def test_a_sample_costs_its_most_expensive_coordinates():
    """A vector counts as often as it has numbers."""
    plan = document()
    number, response, unary = plan["tables"]
    plan["tables"] = [response, numbers(0.625), number, unary]
    plan["parts"] = [{"kind": "sample", "attributes": [1, 2, 0, 3], "tables": [0, 1, 2, 3]}]
    for k, total in [(1, "1.0"), (2, "1.75"), (3, "2.375"), (4, "3.0"), (5, "3.5")]:
        plan["parts"][0]["k"], plan["epsilon"] = k, total
        assert loaded(plan, total).epsilon == Fraction(total)
        with pytest.raises(ValueError, match="it costs"):
            loaded({**plan, "epsilon": str(float(total) - 0.001)}, 9)


def test_large_vectors_and_cubes_work():
    plan = {**document(), "epsilon": "2.0", "tables": [numbers(1.0)]}
    plan["schema"] = [
        {
            "name": "g",
            "low": -1.0,
            "high": 1.0,
            "missing": 0.0,
            "size": vehicle.MOST_COORDINATES - 5,
        },
        {"name": "h", "low": -1.0, "high": 1.0, "missing": 0.0, "size": 5},
    ]
    plan["parts"] = [{"kind": "sample", "k": 1, "attributes": [0], "tables": [0]}]
    plan["parts"].append({"kind": "sample", "k": 1, "attributes": [1], "tables": [0]})
    assert len(loaded(plan).report({"g": [0.5] * 1000})) == 16 + 4
    plan.update(schema=[{**plan["schema"][0], "size": 10_000}], tables=[])
    plan["parts"] = [{**CubeCoder.of(2.0, 10_000, 140).to_document(), "attributes": [0]}]
    assert len(loaded(plan).report({"g": [0.5] * 10_000})) == 16 + 1250


def test_refuses_a_record_that_would_fill_the_memory():
    """All slots are as wide as the widest code."""
    categories = [str(i) for i in range(vehicle.MOST_CATEGORIES)]
    plan = {**document(), "epsilon": "3.0"}
    plan["tables"] = [numbers(0.001), UnaryEncoding.of(0.001, len(categories)).to_document()]
    plan["schema"] = [
        {"name": "g", "low": -1.0, "high": 1.0, "missing": 0.0, "size": 4000},
        {"name": "c", "categories": categories, "missing": "0"},
    ]
    plan["parts"] = [{"kind": "sample", "k": 2049, "attributes": [0, 1], "tables": [0, 1]}]
    with pytest.raises(ValueError, match="a record would have 134307852 bits, more than 134217728"):
        loaded(plan, 9999)
    plan["parts"][0]["k"] = 1
    assert len(loaded(plan, 9999).report([])) == 16 + (12 + 65536 + 7) // 8
