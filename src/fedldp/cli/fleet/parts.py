"""`fedldp fleet vault`, `reload`, `gateway`, `uplink`, `server` and `stop`: run the parts."""

import asyncio
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from fedldp.cli.plans import strict_option
from fedldp.fleet import isolation, logs, processes, sockets
from fedldp.fleet.flower import programs
from fedldp.fleet.server import process as server_process
from fedldp.fleet.server.watch import JobFailed
from fedldp.fleet.vault import reload
from fedldp.fleet.vault.process import VaultConfig

# Exit statuses of the server, which its systemd unit has too.
FAILED = 3  # the job has no result, and will have none
STOPPED = 4  # a signal came before the job was done

FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)


Command = TypeVar("Command", bound=Callable[..., Any])


def log_options(command: Command) -> Command:
    """Add the options that say how a part logs; they hold for its processes too."""

    @click.option(
        "--log-format",
        type=click.Choice(logs.FORMATS),
        help="Log text for people, or a JSON object in each line.  "
        f"[default: {logs.FORMAT}, or text]",
    )
    @click.option(
        "--log-level",
        type=click.Choice(logs.LEVELS),
        help=f"Log events of this level and above.  [default: {logs.LEVEL}, or info]",
    )
    @functools.wraps(command)
    def configured(
        *words: Any, log_format: str | None, log_level: str | None, **options: Any
    ) -> Any:
        with logs.to_stderr(log_format, log_level):
            return command(*words, **options)

    return cast(Command, configured)


def become(module: str, *words: str | Path) -> None:
    """Run a module in this process, without the packages of the command line: they need memory."""
    argv = programs.python(module, *words)
    os.execv(argv[0], argv)  # noqa: S606 (words of our own, and no shell)


@click.command("vault")
@click.argument("folder", type=FOLDER)
@strict_option
@click.option(
    "--check",
    is_flag=True,
    help="Only show what the vault would clip or replace in its data, with exit status 0 if "
    "nothing, 1 otherwise. Nothing is answered or spent.",
)
@log_options
def vault_command(folder: Path, strict: bool, check: bool) -> None:
    """Answer for the vehicles of a vault, until Ctrl-C or SIGTERM.

    \b
    fedldp fleet vault fleet/vault-1
    fedldp fleet vault fleet/vault-1 --check   check the data first

    FOLDER contains vault.toml: the data, the cap, how many answers each job
    gets, and where to listen. The ledger beside it is the only record of what
    every vehicle has spent: never delete it, never restore a backup.

    The vault logs for how many vehicles it answered, and why it refused a
    question, also to state/vault.log in FOLDER; nobody else is told. At the
    start it logs how many values are clipped or replaced. It does not need
    Flower.
    """  # noqa: D301 (click wants the character \b itself)
    if not check:
        become("fedldp.fleet.vault", folder, *(["--strict"] if strict else []))
    quality = VaultConfig.load(folder).check()
    click.echo(str(quality))
    if not quality.clean:
        sys.exit(1)


@click.command("reload")
@click.argument("folder", type=FOLDER)
def reload_command(folder: Path) -> None:
    """Make a running vault read its data again.

    \b
    fedldp fleet reload fleet/vault-1

    Vehicles that are new in the file can answer from now on. All others keep
    what they have left of their cap, because the vehicle column says who they
    are; a vault without one refuses to reload. If the file cannot be read or
    its schema has changed, the vault keeps the data that it has.

    The same as `systemctl reload`, or SIGHUP. Only the data are read again: a
    change in vault.toml needs a restart. Exit status 1 if the old data stay.
    """  # noqa: D301 (click wants the character \b itself)
    VaultConfig.load(folder)  # raises if this is the folder of another part
    outcome = reload.request(folder)
    click.echo(f"{folder.resolve().name}: {outcome.said}", err=not outcome.done)
    if not outcome.done:
        sys.exit(1)


_require_isolation = click.option(
    "--require-isolation",
    is_flag=True,
    help="Refuse to start if a private network for Flower's processes is not available.",
)


