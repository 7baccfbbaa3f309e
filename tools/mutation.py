"""Change the code in small ways, one at a time, and see whether a test notices.

`make mutation MUTATE='src/fedldp/report.py tests/test_report.py'` makes every change that mutmut
knows in report.py, and lists those that the tests named let pass. mutmut's own runner leaves out
whatever is decorated, and here the formulas are properties; so it gives the changes alone.

Tests first run once, to learn which of them execute which line. Each mutant then meets those that
execute its line, the quickest first. All this happens in a copy of the checkout.
"""

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[threads] = "1"
os.environ["HYPOTHESIS_PROFILE"] = "mutation"
sys.dont_write_bytecode = True
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # what is kept might be of the mutant before

import coverage  # noqa: E402
import libcst as cst  # noqa: E402
import libcst.matchers as m  # noqa: E402
import pytest  # noqa: E402
import scipy.optimize  # noqa: E402  imported here, so that no child needs to
import scipy.stats  # noqa: E402, F401
from hypothesis import Phase, settings  # noqa: E402
from libcst.metadata import MetadataWrapper, ParentNodeProvider, PositionProvider  # noqa: E402
from mutmut.mutation.mutators import mutation_operators  # noqa: E402

OPTIONS = ["-q", "-x", "--assert=plain", "-p", "no:randomly", "-p", "no:cacheprovider"]
MEMORY = 8 << 30  # bytes for a mutant
# Texts of errors, and what has no effect or all too much of it.
_PASSED_OVER = (cst.Raise, cst.Annotation, cst.Decorator, cst.Import, cst.ImportFrom)
_PUBLIC = m.Assign([m.AssignTarget(m.Name("__all__"))])

settings.register_profile(
    "mutation", deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate]
)


@dataclass(frozen=True)
class Mutant:
    """A file with one change in it: some node of its syntax is another."""

    path: str
    lines: range
    module: cst.Module
    node: cst.CSTNode
    other: cst.CSTNode

    def source(self) -> str:
        changed = self.module.deep_replace(self.node, self.other)
        return changed.code

    def __str__(self) -> str:
        before, after = map(self.module.code_for_node, (self.node, self.other))
        change = " ".join(f"{before}  ->  {after}".split())
        return f"{self.path}:{self.lines[0]}: {change}"


