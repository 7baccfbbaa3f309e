"""Processes that are kept alive, and stopped reliably. For Linux.

A supervisor holds a lock on its folder (see `state`). Every process that it starts, directly or
indirectly, has the name of the folder in its environment. So `stop` finds all of them after a
supervisor was killed, and no other processes.

Anybody who can write to a folder can write any number into the lock file. So `stop` only signals
processes of the user who owns this file, who may stop them anyway. It signals through process
descriptors, which it checks after it has opened them.
"""

import contextlib
import logging
import os
import select
import signal
import socket
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from types import FrameType
from typing import IO, Any, Literal, NamedTuple, final

from fedldp.errors import DomainError
from fedldp.fleet import logs
from fedldp.fleet.isolation import SOCKETS, Network
from fedldp.fleet.state import LOCK, hold, holder_of, note, noted, open_lock, started, users

MARK = "FEDLDP_FLEET"  # environment variable of all processes that a supervisor starts
GRACE = 8.0  # seconds for a process to end after SIGTERM
SHORTEST_PAUSE, LONGEST_PAUSE = 0.5, 5.0  # seconds before a process that died is started again
LONG_LIFE = 60.0  # seconds; after such a long life, the pause is the shortest again
FORMAT = "fedldp processes 1"
RUNNING = "processes.json"  # in the state folder: what the supervisor keeps alive
FREE_PORT = "{free port}"  # a placeholder in a command line for the number of a free port

Restart = Literal["always", "on-failure", "no"]

_POLL = 0.05

_log = logging.getLogger("fedldp.fleet")


