"""The engine, on each store: places, rounds, and answers that are counted exactly once."""

import dataclasses
import datetime
import threading

import numpy as np
import pytest
from engine_cases import (
    DAY,
    GRADIENTS,
    OPENS,
    PLAN,
    SCHEDULE,
    SERVER,
    START,
    FakeAgent,
    answer_to,
    fleet,
    job_row,
    new_engine,
    prepared,
    same_numbers,
    signed,
    statistic,
    tick,
    training,
)

from fedldp import Plan
from fedldp.errors import DomainError
from fedldp.learn.model import Model
from fedldp.learn.optimizer import SGD, Adam, Recipe
from fedldp.plan.strategies import Sample
from fedldp.results.tally import from_json
from fedldp.signing import PrivateKey
from fedldp_fleet import engine, jobs
from fedldp_fleet.messages import AnswerVerdict, Call, Place
from fedldp_fleet.questions import Question
from fedldp_fleet.stages import Learned
from fedldp_fleet.store.base import DONE, FAILED, QUEUED, RUNNING

LATER = dataclasses.replace(SCHEDULE, closes=OPENS + datetime.timedelta(days=2))
OTHER_LEVEL = Plan(GRADIENTS.schema, 4.0, Sample(k=1, mechanism="three-outputs"))
LEASE = SCHEDULE.answer_seconds + engine.NETWORK_SECONDS


def tally_of(store, name="spring"):
    return from_json(job_row(store, name).result, PLAN)


# A statistic


def test_a_statistic_ends_with_the_tally_of_all_its_answers(store):
    machine = prepared(store, statistic(wanted=10))
    agents = fleet(machine, store, 10)
    sent = [each.visit(START + 1) for each in agents]
    tick(machine, store, START + 2)
    row = job_row(store, "spring")
    assert (sum(sent), row.state, row.reason) == (10, DONE, engine.ALL_ROUNDS)
    with store.reading() as inside:
        expected = PLAN.count(inside.answers("spring", 1)).tally
        assert [each.answers for each in inside.rounds("spring")] == [10]
    assert same_numbers(tally_of(store), expected)
    assert tally_of(store).reports == 10


def test_a_job_waits_until_it_opens_and_ends_when_it_closes(store):
    later = dataclasses.replace(
        SCHEDULE, opens=OPENS + datetime.timedelta(hours=1), round_seconds=5.0
    )
    machine = prepared(store, statistic(schedule=later))
    assert job_row(store, "spring").state == QUEUED
    tick(machine, store, START + 3600)
    assert job_row(store, "spring").state == RUNNING
    assert FakeAgent(machine, store, "agent-0").visit(START + 3601) == 1
    tick(machine, store, START + DAY - 1)
    assert job_row(store, "spring").state == RUNNING
    tick(machine, store, START + DAY)
    assert job_row(store, "spring").state == DONE
    assert tally_of(store).reports == 1


def test_a_job_that_nobody_answers_has_failed(store):
    machine = prepared(store, statistic(), training())
    tick(machine, store, START + DAY)
    for name in ("spring", "learn"):
        row = job_row(store, name)
        assert (row.state, row.reason, row.result) == (FAILED, engine.NOTHING, "")


def test_many_jobs_run_at_once(store):
    machine = prepared(store, statistic(wanted=3), statistic("summer", wanted=3), training())
    [agent, *_] = fleet(machine, store, 1)
    assert agent.visit(START) == 3
    assert {offer.job for offer in agent.call(START).offers} == {"spring", "summer", "learn"}


def test_an_agent_with_many_vehicles_answers_chunk_by_chunk(store):
    machine = new_engine(most_places=40)
    prepared(store, statistic(wanted=150), agents=1, vehicles=200, machine=machine)
    agent = FakeAgent(machine, store, "agent-0", 200)
    assert [agent.visit(START) for _ in range(5)] == [40, 40, 40, 30, 0]
    tick(machine, store, START)
    assert tally_of(store).reports == 150


# Places


def test_no_more_places_are_given_than_answers_are_wanted(store):
    machine = prepared(store, statistic(wanted=3))
    calls = [each.call(START) for each in fleet(machine, store, 6)]
    places = [call.offers[0].place for call in calls]
    assert [place is not None for place in places] == [True] * 3 + [False] * 3
    assert {place.lease for place in places if place} == {LEASE}


