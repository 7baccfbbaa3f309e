"""multi-freq-ldpy: compiled clients for one value at a time; estimates that are not negative."""

from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Aggregator_MI, GRR_Client
from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Aggregator_MI, UE_Client
from work import BINS, DISTRIBUTIONS, FREQUENCIES, Task, Work

PACKAGES = ("multi-freq-ldpy", "numba")


def tasks(work: Work) -> dict[str, Task]:
    return {
        "response, projected": Task(20_000, response(work, 20_000)),
        "response, projected, 2 occur": Task(20_000, response(work, 20_000, few=True)),
        "unary, projected": Task(20_000, unary(work, 20_000)),
        "unary, projected, 2 occur": Task(20_000, unary(work, 20_000, few=True)),
        **{
            f"{name}{way}, scaled": Task(5_000, labels(work, name, 5_000))
            for name in FREQUENCIES
            for way in ("", ", few bits")
        },
        **{name: Task(20_000, bins(work, name, 20_000)) for name in DISTRIBUTIONS},
    }


def response(work: Work, vehicles: int, few: bool = False):
    own, a, epsilon = work.own(vehicles, few).tolist(), work.categories, work.epsilon

    def run() -> list[list[float]]:
        reports = [GRR_Client(each, a, epsilon) for each in own]
        return [GRR_Aggregator_MI(part, a, epsilon).tolist() for part in work.parts(reports)]

    return run


def unary(work: Work, vehicles: int, few: bool = False):
    own, a, epsilon = work.own(vehicles, few).tolist(), work.categories, work.epsilon

    def run() -> list[list[float]]:
        reports = [UE_Client(each, a, epsilon, True) for each in own]
        return [UE_Aggregator_MI(part, epsilon, True).tolist() for part in work.parts(reports)]

    return run


def labels(work: Work, name: str, vehicles: int):
    (a, own), epsilon = work.labels(name, vehicles), work.epsilon

    def run() -> list[list[float]]:
        reports = [UE_Client(each, a, epsilon, True) for each in own.tolist()]
        return [UE_Aggregator_MI(part, epsilon, True).tolist() for part in work.parts(reports)]

    return run


def bins(work: Work, name: str, vehicles: int):
    """The histogram, from which it leaves the rest to the user."""
    own, epsilon = work.binned(name, vehicles).tolist(), work.epsilon

    def run() -> list[list[float]]:
        reports = [UE_Client(each, BINS, epsilon, True) for each in own]
        parts = work.parts(reports, large=True)
        return [UE_Aggregator_MI(part, epsilon, True).tolist() for part in parts]

    return run
