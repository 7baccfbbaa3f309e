"""A mod for an existing Flower app: it turns each reply into one private report.

    app = ClientApp(mods=[LDPMod("plan.json", ledger="/var/lib/fleet/ledger.db", cap=4.0)])

See docs/flower-mod.md, also for what a mod cannot guarantee.
"""

import hashlib
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, final

from fedldp import report, vehicle
from fedldp._internal import packing
from fedldp.errors import DomainError, MissingExtra, WireError
from fedldp.fleet.flower.messages import packed, unpacked
from fedldp.ledger import Ledger, Produce, check_answers_per_job, check_job
from fedldp.plan import Plan, for_vehicle
from fedldp.tally import Tally

try:
    from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
except ImportError as error:
    raise MissingExtra("flwr", "flower") from error

App = Callable[[Message, Context], Message]
PlanOrPath = Plan | str | os.PathLike[str]
VehicleId = str | Callable[[Context], str]

_log = logging.getLogger(__name__)


@final
class LDPMod:
    """A mod that replaces each reply of a ClientApp by one private report.

    The app's reply is the row that the report is about: its arrays, flattened, if they have as many
    numbers as the plan asks for, and otherwise its metrics and settings by name. Missing values
    become the plan's public default, even if the app fails: the data never cause a refusal.

    The ledger records the report and its cost before it is sent. The same question gets the same
    report again, without a call of the app. A refusal is as long as a report.

    Parameters
    ----------
    plan : Plan, str or os.PathLike
        What to report and at which epsilon: a plan, or the path of its JSON file.
    ledger : str or os.PathLike
        The file that records what each vehicle has spent. It is created if it does not exist.
        Never delete it, and never restore a backup of it.
    cap : float, str or Fraction
        The most that a vehicle may spend in its life, over all jobs.
    vehicle_id : str or callable, default="vehicle"
        Names the vehicle whose budget is spent. If one ledger serves many nodes, give a function
        that takes Flower's context and returns the id.
    answers : str, default="train"
        The only type of message that is answered. Answering Flower's `evaluate` messages too
        would double the cost.
    job : str, optional
        The name of the job. If given, a vehicle answers at most `answers_per_job` questions of it,
        in any number of Flower runs, even if its cap would allow more. Without a name, only the cap
        limits the number of answers.
    answers_per_job : int, default=1
        How many questions of one job a vehicle answers.

    Attributes
    ----------
    plan : Plan
        The plan.
    cap : Fraction
        The cap as an exact number.
    ledger : Path
        The absolute path of the ledger.
    vehicle_id, answers, job, answers_per_job
        As given.

    Raises
    ------
    DomainError
        If the cap, the job or `answers_per_job` is invalid, or one report would exceed the cap.
    PrivacyError
        If the tables of the plan leak more than they claim.

    See Also
    --------
    fedldp.fleet.flower.mod.tally : Counts the reports on the server.

    Examples
    --------
    >>> import tempfile, time
    >>> from fedldp import Schema
    >>> from flwr.app import Metadata
    >>> from flwr.clientapp import ClientApp
    >>> folder = tempfile.TemporaryDirectory()
    >>> plan = Plan(Schema.of(speed=(0, 50)), epsilon=1.0)
    >>> app = ClientApp(mods=[LDPMod(plan, ledger=f"{folder.name}/ledger.db", cap=1.0)])
    >>> @app.train()
    ... def train(message, context):
    ...     measured = MetricRecord({"speed": 31.0, "num-examples": 17})
    ...     return Message(RecordDict({"metrics": measured}), reply_to=message)
    >>> def ask(config):  # as Flower does
    ...     content = RecordDict({"config": ConfigRecord(config)})
    ...     metadata = Metadata(1, "", 1, 7, "", "", time.time(), 60.0, "train")
    ...     message = Message(content=content, metadata=metadata)
    ...     return app(message, Context(1, 7, {}, RecordDict(), {}))
    >>> first, again, other = ask({"round": 1}), ask({"round": 1}), ask({"round": 2})
    >>> first.content == again.content
    True
    >>> tally(plan, [first]).reports, tally(plan, [other]).reports  # the budget is spent
    (1, 0)
    >>> folder.cleanup()
    """

    def __init__(
        self,
        plan: PlanOrPath,
        *,
        ledger: str | os.PathLike[str],
        cap: float | str | Fraction,
        vehicle_id: VehicleId = "vehicle",
        answers: str = "train",
        job: str | None = None,
        answers_per_job: int = 1,
    ) -> None:
        self.plan = _plan(plan)
        try:
            self.cap = vehicle.exact(cap)
        except ValueError:
            raise DomainError(f"cap must be a positive number; got {cap!r}.") from None
        self.ledger = Path(ledger).resolve()  # opened where it is used: that is another process
        self.vehicle_id, self.answers = vehicle_id, answers
        check_job(job)
        self.job, self.answers_per_job = job, check_answers_per_job(answers_per_job)
        _checked(self.plan.to_json(), self.cap)

    def __call__(self, message: Message, context: Context, call_next: App) -> Message:
        """Answer a message with a report, or with a refusal of the same length.

        Flower calls this method; see `ClientApp(mods=[...])`.

        Parameters
        ----------
        message : flwr.app.Message
            The question of the server.
        context : flwr.app.Context
            The context of the node.
        call_next : callable
            The ClientApp, or the next mod before it.

        Returns
        -------
        flwr.app.Message
            A reply that contains the report, or zeros if the question is refused. The reason for a
            refusal is logged on this machine only.
        """
        reply = Message(packed(bytes(_size(self.plan))), reply_to=message)
        try:
            reply.content = packed(self._answer(message, context, call_next))
        except Exception as error:  # it stays on this machine
            _log.warning("refused: %s: %s", type(error).__name__, error)
        return reply

    def _answer(self, message: Message, context: Context, call_next: App) -> bytes:
        kind = message.metadata.message_type
        if kind != self.answers:
            raise DomainError(f"only messages of type {self.answers!r} are answered; got {kind!r}.")
        who = self.vehicle_id if isinstance(self.vehicle_id, str) else self.vehicle_id(context)
        checked = _checked(self.plan.to_json(), self.cap)
        request = _digest(checked.fingerprint, kind, message.content)
        with Ledger(self.ledger, self.cap, answers_per_job=self.answers_per_job) as ledger:

            def release(produce: Produce) -> bytes:
                # Flower's run is a label and not the job: its id changes when a run is resumed.
                run = str(message.metadata.run_id)
                return ledger.release(who, checked.epsilon, request, produce, run=run, job=self.job)

            try:
                return release(_ask_the_app)
            except _Unanswered:
                # The app may take minutes and start processes: not inside a transaction.
                row = self._row(message, context, call_next)
            return release(lambda: checked.report(row))

    def _row(self, message: Message, context: Context, call_next: App) -> Any:
        """Return the values in the app's reply; none if it fails, so that all count as missing."""
        try:
            return _values(call_next(message, context).content, self.plan.schema.dimensions)
        except (Exception, SystemExit) as error:
            _log.warning("the app failed: %s: %s", type(error).__name__, error)
            return {}


