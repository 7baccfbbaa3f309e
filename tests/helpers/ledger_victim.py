"""Processes for tests of the ledger to kill, to starve and to set against each other.

Run as a script, so that the package is imported once and each victim is a fork of this process:
python ledger_victim.py COMMAND FOLDER [NUMBER ...] prints what it saw as JSON.
"""

import contextlib
import ctypes
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from fractions import Fraction
from pathlib import Path

from fedldp.budget.ledger import Ledger, create, seal
from fedldp.errors import BudgetError, DomainError
from fedldp.storage.database import Database

FIXTURES = Path(__file__).parents[1] / "fixtures"
CAP = Fraction(3)
KEYS, REQUESTS = 40, 80
JOBS, PER_JOB = (None, "spring", "autumn"), 2


def victim(command, folder, *numbers):
    """Run a command of this script, and return what it saw."""
    script = [sys.executable, "-W", "ignore", __file__]  # of forks beside threads
    arguments = [*script, command, folder, *map(str, numbers)]
    run = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    return json.loads(run.stdout)


def price(number):
    """Return what a request costs: now and then a third."""
    return (0.1, "1/3", 0.25)[number % 3]


def question(number):
    """Return what is asked of many under a request."""
    return f"question {number}".encode()


def kill(folder, ledgers, kills, milliseconds, seed):
    """Kill pairs of processes that release without pause, each at a random moment of its life.

    Every ledger sees this number of kills, and more until it has been used: a busy machine is slow.
    """
    rng = random.Random(seed)
    for ledger in range(ledgers):
        log = os.open(folder / f"{ledger}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        longest, killed = milliseconds / 1000, 0
        while killed < kills or os.fstat(log).st_size == 0:
            deaths = []
            for _ in range(2):
                victim = forked(release_for_ever, folder / str(ledger), log, rng.random())
                deaths.append((time.monotonic() + rng.uniform(0, longest), victim))
            for death, victim in sorted(deaths):
                time.sleep(max(0.0, death - time.monotonic()))
                os.kill(victim, signal.SIGKILL)
            for _, victim in deaths:
                assert os.waitpid(victim, 0)[1] == signal.SIGKILL  # it did not end by itself
            killed += 2
            longest *= 1 if killed < kills else 2
        os.close(log)


def release_for_ever(path, log, seed):
    """Put even requests to one key, and odd ones to several at once; log all that is got."""
    rng = random.Random(seed)
    with contextlib.suppress(DomainError):  # it is there already
        create(path)
    ledger = Ledger(path, CAP, answers_per_job=PER_JOB)
    while True:
        number = rng.randrange(REQUESTS)
        job = JOBS[number % len(JOBS)]
        keys = [f"car-{key}" for key in rng.sample(range(KEYS), 5 if number % 2 else 1)]
        if number % 2:
            request = (price(number), str(number), question(number))
            answers = ledger.release_many(
                keys, *request, lambda able: {k: os.urandom(8) for k in able}, job=job
            )
        else:
            try:
                answer = ledger.release(
                    keys[0], price(number), str(number), lambda: os.urandom(8), job=job
                )
            except BudgetError:
                continue
            answers = {keys[0]: answer}
        # A kill can cut a write short: a line counts only if it has its end.
        pairs = " ".join(f"{key}={answer.hex()}" for key, answer in answers.items())
        os.write(log, f"\n{number} {pairs} whole".encode())


def compete(folder, processes, rounds):
    """Return who got the last budget of a key, in every round, and who got all of its own."""

    create(folder / "ledger")

    def competitor(number):
        won = []
        with Ledger(folder / "ledger", cap=1) as ledger:
            for key in range(rounds):
                ledger.release(f"own {number}", Fraction(1, rounds), str(key), lambda: b"own")
                try:
                    ledger.release(f"shared {key}", 1, f"of {number}", slowly)
                    won.append(key)
                except BudgetError:
                    pass
            return won, str(ledger.spent(f"own {number}"))

    return at_once(competitor, processes)


def race(folder, processes, jobs):
    """Return in which jobs each process got the one answer of a vehicle that can afford all."""

    create(folder / "ledger")

    def competitor(number):
        won = []
        with Ledger(folder / "ledger", cap=processes * jobs) as ledger:
            for job in range(jobs):
                request = f"{job} of {number}"
                if number % 2:
                    asked = request, b"?", lambda able: {key: slowly() for key in able}
                    won += [job] if ledger.release_many(["car"], 1, *asked, job=str(job)) else []
                    continue
                try:
                    ledger.release("car", 1, request, slowly, job=str(job))
                    won.append(job)
                except BudgetError:
                    pass
        return won

    return at_once(competitor, processes)


def slowly():
    time.sleep(0.002)  # in which the others come to wait for the same
    return b"shared"


def at_once(function, processes):
    """Run a function in several processes that start together, and return what each returns."""
    ready, go = os.pipe()

    def child(number, out):
        os.close(go)
        os.read(ready, 1)  # until the parent closes it, without a file
        os.write(out, json.dumps(function(number)).encode())

    read, write = zip(*(os.pipe() for _ in range(processes)), strict=True)
    children = [forked(child, number, out) for number, out in enumerate(write)]
    os.close(go)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    return [json.loads(os.read(pipe, 1 << 16)) for pipe in read]


def starve(folder):
    """Release until the disk is full, then find room again; return what was got and what failed."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ledger = Ledger.create(folder / "ledger", cap=100)
    got, failed, produced = {}, [], []

    def ask(number):
        def produce():
            produced.append(os.urandom(100))
            return produced[-1]

        try:
            got[number] = ledger.release("car", 1, str(number), produce).hex()
        except OSError as error:
            failed.append([number, str(error)])

    ask(0)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    for number in range(1, 40):
        ask(number)
    while_full = dict(got)
    for number in got:
        ask(number)  # what has been paid for can be had again, full disk or not
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        create(folder / "another")
    except OSError:
        failed.append(["another", str((folder / "another").exists())])
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    for number, _ in list(failed[:-1]):
        ask(number)
    return while_full, got, failed, len(produced)


def inherit(folder):
    """Use one ledger on both sides of forks; return what the children saw."""
    ledger = Ledger.create(folder / "ledger", cap=9)
    to_child, from_parent = os.pipe()
    to_parent, from_child = os.pipe()
    saw, tell = os.pipe()

    def child():
        ledger.release("car", 1, "child", lambda: b"2")
        os.write(from_child, b"!")
        os.read(to_child, 1)
        ledger.release("car", 1, "child, without its parent", lambda: b"4")

    def refused():
        try:
            ledger.release("car", 1, "refused", lambda: b"refused")
        except DomainError as error:
            ledger.close()  # does nothing
            os.write(tell, f"{error}\n".encode())

    def produce():
        os.waitpid(forked(refused), 0)
        unseen = ctypes.PyDLL(None).fork()  # Python's hooks do not run
        if unseen == 0:
            refused()
            os._exit(0)
        os.waitpid(unseen, 0)
        return b"1"

    ledger.release("car", 1, "parent", produce)
    going = forked(child)
    os.close(from_child)
    os.read(to_parent, 1)
    ledger.release("car", 1, "parent, beside its child", lambda: b"3")
    ledger.close()
    os.write(from_parent, b"!")
    assert os.waitpid(going, 0)[1] == 0
    return os.read(saw, 1 << 16).decode().splitlines()


def migrate(folder, places):
    """Kill processes that migrate ledgers, each before its own statement; return how they ended."""

    def use(place):
        with Ledger(folder / str(place) / "ledger", CAP) as ledger:
            ledger.spent("car 1")  # which needs one more statement

    return killed_while_migrating(use, places)


def killed_while_migrating(use, places):
    def child(place):
        execute, left = Database.execute, [None]

        def mortal(self, statement, values=()):
            if left == [0]:
                os.kill(os.getpid(), signal.SIGKILL)
            if left[0] is not None:
                left[0] -= 1
            elif statement == "BEGIN IMMEDIATE":
                left[0] = place + 1  # it reads the version again before it begins
            return execute(self, statement, values)

        Database.execute = mortal
        use(place)

    return [os.waitpid(forked(child, place), 0)[1] for place in range(places)]


def draw(folder, places):
    """Kill processes that draw periods, each before its own statement, or after the last one.

    Return how they ended, and what each had said of its periods.
    """

    def child(place, out):
        execute, left = Database.execute, [place]

        def mortal(self, statement, values=()):
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return execute(self, statement, values)

        create(folder / str(place))
        with Ledger(folder / str(place), CAP) as ledger:
            Database.execute = mortal
            drawn = ledger.periods("car", 1, "calendar", lambda: random.sample(range(1, 31), 4))
            os.write(out, json.dumps(drawn).encode())

    deaths, said = [], []
    for place in range(places):
        read, write = os.pipe()
        deaths.append(os.waitpid(forked(child, place, write), 0)[1])
        os.close(write)
        said.append([json.loads(line) for line in os.read(read, 1 << 16).splitlines()])
    return deaths, said


def draw_at_once(folder, processes, calendars):
    """Return the periods of some calendars that each of several processes was told."""

    create(folder / "ledger")

    def child(number):
        mine = random.Random(number)
        with Ledger(folder / "ledger", CAP) as ledger:
            return [
                ledger.periods("car", 1, str(each), lambda: mine.sample(range(1, 31), 4))
                for each in range(calendars)
            ]

    return at_once(child, processes)


def interrupt_sealing(folder):
    """Kill processes that seal a ledger, each before its own step; return how many steps there are.

    A step is a change of the folder. The ledger lies in a folder for each step.
    """
    calls = "link", "replace", "rename", "unlink", "fsync"

    def child(step):
        left = [step]

        def mortal(call):
            def wrapped(*arguments, **options):
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return call(*arguments, **options)

            return wrapped

        for name in calls:
            setattr(os, name, mortal(getattr(os, name)))
        seal(folder / str(step) / "ledger")

    for step in range(100):
        path = folder / str(step) / "ledger"
        path.parent.mkdir()
        for end in ("", "-wal"):
            shutil.copyfile(FIXTURES / f"ledger-2-wal.db{end}", f"{path}{end}")
        if os.waitpid(forked(child, step), 0)[1] == 0:
            return step + 1
    raise AssertionError("it never comes to its end")


def open_at_once(folder, processes):
    """Return how many releases each of several processes sees that open a ledger at once."""

    def child(_):
        with Ledger(folder / "ledger", CAP) as ledger:
            return len(ledger.history())

    return at_once(child, processes)


def never():
    """Answer a request that must have been answered before."""
    raise AssertionError("produced, though the answer is there")


def forked(function, *arguments):
    """Run a function in a child that ends with it, and return the child's process id."""
    child = os.fork()
    if child == 0:
        try:
            function(*arguments)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child


if __name__ == "__main__":
    command, place, *numbers = sys.argv[1:]
    print(json.dumps(globals()[command](Path(place), *map(int, numbers))))
