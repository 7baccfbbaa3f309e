"""Templates for extracts of IPUMS: from the codebook of an extract to its description in TOML.

    python -m fedldp_reproduction.datasets.template ipumsi_00001.xml br > brazil.toml

A codebook (DDI) comes with every extract. It lists each variable with its codes and labels, so that
nothing has to be typed. Bounds of numbers are public and yours to choose: those proposed here are
marked. The paper does not list the variables that it took; `VARIABLES` are those of its shape.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final
from xml.etree import ElementTree

from fedldp.errors import DomainError

# Numbers with proposed bounds, and categories, by their names in IPUMS International. Which ones
# the paper took is not known: 6 numbers and 10 categories of Brazil, 5 and 14 of Mexico.
BOUNDS = {
    "AGE": (0, 100),
    "HRSWORK1": (0, 98),
    "CHBORN": (0, 30),
    "PERSONS": (1, 30),
    "ROOMS": (1, 30),
    "INCTOT": (0, 1_000_000),
}
VARIABLES = {
    "br": (
        *("AGE", "HRSWORK1", "CHBORN", "PERSONS", "ROOMS", "INCTOT"),
        *("GEO1_BR", "INDGEN", "OCCISCO", "EDATTAIN", "RELIGION", "MARST", "CLASSWK", "RACE"),
        *("SEX", "LIT"),
    ),
    "mx": (
        *("AGE", "HRSWORK1", "CHBORN", "PERSONS", "INCTOT"),
        *("GEO1_MX", "INDGEN", "OCCISCO", "EDATTAIN", "MARST", "RELATE", "RELIGION", "CLASSWK"),
        *("HLTHCOV", "SEX", "LIT", "URBAN", "INDIG", "DISABLED"),
    ),
}
_TARGET = "INCTOT"
_TITLES = {"br": "Brazil", "mx": "Mexico"}
# What labels of codes say that stand for no answer.
_UNKNOWN = re.compile(r"\b(unknown|missing|niu|not in universe|response suppressed)\b", re.I)


@final
@dataclass(frozen=True)
class Variable:
    """A variable of a codebook, with its codes and what they mean."""

    name: str
    label: str
    codes: tuple[tuple[str, str], ...]

    @property
    def unknown(self) -> list[str]:
        """The codes that stand for no answer."""
        return [code for code, label in self.codes if _UNKNOWN.search(label)]


def codebook(path: Path) -> dict[str, Variable]:
    """Return the variables of a codebook by their names."""
    try:
        root = ElementTree.parse(path).getroot()  # noqa: S314 (a file of the user's own)
    except (ElementTree.ParseError, ValueError) as error:
        raise DomainError(f"{path.name} must be a codebook in XML (DDI): {error}.") from error
    found = {}
    for each in root.iter():
        if _tag(each) == "var":
            variable = _variable(each)
            found[variable.name] = variable
    if not found:
        raise DomainError(f"{path.name} must be a codebook (DDI); it has no variables.")
    return found


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _variable(element: ElementTree.Element) -> Variable:
    label, codes = "", []
    for child in element:
        if _tag(child) == "labl":
            label = (child.text or "").strip()
        elif _tag(child) == "catgry":
            parts = {_tag(part): (part.text or "").strip() for part in child}
            if parts.get("catValu"):
                codes.append((_plain(parts["catValu"]), parts.get("labl", "")))
    return Variable(element.get("name") or element.get("ID") or "", label, tuple(codes))


def _plain(code: str) -> str:
    """Return a code as an extract in CSV has it: without leading zeros."""
    return str(int(code)) if re.fullmatch(r"-?\d+", code) else code


def template(variables: dict[str, Variable], country: str, codebook_name: str) -> str:
    """Return the description of an extract of a country, to be completed by its owner."""
    if country not in VARIABLES:
        raise DomainError(f"the country must be {' or '.join(VARIABLES)}; got {country!r}.")
    absent = [name for name in VARIABLES[country] if name not in variables]
    if absent:
        raise DomainError(
            f"{codebook_name} has no variable {', '.join(absent)}: add what is missing to the "
            "extract, or write its description by hand."
        )
    data = Path(codebook_name).with_suffix(".csv.gz").name
    lines = [
        "# From the codebook of an extract. Check every line that ends in CHECK: what it says is",
        "# public, and must not come from the data.",
        f'title = "{_TITLES[country]}"',
        f'data = "{data}"  # CHECK: the file of the extract',
        f'target = "{_TARGET.lower()}"',
        "# above = 1000        # CHECK: above it, an income is high, in the currency of the census",
        "# paper = true        # only if you know that this is the paper's extract",
    ]
    for name in VARIABLES[country]:
        lines += ["", *_table(variables[name])]
    return "\n".join(lines) + "\n"


def _table(variable: Variable) -> Iterator[str]:
    yield f"[attributes.{variable.name.lower()}]  # {variable.label}"
    yield f'variable = "{variable.name}"'
    unknown = variable.unknown
    if variable.name in BOUNDS:
        low, high = BOUNDS[variable.name]
        yield f"low = {low}"
        yield f"high = {high}  # CHECK"
    else:
        known = [(code, label) for code, label in variable.codes if code not in unknown]
        if len(known) < 2:
            raise DomainError(f"{variable.name} needs at least two codes; got {known!r:.100}.")
        entries = ", ".join(f'{code} = "{_quoted(label)}"' for code, label in known)
        yield f"codes = {{{entries}}}"
    if unknown:
        yield f"unknown = [{', '.join(unknown)}]"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def main(arguments: Sequence[str]) -> None:
    """Print the template for a codebook and a country."""
    if len(arguments) != 2:
        sys.exit("usage: python -m fedldp_reproduction.datasets.template CODEBOOK.xml br|mx")
    path = Path(arguments[0])
    try:
        sys.stdout.write(template(codebook(path), arguments[1], path.name))
    except (DomainError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])
