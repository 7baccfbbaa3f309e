"""Reports: golden bytes, what both sides write and read, and everything that is refused."""

import hashlib
import json
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import HAND_MADE, MIXED, SMALL, STRATEGIES, canonical, counts_in, crc, plan_of, width
from scipy import stats

import fedldp
from fedldp import Plan, Schema, vehicle
from fedldp.errors import DomainError, WireError
from fedldp.plan import parts, report
from fedldp.plan.parts import Matrix
from fedldp.plan.strategies import Sample
from fedldp.schema.attributes import inputs

# Rows here lack what a test does not need, or hold anything on purpose: what is said about that is
# tested in test_quality.py.
pytestmark = pytest.mark.filterwarnings("ignore::fedldp.errors.DataWarning")

VECTOR = Schema.vector(94, bound=1.0)
OUE = Schema.of(street=[f"street {i}" for i in range(100)])
ROW = {"age": 31, "city": "Rome", "way": [0.2, 2.5, -0.7], "colour": "colour 7"}

PLANS = {
    "9 bits": Plan(VECTOR, 1.0, Sample(k=1, mechanism="three-outputs")),
    "36 bits": Plan(VECTOR, 8.0, Sample(k=4, mechanism="three-outputs")),
    "wide": Plan(OUE, 1.0),
    **{name: plan_of(MIXED, name=name) for name in STRATEGIES},
    **{name: Plan.from_json(canonical(document)) for name, document in HAND_MADE.items()},
}
DOCUMENTS = {name: json.loads(plan.to_json()) for name, plan in PLANS.items()}
NAMES = st.sampled_from(sorted(PLANS))


def some_report(plan, n, seed=1):
    rng = random.Random(seed)
    rows = [
        {
            "age": rng.uniform(0, 100),
            "city": rng.choice(["Oslo", "Rome", "Lima"]),
            "way": [rng.uniform(-1, 3) for _ in range(3)],
            "colour": f"colour {rng.randrange(40)}",
            "x": [rng.uniform(-1, 1) for _ in range(94)],
            "street": f"street {rng.randrange(100)}",
        }
        for _ in range(n)
    ]
    return plan.report(rows, fedldp.source(seed)).to_bytes()


def sealed(head, packed):
    """Return a report with the right check value."""
    return head[:12] + crc(head[:12] + packed) + packed


def as_lists(tally):
    return tally.reports, [cells.tolist() for cells in tally.counts]


# Golden bytes


