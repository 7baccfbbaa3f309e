"""Owners can compare whether their vaults were asked the same."""

import hashlib
import json
import sqlite3
from dataclasses import replace

import pytest
from click.testing import CliRunner
from ledgers import untouched
from signed import NOW, OTHER, job, pinned_vault, signed, statistic
from vault_folders import configured
from vaults import MODEL, ROWS, asked, gradients
from vaults import vault as make_vault

from fedldp.cli.app import fedldp
from fedldp.errors import FedLDPError, WireError
from fedldp.fleet import transparency
from fedldp.fleet.transparency import Asked, Transparency
from fedldp.fleet.vault import vault as vault_module
from fedldp.fleet.vault.policy import Policy
from fedldp.storage import chain


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setattr(vault_module, "_now", lambda: NOW)


def of(vault):
    return Transparency.of(vault._ledger.asked(), vault._ledger.refused())


def where(entries):
    return [(each.job, each.round) for each in entries]


def refuse(vault, question):
    with pytest.raises(FedLDPError):
        vault.answer(question)


def weights(number):
    return replace(MODEL, weights=[float(number)] * len(MODEL.weights))


# What is in the chain.


def test_an_entry_says_what_was_asked_and_not_of_whom():
    question = gradients(job="spring", number=7, gateway="3", n=2)
    assert json.loads(transparency.entry(question)) == {
        "format": "fedldp asked 1",
        "job": "spring",
        "round": 7,
        "plan": hashlib.sha256(question.plan.encode()).hexdigest(),
        "model": hashlib.sha256(question.model.encode()).hexdigest(),
    }
    assert json.loads(transparency.entry(asked()))["model"] == ""
    one = replace(question, gateway="9", n=8, signed="text")
    assert transparency.entry(one) == transparency.entry(question)


def test_vaults_that_were_asked_the_same_have_the_same_head(tmp_path):
    """Whatever their gateways, their n, their budgets and what was repeated."""
    one = signed(job(tmp_path))
    rich, poor = pinned_vault(tmp_path / "rich"), pinned_vault(tmp_path / "poor", cap=1.0)
    for number in (1, 2, 3):
        question = one.question("7", number, weights(number))
        for _ in range(number):
            assert rich.answer(question).answered == 3
        poor.answer(replace(question, gateway="8", n=8))
    assert len(poor._ledger.history()) == 8  # all in the first round
    assert of(rich).head == of(poor).head
    assert where(of(rich).asked) == [("spring", 1), ("spring", 2), ("spring", 3)]
    assert of(rich).differences(of(poor)) == []
    entries = [transparency.entry(one.question("0", n, weights(n))) for n in (1, 2, 3)]
    assert of(rich).head == chain.follow(entries).hex()


def test_a_server_that_asks_vaults_differently_is_found_out(tmp_path):
    one = signed(job(tmp_path))
    mine, yours = pinned_vault(tmp_path / "mine"), pinned_vault(tmp_path / "yours")
    for number in (1, 2, 3):
        mine.answer(one.question("7", number, weights(number)))
        yours.answer(one.question("8", number, weights(9 if number == 2 else number)))
    assert of(mine).head != of(yours).head
    assert of(mine).differences(of(yours)) == ["spring, round 2: another model was asked there."]


def test_a_second_question_for_the_same_round_is_evidence(tmp_path):
    """The ledger refuses it, and it is listed beside the chain."""
    one, vault = signed(job(tmp_path)), pinned_vault(tmp_path / "ledger")
    vault.answer(one.question("7", 1, weights(1)))
    refuse(vault, one.question("8", 1, weights(2)))
    refuse(vault, one.question("8", 1, weights(1)))  # the same, from another gateway: no news
    found = of(vault)
    assert len(found.asked) == len(found.refused) == 1
    assert found.asked[0].model != found.refused[0].model


def test_a_vault_that_was_not_reached_in_a_round(tmp_path):
    one = signed(job(tmp_path))
    mine, yours = pinned_vault(tmp_path / "mine"), pinned_vault(tmp_path / "yours")
    for number in (1, 2, 3):
        mine.answer(one.question("7", number))
        if number != 2:
            yours.answer(one.question("8", number))
    assert of(mine).differences(of(yours)) == ["spring, round 2: asked here only."]
    assert of(yours).differences(of(mine)) == ["spring, round 2: asked there only."]


