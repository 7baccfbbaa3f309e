"""Vectors with a bound on their length: schema, data quality, plan, report, tally and estimate."""

import json
from dataclasses import replace

import numpy as np
import pytest
from spellings import flat_plan

import fedldp
from fedldp import Plan, Schema, audit, vehicle
from fedldp._internal import packing
from fedldp._internal.vectors import SparseRows
from fedldp.coders import DirectionsCoder
from fedldp.errors import DataWarning, DomainError, WireError
from fedldp.plan.parts import Matrix, Part
from fedldp.schema.attributes import Number

VECTOR = Schema.vector(4, length=2.0)


def plan_of(schema=VECTOR, epsilon=2.0, **options):
    return flat_plan(schema, epsilon, strategy="directions", **options)


# The schema


def test_a_length_is_one_bound_for_all_numbers():
    number = VECTOR["x"]
    assert (number.low, number.high, number.length, number.missing) == (-2.0, 2.0, 2.0, 0.0)
    assert Schema.of(x={"length": 2, "size": 4}) == VECTOR
    assert Schema.from_toml("x = {length = 2.0, size = 4}") == VECTOR
    assert Schema.from_toml(VECTOR.to_toml()) == VECTOR
    assert Schema.from_document(VECTOR.to_document()) == VECTOR
    assert VECTOR.to_document()[0]["length"] == 2.0
    assert eval(repr(number), {"Number": Number}) == number
    # Without one nothing changes: neither the text nor the document.
    other = Schema.vector(4, 2.0)
    assert other != VECTOR
    assert "length" not in repr(other["x"]) + str(other.to_document()) + other.to_toml()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Schema.vector(4), "bound= or length="),
        (lambda: Schema.vector(4, 1.0, length=1.0), "not both"),
        (lambda: Schema.vector(4, length="1"), "length must be a positive number"),
        (lambda: Schema.vector(4, length=-1.0), "must be below high"),
        (lambda: Schema.vector(4, length=float("nan")), "finite"),
        (lambda: Number("x", -1.0, 2.0, length=1.0), "low must be -1.0"),
        (lambda: Schema.of(x={"length": 1.0, "low": -2.0}), "low must be -1.0"),
        (lambda: Schema.of(x={"length": [1.0]}), "needs low and high"),
    ],
)
def test_other_lengths_are_refused(make, message):
    with pytest.raises(DomainError, match=message):
        make()


def test_a_document_with_another_length_is_refused():
    (entry,) = VECTOR.to_document()
    for wrong in ({**entry, "length": "2.0"}, {**entry, "length": 1.0}, {**entry, "length": None}):
        with pytest.raises(WireError):
            Schema.from_document([wrong])


def test_longer_vectors_are_scaled_down():
    number = VECTOR["x"]
    rows = np.array([[3.0, 0, 0, 4.0], [1, 0, 0, 0], [np.nan, 0, 2.0, 0], [np.inf, 1, 0, 0]])
    expected = [[0.6, 0, 0, 0.8], [0.5, 0, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0]]
    np.testing.assert_allclose(number.to_unit(rows), expected, atol=1e-15)
    small = vehicle.Plan(plan_of().to_json(), "2.0")
    for row, unit in zip(rows.tolist(), expected, strict=True):
        assert small.inputs({"x": row}) == pytest.approx(unit, abs=1e-15)


def test_the_owner_is_warned_of_longer_vectors():
    rows = [{"x": [3.0, 0, 0, 4.0]}, {"x": [1, 1, 1, 1]}, {"x": [None, 0, 2.0, 0]}]
    quality = VECTOR.check(rows)["x"]
    assert (quality.values, quality.clipped, quality.missing) == (12, 4, 1)
    assert quality.bounds == "a length of 2"
    assert VECTOR.check(np.array([[1.0, 1, 1, 1], [2, 0, 0, 0]])).clean
    assert VECTOR.check(np.array([[1.0, 1, 1, 1.1]]))["x"].clipped == 4
    plan = plan_of()
    with pytest.warns(DataWarning, match="clipped to a length of 2"):
        plan.report(rows, fedldp.source(1))
    small = vehicle.Plan(plan.to_json(), "2.0")
    assert small.check(rows[0]) == ["x is clipped (its length is 5)"]
    assert small.check(rows[1]) == []
    assert small.check(rows[2]) == ["x[0] is missing"]


# Plans


def test_plans_are_of_format_2_and_read_again():
    plan = plan_of(mean_length=0.3, fleet=50_000)
    document = json.loads(plan.to_json())
    assert document["format"] == "fedldp plan 2"
    assert document["parts"][0]["kind"] == "directions"
    assert Plan.from_json(plan.to_json()) == plan
    assert vehicle.Plan(plan.to_json(), "2.0").fingerprint == plan.fingerprint
    text = plan.to_json().replace("plan 2", "plan 1")
    with pytest.raises(WireError, match="canonical"):
        Plan.from_json(text)
    with pytest.raises(ValueError, match="format is not 'fedldp plan 2'"):
        vehicle.Plan(text, "2.0")
    (part,) = plan.parts
    assert part.coders[0].null_input > 0
    assert part.coders[0].seed_bits < plan_of(mean_length=0.3).parts[0].coders[0].seed_bits


