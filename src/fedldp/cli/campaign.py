"""`fedldp campaign`: ask the vehicles of a fleet over MQTT, and count their answers."""

import contextlib
import json
import sys
from collections import Counter as Numbers
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from fedldp._internal.text import counted
from fedldp.campaigns import config
from fedldp.campaigns.campaign import Campaign, utc_now
from fedldp.campaigns.config import ServerConfig
from fedldp.campaigns.counter import GRACE, Counter
from fedldp.campaigns.store import Store, merge
from fedldp.cli.fleet.parts import FAILED, FOLDER, STOPPED, log_options
from fedldp.cli.plans import INPUT, OUTPUT, read_plan
from fedldp.errors import DomainError
from fedldp.signing import format_time

_SHOWN = 10  # identities with the most answers

_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


@click.group("campaign")
def campaign_group() -> None:
    """Ask vehicles over MQTT: publish, count, status, close.

    \b
    fedldp campaign init server --fleet north --broker mqtts://broker:8883
    fedldp campaign publish server plan.json --job spring --hours 48
    fedldp campaign count server/spring-1.campaign     on one machine or on many
    fedldp campaign status server
    fedldp campaign close server/spring-1.campaign -o tally.json
    fedldp estimate plan.json tally.json

    A campaign asks every vehicle of a fleet one plan, once. The broker keeps
    it, signed, for vehicles that wake up later. Each vehicle (fedldp vehicle)
    sends the same bytes until a counter has stored and acknowledged them.

    A vehicle that saw its acknowledgement is counted exactly once, every other
    vehicle at most once, and nobody spends twice, whatever the broker loses.

    Needs the extras cli and mqtt, and an MQTT 5 broker such as mosquitto. In a
    clone of fedldp, run pip install '.[cli,mqtt]'
    """  # noqa: D301 (click wants the character \b itself)


@campaign_group.command("init")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--fleet", required=True, help="The name of the fleet, a part of all topics.")
@click.option("--broker", required=True, help="mqtts://HOST:PORT, or mqtt:// without TLS.")
def init_command(folder: Path, fleet: str, broker: str) -> None:
    """Write campaign.toml and a new key that signs campaigns.

    \b
    fedldp campaign init server --fleet north --broker mqtts://broker:8883

    Copy FOLDER/operator.pub to every vehicle: it answers campaigns of this key
    alone. FOLDER/operator.key stays where campaigns are signed; counters do not
    need it.
    """  # noqa: D301 (click wants the character \b itself)
    ServerConfig.create(folder, fleet, broker)
    click.echo(
        f"Wrote {folder / config.SERVER_FILE}, {folder / config.SIGNER} and "
        f"{folder / config.OPERATOR}. Copy the last one to every vehicle."
    )


@campaign_group.command("publish")
@click.argument("folder", type=FOLDER)
@click.argument("plan_file", metavar="PLAN", type=INPUT)
@click.option("--job", required=True, help="The name of the job.", metavar="NAME")
@click.option(
    "--round",
    "round_",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="The round of the job. A vehicle that has accepted a round refuses earlier ones.",
)
@click.option(
    "--hours",
    type=click.FloatRange(0, min_open=True),
    default=24.0,
    show_default=True,
    help="How many hours vehicles have to answer, until the deadline.",
)
@click.option(
    "--sign-only",
    is_flag=True,
    help="Only write the signed file, for a machine without network: counters publish it.",
)
@_json_option
def publish_command(
    folder: Path,
    plan_file: Path,
    job: str,
    round_: int,
    hours: float,
    sign_only: bool,
    as_json: bool,
) -> None:
    """Sign a campaign and publish it.

    \b
    fedldp campaign publish server plan.json --job spring --hours 48

    FOLDER contains campaign.toml. The signed campaign is written to
    FOLDER/JOB-ROUND.campaign, which counters need, and published for the
    vehicles. Publish it again with the same plan to change the deadline, and
    start its counters again: they end at the deadline that they have read.

    Start a counter first or right afterwards: without one, answers are lost and
    sent again later.
    """  # noqa: D301 (click wants the character \b itself)
    server = ServerConfig.load(folder)
    deadline = utc_now().replace(microsecond=0) + timedelta(hours=hours)
    campaign, text = server.sign(read_plan(plan_file), job, round_, deadline)
    path = server.path(campaign)
    if not sign_only:
        config.publish(campaign, text, server.broker)
    if as_json:
        click.echo(json.dumps(_described(campaign) | {"file": str(path)}, indent=2))
        return
    done = "Signed" if sign_only else "Published"
    click.echo(
        f"{done} round {round_} of job {job}, open until {format_time(deadline)}.\n"
        f"Count the answers with: fedldp campaign count {path}"
    )


