"""The command line, run as a user would."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import fedldp
from fedldp import _plots as plots
from fedldp.cli.app import fedldp as command
from fedldp.errors import MissingExtra
from fedldp.mechanisms import HMTP, Optimal, ThreeOutputs
from fedldp.plan.strategies import PLAN_MECHANISM, Sample


def run(*arguments):
    result = CliRunner().invoke(command, arguments, env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    if "--json" not in arguments:  # which is for scripts
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
    assert {row["name"] for row in document["mechanisms"]} == set(fedldp.mechanism_names())
    variances = [row["worst_case_variance"] for row in document["mechanisms"]]
    assert variances == sorted(variances)
    for row in document["mechanisms"]:
        m = fedldp.mechanism(row["name"], 2.0)
        assert row["worst_case_variance"] == m.worst_case_variance
        assert row["variance_at_zero"] == m.variance(0.0)


def test_ranking_leaves_out_what_does_not_exist_for_an_epsilon():
    document = json.loads(run("mechanisms", "--epsilon", "20", "--json"))
    names = {row["name"] for row in document["mechanisms"]}
    assert names == set(fedldp.mechanism_names()) - {"optimal", "dominant", "near-zero"}
    assert "three-outputs-flat" in run("mechanisms", "--epsilon", "20")


@pytest.mark.parametrize(
    ("words", "suffix", "magic"),
    [([], "png", b"\x89PNG"), (["--inputs", "--epsilon", "1"], "svg", b"<?xml")],
)
def test_plot(tmp_path, monkeypatch, words, suffix, magic):
    monkeypatch.chdir(tmp_path)
    assert "Wrote" in run("mechanisms", *words, "--plot", f"compare.{suffix}")
    assert Path(f"compare.{suffix}").read_bytes().startswith(magic)


@pytest.mark.parametrize("flag", ["--bits", "--inputs"])
def test_other_plots(tmp_path, monkeypatch, flag):
    monkeypatch.chdir(tmp_path)
    run("mechanisms", flag, "--epsilon", "1", "--plot", "one.png")
    assert Path("one.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--plot", "no_such_folder/x.png"], "there is no folder"),
        (["--plot", "x.xyz"], "must end in .png, .svg, .pdf"),
        (["--plot", ""], "must end in .png"),
        (["--inputs", "--bits"], "choose either --bits or --inputs"),
        (["--epsilon", "21"], "epsilon must be a number from 0.001 to 20 for study; got 21.0"),
    ],
)
def test_bad_arguments_are_refused_before_any_work(arguments, said):
    result = CliRunner().invoke(command, ["mechanisms", *arguments])
    assert result.exit_code != 0
    assert said in result.output + str(result.exception)


def test_bits():
    document = json.loads(run("mechanisms", "--bits", "--epsilon", "1", "--json"))
    above = [row["above_bound"] for row in document["channels"]]
    assert above == sorted(above, reverse=True)
    assert above[0] > 0.17
    assert 0 < above[-1] < 0.002
    assert "No unbiased mechanism can go below 3.98" in run("mechanisms", "--bits")


def test_inputs():
    document = json.loads(run("mechanisms", "--inputs", "--epsilon", "4", "--json"))
    variances = {row["name"]: row["variance"] for row in document["mechanisms"]}
    assert variances["hm-tp"] == HMTP(4.0).variance(document["x"]).tolist()
    assert all(d < h for d, h in zip(variances["dominant"], variances["hm-tp"], strict=True))
    assert "near-zero" in run("mechanisms", "--inputs", "--epsilon", "4")


def test_the_pictures_show_what_they_say():
    figure = plots.compare_mechanisms()
    absolute, relative, zero = figure.axes
    labels = [line.get_label() for line in absolute.lines]
    assert {label.split()[0] for label in labels} == set(fedldp.mechanism_names())
    statistics = PLAN_MECHANISM
    gradients = Sample().for_gradients(1.0).mechanism
    assert f"{statistics} (default for statistics)" in labels
    assert f"{gradients} (default for sampled gradients)" in labels
    for line, other in zip(absolute.lines, relative.lines, strict=True):
        name = line.get_label().split()[0]
        for epsilon, variance in [*zip(*line.get_data(), strict=True)][5::100]:
            assert variance == fedldp.mechanism(name, epsilon).worst_case_variance
        epsilon, ratio = other.get_xdata()[5], other.get_ydata()[5]
        least = Optimal(epsilon).worst_case_variance
        assert ratio == fedldp.mechanism(name, epsilon).worst_case_variance / least
    assert zero.lines[0].get_ydata()[100] == ThreeOutputs(zero.lines[0].get_xdata()[100]).a
    for line in plots.variance_over_inputs(4.0).axes[0].lines:
        m = fedldp.mechanism(line.get_label(), 4.0)
        np.testing.assert_array_equal(line.get_ydata(), m.variance(line.get_xdata()))


def test_python_m_fedldp():
    done = subprocess.run(
        [sys.executable, "-m", "fedldp", "--version"], capture_output=True, text=True
    )
    assert fedldp.__version__ in done.stdout


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
    assert done.stderr.startswith(
        "fedldp: epsilon must be a number from 0.001 to 20 for study; got 0.0."
    )
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("module", "arguments", "extra", "packages"),
    [
        ("click", [], "cli", ["click", "rich"]),
        ("rich", ["mechanisms"], "cli", ["click", "rich"]),
        ("matplotlib", ["mechanisms", "--plot", "x.png"], "plots", ["matplotlib"]),
    ],
)
def test_a_missing_extra_is_named_with_a_command_that_needs_no_index(
    module, arguments, extra, packages
):
    done = fedldp_without(module, *arguments)
    assert done.returncode == 1
    command = " ".join(rf"'{name}>=[\d.]+'" for name in packages)
    expected = f"fedldp: {module} is not installed. Install the extra '{extra}' with: pip install "
    assert re.fullmatch(re.escape(expected) + command + "\n", done.stderr)


def test_the_packages_of_an_extra_include_those_of_the_extras_it_names():
    message = str(MissingExtra("pyarrow", "parquet"))
    assert re.search(r"pip install 'narwhals>=[\d.]+' 'pyarrow>=[\d.]+'$", message)


# Suggestions, and tables in pipes


def test_a_misspelt_command_gets_a_suggestion():
    result = CliRunner().invoke(command, ["colect"])
    assert result.exit_code == 2
    assert "No such command 'colect'. Did you mean 'collect'?" in result.output
    assert "Did you mean" not in CliRunner().invoke(command, ["xyzzy"]).output


def test_a_table_in_a_pipe_keeps_long_names_in_one_line(tmp_path):
    names = [f"Vehicle.Cabin.Door.Row{i}.DriverSide.Window.Position" for i in range(3)]
    data, schema = tmp_path / "fleet.csv", tmp_path / "fleet.toml"
    data.write_text(",".join(names) + "\n" + "1,2,3\n" * 50)
    schema.write_text("".join(f'["{name}"]\nlow = 0\nhigh = 100\n' for name in names))
    words = [sys.executable, "-m", "fedldp", "collect", str(data), "--schema", str(schema)]
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    done = subprocess.run(
        [*words, "--epsilon", "2", "--seed", "1"], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    for name in names:
        assert name in done.stdout
    assert len(done.stdout.splitlines()) < 15


@pytest.mark.parametrize("arguments", [["report", "plan.json", "--vehicle", "7"], ["colect"]])
def test_errors_never_reach_standard_output(arguments):
    """Not even if standard error is closed, where click would print them."""
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" "$@" 2>&-', sys.executable, "-m", "fedldp", *arguments],
        stdout=subprocess.PIPE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, b"")
