"""What every registered coder must do. A new coder is tested by registering it.

Add a few small coders of the new kind to `CODER_SAMPLES` in tests/helpers/samples.py.
"""

import itertools
import json
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property

import numpy as np
import pytest
from plans import code_law, inputs, law
from samples import CODER_SAMPLES, plan_around, schema_for

import fedldp
from fedldp import Plan, Schema, Source, vehicle
from fedldp._internal import packing
from fedldp.coders import CODERS, DirectionsCoder
from fedldp.coders.base import AsBits, ByLaw, ForCategories, ForNumbers, VectorCoder, epsilon_of
from fedldp.coders.laws import Law
from fedldp.errors import DomainError, PrivacyError, WireError
from fedldp.plan.parts import Matrix, Part

ALL = [
    pytest.param(each, id=f"{kind}-{i}")
    for kind, samples in CODER_SAMPLES.items()
    for i, each in enumerate(samples)
]
NOT_OF_VECTORS = [each for each in ALL if not isinstance(each.values[0], VectorCoder)]


def values_of(coder, n, seed):
    """Return inputs for n vehicles: any numbers, or any categories."""
    uniform = fedldp.source(seed).uniform((n, coder.coordinates))
    low, high = coder.inputs
    if coder.inputs_dtype is np.int64:
        uniform = np.floor(uniform * (high + 1)) / high
    found = (low + (high - low) * uniform).astype(coder.inputs_dtype)
    if isinstance(coder, VectorCoder):
        found /= np.sqrt(coder.coordinates)
    return found if coder.joint else found[:, 0]


def truth(coder, values):
    """Return what the estimates are to be: the means of numbers, or the shares of categories."""
    if coder.inputs_dtype is np.int64:
        return np.bincount(values, minlength=coder.estimates) / len(values)
    return np.atleast_1d(values.mean(axis=0))


def test_every_kind_has_samples():
    assert set(CODER_SAMPLES) == set(CODERS)
    for kind, coders in CODER_SAMPLES.items():
        assert {type(each) for each in coders} == {CODERS[kind]}
        assert {each.kind for each in coders} == {kind}


@pytest.mark.parametrize("coder", ALL)
def test_whole_reports_are_private_in_integers(coder):
    """By enumeration of all records and inputs, from the text of the plan alone."""
    if isinstance(coder, DirectionsCoder):
        # Seeds do not depend on the data: a few show all there is.
        coder = replace(coder, seed_bits=2)
    for k in {1, 1 if coder.joint else 2}:
        plan = plan_around(coder, k)
        document = json.loads(plan.to_json())
        laws = [law(document, given) for given in inputs(document)]
        assert all(sum(each.values()) == 1 for each in laws)
        assert len({frozenset(each) for each in laws}) == 1
        records = list(laws[0])
        ratio = max(max(each[r] for each in laws) / min(each[r] for each in laws) for r in records)
        assert ratio == plan.parts[0].ratio <= vehicle.exp_below(plan.total_epsilon)
        assert plan.total_epsilon == k * vehicle.exact(coder.epsilon)
        largest = max(max(each.values()) for each in laws)
        assert plan.parts[0].likeliest == pytest.approx(float(largest), rel=1e-12)


@pytest.mark.parametrize("coder", ALL)
def test_a_document_gives_the_coder_again(coder):
    document = coder.to_document()
    assert document["kind"] == coder.kind
    again = type(coder).from_document(json.loads(json.dumps(document)), coder.coordinates)
    assert again == coder
    assert vehicle.canonical(again.to_document()) == vehicle.canonical(document)
    with pytest.raises((ValueError, TypeError)):
        type(coder).from_document({**document, "comment": 1}, coder.coordinates)
    with pytest.raises((ValueError, TypeError)):
        type(coder).from_document({**document, "epsilon": 1.0}, coder.coordinates)
    with pytest.raises(PrivacyError):
        type(coder).from_document({**document, "epsilon": "0.01"}, coder.coordinates)


@pytest.mark.parametrize("coder", ALL)
def test_codes_survive_a_record_between_other_fields(coder):
    codes = coder.encode(values_of(coder, 50, 1), fedldp.source(2))
    rows = np.arange(0, 50, 3)
    for width in (coder.bits + 5, coder.bits + 70):
        records = packing.empty(50, width)
        coder.put(codes, records, 3)
        again = packing.parse(records.to_bytes(), 50, width)
        np.testing.assert_array_equal(coder.get(again, 3), codes)
        np.testing.assert_array_equal(coder.get(again, 3, rows), codes[rows])
        few = packing.empty(50, width)
        coder.put(codes[rows], few, 3, rows)
        np.testing.assert_array_equal(coder.get(few, 3, rows), codes[rows])
        assert not few.get_bits(0, 3).any()
        assert not few.get_bits(3 + coder.bits, 2).any()


