"""The status of a vault: budgets, jobs and questions for its owner, and nothing about the data."""

import json
import os
import stat
from threading import Thread

import pytest
from accounts import NOBODY, forked, needs_root
from ledgers import untouched
from vault_folders import SCHEMA, configured
from vaults import framed, sent_back

from fedldp import Plan
from fedldp.budget import ledger, policy
from fedldp.errors import DomainError
from fedldp.fleet import state
from fedldp.fleet.protocol import Question
from fedldp.fleet.status import iso, read
from fedldp.fleet.vault import record
from fedldp.fleet.vault.listener import Listener
from fedldp.fleet.vault.process import VaultConfig

PLAN = Plan(SCHEMA, epsilon=1.0)
ROWS = "speed,city\n" + "31,Rome\n" * 5
OTHERS = "speed,city\n" + "900,Atlantis\n" * 5  # clipped and unknown


def made(folder, rows=ROWS, **entries):
    folder.mkdir()
    (folder / "rows.csv").write_text(rows)
    return configured(folder, **{"cap": "2.0"} | entries)


def ask(config, *questions):
    """Let a vault answer as it does when it runs, but without its process."""
    folder = config.folder / state.STATE
    folder.mkdir(exist_ok=True)
    data, _ = config.read()
    with config.ledger() as held, record.Record(folder / record.FILE) as counts:
        listener = Listener(config._vault(data, held), config.address, 0.01, 10.0, counts)
        thread = Thread(target=listener.serve, daemon=True)
        thread.start()
        for question in questions:
            sent_back(config.address, framed(question.to_bytes()))
        listener.close()
        thread.join()


def question(n, job="spring", number=1):
    return Question(job, number, "7", n, PLAN.to_json())


def status(folder):
    [found] = read(folder)
    json.dumps(found.document())
    return found


def test_before_it_ever_ran(tmp_path):
    config = made(tmp_path / "vault-1")
    found = status(config.folder)
    document = found.document()
    assert (document["part"], document["name"], document["running"]) == ("vault", "vault-1", False)
    assert (document["vehicles"], document["cap"], document["answers_per_job"]) == (None, "2.0", 1)
    assert (document["budget"], document["jobs"]) == ([], [])
    assert document["questions"] == {"answered": 0, "refused": 0, "not ready": 0}
    assert found.attention == ["the vault does not run."]
    assert found.next == f"Start the vault: fedldp fleet vault {config.folder}"
    assert untouched(config.ledger_path)


def test_budgets_jobs_and_refusals(tmp_path):
    config = made(tmp_path / "vault-1")
    ask(config, question(2), question(5, "summer"), question(5, "summer", 2), question(1, "dear"))
    with state.hold(config.folder / state.STATE):
        found = status(config.folder)
    document = found.document()
    assert document["vehicles"] == 5
    assert sum(each["vehicles"] for each in document["budget"]) == 5
    spent = sum((2 - float(each["left"])) * each["vehicles"] for each in document["budget"])
    assert spent == 2 + 5 + 1
    assert [float(each["left"]) for each in document["budget"]] == [1.0, 0.0]
    assert document["jobs"] == [
        {"job": "spring", "rounds": 1, "answers": 2, "refused": 0},
        {"job": "summer", "rounds": 1, "answers": 5, "refused": 1},
        {"job": "dear", "rounds": 1, "answers": 1, "refused": 0},
    ]
    assert document["questions"] == {"answered": 3, "refused": 1, "not ready": 0}
    [line] = found.errors
    assert line.text.startswith("summer, round 2, refused: of 5 vehicles that were asked for, 0 ")
    assert "5 have answered this job before" in line.text
    assert found.healthy


def test_it_is_the_same_for_all_data(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "time", lambda: 0.0)
    documents = []
    for name, rows in (("a", ROWS), ("b", OTHERS)):
        config = made(tmp_path / name, rows)
        ask(config, question(2), question(5, "summer"), question(5, "summer", 2))
        found = status(config.folder)
        shown = found.rows, found.table, found.errors, found.warnings
        documents.append((found.document() | {"name": "", "next": ""}, shown))
    assert documents[0] == documents[1]


def test_spent_budgets_are_an_ordinary_end(tmp_path):
    """A warning, and nothing that somebody must repair: the exit status stays 0."""
    config = made(tmp_path / "v", cap="1.0")
    ask(config, question(4))
    with state.hold(config.folder / state.STATE):
        assert status(config.folder).warnings == []
    ask(config, question(4, number=2))
    with state.hold(config.folder / state.STATE):
        found = status(config.folder)
    assert found.warnings == ["no vehicle has anything left of its cap."]
    assert found.healthy
    assert status(config.folder).attention == ["the vault does not run."]


