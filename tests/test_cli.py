"""The command line, run as a user would."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

import fedldp
from fedldp.cli.app import fedldp as command


def run(*arguments):
    result = CliRunner().invoke(command, arguments, env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    assert max(len(line) for line in result.output.splitlines()) <= 80
    return result.output


def test_ranking():
    output = run("mechanisms", "--epsilon", "1")
    positions = [output.index(f"│ {name} ") for name in ("hm", "hm-tp", "duchi", "laplace")]
    assert positions == sorted(positions)
    assert "4.4176" in output


def test_ranking_as_json():
    document = json.loads(run("mechanisms", "--epsilon", "2", "--json"))
    assert document["epsilon"] == 2.0
    assert {row["name"] for row in document["mechanisms"]} == set(fedldp.mechanisms())
    variances = [row["worst_case_variance"] for row in document["mechanisms"]]
    assert variances == sorted(variances)
    for row in document["mechanisms"]:
        m = fedldp.mechanism(row["name"], 2.0)
        assert row["worst_case_variance"] == m.worst_case_variance


def test_tables_and_claims():
    output = run("mechanisms", "--table")
    assert output.count("│ yes") == 9
    assert "FAILS" in output
    document = json.loads(run("mechanisms", "--table", "--json"))
    assert [len(rows) for rows in document["tables"].values()] == [3, 6]
    assert [claim["holds"] for claim in document["claims"]].count(False) == 2


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_plot(tmp_path, suffix, magic):
    path = tmp_path / f"compare.{suffix}"
    assert "Wrote" in run("mechanisms", "--plot", str(path))
    assert path.read_bytes().startswith(magic)


def test_help_teaches():
    assert "mechanisms" in run("--help")
    assert "fedldp mechanisms --epsilon 1" in run("mechanisms", "-h")
    assert fedldp.__version__ in run("--version")


def fedldp_without(module, *arguments):
    """Run the command in a process in which a package cannot be imported."""
    program = (
        f"import sys; sys.modules[{module!r}] = None; "
        "import fedldp.cli; sys.argv[0] = 'fedldp'; fedldp.cli.main()"
    )
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True
    )


def test_an_error_is_one_line_that_says_what_to_do():
    done = fedldp_without("antigravity", "mechanisms", "--epsilon", "0")
    assert done.returncode == 1
    assert done.stderr.startswith("fedldp: epsilon must be a number from 0.001 to 20; got 0.0.")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("module", "arguments", "extra"),
    [
        ("click", [], "cli"),
        ("rich", [], "cli"),
        ("matplotlib", ["mechanisms", "--plot", "x.png"], "plots"),
    ],
)
def test_a_missing_extra_is_named(module, arguments, extra):
    done = fedldp_without(module, *arguments)
    assert done.returncode == 1
    assert done.stderr == (
        f"fedldp: {module} is not installed. Install it with: pip install 'fedldp[{extra}]'\n"
    )
