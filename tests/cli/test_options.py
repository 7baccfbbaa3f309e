"""Options of commands follow from their declarations: nothing has to be listed a second time."""

from dataclasses import dataclass

import click
import pytest
from click.testing import CliRunner

from fedldp._internal.options import OneOf, option
from fedldp.cli.options import declared_option
from fedldp.cli.train import train_command


@dataclass(frozen=True)
class Recipe:
    salted: bool = option(True, OneOf((True, False)), help="Add salt.")
    very_hot: bool = option(False, OneOf((True, False)), help="Add pepper.")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], (True, False)),
        (["--no-salted", "--very-hot"], (False, True)),
        (["--salted"], (True, False)),
        (["--salt"], (True, False)),
    ],
)
def test_a_truth_value_is_a_flag_whatever_its_default(arguments, expected):
    seen = []

    @click.command
    @declared_option(Recipe, "salted", "salt")
    @declared_option(Recipe, "very_hot")
    def cook(salted, very_hot):
        seen.append((salted, very_hot))

    result = CliRunner().invoke(cook, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert seen == [expected]
    assert "--no-very-hot" not in CliRunner().invoke(cook, ["--help"]).output


def value_of(parameter):
    """Return a value of an option that its type takes."""
    kind = parameter.type
    for text in (*getattr(kind, "choices", ()), "1", "0.5", "auto", "hm-tp"):
        try:
            kind.convert(str(text), parameter, click.Context(train_command))
        except click.UsageError:
            continue
        return str(text)
    raise AssertionError(f"no value for {parameter.name}")


OPTIONS = [
    parameter
    for parameter in train_command.params
    if isinstance(parameter, click.Option) and not isinstance(parameter.type, click.Path)
]


@pytest.mark.parametrize("parameter", OPTIONS, ids=lambda parameter: parameter.name)
def test_beside_paper_an_option_is_taken_or_refused_in_words(parameter):
    given = [parameter.opts[0], *([] if parameter.is_flag else [value_of(parameter)])]
    if parameter.name != "epsilon":
        given += ["--epsilon", "4"]
    result = CliRunner().invoke(train_command, ["--paper", *given])
    assert result.exit_code in (1, 2), result.output
    assert not isinstance(result.exception, TypeError), result.exception
