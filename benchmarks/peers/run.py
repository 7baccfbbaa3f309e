"""`make bench-peers`: the libraries people use today, on the same work.

Each runs in a process and an environment of its own. Its turns and ours alternate; the ratio is
taken within a turn. Errors are those of what came out: of the mean of a number, or of the frequency
of a category, from some vehicles, root mean square; of a model, the share of held-out flights that
it gets wrong. An error comes with its standard error.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(1, str(Path(__file__).parent.parent))
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy is imported

import harness
import numpy as np
import pages
from environments import ROOT, Peer, PeerFailed, Worker, working
from ours import DIMENSIONS, EPSILON, LARGE_PART, PART, TRAIN_EPSILON, Ours, prepare
from pages import Table
from rich.progress import track
from work import BINS, DISTRIBUTIONS, Work

TURNS = 5

PEERS = (
    Peer(
        "opendp",
        ("opendp==0.16.0", "numpy"),
        (
            "Laplace takes a list of values at once, randomized response one value a call",
            "the only unary encoding flips all bits with the same odds: no OUE",
            "frequencies are left to the user; no training by vehicles",
        ),
    ),
    Peer(
        "diffprivlib",
        ("diffprivlib==0.6.6", "scikit-learn<1.8"),
        (
            "one value a call; randomized response among many only as an exponential mechanism",
            "frequencies are left to the user; no training by vehicles",
            "its models are for a curator who holds all data: less noise, another promise; "
            "a solver that runs until it converges, where ours takes one pass",
            "its LogisticRegression fails with scikit-learn 1.8: 'unexpected keyword argument "
            "multi_class'; with 1.9 it cannot be imported: 'cannot import name DOUBLE'",
        ),
    ),
    Peer(
        "pure-ldp",
        ("pure-ldp==1.2.0", "scikit-learn", "statsmodels"),
        (
            "one value a call; frequencies only: no means, no training",
            "of a histogram, the distribution function and the median are left to the user",
            "normalizes estimates in several ways, on request",
            "imports scikit-learn and statsmodels, which it does not declare",
        ),
    ),
    Peer(
        "multi-freq-ldpy",
        ("multi-freq-ldpy==0.2.5",),
        (
            "one value a call; frequencies only: no means, no training",
            "cuts its estimates at 0 and scales them to add up to 1: so ours are projected, or for "
            "many labels scaled in the same way",
        ),
    ),
    Peer(
        "pfl",
        ("pfl==0.6.0", str(ROOT)),
        (
            "of its local mechanisms only Laplace is private with an epsilon alone",
            "on a vehicle, its noise of scale bound / epsilon is only 2 epsilon-private: so we ask "
            "it for half of epsilon",
            "no frequencies",
        ),
    ),
    Peer(
        "flower",
        ("flwr[simulation]>=1.41,<1.42",),
        (
            "its LocalDpMod adds Gaussian noise, which needs a delta, so only its speed is "
            "measured, without privacy and on all cores",
            "ours is a simulation in one process, without messages, so there is no ratio",
            "through Flower, ours costs what Flower costs",
        ),
    ),
    Peer(
        "privunit",
        (),
        (
            "PrivUnitG and ProjUnit, written here from their papers; a wheel of the authors' code "
            "does not exist",
            "PrivUnitG sends a vector of floating-point numbers and ProjUnit a shorter one and a "
            "seed, whose privacy rounding can break; ours sends 30 bits, exactly",
        ),
    ),
    Peer("scikit-learn", (), ("SGDClassifier: without any privacy, for reference",)),
)

NAMES = {
    "mean": f"mean of a number, epsilon {EPSILON:g}",
    "response": f"randomized response, 16 categories, epsilon {EPSILON:g}",
    "unary": f"unary encoding (OUE), 16 categories, epsilon {EPSILON:g}",
    "vector": f"mean of vectors, d = {DIMENSIONS}, epsilon {TRAIN_EPSILON:g}",
    "training": f"logistic regression on flights, epsilon {TRAIN_EPSILON:g}",
    "a round": "a round of federated training",
}


def measured(peer: Peer, work: Work, turns: int) -> Iterator[list[str]]:
    """Yield a row for each of a library's tasks, with its versions first."""
    ours = Ours(work)
    with working(peer, work.folder) as worker:
        label = ", ".join(f"{name} {number}" for name, number in worker.versions.items())
        label = label or peer.name
        for task, vehicles in worker.tasks.items():
            yield [label, *compared(ours, worker, task, vehicles, turns)]


