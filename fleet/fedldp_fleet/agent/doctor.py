"""What is wrong with an agent before it starts: each finding is a sentence for its owner.

Nothing is drawn or spent. What is found about the data is for the owner alone.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from fedldp.errors import FedLDPError
from fedldp_fleet.agent.holders import rows_of
from fedldp_fleet.agent.service import LEAST_FREE_BYTES, AgentSettings, road_of
from fedldp_fleet.messages import Call

_SECRETS = ("ledger.db*", "outbox.db*", "network/membership.json")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def findings(settings: AgentSettings) -> Iterator[str]:
    """Yield what is wrong with the files, the data, the ledger and the way to the server."""
    yield from _of_files(settings.folder)
    told: list[str] = []
    for look in (
        settings.operator,
        lambda: settings.ledger().close(),
        lambda: rows_of(settings, told.append).held(),
        lambda: _call(settings),
    ):
        try:
            look()
        except (FedLDPError, OSError) as error:
            yield str(error)
    yield from (line.removeprefix("fedldp agent: ") for line in told)


def _of_files(folder: Path) -> Iterator[str]:
    for pattern in _SECRETS:
        for path in sorted(folder.glob(pattern)):
            if path.stat().st_mode & _OTHERS:
                yield f"{path} can be read by others. Change it: chmod go= {path}"
    disk = os.statvfs(folder)
    if disk.f_bavail * disk.f_frsize < LEAST_FREE_BYTES:
        yield f"the disk of {folder} is full: make room, but never delete a ledger."


def _call(settings: AgentSettings) -> None:
    """Call the server, which then knows that nothing is answered."""
    with closing(road_of(settings.network)) as road:
        road.call(Call({}))
