"""The uplink passes a gateway's calls on, keeps them waiting, and lets in one app and no other."""

import asyncio
import hashlib
import os
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from time import monotonic, sleep

import httpx
import pytest
from endpoints import CALL, Door, backend, fresh_key, headers, write_certificates
from flwr.proto.fab_pb2 import Fab, GetFabResponse
from flwr.proto.run_pb2 import GetRunResponse, Run

from fedldp.errors import DomainError
from fedldp.fleet import keys
from fedldp.fleet.flower import bundle
from fedldp.fleet.gateway.process import GatewayConfig
from fedldp.fleet.gateway.uplink import Checked, checked_app, checked_run, proxy
from fedldp.fleet.isolation import SOCKETS
from fedldp.fleet.processes import free_port

APP = b"an app"
PIN = hashlib.sha256(APP).hexdigest()
RUN = {
    "fab_id": "fedldp/fedldp-fleet",
    "fab_version": "1.0.0",
    "fab_hash": PIN,
    "primary_task_type": "flwr-serverapp",
}


def run(**changes):
    return GetRunResponse(run=Run(run_id=7, **(RUN | changes))).SerializeToString()


def app(content, named=PIN):
    return GetFabResponse(fab=Fab(hash_str=named, content=content)).SerializeToString()


def test_a_run_of_the_known_app_is_passed_on():
    assert checked_run(run(), PIN) == run()


@pytest.mark.parametrize(
    "changes",
    [
        {"fab_hash": "0" * 64},
        {"fab_hash": ""},
        {"fab_id": "/"},
        {"fab_id": "../.."},
        {"fab_id": "a/b/c"},
        {"fab_version": "/../../tmp/evil"},
        {"fab_version": ""},
        {"primary_task_type": "flwr-agentapp"},
        {"primary_task_type": ""},
    ],
    ids=str,
)
def test_any_other_run_is_refused(changes):
    with pytest.raises(DomainError, match=r"^refused"):
        checked_run(run(**changes), PIN)


def test_the_known_app_is_passed_on_and_nothing_with_it():
    sent = GetFabResponse(fab=Fab(hash_str="x", content=APP, verifications={"a": "b"}))
    found = GetFabResponse.FromString(checked_app(sent.SerializeToString(), PIN))
    assert found == GetFabResponse(fab=Fab(hash_str=PIN, content=APP))


@pytest.mark.parametrize(
    "content",
    [
        app(b"another app"),
        app(b""),
        app(APP) + app(b"another app"),  # of two, Flower takes the last
        b"",
        b"\xff",
    ],
)
def test_any_other_app_is_refused(content):
    with pytest.raises(DomainError, match=r"^refused"):
        checked_app(content, PIN)
    assert checked_app(app(b"another app") + app(APP), PIN) == app(APP)


def asked(answers, *calls):
    """Return what a SuperNode gets when the server answers in this way; also how often it asked."""
    touched = []

    def handle(request):
        return httpx.Response(**answers[request.url.path])

    async def ask():
        transport = Checked(httpx.MockTransport(handle), PIN, lambda: touched.append(1))
        async with httpx.AsyncClient(transport=transport, base_url="https://h") as client:
            return [await client.post(call) for call in calls]

    return asyncio.run(ask()), len(touched)


def test_answers_are_read_where_an_app_could_come_from(caplog):
    kind = {"content-type": "application/protobuf", "location": "https://elsewhere", "x": "y"}
    answers = {
        "/v1/fleet/get-run": {"status_code": 200, "content": run(fab_hash="1"), "headers": kind},
        "/v1/fleet/get-fab": {"status_code": 200, "content": app(APP), "headers": kind},
        "/v1/fleet/pull-messages": {"status_code": 307, "content": b"m", "headers": kind},
        "/v1/fleet/activate-node": {"status_code": 503},
    }
    found, count = asked(answers, *answers, "/v1/fleet/get-run")
    assert [each.status_code for each in found] == [403, 200, 307, 503, 403]
    assert [each.content for each in found] == [b"", app(APP), b"m", b"", b""]
    assert not any({"location", "x"} & set(each.headers) for each in found)
    assert found[1].headers["content-type"] == "application/protobuf"
    assert count == 2  # for a message, and to be let in
    assert caplog.text.count("refused an app with the SHA-256 '1'") == 1