def test_two_jobs_at_the_same_time_are_compared_one_by_one(tmp_path):
    spring, summer = signed(job(tmp_path)), signed(statistic(tmp_path, name="summer"))
    mine, yours = pinned_vault(tmp_path / "mine"), pinned_vault(tmp_path / "yours")
    questions = [spring.question("7", 1), summer.question("7", 1), spring.question("7", 2)]
    for first, second in zip(questions, [questions[1], questions[0], questions[2]], strict=True):
        mine.answer(first)
        yours.answer(second)
    assert of(mine).head != of(yours).head
    assert of(mine).differences(of(yours)) == ["the same questions were asked in another order."]
    for name in ("spring", "summer"):
        assert of(mine).of_job(name).head == of(yours).of_job(name).head


# What was refused.


def test_what_the_operator_has_signed_is_in_the_chain_even_if_it_is_refused(tmp_path):
    """So vaults whose owners allow different things can be compared."""
    one = signed(job(tmp_path))
    strict, other = pinned_vault(tmp_path / "strict"), pinned_vault(tmp_path / "other")
    strict._policy = Policy.of({"jobs": ["trial"]})
    for number in (1, 2):
        refuse(strict, one.question("7", number))
        other.answer(one.question("7", number))
    assert of(strict) == of(other)
    assert of(strict).refused == ()
    assert strict._ledger.history() == []


def test_what_the_operator_has_not_signed_is_beside_the_chain(tmp_path):
    vault = pinned_vault(tmp_path / "ledger")
    one = job(tmp_path)
    refuse(vault, one.question("7", 1))
    refuse(vault, signed(one, OTHER).question("7", 2))
    refuse(vault, replace(signed(one).question("7", 3), plan=ROWS.to_json(), model=""))
    found = of(vault)
    assert (where(found.asked), where(found.refused)) == ([], [("spring", n) for n in (1, 2, 3)])


def test_without_a_key_only_what_was_answered_is_in_the_chain(tmp_path):
    vault = make_vault(tmp_path / "ledger", cap=1.0)
    assert vault.answer(asked(n=8)).answered == 8
    assert vault.answer(asked(n=8, job="summer")).answered == 0
    refuse(vault, asked(plan="{}", job="autumn"))
    found = of(vault)
    assert where(found.asked) == [("spring", 1)]
    assert where(found.refused) == [("summer", 1), ("autumn", 1)]


def test_strangers_cannot_fill_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(chain, "MOST_REFUSED", 4)
    one, vault = signed(job(tmp_path)), pinned_vault(tmp_path / "ledger", cap=1.0)
    assert vault.answer(replace(one.question("7", 1), n=8)).answered == 8
    for number in range(10):
        refuse(vault, replace(one.question("7", 1), job=f"job-{number}"))
        vault.answer(one.question("7", 2, weights(number)))  # nobody has any budget left
    found = of(vault)
    assert (len(found.asked), len(found.refused), found.is_full) == (2, 4, True)


def test_a_crash_does_not_separate_an_answer_from_its_entry(tmp_path, monkeypatch):
    """Both are in one transaction: at every failure there are both, or neither."""
    one, vault = signed(job(tmp_path)), pinned_vault(tmp_path / "ledger")
    count, original = [0], vault._ledger._file.execute

    def failing(statement, values=()):
        count[0] -= 1
        if count[0] == 0:
            raise sqlite3.OperationalError("disk full")
        return original(statement, values)

    for place in range(1, 40):
        monkeypatch.setattr(vault._ledger._file, "execute", failing)
        count[0] = place
        try:
            vault.answer(one.question("7", 1))
        except (sqlite3.Error, OSError):
            pass
        else:
            break
        finally:
            monkeypatch.undo()
            monkeypatch.setattr(vault_module, "_now", lambda: NOW)
        assert len(vault._ledger.asked()) == bool(vault._ledger.history())
    assert place > 5
    assert len(vault._ledger.asked()) == 1
    assert len(vault._ledger.history()) == 3


