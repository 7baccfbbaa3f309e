"""`fedldp server job`: make, sign, add and extend jobs, and write their results."""

import datetime
from pathlib import Path
from typing import Any

import click

from fedldp.cli.options import (
    STEP_OPTIONS,
    STRATEGY_OPTIONS,
    declared_option,
    pop_strategy,
    step_options,
    with_steps,
)
from fedldp.cli.plans import (
    INPUT,
    OUTPUT,
    add,
    answer_options,
    check_paper,
    given_options,
    read_schema,
)
from fedldp.cli.quantile import number_of, quantile_options
from fedldp.cli.runs import NETWORK, TASKS, chosen_model, network_file_option, network_options
from fedldp.errors import DomainError
from fedldp.learn.optimizer import AUTO
from fedldp.learn.settings import PAPER_DECIDES, Settings
from fedldp.mechanisms import mechanism_names
from fedldp.plan.strategies import PAPER_MECHANISM, Directions, Sample
from fedldp.signing import PrivateKey, PublicKey, is_encrypted
from fedldp_fleet.jobs import Job, Schedule
from fedldp_fleet.server import work
from fedldp_fleet.server.folder import PUBLIC, ServerFolder
from fedldp_fleet.server.work import ENDING, JobFile
from fedldp_fleet.signed_jobs import ORDERS

SERVER = click.Path(path_type=Path, exists=True)
FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)

_SCHEDULE = ("opens", "days", "answer_seconds", "round_seconds", "order")


def place_options(command: Any) -> Any:
    """Add the options that say for which server a job is, and who signs it."""
    return add(
        command,
        click.option(
            "--server",
            type=SERVER,
            required=True,
            help="The server's folder, or its public key, server.pub.",
            metavar="FOLDER|FILE",
        ),
        click.option(
            "--key",
            type=INPUT,
            help="The operator's key. Without it, sign the file later, where the key is.",
            metavar="FILE",
        ),
        click.option(
            "--output",
            "-o",
            type=OUTPUT,
            help="Write the job to this file. Without it, a signed job is added to the server's "
            "folder if --server is one; otherwise the file is NAME.job.json.",
            metavar="FILE",
        ),
    )


def schedule_options(command: Any) -> Any:
    """Add the options of a schedule."""
    return add(
        command,
        click.option(
            "--opens",
            type=click.DateTime(),
            help="When agents may answer first, in UTC.  [default: now]",
        ),
        click.option(
            "--days",
            type=click.FloatRange(0, min_open=True),
            default=7.0,
            show_default=True,
            help="How long agents may answer.",
        ),
        click.option(
            "--answer-seconds",
            type=float,
            default=Schedule.answer_seconds,
            show_default=True,
            help="The longest time that an agent needs to compute and deliver an answer.",
        ),
        click.option(
            "--round-seconds",
            type=float,
            default=Schedule.round_seconds,
            show_default=True,
            help="If a job has several rounds: how long agents are admitted to each.",
        ),
        click.option(
            "--order",
            type=click.Choice(ORDERS),
            default=Schedule.order,
            show_default=True,
            help="call: whoever calls answers the open round; lot: each vehicle draws its round "
            "at random.",
        ),
    )


@click.group("job")
def job_group() -> None:
    """Make, sign, add and extend jobs, and write their results.

    \b
    On the operator's machine, which needs server.pub from the server:
    fedldp server job statistic spring --plan plan.json --vehicles 1000 \\
      --server server.pub --key operator.key -o spring.job.json
    On the server's machine:
    fedldp server job add server spring.job.json
    fedldp server job result server spring -o tally.json
    """  # noqa: D301 (click wants the character \b itself)


