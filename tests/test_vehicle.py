"""The single file for a vehicle: alone with nothing but Python, and in step with the library."""

import ast
import itertools
import json
import math
import random
import shutil
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from plans import canonical
from vehicle_plans import document, loaded

import fedldp
from fedldp import vehicle
from fedldp.coders.cube import CubeCoder

FILE = Path(vehicle.__file__)


@cache
def channel(name, epsilon, outputs=None):
    return fedldp.mechanism(name, epsilon).channel(outputs)


def tampered(**changes):
    return json.dumps({**json.loads(channel("duchi", 1.0).to_json()), **changes})


# Alone in an empty directory


@pytest.fixture
def alone(tmp_path):
    """Run a copy of the file with a bare interpreter, given the contents of a plan and a row."""
    shutil.copy(FILE, tmp_path / "vehicle.py")

    def run(plan, row, *arguments):
        for name, content in (("plan.json", plan), ("row.json", row)):
            if content is not None:
                data = content if isinstance(content, bytes) else content.encode()
                (tmp_path / name).write_bytes(data)
        return subprocess.run(
            [sys.executable, "-I", "-S", "vehicle.py", *arguments],
            cwd=tmp_path,
            env={},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def refusal(result):
    """The one line that is said when nothing is sent."""
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith("vehicle: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_imports_nothing_but_the_standard_library():
    imported = set()
    for node in ast.walk(ast.parse(FILE.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(node.module.split(".")[0])
    assert "secrets" in imported
    assert imported <= sys.stdlib_module_names


PLAN = canonical(document())
ROW = '{"age": 30, "city": "Lima", "way": [2.5, -0.5], "colour": true}'
USAGE = "usage: vehicle.py PLAN.json --cap EPSILON ROW.json"


@pytest.mark.parametrize(
    "row",
    [
        ROW,
        "{}",
        '{"age": NaN, "city": []}',
        '{"age": ' + "9" * 10_000 + "}",
        b'{"city": "\xff\xfe"}',
    ],
    ids=range(5),
)
def test_reports_alone_whatever_a_row_holds(alone, row):
    result = alone(PLAN, row, "plan.json", "--cap", "3", "row.json")
    assert result.returncode == 0
    assert (result.stderr == "") == (row == ROW)  # the owner sees what is replaced
    assert all(line.startswith("vehicle: warning: ") for line in result.stderr.splitlines())
    report = bytes.fromhex(result.stdout)
    assert len(report) == 18
    assert report[:12] == vehicle.Plan(PLAN, 3).report({})[:12]


@pytest.mark.parametrize("rows", ["[]", f"[{ROW}]", f"[{ROW}, {{}}]"])
def test_reports_alone_for_several_rows(alone, rows):
    result = alone(PLAN, rows, "plan.json", "--cap", "3", "row.json")
    assert result.returncode == 0
    assert len(bytes.fromhex(result.stdout)) == 18


@pytest.mark.parametrize(
    "row",
    [
        *("not json", "", "{", "NaN", "null", '"x"', "[" * 100_000, "9" * 10_000, b"\xff\xfe\x00"),
        *("[[]]", "[30, 7]", f"[{ROW}, 7]"),
    ],
    ids=range(12),
)
def test_an_invalid_row_is_a_mistake_of_the_caller(alone, row):
    result = alone(PLAN, row, "plan.json", "--cap", "3", "row.json")
    assert "the row must be a JSON object" in refusal(result)


def test_a_missing_file_is_a_mistake_of_the_caller(alone):
    assert "No such file" in refusal(alone(PLAN, None, "plan.json", "--cap", "3", "row.json"))


def test_sends_what_it_draws_with_new_randomness_each_time(alone):
    """At epsilon 16 a sign is wrong once in 10^7; forty coins in a row are never twice the same."""
    plan = json.loads(PLAN)
    plan.update(epsilon="16.0", tables=[])
    plan["schema"] = [{"name": "x", "low": 0.0, "high": 1.0, "missing": 0.0, "size": 1}]
    plan["parts"] = [{**CubeCoder.of(16.0, 1).to_document(), "attributes": [0]}]
    for value, sent in ((1, "80"), (0, "00")):
        result = alone(canonical(plan), f'{{"x": {value}}}', "plan.json", "--cap", "16", "row.json")
        assert result.stdout[32:] == sent + "\n"
    plan["schema"][0]["size"] = 40
    plan["parts"] = [{**CubeCoder.of(0.001, 40).to_document(), "attributes": [0]}]
    arguments = (canonical(plan), "{}", "plan.json", "--cap", "1", "row.json")
    assert alone(*arguments).stdout != alone(*arguments).stdout


@pytest.mark.parametrize(
    ("plan", "arguments", "said"),
    [
        (PLAN, ["plan.json", "--cap", "2.99", "row.json"], "refused: it costs 3.0"),
        (PLAN, ["plan.json", "--cap", "x", "row.json"], "epsilon must be a number; got 'x'"),
        (PLAN, ["plan.json", "row.json"], USAGE),
        (PLAN, ["plan.json", "--cap", "3"], USAGE),
        (PLAN, ["plan.json", "--cap", "3", "row.json", "row.json"], USAGE),
        (PLAN, [], USAGE),
        (None, ["plan.json", "--cap", "3", "row.json"], "No such file"),
        ("{", ["plan.json", "--cap", "3", "row.json"], "refused: Expecting"),
        (b"\xff\xfe\x00", ["plan.json", "--cap", "3", "row.json"], "codec can't decode"),
    ],
    ids=itertools.count(),
)
def test_says_in_one_line_why_nothing_is_sent(alone, plan, arguments, said):
    assert said in refusal(alone(plan, ROW, *arguments))


# Whatever a row is


class Hostile:
    """Raises whatever is asked of it."""

    def refuse(self, *arguments):
        raise RuntimeError(arguments)

    __float__ = __str__ = __eq__ = __hash__ = __getitem__ = __len__ = __iter__ = __bool__ = refuse
    __getattribute__ = refuse


class HostileMapping(Hostile, dict):
    """Says it is a mapping, and raises too."""


NAMES = ("age", "city", "way", "colour")
UNREADABLE = [
    *(None, {}, [], 7, "", object(), math.nan, b"", {1: 2}, [[]], [None]),
    dict.fromkeys(NAMES),
    {"age": math.nan, "city": math.nan, "way": [math.nan] * 2, "colour": math.nan},
    {"age": "old", "city": "Paris", "way": [], "colour": 10**5000},
    {"age": [30], "city": ["Lima"], "way": 2.5, "colour": {}},
    {"age": 1j, "city": {}, "way": [[], {}, 9], "colour": np.array(["1", "b"])},
    {"age": "9" * 5000 + "x", "city": Decimal("sNaN"), "way": iter([1, 2]), "colour": b"red"},
]


def test_unreadable_values_are_missing():
    plan = loaded(document())
    hostile = [Hostile(), HostileMapping(), dict.fromkeys(NAMES, Hostile()), [Hostile()] * 5]
    for row in itertools.chain(UNREADABLE, hostile):
        for seed in range(20):
            rng, public = random.Random(seed), random.Random(seed)
            assert plan.report(row, rng) == plan.report({}, public)
            assert rng.getstate() == public.getstate()
        assert len(plan.check(row)) >= 5  # each of its numbers is replaced


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=4) | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
)


@given(
    row=ANYTHING
    | st.lists(ANYTHING, min_size=5, max_size=5)
    | st.fixed_dictionaries(dict.fromkeys(NAMES, ANYTHING))
)
@example(row={"age": 10**400, "city": "Rome", "way": [-(10**400), math.inf], "colour": 1.0})
def test_any_row_gives_a_report_with_the_same_number_of_words(row):
    plan, rng, other = loaded(document()), random.Random(9), random.Random(9)
    assert len(plan.report(row, rng)) == len(plan.report(json.loads(ROW), other)) == 18
    assert rng.getstate() == other.getstate()


def test_values_are_scaled_clipped_and_named():
    age, city, way, colour = itertools.starmap(
        vehicle.read_attribute, zip(document()["schema"], (0, 1, 2, 4), strict=True)
    )
    for value, x in [(75, 0.5), ("75", 0.5), (-1, -1), (1e308, 1), (-math.inf, -1), (10**999, 1)]:
        assert age.find({"age": value}, 0) == age.find([value], 0) == x
    assert (age.missing, city.missing, way.missing, colour.missing) == (0, 0, 0, 0)
    assert [way.find({"way": (0, 3)}, i) for i in (0, 1)] == [-0.5, 1]
    assert [way.find([9, 9, 0, 3], i) for i in (0, 1)] == [-0.5, 1]
    labels = [("1", 1), (1, 1), (1.0, 1), (True, 2), ("true", 2), ("True", 0), ("b", 3), (1.5, 0)]
    for value, code in labels:
        assert colour.find({"colour": value}, 0) == code
    assert city.find({"city": np.str_("Lima")}, 0) == 2


# What it accepts


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"counts": [[3 << 51, 1 << 51], [1 << 51, 3 << 51]]}, "column 0 has a count 3 times"),
        ({"counts": [[9, 7], [13, 3]]}, r"column 1 has a count 2\.333"),
        ({"counts": [[1 << 50, 0], [0, 1 << 50]]}, "column 0 has a count beside a zero"),
        ({"counts": [[8, 8], [8, 9]]}, "row 1 is not made of 2 counts"),
        ({"counts": [[8, 8], [16]]}, "row 1 is not made of 2 counts"),
        ({"counts": [[-8, 24], [8, 8]]}, "row 0 is not made of"),
        ({"counts": [[9, 8], [8, 9]]}, "no power of two"),
        ({"counts": [[str(1 << 62), str(1 << 62)]] * 2}, "one of the wrong size"),
        ({"counts": [[1 << 60, "7"]]}, "a count above 2.53 is a text without leading zeros"),
        ({"counts": [["0" + str(1 << 60), 7]]}, "a count above 2.53 is a text without leading"),
        ({"counts": [["8", 8], [8, 8]]}, "a count above 2.53 is a text without leading zeros"),
        ({"counts": []}, "it is empty"),
        ({"counts": [[], []]}, "it is empty"),
        ({"letters": None}, "not a 'fedldp channel 1'"),
        ({"counts": 7}, "not a 'fedldp channel 1'"),
        ({"counts": [[8.5, 8], [8, 8]]}, "not a .*a count must be a whole number; got 8.5"),
        ({"counts": [[math.inf, 1]]}, "a count must be a whole number; got inf"),
        ({"counts": [["x", "y"]]}, "not a 'fedldp channel 1'"),
        ({"format": "fedldp channel 2"}, "a newer version of fedldp has written"),
    ],
)
def test_refuses_tables_that_leak_and_invalid_channels(changes, said):
    with pytest.raises(ValueError, match=said):
        vehicle.Channel(tampered(**changes), "0.8")


