"""Snapshots of database files: they change nothing, and nobody waits for them."""

import shutil
import sqlite3
import threading
from contextlib import closing

import pytest

from fedldp.errors import WireError
from fedldp.storage.database import Database, Kind, snapshot


def kind(newest=1, name="test"):
    return Kind(
        name=name,
        mark=b"test" if name == "test" else b"othr",
        format=newest,
        tables="CREATE TABLE numbers (number);",
        advice="Restore it.",
        migrations={each: (f"INSERT INTO numbers VALUES ({-each})",) for each in range(1, newest)},
    )


@pytest.fixture
def path(tmp_path):
    file = Database(tmp_path / "file", kind())
    with file.transaction():
        file.execute("INSERT INTO numbers VALUES (7)")
    file.close()
    return tmp_path / "file"


def write(file):
    with file.transaction():
        file.execute("INSERT INTO numbers VALUES (8)")


def numbers(file):
    return [number for (number,) in file.execute("SELECT * FROM numbers")]


def test_what_others_write_meanwhile_is_not_seen_and_nobody_waits(path):
    writer = Database(path, kind())
    with snapshot(path, kind()) as file:
        assert numbers(file) == [7]
        thread = threading.Thread(target=write, args=(writer,))  # in the same process
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
        assert numbers(file) == [7]
    with snapshot(path, kind()) as file:
        assert numbers(file) == [7, 8]
    writer.close()


def test_it_is_read_while_another_process_writes(path):
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("INSERT INTO numbers VALUES (8)")
        with snapshot(path, kind()) as file:
            assert numbers(file) == [7]
        other.execute("COMMIT")


def test_nothing_can_be_written_and_nothing_is_left(path):
    before = path.read_bytes()
    with (
        snapshot(path, kind()) as file,
        pytest.raises(OSError, match="attempt to write a readonly database"),
    ):
        file.execute("INSERT INTO numbers VALUES (8)")
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == ["file"]


def test_an_older_file_is_migrated_in_memory_alone(path):
    before = path.read_bytes()
    with snapshot(path, kind(3)) as file:
        assert numbers(file) == [7, -1, -2]
    assert path.read_bytes() == before
    Database(path, kind(3)).close()
    with pytest.raises(WireError, match=r"of format 3, and this version of fedldp reads .* to 2"):
        snapshot(path, kind(2)).__enter__()


def test_what_was_committed_before_a_crash_is_read(path, tmp_path):
    file = Database(path, kind())
    with file.transaction():
        file.execute("INSERT INTO numbers VALUES (8)")
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    for end in ("", "-wal"):
        shutil.copy(f"{path}{end}", crashed / f"file{end}")
    file.close()
    with snapshot(crashed / "file", kind()) as found:
        assert numbers(found) == [7, 8]


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (lambda path: path.write_bytes(b""), "it is empty"),
        (lambda path: path.write_bytes(b"x" * 10_000), "file is not a database"),
        (lambda path: path.write_bytes(path.read_bytes()[:100]), "not a valid test"),
    ],
)
def test_a_damaged_file_is_refused(path, damage, error):
    damage(path)
    with pytest.raises(WireError, match=error), snapshot(path, kind()) as file:
        numbers(file)


def test_a_file_of_another_kind_is_refused(path):
    with pytest.raises(WireError, match="does not have the mark of a plum"):
        snapshot(path, kind(name="plum")).__enter__()


def test_a_missing_file_is_not_made(tmp_path):
    with pytest.raises(FileNotFoundError):
        snapshot(tmp_path / "file", kind()).__enter__()
    assert not any(tmp_path.iterdir())
