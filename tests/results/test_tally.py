"""Tallies: exact under any order and sharding, whole on disk, and large."""

import functools
import hashlib
import itertools
import json
import math
import operator
import os
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import HAND_MADE, MIXED, NUMBERS, STRATEGIES, canonical, places, plan_of

import fedldp
from fedldp import Plan, Schema, Tally
from fedldp.errors import DomainError, WireError
from fedldp.results.tally import MOST_REPORTS

# Rows here lack what a test does not need, or hold anything on purpose: what is said about that is
# tested in test_quality.py.
pytestmark = pytest.mark.filterwarnings("ignore::fedldp.errors.DataWarning")

PLANS = {name: plan_of(MIXED, name=name) for name in STRATEGIES}
PLANS |= {name: Plan.from_json(canonical(document)) for name, document in HAND_MADE.items()}


def single_reports(plan, n, seed=1):
    """Return the report of each of some vehicles."""
    rng, source = random.Random(seed), fedldp.source(seed)
    rows = [{"age": rng.uniform(0, 100), "x": rng.uniform(-1, 1)} for _ in range(n)]
    return [plan.report([row], source).to_bytes() for row in rows]


def some_tally(plan, n=50, seed=1):
    return plan.simulate([whole_row(plan.schema)] * n, fedldp.source(seed))


def whole_row(schema):
    """Return a row with a value for each attribute."""
    row = {"age": 80, "city": "Rome"}
    for attribute in schema.attributes:
        if attribute.inputs.numeric:
            lows = [attribute.low] * attribute.size
            row.setdefault(attribute.name, lows if attribute.size > 1 else attribute.low)
        else:
            row.setdefault(attribute.name, attribute.categories[0])
    return {name: row[name] for name in schema.names}


def total(tallies):
    return functools.reduce(operator.add, tallies)


# Adding


@settings(max_examples=25)
@given(st.sampled_from(sorted(PLANS)), st.randoms(use_true_random=False))
def test_any_order_and_sharding_give_the_same(name, rng):
    plan = PLANS[name]
    reports = single_reports(plan, 12, rng.randrange(5))
    wanted = total(map(plan.parse, reports))
    shuffled = rng.sample(reports, len(reports))
    shards = [plan.tally() for _ in range(rng.randint(1, 5))]
    for each in shuffled:
        place = rng.randrange(len(shards))
        shards[place] += plan.parse(each)
    found = total(rng.sample(shards, len(shards)))
    assert found == wanted
    assert hash(found) == hash(wanted)
    assert found.to_json() == wanted.to_json()
    assert found.reports == 12


@pytest.mark.parametrize("name", PLANS)
def test_adding_is_associative_and_commutative_and_has_a_zero(name):
    plan = PLANS[name]
    a, b, c = (some_tally(plan, n, n) for n in (3, 40, 11))
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert a + plan.tally() == a
    assert a + b != a
    assert a != plan.tally()
    assert (a + b).reports == 43
    for cells, x, y in zip((a + b).counts, a.counts, b.counts, strict=True):
        assert cells.tolist() == [i + j for i, j in zip(x.tolist(), y.tolist(), strict=True)]


def test_a_batch_is_the_sum_of_its_parts():
    plan = PLANS["sample"]
    rows = [{"age": i % 100} for i in range(64)]
    batch = plan.report(rows, fedldp.source(3)).to_bytes()
    bits = "".join(f"{octet:08b}" for octet in batch[16:])
    single = []
    for i in range(64):
        record = bits[i * plan.bits : (i + 1) * plan.bits]
        packed = int(record.ljust(88, "0"), 2).to_bytes(11, "big")
        single.append(fedldp.plan.report.Report(plan.fingerprint, plan.bits, 1, packed).to_bytes())
    assert total(map(plan.parse, single)) == plan.parse(batch)


