"""A vault from its folder: the data it holds, its limits, and where it listens."""

import logging
import os
import re
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np

from fedldp._internal import toml
from fedldp._internal.validation import Floats
from fedldp.budget.ledger import Ledger
from fedldp.errors import DomainError, FedLDPError
from fedldp.fleet import logs, state
from fedldp.fleet.monitor.address import ENTRIES as MONITOR
from fedldp.fleet.sockets import Address
from fedldp.fleet.vault import identity, policy, reload
from fedldp.fleet.vault.listener import DEADLINE, TICK, Listener
from fedldp.fleet.vault.policy import Policy
from fedldp.fleet.vault.record import FILE as RECORD
from fedldp.fleet.vault.record import Record
from fedldp.fleet.vault.reload import Outcome
from fedldp.fleet.vault.vault import Vault
from fedldp.schema import frames
from fedldp.schema.frames import Chunk
from fedldp.schema.quality import DataQuality, total
from fedldp.schema.schema import Schema
from fedldp.schema.vehicle_ids import VehicleIds
from fedldp.signing import PublicKeys
from fedldp.vehicle import exact

FILE = "vault.toml"
LOG = "vault.log"  # in the state folder

_ENTRIES: dict[str, toml.Types] = {
    "data": str,  # a CSV or Parquet file, or the name of a data set
    "schema": str,  # of a file
    "vehicle": str,  # the column of a file with the id of each row's vehicle
    "rows": int,  # of a data set: use at most this many
    "holdout": float,  # of a data set: the share that is not used
    "part": str,  # of a data set: "2/3" is the second of three
    "cap": str,
    "answers_per_job": int,
    "epsilon": str,  # vehicles answer only plans with this epsilon
    "epsilons": str,  # or the column of a file with the epsilon of each vehicle
    "ledger": str,
    "listen": str,
    "token": str,
    "tick": (int, float),
    "deadline": (int, float),
    "operator": str,  # the file with the public key, or keys, one of which has signed every job
    **policy.ENTRIES,
}
_NEEDED = ("data", "cap", "listen")

_Data = tuple[Schema, Floats, list[str]]  # the matrix and the vehicle_ids have one entry per row

_log = logging.getLogger("fedldp.fleet")


