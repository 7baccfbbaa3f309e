"""What is read from a broker: every packet comes back, and nothing else than MQTT gets through."""

import contextlib
import random
import socket
import struct
import threading

import pytest

from fedldp.errors import DomainError, WireError
from fedldp_fleet import mqtt
from fedldp_fleet.mqtt import (
    Broker,
    Message,
    packets,
    properties_bytes,
    published,
    read_properties,
    read_published,
    varint,
)
from fedldp_fleet.questions import MOST_BYTES
from fedldp_fleet.topics import Topics, packed, unpacked

CONNECTED = b"\x20\x03\0\0\0"


@pytest.mark.parametrize("number", [0, 1, 127, 128, 16_383, 16_384, 2_097_152])
def test_packets_are_split_wherever_the_network_cuts_them(number):
    body = bytes(number % 1000)
    stream = b"\x30" + varint(len(body)) + body + b"\xd0\0"
    buffer, found = bytearray(), []
    for byte in stream:
        buffer.append(byte)
        found += packets(buffer)
    assert found == [(0x30, body), (0xD0, b"")]
    assert not buffer
    assert mqtt.read_varint(varint(number), 0) == (number, len(varint(number)))


@pytest.mark.parametrize(
    "message",
    [
        Message("a", b""),
        Message("a/b", b"payload", 7),
        Message("a/b", b"\0" * 300, 65_535, 0, "reply/to", bytes(range(16))),
        Message("ü", b"x", 0, 4_294_967_295),
    ],
)
def test_publications_come_back(message):
    kind = 0x32 if message.number else 0x30
    assert read_published(kind, published(message, message.number)) == message


def test_all_properties_are_read_or_skipped():
    every = b"".join(
        bytes([name]) + bytes(size) for name, size in mqtt._SIZES.items() if name != 0x02
    )
    every += b"".join(bytes([name]) + b"\0\1x" for name in mqtt._TEXTS)
    every += b"\x0b\x81\x01" + b"\x26\0\1k\0\1v" + b"\x02\0\0\0\x3c"
    found, at = read_properties(varint(len(every)) + every + b"rest", 0)
    assert found[0x02] == 60
    assert found[0x0B] == 129
    assert found[0x09] == b"x"
    assert at == len(varint(len(every)) + every)


@pytest.mark.parametrize(
    "data", [b"\x01\x7f", b"\x05\x09\0\x09x", b"\x02\x02\0", b"\xff\xff\xff\xff\x01", b"\x09\x02"]
)
def test_malformed_properties_are_refused(data):
    with pytest.raises((WireError, IndexError)):
        read_properties(data, 0)


@contextlib.contextmanager
def listening(*replies):
    """A broker that sends these bytes, whatever it is told."""

    def serve(server):
        link, _ = server.accept()
        with contextlib.suppress(OSError), link:
            link.recv(1 << 16)
            for each in replies:
                link.sendall(each)
            while link.recv(1 << 16):
                pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        yield Broker(*server.getsockname()[:2])
        thread.join()


def test_whatever_a_broker_sends_is_an_error_of_the_connection():
    """Fuzzing: no other exception escapes, so that agents and servers try again."""
    random_bytes = random.Random(1)
    good = [
        CONNECTED,
        b"\x30" + varint(20) + published(Message("a/b", b"x" * 14)),
        b"\x90\x04\0\1\0\1",
        b"\x40\x02\0\1",
    ]
    for _ in range(200):
        data = bytearray(b"".join(random_bytes.choices(good, k=3)))
        for _ in range(random_bytes.randrange(1, 6)):
            data[random_bytes.randrange(len(data))] = random_bytes.randrange(256)
        with listening(bytes(data)) as broker, contextlib.suppress(OSError):
            connection = mqtt.BrokerConnection(broker, "car", patience=0.05)
            try:
                connection.receive(0.01)
            finally:
                connection.close()


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (b"\x20\x03\0\x87\0", "refuses this client: reason 0x87"),
        (b"\xe0\x01\x8e", "ends the connection"),
        (b"\x20\x02\0", "did not answer"),
        (b"HTTP/1.1 400", "not MQTT|did not answer"),
    ],
)
def test_why_a_broker_cannot_be_used_is_said(reply, why):
    with listening(reply) as broker, pytest.raises(OSError, match=why):
        mqtt.BrokerConnection(broker, "car", patience=0.2)


def test_a_broker_that_sends_more_than_was_asked_for_is_left():
    body = published(Message("a/b", bytes(10_000)))
    message = b"\x30" + varint(len(body)) + body
    why = "sends more than was asked for"
    with listening(CONNECTED, message * 100) as broker:
        limited = Broker(broker.host, broker.port, most_waiting=1 << 16)
        with pytest.raises(OSError, match=why), limited.connect("car") as connection:
            connection.subscribe("a/b")


def test_the_most_that_a_broker_takes_is_known():
    given = properties_bytes({0x27: 149_504})
    with listening(b"\x20" + varint(2 + len(given)) + b"\0\0" + given) as broker:
        connection = broker.connect("car")
        assert connection.most_bytes == 149_504
        connection.close()


@pytest.mark.parametrize(
    "url", ["http://a", "mqtt://", "broker:1883", "mqtts://user:secret@a/north", "mqtt://a:x"]
)
def test_addresses_that_are_no_broker_are_refused(url):
    with pytest.raises(DomainError, match="must be an address"):
        Broker.of(url)


@pytest.mark.parametrize("url", ["mqtt://a", "mqtt://a/", "mqtt://a/north/south", "mqtt://a/+"])
def test_an_address_names_one_fleet(url):
    with pytest.raises(DomainError):
        Topics.of(url)


@pytest.mark.parametrize(
    "topic",
    ["fedldp/north/ask/call/a", "fedldp/south/ask/call/a/b", "fedldp/north/ask/steal/a/b", ""],
)
def test_other_topics_ask_for_nothing(topic):
    assert Topics("north").asking(topic) is None


def test_what_a_broker_retains_cannot_fill_the_memory():
    assert unpacked(packed(bytes(MOST_BYTES - 1))) == bytes(MOST_BYTES - 1)
    for data in (packed(bytes(MOST_BYTES + 1)), b"", b"question", packed(b"x")[:-1]):
        with pytest.raises(WireError):
            unpacked(data)


def test_a_length_is_at_most_four_bytes():
    with pytest.raises(WireError):
        list(packets(bytearray(b"\x30" + b"\xff" * 5)))
    with pytest.raises(WireError):
        list(packets(bytearray(b"\x30" + varint((1 << 22) + 1))))
    with pytest.raises(struct.error):
        read_published(0x32, b"\0\1a")
