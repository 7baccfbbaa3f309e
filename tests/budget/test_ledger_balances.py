"""Each release says what its vehicle has spent with it: exactly, checked, and at a flat cost."""

import itertools
import random
import re
import sqlite3
import zipfile
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest
from ledger_victim import never
from ledgers import as_format

from fedldp.budget import policy, records
from fedldp.budget.ledger import Ledger, Period, mirror, overview, take_over
from fedldp.errors import BudgetError, WireError
from fedldp.storage import database, head

FIXTURES = Path(__file__).parents[1] / "fixtures"
CARS = [f"car {i}" for i in range(5)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger"


def filled(path, jobs=4):
    with Ledger.create(path, 1000) as ledger:
        for number in range(jobs):
            ledger.release_many(
                *(CARS, Fraction(1, 3), f"round {number}", b"?"),
                lambda able: dict.fromkeys(able, b"answer"),
                job=f"job {number}",
            )
    return path


def statements(path, script):
    """Change a file as a program would that knows nothing of its head."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


def with_matching_head(path):
    """Make a head agree with a file, so that only what its rows say can show a mistake."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        record = head.read_record(connection.execute(head.READ).fetchall())
        content = database._content(connection, records.KIND.derived)
        record = record._replace(content=content)
        connection.execute(head.UPDATE, record.row())
    with closing(head.Head(head.path_of(path))) as started:
        started.start(record.mark)


def steps_of_a_release(ledger, job, cars=CARS):
    """Return how many instructions SQLite's machine runs while cars answer."""
    steps = [0]

    def count():
        steps[0] += 1

    ledger._file._connection.set_progress_handler(count, 1)
    ledger.release_many(cars, 1, job, b"?", lambda able: dict.fromkeys(able, b"answer"), job=job)
    ledger._file._connection.set_progress_handler(None, 1)
    return steps[0]


@pytest.mark.parametrize("period", [None, Period(Fraction(1000), 3600)])
def test_the_cost_of_a_release_does_not_grow_with_the_history(path, period, monkeypatch):
    seconds = itertools.count(10**9)  # each release has a second of its own, which costs a row
    monkeypatch.setattr(policy, "now", lambda: next(seconds))
    filled(path, jobs=2)
    with Ledger(path, 1000, period=period) as ledger:
        first = steps_of_a_release(ledger, "first")
        for number in range(150):
            ledger.release("car 1", 1, f"alone {number}", lambda: b"answer", job=f"alone {number}")
        assert steps_of_a_release(ledger, "last") == pytest.approx(first, rel=0.02)


def test_a_balance_is_the_sum_of_all_epsilons(path):
    rng = random.Random(39)
    with Ledger.create(path, 12, answers_per_job=3, period=Period(Fraction(9), 3600)) as ledger:
        for number in range(200):
            cars = rng.sample(CARS, 3)
            costs = {"number": number, "constant": rng.choice([None, "colour", "size"])}
            job = rng.choice([None, "spring", "summer"])
            ledger.release_many(
                cars,
                rng.choice(["1/3", "0.1", 1]),
                f"round {costs['number']}",
                b"?",
                lambda able: dict.fromkeys(able, b"answer"),
                job=job,
                constant=costs["constant"],
            )
        for car in CARS:
            lines = ledger.history(car)
            assert ledger.spent(car) == sum(line.epsilon for line in lines)
            assert ledger.recent()[car] == ledger.spent(car)
            repeated = sum(1 for line in lines if line.job and not line.epsilon)
            assert ledger._standing(car).repeated == repeated > 0
        assert overview(path).totals == ledger.totals() == {car: ledger.spent(car) for car in CARS}


def test_a_balance_that_was_changed_is_refused_when_the_ledger_is_opened(path):
    filled(path)
    statements(path, "UPDATE releases SET spent = '0/1' WHERE number = 20")
    for use in (lambda: Ledger(path, 1000), lambda: overview(path)):
        with pytest.raises(WireError, match="its rows are not those that were written"):
            use()


@pytest.mark.parametrize(
    "change",
    ["spent = '1/3'", "spent = '0/1'", "spent = 'nothing'", "repeated = 3", "repeated = x'00'"],
)
@pytest.mark.parametrize("number", [16, 11])
def test_a_balance_that_was_changed_while_the_ledger_is_open_is_refused_on_first_use(
    path, change, number
):
    """The last balance of car 0, or the one before it."""
    filled(path)
    with Ledger(path, 1000) as ledger:
        statements(path, f"UPDATE releases SET {change} WHERE number = {number}")
        for use in (
            lambda: ledger.spent("car 0"),
            lambda: ledger.release("car 0", 1, "new", never),
            lambda: ledger.release_many(CARS, 1, "new", b"?", lambda _: never()),
        ):
            with pytest.raises(WireError, match=r"it has (a balance|an epsilon) of"):
                use()
        assert ledger.spent("car 1") == Fraction(4, 3)


@pytest.mark.parametrize("number", [1, 6, 11, 20])
def test_all_balances_are_checked_against_the_releases_when_the_ledger_is_opened(path, number):
    """A mistake of a program that keeps the head right."""
    filled(path)
    statements(path, f"UPDATE releases SET spent = '1/30' WHERE number = {number}")
    with_matching_head(path)
    for use in (lambda: Ledger(path, 1000), lambda: overview(path)):
        with pytest.raises(WireError, match="it has a balance of '1/30' after an epsilon of '1/3'"):
            use()


# Of car 0, 16 is the last release, 11 the one before, and 1 the first.
OTHER_PLACES = [
    "UPDATE last SET number = 11 WHERE key = 'car 0'",
    "UPDATE last SET number = 17 WHERE key = 'car 0'",  # of car 1
    "UPDATE last SET number = 99 WHERE key = 'car 0'",
    "UPDATE last SET position = 3 WHERE key = 'car 0'",
    "UPDATE last SET number = 11, position = position - 1 WHERE key = 'car 0'",  # the one before
    "UPDATE last SET key = 'nobody' WHERE key = 'car 0'",
    "DELETE FROM last WHERE key = 'car 0'",
    "DELETE FROM last",
    "UPDATE releases SET previous = NULL WHERE number = 16",
    "UPDATE releases SET previous = 16 WHERE number = 16",
    "UPDATE releases SET previous = 17 WHERE number = 16",  # of car 1
    "UPDATE releases SET previous = 99 WHERE number = 16",
    "UPDATE releases SET position = 3 WHERE number IN (11, 16)",
    "UPDATE releases SET previous = NULL, position = 1 WHERE number = 16",
    "DELETE FROM releases WHERE number = 16",
    "DELETE FROM releases WHERE number = 11",
]


@pytest.mark.parametrize("change", OTHER_PLACES)
@pytest.mark.parametrize("period", [None, Period(Fraction(1000), 3600)])
def test_another_last_release_is_refused_on_first_use(path, change, period):
    filled(path)
    with Ledger(path, 1000, period=period) as ledger:
        statements(path, change)
        for use in (
            lambda: ledger.spent("car 0"),
            lambda: ledger.release("car 0", 1, "new", never),
            lambda: ledger.release_many(CARS, 1, "new", b"?", lambda _: never()),
            lambda: ledger.periods("car 0", 1, "calendar", never),
        ):
            with pytest.raises(WireError, match="the releases of 'car 0' do not follow each other"):
                use()


@pytest.mark.parametrize("former", [6, 12])  # of car 0, of car 1
def test_no_two_releases_follow_the_same_one(path, former):
    filled(path)
    with pytest.raises(sqlite3.IntegrityError, match=r"UNIQUE.*previous"):
        statements(path, f"UPDATE releases SET previous = {former} WHERE number = 16")


@pytest.mark.parametrize("change", OTHER_PLACES)
def test_another_last_release_is_refused_when_the_ledger_is_opened(path, change):
    """Also after a mistake of a program that keeps the head right."""
    filled(path)
    statements(path, change)
    for prepare in (lambda: None, lambda: with_matching_head(path)):
        prepare()
        for use in (lambda: Ledger(path, 1000), lambda: overview(path)):
            with pytest.raises(WireError, match="is not a valid ledger"):
                use()


def test_the_last_release_of_a_vehicle_is_neither_set_back_nor_deleted(path):
    filled(path)
    with Ledger(path, 1000) as ledger:
        for change in OTHER_PLACES:
            with pytest.raises(OSError, match=r"only moves on|never deleted|never change"):
                ledger._file.execute(change)
        for previous, said in (
            ("17", "a release does not follow the last one"),  # of car 1
            ("previous", "UNIQUE"),  # that of the last release
        ):
            with pytest.raises(OSError, match=said):
                ledger._file.execute(
                    f"""
                    INSERT INTO releases SELECT 21, key, 'new', run, job, epsilon, answer, spent,
                        repeated, {previous}, position FROM releases WHERE number = 16
                    """
                )
        assert ledger.spent("car 0") == Fraction(4, 3)


def test_what_is_recent_is_found_wherever_the_period_begins(path, monkeypatch):
    """Against all epsilons, for vehicles with up to 50 releases and each place of a beginning."""
    rng, now, released = random.Random(9), 10**9, []
    monkeypatch.setattr(policy, "now", lambda: now)
    with Ledger.create(path, 10**6) as ledger:
        for number in range(50):
            now += 10
            cars = CARS[: 1 + number % 2] + rng.sample(CARS[2:], 2)
            ledger.release_many(
                cars, number + 1, f"{number}", b"?", lambda able: dict.fromkeys(able, b"answer")
            )
            released += [(now, car, number + 1) for car in cars]
    for seconds in range(1, 520, 10):
        with Ledger(path, 10**6, period=Period(Fraction(10**6), seconds)) as ledger:
            for car in CARS:
                since = (cost for at, of, cost in released if of == car and at >= now - seconds)
                assert ledger._standing(car).recent == sum(since)


def test_the_cost_of_a_release_does_not_grow_with_the_period(tmp_path, monkeypatch):
    """At most sixteen releases are looked at, however many there were before it and are in it."""
    now = 10**9
    monkeypatch.setattr(policy, "now", lambda: now)

    def most_steps(path, counts):
        nonlocal now
        with Ledger.create(path, 1000, period=Period(Fraction(1000), 3600)) as ledger:
            for count in counts:
                now += 4000
                for number in range(count):
                    ledger.release("car", 1, f"{now} {number}", lambda: b"answer")
            assert ledger.recent() == {"car": counts[-1]}
            return max(steps_of_a_release(ledger, f"last {i}", ["car"]) for i in range(16))

    few, many = most_steps(tmp_path / "few", [40, 20]), most_steps(tmp_path / "many", [200, 150])
    assert many == pytest.approx(few, rel=0.02)


def test_sums_that_grow_long_are_exact_and_take_no_room(path, monkeypatch):
    """Denominators of many digits without a common factor, as a hostile server would choose."""
    costs = [Fraction(1, 10**29 + 2 * i + 1) for i in range(60)]
    with Ledger.create(path, 1, period=Period(Fraction(1), 3600)) as ledger:
        for number, cost in enumerate(costs):
            ledger.release("car 0", cost, f"{number}", lambda: b"answer")
            ledger.release("car 1", Fraction(1, 100), f"{number}", lambda: b"answer")
            assert ledger.spent("car 0") == sum(costs[: number + 1])
        with pytest.raises(BudgetError, match="'car 0' has spent"):
            ledger.release("car 0", 1, "too much", never)
        assert ledger.totals() == ledger.recent() == overview(path).totals
        assert ledger.totals() == {"car 0": sum(costs), "car 1": Fraction(3, 5)}
        [(longest,)] = ledger._file.execute("SELECT MAX(LENGTH(spent)) FROM releases")
        assert longest < 400
        later = policy.now() + 4000
        monkeypatch.setattr(policy, "now", lambda: later)
        assert ledger._standing("car 0").recent == 0
        ledger.release("car 0", "1/7", "later", lambda: b"answer")
        assert ledger._standing("car 0").recent == Fraction(1, 7)
    with Ledger(path, 1) as ledger:
        assert ledger.spent("car 0") == sum(costs) + Fraction(1, 7)


@pytest.mark.parametrize("format_", [7, 8])
def test_a_ledger_and_its_mirror_are_migrated(path, tmp_path, format_):
    copy = tmp_path / "copy"
    filled(path)
    mirror(path, copy)
    with Ledger(path, 1000) as ledger:
        ledger.release("car 0", "1/7", "mirrored", lambda: b"answer")
    for each in (path, copy):
        as_format(each, format_)
    totals = dict.fromkeys(CARS, Fraction(4, 3)) | {"car 0": Fraction(4, 3) + Fraction(1, 7)}
    with Ledger(path, 1000) as ledger:
        assert ledger.totals() == totals
        ledger.release("car 1", 1, "after", lambda: b"answer")
    take_over(copy)
    with Ledger(copy, 1000) as ledger:
        assert ledger.totals() == totals | {"car 1": Fraction(7, 3)}
        assert ledger.release("car 0", "1/7", "mirrored", never) == b"answer"


@pytest.mark.parametrize("format_", [7, 8])
def test_an_old_mirror_that_lags_gets_what_it_lacks_when_it_is_migrated(path, tmp_path, format_):
    """A process was killed between the two commits, before a newer version was installed."""
    copy, lagging = tmp_path / "copy", tmp_path / "lagging"
    lagging.mkdir()
    filled(path)
    mirror(path, copy)
    for end in ("", "-head"):
        (lagging / f"copy{end}").write_bytes(copy.with_name(f"copy{end}").read_bytes())
    with Ledger(path, 1000) as ledger:
        ledger.release("car 0", 1, "mirrored", lambda: b"answer")
    for end in ("", "-head"):
        copy.with_name(f"copy{end}").write_bytes((lagging / f"copy{end}").read_bytes())
    for each in (path, copy):
        as_format(each, format_)
    with Ledger(path, 1000) as ledger:
        ledger.release("car 1", 1, "after", lambda: b"answer")
    take_over(copy)
    with Ledger(copy, 1000) as ledger:
        assert ledger.spent("car 0") == ledger.spent("car 1") == Fraction(7, 3)


def test_format_7_is_read_without_changing_it(path):
    filled(path)
    as_format(path, 7)
    content = path.read_bytes()
    assert overview(path).totals == dict.fromkeys(CARS, Fraction(4, 3))
    assert path.read_bytes() == content


def test_a_mirror_finds_the_last_releases_by_itself(path, tmp_path):
    filled(path)
    mirror(path, tmp_path / "copy")
    with Ledger(path, 1000) as ledger:
        ledger.release("car 0", 1, "mirrored", lambda: b"answer")
        ledger.release("bus", 1, "mirrored", lambda: b"answer")
    query = "SELECT * FROM last ORDER BY key"
    with closing(sqlite3.connect(path)) as one, closing(sqlite3.connect(tmp_path / "copy")) as two:
        rows = one.execute(query).fetchall()
        assert rows == two.execute(query).fetchall()
        assert rows[:2] == [("bus", 22, 1), ("car 0", 21, 5)]


@pytest.mark.parametrize(("archive", "format_"), [("answered.zip", 7), ("ledger-8.zip", 8)])
def test_what_tests_migrate_has_the_tables_that_were_written(path, tmp_path, archive, format_):
    with zipfile.ZipFile(FIXTURES / archive) as files:
        name = next(each for each in files.namelist() if each.endswith("ledger.db"))
        files.extract(name, tmp_path)
    as_format(filled(path), format_)
    assert schema(path) == schema(tmp_path / name)


def schema(path):
    query = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name"
    with closing(sqlite3.connect(path)) as connection:
        return [
            (*names, re.sub(r"--.*|\s", "", sql or "")) for *names, sql in connection.execute(query)
        ]
