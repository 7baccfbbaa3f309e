"""Agents of both distributions over MQTT, with a broker in memory and the real server."""

import asyncio
import dataclasses
import json
import random
import re
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase

import pytest
from brokers import Broker, matches
from engine_cases import OPERATOR, PLAN, answer_to, new_engine, statistic, training
from fleet_server import OPEN, running
from mosquitto_broker import PAGE
from mqtt_cases import LOT, TOPICS, agent_of, end, visit_until_answered, wait_until

from fedldp.results.tally import from_json
from fedldp_fleet import jobs
from fedldp_fleet.messages import Offers
from fedldp_fleet.mqtt import Message
from fedldp_fleet.questions import Question
from fedldp_fleet.server.desk import Desk
from fedldp_fleet.server.documents import Documents
from fedldp_fleet.server.folder import ServerFolder
from fedldp_fleet.server.guard import Guard
from fedldp_fleet.server.metrics import text
from fedldp_fleet.server.mqtt import MQTTServer
from fedldp_fleet.server.status import status
from fedldp_fleet.store.base import DONE

ACTS = ("call", "announce", "answer")


@pytest.fixture
def broker():
    return Broker()


@pytest.fixture
def server(tmp_path, broker):
    folder = tmp_path / "server"
    folder.mkdir()
    with running(folder, operator=OPERATOR, connect=broker.connect) as found:
        assert found.mqtt.ready.wait(60)
        yield found


@pytest.fixture
def agents(broker):
    made = []

    def make(name="car-7", client="", **options):
        made.append(agent_of(broker, name, client, **options))
        return made[-1]

    yield make
    end(made)


@pytest.fixture(params=["many", "one", "alone"])
def kind(request):
    return request.param


def told(broker):
    """Return the open rounds that the broker retains."""
    with broker.changed:
        if TOPICS.open not in broker.retained:
            return None
        return Offers.from_bytes(broker.retained[TOPICS.open][0].payload)


def opened(server, broker, *some):
    """Add jobs, and wait until agents are told of them."""
    for job in some:
        server.add(job)
    server.tick()
    names = {job.name for job in some}
    wait_until(lambda: told(broker) and names <= {offer.job for offer in told(broker).offers})


def question_of(server, name="spring"):
    [*_, opened] = server.rounds(name)
    with server.store.reading() as store:
        return Question.from_bytes(store.question(opened.digest))


def ended(server, name="spring"):
    wait_until(lambda: server.tick() or server.job(name).state == DONE)
    return server.job(name)


def test_an_agent_asks_for_a_place_and_answers(server, broker, agents, kind):
    server.enroll("car-7")
    opened(server, broker, statistic(wanted=1, schedule=OPEN))
    agent = agents(kind=kind)
    agent.visit(), agent.visit()
    assert broker.sent("car-7") == [f"fedldp/north/ask/{act}/car-7/car-7" for act in ACTS]
    assert from_json(ended(server).result, PLAN).reports == 1
    assert agent.outbox.counts() == {"spring": {"counted": 1}}
    assert agent.told == []
    wait_until(lambda: server.tick() or heard(server) == {"car-7"})


def test_an_agent_that_waits_hears_of_a_new_job(server, broker, agents, kind):
    """It need not call until then; a job that it knows does not wake it again."""
    server.enroll("car-7")
    agent = agents(kind=kind, spread=min)
    agent.visit()
    waiting = ThreadPoolExecutor(1).submit(agent.road.wait, 300.0, threading.Event())
    broker.crash()  # which a waiting agent survives
    opened(server, broker, statistic(wanted=1, schedule=OPEN))
    assert waiting.result(60)
    assert broker.sent("car-7") == []
    agent.visit(), agent.visit()
    assert agent.outbox.counts() == {"spring": {"counted": 1}}
    assert not agent.road.wait(0.05, threading.Event())


def test_an_agent_that_waits_hears_of_the_next_round_of_a_lot(server, broker, agents, kind):
    """It has nothing to ask for until then, and need not look again and again."""
    server.enroll("car-7")
    server.enroll("car-8")
    opened(server, broker, training(rounds=2, group=1, schedule=LOT))
    agent = agents(kind=kind, spread=min)
    agent.visit(), agent.visit()
    waiting = ThreadPoolExecutor(1).submit(agent.road.wait, 300.0, threading.Event())
    first = answer_to(question_of(server, "learn"), "car-8")
    topic = TOPICS.ask("answer", "car-8", "car-8")
    broker.connect("car-8").publish(Message(topic, first.to_bytes()))
    shift_deadlines(server)
    wait_until(lambda: server.tick() or server.job("learn").round == 2)
    assert waiting.result(60)
    assert not broker.sent("car-7", "call")


