"""Count many packets at once, and remember which shards were counted.

A packet is the bytes of one report as they were received. Every packet is validated as
`Plan.parse` does; those of one size together. A packet that is not valid is counted by the reason,
and nothing of it enters the tally.
"""

import hashlib
import os
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import compress
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, final

import numpy as np

from fedldp import vehicle
from fedldp._internal import documents, packing
from fedldp._internal.packets import Mask, Packets, RepeatedPackets
from fedldp._internal.text import counted
from fedldp._internal.validation import Integers, whole
from fedldp.counting.packets import in_memory
from fedldp.counting.shards import CountingProgress, Shard, digest, find, no_one
from fedldp.errors import DomainError, WireError
from fedldp.plan import report
from fedldp.plan.report import ACCEPTED, CODE, HEADER, MISSING, REASONS, Verdicts
from fedldp.results import tally
from fedldp.results.tally import TalliedPlan, Tally
from fedldp.storage import files

__all__ = ["Counted", "Manifest", "RefusedPacket"]

FORMAT = "fedldp manifest 1"
COUNTED_FORMAT = "fedldp counted 1"
MOST_LISTED = 1000

_OTHER_CONTENTS = (
    "a file of this name with other contents is counted already. If this is a new one, give it "
    "another name; if the old one was changed, count all files again into a new tally."
)
_COPY = (
    "which is counted already: is it a copy? If different vehicles sent the same reports, give it "
    "on standard input."
)
_DOCUMENT_LENGTH = struct.Struct(">Q")
_CHECK = hashlib.sha256().digest_size
_NAMES_IN_AN_ERROR = 3
CHANCE_OF_A_NOTE, CHANCE_OF_A_COPY = 0.01, 2.0**-40  # that an honest file equals another one
_SELDOM_EQUAL, _NEVER_EQUAL = 100, 10_000  # vehicles in tallies that are equal by chance
_VEHICLES_OF_A_LARGE_PACKET = 1 << 9  # which is counted by itself,
_BITS_OF_A_LARGE_PACKET = 1 << 20  # and so is one with so many bits
_MOST_DISTINCT_PACKETS = 1 << 17  # of dictionaries, in memory


class RefusedPacket(NamedTuple):
    """A packet that was refused.

    Examples
    --------
    >>> RefusedPacket("reports/7.bin", 3, "checksum").reason
    'checksum'
    """

    shard: str  # the file, or "" for packets in memory
    number: int  # from 0
    reason: str


@final
@dataclass(frozen=True)
class Manifest:
    """Which shards a tally counts: the name and the SHA-256 of each file.

    Manifests add as tallies do, but not if they have a shard in common: its vehicles would count
    twice. Names decide. Contents do not, because small files may be equal by chance.

    Parameters
    ----------
    shards
        The SHA-256 of each shard, in hexadecimal, by its name.

    Examples
    --------
    >>> one, two = Manifest({"reports/1.bin": "9f86..."}), Manifest({"reports/2.bin": "60303..."})
    >>> len(one + two)
    2
    >>> one + one
    Traceback (most recent call last):
    fedldp.errors.DomainError: 1 shard would count twice: reports/1.bin. Merge tallies of...
    """

    shards: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.shards)

    def __add__(self, other: "Manifest") -> "Manifest":
        if not isinstance(other, Manifest):
            return NotImplemented
        return merged_manifest([self, other])


def merged_manifest(manifests: Iterable[Manifest]) -> Manifest:
    """Return the manifest of all shards, or raise `DomainError` if one occurs twice."""
    shards: dict[str, str] = {}
    for each in manifests:
        _check_overlap(shards, each.shards)
        shards |= each.shards
    return Manifest(shards)


def _check_overlap(shards: Mapping[str, str], others: Mapping[str, str]) -> None:
    both = sorted(shards.keys() & others.keys())
    if both:
        raise DomainError(
            f"{counted(len(both), 'shard')} would count twice: {_some(both)}. Merge tallies of "
            "different shards, or count all shards again into a new tally."
        )


