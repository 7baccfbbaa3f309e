"""Metrics, alert rules and the dashboard in a real Prometheus, which scrapes a real fleet."""

import contextlib
import datetime
import http.client
import http.server
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.parse
from dataclasses import replace
from pathlib import Path

import agent_folder
import pytest
from engine_cases import OPERATOR, answer_to, statistic, training
from road_client import Client
from server_process import HOST, ServerProcess, free_port, wait_until

from fedldp_fleet.agent import metrics, service
from fedldp_fleet.jobs import Schedule
from fedldp_fleet.messages import AnswerVerdict
from fedldp_fleet.questions import Question
from fedldp_fleet.server.metrics import FAMILIES

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "fedldp-rules.yml"
CONFIG = RULES.with_name("prometheus.yml")
DASHBOARD = ROOT / "deploy" / "grafana" / "fedldp-dashboard.json"
RULE_TESTS = Path(__file__).parent / "fixtures" / "rules_test.yml"
PAGE = ROOT / "docs" / "operations.md"

NOW = datetime.datetime.now(datetime.UTC)
OPEN = Schedule(NOW - datetime.timedelta(hours=1), NOW + datetime.timedelta(hours=1))
VEHICLES = 40

STATUS = {
    "running": True,
    "cap": "4.0",
    "disk_free": 1 << 30,
    "disk_size": 1 << 31,
    "last_call": 1.5e9,
    "next_call": 1.6e9,
    "vehicles_that_answered": 5,
    "left": {"4.0": 2, "2.0": 2, "0.0": 1},
    "jobs": {"spring": 5, 'a "job"': 1},
}


def rules():
    """Return the expressions of the alert rules, by their names."""
    import yaml

    [group] = yaml.safe_load(RULES.read_text())["groups"]
    return {each["alert"]: each["expr"] for each in group["rules"]}


