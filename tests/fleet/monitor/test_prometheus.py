"""Alert rules and metrics in the real Prometheus: `promtool`, and a server that scrapes a fleet."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from importlib import resources
from pathlib import Path

import pytest
from fleet_parts import Fleet, edit, small_fleet, until
from monitored import GATEWAY, SERVER, VAULT, Given, ask, ask_json

from fedldp.fleet.monitor import metrics
from fedldp.fleet.monitor.address import MonitorAddress
from fedldp.fleet.monitor.observe import Observer
from fedldp.fleet.processes import free_port

pytestmark = pytest.mark.monitor

TEMPLATES = Path(str(resources.files("fedldp.fleet") / "templates" / "prometheus"))
TESTS = Path(__file__).with_name("rules_test.yml")


def promtool(*words, **options):
    done = subprocess.run(["promtool", *map(str, words)], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_rules_fire_when_they_should(tmp_path):
    for path in (*TEMPLATES.iterdir(), TESTS):
        shutil.copy(path, tmp_path)
    assert "SUCCESS" in promtool("test", "rules", tmp_path / TESTS.name)
    assert "SUCCESS" in promtool("check", "config", tmp_path / "prometheus.yml")


def test_every_rule_is_tested():
    """Each fires in one test at least, and no test is about a rule that does not exist."""
    rules = set(re.findall(r"alert: (\w+)", (TEMPLATES / "fedldp-rules.yml").read_text()))
    fires = r"alertname: (\w+)\n\s+eval_time: .*\n\s+exp_alerts:\n"
    assert set(re.findall(fires, TESTS.read_text())) == rules


@pytest.mark.parametrize("document", [SERVER, GATEWAY, VAULT], ids=lambda each: each["part"])
def test_metrics_are_as_prometheus_wants_them(tmp_path, document):
    observer = Observer(tmp_path, read=lambda _: [Given(document)])
    content, _ = metrics.text(observer.look, "")
    promtool("check", "metrics", input=content.decode())


@contextmanager
def prometheus(folder, targets):
    """Run Prometheus with the files that `fleet init` has written, but quickly."""
    path = folder / "prometheus" / "prometheus.yml"
    text = path.read_text().replace('["127.0.0.1:9480"]', json.dumps(targets))
    path.write_text(text.replace("15s", "1s"))
    rules = folder / "prometheus" / "fedldp-rules.yml"
    rules.write_text(re.sub(r"for: \d+m", "for: 2s", rules.read_text()))
    port = free_port()
    words = ["prometheus", f"--config.file={path}", f"--storage.tsdb.path={folder / 'tsdb'}"]
    words.append(f"--web.listen-address=127.0.0.1:{port}")
    with (folder / "prometheus.log").open("wb") as log:
        popen = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            yield port
        finally:
            popen.terminate()
            popen.wait(60)


def firing(port):
    """Return the alerts that fire now, with the gateway or the part that they are about."""
    try:
        with closing(HTTPConnection("127.0.0.1", port, timeout=30)) as link:
            link.request("GET", "/api/v1/alerts")
            found = json.loads(link.getresponse().read())["data"]["alerts"]
    except (OSError, ValueError):  # it is starting
        return None
    return {
        (each["labels"]["alertname"], each["labels"].get("gateway", each["labels"].get("name")))
        for each in found
        if each["state"] == "firing"
    }


def state(address):
    (part,) = ask_json(address, "/status.json")["parts"]
    return part["job"]["state"]


@pytest.fixture
def fleet(tmp_path):
    fleet = small_fleet(tmp_path / "fleet", 2)
    yield fleet
    fleet.close()


def test_a_silent_gateway_raises_an_alert(fleet):
    """It fires for the gateway that is missing and for no other, and ends when that has come."""
    watched = MonitorAddress("127.0.0.1", free_port())
    edit(fleet.folder / "server" / "server.toml", monitor=f'"127.0.0.1:{watched.port}"')
    with prometheus(fleet.folder, [f"127.0.0.1:{watched.port}"]) as port:
        for part in ("server", "vault-1", "vault-2", "gateway-1"):
            fleet.start(part)
        until(lambda: ("FedldpGatewaySilent", "gateway-2") in (firing(port) or ()), "the alert")
        # The other one has had time to connect.
        until(lambda: firing(port) == {("FedldpGatewaySilent", "gateway-2")}, "that alert alone")
        fleet.start("gateway-2")
        until(lambda: firing(port) == set(), "the end of the alert")
        until(lambda: (found := fleet.progress()) and found.ended, "the end of the job")
        assert not fleet.progress().failed
        # Whoever watches sees the end, before the server is gone.
        until(lambda: state(watched) == "done", "the news")
        assert fleet.popens["server"].wait(60) == 0


def test_the_demo_keeps_its_page(tmp_path):
    folder = tmp_path / "fleet"
    words = ["fleet", "demo", "--page", "--rows", 300, "--gateways", 1, "--rounds", 1, "-o", folder]
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        popen = subprocess.Popen(
            [sys.executable, "-m", "fedldp", *map(str, words)],
            stdout=out,
            stderr=err,
            env=os.environ,
            # A shell starts what runs in the background with Ctrl-C ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    try:
        said = (tmp_path / "err").read_text

        def page():
            return re.search(r"The live page is http://127\.0\.0\.1:(\d+)/", said())

        until(lambda: page() or popen.poll() is not None, "the address")
        address = MonitorAddress("127.0.0.1", int(page()[1]))
        assert "<!doctype html>" in ask(address, "/")[2]
        until(lambda: "until Ctrl-C" in said() or popen.poll() is not None, "the end of the job")
        assert popen.poll() is None, said()
        (part,) = json.loads(ask(address, "/status.json")[2])["parts"]
        assert part["job"]["state"] == "done"
        assert ask(address, "/healthz")[0] == 200
        popen.send_signal(signal.SIGINT)
        assert popen.wait(60) == 0, said()
        assert "gateway" in (tmp_path / "out").read_text()
    finally:
        popen.kill()
        popen.wait()
        Fleet(folder).close()