def _some(names: list[str]) -> str:
    """Return the first names: paths, which are only useful as a whole."""
    more = (
        f" and {len(names) - _NAMES_IN_AN_ERROR:,} more" if len(names) > _NAMES_IN_AN_ERROR else ""
    )
    return ", ".join(names[:_NAMES_IN_AN_ERROR]) + more


@final
@dataclass(frozen=True)
class Counted:
    """What `Plan.count` returns: a tally, and what could not be counted.

    Results add with `+` and `sum`, like tallies; results with a shard in common do not.

    Parameters
    ----------
    tally
        The tally of all valid packets.
    packets
        The number of valid packets. A packet may hold several vehicles.
    refused
        The number of refused packets for each reason that occurred: `missing`, `length`, `format`,
        `plan`, `checksum` or `code`.
    listed
        The first refused packets, in the order of shards and numbers: a thousand of them unless
        another number was asked for.
    manifest
        The shards that were counted, if the packets came from files.

    Examples
    --------
    >>> import fedldp
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 1.0, fedldp.Sample(mechanism="duchi"))
    >>> packet = plan.report([{"speed": 30}], fedldp.source(1)).to_bytes()
    >>> found = plan.count([packet, b"damaged", packet])
    >>> found
    <Counted: 2 vehicles in 2 packets; 1 packet refused (length 1)>
    >>> found.tally, found.refused, found.listed[0].number
    (<Tally of 2 reports for plan 6e5cc23400e34c>, {'length': 1}, 1)
    """

    tally: Tally
    packets: int
    refused: Mapping[str, int]
    listed: tuple[RefusedPacket, ...] = ()
    manifest: Manifest = field(default_factory=Manifest)

    def __repr__(self) -> str:
        vehicles, packets = counted(self.tally.reports, "vehicle"), counted(self.packets, "packet")
        bad = ", ".join(f"{reason} {number:,}" for reason, number in self.refused.items())
        refused = counted(sum(self.refused.values()), "packet")
        return f"<Counted: {vehicles} in {packets}{f'; {refused} refused ({bad})' if bad else ''}>"

    def __add__(self, other: "Counted") -> "Counted":
        if not isinstance(other, Counted):
            return NotImplemented
        return merge(self, [other])

    def __radd__(self, other: int) -> "Counted":
        # `sum` begins with 0.
        return self if type(other) is int and other == 0 else NotImplemented

    def to_bytes(self) -> bytes:
        """Return the result as bytes, with a version and a checksum, to send it to a server.

        Equal results give equal bytes. The page on the wire format describes them.

        Returns
        -------
        bytes
            The bytes, which `from_bytes` reads.

        Examples
        --------
        >>> import fedldp
        >>> schema = fedldp.Schema.of(speed=(0, 50))
        >>> plan = fedldp.Plan(schema, 1.0, fedldp.Sample(mechanism="duchi"))
        >>> Counted.from_bytes(plan.count([b"damaged"]).to_bytes(), plan)
        <Counted: 0 vehicles in 0 packets; 1 packet refused (length 1)>
        """
        document = {
            "format": COUNTED_FORMAT,
            "packets": self.packets,
            "refused": dict(self.refused),
            "listed": [list(refusal) for refusal in self.listed],
            "shards": dict(self.manifest.shards),
        }
        text = vehicle.canonical(document).encode()
        data = _DOCUMENT_LENGTH.pack(len(text)) + text + self.tally.to_bytes()
        return data + hashlib.sha256(data).digest()

    @classmethod
    def from_bytes(cls, data: bytes, plan: TalliedPlan) -> "Counted":
        """Read and validate what `to_bytes` returned.

        Parameters
        ----------
        data
            The bytes of a result.
        plan
            The plan of its tally.

        Returns
        -------
        Counted
            The result.

        Raises
        ------
        WireError
            If the bytes are damaged or belong to another plan.

        Examples
        --------
        >>> import fedldp
        >>> schema = fedldp.Schema.of(speed=(0, 50))
        >>> plan = fedldp.Plan(schema, 1.0, fedldp.Sample(mechanism="duchi"))
        >>> Counted.from_bytes(b"damaged", plan)
        Traceback (most recent call last):
        fedldp.errors.WireError: not a 'fedldp counted 1' of this plan: the checksum differs: the...
        """
        with documents.reading(f"{COUNTED_FORMAT!r} of this plan"):
            body, check = bytes(data[:-_CHECK]), bytes(data[-_CHECK:])
            if len(body) < _DOCUMENT_LENGTH.size or hashlib.sha256(body).digest() != check:
                raise ValueError("the checksum differs: the bytes are damaged")
            start, end = (
                _DOCUMENT_LENGTH.size,
                _DOCUMENT_LENGTH.size + _DOCUMENT_LENGTH.unpack_from(body)[0],
            )
            entries = "packets", "refused", "listed", "shards"
            document = documents.parse(body[start:end], [COUNTED_FORMAT], entries)
            packets, refused, listed, shards = (document[name] for name in entries)
            _check_entries(packets, refused, shards)
            bad = tuple(RefusedPacket(*refusal) for refusal in listed)
            for shard, number, reason in bad:
                if not isinstance(shard, str) or type(number) is not int or reason not in REASONS:
                    raise ValueError("a refused packet has a shard, a number and a reason")
            counts = {reason: refused[reason] for reason in REASONS if reason in refused}
            total = Tally.from_bytes(body[end:], plan)
            counted = cls(total, packets, counts, bad, Manifest(shards))
            documents.check_written(counted.to_bytes().hex(), bytes(data).hex())
        return counted

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tally to a file, and the manifest next to it, as one step.

        If the program is stopped at any moment, `load` finds both as they were or both as they are
        now. The manifest has the name of the tally, with `.manifest` at its end.

        Parameters
        ----------
        path
            The file of the tally, which `Plan.load_tally` reads as well.

        Examples
        --------
        >>> import fedldp, tempfile
        >>> schema = fedldp.Schema.of(speed=(0, 50))
        >>> plan = fedldp.Plan(schema, 1.0, fedldp.Sample(mechanism="duchi"))
        >>> path = f"{tempfile.mkdtemp()}/tally.json"
        >>> plan.count([]).save(path)
        >>> Counted.load(path, plan).tally == plan.load_tally(path)
        True
        """
        target, text = Path(path).resolve(), self.tally.to_json()
        if target.exists() and not target.is_file():  # a pipe or a device
            files.write(target, text)
            return
        document = {
            "format": FORMAT,
            "plan": self.tally.plan,
            "tally": _digest(text),
            "packets": self.packets,
            "refused": dict(self.refused),
            "shards": dict(self.manifest.shards),
        }
        # The new manifest is the moment of change: `load` completes what comes after it.
        files.write(_fresh(target), text)
        files.write(manifest_path(target), vehicle.canonical(document))
        _fresh(target).replace(target)
        files.sync(target.parent)

    @classmethod
    def load(cls, path: str | os.PathLike[str], plan: TalliedPlan) -> "Counted":
        """Read a tally of a plan and its manifest.

        A tally without a manifest is read too: nobody knows then which shards it counts.

        Parameters
        ----------
        path
            The file of the tally.
        plan
            The plan.

        Returns
        -------
        Counted
            What `save` was called on, without the list of refused packets.

        Raises
        ------
        WireError
            If a file is damaged, or belongs to another plan.
        DomainError
            If the tally is not that of its manifest.

        Examples
        --------
        >>> import fedldp, tempfile
        >>> schema = fedldp.Schema.of(speed=(0, 50))
        >>> plan = fedldp.Plan(schema, 1.0, fedldp.Sample(mechanism="duchi"))
        >>> path = f"{tempfile.mkdtemp()}/tally.json"
        >>> plan.count([]).save(path)
        >>> Counted.load(path, plan)
        <Counted: 0 vehicles in 0 packets>
        """
        target = Path(path).resolve()
        beside = manifest_path(target)
        if not beside.exists():
            return cls(tally.read(target.read_bytes(), plan), 0, {})
        with documents.reading(f"{FORMAT!r} of this plan"):
            entries = "plan", "tally", "packets", "refused", "shards"
            document = documents.parse(_read(beside), [FORMAT], entries)
            if document["plan"] != plan.fingerprint:
                raise ValueError("it belongs to another plan")
            packets, refused, shards = (document[name] for name in entries[2:])
            _check_entries(packets, refused, shards)
        if _fresh(target).exists() and _digest(_read(_fresh(target))) == document["tally"]:
            _fresh(target).replace(target)
        text = _read(target) if target.exists() else ""
        if _digest(text) != document["tally"]:
            raise DomainError(
                f"{target.name} must be the tally that {beside.name} describes; it is "
                f"{'another one' if text else 'missing'}. Restore it, or delete both files and "
                "count again."
            )
        return cls(tally.from_json(text, plan), packets, refused, (), Manifest(shards))


def load_or_begin(path: Path, plan: TalliedPlan) -> Counted:
    """Read a tally and its manifest, or begin with an empty one if neither is there."""
    if path.exists() or manifest_path(path.resolve()).exists():
        return Counted.load(path, plan)
    return count([], plan)


def merge(first: Counted, others: Iterable[Counted], most_listed: int = MOST_LISTED) -> Counted:
    """Return the sum of many results, of which one is held at a time; the order changes nothing."""
    total, packets, refused = first.tally, first.packets, Counter(first.refused)
    bad, manifests = list(first.listed), [first.manifest]
    for other in others:
        total += other.tally
        packets += other.packets
        refused.update(other.refused)
        if other.listed:
            bad = sorted([*bad, *other.listed])[:most_listed]
        manifests.append(other.manifest)
    numbers = {reason: refused[reason] for reason in REASONS if refused[reason]}
    return Counted(total, packets, numbers, tuple(bad), merged_manifest(manifests))


def manifest_path(path: Path) -> Path:
    """Return the file of the manifest of a tally."""
    return path.with_name(f"{path.name}.manifest")


def _fresh(path: Path) -> Path:
    """Return the file of a tally that is about to replace another."""
    return path.with_name(f".{path.name}.next")


def _read(path: Path) -> str:
    return path.read_text("utf-8", errors="replace")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _check_entries(packets: Any, refused: Any, shards: Any) -> None:
    if not isinstance(refused, dict) or not isinstance(shards, dict):
        raise ValueError("refused and shards must be objects")
    if not refused.keys() <= REASONS.keys():
        raise ValueError(f"the reasons must be among {', '.join(REASONS)}")
    if any(type(number) is not int or number < 0 for number in [packets, *refused.values()]):
        raise ValueError("the numbers of packets must be whole and not negative")
    if not all(isinstance(digest, str) for digest in shards.values()):
        raise ValueError("the SHA-256 of a shard must be a text")


def count(
    data: Any, plan: TalliedPlan, *, column: str | None = None, most_listed: int = MOST_LISTED
) -> Counted:
    """Count packets in memory or in files: see `Plan.count`."""
    if not isinstance(data, str | os.PathLike):
        counter = _Counter(plan, most_listed)
        for packets in in_memory(data, column):
            counter.add(packets)
        return counter.result()
    nothing = _Counter(plan, most_listed).result()
    counted_shards = (count_shard(shard, plan, column, most_listed) for shard in find(data))
    return merge(nothing, counted_shards, most_listed)


def count_shard(
    shard: Shard,
    plan: TalliedPlan,
    column: str | None = None,
    most_listed: int = MOST_LISTED,
    progress: CountingProgress = no_one,
) -> Counted:
    """Count the packets of one file; nothing is counted if it cannot be read to its end."""
    counter = _Counter(plan, most_listed, shard.name)
    with shard.opened() as file:
        contents = digest(file)
        for packets in shard.packets(file, counter.split, column, progress):
            counter.add(packets)
    return counter.result(Manifest({shard.name: contents}))


class ShardOutcome(NamedTuple):
    """What became of a shard: it was counted, refused as a whole, or counted before (neither)."""

    shard: Shard
    counted: Counted | None = None
    refused: str = ""
    is_tally: bool = False  # what it refused was refused earlier, by another server
    twins: int = 0  # its files with the contents of others, where that rarely happens by chance


def count_new(
    shards: Iterable[Shard],
    plan: TalliedPlan,
    known: Manifest,
    column: str | None = None,
    progress: CountingProgress = no_one,
) -> Iterator[ShardOutcome]:
    """Count the shards that a manifest does not have yet, one after the other.

    A shard may also be a tally, with its own manifest next to it.
    """
    done = dict(known.shards)
    names = {digest: name for name, digest in done.items()}
    for shard in shards:
        try:
            if shard.name in done:
                same = shard.digest() == done[shard.name]
                progress(shard.size)
                yield ShardOutcome(shard, refused="" if same else _OTHER_CONTENTS)
                continue
            is_tally = tally.is_tally(shard.beginning())
            if is_tally:
                counted = _load_shard(shard, plan)
                progress(shard.size)
            else:
                counted = count_shard(shard, plan, column, progress=progress)
            _check_overlap(done, counted.manifest.shards)
            twins = [
                names[digest] for digest in counted.manifest.shards.values() if digest in names
            ]
            seldom, never = _rareness(counted, plan, len(done), is_tally=is_tally)
            if twins and never:
                raise DomainError(f"it has the same contents as {_some(twins)}, {_COPY}")
            twins = twins if seldom else []
        except (DomainError, WireError, OSError) as error:
            yield ShardOutcome(shard, refused=str(error))
        else:
            done |= counted.manifest.shards
            names |= {digest: name for name, digest in counted.manifest.shards.items()}
            yield ShardOutcome(shard, counted, is_tally=is_tally, twins=len(twins))


def _rareness(
    found: Counted, plan: TalliedPlan, known: int, *, is_tally: bool
) -> tuple[bool, bool]:
    """Return whether a file seldom, and whether it never, equals one of some others by chance.

    The chance that two vehicles send the same record is at most that of the likeliest record.
    """
    vehicles = found.tally.reports
    if is_tally:
        return vehicles >= _SELDOM_EQUAL, vehicles >= _NEVER_EQUAL
    likeliest = prod(part.likeliest for part in plan.parts)
    chance = max(known, 1) * likeliest**vehicles
    return chance < CHANCE_OF_A_NOTE, chance < CHANCE_OF_A_COPY


def _load_shard(shard: Shard, plan: TalliedPlan) -> Counted:
    """Load a tally as a shard: its manifest names the tally too, so that it is merged once."""
    found = Counted.load(shard.local, plan)
    return replace(found, manifest=found.manifest + Manifest({shard.name: shard.digest()}))


def count_stream(stream: BinaryIO, plan: TalliedPlan) -> Counted:
    """Count the reports that follow one another in a stream."""
    counter = _Counter(plan, MOST_LISTED)
    for packets in counter.split(stream):
        counter.add(packets)
    return counter.result()


class _Dictionary(NamedTuple):
    """The distinct packets of a column."""

    packets: Packets
    texts: list[bytes]
    verdicts: Verdicts
    times: Integers  # how often each has occurred


@final
class _Counter:
    """Counters that packets are added to."""

    def __init__(self, plan: TalliedPlan, most_listed: int, shard: str = "") -> None:
        if plan.study:
            raise DomainError("a plan for study has no reports: simulate it instead.")
        if whole(most_listed, "most_listed") < 0:
            raise DomainError(f"most_listed must not be negative; got {most_listed}.")
        self._plan, self._width, self._shard = plan, plan.bits, shard
        self._counts = [np.zeros(part.starts[-1], np.int64) for part in plan.parts]
        self._vehicles = self._packets = self._seen = 0
        self._refused = np.zeros(len(REASONS) + 1, np.int64)
        self._listed: list[RefusedPacket] = []
        self._most_listed = most_listed
        self._dictionary: _Dictionary | None = None
        self._verdict_of: dict[bytes, int] = {}  # of the packets of all dictionaries
        self._times_of: Counter[bytes] = Counter()

    def split(self, stream: BinaryIO) -> Iterator[Packets]:
        return report.split(stream, self._plan.fingerprint, self._width)

    def add(self, packets: Packets | RepeatedPackets) -> None:
        """Count the valid packets."""
        if isinstance(packets, RepeatedPackets):
            self._add_repeated(packets)
            return
        for _, chunk in packets.chunks():
            self._note(self._count(chunk))

    def _add_repeated(self, packets: RepeatedPackets) -> None:
        if self._dictionary is None or self._dictionary.packets is not packets.distinct:
            self._leave_dictionary()
            if len(self._verdict_of) > _MOST_DISTINCT_PACKETS:
                self._count_dictionaries()
            self._dictionary = self._validate(packets.distinct)
        verdicts, times = self._dictionary.verdicts, self._dictionary.times
        rows, missing = packets.rows, packets.missing
        if missing is not None or verdicts.any():
            row_verdicts = verdicts[rows]
            if missing is not None:
                row_verdicts[missing] = MISSING
            self._note(row_verdicts)
            rows = rows[row_verdicts == ACCEPTED]
        else:
            self._packets += len(rows)
            self._seen += len(rows)
        times += np.bincount(rows, minlength=len(times))

    def _validate(self, packets: Packets) -> "_Dictionary":
        """Validate the packets of a dictionary that were in none before."""
        texts = packets.texts()
        new = list({text: 0 for text in texts if text not in self._verdict_of})
        if new:
            never = np.zeros(len(new), np.int64)
            self._verdict_of.update(zip(new, self._count_times(new, never), strict=True))
        verdicts = np.array([self._verdict_of[text] for text in texts], np.uint8)
        return _Dictionary(packets, texts, verdicts, np.zeros(len(texts), np.int64))

    def _leave_dictionary(self) -> None:
        """Remember how often each packet of the current dictionary occurred."""
        if self._dictionary is not None:
            for text, times in zip(
                self._dictionary.texts, self._dictionary.times.tolist(), strict=True
            ):
                self._times_of[text] += times
            self._dictionary = None

    def _count_dictionaries(self) -> None:
        """Count each packet of all dictionaries as often as it occurred."""
        self._leave_dictionary()
        times = np.fromiter(self._times_of.values(), np.int64, len(self._times_of))
        texts = list(compress(self._times_of, times))
        self._times_of.clear()
        self._verdict_of.clear()
        if texts:
            self._count_times(texts, times[times > 0])

    def _count_times(self, texts: list[bytes], times: Integers) -> list[int]:
        """Count packets that occur some times each, which may be never, and return all verdicts."""
        return [
            verdict
            for start, chunk in Packets.of(texts).chunks()
            for verdict in self._count(chunk, times[start : start + len(chunk)]).tolist()
        ]

    def _note(self, verdicts: Verdicts) -> None:
        """Remember which packets were refused."""
        bad = np.flatnonzero(verdicts)
        if bad.size:
            self._refused += np.bincount(verdicts[bad], minlength=self._refused.size)
            for number in bad[: self._most_listed - len(self._listed)].tolist():
                reason = [*REASONS][verdicts[number] - 1]
                self._listed.append(RefusedPacket(self._shard, self._seen + number, reason))
        self._packets += len(verdicts) - bad.size
        self._seen += len(verdicts)

    def result(self, manifest: Manifest | None = None) -> Counted:
        self._count_dictionaries()
        plan = self._plan
        found = Tally(
            plan.fingerprint, plan.parts, self._vehicles, tuple(self._counts), plan.estimator
        )
        refused = dict(zip(REASONS, self._refused[1:].tolist(), strict=True))
        refused = {reason: number for reason, number in refused.items() if number}
        return Counted(found, self._packets, refused, tuple(self._listed), manifest or Manifest())

    def _count(self, packets: Packets, times: Integers | None = None) -> Verdicts:
        """Count valid packets, once or as many times as is given for each."""
        verdicts, vehicles = report.check_headers(packets, self._plan.fingerprint, self._width)
        if packets.missing is not None:
            verdicts[packets.missing] = MISSING
        good = np.flatnonzero(verdicts == ACCEPTED)
        if good.size == len(packets) and np.all(vehicles == vehicles[0]):  # the usual case
            return self._count_group(packets, int(vehicles[0]), times)
        order = good[np.argsort(vehicles[good], kind="stable")]
        for rows in np.split(order, np.flatnonzero(np.diff(vehicles[order])) + 1):
            if rows.size:
                row_times = None if times is None else times[rows]
                group = packets.take(rows)
                verdicts[rows] = self._count_group(group, int(vehicles[rows[0]]), row_times)
        return verdicts

    def _count_group(self, packets: Packets, vehicles: int, times: Integers | None) -> Verdicts:
        """Count packets of one size whose headers are valid."""
        verdicts = report.check_bodies(packets, self._plan.fingerprint, self._width, vehicles)
        rows = np.flatnonzero(verdicts == ACCEPTED)
        if rows.size < len(packets):
            packets = packets.take(rows)
            times = None if times is None else times[rows]
        if (
            vehicles >= _VEHICLES_OF_A_LARGE_PACKET
            or vehicles * self._width >= _BITS_OF_A_LARGE_PACKET
        ):
            long = (self._count_long(packets, n, vehicles, times) for n in range(rows.size))
            good = np.array([*long], bool)
        elif vehicles:
            good = self._count_short(packets, vehicles, times)
        else:
            good = np.ones(rows.size, np.bool_)
        verdicts[rows[~good]] = CODE
        self._vehicles += vehicles * int(good.sum() if times is None else times[good].sum())
        return verdicts

    def _count_short(self, packets: Packets, vehicles: int, times: Integers | None) -> Mask:
        size = packing.length(vehicles, self._width)
        records = packing.from_rows(packets.octets(HEADER, size), vehicles, self._width)
        good: Mask = np.logical_and.reduce(self._valid(records).reshape(-1, vehicles), axis=1)
        if not good.all():
            records = records.take(np.flatnonzero(np.repeat(good, vehicles)))
        self._add(records, None if times is None else np.repeat(times[good], vehicles))
        return good

    def _count_long(
        self, packets: Packets, number: int, vehicles: int, times: Integers | None
    ) -> bool:
        start = int(packets.starts[number]) + HEADER
        packed = packets.data.data[start : start + packing.length(vehicles, self._width)]
        ranges = packed, vehicles, self._width
        if not all(self._valid(records).all() for records in packing.parse_ranges(*ranges)):
            return False
        for records in packing.parse_ranges(*ranges):
            self._add(records, None if times is None else np.full(len(records), times[number]))
        return True

    def _valid(self, records: packing.Records) -> Mask:
        good, first = np.ones(len(records), np.bool_), 0
        for part in self._plan.parts:
            good &= part.valid(records, first)
            first += part.width
        return good

    def _add(self, records: packing.Records, times: Integers | None) -> None:
        if times is None:
            self._add_to(self._counts, records)
            return
        # A record that occurs 6 times is counted twice and four times, with others that are.
        for power in range(int(times.max(initial=0)).bit_length()):
            counts = [np.zeros_like(cells) for cells in self._counts]
            self._add_to(counts, records.take(np.flatnonzero(times >> power & 1)))
            for cells, found in zip(self._counts, counts, strict=True):
                cells += found << power

    def _add_to(self, counts: list[Integers], records: packing.Records) -> None:
        first = 0
        for part, cells in zip(self._plan.parts, counts, strict=True):
            part.count(records, first, cells)
            first += part.width
