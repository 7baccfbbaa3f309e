"""`fedldp agent`: the vehicles of one owner take part in the jobs of a server."""

import datetime
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedldp.errors import DomainError
from fedldp.vehicle import warn_owner
from fedldp_fleet.agent import service
from fedldp_fleet.agent.service import FILE, LEDGER, NETWORK, POSTGRESQL, AgentSettings

if TYPE_CHECKING:
    from fedldp_fleet.transparency import SignedStatement

_FOLDER = click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_NOTES = {
    "cap": "the most epsilon that a vehicle spends in its life",
    "operator": "the public key of the operator: nothing else is answered",
    "data": "a CSV or Parquet file",
    "query": "its columns are the attributes of the schema",
    "schema": "the attributes of the rows, with their public bounds",
    "vehicle": "the column with the id of each row's vehicle",
}


@click.group()
def agent_group() -> None:
    """Answer a server's jobs, for one vehicle or for many.

    An agent holds data and ledger. It calls the server, and is never called.

    \b
    fedldp agent init car --cap 4 --operator operator.pub \\
        --data rows.csv --schema schema.toml
    fedldp agent join car https://fleet.example:8443 CODE --ca ca.pem
    fedldp agent run car
    fedldp agent status car
    """  # noqa: D301 (click wants the character \b itself)