@pytest.mark.parametrize("d", [1, 36, 1000, vehicle.MOST_VECTOR_NUMBERS])
@pytest.mark.parametrize("epsilon", [0.1, 4.0, 16.0])
def test_a_record_has_at_most_32_bits(epsilon, d):
    assert plan_of(Schema.vector(d, length=1.0), epsilon).bits <= 32


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        (
            Schema.vector(3, 1.0),
            {"strategy": "directions"},
            "one vector with a bound on its length",
        ),
        (Schema.of(c=["a", "b"]), {"strategy": "directions"}, "one vector"),
        (
            Schema.of(x={"length": 1, "size": 2}, y={"length": 1, "size": 2}),
            {"strategy": "directions"},
            "one vector",
        ),
        (VECTOR, {"strategy": "sample"}, "which is for strategy='directions'"),
        (VECTOR, {"strategy": "cube"}, "which is for strategy='directions'"),
        (Schema.vector(3, 1.0), {"strategy": "cube", "mean_length": 0.5}, "for directions alone"),
        (Schema.vector(3, 1.0), {"k": 1, "fleet": 5}, "for directions alone"),
        (VECTOR, {"strategy": "directions", "outputs": 3}, "leave study and outputs out"),
        (VECTOR, {"strategy": "directions", "threshold": 1}, "for the cube alone"),
    ],
)
def test_plans_that_make_no_sense_are_refused(schema, options, message):
    with pytest.raises(DomainError, match=message):
        flat_plan(schema, 1.0, **options)


def test_a_coder_is_for_vectors_with_a_length_alone():
    coder = DirectionsCoder.of(1.0, 4)
    with pytest.raises(DomainError, match="directions alone"):
        Part(Schema.vector(4, 2.0), (0,), (coder,), 1)
    two = Schema.of(x={"length": 1, "size": 2}, y={"length": 1, "size": 2})
    with pytest.raises(DomainError, match="one vector"):
        Part(two, (0, 1), (coder,), 1)


def test_a_vehicle_refuses_other_vectors():
    plan = json.loads(plan_of().to_json())
    without = {k: v for k, v in plan["schema"][0].items() if k != "length"}
    sample = json.loads(Plan(Schema.vector(4, 2.0), 2.0).to_json())
    for document, message in [
        ({**plan, "schema": [without]}, "for one vector with a bound"),
        ({**sample, "schema": plan["schema"]}, "for directions alone"),
        ({**plan, "schema": [{**plan["schema"][0], "high": 3.0}]}, "low = -length"),
        ({**plan, "schema": [{**plan["schema"][0], "length": "2.0"}]}, "finite number"),
        ({**plan, "parts": plan["parts"] * 2}, "more than one part"),
    ]:
        with pytest.raises(ValueError, match=f"^refused: .*{message}"):
            vehicle.Plan(vehicle.canonical(document), "9")


def test_categories_are_answered_beside_a_vector():
    schema = Schema.of(x={"length": 1.0, "size": 3}, city=["Oslo", "Rome"])
    plan = plan_of(schema, 4.0)
    rows = [{"x": [0.6, 0.0, -0.8], "city": "Rome"}] * 20_000
    estimate = (plan.tally() + plan.report(rows, fedldp.source(1))).estimate()
    # Five standard errors, of 5 numbers: by chance in 1 of 300,000 runs.
    assert np.all(np.abs(estimate["x"].mean - [0.6, 0, -0.8]) < 5 * estimate["x"].stderr)
    assert np.all(np.abs(estimate["city"].frequencies - [0, 1]) < 5 * estimate["city"].stderr)
    assert plan.total_epsilon <= 4


# From rows to estimates


class Sparse:
    """Values that have a sparse form, which may be the only one to be asked for."""

    def __init__(self, matrix):
        self.matrix = matrix

    def __len__(self):
        return len(self.matrix)

    def take(self, rows, columns):
        raise AssertionError

    def all(self, columns):
        raise AssertionError

    def vectors(self, columns):
        return SparseRows.of(self.matrix[:, columns])


def test_sparse_values_give_the_same_reports():
    plan = plan_of()
    x = fedldp.source(1).uniform((3000, 4)) * 3 - 1.5
    x[:, 1:][fedldp.source(2).uniform((3000, 3)) < 0.6] = 0.0
    x[0] = np.nan
    x[1, 2] = np.inf
    dense = plan.report_batches([Matrix(x)], fedldp.source(3)).to_bytes()
    sparse = plan.report_batches([Sparse(x)], fedldp.source(3)).to_bytes()
    # Where a vector is scaled down, the order of a sum can make the difference of a rounding.
    differ = plan.parse(dense).counts[0] != plan.parse(sparse).counts[0]
    assert dense == sparse or differ.sum() < 10


