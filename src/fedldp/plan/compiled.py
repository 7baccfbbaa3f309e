"""Plans as constants in C, for the vehicle in clients/c.

A device does not parse JSON: `compile_plan` checks a plan as `vehicle.py` does, and describes the
constants that clients/c/fedldp.h declares. `to_header` writes them as C. The device repeats the
check of the integers when it starts.
"""

import hashlib
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any, final

from fedldp import vehicle
from fedldp.errors import DomainError, PrivacyError
from fedldp.schema.attributes.base import DECLARATIONS

__all__ = ["CompiledPlan", "compile_plan"]

EPSILON_UNIT = 10**19  # no epsilon of a plan has more decimals
MOST_ATTRIBUTES = 1 << 16
MOST_LISTED_CODES = 1 << 12

Document = dict[str, Any]
Value = Any  # an integer, a text, None, or one of the classes below


@final
@dataclass(frozen=True)
class Name:
    """A name that fedldp.h declares, such as that of a function."""

    name: str


@final
@dataclass(frozen=True)
class Struct:
    """A constant of a structure."""

    type: str
    entries: dict[str, Value]


@final
@dataclass(frozen=True)
class Array:
    """A constant of several values of one type."""

    type: str
    values: tuple[Value, ...]


@final
@dataclass(frozen=True)
class Pointer:
    """The address of a constant, which is a structure or an array."""

    target: Struct | Array
    name: str


@final
@dataclass(frozen=True)
class Column:
    """What a row gives: a value that is read by a name and, if it is a listed label, its codes."""

    name: str
    identifier: str
    reader: str
    size: int
    labels: tuple[str, ...]


@final
@dataclass(frozen=True)
class CompiledPlan:
    """A plan as constants in C, checked against a cap.

    Attributes
    ----------
    plan
        The structure `fedldp_plan`, with all that it points to.
    columns
        The values of a row, in order.
    cap
        The most that one report may cost.

    Examples
    --------
    >>> import fedldp
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 1.0, fedldp.Sample(mechanism="duchi"))
    >>> compile_plan(plan.to_json(), cap="1.0").flash_bytes
    296
    """

    plan: Struct
    columns: tuple[Column, ...]
    cap: Fraction

    @property
    def flash_bytes(self) -> int:
        """The bytes of all constants on a processor of 32 bits, without gaps between them."""
        return _size(self.plan) + sum(map(_size, _targets(self.plan)))

    def to_header(self, name: str = "plan") -> str:
        """Return the constants as a header file in C.

        Parameters
        ----------
        name
            The name of the plan in C, with which all other names begin.

        Returns
        -------
        str
            The text of the file.

        Examples
        --------
        >>> import fedldp
        >>> schema = fedldp.Schema.of(speed=(0, 50))
        >>> plan = fedldp.Plan(schema, 1.0, fedldp.Sample(mechanism="duchi"))
        >>> print(compile_plan(plan.to_json(), cap="1.0").to_header("trip"))
        /* A plan of which each report costs 1.0: 1.
        ...
        """
        return _header(self, name)


def compile_plan(text: str, cap: float | str | Fraction) -> CompiledPlan:
    """Check a plan or a calendar in exact arithmetic, and describe it as constants in C.

    Parameters
    ----------
    text
        The plan or the calendar as canonical JSON: the text of its file.
    cap
        The most that one report may cost; for a calendar, all of its answers.

    Returns
    -------
    CompiledPlan
        The constants.

    Raises
    ------
    PrivacyError
        If the plan is not valid, leaks more than it claims, or costs more than the cap.
    DomainError
        If the vehicle in C does not know a kind of attribute or of coder.

    Examples
    --------
    >>> import fedldp
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 1.0, fedldp.Sample(mechanism="duchi"))
    >>> compile_plan(plan.to_json(), cap=1).columns[0].name
    'speed'
    """
    fingerprint = hashlib.sha256(text.encode()).hexdigest()
    try:
        most = vehicle.exact(cap)
        if '"format":"fedldp calendar ' in text:
            periods = vehicle.canonically(text)
            # `repeats`: clients/c keeps the first report of a plan that never changes.
            calendar = vehicle.Calendar(text, cap, repeats=True)
            plan, document = calendar.plan, periods["plan"]
        else:
            periods = {"periods": 0, "answers": 0}
            plan, document = vehicle.Plan(text, cap), vehicle.canonically(text)
    except ValueError as error:
        raise PrivacyError(str(error)) from None
    numbers = {
        "question": fingerprint,
        "fingerprint": plan.fingerprint,
        "epsilon": plan.epsilon,
        "bits": plan.bits,
        "constant": int(plan.constant),
        "periods": periods["periods"],
        "answers": periods["answers"],
    }
    return CompiledPlan(*constants(document, numbers), most)


