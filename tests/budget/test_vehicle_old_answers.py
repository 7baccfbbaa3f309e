"""Ledgers that four places have written, each with names and forms of its own, are read as before.

tests/fixtures/make_answered_ledgers.py made them.
"""

import json
import zipfile
from fractions import Fraction
from pathlib import Path

import pytest
from answering import CONSTANT_PLAN, NUMBER_PLAN, PLACES, VEHICLE

from fedldp import Calendar, Ledger, Plan, Vehicle
from fedldp.plan.strategies import Sample

FIXTURE = Path(__file__).parents[1] / "fixtures" / "answered.zip"
CAP = 8
NUMBER = Plan(NUMBER_PLAN.schema, 1.0, Sample(mechanism="hm-tp", outputs=255))
CALENDAR = Calendar(Plan(NUMBER_PLAN.schema, 0.25, Sample(mechanism="duchi")), periods=6, answers=4)

with zipfile.ZipFile(FIXTURE) as archive:
    WRITTEN = {
        name.split("/")[0]: json.loads(archive.read(name))
        for name in archive.namelist()
        if name.endswith(".json")
    }
NOW = {"InVault": "InAgent"}  # which continues its ledger, and is asked other questions
SAME_QUESTIONS = [name for name in WRITTEN if name not in NOW]
WITH_CALENDARS = [
    name for name, answers in WRITTEN.items() if "period 1" in answers and name not in NOW
]


@pytest.fixture
def place(request, tmp_path):
    found = PLACES[NOW.get(request.param, request.param)](tmp_path, CAP)
    found.written = WRITTEN[request.param]
    with zipfile.ZipFile(FIXTURE) as archive:
        for file in ("ledger.db", "ledger.db-head"):
            (tmp_path / file).write_bytes(archive.read(f"{request.param}/{file}"))
    return found


def written(place):
    return {
        key: value if key == "spent" else value and bytes.fromhex(value)
        for key, value in place.written.items()
    }


def places(names=tuple(WRITTEN)):
    return pytest.mark.parametrize("place", names, indirect=True)


def test_all_four_places_have_written_one():
    assert sorted(WRITTEN) == ["InCalendar", "InCommand", "InMod", "InVault"]


@places(SAME_QUESTIONS)
def test_what_was_answered_is_repeated_at_no_cost(place):
    answers = written(place)
    assert place.ask(NUMBER, job="spring", number=1) == answers["number"]
    assert place.ask(CONSTANT_PLAN, job="summer", number=2) == answers["constant"]
    assert place.rows_read == 0
    assert place.spent() == Fraction(answers["spent"])


@places(list(NOW))
def test_what_was_answered_is_not_paid_for_again(place):
    """An agent's questions have another format: those of a vault's rounds are refused."""
    answers = written(place)
    assert place.ask(NUMBER, job="spring", number=1) is None
    for period in range(1, CALENDAR.periods + 1):
        place.ask(CALENDAR, period=period)
    assert place.spent() == Fraction(answers["spent"])


@places()
def test_what_never_changes_is_repeated_in_new_jobs(place):
    for number in range(3, 7):
        record = place.ask(CONSTANT_PLAN, job=f"job-{number}", number=number)
        assert record == written(place)["constant"]
    assert place.rows_read == 0
    assert place.spent() == Fraction(written(place)["spent"])


@places(WITH_CALENDARS)
def test_a_calendar_is_followed_as_it_was_begun(place):
    answers = written(place)
    for period in range(1, CALENDAR.periods + 1):
        assert place.ask(CALENDAR, period=period) == answers[f"period {period}"]
    assert place.rows_read == 0
    assert place.spent() == Fraction(answers["spent"])


@places()
def test_what_is_new_is_paid_for(place):
    assert place.ask(NUMBER, job="autumn", number=4) is not None
    assert place.spent() == Fraction(written(place)["spent"]) + NUMBER.total_epsilon


@places()
def test_any_other_program_repeats_what_never_changes(place):
    """The five names of a constant were those of one thing."""
    with Ledger(place.path, CAP) as ledger:
        first, second = (
            Vehicle(ledger, VEHICLE).answer(CONSTANT_PLAN, never, job=job) for job in "ab"
        )
    assert first.report == second.report
    assert first.report[-1:] == written(place)["constant"]
    assert place.spent() == Fraction(written(place)["spent"])


def never():
    raise AssertionError
