"""The ledger: sums are exact, a request is paid for once, and nothing is released above the cap."""

import contextlib
import os
import sqlite3
from fractions import Fraction
from functools import partial

import pytest
from ledger_victim import never
from ledgers import open_ledger

from fedldp.budget import records
from fedldp.budget.ledger import Spending
from fedldp.errors import BudgetError, DomainError, FedLDPError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger"


@pytest.fixture
def ledger(path):
    with open_ledger(path, cap=1) as ledger:
        yield ledger


def test_tenths_add_exactly(path):
    with open_ledger(path, cap=0.3) as ledger:
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
    again = ledger.release("car", 0.5, b"question", lambda: os.urandom(8))  # bytes are not text
    assert len({first, other, again}) == 3
    half = Fraction(1, 2)
    assert ledger.history("car") == [
        Spending("car", "spring", "question", half, ""),
        Spending("car", "", b"question", half, ""),
    ]
    assert ledger.history()[1] == ("bus", "", "question", half, "")
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
        with open_ledger(path, cap) as ledger:
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
    with open_ledger(path, cap=1) as ledger:
        ledger.release("car", 0.1, "1", lambda: str(ledger.spent("car")).encode())
        with pytest.raises(DomainError, match="cannot be used by the function that it waits for"):
            ledger.release("car", 0.1, "2", lambda: ledger.release("car", 0.1, "3", never))
        with pytest.raises(DomainError, match="is closed"):
            ledger.release("car", 0.1, "2", lambda: ledger.close() or b"a")
        with pytest.raises(DomainError, match="is closed"):
            ledger.spent("car")
        ledger.close()
    with open_ledger(path, cap=1) as ledger:
        assert len(ledger.history()) == 1


def test_early_bytes_are_produced_outside_the_transaction(ledger, path, monkeypatch):
    looks = []
    monkeypatch.setattr(
        records, "standings", lambda *a, read=records.standings: looks.append(a) or read(*a)
    )
    early = partial(ledger.release, "car", 0.25, early=True)
    with open_ledger(path, cap=1) as other:
        assert early("1", lambda: b"a") == b"a"
        assert len(looks) == 1  # nothing has changed since
        assert early("1", never) == b"a"
        assert early("2", lambda: other.release("bus", 1, "2", lambda: b"b")) == b"b"
        assert early("3", lambda: other.release("car", 0.25, "3", lambda: b"c") + b"!") == b"c"
        with pytest.raises(BudgetError, match="has spent 1 of its cap"):
            early("4", lambda: other.release("car", 0.25, "5", lambda: b"d"))
        with pytest.raises(DomainError, match="must return bytes"):
            ledger.release("van", 1, "6", lambda: "text", early=True)
    assert ledger.totals() == {"bus": 1, "car": 1}


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
        with pytest.raises(DomainError, match="only for vehicles that it was given"):
            ledger.release_many(keys, 0.5, "another", b"?", lambda _, wrong=wrong: wrong)
    assert ledger.totals() == {"a": Fraction(1, 2), "b": 1, "c": Fraction(1, 2)}
    assert [(each.vehicle_id, each.run) for each in ledger.history()][1:] == [
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


def test_a_request_without_answers_leaves_nothing_behind(ledger):
    ledger.release("a", 1, "before", lambda: b"")
    for question in (b"?", b"!"):
        assert ledger.release_many(["a"], 0.5, "request", question, lambda _: {}) == {}
    assert ledger._file.execute("SELECT * FROM questions") == []
    assert ledger.release_many(["b"], 0.5, "request", b"?", lambda _: {"b": b"x"}) == {"b": b"x"}


def test_one_question_for_each_request(ledger):
    def answer(able):
        return dict.fromkeys(able, b"yes")

    ledger.release_many(["a", "b"], 0.1, "request", b"?", answer)
    with pytest.raises(DomainError, match="another question was asked under this request"):
        ledger.release_many(["c"], 0.1, "request", b"!", lambda _: never())
    with pytest.raises(DomainError, match="many vehicles were asked under this request"):
        ledger.release("c", 0.1, "request", never)
    ledger.release("a", 0.1, "alone", lambda: b"yes")
    with pytest.raises(DomainError, match="another question was asked under this request"):
        ledger.release_many(["b"], 0.1, "alone", b"?", lambda _: never())
    assert ledger.totals() == {"a": Fraction(1, 5), "b": Fraction(1, 10)}
    assert {spending.run for spending in ledger.history()} == {""}


@pytest.mark.parametrize("epsilon", [0, -1, "nan", float("inf"), 1e-300, None, "1/0"])
def test_refuses_an_invalid_epsilon(ledger, path, epsilon):
    with pytest.raises(DomainError, match=r"^epsilon must be a positive number"):
        ledger.release("car", epsilon, "1", never)
    with pytest.raises(DomainError, match=r"^epsilon must be a positive number"):
        ledger.release_many(["car"], epsilon, "1", b"?", lambda _: never())
    with pytest.raises(DomainError, match=r"^cap must be a positive number"):
        open_ledger(path, epsilon)


def test_an_epsilon_may_have_up_to_30_digits(ledger):
    least = Fraction(1, 10**30 - 1)
    ledger.release("car", least, "1", lambda: b"")
    assert ledger.spent("car") == least
    with pytest.raises(DomainError, match="of up to 30 digits"):
        ledger.release("car", Fraction(1, 10**30), "2", never)


@pytest.mark.parametrize(
    ("wrong", "vehicle_id", "request_"),
    [
        ("vehicle_id", 1, "1"),
        ("vehicle_id", b"car", "1"),
        ("request", "car", 1),
        ("vehicle_id", "\ud800", ""),
    ],
)
def test_refuses_names_that_are_not_text(ledger, wrong, vehicle_id, request_):
    said = f"^{wrong} must be a text in Unicode"
    with pytest.raises(DomainError, match=said):
        ledger.release(vehicle_id, 1, request_, never)
    with pytest.raises(DomainError, match=said):
        ledger.release_many(["bus", vehicle_id], 1, request_, b"?", lambda _: never())
    for look in (ledger.spent, ledger.history) if wrong == "vehicle_id" else ():
        with pytest.raises(DomainError, match=said):
            look(vehicle_id)


def test_a_run_that_is_not_text_buys_nothing(ledger):
    with pytest.raises(DomainError, match=r"^run must be a text in Unicode; got 7"):
        ledger.release("car", 1, "1", lambda: b"a", run=7)
    assert ledger.history() == []


@pytest.mark.parametrize(("answers", "shown"), [(1, "1 answer per job"), (3, "3 answers per job")])
def test_it_shows_what_it_allows(path, answers, shown):
    with open_ledger(path, cap=2, answers_per_job=answers) as ledger:
        assert repr(ledger) == f"<Ledger {path}: cap 2, {shown}>"