@pytest.mark.usefixtures("server")
def test_a_waiting_agent_stops_when_it_is_told_to(agents):
    agent, stop = agents(), threading.Event()
    agent.visit()
    waiting = ThreadPoolExecutor(1).submit(agent.road.wait, 300.0, stop)
    stop.set()
    assert not waiting.result(60)


def heard(server):
    with server.store.reading() as store:
        return store.heard().keys()


def test_in_a_lot_an_agent_sends_one_message(server, broker, agents, kind):
    server.enroll("car-7")
    opened(server, broker, statistic(wanted=2, schedule=LOT))
    agent = agents(kind=kind)
    agent.visit()
    assert broker.sent("car-7") == ["fedldp/north/ask/answer/car-7/car-7"]
    assert agent.outbox.counts() == {"spring": {"counted": 1}}
    [sent] = [message.payload for name, message in broker.published if name == "car-7"]
    assert len(sent) == len(answer_to(question_of(server)).to_bytes())  # of one vehicle


@pytest.mark.parametrize("schedule", [OPEN, LOT], ids=["call", "lot"])
def test_a_fleet_trains(server, broker, agents, schedule):
    """In a lot, an agent asks nothing, and each vehicle answers the round that it has drawn."""
    quick = dataclasses.replace(schedule, answer_seconds=0.01, round_seconds=30.0)
    server.enroll("depot", vehicles=40)
    opened(server, broker, training(rounds=2, group=10, schedule=quick))
    depot = agents("depot", vehicles=40)

    def visit_until_done():
        depot.visit()
        server.tick()
        return server.job("learn").state == DONE

    if schedule.order == "lot":
        shift_deadlines(server)
    wait_until(visit_until_done)
    answered = [opened.answers for opened in server.rounds("learn")]
    assert len(answered) == 2
    if schedule.order == "lot":
        assert all(answered)  # false alarm below 2^-38: each vehicle draws one of two rounds
        assert not broker.sent("depot", "call")
    else:
        assert answered == [10, 10]
    assert depot.spent() == 2 * sum(answered)
    assert set(depot.outbox.counts()["learn"]) == {"counted"}


def shift_deadlines(server):
    """Let rounds of a lot that are full close at once: no test waits for seconds."""
    advanced = server.engine._advanced

    def later(store, row, now):
        [*_, opened] = store.rounds(row.name) or [None]
        is_full = opened is not None and opened.answers >= opened.wanted
        return advanced(store, row, now) or (
            advanced(store, row, now + 100.0) if is_full and opened.closed is None else None
        )

    server.engine._advanced = later


def test_agents_that_share_a_certificate_have_places_of_their_own(server, broker, agents):
    server.enroll("anonymous", vehicles=3)
    opened(server, broker, statistic(wanted=3, schedule=OPEN))
    some = [agents("anonymous", f"{number:016x}") for number in range(4)]
    for agent in some * 2:
        agent.visit()
    assert [bool(agent.outbox.counts()) for agent in some] == [True, True, True, False]
    assert some[3].spent() == 0
    assert from_json(ended(server).result, PLAN).reports == 3


def test_an_enrollment_for_one_vehicle_has_one_place(server, broker, agents):
    server.enroll("car-7")
    opened(server, broker, statistic(wanted=9, schedule=OPEN))
    one, other = agents("car-7", "one"), agents("car-7", "other")
    one.visit(), other.visit()
    one.visit(), other.visit()
    assert one.outbox.counts() == {"spring": {"counted": 1}}
    assert other.spent() == 0


def test_an_unknown_or_revoked_agent_is_unwelcome(server, broker, agents):
    opened(server, broker, statistic(schedule=OPEN), statistic("lot", schedule=LOT))
    stranger = agents()
    stranger.visit(), stranger.visit()
    assert "does not know this agent" in stranger.told[-1]
    server.enroll("car-7")
    server.revoke("car-7")
    stranger.visit()
    assert set(stranger.outbox.counts()) <= {"lot"}
    assert server.job("lot").state != DONE


