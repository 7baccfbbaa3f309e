"""The test vectors for other languages: what the library draws, and what the page says."""

import hashlib
import importlib
import itertools
import json
import math
import re
from pathlib import Path

import numpy as np
import plans
import pytest

import fedldp
from fedldp.coders import CODERS
from fedldp.schema.attributes import ATTRIBUTES

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs/vectors.json").read_text("utf-8")
VECTORS = json.loads(TEXT)
CASES = VECTORS["cases"]


def test_the_file_is_what_the_command_writes(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    tool = importlib.import_module("vectors")
    assert tool.to_text(tool.vectors()) == TEXT


@pytest.mark.parametrize("n", [5, 2**40 + 1])
def test_numbers_below_another_are_recorded(n, monkeypatch):
    """A coder may draw one instead of a word: an odd total needs it."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    dice = importlib.import_module("vectors").Recorder(1)
    with dice.recorded():
        drawn = [fedldp.vehicle.below(n, dice) for _ in range(3)]
        chosen = fedldp.vehicle.subset(2, 7, dice)  # which draws numbers below others
    *numbers, of_set = dice.thrown
    assert [each["chosen"] for each in numbers] == drawn
    assert of_set["chosen"] == chosen
    for each in numbers:
        replayed = Drawn(each["drawn"])
        assert replayed.below(n) == each["chosen"]
        assert not replayed.bits


def test_every_kind_is_there():
    documents = [json.loads(case["plan"]) for case in CASES]
    kinds = {each["kind"] for plan in documents for each in (*plan["tables"], *plan["parts"])}
    assert kinds - {"sample"} == set(CODERS)
    schemas = [fedldp.Plan.from_json(case["plan"]).schema for case in CASES]
    assert {type(each) for schema in schemas for each in schema.attributes} == set(
        ATTRIBUTES.values()
    )
    some = {part["k"] < 3 for plan in documents for part in plan["parts"] if "k" in part}
    assert some == {True, False}
    sent = "".join(answer["record"] for case in CASES for answer in case["answers"])
    assert {"0", "1"} == set(sent)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_server_reads_them(case):
    plan = fedldp.Plan.from_json(case["plan"])
    assert (plan.fingerprint, plan.bits) == (case["fingerprint"], case["bits"])
    assert float(plan.total_epsilon) == float(case["cost"])
    assert plan.constant == case.get("constant", False)
    for answer in case["answers"]:
        assert plan.parse(bytes.fromhex(answer["report"])).reports == 1
        assert plans.counts_in(json.loads(case["plan"]), bytes.fromhex(answer["report"]))
    assert plan.parse(bytes.fromhex(case["batch"])).reports == len(case["answers"])


# A vehicle as docs/wire-format.md and docs/how-to/other-language.md describe it, and nothing else.


NUMBER = {"name", "low", "high", "missing", "size"}


def read(attribute, value, offset):
    """Return what a value is for the plan: a number in [-1, 1], or the place of a category."""
    absent = value is None or value == ""
    if "buckets" in attribute:
        text = f"{attribute['salt']}\0{text_of(value)}"
        digest = hashlib.sha256(text.encode()).hexdigest()
        return attribute["buckets"] if absent else int(digest[:16], 16) % attribute["buckets"]
    if "first" in attribute:
        numbers = list(range(attribute["first"], attribute["last"] + 1))
        try:
            return len(numbers) + 1 if absent else numbers.index(float(value))
        except ValueError:
            return len(numbers)
    if "edges" in attribute or "period" in attribute:
        return bin_of(attribute, value)
    if "categories" in attribute and "optional" in attribute:
        names = attribute["categories"]
        names = names + [name for name in ("other", "missing") if name not in names]
        text = "missing" if absent else text_of(value)
        return names.index(text if text in names else "other")
    if "optional" in attribute:
        try:
            share = (float(value) - attribute["low"]) / (attribute["high"] - attribute["low"])
            return (attribute["grid"] - 1) * min(max(share, 0.0), 1.0)
        except (ValueError, TypeError):
            return attribute["grid"]
    if "categories" in attribute:
        names = attribute["categories"]
        name = {True: "true", False: "false"}.get(value, value) if type(value) is bool else value
        if isinstance(name, float) and name == int(name):
            name = int(name)
        text = str(name)
        return names.index(text if text in names and name is not None else attribute["missing"])
    if attribute.keys() - {"length", "constant", "rule"} != NUMBER:
        raise NotImplementedError(f"write down here how {[*attribute]} are read")
    low, high, size = attribute["low"], attribute["high"], attribute["size"]
    if size > 1:
        value = value[offset] if isinstance(value, list) and len(value) == size else None
    try:
        number = attribute["missing"] if value is None else float(value)
    except ValueError:
        number = attribute["missing"]
    most = 1e100 if "length" in attribute else 1
    return float(np.clip((number - (low + high) / 2) * 2 / (high - low), -most, most))


def bin_of(attribute, value):
    """Return the number of the bin of a value, or of what a missing one counts as."""
    if "period" in attribute:
        edges = [attribute["period"] * (i / attribute["bins"]) for i in range(attribute["bins"])]
    else:
        edges = attribute["edges"][:-1]
    try:
        number = float(value)
    except (ValueError, TypeError):
        if "optional" in attribute:
            return bins_of(attribute)
        number = attribute["missing"]
    if "period" in attribute:
        number = math.fmod(number, attribute["period"])
        number += attribute["period"] if number < 0 else 0.0
    return max(sum(edge <= number for edge in edges) - 1, 0)


def bins_of(attribute):
    """Return how many bins there are."""
    return attribute["bins"] if "period" in attribute else len(attribute["edges"]) - 1


def text_of(value):
    """Return the label of a value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value) if isinstance(value, float) and value == int(value) else value)


