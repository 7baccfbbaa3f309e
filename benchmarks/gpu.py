"""`make bench-gpu`: how many vehicles a second a GPU simulates, from gradients to counters.

A vehicle has 64 samples of an accelerometer, as in `networks.py`, and a convolutional network of
324 or 1,284 weights. Its gradient is clipped to a length, one of 63 directions is chosen, and the
code is counted. Steps are timed on the GPU and, with fewer vehicles, on the CPU of the same
machine. Data and gradients are not zeros: these would be faster.
"""

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pages
import torch
from harness import shown
from torch import nn

import fedldp
from fedldp import Plan, Schema, vehicle
from fedldp.coders import DirectionsCoder
from fedldp.learn import torch_directions, torch_kernel
from fedldp.learn.optimizer import Adam
from fedldp.learn.settings import Settings
from fedldp.learn.torch import ModuleTask
from fedldp.learn.training import Training
from fedldp.plan.parts import Part

CHANNELS = (16, 64)  # of networks with 324 and with 1,284 weights
CLASSES, LENGTH, EPSILON = 4, 64, 2.0
VEHICLES, BATCH = 1 << 20, 1 << 16
ON_CPU, COMPARED = 1 << 12, 1 << 14
REPLICAS, GROUP = 20, 400  # trainings at once, and the vehicles of each in a round
TURNS = 5


STEPS = (
    "gradients",
    "clipping, drawing and ranking",
    "counting",
    "all of these, in batches as a training has them",
    f"{REPLICAS} trainings at once, {GROUP} vehicles a round in each",
)


class Rates(NamedTuple):
    """Vehicles a second of each step, of all of them, and of trainings with small rounds."""

    gradients: float
    ranking: float
    counting: float
    everything: float
    training: float


