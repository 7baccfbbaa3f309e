"""Many packets at once are counted, and refused, as each of them is by itself."""

import hashlib
import io
import json
import random
import tracemalloc
from collections import Counter
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import HAND_MADE, MIXED, STRATEGIES, canonical, counts_in, crc, plan_of
from pyarrow import dataset, parquet

import fedldp
from fedldp import Counted, Manifest, Plan, Schema
from fedldp._internal import packets, packing
from fedldp.counting import counts
from fedldp.errors import DomainError, WireError
from fedldp.plan import report
from fedldp.plan.parts import Matrix
from fedldp.plan.report import REASONS
from fedldp.plan.strategies import Sample
from fedldp.storage import files

VECTOR = Schema.vector(94, bound=1.0)
PLANS = {
    "1 bit": Plan(Schema.of(speed=(0, 50)), 1.0, Sample(mechanism="duchi")),
    "9 bits": Plan(VECTOR, 1.0, Sample(k=1, mechanism="three-outputs")),
    "36 bits": Plan(VECTOR, 8.0, Sample(k=4, mechanism="three-outputs")),
    "wide": Plan(Schema.of(street=[f"street {i}" for i in range(100)]), 1.0),
    "directions": Plan(Schema.vector(5, length=1.0), 2.0, strategy="directions"),
    **{name: plan_of(MIXED, name=name) for name in STRATEGIES},
    **{name: Plan.from_json(canonical(document)) for name, document in HAND_MADE.items()},
}
DOCUMENTS = {name: json.loads(plan.to_json()) for name, plan in PLANS.items()}
NINE = PLANS["9 bits"]


def sealed(plan, vehicles, packed):
    head = b"\1" + bytes.fromhex(plan.fingerprint[:14]) + vehicles.to_bytes(4, "big")
    return head + crc(head + packed) + packed


@cache
def valid(plan, vehicles, seed=1):
    missing = Matrix(np.full((vehicles, plan.schema.dimensions), np.nan))
    return plan.report_batches([missing], fedldp.source(seed)).to_bytes()


def mixed(plan, count, seed=1):
    """Return packets of all kinds: valid, damaged in every way, and with any records."""
    rng = random.Random(seed)
    good = [valid(plan, n, seed=n) for n in (0, 1, 1, 1, 2, 5, 7, 8, 9, 40)]
    found = []
    for _ in range(count):
        packet = bytearray(rng.choice(good))
        kind = rng.randrange(11)
        n = int.from_bytes(packet[8:12], "big")
        if kind == 0:
            packet[rng.randrange(len(packet))] ^= 1 << rng.randrange(8)
        elif kind == 1:
            packet = packet[: rng.randrange(len(packet))]
        elif kind == 2:
            packet += rng.randbytes(rng.randrange(1, 4))
        elif kind == 3:
            packet = sealed(plan, n, rng.randbytes(packing.length(n, plan.bits)))
        elif kind == 4:  # mostly zeros, so that some of it is valid
            octets = rng.randbytes(packing.length(n, plan.bits))
            packet = sealed(plan, n, bytes(o & rng.choice((0, 0, o)) for o in octets))
        elif kind == 5:
            packet = sealed(plan, rng.randrange(2**32), bytes(packet[16:]))
        elif kind < 8:
            packet[0 if kind == 6 else rng.randrange(1, 8)] ^= 1 << rng.randrange(8)
            packet = packet[:12] + crc(packet[:12] + packet[16:]) + packet[16:]
        found.append(None if rng.random() < 0.02 else bytes(packet))
    return found


def reason(name, packet):
    """Return why a packet is refused, in the order of the format's description, or None."""
    plan = PLANS[name]
    if packet is None:
        return "missing"
    if len(packet) < 16:
        return "length"
    if packet[0] != 1:
        return "format"
    if packet[1:8].hex() != plan.fingerprint[:14]:
        return "plan"
    if len(packet) != 16 + (int.from_bytes(packet[8:12], "big") * plan.bits + 7) // 8:
        return "length"
    if packet[12:16] != crc(packet[:12] + packet[16:]):
        return "checksum"
    return "code" if counts_in(DOCUMENTS[name], packet) is None else None


