"""`fedldp campaign` and `fedldp vehicle`, with a broker in memory."""

import json
import sys
from types import SimpleNamespace

import pytest
from brokers import Broker
from campaigns import PLAN, SCHEMA, packet, pump
from click.testing import CliRunner
from ledgers import made

import fedldp
from fedldp import Plan
from fedldp.budget.ledger import Ledger
from fedldp.campaigns import config
from fedldp.campaigns.agent import Agent
from fedldp.campaigns.answers import new_nonce
from fedldp.campaigns.counter import Counter
from fedldp.campaigns.mqtt import Broker as Mqtt
from fedldp.campaigns.store import Store
from fedldp.cli import app
from fedldp.errors import DomainError, MissingExtra


def run(*words, status=0):
    done = CliRunner().invoke(app.fedldp, [str(word) for word in words])
    problem = f"{done.exception}" if done.exit_code == 1 else ""
    assert done.exit_code == status, f"{done.output} {problem}"
    return (done.stdout if "--json" in words else done.output) + problem


@pytest.fixture
def server(tmp_path):
    """Return the folder of a server with a plan next to it."""
    run("campaign", "init", tmp_path / "server", "--fleet", "north", "--broker", "mqtt://localhost")
    (tmp_path / "plan.json").write_text(PLAN.to_json())
    return tmp_path / "server"


@pytest.fixture
def broker(monkeypatch):
    """Let all commands use a broker in memory, and wait for nothing."""
    found = Broker()
    monkeypatch.setattr(config, "_broker", lambda *_: SimpleNamespace(connect=found.connect))
    for name, seconds in {"silence": 0, "patience": 0.01, "tick": 0.001}.items():
        monkeypatch.setitem(Agent.__init__.__kwdefaults__, name, seconds)
    return found


@pytest.fixture
def car(server):
    """Return the folder of a vehicle."""
    folder = server.parent / "car-7"
    folder.mkdir()
    (folder / "schema.toml").write_text(SCHEMA.to_toml())
    (folder / "rows.csv").write_text("speed,city\n31,Oslo\n")
    (folder / "operator.pub").write_bytes((server / "operator.pub").read_bytes())
    entries = {
        "fleet": "north",
        "broker": "mqtt://localhost",
        "operator": "operator.pub",
        "data": "rows.csv",
        "schema": "schema.toml",
        "cap": "1.0",
    }
    (folder / "vehicle.toml").write_text("".join(f'{k} = "{v}"\n' for k, v in entries.items()))
    made(folder / "ledger.db")
    return folder


def publish(server, *words, status=0):
    plan = server.parent / "plan.json"
    return run("campaign", "publish", server, plan, "--job", "spring", *words, status=status)


def test_the_key_is_for_its_owner_and_never_replaced(server):
    assert (server / "operator.key").stat().st_mode & 0o777 == 0o600
    key = (server / "operator.key").read_bytes()
    words = "campaign", "init", server, "--fleet", "north", "--broker", "mqtt://localhost"
    assert "already" in run(*words, status=1)
    assert (server / "operator.key").read_bytes() == key


@pytest.mark.parametrize(
    "url", ["localhost", "http://localhost", "mqtt://", "mqtt://a:b", "mqtt://a/b"]
)
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(DomainError, match="broker must be an address such as mqtts://"):
        Mqtt.of(url)


def test_without_the_package_the_command_says_what_to_install(monkeypatch):
    for name in ("paho", "paho.mqtt"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match="Install the extra 'mqtt'"):
        Mqtt.of("mqtt://localhost").connect("client")


def test_a_campaign_is_signed_without_a_network(server):
    found = json.loads(publish(server, "--sign-only", "--json"))
    assert (found["job"], found["round"]) == ("spring", 1)
    assert (server / "spring-1.campaign").exists()
    text = publish(server, "--sign-only", "--hours", 99)
    assert "Signed round 1 of job spring" in text
    (server.parent / "plan.json").write_text(Plan(SCHEMA, epsilon=0.5).to_json())
    assert "needs a new round" in publish(server, "--sign-only", status=1)
    publish(server, "--sign-only", "--round", 2)
    assert [each["round"] for each in status(server)] == [1, 2]


def status(server):
    return json.loads(run("campaign", "status", server, "--json"))["campaigns"]


