"""The most that a vehicle may spend in any period, by the clock of its machine."""

import pickle
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledgers import open_ledger

from fedldp.budget import overview, policy
from fedldp.budget.ledger import Period
from fedldp.errors import BudgetError, DomainError

HOUR = Period(Fraction(1), 3600)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    now = [1_000_000]
    monkeypatch.setattr(policy, "now", lambda: now[0])
    return now


def spend(ledger, epsilon, name, vehicle="car"):
    return ledger.release(vehicle, epsilon, name, lambda: b"report")


def test_a_vehicle_waits_until_the_period_is_over(tmp_path, clock):
    with open_ledger(tmp_path / "ledger", cap=10, period=HOUR) as ledger:
        spend(ledger, 0.5, "first")
        clock[0] += 1800
        spend(ledger, 0.5, "second")
        for epsilon, wait in ((0.001, 1799), (0.5, 1)):
            clock[0] += wait
            with pytest.raises(BudgetError, match="may spend in 3600 seconds"):
                spend(ledger, epsilon, "third")
        spend(ledger, 0.5, "first")  # what was answered is answered again
        spend(ledger, 1, "third", "bus")  # another vehicle
        clock[0] += 1
        assert ledger.recent() == {"car": Fraction(1, 2), "bus": 1}
        spend(ledger, 0.5, "third")
        assert ledger.recent()["car"] == 1
        assert ledger.spent("car") == Fraction(3, 2)


def test_many_vehicles_are_refused_one_by_one(tmp_path):
    with open_ledger(tmp_path / "ledger", cap=10, period=HOUR) as ledger:
        spend(ledger, 0.5, "first", "car 1")
        able = []
        answers = ledger.release_many(
            ["car 1", "car 2"], 0.75, "round 1", b"", lambda each: able.extend(each) or {}
        )
        assert (able, answers) == (["car 2"], {})


def test_a_clock_that_is_set_back_never_forgets(tmp_path, clock):
    with open_ledger(tmp_path / "ledger", cap=10, period=HOUR) as ledger:
        spend(ledger, 0.75, "first")
        clock[0] -= 100_000
        spend(ledger, 0.25, "second")
        clock[0] += 10_000  # the second alone would be over
        assert ledger.recent() == {"car": 1}
        with pytest.raises(BudgetError, match="may spend in 3600"):
            spend(ledger, 0.001, "third")
        clock[0] += 100_000
        assert ledger.recent() == {}


def test_a_clock_that_is_set_back_while_bytes_are_produced_never_forgets(tmp_path, clock):
    def set_back():
        clock[0] -= 3600
        return b"report"

    with open_ledger(tmp_path / "ledger", cap=10, period=HOUR) as ledger:
        spend(ledger, 1, "first")
        clock[0] += 3601
        with pytest.raises(BudgetError, match="may spend in 3600 seconds"):
            ledger.release("car", 1, "second", set_back, early=True)
        assert ledger.spent("car") == 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 90), st.integers(1, 4)), max_size=25))
def test_no_window_holds_more(tmp_path_factory, steps):
    """Against a list of all spendings: no window of 100 seconds has more than 5 in it."""
    now, spent = 1000, []
    path = tmp_path_factory.mktemp("period") / "ledger"
    with (
        pytest.MonkeyPatch.context() as patch,
        open_ledger(path, cap=1000, period=Period(Fraction(5), 100)) as ledger,
    ):
        patch.setattr(policy, "now", lambda: now)
        for number, (wait, cost) in enumerate(steps):
            now += wait
            allowed = cost + sum(each for at, each in spent if at >= now - 100) <= 5
            if allowed:
                spend(ledger, cost, f"{number}")
                spent.append((now, cost))
            else:
                with pytest.raises(BudgetError):
                    spend(ledger, cost, f"{number}")
    assert all(sum(c for at, c in spent if end - 100 <= at <= end) <= 5 for end, _ in spent)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(-150, 150), st.integers(1, 4), st.sampled_from(["a", "b"])),
        min_size=1,
        max_size=12,
    )
)
def test_when_what_was_spent_returns(tmp_path_factory, steps):
    """Also with a clock that is set back: one second before, nothing has returned."""
    now, period = 1000, Period(Fraction(1000), 100)
    path = tmp_path_factory.mktemp("period") / "ledger"
    with (
        pytest.MonkeyPatch.context() as patch,
        open_ledger(path, cap=1000, period=period) as ledger,
    ):
        patch.setattr(policy, "now", lambda: now)
        for number, (wait, cost, vehicle) in enumerate(steps):
            now += wait
            spend(ledger, cost, f"{number}", vehicle)
        before = overview.recent(path, period)
        assert before.totals == ledger.recent()
        first, last = before.returns
        assert now < first <= last
        found = []
        for now in (first - 1, first, last - 1, last):  # noqa: B007 (the clock)
            found.append(sum(ledger.recent().values()))
            assert sum(overview.recent(path, period).totals.values()) == found[-1]
        assert found[0] == sum(before.totals.values()) > found[1]
        assert found[2] > found[3] == 0
        assert overview.recent(path, period) == overview.RecentSpending({}, None)


def test_answers_that_are_repeated_give_nothing_back(tmp_path, clock):
    with open_ledger(tmp_path / "ledger", cap=10, period=HOUR) as ledger:
        ledger.release("car", 0.5, "day 1", lambda: b"red", constant="colour")
        clock[0] += 4000
        ledger.release("car", 0.5, "day 2", lambda: b"", constant="colour")
        found = overview.recent(ledger.path, HOUR)
        assert found == overview.RecentSpending({"car": Fraction()}, None)
        assert found.left(HOUR, others=2) == {Fraction(1): 3}


def test_without_a_period_only_the_cap_applies(tmp_path):
    with open_ledger(tmp_path / "ledger", cap=10) as ledger:
        spend(ledger, 9, "first")
        assert ledger.recent() == {}
        spend(ledger, 1, "second")


def test_one_row_for_all_releases_of_a_second(tmp_path, clock):
    with open_ledger(tmp_path / "ledger", cap=10) as ledger:
        for name in "abc":
            spend(ledger, 1, name)
        clock[0] += 1
        spend(ledger, 1, "d")
        assert ledger._file.execute("SELECT * FROM times") == [(1, 1_000_000), (4, 1_000_001)]


def test_a_copy_has_the_same_period(tmp_path):
    with open_ledger(tmp_path / "ledger", cap=10, period=HOUR) as ledger:
        copy = pickle.loads(pickle.dumps(ledger))
        assert copy.period == HOUR
        copy.close()


@pytest.mark.parametrize("period", [Period(0, 1), Period(1, 0), Period(1, 1.5), Period("x", 1)])
def test_an_invalid_period_is_refused(tmp_path, period):
    with pytest.raises(DomainError, match="period"):
        open_ledger(tmp_path / "ledger", cap=10, period=period)
