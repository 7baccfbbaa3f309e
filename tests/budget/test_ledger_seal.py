"""A damaged or lost ledger is sealed: it is kept, and the one in its place refuses everybody."""

import contextlib
import os
import random
import shutil
import sqlite3
from pathlib import Path

import make_ledgers
import pytest
from click.testing import CliRunner
from ledger_victim import never, victim

from fedldp.budget.ledger import Ledger, seal
from fedldp.cli.app import fedldp
from fedldp.errors import BudgetError, WireError

FIXTURES = Path(make_ledgers.__file__).parent
NOISE = random.Random(15).randbytes(8192)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger"


def check_sealed(path):
    with Ledger(path, cap=100, answers_per_job=100) as ledger:
        assert ledger.sealed
        for job in (None, "spring"):
            with pytest.raises(
                BudgetError, match=f"the ledger {path} refuses everybody: it was se"
            ):
                ledger.release("car", 0.1, "1", never, job=job)
            with pytest.raises(BudgetError, match="refuses everybody"):
                ledger.release_many(["car"], 0.1, "1", b"?", lambda _: never(), job=job)
        assert ledger.totals() == {}


CONTENTS = {
    "noise": {"": NOISE},
    "empty": {"": b""},
    "a -wal alone": {"-wal": NOISE},
    "a -head alone": {"-head": NOISE},
    "all": {
        "": NOISE,
        "-wal": NOISE[::-1],
        "-shm": NOISE[::2],
        "-head": NOISE[1:],
        "-journal": b"",
    },
}


@pytest.mark.parametrize("contents", CONTENTS.values(), ids=CONTENTS)
def test_what_is_damaged_is_moved_aside_as_it_is(path, contents):
    for end, content in contents.items():
        Path(f"{path}{end}").write_bytes(content)
    aside = seal(path)
    assert {file.name: file.read_bytes() for file in aside.iterdir()} == {
        f"ledger{end}": content for end, content in contents.items()
    }
    assert aside.parent == path.parent
    check_sealed(path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_sealed_ledger_stays_sealed(path):
    for _ in range(2):  # sealing it again changes nothing
        seal(path)
        check_sealed(path)
    assert len(list(path.parent.glob("ledger-aside-*"))) == 1  # at first there was nothing to move


def test_a_valid_ledger_is_not_sealed(path):
    with Ledger.create(path, cap=1) as ledger:
        assert not ledger.sealed


def test_the_wal_of_the_old_file_never_meets_the_new_one(path):
    """SQLite would write what is in it into whatever file lies beside it."""
    for end in ("", "-wal"):
        shutil.copyfile(FIXTURES / f"ledger-2-wal.db{end}", f"{path}{end}")
    aside = seal(path)
    check_sealed(path)
    with Ledger(aside / "ledger", cap=4) as old:  # which can still be read
        assert len(old.history()) == 19


def test_a_process_with_the_old_file_open_releases_nothing_any_more(path):
    with Ledger.create(path, cap=100) as ledger:
        ledger.release("car", 1, "1", lambda: b"a")
        seal(path)
        with pytest.raises(WireError, match="removed or replaced while it was in use"):
            ledger.release("car", 1, "2", lambda: b"b")
    check_sealed(path)


def test_killed_at_any_step_no_vehicle_can_spend(tmp_path):
    """SIGKILL before each change of the folder: the old ledger, one that is refused, or the seal.

    The old one has spent its cap in its -wal alone, so that without it there would be budget.
    """
    steps = victim("interrupt_sealing", tmp_path)
    assert steps > 10
    seen = set()
    for step in range(steps):
        path = tmp_path / str(step) / "ledger"
        if path.stat().st_size == 0:
            seen.add("refused")
            with pytest.raises(WireError, match="it is empty"):
                Ledger(path, cap=4)
        elif path.stat().st_nlink > 1:
            seen.add("both")
            with pytest.raises(WireError, match="has 2 names"):
                Ledger(path, cap=4)
        else:
            with Ledger(path, cap=4) as ledger:
                seen.add("sealed" if ledger.sealed else "old")
                with pytest.raises(BudgetError):
                    ledger.release("car 1", 1, "more", never)
        seal(path)
        check_sealed(path)
        kept = [Path(folder) / "ledger" for folder in path.parent.glob("ledger-aside-*")]
        assert 19 in map(releases, kept)
    assert seen == {"old", "both", "refused", "sealed"}


def releases(path):
    """Return how many releases a file holds, with its -wal; 0 if it is not a database."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        try:
            return connection.execute("SELECT COUNT(*) FROM releases").fetchone()[0]
        except sqlite3.DatabaseError:
            return 0


def test_the_command(path):
    path.write_bytes(NOISE)
    done = CliRunner().invoke(fedldp, ["ledger", "seal", str(path)])
    assert done.exit_code == 0
    [aside] = path.parent.glob("ledger-aside-*")
    assert done.output == (
        f"Moved {path} into {aside}. Wrote a sealed ledger to {path}: it refuses every vehicle.\n"
    )
    check_sealed(path)
    lost = path.with_name("lost")
    done = CliRunner().invoke(fedldp, ["ledger", "seal", str(lost)])
    assert done.output.startswith(f"There was no file {lost}. Wrote a sealed ledger")
    check_sealed(lost)
    assert CliRunner().invoke(fedldp, ["ledger", "seal", str(path.parent)]).exit_code == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can write for another user")
def test_sealed_by_root_it_belongs_to_the_user_of_the_agent(tmp_path):
    path = tmp_path / "ledger"
    path.write_bytes(NOISE)
    os.chown(path, 65534, 65534)
    seal(path)
    assert (path.stat().st_uid, path.stat().st_gid) == (65534, 65534)
