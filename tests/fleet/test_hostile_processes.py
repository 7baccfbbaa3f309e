"""Liars among real processes: a server that asks for too much, a gateway that sends rubbish.

The gateway is one of two at work on Flower. Its app, `hostile_app`, plays a trick in each reply
until it has no more; then it sends an answer that counts, as any gateway can.
"""

import json
import signal
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from fleet_parts import (
    PATIENCE,
    TURNS,
    VEHICLES,
    Fleet,
    Proxy,
    calls,
    edit,
    pin,
    reroute,
    running,
    small_fleet,
    unpin,
    until,
)
from flwr.app import ConfigRecord
from flwr.proto.message_pb2 import PushObjectRequest
from flwr.supercore.inflatable.inflatable_object import (
    get_object_head_values_from_object_content as head,
)
from hostile_app import HOSTILE, TRICKS
from plans import canonical, changed
from vaults import answer, framed, sent_back

from fedldp._internal import packing
from fedldp.fleet import processes
from fedldp.fleet.flower.messages import NAME
from fedldp.fleet.protocol import HEADER, Answer, Question
from fedldp.fleet.server import checkpoint
from fedldp.fleet.server.process import ServerConfig
from fedldp.fleet.server.registrations import registered
from fedldp.fleet.server.rounds import ROUNDS
from fedldp.fleet.sockets import REFUSED, Address
from fedldp.fleet.transparency import Transparency
from fedldp.fleet.vault.process import VaultConfig
from fedldp.learn.settings import Settings

pytestmark = pytest.mark.xdist_group("processes")

SHAPES = {("Message", 1), ("RecordDict", 1), ("ConfigRecord", 0)}  # with this number of children


# A server that asks a vault for too much


@dataclass
class Held:
    """A vault that has answered a question, in a process of its own."""

    fleet: Fleet
    address: Address
    question: Question
    batch: Answer

    def recorded(self):
        query = "SELECT key, request, epsilon, answer FROM releases ORDER BY number"
        return self.fleet.rows("vault-1/ledger.db", query)

    def log(self):
        return warnings(self.fleet)


def warnings(fleet):
    """Return the events of the level WARNING in the log of the vault, without their times."""
    lines = fleet.log("vault-1").splitlines()
    return [line.partition(" WARNING ")[2] for line in lines if " WARNING " in line]


