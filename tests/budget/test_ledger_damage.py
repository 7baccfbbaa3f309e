"""Any damage to any file of a ledger, after a crash at any step: it is refused, or nothing is lost.

Each case is an image of the files before or after a statement or a write of the head, with one to
three random damages: flipped bits, sectors of zeros or noise, a file cut short, deleted, or older.
"""

import random
from collections import Counter
from functools import partial

import pytest
from ledger_images import Recorder, both, damage, holds_everything, outcome, write
from ledgers import as_format

from fedldp.budget.ledger import Ledger, create, mirror, seal, take_over
from fedldp.errors import WireError


def recorded(folder, monkeypatch, rounds, copies=None):
    folder.mkdir()
    with monkeypatch.context() as patch:
        create(folder / "ledger")
        if copies is not None:
            copies.mkdir()
            mirror(folder / "ledger", copies / "ledger")
        recorder = Recorder(folder, patch, copies)
        recorder.take()
        recorder.use(rounds)
    return recorder.images


def tried(tmp_path, monkeypatch, rounds, cases, seed):
    images, rng = recorded(tmp_path / "used", monkeypatch, rounds), random.Random(seed)
    (tmp_path / "damaged").mkdir()
    table = Counter()
    for _ in range(cases):
        image = rng.choice(images)
        files, done = damage(image, images, rng)
        result = outcome(partial(write, tmp_path / "damaged", files), image.released)
        assert result != "less", done
        if result == "refused" and holds_everything(tmp_path / "damaged", files, image.released):
            result = "refused, though SQLite finds all"
        table[" and ".join(sorted({each.split()[0] for each in done})), result] += 1
    return images, table


def tried_mirrored(tmp_path, monkeypatch, rounds, cases, seed):
    """Damage a ledger or its mirror, or both; open the one, then let the other take over."""
    folders = tmp_path / "used", tmp_path / "copies"
    images, rng = recorded(folders[0], monkeypatch, rounds, folders[1]), random.Random(seed)
    table = Counter()
    for _ in range(cases):
        image = rng.choice(images)
        files, done = damage(image, images, rng)
        parts = both(files)

        def prepare(parts=parts):
            for folder, of_disk in zip(folders, parts, strict=True):
                write(folder, of_disk)
            return folders[0] / "ledger"

        def prepare_mirror(prepare=prepare):
            prepare()
            take_over(folders[1] / "ledger")
            return folders[1] / "ledger"

        results = [outcome(each, image.released) for each in (prepare, prepare_mirror)]
        assert "less" not in results, done
        damaged = " and ".join(
            {"1": "ledger", "2": "mirror"}[digit]
            for digit in sorted({each.split()[0].replace("ledger-j", "1")[0] for each in done})
        )
        table[damaged, " / ".join(results)] += 1
    return images, table


def printed(title, images, table):
    print(f"\n{title}: {len(images)} images, {sum(table.values()):,} damages")
    for (files, result), count in sorted(table.items()):
        print(f"{files:60} {result:35} {count:6,}")


def test_damage_is_refused_or_nothing_is_lost(tmp_path, monkeypatch):
    _, table = tried(tmp_path, monkeypatch, 2, 60, 31)
    assert {"refused", "truth"} <= {result for _, result in table}


def test_damage_of_a_ledger_or_its_mirror_loses_nothing(tmp_path, monkeypatch):
    _, table = tried_mirrored(tmp_path, monkeypatch, 1, 30, 33)
    assert ("ledger", "refused / truth") in table


@pytest.mark.slow
def test_ten_thousand_damages(tmp_path, monkeypatch, capsys):
    found = tried(tmp_path, monkeypatch, 6, 10_000, 32)
    with capsys.disabled():
        printed("one file", *found)


@pytest.mark.slow
def test_two_thousand_damages_of_mirrored_ledgers(tmp_path, monkeypatch, capsys):
    found = tried_mirrored(tmp_path, monkeypatch, 3, 2_000, 34)
    with capsys.disabled():
        printed("opened / taken over", *found)


def test_a_crash_at_any_step_is_no_damage(tmp_path, monkeypatch):
    """Without damage, each image opens with all that was released, and goes on."""
    images = recorded(tmp_path / "used", monkeypatch, 2)
    assert len(images) > 30
    (tmp_path / "crashed").mkdir()
    for image in images:
        prepare = partial(write, tmp_path / "crashed", image.files)
        assert outcome(prepare, image.released) == "truth"
        with Ledger(tmp_path / "crashed" / "ledger", 1000) as ledger:
            ledger.release("van", 1, "after the crash", lambda: b"new")
        with Ledger(tmp_path / "crashed" / "ledger", 1000) as ledger:
            assert ledger.spent("van") == 1


@pytest.mark.parametrize("end", ["-wal", "-head", ""])
def test_a_deleted_file_is_noticed(tmp_path, monkeypatch, end):
    """The -wal of a process that was killed holds what was released last."""
    images = recorded(tmp_path / "used", monkeypatch, 2)
    last = [image for image in images if "ledger-wal" in image.files][-1]
    files = {name: content for name, content in last.files.items() if name != f"ledger{end}"}
    (tmp_path / "damaged").mkdir()
    prepare = partial(write, tmp_path / "damaged", files)
    assert outcome(prepare, last.released) == "refused"
    with pytest.raises(WireError, match="fedldp ledger seal"):
        Ledger(prepare(), 100)


def test_a_migrated_file_is_not_migrated_again_from_an_older_copy(tmp_path):
    """Its head knows of a commit from the first opening on, though nothing was added since."""
    path = tmp_path / "ledger"
    with Ledger.create(path, 9) as ledger:
        ledger.release("car", 1, "first", lambda: b"a")
    as_format(path, 6)
    older = path.read_bytes()
    with Ledger(path, 9) as ledger:
        ledger.release("car", 1, "second", lambda: b"b")
    as_format(path, 6)
    Ledger(path, 9).close()
    path.write_bytes(older)
    with pytest.raises(WireError, match="older format than its -head"):
        Ledger(path, 9)
    path.unlink()
    with pytest.raises(WireError, match="its -head is still there"):
        create(path)


def test_a_sealed_ledger_is_not_made_anew(tmp_path):
    path = tmp_path / "ledger"
    seal(path)
    path.unlink()
    with pytest.raises(WireError, match="its -head is still there"):
        create(path)


@pytest.mark.parametrize("size", [0, 700, 4096, 16384])
def test_a_first_head_that_was_cut_short_is_no_damage(tmp_path, size):
    """By a power failure or a full disk, while the ledger was made or migrated."""
    path, cut = tmp_path / "ledger", tmp_path / "ledger-head"
    create(path)
    starts = [bytes(size), cut.read_bytes()[:size], (cut.read_bytes()[:512] + bytes(size))[:16384]]
    for start in starts:
        for each in tmp_path.iterdir():
            each.unlink()
        cut.write_bytes(start)
        with Ledger.create(path, 9) as ledger:
            ledger.release("car", 1, "first", lambda: b"a")
        as_format(path, 6)
        cut.write_bytes(start)
        with Ledger(path, 9) as ledger:
            assert ledger.spent("car") == 1
