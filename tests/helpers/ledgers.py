"""Ledgers for tests that are about something else."""

import contextlib
from pathlib import Path

from fedldp.budget import ledger
from fedldp.budget.ledger import Ledger
from fedldp.errors import DomainError


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
