"""A connection with an MQTT 5 broker, on the standard library: what roads need of it.

Nobody here relies on what a broker promises. A message may be lost, arrive twice or arrive late,
and a broker may forget everything: whoever waits for a reply asks again.
"""

import contextlib
import os
import select
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import NamedTuple, Protocol, Self, final
from urllib.parse import urlsplit

from .common import DomainError, WireError

PORTS = {"mqtt": 1883, "mqtts": 8883}
PATIENCE_SECONDS = 15.0  # to wait for an answer of the broker
KEEP_ALIVE_SECONDS = 1200  # of silence, after which brokers may end a connection
LARGEST_PACKET = 1 << 22  # bytes that a broker may send at once
MOST_WAITING_BYTES = 1 << 24  # of messages that nobody has received yet
MOST_IN_FLIGHT = 1000  # messages that the broker delivers before the first is acknowledged

_READ_BYTES = 1 << 16
_MOST_AT_ONCE_BYTES = 1 << 20
_CONNECT, _CONNACK, _PUBLISH, _PUBACK = 0x10, 0x20, 0x30, 0x40
_SUBSCRIBE, _SUBACK, _UNSUBSCRIBE, _UNSUBACK = 0x82, 0x90, 0xA2, 0xB0
_PINGREQ, _PINGRESP, _DISCONNECT = 0xC0, 0xD0, 0xE0
_RETAIN, _CERTAIN = 0x01, 0x02  # flags of a publication
_FAILURES = 0x80  # reasons from here on are refusals

# Properties
_EXPIRES, _RESPONSE_TOPIC, _CORRELATION, _SESSION_SECONDS = 0x02, 0x08, 0x09, 0x11
_IN_FLIGHT, _PACKET_BYTES, _REASON = 0x21, 0x27, 0x1F
_SIZES = (
    dict.fromkeys((0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A), 1)
    | dict.fromkeys((0x13, 0x21, 0x22, 0x23), 2)
    | dict.fromkeys((0x02, 0x11, 0x18, 0x27), 4)
)
_TEXTS = frozenset((0x03, 0x08, 0x09, 0x12, 0x15, 0x16, 0x1A, 0x1C, 0x1F))
_VARINT, _PAIR = 0x0B, 0x26

Properties = dict[int, int | bytes]


class Message(NamedTuple):
    """A message that a broker has delivered, or that it should deliver."""

    topic: str
    payload: bytes
    number: int = 0  # by which it is acknowledged to the broker, if it has to be
    seconds: int | None = None  # until it expires, if it does
    reply_to: str = ""  # a topic
    correlation: bytes = b""  # which the reply repeats


class MQTTConnection(Protocol):
    """A connection with a broker, which `with` closes. Methods raise `OSError` once it is lost."""

    most_bytes: int  # of a payload that the broker takes

    def subscribe(self, *topics: str, certain: bool = False) -> None:
        """Ask for the messages of topics, which may have wildcards."""

    def unsubscribe(self, topic: str) -> None:
        """Ask for no more messages of a topic."""

    def publish(self, message: Message, *, certain: bool = False) -> None:
        """Send a message; with `certain`, the broker confirms it."""

    def retain(self, message: Message) -> None:
        """Send a message that the broker keeps for those who subscribe later.

        Empty bytes remove the one that it keeps. Returns when the broker has confirmed it.
        """

    def receive(self, seconds: float) -> list[Message]:
        """Send what is to be sent, and return the next messages; none if none arrive in time."""

    def acknowledge(self, message: Message) -> None:
        """Confirm a message, so that the broker does not deliver it again."""

    def ping(self) -> None:
        """Return when the broker has answered: all that it sent before has arrived."""

    def close(self) -> None:
        """End the connection. Closing it again does nothing."""


Connect = Callable[[str], MQTTConnection]  # under a name that no other client has


