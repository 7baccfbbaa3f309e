"""What a vehicle answers to campaigns: its rules, its ledger, and what is not yet acknowledged.

A vehicle answers a campaign if its operator has signed it, its time has come, it is not older than
one that the vehicle has accepted, its plan keeps what it promises, and the cap covers the cost. The
data decide nothing of that. What is drawn is stored in the ledger, together with its identifier,
before it is sent; so the vehicle can send the same bytes as often as it takes.
"""

import hashlib
import json
import logging
import secrets
from collections.abc import Callable
from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, Self, final

import numpy as np

from fedldp import signing, vehicle
from fedldp._internal import owner
from fedldp._internal.text import counted, listed
from fedldp.budget.ledger import Ledger
from fedldp.budget.vehicle import ONLY_VEHICLE, PaidAnswer, Vehicle, for_vehicle, new_nonce
from fedldp.campaigns.campaign import (
    IDENTIFIER,
    MOST_BITS,
    Campaign,
    acknowledgement,
    parted,
    utc_now,
)
from fedldp.errors import DomainError
from fedldp.fleet import transparency
from fedldp.fleet.vault.policy import Policy
from fedldp.schema import frames
from fedldp.schema.schema import Schema
from fedldp.signing import PublicKey, PublicKeys
from fedldp.storage.database import Database, Kind

CLOCKS_DIFFER = timedelta(minutes=5)  # between the server and a vehicle, at most

Identifier = Callable[[], bytes]

_log = logging.getLogger("fedldp.fleet.campaigns")

_KIND = Kind(
    name="file of campaigns",
    mark=b"fCmp",
    format=1,
    tables="""
        CREATE TABLE campaigns (  -- what this vehicle has accepted
            key TEXT NOT NULL,
            job TEXT NOT NULL,
            round INTEGER NOT NULL,
            plan TEXT NOT NULL,  -- its fingerprint
            issued TEXT NOT NULL,
            deadline TEXT NOT NULL,
            payload BLOB,  -- what is sent, as the ledger has it
            acknowledged INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (key, job, round)
        );
    """,
    advice=(
        "It holds nothing that was not sent, and the ledger knows what was spent: move it away, "
        "and open campaigns are answered again, with the same bytes."
    ),
)


class Answer(NamedTuple):
    """What a vehicle sends until it is acknowledged, or until the deadline.

    Attributes
    ----------
    fleet, job, round, deadline
        Those of the campaign.
    payload
        What is sent: 16 bytes that identify the answer, and the report.

    Examples
    --------
    >>> import datetime
    >>> deadline = datetime.datetime(2027, 3, 1, tzinfo=datetime.UTC)
    >>> answer = Answer("north", "spring", 1, deadline, b"0123456789abcdef" + b"the report")
    >>> answer.topic, answer.identifier
    ('fedldp/north/answers/spring/1', b'0123456789abcdef')
    """

    fleet: str
    job: str
    round: int
    deadline: datetime
    payload: bytes

    @property
    def identifier(self) -> bytes:
        """The bytes that distinguish it from every other answer."""
        return parted(self.payload)[0]

    @property
    def topic(self) -> str:
        """Where it is published."""
        return f"fedldp/{self.fleet}/answers/{self.job}/{self.round}"

    @property
    def acknowledgement(self) -> str:
        """Where a counter acknowledges it."""
        return acknowledgement(self.fleet, self.job, self.round, self.identifier)


