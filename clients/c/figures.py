"""Measure what the vehicle in C needs, and write the tables of README.md.

python clients/c/figures.py clients/c/README.md

Sizes are those of a program that checks a plan and draws a report, beyond those of an empty one.
Memory is the row, the report, the working memory and the largest stack. Instructions are counted
by QEMU, beside CPU times on this computer in one run. The counts of tests come from `make
test-c-full`, which must have run before.
"""

import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill

from fedldp.plan.strategies import Sample

sys.path.insert(0, str(Path(__file__).parent / "tests/helpers"))

import numpy as np
from c_vehicle import CORE, FOLDER, STRICT, VECTORS
from full_figures import kept
from random_plans import EdgeTape
from targets import PROGRAM, TARGETS, TESTS, Case, Target, traces, write_cases

import fedldp
from fedldp import vehicle
from fedldp.plan.compiled import CompiledPlan, compile_plan

BEGIN, END = "<!-- Written by figures.py: -->", "<!-- until here. -->"
PROCESSORS = {"Cortex-M0+": "cortex-m0", "Cortex-M3": "cortex-m3", "Cortex-M4": "cortex-m4"}
FLAGS = {"Cortex-M0+": "-mcpu=cortex-m0plus"}
ROUNDS = 5
WIDTH = 100
TOTALS = ("plans", "rows_at_edges", "library_plans", "power_cuts", "executions", "cpu_seconds")


def plans() -> dict[str, fedldp.Plan]:
    """Return typical plans by what they ask."""
    numbers = {f"x{i}": (0, 1) for i in range(16)}
    cities = [f"city {i}" for i in range(40)]
    speed = fedldp.Schema.of(speed=(0, 130))
    return {
        "a number in one bit": fedldp.Plan(speed, 1, Sample(mechanism="duchi")),
        "1 of 16 numbers, `hm-tp` with 31 outputs": fedldp.Plan(
            fedldp.Schema.of(**numbers), 4, Sample(mechanism="hm-tp", outputs=31)
        ),
        "a label of 40": fedldp.Plan(fedldp.Schema.of(city=cities), epsilon=2),
        "a cube of 16 signs": fedldp.Plan(fedldp.Schema.of(**numbers), 2, "cube"),
        "directions of 36 numbers": fedldp.Plan(
            fedldp.Schema.vector(36, length=1.0), epsilon=2, strategy="directions"
        ),
    }


@dataclass(frozen=True)
class Need:
    """What a plan needs on a processor, in bytes and instructions."""

    code: int
    constants: int
    memory: int
    instructions: int

    @property
    def flash(self) -> int:
        """Code and constants."""
        return self.code + self.constants


def target_of(processor: str) -> Target:
    """Return the target of a processor, with the options for exactly this one."""
    target = TARGETS[PROCESSORS[processor]]
    flag = FLAGS.get(processor)
    options = tuple(
        flag if flag and option.startswith("-mcpu") else option for option in target.options
    )
    return Target(target.name, target.compiler, target.package, target.runner, options, target.bare)


