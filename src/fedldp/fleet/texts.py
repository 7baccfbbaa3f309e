"""The READMEs of a fleet, its units for systemd and its alerts, written from its configuration.

Each text says only what is true of this fleet: of its task, of where its data come from, and of the
names of its files.
"""

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from string import Template

from fedldp import __version__
from fedldp._internal import toml
from fedldp._internal.text import counted
from fedldp.fleet.gateway import process as gateway_process
from fedldp.fleet.job import Job
from fedldp.fleet.server.process import ServerConfig
from fedldp.fleet.vault.process import VaultConfig

README = "README.md"

_TEMPLATES = resources.files(__package__) / "templates"


def write_fleet(folder: Path, server: str, front: str) -> None:
    """Write the README of a fleet, those of all its parts, units for systemd, and alert rules.

    Gateways reach the server at the address `server`; it listens at `front`.
    """
    vaults = sorted(folder.glob("vault-*"), key=_number)
    known = _of_vault(VaultConfig.load(vaults[0]), Path(vaults[0].name))
    known |= _of_job(ServerConfig.load(folder / "server"), at="server/")
    _write(folder / README, "fleet", known | {"server": server, **_more(vaults)})
    write_server(folder / "server")
    for vault in vaults:
        write_vault(vault)
        write_gateway(vault.with_name(vault.name.replace("vault", "gateway", 1)))
    (folder / "systemd").mkdir()
    for file in (_TEMPLATES / "systemd").iterdir():
        text = Template(file.read_text("utf-8")).substitute(front=front)
        for name in _units(file.name):
            (folder / "systemd" / name).write_text(text, "utf-8")
    (folder / "prometheus").mkdir()
    for file in (_TEMPLATES / "prometheus").iterdir():
        (folder / "prometheus" / file.name).write_bytes(file.read_bytes())


def _units(name: str) -> list[str]:
    """Return the names of a unit: a monitor has one for each kind of part, which is its user.

    >>> _units("fedldp-vault@.service")
    ['fedldp-vault@.service']
    >>> _units("fedldp-monitor@.service")[0]
    'fedldp-monitor-server@.service'
    """
    monitor = "fedldp-monitor"
    if not name.startswith(f"{monitor}@"):
        return [name]
    parts = ("server", "gateway", "vault")
    return [name.replace(monitor, f"{monitor}-{part}") for part in parts]


def write_server(folder: Path) -> None:
    """Write the README of a server."""
    server = ServerConfig.load(folder)
    _write(folder / README, "server", _of_job(server, at="") | {"port": str(server.port)})


def write_gateway(folder: Path) -> None:
    """Write the README of a gateway."""
    # Its vaults' sockets are not looked at: `fleet init` writes into a folder with a longer path.
    path = folder / gateway_process.FILE
    server = toml.parse(path.read_text("utf-8"), str(path))["server"]
    _write(folder / README, "gateway", {"name": folder.name, "server": server})


def write_vault(folder: Path) -> None:
    """Write the README of a vault."""
    known = _of_vault(VaultConfig.load(folder), Path())
    _write(folder / README, "vault", known | {"name": folder.name})


def _of_job(server: ServerConfig, at: str) -> dict[str, str]:
    """Return what the texts say about a job; paths begin with `at`."""
    job = Job.load(server.job, signed=False)  # whether or not it is signed already
    entries = toml.parse(server.job.read_text("utf-8"), str(server.job))
    known = {
        "at": at,
        "job": job.name,
        "job_file": server.job.name,
        "epsilon": f"{job.plan.epsilon:g}",
        "result_file": job.result.name,
        "plan_file": entries["plan"],
        "model_file": f", `{entries['model']}`" if "model" in entries else "",
    }
    if job.model is None:
        known["columns"] = _listed(job.plan.schema.names)
        made = {"makes": "writes the tally"}
        if job.period is None:
            purpose = (
                f"It collects statistics of {known['columns']}, with error bars. The job "
                f"`{job.name}` asks {job.expected:,} vehicles, in one round."
            )
            return known | made | {"purpose": purpose, "result": _filled("statistics", known)}
        calendar = job.period.calendar
        known |= {"period": str(job.period.number), "periods": str(calendar.periods)}
        purpose = (
            f"It collects statistics of {known['columns']} again and again, with error bars: in "
            f"{counted(calendar.periods, 'period')}, such as days. Each vehicle answers in "
            f"{calendar.answers} of them, which it draws before it sees any data, and spends "
            f"{float(calendar.epsilon):g} in all. Each period is a job of its own; `{job.name}` "
            f"asks for period {job.period.number}."
        )
        return known | made | {"purpose": purpose, "result": _filled("periods", known)}
    known |= {"columns": _listed(job.model.schema.names), "target": job.model.target.name}
    kind = "a linear model" if job.model.layers is None else "a network"
    first = ", the first of which ask about numbers only" if len(job.stages) > 1 else ""
    purpose = (
        f"It trains {kind} ({job.model.objective}) that predicts `{known['target']}` from "
        f"{known['columns']}. The job `{job.name}` asks {job.expected:,} vehicles, in at most "
        f"{counted(job.rounds, 'round')}{first}."
    )
    made = {"makes": "improves the model", "result": _filled("training", known)}
    return known | made | {"purpose": purpose}


def _of_vault(vault: VaultConfig, at: Path) -> dict[str, str]:
    """Return what the texts say about a vault and its data, seen from a folder above: `at`."""
    data = vault.entries["data"]
    kind = "a-set" if vault.is_data_set else "vehicles" if "vehicle" in vault.entries else "rows"
    known = {
        "vault": str(at),
        "vault_name": vault.folder.name,
        "data_file": data if vault.is_data_set else str(at / data),
        "vehicle": str(vault.entries.get("vehicle", "")),
        "columns": "" if vault.is_data_set else _listed(vault.schema().names),
        "cap": f"{float(vault.cap):g}",
        "socket": _socket(vault),
        "answers": "once" if vault.answers_per_job == 1 else f"{vault.answers_per_job} times",
    }
    texts = {"data": f"data-of-{kind}", "vehicles": f"add-to-{kind}"}
    return known | {name: _filled(template, known) for name, template in texts.items()}


def _socket(vault: VaultConfig) -> str:
    """Return how to make the folder of a socket, if it is one that units for systemd make."""
    place = Path(vault.entries["listen"]).parent
    if not place.is_absolute():
        return ""
    return (
        "Without systemd, make the folder of the vault's socket first, on each machine with a "
        "vault, whenever it has\n"
        f"restarted: `install -d -m 2750 -o USER -g GROUP {place}`, with the user of the vault and "
        "a\ngroup of the gateway's user.\n\n"
    )


def _more(vaults: list[Path]) -> dict[str, str]:
    """Return how the table continues after the first gateway and the first vault."""
    last, word = vaults[-1].name.removeprefix("vault-"), "and" if len(vaults) == 2 else "to"
    more = {
        f"more_{part}s": f" {word} `{part}-{last}/`" if len(vaults) > 1 else ""
        for part in ("gateway", "vault")
    }
    return {"version": __version__} | more


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _number(path: Path) -> int:
    return int(path.name.removeprefix("vault-"))


def _write(path: Path, template: str, values: Mapping[str, str]) -> None:
    path.write_text(f"{_filled(template, values)}\n", "utf-8")


def _filled(template: str, values: Mapping[str, str]) -> str:
    text = (_TEMPLATES / "texts" / f"{template}.md").read_text("utf-8")
    return Template(text).substitute(values).strip()
