"""`fedldp fleet monitor`: health, metrics and the live page of a part of a fleet."""

from pathlib import Path

import click

from fedldp.cli.fleet.parts import FOLDER, become, log_options
from fedldp.fleet.monitor.address import DEFAULT


@click.command("monitor")
@click.argument("folder", type=FOLDER)
@click.option(
    "--listen",
    help="Where to listen: 127.0.0.1:9480, or the path of a Unix socket.  [default: the entry "
    f"`monitor` of the configuration, or {DEFAULT}]",
    metavar="ADDRESS",
)
@click.option(
    "--token",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A file with a secret that callers must show; with --listen.",
    metavar="FILE",
)
@log_options
def monitor_command(folder: Path, listen: str | None, token: Path | None) -> None:
    """Serve a live page, /healthz and /metrics, until Ctrl-C.

    \b
    fedldp fleet monitor fleet/server      open http://127.0.0.1:9480/
    fedldp fleet monitor fleet/vault-1 --listen 127.0.0.1:9481
    fedldp fleet monitor fleet/server --listen 0.0.0.0:9480 --token token.txt

    FOLDER is the folder of a server, a gateway or a vault. A server and a
    gateway start a monitor themselves if their configuration has an entry
    `monitor`. The live page is for a server; /metrics needs the extra monitor.

    The monitor only reads. It shows no values of vehicles, and nothing leaves
    the machine unless somebody asks for it: other machines need a token.
    """  # noqa: D301 (click wants the character \b itself)
    if token is not None and listen is None:
        raise click.UsageError("--token belongs to --listen; the configuration has monitor_token.")
    given = [each for each in (listen, token and str(token.resolve())) if each is not None]
    become("fedldp.fleet.monitor", folder, *given)