@pytest.mark.parametrize("strategy", ["split", "paper", "cube"])
def test_coordinates_that_all_answer_are_counted_where_they_belong(strategy):
    """More vehicles than are counted at a time, who hardly lie: off by 0.03 never, in effect."""
    cities = [str(number) for number in range(40)]
    schema = fedldp.Schema.of(a=(-1, 1), b=(-1, 1), c=cities, e=["x", "y"], f=["x", "y"])
    plan = fedldp.Plan(schema, 16.0, strategy=strategy)
    assert all(part.k == part.units for part in plan.parts)
    rows = [{"a": 1, "b": -1, "c": "1", "e": "y", "f": "x"}] * 52_500
    rows += [{"a": -1, "b": -1, "c": "0", "e": "x", "f": "x"}] * 17_500
    estimate = plan.parse(plan.report(rows, fedldp.source(1)).to_bytes()).estimate()
    found = [estimate[name].frequencies[:2] for name in "cef"]
    np.testing.assert_allclose(found, [[0.25, 0.75], [0.25, 0.75], [1.0, 0.0]], atol=0.03)
    np.testing.assert_allclose([estimate["a"].mean, estimate["b"].mean], [0.5, -1.0], atol=0.03)


def test_tallies_of_different_plans_do_not_add():
    a, b = some_tally(plan_of(NUMBERS, 4.0)), some_tally(plan_of(NUMBERS, 4.5))
    with pytest.raises(DomainError, match=r"of different plans: .* with fedldp\.combine"):
        a + b
    assert a != b
    for wrong in (0, None, "x", [1]):
        with pytest.raises(TypeError):
            a + wrong
        assert a != wrong


def test_counters_cannot_be_changed():
    tally = some_tally(PLANS["sample"])
    with pytest.raises(ValueError, match="read-only"):
        tally.counts[0][0] += 1
    with pytest.raises(AttributeError):
        tally.reports = 7


# Files


@pytest.mark.parametrize("name", PLANS)
def test_saved_and_loaded_it_is_the_same(name, tmp_path):
    plan = PLANS[name]
    for tally in (plan.tally(), some_tally(plan)):
        tally.save(tmp_path / "tally.json")
        text = (tmp_path / "tally.json").read_text("ascii")
        assert text == tally.to_json() == canonical(json.loads(text))
        loaded = plan.load_tally(str(tmp_path / "tally.json"))
        assert loaded == tally
        assert [cells.dtype for cells in loaded.counts] == [np.int64] * len(plan.parts)
    assert [path.name for path in tmp_path.iterdir()] == ["tally.json"]


class PowerCut(BaseException):
    """Not even an Exception."""


def cut(*_):
    raise PowerCut


class FullDisk:
    """A file that takes a few bytes and no more."""

    def __init__(self, file):
        self.file = file

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def write(self, text):
        self.file.write(text[:7])
        raise PowerCut


@pytest.mark.parametrize("where", ["write", "fsync", "replace"])
def test_a_failing_write_leaves_the_old_file(where, tmp_path, monkeypatch):
    plan, path = PLANS["sample"], tmp_path / "tally.json"
    old, new = some_tally(plan, 5), some_tally(plan, 50)
    old.save(path)
    with monkeypatch.context() as patch:
        if where == "write":
            opened = Path.open
            patch.setattr(Path, "open", lambda *args, **options: FullDisk(opened(*args, **options)))
        elif where == "fsync":
            patch.setattr(os, "fsync", cut)
        else:
            patch.setattr(Path, "replace", cut)
            patch.setattr(os, "replace", cut)
        with pytest.raises(PowerCut):
            new.save(path)
    assert plan.load_tally(path) == old
    assert [each.name for each in tmp_path.iterdir()] == ["tally.json"]
    new.save(path)
    assert plan.load_tally(path) == new


OTHERS = [None, True, 0, 1, -1, 49, 51, 2**46 + 1, 2**63, 10**400, 1.0, math.nan, "", "50", [], {}]
OTHERS += [[[]], [0] * 99, "x", [[0]]]