def check(found, name, given):
    """Compare with a second reading of the format, packet by packet."""
    reasons = [reason(name, packet) for packet in given]
    numbers = Counter(each for each in reasons if each)
    assert found.refused == numbers
    assert [(each.number, each.reason) for each in found.listed] == [
        (number, each) for number, each in enumerate(reasons) if each
    ]
    good = [packet for packet, each in zip(given, reasons, strict=True) if each is None]
    assert found.packets == len(good)
    assert found.tally == sum(map(PLANS[name].parse, good), PLANS[name].tally())
    read = [counts_in(DOCUMENTS[name], packet) for packet in good]
    assert found.tally.reports == sum(vehicles for vehicles, _ in read)
    for place, cells in enumerate(found.tally.counts):
        np.testing.assert_array_equal(cells, np.sum([counts[place] for _, counts in read], axis=0))


@pytest.mark.parametrize("name", PLANS)
def test_each_packet_is_counted_or_refused_as_by_itself(name):
    given = mixed(PLANS[name], 300)
    found = PLANS[name].count(given)
    assert found.packets > 50
    assert set(found.refused) >= {"missing", "length", "format", "plan", "checksum"}
    check(found, name, given)


def test_records_that_do_not_exist_are_refused():
    names = {name for name, plan in PLANS.items() if "code" in plan.count(mixed(plan, 300)).refused}
    assert names >= set(PLANS) - {"directions"}  # which has a spare bit or none


@pytest.mark.parametrize("name", ["1 bit", "9 bits", "wide", "sample", "directions"])
def test_how_packets_are_divided_for_counting_changes_nothing(name, monkeypatch):
    given = mixed(PLANS[name], 200, seed=2)
    whole = PLANS[name].count(given)
    for chunk, many in ((1, 1 << 12), (13, 8), (1 << 15, 1)):
        monkeypatch.setattr(packets, "_CHUNK_PACKETS", chunk)
        monkeypatch.setattr(counts, "_VEHICLES_OF_A_LARGE_PACKET", many)
        assert PLANS[name].count(given) == whole
    monkeypatch.setattr("fedldp._internal.packing._CHUNK_RECORDS", 8)
    assert PLANS[name].count(given) == whole
    parts = [PLANS[name].count(given[start : start + 37]) for start in range(0, 200, 37)]
    assert sum(parts).tally == whole.tally
    assert sum(parts).refused == whole.refused


def test_long_and_wide_packets():
    wide = Plan(Schema.vector(1000, bound=1.0), 1.0, strategy="cube")
    given = [valid(wide, n, seed=n) for n in (1, 1, 3, 1100)]
    damaged = given[3][:-1] + bytes([given[3][-1] ^ 1])
    found = wide.count([*given, damaged])
    assert found.tally == sum(map(wide.parse, given))
    assert found.refused == {"checksum": 1}
    many = [valid(NINE, 5000, seed=3), valid(NINE, 70_000, seed=4)]
    unknown = sealed(NINE, 5000, many[0][16:-9] + b"\xff" * 9)
    found = NINE.count([*many, unknown])
    assert found.tally == sum(map(NINE.parse, many))
    assert found.refused == {"code": 1}


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40)), max_size=30))
def test_any_bytes_are_refused_and_never_fatal(given):
    found = NINE.count(given)
    assert found.tally == NINE.tally()
    assert sum(found.refused.values()) == len(found.listed) == len(given)


@given(st.sampled_from(sorted(PLANS)), st.integers(0, 2**32), st.integers(0, 60))
@settings(max_examples=60)
def test_any_mixture(name, seed, count):
    given = mixed(PLANS[name], count, seed)
    check(PLANS[name].count(given), name, given)


def test_equal_packets_all_count():
    packet = valid(PLANS["1 bit"], 1)
    assert PLANS["1 bit"].count([packet] * 3000).tally.reports == 3000


def test_few_of_many_refused_packets_are_listed():
    given = [b""] * 2500
    assert len(NINE.count(given).listed) == 1000
    found = NINE.count(given, most_listed=3)
    assert (len(found.listed), found.refused) == (3, {"length": 2500})
    assert len((found + NINE.count(given)).listed) == 1000
    assert NINE.count(given, most_listed=0).listed == ()
    with pytest.raises(DomainError, match="must not be negative"):
        NINE.count([], most_listed=-1)