@final
@dataclass(frozen=True)
class VaultConfig:
    """The configuration of a vault, read from its folder. Paths are relative to the folder."""

    folder: Path
    entries: dict[str, Any]
    cap: Fraction
    answers_per_job: int = 1
    policy: Policy = field(default_factory=Policy)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "VaultConfig":
        """Read the file vault.toml in a folder."""
        path = Path(folder).resolve() / FILE
        entries = toml.read(path, _ENTRIES | MONITOR, _NEEDED)
        try:
            cap = exact(entries["cap"])
        except ValueError:
            raise DomainError(
                f'{path}: cap must be a positive number, such as "4.0"; got {entries["cap"]!r}.'
            ) from None
        answers = entries.get("answers_per_job", cls.answers_per_job)
        if answers < 1:
            raise DomainError(f"{path}: answers_per_job must be at least 1; got {answers}.")
        try:
            return cls(path.parent, entries, cap, answers, Policy.of(entries))
        except DomainError as error:
            raise DomainError(f"{path}: {error}") from None

    @property
    def address(self) -> Address:
        """Where the vault listens."""
        listen, token = self.entries["listen"], self.entries.get("token")
        if not listen.startswith("tcp://"):
            listen = str(self.folder / listen)
        return Address.of(listen, token and self.folder / token)

    @property
    def ledger_path(self) -> Path:
        """The file of the ledger."""
        return self.folder / str(self.entries.get("ledger", "ledger.db"))

    def ledger(self) -> Ledger:
        """Open the ledger."""
        return Ledger(
            self.ledger_path,
            self.cap,
            answers_per_job=self.answers_per_job,
            period=self.policy.period,
        )

    def operator(self) -> PublicKeys | None:
        """Read the operator's public key, if vault.toml names it, or both while it changes."""
        name = self.entries.get("operator")
        if name is None:
            return None
        try:
            return PublicKeys.load(self.folder / name)
        except FedLDPError as error:
            raise DomainError(f"{self.folder / FILE}: operator: {error}") from None

    def check(self) -> DataQuality:
        """Read the data, and return what the vault would clip or replace in them."""
        return self.read()[1]

    def look(self) -> tuple[set[str], DataQuality]:
        """Read the data, and return the ids of their vehicles, and what `check` returns."""
        (_, _, vehicle_ids), quality = self.read()
        return set(vehicle_ids), quality

    def run(self, *, strict: bool = False) -> None:
        """Answer questions until SIGTERM or Ctrl-C; read the data again on SIGHUP.

        The vault's own log says once how many values are clipped or replaced in the data; with
        `strict`, the vault refuses to start with such data.
        """
        folder = self.folder / state.STATE
        with state.hold(folder), logs.to_file(folder / LOG):
            asked = threading.Event()  # from now on, so that no SIGHUP ends a vault that starts
            signal.signal(signal.SIGHUP, lambda *_: asked.set())
            data, quality = self.read()
            if strict:
                quality.refuse()
            self._log_quality(quality)
            self._serve(data, asked, strict)

    def _log_quality(self, quality: DataQuality) -> None:
        """Log the counts, but no values: logs are kept and passed on to others."""
        if self.is_data_set:
            lines = [quality.clipping] if quality.clipping else []
        else:
            lines = [] if quality.clean else quality.summary(examples=False).splitlines()
        for line in lines:
            _log.warning("%s: %s", self.entries["data"], line.strip())

    def _serve(self, data: _Data, asked: threading.Event, strict: bool) -> None:
        with self.ledger() as ledger, Record(self.folder / state.STATE / RECORD) as record:
            self._log_identity(data, ledger)
            listener = Listener(
                self._vault(data, ledger),
                self.address,
                float(self.entries.get("tick", TICK)),
                float(self.entries.get("deadline", DEADLINE)),
                record,
            )
            _log.info("The vault answers for %d vehicles.", len(listener.vault))
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: listener.close())

            attended = reload.has_terminal()

            def reload_when_asked() -> None:
                while asked.wait():
                    asked.clear()
                    if attended and not reload.has_terminal():  # its window was closed
                        os.kill(os.getpid(), signal.SIGTERM)
                    else:
                        self.reload(listener, data[0], ledger, strict=strict)

            threading.Thread(target=reload_when_asked, daemon=True).start()
            listener.serve()

    def _vault(self, data: _Data, ledger: Ledger) -> Vault:
        schema, matrix, names = data
        epsilons = self.epsilons(len(names))
        try:
            return Vault(
                schema,
                matrix,
                names,
                ledger,
                epsilons=epsilons,
                policy=self.policy,
                operator=self.operator(),
            )
        except DomainError as error:
            raise DomainError(f"{self.folder / FILE}: {error}") from None

    def reload(
        self, listener: Listener, schema: Schema, ledger: Ledger, *, strict: bool = False
    ) -> None:
        """Read the data again and use them from now on, or log why not.

        Vehicles keep their budgets, because the vehicle column identifies them. Without this
        column no data are reloaded. If the file cannot be read, or the schema has changed, the
        vault keeps the data that it has. vault.toml is not read again, but the operator's public
        key is, before the data: the old one may have been stolen.
        """
        stays = "the data were not reloaded, the old ones stay"
        try:
            operator = self.operator()
            if operator is not None:
                listener.vault.trust(operator)
                stays = f"the operator's key was read again, but {stays}"
            data, quality = self._reloaded(schema)
            if strict:
                quality.refuse()
            before, after = listener.replace(lambda: self._vault(data, ledger))
        except (FedLDPError, OSError) as error:
            outcome = Outcome(False, f"{stays}: {error}")
            _log.warning("%s", outcome.said)
        else:
            self._log_quality(quality)
            held, new = set(before.vehicle_ids), set(after.vehicle_ids)
            outcome = Outcome(
                True,
                f"read {self.entries['data']} again: {len(new):,} vehicles, "
                f"{len(new - held):,} new, {len(held - new):,} no longer there.",
            )
            _log.info("%s", outcome.said)
            self._log_identity(data, ledger)
        outcome.save(self.folder)

    def _reloaded(self, schema: Schema) -> tuple[_Data, DataQuality]:
        """Return the data as they are now; raise an error if vehicles could change places."""
        if "vehicle" not in self.entries:
            raise DomainError(
                f"{self.folder / FILE} has no entry `vehicle`, the column with the id of each "
                "row's vehicle. Without it a vehicle is the number of its row, and a row that is "
                "inserted would give the budget of each vehicle below it to another one."
            )
        data, quality = self.read()
        if data[0] != schema:
            raise DomainError(
                f"{self.entries['schema']} has changed. Restart the vault if that is intended."
            )
        return data, quality

    def _log_identity(self, data: _Data, ledger: Ledger) -> None:
        """Warn the owner if vehicles may have the budgets of others."""
        _, matrix, names = data
        known = ledger.totals()
        found = [identity.unknown_vehicles(known, names)]
        if "vehicle" not in self.entries and not self.is_data_set:
            state_folder = self.folder / state.STATE
            found.append(identity.moved_rows(state_folder, matrix, answered=bool(known)))
        for text in filter(None, found):
            _log.warning("%s: %s", self.entries["data"], text)

    def read(self) -> tuple[_Data, DataQuality]:
        """Read the data, and count what would be clipped or replaced in them."""
        data = self.entries["data"]
        if self.is_data_set:
            return self._data_set(data)
        path = self.folder / data
        if not path.exists():
            raise FileNotFoundError(
                f"{path} does not exist: put the data of the vehicles there, or name another file "
                f"as `data` in {FILE}."
            )
        return self._file(path)

    @cached_property
    def is_data_set(self) -> bool:
        """Whether the data are a registered data set; the data of real vehicles are a file."""
        if "schema" in self.entries:
            return False
        from fedldp import datasets  # not needed on a vehicle

        if self.entries["data"] in datasets.names():
            return True
        raise DomainError(
            f"{self.folder / FILE}: data must be a file, with a schema, or one of "
            f"{', '.join(datasets.names())}; got {self.entries['data']!r} without a schema."
        )

    def schema(self) -> Schema:
        """Return the schema of the file with the data."""
        return Schema.from_toml((self.folder / self.entries["schema"]).read_text("utf-8"))

    def epsilons(self, rows: int) -> list[Fraction] | None:
        """Return the epsilon that the vehicle of each row has chosen; None if none has."""
        everyones, column = self.entries.get("epsilon"), self.entries.get("epsilons")
        if everyones is not None and column is not None:
            raise DomainError(
                f"{self.folder / FILE}: expected either `epsilon`, for all vehicles, or "
                "`epsilons`, the column with the epsilon of each vehicle; got both."
            )
        if column is None:
            return None if everyones is None else [self._chosen(everyones)] * rows
        data = self.entries["data"]
        if self.is_data_set:
            raise DomainError(
                f"{self.folder / FILE}: epsilons must be a column of a file; the data are the data "
                f"set {data}. Use `epsilon`."
            )
        owners, cells = _Owners(self.entries.get("vehicle")), list[Any]()
        for chunk in self._chunks(self.folder / data):
            owners.add(chunk)
            table = frames.table(chunk.data)
            if column not in table.names:
                raise DomainError(
                    f"{self.folder / FILE}: epsilons must be a column of the file, one of "
                    f"{list(table.names)!r:.500}; got {column!r}."
                )
            cells += table.cells(column, 0, len(table))
        used, names = owners.used()
        texts = ["" if frames.is_missing(cells[row]) else str(cells[row]).strip() for row in used]
        # A row without an epsilon has that of the vehicle's other rows; without any, it fits no
        # plan.
        of_vehicle = {name: text for name, text in zip(names, texts, strict=True) if text}
        known = {text: self._chosen(text) for text in set(of_vehicle.values()) | set(texts) - {""}}
        pairs = zip(names, texts, strict=True)
        return [known.get(text or of_vehicle.get(name, ""), Fraction()) for name, text in pairs]

    def _chosen(self, text: str) -> Fraction:
        """Return the epsilon of a vehicle, which its cap must cover."""
        try:
            found = exact(text)
        except ValueError:
            found = Fraction()
        if not 0 < found <= self.cap:
            raise DomainError(
                f"{self.folder / FILE}: the epsilon of a vehicle must be a positive number up to "
                f"its cap of {float(self.cap):g}; got {text!r:.80}."
            )
        return found

    def _data_set(self, name: str) -> tuple[_Data, DataQuality]:
        """Return a part of a data set: each row is a vehicle, whose id is the row number."""
        from fedldp import datasets

        data = datasets.load(name, rows=self.entries.get("rows"))
        if "holdout" in self.entries:
            data, _ = data.split(self.entries["holdout"])
        number, count = self._part()
        vehicles = np.arange(number - 1, len(data), count)
        part = data.take(vehicles)
        ids = vehicles if part.vehicle_ids is None else part.vehicle_ids
        names = [str(each) for each in ids.tolist()]
        return (part.schema, part.matrix(), names), part.quality

    def _part(self) -> tuple[int, int]:
        text = self.entries.get("part", "1/1")
        found = re.fullmatch(r"([1-9]\d{0,5})/([1-9]\d{0,5})", text)
        if not found or int(found[1]) > int(found[2]):
            raise DomainError(
                f'{self.folder / FILE}: part must be like "2/3", the second of three parts; '
                f"got {text!r}."
            )
        return int(found[1]), int(found[2])

    def _file(self, path: Path) -> tuple[_Data, DataQuality]:
        """Return the rows of a file, with NaN for missing and unknown values."""
        schema = self.schema()
        column = self.entries.get("vehicle")
        matrices: list[Floats] = []
        qualities: list[DataQuality] = []
        owners = _Owners(column)
        for chunk in self._chunks(path):
            matrix, quality = schema.rows(chunk.data, chunk.first_row).read()
            matrices.append(matrix)
            qualities.append(quality.with_malformed(chunk.malformed))
            owners.add(chunk)
        used, names = owners.used()
        if not used:
            known = " of a known vehicle" if sum(map(len, matrices)) else ""
            raise DomainError(f"{path} has no rows{known}.")
        matrix = np.concatenate(matrices)
        quality = replace(total(qualities), left_out=len(matrix) - len(used))
        return (schema, matrix[used], names), quality.using(column, self.entries.get("epsilons"))

    def _chunks(self, path: Path) -> Iterator[Chunk]:
        """Read a file: a line that is malformed affects no vehicle but its own."""
        return frames.read(path, tolerant=True, vehicle=self.entries.get("vehicle"))


@final
class _Owners:
    """Which rows of a file are used, and the vehicle of each.

    A row is left out if its vehicle is unknown. So is a malformed one if its vehicle has others, as
    a cell that was shifted may name another vehicle.
    """

    def __init__(self, column: str | None) -> None:
        self._column, self._ids = column, VehicleIds(column, tolerant=True)
        self._malformed: set[int] = set()
        self._rows = 0

    def add(self, chunk: Chunk) -> None:
        """Add the rows of a chunk, in order."""
        self._ids.add(chunk.data, chunk.first_row)
        self._malformed |= chunk.malformed.keys()
        self._rows += len(frames.table(chunk.data))

    def used(self) -> tuple[list[int], list[str]]:
        """Return the numbers of the rows that are used, and the ids of their vehicles."""
        if self._column is None:
            return list(range(self._rows)), [str(row) for row in range(self._rows)]
        names = self._ids.names()
        sound = {name for row, name in enumerate(names) if row not in self._malformed}
        used = [
            row
            for row, name in enumerate(names)
            if name and (row not in self._malformed or name not in sound)
        ]
        return used, [names[row] for row in used]
