"""The distribution alone: its wheel in an environment that has nothing else.

Its ledgers are those of fedldp: what one has written, the other continues.
"""

import json
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

import fedldp
from fedldp.budget import ledger as ledgers

FOLDER = Path(__file__).parents[1]
SOURCES = {
    "fedldp_vehicle/fleet/": FOLDER.parent / "fleet" / "fedldp_fleet",
    "fedldp_vehicle/": FOLDER.parent / "src" / "fedldp",
}
OWN = {
    "__init__.py",
    "__main__.py",
    "agent.py",
    "command.py",
    "fleet/__init__.py",
    "fleet/common.py",
}
PLAN = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), epsilon=1.0)
CALENDAR = fedldp.Calendar(PLAN, periods=3, answers=3)


@pytest.fixture
def run(bin_folder, tmp_path):
    """Return a function that runs the command in a folder with a plan, a calendar and a row."""
    (tmp_path / "plan.json").write_text(PLAN.to_json())
    (tmp_path / "calendar.json").write_text(CALENDAR.to_json())
    (tmp_path / "row.json").write_text('{"speed": 31}')

    def run(*words, status=0, given=None):
        command = [bin_folder / "fedldp-vehicle", *map(str, words)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, input=given)
        assert done.returncode == status, done.stderr.decode()
        return done

    return run


def ask(run, *options, plan="plan.json", cap=2, **expected):
    common = "--cap", cap, "--ledger", "ledger.db"
    return run("report", plan, "row.json", *common, *options, **expected)


def source(name):
    """Return the file that a file of the package is a copy of."""
    prefix = next(each for each in SOURCES if name.startswith(each))
    return SOURCES[prefix] / name.removeprefix(prefix)


