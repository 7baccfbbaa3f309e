"""The page of a server and its metrics: what they show while agents answer."""

import contextlib
import http.client
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from engine_cases import OPERATOR, PLAN, answer_to, statistic, training
from fleet_server import OPEN
from prometheus_client.parser import text_string_to_metric_families
from road_client import Client
from server_process import HOST, ServerProcess, wait_until

from fedldp.results.tally import from_json
from fedldp_fleet.insight import estimates
from fedldp_fleet.server import observer as observers
from fedldp_fleet.server.observer import MOST_SHARE, Observer
from fedldp_fleet.server.status import status

HOSTILE = "<img src=x onerror=window.broken=1>"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server with a statistic that is done and a training of which a round is."""
    made = ServerProcess(tmp_path_factory.mktemp("fleet") / "server")
    made.add(statistic(wanted=200, schedule=OPEN), OPERATOR)
    made.add(training(rounds=3, group=1, schedule=OPEN), OPERATOR)
    made.enroll("never")
    made.start()
    client = Client.joined(made, "depot", vehicles=200)
    wait_until(lambda: made.job("learn").state == "running")
    [spring] = [each for each in client.call(spring=200).offers if each.job == "spring"]
    asked = client.question(spring)
    assert client.announce("spring", 1)
    client.deliver(answer_to(asked, "depot", spring.place.vehicles))
    client.visit("learn")
    client.connection.close()
    wait_until(lambda: made.job("spring").state == "done" and made.job("learn").round == 2)
    wait_until(lambda: made.read(lambda store: store.heard()))
    yield made
    made.stop()


@pytest.fixture
def other(tmp_path):
    made = ServerProcess(tmp_path / "server").start()
    yield made
    made.stop()


def ask(server, path, **headers):
    with contextlib.closing(http.client.HTTPConnection(HOST, server.page_port)) as connection:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.headers, response.read()


def test_the_status_has_jobs_agents_results_and_problems(server):
    status, _, body = ask(server, "/status.json")
    document = json.loads(body)
    assert status == 200
    assert [(each["name"], each["state"], each["answers"]) for each in document["jobs"]] == [
        *[("spring", "done", 200), ("learn", "running", 1)],
    ]
    assert document["jobs"][0]["epsilon"] == [2.0]
    agents = {"enrolled": 2, "joined": 1, "revoked": 0, "vehicles": 200, "heard": 1}
    assert document["agents"] == agents  # heard over HTTPS; the tests of other roads say so too
    tally = from_json(server.job("spring").result, PLAN)
    expected = estimates(tally, PLAN.schema).document()
    assert document["results"]["spring"] == json.loads(json.dumps(expected))
    assert document["results"]["learn"]["title"] == "Gradients"
    assert document["problems"] == []
    assert ask(server, "/healthz")[0] == 200


def test_metrics_follow_the_conventions(server):
    status, headers, body = ask(server, "/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain")
    samples = {
        (each.name, *each.labels.values()): each.value
        for family in text_string_to_metric_families(body.decode())
        for each in family.samples
    }
    assert samples["fedldp_job_answers_total", "spring"] == 200
    assert samples["fedldp_job_state", "learn", "running"] == 1
    assert samples["fedldp_job_state", "spring", "running"] == 0
    assert samples["fedldp_agents", "joined"] == 1
    assert samples["fedldp_problems",] == 0
    assert samples["fedldp_disk_free_bytes",] > 0
    assert samples["process_resident_memory_bytes",] > 1e6
    assert ("fedldp_job_round_deadline_timestamp_seconds", "spring") not in samples
    assert ask(server, "/metrics", Accept="text/plain; version=abc")[0] == 200


def test_the_page_answers_to_this_machine_alone_and_cannot_be_framed(server):
    for path in ("/", "/page.js", "/page.css", "/icon.svg"):
        status, headers, body = ask(server, path)
        assert (status, bool(body)) == (200, True)
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    for path in ("/", "/status.json", "/metrics"):
        assert ask(server, path, Host="evil.example")[0] == 421
    assert ask(server, "/v1/call")[0] == 404


def test_looking_takes_a_small_share_of_the_time(tmp_path, monkeypatch):
    """However many callers there are, and however long a look takes."""
    folder = ServerProcess(tmp_path / "server").folder
    now, looks = [0.0], []

    def slow(*given, **options):
        looks.append(now[0])
        now[0] += 2.0
        return status(*given, **options)

    monkeypatch.setattr(observers, "status", slow)
    with contextlib.closing(folder.store()) as store:
        observer = Observer(folder, store, clock=lambda: now[0])
        while now[0] < 200:
            observer.look()
            now[0] += 0.1
    assert 2.0 * len(looks) <= 1.2 * MOST_SHARE * 200 + 2.0


def test_a_problem_is_told(other):
    other.add(training("late", rounds=9, group=1, schedule=OPEN), OPERATOR)
    client = Client.joined(other, "liar")
    wait_until(lambda: other.job("late").state == "running")
    [offer] = [each for each in client.call(late=1).offers if each.job == "late"]
    asked = client.question(offer)
    client.deliver(replace(answer_to(asked, "liar"), report=b"noise"))
    client.connection.close()
    status, _, body = wait_until(lambda: (found := ask(other, "/healthz"))[0] == 503 and found)
    assert status == 503
    assert "answers to the job late are refused" in json.loads(body)["reasons"][0]


@pytest.mark.browser
def test_the_page_in_a_browser(server):
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))
    from browser import browser

    with browser() as page:
        for width in (1280, 360):
            page.size(width, 900)
            page.open(f"http://{HOST}:{server.page_port}/")
            page.wait("!document.querySelector('main').hidden")
            text = page.text("body").replace("\xa0", " ")
            assert "200 of 200 (100%)" in text
            assert "Estimates from 200 reports" in text
            assert "Gradients" in text
            wide = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
            assert page.evaluate(wide)
            # What has a name of a job in it is text.
            page.evaluate(f"showJobs([{{...{json.dumps(job_called(HOSTILE))}}}], Date.now())")
            assert page.evaluate("document.querySelectorAll('img').length") == 0
        assert page.errors == []


def job_called(name):
    counts = dict.fromkeys(("answers", "wanted", "late", "refused", "round"), 1)
    texts = {"state": "running", "reason": "", "stage": "", "closes": "2030-01-01T00:00:00+00:00"}
    return {"name": name, "rounds": 1, "epsilon": [1.0], **counts, **texts}
