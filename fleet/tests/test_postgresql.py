"""Several processes on one PostgreSQL behind nginx: kills, a restored dump, servers by mistake."""

import contextlib
import datetime
import random
import threading
import time

import pytest
from agent_cases import LIBRARY, Party, Time
from click.testing import CliRunner
from engine_cases import OPERATOR, PLAN, statistic, training
from fleet_server import OPEN
from proxied_fleet import ProxiedFleet
from road_client import Client
from server_process import free_port, wait_until

from fedldp.errors import DomainError
from fedldp.results.tally import from_json
from fedldp.vehicle import exact
from fedldp_fleet.engine import INCARNATION
from fedldp_fleet.messages import AnswerVerdict, Call
from fedldp_fleet.server import backup
from fedldp_fleet.server.commands import server_group

pytestmark = pytest.mark.postgresql

KILLS = 5  # of each process


@pytest.fixture
def postgresql():
    """Return a PostgreSQL of its own, for tests that kill it."""
    from postgresql_server import PostgreSQLServer

    server = PostgreSQLServer(free_port()).start()
    yield server
    server.stop()


@pytest.fixture
def make_fleet(tmp_path):
    with contextlib.ExitStack() as opened:

        def make(database, name="server", processes=2):
            fleet = ProxiedFleet(tmp_path / name, database, processes)
            opened.callback(fleet.stop)
            return fleet

        yield make


@pytest.fixture
def party(tmp_path):
    """Return a function that joins an agent with one vehicle and a ledger of its own."""
    with contextlib.ExitStack() as opened:

        def party(fleet, name):
            path, context = tmp_path / f"{name}.json", LIBRARY.https.tls(fleet.path / "ca.pem")
            LIBRARY.https.join(fleet.url, fleet.enroll(name), context).save(path)
            membership = LIBRARY.https.Membership.load(path)
            road = LIBRARY.https.HTTPSRoad(membership, context, path)
            opened.callback(road.close)
            clock = Time(datetime.datetime.now(datetime.UTC).timestamp())
            clock.sleep = clock.sleeps.append
            made = Party(None, None, "one", name, road=road, time=clock)
            opened.callback(made.close)
            return made

        yield party


def run_command(*words):
    found = CliRunner().invoke(server_group, [*map(str, words)], catch_exceptions=False)
    return found.output


def answers(fleet, job):
    return sum(each.answers for each in fleet.read(lambda store: store.rounds(job)))


def test_processes_behind_nginx_are_one_server(make_fleet, postgresql_server):
    """An agent that joins, rotates its secret or is revoked is known to all at once."""
    fleet = make_fleet(postgresql_server.make_database("one-server"), processes=3)
    fleet.add(statistic(wanted=12, schedule=OPEN), OPERATOR)
    fleet.start()
    wait_until(lambda: fleet.job("spring").state == "running")
    said = []
    for number in range(12):
        client = Client.joined(fleet, f"car-{number}").rotated()
        said.append(client.visit("spring").verdict)
        client.connection.close()
    assert said == [AnswerVerdict.COUNTED] * 12
    wait_until(lambda: fleet.job("spring").state == "done")
    assert from_json(fleet.job("spring").result, PLAN).reports == 12


def test_a_job_that_gets_more_rounds_is_known_to_all_processes(make_fleet, postgresql_server):
    fleet = make_fleet(postgresql_server.make_database("extended"), processes=3)
    fleet.start()
    for rounds in (1, 2):
        fleet.add(training(rounds=rounds, group=9, schedule=OPEN), OPERATOR)
        wait_until(lambda: fleet.job("learn").state == "running")
        for number in range(9):
            client = Client.joined(fleet, f"car-{rounds}-{number}")
            assert client.visit("learn").verdict is AnswerVerdict.COUNTED
            client.connection.close()
        wait_until(lambda: fleet.job("learn").state == "done")
    assert [each.answers for each in fleet.read(lambda store: store.rounds("learn"))] == [9, 9]


