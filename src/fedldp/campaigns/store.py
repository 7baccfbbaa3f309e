"""The file of a counter: what it has received in one round, and what it has refused.

Each counter has a file of its own. A vehicle may have sent its answer to several counters: when the
round is closed, the files are merged, and an identifier counts once.

Two different packets with one identifier cannot come from a vehicle that keeps its bytes; only the
vehicle, the broker and the counters know an identifier. A counter keeps the first one and does not
acknowledge the other. If two counters have kept different ones, neither counts.
"""

import hashlib
import heapq
import secrets
from collections import Counter as Numbers
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, Self, final

from fedldp.campaigns.campaign import IDENTIFIER, Campaign, check_plan, parted
from fedldp.counting.counts import Counted, Manifest
from fedldp.errors import DomainError, WireError
from fedldp.plan.plan import Plan
from fedldp.plan.report import HEADER, VERSION
from fedldp.storage.database import Database, Kind

CONFLICT = "conflict"  # another packet with the same identifier was received before
VEHICLES = "vehicles"  # the packet does not hold exactly one vehicle

_AT_ONCE = 1 << 14  # answers that are read from a file
_LONGEST = 128  # characters of an identity

_IDENTITIES = (
    "CREATE TABLE identities (identity TEXT PRIMARY KEY, answers INTEGER NOT NULL) WITHOUT ROWID"
)
_KIND = Kind(
    name="file of a counter",
    mark=b"fCnt",
    format=2,
    tables=f"""
        CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
        CREATE TABLE answers (identifier BLOB PRIMARY KEY, packet BLOB NOT NULL) WITHOUT ROWID;
        CREATE TABLE refused (reason TEXT PRIMARY KEY, messages INTEGER NOT NULL) WITHOUT ROWID;
        {_IDENTITIES};
    """,
    migrations={1: (_IDENTITIES,)},
    advice=(
        "Vehicles whose answers it held may have been told that they are counted. Restore the "
        "disk if you can; without this file, close the round with those of the other counters."
    ),
)


class Finished(DomainError):
    """The round is closed: nothing more may be stored or acknowledged.

    Examples
    --------
    >>> issubclass(Finished, DomainError)
    True
    """


class Verdict(NamedTuple):
    """What a counter does about a message.

    Attributes
    ----------
    acknowledged
        Whether it is acknowledged to the vehicle. To the broker, every message is.
    reason
        Why not.

    Examples
    --------
    >>> Verdict(False, "checksum")
    Verdict(acknowledged=False, reason='checksum')
    """

    acknowledged: bool
    reason: str = ""