def compared(ours: Ours, worker: Worker, task: str, vehicles: int, turns: int) -> list[str]:
    """Let a library and us do the same work in turn."""
    results: dict[str, list[np.ndarray]] = {"theirs": [], "ours": []}
    mine = ours.task(task, vehicles)

    def ask_theirs() -> float:
        seconds, result = worker.ask(task)
        results["theirs"].append(ours.errors(task, vehicles, result))
        return seconds

    def do_ours() -> float:
        found = []
        seconds = harness.seconds(lambda: found.append(mine()), worker.clock)
        results["ours"].append(ours.errors(task, vehicles, found[0]))
        return seconds

    times = harness.interleaved({"theirs": ask_theirs, "ours": do_ours}, turns, lambda way: way())
    kind = task.partition(", ")[0]
    comparable = kind != "a round"  # messages between processes, or none
    return [
        described(ours, task),
        f"{vehicles:,}",
        *(duration(np.median(times[each]) / vehicles) for each in ("theirs", "ours")),
        str(harness.ratios(times["theirs"], times["ours"])) if comparable else "",
        *(typical(kind, results[each]) for each in ("theirs", "ours")),
    ]


def described(ours: Ours, task: str) -> str:
    """Return what a task is, and how many bits our reports take where that matters."""
    kind, _, way = task.partition(", ")
    if task in DISTRIBUTIONS:
        unit = " (error in bins)" if kind.startswith("median") else " (largest error at the edges)"
        return f"{task} in {BINS} bins, epsilon {EPSILON:g}, {LARGE_PART:,} vehicles{unit}"
    if kind.startswith("frequencies"):
        return f"{task}, epsilon {EPSILON:g} (ours: {ours.coder(task).bits:,} bits)"
    return NAMES[kind] + (f" ({way})" if way else "")


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    for unit, scale in (("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{harness.shown(seconds / scale)} {unit}"
    return f"{harness.shown(seconds / 1e-9)} ns"


def typical(kind: str, errors: list[np.ndarray]) -> str:
    """The error of an estimate (root mean square) or of a model, and its own standard error."""
    if errors[0] is None:
        return ""
    found = np.concatenate(errors)
    if kind == "training":
        return f"{found.mean():.4f} (s.e. {found.std(ddof=1) / np.sqrt(found.size):.4f})"
    root = np.sqrt(np.mean(found**2))
    around = np.std(found**2, ddof=1) / np.sqrt(found.size) / (2 * root)
    # Of many coordinates or labels the error is known more exactly.
    digits = 5 if kind == "vector" else 4 if kind.startswith("frequencies") else 3
    return f"{root:.{digits}f} (s.e. {around:.{digits}f})"


def main() -> None:
    parser = pages.options(__doc__)
    parser.add_argument("--only", default="", metavar="NAME", help="only this library")
    parser.add_argument("--turns", type=int, default=TURNS)
    chosen = parser.parse_args()
    machine, busy = pages.machine(), pages.busy()
    rows, remarks = [], []
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        for peer in track(PEERS, "Measuring", transient=True):
            if chosen.only not in peer.name:
                continue
            label, said = peer.name, list(peer.remarks)
            try:
                for row in measured(peer, Work(Path(folder)), chosen.turns):
                    label = row[0]
                    rows.append(row)
            except PeerFailed as error:
                said.insert(0, f"did not run here: {error}")
            remarks.append((label, "; ".join(said)))
    headings = (
        "library",
        "work",
        "vehicles",
        "a vehicle, theirs",
        "a vehicle, ours",
        "times as fast",
        "error, theirs",
        "error, ours",
    )
    tables = [
        Table(
            f"Beside other libraries: median (quartiles) of {chosen.turns} turns", headings, rows, 2
        ),
        Table("What they cannot do, or do differently", ("library", ""), remarks, 2),
    ]
    pages.publish(
        "peers",
        tables,
        f"Estimates of {PART:,} vehicles each, unless the work says otherwise; {machine}; {busy}",
        chosen.write,
    )


if __name__ == "__main__":
    main()
