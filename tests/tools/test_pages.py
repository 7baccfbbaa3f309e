"""Every page of the documentation says for whom it is, and what to read next."""

import json
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
START = DOCS / "index.md"
PAGES = [path for path in sorted(DOCS.rglob("*.md")) if path != START]
NEXT = "## What to read next"


def text_of(page):
    """Return a page, with the cells of its notebook if it shows one."""
    notebook = page.with_suffix(".ipynb")
    if not notebook.exists():
        return page.read_text("utf-8")
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    return page.read_text("utf-8") + "\n".join("".join(cell["source"]) for cell in cells)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_guides_its_reader(page):
    title, _, first, *_ = text_of(page).splitlines()
    assert title.startswith("# ")
    assert first.startswith("For ")
    assert NEXT in text_of(page)


@pytest.mark.parametrize("notebook", sorted(DOCS.rglob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_begins_like_its_page_and_holds_no_output(notebook):
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    assert notebook.with_suffix(".md").read_text("utf-8").startswith("".join(cells[0]["source"]))
    assert not any(cell.get("outputs") for cell in cells)
