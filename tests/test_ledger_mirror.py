"""A mirror holds all that was released, takes the ledger's place once, and never lags unnoticed."""

import shutil

import pytest
from click.testing import CliRunner
from ledger_images import Recorder, write
from ledger_victim import never

from fedldp._internal.head import Head
from fedldp.cli.app import fedldp
from fedldp.errors import DomainError, WireError
from fedldp.ledger import Ledger, create, detach, mirror, take_over


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
    assert "could not be told: destroy it" in run("detach", path).output
    assert run("mirror", path, tmp_path / "copy 4").exit_code == 0
    said = run("takeover", tmp_path / "copy 4").output
    assert said == f"{tmp_path / 'copy 4'} is the ledger now. Never use {path} again.\n"
