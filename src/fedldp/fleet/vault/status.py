"""The status of a vault, for its owner: budgets, jobs and questions, and nothing about the data."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from fedldp import __version__
from fedldp._internal.text import counted
from fedldp.budget import ledger
from fedldp.budget.ledger import Overview
from fedldp.fleet import logs
from fedldp.fleet.state import STATE
from fedldp.fleet.status import Attempts, Status, iso, life
from fedldp.fleet.vault import period, record
from fedldp.fleet.vault.period import PeriodLeft
from fedldp.fleet.vault.process import VaultConfig

_NOTHING = Overview({}, [], "")
_SHOWN = 5  # levels of budget for people; the others are summed up


def read(folder: Path) -> Status:
    """Return the status of the vault of a folder."""
    attempt = Attempts()
    config = VaultConfig.load(folder)
    state = config.folder / STATE
    running, since = life(folder, attempt)
    asked = attempt(lambda: record.load(state)) or record.empty()
    found = attempt(lambda: ledger.overview(config.ledger_path, inspect=False)) or _NOTHING
    vehicles = asked["vehicles"]
    left = found.left(config.cap, (vehicles or 0) - len(found.totals))
    limited = attempt(
        lambda: period.left(config, lambda recent: (vehicles or 0) - len(recent.totals))
    )
    jobs = _jobs(found, asked["jobs"])
    questions, unanswered = asked["questions"], asked["unanswered"]
    attention = list(attempt.troubles)
    if found.sealed:
        attention.append(f"the ledger was sealed on {found.sealed}: it refuses every vehicle.")
    if not running:
        attention.append("the vault does not run.")
    # Budgets that are spent are how things end: there is nothing to repair.
    warnings = ["no vehicle has anything left of its cap."] if left and not any(left) else []
    if limited is not None and limited.warning:
        warnings.append(limited.warning)
    return Status(
        "vault",
        folder.name,
        running,
        since,
        version=asked["version"] if running else __version__,
        details={
            "vehicles": vehicles,
            "cap": _text(config.cap),
            "answers_per_job": config.answers_per_job,
            "budget": [{"left": _text(each), "vehicles": count} for each, count in left.items()],
            "period": None if limited is None else limited.document(),
            "sealed": found.sealed or None,
            "jobs": jobs,
            "questions": questions,
            "unanswered": [each | {"time": iso(each["time"])} for each in unanswered],
        },
        rows=[
            ("vehicles", "unknown until it has run once" if vehicles is None else f"{vehicles:,}"),
            ("cap", f"{_text(config.cap)}, {counted(config.answers_per_job, 'answer')} per job"),
            *((f"{_text(each)} left", f"{count:,} vehicles") for each, count in _few(left)),
            *_of_period(limited),
            ("questions", ", ".join(f"{count:,} {name}" for name, count in questions.items())),
        ],
        table=[("job", "rounds", "answers", "questions refused")]
        + [(j["job"] or "(no job)", *(f"{j[n]:,}" for n in _COUNTS)) for j in jobs],
        warnings=warnings,
        # Not the last lines of the log, some of which are about the data.
        errors=[logs.Line(str(iso(each["time"])), "WARNING", _why(each)) for each in unanswered],
        unreadable=attempt.troubles,
        attention=attention,
        next="The vault waits for questions."
        if running
        else f"Start the vault: fedldp fleet vault {folder}",
    )


_COUNTS = ("rounds", "answers", "refused")


def _jobs(found: Overview, asked: dict[str, dict[str, int]]) -> list[dict[str, Any]]:
    """Return what the ledger says about each job, and which questions were refused since."""
    jobs = {each.job: (each.questions, each.answers) for each in found.jobs}
    for job in asked:
        jobs.setdefault(job, (0, 0))
    return [
        {
            "job": job,
            "rounds": rounds,
            "answers": answers,
            "refused": asked.get(job, {}).get(record.REFUSED, 0),
        }
        for job, (rounds, answers) in jobs.items()
    ]


def _of_period(limited: PeriodLeft | None) -> Iterator[tuple[str, str]]:
    if limited is not None:
        yield "period", f"{limited.said}; {limited.ending}"
        for each, count in _few(limited.left):
            yield f"{_text(each)} left now", f"{count:,} vehicles"


def _few(left: dict[Fraction, int]) -> list[tuple[Fraction, int]]:
    """Return the first levels of budget; the last one stands for all below it."""
    levels = list(left.items())
    if len(levels) <= _SHOWN:
        return levels
    rest = levels[_SHOWN - 1 :]
    return [*levels[: _SHOWN - 1], (rest[0][0], sum(count for _, count in rest))]


def _why(question: dict[str, Any]) -> str:
    where = "" if question["job"] is None else f"{question['job']}, round {question['round']}, "
    return f"{where}{question['outcome']}: {question['why']}"


def _text(epsilon: Fraction) -> str:
    return str(float(epsilon))