def contents(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_has_the_files_of_fedldp(wheel):
    found = contents(wheel)
    modules = {name for name in found if name.endswith(".py")}
    assert "fedldp_vehicle/vehicle.py" in modules
    for name in modules - {f"fedldp_vehicle/{each}" for each in OWN}:
        assert found[name] == source(name).read_bytes(), name


def test_the_sdist_builds_the_same_wheel(wheel, built, tmp_path):
    with tarfile.open(built(FOLDER, "build_sdist", tmp_path)) as archive:
        assert not any(member.issym() for member in archive.getmembers())
        archive.extractall(tmp_path / "source", filter="data")
    [source] = (tmp_path / "source").iterdir()
    again = built(source, "build_wheel", tmp_path)
    assert contents(again) == contents(wheel)


def test_it_needs_no_other_package(bin_folder):
    code = """
import fedldp_vehicle, fedldp_vehicle.agent, fedldp_vehicle.command, sys
known = sys.stdlib_module_names | {"fedldp_vehicle", "__main__"}
print(sorted({name.partition(".")[0] for name in sys.modules} - known))
"""
    words = [bin_folder / "python", "-I", "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert [each for each in eval(done.stdout) if not each.startswith("_")] == []


def test_a_plan_is_answered_once_and_repeated_at_no_cost(run, tmp_path):
    assert b"nothing is spent" in run("ledger", "init", "ledger.db").stdout
    first = ask(run, "--job", "spring").stdout
    assert PLAN.parse(first).reports == 1
    assert ask(run, "--job", "spring").stdout == first
    assert (
        b"answered the job 'spring'" in ask(run, "--job", "spring", "--round", 2, status=1).stderr
    )
    with fedldp.Ledger(tmp_path / "ledger.db", cap=2) as ledger:
        assert ledger.totals() == {"vehicle": 1}
    shown = run("ledger", "show", "ledger.db", "--cap", 2).stdout.decode()
    assert shown.splitlines() == ["vehicle: 1 spent, 1 left", "spring: 1 questions, 1 answers"]


def test_the_cap_holds(run):
    run("ledger", "init", "ledger.db")
    assert b"the cap is 1/2" in ask(run, cap=0.5, status=1).stderr
    ask(run, "--round", 1)
    ask(run, "--round", 2)
    refused = ask(run, "--round", 3, status=1)
    assert refused.stdout == b""
    assert b"'vehicle' has spent 2 of its cap of 2" in refused.stderr


def test_fedldp_continues_a_ledger_and_the_other_way_round(run, tmp_path):
    run("ledger", "init", "ledger.db")
    first = ask(run, "--job", "spring").stdout
    with fedldp.Ledger(tmp_path / "ledger.db", cap=2) as ledger:
        car = fedldp.Vehicle(ledger)
        assert car.answer(PLAN, {"speed": 31}, job="spring").report == first
        second = car.answer(PLAN, {"speed": 31}, job="summer", run="summer").report
        with pytest.raises(fedldp.errors.BudgetError):
            car.answer(PLAN, {"speed": 31}, job="autumn")
    assert ask(run, "--job", "summer").stdout == second
    assert b"more is too much" in ask(run, "--job", "autumn", status=1).stderr


def test_a_calendar_is_answered_in_its_periods(run, tmp_path):
    run("ledger", "init", "ledger.db")
    first = ask(run, "--period", 1, plan="calendar.json", cap=3).stdout
    assert PLAN.parse(first).reports == 1
    assert ask(run, "--period", 1, plan="calendar.json", cap=3).stdout == first
    with fedldp.Ledger(tmp_path / "ledger.db", cap=3) as ledger:
        assert fedldp.Vehicle(ledger).answer_period(CALENDAR, 1, {}).report == first
    assert b"give --period, from 1 to 3" in ask(run, plan="calendar.json", cap=3, status=2).stderr
    assert b"leave out --period" in ask(run, "--period", 1, status=2).stderr
    options = "--period", 1, "--job", "spring"
    assert (
        b"leave out --round and" in ask(run, *options, plan="calendar.json", cap=3, status=2).stderr
    )


def test_damage_and_loss_are_refused(run, tmp_path):
    assert b"there is no ledger" in ask(run, status=1).stderr
    run("ledger", "init", "ledger.db")
    assert b"there is a ledger" in run("ledger", "init", "ledger.db", status=1).stderr
    ask(run)
    head = (tmp_path / "ledger.db-head").read_bytes()
    (tmp_path / "ledger.db-head").unlink()
    assert b"its -head is missing" in ask(run, status=1).stderr
    (tmp_path / "ledger.db-head").write_bytes(head)
    damaged = bytearray((tmp_path / "ledger.db").read_bytes())
    place = damaged.index(b"vehicle", 100)
    damaged[place] ^= 1
    (tmp_path / "ledger.db").write_bytes(damaged)
    for words in (("ledger", "show", "ledger.db"), ("ledger", "detach", "ledger.db")):
        assert b"is not a valid ledger" in run(*words, status=1).stderr
    assert b"is not a valid ledger" in ask(run, status=1).stderr
    assert b"refuses everybody from now on" in run("ledger", "seal", "ledger.db").stdout
    assert b"it was sealed on" in ask(run, status=1).stderr
    assert b"sealed since" in run("ledger", "show", "ledger.db").stdout


def test_a_mirror_takes_over(run):
    run("ledger", "init", "ledger.db")
    run("ledger", "mirror", "ledger.db", "second.db")
    first = ask(run).stdout
    run("ledger", "takeover", "second.db")
    assert b"has taken over" in ask(run, status=1).stderr
    taken = run("report", "plan.json", "row.json", "--cap", 2, "--ledger", "second.db")
    assert taken.stdout == first
    run("ledger", "mirror", "second.db", "third.db")
    assert b"never takes over" in run("ledger", "detach", "second.db").stdout


def test_what_is_no_row_spends_nothing(run, tmp_path):
    run("ledger", "init", "ledger.db")
    common = "report", "plan.json", "--cap", 1, "--ledger", "ledger.db"
    assert b"Nothing was spent" in run(*common, given=b"[31]", status=1).stderr
    strict = run(*common, "--strict", given=b'{"speed": 99}', status=1)
    assert b"speed is clipped (99)" in strict.stderr
    assert ledgers.overview(tmp_path / "ledger.db").totals == {}
    done = run(*common, "-o", "report.bin", given=b'{"speed": 99}')
    assert b"speed is clipped (99)" in done.stderr
    assert PLAN.parse((tmp_path / "report.bin").read_bytes()).reports == 1


def test_a_leaking_plan_is_refused(run, tmp_path):
    run("ledger", "init", "ledger.db")
    document = json.loads(PLAN.to_json()) | {"epsilon": "0.5"}
    (tmp_path / "plan.json").write_text(fedldp.vehicle.canonical(document))
    assert b"refused" in ask(run, status=1).stderr
    assert ledgers.overview(tmp_path / "ledger.db").totals == {}


def test_the_editable_links_are_the_same_files():
    for link in FOLDER.joinpath("fedldp_vehicle").rglob("*"):
        if link.is_symlink():
            assert link.resolve() == source(str(link.relative_to(FOLDER))).resolve()
            assert link.exists()
