"""The front passes on what gateways ask, as they ask it; nobody gets further, whatever they try."""

import asyncio
import socket
import ssl
import subprocess
import sys
import threading
from base64 import b64encode
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic, sleep

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fedldp.fleet import keys
from fedldp.fleet.front import CALLS, LARGEST, Front, Gateways
from fedldp.fleet.processes import free_port

CALL = "/v1/fleet/pull-messages"


def shown(public):
    """Return a public key as a gateway shows it."""
    return b64encode(keys.public_pem(public)).decode()


def fresh_key():
    key = generate_private_key(SECP384R1()).public_key()
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)


GATEWAY = fresh_key()
SIGNED = {
    "accept": "application/protobuf",
    "content-type": "application/protobuf",
    "flwr-public-key": shown(GATEWAY),
    "flwr-timestamp": "2026-11-15T17:25:29.429+00:00",
    "flwr-signature": "c2ln/+==",
    "flwr-package-version": "1.41.0",
}
NOT_PASSED = {
    "authorization": "Bearer x",
    "cookie": "a=b",
    "flwr-superexec-signature": "x",
    "flwr-task-token": "x",
    "forwarded": "for=10.0.0.1",
    "te": "trailers",
    "x-forwarded-for": "10.0.0.1",
    "x-flwr-client": "x",
}


