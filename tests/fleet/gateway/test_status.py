"""The status of a gateway, and its log: whether it reaches the server, and what vaults said."""

import asyncio
import contextlib
import json
import logging
import os
import time

import httpx
import pytest
from vaults import asked, listening, vault

from fedldp.fleet import state
from fedldp.fleet.gateway import record
from fedldp.fleet.gateway.record import Connection, Passed, Questions, Reply, Teller
from fedldp.fleet.gateway.relay import relay
from fedldp.fleet.gateway.uplink import Checked, Line
from fedldp.fleet.sockets import Address
from fedldp.fleet.status import read


@pytest.fixture
def folder(tmp_path):
    found = tmp_path / "gateway-1"
    (found / "state").mkdir(parents=True)
    (found / "gateway.toml").write_text(
        'server = "fleet.example.org:9443"\nauthority = "ca.crt"\nkey = "key"\n'
        'vaults = ["../vault-1/vault.sock", "../vault-2/vault.sock"]\n'
    )
    return found


def status(folder):
    [found] = read(folder)
    json.dumps(found.document())
    return found


def passed_on(folder, tmp_path, question, seconds=30.0, both=True):
    """Pass a question on to one vault that runs, and to one that may not."""
    held = [vault(tmp_path / f"ledger-{i}") for i in range(2)]
    addresses = [tmp_path / f"{i}.sock" for i in range(2)]
    with listening(held[0], addresses[0]) as first:
        second = Address.of(str(addresses[1]))
        names, questions = ["vault-1", "vault-2"], Questions(folder / "state")
        if not both:
            return relay(question.to_bytes(), [first, second], seconds, names, questions)
        with listening(held[1], addresses[1]):
            return relay(question.to_bytes(), [first, second], seconds, names, questions)


def test_before_it_ever_ran(folder):
    found = status(folder)
    document = found.document()
    assert (document["part"], document["name"], document["running"]) == (
        "gateway",
        "gateway-1",
        False,
    )
    assert document["server"] == "fleet.example.org:9443"
    assert document["processes"] == {"supernode": False, "uplink": False}
    assert document["connected"] is False
    assert [each["state"] for each in document["vaults"]] == ["not asked"] * 2
    assert found.attention == ["the gateway does not run."]


def test_it_says_what_its_vaults_answered(folder, tmp_path):
    passed_on(folder, tmp_path, asked(7))
    document = status(folder).document()
    [question] = document["questions"]
    assert (question["job"], question["round"], question["n"]) == ("spring", 1, 7)
    assert [each["answered"] for each in question["replies"]] == [4, 3]
    assert [(each["name"], each["state"]) for each in document["vaults"]] == [
        ("vault-1", "answered"),
        ("vault-2", "answered"),
    ]


def test_a_silent_vault_is_named(folder, tmp_path):
    passed_on(folder, tmp_path, asked(7), seconds=0.5, both=False)
    with state.hold(folder / "state"):
        found = status(folder)
    first, second = found.document()["vaults"]
    assert (first["state"], second["state"]) == ("answered", "silent")
    assert "No such file" in second["why"]
    assert any(text.startswith("vault-2 is silent since") for text in found.attention)


def test_a_question_that_came_twice_counts_once(folder):
    questions = Questions(folder / "state")
    for _ in range(2):
        questions.ended(questions.came(asked(7)), [Reply("vault-1", 7, 7, 0)])
    first, _ = status(folder).document()["vaults"]
    assert (first["answered"], first["asked"]) == (7, 7)


def test_what_cannot_be_read_is_recorded(folder):
    relay(b"{", [Address.of("/none")], 1.0, ["vault-1"], Questions(folder / "state"))
    [question] = Questions(folder / "state").load()
    assert question.error.startswith("it cannot be read: ")
    assert question.job is None


