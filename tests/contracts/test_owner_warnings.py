"""What the owner is told decides nothing: neither a report, nor an exit status, nor random words.

Standard error may be open, closed, full, broken, or a pipe that nobody reads. `PROGRAMS` in
tests/helpers/vehicle_processes.py lists every program of a vehicle.
"""

import ast
import contextlib
import logging
import os
import subprocess
import sys
import termios
import threading
import warnings
from pathlib import Path

import pytest
from ledgers import made, untouched
from patience import HANG_SECONDS
from vehicle_processes import (
    FAILURE,
    PLAN,
    PROGRAMS,
    REPORT_BYTES,
    ROWS,
    check_failure,
    check_standard_error,
    standard_error,
    write_row,
)

from fedldp import vehicle
from fedldp._internal import owner
from fedldp.errors import DataWarning

ROOT = Path(__file__).parents[2]


# Every program


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_but_standard_error_shows_what_the_owner_is_told(name, tmp_path):
    told = check_standard_error(name, tmp_path, ("whole", "clipped"))
    assert told["clipped"].count("\n") >= told["whole"].count("\n")
    assert told["clipped"] != told["whole"]


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_so_it_is_for_all_kinds_of_rows(name, tmp_path):
    check_standard_error(name, tmp_path, tuple(ROWS))


@pytest.mark.parametrize("name", [name for name in PROGRAMS if PROGRAMS[name].is_process])
def test_a_program_that_fails_waits_for_nobody(name, tmp_path):
    told = check_failure(name, tmp_path)
    assert told.startswith("Traceback (most recent call last):\n")
    assert told.endswith(f"\nRuntimeError: {FAILURE}\n")


# Real processes


def run(folder, program, row, redirections, **environment):
    """Run a program by a shell; return its exit status and what it wrote to standard output."""
    (folder / row).mkdir()
    write_row(folder / row, ROWS[row][0])
    made(folder / row / "ledger.db")
    script = f'exec "$0" "$@" {redirections}'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable, *program, "--cap", "4", "row.json"],
        cwd=folder / row,
        stdout=subprocess.PIPE,
        check=False,
        timeout=HANG_SECONDS,
        env=os.environ | environment,
    )
    return done.returncode, done.stdout


FILE = (vehicle.__file__, "plan.json")
COMMAND = ("-m", "fedldp", "report", "plan.json", "--ledger", "ledger.db")


@pytest.mark.parametrize("redirections", ["2>&-", "2>/dev/full"])
def test_a_warning_is_not_printed_as_a_report(tmp_path, redirections):
    whole, clipped = (run(tmp_path, FILE, row, redirections) for row in ("whole", "clipped"))
    assert (whole[0], clipped[0]) == (0, 0)
    for _, out in (whole, clipped):
        assert len(bytes.fromhex(out.decode())) == REPORT_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("redirections", ["2>&-", "0<&- 2>&-", "2>/dev/full"])
def test_nor_by_the_command(tmp_path, redirections):
    for row in ("whole", "clipped"):
        status, out = run(tmp_path, COMMAND, row, redirections)
        assert (status, len(out)) == (0, REPORT_BYTES)
        assert PLAN.parse(out).reports == 1


@pytest.mark.parametrize("program", [FILE, pytest.param(COMMAND, marks=pytest.mark.slow)])
@pytest.mark.parametrize("redirections", [">/dev/full", ">&-"])
def test_a_report_that_cannot_be_written_is_an_error_for_every_row(tmp_path, program, redirections):
    found = [run(tmp_path, program, row, f"{redirections} 2>err") for row in ("whole", "clipped")]
    assert found == [(1, b"")] * 2
    errors = [(tmp_path / row / "err").read_text() for row in ("whole", "clipped")]
    assert errors[0] == errors[1]
    assert errors[0].count("\n") == 1
    if redirections == ">&-":
        assert untouched(tmp_path / "whole" / "ledger.db")  # it is known before anything is spent


def test_a_warning_is_no_error_where_python_is_told_so_and_cannot_print_it(tmp_path):
    settings = {"PYTHONWARNINGS": "error", "PYTHONIOENCODING": "ascii:strict"}
    status, out = run(tmp_path, FILE, "strange", "2>err", **settings)
    assert (status, len(out)) == (0, 2 * REPORT_BYTES + 1)
    assert "city is unknown ('\\u6771\\u4eac \\udcff')" in (tmp_path / "strange/err").read_text()


# The guarded functions


