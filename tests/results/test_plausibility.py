"""Implausible reports: what honest vehicles never cause, what liars do, and how far they get."""

import itertools
import json
import math
from collections import Counter

import numpy as np
import pytest
from click.testing import CliRunner
from plans import counters
from scipy import stats

import fedldp
from fedldp import Plan, Schema, Tally, combine_estimates
from fedldp.cli.app import fedldp as command
from fedldp.coders.categories import RandomizedResponse, UnaryEncoding, better
from fedldp.coders.laws import Law
from fedldp.errors import DomainError, ImplausibleWarning
from fedldp.mechanisms import Dominant, Duchi
from fedldp.plan.parts import Matrix, Part
from fedldp.plan.strategies import Paper, Sample, Split
from fedldp.results.plausibility import FALSE_ALARM, Finding, Plausibility, equal_reports, influence

MIXED = Schema.of(
    age=(0, 100),
    way={"low": -2, "high": 6, "size": 3},
    city=["Oslo", "Rome", "Lima"],
    colour=[f"colour {i}" for i in range(40)],
)
PLANS = {
    "sample": Plan(MIXED, 4.0, Sample(k=2, mechanism="hm-tp")),
    "split": Plan(MIXED, 6.0, Split(mechanism="duchi")),
    "paper": Plan(MIXED, 6.0, Paper(mechanism="pm")),
    "cube": Plan(MIXED, 6.0, strategy="cube"),
    "study": Plan(MIXED, 4.0, Sample(mechanism="laplace", study=True)),
}
HUNDRED = Plan(Schema.vector(100, bound=1.0), 1.0, Sample(mechanism="hm-tp"))


def with_liars(plan, n, liars, coordinate=3, seed=1):
    """Return a tally of a fleet at 0, of which some vehicles send the largest value of one x."""
    [part] = plan.parts
    honest = plan.simulate(np.zeros((n - liars, part.d)), fedldp.source(seed))
    counts = honest.counts[0].copy()
    counts[part.starts[coordinate + 1] - 1] += liars
    return Tally(plan.fingerprint, plan.parts, n, (counts,))


# The false-alarm rate


@pytest.mark.parametrize(("n", "d", "k"), [(50, 100, 1), (400, 100, 1), (300, 5, 2), (1000, 3, 1)])
def test_honest_counts_cause_no_alarm(n, d, k):
    """Exactly: the probability of each count that is reported, added up over all coordinates."""
    coder = Duchi(1.0).channel()
    part = Part(Schema.vector(d, 1.0), (0,), (coder,), k)
    reported = []
    for count in range(n + 1):
        cells = np.full((d, 2), n * k / d / 2).astype(int)
        cells[0] = count // 2, count - count // 2  # in the middle of the range
        found = Tally("", (part,), n, (cells.reshape(-1),)).plausibility()
        reported.append(any(each.name == "x[0]" for each in found.findings))
    assert any(reported)
    alarm = stats.binom.pmf(np.arange(n + 1), n, k / d)[reported].sum()
    assert 0 < d * alarm <= FALSE_ALARM


@pytest.mark.parametrize("m", [5, 100, 10_000])
def test_honest_means_cause_no_alarm(m):
    """Exactly, if all vehicles are at the end of the range: the worst case of honest data.

    The bound costs a factor of at most 1000: less than one standard deviation.
    """
    for law in (
        Duchi(1.0).channel().law,
        RandomizedResponse.of(1.0, 4).law,
        UnaryEncoding.of(1.0, 40).law,
    ):
        high = np.arange(m + 1)
        mean = law.values[0] + (law.values[1] - law.values[0]) * high / m
        for letter, tails in zip((-1, 0), law.beyond(np.full(m + 1, m), mean), strict=True):
            odds = stats.binom(m, law.table[letter, 1])
            exact = odds.sf(high - 1) if letter else odds.cdf(high)
            assert np.all(exact <= tails * (1 + 1e-9))
            rare = (tails < 1) & (exact > 1e-200)
            assert np.all(tails[rare] <= 1000 * exact[rare])