GOLDEN = {  # bits of a record; the header, then three records
    "9 bits": (9, "014af79c2797874e000000038ef498ee", "111eaca0"),
    "sample": (
        86,
        "0189224bdd83610400000003c00a6625",
        "40000000002c00000000088000000000d290002a80020000000002c00000000080",
    ),
    "split": (46, "016850707a370b0a00000003346582eb", "8b3082012130eaccc004209bd2c8c1004c00"),
    "paper": (45, "010363c157c6a831000000035b66764e", "1c88015400100000000000180000000004"),
    "cube": (45, "012645be452454c7000000038fec6002", "a00000000031c002a800227f0100904050"),
    "wide": (
        100,
        "015d40c271579cf900000003d4edc80f",
        "1260c24104024261624002004a590020098007880840dd6d098003946873d400110c68233190",
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_bytes(name):
    plan, rows = PLANS[name], [ROW | {"x": [0.5] * 94, "street": "street 3"}, {}, {"age": 99}]
    data = plan.report(rows, fedldp.source(1)).to_bytes()
    assert (plan.bits, data[:16].hex(), data[16:].hex()) == GOLDEN[name]
    assert counts_in(DOCUMENTS[name], data) is not None


def test_golden_fingerprints():
    """Of hand-made tables, so that no formula stands between the plan and its text."""
    found = {name: plan.fingerprint[:14] for name, plan in PLANS.items() if name in HAND_MADE}
    assert found == {
        "one of two": "d73fad3784b76d",
        "faint": "25534d81d7b101",
        "two of three": "4175d6767b8ea5",
        "small split": "977186ff08ebb3",
        "small paper": "9291fcd1bb45a9",
        "small cube": "d7d5dc284aee07",
        "cube of three": "d20886c8d8428d",
        "lines and a number": "67095ec8ce3b5b",
    }


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("n", [0, 1, 7, 8, 300])
def test_header_and_size(name, n):
    plan = PLANS[name]
    data = some_report(plan, n)
    assert report.HEADER == 16
    assert data[0] == report.VERSION == 1
    assert data[1:8] == hashlib.sha256(plan.to_json().encode()).digest()[:7]
    assert data[8:12] == n.to_bytes(4, "big")
    assert data[12:16] == crc(data[:12] + data[16:])
    assert len(data) == 16 + (n * plan.bits + 7) // 8
    assert plan.bits == width(DOCUMENTS[name])


# What one side writes the other reads


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("n", [0, 1, 5, 8, 203])
def test_parse_counts_what_the_format_says(name, n):
    data = some_report(PLANS[name], n, seed=n)
    found = PLANS[name].parse(data)
    assert as_lists(found) == counts_in(DOCUMENTS[name], data)
    for other in (bytearray(data), memoryview(data), np.frombuffer(data, np.uint8)):
        assert PLANS[name].parse(other) == found


@pytest.mark.parametrize("name", ["9 bits", "36 bits", "sample", "cube"])
def test_chunks_change_nothing(name, monkeypatch):
    """In chunks of 8 vehicles the words come in another order; each chunk is parsed the same."""
    plan, data = PLANS[name], some_report(PLANS[name], 203)
    whole = plan.parse(data)
    monkeypatch.setattr("fedldp._internal.packing._CHUNK_RECORDS", 8)
    assert plan.parse(data) == whole
    assert as_lists(plan.parse(some_report(plan, 203)))[0] == 203


@pytest.mark.parametrize("name", PLANS)
def test_a_vehicle_and_its_server_agree(name):
    plan = PLANS[name]
    ready, rng = vehicle.Plan(plan.to_json(), plan.epsilon), random.Random(1)
    assert (ready.bits, ready.fingerprint) == (plan.bits, plan.fingerprint)
    assert ready.epsilon == plan.total_epsilon
    total = plan.tally()
    for _ in range(40):
        data = ready.report(ROW, rng)
        assert as_lists(plan.parse(data)) == counts_in(DOCUMENTS[name], data)
        total += plan.parse(data)
    assert total.reports == 40


@pytest.mark.parametrize("name", STRATEGIES)
def test_both_sides_draw_from_the_same_law(name):
    """Chi-square of two samples of whole records; by chance in 5 of 10^6 runs, all together."""
    plan, n = plan_of(SMALL, 2.0, name), 6000
    ready, rng = vehicle.Plan(plan.to_json(), 2.0), random.Random(7)
    row = {"age": 31, "city": "Rome", "way": [0.2, 2.5]}
    vehicles = Counter(ready.report(row, rng)[16:].hex() for _ in range(n))
    packed = plan.report([row] * n, fedldp.source(7)).to_bytes()[16:]
    bits = "".join(f"{octet:08b}" for octet in packed)
    records = [bits[i * plan.bits : (i + 1) * plan.bits] for i in range(n)]
    size = -(-plan.bits // 8)
    here = Counter(f"{int(each.ljust(8 * size, '0'), 2):0{2 * size}x}" for each in records)
    # Few of the 2^bits are valid, and what is rare is counted together.
    often = [key for key, seen in (vehicles + here).items() if seen >= 20]
    table = np.array([[side[key] for key in often] for side in (vehicles, here)])
    rest = n - table.sum(axis=1, keepdims=True)
    table = np.hstack([table, rest]) if rest.any() else table
    assert table.shape[1] >= 8
    assert stats.chi2_contingency(table).pvalue > 1e-6


# What is refused


def refused_or_the_same(name, data):
    """Compare with the second reading of the format; only `WireError` may escape."""
    plan, wanted = PLANS[name], counts_in(DOCUMENTS[name], bytes(data))
    try:
        found = plan.parse(data)
    except WireError:
        assert wanted is None
        return False
    assert as_lists(found) == wanted
    return True


@given(NAMES, st.binary(max_size=60))
def test_refuses_any_bytes(name, data):
    with pytest.raises(WireError):
        PLANS[name].parse(data)


@given(NAMES, st.integers(1, 20), st.randoms(use_true_random=False))
@settings(max_examples=300)
def test_any_records_under_a_right_header(name, n, rng):
    """Indexes and codes out of range, not ascending, bits before a code and after the end."""
    head = some_report(PLANS[name], 0)[:8] + n.to_bytes(4, "big")
    packed = rng.randbytes(-(-n * PLANS[name].bits // 8))
    if rng.random() < 0.5:  # mostly zeros, so that some of it is valid
        packed = bytes(octet & rng.choice((0, 0, rng.getrandbits(8))) for octet in packed)
    refused_or_the_same(name, sealed(head, packed))


@pytest.mark.parametrize("name", PLANS)
def test_a_flipped_bit_is_noticed_or_makes_another_valid_report(name):
    data = some_report(PLANS[name], 5)
    taken = 0
    for place in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[place // 8] ^= 128 >> place % 8
        with pytest.raises(WireError):  # a CRC finds every single bit
            PLANS[name].parse(flipped)
        if place >= 16 * 8 or place < 12 * 8:
            taken += refused_or_the_same(name, sealed(bytes(flipped), bytes(flipped[16:])))
    assert taken > 0


@pytest.mark.parametrize("name", PLANS)
def test_every_other_length_is_refused(name):
    data = some_report(PLANS[name], 9)
    for size in range(len(data)):
        for cut in (data[:size], sealed(data[:size].ljust(16), data[16:size])):
            with pytest.raises(WireError):
                PLANS[name].parse(cut)
    for more in (b"\0", b"\1", bytes(9), data):
        for longer in (data + more, sealed(data, data[16:] + more)):
            with pytest.raises(WireError, match="a report of 9 vehicles has"):
                PLANS[name].parse(longer)


@pytest.mark.parametrize("name", PLANS)
def test_a_wrong_count_is_refused_unless_the_bytes_fit(name):
    data = some_report(PLANS[name], 9)
    for n in (0, 1, 7, 8, 10, 11, 16, 17, 255, 2**31, 2**32 - 1):
        changed = data[:8] + n.to_bytes(4, "big") + data[12:]
        with pytest.raises(WireError):
            PLANS[name].parse(changed)
        fits = (n * PLANS[name].bits + 7) // 8 == len(data) - 16
        assert not refused_or_the_same(name, sealed(changed, data[16:])) or fits


def test_padding_bits_must_be_zero():
    for name, plan in PLANS.items():
        n = next(n for n in range(1, 9) if n * plan.bits % 8)
        data = some_report(plan, n)
        for bit in range(-n * plan.bits % 8):
            packed = data[16:-1] + bytes([data[-1] | 1 << bit])
            with pytest.raises(WireError, match="bits after the last record"):
                plan.parse(sealed(data, packed))
            assert not refused_or_the_same(name, sealed(data, packed))


def one(name, bits):
    """Return a report of one record."""
    head = some_report(PLANS[name], 0)[:8] + (1).to_bytes(4, "big")
    packed = int(bits.ljust(-(-len(bits) // 8) * 8, "0"), 2).to_bytes(-(-len(bits) // 8), "big")
    return sealed(head, packed)


@pytest.mark.parametrize(
    ("name", "bits", "said"),
    [
        ("9 bits", "1011101" + "10", None),
        ("9 bits", "1011110" + "10", "an unknown coordinate or code"),
        ("9 bits", "1011101" + "11", "an unknown coordinate or code"),
        ("one of two", "0" + "10", None),
        ("one of two", "0" + "11", "an unknown coordinate or code"),
        ("one of two", "1" + "11", "an unknown coordinate or code"),
        ("two of three", "00" + "010" + "01" + "111", None),
        ("two of three", "01" + "111" + "00" + "010", "do not ascend"),
        ("two of three", "01" + "111" + "01" + "111", "do not ascend"),
        ("two of three", "01" + "111" + "11" + "000", "names coordinate 3 of 3"),
        ("two of three", "00" + "011" + "01" + "111", "the code 3; codes end at 2"),
        ("two of three", "00" + "110" + "01" + "111", "the code 6|bits beyond its code"),
        ("two of three", "01" + "111" + "10" + "011", "the code 3; codes end at 2"),
        ("small split", "1" + "111" + "10", None),
        ("small split", "1" + "111" + "11", "the code 3; codes end at 2"),
        ("sample", "001" + "0" * 38 + "10" + "101" + "1" * 40, None),
        ("sample", "001" + "0" * 38 + "11" + "101" + "1" * 40, "the code 3; codes end at 2"),
        ("sample", "001" + "1" + "0" * 39 + "101" + "1" * 40, r"the code \d+|bits beyond"),
        ("sample", "101" + "1" * 40 + "001" + "0" * 40, "do not ascend"),
        ("sample", "001" + "0" * 40 + "110" + "0" * 40, "names coordinate 6 of 6"),
        ("paper", "00" + "01" + "0" + "0" * 37 + "111", None),
        ("paper", "00" + "01" + "0" + "0" * 36 + "1111", "bits beyond its code"),
        ("paper", "00" + "11" + "0" + "0" * 40, "unknown coordinate or code"),
        ("paper", "00" + "01" + "1" + "1" * 40, None),
        ("cube", "1" * 4 + "1" + "1" * 40, None),
        ("cube", "1" * 4 + "0" + "1" + "0" * 39, "bits beyond its code"),
    ],
)
def test_says_what_is_wrong_with_a_record(name, bits, said):
    plan, data = PLANS[name], one(name, bits)
    assert len(bits) == plan.bits
    if said is None:
        assert as_lists(plan.parse(data)) == counts_in(DOCUMENTS[name], data)
        return
    assert counts_in(DOCUMENTS[name], data) is None
    with pytest.raises(WireError, match=said):
        plan.parse(data)


def test_another_plan_or_version_or_no_bytes():
    data = some_report(PLANS["9 bits"], 3)
    with pytest.raises(WireError, match="answers another plan"):
        Plan(VECTOR, 1.5, Sample(k=1, mechanism="three-outputs")).parse(data)
    with pytest.raises(WireError, match="the format of a report must be 1; got 2"):
        PLANS["9 bits"].parse(sealed(b"\2" + data[1:], data[16:]))
    with pytest.raises(WireError, match="the checksum differs"):
        PLANS["9 bits"].parse(data[:-1] + b"\xff")
    for other in ("text", None, 7, [1], np.zeros((3, 4))[:, ::2], np.array("2020", "M8[s]")):
        with pytest.raises(WireError, match="a report must be a Report or bytes; got"):
            PLANS["9 bits"].parse(other)


def test_one_bad_record_among_many_refuses_them_all(monkeypatch):
    """Also in a later chunk, when the first has been counted."""
    monkeypatch.setattr("fedldp._internal.packing._CHUNK_RECORDS", 8)
    plan = PLANS["9 bits"]
    before, data = plan.tally(), some_report(plan, 96)
    assert plan.parse(data).reports == 96
    with pytest.raises(WireError):
        plan.parse(sealed(data, data[16:-9] + b"\xff" * 9))
    assert as_lists(before) == as_lists(plan.tally()) == (0, [[0] * 282])


def test_only_a_source_and_whole_batches_make_reports():
    plan = PLANS["9 bits"]
    for wrong in (None, 7, random.Random(1)):
        with pytest.raises(DomainError, match="source must be a Source"):
            plan.report([{}], wrong)
    batches = [Matrix(np.zeros((n, 94))) for n in (8, 9, 1)]
    with pytest.raises(DomainError, match="but the last must have a multiple of 8 vehicles"):
        plan.report_batches(batches, fedldp.source(1))
    assert plan.report_batches(batches[:2], fedldp.source(1)).vehicles == 17
    assert plan.report_batches([], fedldp.source(1)).to_bytes() == some_report(plan, 0)


def test_each_number_is_scaled_once(monkeypatch):
    """A report chooses before it scales; a number on a grid is scaled where its row is read."""
    number, day = fedldp.Number, fedldp.Category("day", ["work", "rest"])
    schema = Schema(
        [
            number("speed", 0, 50),
            number("mass", 1, 3),
            fedldp.OptionalNumber("age", 0, 100, grid=11),
            fedldp.Within("daily load", number("load", 0, 9), day),
        ]
    )
    row = {"speed": 30, "mass": 2.5, "age": 31, "load": 4, "day": "rest"}
    plan = Plan(schema, 2.0, fedldp.Split(mechanism="hm-tp"))
    received = vehicle.Plan(plan.to_json(), cap=2)
    counts = []

    def counting(scaled):
        def counted(values, low, high, *others):  # in the library a centre and a scale
            is_only_clipped = np.equal(low, 0) & np.equal(high, 1)
            counts.append((~np.broadcast_to(is_only_clipped, np.shape(values))).sum())
            return scaled(values, low, high, *others)

        return counted

    names = ((parts, "scale_and_clip"), (inputs, "scale_and_clip"), (vehicle, "scaled"))
    for module, name in names:
        monkeypatch.setattr(module, name, counting(getattr(module, name)))
    plan.report([row] * 100, fedldp.source(1))
    assert sum(counts) == 100 * 4
    counts.clear()
    received.report(row)
    assert counts == [1] * 4
