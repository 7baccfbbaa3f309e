"""A private survey of the numbers, before a training: where they lie, and how far they spread.

A part of the fleet is asked about its numbers only, and not for gradients. Each vehicle answers
one question with its whole epsilon, through a plan as for any statistic:

1. centres: the mean of each number, on the scale of [-1, 1];
2. scales: the mean of log2 |u - centre|, which has a meaning for spreads of every order;
3. signs, where enough vehicles answer: the mean of sign(u_i - c_i) sign(u_j - c_j) for each pair.

For a linear regression, other vehicles are asked about the target. Its bounds may be generous, so
the noise of a mean on the scale of the bounds can be larger than the spread. Therefore these rounds
ask yes or no: first whether the target is above a centre, which moves to the median with steps that
get smaller (stochastic approximation); then whether it is further from the center than a distance,
which moves to a quantile in the same way, as a logarithm. What noise moves them is a share of the
spread, whatever the bounds are. The last rounds ask for the share of vehicles whose gradients would
be clipped (`fedldp.learn.clipping`); where that is surely too large, the distance is doubled.

The result is one public affine map, a `Scaling`, after which the numbers have about the mean 0 and
the mean square 1 and, with signs, are uncorrelated (the correlation of normal numbers is
sin(pi q / 2), q the mean product of signs). It travels with the model. Each round improves the
map, and the map so far is all that the next round depends on. Simulations and fleets use the same
rounds.

The noise of every answer is known, and what is noisy is trusted less: centres and scales are drawn
towards a public guess, as Bayes' rule says, and correlations are damped by their noise. So a small
survey gives a cautious map. Whether correlations pay, and whether a survey pays at all, is decided
by public gates before anybody is asked.
"""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Protocol, cast, final

import numpy as np

from fedldp._internal import documents
from fedldp._internal.validation import Floats, Integers
from fedldp.errors import DomainError
from fedldp.learn.clipping import SPREADS, WIDENING_ERRORS, ClippedShare
from fedldp.learn.features import Features, Scaling
from fedldp.learn.networks import Network
from fedldp.plan.parts import Matrix, VehicleValues
from fedldp.plan.plan import Plan
from fedldp.plan.strategies import Sample
from fedldp.randomness import Source
from fedldp.results.estimate import RATIO, Mean, estimate
from fedldp.results.tally import Tally
from fedldp.schema.attributes import Attribute, Number
from fedldp.schema.schema import Schema
from fedldp.vehicle import canonical

SURVEYS = ("auto", "scale", "whiten", None)
FORMAT = "fedldp survey 1"
FORMAT_2 = "fedldp survey 2"  # of rounds about a target, which version 0.2 does not know
FORMAT_3 = "fedldp survey 3"  # of rounds about hidden numbers
FORMATS = FORMAT, FORMAT_2, FORMAT_3
TARGET = "target"  # the kind of a survey of a target

# The search for the centre and the spread of a target.
SIDE_STEPS = tuple(0.5 * 0.65**number for number in range(7))  # on the scale of [-1, 1]
DISTANCE_STEPS = tuple(4 * 0.7**number for number in range(5))  # octaves
FIRST_DISTANCE, LEAST_DISTANCE, MOST_DISTANCE = -2.0, -9.0, 0.5  # octaves
WIDER_STEPS = (1.0, 1.0, 0.0)  # octaves, by which the distance grows if too many are clipped
SEARCH_SHARE, LIMIT_SHARE = 0.06, 0.28 / 3  # of the survey's vehicles, which each round asks
FEWEST_BEYOND, MOST_BEYOND = 0.04, 0.2  # the share of targets further away than the distance
DISTANCE_SPREADS = 1.5  # how many spreads the distance counts as; 1.3 to 2 of a normal target
_OF_DISTANCE = DISTANCE_SPREADS / SPREADS  # a power of 2, so that the way back is exact
TARGET_GATE = 0.3  # the standard error of a share in a step, above which nobody is asked
TARGET_SHARE = 0.4  # of as many vehicles as a survey of numbers asks