@final
@dataclass(frozen=True)
class Process:
    """What to run, and when to run it again."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)  # added to the supervisor's own
    restart: Restart = "always"
    sockets: tuple[socket.socket, ...] = ()  # it inherits them; see `isolation.inherited`
    outside: bool = False  # run in the supervisor's network, even if there is a private one
    pulse: Path | None = None  # a file that is touched while the process works
    silence: float = 0.0  # seconds without a touch after which it is restarted


class _Child:
    """A process that is running or has ended."""

    born: float
    due: float | None  # when to start it again
    status: int | None  # its exit status
    pulse: int  # when its file was touched, by the clock of the file system
    beat: float  # when that time was last seen to change

    def __init__(self, process: Process, log: Path, mark: str, network: Network) -> None:
        self.process, self._log, self._mark, self._network = process, log, mark, network
        self.pause, self.starts = SHORTEST_PAUSE, 0
        self.start()

    def start(self) -> None:
        self.starts += 1
        logs.set_aside(self._log)
        words = [str(free_port()) if word == FREE_PORT else word for word in self.process.argv]
        sockets = [each.fileno() for each in self.process.sockets]
        with self._log.open("ab") as output:
            self._popen = subprocess.Popen(  # noqa: S603 (words of our own, and no shell)
                self._network.program(*words),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    **self.process.environment,
                    MARK: self._mark,
                    SOCKETS: ",".join(map(str, sockets)),
                },
                pass_fds=[*self._network.handles, *sockets],
                start_new_session=True,
            )
        self.pid, self.born, self.due, self.status = self._popen.pid, monotonic(), None, None
        self.pulse, self.beat = self._touched(), self.born

    def died(self) -> bool:
        """Return whether it has ended; if so, also end what is left of its process group.

        The kernel does not reuse its number until it is reaped, so the group cannot be that of
        another process.
        """
        if self.status is None:
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT
            if os.waitid(os.P_PID, self.pid, options) is None:
                return False
            self._end_group()
            self.status = self._popen.wait()
        return True

    def ask(self) -> None:
        """Ask it to end. It is responsible for its own children until it has ended."""
        if not self.died():
            os.kill(self.pid, signal.SIGTERM)

    def end(self, deadline: float) -> None:
        """Wait until the deadline for it to end, then kill it and everything it has started."""
        while not self.died():
            if monotonic() >= deadline:
                self._end_group()
            sleep(_POLL)

    def _end_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def is_silent(self) -> bool:
        """Return whether its file has not been touched for too long.

        The time is measured with the clock of this process, as the system clock may be changed.
        """
        if self.process.pulse is None:
            return False
        if (touched := self._touched()) != self.pulse:
            self.pulse, self.beat = touched, monotonic()
        return monotonic() - self.beat > self.process.silence

    def _touched(self) -> int:
        path = self.process.pulse
        return path.stat().st_mtime_ns if path is not None and path.exists() else 0


@final
class Kept(NamedTuple):
    """A process that a supervisor keeps alive."""

    name: str
    runs: bool
    starts: int  # how often it was started


def kept(state: Path) -> list[Kept]:
    """Return the processes that the supervisor of a state folder keeps alive, or kept last."""

    def understood(document: dict[str, Any]) -> list[Kept]:
        return [
            Kept(str(name), each["born"] == started(each["pid"]) is not None, int(each["starts"]))
            for name, each in sorted(document["processes"].items())
        ]

    return noted(state / RUNNING, FORMAT, understood, [])


class Supervisor:
    """Starts processes, restarts them when they die, and stops all of them when it ends.

    Use it in a `with` statement in the main thread: SIGTERM and SIGINT set `stopped`. It watches
    the processes during `wait` and `call`. At the end they have `grace` seconds to stop. Processes
    run in `network`, unless they ask for the supervisor's own network.
    """

    def __init__(
        self, state: Path, grace: float | None = None, network: Network | None = None
    ) -> None:
        self.state = state.resolve()
        self._network = network or Network()
        self._grace = GRACE if grace is None else grace
        self.stopped = threading.Event()
        self._children: dict[str, _Child] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Supervisor":
        with contextlib.ExitStack() as stack:
            stack.enter_context(hold(self.state))
            self._end_marked()  # left behind by a supervisor that was killed
            for number in (signal.SIGTERM, signal.SIGINT):
                stack.callback(signal.signal, number, signal.signal(number, self._on_signal))
            stack.callback(self._end)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.stopped.set()

    def _end(self) -> None:
        deadline = monotonic() + self._grace
        for outside in (False, True):  # those inside may need the others to end cleanly
            children = [each for each in self._children.values() if each.process.outside == outside]
            for child in children:
                child.ask()
            for child in children:
                child.end(deadline)
        self._end_marked()  # processes that have left their groups

    def _end_marked(self) -> None:
        _end(lambda: _marked(self.state, {self.state: os.geteuid()}), GRACE)

    def start(self, process: Process) -> None:
        """Start a process, and keep it alive if it asks for that."""
        network = Network() if process.outside else self._network
        log = self.log(process)
        self._children[process.name] = _Child(process, log, str(self.state), network)
        self._record()

    def _record(self) -> None:
        """Write which processes are kept alive, for those who want to know whether they run."""
        kept = {
            name: {"pid": child.pid, "born": started(child.pid), "starts": child.starts}
            for name, child in self._children.items()
            if child.process.restart != "no"
        }
        note(self.state / RUNNING, FORMAT, processes=kept)

    def log(self, process: Process) -> Path:
        """Return the file with the output of a process."""
        return self.state / f"{process.name}.log"

    def status(self, name: str) -> int | None:
        """Return the exit status of a process; None while it runs or if it will be restarted."""
        child = self._children[name]
        return child.status if child.died() and not _again(child) else None

    def pid(self, name: str) -> int:
        """Return the number of a process, which is also that of its group."""
        return self._children[name].pid

    def restart(self, name: str) -> None:
        """Ask a process to end, and start it again, for example because its keys have changed."""
        child = self._children[name]
        child.ask()
        child.end(monotonic() + self._grace)
        child.start()
        self._record()

    def wait(self, seconds: float) -> bool:
        """Watch the processes for some seconds; return False if a signal asks to stop."""
        deadline = monotonic() + seconds
        while not self.stopped.wait(max(0.0, min(_POLL, deadline - monotonic()))):
            again = [_look_after(child) for child in self._children.values()]
            if any(again):
                self._record()
            if monotonic() >= deadline:
                return True
        return False

    def call(self, *processes: Process) -> list[int] | None:
        """Run processes until they end; return their exit statuses, or None after a signal."""
        for process in processes:
            self.start(process)
        while None in (found := [self.status(process.name) for process in processes]):
            if not self.wait(_POLL):
                return None
        return [status for status in found if status is not None]


def _again(child: _Child) -> bool:
    return child.process.restart == "always" or (
        child.process.restart == "on-failure" and child.status != 0
    )


def _look_after(child: _Child) -> bool:
    """Do what a process needs now; return whether it was started again."""
    name = child.process.name
    if not child.died():
        if child.is_silent():
            _log.warning("%s has asked for no work for too long: it is restarted.", name)
            child.ask()
            child.end(monotonic() + GRACE)
    elif child.due is not None:
        if monotonic() >= child.due:
            child.start()
            return True
    elif _again(child):
        _log.warning("%s ended with status %s: it is started again.", name, child.status)
        if monotonic() - child.born > LONG_LIFE:
            child.pause = SHORTEST_PAUSE
        child.due = monotonic() + child.pause
        child.pause = min(2 * child.pause, LONGEST_PAUSE)
    return False


def free_port() -> int:
    """Return a port of this machine that is not in use now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def stop(folder: Path) -> int:
    """Stop everything that runs in a folder and its subfolders; return the number of processes.

    Supervisors come first: they stop what they have started, and would otherwise restart it.
    """
    folder = folder.resolve()
    if not folder.is_dir():
        raise DomainError(
            f"expected the folder of a fleet, or of one of its parts; {folder} does not exist."
        )
    with contextlib.ExitStack() as stack:
        locks = {state: stack.enter_context(lock) for state, lock in _locks(folder)}
        owners = {state: os.fstat(lock.fileno()).st_uid for state, lock in locks.items()}

        def supervisors() -> set[int]:
            return {pid for lock in locks.values() if (pid := holder_of(lock)) is not None}

        found = supervisors() | _marked(folder, owners)
        _end(supervisors, 2 * GRACE)
        _end(lambda: _marked(folder, owners), GRACE)
    return len(found)


