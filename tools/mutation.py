"""Change the code in small ways, one at a time, and list the changes that no test notices.

`make mutation` runs the areas of tools/mutation.toml: each names modules and the tests that should
notice a change to them. `make mutation MUTATE='--area report'` runs one area. Cosmic Ray makes the
changes; this script chooses a sample of them and runs the tests, and works in copies of the
checkout, so that the checkout itself never holds a changed file.

The sample is fixed. A change is named by what it changes (the function, the line and the place in
it), not by where the line stands, and the changes whose names have the smallest hashes are made:
code that stays the same, or moves to another file, meets the same changes.
"""

import argparse
import ast
import hashlib
import json
import multiprocessing
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import hypothesis  # noqa: F401
import pytest
import scipy.stats  # noqa: F401  large libraries, loaded once for all processes that run tests
from cosmic_ray.commands.init import init
from cosmic_ray.mutating import use_mutation
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec

# These raise a TypeError on floats, or are only found by a type checker: any test notices them.
_TRIVIAL = re.compile(
    "RemoveDecorator|ReplaceBinaryOperator_(?:"
    "(?:Add|Sub|Mul|Div|FloorDiv|Mod|Pow)_(?:LShift|RShift|BitOr|BitAnd|BitXor)"
    "|(?:LShift|RShift|BitOr|BitAnd|BitXor)_(?:Add|Sub|Mul|Div|FloorDiv|Mod|Pow))"
)
_FAMILY = re.compile(r"_[A-Za-z]+$")
_PYTEST = ["-q", "-x", "--assert=plain", "--tb=line", "-p", "no:randomly", "-p", "no:cacheprovider"]


@dataclass(frozen=True)
class Mutant:
    """One change, the tests that should notice it, and its place in the sample."""

    area: str
    rank: str  # a hash of the name: the sample takes the smallest
    name: str
    mutation: MutationSpec