def test_asking_again_gives_the_same_place(store):
    machine = prepared(store, statistic(wanted=3))
    [agent, *_] = fleet(machine, store, 2)
    [first], [second] = agent.call(START).offers, agent.call(START + 5).offers
    assert (first.place.vehicles, second.place.vehicles) == (1, 1)
    assert second.place.lease == first.place.lease - 5
    with store.reading() as inside:
        assert inside.rounds("spring")[0].placed == 1


def test_a_place_that_is_not_announced_expires_and_goes_to_another(store):
    machine = prepared(store, statistic(wanted=1))
    one, two = fleet(machine, store, 2)
    assert one.call(START).offers[0].place is not None
    assert two.call(START + LEASE - 1).offers[0].place is None
    assert two.call(START + LEASE).offers[0].place is not None
    assert not one.announce("spring", 1, START + LEASE + 1)  # so nothing is spent for nothing
    assert two.announce("spring", 1, START + LEASE + 1)


def test_an_announced_place_is_waited_for(store):
    schedule = dataclasses.replace(SCHEDULE, round_seconds=60.0)
    machine = prepared(store, training(group=2, schedule=schedule))
    one, two, three = fleet(machine, store, 3)
    assert two.visit(START) == 1
    late = START + 60 - SCHEDULE.answer_seconds
    assert one.call(late).offers[0].place is not None
    assert one.announce("learn", 1, late)
    assert three.call(late + 30).offers[0].place is None
    one.draw("learn", 1, 1)
    tick(machine, store, late + 59)  # the deadline of the round is past
    assert job_row(store, "learn").round == 1
    one.send(late + 59)  # after it was dead for a while
    tick(machine, store, late + 59)
    assert job_row(store, "learn").round == 2
    assert set(one.said.values()) == {AnswerVerdict.COUNTED}


def test_who_never_comes_back_is_not_waited_for_for_ever(store):
    machine = prepared(store, training(group=2))
    one, two = fleet(machine, store, 2)
    assert two.visit(START) == 1
    one.call(START)
    assert one.announce("learn", 1, START + 1)
    one.draw("learn", 1, 1)
    tick(machine, store, START + 120)
    assert job_row(store, "learn").round == 1
    tick(machine, store, START + 121)
    assert job_row(store, "learn").round == 2
    one.send(START + 122)
    assert set(one.said.values()) == {AnswerVerdict.LATE}
    with store.reading() as inside:
        assert [tuple(each) for each in inside.uncounted("learn")] == [("learn", 1, "late", 1)]


def test_no_place_is_given_for_less_time_than_an_answer_needs(store):
    machine = prepared(store, training(group=2))
    one, _ = fleet(machine, store, 2)
    assert one.call(START + 120 - SCHEDULE.answer_seconds + 0.1).offers[0].place is None
    place = one.call(START + 120 - SCHEDULE.answer_seconds).offers[0].place
    assert place.lease == SCHEDULE.answer_seconds


def test_a_round_without_answers_stays_open(store):
    machine = prepared(store, training(group=2))
    tick(machine, store, START + 1000)
    assert job_row(store, "learn").round == 1
    one, two = fleet(machine, store, 2)
    assert one.visit(START + 1001) == 1
    assert two.visit(START + 1002) == 1


# What an agent may not do


def test_an_agent_answers_for_no_more_vehicles_than_it_is_enrolled_for(store):
    machine = prepared(store, statistic(wanted=100), agents=1, vehicles=3)
    agent = FakeAgent(machine, store, "agent-0", vehicles=50)
    assert agent.visit(START) == 3
    assert agent.visit(START) == 0
    agent.draw("spring", 1, 1)  # without a place
    agent.send(START)
    assert list(agent.said.values()) == [AnswerVerdict.COUNTED, AnswerVerdict.REFUSED]
    with store.reading() as inside:
        assert inside.used("spring", "agent-0") == 3