def test_a_full_disk_does_not_keep_an_answer_back(folder, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(state.files, "write", full)
    assert len(passed_on(folder, tmp_path, asked(7))) == asked(7).size


def test_only_the_last_questions_are_kept(folder):
    questions = Questions(folder / "state")
    for number in range(1, 50):
        questions.ended(questions.came(asked(7, number=number)), [Reply("vault-1", 7, 7, 0)])
    found = questions.load()
    assert [each.round for each in found] == list(range(30, 50))


def test_it_is_connected(folder):
    Connection(record.CONNECTED, time.time() - 60).save(folder / "state")
    (folder / "state" / "asked").touch()
    with state.hold(folder / "state"):
        found = status(folder)
        assert found.document()["connected"] is True
        assert dict(found.rows)["server"] == "fleet.example.org:9443: connected for 60 s"
        os.utime(folder / "state" / "asked", (0, 0))  # the SuperNode asks for nothing
        assert status(folder).document()["connected"] is False
    assert status(folder).document()["connected"] is False  # it has ended


@pytest.mark.parametrize("name", ["connection.json", "questions.json", "processes.json"])
@pytest.mark.parametrize("content", ["", "[]", '{"format": "other"}', '{"questions": 7}'])
def test_a_damaged_file_is_said(folder, name, content):
    (folder / "state" / name).write_text(content)
    assert any(name in text for text in status(folder).attention)


# What the uplink records


def called(folder, *answers):
    """Let the uplink call a server that answers in this way; return what is recorded each time."""
    found, replies = [], iter(answers)

    def handle(_):
        answer = next(replies)
        if isinstance(answer, int):
            return httpx.Response(answer)
        raise answer

    async def call():
        checked = Checked(
            httpx.MockTransport(handle), "0" * 64, lambda: None, Line(folder / "state")
        )
        async with httpx.AsyncClient(transport=checked, base_url="https://h") as client:
            for _ in answers:
                with contextlib.suppress(httpx.HTTPError):
                    await client.post("/v1/fleet/pull-messages")
                found.append(Connection.load(folder / "state"))

    asyncio.run(call())
    return found


def test_the_uplink_says_whether_it_reaches_the_server(folder):
    found = called(folder, httpx.ConnectError("refused"), 200, 200, 401, 200)
    assert [each.state for each in found] == [
        "not connected",
        "connected",
        "connected",
        "not connected",
        "connected",
    ]
    assert found[0].why == "it cannot be reached (refused)."
    assert "does not admit this gateway" in found[3].why
    assert found[1] == found[2]  # written when it changes


def test_a_server_that_has_ended_has_one_reason(folder):
    """Clients word it in different ways: the log must not go back and forth between them."""
    errors = httpx.ConnectError(""), httpx.ConnectError("All connection attempts failed")
    one, other = called(folder, *errors)
    assert one == other
    assert one.why == "it cannot be reached (nothing answers there)."


# What the gateway logs


def test_the_gateway_logs_what_is_new(folder, caplog):
    caplog.set_level(logging.INFO)
    questions = Questions(folder / "state")
    questions.ended(questions.came(asked(3, number=1)), [Reply("vault-1", 3, 3, 0)])
    teller = Teller(folder / "state", "fleet.example.org:9443")
    teller.look()
    assert caplog.records == []  # it was there before
    Connection(record.CONNECTED, 7.0).save(folder / "state")
    came = questions.came(asked(4, number=2))
    teller.look()
    teller.look()
    questions.ended(came, [Reply("vault-1", 2, 2, 0), Reply("vault-2", 2, 0, 2, "no such file")])
    teller.look()
    Connection("not connected", 8.0, "it cannot be reached.").save(folder / "state")
    questions.ended(questions.came(None), None, "ValueError: a\nb")
    teller.look()
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("INFO", "Connected to the server at fleet.example.org:9443."),
        ("INFO", "spring, round 2: asked for 4 vehicles."),
        (
            "WARNING",
            "spring, round 2: vault-1 answered for 2 of 2 vehicles; "
            "vault-2 was silent (no such file).",
        ),
        (
            "WARNING",
            "Not connected to the server at fleet.example.org:9443: it cannot be reached.",
        ),
        ("ERROR", "a question: ValueError: a b"),
    ]
    assert caplog.records[1].job == "spring"


def test_a_damaged_file_does_not_end_the_gateway(folder):
    teller = Teller(folder / "state", "h:1")
    (folder / "state" / record.QUESTIONS).write_text("damaged")
    teller.look()
    Passed(1, 0.0, "spring", 1, 7).tell()
