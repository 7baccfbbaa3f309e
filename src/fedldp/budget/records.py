"""What a ledger records: its tables, how older formats become this one, and what rows say.

The functions read and write rows of an open file. What may be released, `fedldp.budget.policy`
says; `Ledger` puts both together in one transaction.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import starmap
from typing import Any

from ..errors import WireError
from ..storage import chain, head
from ..storage.database import Database, Kind, Readable
from ..vehicle import exact
from . import policy
from .policy import NEWCOMER, Period, Standing

Request = str | bytes

NO_COST = Fraction()

_VEHICLES_PER_QUERY = 500  # SQLite takes at least 999 values
_ROWS_AT_ONCE = 1 << 12
_LONGEST_SUM_BITS = 512
_MOST_REMEMBERED_STEPS = 1 << 16  # between two balances, once they have been checked

# A release says what its vehicle has spent with it, like a line of a bank statement: the last one
# tells what a vehicle may still spend, however many there are. Rows never change, and balances are
# in the sum that the head knows, like all else. Each release names the one before, so that those of
# a vehicle are found without an index of all: it would take a page of the disk for each vehicle,
# once each has many. No two name the same one, and the last one is named by none: a vehicle cannot
# go back to an earlier release, as if it had not spent what came after. Every sixteenth one is in
# an index, so that one of a certain time is near.
_RELEASES = """
    CREATE TABLE releases (
        number INTEGER PRIMARY KEY,
        key TEXT NOT NULL,
        request NOT NULL,  -- a text or bytes, as it was given
        run TEXT NOT NULL,
        job TEXT NOT NULL,  -- empty for a release that belongs to no job
        epsilon TEXT NOT NULL,  -- an exact fraction, "n/d"
        answer BLOB NOT NULL,
        spent TEXT NOT NULL,  -- the sum of all epsilons of this vehicle up to here; empty if long
        repeated INTEGER NOT NULL,  -- its answers to jobs at no cost up to here
        previous INTEGER UNIQUE,  -- the number of the release before of this vehicle
        position INTEGER NOT NULL,  -- among the releases of this vehicle, from 1 on
        UNIQUE (request, key)
    )
"""
_IS_INDEXED = "position % 16 = 1"
_BY_KEY = f"CREATE INDEX by_key ON releases (key) WHERE {_IS_INDEXED}"
_BY_JOB = "CREATE INDEX by_job ON releases (job, key)"
_LAST = """
    CREATE TABLE last (  -- release of each vehicle: what the releases say, where it is found
        key TEXT PRIMARY KEY,
        number INTEGER NOT NULL,
        position INTEGER NOT NULL
    ) WITHOUT ROWID
"""
_LAST_FOLLOWS = (
    """
    AFTER INSERT ON main.releases WHEN NEW.previous IS NULL
    BEGIN INSERT INTO last VALUES (NEW.key, NEW.number, NEW.position); END
    """,
    """
    AFTER INSERT ON main.releases WHEN NEW.previous IS NOT NULL
    BEGIN
        UPDATE last SET number = NEW.number, position = NEW.position
        WHERE key = NEW.key AND number = NEW.previous;
        SELECT RAISE(ABORT, 'a release does not follow the last one') WHERE changes() <> 1;
    END
    """,
    """
    BEFORE UPDATE ON main.last
    WHEN (NEW.key = OLD.key AND NEW.number > OLD.number AND NEW.position = OLD.position + 1)
        IS NOT TRUE
    BEGIN SELECT RAISE(ABORT, 'the last release of a vehicle only moves on'); END
    """,
    "BEFORE DELETE ON main.last BEGIN SELECT RAISE(ABORT, 'its rows are never deleted'); END",
)
_QUESTIONS = """
    CREATE TABLE questions (  -- what was asked of many under one request
        request PRIMARY KEY,
        question BLOB NOT NULL
    )