@final
class Store:
    """The file of one counter for one round.

    Parameters
    ----------
    path
        The file. A missing one is created if a campaign is given.
    text
        The campaign, as `Campaign.signed` returned it. By default it is the one in the file.

    Attributes
    ----------
    campaign, plan
        What was asked.
    size
        The bytes of an answer.

    Raises
    ------
    DomainError
        If there is no file and no campaign, or the file is for another round.
    WireError
        If it is not the file of a counter.

    Examples
    --------
    >>> import datetime, fedldp, pathlib, tempfile
    >>> from fedldp.campaigns import Campaign, PrivateKey, Store
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), epsilon=1.0)
    >>> now = datetime.datetime(2027, 3, 1, tzinfo=datetime.UTC)
    >>> until = now + datetime.timedelta(hours=24)
    >>> campaign = Campaign("north", "spring", 1, plan.to_json(), now, until)
    >>> text = campaign.signed(PrivateKey.generate())
    >>> report = plan.report([{"speed": 30}], fedldp.source(1)).to_bytes()
    >>> sent = b"0123456789abcdef" + report
    >>> store = Store(pathlib.Path(tempfile.mkdtemp()) / "counter.db", text)
    >>> [verdict.reason for verdict in store.add([sent, sent, b"damaged"])]
    ['', '', 'length']
    >>> store.received, store.refused, store.is_one(sent)
    (1, {'length': 1}, True)
    >>> [identifier for identifier, packet in store.answers()]
    [b'0123456789abcdef']
    >>> store.finish()
    >>> store.close()
    """

    def __init__(self, path: Path, text: str | None = None) -> None:
        if text is None and not path.exists():
            raise DomainError(f"{path} is not there. Expected the file of a counter.")
        self._file = Database(path, _KIND, inspect=False)
        self.path = self._file.path
        try:
            self.text = self._begin(text)
            self.campaign = Campaign.own(self.text)
            self.plan: Plan = check_plan(self.campaign.plan)
        except BaseException:
            self.close()
            raise
        self.size = IDENTIFIER + HEADER + -(-self.plan.bits // 8)  # bytes of an answer
        one = (1).to_bytes(4, "big")
        self._head = bytes([VERSION]) + bytes.fromhex(self.plan.fingerprint)[:7] + one

    def _begin(self, text: str | None) -> str:
        with self._file.transaction():
            found = self._about("campaign")
            if found is None:
                if text is None:
                    raise WireError(f"{self.path} belongs to no campaign.")
                self._file.execute("INSERT INTO about VALUES ('campaign', ?)", (text,))
                name = secrets.token_hex(8)
                self._file.execute("INSERT INTO about VALUES ('counter', ?)", (name,))
                return text
        if text is not None and not _same_round(Campaign.own(found), Campaign.own(text)):
            raise DomainError(
                f"{self.path} holds answers to another campaign. Give each round its own file."
            )
        return text or found

    def _about(self, name: str) -> str | None:
        for (value,) in self._file.execute("SELECT value FROM about WHERE name = ?", (name,)):
            return str(value)
        return None

    @property
    def counter(self) -> str:
        """The name of the counter for the broker: no other counter has it."""
        with self._file.reading():
            return f"counter-{self._about('counter')}"

    @property
    def finished(self) -> bool:
        """Whether nothing more may be stored."""
        with self._file.reading():
            return self._about("finished") is not None

    def finish(self) -> None:
        """Store nothing more, from now on: a counter that still runs no longer acknowledges."""
        with self._file.transaction():
            self._file.execute("INSERT OR IGNORE INTO about VALUES ('finished', 'yes')")

    def add(
        self, payloads: Sequence[bytes], identities: Sequence[str] | None = None
    ) -> list[Verdict]:
        """Store answers, and return what to do about each of them. Then they are on disk.

        Parameters
        ----------
        payloads
            What vehicles have sent.
        identities
            As whom the broker knows the sender of each of them; empty where it does not say so.

        Returns
        -------
        list of Verdict
            What to do about each of them. An answer that is stored already is acknowledged again.

        Raises
        ------
        Finished
            If the round is closed. Nothing was stored, and nothing may be acknowledged.
        """
        reasons = self._reasons(payloads)
        with self._file.transaction():
            if self._about("finished") is not None:
                raise Finished(f"the round is closed: {self.path} takes no more answers.")
            known: dict[bytes, bytes] = {}
            fresh: dict[bytes, bytes] = {}
            senders: Numbers[str] = Numbers()
            given = [""] * len(payloads) if identities is None else identities
            for payload, reason, sender in zip(payloads, reasons, given, strict=True):
                identifier, packet = parted(payload)
                if reason or identifier in known:
                    continue
                query = "SELECT packet FROM answers WHERE identifier = ?"
                for (stored,) in self._file.execute(query, (identifier,)):
                    known[identifier] = stored
                if identifier not in known:
                    known[identifier] = fresh[identifier] = packet
                    senders[sender[:_LONGEST]] += 1
            self._file.execute_many("INSERT INTO answers VALUES (?, ?)", fresh.items())
            self._file.execute_many(
                "INSERT INTO identities VALUES (?, ?) ON CONFLICT (identity) "
                "DO UPDATE SET answers = answers + excluded.answers",
                senders.items(),
            )
            for place, payload in enumerate(payloads):
                identifier, packet = parted(payload)
                if not reasons[place] and known[identifier] != packet:
                    reasons[place] = CONFLICT
            self._file.execute_many(
                "INSERT INTO refused VALUES (?, ?) ON CONFLICT (reason) "
                "DO UPDATE SET messages = messages + excluded.messages",
                Numbers(filter(None, reasons)).items(),
            )
        return [Verdict(not reason, reason) for reason in reasons]

    def _reasons(self, payloads: Sequence[bytes]) -> list[str]:
        """Return for each answer why it cannot be counted, or an empty text."""
        packets = [parted(payload)[1] for payload in payloads]
        found = self.plan.count(packets, most_listed=len(packets))
        reasons = {each.number: each.reason for each in found.listed}
        return [
            reasons.get(place, "" if self.is_one(payload) else VEHICLES)
            for place, payload in enumerate(payloads)
        ]

    def is_one(self, payload: bytes) -> bool:
        """Return whether a valid packet holds exactly one vehicle.

        Parameters
        ----------
        payload
            What a vehicle has sent.

        Returns
        -------
        bool
            Whether it does.
        """
        return len(payload) == self.size and parted(payload)[1].startswith(self._head)

    @property
    def received(self) -> int:
        """How many answers are stored."""
        with self._file.reading():
            [(number,)] = self._file.execute("SELECT COUNT(*) FROM answers")
        return int(number)

    @property
    def refused(self) -> dict[str, int]:
        """How many messages were refused for which reason; a message may have come repeatedly."""
        return self._numbers("SELECT reason, messages FROM refused")

    @property
    def identities(self) -> dict[str, int]:
        """How many of the answers came from which identity; those from "" do not say so."""
        return self._numbers("SELECT identity, answers FROM identities")

    def _numbers(self, query: str) -> dict[str, int]:
        with self._file.reading():
            found = dict(self._file.execute(query))
        if not all(type(key) is str and type(n) is int and n > 0 for key, n in found.items()):
            raise self._file.damaged("what it has counted are no numbers of messages")
        return found

    def answers(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield identifiers and packets, by ascending identifier.

        Yields
        ------
        tuple of bytes
            An identifier and a packet.
        """
        first, last = True, b""
        while True:
            # Anything but bytes comes before them.
            rest = "" if first else "WHERE identifier > ?"
            query = f"SELECT identifier, packet FROM answers {rest} ORDER BY identifier LIMIT ?"  # noqa: S608
            with self._file.reading():
                rows = self._file.execute(query, (*[last] * (not first), _AT_ONCE))
            first = False
            if not rows:
                return
            for identifier, packet in rows:
                if not type(identifier) is type(packet) is bytes or len(identifier) != IDENTIFIER:
                    raise self._file.damaged("it holds an answer that is not one")
                if identifier <= last:
                    raise self._file.damaged("its answers are not in order")
                yield identifier, packet
                last = identifier

    def close(self) -> None:
        """Close the file. Closing it again does nothing."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Merged(NamedTuple):
    """All answers of a round: what `merge` returns.

    Attributes
    ----------
    counted
        The tally of all answers, and a manifest of this round.
    repeated
        The number of answers that more than one counter had, beyond the first of each.
    conflicts
        The number of identifiers that different counters have with different packets.
    refused
        The number of messages that counters refused, by reason.
    identities
        The number of answers by the identity of the sender, as the broker knows it; those from ""
        do not say so. One that several counters had counts for each.

    Examples
    --------
    >>> Merged._fields
    ('counted', 'repeated', 'conflicts', 'refused', 'identities')
    """

    counted: Counted
    repeated: int
    conflicts: int
    refused: dict[str, int]
    identities: dict[str, int]


def merge(stores: Sequence[Store]) -> Merged:
    """Count the answers of a round, each identifier once.

    The manifest of the result has one shard, the round, so that it cannot be added to another
    result of the same round: an answer that two counters have would count twice.

    Parameters
    ----------
    stores
        The files of all counters of the round.

    Returns
    -------
    Merged
        The tally, and what was repeated, contradictory or refused.

    Raises
    ------
    DomainError
        If there is no file, a file is not finished, or the files belong to different campaigns.
    WireError
        If a file holds what no counter stores.

    Examples
    --------
    >>> import datetime, fedldp, pathlib, tempfile
    >>> from fedldp.campaigns import Campaign, PrivateKey, Store, merge
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), epsilon=1.0, mechanism="duchi")
    >>> now = datetime.datetime(2027, 3, 1, tzinfo=datetime.UTC)
    >>> until = now + datetime.timedelta(hours=24)
    >>> campaign = Campaign("north", "spring", 1, plan.to_json(), now, until)
    >>> text, folder = campaign.signed(PrivateKey.generate()), pathlib.Path(tempfile.mkdtemp())
    >>> report = plan.report([{"speed": 30}], fedldp.source(1)).to_bytes()
    >>> stores = [Store(folder / name, text) for name in ("one.db", "two.db")]
    >>> for store in stores:  # a vehicle sent its answer to both
    ...     _ = store.add([b"0123456789abcdef" + report])
    ...     store.finish()
    >>> merged = merge(stores)
    >>> merged.counted, merged.repeated, merged.conflicts
    (<Counted: 1 vehicle in 1 packet>, 1, 0)
    >>> for store in stores:
    ...     store.close()
    """
    if not stores:
        raise DomainError("expected the file of at least one counter; got none.")
    first = stores[0].campaign
    for store in stores:
        if not store.finished:
            raise DomainError(
                f"{store.path} is not finished: its counter may still acknowledge answers."
            )
        if not _same_round(store.campaign, first):
            raise DomainError(
                f"{store.path} is for another campaign than {stores[0].path}: "
                f"{store.campaign.name} and {first.name}."
            )
    numbers: Numbers[str] = Numbers()
    digest = hashlib.sha256()

    def packets() -> Iterator[bytes]:
        for identifier, packet in _merged(stores, numbers):
            if not stores[0].is_one(identifier + packet):
                raise WireError(
                    "the file of a counter holds an answer that is not that of one vehicle: no "
                    "counter stores such an answer. Close the round without this file."
                )
            digest.update(identifier + packet)
            yield packet

    found = stores[0].plan.count(packets())
    name = f"campaign {first.fleet}/{first.job}/{first.round}"
    refused = sum((Numbers(store.refused) for store in stores), Numbers[str]())
    return Merged(
        replace(found, manifest=Manifest({name: digest.hexdigest()})),
        numbers["repeated"],
        numbers["conflicts"],
        dict(sorted(refused.items())),
        dict(sum((Numbers(store.identities) for store in stores), Numbers[str]())),
    )


def _merged(stores: Iterable[Store], numbers: "Numbers[str]") -> Iterator[tuple[bytes, bytes]]:
    """Yield each identifier once, unless it has different packets."""
    every = heapq.merge(*(store.answers() for store in stores))
    for identifier, group in groupby(every, key=itemgetter(0)):
        found = [packet for _, packet in group]
        if len(set(found)) > 1:
            numbers["conflicts"] += 1
            continue
        numbers["repeated"] += len(found) - 1
        yield identifier, found[0]


def _same_round(one: Campaign, other: Campaign) -> bool:
    """Return whether two campaigns ask the same in the same round: deadlines may differ."""
    return replace(one, issued=other.issued, deadline=other.deadline) == other
