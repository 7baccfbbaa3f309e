"""From the description of figures to the figures: jobs run on all cores, and results are kept.

The result of a job is kept in a file named by its settings. If the runner is killed and started
again, it resumes, and ends with the same results. The results do not depend on the number of cores
or machines: for a cluster, put `joblib.parallel_config(backend="dask")` around `reproduce`.
"""

import json
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
from joblib import Parallel, delayed

from fedldp._internal.validation import Floats
from fedldp.errors import DomainError
from fedldp.learn.objectives import objective
from fedldp.mechanisms import mechanism
from fedldp.storage import files
from fedldp_reproduction import theory
from fedldp_reproduction.experiments import ablation
from fedldp_reproduction.experiments.explained import explained
from fedldp_reproduction.experiments.jobs import (
    GROUPS,
    ExperimentJob,
    Outcome,
    expected_error,
    run,
    theory_rate,
)
from fedldp_reproduction.experiments.material import Material, Shelf, as_arrays, missing, untargeted
from fedldp_reproduction.experiments.samples import ErrorSample, Samples
from fedldp_reproduction.experiments.verdicts import Measured, differences, verdicts
from fedldp_reproduction.figures import (
    BEST,
    CITED,
    Description,
    Figure,
    Profile,
    Way,
    description,
)
from fedldp_reproduction.results import FigureResult, Point

Progress = Callable[[int, int, float | None], None]  # jobs done, of all, and the seconds left

_ROWS_OF_A_JOB = {"means": 20_000_000, "training": 1_000_000}  # seconds of work, not minutes
_AXES = {"epsilon": "epsilons", "rate": "rates"}  # of a profile, where they differ
_X_LABELS = {
    "epsilon": "privacy budget ε",
    "rate": "learning rate, as a multiple of 1/d",
    "groups": "groups of vehicles, which are rounds",
    "outputs": "number of outputs",
    "bits": "bits of one answer",
}


@final
@dataclass(frozen=True)
class _Cell:
    """One place of a figure, and the jobs whose runs belong there."""

    material: Material
    sample: ErrorSample  # still without values
    jobs: tuple[ExperimentJob, ...]
    cost: float  # of one run, in microseconds on one core
    rate: float | str  # that is reported: a multiple of 1/d, or the best of the grid
    theory_rate: float  # that of SGD's theory, for comparison


