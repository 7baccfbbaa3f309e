"""The server's file: one process has it, what is in it stays, and it can be computed again."""

import contextlib
import sqlite3
import subprocess
import sys

import numpy as np
import pytest

import fedldp
from fedldp import Number, Plan, Schema
from fedldp._internal import packing
from fedldp.errors import DomainError, WireError
from fedldp.fleet.protocol import Answer, Question
from fedldp.fleet.server import checkpoint as module
from fedldp.fleet.server.checkpoint import (
    Checkpoint,
    Counts,
    Standing,
    finished,
    locked,
    status,
)
from fedldp.fleet.stages import Descent
from fedldp.learn.model import Model
from fedldp.learn.optimizer import Adam, Recipe, State, observed, step
from fedldp.storage import locks

PLAN = Plan(Schema.vector(2, 1.0), 2.0, mechanism="three-outputs", k=1)
MODEL = Model("squared", Schema.of(x=(-1, 1)), Number("y", -1, 1), (0.0, 0.0))
NONE = Counts()
START = State.start(np.zeros(2)).to_json()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "job.db"


@pytest.fixture
def checkpoint(path):
    with Checkpoint(path, "test", "settings", START) as checkpoint:
        yield checkpoint


def question(number=1, gateway="7", n=10):
    return Question("test", number, gateway, n, PLAN.to_json())


def gradients(recipe=None, plan=PLAN):
    """Return the only stage of a training."""
    return Descent((plan,), 3, 10, MODEL, recipe or Recipe(Adam(0.1)))


def answer(asked, answered=10, silent=0, seed=1):
    report = PLAN.report(np.full((answered, 2), 0.5), fedldp.source(seed))
    batch = Answer.of(asked, packing.parse(report.records, answered, PLAN.bits).split(), silent)
    report = batch.report(PLAN.fingerprint).to_bytes()
    return asked, batch, report, PLAN.parse(report)


def test_one_has_the_file(path, monkeypatch):
    monkeypatch.setattr(locks, "RETRY_SECONDS", 0.0)
    assert not locked(path)
    with Checkpoint(path, "test", "settings"):
        assert locked(path)
        assert locked(path.parent / ".." / "state" / "job.db")
        for _ in range(2):
            with pytest.raises(BlockingIOError, match=r"job\.db is locked by another server"):
                Checkpoint(path, "test", "settings")
        assert locked(path)
    assert not locked(path)
    Checkpoint(path, "test", "settings").close()


