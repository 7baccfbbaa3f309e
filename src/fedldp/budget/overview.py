"""What a ledger says of all its vehicles, read without changing it or waiting for an agent."""

import os
from collections import Counter
from fractions import Fraction
from typing import NamedTuple

from ..storage import chain, database
from ..storage.chain import Link
from . import records
from .policy import Period


class JobAnswers(NamedTuple):
    """What vehicles have answered in a job; the name is empty for what belongs to no job."""

    job: str
    questions: int
    answers: int  # of all vehicles together


class Overview(NamedTuple):
    """What a ledger records about all vehicles."""

    totals: dict[str, Fraction]  # what each vehicle that has answered has spent
    jobs: list[JobAnswers]  # in the order of their first answers
    sealed: str  # the date since which the ledger refuses everybody, or an empty text

    def left(self, cap: Fraction, others: int) -> dict[Fraction, int]:
        """Return how many vehicles have how much left of their cap, the most first.

        `others` is the number of vehicles that have spent nothing.

        >>> found = Overview({"car 1": Fraction(1), "car 2": Fraction(3)}, [], "")
        >>> found.left(Fraction(2), others=8)
        {Fraction(2, 1): 8, Fraction(1, 1): 1, Fraction(0, 1): 1}
        """
        return _left(self.totals, cap, others)


def overview(path: str | os.PathLike[str], *, inspect: bool = True) -> Overview:
    """Read what a ledger records, without changing it or waiting for an agent that uses it.

    All rows are checked, unless `inspect=False`: then only that no transaction was lost.

    >>> import fedldp, tempfile
    >>> with fedldp.Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1) as ledger:
    ...     _ = ledger.release("bus 1", 0.5, "round 1", lambda: b"report", job="summer")
    ...     overview(ledger.path)
    Overview(totals={'bus 1': Fraction(1, 2)}, jobs=[JobAnswers(job='summer', ...)], sealed='')
    """
    jobs = """
        SELECT job, COUNT(DISTINCT request), COUNT(*) FROM releases GROUP BY job
        ORDER BY MIN(number)
    """
    with database.snapshot(path, records.KIND, inspect=inspect) as file:
        if inspect:
            records.check_balances(file)
        return Overview(
            records.totals(file),
            [JobAnswers(*row) for row in file.execute(jobs)],
            records.seal_date(file) or "",
        )


def costs(path: str | os.PathLike[str]) -> dict[str, dict[Fraction, int]]:
    """Read how many answers of each vehicle cost which epsilon, as `overview` reads the rest.

    >>> import fedldp, tempfile
    >>> with fedldp.Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=4.0) as ledger:
    ...     for day in range(3):
    ...         _ = ledger.release("bus 1", 0.5, f"day {day}", lambda: b"report")
    ...     costs(ledger.path)
    {'bus 1': {Fraction(1, 2): 3}}
    """
    with database.snapshot(path, records.KIND, inspect=False) as file:
        return records.costs(file)


class RecentSpending(NamedTuple):
    """What vehicles have spent in the period that ends now, and when they get it back."""

    totals: dict[str, Fraction]  # of each vehicle that has spent anything
    returns: tuple[int, int] | None  # seconds since 1970: when the first of it does, and the last

    def left(self, period: Period, others: int) -> dict[Fraction, int]:
        """Return how many vehicles may now spend how much in this period, the most first.

        `others` is the number of vehicles that have spent nothing. What the cap allows is another
        question.

        >>> recent = RecentSpending({"car 1": Fraction(1, 2)}, None)
        >>> recent.left(Period(Fraction(2), 3600), others=8)
        {Fraction(2, 1): 8, Fraction(3, 2): 1}
        """
        return _left(self.totals, period.most, others)


def recent(path: str | os.PathLike[str], period: Period) -> RecentSpending:
    """Read what a ledger records about a period, as `overview` reads the rest.

    >>> import fedldp, tempfile
    >>> week = Period(Fraction(1), 7 * 24 * 3600)
    >>> with fedldp.Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=4.0) as ledger:
    ...     _ = ledger.release("bus 1", 0.5, "round 1", lambda: b"report")
    ...     recent(ledger.path, week).totals
    {'bus 1': Fraction(1, 2)}
    """
    ends = "SELECT MIN(number), MAX(number) FROM releases WHERE number >= ? AND epsilon <> '0/1'"
    # A release counts as long as any release before it does: see `first_recent`.
    counted = "SELECT MAX(time) FROM times WHERE number <= ?"
    with database.snapshot(path, records.KIND, inspect=False) as file:
        first = records.first_recent(file, period)
        [numbers] = file.execute(ends, (first,))
        times = [file.execute(counted, (number,))[0][0] for number in numbers if number is not None]
        back = [time + period.seconds + 1 for time in times]
        totals = records.recent_totals(file, period)
        return RecentSpending(totals, (back[0], back[1]) if back else None)


def _left(totals: dict[str, Fraction], most: Fraction, others: int) -> dict[Fraction, int]:
    """Return how many vehicles have how much left of the most that each may spend."""
    counts = Counter({most: max(0, others)})
    for spent, count in Counter(totals.values()).items():  # there are few different sums
        counts[max(Fraction(), most - spent)] += count
    return {left: counts[left] for left in sorted(counts, reverse=True) if counts[left]}


def asked_and_refused(path: str | os.PathLike[str]) -> tuple[list[Link], list[str]]:
    """Read what a ledger was asked, without changing it or waiting for an agent that uses it.

    See `Ledger.asked` and `Ledger.refused`.

    >>> import fedldp, tempfile
    >>> with fedldp.Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=1.0) as ledger:
    ...     ledger.note("spring/1", "plan 7", chained=False)
    ...     asked_and_refused(ledger.path)
    ([], ['plan 7'])
    """
    with database.snapshot(path, records.KIND) as file:
        return chain.links(file), chain.refused_entries(file)