"""
_SEALS = "CREATE TABLE seals (date TEXT NOT NULL)"  # with a row in it, no vehicle may spend
_DRAWS = """
    CREATE TABLE draws (  -- in which periods of a calendar a vehicle answers
        key TEXT NOT NULL,
        calendar TEXT NOT NULL,
        periods TEXT NOT NULL,  -- whole numbers, "3 7 21"
        PRIMARY KEY (key, calendar)
    )
"""
_CONSTANTS = """
    CREATE TABLE constants (  -- which release a vehicle repeats if the same is asked again
        key TEXT NOT NULL,
        constant TEXT NOT NULL,  -- a name of what was asked
        request NOT NULL,
        PRIMARY KEY (key, constant)
    )
"""

# Releases are never deleted, so their numbers ascend.
_TIMES = """
    CREATE TABLE times (  -- when the release with this number, and those up to the next, were made
        number INTEGER PRIMARY KEY,
        time INTEGER NOT NULL  -- seconds since 1970, rounded down
    )
"""

_RELEASES_3 = """
    CREATE TABLE releases (  -- of formats 3 to 7
        number INTEGER PRIMARY KEY,
        key TEXT NOT NULL,
        request NOT NULL,
        run TEXT NOT NULL,
        job TEXT NOT NULL,
        epsilon TEXT NOT NULL,
        answer BLOB NOT NULL,
        UNIQUE (key, request)
    )
"""
_RELEASES_8 = """
    CREATE TABLE releases (
        number INTEGER PRIMARY KEY,
        key TEXT NOT NULL,
        request NOT NULL,
        run TEXT NOT NULL,
        job TEXT NOT NULL,
        epsilon TEXT NOT NULL,
        answer BLOB NOT NULL,
        spent TEXT NOT NULL,
        repeated INTEGER NOT NULL,
        UNIQUE (request, key)
    )
