"""`fedldp demo --fleet`: a whole fleet on this machine, in real processes, over TLS."""

import contextlib
import csv
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, final

import click
from rich.table import Table

from fedldp import datasets
from fedldp.budget import ledger as ledgers
from fedldp.cli.app import fedldp
from fedldp.cli.plans import console
from fedldp.cli.runs import TASKS, base_rate, shown_error
from fedldp.cli.status import Status
from fedldp.datasets import Dataset
from fedldp.errors import DomainError
from fedldp.learn.model import Model
from fedldp_fleet.agent import service
from fedldp_fleet.engine import NOTHING
from fedldp_fleet.jobs import rounds_of
from fedldp_fleet.server.folder import OPERATOR_KEY, ServerFolder
from fedldp_fleet.server.work import ENDING, JobFile
from fedldp_fleet.store.base import DONE, FAILED, RUNNING, JobRow

AGENTS = 3
ROWS = 60_000
JOB, TARGET, TASK, EPSILON, CAP = "flights", "late", "logistic", 4.0, 8.0
ROUNDS = 10

_HOLDOUT = 0.1
_HOST = "127.0.0.1"
_TICK_SECONDS = 0.05
_ANSWER_SECONDS, _ROUND_SECONDS = 5.0, 10.0
_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 300.0  # without anything new
_STOP_SECONDS = 20.0
_TAIL_LINES = 12


def run_demo(rows: int | None, *, page: bool, output: Path | None, as_json: bool) -> None:
    """Run a server and agents until a training is done, and show what came of it."""
    folder = Path(tempfile.mkdtemp(prefix="fedldp-")) if output is None else output
    if output is not None and output.exists():
        raise DomainError(f"expected a new folder; {output} exists. Choose another name.")
    folder.mkdir(parents=True, exist_ok=True)
    status, began = Status(), time.monotonic()
    demo = _Demo(folder, status)
    with demo.stopping():
        with status:
            document = demo.run(rows or ROWS)
        document["seconds"] = time.monotonic() - began
        if as_json:
            click.echo(json.dumps(document, indent=2))
        else:
            console().print(_render(document))
        if page:
            with contextlib.suppress(KeyboardInterrupt):
                status.note("The live page stays until Ctrl-C.")
                threading.Event().wait()
    if output is None:
        shutil.rmtree(folder)