def inputs_of(attribute, row):
    """Return what a row is for an attribute: an input for each coordinate."""
    if "groups" in attribute:
        of, groups = attribute["of"], attribute["groups"]
        letters = 2 if "size" in of else of.get("grid", 0) + 1
        letters = len(of["categories"]) if "categories" in of else letters
        letters = bins_of(of) + ("optional" in of) if "edges" in of or "period" in of else letters
        inner, group = (read(each, row.get(each["name"]), 0) for each in (of, groups))
        return [letters * group + ((1 + inner) / 2 if "size" in of else inner)]
    value, size = row.get(attribute["name"]), attribute.get("size", 1)
    return shortened(attribute, [read(attribute, value, offset) for offset in range(size)])


def rounds(attribute):
    """Return whether the input of an attribute is rounded at random to a category."""
    of = attribute.get("of", attribute)
    return ("low" in of and "optional" in of) or ("of" in attribute and "size" in of)


def shortened(attribute, values):
    """Return a vector that is not longer than its bound."""
    if "length" not in attribute:
        return values
    length = np.sqrt(np.add.accumulate(np.square(values))[-1])
    return [value / max(length, 1.0) for value in values]


def letter(letters, x, rounding):
    place = np.interp(x, letters, range(len(letters)))
    return (int(place * 2**32 + 0.5) + rounding) // 2**32


