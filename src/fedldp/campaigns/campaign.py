"""A campaign: what the vehicles of a fleet are asked, who asks it, and where the answers go.

A campaign is signed, so a vehicle knows who asks, and it has a deadline. An answer is an identifier
of 16 random bytes, which the vehicle draws for this answer alone, and the report: the same packet
as on every other way to the server.
"""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, final

from fedldp import signing, vehicle
from fedldp._internal import documents
from fedldp.errors import DomainError, WireError
from fedldp.fleet.protocol import deflated, inflated
from fedldp.plan.plan import Plan
from fedldp.signing import PrivateKey, PublicKey, PublicKeys

FORMAT = "fedldp campaign 1"
IDENTIFIER = 16  # bytes
LAST_ROUND = 1 << 31
MOST_BITS = 1 << 16  # of a record: an answer is one message

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")  # safe as a level of a topic and as a file
_ENTRIES = ("fleet", "job", "round", "plan", "issued", "deadline")


@final
@dataclass(frozen=True)
class Campaign:
    """One round of a job, asked of all vehicles of a fleet.

    Parameters
    ----------
    fleet, job
        Their names: 1 to 64 letters, digits or any of `. _ -`.
    round
        The number of the round, from 1.
    plan
        The plan that vehicles answer, as `Plan.to_json` writes it.
    issued, deadline
        From when until when vehicles answer, with a time zone.

    Raises
    ------
    DomainError
        If a name or the round is invalid, or the deadline is not after the beginning.

    Examples
    --------
    >>> import fedldp, datetime
    >>> plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), epsilon=1.0).to_json()
    >>> now = datetime.datetime(2027, 3, 1, tzinfo=datetime.UTC)
    >>> campaign = Campaign("north", "spring", 1, plan, now, now + datetime.timedelta(days=2))
    >>> key = PrivateKey.generate()
    >>> text = campaign.signed(key)
    >>> Campaign.own(text) == Campaign.read(packed(text), key.public) == campaign
    True
    >>> campaign.topic, campaign.acknowledgement(bytes(16))[:32]
    ('fedldp/north/campaign/spring', 'fedldp/north/ack/spring/1/000000')
    """

    fleet: str
    job: str
    round: int
    plan: str
    issued: datetime
    deadline: datetime

    def __post_init__(self) -> None:
        for name in ("fleet", "job"):
            check_name(getattr(self, name), name)
        if type(self.round) is not int or not 1 <= self.round <= LAST_ROUND:
            raise DomainError(f"round must be from 1 to {LAST_ROUND}; got {self.round!r:.80}.")
        if not self.issued < self.deadline:
            raise DomainError(
                f"the deadline must come after {signing.format_time(self.issued)}, when the "
                f"campaign is issued; got {signing.format_time(self.deadline)}."
            )

    def signed(self, key: PrivateKey) -> str:
        """Return the campaign as a signed text, which the server keeps.

        Parameters
        ----------
        key
            The operator's private key.

        Returns
        -------
        str
            The text; `packed` makes the bytes of it that are published.
        """
        document = {"format": FORMAT} | {name: getattr(self, name) for name in _ENTRIES}
        for name in ("issued", "deadline"):
            document[name] = signing.format_time(document[name])
        # The plan as it is, and not as a text: every quotation mark in that would need two bytes.
        return signing.sign(key, document | {"plan": json.loads(self.plan)})

    @classmethod
    def read(cls, payload: bytes, operator: PublicKey | PublicKeys) -> "Campaign":
        """Read what was published, if this operator has signed it.

        Whether its time has come is another question: see `Answers`.

        Parameters
        ----------
        payload
            The bytes that were published.
        operator
            The public key of the operator, or both while it changes.

        Returns
        -------
        Campaign
            The campaign.

        Raises
        ------
        WireError
            If it is not a campaign, or another key has signed it.
        """
        return cls._of(signing.verify(operator, unpacked(payload), FORMAT))

    @classmethod
    def own(cls, text: str) -> "Campaign":
        """Read a campaign of the server's own folder, without checking who has signed it.

        Parameters
        ----------
        text
            What `signed` returned.

        Returns
        -------
        Campaign
            The campaign.

        Raises
        ------
        WireError
            If it is not a campaign.
        """
        return cls._of(signing.read_unverified(text, FORMAT))

    @classmethod
    def _of(cls, document: dict[str, Any]) -> "Campaign":
        with documents.reading(repr(FORMAT)):
            if document.keys() - {"format"} != set(_ENTRIES):
                raise ValueError(f"its entries must be {', '.join(_ENTRIES)}")
            return cls(
                document["fleet"],
                document["job"],
                document["round"],
                vehicle.canonical(document["plan"]),
                signing.parse_time(document["issued"]),
                signing.parse_time(document["deadline"]),
            )

    @property
    def name(self) -> str:
        """The job and the round, as files are called."""
        return f"{self.job}-{self.round}"

    @property
    def topic(self) -> str:
        """Where the campaign itself is published."""
        return f"fedldp/{self.fleet}/campaign/{self.job}"

    @property
    def answers(self) -> str:
        """Where vehicles publish their answers."""
        return f"fedldp/{self.fleet}/answers/{self.job}/{self.round}"

    @property
    def shared_answers(self) -> str:
        """The subscription of counters: each answer is delivered to one of them."""
        return f"$share/counters/{self.answers}"

    @property
    def named_answers(self) -> str:
        """The subscription of counters to answers on which the broker has put an identity."""
        return f"{self.shared_answers}/+"

    def identity(self, topic: str) -> str | None:
        """Return who has sent an answer, as the broker knows the sender.

        Parameters
        ----------
        topic
            Where the answer was published.

        Returns
        -------
        str or None
            The identity, which is empty if the topic names none; None if it is not the topic of an
            answer.

        Examples
        --------
        >>> import datetime
        >>> now = datetime.datetime(2027, 3, 1, tzinfo=datetime.UTC)
        >>> campaign = Campaign("north", "spring", 1, "{}", now, now + datetime.timedelta(days=2))
        >>> campaign.identity("fedldp/north/answers/spring/1/car-1")
        'car-1'
        """
        if topic == self.answers:
            return ""
        before, _, identity = topic.rpartition("/")
        return identity if before == self.answers else None

    def acknowledgement(self, identifier: bytes) -> str:
        """Return where a counter acknowledges the answer with an identifier.

        Parameters
        ----------
        identifier
            The first 16 bytes of the answer.

        Returns
        -------
        str
            The topic.
        """
        return acknowledgement(self.fleet, self.job, self.round, identifier)


