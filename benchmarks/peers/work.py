"""The work that all libraries are given, read in their own environments: NumPy is all it needs.

The data of the vehicles are in files. Each part of the vehicles gets an estimate of its own, so
that one run shows the error of an estimate from many of them.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FREQUENCIES = tuple(
    f"frequencies of {number:,} labels, {kind}"
    for number in (16, 100, 3000)
    for kind in ("spread", "concentrated")
)
BINS = 32  # in which a distribution is asked for
COLUMNS = ("dep_delay", "distance", "air_time")  # of the flights
DISTRIBUTIONS = tuple(f"{what} of {name}" for name in COLUMNS for what in ("CDF", "median"))


class Task(NamedTuple):
    """What a library does, and for how many vehicles: so few that it does not take long."""

    vehicles: int
    run: Callable[[], Any]


@dataclass(frozen=True)
class Work:
    """A folder with the data, and what is asked."""

    folder: Path

    @cached_property
    def asked(self) -> dict[str, Any]:
        """Epsilon, part, large_part, categories; for training: train_epsilon, group, rate."""
        return json.loads((self.folder / "work.json").read_text("utf-8"))

    @property
    def epsilon(self) -> float:
        return self.asked["epsilon"]

    @property
    def categories(self) -> int:
        return self.asked["categories"]

    def numbers(self, vehicles: int) -> np.ndarray:
        """A number in [-1, 1] of each vehicle."""
        return self._array("numbers")[:vehicles]

    def own(self, vehicles: int, few: bool = False) -> np.ndarray:
        """The category of each vehicle; if few, one of the first two (synthetic)."""
        own = self._array("own")[:vehicles]
        return own % 2 if few else own

    def labels(self, name: str, vehicles: int) -> tuple[int, np.ndarray]:
        """The number of labels, and the label of each vehicle, as the name of a task says.

        Spread labels are all equally likely; of concentrated ones ten have nine of ten vehicles.
        """
        number = int(name.partition(" labels")[0].rpartition(" ")[2].replace(",", ""))
        kind = "concentrated" if "concentrated" in name else "spread"
        return number, self._array(f"{kind}_{number}")[:vehicles]

    def binned(self, name: str, vehicles: int) -> np.ndarray:
        """The bin of each vehicle, of the column that the name of a task ends with."""
        return self._array(f"bins_{name.rpartition(' ')[2]}")[:vehicles]

    def values(self, name: str, vehicles: int) -> np.ndarray:
        """The value of each vehicle, of the column that the name of a task ends with."""
        return self._array(f"values_{name.rpartition(' ')[2]}")[:vehicles]

    def examples(self, vehicles: int) -> tuple[np.ndarray, np.ndarray]:
        """Features in [-1, 1] and a label, -1 or 1, of each vehicle."""
        return self._array("features")[:vehicles], self._array("labels")[:vehicles]

    def vectors(self, vehicles: int) -> np.ndarray:
        """A vector of length 1 of each vehicle (synthetic)."""
        return self._array("vectors")[:vehicles]

    def _array(self, name: str) -> np.ndarray:
        return np.load(self.folder / f"{name}.npy")

    def means(self, noisy: Any) -> list[float]:
        """The mean of each part."""
        return np.asarray(noisy).reshape(-1, self.asked["part"]).mean(axis=1).tolist()

    def vector_means(self, noisy: np.ndarray) -> list[list[float]]:
        """The mean vector of each part."""
        return noisy.reshape(-1, self.asked["part"], noisy.shape[1]).mean(axis=1).tolist()

    def parts(self, reports: Any, large: bool = False) -> Iterator[Any]:
        """The reports of each part; a distribution needs large ones."""
        size = self.asked["large_part" if large else "part"]
        return (reports[start : start + size] for start in range(0, len(reports), size))