def test_the_lock_goes_with_its_process(path):
    """However it ends; and another process sees it while it lives."""
    script = (
        "import sys; from fedldp.fleet.server.checkpoint import Checkpoint\n"
        f"kept = Checkpoint({str(path)!r}, 'test', 'settings'); print('ready', flush=True)\n"
        "sys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script], **pipes) as process:
        assert process.stdout.readline() == b"ready\n"
        assert locked(path)
        found = status(path)
        assert (found.job, found.rounds, found.asked, found.gateways) == ("test", 0, 0, ())
        assert (found.total, found.open, found.ended, found.failed) == (NONE, NONE, "", False)
        process.kill()
    assert not locked(path)
    Checkpoint(path, "test", "settings").close()


def test_who_only_looks_does_not_keep_others_out(path, monkeypatch):
    """A look takes a moment, and a process that wants the file tries again."""
    Checkpoint(path, "test", "settings").close()
    looks = locks.lock_file(path).open("rb")
    locks.fcntl.flock(looks, locks.fcntl.LOCK_SH)
    monkeypatch.setattr(locks, "sleep", lambda _: looks.close())
    Checkpoint(path, "test", "settings").close()


@pytest.mark.parametrize("given", [("other", "settings"), ("test", "others")])
def test_another_job_is_refused(path, given):
    Checkpoint(path, "test", "settings", START).close()
    with pytest.raises(
        DomainError, match=r"belongs to the job 'test', or was begun with another plan"
    ):
        Checkpoint(path, *given, START)
    with pytest.raises(
        DomainError, match=r"belongs to the job 'test', or was begun with another plan"
    ):
        module.check(path, *given)
    assert not locked(path)
    module.check(path, "test", "settings")
    with Checkpoint(path, "test", "settings", "another start") as again:
        assert again.standing.state == START


def test_a_file_that_is_none(path):
    path.parent.mkdir()
    for data in (b"", b"garbage" * 1000):
        path.write_bytes(data)
        with pytest.raises(WireError, match=r"is not a valid checkpoint.*ask vehicles again"):
            Checkpoint(path, "test", "settings")
        assert not locked(path)
        with pytest.raises(WireError):
            status(path)


def test_before_a_job_begins(path):
    assert not finished(path)
    assert status(path) is None
    module.check(path, "test", "settings")
    with pytest.raises(DomainError, match="expected the checkpoint of a job that has begun"):
        module.replay(path, [gradients()])
    assert not path.exists()
    path.parent.mkdir()
    module.Database(path, module._KIND).close()  # killed between making the file and the job
    assert status(path) is None
    Checkpoint(path, "test", "settings").close()
    assert status(path).job == "test"


def test_asks_and_batches(path, checkpoint):
    asks = {name: question(gateway=name) for name in ("7", "8", "9")}
    checkpoint.ask(asks.values())
    assert checkpoint.asked == {name: ask.digest for name, ask in asks.items()}
    checkpoint.store(*answer(asks["8"], 6, silent=1))
    assert checkpoint.pending == ["7", "9"]
    assert checkpoint.counts(1) == Counts(30, 6, 3, 1)
    assert checkpoint.counts(1).waiting == 20
    assert checkpoint.counts(2) == NONE
    seen = status(path)
    assert (seen.asked, seen.received, seen.rounds) == (3, 1, 0)
    assert (seen.reports, seen.refusals, seen.silent) == (6, 3, 1)
    assert (seen.total, seen.last, seen.open) == (Counts(30, 6, 3, 1), NONE, Counts(30, 6, 3, 1))
    assert seen.bytes == {"8": asks["8"].size}
    checkpoint.step("next")
    assert checkpoint.standing == Standing(1, "next", "", 0)
    assert (checkpoint.asked, checkpoint.pending) == ({}, [])
    assert (status(path).asked, status(path).received, status(path).reports) == (0, 0, 6)
    done = Counts(30, 6, 3, 21)  # nobody waits for two gateways any more: they were silent
    assert checkpoint.history() == [done]
    seen = status(path)
    assert (seen.total, seen.last, seen.open) == (done, done, NONE)
    checkpoint.end("done")
    assert finished(path)
    assert status(path).ended == "done"
    assert not status(path).failed


def test_a_gateway_is_asked_once(checkpoint):
    checkpoint.ask([question()])
    with pytest.raises(OSError, match="UNIQUE"):
        checkpoint.ask([question(gateway="8"), question(n=9)])
    assert checkpoint.asked == {"7": question().digest}  # all of it or nothing
    with pytest.raises(DomainError, match="expected questions of round 1; got one of round 2"):
        checkpoint.ask([question(2, "9")])


def test_the_first_batch_stays(checkpoint):
    checkpoint.ask([question()])
    checkpoint.store(*answer(question()))
    tally = checkpoint.tally(PLAN, 1)
    checkpoint.store(*answer(question(), 4, seed=2))
    assert checkpoint.tally(PLAN, 1) == tally == PLAN.parse(answer(question())[2])


@pytest.mark.parametrize("number", [1, 3])
def test_only_the_open_round_is_counted(checkpoint, number):
    checkpoint.ask([question()])
    checkpoint.step(START)
    with pytest.raises(DomainError, match=f"round {number} is not open"):
        checkpoint.store(*answer(question(number)))
    assert checkpoint.tally(PLAN, number).reports == 0


def test_all_is_there_after_the_process_has_gone(path):
    with Checkpoint(path, "test", "settings", START) as checkpoint:
        checkpoint.ask([question(), question(gateway="8")])
        checkpoint.store(*answer(question()))
    with Checkpoint(path, "test", "settings", START) as checkpoint:
        assert checkpoint.pending == ["8"]
        assert checkpoint.tally(PLAN, 1).reports == 10


def test_a_replay_gives_the_state(path, checkpoint):
    recipe, state = Recipe(Adam(0.1, estimator="horvitz-thompson")), State.from_json(START)
    for number in (1, 2, 3):
        tally = PLAN.tally()
        for name in ("7", "8"):
            asked = question(number, name)
            checkpoint.ask([asked])
            received = answer(asked, 9, seed=10 * number + int(name))
            checkpoint.store(*received)
            tally += received[-1]
        state = step(recipe, state, observed([tally], "horvitz-thompson"))
        checkpoint.step(state.to_json())
    checkpoint.ask([question(4)])
    checkpoint.store(*answer(question(4)))  # of a round that is not done
    assert module.replay(path, [gradients(recipe)]).to_json() == state.to_json()
    assert module.replay(path, [gradients()]).to_json() != state.to_json()


def test_a_tally_that_is_kept_is_not_counted_again(checkpoint, monkeypatch):
    checkpoint.ask([question(), question(gateway="8")])
    first, second = answer(question()), answer(question(gateway="8"), seed=2)
    checkpoint.store(*first)
    checkpoint.store(*second)
    parsed = []
    monkeypatch.setattr(Plan, "parse", lambda *_: parsed.append(1))
    for _ in range(2):
        assert checkpoint.tally(PLAN, 1) == first[-1] + second[-1]
        checkpoint.warnings([gradients()])
    assert parsed == []


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_what_there_is_no_room_for_is_counted_again(checkpoint, monkeypatch, kept):
    tallies = [answer(question(gateway=name), seed=int(name)) for name in ("7", "8")]
    size = sum(part.size for part in tallies[0][-1].counts)
    checkpoint._counted = module._Counted(room=kept * size)
    checkpoint.ask([question(), question(gateway="8")])
    for each in tallies:
        checkpoint.store(*each)
    parse, parsed = Plan.parse, []
    monkeypatch.setattr(Plan, "parse", lambda *given: parsed.append(1) or parse(*given))
    assert checkpoint.tally(PLAN, 1) == tallies[0][-1] + tallies[1][-1]
    assert bool(parsed) == (kept < 2)


def test_reports_of_another_plan_are_noticed(path, checkpoint):
    checkpoint.ask([question()])
    checkpoint.store(*answer(question()))
    checkpoint.step(START)
    other = Plan(Schema.vector(2, 1.0), 1.0, mechanism="three-outputs", k=1)
    with pytest.raises(WireError, match="a report of round 1 does not fit the plan"):
        module.replay(path, [gradients(plan=other)])


def test_who_looks_does_not_make_the_server_wait(path, checkpoint, monkeypatch):
    """Not even one that is stopped in the midst of looking."""
    monkeypatch.setattr("fedldp.storage.database._LOCK_TIMEOUT_SECONDS", 0.0)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN")
        assert other.execute("SELECT round FROM job").fetchall() == [(0,)]
        checkpoint.step("next")
        assert other.execute("SELECT round FROM job").fetchall() == [(0,)]
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # and the server does not make others wait
        assert status(path).rounds == 1


@pytest.mark.usefixtures("checkpoint")
def test_others_may_not_read_it(path):
    assert path.stat().st_mode & 0o777 == 0o600


# Times, and files of format 1


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(module, "time", lambda: now[0])
    return now


def test_times_are_recorded(clock, path):
    with Checkpoint(path, "test", "settings", START) as checkpoint:
        clock[0] += 1
        checkpoint.ask([question(gateway="7"), question(gateway="8")])
        clock[0] += 2
        checkpoint.store(*answer(question(gateway="7")))
        clock[0] += 3
        found = status(path)
        assert (found.began_at, found.opened_at, found.ended_at) == (1000, 1001, None)
        assert [(each.gateway, each.asked, each.heard) for each in found.gateways] == [
            ("7", 1001, 1003),
            ("8", 1001, None),
        ]
        assert [each.gateway for each in found.missing] == ["8"]
        assert found.rate == 10 / 5
        checkpoint.store(*answer(question(gateway="8")))
        checkpoint.step(START)
        checkpoint.end("it is over")
    clock[0] += 1000
    found = status(path)
    assert (found.ended_at, found.opened_at, found.rate) == (1006, None, 20 / 5)


def test_the_rate_is_that_of_the_last_rounds(clock, path):
    with Checkpoint(path, "test", "settings", START) as checkpoint:
        for number in range(1, 9):
            checkpoint.ask([question(number)])
            clock[0] += 100 if number < 4 else 1
            checkpoint.store(*answer(question(number)))
            checkpoint.step(START)
        assert status(path).rate == 10


def old(path):
    """Write a checkpoint as format 1 was: without times."""
    with Checkpoint(path, "test", "settings", START) as checkpoint:
        checkpoint.ask([question(gateway="7"), question(gateway="8")])
        checkpoint.store(*answer(question(gateway="7")))
    with contextlib.closing(sqlite3.connect(path)) as file:
        for table, column in (
            ("job", "began_at"),
            ("job", "ended_at"),
            ("asks", "asked_at"),
            ("batches", "received_at"),
        ):
            file.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        file.execute("PRAGMA user_version = 1")
        file.commit()


def columns(path):
    with contextlib.closing(sqlite3.connect(path)) as file:
        [(version,)] = file.execute("PRAGMA user_version")
        return version, len(list(file.execute("PRAGMA table_info(asks)")))


def test_format_1_is_read_as_it_is_and_migrated_when_the_job_is_resumed(path):
    old(path)
    found = status(path)
    assert columns(path) == (1, 4)  # reading has changed nothing
    assert (found.reports, found.asked, found.rate, found.began_at) == (10, 2, None, None)
    assert [(each.gateway, each.heard) for each in found.gateways] == [("7", None), ("8", None)]
    with Checkpoint(path, "test", "settings", START) as checkpoint:
        assert checkpoint.pending == ["8"]
        checkpoint.store(*answer(question(gateway="8")))
    assert columns(path) == (2, 5)
    first, second = status(path).gateways
    assert first.heard is None
    assert second.heard is not None
    assert second.asked is None


def test_a_migration_is_complete_or_has_no_effect(path, monkeypatch):
    old(path)
    broken = (*module._KIND.migrations[1], "INSERT INTO nowhere VALUES (1)")
    monkeypatch.setattr(module, "_KIND", module._KIND._replace(migrations={1: broken}))
    with pytest.raises(OSError, match="nowhere"):
        Checkpoint(path, "test", "settings", START)
    assert columns(path) == (1, 4)


def test_a_newer_checkpoint_is_refused(path):
    Checkpoint(path, "test", "settings").close()
    with contextlib.closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA user_version = 99")
    for opened in (status, lambda each: Checkpoint(each, "test", "settings")):
        with pytest.raises(WireError, match=r"of format 99, .* A newer version has written it"):
            opened(path)