@job_group.command("statistic")
@click.argument("name")
@click.option(
    "--plan", type=INPUT, required=True, help="A plan or a calendar (JSON).", metavar="FILE"
)
@click.option(
    "--vehicles", type=click.IntRange(1), required=True, help="How many answers are wanted."
)
@click.option("--period", type=click.IntRange(1), help="Which period of a calendar is asked.")
@schedule_options
@place_options
def statistic_command(
    name: str,
    plan: Path,
    vehicles: int,
    period: int | None,
    server: Path,
    key: Path | None,
    output: Path | None,
    **schedule: Any,
) -> None:
    """Ask vehicles for a statistic, with a plan or a calendar.

    \b
    fedldp server job statistic spring --plan plan.json --vehicles 1000 \\
      --server server --key operator.key
    fedldp server job statistic day-3 --plan calendar.json --period 3 \\
      --vehicles 1000 --server server.pub -o day-3.job.json
    """  # noqa: D301 (click wants the character \b itself)
    text = plan.read_text("utf-8", errors="replace")
    job = work.statistic(name, text, vehicles, _schedule(**schedule), period)
    _place(JobFile(job, _public(server)), server, key, output)


@job_group.command("quantile")
@click.argument("name")
@click.option("--schema", type=INPUT, required=True, help="The columns (TOML).", metavar="FILE")
@quantile_options
@click.option(
    "--vehicles", type=click.IntRange(1), required=True, help="How many vehicles answer in all."
)
@schedule_options
@place_options
def quantile_command(
    name: str,
    schema: Path,
    column: str,
    quantile: float,
    epsilon: float,
    confidence: float,
    vehicles: int,
    server: Path,
    key: Path | None,
    output: Path | None,
    **schedule: Any,
) -> None:
    """Find one quantile: each vehicle answers one bit.

    \b
    fedldp server job quantile fast --schema fleet.toml --column speed \\
      --quantile 0.9 --epsilon 1 --vehicles 50000 \\
      --server server --key operator.key

    There are 20 rounds, and each vehicle is asked in one of them. `fedldp
    quantile` simulates this, with the same rules.
    """  # noqa: D301 (click wants the character \b itself)
    number = number_of(read_schema(schema), column)
    when = _schedule(**schedule)
    job = work.quantile(name, number, quantile, epsilon, vehicles, when, confidence)
    _place(JobFile(job, _public(server)), server, key, output)


@job_group.command("training")
@click.argument("name")
@click.option(
    "--schema", type=INPUT, required=True, help="All columns, with the target.", metavar="FILE"
)
@click.option("--target", required=True, help="The column to predict.", metavar="COLUMN")
@click.option(
    "--task",
    type=click.Choice([*TASKS, NETWORK]),
    help="The kind of model.",
)
@network_options
@network_file_option
@click.option(
    "--vehicles", type=click.IntRange(1), required=True, help="How many vehicles answer in all."
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    help="Divide the vehicles among so many rounds.  [default: by the size of a group]",
)
@declared_option(
    Settings,
    "epsilon",
    type=float,
    help="The privacy budget of a vehicle, for all that it sends.",
)
@declared_option(
    Sample,
    "mechanism",
    type=click.Choice([AUTO, *mechanism_names()]),
    help="The mechanism for numbers, one of those that `fedldp mechanisms` shows; auto uses "
    "directions, which need none.",
    metavar="NAME",
)
@declared_option(Settings, "strategy")
@answer_options
@declared_option(Directions, "mean_length", default=None)
@declared_option(Directions, "fleet")
@declared_option(Settings, "bound")
@declared_option(Settings, "group")
@step_options
@declared_option(Settings, "max_iter", "max_rounds")
@declared_option(Settings, "alpha", "regularization")
@declared_option(Settings, "survey")
@declared_option(Settings, "survey_share")
@schedule_options
@place_options
def training_command(
    name: str,
    schema: Path,
    target: str,
    task: str | None,
    hidden: tuple[int, ...],
    activation: str,
    network: Path | None,
    vehicles: int,
    rounds: int | None,
    epsilon: float,
    mechanism: str,
    paper: bool,
    server: Path,
    key: Path | None,
    output: Path | None,
    **options: Any,
) -> None:
    """Train a model: in each round, some vehicles send gradients.

    \b
    fedldp server job training delays --schema flights.toml --target late \\
      --task logistic --epsilon 4 --vehicles 100000 \\
      --server server --key operator.key
    fedldp server job training delays --schema flights.toml --target late \\
      --task logistic --epsilon 4 --vehicles 100000 --paper \\
      --mechanism hm-tp --group 1000 --rate 0.2 --tolerance 1e-6 \\
      --server server.pub -o delays.job.json

    --paper follows the paper exactly: its Algorithm 1 with plain gradient
    steps, its mechanisms, its k and its encoding of categories. The paper
    leaves --group, --rate and --tolerance open: their defaults are auto, auto
    and 1e-6.
    """  # noqa: D301 (click wants the character \b itself)
    from fedldp.cli.runs import goal_of

    schedule = _schedule(**{each: options.pop(each) for each in _SCHEDULE})
    stepping = {each: options.pop(each) for each in STEP_OPTIONS}
    if paper:
        check_paper(*(each for each in options if each in PAPER_DECIDES))
        open_options = {each: options[each] for each in options if each not in PAPER_DECIDES}
        if not given_options("alpha"):
            open_options.pop("alpha")
        chosen = mechanism if given_options("mechanism") else PAPER_MECHANISM
        settings = Settings.paper(epsilon, chosen, **open_options)
    else:
        strategy = pop_strategy(options | {"mechanism": mechanism}, gradients=True)
        others = {each: options[each] for each in options if each not in STRATEGY_OPTIONS}
        settings = Settings(epsilon, strategy, **others)
    if network is None and task is None:
        raise click.UsageError("say which model: --task, or --network.")
    make, goal = chosen_model(task or NETWORK, hidden, activation, network)
    columns = read_schema(schema)
    objective = (goal or goal_of(columns[target])).name
    model = work.first_model(objective, columns, target, make, settings.reference)
    steps = {each: stepping[each] for each in given_options(*stepping)}
    settings = with_steps(settings, model.prior is not None, **steps)
    job = work.training(name, model, settings, vehicles, schedule, rounds)
    _place(JobFile(job, _public(server)), server, key, output)


