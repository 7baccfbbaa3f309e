"""Fleets that versions 0.1 and 0.2 have left in the middle of a job: everything opens and goes on.

Their files were written by those versions: see `make_fleets`.
"""

import contextlib
import json
import shutil
import signal
import sqlite3
from collections import Counter
from fractions import Fraction

import make_fleets as made
import old_fleets
import pytest
from fleet_parts import PATIENCE, edit
from ledger_victim import victim

from fedldp import Plan, __version__
from fedldp.fleet import status
from fedldp.fleet.gateway.process import GatewayConfig
from fedldp.fleet.job import Job
from fedldp.fleet.processes import Supervisor
from fedldp.fleet.protocol import Answer
from fedldp.fleet.server import checkpoint, names, process
from fedldp.fleet.server.process import ServerConfig, nodes_of
from fedldp.fleet.server.registrations import registered
from fedldp.fleet.server.rounds import ROUNDS, Rounds
from fedldp.fleet.server.summary import Summary
from fedldp.fleet.vault.process import VaultConfig
from fedldp.fleet.vault.vault import Vault
from fedldp.learn.model import Model

ANSWERED = 5 * made.VEHICLES // 2  # of 40 vehicles, in two rounds and by a gateway in the third


@pytest.fixture(params=old_fleets.VERSIONS)
def fleet(request, tmp_path):
    return old_fleets.unpacked(request.param, tmp_path / "fleet")


def rows(path, query):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


@contextlib.contextmanager
def opened(fleet, number):
    """Open the vault of a fleet as its process does."""
    config = VaultConfig.load(fleet.folder / f"vault-{number}")
    (schema, matrix, names), quality = config.read()
    assert quality.clean
    with config.ledger() as ledger:
        yield Vault(schema, matrix, names, ledger), ledger


def test_every_file_opens(fleet):
    server = ServerConfig.load(fleet.folder / "server")
    assert len(registered(server.state)) == made.GATEWAYS
    found = checkpoint.status(server.state / "job.db")
    assert (found.job, found.rounds, found.asked, found.received) == ("spring", 2, 2, 1)
    assert found.reports == 5 * 5
    checkpoint.check(server.state / "job.db", fleet.job.name, fleet.job.settings)
    for number in range(1, made.GATEWAYS + 1):
        gateway = GatewayConfig.load(fleet.folder / f"gateway-{number}")
        assert len(gateway.vaults) == 1
        with opened(fleet, number) as (vault, ledger):
            assert len(vault) == made.VEHICLES
            assert set(ledger.totals().values()) == {Fraction(4)}
            assert set(Counter(each.request for each in ledger.history()).values()) == {5}


def test_gateways_keep_their_names(fleet):
    """Version 0.1 recorded no numbers: without them, its gateways would seem to be revoked."""
    server = ServerConfig.load(fleet.folder / "server")
    asked = {gateway for (gateway,) in rows(server.state / "job.db", "SELECT gateway FROM asks")}
    assert set(nodes_of(server).values()) == asked
    [found] = status.read(server.folder)
    assert {each["name"]: each["reports"] for each in found.document()["gateways"]} == {
        "gateway-1": 15,
        "gateway-2": 10,
    }


def test_a_server_records_the_numbers_once(fleet):
    server = ServerConfig.load(fleet.folder / "server")
    numbers = nodes_of(server)
    with Supervisor(server.state) as supervisor:
        process._register(supervisor, server)
    (server.state / "link.db").unlink()
    assert nodes_of(server) == numbers
    assert names.known(server.state) == {node: name for name, node in numbers.items()}


def test_without_the_database_of_flower_the_numbers_are_unknown(fleet):
    server = ServerConfig.load(fleet.folder / "server")
    (server.state / "link.db").write_bytes(b"damaged")
    (server.state / "registered.json").write_text(json.dumps(sorted(registered(server.state))))
    assert len(registered(server.state)) == made.GATEWAYS
    assert set(nodes_of(server).values()) == {""}


