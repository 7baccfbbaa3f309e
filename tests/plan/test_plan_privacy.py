"""The law of whole reports: private in integers, and drawn exactly, whatever the data are."""

import itertools
import json
import math
import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from chances import Chance, Every, EveryRandom
from hypothesis import given
from hypothesis import strategies as st
from plans import HAND_MADE, MIXED, STRATEGIES, canonical, coordinates, inputs, law, plan_of
from spellings import flat_plan

import fedldp
from fedldp import Plan, Schema, Source, vehicle
from fedldp.coders import CODERS
from fedldp.plan.parts import Matrix

# Rows here lack what a test does not need, or hold anything on purpose: what is said about that is
# tested in test_quality.py.
pytestmark = pytest.mark.filterwarnings("ignore::fedldp.errors.DataWarning")

# Privacy, from the text of a plan alone

NUMBER, VECTOR = (-1, 1), {"low": -1, "high": 1, "size": 2}
THREE, SEVEN = ["a", "b", "c"], [str(i) for i in range(7)]
CASES = {
    "one of two": (Schema.of(x=NUMBER, c=THREE), {"k": 1}),
    "two of three": (Schema.of(x=NUMBER, c=THREE, e=SEVEN), {"k": 2}),
    "one of a vector": (Schema.of(x=VECTOR, c=THREE), {"k": 1}),
    "three of four": (Schema.of(x=VECTOR, c=["a", "b"], y=NUMBER), {"k": 3}),
    "split": (Schema.of(x=NUMBER, c=THREE, e=SEVEN), {"strategy": "split"}),
    "paper": (Schema.of(x=VECTOR, c=THREE), {"strategy": "paper"}),
    "paper, two of each": (Schema.of(x=VECTOR, c=THREE, e=["a", "b"]), {"strategy": "paper"}),
    "cube": (Schema.of(x=VECTOR, c=THREE), {"strategy": "cube"}),
    "cube of three": (Schema.of(x=VECTOR, y=NUMBER), {"strategy": "cube"}),
    "cube of none": (Schema.of(c=THREE, e=["a", "b"]), {"strategy": "cube"}),
}


def largest_ratio(document):
    """Return by what factor the probability of a record can change with the data, and be sure
    that the records are the same for all data, and their probabilities add up to 1.
    """
    laws = [law(document, given) for given in inputs(document)]
    assert all(sum(each.values()) == 1 for each in laws)
    assert len({frozenset(each) for each in laws}) == 1
    odds = [[each[record] for each in laws] for record in laws[0]]
    assert min(map(min, odds)) > 0
    return max(max(each) / min(each) for each in odds)


@pytest.mark.parametrize("epsilon", [0.3, 2.1, 6.0])
@pytest.mark.parametrize("name", CASES)
def test_a_whole_report_costs_exactly_its_epsilon(name, epsilon):
    schema, options = CASES[name]
    plan = flat_plan(schema, epsilon, mechanism="three-outputs", **options)
    document = json.loads(plan.to_json())
    limit = vehicle.exp_below(Fraction(document["epsilon"]))
    ratio = largest_ratio(document)
    assert ratio <= vehicle.exp_below(plan.total_epsilon) <= limit
    assert ratio > limit * (1 - Fraction(1, 10**9))


@pytest.mark.parametrize("name", HAND_MADE)
def test_hand_made_plans_keep_what_they_claim(name):
    document = HAND_MADE[name]
    plan = Plan.from_json(canonical(document))
    limit = vehicle.exp_below(plan.total_epsilon)
    ratio = largest_ratio(document)
    assert (
        limit * Fraction(98, 100) < ratio <= limit <= vehicle.exp_below(Fraction(str(plan.epsilon)))
    )


# Every sequence of random words


