"""The gateway: one batch of constant length, whatever its vaults do."""

import contextlib
import socket
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vaults import asked, framed, gradients, impostor, lines, listening, vault

from fedldp.errors import DomainError
from fedldp.fleet import sockets
from fedldp.fleet.gateway import relay as relay_module
from fedldp.fleet.gateway.relay import relay, shares
from fedldp.fleet.protocol import Answer, Question
from fedldp.fleet.sockets import REFUSED, Address

SHORT, SOME, LONG = 0.3, 3.0, 30.0  # seconds: until nobody, some or all have answered


def away(folder, name="away"):
    """Return an address where nobody listens."""
    return Address.of(str(folder / name))


@given(st.integers(1, 300), st.integers(1, 40), st.integers(1, 50))
def test_shares_take_turns(n, vaults, rounds):
    total = [0] * vaults
    for number in range(1, rounds + 1):
        parts = shares(n, vaults, number)
        assert sum(parts) == n
        assert max(parts) - min(parts) <= 1
        total = [a + b for a, b in zip(total, parts, strict=True)]
        assert max(total) - min(total) <= 1
    assert sum(total) == n * rounds


@pytest.mark.parametrize("ask", [asked, gradients])
def test_the_records_of_all_vaults_come_in_one_order(tmp_path, ask):
    question = ask(n=7)
    held = [vault(tmp_path / f"{i}", seed=i) for i in range(3)]
    with (
        listening(held[0], tmp_path / "a") as a,
        listening(held[1], tmp_path / "b") as b,
        listening(held[2], tmp_path / "c") as c,
    ):
        data = relay(question.to_bytes(), [a, b, c], LONG)
        assert relay(question.to_bytes(), [a, b, c], LONG) == data  # it has kept nothing
    batch = Answer.from_bytes(data, question)
    own = [
        row
        for one, n in zip(held, (3, 2, 2), strict=True)
        for row in one.answer(replace(question, n=n)).split()
    ]
    assert batch.split() == sorted(own)
    assert (batch.answered, batch.silent) == (7, 0)
    assert [len(lines(one)) for one in held] == [3, 2, 2]


def test_the_answer_of_one_vault_is_passed_on_as_it_is(tmp_path, monkeypatch):
    """It was packed there: the gateway need not do it again."""
    question, held = asked(n=7), vault(tmp_path / "ledger")
    with listening(held, tmp_path / "a") as address:
        monkeypatch.setattr(Answer, "split", None)
        assert relay(question.to_bytes(), [address], LONG) == held.answer(question).to_bytes()


def test_a_vault_hears_the_question_and_nothing_else(tmp_path):
    question = gradients(n=5)
    with impostor(tmp_path / "a", lambda _: framed(REFUSED)) as seen:
        relay(question.to_bytes(), [Address.of(str(tmp_path / "a"))], LONG)
    assert seen == [question.to_bytes()]


def replied(data, **options):
    """Return the answer to a question that is like another one."""
    question = replace(Question.from_bytes(data), **options)
    return Answer.of(question, [bytes([0])] * question.n).to_bytes()


LIARS = {
    "nothing": lambda _: b"",
    "a part of a length": lambda _: b"\0\0",
    "a length": lambda _: b"\0\0\0\x09",
    "garbage": lambda _: framed(b"vehicle 7 is in Rome"),
    "an exception": lambda _: framed(b"Traceback (most recent call last)".ljust(200)),
    "4 GB": lambda _: b"\xff\xff\xff\xff" + bytes(100_000),
    "too long": lambda data: framed(replied(data) + b"\0"),
    "too short": lambda data: framed(replied(data)[:-1]),
    "zeros": lambda data: framed(bytes(len(replied(data)))),
    "another round": lambda data: framed(replied(data, round=9)),
    "another job": lambda data: framed(replied(data, job="autumn")),
    "another n": lambda data: framed(replied(data, n=2)),
    "damaged": lambda data: framed(replied(data)[:-1] + b"\xff"),
    "silent": lambda data: framed(Answer.of(q := Question.from_bytes(data), silent=q.n).to_bytes()),
    "one silent": lambda data: framed(Answer.of(Question.from_bytes(data), silent=1).to_bytes()),
}