# Settled on synthetic problems (benchmarks/synthetic.py); see docs/learning.md.
SCALE_GATE, WHITEN_GATE = 0.2, 0.03  # the standard error of a centre, of a product of signs
SHARES = {  # of the survey's vehicles that each round asks
    "scale": {"centres": 1 / 2, "scales": 1 / 2},
    "whiten": {"centres": 1 / 4, "scales": 1 / 4, "signs": 1 / 2},
}
CENTRE_SPREAD = 0.5  # the public guess of a centre is 0, give or take this
LOG_SCALE, LOG_SPREAD = -2.0, 1.5  # that of a scale is 1/4, give or take 1.5 octaves
MOST_WHITENED = 64  # numbers: the map has as many rows and columns

_LEAST, _MOST = -7.0, 1.0  # octaves of |u - centre| that are told apart
_NORMAL = 0.916  # log2 of the standard deviation, less the mean log2, of a normal number
_SMALLEST = 2.0**-6  # scale


def choose(survey: str | None, numbers: int, vehicles: int, epsilon: float | None) -> str | None:
    """Return "scale", "whiten" or None: what a survey of this many vehicles asks.

    It depends on public numbers only. Without privacy, epsilon is None.

    >>> choose("auto", 4, 29_461, 4.0), choose("auto", 4, 1_840, 1.0), choose("auto", 4, 20, 1.0)
    ('whiten', 'scale', None)
    """
    if survey is None or not numbers or vehicles < 2:
        return None
    pairs = numbers * (numbers - 1) // 2
    if survey == "whiten" and not 1 < numbers <= MOST_WHITENED:
        raise DomainError(
            f"survey='whiten' is for 2 to {MOST_WHITENED} numbers; got {numbers}. Use 'scale'."
        )
    if survey != "auto":
        return survey
    of_signs = _error(SHARES["whiten"]["signs"] * vehicles, pairs, epsilon)
    if pairs and numbers <= MOST_WHITENED and of_signs <= WHITEN_GATE:
        return "whiten"
    of_centres = _error(SHARES["scale"]["centres"] * vehicles, numbers, epsilon)
    return "scale" if of_centres <= SCALE_GATE else None


def asks_target(survey: str | None, vehicles: int, epsilon: float | None) -> bool:
    """Return whether a survey asks this many vehicles about the target of a regression.

    It depends on public numbers only. Without privacy, epsilon is None.

    >>> asks_target("auto", 600, 1.0), asks_target("auto", 20, 1.0), asks_target(None, 600, 1.0)
    (True, False, False)
    """
    if survey is None or SEARCH_SHARE * vehicles < 1:
        return False
    of_share = _error(SEARCH_SHARE * vehicles, 1, epsilon) / 2
    return survey != "auto" or of_share <= TARGET_GATE


def share_beyond(vehicles: int, epsilon: float | None) -> float:
    """Return which share of the targets a survey of this many vehicles leaves beyond the distance.

    It is the smallest share that the survey can tell from 0, so that rare targets count.

    >>> share_beyond(600, 1.0), share_beyond(100_000, 1.0)
    (0.2, 0.04)
    """
    of_share = _error(SEARCH_SHARE * vehicles, 1, epsilon) / 2
    return min(MOST_BEYOND, max(FEWEST_BEYOND, 2 * of_share))


def width_of(beyond: float) -> float:
    """Return by how much a survey overestimates the spread of a normal target.

    It counts the distance beyond which a share of the targets is as `DISTANCE_SPREADS` spreads.

    >>> round(width_of(0.2), 2), round(width_of(0.04), 2)
    (0.85, 1.37)
    """
    from statistics import NormalDist

    return NormalDist().inv_cdf(1 - beyond / 2) / DISTANCE_SPREADS


def _error(answers: float, coordinates: int, epsilon: float | None) -> float:
    """Return the standard error of the mean of one of some coordinates, answered by signs."""
    noise = 1.0 if epsilon is None else 1 / math.tanh(epsilon / 2)
    return math.sqrt(coordinates / max(answers, 1.0)) * noise


class SurveyRound(Protocol):
    """A round of a survey: what it asks, and how the answers improve the map."""

    name: ClassVar[str]
    bounds: ClassVar[tuple[float, float]]  # of each coordinate of an answer

    def coordinates(self, numbers: int) -> int:
        """Return how many coordinates an answer has, if a row has this many numbers."""

    def answers(self, units: Floats, scaling: Scaling) -> Floats:
        """Return what vehicles answer before noise, given the map so far.

        `units` has a row of numbers on the scale of [-1, 1] for each vehicle.
        """

    def improved(self, scaling: Scaling, found: Mean) -> Scaling:
        """Return the map that follows from the map so far and the mean answer."""


