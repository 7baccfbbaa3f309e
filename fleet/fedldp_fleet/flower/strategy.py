"""Private training with any strategy of Flower's message API: the server's half of `LDPMod`.

    strategy = private(FedAdam, "plan.json")(fraction_train=0.5)

The strategy still chooses nodes and makes the server's step. Between the two, this module counts
the reports, and gives the strategy one reply instead of many: the model that was sent, moved by the
estimated mean of the vehicles' updates. See docs/flower-mod.md.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedldp.errors import DomainError
from fedldp.plan.plan import Plan
from fedldp.results.tally import Tally
from fedldp.schema.attributes import Attribute
from fedldp_fleet.flower.arrays import (
    moved,
    only_arrays,
    untrained,
    untrained_counters,
    weights,
    with_untrained,
)
from fedldp_fleet.flower.messages import DELTA, PLAN, log
from fedldp_fleet.flower.mod import REFUSED, PlanOrPath, counted_replies, plan_of
from fedldp_fleet.library import Floats, counted, listed
from fedldp_fleet.noise import RISK, Excess

# The noise that needs force=True, in terms of the longest update that is not clipped. On synthetic
# problems of 15 and 84 weights, of the accuracy above chance five times that noise left 37% to 57%
# after three rounds, and 55% to 87% after ten: benchmarks/flower_noise.py.
MULTIPLE = 5.0

S = TypeVar("S", bound=Strategy)

# They compare the replies of nodes with each other, or need more than arrays from them.
_COMPARE = {"Bulyan", "FedMedian", "FedTrimmedAvg", "Krum", "MultiKrum", "QFedAvg"}
_COMPARE |= {"FedXgbBagging", "FedXgbCyclic"}


def private(strategy: type[S], plan: PlanOrPath, *, force: bool = False) -> type[S]:
    """Return a private form of a strategy of Flower's message API.

    The result is a subclass, with the same parameters, for nodes whose apps have
    `LDPMod(plan, ..., delta=True)`. It takes the class and not an object, so that everything that a
    strategy overrides, `start` too, stays in effect.

    In each round it counts the reports, estimates the mean update of the vehicles, and passes the
    model that was sent plus this update to the strategy, as if it were the reply of one node. So
    the strategy's own step, such as Adam's, is made. Coordinates without reports do not move, and
    an estimate beyond the plan's bound is shortened to it, as no mean of updates can be longer. All
    vehicles count equally, whatever their `num-examples` are: these stay on the nodes. Arrays of
    integers and running statistics are not trained, and stay as the server has them. Vehicles are
    not asked to evaluate a model: pass `evaluate_fn` to `start`.

    The metrics of a round say how many vehicles were asked, how many `reports` came back, and how
    many `refusals`, `errors` and `silent` vehicles there were instead.

    Parameters
    ----------
    strategy : type
        A class of `flwr.serverapp.strategy`, or a subclass of your own. Legacy strategies, of
        `flwr.server.strategy`, are not supported, nor those that compare the replies of nodes.
    plan : Plan, str or os.PathLike
        What vehicles report, or the path of its JSON file: a plan for one vector, such as
        `Plan(Schema.vector(d, length=1.0), epsilon=1.0, strategy="directions")`, where d is the
        number of weights. The length is where updates are clipped.
    force : bool, default=False
        Train even if the noise of a round is more than 5 times the longest update that is not
        clipped.

    Returns
    -------
    type
        A subclass of the strategy.

    Raises
    ------
    DomainError
        If the strategy is not supported, or the plan is not for one vector. Before any vehicle is
        asked, `start` raises it if the model has another size than the plan, if a
        `train_metrics_aggr_fn` needs metrics of nodes, or if the noise is too large and `force` is
        not set; later, if no vehicle has answered, or if the strategy's step results in numbers
        that are not finite.

    See Also
    --------
    LDPMod : The vehicle's half.

    Examples
    --------
    >>> import fedldp
    >>> from flwr.serverapp.strategy import FedAdam
    >>> schema = fedldp.Schema.vector(15, length=1.0)
    >>> plan = fedldp.Plan(schema, epsilon=1.0, strategy="directions")
    >>> strategy = private(FedAdam, plan)(fraction_train=0.5, eta=0.05)
    >>> isinstance(strategy, FedAdam), strategy.eta
    (True, 0.05)
    >>> private(strategy, plan)
    Traceback (most recent call last):
    fedldp.errors.DomainError: private needs a class of flwr.serverapp.strategy, such as FedAvg; ...
    """
    if not isinstance(strategy, type) or not issubclass(strategy, Strategy):
        raise DomainError(
            "private needs a class of flwr.serverapp.strategy, such as FedAvg; got "
            f"{strategy!r:.100}. Give its parameters to what private returns. Legacy strategies, "
            "of flwr.server.strategy, are not supported."
        )
    if _COMPARE.intersection(each.__name__ for each in strategy.__mro__):
        raise DomainError(
            f"{strategy.__name__} compares replies of single nodes, or needs more than arrays from "
            "them, and reports of single vehicles are mostly noise. Use FedAvg, FedAvgM, FedAdam, "
            "FedAdagrad or FedYogi."
        )
    if issubclass(strategy, _Private):
        raise DomainError(f"{strategy.__name__} is private already.")
    found = plan_of(plan)
    _attribute(found)
    fields = {"_ldp_plan": found, "_ldp_force": force, "__module__": strategy.__module__}
    return cast(type[S], type(f"Private{strategy.__name__}", (_Private, strategy), fields))


class _Private(Strategy):
    """What a private strategy does before and after the methods of the strategy itself."""

    _ldp_plan: ClassVar[Plan]
    _ldp_force: ClassVar[bool]
    _ldp_asked: Message | None = None  # one of the messages of this round
    _ldp_messages = 0  # of this round
    _ldp_begun = False
    _ldp_answered = False
    _ldp_excess = Excess()  # of the rounds since the last that noise cannot explain

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        plan = self._ldp_plan
        if server_round == 1:  # the same object may be started again
            self._ldp_begun, self._ldp_answered, self._ldp_excess = False, False, Excess()
        _check_metrics(self)
        _check_model(plan, arrays)
        config = ConfigRecord({**config, PLAN: plan.fingerprint, DELTA: True})
        found = super().configure_train(server_round, arrays, config, grid)  # type: ignore[safe-super]
        messages = list(found)
        self._ldp_asked, self._ldp_messages = messages[0] if messages else None, len(messages)
        if messages:
            _check_questions(plan, messages)
            if not self._ldp_begun:
                forecast(plan, len(messages)).check(force=self._ldp_force)
                self._ldp_begun = True
                _describe_first_model(arrays)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        if self._ldp_asked is None:
            return None, None
        tally, reasons = counted_replies(self._ldp_plan, replies)
        counts = _counts(self._ldp_messages, tally.reports, reasons)
        if counts["silent"]:
            log.warning(
                "%s of %s did not answer in round %d.",
                f"{counts['silent']:,}",
                counted(counts["asked"], "vehicle"),
                server_round,
            )
        if not tally.reports:
            self._nobody(server_round, reasons)
            return None, None
        name, before = next(iter(self._ldp_asked.content.array_records.items()))
        after = moved(before, mean_update(self._ldp_plan, tally))
        weight = _weight_of(self)
        content = RecordDict({name: after, "metrics": MetricRecord({weight: tally.reports})})
        reply = Message(content, reply_to=self._ldp_asked)
        arrays, metrics = super().aggregate_train(server_round, [reply])  # type: ignore[safe-super]
        self._ldp_answered = True
        self._ldp_excess = self._ldp_excess.plus(self._ldp_plan, tally)
        if self._ldp_excess.p_value < RISK:
            self._ldp_excess = Excess()
        else:
            log.warning("%s", self._ldp_excess.warning(self._ldp_plan, server_round))
        if arrays is not None:
            arrays = with_untrained(arrays, before)
            if bad := int((~np.isfinite(weights(arrays))).sum()):
                raise DomainError(
                    f"{type(self).__name__} made {counted(bad, 'weight')} of "
                    f"{weights(arrays).size:,} infinite or NaN in round {server_round}. Use a "
                    "smaller learning rate on the server, or a smaller bound in the plan."
                )
        return arrays, MetricRecord({**(metrics or {}), **counts})

    def _nobody(self, server_round: int, reasons: Counter[str]) -> None:
        """Fail if no vehicle has ever answered; later, keep the model that there is."""
        why = " ".join(f"{count:,} x {text}" for text, count in reasons.most_common(3))
        told = f"no vehicle answered in round {server_round}. Replies: {why or 'none.'}"
        if not self._ldp_answered:
            raise DomainError(
                f"{told} The log of the nodes says why. A node that refuses has paid nothing: it "
                "may have another plan, no delta=True, or no budget left. What vehicles have paid "
                "for is stored, and the same question gets the same reports again: a restart needs "
                "the same first model."
            )
        log.error("%s The model stays as it is.", told)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> None:
        pass


class NoiseForecast(NamedTuple):
    """How large the noise of a round will be, from public numbers alone.

    >>> import fedldp
    >>> schema = fedldp.Schema.vector(15, length=1.0)
    >>> plan = fedldp.Plan(schema, epsilon=1.0, strategy="directions")
    >>> round(forecast(plan, vehicles=1000).multiple, 2), forecast(plan, vehicles=2).multiple > 5
    (0.31, True)
    """

    plan: Plan
    vehicles: int
    multiple: float  # the noise in terms of the longest update that is not clipped
    longest: float  # update that is not clipped

    def __str__(self) -> str:
        return (
            f"{self.plan.schema.dimensions:,} weights, {counted(self.vehicles, 'vehicle')} in a "
            f"round, epsilon = {self.plan.epsilon:g}: the noise of a round will be about "
            f"{self.multiple:.2g} times as long as a clipped update (which has a length of "
            f"{self.longest:.3g})"
        )

    def check(self, *, force: bool) -> None:
        """Log the forecast, and refuse noise that is too large unless force is set."""
        if self.multiple <= MULTIPLE:
            log.info("%s.", self)
        elif force:
            log.warning("%s. Training continues because of force=True.", self)
        else:
            needed = math.ceil(self.vehicles * (self.multiple / MULTIPLE) ** 2)
            raise DomainError(
                f"{self}. More than {MULTIPLE:g} times is refused, before any vehicle is asked: "
                f"ask {counted(needed, 'vehicle')} in a round, train fewer weights, raise epsilon, "
                "or pass force=True to private."
            )


def forecast(plan: Plan, vehicles: int) -> NoiseForecast:
    """Return how large the noise of a round will be, from public numbers alone.

    Parameters
    ----------
    plan : Plan
        What vehicles report: a plan for one vector.
    vehicles : int
        How many vehicles answer in a round.

    Returns
    -------
    NoiseForecast
        Its `multiple` is the length of the noise in terms of the longest update that is not
        clipped. Its text says the same in a sentence.

    Raises
    ------
    DomainError
        If the plan is not for one vector.

    Examples
    --------
    >>> import fedldp
    >>> schema = fedldp.Schema.vector(15, length=1.0)
    >>> plan = fedldp.Plan(schema, epsilon=1.0, strategy="directions")
    >>> round(forecast(plan, vehicles=1000).multiple, 2)
    0.31
    """
    square, longest = plan.expected_error(vehicles, "worst", of="fleet"), _longest(plan)
    noise = _attribute(plan).estimand.half_width * math.sqrt(square)
    return NoiseForecast(plan, vehicles, noise / longest, longest)


def mean_update(plan: Plan, tally: Tally) -> Floats:
    """Return the estimated mean of the vehicles' vectors: finite, and within the plan's bounds.

    The true mean lies within the bounds, which are a convex set, so that moving the estimate to the
    nearest point in them never makes its error larger.

    >>> import fedldp
    >>> plan = fedldp.Plan(fedldp.Schema.vector(3, bound=0.5), epsilon=1.0)
    >>> mean_update(plan, plan.tally())
    array([0., 0., 0.])
    """
    attribute = _attribute(plan)
    mean: Any = tally.estimate()[attribute.name].values
    found = np.nan_to_num(np.asarray(mean, np.float64).reshape(-1), nan=0.0)  # nobody answered
    if attribute.inputs.length is None:
        return np.clip(found, attribute.estimand.from_unit(-1.0), attribute.estimand.from_unit(1.0))
    return found * min(1.0, _longest(plan) / max(float(np.linalg.norm(found)), _longest(plan)))


def _attribute(plan: Plan) -> Attribute:
    attributes = plan.schema.attributes
    if len(attributes) != 1 or attributes[0].labels:
        raise DomainError(
            "the plan must be for one vector, such as Schema.vector(d, length=1.0); got "
            f"{plan.schema!r}."
        )
    return attributes[0]


def _longest(plan: Plan) -> float:
    """Return the length of the longest vector that the plan does not clip."""
    attribute = _attribute(plan)
    if attribute.inputs.length is not None:
        return attribute.inputs.length
    return attribute.estimand.half_width * math.sqrt(attribute.size)


def _check_metrics(strategy: Strategy) -> None:
    """Refuse a function for metrics that fails without those that stay on the nodes."""
    combine = getattr(strategy, "train_metrics_aggr_fn", None)
    if combine is None:
        return
    weight = _weight_of(strategy)
    reply = RecordDict({"arrays": ArrayRecord(), "metrics": MetricRecord({weight: 1})})
    try:
        MetricRecord({**(combine([reply], weight) or {})})
    except Exception as error:
        raise DomainError(
            "train_metrics_aggr_fn must do without metrics of nodes: they stay there, and it gets "
            f"one reply with {weight!r}, the number of reports. It failed with "
            f"{type(error).__name__}: {error}. Leave it out, and pass evaluate_fn to start."
        ) from error


def _weight_of(strategy: Strategy) -> str:
    return getattr(strategy, "weighted_by_key", "num-examples")


def _counts(asked: int, reports: int, reasons: Counter[str]) -> dict[str, int]:
    """Return what became of the questions of a round."""
    refusals, others = reasons[REFUSED], reasons.total() - reasons[REFUSED]
    return {
        "asked": asked,
        "reports": reports,
        "refusals": refusals,
        "errors": others,
        "silent": max(0, asked - reports - refusals - others),
    }


def _describe_first_model(arrays: ArrayRecord) -> None:
    """Say which model a run begins with, and what of it is not trained."""
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(repr((name, array.dtype, tuple(array.shape))).encode() + array.data)
    log.info(
        "The first model has the SHA-256 %s. If this run breaks off, start the next one with the "
        "same model, or vehicles pay again. They are not asked to evaluate: pass evaluate_fn.",
        digest.hexdigest()[:16],
    )
    if names := untrained(arrays):
        log.warning(
            "%s not trained, because they are integers or running statistics: %s. They stay as the "
            "server has them. A network with BatchNorm then evaluates with the statistics that it "
            "began with: use GroupNorm or LayerNorm, or a network whose statistics are those of "
            "public data.",
            f"{counted(len(names), 'array')} {'is' if len(names) == 1 else 'are'}",
            listed(names),
        )


def _check_model(plan: Plan, arrays: ArrayRecord) -> None:
    if names := untrained_counters(arrays):
        raise DomainError(
            f"the arrays of the model have no names, and {listed(names)} is a single integer, as "
            "BatchNorm counts batches in. Its running statistics cannot be told from weights: send "
            "ArrayRecord(model.state_dict()), or only the arrays that are trained."
        )
    trained, names = weights(arrays), untrained(arrays)
    if trained.size != plan.schema.dimensions:
        besides = f" (without {listed(names)}, which are not trained)" if names else ""
        raise DomainError(
            f"the model has {counted(trained.size, 'weight')}{besides}, and the plan is for "
            f"{plan.schema.dimensions:,}: use Schema.vector({trained.size}, length=...)."
        )
    if not np.isfinite(trained).all():
        raise DomainError("the model that is to be trained has weights that are infinite or NaN.")


def _check_questions(plan: Plan, messages: list[Message]) -> None:
    """Check that all nodes train the same model: otherwise a mean update has no meaning."""
    first, *others = (only_arrays(each.content, "a question") for each in messages)
    _check_model(plan, first)
    if any(each is not first and each != first for each in others):
        raise DomainError("the strategy sends different models to different nodes.")
