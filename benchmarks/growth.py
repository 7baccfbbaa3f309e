"""`make bench-growth`: how cost grows with vehicles, with dimensions and with outputs.

Each line is measured in a process of its own, so that its peak of memory is its own. Of a vehicle,
the values are made when it is asked for them, from a keystream and off the clock: what is kept is
only what a server keeps. Times are those of one core.
"""

import os
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fedldp.plan.strategies import Sample

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy is imported, here and in each process

import harness
import numpy as np
import pages
from harness import shown
from pages import Table
from rich.progress import track

import fedldp
from fedldp import _plots as plots
from fedldp.learn.gradients import gradients_of
from fedldp.learn.objectives import Objective, objective
from fedldp.learn.settings import Settings
from fedldp.learn.tasks import Task
from fedldp.plan.parts import VehicleValues

VEHICLES = tuple(10**power for power in range(3, 9))
DIMENSIONS = tuple(10**power for power in range(6))
OUTPUTS = (2, 3, 7, 31, 127, 501, 2001)
ATTRIBUTES = 16  # of a vehicle, where vehicles grow
ASKED = 1_000_000  # vehicles, where dimensions grow; values, where outputs grow
BATCH = 1 << 16
EPSILON = 2.0


class Clock:
    """Counts time, but for that in which vehicles' values are made."""

    def __init__(self) -> None:
        self._source, self._outside, self._start = fedldp.source(1), 0.0, time.process_time()

    def values(self, *shape: int) -> np.ndarray:
        """Make numbers in [-1, 1], off the clock."""
        start = time.process_time()
        made = self._source.words(shape, np.uint32) * 2.0**-31 - 1
        self._outside += time.process_time() - start
        return made

    def seconds(self) -> float:
        return time.process_time() - self._start - self._outside


@dataclass(frozen=True)
class Asked:
    """Some vehicles, whose values are made when they are asked for."""

    vehicles: int
    clock: Clock

    def __len__(self) -> int:
        return self.vehicles

    def take(self, _: np.ndarray | None, columns: np.ndarray) -> np.ndarray:
        return self.clock.values(len(columns))


@dataclass(frozen=True)
class Made(Task):
    """A model to train, of vehicles whose examples are made when they are asked for."""

    vehicles: int
    clock: Clock
    objective: Objective
    kind: str = "made"
    dimensions: int = ATTRIBUTES

    def __len__(self) -> int:
        return self.vehicles

    def gradients(self, weights: np.ndarray, vehicles: slice) -> VehicleValues:
        x = self.clock.values(vehicles.stop - vehicles.start, self.dimensions)
        return gradients_of(self.objective, weights, x, np.where(x[:, 0] > 0, 1.0, -1.0))


class Collected(NamedTuple):
    each: float  # seconds for a vehicle: report, parse and tally
    estimate: float  # seconds
    bits: int
    memory: float  # MiB


class Trained(NamedTuple):
    each: float  # seconds for a vehicle
    memory: float  # MiB


class Tabled(NamedTuple):
    make: float  # seconds, to compute it and check it in integers
    encode: float  # seconds for a value
    decode: float
    json: int  # bytes
    bits: int


def collect(vehicles: int, dimensions: int) -> Collected:
    plan = fedldp.Plan(fedldp.Schema.vector(dimensions, bound=1.0), EPSILON, Sample(k=1))
    plan.simulate(np.zeros((8, dimensions)), fedldp.source(3))  # prepares the tables

    taken, tally = [], plan.tally()
    for _ in range(turns(vehicles)):
        clock = Clock()
        batches = (
            Asked(min(BATCH, vehicles - start), clock) for start in range(0, vehicles, BATCH)
        )
        tally = plan.simulate_batches(batches, fedldp.source(2))
        taken.append(clock.seconds())
    each = float(np.median(taken)) / vehicles
    tally.estimate()  # the first one loads SciPy
    return Collected(each, harness.seconds(tally.estimate), plan.bits, peak())


def train(vehicles: int) -> Trained:
    settings, logistic = Settings(EPSILON, Sample(k=1)), objective("logistic")
    settings.plan(ATTRIBUTES)  # its table is found once, and kept

    def once() -> float:
        clock = Clock()
        task, source = Made(vehicles, clock, logistic), fedldp.source(2)
        for _ in settings.training(task, logistic.distance, source, shuffle=False):
            pass
        return clock.seconds()

    each = float(np.median([once() for _ in range(turns(vehicles))])) / vehicles
    return Trained(each, peak())


def turns(vehicles: int) -> int:
    """Return how often to measure: what is long enough, once."""
    return 5 if vehicles <= ASKED else 1


