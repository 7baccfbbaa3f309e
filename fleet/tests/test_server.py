"""The server over its road: real TLS, a real store, requests that are forged in each way."""

import dataclasses
import hashlib
import time

import pytest
from engine_cases import answer_to, statistic
from fleet_server import OPEN, running
from road_client import Client, authentic, connect, exchange

from fedldp_fleet import road
from fedldp_fleet.messages import AnswerVerdict, Call
from fedldp_fleet.server.guard import UNKNOWN

CALL = Call({}).to_bytes()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("server")) as found:
        found.add(statistic("open", wanted=1 << 20, schedule=OPEN))
        found.tick()
        yield found


@pytest.fixture
def join(server):
    """Return a function that joins an agent, whose connection is closed at the end."""
    joined = []

    def join(agent, vehicles=1):
        joined.append(Client.joined(server, agent, vehicles))
        return joined[-1]

    yield join
    for each in joined:
        each.connection.close()


@pytest.fixture
def stranger(server):
    connection = connect(server)
    yield connection
    connection.close()


def test_agents_join_and_answer_until_a_statistic_is_done(server, join):
    server.add(statistic("three", wanted=3, schedule=OPEN))
    server.tick()
    clients = [join(f"three-{number}") for number in range(4)]
    said = [each.visit("three") for each in clients]
    assert [each and each.verdict for each in said] == [AnswerVerdict.COUNTED] * 3 + [None]
    server.tick()
    assert server.job("three").state == "done"


def test_the_signed_job_is_fetched_by_its_hash(server, join):
    client = join("reader")
    [offer] = [each for each in client.call(open=1).offers if each.job == "open"]
    text = client.reply("GET", f"/v1/job/{offer.signed}")
    assert text.decode() == server.job("open").signed
    assert hashlib.sha256(text).hexdigest() == offer.signed
    for path in (f"/v1/job/{'0' * 64}", f"/v1/question/{offer.signed}", "/v1/question/x"):
        assert client.send("GET", path)[0] == 404


def test_a_code_is_used_once(server, stranger):
    code = server.enroll("once")
    for text, status in ((code[:-1] + "?", 403), (code, 200), (code, 403), ("once:", 403)):
        assert exchange(stranger, "POST", "/v1/join", road.join_bytes(text))[0] == status
    again = server.enroll("twice")
    assert again != server.enroll("twice")
    assert exchange(stranger, "POST", "/v1/join", road.join_bytes(again))[0] == 403


OTHER = hashlib.sha256(b"other").hexdigest()
FORGED = {
    "agent": {"Fedldp_Agent": "open-2"},
    "unknown agent": {"Fedldp_Agent": "nobody"},
    "no agent": {"Fedldp_Agent": None},
    "time": {"Fedldp_Time": str(int(time.time()) - 60)},
    "no time": {"Fedldp_Time": None},
    "nonce": {"Fedldp_Nonce": "00" * 16},
    "no nonce": {"Fedldp_Nonce": None},
    "body": {"Fedldp_Body": OTHER},
    "no body": {"Fedldp_Body": None},
    "code": {"Fedldp_Mac": OTHER},
    "no code": {"Fedldp_Mac": None},
}


@pytest.mark.parametrize("changed", FORGED.values(), ids=FORGED)
def test_a_request_with_a_forged_header_is_refused(join, request, changed):
    client = join(f"forged-{request.node.callspec.id.replace(' ', '-')}")
    assert client.send("POST", "/v1/call", CALL)[0] == 200
    assert client.send("POST", "/v1/call", CALL, **changed) == (401, UNKNOWN)
    assert client.send("POST", "/v1/call", CALL)[0] == 200


def test_a_request_is_for_its_method_path_length_and_body_alone(join):
    client = join("exact")
    for method, path, body in (
        ("PUT", "/v1/call", CALL),
        ("POST", "/v1/announce", CALL),
        ("POST", "/v1/call?x", CALL),
        ("POST", "/v1/call", CALL[:-1] + b" "),
        ("POST", "/v1/call", CALL + b" "),
    ):
        headers = authentic("exact", client.secret, "POST", "/v1/call", CALL)
        given = headers | {"Content-Length": str(len(body))}
        assert exchange(client.connection, method, path, body, given)[0] in (401, 405), path
    assert client.send("POST", "/v1/call", CALL)[0] == 200