@contextmanager
def backend(folder, port, heard):
    """A server behind the front that hears what is passed on, and answers with the same bytes."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            heard.append((self.command, self.path, dict(self.headers), body))
            self.send_response(207)
            self.send_header("content-type", "application/protobuf")
            self.send_header("content-length", str(len(body)))
            self.send_header("set-cookie", "a=b")
            self.send_header("connection", "close")  # so that it is gone when it is shut down
            self.send_header("flwr-version-incompatibility-message", "old")
            self.end_headers()
            self.wfile.write(body)

        def __getattr__(self, name):
            if name.startswith("do_"):  # any method at all
                return self.do_POST
            raise AttributeError(name)

        def log_message(self, *_):
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


@dataclass
class Door:
    folder: Path
    port: int
    link: int
    heard: list

    @property
    def trusted(self):
        return ssl.create_default_context(cafile=self.folder / "ca.crt")

    def post(self, path=CALL, **options):
        with httpx.Client(verify=self.trusted, trust_env=False, timeout=60) as client:
            options = {"headers": SIGNED} | options
            return client.post(f"https://127.0.0.1:{self.port}{path}", **options)

    def raw(self, text, enough=None):
        """Send bytes as they are; return all that comes back until the end, or until enough."""
        with (
            socket.create_connection(("127.0.0.1", self.port), 20) as plain,
            self.trusted.wrap_socket(plain, server_hostname="localhost") as link,
        ):
            link.sendall(text)
            link.settimeout(20)
            found = b""
            while (enough is None or enough not in found) and (piece := link.recv(1 << 16)):
                found += piece
            return found


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    """The front in a process of its own, as the server runs it; behind it there is nobody yet."""
    folder = tmp_path_factory.mktemp("front")
    keys.write_server(folder, folder / "ca.key", [])
    found = Door(folder, free_port(), free_port(), [])
    (folder / "g").mkdir()
    (folder / "g" / "gateway-1.pub").write_bytes(GATEWAY)
    (folder / "server.toml").write_text(
        f'front = "127.0.0.1:{found.port}"\nlink = {found.link}\nauthority = "ca.crt"\n'
        'certificate = "server.crt"\nkey = "server.key"\ngateways = "g"\napp = "a"\njob = "j"\n'
    )
    argv = (sys.executable, "-m", "fedldp.fleet.front", str(folder))
    with subprocess.Popen(argv) as popen:
        deadline = monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", found.port)).close()
                break
            except ConnectionRefusedError:
                assert popen.poll() is None
                assert monotonic() < deadline
                sleep(0.05)
        yield found
        popen.terminate()
        assert popen.wait(60) in (0, -15)


@pytest.fixture
def served(door):
    door.heard.clear()
    with backend(door.folder, door.link, door.heard):
        yield door


def test_a_call_is_passed_on_as_it_is_and_nothing_with_it(served):
    body = bytes(range(256)) * 100
    answer = served.post(content=body, headers=SIGNED | NOT_PASSED)
    assert (answer.status_code, answer.content) == (207, body)
    assert dict(answer.headers).keys() == {
        "date",
        "content-type",
        "content-length",
        "flwr-version-incompatibility-message",
    }
    [(method, path, headers, passed)] = served.heard
    headers = {name.lower(): value for name, value in headers.items()}
    assert (method, path, passed) == ("POST", CALL, body)
    assert {name: headers.get(name) for name in SIGNED} == SIGNED
    assert not headers.keys() & NOT_PASSED.keys()
    assert headers["host"] == f"127.0.0.1:{served.link}"


def test_every_call_of_a_gateway_is_passed_on(served):
    paths = sorted(path.decode() for path in CALLS)
    assert [served.post(path, content=b"x").status_code for path in paths] == [207] * len(paths)
    assert [heard[1] for heard in served.heard] == paths


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "*",
        "/docs",
        "/openapi.json",
        "/health",
        "/v1/fleet",
        "/v1/fleet/",
        "/v1/fleet/register-node",
        "/v1/fleet/unregister-node",
        "/v1/control/register-node",
        "/v1/control/start-run",
        "/v1/runtime/pull-messages",
        "/v1/fleet/../control/start-run",
        "/v1/fleet/pull-messages/../../control/start-run",
        "/v1/control/../fleet/pull-messages",
        "/v1/fleet/%2e%2e/control/start-run",
        "/v1/fleet/..%2fcontrol/start-run",
        "/v1/fleet/pull%2dmessages",
        "/v1/fleet/./pull-messages",
        "//v1/fleet/pull-messages",
        "/v1//fleet/pull-messages",
        "/v1/fleet/pull-messages/",
        "/v1/fleet/pull-messages?a=b",
        "/v1/fleet/pull-messages;a=b",
        "/v1/fleet/pull-messages%00",
        "/v1/fleet/pull-messages%0d%0aX:%20y",
        "/V1/FLEET/PULL-MESSAGES",
        "https://127.0.0.1/v1/control/start-run",
        "/v1/fleet\\..\\control/start-run",
    ],
)
def test_no_other_path(served, target):
    head = f"POST {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1"
    answer = served.raw(f"{head}\r\n\r\nx".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split()[1] in (b"404", b"400")
    assert body in (b"", b"Invalid HTTP request received.")
    assert not served.heard


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "CONNECT"])
def test_no_other_method(served, method):
    answer = served.raw(
        f"{method} {CALL} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
    )
    assert answer.split()[1] in (b"404", b"400")
    assert not served.heard


def test_no_web_socket(served):
    answer = served.raw(
        f"GET {CALL} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode(),
        enough=b"\r\n\r\n",
    )
    assert answer.split()[1] in (b"404", b"400")
    assert not served.heard


@pytest.mark.parametrize(
    ("first", "heard"),
    [("Content-Length: 4\r\nTransfer-Encoding: chunked", 0), ("Content-Length: 0", 1)],
)
def test_no_call_within_a_call(served, first, heard):
    hidden = "POST /v1/control/start-run HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx"
    served.raw(
        f"POST {CALL} HTTP/1.1\r\nHost: x\r\nflwr-public-key: {shown(GATEWAY)}\r\n{first}\r\n\r\n"
        f"0\r\n\r\n{hidden}"
        f"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
    )
    deadline = monotonic() + 60
    while len(served.heard) < heard:  # it is passed on, though its sender was hung up on
        assert monotonic() < deadline
        sleep(0.02)
    assert {path for _, path, _, _ in served.heard} <= {CALL}


def test_a_body_that_is_too_long(served):
    assert served.post(content=bytes(1 << 20)).status_code == 207
    served.heard.clear()
    try:
        status = served.post(content=bytes(LARGEST + 1)).status_code
    except httpx.TransportError:  # it was hung up on, and did not stop talking to hear why
        status = 413
    assert status == 413
    assert not served.heard


def test_a_call_waits_for_the_server_to_come_back(door):
    door.heard.clear()
    answers = []
    thread = threading.Thread(target=lambda: answers.append(door.post(content=b"early")))
    thread.start()
    sleep(0.5)
    assert not answers
    with backend(door.folder, door.link, door.heard):
        thread.join()
        assert [answer.content for answer in answers] == [b"early"]
    assert [body for *_, body in door.heard].count(b"early") == 1


def asked(front, *messages):
    """Return the status that an application answers with, given what it receives."""
    sent = []

    async def receive():
        if not waiting:
            await asyncio.sleep(60)
        return waiting.pop(0)

    async def send(message):
        sent.append(message)

    waiting = list(messages)
    scope = {
        "type": "http",
        "method": "POST",
        "raw_path": CALL.encode(),
        "query_string": b"",
        "headers": [],
    }
    asyncio.run(front(scope, receive, send))
    return sent[0]["status"], sent[1]["body"]


def failing(error):
    calls = []

    def answer(request):
        calls.append(request)
        raise error("the server's name and its secrets")

    return httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="https://x"), calls


def anyone(_):
    return True


WHOLE = {"type": "http.request", "body": b"x"}


@pytest.mark.parametrize("error", [httpx.ReadError, httpx.ReadTimeout, httpx.RemoteProtocolError])
def test_what_may_have_been_heard_is_not_asked_again(error):
    client, calls = failing(error)
    assert asked(Front(client, anyone), WHOLE) == (503, b"")
    assert len(calls) == 1


def test_a_server_that_does_not_come_back():
    client, calls = failing(httpx.ConnectError)
    assert asked(Front(client, anyone, patience=0.3), WHOLE) == (503, b"")
    assert len(calls) > 1


def test_what_does_not_come_whole_is_not_passed_on():
    client, calls = failing(httpx.ReadError)
    part = {"type": "http.request", "body": b"x", "more_body": True}
    front = Front(client, anyone, largest=3, patience=0.1)
    for messages, status in (
        ([part], 503),  # slow
        ([part] * 4, 413),  # too long
        ([part, {"type": "http.disconnect"}], 503),
    ):
        assert asked(front, *messages) == (status, b"")
    assert not calls
    assert asked(front, part, part, WHOLE)[0] == 503


def test_all_calls_together_hold_no_more_than_is_allowed():
    client, calls = failing(httpx.ReadError)
    front = Front(client, anyone, most=5, held=3)  # as if others were waiting with three bytes
    part = {"type": "http.request", "body": b"x", "more_body": True}
    assert asked(front, part, part, WHOLE) == (503, b"")
    assert not calls
    assert asked(front, part, WHOLE)[0] == 503  # passed on
    assert front.held == 3  # and forgotten, each time


def test_strangers_are_sent_away_before_they_are_listened_to(served):
    stranger = fresh_key()
    for headers in ({}, {"flwr-public-key": ""}, SIGNED | {"flwr-public-key": shown(stranger)}):
        answer = served.post(content=b"x", headers=headers)
        assert (answer.status_code, answer.content) == (401, b"")
    assert not served.heard
    path = served.folder / "g" / "gateway-2.pub"
    path.write_bytes(stranger)  # which makes it a gateway, at once
    assert served.post(content=b"x", headers=headers).status_code == 207
    path.unlink()
    assert served.post(content=b"x", headers=headers).status_code == 401
    assert served.post(content=b"x").status_code == 207


def test_what_is_no_key_admits_nobody(tmp_path):
    (tmp_path / "a.pub").write_bytes(GATEWAY)
    (tmp_path / "b.pub").write_bytes(b"\xff no key")
    admits = Gateways(tmp_path)
    assert admits(shown(GATEWAY).encode())
    assert not admits(b"")


def test_headers_are_limited(served):
    text = f"POST {CALL} HTTP/1.1\r\nHost: x\r\nX: {'x' * 200_000}\r\n\r\n"
    try:
        said = served.raw(text.encode(), enough=b"\r\n")
    except OSError:  # it was hung up on, and did not stop talking to hear why
        said = b" 400 "
    assert b" 400 " in said
    assert not served.heard