@final
@dataclass
class Broker:
    """The address of a broker, and the keys with which to connect.

    >>> Broker.of("mqtt://localhost")
    Broker(host='localhost', port=1883, context=None)
    """

    host: str
    port: int
    context: ssl.SSLContext | None = None  # None: without TLS
    session: ssl.SSLSession | None = field(default=None, repr=False)  # resumed the next time
    most_waiting: int = field(default=MOST_WAITING_BYTES, repr=False)

    @classmethod
    def of(
        cls,
        url: str,
        authority: str | os.PathLike[str] | None = None,
        certificate: str | os.PathLike[str] | None = None,
        key: str | os.PathLike[str] | None = None,
    ) -> "Broker":
        """Read an address, such as mqtts://broker.example:8883, and the files of the keys."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if not host or parts.scheme not in PORTS or parts.username or parts.query:
            raise DomainError(
                f"broker must be an address such as mqtts://broker.example:8883; got {url!r:.80}."
            )
        port = port or PORTS[parts.scheme]
        if parts.scheme == "mqtt":
            return cls(host, port)
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
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

    def connect(self, client: str) -> "BrokerConnection":
        """Connect under a name that no other client has, or raise `OSError`."""
        return BrokerConnection(self, client)

    def open_socket(self) -> socket.socket:
        """Return a socket, after the handshake of TLS."""
        plain = socket.create_connection((self.host, self.port), PATIENCE_SECONDS)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.context is None:
            return plain
        try:
            return self.context.wrap_socket(plain, server_hostname=self.host, session=self.session)
        except BaseException:
            plain.close()
            raise

    def keep_session(self, link: socket.socket) -> None:
        """Remember the session of TLS: the next handshake needs no certificates."""
        if isinstance(link, ssl.SSLSocket) and link.session is not None:
            self.session = link.session


@final
class BrokerConnection:
    """A connection with a broker: see `MQTTConnection`. It works while `receive` waits."""

    def __init__(self, broker: Broker, client: str, patience: float = PATIENCE_SECONDS) -> None:
        self._broker, self._patience = broker, patience
        self._messages: deque[Message] = deque()
        self._waiting = 0  # bytes of these messages
        self._confirmed: dict[int, int] = {}  # reasons, by the number of what was confirmed
        self._connected: tuple[int, Properties] | None = None
        self._pongs = 0
        self._numbers = 0
        self._out, self._in = bytearray(), bytearray()
        self._sent_at = monotonic()
        self.most_bytes = LARGEST_PACKET
        self._socket: socket.socket | None = broker.open_socket()
        try:
            self._connect(client)
        except BaseException:
            self.close()
            raise

    def _connect(self, client: str) -> None:
        wanted: Properties = {
            _IN_FLIGHT: MOST_IN_FLIGHT,
            _PACKET_BYTES: LARGEST_PACKET,
            _SESSION_SECONDS: 0,
        }
        head = _text("MQTT") + struct.pack(">BBH", 5, 2, KEEP_ALIVE_SECONDS)  # a clean start
        self._put(_CONNECT, head + properties_bytes(wanted) + _text(client))
        self._wait(lambda: self._connected, "answer")
        reason, given = self._connected or (_FAILURES, {})
        if reason >= _FAILURES:
            why = given.get(_REASON, b"")
            said = why.decode("utf-8", "replace") if isinstance(why, bytes) else ""
            raise ConnectionRefusedError(
                f"the broker refuses this client: reason {reason:#x} {said}".strip()
            )
        most = given.get(_PACKET_BYTES, LARGEST_PACKET)
        if isinstance(most, int):
            self.most_bytes = min(self.most_bytes, most)

    def subscribe(self, *topics: str, certain: bool = False) -> None:
        """See `MQTTConnection`."""
        number = self._number()
        options = bytes([int(certain)])
        body = struct.pack(">HB", number, 0) + b"".join(_text(each) + options for each in topics)
        self._put(_SUBSCRIBE, body)
        self._confirm(number, f"subscriptions to {', '.join(topics)}")

    def unsubscribe(self, topic: str) -> None:
        """See `MQTTConnection`."""
        self._put(_UNSUBSCRIBE, struct.pack(">HB", self._number(), 0) + _text(topic))

    def publish(self, message: Message, *, certain: bool = False) -> None:
        """See `MQTTConnection`."""
        if not certain:
            self._put(_PUBLISH, published(message))
            return
        number = self._number()
        self._put(_PUBLISH | _CERTAIN, published(message, number))
        self._confirm(number, f"messages to {message.topic}")

    def retain(self, message: Message) -> None:
        """See `MQTTConnection`."""
        number = self._number()
        self._put(_PUBLISH | _CERTAIN | _RETAIN, published(message, number))
        self._confirm(number, f"messages to {message.topic}")

    def receive(self, seconds: float) -> list[Message]:
        """See `MQTTConnection`."""
        until = monotonic() + seconds
        self._turn(0.0 if self._messages else seconds)
        while not self._messages and (left := until - monotonic()) > 0:
            self._turn(left)
        found = list(self._messages)
        self._messages.clear()
        self._waiting = 0
        return found

    def acknowledge(self, message: Message) -> None:
        """See `MQTTConnection`."""
        if message.number:
            self._put(_PUBACK, struct.pack(">H", message.number))

    def ping(self) -> None:
        """See `MQTTConnection`."""
        before = self._pongs
        self._put(_PINGREQ)
        self._wait(lambda: self._pongs > before, "answer")

    def close(self) -> None:
        """See `MQTTConnection`."""
        if self._socket is None:
            return
        with contextlib.suppress(OSError, ValueError), self._socket:
            self._broker.keep_session(self._socket)
            self._put(_DISCONNECT)
            self._flush()
        self._socket = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # Waiting

    def _turn(self, seconds: float) -> None:
        """Send what is to be sent, and read what arrives within some seconds."""
        if monotonic() - self._sent_at > KEEP_ALIVE_SECONDS / 2:
            self._put(_PINGREQ)
        self._flush()
        data = self._arrived(max(0.0, seconds))
        if not data:
            return
        self._in += data
        try:
            for kind, body in packets(self._in):
                self._take(kind, body)
        except (WireError, struct.error, IndexError, UnicodeDecodeError) as error:
            raise ConnectionAbortedError(f"the broker sent what is not MQTT: {error}") from error

    def _arrived(self, seconds: float) -> bytes | bytearray:
        """Return all that arrives at once: with TLS, each message of the broker comes alone."""
        link, found = self._link(), bytearray()
        if not (isinstance(link, ssl.SSLSocket) and link.pending()):
            waiting = select.poll()
            waiting.register(link, select.POLLIN)
            if not waiting.poll(1000 * seconds):
                return b""
        link.settimeout(0.0)
        try:
            while len(found) < _MOST_AT_ONCE_BYTES:
                part = link.recv(_READ_BYTES)
                if not part and not found:
                    raise ConnectionResetError("the broker has closed the connection")
                if not part:
                    break
                found += part
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        finally:
            link.settimeout(PATIENCE_SECONDS)
        return found

    def _wait(self, done: Callable[[], object], what: str) -> None:
        until = monotonic() + self._patience
        while not done():
            left = until - monotonic()
            if left < 0:
                raise TimeoutError(f"the broker did not {what} within {self._patience:g} seconds")
            self._turn(left)

    def _confirm(self, number: int, what: str) -> None:
        self._wait(lambda: number in self._confirmed, "confirm a message")
        reason = self._confirmed.pop(number)
        if reason >= _FAILURES:
            raise PermissionError(f"the broker refuses {what}: reason {reason:#x}")

    def _number(self) -> int:
        self._numbers = self._numbers % 0xFFFF + 1
        return self._numbers

    def _link(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionResetError("the connection is closed")
        return self._socket

    def _put(self, kind: int, body: bytes = b"") -> None:
        self._out += bytes([kind]) + varint(len(body)) + body

    def _flush(self) -> None:
        if self._out:
            self._sent_at = monotonic()
            data, self._out = self._out, bytearray()
            self._link().sendall(data)

    # What arrives

    def _take(self, kind: int, body: bytes) -> None:
        if kind & 0xF0 == _PUBLISH:
            message = read_published(kind, body)
            self._waiting += len(body)
            if self._waiting > self._broker.most_waiting:
                raise ConnectionAbortedError("the broker sends more than was asked for")
            self._messages.append(message)
        elif kind == _PUBACK:
            self._confirmed[struct.unpack_from(">H", body)[0]] = body[2] if len(body) > 2 else 0
        elif kind == _UNSUBACK:
            pass
        elif kind == _SUBACK:
            number = struct.unpack_from(">H", body)[0]
            _, at = read_properties(body, 2)
            self._confirmed[number] = max(body[at:])
        elif kind == _CONNACK:
            self._connected = body[1], read_properties(body, 2)[0]
        elif kind == _PINGRESP:
            self._pongs += 1
        elif kind == _DISCONNECT:
            raise ConnectionResetError(f"the broker ends the connection: {body[:1].hex() or 0}")
        else:
            raise WireError(f"a packet of the kind {kind:#x}.")


# Packets


def varint(number: int) -> bytes:
    """Return a length as MQTT writes it.

    >>> varint(127).hex(), varint(321).hex()
    ('7f', 'c102')
    """
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


def read_varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Return a length, and where the rest begins; raise `IndexError` if it is not complete."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at
        if shift > 21:
            raise WireError("a length has more than four bytes.")


def packets(data: bytearray) -> Iterator[tuple[int, bytes]]:
    """Yield kind and body of each complete packet, and leave the rest."""
    begin = 0
    try:
        while begin < len(data):
            try:
                size, at = read_varint(data, begin + 1)
            except IndexError:
                return
            if size > LARGEST_PACKET:
                raise WireError(f"a packet of {size} bytes.")
            if at + size > len(data):
                return
            kind, body = data[begin], bytes(data[at : at + size])
            begin = at + size
            yield kind, body
    finally:
        del data[:begin]


def _text(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack(">H", len(data)) + data


def properties_bytes(given: Properties) -> bytes:
    """Return properties with their length.

    >>> read_properties(properties_bytes({0x02: 60, 0x09: b"1"}), 0)
    ({2: 60, 9: b'1'}, 10)
    """
    found = b"".join(
        bytes([name])
        + (_text(value) if isinstance(value, bytes) else value.to_bytes(_SIZES[name], "big"))
        for name, value in given.items()
    )
    return varint(len(found)) + found


def read_properties(data: bytes, at: int) -> tuple[Properties, int]:
    """Return properties, and where the rest begins."""
    size, at = read_varint(data, at)
    end, found = at + size, Properties()
    if end > len(data):
        raise WireError("properties are cut off.")
    while at < end:
        name, at = data[at], at + 1
        if size := _SIZES.get(name, 0):
            found[name] = int.from_bytes(data[at : at + size], "big")
            at += size
        elif name in _TEXTS:
            found[name], at = _read_text(data, at)
        elif name == _VARINT:
            found[name], at = read_varint(data, at)
        elif name == _PAIR:
            _, at = _read_text(data, at)
            _, at = _read_text(data, at)
        else:
            raise WireError(f"an unknown property, {name:#x}.")
    if at != end:
        raise WireError("properties have another length.")
    return found, at


def _read_text(data: bytes, at: int) -> tuple[bytes, int]:
    end = at + 2 + int.from_bytes(data[at : at + 2], "big")
    if end > len(data) or at + 2 > len(data):
        raise WireError("a text is cut off.")
    return data[at + 2 : end], end


def published(message: Message, number: int = 0) -> bytes:
    """Return the body of a publication, with a number if it is to be confirmed."""
    given: Properties = {}
    if message.seconds is not None:
        given[_EXPIRES] = message.seconds
    if message.reply_to:
        given[_RESPONSE_TOPIC] = message.reply_to.encode()
    if message.correlation:
        given[_CORRELATION] = message.correlation
    middle = struct.pack(">H", number) if number else b""
    head = _text(message.topic) + middle + (properties_bytes(given) if given else b"\0")
    return head + message.payload


def read_published(kind: int, body: bytes) -> Message:
    """Read the body of a publication.

    >>> message = Message("a/b", b"payload", 7, 60, "c", b"1")
    >>> read_published(0x32, published(message, 7)) == message
    True
    """
    topic, at = _read_text(body, 0)
    number = 0
    if kind & 0x06:
        [number] = struct.unpack_from(">H", body, at)
        at += 2
    if body[at] == 0:
        return Message(topic.decode(), body[at + 1 :], number)
    given, at = read_properties(body, at)
    reply_to, correlation = given.get(_RESPONSE_TOPIC, b""), given.get(_CORRELATION, b"")
    return Message(
        topic.decode(),
        body[at:],
        number,
        given.get(_EXPIRES),  # type: ignore[arg-type]
        reply_to.decode(),  # type: ignore[union-attr]
        correlation,  # type: ignore[arg-type]
    )
