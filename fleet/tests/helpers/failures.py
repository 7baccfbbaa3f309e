"""What fails in a fleet of real processes, and the account of what came of it."""

import contextlib
import itertools
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path

from agent_cases import ALL_ATTRIBUTES
from engine_cases import OPERATOR

from fedldp.budget.ledger import Ledger
from fedldp_fleet.agent.outbox import Outbox
from fedldp_fleet.messages import AnswerVerdict

LARGEST_WASTE = 0.005  # of what is spent, if all that fails returns within half a round

_NUMBERS = itertools.count()

# A process that loads this sees the clock of the machine plus the seconds in a file, which may
# change at any moment. Its monotonic clock stays what it is.
_CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static long long shift(void) {
    static volatile long long *seconds;
    if (!seconds) {
        void *mapped = mmap(0, 8, PROT_READ, MAP_SHARED, open(getenv("CLOCK_FILE"), O_RDONLY), 0);
        if (mapped == MAP_FAILED) abort();
        seconds = mapped;
    }
    return *seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += shift();
    return result;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now) *now = exact.tv_sec;
    return exact.tv_sec;
}
"""


def compile_clock(folder: Path) -> Path:
    """Return the library that makes clocks jump; it needs a C compiler."""
    source, library = folder / "clock.c", folder / "clock.so"
    source.write_text(_CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


class Clock:
    """The clock of one process."""

    def __init__(self, library: Path, path: Path) -> None:
        self._path = path
        self.jump(0)
        self.environment = {"LD_PRELOAD": str(library), "CLOCK_FILE": str(path)}

    def jump(self, seconds: int) -> None:
        """Be wrong by so many seconds from now on."""
        with self._path.open("r+b" if self._path.exists() else "wb") as file:
            file.write(struct.pack("=q", seconds))


class Disk:
    """A small disk, which can be full."""

    def __init__(self, path: Path, megabytes: int) -> None:
        path.mkdir()
        self.path, self._filler = path, path / "filler"
        _run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", path)

    def fill(self) -> None:
        with contextlib.suppress(OSError), self._filler.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass

    def make_room(self) -> None:
        self._filler.unlink()

    def close(self) -> None:
        _run("umount", "-l", self.path)


class Namespace:
    """A network of its own, with a cable to this machine that can be cut."""

    def __init__(self) -> None:
        number = os.getpid() * 64 + next(_NUMBERS) % 64
        self.name, self._cable = f"fedldp-{number}", f"fl{number}"
        network = f"10.{200 + number // (1 << 14) % 50}.{number // 64 % 256}"
        first = number % 64 * 4
        self.machine = f"{network}.{first + 1}"  # the address of this machine in it
        _run("ip", "netns", "add", self.name)
        inside = ("ip", "-n", self.name)
        peer = ("peer", "name", "eth0", "netns", self.name)
        _run("ip", "link", "add", self._cable, "type", "veth", *peer)
        _run("ip", "address", "add", f"{self.machine}/30", "dev", self._cable)
        _run(*inside, "address", "add", f"{network}.{first + 2}/30", "dev", "eth0")
        _run(*inside, "link", "set", "eth0", "up")
        self.mend()

    def command(self, *words):
        """Return what runs a program in this network."""
        return ["ip", "netns", "exec", self.name, *map(str, words)]

    def cut(self) -> None:
        _run("ip", "link", "set", self._cable, "down")

    def mend(self) -> None:
        _run("ip", "link", "set", self._cable, "up")

    def close(self) -> None:
        _run("ip", "netns", "delete", self.name)


def _run(*words):
    done = subprocess.run([*map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.stderr}"


class AgentProcess:
    """An agent's folder, and the process that runs it; it has to join before it is started."""

    def __init__(self, folder, vehicles, cap, *, prefix=(), environment=()):
        self.folder, self.process, self.vehicles, self.cap = folder, None, vehicles, cap
        self._prefix, self._environment = [*prefix], dict(environment)
        self.log = folder.with_suffix(".log")
        folder.mkdir(parents=True)
        OPERATOR.public.save(folder / "operator.pub")
        (folder / "schema.toml").write_text(ALL_ATTRIBUTES.to_toml())
        rows = "".join(f"{folder.name}-{i},30,0.25,yes\n" for i in range(vehicles))
        (folder / "rows.csv").write_text(f"id,speed,load,late\n{rows}")
        (folder / "agent.toml").write_text(
            f'cap = "{cap}"\noperator = "operator.pub"\ndata = "rows.csv"\n'
            'schema = "schema.toml"\nvehicle = "id"\ntick = 0.05\n'
        )
        Ledger.create(folder / "ledger.db", cap).close()

    def start(self):
        words = [sys.executable, "-m", "fedldp_fleet", "agent", "run", str(self.folder)]
        with self.log.open("ab") as log:
            environment = os.environ | {"OMP_NUM_THREADS": "1"} | self._environment
            self.process = subprocess.Popen([*self._prefix, *words], stderr=log, env=environment)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self):
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def verdicts(self):
        """Return how many answers to each job got which verdict."""
        with contextlib.closing(Outbox(self.folder / "outbox.db")) as outbox:
            return outbox.counts()

    def is_settled(self):
        """Return whether it knows what became of all that it has drawn."""
        return all("pending" not in said for said in self.verdicts().values())

    def spendings(self):
        """Return each line of the ledger as (vehicle, job), and what each vehicle has spent."""
        with Ledger(self.folder / "ledger.db", self.cap) as ledger:
            return [(line.vehicle_id, line.job) for line in ledger.history()], ledger.totals()

    def answers(self):
        """Return the vehicles and the verdict of each answer that was drawn, by its key."""
        with (
            contextlib.closing(sqlite(self.folder / "outbox.db")) as outbox,
            Ledger(self.folder / "ledger.db", self.cap) as ledger,
        ):
            query = "SELECT job, round, identifier, request, verdict FROM entries"
            drawn = {}
            for *key, request, verdict in outbox.execute(query):
                if vehicles := len(ledger.stored(request)):
                    drawn[tuple(key)] = vehicles, verdict
        return drawn


