"""Agents of both distributions, with the real engine: they answer, refuse, repeat and spend."""

import dataclasses
import json

import agent_cases
import numpy as np
import pytest
from agent_cases import Party
from engine_cases import (
    FIXED,
    OF_FIXED,
    PLAN,
    ROWS,
    SCHEDULE,
    SERVER,
    START,
    job_row,
    new_engine,
    prepared,
    statistic,
    tick,
    training,
)

from fedldp import Plan
from fedldp.errors import WireError
from fedldp.learn import Model, Settings
from fedldp.plan.strategies import Sample
from fedldp.results.tally import from_json
from fedldp.signing import PrivateKey
from fedldp_fleet import engine
from fedldp_fleet.jobs import rounds_of
from fedldp_fleet.questions import Question
from fedldp_fleet.server import work
from fedldp_fleet.stages import Learned
from fedldp_fleet.store.base import DONE
from fedldp_fleet.transparency import SignedStatement, Transparency

KINDS = ["many", "one", "alone"]


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def party(store, kind):
    """Return a function that prepares a server with jobs, and an agent."""
    made = []

    def make(*some, machine=None, agents=1, vehicles=1, **options):
        machine = prepared(store, *some, agents=agents, vehicles=vehicles, machine=machine)
        made.append(Party(machine, store, kind, vehicles=vehicles, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def answers(store, job="spring", number=1):
    with store.reading() as inside:
        return list(inside.answers(job, number))


# Answering


def test_a_statistic_is_answered_in_two_calls(party, store):
    agent = party(statistic(wanted=1))
    assert agent.visit() == 0.0  # now it knows the job, and says that it can answer
    assert agent.visit() >= 1.0
    tick(agent.machine, store, agent.time.now)
    assert job_row(store, "spring").state == DONE
    assert from_json(job_row(store, "spring").result, PLAN).reports == 1
    assert (agent.agent.calls, agent.spent(), agent.reads) == (2, 2, 1)
    assert agent.outbox.counts() == {"spring": {"counted": 1}}


def test_an_agent_comes_back_soon_while_it_has_an_answer_to_send(party):
    """Its round is open for some time only; others leave a server alone that is away for long."""
    agent = party(statistic(wanted=1))
    agent.road.before = {"call", "deliver"}
    assert [agent.visit() for _ in range(9)] == [5, 10, 20, 40, 80, 160, 320, 640, 900]
    agent.road.before = {"deliver"}
    agent.visit()  # it learns of the job
    agent.visit()
    assert [agent.visit() for _ in range(5)] == [10, 20, 30, 30, 30]
    agent.road.before = set()
    agent.visit()
    assert agent.outbox.counts() == {"spring": {"counted": 1}}


def test_a_training_is_answered_once(party, store):
    agent = party(training(rounds=2, group=1))
    agent.visit(), agent.visit()
    tick(agent.machine, store, agent.time.now)
    assert job_row(store, "learn").round == 2
    for _ in range(3):
        agent.visit()
    assert len(answers(store, "learn", 1)) == 1
    assert answers(store, "learn", 2) == []
    assert agent.spent() == 2


def test_an_agent_trains_the_last_layer_of_a_network_whose_hidden_layers_are_fixed(store):
    vehicles, late = 3000, ["no", "yes"]
    draw = np.random.default_rng(1).uniform
    speed, load = draw(0, 50, vehicles), draw(0, 1, vehicles)
    score = FIXED.hidden(np.c_[speed / 25 - 1, 2 * load - 1, np.ones(vehicles)]) @ [4, -4, 4]
    rows = {"speed": speed, "load": load, "late": np.take(late, score > 0)}
    settings = Settings(4.0, survey="scale", group=100)
    job = work.training("learn", OF_FIXED, settings, vehicles, SCHEDULE)
    machine = prepared(store, job, agents=1, vehicles=vehicles)
    matrix = agent_cases.ALL_ATTRIBUTES.rows(rows).matrix()
    agent = Party(machine, store, "many", vehicles=vehicles, matrix=matrix)
    for _ in range(2 * rounds_of(job)):
        agent.visit()
        tick(machine, store, agent.time.now)
    row = job_row(store, "learn")
    assert (row.state, agent.told) == (DONE, [])
    assert set(agent.ledger.totals().values()) == {4}  # each vehicle has answered, once
    result = Model.from_json(row.result)
    scaling = Learned.from_json(row.learned).scaling
    assert result.layers == FIXED.scaled(scaling)
    assert result.error(rows) < 0.5 * min(np.mean(score > 0), np.mean(score <= 0))
    agent.close()


def test_several_jobs_are_answered_in_one_visit(party, store):
    agent = party(statistic(wanted=1), statistic("summer", wanted=1))
    agent.visit(), agent.visit()
    assert len(answers(store)) == len(answers(store, "summer")) == 1
    assert agent.agent.calls == 2


def test_a_plan_is_read_once_and_so_is_a_question(party):
    agent = party(statistic(wanted=1))
    for _ in range(5):
        agent.visit()
    assert agent.road.log.count("question") == agent.road.log.count("job") == 1


# Refusing, before any data are read


def refused(agent, reason):
    for _ in range(2):
        agent.visit()
    assert "announce" not in agent.road.log
    assert (agent.spent(), agent.reads) == (0, 0)
    [told] = agent.told
    assert reason in told


def test_a_job_of_another_operator_is_refused(party):
    agent = party(statistic())
    stranger = PrivateKey.generate().public.text
    agent.agent.trust(agent.package.signing.PublicKey.from_text(stranger))
    refused(agent, "not signed by the expected key")


def test_a_server_that_the_operator_has_not_named_is_refused(party, store):
    agent = party(statistic())
    with store.transaction() as inside:
        [row] = inside.rounds("spring")
        other = engine.Statement("spring", 1, row.digest).signed(PrivateKey.generate())
        inside.set_round(row._replace(statement=other))
    refused(agent, "not signed by the expected key")


def test_another_question_than_the_stated_one_is_refused(party):
    agent = party(statistic())
    agent.road.question = lambda _: b"{}"
    refused(agent, "has sent another question than it has signed")


def test_a_question_that_the_job_does_not_cover_is_refused(party, store):
    agent = party(statistic(), training())
    with store.transaction() as inside:
        [row] = inside.rounds("spring")
        [other] = inside.rounds("learn")
        document = inside.question(other.digest).replace(b'"learn"', b'"spring"')
        digest = engine.hashlib.sha256(document).digest()
        statement = engine.Statement("spring", 1, digest).signed(SERVER)
        inside.add_question(digest, document)
        inside.set_round(row._replace(digest=digest, statement=statement))
        inside.set_job(inside.job("learn")._replace(state=DONE))
    refused(agent, "is not the one that the operator has signed")


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ({"jobs": ["summer-*"]}, "the owner allows jobs called 'summer-*'"),
        ({"most_epsilon": "1.5"}, "the owner allows an epsilon of 1.5"),
        ({"attributes": ["speed"]}, "the question also needs 'load'"),
    ],
)
def test_what_the_owner_does_not_allow_is_refused(party, policy, reason):
    refused(party(statistic(), policy=policy), reason)


