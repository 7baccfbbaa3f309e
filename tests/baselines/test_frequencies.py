"""Frequency oracles of other papers: their law, their published variance, and simulations."""

from itertools import combinations, product
from math import ceil, exp, log2

import numpy as np
import pytest
from scipy.linalg import hadamard

import fedldp
from fedldp.baselines.frequencies import (
    FREQUENCY_ORACLES,
    HadamardResponse,
    LocalHashing,
    OptimizedUnaryEncoding,
    RandomResponse,
    Rappor,
    SubsetSelection,
)
from fedldp.errors import DomainError

CASES = [(0.5, 3), (1.0, 10), (2.0, 33), (4.0, 16)]
FALSE_ALARM = 4.9  # standard errors: one test in a million fails by chance


def laws(oracle):
    """Return the odds of each answer under each category, written from the papers."""
    k, odds = oracle.categories, exp(oracle.epsilon)
    if isinstance(oracle, RandomResponse):
        return 1 + (odds - 1) * np.eye(k)
    if isinstance(oracle, SubsetSelection):
        sets = list(combinations(range(k), oracle.size))
        return np.array([[odds if own in each else 1.0 for each in sets] for own in range(k)])
    if isinstance(oracle, HadamardResponse):
        rows = []
        for own in range(k):
            block, row = divmod(own, ceil(k / oracle.blocks))
            entries = np.ones(oracle.blocks * oracle.order)
            start = block * oracle.order
            own_row = hadamard(oracle.order)[row + 1]
            entries[start : start + oracle.order][own_row > 0] = odds
            rows.append(entries)
        return np.array(rows)
    p, q = {
        OptimizedUnaryEncoding: (0.5, 1 / (odds + 1)),
        Rappor: (exp(oracle.epsilon / 2) / (exp(oracle.epsilon / 2) + 1), None),
    }[type(oracle)]
    q = 1 - p if q is None else q
    answers = np.array(list(product([0, 1], repeat=k)))
    ones = np.where(np.eye(k) > 0, p, q)
    return np.array([np.prod(np.where(answers, row, 1 - row), axis=1) for row in ones])


def answers_of(oracle):
    """Return all answers in the order of `laws`, as `estimate` takes them."""
    k = oracle.categories
    if isinstance(oracle, SubsetSelection):
        return np.array(list(combinations(range(k), oracle.size)))
    if isinstance(oracle, HadamardResponse):
        return np.arange(oracle.blocks * oracle.order)
    if isinstance(oracle, RandomResponse):
        return np.arange(k)
    return np.array(list(product([0, 1], repeat=k)))


ENUMERATED = [kind for kind in FREQUENCY_ORACLES if kind is not LocalHashing]


@pytest.mark.parametrize(("epsilon", "categories"), [(0.5, 3), (1.0, 6), (3.0, 7)])
@pytest.mark.parametrize("kind", ENUMERATED)
def test_privacy_bias_and_error_by_enumeration(kind, epsilon, categories):
    oracle = kind(epsilon, categories)
    law = laws(oracle)
    law /= law.sum(axis=1, keepdims=True)
    assert np.max(law.max(axis=0) / law.min(axis=0)) == pytest.approx(exp(epsilon))
    values = np.array([oracle.estimate(each[None]) for each in answers_of(oracle)])
    truth = np.eye(categories)
    np.testing.assert_allclose(law @ values, truth, atol=1e-12)
    for own in range(categories):
        error = law[own] @ np.sum((values - truth[own]) ** 2, axis=1)
        assert oracle.error(own) == pytest.approx(error)


def published(oracle):
    """Return the variance of a frequency f of 0 and what f adds: Wang et al. 2017, table 1."""
    k, odds, half = oracle.categories, exp(oracle.epsilon), exp(oracle.epsilon / 2)
    return {
        "grr": ((k - 2 + odds) / (odds - 1) ** 2, (k - 2) / (odds - 1)),
        "oue": (4 * odds / (odds - 1) ** 2, 1.0),
        "olh": (4 * odds / (odds - 1) ** 2, None),
        "rappor": (half / (half - 1) ** 2, 0.0),
    }[oracle.name]


