"""Folders: vehicle.toml of a vehicle, and campaign.toml of a server or a counter."""

import contextlib
import os
import re
import secrets
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, final

from fedldp._internal import toml
from fedldp.budget.ledger import Ledger
from fedldp.budget.vehicle import ONLY_VEHICLE
from fedldp.campaigns.agent import EVERY, RETRY, SILENCE, Agent
from fedldp.campaigns.answers import Accepted, Answers, random_row
from fedldp.campaigns.campaign import Campaign, check_name, check_plan, is_same, packed, utc_now
from fedldp.campaigns.mqtt import Broker
from fedldp.campaigns.transport import Sleep
from fedldp.errors import DomainError
from fedldp.fleet import state
from fedldp.fleet.vault import policy
from fedldp.fleet.vault.policy import Policy
from fedldp.plan.plan import Plan
from fedldp.schema import frames
from fedldp.schema.quality import DataQuality, total
from fedldp.schema.schema import Schema
from fedldp.signing import PrivateKey, PublicKeys
from fedldp.storage import files, locks
from fedldp.vehicle import exact

VEHICLE_FILE, SERVER_FILE = "vehicle.toml", "campaign.toml"
SIGNER, OPERATOR = "operator.key", "operator.pub"
SUFFIX = ".campaign"  # of a signed campaign

_NETWORK: dict[str, toml.Types] = {
    "fleet": str,
    "broker": str,  # mqtts://host:port
    "authority": str,  # that has signed the broker's certificate
    "certificate": str,  # for the broker, and its key
    "key": str,
}
_RULES = {name: types for name, types in policy.ENTRIES.items() if name != "fewest_vehicles"}
_VEHICLE: dict[str, toml.Types] = (
    _NETWORK
    | _RULES
    | {
        "operator": str,  # the public key of those whose campaigns are answered
        "data": str,  # a CSV or Parquet file: a random row is answered from
        "schema": str,
        "cap": str,
        "answers_per_job": int,
        "epsilon": str,  # only plans with this epsilon are answered
        "ledger": str,
        "vehicle": str,  # its id in the ledger
        "identity": str,  # as whom the broker knows it: mostly the name in its certificate
        "every": (int, float),
        "retry": (int, float),
    }
)
_SERVER: dict[str, toml.Types] = _NETWORK | {"signer": str, "identities": bool}
_IDENTITY = re.compile(r"[^/+#\x00-\x1f\x7f]{1,128}")  # a level of a topic


def _broker(folder: Path, entries: dict[str, Any]) -> Broker:
    paths = (entries.get(name) for name in ("authority", "certificate", "key"))
    return Broker.of(entries["broker"], *(path and folder / path for path in paths))