def test_a_plan_beyond_the_cap_is_refused(party):
    refused(party(statistic(), cap=1.5), "the cap is 3/2")


def test_a_job_that_is_over_is_refused(party):
    agent = party(statistic())
    agent.time.now += 10 * 86_400
    agent.road.time = type(agent.time)(START)  # the server's clock is right
    refused(agent, "is open from")


def test_a_vehicle_without_budget_does_not_ask_for_a_place(party):
    agent = party(statistic("first", wanted=5), statistic("second", wanted=5), cap=3.0)
    for _ in range(4):
        agent.visit()
    assert agent.spent() == 2
    assert agent.outbox.counts() in ({"first": {"counted": 1}}, {"second": {"counted": 1}})
    assert agent.road.log.count("announce") <= 2


def test_fewer_vehicles_than_the_owner_wants_do_not_answer(party):
    agent = party(statistic(), policy={"fewest_vehicles": 2})
    for _ in range(3):
        agent.visit()
    assert agent.spent() == 0
    assert "announce" not in agent.road.log


# Nobody pays for an answer that cannot count


def test_a_lease_that_is_too_short_is_declined(party):
    agent = party(statistic(wanted=1))
    agent.visit()
    agent.road.delay = 25.0  # of a lease of 30 seconds, for an answer that may take 10
    assert agent.visit() <= 30  # it comes back when the place has expired
    assert (agent.spent(), agent.reads) == (0, 0)
    assert "announce" not in agent.road.log