@final
class Centres:
    """The first round, which asks for the numbers themselves.

    >>> first = Scaling((0.0, 0.0), (1.0, 1.0))
    >>> Centres().answers(np.array([[0.5, -0.25]]), first)
    array([[ 0.5 , -0.25]])
    """

    name: ClassVar[str] = "centres"
    bounds: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    def coordinates(self, numbers: int) -> int:
        """Return how many coordinates an answer has."""
        return numbers

    def answers(self, units: Floats, scaling: Scaling) -> Floats:
        """Return what vehicles answer before noise."""
        return units

    def improved(self, scaling: Scaling, found: Mean) -> Scaling:
        """Return the map with these centres."""
        centres = np.clip(_drawn_in(found, 0.0, CENTRE_SPREAD), -1.0, 1.0)
        return Scaling(tuple(centres.tolist()), scaling.factors)


@final
class Scales:
    """The second round, which asks how far the numbers are from their centres, as a logarithm.

    >>> so_far = Scaling((0.25, 0.0), (1.0, 1.0))
    >>> Scales().answers(np.array([[0.5, -0.25]]), so_far)
    array([[-2., -2.]])
    """

    name: ClassVar[str] = "scales"
    bounds: ClassVar[tuple[float, float]] = (_LEAST, _MOST)

    def coordinates(self, numbers: int) -> int:
        """Return how many coordinates an answer has."""
        return numbers

    def answers(self, units: Floats, scaling: Scaling) -> Floats:
        """Return what vehicles answer before noise."""
        away = np.abs(units - np.array(scaling.centres))
        return np.asarray(np.log2(np.maximum(away, 2.0**_LEAST)))

    def improved(self, scaling: Scaling, found: Mean) -> Scaling:
        """Return the map with these scales."""
        logs = _drawn_in(found, LOG_SCALE - _NORMAL, LOG_SPREAD) + _NORMAL
        factors = 1 / np.clip(2.0**logs, _SMALLEST, 1.0)
        return Scaling(scaling.centres, tuple(factors.tolist()))


@final
class Signs:
    """The third round, which asks on which sides of their centres two numbers are, for each pair.

    >>> so_far = Scaling((0.25, 0.0, 0.0), (4.0, 1.0, 1.0))
    >>> Signs().answers(np.array([[0.5, -0.25, -0.5]]), so_far)
    array([[-1., -1.,  1.]])
    """

    name: ClassVar[str] = "signs"
    bounds: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    def coordinates(self, numbers: int) -> int:
        """Return how many coordinates an answer has."""
        return numbers * (numbers - 1) // 2

    def answers(self, units: Floats, scaling: Scaling) -> Floats:
        """Return what vehicles answer before noise."""
        signs = np.where(units - np.array(scaling.centres) < 0, -1.0, 1.0)
        first, second = np.triu_indices(units.shape[1], 1)
        return np.asarray(signs[:, first] * signs[:, second])

    def improved(self, scaling: Scaling, found: Mean) -> Scaling:
        """Return the map with a mixing that makes the scaled numbers less correlated.

        Noise in a matrix of correlations moves its eigenvalues by about its standard error times
        the square root of its size: this much is added to them.
        """
        p = len(scaling.centres)
        correlations = np.eye(p)
        upper = np.triu_indices(p, 1)
        correlations[upper] = np.sin(np.pi / 2 * np.clip(np.nan_to_num(found.mean), -1.0, 1.0))
        correlations.T[upper] = correlations[upper]
        damping = math.pi / 2 * float(np.nanmean(found.stderr)) * math.sqrt(p)
        damping = min(damping, 1e3) if math.isfinite(damping) else 1e3
        values, vectors = np.linalg.eigh(correlations)
        factors = np.sqrt((1 + damping) / (np.maximum(values, 0.0) + damping))
        mixing = (vectors * factors) @ vectors.T
        return Scaling(scaling.centres, scaling.factors, tuple(map(tuple, mixing.tolist())))


