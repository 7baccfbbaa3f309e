"""OpenDP: Laplace noise for a whole list; randomized response for one value at a time."""

import math

import numpy as np
import opendp.prelude as dp
from work import BINS, DISTRIBUTIONS, Task, Work

PACKAGES = ("opendp",)

dp.enable_features("contrib")


def tasks(work: Work) -> dict[str, Task]:
    return {
        "mean": Task(20_000, mean(work, 20_000)),
        "response": Task(20_000, response(work, work.categories, work.own(20_000))),
        **{
            name: Task(20_000, response(work, BINS, work.binned(name, 20_000), large=True))
            for name in DISTRIBUTIONS
        },
    }


def mean(work: Work, vehicles: int):
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=vehicles)
    space = domain, dp.l1_distance(T=float)
    # Its default is the finest grid that floats have, which takes it three times as long.
    noisy = dp.m.make_laplace(*space, scale=2 / work.epsilon, k=-60)
    x = work.numbers(vehicles).tolist()
    if not math.isclose(noisy.map(2.0), work.epsilon):  # two vehicles differ by at most 2
        raise ValueError("its epsilon is another one")
    return lambda: work.means(noisy(x))


def response(work: Work, a: int, own: np.ndarray, large: bool = False):
    p = math.exp(work.epsilon) / (math.exp(work.epsilon) + a - 1)
    q = (1 - p) / (a - 1)
    answer = dp.m.make_randomized_response(list(range(a)), prob=p)
    if not math.isclose(answer.map(1), work.epsilon):
        raise ValueError("its epsilon is another one")

    def frequencies(codes: list[int]) -> list[float]:  # which it leaves to the user
        counts = np.bincount(codes, minlength=a)
        return ((counts / len(codes) - q) / (p - q)).tolist()

    def run() -> list[list[float]]:
        answers = [answer(each) for each in own.tolist()]
        return [frequencies(part) for part in work.parts(answers, large)]

    return run