def test_a_nonce_is_used_once(join):
    client, other = join("nonce-1"), join("nonce-2")
    nonce = "ab" * 16
    assert client.send("POST", "/v1/call", CALL, nonce=nonce)[0] == 200
    assert client.send("POST", "/v1/call", CALL, nonce=nonce) == (401, UNKNOWN)
    assert other.send("POST", "/v1/call", CALL, nonce=nonce)[0] == 200


@pytest.mark.parametrize(("seconds", "status"), [(-290, 200), (290, 200), (-310, 401), (310, 401)])
def test_clocks_that_differ_too_much_are_told_the_time(join, seconds, status):
    client = join(f"clock{seconds}")
    found, reply = client.send("POST", "/v1/call", CALL, now=time.time() + seconds)
    assert found == status
    if status == 401:
        assert abs(road.clock_in(reply) - time.time()) < 10


def test_a_length_is_required_and_limited(join):
    client = join("lengths")
    for length, status in ((None, 411), ("x", 411), ("9" * 5000, 411), (str(1 << 24), 413)):
        headers = authentic("lengths", client.secret, "POST", "/v1/call", b"")
        if length == str(1 << 24):
            line = [headers[name] for name in (road.TIME, road.NONCE)]
            lines = ("POST", "/v1/call", *line, length, headers[road.BODY])
            headers[road.MAC] = road.mac(client.secret, *(each.encode() for each in lines))
        del headers["Content-Length"]
        client.connection.putrequest("POST", "/v1/call")
        for name, value in (headers | ({"Content-Length": length} if length else {})).items():
            client.connection.putheader(name, value)
        client.connection.endheaders()  # the body never comes: it is refused before
        reply = client.connection.getresponse()
        assert reply.status in (status, 400), length
        reply.read()
        client.connection.close()


def test_bytes_that_are_no_message_are_refused(join):
    client = join("noise")
    for path in ("/v1/call", "/v1/announce", "/v1/answer", "/v1/join"):
        assert client.send("POST", path, b"noise")[0] == 400


@pytest.mark.parametrize("path", ["/v2/call", "/v0", "/", "/v1/other", "/v99/answer"])
def test_other_versions_get_fixed_bytes(stranger, path):
    found = exchange(stranger, "GET", path)
    assert found == (404, b'{"format":"fedldp versions 1","versions":[1]}')


def test_a_revoked_agent_is_refused_from_then_on(server, join):
    client = join("revoked")
    [offer] = [each for each in client.call(open=1).offers if each.job == "open"]
    asked = client.question(offer)
    server.revoke("revoked")  # by another connection to the store, as another process does it
    assert client.send("POST", "/v1/answer", answer_to(asked, "revoked").to_bytes())[0] == 401
    assert client.send("POST", "/v1/call", CALL) == (401, UNKNOWN)
    rejoined = join("revoked")
    assert rejoined.send("POST", "/v1/call", CALL)[0] == 200
    assert client.send("POST", "/v1/call", CALL) == (401, UNKNOWN)


def test_an_old_secret_works_until_the_new_one_is_used(join):
    old = join("rotating")
    new, same = old.rotated(), old.rotated()
    assert new.secret == same.secret != old.secret
    assert old.send("POST", "/v1/call", CALL)[0] == 200
    assert new.send("POST", "/v1/call", CALL)[0] == 200
    assert old.send("POST", "/v1/call", CALL) == (401, UNKNOWN)
    assert new.rotated().send("POST", "/v1/call", CALL)[0] == 200


def test_no_more_answers_of_an_agent_count_than_it_is_enrolled_for(join):
    client = join("stuffer", vehicles=2)
    [offer] = [each for each in client.call(open=50).offers if each.job == "open"]
    assert offer.place.vehicles == 2
    asked = client.question(offer)
    said = [client.deliver(answer_to(asked, "stuffer", seed=number)) for number in range(4)]
    assert [each.verdict for each in said] == [AnswerVerdict.COUNTED] * 2 + [
        AnswerVerdict.REFUSED
    ] * 2


def test_an_answer_is_counted_once_however_often_it_is_sent(server, join):
    client = join("repeating")
    [offer] = [each for each in client.call(open=1).offers if each.job == "open"]
    answer = answer_to(client.question(offer), "repeating")
    before = server.rounds("open")[0].answers
    assert {client.deliver(answer).verdict for _ in range(3)} == {AnswerVerdict.COUNTED}
    other = dataclasses.replace(answer, report=answer.report[:-1] + b"\0")
    assert client.deliver(other).verdict in (AnswerVerdict.REFUSED, AnswerVerdict.COUNTED)
    assert server.rounds("open")[0].answers == before + 1