@final
@dataclass(frozen=True)
class Sides:
    """A round of a target, which asks on which side of the centre it is.

    >>> Sides(0.5).answers(np.array([[0.5], [0.25], [0.0]]), Scaling((0.25,), (1.0,))).tolist()
    [[1.0], [0.0], [-1.0]]
    """

    step: float  # how far the centre moves if all targets are on one side

    name: ClassVar[str] = "sides"
    bounds: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    def coordinates(self, numbers: int) -> int:
        """Return how many coordinates an answer has."""
        return numbers

    def answers(self, units: Floats, scaling: Scaling) -> Floats:
        """Return what vehicles answer before noise."""
        return np.asarray(np.sign(units - np.array(scaling.centres)))

    def improved(self, scaling: Scaling, found: Mean) -> Scaling:
        """Return the map with a better centre."""
        ((centre,), excess) = scaling.centres, np.clip(_value(found), -1.0, 1.0)
        centre = float(np.clip(centre + self.step * excess, -1.0, 1.0))
        return Scaling((centre,), scaling.factors)


class _Tails:
    """A round of a target, which asks whether it is more than 1 from 0 when mapped."""

    name: ClassVar[str] = "tails"
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def coordinates(self, numbers: int) -> int:
        """Return how many coordinates an answer has."""
        return numbers

    def answers(self, units: Floats, scaling: Scaling) -> Floats:
        """Return what vehicles answer before noise."""
        return (np.abs(scaling(units)) > 1.0).astype(np.float64)


@final
@dataclass(frozen=True)
class Distances(_Tails):
    """A round of tails that searches for a distance, which some targets are further away than.

    >>> Distances(4.0, 0.2).answers(np.array([[0.5], [-0.25]]), Scaling((0.25,), (3.0,))).tolist()
    [[0.0], [1.0]]
    """

    step: float  # octaves by which the distance moves if half of the targets are too many
    beyond: float  # the share of targets that should be further away

    def improved(self, scaling: Scaling, found: Mean) -> Scaling:
        """Return the map with a better distance."""
        excess = np.clip(2 * (_value(found, self.beyond) - self.beyond), -0.6, 1.0)
        return _further(scaling, float(self.step * excess))


@final
@dataclass(frozen=True)
class TailLimits(_Tails):
    """A round of tails about the limit, beyond which gradients are clipped.

    >>> TailLimits(1.0).answers(np.array([[0.5], [-0.25]]), Scaling((0.25,), (3.0,))).tolist()
    [[0.0], [1.0]]
    """

    octaves: float  # by which the distance grows if surely too many are beyond; 0 in the last round

    def improved(self, scaling: Scaling, found: Mean) -> Scaling:
        """Return the map with a larger distance, if too many gradients would be clipped."""
        wider = self.octaves > 0 and ClippedShare.of(found).exceeds(WIDENING_ERRORS)
        return _further(scaling, self.octaves) if wider else scaling


def _further(scaling: Scaling, octaves: float) -> Scaling:
    """Return the map of a target with a distance that is larger by some octaves."""
    (factor,) = scaling.factors
    distance = np.clip(octaves - math.log2(factor), LEAST_DISTANCE, MOST_DISTANCE)
    return Scaling(scaling.centres, (float(2.0**-distance),))


def _value(found: Mean, otherwise: float = 0.0) -> float:
    """Return a mean of one number, or something else if nobody has answered."""
    (value,) = np.ravel(found.mean)
    return float(value) if np.isfinite(value) else otherwise


_ROUNDS: tuple[SurveyRound, ...] = (Centres(), Scales(), Signs(), Sides(0.0), TailLimits(0.0))
ROUNDS: dict[str, SurveyRound] = {each.name: each for each in _ROUNDS}  # what each asks


