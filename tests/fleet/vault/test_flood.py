"""A vault that is flooded: memory and time stay bounded, and an honest question gets its answer."""

import contextlib
import json
import re
import socket
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path

import pytest
import vaults
from plans import canonical, document, number, sample
from vaults import answer, asked, framed, listening, sent_back

from fedldp import vehicle
from fedldp.errors import WireError
from fedldp.fleet import sockets
from fedldp.fleet.gateway.relay import ask
from fedldp.fleet.protocol import MOST_BITS, MOST_BYTES, Answer
from fedldp.fleet.sockets import NOT_READY, REFUSED, Address
from fedldp.fleet.vault import listener as listener_module
from fedldp.fleet.vault.listener import Listener, Room

FAINT = {"kind": "numbers", "epsilon": "0.001", "letters": [-1.0, 1.0]}
FAINT |= {"values": [-(2.0**14) / 6, 2.0**14 / 6]}
FAINT["counts"] = [[2**13 + 3, 2**13 - 3], [2**13 - 3, 2**13 + 3]]


def wide(bits):
    """Return a plan of few bytes whose records have many bits: all numbers of a long vector."""
    return canonical(document("16.0", [number("x", bits)], [FAINT], sample(bits, [0], [0])))


WIDE = asked(n=MOST_BITS // 16_000, plan=wide(16_000))


# Memory


def memory(pid):
    """Return the most memory that a process has held, and what it holds now, in MB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return [int(re.search(rf"{name}:\s+(\d+) kB", text)[1]) // 1000 for name in ("VmHWM", "VmRSS")]


@contextlib.contextmanager
def process(folder):
    """A vault of 2000 vehicles in a process of its own; give its number and address."""
    argv = [sys.executable, vaults.__file__, "listen", folder]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout.readline() == "null\n"
            yield child.pid, Address.of(str(folder / "socket"))
        finally:
            child.kill()


def test_questions_of_a_few_bytes_do_not_fill_the_memory(tmp_path):
    """Each asks for 16 MB, is refused, and is not read by who asked: 60 took 2.4 GB."""
    data = framed(WIDE.to_bytes())
    assert len(data) < 600
    assert WIDE.size > 16_000_000
    with process(tmp_path) as (pid, address), contextlib.ExitStack() as stack:
        assert answer(address, asked()).answered == 3
        _, before = memory(pid)
        links = [stack.enter_context(address.connect(30)) for _ in range(60)]
        for link in links:
            link.sendall(data)
        for link in links:
            assert link.recv(4) == sockets.LENGTH.pack(WIDE.size)  # it is being sent
        most, _ = memory(pid)
        assert most < before + 100
        assert answer(address, asked(number=2)).answered == 3
        assert answer(address, WIDE) == Answer.of(WIDE)


@pytest.mark.parametrize("answered", [0, 1, 3, 5])
def test_pieces_are_the_batch(answered):
    question = asked(n=5, plan=wide(16_000))
    rows = [bytes([i]) * (16_000 // 8) for i in range(answered)]
    batch = Answer.of(question, rows, silent=5 - answered)
    pieces = [bytes(piece) for piece in batch.pieces()]
    assert b"".join(pieces) == batch.to_bytes()
    assert len(batch.to_bytes()) == batch.size == question.size
    assert Answer.from_bytes(batch.to_bytes(), question) == batch
    head, area = batch.to_bytes()[:29], batch.to_bytes()[33:]
    assert zlib.crc32(area, zlib.crc32(head)).to_bytes(4) == batch.to_bytes()[29:33]


def test_zeros_are_never_made():
    batch = Answer.of(WIDE)
    assert max(len(piece) for piece in batch.pieces()) <= 1 << 16
    assert sum(len(piece) for piece in batch.pieces()) == WIDE.size


def test_what_is_sent_leaves_in_blocks_of_one_length():
    """An observer of the connection does not see how many records there are."""
    seen = set()
    question = asked(n=40, plan=wide(16_000))
    for answered in (0, 1, 17, 40):
        batch = Answer.of(question, [bytes(16_000 // 8)] * answered)
        link = Link()
        sockets.send(link, batch.size, batch.pieces(), time.monotonic() + 60)
        assert b"".join(link.sent) == framed(batch.to_bytes())
        seen.add(tuple(map(len, link.sent)))
    assert len(seen) == 1


class Link:
    """In the place of a socket."""

    def __init__(self, then=lambda: None, data=b""):
        self.sent, self._then, self._data = [], then, data

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def recv(self, count, flags=0):
        piece = self._data[:count]
        if flags != socket.MSG_PEEK:
            self._data = self._data[count:]
        return piece

    def settimeout(self, timeout):
        assert timeout > 0

    def sendall(self, data):
        self.sent.append(bytes(data))
        self._then()


def test_sending_ends_in_time_however_slowly_it_is_taken(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(sockets.time, "monotonic", lambda: clock[0])
    link = Link(lambda: clock.append(clock.pop() + 1))
    with pytest.raises(TimeoutError):
        sockets.send(link, WIDE.size, Answer.of(WIDE).pieces(), 10.0)
    assert len(link.sent) <= 12


# Room for all


def test_room_is_waited_for_until_the_deadline():
    room, now = Room(10), time.monotonic()
    assert room.take(10, now)
    assert not room.take(1, now)
    assert room.take(0, now)
    threading.Timer(0.05, room.give, [4]).start()
    assert room.take(4, now + 60)
    assert room.free == 0
    room.give(10)
    assert room.take(10, now)


@pytest.fixture
def listener(one, path):
    listener = Listener(one, Address.of(str(path)), 0.01, 0.2)
    thread = threading.Thread(target=listener.serve, daemon=True)
    thread.start()
    yield listener
    listener.close()
    thread.join(30)


def test_everything_is_given_back(listener, path):
    address = Address.of(str(path))
    for data in (asked().to_bytes(), b"{", WIDE.to_bytes(), asked(n=2).to_bytes()):
        sent_back(address, framed(data))
    with address.connect(30) as link:
        link.sendall(framed(asked().to_bytes())[:50])  # and no more
    end = time.monotonic() + 30
    while (
        listener._slots._value < listener_module._CONNECTIONS - 1
    ):  # one waits for the next connection
        assert time.monotonic() < end
        time.sleep(0.01)
    assert (listener._questions.free, listener._answers.free) == (
        listener_module._QUESTIONS,
        listener_module._ANSWERS,
    )


def test_records_hold_room_while_they_are_sent_and_zeros_do_not(one, path):
    listener, free = Listener(one, Address.of(str(path)), 0.01, 10.0), []
    for question, records in ((asked(), 2), (WIDE, 0)):  # three records of 5 bits
        link = Link(lambda: free.append(listener._answers.free), framed(question.to_bytes()))
        listener._slots.acquire()
        listener._handle(link)
        assert len(b"".join(link.sent)) == 4 + question.size
        assert set(free) == {listener_module._ANSWERS - records}
        free.clear()
        assert listener._answers.free == listener_module._ANSWERS
    listener.close()


def test_the_largest_question_and_answer_have_room():
    assert listener_module._QUESTIONS >= MOST_BYTES
    assert WIDE.size <= listener_module._ANSWERS


def test_without_room_a_question_is_told_in_time_that_it_is_not_ready(listener, path):
    address, question = Address.of(str(path)), asked()
    listener._answers.free = question.size - 1
    assert answer(address, question) == Answer.of(question, silent=3)
    listener._answers.give(1)
    assert answer(address, question).answered == 3


def test_without_room_for_questions_a_connection_is_dropped(listener, path, monkeypatch):
    monkeypatch.setattr(listener_module, "_PATIENCE", 0.1)
    listener._questions.free = 10
    assert sent_back(Address.of(str(path)), framed(asked().to_bytes())) == b""


# Time


def test_a_question_does_not_wait_for_others_beyond_its_deadline(listener, path):
    """While another one is read, or answered."""
    address, question = Address.of(str(path)), asked()
    with listener._reading:
        assert sent_back(address, framed(question.to_bytes())) == framed(NOT_READY)
        silent = ask(address, question, time.monotonic() + 30)
        assert silent == Answer.of(question, silent=3)
    with listener._turn:
        assert answer(address, question) == Answer.of(question, silent=3)
    assert answer(address, question).answered == 3


def many_tables(count):
    """A plan with tables that nobody uses, each with an epsilon of its own."""
    plan = json.loads(asked().plan)
    response = {"kind": "response", "categories": 2, "same": 1, "other": 1}
    plan["tables"] += [response | {"epsilon": str(1 + i / 100_000)} for i in range(count)]
    return canonical(plan)


def test_tables_that_nobody_uses_do_not_keep_an_honest_question_waiting(one, path, monkeypatch):
    """40,000 fit into a question, which is small on the way; all were checked, for a minute."""
    hostile = asked(plan=many_tables(40_000)).to_bytes()
    assert len(hostile) < MOST_BYTES
    assert len(zlib.compress(hostile, 9)) < MOST_BYTES // 10
    read = []
    check = vehicle.read_table
    monkeypatch.setattr(vehicle, "read_table", lambda table: read.append(table) or check(table))
    with listening(one, path) as address:
        with pytest.raises(WireError, match="not those that its parts name"):
            asked(plan=many_tables(40_000)).check()
        assert read == []
        with address.connect(30) as link:
            link.sendall(framed(hostile))
            assert answer(address, asked()).answered == 3
            assert vaults.until_closed(link) == framed(REFUSED)