def row_of(document, given, half_way=False):
    """Return a row with letters, categories and signs; or with numbers between the first two."""
    row = {}
    for part, own in zip(document["parts"], given, strict=True):
        places = iter(zip(coordinates(document, part), own, strict=True))
        for number in part["attributes"]:
            entry = document["schema"][number]
            if "categories" in entry:
                row[entry["name"]] = entry["categories"][next(places)[1]]
                continue
            values = []
            for table, letter in itertools.islice(places, entry["size"]):
                letters = [-1.0, 1.0] if table is None else table["letters"]
                values.append((letters[0] + letters[1]) / 2 if half_way else letters[letter])
            row[entry["name"]] = values if entry["size"] > 1 else values[0]
    return row


def mixed_law(document):
    """Return the law for numbers half-way between their first two letters, and first categories."""
    total = Counter()
    each = [
        [
            (0, 1) if table is None or table["kind"] == "numbers" else (0,)
            for table in coordinates(document, part)
        ]
        for part in document["parts"]
    ]
    corners = list(itertools.product(*(list(itertools.product(*part)) for part in each)))
    for corner in corners:
        for record, odds in law(document, corner).items():
            total[record] += odds / len(corners)
    return dict(total)


def cases(document):
    """Return rows and their laws: all corners, and values half-way between two of them."""
    corners = list(inputs(document))
    laws = [(row_of(document, given), law(document, given)) for given in corners]
    return [*laws, (row_of(document, corners[0], half_way=True), mixed_law(document))]


def test_no_kind_of_coder_is_forgotten():
    """A vehicle that draws by another law than the coder breaks privacy: each kind is compared."""
    tables = {table["kind"] for document in HAND_MADE.values() for table in document["tables"]}
    parts = {part["kind"] for document in HAND_MADE.values() for part in document["parts"]}
    drawn = (tables | parts) - {"sample"} | {"directions"}  # whose odds have a test of their own
    assert drawn == set(CODERS), "add a small plan to HAND_MADE in tests/helpers/plans.py"
    assert set(BITS) == set(HAND_MADE), "write in BITS how many random bits a draw takes"


# Odds add up to 2^bits, at most; a vehicle draws those of a cube in another way.
BITS = {"one of two": 3, "faint": 6, "two of three": 3, "small split": 2, "small paper": 3}
BITS |= {"small cube": 3, "cube of three": 4, "lines and a number": 6}
VEHICLE_BITS = BITS | {"small cube": 2}


@pytest.mark.parametrize("name", HAND_MADE)
@pytest.mark.parametrize("parity", [0, 1])
def test_reports_follow_the_law_exactly(name, parity):
    document = HAND_MADE[name]
    plan, (rows, laws) = Plan.from_json(canonical(document)), zip(*cases(document), strict=True)
    matrix, width = Matrix(plan.schema.rows(rows).matrix()), plan.bits
    chance, found = Chance(), [Counter() for _ in rows]
    for odds in chance.runs():
        data = plan.report_batches([matrix], Every(chance, BITS[name], parity)).to_bytes()
        bits, share = "".join(f"{octet:08b}" for octet in data[16:]), odds()
        for number, seen in enumerate(found):
            seen[bits[number * width : (number + 1) * width], share.denominator] += 1
    assert [probabilities(seen) for seen in found] == list(laws)


def probabilities(seen):
    """Return the probability of each record; a run that was one of n has the probability 1 / n."""
    total = Counter()
    for (record, n), runs in seen.items():
        total[record] += Fraction(runs, n)
    return dict(total)