def dashboard():
    """Return the expressions of the dashboard, with the titles of their panels."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [(each["title"], target["expr"]) for each in panels for target in each["targets"]]


def names_in(expression):
    return set(re.findall(r"\b(fedldp_[a-z_]+)", re.sub(r"\([^()]*fedldp_job\)", "", expression)))


def test_the_metrics_of_an_agent_are_those_that_the_page_describes():
    lines = metrics.text(STATUS, ["something"]).splitlines()
    samples = dict(each.rsplit(" ", 1) for each in lines if not each.startswith("#"))
    assert samples["fedldp_agent_running"] == "1.0"
    assert samples["fedldp_problems"] == "1.0"
    left = [samples[f'fedldp_agent_budget_left_epsilon{{of="{of}"}}'] for of in ("least", "median")]
    assert left == ["0.0", "2.0"]
    assert samples['fedldp_agent_answers_total{fedldp_job="a \\"job\\""}'] == "1"
    page = PAGE.read_text("utf-8")
    names = {each.split("{")[0] for each in samples}
    assert [each for each in names if f"`{each}`" not in page] == []
    assert metrics.text({"running": False, "cap": "4.0"}, []).count("\n") == 12


def test_the_page_describes_the_metrics_of_the_server_and_the_rules():
    page = PAGE.read_text("utf-8")
    names = [each.name + "_total" * each.counts for each in FAMILIES]
    assert [each for each in [*names, *rules()] if f"`{each}`" not in page] == []


@pytest.mark.monitor
class TestPrometheus:
    """What needs `prometheus` and `promtool`."""

    def test_rules_fire_when_they_should(self, tmp_path):
        for path in (RULES, CONFIG, RULE_TESTS):
            shutil.copy(path, tmp_path)
        assert "SUCCESS" in promtool("test", "rules", tmp_path / RULE_TESTS.name)
        assert "SUCCESS" in promtool("check", "config", tmp_path / CONFIG.name)

    def test_every_rule_is_tested(self):
        fires = r"alertname: (\w+)\n\s+eval_time: .*\n\s+exp_alerts:\n"
        assert set(re.findall(fires, RULE_TESTS.read_text())) == set(rules())

    def test_metrics_of_agents_pass_the_linter(self):
        promtool("check", "metrics", given=metrics.text(STATUS, ["something"]))

    def test_every_expression_returns_a_series_of_a_running_fleet(self, watched):
        server, port = watched
        promtool("check", "metrics", given=fetch(server.page_port, "/metrics"))
        expressions = [*rules().items(), *dashboard()]
        assert len(expressions) > 30
        for name, expression in expressions:
            # Compared with `bool`, a series that is not alarming is a series too.
            compared = re.sub(r"(?<= )(==|[<>]=?)(?= )", r"\1 bool", expression)
            assert wait_until(lambda e=compared: query(port, e)), (name, compared)

    def test_alerts_fire_and_end(self, watched):
        server, port = watched
        stuffed = {"FedldpBallotsStuffed", "FedldpAnswersLate", "FedldpProblem"}
        wait_until(lambda: stuffed <= firing(port))
        assert not firing(port) & {"FedldpDown", "FedldpAgentDown", "FedldpDiskNearlyFull"}
        wait_until(lambda: "FedldpSignatureExpires" in firing(port))
        server.kill()
        wait_until(lambda: "FedldpDown" in firing(port))
        server.start()
        wait_until(lambda: "FedldpDown" not in firing(port))


def promtool(*words, given=None):
    done = subprocess.run(
        ["promtool", *map(str, words)], capture_output=True, text=True, input=given
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def fetch(port, path):
    with contextlib.closing(http.client.HTTPConnection(HOST, port)) as connection:
        connection.request("GET", path)
        return connection.getresponse().read().decode()


def query(port, expression):
    """Return the series that an expression returns now."""
    with contextlib.suppress(OSError, ValueError):  # it is starting
        found = fetch(port, f"/api/v1/query?query={urllib.parse.quote(expression)}")
        document = json.loads(found)
        assert document["status"] == "success", document
        return document["data"]["result"]
    return []


def firing(port):
    found = json.loads(fetch(port, "/api/v1/alerts"))["data"]["alerts"]
    return {each["labels"]["alertname"] for each in found if each["state"] == "firing"}


@contextlib.contextmanager
def collector(folder):
    """Serve what `fedldp agent status --metrics` has printed, as node_exporter does with files."""
    printed, ended = [b""], threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(printed[0])))
            self.end_headers()
            self.wfile.write(printed[0])

        def log_message(self, *_):
            pass

    def refresh():
        words = [sys.executable, "-m", "fedldp", "agent", "status", str(folder), "--metrics"]
        while not ended.wait(1.0):
            printed[0] = subprocess.run(words, capture_output=True, check=True).stdout

    with http.server.ThreadingHTTPServer((HOST, 0), Handler) as serving:
        threads = [threading.Thread(target=each) for each in (refresh, serving.serve_forever)]
        for each in threads:
            each.start()
        try:
            yield serving.server_port
        finally:
            ended.set()
            serving.shutdown()
            for each in threads:
                each.join()


@contextlib.contextmanager
def prometheus(folder, server, agents):
    """Run Prometheus with the example's files, but quickly."""
    text = CONFIG.read_text()
    for before, after in (("8480", server), ("9100", agents)):
        assert text.count(before) == 1
        text = text.replace(before, str(after))
    (folder / CONFIG.name).write_text(text.replace("15s", "1s"))
    (folder / RULES.name).write_text(re.sub(r"for: \d+[mh]", "for: 1s", RULES.read_text()))
    port = free_port()
    words = [f"--config.file={folder / CONFIG.name}", f"--storage.tsdb.path={folder / 'series'}"]
    words.append(f"--web.listen-address={HOST}:{port}")
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(["prometheus", *words], stdout=log, stderr=log)
        try:
            yield port
        finally:
            process.terminate()
            process.wait(60)


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """A fleet with a result, a training that waits, answers that are refused or late, an agent."""
    folder = tmp_path_factory.mktemp("fleet")
    with contextlib.ExitStack() as stack:
        server = ServerProcess(folder / "server")
        stack.callback(server.stop)
        server.add(statistic(wanted=VEHICLES, schedule=OPEN), OPERATOR)
        server.add(training(rounds=9, group=5 * VEHICLES, schedule=OPEN), OPERATOR)
        server.start()
        car = agent_folder.make(folder / "depot", OPERATOR, VEHICLES)
        code = server.enroll("depot", VEHICLES)
        service.join(car / service.NETWORK, server.url, code, server.path / "ca.pem")
        agent = agent_folder.start(car)
        stack.callback(agent.wait, 60)
        stack.callback(agent.send_signal, signal.SIGTERM)
        wait_until(lambda: server.job("spring").state == "done")
        agents = stack.enter_context(collector(car))
        port = stack.enter_context(prometheus(folder, server.page_port, agents))
        wait_until(lambda: query(port, "fedldp_job_answers_total"))
        liar = Client.joined(server, "liar", 2 * VEHICLES)
        stack.callback(liar.connection.close)
        asked = server.read(question_of_spring)
        for number in range(3):  # so that the counts grow while they are watched
            late = answer_to(asked, "liar", VEHICLES, seed=number)
            assert liar.deliver(late).verdict == AnswerVerdict.LATE
            noise = replace(answer_to(asked, "liar", 1, seed=number + 9), report=b"noise")
            assert liar.deliver(noise).verdict == AnswerVerdict.REFUSED
            seen = sum_of(server)
            wait_until(lambda seen=seen: counted(port) >= seen)
        yield server, port


def question_of_spring(store):
    [opened] = store.rounds("spring")
    return Question.from_bytes(store.question(opened.digest))


def sum_of(server):
    return sum(each.vehicles for each in server.read(lambda store: store.uncounted("spring")))


def counted(port):
    found = query(port, "sum(fedldp_job_answers_uncounted_total)")
    return float(found[0]["value"][1]) if found else 0.0
