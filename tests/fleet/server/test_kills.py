"""Whenever the server is killed, it resumes: nothing is asked twice, and nothing stored is lost."""

import contextlib
import itertools
import json
import sqlite3

import pytest
from gateways import Network, final, honest, mute, training
from kills import Killed, die, fast, kill_at

from fedldp.errors import WireError
from fedldp.fleet.protocol import Question
from fedldp.fleet.server import checkpoint, rounds
from fedldp.fleet.server.summary import Summary
from fedldp.learn.model import Model


def stored(job):
    """Return in which rounds which gateways have a batch."""
    if not job.checkpoint.exists():
        return set()
    with contextlib.closing(sqlite3.connect(job.checkpoint)) as file:
        return set(file.execute("SELECT round, gateway FROM batches").fetchall())


def resume(job, network, before):
    """Go on in a new process; nothing is asked again of those whose batch was kept."""
    known, already = stored(job), len(network.sent)
    again = Network(*network.gateways.values())
    again.sent = list(network.sent)
    again.start(job)
    fresh = [Question.from_bytes(data) for _, data in again.sent[already:]]
    assert not {(each.round, each.gateway) for each in fresh} & known
    asked = [Question.from_bytes(data) for _, data in again.sent]
    assert set(asked) == before  # in each round each gateway got one question: the same as ever
    return again


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    job, network = training(tmp_path_factory.mktemp("plain")), Network(honest, honest, honest)
    network.start(job)
    asked = {Question.from_bytes(data) for _, data in network.sent}
    return final(job).to_json(), (job.result.read_text(), job.summary.read_text()), asked


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_every_commit(after, tmp_path, monkeypatch, undisturbed):
    state, written, asked = undisturbed
    fast(monkeypatch)
    for place in itertools.count(1):
        job, network = training(tmp_path / str(place)), Network(honest, honest, honest)
        with monkeypatch.context() as patch:
            reached = kill_at(patch, place, after)
            with contextlib.suppress(Killed):
                network.start(job)
        if not reached():
            break
        resume(job, network, asked)
        assert final(job).to_json() == state
        assert (job.result.read_text(), job.summary.read_text()) == written
    assert place - 1 == 1 + 3 * (1 + 3 + 1) + 1  # the job; asks, batches and step; the end


def test_killed_at_every_call_of_the_grid(tmp_path, monkeypatch, undisturbed):
    """Also after a reply was pulled and before it was kept: the same question brings it back."""
    state, written, asked = undisturbed
    fast(monkeypatch)
    for place, after in itertools.product(range(1, 19), (False, True)):
        job, network = training(tmp_path / f"{place}{after}"), Network(honest, honest, honest)
        names = ("get_node_ids", "push_messages", "pull_messages")
        calls = itertools.count(1)

        def dying(call, calls=calls, place=place, after=after):
            def wrapped(*arguments):
                number = next(calls)
                if number == place and not after:
                    raise Killed
                found = call(*arguments)
                if number == place:
                    raise Killed
                return found

            return wrapped

        for name in names:
            setattr(network, name, dying(getattr(network, name)))
        with pytest.raises(Killed):
            network.start(job)
        resume(job, network, asked)
        assert final(job).to_json() == state
        assert (job.result.read_text(), job.summary.read_text()) == written


def test_killed_again_and_again(tmp_path, monkeypatch, undisturbed):
    """At each life one commit further, until it is done."""
    state, written, _ = undisturbed
    fast(monkeypatch)
    job, lives = training(tmp_path), 0
    for lives in range(100):
        with monkeypatch.context() as patch:
            kill_at(patch, 2, after=lives % 2 > 0)
            try:
                Network(honest, honest, honest).start(job)
                break
            except Killed:
                continue
    assert lives > 5
    assert final(job).to_json() == state
    assert (job.result.read_text(), job.summary.read_text()) == written


def test_the_result_is_there_before_the_job_is_over(tmp_path, monkeypatch):
    job, network = training(tmp_path), Network(honest, honest, honest)
    monkeypatch.setattr(rounds.files, "write", die)
    with pytest.raises(Killed):
        network.start(job)
    assert not checkpoint.finished(job.checkpoint)
    monkeypatch.undo()
    again = Network()
    again.start(job)
    assert again.sent == []
    assert job.result.exists()


def test_the_summary_is_there_before_the_job_is_over(tmp_path, monkeypatch):
    job, network = training(tmp_path), Network(honest, honest, honest)
    monkeypatch.setattr(Summary, "save", die)
    with pytest.raises(Killed):
        network.start(job)
    assert not checkpoint.finished(job.checkpoint)
    monkeypatch.undo()
    Network().start(job)
    assert Summary.load(job.summary).complete


def test_a_question_that_cannot_be_put_again_is_not_put(tmp_path, monkeypatch):
    """As after an update that writes models otherwise: nobody is asked two things in a round."""
    job, network = training(tmp_path), Network(honest, mute, mute)
    network.fails = lambda call: die() if call > 6 else None
    with pytest.raises(Killed):
        network.start(job)
    write = Model.to_json
    monkeypatch.setattr(Model, "to_json", lambda self: json.dumps(json.loads(write(self))))
    again = Network(honest, honest, honest)
    with pytest.raises(WireError, match="cannot be repeated"):
        again.start(job)
    assert again.sent == []