@click.command("gateway")
@click.argument("folder", type=FOLDER)
@_require_isolation
@click.option(
    "--uplink",
    help="Do not start an uplink: another systemd unit runs it, on this port of the loopback "
    "interface, and on the next ports for vaults on TCP; or another container, on this Unix "
    "socket.",
    metavar="PORT|PATH",
)
@log_options
def gateway_command(folder: Path, require_isolation: bool, uplink: str | None) -> None:
    """Run a gateway until Ctrl-C or SIGTERM.

    \b
    fedldp fleet gateway fleet/gateway-1

    FOLDER contains gateway.toml (the server, the vaults) and the key of the
    gateway. It logs when it is connected, what it was asked, and for how many
    vehicles its vaults answered, also to state/gateway.log in FOLDER; Flower's
    own output is in state/supernode.log. Run it as another user than its vault:
    it only needs the vault's socket.

    The gateway runs in a private network that other accounts of this machine
    cannot reach. Its uplink, a process outside, connects it with the server and
    accepts only the app that gateway.toml names.
    """  # noqa: D301 (click wants the character \b itself)
    through = [] if uplink is None else ["--uplink", uplink]
    required = ["--require-isolation"] if require_isolation else []
    become("fedldp.fleet.gateway", folder, *through, *required)


@click.command("uplink")
@click.argument("folder", type=FOLDER)
@click.option(
    "--listen",
    type=click.Path(path_type=Path),
    help="The Unix socket on which a gateway in another container finds it.  [default: sockets "
    "from systemd]",
    metavar="PATH",
)
@log_options
def uplink_command(folder: Path, listen: Path | None) -> None:
    """Connect a gateway with its server, as a systemd unit.

    \b
    fedldp fleet uplink fleet/gateway-1
    fedldp fleet uplink fleet/gateway-1 --listen /run/fedldp-uplink/uplink.sock

    You need this command only with systemd or in containers: otherwise `fedldp
    fleet gateway` starts an uplink itself. There the uplink is on its own,
    because the gateway has no network: systemd gives the uplink sockets inside
    the private network of the gateway, and a container shares a Unix socket.
    """  # noqa: D301 (click wants the character \b itself)
    from fedldp.fleet.gateway import uplink

    found = isolation.inherited() if listen is None else [sockets.listen(listen, "name another")]
    asyncio.run(uplink.run(folder, found))


@click.command("server")
@click.argument("folder", type=FOLDER)
@click.option("--stay", is_flag=True, help="Keep serving gateways after the job is done.")
@_require_isolation
@click.option(
    "--container",
    is_flag=True,
    help="This server has a container to itself, whose loopback interface nobody else can reach: "
    "no private network is needed inside.",
)
@log_options
def server_command(folder: Path, stay: bool, require_isolation: bool, container: bool) -> None:
    """Run the job of a fleet until it is done, or until Ctrl-C.

    \b
    fedldp fleet server fleet/server

    FOLDER contains server.toml and job.toml, which names the file of the
    result. After a crash, start the server again: it resumes the job, and
    repeats the open questions before it asks new ones.

    Flower's processes run in a private network that other accounts of this
    machine cannot reach. If the system does not allow that, it logs a warning.

    JOB.summary.json, beside the result, says how many vehicles were asked,
    answered, were silent, and refused or were absent, and whether that is as
    many as planned. The server logs it too. If no vehicle answers, the job
    fails and has no result.

    \b
    Exit status:
    0  the job is done
    1  an error, which is printed: invalid configuration, file in use
    2  invalid command line
    3  the job has failed: starting the server again does not help
    4  a signal stopped the server before the job was done: start it again
    """  # noqa: D301 (click wants the character \b itself)
    try:
        done = server_process.run(
            folder,
            stay=stay,
            require_isolation=require_isolation,
            network=isolation.alone() if container else None,
        )
    except JobFailed as error:
        click.echo(f"fedldp: {error}", err=True)
        sys.exit(FAILED)
    if not done:
        sys.exit(STOPPED)


@click.command("stop")
@click.argument("folder", type=FOLDER)
def stop_command(folder: Path) -> None:
    """Stop everything that runs in a folder and its subfolders.

    \b
    fedldp fleet stop fleet            all parts of a fleet on this machine
    fedldp fleet stop fleet/vault-1    one part

    This also stops processes that were left behind when another process was
    killed. Nothing is lost: when a part is started again, it resumes.
    """  # noqa: D301 (click wants the character \b itself)
    count = processes.stop(folder)
    click.echo(f"Stopped {count} process{'' if count == 1 else 'es'}.")
