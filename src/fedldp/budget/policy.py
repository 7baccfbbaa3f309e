"""The rules of an owner: the cap, the answers to a job, the spending in a period.

A policy describes what a vehicle may still do, and changes nothing: the ledger asks it inside its
transaction, with what the vehicle has spent and answered so far.
"""

import contextlib
import time
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, Self, final

from .._internal.checks import checked_text, whole
from ..errors import DomainError
from ..vehicle import exact

Amount = float | str | Fraction

# Answers to jobs that a vehicle repeats at no cost, in its life: every day for eleven years. Each
# takes some room, and somebody who invents names of jobs must not fill the disk.
MOST_REPEATED = 1 << 12
MOST_DRAWN = 1 << 12  # periods that a vehicle of many draws in its life, for the same reason

_LARGEST_INTEGER = 10**30  # of a fraction: with larger ones, sums could grow without limit


class Period(NamedTuple):
    """The most epsilon that a vehicle may spend in any period of some seconds.

    >>> Period(Fraction(2), 7 * 24 * 3600)
    Period(most=Fraction(2, 1), seconds=604800)
    """

    most: Fraction
    seconds: int


class Standing(NamedTuple):
    """What a vehicle has spent and answered so far."""

    spent: Fraction = Fraction()  # in its life
    answers: int = 0  # in a job
    recent: Fraction = Fraction()  # spent in the period that ends now
    repeated: int = 0  # answers to jobs at no cost, in its life


NEWCOMER = Standing()  # a vehicle that has spent nothing


@final
@dataclass(frozen=True)
class Policy:
    """What any one vehicle of a ledger may spend and answer.

    >>> policy = Policy.of(cap=0.3)
    >>> policy.refusal("car 7", Standing(spent=Fraction(1, 10)), Fraction(1, 5), job="")
    ''
    >>> policy.refusal("car 7", Standing(spent=Fraction(1, 10)), Fraction(1, 4), job="")
    "'car 7' has spent 0.1 of its cap of 0.3: 0.25 more is too much..."
    """

    cap: Fraction
    answers_per_job: int
    period: Period | None

    @classmethod
    def of(cls, cap: Amount, answers_per_job: int = 1, period: Period | None = None) -> Self:
        """Validate what an owner has configured."""
        return cls(
            checked_number(cap, "cap"),
            check_answers_per_job(answers_per_job),
            None if period is None else _checked_period(period),
        )

    def refusal(self, vehicle_id: str, standing: Standing, cost: Fraction, job: str) -> str:
        """Return why a vehicle may not answer something new, or an empty text if it may."""
        if job and standing.answers >= self.answers_per_job:
            times = "once" if standing.answers == 1 else f"{standing.answers} times"
            return (
                f"{vehicle_id!r} has answered the job {job!r} {times}, and answers_per_job is "
                f"{self.answers_per_job}. Ask another vehicle, or let its owner allow more."
            )
        if job and not cost and standing.repeated >= MOST_REPEATED:
            return (
                f"{vehicle_id!r} has repeated answers {standing.repeated} times, and no vehicle "
                f"does so more than {MOST_REPEATED} times."
            )
        if self.period is not None and standing.recent + cost > self.period.most:
            return (
                f"{vehicle_id!r} has spent {float(standing.recent):.12g} of the "
                f"{float(self.period.most):.12g} that it may spend in {self.period.seconds} "
                f"seconds: {float(cost):.12g} more is too much. Ask later, or for less."
            )
        return self.beyond_cap(vehicle_id, standing.spent, cost)

    def beyond_cap(self, vehicle_id: str, spent: Fraction, cost: Fraction) -> str:
        """Return that a vehicle cannot afford something in its life, or an empty text."""
        if spent + cost <= self.cap:
            return ""
        return (
            f"{vehicle_id!r} has spent {float(spent):.12g} of its cap of "
            f"{float(self.cap):.12g}: {float(cost):.12g} more is too much. "
            "Ask for less, or let its owner raise the cap."
        )


def check_job(value: str | None) -> str:
    """Validate the name of a job and return it as a ledger stores it: empty for no job."""
    if value == "":
        raise DomainError("job must not be empty: give the job a name, or leave it out.")
    return "" if value is None else checked_text(value, "job", empty=True)


def check_answers_per_job(value: int) -> int:
    """Validate how many times a vehicle may answer one job."""
    number = whole(value, "answers_per_job")
    if isinstance(value, bool) or number < 1:
        raise DomainError(f"answers_per_job must be at least 1; got {value!r}.")
    return number


def checked_number(value: Amount, name: str) -> Fraction:
    """Validate a cap or an epsilon, and return it exactly."""
    with contextlib.suppress(ValueError):
        number = value if isinstance(value, Fraction) and value > 0 else exact(value)
        if max(number.numerator, number.denominator) < _LARGEST_INTEGER:
            return number
    raise DomainError(f"{name} must be a positive number of up to 30 digits; got {value!r}.")


def _checked_period(period: Period) -> Period:
    seconds = whole(period.seconds, "seconds of a period")
    if seconds < 1:
        raise DomainError(f"a period must have at least a second; got {seconds}.")
    return Period(checked_number(period.most, "most of a period"), seconds)


def now() -> int:
    """Return the seconds since 1970, rounded down, by the clock of this machine."""
    return int(time.time())