def test_from_publishing_to_a_tally(server, car, broker):
    assert "There are no campaigns" in run("campaign", "status", server)
    assert "Published round 1" in publish(server)
    campaign = server / "spring-1.campaign"
    assert "at least one counter" in run(
        "campaign", "close", campaign, "-o", car.parent / "tally.json", status=1
    )
    with Store(server / "spring-1.counter.db", campaign.read_text()) as store:
        counter = Counter(store, broker.connect)
        pump(counter, broker)
        broker.up = False
        assert "could not be reached" in run("vehicle", car, "--once", status=4)
        broker.up = True
        assert "not acknowledged yet" in run("vehicle", car, "--once", status=3)
        broker.up = False  # known to be pending, and not reached: the network alone decides
        assert "could not be reached" in run("vehicle", car, "--once", status=4)
        broker.up = True
        broker.on_idle = lambda connection: (
            connection.client.startswith("counter-") or pump(counter, broker)
        )
        run("vehicle", car, "--once")
        run("vehicle", car, "--once")  # there is nothing more to do
        asked = json.loads(run("fleet", "transparency", car, "--json"))["questions"]
        assert [(each["job"], each["plan"]) for each in asked] == [("spring", PLAN.fingerprint)]
        broker.on_idle = lambda _connection: None
    (found,) = status(server)
    assert (found["state"], found["answers"]) == ("open", 1)
    assert "job spring, round 1: open" in run("campaign", "status", server)
    tally = car.parent / "tally.json"
    words = "campaign", "close", campaign, "-o", tally
    assert "is not finished" in run(*words, status=1)
    assert "1 vehicle in" in run(*words, "--early")
    assert broker.retained == {}
    assert status(server)[0]["state"] == "ended"
    assert PLAN.load_tally(tally).reports == 1
    done = CliRunner().invoke(app.fedldp, [*map(str, words), "--json"])
    assert json.loads(done.stdout)["vehicles"] == 1
    with Ledger(car / "ledger.db", 1) as ledger:
        assert ledger.totals() == {"vehicle": 1}


@pytest.mark.usefixtures("broker")
def test_a_counter_runs_until_the_round_ends(server):
    publish(server)
    campaign = server / "spring-1.campaign"
    with Store(server / "spring-1.late.db", campaign.read_text()) as store:
        store.finish()
    assert "0 answers" in run("campaign", "count", campaign, "--counter", "late")
    with config.alone(server / "spring-1.late.db"):
        text = run("campaign", "count", campaign, "--counter", "late", status=1)
        assert "another counter works on" in text
    assert "must have a name" in run("campaign", "count", campaign, "--counter", "a.b", status=1)
    words = "campaign", "close", campaign, "-o", server / "tally.json"
    assert "no vehicle has answered" in run(*words, status=3)
    assert not (server / "tally.json").exists()


@pytest.mark.usefixtures("broker")
def test_closing_says_what_did_not_count(server):
    publish(server)
    campaign, name = server / "spring-1.campaign", new_nonce()
    one, two, *_ = {packet(source=fedldp.source(seed)) for seed in range(99)}
    for number, body in enumerate((one, two)):
        with Store(server / f"spring-1.c{number}.db", campaign.read_text()) as store:
            store.add([name + body, b"x" * 16 + one, b"bad"])
    text = run("campaign", "close", campaign, "--early", "-o", server / "tally.json")
    assert "Several counters had 1 answer; each counts once" in text
    assert "1 identifier came with different packets" in text
    assert "Refused messages, by reason: length 2" in text


def test_a_later_round_stays_published(server, broker):
    publish(server)
    campaign = server / "spring-1.campaign"
    with Store(server / "spring-1.counter.db", campaign.read_text()) as store:
        store.add([new_nonce() + packet()])
    publish(server, "--round", 2)
    later = dict(broker.retained)
    text = run("campaign", "close", campaign, "--early", "-o", server / "tally.json")
    assert "a later campaign of this job is published" in text
    assert broker.retained == later


def test_the_files_of_another_job_are_not_taken_for_those_of_a_campaign(tmp_path):
    for name in ("a-1.x.db", "a-1.x.db-wal", "a-1.b-2.x.db", "a-11.x.db", "a-1.campaign"):
        (tmp_path / name).touch()
    found = config.counters(tmp_path / "a-1.campaign")
    assert [path.name for path in found] == ["a-1.x.db"]


def test_the_owner_sees_what_would_be_replaced(car):
    run("vehicle", car, "--check")
    (car / "rows.csv").write_text("speed,city\n31,Atlantis\n")
    assert "Atlantis" in run("vehicle", car, "--check", status=1)
    (car / "rows.csv").unlink()
    run("vehicle", car, "--check", status=1)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('cap = "no"', "cap must be a positive number"),
        ('epsilon = "-1"', "epsilon must be a positive number"),
        ("every = 0", "every must be a positive number of seconds"),
        ("retry = nan", "retry must be a positive number of seconds"),
        ('period = "7 days"', "expected both"),
        ("fewest_vehicles = 2", "unknown entry"),
        ('fleet = "a/b"', "fleet must be 1 to 64 letters"),
    ],
)
def test_an_invalid_configuration_is_refused_at_once(car, line, why):
    path, name = car / "vehicle.toml", line.partition(" ")[0]
    lines = [each for each in path.read_text().splitlines() if not each.startswith(f"{name} ")]
    path.write_text("\n".join([*lines, line]))
    assert why in run("vehicle", car, "--once", status=1)


def test_a_vehicle_whose_ledger_is_missing_answers_nothing(car):
    for end in ("", "-head"):
        (car / f"ledger.db{end}").unlink()
    run("vehicle", car, "--once", status=1)
    assert not (car / "ledger.db").exists()
