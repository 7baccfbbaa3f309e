"""Plans of every kind with rows and random bytes that differ in all that is secret."""

import random

from random_plans import EdgeTape, library_tables
from targets import Case

import fedldp
from fedldp import vehicle


def plan_text(schema, tables, parts):
    newer = {"format": vehicle.PLAN_FORMAT_2}
    document = {"epsilon": "16.0", "schema": schema, "tables": tables, "parts": parts}
    try:
        text = vehicle.canonical({**document, **newer})
        vehicle.Plan(text, "9999")
    except ValueError:
        text = vehicle.canonical({**document, "format": vehicle.PLAN_FORMAT})
        vehicle.Plan(text, "9999")
    return text


def sample(schema, tables, numbers, k=None):
    attributes = list(range(len(schema)))
    part = {"kind": "sample", "attributes": attributes, "tables": numbers, "k": k or len(schema)}
    return plan_text(schema, tables, [part])


def number(name, size=1, **entries):
    return {"name": name, "low": 0.0, "high": 130.0, "missing": 65.0, "size": size, **entries}


def response(categories):
    total = 1 << 40
    other = total // (8 * categories)
    same = total - (categories - 1) * other
    odds = {"same": same, "other": other}
    return {"kind": "response", "epsilon": "4.9", "categories": categories, **odds}


CITY = {"name": "city", "categories": ["Oslo", "Rome", "Lima", "T\u00fcr"], "missing": "Rome"}
MODEL = {"name": "model", "categories": ["a", "other", "bbbbbb"], "optional": True}
ZONE = {"name": "zone", "first": -3, "last": 6}
APP = {"name": "app", "buckets": 5, "salt": "spring"}
RANGE = {"name": "range", "low": 0.0, "high": 400.0, "optional": True, "grid": 5}
SPEED_BINS = {"name": "bins", "edges": [0.0, 30.0, 50.0, 130.0], "optional": True}
HEADING = {"name": "heading", "period": 360.0, "bins": 5, "missing": 90.0}
WITHIN = {"name": "within", "of": {**number("speed")}, "groups": CITY}
UNARY = {"kind": "unary", "epsilon": "1.1", "categories": 4, "total": 4, "absent": 1}
LINES = {"kind": "lines", "epsilon": "1.2", "categories": 4, "base": 2, "digits": 2}
UNEVEN = {
    "kind": "numbers",
    "epsilon": "1.7",
    "letters": [-1.0, -0.25, 0.5, 1.0],
    "values": [-2.0, 0.0, 2.0],
    "counts": [[5, 2, 1], [3, 3, 2], [2, 2, 4], [1, 2, 5]],
}
CUBE = {"kind": "cube", "epsilon": "1.6", "threshold": 0, "heavy": 4, "light": 1, "attributes": [0]}
ROWS = [
    {
        "speed": 130,
        "city": "Oslo",
        "model": "a",
        "zone": -3,
        "app": "maps",
        "range": 0,
        "bins": 30,
        "heading": 1e-300,
        "way": [3.0, 0.0, 0.0, 0.0],
    },
    {
        "speed": 1e300,
        "city": "T\u00fcr",
        "model": "bbbbbb",
        "zone": 6.0,
        "app": "x" * 64,
        "range": 400,
        "bins": -1e308,
        "heading": -1e308,
        "way": [-1.0, 2.5, 1e-310, 0.1],
    },
    {},
    {
        "speed": float("-inf"),
        "city": "nowhere",
        "model": "nowhere",
        "zone": 2.5,
        "app": "",
        "range": "x",
        "bins": float("inf"),
        "heading": float("inf"),
        "way": [1e300, -1e300, 3.0, 0.0],
    },
    {
        "speed": 64.99999999,
        "city": None,
        "zone": "x",
        "app": "navigation",
        "range": 123.456,
        "heading": 359.9999,
        "way": [0.0, 0.0, 0.0, 0.0],
    },
]
ROWS = [{**row, "speeds": [row.get("speed", 3)] * 6} for row in ROWS]


def directions(epsilon, d):
    part = fedldp.coders.DirectionsCoder.of(epsilon, d).to_document()
    way = {**number("way", d), "low": -3.0, "high": 3.0, "missing": 0.0, "length": 3.0}
    return plan_text([way], [], [{**part, "attributes": [0]}])


def plans():
    """Return plans, and how many random bytes of each decide what is published."""
    table = library_tables()[2]
    return {
        "table": (sample([number("speed")], [library_tables()[1]], [0]), 0),
        "table of 65 letters": (sample([number("speed")], [table], [0]), 0),
        "uneven table": (sample([number("speed")], [UNEVEN], [0]), 0),
        "response": (sample([CITY], [response(4)], [0]), 0),
        "unary": (sample([CITY], [UNARY], [0]), 0),
        "lines": (sample([CITY], [{**LINES, "same": 3, "other": 1}], [0]), 8),
        "optional": (sample([MODEL, RANGE], [response(4), response(6)], [0, 1]), 0),
        "whole": (sample([ZONE], [response(12)], [0]), 0),
        "hashed": (sample([APP], [response(6)], [0]), 0),
        "bins": (sample([SPEED_BINS], [response(4)], [0]), 0),
        "angle": (sample([HEADING], [response(5)], [0]), 0),
        "within": (sample([WITHIN], [response(8)], [0]), 0),
        "two of six": (sample([number("speeds", 6)], [UNEVEN], [0], 2), 18),
        "cube": (plan_text([number("speeds", 6)], [], [CUBE]), 0),
        "directions": (directions(2.0, 4), 4),
    }


def cases():
    """Return for each plan the cases that must be indistinguishable: rows and random bytes."""
    source = random.Random(8)
    groups = {}
    for name, (text, public) in plans().items():
        plan = vehicle.Plan(text, "9999")
        words = [] if name == "cube" else [0, (1 << 64) - 1]  # equal keys are drawn again
        prefix, groups[name] = None, []
        for _ in range(6):
            tape = EdgeTape(source.random(), words)
            plan.report({}, tape)
            prefix = prefix or bytes(tape.data[:public])
            stream = prefix + bytes(tape.data[public:])
            for row in ROWS:
                report = plan.report(row, Replay(stream))
                groups[name].append(Case(name, text, row, stream, report))
    return groups


class Replay:
    """A random source that reads certain bytes."""

    def __init__(self, data):
        self._data, self._at = data, 0

    def getrandbits(self, bits):
        size = -(-bits // 8)
        chunk = self._data[self._at : self._at + size]
        self._at += size
        return int.from_bytes(chunk, "big") >> (8 * size - bits)