"""
_BY_KEY_8 = "CREATE INDEX by_key ON releases (key)"


def _add_balances(file: Readable) -> None:
    """Copy the releases of format 7, and add up what each vehicle has spent."""
    spent: dict[str, Fraction] = {}
    repeated: Counter[str] = Counter()
    insert = """
        INSERT INTO releases
        SELECT number, key, request, run, job, epsilon, answer, ?, ? FROM releases_7
        WHERE number = ?
    """
    for number, key, text, of_job in _in_order(
        file, "releases_7", "number, key, epsilon, job <> ''"
    ):
        cost = fraction(file, text)
        spent[key] = spent.get(key, NO_COST) + cost
        repeated[key] += of_job and not cost
        file.execute(insert, (_sum_text(spent[key]), repeated[key], number))


def _in_order(file: Readable, table: str, columns: str) -> Iterator[Any]:
    """Yield the columns of releases, the number first, and keep few in memory."""
    query = f"""
        SELECT {columns} FROM {table} WHERE number > ? ORDER BY number LIMIT {_ROWS_AT_ONCE}
    """  # noqa: S608 (our own names)
    last = -1 << 63
    while rows := file.execute(query, (last,)):
        yield from rows
        last = rows[-1][0]


KIND = Kind(
    name="ledger",
    mark=b"fLDP",
    format=9,
    tables=";".join(
        (
            *(_RELEASES, _BY_KEY, _BY_JOB, _LAST, _QUESTIONS, _SEALS, _DRAWS, _CONSTANTS, _TIMES),
            *chain.TABLES,
            head.TABLE,
            "",
        )
    ),
    advice=(
        "Do not restore a backup and do not delete the file: what was spent would be forgotten, "
        "and could be spent again. If it has a mirror: `fedldp ledger takeover MIRROR`. Otherwise "
        "`fedldp ledger seal {path}` moves it aside and writes a ledger that refuses everybody."
    ),
    migrations={
        # In format 2 a vault wrote the job as the run. The table is made anew, because a program
        # that has it open, and does not know of jobs, must not be able to write into it.
        2: (
            "ALTER TABLE releases RENAME TO releases_2",
            "DROP INDEX by_request",
            _RELEASES_3,
            """
            INSERT INTO releases (number, key, request, run, job, epsilon, answer)
            SELECT number, key, request, run, run, epsilon, answer FROM releases_2
            """,
            "DROP TABLE releases_2",
            "CREATE INDEX by_request ON releases (request)",
            _BY_JOB,
            _SEALS,
        ),
        3: (_DRAWS,),  # no calendars were known
        4: (_CONSTANTS,),  # every answer was paid for
        # When something was released is not known. It counts as released now, so that nobody
        # spends more in a period.
        5: (
            _TIMES,
            """
            INSERT INTO times
            SELECT MIN(number), CAST(strftime('%s', 'now') AS INTEGER) FROM releases
            HAVING COUNT(*)
            """,
            *chain.TABLES,
        ),
        6: (head.TABLE,),  # nothing could tell whether the last transactions are missing
        7: (  # releases had no balances
            "ALTER TABLE releases RENAME TO releases_7",
            "DROP INDEX by_request",
            "DROP INDEX by_job",
            _RELEASES_8,
            _add_balances,
            "DROP TABLE releases_7",
            _BY_KEY_8,
            _BY_JOB,
        ),
        8: (  # releases of a vehicle were found by an index alone
            "ALTER TABLE releases RENAME TO releases_8",
            "DROP INDEX by_job",
            _RELEASES,
            _LAST,
            # In the order of the index, which needs no sorting, and then in that of the table.
            """
            CREATE TEMP TABLE places AS
            SELECT number, LAG(number) OVER of_vehicle AS previous,
                ROW_NUMBER() OVER of_vehicle AS position
            FROM releases_8 WINDOW of_vehicle AS (PARTITION BY key ORDER BY number)
            ORDER BY number
            """,
            """
            INSERT INTO releases
            SELECT releases_8.*, places.previous, places.position
            FROM temp.places CROSS JOIN releases_8 USING (number)
            """,
            "INSERT INTO last SELECT key, MAX(number), COUNT(*) FROM releases_8 GROUP BY key",
            "DROP TABLE temp.places",
            "DROP TABLE releases_8",
            _BY_KEY,
            _BY_JOB,
        ),
    },
    head_since=7,
    derived={"last": _LAST_FOLLOWS},
    missing=(
        "If its vehicles have never answered, make one: `fedldp ledger init {path}`. If they have, "
        "find it: with a new one, what they spent would be forgotten. If it is lost and has a "
        "mirror: `fedldp ledger takeover MIRROR`. Otherwise `fedldp ledger seal {path}` writes one "
        "that refuses everybody."
    ),
)
_BEYOND_ALL_RELEASES = 1 << 62  # a number above the number of every release
_INSERT = """
    INSERT INTO releases
        (key, request, run, job, epsilon, answer, spent, repeated, previous, position)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, (SELECT number FROM last WHERE key = ?1),
        COALESCE((SELECT position FROM last WHERE key = ?1), 0) + 1)
"""
_TOTALS = """
    SELECT last.key, spent, releases.key = last.key AND releases.position = last.position
        AND NOT EXISTS (SELECT 1 FROM releases AS later WHERE later.previous = last.number)
    FROM last LEFT JOIN releases USING (number) ORDER BY last.key
"""
_ADDED_UP = """
    WITH RECURSIVE release (number, previous, position, epsilon) AS (
        SELECT number, previous, releases.position, epsilon
        FROM last JOIN releases USING (key, number) WHERE key = ?1
        UNION ALL
        SELECT former.number, former.previous, former.position, former.epsilon
        FROM release JOIN releases AS former ON former.number = release.previous
        WHERE former.key = ?1 AND former.position = release.position - 1
    )
    SELECT epsilon, SUM(number < ?2), COUNT(*), MAX(position) FROM release GROUP BY epsilon
