"""The endpoint passes on what gateways ask, as they ask it; nobody else gets further."""

import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, sleep

import httpx
import pytest
from endpoints import (
    CALL,
    GATEWAY,
    Door,
    backend,
    fresh_key,
    headers,
    public,
    shown,
    write_certificates,
)

from fedldp.fleet.processes import free_port
from fedldp.fleet.server import registrations
from fedldp.fleet.server.endpoint import CALLS, LARGEST

REGISTERED = {GATEWAY.decode(): "1201"}
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


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    """The endpoint in a process of its own, as the server runs it, with nobody behind it yet."""
    folder = tmp_path_factory.mktemp("endpoint")
    write_certificates(folder)
    found = Door(folder, free_port(), free_port(), [])
    (folder / "g").mkdir()
    (folder / "g" / "gateway-1.pub").write_bytes(GATEWAY)
    (folder / "state").mkdir()
    registrations.save(folder / "state", REGISTERED)
    (folder / "server.toml").write_text(
        f'front = "127.0.0.1:{found.port}"\nlink = {found.link}\nauthority = "ca.crt"\n'
        'certificate = "server.crt"\nkey = "server.key"\ngateways = "g"\napp = "a"\njob = "j"\n'
    )
    argv = (sys.executable, "-m", "fedldp.fleet.server.endpoint", str(folder))
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


def test_a_new_gateway_waits_until_it_is_registered(served):
    """It is passed on when its key is registered, so that Flower does not refuse it."""
    state = served.folder / "state"
    registrations.save(state, {})
    try:
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(served.post, "/v1/fleet/activate-node", content=b"x")
            assert served.post(content=b"other calls do not wait").status_code == 207
            assert [path for _, path, *_ in served.heard] == [CALL]
            registrations.save(state, REGISTERED)
            assert waiting.result().status_code == 207
    finally:
        registrations.save(state, REGISTERED)
    assert [path for _, path, *_ in served.heard] == [CALL, "/v1/fleet/activate-node"]


def test_a_call_is_passed_on_as_it_is_and_nothing_with_it(served):
    body = bytes(range(256)) * 100
    sent = headers()
    answer = served.post(content=body, headers=sent | NOT_PASSED)
    assert (answer.status_code, answer.content) == (207, body)
    assert dict(answer.headers).keys() == {
        "date",
        "content-type",
        "content-length",
        "flwr-version-incompatibility-message",
    }
    [(method, path, heard, passed)] = served.heard
    heard = {name.lower(): value for name, value in heard.items()}
    assert (method, path, passed) == ("POST", CALL, body)
    assert {name: heard.get(name) for name in sent} == sent
    assert not heard.keys() & NOT_PASSED.keys()
    assert heard["host"] == f"127.0.0.1:{served.link}"


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
    proof = "\r\n".join(f"{name}: {value}" for name, value in headers().items())
    served.raw(
        f"POST {CALL} HTTP/1.1\r\nHost: x\r\n{proof}\r\n{first}\r\n\r\n"
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


def test_strangers_are_sent_away_before_they_are_listened_to(served):
    stranger = fresh_key()
    for refused in ({}, {"flwr-public-key": ""}, headers(stranger)):
        answer = served.post(content=b"x", headers=refused)
        assert (answer.status_code, answer.content) == (401, b"")
    assert not served.heard
    path = served.folder / "g" / "gateway-2.pub"
    path.write_bytes(public(stranger))  # which makes it a gateway, at once
    assert served.post(content=b"x", headers=headers(stranger)).status_code == 207
    path.unlink()
    assert served.post(content=b"x", headers=headers(stranger)).status_code == 401
    assert served.post(content=b"x").status_code == 207


def test_a_public_key_alone_does_not_make_the_front_read_a_body(served):
    """A stranger who knows the key of a gateway, but cannot sign: nothing of theirs is buffered."""
    stolen = headers() | {"flwr-signature": headers(fresh_key())["flwr-signature"]}
    for refused in ({"flwr-public-key": shown(GATEWAY)}, stolen):
        head = "\r\n".join(f"{name}: {value}" for name, value in refused.items())
        start = f"POST {CALL} HTTP/1.1\r\nHost: x\r\n{head}\r\nContent-Length: {LARGEST}\r\n\r\n"
        said = served.raw(start.encode(), enough=b"\r\n")  # no byte of the body was sent
        assert said.split()[1] == b"401"
    assert not served.heard


def test_headers_are_limited(served):
    text = f"POST {CALL} HTTP/1.1\r\nHost: x\r\nX: {'x' * 200_000}\r\n\r\n"
    try:
        said = served.raw(text.encode(), enough=b"\r\n")
    except OSError:  # it was hung up on, and did not stop talking to hear why
        said = b" 400 "
    assert b" 400 " in said
    assert not served.heard