@final
class _Demo:
    """The folders, commands and processes of one run. If it fails, its folder stays."""

    def __init__(self, folder: Path, status: Status) -> None:
        self._folder, self._status = folder, status
        self._server = folder / "server"
        self._agents = [folder / f"agent-{number}" for number in range(1, AGENTS + 1)]
        self._processes: dict[Path, subprocess.Popen[bytes]] = {}

    def run(self, rows: int) -> dict[str, Any]:
        """Run all but the server to the end: the live page stays."""
        self._status.stage("Reading the flights")
        flights = datasets.load("flights", rows=rows)
        fleet, public = flights.split(_HOLDOUT)
        shares = [fleet.take(slice(start, None, AGENTS)) for start in range(AGENTS)]
        address, page_address = (f"{_HOST}:{port}" for port in _free_ports(2))
        self._make_server(address, page_address)
        for agent, share in zip(self._agents, shares, strict=True):
            self._make_agent(agent, share, f"https://{address}")
        self._add_job(flights, len(fleet))
        self._wait_for(lambda: self._look()[0].state == RUNNING, "the server opens the job")
        for agent in self._agents:
            self._start("agent", agent)
        self._status.note(f"The live page is http://{page_address}/")
        row = self._finished()
        self._stop(self._agents)  # their ledgers are read
        model = Model.from_json(row.result)
        return {
            "job": JOB,
            "vehicles": len(fleet),
            "agents": AGENTS,
            "epsilon": EPSILON,
            "ended": row.reason,
            "answers": self._answers(),
            "error": float(model.checked_errors(public.frame())[0].mean()),
            "base_rate": base_rate(public, TASKS[TASK]),
            "target": TARGET,
            "ledgers": self._spent(),
        }

    # What an operator and the owners type

    def _make_server(self, address: str, page: str) -> None:
        self._status.stage("Making the folder of the server: keys, certificate, store")
        where = "--host", _HOST, "--listen", address, "--page", page
        self._command("server", "init", self._server, *where)
        self._start("server", self._server)
        self._wait_for(lambda: _answers_at(address), "the server starts")

    def _make_agent(self, agent: Path, share: Dataset, url: str) -> None:
        self._status.stage(f"{agent.name} joins, with {len(share):,} vehicles")
        agent.mkdir()
        data, schema = agent / "rows.csv", agent / "schema.toml"
        _write_csv(share, data, agent.name)
        schema.write_text(share.schema.to_toml(), "utf-8")
        operator = self._server / "operator.pub"
        what = "--data", data, "--schema", schema, "--vehicle", "vehicle"
        self._command("agent", "init", agent, "--cap", f"{CAP:g}", "--operator", operator, *what)
        with (agent / service.FILE).open("a", encoding="utf-8") as settings:
            settings.write(f"tick = {_TICK_SECONDS}\n")
        name, vehicles = agent.name, ("--vehicles", len(share))
        code = self._command("server", "enroll", self._server, name, *vehicles).strip()
        self._command("agent", "join", agent, url, code, "--ca", self._server / "ca.pem")

    def _add_job(self, flights: Dataset, vehicles: int) -> None:
        self._status.stage("The operator signs the job, and adds it")
        schema = self._folder / "flights.toml"
        schema.write_text(flights.schema.to_toml(), "utf-8")
        file = self._folder / f"{JOB}{ENDING}"
        what = "--schema", schema, "--target", TARGET, "--task", TASK, "--epsilon", EPSILON
        how = "--vehicles", vehicles, "--rounds", ROUNDS
        when = "--answer-seconds", _ANSWER_SECONDS, "--round-seconds", _ROUND_SECONDS
        who = "--server", self._server / "server.pub", "--key", self._server / OPERATOR_KEY
        self._command("server", "job", "training", JOB, *what, *how, *when, *who, "-o", file)
        self._command("server", "job", "add", self._server, file)

    def _command(self, *words: object) -> str:
        """Run a command of fedldp in this process, and show it."""
        texts = [str(word) for word in words]
        self._status.note(f"$ fedldp {' '.join(texts).replace(f'{self._folder}/', '')}")
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            fedldp.main(texts, prog_name="fedldp", standalone_mode=False)
        return said.getvalue()

    # Processes

    def _start(self, kind: str, folder: Path) -> None:
        self._status.note(f"$ fedldp {kind} run {folder.name}")
        command = [sys.executable, "-m", "fedldp", kind, "run", str(folder)]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        with (folder / "log").open("wb") as log:
            self._processes[folder] = subprocess.Popen(  # noqa: S603 (our own command)
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )

    @contextlib.contextmanager
    def stopping(self) -> Iterator[None]:
        """Stop all processes in the end."""
        try:
            yield
        finally:
            self._stop([*self._processes])

    def _stop(self, folders: list[Path]) -> None:
        self._status.stage(f"Stopping {', '.join(folder.name for folder in folders)}")
        stopping = [self._processes.pop(folder) for folder in folders]
        for process in stopping:
            process.terminate()
        for process in stopping:
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _wait_for(self, holds: Callable[[], object], what: str) -> None:
        until = time.monotonic() + _PATIENCE_SECONDS
        while not holds():
            self._check_processes()
            if time.monotonic() > until:
                raise DomainError(f"expected that {what}; it has not. See {self._folder}.")
            time.sleep(_POLL_SECONDS)

    def _check_processes(self) -> None:
        for folder, process in self._processes.items():
            if process.poll() is not None:
                lines = (folder / "log").read_text("utf-8", "replace").splitlines()[-_TAIL_LINES:]
                ended = f"{folder.name} has ended with status {process.returncode}"
                raise DomainError("\n".join([f"{ended}. The end of {folder / 'log'}:", *lines]))

    # The job

    def _finished(self) -> JobRow:
        """Wait until the job has ended, and show its rounds."""
        self._status.stage("Agents call in, and are asked round by round")
        job = JobFile.load(self._folder / f"{JOB}{ENDING}").job
        shown, changed = (0, 0), time.monotonic()
        while True:
            row, counts = self._look()
            now = row.round, sum(counts)
            for number in range(shown[0] + 1, row.round + (row.state in (DONE, FAILED))):
                of_round = f"{counts[number - 1]:,} answers"
                self._status.note(f"Round {number} of {rounds_of(job)} is done: {of_round}")
            if row.state == FAILED:
                raise DomainError(f"the job has failed: {row.reason or NOTHING}.")
            if row.state == DONE:
                return row
            if now != shown:
                changed = time.monotonic()
                shown = max(shown[0], row.round - 1), now[1]
            self._status.update(f"Round {row.round} of {rounds_of(job)}: {sum(counts):,} answers")
            self._check_processes()
            if time.monotonic() - changed > _PATIENCE_SECONDS:
                raise DomainError(f"the job makes no progress. See the logs in {self._folder}.")
            time.sleep(_POLL_SECONDS)

    def _look(self) -> tuple[JobRow, list[int]]:
        opened = contextlib.closing(ServerFolder.load(self._server).store())
        with opened as store, store.reading() as inside:
            row = inside.job(JOB)
            counts = [each.answers for each in inside.rounds(JOB)]
        if row is None:
            raise DomainError(f"the server has lost the job {JOB!r}.")
        return row, counts

    def _answers(self) -> int:
        return sum(self._look()[1])

    def _spent(self) -> dict[str, Any]:
        """Return what the ledgers prove: who answered twice, or spent more than the cap."""
        answers, most = Counter[tuple[str, str]](), Fraction()
        for agent in self._agents:
            with ledgers.Ledger(agent / service.LEDGER, CAP) as ledger:
                answers.update((line.vehicle_id, line.job) for line in ledger.history())
                most = max([most, *ledger.totals().values()])
        return {
            "answers": answers.total(),
            "answered_twice": sum(count > 1 for count in answers.values()),
            "most_spent": float(most),
        }