def test_the_job_goes_on_where_it_stood(fleet):
    """The same questions are asked again, byte by byte, and everybody answers once."""
    job = Job.load(fleet.folder / "server" / "job.toml")
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(opened(fleet, number)) for number in (1, 2)]
        recorded = {  # what a vault has in its ledger is found by the question's digest
            digest: vault
            for vault, ledger in held
            for (digest,) in rows(ledger.path, "SELECT question FROM questions")
        }
        rounds = stack.enter_context(contextlib.closing(Rounds(job)))
        pairs = rows(job.checkpoint, "SELECT gateway, digest FROM asks")
        behind = {gateway: recorded[digest] for gateway, digest in pairs if digest in recorded}
        assert len(behind) == made.GATEWAYS
        assert (rounds.number, len(rounds.pending)) == (3, 1)
        while not rounds.verdict:
            rounds.ask(behind)
            for gateway, question in rounds.questions().items():
                answer = behind[gateway].answer(question)
                assert answer.answered == 5
                rounds.receive(question, answer.to_bytes())
            rounds.step()
        assert rounds.verdict == ROUNDS
        rounds.finish()
        lines = [line for _, ledger in held for line in ledger.history()]
    assert len({line.vehicle_id for line in lines}) == len(lines) == 2 * made.VEHICLES
    found = checkpoint.status(job.checkpoint)
    assert (found.reports, found.refusals, found.silent) == (2 * made.VEHICLES, 0, 0)
    model = Model.from_json(job.result.read_text())
    assert list(model.weights) != list(job.model.weights)
    learned = checkpoint.replay(job.checkpoint, job.stages)
    assert list(model.weights) == learned.state.average[0].tolist()
    assert Summary.load(job.summary).complete


def test_what_was_answered_before_is_answered_with_the_same_bytes(fleet):
    job = Job.load(fleet.folder / "server" / "job.toml")
    with contextlib.closing(Rounds(job)) as rounds:
        open_round = rounds.number
    asked = rows(job.checkpoint, f"SELECT gateway, digest FROM asks WHERE round = {open_round}")
    with opened(fleet, 1) as (vault, ledger):
        known = {digest for (digest,) in rows(ledger.path, "SELECT question FROM questions")}
        [gateway] = [gateway for gateway, digest in asked if digest in known]
        model = checkpoint.replay(job.checkpoint, job.stages).model(job.model)
        question = job.question(gateway, open_round, model)
        before = len(ledger.history())
        answer = vault.answer(question)
        assert len(ledger.history()) == before
    [(report,)] = rows(
        job.checkpoint,
        f"SELECT report FROM batches WHERE round = {open_round} AND gateway = '{gateway}'",
    )
    assert answer.report(job.plan.fingerprint).to_bytes() == report
    assert Answer.from_bytes(answer.to_bytes(), question) == answer


def stored(path):
    """Return all that a checkpoint of either format holds, without the times of the newer one."""
    asks = "SELECT round, gateway, n, digest FROM asks ORDER BY round, gateway"
    batches = "SELECT round, gateway, answered, silent, size, report FROM batches ORDER BY 1, 2"
    job = "SELECT name, settings, start, state, round, ended, failed FROM job"
    return [rows(path, query) for query in (job, asks, batches)]


def test_a_checkpoint_that_is_killed_half_way_is_the_old_or_the_new_one(fleet, tmp_path):
    """SIGKILL before each statement: of the migration, its new version, the commit, and after."""
    state, kind = fleet.folder / "server" / "state", checkpoint._KIND
    places = sum(map(len, kind.migrations.values())) + 3
    for place in range(places):
        (tmp_path / str(place)).mkdir()
        for file in state.glob("job.db*"):  # after a crash, a part of it is in its -wal
            shutil.copy(file, tmp_path / str(place))
    before = stored(state / "job.db")
    assert victim("migrate_checkpoint", tmp_path, places) == [signal.SIGKILL] * places
    for place in range(places):
        path = tmp_path / str(place) / "job.db"
        assert rows(path, "PRAGMA user_version") == [(kind.format if place == places - 1 else 1,)]
        assert stored(path) == before
        with checkpoint.Checkpoint(path, fleet.job.name, fleet.job.settings) as found:
            assert found.standing.round == 2
        assert rows(path, "PRAGMA user_version") == [(kind.format,)]
        assert stored(path) == before


