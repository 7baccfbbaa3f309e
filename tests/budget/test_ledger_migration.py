"""Older ledgers are migrated when they are opened, whole or not at all, and lose nothing."""

import contextlib
import json
import shutil
import signal
import sqlite3
import time
import zipfile
from fractions import Fraction
from pathlib import Path

import make_ledger_8 as made_8
import make_ledgers as made
import pytest
from ledger_victim import never, victim
from ledgers import as_format

from fedldp.budget import policy, records
from fedldp.budget.ledger import Ledger, Period, overview
from fedldp.errors import BudgetError, DomainError, WireError
from fedldp.storage import database, head
from fedldp.storage.database import Database

FIXTURES = Path(made.__file__).parent
FORMAT = records.KIND.format
SPENT = {f"car {i}": spent for i, spent in ((1, 4), (2, 4), (3, 1), (4, 2), (5, 4))}
SPENT["van"] = Fraction(2, 3) + Fraction(2, 10)
ANSWERS = {
    "spring": {"car 1": 2, "car 2": 3, "car 4": 2, "car 5": 2, "van": 1},
    "autumn": {"car 1": 2, "car 2": 1, "car 3": 1, "car 5": 2, "van": 1},
}


def rows(path, query):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def stored(path):
    """Return all that a ledger of either format holds."""
    columns = "number, key, request, typeof(request), run, epsilon, answer"
    return [
        rows(path, f"SELECT {columns} FROM releases ORDER BY number"),
        rows(path, "SELECT * FROM questions ORDER BY request"),
    ]


@pytest.fixture(params=["ledger-2.db", "ledger-2-wal.db"])
def path(tmp_path, request):
    """Copy a ledger of format 2, the second time with much of it in its -wal."""
    for file in FIXTURES.glob(f"{request.param}*"):
        shutil.copyfile(file, tmp_path / file.name.replace(request.param, "ledger"))
    assert (tmp_path / "ledger-wal").exists() == ("wal" in request.param)
    return tmp_path / "ledger"


@pytest.fixture
def before(path):
    """Return what the ledger holds before it is migrated."""
    return stored(copied(path, "copy") / "ledger")


def copied(path, name):
    """Copy a ledger, with what lies beside it, into a new folder."""
    folder = path.with_name(name)
    folder.mkdir()
    for file in path.parent.glob("ledger*"):
        shutil.copyfile(file, folder / file.name)
    return folder


def check_migrated(path, before):
    with Ledger(path, made.CAP) as found:
        assert stored(path) == before
        assert found.totals() == SPENT
        assert {job: found.answers(job) for job in ANSWERS} == ANSWERS
        assert all(line.job == line.run for line in found.history())
        assert len(found.history()) == len(before[0]) == 19
        assert rows(path, "PRAGMA user_version") == [(FORMAT,)]
        assert rows(path, "PRAGMA integrity_check") == [("ok",)]


def test_nothing_is_forgotten(path, before, tmp_path):
    check_migrated(path, before)
    check_migrated(path, before)  # and opened again it stays as it is
    Ledger.create(tmp_path / "new", 1).close()
    assert schema(path) == schema(tmp_path / "new")


def schema(path):
    query = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name"
    return [(*row, " ".join((sql or "").split())) for *row, sql in rows(path, query)]


def test_what_was_answered_is_answered_with_the_same_bytes(path, before):
    with Ledger(path, made.CAP) as found:
        for _, key, request, _, _, epsilon, answer in before[0]:
            if "/" not in str(request):
                assert found.release(key, Fraction(epsilon), request, never) == answer
        for request, digest in before[1]:
            answers = {row[1]: row[-1] for row in before[0] if row[2] == request}
            again = found.release_many(
                made.CARS, 1, request, digest, never, job=request.partition("/")[0]
            )
            assert again == answers
        assert stored(path) == before


def test_what_was_spent_counts(path):
    """In format 2 car 0 was never asked, while others answered the job three times."""
    with Ledger(path, made.CAP) as found:
        answered = found.release_many(
            made.CARS, 1, "spring/4", b"new", lambda able: dict.fromkeys(able, b""), job="spring"
        )
        assert answered.keys() == {"car 0", "car 3"}
        with pytest.raises(BudgetError, match="has answered the job 'spring' 2 times"):
            found.release("car 4", 1, "new", never, job="spring")
        with pytest.raises(BudgetError, match="has spent 4 of its cap of 4"):
            found.release("car 1", 1, "new", never, job="a new name")
        with pytest.raises(DomainError, match="another question was asked under this request"):
            found.release_many(["car 4"], 1, "spring/1", b"?", lambda _: never(), job="spring")


