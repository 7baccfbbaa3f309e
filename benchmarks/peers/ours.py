"""The same work, done by fedldp: for each task of another library one of ours."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from work import BINS, COLUMNS, Work

import fedldp
from fedldp import datasets
from fedldp.coders import DirectionsCoder, Lines
from fedldp.coders.categories import RandomizedResponse, UnaryEncoding, better, cut, project
from fedldp.coders.lines import compact
from fedldp.learn.examples import Arrays
from fedldp.learn.objectives import objective
from fedldp.learn.optimizer import auto_group, auto_rate
from fedldp.learn.settings import Settings
from fedldp.learn.tasks import Linear
from fedldp.learn.training import Procedure, Training

EPSILON, TRAIN_EPSILON, PART = 1.0, 4.0, 1000
DIMENSIONS = 128  # of vectors
VEHICLES = 20_000  # for which the steps of a training are chosen, where a library is slow
WIDE = {"dep_delay": (-30.0, 120.0), "distance": (0.0, 5000.0), "air_time": (20.0, 700.0)}
COLUMN, BOUNDS = "distance", (0.0, 5000.0)  # miles; public
CATEGORY = "carrier"
LARGE_PART = 5000  # vehicles of an estimated distribution


def prepare(folder: Path) -> None:
    """Write the vehicles' data: real flights in random order, of which a tenth is held out."""
    flights = datasets.load("flights")
    order = np.argsort(fedldp.source(1).words(len(flights)))
    miles, carriers = flights.matrix(order, [COLUMN, CATEGORY]).T
    low, high = BOUNDS
    numbers = np.clip((miles - low) / (high - low) * 2 - 1, -1, 1)
    own = carriers.astype(np.int64)
    x, y = flights.examples("logistic").read(order)
    held = len(order) // 10
    arrays = {
        "numbers": numbers[held:],
        "own": own[held:],
        "features": x[held:].astype(np.float64),
        "labels": y[held:].astype(np.float64),
        "held_features": x[:held],
        "held_labels": y[:held],
    }
    rng = np.random.default_rng(1)
    for number in (16, 100, 3000):
        spread = rng.integers(0, number, VEHICLES)
        arrays[f"spread_{number}"] = spread
        arrays[f"concentrated_{number}"] = np.where(rng.random(VEHICLES) < 0.9, spread % 10, spread)
    for column in COLUMNS:
        values = flights.matrix(order[held:][:VEHICLES], [column])[:, 0]
        arrays[f"values_{column}"] = np.clip(values, *WIDE[column])
        edges = np.linspace(*WIDE[column], BINS + 1)[1:-1]
        arrays[f"bins_{column}"] = np.searchsorted(edges, values, side="right")
    arrays["vectors"] = unit_vectors()
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    settings, d = Settings(TRAIN_EPSILON), x.shape[1]
    group = auto_group(VEHICLES, settings.plan(d).parts[0].share)
    asked = {
        "epsilon": EPSILON,
        "part": PART,
        "large_part": LARGE_PART,
        "categories": int(own.max()) + 1,
        "train_epsilon": TRAIN_EPSILON,
        "group": group,
        "rate": auto_rate(objective("logistic").distance, d, VEHICLES // group),
    }
    (folder / "work.json").write_text(json.dumps(asked), "utf-8")


def unit_vectors() -> np.ndarray:
    """Return vectors in all directions that lean to one side."""
    draw = np.random.default_rng(1)
    found = draw.standard_normal((VEHICLES, DIMENSIONS)) + draw.standard_normal(DIMENSIONS) / 4
    return found / np.sqrt((found**2).sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class Ours:
    """Our tasks, by the names of theirs."""

    work: Work

    def task(self, name: str, vehicles: int) -> Callable[[], Any]:
        """Return a function that does a task for some vehicles; the tables are made before."""
        kind, _, way = name.partition(", ")
        if kind == "mean":
            return self._mean(vehicles)
        if kind == "vector":
            return self._vector(vehicles)
        if kind == "response":
            return self._response(self._own(name, vehicles), "projected" in way)
        if kind.startswith("frequencies"):
            return self._frequencies(name, vehicles)
        if kind.startswith(("CDF", "median")):
            return self._distribution(name, vehicles)
        if kind == "unary":
            return self._unary(self._own(name, vehicles), "projected" in way)
        return self._round(vehicles) if kind == "a round" else self._training(vehicles)

    def coder(self, name: str) -> Any:
        """The coder of some labels: that with the least error, or one with few bits."""
        number, _ = self.work.labels(name, 0)
        if "few bits" in name:
            return compact(EPSILON, number)
        return min(
            (Lines.of(EPSILON, number), better(EPSILON, number)), key=lambda coder: coder.variance
        )

    def _frequencies(self, name: str, vehicles: int) -> Callable[[], Any]:
        coder, source = self.coder(name), fedldp.source()
        own = self.work.labels(name, vehicles)[1]

        def frequencies(codes: np.ndarray) -> list[float]:
            cells = np.zeros(coder.cells, np.int64)
            coder.count(codes, 0, cells)
            found = coder.frequencies(cells)[1]
            return (cut(found) if "scaled" in name else found).tolist()

        return lambda: [frequencies(each) for each in self.work.parts(coder.encode(own, source))]

    def _distribution(self, name: str, vehicles: int) -> Callable[[], Any]:
        what, _, column = name.partition(" of ")
        asked = fedldp.BinnedNumber.of(column, *WIDE[column], bins=BINS)
        plan, source = fedldp.Plan(fedldp.Schema((asked,)), EPSILON), fedldp.source()
        values = self.work.values(name, vehicles)[:, None]

        def estimated(part: np.ndarray) -> Any:
            found = plan.simulate(part, source).estimate()[column]
            return found.median if what == "median" else found.histogram.frequencies

        return lambda: [estimated(part) for part in self.work.parts(values, large=True)]

    def _own(self, name: str, vehicles: int) -> np.ndarray:
        return self.work.own(vehicles, few="2 occur" in name)

    def _mean(self, vehicles: int) -> Callable[[], Any]:
        channel, x = fedldp.mechanisms.Dominant(EPSILON).channel(), self.work.numbers(vehicles)
        source = fedldp.source()
        return lambda: self.work.means(channel.decode(channel.encode(x, source)))

    def _vector(self, vehicles: int) -> Callable[[], Any]:
        coder, x = DirectionsCoder.of(TRAIN_EPSILON, DIMENSIONS), self.work.vectors(vehicles)
        source = fedldp.source()

        def run() -> list[list[float]]:
            found = []
            for codes in self.work.parts(coder.encode(x, source)):
                cells = np.zeros((1, coder.cells), np.int64)
                coder.count(codes, 0, cells[0])
                found.append((coder.sums(cells)[1] / len(codes)).tolist())
            return found

        return run

    def _response(self, own: np.ndarray, projected: bool) -> Callable[[], Any]:
        coder, source = RandomizedResponse.of(EPSILON, self.work.categories), fedldp.source()

        def frequencies(codes: np.ndarray) -> list[float]:
            found = coder.frequencies(np.bincount(codes, minlength=coder.cells))[1]
            return (project(found) if projected else found).tolist()

        return lambda: [frequencies(each) for each in self.work.parts(coder.encode(own, source))]

    def _unary(self, own: np.ndarray, projected: bool) -> Callable[[], Any]:
        coder, source = UnaryEncoding.of(EPSILON, self.work.categories), fedldp.source()

        def frequencies(bits: np.ndarray) -> list[float]:
            counts = np.append(bits.sum(axis=0, dtype=np.int64), len(bits))
            found = coder.frequencies(counts)[1]
            return (project(found) if projected else found).tolist()

        return lambda: [frequencies(each) for each in self.work.parts(coder.encode(own, source))]

    def _training(self, vehicles: int) -> Callable[[], Any]:
        """Return a function that trains with the estimator and its defaults, for one pass."""
        features, labels = self.work.examples(vehicles)
        x = features[:, :-1]  # the last one is constant
        coded = np.array([len(np.unique(each)) == 2 for each in x.T])  # labels, as -1 and 1
        x = np.where(coded, (x + 1) / 2, x)

        def run() -> list[float]:
            bounds = [bool if each else (-1.0, 1.0) for each in coded]
            model = fedldp.LDPLogisticRegression(epsilon=TRAIN_EPSILON, bounds=bounds)
            model.fit(x, labels)
            weights = np.where(coded, model.coef_[0] / 2, model.coef_[0])
            return [*weights, model.intercept_[0] + weights[coded].sum()]

        return run

    def _round(self, vehicles: int) -> Callable[[], Any]:
        """Return a function that asks all vehicles once for the gradient of a linear model."""
        task = Linear(objective("logistic"), Arrays(*self.work.examples(vehicles)))
        settings, d = Settings(TRAIN_EPSILON), task.dimensions
        recipe = settings.recipe(d, 1, task.objective.distance)
        procedure = Procedure((settings.plan(d),), recipe, vehicles)

        def run() -> list[float]:
            source = fedldp.source()
            training = Training(task, procedure, source, shuffle=False)
            for _ in training:
                pass
            return training.models[0].tolist()

        return run

    def errors(self, name: str, vehicles: int, result: Any) -> np.ndarray | None:
        """How wrong a result is, once for each part; of a model, on the flights held out."""
        kind = name.partition(", ")[0]
        if kind == "a round":
            return None
        if kind == "training":
            return self._held.error(np.array([result]))
        if kind == "mean":
            truth = np.array(self.work.means(self.work.numbers(vehicles)))
            return np.abs(np.array(result) - truth)
        if kind == "vector":
            truth = np.array(self.work.vector_means(self.work.vectors(vehicles)))
            return np.sqrt(((np.array(result).reshape(truth.shape) - truth) ** 2).mean(axis=1))
        if kind.startswith(("CDF", "median")):
            return self._distance(name, vehicles, result)
        own, a = self._own(name, vehicles), self.work.categories
        if kind.startswith("frequencies"):
            a, own = self.work.labels(name, vehicles)
        own = own.reshape(-1, PART)
        truth = np.array([np.bincount(part, minlength=a) for part in own]) / PART
        return np.sqrt(((np.array(result) - truth) ** 2).mean(axis=1))

    def _distance(self, name: str, vehicles: int, result: Any) -> np.ndarray:
        """How far distribution functions are off at the edges, at most; or medians, in bins.

        From a histogram, the distribution function is its sum, made monotone, and the median is
        found by interpolation.
        """
        what, _, column = name.partition(" of ")
        parts = list(self.work.parts(self.work.values(name, vehicles), large=True))
        edges = np.linspace(*WIDE[column], BINS + 1)
        errors = []
        for part, found in zip(parts, result, strict=True):
            if np.ndim(found):
                cdf = np.clip(np.maximum.accumulate(np.append(0.0, np.cumsum(found))), 0.0, 1.0)
                found = np.interp(0.5, cdf, edges)
            if what == "median":
                errors.append(abs(found - np.median(part)) / (edges[1] - edges[0]))
            else:
                truth = np.searchsorted(np.sort(part), edges[1:-1], side="left") / len(part)
                errors.append(np.abs(cdf[1:-1] - truth).max())
        return np.array(errors)

    @cached_property
    def _held(self) -> Linear:
        arrays = [np.load(self.work.folder / f"held_{name}.npy") for name in ("features", "labels")]
        return Linear(objective("logistic"), Arrays(*arrays))
