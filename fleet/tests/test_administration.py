"""What people change, and the audit log of it."""

import json
import re

import pytest
from click.testing import CliRunner
from engine_cases import OPERATOR, statistic
from fleet_server import OPEN
from road_client import Client, authentic
from server_process import ServerProcess

from fedldp.cli.app import fedldp
from fedldp.errors import DomainError, WireError
from fedldp_fleet import engine
from fedldp_fleet.jobs import to_sign
from fedldp_fleet.server import administration, audit, backup, members, tokens
from fedldp_fleet.server.guard import Guard, Refused
from fedldp_fleet.server.work import JobFile
from fedldp_fleet.store.base import AuditRow, Member


def run(*words, status=0):
    found = CliRunner().invoke(fedldp, ["server", *map(str, words)], catch_exceptions=True)
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    assert found.exit_code == status, found.output
    return found.output


@pytest.fixture
def server(tmp_path, new_database):
    made = ServerProcess(tmp_path / "server", new_database())
    yield made
    made.stop()


def log(server):
    return [json.loads(line) for line in run("audit", server.path, "--json").splitlines()]


def test_the_log_says_who_did_what(server):
    OPERATOR.public.save(server.path / "operator.pub")
    job = statistic(wanted=3, schedule=OPEN)
    file = JobFile(job, server.folder.public).signed_by(OPERATOR)
    file.save(server.path / "spring.job.json")
    run("job", "add", server.path, server.path / "spring.job.json")
    run("job", "add", server.path, server.path / "spring.job.json")
    [code] = run("enroll", server.path, "car-7", "--vehicles", 2).split()
    server.start()
    Client.with_code(server, code).connection.close()
    run("revoke", server.path, "car-7")
    run("token", server.path, "dashboard")
    run("token", server.path, "dashboard", "--revoke")
    entries = log(server)
    signed = f"signed by {OPERATOR.public.fingerprint}"
    assert [(each["action"], each["subject"], each["detail"]) for each in entries[1:]] == [
        ("job", "spring", f"queued, {signed}"),
        ("job", "spring", f"unchanged, {signed}"),
        ("enrolled", "car-7", "vehicles: 2"),
        ("joined", "car-7", ""),
        ("revoked", "car-7", ""),
        ("token", "dashboard", "viewer"),
        ("token revoked", "dashboard", ""),
    ]
    assert (entries[0]["action"], entries[0]["subject"]) == ("created", "server")
    actors = {each["actor"] for each in entries}
    assert actors == {"car-7", audit.person()}
    assert re.search(f"The head after 8 entries: {entries[-1]['head']}", run("audit", server.path))


def test_a_job_that_is_not_signed_by_the_operator_is_in_no_log(server):
    other = to_sign(statistic(), server.folder.public).signed(OPERATOR)
    file = JobFile(statistic(), server.folder.public, other)
    with pytest.raises(WireError, match="not signed by the expected key"):
        server.change(lambda store: administration.add_job(server.folder, store, file, "me"))
    assert [each["action"] for each in log(server)] == ["created"]


def test_the_log_goes_on_after_a_restore(server, tmp_path, new_database):
    run("enroll", server.path, "car-7")
    before = log(server)
    backup.back_up(server.folder, tmp_path / "backup")
    backup.restore(tmp_path / "backup", tmp_path / "again", database=new_database())
    lines = run("audit", tmp_path / "again", "--json", "--head", before[-1]["head"]).splitlines()
    after = [json.loads(line) for line in lines]
    assert after[:2] == before
    assert [each["action"] for each in after[2:]] == ["restored"]
    with pytest.raises(DomainError, match="has no entry with the head"):
        run("audit", server.path, "--head", after[-1]["head"])


def test_a_list_of_agents_is_enrolled_at_once(server, tmp_path):
    path = tmp_path / "agents.csv"
    path.write_text("# north\n" + "".join(f"car-{each}\n" for each in range(3000)) + "depot, 500\n")
    codes = run("enroll", server.path, "--list", path, "--vehicles", 2).split()
    assert [code.partition(":")[0] for code in codes[:2]] == ["car-0", "car-1"]
    found = {each.agent: each.vehicles for each in server.read(lambda store: store.members())}
    assert (len(found), found["car-7"], found["depot"]) == (3001, 2, 500)
    assert len(log(server)) == 3002


