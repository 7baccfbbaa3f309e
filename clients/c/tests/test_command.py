"""`fedldp-c-vehicle`: a vehicle on the command line, without a network."""

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from c_vehicle import CORE, EXPENSIVE, FOLDER, NO_LEDGER, OLD, SILENT, STRICT, VECTORS, bytes_of

import fedldp
from fedldp import vehicle
from fedldp.plan.compiled import compile_plan
from fedldp.plan.strategies import Sample

SOURCES = [
    FOLDER / "command/fedldp-c-vehicle.c",
    *CORE,
    FOLDER / "fedldp_file.c",
    FOLDER / "fedldp_linux.c",
]
USAGE, OUTPUT = 64, 74
COMPILERS = ("musl-gcc", "gcc")
FIXED_RANDOM = """
#include <sys/random.h>
#include <stdio.h>
ssize_t test_getrandom(void *bytes, size_t count, unsigned int flags) {
  static FILE *file;
  (void)flags;
  if (file == NULL) file = fopen("random", "rb");
  if (file == NULL) return -1;
  return (ssize_t)fread(bytes, 1, count, file);
}
"""


def build(folder, text, *options, compiler=None):
    """Compile the command with a plan, and return its path."""
    (folder / "plan.h").write_text(compile_plan(text, "9").to_header(), "ascii")
    compiler = compiler or next(name for name in COMPILERS if shutil.which(name))
    program = folder / "fedldp-c-vehicle"
    command = [compiler, *STRICT, "-Os", "-static", f"-I{folder}", *options]
    subprocess.run([*command, "-o", str(program), *map(str, SOURCES)], check=True)
    return program


class Command:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder

    def run(self, *arguments, row="", **options):
        row = row.encode() if isinstance(row, str) else row
        command = [str(self.program), *map(str, arguments)]
        return subprocess.run(command, input=row, capture_output=True, cwd=self.folder, **options)

    def answer(self, job, row="", cap="9", *arguments):
        command = ("answer", "--ledger", "ledger", "--cap", cap, "--job", job)
        return self.run(*command, *arguments, row=row)

    def spent(self):
        done = self.run("spent", "--ledger", "ledger")
        assert done.returncode == 0
        return done.stdout.decode()


PLAN = fedldp.Plan(
    fedldp.Schema.of(speed=(0, 130), city=["Oslo", "Rome", "Lima"]), 1.5, Sample(mechanism="duchi")
)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return build(tmp_path_factory.mktemp("program"), PLAN.to_json())


@pytest.fixture
def command(program, tmp_path):
    command = Command(program, tmp_path)
    assert command.run("provision", "--ledger", "ledger").returncode == 0
    return command


def test_it_needs_no_library_of_the_system(tmp_path):
    if shutil.which("musl-gcc") is None:
        pytest.skip("musl-gcc not found: apt-get install musl-tools")
    program = build(tmp_path, PLAN.to_json(), compiler="musl-gcc")
    listed = subprocess.run(["readelf", "-l", "-d", str(program)], capture_output=True, text=True)
    assert "LOAD" in listed.stdout
    assert "INTERP" not in listed.stdout
    assert "NEEDED" not in listed.stdout


def test_answers_are_paid_repeated_and_read_by_the_library(command):
    done = command.answer(1, "speed=91\ncity=Oslo\n", "3.0")
    assert (done.returncode, done.stderr) == (0, b"")
    assert PLAN.parse(done.stdout).reports == 1
    assert command.spent() == "1.5\n"
    assert command.answer(1, "speed=3\n", "3.0").stdout == done.stdout
    assert command.spent() == "1.5\n"
    assert command.answer(2, "", "2.9999999999999999999").returncode == EXPENSIVE
    assert command.answer(2, "", "3").returncode == 0
    assert command.spent() == "3.0\n"
    refused = command.answer(3, "", "3.0")
    assert (refused.returncode, refused.stdout) == (EXPENSIVE, b"")
    assert command.answer(1).returncode == OLD
    assert command.run("provision", "--ledger", "ledger").returncode == OLD
    assert command.run("spent", "--ledger", "other").returncode == NO_LEDGER


def test_it_describes_its_plan(command):
    done = command.run("plan")
    assert done.stdout.decode().split("\n") == [
        PLAN.fingerprint,
        "epsilon 1.5",
        "speed",
        "city",
        "",
    ]


def test_the_row_decides_neither_status_nor_size(command):
    rows = [
        "",
        "speed=x\ncity=nowhere\n",
        "speed=1e999\ncity=\n",
        "speed=nan\nspeed=3\nspeed=4\nunknown=4",
        "speed=0x10\ncity=" + "x" * 65,
        "speed=" + "9" * 70000 + "\ncity=Oslo\n",
        b"\0\xff=\xff\n=\nspeed",
    ]
    done = [command.answer(job, row, "99") for job, row in enumerate(rows, start=1)]
    assert {(each.returncode, len(each.stdout)) for each in done} == {(0, 17)}
    assert all(PLAN.parse(each.stdout).reports == 1 for each in done)
    messages = [each.stderr.decode().partition("unused lines of the row: ")[2] for each in done]
    assert messages == ["", "1\n", "", "2, 3, 4\n", "1, 2\n", "1\n", "1, 2, 3\n"]
    many = command.answer(99, "x\n" * 1000, "99")
    assert (many.returncode, len(many.stdout)) == (0, 17)
    assert many.stderr.endswith(b" ...\n")


