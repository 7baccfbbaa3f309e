"""A vehicle answers a job as often as its owner allows, whatever its cap and the asker."""

import copy
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import pytest
from ledger_victim import never, victim
from ledgers import open_ledger

from fedldp.budget.ledger import Ledger
from fedldp.errors import BudgetError, DomainError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger"


@pytest.fixture
def ledger(path):
    with open_ledger(path, cap=100) as ledger:
        yield ledger


def everyone(able):
    return {key: os.urandom(8) for key in able}


def test_a_job_is_answered_once_whatever_the_cap(ledger):
    first = ledger.release("car", 1, "1", lambda: os.urandom(8), job="spring")
    with pytest.raises(BudgetError) as refusal:
        ledger.release("car", 1, "2", never, job="spring")
    assert str(refusal.value) == (
        "'car' has answered the job 'spring' once, and answers_per_job is 1. "
        "Ask another vehicle, or let its owner allow more."
    )
    assert ledger.release("car", 1, "1", never, job="spring") == first
    assert ledger.release("car", 1, "1", never, job="autumn") == first  # it is the same request
    ledger.release("bus", 1, "2", lambda: b"", job="spring")
    ledger.release("car", 1, "2", lambda: b"", job="autumn")
    assert ledger.answers("spring") == {"car": 1, "bus": 1}
    assert ledger.answers("autumn") == {"car": 1}
    assert ledger.answers("winter") == {}
    assert [(line.vehicle_id, line.request, line.job) for line in ledger.history()] == [
        ("car", "1", "spring"),
        ("bus", "2", "spring"),
        ("car", "2", "autumn"),
    ]


def test_the_run_is_a_label(ledger):
    for run in ("first", "resumed"):
        ledger.release("car", 1, run, lambda: b"", run=run)
    ledger.release("car", 1, "of a job", lambda: b"", run="first", job="spring")
    with pytest.raises(BudgetError, match="has answered the job 'spring' once"):
        ledger.release("car", 1, "again", never, run="another", job="spring")
    assert ledger.answers("first") == {}


def test_without_a_job_only_the_cap_applies(ledger):
    for number in range(100):
        ledger.release("car", 1, str(number), lambda: b"")
    with pytest.raises(BudgetError, match="has spent 100 of its cap"):
        ledger.release("car", 1, "more", never)


def test_new_names_of_jobs_never_raise_the_cap(path):
    with open_ledger(path, cap=3) as ledger:
        for number in range(3):
            ledger.release("car", 1, str(number), lambda: b"", job=f"job {number}")
        for job in (None, "job 0", "job 3"):
            with pytest.raises(BudgetError):
                ledger.release("car", 1, f"in {job}", never, job=job)
        assert ledger.release_many(["car"], 1, "3", b"?", everyone, job="job 4") == {}


def test_many_are_asked_and_each_answers_once(ledger):
    keys = list("abcd")
    first = ledger.release_many(keys[:3], 1, "1", b"?", everyone, job="spring")
    assert first.keys() == set("abc")
    assert ledger.release_many(keys, 1, "2", b"?", everyone, job="spring").keys() == {"d"}
    assert ledger.release_many(keys, 1, "3", b"?", everyone, job="spring") == {}
    assert ledger.release_many(keys, 1, "1", b"?", lambda _: never(), job="spring") == first
    with pytest.raises(DomainError, match="another question was asked under this request"):
        ledger.release_many(keys, 1, "1", b"!", lambda _: never(), job="spring")
    with pytest.raises(BudgetError, match="has answered the job 'spring' once"):
        ledger.release("a", 1, "alone", never, job="spring")
    assert ledger.answers("spring") == dict.fromkeys(keys, 1)


def test_the_owner_says_how_often(path):
    with open_ledger(path, cap=100, answers_per_job=3) as ledger:
        for number in range(3):
            ledger.release("car", 1, str(number), lambda: b"", job="spring")
        with pytest.raises(BudgetError, match="'spring' 3 times, and answers_per_job is 3"):
            ledger.release("car", 1, "3", never, job="spring")
        with copy.copy(ledger) as other, pickle.loads(pickle.dumps(ledger)) as third:
            assert other.answers_per_job == third.answers_per_job == 3
    refused = pytest.raises(BudgetError, match="'spring' 3 times, and answers_per_job is 1")
    with open_ledger(path, cap=100) as stricter, refused:
        stricter.release("car", 1, "3", never, job="spring")
    with open_ledger(path, cap=100, answers_per_job=4) as looser:
        looser.release("car", 1, "3", lambda: b"", job="spring")
        assert looser.answers("spring") == {"car": 4}


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "2", None, True])
def test_refuses_an_invalid_number_of_answers(path, wrong):
    with pytest.raises(DomainError, match="answers_per_job must be"):
        Ledger.create(path, cap=1, answers_per_job=wrong)
    assert not path.exists()


@pytest.mark.parametrize("wrong", ["", 7, b"spring", "\ud800"])
def test_refuses_an_invalid_name_of_a_job(ledger, wrong):
    for ask in (
        lambda: ledger.release("car", 1, "1", never, job=wrong),
        lambda: ledger.release_many(["car"], 1, "1", b"?", lambda _: never(), job=wrong),
        lambda: ledger.answers(wrong),
    ):
        with pytest.raises(DomainError, match="job must"):
            ask()
    assert ledger.history() == []


def test_if_produce_fails_no_answer_is_counted(ledger):
    with pytest.raises(ZeroDivisionError):
        ledger.release("car", 1, "1", lambda: 1 / 0, job="spring")
    assert ledger.answers("spring") == {}
    ledger.release("car", 1, "2", lambda: b"", job="spring")


def test_threads_race_for_the_last_answer(path):
    def ask(number):
        with open_ledger(path, cap=1000, answers_per_job=2) as own:
            for job in range(5):
                request = f"{number}, {job}"
                if number % 2:
                    own.release_many(["car"], 1, request, b"?", everyone, job=f"{job}")
                else:
                    try:
                        own.release("car", 1, request, lambda: b"", job=f"{job}")
                    except BudgetError:
                        continue

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(16)))
    with open_ledger(path, cap=1000) as ledger:
        assert [ledger.answers(f"{job}") for job in range(5)] == [{"car": 2}] * 5
        assert ledger.spent("car") == 10


def test_processes_race_for_the_last_answer(tmp_path):
    """Each job is answered once, by one of four processes, with budget left for all of them."""
    processes, jobs = 4, 60
    won = victim("race", tmp_path, processes, jobs)
    assert sorted(job for each in won for job in each) == list(range(jobs))
    with open_ledger(tmp_path / "ledger", cap=1) as ledger:
        assert ledger.spent("car") == Fraction(jobs)