@campaign_group.command("count")
@click.argument("campaign_file", metavar="CAMPAIGN", type=INPUT)
@click.option(
    "--counter",
    default="counter",
    show_default=True,
    help="The name of this counter, if there are several in the folder.",
    metavar="NAME",
)
@click.option(
    "--grace",
    type=click.FloatRange(0),
    default=GRACE,
    show_default=True,
    help="Seconds after the deadline in which answers are still taken.",
)
@log_options
def count_command(campaign_file: Path, counter: str, grace: float) -> None:
    """Receive, store and acknowledge answers until the deadline.

    \b
    fedldp campaign count server/spring-1.campaign
    fedldp campaign count server/spring-1.campaign --counter second

    CAMPAIGN is the file that `publish` has written, in a folder with
    campaign.toml. Run as many counters as you like, on any machines: the broker
    divides the answers among them. Each has a file of its own, next to
    CAMPAIGN: JOB-ROUND.NAME.db. Never delete it before the round is closed:
    what it has acknowledged is nowhere else.

    If a counter is killed or stopped, start it again with the same name. If the
    broker was restarted, the counter subscribes and publishes the campaign
    again.

    \b
    Exit status:
    0  the round has ended and the file is finished
    1  an error, which is printed
    2  invalid command line
    4  a signal stopped the counter before the round ended: start it again
    """  # noqa: D301 (click wants the character \b itself)
    server = ServerConfig.load(campaign_file.parent)
    path = config.counter_file(campaign_file, counter)
    text = campaign_file.read_text("utf-8")
    with config.alone(path), Store(path, text) as store, config.until_stopped() as stop:
        identities = server.entries.get("identities", False)
        counter_ = Counter(store, server.broker.connect, grace=grace, identities=identities)
        ended = counter_.run(*stop)
        click.echo(f"{path}: {counted(store.received, 'answer')}.")
    if not ended:
        sys.exit(STOPPED)


@campaign_group.command("status")
@click.argument("folder", type=FOLDER)
@_json_option
def status_command(folder: Path, as_json: bool) -> None:
    """Show the campaigns of a folder and the answers so far.

    \b
    fedldp campaign status server
    fedldp campaign status server --json

    A vehicle may have sent its answer to two counters: until the round is
    closed, it counts for both here.
    """  # noqa: D301 (click wants the character \b itself)
    server = ServerConfig.load(folder)
    found = [_status(path) for path in server.campaigns()]
    for each in found:
        _tell_senders(each["senders"])
    if as_json:
        click.echo(json.dumps({"fleet": server.entries["fleet"], "campaigns": found}, indent=2))
        return
    if not found:
        click.echo(f"There are no campaigns in {folder}. Publish one: fedldp campaign publish.")
    for each in found:
        click.echo(
            f"job {each['job']}, round {each['round']}: {each['state']}, deadline "
            f"{each['deadline']}, {counted(each['answers'], 'answer')} from "
            f"{_named(each['senders'])}"
        )
        for counter in each["counters"]:
            refused = ", ".join(f"{reason} {n:,}" for reason, n in counter["refused"].items())
            click.echo(
                f"  {counter['file']}: {counted(counter['answers'], 'answer')}"
                f"{', finished' if counter['finished'] else ''}"
                f"{f'; refused messages: {refused}' if refused else ''}"
            )