@job_group.command("more")
@click.argument("name")
@click.option("--vehicles", type=click.IntRange(1), help="The new number of answers in all.")
@click.option("--rounds", type=click.IntRange(1), help="The new number of rounds with gradients.")
@click.option("--closes", type=click.DateTime(), help="The new end, in UTC.")
@place_options
def more_command(
    name: str,
    vehicles: int | None,
    rounds: int | None,
    closes: datetime.datetime | None,
    server: Path,
    key: Path | None,
    output: Path | None,
) -> None:
    """Top up a job: more answers or rounds, or a later end.

    \b
    fedldp server job more spring --vehicles 2000 --server server \\
      --key operator.key

    NAME is a job in the server's folder, or the file of one. Vehicles that have
    answered are not asked again.
    """  # noqa: D301 (click wants the character \b itself)
    from dataclasses import replace

    job = _known(name, server)
    schedule = None
    if closes is not None:
        schedule = replace(job.schedule, closes=closes.replace(tzinfo=datetime.UTC))
    more = work.topped_up(job, vehicles, rounds, schedule)
    _place(JobFile(more, _public(server)), server, key, output)


@job_group.command("sign")
@click.argument("file", type=INPUT)
@click.option("--key", type=INPUT, required=True, help="The operator's key.", metavar="FILE")
def sign_command(file: Path, key: Path) -> None:
    """Sign the file of a job, after you have read what it asks.

    \b
    fedldp server job sign spring.job.json --key operator.key
    """  # noqa: D301 (click wants the character \b itself)
    signed = JobFile.load(file).signed_by(_operator(key))
    signed.save(file)
    click.echo(f"Signed the job {signed.job.name}: {_told(signed.job)}")


@job_group.command("add")
@click.argument("folder", type=FOLDER)
@click.argument("file", type=INPUT)
def add_command(folder: Path, file: Path) -> None:
    """Queue a signed job, or extend the job of the same name.

    \b
    fedldp server job add server spring.job.json

    A running server notices it. If there is a job of this name, the file must
    extend it: more answers or rounds, or a later end. Other changes are refused.
    """  # noqa: D301 (click wants the character \b itself)
    _added(folder, JobFile.load(file))


