"""The sources are right for compilers, analyzers and sanitizers, and can be used from C++."""

import shutil
import subprocess
from pathlib import Path

import pytest
import targets
from c_vehicle import CORE, FOLDER, STRICT, VECTORS
from report_cases import random_cases, vector_cases
from targets import TESTS

from fedldp.plan.compiled import compile_plan

SOURCES = sorted(FOLDER.glob("fedldp*.c"))
PROGRAM = FOLDER / "command/fedldp-c-vehicle.c"
CPP = ["-std=c++20", "-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror", f"-I{FOLDER}"]
LINES = next(case["plan"] for case in VECTORS["cases"] if case["name"].startswith("lines"))


def tool(name, package=None):
    """Return the name of a program, or skip the test if it is missing."""
    if shutil.which(name) is None:
        pytest.skip(f"{name} not found: apt-get install {package or name}")
    return name


def run(*command, **options):
    """Run a program that must not complain."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def needs_runtime_of_clang():
    """Skip the test if clang has no sanitizers."""
    folder = run(tool("clang"), "-print-runtime-dir").strip()
    if not list(Path(folder).glob("*asan*")):
        pytest.skip("sanitizers of clang not found: apt-get install libclang-rt-dev")


@pytest.mark.parametrize("option", ["-Os", "-O2"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_no_warnings(compiler, option, tmp_path):
    (tmp_path / "plan.h").write_text(compile_plan(LINES, "9").to_header(), "ascii")
    for source in [*SOURCES, PROGRAM]:
        output = tmp_path / f"{source.stem}.o"
        run(tool(compiler), *STRICT, option, f"-I{tmp_path}", "-c", source, "-o", output)


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_all_vectors_from_cpp(compiler, tmp_path):
    """The headers and all plans are C++20; the sources stay C."""
    cases = vector_cases()
    targets.write_cases(tmp_path, cases)
    headers = ["fedldp_file.h", "fedldp_flash.h", "fedldp_linux.h", TESTS / "target.c"]
    text = "".join(f'#include "{header}"\n' for header in headers)
    (tmp_path / "program.cc").write_text(text)
    for source in CORE:
        run("gcc", *STRICT, "-O2", "-c", source, cwd=tmp_path)
    objects, program = sorted(tmp_path.glob("*.o")), tmp_path / "program"
    run(tool(compiler), *CPP, f"-I{tmp_path}", "-o", program, tmp_path / "program.cc", *objects)
    assert run(program) == f"{len(cases)} of {len(cases)}\n"


def test_fast_math_is_refused():
    command = ["gcc", "-ffast-math", f"-I{FOLDER}", "-fsyntax-only", str(CORE[0])]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert "compile without -ffast-math" in done.stderr


def test_the_analyzer_of_gcc_finds_nothing(tmp_path):
    (tmp_path / "plan.h").write_text(compile_plan(LINES, "9").to_header(), "ascii")
    for source in [*SOURCES, PROGRAM]:
        run("gcc", *STRICT, "-O1", "-fanalyzer", f"-I{tmp_path}", "-c", source, cwd=tmp_path)


def test_cppcheck_finds_nothing(tmp_path):
    (tmp_path / "plan.h").write_text(compile_plan(LINES, "9").to_header(), "ascii")
    checks = ["--enable=warning,performance,portability", "--error-exitcode=1", "--std=c99"]
    folders = [f"-I{FOLDER}", f"-I{tmp_path}"]
    quiet = ["--quiet", "-UFEDLDP_FILE_TEST"]
    run(tool("cppcheck"), *checks, *quiet, *folders, *SOURCES, PROGRAM)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_no_undefined_behavior_and_no_foreign_memory(compiler, tmp_path):
    cases = [*vector_cases(), *random_cases(40, 3)]
    targets.write_cases(tmp_path, cases)
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1"]
    program = tmp_path / "program"
    if compiler == "clang":
        needs_runtime_of_clang()
    run(tool(compiler), *STRICT, *sanitizers, f"-I{tmp_path}", "-o", program, *targets.PROGRAM)
    assert run(program) == f"{len(cases)} of {len(cases)}\n"
