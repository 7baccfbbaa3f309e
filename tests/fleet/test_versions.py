"""Parts of other versions: they are named, and no round waits for them."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Error, Message
from flwr.common.constant import ErrorCode
from gateways import Network, final, honest, statistic, training
from hypothesis import given
from hypothesis import strategies as st
from vaults import (
    MATRIX,
    MODEL,
    asked,
    framed,
    gradients,
    impostor,
    lines,
    listening,
    sent_back,
    vault,
)

from fedldp import vehicle
from fedldp.fleet import protocol
from fedldp.fleet.flower.messages import packed
from fedldp.fleet.gateway.relay import relay
from fedldp.fleet.protocol import HEADER, Answer
from fedldp.fleet.server import checkpoint, rounds
from fedldp.fleet.sockets import REFUSED, Address
from fedldp.fleet.versions import NEWEST, OtherVersion, Speaks, check, refusal
from fedldp.learn import computations, model
from fedldp.vehicle import canonical

LONG = 30.0
SPEAKS = {part: Speaks(part).to_bytes() for part in ("gateway", "vault")}


def changed(asks, **formats):
    """Return the bytes of a question in which it, its plan or its model has another format."""
    document = json.loads(asks.to_bytes())
    for name, text in formats.items():
        if name == "question":
            document["format"] = text
        else:
            inner = json.loads(document[name]) | {"format": text}
            document[name] = canonical(inner)
    return canonical(document).encode()


NEWER = {
    "question": changed(asked(), question="fedldp question 9"),
    "plan": changed(asked(), plan="fedldp plan 9"),
    "model": changed(gradients(), model="fedldp model 9"),
    "computation": changed(gradients(), model="fedldp forest 1"),
}
INVALID = {
    "empty": b"",
    "no document": b"[]",
    "no plan": asked(plan="{}").to_bytes(),
    "no format": canonical({"job": "a"}).encode(),
    "not of fedldp": changed(asked(), question="another question 9"),
    "a number": changed(asked(), question=9),
    "an invalid plan": changed(asked(), plan="fedldp plan 2"),
    "deep": b"[" * 100_000,
}


# What is said


@pytest.mark.parametrize("part", SPEAKS)
def test_it_is_as_long_as_a_refusal_and_nothing_else_reads_like_it(part):
    for oldest, newest in ((1, 1), (1, NEWEST), (3, 99)):
        speaks = Speaks(part, oldest, newest)
        data = speaks.to_bytes()
        assert len(data) == HEADER == len(REFUSED)
        assert Speaks.from_bytes(data) == speaks
        with pytest.raises(OtherVersion, match=f"the {part} speaks protocol {oldest}"):
            check(data)
    for other in (REFUSED, b"", data[:-1], data + b"\0", data[:-1] + b"\1"):
        assert Speaks.from_bytes(other) is None
        check(other)
    for versions in ((0, 1), (2, 1), (1, 100)):
        assert Speaks.from_bytes(Speaks(part, *versions).to_bytes()) is None


@given(st.binary(max_size=40) | st.binary(max_size=19).map(lambda end: SPEAKS["vault"][:14] + end))
def test_other_bytes_are_something_else_or_the_same_again(data):
    found = Speaks.from_bytes(data)
    assert found is None or found.to_bytes() == data


def test_it_says_on_which_machine_fedldp_is_to_be_updated():
    found = {newest: str(Speaks("vault", 1, newest)) for newest in (1, NEWEST, NEWEST + 1)}
    assert found[1].endswith("update fedldp on the vault's machine.")
    assert found[NEWEST].endswith("see the log of the vault.")
    assert found[NEWEST + 1].endswith("update fedldp on this machine.")


@pytest.mark.parametrize("name", NEWER)
def test_a_newer_format_is_told_from_an_invalid_question(name):
    known = computations.FORMATS
    assert refusal(NEWER[name], "vault", known) == SPEAKS["vault"]
    blind = name in ("model", "computation")  # a gateway does not look at models
    assert refusal(NEWER[name], "gateway") == (REFUSED if blind else SPEAKS["gateway"])


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_question_is_refused_as_ever(name):
    assert refusal(INVALID[name], "vault", computations.FORMATS) == REFUSED


def test_the_documentation_lists_what_the_newest_version_reads():
    text = (Path(__file__).parents[2] / "docs" / "fleet.md").read_text("utf-8")
    rows = re.findall(r"(?m)^\| (\d+) \| fedldp [\d.]+ \|(.*)\|(.*)\|(.*)\|$", text)
    assert [int(row[0]) for row in rows] == list(range(1, NEWEST + 1))
    questions, plans, models = rows[-1][1:]
    assert numbers(questions) == {int(each[-1]) for each in protocol.FORMATS}
    assert numbers(plans) == {int(each[-1]) for each in vehicle.PLAN_FORMATS}
    first, last = sorted(numbers(models))
    assert {f"fedldp model {i}" for i in range(first, last + 1)} == set(model.FORMATS)


def numbers(text):
    return {int(each) for each in re.findall(r"\d+", text)}


# A vault


@pytest.mark.parametrize("name", NEWER)
def test_a_vault_says_the_same_whatever_it_holds(tmp_path, name, caplog):
    said = set()
    for number, fill in enumerate((0.0, np.nan, 1e300)):
        held = vault(tmp_path / f"ledger-{number}", np.full_like(MATRIX, fill), cap=2.0 + number)
        with listening(held, tmp_path / f"{number}") as address:
            said.add(sent_back(address, framed(NEWER[name])))
            assert lines(held) == []
            sent_back(address, framed(asked().to_bytes()))  # and when some have spent, too
            said.add(sent_back(address, framed(NEWER[name])))
    assert said == {framed(SPEAKS["vault"])}
    assert "which a newer version of fedldp has written" in caplog.text or name == "computation"
    assert "refused: " in caplog.text


# A gateway


def test_a_gateway_says_which_versions_it_speaks(tmp_path):
    with impostor(tmp_path / "a", lambda _: b"") as seen:
        vaults = [Address.of(str(tmp_path / "a"))]
        assert relay(NEWER["question"], vaults, LONG) == SPEAKS["gateway"]
        assert relay(NEWER["plan"], vaults, LONG) == SPEAKS["gateway"]
        assert relay(asked(plan="{}").to_bytes(), vaults, LONG) == REFUSED
    assert seen == []


@pytest.mark.parametrize("reply", [REFUSED, Speaks("vault", 1, 1).to_bytes(), SPEAKS["vault"]])
def test_a_vault_of_another_version_is_named_and_the_others_count(tmp_path, reply, caplog):
    question = asked(6)
    with (
        impostor(tmp_path / "old", lambda _: framed(reply)) as seen,
        listening(vault(tmp_path / "ledger"), tmp_path / "good") as good,
    ):
        old = Address.of(str(tmp_path / "old"))
        data = relay(question.to_bytes(), [old, good], LONG)
        alone = relay(question.to_bytes(), [old], LONG)
    answer = Answer.from_bytes(data, question)
    assert (answer.answered, answer.silent) == (3, 3)
    assert seen == [replace(question, n=n).to_bytes() for n in (3, 6)]  # each time asked once
    told = Speaks("vault", 1, 1) if reply == REFUSED else Speaks.from_bytes(reply)
    assert Speaks.from_bytes(alone) == told
    assert f"the vault {old} cannot read question spring/1: the vault speaks" in caplog.text
    assert caplog.text.count("cannot read question") == 2


def test_of_several_versions_the_oldest_is_told(tmp_path):
    with (
        impostor(tmp_path / "a", lambda _: framed(SPEAKS["vault"])),
        impostor(tmp_path / "b", lambda _: framed(REFUSED)),
    ):
        vaults = [Address.of(str(tmp_path / name)) for name in "ab"]
        data = relay(asked(4).to_bytes(), vaults, LONG)
    assert Speaks.from_bytes(data) == Speaks("vault", 1, 1)


def test_an_address_is_shown_without_its_token():
    assert str(Address(host="h", port=9, token=b"secret")) == "tcp://h:9"


# The server


def replying(data):
    def gateway(*_):
        yield packed(data)

    return gateway


def failing(code):
    def gateway(*_):
        yield Error(code, "text of Flower's")

    return gateway


@pytest.fixture
def said(caplog):
    """Return a function that returns the warnings so far."""
    caplog.set_level("INFO", "fedldp")
    return lambda: [each.message for each in caplog.records if each.levelname == "WARNING"]


@pytest.mark.parametrize("part", SPEAKS)
def test_no_round_waits_for_a_gateway_of_another_version(tmp_path, part, said):
    old = replying(Speaks(part, 1, 1).to_bytes())
    job, network = training(tmp_path), Network(honest, old, honest)
    network.start(job)
    assert network.now < job.resend  # three rounds, and not three deadlines
    assert final(job).round == 3
    assert len(network.sent) == 9  # it is asked in every round, as it may have been updated
    counts = checkpoint.status(job.checkpoint).total
    assert (counts.asked, counts.reports, counts.silent) == (72, 48, 24)
    [line] = [each for each in said() if "protocol" in each]
    assert "gateway 11" in line
    assert f"the {part} speaks protocol 1, and this part protocol 1 to {NEWEST}" in line


def test_a_round_of_nothing_but_other_versions_stays_open_and_says_so(tmp_path, said):
    """Until one of them is updated: then it is counted, and the job ends."""
    job, old = statistic(tmp_path), replying(Speaks("gateway", 1, 1).to_bytes())
    network = Network(old, old, old)

    def update():
        if network.now > 5 * job.deadline:
            network.gateways[11] = honest

    network.after_sleep = update
    network.start(job)
    assert 5 * job.deadline < network.now < 7 * job.deadline
    assert checkpoint.status(job.checkpoint).total.reports == 8
    assert [sum(f"gateway {i}" in each for each in said()) for i in (10, 11, 12)] == [1, 1, 1]


def test_a_gateway_of_another_version_is_not_taken_for_one_without_vehicles(tmp_path):
    """If it were, the job would end because no vehicle is left."""
    nobody = lambda question, _: iter([packed(Answer.of(question).to_bytes())])  # noqa: E731
    network = Network(nobody, replying(SPEAKS["gateway"]), nobody)

    def update():
        if network.now > 100:
            network.gateways[11] = honest

    network.after_sleep = update
    job = training(tmp_path, rounds=1)
    network.start(job)
    assert checkpoint.status(job.checkpoint).ended == rounds.ROUNDS
    assert checkpoint.status(job.checkpoint).reports == 8


def test_one_that_is_updated_between_two_rounds_is_waited_for_again(tmp_path):
    def updated(question, times):
        yield packed(SPEAKS["gateway"]) if question.round == 1 else next(honest(question, times))

    job, network = training(tmp_path), Network(honest, updated, honest)
    network.service[11] = 5.0  # it is slower than the others
    network.start(job)
    assert checkpoint.status(job.checkpoint).total.reports == 2 * 8 + 2 * 3 * 8


def test_a_gateway_of_version_0_1_is_given_one_more_chance(tmp_path, said):
    """Zeros are what it sends, and what any gateway sends when something fails."""
    job, network = training(tmp_path), Network(honest, replying(REFUSED), honest)
    network.start(job)
    assert job.resend <= network.now < 2 * job.resend  # in the first round alone
    assert len(network.sent) == 10
    assert checkpoint.status(job.checkpoint).total.reports == 48
    [line] = [each for each in said() if "older version of fedldp" in each]
    assert "gateway 11" in line


def test_what_fails_once_is_asked_again_and_counts(tmp_path):
    def shaky(question, times):
        yield packed(REFUSED) if not times else next(honest(question, times))

    job, network = training(tmp_path), Network(honest, shaky, honest)
    network.start(job)
    assert checkpoint.status(job.checkpoint).total.reports == 72


@pytest.mark.parametrize("code", [ErrorCode.LOAD_CLIENT_APP_EXCEPTION, ErrorCode.INVALID_FAB])
def test_an_app_that_does_not_run_there_is_not_waited_for(tmp_path, monkeypatch, code, said):
    job, network = training(tmp_path), Network(honest, failing(code), honest)
    monkeypatch.setattr("gateways._reply", reply)
    network.start(job)
    assert network.now < job.resend
    assert [each for each in said() if "Flower cannot run the gateway's app" in each]


@pytest.mark.parametrize("code", [ErrorCode.NODE_UNAVAILABLE, ErrorCode.CLIENT_APP_CRASHED])
def test_a_gateway_that_is_away_is_waited_for(tmp_path, monkeypatch, code):
    job, network = training(tmp_path, rounds=1), Network(honest, failing(code), honest)
    monkeypatch.setattr("gateways._reply", reply)
    network.start(job)
    assert network.now >= job.deadline


def reply(content, message):
    """Return a message with a content, or with an error."""
    return Message(content, reply_to=message)


def test_models_that_are_known_are_computed():
    computations.check_format(MODEL.to_json())
    computations.check_format("[]")  # which `read` refuses