def test_the_bound_of_a_table_holds():
    """For a table of 31 outputs, against the exact law of a sum of 40 answers at one end."""
    law = Dominant(2.0).channel().law
    m, width = 40, 1e-3
    places = np.rint((law.values - law.values[0]) / width).astype(int)
    one = np.bincount(places, law.table[-1])
    total = np.array([1.0])
    for _ in range(m):
        total = np.convolve(total, one)
    total = np.maximum(total, 0.0)
    sums = law.values[0] * m + np.arange(total.size) * width
    exact = np.cumsum(total[::-1])[::-1]
    bound, _ = law.beyond(np.full(sums.size, m), sums / m - width)  # for the rounded places
    assert np.all(exact <= bound + 1e-12)


def test_all_x_are_bounded_by_the_worst():
    """A mixture of any x is not more likely to be outside than x at the end."""
    law = Law.of_indicator(0.7, 0.2, 0.5)
    [high], [low] = law.beyond(np.array([10]), np.array([0.5]))
    assert high == low == 1.0


@pytest.mark.parametrize("name", PLANS)
def test_honest_fleets_are_plausible(name):
    """Of 40 honest tallies none is reported; by chance, less than once in 25,000 times."""
    rng = np.random.default_rng(1)
    for source in fedldp.source(2).spawn(40):
        n = int(rng.integers(0, 400))
        rows = {
            "age": np.full(n, 100.0),
            "way": np.full((n, 3), -2.0),
            "city": np.array(["Oslo"] * n, object),
            "colour": np.array(["colour 7"] * n, object),
        }
        tally = PLANS[name].simulate(rows, source) if n else PLANS[name].tally()
        found = tally.plausibility()
        assert found
        assert found == Plausibility(found.checks, found.p_value, ())
        assert FALSE_ALARM <= found.p_value <= 1


# What is noticed


