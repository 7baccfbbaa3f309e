"""`fedldp fleet init`: everything that a fleet needs, as files.

Each part of a fleet gets a folder, which is copied to its machine: one for the server, one for each
gateway, and one for the vault of each gateway.
"""

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, cast, final

from fedldp._internal import toml
from fedldp.budget import ledger
from fedldp.budget.calendars import Calendar
from fedldp.datasets.dataset import Dataset
from fedldp.errors import DomainError
from fedldp.fleet import keys, signing, texts
from fedldp.fleet.flower import bundle
from fedldp.fleet.gateway import process as gateway_process
from fedldp.fleet.gateway.relay import DEADLINE
from fedldp.fleet.job import Job
from fedldp.fleet.server import process as server_process
from fedldp.fleet.signing import OPERATOR
from fedldp.fleet.sockets import Address
from fedldp.fleet.vault import process as vault_process
from fedldp.learn.features import Features
from fedldp.learn.model import Model
from fedldp.learn.networks import Architecture, Network
from fedldp.learn.objectives import objective as named_objective
from fedldp.learn.settings import Settings
from fedldp.plan.plan import Plan
from fedldp.schema.attributes import Attribute
from fedldp.schema.schema import Schema
from fedldp.signing import PrivateKey

PORT = 9443  # for gateways
LINK = 9410  # for processes on the server's machine
MONITOR = 9480  # for people and Prometheus on the server's machine
SEED = 0  # of the first weights of a network: it is public

OPERATOR_KEY = "operator.key"  # of the person who signs jobs
AUTHORITY_KEY = "ca.key"  # of the authority that issues the server's certificate
AUTHORITY = "ca.crt"  # the certificate of the authority

_SOCKET = "vault.sock"
_NOTES = {  # the comment beside an entry
    "data": "each row is a vehicle, unless `vehicle` names a column with the id of its vehicle",
    "front": "the address at which gateways reach this server",
    "link": "a port for processes of this machine: never open it to others",
    "monitor": "the live page, /healthz and /metrics: see docs/monitoring.md",
    "gateways": "a folder with the public key of each gateway, *.pub: only these are admitted",
    "server": "the address at which this gateway reaches the server",
    "authority": "the certificate authority that must have signed the server's certificate",
    "vaults": "paths of Unix sockets, or tcp://host:port",
    "bundle": "the SHA-256 of the only app that may run here: see the server's folder `app`",
    "cap": "the most epsilon that each vehicle may spend in its life, over all jobs",
    "answers_per_job": "how often each vehicle may answer one job, even if its cap allows more",
    "listen": "the path of a Unix socket, or tcp://host:port",
    "ledger": "records what each vehicle has spent: never delete it, never restore a backup",
    "operator": "the public key of the person who signs jobs: questions of others are refused",
    "signed": "what the operator has signed of this job: `fedldp fleet sign` writes it",
    "reports": "how many vehicles each gateway is asked for in a round",
    "rounds": "at most",
    "period": "of the calendar: `fedldp fleet job` writes a job for the next one",
    "survey": "asks some vehicles about their numbers first, in rounds of its own, and scales them",
    "survey_reports": "how many vehicles each gateway is asked for in the rounds of the survey",
    "target_reports": "how many vehicles each gateway is asked for about the target, in rounds of "
    "their own",
    "planned": "reports in all: the job's summary says if fewer came",
    "resend": "seconds until an unanswered question is sent again",
    "checkpoint": "the state of the job, with all reports: a restarted server resumes from it",
}


class Repeated(NamedTuple):
    """How often a statistic is asked."""

    periods: int
    answers: int  # of each vehicle