@agent_group.command("init")
@_FOLDER
@click.option("--cap", required=True, help="The most epsilon that a vehicle spends in its life.")
@click.option(
    "--operator",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The operator's public key.",
)
@click.option(
    "--data",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A CSV or Parquet file with rows.",
)
@click.option("--program", help='"module:function", a function that returns rows.')
@click.option("--query", help="A query in SQL that returns rows; needs --database.")
@click.option(
    "--database",
    help="The database of the query: a SQLite file, or postgresql://...",
    metavar="FILE|URL",
)
@click.option(
    "--schema",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The attributes of the rows.",
)
@click.option("--vehicle", help="The column with the id of each row's vehicle.")
def init_command(folder: Path, operator: Path, schema: Path, **given: Any) -> None:
    """Make a folder with a ledger in which nothing is spent.

    \b
    fedldp agent init car --cap 4 --operator operator.pub \\
        --data rows.csv --schema schema.toml
    fedldp agent init depot --cap 4 --operator operator.pub \\
        --data rows.parquet --schema schema.toml --vehicle car
    fedldp agent init depot --cap 4 --operator operator.pub \\
        --database trips.db --query "SELECT car, speed FROM trips" \\
        --schema schema.toml --vehicle car
    """  # noqa: D301
    from fedldp.budget import ledger
    from fedldp_fleet.common import toml

    if (folder / FILE).exists():
        raise DomainError(f"there is an agent in {folder} already.")
    if sum(given[name] is not None for name in ("data", "program", "query")) != 1:
        raise DomainError(
            "expected one of --data, --program and --query, which say where rows are."
        )
    if (given["query"] is None) != (given["database"] is None):
        raise DomainError("--query and --database need each other: give both, or neither.")
    if given["database"] and not given["database"].startswith(POSTGRESQL):
        given["database"] = os.path.relpath(given["database"], folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = {"operator": operator, "schema": schema, "data": given.pop("data")}
    given |= {name: os.path.relpath(path, folder) for name, path in paths.items() if path}
    entries = {name: given[name] for name in service.ENTRIES if given.get(name) is not None}
    text = toml.write(entries, {name: note for name, note in _NOTES.items() if name in entries})
    (folder / FILE).write_text(text, "utf-8")
    settings = AgentSettings.load(folder)
    ledger.create(folder / LEDGER)
    settings.operator()
    click.echo(f"{folder} is an agent. Its file {FILE} says what its owner allows.")
    click.echo(f"Never delete {folder / LEDGER}: it records what is spent.")
    click.echo(f"Next, with a code from the operator: fedldp agent join {folder} URL CODE")


@agent_group.command("join")
@_FOLDER
@click.argument("url")
@click.argument("code", required=False)
@click.option(
    "--ca",
    type=_FILE,
    help="The certificate of the authority that has signed the server's or broker's certificate.  "
    "[default: those that the operating system trusts]",
)
@click.option("--name", help="The agent's name for the broker: the one in its certificate.")
@click.option("--certificate", type=_FILE, help="The agent's certificate, for the broker.")
@click.option("--key", type=_FILE, help="The key of the certificate.")
@click.option("--shared", is_flag=True, help="Several agents have the same certificate.")
def join_command(
    folder: Path,
    url: str,
    code: str | None,
    ca: Path | None,
    name: str | None,
    certificate: Path | None,
    key: Path | None,
    shared: bool,
) -> None:
    """Join a server with a one-time code, or join an MQTT broker.

    URL is the address of the server. To join at a broker, give no code, since a
    broker knows agents by their certificates; URL is then the address of the
    broker and the name of the fleet.

    \b
    fedldp agent join car https://fleet.example:8443 CODE --ca ca.pem
    fedldp agent join car mqtts://broker.example:8883/north --name car-7 \\
        --ca ca.pem --certificate car.pem --key car.key
    """  # noqa: D301
    if url.startswith("mqtt"):
        from fedldp_fleet.agent import mqtt

        if name is None or code is not None:
            raise DomainError("to join a broker, give --name, and leave out CODE.")
        keys = (str(each) if each else "" for each in (ca, certificate, key))
        mqtt.join(folder / NETWORK, mqtt.BrokerMembership(url, name, shared, *keys))
        click.echo(f"Joined {url} as {name}.")
    else:
        if code is None:
            raise DomainError(f"{url} needs a CODE: ask its operator for one.")
        membership = service.join(folder / NETWORK, url, code, ca)
        vehicles = f"{membership.vehicles:,} vehicle{'s' * (membership.vehicles != 1)}"
        click.echo(f"Joined {url} as {membership.agent}, for {vehicles}.")
    click.echo(f"Next: fedldp agent run {folder}")


@agent_group.command("run")
@_FOLDER
@click.option(
    "--road",
    "socket",
    type=click.Path(path_type=Path),
    help="The socket of `fedldp agent network`, if that is a process of its own.",
)
@click.option(
    "--listen",
    type=click.Path(path_type=Path),
    help="Make this socket, through which the Flower node of this machine asks.",
)
@click.option("--once", is_flag=True, help="End when there is nothing to do now.")
def run_command(folder: Path, socket: Path | None, listen: Path | None, once: bool) -> None:
    """Take part until SIGTERM or Ctrl-C.

    With --once, the exit status is 3 if an answer is not acknowledged yet, and
    4 if the server could not be reached: run it again later.

    \b
    fedldp agent run car
    fedldp agent run car --once                      # for a vehicle that wakes up
    fedldp agent run car --road /run/fedldp/road     # see fedldp agent network
    fedldp agent run car --listen /run/fedldp/agent  # beside a SuperNode
    """  # noqa: D301
    from fedldp_fleet.agent.holders import many_vehicles
    from fedldp_fleet.library import owner

    owner.protect_process()
    if socket is not None and listen is not None:
        raise DomainError("expected at most one of --road and --listen: an agent has one road.")
    sys.exit(service.run(AgentSettings.load(folder), many_vehicles, socket, listen, once=once))


@agent_group.command("network")
@_FOLDER
@click.argument("socket", type=click.Path(path_type=Path))
def network_command(folder: Path, socket: Path) -> None:
    """Run the network part as a process of its own.

    FOLDER belongs to another user account. It has membership.json, and neither
    data nor ledger. The process with data and ledger then needs no network.

    \b
    fedldp agent network car/network /run/fedldp/road
    fedldp agent run car --road /run/fedldp/road
    """  # noqa: D301
    service.relay(folder, socket)


@agent_group.command("status")
@_FOLDER
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--metrics", "as_metrics", is_flag=True, help="Print metrics for Prometheus.")
def status_command(folder: Path, as_json: bool, as_metrics: bool) -> None:
    """Show what is spent, and whether the agent runs.

    The exit status is 1 if anything needs attention.

    \b
    fedldp agent status car
    fedldp agent status car --json
    fedldp agent status car --metrics > /var/lib/node_exporter/car.prom
    """  # noqa: D301
    from fedldp_fleet.agent import metrics

    document, attention = service.status(AgentSettings.load(folder))
    if as_metrics:
        click.echo(metrics.text(document, attention), nl=False)
        return
    if as_json:
        click.echo(json.dumps(document | {"attention": attention}))
    else:
        for name, value in document.items():
            click.echo(f"{name.replace('_', ' ')}: {_readable(name, value)}")
        for line in attention:
            click.echo(f"attention: {line}")
    sys.exit(1 if attention else 0)


def _readable(name: str, value: Any) -> str:
    """Write an entry of the status for people."""
    if value is None:
        return "never"
    if name in ("since", "last_call", "next_call"):
        return f"{datetime.datetime.fromtimestamp(value, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
    if name.startswith("disk"):
        return f"{value / 1e9:,.1f} GB"
    if name == "left":
        lefts = (f"epsilon {left} (vehicles: {count:,})" for left, count in value.items())
        return ", ".join(lefts) or "all"
    if name == "jobs":
        return ", ".join(f"{job} (answers: {count:,})" for job, count in value.items()) or "none"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else f"{value}"


@agent_group.command("doctor")
@_FOLDER
def doctor_command(folder: Path) -> None:
    """Check files, data, ledger and the way to the server.

    \b
    fedldp agent doctor car

    It spends nothing. What it says about the data, such as how many values will
    be clipped or replaced, is for the owner alone. The exit status is 1 if there
    is a problem.
    """  # noqa: D301
    from fedldp_fleet.agent.doctor import findings

    found = list(findings(AgentSettings.load(folder)))
    click.echo("\n".join(found) or f"{folder} is ready.")
    sys.exit(1 if found else 0)


@agent_group.command("rotate")
@_FOLDER
def rotate_command(folder: Path) -> None:
    """Get a new secret from the server.

    Restart the agent, or its network process, after that.

    \b
    fedldp agent rotate car
    """  # noqa: D301
    road = service.https_road(folder / NETWORK)
    road.rotate()
    road.close()
    click.echo("Restart the agent: it has a new secret. The old one works until then.")


@agent_group.command("transparency")
@_FOLDER
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for other owners.")
@click.option(
    "--with",
    "other",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The file that another owner has written with --json: show the differences.",
)
def transparency_command(folder: Path, as_json: bool, other: Path | None) -> None:
    """Show what was asked, to compare with others.

    The head is the last hash in a chain of all questions: owners with equal heads
    were asked the same questions in the same order. If the server has signed two
    questions for one round, the command prints both statements, which prove it to
    anybody, and the exit status is 1.

    \b
    fedldp agent transparency car
    fedldp agent transparency car --json > car.json
    fedldp agent transparency truck --with car.json
    """  # noqa: D301
    from fedldp_fleet.transparency import Transparency

    settings = AgentSettings.load(folder)
    asked = Transparency.read(settings.ledger_path, service.statements(settings))
    theirs = other and Transparency.from_json(other.read_text("utf-8"))
    if theirs:
        differences = asked.differences(theirs)
        click.echo("\n".join(differences) or "Both were asked the same.")
        _show_proofs(asked.proofs(theirs))
        sys.exit(1 if differences else 0)
    if as_json:
        click.echo(json.dumps(asked.to_document()))
        return
    click.echo(f"head: {asked.head}")
    for question in asked.asked:
        click.echo(f"{question.where}: plan {question.plan[:16]}, model {question.model[:16]}")
    if asked.is_full:
        warn_owner("The list of refused questions is full: later ones are not in it.")
    proofs = asked.proofs()
    _show_proofs(proofs)
    sys.exit(1 if proofs else 0)


def _show_proofs(proofs: "list[tuple[SignedStatement, SignedStatement]]") -> None:
    for one, other in proofs:
        where = one.verified
        click.echo(
            f"{where.job}, round {where.round}: the server, whose key is {one.server}, has signed "
            "two questions. This proves that it did not ask everybody the same:"
        )
        click.echo(f"  {one.statement}\n  {other.statement}")