def alias(row, word):
    """Draw from a row as the page says: fill columns of equal size, from the last short one on."""
    bits = (len(row) - 1).bit_length()
    left = row + [0] * (2**bits - len(row))
    size = sum(row) // 2**bits
    own, other = dict(enumerate(left)), {}
    short = [i for i, count in enumerate(left) if count < size]
    long = [i for i, count in enumerate(left) if count > size]
    while short:
        i, j = short.pop(), long[-1]
        own[i], other[i] = left[i], j
        left[j] -= size - left[i]
        if left[j] <= size:
            long.pop()
        if left[j] < size:
            short.append(j)
    column, rest = word >> 64 - bits, (word << bits) % 2**64
    is_own = column not in other or rest < own[column] * (2**64 // sum(row)) * 2**bits
    return column if is_own else other[column]


def response(table, labels, own, word):
    same, other = int(table["same"]), int(table["other"])
    u = word * (same + (labels - 1) * other) // 2**64
    return own if u < same - other else (u - (same - other)) // other


def code(table, own, throws):
    if table["kind"] == "numbers":
        word, rounding = next(throws), next(throws)
        rows = [[int(count) for count in row] for row in table["counts"]]
        return alias(rows[letter(table["letters"], own, rounding)], word)
    if table["kind"] == "response":
        return response(table, table["categories"], own, next(throws))
    if table["kind"] == "lines":
        base, digits = table["base"], table["digits"]
        every = plans.line_directions(base, digits)
        number = next(throws) * len(every) // 2**64
        pairs = zip(every[number], plans.digits_of(own, base, digits), strict=True)
        product = sum(a * b for a, b in pairs) % base
        return number * base + response(table, base, product, next(throws))
    if table["kind"] != "unary":
        raise NotImplementedError(f"write down here how a code of {table['kind']!r} is drawn")
    total, absent = int(table["total"]), int(table["absent"])
    ones = [total // 2 if i == own else absent for i in range(table["categories"])]
    return int("".join(str(int(next(throws) * total // 2**64 < odds)) for odds in ones), 2)


def record(plan, inputs, throws):
    """Return the bits of a record, given what a row was read as and what the dice showed."""
    bits, places = "", coordinates(plan["schema"])
    for part in plan["parts"]:
        mine = [inputs[i] for attribute in part["attributes"] for i in places[attribute]]
        tables, d = plans.coordinates(plan, part), len(mine)
        if part["kind"] == "cube":
            agree = agreeing(part, d, *next(throws))
            for place, x in enumerate(mine):
                sign = letter([-1.0, 1.0], x, next(throws))
                bits += str(sign if place in agree else 1 - sign)
            continue
        if part["kind"] == "directions":
            bits += direction(tables[0], mine, *(next(throws) for _ in range(3)))
            continue
        chosen = subset(part["k"], d, *next(throws)) if part["k"] < d else range(d)
        widths = plans.fields(plan, part)
        rounded = [rounds(plan["schema"][a]) for a in part["attributes"] for _ in places[a]]
        for number, i in enumerate(chosen):
            own = letter(range(10**4), mine[i], next(throws)) if rounded[i] else mine[i]
            sent = code(tables[i], own, throws)
            if part["k"] < d:
                bits += f"{i:0{widths[0]}b}{sent:0{widths[1]}b}"
            else:
                bits += f"{sent:0{widths[number]}b}"
    return bits


class Drawn:
    """Bytes from which numbers are drawn, each the first bits of whole bytes."""

    def __init__(self, text):
        self.bits = "".join(f"{octet:08b}" for octet in bytes.fromhex(text))

    def number(self, bits):
        size = -(-bits // 8) * 8
        drawn, self.bits = self.bits[:size], self.bits[size:]
        return int(drawn[:bits], 2)

    def below(self, n):
        bits = len(f"{n:b}") + 64
        while True:
            found = self.number(bits) // (2**bits // n)
            if found < n:
                return found


def subset(k, d, chosen, text):
    """Choose k of d, as the page says; the vector says which these are."""
    drawn, found = Drawn(text), []
    for last in range(d - k, d):
        number = drawn.below(last + 1)
        found.append(last if number in found else number)
    assert sorted(found) == chosen
    assert not drawn.bits
    return chosen


def agreeing(part, d, chosen, text):
    """Choose the places of a cube that agree, as the page says."""
    weights = [int(part["light"]), int(part["heavy"])]
    ways = [math.comb(d, h) for h in range(d + 1)]
    odds = [ways[h] * weights[2 * h - d > part["threshold"]] for h in range(d + 1)]
    drawn = Drawn(text)
    number = drawn.below(sum(odds))
    h = next(h for h in range(d + 1) if number < sum(odds[: h + 1]))
    keys = [drawn.number(64) for _ in range(d)]
    assert sorted(sorted(range(d), key=keys.__getitem__)[:h]) == chosen
    assert not drawn.bits
    return chosen


def direction(table, x, seed, rounding, word):
    """Return a seed and a direction, or the null code, as bits."""
    number, best = table["directions"], table["best"]
    high, low, null, null_input = (int(table[k]) for k in ("high", "low", "null", "null_input"))
    vector = [round(value * 2**20) for value in x]
    share = min(math.isqrt(sum(q * q for q in vector) * 2**24), 2**32)
    seed //= 2 ** (32 - table["seed_bits"])
    u = word * (best * high + (number - best) * low + null) // 2**64
    if null_input:
        known = rounding < share
    else:
        known, is_itself = True, rounding < (2**32 + share) // 2
        vector = vector if is_itself else [-q for q in vector]
    order = plans.ranked(table, seed, vector)
    odds = [low] * number + ([high - low] * best if known else [])
    codes = [*range(number), *order[:best]]
    code = number
    for each, candidate in zip(odds, codes, strict=False):
        if 0 <= u < each:
            code = candidate
        u -= each
    bits = number.bit_length()
    return f"{seed:0{table['seed_bits']}b}{code:0{bits}b}"


def coordinates(schema):
    ends = list(itertools.accumulate((each.get("size", 1) for each in schema), initial=0))
    return [range(*pair) for pair in itertools.pairwise(ends)]


def report(fingerprint, records):
    bits = "".join(records)
    packed = bytes(int(octet, 2) for octet in re.findall("." * 8, bits + "0" * (-len(bits) % 8)))
    head = b"\x01" + fingerprint[:7] + len(records).to_bytes(4, "big")
    return (head + plans.crc(head + packed) + packed).hex()


@pytest.mark.parametrize("case", VECTORS["calendars"], ids=range(len(VECTORS["calendars"])))
def test_calendars_are_drawn_as_the_page_says(case):
    calendar = json.loads(case["calendar"])
    for drawn in case["drawn"]:
        (thrown,) = drawn["thrown"]
        places = subset(calendar["answers"], calendar["periods"], *thrown.values())
        assert [place + 1 for place in places] == drawn["periods"]


def test_a_kind_that_is_not_written_down_is_not_taken_for_another():
    with pytest.raises(NotImplementedError, match="how a code of 'new' is drawn"):
        code({"kind": "new", "categories": 3}, 0, iter([]))
    number = {"name": "x", "low": 1.0, "high": 9.0, "missing": 2.0, "size": 1}
    with pytest.raises(NotImplementedError, match="'scale'"):
        read(number | {"scale": "log"}, 5, 0)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_another_implementation_agrees(case):
    plan = json.loads(case["plan"])
    fingerprint = hashlib.sha256(case["plan"].encode()).digest()
    assert fingerprint.hex() == case["fingerprint"]
    for answer in case["answers"]:
        inputs = []
        for attribute in plan["schema"]:
            inputs += inputs_of(attribute, answer["row"])
        assert inputs == pytest.approx(answer["inputs"], abs=1e-15)
        throws = (
            (each["chosen"], each["drawn"])
            if "chosen" in each
            else int(each.get("word") or each["rounding"], 16)
            for each in answer["thrown"]
        )
        bits = record(plan, inputs, throws)
        assert bits == answer["record"]
        assert next(throws, None) is None
        assert report(fingerprint, [bits]) == answer["report"]
    assert report(fingerprint, [answer["record"] for answer in case["answers"]]) == case["batch"]
