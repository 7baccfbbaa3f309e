"""pure-ldp: clients that answer one value at a time, and servers that add them one at a time."""

from pure_ldp.frequency_oracles.direct_encoding import DEClient, DEServer
from pure_ldp.frequency_oracles.unary_encoding import UEClient, UEServer
from work import Task, Work

PACKAGES = ("pure-ldp",)


def tasks(work: Work) -> dict[str, Task]:
    return {
        "response": Task(20_000, response(work, 20_000)),
        "unary": Task(20_000, unary(work, 20_000)),
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


def frequencies(work: Work, server: DEServer | UEServer, reports: list) -> list[float]:
    for each in reports:
        server.aggregate(each)
    return [
        float(server.estimate(each, suppress_warnings=True)) / len(reports)
        for each in range(work.categories)
    ]
