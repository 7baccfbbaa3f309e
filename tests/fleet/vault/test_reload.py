"""A vault whose data change: budgets stay with their vehicles, or the owner is told."""

import datetime
import logging
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest
from click.testing import CliRunner
from vault_folders import SCHEMA, configured

from fedldp import Plan, Schema
from fedldp.cli.app import fedldp
from fedldp.errors import DomainError, WireError
from fedldp.fleet.gateway.relay import ask
from fedldp.fleet.job import Job
from fedldp.fleet.protocol import Question
from fedldp.fleet.signed_jobs import SignedJob
from fedldp.fleet.sockets import Address
from fedldp.fleet.vault import reload
from fedldp.fleet.vault.listener import Listener
from fedldp.fleet.vault.reload import Outcome
from fedldp.signing import PrivateKey, PublicKeys, sign

OTHER = Schema.of(speed=(0, 99), city=["Oslo", "Rome"]).to_toml()
PLAN = Plan(SCHEMA, epsilon=1.0).to_json()
HEAD = "id,speed,city\n"
OLD = HEAD + "a,31,Rome\nb,48,Oslo\n"
NEW = HEAD + "c,12,Rome\na,31,Rome\nb,48,Oslo\nd,1,Oslo\n"  # everybody has moved


def question(job="spring", n=9):
    return Question(job, 1, "7", n, PLAN)


def until_it_listens(folder):
    end = time.monotonic() + 60
    while not (folder / "s").exists():
        assert time.monotonic() < end
        time.sleep(0.02)


class Running:
    """A vault that serves in this process, and what its log says."""

    def __init__(self, folder, operator_text=None, **entries):
        (folder / "rows.csv").write_text(OLD)
        if operator_text is not None:
            (folder / "operator.pub").write_text(operator_text)
        (folder / "state").mkdir()
        self.folder = folder
        self.config = configured(folder, **{"vehicle": "id", "cap": "2.0"} | entries)
        self.ledger = self.config.ledger()
        data, _ = self.config.read()
        self.schema = data[0]
        self.vault = self.config._vault(data, self.ledger)
        self.listener = Listener(self.vault, Address.of(str(folder / "s")), 0.01, 10.0)

    def reload(self, **options):
        self.config.reload(self.listener, self.schema, self.ledger, **options)
        return Outcome.load(self.folder)

    def ask(self, *words):
        return self.listener._vault.answer(question(*words))

    def close(self):
        self.listener.close()
        self.ledger.close()


@pytest.fixture
def running(tmp_path):
    made = []

    def make(**entries):
        made.append(Running(tmp_path, **entries))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_new_key_of_the_operator_is_read_too(running):
    """Old and new are valid between two reloads; nobody restarts the vault."""
    job = Job("spring", Plan(SCHEMA, epsilon=1.0), "job.db", "tally.json", reports=2)
    old, new = PrivateKey.generate(), PrivateKey.generate()
    expires = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    document = SignedJob.of(job, expires).to_document()
    asked = [replace(job, signed=sign(key, document)).question("7", 1) for key in (old, new)]
    vault = None
    for pinned, refused in (([old], asked[1]), ([old, new], None), ([new], asked[0])):
        text = PublicKeys(tuple(key.public for key in pinned)).text
        if vault is None:
            vault = running(operator="operator.pub", operator_text=text)
        else:
            (vault.folder / "operator.pub").write_text(text)
            assert vault.reload().done
        for each in asked:
            if each is refused:
                with pytest.raises(WireError, match="not signed by the expected key"):
                    vault.listener._vault.answer(each)
            else:
                assert vault.listener._vault.answer(each).answered == 2
    (vault.folder / "operator.pub").write_text("damaged")
    assert not vault.reload().done  # it keeps the keys that it has
    assert vault.listener._vault.answer(asked[1]).answered == 2


