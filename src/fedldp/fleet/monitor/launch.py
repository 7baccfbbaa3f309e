"""How a server or a gateway starts its monitor, under its own supervisor."""

from pathlib import Path

from fedldp.errors import DomainError
from fedldp.fleet import isolation
from fedldp.fleet.flower import programs
from fedldp.fleet.monitor.address import MonitorAddress
from fedldp.fleet.processes import Process, Supervisor

NAME = "monitor"


def start(
    supervisor: Supervisor, folder: Path, address: MonitorAddress | None, *, given: bool
) -> str:
    """Have a supervisor run the monitor of its part; return a line for people, or nothing.

    `given` says that systemd has put the supervisor into a private network, whose loopback
    interface nobody can reach. A monitor that cannot listen does not stop its part.
    """
    if address is None:
        return ""
    if given and not address.path and isolation.is_private():
        return (
            "The monitor is not started here, because this unit has a private network: use the "
            "unit fedldp-monitor."
        )
    try:
        listening = address.listen()
    except DomainError as error:
        return f"Warning: {error}"
    argv = programs.python(__package__, folder)
    supervisor.start(Process(NAME, argv, sockets=(listening,), outside=True))
    return f"The monitor is {address.url}"
