"""`Vehicle`: the one place where a plan is answered."""

import ast
from fractions import Fraction
from pathlib import Path

import pytest

import fedldp
from fedldp import Calendar, Category, Ledger, Number, Plan, Schema, Vehicle
from fedldp.budget.vehicle import NONCE_BYTES, PlanQuestion, for_vehicle, tell_nobody
from fedldp.budget.vehicles import Vehicles
from fedldp.errors import BudgetError, DomainError, PrivacyError
from fedldp.plan.strategies import Sample

PLAN = Plan(Schema((Number("speed", 0, 50),)), 1.0, Sample(mechanism="hm-tp", outputs=255))
CONSTANT = Plan(Schema((Category("color", ["red", "green"], constant=True),)), epsilon=1.0)
ROW = {"speed": 30}
SOURCE = Path(fedldp.__file__).parent
RELEASES = {"release", "release_many", "periods", "in_period"}  # methods of a ledger


@pytest.fixture
def ledger(tmp_path):
    with Ledger.create(tmp_path / "ledger.db", cap=4) as opened:
        yield opened


@pytest.fixture
def car(ledger):
    return Vehicle(ledger, "car")


def never():
    raise AssertionError


def releasing(path):
    """Return the lines of a module that let a ledger release something."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in RELEASES
            and len(node.args) + len(node.keywords) >= 3  # locks are released without any
        ):
            yield node.lineno


def test_only_a_vehicle_lets_a_ledger_release_anything():
    found = {
        path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if [*releasing(path)]
    }
    assert found == {"budget/vehicle.py", "budget/vehicles.py"}


def test_the_stored_form_is_a_nonce_and_the_record(car, ledger):
    answer = car.answer(PLAN, ROW, job="spring", round="1")
    stored = ledger.release("car", 1, "spring/1", never, question=bytes.fromhex(PLAN.fingerprint))
    assert stored == answer.nonce + answer.report[16:]
    assert len(answer.nonce) == NONCE_BYTES
    assert PLAN.parse(answer.report).reports == 1


def test_the_names_of_questions(car, ledger):
    digest, calendar = bytes(range(32)), Calendar(PLAN, periods=2, answers=1)
    for options in ({}, {"round": "3"}, {"job": "a", "digest": digest}, {"job": "b", "round": "3"}):
        car.answer(PLAN, ROW, **options)
    sent = [Vehicle(ledger, "bus").answer_period(calendar, number, ROW) for number in (1, 2)]
    [drawn] = [number for number, answer in enumerate(sent, 1) if answer]
    assert [line.request for line in ledger.history()] == [
        PLAN.fingerprint,
        f"{PLAN.fingerprint} 3",
        f"a/{digest.hex()}",
        "b/3",
        f"{calendar.fingerprint} {drawn}",
    ]


def test_one_vehicle_and_many_have_one_name_and_one_form(ledger):
    question = PlanQuestion(for_vehicle(PLAN.to_json(), 1), "spring", "1")
    many = Vehicles(ledger).answer(question, ["car", "bus"], lambda able: [b"\x07"] * len(able))
    assert many == {"car": b"\x07", "bus": b"\x07"}
    answer = Vehicle(ledger, "car").answer(PLAN, never, job="spring", round="1")
    assert answer.repeated
    assert answer.report[16:] == b"\x07"
    other = Vehicle(ledger, "bus").answer(PLAN, never, job="spring", round="1")
    assert other.report == answer.report
    assert other.nonce != answer.nonce


def test_a_row_is_read_after_every_refusal_and_outside_the_transaction(car, ledger):
    calls = []

    def row():
        calls.append(ledger.spent("car"))  # a transaction of this thread would refuse that
        return ROW

    for _ in range(3):
        car.answer(PLAN, row, job="spring", round="1")
    assert calls == [0]
    with pytest.raises(BudgetError, match="has answered the job 'spring' once"):
        car.answer(PLAN, never, job="spring", round="2")
    with pytest.raises(DomainError, match="another question was asked"):
        car.answer(CONSTANT, never, job="spring", round="1")
    with pytest.raises(PrivacyError, match="the cap is 4"):
        car.answer(Plan(PLAN.schema, 5.0), never)
    assert ledger.totals() == {"car": 1}


@pytest.mark.parametrize(
    "failure", [ValueError("broken"), KeyboardInterrupt(), GeneratorExit(), SystemExit(3)]
)
def test_a_row_that_cannot_be_read_counts_as_missing_values(ledger, failure):
    def row():
        raise failure

    told = []
    answer = Vehicle(ledger, "car", told.append).answer(PLAN, row)
    assert PLAN.parse(answer.report).reports == 1
    assert ledger.spent("car") == 1
    assert answer.row is None
    assert type(failure).__name__ in answer.failure
    assert told == [answer]
    assert answer.notes == [answer.failure]


def test_the_owner_is_told_after_the_answer_is_stored(ledger, capfd):
    seen = []

    def tell(answer):
        seen.append((answer.notes, ledger.spent("car")))
        raise KeyboardInterrupt

    assert Vehicle(ledger, "car", tell).answer(PLAN, {"speed": 80}).report
    assert seen == [(["speed is clipped (80)"], 1)]
    Vehicle(ledger, "bus").answer(PLAN, {"speed": 80})
    assert "speed is clipped (80)" in capfd.readouterr().err
    Vehicle(ledger, "van", tell_nobody).answer(PLAN, {"speed": 80})
    assert capfd.readouterr().err == ""


def test_a_repeated_answer_says_so(car):
    first = car.answer(CONSTANT, {"color": "red"}, job="spring")
    again = car.answer(CONSTANT, {"color": "red"}, job="spring")
    later = car.answer(CONSTANT, never, job="summer")
    assert (first.repeated, again.repeated, later.repeated) == (False, True, True)
    assert first.report == again.report == later.report
    assert first.nonce == again.nonce == later.nonce


def test_a_gradient_is_not_repeated(ledger):
    """A server can declare anything constant; the next model has another gradient."""
    checked = for_vehicle(CONSTANT.to_json(), 1)
    for model in (b"1" * 32, b"2" * 32):
        question = PlanQuestion(checked, digest=model, repeats=False)
        assert question.constant is None
        Vehicles(ledger).answer(question, ["car"], lambda able: [b"\x80"] * len(able))
    assert ledger.spent("car") == 2 * CONSTANT.total_epsilon


def test_a_check_spends_nothing_and_refuses_what_an_answer_would(car, ledger):
    car.check(PLAN, job="spring")
    assert ledger.totals() == {}
    car.answer(PLAN, ROW, job="spring")
    with pytest.raises(BudgetError, match="has answered the job 'spring' once"):
        car.check(PLAN, job="spring")
    car.answer(CONSTANT, {"color": "red"}, job="summer")
    for number in range(2):
        car.answer(PLAN, ROW, round=str(number))
    with pytest.raises(BudgetError, match="of its cap of 4"):
        car.check(PLAN)
    car.check(CONSTANT)  # it would be repeated
    assert len(ledger.history()) == 4


def test_another_programs_bytes_are_no_answer(car, ledger):
    ledger.release("car", 1, PLAN.fingerprint, lambda: b"whatever")
    with pytest.raises(DomainError, match="another program has used this name"):
        car.answer(PLAN, ROW)


def test_nonces_of_old_answers_belong_to_one_vehicle_of_one_ledger(ledger, tmp_path):
    """Version 0.2 has stored some answers without: they are derived from a secret."""
    nonces = set()
    with Ledger.create(tmp_path / "other.db", cap=4) as other:
        for book in (ledger, other):
            for name in ("car", "bus"):
                book.release(name, 1, PLAN.fingerprint, lambda: b"\x07")
                for _ in range(2):
                    answer = Vehicle(book, name).answer(PLAN, never)
                    assert answer.report[16:] == b"\x07"
                    nonces.add(answer.nonce)
    assert len(nonces) == 4
    assert {len(nonce) for nonce in nonces} == {NONCE_BYTES}


def test_a_period_that_was_not_drawn_is_silent(car, ledger):
    calendar = Calendar(Plan(PLAN.schema, 0.25), periods=8, answers=3)
    rows = []

    def row():
        rows.append(ROW)
        return ROW

    sent = [car.answer_period(calendar, period, row) for period in range(1, 9)]
    assert sum(answer is not None for answer in sent) == len(rows) == 3
    assert ledger.spent("car") == Fraction(3, 4)
    with pytest.raises(DomainError, match="from 1 to 8"):
        car.answer_period(calendar, 9, never)
