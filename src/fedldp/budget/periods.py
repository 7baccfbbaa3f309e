"""What a question asks: a plan, or a period of a calendar with the plan in it."""

import hashlib
from typing import NamedTuple

from .. import vehicle
from .._internal import documents

PERIOD_FORMAT = "fedldp period 1"


class PlanOrPeriod(NamedTuple):
    """What stands in the text of a question, before anything in it is validated."""

    plan: str  # as JSON
    period: str = ""  # a name of the period, if the plan belongs to a calendar
    calendar: str = ""  # as JSON
    number: int = 0  # of the period


def is_period(text: str) -> bool:
    """Return whether a text claims to be a period of a calendar, and not a plan."""
    return '"format":"fedldp period ' in text  # in a name, the quotation marks would be escaped


def read_plan_or_period(text: str) -> PlanOrPeriod:
    """Read a plan, or a period of a calendar with the plan in it; `WireError` if that fails.

    >>> read_plan_or_period("{}")
    PlanOrPeriod(plan='{}', period='', calendar='', number=0)
    """
    if not is_period(text):
        return PlanOrPeriod(text)
    with documents.reading("period of a calendar"):
        document = documents.parse(text, [PERIOD_FORMAT], {"calendar", "period"})
        calendar, number = vehicle.canonical(document["calendar"]), document["period"]
        if type(number) is not int or not 1 <= number <= vehicle.MOST_PERIODS:
            raise ValueError(
                f"a period must be from 1 to {vehicle.MOST_PERIODS}; got {number!r:.80}"
            )
        name = hashlib.sha256(calendar.encode()).hexdigest()
        plan = vehicle.canonical(document["calendar"]["plan"])
        return PlanOrPeriod(plan, f"{name} {number}", calendar, number)
