"""From the description of figures to the figures: jobs run on all cores, and results are kept.

The result of a job is kept in a file named by its settings. If the runner is killed and started
again, it resumes, and ends with the same results. The results do not depend on the number of cores
or machines: for a cluster, put `joblib.parallel_config(backend="dask")` around `reproduce`.
"""

import json
import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, final

from joblib import Parallel, delayed

from fedldp.errors import DomainError
from fedldp.learn.objectives import objective
from fedldp.mechanisms import mechanism
from fedldp.storage import files
from fedldp_reproduction import theory
from fedldp_reproduction.experiments.explained import explained
from fedldp_reproduction.experiments.jobs import Job, expected_error, run
from fedldp_reproduction.experiments.material import Material, Shelf, as_arrays, missing, untargeted
from fedldp_reproduction.experiments.samples import Sample, Samples
from fedldp_reproduction.experiments.verdicts import Measured, verdicts
from fedldp_reproduction.figures import Description, Figure, Profile, Way, description
from fedldp_reproduction.results import Point, Result

Progress = Callable[[int, int, float | None], None]  # jobs done, of all, and the seconds left

_ROWS_OF_A_JOB = {"means": 20_000_000, "training": 1_000_000}  # seconds of work, not minutes
_AXES = {"epsilon": "epsilons", "rate": "rates"}  # of a profile, where they differ
_X_LABELS = {
    "epsilon": "privacy budget ε",
    "rate": "learning rate, as a multiple of 1/d",
    "outputs": "number of outputs",
    "bits": "bits of one answer",
}


@final
@dataclass(frozen=True)
class _Cell:
    """One place of a figure, and the jobs whose runs belong there."""

    data: str
    sample: Sample  # still without values
    jobs: tuple[Job, ...]
    cost: float  # of one run, in microseconds on one core


def reproduce(
    figures: Sequence[Figure],
    profile: str,
    data: Mapping[str, Path],
    keep: Path,
    jobs: int | None,
    progress: Progress,
) -> Iterator[Result]:
    """Yield each figure as soon as it is finished.

    `data` are paths of files by the name of their data set, `keep` is the folder of finished jobs,
    and `jobs` the number of processes: -1 for all cores, None for what joblib was told.
    """
    known = description()
    work = _Work(known, known.profile(profile), data, _Kept(keep), jobs, progress)
    needed = {figure.key: work.cells(figure) for figure in figures}
    work.plan(cell for cells in needed.values() for part in cells for cell in part)
    for figure in figures:
        if figure.kind == "theory":
            computed = theory.FIGURES[figure.key]()
            yield replace(computed, title=figure.title, paper=figure.paper)
        else:
            yield work.result(figure, *needed[figure.key])


