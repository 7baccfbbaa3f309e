"""The names of gateways: Flower knows a node by its number, people know it by the file of its key.

The server writes a file that says which name belongs to which number when it registers a key, and
never removes an entry. So a gateway that was revoked, or has a new key, still has its name in the
logs and in the status of a job that it took part in.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from fedldp.errors import WireError
from fedldp.fleet.state import note, noted

FILE = "names.json"  # in the state folder of the server
FORMAT = "fedldp gateway names 1"

Name = Callable[[str], str]  # from the number of a node to a name to show


def known(state: Path) -> dict[str, str]:
    """Return the name of each node that the server of a state folder has ever registered."""
    try:
        return noted(
            state / FILE,
            FORMAT,
            lambda found: {str(node): str(name) for node, name in found["names"].items()},
            {},
        )
    except (OSError, WireError):  # names only help people: do without them
        return {}


def keep(state: Path, names: Mapping[str, str]) -> None:
    """Add names to the file."""
    before = known(state)
    after = before | dict(names)
    if after != before:
        note(state / FILE, FORMAT, names=after)


def lookup(state: Path) -> Name:
    """Return a function that returns the name of a node, as the server's file has it then.

    >>> lookup(Path("/nonexistent"))("7")
    'gateway 7'
    """
    return lambda node: known(state).get(node) or unnamed(node)


def unnamed(node: str) -> str:
    """Return what to call a node whose name is not known."""
    return f"gateway {node}"
