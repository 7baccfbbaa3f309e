"""What people and programs change on a server. Each act is in the audit log, in its transaction."""

import json
from collections.abc import Iterable, Mapping

from fedldp import signing
from fedldp.errors import DomainError
from fedldp_fleet.server import audit, members, tokens
from fedldp_fleet.server.folder import ServerFolder
from fedldp_fleet.server.work import JobFile
from fedldp_fleet.signed_jobs import FORMAT
from fedldp_fleet.store.base import Transaction


def add_job(folder: ServerFolder, store: Transaction, file: JobFile, actor: str) -> str:
    """Queue or extend a job that the operator has signed; return what was done."""
    if not file.signed:
        raise DomainError(
            f"the job {file.job.name!r} is not signed. Sign it: fedldp server job sign FILE --key "
            "operator.key"
        )
    signing.verify(folder.operator, file.signed, FORMAT)
    done = folder.engine().add(store, file.job, file.signed)
    signer = json.loads(file.signed)["key"]
    audit.record(store, actor, audit.JOB, file.job.name, f"{done}, signed by {signer}")
    return done


def enroll(
    store: Transaction, agents: Mapping[str, int], actor: str, *, again: bool = False
) -> list[str]:
    """Return a one-time code for each agent, given how many vehicles it has."""
    codes = []
    for agent, vehicles in agents.items():
        codes.append(members.enroll(store, agent, vehicles, again=again))
        audit.record(store, actor, audit.ENROLLED, agent, f"vehicles: {vehicles}")
    return codes


def revoke(store: Transaction, agents: Iterable[str], actor: str) -> None:
    """Refuse agents from now on."""
    for agent in agents:
        members.revoke(store, agent)
        audit.record(store, actor, audit.REVOKED, agent)


def create_token(store: Transaction, name: str, role: str, actor: str) -> str:
    """Return a new token of the API."""
    token = tokens.create(store, name, role)
    audit.record(store, actor, audit.TOKEN, name, role)
    return token


def revoke_token(store: Transaction, name: str, actor: str) -> None:
    """Refuse a token from now on."""
    tokens.revoke(store, name)
    audit.record(store, actor, audit.TOKEN_REVOKED, name)


def agents_in(text: str, source: str, vehicles: int = 1) -> dict[str, int]:
    r"""Read a list of agents: in each line a name and, if it is not as usual, its vehicles.

    >>> agents_in("car-1\ndepot, 500\n# a note\n", "agents.csv")
    {'car-1': 1, 'depot': 500}
    """
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        name, _, count = (part.strip() for part in line.partition("#")[0].partition(","))
        if not name:
            continue
        if name in found or (count and not (count.isdecimal() and int(count))):
            why = "is there twice" if name in found else f"has {count!r:.80} vehicles"
            raise DomainError(
                f"line {number} of {source}: {name!r:.80} {why}. Write one agent to a line, such "
                "as `car-7` or `depot, 500`."
            )
        found[name] = int(count) if count else vehicles
    return found