@pytest.mark.parametrize(
    "change",
    [
        {"report": b"damaged"},
        {"question": bytes(32)},
        {"job": "other"},
    ],
)
def test_what_is_no_answer_to_the_question_is_refused(store, change):
    machine = prepared(store, statistic())
    [agent, *_] = fleet(machine, store, 1)
    answer = answer_to(agent.question("spring", 1))
    agent.pending = [dataclasses.replace(answer, **change)]
    agent.send(START)
    assert list(agent.said.values()) == [AnswerVerdict.REFUSED]
    with store.reading() as inside:
        assert inside.answered("spring", 1) == 0


def test_an_answer_to_a_round_that_has_not_begun_is_kept_by_its_agent(store):
    machine = prepared(store, training(group=2))
    [agent, *_] = fleet(machine, store, 1)
    answer = answer_to(agent.question("learn", 1))
    agent.pending = [dataclasses.replace(answer, round=2)]
    agent.send(START)
    assert list(agent.said.values()) == [AnswerVerdict.EARLY]
    assert agent.pending


def test_two_answers_with_one_identifier_do_not_both_count(store):
    machine = prepared(store, statistic())
    [agent, *_] = fleet(machine, store, 1)
    question = agent.question("spring", 1)
    answer, other = answer_to(question), answer_to(question, seed=2)
    agent.pending = [answer]
    agent.send(START)
    agent.pending = [dataclasses.replace(other, identifier=answer.identifier)]
    agent.send(START)
    assert list(agent.said.values()) == [AnswerVerdict.REFUSED]


def test_an_agent_that_is_not_enrolled_gets_nothing(store):
    machine = prepared(store, statistic())
    stranger = FakeAgent(machine, store, "stranger")
    assert stranger.visit(START) == 0
    stranger.draw("spring", 1, 1)
    stranger.send(START)
    assert list(stranger.said.values()) == [AnswerVerdict.REFUSED]


# When agents call again


def test_agents_without_a_place_are_spread_over_the_rounds_to_come(store):
    """Each agent calls when it is told to; on average it needs few calls for its answer."""
    rng = np.random.default_rng(7)
    machine = engine.Engine(SERVER, spread=rng.uniform, idle_poll=5)
    rounds, group = 12, 16
    prepared(store, training(rounds=rounds, group=group), agents=rounds * group, machine=machine)
    agents = fleet(machine, store, rounds * group)
    due = {each.name: START + rng.uniform(0, 60) for each in agents}
    now = START
    while job_row(store, "learn").state == RUNNING:
        now += 1.0
        assert now < START + DAY
        for each in agents:
            if due[each.name] <= now and each.used.get("learn", 0) == 0:
                each.visit(now)
                due[each.name] = now + each.retry
        tick(machine, store, now)
    answers = sum(each.used.get("learn", 0) for each in agents)
    assert answers >= 0.9 * rounds * group
    assert sum(each.calls for each in agents) <= 3 * answers


def test_an_agent_with_many_vehicles_calls_again_as_often_as_several_would(store):
    machine = engine.Engine(SERVER, spread=max)
    prepared(store, training(rounds=20, group=1), agents=2, vehicles=50, machine=machine)
    one, other = fleet(machine, store, 2, vehicles=50)
    one.call(START)  # it has the only place
    other.call(START, able={"learn": 1})
    alone = other.retry
    other.call(START)
    assert (alone, other.retry) == (600.0, 12.0)


def test_agents_that_call_before_a_round_is_open_come_back_when_it_is(store):
    """Before, they were sent away for a quarter of an hour: a fleet of three stood still."""
    machine = engine.Engine(SERVER, spread=max)
    later = dataclasses.replace(SCHEDULE, opens=OPENS + datetime.timedelta(seconds=90))
    prepared(store, training(rounds=20, group=10), agents=1, vehicles=50, machine=machine)
    [agent] = fleet(machine, store, 1, vehicles=50)
    agent.visit(START)
    assert job_row(store, "learn").round == 1
    agent.call(START)  # the round has its answers, and the next one is opened by the next tick
    assert agent.retry <= 600 / 40
    with store.transaction() as inside:
        machine.add(inside, statistic(schedule=later), signed(statistic(schedule=later)))
        inside.set_job(inside.job("learn")._replace(state=engine.DONE))
    agent.call(START, able={})
    assert 90 <= agent.retry < 120
    agent.call(START, able={"spring": 0})  # its vehicles have answered already
    assert agent.retry == engine.IDLE_POLL_SECONDS
    quick = engine.Engine(SERVER, spread=max, idle_poll=20)
    with store.transaction() as inside:
        assert quick.call(inside, agent.name, Call({"spring": 0}), START).retry == 20


