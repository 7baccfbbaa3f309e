"""A second reading of docs/wire-format.md, in plain Python, and plans that several tests share."""

import hashlib
import itertools
import json
import math
import zlib
from fractions import Fraction
from functools import cache

import numpy as np
from scipy.special import ndtri
from spellings import flat_plan

from fedldp import Schema, vehicle
from fedldp.coders import DirectionsCoder

SMALL = Schema.of(
    age=(0, 100), city=["Oslo", "Rome", "Lima"], way={"low": -1, "high": 3, "size": 2}
)
MIXED = Schema.of(
    age={"low": 0, "high": 100, "missing": 20},
    city={"categories": ["Oslo", "Rome", "Lima"], "missing": "Rome"},
    way={"low": -1, "high": 3, "size": 3, "missing": 3},
    colour=[f"colour {i}" for i in range(40)],
)
NUMBERS = Schema.of(age=(0, 100), way={"low": -1, "high": 3, "size": 3})
CATEGORIES = Schema.of(city=["Oslo", "Rome", "Lima"], colour=[f"colour {i}" for i in range(40)])

STRATEGIES = {
    "sample": {"k": 2},
    "one": {"k": 1},
    "split": {"strategy": "split"},
    "paper": {"strategy": "paper"},
    "cube": {"strategy": "cube"},
}


def plan_of(schema=MIXED, epsilon=4.0, name="sample", mechanism="three-outputs", outputs=None):
    return flat_plan(schema, epsilon, mechanism=mechanism, **STRATEGIES[name], outputs=outputs)


def canonical(document):
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


# Hand-made tables whose odds add up to 4 to 64, so that all words can be tried.

TWO = {"kind": "numbers", "epsilon": "1.1", "letters": [-1.0, 1.0], "values": [-2.0, 2.0]}
TWO["counts"] = [[3, 1], [1, 3]]
THREE = {"kind": "numbers", "epsilon": "1.61", "letters": [-1.0, 0.0, 1.0]}
THREE |= {"values": [-2.0, 0.0, 2.0], "counts": [[5, 2, 1], [3, 2, 3], [1, 2, 5]]}
FAINT = {"kind": "numbers", "epsilon": "0.32", "letters": [-1.0, 1.0], "values": [-6.4, 6.4]}
FAINT["counts"] = [[37, 27], [27, 37]]
RESPONSE = {"kind": "response", "epsilon": "1.8", "categories": 3, "same": 6, "other": 1}
QUARTERS = {"kind": "response", "epsilon": "0.7", "categories": 3, "same": 2, "other": 1}
FIVE = {"kind": "response", "epsilon": "0.29", "categories": 5, "same": 4, "other": 3}
LINES = {"kind": "lines", "epsilon": "0.7", "categories": 8, "base": 3, "digits": 2}
LINES |= {"same": 2, "other": 1}
UNARY = {"kind": "unary", "epsilon": "1.1", "categories": 3, "total": 4, "absent": 1}


def directions_of(epsilon, d, directions, best, null, seed_bits=20, key=7):
    """Return directions of any number, which the library does not choose by itself."""
    ratio = vehicle.exp_below(vehicle.exact(epsilon))
    low = int(2**62 / (best * ratio + directions - (0 if null else best)))
    high = int(low * ratio)
    rest = 2**62 - best * high - (directions - best) * low
    null_input = 2**62 - directions * low if null else 0
    odds = (directions, best, high, low, rest, null_input)
    return DirectionsCoder(epsilon, d, *odds, seed_bits, key)


def number(name, size=1):
    return {"name": name, "low": -1.0, "high": 1.0, "missing": 0.0, "size": size}


def category(name, count=3):
    labels = [f"{name}{i}" for i in range(count)]
    return {"name": name, "categories": labels, "missing": labels[-1]}


def document(epsilon, schema, tables, *parts):
    return {
        "format": "fedldp plan 1",
        "epsilon": epsilon,
        "schema": schema,
        "tables": tables,
        "parts": list(parts),
    }


def sample(k, attributes, tables):
    return {"kind": "sample", "k": k, "attributes": attributes, "tables": tables}


def cube(attributes, epsilon, threshold, heavy, light):
    weights = {"threshold": threshold, "heavy": heavy, "light": light}
    return {"kind": "cube", "epsilon": epsilon, "attributes": attributes, **weights}


