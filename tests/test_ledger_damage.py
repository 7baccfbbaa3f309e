"""Any damage to any file of a ledger, after a crash at any step: it is refused, or nothing is lost.

Each case is an image of the files before or after a statement or a write of the head, with one to
three random damages: flipped bits, sectors of zeros or noise, a file cut short, deleted, or older.
"""

import random
from collections import Counter

import pytest
from ledger_images import Recorder, damage, holds_everything, outcome

from fedldp.errors import WireError
from fedldp.ledger import Ledger, create


def recorded(folder, monkeypatch, rounds):
    folder.mkdir()
    with monkeypatch.context() as patch:
        recorder = Recorder(folder, patch)
        create(recorder.path)
        recorder.use(rounds)
    return recorder.images


def tried(tmp_path, monkeypatch, rounds, cases, seed):
    images, rng = recorded(tmp_path / "used", monkeypatch, rounds), random.Random(seed)
    (tmp_path / "damaged").mkdir()
    table = Counter()
    for _ in range(cases):
        image = rng.choice(images)
        files, done = damage(image, images, rng)
        result = outcome(tmp_path / "damaged", files, image.released)
        assert result != "less", done
        if result == "refused" and holds_everything(tmp_path / "damaged", files, image.released):
            result = "refused, though SQLite finds all"
        table[" and ".join(sorted({each.split()[0] for each in done})), result] += 1
    return images, table


def test_damage_is_refused_or_nothing_is_lost(tmp_path, monkeypatch):
    _, table = tried(tmp_path, monkeypatch, 2, 60, 31)
    results = {result for _, result in table}
    assert {"refused", "truth"} <= results


@pytest.mark.slow
def test_ten_thousand_damages(tmp_path, monkeypatch, capsys):
    images, table = tried(tmp_path, monkeypatch, 6, 10_000, 32)
    with capsys.disabled():
        print(f"\n{len(images)} images, {sum(table.values()):,} damages")
        for (files, result), count in sorted(table.items()):
            print(f"{files:40} {result:35} {count:6,}")


def test_a_crash_at_any_step_is_no_damage(tmp_path, monkeypatch):
    """Without damage, each image opens with all that was released, and goes on."""
    images = recorded(tmp_path / "used", monkeypatch, 2)
    assert len(images) > 30
    (tmp_path / "crashed").mkdir()
    for image in images:
        if "ledger-head" in image.files:
            assert outcome(tmp_path / "crashed", image.files, image.released) == "truth"
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
    assert outcome(tmp_path / "damaged", files, last.released) == "refused"
    with pytest.raises(WireError, match="fedldp ledger seal"):
        Ledger(tmp_path / "damaged" / "ledger", 100)