@final
@dataclass(frozen=True)
class Work:
    """What a fleet is asked, and where its data are.

    A training asks for gradients of its first model. A statistic has no model and asks, in one
    round, for attributes. In the methods below, `objective=None` means a statistic.
    """

    job: str  # its name
    asked: Schema  # the attributes of a statistic, or those from which the model predicts
    model: Model | None
    vehicles: int  # expected behind each gateway
    rounds: int  # in which vehicles answer gradients; those of a survey come before
    data: Mapping[str, Any]  # entries of every vault.toml
    schema: Schema | None = None  # of all columns, if the data are files
    total: int | None = None  # vehicles in the fleet, if not `vehicles` behind each gateway
    repeated: Repeated | None = None  # of a statistic that is asked again and again

    def calendar(self, epsilon: float) -> Calendar | None:
        """Return the calendar of a statistic that is asked again and again; None for other work."""
        if self.repeated is None:
            return None
        if self.model is not None:
            raise DomainError("periods are for statistics: leave them out, or change the task.")
        return Calendar(Plan(self.asked, epsilon), *self.repeated)

    @classmethod
    def on_data_set(
        cls,
        data: Dataset,
        objective: str | None,
        gateways: int,
        rounds: int,
        entries: Mapping[str, Any],
        job: str | None = None,
        network: Architecture = Network.linear,
    ) -> "Work":
        """Divide a data set among the vaults; `entries` of vault.toml say which rows are used.

        `data` are the rows that all vaults hold together. `network` makes the model that is
        trained.
        """
        if data.vehicle_ids is not None:
            raise DomainError(
                f"expected a data set with one row for each vehicle; {data.name} has several. "
                "Give it as a file."
            )
        asked, model = data.asked, None
        if objective is not None:
            asked = data.features.schema
            model = _first_model(objective, asked, data.target(objective), network)
        vehicles = -(-len(data) // gateways)
        found = {"data": data.name, **entries}
        return cls(job or data.name, asked, model, vehicles, rounds, found, total=len(data))

    @classmethod
    def on_files(
        cls,
        path: str,
        schema: Schema,
        target: str | None,
        objective: str | None,
        vehicles: int,
        rounds: int,
        entries: Mapping[str, Any],
        job: str | None = None,
        network: Architecture = Network.linear,
    ) -> "Work":
        """Have each vault read a file with these columns at this path in its folder."""
        asked, model = schema, None
        if objective is not None and target is not None:
            asked = Schema(tuple(each for each in schema.attributes if each.name != target))
            model = _first_model(objective, asked, schema[target], network)
        data = {"data": path, **entries}
        return cls(job or Path(path).stem, asked, model, vehicles, rounds, data, schema)


def _first_model(objective: str, schema: Schema, target: Attribute, network: Architecture) -> Model:
    """Return a model with public first weights: zeros, if it is linear."""
    reference, goal = Settings.reference, named_objective(objective).for_target(target)
    made = network(Features(schema, reference).dimensions, goal)
    layers = made if made.layers else None
    weights = tuple(made.start(SEED).tolist())
    return Model(objective, schema, target, weights, reference, layers=layers)


@final
@dataclass(frozen=True)
class Place:
    """Where gateways reach the server; other ports are for the server's machine alone."""

    host: str = "127.0.0.1"
    port: int = PORT
    link: int = LINK  # for the server's own processes
    monitor: int | None = MONITOR  # for its monitor, if it has one

    @property
    def listens(self) -> str:
        """The address on which the endpoint listens."""
        if self.local:
            return "127.0.0.1"
        return "[::]" if ":" in self.host else "0.0.0.0"  # noqa: S104 (it is for gateways anywhere)

    @property
    def local(self) -> bool:
        """Whether the whole fleet is on one machine."""
        return self.host in keys.LOCAL


def init(
    folder: Path,
    work: Work,
    settings: Settings,
    gateways: int,
    place: Place,
    cap: float | None = None,
) -> Job:
    """Write the folder of a fleet, which must be new or empty; return its job.

    The cap is the most that each vehicle may spend in its life, by default the cost of the job or,
    if it is asked in many periods, of all its answers.
    """
    if not settings.private:
        raise DomainError(
            "a fleet needs a mechanism, without which there is no privacy; got mechanism=None."
        )
    calendar = work.calendar(settings.epsilon)
    cost = settings.epsilon if calendar is None else float(calendar.epsilon)
    cap = cost if cap is None else cap
    if not cost <= cap < float("inf"):
        what = "epsilon" if calendar is None else "what a vehicle spends in all periods"
        raise DomainError(
            f"cap must be at least {what}, {cost}, otherwise no vehicle can answer; got {cap}."
        )
    folder = folder.resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DomainError(f"expected a new or empty folder; {folder} exists. Choose another name.")
    Address.of(str(folder / f"vault-{gateways}" / _SOCKET))  # raises if the path is too long
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fleet-") as fresh:
        _write(Path(fresh) / "fleet", work, settings, gateways, place, cap)
        (Path(fresh) / "fleet").rename(folder)  # all of it or nothing
    return Job.load(folder / "server" / "job.toml")


def _write(
    folder: Path, work: Work, settings: Settings, gateways: int, place: Place, cap: float
) -> None:
    parts = [(folder / f"gateway-{i}", folder / f"vault-{i}") for i in range(1, gateways + 1)]
    centre = folder / "server"
    for path in (folder, centre, centre / "gateways", *(each for pair in parts for each in pair)):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    keys.write_server(centre, folder / AUTHORITY_KEY, [place.host])
    operator = PrivateKey.generate()
    operator.save(folder / OPERATOR_KEY)
    for path in (centre, *(vault for _, vault in parts)):
        operator.public.save(path / OPERATOR)
    _write_server(centre, place)
    write_job(centre, work, settings, gateways)
    signing.sign(centre / "job.toml", operator)
    for number, (gateway, vault) in enumerate(parts, 1):
        (gateway / AUTHORITY).write_bytes((centre / AUTHORITY).read_bytes())
        public = keys.write_node(gateway / "key")
        for path in (gateway / "key.pub", centre / "gateways" / f"{gateway.name}.pub"):
            path.write_bytes(public)
        # On one machine, all belongs to one user. On several, the systemd units make a folder for
        # the socket that the gateway's user can reach, unlike the vault's folder.
        real = f"/run/fedldp-{vault.name}/{_SOCKET}"
        listen, seen = (_SOCKET, f"../{vault.name}/{_SOCKET}") if place.local else (real, real)
        _write_gateway(gateway, seen, place)
        limits = {"cap": str(cap), "answers_per_job": _answers(work, settings)}
        _write_vault(vault, work, limits, f"{number}/{gateways}", listen)
    # The server's configuration is read for this: what it would not accept is refused here.
    texts.write_fleet(folder, f"{place.host}:{place.port}", f"{place.listens}:{place.port}")


def _write_server(folder: Path, place: Place) -> None:
    entries: dict[str, Any] = {
        "front": f"{place.listens}:{place.port}",
        "link": place.link,
        "authority": AUTHORITY,
        "certificate": "server.crt",
        "key": "server.key",
        "gateways": "gateways",
        "app": "app",
        "job": "job.toml",
    }
    if place.monitor is not None:
        entries["monitor"] = f"127.0.0.1:{place.monitor}"
    write_toml(folder / server_process.FILE, entries)
    (folder / "app").mkdir()
    (folder / "app" / "pyproject.toml").write_text(bundle.APP, "utf-8")


def _answers(work: Work, settings: Settings) -> int:
    """Return how many times the job asks each vehicle."""
    return 1 if work.model is None else settings.participations


def write_job(folder: Path, work: Work, settings: Settings, gateways: int, name: str = "") -> None:
    """Write the files of a job to the folder of a server; those of a further job have a name."""
    stem, start = name or "job", f"{name}." if name else ""
    answers, model = _answers(work, settings), work.model
    total = gateways * work.vehicles if work.total is None else work.total
    entries: dict[str, Any] = {"format": toml.FORMAT, "job": work.job}
    if (calendar := work.calendar(settings.epsilon)) is None:
        entries["plan"] = f"{start}plan.json"
    else:
        entries |= {"plan": f"{start}calendar.json", "period": 1}
    entries["gateways"] = gateways
    if (folder / OPERATOR).exists():
        entries |= {"operator": OPERATOR, "signed": f"{stem}{signing.ENDING}"}
    waits = {"resend": Job.resend, "deadline": Job.deadline, "checkpoint": f"state/{stem}.db"}
    recipe = ""
    made: Plan | Calendar
    if model is None:
        made, reports = Plan(work.asked, settings.epsilon), work.vehicles
        planned = min(total, gateways * reports)
        if calendar is not None:
            made, planned = calendar, _fewest(planned, calendar.share)
        entries |= {"reports": reports, "rounds": 1, "planned": planned}
        entries |= {**waits, "result": f"state/{start}tally.json"}
    else:
        d, linear = model.dimensions, model.layers is None
        survey, surveyed = settings.survey_for(model.numbers, total, linear), 0
        clip = settings.clip_for_model(model, survey, total)
        made = cast(Plan, settings.plan(d, clip.length, clip.mean_length))
        target, of_target = settings.target_survey_for(clip, total), 0
        before = sum(len(each.rounds) for each in (survey, target) if each is not None)
        if survey is not None:
            surveyed = -(-round(settings.survey_share * total) // gateways)
        if target is not None:
            of_target = -(-round(settings.target_share * total) // gateways)
        reports = -(-(work.vehicles * answers - surveyed - of_target) // work.rounds)
        most = gateways * (surveyed + of_target + reports * work.rounds)
        entries |= {
            "model": f"{start}model.json",
            "reports": reports,
            "rounds": before + work.rounds,
        }
        if survey is not None:
            entries |= {"survey": survey.kind, "survey_reports": surveyed}
        if target is not None:
            entries |= {"target_reports": of_target}
        entries |= {"planned": min(answers * total, most), **waits}
        entries |= {"result": f"state/{start}model.json"}
        (folder / f"{start}model.json").write_text(model.to_json(), "utf-8")
        steps = settings.recipe(d, work.rounds, model.network.distance, linear).to_document()
        recipe = "\n" + toml.table("recipe", entries=steps)
    (folder / entries["plan"]).write_text(made.to_json(), "utf-8")
    notes = _NOTES | {
        "gateways": "how many must be connected before the first round",
        "deadline": "seconds until a round ends without the gateways that have not answered",
    }
    (folder / f"{stem}.toml").write_text(f"{toml.write(entries, notes)}{recipe}", "utf-8")


def _fewest(vehicles: int, share: Fraction) -> int:
    """Return how many of some vehicles answer in a period, less three standard deviations.

    >>> _fewest(9000, Fraction(1, 10))
    814
    """
    deviation = math.sqrt(vehicles * share * (1 - share))
    return max(1, math.floor(vehicles * share - 3 * deviation))


def _write_gateway(folder: Path, vault: str, place: Place) -> None:
    host = f"[{place.host}]" if ":" in place.host else place.host
    entries = {
        "server": f"{host}:{place.port}",
        "authority": AUTHORITY,
        "key": "key",
        "vaults": [vault],
        "deadline": DEADLINE,
        "bundle": bundle.SHA256,
    }
    write_toml(folder / gateway_process.FILE, entries)


def _write_vault(
    folder: Path, work: Work, limits: Mapping[str, Any], part: str, listen: str
) -> None:
    entries = dict(work.data)
    if work.schema is None:
        entries["part"] = part
    else:
        entries["schema"] = "schema.toml"
        write_schema(folder / "schema.toml", work.schema)
    entries |= {**limits, "listen": listen, "ledger": "ledger.db", "operator": OPERATOR}
    write_toml(folder / vault_process.FILE, entries)
    ledger.create(folder / "ledger.db")


def write_toml(path: Path, entries: Mapping[str, Any]) -> None:
    """Write a configuration, with a comment beside the entries that need one."""
    path.write_text(toml.write({"format": toml.FORMAT, **entries}, _NOTES), "utf-8")


def write_schema(path: Path, schema: Schema) -> None:
    """Write the schema of the file with a vault's data."""
    text = f"{toml.write({'format': toml.FORMAT})}\n{schema.to_toml()}"
    path.write_text(text, "utf-8")
