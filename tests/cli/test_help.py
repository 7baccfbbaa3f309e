"""The help of every command teaches by examples that work, and a tab completes what can be said."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import get_completion_class
from click.testing import CliRunner

import fedldp as library
from fedldp import datasets
from fedldp.cli.app import fedldp
from fedldp.cli.runs import NETWORK, TASKS


def commands(group, path=()):
    """Yield each command with the words that lead to it."""
    yield path, group
    if isinstance(group, click.Group):
        context = click.Context(group)
        for name in group.list_commands(context):
            yield from commands(group.get_command(context, name), (*path, name))


COMMANDS = dict(commands(fedldp))


def shown(path):
    result = CliRunner().invoke(fedldp, [*path, "--help"], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    return result.output


def examples(text):
    """Return the command lines in a help, each as its words: continued, piped and commented on."""
    lines = re.sub(r"\|\n +", "| ", re.sub(r" \\\n +", " ", text)).splitlines()
    found = [re.match(r"  (?:\S.* \| +)?(fedldp .*)", line) for line in lines]
    plain = [re.split(r" {2,}| >", each[1])[0] for each in found if each]
    return [shlex.split(each)[1:] for each in plain]


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: " ".join(path) or "fedldp")
def test_help_fits_and_teaches(path):
    text = shown(path)
    assert max(len(line) for line in text.splitlines()) <= 80
    if path:  # what the list of commands says of it is not cut off
        assert re.search(rf"^  {path[-1]} .*\.\.\.$", shown(path[:-1]), re.MULTILINE) is None
    assert any(each[: len(path)] == list(path) for each in examples(text))
    for parameter in COMMANDS[path].params:
        assert isinstance(parameter, click.Argument) or parameter.help


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: " ".join(path) or "fedldp")
def test_every_example_is_understood(path, tmp_path, monkeypatch):
    """All its options and values are taken, in a folder that has the fleet and files it names."""
    monkeypatch.chdir(tmp_path)
    for part in (
        "fleet/server",
        "fleet/gateway-1",
        "fleet/vault-1",
        "server",
        "car-7",
        "backups/monday",
        "second",
    ):
        Path(part).mkdir(parents=True)
    for words in examples(shown(path)):
        if "--help" in words:
            continue
        words = [word.replace("*", "1") for word in words]
        for file in (word.partition("=")[2] or word for word in words if "." in word):
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            Path(file).touch()
        command, rest = fedldp, words
        top = click.Context(fedldp, **fedldp.context_settings)  # commands keep that -h is help
        while isinstance(command, click.Group) and rest:
            command, rest = command.get_command(top, rest[0]), rest[1:]
        with command.make_context("fedldp", rest, parent=top) as context:
            assert context.params is not None


def test_the_list_of_commands_says_what_each_says_of_itself():
    """The list is shown without importing the commands, so it holds their first lines itself."""
    text = shown(())
    for path, command in COMMANDS.items():
        if len(path) == 1:
            summary = command.get_short_help_str(limit=80)
            assert re.search(rf"^  {path[0]} +{re.escape(summary)}$", text, re.MULTILINE)


def test_an_unknown_command_is_refused():
    result = CliRunner().invoke(fedldp, ["tain"])
    assert result.exit_code == 2
    assert "No such command 'tain'" in result.output


def test_there_are_many_examples():
    assert sum(len(examples(shown(path))) for path in COMMANDS) > 40


def completions(*words):
    """Return what the last of these words can become, as bash is told."""
    shell = get_completion_class("bash")(fedldp, {}, "fedldp", "_FEDLDP_COMPLETE")
    found = shell.get_completions(list(words[1:-1]), words[-1])
    return [shell.format_completion(each) for each in found]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["fedldp", "me"], {"plain,mechanisms"}),
        (
            ["fedldp", "audit", "three"],
            {f"plain,{name}" for name in library.mechanism_names() if name.startswith("three")},
        ),
        (["fedldp", "audit", ""], {f"plain,{name}" for name in library.mechanism_names()}),
        (["fedldp", "train", "--task", ""], {f"plain,{name}" for name in (*TASKS, NETWORK)}),
        (["fedldp", "train", "--data", "fl"], {"plain,flights", "file,fl"}),
        (["fedldp", "train", "--hold"], {"plain,--holdout"}),
        (["fedldp", "data", "info", ""], {f"plain,{name}" for name in datasets.names()}),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_a_tab_completes(words, expected):
    assert set(completions(*words)) == expected


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_can_be_taught(shell):
    text = get_completion_class(shell)(fedldp, {}, "fedldp", "_FEDLDP_COMPLETE").source()
    assert f"_FEDLDP_COMPLETE={shell}_complete" in text


def test_bash_takes_the_line_that_the_help_shows():
    """In a bash of its own, which then completes a word through the installed command."""
    line = re.search(r"eval .*", shown(()))[0]
    script = f"""
        {line}
        complete -p fedldp
        COMP_WORDS=(fedldp mech) COMP_CWORD=1
        _fedldp_completion fedldp mech fedldp 2> /dev/null  # compopt: nobody is typing
        echo "${{COMPREPLY[@]}}"
    """
    folder = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", script],
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    registered, completed = done.stdout.splitlines()
    assert registered == "complete -o nosort -F _fedldp_completion fedldp"
    assert completed == "mechanisms"