def test_a_lease_that_ends_while_it_is_announced_is_not_used(party):
    agent = party(statistic(wanted=1))
    agent.visit()
    announce = agent.road.announce

    def slow(said):
        agent.time.move(21.0)
        return announce(said)

    agent.road.announce = slow
    agent.visit()
    assert (agent.spent(), agent.reads) == (0, 0)


def test_a_place_that_the_server_has_given_away_is_not_used(party):
    agent = party(statistic(wanted=1))
    agent.visit()
    agent.road.announce = lambda _: False
    agent.visit()
    assert (agent.spent(), agent.reads) == (0, 0)
    assert agent.outbox.unsettled() == []


def test_a_clock_that_jumps_changes_no_lease(party, store):
    agent = party(statistic(wanted=1))
    agent.visit()
    announce = agent.road.announce

    def jump(said):
        waits = announce(said)
        agent.time.now += 3600  # the wall clock alone
        return waits

    agent.road.announce = jump
    agent.visit()
    assert len(answers(store)) == 1


# Sending until it is acknowledged


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("act", ["call", "question", "job", "announce", "deliver"])
def test_a_cut_at_any_act_costs_nothing_and_loses_nothing(party, store, act, where):
    agent = party(statistic(wanted=1))
    setattr(agent.road, where, {act})
    for _ in range(3):
        agent.visit()
    assert agent.spent() == (2 if act == "deliver" else 0)
    setattr(agent.road, where, set())
    for _ in range(3):
        agent.visit()
    assert len(answers(store)) == 1
    assert agent.spent() == 2
    assert agent.outbox.counts() == {"spring": {"counted": 1}}


def test_what_was_drawn_is_sent_after_a_crash_even_late(party, store):
    agent = party(training(rounds=2, group=1))
    agent.road.before = {"deliver"}
    agent.visit(), agent.visit()
    assert agent.spent() == 2
    agent.start()
    tick(agent.machine, store, START + 10_000)
    agent.time.move(10_000)
    assert agent.visit() > 0
    agent.road.before = set()
    agent.start()
    agent.visit()
    [said] = agent.outbox.counts()["learn"]
    assert said in ("counted", "late")
    assert agent.reads == 1


def test_an_early_answer_is_sent_again(party):
    agent = party(statistic(wanted=1))
    agent.visit()
    deliver = agent.road.deliver
    early = agent.package.messages.Acknowledgement
    agent.road.deliver = lambda data: early(
        b"i" * 16, deliver(data).identifier, agent.package.messages.AnswerVerdict.EARLY
    )
    agent.visit()
    assert agent.outbox.unsettled() != []
    agent.road.deliver = deliver
    agent.visit()
    assert agent.outbox.counts() == {"spring": {"counted": 1}}


def test_everything_is_sent_again_to_another_incarnation(party, store):
    agent = party(statistic(wanted=1))
    agent.visit(), agent.visit()
    [before] = answers(store)
    with store.transaction() as inside:  # restored to a time before the answer
        [row] = inside.rounds("spring")
        inside.set_round(row._replace(answers=0))
        inside._execute("DELETE FROM answers")
        inside._execute("DELETE FROM used")
        engine.start(inside, b"j" * 16)
    agent.visit()
    assert answers(store) == [before]
    assert (agent.spent(), agent.reads) == (2, 1)
    sent = agent.road.log.count("deliver")
    agent.visit()
    assert agent.road.log.count("deliver") == sent == 2


def test_a_lost_outbox_costs_nothing(party, store):
    agent = party(statistic(wanted=2))
    agent.visit(), agent.visit()
    [before] = answers(store)
    agent.close()
    for path in agent.folder.glob("outbox.db*"):
        path.unlink()
    agent.agent = None
    agent.start()
    with store.transaction() as inside:
        [row] = inside.rounds("spring")
        inside.set_round(row._replace(answers=0))
        inside._execute("DELETE FROM answers")  # the server has lost it, too
        inside._execute("DELETE FROM used")
    agent.visit(), agent.visit()
    assert answers(store) == [before]  # the same identifier, so it counts once
    assert (agent.spent(), agent.reads) == (2, 1)