@pytest.mark.parametrize("state", ["full", "broken", "stuck"])
def test_a_line_that_cannot_be_written_is_left_out(tmp_path, state, monkeypatch):
    descriptor = standard_error(state, tmp_path)
    stream = owner.OwnerStream(descriptor)
    monkeypatch.setattr(sys, "stderr", stream)
    vehicle.warn_owner("a warning")
    assert stream.write("of a library") == 12
    print("\udcff", file=sys.stderr, flush=True)
    handler = owner.OwnerHandler()
    handler.handle(logging.makeLogRecord({"msg": "%d", "args": ("not a number",)}))
    os.close(descriptor)
    vehicle.warn_owner("to a file that is closed")


def test_a_pipe_takes_what_fits():
    reader, writer = os.pipe()
    vehicle.write_now(writer, b"x" * (1 << 20))
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert 1 << 12 <= len(pipe.read()) <= 1 << 19


def test_many_who_write_to_a_pipe_that_nobody_reads_do_not_wait():
    """Between `poll` and `write`, the others take the last room."""
    reader, writer = os.pipe()
    line = b"x" * 4000

    def warn():
        for _ in range(200):
            with contextlib.suppress(BlockingIOError):
                vehicle.write_now(writer, line)

    threads = [threading.Thread(target=warn, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_SECONDS)
    blocked = any(thread.is_alive() for thread in threads)
    assert os.get_blocking(writer)  # other programs that write there wait as before
    os.close(reader)
    os.close(writer)
    assert not blocked


def test_a_terminal_that_nobody_reads_is_not_waited_for():
    """It says that it has room as long as it has any, and then waits until all has been written."""
    master, terminal = os.openpty()

    def warn():
        for _ in range(20):
            with contextlib.suppress(BlockingIOError):
                vehicle.write_now(terminal, b"x" * 3000)

    thread = threading.Thread(target=warn, daemon=True)
    thread.start()
    thread.join(HANG_SECONDS)
    blocked = thread.is_alive()
    assert os.get_blocking(terminal)
    assert os.read(master, 100) == b"x" * 100
    termios.tcflush(terminal, termios.TCIOFLUSH)
    os.close(master)
    assert not blocked


def test_a_file_takes_all_of_it_where_it_stands(tmp_path):
    with (tmp_path / "log").open("wb") as log:
        log.write(b"before\n")
        log.flush()
        vehicle.write_now(log.fileno(), b"y" * 100_000)
        log.write(b"after")
    text = (tmp_path / "log").read_bytes()
    assert (text[:7], len(text), text[-5:]) == (b"before\n", 100_012, b"after")


def test_the_stream_of_a_program_around_it_is_used_and_not_trusted(monkeypatch, capsys):
    vehicle.warn_owner("seen")
    assert capsys.readouterr().err == "seen\n"

    class Broken:
        def write(self, _text):
            raise RuntimeError

    monkeypatch.setattr(sys, "stderr", Broken())
    vehicle.warn_owner("not seen")
    monkeypatch.setattr(sys, "stderr", None)
    vehicle.warn_owner("not seen")


def test_a_handler_of_another_program_stops_nothing():
    class Refuses(logging.Handler):
        def emit(self, _record):
            raise RuntimeError

    logger = logging.getLogger("fedldp_fleet.agent")
    handler = Refuses()
    logger.addHandler(handler)
    try:
        owner.log(logger, logging.WARNING, "%d values", 3)
    finally:
        logger.removeHandler(handler)


def test_warnings_are_no_errors_in_a_process_that_holds_data(monkeypatch):
    monkeypatch.setattr(sys, "warnoptions", ["error"])
    monkeypatch.setattr(sys, "stderr", sys.__stderr__)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        owner.protect_process()
        warnings.warn("1 value is clipped", DataWarning, stacklevel=1)
    assert isinstance(sys.stderr, owner.OwnerStream)
    assert len(caught) == 1


# The structure: who may write to standard error

# Where a vehicle's programs begin: (module, function), or a whole file outside the package.
ENTRIES = (
    ("fedldp.vehicle", "main"),
    ("fedldp.cli.__init__", "main"),
    ("fedldp.cli.reports", "report_command"),
    ("fedldp_fleet.commands.agent", "run_command"),
    ("fedldp_fleet.agent.holders", "many_vehicles"),
    ("fedldp_fleet.agent.one", "OneVehicle"),
    ("fedldp_fleet.flower.mod", "LDPMod"),
)
EXAMPLES = ("examples/flower/iris/client_app.py",)
GUARDED = {
    ("fedldp.vehicle", "warn_owner"),
    ("fedldp._internal.owner", "open_standard_error"),
    ("fedldp._internal.owner", "protect_process"),
}


def path_of(module):
    parent = "fleet" if module.startswith("fedldp_fleet") else "src"
    base = ROOT / parent / Path(*module.split("."))
    return base.with_suffix(".py") if base.with_suffix(".py").exists() else base / "__init__.py"


class Definitions:
    """The functions and classes of a module, and what its names mean."""

    def __init__(self, path):
        self.tree = ast.parse(path.read_text("utf-8"))
        kinds = ast.FunctionDef | ast.ClassDef
        self.own = {node.name: node for node in self.tree.body if isinstance(node, kinds)}
        self.imported = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedldp"):
                for name in node.names:
                    self.imported[name.asname or name.name] = (node.module, name.name)


def uses(module, node, known):
    """Yield what a definition refers to in this package, as (module, name)."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            if each.id in known[module].own:
                yield module, each.id
            elif each.id in known[module].imported:
                yield known[module].imported[each.id]
        elif isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name):
            within, name = known[module].imported.get(each.value.id, ("", ""))
            if within and path_of(f"{within}.{name}").exists():
                yield f"{within}.{name}", each.attr


def reachable():
    """Return the definitions that a vehicle's programs can reach by their names."""
    known, found, seen, waiting = {}, {}, set(), list(ENTRIES)
    while waiting:
        module, name = waiting.pop()
        if (module, name) in seen or not path_of(module).exists():
            continue
        seen.add((module, name))
        if module not in known:
            known[module] = Definitions(path_of(module))
        node = known[module].own.get(name)
        if node is None:  # a constant, or the name of a package
            if name in known[module].imported:
                waiting.append(known[module].imported[name])
            continue
        found[module, name] = node
        waiting += uses(module, node, known)
    return found


def unguarded(node):
    """Yield why code could write to standard files without the guarded function."""
    for each in ast.walk(node):
        text = ast.unparse(each) if isinstance(each, ast.Attribute | ast.Call) else ""
        if text in ("sys.stderr", "sys.__stderr__", "logging.lastResort", "logging.StreamHandler"):
            yield text
        if isinstance(each, ast.Call):
            function = ast.unparse(each.func)
            keywords = {keyword.arg for keyword in each.keywords}
            if function == "print" and "file" not in keywords:
                yield text
            if keywords & {"err", "stderr"}:
                yield text
            if function in ("os.write", "logging.basicConfig", "traceback.print_exc"):
                yield text
            if function == "sys.exit" and each.args and "error" in ast.unparse(each.args[0]):
                yield text


def test_no_program_of_a_vehicle_writes_to_standard_error_by_itself():
    found = reachable()
    # What is known to be reached, across modules, classes and commands.
    assert {
        ("fedldp.vehicle", "warn_owner"),
        ("fedldp_fleet.agent.many", "ManyVehicles"),
        ("fedldp_fleet.agent.rows", "FileRows"),
        ("fedldp_fleet.agent.service", "AgentSettings"),
        ("fedldp.budget.ledger", "Ledger"),
        ("fedldp.schema.quality", "DataQuality"),
    } <= found.keys()
    allowed = GUARDED | {("fedldp.vehicle", "write_now")}
    bad = {place: [*unguarded(node)] for place, node in found.items() if place not in allowed}
    assert {place: texts for place, texts in bad.items() if texts} == {}
    for path in EXAMPLES:
        assert [*unguarded(ast.parse((ROOT / path).read_text("utf-8")))] == [], path


PROTECTIONS = {"protect_process", "protect_standard_files", "open_standard_error", "LDPMod"}


def called(path):
    """Return the last names of all functions that a file calls."""
    calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    return {ast.unparse(call.func).rpartition(".")[2] for call in calls}


def test_every_program_of_a_vehicle_is_run():
    """A program protects its standard files, and an app has the mod: each is in `PROGRAMS`."""
    folders = ("src", "examples", "fleet/fedldp_fleet", "vehicle/fedldp_vehicle")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    files = [path for path in files if not path.is_symlink() and "storage" not in path.parts]
    callers = {path.relative_to(ROOT).as_posix() for path in files if called(path) & PROTECTIONS}
    assert callers == {
        "src/fedldp/vehicle.py",
        "src/fedldp/_internal/owner.py",
        "src/fedldp/cli/__init__.py",
        "src/fedldp/cli/reports.py",
        "fleet/fedldp_fleet/__main__.py",
        "fleet/fedldp_fleet/commands/agent.py",
        "vehicle/fedldp_vehicle/command.py",
        "examples/flower/iris/client_app.py",
    }


def test_a_node_of_flower_logs_past_the_handlers_of_flower():
    own = Definitions(path_of("fedldp_fleet.flower.mod")).own
    nodes = [node for name in ("LDPMod", "_tell") for node in ast.walk(own[name])]
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    assert "node_log" in names
    assert "log" not in names