def sqlite(path):
    import sqlite3

    return sqlite3.connect(f"file:{path}?mode=ro", uri=True)


def account(agents, stored):
    """Compare ledgers, outboxes and what the server has stored; return the figures.

    `stored` has the vehicles of each answer, by job, round and identifier.
    """
    lines, drawn, over_cap = Counter(), {}, 0
    for agent in agents:
        spendings, totals = agent.spendings()
        lines.update(spendings)
        drawn |= agent.answers()
        over_cap += sum(total > agent.cap for total in totals.values())
    spent, counted = lines.total(), sum(stored.values())
    acknowledged = {key for key, (_, verdict) in drawn.items() if verdict == AnswerVerdict.COUNTED}
    verdicts = Counter()
    for vehicles, verdict in drawn.values():
        verdicts["none" if verdict is None else AnswerVerdict(verdict).name.lower()] += vehicles
    return {
        "answers spent for": spent,
        "answers counted": counted,
        "waste": 1 - counted / max(1, spent),
        "verdicts": dict(verdicts),
        "acknowledged and not counted": len(acknowledged - stored.keys()),
        "vehicles that answered a job twice": sum(count > 1 for count in lines.values()),
        "vehicles over the cap": over_cap,
        "counted otherwise than drawn": sum(
            key not in drawn or drawn[key][0] != vehicles for key, vehicles in stored.items()
        ),
        "drawn otherwise than spent": spent - sum(vehicles for vehicles, _ in drawn.values()),
    }


def check(figures, waste=LARGEST_WASTE):
    """See that nothing is counted twice, nothing acknowledged is lost, and little is wasted."""
    assert figures["answers counted"] > 0
    for name in (
        "acknowledged and not counted",
        "vehicles that answered a job twice",
        "vehicles over the cap",
        "counted otherwise than drawn",
        "drawn otherwise than spent",
    ):
        assert figures[name] == 0, figures
    assert 0 <= figures["waste"] <= waste, figures


def missing(*programs):
    """Return why a test cannot run here, if programs are missing."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    lacking = [name for name in programs if not shutil.which(name, path=path)]
    return f"needs {', '.join(lacking)}" if lacking else ""
