"""Execute the notebooks of the documentation, and write each with its output as Markdown.

python tools/site/notebooks.py docs/notebooks build/docs

The pages docs/notebooks/*.md include the result. A cell that fails is an error.
"""

import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbclient import NotebookClient

PATIENCE = 900  # seconds for one cell or for the start, on a busy machine
PRINTED = ".text .output .no-copy"  # classes of a block
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
FRAME = ' border="1" class="dataframe"'  # of pandas; without a class a table gets the site's style
STYLE = re.compile(r"<style.*?</style>", re.DOTALL)


def run(path: Path) -> nbformat.NotebookNode:
    """Execute a notebook in an empty folder, and return it with its output in one piece."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        client = NotebookClient(
            notebook,
            timeout=PATIENCE,
            kernel_name="python3",
            resources=resources,
            coalesce_streams=True,
            startup_timeout=PATIENCE,
        )
        return client.execute()


def fenced(text: str, kind: str) -> str:
    """Return a block of code."""
    return f"``` {{{kind}}}\n{text.rstrip()}\n```"


def shown(output: nbformat.NotebookNode) -> Iterator[str]:
    """Yield one output of a cell: a picture, a table or text."""
    if output.output_type == "stream":
        yield fenced(COLOUR.sub("", output.text), PRINTED)
        return
    data = output.data
    if "image/png" in data:
        picture = "data:image/png;base64," + data["image/png"].replace("\n", "")
        yield f'<img class="drawing" alt="What the cell above draws" src="{picture}">'
    elif "text/html" in data:
        table = STYLE.sub("", data["text/html"])
        lines = (line.strip() for line in table.replace(FRAME, "").splitlines())
        yield f'<div class="output{" frame" * (FRAME in table)}">{"".join(lines)}</div>'
    else:
        yield fenced(data["text/plain"], PRINTED)


def markdown(notebook: nbformat.NotebookNode) -> str:
    """Return a notebook, without the first cell: the page has its title and introduction."""
    blocks: list[str] = []
    for cell in notebook.cells[1:]:
        if cell.cell_type == "markdown":
            blocks.append(cell.source)
            continue
        blocks.append(fenced(cell.source, ".py"))
        for output in cell.outputs:
            blocks += shown(output)
    return "\n\n".join(blocks) + "\n"


def main(source: Path, target: Path) -> None:
    """Execute all notebooks of a folder."""
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.glob("*.ipynb")):
        print(f"Executing {path.name}", flush=True)
        (target / f"{path.stem}.md").write_text(markdown(run(path)), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