def serve(fleet):
    """Start the vault, and return where it listens."""
    address = VaultConfig.load(fleet.folder / "vault-1").address
    fleet.start("vault-1")
    until(Path(address.path).exists, "the socket")
    return address


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    fleet = small_fleet(tmp_path_factory.mktemp("vault") / "fleet", 1)
    unpin(fleet.folder)  # what follows is refused for other reasons than a missing signature
    try:
        address = serve(fleet)
        question = replace(fleet.job.question("7", 1), n=VEHICLES // 2)
        found = answer(address, question)
        assert found.answered == VEHICLES // 2
        yield Held(fleet, address, question, found)
        assert answer(address, question) == found  # after all that
    finally:
        fleet.close()
    assert running(fleet.folder) == {}


def check_refused(held, questions, replies):
    """Check that each gets `size` bytes every time, one line is logged, and nothing is recorded."""
    before, said = held.recorded(), held.log()
    for question, reply in [*zip(questions, replies, strict=True)] * 2:
        assert sent_back(held.address, framed(question)) == framed(reply)
    assert held.recorded() == before
    assert held.log()[: len(said)] == said
    (line,) = held.log()[len(said) :]
    assert line.startswith("refused: ")
    assert len(line) < 600


def test_another_question_in_the_same_round(held):
    weights = (0.5,) * len(held.fleet.job.model.weights)
    model = replace(held.fleet.job.model, weights=weights).to_json()
    changes = {"model": model}, {"n": held.question.n + 1}, {"n": 1}, {"gateway": "8"}
    asked = [replace(held.question, **change) for change in changes]
    refusals = [Answer.of(question).to_bytes() for question in asked]
    check_refused(held, [question.to_bytes() for question in asked], refusals)


def leaking(plan):
    """Return a plan by which the best directions are twice as likely as its epsilon allows."""
    (part,) = plan["parts"]
    return changed(plan, ("parts", 0, "high"), str(2 * int(part["high"])))


PLANS = {
    "a price below that of the table": lambda plan: plan | {"epsilon": "0.5"},
    "tampered odds": leaking,
    "a vehicle": lambda plan: plan | {"vehicle": "17"},
    "a coordinate": lambda plan: changed(plan, ("parts", 0, "coordinate"), 3),
}
MODELS = {
    "an unknown objective": {"objective": "os.system"},
    "code": {"code": "print(rows)"},
    "invalid numbers": {"weights": "nan"},
}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_that_is_none(held, name):
    plan = canonical(PLANS[name](json.loads(held.question.plan)))
    check_refused(held, [replace(held.question, plan=plan, round=2).to_bytes()], [REFUSED])


def test_a_question_that_names_a_vehicle(held):
    question = json.loads(held.question.to_bytes()) | {"vehicle": "17"}
    check_refused(held, [canonical(question).encode()], [REFUSED])


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_is_none(held, name):
    model = canonical(json.loads(held.question.model) | MODELS[name])
    question = replace(held.question, model=model, round=3 + list(MODELS).index(name))
    check_refused(held, [question.to_bytes()], [Answer.of(question).to_bytes()])


@pytest.mark.parametrize(("epsilon", "size"), [(5.0, 33), (4.0, 1)])
def test_a_plan_that_costs_too_much_or_asks_for_one_coordinate(held, epsilon, size):
    plan = Settings(epsilon).plan(size).to_json()
    # A reason is logged once for each job.
    question = replace(held.question, plan=plan, job=f"of-{size}", round=10 + size)
    check_refused(held, [question.to_bytes()], [Answer.of(question).to_bytes()])


def test_neither_a_new_job_nor_a_new_process_adds_budget(tmp_path):
    """The cap is for life: who has spent it says no more, whatever the question is called."""
    fleet = small_fleet(tmp_path / "fleet", 1)
    unpin(fleet.folder)
    try:
        address = serve(fleet)
        first = fleet.job.question("7", 1)
        found = answer(address, first)
        assert found.answered == VEHICLES
        asked = [replace(first, job=job, round=2) for job in ("flights", "spring", "summer")]
        for _ in range(2):
            for question in asked:
                refusal = framed(Answer.of(question).to_bytes())
                assert sent_back(address, framed(question.to_bytes())) == refusal
            assert answer(address, first) == found
            fleet.popens["vault-1"].send_signal(signal.SIGTERM)
            assert fleet.popens["vault-1"].wait(60) == 0
            address = serve(fleet)
        lines = fleet.rows("vault-1/ledger.db", "SELECT key, request, epsilon FROM releases")
        assert len({key for key, *_ in lines}) == len(lines) == VEHICLES
        assert {line[1:] for line in lines} == {("flights/1", "4/1")}
        logged = warnings(fleet)
        assert len(logged) == 6
        assert all(f"of {VEHICLES} vehicles that were asked for, 0" in line for line in logged)
    finally:
        fleet.close()


def test_a_large_cap_buys_one_answer_to_each_job(tmp_path):
    """However many rounds, gateways and processes there are: another job gets one of its own."""
    fleet = small_fleet(tmp_path / "fleet", 1)
    unpin(fleet.folder)
    edit(fleet.folder / "vault-1" / "vault.toml", cap='"40.0"')
    asked = [
        replace(fleet.job.question(gateway, number), job=job, n=VEHICLES // 2)
        for job in ("flights", "spring")
        for number in (1, 2, 3, 4)
        for gateway in ("7", "8")  # of which the first is answered
    ]
    try:
        for _ in range(2):
            address = serve(fleet)
            batches = [answer(address, question) for question in asked]
            counts = [batch.answered * 2 / VEHICLES for batch in batches]
            assert counts == [1, 0, 1, 0, 0, 0, 0, 0] * 2
            fleet.popens["vault-1"].send_signal(signal.SIGTERM)
            assert fleet.popens["vault-1"].wait(60) == 0
        lines = fleet.rows("vault-1/ledger.db", "SELECT key, job FROM releases")
        assert len(set(lines)) == len(lines) == 2 * VEHICLES
    finally:
        fleet.close()


def test_a_vault_with_the_operators_key_answers_what_the_operator_has_signed(tmp_path):
    """A server that was taken over asks for other things first; then it asks what it may."""
    fleet = small_fleet(tmp_path / "fleet", 1)
    signed, rounds = fleet.job.question("7", 1), fleet.job.rounds
    other = Settings(2.0).plan(len(fleet.job.model.weights)).to_json()
    attacks = {
        "has no signature": replace(signed, signed=""),
        "has signed the job 'flights', and not 'spring'": replace(signed, job="spring"),
        f"has signed {rounds} rounds": replace(signed, round=rounds + 1),
        "plan of the question is not the one": replace(signed, plan=other),
        "compute something else": replace(
            signed, model=replace(fleet.job.model, objective="hinge").to_json()
        ),
        "the signature is wrong": replace(
            signed, signed=signed.signed.replace('"expires":"20', '"expires":"30')
        ),
    }
    try:
        address = serve(fleet)
        for question in attacks.values():
            reply = sent_back(address, framed(question.to_bytes()))
            refusals = Answer.unread(question), Answer.of(question).to_bytes()
            assert reply in map(framed, refusals)
        assert fleet.rows("vault-1/ledger.db", "SELECT * FROM releases") == []
        for why in attacks:
            assert why in fleet.log("vault-1")
        assert answer(address, signed).answered == VEHICLES
        found = Transparency.read(fleet.folder / "vault-1" / "ledger.db")
        assert [(each.job, each.round) for each in found.asked] == [("flights", 1)]
        assert len(found.refused) == len(attacks) - 1  # two differ in their signatures alone
    finally:
        fleet.close()


# A gateway that sends rubbish

REASONS = (  # all that is said of them, each once
    "the answer does not have the length",
    "the answer is to another question",
    "a message must contain one record of bytes and nothing else",
    "expected an answer; got an error from Flower",
)


@dataclass
class Done:
    fleet: Fleet
    heard: list  # what the honest gateway has sent, by connection


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Run a job to its end, with one honest gateway, which is overheard, and the liar."""
    folder, way = tmp_path_factory.mktemp("liar") / "fleet", processes.free_port()
    fleet = small_fleet(folder, 2)
    edit(folder / "server" / "job.toml", resend=4.0, deadline=3600.0)
    edit(folder / "server" / "app" / "pyproject.toml", clientapp='"hostile_app:client"')
    pin(folder)
    edit(folder / "gateway-2" / "gateway.toml", vaults=f'["{HOSTILE}"]')
    reroute(folder, "gateway-1", way)
    server = ServerConfig.load(folder / "server")
    try:
        with Proxy(way, server.port, server) as proxy:
            for part in ("vault-1", "server"):
                fleet.start(part)
            until(lambda: len(registered(server.state)) == 2, "registration")
            for part in fleet.gateways:
                fleet.start(part)
            assert fleet.popens["server"].wait(PATIENCE) == 0, fleet.log("server")
            fleet.close()
    finally:
        fleet.close()
    assert running(folder) == {}
    return Done(fleet, proxy.heard)


def nodes(fleet):
    """Return what Flower calls the honest gateway and the liar."""
    honest = fleet.node("vault-1", 1)
    (liar,) = {gateway for _, gateway in fleet.batches()} - {honest}
    return honest, liar


@pytest.mark.faults
def test_all_tricks_were_played(done):
    played = Counter((done.fleet.folder / "gateway-2" / "played").read_text().splitlines())
    tricks = {name: 1 for each in TRICKS.values() for name in each}
    assert tricks.items() <= played.items()
    assert played.keys() - tricks.keys() == {"round 1", "round 2"}


@pytest.mark.faults
def test_no_round_is_lost_and_honest_reports_count_exactly(done):
    """The liar's count as far as they are reports: once in a round, and no more than were asked."""
    fleet, (honest, liar) = done.fleet, nodes(done.fleet)
    found = fleet.progress()
    assert (found.rounds, found.ended, found.failed) == (TURNS, ROUNDS, False)
    batches = fleet.batches()
    asked, answers = fleet.recorded("vault-1", 1)
    assert batches.pop((1, honest)) == answers
    assert len(answers) == VEHICLES
    assert batches.pop((2, honest)) == []  # nobody can afford a second answer
    for number in (1, 2):
        digest = fleet.checkpoint(
            "SELECT digest FROM asks WHERE round = ? AND gateway = ?", number, liar
        )
        assert len(batches.pop((number, liar))) == VEHICLES
        assert digest != [(asked,)]
    assert batches == {}
    assert (found.reports, found.refusals, found.silent) == (3 * VEHICLES, VEHICLES, 0)
    state = checkpoint.replay(fleet.job.checkpoint, fleet.job.stages)
    assert fleet.checkpoint("SELECT state FROM job") == [(state.to_json(),)]


@pytest.mark.faults
def test_what_was_ignored_is_logged_once_with_the_name_of_the_gateway(done):
    liar = "gateway-2"
    log = done.fleet.job.checkpoint.with_suffix(".log").read_text()
    lines = [line for line in log.splitlines() if "WARNING" in line and liar in line]
    assert len(lines) == len(REASONS)
    assert all(any(f"{liar}: {reason}" in line for line in lines) for reason in REASONS)
    assert "48 km/h" not in log


@pytest.mark.faults
def test_reports_and_refusals_look_the_same_on_the_way(done):
    """What the honest gateway has sent: in the first round reports, in the second refusals."""
    sent = []
    for path, body in (call for heard in done.heard for call in calls(heard)):
        if path == "/v1/fleet/push-object":
            content = PushObjectRequest.FromString(body).object_content
            kind, children, _ = head(content)
            assert (kind, len(children)) in SHAPES
            if kind == "ConfigRecord":
                [(name, data)] = ConfigRecord.inflate(content).items()
                assert name == NAME
                sent.append((len(body), data))
    size = HEADER + packing.length(VEHICLES, done.fleet.job.plan.bits)
    assert {len(data) for _, data in sent} == {size}
    assert len({length for length, _ in sent}) == 1
    assert any(data.endswith(bytes(size - HEADER)) for _, data in sent)
    assert not all(data.endswith(bytes(size - HEADER)) for _, data in sent)
