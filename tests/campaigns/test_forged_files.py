"""The file of a counter that somebody else has written is refused, and no other errors escape.

A file is damaged on the level of SQL, as a forger would, and byte by byte.
"""

import contextlib
import random
import sqlite3

import pytest
from campaigns import HOUR, KEY, PLAN, ROW, asked

import fedldp
from fedldp.campaigns.store import Store, merge
from fedldp.errors import FedLDPError, WireError

ANSWERS = 40


@pytest.fixture(scope="module")
def genuine(tmp_path_factory):
    """Return the file of a counter that has ended."""
    path = tmp_path_factory.mktemp("counter") / "counter.db"
    source = fedldp.source(1)
    with Store(path, asked().signed(KEY)) as store:
        answers = [
            number.to_bytes(16) + PLAN.report([ROW], source).to_bytes() for number in range(ANSWERS)
        ]
        store.add([*answers, b"damaged"])
        store.finish()
    with contextlib.closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA journal_mode = DELETE")
    return path


def forged(genuine, folder, *statements):
    """Return a copy in which some statements were executed."""
    path = folder / "forged.db"
    path.write_bytes(genuine.read_bytes())
    with contextlib.closing(sqlite3.connect(path)) as file:
        for statement in statements:
            file.execute(statement)
        file.commit()
    return path


def merged(path):
    with Store(path) as store:
        _ = store.refused, store.received, store.finished
        return merge([store])


MANY = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)"
TABLE = "CREATE TABLE answers (identifier BLOB PRIMARY KEY, packet BLOB NOT NULL"
FORGERIES = {
    "a view": (
        "ALTER TABLE answers RENAME TO one",
        f"CREATE VIEW answers AS {MANY} SELECT randomblob(16) AS identifier, packet FROM n, "
        "(SELECT packet FROM one LIMIT 1)",
    ),
    "a view beside the tables": ("CREATE VIEW more AS SELECT * FROM answers",),
    "a trigger": ("CREATE TRIGGER again AFTER INSERT ON about BEGIN DELETE FROM answers; END",),
    "another table": ("CREATE TABLE more (a)",),
    "another index": ("CREATE INDEX more ON answers (packet)",),
    "a missing table": ("DROP TABLE refused",),
    "another column": ("ALTER TABLE answers ADD COLUMN more",),
    "a computed column": (
        "DROP TABLE answers",
        "CREATE TABLE answers (identifier BLOB PRIMARY KEY, "
        "packet BLOB NOT NULL AS (identifier)) WITHOUT ROWID",
    ),
    "other types": ("DROP TABLE answers", f"{TABLE.replace('BLOB', 'TEXT')}) WITHOUT ROWID"),
    "no primary key": ("DROP TABLE answers", f"{TABLE.replace(' PRIMARY KEY', '')})"),
    "with a rowid": ("DROP TABLE answers", f"{TABLE})"),
    "an identifier that is a text": ("INSERT INTO answers VALUES ('0123456789abcdef', x'00')",),
    "an identifier that is a number": ("INSERT INTO answers VALUES (7, x'00')",),
    "a long identifier": ("INSERT INTO answers SELECT zeroblob(17), packet FROM answers LIMIT 1",),
    "a short identifier": ("INSERT INTO answers SELECT zeroblob(15), packet FROM answers LIMIT 1",),
    "a packet that is a text": ("UPDATE answers SET packet = 'report'",),
    "a packet that is a number": ("UPDATE answers SET packet = 1.5",),
    "a packet of two vehicles": ("UPDATE answers SET packet = packet || packet",),
    "an invalid text": ("UPDATE refused SET reason = CAST(x'ff' AS TEXT)",),
    "a reason that is bytes": ("UPDATE refused SET reason = x'00'",),
    "messages that are a text": ("UPDATE refused SET messages = 'many'",),
    "fewer messages than none": ("UPDATE refused SET messages = -1",),
    "a campaign that is bytes": ("UPDATE about SET value = x'00' WHERE name = 'campaign'",),
    "an invalid campaign": ("UPDATE about SET value = CAST(x'ff' AS TEXT)",),
    "no campaign": ("DELETE FROM about",),
    "another format": ("PRAGMA user_version = 7",),
    "another mark": ("PRAGMA application_id = 7",),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_file_is_refused(genuine, tmp_path, name):
    with pytest.raises(WireError):
        merged(forged(genuine, tmp_path, *FORGERIES[name]))


def test_a_virtual_table_is_refused(genuine, tmp_path):
    try:
        path = forged(
            genuine,
            tmp_path,
            "DROP TABLE answers",
            "CREATE VIRTUAL TABLE answers USING fts5(identifier, packet)",
        )
    except sqlite3.OperationalError as error:
        pytest.skip(f"this SQLite has no FTS5: {error}")
    with pytest.raises(WireError):
        merged(path)


def test_a_genuine_file_is_counted(genuine, tmp_path):
    found = merged(forged(genuine, tmp_path))
    assert found.counted.tally.reports == ANSWERS
    assert found.refused == {"length": 1}


def damaged(data, rng):
    """Return the bytes of a file in which something else stands somewhere."""
    data, kind = bytearray(data), rng.randrange(4)
    place = rng.randrange(len(data))
    if kind == 0:
        return bytes(data[:place])
    if kind == 1:
        for _ in range(rng.randrange(1, 20)):
            data[rng.randrange(len(data))] = rng.randrange(256)
    elif kind == 2:
        data[rng.randrange(100)] = rng.randrange(256)  # the header
    else:
        other, length = rng.randrange(len(data)), rng.randrange(1, 500)
        data[place : place + length] = data[other : other + length]
    return bytes(data)


def check_damages(genuine, folder, cases, seed):
    rng, refused = random.Random(seed), 0
    data = genuine.read_bytes()
    path = folder / "damaged.db"
    for _ in range(cases):
        for each in folder.iterdir():
            each.unlink()
        path.write_bytes(damaged(data, rng))
        try:
            found = merged(path)
        except (FedLDPError, OSError):  # an unfinished file, and one that SQLite only reads
            refused += 1
        else:
            assert found.counted.tally.reports <= ANSWERS
    return refused


def test_only_errors_of_fedldp_escape(genuine, tmp_path):
    assert 20 < check_damages(genuine, tmp_path, 60, seed=1) <= 60


@pytest.mark.slow
def test_only_errors_of_fedldp_escape_from_many(genuine, tmp_path):
    assert check_damages(genuine, tmp_path, 5000, seed=2) > 1000


def test_the_clock_plays_no_part(genuine, tmp_path):
    """Publishing again with another deadline leaves the file valid."""
    with Store(forged(genuine, tmp_path), asked(hours=48).signed(KEY)) as store:
        assert store.campaign.deadline - store.campaign.issued == 48 * HOUR
