"""Agents of both distributions over real TLS with the real server: joining, codes, clocks, cuts."""

import datetime
import threading
import time
from types import SimpleNamespace

import pytest
import trustme
from agent_cases import ALONE, LIBRARY, Party, Time
from engine_cases import OPERATOR, PLAN, statistic
from fleet_server import running

from fedldp.results.tally import from_json
from fedldp_fleet.agent.relay import Relay, SocketRoad
from fedldp_fleet.jobs import Schedule
from fedldp_fleet.store.base import DONE

NOW = datetime.datetime.now(datetime.UTC)
OPEN = Schedule(NOW - datetime.timedelta(hours=1), NOW + datetime.timedelta(hours=1))


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "server"
    folder.mkdir()
    with running(folder, operator=OPERATOR) as found:
        yield found


@pytest.fixture(params=["many", "one", "alone"])
def kind(request):
    return request.param


@pytest.fixture
def package(kind):
    return ALONE if kind == "alone" else LIBRARY


class Way:
    """A road with the file of its membership, and further roads of the same agent."""

    def __init__(self, server, package, tmp_path, vehicles=1):
        self.context, self.path = package.https.tls(server.ca), tmp_path / "membership.json"
        code = server.enroll("agent-0", vehicles)
        self.package, self.roads = package, []
        package.https.join(server.url, code, self.context).save(self.path)
        self.road = self.another()

    @property
    def membership(self):
        return self.package.https.Membership.load(self.path)

    def another(self, membership=None, context=None):
        given = membership or self.membership, context or self.context, self.path
        self.roads.append(self.package.https.HTTPSRoad(*given))
        return self.roads[-1]


@pytest.fixture
def joined(server, tmp_path):
    ways = []

    def joined(package, vehicles=1):
        ways.append(Way(server, package, tmp_path, vehicles))
        return ways[-1]

    yield joined
    for road in (road for way in ways for road in way.roads):
        road.close()


def real_time():
    clock = Time(time.time())
    clock.sleep = clock.sleeps.append  # no test waits for a tick
    return clock


@pytest.fixture
def party(joined, kind, package):
    made = []

    def make():
        made.append(Party(None, None, kind, road=joined(package).road, time=real_time()))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_an_agent_joins_and_answers(server, party):
    server.add(statistic(wanted=1, schedule=OPEN))
    server.tick()
    agent = party()
    agent.visit(), agent.visit()
    server.tick()
    assert server.job("spring").state == DONE
    assert from_json(server.job("spring").result, PLAN).reports == 1
    assert agent.outbox.counts() == {"spring": {"counted": 1}}
    assert agent.road.requests == 6  # two calls, job, question, announcement, answer
    assert agent.told == []


def test_a_code_is_used_once(server, package):
    code, context = server.enroll("once"), package.https.tls(server.ca)
    package.https.join(server.url, code, context)
    with pytest.raises(package.errors.DomainError, match="ask the operator for another"):
        package.https.join(server.url, code, context)


def test_the_membership_is_secret_and_read_again(joined, package, tmp_path):
    way = joined(package)
    assert way.path.stat().st_mode & 0o777 == 0o600
    assert way.membership.agent == "agent-0"
    way.another().call(package.messages.Call({}))
    with pytest.raises(package.errors.DomainError, match="and join with it"):
        package.https.Membership.load(tmp_path / "nothing.json")


def test_a_revoked_agent_is_unwelcome_and_spends_nothing(server, party, package):
    server.add(statistic(wanted=1, schedule=OPEN))
    server.tick()
    agent = party()
    agent.visit()
    server.revoke("agent-0")
    server.tick()
    with pytest.raises(package.roads.UnwelcomeError):
        agent.agent.visit()
    agent.visit()
    assert "has revoked it" in agent.told[0]
    assert agent.spent() == 0


def test_a_secret_is_rotated_without_a_stop(joined, package):
    way = joined(package)
    before = way.membership
    old = way.another(before)
    way.road.rotate()
    between = way.membership
    assert between.secret == before.secret
    assert between.next_secret
    old.call(package.messages.Call({}))  # a process that was not restarted
    way.road.call(package.messages.Call({}))
    after = way.membership
    assert (after.secret, after.next_secret) == (between.next_secret, b"")
    with pytest.raises(package.roads.UnwelcomeError):
        old.call(package.messages.Call({}))


def test_a_rotation_that_the_server_has_forgotten_is_undone(joined, package):
    way = joined(package)
    known = way.membership
    way.another(known._replace(next_secret=b"n" * 32)).call(package.messages.Call({}))
    assert way.membership == known


@pytest.mark.parametrize("hours", [-30, 30])
def test_a_wrong_clock_is_made_up_for(joined, package, monkeypatch, hours):
    way = joined(package)
    now = time.time
    fake = SimpleNamespace(time=lambda: now() + 3600 * hours)
    monkeypatch.setattr(package.https, "time", fake)
    way.road.call(package.messages.Call({}))
    way.road.call(package.messages.Call({}))
    assert way.road.requests == 3  # the clocks were compared once


def test_a_stranger_with_another_certificate_is_not_talked_to(joined, package, tmp_path):
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    road = joined(package).another(context=package.https.tls(tmp_path / "other.pem"))
    with pytest.raises(package.roads.RoadError, match="certificate verify failed"):
        road.call(package.messages.Call({}))


def test_a_server_that_is_restarted_is_called_again(server, joined, package):
    way = joined(package)
    way.road.call(package.messages.Call({}))
    server.stop()
    with pytest.raises(package.roads.RoadError, match="cannot be reached"):
        way.road.call(package.messages.Call({}))
    server.start()
    way.road.call(package.messages.Call({}))


def test_other_versions_of_the_road_are_named(joined, package, monkeypatch):
    way = joined(package)
    monkeypatch.setattr(way.road._connection, "prefix", "/v9")
    with pytest.raises(package.roads.RoadError, match="speaks no version"):
        way.road.call(package.messages.Call({}))


@pytest.mark.parametrize("url", ["http://localhost", "https://", "localhost", "https://a?b"])
def test_only_https_is_spoken(package, url):
    with pytest.raises(package.errors.DomainError, match="must be like https"):
        package.https.join(url, "code", package.https.tls())


def test_the_network_can_be_in_another_process(server, joined, tmp_path):
    server.add(statistic(wanted=3, schedule=OPEN))
    server.tick()
    relay = Relay(joined(LIBRARY, vehicles=3).road, tmp_path / "road")
    thread = threading.Thread(target=relay.serve)
    thread.start()
    assert (tmp_path / "road").stat().st_mode & 0o777 == 0o660
    agent = Party(None, None, vehicles=3, road=SocketRoad(tmp_path / "road"), time=real_time())
    try:
        agent.visit(), agent.visit()
        assert agent.outbox.counts() == {"spring": {"counted": 1}}
        assert not agent.road.wait(0.01, threading.Event())
        server.revoke("agent-0")
        server.tick()
        with pytest.raises(LIBRARY.roads.UnwelcomeError):
            agent.agent.visit()
    finally:
        relay.close()
        thread.join()
    with pytest.raises(LIBRARY.roads.RoadError, match="does not answer"):
        agent.agent.visit()
    agent.close()
