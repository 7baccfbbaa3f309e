"""A ledger that is reached through two names would have two -wal files, and spend twice."""

import os
import shutil
import subprocess
import sys

import pytest

from fedldp.budget.ledger import Ledger, overview
from fedldp.errors import WireError


@pytest.fixture
def path(tmp_path):
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    Ledger.create(tmp_path / "first" / "ledger", 1).close()
    return tmp_path / "first" / "ledger"


def test_a_hard_link_is_refused_under_both_names(path, tmp_path):
    other = tmp_path / "second" / "ledger"
    os.link(path, other)
    for name in (path, other):
        with pytest.raises(WireError, match=r"has 2 names \(hard links\)"):
            Ledger(name, 1)
    os.link(f"{path}-head", f"{other}-head")
    with pytest.raises(WireError, match="has 2 names"):
        Ledger(other, 1)
    other.unlink()
    with Ledger(path, 1) as ledger:
        assert ledger.release("car", 1, "1", lambda: b"a") == b"a"


def test_a_hard_link_to_a_ledger_in_use_stops_it(path, tmp_path):
    with Ledger(path, 1) as ledger:
        os.link(path, tmp_path / "second" / "ledger")
        with pytest.raises(WireError, match="has 2 names"):
            ledger.release("car", 1, "1", lambda: b"a")


def test_a_copy_or_move_without_its_head_is_refused(path, tmp_path):
    other = tmp_path / "second" / "ledger"
    shutil.copyfile(path, other)
    for use in (lambda: Ledger(other, 1), lambda: overview(other)):
        with pytest.raises(WireError, match="its -head is missing"):
            use()


def test_a_head_of_another_ledger_is_refused(path, tmp_path):
    other = tmp_path / "second" / "ledger"
    Ledger.create(other, 1).close()
    shutil.copyfile(f"{path}-head", f"{other}-head")
    for use in (lambda: Ledger(other, 1), lambda: overview(other)):
        with pytest.raises(WireError, match="its -head belongs to another one"):
            use()


def test_a_link_by_name_is_the_same_ledger(path, tmp_path):
    other = tmp_path / "second" / "ledger"
    other.symlink_to(path)
    with Ledger(path, 1) as ledger, Ledger(other, 1) as again:
        ledger.release("car", 1, "1", lambda: b"a")
        assert again.spent("car") == 1
    assert [each.name for each in other.parent.iterdir()] == ["ledger"]


SPEND = """
import sys
from fedldp.budget.ledger import Ledger
from fedldp.errors import WireError
first, second = sys.argv[1:]
with Ledger(first, 1) as ledger:
    ledger.release("car", 1, "1", lambda: b"a")
    for use in (1, 2):  # beside the other one, and after it
        try:
            Ledger(second, 1).release("car", 1, "2", lambda: b"b")
            print("spent twice")
        except WireError as error:
            print("refused", "-head is missing" in str(error))
        if use == 1:
            ledger.close()
"""


def unshared(*command):
    """Run a command in a mount namespace of its own."""
    return subprocess.run(
        ["unshare", "--mount", *map(str, command)], capture_output=True, text=True, check=False
    )


def test_a_bind_mount_of_the_one_file_is_refused(path, tmp_path):
    if shutil.which("unshare") is None or unshared("true").returncode != 0:
        pytest.skip("needs root, and mount namespaces")
    (tmp_path / "second" / "ledger").touch()
    (tmp_path / "spend.py").write_text(SPEND)
    other = tmp_path / "second" / "ledger"
    script = 'mount --bind "$1" "$2" && exec "$3" "$4" "$1" "$2"'
    done = unshared("sh", "-c", script, "sh", path, other, sys.executable, tmp_path / "spend.py")
    if "mount" in done.stderr:
        pytest.skip(f"this account may not mount: {done.stderr}")
    assert (done.stdout, done.stderr) == ("refused True\nrefused True\n", "")
