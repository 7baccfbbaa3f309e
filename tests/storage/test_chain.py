"""The hash chain of a ledger: all that was answered, in order, and a bounded rest."""

import hashlib

import pytest
from ledgers import open_ledger, tamper

from fedldp.errors import DomainError, WireError
from fedldp.storage import chain


@pytest.fixture
def ledger(tmp_path):
    with open_ledger(tmp_path / "ledger", cap=100) as found:
        yield found


def answered(ledger, request, entry, vehicles=("car",), question=b""):
    return ledger.release_many(
        [*vehicles], 1, request, question, lambda able: dict.fromkeys(able, b"x"), entry=entry
    )


def entries(ledger):
    return [link.entry for link in ledger.asked()]


def test_a_head_is_the_hash_of_the_one_before_and_the_entry(ledger):
    answered(ledger, "spring/1", "first")
    answered(ledger, "spring/2", "zweitens: ä")
    one = hashlib.sha256(bytes(32) + b"first").digest()
    two = hashlib.sha256(one + "zweitens: ä".encode()).digest()
    assert ledger.asked() == [("first", one), ("zweitens: ä", two)]


def test_an_entry_needs_a_request_that_is_a_text(ledger):
    with pytest.raises(DomainError, match="request must be a text"):
        answered(ledger, b"spring/1", "first")
    with pytest.raises(DomainError, match="request must be a text"):
        ledger.release("car", 1, b"spring/1", lambda: b"x", entry="first")
    assert entries(ledger) == []
    assert ledger.release("car", 1, b"spring/1", lambda: b"x") == b"x"


def test_what_is_asked_again_is_not_added_again(ledger):
    for _ in range(2):
        answered(ledger, "spring/1", "first")
        ledger.note("spring/1", "first", chained=True)
        ledger.note("spring/1", "first", chained=False)
    assert (entries(ledger), ledger.refused()) == (["first"], [])


def test_an_entry_without_an_answer_waits_for_a_note(ledger):
    answered(ledger, "spring/1", "first", vehicles=())
    assert entries(ledger) == []
    ledger.note("spring/1", "first", chained=True)
    answered(ledger, "spring/1", "first")
    assert entries(ledger) == ["first"]


def test_whatever_is_answered_is_in_the_chain(ledger):
    """Even if something else was noted for the same request, and not answered."""
    ledger.note("spring/1", "first", chained=True)
    ledger.note("spring/1", "other", chained=True)
    assert (entries(ledger), ledger.refused()) == (["first"], ["other"])
    answered(ledger, "spring/1", "other")
    assert entries(ledger) == ["first", "other"]


def test_a_stranger_cannot_fill_the_disk(ledger, monkeypatch):
    monkeypatch.setattr(chain, "MOST_REFUSED", 5)
    for number in range(8):
        ledger.note(f"job/{number}", f"{number}", chained=False)
        ledger.note("spring/1", f"{number}", chained=True)
    assert entries(ledger) == ["0"]
    assert ledger.refused() == ["0", "1", "1", "2", "2"]


def test_if_the_answer_fails_nothing_is_added(ledger):
    def fail(_):
        raise RuntimeError("no records")

    with pytest.raises(RuntimeError, match="no records"):
        ledger.release_many(["car"], 1, "spring/1", b"", fail, entry="first")
    assert entries(ledger) == []


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE asked SET entry = 'altered' WHERE number = 2",
        "DELETE FROM asked WHERE number = 2",
        "UPDATE asked SET number = number + 7 WHERE number = 1",
        "UPDATE asked SET head = zeroblob(32) WHERE number = 3",
    ],
)
def test_a_change_is_noticed(ledger, change):
    for number in range(1, 4):
        answered(ledger, f"spring/{number}", f"{number}")
    tamper(ledger._file, change)
    with pytest.raises(WireError, match="the chain of what was asked does not fit together"):
        ledger.asked()
