"""The ledger is shared, killed, starved and damaged: what is released is paid for all the same."""

import contextlib
import copy
import os
import pickle
import random
import sqlite3
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import ledger_victim
import pytest
from ledger_victim import never, victim

from fedldp.budget.ledger import Ledger
from fedldp.errors import BudgetError, DomainError, WireError
from fedldp.storage import database
from fedldp.storage.head import Head


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger"


@pytest.fixture
def ledger(path):
    with Ledger.create(path, cap=1) as ledger:
        yield ledger


def test_threads_share_a_ledger_or_its_file(path):
    with Ledger.create(path, cap=1) as shared, ThreadPoolExecutor(8) as pool:

        def ask(number):
            own = Ledger(path, cap=1) if number % 2 else shared
            try:
                return own.release("car", 0.1, str(number), lambda: os.urandom(8))
            except BudgetError:
                return None
            finally:
                if own is not shared:
                    own.close()

        answers = set(pool.map(ask, range(40))) - {None}
        assert len(answers) == len(shared.history("car")) == 10
        assert shared.spent("car") == 1


def test_processes_compete_and_none_overspends(tmp_path):
    processes, rounds = 4, 60
    results = victim("compete", tmp_path, processes, rounds)
    assert sorted(key for won, _ in results for key in won) == list(range(rounds))
    assert [own for _, own in results] == ["1"] * processes


@pytest.mark.parametrize(
    ("ledgers", "kills", "milliseconds"),
    [
        (1, 30, 15),
        (5, 4, 20),
        pytest.param(3, 160, 15, marks=pytest.mark.slow),
        pytest.param(30, 4, 20, marks=pytest.mark.slow),
    ],
)
def test_killed_at_any_moment_it_forgets_nothing(tmp_path, ledgers, kills, milliseconds):
    """Few files that are killed much in use, and many that are killed while they are made.

    The moments are random: test_ledger_damage.py tries every step of one process.
    """
    victim("kill", tmp_path, ledgers, kills, milliseconds, 20)
    for number in range(ledgers):
        with Ledger(tmp_path / str(number), ledger_victim.CAP) as ledger:
            rows = sqlite3_rows(ledger.path, "SELECT key, request, answer FROM releases")
            stored = {(key, request): answer for key, request, answer in rows}
            assert len(stored) == len(rows)
            lines = (tmp_path / f"{number}.log").read_text().splitlines()
            whole = [line.split()[:-1] for line in lines if line.endswith(" whole")]
            received = [(request, *each.split("=")) for request, *pairs in whole for each in pairs]
            assert received
            for request, key, answer in received:
                assert stored[key, request].hex() == answer
            for (key, request), answer in stored.items():
                price = ledger_victim.price(int(request))
                assert ledger.release(key, price, request, never) == answer
            for (request,) in sqlite3_rows(ledger.path, "SELECT request FROM questions"):
                batch = {key: answer for (key, what), answer in stored.items() if what == request}
                told = ledger_victim.price(int(request)), request, ledger_victim.question(request)
                assert ledger.release_many(["car-0"], *told, lambda _: never()) == batch
                if batch:  # it is got as a whole, or not at all
                    assert not [line[0] for line in received].count(request) % len(batch)
            for job in filter(None, ledger_victim.JOBS):
                answers = [line.vehicle_id for line in ledger.history() if line.job == job]
                assert ledger.answers(job) == Counter(answers)
                assert max(ledger.answers(job).values(), default=0) <= ledger_victim.PER_JOB
            for key in {key for key, _ in stored}:
                assert ledger.spent(key) <= ledger_victim.CAP
                assert ledger.spent(key) == sum(row.epsilon for row in ledger.history(key))
            assert sqlite3_rows(ledger.path, "PRAGMA integrity_check") == [("ok",)]


