"""Estimates: by hand from a list of all answers, few or many, and several of them combined."""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
from plans import counters
from scipy import stats

import fedldp
from fedldp import Plan, Schema, Tally, combine_estimates
from fedldp.coders import tables
from fedldp.coders.categories import RandomizedResponse, UnaryEncoding
from fedldp.coders.laws import Law
from fedldp.errors import DomainError
from fedldp.mechanisms import HMTP, Dominant, Duchi
from fedldp.plan.parts import Part
from fedldp.plan.strategies import Paper, Sample, Split
from fedldp.results.estimate import ESTIMATORS, TARGETS, Frequencies, Mean, results_of

SCHEMA = Schema.of(
    age=(0, 100),
    way={"low": -2, "high": 6, "size": 3},
    city=["Oslo", "Rome", "Lima"],
    colour=[f"colour {i}" for i in range(40)],
)
PLANS = {
    "sample": Plan(SCHEMA, 4.0, Sample(k=2, mechanism="hm-tp")),
    "three": Plan(SCHEMA, 2.0, Sample(k=1, mechanism="three-outputs")),
    "split": Plan(SCHEMA, 6.0, Split(mechanism="duchi")),
    "paper": Plan(SCHEMA, 6.0, Paper(mechanism="pm")),
    "cube": Plan(SCHEMA, 6.0, strategy="cube"),
}
ESTIMATED = 1 + 3 + 3 + 40
CHOICES = list(itertools.product(ESTIMATORS, TARGETS))


def fleet(n):
    source = fedldp.source(1)
    ages, ways = 100 * source.uniform(n), 8 * source.uniform((n, 3)) ** 2 - 2
    cities, colours = source.below(3, n) // 2, source.below(40, n) // 2
    return {
        "age": ages,
        "way": ways,
        "city": np.array(SCHEMA["city"].categories)[cities],
        "colour": np.array(SCHEMA["colour"].categories)[colours],
    }


def numbers(coder, counts, n, share=1.0, **options):
    """Estimate numbers from a row of counters each, as if n vehicles had been asked."""
    rows = np.asarray(counts)
    part = Part(Schema.vector(len(rows), 1.0), (0,), (coder,), round(share * len(rows)))
    assert part.share == share
    return Tally("", (part,), n, (rows.reshape(-1),)).estimate(**options)["x"]


def categories(coder, counts, n, **options):
    schema = Schema.of(c=[f"label {i}" for i in range(coder.categories)])
    part = Part(schema, (0,), (coder,), 1)
    return Tally("", (part,), n, (np.asarray(counts),)).estimate(**options)["c"]


def flat(each):
    """Yield value, standard error, interval, simultaneous interval and answers of each number."""
    values = np.atleast_1d(each.mean if isinstance(each, Mean) else each.frequencies)
    return zip(
        values,
        np.atleast_1d(each.stderr),
        np.reshape(each.interval, (-1, 2)),
        np.reshape(each.simultaneous, (-1, 2)),
        np.broadcast_to(each.answers, values.shape),
        strict=True,
    )


# By hand: all answers in a list


@dataclass
class Question:
    """The answers y to one question, the law they have, and what x^2 is on average at the least."""

    answers: list[float]
    law: Law
    square: float

    def by_hand(self, n, share, estimator, of, risk):
        y, m, law = np.sort(self.answers), len(self.answers), self.law
        low, high = law.letters[[0, -1]]
        possible = min(max(np.mean(y), low), high)
        least = law.least_noise(possible)
        variance, pseudo = max(np.var(y), least), stats.norm.isf(risk / 2) ** 2 / 2 + 0.1
        farthest = max(law.values[-1] - possible, possible - law.values[0])
        quartiles = [y[math.ceil(share * m) - 1] for share in (0.25, 0.75)]
        bulk = (quartiles[1] - quartiles[0]) / 1.349
        unseen = max(pseudo * farthest**2 / m - bulk**2, 0.0)
        far = max(high - possible, possible - low) ** 2
        hidden = unseen * far / (far + max(law.variances[0], law.variances[-1]))
        spread = min(self.square - np.mean(y) ** 2, variance * m / (m - 1) - least)
        spread = max(spread, 0.0)
        rare = max(pseudo * law.jump / m - (variance - spread), 0.0) / 4
        if estimator == "ratio":
            mean, square = np.mean(y), variance / (m - 1) + unseen / m
            if of == "fleet":  # [(d/k) (V + s2) - s2] / n, where d/k is n/m
                square += rare / m - (spread + hidden) / n
        else:
            counted = np.array([*(y / share), *[0.0] * (n - m)])
            mean = np.mean(counted)
            second = np.mean(counted**2) + (variance - np.var(y) + unseen) * m / (n * share**2)
            square = (second - mean**2) / (n - 1)
            if of == "fleet":  # [(d/k) (V + x^2) - x^2] / n
                known = min(self.square, variance + np.mean(y) ** 2 - least)
                square = (second - known - hidden) / n + rare * m / (n * share) ** 2
        return mean, math.sqrt(square)


