"""Images of a ledger's files as a crash at any step would leave them, and random damage to them."""

import contextlib
import sqlite3
from contextlib import closing
from fractions import Fraction
from typing import NamedTuple

from fedldp.budget.ledger import Ledger, overview
from fedldp.errors import WireError
from fedldp.storage.database import ERRORS, Database
from fedldp.storage.head import Head

CAP = 100
SECTOR = 512


class Released(NamedTuple):
    """What a vehicle was given."""

    key: str
    request: str
    answer: bytes


class Image(NamedTuple):
    """The files at a moment, and what had been released then."""

    files: dict[str, bytes]
    released: tuple[Released, ...]


class Recorder:
    """Uses a ledger, and takes an image before and after each statement and write of a head."""

    def __init__(self, folder, monkeypatch, mirror=None):
        self.folder, self.path, self.mirror = folder, folder / "ledger", mirror
        self.images, self.released, self._last = [], [], None
        for owner, name in (
            (Database, "execute"),
            (Database, "execute_many"),
            (Head, "_write_at"),
            (Head, "_sync"),
        ):
            monkeypatch.setattr(owner, name, self._watched(getattr(owner, name)))

    def _watched(self, call):
        def wrapped(*arguments, **options):
            self.take()
            try:
                return call(*arguments, **options)
            finally:
                self.take()

        return wrapped

    def take(self):
        """Keep an image, unless nothing has changed."""
        if self.mirror is None:
            files = _contents(self.folder)
        else:
            files = _contents(self.folder, "1") | _contents(self.mirror, "2")
        image = Image(files, tuple(self.released))
        if image != self._last and {"ledger", "1ledger"} & files.keys():
            self._last = image
            self.images.append(image)

    def use(self, rounds):
        """Release one by one, to many at once, at no cost, and draw periods."""
        keys = [f"car {i}" for i in range(6)]
        with Ledger(self.path, CAP) as ledger:
            for number in range(rounds):
                key, name = keys[number % 6], f"round {number}"
                answer = ledger.release(key, "1/3", name, lambda n=name: n.encode(), job=name)
                self.released.append(Released(key, name, answer))
                answers = ledger.release_many(
                    *(keys, 1, f"many {number}", b"?"),
                    lambda able: dict.fromkeys(able, b"shared"),
                    constant="colour",
                )
                self.released += [Released(k, f"many {number}", a) for k, a in answers.items()]
                ledger.periods(key, 1, f"calendar {number}", lambda: [3, 7])
                ledger.note(f"noted {number}", "a plan", chained=True)
                self.take()
        self.take()


def _contents(folder, prefix=""):
    return {
        f"{prefix}{each.name}": each.read_bytes() for each in folder.iterdir() if each.is_file()
    }


def both(files):
    """Return the files of a ledger and those of its mirror, of an image of both."""
    return [
        {name[1:]: content for name, content in files.items() if name[0] == digit}
        for digit in ("1", "2")
    ]


def damage(image, images, rng):
    """Return the files of an image after one to three random damages, and what they were.

    A file is replaced by an older one only if the others stay as they are: a -wal that is cut short
    and an older -head, say, are what the whole ledger was before, which nothing can notice.
    """
    files, done = dict(image.files), []
    kinds, count = ["bits", "bits", "cut", "deleted", "zeros", "noise"], rng.choice([1, 1, 1, 2, 3])
    if count == 1:
        kinds.append("older")
    for _ in range(count):
        name = rng.choice(sorted(files))
        content = bytearray(files[name])
        kind = rng.choice(kinds)
        if kind == "older":
            older = rng.choice(images).files
            content = bytearray(older.get(name, b""))
        elif kind == "cut":
            del content[rng.randrange(len(content) + 1) :]
        elif kind == "bits" and content:
            for _ in range(rng.choice([1, 1, 8])):
                content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        elif kind in ("zeros", "noise") and content:
            first = rng.randrange(-(-len(content) // SECTOR)) * SECTOR
            length = len(content[first : first + SECTOR])
            content[first : first + SECTOR] = (
                bytes(length) if kind == "zeros" else rng.randbytes(length)
            )
        files[name] = bytes(content)
        if kind == "deleted":
            del files[name]
        done.append(f"{name} {kind}")
        if not files:
            break
    if rng.random() < 0.05:
        files["ledger-journal" if "ledger" in files else "1ledger-journal"] = rng.randbytes(1024)
        done.append("ledger-journal noise")
    return files, done


def write(folder, files):
    """Make the files of an image the only ones of a folder."""
    for each in folder.iterdir():
        each.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder / "ledger"


def outcome(prepare, released):
    """Open damaged files, for reading and for use; return "refused", "truth" or "less".

    `prepare` writes them and returns the path of the ledger.
    """
    spent = {}
    for key, request, _ in released:
        cost = Fraction(1, 3) if request.startswith("round") else Fraction(request == "many 0")
        spent[key] = spent.get(key, Fraction()) + cost
    seen = set()
    with contextlib.suppress(WireError, OSError):
        path = prepare()
        totals = overview(path).totals
        seen.add("less" if any(totals.get(key, 0) < least for key, least in spent.items()) else "")
    try:
        with Ledger(prepare(), CAP) as ledger:
            seen.add("truth" if _repeats(ledger, released) else "less")
            if any(ledger.spent(key) < least for key, least in spent.items()):
                seen.add("less")
    except (WireError, OSError):
        seen.add("refused")
    return "less" if "less" in seen else "refused" if "refused" in seen else "truth"


class _New(Exception):
    """A vehicle would spend again."""


def _repeats(ledger, released):
    def never():
        raise _New

    try:
        for key, request, answer in released:
            if request.startswith("round"):
                if ledger.release(key, "1/3", request, never, job=request) != answer:
                    return False
            elif ledger.release_many([], 1, request, b"?", lambda _: never())[key] != answer:
                return False
    except (_New, KeyError):
        return False
    return True


def holds_everything(folder, files, released):
    """Return whether SQLite alone would find all that was released."""
    path = write(folder, files)
    try:
        with closing(sqlite3.connect(path)) as connection:
            query = "SELECT key, request, answer FROM releases"
            rows = {tuple(row) for row in connection.execute(query)}
    except ERRORS:
        return False
    return {tuple(each) for each in released} <= rows
