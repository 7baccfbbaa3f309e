"""`make bench-training`: a pass of LDP-FedSGD, against reading the data and against the naive way.

Logistic regression on random data in float32, groups of 4,000 vehicles, each answering one of d
coordinates through a table with 31 outputs. All ways are timed in turn, several times over, and
each ratio is taken within one turn. The naive way perturbs every entry of the gradient matrix; it
runs on a tenth of the vehicles and its time is scaled. All on one core: threads that wait for each
other would measure what else the machine does.
"""

import os
import sys
import time
from collections.abc import Callable

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is imported

import numpy as np
import straightforward
from rich.console import Console
from rich.progress import track
from rich.table import Table

import fedldp
from fedldp.learn.examples import Arrays
from fedldp.learn.gradients import Linear
from fedldp.learn.objectives import objective
from fedldp.learn.settings import Settings

MILLION = 1_000_000
GROUP = 4_000
SETTINGS = Settings(epsilon=1.0, group=GROUP, k=1)
NAIVE = fedldp.HMTP(1.0)


def data(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    source = fedldp.source(1)
    x = np.empty((n, d), np.float32)
    for start in range(0, n, MILLION // 10):
        block = x[start : start + MILLION // 10]
        block[:] = source.words(block.shape, np.uint32) * np.float32(2.0**-31) - 1
    x[:, -1] = 1.0
    return x, np.where(source.bernoulli(0.5, n), np.float32(1), np.float32(-1))


def one_pass(task: Linear, replicas: int = 1) -> None:
    chance, distance = fedldp.source(2), task.objective.distance
    for _ in SETTINGS.training(task, distance, chance, shuffle=False, replicas=replicas):
        pass


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def compare(n: int, d: int, turns: int) -> Table:
    x, y = data(n, d)
    task, tenth, rng = (
        Linear(objective("logistic"), Arrays(x, y)),
        n // 10,
        np.random.default_rng(3),
    )
    ways = {
        "one pass": lambda: one_pass(task),
        "16 replicas": lambda: one_pass(task, 16),
        "reading X": lambda: [x[at : at + GROUP].sum() for at in range(0, n, GROUP)],
        "X times a vector": lambda: [x[at : at + GROUP] @ x[0] for at in range(0, n, GROUP)],
        "naive (scaled)": lambda: straightforward.train(NAIVE, x[:tenth], y[:tenth], GROUP, rng),
    }
    scale = {"naive (scaled)": 10.0}
    one_pass(task)
    times = {name: np.empty(turns) for name in ways}
    for turn in track(range(turns), "Measuring", transient=True):
        for name, way in ways.items():
            times[name][turn] = seconds(way) * scale.get(name, 1.0)
    table = Table(title=f"{n:,} vehicles, d = {d}, k = 1: median of {turns} turns")
    for heading in ("", "seconds", "ns a vehicle", "times one pass", "quartiles"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, each in times.items():
        ratios = each / times["one pass"]
        low, middle, high = np.percentile(ratios, [25, 50, 75])
        middle_time = float(np.median(each))
        table.add_row(
            name,
            f"{middle_time:.3f}",
            f"{middle_time / n * 1e9:.1f}",
            f"{middle:.2f}",
            f"{low:.2f} - {high:.2f}",
        )
    reading = times["one pass"] / times["reading X"]
    table.caption = "one pass takes {:.2f} ({:.2f} - {:.2f}) times as long as reading X".format(
        *np.percentile(reading, [50, 25, 75])
    )
    return table


def growth(turns: int) -> Table:
    table = Table(title="How one pass grows: ns a vehicle")
    dimensions = (2, 10, 94, 500, 2000)
    for heading in ("vehicles", *(f"d = {d}" for d in dimensions)):
        table.add_column(heading, justify="right")
    cells = {}
    for d in track(dimensions, "Growing", transient=True):
        most = 400_000 if d > 100 else 4 * MILLION
        x, y = data(most, d)
        for n in (40_000, 400_000, 4 * MILLION):
            if n <= most:
                task = Linear(objective("logistic"), Arrays(x[:n], y[:n]))
                least = min(seconds(lambda task=task: one_pass(task)) for _ in range(turns))
                cells[n, d] = f"{least / n * 1e9:.0f}"
    for n in (40_000, 400_000, 4 * MILLION):
        table.add_row(f"{n:,}", *(cells.get((n, d), "") for d in dimensions))
    return table


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 4 * MILLION
    Console().print(compare(n, 94, turns=9))
    Console().print(growth(turns=3))


if __name__ == "__main__":
    main()
