"""Every numbered item of the paper, and what in the project implements or checks it.

`items.toml` is the list; `page` makes the documentation's map of it, and

    python -m fedldp_reproduction.items docs/paper-map.md

writes it. Tests import each name, look for each page and anchor, and compare the list with the
paper's source where that is available.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any, final

from fedldp.errors import DomainError
from fedldp_reproduction.figures import description, made

KINDS = {
    "Algorithm": "Algorithms",
    "Definition": "Definition and remark",
    "Remark": "Definition and remark",
    "Lemma": "Lemmas and proposition",
    "Proposition": "Lemmas and proposition",
    "Table": "Tables",
    "Figure": "Figures",
}

_HEAD = """\
# The paper, item by item

For readers who have the paper open and look for the code. This page lists every algorithm,
definition, lemma, proposition, table and figure of Zhao et al., *Local Differential Privacy based
Federated Learning for the Internet of Things* (IEEE Internet of Things Journal, 2020), and what
implements or checks it here. What goes beyond the paper is not on this page.

Items are numbered in the order of the paper's source. Sections have names here, not numbers: the
source has no heading for the introduction, so their numbers depend on whether it counts. Verdicts
and pictures are in the [reproduction](reproduction.md); `fedldp-reproduce KEY` computes one again.
Names in the code that do not begin with `fedldp` are those of the package `fedldp_reproduction`.

`make paper-map` writes this page from `items.toml`. Tests import every name, look up every page and
heading, and compare the list with the source of the paper if it is available.
"""

_NEXT = """\
## What to read next

[Run the paper as printed](how-to/paper.md) on your own data. [The reproduction](reproduction.md):
which of the paper's claims hold. [The mechanisms](mechanisms.md), with the paper's misprints.
"""


@final
@dataclass(frozen=True)
class Item:
    """One numbered item of the paper."""

    kind: str
    number: str
    label: str  # in the paper's source
    title: str  # in our words
    figures: tuple[str, ...]  # keys of the reproduction
    code: tuple[str, ...] = ()  # importable names
    command: str = ""
    pages: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise DomainError(f"an item's kind must be one of {', '.join(KINDS)}; got {self.kind}.")
        if not self.figures:
            raise DomainError(f"{self.name} must name the figure that checks it; got none.")

    @property
    def name(self) -> str:
        """What the paper calls it: "Lemma 3"."""
        return f"{self.kind} {self.number}"


@cache
def items() -> tuple[Item, ...]:
    """Return all items.

    >>> [each.name for each in items() if each.title == "PM-SUB"]
    ['Algorithm 4']
    """
    document = tomllib.loads(files(__package__).joinpath("items.toml").read_text("utf-8"))
    return tuple(made(Item, entry) for entry in document["items"])


def resolve(name: str) -> Any:
    """Return what a dotted name stands for: a module, or something in one.

    >>> resolve("fedldp.mechanisms.PMSub.channel").__name__
    'channel'
    """
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: Any = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for each in parts[end:]:
            found = getattr(found, each)
        return found
    raise DomainError(f"there is nothing of the name {name!r}.")


def page(docs: Path) -> str:
    """Return the map as Markdown, for a folder with the pages that it links to."""
    return "\n".join([_HEAD, *_tables(docs), _NEXT])


def headings(text: str) -> dict[str, str]:
    r"""Return the headings of a page by their anchors, as the site makes these.

    >>> headings("# One: two\n## Three {#four}\n")
    {'one-two': 'One: two', 'four': 'Three'}
    """
    found, inside = {}, False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = not inside
        heading = re.fullmatch(r"#+ (.*?)(?: \{ ?#(.*?) ?\})?", line)
        if heading and not inside:
            plain = re.sub(r"[^\w\s-]", "", heading[1]).strip().lower()
            found[heading[2] or re.sub(r"[\s-]+", "-", plain)] = heading[1]
    return found


def _tables(docs: Path) -> Iterator[str]:
    for heading in dict.fromkeys(KINDS.values()):
        chosen = [each for each in items() if KINDS[each.kind] == heading]
        yield f"## {heading}\n"
        yield "| item | what | in the code | pages and commands | checked in |"
        yield "|---|---|---|---|---|"
        yield from (_row(each, docs) for each in chosen)
        yield ""


def _row(item: Item, docs: Path) -> str:
    code = "<br>".join(f"`{name.removeprefix('fedldp_reproduction.')}`" for name in item.code)
    pages = [f"[{_title(page, docs)}]({page})" for page in item.pages]
    where = "<br>".join([*pages, *([f"`{item.command}`"] if item.command else [])])
    known = description()
    checked = "<br>".join(
        f"[{known.figure(key).key}](reproduction.md#{key})" for key in item.figures
    )
    cells = (item.name.replace(" ", "&nbsp;"), item.title, code, where, checked)
    return f"| {' | '.join(each.replace('|', chr(92) + '|') for each in cells)} |"


def _title(address: str, docs: Path) -> str:
    """Return what a link to a page is called: the page and the heading in it."""
    path, _, anchor = address.partition("#")
    found = headings((docs / path).read_text("utf-8"))
    title = next(iter(found.values()))
    between = " \N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} "
    return title.partition(":")[0] + between + found[anchor] if anchor else title


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(page(target.parent), encoding="utf-8")