"""
_RECENT = "SELECT key, epsilon, COUNT(*) FROM releases WHERE number >= ? GROUP BY key, epsilon"

# Names of constants: the one that is given, and those that version 0.2 has made of it.
_CONSTANT_NAMES = "{}", "records of {}", "answers of {}"


def answer(file: Readable, vehicle_id: str, request: Request) -> tuple[str, bytes] | None:
    """Return what a vehicle has answered to a request, after the epsilon that it paid."""
    query = "SELECT epsilon, answer FROM releases WHERE key = ? AND request = ?"
    for text, found in file.execute(query, (vehicle_id, request)):
        return text, bytes(found)
    return None


def answers(file: Readable, request: Request) -> dict[str, bytes]:
    """Return what all vehicles have answered to a request."""
    return dict(file.execute("SELECT key, answer FROM releases WHERE request = ?", (request,)))


def question(file: Readable, request: Request) -> bytes | None:
    """Return what was asked of many under a request."""
    for (found,) in file.execute("SELECT question FROM questions WHERE request = ?", (request,)):
        return bytes(found)
    return None


def add_question(file: Readable, request: Request, asked: bytes) -> None:
    """Record what was asked of many under a request; call it in a transaction."""
    file.execute("INSERT INTO questions VALUES (?, ?)", (request, asked))


def add(
    file: Database,
    answers: Mapping[str, bytes],
    standings: Mapping[str, Standing],
    cost: Fraction,
    request: Request,
    run: str,
    job: str,
) -> None:
    """Record the answers of some vehicles, and what each has paid; call it in a transaction."""
    if not answers:
        return
    # One row for many releases. A clock that was set back makes later rows with earlier times,
    # which `first_recent` allows for.
    file.execute(
        """
        INSERT INTO times
        SELECT (SELECT COALESCE(MAX(number), 0) + 1 FROM releases), ?1
        WHERE ?1 IS NOT (SELECT time FROM times ORDER BY number DESC LIMIT 1)
        """,
        (policy.now(),),
    )
    text, repeats = _text(cost), bool(job) and not cost
    after: dict[int, tuple[str, int]] = {}  # by the identity of a standing, which many share

    def row(vehicle_id: str, answer: bytes) -> tuple[object, ...]:
        standing = standings.get(vehicle_id, NEWCOMER)
        balance = after.get(id(standing))
        if balance is None:
            balance = _sum_text(standing.spent + cost), standing.repeated + repeats
            after[id(standing)] = balance
        return vehicle_id, request, run, job, text, answer, *balance

    file.execute_many(_INSERT, starmap(row, answers.items()))


def standings(
    file: Readable, vehicle_ids: Sequence[str], job: str, period: Period | None
) -> dict[str, Standing]:
    """Return what the vehicles that have spent anything have spent and answered.

    Vehicles with the same standing share one object.
    """
    recent_from = first_recent(file, period)
    standing_of: dict[str, Standing] = {}
    known: dict[tuple[object, ...], Standing] = {}
    for batch in batches(vehicle_ids):
        query = _standings_query(len(batch))
        for key, *balance in file.execute(query, (*batch, job, recent_from)):
            stored = tuple(balance)
            if stored not in known or "" in stored:
                known[stored] = _standing(file, key, stored, recent_from)
            standing_of[key] = known[stored]
    return standing_of


@lru_cache(maxsize=2)  # one vehicle, and a whole batch
def _standings_query(vehicles: int) -> str:
    """Return the query for some vehicles, a job, and the first release that counts as recent.

    A vehicle without a last release has none at all, or its row in `last` was removed.
    """
    job, first = f"?{vehicles + 1}", f"?{vehicles + 2}"
    indexed = f"SELECT MIN(number) FROM releases WHERE key = asked.key AND {_IS_INDEXED}"  # noqa: S608
    before = f"""
        WITH RECURSIVE near (number, previous, position, spent) AS (
            SELECT number, previous, position, spent FROM releases
            WHERE key = asked.key
                AND number = COALESCE(({indexed} AND number >= {first}), last.number)
            UNION ALL
            SELECT former.number, former.previous, former.position, former.spent
            FROM near JOIN releases AS former ON former.number = near.previous
            WHERE near.number >= {first} AND former.key = asked.key
                AND former.position = near.position - 1
        )
        SELECT spent FROM near WHERE number < {first}
    """  # noqa: S608 (nothing but question marks)
    return f"""
        WITH asked (key) AS (VALUES {", ".join(["(?)"] * vehicles)})
        SELECT asked.key,
            release.key = asked.key AND release.position = last.position AND CASE
                WHEN release.previous IS NULL THEN release.position = 1
                ELSE former.key = asked.key AND former.position = release.position - 1 END
                AND NOT EXISTS (SELECT 1 FROM releases WHERE previous = release.number),
            release.spent, release.repeated, release.epsilon, release.job <> '',
            former.spent, former.repeated,
            CASE {job} WHEN '' THEN 0 ELSE
                (SELECT COUNT(*) FROM releases WHERE job = {job} AND key = asked.key) END,
            CASE WHEN last.number < {first} THEN release.spent ELSE ({before}) END
        FROM asked LEFT JOIN last USING (key)
        LEFT JOIN releases AS release ON release.number = last.number
        LEFT JOIN releases AS former ON former.number = release.previous
        WHERE last.number IS NOT NULL OR ({indexed}) IS NOT NULL
    """  # noqa: S608 (nothing but question marks)


def _standing(file: Readable, key: str, stored: tuple[Any, ...], recent_from: int) -> Standing:
    """Return the standing that the last two releases of a vehicle tell, if they fit together."""
    is_last, spent, repeated, epsilon, of_job, former, former_repeated, answered, before = stored
    if not is_last:
        raise _out_of_order(file, key)
    _check_balance(file, former, former_repeated, epsilon, of_job, spent, repeated)
    total = _stored_sum(file, spent, key)
    recent = (
        NO_COST if before == spent != "" else total - _stored_sum(file, before, key, recent_from)
    )
    return Standing(total, answered, recent, repeated)


def _stored_sum(
    file: Readable, text: str | None, key: str, before: int = _BEYOND_ALL_RELEASES
) -> Fraction:
    """Return what a vehicle has spent before a release, as the one before that has stored it."""
    if text is None:
        return NO_COST
    return fraction(file, text) if text else added_up(file, key, before)


def check_balances(file: Readable) -> None:
    """Refuse a file in which any release does not follow the one before of its vehicle.

    Its balance is the one before and its cost, and `last` knows the last release of each vehicle.
    """
    last: dict[str, tuple[int, int, str, int]] = {}
    checked: set[tuple[object, ...]] = set()
    columns = "number, key, previous, position, epsilon, job <> '', spent, repeated"
    for number, key, previous, position, *release, spent, repeated in _in_order(
        file, "releases", columns
    ):
        former, former_position, *balance = last.get(key, (None, 0, None, None))
        if previous != former or position != former_position + 1:
            raise _out_of_order(file, key)
        step = (*balance, *release, spent, repeated)
        if step not in checked:
            _check_balance(file, *step)
            if len(checked) < _MOST_REMEMBERED_STEPS:
                checked.add(step)
        last[key] = number, position, spent, repeated
    for key, *place in file.execute("SELECT key, number, position FROM last"):
        if place != [*last.pop(key, ())[:2]]:
            raise _out_of_order(file, key)
    for key in last:
        raise _out_of_order(file, key)


def _out_of_order(file: Readable, key: object) -> WireError:
    return file.damaged(f"the releases of {key!r:.80} do not follow each other")


def _check_balance(
    file: Readable,
    former: str | None,
    former_repeated: int | None,
    epsilon: str,
    of_job: int,
    spent: str,
    repeated: int,
) -> None:
    """Refuse a balance that does not follow from the one before, which is None for a newcomer.

    Sums that are too long to be stored are added up whenever they are needed.
    """
    cost = fraction(file, epsilon)
    is_sum = (
        former == ""
        or (spent == "" and former is not None)
        or spent == _sum_text((NO_COST if former is None else fraction(file, former)) + cost)
    )
    counted = 0 if former is None else former_repeated
    is_count = isinstance(counted, int) and repeated == counted + (of_job and not cost)
    if not is_sum or not is_count:
        raise file.damaged(f"it has a balance of {spent!r:.80} after an epsilon of {epsilon!r:.80}")


def added_up(file: Readable, vehicle_id: str, before: int = _BEYOND_ALL_RELEASES) -> Fraction:
    """Return what a vehicle has spent before a release, from each of its epsilons."""
    rows = file.execute(_ADDED_UP, (vehicle_id, before))
    if sum(row[2] for row in rows) != max((row[3] for row in rows), default=0):
        raise _out_of_order(file, vehicle_id)
    return sum((fraction(file, text) * count for text, count, *_ in rows), NO_COST)


def first_recent(file: Readable, period: Period | None) -> int:
    """Return the number of the first release that counts for the period that ends now.

    Times are rounded down, and all releases after one that counts do too. So none is left out that
    was made within the period, even if the clock was set back since.
    """
    if period is None:
        return _BEYOND_ALL_RELEASES
    query = "SELECT MIN(number) FROM times WHERE time >= ?"
    [(first,)] = file.execute(query, (policy.now() - period.seconds,))
    return _BEYOND_ALL_RELEASES if first is None else first


def totals(file: Readable) -> dict[str, Fraction]:
    """Return what each vehicle that has spent anything has spent."""
    totals = {}
    for key, text, is_last in file.execute(_TOTALS):
        if not is_last:
            raise _out_of_order(file, key)
        totals[key] = fraction(file, text) if text else added_up(file, key)
    return totals


def recent_totals(file: Readable, period: Period | None) -> dict[str, Fraction]:
    """Return what each vehicle has spent in the period that ends now."""
    return _sums(file, file.execute(_RECENT, (first_recent(file, period),)))


def costs(file: Readable) -> dict[str, dict[Fraction, int]]:
    """Return how many answers of each vehicle cost which epsilon."""
    found: dict[str, dict[Fraction, int]] = {}
    for key, text, count in file.execute(_RECENT, (0,)):
        found.setdefault(key, {})[fraction(file, text)] = count
    return found


def seal_date(file: Readable) -> str | None:
    """Return the date since which a ledger refuses everybody, if it does."""
    date: str | None
    [(date,)] = file.execute("SELECT MAX(date) FROM seals")
    return date


def kept_answers(file: Readable, vehicle_ids: Sequence[str], constant: str) -> dict[str, bytes]:
    """Return the answers to what never changes that some vehicles repeat."""
    kept: dict[str, bytes] = {}
    for some in batches(vehicle_ids):
        query = f"""
            SELECT key, answer FROM constants JOIN releases USING (key, request)
            WHERE constant IN (?, ?, ?) AND key IN ({_marks(some)})
            ORDER BY constants.rowid DESC  -- the first answer of a vehicle counts
        """  # noqa: S608 (nothing but question marks)
        kept.update(file.execute(query, (*_constant_names(constant), *some)))
    return kept


def keepers(file: Readable, constant: str) -> list[str]:
    """Return the vehicles that have answered what never changes."""
    query = "SELECT DISTINCT key FROM constants WHERE constant IN (?, ?, ?)"
    return [each for (each,) in file.execute(query, _constant_names(constant))]


def keep(file: Database, vehicle_ids: Iterable[str], constant: str, request: Request) -> None:
    """Record which answer some vehicles repeat; call it in a transaction."""
    rows = ((each, constant, request) for each in vehicle_ids)
    file.execute_many("INSERT INTO constants VALUES (?, ?, ?)", rows)


def drawn(file: Readable, vehicle_id: str, calendar: str) -> tuple[int, ...] | None:
    """Return in which periods of a calendar a vehicle answers, if it has drawn them."""
    query = "SELECT periods FROM draws WHERE key = ? AND calendar = ?"
    for (text,) in file.execute(query, (vehicle_id, calendar)):
        try:
            return tuple(map(int, text.split(" ")))
        except ValueError:
            raise file.damaged(f"it has periods of {text!r:.80}") from None
    return None


def drawn_in_period(
    file: Readable, vehicle_ids: Sequence[str], calendar: str, period: int
) -> dict[str, bool]:
    """Return for the vehicles that have drawn their periods whether one is among them."""
    is_drawn: dict[str, bool] = {}
    for batch in batches(vehicle_ids):
        query = f"""
            SELECT key, periods FROM draws
            WHERE calendar = ? AND key IN ({_marks(batch)})
        """  # noqa: S608 (nothing but question marks)
        rows = file.execute(query, (calendar, *batch))
        is_drawn.update((vehicle_id, _has(file, text, period)) for vehicle_id, text in rows)
    return is_drawn


def drawn_counts(file: Readable, vehicle_ids: Sequence[str]) -> dict[str, int]:
    """Return how many periods of all calendars the vehicles have drawn that have drawn any."""
    found: dict[str, int] = {}
    for some in batches(vehicle_ids):
        query = f"""
            SELECT key, SUM(LENGTH(periods) - LENGTH(REPLACE(periods, ' ', '')) + 1)
            FROM draws WHERE key IN ({_marks(some)}) GROUP BY key
        """  # noqa: S608 (nothing but question marks)
        found.update(file.execute(query, tuple(some)))
    return found


def add_drawn(file: Database, calendar: str, drawn: Iterable[tuple[str, Iterable[int]]]) -> None:
    """Record the periods of some vehicles; call it in a transaction."""
    rows = ((each, calendar, " ".join(map(str, periods))) for each, periods in drawn)
    file.execute_many("INSERT INTO draws VALUES (?, ?, ?)", rows)


def fraction(file: Readable, text: str) -> Fraction:
    """Return an epsilon, or a sum of some, as it is stored."""
    try:
        return _exact(text) if text != "0/1" else NO_COST
    except (ValueError, TypeError):
        raise file.damaged(f"it has an epsilon of {text!r}") from None


_exact = lru_cache(maxsize=1 << 12)(exact)  # there are few different ones


def _text(number: Fraction) -> str:
    return f"{number.numerator}/{number.denominator}"


def _sum_text(total: Fraction) -> str:
    """Return a sum as it is stored: empty if it is long, so that nobody can fill the disk.

    Denominators of thirty digits without a common factor make a sum longer with each release.
    """
    bits = max(total.numerator.bit_length(), total.denominator.bit_length())
    return _text(total) if bits <= _LONGEST_SUM_BITS else ""


def batches(vehicle_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield as many vehicles at once as a query can name."""
    for first in range(0, len(vehicle_ids), _VEHICLES_PER_QUERY):
        yield vehicle_ids[first : first + _VEHICLES_PER_QUERY]


def _has(file: Readable, text: str, period: int) -> bool:
    """Return whether a period is among those of a text, which may be thousands."""
    if not text.replace(" ", "").isdecimal():
        raise file.damaged(f"it has periods of {text!r:.80}")
    return f" {period} " in f" {text} "


def _sums(file: Readable, rows: Iterable[tuple[str, str, int]]) -> dict[str, Fraction]:
    found: dict[str, Fraction] = {}
    costs: dict[tuple[str, int], Fraction] = {}  # there are few different ones
    for vehicle_id, text, count in rows:
        if (text, count) not in costs:
            costs[text, count] = fraction(file, text) * count
        cost = costs[text, count]
        found[vehicle_id] = found[vehicle_id] + cost if vehicle_id in found else cost
    return found


def _marks(some: Sequence[str]) -> str:
    return ", ".join("?" * len(some))


def _constant_names(constant: str) -> tuple[str, ...]:
    return tuple(name.format(constant) for name in _CONSTANT_NAMES)