def acknowledgement(fleet: str, job: str, round_: int, identifier: bytes) -> str:
    """Return the topic on which a counter acknowledges an answer."""
    return f"fedldp/{fleet}/ack/{job}/{round_}/{identifier.hex()}"


def all_campaigns(fleet: str) -> str:
    """Return the topic that vehicles subscribe to: every campaign of their fleet.

    Parameters
    ----------
    fleet
        The name of the fleet.

    Returns
    -------
    str
        The topic, with a wildcard for the job.

    Raises
    ------
    DomainError
        If the name is invalid.

    Examples
    --------
    >>> all_campaigns("north")
    'fedldp/north/campaign/+'
    """
    return f"fedldp/{check_name(fleet, 'fleet')}/campaign/+"


def check_name(name: Any, what: str) -> str:
    """Validate the name of a fleet or a job, which becomes a part of topics and files."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name.strip(".") == "":
        raise DomainError(
            f"{what} must be 1 to 64 letters, digits or any of . _ -; got {name!r:.80}."
        )
    return name


def packed(text: str) -> bytes:
    """Return a signed campaign as it is published: compressed, as plans are repetitive.

    Parameters
    ----------
    text
        What `Campaign.signed` returned.

    Returns
    -------
    bytes
        What to publish on `Campaign.topic`, as a message that the broker retains.

    Examples
    --------
    >>> len(packed("a" * 10_000)) < 100
    True
    """
    return deflated(text.encode())


def unpacked(payload: bytes) -> str:
    """Return the text of what was published; raise `WireError` if it cannot be one."""
    return inflated(payload).decode("ascii", errors="replace")


def is_same(payload: bytes, text: str) -> bool:
    """Return whether a signed campaign is what was published."""
    try:
        return unpacked(payload) == text
    except WireError:
        return False


def utc_now() -> datetime:
    """Return what the clock of this machine says."""
    return datetime.now(UTC)


def parted(payload: bytes) -> tuple[bytes, bytes]:
    """Return the identifier and the packet of an answer."""
    return payload[:IDENTIFIER], payload[IDENTIFIER:]


def check_plan(text: str) -> Plan:
    """Return the plan of a campaign, as a server uses it, if one message holds an answer."""
    plan = Plan.from_json(text)
    if plan.bits > MOST_BITS:
        raise DomainError(
            f"a record must have at most {MOST_BITS:,} bits to be sent over MQTT; it has "
            f"{plan.bits:,}. Ask fewer attributes, or use a gateway."
        )
    if plan.to_json() != text:
        raise WireError("the plan must be in canonical form, as Plan.to_json writes it.")
    return plan
