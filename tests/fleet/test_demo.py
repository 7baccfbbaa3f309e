"""A demo of a fleet whose server fails fails itself, and says why."""

import io
import re
import tempfile

import pytest
from click.testing import CliRunner
from rich.console import Console

from fedldp import Category, Number
from fedldp.cli.fleet import demo as fleet_demo
from fedldp.errors import DomainError
from fedldp.fleet.processes import Process


def demo(folder, monkeypatch, **scripts):
    """Run a demo whose parts are scripts of a shell; by default they sleep."""
    before = fleet_demo._part

    def part(kind, path):
        restart = before(kind, path).restart
        return Process(path.name, ("sh", "-c", scripts.get(kind, "sleep 99")), restart=restart)

    monkeypatch.setattr(fleet_demo, "_part", part)
    return CliRunner().invoke(fleet_demo.demo_command, ["--rows", "200", "-o", str(folder)])


def test_a_demo_whose_server_fails_fails_at_once(tmp_path, monkeypatch):
    done = demo(tmp_path / "fleet", monkeypatch, server="echo out of order; exit 7")
    assert done.exit_code != 0
    assert isinstance(done.exception, DomainError)
    assert "the server ended with status 7" in str(done.exception)
    assert "out of order" in str(done.exception)
    stages = ["Reading", "Writing the fleet's folder", "Starting 3 vaults", "Stopping", "is kept"]
    places = [done.stderr.index(stage) for stage in stages]
    assert places == sorted(places)
    assert done.stdout == ""


def test_a_demo_says_what_it_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(fleet_demo, "_PATIENCE", 0.5)
    done = demo(tmp_path / "fleet", monkeypatch, vault="sleep 0.1")
    assert isinstance(done.exception, DomainError)
    assert "Starting the server: 0 of 3 gateways are registered" in str(done.exception)


def test_a_demo_reports_parts_that_die(tmp_path, monkeypatch):
    """The server of this one ends some time after a vault was started for the second time."""
    lives = tmp_path / "lives"
    lives.touch()
    server = f"while [ $(wc -l < {lives}) -lt 4 ]; do sleep 0.1; done; sleep 3; exit 1"
    done = demo(tmp_path / "fleet", monkeypatch, vault=f"echo >> {lives}; exit 1", server=server)
    assert re.search(r"vault-\d died and was started again: see .*/vault-\d\.log", done.stderr)


def test_a_temporary_folder_stays_if_the_demo_fails(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(fleet_demo, "_run", interrupted)
    done = CliRunner().invoke(fleet_demo.demo_command, ["--rows", "200"])
    assert done.exit_code == 1
    [folder] = tmp_path.glob("fleet-*")
    assert f"{folder}/*/state" in done.stderr
    assert (folder / "server" / "job.toml").exists()


DOCUMENT = {
    "error": 0.04,
    "base_rate": 0.0625,
    "weights": 36,
    "simulated": {"seeds": 30, "error": 0.05, "spread": 0.0125},
    "ledgers": dict.fromkeys(
        ("burnt", "burnt_and_not_received", "answered_twice", "over_the_cap", "most_spent"), 0
    ),
    "ended": "all rounds are done",
} | dict.fromkeys(
    ("vehicles", "epsilon", "rounds", "reports", "planned", "surveyed", "bytes", "asked"), 1
)
DOCUMENT |= dict.fromkeys(("refusals", "silent", "seconds"), 0)


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        (Category("late", ["no", "yes"]), ["4.00%", "5.00%, standard deviation 1.25%", "6.25%"]),
        (
            Number("delay", 0, 20),
            ["0.04 (root mean square: 2)", "standard deviation 0.013", "mean square: 2.5)"],
        ),
    ],
)
def test_a_demo_shows_errors_in_the_units_of_its_target(target, shown):
    out = io.StringIO()
    Console(file=out, width=120).print(fleet_demo._render("A title", DOCUMENT, target))
    assert "A title" in out.getvalue()
    assert all(text in out.getvalue() for text in shown)