def _locks(folder: Path) -> Iterator[tuple[Path, IO[str]]]:
    """Yield the state folders in a folder, with their open lock files; follow no links.

    A file with a second hard link is skipped: it may be the lock of another user's folder.
    """
    for path, _, names, descriptor in os.fwalk(folder):
        if LOCK in names:
            with contextlib.suppress(OSError):
                lock = open_lock(LOCK, descriptor)
                found = os.fstat(lock.fileno())
                if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
                    yield Path(path), lock
                else:
                    lock.close()


def _marked(folder: Path, owners: Mapping[Path, int]) -> set[int]:
    """Return the processes that supervisors in a folder have started, directly or indirectly.

    They must belong to the user who owns the lock of the state folder in their environment or, if
    that folder no longer exists, to the current user.
    """
    found = set()
    for number in (path.name for path in Path("/proc").iterdir() if path.name.isdecimal()):
        try:
            variables = Path("/proc", number, "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended, or belongs to another user
            continue
        start = f"{MARK}=".encode()
        marks = [
            Path(os.fsdecode(each[len(start) :])) for each in variables if each.startswith(start)
        ]
        if any(
            mark.is_relative_to(folder) and users(int(number)) == {owners.get(mark, os.geteuid())}
            for mark in marks
        ):
            found.add(int(number))
    return found - {os.getpid()}


def _end(find: Callable[[], set[int]], grace: float) -> None:
    """Ask all processes that are found to end, kill those that do not, and wait for all of them.

    A supervisor is no longer found once its lock is free, shortly before it has ended.
    """
    with contextlib.ExitStack() as stack:
        handles: list[int] = []
        for number in (signal.SIGTERM, signal.SIGKILL):
            handles += _handles(find, stack)
            for handle in handles:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, number)
            deadline = monotonic() + grace
            while (find() or not all(map(_gone, handles))) and monotonic() < deadline:
                sleep(_POLL)


def _handles(find: Callable[[], set[int]], stack: contextlib.ExitStack) -> list[int]:
    """Return handles of exactly the processes that are found."""
    opened = {}
    for pid in find():
        with contextlib.suppress(ProcessLookupError):
            opened[pid] = os.pidfd_open(pid)
            stack.callback(os.close, opened[pid])
    still = find()  # after the handles were opened, so that they belong to these processes
    return [handle for pid, handle in opened.items() if pid in still]


def _gone(handle: int) -> bool:
    """Return whether a process has ended, even if it has not been reaped."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(0))