@pytest.mark.parametrize("n", [10_000, 40_000])
def test_one_percent_of_liars_are_noticed(n):
    """They double the answers about one of 100 numbers, and moved its mean to +2 unnoticed."""
    tally = with_liars(HUNDRED, n, n // 100)
    with pytest.warns(ImplausibleWarning) as caught:
        estimate = tally.estimate()
    assert 1.9 < estimate["x"].mean[3] < 2.2
    texts = [str(each.message) for each in caught]
    assert tuple(texts) == estimate.warnings
    answers = estimate["x"].answers[3]
    start = f"Implausible reports: x[3] has {answers:,} answers, and {n // 100} are expected. "
    assert any(text.startswith(start) for text in texts)
    start = "Implausible reports: the answers about x[3] have the mean 2."
    assert any(text.startswith(start) for text in texts)
    assert {each.name for each in estimate.plausibility.findings} == {"x[3]"}
    assert caught[0].filename == __file__


@pytest.mark.parametrize("seed", range(5))
def test_the_count_alone_gives_liars_away(seed):
    """Also where they stay inside the range: 1% of 10,000 are 10 standard deviations."""
    tally = with_liars(HUNDRED, 10_000, 100, seed=seed)
    kinds = [each.kind for each in tally.plausibility().findings]
    assert "answers" in kinds


def test_missing_answers_are_noticed():
    [part] = HUNDRED.parts
    counts = HUNDRED.simulate(np.zeros((10_000, 100)), fedldp.source(1)).counts[0].copy()
    start, end = part.starts[[5, 6]]
    counts[start - 20] += counts[start:end].sum()
    counts[start:end] = 0
    found = Tally(HUNDRED.fingerprint, HUNDRED.parts, 10_000, (counts,)).plausibility()
    assert ("x[5]", "answers", 0.0, 100.0) in [
        (each.name, each.kind, each.found, each.expected) for each in found.findings
    ]


@pytest.mark.parametrize("name", ["split", "paper", "cube"])
def test_means_outside_the_range_are_noticed(name):
    """Where everybody answers everything, this is all that gives liars away."""
    plan, n = PLANS[name], 20_000
    nothing = Matrix(np.full((n, plan.schema.dimensions), np.nan))
    tally = plan.simulate_batches((nothing,), fedldp.source(1))
    counts = [each.copy() for each in tally.counts]
    for part, cells in zip(plan.parts, counts, strict=True):
        for attribute, _, rows in counters(part, cells):
            if attribute.name == "age":
                rows[0] = [0] * (rows.shape[1] - 1) + [rows[0].sum()]
            if attribute.name == "colour":
                rows[0, 7] = 0  # fewer than there are by noise alone
    found = Tally(plan.fingerprint, plan.parts, n, tuple(counts)).plausibility()
    kinds = {(each.name, each.kind, each.expected) for each in found.findings}
    assert kinds >= {("age", "range", 100.0), ("colour = colour 7", "range", 0.0)}
    [age] = [each for each in found.findings if each.name == "age"]
    assert "have the mean" in str(age)
    assert "above the end of the range at 100. Honest" in str(age)


def test_only_the_worst_are_described():
    findings = tuple(Finding(f"x[{i}]", "answers", 9.0, 1.0, 1e-9) for i in range(5))
    texts = Plausibility(10, 1e-9, findings).warnings
    assert len(texts) == 4
    assert texts[0] == (
        "Implausible reports: x[0] has 9 answers, and 1 are expected. Honest vehicles cause this "
        "with a probability of at most 1e-09."
    )
    assert texts[-1] == "Implausible reports: 2 more findings."
    fewer = Plausibility(10, 1e-9, findings[:4])
    assert fewer.warnings[-1] == "Implausible reports: 1 more finding."
    assert len(Plausibility(10, 1e-9, findings[:3]).warnings) == 3


def test_several_checks_share_the_rate():
    one = Plausibility(4, 2e-7, (Finding("x", "answers", 9.0, 1.0, 2e-7),))
    assert one.among(2) == Plausibility(8, 4e-7, (Finding("x", "answers", 9.0, 1.0, 4e-7),))
    assert one.among(5).findings == ()
    assert one.among(10**9).p_value == 1.0


def test_combined_estimates_keep_what_was_found():
    honest = HUNDRED.simulate(np.zeros((2000, 100)), fedldp.source(1)).estimate()
    with pytest.warns(ImplausibleWarning):
        lied = with_liars(HUNDRED, 10_000, 100).estimate()
    both = combine_estimates(honest, lied)
    assert honest.plausibility
    assert not lied.plausibility
    assert not both.plausibility
    assert both.plausibility.checks == 2 * honest.plausibility.checks
    for each, once in zip(both.plausibility.findings, lied.plausibility.findings, strict=True):
        assert (each.name, each.kind) == (once.name, once.kind)
        assert each.p_value == 2 * once.p_value
    assert combine_estimates(honest, honest).warnings == ()


# How far liars get


@pytest.mark.parametrize("name", ["sample", "split", "paper", "cube"])
def test_influence_is_what_liars_achieve(name):
    """In a tally of exactly expected counts, of honest vehicles that are all at one end."""
    plan, share, n = PLANS[name], 0.02, 10.0**9
    bounds = plan.influence(share)
    assert tuple(bounds) == MIXED.names
    for part in plan.parts:
        for coder, attribute in part.asked:
            law, unit = coder.law, getattr(attribute, "half_width", 1.0)
            best = dict.fromkeys(("together", "spread"), 0.0)
            for end, value in itertools.product((0, -1), (0, -1)):
                honest = law.table[end] * n * (1 - share) * part.share
                for how, liars in (("together", n * share), ("spread", n * share * part.share)):
                    counts = honest.copy()
                    counts[value] += liars
                    moved = counts @ law.values / counts.sum() - law.letters[end]
                    best[how] = max(best[how], unit * abs(moved))
            np.testing.assert_allclose(bounds[attribute.name], tuple(best.values()), rtol=1e-6)


@pytest.mark.parametrize("share", [-0.1, 1.1, "1%", None, float("nan")])
def test_influence_refuses(share):
    with pytest.raises(DomainError, match="share must be a number from 0 to 1; got"):
        PLANS["split"].influence(share)


def test_a_plan_for_study_has_no_largest_answer():
    with pytest.raises(DomainError, match="a plan for study has no largest answer"):
        PLANS["study"].influence(0.1)


# On the command line


def test_the_command_line_warns(tmp_path):
    tally = with_liars(HUNDRED, 10_000, 100)
    plan_file, tally_file = tmp_path / "plan.json", tmp_path / "tally.json"
    plan_file.write_text(HUNDRED.to_json(), "utf-8")
    tally.save(tally_file)
    texts = list(tally.plausibility().warnings)
    shown = CliRunner().invoke(command, ["estimate", str(plan_file), str(tally_file)])
    assert shown.exit_code == 0, shown.output
    assert shown.stderr.splitlines() == [f"Warning: {text}" for text in texts]
    assert "± (95%)" in shown.stdout
    found = CliRunner().invoke(command, ["estimate", str(plan_file), str(tally_file), "--json"])
    assert json.loads(found.stdout)["warnings"] == texts


# Equal reports


@pytest.mark.parametrize(("categories", "n"), [(2, 8), (5, 5), (12, 4)])
@pytest.mark.parametrize("epsilon", [0.1, 2.0])
def test_equal_reports_cause_no_more_alarms_than_they_may(categories, n, epsilon):
    """By enumeration: a bound of at most a has a probability of at most a, for every a."""
    schema = Schema.of(city=[str(i) for i in range(categories)])
    coder = RandomizedResponse.of(epsilon, categories)
    plan = Plan.from_parts(schema, epsilon, [Part(schema, (0,), (coder,), 1)])
    law = np.full(categories, coder.q)
    law[0] = coder.p  # of vehicles that all have the same value, which is the worst for this
    chances = Counter()  # by how often each report occurs
    for sent in itertools.product(range(categories), repeat=n):
        copies = tuple(sorted(Counter(sent).values()))
        chances[copies] += math.prod(law[code] for code in sent)
    found = [(equal_reports(plan.parts, copies), p) for copies, p in chances.items()]
    assert min(found)[0] < 1
    for alarm, _ in found:
        assert sum(p for bound, p in found if bound <= alarm) <= alarm + 1e-12


def test_a_share_of_repeats_is_noticed_and_a_likely_pair_is_not():
    plan = Plan(Schema.vector(15, length=1.0), 1.0, strategy="directions")
    bits = plan.parts[0].coders[0].seed_bits
    assert bits >= 20
    assert equal_reports(plan.parts, [1] * 5000) == 1.0
    assert equal_reports(plan.parts, [2] + [1] * 998) > 1e-4  # as birthdays do
    assert equal_reports(plan.parts, [2] * 20 + [1] * 960) < FALSE_ALARM
    assert equal_reports(plan.parts, [4] + [1] * 996) < FALSE_ALARM
    signs = Plan(Schema.of(speed=(0, 50)), 1.0, Sample(mechanism="duchi"))
    assert equal_reports(signs.parts, [60]) < FALSE_ALARM < equal_reports(signs.parts, [30, 30])
    certain = Plan(Schema.of(speed=(0, 50)), 16.0, Sample(mechanism="duchi"))
    assert equal_reports(certain.parts, [1000]) > FALSE_ALARM


# How far liars get with what is not a mean of all vehicles


X = fedldp.Number("x", 0, 100)
SOME = fedldp.OptionalNumber("x", 0, 100)
BINNED = fedldp.BinnedNumber.of("x", 0, 100, bins=20)
CAR = fedldp.Category("car", ["rare", "usual", "many"])
LIES = 0.01
SMALL = 0.03


def attacked(attribute, epsilon, shares, lie):
    """Return the expected estimate of a fleet, without liars and with 1% that all send one code."""
    attribute = Plan(Schema((attribute,)), epsilon).schema.attributes[0]
    coder = better(epsilon, len(shares))
    part = Part(Schema((attribute,)), (0,), (coder,), 1)
    n = 10**10
    honest = coder.q + (coder.p - coder.q) * np.array(shares)
    sent = np.eye(len(shares))[lie]
    found = []
    for share in (0.0, LIES):
        cells = np.rint(n * ((1 - share) * honest + share * sent)).astype(np.int64)
        if isinstance(coder, UnaryEncoding):
            cells = np.append(cells, n)
        tally = Tally("", (part,), int(coder.answers(cells)), (cells,))
        found.append(tally.estimate()[attribute.name])
    return part, *found


def of_group(values, letters):
    """Return the shares of labels: a group of 3% with these values, and the others in the rest."""
    rest = np.zeros(2 * letters)
    rest[0] = 1 - SMALL
    return np.concatenate([SMALL * np.array(values), rest])


def tail():
    """Return shares of bins of which 0.9% are in the last one, and others low."""
    shares = np.zeros(20)
    shares[[0, 1, 2, 19]] = 0.5, 0.3, 0.191, 0.009
    return shares


@pytest.mark.filterwarnings("ignore::fedldp.errors.ImplausibleWarning")
@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0, 8.0])
@pytest.mark.parametrize(
    "kind", ["group mean", "share in a group", "optional", "quantile", "angle"]
)
def test_influence_of_all_kinds_is_what_an_attack_achieves(kind, epsilon):
    """At least the shift of the attack; and with small groups at most twice as much."""
    least = 0.5
    if kind == "group mean":
        attribute = fedldp.Within("g", X, CAR)
        part, before, after = attacked(attribute, epsilon, of_group([1, 0], 2), 1)
        moved = after.means.mean[0] - before.means.mean[0]
    elif kind == "share in a group":
        attribute = fedldp.Within("g", fedldp.Category("c", ["a", "b"]), CAR)
        part, before, after = attacked(attribute, epsilon, of_group([1, 0], 2), 1)
        moved = after.within.mean[0, 1] - before.within.mean[0, 1]
    elif kind == "optional":
        letters = len(Plan(Schema((SOME,)), epsilon).schema.attributes[0].labels)
        shares = np.zeros(letters)
        shares[[0, -1]] = SMALL, 1 - SMALL
        part, before, after = attacked(SOME, epsilon, shares, letters - 2)
        moved = after.mean - before.mean
    elif kind == "quantile":
        part, before, after = attacked(BINNED, epsilon, tail(), 19)
        moved = after.quantile(0.99).value - before.quantile(0.99).value
        assert moved > 37.7
    else:
        shares = np.zeros(4)
        shares[[0, 2]] = 0.5 + 1e-4, 0.5 - 1e-4
        part, before, after = attacked(fedldp.Angle("x", 360, 4), epsilon, shares, 2)
        moved = abs(after.mean_direction - before.mean_direction)
    [stated] = influence((part,), LIES, SMALL).values()
    assert moved <= stated.spread * (1 + 1e-6)
    assert moved >= least * stated.spread
    [worst] = influence((part,), LIES, 0.0).values()
    assert worst.spread >= stated.spread


