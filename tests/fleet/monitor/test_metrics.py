"""Metrics in Prometheus' format: what they say, and what they cannot say."""

import copy
import re
import sys
from importlib import resources

import pytest
from monitored import GATEWAY, SERVER, VAULT, Given, ask, monitoring
from prometheus_client.parser import text_string_to_metric_families

from fedldp import __version__
from fedldp.errors import MissingExtra
from fedldp.fleet.monitor import metrics
from fedldp.fleet.monitor.observe import Observer

TEMPLATES = resources.files("fedldp.fleet") / "templates" / "prometheus"

EVERY = [each for families in metrics.FAMILIES.values() for each in families]


def samples(folder, *documents):
    observer = Observer(folder, read=lambda _: [Given(each) for each in documents])
    text = metrics.text(observer.look, "")[0].decode()
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation.endswith("."), family.name
        for each in family.samples:
            labels = {k: v for k, v in each.labels.items() if k not in ("part", "name")}
            found[each.name, *labels.values()] = each.value
    return found


def changed(document, **entries):
    made = copy.deepcopy(document)
    made["job"] |= entries
    return made


def test_what_a_server_says(tmp_path):
    found = samples(tmp_path, SERVER)
    expected = {
        ("fedldp_build_info", __version__): 1,
        ("fedldp_running",): 1,
        ("fedldp_started_timestamp_seconds",): 1794816000,
        ("fedldp_problems",): 0,
        ("fedldp_job_round",): 3,
        ("fedldp_job_rounds",): 12,
        ("fedldp_job_epsilon",): 4,
        ("fedldp_job_state", "asking"): 1,
        ("fedldp_job_state", "done"): 0,
        ("fedldp_job_reports", "answered"): 41_250,
        ("fedldp_job_reports", "silent"): 640,
        ("fedldp_job_reports", "refused or absent"): 12,
        ("fedldp_job_reports_expected",): 294_611,
        ("fedldp_job_vehicles_asked",): 49_102,
        ("fedldp_job_round_opened_timestamp_seconds",): 1794816000 + 14 * 60,
        ("fedldp_job_round_deadline_timestamp_seconds",): 1794816000 + 19 * 60,
        ("fedldp_job_round_gateways_asked",): 3,
        ("fedldp_job_round_gateways_answered",): 2,
        ("fedldp_implausible_counts",): 0,
        ("fedldp_gateways", "silent"): 1,
        ("fedldp_gateways", "revoked"): 0,
        ("fedldp_gateway_state", "gateway-3", "silent"): 1,
        ("fedldp_gateway_state", "gateway-3", "answered"): 0,
        ("fedldp_gateway_heard_timestamp_seconds", "gateway-3"): 1794816000 + 2 * 60,
        ("fedldp_gateway_reports", "gateway-1"): 20_625,
        ("fedldp_gateway_received_bytes", "gateway-1"): 61_875,
    }
    assert {name: found.get(name) for name in expected} == expected
    assert 0 < found["fedldp_disk_free_bytes",] <= found["fedldp_disk_size_bytes",]
    assert not [name for name, *_ in found if "vault" in name]


def test_what_a_vault_says(tmp_path):
    found = samples(tmp_path, VAULT)
    assert found["fedldp_vault_vehicles",] == 300
    assert found["fedldp_vault_budget_left_vehicles", "4.0"] == 100
    assert found["fedldp_vault_answers", "flights"] == 200
    assert found["fedldp_vault_questions", "refused"] == 1
    assert not [name for name, *_ in found if "job" in name or "implausible" in name]
    free = int(found["fedldp_disk_free_bytes",])
    assert free & (free - 1) == 0, "a vault shows its free disk only coarsely"


def test_what_a_gateway_says(tmp_path):
    found = samples(tmp_path, GATEWAY)
    assert found["fedldp_server_connected",] == 1
    assert found["fedldp_vault_state", "silent", "vault-1"] == 1
    assert found["fedldp_vault_state", "answered", "vault-1"] == 0
    assert found["fedldp_vault_heard_timestamp_seconds", "vault-1"] == 1794816000 + 5 * 60