def test_a_damaged_chain_is_not_the_fault_of_a_question(tmp_path, monkeypatch):
    vault = pinned_vault(tmp_path / "ledger")

    def damaged(*_, **__):
        raise WireError("the ledger is damaged")

    monkeypatch.setattr(vault._ledger, "note", damaged)
    with pytest.raises(OSError, match="the ledger is damaged"):
        vault.answer(job(tmp_path).question("7", 1))


# The document, and the command.


@pytest.fixture
def folder(tmp_path):
    """Return the folder of a vault that was asked two questions, and refused a third."""
    folder = tmp_path / "vault"
    folder.mkdir()
    configured(folder, ledger="ledger.db", cap="100.0")
    one, vault = signed(job(tmp_path)), pinned_vault(folder / "ledger.db")
    for number in (1, 2):
        vault.answer(one.question("7", number))
    refuse(vault, replace(one.question("7", 3), signed=""))
    vault._ledger.close()
    return folder


def run(*words):
    done = CliRunner().invoke(fedldp, ["fleet", "transparency", *map(str, words)])
    return done.exit_code, done.output if done.exception is None else done.output or str(
        done.exception
    )


def test_the_command_shows_heads_and_questions(folder):
    code, said = run(folder)
    found = Transparency.from_json(run(folder, "--json")[1])
    assert code == 0
    assert f"All: 2 questions, head {found.head}" in said
    assert f"spring: 2 questions, head {found.head}" in said
    assert "Refused, and not in the chain" in said
    assert found.asked[1].model[:16] in said


def test_the_document_can_be_read_and_has_no_vehicles(folder):
    text = run(folder, "--json")[1]
    found = Transparency.from_json(text)
    assert where(found.asked) == [("spring", 1), ("spring", 2)]
    assert where(found.refused) == [("spring", 3)]
    assert "car" not in text
    document = json.loads(text)
    assert document["jobs"] == [{"job": "spring", "head": found.head, "questions": 2}]


def test_the_command_compares(folder, tmp_path):
    theirs = tmp_path / "theirs.json"
    text = run(folder, "--json")[1]
    theirs.write_text(text)
    code, said = run(folder, "--compare", theirs)
    assert (code, said.startswith("The same 2 questions. Head: ")) == (0, True)
    found = Transparency.from_json(text)
    less = Transparency(found.asked[:1])
    theirs.write_text(json.dumps(less.to_document()))
    code, said = run(folder, "--compare", theirs)
    assert code == 1
    assert "  spring, round 2: asked here only." in said
    code, said = run(folder, "--compare", theirs, "--job", "summer")
    assert (code, said.startswith("The same 0 questions")) == (0, True)


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document | {"head": "0" * 64},
        lambda document: document | {"questions": document["questions"][::-1]},
        lambda document: document | {"jobs": []},
        lambda document: document | {"format": "fedldp transparency 2"},
        lambda document: document | {"questions": [{"job": "spring"}]},
        lambda document: document | {"questions": 7},
        lambda document: [document],
    ],
)
def test_a_document_that_does_not_fit_together_is_refused(folder, tmp_path, change):
    document = json.loads(run(folder, "--json")[1])
    with pytest.raises(WireError):
        Transparency.from_json(json.dumps(change(document)))
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps(change(document)))
    code, said = run(folder, "--compare", path)
    assert code == 1
    assert "theirs.json" in said


def test_a_vault_that_was_never_started_was_asked_nothing(tmp_path):
    configured(tmp_path, ledger="ledger.db")
    code, said = run(tmp_path)
    assert code == 0
    assert f"All: 0 questions, head {'0' * 64}" in said
    assert untouched(tmp_path / "ledger.db")


@pytest.mark.parametrize("text", ["", "{}", '{"format":"fedldp asked 1"}', "7"])
def test_an_invalid_entry_is_refused(text):
    with pytest.raises(WireError):
        Asked.of(text)


def test_differences_of_plans():
    one = Transparency((Asked("spring", 1, "a", "m"),))
    for other, what in (
        (Asked("spring", 1, "b", "m"), "another plan"),
        (Asked("spring", 1, "b", "n"), "another plan and model"),
    ):
        said = [f"spring, round 1: {what} was asked there."]
        assert one.differences(Transparency((other,))) == said
