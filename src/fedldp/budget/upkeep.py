"""What an owner does to the files of a ledger: make one, mirror it, replace one that is lost."""

import os
from pathlib import Path

from ..errors import DomainError
from ..storage import database
from .records import KIND


def create(path: str | os.PathLike[str]) -> None:
    """Make a new ledger, as `Ledger.create` does, and leave it closed.

    >>> import tempfile
    >>> from fedldp.budget.overview import overview
    >>> path = Path(tempfile.mkdtemp(), "ledger.db")
    >>> create(path)
    >>> overview(path).totals
    {}
    """
    try:
        database.create(path, KIND)
    except FileExistsError:
        raise DomainError(
            f"there is a ledger {Path(path).resolve()} already. Open it: a new one would forget "
            "what was spent."
        ) from None


def seal(path: str | os.PathLike[str]) -> Path | None:
    """Move a ledger aside, and write one in its place that refuses everybody, for good.

    This is for a ledger that is damaged or lost: nobody knows any more what was spent, so nobody
    may spend. The file is moved as it is, with its -wal and -shm, into a new folder next to it.
    Return the folder, or None if there was no file.

    >>> import fedldp, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name) / "ledger.db"
    >>> _ = path.write_bytes(b"damaged")
    >>> [each.name for each in seal(path).iterdir()]
    ['ledger.db']
    >>> with fedldp.Ledger(path, cap=1) as ledger:
    ...     ledger.release("car 7", 0.1, "question", lambda: b"report")
    Traceback (most recent call last):
    fedldp.errors.BudgetError: the ledger ... refuses everybody: it was sealed on ...
    >>> folder.cleanup()
    """
    return database.replace(path, KIND, "INSERT INTO seals VALUES (date());")


def mirror(path: str | os.PathLike[str], copy: str | os.PathLike[str]) -> None:
    """Keep a second file of a ledger, on another disk: nothing is released before both have it.

    The ledger is refused while its mirror is missing. If the ledger is lost or damaged, `take_over`
    turns the mirror into the ledger.

    >>> import fedldp, tempfile
    >>> path, copy = (Path(tempfile.mkdtemp(), "ledger.db") for _ in range(2))
    >>> with fedldp.Ledger.create(path, cap=1) as ledger:
    ...     mirror(path, copy)
    ...     ledger.release("car 7", 0.5, "question", lambda: b"report")
    b'report'
    >>> take_over(copy) == path
    True
    >>> with fedldp.Ledger(copy, cap=1) as ledger:
    ...     ledger.spent("car 7")
    Fraction(1, 2)
    >>> fedldp.Ledger(path, cap=1)
    Traceback (most recent call last):
    fedldp.errors.WireError: ... was detached from ... which has more or has taken over: it is...
    """
    from ..storage import mirror as mirrors

    mirrors.attach(path, copy, KIND)


def detach(path: str | os.PathLike[str]) -> bool:
    """Use a ledger without its mirror from now on, because the mirror's disk has failed.

    Return whether the mirror could be told. It may then never take over. If it could not be told,
    destroy it: nothing else can keep it from taking over with less than was spent.
    """
    from ..storage import mirror as mirrors

    return mirrors.detach(path, KIND)


def take_over(path: str | os.PathLike[str]) -> Path:
    """Turn a mirror into the ledger; return the path of the old one, which is refused from now on.

    A mirror that may lack something that was spent is refused.
    """
    from ..storage import mirror as mirrors

    return mirrors.take_over(path, KIND)
