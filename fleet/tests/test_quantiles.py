"""A quantile on a fleet: from the same reports it is that of a simulation, bit for bit."""

import datetime
import json
from dataclasses import replace

import numpy as np
import pytest
from agent_cases import ALL_ATTRIBUTES, ALONE, LIBRARY, Party, Time
from engine_cases import (
    DAY,
    OPENS,
    OPERATOR,
    SCHEDULE,
    SERVER,
    START,
    answer_to,
    job_row,
    new_engine,
    prepared,
    tick,
)
from fleet_server import OPEN, running

import fedldp
from fedldp import Number, Plan
from fedldp.errors import DomainError
from fedldp.learn import QuantileSearch, computations
from fedldp.learn.quantiles import ROUNDS
from fedldp.plan.parts import Matrix
from fedldp_fleet import engine, jobs
from fedldp_fleet.agent.loop import report_of
from fedldp_fleet.agent.rows import TableRows
from fedldp_fleet.jobs import QuantileJob, read_job
from fedldp_fleet.library import packing
from fedldp_fleet.messages import Announcement, Answer, Call
from fedldp_fleet.questions import Question
from fedldp_fleet.server import work
from fedldp_fleet.signed_jobs import SignedJob
from fedldp_fleet.stages import Learned
from fedldp_fleet.store.base import DONE

VEHICLES = 400
SPEED = ALL_ATTRIBUTES["speed"]
SEARCH = QuantileSearch(SPEED, 0.9, epsilon=2.0, vehicles=VEHICLES)
SPEEDS = np.append(np.nan, fedldp.source(1).uniform(VEHICLES - 1) * 50)


def job(schedule=SCHEDULE, search=SEARCH):
    return QuantileJob("fast", search, schedule)


class AsSimulated:
    """Vehicles that answer what those of a simulation answer, in the same order."""

    def __init__(self, seed):
        self.source, self.done = fedldp.source(seed), 0
        self.order = np.argsort(self.source.words(VEHICLES), kind="stable")

    def answer(self, question, wanted):
        some = self.order[self.done : self.done + wanted]
        self.done += wanted
        asked, plan = computations.read(question.model), Plan.from_json(question.plan)
        values = asked.answers(SPEEDS[some, None], None)
        records = sorted(plan.records(values, self.source).split())
        packed = packing.join(records, plan.bits).to_bytes()
        report = report_of(plan.fingerprint, len(records), packed)
        given = question.job, question.round, question.digest, question.digest[:16]
        return Answer(*given, wanted, report, plan.bits)


def answer_round(machine, store, answer):
    """Answer the open round with one agent, as far as there are places."""
    with store.transaction() as inside:
        [offer] = machine.call(inside, "agent-0", Call({"fast": VEHICLES}), START).offers
        opened = inside.round("fast", inside.job("fast").round)
        assert machine.announce(inside, "agent-0", Announcement("fast", opened.number), START)
        question = Question.from_bytes(inside.question(opened.digest))
        given = answer(question, offer.place.vehicles)
        [parsed] = machine.parse(inside, [given])
        machine.deliver(inside, "agent-0", given, parsed, START)
        machine.tick(inside, START)


def test_the_quantile_of_the_fleet_is_that_of_the_simulation(store):
    machine = prepared(store, job(), agents=1, vehicles=VEHICLES, machine=new_engine())
    vehicles = AsSimulated(5)
    for _ in range(ROUNDS):
        answer_round(machine, store, vehicles.answer)
    row = job_row(store, "fast")
    assert (row.state, row.reason) == (DONE, engine.ALL_ROUNDS)
    assert row.result == SEARCH.simulate(SPEEDS, fedldp.source(5)).to_json()


@pytest.fixture
def party(tmp_path):
    """Return a function that makes an agent, with a road to a server over TLS."""
    made = []

    def make(server, kind, vehicles=1, rows=None):
        package = ALONE if kind == "alone" else LIBRARY
        context, path = package.https.tls(server.ca), tmp_path / "membership.json"
        name = f"agent-{len(made)}"
        package.https.join(server.url, server.enroll(name, vehicles), context).save(path)
        road = package.https.HTTPSRoad(package.https.Membership.load(path), context, path)
        clock = Time(datetime.datetime.now(datetime.UTC).timestamp())
        clock.sleep = clock.sleeps.append  # no test waits for a tick
        agent = Party(None, None, kind, vehicles=vehicles, road=road, time=clock, rows=rows)
        made.append(agent)
        return agent

    yield make
    for each in made:
        each.road.close()
        each.close()


def table():
    ids = [f"car-{number}" for number in range(VEHICLES)]
    matrix = np.zeros((VEHICLES, sum(each.size for each in ALL_ATTRIBUTES.attributes)))
    matrix[:, 0] = SPEEDS
    return TableRows(ALL_ATTRIBUTES, matrix, ids)


