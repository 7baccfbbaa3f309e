"""IPUMS: your own extract of a census, described by a file in TOML.

The extract may not be passed on, so everyone gets their own, free of charge. The description says
what each variable means; bounds and categories in it are public and come from you:

    data = "ipumsi_00001.csv.gz"    # beside the description; .csv, .csv.gz, Parquet, or .dat.gz
    ddi = "ipumsi_00001.xml"        # the codebook: needed for .dat.gz, and read with ipumspy
    target = "income"
    above = 1000                    # if you like: above it, an income is high
    paper = true                    # only if you know that this is the paper's extract

    [attributes.income]
    variable = "INCTOT"
    low = 0
    high = 10_000
    unknown = [9999998, 9999999]    # not in universe, unknown

    [attributes.sex]
    variable = "SEX"
    codes = {1 = "male", 2 = "female"}
    unknown = [9]

An unknown value becomes the attribute's public `missing`. A person whose target is unknown is left
out. A value that the description does not know is refused.
"""

import tomllib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from fedldp._internal.validation import Floats, is_real
from fedldp.datasets import File
from fedldp.datasets.dataset import About, Dataset
from fedldp.datasets.files import Gathered, read
from fedldp.errors import DomainError, MissingExtra
from fedldp.learn.features import check_target
from fedldp.schema import frames
from fedldp.schema.attributes import Category, Number
from fedldp.schema.schema import Schema

ABOUT = About(
    name="ipums",
    title="IPUMS, your own extract",
    source="https://international.ipums.org (a free registration)",
    licence="not to be passed on",
    citation="Minnesota Population Center. Integrated Public Use Microdata Series, International.",
    note="The path is that of a description in TOML, which names the extract and its variables.",
)

_PAPER = {(6, 10, 90): "Brazil", (5, 14, 94): "Mexico"}  # numbers, categories, dimensions
_KEYS = {"title", "data", "ddi", "target", "above", "paper", "attributes"}
_MILLIONS = 4  # of people in each of the paper's extracts, as it says


@final
@dataclass(frozen=True)
class _Variable:
    """How to read one variable of the extract."""

    name: str
    attribute: Number | Category
    codes: Mapping[str, int]  # the category that a code stands for
    unknown: frozenset[str]

    def read(self, cells: frames.Cells) -> tuple[frames.Cells, npt.NDArray[np.bool_]]:
        """Return what the cells mean, and which of them are unknown."""
        unknown = frames.codes(cells, dict.fromkeys(self.unknown, 0)) == 0
        if isinstance(self.attribute, Number):
            values: Floats = frames.numbers(cells).copy()
            # However it is written: 99.0 would be clipped to the highest value there is.
            unknown |= np.isin(values, frames.numbers(sorted(self.unknown)))
            values[unknown] = self.attribute.missing
            return values, unknown
        found = frames.codes(cells, self.codes)
        labels = self.attribute.labels
        meant = [
            labels[int(code)]
            if code == code
            else None
            if frames.is_missing(cell)
            else f"code {cell}"
            for code, cell in zip(found.tolist(), cells, strict=True)
        ]
        for row in np.flatnonzero(unknown):
            meant[row] = self.attribute.missing
        return meant, unknown


def load(path: Path) -> Dataset:
    """Read the extract that a description names; warn if it has not the shape of the paper's."""
    try:
        return _Extract.described(path).read()
    except DomainError as error:
        raise DomainError(f"{path.name}: {error}") from error