def questions(coder, cells):
    law = coder.law
    if isinstance(coder, RandomizedResponse | UnaryEncoding):
        [cells] = cells
        m = sum(cells) if isinstance(coder, RandomizedResponse) else cells[-1]
        p, q = coder.p, coder.q
        for ones in cells[: coder.categories]:
            answers = [(1 - q) / (p - q)] * ones + [-q / (p - q)] * (m - ones)
            # Whether a vehicle is in a category is 0 or 1, and so is its square.
            yield Question(answers, law, min(max(np.mean(answers), 0.0), 1.0))
    else:
        for row in cells:
            answers, square = np.repeat(law.values, row), np.repeat(law.square_weights, row).mean()
            yield Question(list(answers), law, min(max(square, np.mean(answers) ** 2), 1.0))


@pytest.mark.parametrize(("estimator", "of"), CHOICES)
@pytest.mark.parametrize("name", PLANS)
def test_everything_by_hand(name, estimator, of):
    plan, n, risk = PLANS[name], 600, 0.1
    tally = plan.simulate(fleet(n), fedldp.source(2))
    found = tally.estimate(estimator, of=of, confidence=1 - risk)
    assert (tuple(found), found.reports, found.confidence) == (SCHEMA.names, n, 1 - risk)
    for part, counts in zip(plan.parts, tally.counts, strict=True):
        for attribute, coder, rows in counters(part, counts):
            cells = rows.tolist()
            centre = getattr(attribute, "centre", 0.0)
            half = getattr(attribute, "half_width", 1.0)
            pairs = zip(flat(found[attribute.name]), questions(coder, cells), strict=True)
            for (value, stderr, alone, together, answers), question in pairs:
                assert answers == len(question.answers)
                mean, error = question.by_hand(n, part.share, estimator, of, 0.05)
                close(value, centre + half * mean)
                close(stderr, half * error)
                for interval, each in ((alone, risk), (together, risk / ESTIMATED)):
                    _, error = question.by_hand(n, part.share, estimator, of, each)
                    reach = stats.t(answers - 1).isf(each / 2) * error * np.array([-1, 1])
                    close(interval, centre + half * (mean + reach))


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_kinds_and_shapes():
    found = PLANS["sample"].simulate(fleet(300), fedldp.source(3)).estimate()
    age, way, city, colour = found.values()
    assert type(age.mean) is type(age.stderr) is float
    assert type(age.answers) is type(city.answers) is int
    assert age.interval.shape == age.simultaneous.shape == (2,)
    assert (way.mean.shape, way.interval.shape, way.answers.shape) == ((3,), (3, 2), (3,))
    assert (colour.frequencies.shape, colour.simultaneous.shape) == ((40,), (40, 2))
    assert city.categories == ("Oslo", "Rome", "Lima")
    assert found != PLANS["sample"].tally().estimate()  # compared without an error


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.95, 0.999, 1 - 1e-12])
def test_confidence_is_that_of_students_t(confidence):
    tally = PLANS["sample"].simulate(fleet(300), fedldp.source(4))
    found, wide = tally.estimate(confidence=confidence)["age"], tally.estimate()["age"]
    assert (found.mean, found.stderr) == (wide.mean, wide.stderr)
    for interval, risk in ((found.interval, 1), (found.simultaneous, 1 / ESTIMATED)):
        reach = stats.t(found.answers - 1).isf((1 - confidence) * risk / 2) * found.stderr
        np.testing.assert_allclose(interval, [found.mean - reach, found.mean + reach], rtol=1e-9)


