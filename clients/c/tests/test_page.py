"""The page for embedded engineers, followed literally, with a Cortex-M3 in QEMU."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from c_vehicle import EXPENSIVE, NO_LEDGER, OLD, ROOT

import fedldp

PAGE = (ROOT / "docs/how-to/embedded.md").read_text("utf-8")
PROGRAMS = ("arm-none-eabi-gcc", "qemu-system-arm")
BLOCK = re.compile(r'^```(\w+)(?: title="([\w.]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
TOML = "schema.toml"


def steps():
    """Return what the page says in order: commands, and files that its texts are added to."""
    for kind, title, text in BLOCK.findall(PAGE):
        if kind == "bash" and "apt-get" not in text:
            yield "", text
        elif kind in ("c", "toml"):
            yield title or TOML, text


@pytest.fixture(scope="module")
def device(tmp_path_factory):
    """A folder in which all that the page says was done."""
    for program in PROGRAMS:
        if shutil.which(program) is None:
            pytest.skip(f"{program} not found: see the page")
    folder = tmp_path_factory.mktemp("device")
    commands = ["set -e"]
    for name, text in steps():
        if name:
            commands.append(f"cat >> {name} <<'END_OF_FILE'\n{text}END_OF_FILE")
        else:
            commands.append(text)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "FEDLDP": str(ROOT), "PATH": path}
    done = subprocess.run(
        ["bash", "-c", "\n".join(commands)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "said").write_text(done.stdout)
    return folder


def start(folder, program="firmware"):
    """Start a program on the device, and return its status."""
    command = ["qemu-system-arm", "-M", "lm3s6965evb", "-nographic", "-semihosting-config"]
    command += ["enable=on,target=native", "-kernel", program]
    return subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, timeout=300).returncode


def test_reports_are_counted(device):
    plan = fedldp.Plan.from_json((device / "plan.json").read_text())
    reports = [(device / name).read_bytes() for name in ("first.bin", "second.bin")]
    assert [plan.parse(report).reports for report in reports] == [1, 1]
    assert {len(report) for report in reports} == {17}
    assert "Each report is 17 bytes" in PAGE
    said = (device / "said").read_text()
    assert plan.fingerprint in said
    assert "epsilon 2.0\n" in said


def test_the_cap_ends_it(device, tmp_path):
    folder = shutil.copytree(device, tmp_path / "copy")
    (folder / "report.bin").unlink()
    for job, status in ((3, EXPENSIVE), (2, 0), (1, OLD)):
        (folder / "job.txt").write_text(f"{job}\n")
        assert start(folder) == status
    assert (folder / "report.bin").read_bytes() == (folder / "second.bin").read_bytes()
    assert start(folder, "factory") == OLD


def test_a_device_without_a_ledger_is_silent(device, tmp_path):
    folder = shutil.copytree(device, tmp_path / "copy")
    for name in ("flash.bin", "report.bin"):
        (folder / name).unlink()
    assert start(folder) == NO_LEDGER
    assert not (folder / "report.bin").exists()
    (folder / "flash.bin").unlink()
    assert start(folder, "factory") == 0
    flash = bytearray((folder / "flash.bin").read_bytes())
    flash[40] ^= 1
    (folder / "flash.bin").write_bytes(flash)
    assert start(folder) == NO_LEDGER
    assert start(folder, "factory") == NO_LEDGER
    assert not (folder / "report.bin").exists()


def test_the_sources_of_the_example_have_no_warnings(device):
    command = ["arm-none-eabi-gcc", "-std=c11", "-mthumb", "-mcpu=cortex-m3", "-Os", "-Wall"]
    command += ["-Wextra", "-Wconversion", "-Werror", "-fsyntax-only", "main.c", "board.c"]
    done = subprocess.run(command, cwd=device, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