def passed_over(module: Path) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the places in which no change is made: annotations, decorators and texts of errors."""
    nodes: list[ast.AST | None] = []
    for node in ast.walk(ast.parse(module.read_text())):
        match node:
            case ast.FunctionDef():
                nodes += [*node.decorator_list, node.returns]
            case ast.ClassDef():
                nodes += node.decorator_list
            case ast.arg() | ast.AnnAssign():
                nodes.append(node.annotation)
            case ast.Raise():
                nodes.append(node)
    return [
        ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))
        for node in nodes
        if node is not None
    ]


def mutants(area: str, modules: list[Path]) -> Iterator[Mutant]:
    """Yield a change of each kind for each place in some modules."""
    with (
        tempfile.TemporaryDirectory() as folder,
        use_db(f"{folder}/session.sqlite", WorkDB.Mode.create) as session,
    ):
        init(modules, session, {})
        found = [item.mutations[0] for item in session.work_items]
    places: dict[tuple[str, str], list[Mutant]] = defaultdict(list)
    seen: Counter[str] = Counter()
    left_out = {str(module): passed_over(module) for module in modules}
    lines = {str(module): module.read_text().splitlines() for module in modules}
    for each in found:
        path, operator = str(each.module_path), each.operator_name.partition("/")[2]
        if _TRIVIAL.fullmatch(operator) or any(
            first <= each.start_pos < last for first, last in left_out[path]
        ):
            continue
        line = lines[path][each.start_pos[0] - 1]
        column = each.start_pos[1] - (len(line) - len(line.lstrip()))
        place = f"{each.definition_name}: {line.strip()} @{column}"
        name = f"{place} {operator}"
        seen[name] += 1
        name += f" #{seen[name]}"
        rank = hashlib.sha256(name.encode()).hexdigest()
        family = _FAMILY.sub("", operator) if operator.startswith("Replace") else operator
        places[f"{path}:{each.start_pos}", family].append(Mutant(area, rank, name, each))
    for alike in places.values():
        yield min(alike, key=lambda mutant: mutant.rank)


def copy_checkout(folder: Path) -> None:
    """Copy what git tracks, and what it would, as it is now."""
    names = subprocess.check_output(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],  # noqa: S607
        text=True,
    )
    for name in names.splitlines():
        if Path(name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(name, folder / name)


def work_in_a_copy(folder: str) -> None:
    """Give this worker a copy of the checkout of its own."""
    copy = Path(tempfile.mkdtemp(dir=folder))
    copy_checkout(copy)
    os.chdir(copy)
    sys.path.insert(0, str(copy / "src"))
    sys.dont_write_bytecode = True  # what is kept might be of the change before
    os.environ |= {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def run_tests(tests: list[str], seconds: int) -> None:
    """Run tests in this process, which may use this many seconds of CPU time."""
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    sys.exit(pytest.main([*_PYTEST, *tests]))


def outcome(tests: list[str], seconds: int) -> str:
    """Run tests in a process of their own, which finds the large libraries loaded."""
    child = multiprocessing.get_context("fork").Process(target=run_tests, args=(tests, seconds))
    child.start()
    child.join(20 * seconds)  # the machine may do much else
    if child.exitcode is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.join()
    if child.exitcode in (None, -signal.SIGXCPU, -signal.SIGKILL):
        return "timeout"
    return "killed" if child.exitcode else "survived"


def baseline(tests: list[str]) -> tuple[str, float]:
    """Tell what the tests make of the code as it is, and how many seconds they take."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    return outcome(tests, 3600), resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def examined(mutant: Mutant, tests: list[str], seconds: int) -> dict[str, str]:
    """Make one change, run the tests, undo the change and return what happened."""
    place = f"{mutant.mutation.module_path}:{mutant.mutation.start_pos[0]}"
    operator = get_operator(mutant.mutation.operator_name)(**mutant.mutation.operator_args)
    with use_mutation(mutant.mutation.module_path, operator, mutant.mutation.occurrence):
        result = outcome(tests, seconds)
    return {"area": mutant.area, "name": mutant.name, "place": place, "outcome": result}


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--config", type=Path, default=Path("tools/mutation.toml"))
    parser.add_argument("--area", action="append", help="this area alone; may be repeated")
    parser.add_argument("--sample", type=int, default=600, help="the number of changes; 0 for all")
    parser.add_argument("--jobs", type=int, default=2, help="the number of processes")
    parser.add_argument(
        "--json",
        type=Path,
        help="add each outcome to this file as a line, and pass over those that it holds",
    )
    options = parser.parse_args()
    areas = tomllib.loads(options.config.read_text())
    found = [
        mutant
        for area, each in areas.items()
        for mutant in mutants(area, [path for glob in each["modules"] for path in paths(glob)])
    ]
    chosen = sorted(found, key=lambda mutant: mutant.rank)[: options.sample or None]
    chosen = [mutant for mutant in chosen if not options.area or mutant.area in options.area]
    print(f"{len(chosen)} of {len(found)} changes", flush=True)
    results = {}
    if options.json and options.json.exists():
        results = {each["name"]: each for each in map(json.loads, options.json.open())}
    results = {mutant.name: results[mutant.name] for mutant in chosen if mutant.name in results}
    left = [mutant for mutant in chosen if mutant.name not in results]
    needed = sorted({mutant.area for mutant in left})
    with (
        tempfile.TemporaryDirectory(prefix="mutation-") as folder,
        ProcessPoolExecutor(options.jobs, initializer=work_in_a_copy, initargs=(folder,)) as pool,
    ):
        tests = {area: areas[area]["tests"] for area in needed}
        limits = {}
        for area, (result, taken) in zip(needed, pool.map(baseline, tests.values()), strict=True):
            if result != "survived":
                sys.exit(f"{area}: the tests must pass before anything is changed.")
            limits[area] = 20 + int(5 * taken)
            print(f"{area}: the tests take {taken:.0f} s", flush=True)
        runs = [
            pool.submit(examined, mutant, tests[mutant.area], limits[mutant.area])
            for mutant in left
        ]
        for run in as_completed(runs):
            result = run.result()
            results[result["name"]] = result
            if options.json:
                with options.json.open("a") as file:
                    file.write(json.dumps(result) + "\n")
            if result["outcome"] != "killed":
                print(f"{result['outcome']}: {result['place']}: {result['name']}", flush=True)
    for area in sorted(areas):
        counts = Counter(each["outcome"] for each in results.values() if each["area"] == area)
        print(f"{area}: {counts.total()} changes, {dict(counts)}")
    survived = sum(each["outcome"] == "survived" for each in results.values())
    print(f"noticed: {1 - survived / max(len(results), 1):.1%} of {len(results)}")


def paths(glob: str) -> list[Path]:
    """Return the files that a pattern names, which must be some."""
    found = sorted(Path().glob(glob))
    if not found:
        sys.exit(f"tools/mutation.toml: no file is named {glob}.")
    return found


if __name__ == "__main__":
    main()
