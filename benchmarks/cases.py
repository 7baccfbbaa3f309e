"""What `make bench` measures: each case is made when its turn comes, in a process of its own.

The limit of a mechanism is the least that its way of working needs: to make the random words that
it takes, by the bare cipher, and to read each x and write each result once.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import straightforward
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from harness import Case

import fedldp
import fedldp.vehicle
from fedldp._internal import packing as records
from fedldp.coders.categories import RandomizedResponse, UnaryEncoding
from fedldp.learn.examples import Arrays
from fedldp.learn.objectives import objective
from fedldp.learn.settings import Settings
from fedldp.learn.tasks import Linear
from fedldp.mechanisms import HMTP, Finite, Solved
from fedldp.plan.report import Report
from fedldp.plan.strategies import Sample

MILLION = 1_000_000
EPSILON = 2.0
OUTPUTS = 31
BLOCK = 1 << 18  # bytes encrypted at a time: they stay in the cache

# Training
DIMENSIONS = 94
GROUP = 4_000
REPLICAS = 16


def bare_words(count: int) -> Callable[[], None]:
    """Return a function that makes this many bytes of keystream and drops them."""
    cipher = Cipher(algorithms.AES(bytes(32)), modes.CTR(bytes(16))).encryptor()
    zeros, target = memoryview(bytes(BLOCK)), memoryview(bytearray(BLOCK))

    def make() -> None:
        for start in range(0, count, BLOCK):
            part = min(BLOCK, count - start)
            cipher.update_into(zeros[:part], target[:part])

    return make


def numbers(*shape: int) -> np.ndarray:
    return fedldp.source(2).uniform(shape) * 2 - 1


def keystream() -> Case:
    words, rng = np.empty(8 * MILLION, np.uint64), np.random.default_rng(1)
    source, bare = fedldp.source(1), bare_words(words.nbytes)
    return Case(
        ours=lambda: source.fill(words),
        items=words.size,
        straightforward=lambda: rng.integers(0, 1 << 64, words.size, np.uint64),
        limit=bare,
    )


def perturbation(name: str) -> Case:
    m, x = fedldp.mechanism(name, EPSILON), numbers(MILLION)
    source, rng = fedldp.source(3), np.random.default_rng(4)
    bare = bare_words(8 * x.size)

    def plain() -> None:
        straightforward.check(x)
        straightforward.perturb(m, x, rng)

    def limit() -> None:
        bare()
        x.copy()

    return Case(lambda: m.perturb(x, source), x.size, plain, limit)


def encoding(name: str, outputs: int | None) -> Case:
    """The exact release, against the floating-point mechanism that it replaces."""
    m, x = fedldp.mechanism(name, EPSILON), numbers(MILLION)
    channel = m.channel(outputs)
    source, rng = fedldp.source(3), np.random.default_rng(4)
    kind = channel.encode(x[:10], source).dtype  # prepares the table, too
    bare = bare_words(12 * x.size)

    def plain() -> None:
        straightforward.check(x)
        straightforward.encode(m, channel.outputs, x, rng)

    def limit() -> None:
        bare()
        x.astype(kind)

    return Case(lambda: channel.encode(x, source), x.size, plain, limit)


def response(categories: int) -> Case:
    coder, own = RandomizedResponse.of(EPSILON, categories), _own(categories, MILLION)
    source, rng, bare = fedldp.source(3), np.random.default_rng(4), bare_words(8 * own.size)

    def plain() -> np.ndarray:
        keep = rng.random(own.size) < coder.p
        other = (own + rng.integers(1, categories, own.size)) % categories
        return np.where(keep, own, other)

    def limit() -> None:
        bare()
        own.astype(np.uint8)

    return Case(lambda: coder.encode(own, source), own.size, plain, limit)


def unary(categories: int) -> Case:
    coder, own = UnaryEncoding.of(EPSILON, categories), _own(categories, MILLION // 10)
    source, rng = fedldp.source(3), np.random.default_rng(4)
    bare, kept = bare_words(8 * own.size * categories), np.ones((own.size, categories), np.bool_)

    def plain() -> np.ndarray:
        mine = np.arange(categories) == own[:, None]
        return rng.random(mine.shape) < np.where(mine, coder.p, coder.q)

    def limit() -> None:
        bare()
        kept.copy()

    return Case(lambda: coder.encode(own, source), own.size, plain, limit)


def _own(categories: int, vehicles: int) -> np.ndarray:
    return fedldp.source(2).below(categories, vehicles)


def one_value() -> Case:
    """A vehicle that encodes one value at a time, against the same with NumPy."""
    m = HMTP(EPSILON)
    alone = fedldp.vehicle.Channel(m.channel(OUTPUTS).to_json(), EPSILON)
    x, rng = np.linspace(-1, 1, 1000).tolist(), np.random.default_rng(4)

    def ours() -> None:
        for value in x:
            alone.encode(value)

    def plain() -> None:
        for value in x:
            straightforward.encode(m, OUTPUTS, np.array([value]), rng)

    def limit() -> None:
        for _ in x:
            os.urandom(12)

    return Case(ours, len(x), plain, limit)


FIELDS = (7, 5)  # bits: which of 94 coordinates, and one of 31 outputs


def _fields() -> list[np.ndarray]:
    source = fedldp.source(2)
    return [source.below(DIMENSIONS, MILLION), source.below(OUTPUTS, MILLION)]


def packing() -> Case:
    index, code = _fields()

    def ours() -> bytes:
        packed = []
        for start in range(0, MILLION, 1 << 16):  # as a plan does
            part = slice(start, start + (1 << 16))
            filled = records.empty(len(index[part]), sum(FIELDS))
            filled.put(0, FIELDS[0], index[part])
            filled.put(FIELDS[0], FIELDS[1], code[part])
            packed.append(filled.to_bytes())
        return b"".join(packed)

    def plain() -> bytes:
        return straightforward.packed(list(zip((index, code), FIELDS, strict=True)))

    return Case(ours, MILLION, plain, lambda: (index.copy(), code.copy()))


def parsing() -> Case:
    packet = straightforward.packed(list(zip(_fields(), FIELDS, strict=True)))
    view, width = memoryview(packet), sum(FIELDS)

    def ours() -> None:
        for start in range(0, MILLION, 1 << 16):  # as a plan does
            stop = min(start + (1 << 16), MILLION)
            octets = view[start * width // 8 : records.length(stop, width)]
            records.parse(octets, stop - start, width).get(0, width)

    ready = np.ones(MILLION, np.uint16)
    return Case(
        ours,
        MILLION,
        lambda: straightforward.unpacked(packet, MILLION, width),
        lambda: (bytes(bytearray(packet)), ready.copy()),
    )


def tallying() -> Case:
    """The server's half, from bytes to means: check, parse, count and estimate."""
    plan = _vector_plan("three-outputs", DIMENSIONS, 1.0)
    source, channel = fedldp.source(2), plan.parts[0].coders[0]
    index = source.below(DIMENSIONS, MILLION)
    x = np.zeros((MILLION // 10, DIMENSIONS))
    records = b"".join(plan.report(x, source).records for _ in range(10))
    packet = Report(plan.fingerprint, plan.bits, MILLION, records).to_bytes()
    widths = plan.bits - channel.bits, channel.bits
    return Case(
        lambda: plan.parse(packet).estimate("horvitz-thompson"),
        MILLION,
        lambda: straightforward.served(records, MILLION, widths, channel.values, DIMENSIONS),
        lambda: np.bincount(index, minlength=DIMENSIONS),
    )


def collection(plain: Callable[..., Any]) -> Case:
    """All of it, from rows in memory to estimates, against floats for each row."""
    plan = fedldp.Plan(fedldp.Schema.vector(16, bound=1.0), epsilon=4.0)
    m, x = HMTP(4.0), numbers(MILLION, 16)
    source, rng = fedldp.source(3), np.random.default_rng(4)
    return Case(
        lambda: plan.simulate(x, source).estimate(),
        len(x),
        lambda: plain(m, x, rng),
        lambda: x.sum(axis=0),
    )


def examples(vehicles: int, dimensions: int) -> Arrays:
    """Random features in float32, the last of them constant, and labels."""
    source, x = fedldp.source(1), np.empty((vehicles, dimensions), np.float32)
    for start in range(0, vehicles, MILLION // 10):
        block = x[start : start + MILLION // 10]
        block[:] = source.words(block.shape, np.uint32) * np.float32(2.0**-31) - 1
    x[:, -1] = 1.0
    return Arrays(x, np.where(source.bernoulli(0.5, vehicles), np.float32(1), np.float32(-1)))


def one_pass(task: Linear, replicas: int = 1) -> None:
    """Train: each vehicle answers one coordinate, once."""
    settings = Settings(1.0, Sample(k=1), group=GROUP)
    source, distance = fedldp.source(2), task.objective.distance
    for _ in settings.training(task, distance, source, shuffle=False, replicas=replicas):
        pass


def training(replicas: int, naive: Callable[..., Any] = straightforward.train) -> Case:
    """One pass of LDP-FedSGD: against a naive one, and against reading X."""
    ready = examples(MILLION, DIMENSIONS)
    task, rng = Linear(objective("logistic"), ready), np.random.default_rng(3)
    x, y, tenth, m = ready.features, ready.targets, MILLION // 10, HMTP(1.0)

    def plain() -> None:
        if replicas > 1:
            one_pass(task)
        else:
            naive(m, x[:tenth], y[:tenth], GROUP, rng)

    def reading() -> None:
        for start in range(0, MILLION, GROUP):
            x[start : start + GROUP].sum()

    part = 1 / replicas if replicas > 1 else 0.1
    return Case(lambda: one_pass(task, replicas), MILLION * replicas, plain, reading, part)


def _vector_plan(mechanism: str, dimensions: int, epsilon: float) -> fedldp.Plan:
    return fedldp.Plan(
        fedldp.Schema.vector(dimensions, bound=1.0), epsilon, Sample(k=1, mechanism=mechanism)
    )


def discretized(name: str) -> int | None:
    """How many outputs to ask for: those that are tables have no choice, unless one is solved."""
    m = fedldp.mechanism(name, EPSILON)
    return None if isinstance(m, Finite) and not isinstance(m, Solved) else OUTPUTS


CASES: dict[str, Callable[[], Case]] = {
    "random words": keystream,
    **{f"perturb {name}": partial(perturbation, name) for name in fedldp.mechanism_names()},
    **{
        f"encode {name}": partial(encoding, name, discretized(name))
        for name in fedldp.mechanism_names()
        if name != "laplace"  # which has no exact form
    },
    "encode hm-tp, 2001 outputs": partial(encoding, "hm-tp", 2001),
    "randomized response, 16 categories": partial(response, 16),
    "unary encoding, 16 categories": partial(unary, 16),
    "vehicle.py, one value": one_value,
    "pack records": packing,
    "parse records": parsing,
    "server: check, count, estimate": tallying,
    "collect 16 attributes": partial(collection, straightforward.collect),
    "collect, against sampling first": partial(collection, straightforward.collect_sampled),
    "one pass of LDP-FedSGD": partial(training, 1),
    "one pass, against sampling first": partial(training, 1, straightforward.train_sampled),
    f"{REPLICAS} replicas in one pass": partial(training, REPLICAS),
}