class _Finder(cst.CSTVisitor):
    METADATA_DEPENDENCIES = (PositionProvider, ParentNodeProvider)

    def __init__(self, path: str, module: cst.Module) -> None:
        self.path, self.module, self.found = path, module, list[Mutant]()

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, _PASSED_OVER) or m.matches(node, _PUBLIC):
            return False
        for kind, operator in mutation_operators:
            for other in operator(node) if isinstance(node, kind) else ():
                place = self.get_metadata(PositionProvider, self._statement(node))
                lines = range(place.start.line, place.end.line + 1)
                self.found.append(Mutant(self.path, lines, self.module, node, other))
        return True

    def _statement(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the line that a node stands in, or the node itself in the head of a block."""
        outer = node
        while not isinstance(outer, cst.SimpleStatementLine | cst.BaseCompoundStatement):
            outer = self.get_metadata(ParentNodeProvider, outer)
        return outer if isinstance(outer, cst.SimpleStatementLine) else node


def mutants(target: str) -> list[Mutant]:
    """Return all mutants of a file, or of some of its lines: `path:line` or `path:first-last`."""
    path, _, lines = target.partition(":")
    first, _, last = lines.partition("-")
    wrapper = MetadataWrapper(cst.parse_module(Path(path).read_text()))
    finder = _Finder(path, wrapper.module)
    wrapper.visit(finder)
    wanted = range(int(first), int(last or first) + 1) if lines else range(1 << 20)
    return [each for each in finder.found if each.lines[0] in wanted]


class Clock:
    """A plugin of pytest that tells coverage which test runs, and notes how long it takes."""

    def __init__(self, watch: coverage.Coverage) -> None:
        self.watch = watch
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.watch.switch_context(item.nodeid)
        start = time.perf_counter()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = time.perf_counter() - start


@dataclass(frozen=True)
class Survey:
    """Which tests execute which line, and how long each takes."""

    tests: dict[str, dict[str, list[str]]]  # by file and line
    seconds: dict[str, float]

    @classmethod
    def of(cls, tests: list[str]) -> "Survey":
        notes = Path("survey.json").absolute()

        def run() -> int:
            watch = coverage.Coverage(data_file=None, include=["src/*"])
            clock = Clock(watch)
            watch.start()
            status = pytest.main([*OPTIONS, *tests], plugins=[clock])
            watch.stop()
            data, found = watch.get_data(), {}
            for path in data.measured_files():
                lines = data.contexts_by_lineno(path)
                relative = str(Path(path).relative_to(Path.cwd()))
                found[relative] = {n: [c for c in cs if c] for n, cs in lines.items()}
            notes.write_text(json.dumps([found, clock.seconds]))
            return int(status)

        if in_child(run, seconds=3600, quiet=False) != 0:
            sys.exit("the tests must pass before anything is changed")
        return cls(*json.loads(notes.read_text()))

    def against(self, mutant: Mutant, most_seconds: float) -> list[str]:
        """Return the tests that execute a mutant's lines, the quickest first.

        What is executed by an import alone meets the tests of the whole file.
        """
        lines = self.tests[mutant.path]
        found = {test for n in mutant.lines for test in lines.get(str(n), [])}
        found = found or {test for tests in lines.values() for test in tests}
        chosen, total = [], 0.0
        for test in sorted(found, key=lambda test: self.seconds[test]):
            total += self.seconds[test]
            if chosen and total > most_seconds:
                break
            chosen.append(test)
        return chosen


def in_child(run: Callable[[], int], seconds: float, quiet: bool = True) -> int | None:
    """Return the status of a function run in a process of its own, or None if it took too long.

    The processor's time counts, whatever else the machine does; ten times that may go by.
    """
    with tempfile.TemporaryDirectory() as cache:
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))
            os.environ["FEDLDP_CACHE"] = os.environ["TMPDIR"] = tempfile.tempdir = cache
            if quiet:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                os.dup2(1, 2)
            try:
                status = run()
            except BaseException:
                traceback.print_exc()
                status = 1
            sys.stdout.flush()
            os._exit(status)
        end = time.monotonic() + 10 * seconds
        while time.monotonic() < end:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                return None if code in (-signal.SIGXCPU, -signal.SIGKILL) else code
            time.sleep(0.02)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return None


def verdict(mutant: Mutant, tests: list[str], seconds: float) -> str:
    """Tell what the tests make of a mutant: killed, survived or timeout."""
    path = Path(mutant.path)
    original = path.read_text()
    path.write_text(mutant.source())
    try:
        status = in_child(lambda: int(pytest.main([*OPTIONS, *tests])), seconds)
    finally:
        path.write_text(original)
    if status is None:
        return "timeout"
    return "killed" if status else "survived"


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "paths", nargs="+", help="files to change (FILE, FILE:LINE, FILE:FIRST-LAST) and tests"
    )
    parser.add_argument("--sample", type=int, help="so many mutants of all, at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most-seconds", type=float, default=60, help="of tests for one mutant")
    options = parser.parse_args()
    targets = [path for path in options.paths if path.startswith("src/") and "::" not in path]
    tests = [path for path in options.paths if path not in targets]
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        copy = Path(folder)
        tracked = subprocess.check_output(["git", "ls-files"], text=True)  # noqa: S607
        for name in tracked.splitlines():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(name, copy / name)
        os.chdir(copy)
        sys.path.insert(0, str(copy / "src"))
        os.environ["PYTHONPATH"] = str(copy / "src")
        found = [mutant for target in targets for mutant in mutants(target)]
        survey = Survey.of([*tests, *{target.partition(":")[0] for target in targets}])
        print(f"{len(found)} mutants", flush=True)
        if options.sample and options.sample < len(found):
            found = random.Random(options.seed).sample(found, options.sample)  # noqa: S311
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for mutant in found:
            tests = survey.against(mutant, options.most_seconds)
            limit = 10 + 5 * sum(survey.seconds[test] for test in tests)
            result = verdict(mutant, tests, limit)
            counts[mutant.path][result] += 1
            if result != "killed":
                print(f"{result}: {mutant}", flush=True)
        os.chdir("/")
    for path, each in counts.items():
        print(f"{path}: {sum(each.values())} mutants, {dict(each)}")


if __name__ == "__main__":
    main()