def test_bad_vaults_are_silent_and_a_good_one_is_heard(tmp_path, monkeypatch):
    """They all lie at once, and one hangs."""
    monkeypatch.setattr(relay_module, "_PAUSE", 0.02)
    go_on = threading.Event()

    def hang(_):
        assert go_on.wait(LONG)
        return b""

    liars = LIARS | {"hang": hang}
    question = asked(3 * (len(liars) + 1))
    with (
        contextlib.ExitStack() as stack,
        listening(vault(tmp_path / "ledger"), tmp_path / "good") as good,
    ):
        seen = {
            name: stack.enter_context(impostor(tmp_path / name, liar))
            for name, liar in liars.items()
        }
        addresses = [Address.of(str(tmp_path / name)) for name in liars]
        data = relay(question.to_bytes(), [*addresses, good], SOME)
        go_on.set()
    batch = Answer.from_bytes(data, question)
    assert (batch.answered, batch.silent) == (3, 3 * len(liars))
    assert len(data) == question.size
    for name, heard in seen.items():
        assert set(heard) == {replace(question, n=3).to_bytes()}
        assert len(heard) > 1 or name == "hang"  # it is asked the same again


def test_a_vault_that_comes_back_in_time_is_heard(tmp_path, monkeypatch):
    """It is asked again when it is there: what it had recorded is what it sends."""
    monkeypatch.setattr(relay_module, "_PAUSE", 0.01)
    question = asked(3)
    held = vault(tmp_path / "ledger")
    recorded = held.answer(question).to_bytes()
    found = []
    asking = threading.Thread(
        target=lambda: found.append(
            relay(question.to_bytes(), [Address.of(str(tmp_path / "a"))], LONG)
        )
    )
    asking.start()
    time.sleep(0.1)
    with listening(held, tmp_path / "a"):
        asking.join()
    assert found == [recorded]


def test_many_dead_vaults_do_not_starve_a_live_one(tmp_path):
    dead = [away(tmp_path, f"{i}") for i in range(150)]
    question = asked(151)
    with listening(vault(tmp_path / "ledger"), tmp_path / "a") as alive:
        data = relay(question.to_bytes(), [*dead, alive], SOME)
    batch = Answer.from_bytes(data, question)
    assert (batch.answered, batch.silent) == (1, 150)


def test_whatever_happens_as_many_bytes_are_sent(tmp_path):
    """All answer, some refuse, nobody has anything left, nobody is there."""
    question, other = asked(4), asked(4, gateway="8")
    with listening(vault(tmp_path / "ledger", cap=1.0), tmp_path / "a") as a:
        found = [
            relay(question.to_bytes(), [a], LONG),
            relay(other.to_bytes(), [a], LONG),
            relay(asked(4, number=2).to_bytes(), [a], LONG),
            relay(asked(4, number=3).to_bytes(), [a], LONG),
            relay(asked(4, number=4).to_bytes(), [away(tmp_path), a], SOME),
            relay(asked(4, number=5).to_bytes(), [away(tmp_path)], SHORT),
        ]
    assert {len(data) for data in found} == {question.size}
    assert Answer.from_bytes(found[1], other) == Answer.of(other)
    batches = [
        Answer.from_bytes(data, asked(4, number=number)) for number, data in enumerate(found[2:], 2)
    ]
    counts = [(batch.answered, batch.silent) for batch in batches]
    assert counts == [(4, 0), (0, 0), (0, 2), (0, 4)]


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", asked().to_bytes() + b" ", asked(plan="{}").to_bytes(), bytes(1 << 20)],
    ids=["empty", "an object", "a space", "no plan", "zeros"],
)
def test_an_invalid_question_is_refused_and_not_passed_on(tmp_path, data):
    with impostor(tmp_path / "a", lambda _: b"") as seen:
        assert relay(data, [Address.of(str(tmp_path / "a"))], LONG) == REFUSED
    assert seen == []