# What the operator does


def test_a_job_must_be_signed_as_it_is_and_for_this_server(store):
    machine = prepared(store)
    with store.transaction() as inside:
        for text in (
            signed(statistic(wanted=11)),
            signed(statistic(), server=PrivateKey.generate()),
        ):
            with pytest.raises(DomainError, match="has not signed this job"):
                machine.add(inside, statistic(wanted=10), text)


def test_a_job_is_not_replaced_by_accident(store):
    machine = prepared(store, statistic(wanted=10))
    with store.transaction() as inside:
        assert machine.add(inside, statistic(wanted=10), signed(statistic(wanted=10))) == (
            "unchanged"
        )
        for other in (statistic(wanted=9), training("spring")):
            with pytest.raises(DomainError, match="there is a job 'spring' already"):
                machine.add(inside, other, signed(other))


def test_a_statistic_is_topped_up(store):
    machine = prepared(store, statistic(wanted=3))
    agents = fleet(machine, store, 5)
    assert [each.visit(START) for each in agents] == [1, 1, 1, 0, 0]
    tick(machine, store, START)
    assert job_row(store, "spring").state == DONE
    more = statistic(wanted=5, schedule=LATER)
    with store.transaction() as inside:
        assert machine.add(inside, more, signed(more)) == "extended"
    tick(machine, store, START + DAY)
    assert [each.visit(START + DAY) for each in agents] == [0, 0, 0, 1, 1]
    tick(machine, store, START + DAY)
    assert job_row(store, "spring").state == DONE
    assert tally_of(store).reports == 5


def test_a_training_gets_more_rounds(store):
    machine = prepared(store, training(rounds=1, group=2))
    agents = fleet(machine, store, 4)
    for each in agents:
        each.visit(START)
    tick(machine, store, START)
    before = job_row(store, "learn")
    assert (before.state, before.round) == (DONE, 1)
    more = training(rounds=2, group=2)
    with store.transaction() as inside:
        assert machine.add(inside, more, signed(more)) == "extended"
    tick(machine, store, START + 1)
    assert [each.visit(START + 2) for each in agents] == [0, 0, 1, 1]
    tick(machine, store, START + 3)
    after = job_row(store, "learn")
    assert (after.state, after.round) == (DONE, 2)
    assert Learned.from_json(after.learned).state.round == 2


# A training


def run_training(machine, store, agents, name="learn"):
    now = START
    while job_row(store, name).state == RUNNING:
        now += 1.0
        for each in agents:
            each.visit(now)
        tick(machine, store, now)
        assert now < START + 1000
    return job_row(store, name)


@pytest.mark.parametrize(
    "job",
    [
        training(),
        training(survey="whiten", surveyed=16),
        dataclasses.replace(training(), plans=(GRADIENTS, OTHER_LEVEL), rounds=4),
    ],
    ids=["plain", "survey", "levels"],
)
def test_the_model_is_replayed_from_the_stored_answers(store, job):
    machine = prepared(store, job, agents=50)
    row = run_training(machine, store, fleet(machine, store, 50))
    assert (row.state, row.reason) == (DONE, engine.ALL_ROUNDS)
    learned = job.start
    with store.reading() as inside:
        for number in range(1, jobs.rounds_of(job) + 1):
            asked = jobs.question(job, number, learned)
            assert inside.rounds("learn")[number - 1].digest == asked.digest
            span = jobs.span_of(job, number)
            cycle = span.cycle(number)
            if number == cycle[-1]:
                tallies = [machine.tally(inside, job, each) for each in cycle]
                learned = span.stage.learn(learned, tallies)
    assert row.learned == learned.to_json()
    assert Model.from_json(row.result) == learned.result(job.model_at_start)


