"""For those who have a Flower app already: a mod that turns each reply into one private report.

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
    """Lets a report out of a ClientApp, and nothing else that the app says.

    The app's reply is the row of the report: its arrays, flattened, if they are as many numbers as
    the plan asks for, and otherwise its metrics and settings by their names. What is missing
    becomes the plan's public default, even if the app fails: the data never cause a refusal.

    The report is burnt in the ledger, under a cap for life, before it leaves. The same question
    gets the same report, and the app is not called for it. A refusal is as long as a report.

    `vehicle_id` names whose budget it is: a text or, where one ledger serves many nodes, a function
    that finds the text in the context. `answers` is the one type of messages that are answered: a
    round of Flower's `evaluate` would cost as much again.

    `job` names what the reports are for. With it, a vehicle answers `answers_per_job` questions of
    that job, whatever its cap allows, in however many of Flower's runs. Without it, only the cap
    limits how many questions are answered.

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
        """Answer a message; it is a refusal until the ledger has paid for something better."""
        reply = Message(packed(bytes(_size(self.plan))), reply_to=message)
        try:
            reply.content = packed(self._answer(message, context, call_next))
        except Exception as error:  # it stays on this machine
            _log.warning("refused: %s: %s", type(error).__name__, error)
        return reply

    def _answer(self, message: Message, context: Context, call_next: App) -> bytes:
        kind = message.metadata.message_type
        if kind != self.answers:
            raise DomainError(f"messages of type {self.answers!r} are answered; got {kind!r}.")
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
                # The app may take minutes, and start processes: not in the midst of a transaction.
                row = self._row(message, context, call_next)
            return release(lambda: checked.report(row))

    def _row(self, message: Message, context: Context, call_next: App) -> Any:
        """Return what the app says, and nothing if it fails: then all of it is missing."""
        try:
            return _values(call_next(message, context).content, self.plan.schema.dimensions)
        except (Exception, SystemExit) as error:
            _log.warning("the app failed: %s: %s", type(error).__name__, error)
            return {}


def tally(plan: PlanOrPath, replies: Iterable[Message]) -> Tally:
    """Return what the reports among some replies say, for a strategy's `aggregate_train`.

    What is no report of just one vehicle counts nothing: refusals, errors, and whatever a node
    may have made up. So `len(replies) - tally.reports` have refused or failed.
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
        raise WireError("an error of Flower's, in the place of a report.")
    data = unpacked(reply.content)
    if data == bytes(_size(plan)):
        raise WireError("a refusal.")
    found = plan.parse(data)
    if found.reports != 1:
        raise WireError(f"a reply has the report of one vehicle; got {found.reports}.")
    return found


def _size(plan: Plan) -> int:
    return report.HEADER + packing.length(1, plan.bits)


def _plan(given: PlanOrPath) -> Plan:
    return given if isinstance(given, Plan) else Plan.from_json(Path(given).read_text("utf-8"))


_checked = lru_cache(maxsize=4)(for_vehicle)  # one process may answer for many nodes


def _digest(plan: str, kind: str, content: RecordDict) -> str:
    """Return a SHA-256 of a question: of all that is asked, and none of Flower's ids."""
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
    """Return all numbers in the arrays if they are so many, and else all values by their names."""
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
    """There is no answer in the ledger yet, and there is budget for one."""


def _ask_the_app() -> bytes:
    raise _Unanswered