def constants(document: Document, numbers: Document) -> tuple[Struct, tuple[Column, ...]]:
    """Return the constants of a plan that was checked, and the columns of its rows."""
    if len(document["schema"]) > MOST_ATTRIBUTES:
        raise DomainError(
            f"a plan in C has up to {MOST_ATTRIBUTES} attributes; got {len(document['schema'])}"
        )
    columns = _CompiledColumns()
    attributes = [_attribute(entry, columns) for entry in document["schema"]]
    parts = [_part(part, document["schema"]) for part in document["parts"]]
    tables = [_table(table) for table in document["tables"]]
    plan = {
        "fingerprint": Array("uint8_t", tuple(bytes.fromhex(numbers["fingerprint"]))),
        "question": Array("uint8_t", tuple(bytes.fromhex(numbers["question"]))),
        "epsilon": epsilon_limbs(numbers["epsilon"]),
        "attributes": _pointer("fedldp_attribute", attributes, "attributes"),
        "tables": _pointer("fedldp_table", tables, "tables"),
        "parts": _pointer("fedldp_part", [part for part, _ in parts], "parts"),
        "attribute_count": len(attributes),
        "table_count": len(tables),
        "part_count": len(parts),
        "bits": numbers["bits"],
        "scratch": max([1, *(words for _, words in parts), numbers["answers"]]),
        "constant": numbers["constant"],
        "periods": numbers["periods"],
        "answers": numbers["answers"],
    }
    return Struct("fedldp_plan", plan), tuple(columns.columns)


def epsilon_limbs(epsilon: Fraction) -> Struct:
    """Return an epsilon in units of 10^-19, rounded down, in limbs of 32 bits."""
    return Struct("fedldp_epsilon", {"limbs": _limbs(int(epsilon * EPSILON_UNIT), 3)})


def _limbs(number: int, count: int) -> Array:
    return Array("uint32_t", tuple(number >> 32 * i & 0xFFFFFFFF for i in range(count)))


def _bits(number: float) -> int:
    """Return the 64 bits of a double."""
    bits: int = struct.unpack("<Q", struct.pack("<d", number))[0]
    return bits


def _pointer(kind: str, values: Sequence[Value], name: str) -> Pointer | None:
    return Pointer(Array(kind, tuple(values)), name) if values else None


# Attributes, and the columns that they read.


@dataclass
class _CompiledColumns:
    """The columns of a row: one for each name and way of reading it."""

    columns: list[Column] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    def number_of(self, document: Document, reader: str, labels: Sequence[str]) -> int:
        entries = {key: entry for key, entry in document.items() if key not in DECLARATIONS}
        key = vehicle.canonical(entries)
        if key not in self.numbers:
            taken = {column.identifier for column in self.columns}
            self.numbers[key] = len(self.columns)
            identifier = _identifier(document["name"], taken)
            name, size = document["name"], document.get("size", 1)
            self.columns.append(Column(name, identifier, reader, size, tuple(labels)))
        return self.numbers[key]


def _identifier(name: str, taken: set[str]) -> str:
    """Return an identifier for an enumeration in C that is not taken."""
    plain = re.sub(r"[^A-Z0-9]+", "_", name.upper()).strip("_") or "VALUE"
    number, identifier = 1, plain
    while identifier in taken:
        number += 1
        identifier = f"{plain}_{number}"
    return identifier


