"""The commands of the documentation: run as they are written, and their output compared."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
FENCE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(page):
    """Yield each command after `$ `, with its lines after `> `, and what it should print."""
    for block in FENCE.findall(page):
        for each in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            first, *lines = each.splitlines()
            more = [line[2:] for line in lines if re.match(">( |$)", line)]
            yield "\n".join([first, *more]), "\n".join(lines[len(more) :]) + "\n"


PAGES = [page for page in sorted(DOCS.rglob("*.md")) if FENCE.search(page.read_text("utf-8"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_print_what_the_page_says(page, tmp_path):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "COLUMNS": "90"}
    for command, expected in commands(page.read_text("utf-8")):
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, (command, done.stderr)
        assert doctest.OutputChecker().check_output(expected, done.stdout or "\n", FLAGS), (
            f"{command}\n{done.stdout}"
        )


def test_a_page_is_taken_apart():
    page = "a\n```console\n$ cat > f <<'END'\n> 1\n>\n> END\n$ cat f\n1\n\n```\n```sh\n$ no\n```\n"
    assert list(commands(page)) == [("cat > f <<'END'\n1\n\nEND", "\n"), ("cat f", "1\n\n")]
    assert {page.stem for page in PAGES} >= {"first-mean", "fleet"}