def test_a_result_is_shown_in_a_line():
    packet = valid(NINE, 3)
    assert repr(NINE.count([packet])) == "<Counted: 3 vehicles in 1 packet>"
    shown = repr(NINE.count([packet, b"", None, None]))
    assert shown == ("<Counted: 3 vehicles in 1 packet; 3 packets refused (missing 2, length 1)>")


# Where packets come from


def columns(given):
    arrow = pa.array(given, pa.binary())
    yield "list", list(given)
    yield "generator", (packet for packet in given)
    yield "views", [None if each is None else memoryview(bytearray(each)) for each in given]
    yield "array", arrow
    yield "slice", pa.array([b"before", *given, b"after"], pa.binary()).slice(1, len(given))
    yield "large", pa.array(given, pa.large_binary())
    yield "view", pa.array(given, pa.binary_view())
    yield "dictionary", arrow.dictionary_encode()
    yield "chunks", pa.chunked_array([arrow.slice(0, 50), arrow.slice(50, 0), arrow.slice(50)])
    yield "table", pa.table({"id": range(len(given)), "packet": arrow})
    yield "batch", pa.record_batch({"packet": arrow})
    yield "reader", pa.table({"packet": arrow}).to_reader(17)
    yield "data set", dataset.dataset(pa.table({"packet": arrow}))
    yield "pandas objects", pd.Series(given, dtype=object)
    yield "pandas arrow", pd.Series(given, dtype=pd.ArrowDtype(pa.binary()))
    yield (
        "pandas frame",
        pd.DataFrame({"packet": pd.Series(given, dtype=pd.ArrowDtype(pa.binary()))}),
    )
    yield "polars", pl.Series("packet", given, dtype=pl.Binary)
    yield "polars frame", pl.DataFrame({"packet": pl.Series(given, dtype=pl.Binary)})
    yield "numpy", np.array(given, dtype=object)


GIVEN = mixed(NINE, 200, seed=5)


@pytest.mark.parametrize("name", [name for name, _ in columns(GIVEN)])
def test_columns_of_packets(name):
    check(NINE.count(dict(columns(GIVEN))[name]), "9 bits", GIVEN)


def test_a_column_of_one_size():
    given = [valid(NINE, 1, seed) for seed in range(100)]
    fixed = pa.array(["?" * 18, *given, None], pa.binary(18))
    found = NINE.count(fixed.slice(1))
    assert found.tally == NINE.count(given).tally
    assert found.refused == {"missing": 1}
    assert NINE.count(pa.array([], pa.binary())).packets == 0
    assert NINE.count([]).tally == NINE.tally()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (b"bytes", "list of bytes.*; got bytes. Give a list, or use parse"),
        (7, "list of bytes.*; got int"),
        (None, "list of bytes.*; got NoneType"),
        ([b"", "text"], "bytes or None; number 1 is 'text'"),
        ([b"", 7], "bytes or None; number 1 is 7"),
        (pa.array(["text"]), "must be binary; got string"),
        (pa.table({"a": [1]}), "must have one binary column; this one has 0"),
        (pa.table({"a": [b""], "b": [b""]}), r"this one has 2 \(a, b\)"),
    ],
)
def test_an_invalid_column_of_packets(given, said):
    with pytest.raises(DomainError, match=said):
        NINE.count(given)


def test_a_column_is_named():
    table = pa.table({"a": [b""], "b": [valid(NINE, 1)]})
    assert NINE.count(table, column="b").packets == 1
    with pytest.raises(DomainError, match="no binary column 'c'; the table has a, b"):
        NINE.count(table, column="c")


def test_a_plan_for_study_counts_nothing():
    study = Plan(Schema.of(speed=(0, 50)), 1.0, Sample(mechanism="laplace", study=True))
    with pytest.raises(DomainError, match="a plan for study"):
        study.count([])


# Files


