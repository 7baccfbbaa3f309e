"""The ledger: sums are exact, and what is released is burnt, whatever is killed, full or broken."""

import contextlib
import copy
import json
import os
import pickle
import random
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import ledger_victim
import pytest

from fedldp import database
from fedldp.errors import BudgetError, DomainError, FedLDPError, WireError
from fedldp.ledger import Ledger, Spending


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger"


@pytest.fixture
def ledger(path):
    with Ledger(path, cap=1) as ledger:
        yield ledger


def victim(command, folder, *numbers):
    script = [sys.executable, "-W", "ignore", ledger_victim.__file__]  # of forks beside threads
    arguments = [*script, command, folder, *map(str, numbers)]
    run = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    return json.loads(run.stdout)


def never():
    raise AssertionError("produced, though the answer is there")


def test_tenths_add_exactly(path):
    with Ledger(path, cap=0.3) as ledger:
        ledger.release("car", 0.1, "1", lambda: b"a")
        ledger.release("car", 0.2, "2", lambda: b"b")  # in floats the sum would be above 0.3
        assert ledger.spent("car") == Fraction(3, 10)
        for epsilon in (0.001, Fraction(1, 10**29)):
            with pytest.raises(BudgetError):
                ledger.release("car", epsilon, "3", never)


def test_thirds_add_exactly(ledger):
    for request in range(3):
        ledger.release("car", "1/3", str(request), lambda: b"")
    assert ledger.spent("car") == 1


def test_a_request_is_answered_once(ledger):
    first = ledger.release("car", 0.5, "question", lambda: os.urandom(8), run="spring")
    assert ledger.release("car", Fraction(1, 2), "question", never, run="autumn") == first
    other = ledger.release("bus", 0.5, "question", lambda: os.urandom(8))
    again = ledger.release("car", 0.5, b"question", lambda: os.urandom(8))  # bytes are no text
    assert len({first, other, again}) == 3
    half = Fraction(1, 2)
    assert ledger.history("car") == [
        Spending("car", "spring", "question", half),
        Spending("car", "", b"question", half),
    ]
    assert ledger.history()[1] == ("bus", "", "question", half)
    assert (ledger.spent("car"), ledger.spent("bus"), ledger.spent("van")) == (1, half, 0)
    assert isinstance(ledger.spent("van"), Fraction)


def test_the_same_request_for_another_epsilon_is_refused(ledger):
    ledger.release("car", 0.25, "question", lambda: b"a")
    with pytest.raises(DomainError, match=r"'car' has answered .* 1/4, and is now asked for 1/2"):
        ledger.release("car", 0.5, "question", never)
    assert ledger.spent("car") == Fraction(1, 4)


def test_a_new_run_buys_nothing(ledger):
    ledger.release("car", 1, "1", lambda: b"a", run="first")
    with pytest.raises(BudgetError) as refusal:
        ledger.release("car", 0.25, "2", never, run="second")
    assert str(refusal.value) == (
        "'car' has spent 1 of its cap of 1: 0.25 more is too much. "
        "Ask for less, or let its owner raise the cap."
    )
    assert isinstance(refusal.value, FedLDPError | ValueError)


def test_the_cap_is_the_one_given_last(path):
    for cap, request, fits in ((1, "1", True), (0.9, "2", False), (1.5, "3", True)):
        with Ledger(path, cap) as ledger:
            with contextlib.nullcontext() if fits else pytest.raises(BudgetError):
                ledger.release("car", "3/4", request, lambda: b"a")
            assert ledger.release("car", "3/4", "1", never) == b"a"


@pytest.mark.parametrize("produced", ["text", bytearray(b"a"), None, [b"a"]])
def test_what_is_not_bytes_is_not_paid_for(ledger, produced):
    with pytest.raises(DomainError, match="produce must return bytes"):
        ledger.release("car", 1, "1", lambda: produced)
    assert ledger.history() == []


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, sqlite3.OperationalError])
def test_if_produce_fails_nothing_is_paid(ledger, error):
    def fail():
        raise error

    with pytest.raises(error):
        ledger.release("car", 1, "1", fail)
    assert ledger.history() == []
    assert ledger.release("car", 1, "1", lambda: b"a") == b"a"


def test_produce_may_look_but_not_release_or_close(path):
    with Ledger(path, cap=1) as ledger:
        ledger.release("car", 0.1, "1", lambda: str(ledger.spent("car")).encode())
        with pytest.raises(DomainError, match="must not be asked by what it waits for"):
            ledger.release("car", 0.1, "2", lambda: ledger.release("car", 0.1, "3", never))
        with pytest.raises(DomainError, match="is closed"):
            ledger.release("car", 0.1, "2", lambda: ledger.close() or b"a")
        with pytest.raises(DomainError, match="is closed"):
            ledger.spent("car")
        ledger.close()
    with Ledger(path, cap=1) as ledger:
        assert len(ledger.history()) == 1


