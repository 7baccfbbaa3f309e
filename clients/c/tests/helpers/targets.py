"""Programs that draw reports on other processors, run by QEMU."""

import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from c_vehicle import CORE, FOLDER, STRICT, cell, cell_numbers, cell_text

from fedldp.plan.compiled import compile_plan

TESTS = FOLDER / "tests"


@dataclass(frozen=True)
class Target:
    """A processor: its compiler, what to install for it, and how to run a program."""

    name: str
    compiler: str
    package: str
    runner: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    bare: bool = False

    @property
    def missing(self):
        """Return what must be installed, or an empty text."""
        programs = [self.compiler, *self.runner[:1]]
        absent = [program for program in programs if shutil.which(program) is None]
        return f"{', '.join(absent)} not found: apt-get install {self.package}" if absent else ""

    @property
    def command(self):
        """Return how the compiler is called."""
        return (self.compiler, *self.options)

    def build(self, folder, sources, *options):
        """Compile a program and return its path."""
        program = Path(folder) / "program"
        command = [*self.command, *STRICT, *options, f"-I{folder}"]
        if self.bare:
            command += ["-nostartfiles", "--specs=nano.specs", f"-T{TESTS / 'cortex-m.ld'}"]
        command += ["-o", str(program), *map(str, sources)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return program

    def run(self, program, *options):
        """Run a program and return what it prints."""
        command = [*self.runner, *options]
        if self.bare:
            command += ["-kernel", str(program)]
        else:
            command.append(str(program))
        done = subprocess.run(command, capture_output=True, text=True, timeout=500)
        return done.stdout + done.stderr


class WebAssembly(Target):
    """WebAssembly, compiled by zig from PyPI and run by node."""

    @property
    def missing(self):
        """Return what must be installed, or an empty text."""
        if importlib.util.find_spec("ziglang") is None:
            return "zig not found: pip install --group wasm"
        return "" if shutil.which("node") else "node not found: apt-get install nodejs"

    @property
    def command(self):
        """Return how zig is called."""
        return (sys.executable, "-m", "ziglang", "cc", "-target", "wasm32-wasi")


def _cortex(name, machine, cpu, *options):
    runner = ("qemu-system-arm", "-M", machine, "-nographic", "-semihosting-config")
    runner += ("enable=on,target=native", "-monitor", "none", "-serial", "none")
    package = "gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm"
    flags = ("-mthumb", f"-mcpu={cpu}", "-ffunction-sections", "-fdata-sections", *options)
    return Target(name, "arm-none-eabi-gcc", package, runner, (*flags, "-Wl,--gc-sections"), True)


def _linux(name, triple, qemu, port):
    package = f"gcc-{triple} libc6-dev-{port}-cross qemu-user"
    return Target(name, f"{triple}-gcc", package, (qemu,), ("-static",))


TARGETS = {
    target.name: target
    for target in (
        Target("x86-64", "gcc", "gcc"),
        _cortex("cortex-m0", "microbit", "cortex-m0"),
        _cortex("cortex-m3", "lm3s6965evb", "cortex-m3"),
        _cortex("cortex-m4", "mps2-an386", "cortex-m4", "-mfloat-abi=soft"),
        _linux("aarch64", "aarch64-linux-gnu", "qemu-aarch64", "arm64"),
        _linux("riscv64", "riscv64-linux-gnu", "qemu-riscv64", "riscv64"),
        _linux("s390x", "s390x-linux-gnu", "qemu-s390x", "s390x"),
    )
}
WASM = WebAssembly("wasm", "zig", "nodejs", ("node", "--no-warnings", str(TESTS / "wasi.mjs")))
PROGRAM = [TESTS / "target.c", *CORE]


@dataclass(frozen=True)
class Case:
    """A row, random bytes, and the report that a plan gives for them."""

    name: str
    plan: str
    row: dict
    stream: bytes
    report: bytes


def c_number(number):
    """Return a double in C."""
    if number != number:
        return "NAN"
    if number in (float("inf"), -float("inf")):
        return "INFINITY" if number > 0 else "-INFINITY"
    return float(number).hex()


def octets(data):
    return ", ".join(map(str, data)) or "0"


def write_cases(folder, cases):
    """Write cases.h: plans, rows, random bytes and reports."""
    plans = {text: f"p{i}" for i, text in enumerate(dict.fromkeys(case.plan for case in cases))}
    compiled = {text: compile_plan(text, "9999") for text in plans}
    headers = []
    for text, name in plans.items():
        (Path(folder) / f"{name}.h").write_text(compiled[text].to_header(name), "ascii")
        headers.append(f'#include "{name}.h"')
    arrays, rows = [], []
    for i, case in enumerate(cases):
        columns = compiled[case.plan].columns
        cells = []
        for k, column in enumerate(columns):
            value = case.row.get(column.name)
            entry, text = cell(column, value), cell_text(column, value)
            numbers = cell_numbers(column, value)
            name = "NULL"
            if numbers:
                name = f"numbers_{i}_{k}"
                arrays.append(
                    f"static const double {name}[] = {{{', '.join(map(c_number, numbers))}}};"
                )
            number = c_number(entry.get("number", 0.0))
            text_name = "NULL"
            if text:
                text_name = f"text_{i}_{k}"
                arrays.append(f"static const uint8_t {text_name}[] = {{{octets(text)}}};")
            cells.append(
                f"{{{entry['kind']}, {len(numbers)}, {len(text)}, {number}, {text_name}, {name}}}"
            )
        arrays.append(f"static const test_cell cells_{i}[] = {{{', '.join(cells)}}};")
        arrays.append(f"static const uint8_t stream_{i}[] = {{{octets(case.stream)}}};")
        arrays.append(f"static const uint8_t report_{i}[] = {{{octets(case.report)}}};")
        rows.append(
            f'{{"{case.name}", &{plans[case.plan]}, {{cells_{i}, {len(columns)}}}, '
            f"stream_{i}, {len(case.stream)}, report_{i}}}"
        )
    most = {
        "COLUMNS": max(len(found.columns) for found in compiled.values()),
        "NUMBERS": max(
            1, *(sum(c.size for c in found.columns if c.size > 1) for found in compiled.values())
        ),
        "SCRATCH": max(found.plan.entries["scratch"] for found in compiled.values()),
        "REPORT": max(len(case.report) for case in cases),
        "STREAM": max(len(case.stream) for case in cases),
    }
    text = "\n".join(
        [
            "#include <math.h>",
            *headers,
            *(f"#define MOST_{name} {number}" for name, number in most.items()),
            "typedef struct test_cell {",
            "  uint32_t kind, count, text_length;",
            "  double number;",
            "  const uint8_t *text;",
            "  const double *numbers;",
            "} test_cell;",
            "typedef struct test_row { const test_cell *cells; uint32_t columns; } test_row;",
            "typedef struct test_case {",
            "  const char *name;",
            "  const fedldp_plan *plan;",
            "  test_row row;",
            "  const uint8_t *stream;",
            "  size_t stream_length;",
            "  const uint8_t *report;",
            "} test_case;",
            *arrays,
            f"#define CASES {len(cases)}u",
            f"static const test_case test_cases[] = {{\n{', '.join(rows)}}};",
            "",
        ]
    )
    (Path(folder) / "cases.h").write_text(text, "ascii")


def symbols(target, program):
    """Return the addresses of the markers of a program."""
    prefix = target.compiler.removesuffix("gcc")
    listed = subprocess.run(
        [f"{prefix}nm", str(program)], capture_output=True, text=True, check=True
    ).stdout
    found = {line.split()[2]: int(line.split()[0], 16) for line in listed.splitlines() if line}
    clear = ~1 if target.bare else -1  # the last bit of an address in Thumb code
    return found["trace_begin"] & clear, found["trace_end"] & clear


def traces(target, program, plugin):
    """Return for each draw its instructions, and hashes of their addresses and of their data's."""
    begin, end = symbols(target, program)
    runner = target.runner or ("qemu-x86_64",)
    argument = f"{plugin},begin={begin:#x},end={end:#x}"
    command = [*runner, "-plugin", argument, "-d", "plugin"]
    command += ["-kernel", str(program)] if target.bare else [str(program)]
    environment = {"PATH": os.environ["PATH"]}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=500)
    lines = [line.split() for line in (done.stderr + done.stdout).splitlines()]
    return [tuple(words[1:]) for words in lines if words[:1] == ["trace"]]