@contextlib.contextmanager
def until_stopped() -> Iterator[tuple[Sleep, Callable[[], bool]]]:
    """Give a function that sleeps and one that says whether SIGTERM or Ctrl-C has come."""
    event = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: event.set())
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield event.wait, event.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@final
@dataclass(frozen=True)
class VehicleConfig:
    """A vehicle that answers campaigns. Paths are relative to its folder."""

    folder: Path
    entries: dict[str, Any]
    cap: Fraction
    policy: Policy

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "VehicleConfig":
        """Read vehicle.toml in a folder."""
        path = Path(folder).resolve() / VEHICLE_FILE
        entries = toml.read(
            path, _VEHICLE, ("fleet", "broker", "operator", "data", "schema", "cap")
        )
        check_name(entries["fleet"], f"{path}: fleet")
        for name in ("every", "retry"):
            if not 0 < entries.get(name, 1) < inf:
                raise DomainError(
                    f"{path}: {name} must be a positive number of seconds; got {entries[name]}."
                )
        cap = _epsilon(path, "cap", entries["cap"])
        try:
            rules = Policy.of(entries)
        except DomainError as error:
            raise DomainError(f"{path}: {error}") from None
        found = cls(path.parent, entries, cap, rules)
        found.epsilon  # noqa: B018 (an invalid one is refused now, not when a campaign comes)
        return found

    @property
    def epsilon(self) -> Fraction | None:
        """The only epsilon that this vehicle answers; None if there is a cap alone."""
        text = self.entries.get("epsilon")
        return None if text is None else _epsilon(self.folder / VEHICLE_FILE, "epsilon", text)

    @property
    def ledger_path(self) -> Path:
        """The file of the ledger."""
        return self.folder / str(self.entries.get("ledger", "ledger.db"))

    @property
    def row(self) -> Callable[[], dict[str, Any]]:
        """A function that returns a random row of the data."""
        return partial(random_row, self.folder / self.entries["data"])

    @property
    def schema(self) -> Schema:
        """The attributes that this vehicle has."""
        path = self.folder / self.entries["schema"]
        try:
            found = Schema.from_toml(path.read_text("utf-8"))
        except OSError as error:
            raise DomainError(f"{path} cannot be read: {error.strerror}.") from None
        self.policy.check_schema(found)
        return found

    def check(self) -> DataQuality:
        """Read all data, and return what would be clipped or replaced in them."""
        schema, path = self.schema, self.folder / self.entries["data"]
        found = [
            schema.rows(chunk.data, chunk.first_row).read()[1].with_malformed(chunk.malformed)
            for chunk in frames.read(path, tolerant=True)
        ]
        if not found:
            raise DomainError(f"{path} has no rows.")
        return total(found)

    @contextlib.contextmanager
    def agent(self) -> Iterator[Agent]:
        """Open the vehicle's files."""
        accepted = self.folder / state.STATE / "campaigns.db"
        operator = PublicKeys.load(self.folder / self.entries["operator"])
        broker = _broker(self.folder, self.entries)
        with (
            state.hold(self.folder / state.STATE),
            Ledger(
                self.ledger_path,
                self.cap,
                answers_per_job=self.entries.get("answers_per_job", 1),
                period=self.policy.period,
            ) as ledger,
            Accepted(accepted) as known,
        ):
            answers = Answers(
                *(self.entries["fleet"], operator, self.schema, self.row, ledger, known),
                policy=self.policy,
                epsilon=self.epsilon,
                key=self.entries.get("vehicle", ONLY_VEHICLE),
            )
            yield Agent(
                answers,
                broker.connect,
                every=self.entries.get("every", EVERY),
                retry=self.entries.get("retry", RETRY),
                identity=self.identity,
            )

    @property
    def identity(self) -> str:
        """As whom the broker knows this vehicle; empty if vehicle.toml does not say so."""
        name = str(self.entries.get("identity", ""))
        if "identity" in self.entries and not _IDENTITY.fullmatch(name):
            raise DomainError(
                f"identity must have 1 to 128 characters other than / + #; got {name!r:.80}."
            )
        return name


def _epsilon(path: Path, name: str, text: str) -> Fraction:
    try:
        return exact(text)
    except ValueError:
        raise DomainError(
            f'{path}: {name} must be a positive number, such as "4.0"; got {text!r:.80}.'
        ) from None


