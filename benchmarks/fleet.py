"""`make bench-fleet`: what a fleet of real processes costs, on the network, in time and in memory.

Vaults, gateways, SuperLink, front and ServerApp are started on this machine, with TLS and keys.
Every vehicle answers in every round. Bytes are counted between the gateways and the front, with
TLS and all headers, but without those of TCP and IP. The first round is left out, as much is sent
in it that is sent once; and no question is put again, as nothing is lost.

The yardstick is Flower's FedAvg in the same set-up, with a vector of float32 from a SuperNode of
its own for each vehicle. That was measured with a few: thousands would send as much each.

Last, a vault is asked what it has to answer, has answered and has to refuse, in turn. It is ready
within one tick; a question to more vehicles than that takes whole ticks more.
"""

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import fleet_runs
import numpy as np
from fleet_runs import ASKED, ROUNDS, Run
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from fedldp import _plots as plots
from fedldp import datasets
from fedldp.fleet.vault.listener import TICK
from fedldp.learn.settings import Settings

SIZES = {  # vehicles and gateways; in the first each has one, as in FedAvg
    False: (
        *((3, 3), (100, 1), (100, 3), (100, 10)),
        *((10_000, 1), (10_000, 3)),
        *((300_000, 1), (300_000, 3), (300_000, 10)),
    ),
    True: ((1000, 1),),
}
YARDSTICK = {False: 3, True: 1}  # vehicles of FedAvg
TURNS = {False: 300, True: 40}
QUARTILES = {"lower quartile": 0.25, "median": 0.5, "upper quartile": 0.75}
PARTS = ("vault", "SuperNode and its children", "SuperLink")  # whose memory grows


def measured(quick: bool) -> dict[str, Any]:
    """Return all figures, as JSON has them."""
    screen, load = Console(stderr=True), os.getloadavg()[0]  # before it adds to it
    with screen.status("The vault's answers") as status:
        times = fleet_runs.answers(TURNS[quick])
        status.update("FedAvg")
        yardstick = fleet_runs.fedavg(YARDSTICK[quick])
        runs = []
        for vehicles, gateways in SIZES[quick]:
            status.update(f"{vehicles:,} vehicles behind {gateways} gateways")
            runs.append(fleet_runs.fleet(vehicles, gateways))
    d = datasets.load("flights", rows=1).dimensions
    plan = Settings(fleet_runs.EPSILON).plan(d)
    return {
        "cores": os.cpu_count(),
        "load": load,
        "d": d,
        "bits": plan.bits,
        "rounds": ROUNDS - 1,
        "runs": [asdict(run) for run in runs],
        "fedavg": asdict(yardstick),
        "answers": {
            kind: {name: float(np.quantile(each, share)) for name, share in QUARTILES.items()}
            for kind, each in times.items()
        },
        "turns": TURNS[quick],
        "tick": 1e3 * TICK,
    }


# The figures as tables: a title, headings and rows of texts.

Shown = tuple[str, tuple[str, ...], list[tuple[str, ...]]]


def tables(found: dict[str, Any]) -> list[Shown]:
    return [_network(found), _memory(found), _answers(found)]


def _runs(found: dict[str, Any]) -> list[Run]:
    return [Run(**each) for each in found["runs"]]


def _network(found: dict[str, Any]) -> Shown:
    title = f"A round: d = {found['d']}, {found['bits']} bits from each vehicle"
    heads = ("vehicles", "gateways", "up, B each", "down, B each", "up in all", "s a round")
    yardstick = Run(**found["fedavg"])
    rows = [_row("FedAvg", "each its own", yardstick, "")]
    rows += [_row(f"{each.vehicles:,}", str(each.gateways), each) for each in _runs(found)]
    return title, heads, rows


def _row(vehicles: str, gateways: str, run: Run, total: str | None = None) -> tuple[str, ...]:
    up, down = (_short(each / run.vehicles) for each in (run.up, run.down))
    total = f"{run.up / 1e3:,.0f} kB" if total is None else total
    return vehicles, gateways, up, down, total, f"{run.seconds:.1f}"


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.2g}"


