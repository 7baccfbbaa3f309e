"""Findings, checks, and how the checks of a part are run."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, final

from fedldp.errors import DomainError, FedLDPError

FORMAT = "fedldp doctor 1"
OK, WARNING, PROBLEM = "ok", "warning", "problem"

# The file by which a folder is recognized, and the module with `load` and `CHECKS` of its part.
_PARTS = {
    "server.toml": "fedldp.fleet.doctor.server",
    "gateway.toml": "fedldp.fleet.doctor.gateway",
    "vault.toml": "fedldp.fleet.doctor.vault",
}


@final
@dataclass(frozen=True)
class Finding:
    """What a check has found, and what to do about it if something is wrong."""

    level: str
    said: str
    advice: str = ""
    check: str = ""  # the name of the check


def ok(said: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(OK, said)


def warning(said: str, advice: str) -> Finding:
    """Return a finding that may do harm."""
    return Finding(WARNING, said, advice)


def problem(said: str, advice: str) -> Finding:
    """Return a finding that prevents the part from working, or from being safe."""
    return Finding(PROBLEM, said, advice)


class Check(NamedTuple):
    """A check by its name: it gets the configuration of a part."""

    name: str
    look: Callable[[Any], Iterable[Finding]]


@final
@dataclass(frozen=True)
class Examined:
    """What the checks of one part have found."""

    part: str  # "server", "gateway" or "vault"
    name: str  # of its folder
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """Whether there is no problem; there may be warnings."""
        return all(finding.level != PROBLEM for finding in self.findings)

    def document(self) -> dict[str, Any]:
        """Return it as a document for JSON."""
        return {
            "format": FORMAT,
            "part": self.part,
            "name": self.name,
            "healthy": self.healthy,
            "findings": [asdict(finding) for finding in self.findings],
        }


def examine(folder: str | os.PathLike[str]) -> list[Examined]:
    """Examine each part in a folder: one part, or all parts of a fleet on this machine."""
    folder = Path(folder).resolve()
    found = [
        _examined(each, module)
        for each in (folder, *sorted(path for path in folder.iterdir() if path.is_dir()))
        for name, module in _PARTS.items()
        if (each / name).exists()
    ]
    if not found:
        raise DomainError(
            f"expected the folder of a part of a fleet, with one of the files {', '.join(_PARTS)}, "
            f"or a folder that contains such folders; got {folder}."
        )
    return found


def _examined(folder: Path, module: str) -> Examined:
    part = import_module(module)
    name = module.rpartition(".")[2]
    try:
        config = part.load(folder)
    except (FedLDPError, OSError) as error:
        wrong = Finding(PROBLEM, str(error), "Correct the file.", "configuration")
        return Examined(name, folder.name, (wrong,))
    findings = (each for check in part.CHECKS for each in _run(check, config))
    return Examined(name, folder.name, tuple(findings))


def _run(check: Check, config: Any) -> Iterator[Finding]:
    try:
        for found in check.look(config):
            yield Finding(found.level, found.said, found.advice, check.name)
    except (FedLDPError, OSError) as error:
        advice = "Run the doctor as the user of this part, and see what the error names."
        yield Finding(PROBLEM, str(error), advice, check.name)