def _attribute(document: Document, columns: _CompiledColumns) -> Struct:
    kind = _kind(document)
    attribute = vehicle.read_attribute(document, 0)
    if kind == "within":
        reader, detail, column = "within", _within(document, columns), 0
    else:
        reader, detail, labels = _READERS[kind](document, attribute)
        column = columns.number_of(document, reader, labels)
    return Struct(
        "fedldp_attribute",
        {
            "read": Name(f"fedldp_read_{reader}"),
            "detail": Pointer(detail, reader),
            "size": attribute.size,
            "categories": attribute.categories,
            "column": column,
            "rounds": int(attribute.rounds),
        },
    )


def _kind(document: Document) -> str:
    """Return the kind of attribute that has exactly these entries, if C can read it."""
    names = document.keys() - DECLARATIONS
    for kind in ("within", *_READERS):
        if vehicle.ENTRIES[kind].keys() == names:
            return kind
    given = ", ".join(map(repr, sorted(names - {"name"})))
    raise DomainError(f"the vehicle in C has no attribute with the entries {given}")


def _within(document: Document, columns: _CompiledColumns) -> Struct:
    pair = {name: _attribute(document[name], columns) for name in ("of", "groups")}
    entries = {name: Pointer(attribute, name) for name, attribute in pair.items()}
    return Struct("fedldp_within", entries)


Reader = tuple[str, Struct, Sequence[str]]
"""The name of a reader, what it needs, and the labels whose codes a row may give."""


def _number(document: Document, attribute: vehicle.Attribute) -> Reader:
    missing = _bits(attribute.missing)
    return "number", Struct("fedldp_number", {**_middle(document), "missing": missing}), ()


def _middle(document: Document) -> Document:
    low, high = document["low"], document["high"]
    return {"minus_middle": _bits(-(low / 2 + high / 2)), "scale": _bits(2 / (high - low))}


def _vector(document: Document, attribute: vehicle.Attribute) -> Reader:
    scale, missing = _bits(1 / document["length"]), _bits(attribute.missing)
    entries = {"minus_middle": 0, "scale": scale, "missing": missing}
    return "vector", Struct("fedldp_number", entries), ()


def _grid(document: Document, _: vehicle.Attribute) -> Reader:
    grid = document["grid"]
    ends = {"last": _bits(float(grid - 1)), "missing": _bits(float(grid))}
    return "grid", Struct("fedldp_grid", _middle(document) | ends), ()


def _whole(document: Document, _: vehicle.Attribute) -> Reader:
    count = document["last"] - document["first"] + 1
    return "whole", Struct("fedldp_whole", {"first": document["first"], "count": count}), ()


def _hashed(document: Document, _: vehicle.Attribute) -> Reader:
    salt = document["salt"].encode()
    entries = {"salt": salt, "salt_bytes": len(salt), "buckets": document["buckets"]}
    return "hashed", Struct("fedldp_hashed", entries), ()


def _category(document: Document, attribute: vehicle.Attribute) -> Reader:
    labels = list(document["categories"])
    missing = unknown = int(attribute.missing)
    if "optional" in document:
        labels += [label for label in (vehicle.OTHER, vehicle.MISSING) if label not in labels]
        unknown = labels.index(vehicle.OTHER)
    texts = [text.encode() for text in labels]
    entries = [Struct("fedldp_label", {"bytes": text, "length": len(text)}) for text in texts]
    listed = _pointer("fedldp_label", entries, "labels")
    numbers = {"labels": listed, "count": len(labels), "unknown": unknown, "missing": missing}
    return "category", Struct("fedldp_category", numbers), labels


def _angle(document: Document, attribute: vehicle.Attribute) -> Reader:
    period, bins = document["period"], document["bins"]
    edges = [period * (i / bins) for i in range(1, bins)]
    return "angle", _of_edges(edges, period, attribute), ()


def _bins(document: Document, attribute: vehicle.Attribute) -> Reader:
    return "bins", _of_edges(document["edges"][1:-1], 0.0, attribute), ()


def _of_edges(edges: Sequence[float], period: float, attribute: vehicle.Attribute) -> Struct:
    numbers = {
        "edges": _pointer("uint64_t", list(map(_bits, edges)), "edges"),
        "period": _bits(period),
        "count": len(edges) + 1,
        "missing": int(attribute.missing),
    }
    return Struct("fedldp_bins", numbers)


