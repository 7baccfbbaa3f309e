"""The MQTT road of a server: what a broker delivers goes to the desk, and what is open is retained.

The road has a thread of its own. It stores and acknowledges what has arrived meanwhile together. A
broker may forget everything, so on every connection it subscribes and publishes anew.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple, final

from fedldp import signing
from fedldp.errors import DomainError, WireError
from fedldp_fleet.messages import Announcement, Answer, Call, Offers
from fedldp_fleet.mqtt import LARGEST_PACKET, Connect, Message, MQTTConnection
from fedldp_fleet.questions import STATEMENT
from fedldp_fleet.server.desk import Desk
from fedldp_fleet.server.documents import Documents
from fedldp_fleet.server.guard import Refused
from fedldp_fleet.topics import (
    ANNOUNCE,
    ANSWER,
    CALL,
    HEAD_BYTES,
    Outcome,
    TopicRequest,
    Topics,
    packed,
)

TICK_SECONDS = 0.5  # between two looks at what is open
DAY_SECONDS = 86_400
TROUBLE = "trouble of the broker"  # in the store's settings: why it cannot be used; empty if it can
RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.5, 30.0

_UNWELCOME = b"the server does not know this agent, or has revoked it. Ask its operator."
_UNABLE = b"the server cannot store anything now"
_LONGEST_REASON = 200

_LOG = logging.getLogger(__name__)


class _Retained(NamedTuple):
    """What the broker retains."""

    contents: object  # what decides whether it is retained again
    until: float  # when it should be retained again


@final
class MQTTServer:
    """Serves agents through a broker.

    Parameters
    ----------
    desk, documents
        Where requests go, and what agents fetch.
    topics
        The topics of the fleet.
    connect
        Opens a connection with the broker.
    client
        The client identifier, which no other client has.
    vehicles_per_certificate
        For how many vehicles a name counts that the broker lets in and nobody has enrolled.
    most_bytes
        The largest payload that the broker takes, where it says more.
    """

    def __init__(
        self,
        desk: Desk,
        documents: Documents,
        topics: Topics,
        connect: Connect,
        client: str,
        vehicles_per_certificate: int = 0,
        most_bytes: int = LARGEST_PACKET,
    ) -> None:
        self._desk, self._documents, self._topics = desk, documents, topics
        self._connect, self._client, self._most_bytes = connect, client, most_bytes
        self._stopped, self.ready = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="mqtt")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._trouble: str | None = None
        admits = vehicles_per_certificate
        self._acts: dict[str, Callable[[TopicRequest, bytes, int], Awaitable[Any]]] = {
            ANSWER: lambda asking, body, _: desk.deliver(
                asking.name, Answer.from_bytes(body), holder=_holder(asking), admits=admits
            ),
            CALL: lambda asking, body, most_bits: desk.call(
                asking.name,
                Call.from_bytes(body),
                holder=_holder(asking),
                most_bits=most_bits,
                admits=admits,
            ),
            ANNOUNCE: lambda asking, body, _: desk.announce(
                asking.name, Announcement.from_bytes(body), holder=_holder(asking), admits=admits
            ),
        }

    def start(self) -> None:
        """Begin to serve, for the event loop that runs."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        """Serve what has arrived, and end."""
        self._stopped.set()
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)

    def _run(self) -> None:
        pause = RETRY_SECONDS
        while not self._stopped.is_set():
            try:
                connection = self._connect(self._client)
                try:
                    connection.subscribe(self._topics.asks, certain=True)
                    self._tell("")
                    pause = RETRY_SECONDS
                    self._serve(connection)
                finally:
                    connection.close()
            except OSError as error:
                self._tell(f"cannot use the broker: {error}; trying again")
                self._stopped.wait(pause)
                pause = min(2 * pause, LONGEST_RETRY_SECONDS)
            except Exception:
                _LOG.exception("the road over MQTT failed")
                self._stopped.wait(pause)

    def _tell(self, trouble: str) -> None:
        if trouble != self._trouble and not self._stopped.is_set():
            (_LOG.warning if trouble else _LOG.info)(trouble or "the broker can be used again")
            with suppress(OSError):  # the disk may be full: it is in the log
                self._do(self._desk.run(lambda store: store.set_value(TROUBLE, trouble)))
        self._trouble = trouble

    def _serve(self, connection: MQTTConnection) -> None:
        kept: dict[str, _Retained] = {}
        due = 0.0
        while not self._stopped.is_set():
            if monotonic() >= due:
                self._publish(connection, kept)
                self.ready.set()
                due = monotonic() + TICK_SECONDS
            messages = connection.receive(TICK_SECONDS)
            if messages:
                for reply in self._do(self._replies(messages, self._most_bits(connection))):
                    connection.publish(reply)
                for message in messages:
                    connection.acknowledge(message)

    def _most_payload(self, connection: MQTTConnection) -> int:
        """Return how many bytes a message may have."""
        return max(0, min(self._most_bytes, connection.most_bytes - HEAD_BYTES))

    def _most_bits(self, connection: MQTTConnection) -> int:
        """Return how many bits of vehicles fit into an answer that the broker takes."""
        return 8 * max(0, self._most_payload(connection) - HEAD_BYTES)

    def _do(self, work: Any) -> Any:
        """Run something in the event loop, and wait for it."""
        if self._loop is None:
            raise RuntimeError("the road has not been started.")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    # Requests

    async def _replies(self, messages: Sequence[Message], most_bits: int) -> list[Message]:
        begun = []
        for message in messages:
            asking = self._topics.asking(message.topic)
            if asking is None:
                continue
            reply = Message(self._topics.reply(asking.client), b"", correlation=message.correlation)
            if message.reply_to not in ("", reply.topic):
                continue  # nobody writes to others
            begun.append((reply, self._begun(asking, message.payload, most_bits)))
        return [reply._replace(payload=await _reply(result)) for reply, result in begun]

    def _begun(
        self, asking: TopicRequest, body: bytes, most_bits: int
    ) -> Awaitable[Any] | Exception:
        self._desk.hear(asking.name)
        try:
            return self._acts[asking.act](asking, body, most_bits)
        except (WireError, DomainError) as error:
            return error

    # What is retained

    def _publish(self, connection: MQTTConnection, kept: dict[str, _Retained]) -> None:
        """Let the broker retain what is open now, and nothing else."""
        told, fetched = self._do(self._open(self._most_bits(connection)))
        for topic, document in fetched.items():
            self._retain(connection, kept, topic, topic, document, 2 * DAY_SECONDS)
        leases = [each.place.lease for each in told.offers if each.place]
        contents = [each._replace(place=each.place and each.place.vehicles) for each in told.offers]
        seconds = max(1, int(min(leases, default=2 * DAY_SECONDS)))
        self._retain(connection, kept, self._topics.open, contents, told.to_bytes(), seconds)
        for topic in kept.keys() - fetched.keys() - {self._topics.open}:
            connection.retain(Message(topic, b""))
            del kept[topic]

    def _retain(
        self,
        connection: MQTTConnection,
        kept: dict[str, _Retained],
        topic: str,
        contents: object,
        payload: bytes,
        seconds: int,
    ) -> None:
        before, now = kept.get(topic), monotonic()
        if before is not None and before.contents == contents and now < before.until:
            return
        kept[topic] = _Retained(contents, now + seconds / 2)
        if len(payload) > self._most_payload(connection):
            _LOG.error(
                "%s has %d bytes, and the broker takes %d: agents cannot get it over MQTT. Let the "
                "broker take more, or ask for less.",
                topic,
                len(payload),
                self._most_payload(connection),
            )
            return
        connection.retain(Message(topic, payload, seconds=seconds))

    async def _open(self, most_bits: int) -> tuple[Offers, dict[str, bytes]]:
        """Return the open rounds, and what agents fetch to answer them."""
        told = await self._desk.open_rounds(most_bits)
        fetched = {}
        for offer in told.offers:
            asked = str(signing.read_unverified(offer.statement, STATEMENT)["question"])
            for topic, document in (
                (self._topics.job(offer.signed), await self._documents.job(offer.signed)),
                (self._topics.question(asked), await self._documents.question(asked)),
            ):
                if document is not None:
                    fetched[topic] = packed(document)
        return told, fetched


def _holder(asking: TopicRequest) -> str:
    """Return the name under which a client has places: agents may share an enrollment."""
    return asking.name if asking.client == asking.name else f"{asking.name}/{asking.client}"


async def _reply(result: Awaitable[Any] | Exception) -> bytes:
    try:
        if isinstance(result, Exception):
            raise result
        done = await result
    except Refused:
        return bytes([Outcome.UNWELCOME]) + _UNWELCOME
    except (WireError, DomainError) as error:
        return bytes([Outcome.FAILED]) + str(error)[:_LONGEST_REASON].encode()
    except Exception as error:  # one request must not stop the others
        if not isinstance(error, OSError):  # which the desk has logged
            _LOG.exception("a request failed")
        return bytes([Outcome.FAILED]) + _UNABLE
    return bytes([Outcome.DONE]) + (bytes([done]) if isinstance(done, bool) else done.to_bytes())
