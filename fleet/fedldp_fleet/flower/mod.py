"""A mod for an existing Flower app: it turns each reply into one private report.

    app = ClientApp(mods=[LDPMod(PLAN, ledger="/var/lib/fleet.db", cap=4.0, delta=True)])

See docs/flower-mod.md, also for what a mod cannot guarantee.
"""

import contextlib
import hashlib
import logging
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    Metadata,
    MetricRecord,
    RecordDict,
    UserConfig,
)

from fedldp import vehicle
from fedldp.budget.ledger import Ledger, check_answers_per_job, check_job
from fedldp.budget.vehicle import ONLY_VEHICLE, PaidAnswer, Vehicle, for_vehicle
from fedldp.errors import DomainError, ImplausibleWarning, WireError
from fedldp.plan import report
from fedldp.plan.plan import Plan
from fedldp.results.plausibility import FALSE_ALARM, equal_reports
from fedldp.results.tally import Tally
from fedldp.schema.quality import DataQuality
from fedldp_fleet.flower.arrays import difference, only_arrays, untrained, vector, weights
from fedldp_fleet.flower.messages import DELTA, PLAN, log, node_log, packed, unpacked
from fedldp_fleet.library import Floats, counted, listed, packing

App = Callable[[Message, Context], Message]
PlanOrPath = Plan | str | os.PathLike[str]
VehicleId = str | Callable[[Context], str]

PARTITION = "partition-id"  # by which the nodes of a simulation are told apart
REFUSED = "the vehicle refused."