@job_group.command("result")
@click.argument("folder", type=FOLDER)
@click.argument("name")
@click.option(
    "--output",
    "-o",
    type=OUTPUT,
    help="Write the result to a file.  [default: print it]",
    metavar="FILE",
)
def result_command(folder: Path, name: str, output: Path | None) -> None:
    """Write the result of a job that is done: a tally or a model.

    \b
    fedldp server job result server spring -o tally.json

    Beside the file it writes a summary: how many answers came, how many of them
    do not count, and why the job has ended. `fedldp estimate` and `fedldp
    predict` read it, and warn if answers are missing.
    """  # noqa: D301 (click wants the character \b itself)
    from fedldp.storage import files
    from fedldp_fleet.server.status import summary_of

    store = ServerFolder.load(folder).store()
    with store.reading() as transaction:
        row = transaction.job(name)
        summary = None if row is None else summary_of(transaction, row)
    store.close()
    if row is None or summary is None or not row.result:
        state = "there is no such job" if row is None else f"it is {row.state} {row.reason}".strip()
        raise DomainError(f"the job {name!r:.80} has no result: {state}.")
    if not summary.complete:
        click.echo(f"The job {name} ended with {summary}", err=True)
    if output is None:
        click.echo(row.result)
    else:
        files.write(output, row.result)
        click.echo(
            f"Wrote {output}, and {summary.save(output)} with what is missing in it.", err=True
        )


def _schedule(
    opens: datetime.datetime | None,
    days: float,
    answer_seconds: float,
    round_seconds: float,
    order: str,
) -> Schedule:
    now = datetime.datetime.now(datetime.UTC)
    opens = now if opens is None else opens.replace(tzinfo=datetime.UTC)
    closes = opens + datetime.timedelta(days=days)
    return Schedule(opens, closes, answer_seconds, round_seconds, order)


def _public(server: Path) -> PublicKey:
    return PublicKey.load(server / PUBLIC if server.is_dir() else server)


def _operator(path: Path) -> PrivateKey:
    passphrase = None
    if is_encrypted(path):
        passphrase = click.prompt(f"Passphrase of {path}", hide_input=True, err=True)
    return PrivateKey.load(path, passphrase)


def _known(name: str, server: Path) -> Job:
    """Return a job from its file, or from the server's folder."""
    from fedldp_fleet.jobs import read_job

    if Path(name).is_file():
        return JobFile.load(Path(name)).job
    if not server.is_dir():
        raise DomainError(f"there is no file {name!r:.80}. Give the file of the job to extend.")
    store = ServerFolder.load(server).store()
    with store.reading() as transaction:
        row = transaction.job(name)
    store.close()
    if row is None:
        raise DomainError(f"the server has no job {name!r:.80}.")
    return read_job(row.document)


def _place(file: JobFile, server: Path, key: Path | None, output: Path | None) -> None:
    """Sign a job if there is a key; add it to the server if that is here, or write it."""
    if key is not None:
        file = file.signed_by(_operator(key))
    if file.signed and server.is_dir() and output is None:
        _added(server, file)
        return
    path = output or Path(f"{file.job.name}{ENDING}")
    file.save(path)
    rest = "" if file.signed else f" Sign it: fedldp server job sign {path} --key operator.key"
    click.echo(f"Wrote {path}: {_told(file.job)}{rest}")


def _added(folder: Path, file: JobFile) -> None:
    from fedldp_fleet.server import administration, audit

    found = ServerFolder.load(folder)
    store = found.store()
    with store.transaction() as transaction:
        done = administration.add_job(found, transaction, file, audit.person())
    store.close()
    click.echo(f"The job {file.job.name} is {done}: {_told(file.job)}")


def _told(job: Job) -> str:
    from fedldp_fleet.jobs import rounds_of, wanted_of

    rounds = rounds_of(job)
    return f"{wanted_of(job):,} answers in {rounds:,} round{'s' * (rounds > 1)}."