def tally(plan: PlanOrPath, replies: Iterable[Message]) -> Tally:
    """Count the reports among some replies, in the `aggregate_train` of a strategy.

    Only valid reports of one vehicle count. Refusals, errors and anything that a node may have made
    up are logged and ignored: there are `len(replies) - tally.reports` of them.

    Parameters
    ----------
    plan : Plan, str or os.PathLike
        The plan that the vehicles answer, or the path of its JSON file.
    replies : iterable of flwr.app.Message
        The replies of ClientApps with an `LDPMod`.

    Returns
    -------
    Tally
        The counts, from which `Tally.estimate` computes means and frequencies.

    Examples
    --------
    >>> import fedldp
    >>> tally(fedldp.Plan(fedldp.Schema.of(speed=(0, 50)), epsilon=1.0), []).reports
    0
    """
    plan = _plan(plan)
    total, reasons = plan.tally(), Counter[str]()
    for reply in replies:
        try:
            total += _parsed(plan, reply)
        except WireError as error:
            reasons[str(error)] += 1
    for reason, count in reasons.items():
        _log.warning("%d replies were not counted: %s", count, reason)
    return total


def _parsed(plan: Plan, reply: Message) -> Tally:
    if not reply.has_content():
        raise WireError("expected a report; got an error from Flower.")
    data = unpacked(reply.content)
    if data == bytes(_size(plan)):
        raise WireError("the vehicle refused.")
    found = plan.parse(data)
    if found.reports != 1:
        raise WireError(f"a reply must contain one report; got {found.reports}.")
    return found


def _size(plan: Plan) -> int:
    return report.HEADER + packing.length(1, plan.bits)


def _plan(given: PlanOrPath) -> Plan:
    return given if isinstance(given, Plan) else Plan.from_json(Path(given).read_text("utf-8"))


_checked = lru_cache(maxsize=4)(for_vehicle)  # one process may answer for many nodes


def _digest(plan: str, kind: str, content: RecordDict) -> str:
    """Return a SHA-256 of the content of a question, without Flower's ids."""
    parts = sorted((name, _canonical(record)) for name, record in content.items())
    return hashlib.sha256(repr((plan, kind, parts)).encode()).hexdigest()


def _canonical(record: ArrayRecord | MetricRecord | ConfigRecord) -> str:
    if not isinstance(record, ArrayRecord):
        return repr((type(record).__name__, sorted(record.items())))
    arrays = [  # in their order, by which apps read them
        (name, each.dtype, tuple(each.shape), each.stype, hashlib.sha256(each.data).digest())
        for name, each in record.items()
    ]
    return repr((type(record).__name__, arrays))


def _values(content: RecordDict, count: int) -> list[Any] | dict[str, Any]:
    """Return the numbers in all arrays if there are `count` of them, else all values by name."""
    numbers: list[Any] = []
    named: dict[str, Any] = {}
    for record in content.values():
        if isinstance(record, ArrayRecord):
            for array in record.to_numpy_ndarrays():
                numbers += array.ravel().tolist()
        else:
            named.update(record)
    return numbers if len(numbers) == count else named


class _Unanswered(Exception):
    """The ledger has no answer yet, and the budget covers one."""


def _ask_the_app() -> bytes:
    raise _Unanswered