@pytest.mark.filterwarnings("ignore::fedldp.errors.ImplausibleWarning")
@pytest.mark.parametrize(("estimator", "of"), CHOICES)
def test_a_tally_of_many_does_not_overflow(estimator, of):
    coder = Duchi(1.0).channel()
    n = 10**12
    found = numbers(coder, [[n // 4, 3 * n // 4]], n, estimator=estimator, of=of)
    np.testing.assert_allclose(found.mean, coder.values[1] / 2, rtol=1e-12)
    np.testing.assert_allclose(found.stderr, coder.values[1] * math.sqrt(0.75 / n), rtol=0.05)


# Few answers


@pytest.mark.parametrize(("estimator", "of"), CHOICES)
@pytest.mark.parametrize("name", PLANS)
def test_no_vehicle_was_asked(name, estimator, of):
    for each in PLANS[name].tally().estimate(estimator, of=of).values():
        for value, stderr, alone, together, answers in flat(each):
            assert math.isnan(value)
            assert stderr == math.inf
            assert np.isnan([alone, together]).all()
            assert answers == 0
        if isinstance(each, Frequencies):
            assert np.isnan(each.projected).all()


@pytest.mark.parametrize(("estimator", "of"), CHOICES)
def test_one_vehicle(estimator, of):
    for name, plan in PLANS.items():
        found = plan.simulate(fleet(1), fedldp.source(5)).estimate(estimator, of=of)
        for value, stderr, alone, together, answers in itertools.chain(*map(flat, found.values())):
            assert math.isnan(value) == (answers == 0)
            assert stderr == math.inf
            expected = [-math.inf, math.inf] if answers else [math.nan] * 2
            np.testing.assert_array_equal([alone, together], [expected] * 2)
        assert any(np.any(each.answers == 1) for each in found.values()), name


@pytest.mark.parametrize("of", TARGETS)
def test_one_answer_among_many_vehicles(of):
    coder = Duchi(1.0).channel()
    rows = [[0, 1], [6, 3], [0, 0]]  # the plan's own schema has two coordinates with answers
    ratio = numbers(coder, rows, 10, of=of)
    assert ratio.mean[0] == coder.values[1]
    assert ratio.stderr[0] == math.inf
    paper = numbers(coder, rows, 10, estimator="horvitz-thompson", of=of)
    assert paper.mean[0] == coder.values[1] / 10  # one answer, and nine zeros
    assert math.isfinite(paper.stderr[0])
    assert np.isnan([ratio.mean[2], paper.mean[2]]).all()
    assert ratio.stderr[2] == paper.stderr[2] == math.inf


@pytest.mark.filterwarnings("ignore::fedldp.errors.ImplausibleWarning")
@pytest.mark.parametrize(("estimator", "of"), CHOICES)
def test_answers_that_agree_prove_nothing(estimator, of):
    """The noise of a table is public: no error is smaller than it leaves."""
    for coder in (Dominant(0.5).channel(), HMTP(4.0).channel()):
        least = coder.law.variances.min()
        for row in np.eye(coder.outputs, dtype=int) * 5:
            found = numbers(coder, [row], 5, estimator=estimator, of=of)
            assert found.stderr >= 0.999 * math.sqrt(least / 5)
    for kind in (RandomizedResponse, UnaryEncoding):
        coder = kind.of(4.0, 10)
        counts = [0] * 9 + ([30] if kind is RandomizedResponse else [30, 30])
        found = categories(coder, counts, 30, estimator=estimator, of=of)
        assert np.all(found.stderr >= 0.999 * math.sqrt(coder.q * (1 - coder.q) / 30))


# What is known of x^2, for the error about the fleet


def released(names, epsilons):
    for name, epsilon in itertools.product(names, epsilons):
        try:
            yield fedldp.mechanism(name, epsilon).channel()
        except DomainError:  # Laplace has none
            assert name == "laplace"


@pytest.mark.parametrize("name", fedldp.mechanism_names())
def test_the_square_is_never_overestimated(name):
    """E[w | x] <= x^2 at every x, and for the usual tables hardly below."""
    x = np.linspace(-1, 1, 4001)
    for coder in released([name], (0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 12.0)):
        weights, noise = coder.law.square_weights, coder.law.variances.min()
        found = tables.probabilities(coder.letters, coder.table, x) @ weights
        assert np.all(found <= x**2 + 1e-13 * (1 + np.abs(weights).max()))
        assert noise <= coder.variance(x).min() * (1 + 1e-12)
        assert noise == pytest.approx(coder.variance(coder.letters).min())
        most = {"dominant": 4, "hm-tp": 12, "pm": 12}.get(name, 0)
        if 1 <= coder.epsilon <= most:
            # Of the noise, which the answers show along with x, it is at most so large a part.
            gap = x**2 - found
            assert np.max(gap) <= 0.02
            assert np.mean(gap) <= 0.03 * coder.variance(x).mean()


# Several estimates combined


def estimates(*sizes, plan="sample", **options):
    data, source = fleet(sum(sizes)), fedldp.source(7)
    ends = np.cumsum([0, *sizes])
    for start, end in itertools.pairwise(ends):
        rows = {name: column[start:end] for name, column in data.items()}
        yield PLANS[plan].simulate(rows, source).estimate(**options)


def test_combined_by_inverse_variance():
    several = list(estimates(300, 500, 900, confidence=0.9))
    both = combine_estimates(*several)
    assert (tuple(both), both.reports, both.confidence) == (SCHEMA.names, 1700, 0.9)
    for name in SCHEMA.names:
        found = zip(flat(both[name]), *(flat(each[name]) for each in several), strict=True)
        for (mean, stderr, alone, together, answers), *parts in found:
            weights = [1 / each[1] ** 2 for each in parts]
            expected = sum(w * each[0] for w, each in zip(weights, parts, strict=True))
            close(mean, expected / sum(weights))
            close(stderr, sum(weights) ** -0.5)
            assert answers == sum(each[4] for each in parts)
            for place, interval in ((2, alone), (3, together)):
                halves = [np.diff(each[place]) / 2 for each in parts]
                squares = [(w * half) ** 2 for w, half in zip(weights, halves, strict=True)]
                reach = sum(squares) ** 0.5 / sum(weights)
                close(interval, mean + reach * np.array([-1, 1]))


def test_combining_one_changes_nothing():
    [one] = estimates(400, plan="three")
    again = combine_estimates(one)
    assert type(again["age"].mean) is type(again["age"].stderr) is float
    assert type(again["age"].answers) is type(again["city"].answers) is int
    for name in SCHEMA.names:
        for found, expected in zip(flat(again[name]), flat(one[name]), strict=True):
            for a, b in zip(found, expected, strict=True):
                close(a, b)


def test_an_estimate_without_answers_adds_nothing():
    nothing = PLANS["sample"].tally().estimate()
    single = PLANS["sample"].simulate(fleet(1), fedldp.source(8)).estimate()
    [known] = estimates(400)
    for name, each in combine_estimates(nothing, single, known).items():
        for found, expected in zip(flat(each), flat(known[name]), strict=True):
            close(found[0], expected[0])
            close(found[1], expected[1])
    for each in combine_estimates(nothing, nothing).values():
        for mean, stderr, alone, *_ in flat(each):
            assert math.isnan(mean)
            assert stderr == math.inf
            assert np.isnan(alone).all()


def test_combine_refuses_what_differs():
    [one], [other] = estimates(50), estimates(50, confidence=0.9)
    city = Schema.of(city=["Oslo", "Rome"])
    x = [
        Plan(Schema.vector(d, 1.0), 1.0, Sample(mechanism="duchi")).tally().estimate()
        for d in (1, 2, 3)
    ]
    as_number = Plan(Schema.of(city=(0, 1)), 1.0, Sample(mechanism="duchi")).tally().estimate()
    as_category = Plan(city, 1.0).tally().estimate()
    others = Plan(Schema.of(city=["Oslo", "Lima"]), 1.0).tally().estimate()
    for pair in ((), (one, other), (one, x[0]), (x[0], x[1]), (x[1], x[2])):
        with pytest.raises(DomainError, match="combine needs"):
            combine_estimates(*pair)
    for pair in ((as_category, as_number), (as_category, others)):
        with pytest.raises(DomainError, match="the same categories"):
            combine_estimates(*pair)


@pytest.mark.parametrize(
    "options",
    [{"estimator": "mean"}, {"of": "world"}, {"of": None}, {"estimator": ""}]
    + [{"confidence": level} for level in (0, 1, -0.5, 2, math.nan, math.inf)],
)
def test_refuses(options):
    with pytest.raises(DomainError, match=f"{next(iter(options))} must|must be one of"):
        PLANS["three"].tally().estimate(**options)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_attributes_with_one_coder_are_estimated_as_each_alone(estimator):
    """They are computed together, even if others stand between them."""
    bins = {"low": 0, "high": 8, "bins": 4}
    schema = Schema.of(a=(0, 1), x=bins, sex=["f", "m"], b=(5, 9), y=bins, c=(-2, 0))
    plan = Plan(schema, 2.0, Sample(k=2, mechanism="duchi"), estimator=estimator)
    rows = [{"a": 0.2, "x": 3, "sex": "f", "b": 8, "y": 7, "c": -1}] * 4000
    tally = plan.simulate(rows, fedldp.source(1))
    found = tally.estimate()
    (part,), (cells,) = plan.parts, tally.counts
    blocks = [(coder, attribute, cells) for coder, (attribute, *_), cells in part.by_block(cells)]
    assert len(blocks) == len(schema)
    assert len(list(part.by_coder(cells))) == 3
    for coder, attribute, own in blocks:
        [alone] = results_of(
            [attribute], coder.moments(own), part, tally.reports, estimator,
            of="population", confidence=0.95, number=13,
        )  # fmt: skip
        both = found[attribute.name], alone
        one, other = ([line[2:] for line in each.lines("")] for each in both)
        np.testing.assert_allclose(one, other, rtol=1e-12)
