"""The MQTT road of an agent: it reads what is retained, asks, and waits for replies.

In a lot, the open rounds are enough: an agent that has drawn the round sends one message, its
answer. Otherwise it asks for a place first, by request and response of MQTT 5.
"""

import random
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import NamedTuple, TypeVar, final

from ..common import WireError, canonical, documents, files
from ..messages import Acknowledgement, Announcement, Answer, Call, Offers, Place
from ..mqtt import Broker, Connect, Message, MQTTConnection
from ..questions import check_name
from ..topics import ANNOUNCE, ANSWER, CALL, Outcome, Topics, unpacked
from .roads import RoadError, UnwelcomeError

FILE, MEMBERSHIP = "broker.json", "fedldp broker membership 1"
KEYS = "authority", "certificate", "key"
PATIENCE_SECONDS = 10.0  # to wait for a reply
WAKE_SECONDS = 10.0  # over which agents spread what a new job makes them ask
LISTEN_SECONDS = 1.0  # between two looks at signals

_CORRELATION_BYTES = 8
_LONGEST_REASON = 200
_SYSTEM = random.SystemRandom()

T = TypeVar("T")


@final
class BrokerMembership(NamedTuple):
    """As whom a broker knows an agent: what its file `broker.json` holds.

    >>> membership = BrokerMembership("mqtts://localhost/north", "car-7")
    >>> BrokerMembership.from_json(membership.to_json()) == membership
    True
    """

    url: str  # of the broker, with the name of the fleet
    name: str  # in the agent's certificate, under which it is enrolled
    shared: bool = False  # by several agents: each connection has a random name then
    authority: str = ""  # files, beside this one
    certificate: str = ""
    key: str = ""

    def to_json(self) -> str:
        """Return the text of the file."""
        return canonical(self._asdict() | {"format": MEMBERSHIP})

    @classmethod
    def from_json(cls, text: str) -> "BrokerMembership":
        """Read the text of the file, or raise `WireError`."""
        with documents.reading(repr(MEMBERSHIP)):
            document = documents.parse(text, [MEMBERSHIP], cls._fields)
            del document["format"]
            found = cls(**document)
            check_name(found.name, "agent")
            Topics.of(found.url)
        return found

    def road(self, network: Path) -> "MQTTRoad":
        """Return the road, with the keys in a folder."""
        keys = {each: network / name for each in KEYS if (name := getattr(self, each))}
        broker = Broker.of(self.url, **keys)
        client = secrets.token_hex(8) if self.shared else self.name
        return MQTTRoad(Topics.of(self.url), self.name, client, broker.connect)


