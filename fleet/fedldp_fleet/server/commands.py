"""`fedldp server`: the operator's commands. What they need is imported when they run."""

import json
import logging
import sys
from pathlib import Path

import click

from fedldp.errors import MissingExtra

FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
PACKAGES_OF_THE_EXTRA = {"httptools", "prometheus_client", "starlette", "uvicorn"}


class _ServerCommands(click.Group):
    """Commands, of which those about jobs are imported when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), "job"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "job":
            from fedldp_fleet.server.job_commands import job_group

            return job_group
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in PACKAGES_OF_THE_EXTRA:
                raise
            raise MissingExtra(package, "server", "fedldp-fleet") from error


@click.group("server", cls=_ServerCommands)
def server_group() -> None:
    """Run a fleet's server: jobs, agents, results.

    \b
    fedldp server init server --host fleet.example.org
    fedldp server enroll server car-7
    fedldp server job statistic spring --plan plan.json --vehicles 1000 \\
      --server server --key server/operator.key
    fedldp server run server
    fedldp server status server

    The operator signs jobs, best on a machine of their own. The server asks;
    agents call it and answer.
    """  # noqa: D301 (click wants the character \b itself)


@server_group.command("init")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--host", "hosts", multiple=True, help="A name or address by which agents reach the server."
)
@click.option(
    "--listen",
    help="The address that agents call.  [default: 0.0.0.0:8443]",
    metavar="HOST:PORT",
)
@click.option(
    "--page",
    help="The address of the page and the metrics.  [default: 127.0.0.1:8480]",
    metavar="HOST:PORT",
)
@click.option(
    "--database",
    default="",
    help="A PostgreSQL in place of a file: postgresql://USER@HOST/NAME.",
    metavar="URL",
)
@click.option(
    "--behind-proxy", is_flag=True, help="A proxy terminates TLS, and limits connections."
)
@click.option(
    "--operator",
    type=FILE,
    help="The public key of the person who signs jobs, instead of a new key.",
    metavar="FILE",
)
def init_command(
    folder: Path,
    hosts: tuple[str, ...],
    listen: str | None,
    page: str | None,
    database: str,
    behind_proxy: bool,
    operator: Path | None,
) -> None:
    """Make the folder of a server: keys, certificate, store.

    \b
    fedldp server init server --host fleet.example.org
    fedldp server init server --operator operator.pub --behind-proxy
    fedldp server init server --database postgresql://fedldp@db/fleet \\
      --behind-proxy

    Give ca.pem and operator.pub to agents, and server.pub to whoever signs jobs.
    Without --operator, the folder gets operator.key: move it to a machine that
    is not online.
    """  # noqa: D301 (click wants the character \b itself)
    from fedldp.signing import PublicKey
    from fedldp_fleet.server import folder as folders

    public = None if operator is None else PublicKey.load(operator)
    made = folders.init(
        folder,
        hosts,
        listen=listen or folders.LISTEN,
        page=page or folders.PAGE,
        tls=not behind_proxy,
        operator=public,
        database=database,
    )
    click.echo(f"Wrote {made.path}. Start it: fedldp server run {folder}")


@server_group.command("run")
@click.argument("folder", type=FOLDER)
@click.option(
    "--listen",
    help="The address that agents call, instead of that in server.toml.",
    metavar="HOST:PORT",
)
@click.option(
    "--page",
    help="The address of the page, instead of that in server.toml.",
    metavar="HOST:PORT",
)
def run_command(folder: Path, listen: str | None, page: str | None) -> None:
    """Run the server until Ctrl-C or SIGTERM.

    \b
    fedldp server run server
    fedldp server run server --listen 127.0.0.1:8444 --page 127.0.0.1:8481

    A server that is killed at any moment goes on when it is started again:
    agents repeat what was not acknowledged, and nothing is counted twice. With
    PostgreSQL, any number of processes serve one fleet, behind a proxy.
    """  # noqa: D301 (click wants the character \b itself)
    from dataclasses import replace

    from fedldp_fleet.server import service
    from fedldp_fleet.server.folder import ServerFolder, address

    found = ServerFolder.load(folder)
    if listen is not None:
        found = replace(found, listen=address(listen))
    if page is not None:
        found = replace(found, page=address(page))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    service.run(found)


@server_group.command("enroll")
@click.argument("folder", type=FOLDER)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--vehicles",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="The number of vehicles of an agent. No more of its answers count in a job.",
)
@click.option(
    "--list",
    "listed",
    type=FILE,
    help="A file with an agent in each line: its name and, after a comma, the number of its "
    "vehicles.",
    metavar="FILE",
)
@click.option("--again", is_flag=True, help="The agent has joined before, and needs a new secret.")
def enroll_command(
    folder: Path, names: tuple[str, ...], vehicles: int, listed: Path | None, again: bool
) -> None:
    """Print a one-time code for each agent.

    \b
    fedldp server enroll server car-7 car-8
    fedldp server enroll server depot --vehicles 500
    fedldp server enroll server --list agents.csv > codes.txt

    An agent joins with its code: fedldp agent join. A code is used once. If one
    agent of a list cannot be enrolled, none is.
    """  # noqa: D301 (click wants the character \b itself)
    from fedldp_fleet.server import administration, audit
    from fedldp_fleet.server.folder import ServerFolder

    agents = dict.fromkeys(names, vehicles)
    if listed is not None:
        text = listed.read_text("utf-8", errors="replace")
        agents |= administration.agents_in(text, str(listed), vehicles)
    if not agents:
        raise click.UsageError("say which agents: NAME..., or --list FILE.")
    store = ServerFolder.load(folder).store()
    with store.transaction() as transaction:
        codes = administration.enroll(transaction, agents, audit.person(), again=again)
    store.close()
    for code in codes:
        click.echo(code)


@server_group.command("revoke")
@click.argument("folder", type=FOLDER)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def revoke_command(folder: Path, names: tuple[str, ...]) -> None:
    """Refuse agents from now on.

    \b
    fedldp server revoke server car-7

    What they have answered before still counts. They may be enrolled again.
    """  # noqa: D301 (click wants the character \b itself)
    from fedldp_fleet.server import administration, audit
    from fedldp_fleet.server.folder import ServerFolder

    store = ServerFolder.load(folder).store()
    with store.transaction() as transaction:
        administration.revoke(transaction, names, audit.person())
    store.close()


@server_group.command("token")
@click.argument("folder", type=FOLDER)
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(["viewer", "operator"]),
    default="viewer",
    show_default=True,
    help="A viewer reads; an operator adds signed jobs, and enrolls and revokes agents, too.",
)
@click.option("--revoke", is_flag=True, help="Refuse the token from now on.")
def token_command(folder: Path, name: str, role: str, revoke: bool) -> None:
    """Print a token for the API, which is shown once.

    \b
    fedldp server token server dashboard
    fedldp server token server deploy --role operator
    fedldp server token server dashboard --revoke

    A program sends it as `Authorization: Bearer TOKEN` to the page's address,
    where /api/v1/openapi.json says what there is.
    """  # noqa: D301 (click wants the character \b itself)
    from fedldp_fleet.server import administration, audit
    from fedldp_fleet.server.folder import ServerFolder

    store = ServerFolder.load(folder).store()
    with store.transaction() as transaction:
        if revoke:
            administration.revoke_token(transaction, name, audit.person())
        else:
            click.echo(administration.create_token(transaction, name, role, audit.person()))
    store.close()


@server_group.command("audit")
@click.argument("folder", type=FOLDER)
@click.option(
    "--head",
    default="",
    help="A head that you have written down: fail if the log does not contain it.",
    metavar="HEX",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def audit_command(folder: Path, head: str, as_json: bool) -> None:
    """Show who created, signed, enrolled or revoked what, and when.

    \b
    fedldp server audit server
    fedldp server audit server --head 3f2a...

    The log is a hash chain, which is checked. Write its last head down on another
    machine: with --head, a log that was replaced is noticed.
    """  # noqa: D301 (click wants the character \b itself)
    from datetime import UTC, datetime

    from fedldp_fleet.server import audit
    from fedldp_fleet.server.folder import ServerFolder

    store = ServerFolder.load(folder).store()
    with store.reading() as transaction:
        found = audit.entries(transaction, head)
    store.close()
    for entry, link in found:
        if as_json:
            click.echo(json.dumps({**entry._asdict(), "head": link.head.hex()}))
        else:
            when = datetime.fromtimestamp(entry.time, UTC).isoformat()
            words = (when, entry.actor, entry.action, entry.subject, entry.detail)
            click.echo("  ".join(filter(None, words)))
    if found and not as_json:
        click.echo(f"The head after {len(found):,} entries: {found[-1][1].head.hex()}")


@server_group.command("backup")
@click.argument("folder", type=FOLDER)
@click.argument("target", type=click.Path(path_type=Path))
def backup_command(folder: Path, target: Path) -> None:
    """Copy a server, running or not, into a new folder.

    \b
    fedldp server backup server backups/monday

    The copy holds the keys of the server and of its agents: keep it secret.
    """  # noqa: D301 (click wants the character \b itself)
    from fedldp_fleet.server import backup
    from fedldp_fleet.server.folder import ServerFolder

    backup.back_up(ServerFolder.load(folder), target)
    click.echo(f"Wrote {target}. Restore it: fedldp server restore {target} FOLDER")


@server_group.command("restore")
@click.argument("backup", type=FOLDER)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--second",
    type=FOLDER,
    help="The folder with the last states of trainings: the setting `second` in server.toml.",
)
@click.option(
    "--database",
    help="Keep the store in this PostgreSQL, instead of where it was.",
    metavar="URL",
)
def restore_command(backup: Path, folder: Path, second: Path | None, database: str | None) -> None:
    """Make a server from a backup, after the old one is lost for good.

    \b
    fedldp server restore backups/monday server
    fedldp server restore backups/monday server --second second
    fedldp server restore backups/monday server \\
      --database postgresql://fedldp@db/fleet

    Agents notice the restored server, and send it all answers of open jobs again.
    Never run the old server again. Agents that joined after the backup have to
    join again.
    """  # noqa: D301 (click wants the character \b itself)
    from fedldp_fleet.server import backup as backups

    restored = backups.restore(backup, folder, second, database)
    click.echo(f"Restored {folder}. Start it: fedldp server run {folder}")
    if restored.open_jobs:
        click.echo(f"Agents will send again their answers to: {', '.join(restored.open_jobs)}.")
    if restored.resumed:
        click.echo(f"Trainings that go on from their last step: {', '.join(restored.resumed)}.")


@server_group.command("status")
@click.argument("folder", type=FOLDER)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def status_command(folder: Path, as_json: bool) -> None:
    """Show jobs, agents and problems.

    \b
    fedldp server status server
    fedldp server status server --json

    The exit status is 1 if there is a problem: for example, the disk is nearly
    full, a step fails, answers are refused, or a job failed or ended with less
    than half of its answers.
    """  # noqa: D301 (click wants the character \b itself)
    from fedldp_fleet.server.folder import ServerFolder
    from fedldp_fleet.server.status import status

    found = ServerFolder.load(folder)
    store = found.store()
    with store.reading() as transaction:
        document = status(found, transaction, running=store.is_served())
    store.close()
    if as_json:
        click.echo(json.dumps(document, indent=2))
    else:
        agents = document["agents"]
        click.echo(
            f"The server {'is running' if document['running'] else 'is not running'}. "
            f"{agents['joined']:,} of {agents['enrolled']:,} agents have joined, with "
            f"{agents['vehicles']:,} vehicles; {agents['revoked']:,} are revoked."
        )
        for job in document["jobs"]:
            ended = f": {job['reason']}" if job["reason"] else ""
            click.echo(
                f"{job['name']}: {job['state']}{ended}. Round {job['round']} of {job['rounds']}, "
                f"{job['answers']:,} of {job['wanted']:,} answers, from {job['agents']:,} agents "
                f"(at most {job['most_of_one_agent']:,} from one); {job['late']:,} late, "
                f"{job['refused']:,} refused."
            )
        for problem in document["problems"]:
            click.echo(f"Problem: {problem}")
    if document["problems"]:
        sys.exit(1)


@server_group.command("doctor")
@click.argument("folder", type=FOLDER)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def doctor_command(folder: Path, as_json: bool) -> None:
    """Check a server before it starts, or while it runs.

    \b
    fedldp server doctor server
    fedldp server doctor server --json

    It looks at folder, keys, certificates, store, disk, clock, addresses and
    broker, and changes nothing. The exit status is 1 if there is a problem.
    """  # noqa: D301 (click wants the character \b itself)
    from fedldp_fleet.server import doctor
    from fedldp_fleet.server.folder import ServerFolder

    checks = doctor.examine(ServerFolder.load(folder))
    problems = [f"{name}: {problem}" for name, found in checks.items() for problem in found]
    if as_json:
        click.echo(json.dumps({"format": doctor.FORMAT, "checks": checks}, indent=2))
    else:
        click.echo("\n".join(problems) or f"{folder} is ready.")
    if problems:
        sys.exit(1)
