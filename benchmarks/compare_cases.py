"""What `make bench-compare` times, in public names only: `compare_cases.py NAME TURNS`.

It prints the processor time of each turn as JSON, after one that does not count. It runs with the
library of either commit, from the path.
"""

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

import fedldp

Work = Callable[[], Any]
VEHICLES = 20_000
LEAST_SECONDS = 0.2  # of a turn
MISSING = (ImportError, AttributeError, TypeError, fedldp.errors.FedLDPError)


def _numbers(*shape: int) -> np.ndarray:
    return fedldp.source(2).uniform(shape)


def _ledger() -> Any:
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return fedldp.Ledger.create(Path(folder, "ledger.db"), cap=8.0)


def perturb() -> Work:
    mechanism, x = fedldp.mechanism("hm-tp", 2.0), 2 * _numbers(500_000) - 1
    return lambda: mechanism.perturb(x, fedldp.source(1))


def encode() -> Work:
    channel, x = fedldp.mechanism("hm-tp", 2.0).channel(31), 2 * _numbers(500_000) - 1
    return lambda: channel.encode(x, fedldp.source(1))


def report_and_count() -> Work:
    schema = fedldp.Schema.of(a=(0, 1), b=(0, 1), c=["x", "y", "z"])
    plan, labels = fedldp.Plan(schema, 2.0), np.array(["x", "y", "z"])
    rows = {"a": _numbers(VEHICLES), "b": _numbers(VEHICLES), "c": labels[np.arange(VEHICLES) % 3]}
    return lambda: plan.tally() + plan.report(rows, fedldp.source())


def rank_dense() -> Work:
    coder = fedldp.coders.DirectionsCoder.of(4.0, 128)
    x = _numbers(2_000, 128) / 12
    return lambda: coder.encode(x, fedldp.source(1))


def rank_for_release() -> Work:
    plan = fedldp.Plan(fedldp.Schema.vector(60, length=1.0), 2.0, strategy="directions")
    x = _numbers(2_000, 60) / 8
    return lambda: plan.report(x, fedldp.source())


def fit() -> Work:
    X = _numbers(VEHICLES, 20)
    model = fedldp.LDPLogisticRegression(epsilon=4.0, bounds=(0, 1))
    return lambda: model.fit(X, X[:, 0] > X[:, 1])


def fit_network() -> Work:
    X = _numbers(VEHICLES // 4, 10)
    model = fedldp.LDPMLPClassifier(epsilon=4.0, bounds=(0, 1), random_state=1)
    return lambda: model.fit(X, X[:, 0] > X[:, 1])


def estimate() -> Work:
    schema = fedldp.Schema.of(**{f"a{number}": (0, 1) for number in range(200)})
    plan = fedldp.Plan(schema, 2.0)
    tally = plan.simulate(_numbers(VEHICLES, 200), fedldp.source(1))
    return lambda: tally.estimate()


def answer() -> Work:
    plan = fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), 0.001)
    ledger = _ledger()
    vehicle, jobs = fedldp.Vehicle(ledger, "car-7"), iter(range(1 << 20))
    return lambda: [vehicle.answer(plan, {"speed": 30}, job=f"job {next(jobs)}") for _ in range(50)]


def ledger_of_many() -> Work:
    ledger = _ledger()
    names, jobs = [f"car-{number}" for number in range(VEHICLES)], iter(range(1 << 20))

    def release() -> None:
        job = f"job {next(jobs)}"
        ledger.release_many(
            names, 0.01, job, b"question", lambda able: dict.fromkeys(able, b"report"), job=job
        )

    return release


def first_plan() -> Work:
    """A new installation: import, and one plan without what earlier programs have solved."""
    code = "import fedldp; fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), epsilon=1.0)"

    def start() -> None:
        with tempfile.TemporaryDirectory() as cache:
            subprocess.run(
                [sys.executable, "-c", code], check=True, env={**os.environ, "FEDLDP_CACHE": cache}
            )

    return start


def command_line() -> Work:
    return lambda: subprocess.run(
        [sys.executable, "-m", "fedldp", "--help"], check=True, capture_output=True
    )


CASES: dict[str, Callable[[], Work]] = {
    "perturb, HM-TP": perturb,
    "encode, 31 outputs": encode,
    "report and count three attributes": report_and_count,
    "directions, 128 dense numbers, simulated": rank_dense,
    "directions, 60 dense numbers, released": rank_for_release,
    "fit a logistic regression": fit,
    "fit a network": fit_network,
    "estimate 200 attributes": estimate,
    "answer with a ledger": answer,
    "ledger of 20,000 vehicles": ledger_of_many,
    "first plan of a new installation": first_plan,
    "fedldp --help": command_line,
}


def seconds(work: Work) -> float:
    """Return the processor time of this process, and of those for which it has waited."""
    own, others = time.process_time(), os.times()
    work()
    now = os.times()
    children = now.children_user + now.children_system
    return time.process_time() - own + children - others.children_user - others.children_system


def main(name: str, turns: int) -> None:
    try:
        work = CASES[name]()
        work()
        repeats = ceil(LEAST_SECONDS / seconds(work))
    except MISSING as error:
        print(json.dumps({"missing": f"{type(error).__name__}: {error}"}))
        return
    taken = [seconds(lambda: [work() for _ in range(repeats)]) / repeats for _ in range(turns)]
    print(json.dumps({"seconds": taken, "library": fedldp.__file__}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
