"""A private network keeps other accounts out, and the processes of a fleet in."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from accounts import NOBODY, _enter, forked, needs_root
from fleet_parts import until

from fedldp.errors import DomainError
from fedldp.fleet import isolation
from fedldp.fleet.isolation import SOCKETS, Network
from fedldp.fleet.processes import Process, Supervisor

CONNECTS = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])))"


@pytest.fixture(scope="module")
def private():
    network = isolation.choose(given=False, required=False)
    if not network.private:
        pytest.skip("this system allows no network namespaces")
    yield network
    for handle in network.handles:
        os.close(handle)


def refused(port):
    try:
        socket.create_connection(("127.0.0.1", port), 10).close()
    except ConnectionRefusedError:
        return True
    return False


def connects(network, port):
    """Return whether a program in a network reaches a port."""
    words = network.program(sys.executable, "-I", "-S", "-c", CONNECTS, str(port))
    done = subprocess.run(words, pass_fds=network.handles, capture_output=True)
    return done.returncode == 0


def test_a_port_inside_is_reached_from_inside_alone(private):
    with private.listen() as inside, Network().listen() as outside:
        ports = [each.getsockname()[1] for each in (inside, outside)]
        assert [connects(private, port) for port in ports] == [True, False]
        assert [connects(Network(), port) for port in ports] == [False, True]
        assert [refused(port) for port in ports] == [True, False]


def test_a_socket_from_outside_is_served_inside(private, tmp_path):
    """That is how the front listens: the program prints what it hears, with no other way out."""
    serves = (
        "from fedldp.fleet import isolation\n"
        "[listening] = isolation.inherited()\n"
        "print(isolation.is_private(), listening.get_inheritable(), flush=True)\n"
        "link, _ = listening.accept()\n"
        "link.sendall(b'heard ' + link.recv(9))\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as listening:
        argv = (sys.executable, "-c", serves)
        process = Process("serves", argv, restart="no", sockets=(listening,))
        with Supervisor(tmp_path / "state", network=private) as supervisor:
            supervisor.start(process)
            with socket.create_connection(listening.getsockname()) as link:
                link.sendall(b"you")
                assert link.recv(99) == b"heard you"
            assert until(supervisor.log(process).read_text) == "True False\n"


def test_a_process_that_asks_for_it_stays_outside(private, tmp_path):
    tells = (sys.executable, "-I", "-S", "-c", "import os; print(os.readlink('/proc/self/ns/net'))")
    with Supervisor(tmp_path / "state", network=private) as supervisor:
        found = [Process(f"{out}", tells, restart="no", outside=out) for out in (False, True)]
        assert supervisor.call(*found) == [0, 0]
        inside, outside = (supervisor.log(each).read_text().strip() for each in found)
    assert outside == str(Path("/proc/self/ns/net").readlink()) != inside


def test_a_program_inside_gets_no_descriptor_by_which_it_could_leave(private):
    words = private.program("ls", "-l", "/proc/self/fd")
    done = subprocess.run(words, pass_fds=private.handles, capture_output=True, text=True)
    assert done.returncode == 0
    assert "net:" not in done.stdout
    assert "user:" not in done.stdout


@needs_root
def test_another_account_is_refused_and_cannot_enter(private):
    sleeps = private.program("sleep", "1000")
    with private.listen() as inside, Network().listen() as outside:
        ports = [each.getsockname()[1] for each in (inside, outside)]
        found = forked(lambda: [refused(port) for port in ports], uid=NOBODY)
        assert found == [True, False]
        with subprocess.Popen(sleeps, pass_fds=private.handles) as popen:
            try:
                until(lambda: Path(f"/proc/{popen.pid}/comm").read_text() == "sleep\n")
                assert forked(lambda: entered(popen.pid), uid=NOBODY) == "PermissionError"
                assert forked(lambda: entered(popen.pid)) is None
            finally:
                popen.kill()


def entered(pid):
    try:
        _enter(pid)
    except OSError as error:
        return type(error).__name__
    return None


@needs_root
def test_an_account_without_privileges_has_a_private_network_too(monkeypatch):
    """Its user id stays the same inside, and it has no capabilities there."""
    # Another account may not be able to read the interpreter of the tests.
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None:
        pytest.skip("needs an interpreter that everybody can read")
    monkeypatch.setattr(sys, "executable", python)

    def work():
        try:
            network = isolation.choose(given=False, required=True)
        except DomainError as error:
            return str(error)
        tells = "import os; print(os.getuid(), open('/proc/self/status').read())"
        with network.listen() as inside:
            port = inside.getsockname()[1]
            reach = connects(network, port), connects(Network(), port), refused(port)
        words = network.program(python, "-I", "-S", "-c", tells)
        done = subprocess.run(words, pass_fds=network.handles, capture_output=True, text=True)
        return reach, done.stdout.split()

    found = forked(work, uid=NOBODY)
    if isinstance(found, str):
        pytest.skip(found)
    assert found[0] == (True, False, True)
    assert found[1][0] == str(NOBODY)
    assert found[1][found[1].index("CapEff:") + 1].strip("0") == ""


def test_without_namespaces_there_is_a_warning_or_a_refusal(monkeypatch, caplog):
    def denied(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(isolation, "_received", denied)
    assert isolation.choose(given=False, required=False) == Network()
    assert "every account of this machine can reach Flower's ports" in caplog.text
    assert "(Operation not permitted)" in caplog.text
    with pytest.raises(DomainError, match=r"^--require-isolation: a private network cannot"):
        isolation.choose(given=False, required=True)


def test_what_systemd_has_given_is_checked(monkeypatch, caplog):
    monkeypatch.setattr(isolation, "is_private", lambda: True)
    assert isolation.choose(given=True, required=True) == Network(private=True)
    assert caplog.text == ""
    monkeypatch.setattr(isolation, "is_private", lambda: False)
    assert isolation.choose(given=True, required=False) == Network()
    assert "the unit has no PrivateNetwork=yes" in caplog.text
    with pytest.raises(DomainError, match="PrivateNetwork"):
        isolation.choose(given=True, required=True)


def test_sockets_of_systemd_are_for_the_process_that_it_names():
    tells = (
        "import os\n"
        "os.environ['LISTEN_PID'] = str(os.getpid() + {other})\n"
        "from fedldp.fleet import isolation\n"
        "print([each.getsockname()[1] for each in isolation.inherited()])\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def run(other, **environment):
            child = (
                f"import os, sys; os.dup2({listening.fileno()}, 3); "
                "os.execv(sys.executable, [sys.executable, '-c', sys.argv[1]])"
            )
            words = [sys.executable, "-c", child, tells.format(other=other)]
            return subprocess.run(
                words,
                pass_fds=[listening.fileno()],
                capture_output=True,
                text=True,
                env=os.environ | environment,
            ).stdout

        port = listening.getsockname()[1]
        assert run(0, LISTEN_FDS="1") == f"[{port}]\n"
        assert run(1, LISTEN_FDS="1") == "[]\n"
        assert run(1, LISTEN_FDS="1", **{SOCKETS: "3"}) == f"[{port}]\n"
