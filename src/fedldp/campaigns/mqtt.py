"""Connections with an MQTT 5 broker, by paho-mqtt.

paho-mqtt is used without its threads: a connection works while `receive` waits.
"""

import contextlib
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Self, final
from urllib.parse import urlsplit

from fedldp.campaigns.transport import Message
from fedldp.errors import DomainError, MissingExtra

PORTS = {"mqtt": 1883, "mqtts": 8883}
PATIENCE = 15.0  # seconds to wait for an answer of the broker
_KEEP_ALIVE = 60  # seconds of silence after which each side asks whether the other is there
_LARGEST = 1 << 21  # bytes of a message that the broker may deliver
_MOST_WAITING = 1 << 24  # bytes of messages that nobody has received yet
_IN_FLIGHT = 1000  # messages that the broker delivers before the first is acknowledged
_CERTAIN, _ONCE = 1, 0  # MQTT's levels of service


class _Resuming(ssl.SSLContext):
    """Remembers the last session, so that the next handshake needs no certificates."""

    session: ssl.SSLSession | None = None

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        return super().wrap_socket(*arguments, **(options | {"session": self.session}))


@final
@dataclass(frozen=True)
class Broker:
    """The address of a broker, and the keys with which to connect.

    >>> Broker.of("mqtt://localhost")
    Broker(host='localhost', port=1883, context=None)
    """

    host: str
    port: int
    context: ssl.SSLContext | None = None  # None: without TLS

    @classmethod
    def of(
        cls,
        url: str,
        authority: Path | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
    ) -> "Broker":
        """Read an address, such as mqtts://broker.example:8883, and the files of the keys."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if not host or parts.scheme not in PORTS or parts.path.strip("/") or parts.username:
            raise DomainError(
                f"broker must be an address such as mqtts://broker.example:8883; got {url!r:.80}."
            )
        port = port or PORTS[parts.scheme]
        if parts.scheme == "mqtt":
            return cls(host, port)
        try:
            context = _Resuming(ssl.PROTOCOL_TLS_CLIENT)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if authority is None:
                context.load_default_certs()
            else:
                context.load_verify_locations(authority)
            if certificate is not None:
                context.load_cert_chain(certificate, key)
        except OSError as error:  # SSLError too
            raise DomainError(
                f"the keys for {url} cannot be read: {error}. Expected PEM files: the authority "
                "that has signed the broker's certificate, and a certificate with its key."
            ) from None
        return cls(host, port, context)

    def connect(self, client: str, *, seconds_kept: int = 0) -> "MqttConnection":
        """Connect under a name, or raise `OSError`: see `transport.Connect`."""
        return MqttConnection(self, client, seconds_kept)


@final
class MqttConnection:
    """A connection with a broker: see `transport.Connection`."""

    def __init__(self, broker: Broker, client: str, seconds_kept: int = 0) -> None:
        mqtt, packets, properties = _paho()
        self._broker, self._properties, self._packets = broker, properties, packets
        self._messages: deque[Message] = deque()
        self._waiting = 0  # bytes of these messages
        self._confirmed: set[int] = set()  # numbers of subscriptions and publications
        self._state = self._refused = ""  # "connected" or why not, and what was refused later
        self._client: Any = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2,
            client_id=client,
            protocol=mqtt.MQTTv5,
            manual_ack=True,
            reconnect_on_failure=False,
        )
        self._client.on_connect = self._on_connect
        self._client.on_message = self._on_message
        self._client.on_subscribe = self._on_subscribe
        self._client.on_publish = self._on_publish
        if broker.context is not None:
            self._client.tls_set_context(broker.context)
        options = properties.Properties(packets.CONNECT)
        options.ReceiveMaximum = _IN_FLIGHT
        options.MaximumPacketSize = _LARGEST
        if seconds_kept:
            options.SessionExpiryInterval = seconds_kept
        self._client.connect_timeout = PATIENCE
        try:
            self._client.connect(
                broker.host,
                broker.port,
                _KEEP_ALIVE,
                clean_start=not seconds_kept,
                properties=options,
            )
            self._wait(lambda: self._state, "answer")
            if self._state != "connected":
                raise ConnectionRefusedError(f"the broker refuses this client: {self._state}")
        except BaseException:
            self.close()
            raise

    def subscribe(self, topic: str) -> None:
        """See `transport.Connection`."""
        code, number = self._client.subscribe(topic, _CERTAIN)
        self._check(code)
        self._confirm(number, "confirm a subscription")

    def publish(self, topic: str, payload: bytes, *, certain: bool = False) -> None:
        """See `transport.Connection`."""
        self._check(self._client.publish(topic, payload, _CERTAIN if certain else _ONCE).rc)

    def retain(self, topic: str, payload: bytes, seconds: int) -> None:
        """See `transport.Connection`."""
        options = self._properties.Properties(self._packets.PUBLISH)
        if payload:
            options.MessageExpiryInterval = max(1, seconds)
        sent = self._client.publish(topic, payload, _CERTAIN, retain=True, properties=options)
        self._check(sent.rc)
        self._confirm(sent.mid, "confirm a message")

    def receive(self, seconds: float) -> Message | None:
        """See `transport.Connection`."""
        until = monotonic() + seconds
        while not self._messages:
            left = until - monotonic()
            self._turn(max(left, 0.0))
            if left <= 0:
                break
        if not self._messages:
            return None
        message = self._messages.popleft()
        self._waiting -= len(message.payload)
        return message

    def acknowledge(self, message: Message) -> None:
        """See `transport.Connection`."""
        if message.number:
            self._check(self._client.ack(message.number, _CERTAIN))

    def close(self) -> None:
        """End the connection. Closing it again does nothing."""
        with contextlib.suppress(OSError, ValueError):
            open_socket = self._client.socket()
            if isinstance(self._broker.context, _Resuming) and open_socket is not None:
                self._broker.context.session = open_socket.session or self._broker.context.session
            with contextlib.closing(open_socket) if open_socket else contextlib.nullcontext():
                self._client.disconnect()
                self._client.loop(0)  # raises if the broker still sends too much

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _turn(self, seconds: float) -> None:
        """Let the connection work until something happens."""
        try:
            code = self._client.loop(seconds)
        except OSError:
            raise
        except Exception as error:  # a broker can send anything
            raise ConnectionAbortedError(f"the broker sent what is not MQTT: {error}") from error
        self._check(code)
        if self._refused:
            raise PermissionError(f"the broker refuses {self._refused}")

    def _wait(self, done: Callable[[], object], what: str) -> None:
        until = monotonic() + PATIENCE
        while not done():
            left = until - monotonic()
            if left < 0:
                raise TimeoutError(f"the broker did not {what} within {PATIENCE:g} seconds")
            self._turn(left)

    def _confirm(self, number: int, what: str) -> None:
        self._confirmed.discard(number)  # numbers return after 65,535 others
        self._wait(lambda: number in self._confirmed, what)

    def _check(self, code: int) -> None:
        if code:
            raise ConnectionResetError(
                f"the connection with {self._broker.host}:{self._broker.port} is lost"
            )

    def _on_connect(self, *event: Any) -> None:
        reason = event[3]
        self._state = str(reason) if reason.is_failure else "connected"

    def _on_message(self, *event: Any) -> None:
        message = event[2]
        number = message.mid if message.qos else 0
        self._waiting += len(message.payload)
        if self._waiting > _MOST_WAITING:
            raise ConnectionAbortedError("the broker sends more than was asked for")
        self._messages.append(Message(message.topic, bytes(message.payload), number))

    def _on_subscribe(self, *event: Any) -> None:
        self._note(event[2], f"a subscription: {event[3][0]}", event[3][0])

    def _on_publish(self, *event: Any) -> None:
        self._note(event[2], f"a message: {event[3]}", event[3])

    def _note(self, number: int, what: str, reason: Any) -> None:
        self._confirmed.add(number)
        if reason.is_failure:
            self._refused = what


def _paho() -> tuple[Any, Any, Any]:
    """Return the parts of paho-mqtt that are used, or raise `MissingExtra`."""
    try:
        from paho.mqtt import client, packettypes, properties
    except ImportError:
        raise MissingExtra("paho-mqtt", "mqtt") from None
    return client, packettypes.PacketTypes, properties
