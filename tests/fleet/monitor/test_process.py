"""A monitor as a process: how it is started, stopped, and kept alive beside its part."""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
from contextlib import closing, contextmanager

import pytest
from fleet_parts import kill, until
from monitored import ask, ask_json

from fedldp.fleet import isolation
from fedldp.fleet.monitor import launch
from fedldp.fleet.monitor.address import MonitorAddress
from fedldp.fleet.processes import Supervisor, free_port

TOKEN = "a-token-that-nobody-guesses"
COMMANDS = {"module": ["fedldp.fleet.monitor"], "command": ["fedldp", "fleet", "monitor"]}


@pytest.fixture
def vault(tmp_path):
    """The folder of a vault that does not run: all that a monitor needs."""
    folder = tmp_path / "vault-1"
    folder.mkdir()
    (folder / "vault.toml").write_text('data = "rows.csv"\ncap = "1.0"\nlisten = "v.sock"\n')
    return folder


def answers(address):
    try:
        return ask(address, "/healthz")[0] in (200, 503)
    except OSError:
        return False


@contextmanager
def monitor(*words):
    popen = subprocess.Popen([sys.executable, "-m", *map(str, words)], stderr=subprocess.PIPE)
    try:
        yield popen
    finally:
        popen.kill()
        popen.wait()
        popen.stderr.close()


@pytest.mark.parametrize("how", COMMANDS)
def test_it_runs_until_a_signal(vault, how):
    address = MonitorAddress("127.0.0.1", free_port())
    listen = f"127.0.0.1:{address.port}"
    option = ["--listen"] * (how == "command")
    with monitor(*COMMANDS[how], vault, *option, listen) as popen:
        until(lambda: answers(address) or popen.poll() is not None, "the monitor")
        found = ask_json(address, "/healthz")
        assert "vault-1 is not running" in found["reasons"]
        popen.send_signal(signal.SIGTERM)
        said = popen.stderr.read().decode()
        assert popen.wait(60) == 0, said
    assert f"The monitor of vault-1 is http://127.0.0.1:{address.port}/" in said


def test_the_configuration_says_where(vault):
    path = vault / "token"
    path.write_text(TOKEN)
    path.chmod(0o600)
    with (vault / "vault.toml").open("a") as file:
        file.write('monitor = "m.sock"\nmonitor_token = "token"\n')
    with monitor("fedldp.fleet.monitor", vault) as popen:
        until(lambda: (vault / "m.sock").exists() or popen.poll() is not None, "the monitor")
        for header, status in (("", b"401"), (f"Authorization: Bearer {TOKEN}\r\n", b"503")):
            with socket.socket(socket.AF_UNIX) as link:
                link.connect(str(vault / "m.sock"))
                link.sendall(f"GET /healthz HTTP/1.1\r\n{header}\r\n".encode())
                assert link.recv(1 << 16).split()[1] == status
        popen.send_signal(signal.SIGINT)
        assert popen.wait(60) == 0
    assert not (vault / "m.sock").exists()


def test_what_is_wrong_is_one_line(vault):
    with monitor("fedldp.fleet.monitor", vault, "0.0.0.0:9480") as popen:
        assert popen.wait(60) == 1
        said = popen.stderr.read().decode()
    assert said.startswith('fedldp: monitor = "0.0.0.0:9480" can be reached from other machines')
    assert len(said.splitlines()) == 1


def test_it_needs_little(vault):
    """A vault's machine has neither Flower nor the packages of the command line."""
    program = (
        "import json, sys; from fedldp.fleet.monitor.observe import Observer; "
        "from fedldp.fleet.monitor.process import site; from pathlib import Path; "
        f"Observer(Path({str(vault)!r})).look(); print(json.dumps([*sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    found = set(json.loads(done.stdout))
    assert not found & {
        "flwr",
        "httpx",
        "uvicorn",
        "click",
        "rich",
        "pandas",
        "matplotlib",
        "torch",
    }


class TestBesideItsPart:
    @pytest.fixture
    def configuration(self, vault):
        (vault / "vault.toml").unlink()
        self.address = MonitorAddress("127.0.0.1", free_port())
        path = vault / "gateway.toml"
        path.write_text(f'monitor = "127.0.0.1:{self.address.port}"\n')
        return path

    def test_it_is_kept_alive(self, configuration, tmp_path):
        with Supervisor(tmp_path / "state") as supervisor:
            assert launch.start(supervisor, configuration, given=False)
            (listening,) = supervisor._children[launch.NAME].process.sockets
            until(lambda: supervisor.wait(0.1) and answers(self.address), "the monitor")
            first = supervisor.pid(launch.NAME)
            kill([first])
            until(
                lambda: supervisor.wait(0.1) and supervisor.pid(launch.NAME) != first,
                "another monitor",
            )
            # Its address was never free for anybody else.
            until(lambda: supervisor.wait(0.1) and answers(self.address), "the monitor")
        listening.close()  # as when the part ends
        assert not answers(self.address)

    def test_a_port_in_use_does_not_stop_the_part(self, configuration, tmp_path, caplog):
        place = ("127.0.0.1", self.address.port)
        with closing(socket.create_server(place)), Supervisor(tmp_path / "state") as supervisor:
            assert not launch.start(supervisor, configuration, given=False)
            assert supervisor.wait(0.1)
        assert "cannot listen" in caplog.text

    def test_a_unit_with_a_private_network_leaves_it_to_another(
        self, configuration, tmp_path, caplog, monkeypatch
    ):
        caplog.set_level(logging.INFO)
        monkeypatch.setattr(isolation, "is_private", lambda: True)
        with Supervisor(tmp_path / "state") as supervisor:
            assert not launch.start(supervisor, configuration, given=True)
            with pytest.raises(KeyError):
                supervisor.pid(launch.NAME)
        assert "fedldp-monitor" in caplog.text

    def test_nobody_who_did_not_ask_gets_one(self, configuration, tmp_path):
        configuration.write_text("")
        with Supervisor(tmp_path / "state") as supervisor:
            assert not launch.start(supervisor, configuration, given=False)
            with pytest.raises(KeyError):
                supervisor.pid(launch.NAME)


def test_it_never_writes(vault):
    """Reading a status leaves the folder as it is."""
    before = sorted(os.walk(vault))
    address = MonitorAddress("127.0.0.1", free_port())
    with monitor("fedldp.fleet.monitor", vault, f"127.0.0.1:{address.port}") as popen:
        until(lambda: answers(address) or popen.poll() is not None, "the monitor")
        ask(address, "/metrics")
    assert sorted(os.walk(vault)) == before
