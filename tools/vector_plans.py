"""The plans, rows and throws that the test vectors are made of, and plans to be refused."""

import json
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import fedldp
from fedldp import vehicle

Document = dict[str, Any]

# Tables made by hand, small enough to check with a pencil; and those of the library.

_UNEVEN = {
    "kind": "numbers",
    "epsilon": "1.7",
    "letters": [-1.0, -0.25, 0.5, 1.0],
    "values": [-2.0, 0.0, 2.0],
    "counts": [[5, 2, 1], [3, 3, 2], [2, 2, 4], [1, 2, 5]],
}
_NEVER = {**_UNEVEN, "letters": [-1.0, 1.0], "counts": [[3, 0, 1], [1, 0, 3]]}
_FAINT = {
    "kind": "numbers",
    "epsilon": "0.1",
    "letters": [-1.0, 1.0],
    "values": [-32.0, 32.0],
    "counts": [[33, 31], [31, 33]],
}
_RESPONSE = {"kind": "response", "epsilon": "1.8", "categories": 3, "same": 6, "other": 1}
_FAINT_RESPONSE = {**_RESPONSE, "epsilon": "0.2", "same": 6, "other": 5}
_UNARY = {"kind": "unary", "epsilon": "1.1", "categories": 4, "total": 4, "absent": 1}


def _numbers(name: str, epsilon: float, outputs: int | None = None) -> Document:
    return fedldp.mechanism(name, epsilon).channel(outputs).to_document()


def _number(name: str, low: float, high: float, missing: float, size: int = 1) -> Document:
    return {"name": name, "low": low, "high": high, "missing": missing, "size": size}


def _plan(
    epsilon: str, schema: list[Document], tables: list[Document], *parts: Document
) -> Document:
    return {
        "format": vehicle.PLAN_FORMAT,
        "epsilon": epsilon,
        "schema": schema,
        "tables": tables,
        "parts": list(parts),
    }


def _sample(k: int, attributes: list[int], tables: list[int]) -> Document:
    return {"kind": "sample", "k": k, "attributes": attributes, "tables": tables}


_SPEED = _number("speed", 0.0, 130.0, 65.0)
_WAY = _number("way", -1.0, 3.0, 2.0, size=3)
_MODEL = {"name": "model", "categories": ["Alpha", "Beta", "Gamma"], "missing": "Beta"}
_DOOR = {"name": "door", "categories": ["true", "false", "1", "Tür"], "missing": "false"}
_CUBE = {"kind": "cube", "epsilon": "1.6", "threshold": 0, "heavy": 4, "light": 1}
_TURN = {**_number("way", -3.0, 3.0, 0.0, size=3), "length": 3.0}
_DIRECTIONS = {
    "kind": "directions",
    "epsilon": "0.92",
    "attributes": [0],
    "directions": 7,
    "best": 2,
    "high": 5,
    "low": 2,
    "null": 12,
    "null_input": 18,
    "seed_bits": 3,
    "key": 5,
}

_GEAR = {"name": "gear", "categories": list("PRN12345"), "missing": "N"}
_LINES = {
    "kind": "lines",
    "epsilon": "0.7",
    "categories": 8,
    "base": 3,
    "digits": 2,
    "same": 2,
    "other": 1,
}

ONE_BIT = _plan("1.0", [_SPEED], [_numbers("duchi", 1.0)], _sample(1, [0], [0]))
UNEVEN = _plan("1.7", [_SPEED], [_UNEVEN], _sample(1, [0], [0]))
RESPONSE = _plan("1.8", [_MODEL], [_RESPONSE], _sample(1, [0], [0]))
UNARY = _plan("1.1", [_DOOR], [_UNARY], _sample(1, [0], [0]))
MIXED = _plan(
    "3.5",
    [_SPEED, _WAY, _MODEL, _DOOR],
    [_UNEVEN, _RESPONSE, _UNARY],
    _sample(2, [0, 1, 2, 3], [0, 0, 1, 2]),
)
CUBE = _plan(
    "3.4",
    [_SPEED, _WAY, _MODEL],
    [_RESPONSE],
    {**_CUBE, "attributes": [0, 1]},
    _sample(1, [2], [0]),
)

DIRECTIONS = {**_plan("0.92", [_TURN], [], _DIRECTIONS), "format": vehicle.PLAN_FORMAT_2}
NO_NULL = {
    **_plan(
        "5.8",
        [_MODEL, _TURN],
        [_RESPONSE],
        {**fedldp.coders.DirectionsCoder.of(4.0, 3).to_document(), "attributes": [1]},
        _sample(1, [0], [0]),
    ),
    "format": vehicle.PLAN_FORMAT_2,
}
LINES = {
    **_plan("0.7", [_GEAR], [_LINES], _sample(1, [0], [0])),
    "format": vehicle.PLAN_FORMAT_2,
}
HADAMARD = {
    **_plan(
        "2.9",
        [_SPEED, _GEAR],
        [_UNEVEN, {**_LINES, "epsilon": "1.2", "base": 2, "digits": 3, "same": 3}],
        _sample(2, [0, 1], [0, 1]),
    ),
    "format": vehicle.PLAN_FORMAT_2,
}
_ZONE = {"name": "zone", "first": 3, "last": 6}
_APP = {"name": "app", "buckets": 5, "salt": "spring"}
_TIRES = {"name": "tires", "categories": ["summer", "other"], "optional": True}
_RANGE = {"name": "range", "low": 0.0, "high": 400.0, "optional": True, "grid": 2}
_FINE = {**_RANGE, "name": "fine", "grid": 5}
_SPEEDS = {"name": "speed by model", "of": _SPEED, "groups": _MODEL}
_RANGES = {"name": "range by tires", "of": _RANGE, "groups": _TIRES}
_TABLE = {"name": "gear by zone", "of": _GEAR, "groups": _ZONE}