def test_answers_and_questions_are_as_long_as_the_broker_takes(server, broker, agents, caplog):
    broker.most_bytes = 1500  # 476 bytes for a message
    broker.crash()
    server.enroll("depot", vehicles=300)
    server.add(statistic(wanted=300, schedule=OPEN))
    server.tick()
    wait_until(lambda: "agents cannot get it over MQTT" in caplog.text)
    broker.most_bytes = 3000
    broker.crash()
    depot = agents("depot", vehicles=300)
    most = 8 * (3000 - 2 * 1024) // PLAN.bits
    wait_until(lambda: depot.visit() is None or depot.spent() == 2 * min(300, most))
    sent = [len(message.payload) for name, message in broker.published if name == "depot"]
    assert max(sent) <= 3000


def test_answers_are_as_long_as_the_operator_says_that_the_broker_takes(tmp_path, broker, agents):
    """As AWS IoT Core takes less than it says: `broker_most_bytes` in server.toml."""
    most_bytes = 2000
    options = {"operator": OPERATOR, "connect": broker.connect, "most_bytes": most_bytes}
    with running(tmp_path, **options) as server:
        server.enroll("depot", vehicles=3000)
        opened(server, broker, statistic(wanted=3000, schedule=OPEN))
        depot = agents("depot", vehicles=3000)
        wait_until(lambda: depot.visit() is None or depot.spent() == 2 * 3000)
    sent = [len(message.payload) for name, message in broker.published if name == "depot"]
    assert most_bytes / 2 < max(sent) <= most_bytes


def emqx_rules(page, name):
    """Return what an agent may do by the rules for EMQX: a function of the action and the topic."""
    [rules] = re.findall(r"(?s)```erlang\n(.*?)```", page)
    listed = re.findall(r"(?s)\{allow, all, (\w+), \[(.*?)\]\}", rules)
    assert rules.endswith("{deny, all}.\n")

    def may(action, topic):
        return any(
            matches(pattern.replace("${clientid}", name).replace("${username}", name), topic)
            for allowed, patterns in listed
            for pattern in re.findall(r'"(.*?)"', patterns)
            if allowed == action
        )

    return may


def aws_rules(page, name):
    """Return the same for the policy of AWS IoT Core, whose `*` stands for any characters."""
    [policy] = re.findall(r"(?s)```json\n(\{\"Version\".*?)```", page)
    kinds = {"publish": ("iot:Publish", "topic"), "subscribe": ("iot:Subscribe", "topicfilter")}

    def may(action, topic):
        allowed, kind = kinds[action]
        asked = f"arn:aws:iot:REGION:ACCOUNT:{kind}/{topic}"
        return any(
            fnmatchcase(asked, re.sub(r"\$\{iot:[\w.:]+\}", name, pattern))
            for statement in json.loads(policy)["Statement"]
            if statement["Action"] == allowed
            for pattern in [statement["Resource"]]
            for pattern in ([pattern] if isinstance(pattern, str) else pattern)
        )

    return may


@pytest.mark.parametrize("rules_of", [emqx_rules, aws_rules])
def test_the_rules_on_the_page_let_an_agent_do_what_it_does_and_no_more(
    server, broker, agents, rules_of
):
    """As the page has them, for a client identifier that is the thing or the certificate's name."""
    server.enroll("car-7")
    opened(server, broker, statistic(wanted=1, schedule=OPEN))
    agent = agents("car-7")
    visit_until_answered(agent)
    may = rules_of(PAGE.read_text("utf-8"), "car-7")
    subscribed = {topic for name, topic in broker.subscribed if name == "car-7"}
    assert len(subscribed) == 4
    assert all(may("subscribe", topic) for topic in subscribed)
    assert all(may("publish", topic) for topic in broker.sent("car-7"))
    for topic in (TOPICS.reply("car-8"), TOPICS.asks, "fedldp/north/#", "#"):
        assert not may("subscribe", topic)
    for topic in (
        *(TOPICS.ask("answer", "car-8", "car-7"), TOPICS.ask("answer", "car-7", "car-8")),
        *(TOPICS.open, TOPICS.reply("car-7"), TOPICS.question("00"), TOPICS.job("00")),
    ):
        assert not may("publish", topic)


