"""A vault that is killed, that has no room on its disk, and what it tells its owner."""

import contextlib
import errno
import gc
import json
import logging
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import vaults
from ledgers import open_ledger
from plans import canonical, changed
from vaults import (
    DEAR,
    MODEL,
    NONSENSE,
    ROWS,
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
from fedldp.fleet.protocol import Answer
from fedldp.fleet.sockets import Address
from fedldp.fleet.vault import listener as listener_module
from fedldp.fleet.vault.listener import Listener


def stored(ledger, request):
    query = "SELECT answer FROM releases WHERE request = ?"
    answers = ledger._file.execute(query, (request,))
    return sorted(answer[NONCE_BYTES:] for (answer,) in answers)


def process(command, folder):
    return subprocess.Popen(
        [sys.executable, vaults.__file__, command, folder], stdout=subprocess.PIPE, text=True
    )


def test_killed_after_burning_and_before_answering(tmp_path, path):
    with process("serve", tmp_path) as child:
        try:
            assert child.stdout.readline() == "null\n"  # it listens
            with (
                Address.of(str(path)).connect(30) as link,
                open_ledger(tmp_path / "ledger", 2) as ledger,
            ):
                link.sendall(framed(asked().to_bytes()))
                end = time.monotonic() + 60
                while not ledger.history() and time.monotonic() < end:
                    time.sleep(0.005)
                child.kill()
                assert child.wait() == -signal.SIGKILL
                assert until_closed(link) == b""
                recorded, records = ledger.history(), stored(ledger, "spring/1")
        finally:
            child.kill()
    assert stat.S_ISSOCK(path.stat().st_mode)  # left behind
    held = vault(tmp_path / "ledger", seed=None)
    with listening(held, path) as address:
        assert answer(address, asked()).split() == records
        assert answer(address, asked(n=2)).answered == 0
    assert lines(held) == recorded
    assert len(recorded) == 3


def test_a_full_disk_releases_nothing_that_is_not_recorded(tmp_path):
    with process("starve", tmp_path) as child:
        full, roomy = json.loads(child.stdout.read())
    assert child.returncode == 0
    silent = [each for each, _ in full]
    assert set(silent) == {0, 8}
    with open_ledger(tmp_path / "ledger", 2) as ledger:
        for number, (before, after) in enumerate(zip(full, roomy, strict=True), 1):
            assert after == [0, [record.hex() for record in stored(ledger, f"{number}/1")]]
            assert before in ([8, []], after)
        assert len(ledger.history()) == 20 * 8


def test_a_damaged_ledger_does_not_count_as_a_refusal(one, path, tmp_path):
    """Silent ones are asked again, when the file is back."""
    with listening(one, path) as address:
        (tmp_path / "ledger").rename(tmp_path / "elsewhere")
        assert answer(address, asked()) == Answer.of(asked(), silent=3)


def test_the_socket_is_for_the_owner_and_the_group(one, path):
    with listening(one, path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert not path.exists()


def test_a_living_vault_is_not_robbed_of_its_socket(one, path):
    with listening(one, path) as address:
        with pytest.raises(DomainError, match="another process listens"):
            Listener(one, address)
        assert answer(address, asked()).answered == 3


def test_a_folder_that_is_not_there_is_named(one, tmp_path):
    with pytest.raises(DomainError, match=r"missing/vault\.sock: its folder does not exist"):
        Listener(one, Address(path=str(tmp_path / "missing" / "vault.sock")))


def test_a_file_is_not_mistaken_for_a_socket(one, path):
    path.write_text("a letter")
    with pytest.raises(DomainError, match="exists and is not a socket"):
        Listener(one, Address.of(str(path)))
    assert path.read_text() == "a letter"


@pytest.mark.parametrize(
    ("tick", "deadline"), [(0, 1), (-1, 1), (2, 1), (1, float("inf")), (float("nan"), 1)]
)
def test_times_that_cannot_be(one, path, tick, deadline):
    with pytest.raises(DomainError, match="seconds with 0 < tick <= deadline"):
        Listener(one, Address.of(str(path)), tick, deadline)
    assert not path.exists()


def test_what_is_asked_when_it_closes_is_recorded_and_there_when_asked_again(
    one, path, monkeypatch
):
    begun, go_on, reports = threading.Event(), threading.Event(), one._records

    def wait(*arguments):
        begun.set()
        assert go_on.wait(30)
        return reports(*arguments)

    monkeypatch.setattr(one, "_records", wait)
    listener = Listener(one, Address.of(str(path)), 0.01, 10.0)
    serving = threading.Thread(target=listener.serve)
    serving.start()
    with Address.of(str(path)).connect(30) as link:
        link.sendall(framed(asked().to_bytes()))
        assert begun.wait(30)
        closing = threading.Thread(target=listener.close)
        closing.start()
        go_on.set()
        closing.join()
        serving.join()
        with contextlib.suppress(OSError):
            until_closed(link)
    assert len(lines(one)) == 3
    with listening(one, path) as address:
        assert answer(address, asked()).split() == stored(one._ledger, "spring/1")


def test_what_is_asked_after_it_was_closed_is_silent_and_burns_nothing(one, path):
    """By a connection that was accepted just before; nobody gets a new one."""
    listener = Listener(one, Address.of(str(path)), 0.01, 10.0)
    listener.close()
    ours, theirs = socket.socketpair()
    with ours:
        ours.sendall(framed(asked().to_bytes()))
        listener._handle(theirs)
        assert until_closed(ours) == framed(Answer.of(asked(), silent=3).to_bytes())
    assert lines(one) == []
    with pytest.raises(FileNotFoundError):
        Address.of(str(path)).connect(30)
    with listening(one, path) as address:
        assert answer(address, asked()).answered == 3


@contextlib.contextmanager
def no_free_files():
    """Let this process open no file, nor accept a connection, beyond those that it has."""
    gc.collect()  # files that nobody holds any more must not become free meanwhile
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Path(os.devnull).open() as last:
        resource.setrlimit(resource.RLIMIT_NOFILE, (last.fileno() + 1, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_when_files_run_out_it_waits_and_continues(one, path, monkeypatch):
    """There is a pause after each try, so that it does not spin, and no try takes a place away."""
    monkeypatch.setattr(listener_module, "_CONNECTIONS", 2)
    accept, happened = socket.socket.accept, []

    def note(what):
        happened.append((threading.current_thread(), what))

    def watched(server):
        try:
            return accept(server)
        except OSError as error:
            note(error.errno)
            raise

    def sleep(seconds):
        note("pause")
        time.sleep(seconds)

    monkeypatch.setattr(socket.socket, "accept", watched)
    monkeypatch.setattr(
        listener_module, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep)
    )
    with listening(one, path, tick=0.001) as address, contextlib.ExitStack() as stack:
        links = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(3)]
        with no_free_files():
            end = time.monotonic() + 30
            for link in links:  # perhaps the first is let in: the one that waits for it has a file
                link.connect(address.path)
            while [what for _, what in happened].count(errno.EMFILE) < 10:
                assert time.monotonic() < end
                time.sleep(0.001)
        for link in links:
            link.sendall(framed(asked().to_bytes()))
            assert len(until_closed(link)) == 4 + asked().size
    serving = next(who for who, what in happened if what == errno.EMFILE)
    steps = [what for who, what in happened if who is serving]
    assert set(steps[1::2]) == {"pause"}
    assert "pause" not in steps[::2]


def test_threads_run_out_and_it_goes_on(one, path, monkeypatch):
    start, failures = threading.Thread.start, iter([True, True])

    def fail(thread):
        if thread._target.__name__ == "_handle" and next(failures, False):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fail)
    with listening(one, path) as address:
        for _ in range(2):
            with address.connect(30) as link:
                assert until_closed(link) == b""
        assert answer(address, asked()).answered == 3


# The log


def test_each_reason_is_logged_once_and_for_the_owner_alone(one, path, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    with listening(one, path) as address:
        for _ in range(3):
            answer(address, asked())
            answer(address, asked(n=2))
            sent_back(address, framed(NONSENSE))
            sent_back(address, b"\xff\xff\xff\xff")
        monkeypatch.setattr(one, "_records", broken)
        for _ in range(3):
            answer(address, asked(number=2))
    said = [(each.levelname, each.getMessage().split(":")[0]) for each in caplog.records]
    messages = sorted(text for level, text in said if level != "DEBUG")
    assert messages == ["a connection was dropped", "failed", "refused", "refused", "spring/1"]
    assert len(said) == 15  # the others are counted, for those who want to see them
    assert {record.name for record in caplog.records} == {"fedldp.fleet"}


def test_the_owner_learns_that_vehicles_are_missing(one, path, caplog):
    """When too few can answer, the vault says so in its own log, once for each job and reason."""
    with listening(one, path) as address:
        for number, n in ((1, 8), (2, 8), (3, 8), (3, 8)):
            question = asked(n, number=number)
            Answer.from_bytes(sent_back(address, framed(question.to_bytes()))[4:], question)
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("spring/2: ")  # everybody has answered the first round
    assert "of 8 vehicles that were asked for, 0 answered. This vault has no others" in line


def test_a_question_cannot_forge_lines_of_the_log(one, path, caplog):
    forged = "x\r\n2030-01-01 all is well\x1b[2J\u2028"
    plan = changed(json.loads(ROWS.to_json()), ("schema", 0, "name"), forged)
    questions = [
        asked(plan=canonical(changed(plan, ("schema", 0, "high"), -1.0))),
        asked(plan=canonical(plan)),
        gradients(model=canonical(json.loads(MODEL.to_json()) | {"objective": forged})),
    ]
    with listening(one, path) as address:
        for question in questions:
            sent_back(address, framed(question.to_bytes()))
    assert len(caplog.records) == 3
    assert all(record.getMessage().isprintable() for record in caplog.records)


def test_strangers_cannot_fill_the_log_nor_hide_a_failure(one, path, monkeypatch, caplog):
    monkeypatch.setattr(listener_module, "_REASONS", 5)
    with listening(one, path) as address:
        for number in range(10):
            answer(address, asked(plan=DEAR[asked], job=f"job-{number}"))
        assert len(caplog.records) == 5 + 1
        assert "no more are logged today" in caplog.records[-1].getMessage()
        monkeypatch.setattr(one, "_records", broken)
        answer(address, asked())
    assert "failed: RuntimeError" in caplog.records[-1].getMessage()


def test_who_only_looks_whether_the_vault_listens_is_not_logged(one, path, caplog):
    """`fedldp fleet doctor` connects and sends nothing; half a message is logged."""
    caplog.set_level(logging.DEBUG)
    with listening(one, path) as address:
        for sent in (b"", b"\0"):
            with address.connect(30) as link:
                link.sendall(sent)
                link.shutdown(socket.SHUT_WR)
                assert until_closed(link) == b""
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.endswith("the connection was closed in the middle of a message.")