def test_many_vehicles_answer_in_one_transaction(ledger):
    ledger.release("b", 1, "before", lambda: b"")
    keys = list("abcd")

    def answer(able):
        assert able == ["a", "c", "d"]
        return {key: key.encode() for key in able[:2]}

    answers = {"a": b"a", "c": b"c"}
    assert ledger.release_many(keys, 0.5, "request", b"?", answer, run="spring") == answers
    assert ledger.release_many(["e"], 0.5, "request", b"?", lambda _: never()) == answers
    assert ledger.release("c", 0.5, "request", never) == b"c"
    assert [ledger.spent(key) for key in keys] == [Fraction(1, 2), 1, Fraction(1, 2), 0]
    for wrong in ({"d": b"d", "b": b"b"}, {"a": b"a", "d": "d"}):
        with pytest.raises(DomainError, match="for no key but those it was given"):
            ledger.release_many(keys, 0.5, "another", b"?", lambda _, wrong=wrong: wrong)
    assert ledger.totals() == {"a": Fraction(1, 2), "b": 1, "c": Fraction(1, 2)}
    assert [(each.key, each.run) for each in ledger.history()][1:] == [
        ("a", "spring"),
        ("c", "spring"),
    ]


def test_many_may_spend_their_caps_to_the_end(ledger):
    def answer(able):
        return dict.fromkeys(able, b"yes")

    def ask(epsilon, request):
        return ledger.release_many(["a", "b"], epsilon, request, b"?", answer)

    ask(0.25, "1")
    ask(0.75, "2")
    assert ledger.totals() == {"a": 1, "b": 1}
    assert ask(Fraction(1, 10**29), "3") == {}


def test_whom_nobody_answers_leaves_nothing_behind(ledger):
    ledger.release("a", 1, "before", lambda: b"")
    for question in (b"?", b"!"):
        assert ledger.release_many(["a"], 0.5, "request", question, lambda _: {}) == {}
    assert ledger._file.execute("SELECT * FROM questions") == []
    assert ledger.release_many(["b"], 0.5, "request", b"?", lambda _: {"b": b"x"}) == {"b": b"x"}


def test_one_question_for_each_request(ledger):
    def answer(able):
        return dict.fromkeys(able, b"yes")

    ledger.release_many(["a", "b"], 0.1, "request", b"?", answer)
    with pytest.raises(DomainError, match="Another question was put under this request"):
        ledger.release_many(["c"], 0.1, "request", b"!", lambda _: never())
    with pytest.raises(DomainError, match="Many were asked under this request"):
        ledger.release("c", 0.1, "request", never)
    ledger.release("a", 0.1, "alone", lambda: b"yes")
    with pytest.raises(DomainError, match="Another question was put under this request"):
        ledger.release_many(["b"], 0.1, "alone", b"?", lambda _: never())
    assert ledger.totals() == {"a": Fraction(1, 5), "b": Fraction(1, 10)}
    assert {spending.run for spending in ledger.history()} == {""}


@pytest.mark.parametrize("epsilon", [0, -1, "nan", float("inf"), 1e-300, None, "1/0"])
def test_refuses_what_is_no_epsilon(ledger, path, epsilon):
    with pytest.raises(DomainError, match=r"^epsilon must be a positive number"):
        ledger.release("car", epsilon, "1", never)
    with pytest.raises(DomainError, match=r"^epsilon must be a positive number"):
        ledger.release_many(["car"], epsilon, "1", b"?", lambda _: never())
    with pytest.raises(DomainError, match=r"^cap must be a positive number"):
        Ledger(path, epsilon)


def test_an_epsilon_may_have_up_to_30_digits(ledger):
    least = Fraction(1, 10**30 - 1)
    ledger.release("car", least, "1", lambda: b"")
    assert ledger.spent("car") == least
    with pytest.raises(DomainError, match="of up to 30 digits"):
        ledger.release("car", Fraction(1, 10**30), "2", never)


@pytest.mark.parametrize(
    ("wrong", "key", "request_"),
    [("key", 1, "1"), ("key", b"car", "1"), ("request", "car", 1), ("key", "\ud800", "")],
)
def test_refuses_names_that_are_no_text(ledger, wrong, key, request_):
    said = f"^{wrong} must be a text in Unicode"
    with pytest.raises(DomainError, match=said):
        ledger.release(key, 1, request_, never)
    with pytest.raises(DomainError, match=said):
        ledger.release_many(["bus", key], 1, request_, b"?", lambda _: never())
    for look in (ledger.spent, ledger.history) if wrong == "key" else ():
        with pytest.raises(DomainError, match=said):
            look(key)


def test_a_run_that_is_no_text_buys_nothing(ledger):
    with pytest.raises(DomainError, match=r"^run must be a text in Unicode; got 7"):
        ledger.release("car", 1, "1", lambda: b"a", run=7)
    assert ledger.history() == []