@pytest.mark.parametrize("coder", ALL)
def test_unknown_codes_are_refused(coder):
    """Every code that a record can hold is either counted or refused."""
    records = packing.parse(b"\xff" * packing.length(3, coder.bits), 3, coder.bits)
    if coder.one_counter_per_code and coder.cells < 1 << coder.bits:
        with pytest.raises(WireError, match="codes end at"):
            coder.get(records, 0)
        assert coder.unknown(records, 0).tolist() == [True] * 3
        assert coder.unknown(records, 0, np.array([1])).tolist() == [True]
    else:
        assert coder.unknown(records, 0) is None
        cells = np.zeros(coder.cells, np.int64)
        coder.count(coder.get(records, 0), 0, cells)
        assert coder.answers(cells) == 3


@pytest.mark.parametrize("coder", ALL)
def test_get_refuses_exactly_the_unknown_codes(coder):
    width = coder.bits + 3
    noise = np.random.default_rng(1).integers(0, 256, packing.length(40, width), np.uint8)
    records, refused = packing.parse(noise.tobytes(), 40, width), []
    for row in range(40):
        try:
            coder.get(records, 2, np.array([row]))
        except WireError:
            refused.append(row)
    unknown = coder.unknown(records, 2)
    assert refused == ([] if unknown is None else np.flatnonzero(unknown).tolist())


@pytest.mark.parametrize("coder", ALL)
def test_counting_adds_up_in_any_way(coder):
    values, n = values_of(coder, 300, 3), 300
    codes = coder.encode(values, fedldp.source(4))
    whole, parts, at = (np.zeros(coder.cells + 7, np.int64) for _ in range(3))
    coder.count(codes, 5, whole)
    coder.count(codes[:100], 5, parts)
    coder.count(codes[100:], 5, parts)
    coder.count_at(codes, np.full(n, 5), at)
    np.testing.assert_array_equal(parts, whole)
    np.testing.assert_array_equal(at, whole)
    assert not whole[:5].any()
    assert not whole[5 + coder.cells :].any()
    own = whole[5 : 5 + coder.cells]
    assert coder.answers(own) == n
    assert coder.invalid(own[None], np.array([n])) is None
    assert coder.invalid(own[None] - n - 1, np.array([n])) is not None
    several = np.zeros(3 * coder.cells, np.int64)
    units = fedldp.source(5).below(3, n)
    coder.count_at(codes, units * coder.cells, several)
    np.testing.assert_array_equal(several.reshape(3, -1).sum(axis=0), own)
    np.testing.assert_array_equal(
        coder.answers(several.reshape(3, -1)), np.bincount(units, minlength=3)
    )


def alone(coder):
    """Return a plan that asks for one unit alone: a record is a code."""
    schema = schema_for(coder)
    if not coder.joint:
        schema = Schema(
            (replace(schema.attributes[0], **({} if len(schema) > 1 else {"size": 1})),)
        )
    return Plan.from_parts(schema, coder.epsilon, [Part(schema, (0,), (coder,), 1)])


