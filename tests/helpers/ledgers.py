"""Ledgers for tests that are about something else."""

import contextlib
import sqlite3
from contextlib import closing
from pathlib import Path

from fedldp.budget import ledger, records
from fedldp.budget.ledger import Ledger
from fedldp.errors import DomainError
from fedldp.storage import database, head


def made(path):
    """Make a ledger if it is missing, which no program may do; return its path."""
    if not Path(path).exists():
        with contextlib.suppress(DomainError):  # another thread was faster
            ledger.create(path)
    return path


def open_ledger(path, cap, **options):
    """Open a ledger, and make it before if it is missing."""
    return Ledger(made(path), cap, **options)


def untouched(path):
    """Return whether nobody has spent anything."""
    return ledger.overview(path).totals == {}


def tamper(file, statement):
    """Change rows of an open file, which its triggers refuse."""
    query = "SELECT name FROM temp.sqlite_schema WHERE name LIKE '% BEFORE %'"
    for (name,) in file.execute(query):
        file.execute(f'DROP TRIGGER temp."{name}"')
    with file.transaction():
        file.execute(statement)


FORMER_TABLES = {  # that came with the formats from 4 to 7
    4: ("draws",),
    5: ("constants",),
    6: ("times", "asked", "refused"),
    7: ("head",),
}


def as_format(path, number):
    """Make a ledger what it would be if fedldp had written it in an older format, from 3 to 8."""
    columns = "number, key, request, run, job, epsilon, answer"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(f"""
            ALTER TABLE releases RENAME TO releases_9;
            DROP INDEX by_key;
            DROP INDEX by_job;
            DROP TABLE last;
            {records._RELEASES_8 if number == 8 else records._RELEASES_3};
            INSERT INTO releases
            SELECT {columns} {", spent, repeated" * (number == 8)} FROM releases_9;
            DROP TABLE releases_9;
            {records._BY_KEY_8 if number == 8 else "CREATE INDEX by_request ON releases (request)"};
            {records._BY_JOB};
            PRAGMA user_version = {number};
        """)
        for format_, tables in FORMER_TABLES.items():
            for table in tables if format_ > number else ():
                connection.execute(f"DROP TABLE {table}")
        if number < records.KIND.head_since:
            head.path_of(path).unlink()
            return
        record = head.read_record(connection.execute(head.READ).fetchall())
        record = record._replace(content=database._content(connection))
        connection.execute(head.UPDATE, record.row())
        with closing(head.Head(head.path_of(path))) as started:
            started.start(record.mark)