HAND_MADE = {
    "one of two": document(
        "1.8", [number("x"), category("c")], [THREE, RESPONSE], sample(1, [0, 1], [0, 1])
    ),
    "faint": document(
        "0.32", [number("x"), category("c", 5)], [FIVE, FAINT], sample(1, [1, 0], [0, 1])
    ),
    "two of three": document(
        "3.41",
        [category("c"), number("x"), category("e")],
        [THREE, UNARY, RESPONSE],
        sample(2, [1, 2, 0], [0, 1, 2]),
    ),
    "small split": document(
        "2.91",
        [number("x"), category("c"), category("e")],
        [TWO, UNARY, QUARTERS],
        sample(3, [0, 1, 2], [0, 1, 2]),
    ),
    "small paper": document(
        "2.71",
        [category("c"), number("x", size=2)],
        [THREE, UNARY],
        sample(1, [1], [0]),
        sample(1, [0], [1]),
    ),
    "small cube": document(
        "2.71",
        [number("x", size=2), category("c")],
        [UNARY],
        cube([0], "1.61", 0, heavy=5, light=1),
        sample(1, [1], [0]),
    ),
    "cube of three": document(
        "1.1", [number("x", size=2), number("y")], [], cube([0, 1], "1.1", 0, heavy=3, light=1)
    ),
    "lines and a number": {
        **document(
            "0.7", [number("x"), category("c", 8)], [LINES, FAINT], sample(1, [1, 0], [0, 1])
        ),
        "format": "fedldp plan 2",
    },
}


# Records


def index_width(d):
    return (d - 1).bit_length()


def outputs(table):
    """Return how many codes a table has; that of a cube, None, has two."""
    if table is None:
        return 2
    if table["kind"] == "directions":
        return (table["directions"] + 1) << table["seed_bits"]
    if table["kind"] == "unary":
        return 1 << table["categories"]
    if table["kind"] == "lines":
        return len(line_directions(table["base"], table["digits"])) * table["base"]
    if table["kind"] == "numbers":
        return len(table["values"])
    if table["kind"] == "response":
        return table["categories"]
    return len(code_law(table, 0))


def coordinates(plan, part):
    """Return the table of each coordinate, None in a cube; of directions themselves, once."""
    if part["kind"] == "directions":
        return [{**part, "d": plan["schema"][part["attributes"][0]]["size"]}]
    numbers = part.get("tables", [None] * len(part["attributes"]))
    return [
        None if table is None else plan["tables"][table]
        for attribute, table in zip(part["attributes"], numbers, strict=True)
        for _ in range(plan["schema"][attribute].get("size", 1))
    ]


def fields(plan, part):
    """Return the widths of a part's fields: index and code by turns, or codes alone."""
    tables = coordinates(plan, part)
    widths = [index_width(outputs(table)) for table in tables]
    if part["kind"] == "sample" and part["k"] < len(tables):
        return [index_width(len(tables)), max(widths)] * part["k"]
    return widths


def width(plan):
    return sum(sum(fields(plan, part)) for part in plan["parts"])


def answers(plan, part, bits):
    """Return (coordinate, code) for each slot in a part's bits, or None if they are not valid."""
    ends = list(itertools.accumulate(fields(plan, part), initial=0))
    found = [int(bits[start:end], 2) for start, end in itertools.pairwise(ends)]
    tables, indexes = coordinates(plan, part), range(len(found))
    if part["kind"] == "sample" and part["k"] < len(tables):
        indexes, found = found[::2], found[1::2]
        if sorted(set(indexes)) != indexes or indexes[-1] >= len(tables):
            return None
    pairs = list(zip(indexes, found, strict=True))
    return pairs if all(code < outputs(tables[index]) for index, code in pairs) else None


def counts_in(plan, data):
    """Return the vehicles in a report and what a tally counts, or None if it is to be refused."""
    fingerprint = hashlib.sha256(canonical(plan).encode()).digest()
    head, check, packed = data[:12], data[12:16], data[16:]
    if head[:8] != b"\x01" + fingerprint[:7] or check != crc(head + packed):
        return None
    n, w = int.from_bytes(head[8:], "big"), width(plan)
    bits = "".join(f"{octet:08b}" for octet in packed)
    if len(bits) != (n * w + 7) // 8 * 8 or "1" in bits[n * w :]:
        return None
    counts, start = [empty_counts(plan, part) for part in plan["parts"]], 0
    for _ in range(n):
        for part, cells in zip(plan["parts"], counts, strict=True):
            end = start + sum(fields(plan, part))
            found = answers(plan, part, bits[start:end])
            if found is None:
                return None
            for index, code in found:
                count(coordinates(plan, part)[index], code, cells[index])
            start = end
    return n, [list(itertools.chain(*cells)) for cells in counts]


