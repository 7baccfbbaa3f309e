"""Distributions of the flights' numbers: bins beside two methods that need an EM algorithm.

python benchmarks/distributions.py --repeats 20

Each flight answers once, about one number. What is compared is the largest error of the
distribution function (the Kolmogorov-Smirnov distance to that of the same flights) as a mean over
repetitions: at 255 points and, since bins say nothing about what is inside of them, at the 31
edges of 32 bins.

- bins: `BinnedNumber.of(..., bins=m)`, its CDF interpolated inside bins;
- square wave: the mechanism of Li et al. (SIGMOD 2020), with EM and the smoothing (1, 2, 1) / 4
  that they recommend (EMS), or without it (EM);
- codes: the codes of the library's own table for means, with EM.

The number of bins is not tuned on these columns: 32 is used for all of them, and others are shown.

python benchmarks/distributions.py --shapes

shows, on synthetic shapes, how the point of a distribution was chosen: by projecting its shares,
or their sums, or by the mean of both.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from math import exp
from pathlib import Path
from typing import Any

import numpy as np

import fedldp
from fedldp._internal.validation import Floats
from fedldp.coders.categories import project
from fedldp.datasets import load
from fedldp.schema.attributes.distribution import ascending

COLUMNS = {"dep_delay": (-30.0, 120.0), "distance": (0.0, 5000.0), "air_time": (20.0, 700.0)}
BINS = (16, 32, 64)
FINE = 256  # cells of a distribution that EM finds
STEP = 8  # of them make a bin, if there are 32
Method = Callable[[Floats, float, int], Floats]  # values in [0, 1], epsilon, seed: CDF at FINE + 1


def by_bins(number: int) -> Method:
    """Return the method that asks for one of some bins."""

    def found(x: Floats, epsilon: float, seed: int) -> Floats:
        plan = fedldp.Plan(
            fedldp.Schema((fedldp.BinnedNumber.of("x", 0, 1, bins=number),)), epsilon
        )
        result = plan.simulate(x[:, None], fedldp.source(seed)).estimate()["x"]
        assert isinstance(result, fedldp.Distribution)
        cdf = np.concatenate([[0.0], result.cdf.frequencies, [1.0]])
        return np.interp(np.linspace(0, 1, FINE + 1), result.edges, cdf)

    return found


def square_wave(smooth: bool) -> Method:
    """Return the square wave mechanism with EM."""

    def found(x: Floats, epsilon: float, seed: int) -> Floats:
        e = exp(epsilon)
        b = (epsilon * e - e + 1) / (2 * e * (e - 1 - epsilon))
        near, far = e / (2 * b * e + 1), 1 / (2 * b * e + 1)
        rng = np.random.default_rng(seed)
        # With probability 2 b near the answer is close to x, otherwise anywhere else.
        close = rng.random(len(x)) < 2 * b * near
        other = rng.random(len(x))  # in [0, 1): what is left of [-b, 1 + b] without [x - b, x + b]
        other = np.where(other < x, other - b, other + b)
        answers = np.where(close, x + rng.uniform(-b, b, len(x)), other)
        edges = np.linspace(-b, 1 + b, FINE + 1)
        counts = np.histogram(answers, edges)[0]
        centres = (np.arange(FINE) + 0.5) / FINE
        low = np.maximum(edges[:-1, None], centres - b)
        high = np.minimum(edges[1:, None], centres + b)
        odds = far * np.diff(edges)[:, None] + (near - far) * np.maximum(high - low, 0.0)
        return maximised(odds, counts, 1e-3 * e, smooth)

    return found


def table_codes(x: Floats, epsilon: float, seed: int) -> Floats:
    """Return the distribution that EM finds from the codes of a table for means."""
    channel = fedldp.mechanism("dominant", epsilon).channel()
    codes = channel.encode(2 * x - 1, fedldp.source(seed))
    counts = np.bincount(codes, minlength=channel.counts.shape[1])
    rows = channel.counts.astype(np.float64) / float(channel.total)
    centres = 2 * (np.arange(FINE) + 0.5) / FINE - 1
    odds = np.array([np.interp(centres, channel.letters, column) for column in rows.T])
    return maximised(odds, counts, 1e-3 * exp(epsilon), smooth=True)


def maximised(odds: Floats, counts: Any, enough: float, smooth: bool) -> Floats:
    """Return the CDF that EM finds: it stops when a step gains little likelihood."""
    shares, before = np.full(odds.shape[1], 1 / odds.shape[1]), -np.inf
    for _ in range(10_000):
        expected = odds @ shares
        likelihood = float(counts @ np.log(expected))
        if likelihood - before < enough:
            break
        before = likelihood
        shares = shares * (odds.T @ (counts / expected))
        shares /= shares.sum()
        if smooth:
            padded = np.pad(shares, 1, mode="edge")
            shares = padded[:-2] / 4 + padded[1:-1] / 2 + padded[2:] / 4
            shares /= shares.sum()
    return np.append(0.0, np.cumsum(shares))


METHODS: dict[str, Method] = {
    **{f"{number} bins": by_bins(number) for number in BINS},
    "square wave, EMS": square_wave(smooth=True),
    "square wave, EM": square_wave(smooth=False),
    "codes of a table, EMS": table_codes,
}


def measured(epsilon: float, vehicles: int, repeats: int) -> Iterator[dict[str, Any]]:
    """Yield the error of each method on each column."""
    flights = load("flights")
    for column, (low, high) in COLUMNS.items():
        values = np.asarray(flights.columns[flights.schema.names.index(column)], np.float64)
        errors: dict[str, list[tuple[float, ...]]] = {name: [] for name in METHODS}
        for seed in range(repeats):
            chosen = np.random.default_rng(seed).choice(values, vehicles, replace=False)
            x = np.clip((chosen - low) / (high - low), 0.0, 1.0)
            ordered, grid = np.sort(x), np.linspace(0, 1, FINE + 1)
            truth = np.searchsorted(ordered, grid[1:-1], side="left") / vehicles
            for name, method in METHODS.items():
                cdf = method(x, epsilon, seed)
                off_by = np.abs(cdf[1:-1] - truth)
                distance, at_edges = float(off_by.max()), float(off_by[STEP - 1 :: STEP].max())
                median = float(np.interp(0.5, np.maximum.accumulate(cdf), grid))
                off = abs(median - float(np.median(x))) * (high - low)
                errors[name].append((distance, at_edges, off))
        for name, found in errors.items():
            distance, at_edges, off = np.mean(found, axis=0).tolist()
            spread = float(np.std([each[1] for each in found], ddof=1) / repeats**0.5)
            yield {
                "column": column,
                "method": name,
                "everywhere": distance,
                "edges": at_edges,
                "stderr": spread,
                "median": off,
            }


def shapes(bins: int) -> dict[str, Floats]:
    """Return synthetic distributions in some bins."""
    x = (np.arange(bins) + 0.5) / bins
    found = {
        "uniform": np.ones(bins),
        "normal": np.exp(-0.5 * ((x - 0.5) / 0.12) ** 2),
        "exponential": np.exp(-6 * x),
        "delays": np.exp(-25 * np.abs(x - 0.2)) + 0.02 * np.exp(-3 * x),
        "two": np.exp(-0.5 * ((x - 0.25) / 0.06) ** 2) + 0.6 * np.exp(-50 * (x - 0.7) ** 2),
        "atom": np.where(np.arange(bins) == bins // 3, float(bins), 1.0),
        "step": np.where(x < 0.4, 1.0, 0.2),
    }
    return {name: each / each.sum() for name, each in found.items()}


def projections(repeats: int) -> None:
    """Print the errors of three points on synthetic shapes, compared with the mean of two."""
    rng, cdfs, histograms = np.random.default_rng(0), [], []
    for bins in BINS:
        for epsilon in (1.0, 2.0, 4.0):
            for vehicles in (5_000, 50_000):
                q = 1 / (exp(epsilon) + 1)  # as OUE has it
                noise = q * (1 - q) / vehicles / (0.5 - q) ** 2
                for truth in shapes(bins).values():
                    deviation = np.sqrt(noise + truth * (1 - truth) / vehicles)
                    found = truth + rng.normal(size=(repeats, bins)) * deviation
                    found -= (found.sum(axis=1, keepdims=True) - 1) / bins
                    first = np.array([project(each) for each in found])
                    sums = [np.clip(ascending(np.cumsum(each)[:-1]), 0, 1) for each in found]
                    second = np.diff(np.array(sums), prepend=0.0, append=1.0)
                    points = np.stack([first, second, (first + second) / 2])
                    off = np.abs(np.cumsum(points - truth, axis=2)).max(axis=2).mean(axis=1)
                    square = np.sqrt(((points - truth) ** 2).sum(axis=2).mean(axis=1))
                    cdfs.append(off[2] / off)
                    histograms.append(square[2] / square)
    print("| error of the mean of both, times that of | on average | at most |")
    print("|---|---|---|")
    for what, ratios in (("CDF", np.array(cdfs)), ("histogram", np.array(histograms))):
        for place, name in enumerate(("the shares", "their sums")):
            column = ratios[:, place]
            average = exp(np.log(column).mean())
            print(f"| {what}, projection of {name} | {average:.3f} | {column.max():.3f} |")


def main() -> None:
    """Print the errors, and how many times those of 32 bins they are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", action="store_true", help="on synthetic shapes instead")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--vehicles", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument(
        "--json", metavar="FILE", type=Path, help="also write the numbers to a file"
    )
    options = parser.parse_args()
    if options.shapes:
        projections(options.repeats)
        return
    rows = list(measured(options.epsilon, options.vehicles, options.repeats))
    base = {row["column"]: row for row in rows if row["method"] == "32 bins"}
    print("| column | method | error at edges | times 32 bins | everywhere | error of the median |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        ratio = row["edges"] / base[row["column"]]["edges"]
        print(
            f"| {row['column']} | {row['method']} | {row['edges']:.4f} ± {row['stderr']:.4f} | "
            f"{ratio:.2f} | {row['everywhere']:.4f} | {row['median']:.2g} |"
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), "utf-8")


if __name__ == "__main__":
    main()