@pytest.mark.parametrize(("epsilon", "categories"), CASES)
@pytest.mark.parametrize("kind", [RandomResponse, OptimizedUnaryEncoding, Rappor])
def test_published_variance(kind, epsilon, categories):
    oracle = kind(epsilon, categories)
    at_zero, with_frequency = published(oracle)
    assert oracle.error(0) == pytest.approx(categories * at_zero + with_frequency)


@pytest.mark.parametrize("hashes", [3, 8, 21])
def test_published_variance_of_local_hashing_where_its_hashes_are_a_whole_number(hashes):
    oracle = LocalHashing(np.log(hashes - 1), 50)
    assert oracle.hashes == hashes
    p, q = oracle.support
    assert q * (1 - q) / (p - q) ** 2 == pytest.approx(published(oracle)[0])


def test_published_variance_of_subset_selection():
    """Ye and Barg: the risk of a uniform law, if k / (e^epsilon + 1) is a whole number."""
    for odds, k in ((3, 20), (4, 50), (9, 30)):
        oracle = SubsetSelection(np.log(odds), k)
        risk = 4 * odds * (k - 1) ** 2 / (k * (odds - 1) ** 2)
        spread = 1 - 1 / k  # of the data, which the risk counts and the error does not
        assert oracle.size == k // (odds + 1)
        assert oracle.worst_error + spread == pytest.approx(risk)


@pytest.mark.parametrize(("epsilon", "categories"), CASES)
@pytest.mark.parametrize("kind", FREQUENCY_ORACLES)
def test_simulated_error_and_bias(kind, epsilon, categories):
    oracle, random = kind(epsilon, categories), np.random.default_rng(7)
    own, vehicles, repeats = categories - 1, 400, 250
    truth = np.eye(categories)[own]
    estimates = np.array(
        [oracle.estimate(oracle.answer(np.full(vehicles, own), random)) for _ in range(repeats)]
    )
    errors = vehicles * np.sum((estimates - truth) ** 2, axis=1)
    stderr = np.std(errors) / repeats**0.5
    assert abs(errors.mean() - oracle.error(own)) < FALSE_ALARM * stderr
    spread = np.std(estimates, axis=0) / repeats**0.5
    assert np.all(np.abs(estimates.mean(axis=0) - truth) < FALSE_ALARM * spread)


@pytest.mark.parametrize("kind", FREQUENCY_ORACLES)
def test_mixed_values_count_by_their_shares(kind):
    oracle, random = kind(3.0, 5), np.random.default_rng(3)
    values = np.repeat(np.arange(5), [5000, 4000, 3000, 2000, 1000])
    found = oracle.estimate(oracle.answer(random.permutation(values), random))
    error = (oracle.worst_error / 15_000) ** 0.5
    assert np.linalg.norm(found - np.arange(5, 0, -1) / 15) < 5 * error


@pytest.mark.parametrize("kind", FREQUENCY_ORACLES)
def test_a_seed_a_generator_or_a_source_makes_answers_reproducible(kind):
    oracle, values = kind(1.0, 9), np.arange(9)
    for make in (lambda: 5, lambda: np.random.default_rng(5), lambda: fedldp.source(5)):
        np.testing.assert_array_equal(oracle.answer(values, make()), oracle.answer(values, make()))
    with pytest.raises(DomainError, match="a seed must be a whole number"):
        oracle.answer(values, "5")


@pytest.mark.parametrize("kind", FREQUENCY_ORACLES)
def test_bits_hold_an_answer(kind):
    for epsilon, categories in CASES:
        oracle = kind(epsilon, categories)
        most = {
            "grr": log2(categories),
            "hadamard-response": log2(4 * categories) + epsilon * log2(np.e),
        }.get(oracle.name, oracle.bits)
        assert 1 <= oracle.bits <= max(1, ceil(most))


def test_bad_arguments_are_refused():
    with pytest.raises(DomainError, match="at least 2 categories; got 1"):
        RandomResponse(1.0, 1)
    with pytest.raises(DomainError, match="epsilon must be a number from"):
        Rappor(0.0, 4)
    with pytest.raises(DomainError, match="integers from 0 to 3"):
        RandomResponse(1.0, 4).answer([0, 4], 1)
    with pytest.raises(DomainError, match="integers from 0 to 3"):
        RandomResponse(1.0, 4).answer([0.5], 1)
