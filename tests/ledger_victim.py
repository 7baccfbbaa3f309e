"""Processes for test_ledger_faults.py to kill, to starve and to set against each other.

Run as a script, so that the package is imported once and each victim is a fork of this process:
python ledger_victim.py COMMAND FOLDER [NUMBER ...] prints what it saw as JSON.
"""

import ctypes
import json
import os
import random
import resource
import signal
import sys
import time
import traceback
from fractions import Fraction
from pathlib import Path

from fedldp.errors import BudgetError, DomainError
from fedldp.ledger import Ledger

CAP = Fraction(3)
KEYS, REQUESTS = 40, 80


def price(number):
    """Return what a request costs: now and then a third."""
    return (0.1, "1/3", 0.25)[number % 3]


def question(number):
    """Return what is asked of many under a request."""
    return f"question {number}".encode()


def kill(folder, ledgers, kills, milliseconds, seed):
    """Kill pairs of processes that release without pause, each at a random moment of its life.

    Every ledger sees so many kills, and more until it has been used: a busy machine is slow.
    """
    chance = random.Random(seed)
    for ledger in range(ledgers):
        log = os.open(folder / f"{ledger}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        longest, killed = milliseconds / 1000, 0
        while killed < kills or os.fstat(log).st_size == 0:
            deaths = []
            for _ in range(2):
                victim = forked(release_for_ever, folder / str(ledger), log, chance.random())
                deaths.append((time.monotonic() + chance.uniform(0, longest), victim))
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
    chance = random.Random(seed)
    ledger = Ledger(path, CAP)
    while True:
        number = chance.randrange(REQUESTS)
        keys = [f"car-{key}" for key in chance.sample(range(KEYS), 5 if number % 2 else 1)]
        if number % 2:
            request = (price(number), str(number), question(number))
            answers = ledger.release_many(
                keys, *request, lambda able: {k: os.urandom(8) for k in able}
            )
        else:
            try:
                answer = ledger.release(keys[0], price(number), str(number), lambda: os.urandom(8))
            except BudgetError:
                continue
            answers = {keys[0]: answer}
        lines = (f"{key} {number} {answer.hex()}\n" for key, answer in answers.items())
        os.write(log, "".join(lines).encode())


def compete(folder, processes, rounds):
    """Return who got the last budget of a key, in every round, and who got all of its own."""
    ready, go = os.pipe()

    def slowly():
        time.sleep(0.002)  # in which the others come to wait for the same budget
        return b"shared"

    def competitor(number, out):
        os.close(go)
        os.read(ready, 1)  # until the parent closes it: all begin at once, without a file
        won = []
        with Ledger(folder / "ledger", cap=1) as ledger:
            for key in range(rounds):
                ledger.release(f"own {number}", Fraction(1, rounds), str(key), lambda: b"own")
                try:
                    ledger.release(f"shared {key}", 1, f"of {number}", slowly)
                    won.append(key)
                except BudgetError:
                    pass
            own = str(ledger.spent(f"own {number}"))
        os.write(out, json.dumps([won, own]).encode())

    read, write = zip(*(os.pipe() for _ in range(processes)), strict=True)
    children = [forked(competitor, number, out) for number, out in enumerate(write)]
    os.close(go)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    return [json.loads(os.read(pipe, 1 << 16)) for pipe in read]


def starve(folder):
    """Release until the disk is full, then find room again; return what was got and what failed."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ledger = Ledger(folder / "ledger", cap=100)
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
        Ledger(folder / "another", cap=1)
    except OSError:
        failed.append(["another", str((folder / "another").exists())])
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    for number, _ in list(failed[:-1]):
        ask(number)
    return while_full, got, failed, len(produced)


def inherit(folder):
    """Use one ledger on both sides of forks; return what the children saw."""
    ledger = Ledger(folder / "ledger", cap=9)
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


def never():
    """Answer a request that must have been answered before."""
    raise AssertionError("produced, though the answer is there")


def forked(function, *arguments):
    """Run a function in a child that ends with it, and return the child's process number."""
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
