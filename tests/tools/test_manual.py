"""The manual page says what the helps say, and groff reads it without a warning."""

import shutil
import subprocess
from pathlib import Path

import manual
import pytest
from click.testing import CliRunner

from fedldp.cli.train import train_command

PAGE = Path(__file__).parents[2] / "man" / "fedldp.1"


def test_the_page_is_made_from_the_helps():
    assert PAGE.read_text("utf-8") == manual.manual(), "run make man"


def test_the_page_does_not_depend_on_what_was_called_before():
    """A command alone, without the group that gives `-h` to all: click remembers its help."""
    assert "--help" in CliRunner().invoke(train_command, ["--no-such-option"]).stderr
    test_the_page_is_made_from_the_helps()


def test_nothing_of_a_help_is_a_macro():
    lines = [".SH it begins like one", "'so does this", r"a \fB and --option"]
    assert list(manual.verbatim("\n".join(lines))) == [
        ".nf",
        r"\&.SH it begins like one",
        r"\&'so does this",
        r"a \efB and \-\-option",
        ".fi",
    ]


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_reads_the_page_without_a_warning():
    words = ["groff", "-man", "-ww", "-Kutf8", "-Tutf8", PAGE]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert not done.stderr
    assert "fedldp collect" in done.stdout
