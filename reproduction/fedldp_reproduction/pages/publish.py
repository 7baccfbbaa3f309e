"""Results as a page of the documentation: pictures and their numbers, every claim, the data used.

The page is Markdown with two markers; what stands between them is written anew, the rest is kept.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedldp.errors import DomainError
from fedldp.storage import files
from fedldp_reproduction import environment
from fedldp_reproduction.pages import drawing
from fedldp_reproduction.pages.report import CLAIMS, VERDICTS, claims_table, verdict
from fedldp_reproduction.results import ClaimVerdict, FigureResult, to_csv

BEGIN = "<!-- written by `make reproduce`: begin -->"
END = "<!-- written by `make reproduce`: end -->"
FILES = Path("images/reproduction")  # beside the page
_RESOLUTION = 80  # dots per inch
# Not every Markdown lets "<" be escaped by a backslash.
_SPECIAL = str.maketrans({c: f"\\{c}" for c in "\\`*_[]|#"} | {"<": "&lt;", ">": "&gt;"})


def check(page: Path) -> None:
    """Refuse a page that has no place for the results."""
    _around(page)


def published_version(page: Path) -> str:
    """Return the version of fedldp that a page was published by, which it names.

    Raises
    ------
    DomainError
        If no results were published there.
    """
    found = re.search(r"^Computed with fedldp ([^\s,]+)", page.read_text("utf-8"), re.M)
    if found is None:
        raise DomainError(f"{page} has no results yet: run make reproduce.")
    return found[1]


def publish(results: Sequence[FigureResult], page: Path, profile: str) -> None:
    """Write the results into a page, and their pictures, numbers and claims beside it."""
    before, after = _around(page)
    text = render(results, profile)  # first: it names the commit, to which pictures are changes
    folder = page.parent / FILES
    folder.mkdir(parents=True, exist_ok=True)
    files.write(folder / CLAIMS, claims_table(results))
    written = {folder / CLAIMS}
    for result in results:
        if result.points:
            picture, numbers = (folder / f"{result.key}.{kind}" for kind in ("png", "csv"))
            drawing.draw(result).savefig(picture, dpi=_RESOLUTION, metadata={"Software": None})
            files.write(numbers, to_csv(result.points))
            written |= {picture, numbers}
    for path in {*folder.glob("*.png"), *folder.glob("*.csv")} - written:
        path.unlink()
    files.write(page, f"{before}{BEGIN}\n\n{text}\n{END}{after}")


def _around(page: Path) -> tuple[str, str]:
    """Return what stands before and after the results."""
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise DomainError(
            f"{page} must have the lines {BEGIN!r} and {END!r}, between which the results are "
            "written; it does not."
        )
    return before, after


def render(results: Sequence[FigureResult], profile: str) -> str:
    """Return the results as Markdown."""
    return "\n".join([*_summary(results, profile), *_claims(results), *_figures(results)])


def escaped(text: Any) -> str:
    r"""Return a text in which no character means anything to Markdown.

    >>> print(escaped("P(0|x) is a*"))
    P(0\|x) is a\*
    """
    return str(text).translate(_SPECIAL)


def _summary(results: Sequence[FigureResult], profile: str) -> Iterator[str]:
    found = [verdict(each) for result in results for each in result.verdicts if not each.beyond]
    yield "## Results\n"
    yield (
        f"Computed with {environment.summary()}, profile `{profile}`, {len(results)} figures and "
        "tables. Every number and every verdict below is written by the code that computed it.\n"
    )
    yield "| verdict | claims of the paper |\n|---|---|"
    for which in VERDICTS:
        yield f"| {which} | {found.count(which)} |"
    yield "\n**The data actually used:**\n"
    for line in dict.fromkeys(line for result in results for line in result.data):
        yield f"- {escaped(line)}"
    absent = dict.fromkeys(
        line for result in results for line in result.settings if "is not available" in line
    )
    for line in absent:
        yield f"- **Missing:** {escaped(line)}"
    yield ""


def _claims(results: Sequence[FigureResult]) -> Iterator[str]:
    told = [(result, each) for result in results for each in result.verdicts]
    yield "## Every claim of the paper {#claims}\n"
    yield (
        "Where a claim fails, **True is:** gives the narrowest sentence like it that is true. All "
        f"claims as a table: [{CLAIMS}]({(FILES / CLAIMS).as_posix()}).\n"
    )
    yield from _table("claim", [it for it in told if not (it[1].misprint or it[1].beyond)])
    yield "## Misprints in the paper {#all-misprints}\n"
    yield "Slips of the pen: what is meant is clear, and it holds. They are not failed claims.\n"
    yield from _table("printed, and meant", [it for it in told if it[1].misprint])
    yield "## Beyond the paper {#beyond}\n"
    yield "Statements of ours, on any data, about what the paper does not have.\n"
    yield from _table("statement", [it for it in told if it[1].beyond])


def _table(heading: str, rows: Sequence[tuple[FigureResult, ClaimVerdict]]) -> Iterator[str]:
    yield f"| {heading} | verdict | numbers | where |\n|---|---|---|---|"
    for result, each in rows:
        word = verdict(each)
        word = f"**{word}**" if word == "fails" else word
        instead = f" **True is:** {escaped(each.instead)}" if each.instead else ""
        cells = (
            escaped(each.claim),
            word,
            escaped(each.evidence) + instead,
            f"[{result.key}](#{result.key})",
        )
        yield f"| {' | '.join(cells)} |"
    yield ""


def _figures(results: Sequence[FigureResult]) -> Iterator[str]:
    yield "## Figures and tables\n"
    for result in results:
        yield f"### {escaped(drawing.heading(result))} {{#{result.key}}}\n"
        path = (FILES / result.key).as_posix()
        numbers = f" ([numbers]({path}.csv))" if result.points else ""
        yield f"{escaped(result.paper)}. `fedldp-reproduce {result.key}`{numbers}\n"
        if result.points:
            yield f"![{escaped(drawing.describe(result))}]({path}.png)\n"
        for number, row in enumerate(result.table):
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
            if not number:
                yield "|---" * len(row) + "|"
        if result.table:
            yield ""
        for line in result.settings:
            yield f"- {escaped(line)}"
        yield ""