@final
class LDPMod:
    """A mod that replaces each reply of a ClientApp by one private report.

    The app's reply is the row that the report is about: its arrays, flattened, if they have as many
    numbers as the plan asks for, and otherwise its metrics and settings by name. With `delta`, it
    is how far the app has moved the arrays that it received, without integers and running
    statistics: these are not trained. Missing values become the plan's public default, even if the
    app fails, whatever it raises: the data never cause a refusal.

    The ledger records the report and its cost before it is sent. The same question gets the same
    report again, without a call of the app; so does every question if all attributes of the plan
    are declared constant. A refusal is as long as a report. Repeats, refusals and replies that do
    not fit the plan are logged on this machine alone, by the logger `flwr.fedldp.node`.

    Parameters
    ----------
    plan : Plan, str or os.PathLike
        What to report and at which epsilon: a plan, or the path of its JSON file.
    ledger : str or os.PathLike
        The file that records what each vehicle has spent. `fedldp ledger init` makes it, once in
        the life of a node. Never delete it, and never restore a backup of it.
    cap : float, str or Fraction
        The most that a vehicle may spend in its life, over all jobs.
    delta : bool, default=False
        Report how far the arrays in the app's reply are from those in the question. So handlers
        that return the trained model, as most do, stay as they are.
    vehicle_id : str or callable, optional
        Names the vehicle whose budget is spent: an id, or a function that takes Flower's context
        and returns one. By default it is the `partition-id` in the node's configuration, as in a
        simulation, or "vehicle" without one. A ledger in which only another id has spent anything
        is refused then.
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
    delta, vehicle_id, answers, job, answers_per_job
        As given.

    Raises
    ------
    DomainError
        If the cap, the vehicle_id, the job or `answers_per_job` is invalid, or the plan does not
        exist.
    PrivacyError
        If the tables of the plan leak more than they claim, or one report would exceed the cap.
    WireError
        If the ledger is missing or damaged.

    See Also
    --------
    fedldp_fleet.flower.private : Makes a strategy that adds up the reports, on the server.
    fedldp_fleet.flower.tally : Counts the reports on the server.

    Examples
    --------
    >>> import tempfile, time
    >>> import fedldp.budget.ledger
    >>> from fedldp import Schema
    >>> from flwr.app import Metadata
    >>> from flwr.clientapp import ClientApp
    >>> folder = tempfile.TemporaryDirectory()
    >>> Ledger.create(f"{folder.name}/ledger.db", cap=1.0).close()  # once in the life of a node
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
        delta: bool = False,
        vehicle_id: VehicleId | None = None,
        answers: str = "train",
        job: str | None = None,
        answers_per_job: int = 1,
    ) -> None:
        self.plan = plan_of(plan)
        try:
            self.cap = vehicle.exact(cap)
        except ValueError:
            raise DomainError(f"cap must be a positive number; got {cap!r}.") from None
        self.ledger = Path(ledger).resolve()  # opened where it is used: that is another process
        if vehicle_id is not None and not callable(vehicle_id):
            _check_id(vehicle_id)
        self.delta, self.vehicle_id, self.answers = delta, vehicle_id, answers
        check_job(job)
        self.job, self.answers_per_job = job, check_answers_per_job(answers_per_job)
        _checked(self.plan.to_json(), self.cap)
        self._opened().close()

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
        if isinstance(context, _Rehearsal):
            context.found = self._rehearse(message, context, call_next)
            return reply
        try:
            reply.content = packed(self._answer(message, context, call_next))
        except Exception as error:  # it stays on this machine
            _tell(logging.WARNING, f"LDPMod refused a question: {_described(error)}")
        return reply

    def dry_run(
        self,
        app: App,
        content: RecordDict,
        *,
        node_config: UserConfig | None = None,
        run_config: UserConfig | None = None,
    ) -> DataQuality:
        """Put a question to the app, raise if its answer would be no use, and pay nothing.

        Call it on the node, before the app goes into a run. It checks the plan against the
        question, the vehicle's id and budget, the app's reply, and whether another mod changes what
        this one sends. Whatever the app raises is raised. It logs how long the update is, which
        helps to choose the plan's length: take the median of several nodes or runs, with data that
        are public or your own.

        Parameters
        ----------
        app : callable
            The `ClientApp` with this mod.
        content : flwr.app.RecordDict
            What the server will send: mostly the record "arrays" and the record "config".
        node_config : dict, optional
            The configuration of the node.
        run_config : dict, optional
            The configuration of the run.

        Returns
        -------
        DataQuality
            Which values would be clipped, for the owner of the data.

        Raises
        ------
        DomainError
            If something does not fit. The message says what.
        BudgetError
            If the vehicle cannot afford an answer.

        Examples
        --------
        >>> import fedldp.budget.ledger, tempfile
        >>> from fedldp import Schema
        >>> from flwr.clientapp import ClientApp
        >>> plan = Plan(Schema.vector(2, length=1.0), epsilon=1.0, strategy="directions")
        >>> path = tempfile.mkdtemp() + "/ledger.db"
        >>> Ledger.create(path, cap=1.0).close()
        >>> mod = LDPMod(plan, ledger=path, cap=1.0, delta=True)
        >>> app = ClientApp(mods=[mod])
        >>> @app.train()
        ... def train(message, context):
        ...     return Message(RecordDict({"arrays": ArrayRecord([np.ones(3)])}), reply_to=message)
        >>> mod.dry_run(app, RecordDict({"arrays": ArrayRecord([np.zeros(2)])}))
        Traceback (most recent call last):
        fedldp.errors.DomainError: the reply must have the arrays of the question, 1 array (0 ...
        """
        metadata = Metadata(0, "", 0, 0, "", "", time.time(), 3600.0, self.answers)
        context = _Rehearsal(0, 0, node_config or {}, RecordDict(), run_config or {})
        question = Message(content=content, metadata=metadata)  # type: ignore[call-overload]
        reply = app(question, context)
        if context.found is None:
            raise DomainError("the app must have this mod: ClientApp(mods=[mod]).")
        if not reply.has_content() or reply.content != packed(bytes(_size(self.plan))):
            raise DomainError(
                "another mod changes what LDPMod sends, so that a server could not count it: put "
                "LDPMod first in the list of mods."
            )
        return context.found

    def _answer(self, message: Message, context: Context, call_next: App) -> bytes:
        question = self._question(message, context)
        plan, who = question.checked, question.vehicle_id

        def row() -> Any:
            try:
                found = self._read(call_next(message, context).content, question.received)
                self._quality(found)  # it can fail too
            except DomainError:
                raise
            except BaseException as error:
                raise DomainError(_described(error, "the app failed with ")) from None
            return found

        with self._opened() as ledger:
            self._check_default_id(ledger, who)
            answer = Vehicle(ledger, who, partial(self._tell_owner, question)).answer(
                plan,
                row,
                job=self.job,
                digest=question.digest,
                former=(question.digest.hex(),),
                run=question.run,  # a label, and not the job: it changes when a run is resumed
            )
        if answer.repeated:
            why = (
                "has answered this plan before, whose attributes are all declared constant"
                if plan.constant
                else "has answered this question before"
            )
            _tell(
                logging.WARNING,
                f"LDPMod: {who!r} {why}. The same report is sent again, at no cost, and the app is "
                "not called: a change of the app has no effect on it.",
            )
        return answer.report

    def _rehearse(self, message: Message, context: Context, call_next: App) -> DataQuality:
        """Do what `_answer` does, except paying; raise where it would log."""
        question = self._question(message, context)
        plan, who = question.checked, question.vehicle_id
        with self._opened() as ledger:
            self._check_default_id(ledger, who)
            Vehicle(ledger, who).check(plan, job=self.job)
        reply = call_next(message, context)
        if not reply.has_content():
            raise DomainError(f"the app must reply with content; got the error {reply.error!r}.")
        row = self._read(reply.content, question.received)
        quality = self._quality(row)
        if any(each.replaced for each in quality.attributes):
            raise DomainError(f"the app's reply lacks values of the plan: {quality.summary()}")
        if question.received is not None:
            if names := untrained(question.received):
                _tell(logging.INFO, f"LDPMod: {listed(names)} are not trained, and not reported.")
            _tell(logging.INFO, self._described_update(row, quality))
        return quality

    def _question(self, message: Message, context: Context) -> "_NodeQuestion":
        """Return what is asked of whom; raise if it does not fit this mod, before any cost."""
        kind = message.metadata.message_type
        if kind != self.answers:
            raise DomainError(f"only messages of type {self.answers!r} are answered; got {kind!r}.")
        checked = _checked(self.plan.to_json(), self.cap)
        for record in message.content.config_records.values():
            if record.get(PLAN, checked.fingerprint) != checked.fingerprint:
                raise DomainError(
                    "the server counts reports of another plan than that of LDPMod: give both "
                    "sides the same file."
                )
            if bool(record.get(DELTA, self.delta)) != self.delta:
                raise DomainError(
                    "the server counts how far apps move its arrays, as private does: give LDPMod "
                    "delta=True."
                    if record[DELTA]
                    else "the server counts what apps reply: give LDPMod delta=False."
                )
        received = None
        if self.delta:
            received = only_arrays(message.content, "with delta=True, a question")
            count, wanted = len(weights(received)), self.plan.schema.dimensions
            if count != wanted:
                raise DomainError(
                    f"the plan is for {counted(wanted, 'number')}; the arrays of the question have "
                    f"{count:,} that are trained."
                )
            received = ArrayRecord(dict(received))  # the app may change what it was given
        digest = _digest(checked.fingerprint, kind, message.content)
        run = str(message.metadata.run_id)  # now, as the app may change it too
        return _NodeQuestion(checked, self._who(context), digest, received, run)

    def _who(self, context: Context) -> str:
        if self.vehicle_id is None:
            return str(context.node_config.get(PARTITION, ONLY_VEHICLE))
        return _check_id(self.vehicle_id(context) if callable(self.vehicle_id) else self.vehicle_id)

    def _check_default_id(self, ledger: Ledger, vehicle_id: str) -> None:
        """Refuse a new id by default: a node that gets or loses a partition is no new vehicle."""
        if self.vehicle_id is not None:
            return
        if vehicle_id == ONLY_VEHICLE:
            is_new = bool(ledger.totals().keys() - {ONLY_VEHICLE})
        else:
            is_new = ledger.spent(ONLY_VEHICLE) > 0
        if is_new:
            raise DomainError(
                f"the ledger {ledger.path} has another id than {vehicle_id!r} for the vehicle of "
                f"this node, whose {PARTITION} was given or taken away since. Pass vehicle_id."
            )

    def _tell_owner(self, question: "_NodeQuestion", answer: PaidAnswer) -> None:
        if answer.failure:
            text = f"LDPMod reports the public default, at the usual cost: {answer.failure}"
            _tell(logging.ERROR, text)
        if answer.row is None:
            return
        quality = self._quality(answer.row)
        if any(each.replaced for each in quality.attributes):
            told = quality.summary(examples=False)
            _tell(logging.ERROR, f"LDPMod reports the public default for what is missing: {told}")
        elif question.received is not None:
            _tell(logging.INFO, self._described_update(answer.row, quality))
        elif quality.changed:
            _tell(logging.INFO, f"LDPMod: {quality.clipping}")

    def _described_update(self, row: list[float], quality: DataQuality) -> str:
        """Return how long an update is, and what the plan makes of it, for the owner alone."""
        most, length = self.plan.schema.attributes[0].inputs.length, float(np.linalg.norm(row))
        told = f"LDPMod: the update has a length of {length:.3g}"
        if most is None:
            return f"{told}; {quality.clipping or 'nothing is clipped.'}"
        if length <= most:
            return f"{told}; up to {most:.3g} nothing is clipped."
        return f"{told}; it is shortened to {most:.3g}, {most / length:.2g} of it."

    def _read(self, content: RecordDict, received: ArrayRecord | None) -> Any:
        """Return the row in the app's reply, or raise if the reply does not fit the plan."""
        if received is not None:
            return difference(only_arrays(content, "with delta=True, a reply"), received).tolist()
        wanted, names = self.plan.schema.dimensions, self.plan.schema.names
        arrays = [np.empty(0), *(vector(each) for each in content.array_records.values())]
        numbers: Floats = np.concatenate(arrays)
        if len(numbers) == wanted:
            return numbers.tolist()
        named: dict[str, Any] = {}
        for record in content.values():
            if not isinstance(record, ArrayRecord):
                named.update(record)
        if not any(name in named for name in names):
            raise DomainError(
                f"the reply must have {counted(wanted, 'number')} in its arrays, or "
                f"{listed(names)} by name; got {len(numbers):,} in arrays, and by name "
                f"{listed(list(named)) or 'nothing'}."
            )
        return {name: named[name] for name in names if name in named}

    def _quality(self, row: Any) -> DataQuality:
        return self.plan.schema.check([row] if isinstance(row, dict) else np.array([row]))

    def _opened(self) -> Ledger:
        return Ledger(self.ledger, self.cap, answers_per_job=self.answers_per_job)


class _NodeQuestion(NamedTuple):
    """A question that fits the mod."""

    checked: vehicle.Plan
    vehicle_id: str
    digest: bytes
    received: ArrayRecord | None  # what the app's arrays are compared with
    run: str


class _Rehearsal(Context):
    """The context of a dry run, which a server cannot send."""

    found: DataQuality | None = None


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
    return counted_replies(plan_of(plan), replies)[0]


def counted_replies(plan: Plan, replies: Iterable[Message]) -> tuple[Tally, Counter[str]]:
    """Return the tally of some replies, and how many were not counted for each reason."""
    total, copies, reasons = plan.tally(), Counter[bytes](), Counter[str]()
    for reply in replies:
        try:
            data = _report(plan, reply)
            total += _parsed(plan, data)
            copies[data] += 1
        except WireError as error:
            reasons[str(error)] += 1
    for reason, count in reasons.items():
        log.warning("%d replies were not counted: %s", count, reason)
    p_value = equal_reports(plan.parts, list(copies.values()))
    if p_value < FALSE_ALARM:
        warnings.warn(
            f"{total.reports - len(copies):,} of {counted(total.reports, 'report')} repeat another "
            f"one. Honest vehicles cause this with a probability of at most {p_value:.0e}: "
            "probably several nodes share a ledger without a vehicle_id of their own.",
            ImplausibleWarning,
            stacklevel=3,
        )
    return total, reasons


def _report(plan: Plan, reply: Message) -> bytes:
    if not reply.has_content():
        raise WireError("expected a report; got an error from Flower.")
    try:
        data = unpacked(reply.content)
    except WireError as error:
        raise WireError(
            f"{error} Is LDPMod the first of the app's mods, and are all handlers behind it?"
        ) from None
    if data == bytes(_size(plan)):
        raise WireError(REFUSED)
    return data


def _parsed(plan: Plan, data: bytes) -> Tally:
    found = plan.parse(data)
    if found.reports != 1:
        raise WireError(f"a reply must contain one report; got {found.reports}.")
    return found


def _size(plan: Plan) -> int:
    return report.HEADER + packing.length(1, plan.bits)


def plan_of(given: PlanOrPath) -> Plan:
    """Return a plan, which may be given as the path of its file."""
    if isinstance(given, Plan):
        return given
    path = Path(given)
    if not path.exists() and not path.is_absolute():
        raise DomainError(
            f"there is no plan {given} in {Path.cwd()}, where Flower runs the app. Name the file "
            f'by its place beside the module: Path(__file__).with_name("{path.name}").'
        )
    return Plan.from_json(path.read_text("utf-8"))


_checked = lru_cache(maxsize=4)(for_vehicle)  # one process may answer for many nodes


def _digest(plan: str, kind: str, content: RecordDict) -> bytes:
    """Return a SHA-256 of the content of a question, without Flower's ids."""
    parts = sorted((name, _canonical(record)) for name, record in content.items())
    return hashlib.sha256(repr((plan, kind, parts)).encode()).digest()


def _canonical(record: ArrayRecord | MetricRecord | ConfigRecord) -> str:
    if not isinstance(record, ArrayRecord):
        return repr((type(record).__name__, sorted(record.items())))
    arrays = [  # in their order, by which apps read them
        (name, each.dtype, tuple(each.shape), each.stype, hashlib.sha256(each.data).digest())
        for name, each in record.items()
    ]
    return repr((type(record).__name__, arrays))


def _check_id(value: str) -> str:
    if not isinstance(value, str) or not value:
        raise DomainError(
            f"vehicle_id must be a text, or a function that returns one; got {value!r}."
        )
    return value


def _tell(level: int, text: str) -> None:
    """Tell the node's owner something; whatever comes of it, the reply does not depend on it."""
    with contextlib.suppress(BaseException):
        node_log.log(level, "%s", text)


def _described(error: BaseException, before: str = "") -> str:
    """Return what an exception says, if it can: an app may raise one of its own."""
    name = type(error).__name__
    try:
        return f"{before}{name}: {error}"
    except BaseException:
        return f"{before}{name}"
