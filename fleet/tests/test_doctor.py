"""What the doctor of an agent finds, and that it spends nothing."""

import json

import pytest
from click.testing import CliRunner
from engine_cases import OPERATOR, PLAN
from fleet_server import running

from fedldp import Vehicle
from fedldp.budget.ledger import Ledger
from fedldp.cli.app import fedldp
from fedldp_fleet.agent import service

SCHEMA = "speed = { low = 0, high = 50 }\n"


@pytest.fixture
def agent(tmp_path):
    """An agent that has joined a server, as its owner makes it."""
    (tmp_path / "server").mkdir()
    folder = tmp_path / "car"
    (tmp_path / "operator.pub").write_text(OPERATOR.public.text)
    (tmp_path / "rows.csv").write_text("speed\n31\n")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    files = [f"--{name}={tmp_path / file}" for name, file in FILES.items()]
    with running(tmp_path / "server", operator=OPERATOR) as server:
        done = CliRunner().invoke(fedldp, ["agent", "init", str(folder), "--cap=4", *files])
        assert done.exit_code == 0, done.output
        service.join(folder / "network", server.url, server.enroll("car"), server.ca)
        yield folder, server


FILES = {"operator": "operator.pub", "data": "rows.csv", "schema": "schema.toml"}


def doctor(folder):
    done = CliRunner().invoke(fedldp, ["agent", "doctor", str(folder)])
    return done.exit_code, done.output


def test_an_agent_that_can_start(agent):
    folder, _ = agent
    assert doctor(folder) == (0, f"{folder} is ready.\n")
    with Ledger(folder / "ledger.db", 4) as ledger:
        assert ledger.totals() == {}


def test_each_finding_is_a_sentence(agent, tmp_path):
    folder, server = agent
    (tmp_path / "rows.csv").write_text("speed\n80\n")
    assert "1 of 1 (100%) clipped" in doctor(folder)[1]
    (tmp_path / "rows.csv").write_text("speed\n31\n")
    (folder / "outbox.db").touch(mode=0o644)
    assert "can be read by others" in doctor(folder)[1]
    (folder / "outbox.db").unlink()
    server.revoke("car")
    server.tick()
    status, said = doctor(folder)
    assert (status, said.count("\n")) == (1, 1)
    assert "does not know this agent, or has revoked it" in said
    (tmp_path / "operator.pub").write_text("no key")
    assert "operator:" in doctor(folder)[1]


def test_the_status_can_be_read(agent):
    folder, _ = agent
    with Ledger(folder / "ledger.db", 4) as ledger:
        Vehicle(ledger, "1").answer(PLAN, {"speed": 31, "load": 0.5, "late": "no"}, job="spring")
    state = {"format": service.STATE_FORMAT, "since": 0, "last_call": 60, "next_call": None}
    (folder / service.STATE).write_text(json.dumps(state))
    said = CliRunner().invoke(fedldp, ["agent", "status", str(folder)]).output
    for line in (
        "running: no",
        "last call: 1970-01-01 00:01:00 UTC",
        "next call: never",
        "left: epsilon 2.0 (vehicles: 1)",
        "jobs: spring (answers: 1)",
    ):
        assert line in said.splitlines()


def test_a_lost_ledger(agent):
    folder, _ = agent
    for path in folder.glob("ledger.db*"):
        path.unlink()
    assert "there is no ledger" in doctor(folder)[1]
