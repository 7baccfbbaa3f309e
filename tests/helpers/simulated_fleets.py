"""Simulated fleets, many at once, to count how often intervals contain the truth.

Only the tally of a fleet is drawn, not its reports: how many vehicles have each value, and how many
of those send each code. Each fleet is an attribute of its own in one part, so that one call
estimates all of them.
"""

from dataclasses import dataclass, replace

import numpy as np

from fedldp import Plan, Schema, Tally
from fedldp.coders import Lines, RandomizedResponse, UnaryEncoding, tables
from fedldp.coders.base import ForCategories
from fedldp.plan.parts import Part


@dataclass(frozen=True)
class Population:
    """What vehicles can have, each with its probability: a column for each part of an attribute."""

    columns: tuple[np.ndarray, ...]
    odds: np.ndarray

    @property
    def x(self):
        """The first column: the values, NaN where one is missing."""
        return self.columns[0]

    def where(self, chosen):
        """Return the probability of each vehicle among those that are chosen."""
        return self.odds * chosen / np.sum(self.odds * chosen)


def label_odds(attribute, population):
    """Return the probability of each label: positions between two labels are rounded at random."""
    columns = [column[:, None] for column in population.columns]
    positions = attribute.inputs.of(attribute.join(columns))[:, 0]
    lower = np.floor(positions).astype(int)
    upper, number = positions - lower, len(attribute.labels)
    odds = np.bincount(lower, population.odds * (1 - upper), minlength=number + 1)
    odds += np.bincount(lower + 1, population.odds * upper, minlength=number + 1)
    return odds[:number]


def drawn(attribute, coder, population, answers, rng):
    """Return a row of counters for each fleet, of which the number of answers is given."""
    if isinstance(coder, ForCategories):
        labels = rng.multinomial(answers, label_odds(attribute, population))
        return codes_of(coder, labels, rng)
    vehicles = rng.multinomial(answers, population.odds)
    values = attribute.join([population.x[:, None]])[:, 0]
    law = tables.probabilities(coder.letters, coder.table, attribute.inputs.of(values))
    law /= law.sum(axis=1, keepdims=True)  # up to rounding it was 1
    return sum(rng.multinomial(vehicles[:, i], row) for i, row in enumerate(law))


def codes_of(coder, labels, rng):
    """Return the counters of fleets, given how many vehicles of each have each label."""
    if isinstance(coder, UnaryEncoding):
        n = labels.sum(axis=1, keepdims=True)
        ones = rng.binomial(labels, coder.p) + rng.binomial(n - labels, coder.q)
        return np.concatenate([ones, n], axis=1)
    one_digit = isinstance(coder, RandomizedResponse) or coder.digits == 1
    if one_digit:  # the label is kept, or it is any of all codes
        kept = rng.binomial(labels, (coder.same - coder.other) / coder.total)
        counts = _even((labels - kept).sum(axis=1), coder.cells, rng)
        counts[:, : labels.shape[1]] += kept
        return counts
    assert isinstance(coder, Lines)
    counts = np.zeros((len(labels), coder.directions, coder.base), np.int64)
    for label, number in enumerate(labels.T):
        by_direction = _even(number, coder.directions, rng)
        kept = rng.binomial(by_direction, (coder.same - coder.other) / coder.total)
        counts += _even(by_direction - kept, coder.base, rng)
        products = coder._supporting[label] % coder.base
        counts[:, np.arange(coder.directions), products] += kept
    return counts.reshape(len(labels), -1)


def _even(numbers, cells, rng):
    return rng.multinomial(numbers, np.full(cells, 1 / cells))


def estimated(attribute, epsilon, population, n, fleets, rng, *, share=1.0, **options):
    """Return the estimate of several fleets: a result for each of them."""
    part = Plan(Schema((attribute,)), epsilon).parts[0]
    attribute, coder = part.schema.attributes[0], part.coders[0]
    answers = rng.binomial(n, share, fleets)
    counts = drawn(attribute, coder, population, answers, rng)
    several = Schema(tuple(replace(attribute, name=f"fleet {i}") for i in range(fleets)))
    wide = Part(several, tuple(range(fleets)), (coder,) * fleets, round(share * fleets))
    return Tally("", (wide,), n, (counts.reshape(-1),)).estimate(**options)
