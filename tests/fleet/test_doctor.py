"""The doctor finds what is wrong with a part, says what to do, and changes nothing."""

import datetime
import json
import os
import re
import shutil
import socket
import ssl
import threading
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from click.testing import CliRunner
from cryptography import x509
from fleet_parts import edit

from fedldp import Schema
from fedldp.budget.ledger import seal
from fedldp.cli.app import fedldp
from fedldp.errors import DomainError
from fedldp.fleet import keys, processes, signing
from fedldp.fleet.doctor import examination, examine, gateway, machine
from fedldp.fleet.folder import Place, Work, init
from fedldp.fleet.server import admission
from fedldp.fleet.server.admission import Gateways
from fedldp.fleet.vault.process import VaultConfig
from fedldp.learn.settings import Settings
from fedldp.signing import PrivateKey

SCHEMA = Schema.of(speed=(0, 50), late=["no", "yes"])


@pytest.fixture
def fleet(tmp_path):
    folder = tmp_path / "fleet"
    work = Work.on_files("rows.csv", SCHEMA, "late", "logistic", 30, 3, {"vehicle": "id"}, "spring")
    place = Place("127.0.0.1", processes.free_port(), processes.free_port())
    init(folder, work, Settings(1.0), 1, place, cap=4.0)
    rows = folder / "vault-1" / "rows.csv"
    rows.write_text("id,speed,late\na,31,no\nb,48,yes\n")
    rows.chmod(0o600)
    return folder


@pytest.fixture(autouse=True)
def whatever_this_machine_is(monkeypatch):
    """The tests are about what the doctor says, and not about the machine on which they run."""
    monkeypatch.setattr(machine, "isolated", lambda: iter([examination.ok("isolated")]))
    monkeypatch.setattr(machine, "LITTLE", 1)
    monkeypatch.setattr(machine, "SOME", 1)


def said(folder, level=None, check=None):
    """Return what the doctor says about the only part of a folder, in one text."""
    [part] = examine(folder)
    return "\n".join(
        f"{each.said} {each.advice}"
        for each in part.findings
        if level in (None, each.level) and check in (None, each.check)
    )


def snapshot(folder):
    return {
        path: (path.stat().st_mtime_ns, path.stat().st_mode)
        for path in folder.rglob("*")
        if "state" not in path.parts
        and not path.name.startswith("vault-")  # SQLite makes a -wal for a moment
    }


def test_a_new_fleet_is_healthy_but_for_what_does_not_run(fleet):
    before = snapshot(fleet)
    found = {part.name: part for part in examine(fleet)}
    assert found.keys() == {"server", "gateway-1", "vault-1"}
    assert found["server"].healthy, found["server"].document()
    assert found["vault-1"].healthy, found["vault-1"].document()
    assert not found["gateway-1"].healthy  # nobody listens yet
    problems = [each.check for each in found["gateway-1"].findings if each.level == "problem"]
    assert problems == ["server", "vaults"]
    for part in found.values():
        for each in part.findings:
            assert each.check
            assert bool(each.advice) == (each.level != "ok")
    assert snapshot(fleet) == before
    assert "nobody" not in said(fleet / "vault-1", "ok", "ledger")


def test_what_is_printed(fleet):
    done = CliRunner().invoke(fedldp, ["fleet", "doctor", str(fleet / "server")])
    assert done.exit_code == 0, done.output
    assert "0 problems" in done.output
    (fleet / "server" / "server.key").chmod(0o644)
    done = CliRunner().invoke(fedldp, ["fleet", "doctor", str(fleet / "server")])
    assert done.exit_code == 1
    assert "1 problem," in done.output
    done = CliRunner().invoke(fedldp, ["fleet", "doctor", str(fleet / "server"), "--json"])
    assert done.exit_code == 1
    [document] = json.loads(done.output)
    assert document["format"] == examination.FORMAT
    assert not document["healthy"]
    assert {"level", "said", "advice", "check"} == document["findings"][0].keys()


def test_a_folder_without_parts(tmp_path):
    with pytest.raises(DomainError, match="expected the folder of a part of a fleet"):
        examine(tmp_path)


def test_a_configuration_that_cannot_be_read(fleet):
    (fleet / "server" / "server.toml").write_text("front = 7")
    assert "front has a value of a wrong type" in said(fleet / "server", "problem", "configuration")


# The machine.


def test_secrets_and_folders_that_others_can_read(fleet):
    for path in (fleet / "server" / "server.key", fleet / "gateway-1" / "key"):
        path.chmod(0o640)
        assert "can be read by others (mode 640)" in said(path.parent, "problem", "permissions")
    (fleet / "vault-1").chmod(0o755)
    assert "others can look into" in said(fleet / "vault-1", "warning", "permissions")
    (fleet / "vault-1").chmod(0o777)
    assert "others can write to" in said(fleet / "vault-1", "problem", "permissions")


def test_a_disk_that_is_almost_full(fleet, monkeypatch):
    monkeypatch.setattr(machine, "SOME", 1 << 60)
    assert "GB are free" in said(fleet / "vault-1", "warning", "disk")
    monkeypatch.setattr(machine, "LITTLE", 1 << 60)
    assert "Make room" in said(fleet / "vault-1", "problem", "disk")


