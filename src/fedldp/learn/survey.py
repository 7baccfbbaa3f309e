"""A private survey of the numbers, before a training: where they lie, and how far they spread.

A part of the fleet is asked about its numbers only, and not for gradients. Each vehicle answers
one question with its whole epsilon, through a plan as for any statistic:

1. centres: the mean of each number, on the scale of [-1, 1];
2. scales: the mean of log2 |u - centre|, which has a meaning for spreads of every order;
3. signs, where enough vehicles answer: the mean of sign(u_i - c_i) sign(u_j - c_j) for each pair.

The result is one public affine map, a `Scaling`, after which the numbers have about the mean 0 and
the mean square 1 and, with signs, are uncorrelated (the correlation of normal numbers is
sin(pi q / 2), q the mean product of signs). It travels with the model.

The noise of every answer is known, and what is noisy is trusted less: centres and scales are drawn
towards a public guess, as Bayes' rule says, and correlations are damped by their noise. So a small
survey gives a cautious map. Whether correlations pay, and whether a survey pays at all, is decided
by public gates before anybody is asked.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import cast, final

import numpy as np

from fedldp._internal.validation import Floats
from fedldp.errors import DomainError
from fedldp.estimate import Mean
from fedldp.learn.features import Scaling
from fedldp.parts import Matrix
from fedldp.plan import Plan
from fedldp.randomness import Source
from fedldp.schema import Number, Schema

SURVEYS = ("auto", "scale", "whiten", None)

# Settled on synthetic problems (benchmarks/synthetic.py); see docs/learning.md.
SCALE_GATE, WHITEN_GATE = 0.2, 0.03  # the standard error of a centre, of a product of signs
STAGES = {"scale": (1 / 2, 1 / 2), "whiten": (1 / 4, 1 / 4, 1 / 2)}  # of the survey's vehicles
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

    def error(share: float, coordinates: int) -> float:
        # The standard error of the mean of one of these coordinates, answered by signs.
        noise = 1.0 if epsilon is None else 1 / math.tanh(epsilon / 2)
        return math.sqrt(coordinates / max(share * vehicles, 1.0)) * noise

    if pairs and numbers <= MOST_WHITENED and error(STAGES["whiten"][2], pairs) <= WHITEN_GATE:
        return "whiten"
    return "scale" if error(STAGES["scale"][0], numbers) <= SCALE_GATE else None


@final
@dataclass(frozen=True)
class Survey:
    """A survey: what some vehicles are asked about their numbers, in two or three rounds.

    Each vehicle answers in one round.

    Parameters
    ----------
    kind : {"scale", "whiten"}
        Whether to find centres and scales only, or correlations too.
    numbers : int
        How many numbers a row has.
    epsilon : float or None
        The privacy budget of a vehicle; None for answers without privacy, for comparison.

    Examples
    --------
    >>> survey = Survey("scale", numbers=4, epsilon=1.0)
    >>> [plan.bits for plan in survey.plans], survey.groups(1000)
    ([8, 8], [500, 500])
    >>> import fedldp
    >>> units = fedldp.source(1).uniform((20_000, 4)) * 0.2
    >>> survey.answers(units[:1], found=[]).shape  # the first round asks for the numbers
    (1, 4)
    >>> parts = lambda first, end: iter([units[first:end]])
    >>> scaling = survey.simulate(parts, 20_000, fedldp.source(2))
    >>> all(0 < centre < 0.3 for centre in scaling.centres)
    True
    """

    kind: str
    numbers: int
    epsilon: float | None

    @cached_property
    def plans(self) -> tuple[Plan, ...]:
        """The plan of each round; none without privacy."""
        if self.epsilon is None:
            return ()
        epsilon = self.epsilon
        schemas = [
            Schema((Number("centres", -1.0, 1.0, size=self.numbers),)),
            Schema((Number("scales", _LEAST, _MOST, size=self.numbers),)),
        ]
        if self.kind == "whiten":
            pairs = self.numbers * (self.numbers - 1) // 2
            schemas.append(Schema((Number("signs", -1.0, 1.0, size=pairs),)))
        return tuple(Plan(schema, epsilon, mechanism="hm-tp") for schema in schemas)

    @property
    def ratio(self) -> Fraction:
        """The largest ratio of the probabilities of an answer under two rows of numbers."""
        return max(plan.parts[0].ratio for plan in self.plans)

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
        ends = np.rint(np.cumsum([0.0, *STAGES[self.kind]]) * vehicles).astype(int)
        return [int(group) for group in np.diff(ends)]

    def answers(self, units: Floats, found: list[Mean]) -> Floats:
        """Return what vehicles answer in the next round, before noise.

        Parameters
        ----------
        units : ndarray of shape (vehicles, numbers)
            The numbers of each vehicle, on the scale of [-1, 1].
        found : list of Mean
            The estimates of the rounds before.

        Returns
        -------
        ndarray
            A row for each vehicle.
        """
        if not found:
            return units
        away = units - self._centres(found)
        if len(found) == 1:
            return np.asarray(np.log2(np.maximum(np.abs(away), 2.0**_LEAST)))
        signs = np.where(away < 0, -1.0, 1.0)
        first, second = np.triu_indices(self.numbers, 1)
        return np.asarray(signs[:, first] * signs[:, second])

    def scaling(self, found: list[Mean]) -> Scaling:
        """Return the map that follows from the estimates of all rounds.

        Parameters
        ----------
        found : list of Mean
            The estimate of each round.

        Returns
        -------
        Scaling
            The map.

        Examples
        --------
        >>> import fedldp
        >>> plan = Plan(Schema.of(centres=(-1, 1), scales=(-7, 1)), epsilon=8.0)
        >>> rows = {"centres": [0.5] * 5000, "scales": [-3.0] * 5000}
        >>> estimate = plan.simulate(rows, fedldp.source(1)).estimate()
        >>> survey = Survey("scale", numbers=1, epsilon=8.0)
        >>> scaling = survey.scaling([estimate["centres"], estimate["scales"]])
        >>> round(scaling.centres[0], 1)
        0.5
        """
        logs = _drawn_in(found[1], LOG_SCALE - _NORMAL, LOG_SPREAD) + _NORMAL
        factors = 1 / np.clip(2.0**logs, _SMALLEST, 1.0)
        mixing = None
        if len(found) > 2:
            mixing = tuple(map(tuple, self._mixing(found[2]).tolist()))
        return Scaling(tuple(self._centres(found).tolist()), tuple(factors.tolist()), mixing)

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
        found: list[Mean] = []
        first = 0
        for number, group in enumerate(self.groups(vehicles)):
            answers = (self.answers(each, found) for each in units(first, first + group))
            if self.epsilon is None:
                found.append(_mean(np.concatenate([*answers])))
            else:
                plan = self.plans[number]
                estimate = plan.simulate_batches(map(Matrix, answers), source).estimate()
                found.append(cast(Mean, estimate[plan.schema.names[0]]))
            first += group
        return self.scaling(found)

    def _centres(self, found: list[Mean]) -> Floats:
        return np.clip(_drawn_in(found[0], 0.0, CENTRE_SPREAD), -1.0, 1.0)

    def _mixing(self, signs: Mean) -> Floats:
        """Return the symmetric map that makes the scaled numbers uncorrelated, or less correlated.

        Noise in a matrix of correlations moves its eigenvalues by about its standard error times
        the square root of its size: this much is added to them.
        """
        p = self.numbers
        correlations = np.eye(p)
        upper = np.triu_indices(p, 1)
        correlations[upper] = np.sin(np.pi / 2 * np.clip(np.nan_to_num(signs.mean), -1.0, 1.0))
        correlations.T[upper] = correlations[upper]
        damping = math.pi / 2 * float(np.nanmean(signs.stderr)) * math.sqrt(p)
        damping = min(damping, 1e3) if math.isfinite(damping) else 1e3
        values, vectors = np.linalg.eigh(correlations)
        factors = np.sqrt((1 + damping) / (np.maximum(values, 0.0) + damping))
        return cast(Floats, (vectors * factors) @ vectors.T)


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
