"""Long commands say what they are doing."""

import io
import re
from time import monotonic, sleep

from patience import HANG_SECONDS
from rich.console import Console

from fedldp.cli.status import Status


def until(condition):
    deadline = monotonic() + HANG_SECONDS
    while not condition():
        assert monotonic() < deadline
        sleep(0.01)


def test_without_a_terminal_the_last_line_is_repeated():
    """By itself, also while the thread that does the work is busy."""
    out = io.StringIO()
    with Status(Console(file=out, width=80), every=0.05) as status:
        sleep(0.1)
        assert out.getvalue() == ""  # nothing was said that could be repeated
        status.stage("Working")
        assert re.fullmatch(r"( *\d+ s  Working\n)+", out.getvalue())  # repeated on a slow machine
        until(lambda: out.getvalue().count("Working") >= 3)
        status.update("Nearly done")
        until(lambda: out.getvalue().count("Nearly done") >= 2)
        assert status.text == "Nearly done"
        status.note("[a note]")
    said = out.getvalue()
    assert "[a note]" not in said.splitlines()[0]
    sleep(0.1)
    assert out.getvalue() == said


def test_on_a_terminal_one_line_changes():
    out = io.StringIO()
    screen = Console(file=out, width=80, force_terminal=True, highlight=False, markup=False)
    with Status(screen) as status:
        status.stage("Working")
        status.show("the table")
        until(lambda: "Working" in out.getvalue() and "the table" in out.getvalue())
        status.update("Nearly done")
        until(lambda: "Nearly done" in out.getvalue())
    assert "\x1b[2K" in out.getvalue()  # and goes in the end