def crc(octets):
    return zlib.crc32(octets).to_bytes(4, "big")


def empty_counts(plan, part):
    """Return a counter for each code of each coordinate; unary: for each bit, and the answers.

    Directions: the answers, the null codes, the sums of coordinates and those of squares.
    """
    tables = coordinates(plan, part)
    if part["kind"] == "directions":
        return [[0] * (2 + 2 * tables[0]["d"])]
    unary = [table is not None and table["kind"] == "unary" for table in tables]
    return [
        [0] * (table["categories"] + 1 if is_unary else outputs(table))
        for table, is_unary in zip(tables, unary, strict=True)
    ]


def count(table, code, cells):
    if table is not None and table["kind"] == "directions":
        seed, direction = divmod(code, table["directions"] + 1)
        null = direction == table["directions"]
        vector = [0] * table["d"] if null else directions(table, seed)[direction]
        added = [1, int(null), *vector, *(x * x for x in vector)]
        cells[:] = [cell + x for cell, x in zip(cells, added, strict=True)]
        return
    if table is not None and table["kind"] == "unary":
        for place, bit in enumerate(f"{code:0{table['categories']}b}1"):
            cells[place] += int(bit)
    else:
        cells[code] += 1


# DirectionsCoder


@cache
def quantiles():
    places = (np.arange(65536) + 0.5) / 65536
    return np.rint(1024 * ndtri(places)).astype(int).tolist()


def splitmix(state):
    z = state % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return z ^ z >> 31


