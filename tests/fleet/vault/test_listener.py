"""A vault on its socket: what it writes is all that can be seen, and it is always the same."""

import contextlib
import random
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from vaults import (
    DEAR,
    MATRIX,
    NONSENSE,
    answer,
    asked,
    broken,
    framed,
    gradients,
    lines,
    listening,
    sent_back,
    until_closed,
    vault,
)

from fedldp.budget.vehicle import NONCE_BYTES
from fedldp.errors import DomainError
from fedldp.fleet import sockets
from fedldp.fleet.gateway.relay import _insist
from fedldp.fleet.protocol import Answer
from fedldp.fleet.sockets import REFUSED, Address
from fedldp.fleet.vault import listener as listener_module
from fedldp.fleet.vault.listener import Listener

# What is written


@pytest.mark.parametrize("ask", [asked, gradients])
def test_whatever_happens_as_many_bytes_are_written(one, path, ask, monkeypatch):
    question = ask()
    with listening(one, path) as address:
        fresh = sent_back(address, framed(question.to_bytes()))
        repeated = sent_back(address, framed(question.to_bytes()))
        other = ask(gateway="8")
        refused = sent_back(address, framed(other.to_bytes()))
        dear = ask(job="dear", plan=DEAR[ask])
        dearer = sent_back(address, framed(dear.to_bytes()))
        with monkeypatch.context() as patch:
            patch.setattr(one, "_records", broken)
            failing = ask(number=2)
            failed = sent_back(address, framed(failing.to_bytes()))
        monkeypatch.setattr(one, "_sums", [one._ledger.cap] * len(one._sums))
        late = ask(number=3)
        nobody = sent_back(address, framed(late.to_bytes()))
    assert len(fresh) == 4 + question.size
    assert len(dearer) == 4 + dear.size
    assert Answer.from_bytes(fresh[4:], question).answered == 3
    assert repeated == fresh
    assert refused == framed(Answer.of(other).to_bytes())
    assert dearer == framed(Answer.of(dear).to_bytes())
    assert failed == framed(Answer.of(failing, silent=3).to_bytes())
    assert nobody == framed(Answer.of(late).to_bytes())
    assert {len(each) for each in (refused, failed, nobody)} == {len(fresh)}
    assert len(lines(one)) == 3


@pytest.mark.parametrize("data", [b"", b"{", NONSENSE, asked(plan="{}").to_bytes(), bytes(70_000)])
def test_an_invalid_question_gets_one_and_the_same_answer(one, path, data):
    with listening(one, path) as address:
        assert sent_back(address, framed(data)) == framed(REFUSED)
    assert lines(one) == []


def test_data_of_any_kind_look_the_same_from_outside(tmp_path, path):
    """The whole conversation, for vehicles that have nothing, nonsense or everything."""
    seen = set()
    for name, fill in (("nan", np.nan), ("inf", np.inf), ("ends", 1e300), ("zeros", 0.0)):
        held = vault(tmp_path / name, np.full_like(MATRIX, fill))
        with listening(held, path) as address:
            for question in (asked(), gradients(number=2), asked(n=4), asked(job="b")):
                data = sent_back(address, framed(question.to_bytes()))
                batch = Answer.from_bytes(data[4:], question)
                seen.add((question.request, question.n, len(data), batch.answered, batch.silent))
    assert len(seen) == 4


# When it is written


def test_replies_leave_at_multiples_of_the_tick(one, path, monkeypatch):
    """Never earlier, that is: a busy machine may be late."""
    reports = one._records

    def slowly(*arguments):
        time.sleep(0.25)
        return reports(*arguments)

    monkeypatch.setattr(one, "_records", slowly)
    with listening(one, path, tick=0.2) as address:
        for data, ticks in (
            (asked().to_bytes(), 2),
            (asked().to_bytes(), 1),
            (asked(n=2).to_bytes(), 1),
            (NONSENSE, 1),
        ):
            began = time.monotonic()
            sent_back(address, framed(data))
            assert time.monotonic() - began >= 0.2 * ticks


class Clock:
    """A clock that stands still unless it is advanced, and a connection that looks at it."""

    def __init__(self, data=b""):
        self.now, self.data, self.sent = 100.0, data, []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds

    def recv(self, count, flags=0):
        piece = self.data[:count]
        if flags != socket.MSG_PEEK:
            self.data = self.data[count:]
        return piece

    def sendall(self, data):
        self.sent.append((self.now - 100, data))

    def settimeout(self, timeout):
        assert timeout > 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.mark.parametrize(
    ("seconds", "ticks"), [(0.0, 1), (0.013, 1), (0.0499, 1), (0.0501, 2), (0.12, 3), (0.26, 6)]
)
def test_by_the_clock_only_the_number_of_ticks_shows(one, path, monkeypatch, seconds, ticks):
    reports = one._records
    listener = Listener(one, Address.of(str(path)), 0.05, 1.0)

    def slowly(*arguments):
        clock.sleep(seconds)
        return reports(*arguments)

    monkeypatch.setattr(one, "_records", slowly)
    kinds = [(asked().to_bytes(), ticks), (asked().to_bytes(), 1), (asked(n=2).to_bytes(), 1)]
    kinds += [(NONSENSE, 1), (asked(plan=DEAR[asked], job="dear").to_bytes(), 1)]
    for data, wanted in kinds:
        clock = Clock(framed(data))
        monkeypatch.setattr(listener_module, "time", clock)
        monkeypatch.setattr(sockets, "time", clock)
        listener._handle(clock)
        ((at, _),) = clock.sent
        assert at == pytest.approx(0.05 * wanted, abs=1e-9)
    listener.close()


