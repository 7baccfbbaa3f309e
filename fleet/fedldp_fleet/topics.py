"""The MQTT road, version 1: its topics, what is retained, and the form of replies.

The broker vouches for what stands in a topic: agents may publish under the name in their
certificate and under their own client identifier alone, and read the replies to that identifier.
"""

import zlib
from enum import IntEnum
from typing import NamedTuple, final
from urllib.parse import urlsplit

from .common import DomainError, WireError
from .questions import MOST_BYTES, check_name

CALL, ANNOUNCE, ANSWER = ACTS = ("call", "announce", "answer")
HEAD_BYTES = 1 << 10  # at most, of a message beside the records of vehicles

_ROOT, _ASK = "fedldp", "ask"


class Outcome(IntEnum):
    """The first byte of a reply. The rest is a message, or says why there is none."""

    DONE, FAILED, UNWELCOME = range(3)


class TopicRequest(NamedTuple):
    """Who asks for what, as a topic says it."""

    act: str  # one of `ACTS`
    name: str  # of the enrollment: several agents may share one
    client: str  # of the connection


@final
class Topics(NamedTuple):
    """The topics of a fleet.

    >>> topics = Topics("north")
    >>> topics.ask("answer", "car-7", "8d1f")
    'fedldp/north/ask/answer/car-7/8d1f'
    >>> topics.asking(_)
    TopicRequest(act='answer', name='car-7', client='8d1f')
    """

    fleet: str

    @classmethod
    def of(cls, url: str) -> "Topics":
        """Return the topics of the fleet that an address names: mqtts://broker.example/north.

        >>> Topics.of("mqtts://broker.example:8883/north").fleet
        'north'
        """
        fleet = urlsplit(url).path.strip("/")
        if not fleet:
            raise DomainError(
                "the address of a broker must end with the name of the fleet, such as "
                f"mqtts://broker.example:8883/north; got {url!r:.80}."
            )
        return cls(check_name(fleet, "fleet"))

    @property
    def open(self) -> str:
        """Where the open rounds are retained."""
        return f"{_ROOT}/{self.fleet}/open"

    @property
    def asks(self) -> str:
        """What servers subscribe to: each request is delivered to one of them."""
        return f"$share/servers/{_ROOT}/{self.fleet}/{_ASK}/+/+/+"

    def job(self, digest: str) -> str:
        """Where the signed job with this SHA-256 is retained."""
        return f"{_ROOT}/{self.fleet}/job/{digest}"

    def question(self, digest: str) -> str:
        """Where the question with this SHA-256 is retained."""
        return f"{_ROOT}/{self.fleet}/question/{digest}"

    def reply(self, client: str) -> str:
        """Where a server replies to a client."""
        return f"{_ROOT}/{self.fleet}/reply/{client}"

    def ask(self, act: str, name: str, client: str) -> str:
        """Where an agent asks for something."""
        return f"{_ROOT}/{self.fleet}/{_ASK}/{act}/{name}/{client}"

    def asking(self, topic: str) -> TopicRequest | None:
        """Return who asks for what; None if the topic is no such topic."""
        levels = topic.split("/")
        if len(levels) != 6 or levels[:3] != [_ROOT, self.fleet, _ASK] or levels[3] not in ACTS:
            return None
        return TopicRequest(*levels[3:])


def packed(data: bytes) -> bytes:
    """Return what is retained: compressed.

    >>> unpacked(packed(b"question"))
    b'question'
    """
    return zlib.compress(data, 9)


def unpacked(data: bytes) -> bytes:
    """Return what was compressed, or raise `WireError`; a broker cannot fill the memory with it."""
    inflating = zlib.decompressobj()
    try:
        found = inflating.decompress(data, MOST_BYTES)
    except zlib.error as error:
        raise WireError(
            f"the broker has retained a message that is not compressed: {error}."
        ) from None
    if not inflating.eof or inflating.unused_data:
        raise WireError("the broker has retained a message that is too long, or cut off.")
    return found
