"""Census extracts with as many numbers and categories as the paper's, of our own making."""

from pathlib import Path

from fedldp import datasets
from fedldp.schema.attributes import Category


def census(
    folder: Path, country: str = "br", rows: int = 20, first: int = 1, head: str = ""
) -> Path:
    """Write an extract and its description: the first person has a value, the others have 0."""
    schema = datasets.load(country, rows=1).asked
    tables = []
    for each in schema.attributes:
        if isinstance(each, Category):
            codes = ", ".join(f'{code} = "{name}"' for code, name in enumerate(each.categories))
            tables.append(f"[attributes.{each.name}]\ncodes = {{{codes}}}\n")
        else:
            tables.append(f"[attributes.{each.name}]\nlow = 0\nhigh = 9\n")
    values = [first, *[0] * (rows - 1)]
    lines = [",".join(schema.names), *(",".join([str(value)] * len(schema)) for value in values)]
    folder.mkdir(exist_ok=True)
    (folder / "extract.csv").write_text("\n".join(lines) + "\n")
    path = folder / "extract.toml"
    path.write_text(f'{head}data = "extract.csv"\ntarget = "income"\n{"".join(tables)}')
    return path