def write(path, given, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table({"packet": pa.array(given, pa.binary())}), path, **options)
    return path


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_files_and_folders(tmp_path):
    folder = tmp_path / "reports"
    write(folder / "day=1/a.parquet", GIVEN[:120], row_group_size=50, compression="zstd")
    write(folder / "day=2/b.parquet", GIVEN[120:], use_dictionary=False)
    good = [packet for packet in GIVEN if packet and not reason("9 bits", packet)]
    (folder / "c.bin").write_bytes(b"".join(good))
    (folder / "empty.bin").touch()
    (folder / "_SUCCESS").write_text("done")
    (folder / ".a.parquet.crc").write_text("sum")
    (folder / "_log").mkdir()
    (folder / "_log/d.bin").write_bytes(good[0])
    found = NINE.count(folder)
    assert found.tally == NINE.count(GIVEN + good).tally
    assert found.refused == NINE.count(GIVEN).refused
    names = [folder / name for name in ("c.bin", "day=1/a.parquet", "day=2/b.parquet", "empty.bin")]
    assert found.manifest == Manifest({str(path): digest(path) for path in names})
    listed = [(each.shard, each.number) for each in found.listed]
    bad = [number for number, packet in enumerate(GIVEN) if reason("9 bits", packet)]
    places = [(names[1], n) if n < 120 else (names[2], n - 120) for n in bad]
    assert listed == [(str(path), number) for path, number in places]
    some = NINE.count(str(folder / "*/*.parquet"))
    assert (some.tally, len(some.manifest)) == (NINE.count(GIVEN).tally, 2)
    assert NINE.count(names[0]).packets == len(good)
    assert len(NINE.count(folder, most_listed=2).listed) == 2
    with pytest.raises(DomainError, match="no file matches"):
        NINE.count(str(folder / "*.csv"))
    with pytest.raises(FileNotFoundError):
        NINE.count(folder / "gone.parquet")


def test_a_damaged_parquet_file_is_not_counted_in_part(tmp_path):
    path = write(tmp_path / "a.parquet", [valid(NINE, 1)] * 1000)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DomainError, match=r"a\.parquet cannot be read as a Parquet file"):
        NINE.count(path)


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.bin"
    path.write_bytes(valid(NINE, 1) * 10)
    split = report.split

    def and_grow(*arguments):
        yield from split(*arguments)
        with path.open("ab") as file:
            file.write(valid(NINE, 1))

    monkeypatch.setattr(report, "split", and_grow)
    with pytest.raises(DomainError, match="changed while it was read"):
        NINE.count(path)


@pytest.mark.parametrize("piece", [1, 7, 16, 50, 1000, 1 << 22])
def test_reports_that_follow_one_another(piece, monkeypatch):
    monkeypatch.setattr(report, "_PIECE", piece)
    rng = random.Random(3)
    sizes = [rng.choice([0, 1, 1, 1, 1, 2, 30]) for _ in range(60)] + [1] * 80
    good = [valid(NINE, n, seed) for seed, n in enumerate(sizes)]
    damaged = good[5][:-1] + bytes([good[5][-1] ^ 4])
    given = [*good[:20], damaged, *good[20:]]
    found = counts.count_stream(io.BytesIO(b"".join(given)), NINE)
    check(found, "9 bits", given)
    # What cannot be followed is one packet, whatever comes after it.
    ends = {
        b"\2" + good[5][1:] + good[6]: "format",
        b"\1" + bytes(30): "plan",
        good[-1][:-1]: "length",
        b"\1": "length",
        good[5][:8] + b"\xff" * 4 + good[5][12:]: "length",
    }
    for end, said in ends.items():
        found = counts.count_stream(io.BytesIO(b"".join(given) + end), NINE)
        assert found.tally.reports == sum(sizes)
        assert found.refused == Counter(["checksum", said])


def test_a_header_alone_asks_for_little_memory():
    asked = []

    class Stream(io.BytesIO):
        def read(self, size):
            asked.append(size)
            return super().read(size)

    promise = valid(NINE, 0)[:8] + b"\xff" * 4 + bytes(4)
    assert counts.count_stream(Stream(promise), NINE).refused == {"length": 1}
    assert max(asked) == 2**22


