"""What the endpoint does with calls that are slow or too much, without a server."""

import asyncio

import httpx
import pytest
from endpoints import CALL

from fedldp.fleet.server.endpoint import Endpoint


def asked(endpoint, *messages):
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
