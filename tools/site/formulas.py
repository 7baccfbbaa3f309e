"""Formulas of the documentation: LaTeX in the pages, MathML on the site, which needs no script."""

from typing import Any

from latex2mathml.converter import convert


def fence(source: str, *_: Any, **__: Any) -> str:
    """Render a fenced block of the language `math`."""
    return f'<div class="formula">{convert(source, display="block")}</div>'
