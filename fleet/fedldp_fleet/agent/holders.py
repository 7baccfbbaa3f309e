"""The holder of many vehicles, as agent.toml describes it."""

from collections.abc import Sequence
from fractions import Fraction

from fedldp.budget.ledger import Ledger
from fedldp.errors import DomainError
from fedldp.schema.schema import Schema
from fedldp.vehicle import warn_owner
from fedldp_fleet.agent.many import Data, ManyVehicles
from fedldp_fleet.agent.queries import query
from fedldp_fleet.agent.rows import FileRows, ProgramRows, Tell
from fedldp_fleet.agent.service import FILE, AgentSettings

ONLY_VEHICLE = "vehicle"


def many_vehicles(settings: AgentSettings, ledger: Ledger) -> ManyVehicles:
    """Return the vehicles of an agent, with the data that its settings name."""
    return ManyVehicles(rows_of(settings), ledger, settings.policy)


def rows_of(settings: AgentSettings, tell: Tell = warn_owner) -> Data:
    """Return where the rows of an agent come from; a file is read now."""
    entries = settings.entries
    if "schema" not in entries:
        raise DomainError(f"{settings.folder / FILE}: the entry 'schema' is missing.")
    schema = Schema.from_toml(settings.path("schema").read_text("utf-8"))
    if settings.epsilon is not None and "epsilons" in entries:
        raise DomainError(
            f"{settings.folder / FILE}: expected either `epsilon`, for all vehicles, or "
            "`epsilons`, the column with the epsilon of each vehicle; got both."
        )
    if "program" in entries:
        ids = [str(name) for name in entries.get("vehicle_ids", [ONLY_VEHICLE])]
        chosen = _everyones(settings, ids)
        return ProgramRows(schema, settings.program(), ids, entries.get("vehicle"), chosen, tell)
    if "query" in entries:
        asked = query(entries["database"], entries["query"], settings.folder)
        column, ids = entries.get("vehicle"), [ONLY_VEHICLE]
        if column is not None:  # as of a file, the vehicles are those of the first reading
            ids = sorted({str(row[column]) for row in asked()})
        return ProgramRows(schema, asked, ids, column, _everyones(settings, ids), tell)
    column, epsilons = entries.get("vehicle"), entries.get("epsilons")
    rows = FileRows(settings.path("data"), schema, column, epsilons, tell)
    if settings.epsilon is not None:
        rows.epsilons = _everyones(settings, rows.vehicle_ids)
    return rows


def _everyones(settings: AgentSettings, ids: Sequence[str]) -> Sequence[Fraction | None]:
    return [] if settings.epsilon is None else [settings.epsilon] * len(ids)