def tabulate(outputs: int) -> Tabled:
    few = {2: "duchi", 3: "three-outputs"}
    m = fedldp.mechanism(few.get(outputs, "hm-tp"), EPSILON)
    x, source = fedldp.source(2).uniform(ASKED) * 2 - 1, fedldp.source(3)
    start = time.process_time()
    channel = m.channel(None if outputs in few else outputs)
    channel.encode(x[:1], source)  # prepares the table
    make = time.process_time() - start
    codes = channel.encode(x, source)
    ways = {"encode": lambda: channel.encode(x, source), "decode": lambda: channel.decode(codes)}
    times = harness.interleaved(ways, turns=5)
    encode, decode = (float(np.median(times[name])) / ASKED for name in ways)
    return Tabled(make, encode, decode, len(channel.to_json()), channel.bits)


def peak() -> float:
    """The most memory that this process has held at any time, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(what: str, function: Callable[..., Any], cases: Sequence[tuple[int, ...]]) -> list:
    return [
        harness.in_new_process(function, *case)
        for case in track(cases, f"Growing: {what}", transient=True)
    ]


def ns(seconds: float) -> str:
    return f"{shown(seconds * 1e9)} ns"


def ms(seconds: float) -> str:
    return f"{shown(seconds * 1e3)} ms"


def mib(memory: float) -> str:
    return f"{memory:.0f} MiB"


def vehicles_table(collected: list[Collected], trained: list[Trained]) -> Table:
    return Table(
        f"More vehicles, each with {ATTRIBUTES} numbers",
        ("vehicles", "collect, a vehicle", "peak memory", "train, a vehicle", "peak memory"),
        [
            (f"{n:,}", ns(a.each), mib(a.memory), ns(b.each), mib(b.memory))
            for n, a, b in zip(VEHICLES, collected, trained, strict=False)
        ],
        words=0,
    )


def dimensions_table(collected: list[Collected]) -> Table:
    return Table(
        f"More numbers of each of {ASKED:,} vehicles, which report one of them",
        ("numbers", "bits of a report", "collect, a vehicle", "estimate all", "peak memory"),
        [
            (f"{d:,}", f"{each.bits}", ns(each.each), ms(each.estimate), mib(each.memory))
            for d, each in zip(DIMENSIONS, collected, strict=True)
        ],
        words=0,
    )


def outputs_table(tabled: list[Tabled]) -> Table:
    return Table(
        "More outputs of a table: Duchi's 2, Three-Outputs' 3, and HM-TP's",
        ("outputs", "bits", "make and check it", "encode, a value", "decode, a value", "as JSON"),
        [
            (
                f"{outputs:,}",
                f"{each.bits}",
                ms(each.make),
                ns(each.encode),
                ns(each.decode),
                f"{shown(each.json / 1024)} KiB",
            )
            for outputs, each in zip(OUTPUTS, tabled, strict=True)
        ],
        words=0,
    )


def picture(
    by_vehicles: list[Collected],
    trained: list[Trained],
    by_dimensions: list[Collected],
    tabled: list[Tabled],
) -> plots.Figure:
    figure = plots.Figure(figsize=(11, 3.8), layout="constrained")
    memory, wide, outputs = figure.subplots(1, 3)
    n = VEHICLES[: len(by_vehicles)]
    memory.plot(n, [each.memory for each in by_vehicles], "o-", color=plots.BLUE, label="collect")
    memory.plot(n, [each.memory for each in trained], "s--", color=plots.VERMILION, label="train")
    memory.set(xlabel="vehicles", ylabel="peak memory, MiB", title="memory")
    wide.plot(DIMENSIONS, [1e9 * each.each for each in by_dimensions], "o-", color=plots.BLUE)
    wide.set(xlabel="numbers of a vehicle", ylabel="ns", title="collect from a vehicle")
    for name, style, colour in (("encode", "o-", plots.BLUE), ("decode", "s--", plots.VERMILION)):
        times = [1e9 * getattr(each, name) for each in tabled]
        outputs.plot(OUTPUTS, times, style, color=colour, label=name)
    outputs.set(xlabel="outputs", ylabel="ns", title="one value")
    for axes in (memory, wide, outputs):
        axes.set(xscale="log", ylim=(0, 1.15 * axes.get_ylim()[1]))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    memory.legend(frameon=False)
    outputs.legend(frameon=False)
    return figure


def main() -> None:
    parser = pages.options(__doc__)
    parser.add_argument("--most", type=int, default=max(VEHICLES), help="vehicles at most")
    chosen = parser.parse_args()
    machine, busy = pages.machine("cryptography"), pages.busy()
    vehicles = [n for n in VEHICLES if n <= chosen.most]
    by_vehicles = measured("collect", collect, [(n, ATTRIBUTES) for n in vehicles])
    trained = measured("train", train, [(n,) for n in vehicles])
    by_dimensions = measured("dimensions", collect, [(ASKED, d) for d in DIMENSIONS])
    tabled = measured("outputs", tabulate, [(outputs,) for outputs in OUTPUTS])
    tables = [
        vehicles_table(by_vehicles, trained),
        dimensions_table(by_dimensions),
        outputs_table(tabled),
    ]
    pages.publish("growth", tables, f"{machine}; {busy}", chosen.write)
    if chosen.plot:
        plots.save(picture(by_vehicles, trained, by_dimensions, tabled), chosen.plot)


if __name__ == "__main__":
    main()