@final
class Accepted:
    """The file in which vehicles remember what they have accepted, and what was acknowledged.

    It is not needed for privacy, which the ledger guards alone. `Answers` reads and writes it.

    Parameters
    ----------
    path
        The file. A missing one is created.

    Examples
    --------
    >>> import datetime, fedldp, pathlib, tempfile
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), epsilon=1.0)
    >>> now = datetime.datetime(2027, 3, 1, tzinfo=datetime.UTC)
    >>> until = now + datetime.timedelta(hours=24)
    >>> campaign = Campaign("north", "spring", 1, plan.to_json(), now, until)
    >>> accepted = Accepted(pathlib.Path(tempfile.mkdtemp()) / "campaigns.db")
    >>> accepted.remember("car", campaign, plan.fingerprint)
    >>> answer = Answer("north", "spring", 1, until, b"what is sent")
    >>> accepted.store("car", answer)
    >>> accepted.latest() == now, accepted.pending("car", "north", now) == [answer]
    (True, True)
    >>> accepted.acknowledge("car", answer)
    >>> accepted.is_acknowledged("car", campaign), accepted.pending("car", "north", now)
    (True, [])
    >>> accepted.close()
    """

    def __init__(self, path: Path) -> None:
        self._file = Database(path, _KIND)

    def remember(self, key: str, campaign: Campaign, fingerprint: str) -> None:
        """Accept a campaign.

        Parameters
        ----------
        key
            The vehicle's id.
        campaign
            The campaign.
        fingerprint
            The fingerprint of its plan.

        Raises
        ------
        DomainError
            If the vehicle has accepted a newer one, or another plan for this round.
        """
        issued, deadline = map(signing.format_time, (campaign.issued, campaign.deadline))
        with self._file.transaction():
            newest = self._file.execute(
                "SELECT round, issued, plan FROM campaigns WHERE key = ? AND job = ? "
                "ORDER BY round DESC LIMIT 1",
                (key, campaign.job),
            )
            for round_, when, plan in newest:
                if (campaign.round, issued) < (round_, when):
                    raise DomainError(
                        f"it is a repetition: it asks for round {campaign.round}, issued {issued}, "
                        f"and round {round_}, issued {when}, was accepted before."
                    )
                if campaign.round == round_ and fingerprint != plan:
                    raise DomainError(
                        f"another plan was accepted for round {round_}. A new plan needs a new "
                        "round or a new job."
                    )
            self._file.execute(
                "INSERT INTO campaigns (key, job, round, plan, issued, deadline) "
                "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (key, job, round) DO UPDATE "
                "SET issued = excluded.issued, deadline = excluded.deadline",
                (key, campaign.job, campaign.round, fingerprint, issued, deadline),
            )

    def latest(self) -> datetime | None:
        """Return when the latest campaign was issued: it is later than that now.

        Returns
        -------
        datetime or None
            The time; None if nothing was accepted.
        """
        with self._file.reading():
            [(found,)] = self._file.execute("SELECT MAX(issued) FROM campaigns")
        return None if found is None else signing.parse_time(found)

    def store(self, key: str, answer: Answer) -> None:
        """Store what is to be sent.

        Parameters
        ----------
        key
            The vehicle's id.
        answer
            The answer.
        """
        self._change("payload = ?", answer.payload, key, answer.job, answer.round)

    def acknowledge(self, key: str, answer: Answer) -> None:
        """Note that a counter has acknowledged an answer.

        Parameters
        ----------
        key
            The vehicle's id.
        answer
            The answer.
        """
        self._change("acknowledged = ?", 1, key, answer.job, answer.round)

    def _change(self, what: str, *values: object) -> None:
        with self._file.transaction():
            self._file.execute(
                f"UPDATE campaigns SET {what} WHERE key = ? AND job = ? AND round = ?",  # noqa: S608
                values,
            )

    def is_acknowledged(self, key: str, campaign: Campaign) -> bool:
        """Return whether the answer to a campaign was acknowledged.

        Parameters
        ----------
        key
            The vehicle's id.
        campaign
            The campaign.

        Returns
        -------
        bool
            Whether it was.
        """
        query = "SELECT acknowledged FROM campaigns WHERE key = ? AND job = ? AND round = ?"
        with self._file.reading():
            rows = self._file.execute(query, (key, campaign.job, campaign.round))
        return rows == [(1,)]

    def pending(self, key: str, fleet: str, now: datetime) -> list[Answer]:
        """Return the answers that were not acknowledged, and whose deadline has not passed.

        Parameters
        ----------
        key
            The vehicle's id.
        fleet
            The name of its fleet.
        now
            The time.

        Returns
        -------
        list of Answer
            The answers, by deadline.
        """
        query = (
            "SELECT job, round, deadline, payload FROM campaigns "
            "WHERE key = ? AND payload IS NOT NULL AND NOT acknowledged ORDER BY deadline"
        )
        with self._file.reading():
            rows = self._file.execute(query, (key,))
        found = [
            Answer(fleet, job, round_, signing.parse_time(deadline), payload)
            for job, round_, deadline, payload in rows
        ]
        return [answer for answer in found if now < answer.deadline]

    def close(self) -> None:
        """Close the file. Closing it again does nothing."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@final
class Answers:
    """One vehicle's answers to the campaigns of its operator.

    Parameters
    ----------
    fleet, operator
        Whose campaigns are answered: the name of the fleet, and the key that must have signed them.
    schema
        The attributes that the vehicle has, with their public bounds.
    row
        A function that returns the row to answer from: a mapping of names. It must not raise.
    ledger, accepted
        The vehicle's files. Several vehicles may share them.
    policy
        What the owner allows beyond the cap.
    epsilon
        If it is given, plans with another epsilon are refused.
    key
        The vehicle's id in the ledger.
    clock
        A function that returns the time.

    Examples
    --------
    >>> import datetime, fedldp, pathlib, tempfile
    >>> from fedldp.campaigns import Accepted, Answers, Campaign, PrivateKey, packed
    >>> folder, key = pathlib.Path(tempfile.mkdtemp()), PrivateKey.generate()
    >>> schema = fedldp.Schema.of(speed=(0, 50))
    >>> plan = fedldp.Plan(schema, epsilon=1.0)
    >>> now = datetime.datetime.now(datetime.UTC)
    >>> until = now + datetime.timedelta(hours=24)
    >>> campaign = Campaign("north", "spring", 1, plan.to_json(), now, until)
    >>> published = packed(campaign.signed(key))  # what the vehicle receives
    >>> ledger = fedldp.Ledger.create(folder / "ledger.db", cap=1)
    >>> accepted = Accepted(folder / "file.db")
    >>> row = lambda: {"speed": 30}
    >>> answers = Answers("north", key.public, schema, row, ledger, accepted)
    >>> answer = answers.accept(published)
    >>> answer.topic, ledger.spent("vehicle")
    ('fedldp/north/answers/spring/1', Fraction(1, 1))
    >>> answers.pending() == [answer] == [answers.accept(published)]  # asking again costs nothing
    True
    >>> answers.acknowledge(answer)
    >>> answers.pending(), answers.accept(published)
    ([], None)
    """

    def __init__(
        self,
        fleet: str,
        operator: PublicKey | PublicKeys,
        schema: Schema,
        row: Callable[[], Any],
        ledger: Ledger,
        accepted: Accepted,
        *,
        policy: Policy | None = None,
        epsilon: Fraction | None = None,
        key: str = ONLY_VEHICLE,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self.fleet, self._operator = fleet, operator
        self._schema, self._row = schema, row
        self._ledger, self._accepted = ledger, accepted
        self._policy, self._epsilon = policy or Policy(), epsilon
        self._key, self._clock = key, clock

    def accept(self, payload: bytes, identifier: Identifier = new_nonce) -> Answer | None:
        """Return the answer to what was published.

        Asking again returns the same bytes, and costs nothing.

        Parameters
        ----------
        payload
            The bytes that the operator has published.
        identifier
            A function that draws the 16 bytes that identify an answer. It is called before the
            answer is stored, and only for a new answer.

        Returns
        -------
        Answer or None
            The answer; None if it was acknowledged before.

        Raises
        ------
        FedLDPError
            If the campaign must not be answered; the text says why, for the owner alone.
        OSError
            If the ledger cannot be read or written. Nothing is released then.
        """
        campaign = Campaign.read(payload, self._operator)
        self._check_time(campaign)
        if campaign.fleet != self.fleet:
            raise DomainError(f"it is for the fleet {campaign.fleet!r}, not for {self.fleet!r}.")
        plan = for_vehicle(campaign.plan, self._ledger.cap)
        self._check_plan(campaign, plan)
        self._accepted.remember(self._key, campaign, plan.fingerprint)
        if self._accepted.is_acknowledged(self._key, campaign):
            return None
        released = self._payload(campaign, plan, identifier)
        answer = Answer(self.fleet, campaign.job, campaign.round, campaign.deadline, released)
        self._accepted.store(self._key, answer)
        return answer

    def _payload(self, campaign: Campaign, plan: vehicle.Plan, identifier: Identifier) -> bytes:
        name = f"campaign {self.fleet} {campaign.job} {campaign.round} {plan.fingerprint}"
        answer = Vehicle(self._ledger, self._key, self._tell).answer(
            plan,
            self._row,
            job=campaign.job,
            round=str(campaign.round),
            run=campaign.job,
            entry=transparency.entry_of(campaign.job, campaign.round, campaign.plan),
            former=(name,),
            # The nonce of a plan of constants is a secret, and the broker may know the identifier.
            nonce=new_nonce if plan.constant else identifier,
        )
        if not plan.constant:
            return answer.nonce + answer.report
        # The report is repeated in other jobs. So that the identifier is not, it is derived.
        return hashlib.sha256(answer.nonce + name.encode()).digest()[:IDENTIFIER] + answer.report

    def pending(self) -> list[Answer]:
        """Return what is to be sent: not yet acknowledged, and before the deadline.

        Returns
        -------
        list of Answer
            The answers, by deadline.
        """
        return self._accepted.pending(self._key, self.fleet, self._clock())

    def acknowledge(self, answer: Answer) -> None:
        """Note that a counter has acknowledged an answer: it is not sent again.

        Parameters
        ----------
        answer
            The answer.
        """
        self._accepted.acknowledge(self._key, answer)

    def _check_time(self, campaign: Campaign) -> None:
        now, latest = self._clock(), self._accepted.latest()
        if campaign.issued > now + CLOCKS_DIFFER:
            raise DomainError(
                f"it is issued at {signing.format_time(campaign.issued)}, and this vehicle's "
                f"clock says {signing.format_time(now)}. Set the clock."
            )
        # A clock that was set back does not revive old campaigns.
        if campaign.deadline <= max(now, latest or now):
            raise DomainError(f"its deadline was {signing.format_time(campaign.deadline)}.")

    def _check_plan(self, campaign: Campaign, plan: vehicle.Plan) -> None:
        """Refuse a plan for public reasons: what the vehicle has, and what its owner chose."""
        if plan.bits > MOST_BITS:
            raise DomainError(f"a record would have {plan.bits:,} bits, more than {MOST_BITS:,}.")
        document = json.loads(campaign.plan)
        asked = Schema.from_document(document["schema"]).attributes
        others = [each.name for each in asked if each not in self._schema.attributes]
        if others:
            raise DomainError(
                "it asks for attributes that this vehicle does not have with these bounds: "
                f"{listed(others)}."
            )
        self._policy.check(campaign.job, plan.epsilon, asked)
        claimed = vehicle.exact(document["epsilon"])
        if self._epsilon is not None and claimed != self._epsilon:
            raise DomainError(
                f"its epsilon is {float(claimed):g}, and this vehicle answers only plans with an "
                f"epsilon of {float(self._epsilon):g}."
            )

    def _tell(self, answer: PaidAnswer) -> None:
        """Tell the owner, without the values: logs are kept and passed on to others."""
        if answer.failure:
            owner.log(_log, logging.ERROR, "all values count as missing: %s", answer.failure)
        elif notes := [note for note in answer.notes if not note.startswith("the key ")]:
            owner.log(
                _log,
                logging.WARNING,
                "%s of the row will be clipped or replaced: `fedldp vehicle FOLDER --check` shows "
                "which",
                counted(len(notes), "value"),
            )


def random_row(path: Path) -> dict[str, Any]:
    """Return a random row of a CSV or Parquet file; an empty one if the file cannot be read.

    Data never decide whether a vehicle answers: what is missing is replaced by public values, and
    the owner reads about it in the log.
    """
    word = secrets.randbits(64)  # as many random bits for all files, even if they cannot be read
    try:
        chunks = list(frames.read(path, tolerant=True))
        if malformed := sum(len(chunk.malformed) for chunk in chunks):
            _log.warning("%s: %s malformed", path, counted(malformed, "line"))
        tables = [frames.table(chunk.data) for chunk in chunks]
        ends = np.cumsum([len(table) for table in tables])
        place = word * int(ends[-1]) >> 64
        number = int(np.searchsorted(ends, place, side="right"))
        place -= int(ends[number]) - len(tables[number])
        return {
            name: _plain(tables[number].cells(name, place, place + 1)[0])
            for name in tables[number].names
        }
    except Exception as error:  # whatever it is: see above
        text = "%s cannot be read, so all values count as missing: %s"
        owner.log(_log, logging.ERROR, text, path, error)
        return {}


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
