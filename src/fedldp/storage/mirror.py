"""A mirror: a second file of a database, on another disk, which can take its place.

A transaction is committed to the database first and then to its mirror, both with their heads, and
only then is anything released. So the mirror holds all that was ever released, and lacks at most
the last commit, of a process that was killed between the two; the next transaction adds it.

The two are told apart by the role in their records. A mirror that takes over gets a higher
generation: the old file, whose every transaction needs its mirror, is refused from then on. A
mirror that was detached, and so may lack commits, never takes over.
"""

import contextlib
import os
import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from ..errors import DomainError, WireError
from . import files, head
from .database import FILE_NAME_ENDINGS, Database, Kind, connect, fresh_folder, snapshot
from .head import ALONE, DETACHED, MIRROR, MIRRORED, Head, Record


def attach(path: str | os.PathLike[str], mirror: str | os.PathLike[str], kind: Kind) -> None:
    """Copy a database to a new file, which mirrors it from now on."""
    own, copy = Path(path).resolve(), Path(mirror).resolve()
    for end in FILE_NAME_ENDINGS:
        if copy == Path(f"{own}{end}"):
            raise DomainError(f"{copy} is the name of a file of {own}. Choose another one.")
        if Path(f"{copy}{end}").exists():
            raise DomainError(f"{copy}{end} exists. Choose another name for the mirror.")
    _check_name(own)
    _check_name(copy)

    def change(record: Record) -> Record:
        if record.role == MIRRORED:
            raise DomainError(
                f"{file.path} has a mirror, {record.partner}. Detach it first: "
                f"`fedldp ledger detach {shlex.quote(str(file.path))}`."
            )
        _copy(file.path, copy, record._replace(role=DETACHED, partner=str(file.path)))
        return record._replace(role=MIRRORED, partner=str(copy))

    with closing(Database(path, kind, create=False)) as file:
        file._change_record(change)
        with file.transaction():  # in which the mirror catches up, and is one
            pass