def sizes(target: Target, folder: Path, *options: str) -> tuple[int, int]:
    """Return the bytes of code and of constants of size.c."""
    sources = [TESTS / "size.c", *CORE, FOLDER / "fedldp_flash.c"]
    program = target.build(folder, sources, "-Os", *options)
    command = [f"{target.compiler.removesuffix('gcc')}size", "-A", str(program)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [line.split() for line in listed.splitlines() if line.startswith(".")]
    sections = {name: int(size) for name, size, _ in lines}
    return sections[".text"], sections.get(".rodata", 0) + sections.get(".data", 0)


def row_bytes(compiled: CompiledPlan) -> int:
    """Return the bytes of a row in memory, with its texts and vectors."""
    texts = sum(65 for column in compiled.columns if column.reader in ("category", "hashed"))
    numbers = sum(8 * column.size for column in compiled.columns if column.size > 1)
    return 32 * len(compiled.columns) + texts + numbers


def case_of(name: str, plan: fedldp.Plan) -> Case:
    """Return a report of a plan for a row without values."""
    tape, text = EdgeTape(1), plan.to_json()
    report = vehicle.Plan(text, "99").report({}, tape)
    return Case(name, text, {}, bytes(tape.data), report)


def need_of(plan: fedldp.Plan, processor: str, folder: Path, plugin: Path) -> Need:
    """Measure a plan on a processor."""
    compiled, target = compile_plan(plan.to_json(), "99"), target_of(processor)
    (folder / "plan.h").write_text(compiled.to_header(), "ascii")
    code, constants = sizes(target, folder, "-DPLAN")
    empty_code, empty_constants = sizes(target, folder)
    write_cases(folder, [case_of("plan", plan)])
    printed = target.run(target.build(folder, PROGRAM, "-Os", "-DSTACK"))
    [stack] = [line.split()[1:] for line in printed.splitlines() if line.startswith("stack")]
    traced = traces(target, target.build(folder, PROGRAM, "-Os"), plugin)
    entries = compiled.plan.entries
    report = vehicle.HEADER_BYTES + -(-entries["bits"] // 8)
    memory = row_bytes(compiled) + 8 * entries["scratch"] + report + max(map(int, stack))
    return Need(
        code=code - empty_code,
        constants=constants - empty_constants,
        memory=memory,
        instructions=int(traced[0][0]),
    )


def ledger_bytes(processor: str, folder: Path) -> int:
    """Return the flash that answers through a ledger in flash need beyond check and draw."""
    target = target_of(processor)
    return sum(sizes(target, folder, "-DPLAN", "-DANSWER")) - sum(sizes(target, folder, "-DPLAN"))


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the least CPU time of some rounds, with child processes."""
    times = []
    for _ in range(ROUNDS):
        before = _cpu_seconds()
        work()
        times.append(_cpu_seconds() - before)
    return min(times)


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def microseconds(plan: fedldp.Plan, folder: Path) -> tuple[float, float, float]:
    """Return CPU times of a report: in C, by `vehicle.py`, and by the library for many rows."""
    text, draws, rows = plan.to_json(), 100_000, 20_000
    (folder / "plan.h").write_text(compile_plan(text, "99").to_header(), "ascii")
    program = folder / "speed"
    sources = [TESTS / "speed.c", *CORE, FOLDER / "fedldp_linux.c"]
    command = ["gcc", *STRICT, "-O2", f"-I{folder}", "-o", str(program), *map(str, sources)]
    subprocess.run(command, check=True)
    in_c = cpu_seconds(lambda: subprocess.run([str(program), str(draws)], check=True)) / draws
    python, row = vehicle.Plan(text, "99"), {}
    few = 1000
    in_python = cpu_seconds(lambda: [python.report(row) for _ in range(few)]) / few
    columns = {attribute.name: column_of(attribute, rows) for attribute in plan.schema.attributes}
    in_library = cpu_seconds(lambda: plan.report(columns, fedldp.source())) / rows
    return in_c * 1e6, in_python * 1e6, in_library * 1e6


def column_of(attribute: object, rows: int) -> object:
    """Return a column of some values."""
    if hasattr(attribute, "categories"):
        return [attribute.categories[i % len(attribute.categories)] for i in range(rows)]
    size = attribute.size
    return np.full((rows, size) if size > 1 else rows, 0.1)


def table(head: list[str], rows: list[list[object]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    texts = [[f"{x:,}" if isinstance(x, int) else str(x) for x in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in texts)


def needs_text(folder: Path) -> str:
    """Return the table of flash, memory and instructions."""
    plugin = folder / "trace.so"
    command = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(plugin), str(TESTS / "trace_plugin.c")]
    subprocess.run(command, check=True)
    rows: list[list[object]] = []
    for name, plan in plans().items():
        for processor in PROCESSORS:
            need = need_of(plan, processor, folder, plugin)
            numbers = [need.code, need.constants, need.memory, need.instructions]
            rows.append([name, processor, *numbers])
            name = ""
    head = ["plan", "processor", "code", "constants", "RAM", "instructions"]
    ledgers = [f"{ledger_bytes(processor, folder):,}" for processor in PROCESSORS]
    compiler = [TARGETS["cortex-m3"].compiler, "-dumpversion"]
    version = subprocess.run(compiler, capture_output=True, text=True, check=True).stdout.strip()
    said = (
        f"Bytes with gcc {version} at -Os, and instructions (not cycles) of a report. RAM is the "
        "row, the report, working memory and the stack. A ledger in flash takes "
        f"{', '.join(ledgers)} bytes "
        "of flash more, and RAM for its record."
    )
    return f"{fill(said, WIDTH)}\n\n{table(head, rows)}"


def speeds_text(folder: Path) -> str:
    """Return the table of CPU times."""
    rows: list[list[object]] = []
    for name, plan in plans().items():
        in_c, python, library = microseconds(plan, folder)
        rows.append([name, f"{in_c:.1f}", f"{python / in_c:.1f}", f"{library / in_c:.2f}"])
    head = ["plan", "µs in C", "`vehicle.py`, times that", "library, times that"]
    said = (
        "CPU time of a report on x86-64, with random bytes of the kernel in C and in `vehicle.py`. "
        "The library draws for 20,000 rows at once."
    )
    return f"{fill(said, WIDTH)}\n\n{table(head, rows)}"


def tests_text() -> str:
    """Return what the full tests have compared."""
    found = list(kept().values())
    totals = {name: sum(entry.get(name, 0) for entry in found) for name in TOTALS}
    missing = [name for name, total in totals.items() if not total]
    if missing:
        sys.exit(f"no {missing[0]} yet: make test-c-full")
    vectors = sum(len(case["answers"]) for case in VECTORS["cases"])
    said = (
        f"All {vectors} vectors are drawn on x86-64, Cortex-M0, M3 and M4, AArch64, RISC-V, s390x "
        f"and WebAssembly. `make test-c-full` has compared {totals['plans']:,} random plans and "
        f"rows and {totals['rows_at_edges']:,} rows at rounding boundaries with `vehicle.py`, "
        f"checked {totals['library_plans']:,} plans of the library, cut the power "
        f"{totals['power_cuts']:,} times, and fuzzed {totals['executions']:,} inputs in "
        f"{totals['cpu_seconds']} CPU seconds."
    )
    return fill(said, WIDTH)


def main(path: Path) -> None:
    """Write the figures between the marks of a file."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = [needs_text(folder), speeds_text(folder), tests_text()]
    before, rest = path.read_text("utf-8").split(BEGIN)
    _, after = rest.split(END)
    path.write_text("\n\n".join([f"{before}{BEGIN}", *texts, f"{END}{after}"]), "utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
