"""The benchmarks' own arithmetic; no test asserts a time."""

import argparse
import itertools
import math
import sys
from dataclasses import dataclass, replace

import bench
import cases
import flights
import flower_mods
import flower_noise
import growth
import harness
import numpy as np
import pages
import pytest
import references
import scale
import sizes
import straightforward
from harness import Case, Row, Spread

import fedldp
from fedldp import _plots, mechanisms
from fedldp.coders.categories import RandomizedResponse, UnaryEncoding
from fedldp.mechanisms import Dominant, Duchi, Finite, Laplace
from fedldp.plan.strategies import Sample


def test_ways_take_turns_forwards_and_backwards():
    called = []
    ways = {name: lambda name=name: called.append(name) for name in "abc"}
    times = harness.interleaved(ways, 3, lambda way: way() or float(len(called)))
    assert "".join(called) == "abc" + "cba" + "abc" + "cba"
    assert times == {"a": [6, 7, 12], "b": [5, 8, 11], "c": [4, 9, 10]}  # not the first turn's


def test_seconds_are_those_of_the_clock_around_the_work():
    ticks = iter([3.0, 5.5])
    done = []
    assert harness.seconds(lambda: done.append(1), lambda: next(ticks)) == 2.5
    assert done == [1]


def test_ratios_are_taken_within_a_turn():
    """A machine that is ten times as slow in one turn changes no ratio."""
    ours, naive = [1.0, 10.0, 2.0], [3.0, 30.0, 6.0]
    assert harness.ratios(naive, ours) == Spread.exactly(3.0)
    assert Spread.of([1, 2, 3, 4, 5]) == Spread(2, 3, 4)
    with pytest.raises(ValueError, match="longer"):
        harness.ratios([1.0], [1.0, 2.0])


def test_a_row_pools_the_turns_of_all_processes():
    first = {"ours": [1.0, 1.0], "straightforward": [2.0, 2.0], "limit": [0.5, 0.5], "items": [4]}
    second = {"ours": [2.0, 2.0], "straightforward": [8.0, 8.0], "limit": [0.5, 0.5], "items": [4]}
    row = harness.row("work", [first, second])
    assert (row.each, row.unit) == (1.5 / 4 * 1e9, "ns")
    assert row.faster == Spread(2.0, 3.0, 4.0)
    assert row.limit == Spread(2.0, 3.0, 4.0)
    alone = harness.row("work", [{"ours": [1.0], "items": [1]}])
    assert (alone.faster, alone.limit) == (None, None)


def test_a_part_of_the_straightforward_work_is_scaled():
    case = Case(lambda: None, 10, straightforward=lambda: sum(range(1000)), limit=lambda: None)
    whole, tenth = (
        harness.timed(replace(case, part=part), turns=2)["straightforward"] for part in (1.0, 1e-9)
    )
    assert min(tenth) > max(whole) * 1e3  # by the arithmetic, whatever the machine does
    assert harness.timed(case, turns=1)["items"] == [10]


def test_changes_are_those_beyond_both_spreads():
    old = [Row("a", 1.0, "ns", Spread(2.0, 2.1, 2.2), Spread(1.0, 1.1, 1.2)), Row("b", 1.0, "ns")]
    near = Row("a", 9.0, "ns", Spread(2.3, 2.35, 2.4), Spread(1.0, 1.1, 1.2))
    far = Row("a", 1.0, "ns", Spread(2.9, 3.0, 3.1), Spread(1.0, 1.1, 1.2))
    assert harness.changes(old, [near, Row("b", 2.0, "ns"), Row("new", 1.0, "ns")]) == []
    (change,) = harness.changes(old, [far])
    assert (change.what, change.against) == ("a", "faster")
    assert (change.before, change.after) == (old[0].faster, far.faster)
    assert not Spread.exactly(1.0).apart(Spread.exactly(1.0))
    assert Spread.exactly(1.0).apart(Spread.exactly(1.01))  # sizes have no spread


def test_a_run_is_kept_and_compared(tmp_path, capsys):
    rows = [Row("a", 1.5, "ns", Spread(1.0, 2.0, 3.0), None), Row("b", 9.0, "bits")]
    harness.save(tmp_path / "old.json", rows, "a machine")
    assert harness.load(tmp_path / "old.json") == (rows, "a machine")
    after = [replace(rows[0], faster=Spread(11.0, 12.0, 13.0)), rows[1]]
    harness.save(tmp_path / "new.json", after, "another")
    bench.difference(tmp_path / "old.json", tmp_path / "new.json").print()
    shown = capsys.readouterr().out
    assert "1 ratios changed" in shown
    assert "the machines differ" in shown
    assert "6.00" in shown
    (tmp_path / "none.json").write_text("{}")
    with pytest.raises(SystemExit, match="is no"):
        harness.load(tmp_path / "none.json")


def test_numbers_have_three_digits():
    values = (0.1234, 1.234, 12.34, 123.4, 12345.6)
    assert [harness.shown(value) for value in values] == ["0.123", "1.23", "12.3", "123", "12,346"]
    assert str(Spread(1.0, 2.0, 3.0)) == "2.00 (1.00 - 3.00)"
    assert str(Spread.exactly(2.0)) == "2.00"


