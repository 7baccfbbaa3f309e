"""The core in C draws what `vehicle.py` draws, and refuses what it refuses."""

import ctypes
import errno
import hashlib
import importlib.util
import json
import math
import random
import re
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from c_vehicle import (
    CODE,
    CORE,
    EXPENSIVE,
    FOLDER,
    LIMIT,
    NO_RANDOM,
    OK,
    REFUSED,
    ROOT,
    VECTORS,
    CPlan,
    Row,
    Stream,
    built,
    bytes_of,
)
from full_figures import keep
from library_plans import library_plans
from random_plans import EdgeTape, RandomPlans
from scipy.stats import chi2

import fedldp
from fedldp import vehicle
from fedldp.coders import tables
from fedldp.coders.categories import RandomizedResponse
from fedldp.plan import compiled
from fedldp.schema.attributes import ATTRIBUTES


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["name"])
def test_vectors(core, case):
    plan = CPlan.of(core, case["plan"])
    assert plan.check(case["cost"]) == OK
    for answer in case["answers"]:
        data = bytes_of(answer["thrown"])
        assert plan.draw(answer["row"], data) == (OK, bytes.fromhex(answer["report"]), len(data))


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["name"])
def test_a_random_source_that_fails_gives_no_report(core, case):
    plan = CPlan.of(core, case["plan"])
    answer = case["answers"][0]
    data = bytes_of(answer["thrown"])
    for length in range(0, len(data), 4):
        status, report, _ = plan.draw(answer["row"], data[:length])
        assert (status, report) == (NO_RANDOM, bytes(len(report)))


def test_vectors_of_calendars(core):
    for case in VECTORS["calendars"]:
        document = json.loads(case["calendar"])
        for drawn in case["drawn"]:
            stream = Stream(bytes_of(drawn["thrown"]))
            chosen = (ctypes.c_uint64 * document["answers"])()
            k, d = document["answers"], document["periods"]
            assert core.fedldp_choose(k, d, stream.callback, None, chosen) == OK
            assert [place + 1 for place in chosen] == drawn["periods"]


def test_choosing_needs_a_set(core):
    stream = Stream(bytes(100))
    chosen = (ctypes.c_uint64 * 4)()
    for k, d in ((0, 3), (4, 3), (1, (1 << 24) + 1)):
        assert core.fedldp_choose(k, d, stream.callback, None, chosen) == REFUSED
    assert core.fedldp_choose(2, 3, Stream(b"").callback, None, chosen) == NO_RANDOM


def reports_differ(core, seed, plans, rows, at_edges):
    """Return how many reports of random plans and rows differ from those of `vehicle.py`."""
    source, differ = RandomPlans(seed), 0
    for _ in range(plans):
        text = source.plan()
        document = json.loads(text)
        plan, plan_in_c = vehicle.Plan(text, "9999"), CPlan.of(core, text)
        assert plan_in_c.check(plan.epsilon) == OK
        words = source.edge_words(document)
        for _ in range(rows):
            row, tape = source.row(document["schema"]), EdgeTape(source.random.random(), words)
            rounds = tape.rounds_at_the_edge if at_edges else vehicle.letter_of
            with mock.patch.object(vehicle, "letter_of", rounds):
                report = plan.report(row, tape)
            data = bytes(tape.data)
            differ += plan_in_c.draw(row, data) != (OK, report, len(data))
    return differ


@pytest.mark.parametrize("at_edges", [False, True])
def test_random_plans_and_rows(core, at_edges):
    assert reports_differ(core, seed=1, plans=400, rows=5, at_edges=at_edges) == 0


@pytest.mark.full
@pytest.mark.parametrize("seed", range(10))
def test_100_000_random_plans_and_rows(core, seed):
    assert reports_differ(core, seed=100 + seed, plans=10_000, rows=1, at_edges=False) == 0
    keep(f"plans-{seed}", {"plans": 10_000})


@pytest.mark.full
def test_20_000_random_rows_at_edges(core):
    assert reports_differ(core, seed=50, plans=2000, rows=10, at_edges=True) == 0
    keep("rows-at-edges", {"rows_at_edges": 20_000})