def sqlite3_rows(path, query):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def test_a_full_disk_releases_nothing(tmp_path):
    while_full, got, failed, produced = victim("starve", tmp_path)
    *failed, another = failed
    assert another == ["another", "False"]
    assert 0 < len(while_full) < 40
    assert len(failed) == 40 - len(while_full)
    assert all("Nothing was committed" in text for _, text in failed)
    assert len(got) == 40
    assert while_full.items() <= got.items()
    assert produced == 40 + len(failed)
    with Ledger(tmp_path / "ledger", cap=100) as ledger:
        assert ledger.spent("car") == 40
        for request, answer in got.items():
            assert ledger.release("car", 1, request, never).hex() == answer


@pytest.mark.parametrize("name", ["_write_at", "_sync"])
def test_a_head_that_cannot_be_written_releases_nothing(path, monkeypatch, name):
    """What was committed is paid for, and returned when the head is on disk, in any process."""

    def full(*_):
        raise OSError(28, "No space left on device")

    with Ledger.create(path, cap=10) as ledger:
        ledger.release("car", 1, "1", lambda: b"a")
        with monkeypatch.context() as patch:
            patch.setattr(Head, name, full)
            for _ in range(2):
                with pytest.raises(OSError, match=r"No space left on device\. What was committed"):
                    ledger.release("car", 1, "2", lambda: b"b")
        with Ledger(path, cap=10) as other:
            assert other.release("car", 1, "2", never) == b"b"
        assert ledger.release("car", 1, "2", never) == b"b"
        assert ledger.spent("car") == 2


def test_a_child_that_is_forked_while_bytes_are_produced_does_not_unlock_its_parent(path):
    children = []

    def produce():
        children.append(os.fork())
        if children[0]:
            assert os.waitpid(children[0], 0)[1] == 0
            with closing(Head(ledger._file._head.path)) as other, pytest.raises(TimeoutError):
                other.locked(0).__enter__()
        return b"a"

    with Ledger.create(path, cap=10) as ledger:
        try:
            ledger.release("car", 1, "1", produce)
        except DomainError:
            os._exit(0)  # the child
        if not children[0]:
            os._exit(1)
        assert ledger.spent("car") == 1


def test_a_full_database_releases_nothing(path):
    with Ledger.create(path, cap=10) as ledger:
        ledger.release("car", 1, "1", lambda: b"a")
        ledger._file.execute("PRAGMA max_page_count = 1")  # as small as it may be: what it has now
        with pytest.raises(OSError, match=r"database or disk is full\. Nothing was committed"):
            ledger.release("car", 1, "2", lambda: bytes(20_000))
        assert ledger.spent("car") == 1
        ledger._file.execute("PRAGMA max_page_count = 1000")
        assert ledger.release("car", 1, "2", lambda: b"b") == b"b"


def test_every_release_waits_for_the_disk(ledger):
    assert ledger._file.execute("PRAGMA journal_mode") == [("wal",)]
    assert ledger._file.execute("PRAGMA synchronous") == [(2,)]


def test_waits_for_another_process_but_not_forever(path, monkeypatch):
    monkeypatch.setattr(database, "_LOCK_TIMEOUT_SECONDS", 0.05)
    with Ledger.create(path, cap=1) as ledger, Ledger(path, cap=1) as other:
        with pytest.raises(TimeoutError, match=r"is locked\. Nothing was committed"):
            ledger.release("car", 1, "1", lambda: other.release("car", 1, "1", never))
        assert ledger.history() == []


def test_a_forked_child_continues_or_is_refused(tmp_path):
    saw = victim("inherit", tmp_path)
    assert len(saw) == 2
    assert all("Fork first, then open the file" in line for line in saw)
    with Ledger(tmp_path / "ledger", cap=9) as ledger:
        requests = [spending.request for spending in ledger.history()]
    assert requests == ["parent", "child", "parent, beside its child", "child, without its parent"]


