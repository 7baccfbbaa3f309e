"""A mirror holds all that was released, takes the ledger's place once, and never lags unnoticed."""

import os
import re
import shlex
import shutil
import sqlite3
from contextlib import closing

import pytest
from click.testing import CliRunner
from ledger_images import Recorder, write
from ledger_victim import never

from fedldp.budget.ledger import Ledger, create, detach, mirror, seal, take_over
from fedldp.cli.app import fedldp
from fedldp.errors import DomainError, WireError
from fedldp.storage import database
from fedldp.storage import mirror as mirrors
from fedldp.storage.database import Database
from fedldp.storage.head import Head


@pytest.fixture
def path(tmp_path):
    (tmp_path / "disk 1").mkdir()
    create(tmp_path / "disk 1" / "ledger")
    return tmp_path / "disk 1" / "ledger"


@pytest.fixture
def copy(path, tmp_path):
    """A mirror of a ledger that has released something before and after it got it."""
    (tmp_path / "disk 2").mkdir()
    with Ledger(path, 9) as ledger:
        ledger.release("car", 1, "before", lambda: b"a")
        mirror(path, tmp_path / "disk 2" / "ledger")  # while it is in use
        ledger.release("car", 1, "after", lambda: b"b")
    return tmp_path / "disk 2" / "ledger"


def taken_over(copy):
    take_over(copy)
    return Ledger(copy, 9)


def test_the_mirror_takes_over_with_all_that_was_released(path, copy):
    with pytest.raises(WireError, match=r"mirrors .* let this one take its place: `fedldp ledger"):
        Ledger(copy, 9)
    path.write_bytes(b"a bad disk")
    with taken_over(copy) as ledger:
        assert ledger.spent("car") == 2
        assert ledger.release("car", 1, "after", never) == b"b"
        ledger.release("car", 1, "later", lambda: b"c")
    with pytest.raises(DomainError, match="is no mirror"):
        take_over(copy)


def test_the_old_file_is_refused_for_good(path, copy):
    with Ledger(path, 9) as ledger:  # a process that still runs
        with taken_over(copy) as new:
            new.release("car", 1, "new", lambda: b"c")
        with pytest.raises(WireError, match="has taken over: it is refused for good"):
            ledger.release("car", 1, "old", lambda: b"d")
    with pytest.raises(WireError, match="has taken over"):
        Ledger(path, 9)
    with pytest.raises(DomainError, match="has no mirror"):
        detach(path)
    with pytest.raises(WireError, match="was detached"):
        take_over(path)


def test_an_old_file_that_could_not_be_read_at_the_takeover_is_refused_too(path, copy):
    path.parent.rename(path.parent.with_name("away"))
    take_over(copy)
    path.parent.with_name("away").rename(path.parent)
    for use in (lambda: Ledger(path, 9), lambda: detach(path)):
        with pytest.raises(WireError, match="has taken over: this file is refused for good"):
            use()
    for end in ("", "-head"):
        (copy.parent / f"ledger{end}").rename(copy.parent / f"elsewhere{end}")
    with pytest.raises(WireError, match="cannot be used without its mirror: there is no ledger"):
        Ledger(path, 9)


def test_nothing_is_released_without_the_mirror(path, copy):
    with Ledger(path, 9) as ledger:
        copy.rename(copy.with_name("lost"))
        with pytest.raises(WireError, match="removed or replaced"):
            ledger.release("car", 1, "new", lambda: b"c")
    with pytest.raises(WireError, match=r"its -wal is still there|-head is still there"):
        Ledger(path, 9)


def test_nothing_is_released_if_the_mirror_cannot_be_written(path, copy, monkeypatch):
    sync = Head._sync

    def full(self):
        if self.path.parent == copy.parent:
            raise OSError(28, "No space left on device")
        sync(self)

    with Ledger(path, 9) as ledger:
        with monkeypatch.context() as patch:
            patch.setattr(Head, "_sync", full)
            for _ in range(2):
                with pytest.raises(OSError, match="No space left"):
                    ledger.release("car", 1, "new", lambda: b"c")
        assert ledger.release("car", 1, "new", never) == b"c"  # it was paid for
    with taken_over(copy) as ledger:
        assert ledger.spent("car") == 3


def test_a_mirror_that_was_detached_never_takes_over(path, copy):
    assert detach(path)
    with pytest.raises(WireError, match="was detached from its ledger"):
        take_over(copy)
    with Ledger(path, 9) as ledger:
        ledger.release("car", 1, "new", lambda: b"c")
    with pytest.raises(DomainError, match="has no mirror"):
        detach(path)
    mirror(path, copy.with_name("third"))
    with taken_over(copy.with_name("third")) as ledger:
        assert ledger.spent("car") == 3


