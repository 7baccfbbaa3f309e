"""Draw how one value travels from a vehicle to an estimate.

    python tools/journey.py docs/images

writes journey.png for wide screens, and journey-narrow.png, with one step below the other, for
phones. All numbers in the pictures come from one plan and one fleet.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import fedldp
from fedldp import _plots as plots
from fedldp import vehicle
from fedldp._plots import BLUE, GREY, VERMILION
from fedldp.plan.report import Report
from fedldp.plan.strategies import Sample

SPEED, EPSILON, FLEET, SEED = 91.0, 2.0, 20_000, 3
LOW, HIGH = 0.0, 130.0


def main(folder: Path) -> None:
    """Draw the four steps, in a square and in a column."""
    plots.save(_picture((10, 6.4), 2), folder / "journey.png")
    plots.save(_picture((4.2, 12.5), 1), folder / "journey-narrow.png")


def _picture(inches: tuple[float, float], columns: int) -> Figure:
    plan = fedldp.Plan(
        fedldp.Schema.of(speed=(LOW, HIGH)), EPSILON, Sample(mechanism="three-outputs")
    )
    channel = fedldp.mechanisms.ThreeOutputs(EPSILON).channel()
    report = plan.report([{"speed": SPEED}], fedldp.source(SEED))
    code = int.from_bytes(report.records) >> (8 - plan.bits)
    figure = Figure(figsize=inches, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.1)
    first, second, third, fourth = figure.subplots(4 // columns, columns).flat
    _round(first, channel)
    _draw(second, channel, code)
    _send(third, plan, report, code)
    _estimate(fourth, plan, channel)
    return figure


def _round(axes: Axes, channel: fedldp.Channel) -> None:
    axes.set_title("1. The vehicle scales its value\nand rounds it at random")
    x = vehicle.scaled(SPEED, LOW, HIGH)
    axes.axhline(0, color=GREY, lw=1)
    for letter in channel.letters:
        axes.plot(letter, 0, "o", color=GREY, ms=9)
        axes.text(letter, -0.17, f"{letter:g}", ha="center", color=GREY)
    axes.plot(x, 0, "D", color=VERMILION, ms=10)
    axes.text(x, -0.42, f"{SPEED:g} km/h, of {LOW:g} to {HIGH:g}:\nx = {x:g}", ha="center")
    right = int(np.searchsorted(channel.letters, x))
    low, high = channel.letters[right - 1 : right + 1]
    up = (x - low) / (high - low)
    for to, odds, bend in ((low, 1 - up, 0.4), (high, up, -0.4)):
        arrow = {"arrowstyle": "->", "color": BLUE, "connectionstyle": f"arc3,rad={bend}"}
        axes.annotate("", (to, 0.06), (x, 0.06), arrowprops=arrow)
        axes.text((to + x) / 2, 0.3, f"{odds:.0%}", ha="center", color=BLUE)
    axes.set(xlim=(-1.2, 1.2), ylim=(-0.6, 0.6))
    axes.axis("off")


def _draw(axes: Axes, channel: fedldp.Channel, code: int) -> None:
    axes.set_title("2. It draws a code from that row\nof a table of integers")
    for (row, column), count in np.ndenumerate(channel.counts):
        share = count / channel.total
        box = Rectangle((column, -row), 1, -1, facecolor=BLUE, alpha=share / 1.6, edgecolor="none")
        axes.add_patch(box)
        axes.text(column + 0.5, -row - 0.28, f"{share:.0%}", ha="center", va="center")
        digits = f"{count:_}".replace("_", " ", 2).replace("_", "\n", 1).replace("_", " ")
        axes.text(column + 0.5, -row - 0.68, digits, ha="center", va="center", size=7.5)
    for row, letter in enumerate(channel.letters):
        axes.text(-0.08, -row - 0.5, f"{letter:g}", ha="right", va="center", color=GREY)
    for column, value in enumerate(channel.values):
        color = VERMILION if column == code else GREY
        axes.text(column + 0.5, 0.12, f"code {column}:\n{value:.2f}", ha="center", color=color)
    words = f"In each column, no count exceeds\ne^ε = {np.exp(EPSILON):.2f} times another."
    axes.text(1.5, -3.65, words, ha="center", color=GREY)
    axes.set(xlim=(-0.4, 3.05), ylim=(-3.8, 0.7))
    axes.axis("off")


def _send(axes: Axes, plan: fedldp.Plan, report: Report, code: int) -> None:
    axes.set_title(f"3. It sends {plan.bits} bits, once")
    sent = report.to_bytes().hex(" ")
    axes.text(
        0.5, 0.75, f"code {code} is {code:0{plan.bits}b}", ha="center", color=VERMILION, size=16
    )
    axes.text(
        0.5,
        0.5,
        f"{sent[:23]}\n{sent[24:47]}\n{sent[48:]}",
        ha="center",
        va="center",
        family="monospace",
    )
    words = "A header: version, plan,\nnumber of vehicles, check value."
    words += "\nThen the records, without gaps."
    axes.text(0.5, 0.05, words, ha="center", color=GREY)
    axes.axis("off")


def _estimate(axes: Axes, plan: fedldp.Plan, channel: fedldp.Channel) -> None:
    spread = np.random.Generator(np.random.PCG64(SEED))  # of the fleet that is made up
    speeds = spread.normal(75, 20, FLEET).clip(LOW, HIGH)[:, None]
    tally = plan.simulate(speeds, fedldp.source(SEED))
    speed = tally.estimate(of="fleet")["speed"]
    axes.set_title(f"4. The server counts {FLEET:,} codes\nand estimates the mean")
    axes.bar(range(channel.outputs), tally.counts[0], color=BLUE, alpha=0.6, width=0.6)
    axes.set_xticks(range(channel.outputs), [f"code {i}" for i in range(channel.outputs)])
    axes.set_ylabel("vehicles")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_ylim(0, 1.35 * tally.counts[0].max())
    reach = (speed.interval[1] - speed.interval[0]) / 2
    words = f"mean {speed.mean:.1f} ± {reach:.1f} km/h; the truth is {speeds.mean():.1f}"
    axes.text(0.5, 0.93, words, ha="center", transform=axes.transAxes, color=VERMILION)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