# What others see does not depend on the data


def test_rows_that_cannot_be_read_are_answered_too(party, store, kind):
    def fail():
        raise MemoryError("no rows")

    agent = party(statistic(wanted=1), rows=fail if kind != "many" else None)
    agent.visit(), agent.visit()
    assert len(answers(store)) == 1
    if kind != "many":
        assert "no rows" in agent.owner[0]


ODD_ROWS = {
    "usual": {"speed": 30.0, "load": 0.25, "late": "yes"},
    "out of bounds": {"speed": 1e300, "load": -5.0, "late": "no"},
    "missing": {"speed": None, "load": None, "late": None},
    "unknown": {"speed": 30.0, "load": 0.25, "late": "perhaps"},
}


def test_all_that_leaves_is_the_same_for_all_data_but_the_records(make_store, kind, monkeypatch):
    """Calls, announcements, sizes, times, what is told: only the records differ."""
    found = []
    for name, row in ODD_ROWS.items():
        monkeypatch.setattr(agent_cases, "ROW", row)
        store = make_store(name)
        machine = prepared(store, statistic(wanted=1), training(rounds=1, group=1), agents=1)
        agent = Party(machine, store, kind)
        call, sent = agent.road.call, []
        agent.road.call = lambda given, call=call, sent=sent: (
            sent.append(dict(given.able)) or call(given)
        )
        waits = [agent.visit() for _ in range(4)]
        found.append((sent, agent.road.log, agent.time.sleeps, waits, agent.told, agent.spent()))
        agent.close()
    assert found[0][5] == 4
    assert found[1:] == found[:1] * 3


def test_an_answer_leaves_at_a_tick(party):
    agent = party(statistic(wanted=1))
    agent.visit()
    rows, time = agent._row, agent.time

    def slow():
        time.move(2.25)
        return rows()

    agent.rows = None
    agent._row = slow
    agent.start()
    agent.visit()
    agent.visit()
    assert time.sleeps[-1] == pytest.approx(0.75)


def test_the_size_of_an_answer_depends_on_the_place_alone(store):
    machine = prepared(store, statistic(wanted=16), agents=2, vehicles=8)
    sizes = []
    for name, most_records in (("agent-0", 3), ("agent-1", 8)):
        agent = Party(machine, store, "many", name, vehicles=8)
        holder = agent.agent._holder
        draw = holder.draw
        holder.draw = lambda checked, _, draw=draw, mine=most_records: draw(checked, mine)
        agent.visit(), agent.visit()
        sizes += [entry[1] for entry in agent.road.log if entry[0] == "size"][:1]
        agent.close()
    reports = [int.from_bytes(report[8:12], "big") for report in answers(store)]
    assert 3 in reports
    assert 8 in reports
    assert sizes[0] == sizes[1]


# Many vehicles


def test_many_vehicles_answer_place_by_place(store):
    machine = new_engine(most_places=40)
    prepared(store, statistic(wanted=150), agents=1, vehicles=200, machine=machine)
    agent = Party(machine, store, "many", vehicles=200)
    agent.visit()
    assert [agent.visit() for _ in range(3)] == [0.0] * 3
    agent.visit()
    reports = [int.from_bytes(report[8:12], "big") for report in answers(store)]
    assert sorted(reports) == [30, 40, 40, 40]
    assert agent.spent() == 300
    assert len(agent.ledger.asked()) == 1  # the question is in the chain once
    agent.close()


def test_a_vehicle_answers_a_round_once_even_if_it_may_answer_a_job_again(store):
    machine = new_engine(most_places=3)
    prepared(store, statistic(wanted=10), agents=1, vehicles=10, machine=machine)
    agent = Party(machine, store, "many", vehicles=5, answers_per_job=3, cap=10)
    for _ in range(6):
        agent.visit()
    assert agent.spent() == 10
    agent.start()
    agent.visit(), agent.visit()
    assert set(agent.ledger.totals().values()) == {2}
    agent.close()