LIMITED = {"cap": "3.0", "most_epsilon_per_period": "1.0", "period": "12 hours"}


def test_what_is_left_in_the_period(tmp_path, monkeypatch):
    now = [1_000_000]
    monkeypatch.setattr(policy, "now", lambda: now[0])
    config = made(tmp_path / "v", **LIMITED)
    empty = {"most": "1.0", "seconds": 43_200, "budget": [], "returns_from": None}
    assert status(config.folder).document()["period"] == empty | {"returned_by": None}
    ask(config, question(2))
    now[0] += 3600
    ask(config, question(2, number=2))
    found = status(config.folder)
    assert found.document()["period"] == {
        "most": "1.0",
        "seconds": 43_200,
        "budget": [{"left": "1.0", "vehicles": 1}, {"left": "0.0", "vehicles": 4}],
        "returns_from": iso(1_000_000 + 43_201),
        "returned_by": iso(1_003_600 + 43_201),
    }
    names = [name for name, _ in found.rows]
    of_period = ["period", "1.0 left now", "0.0 left now"]
    assert names[2:] == ["3.0 left", "2.0 left", *of_period, "questions"]
    said = dict(found.rows)["period"]
    assert said.startswith("each vehicle spends at most 1.0 in any 12 hours; what was spent return")
    assert found.warnings == []
    ask(config, question(1, number=3))
    [text] = status(config.folder).warnings
    assert text.startswith("no vehicle has anything left in this period: what was spent returns")
    now[0] += 43_201
    assert status(config.folder).warnings == []
    assert status(config.folder).document()["period"]["budget"] == [{"left": "1.0", "vehicles": 5}]


def test_the_period_is_the_same_for_all_data(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "time", lambda: 0.0)
    monkeypatch.setattr(policy, "now", lambda: 1_000_000)
    found = []
    for name, rows in (("a", ROWS), ("b", OTHERS)):
        config = made(tmp_path / name, rows, **LIMITED)
        ask(config, question(3), question(3, number=2), question(3, number=3))
        one = status(config.folder)
        found.append((one.document() | {"name": "", "next": ""}, one.rows, one.warnings))
    assert found[0] == found[1]


def test_a_sealed_ledger_needs_attention(tmp_path):
    config = made(tmp_path / "v")
    ask(config, question(5))
    ledger.seal(config.ledger_path)
    assert any("the ledger was sealed on" in text for text in status(config.folder).attention)


@pytest.mark.parametrize("name", ["ledger.db", "state/vault.json", "vault.toml"])
def test_a_damaged_file_is_said(tmp_path, name):
    config = made(tmp_path / "v")
    ask(config, question(5))
    (config.folder / name).write_bytes(b"\xff damaged")
    found = status(config.folder)
    assert any(name.rpartition("/")[2] in text for text in found.attention)
    assert found.document()["part"] == "vault"


def test_a_running_vault_is_not_disturbed(tmp_path):
    config = made(tmp_path / "v")
    ask(config, question(2))
    with config.ledger() as held:
        found = {}

        def answers(able):
            found["budget"] = status(config.folder).document()["budget"]  # in its transaction
            return dict.fromkeys(able, b"x")

        held.release_many(["0", "1", "2"], 1.0, "r", b"q", answers, job="summer")
    assert found["budget"] == [{"left": "2.0", "vehicles": 3}, {"left": "1.0", "vehicles": 2}]


@needs_root
def test_another_user_is_told_why_nothing_is_shown(tmp_path):
    config = made(tmp_path / "v")
    ask(config, question(2))
    tmp_path.chmod(0o755)
    for path in (config.folder, *tmp_path.parents):
        if path.stat().st_uid == os.geteuid() and path.is_relative_to("/tmp"):
            path.chmod(path.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
    (config.folder / state.STATE).chmod(0o700)
    VaultConfig.load(config.folder)
    attention = forked(lambda: list(status(config.folder).attention), uid=NOBODY)
    assert any("This user may not read" in text for text in attention)
    assert any("ledger" in text for text in attention)


@needs_root
def test_another_user_is_told_which_folders_are_closed(tmp_path):
    config = made(tmp_path / "vault-1")
    config.folder.chmod(0o700)
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == os.geteuid() and path.is_relative_to("/tmp"):
            path.chmod(path.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)

    def refused(folder):
        with pytest.raises(DomainError) as error:
            read(folder)
        return str(error.value)

    assert "may not look into vault-1" in forked(lambda: refused(tmp_path), uid=NOBODY)
    assert "Permission denied" in forked(lambda: refused(config.folder), uid=NOBODY)
