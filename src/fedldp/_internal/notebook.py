"""Tables for notebooks: what `_repr_html_` returns."""

from collections.abc import Iterable, Sequence
from itertools import islice

_MOST_ROWS = 50


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table: plain markup with all text escaped, and no scripts.

    Texts are on the left and numbers on the right of their cells. Rows beyond the first fifty are
    counted and not shown.

    >>> table("Estimate", ["attribute", "mean"], [["a < b", 0.25]])
    '<table><caption>Estimate</caption><thead><tr><th>attribute</th><th>mean</th></tr></thead><tbody><tr><td style="text-align: left">a &lt; b</td><td style="text-align: right">0.25</td></tr></tbody></table>'
    """  # noqa: E501
    every = iter(rows)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in islice(every, _MOST_ROWS))
    if more := sum(1 for _ in every):
        body += f'<tr><td colspan="{len(columns)}">and {more:,} more</td></tr>'
    head = "".join(f"<th>{escape(heading)}</th>" for heading in columns)
    return (
        f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def escape(text: str) -> str:
    """Escape a text for HTML, by a module that only notebooks need."""
    import html

    return html.escape(text)


def _cell(value: object) -> str:
    side = "left" if isinstance(value, str) else "right"
    return f'<td style="text-align: {side}">{escape(_text(value))}</td>'


def _text(value: object) -> str:
    """Return a number for display: with separators, and four digits of a float."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