def test_influence_grows_as_groups_get_smaller():
    plan = Plan(Schema((fedldp.Within("g", X, CAR),)), 8.0)
    shifts = [plan.influence(LIES, group=share)["g"].spread for share in (0.5, 0.1, SMALL, 0.0)]
    assert shifts == sorted(shifts)
    assert 1.9 < shifts[0] < 2.1
    assert shifts[2] == pytest.approx(25, rel=0.05)
    assert shifts[3] == 100
    assert plan.influence(0.0)["g"] == (0, 0)
    with pytest.raises(DomainError, match="group must be a number from 0 to 1; got 2"):
        plan.influence(LIES, group=2)


@pytest.mark.parametrize(("n", "liars"), [(2000, 0.1), (50_000, 0.01)])
def test_liars_who_send_a_single_one_about_a_small_group_are_noticed(n, liars):
    """Means and shares stay in their ranges: only the number of ones shows them.

    It is 11 standard errors or more too small.
    """
    attribute = fedldp.Within("g", X, fedldp.Category("car", [f"car {i}" for i in range(16)]))
    coder = UnaryEncoding.of(1.0, 32)
    part, rng = Part(Schema((attribute,)), (0,), (coder,), 1), np.random.default_rng(1)
    own = rng.multinomial(n, np.full(32, 1 / 32))
    ones = rng.binomial(own, coder.p) + rng.binomial(n - own, coder.q)
    assert not Tally("", (part,), n, (np.append(ones, n),)).plausibility().findings
    number = round(liars * n)
    kept = rng.hypergeometric(ones, n - ones, n - number)
    kept[1] += number
    [finding] = Tally("", (part,), n, (np.append(kept, n),)).plausibility().findings
    assert (finding.name, finding.kind) == ("g", "number of ones")


def test_the_number_of_ones_causes_no_alarm():
    """Exactly: the bound is at least the probability of as many ones, or as few."""
    coder, m = UnaryEncoding.of(2.0, 3), 40
    law = np.convolve(
        stats.binom.pmf(np.arange(m + 1), m, coder.p),
        stats.binom.pmf(np.arange(2 * m + 1), 2 * m, coder.q),
    )
    for ones in range(2, 3 * m, 7):
        cells = np.array([[min(ones, m), *divmod(max(ones - m, 0), 2), m]])
        cells[0, 1:3] = [max(ones - m, 0) // 2, max(ones - m, 0) - max(ones - m, 0) // 2]
        few, many = coder.checks(cells)
        assert few.p_value >= law[: ones + 1].sum() * (1 - 1e-9)
        assert many.p_value >= law[ones:].sum() * (1 - 1e-9)
