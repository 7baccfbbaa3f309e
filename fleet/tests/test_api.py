"""The API: its roles, what it does, and that it is as its OpenAPI document says."""

import json
import urllib.error
import urllib.request

import pytest
import schemathesis
from engine_cases import OPERATOR, statistic
from fleet_server import OPEN
from hypothesis import settings
from road_client import Client
from server_process import HOST, ServerProcess, wait_until

from fedldp.results.tally import from_json
from fedldp_fleet.messages import AnswerVerdict
from fedldp_fleet.server import administration, api
from fedldp_fleet.server.work import JobFile


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    made = ServerProcess(tmp_path_factory.mktemp("api") / "server")
    OPERATOR.public.save(made.path / "operator.pub")
    made.add(statistic("done", wanted=1, schedule=OPEN), OPERATOR)
    made.start()
    client = Client.joined(made, "car-1")
    wait_until(lambda: made.job("done").state == "running")
    assert client.visit("done").verdict is AnswerVerdict.COUNTED
    client.connection.close()
    wait_until(lambda: made.job("done").state == "done")
    yield made
    assert made.stop() == 0


@pytest.fixture(scope="module")
def made_tokens(server):
    def make(role):
        return server.change(
            lambda store: administration.create_token(store, f"the-{role}", role, "test")
        )

    return {role: make(role) for role in ("viewer", "operator")}


def ask(server, token, path, method="GET", body=None):
    """Return the status and the JSON of a reply."""
    url = f"http://{HOST}:{server.page_port}{api.BASE}{path}"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request) as reply:
            text = reply.read()
            return reply.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_a_viewer_reads(server, made_tokens):
    token = made_tokens["viewer"]
    status, found = ask(server, token, "/jobs")
    assert status == 200
    assert {"name": "done", "state": "done", "round": 1, "has_result": True} in [
        {name: value for name, value in job.items() if name != "reason"} for job in found
    ]
    assert ask(server, token, "/jobs/done")[1]["state"] == "done"
    assert ask(server, token, "/jobs/other")[0] == 404
    status, tally = ask(server, token, "/jobs/done/result")
    assert from_json(json.dumps(tally), server_plan(server)).reports == 1
    assert ask(server, token, "/status")[1]["running"] is True
    assert "car-1" in [each["agent"] for each in ask(server, token, "/members")[1]]
    assert ask(server, token, "/audit")[1][0]["action"] == "created"


def server_plan(server):
    from fedldp_fleet.jobs import read_job

    return read_job(server.job("done").document).plan


def test_an_operator_adds_jobs_and_agents(server, made_tokens):
    token = made_tokens["operator"]
    file = JobFile(statistic("spring", wanted=5, schedule=OPEN), server.folder.public)
    signed = json.loads(file.signed_by(OPERATOR).to_json())
    assert ask(server, token, "/jobs", "POST", signed) == (
        200,
        {"name": "spring", "done": "queued"},
    )
    assert ask(server, token, "/jobs", "POST", signed)[1]["done"] == "unchanged"
    assert ask(server, token, "/jobs", "POST", json.loads(file.to_json()))[0] == 409
    assert ask(server, token, "/jobs", "POST", {"no": "job"})[0] == 400
    agents = {"agents": [{"agent": f"new-{n}", "vehicles": 1} for n in range(3)]}
    status, found = ask(server, token, "/members", "POST", agents)
    assert status == 200
    client = Client.with_code(server, found["codes"][0])
    assert ask(server, token, "/members", "POST", agents)[0] == 409
    assert ask(server, token, "/members/new-0", "DELETE") == (204, None)
    with pytest.raises(AssertionError, match="401"):
        client.call()
    client.connection.close()
    assert ask(server, token, "/members/nobody", "DELETE")[0] == 404
    entries = ask(server, token, "/audit")[1]
    done = [(each["actor"], each["action"], each["subject"]) for each in entries]
    assert ("token the-operator", "revoked", "new-0") in done
    assert ("token the-operator", "job", "spring") in done


WRITES = [("POST", "/jobs"), ("POST", "/members"), ("DELETE", "/members/car-1")]
READS = ["/status", "/jobs", "/jobs/done", "/jobs/done/result", "/members", "/audit"]


@pytest.mark.parametrize(("method", "path"), [*(("GET", path) for path in READS), *WRITES])
def test_nobody_without_a_token_gets_anything(server, made_tokens, method, path):
    for token in ("", "the-viewer", f"{made_tokens['viewer']}x", "nobody:secret"):
        assert ask(server, token, path, method, {} if method == "POST" else None)[0] == 401


@pytest.mark.parametrize(("method", "path"), WRITES)
def test_a_viewer_changes_nothing(server, made_tokens, method, path):
    body = {} if method == "POST" else None
    assert ask(server, made_tokens["viewer"], path, method, body)[0] == 403


def test_every_operation_was_tried_without_a_token_and_as_a_viewer(server):
    listed = [operation for operation, _ in api.operations(server.folder, dict)]
    writes = {(each.method, each.path.replace("{name}", "car-1")) for each in listed if each.writes}
    reads = {each.path.replace("{name}", "done") for each in listed if not each.writes}
    assert (writes, reads) == (set(WRITES), set(READS))
    assert {each.role for each in listed if each.writes} == {"operator"}


def test_a_body_that_is_too_long_is_refused(server, made_tokens):
    body = {"agents": "x" * api.MOST_BODY_BYTES}
    assert ask(server, made_tokens["operator"], "/members", "POST", body)[0] == 413


def described():
    listed = [operation for operation, _ in api.operations(None, dict)]
    return schemathesis.openapi.from_dict(api.document(listed))


@described().parametrize()
@settings(max_examples=20)
def test_the_api_is_as_its_document_says(case, server, made_tokens):
    headers = {"Authorization": f"Bearer {made_tokens['operator']}"}
    case.call_and_validate(base_url=f"http://{HOST}:{server.page_port}", headers=headers)


def test_the_document_is_served(server):
    url = f"http://{HOST}:{server.page_port}{api.BASE}/openapi.json"
    with urllib.request.urlopen(url) as reply:
        listed = [operation for operation, _ in api.operations(server.folder, dict)]
        assert json.loads(reply.read()) == api.document(listed)
