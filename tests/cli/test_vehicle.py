"""The command line: no row may silence a vehicle, no report is lost, study stays study."""

import io
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ledgers import made, untouched

import fedldp
from fedldp.cli import main
from fedldp.plan.strategies import Sample

SCHEMA = fedldp.Schema.of(age=(0, 100), city=["Oslo", "Rome"])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = fedldp.Plan(SCHEMA, 2.0, Sample(mechanism="duchi"))
    (tmp_path / "plan.json").write_text(plan.to_json())
    made("l.db")
    return plan


def run_process(*arguments):
    command = [sys.executable, "-m", "fedldp", *arguments]
    return subprocess.run(command, capture_output=True, check=False)


@pytest.fixture
def run(capfdbinary, monkeypatch):
    """Return a function that runs a command in this process, as `fedldp` begins and ends."""

    def run_here(*arguments, given=b""):
        monkeypatch.setattr(sys, "argv", ["fedldp", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        with pytest.raises(SystemExit) as ended:
            main()
        return subprocess.CompletedProcess(
            arguments, ended.value.code or 0, *capfdbinary.readouterr()
        )

    return run_here


def write(content):
    Path("row.json").write_bytes(content)
    return "row.json"


ROWS = {
    "whole": b'{"age": 31, "city": "Rome"}',
    "a wrong value": b'{"age": "old", "city": []}',
    "nothing": b"{}",
}


@pytest.mark.parametrize("name", ROWS)
def test_whatever_a_row_holds_a_report_goes_out(folder, name, run):
    run = run_process if name == "a wrong value" else run
    done = run("report", "plan.json", write(ROWS[name]), "--cap", "4", "--ledger", "l.db")
    assert done.returncode == 0
    assert bool(done.stderr) == (name in ("a wrong value", "nothing"))
    assert folder.parse(done.stdout).reports == 1


NO_ROWS = {
    "values": lambda: write(b'[31, "Rome"]'),
    "a row and a value": lambda: write(b'[{"age": 31, "city": "Rome"}, 7]'),
    "no JSON": lambda: write(b"\xff\xfe{"),
    "deep": lambda: write(b"[" * 100_000),
    "missing": lambda: "nowhere.json",
    "a folder": lambda: os.curdir,
    "unreadable": lambda: "/proc/self/mem",
}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", NO_ROWS)
def test_an_invalid_row_is_refused_in_a_line_and_costs_nothing(name, run):
    run = run_process if name == "no JSON" else run
    done = run("report", "plan.json", NO_ROWS[name](), "--cap", "4", "--ledger", "l.db")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"fedldp: ")
    assert done.stderr.count(b"\n") == 1
    assert untouched("l.db")


@pytest.mark.usefixtures("folder")
def test_without_any_standard_input():
    command = f"{sys.executable} -m fedldp report plan.json --cap 4 --ledger l.db <&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"expected a row on standard input" in done.stderr
    assert untouched("l.db")


def test_a_slow_reader_does_not_hold_the_ledger(folder):
    """The row is read before the ledger is touched: here, while another vehicle answers."""
    command = [sys.executable, "-m", "fedldp", "report", "plan.json", "--cap", "4"]
    command += ["--ledger", "l.db", "--key", "slow"]
    slow = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    row = write(b"{}")
    quick = run_process("report", "plan.json", row, "--cap", "4", "--ledger", "l.db")
    assert quick.returncode == 0
    assert slow.poll() is None
    out, _ = slow.communicate(b"{}")
    assert slow.returncode == 0
    assert folder.parse(out).reports == folder.parse(quick.stdout).reports == 1


@pytest.mark.usefixtures("folder")
def test_a_ledger_that_cannot_be_written_is_one_line(run):
    row = write(b'{"age": 31, "city": "Rome"}')
    done = run("report", "plan.json", row, "--cap", "4", "--ledger", "plan.json")
    assert done.returncode == 1
    assert done.stdout == b""
    assert done.stderr.count(b"\n") == 1
    assert done.stderr.startswith(b"fedldp: ")


def test_tallies_at_the_same_time_lose_nothing(folder):
    rows = [{"age": 50, "city": "Oslo"}] * 300
    for number in range(4):
        data = folder.report(rows, fedldp.source(number)).to_bytes()
        Path(f"{number}.bin").write_bytes(data)
    with ThreadPoolExecutor(4) as pool:
        arguments = [("tally", "plan.json", f"{i}.bin", "-o", "tally.json") for i in range(4)]
        done = list(pool.map(lambda each: run_process(*each), arguments))
    assert [each.returncode for each in done] == [0] * 4
    assert folder.load_tally("tally.json").reports == 1200


def test_a_link_stays_a_link(folder, tmp_path, run):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link.json").symlink_to("elsewhere/tally.json")
    assert run("tally", "plan.json", "-o", "link.json").returncode == 0
    assert (tmp_path / "link.json").is_symlink()
    assert folder.load_tally(tmp_path / "elsewhere" / "tally.json").reports == 0


def test_collect_for_study_takes_what_has_no_table(folder, tmp_path, run):
    rows = "".join(f"{20 + i % 60},{'Oslo' if i % 4 else 'Rome'}\n" for i in range(2000))
    (tmp_path / "fleet.csv").write_text("age,city\n" + rows)
    (tmp_path / "fleet.toml").write_text(folder.schema.to_toml())
    collect = ["collect", "fleet.csv", "--schema", "fleet.toml", "--epsilon", "4", "--json"]
    collect += ["--mechanism", "laplace", "--strategy", "split", "--seed", "1"]
    refused = run(*collect)
    assert refused.returncode == 1
    assert b"laplace has no channel" in refused.stderr
    without = [each for each in collect if each not in ("--strategy", "split")]
    for words in (collect, [*without, "--paper"]):
        document = json.loads(run(*words, "--study").stdout)
        assert document["bits_per_vehicle"] is None
        for row in document["estimates"]:
            assert abs(row["estimate"] - row["truth"]) < 5 * row["stderr"]