def test_a_gateway_without_vaults_does_not_say_that_nobody_is_left():
    with pytest.raises(DomainError, match="needs at least one vault"):
        relay(asked().to_bytes(), [], LONG)


class Clock:
    """A vault each of whose steps takes five seconds, on a clock of its own."""

    def __init__(self):
        self.now = self.end = 0.0

    def connect(self, timeout):
        self.settimeout(timeout)
        self.step()
        return self

    def step(self):
        self.now += 5.0
        if self.now > self.end:
            self.now = self.end
            raise TimeoutError

    def settimeout(self, timeout):
        self.end = self.now + timeout

    def sendall(self, data):
        self.step()

    def recv(self, count):
        self.step()
        return b"\0"

    def sleep(self, seconds):
        self.now += seconds

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def test_all_of_a_try_ends_by_the_deadline(monkeypatch):
    """Whichever of its steps it is that takes long."""
    for deadline in (3.0, 8.0, 12.0, 17.0, 22.0, 41.0):
        slow = Clock()
        fake = SimpleNamespace(monotonic=lambda slow=slow: slow.now, sleep=slow.sleep)
        monkeypatch.setattr(relay_module, "time", fake)
        data = relay(asked().to_bytes(), [slow], deadline)
        assert Answer.from_bytes(data, asked()).silent == 3
        assert slow.now <= deadline + 0.01


def test_a_message_that_drips_is_given_up_when_its_time_is_over(monkeypatch):
    slow = Clock()
    message = iter(framed(bytes(10_000)))
    slow.recv = lambda _: slow.sleep(0.0005) or bytes([next(message)])
    monkeypatch.setattr(sockets, "time", SimpleNamespace(monotonic=lambda: slow.now))
    with pytest.raises(TimeoutError, match="took too long"):
        sockets.receive(slow, 1 << 20, 1.0)
    assert slow.now < 1.01


def test_a_message_that_is_too_long_is_refused_before_it_is_read():
    left, right = socket.socketpair()
    with left, right:
        left.sendall(framed(bytes(11)))
        with pytest.raises(DomainError, match="a message must have at most 10 bytes; got 11"):
            sockets.receive(right, 10, time.monotonic() + LONG)
        assert right.recv(100) == bytes(11)


def test_a_connection_that_fails_is_closed(tmp_path, monkeypatch):
    made = []

    class Watched(socket.socket):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            made.append(self)

    monkeypatch.setattr(socket, "socket", Watched)
    with pytest.raises(FileNotFoundError):
        away(tmp_path).connect(1.0)
    assert [each.fileno() for each in made] == [-1]


ADDRESSES = ("", "/" + 107 * "x", "tcp://h:99999", "tcp://h:x", "tcp://[::1", "tcp://h", "tcp://:1")
ADDRESSES += ("tcp://h:1/x", "tcp://u@h:1", "tcp://h:1?x", "tcp://h:0", "tcp://")


@pytest.mark.parametrize("text", ADDRESSES)
def test_invalid_addresses(tmp_path, text):
    (tmp_path / "token").write_text("secret\n")
    with pytest.raises(DomainError):
        Address.of(text, tmp_path / "token")


def test_addresses(tmp_path):
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "empty").write_text(" \n")
    assert Address.of("/run/a", tmp_path / "token") == Address(path="/run/a")
    wanted = Address(host="h", port=9, token=b"secret")
    assert Address.of("tcp://h:9", tmp_path / "token") == wanted
    assert Address.of("tcp://[::1]:9", tmp_path / "token").host == "::1"
    for token in (None, tmp_path / "empty"):
        with pytest.raises(DomainError, match="token"):
            Address.of("tcp://h:9", token)