def test_threads_share_a_ledger_or_its_file(path):
    with Ledger(path, cap=1) as shared, ThreadPoolExecutor(8) as pool:

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


@pytest.mark.parametrize(("ledgers", "kills", "milliseconds"), [(3, 160, 15), (30, 4, 20)])
def test_killed_at_any_moment_it_forgets_nothing(tmp_path, ledgers, kills, milliseconds):
    """Few files that are killed much in use, and many that are killed while they are made."""
    victim("kill", tmp_path, ledgers, kills, milliseconds, 20)
    for number in range(ledgers):
        with Ledger(tmp_path / str(number), ledger_victim.CAP) as ledger:
            rows = sqlite3_rows(ledger.path, "SELECT key, request, answer FROM releases")
            stored = {(key, request): answer for key, request, answer in rows}
            assert len(stored) == len(rows)
            received = (tmp_path / f"{number}.log").read_text().splitlines()
            assert received
            for line in received:
                key, request, answer = line.split()
                assert stored[key, request].hex() == answer
            for (key, request), answer in stored.items():
                price = ledger_victim.price(int(request))
                assert ledger.release(key, price, request, never) == answer
            for (request,) in sqlite3_rows(ledger.path, "SELECT request FROM questions"):
                batch = {key: answer for (key, what), answer in stored.items() if what == request}
                told = ledger_victim.price(int(request)), request, ledger_victim.question(request)
                assert ledger.release_many(["car-0"], *told, lambda _: never()) == batch
                if batch:  # it is got as a whole, or not at all
                    assert not [line.split()[1] for line in received].count(request) % len(batch)
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


def test_a_full_database_releases_nothing(path):
    with Ledger(path, cap=10) as ledger:
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


def test_waits_for_another_process_but_not_for_ever(path, monkeypatch):
    monkeypatch.setattr(database, "_PATIENCE", 0.05)
    with Ledger(path, cap=1) as ledger, Ledger(path, cap=1) as other:
        with pytest.raises(TimeoutError, match=r"is locked\. Nothing was committed"):
            ledger.release("car", 1, "1", lambda: other.release("car", 1, "1", never))
        assert ledger.history() == []


def test_a_forked_child_goes_on_or_is_refused(tmp_path):
    saw = victim("inherit", tmp_path)
    assert len(saw) == 2
    assert all("Fork first, then open it" in line for line in saw)
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
    "another format": lambda content: content[:60] + (3).to_bytes(4) + content[64:],
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_refused_and_left_alone(path, damage):
    with Ledger(path, cap=100) as ledger:
        for number in range(100):
            ledger.release("car", 1, str(number), lambda: bytes(500))
    path.write_bytes(content := damage(path.read_bytes()))
    for _ in range(2):
        with pytest.raises(WireError, match=f"{path} is no sound ledger: .* Restore the file"):
            Ledger(path, cap=100)
    assert path.read_bytes() == content


def test_the_file_says_what_it_is(ledger):
    """In SQLite's place for it, fixed for ever: another mark would refuse the files there are."""
    assert ledger.path.read_bytes()[68:72] == b"fLDP"


def test_other_databases_are_refused_and_left_alone(path):
    sqlite3_rows(path, "CREATE TABLE releases (key, request, run, epsilon, answer)")
    with pytest.raises(WireError, match="not the mark of a ledger"):
        Ledger(path, cap=1)
    assert sqlite3_rows(path, "PRAGMA journal_mode") == [("delete",)]


def test_an_impossible_epsilon_in_the_file_is_damage(ledger):
    ledger.release("car", 1, "1", lambda: b"a")
    for epsilon in ("-1/1", "0/1", "1/0", "?"):
        ledger._file.execute("UPDATE releases SET epsilon = ?", (epsilon,))
        for use in (ledger.spent, ledger.history, lambda key: ledger.release(key, 1, "2", never)):
            with pytest.raises(WireError, match="it has an epsilon of"):
                use("car")


def test_a_file_that_vanishes_is_missed(path):
    ledger = Ledger(path, cap=1)
    path.rename(path.with_name("elsewhere"))
    with pytest.raises(WireError, match="removed or replaced while it was in use"):
        ledger.release("car", 1, "1", lambda: b"a")
    with pytest.raises(WireError, match="it is gone, but its -wal is still there"):
        Ledger(path, cap=1)
    path.touch()
    with pytest.raises(WireError, match="it is empty"):
        Ledger(path, cap=1)
    assert path.with_name("ledger-wal").exists()  # which SQLite would have thrown away
    ledger.close()


def test_the_file_appears_whole_and_for_its_owner_alone(path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.delattr(os, "link")  # all that is done before it must leave no trace
        with pytest.raises(AttributeError, match="link"):
            Ledger(path, cap=1)
    assert list(path.parent.iterdir()) == []
    Ledger(path, cap=1).close()
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    with pytest.raises(FileNotFoundError):
        Ledger(path.parent / "missing" / "ledger", cap=1)
