"""What a vault records about its questions: for its owner, and the same for all data."""

import json
import logging
import threading

import numpy as np
import pytest
from vaults import (
    DEAR,
    MATRIX,
    NONSENSE,
    asked,
    broken,
    framed,
    gradients,
    listening,
    sent_back,
    vault,
)

from fedldp.errors import WireError
from fedldp.fleet import state
from fedldp.fleet.protocol import Answer
from fedldp.fleet.vault import record
from fedldp.fleet.vault.record import Record, load


def ask(address, question):
    data = sent_back(address, framed(question.to_bytes()))[4:]
    return Answer.from_bytes(data, question)


QUESTIONS = [
    asked(),
    asked(),  # the same again
    asked(8, job="summer"),
    asked(8, job="summer", number=2),  # everybody has answered
    asked(plan=DEAR[asked], job="dear"),
    gradients(job="winter"),
    asked(9, job="autumn"),  # there are only eight
]


def answered(tmp_path, matrix, monkeypatch, name):
    """Ask a vault with these data; return its record and its log, without times."""
    monkeypatch.setattr(record, "time", lambda: 0.0)
    held = vault(tmp_path / name, matrix)
    counts = Record(tmp_path / f"{name}.json")
    with counts, listening(held, tmp_path / f"{name}.sock", counts=counts) as address:
        for question in QUESTIONS:
            ask(address, question)
        sent_back(address, framed(NONSENSE))
    return (tmp_path / f"{name}.json").read_text()


def test_it_is_the_same_for_all_data(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    found, logs = [], []
    for name, matrix in (("a", MATRIX), ("b", np.full_like(MATRIX, np.nan))):
        caplog.clear()
        found.append(answered(tmp_path, matrix, monkeypatch, name))
        logs.append([each.getMessage() for each in caplog.records])
    assert found[0] == found[1]
    assert logs[0] == logs[1]
    document = json.loads(found[0])
    assert document["questions"] == {"answered": 5, "refused": 3, "not ready": 0}
    assert document["vehicles"] == len(MATRIX)
    assert document["jobs"]["summer"] == {"answered": 1, "refused": 1, "not ready": 0}
    for number in range(len(MATRIX)):
        assert f"car {number}" not in found[0]


def test_each_refusal_has_its_reason(tmp_path, monkeypatch):
    document = json.loads(answered(tmp_path, MATRIX, monkeypatch, "a"))
    found = {each["job"]: each["why"] for each in document["unanswered"]}
    assert "of its 8 vehicles, 8 have answered this job before" in found["summer"]
    assert "cap" in found["dear"]
    assert "fedldp question" in found[None]


def test_what_fails_is_not_ready_and_says_nothing_of_the_data(tmp_path, monkeypatch):
    held, counts = vault(tmp_path / "a"), Record()
    monkeypatch.setattr(held, "_records", broken)
    with listening(held, tmp_path / "s", counts=counts) as address:
        ask(address, asked())
    document = counts.document()
    assert document["questions"] == {"answered": 0, "refused": 0, "not ready": 1}
    assert document["unanswered"][0]["why"] == "failed: RuntimeError"
    assert "Rome" not in json.dumps(document)


def test_strangers_cannot_make_it_large():
    counts = Record()
    for number in range(1000):
        counts.count(record.REFUSED, asked(job=f"job-{number}"), "x" * 500)
    assert counts.document()["questions"]["refused"] == 1000
    assert len(json.dumps(counts.document())) < 20_000


def test_it_is_written_while_the_vault_runs_and_at_its_end(tmp_path, monkeypatch):
    path, written = tmp_path / "vault.json", threading.Event()
    monkeypatch.setattr(record, "_PAUSE", 60.0)  # what comes in this time is written at the end
    note = record.note

    def noted(*arguments, **entries):
        note(*arguments, **entries)
        written.set()

    monkeypatch.setattr(record, "note", noted)
    with Record(path) as counts:
        counts.count(record.ANSWERED)
        assert written.wait(60)
        assert load(tmp_path)["questions"]["answered"] == 1
        counts.count(record.ANSWERED)
        assert load(tmp_path)["questions"]["answered"] == 1
    assert load(tmp_path)["questions"]["answered"] == 2


def test_a_full_disk_does_not_end_the_vault(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(state.files, "write", full)
    with Record(tmp_path / "vault.json") as counts:
        counts.count(record.ANSWERED)
    assert load(tmp_path)["vehicles"] is None


def test_a_damaged_file_is_refused(tmp_path):
    (tmp_path / record.FILE).write_text('{"format": "fedldp vault status 1", ')
    with pytest.raises(WireError, match=r"vault\.json.*delete it"):
        load(tmp_path)