def test_the_share_of_a_vector_at_its_edge(core):
    """A rounding word that is just below the share, and one that is not."""
    source = RandomPlans(5)
    compared = 0
    while compared < 200:
        document = json.loads(source.plan())
        if document["parts"][0]["kind"] != "directions":
            continue
        text = vehicle.canonical(document)
        plan, plan_in_c = vehicle.Plan(text, "9999"), CPlan.of(core, text)
        row = source.row(document["schema"])
        tape = EdgeTape(compared)
        keeper = mock.Mock(side_effect=math.isqrt)
        with mock.patch.object(vehicle, "isqrt", keeper):
            plan.report(row, tape)
        share = min(math.isqrt(*keeper.call_args.args), 1 << 32)
        if not int(document["parts"][0]["null_input"]):
            share = ((1 << 32) + share) >> 1
        for rounding in (share - 1, share):
            if not 0 <= rounding < 1 << 32:
                continue
            data = bytearray(tape.data)
            data[4:8] = rounding.to_bytes(4, "big")
            report = plan.report(row, Tape(bytes(data)))
            assert plan_in_c.draw(row, bytes(data)) == (OK, report, len(data))
            compared += 1


class Tape:
    """A random source for `vehicle.py` that reads certain bytes."""

    def __init__(self, data):
        self._data = data

    def getrandbits(self, bits):
        size = -(-bits // 8)
        chunk, self._data = self._data[:size], self._data[size:]
        return int.from_bytes(chunk, "big") >> (8 * size - bits)


# What the device refuses by itself, without the check of `fedldp compile`.

# How the text is written, which the device never sees; or what is useful, not what is private.
NO_LEAK = re.compile(
    r"an unknown entry|entries in another order|an entry twice|a space|a line break|a label that is"
    r"|a bound with|a count (that is (not|a truth)|up to|above|with)|an epsilon (with|in|of|that)"
    r"|another format|of format 1|a plan of format|are not whole|a name that stands twice"
    r"|letters?|values?|a row (with another total|that is longer)|tables? (in|that (no|stands))"
    r"|a total (that is no power|above 2\^62)|a table whose mean|2\^26 counters|more tables"
    r"|two cubes|directions beside a cube|two rules"
)


def unchecked(core, document):
    """Return a plan for C as a document claims it to be, or None if C cannot express it."""
    try:
        parts = [vehicle_part_bits(document, part) for part in document["parts"]]
        numbers = {
            "question": "00" * 32,
            "fingerprint": "00" * 32,
            "epsilon": Fraction(document["epsilon"]),
            "bits": sum(parts),
            "constant": 0,
            "periods": 0,
            "answers": 0,
        }
        return CPlan(core, *compiled.constants(document, numbers))
    except Exception:
        return None


def vehicle_part_bits(document, part):
    schema, tables = document["schema"], document["tables"]
    if part["kind"] == "directions":
        return part["seed_bits"] + part["directions"].bit_length()
    sizes = [schema[number].get("size", 1) for number in part["attributes"]]
    if part["kind"] == "cube":
        return sum(sizes)
    bits = []
    for number in part["tables"]:
        struct = compiled._table(tables[number])
        bits.append(struct.entries["bits"])
    d, k = sum(sizes), part["k"]
    if k < d:
        return k * (vehicle.column_bits(d) + max(bits))
    return sum(size * each for size, each in zip(sizes, bits, strict=True))


def test_every_refused_plan_is_refused(core):
    """By the compiler; and by the device, if the plan leaks and can be written in C at all."""
    on_the_device = {}
    for case in VECTORS["refused"]:
        with pytest.raises(ValueError, match="refused"):
            compiled.compile_plan(case["plan"], case["cap"])
        try:
            document = json.loads(case["plan"])
        except ValueError:
            continue
        plan = unchecked(core, document)
        if plan is None:
            continue
        on_the_device[case["why"]] = plan.check(case["cap"])
    passed = [why for why, status in on_the_device.items() if status == OK]
    assert [why for why in passed if NO_LEAK.search(why) is None] == []
    assert [why for why in passed if re.search("leak|ratio|cost|claim", why)] == []
    assert len(on_the_device) - len(passed) >= 70


def refused(core, plans):
    """Return the plans that the device refuses, or draws without what they cost."""
    found = []
    for plan in plans:
        report = plan.plan if isinstance(plan, fedldp.Calendar) else plan
        cost = vehicle.Plan(report.to_json(), "9999").epsilon
        less, plan_in_c = cost - Fraction(1, 10**19), CPlan.of(core, plan.to_json())
        if (plan_in_c.check(cost), plan_in_c.check(less)) != (OK, EXPENSIVE):
            found.append(plan.to_json())
    return found


def test_no_plan_of_the_library_is_refused(core):
    """The e^epsilon of the device has 160 fraction bits: enough for every plan."""
    assert refused(core, library_plans(random.Random(6), 10)) == []


@pytest.mark.full
def test_none_of_1000_plans_of_the_library_is_refused(core):
    assert refused(core, library_plans(random.Random(7), 100)) == []
    keep("library-plans", {"library_plans": 1000})


def test_the_plans_of_the_library_are_of_every_kind():
    """A new kind of attribute, table, part or rule needs a plan in library_plans.py."""
    plans = list(library_plans(random.Random(6), 10))
    with mock.patch.object(vehicle, "entries", wraps=vehicle.entries) as read:
        for plan in plans:
            compiled.compile_plan(plan.to_json(), "9999")
    assert {call.args[1] for call in read.call_args_list} == set(vehicle.ENTRIES)
    schemas = [plan.schema for plan in plans if isinstance(plan, fedldp.Plan)]
    attributes = [attribute for schema in schemas for attribute in schema.attributes]
    columns = [column for attribute in attributes for column in attribute.columns]
    assert {column.rule for column in columns} == {
        "random",
        *(rule for column in columns for rule in column.rules),
    }
    assert {type(attribute) for attribute in attributes} == set(ATTRIBUTES.values())
    assert any(attribute.constant for attribute in attributes)
    assert any(plan.constant for plan in plans if isinstance(plan, fedldp.Plan))


def test_no_random_plan_is_refused(core):
    source = RandomPlans(7)
    for _ in range(300):
        text = source.plan()
        cost = vehicle.Plan(text, "9999").epsilon
        plan = CPlan.of(core, text)
        assert plan.check(cost) == OK
        assert plan.check(cost - Fraction(1, 10**19)) == EXPENSIVE


def test_a_large_cube_is_beyond_the_limit(core):
    weights = {"epsilon": "1.5", "threshold": 0, "heavy": 4, "light": 1}
    for size, status in ((256, OK), (257, LIMIT)):
        schema = [{"name": "x", "low": -1.0, "high": 1.0, "missing": 0.0, "size": size}]
        document = {"format": "fedldp plan 1", "epsilon": "1.5", "schema": schema, "tables": []}
        document["parts"] = [{"kind": "cube", "attributes": [0], **weights}]
        plan = CPlan.of(core, vehicle.canonical(document))
        assert plan.check() == status
    tape = EdgeTape(1)
    # The largest cube, with its largest integers.
    schema[0]["size"] = 256
    document["parts"][0] |= {"heavy": str(1 << 96), "light": str((1 << 94) + 1)}
    text = vehicle.canonical(document)
    row = {"x": [0.01 * i - 1 for i in range(256)]}
    report = vehicle.Plan(text, "9").report(row, tape)
    assert CPlan.of(core, text).draw(row, bytes(tape.data)) == (OK, report, len(tape.data))


def test_working_memory_that_is_too_small_is_a_limit(core):
    for case in VECTORS["cases"]:
        plan = CPlan.of(core, case["plan"])
        if plan.plan.scratch > 1:
            plan.plan.scratch -= 1
            assert plan.check() == LIMIT


# The law of codes, by all random words of small tables.


def small_plan(table, entry):
    schema = [entry]
    document = {"format": "fedldp plan 1", "epsilon": "9.0", "schema": schema, "tables": [table]}
    document["parts"] = [{"kind": "sample", "k": 1, "attributes": [0], "tables": [0]}]
    if table["kind"] == "lines":
        document["format"] = "fedldp plan 2"
    return vehicle.canonical(document)


def code_of(plan, report):
    bits = "".join(f"{octet:08b}" for octet in report[16:])
    return int(bits[: plan.plan.bits], 2)


def category(count):
    labels = [f"label {i}" for i in range(count)]
    return {"name": "x", "categories": labels, "missing": labels[0]}


@pytest.mark.parametrize(("categories", "same", "other"), [(3, 6, 1), (4, 5, 1), (6, 3, 1)])
def test_the_law_of_randomised_response(core, categories, same, other):
    table = {"kind": "response", "epsilon": "2.0", "same": same, "other": other}
    plan = CPlan.of(core, small_plan({**table, "categories": categories}, category(categories)))
    for own in range(categories):
        odds = [0] * categories
        row = Row(plan.columns, {"x": f"label {own}"})
        for top in range(8):
            for low in (0, (1 << 61) - 1):
                word = (top << 61) + low
                report = plan.draw_values(row, word.to_bytes(8, "big"))[1]
                odds[code_of(plan, report)] += 1
        assert odds == [2 * (same if code == own else other) for code in range(categories)]


def test_the_law_of_a_unary_encoding(core):
    table = {"kind": "unary", "epsilon": "1.2", "categories": 3, "total": 8, "absent": 2}
    plan = CPlan.of(core, small_plan(table, category(3)))
    row = Row(plan.columns, {"x": "label 1"})
    ones = [0, 0, 0]
    for words in range(8**3):
        tops = (words >> 6, words >> 3 & 7, words & 7)
        data = b"".join((top << 61).to_bytes(8, "big") for top in tops)
        code = code_of(plan, plan.draw_values(row, data)[1])
        ones = [count + (code >> 2 - i & 1) for i, count in enumerate(ones)]
    assert ones == [2 * 64, 4 * 64, 2 * 64]


def test_the_law_of_lines(core):
    table = {"kind": "lines", "epsilon": "0.7", "categories": 8, "base": 3, "digits": 2}
    plan = CPlan.of(core, small_plan({**table, "same": 2, "other": 1}, category(8)))
    for own in range(8):
        row = Row(plan.columns, {"x": f"label {own}"})
        for direction in range(4):
            odds = [0, 0, 0]
            for top in range(4):
                data = ((direction << 62) + 5).to_bytes(8, "big") + (top << 62).to_bytes(8, "big")
                code = code_of(plan, plan.draw_values(row, data)[1])
                assert code // 3 == direction
                odds[code % 3] += 1
            product = vehicle.line_product(3, 2, direction, own)
            assert odds == [2 if answer == product else 1 for answer in range(3)]


def test_the_law_of_a_table_of_numbers(core):
    """Each letter has the odds of its row, and x is rounded to the letters beside it."""
    case = next(case for case in VECTORS["cases"] if "not evenly" in case["name"])
    counts = json.loads(case["plan"])["tables"][0]["counts"]
    letters = json.loads(case["plan"])["tables"][0]["letters"]
    plan = CPlan.of(core, case["plan"])
    for row, letter in zip(counts, letters, strict=True):
        values = Row(plan.columns, {"speed": 65 + 65 * letter})
        odds = [0, 0, 0]
        for top in range(16):  # two bits for the column, one for the share of its first output
            data = (top << 60).to_bytes(8, "big") + bytes(4)
            odds[code_of(plan, plan.draw_values(values, data)[1])] += 1
        assert odds == [2 * count for count in row]


def test_the_law_of_a_cube(core):
    """The number below the sum of all odds says how many signs agree, at each of its edges."""
    entry = {"name": "x", "low": -1.0, "high": 1.0, "missing": 0.0, "size": 4}
    cube = {"kind": "cube", "attributes": [0], "epsilon": "1.5", "threshold": 0}
    document = {"format": "fedldp plan 1", "epsilon": "1.5", "schema": [entry], "tables": []}
    document["parts"] = [{**cube, "heavy": 4, "light": 1}]
    plan = CPlan.of(core, vehicle.canonical(document))
    values = Row(plan.columns, {"x": [1.0] * 4})
    share = (1 << 69) // 31
    for number in range(31):
        h = sum(number >= odds for odds in (1, 5, 11, 27))
        for drawn in (number * share, (number + 1) * share - 1):
            data = (drawn << 3).to_bytes(9, "big")
            data += b"".join(i.to_bytes(8, "big") for i in (3, 1, 4, 2)) + bytes(16)
            status, report, _ = plan.draw_values(values, data)
            assert status == OK
            assert report[16] >> 4 == sum(1 << 3 - (i - 1) for i in (2, 4, 1, 3)[:h])
    again = ((31 * share) << 3).to_bytes(9, "big") + data
    status, after, used = plan.draw_values(values, again)
    assert (status, after, used) == (OK, report, len(again))
    equal_keys = data[:9] + bytes(32) + data[9:]
    assert plan.draw_values(values, equal_keys) == (OK, report, len(equal_keys))


def with_reader(core, text, **constants):
    """Return a plan whose first attribute is read with other constants, which nothing checks."""
    found = compiled.compile_plan(text, "9")
    [attribute] = found.plan.entries["attributes"].target.values
    detail = attribute.entries["detail"].target.entries
    assert set(constants) <= set(detail)
    detail.update(constants)
    plan = CPlan(core, found.plan, found.columns)
    assert plan.check() == OK
    return plan


def test_no_reader_changes_the_odds_of_randomised_response(core):
    table = {"kind": "response", "epsilon": "2.0", "categories": 3, "same": 6, "other": 1}
    plan = with_reader(core, small_plan(table, category(3)), count=9, labels=None)
    row = Row(plan.columns, {})
    row.values[0].kind, row.values[0].code = CODE, 7
    codes = [code_of(plan, plan.draw_values(row, bytes([top << 5] * 8))[1]) for top in range(8)]
    assert [codes.count(code) for code in range(4)] == [1, 1, 6, 0]


def test_no_reader_changes_the_odds_of_a_table_of_numbers(core):
    entry = {"name": "x", "low": -1.0, "high": 1.0, "missing": 0.0, "size": 1}
    table = {"kind": "numbers", "epsilon": "2.0", "counts": [[3, 1], [1, 3]]}
    table |= {"letters": [-1.0, 1.0], "values": [-2.0, 2.0]}
    plan = with_reader(core, small_plan(table, entry), missing=compiled._bits(1000.0))
    row = Row(plan.columns, {})
    words = [(top << 61).to_bytes(8, "big") + bytes(4) for top in range(8)]
    codes = [code_of(plan, plan.draw_values(row, data)[1]) for data in words]
    assert [codes.count(code) for code in (0, 1)] == [2, 6]


def test_no_reader_changes_the_odds_of_a_cube(core):
    entry = {"name": "x", "low": -1.0, "high": 1.0, "missing": 0.0, "size": 1}
    cube = {"kind": "cube", "attributes": [0], "epsilon": "1.5", "threshold": 0}
    document = {"format": "fedldp plan 1", "epsilon": "1.5", "schema": [entry], "tables": []}
    document["parts"] = [{**cube, "heavy": 4, "light": 1}]
    plan = with_reader(core, vehicle.canonical(document), missing=compiled._bits(5.0))
    row, share = Row(plan.columns, {}), (1 << 67) // 5
    words = [(number * share << 5).to_bytes(9, "big") + bytes(12) for number in range(5)]
    assert [code_of(plan, plan.draw_values(row, data)[1]) for data in words] == [0, 1, 1, 1, 1]


def drawn_codes(plan, row, count):
    """Return how often each code is drawn, with random bytes that are always the same."""
    source, values = random.Random(12), Row(plan.columns, row)
    codes = [code_of(plan, plan.draw_values(values, source.randbytes(64))[1]) for _ in range(count)]
    return np.bincount(codes, minlength=1 << plan.plan.bits)


def assert_law(counts, law):
    """Compare counts with a law by a chi-square test. One of a million seeds would fail."""
    expected = np.asarray(law) * counts.sum()
    assert counts[expected == 0].sum() == 0
    used = expected > 0
    statistic = ((counts[used] - expected[used]) ** 2 / expected[used]).sum()
    assert chi2.sf(statistic, used.sum() - 1) > 1e-6


@pytest.mark.parametrize("x", [-1.0, 0.13, 1.0])
def test_the_law_of_a_large_table(core, x):
    channel = fedldp.mechanism("hm-tp", 4.0).channel(31)
    entry = {"name": "x", "low": -1.0, "high": 1.0, "missing": 0.0, "size": 1}
    plan = CPlan.of(core, small_plan(channel.to_document(), entry))
    law = np.zeros(1 << plan.plan.bits)
    law[: channel.outputs] = tables.probabilities(channel.letters, channel.table, np.array(x))
    assert_law(drawn_codes(plan, {"x": x}, 20_000), law)


def test_the_law_of_a_large_randomised_response(core):
    coder = RandomizedResponse.of(3.0, 300)
    plan = CPlan.of(core, small_plan({**coder.to_document(), "epsilon": "3.0"}, category(300)))
    law = np.zeros(1 << plan.plan.bits)
    law[:300], law[7] = coder.other, coder.same
    assert_law(drawn_codes(plan, {"x": "label 7"}, 20_000), law / law.sum())


def test_the_law_of_many_lines(core):
    """Each direction is as likely, and each answer has the odds of its product."""
    table = {"kind": "lines", "epsilon": "1.4", "categories": 120, "base": 5, "digits": 3}
    plan = CPlan.of(core, small_plan({**table, "same": 4, "other": 1}, category(120)))
    law = np.zeros(1 << plan.plan.bits)
    for direction in range(31):
        law[5 * direction : 5 * direction + 5] = 1
        law[5 * direction + vehicle.line_product(5, 3, direction, 77)] = 4
    assert_law(drawn_codes(plan, {"x": "label 77"}, 20_000), law / law.sum())


@pytest.mark.parametrize("length", [0.3, 1.0])
def test_the_law_of_directions(core, length):
    """For one seed, each of the best directions, the others and the null code has its odds."""
    odds = {"high": 6, "low": 2, "null": 10, "null_input": 18, "best": 2, "directions": 7}
    part = {"kind": "directions", "epsilon": "1.6", "attributes": [0], "seed_bits": 4, "key": 9}
    entry = {"name": "x", "low": -1.0, "high": 1.0, "missing": 0.0, "size": 3, "length": 1.0}
    document = {"format": "fedldp plan 2", "epsilon": "1.6", "schema": [entry], "tables": []}
    document["parts"] = [{**part, **odds}]
    plan = CPlan.of(core, vehicle.canonical(document))
    vector = [length * 0.6, length * -0.8, 0.0]
    whole = [round(x * vehicle.LENGTH) for x in vector]
    values, seed = Row(plan.columns, {"x": vector}), 11
    found = vehicle.products(whole, 7, 9, seed)
    best = sorted(range(7), key=lambda j: -found[j])[:2]
    share = min(math.isqrt(sum(x * x for x in whole) << 24), 1 << 32)
    counts = {True: [0] * 8, False: [0] * 8}  # for the vector, and for the null input
    for is_itself in counts:
        rounding = share - 1 if is_itself else share
        if rounding >= 1 << 32:
            continue
        for top in range(32):  # all odds add up to 2^5
            data = (seed << 28).to_bytes(4, "big") + rounding.to_bytes(4, "big")
            data += (top << 59).to_bytes(8, "big")
            code = code_of(plan, plan.draw_values(values, data)[1])
            assert code >> 3 == seed
            counts[is_itself][code & 7] += 1
    assert counts[True] == [*(6 if j in best else 2 for j in range(7)), 10]
    assert counts[False] == ([2] * 7 + [18] if length < 1 else [0] * 8)


def module_at(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_vectors_of_compiled_plans():
    """What stands in a header changes only on purpose."""
    module = module_at(FOLDER / "tests/compiled_vectors.py")
    kept = json.loads((FOLDER / "tests/compiled.json").read_text("ascii"))
    assert module.compiled() == kept, "if it was on purpose: run compiled_vectors.py"


def test_the_compact_quantiles_are_those_of_the_wire_format(tmp_path):
    module = module_at(FOLDER / "quantiles.py")
    assert module.source() == (FOLDER / "fedldp_quantiles.c").read_text("ascii")
    source = tmp_path / "quantiles.c"
    source.write_text(
        """#include "fedldp_directions.c"
int32_t one(uint32_t number);
int32_t one(uint32_t number) { return (int32_t)quantile(number) - QUANTILE_ZERO; }
"""
    )
    sources = [source, *(path for path in CORE if path.name != "fedldp_directions.c")]
    library = built(tmp_path / "quantiles.so", sources, "-shared", "-fPIC")
    one = ctypes.CDLL(str(library)).one
    numbers = [one(number) for number in range(1 << 16)]
    digest = hashlib.sha256(b"".join(n.to_bytes(2, "big", signed=True) for n in numbers))
    assert digest.hexdigest() in (ROOT / "docs/wire-format.md").read_text("utf-8")


def test_the_core_is_short_enough_to_be_audited():
    names = ("fedldp.h", "fedldp_internal.h", "fedldp.c")
    texts = [(FOLDER / name).read_text("ascii") for name in names]
    assert sum(text.count("\n") for text in texts) <= 1300
    assert "malloc" not in "".join(texts)
    assert "__int128" not in "".join(texts)


def test_a_plan_of_another_length_is_refused(core):
    plan = CPlan.of(core, VECTORS["cases"][0]["plan"])
    assert plan.check() == OK
    plan.plan.bits += 1
    assert plan.check() == REFUSED


FAKE_KERNEL = """
#include <errno.h>
#include <string.h>
#include <sys/types.h>

int test_results[8], test_calls;
ssize_t test_getrandom(void *bytes, size_t count, unsigned int flags);
ssize_t test_getrandom(void *bytes, size_t count, unsigned int flags) {
  int result = test_results[test_calls++];
  if (result < 0) errno = -result;
  if (result > 0) memset(bytes, test_calls, (size_t)result);
  return flags != 0 || result > (int)count ? -1 : result < 0 ? -1 : result;
}
"""


@pytest.mark.parametrize(
    ("results", "status", "data"),
    [
        ([-errno.EINTR, 3, -errno.EINTR, 5], 0, bytes([2] * 3 + [4] * 5)),
        ([8], 0, bytes([1] * 8)),
        ([4, -errno.EIO], 1, bytes([1] * 4 + [0] * 4)),
        ([-errno.ENOSYS], 1, bytes(8)),
        ([0], 1, bytes(8)),
    ],
)
def test_the_generator_of_linux(results, status, data, tmp_path):
    """It waits for all bytes, goes on after signals, and says if it fails."""
    fake = tmp_path / "kernel.c"
    fake.write_text(FAKE_KERNEL, "ascii")
    options = ["-shared", "-fPIC", "-Dgetrandom=test_getrandom"]
    path = built(tmp_path / "linux.so", [FOLDER / "fedldp_linux.c", fake], *options)
    library = ctypes.CDLL(str(path))
    (ctypes.c_int * 8).in_dll(library, "test_results")[: len(results)] = results
    found = (ctypes.c_uint8 * 8)()
    assert library.fedldp_linux_random(None, found, ctypes.c_size_t(8)) == status
    assert bytes(found) == data


def test_names_and_codes_in_the_header():
    case = next(case for case in VECTORS["cases"] if case["name"] == "unary encoding")
    text = compiled.compile_plan(case["plan"], "9").to_header("doors")
    assert "enum { DOORS_DOOR, DOORS_COLUMNS };" in text
    assert "enum { DOORS_DOOR_TRUE, DOORS_DOOR_FALSE, DOORS_DOOR_1, DOORS_DOOR_T_R };" in text
    assert r'"T\303\274r"' in text
    assert case["fingerprint"] in text
    with pytest.raises(ValueError, match="small letters"):
        compiled.compile_plan(case["plan"], "9").to_header("2 doors")


def test_a_plan_above_the_cap_is_not_compiled():
    with pytest.raises(ValueError, match=r"the cap is 0\.9"):
        compiled.compile_plan(VECTORS["cases"][0]["plan"], "0.9")
