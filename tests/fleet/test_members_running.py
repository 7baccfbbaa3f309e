"""A running fleet gets new keys, a new certificate and a new gateway, and loses no answer."""

import os
import signal
import socket
import ssl
import subprocess
import sys

import pytest
from fleet_parts import Fleet, edit, running, until

from fedldp import Schema
from fedldp.fleet import keys, processes
from fedldp.fleet.folder import Place, Work, init
from fedldp.fleet.server.process import ServerConfig
from fedldp.fleet.server.registrations import registered
from fedldp.learn.settings import Settings

pytestmark = pytest.mark.faults

SCHEMA = Schema.of(speed=(0, 50), late=["no", "yes"])
VEHICLES, ROUNDS = 40, 4


def write_rows(folder, first):
    lines = [f"{first + i},{i % 50},{('no', 'yes')[i % 2]}" for i in range(VEHICLES)]
    (folder / "rows.csv").write_text("\n".join(["id,speed,late", *lines]))


def _answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def command(*words):
    subprocess.run(
        [sys.executable, "-m", "fedldp", "fleet", *map(str, words)], check=True, timeout=120
    )


def written(folder):
    """Write a fleet of two gateways, with data."""
    work = Work.on_files(
        "rows.csv", SCHEMA, "late", "logistic", VEHICLES, ROUNDS, {"vehicle": "id"}
    )
    place = Place("127.0.0.1", processes.free_port(), processes.free_port())
    init(folder, work, Settings(1.0, survey=None), 2, place)
    for i in (1, 2):
        write_rows(folder / f"vault-{i}", i * VEHICLES)
    return Fleet(folder), ServerConfig.load(folder / "server")


def shown(server):
    """Return the certificate that a server shows, which its gateways must trust."""
    address = ("127.0.0.1", server.port)
    return ssl.get_server_certificate(address, ca_certs=server.authority).strip()


@pytest.mark.parametrize("killed", [(), ("server", "gateway-1")], ids=["all live", "two die"])
def test_keys_and_gateways_change_while_a_job_runs(tmp_path, killed):
    folder = tmp_path / "fleet"
    fleet, server = written(folder)
    try:
        for part in ("vault-1", "vault-2", "server", "gateway-1", "gateway-2"):
            fleet.start(part)
        until(lambda: fleet.rounds() >= 1, "a round")
        # From now on a question to vault-1 stays open: its gateway will have another key by then.
        os.kill(fleet.popens["vault-1"].pid, signal.SIGSTOP)
        number = fleet.rounds() + 1
        until(lambda: fleet.progress().asked and fleet.progress().received, "an answer")
        old, keys = shown(server), registered(server.state)
        link = fleet.process("server", "flower-superlink")
        command("rotate-keys", folder, "--ca", folder / "ca.key")
        for part in killed:  # as if the machine had lost its power right then
            fleet.kill(part)
        for part in killed:
            fleet.start(part)
        until(lambda: _answers(server.port) and shown(server) != old, "the new certificate")
        assert shown(server) == server.certificate.read_text().strip()
        until(lambda: not list(server.gateways.glob("*.next.pub")), "the use of the new keys")
        until(lambda: fleet.process("server", "flower-superlink") != link, "another SuperLink")
        until(lambda: not keys & registered(server.state), "the end of the old keys")
        os.kill(fleet.popens["vault-1"].pid, signal.SIGCONT)
        until(lambda: fleet.rounds() >= number, "the round that was open")
        command("add-gateway", folder, "3")
        write_rows(folder / "vault-3", 3 * VEHICLES)
        fleet.start("vault-3")
        fleet.start("gateway-3")
        until(lambda: fleet.popens["server"].poll() is not None, "the end")
        assert fleet.popens["server"].returncode == 0, fleet.log("server")
        found = fleet.progress()
        assert found.silent == 0
        assert found.rounds >= ROUNDS
        assert len(found.bytes) in (2, 3)  # the third may have come too late for the last round
        fleet.prove()
    finally:
        fleet.close()
        assert running(folder) == {}


def test_the_operator_and_the_authority_change_while_a_job_runs(tmp_path):
    """Vaults are reloaded and other parts restarted between the steps; no answer is lost."""
    folder = tmp_path / "fleet"
    fleet, server = written(folder)
    edit(server.job, deadline=600.0)

    def restart(*parts):
        for part in parts:
            fleet.popens[part].terminate()
        for part in parts:
            fleet.popens[part].wait(60)
            fleet.start(part)

    def step(*words):
        for trusted in ("--operator", "--authority"):
            command("rotate-keys", folder, trusted, *words)
        if words == ("--use",):
            command("sign", folder / "server", "--key", folder / "operator.key")
        else:  # what is trusted has changed
            for vault in fleet.vaults:
                command("reload", folder / vault)
            restart("gateway-1")
        restart("server")
        until(lambda: _answers(server.port), "the server")
        until(lambda: fleet.progress().asked, "a question")

    try:
        for part in ("vault-1", "vault-2", "server", "gateway-1", "gateway-2"):
            fleet.start(part)
        until(lambda: fleet.rounds() >= 1 and fleet.progress().asked, "a second round")
        for part in fleet.gateways:  # not even because they called before they were registered
            assert "supernode ended" not in fleet.log(part)
        fleet.kill("gateway-2")  # the round stays open until it is back
        number, old = fleet.rounds(), server.certificate.read_text().strip()
        [authority] = keys.authorities(server.authority.read_text())
        for words in ([], ["--use"], ["--forget"]):
            step(*words)
        assert shown(server) == server.certificate.read_text().strip() != old
        assert not keys.issued_by(server.certificate, authority)
        fleet.start("gateway-2")
        until(lambda: fleet.popens["server"].poll() is not None, "the end")
        assert fleet.popens["server"].returncode == 0, fleet.log("server")
        found = fleet.progress()
        assert (found.silent, found.rounds) == (0, ROUNDS)
        assert number < ROUNDS
        fleet.prove()
    finally:
        fleet.close()
        assert running(folder) == {}
