"""The status of a gateway: whether it reaches the server and its vaults, and what it passed on."""

from pathlib import Path
from time import time
from typing import Any

from fedldp.fleet.gateway.process import LOG, GatewayConfig
from fedldp.fleet.gateway.record import CONNECTED, Connection, Passed, Questions
from fedldp.fleet.processes import kept
from fedldp.fleet.status import Attempts, Status, clock, duration, errors, iso, life

UPLINK, NODE = "uplink", "supernode"

_AWAY = 60.0  # seconds: a SuperNode asks for work every few seconds


def read(folder: Path) -> Status:
    """Return the status of the gateway of a folder."""
    attempt = Attempts()
    gateway = GatewayConfig.load(folder)
    running, since = life(folder, attempt)
    runs = {each.name: running and each.runs for each in attempt(lambda: kept(gateway.state)) or []}
    asked = attempt(lambda: _touched(gateway.pulse))
    # With systemd, the uplink is a unit of its own; it touches the pulse.
    fresh = asked is not None and time() - asked < _AWAY
    runs = {NODE: runs.get(NODE, False), UPLINK: runs.get(UPLINK, running and fresh)}
    connection = attempt(lambda: Connection.load(gateway.state)) or Connection()
    connected = running and fresh and connection.state == CONNECTED
    questions = attempt(lambda: Questions(gateway.state).load()) or []
    vaults = [_vault(name, questions) for name in gateway.vault_names]
    attention = list(attempt.troubles)
    if not running:
        attention.append("the gateway does not run.")
    else:
        attention += [f"the {name} does not run." for name, alive in runs.items() if not alive]
        if not connected:
            why = connection.why or "it has not answered yet."
            attention.append(f"the server at {gateway.server} is not connected: {why}")
        attention += [
            f"{each['name']} is silent since {clock(each['since'])}: start it."
            for each in vaults
            if each["state"] == "silent"
        ]
    last = questions[-1] if questions else None
    return Status(
        "gateway",
        folder.name,
        running,
        since,
        details={
            "server": gateway.server,
            "connected": connected,
            "connected_since": iso(connection.since) if connected else None,
            "asked_for_work": iso(asked),
            "processes": runs,
            "bundle": gateway.bundle,
            "questions": [_document(each) for each in questions],
            "vaults": [
                each | {"since": iso(each["since"]), "heard": iso(each["heard"])} for each in vaults
            ],
        },
        rows=[
            ("server", f"{gateway.server}: {_connected(connected, connection)}"),
            *((name, "runs" if alive else "does not run") for name, alive in runs.items()),
            ("last question", "none yet" if last is None else _question(last)),
        ],
        table=[("vault", "state", "since", "heard", "answered", "asked")]
        + [
            (
                each["name"],
                each["state"],
                clock(each["since"]),
                clock(each["heard"]),
                f"{each['answered']:,}",
                f"{each['asked']:,}",
            )
            for each in vaults
        ],
        errors=errors(gateway.state / LOG, gateway.state / f"{UPLINK}.log", attempt=attempt),
        unreadable=attempt.troubles,
        attention=attention,
        next=_next(folder, running, connected),
    )


def _touched(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return None


def _next(folder: Path, running: bool, connected: bool) -> str:
    if not running:
        return f"Start the gateway: fedldp fleet gateway {folder}"
    if not connected:
        return "The gateway calls the server again and again. A server ends when its job is done."
    return "The gateway waits for a question of the server."


def _connected(connected: bool, connection: Connection) -> str:
    if connected:
        since = None if connection.since is None else time() - connection.since
        return f"connected for {duration(since)}"
    return f"not connected: {connection.why}" if connection.why else "not connected"


def _question(last: Passed) -> str:
    if last.error:
        return f"{clock(last.time)}, {last.error}"
    said = "the vaults are asked" if last.replies is None else "; ".join(map(str, last.replies))
    return f"{clock(last.time)}, {last.job}, round {last.round}: {said}"


def _document(passed: Passed) -> dict[str, Any]:
    replies = None if passed.replies is None else [each._asdict() for each in passed.replies]
    return passed._asdict() | {"time": iso(passed.time), "replies": replies}


def _vault(name: str, questions: list[Passed]) -> dict[str, Any]:
    """Return what the last questions say about a vault; one that came twice counts once."""
    last = {(each.job, each.round): each for each in questions}
    said = [
        (each.time, reply)
        for each in last.values()
        for reply in each.replies or ()
        if reply.vault == name
    ]
    heard = max((when for when, reply in said if not reply.silent), default=None)
    silent = [when for when, reply in said if reply.silent and when > (heard or 0)]
    state = "silent" if silent else "not asked" if heard is None else "answered"
    return {
        "name": name,
        "state": state,
        "since": min(silent) if silent else heard,
        "heard": heard,
        "answered": sum(reply.answered for _, reply in said),
        "asked": sum(reply.asked for _, reply in said),
        "why": said[-1][1].why if silent else "",
    }