@cache
def _directions(number, d, key, seed):
    golden = 0x9E3779B97F4A7C15
    start, words = splitmix(int(key) + golden * (seed + 1)), (number + 1) // 4
    return [
        [
            quantiles()[
                splitmix(start + golden * (c * words + j // 4 + 1)) >> 16 * (j % 4) & 0xFFFF
            ]
            for c in range(d)
        ]
        for j in range(number)
    ]


def directions(table, seed):
    """Return the coordinates of each direction of a seed."""
    return _directions(table["directions"], table["d"], table["key"], seed)


def ranked(table, seed, vector):
    """Return the numbers of the directions of a seed, the best for a vector first."""
    found = [sum(a * b for a, b in zip(g, vector, strict=True)) for g in directions(table, seed)]
    return sorted(range(len(found)), key=lambda j: (-found[j], j))


# Lines


def digits_of(number, base, digits):
    return [number // base**place % base for place in range(digits)]


@cache
def line_directions(base, digits):
    """Return the digits, the lowest first, of all numbers whose highest digit but zeros is 1."""
    found = [digits_of(number, base, digits) for number in range(1, base**digits)]
    return [each for each in found if [digit for digit in each if digit][-1] == 1]


def lines_law(table, own):
    base, digits = table["base"], table["digits"]
    same, other = int(table["same"]), int(table["other"])
    total, found = same + (base - 1) * other, {}
    every, mine = line_directions(base, digits), digits_of(own, base, digits)
    for number, direction in enumerate(every):
        product = sum(a * b for a, b in zip(direction, mine, strict=True)) % base
        for answer in range(base):
            odds = same if answer == product else other
            found[number * base + answer] = Fraction(odds, total * len(every))
    return found


# The law of a record, given for each coordinate the number of a letter, a category or a sign


def inputs(plan):
    """Return all combinations of letters, categories and signs: a tuple for each part."""
    return itertools.product(*(list(_part_inputs(plan, part)) for part in plan["parts"]))


def _part_inputs(plan, part):
    def own(table):
        if table is None:
            return 2
        if table["kind"] == "directions":  # vectors of -1, 0 and 1, and perhaps the null input
            return 3 ** table["d"] + bool(table["null_input"])
        return len(table["letters"]) if table["kind"] == "numbers" else table["categories"]

    return itertools.product(*(range(own(table)) for table in coordinates(plan, part)))


def law(plan, given):
    """Return the probability of each record."""
    parts = [part_law(plan, part, own) for part, own in zip(plan["parts"], given, strict=True)]
    return {
        "".join(bits): math.prod(odds)
        for bits, odds in (
            zip(*each, strict=True) for each in itertools.product(*(p.items() for p in parts))
        )
    }


def part_law(plan, part, given):
    tables = coordinates(plan, part)
    d = len(tables)
    if part["kind"] == "cube":
        found = {}
        for signs in itertools.product((0, 1), repeat=d):
            agreements = sum(a == b for a, b in zip(signs, given, strict=True))
            heavy = 2 * agreements - d > part["threshold"]
            found["".join(map(str, signs))] = int(part["heavy"] if heavy else part["light"])
        return {bits: Fraction(odds, sum(found.values())) for bits, odds in found.items()}
    if part["kind"] == "directions":
        return directions_law(tables[0], given[0])
    found, k = {}, part["k"]
    widest = max(index_width(outputs(table)) for table in tables)
    for chosen in itertools.combinations(range(d), k):
        codes = [code_law(tables[i], given[i]).items() for i in chosen]
        for drawn in itertools.product(*codes):
            bits = "".join(
                f"{i:0{index_width(d)}b}{code:0{widest}b}"
                if k < d
                else f"{code:0{index_width(outputs(tables[i]))}b}"
                for i, (code, _) in zip(chosen, drawn, strict=True)
            )
            found[bits] = math.prod((odds for _, odds in drawn), start=Fraction(1, math.comb(d, k)))
    return found


def directions_law(table, given):
    vectors = list(itertools.product((-1, 0, 1), repeat=table["d"]))
    high, low, null, null_input = (int(table[k]) for k in ("high", "low", "null", "null_input"))
    found = {}
    for seed in range(1 << table["seed_bits"]):
        odds = [low] * table["directions"]
        if given < len(vectors):
            for j in ranked(table, seed, vectors[given])[: table["best"]]:
                odds[j] = high
        odds.append(null if given < len(vectors) else null_input)
        for code, each in enumerate(odds):
            bits = f"{seed * len(odds) + code:0{index_width(outputs(table))}b}"
            found[bits] = Fraction(each, sum(odds) << table["seed_bits"])
    return found


def code_law(table, own):
    if table["kind"] == "numbers":
        row = [int(n) for n in table["counts"][own]]
        return {code: Fraction(n, sum(row)) for code, n in enumerate(row)}
    if table["kind"] == "lines":
        return lines_law(table, own)
    a = table["categories"]
    if table["kind"] == "response":
        same, other = int(table["same"]), int(table["other"])
        total = same + (a - 1) * other
        return {code: Fraction(same if code == own else other, total) for code in range(a)}
    if table["kind"] != "unary":
        raise NotImplementedError(f"write down here the law of a code of {table['kind']!r}")
    ones = [Fraction(1, 2) if i == own else _share(table) for i in range(a)]
    return {
        code: math.prod(
            p if bit == "1" else 1 - p for p, bit in zip(ones, f"{code:0{a}b}", strict=True)
        )
        for code in range(1 << a)
    }


def _share(table):
    return Fraction(int(table["absent"]), int(table["total"]))


def places(document, path=()):
    """Return the path of every entry of a JSON document."""
    found = [path] if path else []
    if isinstance(document, list):
        document = dict(enumerate(document))
    if isinstance(document, dict):
        found += [each for key, value in document.items() for each in places(value, (*path, key))]
    return found


def changed(document, path, change):
    """Return a copy in which one entry is replaced, or deleted if the change is `...`."""
    document, key = document.copy(), path[0]
    if len(path) > 1:
        document[key] = changed(document[key], path[1:], change)
    elif change is ...:
        del document[key]
    else:
        document[key] = change
    return document


def counters(part, counts):
    """Yield each attribute of a part, its coder and a view of its counters: a row for each number.

    A joint coder has to keep as many counters for each number: so does the cube.
    """
    for coder, attributes, rows in part.by_block(counts):
        rows = rows.reshape(sum(each.size for each in attributes), -1)
        start = 0
        for attribute in attributes:
            yield attribute, coder, rows[start : start + attribute.size]
            start += attribute.size
