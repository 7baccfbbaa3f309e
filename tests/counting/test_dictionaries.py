"""Columns of few distinct packets: each is validated once, and counted as often as it occurs."""

import numpy as np
import pytest

import fedldp
from fedldp import Plan, Schema
from fedldp.counting import counts
from fedldp.counting.counts import _Counter
from fedldp.plan.parts import Matrix
from fedldp.plan.strategies import Sample

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

SCHEMA = Schema.of(speed=(0, 50), fuel=["petrol", "none", "diesel"])
PLANS = {
    "numbers": Plan(SCHEMA, 2.0, Sample(mechanism="hm-tp")),
    "unary": Plan(Schema.of(fuel=list("abcdefghij")), 1.0),
    "sampled": Plan(SCHEMA, 1.0, Sample(k=1, mechanism="three-outputs")),
}


def distinct_packets(plan, vehicles=1, count=9):
    source = fedldp.source(39)
    missing = Matrix(np.full((vehicles, plan.schema.dimensions), np.nan))
    return [plan.report_batches([missing], source).to_bytes() for _ in range(count)]


def bad_packets(plan):
    good = distinct_packets(plan)[0]
    other = fedldp.Report("0" * 64, plan.bits, 1, good[16:]).to_bytes()
    return [b"", good[:-1], other, good[:12] + bytes(4) + good[16:]]


def rows_of(packets, count, seed, missing=0.0):
    rng = np.random.default_rng(seed)
    found = [packets[place] for place in rng.integers(0, len(packets), count)]
    return [None if rng.random() < missing else packet for packet in found]


def same(found, expected):
    assert found.tally == expected.tally
    assert (found.packets, found.refused) == (expected.packets, expected.refused)
    places = [[(each.number, each.reason) for each in one.listed] for one in (found, expected)]
    assert places[0] == places[1]


def written(folder, packets, **options):
    path = folder / "packets.parquet"
    table = pa.table({"packet": pa.array(packets, pa.binary())})
    parquet.write_table(table, path, **options)
    return path


@pytest.fixture
def repeated(monkeypatch):
    """Return how many packets were added as places in a dictionary."""
    seen, add = [], _Counter._add_repeated

    def watched(self, packets):
        seen.append(len(packets))
        add(self, packets)

    monkeypatch.setattr(_Counter, "_add_repeated", watched)
    return seen


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("vehicles", [1, 3, 600])
def test_a_file_of_few_packets_is_counted_as_a_list_is(tmp_path, name, vehicles, repeated):
    """Packets of few and of many vehicles, of which each occurs another number of times."""
    plan = PLANS[name]
    packets = rows_of(distinct_packets(plan, vehicles), 8000, seed=1)
    path = written(tmp_path, packets, row_group_size=5000)
    same(plan.count(path), plan.count(packets))
    assert sum(repeated) == len(packets)


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_every_distinct_packet_is_validated_and_refused_ones_are_told_by_their_positions(
    tmp_path, missing, repeated
):
    plan = PLANS["numbers"]
    kinds = [*distinct_packets(plan), *bad_packets(plan)]
    packets = rows_of(kinds, 2000, seed=2, missing=missing)
    expected = plan.count(packets)
    assert {"length", "checksum", "plan"} <= expected.refused.keys()
    for size in (2000, 350):
        same(plan.count(written(tmp_path, packets, row_group_size=size)), expected)
        same(plan.count(pa.array(packets, pa.binary()).dictionary_encode()), expected)
    few = plan.count(written(tmp_path, packets), most_listed=5)
    assert few.listed == plan.count(written(tmp_path, packets)).listed[:5]
    assert repeated


def test_a_code_that_does_not_exist_is_refused(tmp_path, repeated):
    plan = Plan(Schema.of(fuel=list("abc")), 8.0)
    assert plan.bits == 2
    bad = fedldp.Report(plan.fingerprint, plan.bits, 1, b"\xc0").to_bytes()
    packets = rows_of([*distinct_packets(plan), bad], 500, seed=3)
    expected = plan.count(packets)
    assert expected.refused == {"code": packets.count(bad)}
    same(plan.count(written(tmp_path, packets)), expected)
    assert repeated


def test_dictionaries_that_differ_are_counted_together(tmp_path, monkeypatch, repeated):
    """Each row group has its own, and few are kept in memory."""
    plan = PLANS["unary"]
    packets = distinct_packets(plan, count=120)
    rows = [each for n in range(0, 120, 20) for each in rows_of(packets[n : n + 30], 400, seed=n)]
    expected = plan.count(rows)
    for most in (1 << 17, 25):
        monkeypatch.setattr(counts, "_MOST_DISTINCT_PACKETS", most)
        same(plan.count(written(tmp_path, rows, row_group_size=400)), expected)
    assert len(repeated) == 12


def test_what_an_arrow_column_has_repeated_is_counted_once(repeated):
    plan = PLANS["numbers"]
    packets = rows_of(distinct_packets(plan), 300, seed=4)
    column = pa.chunked_array([pa.array(packets[:100]), pa.array(packets[100:])])
    encoded = column.dictionary_encode()
    same(plan.count(encoded), plan.count(packets))
    same(plan.count(encoded.chunk(1).slice(17, 150)), plan.count(packets[117:267]))
    assert sum(repeated) == 300 + 150
    # A dictionary that is longer than the column, or has a missing packet, is decoded.
    same(plan.count(encoded.chunk(0).slice(3, 2)), plan.count(packets[3:5]))
    values = pa.array([packets[0], None], pa.binary())
    null = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, 1]), values)
    assert plan.count(null).refused == {"missing": 2}
    assert sum(repeated) == 300 + 150


def test_a_file_of_different_packets_is_not_read_as_a_dictionary(tmp_path, repeated):
    """Which would take longer than to count them one by one."""
    plan = Plan(Schema.vector(40, bound=1.0), 8.0, Sample(k=20, mechanism="three-outputs"))
    packets = distinct_packets(plan, count=500)
    assert len(set(packets)) == 500
    same(plan.count(written(tmp_path, packets)), plan.count(packets))
    same(plan.count(written(tmp_path, packets, use_dictionary=False)), plan.count(packets))
    assert repeated == []


def test_one_column_of_many_is_counted(tmp_path, repeated):
    plan = PLANS["numbers"]
    packets = rows_of(distinct_packets(plan), 300, seed=6)
    columns = {"packet": pa.array(packets, pa.binary()), "other": pa.array(packets[::-1])}
    parquet.write_table(pa.table({"id": range(300), **columns}), tmp_path / "many.parquet")
    same(plan.count(tmp_path / "many.parquet", column="packet"), plan.count(packets))
    assert sum(repeated) == 300