def test_what_is_closed_is_not_retained_any_more(server, broker, agents):
    server.enroll("car-7")
    opened(server, broker, statistic(wanted=1, schedule=OPEN))
    assert len(broker.retained) == 3
    visit_until_answered(agents())
    ended(server)
    wait_until(lambda: list(broker.retained) == [TOPICS.open])
    assert told(broker).offers == ()


def test_an_agent_that_learns_that_a_round_is_closed_draws_nothing(server, broker, agents):
    """In a lot nobody waits for it, so it looks again right before it draws."""
    server.enroll("car-7")
    opened(server, broker, statistic(wanted=5, schedule=LOT))
    agent, announce = agents(), None
    given = told(broker)

    def late(said):
        none = Offers(given.incarnation, given.retry, ())
        broker.connections[0].retain(Message(TOPICS.open, none.to_bytes(), seconds=60))
        return announce(said)

    announce, agent.road.announce = agent.road.announce, late
    agent.visit()
    assert agent.spent() == 0
    assert broker.sent("car-7") == []


@pytest.mark.parametrize("seconds", [0, 3])
def test_what_was_retained_long_ago_leaves_little_time(server, broker, agents, seconds):
    server.enroll("car-7")
    slow = dataclasses.replace(LOT, answer_seconds=5.0)
    opened(server, broker, statistic(wanted=5, schedule=slow))
    with broker.changed:
        message, since = broker.retained[TOPICS.open]
        broker.retained[TOPICS.open] = message._replace(seconds=seconds), since
    agent = agents()
    agent.visit()
    assert agent.spent() == 0


def test_a_broker_that_forgets_everything_is_told_again(server, broker, agents):
    server.enroll("car-7")
    opened(server, broker, statistic(wanted=1, schedule=OPEN))
    broker.crash(is_up=False)
    agent = agents(patience=0.2)
    agent.visit()
    assert "the broker is down" in agent.told[-1]
    broker.is_up = True
    visit_until_answered(agent)
    assert from_json(ended(server).result, PLAN).reports == 1


def test_a_broker_that_cannot_be_used_is_a_problem(server, broker):
    def problems():
        with server.store.reading() as store:
            return status(server_folder(server), store, running=True)["problems"]

    assert problems() == []
    broker.crash(is_up=False)
    wait_until(lambda: any("cannot use the broker" in each for each in problems()))
    broker.is_up = True
    wait_until(lambda: problems() == [])


def test_servers_share_the_work(server, broker, agents):
    """As processes on one PostgreSQL do: here both have the same desk."""

    async def start():
        given = server._desk, Documents(server.store), TOPICS, broker.connect, "server-2"
        other = MQTTServer(*given)
        other.start()
        return other

    other = asyncio.run_coroutine_threadsafe(start(), server._loop).result()
    try:
        assert other.ready.wait(60)
        for number in range(6):
            server.enroll(f"car-{number}")
        opened(server, broker, statistic(wanted=6, schedule=OPEN))
        for number in range(6):
            visit_until_answered(agents(f"car-{number}"))
        assert from_json(ended(server).result, PLAN).reports == 6
        assert all(broker.sent(name, "reply") for name in ("server-1", "server-2"))
    finally:
        asyncio.run_coroutine_threadsafe(other.stop(), server._loop).result()


def test_nobody_lets_the_server_write_to_others(server, broker):
    opened(server, broker, statistic(schedule=OPEN))
    liar = broker.connect("liar")
    victim = TOPICS.reply("car-7")
    liar.publish(Message(TOPICS.ask("call", "liar", "liar"), b"{}", reply_to=victim))
    own = TOPICS.reply("liar")
    liar.publish(Message(TOPICS.ask("call", "liar", "liar"), b"{}", reply_to=own))
    liar.publish(Message(TOPICS.ask("answer", "liar", "liar"), b"\0" * 9))
    wait_until(lambda: len(broker.sent("server-1", "reply")) == 2)
    assert set(broker.sent("server-1", "reply")) == {own}