def test_what_is_unknown_is_left_out(tmp_path):
    """A job that has not begun, and one that cannot be read."""
    found = samples(tmp_path, changed(SERVER, state="not begun", open=None, rate=None))
    assert found["fedldp_job_state", "not begun"] == 1
    assert ("fedldp_job_round_opened_timestamp_seconds",) not in found
    unreadable = {k: v for k, v in SERVER.items() if k not in ("gateways",)} | {"job": None}
    found = samples(tmp_path, unreadable)
    assert found["fedldp_running",] == 1
    assert not [name for name, *_ in found if name.startswith(("fedldp_job", "fedldp_gateway"))]


def test_parts_of_a_fleet_are_told_apart(tmp_path):
    observer = Observer(tmp_path, read=lambda _: [Given(SERVER), Given(VAULT)])
    text = metrics.text(observer.look, "")[0].decode()
    assert 'fedldp_running{name="server",part="server"} 1.0' in text
    assert 'fedldp_running{name="vault-1",part="vault"} 1.0' in text
    assert text.count("# HELP fedldp_running ") == 1


def test_a_hostile_name_stays_a_label(tmp_path):
    name = 'x"} 1\nfedldp_running{part="server"} 0\\'
    hostile = copy.deepcopy(SERVER)
    hostile["gateways"][0]["name"] = name
    found = samples(tmp_path, hostile)
    assert found["fedldp_gateway_reports", name] == 20_625
    assert found["fedldp_running",] == 1


def test_a_server_cannot_fill_the_memory_with_names(tmp_path):
    """The names of jobs in a vault's ledger come from servers."""
    jobs = [{"job": str(i), "rounds": 1, "answers": 1, "refused": 0} for i in range(5000)]
    found = samples(tmp_path, VAULT | {"jobs": jobs})
    assert len([name for name, *_ in found if name == "fedldp_vault_answers"]) == metrics.MOST


def test_every_metric_of_the_alert_rules_exists():
    rules = (TEMPLATES / "fedldp-rules.yml").read_text()
    named = set(re.findall(r"\bfedldp_\w+", rules))
    assert len(named) >= 8
    assert named <= {each.name for each in EVERY}
    states = set(re.findall(r'state=~?"([^"]*)"', rules))
    known = {*metrics.JOB_STATES, *metrics.GATEWAY_STATES, *metrics.VAULT_STATES}
    assert {each for text in states for each in text.split("|")} <= known


def test_names_and_units_follow_the_conventions():
    for each in EVERY:
        assert re.fullmatch(r"fedldp(_[a-z]+)+", each.name)
        assert not each.name.endswith("_total"), "these are gauges, read from files"
        assert set(each.labels).isdisjoint({"job", "instance", "part", "name"})
    assert len({each.name for each in EVERY}) == len({id(each) for each in EVERY})


def test_prometheus_chooses_the_format(tmp_path):
    with monitoring(tmp_path, VAULT) as address:
        _, headers, text = ask(address, "/metrics", Accept="text/plain;version=0.0.4")
        assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert "# EOF" not in text
        _, headers, text = ask(address, "/metrics", Accept="application/openmetrics-text")
        assert headers["Content-Type"].startswith("application/openmetrics-text")
        assert text.endswith("# EOF\n")


def test_without_the_package_the_others_still_work(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "fedldp.fleet.monitor.metrics")
    with monitoring(tmp_path, VAULT) as address:
        status, _, text = ask(address, "/metrics")
        assert ask(address, "/healthz")[0] == 200
    assert status == 501
    assert text == f"{MissingExtra('prometheus-client', 'monitor')}\n"


@pytest.mark.parametrize("document", [SERVER, GATEWAY, VAULT], ids=lambda each: each["part"])
def test_only_named_entries_are_exported(tmp_path, document):
    """New entries of a status, such as texts from logs, never become metrics by themselves."""
    before = samples(tmp_path, document)
    more = document | {"secret": 41, "errors": [{"time": "", "level": "", "text": "secret"}]}
    after = samples(tmp_path, more)
    assert before.keys() == after.keys()


@pytest.mark.parametrize("kind", ["application/openmetrics-text", "text/plain"])
def test_a_caller_that_accepts_nonsense_gets_the_usual_format(kind, tmp_path):
    """It must not be able to fill the log with errors."""
    observer = Observer(tmp_path, read=lambda _: [Given(SERVER)])
    assert metrics.text(observer.look, f"{kind};version=abc") == metrics.text(observer.look, "")
