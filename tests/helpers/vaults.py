"""Small vaults, and connections to them from outside.

Run as a script, for test_fleet_listen_faults.py to kill and to starve:
python vaults.py COMMAND FOLDER, where the data are those of `vault`.
"""

import contextlib
import json
import resource
import socket
import sys
import threading
import time
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
from ledgers import open_ledger

import fedldp
from fedldp import Plan, Schema
from fedldp.fleet.protocol import Answer, Question
from fedldp.fleet.sockets import LENGTH, Address, receive
from fedldp.fleet.vault.listener import Listener
from fedldp.fleet.vault.vault import Vault
from fedldp.learn.model import Model

SCHEMA = Schema.of(
    speed=(0, 100),
    way={"low": -1, "high": 3, "size": 2},
    city={"categories": ["Oslo", "Rome", "Lima"], "missing": "Rome"},
    late=["no", "yes"],
)
FEATURES = Schema(SCHEMA.attributes[:3])
WEIGHTS = (0.5, -0.2, 0.1, 0.3, -0.4, 0.2)
MODEL = Model("logistic", FEATURES, SCHEMA["late"], WEIGHTS)
ROWS = Plan(SCHEMA, 1.0, mechanism="three-outputs", k=1)
GRADIENT = Plan(Schema.vector(len(WEIGHTS), 1.0), 1.0, mechanism="three-outputs", k=3)
MATRIX = np.array([[10.0 * i, -1 + i / 5, 3 - i / 5, i % 3, i % 2] for i in range(8)])


def asked(n=3, plan=ROWS, model=None, job="spring", number=1, gateway="7"):
    """Return a question; a plan and a model may be given as JSON."""
    texts = [each if isinstance(each, str) else each.to_json() for each in (plan, model or "")]
    return Question(job, number, gateway, n, *texts)


def gradients(**options):
    return asked(**{"plan": GRADIENT, "model": MODEL} | options)


def vault(
    path, matrix=MATRIX, keys=None, cap=2.0, schema=SCHEMA, seed=1, answers_per_job=1, period=None
):
    """Return a vault. It draws from a seed, which only a test can make it do."""
    keys = [f"car {i}" for i in range(len(matrix))] if keys is None else keys
    ledger = open_ledger(path, cap, answers_per_job=answers_per_job, period=period)
    found = Vault(schema, matrix, keys, ledger)
    found._source = fedldp.source(seed)
    weakref.finalize(found, ledger.close)
    return found


DEAR = {asked: Plan(SCHEMA, 2.5), gradients: Plan(GRADIENT.schema, 2.5)}  # beyond the cap
NONSENSE = b'{"format":"fedldp question 1","vehicle":"car 1"}'


def broken(*_):
    raise RuntimeError("car 1 is in Rome")


def lines(one):
    """Return what stands in the ledger of a vault."""
    return one._ledger.history()


@contextlib.contextmanager
def listening(one, address, tick=0.01, deadline=10.0, counts=None):
    """Serve a vault, and give where it can be reached."""
    if isinstance(address, str | Path):
        address = Address.of(str(address))
    listener = Listener(one, address, tick, deadline, counts)
    if not address.path:
        address = replace(address, port=listener._socket.getsockname()[1])
    thread = threading.Thread(target=listener.serve, daemon=True)
    thread.start()
    try:
        yield address
    finally:
        listener.close()
        thread.join(30)
        assert not thread.is_alive()


@contextlib.contextmanager
def impostor(path, reply):
    """Listen like a vault that replies to each question with what a function gives of it."""
    seen = []

    def serve():
        while True:
            with contextlib.suppress(OSError):
                link, _ = server.accept()
                with link:
                    seen.append(receive(link, 1 << 24, time.monotonic() + 60))
                    link.sendall(reply(seen[-1]))
            if stopped.is_set():
                return

    stopped = threading.Event()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield seen
        finally:
            stopped.set()
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def framed(data):
    return LENGTH.pack(len(data)) + data


def sent_back(address, data, timeout=30.0):
    """Write some bytes to a vault, and return all that it writes until it closes."""
    with address.connect(timeout) as link:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            link.sendall(data)
        return until_closed(link)


def until_closed(link):
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := link.recv(1 << 16):
            found += piece
    return found


def answer(address, question):
    """Put a question to a vault, and return the batch in all that it writes."""
    data = sent_back(address, framed(question.to_bytes()))
    assert data[:4] == LENGTH.pack(question.size)
    return Answer.from_bytes(data[4:], question)


def serve(folder):
    """Listen until killed. Replies would leave a minute later."""
    listener = Listener(
        vault(folder / "ledger", seed=None), Address.of(str(folder / "socket")), 60.0, 60.0
    )
    print("null", flush=True)
    listener.serve()


def listen(folder):
    """Listen until killed, and reply at the next tick."""
    held = vault(folder / "ledger", np.repeat(MATRIX, 250, axis=0), seed=None)
    listener = Listener(held, Address.of(str(folder / "socket")))
    print("null", flush=True)
    listener.serve()


def starve(folder):
    """Ask while the disk is full, and again when it is not; return what was answered each time."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    plan, found = Plan(SCHEMA, 0.01), []
    with listening(vault(folder / "ledger", seed=None), folder / "socket") as address:
        for limit in (100_000, soft):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
            batches = [answer(address, asked(8, plan, job=f"{i}")) for i in range(1, 21)]
            found.append([[b.silent, [row.hex() for row in b.split()]] for b in batches])
    return found


if __name__ == "__main__":
    command, place = sys.argv[1:]
    print(json.dumps({"serve": serve, "listen": listen, "starve": starve}[command](Path(place))))