def test_a_training_ends_when_the_model_has_settled(store):
    recipe = Recipe(Adam(0.2, tol=1e9))
    machine = prepared(store, dataclasses.replace(training(), recipe=recipe))
    row = run_training(machine, store, fleet(machine, store, 20))
    assert (row.state, row.reason, row.round) == (DONE, engine.SETTLED, 1)


def test_a_model_that_leaves_all_bounds_fails(store):
    recipe = Recipe(SGD(1e300))
    machine = prepared(store, dataclasses.replace(training(), recipe=recipe))
    row = run_training(machine, store, fleet(machine, store, 20))
    assert row.state == FAILED
    assert "in round 1" in row.reason


# A restored server


def test_a_restored_server_counts_what_agents_send_again(store):
    """The store is that of before the first answer; agents still have all of theirs."""
    machine = prepared(store, training(group=2), agents=4)
    agents = fleet(machine, store, 4)
    questions = {1: agents[0].question("learn", 1)}
    sent = [answer_to(questions[1], each.name) for each in agents[:2]]
    # They have answered round 2 as well, about a model that this server never computed.
    other = dataclasses.replace(questions[1], round=2)
    later = [answer_to(other, each.name) for each in agents[2:]]
    with store.transaction() as inside:
        engine.start(inside, b"j" * 16)
    for agent, answer in zip(agents, [*sent, *later], strict=True):
        agent.pending = [answer]
        agent.send(START)
        assert set(agent.said.values()) == {AnswerVerdict.COUNTED}
    tick(machine, store, START)
    tick(machine, store, START)
    row = job_row(store, "learn")
    assert row.round == 3
    with store.reading() as inside:
        assert [each.answers for each in inside.rounds("learn")] == [2, 2, 0]


