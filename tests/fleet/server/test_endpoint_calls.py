"""What the endpoint does with calls that are slow or too much, without a server."""

import asyncio
import socket
import ssl

import httpx
import pytest
from endpoints import CALL, fresh_key, public, signed

from fedldp.fleet import keys
from fedldp.fleet.server import endpoint as endpoint_module
from fedldp.fleet.server import registrations
from fedldp.fleet.server.admission import Gateways
from fedldp.fleet.server.endpoint import Endpoint, serve
from fedldp.fleet.server.registrations import Early


def asked(endpoint, *messages, call=CALL):
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
        "raw_path": call.encode(),
        "query_string": b"",
        "headers": [],
    }
    asyncio.run(endpoint(scope, receive, send))
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
    assert asked(Endpoint(client, anyone), WHOLE) == (503, b"")
    assert len(calls) == 1


def test_a_server_that_does_not_come_back():
    client, calls = failing(httpx.ConnectError)
    assert asked(Endpoint(client, anyone, patience=0.3), WHOLE) == (503, b"")
    assert len(calls) > 1


def test_what_does_not_come_whole_is_not_passed_on():
    client, calls = failing(httpx.ReadError)
    part = {"type": "http.request", "body": b"x", "more_body": True}
    endpoint = Endpoint(client, anyone, largest=3, patience=0.1)
    for messages, status in (
        ([part], 503),  # slow
        ([part] * 4, 413),  # too long
        ([part, {"type": "http.disconnect"}], 503),
    ):
        assert asked(endpoint, *messages) == (status, b"")
    assert not calls
    assert asked(endpoint, part, part, WHOLE)[0] == 503


def test_all_calls_together_hold_no_more_than_is_allowed():
    client, calls = failing(httpx.ReadError)
    endpoint = Endpoint(
        client, anyone, most=5, held=3
    )  # as if others were waiting with three bytes
    part = {"type": "http.request", "body": b"x", "more_body": True}
    assert asked(endpoint, part, part, WHOLE) == (503, b"")
    assert not calls
    assert asked(endpoint, part, WHOLE)[0] == 503  # passed on
    assert endpoint.held == 3  # and forgotten, each time


@pytest.mark.parametrize(("status", "told"), [(200, 1), (401, 0), (500, 0)])
def test_what_flower_has_accepted_was_used(status, told):
    found = []
    transport = httpx.MockTransport(lambda _: httpx.Response(status))
    client = httpx.AsyncClient(transport=transport, base_url="https://x")
    assert asked(Endpoint(client, anyone, found.append), WHOLE)[0] == status
    assert found == [[]] * told


def accepting(status=200):
    calls = []
    transport = httpx.MockTransport(lambda each: calls.append(each) or httpx.Response(status))
    return httpx.AsyncClient(transport=transport, base_url="https://x"), calls


ACTIVATE = "/v1/fleet/activate-node"


def test_a_gateway_that_is_early_waits_until_it_is_registered():
    """Flower would refuse its key, and the SuperNode would end, with a warning."""
    client, calls = accepting()
    looks = [True, True, False]
    endpoint = Endpoint(client, anyone, early=lambda _: looks.pop(0))
    assert asked(endpoint, WHOLE, call=ACTIVATE)[0] == 200
    assert (looks, len(calls)) == ([], 1)


def test_a_gateway_that_is_never_registered_may_try_again():
    client, calls = accepting()
    endpoint = Endpoint(client, anyone, early=lambda _: True, patience=0.3)
    assert asked(endpoint, WHOLE, call=ACTIVATE) == (503, b"")
    assert not calls
    assert asked(endpoint, WHOLE)[0] == 200  # other calls do not wait


def test_what_flower_refuses_is_not_hidden():
    client, calls = accepting(401)
    endpoint = Endpoint(client, anyone, early=lambda _: False)
    assert asked(endpoint, WHOLE, call=ACTIVATE)[0] == 401
    assert len(calls) == 1


def test_which_keys_are_early(tmp_path):
    """Those in the folder that are not registered: not revoked ones, and not those of 0.1."""
    folder, state, key = tmp_path / "gateways", tmp_path / "state", fresh_key()
    folder.mkdir()
    state.mkdir()
    line = public(key).decode()
    (folder / "gateway-1.pub").write_text(f"{line} somebody@somewhere\n")
    gateways = Gateways(folder)
    headers = [(name.encode(), value.encode()) for name, value in signed(key).items()]
    early = Early(state, gateways)
    assert gateways(headers)
    assert early(headers)
    for node in ("1201", "", registrations.REVOKED):
        registrations.save(state, {line: node})
        assert not early(headers)
    registrations.save(state, {"another key": "7"})
    assert early(headers)
    (state / "registered.json").write_text("damaged")
    assert not early(headers)


def test_new_connections_get_a_new_certificate(tmp_path, monkeypatch):
    monkeypatch.setattr(endpoint_module, "_LOOK", 0.01)
    keys.write_server(tmp_path, tmp_path / "ca.key", [])
    certificate, key = tmp_path / "server.crt", tmp_path / "server.key"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = listening.getsockname()

        def shown():
            return ssl.get_server_certificate(address, ca_certs=tmp_path / "ca.crt")

        async def main():
            client = httpx.AsyncClient()
            serving = asyncio.create_task(
                serve(Endpoint(client, anyone), certificate, key, listening)
            )
            first = await asyncio.to_thread(shown)
            # One file without the other: connections get the old certificate.
            old = key.read_bytes()
            key.write_bytes(b"")
            await asyncio.sleep(0.1)
            assert await asyncio.to_thread(shown) == first
            key.write_bytes(old)
            keys.renew_server(certificate, key, tmp_path / "ca.crt", tmp_path / "ca.key")
            while (found := await asyncio.to_thread(shown)) == first:
                await asyncio.sleep(0.01)
            serving.cancel()
            return found

        found = asyncio.run(asyncio.wait_for(main(), 60))
    assert found.strip() == certificate.read_text().strip()