def test_an_agent_that_is_revoked_is_refused_by_all_processes(make_fleet, postgresql_server):
    fleet = make_fleet(postgresql_server.make_database("revoked"), processes=3)
    fleet.start()
    client = Client.joined(fleet, "car-7")
    for _ in range(3):
        client.call()
    assert '"running": true' in run_command("status", fleet.path, "--json")
    run_command("revoke", fleet.path, "car-7")
    for _ in range(3):
        assert client.send("POST", "/v1/call", Call({}).to_bytes())[0] == 401
        client.connection.close()


def killed_in_turn(parts, done):
    """Kill each part several times, in random order; each stays dead for a while."""
    draws = random.Random(7)
    order = [part for part in parts for _ in range(KILLS)]
    draws.shuffle(order)
    for kill, start in order:
        kill()
        time.sleep(draws.uniform(0.0, 0.5))
        start()
        done.append(kill)


def test_kills_of_processes_and_of_postgresql_lose_and_repeat_nothing(
    make_fleet, postgresql, party
):
    fleet = make_fleet(postgresql.make_database("fleet"))
    fleet.add(training(rounds=6, group=4, schedule=OPEN), OPERATOR)
    fleet.add(statistic(wanted=24, schedule=OPEN), OPERATOR)
    fleet.start()
    wait_until(lambda: fleet.job("spring").state == fleet.job("learn").state == "running")
    agents = [party(fleet, f"car-{number}") for number in range(24)]
    parts = [(each.kill, lambda each=each: each.start().wait()) for each in fleet.processes]
    parts.append((postgresql.kill, postgresql.start))
    done = []
    killer = threading.Thread(target=killed_in_turn, args=(parts, done))
    killer.start()
    while killer.is_alive():  # agents come one after another, as the kills do
        for each in agents[: 2 + len(done)]:
            each.visit()
    assert len(done) == KILLS * len(parts)
    for _ in range(100):
        for each in agents:
            each.visit()
        if all(fleet.job(name).state == "done" for name in ("spring", "learn")):
            break
    assert [answers(fleet, name) for name in ("spring", "learn")] == [24, 24]
    assert from_json(fleet.job("spring").result, PLAN).reports == 24
    for name in ("spring", "learn"):
        stored = fleet.read(
            lambda store, name=name: sum(
                store.answered(name, each.number) for each in store.rounds(name)
            )
        )
        assert stored == 24
        assert not fleet.read(lambda store, name=name: store.uncounted(name))
    assert [each.spent() for each in agents] == [exact(4)] * 24


def test_a_restored_dump_takes_over(make_fleet, postgresql_server, party):
    """The dump has one answer of two that were acknowledged: the agent of the other resends it."""
    first = postgresql_server.make_database("before")
    fleet = make_fleet(first)
    fleet.add(statistic(wanted=3, schedule=OPEN), OPERATOR)
    fleet.start()
    wait_until(lambda: fleet.job("spring").state == "running")
    agents = [party(fleet, f"car-{number}") for number in range(3)]
    agents[0].visit(), agents[0].visit()
    before = fleet.read(lambda store: store.value(INCARNATION))
    dump = postgresql_server.dump("before")
    agents[1].visit(), agents[1].visit()
    assert answers(fleet, "spring") == 2
    spent = [each.spent() for each in agents]
    for each in fleet.processes:
        each.kill()
    second = postgresql_server.make_database("after")
    postgresql_server.load("after", dump)
    config = fleet.path / "server.toml"
    config.write_text(config.read_text().replace(first, second))
    fleet.folder = type(fleet.folder).load(fleet.path)
    for each in fleet.processes:
        each.start().wait()
    assert fleet.read(lambda store: store.value(INCARNATION)) != before
    assert answers(fleet, "spring") == 1
    for each in agents[:2]:
        each.visit(), each.visit()
    assert answers(fleet, "spring") == 2
    assert [each.spent() for each in agents] == spent
    agents[2].visit(), agents[2].visit()
    wait_until(lambda: fleet.job("spring").state == "done")
    assert from_json(fleet.job("spring").result, PLAN).reports == 3