def decoded(plan, record):
    """Return what a server makes of one record: a number for each estimate."""
    (part,), width = plan.parts, len(record)
    octets = int(record.ljust(-(-width // 8) * 8, "0"), 2).to_bytes(-(-width // 8))
    cells = np.zeros(part.starts[-1], np.int64)
    part.count(packing.parse(octets, 1, width), 0, cells)
    ((coder, _, rows),) = part.by_block(cells)
    return coder.sums(rows)[1]


def meant(coder, table, given):
    """Return the mean that a letter, a category or a vector of signs has."""
    if table["kind"] == "numbers":
        return np.array([table["letters"][given[0]]])
    if coder.inputs_dtype is np.int64:
        return np.eye(coder.estimates)[given[0]]
    return 2.0 * np.array(given) - 1  # of a cube


@pytest.mark.parametrize("coder", NOT_OF_VECTORS)
def test_mean_and_variance_of_an_estimate_are_exact(coder):
    """By enumeration of all records and inputs: what a server decodes has the input as its mean."""
    plan = alone(coder)
    document = json.loads(plan.to_json())
    (table,) = document["tables"] or document["parts"]
    for (given,) in inputs(document):
        odds = law(document, (given,))
        weights, values = (
            np.array([float(each) for each in odds.values()]),
            np.array([decoded(plan, record) for record in odds]),
        )
        wanted = meant(coder, table, given)
        np.testing.assert_allclose(weights @ values, wanted, rtol=0, atol=1e-13 * coder.reach)
        variance = weights @ (values - wanted) ** 2
        x = np.array([given if coder.inputs_dtype is np.int64 else wanted])
        noise, _, _ = coder.assumed(x, 1.0)
        promised = np.sum(noise * np.ones(coder.estimates))
        np.testing.assert_allclose(variance.sum(), promised, rtol=1e-9)


@pytest.mark.parametrize("coder", CODER_SAMPLES["directions"][:2])
def test_directions_are_unbiased_over_all_seeds(coder):
    """The odds are exact; of the seeds, 64 stand for all: by chance off in 1 of 10^5 runs."""
    seeds, codes, d = 64, coder.directions + 1, coder.coordinates
    plan = alone(replace(coder, seed_bits=6))
    document = json.loads(plan.to_json())
    vectors = [*itertools.product((-1, 0, 1), repeat=d)]
    along, across = (vectors.index((1,) + (end,) * (d - 1)) for end in (0, -1))
    decode = cache(lambda record: decoded(plan, record))
    for given in (along, across, *([len(vectors)] if coder.null_input else [])):
        odds = law(document, [(given,)])
        each = [float(odds[record]) * decode(record) for record in odds]
        by_seed = seeds * np.reshape(each, (seeds, codes, d)).sum(axis=1)
        vector = np.array(vectors[given]) if given < len(vectors) else np.zeros(d)
        error = by_seed.std(axis=0, ddof=1) / np.sqrt(seeds)
        wanted = vector / max(np.linalg.norm(vector), 1)
        assert np.all(np.abs(by_seed.mean(axis=0) - wanted) <= 5 * error)
        assert np.all(error < 0.5)


@pytest.mark.parametrize("coder", ALL)
def test_estimates_are_unbiased_with_the_stated_noise(coder):
    """Within 5.5 standard errors, all 30 of them: by chance in 1 of 10^6 runs."""
    n = 100_000
    values = values_of(coder, n, 6)
    cells = np.zeros((1, coder.cells), np.int64)
    coder.count(coder.encode(values, fedldp.source(7)), 0, cells[0])
    m, total = coder.sums(cells)
    moments = coder.moments(cells)
    assert m.shape == total.shape == moments.mean.shape == (coder.estimates,)
    assert np.all(m == n)
    np.testing.assert_allclose(total / m, moments.mean, rtol=1e-9, atol=1e-9)
    error = np.sqrt(moments.variance / n)
    assert np.all(np.abs(moments.mean - truth(coder, values)) < 5.5 * error)
    noise, _, _ = coder.assumed(values.reshape(n, -1), 1.0)
    # The variance of an answer is that of the noise and that of the data.
    spread = values.var(axis=0) if coder.inputs == (-1.0, 1.0) else truth(coder, values)
    assert np.all(moments.variance < 1.1 * (np.mean(noise) + np.max(spread)))
    assert np.all(np.abs(moments.mean) <= coder.reach)


FOR_CATEGORIES = [each for each in ALL if isinstance(each.values[0], ForCategories)]


@pytest.mark.parametrize("coder", FOR_CATEGORIES)
def test_the_covariance_of_two_categories_by_enumeration(coder):
    """Over all codes: what each says about each category, and how likely it is."""
    table, a = coder.to_document(), coder.categories
    shares = np.arange(1, a + 1) / (a * (a + 1) / 2)
    odds = sum(
        float(share) * np.array([float(p) for p in code_law(table, own).values()])
        for own, share in enumerate(shares)
    )
    said = np.empty((len(odds), a))
    for code, row in enumerate(said):
        cells = np.zeros((1, coder.cells), np.int64)
        bits = [int(bit) for bit in f"{code:0{coder.bits}b}"]
        coder.count(np.array([bits if isinstance(coder, AsBits) else code]), 0, cells[0])
        row[:] = coder.sums(cells)[1]
    np.testing.assert_allclose(odds @ said, shares, atol=1e-12)
    wanted = (said - shares).T @ (odds[:, None] * (said - shares))
    every = np.arange(a)
    found = coder.covariance(shares, every[:, None], every)
    np.testing.assert_allclose(found, wanted, atol=1e-9 * np.abs(wanted).max())


@pytest.mark.parametrize("coder", ALL)
def test_honest_answers_are_plausible_and_lies_are_not(coder):
    low, high = coder.ends
    m = np.full(coder.estimates, 10_000.0)
    for mean in (low, high):
        assert all(np.all(each > 0.01) for each in coder.beyond(m, np.full(coder.estimates, mean)))
    far = coder.reach + low
    above, below = coder.beyond(m, np.full(coder.estimates, far))
    assert np.all(above < 1e-6)
    assert np.all(below > 0.01)


class Counted(Source):
    """A source that remembers how many words each call asked for."""

    def __init__(self):
        super().__init__(bytes(32), "for a test")
        self.asked = []

    def fill(self, out):
        self.asked.append((out.size, out.dtype))
        super().fill(out)


@pytest.mark.parametrize("coder", ALL)
def test_the_number_of_random_words_says_nothing(coder):
    low, high = coder.inputs
    seen = []
    for value in (low, high, (low + high) // 2):
        shape = (40, coder.coordinates) if coder.joint else 40
        value = value / np.sqrt(coder.coordinates) if isinstance(coder, VectorCoder) else value
        source = Counted()
        coder.encode(np.full(shape, value, coder.inputs_dtype), source)
        seen.append(source.asked)
    assert seen[0] == seen[1] == seen[2]


@pytest.mark.parametrize("coder", ALL)
def test_what_is_sent_refuses_generators_for_study(coder):
    predictable, plan, values = np.random.default_rng(1), plan_around(coder), values_of(coder, 2, 1)
    with pytest.raises(DomainError, match="source must be a Source"):
        coder.encode(values, predictable)
    with pytest.raises(DomainError, match="source must be a Source"):
        plan.report([], predictable)
    with pytest.raises(DomainError, match="source must be a Source"):
        plan.report([{}, {}], predictable)


@pytest.mark.parametrize("coder", ALL)
def test_vehicles_send_what_the_plan_says(coder):
    """The single file for a vehicle takes the plan, and a server counts its report."""
    plan = plan_around(coder)
    small = vehicle.Plan(plan.to_json(), plan.epsilon)
    row = {
        each.name: each.categories[0] if each.labels else [0.5] * each.size
        for each in plan.schema.attributes
    }
    if coder.inputs == (-1.0, 1.0) and plan.schema.dimensions == 1:
        row = dict.fromkeys(row, 0.5)
    packet = small.report(row)
    assert len(packet) == len(plan.report([row], fedldp.source()).to_bytes())
    assert (plan.tally() + plan.parse(packet)).reports == 1


@pytest.mark.parametrize("coder", ALL)
def test_replicas_count_what_reports_say(coder):
    plan = plan_around(coder)
    (part,) = plan.parts
    rows = np.stack(
        [values_of(coder, 80, 8).reshape(80, -1)[:, 0]] * plan.schema.dimensions, axis=1
    )
    cells = np.zeros((1, part.starts[-1]), np.int64)
    part.simulate(Matrix(rows.astype(float)), fedldp.source(9), cells)
    tally = plan.simulate_batches([Matrix(rows.astype(float))], fedldp.source(9))
    np.testing.assert_array_equal(cells[0], tally.counts[0])


# A new coder, from its class to an estimate.


@dataclass(frozen=True)
class Coin(ByLaw, ForNumbers):
    """One bit: the sign of a number, rounded at random, is kept with the odds 3 to 1."""

    kind = "coin"

    epsilon: float = 1.1

    bits = 1
    cells = 2
    ratio = Fraction(3, 1)
    likeliest = 0.75

    @cached_property
    def law(self):
        signs = np.array([-1.0, 1.0])
        return Law(signs, 2 * signs, np.array([[0.75, 0.25], [0.25, 0.75]]))

    def histograms(self, cells):
        return cells

    def variance(self, x):
        return 4.0 - np.asarray(x) ** 2

    def encode(self, values, source):
        up = source.uniform(values.shape) < (1 + values) / 2
        return (up ^ source.bernoulli(Fraction(1, 4), values.shape)).astype(np.uint8)

    def to_document(self):
        return {"kind": self.kind, "epsilon": str(self.epsilon)}

    @classmethod
    def from_document(cls, document, coordinates=1):
        return cls(epsilon_of(document))


def test_a_new_coder_needs_a_class_and_a_registry_entry(monkeypatch):
    """From a plan to an estimate; by chance the estimate is off in 1 of 10^6 runs."""
    schema, coin = Schema.of(x=(-1, 1), way={"low": 0, "high": 10, "size": 3}), Coin()
    plan = Plan.from_parts(schema, 2.2, [Part(schema, (0, 1), (coin, coin), 2)])
    text = plan.to_json()
    with pytest.raises(WireError, match="unknown kind of table 'coin'"):
        Plan.from_json(text)
    monkeypatch.setitem(CODERS, Coin.kind, Coin)
    assert Plan.from_json(text) == plan
    rows = [{"x": -0.5, "way": [1, 5, 9]}] * 50_000
    packet = plan.report(rows, fedldp.source(1)).to_bytes()
    assert plan.bits == 6
    tally = plan.tally() + plan.parse(packet)
    assert tally.plausibility()
    estimate = tally.estimate()
    assert abs(estimate["x"].mean + 0.5) < 4.9 * estimate["x"].stderr
    assert np.all(np.abs(estimate["way"].mean - [1, 5, 9]) < 4.9 * estimate["way"].stderr)
    assert 0 < plan.expected_error(50_000) < 0.01
    # A vehicle runs no code that it does not know: the file of a vehicle refuses the plan.
    with pytest.raises(ValueError, match="coin"):
        vehicle.Plan(text, 2.2)