@final
@dataclass(frozen=True)
class _Extract:
    title: str
    data: Path
    codebook: Path | None
    target: str
    above: float | None
    variables: tuple[_Variable, ...]

    @classmethod
    def described(cls, path: Path) -> "_Extract":
        try:
            document = tomllib.loads(path.read_text("utf-8"))
        except (ValueError, RecursionError) as error:
            raise DomainError(f"expected valid TOML: {error}.") from error
        tables, target = document.get("attributes"), document.get("target")
        if (
            not document.keys() <= _KEYS
            or not isinstance(tables, dict)
            or not isinstance(target, str)
            or target not in tables
        ):
            raise DomainError(
                "it needs data, target (one of the attributes) and a table [attributes.NAME] for "
                f"each attribute; title, ddi, above and paper if you like. Got {list(document)}, "
                f"target {target!r}."
            )
        above, data, codebook = (document.get(key) for key in ("above", "data", "ddi"))
        if not isinstance(data, str) or not isinstance(codebook, str | None):
            raise DomainError(f"data and ddi must be names of files; got {data!r}, {codebook!r}.")
        if not isinstance(document.get("paper", False), bool):
            raise DomainError(f"paper must be true or false; got {document['paper']!r:.60}.")
        if above is not None and not is_real(above):
            raise DomainError(f"above must be a number; got {above!r}.")
        variables = {name: _variable(name, table) for name, table in tables.items()}
        check_target(variables[target].attribute, classifies=False)
        return cls(
            title=str(document.get("title", ABOUT.title)),
            data=path.parent / data,
            codebook=None if codebook is None else path.parent / codebook,
            target=target,
            above=above,
            variables=tuple(variables.values()),
        )

    def read(self) -> Dataset:
        schema = Schema(tuple(variable.attribute for variable in self.variables))
        gathered, known = Gathered(schema), []
        for data, first_row in self._chunks():
            table = frames.table(data)
            columns, missing = {}, np.zeros(len(table), np.bool_)
            for variable in self.variables:
                if variable.name not in table.names:
                    raise DomainError(
                        f"{self.data.name} has no variable {variable.name!r}; it has "
                        f"{list(table.names)!r:.500}."
                    )
                cells = table.cells(variable.name, 0, len(table))
                columns[variable.attribute.name], unknown = variable.read(cells)
                if variable.attribute.name == self.target:
                    missing = unknown
            gathered.add(columns, first_row).refuse(clipped=False)
            known.append(~missing)
        found = self._dataset(schema, gathered.columns(), np.concatenate(known))
        _warn_unless_as_in_paper(found)
        return found

    def _dataset(
        self, schema: Schema, columns: tuple[npt.NDArray[Any], ...], known: npt.NDArray[np.bool_]
    ) -> Dataset:
        targets = {"squared": self.target}
        derived: tuple[str, ...] = ()
        if self.above is not None:
            high = Category(f"high_{self.target}", ("no", "yes"))
            values = columns[schema.names.index(self.target)]
            columns = (*columns, (values > self.above).astype(np.uint8))
            schema = Schema((*schema.attributes, high))
            targets |= {"logistic": high.name, "hinge": high.name}
            derived = (high.name,)
        about = About(
            name=ABOUT.name,
            title=self.title,
            source=ABOUT.source,
            licence=ABOUT.licence,
            citation=ABOUT.citation,
            note=f"{int((~known).sum())} people without a known target were left out.",
        )
        if not known.any():
            raise DomainError(f"{self.target!r} is unknown of everybody in {self.data.name}.")
        return Dataset(about, schema, columns, targets, derived).take(np.flatnonzero(known))

    def _chunks(self) -> Iterator[tuple[Any, int]]:
        if self.codebook is None:
            if ".dat" in self.data.suffixes:
                raise DomainError(f'{self.data.name} needs its codebook: ddi = "...xml".')
            yield from ((chunk.data, chunk.first_row) for chunk in read(self.data))
            return
        try:
            from ipumspy import readers  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            raise MissingExtra("ipumspy", "ipums", "fedldp-reproduction") from None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # how to cite it is in what we say about the set
            try:
                codebook = readers.read_ipums_ddi(self.codebook)
            except (SyntaxError, ValueError, LookupError, AttributeError, RuntimeError) as error:
                raise DomainError(
                    f"expected a codebook that ipumspy reads; got {self.codebook.name}: {error}."
                ) from error
        names = [variable.name for variable in self.variables]
        first_row = 0
        for frame in readers.read_microdata_chunked(
            codebook, filename=self.data, chunksize=frames.CHUNK, subset=names
        ):
            yield frame, first_row
            first_row += len(frame)


def _variable(name: str, table: Any) -> _Variable:
    if not isinstance(table, dict):
        raise DomainError(f"attributes.{name} must be a table; got {table!r:.60}.")
    variable, unknown = table.get("variable", name), table.get("unknown", [])
    rest = {key: table[key] for key in table if key not in ("variable", "unknown", "codes")}
    codes = table.get("codes")
    texts = isinstance(codes, dict) and all(isinstance(text, str) for text in codes.values())
    if (
        not isinstance(variable, str)
        or not isinstance(unknown, list)
        or not (codes is None or texts)
    ):
        raise DomainError(
            f"attributes.{name} needs low and high, or codes with a text for each code; variable "
            f"(a name) and unknown (a list of codes) if you like. Got {table!r:.200}."
        )
    places: dict[str, int] = {}
    if codes is not None:
        rest["categories"] = list(dict.fromkeys(codes.values()))
        places = {code: rest["categories"].index(text) for code, text in codes.items()}
    attribute = Schema.of(**{name: rest})[name]
    if not isinstance(attribute, Number | Category):
        raise DomainError(f"{name!r} must be a number or a category; got {attribute!r:.200}.")
    return _Variable(variable, attribute, places, frozenset(map(str, unknown)))


def is_papers(path: Path, data: Dataset, name: str) -> bool:
    """Return whether an extract counts as the paper's one of a country.

    The paper does not say which years, variables or people it took. An extract of its shape is one
    of many: it counts if it has about as many people as the paper says, or if its description says
    so, with `paper = true`.
    """
    if country(data) != name:
        return False
    asserted: bool = tomllib.loads(path.read_text("utf-8")).get("paper", False)
    return asserted or round(len(data) / 1e6) == _MILLIONS


def country(data: Dataset) -> str | None:
    """Return which of the paper's two censuses has the shape of an extract, if one has."""
    return _PAPER.get(_shape(data))


def _shape(data: Dataset) -> tuple[int, int, int]:
    numbers = sum(attribute.inputs.numeric for attribute in data.asked.attributes)
    return numbers, len(data.asked) - numbers, data.dimensions


def _warn_unless_as_in_paper(data: Dataset) -> None:
    if country(data) is None:
        shape = _shape(data)
        expected = " or ".join(
            f"{a} numbers and {b} categories with {d} dimensions ({place})"
            for (a, b, d), place in _PAPER.items()
        )
        warnings.warn(
            f"the extract has {shape[0]} numbers and {shape[1]} categories with {shape[2]} "
            f"dimensions; the paper's have {expected}.",
            stacklevel=4,
        )


IPUMS = File(ABOUT, load)
