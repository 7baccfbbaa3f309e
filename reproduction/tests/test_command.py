"""`fedldp-reproduce` on the command line."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.shell_completion import get_completion_class
from click.testing import CliRunner
from theory_results import computed

from fedldp.errors import DomainError
from fedldp_reproduction import runner, theory
from fedldp_reproduction.command import duration, reproduce_command
from fedldp_reproduction.figures import description
from fedldp_reproduction.theory import claims

QUICK = ("table-1", "density")  # those that take no time
UNUSED = ("ipums", "wisdm2019", "flights", "gaussian-0")  # data sets that no figure reads by name


def invoke(*arguments):
    runner = CliRunner(env={"COLUMNS": "200"})
    result = runner.invoke(reproduce_command, [str(each) for each in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def run(*arguments):
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return result


def test_the_list_has_every_figure():
    known = description().figures
    listed = json.loads(run("--list", "--json").stdout)
    assert [each["key"] for each in listed] == list(known)
    assert set(theory.FIGURES) <= set(known)
    shown = run("--list").stdout
    for key, figure in known.items():
        assert key in shown
        assert figure.title in shown
    assert [each["key"] for each in json.loads(run("svm", "--list", "--json").stdout)] == ["svm"]


def test_figures_end_in_a_report_and_a_table_of_claims(tmp_path):
    output = tmp_path / "new" / "folder"
    found = run(*QUICK, "--output", output)
    names = {path.name for path in output.iterdir()}
    tables = {"report.html", "claims.csv", "environment.txt"}
    assert names == tables | {"density.csv", "density.svg", "density.png"}
    assert str(output / "report.html") in found.stdout
    for verdict in computed("table-1").verdicts:
        assert verdict.claim in found.stdout
    *lines, last = found.stderr.splitlines()
    assert [line.split(":")[0] for line in lines] == ["1/2 table-1", "2/2 density"]
    known = len(description().figures)
    assert f"holds only what was asked for: 2 of {known} figures" in last
    page = (output / "report.html").read_text("utf-8")
    assert "profile “default”" in page
    assert "figures are finished" not in page


def test_a_report_of_all_figures_has_no_warning(tmp_path, monkeypatch):
    known = description().figures

    def fake(figures, *_):
        yield from (replace(computed("table-1"), key=figure.key) for figure in figures)

    monkeypatch.setattr(runner, "reproduce", fake)
    assert len(run("-o", tmp_path).stderr.splitlines()) == len(known)
    assert "asked for" not in (tmp_path / "report.html").read_text("utf-8")


def test_scripts_get_json(tmp_path):
    found = json.loads(run("density", "--quick", "--json", "-o", tmp_path).stdout)
    expected = computed("density")
    assert found["profile"] == "quick"
    assert found["report"] == str(tmp_path / "report.html")
    assert [each["claim"] for each in found["claims"]] == [v.claim for v in expected.verdicts]
    assert sum(found["verdicts"].values()) == len(expected.verdicts)
    assert found["figures"][0]["settings"] == list(expected.settings)


def test_a_figure_asked_for_twice_is_drawn_once(tmp_path):
    found = run("density", "density", "-o", tmp_path, "--json")
    assert len(json.loads(found.stdout)["figures"]) == 1


def test_what_is_not_there_is_refused_with_what_is(tmp_path):
    with pytest.raises(DomainError, match=r"no figure 'tabel-1'.*table-1, table-2"):
        invoke("tabel-1", "-o", tmp_path / "none")
    for given, wrong in (
        ("mx", "NAME=FILE"),
        ("mars=a.csv", "br, mx, vehicle, wisdm"),
        *((f"{name}={__file__}", "WISDM 2019 goes under wisdm") for name in UNUSED),
        (f"mx={tmp_path / 'none'}", "does not exist"),
    ):
        refused = invoke("density", "--data", given, "-o", tmp_path / "none")
        assert refused.exit_code == 2
        assert wrong in " ".join(refused.stderr.split())
    assert not (tmp_path / "none").exists()


def test_options_reach_the_runner(tmp_path, monkeypatch):
    seen = []

    def fake(*arguments):
        seen.extend(arguments[:-1])
        yield computed("density")

    monkeypatch.setattr(runner, "reproduce", fake)
    extract = tmp_path / "mexico.toml"
    extract.touch()
    run("density", "--full", "--jobs", 3, "--data", f"mx={extract}", "-o", tmp_path)
    figure = description().figure("density")
    assert seen == [[figure], "full", {"mx": extract}, tmp_path / "runs", 3]


def test_people_are_told_how_long_it_takes(tmp_path, monkeypatch):
    def fake(*arguments):
        progress = arguments[-1]
        progress(0, 8, None)
        yield computed("table-1")
        progress(2, 8, 600.0)
        yield computed("density")

    monkeypatch.setattr(runner, "reproduce", fake)
    lines = run(*QUICK, "-o", tmp_path).stderr.splitlines()
    assert "left" not in lines[0]
    assert lines[1].endswith(", 10 min left")
    assert (duration(119), duration(7199), duration(7200)) == ("119 s", "120 min", "2 h")


def test_stopped_it_leaves_what_is_finished(tmp_path, monkeypatch):
    def stopped(*_):
        yield computed("table-1")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runner, "reproduce", stopped)
        result = invoke(*QUICK, "-o", tmp_path)
    assert result.exit_code == 130
    assert "Stopped. 1 of 2 figures are in" in result.stderr
    assert "the same command resumes" in result.stderr
    assert "1 of 2 figures are finished" in (tmp_path / "report.html").read_text("utf-8")
    run(*QUICK, "-o", tmp_path)
    assert "figures are finished" not in (tmp_path / "report.html").read_text("utf-8")


def test_a_measured_figure_is_measured_once(tmp_path, monkeypatch):
    def reproduce():
        reproduce_command.callback(
            keys=("svm-outputs",),
            profile="test",  # which people are not offered
            output=tmp_path,
            paths={},
            jobs=1,
            page=None,
            listed=False,
            as_json=True,
        )
        return {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}

    before = reproduce()
    assert "SYNTHETIC" in before["report.html"].decode()
    assert len(before["svm-outputs.csv"].splitlines()) > 5

    def never(*_):
        raise AssertionError("this is finished")

    monkeypatch.setattr(runner, "run", never)
    assert reproduce() == before


def test_named_figures_are_shown_with_their_tables_and_numbers(tmp_path):
    shown = " ".join(run("table-1", "table-3", "-o", tmp_path).stdout.split())
    assert "Computed: duchi < pm < laplace" in shown
    assert "equal to duchi" in shown  # where HM is not lower
    heading, *_ = computed("table-3").table
    assert all(name in shown for name in heading)
    found = json.loads(run("table-3", "-o", tmp_path, "--json").stdout)
    assert found["figures"][0]["table"][0] == list(heading)


def test_tables_and_claims_about_variances(tmp_path):
    keys = ("table-1", "table-2", "worst-case-variance")
    found = json.loads(run(*keys, "-o", tmp_path, "--json").stdout)["claims"]
    rows = [each for each in found if each["claim"].endswith(("(Table I)", "(Table II)"))]
    assert [each["verdict"] for each in rows] == ["holds"] * 9
    assert {each["claim"] for each in found if each["verdict"] == "fails"} == {
        claim.text for claim in claims.CLAIMS if claim.name == "hm-tp"
    }
    assert len(found) == 9 + len(claims.CLAIMS)


def test_help_teaches_by_examples_that_are_understood(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(reproduce_command, ["--help"], env={"COLUMNS": "80"}).output
    assert max(map(len, shown.splitlines())) <= 80
    examples = re.findall(r"^  fedldp-reproduce (.*?)(?:  .*)?$", shown, re.MULTILINE)
    assert len(examples) >= 6
    for words in map(str.split, examples):
        for file in (word.partition("=")[2] or word for word in words if "." in word):
            Path(file).parent.mkdir(exist_ok=True)
            Path(file).touch()
        with reproduce_command.make_context("fedldp-reproduce", words) as context:
            assert set(context.params["keys"]) <= description().figures.keys()


def test_a_tab_completes_figures():
    shell = get_completion_class("bash")(reproduce_command, {}, "fedldp-reproduce", "")
    found = {shell.format_completion(each) for each in shell.get_completions([], "table")}
    assert found == {"plain,table-1", "plain,table-2", "plain,table-3"}


def program(*arguments, **env):
    """Run the installed command, as a user would."""
    return subprocess.run(
        [Path(sys.executable).with_name("fedldp-reproduce"), *arguments],
        env=os.environ | env,
        capture_output=True,
        text=True,
    )


def test_the_installed_command_completes_and_refuses_in_one_line():
    taught = program(_FEDLDP_REPRODUCE_COMPLETE="bash_source")  # as the help has it
    assert "complete -o nosort -F _fedldp_reproduce_completion fedldp-reproduce" in taught.stdout
    done = program("tabel-1")
    assert done.returncode == 1
    assert done.stderr.startswith("fedldp-reproduce: there is no figure 'tabel-1' (did you mean")
    assert done.stderr.count("\n") == 1