def test_two_servers_by_mistake_make_nobody_pay_twice(
    make_fleet, postgresql_server, party, tmp_path
):
    """A backup is restored while the old server runs, and nginx sends agents to both in turn."""
    fleet = make_fleet(postgresql_server.make_database("old"), processes=2)
    [old, new] = fleet.processes
    fleet.add(statistic(wanted=3, schedule=OPEN), OPERATOR)
    fleet.start()
    wait_until(lambda: fleet.job("spring").state == "running")
    agents = [party(fleet, f"car-{number}") for number in range(3)]
    agents[0].visit(), agents[0].visit()
    assert answers(fleet, "spring") == 1
    new.stop()
    backup.back_up(fleet.folder, tmp_path / "backup")
    database = postgresql_server.make_database("new")
    new.path = backup.restore(tmp_path / "backup", tmp_path / "new", database=database).folder.path
    new.start().wait()
    for _ in range(10):
        for each in agents[:2]:
            each.visit()
    assert all(each.spent() <= exact(2) for each in agents)
    new.stop()
    for each in agents:
        each.visit(), each.visit(), each.visit()
    wait_until(lambda: fleet.job("spring").state == "done")
    assert from_json(fleet.job("spring").result, PLAN).reports == 3
    assert [each.spent() for each in agents] == [exact(2)] * 3
    old.stop()


def test_a_store_of_another_server_is_refused(make_fleet, postgresql_server):
    url = postgresql_server.make_database("taken")
    fleet = make_fleet(url)
    with_password = url.replace("fedldp@", "fedldp:secret@")
    refusal = "there is a server's store in postgresql://fedldp@127.0.0.1"
    with pytest.raises(DomainError, match=refusal):
        make_fleet(with_password, "second")
    other = make_fleet(postgresql_server.make_database("free"), "third")
    config = other.path / "server.toml"
    config.write_text(config.read_text().replace("/free", "/taken"))
    with pytest.raises(DomainError, match="belongs to another server"):
        type(other.folder).load(other.path).store()
    fleet.folder.store().close()


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_a_postgresql_that_forgets_is_refused(postgresql, setting):
    from fedldp_fleet.store.postgresql import PostgreSQLStore

    url = postgresql.make_database("careless")
    postgresql.execute("careless", f"ALTER SYSTEM SET {setting} = off")
    postgresql.execute("careless", "SELECT pg_reload_conf()")
    wait_until(lambda: postgresql.execute("careless", f"SHOW {setting}") == "off")
    with pytest.raises(DomainError, match=f"PostgreSQL runs with {setting} = off"):
        PostgreSQLStore(url)


def test_commits_are_on_disk_whatever_the_database_says(postgresql_server):
    from fedldp_fleet.store.postgresql import Session

    url = postgresql_server.make_database("hasty")
    postgresql_server.execute("hasty", 'ALTER DATABASE "hasty" SET synchronous_commit = off')
    session = Session(url, "test")
    assert session.execute("SHOW synchronous_commit") == [("on",)]
    session.close()


def test_the_lock_of_a_process_that_stops_is_given_to_another(postgresql_server, monkeypatch):
    from fedldp_fleet.store import postgresql as module

    monkeypatch.setitem(module._OPTIONS, "idle_in_transaction_session_timeout", "200ms")
    url = postgresql_server.make_database("stopped")
    one, other = module.PostgreSQLStore(url), module.PostgreSQLStore(url)

    def stop_in_a_transaction():
        with one.transaction() as inside:
            inside.set_value("by", "one")
            with other.transaction() as waiting:  # until PostgreSQL ends the first one
                assert waiting.value("by") == ""
                waiting.set_value("by", "other")

    with pytest.raises(OSError, match="PostgreSQL failed"):
        stop_in_a_transaction()
    with one.reading() as inside:
        assert inside.value("by") == "other"
    one.close(), other.close()