def test_a_file_is_not_read_for_a_header_that_says_more_than_there_is(tmp_path):
    promise = valid(NINE, 0)[:8] + b"\xff" * 4 + bytes(4)
    path = tmp_path / "a.bin"
    with path.open("wb") as file:
        file.write(valid(NINE, 3) + promise)
        file.truncate(1 << 28)
    tracemalloc.start()
    found = NINE.count(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (found.packets, found.refused) == (1, {"length": 1})
    assert most < 1 << 25


def test_long_packets_are_read_few_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("fedldp.counting.packets._BLOCK_BYTES", 1 << 16)
    packet = valid(NINE, 20_000)
    path = write(tmp_path / "a.parquet", [packet] * 40, use_dictionary=False)
    sizes = []
    chunks = packets.Packets.chunks

    def noted(self):
        sizes.append(int(self.lengths.sum()))
        return chunks(self)

    monkeypatch.setattr(packets.Packets, "chunks", noted)
    monkeypatch.setattr("fedldp.counting.packets._FIRST_PACKETS", 1)
    for source in (path, (packet for _ in range(40))):
        assert NINE.count(source).tally.reports == 800_000
    assert max(sizes) < 4 * len(packet)


# Manifests


def test_results_of_the_same_shard_do_not_add(tmp_path):
    one = write(tmp_path / "1.parquet", [valid(NINE, 1)])
    two = write(tmp_path / "2.parquet", [valid(NINE, 1)])  # the same contents, another name
    assert digest(one) == digest(two)
    both = NINE.count(one) + NINE.count(two)
    assert both == NINE.count(tmp_path) == sum([NINE.count(one), NINE.count(two)])
    assert both.tally.reports == 2
    with pytest.raises(DomainError, match=r"1 shard would count twice: .*/1\.parquet\. Merge"):
        both + NINE.count(one)
    for again in (one, tmp_path):
        with pytest.raises(DomainError, match="would count twice"):
            sum([NINE.count(one), both, NINE.count(again)])
    memory = NINE.count([valid(NINE, 1)])
    assert (memory + memory).tally.reports == 2  # without names nobody knows


def test_only_results_add():
    found = NINE.count([])
    for other in (1, None, NINE.tally()):
        with pytest.raises(TypeError):
            found + other
        with pytest.raises(TypeError):
            other + found
    with pytest.raises(TypeError):
        Manifest() + {}
    with pytest.raises(DomainError, match="of different plans"):
        found + PLANS["wide"].count([])


def test_saved_and_loaded(tmp_path):
    write(tmp_path / "reports/1.parquet", GIVEN)
    found = NINE.count(tmp_path / "reports")
    found.save(tmp_path / "tally.json")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["reports", "tally.json", "tally.json.manifest"]
    assert NINE.load_tally(tmp_path / "tally.json") == found.tally
    again = Counted.load(tmp_path / "tally.json", NINE)
    assert (again.tally, again.packets, again.refused, again.manifest) == (
        found.tally,
        found.packets,
        found.refused,
        found.manifest,
    )
    with pytest.raises(DomainError, match="would count twice"):
        again + found


def test_a_result_as_bytes(tmp_path):
    write(tmp_path / "a.parquet", GIVEN)
    found = NINE.count(tmp_path)
    data = found.to_bytes()
    assert Counted.from_bytes(data, NINE) == found
    assert Counted.from_bytes(memoryview(data), NINE).to_bytes() == data
    rng = random.Random(1)
    for _ in range(300):
        damaged = bytearray(data)
        damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        for wrong in (bytes(damaged), data[: rng.randrange(len(data))], data + b"0"):
            with pytest.raises(WireError, match="not a 'fedldp counted 1' of this plan"):
                Counted.from_bytes(wrong, NINE)
    with pytest.raises(WireError, match="another plan"):
        Counted.from_bytes(data, PLANS["36 bits"])


@pytest.mark.parametrize(
    "change",
    [
        {"format": "fedldp counted 2"},
        {"packets": -1},
        {"refused": {"unknown": 1}},
        {"listed": [["", 1]]},
        {"listed": [["", "1", "code"]]},
        {"listed": [[7, 1, "code"]]},
        {"listed": [["", 1, "unknown"]]},
        {"listed": 7},
        {"shards": {"a": 1}},
        {"more": 1},
    ],
)
def test_malformed_results_are_refused(change):
    data = NINE.count([b""]).to_bytes()
    size = int.from_bytes(data[:8], "big")
    document = canonical(json.loads(data[8 : 8 + size]) | change).encode()
    body = len(document).to_bytes(8, "big") + document + data[8 + size : -32]
    with pytest.raises(WireError, match="not a 'fedldp counted 1' of this plan"):
        Counted.from_bytes(body + hashlib.sha256(body).digest(), NINE)


def test_the_order_of_results_changes_nothing(tmp_path):
    for number in range(5):
        write(tmp_path / f"{number}.parquet", mixed(NINE, 100, seed=number))
    every = [NINE.count(path, most_listed=20) for path in sorted(tmp_path.iterdir())]
    whole = NINE.count(tmp_path, most_listed=20)
    empty = NINE.count([])
    for _ in range(10):
        random.Random(7).shuffle(every)
        assert counts.merge(empty, every, 20).to_bytes() == whole.to_bytes()


class PowerCut(BaseException):
    """Not even an Exception."""


@pytest.mark.parametrize("step", range(6))
def test_a_tally_and_its_manifest_change_together(step, tmp_path, monkeypatch):
    """Cut off before each write: the first that is found is the old state, then the new one."""
    path = tmp_path / "tally.json"
    old, new = (NINE.count([valid(NINE, n)]) for n in (3, 5))
    shards = {}
    for number, each in enumerate((old, new)):
        shards[str(number)] = str(number)
        object.__setattr__(each, "manifest", Manifest(dict(shards)))
    old.save(path)
    left = [step]

    def cut(function):
        def until(*arguments, **options):
            if not left[0]:
                raise PowerCut
            left[0] -= 1
            return function(*arguments, **options)

        return until

    with monkeypatch.context() as patch:
        patch.setattr(files, "write", cut(files.write))
        patch.setattr(type(path), "replace", cut(type(path).replace))
        if step < 5:
            with pytest.raises(PowerCut):
                new.save(path)
        else:
            new.save(path)
    for _ in range(2):
        found = Counted.load(path, NINE)
        assert (found.tally, found.manifest) in [(each.tally, each.manifest) for each in (old, new)]
        assert (found.tally == new.tally) == (step >= 4)
        assert NINE.load_tally(path) == found.tally
    new.save(path)
    assert Counted.load(path, NINE).manifest == new.manifest


def test_a_tally_that_is_not_that_of_its_manifest_is_refused(tmp_path):
    path = tmp_path / "tally.json"
    NINE.count([valid(NINE, 3)]).save(path)
    NINE.tally().save(path)
    with pytest.raises(DomainError, match=r"tally\.json must be the tally that tally\.json\.man"):
        Counted.load(path, NINE)
    path.unlink()
    with pytest.raises(DomainError, match=r"it is missing\. Restore it, or delete both files"):
        counts.load_or_begin(path, NINE)
    NINE.tally().save(path)
    (tmp_path / "tally.json.manifest").unlink()
    assert Counted.load(path, NINE).tally == NINE.tally()


@pytest.mark.parametrize(
    "change",
    [
        {"format": "fedldp manifest 2"},
        {"plan": "0" * 64},
        {"packets": -1},
        {"packets": 1.0},
        {"packets": True},
        {"refused": {"unknown": 1}},
        {"refused": {"code": -1}},
        {"refused": []},
        {"shards": []},
        {"shards": {"a": 1}},
        {"more": 1},
    ],
)
def test_malformed_manifests_are_refused(change, tmp_path):
    path = tmp_path / "tally.json"
    NINE.count([]).save(path)
    manifest = tmp_path / "tally.json.manifest"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | change))
    with pytest.raises(WireError, match="not a 'fedldp manifest 1' of this plan"):
        Counted.load(path, NINE)


def test_every_reason_is_explained():
    assert list(REASONS) == ["missing", "length", "format", "plan", "checksum", "code"]
    assert len(REASONS) == report.CODE
