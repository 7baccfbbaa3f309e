"""The rules of a ledger, in every place where a vehicle answers a plan through it.

A place that is added to `PLACES` is tested by being there.
"""

import pytest
from answering import CONSTANT_PLAN, NUMBER_PLAN, PLACES

from fedldp import Calendar, Plan
from fedldp.budget import ledger
from fedldp.plan.strategies import Sample

WITH_JOBS = [name for name, place in PLACES.items() if place.has_jobs]
WITH_CALENDARS = [name for name, place in PLACES.items() if place.has_calendars]
EPSILON = NUMBER_PLAN.total_epsilon


@pytest.fixture
def place(request, tmp_path):
    return PLACES[request.param](tmp_path)


def places(names=tuple(PLACES)):
    return pytest.mark.parametrize("place", names, indirect=True)


@places()
def test_an_answer_is_paid_for_before_it_leaves(place):
    assert place.spent() == 0
    record = place.ask(NUMBER_PLAN)
    assert place.spent() == EPSILON
    [spending] = stored(place)
    assert spending.vehicle_id == "vehicle"
    assert len(record) == 1


def stored(place):
    with ledger.Ledger(place.path, place.cap) as opened:
        return opened.history()


@places()
def test_the_identical_question_gets_the_identical_bytes_at_no_cost(place):
    place.cap = 8  # it is not the cap that stops a second answer
    wide = Plan(
        NUMBER_PLAN.schema, 1.0, Sample(mechanism="hm-tp", outputs=255)
    )  # equal by chance: < 1/50
    records = {place.ask(wide) for _ in range(6)}
    assert len(records) == 1
    assert None not in records
    assert place.spent() == EPSILON


@places(WITH_JOBS)
def test_a_job_is_answered_once(place):
    place.cap = 8
    assert place.ask(NUMBER_PLAN, job="spring", number=1)
    assert place.ask(NUMBER_PLAN, job="spring", number=2) is None
    assert place.spent() == EPSILON
    assert place.ask(NUMBER_PLAN, job="summer", number=3)
    assert place.spent() == 2 * EPSILON


@places()
def test_nothing_is_answered_beyond_the_cap(place):
    assert place.ask(NUMBER_PLAN, job="spring", number=1)
    read = place.rows_read
    for number in (2, 3):
        assert place.ask(NUMBER_PLAN, job=f"job-{number}", number=number) is None
    assert place.spent() == EPSILON
    assert place.rows_read == read


@places()
def test_what_never_changes_is_answered_once_in_a_life(place):
    """In eight rounds of eight jobs. Eight honest draws would be equal in 1 run of 8."""
    place.cap = 8
    records = {place.ask(CONSTANT_PLAN, job=f"job-{i}", number=i) for i in range(1, 9)}
    assert len(records) == 1
    assert None not in records
    assert place.spent() == CONSTANT_PLAN.total_epsilon


@places(WITH_CALENDARS)
def test_a_calendar_is_answered_in_the_periods_that_were_drawn(place):
    calendar = Calendar(
        Plan(NUMBER_PLAN.schema, 0.25, Sample(mechanism="duchi")), periods=6, answers=4
    )
    first = [place.ask(calendar, period=period) for period in range(1, 7)]
    assert sum(record is not None for record in first) == 4
    assert [place.ask(calendar, period=period) for period in range(1, 7)] == first
    assert place.spent() == 1


@places(WITH_CALENDARS)
def test_a_calendar_that_cannot_be_afforded_is_not_begun(place):
    calendar = Calendar(NUMBER_PLAN, periods=6, answers=2)
    assert [place.ask(calendar, period=period) for period in range(1, 7)] == [None] * 6
    assert place.spent() == 0


def truncate(path):
    path.write_bytes(path.read_bytes()[:-4096])


def change(path):
    data = bytearray(path.read_bytes())
    place = data.find(b"1/1")
    data[place : place + 3] = b"1/9"
    path.write_bytes(data)


DAMAGES = {
    "deleted": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "truncated": truncate,
    "changed": change,
    "another file": lambda path: path.write_bytes(b"SQLite format 3\0" + bytes(8192)),
}


@places()
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_or_missing_ledger_answers_nothing(place, damage):
    place.cap = 8
    assert place.ask(NUMBER_PLAN)
    DAMAGES[damage](place.path)
    for job in ("spring", "summer"):
        assert place.ask(NUMBER_PLAN, job=job, number=2) is None


@places()
def test_a_sealed_ledger_answers_nothing(place):
    ledger.seal(place.path)
    assert place.ask(NUMBER_PLAN) is None
    assert place.rows_read == 0


@places()
@pytest.mark.parametrize("row", [{}, {"speed": 1e300}, {"speed": -1.0, "color": "green"}], ids=repr)
def test_the_data_decide_nothing_but_the_record(place, row):
    place.row = row
    record = place.ask(NUMBER_PLAN)
    assert len(record) == 1
    assert place.spent() == EPSILON
