"""Answers about what never changes are paid for once, and repeated under every request."""

from fractions import Fraction

import pytest
from ledger_victim import never
from ledgers import open_ledger

from fedldp.budget import policy
from fedldp.errors import BudgetError, DomainError


@pytest.fixture
def ledger(tmp_path):
    with open_ledger(tmp_path / "ledger", 1) as found:
        yield found


def answered(ledger, vehicle_id, request, produce, **options):
    return ledger.release(vehicle_id, "1/2", request, produce, **{"constant": "model", **options})


def test_one_answer_serves_all_requests(ledger):
    first = answered(ledger, "car", "day 1", lambda: b"first")
    assert [answered(ledger, "car", f"day {day}", never) for day in (2, 1, 3, 2)] == [first] * 4
    assert [line.epsilon for line in ledger.history()] == [Fraction(1, 2), 0, 0]
    assert ledger.spent("car") == Fraction(1, 2)
    assert ledger.totals() == {"car": Fraction(1, 2)}


def test_it_is_found_after_the_ledger_was_closed(ledger, tmp_path):
    first = answered(ledger, "car", "day 1", lambda: b"first")
    ledger.close()
    with open_ledger(tmp_path / "ledger", 1) as again:
        assert answered(again, "car", "day 2", never) == first
        assert again.repeating("model") == {"car"}


def test_another_name_another_vehicle_and_no_name_pay(ledger):
    answered(ledger, "car", "day 1", lambda: b"first")
    assert answered(ledger, "car", "day 2", lambda: b"second", constant="year") == b"second"
    assert ledger.spent("car") == 1
    assert answered(ledger, "bus", "day 2", lambda: b"third") == b"third"
    assert answered(ledger, "bus", "day 3", lambda: b"fourth", constant=None) == b"fourth"
    assert ledger.spent("bus") == 1
    assert ledger.repeating("model") == {"car", "bus"}
    assert ledger.repeating("year") == {"car"}


def test_who_has_nothing_left_still_repeats(ledger):
    first = answered(ledger, "car", "day 1", lambda: b"first")
    ledger.release("car", "1/2", "speed", lambda: b"30")
    assert answered(ledger, "car", "day 2", never) == first
    with pytest.raises(BudgetError, match="has spent 1 of its cap of 1"):
        answered(ledger, "car", "day 3", never, constant=None)


def test_a_repeated_answer_is_an_answer_to_its_job(ledger):
    """Otherwise one vehicle would count several times in the tally of a job."""
    answered(ledger, "car", "spring/1", lambda: b"first", job="spring")
    assert answered(ledger, "car", "summer/1", never, job="summer") == b"first"
    for job in ("spring", "summer"):
        with pytest.raises(BudgetError, match=f"has answered the job '{job}' once"):
            answered(ledger, "car", f"{job}/2", never, job=job)
        assert ledger.answers(job) == {"car": 1}


def test_nothing_is_kept_of_an_answer_that_failed(ledger):
    def fails():
        raise RuntimeError

    with pytest.raises(RuntimeError):
        answered(ledger, "car", "day 1", fails)
    assert ledger.repeating("model") == set()
    assert answered(ledger, "car", "day 2", lambda: b"first") == b"first"


def test_many_repeat_and_the_others_pay(ledger):
    def ask(request, asked, produce, job=None):
        return ledger.release_many(
            asked, 1, request, request.encode(), produce, job=job, constant="model"
        )

    def new(able):
        return {each: f"{each}!".encode() for each in able}

    spring = ask("spring/1", ["a", "b", "c"], lambda able: new(able[:2]), "spring")
    assert spring == {"a": b"a!", "b": b"b!"}
    asked = []
    summer = ask("summer/1", ["a", "b", "c", "d"], lambda able: asked.append(able) or {}, "summer")
    assert (asked, summer) == ([["c", "d"]], spring)
    assert ask("summer/1", ["c"], lambda _: never(), "summer") == spring
    autumn = ask("autumn/1", ["d", "a"], new, "autumn")
    assert autumn == {"a": b"a!", "d": b"d!"}
    assert ledger.totals() == dict.fromkeys("abd", 1)
    assert ledger.answers("summer") == {"a": 1, "b": 1}
    assert ask("autumn/2", ["a", "b"], lambda _: {}, "autumn") == {"b": b"b!"}  # a has answered


def test_many_and_one_share_what_is_kept(ledger):
    first = answered(ledger, "car", "day 1", lambda: b"first")
    found = ledger.release_many(["car"], 1, "day 2", b"?", lambda _: {}, constant="model")
    assert found == {"car": first}
    with pytest.raises(DomainError, match="many vehicles were asked under this request"):
        answered(ledger, "bus", "day 2", never)


def test_a_calendar_is_affordable_for_who_has_paid(ledger):
    answered(ledger, "car", "day 1", lambda: b"first")
    ledger.release("car", "1/2", "speed", lambda: b"30")
    with pytest.raises(BudgetError):
        ledger.periods("car", "1/2", "spring", lambda: [1])
    assert ledger.periods("car", "1/2", "spring", lambda: [1], constant="model") == (1,)


def test_a_name_must_be_a_text(ledger):
    with pytest.raises(DomainError, match="constant must be a text"):
        answered(ledger, "car", "day 1", never, constant=7)


def test_repeating_at_no_cost_has_an_end(ledger, monkeypatch):
    """Otherwise somebody who invents names of jobs could fill the disk, and pay nothing."""
    monkeypatch.setattr(policy, "MOST_REPEATED", 3)
    answered(ledger, "car", "day 0", lambda: b"first", job="0")
    answered(ledger, "car", "other", lambda: b"other", constant="year")
    for day in (1, 2):
        answered(ledger, "car", f"day {day}", never, job=f"{day}")
    answered(ledger, "car", "other again", never, constant="year", job="2b")
    for hour in range(5):  # those of a calendar belong to no job, and have an end of their own
        answered(ledger, "car", f"hour {hour}", never)
    assert ledger.repeating("model", "3") == set()
    assert ledger.repeating("model") == {"car"}
    with pytest.raises(BudgetError, match="has repeated answers 3 times"):
        answered(ledger, "car", "day 3", never, job="3")
    asked = ["car"], "1/2", "day 4", b"question", lambda able: dict.fromkeys(able, b"new")
    assert ledger.release_many(*asked, job="4", constant="model") == {}
    assert answered(ledger, "car", "day 2", never, job="2") == b"first"  # it is stored
    assert (len(ledger.history()), ledger.spent("car")) == (10, 1)
    answered(ledger, "bus", "day 3", lambda: b"second", job="3")
    assert ledger.repeating("model", "4") == {"bus"}


def test_a_vehicle_over_a_cap_that_was_lowered_does_not_repeat(ledger, tmp_path):
    answered(ledger, "car", "day 1", lambda: b"first")
    with open_ledger(tmp_path / "ledger", "1/4") as lowered:
        assert lowered.repeating("model") == set()
        with pytest.raises(BudgetError, match="of its cap"):
            answered(lowered, "car", "day 2", never)