@final
@dataclass(frozen=True)
class Survey:
    """A survey: what some vehicles are asked about their numbers, in two or three rounds.

    Each vehicle answers in one round.

    Parameters
    ----------
    kind : {"scale", "whiten", "target"}
        Whether to find centers and scales only, or correlations too; or to survey a target.
    numbers : int
        How many numbers a row has.
    epsilon : float or None
        The privacy budget of a vehicle; None for answers without privacy, for comparison.
    limit : float, default=1.0
        For a target: how many spreads from the center a gradient is clipped.
    beyond : float, default=0.2
        For a target: the share that is further from the center than the distance that is found.

    Examples
    --------
    >>> survey = Survey("scale", numbers=4, epsilon=1.0)
    >>> [each.name for each in survey.rounds], [plan.bits for plan in survey.plans]
    (['centres', 'scales'], [8, 8])
    >>> survey.groups(1000)
    [500, 500]
    >>> import fedldp
    >>> units = fedldp.source(1).uniform((20_000, 4)) * 0.2
    >>> parts = lambda first, end: iter([units[first:end]])
    >>> scaling = survey.simulate(parts, 20_000, fedldp.source(2))
    >>> all(0 < centre < 0.3 for centre in scaling.centres)
    True
    """

    kind: str
    numbers: int
    epsilon: float | None
    limit: float = 1.0
    beyond: float = MOST_BEYOND

    @classmethod
    def of_target(cls, epsilon: float | None, vehicles: int, limit: float) -> "Survey":
        """Return a survey of a target.

        Parameters
        ----------
        epsilon : float or None
            The privacy budget of a vehicle; None for answers without privacy.
        vehicles : int
            The number of vehicles in the survey.
        limit : float
            How many spreads from the center a gradient is clipped.

        Returns
        -------
        Survey
            The survey.

        Examples
        --------
        >>> len(Survey.of_target(1.0, vehicles=800, limit=2.0).rounds)
        15
        """
        return cls(TARGET, 1, epsilon, limit, share_beyond(vehicles, epsilon))

    @property
    def _shares(self) -> list[tuple[SurveyRound, float]]:
        """The rounds, and the share of the survey's vehicles that each asks."""
        if self.kind != TARGET:
            return [(ROUNDS[name], share) for name, share in SHARES[self.kind].items()]
        search: list[SurveyRound] = [Sides(step) for step in SIDE_STEPS]
        search += [Distances(step, self.beyond) for step in DISTANCE_STEPS]
        limits = [(TailLimits(octaves), LIMIT_SHARE) for octaves in WIDER_STEPS]
        return [*((each, SEARCH_SHARE) for each in search), *limits]

    @property
    def rounds(self) -> tuple[SurveyRound, ...]:
        """The rounds, in their order."""
        return tuple(asks for asks, _ in self._shares)

    @cached_property
    def plans(self) -> tuple[Plan, ...]:
        """The plan of each round; none without privacy."""
        if self.epsilon is None:
            return ()
        found = []
        for each in self.rounds:
            number = Number(each.name, *each.bounds, size=each.coordinates(self.numbers))
            found.append(Plan(Schema((number,)), self.epsilon, Sample(mechanism="hm-tp")))
        return tuple(found)

    @property
    def ratio(self) -> Fraction:
        """The largest ratio of the probabilities of an answer under two rows of numbers."""
        return max(plan.parts[0].ratio for plan in self.plans)

    @property
    def start(self) -> Scaling:
        """The map before the first round, which changes nothing."""
        factor = 1.0 if self.kind != TARGET else 2.0**-FIRST_DISTANCE
        return Scaling((0.0,) * self.numbers, (factor,) * self.numbers)

    def groups(self, vehicles: int) -> list[int]:
        """Return how many vehicles are asked in each round.

        Parameters
        ----------
        vehicles : int
            The number of vehicles in the survey.

        Returns
        -------
        list of int
            A number for each round.
        """
        shares = [share for _, share in self._shares]
        ends = np.rint(np.cumsum([0.0, *shares]) * vehicles).astype(int)
        return [int(group) for group in np.diff(ends)]

    def asked_with(self, asks: SurveyRound, scaling: Scaling) -> Scaling:
        """Return the map that vehicles answer with in a round, given the map so far.

        Parameters
        ----------
        asks : SurveyRound
            The round.
        scaling : Scaling
            The map so far.

        Returns
        -------
        Scaling
            The same map but for rounds about the limit of a target, which is mapped to 1.

        Examples
        --------
        >>> survey = Survey("target", 1, epsilon=1.0, limit=3.0)
        >>> survey.asked_with(survey.rounds[-1], Scaling((0.0,), (4.0,))).factors
        (2.0,)
        """
        if not isinstance(asks, TailLimits):
            return scaling
        (distance,) = scaling.factors
        return Scaling(scaling.centres, (distance * DISTANCE_SPREADS / self.limit,))

    def simulate(
        self, units: Callable[[int, int], Iterator[Floats]], vehicles: int, source: Source
    ) -> Scaling:
        """Return the map that a simulated survey finds.

        Parameters
        ----------
        units : callable
            Takes the first vehicle and the end of a range, and yields the numbers of these vehicles
            in batches.
        vehicles : int
            The number of vehicles in the survey.
        source : Source
            The random source.

        Returns
        -------
        Scaling
            The map.
        """
        *_, (_, scaling) = self.simulate_rounds(units, vehicles, source)
        return scaling

    def simulate_rounds(
        self, units: Callable[[int, int], Iterator[Floats]], vehicles: int, source: Source
    ) -> Iterator[tuple[Mean, Scaling]]:
        """Yield the mean answer of each round of a simulated survey, and the map after it.

        Parameters
        ----------
        units, vehicles, source
            See `simulate`.

        Yields
        ------
        Mean
            The mean answer.
        Scaling
            The map so far.

        Examples
        --------
        >>> import fedldp
        >>> survey, parts = Survey("scale", 1, None), lambda first, end: iter([np.ones((end, 1))])
        >>> [float(mean.mean[0]) for mean, _ in survey.simulate_rounds(parts, 8, fedldp.source(1))]
        [1.0, -7.0]
        """
        scaling, first = self.start, 0
        for number, (question, group) in enumerate(
            zip(self.rounds, self.groups(vehicles), strict=True)
        ):
            batches = units(first, first + group)
            scaled_question = self.asked_with(question, scaling)
            answers = (question.answers(batch, scaled_question) for batch in batches)
            if self.epsilon is None:
                mean = _mean(np.concatenate([*answers]))
            else:
                mean = answered(self.plans[number].simulate_batches(map(Matrix, answers), source))
            scaling = question.improved(scaling, mean)
            first += group
            yield mean, scaling