_READERS: dict[str, Callable[[Document, vehicle.Attribute], Reader]] = {  # by kind in ENTRIES
    "number": _number,
    "vector": _vector,
    "optional number": _grid,
    "category": _category,
    "optional category": _category,
    "bins": _bins,
    "optional bins": _bins,
    "angle": _angle,
    "optional angle": _angle,
    "whole numbers": _whole,
    "hashed category": _hashed,
}


# Tables and parts.


def _table(document: Document) -> Struct:
    kind = document["kind"]
    if kind not in _TABLES:
        raise DomainError(f"the vehicle in C has no table of the kind {kind!r}")
    categories, bits, detail = _TABLES[kind](document)
    return Struct(
        "fedldp_table",
        {
            "coder": Name(f"&fedldp_{kind}_coder"),
            "detail": Pointer(detail, kind),
            "epsilon": epsilon_limbs(Fraction(document["epsilon"])),
            "categories": categories,
            "bits": bits,
        },
    )


def _numbers(document: Document) -> tuple[int, int, Struct]:
    counts = [[int(count) for count in row] for row in document["counts"]]
    letters = [float(letter) for letter in document["letters"]]
    rows = [vehicle.alias_row(row) for row in counts]
    slopes = [1 / (high - low) for low, high in pairwise(letters)]
    is_even = vehicle.is_even(letters)
    numbers = {
        "letters": None if is_even else _pointer("uint64_t", list(map(_bits, letters)), "letters"),
        "slopes": None if is_even else _pointer("uint64_t", list(map(_bits, slopes)), "slopes"),
        "thresholds": _pointer("uint64_t", [x for row in rows for x in row[0]], "thresholds"),
        "others": _pointer("uint16_t", [x for row in rows for x in row[1]], "others"),
        "half": _bits((len(letters) - 1) / 2),
        "rows": len(letters),
        "outputs": len(counts[0]),
    }
    return 0, vehicle.column_bits(len(counts[0])), Struct("fedldp_numbers", numbers)


def _integers(document: Document, *names: str) -> Document:
    return {name: int(document[name]) for name in names}


def _response(document: Document) -> tuple[int, int, Struct]:
    a = document["categories"]
    odds = Struct("fedldp_response", _integers(document, "same", "other"))
    return a, vehicle.column_bits(a), odds


def _unary(document: Document) -> tuple[int, int, Struct]:
    a = document["categories"]
    return a, a, Struct("fedldp_unary", _integers(document, "total", "absent"))


def _lines(document: Document) -> tuple[int, int, Struct]:
    lines = vehicle.Lines(*(int(document[name]) for name in vehicle.Lines._fields))
    bits = vehicle.column_bits(lines.directions * lines.base)
    numbers = _integers(document, "same", "other", "base", "digits")
    return lines.categories, bits, Struct("fedldp_lines", numbers)


_TABLES: dict[str, Callable[[Document], tuple[int, int, Struct]]] = {
    "numbers": _numbers,
    "response": _response,
    "unary": _unary,
    "lines": _lines,
}


def _coordinates(document: Document, schema: Sequence[Document]) -> int:
    """Return how many coordinates a part has."""
    return sum(schema[number].get("size", 1) for number in document["attributes"])


def _part(document: Document, schema: Sequence[Document]) -> tuple[Struct, int]:
    """Return a part, and how many words of 64 bits drawing it needs."""
    kind = document["kind"]
    if kind not in _PARTS:
        raise DomainError(f"the vehicle in C has no part of the kind {kind!r}")
    detail, words = _PARTS[kind](document, _coordinates(document, schema))
    part = Struct(
        "fedldp_part",
        {
            "strategy": Name(f"&fedldp_{kind}_strategy"),
            "detail": Pointer(detail, kind),
            "attributes": _pointer("uint16_t", document["attributes"], "part_attributes"),
            "count": len(document["attributes"]),
        },
    )
    return part, words


def _sample(document: Document, d: int) -> tuple[Struct, int]:
    tables, k = _pointer("uint16_t", document["tables"], "part_tables"), document["k"]
    return Struct("fedldp_sample", {"tables": tables, "k": k}), k if k < d else 0


