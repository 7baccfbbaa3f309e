"""The data of the figures: generated, or read from files that are available."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from fedldp import datasets, source
from fedldp.datasets import About, Dataset
from fedldp.datasets.dataset import EncodedRows
from fedldp.learn.features import written_out
from fedldp_reproduction.datasets import ipums
from fedldp_reproduction.datasets.download import FileDownload, sha256
from fedldp_reproduction.figures import Way

Singles = npt.NDArray[np.float32]

FILES = ("br", "mx", "vehicle", "wisdm")  # data sets of figures that can be read from files
LAST_SIGNALS = 6  # of Vehicle, whose means the paper estimates

_COUNTRIES = {"br": "Brazil", "mx": "Mexico"}  # read from extracts of IPUMS
_BLOCK = 1 << 16  # rows scaled at a time


@final
@dataclass(frozen=True, eq=False)
class Material:
    """Rows of one data set, and whether the paper used them too."""

    dataset: Dataset
    is_papers: bool  # or a part of the paper's, or made as the paper made it

    @property
    def identity(self) -> str:
        """A text that tells these rows from all others."""
        return f"{self.about.name}: {self.dataset.fingerprint}"

    @property
    def about(self) -> About:
        """What to know about the data set."""
        return self.dataset.about

    @property
    def lines(self) -> tuple[str, ...]:
        """Title, size, licence and citation, and what was chosen about it, for people."""
        about = self.about
        head = f"{about.title}: {len(self.dataset):,} rows. License: {about.licence}."
        return (" ".join(part for part in (head, about.citation, about.note) if part),)

    @property
    def _last(self) -> int | None:
        return LAST_SIGNALS if self.about.name == "vehicle" else None

    @property
    def share(self) -> float:
        """What part of the budget is for numbers: as large as their part of the attributes."""
        if self._last:
            return 1.0  # those signals are all that is asked
        asked = self.dataset.asked
        return sum(each.size for each in asked.attributes if each.inputs.numeric) / asked.dimensions

    @property
    def columns(self) -> int:
        """How many numbers there are whose means are estimated."""
        chosen = (each for each in self.dataset.asked.attributes if each.inputs.numeric)
        return self._last or sum(number.size for number in chosen)

    def numbers(self) -> Singles:
        """Return the numbers whose means are estimated, on the scale of [-1, 1]."""
        chosen = [each for each in self.dataset.asked.attributes if each.inputs.numeric]
        columns = self.columns
        scaled = np.empty((len(self.dataset), columns), np.float32)
        for start in range(0, len(scaled), _BLOCK):
            rows = slice(start, start + _BLOCK)
            parts = [each.inputs.of(self.dataset.matrix(rows, (each.name,))) for each in chosen]
            scaled[rows] = np.concatenate(parts, axis=1)[:, -columns:]
        return scaled

    def rows(self, objective: str, coding: str = "last") -> EncodedRows:
        """Return the rows that models learn from, with a coding of categories."""
        return replace(self.dataset, reference=coding).examples(objective)

    def examples(self, objective: str, coding: str = "last") -> tuple[Singles, Singles]:
        """Return the features and targets of all rows."""
        encoded = self.rows(objective, coding)
        features = np.empty((len(encoded), encoded.dimensions), np.float32)
        targets = np.empty(len(encoded), np.float32)
        for start in range(0, len(encoded), _BLOCK):
            rows = slice(start, start + _BLOCK)
            found, targets[rows] = encoded.read(rows)
            features[rows] = written_out(found)
        return features, targets


@final
class Shelf:
    """All data sets that figures need, each loaded once.

    The paths are those of files: a description of an IPUMS extract for `mx` and `br`, the published
    file (or, with another ending than .txt, that of 2019) for `wisdm`, a file for `vehicle`. The
    censuses are synthetic if there is no file.
    """

    def __init__(self, paths: Mapping[str, Path], seed: int) -> None:
        self._paths, self._seed = dict(paths), seed
        self._files: dict[str, Material | None] = {}
        self._kept: dict[tuple[str, int], Material | None] = {}

    def material(self, name: str, rows: int) -> Material | None:
        """Return at most `rows` rows of a data set, or None if its file is missing."""
        if (name, rows) not in self._kept:
            generated = name not in self._paths and datasets.origin(name).generated
            self._kept[name, rows] = (
                self._generated(name, rows) if generated else self._part(name, rows)
            )
        return self._kept[name, rows]

    def _generated(self, name: str, rows: int) -> Material:
        found = datasets.load(name, rows=rows, seed=self._seed)
        return Material(_as_in_paper(found), is_papers=name.startswith("gaussian"))

    def _part(self, name: str, rows: int) -> Material | None:
        if name not in self._files:
            self._files[name] = self._read(name)
        whole = self._files[name]
        if whole is None or len(whole.dataset) <= rows:
            return whole
        # Files are sorted, by user for example.
        words = source(self._seed).words(len(whole.dataset))
        chosen = np.sort(np.argsort(words, kind="stable")[:rows])
        return replace(whole, dataset=whole.dataset.take(chosen))

    def _read(self, name: str) -> Material | None:
        path = self._paths.get(name)
        if path is not None:
            found = datasets.load(_format(name, path), path)
        elif datasets.origin(name).ready:
            found = datasets.load(name)  # which refuses a file that was changed
        else:
            return None
        if name in _COUNTRIES:  # two extracts may have the same title
            about = replace(found.about, title=f"{name}: {found.title}")
            found = replace(found, about=about)
        return Material(_as_in_paper(found), _is_papers(name, found, path))


def _as_in_paper(data: Dataset) -> Dataset:
    """Return the data with the paper's coding: the last label of a category is -1 everywhere."""
    return replace(data, reference="last")


def _is_papers(name: str, data: Dataset, path: Path | None) -> bool:
    """Return whether a file is the one that the paper used, as far as that can be known."""
    if name in _COUNTRIES:
        return path is not None and ipums.is_papers(path, data, _COUNTRIES[name])
    download = datasets.origin(name).download
    if isinstance(download, FileDownload) and download.member_sha256 is not None:
        return path is None or sha256(path) == download.member_sha256  # what is fetched is checked
    return len(data) == datasets.about(name).rows


def _format(name: str, path: Path) -> str:
    """Return what kind of file it is, as `datasets` calls it."""
    if name in _COUNTRIES:
        return "ipums"
    if name == "wisdm" and path.suffix != ".txt":
        return "wisdm2019"
    return name


def missing(name: str) -> str:
    """Return what to do about a data set that is not available."""
    title = datasets.about(name).title
    return f"{title} is not available: run fedldp data fetch {name}, or give --data {name}=PATH"


def untargeted(material: Material, objective: str) -> str:
    """Return what to do about a data set that has nothing to predict."""
    return (
        f"{material.about.title} is left out: it has no target for {objective!r}; a census extract "
        "gets one by `above` in its description"
    )


def as_arrays(material: Material, objective: str, way: Way) -> tuple[Any, ...]:
    """Return what the runs of a job compute with: numbers, features and targets, or rows."""
    if not objective:
        return (material.numbers(),)
    if way.surveyed:
        return (material.rows(objective, way.coding),)
    return material.examples(objective, way.coding)