@pytest.mark.parametrize("missing", ["column", "file"])
def test_a_key_is_forgotten_even_if_the_data_cannot_be_reloaded(running, missing):
    """It may have been stolen."""
    job = Job("spring", Plan(SCHEMA, epsilon=1.0), "job.db", "tally.json", reports=2)
    old, new = PrivateKey.generate(), PrivateKey.generate()
    expires = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    asked = replace(job, signed=sign(old, SignedJob.of(job, expires).to_document()))
    column = {"vehicle": None} if missing == "column" else {}
    vault = running(operator="operator.pub", operator_text=old.public.text, **column)
    (vault.folder / "operator.pub").write_text(new.public.text)
    if missing == "file":
        (vault.folder / "rows.csv").unlink()
    found = vault.reload()
    assert not found.done
    assert "the operator's key was read again, but the data were not reloaded" in found.said
    with pytest.raises(WireError, match="not signed by the expected key"):
        vault.listener._vault.answer(asked.question("7", 1))


def test_a_vehicle_keeps_its_budget_wherever_its_row_is(running):
    one = running(cap="1.0")
    first = one.ask()
    assert first.answered == 2
    (one.folder / "rows.csv").write_text(NEW)
    found = one.reload()
    assert found == Outcome(True, "read rows.csv again: 4 vehicles, 2 new, 0 no longer there.")
    assert one.ask() == first  # the same question, the same bytes
    assert one.ask("summer").answered == 2  # c and d: the others have spent their cap
    assert set(one.ledger.totals().values()) == {1}
    assert set(one.ledger.totals()) == {"a", "b", "c", "d"}


def test_a_vehicle_that_left_and_came_back_has_spent_what_it_had(running):
    one = running(cap="1.0")
    one.ask()
    (one.folder / "rows.csv").write_text(HEAD + "c,12,Rome\n")
    assert one.reload().said.endswith("1 vehicles, 1 new, 2 no longer there.")
    (one.folder / "rows.csv").write_text(OLD)
    assert one.reload().done
    assert one.ask("summer").answered == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rows.csv": None}, "rows.csv"),
        ({"rows.csv": HEAD}, "has no rows"),
        ({"rows.csv": "id,speed\na,31\n"}, "city"),
        ({"rows.csv": "speed,city\n31,Rome\n"}, "no column 'id' with vehicle ids"),
        ({"rows.csv": HEAD + ",31,Rome\n"}, "has no rows of a known vehicle"),
        (
            {"rows.toml": Schema.of(speed=(0, 99), city=["Oslo", "Rome"]).to_toml()},
            "rows.toml has changed",
        ),
        ({"rows.toml": "["}, "not valid TOML"),
    ],
)
def test_what_cannot_be_read_changes_nothing(running, caplog, change, said):
    one = running()
    for name, text in change.items():
        if text is None:
            (one.folder / name).unlink()
        else:
            (one.folder / name).write_text(text)
    found = one.reload()
    assert not found.done
    assert found.said.startswith("the data were not reloaded, the old ones stay: ")
    assert said in found.said
    assert found.said in caplog.text
    assert one.listener._vault is one.vault
    assert one.ask().answered == 2


def test_without_a_vehicle_column_nothing_is_reloaded(running):
    one = running(vehicle=None)
    (one.folder / "rows.csv").write_text(NEW)
    found = one.reload()
    assert not found.done
    assert "has no entry `vehicle`" in found.said
    assert one.listener._vault is one.vault


def test_a_strict_vault_takes_no_data_that_it_would_replace(running):
    one = running()
    (one.folder / "rows.csv").write_text(HEAD + "a,x,Rome\n")
    assert not one.reload(strict=True).done
    assert one.reload().done


def test_it_happens_between_two_answers(running, monkeypatch):
    """A reload waits for the answer in progress, and finds what it has spent."""
    one = running(cap="1.0")
    reached, free = threading.Event(), threading.Event()
    records = one.vault._records

    def slow(*words):
        reached.set()
        assert free.wait(60)
        return records(*words)

    monkeypatch.setattr(one.vault, "_records", slow)
    threading.Thread(target=one.listener.serve, daemon=True).start()
    answers = []
    end = time.monotonic() + 60
    asking = threading.Thread(
        target=lambda: answers.append(ask(Address.of(str(one.folder / "s")), question(), end))
    )
    asking.start()
    assert reached.wait(60)
    (one.folder / "rows.csv").write_text(NEW)
    reloading = threading.Thread(target=one.reload)
    reloading.start()
    reloading.join(0.2)
    assert reloading.is_alive()
    assert one.listener._vault is one.vault
    free.set()
    reloading.join(60)
    asking.join(60)
    assert answers[0].answered == 2
    assert len(one.listener._vault) == 4
    assert one.ask("summer").answered == 2


