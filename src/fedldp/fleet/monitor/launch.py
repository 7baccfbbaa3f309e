"""How a server or a gateway starts its monitor, under its own supervisor."""

import logging
from pathlib import Path

from fedldp.errors import DomainError
from fedldp.fleet import isolation
from fedldp.fleet.flower import programs
from fedldp.fleet.monitor.address import MonitorAddress
from fedldp.fleet.processes import Process, Supervisor

NAME = "monitor"
LAST = 6.0  # seconds that a server lives after its job, so that people who watch see the end

_log = logging.getLogger("fedldp.fleet")


def start(supervisor: Supervisor, configuration: Path, *, given: bool) -> bool:
    """Have a supervisor run the monitor of its part, if the configuration asks for one.

    Return whether it runs.
    `given` says that systemd has put the supervisor into a private network, whose loopback
    interface nobody can reach. A monitor that cannot listen does not stop its part.
    """
    address = MonitorAddress.load(configuration)
    if address is None:
        return False
    if given and not address.path and isolation.is_private():
        _log.info(
            "The monitor is not started here, because this unit has a private network: use the "
            "units whose names begin with fedldp-monitor."
        )
        return False
    try:
        listening = address.listen()
    except DomainError as error:
        _log.warning("%s", error)
        return False
    argv = programs.python("fedldp.fleet.monitor", configuration.parent)
    supervisor.start(Process(NAME, argv, sockets=(listening,), outside=True))
    _log.info("The monitor is %s", address.url)
    return True