def test_looking_at_an_old_checkpoint_does_not_change_it(fleet):
    """So that an older server can still be started after somebody has asked for its status."""
    path = fleet.folder / "server" / "state" / "job.db"
    before = stored(path)
    assert checkpoint.status(path).rounds == 2
    assert rows(path, "PRAGMA user_version") == [(1,)]
    assert stored(path) == before


@pytest.mark.upgrade
def test_real_processes_finish_the_job(fleet):
    """As after an update of all machines: every part starts on the files that it finds."""
    old_fleets.on_free_ports(fleet)
    try:
        for part in (*fleet.vaults, *fleet.gateways):
            fleet.start(part)
        assert fleet.start("server").wait(PATIENCE) == 0, fleet.log("server")
    finally:
        fleet.close()
    found = fleet.progress()
    assert (found.ended, found.reports) == (ROUNDS, 2 * made.VEHICLES)
    assert "Resuming the job spring after round 2 of 4" in fleet.log("server")
    fleet.prove()


def finished(fleet, old, code):
    """Run a fleet of which one part is old until its job is done; return its progress."""
    try:
        for part in (*fleet.vaults, *fleet.gateways, "server"):
            fleet.start(part, code=code if part == old else None)
        assert fleet.popens["server"].wait(PATIENCE) == 0, fleet.log("server")
    finally:
        fleet.close()
    return fleet.progress()


@pytest.mark.upgrade
@pytest.mark.parametrize("version", old_fleets.VERSIONS)
@pytest.mark.parametrize("old", ["gateway-2", "vault-2", "server"])
def test_fleets_of_two_versions_work_together(version, old, tmp_path):
    """While machines are updated one after the other, what all of them can read is answered."""
    fleet = old_fleets.on_free_ports(old_fleets.unpacked(version, tmp_path / "fleet"))
    code = old_fleets.source(version, tmp_path)
    found = finished(fleet, old, code)
    assert (found.reports, found.silent) == (2 * made.VEHICLES, 0)


@pytest.mark.upgrade
@pytest.mark.parametrize("old", ["gateway-2", "vault-2"])
def test_a_part_that_cannot_read_the_question_is_named_and_not_waited_for(old, tmp_path):
    """Version 0.1 knows no plan of format 2. The deadline of the job is a week."""
    fleet = old_fleets.on_free_ports(old_fleets.unpacked("0.1", tmp_path / "fleet"))
    code = old_fleets.source("0.1", tmp_path)
    server, old_version = fleet.folder / "server", None if old == "gateway-2" else __version__
    made_new = newer_job(server)
    shutil.rmtree(server / "state")
    for vault in fleet.vaults:
        (fleet.folder / vault / "ledger.db").unlink()
    found = finished(fleet, old, code)
    assert found.reports == made_new.rounds * 5
    assert found.silent == made_new.rounds * 5
    said = "older version of fedldp" if old == "gateway-2" else "the vault speaks protocol 1"
    assert said in made_new.log.read_text()
    [shown] = [each.document() for each in status.read(server)]
    assert any("gateway-2" in each["text"] and said in each["text"] for each in shown["errors"])
    versions = {each["name"]: each["version"] for each in shown["gateways"]}
    assert versions == {"gateway-1": __version__, "gateway-2": old_version}
    if old == "vault-2":
        supernode = fleet.folder / "gateway-2" / "state" / "supernode.log"
        assert "vault-2/vault.sock cannot read question spring/1" in supernode.read_text()


def newer_job(server):
    """Give a server a job with a plan of format 2, which waits for a week."""
    job = Job.load(server / "job.toml")
    plan = Plan.from_parts(
        job.plan.schema, job.plan.epsilon, job.plan.parts, estimator="horvitz-thompson"
    )
    (server / "plan.json").write_text(plan.to_json())
    edit(server / "job.toml", deadline=604800.0, resend=3.0, rounds=2)
    return Job.load(server / "job.toml")