_BINS = {"name": "speed", "edges": [0.0, 30.0, 50.0, 130.0], "missing": 65.0}
_WAYS = {"name": "way", "edges": [1.0, 10.0, 100.0], "optional": True}
_HEADING = {"name": "heading", "period": 360.0, "bins": 4, "missing": 90.0}
_HOUR = {"name": "hour", "period": 24.0, "bins": 5, "optional": True}
_BINS_BY_MODEL = {"name": "speed by model", "of": _BINS, "groups": _MODEL}


def _few(categories: int, epsilon: str) -> Document:
    """Return randomised response with small odds."""
    same = (1 << (categories + 1).bit_length()) - (categories - 1)
    return {**_RESPONSE, "epsilon": epsilon, "categories": categories, "same": same, "other": 1}


_SIX, _TRIPLE, _NINE = _few(6, "1.1"), _few(3, "1.8"), _few(9, "2.1")
UNLISTED = {
    **_plan(
        "4.0",
        [_ZONE, _APP, _TIRES],
        [_SIX, _TRIPLE],
        _sample(3, [0, 1, 2], [0, 0, 1]),
    ),
    "format": vehicle.PLAN_FORMAT_2,
}
OPTIONAL = {
    **_plan("2.9", [_RANGE, _FINE], [_TRIPLE, _SIX], _sample(2, [0, 1], [0, 1])),
    "format": vehicle.PLAN_FORMAT_2,
}
GROUPS = {
    **_plan(
        "5.0",
        [_SPEEDS, _RANGES, _TABLE],
        [_SIX, _NINE, _few(48, "2.9")],
        _sample(2, [0, 1, 2], [0, 1, 2]),
    ),
    "format": vehicle.PLAN_FORMAT_2,
}
BINS = {
    **_plan(
        "8.5",
        [_BINS, _WAYS, _HEADING, _HOUR, _BINS_BY_MODEL],
        [_TRIPLE, _few(4, "1.7"), _SIX, _NINE],
        _sample(5, [0, 1, 2, 3, 4], [0, 0, 1, 2, 3]),
    ),
    "format": vehicle.PLAN_FORMAT_2,
}
_LASTING = {**_MODEL, "constant": True}
_LASTING_SPEEDS = {**_SPEEDS, "of": {**_SPEED, "constant": True}, "groups": _LASTING}
CONSTANT = {
    **_plan(
        "3.0",
        [{**_MODEL, "name": "model before", "constant": True}, _LASTING_SPEEDS],
        [_TRIPLE, _SIX],
        _sample(2, [0, 1], [0, 1]),
    ),
    "format": vehicle.PLAN_FORMAT_2,
}
CONSTANT_AND_OTHERS = {
    **_plan(
        "1.8",
        [_LASTING, {**_LASTING_SPEEDS, "of": _SPEED}],
        [_TRIPLE, _SIX],
        _sample(1, [0, 1], [0, 1]),
    ),
    "format": vehicle.PLAN_FORMAT_2,
}
RULES = {
    **_plan(
        "3.0",
        [
            {**_MODEL, "name": "model before", "rule": "maximum"},
            {
                **_SPEEDS,
                "of": {**_SPEED, "rule": "mean"},
                "groups": {**_MODEL, "rule": "last"},
            },
        ],
        [_TRIPLE, _SIX],
        _sample(2, [0, 1], [0, 1]),
    ),
    "format": vehicle.PLAN_FORMAT_2,
}

PLANS = {
    "one number, one bit": ONE_BIT,
    "letters that are not evenly spaced": UNEVEN,
    "evenly spaced letters, seven outputs": _plan(
        "1.0", [_SPEED], [_numbers("hm-tp", 1.0, 7)], _sample(1, [0], [0])
    ),
    "randomised response": RESPONSE,
    "unary encoding": UNARY,
    "two of six coordinates": MIXED,
    "all coordinates, no indexes": _plan(
        "4.6",
        [_SPEED, _MODEL, _DOOR],
        [_UNEVEN, _RESPONSE, _UNARY],
        _sample(3, [0, 1, 2], [0, 1, 2]),
    ),
    "a cube and a category": CUBE,
    "a claim above the cost, and an output that never occurs": _plan(
        "2.0", [_SPEED], [_NEVER], _sample(1, [0], [0])
    ),
    "costs that doubles add up to more than the claim": _plan(
        "0.3", [_SPEED, _MODEL], [_FAINT, _FAINT_RESPONSE], _sample(2, [0, 1], [0, 1])
    ),
    "seven directions": DIRECTIONS,
    "63 directions without null input, and a category": NO_NULL,
    "lines of two digits in base 3": LINES,
    "a number, and lines of three digits in base 2": HADAMARD,
    "categories that are not listed, and an optional one": UNLISTED,
    "an optional number": OPTIONAL,
    "attributes within groups": GROUPS,
    "numbers and angles in bins": BINS,
    "attributes that never change": CONSTANT,
    "an attribute that never changes, and one that does": CONSTANT_AND_OTHERS,
    "rules for several rows": RULES,
}

CALENDARS = ((7, 2), (1, 1), (365, 12))  # periods, and in how many of them a vehicle answers

ROWS: list[Any] = [
    {"speed": 91.0, "way": [2.5, -0.5, 0.25], "model": "Gamma", "door": True},
    {"speed": 1e300, "way": [-7, 3, 1], "model": "Alpha", "door": "Tür"},
    {"speed": "32.5", "way": [1, 2], "model": "Delta", "door": 1.0},
    {"speed": None, "model": None},
    {},
    {"speed": " 3.25e+1 ", "way": ["0x10", True, ""], "model": "beta", "door": False},
]


def _edge(part: int, whole: int, bits: int = vehicle.WORD) -> tuple[int, int]:
    """Return the last throw within a part of all throws, and the one after it."""
    throw = (part << bits) // whole
    return throw - 1, throw


