"""A missing ledger is refused wherever one is opened, and nothing makes it but an explicit act."""

import contextlib
import os
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner

import fedldp
from fedldp.budget.ledger import Ledger, Period, asked_and_refused, create, overview, recent
from fedldp.cli.app import fedldp as command
from fedldp.errors import DomainError, WireError
from fedldp.plan.strategies import Sample
from fedldp.storage import files
from fedldp.storage.head import Head

PLAN = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 1.0, Sample(mechanism="duchi"))


def report(_):
    Path("plan.json").write_text(PLAN.to_json())
    words = ["report", "plan.json", "--cap", "4", "--ledger", "ledger.db", "-o", "out.bin"]
    done = CliRunner().invoke(command, words, input='{"speed": 3}')
    assert done.exit_code == 1
    assert not Path("out.bin").exists()
    raise done.exception


def agent(folder):
    service = pytest.importorskip("fedldp_fleet.agent.service")
    (folder / "agent.toml").write_text(
        'cap = "1"\noperator = "operator.pub"\ndata = "rows.csv"\nschema = "rows.toml"\n'
        'most_epsilon_per_period = "1"\nperiod = "12 hours"\n'
    )
    settings = service.AgentSettings.load(folder)
    _, attention = service.status(settings)
    assert any("there is no ledger" in line for line in attention)
    settings.ledger()


def mod(folder):
    flower = pytest.importorskip("fedldp_fleet.flower.mod")
    flower.LDPMod(PLAN, ledger=folder / "ledger.db", cap=1)


WAYS = {
    "Ledger": lambda folder: Ledger(folder / "ledger.db", 1),
    "overview": lambda folder: overview(folder / "ledger.db"),
    "recent": lambda folder: recent(folder / "ledger.db", Period(Fraction(1), 60)),
    "asked": lambda folder: asked_and_refused(folder / "ledger.db"),
    "report": report,
    "agent": agent,
    "mod": mod,
}


@pytest.mark.parametrize("use", WAYS.values(), ids=WAYS)
def test_it_is_refused_and_the_error_says_what_to_do(tmp_path, monkeypatch, use):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WireError, match=r"there is no ledger .*`fedldp ledger init .*ledger seal"):
        use(tmp_path)
    assert not list(tmp_path.glob("ledger*"))


def test_a_ledger_is_made_once(tmp_path):
    path = tmp_path / "ledger.db"
    with Ledger.create(path, 1) as ledger:
        ledger.release("car", 1, "1", lambda: b"a")
    for again in (create, lambda path: Ledger.create(path, 1)):
        with pytest.raises(DomainError, match=r"there is a ledger .* already"):
            again(path)
    path.unlink()
    with pytest.raises(WireError, match="it is gone, but its -head is still there"):
        create(path)


@pytest.mark.parametrize("step", range(12))
def test_what_fails_while_it_is_made_leaves_nothing_that_stops_it_later(
    tmp_path, monkeypatch, step
):
    """Each write of the head, each sync and the new name, which a full disk may refuse."""
    calls = [0]

    def mortal(call):
        def wrapped(*arguments):
            calls[0] += 1
            if calls[0] == step + 1:
                raise OSError(28, "No space left on device")
            return call(*arguments)

        return wrapped

    with monkeypatch.context() as patch:
        for owner, name in (
            (Head, "_write_at"),
            (os, "fsync"),
            (files, "sync"),
            (Path, "rename"),
            (files, "new_folder"),
        ):
            patch.setattr(owner, name, mortal(getattr(owner, name)))
        with contextlib.suppress(OSError):
            create(tmp_path / "ledger")
    if not (tmp_path / "ledger").exists():
        create(tmp_path / "ledger")
    assert overview(tmp_path / "ledger").totals == {}
    assert {each.name for each in tmp_path.iterdir()} == {"ledger", "ledger-head"}