def network(channels: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(
            nn.Conv1d(3, channels, kernel_size=5, stride=2),
            nn.SiLU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
            nn.Linear(channels, CLASSES),
        )


def task_of(channels: int, vehicles: int, device: str) -> ModuleTask:
    source = fedldp.source(1)
    inputs = (source.uniform((vehicles, 3, LENGTH)) * 2 - 1).astype(np.float32)
    targets = source.below(CLASSES, vehicles)
    data = (torch.from_numpy(each).to(device) for each in (inputs, targets))
    return ModuleTask(network(channels).to(device), nn.functional.cross_entropy, *data)


def part_of(d: int) -> tuple[Part, DirectionsCoder]:
    plan = Plan(Schema.vector(d, length=1.0), EPSILON, strategy="directions")
    (part,) = plan.parts
    (coder,) = part.coders
    return part, coder


def seconds(work: Callable[[], object], turns: int = TURNS) -> float:
    """Return the median time of some work that waits for its results, after two rehearsals."""
    times = []
    for turn in range(-2, turns):
        wait()
        start = time.perf_counter()
        work()
        wait()
        if turn >= 0:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def batches(task: ModuleTask):
    weights, size = task.start[None], task.at_once
    for start in range(0, len(task), size):
        yield task.gradients(weights, np.arange(start, min(start + size, len(task))))


def rates(task: ModuleTask, turns: int = TURNS) -> Rates:
    """Time the steps of a simulation one by one, and all of them as a training does them."""
    part, coder = part_of(task.dimensions)
    n, every, source = len(task), np.arange(task.dimensions), fedldp.source(2)
    rows = next(batches(task)).vectors(every)
    some = rows.shortened(1.0, 0.0)
    codes = coder.encode(some, source)
    cells = np.zeros((1, part.starts[-1]), np.int64)

    def gradients():
        for batch in batches(task):
            batch.vectors(every)

    def everything():
        for batch in batches(task):
            part.simulate(batch, source, cells)

    nearby = coder.nearby(some)
    return Rates(
        n / seconds(gradients, turns),
        len(rows) / seconds(lambda: coder.encode(rows.shortened(1.0, 0.0), source), turns),
        len(some) / seconds(lambda: nearby.count(codes, 0, cells[0]), turns),
        n / seconds(everything, turns),
        REPLICAS * GROUP / seconds(training_of(task).advance, turns),
    )


def training_of(task: ModuleTask) -> Training:
    settings = Settings(epsilon=EPSILON, optimizer=Adam(0.06), group=GROUP)
    return settings.training(task, 1.0, fedldp.source(4), start=task.start, replicas=REPLICAS)


def agreement(channels: int, device: str) -> tuple[float, float]:
    """Return the share of codes that are equal: from equal vectors, and from gradients."""
    tasks = [task_of(channels, COMPARED, each) for each in (device, "cpu")]
    every = np.arange(tasks[0].dimensions)
    coder = part_of(len(every))[1]
    there, here = (next(batches(each)).vectors(every).shortened(1.0, 0.0) for each in tasks)
    same = torch_directions.TorchRows(torch.from_numpy(here.matrix).to(device))
    expected, from_equal, from_gradients = (
        coder.encode(rows, fedldp.source(3)) for rows in (here, same, there)
    )
    return float((from_equal == expected).mean()), float((from_gradients == expected).mean())


def bandwidth(device: str) -> float:
    """Return how many bytes a second a copy on the device reads and writes."""
    before = torch.rand(1 << 29, device=device)
    after = torch.empty_like(before)
    return 2 * before.nbytes / seconds(lambda: after.copy_(before))


def products(d: int, device: str) -> float:
    """Return for how many vehicles a second the products of directions are computed, by itself."""
    coder = part_of(d)[1]
    rows = torch_directions.TorchRows(torch.randn((BATCH, d), device=device)).shortened(1.0, 0.0)
    numbers = rows.rounded(vehicle.LENGTH).matrix.to(torch.int32)
    states = torch.randint(1 << 62, (BATCH,), device=device)
    table = torch_directions._table(numbers.device)
    words = (coder.directions + 1) // 4
    return BATCH / seconds(lambda: torch_kernel.products(table, numbers, states, words))


def words_a_second(device: str) -> float:
    """Return how many words the device can mix if it does nothing else: the limit of products."""

    def mixed(states, steps):
        return torch_directions._mixed(states[:, None] + steps).sum(dim=1)

    work = torch.compile(mixed)
    states = torch.randint(1 << 62, (1 << 18,), device=device)
    steps = torch.randint(1 << 62, (1 << 12,), device=device)
    return len(states) * len(steps) / seconds(lambda: work(states, steps))


def least_bytes(task: ModuleTask) -> int:
    """Return how many bytes a vehicle must move: its data, and its gradient, written and read."""
    return 4 * 3 * LENGTH + 8 + 2 * 4 * task.dimensions


def million(rate: float) -> str:
    return f"{shown(rate / 1e6)} million" if rate >= 1e6 else f"{rate:,.0f}"


def main() -> None:
    parser = pages.options(__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--vehicles", type=int, default=VEHICLES)
    chosen = parser.parse_args()
    copied, mixed = bandwidth(chosen.device), words_a_second(chosen.device)
    speed, shares = [], []
    for channels in CHANNELS:
        task = task_of(channels, chosen.vehicles, chosen.device)
        there = rates(task)
        here = rates(task_of(channels, ON_CPU, "cpu"), turns=1)
        d = task.dimensions
        words = d * (part_of(d)[1].directions + 1) // 4  # that a vehicle mixes
        for name, gpu, cpu in zip(STEPS, there, here, strict=True):
            speed.append([f"{d:,} weights: {name}", million(gpu), million(cpu), shown(gpu / cpu)])
        equal, close = agreement(channels, chosen.device)
        shares.append(
            [
                f"{d:,} weights",
                f"{products(d, chosen.device) * words / mixed:.0%}",
                f"{there.everything * words / mixed:.1%}",
                f"{there.everything * least_bytes(task) / copied:.1%}",
                f"{equal:.4%}",
                f"{close:.4%}",
            ]
        )
    name = torch.cuda.get_device_name() if chosen.device == "cuda" else chosen.device
    tables = [
        pages.Table(
            f"Vehicles a second, epsilon {EPSILON:g}, 63 directions",
            ["step", name, "CPU", "ratio"],
            speed,
        ),
        pages.Table(
            "Shares of the GPU's limits that are used, and of codes that equal those of the CPU",
            [
                "network",
                "word mixing, in products",
                "word mixing, in all steps",
                "memory bandwidth, in all steps",
                "equal codes: same vectors",
                "equal codes: gradients of each device",
            ],
            shares,
        ),
    ]
    limits = f"copies {copied / 1e12:.2f} TB/s, mixes {mixed / 1e9:,.0f} billion words a second"
    pages.publish(
        "gpu", tables, f"{name}: {limits}; {pages.machine('torch')}; {pages.busy()}", chosen.write
    )


if __name__ == "__main__":
    main()
