"""Tables of figures: on a console, and in a page of the documentation between two marks."""

import argparse
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table as RichTable

Cells = Sequence[str]


@dataclass(frozen=True)
class Table:
    """A title, headings and rows of texts; the first column is of words, the others of numbers."""

    title: str
    headings: Cells
    rows: Sequence[Cells]
    words: int = 1  # columns

    def markdown(self) -> str:
        rule = ["---"] * self.words + ["---:"] * (len(self.headings) - self.words)
        lines = (self.headings, rule, *self.rows)
        text = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
        return f"**{self.title}**\n\n{text}\n"

    def print(self) -> None:
        table = RichTable(title=self.title)
        for number, heading in enumerate(self.headings):
            table.add_column(heading, justify="left" if number < self.words else "right")
        for cells in self.rows:
            table.add_row(*cells)
        Console(width=None if Console().is_terminal else 160).print(table)


def machine(*packages: str) -> str:
    """Return in words what figures were taken on."""
    names = ("numpy", "scipy", *packages)
    parts = [
        f"{os.cpu_count()} cores of {_processor()}",
        platform.system(),
        f"Python {platform.python_version()}",
        *(f"{name} {version(name)}" for name in names),
    ]
    return ", ".join(parts)


def busy() -> str:
    """Return in words what else the machine has to do."""
    return f"load {os.getloadavg()[0]:.1f} when it began"


def commit() -> str:
    """Return the commit that is measured, and whether files differ from it."""
    folder = Path(__file__).parent
    text = subprocess.run(
        ["git", "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return text.stdout.strip().replace("-dirty", " with changes") or "unknown"


def _processor() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", _text("/proc/cpuinfo"), re.MULTILINE)
    return found.group(1).strip() if found else platform.machine()


def _text(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except OSError:
        return ""


def replaced(page: str, name: str, text: str) -> str:
    """Return a page with another text between the marks of that name."""
    begin, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->"
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise SystemExit(f"the page must have one line {begin.strip()!r}, and {end!r} after it.")
    before, rest = page.split(begin)
    return f"{before}{begin}{text}\n{end}{rest.split(end)[1]}"


def options(description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that all benchmarks have."""
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the tables into this page")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw them")
    return parser


def publish(name: str, tables: Sequence[Table], where: str, page: Path | None) -> None:
    """Print tables and, if there is a page for them, write them between its marks."""
    for table in tables:
        table.print()
    Console().print(where, highlight=False)
    if page is not None:
        where = f"{where}; commit {commit()}"
        text = "\n".join([*(table.markdown() for table in tables), f"*{where}.*"])
        page.write_text(replaced(page.read_text("utf-8"), name, text), "utf-8")
