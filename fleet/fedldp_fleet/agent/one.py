"""One vehicle on the standard library: it answers through `Vehicle`, and reads its data last."""

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, final

from ..common import (
    ONLY_VEHICLE,
    BudgetError,
    Calendar,
    DomainError,
    Ledger,
    PaidAnswer,
    PlanQuestion,
    PrivacyError,
    Vehicle,
    canonical,
    exact,
    for_vehicle,
    read_plan_or_period,
    vehicle,
    warn_owner,
)
from ..questions import Question
from ..signed_jobs import SignedJob, SignedStage
from ..transparency import entry
from .linear import Row, VehicleWork, work_for
from .loop import CheckedQuestion

Rows = Callable[[], Row | Sequence[Row]]

_LARGEST_CALENDAR = Fraction(1 << 20)  # what it costs is checked when periods are drawn


def tell_counts(answer: PaidAnswer) -> None:
    """Tell the owner how many values were clipped or replaced: logs are kept, so no values."""
    if answer.failure:
        warn_owner(f"fedldp agent: all values count as missing: {answer.failure}")
    elif count := sum(not note.startswith("the key ") for note in answer.notes):
        warn_owner(f"fedldp agent: {count} values of the row were clipped or replaced.")


@final
class OneVehicle:
    """The holder of one vehicle.

    Parameters
    ----------
    ledger
        Its ledger.
    rows
        A function that returns its row, or several. It is called only when an answer is drawn; if
        it fails, all values count as missing, and the owner is told.
    schema
        The attributes that it has, as JSON; with none, what the operator signs is believed.
    epsilon
        If it is given, questions with another epsilon are refused.
    fewest_vehicles
        With more than one, nothing is answered: this is one vehicle.
    """

    def __init__(
        self,
        ledger: Ledger,
        rows: Rows,
        *,
        vehicle_id: str = ONLY_VEHICLE,
        schema: Sequence[Mapping[str, Any]] | None = None,
        epsilon: Fraction | None = None,
        fewest_vehicles: int = 1,
        tell: Callable[[PaidAnswer], None] = tell_counts,
    ) -> None:
        self._ledger, self._rows, self._id = ledger, rows, vehicle_id
        self._held = None if schema is None else {canonical(dict(each)) for each in schema}
        self._epsilon, self._fewest = epsilon, fewest_vehicles
        self._vehicle = Vehicle(ledger, vehicle_id, tell)

    def check(self, question: Question, job: SignedJob, stage: SignedStage) -> CheckedQuestion:
        """Read a question and check its plan, what it computes, and the cap. Read no data."""
        what = read_plan_or_period(question.plan)
        document = json.loads(what.plan)
        model = json.loads(question.model) if question.model else None
        plan = for_vehicle(what.plan, self._ledger.cap)
        work = work_for(document, model)
        stage.check(work)
        if what.calendar and model is not None:
            raise DomainError("a calendar asks for rows; the question also has a model.")
        needed = document if model is None else model
        self._check_held([*needed["schema"], *([needed["target"]] if "target" in needed else [])])
        if self._epsilon is not None and exact(document["epsilon"]) != self._epsilon:
            raise DomainError(
                f"its epsilon is {document['epsilon']}, and this vehicle answers only questions "
                f"with an epsilon of {float(self._epsilon):g}."
            )
        if self._fewest > 1:
            raise DomainError(
                f"the owner wants at least {self._fewest} vehicles to answer together; "
                "this agent has one."
            )
        calendar = _calendar(what.calendar) if what.calendar else None
        period = (calendar.fingerprint, what.number) if calendar else None
        named = PlanQuestion(
            plan,
            question.job,
            str(question.round),
            question.digest,
            period=period,
            entry=entry(question),
            former=(f"records of {what.period}",) if calendar else (),
            repeats=model is None,
        )
        return CheckedQuestion(question, named, job, (work, calendar))

    def _check_held(self, attributes: Sequence[Mapping[str, Any]]) -> None:
        others = (
            []
            if self._held is None
            else [
                str(each["name"]) for each in attributes if canonical(dict(each)) not in self._held
            ]
        )
        if others:
            raise DomainError(
                "the question asks for attributes that this vehicle does not have with these "
                f"bounds: {', '.join(others)}."
            )

    def able(self, checked: CheckedQuestion) -> int:
        """Return 1 if the vehicle may still answer, and 0 otherwise."""
        question = checked.asked
        if self._id in self._ledger.stored(question.request):
            return 1  # it only has to be sent again
        try:
            self._vehicle.check(question.plan, job=question.job)
            return int(self._is_its_turn(checked))
        except BudgetError:
            return 0

    def _is_its_turn(self, checked: CheckedQuestion) -> bool:
        """Return whether the vehicle has drawn this round of a lot, or this period."""
        job, question, (_, calendar) = checked.job, checked.asked, checked.work
        constant = question.constant
        if calendar is not None:
            return checked.asked.period is not None and checked.asked.period[1] in (
                self._ledger.periods(
                    self._id, calendar.epsilon, calendar.fingerprint, calendar.draw, constant
                )
            )
        if job.order != "lot":
            return True
        lot = lambda: [job.round_of(secrets.randbits(128))]  # noqa: E731
        cost = question.plan.epsilon
        drawn = self._ledger.periods(self._id, cost, f"lot of {job.job}", lot, constant)
        return checked.question.round in drawn

    def draw(self, checked: CheckedQuestion, most: int) -> list[bytes]:
        """Answer, and return the record."""
        work: VehicleWork = checked.work[0]

        word = vehicle.SYSTEM.getrandbits(vehicle.WORD)  # even if the data cannot be read

        def row() -> Any:
            return work.answer(self._rows(), word)

        if not self.able(checked):
            return []
        answer = self._vehicle.answer_question(checked.asked, row, run=checked.question.job)
        return [answer.report[vehicle.HEADER_BYTES :]]

    def pack(self, records: Sequence[bytes], bits: int) -> bytes:
        """Return the only record."""
        [record] = records
        return record


@lru_cache(maxsize=4)
def _calendar(text: str) -> Calendar:
    try:
        return Calendar(text, _LARGEST_CALENDAR, repeats=True)
    except ValueError as error:
        raise PrivacyError(f"{error}.") from None