def _check_name(path: Path) -> None:
    """Refuse a path that the record of the other file cannot hold."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise DomainError(
            f"{str(path)!r} is not UTF-8. A file with this path cannot have or be a mirror."
        ) from None


def _copy(path: Path, copy: Path, record: Record) -> None:
    """Write a copy with another record. Nobody writes to the file meanwhile."""
    with fresh_folder(copy.parent) as folder:
        new, new_head = folder / "fresh", folder / "head"
        new.touch(mode=0o600)
        with closing(connect(path)) as source, closing(sqlite3.connect(new)) as target:
            source.backup(target)
            target.execute("PRAGMA synchronous = FULL")
            target.execute(head.UPDATE, record.row())
            target.commit()
            target.execute("PRAGMA journal_mode = WAL")
        with closing(Head(new_head, create=True)) as started:
            started.start(record.mark)
        if os.geteuid() == 0:  # it belongs to whom the file belongs to
            owner = path.stat()
            for file in (new, new_head):
                os.chown(file, owner.st_uid, owner.st_gid)
        new_head.rename(head.path_of(copy))
        new.rename(copy)
        files.sync(copy.parent)


def detach(path: str | os.PathLike[str], kind: Kind) -> bool:
    """Use a database without its mirror; return whether the mirror could be told.

    If it could not, because its disk is gone, nothing can keep that file from taking over later.
    """
    told = False

    def change(record: Record) -> Record:
        nonlocal told
        if record.role != MIRRORED:
            raise DomainError(f"{file.path} has no mirror.")
        told = _tell(record, kind)
        return record._replace(role=ALONE, partner="")

    with closing(Database(path, kind, create=False, paired=False)) as file:
        file._change_record(change)
    return told


def _tell(record: Record, kind: Kind) -> bool:
    """Tell a mirror that it is one no longer; return False if that cannot be done.

    It cannot if the mirror is missing, damaged, on a disk that takes no more writes, or another
    file. A mirror that knows more than its database is no reason to go on without it.
    """

    def change(own: Record) -> Record | None:
        check_pair(record, own, detaching=True)
        return None if own.role == DETACHED else own._replace(role=DETACHED)

    try:
        mirror = Database(record.partner, kind, create=False, paired=False)
    except TimeoutError:  # another process uses it
        raise
    except (WireError, OSError):
        return False
    with closing(mirror):
        try:
            mirror._change_record(change)
        except TimeoutError:
            raise
        except (_AnotherFile, OSError):
            return False
    return True


def take_over(path: str | os.PathLike[str], kind: Kind) -> Path:
    """Turn a mirror into the database; return the path of the file that is refused from now on."""
    old, identity = Path(), b""

    def change(record: Record) -> Record:
        nonlocal old, identity
        if record.role == DETACHED:
            raise WireError(
                f"{mirror.path} was detached from its {kind.name}, which may have spent more since."
                " It cannot take over."
            )
        if record.role != MIRROR:
            raise DomainError(f"{mirror.path} is no mirror.")
        old, identity = Path(record.partner), record.identity
        _refuse_if_behind(old, mirror.path, record, kind)
        return record._replace(generation=record.generation + 1, role=ALONE, partner="")

    with closing(Database(path, kind, create=False, paired=False)) as mirror:
        mirror._change_record(change)
    # The old file is refused already. If it can be read, it also remembers why, wherever it or the
    # new one will be moved.
    with (
        contextlib.suppress(WireError, OSError),
        closing(Database(old, kind, create=False, paired=False)) as replaced,
    ):
        replaced._change_record(lambda record: _replacement(record, mirror.path, identity))
    return old


def _replacement(record: Record, by: Path, identity: bytes) -> Record:
    """Return the record of a file in whose place its mirror is."""
    if record.identity != identity:
        raise WireError("this is another file.")
    return record._replace(role=DETACHED, partner=str(by))


def _refuse_if_behind(old: Path, path: Path, record: Record, kind: Kind) -> None:
    """Refuse a mirror if its database can be read, and says that it has more or another mirror."""
    try:
        with snapshot(old, kind, inspect=False) as file:
            other = head.read_record(file.execute(head.READ))
    except TimeoutError:  # another process recovers it: it can be read
        raise
    except (WireError, OSError):
        return  # this is why a mirror takes over
    if other is None or other.identity != record.identity:
        return
    is_pair = other.role == MIRRORED and Path(other.partner) == path
    if not is_pair or other.commits > record.commits + 1 or other.generation > record.generation:
        raise WireError(
            f"{path} may lack what {old} has: that file has another mirror, or none, or more "
            "commits. It cannot take over."
        )


class _AnotherFile(WireError):
    """Where the mirror should be, there is something else."""


def check_pair(record: Record, own: Record, *, detaching: bool = False) -> None:
    """Refuse a database whose mirror has the record `own`, unless they belong together.

    A mirror that lags, or was told that it is none before a crash, can still be detached.
    """
    if own.identity == record.identity and own.generation > record.generation:
        raise WireError(
            f"its mirror {record.partner} has taken over: this file is refused for good. Use "
            "the other one."
        )
    if own.identity != record.identity or own.role in (ALONE, MIRRORED):
        raise _AnotherFile(
            f"{record.partner} is not its mirror, but another file. If the mirror is lost, and has "
            "never taken over, detach it: `fedldp ledger detach`."
        )
    lag = record.commits - own.commits
    if lag < -(own.role == DETACHED):
        raise WireError(
            f"its mirror {record.partner} has {-lag} commits more: this file is an older copy. If "
            "it is still its mirror, let it take over: `fedldp ledger takeover "
            f"{shlex.quote(record.partner)}`."
        )
    if detaching:
        return
    if own.role == DETACHED and lag <= 0:
        raise WireError(
            f"its mirror {record.partner} was detached. If a crash kept this file from knowing, "
            "and it is not an older copy, do it again: `fedldp ledger detach`."
        )
    if lag > 1 or own.generation != record.generation:
        raise WireError(
            f"its mirror {record.partner} has {own.commits} commits, where {record.commits} were "
            f"expected. If the mirror's disk has failed, detach it: `fedldp ledger detach`."
        )


@contextlib.contextmanager
def following(leader: Database, record: Record, mirror: Database) -> Iterator[None]:
    """Hold a mirror in a transaction while its database is in one, so that it cannot take over."""
    with mirror._locked_transaction() as own:
        check_pair(record, own)
        if own.commits == record.commits and own.role == MIRROR:
            yield
            return
        # A process was killed between the two commits. Nothing of the second was released.
        for table, rows in _missing(leader, mirror).items():
            mirror._add_rows(table, rows)
        mirror._commit_as_mirror(record, leader.path)
    with mirror._locked_transaction() as own:
        check_pair(record, own)
        yield


def _missing(leader: Database, mirror: Database) -> dict[str, list[tuple[object, ...]]]:
    """Return the rows that a mirror lacks."""
    missing = {}
    for table in leader._table_names():
        query = f'SELECT * FROM main."{table}"'  # noqa: S608 (our own names)
        known = {head.row_hash(table, row) for row in mirror.execute(query)}
        missing[table] = [
            row for row in leader.execute(query) if head.row_hash(table, row) not in known
        ]
    return missing