@campaign_group.command("close")
@click.argument("campaign_file", metavar="CAMPAIGN", type=INPUT)
@click.argument("files", nargs=-1, type=INPUT)
@click.option("--output", "-o", type=OUTPUT, required=True, help="The tally.", metavar="FILE")
@click.option(
    "--early",
    is_flag=True,
    help="End the round now. Every file must be that of the counter itself, not a copy of it: "
    "from now on its counter acknowledges nothing.",
)
@click.option("--offline", is_flag=True, help="Do not remove the campaign from the broker.")
@_json_option
def close_command(
    campaign_file: Path,
    files: tuple[Path, ...],
    output: Path,
    early: bool,
    offline: bool,
    as_json: bool,
) -> None:
    """Close a round: merge the files of its counters into one tally.

    \b
    fedldp campaign close server/spring-1.campaign -o tally.json
    fedldp campaign close server/spring-1.campaign a.db b.db -o tally.json

    Give the files of all counters; by default those next to CAMPAIGN. Copy the
    files of other machines when their counters have ended. An answer that
    several counters have counts once.

    FILE.manifest, next to the tally, names the round and the SHA-256 of its
    answers: the same round cannot be merged twice.

    \b
    Exit status:
    0  the tally is written
    1  an error, which is printed: for example, a counter has not ended
    2  invalid command line
    3  no vehicle has answered; nothing is written
    """  # noqa: D301 (click wants the character \b itself)
    text = campaign_file.read_text("utf-8")
    campaign = Campaign.own(text)
    paths = list(files) or config.counters(campaign_file)
    with contextlib.ExitStack() as stack:
        stores = [stack.enter_context(Store(path)) for path in paths]
        if early:
            for store in stores:
                store.finish()
        found = merge(stores)
        if stores[0].campaign.plan != campaign.plan or stores[0].campaign.name != campaign.name:
            raise DomainError(f"{stores[0].path} is for another campaign than {campaign_file}.")
    if not offline:
        _withdraw(campaign, text, campaign_file.parent)
    vehicles = found.counted.tally.reports
    if not vehicles:
        click.echo("fedldp: no vehicle has answered.", err=True)
        sys.exit(FAILED)
    found.counted.save(output)
    senders = _senders(found.identities)
    _tell_senders(senders)
    if as_json:
        document = _described(campaign) | {
            "tally": str(output),
            "vehicles": vehicles,
            "repeated": found.repeated,
            "conflicts": found.conflicts,
            "refused": found.refused,
            "senders": senders,
        }
        click.echo(json.dumps(document, indent=2))
        return
    click.echo(f"{counted(vehicles, 'vehicle')} in {output}, from {_named(senders)}.")
    if found.repeated:
        click.echo(f"Several counters had {counted(found.repeated, 'answer')}; each counts once.")
    if found.conflicts:
        click.echo(
            f"{counted(found.conflicts, 'identifier')} came with different packets and do not "
            "count: a vehicle draws again instead of sending its bytes again, or somebody "
            "forges answers."
        )
    if found.refused:
        reasons = ", ".join(f"{reason} {number:,}" for reason, number in found.refused.items())
        click.echo(f"Refused messages, by reason: {reasons}.")


def _withdraw(campaign: Campaign, text: str, folder: Path) -> None:
    try:
        if not config.withdraw(campaign, text, ServerConfig.load(folder).broker):
            click.echo("fedldp: a later campaign of this job is published; it stays.", err=True)
    except OSError as error:
        click.echo(
            f"fedldp: warning: the campaign may still be on the broker: {error}. Vehicles ignore "
            "it after its deadline.",
            err=True,
        )


def _senders(identities: Mapping[str, int]) -> dict[str, Any]:
    """Return how many answers came from how many identities, as JSON."""
    named = Numbers({name: n for name, n in identities.items() if name})
    more = [[name, n] for name, n in named.most_common(_SHOWN) if n > 1]
    return {
        "identities": len(named),
        "several_answers": sum(n > 1 for n in named.values()),
        "most_answers": more,
        "answers_without_identity": identities.get("", 0),
    }


def _named(found: dict[str, Any]) -> str:
    return counted(found["identities"], "known sender")


def _tell_senders(found: dict[str, Any]) -> None:
    """Warn of identities with several answers, and of answers without one."""
    if number := found["several_answers"]:
        names = ", ".join(f"{name!r} ({n:,})" for name, n in found["most_answers"])
        click.echo(
            f"fedldp: warning: {counted(number, 'sender')} whom the broker knows sent "
            f"several answers in this round: {names}. A vehicle answers a round once: vehicles "
            "share a certificate, or somebody invents answers.",
            err=True,
        )
    if number := found["answers_without_identity"]:
        click.echo(
            f"fedldp: warning: {counted(number, 'answer')} without an identity: one sender may "
            "have sent all of them. Let vehicles name themselves, and the broker check it.",
            err=True,
        )


def _described(campaign: Campaign) -> dict[str, Any]:
    return {
        "job": campaign.job,
        "round": campaign.round,
        "issued": format_time(campaign.issued),
        "deadline": format_time(campaign.deadline),
    }


def _status(path: Path) -> dict[str, Any]:
    campaign = Campaign.own(path.read_text("utf-8"))
    found: list[dict[str, Any]] = []
    identities = Numbers[str]()
    for each in config.counters(path):
        with Store(each) as store:
            identities.update(store.identities)
            found.append(
                {
                    "file": each.name,
                    "answers": store.received,
                    "refused": store.refused,
                    "finished": store.finished,
                }
            )
    ended = found and all(each["finished"] for each in found)
    is_open = utc_now() < campaign.deadline and not ended
    return _described(campaign) | {
        "file": path.name,
        "state": "open" if is_open else "ended",
        "answers": sum(each["answers"] for each in found),
        "senders": _senders(identities),
        "counters": found,
    }
