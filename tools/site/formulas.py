"""Formulas of the documentation: LaTeX in the pages, MathML on the site, which needs no script."""

import re
from typing import Any

from latex2mathml.converter import convert
from pymdownx.superfences import SuperFencesException

_NOT_UNDERSTOOD = re.compile(r"<m[io]>(?:\\|&<)")  # left as it was written

# The converter leaves the space around operators to the browser, which takes a sign after a
# bracket or a relation for a difference, and bars and slashes for relations.
_SPACES = (
    (re.compile(r"<mi>(&#x000B1;|&#x02032;)</mi>"), r"<mo>\1</mo>"),  # plus-minus and prime
    (
        re.compile(r"<mo( [^>]*)?>(&#x0007C;|&#x0002F;)</mo>"),
        r'<mo\1 lspace="0" rspace="0">\2</mo>',
    ),
    (
        re.compile(
            r"(<mo[^>]*>(?:&#x00028;|\[|&#x0003D;|&#x02223;|&#x0002C;|,)</mo>|<mrow>|<mtd[^>]*>)"
            r"<mo>(&#x02212;|&#x000B1;|\+)</mo>"
        ),
        r'\1<mo form="prefix">\2</mo>',
    ),
    (re.compile(r"<mo>(Var|E|MSE)</mo>"), r'<mo lspace="0.17em" rspace="0">\1</mo>'),
)


def fence(source: str, *_: Any, **__: Any) -> str:
    """Render a fenced block of the language `math`, or refuse what the converter cannot read."""
    formula = convert(source, display="block")
    if _NOT_UNDERSTOOD.search(formula):
        raise SuperFencesException(f"not all of this formula was understood: {source}")
    for pattern, replacement in _SPACES:
        formula = pattern.sub(replacement, formula)
    return f'<div class="formula">{formula}</div>'
