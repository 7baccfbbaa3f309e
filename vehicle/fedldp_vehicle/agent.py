"""The agent of one vehicle: its folder, and the rows that a file or a program has."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .budget import ledger as ledgers
from .budget.ledger import Ledger
from .errors import DomainError
from .fleet.agent import service
from .fleet.agent.one import OneVehicle
from .fleet.agent.service import FILE, LEDGER, NETWORK, AgentSettings
from .vehicle import read_row

if TYPE_CHECKING:
    import argparse

MOST_ROW_BYTES = 1 << 24
_NOT_HERE = {"vehicle", "vehicle_ids", "epsilons"}  # entries for agents with many vehicles


def join(options: "argparse.Namespace") -> None:
    """Make the folder of an agent, and enroll it with a one-time code, or join a broker."""
    folder: Path = options.folder
    if not (folder / FILE).exists():
        _make(folder, options)
    AgentSettings.load(folder).operator()
    if options.url.startswith("mqtt"):
        name = _join_broker(folder / NETWORK, options)
    elif options.code is None:
        raise DomainError(f"{options.url} needs a CODE: ask its operator for one.")
    else:
        name = service.join(folder / NETWORK, options.url, options.code, options.ca).agent
    print(f"Joined {options.url} as {name}. Never delete {folder / LEDGER}.")


def _join_broker(network: Path, options: "argparse.Namespace") -> str:
    from .fleet.agent import mqtt  # which most agents do without

    if options.name is None or options.code is not None:
        raise DomainError("a broker needs --name, as whom it knows the agent, and no CODE.")
    given = (str(each or "") for each in (options.ca, options.certificate, options.key))
    membership = mqtt.BrokerMembership(options.url, options.name, options.shared, *given)
    return mqtt.join(network, membership).name


def run(options: "argparse.Namespace") -> None:
    """Take part until SIGTERM or Ctrl-C."""
    sys.exit(run_folder(options.folder, options.road, once=options.once))


def run_folder(folder: Path, socket: Path | None = None, *, once: bool = False) -> int:
    """Run the agent of a folder; return the exit status."""
    return service.run(AgentSettings.load(folder), one_vehicle, socket, once=once)


def network(options: "argparse.Namespace") -> None:
    """Run the part that talks to the network as a process of its own."""
    service.relay(options.folder, options.socket)


def status(options: "argparse.Namespace") -> None:
    """Show what is spent, and whether the agent runs; fail if anything needs attention."""
    document, attention = service.status(AgentSettings.load(options.folder))
    print(json.dumps(document | {"attention": attention}))
    if attention:
        raise DomainError(" ".join(attention))


def one_vehicle(settings: AgentSettings, ledger: Ledger) -> OneVehicle:
    """Return the vehicle of an agent, with the data that its settings name."""
    if unknown := sorted(_NOT_HERE & settings.entries.keys()):
        raise DomainError(
            f"{settings.folder / FILE}: {', '.join(unknown)} is for agents with many vehicles."
        )
    schema = None
    if "schema" in settings.entries:
        schema = _schema(settings.path("schema"))
        settings.policy.check_schema([str(attribute.get("name")) for attribute in schema])
    return OneVehicle(
        ledger,
        _rows(settings),
        schema=schema,
        epsilon=settings.epsilon,
        fewest_vehicles=settings.policy.fewest_vehicles,
    )


def _make(folder: Path, options: "argparse.Namespace") -> None:
    given = {name: getattr(options, name) for name in ("cap", "operator", "data", "program")}
    if given["cap"] is None or given["operator"] is None:
        raise DomainError(f"{folder} is no agent yet: give --cap and --operator to make it one.")
    if (given["data"] is None) == (given["program"] is None):
        raise DomainError("expected either --data or --program, which say where the row is.")
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("operator", "data"):
        given[name] = given[name] and str(Path(given[name]).resolve())
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in given.items() if value]
    (folder / FILE).write_text("".join(lines), "utf-8")
    if not (folder / LEDGER).exists():
        ledgers.create(folder / LEDGER)


def _rows(settings: AgentSettings) -> Callable[[], Mapping[str, Any] | Sequence[Mapping[str, Any]]]:
    if "program" in settings.entries:
        return settings.program()
    if "data" not in settings.entries:
        raise DomainError("this agent reads rows from `data` or `program`; got `query`.")
    path = settings.path("data")

    def read() -> Any:
        with path.open("rb") as file:
            return read_row(file.read(MOST_ROW_BYTES))

    return read


def _schema(path: Path) -> list[dict[str, Any]]:
    """Read the attributes of the vehicle: a JSON list, as the entry `schema` of a plan has it."""
    try:
        document = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise DomainError(f"{path} is not JSON: {error}.") from None
    if not isinstance(document, list) or not all(isinstance(item, dict) for item in document):
        raise DomainError(f"{path} must be a list of attributes, as the `schema` of a plan is.")
    return document