@final
class MQTTRoad:
    """The road of an agent that a broker knows.

    Parameters
    ----------
    topics
        The topics of its fleet.
    name
        As whom the broker knows the agent, mostly the name in its certificate.
    client
        The client identifier of its connections, which no other client has.
    connect
        Opens a connection with the broker.
    patience
        Seconds to wait for a reply.
    """

    def __init__(
        self,
        topics: Topics,
        name: str,
        client: str,
        connect: Connect,
        patience: float = PATIENCE_SECONDS,
        spread: Callable[[float, float], float] = _SYSTEM.uniform,
    ) -> None:
        self._topics, self._name, self._client = topics, name, client
        self._connect, self._patience, self._spread = connect, patience, spread
        self._connection: MQTTConnection | None = None
        self._told: tuple[Message, float] | None = None  # the open rounds, and when they arrived
        self._replies: list[Message] = []
        self._documents: dict[str, bytes] = {}  # that are being waited for
        self._given: dict[str, str] = {}  # places that need no announcement: statements, by job
        self._known: dict[str, str] = {}  # the open rounds that the agent has seen, the same way

    def call(self, call: Call) -> Offers:
        """Return the open rounds; ask for places in them where they are needed."""
        with self._reaching():
            self._refresh()
            told = self._open_rounds()
            self._has_news(told)
            self._given = {each.job: each.statement for each in told.offers if each.place}
            if any(each.place is None and call.able.get(each.job) for each in told.offers):
                self._given = {}
                return Offers.from_bytes(self._asked(CALL, call.to_bytes()))
            seconds = told.retry * self._spread(0.5, 1.0)
            return Offers(told.incarnation, round(seconds, 3), told.offers)

    def question(self, digest: bytes) -> bytes:
        """Return the question with this SHA-256, which the caller checks."""
        return self._retained(self._topics.question(digest.hex()))

    def signed_job(self, digest: str) -> str:
        """Return the signed job with this SHA-256, which the caller checks."""
        check_name(digest, "signed job")
        return self._retained(self._topics.job(digest)).decode("utf-8", "replace")

    def announce(self, said: Announcement) -> bool:
        """Say that an answer is drawn now; return whether the server waits for it."""
        with self._reaching() as connection:
            if said.job not in self._given:
                return self._asked(ANNOUNCE, said.to_bytes()) == b"\1"
            connection.ping()
            self._take(connection.receive(0))
            now = {each.job: each.statement for each in self._open_rounds().offers if each.place}
            return now.get(said.job) == self._given[said.job]

    def deliver(self, answer: bytes) -> Acknowledgement:
        """Deliver an answer; return what the server says about it."""
        identifier = Answer.from_bytes(answer).identifier
        with self._reaching() as connection:
            self._replies.clear()
            topic = self._topics.ask(ANSWER, self._name, self._client)
            connection.publish(Message(topic, answer), certain=True)
            return self._awaited(lambda: self._acknowledged(identifier), "acknowledge an answer")

    def wait(self, seconds: float, stop: threading.Event) -> bool:
        """Wait, or until a job is opened, or a round of a lot: then a little, as all others do."""
        until, heard = monotonic() + seconds, False
        while not stop.is_set() and (left := until - monotonic()) > 0:
            try:
                with self._reaching() as connection:
                    messages = connection.receive(min(left, LISTEN_SECONDS))
                    self._take(messages)
                    if messages and self._told and self._has_news(self._open_rounds()):
                        until = min(until, monotonic() + self._spread(0.0, WAKE_SECONDS))
                        heard = True
            except RoadError:  # the broker may have lost all its agents at once
                stop.wait(min(left, self._spread(0.0, WAKE_SECONDS)))
        return heard and not stop.is_set()

    def _has_news(self, told: Offers) -> bool:
        """Return whether a job is open that was not, or another round for which nobody asks."""
        known, self._known = self._known, {each.job: each.statement for each in told.offers}
        return any(
            each.job not in known or (each.place and known[each.job] != each.statement)
            for each in told.offers
        )

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    # The connection

    @contextmanager
    def _reaching(self) -> Iterator[MQTTConnection]:
        """Give the connection; if anything fails, close it."""
        try:
            yield self._connected()
        except RoadError:
            raise
        except (OSError, WireError) as error:
            self.close()
            raise RoadError(f"cannot be reached: {error or type(error).__name__}") from error

    def _connected(self) -> MQTTConnection:
        if self._connection is None:
            self._told = None
            self._connection = self._connect(self._client)
            self._connection.subscribe(self._topics.open, self._topics.reply(self._client))
        return self._connection

    def _refresh(self) -> None:
        """Read what has arrived meanwhile, on a new connection if the old one is lost."""
        try:
            connection = self._connected()
            connection.ping()
        except OSError:
            self.close()
            connection = self._connected()
        self._take(connection.receive(0))

    def _take(self, messages: list[Message]) -> None:
        for message in messages:
            if message.topic == self._topics.open:
                self._told = message, monotonic()
            elif message.topic == self._topics.reply(self._client):
                self._replies.append(message)
            elif message.topic in self._documents:
                self._documents[message.topic] = message.payload

    def _awaited(self, found: Callable[[], T | None], what: str) -> T:
        """Wait until something is found, or raise `RoadError`."""
        connection, until = self._connected(), monotonic() + self._patience
        while (result := found()) is None:
            left = until - monotonic()
            if left < 0:
                self.close()
                raise RoadError(f"does not {what} within {self._patience:g} seconds.")
            self._take(connection.receive(left))
        return result

    # What is retained

    def _open_rounds(self) -> Offers:
        """Return the open rounds, with the seconds that are left of everybody's places."""
        message, arrived = self._awaited(lambda: self._told, "say what is open")
        told = Offers.from_bytes(message.payload)
        if message.seconds is None:
            return told
        left = max(0.0, message.seconds - (monotonic() - arrived))
        offers = (
            each._replace(place=Place(each.place.vehicles, min(each.place.lease, left)))
            if each.place
            else each
            for each in told.offers
        )
        return Offers(told.incarnation, told.retry, tuple(offers))

    def _retained(self, topic: str) -> bytes:
        with self._reaching() as connection:
            self._documents[topic] = b""
            try:
                connection.subscribe(topic)
                found = self._awaited(lambda: self._documents[topic] or None, "retain a question")
                connection.unsubscribe(topic)
            finally:
                del self._documents[topic]
            return unpacked(found)

    # Requests

    def _asked(self, act: str, body: bytes) -> bytes:
        connection, correlation = self._connected(), secrets.token_bytes(_CORRELATION_BYTES)
        self._replies.clear()
        topic, reply_to = (
            self._topics.ask(act, self._name, self._client),
            self._topics.reply(self._client),
        )
        asked = Message(topic, body, reply_to=reply_to, correlation=correlation)
        connection.publish(asked, certain=True)
        return self._awaited(lambda: self._reply_to(correlation), f"reply to a request: {act}")

    def _reply_to(self, correlation: bytes) -> bytes | None:
        for message in self._replies:
            if message.correlation == correlation:
                return _done(message)
        return None

    def _acknowledged(self, identifier: bytes) -> Acknowledgement | None:
        """Return what was said of an answer. Replies without correlation are to answers."""
        for message in self._replies:
            if not message.correlation:
                said = Acknowledgement.from_bytes(_done(message))
                if said.identifier == identifier:
                    return said
        return None


def _done(message: Message) -> bytes:
    outcome, body = message.payload[:1], message.payload[1:]
    if outcome == bytes([Outcome.DONE]):
        return body
    why = body[:_LONGEST_REASON].decode("utf-8", "replace")
    raise (UnwelcomeError if outcome == bytes([Outcome.UNWELCOME]) else RoadError)(why)


def join(network: Path, membership: BrokerMembership) -> BrokerMembership:
    """Copy the keys of an agent into its folder for the network, and try them."""
    network.mkdir(mode=0o700, parents=True, exist_ok=True)
    names = []
    for entry in KEYS:
        path = getattr(membership, entry)
        names.append(f"{entry}.pem" if path else "")
        if path:
            (network / names[-1]).unlink(missing_ok=True)
            files.write_secret(network / names[-1], Path(path).read_bytes())
    membership = BrokerMembership(membership.url, membership.name, membership.shared, *names)
    road = membership.road(network)
    try:
        road.call(Call({}))
    finally:
        road.close()
    files.write(network / FILE, membership.to_json())
    return membership