@pytest.mark.parametrize("name", ["one of two", "two of three", "small cube", "small split"])
def test_malformed_files_are_refused(name, tmp_path):
    """Every entry replaced; and a counter moved by one never fits the number of reports."""
    plan, path = PLANS[name], tmp_path / "tally.json"
    text = some_tally(plan).to_json()
    for place, other in itertools.product(places(json.loads(text)), [*OTHERS, ..., "+1"]):
        document = inner = json.loads(text)
        for key in place[:-1]:
            inner = inner[key]
        before = inner[place[-1]]
        if other is ...:
            del inner[place[-1]]
        elif other == "+1":
            if type(before) is not int:
                continue
            inner[place[-1]] += 1
        else:
            inner[place[-1]] = other
        if type(before) is type(other) and before == other:
            continue
        path.write_text(json.dumps(document))
        try:
            loaded = plan.load_tally(path)
        except WireError:
            continue
        # A bit of a unary code is not tied to any other.
        assert place[0] == "counts"
        assert loaded.to_json() == canonical(document)
        assert any(table["kind"] == "unary" for table in HAND_MADE[name]["tables"])


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        # 7 reports of two of three: counters of x, of the bits of e and its answers, and of c
        ([[2, 1, 2, 4, 0, 5, 5, 1, 2, 1]], None),
        ([[2, 1, 2, 4, 0, 5, 5, 1, 2, 2]], "more answers, or fewer"),
        ([[7, 0, 0, 7, 0, 7, 7, 0, 0, 0]], None),
        ([[7, 1, 0, 6, 0, 6, 6, 0, 0, 0]], "more answers than reports"),
        ([[2, 1, 2, 6, 0, 5, 5, 1, 2, 1]], "larger than the number of answers"),
        ([[2, 1, 2, 8, 0, 5, 5, 1, 2, 1]], "larger than"),
        ([[2, 1, 2, -1, 0, 5, 5, 1, 2, 1]], "a counter is negative"),
        ([[2, 1, 2, 4, 0, 5, 5, 1, 2]], "wrong number of counters"),
        ([[2, 1, 2, 4, 0, 5, 5, 1, 2, 1], []], "a list for each part"),
        ([[2, 1, 2, 4, 0, 5, 5, 1, 2, 1.0]], "not whole numbers"),
    ],
)
def test_counters_must_be_possible(counts, said, tmp_path):
    plan, path = PLANS["two of three"], tmp_path / "tally.json"
    document = json.loads(plan.tally().to_json())
    path.write_text(json.dumps({**document, "reports": 7, "counts": counts}))
    if said is None:
        assert plan.load_tally(path).reports == 7
    else:
        with pytest.raises(WireError, match=said):
            plan.load_tally(path)


# Bytes


@pytest.mark.parametrize("name", PLANS)
def test_bytes_and_back(name, tmp_path):
    plan = PLANS[name]
    for tally in (plan.tally(), some_tally(plan), some_tally(plan, 300) + some_tally(plan, 2)):
        data = tally.to_bytes()
        assert Tally.from_bytes(data, plan) == tally
        assert data == Tally.from_bytes(bytearray(data), plan).to_bytes()
        assert len(data) <= 85 + sum(1 + 8 * cells.size for cells in tally.counts)
        (tmp_path / "tally.bin").write_bytes(data)
        loaded = plan.load_tally(tmp_path / "tally.bin")
        assert loaded == tally
        assert [cells.dtype for cells in loaded.counts] == [np.int64] * len(plan.parts)