def test_real_agents_over_https_answer_once_each(tmp_path, party, monkeypatch):
    """The server learns from their reports what a simulation learns from the same reports."""
    folder = tmp_path / "server"
    folder.mkdir()
    monkeypatch.setattr(Party, "_table", lambda _: table())
    with running(folder, operator=OPERATOR) as server:
        server.add(job(OPEN))
        server.tick()
        agent = party(server, "many", VEHICLES)
        for _ in range(3 * ROUNDS):
            agent.visit()
            server.tick()
        row = server.job("fast")
        assert (row.state, row.reason) == (DONE, engine.ALL_ROUNDS)
        answers = ()
        for number in range(1, ROUNDS + 1):
            with server.store.reading() as store:
                opened = store.round("fast", number)
                reports = [*store.answers("fast", number)]
                question = Question.from_bytes(store.question(opened.digest))
            assert question.model == SEARCH.computation(answers).to_json()
            answers = SEARCH.learned(answers, SEARCH.plan.count(reports).tally)
        assert row.result == SEARCH.result(answers).to_json()
        assert json.loads(row.result)["vehicles"] == VEHICLES
    assert {float(spent) for spent in agent.ledger.totals().values()} == {2.0}
    assert len(agent.ledger.totals()) == VEHICLES
    assert agent.told == []


@pytest.mark.parametrize("kind", ["one", "alone"])
def test_a_vehicle_on_the_standard_library_answers_over_https(tmp_path, party, kind):
    folder = tmp_path / "server"
    folder.mkdir()
    with running(folder, operator=OPERATOR) as server:
        server.add(job(OPEN))
        server.tick()
        agent = party(server, kind)
        agent.visit(), agent.visit()
        assert agent.outbox.counts() == {"fast": {"counted": 1}}
        assert agent.told == []
        assert agent.spent() == 2.0


@pytest.mark.parametrize("speed", [0.0, 31.0, 25.0, 50.0, 70.0, None])
def test_a_vehicle_on_the_standard_library_computes_the_same(speed):
    from fedldp_fleet.agent.linear import Side

    asked = SEARCH.computation(SEARCH.learned((), tally_of_zeros()))
    for each in (SEARCH.computation(()), asked):
        document = json.loads(each.to_json())
        value = np.array([[np.nan if speed is None else speed]])
        [[expected]] = each.answers(value).matrix
        side = Side(document)
        assert side.declaration == each.declaration
        assert side.answer([{} if speed is None else {"speed": speed}], 0) == [expected]


def tally_of_zeros():
    return SEARCH.plan.simulate_batches([Matrix(np.full((100, 1), -1.0))], fedldp.source(1))


def test_a_job_is_read_as_it_was_written_and_signed():
    one = job()
    assert read_job(one.to_json()) == one
    found = SignedJob.verified(jobs.to_sign(one, SERVER.public).signed(OPERATOR), OPERATOR.public)
    later = Learned(sides=SEARCH.learned((), tally_of_zeros()))
    assert Learned.from_json(later.to_json()).sides == later.sides
    first, second = jobs.question(one, 1, one.start), jobs.question(one, 2, later)
    assert json.loads(first.model)["scaling"] != json.loads(second.model)["scaling"]
    for asked in (first, second):
        found.stage_of(asked).check(computations.read(asked.model))
    other = QuantileSearch(Number("load", 0, 1), 0.9, epsilon=2.0, vehicles=VEHICLES)
    with pytest.raises(DomainError, match="something else than the operator has signed"):
        found.stage_of(first).check(other.computation(()))


def test_a_search_that_ends_early_has_an_interval(store):
    machine = prepared(store, job(), agents=1, vehicles=VEHICLES, machine=new_engine())
    for _ in range(3):
        answer_round(machine, store, lambda question, n: answer_to(question, vehicles=n))
    tick(machine, store, START + DAY)
    row = job_row(store, "fast")
    assert (row.state, row.reason) == (DONE, engine.CLOSED)
    found = json.loads(row.result)
    assert found["vehicles"] == 3 * VEHICLES // ROUNDS
    assert 0 <= found["interval"][0] <= found["value"] <= found["interval"][1] <= 50


def test_a_search_goes_on_in_another_store(store):
    machine = prepared(store, job(), agents=1, vehicles=VEHICLES, machine=new_engine())
    answer_round(machine, store, lambda question, n: answer_to(question, vehicles=n))
    text = engine.state_of(job_row(store, "fast"))
    assert Learned.from_json(json.loads(text)["learned"]).sides


def test_only_the_end_of_a_search_can_be_later():
    later = replace(SCHEDULE, closes=OPENS + datetime.timedelta(days=2))
    assert work.topped_up(job(), schedule=later) == job(later)
    with pytest.raises(DomainError, match="only a later end"):
        work.topped_up(job(), vehicles=2 * VEHICLES)
    assert not job(later).extends(job(search=replace(SEARCH, level=0.5)))


@pytest.mark.parametrize(("vehicles", "asked"), [(410, 400), (420, 420)])
def test_every_round_asks_equally_many(vehicles, asked):
    made = work.quantile("fast", SPEED, 0.9, 2.0, vehicles, SCHEDULE)
    assert jobs.wanted_of(made) == asked
    with pytest.raises(DomainError, match="multiple of 20"):
        QuantileJob("fast", replace(SEARCH, vehicles=410), SCHEDULE)
