"""`fedldp fleet status` and `fedldp ledger show`: for people, for scripts, with an exit status."""

import json
import time
from fractions import Fraction

import pytest
from click.testing import CliRunner
from vault_folders import configured

from fedldp.budget.composition import Composition
from fedldp.budget.ledger import Ledger
from fedldp.cli.app import fedldp
from fedldp.cli.fleet import status as module
from fedldp.fleet import state
from fedldp.fleet.logs import Line
from fedldp.fleet.status import Status, read


def run(*words):
    return CliRunner().invoke(fedldp, [*map(str, words)], env={"COLUMNS": "200"})


@pytest.fixture
def folder(tmp_path):
    """A vault of four vehicles, of which one is in two rows."""
    found = tmp_path / "fleet" / "vault-1"
    found.mkdir(parents=True)
    (found / "rows.csv").write_text("id,speed,city\na,31,Rome\nb,900,Oslo\nc,3,Oslo\nd,3,Bergen\n")
    configured(found, vehicle="id", cap="2.0")
    return found


@pytest.fixture
def spent(folder):
    with configured(folder, vehicle="id", cap="2.0").ledger() as ledger:
        answers = {"x": b"report"}
        for job, ids in (("spring", ["a", "b"]), ("summer", ["a", "gone"])):
            ledger.release_many(
                ids, 0.5, f"{job}/1", b"", lambda able: dict.fromkeys(able, answers["x"]), job=job
            )
    return folder


def test_a_fleet_is_the_parts_in_its_folder(folder):
    for name in (".", ".."):
        found = run("fleet", "status", folder / name, "--json")
        [document] = json.loads(found.stdout)
        assert (document["format"], document["name"]) == ("fedldp status 1", "vault-1")
        assert document == read(folder)[0].document()
    assert found.exit_code == 1  # the vault does not run


def test_it_looks_in_the_current_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert "vault-1 (vault) does not run" in run("fleet", "status").stdout


def test_people_see_what_needs_attention(spent):
    found = run("fleet", "status", spent)
    assert found.exit_code == 1
    lines = [" ".join(line.split()) for line in found.stdout.splitlines()]
    assert "attention the vault does not run." in lines
    assert f"next Start the vault: fedldp fleet vault {spent.resolve()}" in lines
    assert "spring 1 2 0" in lines


def test_nothing_needs_attention(spent):
    with state.hold(spent / state.STATE):
        found = run("fleet", "status", spent)
    assert found.exit_code == 0, found.output
    assert "vault-1 (vault) runs since" in found.stdout


def test_a_warning_is_shown_and_is_no_error(folder):
    """Every budget is spent: the end of a job, and not an alarm for whoever watches the status."""
    with configured(folder, vehicle="id", cap="0.5").ledger() as ledger:
        produce = lambda able: dict.fromkeys(able, b"report")  # noqa: E731
        ledger.release_many([*"abcd"], 0.5, "spring/1", b"", produce, job="spring")
    with state.hold(folder / state.STATE):
        found = run("fleet", "status", folder)
    assert found.exit_code == 0, found.output
    lines = [" ".join(line.split()) for line in found.stdout.splitlines()]
    assert "warning no vehicle has anything left of its cap." in lines
    assert not any(line.startswith("attention") for line in lines)
    found = run("fleet", "status", folder)
    assert found.exit_code == 1  # the vault does not run


def test_what_needs_attention_is_not_shown_twice():
    shown = Status("server", "s", True, warnings=["a", "b"], attention=["b"], next="-")
    console = module.console(width=200, record=True, force_terminal=False)
    with console.capture() as captured:
        console.print(module.rendered([shown]))
    lines = [" ".join(line.split()) for line in captured.get().splitlines()[1:]]
    assert lines == ["warning a", "attention b", "next -"]


def test_a_folder_without_parts_is_refused(tmp_path):
    found = run("fleet", "status", tmp_path)
    assert found.exit_code == 1
    assert "expected the folder of a part of a fleet" in str(found.exception)


@pytest.mark.parametrize("words", [["--watch"], ["--watch", "0.5"], ["--watch", "--json"]])
def test_it_looks_again_until_it_is_interrupted(folder, words, monkeypatch):
    waited = []

    def sleep(seconds):
        waited.append(seconds)
        if len(waited) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(module.time, "sleep", sleep)
    found = run("fleet", "status", folder, *words)
    assert found.exit_code == 0
    assert waited == [0.5 if "0.5" in words else module.EVERY] * 3
    if "--json" in words:
        lines = found.stdout.splitlines()
        assert [json.loads(line)[0]["name"] for line in lines] == ["vault-1"] * 3
    else:
        assert found.stdout.count("vault-1 (vault)") == 3


def test_markup_of_strangers_is_not_interpreted():
    now = time.strftime("%Y-%m-%dT%H:%M:%S+00:00")
    text = "[red]a job[/red]"
    shown = Status(
        "vault",
        "v",
        True,
        rows=[("job", text)],
        table=[("job",), (text,)],
        errors=[Line(now, "WARNING", text)],
        attention=[text],
        next=text,
    )
    console = module.console(width=200, record=True, force_terminal=False)
    with console.capture() as captured:
        console.print(module.rendered([shown]))
    assert captured.get().count(text) == 5


# fedldp ledger show