def test_a_copy_shares_the_file_and_not_the_connection(ledger):
    with copy.copy(ledger) as other, pickle.loads(pickle.dumps(ledger)) as third:
        other.release("car", 1, "1", lambda: b"a")
        assert third.release("car", 1, "1", never) == b"a"
        assert len({each._file._connection for each in (ledger, other, third)}) == 3
        assert other.cap == third.cap == ledger.cap


NOISE = random.Random(21).randbytes(4096)
DAMAGE = {
    "empty": lambda content: content[:0],
    "no database": lambda content: NOISE + content[4096:],
    "cut off": lambda content: content[: len(content) // 2],
    "a page of zeros": lambda content: content[:4096] + bytes(4096) + content[8192:],
    "a page of noise": lambda content: content[:-4096] + NOISE,
    "an unknown format": lambda content: content[:60] + (1).to_bytes(4) + content[64:],
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_refused_and_left_alone(path, damage):
    with Ledger.create(path, cap=100) as ledger:
        for number in range(100):
            ledger.release("car", 1, str(number), lambda: bytes(500))
    path.write_bytes(content := damage(path.read_bytes()))
    for _ in range(2):
        with pytest.raises(WireError, match=f"^{path} is not a valid ledger: ") as refusal:
            Ledger(path, cap=100)
        assert "Do not restore a backup" in str(refusal.value)
        assert f"`fedldp ledger seal {path}`" in str(refusal.value)
    assert path.read_bytes() == content


def test_the_file_says_what_it_is(ledger):
    """In SQLite's place for it, fixed for ever: another mark would refuse the files there are."""
    assert ledger.path.read_bytes()[68:72] == b"fLDP"


def test_other_databases_are_refused_and_left_alone(path):
    sqlite3_rows(path, "CREATE TABLE releases (key, request, run, epsilon, answer)")
    with pytest.raises(WireError, match="not have the mark of a ledger"):
        Ledger(path, cap=1)
    assert sqlite3_rows(path, "PRAGMA journal_mode") == [("delete",)]


def test_an_impossible_epsilon_in_the_file_is_damage(ledger):
    ledger.release("car", 1, "1", lambda: b"a")
    for epsilon in ("-1/1", "0/2", "1/0", "?"):
        ledger._file.execute('DROP TRIGGER IF EXISTS temp."releases BEFORE UPDATE"')
        ledger._file.execute("UPDATE releases SET epsilon = ?", (epsilon,))
        for use in (ledger.spent, ledger.history, lambda key: ledger.release(key, 1, "2", never)):
            with pytest.raises(WireError, match="it has an epsilon of"):
                use("car")


def test_a_file_that_vanishes_is_noticed(path):
    ledger = Ledger.create(path, cap=1)
    path.rename(path.with_name("elsewhere"))
    with pytest.raises(WireError, match="removed or replaced while it was in use"):
        ledger.release("car", 1, "1", lambda: b"a")
    with pytest.raises(WireError, match="it is gone, but its -wal is still there"):
        Ledger(path, cap=1)
    path.with_name("ledger-wal").rename(path.with_name("moved"))
    for use in (Ledger, Ledger.create):
        with pytest.raises(WireError, match="it is gone, but its -head is still there"):
            use(path, cap=1)
    path.with_name("moved").rename(path.with_name("ledger-wal"))
    path.touch()
    with pytest.raises(WireError, match="it is empty"):
        Ledger(path, cap=1)
    assert path.with_name("ledger-wal").exists()  # which SQLite would have thrown away
    ledger.close()


def test_the_file_appears_whole_and_for_its_owner_alone(path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.delattr(Path, "rename")  # all that is done before it must leave no trace
        with pytest.raises(AttributeError, match="rename"):
            Ledger.create(path, cap=1)
    assert list(path.parent.iterdir()) == []
    Ledger.create(path, cap=1).close()
    assert path.stat().st_mode & 0o777 == 0o600
    assert {file.name for file in path.parent.iterdir()} == {"ledger", "ledger-head"}
    with pytest.raises(FileNotFoundError):
        Ledger.create(path.parent / "missing" / "ledger", cap=1)