def _write_csv(share: Dataset, path: Path, agent: str) -> None:
    names = list(share.schema)
    frame = share.frame(names)
    columns = [list(frame[name]) for name in names]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["vehicle", *names])
        for number, cells in enumerate(zip(*columns, strict=True)):
            writer.writerow([f"{agent}-flight-{number}", *cells])


def _free_ports(count: int) -> Sequence[int]:
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in found:
            each.bind((_HOST, 0))
        return [each.getsockname()[1] for each in found]


def _answers_at(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port))):
        return True
    return False


def _render(document: dict[str, Any]) -> Table:
    target = datasets.load("flights", rows=1).schema[TARGET]
    spent = document["ledgers"]
    rendered = Table(title="A fleet on this machine", show_header=False)
    rendered.add_column(no_wrap=True)
    rendered.add_column(overflow="fold")
    for name, value in (
        ("error on the hold-out", shown_error(document["error"], target)),
        ("majority baseline", shown_error(document["base_rate"], target)),
        ("vehicles", f"{document['vehicles']:,}, of {document['agents']} agents"),
        ("epsilon of a vehicle", f"{document['epsilon']:g}"),
        ("answers counted", f"{document['answers']:,}: {document['ended']}"),
        ("answers in the ledgers", f"{spent['answers']:,}"),
        ("vehicles that answered twice", f"{spent['answered_twice']:,}"),
        ("most that a vehicle spent", f"{spent['most_spent']:g}, of a cap of {CAP:g}"),
        ("seconds", f"{document['seconds']:.0f}"),
    ):
        rendered.add_row(name, value)
    return rendered
