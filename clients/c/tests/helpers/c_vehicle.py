"""The vehicle in C as a shared library, and rows and plans in the form that it reads."""

import ctypes
import json
import os
import subprocess
import tempfile
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char,
    c_double,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from functools import cache
from math import nan
from pathlib import Path

from fedldp import vehicle
from fedldp.plan import compiled

FOLDER = Path(__file__).parents[2]
ROOT = FOLDER.parents[1]
VECTORS = json.loads((ROOT / "docs/vectors.json").read_text("utf-8"))
CORE = [
    FOLDER / f"fedldp{name}.c" for name in ("", "_read", "_directions", "_answer", "_quantiles")
]
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-Wconversion", "-Wsign-conversion"]
STRICT += ["-pedantic", "-ffp-contract=off", f"-I{FOLDER}"]

MISSING, UNREADABLE, NUMBER, CODE, TEXT, VECTOR = range(6)
OK, REFUSED, EXPENSIVE, LIMIT, NO_RANDOM, NO_LEDGER, OLD, SILENT = range(8)
TEXT_BYTES = 64
COVERAGE = "FEDLDP_C_COVERAGE"

Random = CFUNCTYPE(c_int, c_void_p, POINTER(c_uint8), c_size_t)


def structure(name, **entries):
    """Return a structure of C with these entries."""
    return type(name, (Structure,), {"_fields_": list(entries.items())})


Text = structure("fedldp_text", length=c_uint8, bytes=c_uint8 * TEXT_BYTES)
Epsilon = structure("fedldp_epsilon", limbs=c_uint32 * 3)
RowValue = structure(
    "fedldp_value",
    kind=c_uint32,
    code=c_uint32,
    count=c_uint32,
    number=c_double,
    text=POINTER(Text),
    numbers=POINTER(c_double),
)

STRUCTURES = {
    each.__name__: each
    for each in (
        Epsilon,
        structure("fedldp_number", minus_middle=c_uint64, scale=c_uint64, missing=c_uint64),
        structure(
            "fedldp_grid", minus_middle=c_uint64, scale=c_uint64, last=c_uint64, missing=c_uint64
        ),
        structure("fedldp_label", bytes=c_void_p, length=c_uint32),
        structure(
            "fedldp_category", labels=c_void_p, count=c_uint32, unknown=c_uint32, missing=c_uint32
        ),
        structure("fedldp_whole", first=c_int64, count=c_uint32),
        structure("fedldp_hashed", salt=c_void_p, salt_bytes=c_uint32, buckets=c_uint32),
        structure("fedldp_bins", edges=c_void_p, period=c_uint64, count=c_uint32, missing=c_uint32),
        structure("fedldp_within", of=c_void_p, groups=c_void_p),
        structure(
            "fedldp_attribute",
            read=c_void_p,
            detail=c_void_p,
            size=c_uint32,
            categories=c_uint32,
            column=c_uint32,
            rounds=c_uint32,
        ),
        structure(
            "fedldp_table",
            coder=c_void_p,
            detail=c_void_p,
            epsilon=Epsilon,
            categories=c_uint32,
            bits=c_uint32,
        ),
        structure(
            "fedldp_numbers",
            letters=c_void_p,
            slopes=c_void_p,
            thresholds=c_void_p,
            others=c_void_p,
            half=c_uint64,
            rows=c_uint32,
            outputs=c_uint32,
        ),
        structure("fedldp_response", same=c_uint64, other=c_uint64),
        structure("fedldp_unary", total=c_uint64, absent=c_uint64),
        structure("fedldp_lines", same=c_uint64, other=c_uint64, base=c_uint32, digits=c_uint32),
        structure(
            "fedldp_part", strategy=c_void_p, detail=c_void_p, attributes=c_void_p, count=c_uint32
        ),
        structure("fedldp_sample", tables=c_void_p, k=c_uint32),
        structure(
            "fedldp_cube",
            epsilon=Epsilon,
            heavy=c_uint32 * 4,
            light=c_uint32 * 4,
            share=c_uint32 * 3,
            bits=c_uint32,
            threshold=c_int32,
        ),
        structure(
            "fedldp_directions",
            epsilon=Epsilon,
            high=c_uint64,
            low=c_uint64,
            null=c_uint64,
            null_input=c_uint64,
            key=c_uint64,
            directions=c_uint32,
            best=c_uint32,
            seed_bits=c_uint32,
        ),
        structure(
            "fedldp_plan",
            fingerprint=c_uint8 * 32,
            question=c_uint8 * 32,
            epsilon=Epsilon,
            attributes=c_void_p,
            tables=c_void_p,
            parts=c_void_p,
            attribute_count=c_uint32,
            table_count=c_uint32,
            part_count=c_uint32,
            bits=c_uint32,
            scratch=c_uint32,
            constant=c_uint32,
            periods=c_uint32,
            answers=c_uint32,
        ),
    )
}
WIDTHS = {"uint8_t": c_uint8, "uint16_t": c_uint16, "uint32_t": c_uint32, "uint64_t": c_uint64}


