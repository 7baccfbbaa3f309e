"""Strangers who are slow, silent, greedy or many: the server closes their connections."""

import contextlib
import socket
import ssl
import time

import pytest
import trustme
from fleet_server import HOST, OPEN, running
from road_client import Client, authentic, connect, exchange, question_in

from fedldp import Plan, Schema
from fedldp.plan.strategies import Sample
from fedldp_fleet.jobs import StatisticJob
from fedldp_fleet.server.listener import Limits

SHORT = Limits(
    header_seconds=0.5,
    body_seconds=0.5,
    reply_seconds=0.5,
    idle_seconds=0.5,
    flush_seconds=0.5,
    connections_per_address=8,
)
PATIENCE = 20.0  # a stranger waits for its end, which comes long before


@pytest.fixture(scope="module", params=[True, False], ids=["TLS", "plain"])
def server(tmp_path_factory, request):
    folder = tmp_path_factory.mktemp("server")
    with running(folder, tls=request.param, limits=SHORT) as found:
        yield found


@pytest.fixture
def stranger(server):
    """Return a function that connects; the handshake is made, or left out."""
    with contextlib.ExitStack() as opened:

        def make(*, handshake=True):
            found = opened.enter_context(socket.create_connection((HOST, server.port), PATIENCE))
            if handshake and server.url.startswith("https"):
                found = server.context.wrap_socket(found, server_hostname=HOST)
                opened.enter_context(found)
            return found

        yield make


def wait_for_end(connection):
    """Return what comes until the server closes the connection, or cuts it off."""
    found = b""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while part := connection.recv(1 << 16):
            found += part
    return found


HEAD = b"POST /v1/join HTTP/1.1\r\nHost: server\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"POST /v1/j",
        HEAD,
        HEAD + b"Content-Length: 100\r\n\r\n",
        HEAD + b"Content-Length: 100\r\n\r\nhalf of it",
        b"GET /v1/x HTTP/1.1\r\nHost: server\r\n\r\n",
    ],
    ids=["nothing", "half a line", "half the headers", "no body", "half a body", "a request"],
)
def test_whoever_says_no_more_is_cut_off(stranger, sent):
    connection = stranger()
    connection.sendall(sent)
    wait_for_end(connection)  # raises TimeoutError if the server keeps it


def test_whoever_makes_no_handshake_is_cut_off(stranger):
    wait_for_end(stranger(handshake=False))


@pytest.mark.parametrize("drop", [b"\r\n", b"x"], ids=["empty lines", "a header"])
def test_whoever_sends_byte_by_byte_is_cut_off(stranger, drop):
    connection = stranger()
    connection.settimeout(0.05)
    connection.sendall(b"" if drop == b"\r\n" else HEAD)
    until = time.monotonic() + PATIENCE
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while time.monotonic() < until:
            connection.sendall(drop)
            with contextlib.suppress(TimeoutError):
                if connection.recv(100) == b"":
                    return
    assert time.monotonic() < until


def test_headers_without_end_are_cut_off(stranger):
    connection = stranger()
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        for number in range(100_000):
            connection.sendall(b"X-%d: " % number + b"x" * 1000 + b"\r\n" if number else HEAD)
        pytest.fail("100 MB of headers were taken")


def test_whoever_takes_no_reply_is_cut_off(server):
    wide = Plan(Schema.of(**{f"number_{each}": (0, 1) for each in range(12_000)}), 1.0, Sample(k=1))
    server.add(StatisticJob("wide", wide, 1, OPEN))
    server.tick()
    client = Client.joined(server, "deaf")
    [offer] = client.call(wide=1).offers
    path = f"/v1/question/{question_in(offer)}"
    assert len(client.question(offer).to_bytes()) > 1 << 19
    client.connection.close()
    wait_until(lambda: server.listener.connections == 0)
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)  # for little of the reply
        raw.settimeout(PATIENCE)
        raw.connect((HOST, server.port))
        is_tls = server.url.startswith("https")
        with server.context.wrap_socket(raw, server_hostname=HOST) if is_tls else raw as deaf:
            headers = authentic("deaf", client.secret, "GET", path)
            lines = (f"{name}: {value}\r\n" for name, value in headers.items())
            deaf.sendall(f"GET {path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode())
            wait_until(lambda: server.listener.connections == 1)
            wait_until(lambda: server.listener.connections == 0)


def test_whoever_asks_again_before_the_reply_is_cut_off(stranger):
    connection = stranger()
    connection.sendall(b"GET /v9 HTTP/1.1\r\nHost: server\r\n\r\n" * 2)
    assert wait_for_end(connection) == b""


def wait_until(holds):
    until = time.monotonic() + PATIENCE
    while not holds() and time.monotonic() < until:
        time.sleep(0.02)
    assert holds()


def test_an_address_has_a_limited_number_of_connections(server, stranger):
    wait_until(lambda: server.listener.connections == 0)
    held = [stranger(handshake=False) for _ in range(SHORT.connections_per_address)]
    more = stranger(handshake=False)
    assert wait_for_end(more) == b""
    for each in held:
        each.close()
    wait_until(lambda: server.listener.connections == 0)
    connection = connect(server)
    assert exchange(connection, "GET", "/v2")[0] == 404
    connection.close()


def test_a_server_may_ask_for_client_certificates(tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "clients.pem")
    with running(tmp_path, client_authority=str(tmp_path / "clients.pem")) as server:
        nobody = connect(server)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            exchange(nobody, "GET", "/v2")
        nobody.close()
        context = server.context
        authority.issue_cert("car-7").configure_cert(context)
        known = connect(server, context=context)
        assert exchange(known, "GET", "/v2")[0] == 404
        known.close()


def test_older_versions_of_tls_are_refused(tmp_path):
    with running(tmp_path) as server:
        context = server.context
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        connection = connect(server, context=context)
        with pytest.raises(ssl.SSLError):
            connection.connect()
