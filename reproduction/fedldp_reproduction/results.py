"""What a finished figure is made of: points, verdicts, and where they came from."""

import csv
import io
from dataclasses import astuple, dataclass, fields


@dataclass(frozen=True)
class Point:
    """One line of tidy data: a mechanism's mean over runs, or a curve's value."""

    panel: str  # empty where there is one panel
    series: str  # the mechanism or curve, by its registry name: "hm-tp"
    x: float
    y: float
    low: float | None  # the 95% interval of the mean
    high: float | None
    runs: int  # 0 for what is computed and not sampled


@dataclass(frozen=True)
class ClaimVerdict:
    """Whether a sentence of the paper holds here, and the numbers that say so."""

    claim: str  # short, with its place in the paper
    holds: bool | None  # None: not decidable here
    evidence: str
    instead: str = ""  # where the claim fails: the narrowest sentence like it that is true
    misprint: bool = False  # what is printed is wrong, and what is meant is clear and holds
    beyond: bool = False  # it is not the paper's, but ours


@dataclass(frozen=True)
class FigureResult:
    """Everything about one finished figure or table."""

    key: str
    title: str
    paper: str  # the figure or table of the paper
    x_label: str
    y_label: str
    x_log: bool
    y_log: bool
    points: tuple[Point, ...]
    verdicts: tuple[ClaimVerdict, ...]
    settings: tuple[str, ...]  # lines for people
    data: tuple[str, ...]  # title, licence and citation of each data set
    synthetic: bool
    table: tuple[tuple[str, ...], ...] = ()  # a heading and rows, where the paper has a table


def to_csv(points: tuple[Point, ...]) -> str:
    r"""Return points as text, one line each, an empty cell for what is not known.

    >>> print(to_csv((Point("", "hm-tp", 1.0, 0.25, None, None, 0),)), end="")
    panel,series,x,y,low,high,runs
    ,hm-tp,1.0,0.25,,,0
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(field.name for field in fields(Point))
    writer.writerows(astuple(point) for point in points)
    return text.getvalue()