def test_the_choice_among_vehicles_is_random(store):
    machine = prepared(store, statistic(wanted=10), agents=1, vehicles=100)
    agent = Party(machine, store, "many", vehicles=100)
    agent.visit(), agent.visit()
    chosen = sorted(int(name.partition("-")[2]) for name in agent.ledger.totals())
    assert len(chosen) == 10
    assert chosen != list(range(10))  # false alarm: 1 in 10^13
    agent.close()


# Lots


def test_each_vehicle_of_a_lot_answers_in_the_round_that_it_has_drawn(party, store):
    schedule = dataclasses.replace(SCHEDULE, order="lot")
    agent = party(training(rounds=3, group=4, schedule=schedule))
    rounds = []
    for _ in range(3):
        for _ in range(3):
            agent.visit()
        rounds.append(agent.spent())
        agent.time.move(200)
        tick(agent.machine, store, agent.time.now)
        with store.transaction() as inside:  # close a round that nobody has answered
            row = inside.job("learn")
            opened = inside.round("learn", row.round)
            if opened.closed is None and not opened.answers and row.round < 3:
                agent.machine._open(inside, row, row.round + 1, agent.time.now)
    assert rounds[-1] == 2
    assert rounds == sorted(rounds)


# Constants and transparency


def test_what_was_asked_is_in_the_chain_with_the_evidence(party):
    agent = party(statistic(wanted=1))
    agent.visit(), agent.visit()
    [link] = agent.ledger.asked()
    assert '"job":"spring"' in link.entry
    [entry] = agent.outbox.of_round("spring", 1)
    assert entry.question.hex() in entry.statement


def restated(store, job="spring"):
    """Let the server ask another question in a round that is open."""
    with store.transaction() as inside:
        row = inside.job(job)
        opened = inside.round(job, row.round)
        other = dataclasses.replace(Question.from_bytes(inside.question(opened.digest)), plan=OTHER)
        statement = engine.Statement(job, row.round, other.digest).signed(SERVER)
        inside.add_question(other.digest, other.to_bytes())
        inside.set_round(opened._replace(digest=other.digest, statement=statement))


OTHER = Plan(ROWS, 1.0, Sample(k=1, mechanism="three-outputs")).to_json()


def seen(agent):
    """Return what an agent can show to others, whichever distribution it is of."""
    stated = [SignedStatement(*dataclasses.astuple(each)) for each in agent.outbox.statements()]
    return Transparency.of(agent.ledger.asked(), agent.ledger.refused(), stated)


def test_two_statements_for_one_round_prove_that_the_server_asked_differently(party, store):
    agent = party(statistic(wanted=2))
    agent.visit(), agent.visit()
    assert seen(agent).proofs() == []
    restated(store)
    agent.visit()
    assert any("has signed two questions" in told for told in agent.told)
    assert agent.outbox.contradicted() == ["spring, round 1"]
    [(one, other)] = Transparency.from_json(json.dumps(seen(agent).to_document())).proofs()
    assert one.verified.question != other.verified.question
    assert agent.spent() == 2  # the second question is not covered


def test_agents_that_were_asked_differently_prove_it_together(store):
    machine = prepared(store, statistic(wanted=5), agents=2)
    parties = [
        Party(machine, store, "many", "agent-0"),
        Party(machine, store, "one", "agent-1"),
    ]
    parties[0].visit()
    restated(store)
    parties[1].visit()
    here, there = map(seen, parties)
    assert here.proofs() == there.proofs() == []
    assert len(here.proofs(there)) == len(there.proofs(here)) == 1
    forged = dataclasses.replace(there.stated[0], server=PrivateKey.generate().public.text)
    document = dataclasses.replace(there, stated=(forged,)).to_document()
    with pytest.raises(WireError, match="not signed by the expected key"):
        Transparency.from_json(json.dumps(document))
    for each in parties:
        each.close()


def test_what_was_refused_is_noted(party):
    agent = party(statistic(), policy={"jobs": ["other"]})
    agent.visit()
    [entry] = agent.ledger.refused()
    assert '"job":"spring"' in entry
