"""A server that is lost and restored: nothing that was acknowledged is lost, or counted twice."""

import contextlib
import datetime
import shutil
import stat

import pytest
from agent_cases import LIBRARY, Party, Time
from engine_cases import OPERATOR, PLAN, statistic, training
from server_process import ServerProcess, wait_until

from fedldp.errors import DomainError
from fedldp.results.tally import from_json
from fedldp_fleet.jobs import Schedule
from fedldp_fleet.server import backup
from fedldp_fleet.server.folder import ServerFolder
from fedldp_fleet.stages import Learned

NOW = datetime.datetime.now(datetime.UTC)
OPEN = Schedule(NOW - datetime.timedelta(hours=1), NOW + datetime.timedelta(hours=1))


@pytest.fixture
def server(tmp_path, new_database):
    (tmp_path / "second").mkdir()
    second = str(tmp_path / "second")
    made = ServerProcess(tmp_path / "server", new_database(), second=second)
    yield made
    made.stop()


@pytest.fixture
def party(server, tmp_path):
    """Return a function that joins an agent with one vehicle."""
    with contextlib.ExitStack() as opened:

        def party(name):
            path, context = tmp_path / f"{name}.json", LIBRARY.https.tls(server.path / "ca.pem")
            LIBRARY.https.join(server.url, server.enroll(name), context).save(path)
            membership = LIBRARY.https.Membership.load(path)
            road = LIBRARY.https.HTTPSRoad(membership, context, path)
            opened.callback(road.close)
            clock = Time(datetime.datetime.now(datetime.UTC).timestamp())
            clock.sleep = clock.sleeps.append
            made = Party(None, None, "one", name, road=road, time=clock)
            opened.callback(made.close)
            return made

        yield party


def visit(agent):
    return agent.visit(), agent.visit()


def test_a_lost_server_is_restored_and_counts_each_answer_once(
    server, party, tmp_path, new_database
):
    """The backup has the first answer, the second one came after it, and the third one comes."""
    server.add(statistic(wanted=3, schedule=OPEN), OPERATOR)
    server.start()
    agents = [party(f"car-{number}") for number in range(3)]
    wait_until(lambda: server.job("spring").state == "running")
    visit(agents[0])
    backup.back_up(server.folder, tmp_path / "backup")
    visit(agents[1])
    spent = [each.spent() for each in agents]
    server.kill()
    shutil.rmtree(server.path)
    restored = backup.restore(tmp_path / "backup", server.path, database=new_database())
    server.folder = restored.folder
    assert restored.open_jobs == ("spring",)
    server.start()
    for each in agents[:2]:
        visit(each)
    wait_until(lambda: sum(r.answers for r in server.read(lambda s: s.rounds("spring"))) == 2)
    assert [each.spent() for each in agents] == spent
    visit(agents[2])
    wait_until(lambda: server.job("spring").state == "done")
    assert from_json(server.job("spring").result, PLAN).reports == 3


def test_a_training_goes_on_from_the_second_place(server, party, tmp_path, new_database):
    server.add(training(rounds=2, group=1, schedule=OPEN), OPERATOR)
    backup.back_up(server.folder, tmp_path / "backup")
    server.start()
    one = party("car-1")
    wait_until(lambda: server.job("learn").state == "running")
    visit(one)
    wait_until(lambda: server.job("learn").round == 2)
    learned = Learned.from_json(server.job("learn").learned)
    wait_until(lambda: '"round":1' in (tmp_path / "second" / "learn.state.json").read_text())
    server.kill()
    shutil.rmtree(server.path)
    restored = backup.restore(
        tmp_path / "backup", server.path, tmp_path / "second", database=new_database()
    )
    server.folder = restored.folder
    assert restored.resumed == ("learn",)
    assert Learned.from_json(server.job("learn").learned).to_json() == learned.to_json()
    server.start()
    wait_until(lambda: server.job("learn").round == 2)
    two = party("car-2")  # the backup knows no agents: they join again
    visit(two)
    wait_until(lambda: server.job("learn").state == "done")
    assert Learned.from_json(server.job("learn").learned).state.round == 2


def test_a_backup_is_complete_and_secret(server, tmp_path):
    target = tmp_path / "backups/monday"
    backup.back_up(server.folder, target)
    assert stat.S_IMODE((target).stat().st_mode) == 0o700
    names = {path.name for path in server.path.iterdir()} - {"server.db-wal", "server.db-shm"}
    assert {path.name for path in (target).iterdir()} >= {
        name for name in names if not name.startswith(".")
    }
    for path in (target).iterdir():
        if path.suffix in (".key", ".db"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(DomainError, match="expected a new folder"):
        backup.back_up(server.folder, target)
    with pytest.raises(DomainError, match="expected a new or empty folder"):
        backup.restore(target, server.path)
    with pytest.raises(DomainError, match="is not the folder of a server"):
        backup.restore(tmp_path / "second", tmp_path / "new")


def test_an_interrupted_restore_is_no_server(server, tmp_path, monkeypatch, new_database):
    backup.back_up(server.folder, tmp_path / "backup")
    monkeypatch.setattr(backup, "reading", None)
    with pytest.raises(TypeError):
        backup.restore(tmp_path / "backup", tmp_path / "new", database=new_database())
    with pytest.raises(DomainError, match="is not the folder of a server"):
        ServerFolder.load(tmp_path / "new")