@final
class _Kept:
    """Finished jobs in a folder: a file for each, whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _path(self, job: Job) -> Path:
        return self._folder / job.key[:2] / f"{job.key}.json"

    def load(self, job: Job) -> list[float] | None:
        """Return the errors of the runs of a job, or None if it is not finished."""
        try:
            values = json.loads(self._path(job).read_text("utf-8"))["errors"]
        except (OSError, ValueError, LookupError, TypeError):
            return None
        if not isinstance(values, list) or len(values) != job.runs:
            return None
        return values if all(type(v) is float and math.isfinite(v) for v in values) else None

    def finished(self, job: Job) -> list[float]:
        """Return the errors of the runs of a job that is finished."""
        values = self.load(job)
        if values is None:
            raise DomainError(
                f"{self._path(job)} must hold the finite errors of {job.runs} runs of "
                f"{job.way.mechanism or 'no mechanism'}, and does not. Delete it and start again; "
                "if that does not help, they are not finite."
            )
        return values

    def save(self, job: Job, values: list[float]) -> None:
        """Keep the errors of the runs of a job."""
        path = self._path(job)
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, json.dumps({"job": asdict(job), "errors": values}, sort_keys=True))


@final
class _Work:
    """What is to be done for some figures with one profile."""

    def __init__(
        self,
        known: Description,
        profile: Profile,
        data: Mapping[str, Path],
        kept: _Kept,
        jobs: int | None,
        progress: Progress,
    ) -> None:
        self._known, self._profile, self._kept, self._jobs = known, profile, kept, jobs
        self._shelf = Shelf(data, known.seed)
        self._progress = progress
        self._left: dict[Job, float] = {}  # what each job costs that is not finished
        self._total = 0
        self._done = self._elapsed = 0.0  # cost that was paid here, and the seconds it took

    def cells(self, figure: Figure) -> tuple[list[_Cell], list[_Cell]]:
        """Return the places of a figure, and those of the one beside it."""
        if figure.kind == "theory":
            return [], []
        beside: list[_Cell] = []
        if figure.beside:
            other = replace(self._known.figure(figure.beside), data=figure.data, shown=figure.shown)
            beside = list(self._expanded(other))
        return list(self._expanded(figure)), beside

    def _materials(self, figure: Figure) -> tuple[dict[str, Material], list[str]]:
        """Return the data sets that a figure can use, and what to say about its others."""
        profile, found, absent = self._profile, {}, []
        rows = profile.rows if figure.kind == "training" else profile.rows_for_means
        for name in figure.data:
            material = self._shelf.material(name, rows)
            if material is None:
                absent.append(missing(name))
            elif figure.objective and figure.objective not in material.dataset.targets:
                absent.append(untargeted(material, figure.objective))
            else:
                found[name] = material
        return found, absent

    def _expanded(self, figure: Figure) -> Iterator[_Cell]:
        xs: tuple[float, ...] = getattr(self._profile, _AXES.get(figure.over, figure.over))
        if figure.over == "epsilon":
            xs = tuple(sorted({*xs, *figure.shown}))
        for name, material in self._materials(figure)[0].items():
            for series in figure.series:
                for x in xs:
                    way = _way(self._known.ways[series], figure, x)
                    if way is not None:
                        yield self._cell(figure, name, material, series, way, x)

    def _cell(
        self, figure: Figure, name: str, material: Material, series: str, way: Way, x: float
    ) -> _Cell:
        profile, training = self._profile, figure.kind == "training"
        rows = len(material.dataset)
        epsilon = x if figure.over == "epsilon" else figure.epsilon
        if not way.mechanism:
            epsilon = 1.0  # it has none: one job for all
        whole = Job(
            task=figure.objective,
            data=material.identity,
            way=way,
            epsilon=float(epsilon if training else epsilon * material.share),
            first=0,
            runs=profile.held * profile.times if training else profile.runs,
            seed=self._known.seed,
            folds=profile.folds if training else 0,
            held=profile.held if training else 0,
            rate=float(x) if figure.over == "rate" else 1.0,
        )
        at_once = max(1, _ROWS_OF_A_JOB[figure.kind] // rows)
        jobs = tuple(
            replace(whole, first=first, runs=min(at_once, whole.runs - first))
            for first in range(0, whole.runs, at_once)
        )
        d = material.dataset.dimensions if training else material.dataset.asked.dimensions
        return _Cell(
            name,
            Sample(
                material.about.title,
                series,
                float(x),
                (),
                overlap=1 / (profile.folds - 1) if training else 0.0,
                stand_in=not material.is_papers,
            ),
            jobs,
            _cost(way, training, rows, d),
        )

    def plan(self, cells: Iterable[_Cell]) -> None:
        """Find out how much is left to do."""
        costs = {job: cell.cost * job.runs for cell in cells for job in cell.jobs}
        self._total = len(costs)
        self._left = {job: cost for job, cost in costs.items() if self._kept.load(job) is None}
        self._report()

    def _report(self) -> None:
        left = sum(self._left.values())
        seconds = self._elapsed * left / self._done if self._done else None
        self._progress(self._total - len(self._left), self._total, seconds)

    def result(self, figure: Figure, cells: list[_Cell], beside: list[_Cell]) -> Result:
        """Do what is left for a figure, and return it."""
        found, absent = self._materials(figure)
        samples: dict[_Cell, Sample] = {}
        for name, material in found.items():
            mine = [cell for cell in (*cells, *beside) if cell.data == name]
            wanted = [job for cell in mine for job in cell.jobs if job in self._left]
            # Large arrays are made only if they are needed.
            needed = wanted or not figure.objective
            arrays = as_arrays(material, figure.objective) if needed else ()
            self._compute(wanted, arrays)
            samples |= {cell: self._filled(cell, arrays) for cell in mine}
        materials = list(found.values())
        classifies = bool(figure.objective) and objective(figure.objective).classifies
        return Result(
            key=figure.key,
            title=figure.title,
            paper=figure.paper,
            x_label=_X_LABELS[figure.over],
            y_label="misclassification rate" if classifies else "mean squared error",
            x_log=figure.over in ("outputs", "rate"),
            y_log=figure.kind == "means",
            points=(
                *(samples[cell].point() for cell in cells),
                *_computed(figure, self._profile, self._known),
            ),
            verdicts=verdicts(
                Measured(
                    figure,
                    *(Samples(tuple(samples[each] for each in part)) for part in (cells, beside)),
                )
            ),
            settings=(*explained(figure, self._profile, self._known, materials), *absent),
            data=tuple(line for material in materials for line in material.lines),
            synthetic=any(material.about.synthetic for material in materials),
        )

    def _filled(self, cell: _Cell, arrays: Sequence[Any]) -> Sample:
        return replace(
            cell.sample,
            values=tuple(error for job in cell.jobs for error in self._kept.finished(job)),
            expected=None if cell.jobs[0].task else expected_error(cell.jobs[0], *arrays),
        )

    def _compute(self, jobs: Iterable[Job], arrays: Sequence[Any]) -> None:
        """Do jobs on one data set, the longest first, and each once."""
        order = sorted(dict.fromkeys(jobs), key=self._left.__getitem__, reverse=True)
        start, before = time.monotonic(), self._elapsed
        for job, errors in done(order, arrays, self._jobs):
            self._kept.save(job, errors)
            self._done += self._left.pop(job)
            self._elapsed = before + time.monotonic() - start
            self._report()


def _cost(way: Way, training: bool, rows: int, d: int) -> float:
    """Return about how many microseconds a run takes, as measured on one core in 2026."""
    kind = way.strategy if way.mechanism else "none"
    if not training:
        each = {"sample": 0.05, "cube": 0.09 + 0.009 * d, "split": 0.03 * d, "none": 0.0}
        return 1e3 + each[kind] * rows
    fixed = {"sample": 25e3, "cube": 20e3, "split": 6.5e3 * d, "none": 10e3}
    each = {"sample": 0.25, "cube": 0.011 * d, "split": 0.029 * d, "none": 0.005 * d}
    return fixed[kind] + each[kind] * rows


def done(
    jobs: Iterable[Job], arrays: Sequence[Any], processes: int | None
) -> Iterator[tuple[Job, list[float]]]:
    """Yield jobs on the same arrays with their errors, as they are finished.

    Large arrays are handed to the processes once, in memory that they share.
    """
    pool = Parallel(n_jobs=processes, return_as="generator_unordered")
    finished = pool(delayed(_with_job)(job, *arrays) for job in jobs)
    try:
        for each in finished:  # noqa: UP028 (closing this one would close that one, with a warning)
            yield each
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # who stops it knows that jobs were cancelled
            finished.close()


def _with_job(job: Job, *arrays: Any) -> tuple[Job, list[float]]:
    return job, run(job, *arrays)


def _way(way: Way, figure: Figure, x: float) -> Way | None:
    """Return how a competitor asks at one place of a figure, or None if it cannot."""
    if figure.over == "bits":
        way = replace(way, k=1)  # one answer in a report
        if way.discretized:  # to an odd number of outputs
            return way.with_outputs(2 ** int(x) - 1) if x > 1 else None
        # With one bit there is nothing better than Duchi's two outputs.
        return replace(way, outputs=2 ** int(x)) if x > 1 else replace(way, mechanism="duchi")
    if figure.server:
        way = replace(way, server=figure.server)
    outputs = int(x) if figure.over == "outputs" else figure.outputs
    return way.with_outputs(outputs) if outputs else way


def _computed(figure: Figure, profile: Profile, known: Description) -> Iterator[Point]:
    """Yield, where a figure is over bits, the worst-case variances that need no runs."""
    if figure.over != "bits":
        return
    panel = f"one number, ε = {figure.epsilon:g}: worst-case variance, computed"
    for series in figure.series:
        for bits in profile.bits:
            way = _way(known.ways[series], figure, bits)
            if way is not None:
                channel = mechanism(way.mechanism, figure.epsilon).channel(way.outputs)
                yield Point(panel, series, bits, channel.worst_case_variance, None, None, 0)