@pytest.mark.parametrize("mean_length", [0.3, 1.0])
@pytest.mark.parametrize("epsilon", [1.0, 6.0])
def test_intervals_cover_what_they_say(epsilon, mean_length):
    """Of 2,400 intervals of 95% at least 93.5%, and not more than 96.5%: 3.4 standard errors.

    The numbers of a vector depend on each other only weakly. The seeds are fixed.
    """
    plan = plan_of(Schema.vector(12, length=1.0), epsilon, mean_length=mean_length)
    covered, runs = 0, 200
    weights = np.linspace(-1, 1, 12) ** 3
    truth = 0.5 * mean_length * weights / np.sqrt((weights**2).sum())
    for run in range(runs):
        length = fedldp.source(run).uniform((400, 1))  # of mean 1/2
        x = 2 * length * truth[None]
        estimate = plan.simulate(x, fedldp.source(1000 + run)).estimate()["x"]
        low, high = estimate.interval.T
        covered += np.count_nonzero((low <= truth) & (truth <= high))
    assert 0.935 <= covered / (12 * runs) <= 0.965


def test_expected_errors_compare_with_other_strategies():
    """What is expected of public rows is what comes, within 15%: 4 standard errors or more."""
    d, n = 30, 2000
    source = fedldp.source(5)
    x = source.uniform((n, d)) - 0.5
    x *= 0.8 / np.sqrt((x**2).sum(axis=1, keepdims=True))
    plan = plan_of(Schema.vector(d, length=1.0), 1.0)
    expected = plan.expected_error(n, x, of="fleet")
    found = [
        np.sum((plan.simulate(x, fedldp.source(run)).estimate()["x"].mean - x.mean(axis=0)) ** 2)
        for run in range(40)
    ]
    assert np.mean(found) == pytest.approx(expected, rel=0.15)
    # Sampling one of 30 coordinates errs far more, on the same rows.
    sample = Plan(Schema.vector(d, bound=1.0), 1.0).expected_error(n, x, of="fleet")
    assert 15 * expected < sample < 25 * expected
    assert plan.expected_error(n, "uniform") <= plan.expected_error(n, "worst")


def test_a_tally_is_read_again_and_checked(tmp_path):
    plan = plan_of()
    tally = plan.tally() + plan.report(np.ones((100, 4)), fedldp.source(1))
    tally.save(tmp_path / "tally.json")
    assert plan.load_tally(tmp_path / "tally.json") == tally
    assert tally.plausibility()
    document = json.loads(tally.to_json())
    document["counts"][0][2] += 10**6
    (tmp_path / "tally.json").write_text(json.dumps(document))
    with pytest.raises(WireError, match="impossible for this number of directions"):
        plan.load_tally(tmp_path / "tally.json")


def test_an_estimate_warns_of_searched_seeds():
    plan = plan_of(Schema.vector(8, length=1.0), 1.0)
    (coder,) = plan.parts[0].coders
    seeds = np.arange(1 << 14, dtype=np.uint32)
    sent = coder.codebook.sent(seeds, np.zeros_like(seeds))
    liar = int(np.argmax(sent.sum(axis=0))) << 6
    tally = plan.simulate(np.zeros((10_000, 8)), fedldp.source(1))
    assert tally.plausibility()
    cells = tally.counts[0].copy()
    coder.count(np.full(1000, liar, np.uint32), 0, cells)
    found = replace(tally, reports=11_000, counts=(cells,)).plausibility()
    assert not found
    assert [(each.name, each.kind) for each in found.findings] == [
        ("x", "mean square length of directions")
    ]
    assert "the mean square length of directions about x is" in found.warnings[0]
    assert "at most" in found.warnings[0]


@pytest.mark.parametrize("mean_length", [0.3, 1.0])
def test_the_best_attack_on_reports_finds_the_budget_and_no_more(mean_length):
    """With vectors that are opposite, of which one is known: whose best direction was sent?

    The bound holds with a confidence of 99.9%, and the seed is fixed.
    """
    plan = plan_of(Schema.vector(5, length=1.0), 1.5, mean_length=mean_length)
    (coder,) = plan.parts[0].coders
    vector = np.array([0.8, 0.0, -0.6, 0.0, 0.0])

    def events(rows, source):
        """Return for each report whether its direction is among the best of x, of -x, or null."""
        report = plan.report_batches([Matrix(rows)], source)
        codes = packing.parse(report.records, len(rows), plan.bits).get(0, plan.bits)
        every = codes[:, None] & ~np.uint32(63) | np.arange(64, dtype=np.uint32)
        products = np.stack([coder.vectors(column) @ vector for column in every.T[:63]], axis=1)
        sent = (codes & 63).astype(np.int64)
        own = np.take_along_axis(products, np.minimum(sent, 62)[:, None], axis=1)
        rank = (products > own).sum(axis=1)
        found = 1 * (rank < coder.best) - 1 * (rank >= 63 - coder.best)
        return np.where(sent == 63, 2, found)

    pairs = [(vector, -vector), (vector, 0 * vector)]
    found = audit.attack(events, pairs, fedldp.source(1), samples=10_000, confidence=0.999)
    assert 1.2 < found.bound <= 1.5
