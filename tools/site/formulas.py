"""Formulas of the documentation: LaTeX in the pages, MathML on the site, which needs no script."""

import re
from typing import Any

from latex2mathml.converter import convert
from pymdownx.superfences import SuperFencesException

_NOT_UNDERSTOOD = re.compile(r"<m[io]>(?:\\|&<)")  # left as it was written


def fence(source: str, *_: Any, **__: Any) -> str:
    """Render a fenced block of the language `math`, or refuse what the converter cannot read."""
    formula = convert(source, display="block")
    if _NOT_UNDERSTOOD.search(formula):
        raise SuperFencesException(f"not all of this formula was understood: {source}")
    return f'<div class="formula">{formula}</div>'