@pytest.mark.parametrize("row", ["", "speed=x\n"])
def test_a_reader_who_stopped_reading_messages_stops_nothing(command, row):
    arguments = ["answer", "--ledger", "ledger", "--cap", "9", "--job", "1"]
    read, write = os.pipe()
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(write, bytes(1000)):
            pass
    with contextlib.suppress(BlockingIOError):
        while os.write(write, b"x"):
            pass
    os.set_blocking(write, True)
    done = subprocess.run(
        [str(command.program), *arguments],
        input=row.encode(),
        stdout=subprocess.PIPE,
        stderr=write,
        cwd=command.folder,
    )
    os.close(read)
    os.close(write)
    assert (done.returncode, len(done.stdout)) == (0, 17)


def test_an_output_without_a_reader_is_an_error(command):
    arguments = ["answer", "--ledger", "ledger", "--cap", "9", "--job", "1"]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [str(command.program), *arguments],
        input=b"",
        stdout=write,
        stderr=subprocess.PIPE,
        cwd=command.folder,
    )
    os.close(write)
    assert (done.returncode, b"ask again" in done.stderr) == (OUTPUT, True)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["draw"],
        ["draw", "--ledger", "ledger"],
        ["provision"],
        ["provision", "--ledger"],
        ["spent", "--ledger", "ledger", "--ledger", "ledger"],
        ["spent", "--file", "ledger"],
        ["answer", "--ledger", "ledger", "--cap", "2"],
        ["answer", "--ledger", "ledger", "--job", "2"],
        *(["answer", "--ledger", "ledger", "--job", "2", "--cap", cap] for cap in ("", ".", "-1")),
        ["answer", "--ledger", "ledger", "--job", "2", "--cap", "0." + "0" * 20],
        ["answer", "--ledger", "ledger", "--job", "2", "--cap", "9" * 11],
        *(["answer", "--ledger", "ledger", "--cap", "2", "--job", job] for job in ("", "1.0", "x")),
        ["answer", "--ledger", "ledger", "--cap", "2", "--job", str(1 << 64)],
        ["answer", "--ledger", "ledger", "--cap", "2", "--job", "1", "--period", str(1 << 32)],
        ["spent", "--ledger", "x" * 4092],
    ],
)
def test_wrong_use_spends_nothing(command, arguments):
    done = command.run(*arguments)
    assert (done.returncode, done.stdout) == (USAGE, b"")
    assert b"usage:" in done.stderr
    assert command.spent() == "0.0\n"


def test_a_report_that_cannot_be_written_is_an_error_and_can_be_had_again(command):
    arguments = ["answer", "--ledger", "ledger", "--cap", "9", "--job", "1"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [str(command.program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=command.folder,
        )
    assert (done.returncode, b"ask again" in done.stderr) == (OUTPUT, True)
    assert command.spent() == "1.5\n"
    assert command.answer(1).returncode == 0
    assert command.spent() == "1.5\n"


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_no_file_of_the_ledger_takes_the_place_of_a_closed_stream(command, closed):
    before = (command.folder / "ledger").read_bytes()
    arguments = ["answer", "--ledger", "ledger", "--cap", "9", "--job", "1"]
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" "$@" {closed}>&-', str(command.program), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=command.folder,
    )
    assert (done.returncode, done.stdout) == (OUTPUT, b"")
    assert (command.folder / "ledger").read_bytes() == before


def test_a_ledger_in_use_is_left_alone(command):
    with subprocess.Popen(
        [str(command.program), "answer", "--ledger", "ledger", "--cap", "9", "--job", "1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=command.folder,
    ) as first:
        lock = command.folder / "ledger.lock"
        while not is_locked(lock):  # until it has started
            assert first.poll() is None
        assert command.run("spent", "--ledger", "ledger").returncode == NO_LEDGER
        assert len(first.communicate(b"")[0]) == 17
    assert command.spent() == "1.5\n"


def is_locked(path):
    with path.open("rb") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def as_lines(row):
    """Return a row of a vector as the command reads it."""

    def cell(value):
        if value is None:
            return ""
        if isinstance(value, list):
            return ",".join(cell(number) or "nan" for number in value)
        return vehicle.label(value) if isinstance(value, bool) else str(value)

    return "".join(f"{name}={cell(value)}\n" for name, value in row.items())


REPLAYED = (
    "two of six coordinates",
    "unary encoding",
    "63 directions without null input, and a category",
    "attributes within groups",
)


@pytest.mark.parametrize("name", REPLAYED)
def test_vectors(name, tmp_path):
    """With the random bytes of the vectors in the place of the kernel's."""
    case = next(case for case in VECTORS["cases"] if case["name"] == name)
    (tmp_path / "random.c").write_text(FIXED_RANDOM)
    options = ("-Dgetrandom=test_getrandom", "-D_GNU_SOURCE", str(tmp_path / "random.c"))
    command = Command(build(tmp_path, case["plan"], *options), tmp_path)
    assert command.run("provision", "--ledger", "ledger").returncode == 0
    for job, answer in enumerate(case["answers"], start=1):
        (tmp_path / "random").write_bytes(bytes_of(answer["thrown"]))
        done = command.answer(job, as_lines(answer["row"]), "9999")
        assert (done.returncode, done.stdout.hex()) == (0, answer["report"]), done.stderr
    (tmp_path / "random").write_bytes(b"")
    assert command.answer(99, "", "9999").stdout == b""
    (tmp_path / "random").unlink()
    assert command.answer(99, "", "9999").stdout == b""


def test_a_calendar(tmp_path):
    calendar = VECTORS["calendars"][0]["calendar"]
    periods = json.loads(calendar)["periods"]
    command = Command(build(tmp_path, calendar), tmp_path)
    assert command.run("provision", "--ledger", "ledger").returncode == 0
    done = [command.answer(1, "", "9", "--period", i) for i in range(1, periods + 1)]
    sent = [each for each in done if each.returncode == 0]
    assert len(sent) == json.loads(calendar)["answers"]
    assert {(each.returncode, each.stdout) for each in done if each not in sent} == {(SILENT, b"")}