@final
@dataclass(frozen=True)
class SurveyComputation:
    """What vehicles compute in a round of a survey, as data that a question can carry.

    A vehicle with several rows answers for one of them, chosen at random.

    Parameters
    ----------
    asks : {"centres", "scales", "signs", "sides", "tails"}
        The name of the round.
    schema : Schema
        The numbers that are asked about.
    scaling : Scaling
        The map so far.
    layers : Network, optional
        If it is about hidden numbers: the network, which trains only its last layer. Each vehicle
        computes from its row what the last layer gets.
    reference : {"first", "last", "none"}, default="first"
        Which label of a category has no feature of its own before these layers.

    Raises
    ------
    DomainError
        If the round is unknown, or the map is not for these numbers.

    Examples
    --------
    >>> schema = Schema.of(speed=(0, 100), load=(0, 1))
    >>> asked = SurveyComputation("scales", schema, Scaling((0.5, 0.0), (1.0, 1.0)))
    >>> asked.answers(np.array([[50.0, 0.75]])).matrix
    array([[-1., -1.]])
    >>> SurveyComputation.from_json(asked.to_json()) == asked
    True
    """

    asks: str
    schema: Schema
    scaling: Scaling
    layers: Network | None = None
    reference: str = "first"

    one_row: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.asks not in ROUNDS:
            raise DomainError(f"a survey asks for {', '.join(ROUNDS)}; got {self.asks!r:.80}.")
        if self.layers is None:
            features = Features(self.schema, scaling=self.scaling)  # raises if they do not fit
            if features.numbers != features.dimensions - 1:
                raise DomainError(f"a survey is about numbers only; got {self.schema!r:.200}.")
        else:
            inputs = self._features.dimensions - 1
            if math.prod(self.layers.inputs) != inputs:
                raise DomainError(f"the network must have {inputs} inputs; got {self.layers!r}.")
            self.layers.scaled(self.scaling)  # raises if they do not fit
        if self.asks == Signs.name and not 1 < self._numbers <= MOST_WHITENED:
            raise DomainError(f"pairs are asked of 2 to {MOST_WHITENED} numbers.")

    @property
    def _features(self) -> Features:
        return Features(self.schema, self.reference)

    @property
    def _numbers(self) -> int:
        return self._features.numbers if self.layers is None else self.layers.hidden_numbers

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes that a row must have."""
        return self.schema.attributes

    @property
    def declaration(self) -> dict[str, Any]:
        """What is asked, as JSON: all but the map so far."""
        document = {"asks": self.asks, "schema": self.schema.to_document()}
        if self.layers is not None:
            document |= {"network": self.layers.fingerprint, "reference": self.reference}
        return {"computes": "survey", **document}

    @property
    def dimensions(self) -> int:
        """How many numbers a vehicle answers."""
        return ROUNDS[self.asks].coordinates(self._numbers)

    @property
    def cost(self) -> int:
        """About how many multiplications a row takes."""
        numbers, operations = self._numbers, 0 if self.layers is None else self.layers.operations
        return operations + self.dimensions + numbers * numbers

    @property
    def room(self) -> int:
        """How many numbers a row needs in memory."""
        return self.dimensions if self.layers is None else self.layers.room

    def answers(self, matrix: Floats, begins: Integers | None = None) -> VehicleValues:
        """Return what vehicles answer before noise.

        Parameters
        ----------
        matrix : ndarray of shape (vehicles, attributes)
            One row of each vehicle.
        begins : None
            Not used: a vehicle answers for one row.

        Returns
        -------
        VehicleValues
            The answer of each vehicle.
        """
        if self.layers is None:
            units = self._features.units(matrix)
        else:
            units = self.layers.hidden_units(self._features.encode(matrix))
        return Matrix(ROUNDS[self.asks].answers(units, self.scaling))

    def to_json(self) -> str:
        """Return canonical JSON, from which `from_json` reads it exactly.

        Returns
        -------
        str
            The JSON.
        """
        document = {
            "format": FORMAT_2 if self.asks in (Sides.name, TailLimits.name) else FORMAT,
            "asks": self.asks,
            "schema": self.schema.to_document(),
            "scaling": self.scaling.to_document(),
        }
        if self.layers is not None:
            network = json.loads(self.layers.to_json())
            document |= {"format": FORMAT_3, "network": network, "reference": self.reference}
        return canonical(document)

    @classmethod
    def from_json(cls, text: str) -> "SurveyComputation":
        """Read what `to_json` wrote, and validate all of it.

        Parameters
        ----------
        text : str
            The JSON.

        Returns
        -------
        SurveyComputation
            What is asked.

        Raises
        ------
        WireError
            If the text is invalid.
        """
        with documents.reading(repr(FORMAT)):
            entries = ("asks", "schema", "scaling")
            document = documents.parse(text, FORMATS, entries, "network", "reference")
            asks, schema = document["asks"], Schema.from_document(document["schema"])
            scaling, layers = Scaling.from_document(document["scaling"]), None
            if "network" in document:
                layers = Network.from_json(canonical(document["network"]))
            found = cls(asks, schema, scaling, layers, document.get("reference", cls.reference))
            documents.check_written(found.to_json(), canonical(document))
        return found


def target_map(found: Scaling) -> tuple[float, float]:
    """Return the centre and the factor that map a target, given what its survey has found.

    >>> target_map(Scaling((0.5,), (6.0,)))
    (0.5, 3.0)
    """
    (centre,), (distance,) = found.centres, found.factors
    return centre, distance * _OF_DISTANCE


def searched(target: tuple[float, float]) -> Scaling:
    """Return what a survey of a target has found so far, given the map that follows from it.

    >>> searched((0.5, 3.0))
    Scaling(centres=(0.5,), factors=(6.0,), mixing=None, target=None)
    """
    centre, factor = target
    return Scaling((centre,), (factor / _OF_DISTANCE,))


def answered(tally: Tally) -> Mean:
    """Return the mean answer of a round of a survey; a fleet checks its plausibility elsewhere."""
    found = estimate(
        tally.parts, tally.reports, tally.counts, RATIO, of="population", confidence=0.95
    )
    (mean,) = found.attributes.values()
    return cast(Mean, mean)


def _mean(answers: Floats) -> Mean:
    """Return the mean of answers without noise."""
    stderr = answers.std(axis=0) / math.sqrt(len(answers))
    nothing = np.full((*stderr.shape, 2), np.nan)
    return Mean(answers.mean(axis=0), stderr, nothing, nothing, len(answers))


def _drawn_in(found: Mean, guess: float, spread: float) -> Floats:
    """Return means, drawn towards a public guess as far as they are noisy."""
    mean, stderr = np.atleast_1d(found.mean), np.atleast_1d(found.stderr)
    trust = 1 / (1 + np.where(np.isfinite(stderr), stderr, 1e6) ** 2 / spread**2)
    return trust * np.where(np.isfinite(mean), mean, guess) + (1 - trust) * guess