def test_an_answer_that_is_too_long_is_not_kept(monkeypatch):
    monkeypatch.setattr("fedldp.fleet.gateway.uplink.LARGEST", 10)
    with pytest.raises(httpx.RemoteProtocolError):
        asked(
            {"/v1/fleet/pull-object": {"status_code": 200, "content": bytes(11)}},
            "/v1/fleet/pull-object",
        )


# As a process


@pytest.fixture
def gateway(tmp_path):
    """The folder of a gateway with a vault on TCP, and the server's keys beside it."""
    server, folder = tmp_path / "server", tmp_path / "gateway"
    for path in (server, folder):
        path.mkdir()
    write_certificates(server)
    (folder / "token").write_text("secret")
    port, vault = free_port(), free_port()
    (folder / "gateway.toml").write_text(
        f'server = "127.0.0.1:{port}"\nauthority = "../server/ca.crt"\nkey = "key"\n'
        f'vaults = ["tcp://127.0.0.1:{vault}", "v.sock"]\ntoken = "token"\n'
    )
    keys.write_node(folder / "key")
    return GatewayConfig.load(folder)


@contextmanager
def uplink(gateway, sockets):
    descriptors = [each.fileno() for each in sockets]
    environment = os.environ | {SOCKETS: ",".join(map(str, descriptors))}
    argv = gateway.uplink_process(()).argv
    with subprocess.Popen(argv, pass_fds=descriptors, env=environment) as popen:
        try:
            yield popen
        finally:
            popen.terminate()
            popen.wait(60)


def test_calls_wait_until_the_server_is_there(gateway, tmp_path):
    """The handshake is not cut: it is the uplink's own. And the vault on TCP is reached."""
    heard = []
    port = int(gateway.server.rpartition(":")[2])
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_server(("127.0.0.1", 0)) as to_vault,
        socket.create_server((gateway.distant[0].host, gateway.distant[0].port)) as vault,
        uplink(gateway, [listening, to_vault]),
    ):
        until_made(gateway.certificate)
        door = Door(gateway.certificate.parent, listening.getsockname()[1], 0, [])
        answers = []
        thread = threading.Thread(
            target=lambda: answers.append(
                door.post(CALL, headers=headers(fresh_key()), content=b"call")
            )
        )
        thread.start()
        sleep(1.0)  # in which it is refused by the server's machine, and tries again
        assert thread.is_alive()
        with backend(tmp_path / "server", port, heard):
            thread.join()
        assert (answers[0].status_code, answers[0].content) == (207, b"call")
        assert len(heard) == 1
        assert gateway.pulse.exists()
        with socket.create_connection(to_vault.getsockname()) as link:
            there, _ = vault.accept()
            with there:
                link.sendall(b"question")
                assert there.recv(99) == b"question"
                there.sendall(b"answer")
                assert link.recv(99) == b"answer"
            assert link.recv(99) == b""


def until_made(path):
    deadline = monotonic() + 60
    while not path.exists():
        assert monotonic() < deadline
        sleep(0.05)


def test_a_proxy_of_the_environment_is_used_for_the_server(monkeypatch):
    for name in ("https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert proxy("fleet.example.org:9443") is None
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,fleet.example.net,::1")
    assert proxy("fleet.example.org:9443") == "http://proxy:3128"
    for server in ("fleet.example.net:9443", "127.0.0.1:9443", "[::1]:9443"):
        assert proxy(server) is None


def test_the_number_of_sockets_must_fit(gateway):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        words = [sys.executable, "-m", "fedldp", "fleet", "uplink", str(gateway.folder)]
        environment = os.environ | {SOCKETS: str(listening.fileno())}
        done = subprocess.run(
            words, pass_fds=[listening.fileno()], env=environment, capture_output=True, text=True
        )
    assert done.returncode == 1
    assert "needs 2 listening sockets" in done.stderr


def test_the_certificate_is_made_once(gateway):
    gateway.certify()
    before = gateway.certificate.read_bytes()
    gateway.certify()
    assert gateway.certificate.read_bytes() == before
    assert gateway.certificate_key.stat().st_mode & 0o077 == 0
    assert sorted(path.name for path in gateway.state.iterdir()) == ["uplink"]
    assert sorted(path.name for path in gateway.certificate.parent.iterdir()) == [
        "ca.crt",
        "server.crt",
        "server.key",
    ]


def test_the_hash_of_the_app_that_fleets_have(tmp_path):
    """Flower, of whatever version, packs it into the same bytes."""
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(bundle.APP)
    assert bundle.sha256(folder) == bundle.SHA256
    (folder / "more.py").touch()
    assert bundle.sha256(folder) != bundle.SHA256