def test_tables_go_between_the_marks_of_a_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- begin: x -->\nold\n<!-- end: x -->\nb\n")
    table = pages.Table("Title", ("what", "each"), [("work", "1 ns")])
    for _ in range(2):  # the second time changes nothing
        pages.publish("x", [table], "a machine", page)
        assert page.read_text() == (
            "a\n<!-- begin: x -->\n**Title**\n\n| what | each |\n| --- | ---: |\n"
            f"| work | 1 ns |\n\n*a machine; commit {pages.commit()}.*\n<!-- end: x -->\nb\n"
        )
    for broken in ("no marks", "<!-- end: x -->\n<!-- begin: x -->\n"):
        with pytest.raises(SystemExit, match="one line"):
            pages.replaced(broken, "x", "new")


def test_every_case_runs(monkeypatch):
    monkeypatch.setattr(cases, "MILLION", 8000)
    for name, make in cases.CASES.items():
        row = harness.row(name, [harness.timed(make(), turns=1)])
        found = (row.each, row.faster.middle, row.limit.middle)
        assert all(np.isfinite(found)), name


def test_growth_runs():
    collected, trained, tabled = growth.collect(1000, 20), growth.train(1000), growth.tabulate(7)
    assert collected.bits == 10  # 5 for which of 20, 5 for one of 31 outputs
    assert tabled.bits == 3
    assert min(collected.memory, trained.memory) > 1


@pytest.mark.parametrize("name", fedldp.mechanism_names())
def test_the_straightforward_way_does_the_same_work(name):
    """Means and variances are those of the mechanism.

    The means of 24 cases are off by 5 standard errors with a probability of 1e-5 in all; variances,
    for which tails count more, may differ by a tenth.
    """
    does_the_same_work(fedldp.mechanism(name, 2.0), cases.discretized(name))


@dataclass(frozen=True)
class Levels(Finite):
    """A new mechanism, of which the benchmarks know nothing: randomized response on -1, 0, 1."""

    name = "levels"
    epsilon: float

    letters = np.array([-1.0, 0.0, 1.0])

    @property
    def table(self):
        lie = math.exp(-self.epsilon)
        return (np.eye(3) * (1 - lie) + lie) / (1 + 2 * lie)

    @property
    def values(self):
        lie = math.exp(-self.epsilon)
        return self.letters * (1 + 2 * lie) / (1 - lie)


def test_a_new_mechanism_needs_no_way_of_its_own(monkeypatch):
    monkeypatch.setitem(mechanisms._REGISTRY, "levels", Levels)
    does_the_same_work(fedldp.mechanism("levels", 2.0), cases.discretized("levels"))
    assert [*_plots.mechanism_looks()] == [*fedldp.mechanism_names()]


def does_the_same_work(m, outputs):
    n = 100_000
    rng = np.random.default_rng(5)
    for x in (0.3, -0.9):
        noisy = straightforward.perturb(m, np.full(n, x), rng)
        variance = float(m.variance(x))
        assert abs(noisy.mean() - x) < 5 * math.sqrt(variance / n)
        assert noisy.var() == pytest.approx(variance, rel=0.1)
        if isinstance(m, Laplace):
            continue
        channel = m.channel(outputs)
        codes = straightforward.encode(m, channel.outputs, np.full(n, x), rng)
        if isinstance(m, Finite) and codes.min() < 0:
            codes = np.searchsorted(np.sign(channel.values), codes)
        decoded = channel.decode(codes)
        assert abs(decoded.mean() - x) < 5 * math.sqrt(channel.worst_case_variance / n)


def test_straightforward_records_are_those_of_the_wire():
    index, code = cases._fields()
    some = slice(1001)
    fields = list(zip((index[some], code[some]), cases.FIELDS, strict=True))
    packet, width = straightforward.packed(fields), sum(cases.FIELDS)
    filled = cases.records.empty(1001, width)
    filled.put(0, cases.FIELDS[0], index[some])
    filled.put(cases.FIELDS[0], cases.FIELDS[1], code[some])
    assert packet == filled.to_bytes()
    numbers = straightforward.unpacked(packet, 1001, width)
    assert np.array_equal(numbers, (index[some] << cases.FIELDS[1]) + code[some])


def test_the_straightforward_server_estimates_the_same():
    plan = fedldp.Plan(
        fedldp.Schema.vector(5, bound=1.0), 1.0, Sample(k=1, mechanism="three-outputs")
    )
    report = plan.report(np.full((1001, 5), 0.3), fedldp.source(1))
    values = plan.parts[0].coders[0].values
    found = straightforward.served(report.records, 1001, (3, 2), values, 5)
    expected = plan.parse(report.to_bytes()).estimate("horvitz-thompson")["x"].mean
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("train", [straightforward.train, straightforward.train_sampled])
def test_the_straightforward_step_is_against_the_gradient(train):
    """Off by six standard errors, in 10 numbers: once in 10^7 tries."""
    n, d, m = 100_000, 5, Duchi(4.0)
    x, y = np.full((n, d), [0.9, -0.5, 0.0, 0.2, -1.0]), np.ones(n)
    step = train(m, x, y, n, np.random.default_rng(6))
    error = 0.1 * math.sqrt(d * (m.worst_case_variance + 1) / n)
    assert np.abs(step - 0.1 * 0.5 * x[0]).max() < 6 * error


