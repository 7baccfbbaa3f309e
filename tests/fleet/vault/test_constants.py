"""A vault that is asked again for what never changes: its vehicles repeat their answers."""

from fractions import Fraction

import numpy as np
import pytest
from ledgers import open_ledger
from vaults import MODEL

from fedldp import Category, Number, Plan, Schema
from fedldp.budget import policy
from fedldp.errors import DomainError
from fedldp.fleet.protocol import Question
from fedldp.fleet.vault.policy import Policy
from fedldp.fleet.vault.vault import Vault

BRAND = Category("model", ["A", "B", "C"], constant=True)
SPEED = Number("speed", 0, 50)
SCHEMA = Schema((BRAND, SPEED))
PLAN = Plan(Schema((BRAND,)), epsilon=1.0)
CARS = [f"car {i}" for i in range(20)]
MATRIX = np.column_stack([np.arange(20) % 3, np.full(20, 30.0)])


def opened(path, cap=1, cars=CARS, **options):
    return Vault(SCHEMA, MATRIX[: len(cars)], cars, open_ledger(path, cap), **options)


def ask(job, n=20, number=1, plan=PLAN, model=""):
    return Question(job=job, round=number, gateway="7", n=n, plan=plan.to_json(), model=model)


def spent(vault):
    return vault._ledger.totals()


def test_later_jobs_get_the_same_answers_and_cost_nothing(tmp_path):
    vault = opened(tmp_path / "ledger")
    first = vault.answer(ask("spring"))
    assert first.answered == 20
    assert spent(vault) == dict.fromkeys(CARS, PLAN.total_epsilon)
    for job in ("summer", "autumn"):
        assert vault.answer(ask(job)).split() == first.split()
    restarted = opened(tmp_path / "ledger")
    assert restarted.answer(ask("winter")).split() == first.split()
    assert spent(restarted) == dict.fromkeys(CARS, PLAN.total_epsilon)
    changing = Plan(Schema((SPEED,)), epsilon=1.0)
    assert restarted.answer(ask("speeds", plan=changing)).answered == 0  # nothing is left for it


def test_new_vehicles_pay_and_others_repeat(tmp_path):
    vault = opened(tmp_path / "ledger", cars=CARS[:12])
    first = vault.answer(ask("spring", n=12)).split()
    vault._ledger.close()
    grown = opened(tmp_path / "ledger")
    both = grown.answer(ask("summer")).split()
    assert len(both) == 20
    left = list(both)
    for record in first:
        left.remove(record)
    assert len(left) == 8
    assert spent(grown) == dict.fromkeys(CARS, PLAN.total_epsilon)


def test_a_vehicle_is_counted_once_in_a_job(tmp_path):
    vault = opened(tmp_path / "ledger", cap=2)
    vault.answer(ask("spring"))
    rounds = [vault.answer(ask("summer", n=8, number=i)).answered for i in (1, 2, 3, 4)]
    assert rounds == [8, 8, 4, 0]
    assert vault._ledger.answers("summer") == dict.fromkeys(CARS, 1)
    lines = [line for line in vault._ledger.history() if line.job == "summer"]
    assert {line.epsilon for line in lines} == {Fraction(0)}


def test_the_same_question_gets_the_same_answer(tmp_path):
    vault = opened(tmp_path / "ledger")
    vault.answer(ask("spring"))
    once = vault.answer(ask("summer", n=5))
    assert vault.answer(ask("summer", n=5)) == once
    assert once.answered == 5


def test_a_vehicle_that_has_chosen_another_epsilon_since_repeats_all_the_same(tmp_path):
    """The answer is known already, and costs nothing."""
    first = opened(tmp_path / "ledger").answer(ask("spring"))
    chosen = opened(tmp_path / "ledger", epsilons=[Fraction(1, 2)] * 20)
    assert chosen.answer(ask("summer")).split() == first.split()


def test_a_plan_with_something_that_changes_is_paid_for_again(tmp_path):
    vault = opened(tmp_path / "ledger", cap=2)
    mixed = Plan(SCHEMA, epsilon=1.0)
    for job in ("spring", "summer"):
        assert vault.answer(ask(job, plan=mixed)).answered == 20
    assert vault.answer(ask("autumn", plan=mixed)).answered == 0
    assert spent(vault) == dict.fromkeys(CARS, 2 * mixed.total_epsilon)


def test_what_the_owner_has_not_declared_is_not_answered(tmp_path):
    vault = Vault(
        Schema((Category("model", ["A", "B", "C"]), SPEED)),
        MATRIX,
        CARS,
        open_ledger(tmp_path / "ledger", 1),
    )
    with pytest.raises(DomainError, match="does not hold"):
        vault.answer(ask("spring"))
    assert spent(vault) == {}


def test_a_gradient_is_never_repeated(tmp_path):
    """A server can declare anything in the plan of a gradient; the next model has another one."""
    from vaults import vault as training_vault

    d = len(MODEL.weights)
    schema = Schema((Number("x", -1.0, 1.0, size=d, constant=True),))
    plan = Plan(schema, epsilon=1.0, mechanism="duchi")
    vault = training_vault(tmp_path / "ledger", cap=2.0)
    for job in ("spring", "summer"):
        assert vault.answer(ask(job, n=3, plan=plan, model=MODEL.to_json())).answered == 3
    assert {line.epsilon for line in vault._ledger.history()} == {plan.total_epsilon}
    assert vault._ledger.repeating(f"records of {plan.fingerprint}") == set()


def test_vehicles_that_may_not_repeat_are_not_behind_an_answer(tmp_path):
    """`fewest_vehicles` counts those that answer: with a lower cap, the first twelve do not."""
    vault = opened(tmp_path / "ledger", cap=2, cars=CARS[:12])
    vault.answer(ask("spring", n=12))
    vault.answer(ask("speeds", n=12, plan=Plan(Schema((SPEED,)), epsilon=1.0)))
    vault._ledger.close()
    lowered = opened(tmp_path / "ledger", cap=1, policy=Policy(fewest_vehicles=10))
    with pytest.raises(DomainError, match="at least 10 vehicles behind an answer; 8 of those"):
        lowered.answer(ask("summer"))


def test_asking_again_and_again_does_not_fill_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(policy, "MOST_REPEATED", 2)
    vault = opened(tmp_path / "ledger")
    answered = [vault.answer(ask(f"job-{number}")).answered for number in range(5)]
    assert answered == [20, 20, 20, 0, 0]
    assert len(vault._ledger.history()) == 60
    assert len(vault._ledger.asked()) == 3
