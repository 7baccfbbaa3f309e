"""The core on other processors: the same reports, and the same work for all that is secret."""

import shutil
import subprocess

import pytest
import secret_cases
import targets
from report_cases import random_cases, vector_cases
from targets import PROGRAM, TARGETS, TESTS, WASM

OPTIONS = ("-Os", "-O2")
PLUGIN_PACKAGES = "apt-get install qemu-system-arm qemu-user"


def with_tools(target):
    """Return a target, or skip the test if its tools are missing."""
    if target.missing:
        pytest.skip(target.missing)
    return target


@pytest.fixture(params=TARGETS)
def processor(request):
    """A processor whose tools are there."""
    return with_tools(TARGETS[request.param])


@pytest.fixture(params=[*TARGETS, "wasm"])
def target(request):
    """A processor whose tools are there, or WebAssembly."""
    return with_tools({**TARGETS, "wasm": WASM}[request.param])


@pytest.mark.parametrize("option", OPTIONS)
def test_vectors(target, option, tmp_path):
    cases = vector_cases()
    targets.write_cases(tmp_path, cases)
    printed = target.run(target.build(tmp_path, PROGRAM, option))
    assert f"{len(cases)} of {len(cases)}\n" in printed, printed


def test_random_plans(target, tmp_path):
    cases = random_cases(40, 3)
    targets.write_cases(tmp_path, cases)
    printed = target.run(target.build(tmp_path, PROGRAM, "-Os"))
    assert f"{len(cases)} of {len(cases)}\n" in printed, printed


# Constant work.


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    path = tmp_path_factory.mktemp("plugin") / "trace.so"
    command = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(path), str(TESTS / "trace_plugin.c")]
    subprocess.run(command, check=True)
    return path


@pytest.fixture(scope="module")
def secrets():
    return secret_cases.cases()


def traced(target, folder, plugin, secrets, option, sources=PROGRAM):
    """Return for each plan the different traces of its draws."""
    cases = [case for group in secrets.values() for case in group]
    targets.write_cases(folder, cases)
    program = target.build(folder, sources, option, *(["-static"] * (not target.runner)))
    found = targets.traces(target, program, plugin)
    assert len(found) == len(cases)
    left = iter(found)
    return {name: {next(left) for _ in group} for name, group in secrets.items()}


@pytest.mark.parametrize("option", OPTIONS)
def test_work_depends_on_nothing_secret(processor, option, plugin, secrets, tmp_path):
    """Instructions, where they are, and which addresses they use: alike for all rows and bytes.

    Bytes that decide what is published (which coordinates, which seed, which line) are the same.
    """
    if not processor.runner and shutil.which("qemu-x86_64") is None:
        pytest.skip(PLUGIN_PACKAGES)
    different = traced(processor, tmp_path, plugin, secrets, option)
    assert {name: len(traces) for name, traces in different.items()} == dict.fromkeys(secrets, 1)


LEAKS = {
    "a branch to the truth": (
        "  code = divided((u - most)",
        "  if (is_own) return own;\n  code = divided((u - most)",
    ),
    "a row of the table": (
        "    uint64_t is_row = equal(row, letter);\n",
        "    uint64_t is_row = equal(row, letter);\n    if (row > letter) break;\n",
    ),
    "a branch to the best direction": (
        "    rank -= (uint32_t)is_equal;\n",
        "    if (is_equal && rank == 0) break;\n    rank -= (uint32_t)is_equal;\n",
    ),
}


@pytest.mark.parametrize("name", LEAKS)
def test_work_that_depends_on_a_secret_is_found(name, plugin, secrets, tmp_path):
    target = with_tools(TARGETS["cortex-m3"])
    before, after = LEAKS[name]
    [right] = [path for path in PROGRAM if before in path.read_text("ascii")]
    text = right.read_text("ascii")
    assert text.count(before) == 1
    leaky = tmp_path / "leaky.c"
    leaky.write_text(text.replace(before, after), "ascii")
    sources = [leaky if path == right else path for path in PROGRAM]
    different = traced(target, tmp_path, plugin, secrets, "-O2", sources)
    assert max(len(traces) for traces in different.values()) > 1