def test_a_clock_that_was_set_back(fleet):
    future = datetime.datetime.now().timestamp() + 3600
    os.utime(fleet / "vault-1", (future, future))
    assert "in the future: the clock was set back" in said(fleet / "vault-1", "problem", "clock")


def test_a_package_of_another_version(fleet, monkeypatch):
    versions = {"flwr": "1.40.0", "uvicorn": "0.34.0"}

    def version(name):
        if name not in versions:
            raise machine.importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(machine.importlib.metadata, "version", version)
    found = said(fleet / "server", "problem", "versions")
    assert "flwr has version 1.40.0; fedldp needs flwr<1.43,>=1.41" in found
    assert "the package httpx is not installed" in found
    assert "uvicorn" not in found


def test_a_system_without_namespaces(fleet, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(machine.isolation, "is_private", lambda: False)

    def refuse(*_):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(machine.isolation, "_received", refuse)
    found = said(fleet / "server", "problem", "isolation")
    assert "a private network cannot be created (Operation not permitted)." in found


# A server.


def issued(fleet, monkeypatch, days):
    """Give the server a certificate that is valid until some days from now."""
    server = fleet / "server"
    monkeypatch.setattr(keys, "VALID", datetime.timedelta(days=days))
    paths = (server / "server.crt", server / "server.key", server / "ca.crt", fleet / "ca.key")
    keys.renew_server(*paths)


@pytest.mark.parametrize(
    ("days", "level", "text"),
    [(-0.1, "problem", "has expired"), (10, "warning", "expires on"), (100, "ok", "valid until")],
)
def test_certificates_that_expire(fleet, monkeypatch, days, level, text):
    issued(fleet, monkeypatch, days)
    assert f"server.crt {text}" in said(fleet / "server", level, "certificates").replace(
        "is valid", "valid"
    )


def test_a_certificate_from_the_future(fleet, monkeypatch):
    monkeypatch.setattr(keys, "_CLOCKS_DIFFER", datetime.timedelta(days=-1))
    issued(fleet, monkeypatch, 100)
    assert "Set the clock of this machine." in said(fleet / "server", "problem", "certificates")


def test_certificates_that_do_not_fit_together(fleet, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    keys.write_server(other, other / "ca.key", ["fleet.example.org"])
    server = fleet / "server"
    (server / "server.crt").write_bytes((other / "server.crt").read_bytes())
    found = said(server, "problem", "certificates")
    assert "ca.crt has not signed server.crt." in found
    assert "server.key is not the key of server.crt." in found
    names = keys.names(x509.load_pem_x509_certificate((other / "server.crt").read_bytes()))
    assert names == ["fleet.example.org", "localhost", "127.0.0.1"]
    edit(server / "server.toml", front='"10.0.0.7:9443"')
    assert "and the server listens at 10.0.0.7" in said(server, "problem", "certificates")


def test_a_port_that_is_taken(fleet):
    port = int(said(fleet / "server", "ok", "ports").split()[1])
    with socket.create_server(("127.0.0.1", port)):
        assert "Address already in use" in said(fleet / "server", "problem", "ports")


def test_keys_of_gateways(fleet):
    folder = fleet / "server" / "gateways"
    admission.upcoming(folder, "gateway-1").write_bytes((folder / "gateway-1.pub").read_bytes())
    assert "gateway-1 has two keys" in said(fleet / "server", "warning", "gateways")
    (folder / "gateway-1.pub").write_text("no key")
    assert "is not a public key" in said(fleet / "server", "problem", "gateways")
    for path in folder.iterdir():
        path.unlink()
    assert "waits for 1 gateways, and 0 have a key" in said(fleet / "server", "problem", "gateways")


# A vault.


@pytest.mark.parametrize(
    ("days", "level", "text"),
    [
        (90, "ok", "vaults answer it until"),
        (6, "warning", "expires on"),
        (0, "problem", "has"),
    ],
)
def test_the_signature_of_a_job(fleet, days, level, text):
    path = fleet / "server" / "job.toml"
    signing.sign(path, PrivateKey.load(fleet / "operator.key"), days)
    assert text in said(fleet / "server", level, "signature")


def test_a_job_that_is_not_signed_or_was_changed(fleet):
    path = fleet / "server" / "job.toml"
    text = path.read_text()
    path.write_text(text.replace("rounds = 3", "rounds = 4"))
    assert "was changed after it was signed" in said(fleet / "server", "problem", "signature")
    path.write_text(re.sub(r"(?m)^(signed|operator) = .*\n", "", text))
    assert "the job is not signed" in said(fleet / "server", "warning", "signature")
    shutil.copy(fleet / "operator.key", fleet / "server")
    assert "an attacker there can sign" in said(fleet / "server", "problem", "signature")


def test_data_that_a_vault_would_replace(fleet):
    vault = fleet / "vault-1"
    (vault / "rows.csv").write_text("id,speed,late\na,310,no\nb,,yes\n")
    (vault / "rows.csv").chmod(0o644)
    assert "every account" not in said(vault, "warning", "data")  # the folder is closed to others
    vault.chmod(0o711)
    found = said(vault, "warning", "data")
    assert "2 values would be clipped or replaced" in found
    assert "every account can read" in found
    (vault / "rows.csv").unlink()
    assert "rows.csv" in said(vault, "problem", "data")


def test_vehicles_without_ids_or_with_new_ones(fleet):
    vault = fleet / "vault-1"
    with VaultConfig.load(vault).ledger() as ledger:
        ledger.release("a", 1, "spring/1", lambda: b"x")
    assert "1 vehicles have answered" in said(vault, "ok", "ledger")
    text = (vault / "vault.toml").read_text()
    (vault / "vault.toml").write_text(text.replace('vehicle = "id"', ""))
    assert "names no vehicle column" in said(vault, "warning", "data")
    assert "None of the 1 vehicles in the ledger" in said(vault, "problem", "data")


def test_a_ledger_that_is_sealed_or_damaged(fleet):
    vault = fleet / "vault-1"
    VaultConfig.load(vault).ledger().close()
    seal(vault / "ledger.db")
    assert "it refuses every vehicle" in said(vault, "problem", "ledger")
    (vault / "ledger.db").write_bytes(b"damaged")
    assert "ledger.db" in said(vault, "problem", "ledger")
    assert (vault / "ledger.db").read_bytes() == b"damaged"


def test_where_a_vault_listens(fleet):
    vault = fleet / "vault-1"
    assert "the vault can listen at" in said(vault, "ok", "socket")
    edit(vault / "vault.toml", listen='"/nonexistent/vault.sock"')
    assert "/nonexistent does not exist" in said(vault, "warning", "socket")
    (vault / "token").write_text("secret")
    (vault / "token").chmod(0o644)
    edit(vault / "vault.toml", listen='"tcp://10.0.0.7:99"', token='"token"')
    assert "not encrypted" in said(vault, "warning", "socket")
    assert "token can be read by others" in said(vault, "problem", "socket")


# A gateway, and the server that it calls.


class Front:
    """In the place of a server's front: it admits keys, and has a clock of its own."""

    def __init__(self, fleet):
        self.ahead, self.heard = 0.0, []
        admits, front = Gateways(fleet / "server" / "gateways"), self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                sent = [(k.lower().encode(), v.encode()) for k, v in self.headers.items()]
                front.heard.append(self.path)
                now = datetime.datetime.now(datetime.UTC)
                shown = now + datetime.timedelta(seconds=front.ahead)
                self.send_response_only(404 if admits(sent) else 401)
                self.send_header("date", format_datetime(shown, usegmt=True))
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(fleet / "server" / "server.crt", fleet / "server" / "server.key")
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        edit(
            fleet / "gateway-1" / "gateway.toml",
            server=f'"127.0.0.1:{self.server.server_address[1]}"',
        )
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def front(fleet):
    found = Front(fleet)
    yield found
    found.server.shutdown()
    found.server.server_close()


def test_a_gateway_that_the_server_admits(fleet, front):
    found = said(fleet / "gateway-1", "ok", "server")
    assert "with a certificate of this fleet" in found
    assert "the server admits the key of this gateway" in found
    assert said(fleet / "gateway-1", "problem", "server") == ""
    assert set(front.heard) == {gateway._CALL}


@pytest.mark.usefixtures("front")
def test_a_gateway_that_the_server_does_not_know(fleet):
    (fleet / "server" / "gateways" / "gateway-1.pub").unlink()
    found = said(fleet / "gateway-1", "problem", "server")
    assert "the server does not admit the key of this gateway" in found


@pytest.mark.usefixtures("front")
def test_a_server_of_another_fleet(fleet, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    keys.write_server(other, other / "ca.key", [])
    (fleet / "gateway-1" / "ca.crt").write_bytes((other / "ca.crt").read_bytes())
    assert "has no valid certificate of this fleet" in said(
        fleet / "gateway-1", "problem", "server"
    )


@pytest.mark.parametrize(
    ("ahead", "level"),
    [(0, "ok"), (-30, "problem"), (-4, "warning"), (200, "warning"), (400, "problem")],
)
def test_clocks_that_differ(fleet, front, ahead, level):
    """The server shows whole seconds; what it allows is what its front checks."""
    front.ahead = ahead
    assert "the server allows 5 s ahead and 305 s behind" in said(
        fleet / "gateway-1", level, "server"
    )


def test_vaults_of_a_gateway(fleet):
    where = fleet / "gateway-1"
    assert "no vault answers at" in said(where, "problem", "vaults")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(fleet / "vault-1" / "vault.sock"))
        listening.listen()
        assert "a vault listens at" in said(where, "ok", "vaults")
        assert "runs as the same user" in said(where, "warning", "vaults")
    edit(where / "gateway.toml", bundle=f'"{"0" * 64}"')
    assert "is not the app of this version" in said(where, "warning", "app")
    (where / "key.next").write_text("")
    assert "there is a next key" in said(where, "warning", "keys")