def reproduce(
    figures: Sequence[Figure],
    profile: str,
    data: Mapping[str, Path],
    keep: Path,
    jobs: int | None,
    progress: Progress,
) -> Iterator[FigureResult]:
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

    def _path(self, job: ExperimentJob) -> Path:
        return self._folder / job.key[:2] / f"{job.key}.json"

    def load(self, job: ExperimentJob) -> Floats | None:
        """Return the errors of the runs of a job, or None if it is not finished."""
        try:
            values = json.loads(self._path(job).read_text("utf-8"))["errors"]
            errors = np.array(values, np.float64)
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return errors if errors.shape == job.shape and np.isfinite(errors).all() else None

    def finished(self, job: ExperimentJob) -> Floats:
        """Return the errors of the runs of a job that is finished."""
        values = self.load(job)
        if values is None:
            raise DomainError(
                f"{self._path(job)} must hold the finite errors of {job.runs} runs of "
                f"{job.way.mechanism or 'no mechanism'}, and does not. Delete it and start again; "
                "if that does not help, they are not finite."
            )
        return values

    def save(self, job: ExperimentJob, values: list[Outcome]) -> None:
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
        self._left: dict[ExperimentJob, float] = {}  # what each job costs that is not finished
        self._total = 0
        self._done = self._elapsed = 0.0  # cost that was paid here, and the seconds it took

    def cells(self, figure: Figure) -> tuple[list[_Cell], list[_Cell]]:
        """Return the places of a figure, and those of the one beside it.

        Beside an ablation are the same steps with a smaller fleet.
        """
        if figure.kind == "theory":
            return [], []
        if figure.kind == "ablation":
            whole, part = (list(self._steps(figure, fewer)) for fewer in (1, ablation.SMALL))
            return whole, [cell for cell in part if cell.jobs[0].task]
        beside: list[_Cell] = []
        if figure.beside:
            other = replace(self._known.figure(figure.beside), data=figure.data, shown=figure.shown)
            beside = list(self._expanded(other))
        return list(self._expanded(figure)), beside

    def _materials(
        self, figure: Figure, rows: int | None = None
    ) -> tuple[dict[str, Material], list[str]]:
        """Return the data sets that a figure can use, and what to say about its others."""
        profile, found, absent = self._profile, {}, []
        if rows is None:
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

    def _steps(self, figure: Figure, fewer: int) -> Iterator[_Cell]:
        """Yield the places of an ablation: the steps on each data set, for each objective."""
        for name in figure.objectives:
            kind = "training" if name else "means"
            part = replace(figure, kind=kind, objective=name)
            title = objective(name).title if name else "Means"
            steps = (*ablation.MODELS, "converged") if name else ablation.MEANS
            rows = self._profile.rows if name else self._profile.rows_for_means
            for material in self._materials(part, rows // fewer)[0].values():
                for step in steps:
                    way = ablation.WAYS.get(step) or self._known.ways[step]
                    cell = self._cell(part, material, step, way, figure.epsilon)
                    panel = f"{title}: {material.about.title}"
                    yield replace(cell, sample=replace(cell.sample, panel=panel))

    def _expanded(self, figure: Figure) -> Iterator[_Cell]:
        xs: tuple[float, ...] = getattr(self._profile, _AXES.get(figure.over, figure.over))
        if figure.over == "epsilon":
            xs = tuple(sorted({*xs, *figure.shown}))
        for material in self._materials(figure)[0].values():
            for series in figure.series:
                for x in xs:
                    way = _way(self._known.ways[series], figure, x)
                    if way is not None:
                        yield self._cell(figure, material, series, way, x)

    def _cell(self, figure: Figure, material: Material, series: str, way: Way, x: float) -> _Cell:
        profile, training = self._profile, figure.kind == "training"
        rows = len(material.dataset)
        epsilon = x if figure.over == "epsilon" else figure.epsilon
        if not way.mechanism:
            epsilon = 1.0  # it has none: one job for all
        swept = training and way.server == "paper"
        noisy = training and bool(way.mechanism)
        whole = ExperimentJob(
            task=figure.objective,
            data=material.identity,
            way=replace(way, rate=BEST),  # all rates are trained, and one of them is reported
            epsilon=float(epsilon if training else epsilon * material.share),
            first=0,
            runs=profile.held * profile.times if training else profile.runs,
            seed=self._known.seed,
            folds=profile.folds if training else 0,
            held=profile.held if training else 0,
            rates=profile.rates if swept else (),
            replicates=profile.replicates if noisy else 1,
            groups=int(x) if figure.over == "groups" and swept else GROUPS,
        )
        models = max(1, len(whole.rates)) * whole.replicates
        at_once = max(1, _ROWS_OF_A_JOB[figure.kind] // (rows * models))
        jobs = tuple(
            replace(whole, first=first, runs=min(at_once, whole.runs - first))
            for first in range(0, whole.runs, at_once)
        )
        d = material.dataset.dimensions if training else material.dataset.asked.dimensions
        goal = objective(figure.objective) if training else None
        return _Cell(
            material,
            ErrorSample(
                material.about.title,
                series,
                float(x),
                (),
                overlap=1 / (profile.folds - 1) if training else 0.0,
                stand_in=not material.is_papers,
                replicates=whole.replicates,
            ),
            jobs,
            _cost(way, training, rows, d) * models,
            float(x) if figure.over == "rate" and swept else way.rate,
            theory_rate(goal, d, whole.groups, profile.rates) if goal else 1.0,
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

    def result(self, figure: Figure, cells: list[_Cell], beside: list[_Cell]) -> FigureResult:
        """Do what is left for a figure, and return it."""
        samples = self._samples((*cells, *beside))
        if figure.kind == "ablation":
            return self._ablation(figure, samples, cells, beside)
        by_theory = {
            cell: self._filled(replace(cell, rate=cell.theory_rate), ())
            for cell in cells
            if cell.jobs[0].rates
        }
        found, absent = self._materials(figure)
        materials = list(found.values())
        classifies = bool(figure.objective) and objective(figure.objective).classifies
        return FigureResult(
            key=figure.key,
            title=figure.title,
            paper=figure.paper,
            x_label=_X_LABELS[figure.over],
            y_label="misclassification rate" if classifies else "mean squared error",
            x_log=figure.over in ("outputs", "rate", "groups"),
            y_log=figure.kind == "means",
            points=(
                *(samples[cell].point() for cell in cells),
                *differences([samples[cell] for cell in cells if cell.jobs[0].task]),
                *_computed(figure, self._profile, self._known),
            ),
            verdicts=verdicts(
                Measured(
                    figure,
                    Samples(tuple(samples[cell] for cell in cells)),
                    Samples(tuple(samples[cell] for cell in beside)),
                    Samples(tuple(by_theory[cell] for cell in cells if cell in by_theory)),
                )
            ),
            settings=(*explained(figure, self._profile, self._known, materials), *absent),
            data=tuple(line for material in materials for line in material.lines),
            synthetic=any(material.about.synthetic for material in materials),
        )

    def _samples(self, cells: Iterable[_Cell]) -> dict[_Cell, ErrorSample]:
        """Do what is left for some places, and return what was measured there."""
        alike: dict[tuple[Any, ...], list[_Cell]] = {}
        for cell in cells:
            job = cell.jobs[0]
            key = (cell.material, job.task, job.way.coding, job.way.surveyed)
            alike.setdefault(key, []).append(cell)
        samples: dict[_Cell, ErrorSample] = {}
        for (material, task, *_), mine in alike.items():
            wanted = [job for cell in mine for job in cell.jobs if job in self._left]
            # Large arrays are made only if they are needed.
            needed = wanted or not task
            arrays = as_arrays(material, task, mine[0].jobs[0].way) if needed else ()
            self._compute(wanted, arrays)
            samples |= {cell: self._filled(cell, arrays) for cell in mine}
        return samples

    def _ablation(
        self,
        figure: Figure,
        samples: Mapping[_Cell, ErrorSample],
        cells: Sequence[_Cell],
        beside: Sequence[_Cell],
    ) -> FigureResult:
        panels = []
        for title in dict.fromkeys(cell.sample.panel for cell in cells):
            whole, small = (
                {samples[c].series: samples[c] for c in part if c.sample.panel == title}
                for part in (cells, beside)
            )
            floor = whole.pop("converged", None)
            small.pop("converged", None)
            panels.append(ablation.Panel(title, whole, small, floor.level if floor else 0.0))
        materials = list(dict.fromkeys(cell.material for cell in cells))
        absent = self._materials(replace(figure, kind="means"))[1]
        steps = (f"{place}: {ablation.TITLES[name]}" for place, name in enumerate(ablation.MODELS))
        return FigureResult(
            key=figure.key,
            title=figure.title,
            paper=figure.paper,
            x_label="step",
            y_label="error",
            x_log=False,
            y_log=False,
            points=ablation.points(panels),
            verdicts=(ablation.verdict(panels),),
            settings=(
                *steps,
                f"ε = {figure.epsilon:g}; each step keeps what the steps before it changed; means "
                "have steps 0, 2, 3 and 4",
                "step 0 has the rate 1/d; step 5 also codes each category by one feature of 0 or "
                "1 for each label, as the default does, and its rates are 8 times as large: its "
                "features are 0 but for one of each attribute",
                "error: squared of means and of linear regression, otherwise the misclassification "
                "rate; converged: without privacy",
                "vehicles: the error of means falls as 1/n; how that of models falls, above the "
                f"converged one, is measured with 1/{ablation.SMALL} of the fleet",
                *figure.notes,
                f"seed: {self._known.seed}",
                *absent,
            ),
            data=tuple(line for material in materials for line in material.lines),
            synthetic=any(material.about.synthetic for material in materials),
            table=ablation.table(panels),
        )

    def _filled(self, cell: _Cell, arrays: Sequence[Any]) -> ErrorSample:
        return replace(
            cell.sample,
            values=tuple(error for job in cell.jobs for error in self._reported(cell, job)),
            expected=None if cell.jobs[0].task else expected_error(cell.jobs[0], *arrays),
        )

    def _reported(self, cell: _Cell, job: ExperimentJob) -> list[float]:
        """Return the errors that a figure shows: those of the rate that is best on training rows.

        The rate is chosen anew for each fold, by the mean of its replicates.
        """
        errors = self._kept.finished(job)
        if not job.task:
            return [float(error) for error in errors]
        train, test = errors[:, 0], errors[:, 1]
        chosen = np.zeros(len(errors), np.intp)
        if job.rates:
            chosen[:] = (
                train.mean(axis=2).argmin(axis=1)
                if isinstance(cell.rate, str)
                else job.rates.index(cell.rate)
            )
        return [float(error) for error in test[np.arange(len(test)), chosen].reshape(-1)]

    def _compute(self, jobs: Iterable[ExperimentJob], arrays: Sequence[Any]) -> None:
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
    signs = 0.09 + 0.009 * d
    if not training:
        each = {"sample": 0.05, "cube": signs, CITED: 2 * signs, "split": 0.03 * d, "none": 0.0}
        return 1e3 + each[kind] * rows
    if way.server == "converged":
        return 0.2 * d * rows
    if way.hidden:
        return 0.06 * d * rows
    each = {"sample": 0.17, "cube": 0.009 * d, CITED: 0.009 * d, "directions": 4.0}
    return 1e3 + each.get(kind, 0.1) * rows


def done(
    jobs: Iterable[ExperimentJob], arrays: Sequence[Any], processes: int | None
) -> Iterator[tuple[ExperimentJob, list[Outcome]]]:
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


def _with_job(job: ExperimentJob, *arrays: Any) -> tuple[ExperimentJob, list[Outcome]]:
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