@pytest.mark.parametrize("schedule", [OPEN, LOT], ids=["call", "lot"])
def test_whatever_is_lost_or_repeated_counts_once(server, broker, agents, schedule):
    """The broker loses and repeats messages and is restarted; so are server and agents."""
    random_source = random.Random(1)
    quick = dataclasses.replace(schedule, answer_seconds=0.01)
    for number in range(12):
        server.enroll(f"car-{number}")
    opened(server, broker, statistic(wanted=12, schedule=quick))
    broker.copies = lambda *_: random_source.choices((0, 1, 2), (1, 4, 1))[0]
    some = [agents(f"car-{number}", patience=0.3) for number in range(12)]
    for turn in range(1000):
        for agent in some:
            if random_source.random() < 0.2:
                agent.start()  # as after a crash
            agent.visit()
        if turn in (1, 3):
            broker.crash()
        if turn == 2:
            server.stop()
            server.start()
        if all(agent.outbox.counts().get("spring") == {"counted": 1} for agent in some):
            break
    broker.copies = lambda *_: 1
    if schedule.order == "lot":
        shift_deadlines(server)
    job = ended(server)
    assert from_json(job.result, PLAN).reports == 12
    with server.store.reading() as store:
        assert store.uncounted("spring") == []
        stored = Counter(each for each in store.answers("spring", 1))
        assert server.engine.tally(store, jobs.read_job(job.document), 1).reports == 12
    assert sum(stored.values()) == 12
    assert [agent.spent() for agent in some] == [2] * 12


def test_a_desk_that_is_closed_begins_nothing_more(store):
    """Otherwise a road that still asks would wait for ever, and the server would not end."""

    async def run():
        desk = Desk(store, new_engine(), Guard())
        await desk.open()
        await desk.close()
        with pytest.raises(ConnectionAbortedError, match="the server ends"):
            await desk.open_rounds()

    asyncio.run(run())


def test_answers_beyond_an_enrollment_are_refused_shown_and_a_problem(server, broker):
    """Whoever has a certificate can stuff no more ballots than it is enrolled for, and is named."""
    server.enroll("anonymous", vehicles=2)
    server.enroll("car-7")
    opened(server, broker, statistic(wanted=50, schedule=LOT))
    liar = broker.connect("liar")
    for seed in range(5):
        answer = answer_to(question_of(server), seed=seed)
        liar.publish(Message(TOPICS.ask("answer", "anonymous", "liar"), answer.to_bytes()))
    honest = answer_to(question_of(server), "car-7")
    liar.publish(Message(TOPICS.ask("answer", "car-7", "car-7"), honest.to_bytes()))
    wait_until(lambda: len(broker.sent("server-1", "reply")) == 6)
    with server.store.reading() as store:
        senders = store.senders("spring", 10)
        document = status(server_folder(server), store, running=True)
    assert senders == [("spring", "anonymous", 2, 3), ("spring", "car-7", 1, 0)]
    [job] = document["jobs"]
    assert (job["answers"], job["agents"], job["most_of_one_agent"]) == (3, 2, 2)
    assert job["excess"] == {"anonymous": 3}
    [named] = [each for each in document["problems"] if "anonymous" in each]
    assert "has sent 3 answers to the job spring beyond those" in named
    metrics = text({**document, "heard": 0}, "")[0].decode()
    assert 'fedldp_job_agents{fedldp_job="spring"} 2.0' in metrics
    assert 'fedldp_job_answers_of_one_agent{fedldp_job="spring"} 2.0' in metrics


def server_folder(server):
    return ServerFolder(server.folder, ("127.0.0.1", 1), ("127.0.0.1", 2))


def test_names_that_the_broker_lets_in_can_be_enrolled_by_the_road(tmp_path, broker, agents):
    with running(tmp_path, operator=OPERATOR, connect=broker.connect, admits=1) as server:
        assert server.mqtt.ready.wait(60)
        opened(server, broker, statistic(wanted=9, schedule=OPEN))
        server.enroll("revoked")
        server.revoke("revoked")
        some = [agents(name) for name in ("car-1", "car-2", "revoked", "no name")]
        for agent in some * 2:
            agent.visit()
        counts = [agent.outbox.counts() for agent in some]
        assert counts == [{"spring": {"counted": 1}}] * 2 + [{}] * 2
        assert "the name of a agent must be" in some[3].told[-1]
        with server.store.reading() as store:
            vehicles = {each.agent: each.vehicles for each in store.members()}
    assert vehicles == {"car-1": 1, "car-2": 1, "revoked": 1}