@pytest.mark.parametrize("name", HAND_MADE)
def test_vehicles_follow_the_law_exactly(name, monkeypatch):
    """Equally likely numbers and orders are drawn as such: see test_plan_random_words.py."""
    monkeypatch.setattr(vehicle, "below", lambda n, rng: rng.below(n))
    monkeypatch.setattr(vehicle, "distinct", lambda count, rng: rng.distinct(count))
    document = HAND_MADE[name]
    plan, several = vehicle.Plan(canonical(document), 99), cases(document)
    for row, wanted in [several[0], several[len(several) // 2], several[-1]]:
        chance, found = Chance(), Counter()
        for odds in chance.runs():
            data = plan.report(row, EveryRandom(chance, VEHICLE_BITS[name]))
            bits = "".join(f"{octet:08b}" for octet in data[16:])
            found[bits[: plan.bits], odds().denominator] += 1
        assert probabilities(found) == wanted


# The data never decide


class Counted(Source):
    """A source that counts what was drawn, in bytes."""

    __slots__ = ("drawn",)

    def __init__(self):
        super().__init__(bytes(32), "counted")
        self.drawn = []

    def fill(self, out):
        super().fill(out)
        self.drawn.append(out.nbytes)


class CountedRandom(random.Random):
    def __init__(self):
        super().__init__(1)
        self.drawn = []

    def getrandbits(self, size):
        self.drawn.append(size)
        return super().getrandbits(size)


ANYTHING = st.recursive(
    st.one_of(
        *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
        st.sampled_from([400, 5000]).map(lambda digits: -(10**digits)),
        st.sampled_from(["Rome", "Oslo", "31", "nan", "1e999", "\ud800", b"Rome", 3j, object()]),
        st.sampled_from([math.inf, -math.inf, math.nan, -0.0, 1e308, np.float32(3), np.int8(1)]),
        st.sampled_from([np.datetime64("2020"), np.zeros(3), np.zeros((3, 1)), np.ma.masked]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner, inner),
        st.dictionaries(st.text(max_size=3), inner, max_size=2),
    ),
    max_leaves=5,
)
ROWS = st.dictionaries(st.sampled_from([*MIXED.names, "other", ""]), ANYTHING, max_size=5)
PLANS = {name: plan_of(MIXED, name=name) for name in STRATEGIES}
READY = {name: vehicle.Plan(plan.to_json(), 4) for name, plan in PLANS.items()}
USUAL = {"age": 31, "city": "Rome", "way": [0.2, 2.5, -0.7], "colour": "colour 7"}


@given(st.sampled_from(sorted(PLANS)), st.lists(ROWS, min_size=1, max_size=9))
def test_all_rows_are_answered_with_the_same_number_of_bytes_and_words(name, rows):
    plan, usual, other = PLANS[name], Counted(), Counted()
    wanted = plan.report([USUAL] * len(rows), usual).to_bytes()
    data = plan.report(rows, other).to_bytes()
    assert len(data) == len(wanted)
    assert usual.drawn == other.drawn
    assert plan.parse(data).reports == len(rows)
    for row in rows:
        words, others = CountedRandom(), CountedRandom()
        sent = READY[name].report(row, words)
        assert len(sent) == len(READY[name].report(USUAL, others))
        assert words.drawn == others.drawn
        assert plan.parse(sent).reports == 1


@pytest.mark.parametrize("name", PLANS)
def test_any_arrays_are_answered(name):
    schema = Schema.of(age=(0, 100), way={"low": -1, "high": 3, "size": 5})
    plan = plan_of(schema, name=name)
    wild = np.array([math.nan, math.inf, -math.inf, 1e308, -1e308, 0.0])
    usual, other = Counted(), Counted()
    kept = wild.copy()
    wanted = plan.report(np.zeros((40, 6)), usual).to_bytes()
    data = plan.report(np.tile(wild, (40, 1)), other).to_bytes()
    assert len(data) == len(wanted)
    assert usual.drawn == other.drawn
    as_texts = plan.report(np.tile(wild.astype(object), (40, 1)), Counted()).to_bytes()
    assert as_texts == data
    np.testing.assert_array_equal(wild, kept)  # nothing is changed in place


@given(st.sampled_from(sorted(PLANS)), ROWS)
def test_unreadable_values_are_treated_as_missing(name, row):
    """Nothing about such a value shows: the very bytes are those of the public value."""
    plan = PLANS[name]
    matrix = plan.schema.rows([row]).matrix()
    missing = np.array([[20.0, 1.0, 3.0, 3.0, 3.0, 0.0]])
    filled = np.where(np.isnan(matrix), missing, matrix)
    batches = [[Matrix(each)] for each in (matrix, filled)]
    first, second = (plan.report_batches(batch, fedldp.source(3)) for batch in batches)
    assert first == second == plan.report([row], fedldp.source(3))
