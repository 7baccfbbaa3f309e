"""`fedldp fleet job`, `add-gateway`, `remove-gateway` and `rotate-keys`: change a fleet."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import click

from fedldp import signing as signatures
from fedldp._internal.text import counted
from fedldp.cli.fleet.init import ROUNDS, STATISTICS
from fedldp.cli.fleet.parts import FOLDER
from fedldp.cli.plans import INPUT, console, given, read_schema
from fedldp.cli.runs import NETWORK, TASKS, chosen_model, goal_of, network_options
from fedldp.fleet import add_job, members, signing
from fedldp.fleet.folder import Work
from fedldp.fleet.gateway import process as gateway_process
from fedldp.fleet.gateway.process import GatewayConfig
from fedldp.fleet.job import Job
from fedldp.fleet.members import Rows
from fedldp.fleet.rotation import AuthorityKey, OperatorKey, Rotation
from fedldp.fleet.server import admission
from fedldp.fleet.state import STATE, holder
from fedldp.learn.model import Model


@click.command("job")
@click.argument("folder", type=FOLDER)
@click.argument("name")
@click.option("--epsilon", type=float, help="Another cost of a report.  [default: as before]")
@click.option(
    "--rounds",
    type=click.IntRange(1),
    help="Another number of rounds in which vehicles answer gradients.  [default: as before]",
)
@click.option(
    "--vehicles",
    type=click.IntRange(1),
    help="Another number of vehicles to expect behind each gateway.  [default: as before]",
)
@click.option(
    "--task",
    type=click.Choice([*TASKS, NETWORK, STATISTICS]),
    help="Another task, about the same columns.  [default: as before]",
)
@click.option("--target", help="The column to predict.  [default: as before]", metavar="COLUMN")
@click.option(
    "--period",
    type=click.IntRange(1),
    help="Which period of the calendar to ask, if the job before follows one.  [default: the next]",
)
@network_options
def job_command(
    folder: Path,
    name: str,
    epsilon: float | None,
    rounds: int | None,
    vehicles: int | None,
    task: str | None,
    target: str | None,
    period: int | None,
    hidden: tuple[int, ...],
    activation: str,
) -> None:
    """Write the next job of a server.

    \b
    fedldp fleet job fleet/server autumn             ask the same again
    fedldp fleet job fleet/server autumn --epsilon 1
    fedldp fleet job fleet/server ages --task statistics
    fedldp fleet job fleet/server day-2              the next day of a calendar

    FOLDER is that of the server, or of the whole fleet. The job before must be
    done. The new one gets files of its own: NAME.toml, a checkpoint and a result
    in state/. server.toml names it from now on; to run an earlier job again,
    change the entry `job` there.

    Each vehicle pays epsilon again, from the cap in vault.toml: one that has
    spent its cap refuses. Vaults answer the job once its operator has signed it,
    with `fedldp fleet sign`.
    """  # noqa: D301 (click wants the character \b itself)
    server = members.server_of(folder)
    before = Job.load(server.job, signed=False)
    settings, work = add_job.settings_of(before, epsilon), None
    others = any(value is not None for value in (epsilon, rounds, vehicles))
    if period is not None and (task is not None or others):
        raise click.UsageError("--period asks the calendar again: give no other option with it.")
    if task is not None:
        work = _other(before, name, task, target, rounds, vehicles, hidden, activation)
    elif target is not None or hidden or given("activation"):
        raise click.UsageError("--target, --hidden and --activation belong to a --task.")
    elif others:
        work = add_job.same_work(before, name, rounds, vehicles)
    made = add_job.add_job(server, name, work, settings, period)
    shown = console(soft_wrap=True)
    asks = f"asks for {made.expected:,} reports in {counted(made.rounds, 'round')}"
    if made.period is not None:
        asks = f"asks for period {made.period.number}, and plans for {made.expected:,} reports"
    shown.print(
        f"Wrote {server.folder / made.name}.toml: the job {made.name} {asks}, each with epsilon "
        f"{made.plan.epsilon:g}. The result will be {made.result}"
    )
    path = server.folder / f"{made.name}.toml"
    if signing.is_pending(path):
        shown.print(
            "Vaults answer only what the operator has signed. Where the operator's key is: "
            f"fedldp fleet sign {path} --key operator.key"
        )
    pid = holder(server.state)
    first = "" if pid is None else f"Stop the server (process {pid}), which runs another job. "
    shown.print(f"{first}Check that the caps cover it, then: fedldp fleet server {server.folder}")


def _other(
    before: Job,
    name: str,
    task: str,
    target: str | None,
    rounds: int | None,
    vehicles: int | None,
    hidden: tuple[int, ...],
    activation: str,
) -> Work:
    (make, goal), columns = chosen_model(task, hidden, activation, None), add_job.columns(before)
    if task == STATISTICS:
        return add_job.other_work(before, name, 1, vehicles, None, None, make)
    if target is None and before.model is None:
        raise click.UsageError(f"give the column to predict: --target, one of {columns.names}.")
    target = target or cast(Model, before.model).target.name
    objective = (goal or goal_of(columns[target])).name
    return add_job.other_work(before, name, rounds or ROUNDS, vehicles, target, objective, make)


@click.command("add-gateway")
@click.argument("fleet", type=FOLDER)
@click.argument("name")
@click.option("--data", help="The file of the new vault.  [default: as the others]", metavar="FILE")
@click.option("--schema", type=INPUT, help="The columns of this file (TOML).", metavar="FILE")
@click.option("--vehicle", help="The column with the id of each row's vehicle.", metavar="COLUMN")
def add_gateway_command(
    fleet: Path, name: str, data: str | None, schema: Path | None, vehicle: str | None
) -> None:
    """Add a gateway and its vault, also while a job runs.

    \b
    fedldp fleet add-gateway fleet oslo
    fedldp fleet add-gateway fleet oslo --data oslo.csv --schema rows.toml \\
      --vehicle id

    FLEET is the folder that `fedldp fleet init` wrote. It gets gateway-NAME and
    vault-NAME, configured like the first gateway and its vault, and the public
    key of the gateway in server/gateways. A running server admits it within a
    second and asks it from the next round on.
    """  # noqa: D301 (click wants the character \b itself)
    if (data is None) != (schema is None) or (vehicle is not None and data is None):
        raise click.UsageError("--data and --schema belong together, and --vehicle to them.")
    rows = None
    if data is not None and schema is not None:
        rows = Rows(data, read_schema(schema), vehicle)
    made = members.add_gateway(fleet, name, rows)
    shown = console(soft_wrap=True)
    shown.print(f"Wrote {made.gateway} and {made.vault}: read the README in each.")
    shown.print(f"The server admits the gateway by its key in {made.public}")
    shown.print("Copy each of the three to its machine, if it is another one.")


@click.command("remove-gateway")
@click.argument("folder", type=FOLDER)
@click.argument("name")
def remove_gateway_command(folder: Path, name: str) -> None:
    """Revoke a gateway: the server refuses it at once.

    \b
    fedldp fleet remove-gateway fleet gateway-2

    FOLDER is that of the fleet or of its server, where server/gateways has the
    public key of the gateway. Its key can never be used again; the folders of
    the gateway and of its vault stay as they are.
    """  # noqa: D301 (click wants the character \b itself)
    server = members.server_of(folder)
    members.remove_gateway(folder, name)
    vault = name.replace(members.GATEWAY, members.VAULT, 1)
    shown = console(soft_wrap=True)
    shown.print(f"Revoked {name}: the server refuses its key from now on, and Flower forgets it.")
    shown.print(
        "The vehicles behind it are not asked any more. What they have reported counts, and stays "
        f"spent: keep the ledger of {vault} as long as they exist. If they are to answer through "
        "another gateway, add the address of their vault to its gateway.toml, between two jobs."
    )
    if text := members.waits_in_vain(server):
        shown.print(f"Warning: {text}")


@click.command("rotate-keys")
@click.argument("folder", type=FOLDER)
@click.option(
    "--ca",
    type=INPUT,
    help="The key of the fleet's authority, for a new certificate of the server. Take it offline "
    "again afterwards.",
    metavar="FILE",
)
@click.option(
    "--operator",
    "trusted",
    flag_value="operator",
    help="Change the key that signs jobs. FOLDER is the one with operator.key.",
)
@click.option(
    "--authority",
    "trusted",
    flag_value="authority",
    help="Change the key that issues the server's certificate. FOLDER is the one with ca.key.",
)
@click.option("--use", is_flag=True, help="Use the key that was made before.")
@click.option("--forget", is_flag=True, help="Trust the old operator or authority no longer.")
def rotate_keys_command(
    folder: Path, ca: Path | None, trusted: str | None, use: bool, forget: bool
) -> None:
    """Change keys and certificates, also while a job runs.

    \b
    fedldp fleet rotate-keys fleet/server --ca ca.key   a new certificate
    fedldp fleet rotate-keys fleet/gateway-1            a new key; then, once
    fedldp fleet rotate-keys fleet/gateway-1 --use      the server has it
    fedldp fleet rotate-keys fleet --ca ca.key          all, on one machine

    A gateway has two keys for a while: the server admits the next key beside the
    present one, and forgets the old one when the gateway has used the next. No
    answer is lost: a question that was open is asked again, and a vault answers
    it with the same bytes.

    \b
    fedldp fleet rotate-keys fleet --operator           the key that signs jobs,
    fedldp fleet rotate-keys fleet --operator --use     in three steps; each
    fedldp fleet rotate-keys fleet --operator --forget  prints what to copy
    fedldp fleet rotate-keys fleet --authority          ca.key: the same steps

    The first step makes the next key and adds its public half to the files of
    those who trust it: operator.pub of vaults, ca.crt of gateways. Until the
    third step, old and new are both trusted there.
    """  # noqa: D301 (click wants the character \b itself)
    if trusted is not None:
        if ca is not None or (use and forget):
            raise click.UsageError("--ca, --use and --forget exclude each other here.")
        _rotate_trusted(folder.resolve(), trusted, use, forget)
        return
    if forget:
        raise click.UsageError("--forget belongs to --operator or --authority.")
    if (folder / gateway_process.FILE).exists():
        if ca is not None:
            raise click.UsageError("--ca is for the certificate of the server.")
        _rotate_gateway(GatewayConfig.load(folder), use)
        return
    if use:
        raise click.UsageError("--use is for the folder of a gateway, --operator or --authority.")
    server, shown = members.server_of(folder), console(soft_wrap=True)
    gateways = list(_gateways(folder))
    if ca is None and not gateways:
        raise click.UsageError("a new certificate of the server needs the authority's key: --ca.")
    for gateway in gateways:
        members.rotate_gateway(server, gateway)
        shown.print(f"{gateway.folder.name} has a new key.")
    if ca is None:
        shown.print("The server keeps its certificate: a new one needs --ca.")
        return
    members.rotate_server(server, ca)
    shown.print("The server has a new certificate. Connections that are open keep the old one.")


def _gateways(folder: Path) -> Iterator[GatewayConfig]:
    for path in sorted(folder.glob(f"{members.GATEWAY}*/{gateway_process.FILE}")):
        yield GatewayConfig.load(path.parent)


def _rotate_gateway(gateway: GatewayConfig, use: bool) -> None:
    shown, name = console(soft_wrap=True), gateway.folder.name
    if use:
        members.use_next_key(gateway)
        again = " within a second" if holder(gateway.folder / STATE) else ", when it is started"
        shown.print(f"{name} uses its new key{again}. The old one no longer exists here.")
        return
    public = members.make_next_key(gateway)
    there = admission.upcoming(Path("gateways"), name)
    shown.print(f"Made the next key of {name}. It is not used yet.")
    shown.print(f"1. Copy {public} to the folder of the server, as {there}")
    shown.print(f"2. Then run: fedldp fleet rotate-keys {gateway.folder} --use")


def _rotate_trusted(folder: Path, kind: str, use: bool, forget: bool) -> None:
    """Do one of the three steps, and print what comes next."""
    key = _operator(folder) if kind == "operator" else AuthorityKey()
    rotation, shown = Rotation(folder, key), console(soft_wrap=True)
    again = f"When that is done everywhere, run: fedldp fleet rotate-keys {folder} --{kind}"
    if use:
        rotation.use()
        shown.print(f"{rotation.secret} is the new key. The old one no longer exists here.")
        shown.print(f"1. {key.after_use(folder)}")
        shown.print(f"2. {again} --forget")
    elif forget:
        _list(rotation.forget(), "These files name the new key alone:")
        shown.print(f"Copy {rotation.public} {key.HOLDERS}")
    else:
        changed = rotation.prepare()
        shown.print(f"Made {rotation.next}. It is not used yet: keep it offline.")
        _list(changed, "These files name the old key and the new one:")
        shown.print(f"1. Copy {rotation.public} {key.HOLDERS}")
        shown.print(f"2. {again} --use")


def _list(paths: list[Path], title: str) -> None:
    shown = console(soft_wrap=True)
    shown.print(title)
    for path in paths:
        shown.print(f"   {path}")


def _operator(folder: Path) -> OperatorKey:
    path = folder / OperatorKey.SECRET
    if path.exists() and signatures.is_encrypted(path):
        return OperatorKey(click.prompt(f"Passphrase of {path}", hide_input=True, err=True))
    return OperatorKey()
