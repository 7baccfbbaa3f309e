"""pure-ldp: clients that answer one value at a time, and servers that add them one at a time."""

from pure_ldp.frequency_oracles.direct_encoding import DEClient, DEServer
from pure_ldp.frequency_oracles.unary_encoding import UEClient, UEServer
from work import BINS, DISTRIBUTIONS, FREQUENCIES, Task, Work

PACKAGES = ("pure-ldp",)


def tasks(work: Work) -> dict[str, Task]:
    return {
        "response": Task(20_000, response(work, 20_000)),
        "unary": Task(20_000, unary(work, 20_000)),
        **{
            name + way: Task(5_000, labels(work, name, 5_000))
            for name in FREQUENCIES
            for way in ("", ", few bits")
        },
        **{name: Task(20_000, bins(work, name, 20_000)) for name in DISTRIBUTIONS},
    }


def same(category: int) -> int:
    return category


def response(work: Work, vehicles: int):
    client = DEClient(work.epsilon, work.categories, index_mapper=same)
    own = work.own(vehicles).tolist()

    def run() -> list[list[float]]:
        return [
            frequencies(work, DEServer(work.epsilon, work.categories, index_mapper=same), part)
            for part in work.parts([client.privatise(each) for each in own])
        ]

    return run


def unary(work: Work, vehicles: int):
    a = work.categories
    client, own = UEClient(work.epsilon, a, True, index_mapper=same), work.own(vehicles).tolist()

    def run() -> list[list[float]]:
        return [
            frequencies(work, UEServer(work.epsilon, a, True, index_mapper=same), part)
            for part in work.parts([client.privatise(each) for each in own])
        ]

    return run


def labels(work: Work, name: str, vehicles: int):
    """Frequencies through OUE: of its oracles that with the least error for many labels."""
    a, own = work.labels(name, vehicles)
    client = UEClient(work.epsilon, a, True, index_mapper=same)

    def run() -> list[list[float]]:
        return [
            frequencies(work, UEServer(work.epsilon, a, True, index_mapper=same), part, a)
            for part in work.parts([client.privatise(each) for each in own.tolist()])
        ]

    return run


def bins(work: Work, name: str, vehicles: int):
    """The histogram, from which it leaves the rest to the user."""
    client = UEClient(work.epsilon, BINS, True, index_mapper=same)
    own = work.binned(name, vehicles).tolist()

    def run() -> list[list[float]]:
        return [
            frequencies(work, UEServer(work.epsilon, BINS, True, index_mapper=same), part, BINS)
            for part in work.parts([client.privatise(each) for each in own], large=True)
        ]

    return run


def frequencies(
    work: Work, server: DEServer | UEServer, reports: list, labels: int | None = None
) -> list[float]:
    for each in reports:
        server.aggregate(each)
    return [
        float(server.estimate(each, suppress_warnings=True)) / len(reports)
        for each in range(labels or work.categories)
    ]