def test_a_mirror_whose_disk_failed_cannot_be_told_but_is_compared(path, copy):
    files = {each.name: each.read_bytes() for each in copy.parent.iterdir()}
    copy.unlink()
    assert not detach(path)
    with Ledger(path, 9) as ledger:
        ledger.release("car", 1, "new", lambda: b"c")
    write(copy.parent, files)  # the disk comes back
    with pytest.raises(WireError, match=r"may lack what .* has: that file has another mirror"):
        take_over(copy)


def test_an_older_copy_of_a_mirror_is_refused(path, copy):
    files = {each.name: each.read_bytes() for each in copy.parent.iterdir()}
    with Ledger(path, 9) as ledger:
        for number in range(2):
            ledger.release("car", 1, str(number), lambda: b"c")
    write(copy.parent, files)
    with pytest.raises(WireError, match="cannot take over"):
        take_over(copy)
    with pytest.raises(WireError, match="has 3 commits, where 5 were expected"):
        Ledger(path, 9)


def test_killed_at_any_step_both_hold_what_was_released(path, copy, monkeypatch):
    """An image before and after each statement and write of a head, of both files."""
    with monkeypatch.context() as patch:
        recorder = Recorder(path.parent, patch, copy.parent)
        recorder.use(1)
    assert len(recorder.images) > 30
    kinds = set()
    for number, image in enumerate(recorder.images):
        for folder, end in ((path.parent, "1"), (copy.parent, "2")):
            of_disk = {
                name.removeprefix(end): data
                for name, data in image.files.items()
                if name.startswith(end)
            }
            write(folder, of_disk)
        if number % 2:  # the mirror takes over as it is
            with taken_over(copy) as ledger:
                kinds.add(check_released(ledger, image))
            with pytest.raises(WireError, match="taken over"):
                Ledger(path, 9)
        else:  # both go on
            with Ledger(path, 100) as ledger:
                check_released(ledger, image)
                ledger.release("van", 1, "new", lambda: b"n")
                totals = ledger.totals()
            with taken_over(copy) as ledger:
                assert ledger.totals() == totals
    assert kinds


def check_released(ledger, image):
    stored = {(line.vehicle_id, line.request) for line in ledger.history()}
    assert {(each.key, each.request) for each in image.released} <= stored
    return len(stored)


def test_the_commands(path, tmp_path):
    copy = tmp_path / "copy"

    def run(*words):
        return CliRunner().invoke(fedldp, ["ledger", *map(str, words)])

    assert run("init", path).exception.args[0].startswith(f"there is a ledger {path} already")
    assert run("init", tmp_path / "new").output.startswith("Made the ledger")
    assert run("mirror", path, copy).output == f"{copy} mirrors {path} from now on.\n"
    assert "exists. Choose another name" in str(run("mirror", path, copy).exception)
    assert "has a mirror" in str(run("mirror", path, tmp_path / "copy 2").exception)
    assert "never takes over" in run("detach", path).output
    assert run("mirror", path, tmp_path / "copy 3").exit_code == 0
    shutil.copytree(path.parent, tmp_path / "kept")
    (tmp_path / "copy 3").unlink()
    assert "could not be reached: destroy it" in run("detach", path).output
    assert run("mirror", path, tmp_path / "copy 4").exit_code == 0
    said = run("takeover", tmp_path / "copy 4").output
    assert said == f"{tmp_path / 'copy 4'} is the ledger now. Never use {path} again.\n"


def killed_while_it_is_detached(path, monkeypatch):
    """Tell the mirror, and die before the ledger knows it."""
    with monkeypatch.context() as patch:
        patch.setattr(Database, "_commit", killed_at(path, Database._commit))
        with pytest.raises(KeyboardInterrupt):
            detach(path)


def killed_at(path, commit):
    def killed(file, record):
        if file.path == path:
            raise KeyboardInterrupt
        commit(file, record)

    return killed


def test_killed_while_its_mirror_is_detached_it_is_detached_again(path, copy, monkeypatch):
    for _ in range(3):
        killed_while_it_is_detached(path, monkeypatch)
    with pytest.raises(WireError, match=r"was detached\. If a crash .* do it again"):
        Ledger(path, 9)
    with pytest.raises(WireError, match="cannot take over"):
        take_over(copy)
    assert detach(path)
    with Ledger(path, 9) as ledger:
        assert ledger.spent("car") == 2


def test_an_older_copy_of_a_ledger_is_not_detached_from_a_mirror_that_was_told(path, copy):
    older = {each.name: each.read_bytes() for each in path.parent.iterdir()}
    with Ledger(path, 9) as ledger:
        ledger.release("car", 1, "new", lambda: b"c")
    assert detach(path)
    write(path.parent, older)
    for use in (lambda: Ledger(path, 9), lambda: detach(path)):
        with pytest.raises(WireError, match="has 2 commits more: this file is an older copy"):
            use()
    assert copy.exists()


