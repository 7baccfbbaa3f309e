"""An operator follows the documentation, on machines that are networks of their own.

The commands are read from the pages, so that a page whose command does not work fails here.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from failures import missing
from processes import started
from server_process import wait_until

from fedldp_fleet.server.folder import ServerFolder

DOCS = Path(__file__).parents[2] / "docs"
PAGES = "\n".join((DOCS / name).read_text("utf-8") for name in ("fleet.md", "operations.md"))
COMMANDS = [
    indented or inline
    for indented, inline in re.findall(
        r"^    ((?:fedldp|fedldp-vehicle|openssl|echo) .+)|`(fedldp [^`]+)`",
        PAGES.replace("\\\n", ""),
        re.M,
    )
]
PROGRAMS = {"fedldp": "fedldp", "fedldp-vehicle": "fedldp_vehicle"}
HOST = "fleet.example.org"
SCHEMA = 'speed = {low = 0, high = 130}\ncity = {categories = ["Oslo", "Rome"]}\n'
VEHICLES = 500  # of the depot

_MISSING = missing("ip", "openssl", "bash") if os.geteuid() == 0 else "needs root, for networks"
pytestmark = [pytest.mark.faults, pytest.mark.skipif(bool(_MISSING), reason=_MISSING)]


def command(beginning, *changes):
    """Return the first command of the pages that begins so, with other words in some places."""
    words = next(each for each in COMMANDS if each.startswith(beginning))
    for old, new in changes:
        assert old in words
        words = words.replace(old, new)
    return words


class Machine:
    """A folder, and a network that has nothing in it yet."""

    def __init__(self, folder, name, stack):
        folder.mkdir()
        self.folder, self._stack, self._name = folder, stack, f"fedldp-{os.getpid()}-{name}"
        self._names = Path("/etc/netns", self._name)
        self._names.mkdir(parents=True)
        stack.callback(shutil.rmtree, self._names)
        (self._names / "hosts").touch()
        run("ip", "netns", "add", self._name)
        stack.callback(run, "ip", "netns", "delete", self._name)
        run("ip", "-n", self._name, "link", "set", "lo", "up")

    def reach(self, other, number):
        """Lay a cable to a server, and know it by its name."""
        cable = f"fo{number}"
        peer = ("peer", "name", cable, "netns", other._name)
        run("ip", "-n", self._name, "link", "add", cable, "type", "veth", *peer)
        for machine, last in ((self, 1), (other, 2)):
            address = f"10.254.{number}.{last}/24"
            run("ip", "-n", machine._name, "address", "add", address, "dev", cable)
            run("ip", "-n", machine._name, "link", "set", cable, "up")
        (self._names / "hosts").write_text(f"10.254.{number}.2 {HOST}\n")  # the same inode

    def words(self, text):
        words = shlex.split(text)
        if words[0] in PROGRAMS:
            words[:1] = [sys.executable, "-m", PROGRAMS[words[0]]]
        else:
            words = ["bash", "-c", text]
        return ["ip", "netns", "exec", self._name, *words]

    def run(self, text):
        """Return what a command prints."""
        return run(*self.words(text), cwd=self.folder)

    def start(self, text, ready=None):
        log = self.folder / "log"
        if ready is None:
            with log.open("ab") as file:
                process = subprocess.Popen(self.words(text), cwd=self.folder, stderr=file)
        else:
            process = started(self.words(text), log, ready, cwd=self.folder)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def copy(self, other, *names):
        for name in names:
            shutil.copy(self.folder / name, other.folder)


def run(*words, **options):
    done = subprocess.run(words, capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def answers(server, job):
    opened = closing(ServerFolder.load(server.folder / "server").store())
    with opened as store, store.reading() as inside:
        return sum(each.answers for each in inside.rounds(job))


@pytest.fixture
def machine(tmp_path):
    with ExitStack() as stack:
        yield lambda name: Machine(tmp_path / name, name, stack)


def serve(server):
    return server.start(command("fedldp server run server"), b"http://127.0.0.1:8480/")


def test_the_documentation_suffices(machine):
    """Keys offline, a statistic, a device that has only Python, a top-up, a lost server."""
    operator, server, depot, car = map(machine, ("operator", "server", "depot", "car"))
    for number, agent in enumerate((depot, car)):
        agent.reach(server, number)
        (agent.folder / "schema.toml").write_text(SCHEMA)
    (operator.folder / "schema.toml").write_text(SCHEMA)
    rows = "".join(f"car-{n},{n % 130},Oslo\n" for n in range(VEHICLES))
    (depot.folder / "rows.csv").write_text(f"id,speed,city\n{rows}")
    (car.folder / "row.json").write_text('{"speed": 31, "city": "Rome"}')

    operator.run(command("openssl genpkey"))
    operator.run(command("echo"))
    operator.copy(server, "operator.pub")
    server.run(command("fedldp server init"))
    assert not (server.folder / "server/operator.key").exists()
    with (server.folder / "server/server.toml").open("a") as config:
        config.write("idle_poll = 1\n")
    first = serve(server)
    codes = {
        depot: server.run(command("fedldp server enroll server depot")).strip(),
        car: server.run(command("fedldp server enroll server car-7")).strip(),
    }
    for agent in codes:
        for name in ("ca.pem", "operator.pub"):
            shutil.copy(server.folder / "server" / name, agent.folder)

    depot.run(command("fedldp agent init car --", ("car", "depot")) + " --vehicle id")
    depot.run(command("fedldp agent join car https", ("car", "depot"), ("CODE", codes[depot])))
    depot.run(command("fedldp agent doctor FOLDER", ("FOLDER", "depot")))
    depot.start(command("fedldp agent run car", ("car", "depot")))
    car.run(command("fedldp-vehicle join", ("CODE", codes[car])))

    shutil.copy(server.folder / "server/server.pub", operator.folder)
    operator.run(command("fedldp plan"))
    operator.run(command("fedldp server job statistic", ("1000", f"{VEHICLES - 100}")))
    more = ("2000", f"{VEHICLES + 1}")
    operator.run(command("fedldp server job more spring.job.json", more))
    operator.copy(server, "plan.json", "spring.job.json", "more.job.json")
    server.run(command("fedldp server job add server spring"))
    wait_until(lambda: answers(server, "spring") == VEHICLES - 100)
    server.run(command("fedldp server backup server"))
    server.run(command("fedldp server job add server spring", ("spring", "more")))
    car.start(command("fedldp-vehicle run"))
    wait_until(lambda: answers(server, "spring") == VEHICLES + 1)
    server.run(command("fedldp server status server"))

    first.kill()
    first.wait()
    assert "succeed again" not in (server.folder / "log").read_text()
    second = machine("second")
    for name in ("plan.json", "more.job.json"):
        server.copy(second, name)
    shutil.move(server.folder / "backups", second.folder)
    shutil.rmtree(server.folder / "server")
    for number, agent in enumerate((depot, car), 2):
        agent.reach(second, number)
    second.run(command("fedldp server restore backups", (" --second /other-disk/second", "")))
    second.run(command("fedldp server job add server spring", ("spring", "more")))
    serve(second)
    wait_until(lambda: answers(second, "spring") == VEHICLES + 1)
    wait_until(lambda: "done" in second.run(command("fedldp server status server")))
    second.run(command("fedldp server job result server spring"))
    shown = second.run(command("fedldp estimate plan"))
    assert f"{VEHICLES + 1} vehicles" in shown
    second.run(command("fedldp server revoke server"))
    said = ("car --json > car.json", "depot")
    assert "spring" in depot.run(command("fedldp agent transparency car", said))
