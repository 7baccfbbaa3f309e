"""How many answers came from whom, as the broker knows the senders: it is counted and shown."""

import json
import sqlite3
from contextlib import closing

import pytest
from campaigns import KEY, PLAN, ROW, Vehicles, asked, count, published, store
from click.testing import CliRunner

import fedldp
from fedldp.campaigns.agent import Agent
from fedldp.campaigns.campaign import utc_now
from fedldp.campaigns.config import ServerConfig, counter_file
from fedldp.campaigns.store import Store, merge
from fedldp.cli.app import fedldp as command

QUICK = {"patience": 0.02, "silence": 0, "tick": 0.001}


def answers(number_of_answers, seed=1):
    source = fedldp.source(seed)
    return [
        bytes([seed, *number.to_bytes(15)]) + PLAN.report([ROW], source).to_bytes()
        for number in range(number_of_answers)
    ]


def test_new_answers_count_for_their_sender(tmp_path):
    first, second, third = answers(3)
    with store(tmp_path) as found:
        found.add([first, second, first, b"damaged"], ["car-1", "car-2", "car-3", "car-4"])
        found.add([second, third], ["car-3", "car-1"])
        found.add(answers(2, seed=2))
        assert found.identities == {"car-1": 2, "car-2": 1, "": 2}
        found.finish()
        assert merge([found]).identities == found.identities


def test_the_counter_takes_the_name_from_the_topic(tmp_path):
    """What else stands in a topic is nobody's name."""
    broker, campaign = published(), asked()
    with store(tmp_path) as found, Vehicles(tmp_path / "cars", cap="9") as cars:
        count([found], broker, identities=True)
        for identity in ("car-1", ""):
            agent = Agent(
                cars.answers(f"key {identity}"), broker.connect, **QUICK, identity=identity
            )
            assert agent.visit().pending == 0
        assert found.identities == {"car-1": 1, "": 1}
    topics = {topic for _, topic, _ in broker.published if "/answers/" in topic}
    assert topics == {campaign.answers, f"{campaign.answers}/car-1"}
    assert campaign.identity(f"{campaign.answers}/a/b") is None
    assert campaign.identity(campaign.topic) is None


def test_a_file_of_an_earlier_version_is_counted_on(tmp_path):
    with store(tmp_path) as found:
        found.add(answers(2))
    with closing(sqlite3.connect(found.path)) as file:
        file.execute("DROP TABLE identities")
        file.execute("PRAGMA user_version = 1")
        file.commit()
    with Store(found.path) as again:
        assert (again.received, again.identities) == (2, {})
        again.add(answers(1, seed=2), ["car-1"])
        assert again.identities == {"car-1": 1}


@pytest.fixture
def server(tmp_path):
    """Return a folder whose round has 300 answers under one certificate, and four others."""
    config = ServerConfig.create(tmp_path / "server", "north", "mqtts://localhost")
    assert config.entries["identities"] is True
    campaign = asked(issued=utc_now())
    path = config.path(campaign)
    path.write_text(campaign.signed(KEY))
    for name, seed in (("one", 1), ("two", 2)):
        with Store(counter_file(path, name), path.read_text()) as found:
            found.add(answers(150, seed), ["evil\x1b[0m"] * 150)
            found.add(answers(4, seed + 2), [f"car-{name}", f"bus-{name}", "", ""])
            found.finish()
    return path


def test_status_and_close_show_it_and_warn(server):
    for words in (
        ["status", str(server.parent)],
        ["close", str(server), "--offline", "-o", str(server.parent / "tally.json")],
    ):
        result = CliRunner().invoke(command, ["campaign", *words])
        assert result.exit_code == 0, result.output
        assert "from 5 known senders" in result.stdout
        assert "warning: 1 sender whom the broker knows sent several answers" in result.stderr
        assert "'evil\\x1b[0m' (300)" in result.stderr  # as it cannot harm a terminal
        assert "warning: 4 answers without an identity" in result.stderr
        found = json.loads(CliRunner().invoke(command, ["campaign", *words, "--json"]).stdout)
        assert found.get("campaigns", [found])[0]["senders"] == {
            "identities": 5,
            "several_answers": 1,
            "most_answers": [["evil\x1b[0m", 300]],
            "answers_without_identity": 4,
        }