def test_what_cannot_follow_any_more_can_be_detached(path, copy):
    older = {each.name: each.read_bytes() for each in copy.parent.iterdir()}
    newer = {each.name: each.read_bytes() for each in path.parent.iterdir()}
    with Ledger(path, 9) as ledger:
        for number in range(2):
            ledger.release("car", 1, str(number), lambda: b"c")
    latest = {each.name: each.read_bytes() for each in path.parent.iterdir()}
    current = {each.name: each.read_bytes() for each in copy.parent.iterdir()}
    write(path.parent, newer)  # an old copy of the ledger, of which the mirror knows more
    for use in (lambda: Ledger(path, 9), lambda: detach(path)):
        with pytest.raises(WireError, match="has 2 commits more: this file is an older copy"):
            use()
    write(path.parent, latest)
    write(copy.parent, older)  # an old copy of the mirror
    assert detach(path)
    write(path.parent, latest)
    write(copy.parent, current)
    seal(copy)
    with pytest.raises(WireError, match="is not its mirror, but another file"):
        Ledger(path, 9)
    assert not detach(path)
    with Ledger(path, 9) as ledger:
        assert ledger.spent("car") == 4


def test_a_mirror_on_a_disk_that_takes_no_writes_can_be_detached(path, copy, monkeypatch):
    commit = Database._commit

    def failing(file, record):
        if file.path == copy:
            raise OSError(30, "Read-only file system")
        commit(file, record)

    with monkeypatch.context() as patch:
        patch.setattr(Database, "_commit", failing)
        assert not detach(path)
    with Ledger(path, 9) as ledger:
        assert ledger.spent("car") == 2


def test_a_file_that_is_locked_is_not_lost(path, copy, monkeypatch):
    """It can be read later, so the other one must not go on without it."""
    with closing(sqlite3.connect(copy, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with monkeypatch.context() as patch:
            patch.setattr(database, "_LOCK_TIMEOUT_SECONDS", 0.01)
            with pytest.raises(TimeoutError):
                detach(path)

    def locked(*_, **__):
        raise TimeoutError

    with monkeypatch.context() as patch:
        patch.setattr(mirrors, "snapshot", locked)
        with pytest.raises(TimeoutError):
            take_over(copy)
    assert detach(path)


def test_an_old_file_knows_of_a_takeover_two_takeovers_later(path, copy):
    path.parent.rename(path.parent.with_name("away"))
    take_over(copy)
    mirror(copy, copy.with_name("third"))
    take_over(copy.with_name("third"))
    path.parent.with_name("away").rename(path.parent)
    for use in (lambda: Ledger(path, 9), lambda: detach(path)):
        with pytest.raises(WireError, match="has taken over: this file is refused for good"):
            use()


@pytest.mark.usefixtures("copy")
def test_a_full_disk_of_the_mirror_does_not_claim_that_nothing_was_committed(path):
    with Ledger(path, 9) as ledger:
        ledger.release("car", 1, "small", lambda: b"c")
        pages = "PRAGMA max_page_count = "
        ledger._file._mirror.execute(f"{pages}1")
        with pytest.raises(OSError, match=r"the mirror .* failed: .* full.* repeat it") as failed:
            ledger.release("car", 1, "large", lambda: bytes(1 << 16))
        assert "Nothing was committed" not in str(failed.value)
        ledger._file._mirror.execute(f"{pages}1000")
        assert ledger.release("car", 1, "large", never) == bytes(1 << 16)


def test_a_missing_mirror_is_not_made_anew(path, copy):
    """Neither `init` nor `seal` brings it back."""
    shutil.rmtree(copy.parent)
    with pytest.raises(WireError, match="cannot be used without its mirror: there is no") as failed:
        Ledger(path, 9)
    assert f"fedldp ledger detach {shlex.quote(str(path))}" in str(failed.value)
    assert not re.search("ledger (init|seal)", str(failed.value))


@pytest.mark.parametrize("end", ["-wal", "-shm", "-journal", "-head"])
def test_a_mirror_is_no_file_of_its_ledger(path, end):
    with pytest.raises(DomainError, match="Choose another"):
        mirror(path, f"{path}{end}")
    with Ledger(path, 9) as ledger:
        ledger.release("car", 1, "new", lambda: b"c")
    with Ledger(path, 9) as ledger:
        assert ledger.spent("car") == 1


def test_paths_that_are_not_utf8_are_refused_before_anything_is_written(path, tmp_path):
    odd = tmp_path / os.fsdecode(b"\xff")
    odd.mkdir()
    with pytest.raises(DomainError, match="is not UTF-8"):
        mirror(path, odd / "mirror")
    assert not list(odd.iterdir())