def test_a_process_reloads_when_it_is_told_to(tmp_path):
    (tmp_path / "rows.csv").write_text(OLD)
    configured(tmp_path, vehicle="id")
    with pytest.raises(DomainError, match="is not running, so there is nothing to reload"):
        reload.request(tmp_path)
    words = [sys.executable, "-m", "fedldp.fleet.vault", tmp_path]
    process = subprocess.Popen(words)
    try:
        until_it_listens(tmp_path)
        assert not (tmp_path / "state" / "rows.json").exists()
        (tmp_path / "rows.csv").write_text(NEW)
        assert "4 vehicles, 2 new" in reload.request(tmp_path, 60).said
        (tmp_path / "rows.csv").unlink()
        told = CliRunner().invoke(fedldp, ["fleet", "reload", str(tmp_path)])
        assert told.exit_code == 1
        assert "the old ones stay" in told.output
        os.kill(process.pid, signal.SIGHUP)
        asked = ask(Address.of(str(tmp_path / "s")), question(), time.monotonic() + 60)
        assert asked.answered == 4
    finally:
        process.terminate()
        assert process.wait() == 0


def test_a_vault_ends_with_its_terminal_and_reloads_as_long_as_it_is_open(tmp_path):
    (tmp_path / "rows.csv").write_text(OLD)
    configured(tmp_path, vehicle="id")
    child, terminal = pty.fork()
    if not child:
        os.execv(sys.executable, [sys.executable, "-m", "fedldp.fleet.vault", str(tmp_path)])
    try:
        until_it_listens(tmp_path)
        assert reload.request(tmp_path, 60).done
    finally:
        os.close(terminal)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert not (tmp_path / "s").exists()


# At a restart.


def start(folder, caplog, **entries):
    """Start a vault as far as its warnings, and return them."""
    (folder / "state").mkdir(exist_ok=True)
    config = configured(folder, **entries)
    caplog.clear()
    with config.ledger() as ledger, caplog.at_level(logging.WARNING):
        config._log_identity(config.read()[0], ledger)
    return caplog.text


def spend(folder, *vehicles):
    with configured(folder).ledger() as ledger:
        for each in vehicles:
            ledger.release(each, 1, "spring/1", lambda: b"x")


def test_rows_that_may_have_moved_are_reported_once(tmp_path, caplog):
    rows = tmp_path / "rows.csv"
    rows.write_text(OLD)
    assert start(tmp_path, caplog) == ""
    rows.write_text(NEW)
    assert start(tmp_path, caplog) == ""  # nobody has answered yet
    rows.write_text(OLD)
    start(tmp_path, caplog)
    spend(tmp_path, "0")
    assert start(tmp_path, caplog) == ""
    rows.write_text(OLD + "c,12,Rome\n")
    assert start(tmp_path, caplog) == ""  # at the end it moves nobody
    for text, counts in (
        (HEAD + "d,1,Oslo\n" + OLD.removeprefix(HEAD), "(3 rows then, 3 now)"),
        (HEAD + "d,1,Oslo\n", "(3 rows then, 1 now)"),
        (HEAD + "d,2,Oslo\n", "(1 rows then, 1 now)"),
    ):
        rows.write_text(text)
        assert counts in start(tmp_path, caplog)
        assert start(tmp_path, caplog) == ""
    (tmp_path / "state" / "rows.json").write_text("damaged")
    assert start(tmp_path, caplog) == ""


def test_with_a_vehicle_column_rows_may_move(tmp_path, caplog):
    (tmp_path / "rows.csv").write_text(OLD)
    spend(tmp_path, "a")
    assert start(tmp_path, caplog, vehicle="id") == ""
    (tmp_path / "rows.csv").write_text(NEW)
    assert start(tmp_path, caplog, vehicle="id") == ""
    assert not (tmp_path / "state" / "rows.json").exists()


def test_vehicles_under_new_ids_are_reported(tmp_path, caplog):
    """For example after somebody has added the vehicle column to vault.toml."""
    (tmp_path / "rows.csv").write_text(OLD)
    spend(tmp_path, "0", "1")
    assert start(tmp_path, caplog) == ""
    said = start(tmp_path, caplog, vehicle="id")
    assert "None of the 2 vehicles in the ledger is in the data." in said
