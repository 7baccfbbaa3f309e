"""`fedldp fleet sign`: the operator's signature of a job."""

from pathlib import Path

import click

from fedldp import signing as signatures
from fedldp._internal.text import counted
from fedldp.fleet import signing
from fedldp.fleet.server import process as server_process
from fedldp.fleet.server.process import ServerConfig
from fedldp.signing import PrivateKey

_JOB = "job.toml"


@click.command("sign")
@click.argument("job", type=click.Path(path_type=Path, exists=True))
@click.option(
    "--key",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    required=True,
    help="The operator's private key, which `fedldp fleet init` has made.",
    metavar="FILE",
)
@click.option(
    "--expires",
    type=click.IntRange(1, 3650),
    default=signing.EXPIRES,
    show_default=True,
    help="For how many days vaults answer the job.",
    metavar="DAYS",
)
def sign_command(job: Path, key: Path, expires: int) -> None:
    """Sign a job, so that vaults answer its questions.

    \b
    fedldp fleet sign fleet/server --key fleet/operator.key
    fedldp fleet sign second.toml --key operator.key --expires 14

    JOB is the file of a job, the folder of a server, or any folder with job.toml
    and the files that it names. Do this where the operator's key is, on a
    machine without a network if you like; then copy the signed text that it
    writes, and the file of the job, to the server's folder. `fedldp fleet init`
    has signed the first job already.

    Vaults that hold operator.pub answer only what the operator has signed: the
    name of the job, its plans, what vehicles compute (objective, attributes,
    layers of a network) and the number of rounds, until it expires. An
    attacker who takes over the server cannot change these. The weights of the
    model and the number of vehicles that are asked are not signed: they change
    from round to round.

    Sign a job again after every change of its plan, model or rounds. To protect
    the key with a passphrase: openssl pkey -aes256 -in operator.key -out FILE
    """  # noqa: D301 (click wants the character \b itself)
    path = job
    if job.is_dir():  # the server's folder, or one with a job alone
        path = job / _JOB
        if (job / server_process.FILE).exists():
            path = ServerConfig.load(job).job
    passphrase = None
    if signatures.is_encrypted(key):
        passphrase = click.prompt(f"Passphrase of {key}", hide_input=True, err=True)
    found = signing.sign(path, PrivateKey.load(key, passphrase), expires)
    click.echo(
        f"Signed the job {found.job}: {counted(found.rounds, 'round')}, "
        f"until {signatures.format_time(found.expires)}."
    )
