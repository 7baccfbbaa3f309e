"""`make bench-reproduce`: what a run costs, and what a second core is worth.

Mean estimation as the paper's figures have it: 16 Gaussian attributes of many vehicles, for each of
the eight mechanisms. The jobs are those of `fedldp-reproduce`, and go the same way. One core and
two take turns, several times; shown is the median of the ratios, with the lowest and the highest.
Give a number of vehicles to try it with fewer than 4 million.
"""

import os
import sys
import time
from dataclasses import replace

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from fedldp_reproduction.experiments.jobs import ExperimentJob, run
from fedldp_reproduction.experiments.material import Shelf
from fedldp_reproduction.figures import Way, description
from fedldp_reproduction.runner import done

MECHANISMS = ("laplace", "duchi", "pm", "hm", "three-outputs", "pm-sub", "pm-opt", "hm-tp")
EPSILONS, RUNS, EPSILON = 8, 100, 4.0
ROUNDS, COPIES = 5, 3


def jobs(identity: str) -> dict[str, ExperimentJob]:
    """One run of each mechanism."""
    ways = dict(description().ways) | {"pm-opt": Way("pm-opt")}
    return {name: ExperimentJob("", identity, ways[name], EPSILON, 0, 1, 1) for name in MECHANISMS}


def seconds(work: list[ExperimentJob], numbers: np.ndarray, processes: int) -> float:
    """Return how long some jobs take."""
    start = time.perf_counter()
    for _ in done(work, (numbers,), processes):
        pass
    return time.perf_counter() - start


def main() -> None:
    """Measure, and print two tables."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 4_000_000
    material = Shelf({}, 1).material("gaussian-1-3", rows)
    numbers = material.numbers()
    each = jobs(material.identity)
    costs = {}
    for name, job in track(each.items(), "One core", transient=True):
        run(job, numbers[:1000])  # tables are made once
        start = time.process_time()
        run(job, numbers)
        costs[name] = time.process_time() - start
    longest_first = sorted(each.values(), key=lambda job: -costs[job.way.mechanism])
    work = [replace(job, first=copy) for job in longest_first for copy in range(COPIES)]
    seconds(work[-4:], numbers[:1000], 2)  # processes are started once
    ratios = [
        seconds(work, numbers, 1) / seconds(work, numbers, 2)
        for _ in track(range(ROUNDS), "One core and two", transient=True)
    ]

    table = Table(title=f"one run, {rows:,} vehicles, {numbers.shape[1]} attributes")
    table.add_column("mechanism")
    table.add_column("seconds of one core", justify="right")
    table.add_column("times hm-tp", justify="right")
    for name, cost in costs.items():
        table.add_row(name, f"{cost:.2f}", f"{cost / costs['hm-tp']:.1f}")
    console = Console()
    console.print(table)
    total = sum(costs.values()) * EPSILONS * RUNS / 3600
    console.print(
        f"All {len(costs)} mechanisms, {EPSILONS} epsilons, {RUNS} runs: {total:.1f} core hours."
    )
    low, middle, high = np.quantile(ratios, [0, 0.5, 1])
    console.print(
        f"Two processes instead of one: {middle:.2f} times as fast ({low:.2f} to {high:.2f}; "
        f"load of {os.cpu_count()} cores: {os.getloadavg()[0]:.1f})."
    )


if __name__ == "__main__":
    main()