def _directions(document: Document, _: int) -> tuple[Struct, int]:
    names = ("high", "low", "null", "null_input", "key", "directions", "best", "seed_bits")
    epsilon = epsilon_limbs(Fraction(document["epsilon"]))
    numbers = {"epsilon": epsilon, **_integers(document, *names)}
    return Struct("fedldp_directions", numbers), (int(document["directions"]) + 1) // 4 * 3


def _cube(document: Document, d: int) -> tuple[Struct, int]:
    heavy, light = int(document["heavy"]), int(document["light"])
    threshold = document["threshold"]
    n = vehicle.agreement_odds(d, threshold, heavy, light)[-1]
    bits = n.bit_length() + vehicle.WORD
    detail = Struct(
        "fedldp_cube",
        {
            "epsilon": epsilon_limbs(Fraction(document["epsilon"])),
            "heavy": _limbs(heavy, 4),
            "light": _limbs(light, 4),
            "share": _limbs((1 << bits) // n, 3),
            "bits": bits,
            "threshold": threshold,
        },
    )
    return detail, d


_PARTS: dict[str, Callable[[Document, int], tuple[Struct, int]]] = {
    "sample": _sample,
    "cube": _cube,
    "directions": _directions,
}


# C.

_WIDTHS = {"uint8_t": 1, "uint16_t": 2, "uint32_t": 4, "uint64_t": 8}
_LONG = {  # entries of structures that have 64 bits
    "fedldp_number": {"minus_middle", "scale", "missing"},
    "fedldp_grid": {"minus_middle", "scale", "last", "missing"},
    "fedldp_whole": {"first"},
    "fedldp_bins": {"period"},
    "fedldp_numbers": {"half"},
    "fedldp_response": {"same", "other"},
    "fedldp_unary": {"total", "absent"},
    "fedldp_lines": {"same", "other"},
    "fedldp_directions": {"high", "low", "null", "null_input", "key"},
}


def _entry_bytes(kind: str, name: str, value: Value) -> int:
    if isinstance(value, Struct | Array):
        return _size(value)
    return 8 if name in _LONG.get(kind, ()) else 4


def _size(constant: Struct | Array) -> int:
    """Return the bytes of a constant on a processor of 32 bits, without what it points to."""
    if isinstance(constant, Array):
        if constant.type in _WIDTHS:
            return _WIDTHS[constant.type] * len(constant.values)
        return sum(map(_size, constant.values))
    entries = constant.entries.items()
    size = sum(_entry_bytes(constant.type, name, value) for name, value in entries)
    texts = sum(len(value) + 1 for _, value in entries if isinstance(value, bytes))
    whole = 8 if constant.type in _LONG else 4
    return -(-size // whole) * whole + texts


def _targets(value: Value) -> list[Struct | Array]:
    """Return all constants that a constant points to."""
    if isinstance(value, Pointer):
        return [*_targets(value.target), value.target]
    if isinstance(value, Struct):
        return [target for entry in value.entries.values() for target in _targets(entry)]
    if isinstance(value, Array) and value.type not in _WIDTHS:
        return [target for entry in value.values for target in _targets(entry)]
    return []


def _in_hexadecimal(text: bytes) -> str:
    """Return a text in C: whatever is not plain ASCII in octal, which ends after three digits."""
    plain = b'"\\?'
    return "".join(
        chr(byte) if 32 <= byte < 127 and byte not in plain else f"\\{byte:03o}" for byte in text
    )


class _Writer:
    """Constants in C, each after those that it points to."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: list[str] = []
        self._count: dict[str, int] = {}

    def value(self, value: Value) -> str:
        if isinstance(value, Pointer):
            return self.address(value)
        if isinstance(value, Struct):
            entries = (f".{name} = {self.value(entry)}" for name, entry in value.entries.items())
            return f"{{{', '.join(entries)}}}"
        if isinstance(value, Array):
            return self.values(value)
        return _scalar(value)

    def values(self, array: Array) -> str:
        """Return the values of an array: several in each line if they are numbers."""
        texts = [self.value(value) for value in array.values]
        if len(texts) <= 4 and array.type in _WIDTHS:
            return f"{{{', '.join(texts)}}}"
        step = {"uint8_t": 16, "uint16_t": 12, "uint32_t": 8, "uint64_t": 4}.get(array.type, 1)
        rows = (", ".join(texts[i : i + step]) for i in range(0, len(texts), step))
        return "{\n  " + ",\n  ".join(rows) + "}"

    def address(self, pointer: Pointer) -> str:
        """Write the target of a pointer, and return its address."""
        target = pointer.target
        written = self.value(target)
        number = self._count[pointer.name] = self._count.get(pointer.name, 0) + 1
        name = f"{self.name}_{pointer.name}_{number}"
        size = f"[{len(target.values)}]" if isinstance(target, Array) else ""
        self.lines.append(f"static const {target.type} {name}{size} = {written};")
        return name if size else f"&{name}"


def _scalar(value: Value) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, Name):
        return value.name
    if isinstance(value, bytes):
        return f'"{_in_hexadecimal(value)}"'
    if value < 0:
        return f"-INT64_C({-value})" if value < -(1 << 31) else str(value)
    return f"UINT64_C(0x{value:X})" if value >= 1 << 32 else f"{value}u"


def _enumerations(columns: Sequence[Column], prefix: str) -> list[str]:
    """Return the names of columns, and of the codes of listed labels."""
    names = [f"{prefix}_{column.identifier}" for column in columns]
    lines = [f"enum {{ {', '.join([*names, f'{prefix}_COLUMNS'])} }};"]
    taken = {*names, *(f"{prefix}_{name}" for name in _MACROS)}
    for column, name in zip(columns, names, strict=True):
        if not 0 < len(column.labels) <= MOST_LISTED_CODES:
            continue
        codes = []
        for label in column.labels:
            codes.append(_identifier(f"{name}_{label}", taken))
            taken.add(codes[-1])
        lines.append(f"enum {{ {', '.join(codes)} }};")
    return lines


_MACROS = ("COLUMNS", "BITS", "ANSWERS", "SCRATCH_WORDS", "REPORT_BYTES", "RECORD_BYTES", "CAP")


def _header(compiled: CompiledPlan, name: str) -> str:
    """Return the file that a program includes once."""
    if re.fullmatch(r"[a-z][a-z0-9_]{0,30}", name) is None:
        raise DomainError(
            f"the name of a plan in C has up to 31 small letters, digits and _; got {name!r}"
        )
    plan, prefix = compiled.plan.entries, name.upper()
    writer = _Writer(name)
    written = writer.value(compiled.plan).replace(", .", ",\n  .")
    epsilon = _epsilon_of(plan["epsilon"])
    fingerprint = bytes(plan["question"].values).hex()
    cap = _limbs(int(compiled.cap * EPSILON_UNIT), 3).values
    names = (f'"{_in_hexadecimal(column.name.encode())}"' for column in compiled.columns)
    lines = [
        f"/* A plan of which each report costs {float(epsilon)}: {epsilon}.",
        "Written by `fedldp compile`; do not edit it. Its fingerprint is",
        f"{fingerprint}. */",
        "",
        f"#ifndef {prefix}_PLAN_H",
        f"#define {prefix}_PLAN_H",
        "",
        '#include "fedldp.h"',
        "",
        "/* The values of a row, and the codes of listed labels. */",
        *_enumerations(compiled.columns, prefix),
        "",
        f"#define {prefix}_BITS {plan['bits']}u",
        f"#define {prefix}_ANSWERS {plan['answers']}u",
        f"#define {prefix}_SCRATCH_WORDS {plan['scratch']}u",
        f"#define {prefix}_REPORT_BYTES FEDLDP_REPORT_BYTES({prefix}_BITS)",
        f"#define {prefix}_RECORD_BYTES FEDLDP_RECORD_BYTES({prefix}_BITS, {prefix}_ANSWERS)",
        f"#define {prefix}_CAP {{{{{', '.join(f'{limb}u' for limb in cap)}}}}}",
        "",
        *writer.lines,
        "",
        f"static const char *const {name}_names[] = {{{', '.join(names)}}};",
        "",
        f"static const fedldp_plan {name} = {written};",
        "",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def _epsilon_of(limbs: Struct) -> Fraction:
    """Return an epsilon from its limbs."""
    values = limbs.entries["limbs"].values
    return Fraction(sum(limb << 32 * i for i, limb in enumerate(values)), EPSILON_UNIT)
