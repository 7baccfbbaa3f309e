"""Many vehicles that share a ledger, and are asked at once."""

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import final

from fedldp.budget.calendars import Calendar
from fedldp.budget.ledger import Ledger
from fedldp.budget.policy import MOST_DRAWN
from fedldp.budget.vehicle import NONCE_BYTES, PlanQuestion
from fedldp.errors import DomainError
from fedldp.randomness import Source

__all__ = ["Vehicles"]

_PERIODS_AT_ONCE = 1 << 20

RecordsOf = Callable[[list[str]], Iterable[bytes]]


@final
@dataclass(frozen=True)
class Vehicles:
    r"""Many vehicles that share a ledger, and are asked at once.

    Parameters
    ----------
    ledger
        The ledger.

    Examples
    --------
    >>> import fedldp, tempfile
    >>> from fedldp.budget.vehicle import for_vehicle
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 1.0, fedldp.Sample(mechanism="duchi"))
    >>> question = PlanQuestion(for_vehicle(plan.to_json(), 1), "spring", "1")
    >>> draw = lambda able: [b"\x80"] * len(able)
    >>> with fedldp.Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1.0) as ledger:
    ...     Vehicles(ledger).answer(question, ["car 7", "bus 1"], draw)
    {'car 7': b'\x80', 'bus 1': b'\x80'}
    """

    ledger: Ledger

    def answer(
        self, question: PlanQuestion, vehicle_ids: list[str], records: RecordsOf
    ) -> Mapping[str, bytes]:
        """Ask some vehicles at once, and return the record of each that answers.

        If the same question is put again, the records of those that have answered are returned,
        and no other vehicle is asked.

        Parameters
        ----------
        question
            What is asked.
        vehicle_ids
            The vehicles to ask.
        records
            A function that is called with the vehicles that pay for a new answer, and returns their
            records. It may raise an error: then nobody answers or pays.

        Returns
        -------
        mapping of bytes
            The record of each vehicle that has answered, which is on disk.

        Raises
        ------
        BudgetError
            If the ledger is sealed.
        DomainError
            If another question was asked under this name.
        OSError
            If the ledger cannot be read or written. Nothing is released then.
        """

        def produce(able: list[str]) -> dict[str, bytes]:
            drawn = list(records(able))
            nonces = secrets.token_bytes(NONCE_BYTES * len(drawn))
            parts = (nonces[i : i + NONCE_BYTES] for i in range(0, len(nonces), NONCE_BYTES))
            return dict(zip(able, map(bytes.__add__, parts, drawn), strict=True))

        stored = self.ledger.release_many(
            vehicle_ids,
            question.plan.epsilon,
            question.request,
            question.content,
            produce,
            run=question.job,
            job=question.job or None,
            constant=question.constant,
            entry=question.entry,
            former=question.former,
        )
        return {
            vehicle_id: question.split_answer(answer)[1] for vehicle_id, answer in stored.items()
        }

    def answering(
        self, question: PlanQuestion, calendar: Calendar, vehicle_ids: list[str], source: Source
    ) -> dict[str, bool]:
        """Return which vehicles answer in the period of a question.

        Vehicles that have not drawn their periods draw them now. One that cannot afford all
        answers of the calendar draws nothing.

        Parameters
        ----------
        question
            What is asked, in a period of the calendar.
        calendar
            The calendar.
        vehicle_ids
            The vehicles.
        source
            The random source from which periods are drawn.

        Returns
        -------
        dict of bool
            For each vehicle that has drawn its periods, whether this one is among them.

        Raises
        ------
        BudgetError
            If the ledger is sealed.
        DomainError
            If the question belongs to no period, or the calendar has too many answers to be drawn
            for many vehicles.

        Examples
        --------
        >>> import fedldp, tempfile
        >>> from fedldp.budget.vehicle import for_vehicle
        >>> schema = fedldp.Schema.of(speed=(0, 50))
        >>> plan = fedldp.Plan(schema, 0.5, fedldp.Sample(mechanism="duchi"))
        >>> calendar, checked = fedldp.Calendar(plan, 2, answers=2), for_vehicle(plan.to_json(), 1)
        >>> question = PlanQuestion(checked, period=(calendar.fingerprint, 1))
        >>> with fedldp.Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1.0) as ledger:
        ...     Vehicles(ledger).answering(question, calendar, ["car 7"], fedldp.source())
        {'car 7': True}
        """
        if question.period is None:
            raise DomainError("the question must belong to a period of a calendar.")
        if calendar.answers > MOST_DRAWN:
            raise DomainError(
                f"an agent draws at most {MOST_DRAWN} periods for a vehicle; the calendar has "
                f"{calendar.answers}."
            )

        def draw(vehicles: int) -> Iterator[list[int]]:
            step = max(1, _PERIODS_AT_ONCE // calendar.answers)
            for first in range(0, vehicles, step):
                for periods in calendar.draw_many(min(step, vehicles - first), source):
                    yield periods.tolist()

        return self.ledger.in_period(
            vehicle_ids,
            calendar.epsilon,
            calendar.fingerprint,
            question.period[1],
            calendar.answers,
            draw,
            question.constant,
        )

    def repeating(self, question: PlanQuestion) -> set[str]:
        """Return the vehicles that would repeat an earlier answer, at no cost.

        Parameters
        ----------
        question
            What is asked.

        Returns
        -------
        set of str
            The vehicles; none if anything that is asked can change.

        Examples
        --------
        >>> import fedldp, tempfile
        >>> from fedldp.budget.vehicle import for_vehicle
        >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), epsilon=1.0)
        >>> with fedldp.Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1.0) as ledger:
        ...     Vehicles(ledger).repeating(PlanQuestion(for_vehicle(plan.to_json(), 1)))
        set()
        """
        if question.constant is None:
            return set()
        return self.ledger.repeating(question.constant, question.job or None)
