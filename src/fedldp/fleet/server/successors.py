"""Gateways with a new key: Flower knows each key as a node of its own.

A question names the gateway that passes it on by the number of its node, and a vault answers only
one question for each round of a job. So a gateway with a new key is asked under the number of its
first node, through its newest node that is connected: a question that was open when the key changed
stays the same, and the vault repeats its answer.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from fedldp.fleet.state import noted, save

FILE = "successors.json"  # in the state folder of the server
FORMAT = "fedldp successors 1"

Successors = Callable[[], Mapping[str, str]]  # the node before each node that has followed another


def known(state: Path) -> dict[str, str]:
    """Return, for each node that has followed another one of the same gateway, that one."""
    return noted(
        state / FILE,
        FORMAT,
        lambda found: {str(node): str(before) for node, before in found["before"].items()},
        {},
        "Without it, an open question would be asked anew after a gateway got a new key.",
    )


def keep(state: Path, before: Mapping[str, str]) -> None:
    """Write down which node each node follows."""
    if before != known(state):
        save(state / FILE, FORMAT, before=before)


def first(node: str, before: Mapping[str, str]) -> str:
    """Return the first node of a gateway.

    >>> first("9", {"9": "8", "8": "7"})
    '7'
    """
    while node in before:
        node = before[node]
    return node


def newest(nodes: Iterable[str], before: Mapping[str, str]) -> dict[str, str]:
    """Return the newest of some nodes of each gateway, by the first node of the gateway.

    >>> newest(["7", "8", "5"], {"9": "8", "8": "7"})
    {'7': '8', '5': '5'}
    """
    found: dict[str, str] = {}
    for node in sorted(nodes, key=lambda each: _age(each, before)):  # it keeps their order
        found[first(node, before)] = node
    return found


def last(node: str, before: Mapping[str, str]) -> str:
    """Return the newest node of the gateway whose first node this is, connected or not."""
    after = {old: new for new, old in before.items()}
    while node in after:
        node = after[node]
    return node


def _age(node: str, before: Mapping[str, str]) -> int:
    count = 0
    while node in before:
        node, count = before[node], count + 1
    return count
