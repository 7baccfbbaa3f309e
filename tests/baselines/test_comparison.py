"""The comparison of all mechanisms: complete, consistent with the library, and for study."""

import ast
from pathlib import Path

import numpy as np
import pytest

import fedldp
from fedldp import baselines
from fedldp.baselines import comparison
from fedldp.baselines.distributions import DISTRIBUTION_METHODS
from fedldp.baselines.frequencies import FREQUENCY_ORACLES
from fedldp.baselines.means import NUMBER_MECHANISMS, VECTOR_MECHANISMS, OneBitMean
from fedldp.coders import CODERS
from fedldp.errors import DomainError, UnknownName
from fedldp.plan.strategies import Sample

MOST_LINES = 900


def by_name(rows):
    return {row.mechanism: row for row in rows}


def test_every_mechanism_is_compared():
    rows = by_name(comparison.compare_numbers([1.0]))
    assert rows.keys() == {
        *(name for name in fedldp.mechanism_names() if name != "laplace"),  # it has no channel
        *(kind.name for kind in NUMBER_MECHANISMS),
    }
    rows = by_name(comparison.compare_categories([1.0], 6))
    for_labels = {kind for kind, coder in CODERS.items() if hasattr(coder, "support")}
    assert rows.keys() == for_labels | {kind.name for kind in FREQUENCY_ORACLES}
    rows = by_name(comparison.compare_vectors([1.0], 6))
    joint = {kind for kind, coder in CODERS.items() if coder.joint}
    assert rows.keys() == joint | {"sample"} | {kind.name for kind in VECTOR_MECHANISMS}
    rows = by_name(comparison.compare_distributions([1.0], 6, vehicles=500, repeats=1))
    methods = {kind.name for kind in DISTRIBUTION_METHODS}
    methods |= {f"{kind.name}-bins" for kind in FREQUENCY_ORACLES}
    assert rows.keys() == methods | {"bins", "bins, compact"}


def test_errors_are_those_of_the_library():
    rows = by_name(comparison.compare_numbers([2.0]))
    channel = fedldp.mechanism("hm-tp", 2.0).channel()
    assert rows["hm-tp"].worst == channel.worst_case_variance
    assert rows["hm-tp"].typical == pytest.approx(float(channel.assumed("uniform", 0.0)[0]), 1e-3)
    rows = by_name(comparison.compare_categories([2.0], 20))
    assert rows["lines"].worst == fedldp.coders.Lines.of(2.0, 20).variance
    # The library's coders are the published mechanisms, with integers as their odds.
    for ours, theirs in (("response", "grr"), ("unary", "oue")):
        assert rows[ours].worst == pytest.approx(rows[theirs].worst, rel=1e-6)


def test_the_error_of_sampled_vectors_is_that_of_a_simulation():
    d, random = 8, np.random.default_rng(5)
    rows = by_name(comparison.compare_vectors([4.0], d))
    vectors = random.standard_normal((4000, d))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for name, options in (("sample", {}), ("cube", {"strategy": "cube"})):
        plan = fedldp.Plan(fedldp.Schema.vector(d, bound=1.0), 4.0, **options)
        errors = []
        for each in fedldp.source(3).spawn(40):
            tally = plan.simulate(vectors, each)
            found = tally.estimate("horvitz-thompson")["x"].mean
            errors.append(len(vectors) * np.sum((found - vectors.mean(axis=0)) ** 2))
        stderr = np.std(errors) / len(errors) ** 0.5
        assert abs(np.mean(errors) - rows[name].typical) < 4.9 * stderr


def test_rows_are_ordered_and_marked():
    rows = comparison.compare_categories([1.0, 2.0], 9)
    assert [row.epsilon for row in rows] == [1.0] * (len(rows) // 2) + [2.0] * (len(rows) // 2)
    first = rows[: len(rows) // 2]
    assert [row.worst for row in first] == sorted(row.worst for row in first)
    for row in rows:
        assert row.can_be_released == (row.origin == "fedldp")
        assert row.microseconds > 0
        assert row.to_dict()["half_width"] is None


def test_data_are_compared_in_the_units_of_their_columns():
    random = np.random.default_rng(1)
    speed = random.normal(60, 10, 5000)
    schema = fedldp.Schema.of(speed=(0, 130), model=["A", "B"])
    data = {"speed": speed, "model": random.choice(["A", "B"], 5000)}
    rows = comparison.compare_data([1.0], data, schema)
    mine = {(row.question, row.mechanism): row for row in rows}
    noise = fedldp.mechanism("duchi", 1.0).channel().variance(speed / 65 - 1).mean()
    row = mine["speed", "duchi"]
    assert row.typical == pytest.approx(noise)
    assert row.half_width == pytest.approx(1.96 * 65 * (noise / 5000) ** 0.5, rel=1e-4)
    plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 130)), 1.0, Sample(mechanism="duchi"))
    errors = [
        plan.simulate({"speed": speed}, each).estimate()["speed"].mean - speed.mean()
        for each in fedldp.source(8).spawn(200)
    ]
    assert np.std(errors) == pytest.approx(row.half_width / 1.96, rel=0.25)
    assert mine["model", "response"].half_width == pytest.approx(
        1.96 * (mine["model", "response"].typical / 2 / 5000) ** 0.5, rel=1e-4
    )


def test_a_vector_of_the_data_counts_with_its_length():
    schema = fedldp.Schema.vector(4, length=2.0)
    short = np.zeros((50, 4))
    rows = by_name(comparison.compare_data([4.0], short, schema))
    assert rows["privunit"].typical == pytest.approx(rows["privunit"].worst)


def test_no_data_are_refused():
    with pytest.raises(DomainError, match="at least one row"):
        comparison.compare_data([1.0], [], fedldp.Schema.of(speed=(0, 130)))


def test_baselines_fit_into_no_plan():
    schema = fedldp.Schema.of(speed=(0, 130))
    with pytest.raises((DomainError, UnknownName)):
        fedldp.Plan(schema, 1.0, Sample(mechanism=OneBitMean))
    with pytest.raises((DomainError, UnknownName)):
        fedldp.Plan(schema, 1.0, Sample(mechanism=OneBitMean(1.0)))


def test_the_baselines_stay_small():
    """Lines of code: neither blank, nor comments, nor docstrings."""
    total = 0
    for path in Path(baselines.__file__).parent.glob("*.py"):
        text = path.read_text("utf-8")
        without = set()
        for node in ast.walk(ast.parse(text)):
            kinds = ast.Module | ast.ClassDef | ast.FunctionDef
            if isinstance(node, kinds) and ast.get_docstring(node) is not None:
                without |= {*range(node.body[0].lineno, node.body[0].end_lineno + 1)}
        lines = enumerate(text.splitlines(), 1)
        total += sum(
            bool(line.strip()) and not line.strip().startswith("#") and number not in without
            for number, line in lines
        )
    assert total <= MOST_LINES


@pytest.mark.parametrize(
    "kind",
    [*FREQUENCY_ORACLES, *VECTOR_MECHANISMS, *NUMBER_MECHANISMS, *DISTRIBUTION_METHODS],
)
def test_every_baseline_names_its_paper(kind):
    assert "References\n" in kind.__doc__