@final
@dataclass(frozen=True)
class ServerConfig:
    """A folder in which campaigns are signed, counted and closed."""

    folder: Path
    entries: dict[str, Any]

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "ServerConfig":
        """Read campaign.toml in a folder."""
        path = Path(folder).resolve() / SERVER_FILE
        entries = toml.read(path, _SERVER, ("fleet", "broker"))
        check_name(entries["fleet"], f"{path}: fleet")
        return cls(path.parent, entries)

    @classmethod
    def create(cls, folder: Path, fleet: str, broker: str) -> "ServerConfig":
        """Write a new folder, with a new key that signs campaigns."""
        check_name(fleet, "fleet")
        Broker.of(broker)
        if (folder / SERVER_FILE).exists() or (folder / SIGNER).exists():
            raise DomainError(f"{folder} has a {SERVER_FILE} or a {SIGNER} already.")
        folder.mkdir(parents=True, exist_ok=True)
        key = PrivateKey.generate()
        key.save(folder / SIGNER)
        key.public.save(folder / OPERATOR)
        entries: dict[str, Any] = {"fleet": fleet, "broker": broker, "signer": SIGNER}
        notes = {"signer": "the key that signs campaigns: vehicles hold operator.pub"}
        if broker.startswith("mqtts:"):
            entries |= {"authority": "ca.crt", "certificate": "server.crt", "key": "server.key"}
            notes |= {
                "authority": "that has signed the broker's certificate",
                "certificate": "with which counters connect to the broker",
                "identities": "count the answers of each identity that the broker admits",
            }
            entries["identities"] = True
        files.write(folder / SERVER_FILE, toml.write({"format": toml.FORMAT, **entries}, notes))
        return cls(folder.resolve(), entries)

    @property
    def broker(self) -> Broker:
        """The broker, and the keys with which to connect."""
        return _broker(self.folder, self.entries)

    def path(self, campaign: Campaign) -> Path:
        """Return the file of a signed campaign."""
        return self.folder / f"{campaign.name}{SUFFIX}"

    def sign(self, plan: Plan, job: str, round_: int, deadline: datetime) -> tuple[Campaign, str]:
        """Sign a campaign, and write it to its file.

        The same round may be signed again with the same plan, to change its deadline.
        """
        if "signer" not in self.entries:
            raise DomainError(
                f"{self.folder / SERVER_FILE}: the entry 'signer' is missing. Campaigns are signed "
                "in the folder that has the key."
            )
        check_plan(plan.to_json())
        issued = utc_now().replace(microsecond=0)
        campaign = Campaign(self.entries["fleet"], job, round_, plan.to_json(), issued, deadline)
        path = self.path(campaign)
        if path.exists() and Campaign.own(path.read_text()).plan != campaign.plan:
            raise DomainError(
                f"{path} asks for another plan. A new plan needs a new round or a new job."
            )
        text = campaign.signed(PrivateKey.load(self.folder / self.entries["signer"]))
        files.write(path, text)
        return campaign, text

    def campaigns(self) -> list[Path]:
        """Return the files of all campaigns in the folder."""
        return sorted(self.folder.glob(f"*{SUFFIX}"))


def counters(campaign: Path) -> list[Path]:
    """Return the files of the counters of a campaign that lie next to it."""
    stem = campaign.name.removesuffix(SUFFIX)
    name = re.compile(rf"{re.escape(stem)}\.[A-Za-z0-9_-]{{1,64}}\.db")
    return sorted(path for path in campaign.parent.iterdir() if name.fullmatch(path.name))


def counter_file(campaign: Path, name: str) -> Path:
    """Return the file of a counter, by the counter's name."""
    if not re.fullmatch("[A-Za-z0-9_-]{1,64}", name):
        raise DomainError(
            f"a counter must have a name of 1 to 64 letters, digits, _ or -; got {name!r:.80}."
        )
    return campaign.with_name(f"{campaign.name.removesuffix(SUFFIX)}.{name}.db")


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Be the only counter that works on a file: two would take each other's connection away."""
    with locks.lock_file(path.resolve()).open("w") as lock:
        if not locks.take(lock):
            raise DomainError(
                f"another counter works on {path}. Give each counter a name: --counter NAME."
            )
        yield


def publish(campaign: Campaign, text: str, broker: Broker) -> None:
    """Publish a campaign; the broker keeps it until the deadline."""
    with broker.connect(f"server-{secrets.token_hex(8)}") as connection:
        left = (campaign.deadline - utc_now()).total_seconds()
        connection.retain(campaign.topic, packed(text), int(left))


def withdraw(campaign: Campaign, text: str, broker: Broker) -> bool:
    """Remove a campaign from the broker; return False if another one has taken its place."""
    with broker.connect(f"server-{secrets.token_hex(8)}") as connection:
        connection.subscribe(campaign.topic)
        found = connection.receive(SILENCE)
        if found is not None and not is_same(found.payload, text):
            return False
        connection.retain(campaign.topic, b"", 0)
    return True