@pytest.mark.parametrize(
    "letters",
    [
        *([], [1], [1, -1], [-1, 0.5], [-1, 1.5], [-1, math.nan], [-1, math.nan, 1]),
        *([-1, 0.5, 0.5, 1], [-1, 0, 2**-21, 1], [-math.inf, -1, 1, math.inf]),
    ],
)
def test_refuses_letters_that_do_not_ascend_or_are_too_close(letters):
    text = tampered(letters=letters, counts=[[8, 8]] * max(len(letters), 1))
    with pytest.raises(ValueError, match="it needs a letter for each row, ascending from -1 to 1"):
        vehicle.Channel(text, 1.0)
    with pytest.raises(ValueError, match="it needs a letter for each row"):
        vehicle.Channel(tampered(counts=[[8, 8]] * 3), 1.0)


@pytest.mark.parametrize("text", ["", "{}", "[1]", "null", "[" * 100_000], ids=range(5))
def test_refuses_other_text(text):
    with pytest.raises(ValueError, match="not a 'fedldp channel 1'"):
        vehicle.Channel(text, 1.0)


@pytest.mark.parametrize("cap", [1.0, "1", "1.0", Fraction(1), 1])
def test_caps_are_read_as_written(cap):
    text = channel("duchi", 1.0).to_json()
    assert vehicle.Channel(text, cap).bits == 1
    with pytest.raises(ValueError, match="refused: column 0"):
        vehicle.Channel(text, Fraction(cap) * Fraction(999_999_999, 10**9))
    assert vehicle.exact(0.1) == vehicle.exact("0.1") == Fraction(1, 10)


@pytest.mark.parametrize(
    "cap", [0, "-1", -0.5, "x", "1/0", "nan", math.inf, None, "1e-99999999", "1E999999"]
)
def test_refuses_a_cap_that_is_not_a_positive_number(cap):
    said = "positive" if cap in (0, "-1", -0.5) else "a number"
    with pytest.raises(ValueError, match=f"^epsilon must be {said}; got "):
        vehicle.Channel(tampered(), cap)
