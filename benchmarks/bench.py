"""`make bench`: how fast, as ratios measured in one run.

Each row times two ways to do the same work, one after the other, many times over, and shows the
median ratio with its quartiles. A ratio travels from machine to machine; a time does not.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import straightforward
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from rich.console import Console
from rich.progress import track
from rich.table import Table

import fedldp
import fedldp.vehicle
from fedldp.report import Report

ROUNDS = 41
MILLION = 1_000_000


@dataclass(frozen=True)
class Case:
    """Two ways to do the same work, `items` of it."""

    name: str
    ours: Callable[[], Any]
    theirs: Callable[[], Any]
    items: int
    rounds: int = ROUNDS


def keystream() -> Case:
    words = np.empty(8 * MILLION, np.uint64)
    source = fedldp.source(1)
    bare = Cipher(algorithms.AES(bytes(32)), modes.CTR(bytes(16))).encryptor()
    block = 1 << 20
    zeros, target = memoryview(bytes(block)), words.data.cast("B")

    def loop() -> None:
        for start in range(0, len(target), block):
            part = target[start : start + block]
            bare.update_into(zeros[: len(part)], part)

    return Case("random words*", lambda: source.fill(words), loop, words.size)


def perturbation(name: str, epsilon: float = 2.0) -> Case:
    m = fedldp.mechanism(name, epsilon)
    x = fedldp.source(2).uniform(MILLION) * 2 - 1
    source, rng = fedldp.source(3), np.random.default_rng(4)
    function = getattr(straightforward, name.replace("-", "_"))

    def theirs() -> None:
        straightforward.check(x)
        function(m, x, rng)

    return Case(f"perturb {name}", lambda: m.perturb(x, source), theirs, x.size)


def encoding(name: str, outputs: int | None, epsilon: float = 2.0) -> Case:
    """The exact release against the floating-point mechanism that it replaces."""
    m = fedldp.mechanism(name, epsilon)
    channel = m.channel(outputs)
    x = fedldp.source(2).uniform(MILLION) * 2 - 1
    source, rng = fedldp.source(3), np.random.default_rng(4)
    function = getattr(straightforward, name.replace("-", "_"))
    channel.encode(x[:10], source)  # prepares the table

    def theirs() -> None:
        straightforward.check(x)
        noisy = function(m, x, rng)
        if outputs is None:
            np.sign(noisy).astype(np.int8)
        else:
            straightforward.discretized(noisy, m.bound, outputs, rng)

    label = f"encode {name}, {channel.outputs}"
    return Case(label, lambda: channel.encode(x, source), theirs, x.size)


def one_value() -> Case:
    """A vehicle that encodes one value at a time, against the same with NumPy."""
    channel = fedldp.HMTP(2.0).channel(31)
    alone = fedldp.vehicle.Channel(channel.to_json(), 2.0)
    x, source = np.linspace(-1, 1, 1000).tolist(), fedldp.source(3)

    def ours() -> None:
        for value in x:
            alone.encode(value)

    def theirs() -> None:
        for value in x:
            channel.encode(value, source)

    return Case("vehicle.py, one value+", ours, theirs, len(x))


def collection(function: Callable[..., Any], label: str) -> Case:
    """All of it, from rows in memory to estimates, against floats for each row."""
    plan = fedldp.Plan(fedldp.Schema.vector(16, bound=1.0), epsilon=4.0)
    m, x = fedldp.HMTP(4.0), fedldp.source(2).uniform((MILLION, 16)) * 2 - 1
    source, rng = fedldp.source(3), np.random.default_rng(4)

    def ours() -> None:
        plan.simulate(x, source).estimate()

    return Case(label, ours, lambda: function(m, x, rng), len(x), rounds=9)


def tallying(n: int = 4 * MILLION, d: int = 94) -> Case:
    """The server's half: parse and tally, against a dense matrix of what is parsed already."""
    plan = fedldp.Plan(fedldp.Schema.vector(d, bound=1.0), 1.0, "three-outputs", k=1)
    source = fedldp.source(2)
    chosen, channel = source.below(d, n), plan.parts[0].coders[0]
    values = channel.values[source.below(3, n)]
    x = np.zeros((MILLION, d))
    quarter = plan.report(x, source).records
    packet = Report(plan.fingerprint, plan.bits, n, quarter * (n // MILLION)).to_bytes()
    return Case(
        "server: parse and tally",
        lambda: plan.parse(packet),
        lambda: straightforward.dense_mean(chosen, values, d),
        n,
        rounds=9,
    )


def seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def measure(case: Case) -> tuple[np.ndarray, float]:
    """The ratio theirs / ours of each round, and our median time per item in nanoseconds."""
    pairs = np.array([(seconds(case.theirs), seconds(case.ours)) for _ in range(case.rounds)])[1:]
    return pairs[:, 0] / pairs[:, 1], float(np.median(pairs[:, 1])) / case.items * 1e9


def main() -> None:
    # Each is made when its turn comes: once large arrays have come and gone, the allocator keeps
    # memory for NumPy's temporaries, and straightforward code is up to half as fast again.
    cases: list[Callable[[], Case]] = [
        keystream,
        *(
            partial(perturbation, name)
            for name in ("three-outputs", "pm-sub", "hm-tp", "duchi", "laplace")
        ),
        partial(encoding, "duchi", None),
        partial(encoding, "three-outputs", None),
        partial(encoding, "pm-sub", 31),
        partial(encoding, "hm-tp", 31),
        partial(encoding, "hm-tp", 2001),
        one_value,
        partial(collection, straightforward.collect, "collect, 16 attributes"),
        partial(collection, straightforward.collect_sampled, "  against sampling first"),
        tallying,
    ]
    table = Table(
        title=f"Times as fast as straightforward NumPy, median of 8 to {ROUNDS - 1} pairs in a run",
        caption="* against a bare loop over the cipher   + against Channel.encode",
    )
    table.add_column("what", no_wrap=True)
    for heading in ("times as fast", "quartiles", "ns each"):
        table.add_column(heading, justify="right")
    for make in track(cases, description="Measuring", transient=True):
        case = make()
        ratios, each = measure(case)
        low, middle, high = np.percentile(ratios, [25, 50, 75])
        table.add_row(case.name, f"{middle:.2f}", f"{low:.2f} - {high:.2f}", f"{each:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