_ROOT = {"way": [1.5, 3 * 2.0**-16, 0.0]}  # 2^19 and 16: their squares add up to 2^38 + 2^8
_ORDER = {"way": [5.56, 0.34, 1.1]}
_COUNTS = [int(count) for count in ONE_BIT["tables"][0]["counts"][1]]
_ROUNDINGS = 1 << vehicle.ROUNDING
_SLOW = 130 * 0.75 / _ROUNDINGS  # three quarters of a step above the lower bound count as one

_FIFTH = (1 << 67) // 5  # of the numbers from which one below 5 is drawn


def _drawn(bits: int, number: int) -> bytes:
    """Return the bytes that a number of some bits is drawn from."""
    size = -(-bits // 8)
    return (number << (8 * size - bits)).to_bytes(size, "big")


# Draws at the edges, which random draws miss: one code up to the edge, another one from there.
EDGES: dict[str, list[tuple[Any, Sequence[int | bytes]]]] = {
    "one number, one bit": [
        *(({"speed": 130.0}, [word, 0]) for word in _edge(_COUNTS[0], sum(_COUNTS))),
        ({"speed": _SLOW}, [_edge(1, 2)[0], _ROUNDINGS - 2]),
        ({"speed": _SLOW}, [_edge(1, 2)[0], _ROUNDINGS - 1]),
    ],
    "letters that are not evenly spaced": [({"speed": 0.0}, [word, 0]) for word in _edge(5, 8)],
    "randomised response": [({"model": "Gamma"}, [word]) for word in _edge(5, 8)],
    "two of six coordinates": [
        # The last number of 67 bits that means 1 of 5, the next one, and one to be drawn again.
        ({}, [_drawn(67, number), _drawn(67, 0), 0, 0, 0, 0, 0])
        for number in (2 * _FIFTH - 1, 2 * _FIFTH, 5 * _FIFTH - 1)
    ]
    + [({}, [_drawn(67, 5 * _FIFTH), _drawn(67, _FIFTH), _drawn(67, 0), 0, 0, 0, 0, 0])],
    "unary encoding": [({"door": True}, [word, *_edge(1, 4)]) for word in _edge(1, 2)],
    "a cube and a category": [
        ({"speed": 65.0}, [half, *_edge(1, 4, vehicle.ROUNDING)])
        for half in _edge(1, 2, vehicle.ROUNDING)
    ],
    "seven directions": [
        # The last of all directions, the first and the last of the best ones, and the null code.
        *(({"way": [3, 0, -1]}, [1 << 30, 0, word]) for word in (*_edge(14, 32), *_edge(20, 32))),
        # Half of the length: as itself or as nothing.
        *(({"way": [0, 1.5, 0]}, [0, half, 15 << 59]) for half in _edge(1, 2, vehicle.ROUNDING)),
        # The root of the sum of squares is just below a whole number, which a double rounds it to.
        (_ROOT, [0, 1 << 31, 15 << 59]),
        # Squares that are added in another order, or exactly, give another length.
        (_ORDER, [3 << 30, 0, 15 << 59]),
    ],
    "63 directions without null input, and a category": [
        # Half of the length: itself in three of four cases, else the opposite.
        *(({"way": [0, 1.5, 0]}, [9 << 28, part, 15 << 60]) for part in _edge(3, 4, 32)),
        # Of equal products the first direction is the best.
        *(({"way": [0, 0, 0]}, [7 << 29, 0, word << 56]) for word in (0x80, 0xB0, 0xFF)),
    ],
    "lines of two digits in base 3": [
        # Each direction of each category, and the last throw that keeps the product.
        *(
            ({"gear": gear}, [direction, 0])
            for gear in "P25"
            for place in (1, 2, 3, 4)
            for direction in _edge(place, 4)[:1]
        ),
        *(({"gear": "5"}, [3 << 62, word]) for word in (*_edge(1, 4), *_edge(1, 2), *_edge(3, 4))),
    ],
    "categories that are not listed, and an optional one": [
        (dict(zip(("zone", "app", "tires"), row, strict=True)), [0, 0, 0])
        for row in (
            (3, "maps", "summer"),
            ("6", "T\u00fcr", "winter"),
            (4.5, True, ""),
            (7, 3.0, None),
            ("six", 2.5, "other"),
            ("", "", "missing"),
            (False, None, True),
        )
    ],
    "an optional number": [
        ({"range": value, "fine": value}, [rounding, 0, rounding, 0])
        for value in (100, 0, 500, "", "far", None, 75)
        for rounding in _edge(3, 4, vehicle.ROUNDING)
    ],
    "attributes within groups": [
        (row, [])
        for row in (
            {"speed": 130, "model": "Gamma", "range": 0, "tires": "winter", "gear": "5", "zone": 6},
            {"speed": 0, "model": "Alpha", "range": 999, "tires": None, "gear": "P", "zone": 3},
            {"speed": None, "model": "Alpha", "tires": "summer", "gear": "7", "zone": 9},
            {"model": None, "range": 200.0, "gear": None, "zone": None},
        )
        for _ in range(4)
    ],
    "numbers and angles in bins": [
        (
            dict(zip(("speed", "way", "heading", "hour", "model"), row, strict=True)),
            [0, 0, 0, 0, 0],
        )
        for row in (
            (30, 10.0, 90, 24, "Alpha"),
            (29.99, 9.99, 89.99, 23.99, "Beta"),
            (-1, 0.5, -1, -0.5, "Gamma"),
            (0, 1, 360, 4.8, "Alpha"),
            (130, 100, 450, 100, "Gamma"),
            ("50", "1e300", "-360", "1e30", "Delta"),
            (999, None, 270.0, "", None),
            ("fast", "far", "north", "noon", 3),
            (None, "", None, None, "Beta"),
            (49.5, 55, -1e-17, -1e-17, "Alpha"),
        )
    ],
    "a number, and lines of three digits in base 2": [
        ({"speed": 0.0, "gear": "4"}, [0, 0, direction, word])
        for direction in (*_edge(1, 7), *_edge(6, 7))
        for word in _edge(1, 2)
    ],
}


# Plans that must be refused: what is wrong, a plan, and what to change in it to make that so. Each
# is wrong in one way only, so that a vehicle that leaves a check out is found.


def _response(epsilon: str, same: int | str, other: int | str) -> Document:
    return {**_RESPONSE, "epsilon": epsilon, "categories": 4, "same": same, "other": other}


# Tables of a ratio just above 1, with which a plan costs little.
_WEAK = {
    "epsilon": "0.001",
    "letters": [-1.0, 1.0],
    "values": [-(2.0**14) / 6, 2.0**14 / 6],
    "counts": [[2**13 + 3, 2**13 - 3], [2**13 - 3, 2**13 + 3]],
    "kind": "numbers",
}
_WEAK_UNARY = {**_UNARY, "epsilon": "0.001", "total": 2**14, "absent": 2**13 - 2}
_WEAK_CUBE = {**_CUBE, "heavy": 2001, "light": 2000, "epsilon": "0.001", "attributes": [0, 1]}
_ODDS = ("high", "low", "null", "null_input")
_LARGE = str(vehicle.LARGEST_ROW_TOTAL)
_TOO_FEW = int(2**60 / (1 + vehicle.exp_below(Fraction(2))))  # of 2^60: by one, next to the rest
_LARGEST, _LEAST = str(2**60 - _TOO_FEW), str(_TOO_FEW)
_ENDS = 2**60 / (2**60 - 2 * _TOO_FEW)
REFUSED: list[tuple[str, Document, dict[str, Any]]] = [
    # tables of numbers
    ("a count that is too large by one", UNEVEN, {"tables.0.epsilon": "1.6"}),
    (
        "a ratio above e^2 that doubles cannot tell from it",
        ONE_BIT,
        {
            "epsilon": "2.0",
            "tables.0.epsilon": "2.0",
            "tables.0.counts": [[_LARGEST, _LEAST], [_LEAST, _LARGEST]],
            "tables.0.values": [-_ENDS, _ENDS],
        },
    ),
    ("a zero in a column", UNEVEN, {"tables.0.counts.0": [4, 4, 0]}),
    ("a row with another total", UNEVEN, {"tables.0.counts.1": [3, 4, 2]}),
    ("a row that is longer", UNEVEN, {"tables.0.counts.1": [2, 5, 1, 0]}),
    ("a single output", ONE_BIT, {"tables.0.counts": [[1], [1]], "tables.0.values": [0.0]}),
    (
        "a total that is no power of two",
        UNEVEN,
        {"tables.0.counts": [[4, 1, 1], [1, 1, 4]], "tables.0.letters": [-1.0, 1.0]},
    ),
    ("a total below the columns", UNEVEN, {"tables.0.counts": [[1, 0, 1]] * 4}),
    (
        "a total above 2^62",
        ONE_BIT,
        {
            "epsilon": "1.1",
            "tables.0.epsilon": "1.1",
            "tables.0.counts": [[str(3 << 61), str(1 << 61)], [str(1 << 61), str(3 << 61)]],
            "tables.0.values": [-2.0, 2.0],
        },
    ),
    ("a count that is not whole", UNEVEN, {"tables.0.counts.0": [5.5, 2, 1]}),
    ("a count in hexadecimal", UNEVEN, {"tables.0.counts.0": ["0x5", 2, 1]}),
    ("a count that is a truth value", UNEVEN, {"tables.0.counts.0": [5, 2, True]}),
    ("a count up to 2^53 that is a text", UNEVEN, {"tables.0.counts.0": ["5", 2, 1]}),
    (
        "a count above 2^53 that is no text",
        ONE_BIT,
        {"tables.0.counts.0.0": int(ONE_BIT["tables"][0]["counts"][0][0])},
    ),
    (
        "a count with a leading zero",
        ONE_BIT,
        {"tables.0.counts.0.0": "0" + ONE_BIT["tables"][0]["counts"][0][0]},
    ),
    (
        "letters that do not ascend",
        UNEVEN,
        {
            "tables.0.letters": [-1.0, 0.5, -0.25, 1.0],
            "tables.0.counts.1": [2, 2, 4],
            "tables.0.counts.2": [3, 3, 2],
        },
    ),
    (
        "letters that begin above -1",
        UNEVEN,
        {"tables.0.letters.0": -0.75, "tables.0.counts.0": [4, 3, 1]},
    ),
    (
        "letters that end below 1",
        UNEVEN,
        {"tables.0.letters.3": 0.75, "tables.0.counts.3": [1, 3, 4]},
    ),
    (
        "letters too close together",
        UNEVEN,
        {
            "tables.0.letters.2": -0.25 + 2.0**-21,
            "tables.0.counts": [
                [5 << 20, 2 << 20, 1 << 20],
                [3 << 20, 3 << 20, 2 << 20],
                [3 << 20, (3 << 20) - 2, (2 << 20) + 2],
                [1 << 20, 2 << 20, 5 << 20],
            ],
        },
    ),
    (
        "a letter without a row",
        UNEVEN,
        {"tables.0.letters": [-1.0, -0.25, 0.5, 0.75, 1.0], "tables.0.counts.3": [1, 3, 4]},
    ),
    ("a letter that is a text", UNEVEN, {"tables.0.letters.2": "0.5"}),
    ("a letter without a point", UNEVEN, {"tables.0.letters.3": 1}),
    (
        "values that do not ascend",
        UNEVEN,
        {
            "tables.0.values": [-2.0, 2.0, 0.0],
            "tables.0.counts": [[5, 1, 2], [3, 2, 3], [2, 4, 2], [1, 5, 2]],
        },
    ),
    ("a value without a column", UNEVEN, {"tables.0.values": [-2.0, 0.0, 2.0, 3.0]}),
    ("a table whose mean is not the letter", UNEVEN, {"tables.0.counts.1": [3, 2, 3]}),
    (
        "more than 2^26 counters",
        ONE_BIT,
        {
            "epsilon": "1.1",
            "schema.0.size": 2**24,
            "tables.0": {
                **_UNEVEN,
                "epsilon": "1.1",
                "letters": [-1.0, 1.0],
                "values": [-3.2, -1.6, 0.0, 1.6, 3.2],
                "counts": [[3, 2, 1, 1, 1], [1, 1, 1, 2, 3]],
            },
        },
    ),
    # tables of categories
    ("a response that leaks", RESPONSE, {"tables.0.epsilon": "1.79"}),
    ("a response that avoids its own category", UNARY, {"tables.0": _response("1.1", 1, 5)}),
    ("a response whose total is no power of two", RESPONSE, {"tables.0.same": 5}),
    (
        "a response whose total is above 2^62",
        UNARY,
        {"tables.0": _response("1.1", str(7 << 59), str(3 << 59))},
    ),
    ("an encoding that leaks", UNARY, {"tables.0.epsilon": "1.09"}),
    ("an encoding that avoids its own category", UNARY, {"tables.0.absent": 3}),
    (
        "an encoding whose total is no power of two",
        UNARY,
        {"tables.0.total": 6, "tables.0.absent": 2},
    ),
    (
        "an encoding whose total is above 2^62",
        UNARY,
        {"tables.0.total": str(2**63), "tables.0.absent": str(2**61)},
    ),
    ("a response that says nothing", UNARY, {"tables.0": _response("1.1", 1, 1)}),
    ("an encoding that says nothing", UNARY, {"tables.0.absent": 2}),
    ("a table of an unknown kind", UNARY, {"tables.0.kind": "binary"}),
    # cubes
    ("a cube that leaks", CUBE, {"parts.0.heavy": 5}),
    ("a cube that avoids its own signs", CUBE, {"parts.0.heavy": 1, "parts.0.light": 5}),
    (
        "a cube of too large weights",
        CUBE,
        {"parts.0.heavy": str(2**97), "parts.0.light": str(2**96)},
    ),
    ("a cube that says nothing", CUBE, {"parts.0.heavy": 1}),
    (
        "a cube whose threshold is too far from 0",
        CUBE,
        {"schema.1.size": 501, "parts.0.threshold": 501},
    ),
    ("a threshold of d", CUBE, {"parts.0.threshold": 4}),
    ("a threshold below -d", CUBE, {"parts.0.threshold": -5}),
    ("a threshold that is not whole", CUBE, {"parts.0.threshold": 0.5}),
    ("a cube of 10,001 signs", CUBE, {"schema.1.size": 10_000}),
    (
        "a cube with a category",
        CUBE,
        {"parts.0.attributes": [0, 1, 2], "parts.1": ..., "tables": []},
    ),
    (
        "two cubes",
        CUBE,
        {"parts.0.attributes": [0], "parts.2": {**_CUBE, "attributes": [1]}, "epsilon": "5.0"},
    ),
    # directions
    (
        "directions without a best one",
        DIRECTIONS,
        {"parts.0.best": 0, "parts.0.null": 18},
    ),
    (
        "directions that are all the best",
        DIRECTIONS,
        {"parts.0.best": 7, "parts.0.high": 4, "parts.0.null": 4, "parts.0.null_input": 0},
    ),
    ("directions of unequal totals", DIRECTIONS, {"parts.0.null_input": 17}),
    (
        "directions whose total is no power of two",
        DIRECTIONS,
        {"parts.0.null": 13, "parts.0.null_input": 19},
    ),
    (
        "directions whose total is above 2^62",
        DIRECTIONS,
        {f"parts.0.{name}": str(_DIRECTIONS[name] << 58) for name in _ODDS},
    ),
    ("directions that leak", DIRECTIONS, {"parts.0.high": 6, "parts.0.null": 10}),
    (
        "a null code that leaks",
        DIRECTIONS,
        {f"parts.0.{name}": odds for name, odds in zip(_ODDS, (7, 3, 3, 11), strict=True)},
    ),
    (
        "directions that avoid the vector",
        DIRECTIONS,
        {f"parts.0.{name}": odds for name, odds in zip(_ODDS, (1, 4, 10, 0), strict=True)},
    ),
    (
        "a null code of negative odds",
        DIRECTIONS,
        {f"parts.0.{name}": odds for name, odds in zip(_ODDS, (8, 4, -4, 0), strict=True)},
    ),
    (
        "directions that do not fill their bits",
        DIRECTIONS,
        {"parts.0.directions": 6, "parts.0.null": 14, "parts.0.null_input": 20},
    ),
    (
        "511 directions",
        DIRECTIONS,
        {
            "parts.0.directions": 511,
            **{f"parts.0.{n}": odds for n, odds in zip(_ODDS, (2, 1, 511, 513), strict=True)},
        },
    ),
    ("best directions that are not whole", DIRECTIONS, {"parts.0.best": 2.5}),
    ("a seed of no bits", DIRECTIONS, {"parts.0.seed_bits": 0}),
    ("a seed and a direction of 33 bits", DIRECTIONS, {"parts.0.seed_bits": 30}),
    ("a key of 65 bits", DIRECTIONS, {"parts.0.key": str(2**64)}),
    ("directions of 131,073 numbers", DIRECTIONS, {"schema.0.size": 2**17 + 1}),
    ("directions for numbers without a length", DIRECTIONS, {"schema.0.length": ...}),
    (
        "directions for two vectors",
        DIRECTIONS,
        {"schema.1": {**_TURN, "name": "back"}, "parts.0.attributes": [0, 1]},
    ),
    ("a table for a vector with a length", UNEVEN, {"schema.0": _TURN}),
    ("bounds that are not the length", DIRECTIONS, {"schema.0.high": 4.0}),
    (
        "directions beside a cube",
        DIRECTIONS,
        {"epsilon": "5.0", "schema.1": _SPEED, "parts.1": {**_CUBE, "attributes": [1]}},
    ),
    ("directions in a plan of format 1", DIRECTIONS, {"format": vehicle.PLAN_FORMAT}),
    # lines
    ("lines that leak", LINES, {"tables.0.epsilon": "0.69"}),
    ("lines that avoid the product", LINES, {"tables.0.same": 2, "tables.0.other": 3}),
    ("lines whose total is no power of two", LINES, {"tables.0.same": 3, "tables.0.other": 2}),
    (
        "lines whose total is above 2^62",
        LINES,
        {"tables.0.same": _LARGE, "tables.0.other": str(2**61)},
    ),
    ("lines that say nothing", HADAMARD, {"tables.1.same": 1, "tables.1.other": 1}),
    (
        "lines in a base that is not prime",
        LINES,
        {"tables.0.base": 4, "tables.0.same": 5, "tables.0.epsilon": "1.7", "epsilon": "1.7"},
    ),
    ("lines of too few digits", LINES, {"tables.0.digits": 1}),
    ("lines of too many digits", LINES, {"tables.0.digits": 3}),
    ("lines of categories that are not whole", LINES, {"tables.0.categories": 8.0}),
    ("lines for more categories", LINES, {"tables.0.categories": 9}),
    ("lines in a plan of format 1", LINES, {"format": vehicle.PLAN_FORMAT}),
    ("an unknown entry of lines", LINES, {"tables.0.comment": ""}),
    # attributes of format 2
    (
        "lines of more than 2^26 codes",
        LINES,
        {
            "epsilon": "9.1",
            "schema.0": {"name": "zone", "first": 1, "last": 2**20 - 2},
            "tables.0": {
                **_LINES,
                "epsilon": "9.1",
                "categories": 2**20,
                "base": 8209,
                "same": 2**14 - 8208,
            },
        },
    ),
    (
        "a range in the wrong order",
        UNLISTED,
        {
            "schema.0.first": 6,
            "schema.0.last": 5,
            "tables": [_few(2, "1.1"), _SIX, _TRIPLE],
            "parts.0.tables": [0, 1, 2],
        },
    ),
    ("a range beyond doubles", UNLISTED, {"schema.0.first": 2**54, "schema.0.last": 2**54 + 3}),
    ("a range whose ends are not whole", UNLISTED, {"schema.0.first": 3.0}),
    (
        "a single bucket",
        UNLISTED,
        {
            "schema.1.buckets": 1,
            "tables": [_SIX, _few(2, "1.1"), _TRIPLE],
            "parts.0.tables": [0, 1, 2],
        },
    ),
    ("buckets that are not whole", UNLISTED, {"schema.1.buckets": 5.0}),
    ("a salt that is no text", UNLISTED, {"schema.1.salt": None}),
    ("a salt with half of a character", UNLISTED, {"schema.1.salt": "\ud83d"}),
    ("an optional category that is not optional", UNLISTED, {"schema.2.optional": False}),
    (
        "an optional category with a label twice",
        UNLISTED,
        {"schema.2.categories": ["summer", "summer", "other"]},
    ),
    ("an optional number that is not optional", OPTIONAL, {"schema.0.optional": False}),
    (
        "an optional number with a grid of one value",
        OPTIONAL,
        {
            "schema.0.grid": 1,
            "tables": [_few(2, "1.1"), _SIX],
        },
    ),
    ("a grid that is not whole", OPTIONAL, {"schema.0.grid": 2.0}),
    ("an optional number with equal bounds", OPTIONAL, {"schema.0.high": 0.0}),
    (
        "groups within groups",
        GROUPS,
        {"epsilon": "5.7", "schema.0.of": _SPEEDS, "tables.0": _few(18, "2.8")},
    ),
    ("a vector within groups", GROUPS, {"schema.0.of": {**_SPEED, "size": 2}}),
    ("a length within groups", GROUPS, {"schema.0.of": {**_TURN, "size": 1}}),
    (
        "groups that are optional numbers",
        GROUPS,
        {"schema.0.groups": {**_RANGE, "name": "way"}},
    ),
    ("groups of their own column", GROUPS, {"schema.0.groups.name": "speed"}),
    ("edges that do not ascend", BINS, {"schema.0.edges.1": 50.0}),
    ("edges too far apart", BINS, {"schema.0.edges.0": -1.7e308, "schema.0.edges.3": 1.7e308}),
    ("an edge without a point", BINS, {"schema.0.edges.1": 30}),
    ("an edge of -0.0", BINS, {"schema.0.edges.0": -0.0}),
    (
        "a single bin",
        BINS,
        {
            "epsilon": "8.8",
            "schema.1.edges": [1.0, 10.0],
            "tables": [_TRIPLE, _few(2, "1.1"), _few(4, "1.7"), _SIX, _NINE],
            "parts.0.tables": [0, 1, 2, 3, 4],
        },
    ),
    (
        "1,025 bins",
        BINS,
        {
            "epsilon": "13.8",
            "schema.2.bins": 1025,
            "tables.1": _few(1025, "6.94"),
        },
    ),
    ("a missing number beyond the edges", BINS, {"schema.0.missing": 131.0}),
    ("bins that are not optional", BINS, {"schema.1.optional": False}),
    ("a period of 0", BINS, {"schema.3.period": 0.0}),
    ("a period below 0", BINS, {"schema.3.period": -24.0}),
    ("bins that are not whole", BINS, {"schema.2.bins": 4.0}),
    ("a missing angle beyond the period", BINS, {"schema.2.missing": 361.0}),
    ("an angle that is not optional", BINS, {"schema.3.optional": False}),
    ("bins in a plan of format 1", BINS, {"format": vehicle.PLAN_FORMAT}),
    ("an unknown entry of bins", BINS, {"schema.0.comment": ""}),
    ("an unknown entry of optional bins", BINS, {"schema.1.comment": ""}),
    ("an unknown entry of an angle", BINS, {"schema.2.comment": ""}),
    ("an unknown entry of an optional angle", BINS, {"schema.3.comment": ""}),
    ("a range in a plan of format 1", UNLISTED, {"format": vehicle.PLAN_FORMAT}),
    ("an optional number in a plan of format 1", OPTIONAL, {"format": vehicle.PLAN_FORMAT}),
    ("groups in a plan of format 1", GROUPS, {"format": vehicle.PLAN_FORMAT}),
    ("an unknown entry of a range", UNLISTED, {"schema.0.comment": ""}),
    ("an unknown entry of buckets", UNLISTED, {"schema.1.comment": ""}),
    ("an unknown entry of an optional category", UNLISTED, {"schema.2.comment": ""}),
    ("an unknown entry of an optional number", OPTIONAL, {"schema.0.comment": ""}),
    ("an unknown entry of groups", GROUPS, {"schema.0.comment": ""}),
    ("an attribute that is not constant", CONSTANT, {"schema.0.constant": False}),
    ("an attribute that is constant by a number", CONSTANT, {"schema.0.constant": 1}),
    ("groups that are constant as a whole", CONSTANT, {"schema.1.constant": True}),
    ("a constant attribute in a plan of format 1", MIXED, {"schema.0.constant": True}),
    ("an unknown entry of a constant attribute", CONSTANT, {"schema.0.comment": ""}),
    ("an unknown rule", RULES, {"schema.0.rule": "median"}),
    ("a rule that does not fit", RULES, {"schema.0.rule": "mean"}),
    ("the rule that all have without one", RULES, {"schema.0.rule": "random"}),
    ("groups with a rule as a whole", RULES, {"schema.1.rule": "last"}),
    ("a rule for one of two columns", CONSTANT, {"schema.1.of.rule": "last"}),
    ("a column with two rules", RULES, {"schema.0.name": "model"}),
    ("a rule in a plan of format 1", MIXED, {"schema.0.rule": "mean"}),
    ("an unknown entry of an attribute with a rule", RULES, {"schema.0.comment": ""}),
    # what it costs
    ("a claim below the cost", MIXED, {"epsilon": "3.49"}),
    (
        "a claim below the cost by less than doubles tell",
        MIXED,
        {"tables.0.epsilon": "1.7000000000000002"},
    ),
    (
        "a claim for one number of a vector, not for two",
        UNEVEN,
        {"schema.0": _WAY, "parts.0.k": 2, "epsilon": "3.3"},
    ),
    ("an epsilon with an exponent", MIXED, {"epsilon": "35e-1"}),
    ("an epsilon with two points", MIXED, {"epsilon": "3.5.0"}),
    ("an epsilon in Arabic digits", MIXED, {"epsilon": "\u0663.\u0665"}),
    ("an epsilon without a point", CUBE, {"epsilon": "4"}),
    ("an epsilon with further zeros", MIXED, {"epsilon": "3.50"}),
    ("an epsilon with a zero in front", MIXED, {"epsilon": "03.5"}),
    ("an epsilon of more digits than a double", MIXED, {"epsilon": "3.5000000000000000001"}),
    ("an epsilon that is no text", MIXED, {"epsilon": 3.5}),
    ("an epsilon below 0.001", ONE_BIT, {"tables.0": {**_WEAK, "epsilon": "0.0009"}}),
    ("an epsilon below 0.001 of a response", UNARY, {"tables.0": _response("0.0009", 8195, 8191)}),
    (
        "an epsilon below 0.001 of an encoding",
        UNARY,
        {"tables.0": {**_WEAK_UNARY, "epsilon": "0.0009"}},
    ),
    ("an epsilon below 0.001 of a cube", CUBE, {"parts.0": {**_WEAK_CUBE, "epsilon": "0.0009"}}),
    ("an epsilon above 16", MIXED, {"epsilon": "16.5"}),
    # parts
    (
        "an attribute in no part",
        MIXED,
        {"parts.0.attributes": [0, 1, 2], "parts.0.tables": [0, 0, 1], "tables.2": ...},
    ),
    (
        "an attribute twice in a part",
        MIXED,
        {"parts.0.attributes": [0, 1, 2, 3, 0], "parts.0.tables": [0, 0, 1, 2, 0]},
    ),
    ("an attribute in two parts", UNEVEN, {"epsilon": "3.4", "parts.1": _sample(1, [0], [0])}),
    ("more tables than attributes", MIXED, {"parts.0.tables": [0, 0, 1, 2, 0]}),
    ("a table that there is not", UNARY, {"parts.0.tables": [-1]}),
    ("the number of a table as a text", UNEVEN, {"parts.0.tables": ["0"]}),
    ("a table that no part names", MIXED, {"tables.3": _FAINT}),
    (
        "tables in another order",
        MIXED,
        {"tables": [_RESPONSE, _UNEVEN, _UNARY], "parts.0.tables": [1, 1, 0, 2]},
    ),
    (
        "a table that stands twice",
        MIXED,
        {"tables": [_UNEVEN, _UNEVEN, _RESPONSE, _UNARY], "parts.0.tables": [0, 1, 2, 3]},
    ),
    ("a number with a table for categories", RESPONSE, {"schema.0": _SPEED}),
    ("a category with a table for numbers", UNEVEN, {"schema.0": _MODEL}),
    ("a table for fewer categories", RESPONSE, {"schema.0": _DOOR}),
    ("k = 0", MIXED, {"parts.0.k": 0}),
    ("k above d", UNEVEN, {"parts.0.k": 2}),
    ("k that is not whole", MIXED, {"parts.0.k": 1.5}),
    ("a part of an unknown kind", UNEVEN, {"parts.0.kind": "everything"}),
    # the schema
    ("bounds that are equal", ONE_BIT, {"schema.0.low": 65.0, "schema.0.high": 65.0}),
    ("bounds in the wrong order", ONE_BIT, {"schema.0.low": 130.0, "schema.0.high": 0.0}),
    ("bounds too far apart", ONE_BIT, {"schema.0.low": -1.7e308, "schema.0.high": 1.7e308}),
    (
        "bounds too close together",
        ONE_BIT,
        {"schema.0.low": 0.0, "schema.0.high": 5e-324, "schema.0.missing": 0.0},
    ),
    ("a bound that is a text", ONE_BIT, {"schema.0.low": "0"}),
    ("a bound without a point", ONE_BIT, {"schema.0.low": 0}),
    ("a bound of -0.0", ONE_BIT, {"schema.0.low": -0.0}),
    ("a missing number of -0.0", ONE_BIT, {"schema.0.missing": -0.0}),
    ("a missing number beyond the bounds", ONE_BIT, {"schema.0.missing": 131.0}),
    ("no missing number", ONE_BIT, {"schema.0.missing": ...}),
    ("a vector of no numbers", MIXED, {"schema.1.size": 0}),
    ("a size that is not whole", MIXED, {"schema.1.size": 2.5}),
    ("more than 2^24 coordinates", ONE_BIT, {"schema.0.size": 2**24 + 1}),
    (
        "a record of more than 2^27 bits",
        MIXED,
        {
            "format": vehicle.PLAN_FORMAT_2,
            "schema": [{**_SPEED, "size": 4000}, {**_APP, "buckets": 2**16 - 2}],
            "tables": [_WEAK, {**_WEAK_UNARY, "categories": 2**16 - 1}],
            "parts.0": _sample(2050, [0, 1], [0, 1]),
        },
    ),
    ("a missing category that there is not", RESPONSE, {"schema.0.missing": "Delta"}),
    ("a category that stands twice", RESPONSE, {"schema.0.categories": ["Alpha", "Beta", "Beta"]}),
    ("a category that is no text", RESPONSE, {"schema.0.categories": ["Alpha", "Beta", 3]}),
    ("a category of no characters", RESPONSE, {"schema.0.categories": ["Alpha", "Beta", ""]}),
    (
        "a category with half of a character",
        RESPONSE,
        {"schema.0.categories": ["Alpha", "Beta", "\ude00"]},
    ),
    ("a single category", UNARY, {"schema.0.categories": ["false"], "tables.0.categories": 1}),
    ("a name that stands twice", MIXED, {"schema.1.name": "speed"}),
    ("a name that is no text", ONE_BIT, {"schema.0.name": 7}),
    ("a name of no characters", ONE_BIT, {"schema.0.name": ""}),
    ("a name with half of a character", ONE_BIT, {"schema.0.name": "\ud83d"}),
    # entries
    ("another format", ONE_BIT, {"format": "fedldp plan 2"}),
    ("an unknown entry of the plan", ONE_BIT, {"comment": ""}),
    ("an unknown entry of a number", ONE_BIT, {"schema.0.comment": ""}),
    ("an unknown entry of a category", RESPONSE, {"schema.0.comment": ""}),
    ("an unknown entry of a table", ONE_BIT, {"tables.0.comment": ""}),
    ("an unknown entry of a response", RESPONSE, {"tables.0.comment": ""}),
    ("an unknown entry of an encoding", UNARY, {"tables.0.comment": ""}),
    ("an unknown entry of a part", ONE_BIT, {"parts.0.comment": ""}),
    ("an unknown entry of a cube", CUBE, {"parts.0.comment": ""}),
    ("an unknown entry of directions", DIRECTIONS, {"parts.0.comment": ""}),
    ("an unknown entry of a vector", DIRECTIONS, {"schema.0.comment": ""}),
]


# Texts that must be refused though other readers take them for a plan that is right: what is wrong,
# a plan, and what to put in the place of what in its text.
REFUSED_TEXTS: list[tuple[str, Document, str, str]] = [
    ("a space", ONE_BIT, ":", ": "),
    ("a line break at the end", ONE_BIT, "}]}", "}]}\n"),
    ("entries in another order", ONE_BIT, '"high":130.0,"low":0.0', '"low":0.0,"high":130.0'),
    ("an entry twice", ONE_BIT, '"high":130.0', '"high":1.0,"high":130.0'),
    ("an entry twice, alike", ONE_BIT, '"high":130.0', '"high":130.0,"high":130.0'),
    ("a bound with further zeros", ONE_BIT, "130.0", "130.00"),
    ("a bound with an exponent", ONE_BIT, "130.0", "1.3e2"),
    ("a label that is not escaped", UNARY, "T\\u00fcr", "Tür"),
    ("a label that is escaped in capitals", UNARY, "T\\u00fcr", "T\\u00FCr"),
    ("a label that is escaped without need", UNARY, '"true"', '"\\u0074rue"'),
]


def changed(document: Document, changes: dict[str, Any]) -> Document:
    """Return a copy with other entries; `...` deletes one."""
    document = json.loads(json.dumps(document))
    for path, value in changes.items():
        inner: Any = document
        *steps, last = (int(step) if step.isdigit() else step for step in path.split("."))
        for step in steps:
            inner = inner[step]
        if value is ...:
            del inner[last]
        elif isinstance(inner, list) and last == len(inner):
            inner.append(value)
        else:
            inner[last] = value
    return document