def built(output, sources, *options, compiler="gcc"):
    """Compile sources with strict warnings, and return the output.

    If a folder for coverage is given by the environment, the code counts there what is executed.
    """
    counted = []
    if COVERAGE in os.environ:
        folder = tempfile.mkdtemp(dir=os.environ[COVERAGE])
        counted = ["--coverage", "-O0", "-fprofile-abs-path", "-dumpdir", f"{folder}/"]
    command = [compiler, *STRICT, *options, *counted, "-o", str(output), *map(str, sources)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return output


@cache
def library(folder, *options):
    """Return the core as a shared library."""
    path = built(Path(folder) / "libfedldp.so", CORE, "-O2", "-shared", "-fPIC", *options)
    return ctypes.CDLL(str(path))


class Constants:
    """The constants of a plan in memory."""

    def __init__(self, core, plan):
        self._core = core
        self._kept = []
        self.plan = self.value(plan)

    def value(self, value):
        """Return a value as ctypes wants it: nested structures by value, others by address."""
        if isinstance(value, compiled.Pointer):
            target = self.value(value.target)
            self._kept.append(target)
            return ctypes.addressof(target)
        if isinstance(value, compiled.Struct):
            kind = STRUCTURES[value.type]
            entries = {name: self.value(entry) for name, entry in value.entries.items()}
            assert list(entries) == [name for name, _ in kind._fields_]  # C++ wants their order
            made = kind(**entries)
            for name, entry in entries.items():
                if isinstance(entry, int) and getattr(made, name) != entry:
                    raise OverflowError(f"{name} does not hold {entry}")
            return made
        if isinstance(value, compiled.Array):
            kind = WIDTHS.get(value.type) or STRUCTURES[value.type]
            return (kind * len(value.values))(*map(self.value, value.values))
        if isinstance(value, compiled.Name):
            return ctypes.addressof(c_char.in_dll(self._core, value.name.removeprefix("&")))
        if isinstance(value, bytes):
            self._kept.append(ctypes.create_string_buffer(value))
            return ctypes.addressof(self._kept[-1])
        return value


def epsilon_of(number):
    """Return an epsilon as C reads it."""
    units = int(vehicle.exact(number) * compiled.EPSILON_UNIT)
    return Epsilon((c_uint32 * 3)(*(units >> 32 * i & 0xFFFFFFFF for i in range(3))))


class Row:
    """A row in the form of C."""

    def __init__(self, columns, row):
        self.values = (RowValue * len(columns))()
        self._kept = []
        for value, column in zip(self.values, columns, strict=True):
            self._fill(value, column, row)

    def _fill(self, value, column, row):
        for name, entry in cell(column, row.get(column.name)).items():
            setattr(value, name, entry)
        text = cell_text(column, row.get(column.name))
        kept = Text(len(text), (c_uint8 * TEXT_BYTES)(*text))
        numbers = cell_numbers(column, row.get(column.name))
        array = (c_double * len(numbers))(*numbers)
        value.text, value.numbers = ctypes.pointer(kept), array
        self._kept += [kept, array]


def bytes_of(thrown):
    """Return the random bytes of a vector."""
    texts = (entry.get("word") or entry.get("rounding") or entry["drawn"] for entry in thrown)
    return bytes.fromhex("".join(texts))


def number_in(value):
    """Return a value as a double, or NaN if it is not a number."""
    try:
        return vehicle.float_of(value)
    except (ValueError, TypeError):
        return nan


def label_in(value):
    """Return a label in UTF-8, or no bytes if it is missing, or too long for the vehicle in C."""
    try:
        text = vehicle.label(value).encode()
    except ValueError:
        return b""
    return text if len(text) <= TEXT_BYTES else b""


def cell(column, value):
    """Return the kind and the number of a cell of a row."""
    if column.reader in ("category", "hashed"):
        return {"kind": TEXT if label_in(value) else MISSING}
    if column.size > 1:
        return {"kind": VECTOR, "count": column.size}
    if value is None or value == "":
        return {"kind": MISSING}
    number = number_in(value)
    if number != number:
        return {"kind": MISSING if isinstance(value, float) else UNREADABLE}
    return {"kind": NUMBER, "number": number}


def cell_text(column, value):
    """Return the label of a cell."""
    return label_in(value) if column.reader in ("category", "hashed") else b""


def cell_numbers(column, value):
    """Return the numbers of a vector, or none of them."""
    if column.size == 1:
        return []
    if isinstance(value, list | tuple) and len(value) == column.size:
        return [nan if number is None else number_in(number) for number in value]
    return [nan] * column.size


class Stream:
    """A random source that gives certain bytes, and fails when there are no more."""

    def __init__(self, data):
        self.data, self.position = data, 0
        self.callback = Random(self._give)

    def _give(self, context, target, count):
        chunk = self.data[self.position : self.position + count]
        self.position += count
        if len(chunk) < count:
            return 1
        ctypes.memmove(target, chunk, count)
        return 0


class CPlan:
    """A plan that the vehicle in C reads."""

    def __init__(self, core, constants, columns):
        self.core, self.columns = core, columns
        self._constants = Constants(core, constants)
        self.plan = self._constants.plan
        self._scratch = (c_uint64 * self.plan.scratch)()
        self._report = (c_uint8 * (16 + -(-self.plan.bits // 8)))()

    @classmethod
    def of(cls, core, text, cap="9999"):
        """Return a plan from its text, checked by Python."""
        found = compiled.compile_plan(text, cap)
        return cls(core, found.plan, found.columns)

    def check(self, cap="9999"):
        """Return what the device says of the plan."""
        most = epsilon_of(cap)
        return self.core.fedldp_check(ctypes.byref(self.plan), ctypes.byref(most))

    def draw(self, row, data):
        """Return the report for a row with certain random bytes, and how many were used."""
        return self.draw_values(Row(self.columns, row), data)

    def draw_values(self, values, data):
        """Return the report for a row that is in C already."""
        stream = Stream(data)
        status = self.core.fedldp_draw(
            ctypes.byref(self.plan),
            values.values,
            stream.callback,
            None,
            self._scratch,
            self._report,
        )
        return status, bytes(self._report), stream.position


class Tape:
    """The same bytes for `vehicle.py`: whole bytes, the most significant first."""

    def __init__(self, data):
        self.data, self.position = data, 0

    def getrandbits(self, bits):
        size = -(-bits // 8)
        chunk = self.data[self.position : self.position + size]
        assert len(chunk) == size
        self.position += size
        return int.from_bytes(chunk, "big") >> (8 * size - bits)