def test_golden_bytes():
    """As docs/wire-format.md describes them."""
    plan = PLANS["one of two"]
    assert plan.fingerprint[:14] == "d73fad3784b76d"
    head = b"fedldp tally\1" + bytes.fromhex(plan.fingerprint)
    for reports, counts, size, octets in [
        (0, [0, 0, 0, 0, 0, 0], 0, ""),
        (127, [127, 0, 0, 0, 0, 0], 1, "7f 00 00 00 00 00"),
        (131, [0, 128, 0, 1, 0, 2], 2, "0000 0080 0000 0001 0000 0002"),
    ]:
        cells = np.array(counts[: plan.parts[0].starts[-1]])
        tally = replace(plan.tally(), reports=reports, counts=(cells,))
        packed = bytes.fromhex(octets)[: size * cells.size]
        data = head + reports.to_bytes(8, "big") + bytes([size]) + packed
        assert tally.to_bytes() == data + hashlib.sha256(data).digest()


def test_counters_below_zero_survive():
    plan = Plan(Schema.vector(3, length=1.0), 2.0, strategy="directions")
    source, rows = fedldp.source(1), [{"x": [-0.9, 0.1, 0.0]}] * 500
    tally = plan.simulate(rows, source)
    assert tally.counts[0].min() < -1000
    assert Tally.from_bytes(tally.to_bytes(), plan) == tally


