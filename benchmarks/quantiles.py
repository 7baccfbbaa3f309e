"""One quantile by rounds: its constant, settled on SYNTHETIC shapes, and the flights beside bins.

    python benchmarks/quantiles.py [--shapes 24] [--repeats 4]

A shape is a mixture of one to three parts, normal, exponential to either side or uniform, in public
bounds that are generous. `BEND` changes only how the estimate follows from the answers, so that
all of its values are tried on the same answers. Errors are squared errors of ranks: how far the
share of numbers below the estimate is from the level. Their ratio to the constant as it is has a
standard error over the shapes, of its logarithm.

    python benchmarks/quantiles.py --flights [--repeats 10]

compares rounds with the better of 32 and 64 bins, on the flights, which settled nothing. Bins need
as many times the vehicles as their squared error is larger.
"""

import argparse
from collections.abc import Iterator
from unittest import mock

import numpy as np
from rich.console import Console
from rich.table import Table

import fedldp
from fedldp._internal.validation import Floats
from fedldp.datasets import load
from fedldp.learn import QuantileSearch, quantiles

BENDS = (0.03, 0.1, 0.2, 0.3, 0.5, 1.0, 3.0)
LEVELS, EPSILONS, VEHICLES = (0.5, 0.9, 0.99), (1.0, 2.0, 4.0), 20_000
COLUMNS, BINS, FLIGHTS = ("air_time", "dep_delay", "arr_delay", "distance"), (32, 64), 50_000
NUMBER = fedldp.Number("x", -1, 1)


def shape(draw: np.random.Generator, vehicles: int, kind: int) -> Floats:
    """Return numbers of a random shape, which follows from `kind`."""
    chosen = np.random.default_rng(kind)
    parts = int(chosen.integers(1, 4))
    part = draw.choice(parts, vehicles, p=chosen.dirichlet(np.ones(parts)))
    found = np.empty(vehicles)
    for each in range(parts):
        centre, width = chosen.uniform(-0.7, 0.7), 10 ** chosen.uniform(-2.5, -0.5)
        form, mine = chosen.integers(0, 4), np.flatnonzero(part == each)
        drawn = (
            draw.standard_normal(len(mine)),
            draw.exponential(size=len(mine)),
            -draw.exponential(size=len(mine)),
            draw.uniform(-1.7, 1.7, len(mine)),
        )[form]
        found[mine] = centre + width * drawn
    return np.clip(found, -1, 1)


def settled(number: int, repeats: int) -> Table:
    """Return a table of the constant, on so many shapes."""
    cells = [(level, epsilon) for level in LEVELS for epsilon in EPSILONS]
    squares = np.zeros((len(BENDS), len(cells), number))
    for kind in range(number):
        draw = np.random.default_rng(1000 + kind)
        true = np.sort(shape(draw, 400_000, kind))
        for cell, (level, epsilon) in enumerate(cells):
            search = QuantileSearch(NUMBER, level, epsilon, VEHICLES)
            for repeat in range(repeats):
                source = fedldp.source((kind * len(cells) + cell) * repeats + repeat)
                answers = search.simulate_rounds(shape(draw, VEHICLES, kind), source)
                for place, bend in enumerate(BENDS):
                    with mock.patch.object(quantiles, "BEND", bend):
                        value = search.result(answers).value
                    ends = [np.searchsorted(true, value, side) for side in ("left", "right")]
                    low, high = np.array(ends) / len(true)
                    error = level - min(max(level, low), high)
                    squares[place, cell, kind] += error**2 / repeats
    logs = np.log(squares + 1e-9)
    logs -= logs[BENDS.index(quantiles.BEND)]
    table = Table(title="Squared errors of ranks, as ratios to those of the constant as it is")
    for heading in ("BEND", *(f"{level:g}, ε = {epsilon:g}" for level, epsilon in cells), "all"):
        table.add_column(heading)
    for place, bend in enumerate(BENDS):
        means = [*logs[place].mean(axis=1), logs[place].mean()]
        errors = [*logs[place].std(axis=1), logs[place].mean(axis=0).std()]
        shown = (
            f"{np.exp(mean):.2f} ± {np.exp(mean) * error / number**0.5:.2f}"
            for mean, error in zip(means, errors, strict=True)
        )
        table.add_row(f"{bend:g}", *shown)
    return table


def flights(repeats: int) -> Iterator[str]:
    """Yield the lines of a table in Markdown: errors in minutes or miles, and half-widths."""
    yield "| flights, 50,000 vehicles | ε | error | error of bins | vehicles that bins need |"
    yield "|---|---|---|---|---|"
    data = load("flights")
    ratios: dict[float, list[float]] = {1.0: [], 4.0: []}
    widths: list[float] = []
    for name in COLUMNS:
        number, column = data.schema[name], data.matrix(names=(name,))[:, 0].astype(np.float64)
        for level in LEVELS[:2]:
            for epsilon, found in ratios.items():
                errors, half_widths = _compared(number, column, level, epsilon, repeats)
                by_rounds, by_bins = errors[0], min(errors[1:])
                found.append((by_bins / by_rounds) ** 2)
                widths.append(half_widths[1] / half_widths[0])
                title = "median" if level == 0.5 else f"{level:.0%} quantile"
                yield (
                    f"| {title} of {name} | {epsilon:g} | {by_rounds:.2f} | {by_bins:.2f} | "
                    f"{found[-1]:.1f} times |"
                )
    for epsilon, found in ratios.items():
        yield f"ε = {epsilon:g}: bins need {np.exp(np.mean(np.log(found))):.1f} times the vehicles"
    yield f"intervals of 32 bins are {np.exp(np.mean(np.log(widths))):.1f} times as wide"


def _compared(
    number: fedldp.Number, column: Floats, level: float, epsilon: float, repeats: int
) -> tuple[Floats, Floats]:
    """Return errors and half-widths of rounds, of 32 bins and of 64 bins."""
    true = np.quantile(column, level)
    search = QuantileSearch(number, level, epsilon, FLIGHTS)
    plans = [
        fedldp.Plan(
            fedldp.Schema((fedldp.BinnedNumber.of("x", number.low, number.high, bins=bins),)),
            epsilon,
        )
        for bins in BINS
    ]
    found = []
    for repeat in range(repeats):
        drawn = np.random.default_rng(repeat).choice(column, FLIGHTS, replace=False)
        drawn = np.clip(drawn, number.low, number.high)
        result = search.simulate(drawn, fedldp.source(repeat))
        values, ends = [result.value], [result.interval]
        for plan in plans:
            tally = plan.simulate(drawn[:, None], fedldp.source(repeat))
            value, low, high = tally.estimate()["x"].quantile(level)
            values.append(value)
            ends.append((low, high))
        found.append((np.array(values) - true, np.diff(ends)[:, 0] / 2))
    errors, half_widths = np.array(found).swapaxes(0, 1)
    return np.sqrt(np.square(errors).mean(axis=0)), half_widths.mean(axis=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shapes", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--flights", action="store_true", help="compare with bins instead")
    options = parser.parse_args()
    if options.flights:
        for line in flights(options.repeats):
            print(line, flush=True)
    else:
        Console(width=150).print(settled(options.shapes, options.repeats))


if __name__ == "__main__":
    main()