@pytest.mark.parametrize("lost", ["all", "since the first step"])
def test_a_training_resumes_from_its_last_step(make_store, lost):
    """The model goes on as if nothing had happened, from what agents send again."""
    job, names = training(rounds=3, group=2), range(6)
    first = make_store("first")
    machine = prepared(first, job, agents=6)
    agents, states, now = fleet(machine, first, 6), [], START
    second = make_store("second")
    if lost == "since the first step":  # the backup is from before it
        prepared(second, job, agents=6)
    for name in names[:4]:
        now += 1
        assert agents[name].visit(now) == 1
        states += [engine.state_of(each) for each in tick(machine, first, now)]
    assert len(states) == 2
    answers = {
        name: answer_to(agents[name].question("learn", 1 + name // 2), f"agent-{name}", seed=0)
        for name in names[:4]
    }
    agents[4].visit(now), agents[5].visit(now)
    tick(machine, first, now)
    expected = job_row(first, "learn")
    answers |= {
        name: answer_to(agents[name].question("learn", 3), f"agent-{name}", seed=0)
        for name in names[4:]
    }
    if lost == "all":
        prepared(second, agents=6)
    with second.transaction() as inside:
        engine.start(inside, b"j" * 16)
        assert engine.resume(inside, states[-1], now)
        assert not engine.resume(inside, states[0], now)
    for name in names:
        agents[name].store, agents[name].pending = second, [answers[name]]
        agents[name].said.clear()
        agents[name].send(now)
    said = [verdict for each in agents for verdict in each.said.values()]
    assert said == [AnswerVerdict.LATE] * 4 + [AnswerVerdict.COUNTED] * 2
    tick(machine, second, now), tick(machine, second, now)
    row = job_row(second, "learn")
    assert (row.state, row.learned, row.result) == (DONE, expected.learned, expected.result)


def test_a_new_incarnation_is_told_to_agents(store):
    machine = prepared(store, statistic())
    [agent, *_] = fleet(machine, store, 1)
    before = agent.call(START).incarnation
    with store.transaction() as inside:
        engine.start(inside, b"j" * 16)
    assert (before, agent.call(START).incarnation) == (b"i" * 16, b"j" * 16)


# Races and kills


@pytest.mark.parametrize("attempt", range(3))
def test_what_is_acknowledged_while_a_round_closes_is_counted(make_store, attempt):
    """Threads store answers while others close the round, whose deadline is past."""
    store = make_store(f"attempt {attempt}")
    machine = prepared(store, training(rounds=30, group=40), agents=400)
    agents = fleet(machine, store, 400)
    gate = threading.Barrier(3)
    acknowledged = []

    def deliver(some):
        gate.wait()
        for each in some:
            each.visit(START + 1)
            acknowledged.append(each)

    def close():
        gate.wait()
        for _ in range(60):
            tick(machine, store, START + 121)

    threads = [threading.Thread(target=deliver, args=(agents[k::2],)) for k in range(2)]
    threads.append(threading.Thread(target=close))
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    tick(machine, store, START + 500)
    counted = {(job, number): 0 for each in acknowledged for job, number, _ in each.said}
    for each in acknowledged:
        for (job, number, _), verdict in each.said.items():
            counted[job, number] += verdict is AnswerVerdict.COUNTED
    state = Learned.from_json(job_row(store, "learn").learned).state
    with store.reading() as inside:
        closed = [each for each in inside.rounds("learn") if each.closed is not None]
        job = jobs.read_job(inside.job("learn").document)
        replayed = job.start
        for each in closed:
            assert machine.tally(inside, job, each.number).reports == counted["learn", each.number]
            tally = machine.tally(inside, job, each.number)
            replayed = jobs.span_of(job, each.number).stage.learn(replayed, [tally])
    assert len(closed) >= 1
    assert replayed.state.to_json() == state.to_json()


class Killed(BaseException):
    pass


@pytest.mark.parametrize("step", [29, pytest.param(1, marks=pytest.mark.faults)])
def test_a_server_that_is_killed_at_any_statement_counts_once(
    stores, make_store, monkeypatch, step
):
    """Killed once at each statement, it goes on: agents repeat until they are acknowledged."""
    left = [0]

    def watched(execute):
        def execute_or_die(self, statement, values=()):
            left[0] -= 1
            if left[0] == 0:
                if statement == "COMMIT":
                    execute(self, statement, values)  # it is on disk, and nobody was told
                raise Killed
            return execute(self, statement.replace("= FULL", "= OFF"), values)

        return execute_or_die

    for name in stores.acts:
        monkeypatch.setattr(stores.executor, name, watched(getattr(stores.executor, name)))
    kills = 0
    for statement in range(1, 1000, step):
        folder = f"store {statement}"
        store = make_store(folder)
        machine = prepared(store, training(rounds=2, group=2), statistic(wanted=3), agents=4)
        agents, now, before = fleet(machine, store, 4), START, kills
        left[0] = statement
        while True:
            now += 1.0
            assert now < START + 1000
            try:
                if not any(job_row(store, name).state == RUNNING for name in ("learn", "spring")):
                    break
                for each in agents:
                    each.visit(now)
                    tick(machine, store, now)
            except Killed:
                kills += 1
                store.close()
                store = make_store(folder)
                for each in agents:
                    each.store = store
        left[0] = 0
        check_that_all_is_counted_once(store, machine, agents)
        store.close()
        if kills == before:
            break
    assert kills > 230 // step


def check_that_all_is_counted_once(store, machine, agents):
    said = [key for each in agents for key, verdict in each.said.items()]
    assert not any(each.pending for each in agents)
    with store.reading() as inside:
        for name, expected in (("learn", [2, 2]), ("spring", [3])):
            rounds = inside.rounds(name)
            assert [each.answers for each in rounds] == expected
            assert [each.placed for each in rounds] == [0] * len(rounds)
            assert sum(key[0] == name for key in said) == sum(expected)
            job = jobs.read_job(inside.job(name).document)
            assert [machine.tally(inside, job, each.number).reports for each in rounds] == expected
            assert not inside.uncounted(name)


# Roads that tell all agents at once, and agents that share one enrollment


def test_vehicles_that_share_an_enrollment_have_places_of_their_own(store):
    machine = prepared(store, statistic(wanted=3), agents=1, vehicles=10)
    with store.transaction() as inside:

        def call(holder):
            found = machine.call(inside, "agent-0", Call({"spring": 1}), START, holder=holder)
            return found.offers[0].place

        assert [call(f"agent-0/{each}") is not None for each in "abcd"] == [True, True, True, False]
        asked = Question.from_bytes(inside.question(inside.rounds("spring")[0].digest))
        answer = answer_to(asked)
        [parsed] = machine.parse(inside, [answer])
        machine.deliver(inside, "agent-0", answer, parsed, START, holder="agent-0/a")
        assert {each.agent for each in inside.places("spring")} == {"agent-0/b", "agent-0/c"}
        assert inside.used("spring", "agent-0") == 1


def test_who_sends_more_answers_than_it_may_is_counted_apart(store):
    machine = prepared(store, statistic(wanted=90), agents=3, vehicles=2)
    with store.transaction() as inside:
        [opened] = inside.rounds("spring")
        asked = Question.from_bytes(inside.question(opened.digest))
        for name, answers in (("agent-0", 1), ("agent-1", 5), ("agent-2", 2)):
            for seed in range(answers):
                answer = answer_to(asked, name, seed=seed)
                [parsed] = machine.parse(inside, [answer])
                machine.deliver(inside, name, answer, parsed, START)
        expected = [("agent-1", 2, 3), ("agent-2", 2, 0), ("agent-0", 1, 0)]
        assert [tuple(each)[1:] for each in inside.senders("spring", 10)] == expected
        assert [tuple(each)[1:] for each in inside.senders("spring", 1)] == expected[:1]
        assert inside.most_used("spring") == (3, 2)
        assert inside.most_used("summer") == (0, 0)


def test_a_road_limits_the_length_of_answers(store):
    machine = prepared(store, statistic(wanted=1000), agents=1, vehicles=1000)
    bits = PLAN.bits * 7 + 1
    with store.transaction() as inside:
        given = Call({"spring": 100})
        [offer] = machine.call(inside, "agent-0", given, START, most_bits=bits).offers
        assert offer.place is not None
        assert offer.place.vehicles == 7


def test_all_agents_are_told_of_open_rounds_and_share_the_places_of_a_lot(store):
    lot = dataclasses.replace(SCHEDULE, order="lot")
    machine = prepared(store, statistic(), statistic("lot", schedule=lot))
    with store.transaction() as inside:
        told = machine.open_rounds(inside, START + 10, PLAN.bits * 5)
        assert {each.job: each.place for each in told.offers} == {
            "spring": None,
            "lot": Place(5, DAY - 10),
        }
        assert not inside.places("lot")
        called = machine.call(inside, "agent-0", Call({}), START)
        assert [each.statement for each in called.offers] == [e.statement for e in told.offers]


def test_a_lot_that_is_full_counts_those_who_were_not_told_yet(store):
    lot = dataclasses.replace(SCHEDULE, order="lot")
    machine = prepared(store, statistic(wanted=2, schedule=lot), agents=1, vehicles=10)

    def deliver(seed, now):
        with store.transaction() as inside:
            answer = answer_to(inside_question(inside), seed=seed)
            [parsed] = machine.parse(inside, [answer])
            return machine.deliver(inside, "agent-0", answer, parsed, now).verdict

    def inside_question(inside):
        [opened] = inside.rounds("spring")
        return Question.from_bytes(inside.question(opened.digest))

    assert [deliver(each, START + 1) for each in range(2)] == [AnswerVerdict.COUNTED] * 2
    assert not tick(machine, store, START + 2)
    with store.transaction() as inside:
        [told] = machine.open_rounds(inside, START + 3).offers
    assert told.place is None
    assert deliver(2, START + 4) is AnswerVerdict.COUNTED
    grace = lot.answer_seconds + engine.NETWORK_SECONDS
    assert not tick(machine, store, START + 1 + grace)
    assert [each.state for each in tick(machine, store, START + 2 + grace)] == [DONE]
    assert deliver(3, START + 3 + grace) is AnswerVerdict.LATE
    assert from_json(job_row(store, "spring").result, PLAN).reports == 3


def test_agents_look_often_enough_for_the_rounds_of_a_lot(store):
    lot = dataclasses.replace(SCHEDULE, order="lot", round_seconds=40.0)
    machine = prepared(store, statistic(schedule=lot))
    with store.transaction() as inside:
        assert machine.open_rounds(inside, START).retry == engine.IDLE_POLL_SECONDS
        machine.add(inside, training(schedule=lot), signed(training(schedule=lot)))
        machine.tick(inside, START)
        assert machine.open_rounds(inside, START).retry == 10.0