def test_killed_half_way_it_is_migrated_when_it_is_opened_again(path, before, tmp_path):
    """SIGKILL before each statement: of the migration, its new version, the commit, and after."""
    places = statements_of_migration(copied(path, "counted") / "ledger")
    for place in range(places):
        copied(path, str(place))
    assert victim("migrate", tmp_path, places) == [signal.SIGKILL] * places
    for place in range(places):
        killed = tmp_path / str(place) / "ledger"
        assert rows(killed, "PRAGMA user_version") == [(FORMAT if place == places - 1 else 2,)]
        assert stored(killed) == before
        check_migrated(killed, before)


def statements_of_migration(path):
    """Return how many statements are executed from the beginning to the end of its transaction."""
    execute, statements = Database.execute, []

    def watched(self, statement, values=()):
        statements.append(statement)
        return execute(self, statement, values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "execute", watched)
        Ledger(path, made.CAP).close()
    return statements.index("COMMIT") - statements.index("BEGIN IMMEDIATE")


def test_a_failure_half_way_changes_nothing(path, before, monkeypatch):
    broken = (*records.KIND.migrations[2], "INSERT INTO nowhere VALUES (1)")
    with monkeypatch.context() as patch:
        migrations = {**records.KIND.migrations, 2: broken}
        patch.setattr(records, "KIND", records.KIND._replace(migrations=migrations))
        with pytest.raises(OSError, match=r"nowhere\. Nothing was committed"):
            Ledger(path, made.CAP)
    assert rows(path, "PRAGMA user_version") == [(2,)]
    assert stored(path) == before
    check_migrated(path, before)


@pytest.mark.parametrize("format_", [3, 4, 5, 6, 7, 8])
def test_formats_3_to_8_get_tables_and_keep_all_else(tmp_path, format_):
    path = tmp_path / "ledger"
    with Ledger.create(path, 2) as found:
        answer = found.release("car 1", 1, "question", lambda: b"report", job="spring")
    as_format(path, format_)
    before = stored(path)
    with Ledger(path, 2) as found:
        assert found.release("car 1", 1, "question", never) == answer
        assert found.periods("car 1", 1, "calendar", lambda: [2, 5]) == (2, 5)
        assert found.repeating("colour") == set()
        assert (found.asked(), found.refused()) == ([], [])
    assert stored(path) == before
    Ledger.create(tmp_path / "new", 1).close()
    assert schema(path) == schema(tmp_path / "new")


@pytest.fixture
def of_format_8(tmp_path):
    """Unpack a ledger that the last version with format 8 wrote; return its path."""
    with zipfile.ZipFile(FIXTURES / "ledger-8.zip") as archive:
        archive.extractall(tmp_path)
    return tmp_path / "ledger.db"


def test_a_ledger_of_format_8_says_what_it_said_and_repeats_its_answers(of_format_8):
    says = json.loads(of_format_8.with_name("says.json").read_text("utf-8"))
    before = stored(of_format_8)
    content = of_format_8.read_bytes()
    totals = {key: str(spent) for key, spent in overview(of_format_8).totals.items()}
    assert totals == says["spent"]
    assert of_format_8.read_bytes() == content
    with Ledger(of_format_8, made_8.CAP, answers_per_job=2) as found:
        assert stored(of_format_8) == before
        assert json.loads(json.dumps(made_8.described(found))) == says
        for number, key, request, *_, epsilon, answer in before[0]:
            if not str(request).startswith("spring"):
                job = request if key == "bus" else None
                again = found.release(key, Fraction(epsilon) or 1, request, never, job=job)
                assert again == answer, number
        assert stored(of_format_8) == before
        with pytest.raises(BudgetError, match="has answered the job 'spring' 2 times"):
            found.release("car 1", 1, "new", never, job="spring")
        for name in ("car 4", "van", "bus", "taxi"):
            found.release(name, 1, "new", lambda: b"new")
    with Ledger(of_format_8, made_8.CAP, answers_per_job=2) as found:
        spent = {key: Fraction(text) + (key[-1] in "4nsi") for key, text in says["spent"].items()}
        assert found.totals() == spent


def test_places_among_the_releases_of_a_vehicle_are_those_of_a_ledger_that_was_never_old(
    of_format_8, tmp_path
):
    Ledger(of_format_8, made_8.CAP).close()
    with (
        pytest.MonkeyPatch.context() as patch,
        Ledger.create(tmp_path / "new", made_8.CAP, answers_per_job=2) as ledger,
    ):
        patch.setattr(policy, "now", policy.now)  # which `fill` sets
        made_8.fill(ledger)
    for table in ("releases", "last", "times", "constants"):
        query = f"SELECT * FROM {table} ORDER BY 1, 2"
        assert rows(of_format_8, query) == rows(tmp_path / "new", query)
    assert schema(of_format_8) == schema(tmp_path / "new")


