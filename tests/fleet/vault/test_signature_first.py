"""A vault that holds the operator's key parses nothing of a question before it checks who asks."""

import time
from dataclasses import replace

import pytest
from signed import NOW, OTHER, job, pinned_vault, signed, statistic
from vaults import GRADIENT, asked, framed, gradients, lines, listening, sent_back

from fedldp.fleet import protocol
from fedldp.fleet.gateway.relay import ask, relay
from fedldp.fleet.protocol import Answer
from fedldp.fleet.sockets import REFUSED
from fedldp.fleet.vault import listener as listener_module
from fedldp.fleet.vault import vault as vault_module


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setattr(vault_module, "_now", lambda: NOW)


@pytest.fixture
def pinned(tmp_path):
    return pinned_vault(tmp_path / "ledger")


@pytest.fixture
def parsed(monkeypatch):
    """Return a list of what a vault parses of questions: plans and models."""
    seen = []

    def watch(module, name):
        original = getattr(module, name)

        def watched(*arguments):
            seen.append(name)
            return original(*arguments)

        monkeypatch.setattr(module, name, watched)

    watch(protocol, "_width")
    watch(protocol, "_asked")
    watch(vault_module, "_schema")
    watch(vault_module, "asked_for")
    watch(vault_module, "_checked")
    watch(listener_module.computations, "check_format")
    return seen


def questions(folder):
    """Return questions that no job covers which the operator has signed."""
    spring = signed(job(folder))
    genuine = spring.question("7", 1)
    return {
        "unsigned": asked(),
        "with a model": gradients(),
        "an invalid plan": asked(plan="{}"),
        "a wrong model": asked(plan=GRADIENT, model='{"format":"fedldp model 9"}'),
        "another key": signed(job(folder), OTHER).question("7", 1),
        "another plan": replace(genuine, plan=asked().plan),
        "another job": replace(genuine, job="summer"),
        "no more rounds": replace(genuine, round=9),
        "expired": signed(job(folder), expires=NOW).question("7", 1),
        "altered": replace(genuine, signed=genuine.signed.replace("spring", "sprung")),
    }


def test_strangers_are_refused_before_anything_is_parsed(pinned, path, tmp_path, parsed):
    strangers = questions(tmp_path)
    parsed.clear()  # the jobs themselves were parsed to make the questions
    with listening(pinned, path) as address:
        for name, question in strangers.items():
            data = sent_back(address, framed(question.to_bytes()))
            assert parsed == [], name
            assert data == framed(Answer.unread(question)), name
    assert lines(pinned) == []
    assert pinned._ledger.refused()  # the owner can see them


def test_what_is_signed_is_answered(pinned, path, tmp_path, parsed):
    question = signed(statistic(tmp_path)).question("7", 1)
    with listening(pinned, path) as address:
        data = sent_back(address, framed(question.to_bytes()))
    assert Answer.from_bytes(data[4:], question).answered == 3
    assert parsed


def test_a_gateway_reads_it_as_an_answer_of_nobody(pinned, path):
    """It neither asks again nor calls the vault an old one."""
    question = asked()
    with listening(pinned, path) as address:
        assert ask(address, question, time.monotonic() + 60) == Answer.of(question)
        answer = Answer.from_bytes(relay(question.to_bytes(), [address], 30.0), question)
    assert (answer.answered, answer.silent) == (0, 0)


def test_what_is_no_question_gets_the_same_reply_as_ever(pinned, path, parsed):
    with listening(pinned, path) as address:
        assert sent_back(address, framed(b"{}")) == framed(REFUSED)
    assert parsed == []


def test_a_refusal_without_a_plan_is_the_head_of_an_answer():
    question, other = asked(), asked(number=2)
    assert len(Answer.unread(question)) == protocol.HEADER
    assert Answer.unread(question)[:29] == Answer.of(question).to_bytes()[:29]
    assert Answer.unread(question) != Answer.unread(other)
