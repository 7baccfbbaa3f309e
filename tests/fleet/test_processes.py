"""Processes are started again when they die, and ended whatever happens: ours, and no others."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest
from accounts import NOBODY, needs_root

from fedldp.errors import DomainError
from fedldp.fleet import logs, processes, state
from fedldp.fleet.flower import programs
from fedldp.fleet.processes import FREE_PORT, MARK, Process, Supervisor, stop
from fedldp.fleet.state import LOCK, hold, holder, started

SLEEPS = ("sleep", "1000")
# Leaves one process in its group and one in a session of its own, and says which.
FAMILY = ("sh", "-c", 'sleep 1000 & echo $! >> "$0"; setsid sleep 1000 & echo $! >> "$0"; wait')

SUPERVISOR = """
import sys, time
from pathlib import Path
from fedldp.fleet.processes import Process, Supervisor
with Supervisor(Path(sys.argv[1])) as supervisor:
    supervisor.start(Process("family", tuple(sys.argv[2:])))
    print(supervisor.pid("family"), flush=True)
    supervisor.wait(1000)
time.sleep({lingers})
"""


def until(condition):
    """Wait for what must come; a test that waits for a minute has failed."""
    deadline = monotonic() + 60
    while not (found := condition()):
        assert monotonic() < deadline
        sleep(0.02)
    return found


def alive(pid):
    return started(pid) is not None


def numbers(path, count):
    """Return the process ids that `count` processes have written."""

    def written():
        words = path.read_text().split() if path.exists() else []
        return [int(word) for word in words] if len(words) >= count else None

    return until(written)


def shows(pid):
    """Wait until a process shows its environment: that can be some moments after its start."""
    until(Path(f"/proc/{pid}/environ").read_bytes)


@contextmanager
def stranger(user=None, **environment):
    popen = subprocess.Popen(SLEEPS, env={**os.environ, **environment}, user=user)
    try:
        shows(popen.pid)
        yield popen
    finally:
        popen.kill()
        popen.wait()


@contextmanager
def separate(state, *argv, lingers=0.0):
    """A supervisor in a process of its own, and the number of the process that it looks after.

    When it has ended that and has released its folder, it lingers for some seconds.
    """
    words = (sys.executable, "-c", SUPERVISOR.format(lingers=lingers), str(state), *argv)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as popen:
        try:
            shows(child := int(popen.stdout.readline()))
            yield popen, child
        finally:
            popen.kill()
            popen.wait()
            stop(state.parent)


def waited(supervisor, condition):
    """Let a supervisor work until something is true."""

    def found():
        assert supervisor.wait(0.02)
        return condition()

    return until(found)


def test_what_dies_is_started_again_and_its_children_end_with_it(tmp_path):
    told = tmp_path / "told"
    with Supervisor(tmp_path / "state") as supervisor:
        supervisor.start(Process("family", (*FAMILY, str(told))))
        first, (near, far) = supervisor.pid("family"), numbers(told, 2)
        os.kill(first, signal.SIGKILL)
        waited(supervisor, lambda: supervisor.pid("family") != first)
        until(lambda: not alive(near))
        assert supervisor.status("family") is None
        family = [far, *numbers(told, 4)[2:], supervisor.pid("family")]
        assert all(alive(pid) for pid in family)
    assert not any(alive(pid) for pid in family)


def test_only_what_asks_for_it_is_started_again(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "SHORTEST_PAUSE", 0.01)
    tries = tmp_path / "tries"
    script = 'echo x >> "$0"; test $(wc -l < "$0") -ge 3'
    with Supervisor(tmp_path / "state") as supervisor:
        assert supervisor.call(
            Process("bad", ("false",), restart="no"), Process("good", ("true",), restart="no")
        ) == [1, 0]
        persistent = Process("p", ("sh", "-c", script, str(tries)), restart="on-failure")
        assert supervisor.call(persistent) == [0]
        assert supervisor.wait(0.1)
    assert tries.read_text() == "x\n" * 3


def test_pauses_grow(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "SHORTEST_PAUSE", 0.01)
    monkeypatch.setattr(processes, "LONGEST_PAUSE", 0.1)
    with Supervisor(tmp_path / "state") as supervisor:
        supervisor.start(Process("bad", ("false",)))
        child = supervisor._children["bad"]
        waited(supervisor, lambda: child.pause == 0.1)
        monkeypatch.setattr(processes, "LONG_LIFE", -1.0)
        waited(supervisor, lambda: child.pause == 0.02)  # it is as if it had lived for long


def test_what_does_not_end_when_it_is_asked_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "GRACE", 0.2)
    ready = tmp_path / "ready"
    with Supervisor(tmp_path / "state") as supervisor:
        deaf = f"trap '' TERM; touch {ready}; while true; do sleep 0.05; done"
        supervisor.start(Process("deaf", ("sh", "-c", deaf)))
        pid = supervisor.pid("deaf")
        until(ready.exists)
    assert not alive(pid)


def test_what_is_silent_for_too_long_is_started_again(tmp_path, monkeypatch):
    clock, pulse = [100.0], tmp_path / "pulse"
    with Supervisor(tmp_path / "state") as supervisor:
        monkeypatch.setattr(processes, "monotonic", lambda: clock[0] + monotonic() / 1e6)
        supervisor.start(Process("quiet", SLEEPS, pulse=pulse, silence=60.0))
        supervisor.start(Process("other", SLEEPS))
        first, child = supervisor.pid("quiet"), supervisor._children["quiet"]

        def passes(seconds):
            clock[0] += seconds
            processes._look_after(child)
            processes._look_after(supervisor._children["other"])
            return child.died()

        assert not passes(59)  # it may take so long until it is of use
        pulse.touch()
        assert not passes(59)
        os.utime(pulse, (0, 0))  # the clock was set back; it was touched all the same
        assert not passes(59)
        assert not passes(59)
        assert passes(2)
        assert not alive(first)
        processes._look_after(child)
        clock[0] += processes.LONGEST_PAUSE
        processes._look_after(child)
        assert supervisor.pid("quiet") != first
        assert not passes(59)  # the silence of the first is not held against the second
        assert supervisor._children["other"].status is None
        monkeypatch.undo()


def test_processes_inside_end_before_those_outside(tmp_path):
    """They may have something to say at the end, and need a way to say it."""
    ready, told = tmp_path / "ready", tmp_path / "told"
    with Supervisor(tmp_path / "state") as supervisor:
        supervisor.start(Process("uplink", SLEEPS, outside=True))
        uplink = supervisor.pid("uplink")
        last = f"sleep 0.5; kill -0 {uplink} && touch {told}; exit 0"
        words = f"trap '{last}' TERM; touch {ready}; while true; do sleep 0.05; done"
        supervisor.start(Process("node", ("sh", "-c", words)))
        until(ready.exists)
    assert told.exists()
    assert not alive(uplink)


def test_a_signal_stops_and_what_was_started_ends(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    with Supervisor(tmp_path / "state") as supervisor:
        supervisor.start(Process("sleeper", SLEEPS))
        pid = supervisor.pid("sleeper")
        os.kill(os.getpid(), signal.SIGTERM)
        assert not supervisor.wait(60)
        assert supervisor.call(Process("another", SLEEPS)) is None
        assert alive(pid)
    assert not alive(pid)
    assert signal.getsignal(signal.SIGTERM) == before


def test_an_exception_ends_what_was_started(tmp_path):
    supervisor = Supervisor(tmp_path / "state")

    def fail():
        with supervisor:
            supervisor.start(Process("sleeper", SLEEPS))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not alive(supervisor.pid("sleeper"))


def test_words_environment_and_log(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "LARGEST", 10)
    state = tmp_path / "state"
    with Supervisor(state) as supervisor:
        argv = ("sh", "-c", 'echo "$0 $WORD"; echo oops >&2', FREE_PORT)
        for _ in range(2):
            assert supervisor.call(Process("echo", argv, {"WORD": "said"}, "no")) == [0]
    for name in ("echo.log", "echo.old"):
        port, word, oops = (state / name).read_text().split()
        assert 1024 <= int(port) < 65536
        assert (word, oops) == ("said", "oops")


def test_one_supervisor_for_each_folder(tmp_path):
    state = tmp_path / "state"
    with Supervisor(state):
        assert holder(state) == os.getpid()
        with pytest.raises(DomainError, match=f"process {os.getpid()}. Stop it first: .*stop"):
            Supervisor(state).__enter__()
        assert holder(state) == os.getpid()
    assert holder(state) is None
    assert holder(tmp_path / "nowhere") is None
    with Supervisor(state):
        pass


def test_stop_asks_a_supervisor(tmp_path):
    with separate(tmp_path / "state", *SLEEPS) as (supervisor, child):
        assert stop(tmp_path) == 2
        assert supervisor.wait() == 0
        assert not alive(child)
        assert stop(tmp_path) == 0


@pytest.mark.parametrize(("lingers", "status"), [(0.5, 0), (1000, -signal.SIGKILL)])
def test_stop_waits_until_a_supervisor_is_gone(tmp_path, monkeypatch, lingers, status):
    """The process, and not only its lock: whatever is started next finds nothing in its way."""
    if status:
        monkeypatch.setattr(processes, "GRACE", 0.2)
    with separate(tmp_path / "state", *SLEEPS, lingers=lingers) as (supervisor, child):
        assert stop(tmp_path) == 2
        assert not alive(supervisor.pid)
        assert not alive(child)
        assert supervisor.wait() == status


def test_stop_after_the_supervisor_was_killed(tmp_path):
    told = tmp_path / "told"
    with separate(tmp_path / "part" / "state", *FAMILY, str(told)) as (supervisor, child):
        family = [child, *numbers(told, 2)]
        supervisor.kill()
        supervisor.wait()
        assert all(alive(pid) for pid in family)
        assert stop(tmp_path) == 3
        assert not any(alive(pid) for pid in family)


def test_a_supervisor_ends_what_another_one_left_behind(tmp_path):
    with separate(tmp_path / "state", *SLEEPS) as (killed, child):
        killed.kill()
        killed.wait()
        assert alive(child)
        with Supervisor(tmp_path / "state"):
            assert not alive(child)


def test_a_number_that_was_given_to_a_stranger(tmp_path):
    state = tmp_path / "state"
    with stranger() as popen:
        birth = started(popen.pid)
        state.mkdir()
        (state / LOCK).write_text(f"{popen.pid} {birth}")  # nobody has the lock
        assert holder(state) is None
        assert stop(tmp_path) == 0
        with hold(state):
            for text in (f"{popen.pid} {birth - 1}", f"{popen.pid}", "0 0", "-1 0", ""):
                (state / LOCK).write_text(text)
                assert holder(state) is None
                assert stop(tmp_path) == 0
        assert popen.poll() is None


def test_processes_of_other_folders_are_strangers(tmp_path):
    marks = (f"{tmp_path}/a/state-2", f"{tmp_path}/a/../b/state", f"{tmp_path}", "")
    (tmp_path / "a" / "state").mkdir(parents=True)
    for mark in marks:
        with stranger(**{MARK: mark}) as popen:
            assert stop(tmp_path / "a" / "state") == 0
            assert popen.poll() is None
    with stranger(**{f"X{MARK}": f"{tmp_path}/a/state"}) as popen:
        assert stop(tmp_path) == 0
        assert popen.poll() is None
    with stranger(**{MARK: f"{tmp_path}/a/state"}) as popen:
        assert stop(tmp_path) == 1
        assert popen.wait() == -signal.SIGTERM


@contextmanager
def named(state, popen, owner):
    """A lock that is held, belongs to a user, and names a process."""
    with hold(state):
        os.chown(state / LOCK, owner, owner)
        (state / LOCK).write_text(f"{popen.pid} {started(popen.pid)}")
        yield


@needs_root
def test_root_ends_no_process_of_another_user_than_the_owner_of_the_lock(tmp_path):
    """Anybody who can write to a folder could name any process there, or mark any."""
    state = tmp_path / "part" / "state"
    with stranger() as victim, named(state, victim, NOBODY):
        assert holder(state) is None
        assert stop(tmp_path) == 0
        assert victim.poll() is None
    (state / LOCK).touch()
    os.chown(state / LOCK, NOBODY, NOBODY)
    with stranger(**{MARK: str(state)}) as victim:
        assert stop(tmp_path) == 0
        assert victim.poll() is None


@needs_root
def test_root_ends_what_the_owner_of_the_lock_runs(tmp_path):
    state = tmp_path / "part" / "state"
    for environment in ({}, {MARK: str(state)}):
        with stranger(user=NOBODY, **environment) as popen, named(state, popen, NOBODY):
            assert holder(state) == popen.pid
            assert stop(tmp_path) == 1
            assert popen.wait() == -signal.SIGTERM
    with hold(state):  # by another user than before, who owns it now
        assert holder(state) == os.getpid()


@pytest.mark.parametrize("link", ["symbolic", "hard", "folder"])
def test_a_lock_that_is_another_ones(tmp_path, link):
    """A link in a folder leads to a process that does not work there."""
    theirs, state = tmp_path / "theirs" / "state", tmp_path / "part" / "state"
    with separate(theirs, *SLEEPS) as (supervisor, child):
        state.parent.mkdir()
        if link == "folder":
            state.symlink_to(theirs)
        else:
            state.mkdir()
            (os.link if link == "hard" else os.symlink)(theirs / LOCK, state / LOCK)
        assert stop(tmp_path / "part") == 0
        assert supervisor.poll() is None
        assert alive(child)
        if link == "symbolic":
            with pytest.raises(OSError, match="symbolic link"), hold(state):
                pass
        (state if link == "folder" else state / LOCK).unlink()


def test_what_ends_while_it_is_looked_at_is_no_error(tmp_path, monkeypatch):
    def vanished(method):
        def look(path, *arguments, **options):
            if str(one.pid) in path.parts:
                raise ProcessLookupError
            return method(path, *arguments, **options)

        return look

    mark = {MARK: f"{tmp_path}/state"}
    with stranger(**mark) as one, stranger(**mark) as another:
        for name in ("stat", "read_bytes"):
            monkeypatch.setattr(Path, name, vanished(getattr(Path, name)))
        assert stop(tmp_path) == 1
        assert another.wait() == -signal.SIGTERM
        assert one.poll() is None


def test_stop_wants_a_folder(tmp_path):
    with pytest.raises(DomainError, match=r"expected the folder of a fleet.* does not exist"):
        stop(tmp_path / "nowhere")


def test_who_is_alive():
    popen = subprocess.Popen(["true"])
    until(lambda: Path(f"/proc/{popen.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
    assert started(popen.pid) is None
    popen.wait()
    assert started(popen.pid) is None
    assert started(os.getpid()) > 0


def test_others_can_see_what_runs(tmp_path):
    forever = Process("forever", (sys.executable, "-c", "import time; time.sleep(600)"))
    once = Process("once", (sys.executable, "-c", ""), restart="no")
    with Supervisor(tmp_path) as supervisor:
        supervisor.start(forever)
        supervisor.start(once)
        assert processes.kept(tmp_path) == [("forever", True, 1)]
        supervisor.restart("forever")
        assert processes.kept(tmp_path) == [("forever", True, 2)]
    assert processes.kept(tmp_path) == [("forever", False, 2)]


def test_a_full_disk_does_not_end_a_supervisor(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(state.files, "write", full)
    with Supervisor(tmp_path) as supervisor:
        assert supervisor.call(Process("once", (sys.executable, "-c", ""), restart="no")) == [0]
    assert processes.kept(tmp_path) == []


def test_programs_do_not_import_files_of_the_current_folder(tmp_path):
    for name in ("numpy", "fedldp", "h2", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')")
    argv = programs.python("fedldp.fleet.server.endpoint", tmp_path / "missing")
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "imported" not in done.stderr
    assert "missing" in done.stderr