def _memory(found: dict[str, Any]) -> Shown:
    heads = ("vehicles", "gateways", "a vault", "a SuperNode", "SuperLink", "ServerApp")
    parts = (*PARTS, "ServerApp")
    rows = [
        (f"{run.vehicles:,}", str(run.gateways), *(f"{run.memory[part]:,.0f}" for part in parts))
        for run in _runs(found)
    ]
    return "The most memory, in MB; a SuperNode with its children", heads, rows


def _answers(found: dict[str, Any]) -> Shown:
    title = f"A vault's time to answer {ASKED} vehicles, ms: {found['turns']} turns"
    rows = [
        (kind, *(f"{each[name]:.2f}" for name in QUARTILES))
        for kind, each in found["answers"].items()
    ]
    return title, ("question", *QUARTILES), rows


def notes(found: dict[str, Any]) -> list[str]:
    """Return what the tables say, in sentences."""
    yardstick, runs = Run(**found["fedavg"]), _runs(found)
    largest = max(runs, key=lambda run: run.asked)
    medians = [each["median"] for each in found["answers"].values()]
    rest = ("superexec", "front", "uplink", "supervisor of a server", "supervisor of a gateway")
    memory = ", ".join(f"{name} {largest.memory[name]:.0f}" for name in rest)
    ratio = yardstick.up / yardstick.vehicles / (largest.up / largest.vehicles)
    return [
        f"With {largest.asked:,} vehicles behind a gateway, one sends {ratio:,.0f} times less "
        f"than FedAvg's vehicle, which was measured with {yardstick.vehicles}.",
        f"Further processes, in MB: {memory}.",
        f"The medians differ by {max(medians) - min(medians):.2f} ms; the tick is "
        f"{found['tick']:.0f} ms.",
        f"Measured on {found['cores']} cores, at a load of {found['load']:.1f}.",
    ]


def printed(found: dict[str, Any]) -> None:
    console = Console(width=80)
    for title, heads, rows in tables(found):
        table = Table(title=title)
        for place, head in enumerate(heads):
            table.add_column(head, justify="right" if place else "left")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    for note in notes(found):
        console.print(note)


def markdown(found: dict[str, Any]) -> str:
    blocks = []
    for title, heads, rows in tables(found):
        rule = ["---", *["---:"] * (len(heads) - 1)]
        lines = [" | ".join(row) for row in (heads, rule, *rows)]
        blocks.append("\n".join([f"{title}:", "", *(f"| {line} |" for line in lines)]))
    return "\n\n".join([*blocks, " ".join(notes(found))])


def picture(found: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    runs, yardstick = _runs(found), Run(**found["fedavg"])
    for way, colour in (("up", plots.BLUE), ("down", plots.ORANGE)):
        points = sorted((run.asked, getattr(run, way) / run.vehicles) for run in runs)
        left.plot(*zip(*points, strict=True), "o-", color=colour, label=way)
        each = getattr(yardstick, way) / yardstick.vehicles
        left.axhline(each, color=colour, linestyle=":", label=f"FedAvg, float32: {way}")
    left.set(xscale="log", yscale="log", xlabel="vehicles behind a gateway")
    left.set(ylabel="bytes of a vehicle and round", title="On the network")
    left.legend()
    for gateways, style in zip((1, 3, 10), ("o-", "s--", "^:"), strict=True):
        points = sorted((r.vehicles, r.seconds) for r in runs if r.gateways == gateways)
        if points:
            label = f"{gateways} gateway{'' if gateways == 1 else 's'}"
            right.plot(*zip(*points, strict=True), style, label=label)
    right.set(xscale="log", xlabel="vehicles", ylabel="seconds", title="A round")
    right.set_ylim(bottom=0)
    right.legend()
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one small fleet, in a minute or two")
    parser.add_argument("--read", type=Path, help="figures that --json has printed, not new ones")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print JSON, for scripts")
    shape.add_argument("--markdown", action="store_true", help="print tables for a page")
    parser.add_argument("--plot", type=Path, help="where to write the picture")
    chosen = parser.parse_args()
    found = json.loads(chosen.read.read_text()) if chosen.read else measured(chosen.quick)
    if chosen.json:
        json.dump(found, sys.stdout, indent=1)
    elif chosen.markdown:
        print(markdown(found))
    else:
        printed(found)
    if chosen.plot:
        plots.save(picture(found), chosen.plot)


if __name__ == "__main__":
    main()