def test_the_owner_sees_what_is_left(spent):
    found = run("ledger", "show", spent)
    assert found.exit_code == 0, found.output
    lines = [" ".join(line.replace("#", "").split()) for line in found.stdout.splitlines()]
    assert "cap 2.0 for the life of a vehicle" in lines
    assert "vehicles 4, and 1 that are no longer in the data" in lines
    assert {"2.0 2", "1.5 2", "1.0 1"} <= set(lines)
    assert {"spring 1 2", "summer 1 2"} <= set(lines)
    assert any("4 rows: 2 values are clipped or replaced" in line for line in lines)
    assert "speed: 1 of 4 (25%) clipped to [0, 50]" in found.stdout


def test_what_is_left_in_the_period(folder):
    limits = {"most_epsilon_per_period": "0.75", "period": "30 days"}
    vault = configured(folder, vehicle="id", cap="2.0", **limits)
    produce = lambda able: dict.fromkeys(able, b"report")  # noqa: E731
    with vault.ledger() as ledger:
        ledger.release_many(["a", "b"], 0.5, "spring/1", b"", produce, job="spring")
    found = run("ledger", "show", folder)
    lines = [" ".join(line.replace("#", "").split()) for line in found.stdout.splitlines()]
    at = next(i for i, line in enumerate(lines) if "each vehicle spends at most 0.75" in line)
    assert "in any 30 days; what was spent returns at 20" in lines[at]
    assert lines[at + 1 : at + 4] == ["left now vehicles", "0.75 2", "0.25 2"]
    period = json.loads(run("ledger", "show", folder, "--json").stdout)["period"]
    assert period["budget"] == [{"left": "0.75", "vehicles": 2}, {"left": "0.25", "vehicles": 2}]
    assert period == read(folder)[0].document()["period"] | {"budget": period["budget"]}


def test_scripts_see_it_too(spent):
    document = json.loads(run("ledger", "show", spent, "--json").stdout)
    assert document["budget"] == [
        {"left": "2.0", "vehicles": 2},
        {"left": "1.5", "vehicles": 2},
        {"left": "1.0", "vehicles": 1},
    ]
    assert document["jobs"][0] == {"job": "spring", "questions": 1, "answers": 2}
    assert (document["vehicles"], document["vehicles_gone"]) == (4, 1)
    assert (document["data"]["rows"], document["data"]["changed"]) == (4, 2)


def test_a_file_alone_shows_what_was_spent(spent):
    path = spent / "ledger.db"
    document = json.loads(run("ledger", "show", path, "--json").stdout)
    assert document["budget"] == [{"spent": "0.5", "vehicles": 2}, {"spent": "1.0", "vehicles": 1}]
    assert (document["cap"], document["data"]) == (None, None)
    document = json.loads(run("ledger", "show", path, "--cap", "1", "--json").stdout)
    assert document["budget"] == [{"left": "0.5", "vehicles": 2}, {"left": "0.0", "vehicles": 1}]
    assert "--cap must be a positive number" in str(
        run("ledger", "show", path, "--cap", "x").exception
    )


def test_many_answers_have_a_second_number(tmp_path):
    """What it is worth is tested in tests/budget/test_composition.py."""
    with Ledger.create(tmp_path / "ledger.db", cap=40) as ledger:
        for day in range(365):
            ledger.release("a", 0.1, f"day {day}", lambda: b"report")
        ledger.release("b", 5, "day 1", lambda: b"report")
    document = json.loads(run("ledger", "show", ledger.path, "--json").stdout)
    second = Composition.of({Fraction(1, 10): 365}).approximate(1e-6)
    assert document["composition"] == {
        "epsilon": 36.5,
        "approximate_epsilon": second,
        "delta": 1e-6,
    }
    printed = " ".join(run("ledger", "show", ledger.path, "--delta", "1e-3").stdout.split())
    less = Composition.of({Fraction(1, 10): 365}).approximate(1e-3)
    assert f"spent at most 36.5 by one vehicle; together ({less:.3g}, 0.001)-private" in printed


def test_a_vault_that_has_never_answered(folder):
    document = json.loads(run("ledger", "show", folder, "--json").stdout)
    assert document["composition"] is None
    found = run("ledger", "show", folder)
    assert found.exit_code == 0, found.output
    assert "2.0" in found.stdout


def test_a_vault_whose_ledger_is_missing(folder):
    """To make it anew would forget what was spent."""
    (folder / "ledger.db").unlink()
    for words in (("ledger", "show", folder), ("fleet", "status", folder)):
        done = run(*words)
        assert done.exit_code == 1
        assert "ledger.db" in done.output + str(done.exception)
    assert not (folder / "ledger.db").exists()


def test_showing_changes_nothing_and_waits_for_nobody(spent):
    before = (spent / "ledger.db").read_bytes()
    found = {}
    with configured(spent, vehicle="id", cap="2.0").ledger() as ledger:

        def produce(able):
            found["shown"] = run("ledger", "show", spent, "--json")  # while the vault writes
            return dict.fromkeys(able, b"report")

        ledger.release_many(["c"], 0.5, "autumn/1", b"", produce, job="autumn")
    assert len(json.loads(found["shown"].stdout)["jobs"]) == 2
    after = (spent / "ledger.db").read_bytes()
    run("ledger", "show", spent)
    assert (spent / "ledger.db").read_bytes() == after != before
    assert not (spent / "ledger.db-wal").exists()