@pytest.mark.parametrize("line", ["car-1", "car-2, many", "car 2", "car-2, 0", "car-\x00"])
def test_a_list_with_a_mistake_enrolls_nobody(server, tmp_path, line):
    path = tmp_path / "agents.csv"
    path.write_text(f"car-1\n{line}\n")
    with pytest.raises(DomainError, match="car"):
        run("enroll", server.path, "--list", path)
    assert not server.read(lambda store: store.members())
    assert run("enroll", server.path, status=2)


def test_a_log_that_was_changed_is_refused(store):
    with store.transaction() as inside:
        for name in ("car-1", "car-2", "car-3"):
            audit.record(inside, "me", audit.ENROLLED, name)
        rows = inside.audit()

    class Changed:
        def __init__(self, *rows):
            self._rows = rows

        def audit(self):
            return list(self._rows)

    one, two, three = rows
    assert len(audit.entries(Changed(one, two, three))) == 3
    other = AuditRow(2, two.entry.replace("car-2", "car-4"), two.head)
    for changed in ((one, other, three), (one, three), (two, three), (one, three, two)):
        with pytest.raises(WireError, match="the audit log was changed"):
            audit.entries(Changed(*changed))
    with pytest.raises(DomainError, match="has no entry with the head"):
        audit.entries(Changed(one, two), three.head.hex())


@pytest.mark.parametrize("statement", ["UPDATE audit SET entry = ''", "DELETE FROM audit"])
def test_the_store_refuses_to_change_the_log(store, statement):
    with store.transaction() as inside:
        audit.record(inside, "me", audit.ENROLLED, "car-1")

    def change():
        with store.transaction() as inside:
            inside._execute(statement)

    with pytest.raises(OSError, match="the audit log can only grow"):
        change()
    with store.reading() as inside:
        assert len(audit.entries(inside)) == 1


def test_a_token_is_known_until_it_is_revoked(store):
    with store.transaction() as inside:
        token = tokens.create(inside, "dashboard", "viewer")
        assert tokens.caller(inside, token) == ("dashboard", "viewer")
        for wrong in ("", "dashboard", "dashboard:", f"{token}x", token.replace("dash", "lash")):
            assert tokens.caller(inside, wrong) is None
        with pytest.raises(DomainError, match="there is a token 'dashboard' already"):
            tokens.create(inside, "dashboard", "operator")
        tokens.revoke(inside, "dashboard")
        assert tokens.caller(inside, token) is None
        assert tokens.create(inside, "dashboard", "operator") != token
        with pytest.raises(DomainError, match="there is no token 'other'"):
            tokens.revoke(inside, "other")


def test_a_guard_reads_what_has_changed_and_all_after_a_restore(store):
    guard, path, joined = Guard(), b"/v1/rotate", {}

    def known(agent):
        headers = authentic(agent, joined[agent], "POST", path.decode())
        given = [(name.lower().encode(), text.encode()) for name, text in headers.items()]
        try:
            return guard.check(b"POST", path, given).agent == agent
        except Refused:
            return False

    with store.transaction() as inside:
        engine.start(inside, b"i" * 16)
        for agent in ("car-1", "car-2"):
            joined[agent] = members.join(inside, members.enroll(inside, agent, 1)).secret
        guard.refresh(inside)
        assert known("car-1")
        assert known("car-2")
        members.revoke(inside, "car-1")
        guard.refresh(inside)
        assert not known("car-1")
        assert known("car-2")
        # Another store, in which as much has changed, but not the same.
        inside.set_member(Member("car-2", 1, revoked=True))
        guard.refresh(inside)
        assert known("car-2")
        engine.start(inside, b"j" * 16)
        guard.refresh(inside)
        assert not known("car-2")
