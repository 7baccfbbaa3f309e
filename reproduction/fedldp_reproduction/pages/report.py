"""One page for all figures: what the paper claims, and whether it holds here."""

import csv
import io
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files as resources
from pathlib import Path
from typing import final

from jinja2 import Environment, StrictUndefined

from fedldp._plots import save
from fedldp.storage import files
from fedldp_reproduction import environment
from fedldp_reproduction.figures import description
from fedldp_reproduction.pages import drawing
from fedldp_reproduction.results import ClaimVerdict, FigureResult, to_csv

NAME = "report.html"
CLAIMS = "claims.csv"
FAILS, MISPRINT, OPEN, HOLDS = "fails", "misprint", "not decidable here", "holds"
VERDICTS = (FAILS, OPEN, HOLDS, MISPRINT)  # surprising ones come first, misprints last


def verdict(of: ClaimVerdict) -> str:
    """Return a verdict in words.

    >>> verdict(ClaimVerdict("a claim", None, ""))
    'not decidable here'
    """
    if of.misprint:
        return MISPRINT
    if of.holds is None:
        return OPEN
    return HOLDS if of.holds else FAILS


def claims(results: Sequence[FigureResult]) -> list[dict[str, str]]:
    """Return every claim of some figures, with its verdict."""
    return [
        {
            "figure": result.key,
            "paper": result.paper,
            "claim": each.claim,
            "verdict": verdict(each),
            "evidence": each.evidence,
            "true_instead": each.instead,
        }
        for result in results
        for each in result.verdicts
    ]


def count(results: Sequence[FigureResult]) -> dict[str, int]:
    """Return how many claims of some figures have which verdict."""
    found = [each["verdict"] for each in claims(results)]
    return {which: found.count(which) for which in VERDICTS}


@final
@dataclass(frozen=True)
class Section:
    """A figure on the page."""

    result: FigureResult
    wide: str = ""  # pictures, as SVG; a table has none
    narrow: str = ""

    @property
    def key(self) -> str:
        """What the figure is called in links and files."""
        return self.result.key

    @property
    def title(self) -> str:
        """What the figure is called before people."""
        return drawing.heading(self.result)

    @cached_property
    def description(self) -> str:
        """What is to be seen in the picture, in words."""
        return drawing.describe(self.result)

    @property
    def claims(self) -> list[tuple["Section", ClaimVerdict]]:
        """The claims about the figure, each with where it belongs."""
        return [(self, each) for each in self.result.verdicts]


def section(result: FigureResult, folder: Path) -> Section:
    """Draw a figure, write its data and its pictures to a folder, and keep it for the page."""
    if not result.points:
        return Section(result)
    picture = drawing.draw(result)
    made = Section(result, drawing.svg(picture), drawing.svg(drawing.draw(result, drawing.NARROW)))
    files.write(folder / f"{result.key}.csv", to_csv(result.points))
    files.write(folder / f"{result.key}.svg", made.wide)
    save(picture, folder / f"{result.key}.png")
    return made


def write(sections: Sequence[Section], folder: Path, profile: str, expected: int) -> Path:
    """Write the page, and all claims as a table, to a folder; return where the page is."""
    results = [each.result for each in sections]
    files.write(folder / CLAIMS, claims_table(results))
    files.write(folder / environment.NAME, environment.lock())
    files.write(folder / NAME, render(sections, profile, expected))
    return folder / NAME


def render(sections: Sequence[Section], profile: str, expected: int) -> str:
    """Return the page: it holds all that it shows, and is the same for the same figures.

    `expected` is how many figures there will be in the end.
    """
    templates = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    templates.filters |= {"inline": _inline, "verdict": verdict}
    page = templates.from_string(resources(__package__).joinpath(NAME).read_text(encoding="utf-8"))
    every = [each for part in sections for each in part.claims]
    return page.render(
        sections=sections,
        groups={which: [each for each in every if verdict(each[1]) == which] for which in VERDICTS},
        profile=profile,
        expected=expected,
        every=len(description().figures),
        environment=environment.summary(),
        claims=CLAIMS,
    )


def claims_table(results: Sequence[FigureResult]) -> str:
    """Return all claims as text, one line each."""
    text = io.StringIO()
    columns = ("figure", "paper", "claim", "verdict", "evidence", "true_instead")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(claims(results))
    return text.getvalue()


def _inline(picture: str) -> str:
    """Return a picture as an address that needs no file.

    Not as elements of the page: the names inside one picture would be those of another.
    """
    return f"data:image/svg+xml;base64,{b64encode(picture.encode()).decode()}"
