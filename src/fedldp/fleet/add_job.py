"""A further job for a server: files of its own, beside those of the job before."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from fedldp._internal import toml
from fedldp.budget.calendars import CalendarPeriod
from fedldp.errors import DomainError
from fedldp.fleet import folder as fleet_folder
from fedldp.fleet import signing, texts
from fedldp.fleet.folder import Work
from fedldp.fleet.job import Job
from fedldp.fleet.server import admission, checkpoint
from fedldp.fleet.server import process as server_process
from fedldp.fleet.server.process import ServerConfig
from fedldp.learn.networks import Architecture
from fedldp.learn.settings import Settings
from fedldp.schema.schema import Schema
from fedldp.storage import files

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")  # of a job, which begins names of files
_SETTINGS = Settings(1.0)  # for what they are by default


def columns(job: Job) -> Schema:
    """Return the columns that a job is about: of a statistic, or of a model and its target."""
    if job.model is None:
        return job.plan.schema
    return Schema((*job.model.schema.attributes, job.model.target))


def same_work(job: Job, name: str, rounds: int | None, vehicles: int | None) -> Work:
    """Return what a job asks, under another name, and with other numbers if they are given."""
    if job.period is not None:
        raise DomainError(
            "all periods of a calendar ask the same: leave --epsilon, --rounds and --vehicles out. "
            "To ask something else, beside the calendar, give --task statistics."
        )
    asked = job.plan.schema if job.model is None else job.model.schema
    before = sum(stage.rounds for stage in job.stages[:-1])
    return _counted(
        Work(name, asked, job.model, 0, rounds or job.rounds - before, {}), job, vehicles
    )


def other_work(
    job: Job,
    name: str,
    rounds: int,
    vehicles: int | None,
    target: str | None,
    objective: str | None,
    network: Architecture,
) -> Work:
    """Return another task about the columns of a job; without an objective, a statistic."""
    work = Work.on_files("", columns(job), target, objective, 0, rounds, {}, name, network)
    return _counted(work, job, vehicles)


def _counted(work: Work, job: Job, vehicles: int | None) -> Work:
    """Return the work with a number of vehicles behind each gateway, or as many as a job had."""
    if vehicles is not None:
        return replace(work, vehicles=vehicles)
    return replace(work, vehicles=-(-job.expected // job.gateways), total=job.expected)


def settings_of(job: Job, epsilon: float | None) -> Settings:
    """Return the settings of a job that the next one takes over, with another epsilon if given."""
    made = replace(_SETTINGS, epsilon=job.plan.epsilon if epsilon is None else epsilon)
    if job.model is None:
        return made
    share = job.gateways * job.survey_reports / job.expected or made.survey_share
    return replace(made, survey=job.survey, survey_share=share)


def add_job(
    server: ServerConfig,
    name: str,
    work: Work | None,
    settings: Settings,
    period: int | None = None,
) -> Job:
    """Write the files of a further job, and have the server run it from its next start on.

    Without `work`, the job asks exactly what the job before asked, with its plan and its recipe; of
    a calendar, it asks this period, or the next one. If the jobs of this server are signed, the
    operator must sign it before the next start.
    """
    before, path = Job.load(server.job, signed=False), server.folder / f"{name}.toml"
    _check(server, before, name, path)
    known = len(admission.gateways(server.gateways)) or before.gateways
    if work is None:
        files.write(path, _renamed(server.job, name, before, known, period))
    else:
        fleet_folder.write_job(server.folder, work, settings, known, name)
    try:
        job = Job.load(path, signed=False)
    except DomainError:
        path.unlink()
        raise
    _set(server.folder / server_process.FILE, job=path.name)
    texts.write_server(server.folder)
    return job


def _check(server: ServerConfig, before: Job, name: str, path: Path) -> None:
    if not _NAME.fullmatch(name):
        raise DomainError(
            "the name of a job must be 1 to 64 letters, digits or any of . _ -, and not begin with "
            f"a dot; got {name!r:.80}."
        )
    if name == before.name or path.exists():
        raise DomainError(
            f"a job or a file of the name {name!r} exists already. Vehicles answer each name once: "
            "choose another."
        )
    found = checkpoint.status(before.checkpoint)
    if found is not None and not found.ended:
        raise DomainError(
            f"the job {before.name!r} has begun and is not done: {found.rounds} of "
            f"{before.rounds} rounds. What vehicles have spent for it would be lost. Run the "
            f"server until it is done: fedldp fleet server {server.folder}"
        )


def _renamed(path: Path, name: str, job: Job, gateways: int, period: int | None) -> str:
    """Return the file of a job with another name, other files to write, and today's gateways."""
    if job.period is None and period is not None:
        raise DomainError(f"the job {job.name!r} does not follow a calendar: leave --period out.")
    what = "tally" if job.model is None else "model"
    new: dict[str, str | int] = {"job": name, "checkpoint": f"state/{name}.db"}
    new["result"] = f"state/{name}.{what}.json"
    text = path.read_text("utf-8")
    entries = toml.parse(text, str(path))
    if "gateways" in entries and gateways != job.gateways:
        new["gateways"] = gateways
        if "planned" in entries:  # as many behind each gateway as before
            new["planned"] = -(-job.expected // job.gateways) * gateways
    if job.period is not None:
        new["period"] = _next_period(job.period) if period is None else period
    if "signed" in entries:
        new["signed"] = f"{name}{signing.ENDING}"
    return _changed(text, new)


def _next_period(period: CalendarPeriod) -> int:
    if period.number == period.calendar.periods:
        raise DomainError(
            f"period {period.number} was the last of the calendar. Choose an earlier one that was "
            "left out with --period, or start a new calendar with fedldp fleet init."
        )
    return period.number + 1


def _set(path: Path, **entries: str) -> None:
    files.write(path, _changed(path.read_text("utf-8"), entries))


def _changed(text: str, entries: Mapping[str, str | int]) -> str:
    """Return a text in TOML with other values for some entries; comments stay.

    >>> _changed('job = "a"  # its name', {"job": "b"})
    'job = "b"  # its name'
    """
    for name, value in entries.items():
        line = toml.write({name: value}).rstrip("\n")
        pattern = rf"""(?m)^{name}\s*=\s*("[^"\n]*"|'[^'\n]*'|\d+)"""
        text, count = re.subn(pattern, line.replace("\\", r"\\"), text)
        if count != 1:
            raise DomainError(f"expected one line `{name} = ...` in the file; got {count}.")
    return text
