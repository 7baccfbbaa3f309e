"""Fuzzing by libFuzzer: hostile plans, rows, random bytes and ledgers."""

import random
import re
import resource
import shutil
import subprocess
from pathlib import Path

import pytest
from c_vehicle import CORE, FOLDER, STRICT, VECTORS
from full_figures import keep
from targets import TESTS

from fedldp.plan.compiled import compile_plan

CPU_SECONDS, FULL_CPU_SECONDS = 5, 600
INPUT_BYTES = 4096


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory):
    """The program that tries inputs."""
    if shutil.which("clang") is None:
        pytest.skip("clang not found: apt-get install clang libclang-rt-dev")
    command = ["clang", "-print-runtime-dir"]
    runtime = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not list(Path(runtime).glob("*fuzzer*")):
        pytest.skip("libFuzzer not found: apt-get install libclang-rt-dev")
    folder = tmp_path_factory.mktemp("fuzzer")
    texts = [case["plan"] for case in VECTORS["cases"]]
    texts += [case["calendar"] for case in VECTORS["calendars"]]
    headers = []
    for i, text in enumerate(texts):
        (folder / f"p{i}.h").write_text(compile_plan(text, "9999").to_header(f"p{i}"), "ascii")
        headers.append(f'#include "p{i}.h"\n')
    plans = ", ".join(f"&p{i}" for i in range(len(texts)))
    lines = [*headers, f"#define FUZZ_PLANS {len(texts)}u\n"]
    lines.append(f"static const fedldp_plan *const fuzz_plans[] = {{{plans}}};\n")
    (folder / "fuzz_plans.h").write_text("".join(lines), "ascii")
    options = ["-O1", "-g", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]
    sources = [TESTS / "fuzz.c", *CORE, FOLDER / "fedldp_flash.c"]
    command = ["clang", *STRICT, *options, f"-I{folder}", "-o", str(folder / "fuzz")]
    done = subprocess.run([*command, *map(str, sources)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "fuzz"


def used_by_children():
    """Return the CPU seconds of programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def fuzzed(fuzzer, folder, cpu_seconds):
    """Fuzz until the CPU has worked for some seconds, and return how many inputs were tried."""
    corpus, source = folder / "corpus", random.Random(3)
    corpus.mkdir()
    for i in range(64):
        data = bytes([i % 4]) + source.randbytes(source.randint(0, INPUT_BYTES - 1))
        (corpus / f"{i}").write_bytes(data)
    begin, tried = used_by_children(), 0
    while (left := cpu_seconds - (used_by_children() - begin)) > 0:
        limits = [f"-max_total_time={max(2, int(left))}", f"-max_len={INPUT_BYTES}", "-timeout=60"]
        command = [str(fuzzer), *limits, "-print_final_stats=1", str(corpus)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        assert done.returncode == 0, done.stderr[-3000:]
        [units] = re.findall(r"number_of_executed_units: (\d+)", done.stderr)
        tried += int(units)
    return tried


def test_seconds_of_fuzzing(fuzzer, tmp_path):
    assert fuzzed(fuzzer, tmp_path, CPU_SECONDS) > 64


@pytest.mark.full
def test_ten_minutes_of_fuzzing(fuzzer, tmp_path):
    tried = fuzzed(fuzzer, tmp_path, FULL_CPU_SECONDS)
    keep("fuzzing", {"executions": tried, "cpu_seconds": FULL_CPU_SECONDS})
