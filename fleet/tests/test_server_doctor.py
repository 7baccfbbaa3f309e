"""What the doctor of a server finds: every check has a problem that it notices."""

import datetime
import json
import socket
import time

import pytest
from brokers import Broker
from click.testing import CliRunner
from server_process import HOST, ServerProcess, free_port

from fedldp.cli.app import fedldp
from fedldp.signing import PrivateKey
from fedldp_fleet.server import certificates, doctor
from fedldp_fleet.server.status import Disk


@pytest.fixture
def server(tmp_path, new_database):
    made = ServerProcess(tmp_path / "server", new_database())
    (made.path / "operator.key").unlink()
    yield made
    made.stop()


@pytest.fixture
def in_a_file(tmp_path):
    made = ServerProcess(tmp_path / "server")
    (made.path / "operator.key").unlink()
    yield made
    made.stop()


def examine(server):
    """Return the problems by the names of their checks, as the command prints them."""
    done = CliRunner().invoke(fedldp, ["server", "doctor", str(server.path), "--json"])
    checks = json.loads(done.output)["checks"]
    assert checks.keys() == doctor.CHECKS.keys()
    found = {name: problems for name, problems in checks.items() if problems}
    assert done.exit_code == bool(found)
    return found


def add(server, **entries):
    with (server.path / "server.toml").open("a") as config:
        config.writelines(f"{name} = {json.dumps(value)}\n" for name, value in entries.items())


def test_a_server_that_can_start_and_one_that_runs(server):
    assert examine(server) == {}
    server.start()
    assert examine(server) == {}
    done = CliRunner().invoke(fedldp, ["server", "doctor", str(server.path)])
    assert (done.exit_code, done.output) == (0, f"{server.path} is ready.\n")


def test_files_that_others_can_read(in_a_file):
    in_a_file.path.chmod(0o755)
    assert "others can look into" in examine(in_a_file)["folder"][0]


def test_keys_that_do_not_belong_together(in_a_file):
    PrivateKey.generate().public.save(in_a_file.path / "server.pub")
    found = examine(in_a_file)
    assert "not the public half" in found["keys"][0]
    assert "belongs to another server" in found["store"][0]


def test_an_operator_whose_key_is_online(in_a_file):
    PrivateKey.generate().save(in_a_file.path / "operator.key")
    assert "move it to a machine offline" in examine(in_a_file)["keys"][0]
    (in_a_file.path / "operator.pub").write_text("no key")
    assert examine(in_a_file).keys() == {"keys"}


def test_a_certificate_that_expires_or_has_another_key(in_a_file, monkeypatch):
    key = in_a_file.path / "tls.key"
    monkeypatch.setattr(certificates, "VALID", datetime.timedelta(days=10))
    key.unlink()
    certificates.write(in_a_file.path, ())
    assert "tls.pem expires at" in examine(in_a_file)["certificates"][0]
    monkeypatch.undo()
    other = key.rename(key.with_suffix(".other"))
    certificates.write(in_a_file.path, ())
    other.rename(key)
    assert "KEY_VALUES_MISMATCH" in examine(in_a_file)["certificates"][0].upper().replace(" ", "_")


def test_a_store_that_is_damaged_or_lost(in_a_file):
    path = in_a_file.path / "server.db"
    data = bytearray(path.read_bytes())
    data[4096 * 2 :] = bytes(len(data) - 4096 * 2)
    path.write_bytes(data)
    assert "store" in examine(in_a_file)
    path.unlink()
    assert "store" in examine(in_a_file)


@pytest.mark.postgresql
def test_a_database_that_forgets(postgresql_server, tmp_path):
    made = ServerProcess(tmp_path / "server", postgresql_server.make_database("doctor"))
    (made.path / "operator.key").unlink()
    config = made.path / "server.toml"
    config.write_text(config.read_text().replace("/doctor", "/missing"))
    assert "store" in examine(made)


def test_a_disk_that_is_full_or_the_same(in_a_file, monkeypatch, tmp_path):
    monkeypatch.setattr(Disk, "of", classmethod(lambda cls, _: cls(1, 100)))
    assert "1% is free" in examine(in_a_file)["disk"][0]
    monkeypatch.undo()
    (tmp_path / "second").mkdir()
    add(in_a_file, second=str(tmp_path / "second"))
    assert "on the same disk" in examine(in_a_file)["disk"][0]
    (tmp_path / "second").rmdir()
    assert "does not exist" in examine(in_a_file)["folder"][0]


def test_a_clock_that_is_behind(in_a_file, monkeypatch):
    in_a_file.change(lambda store: store.set_heard("car-7", time.time() + 3600))
    assert "behind the last call of an agent" in examine(in_a_file)["clock"][0]
    now = time.time()
    monkeypatch.setattr(doctor.time, "time", lambda: now - 10 * 86_400)
    assert "the certificate begins at" in examine(in_a_file)["clock"][0]


def test_addresses_that_are_taken_or_open_to_all(in_a_file):
    with socket.create_server((HOST, in_a_file.page_port)):
        assert "for the page, cannot be used" in examine(in_a_file)["addresses"][0]
    config = in_a_file.path / "server.toml"
    config.write_text(config.read_text().replace(f"{HOST}:{in_a_file.page_port}", "0.0.0.0:0"))
    assert "has no password" in examine(in_a_file)["addresses"][0]


def test_a_broker_that_is_away_or_takes_short_messages(in_a_file, monkeypatch):
    add(in_a_file, broker=f"mqtt://{HOST}:{free_port()}/north")
    assert "refused" in examine(in_a_file)["broker"][0]
    broker = Broker(most_bytes=1 << 17)
    monkeypatch.setattr(doctor.Broker, "of", lambda *_: broker)
    assert "131,072 bytes" in examine(in_a_file)["broker"][0]
    assert broker.published == []