@pytest.mark.parametrize("name", ["one of two", "two of three", "small split"])
def test_damaged_bytes_are_refused(name):
    plan, data = PLANS[name], some_tally(PLANS[name]).to_bytes()
    with pytest.raises(WireError, match="it belongs to another plan"):
        Tally.from_bytes(data, PLANS["small cube"])
    for size in range(len(data)):
        with pytest.raises(WireError):
            Tally.from_bytes(data[:size], plan)
    for more in (b"\0", data):
        with pytest.raises(WireError):
            Tally.from_bytes(data + more, plan)
    for place in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[place // 8] ^= 128 >> place % 8
        with pytest.raises(WireError):
            Tally.from_bytes(bytes(flipped), plan)
        body = bytes(flipped[:-32])  # with the right checksum it is another tally, or refused
        sealed = body + hashlib.sha256(body).digest()
        try:
            found = Tally.from_bytes(sealed, plan)
        except WireError:
            continue
        assert sealed in (found.to_bytes(), data)


def test_bytes_that_are_not_the_shortest_are_refused():
    plan = PLANS["one of two"]
    body = plan.tally().to_bytes()[:-32]
    cells = int(plan.parts[0].starts[-1])
    for changed, said in [
        (body[:-1] + b"\1" + bytes(cells), "other bytes than the counters need"),
        (body + b"\0", "other bytes than the counters need"),
        (body[:-1] + b"\1" + bytes(cells - 1), "ends before its counters"),
        (body[:-1] + b"\11" + bytes(9 * cells), "ends before its counters"),
        (body[:-1], "not a tally of this plan"),
        (
            body[:12] + b"\2" + body[13:],
            "'fedldp tally 2', which a newer version",
        ),
    ]:
        with pytest.raises(WireError, match=said):
            Tally.from_bytes(changed + hashlib.sha256(changed).digest(), plan)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(data):
    for given_ in (data, PLANS["sample"].tally().to_bytes()[:60] + data):
        with pytest.raises(WireError):
            Tally.from_bytes(given_, PLANS["sample"])
    for other in (None, "text", 7):
        with pytest.raises(WireError):
            Tally.from_bytes(other, PLANS["sample"])


@given(st.one_of(st.binary(), st.text().map(str.encode), st.just(b"[" * 10**5)))
def test_any_file_is_refused(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any tally.json"
    path.write_bytes(data)
    with pytest.raises(WireError, match=r"not a ('fedldp tally 1'|tally) of this plan"):
        PLANS["sample"].load_tally(path)


def test_a_tally_of_another_plan_is_refused(tmp_path):
    some_tally(plan_of(NUMBERS, 4.0)).save(tmp_path / "tally.json")
    with pytest.raises(WireError, match="another plan"):
        plan_of(NUMBERS, 4.5).load_tally(tmp_path / "tally.json")
    with pytest.raises(FileNotFoundError):
        plan_of(NUMBERS, 4.5).load_tally(tmp_path / "none.json")


# Many and none


def times(tally, n):
    """Return a tally added up n times, by doubling."""
    found = None
    while n:
        if n & 1:
            found = tally if found is None else found + tally
        n >>= 1
        tally = tally + tally if n else tally
    return found


@pytest.mark.filterwarnings("ignore::fedldp.errors.ImplausibleWarning")  # a few, copied
@pytest.mark.parametrize("name", PLANS)
def test_a_million_million_reports(name, tmp_path):
    """The estimate is that of a million, and its error smaller by the root of their number."""
    plan = PLANS[name]
    few = some_tally(plan, 1000)
    many = times(few, 10**9)
    assert many.reports == 10**12
    for cells, once in zip(many.counts, few.counts, strict=True):
        assert cells.tolist() == [10**9 * n for n in once.tolist()]
    many.save(tmp_path / "tally.json")
    assert plan.load_tally(tmp_path / "tally.json") == many
    for estimator, of in itertools.product(("ratio", "horvitz-thompson"), ("population", "fleet")):
        small, large = (each.estimate(estimator, of=of) for each in (times(few, 1000), many))
        for attribute in plan.schema.names:
            a, b = small[attribute], large[attribute]
            mean = "mean" if hasattr(a, "mean") else "frequencies"
            np.testing.assert_allclose(getattr(b, mean), getattr(a, mean), rtol=1e-11, atol=1e-11)
            error = np.asarray(a.stderr) / np.asarray(b.stderr) / 1000
            np.testing.assert_allclose(error, 1.0, rtol=0.01)  # what is added for rare values
            assert np.all(np.asarray(b.answers) == np.asarray(a.answers) * 10**6)


@pytest.mark.filterwarnings("ignore::fedldp.errors.ImplausibleWarning")  # one vehicle, copied
def test_more_than_can_be_counted_are_refused(tmp_path):
    plan = PLANS["small split"]
    one = some_tally(plan, 1)
    full = times(one, MOST_REPORTS)
    assert full.reports == MOST_REPORTS == 2**46
    full.save(tmp_path / "tally.json")
    assert plan.load_tally(tmp_path / "tally.json") == full
    assert math.isfinite(full.estimate()["x"].mean)
    for more in (one, full):
        with pytest.raises(DomainError, match=f"at most {2**46} reports; got"):
            full + more
    assert full + plan.tally() == full


def test_a_full_tally_of_many_coordinates_can_be_loaded(tmp_path):
    """All answers together are more than 64 bits can count."""
    plan = Plan(Schema.vector(2000, 1.0), 4.0, strategy="cube")
    full = times(some_tally(plan, 1), MOST_REPORTS)
    full.save(tmp_path / "tally.json")
    assert plan.load_tally(tmp_path / "tally.json") == full


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("estimator", ["ratio", "horvitz-thompson"])
@pytest.mark.parametrize("of", ["population", "fleet"])
def test_no_vehicle_reported(name, estimator, of):
    """NaN and infinite errors, and no warning, which would be an error here."""
    plan = PLANS[name]
    tally = plan.tally()
    assert isinstance(tally, Tally)
    assert all(not cells.any() for cells in tally.counts)
    found = tally.estimate(estimator, of=of)
    assert (tuple(found), found.reports) == (plan.schema.names, 0)
    for each in found.values():
        mean = each.mean if hasattr(each, "mean") else each.frequencies
        assert np.all(np.isnan(mean))
        assert np.all(np.isposinf(each.stderr))
        assert np.all(np.asarray(each.answers) == 0)
    one = some_tally(plan, 1).estimate(estimator, of=of)
    assert all(np.all(np.isposinf(each.stderr)) for each in one.values() if estimator == "ratio")