def test_entropy_of_a_code():
    assert sizes.entropy_of_code(Duchi(1.0).channel()) == pytest.approx(1)
    assert sizes.entropy_of_code(RandomizedResponse.of(1.0, 8)) == 3
    coder = UnaryEncoding.of(1.0, 3)
    odds = dict.fromkeys(itertools.product((0, 1), repeat=3), 0.0)
    for own, bits in itertools.product(range(3), odds):
        each = [coder.p if place == own else coder.q for place in range(3)]
        odds[bits] += math.prod(p if bit else 1 - p for p, bit in zip(each, bits, strict=True)) / 3
    expected = -sum(p * math.log2(p) for p in odds.values())
    assert sizes.entropy_of_code(coder) == pytest.approx(expected)


def test_entropy_of_a_channel_is_that_of_uniform_data():
    """Sampled: 500,000 codes give the entropy within 0.005 bits, ten of its standard errors."""
    channel = Dominant(2.0).channel()
    codes = channel.encode(fedldp.source(1).uniform(500_000) * 2 - 1, fedldp.source(2))
    odds = np.bincount(codes) / codes.size
    sampled = -np.sum(odds[odds > 0] * np.log2(odds[odds > 0]))
    assert sizes.entropy_of_code(channel) == pytest.approx(sampled, abs=0.005)


def test_no_report_is_smaller_than_its_entropy():
    for row in sizes.rows():
        assert row.limit.middle >= 1, row.what


def test_packets_for_counting_are_valid_and_written_to_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(scale, "SHARD", 700)
    monkeypatch.setattr(scale, "BATCH", 128)
    for k, bits in ((1, 9), (4, 36)):
        folder = tmp_path / str(k)
        folder.mkdir()
        scale.write(folder, k, 1000)
        assert scale.plan(k).bits == bits
        found = scale.plan(k).count(folder)
        assert (found.packets, found.refused, len(found.manifest)) == (1000, {}, 2)
        [row, *_] = scale.packets(scale.plan(k), 1, seed=1)
        assert scale.plan(k).parse(row.tobytes()).reports == 1
    ways = scale.in_memory(1, 500, 10)
    assert min(ways) > 0


def test_noise_takes_accuracy_away():
    for adam in (False, True):
        none, some, much = (flower_noise.kept(15, each, 3, adam) for each in (0, 3, 20))
        assert none == 1 > some > much


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_mods_of_flower_run_and_only_one_of_them_says_too_much(monkeypatch, capsys):
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.setenv("IRIS_LEDGER", "")
    flower_mods.with_example()
    numbers, leaves = flower_mods.main(flower_mods.parser().parse_args(["--clients=8", "--runs=1"]))
    sizes_of = {row[0]: int(row[-1]) for row in numbers.rows}
    assert sizes_of["LDPMod"] < 130 < 500 < sizes_of["LocalDpMod"]
    noises = [float(row[2]) for row in numbers.rows]
    assert noises[0] == 0
    assert all(4 * ours > theirs > 2 * ours for ours, theirs in (noises[1:3], noises[3:5]))
    (ours, report, quiet), (theirs, more, loud) = leaves.rows
    assert (ours, theirs) == ("LDPMod", "LocalDpMod")
    assert report == "`fedldp`: fedldp"
    assert "num-examples" in more
    assert flower_mods.SECRET in loud
    assert flower_mods.SECRET not in quiet
    assert "accuracy" in capsys.readouterr().out


def test_an_error_becomes_a_factor_of_vehicles():
    """Errors of the default on the whole fleet, a half, ..., a 64th; one of them by chance less."""
    curve = np.array([0.10, 0.12, 0.11, 0.14, 0.16, 0.18, 0.20])
    assert [flights.factor(error, curve) for error in (0.09, 0.10)] == ["1 or less"] * 2
    assert flights.factor(0.11, curve) == "1.4"  # halfway to the half
    assert flights.factor(0.16, curve) == "16"
    assert flights.factor(0.21, curve) == "more than 64"


def test_references_are_far_below_the_base_rate():
    """Of the flights, 0.237 are late."""
    parts = flights.parts_of(seed=1, vehicles=2000)
    assert flights.majority(parts, "logistic") == pytest.approx(0.237, abs=0.005)
    assert flights.converged(parts, "logistic") < 0.12
    assert references.boosted_trees(parts, "logistic") < 0.14
    assert references.boosted_trees(parts, "squared") < flights.majority(parts, "squared") / 2


def test_fixed_features_tell_gaits_apart_and_references_have_no_standard_error():
    given = argparse.Namespace(vehicles=1000, path=None, diamonds=None, seeds=2, first=1)
    made = references.features(given)
    for _, *privately, converged, trees in made.rows:
        assert all("±" in each for each in privately)
        assert max(float(converged), float(trees)) < 0.2