def test_what_was_spent_before_counts_for_the_period_in_which_it_is_migrated(path, monkeypatch):
    with Ledger(path, 100, period=Period(Fraction(4), 3600)) as found:
        assert found.recent() == found.totals() == SPENT
        with pytest.raises(BudgetError, match="has spent 4 of the 4 that it may spend in 3600"):
            found.release("car 1", 1, "new", never)
        later = time.time() + 3700
        monkeypatch.setattr(policy, "now", lambda: int(later))
        assert found.recent() == {}
        assert found.release("car 1", 1, "new", lambda: b"report") == b"report"


def test_several_may_open_it_at_once(path, before, tmp_path):
    assert victim("open_at_once", tmp_path, 4) == [19] * 4
    check_migrated(path, before)


def test_a_damaged_file_is_not_migrated(tmp_path):
    path = tmp_path / "ledger"
    content = (FIXTURES / "ledger-2.db").read_bytes()
    path.write_bytes(content := content[:8192] + bytes(4096) + content[12288:])
    with pytest.raises(WireError, match="is not a valid ledger"):
        Ledger(path, made.CAP)
    assert path.read_bytes() == content


def test_a_program_that_knows_no_jobs_cannot_write_any_more(path):
    """It may have opened the file before, and would write releases that belong to no job."""
    old = sqlite3.connect(path, isolation_level=None)
    with contextlib.closing(old):
        [(count,)] = old.execute("SELECT COUNT(*) FROM releases").fetchall()
        Ledger(path, made.CAP).close()
        insert = "INSERT INTO releases (key, request, run, epsilon, answer) VALUES (?, ?, ?, ?, ?)"
        with pytest.raises(sqlite3.IntegrityError, match=r"releases\.job"):
            old.execute(insert, ("car 0", "spring/9", "spring", "1/1", b""))
        assert old.execute("SELECT COUNT(*) FROM releases").fetchall() == [(count,)]


# A newer format: whatever kind of file it is.


def test_a_newer_format_is_refused_and_left_alone(path):
    Ledger(path, made.CAP).close()
    rows(path, f"PRAGMA user_version = {FORMAT + 1}")
    content = path.read_bytes()
    with pytest.raises(WireError) as refusal:
        Ledger(path, made.CAP)
    assert str(refusal.value) == (
        f"{path} is a ledger of format {FORMAT + 1}, and this version of fedldp reads formats up "
        f"to {FORMAT}. "
        "A newer version has written it: use that one."
    )
    assert path.read_bytes() == content


def test_a_newer_format_that_comes_while_it_is_open_is_noticed(path):
    with Ledger(path, made.CAP) as found:
        rows(path, f"PRAGMA user_version = {FORMAT + 1}")
        with pytest.raises(WireError, match="A newer version has written it"):
            found.release("new", 1, "1", never)


@pytest.mark.parametrize("head_since", [0, 1, 2])
def test_a_file_is_migrated_over_several_formats(tmp_path, head_since):
    """By the general mechanism, which other kinds of files use too."""

    def kind(newest):
        with_head = 1 <= head_since <= newest
        tables = {
            version: (f"INSERT INTO numbers VALUES ({version})",) for version in range(1, newest)
        }
        if with_head and head_since > 1:
            tables[head_since - 1] += (head.TABLE,)
        return database.Kind(
            name="test",
            mark=b"test",
            format=newest,
            tables=f"CREATE TABLE numbers (number);{head.TABLE if with_head else ''};",
            head_since=head_since if with_head else 0,
            advice="Restore it.",
            migrations=tables,
        )

    database.Database(tmp_path / "file", kind(1)).close()
    for newest in (1, 2, 5):
        found = database.Database(tmp_path / "file", kind(newest), inspect=False)
        assert found.execute("SELECT * FROM numbers") == [(i,) for i in range(1, newest)]
        found.close()
    with pytest.raises(WireError, match=r"is a test of format 5, .* up to 2"):
        database.Database(tmp_path / "file", kind(2))
    rows(tmp_path / "file", "PRAGMA user_version = 0")
    with pytest.raises(WireError, match=r"is not a valid test: it has an unknown format, 0\. Rest"):
        database.Database(tmp_path / "file", kind(5))