def test_the_time_reveals_nothing(tmp_path, path, monkeypatch):
    """Fresh, repeated and refused questions take turns, 40 of each, and fresh ones are made slow.

    Other work on the machine can only delay an answer, and does so whatever the kind: so the
    least times are compared, and differ by less than 1 ms. The clock above is exact.
    """
    held = vault(tmp_path / "ledger", MATRIX.repeat(20, axis=0))
    reports = held._records

    def slowly(*arguments):
        time.sleep(0.005)
        return reports(*arguments)

    monkeypatch.setattr(held, "_records", slowly)
    kinds = {
        "fresh": lambda i: asked(2, number=i + 1),
        "repeated": lambda _: asked(2, number=1),
        "refused": lambda _: asked(2, number=1, gateway="8"),
        "dear": lambda _: asked(2, DEAR[asked], job="dear"),
    }
    times = {kind: [] for kind in kinds}
    with listening(held, path, tick=0.03) as address:
        answer(address, asked(2, number=1))
        for turn in range(1, 41):
            for kind, question in kinds.items():
                data = framed(question(turn).to_bytes())
                began = time.perf_counter()
                sent_back(address, data)
                times[kind].append(time.perf_counter() - began)
    least = [min(found) for found in times.values()]
    assert max(least) - min(least) < 0.001, least
    assert min(least) >= 0.03
    assert len({line.request for line in lines(held)}) == 41


def test_what_is_late_is_silent_and_the_same_bytes_when_asked_again(one, path, monkeypatch):
    begun, go_on, reports = threading.Event(), threading.Event(), one._records

    def wait(*arguments):
        begun.set()
        assert go_on.wait(30)
        return reports(*arguments)

    monkeypatch.setattr(one, "_records", wait)
    with listening(one, path, deadline=0.5) as address:
        first, second = asked(), asked(number=2)
        assert answer(address, first) == Answer.of(first, silent=3)
        assert begun.wait(30)
        assert answer(address, second) == Answer.of(second, silent=3)  # it waits for the first
        go_on.set()
    with listening(one, path) as address:
        batch = answer(address, first)
        assert {line.request for line in lines(one)} == {"spring/1"}  # the second was never begun
        stored = one._ledger._file.execute("SELECT answer FROM releases")
        assert batch.split() == sorted(answer[NONCE_BYTES:] for (answer,) in stored)
        assert batch.answered == 3


# Who else connects


def test_strangers_are_dropped_without_a_byte(one, path, monkeypatch):
    monkeypatch.setattr(listener_module, "_PATIENCE", 0.3)
    rng = random.Random(1)
    data = framed(asked().to_bytes())
    with listening(one, path) as address:
        slow = [address.connect(30) for _ in range(5)]
        for number, link in enumerate(slow):
            link.sendall(data[:number])
        assert sent_back(address, b"\xff\xff\xff\xff" + data) == b""
        assert sent_back(address, (1 << 24 | 1).to_bytes(4) + data) == b""
        for length in (1, 30, 300):
            noise = rng.randbytes(length)
            assert sent_back(address, b"\0\xff" + noise) == b""  # it waits for more, and gives up
        for end in (0, 2, 4, 40, len(data)):
            with address.connect(30) as link:  # gone before there is an answer
                link.sendall(data[:end])
        with address.connect(30) as link:  # has said all, and waits
            link.sendall(data[:40])
            link.shutdown(socket.SHUT_WR)
            assert until_closed(link) == b""
        for link in slow:
            with link:
                assert until_closed(link) == b""
        assert answer(address, asked()).answered == 3


def test_a_drop_at_a_time_does_not_keep_a_connection_open(one, path, monkeypatch):
    """The patience is for the whole question, not for each of its bytes."""
    monkeypatch.setattr(listener_module, "_PATIENCE", 0.3)
    data = framed(asked().to_bytes())
    with listening(one, path) as address, address.connect(30) as link:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for octet in data[:200]:
                link.sendall(bytes([octet]))
                time.sleep(0.02)
            pytest.fail("it listened for seconds")
        assert answer(address, asked()).answered == 3


def test_two_hundred_at_once(tmp_path, path):
    held = vault(tmp_path / "ledger", cap=1000.0)
    with listening(held, path, tick=0.005) as address, ThreadPoolExecutor(200) as pool:
        questions = [asked(2, job=f"{i % 20}") for i in range(200)]
        end = time.monotonic() + 60
        heard = list(pool.map(lambda question: _insist(address, question, end), questions))
    batches = [each.answer for each in heard]
    assert {batch.answered for batch in batches} == {2}
    assert len(lines(held)) == 40
    assert len(set(batches)) == 20


def test_tcp_needs_a_token(one):
    secret = b"a secret"
    data = framed(asked().to_bytes())
    with pytest.raises(DomainError, match="token"):
        Listener(one, Address(host="127.0.0.1", port=0))
    with listening(one, port(secret)) as address:
        assert answer(address, asked()).answered == 3
        for wrong in (b"", b"a secre", b"a secret ", b"A secret", bytes(1024), bytes(2000)):
            with socket.create_connection((address.host, address.port), 30) as link:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    link.sendall(framed(wrong) + data)
                assert until_closed(link) == b""
        with socket.create_connection((address.host, address.port), 30) as link:
            link.sendall(data)  # in the place of a token
            assert until_closed(link) == b""
    assert len(lines(one)) == 3


def port(secret):
    """Return an address on a port that is free."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return Address(host="127.0.0.1", port=server.getsockname()[1], token=secret)
